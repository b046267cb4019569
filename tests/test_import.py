"""`import poslib` stays small, and arrows between modules point down."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import poslib

PACKAGE = Path(poslib.__file__).parent
UPPER = {"nn", "kernels", "lab", "teach"}


def test_import_loads_neither_torch_nor_triton_nor_numpy():
    code = "import sys, poslib; print(sorted({'torch', 'triton', 'numpy', 'matplotlib', 'IPython'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("module, call", [
    ("attention", "attention.causal_mask(2)"),
    ("positions", "positions.consecutive(2)"),
    ("absolute", "absolute.sinusoid_2d(2, 2, 8), absolute.shift_matrix(1, 4), "
                 "absolute.resize(absolute.lookup(numpy.eye(3), numpy.arange(3)), 7)"),
    ("collisions", "w = numpy.array([1.0]); collisions.distance(numpy.arange(3), w); collisions.nearest_lag(w, 9); "
                   "collisions.collision_counts(w, 9, .1); collisions.merged_positions(1.0, 9, 'bf16'); "
                   "collisions.angle_error(numpy.arange(3), w, 'fp16', 'all')"),
    ("relative", "i = numpy.arange(3); x = numpy.ones((3, 3)); f = numpy.ones(2); t = numpy.ones((4, 2)); "
                 "relative.alibi_bias(i, i, relative.alibi_slopes(2)); relative.t5_bias(i, i, t, bidirectional=True); "
                 "relative.shaw_values(relative.shaw_scores(x, x, i, i), x, i, i); relative.skew(x); "
                 "relative.transformer_xl_scores(x, x, numpy.ones((5, 3)), x[0], x[0], i, i, first_lag=-2); "
                 "relative.kerple_bias(i, i, f, f, kind='log'); "
                 "relative.fire_bias(i, i, lambda y: y * f, c=1.0, threshold=2.0)"),
    ("rotary", "i = numpy.arange(3); x = numpy.ones((3, 4)); rotary.rotate(x, i, layout='half', width=2, out=x); "
               "rotary.reposition(x, i, i, layout='half'); rotary.xpos(x, i, role='key', layout='half'); "
               "rotary.convert(x, source='half', target='interleaved', heads=1, axis=1)"),
    ("extension", "i = numpy.arange(3); x = numpy.ones((3, 4)); m = extension.YaRN(4.0, 64); m.rotate(x, i, layout='half'); "
                  "rotary_tables = m.tables(i, 4, x.dtype); extension.DynamicNTK(2.0, 2).relength(x, i, 2, 3, layout='half')"),
    ("multiaxis", "multiaxis.mrope_axes((2, 1), order='chunked'), multiaxis.axial_frequencies(8)"),
    ("cost", "a = cost.Attention(heads=2, head_dim=4, queries=8); cost.roofline(cost.attention(a) + cost.rotation(a, 'fused'), "
             "cost.DEVICES['H100']); cost.relative_steps(8, 8, heads=2); cost.simulate(cost.walk(8, way='banded'), 4)"),
    ("hf", "hf.from_hf_config({'model_type': 'llama', 'head_dim': 4}).rotate(numpy.ones((3, 4)), numpy.arange(3))"),
])
def test_the_core_needs_numpy_alone(module, call):
    code = f"import sys; from poslib import {module}; import numpy; {call}; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def imported(path):
    for node in ast.walk(ast.parse(path.read_text("utf8"))):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write imports from poslib in full"
            yield from (f"{node.module}.{a.name}" for a in node.names)


def test_the_core_knows_nothing_of_what_is_built_on_it():
    for path in PACKAGE.glob("*.py"):
        if path.stem in UPPER:
            continue
        bad = [name for name in imported(path) if name.startswith("poslib.") and name.split(".")[1] in UPPER]
        assert not bad, f"{path.name} imports {bad}"
        assert path.stem == "nn" or not [n for n in imported(path) if n.split(".")[0] in ("torch", "triton")]


def test_lab_and_teach_do_not_import_each_other():
    for folder, other in (("lab", "teach"), ("teach", "lab")):
        for path in (PACKAGE / folder).rglob("*.py"):
            assert not [n for n in imported(path) if n.startswith(f"poslib.{other}")], path
