"""How the kernels run: decided before triton is imported, in one way for a process, and said clearly where it cannot be."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton", reason="wheels of triton exist for Linux")

from poslib.kernels import _common, _runtime, configs


def python(code, **environment):
    """What a fresh process prints; without a GPU, and with the variable only if it is given."""
    kept = {k: v for k, v in os.environ.items() if k != _runtime.VARIABLE}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                         env={**kept, "CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", **environment})
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


LAST_LINE = "import traceback\ntry:\n    {}\nexcept Exception as e:\n    print(type(e).__name__, e)"


def test_this_process_is_in_the_mode_that_it_asked_for():
    """conftest asked before anything could import triton."""
    assert _common.MODE == _runtime.loaded() == _runtime.mode()
    assert _common.MODE == ("compiled" if torch.cuda.is_available() and not os.environ.get(_runtime.VARIABLE) else "interpreted")


def test_the_package_alone_loads_nothing():
    assert python("import sys, poslib.kernels as k; print(sorted({'torch', 'triton', 'numpy'} & set(sys.modules)), 'rotary' in dir(k))") == "[] True"


def test_modules_come_when_they_are_asked_for():
    code = "from poslib import kernels; print(kernels.rotary.__name__); kernels.nothing"
    assert python(LAST_LINE.format(code)) == "poslib.kernels.rotary\nAttributeError module 'poslib.kernels' has no attribute 'nothing'"


@pytest.mark.parametrize("package", ["torch", "triton"])
def test_a_missing_package_is_named_with_what_installs_it(package):
    code = f"""
import sys
class Without:
    def __init__(self, finder): self.finder = finder
    def find_spec(self, name, *rest): return None if name == {package!r} else self.finder.find_spec(name, *rest)
sys.meta_path[:] = map(Without, sys.meta_path)
from poslib import kernels
""" + LAST_LINE.format("kernels.rotary")
    assert python(code).startswith(f"ModuleNotFoundError poslib.kernels needs {package}, which is not installed: pip install torch triton; wheels")
    assert python(f"import sys; sys.modules[{package!r}] = None\n" + LAST_LINE.format("import poslib.kernels.rotary")).startswith("ModuleNotFoundError poslib.kernels needs")


def test_without_a_gpu_kernels_are_interpreted():
    assert python("from poslib.kernels import _common; print(_common.MODE); import triton.language as tl; print(type(tl.sum).__name__)"
                  ) == "interpreted\nInterpretedFunction"


def test_torch_compile_first_is_refused():
    """It imports triton, whose helpers are then decorated for a GPU that is not there."""
    said = python("import torch\ntorch.compile(lambda x: x + 1, backend='eager')(torch.ones(1))\n" + LAST_LINE.format("import poslib.kernels.rotary"))
    assert said.startswith("RuntimeError triton was imported before poslib.kernels, in a process where its kernels are compiled")
    assert "torch.compile imports triton" in said and "TRITON_INTERPRET=1 before Python starts" in said
    after = python("import poslib.kernels.rotary, torch\nprint(torch.compile(lambda x: x + 1, backend='eager')(torch.ones(1)))")
    assert after == "tensor([2.])"


def test_a_refusal_changes_nothing():
    code = "import os, triton\nfrom poslib.kernels import _runtime\ntry: _runtime.mode()\nexcept RuntimeError: print(os.environ.get('TRITON_INTERPRET'))"
    assert python(code) == "None"


def test_the_variable_decides():
    show = "from poslib.kernels import _common; print(_common.MODE)"
    assert python("import triton\n" + show, TRITON_INTERPRET="1") == "interpreted"
    assert python("import triton\n" + show, TRITON_INTERPRET="0") == "compiled"     # ahead of time
    assert python("import torch; torch.cuda.is_available = lambda: True\n" + show) == "compiled"
    assert python("import torch; torch.cuda.is_available = lambda: True\n" + show, TRITON_INTERPRET="on") == "interpreted"
    changed = "import triton, os; os.environ['TRITON_INTERPRET'] = '0'\n" + LAST_LINE.format("import poslib.kernels.rotary")
    assert "kernels are interpreted; here they must be compiled" in python(changed, TRITON_INTERPRET="1")


def test_compiled_kernels_refuse_the_cpu():
    code = "import torch; from poslib.kernels import rotary\n" + LAST_LINE.format("rotary.rotate(torch.ones(1, 1, 2, 4), None, 0, layout='half')")
    assert python(code, TRITON_INTERPRET="0").startswith("ValueError q is on device cpu; allowed is a GPU, for which kernels are compiled")


def test_lengths_and_what_follows_from_them_are_not_specialised_on():
    """Else each new length, offset or batch would be compiled anew: strides and pointers alone may be looked at."""
    code = """
from poslib.kernels import rotary
for name in ("rotate_kernel", "rows_kernel", "write_kernel"):
    for p in getattr(rotary, name).params:
        if not (p.is_constexpr or p.do_not_specialize or p.name.isupper()):
            print(p.name)
"""
    looked_at = python(code, TRITON_INTERPRET="0").split()
    assert len(looked_at) == 12 + 12 + 12 and {n.rsplit("_", 1)[1] for n in looked_at} == {"batch", "head", "token", "page", "slot"}


def test_names_of_gpus(monkeypatch):
    monkeypatch.setattr(_runtime, "loaded", lambda: "compiled")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(gcnArchName="gfx942:sramecc+:xnack-"))
    assert _runtime.architecture(torch.device("cuda", 7)) == "sm_90"
    monkeypatch.setattr(torch.version, "hip", "6.2")
    assert _runtime.architecture(torch.device("cuda", 6)) == "gfx942"
    _runtime._architecture.cache_clear()


# ---- configurations -------------------------------------------------------------------------------------------------

def test_every_entry_is_a_tile_that_triton_takes():
    def power_of_two(n):
        return n > 0 and n & (n - 1) == 0
    for (kernel, width, size, architecture), c in configs.TABLE.items():
        assert kernel.isidentifier() and width > 0 and size in (1, 2, 4) and architecture in (*configs.ARCHITECTURES, "interpreted")
        assert power_of_two(c.rows) and power_of_two(c.warps) and c.stages >= 1 and (c.keys == 0 or power_of_two(c.keys))
    kernels = {k for k, *_ in configs.TABLE}
    for kernel in kernels:
        assert {(w, s) for k, w, s, a in configs.TABLE if (k, a) == (kernel, "sm_90")} <= {
            (w, s) for k, w, s, a in configs.TABLE if (k, a) == (kernel, "interpreted")}, kernel


def test_the_next_older_architecture_stands_in():
    for given, taken in (("sm_80", "sm_80"), ("sm_86", "sm_80"), ("sm_89", "sm_80"), ("sm_90", "sm_90"), ("sm_100", "sm_90"), ("sm_120", "sm_90"),
                         ("gfx942", "gfx942"), ("gfx950", "gfx942"), ("interpreted", "interpreted")):
        assert configs.find("rotate", 128, 2, given) is configs.TABLE["rotate", 128, 2, taken]


@pytest.mark.parametrize("key, message", [
    (("rotate", 128, 2, "sm_75"), "architecture is 'sm_75'; allowed are sm_80, sm_90, gfx942 and newer, and the interpreter"),
    (("rotate", 128, 2, "gfx90a"), "architecture is 'gfx90a'"),
    (("rotate", 1024, 2, "sm_90"), "width 1024 of a head is not covered by kernel 'rotate'; allowed are 2, 4, 8"),
    (("rotate", 128, 8, "sm_90"), "kernel 'rotate' has no configuration for numbers of 8 bytes on sm_90"),
    (("turn", 128, 2, "sm_90"), "kernel 'turn' has no configuration"),
])
def test_what_is_not_covered_is_named(key, message):
    with pytest.raises(ValueError, match=message):
        configs.find(*key)
