"""How fast rotary embedding is on the CPU, beside other libraries, and how exact; what `make bench` prints.

    python -m poslib.lab.rotation_speed             prints the table; four minutes
    python -m poslib.lab.rotation_speed --json      writes results/rotation_speed.json too; on a machine with nothing else to do

All methods of a run take turns, each once per round, so that what disturbs the machine disturbs all of them; the ratios are
the message.  A peer gets what it needs before the clock starts (tables, or its own cache filled) and the order of axes that it
is made for.  With one thread the clock is the CPU time of the thread, with more the wall clock.

Large results are new memory.  By default glibc asks the system for it in every call and gives it back, and the page faults
cost more than the arithmetic: that compares allocators.  So the numbers come from a process in which malloc keeps
what it has ("kept"), and some of them also from one where it does not ("default").
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import json
import os
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path

import array_api_compat.torch as xp

from poslib import absolute, rotary
from poslib.lab import results
from poslib.lab._torch import torch

SHAPES = ((1, 32, 2048, 128), (1, 32, 1, 128))          # batch, heads, length, width: a text, one token of decoding
KEPT = {"MALLOC_MMAP_THRESHOLD_": "4000000000", "MALLOC_TRIM_THRESHOLD_": "8000000000"}
COLUMNS = ("method", "layout", "shape", "dtype", "threads", "allocator", "forward low", "forward", "forward high",
           "both low", "both", "both high", "wrong", "ulp")
PACKAGES = ("transformers", "rotary-embedding-torch", "x-transformers", "torchtune")


# -- the methods: build(layout, ids, x) gives a function of x and how it wants the axes

def _rotate(layout, ids, x):
    return lambda x: rotary.rotate(x, ids, layout=layout)


def _rotate_out(layout, ids, x):
    out = torch.empty_like(x)
    return lambda x: rotary.rotate(x, ids, layout=layout, out=out)


def _tables(ids, x):
    return rotary.tables(rotary.angles(ids, rotary.frequencies(x.shape[-1])), x.dtype)


def _turn(layout, ids, x):
    cos, sin = _tables(ids, x)
    return lambda x: rotary.turn(x, cos, sin, layout=layout)


def _turn_out(layout, ids, x):
    (cos, sin), out = _tables(ids, x), torch.empty_like(x)
    return lambda x: rotary.turn(x, cos, sin, layout=layout, out=out)


def _onnx(layout, ids, x):
    """With the tables of poslib, in the dtype of `x`, as the operator's definition wants them."""
    cos, sin = (table[None].to(x.dtype) for table in _tables(ids, x))
    return lambda x: torch.onnx.ops.rotary_embedding(x, cos, sin, interleaved=layout == "interleaved")


def _transformers(layout, ids, x):
    if layout == "half":
        code = importlib.import_module("transformers.models.llama.modeling_llama")
        config = importlib.import_module("transformers").LlamaConfig(head_dim=x.shape[-1], max_position_embeddings=1 << 20)
        cos, sin = code.LlamaRotaryEmbedding(config)(x, ids[None])
        return lambda x: code.apply_rotary_pos_emb(x, x[:, :0], cos, sin)[0]            # it turns keys too: here of no head
    code = importlib.import_module("transformers.models.gptj.modeling_gptj")
    table = code.create_sinusoidal_positions(int(ids.max()) + 1, x.shape[-1])[ids][None].to(x.dtype)
    sin, cos = table.chunk(2, dim=-1)
    return lambda x: code.apply_rotary_pos_emb(x, sin, cos)


def _rotary_embedding_torch(layout, ids, x):
    made = importlib.import_module("rotary_embedding_torch").RotaryEmbedding(x.shape[-1])
    start = int(ids[0])
    return lambda x: made.rotate_queries_or_keys(x, offset=start)


def _x_transformers(layout, ids, x):
    code = importlib.import_module("x_transformers.x_transformers")
    freqs, scale = code.RotaryEmbedding(x.shape[-1])(ids)
    return lambda x: code.apply_rotary_pos_emb(x, freqs, scale)


def _torchtune(layout, ids, x):
    spec = importlib.util.find_spec("torchtune")
    if spec is None:
        raise ModuleNotFoundError("torchtune")
    path = Path(spec.submodule_search_locations[0], "modules", "position_embeddings.py")    # the package needs more than this file does
    spec = importlib.util.spec_from_file_location("torchtune_positions", path)
    code = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(code)
    made = code.RotaryPositionalEmbeddings(x.shape[-1], max_seq_len=int(ids.max()) + 1)
    return lambda x: made(x, input_pos=ids[None])


METHODS = {  # name: how it is built, and its layouts
    "poslib rotate": (_rotate, ("half", "interleaved")),
    "poslib turn": (_turn, ("half", "interleaved")),
    "poslib rotate, out=": (_rotate_out, ("half", "interleaved")),
    "poslib turn, out=": (_turn_out, ("half", "interleaved")),
    "transformers": (_transformers, ("half", "interleaved")),
    "rotary-embedding-torch": (_rotary_embedding_torch, ("interleaved",)),
    "x-transformers": (_x_transformers, ("interleaved",)),
    "torchtune": (_torchtune, ("interleaved",)),
    "torch.onnx": (_onnx, ("half", "interleaved")),
}
TOKENS_FIRST = {("transformers", "interleaved"), ("torchtune", "interleaved")}     # axes (batch, length, heads, width)
NO_GRADIENT = {"poslib rotate, out=", "poslib turn, out=", "torch.onnx"}


# -- errors

def exact(x, ids, layout, base=10000.0):
    """The turn in float64 by complex numbers, which share nothing with poslib."""
    pairs = x.shape[-1] // 2
    theta = ids.double()[:, None] * torch.tensor([base ** (-k / pairs) for k in range(pairs)], dtype=torch.float64)
    wide = x.double()
    a, b = (wide[..., :pairs], wide[..., pairs:]) if layout == "half" else (wide[..., 0::2], wide[..., 1::2])
    z = torch.complex(a, b) * torch.polar(torch.ones_like(theta), theta)
    return torch.cat([z.real, z.imag], -1) if layout == "half" else torch.view_as_real(z).flatten(-2)


def errors(got, x, ids, layout):
    """The share of results that are not the correctly rounded ones, and the greatest error in units in the last place.

    The unit is that of a number as large as the pair is long: where a result is small by cancellation, so is its own unit, and
    any error of arithmetic in the dtype is many of these.
    """
    truth = exact(x, ids, layout)
    wrong = float((got != absolute._rounded(xp, truth, x.dtype)).double().mean())
    pairs = truth.unflatten(-1, (2, -1) if layout == "half" else (-1, 2))
    length = pairs.square().sum(-2 if layout == "half" else -1, keepdim=True).sqrt()
    unit = torch.finfo(x.dtype).eps * 2.0 ** length.log2().floor()
    off = (got.double() - truth).reshape(pairs.shape).abs()
    return wrong, float((off / unit).max())


# -- times

def quartiles(times):
    """Lower quartile, median, upper quartile, in milliseconds."""
    low, middle, high = statistics.quantiles(times, n=4, method="inclusive") if len(times) > 1 else times * 3
    return [round(1e3 * t, 5) for t in (low, middle, high)]


def take_turns(calls, seconds, threads, at_least=3):
    """Seconds for each of the named calls, once per round until the time is up; a sample repeats what is short."""
    clock = time.thread_time if threads == 1 else time.perf_counter
    repeats, times = {}, {name: [] for name in calls}
    for name, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        repeats[name] = max(1, int(2e-3 / (time.perf_counter() - start)))
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[name]) < at_least:
        for name, call in calls.items():
            start = clock()
            for _ in range(repeats[name]):
                call()
            times[name].append((clock() - start) / repeats[name])
    return times


def cell(shape, dtype, threads, allocator, seconds):
    """All methods on one shape, dtype and number of threads: rows of the table, and the names of what is not installed."""
    torch.set_num_threads(threads)
    generator = torch.Generator().manual_seed(0)
    x, gradient = (torch.randn(shape, generator=generator).to(dtype) for _ in "xg")
    ids = torch.arange(shape[2]) if shape[2] > 1 else torch.tensor([SHAPES[0][2] - 1])
    out = torch.empty_like(x)
    forward, both, found, missing = {("copy", ""): lambda: out.copy_(x)}, {}, {("copy", ""): (None, None)}, []
    for name, (build, layouts) in METHODS.items():
        for layout in layouts:
            swap = (lambda x: x.transpose(1, 2)) if (name, layout) in TOKENS_FIRST else (lambda x: x)
            own, dy = (swap(t).contiguous() for t in (x, gradient))
            try:
                turn = build(layout, ids, x)
            except ModuleNotFoundError:
                missing.append(name)
                break
            found[name, layout] = errors(swap(turn(own))[:, :4], x[:, :4], ids, layout)
            forward[name, layout] = lambda turn=turn, own=own: turn(own)
            if name not in NO_GRADIENT:
                leaf = own.clone().requires_grad_()
                both[name, layout] = lambda turn=turn, leaf=leaf, dy=dy: torch.autograd.grad(turn(leaf), leaf, dy)
    with torch.no_grad():
        times = take_turns(forward, seconds / 3, threads)
    more = take_turns(both, seconds * 2 / 3, threads)
    place = ["x".join(map(str, shape)), str(dtype).removeprefix("torch."), threads, allocator]
    return [[*key, *place, *quartiles(times[key]), *(quartiles(more[key]) if key in more else [None] * 3), *found[key]]
            for key in forward], missing


def work(plan):
    """What one process does: the cells of its plan, as lines of JSON."""
    for shape, dtype, threads, allocator, seconds in plan:
        rows, missing = cell(tuple(shape), getattr(torch, dtype), threads, allocator, seconds)
        print(json.dumps({"rows": rows, "missing": missing}), flush=True)


def run(shapes, seconds, progress=print):
    """Rows and missing peers of all cells, from one process for each allocator."""
    cells = [(shape, dtype, threads, 8 if shape[2] > 1 else 1) for shape in shapes for dtype in ("float32", "bfloat16") for threads in (1, 2)]
    default = [c for c in cells if c[0][2] > 1 and c[2] == 1]
    share = seconds / sum(c[3] for c in cells + default)
    rows, missing = [], set()
    for allocator, part, extra in (("kept", cells, KEPT), ("default", default, {})):
        plan = [[*c[:3], allocator, share * c[3]] for c in part]
        env = {k: v for k, v in os.environ.items() if k not in KEPT} | extra
        env["PYTHONPATH"] = os.pathsep.join([str(Path(rotary.__file__).parents[1]), env.get("PYTHONPATH", "")])
        with subprocess.Popen([sys.executable, "-W", "ignore", "-m", __spec__.name, "--work", json.dumps(plan)], env=env, text=True,
                              stdout=subprocess.PIPE) as process:
            for line in process.stdout:
                done = json.loads(line)
                rows += done["rows"]
                missing |= set(done["missing"])
                progress(f"measured: {', '.join(map(str, done['rows'][0][2:6]))}")
        if process.returncode:
            raise RuntimeError(f"the process that measures ended with {process.returncode}")
    return rows, sorted(missing)


# -- what is said

def as_dicts(rows):
    return [dict(zip(COLUMNS, row)) for row in rows]


def cells_of(rows):
    """The rows of each cell, with the copy's time."""
    groups = {}
    for row in as_dicts(rows):
        groups.setdefault(tuple(row[c] for c in ("shape", "dtype", "threads", "allocator")), []).append(row)
    for key, group in groups.items():
        yield key, next(row["forward"] for row in group if row["method"] == "copy"), group


def table(rows):
    """The table as lines of text."""
    lines = [f"{'method':23} {'layout':11} {'shape':14} {'dtype':8} threads malloc  {'forward ms (quartiles)':>28} {'x copy':>7} "
             f"{'forward+backward':>17} {'x copy':>7}  {'misrounded':>10} {'max ulp':>8}"]
    for (shape, dtype, threads, allocator), copy, group in cells_of(rows):
        for row in sorted(group, key=lambda row: (row["layout"], row["forward"])):
            spread = f"{row['forward']:.3g} ({row['forward low']:.3g} to {row['forward high']:.3g})"
            both = "" if row["both"] is None else f"{row['both']:.3g}"
            ratio = "" if row["both"] is None else f"{row['both'] / copy:.1f}"
            error = "" if row["ulp"] is None else f"{row['wrong']:10.2%} {row['ulp']:8.3g}"
            lines.append(f"{row['method']:23} {row['layout']:11} {shape:14} {dtype:8} {threads:7} {allocator:7} {spread:>28} "
                         f"{row['forward'] / copy:7.1f} {both:>17} {ratio:>7}  {error}".rstrip())
    return lines


def verdicts(rows):
    """Whether the goals are met: 1.2 times the fastest peer of no larger error, with tables at hand; three copies with ``out=``."""
    said = []
    for (shape, dtype, threads, allocator), copy, group in cells_of(rows):
        if allocator != "kept":
            continue
        for layout in ("half", "interleaved"):
            here = {row["method"]: row for row in group if row["layout"] == layout}
            ours, own = here["poslib turn"], f"{shape} {dtype}, {threads} thread{'s' * (threads > 1)}, {layout}"
            peers = [row for name, row in here.items() if not name.startswith("poslib")]
            for what in ("forward", "both"):
                timed = [row for row in peers if row[what] is not None]
                exact = [row for row in timed if row["wrong"] <= ours["wrong"] and row["ulp"] <= ours["ulp"]]
                if timed:
                    best = min(exact or timed, key=lambda row: row[what])
                    ratio = ours[what] / best[what]
                    met = ("met" if ratio <= 1.2 else "MISSED") if exact else "no peer is as exact"
                    said.append(f"{own}, {'forward' if what == 'forward' else 'forward+backward'}: {ratio:.2f} times {best['method']}: {met}")
            if dtype == "float32":
                ratio = here["poslib turn, out="]["forward"] / copy
                said.append(f"{own}, out=: {ratio:.1f} copies: {'met' if ratio <= 3 else 'MISSED'}")
    return said


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", nargs="?", const=str(results.HOME / "rotation_speed.json"), metavar="FILE", help="write the numbers too")
    parser.add_argument("--seconds", type=float, default=150, help="time to measure, beside start-up (default 150)")
    parser.add_argument("--shape", action="append", metavar="B,H,L,D", help="in place of the two shapes")
    parser.add_argument("--note", default="", help="what else the machine did, for the file")
    parser.add_argument("--work", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.work:
        return work(given.work)
    shapes = [tuple(map(int, shape.split(","))) for shape in given.shape] if given.shape else SHAPES
    rows, missing = run(shapes, given.seconds, progress=lambda text: print(text, file=sys.stderr))
    print("\n".join([*table(rows), "", *verdicts(rows), *(f"not installed, left out: {name}" for name in missing)]))
    if given.json:
        command = shlex.join(["python", "-m", "poslib.lab.rotation_speed", *(sys.argv[1:] if arguments is None else arguments)])
        made = results.provenance(command, seeds=[0])
        made |= {name: importlib.metadata.version(name) for name in PACKAGES if name not in missing} | ({"note": given.note} if given.note else {})
        what = ("Times in milliseconds: lower quartile, median and upper quartile; both is forward and backward. wrong is the share of results "
                "that are not the correctly rounded ones, ulp the greatest error in units of the last place of the pair's length.")
        Path(given.json).write_text(results._written({"made": made, "what": what, "columns": COLUMNS, "rows": rows}), "utf8")
        print(f"wrote {Path(given.json).name}")


if __name__ == "__main__":
    main()
