"""The long computations of chapter 05: how near codes come, and what low precision does to angles.

    python -m poslib.lab.collisions         writes results/collisions.json; three minutes of CPU time

Nothing here is random: no seeds.
"""

from __future__ import annotations

import math

import numpy as np

from poslib.absolute import frequencies
from poslib.collisions import PRECISIONS, angle_error, merged_positions, nearest_lag
from poslib.lab import results
from poslib.lab._torch import torch
from poslib.lab.training import one_thread

PAIRS = (1, 2, 3, 4, 6, 8, 16, 32, 64)                   # hands of the ladder with base 10,000
LENGTHS = (4096, 65_536, 2**20)
LAST = (255, 1000, 4095, 16_383, 65_503, 262_143, 1_048_575)   # largest position; float16 ends after 65,504
PERIODS = (1000, 2000, 5000, 20_000, 100_000, 1_000_000)
WAYS = ("frequencies", "angle", "all")


def nearest(pairs, length):
    """The lag below `length` at which codes of the ladder come closest, and their distance there."""
    return nearest_lag(frequencies(2 * pairs), length - 1)


def errors(last, width=128):
    """Largest error of a phase over positions 0 ... `last`, in radians: {dtype: {way: error}}; None where it is infinite."""
    p, w = np.arange(last + 1), frequencies(width)
    found = {dtype: {how: angle_error(p, w, dtype, how) for how in WAYS} for dtype in PRECISIONS}
    return {dtype: {how: e if math.isfinite(e) else None for how, e in row.items()} for dtype, row in found.items()}


@one_thread()
def usual_error(last, width=128, base=10_000.0):
    """The largest error over positions 0 ... `last` of an angle as libraries form it in torch: all in float32.

    A power, a quotient and a product are rounded, so it is not the error of correctly rounded frequencies.
    """
    inv_freq = 1.0 / (base ** (torch.arange(0, width, 2, dtype=torch.float32) / width))
    exact, worst = torch.from_numpy(frequencies(width, base=base)), 0.0
    for start in range(0, last + 1, 8192):
        p = torch.arange(start, min(start + 8192, last + 1))
        angle = p.float()[:, None] * inv_freq
        worst = max(worst, float((angle.double() - p.double()[:, None] * exact).abs().max()))
    return worst


def merged(period):
    """For each dtype: how many of the positions 0 ... `period` - 1 have the same rounded code as the next, and the first that does."""
    found = {dtype: merged_positions(2 * math.pi / period, period, dtype) for dtype in PRECISIONS}
    return {dtype: {"merged": len(m), "first": int(m[0]) if len(m) else None} for dtype, m in found.items()}


def main():
    near = {}
    for pairs in PAIRS:
        near[str(pairs)] = [list(nearest(pairs, n)) for n in LENGTHS]
        print(pairs, near[str(pairs)], flush=True)
    near["256"] = [list(nearest(256, LENGTHS[0])), list(nearest(256, LENGTHS[1])), list(nearest_lag(frequencies(512), 10**6))]
    print(256, near["256"], flush=True)
    off, usual = [], []
    for last in LAST:
        off.append(errors(last))
        usual.append(usual_error(last))
        print(last, off[-1], usual[-1], flush=True)
    path = results.store("collisions", {
        "what": "nearest: for ladders of base 10,000 with so many pairs, [lag, distance] of the closest codes among `lengths` positions (256 pairs, "
                "third entry: lags 1 ... 1,000,000). errors: for width 128, the largest error of a phase in radians over positions 0 ... `last`, "
                "for each dtype and each way of rounding; null is infinite. usual: the same for float32 angles as libraries form them in torch. "
                "merged: one wave of each period, over one period.",
        "lengths": list(LENGTHS), "nearest": near, "last": list(LAST), "errors": off, "usual": usual,
        "periods": list(PERIODS), "merged": [merged(p) for p in PERIODS]},
        command="python -m poslib.lab.collisions", seeds=())
    print(f"wrote {path.name}")


if __name__ == "__main__":
    main()
