"""The search of chapter 09: which bases keep the kernel above zero at every lag of a context.

    python -m poslib.lab.frequencies        writes results/frequencies.json; about three minutes of CPU time
"""

from __future__ import annotations

import time

import numpy as np

from poslib.collisions import kernel
from poslib.lab import results
from poslib.rotary import frequencies

LENGTHS = tuple(1024 << n for n in range(8))        # 1k to 128k
WIDTH, STEP = 128, 5e-4
CHUNK = 4096


def first_failure(base, width=WIDTH, limit=1 << 20):
    """The smallest lag below `limit` at which the kernel is negative, or None."""
    omega = frequencies(width, base)
    for start in range(0, limit, CHUNK):
        below = np.flatnonzero(kernel(np.arange(start, min(start + CHUNK, limit)), omega) < 0)
        if below.size:
            return start + int(below[0])
    return None


def some_failure(base, length, hint, width=WIDTH):
    """A lag below `length` at which the kernel is negative, or None: near the hint if there is one, else from the far end."""
    omega = frequencies(width, base)
    if hint is not None:
        near = 12 + length // 200                   # long lags' phases move more from base to base
        lags = np.arange(max(hint - near, 0), min(hint + near + 1, length))
        value = kernel(lags, omega)
        if value.min() < 0:
            return int(lags[value.argmin()])
    for stop in range(length, 0, -CHUNK):
        lags = np.arange(max(stop - CHUNK, 0), stop)
        value = kernel(lags, omega)
        if value.min() < 0:
            return int(lags[value.argmin()])
    return None


def smallest_base(length, start=None, step=STEP, width=WIDTH):
    """The first base, going up in steps of a factor e^step, whose kernel is nowhere negative below `length`.

    Starts at 1.6 times the length, below the bound of a head of infinite width.
    """
    log, hint = np.log(1.6 * length if start is None else start), None
    while (hint := some_failure(np.exp(log), length, hint, width)) is not None:
        log += step
    return float(np.exp(log))


def comb(low, high, count):
    """Bases between two limits, evenly spaced by ratio, and the first failing lag of each."""
    bases = np.geomspace(low, high, count)
    return {"bases": [float(f"{b:.6g}") for b in bases], "first": [first_failure(float(f"{b:.6g}")) for b in bases]}


def main():
    began = time.process_time()
    result = {"width": WIDTH, "step": STEP, "smallest": {}, "finer": {}}
    for length in LENGTHS:
        result["smallest"][str(length)] = round(smallest_base(length), 1)
        print(length, result["smallest"][str(length)], round(time.process_time() - began), "s", flush=True)
    for step in (2e-3, 5e-4, 1e-4, 2e-5):
        result["finer"][str(step)] = round(smallest_base(16_384, step=step), 1)
        print(step, result["finer"][str(step)], round(time.process_time() - began), "s", flush=True)
    result["comb"] = comb(2e3, 1e6, 500)
    result["cpu_seconds"] = round(time.process_time() - began)
    results.store("frequencies", result, command="python -m poslib.lab.frequencies", seeds=[])


if __name__ == "__main__":
    main()
