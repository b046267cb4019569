"""The machine of chapter 11, and what ways to rotate cost on it in time and in page faults.

    python -m poslib.lab.bytes_and_flops        writes results/bytes_and_flops.json; two minutes

One thread.  The machine's rates are the best of many runs: where other work shares it, a run that has a core for itself is
likely among them.  The ways take turns, each once per round, and their times are given in copies of the same memory, in one
process that keeps what it has allocated and in one as malloc is by default.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from poslib import cost
from poslib.lab import results

RUNS = 20
SHAPE = (1, 32, 2048, 128)
DTYPES = ("fp32", "bf16")


# ---- the machine ----------------------------------------------------------------------------------

def cpu():
    """The machine of the stored run, as a device of `poslib.cost`.

    Returns
    -------
    poslib.cost.Device
        Rates are the best of several runs, rounded to two digits.
    """
    stored = results.load("bytes_and_flops")
    best = stored["best"]
    return cost.Device("CPU", best["bandwidth"], {t: best[t] for t in DTYPES}, stored["cache"], stored["memory"],
                       f"measured, one thread, best of {stored['runs']} runs, {stored['made']['machine']}")


def _two_digits(x):
    return float(f"{x:.1e}")


def measured(runs=RUNS, megabytes=256):
    """What `poslib.lab.machine.measure` finds, several times: the best of each rate, and the lowest beside it."""
    from poslib.lab import machine
    from poslib.lab.training import one_thread
    with one_thread():
        found = [machine.measure(megabytes) for _ in range(runs)]
    rates = {"bandwidth": [m.bandwidth for m in found], **{t: [m.flops[t] for m in found] for t in DTYPES}}
    return {"runs": runs, "threads": 1, "best": {name: _two_digits(max(r)) for name, r in rates.items()},
            "lowest": {name: _two_digits(min(r)) for name, r in rates.items()}, "cache": found[0].cache, "memory": found[0].memory}


# ---- the ways to rotate ---------------------------------------------------------------------------

def faults(call, times=5):
    """Page faults of one call: the fewest of several, after one that is not counted."""
    import resource                                          # not on Windows
    counts = []
    for _ in range(times + 1):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        call()
        counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    return min(counts[1:])


def calls(dtype, shape=SHAPE):
    """{way: a function that turns one tensor}: the eager ways of `poslib.lab.traffic`, poslib's own into given memory, a copy."""
    from poslib import rotary
    from poslib.lab import traffic
    from poslib.lab._torch import torch
    kind = {"fp32": torch.float32, "bf16": torch.bfloat16}[dtype]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(kind)
    own, out = x.clone(), torch.empty_like(x)
    found = {"copy": lambda: out.copy_(x)}
    for way in traffic.ROTATIONS:
        table = traffic.tables(shape[2], shape[3], way, kind)
        found[way] = (lambda way=way, table=table: traffic.rotate(own if way == "in_place" else x, table, way, out=out if way == "out" else None))
    cos, sin = rotary.tables(rotary.angles(torch.arange(shape[2]), rotary.frequencies(shape[3])), kind)
    for layout in ("half", "interleaved"):
        found[f"poslib {layout}"] = lambda layout=layout: rotary.turn(x, cos, sin, layout=layout, out=out)
    return found


def ways(dtype, seconds, shape=SHAPE):
    """{way: {"copies": [lower quartile, median, upper quartile], "faults": page faults of a call}}, in this process."""
    from poslib.lab import rotation_speed
    from poslib.lab._torch import torch
    torch.set_num_threads(1)
    with torch.no_grad():
        each = calls(dtype, shape)
        times = rotation_speed.take_turns(each, seconds, 1)
        counted = {way: faults(call) for way, call in each.items()}
    copy = statistics.median(times["copy"])
    return {way: {"copies": [round(q / copy, 2) for q in statistics.quantiles(times[way], n=4)], "faults": counted[way]} for way in each}


def both_allocators(seconds):
    """`ways` in processes of their own: {"kept" or "default": {dtype: …}}."""
    from poslib.lab.rotation_speed import KEPT
    found = {}
    for allocator, extra in (("kept", KEPT), ("default", {})):
        env = {k: v for k, v in os.environ.items() if k not in KEPT} | extra
        env["PYTHONPATH"] = os.pathsep.join([str(Path(cost.__file__).parents[1]), env.get("PYTHONPATH", "")])
        found[allocator] = {}
        for dtype in DTYPES:
            done = subprocess.run([sys.executable, "-m", __spec__.name, "--ways", dtype, "--seconds", str(seconds)], env=env, text=True,
                                  stdout=subprocess.PIPE, check=True)
            found[allocator][dtype] = json.loads(done.stdout)
    return found


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ways", choices=DTYPES, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=20, help="time for the ways, for each dtype and allocator (default 20)")
    given = parser.parse_args(arguments)
    if given.ways:
        print(json.dumps(ways(given.ways, given.seconds)))
        return
    results.store("bytes_and_flops", {**measured(), "shape": list(SHAPE), "page": os.sysconf("SC_PAGE_SIZE"), "ways": both_allocators(given.seconds)},
                  command="python -m poslib.lab.bytes_and_flops", seeds=[0])


if __name__ == "__main__":
    main()
