"""Checkers of chapter 05."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from poslib.absolute import frequencies
from poslib.collisions import distance, rounded
from poslib.teach.exercises import Mistake

__all__ = ["collides", "exact_codes", "first_repeat", "joint_pairs", "three_hands"]


def collides(answer):
    """Positions collide at whole or fractional periods when the lag is a multiple of each."""
    half = Fraction(35, 2)
    cases = [
        (3, 67, [16, 32, 64], True, "The lag is 64, a multiple of each period."),
        (3, 35, [16, 32, 64], False, "The lag is 32: the hand of period 64 is half a turn away. All periods must divide the lag."),
        (67, 3, [16, 32, 64], True, "The lag may be negative; which position comes first does not matter."),
        (0, 240, [15, 16], True, "The lag is 15 · 16, a multiple of both periods."),
        (1, 240, [15, 16], False, "Both 1 and 240 are special, but only their difference counts, and 239 is a multiple of neither."),
        (0, 35, [half], True, "A period of 35/2 is back after two turns, at 35 steps."),
        (0, 18, [half], False, "At 18 steps a hand of period 35/2 is half a step past its start: near is not equal."),
        (0, 17, [half], False, "At 17 steps a hand of period 35/2 is half a step short of its start; does your function round the period?"),
        (-7, 9, [16], True, "From −7 to 9 there are 16 steps."),
        (0, 3 * 10**20, [3, 10**20], True, "The numbers are too large for floats; whole numbers in Python are exact."),
        (0, 3 * 10**20 + 1, [3, 10**20], False, "The numbers are too large for floats; whole numbers in Python are exact."),
        (5, 6, [1], True, "A period of one step is back at every step."),
    ]
    for i, j, periods, right, message in cases:
        got = answer(i, j, list(periods))
        asked = f"positions {i} and {j} and the periods {', '.join(map(str, periods))}"
        if not isinstance(got, (bool, np.bool_)):
            raise Mistake(f"For {asked} your function gave {got!r}; it should give True or False.")
        if bool(got) != right:
            raise Mistake(f"For {asked} the answer is {right}. {message}")
    return "Exact, for any sign and any size, and without a single float."


def joint_pairs(answer):
    """Pairs i < j below `length` whose lag is a multiple of the least common multiple."""
    for periods, length in (([64], 4096), ([16, 32, 64], 4096), ([64, 96], 4096), ([15, 16, 17], 4096), ([7], 100), ([6, 10, 15], 1000),
                            ([64, 65], 4096), ([1], 5), ([4], 4), ([999_983, 1_000_003], 3 * 10**12)):
        step = math.lcm(*periods)
        turns = (length - 1) // step
        right = turns * length - step * turns * (turns + 1) // 2
        got = answer(list(periods), length)
        asked = f"For the periods {', '.join(map(str, periods))} and {length:,} positions"
        if isinstance(got, float):
            raise Mistake(f"{asked} you give the float {got!r}; a count is a whole number, and large ones lose digits as floats.")
        if got == right:
            continue
        product = math.prod(periods)
        if got == length - step:
            raise Mistake(f"{asked} you count the smallest lag only; its multiples collide, too.")
        if step != product and got == sum(length - t for t in range(product, min(length, 10**7), product)):
            raise Mistake(f"{asked} you used the product of the periods; where they share a factor the hands come together sooner.")
        if got == 2 * right:
            raise Mistake(f"{asked} you count each pair twice.")
        if got == 2 * right + length or got == right + length:
            raise Mistake(f"{asked} you count positions with themselves.")
        raise Mistake(f"{asked} you count {got:,}; there are {right:,}. How many pairs have a given lag?")
    return "Right, also where listing the pairs would take longer than anyone can wait."


def first_repeat(answer):
    """The smallest position whose rounded code equals the code of an earlier position."""
    cases = [
        (np.array([2 * np.pi / 16_384]), "bf16", 1000),
        (np.array([2 * np.pi / 16_384]), "fp16", 3000),
        (np.array([1.0]), "bf16", 4096),
        (np.array([2 * np.pi / 1000, 2 * np.pi / 1500]), "bf16", 3000),
        (frequencies(4), "bf16", 2000),
        (np.array([2 * np.pi / 16_384]), "bf16", 150),
    ]
    for omega, dtype, limit in cases:
        seen, right = {}, None
        for p in range(limit):
            key = tuple((rounded(np.concatenate([np.sin(p * omega), np.cos(p * omega)]), dtype) + 0.0).tolist())
            if key in seen:
                right = (seen[key], p)
                break
            seen[key] = p
        got = answer(np.array(omega), dtype, limit)
        asked = f"For frequencies {', '.join(f'{w:.6g}' for w in omega)}, {dtype} and {limit:,} positions"
        if got is None and right is None:
            continue
        if right is None:
            raise Mistake(f"{asked} you give {got!r}, but all codes differ: give None. Do you compare sines and cosines, at every hand?")
        if got is None:
            raise Mistake(f"{asked} you give None, but {right[0]} and {right[1]} share a code. "
                          + ("Was it rounded before it was compared?" if right[1] == right[0] + 1 else "Do you compare each position with all earlier ones?"))
        try:
            found = tuple(int(x) for x in got)
        except TypeError:
            raise Mistake(f"{asked} you give {got!r}; give the pair (earlier position, later position).") from None
        if found == right:
            continue
        if found == right[::-1]:
            raise Mistake(f"{asked} the pair is right; give the earlier position first.")
        if len(found) == 2 and found[1] > right[1]:
            raise Mistake(f"{asked} you give {found}, but already {right[1]} has the code of {right[0]}. "
                          "Do you compare each position with all earlier ones, or only with the one before?")
        raise Mistake(f"{asked} you give {found}; these codes differ after rounding, or an earlier one is equal. The answer is {right}.")
    return "Right: first repeats are found by remembering all codes, and the first one is not always a neighbour."


def three_hands(answer):
    """Three frequencies whose codes stay at least 1.2 apart at lags 1 to 100."""
    w = np.asarray(answer, float)
    if w.shape != (3,) or not np.isfinite(w).all() or np.abs(w).max() > 1000:
        raise Mistake(f"omegas is {answer!r}; it should be a list of three frequencies, in radians a step.")
    d = distance(np.arange(1, 101), w)
    lag, least = int(d.argmin()) + 1, float(d.min())
    if least >= 1.2:
        return f"The nearest two codes are {least:.3f} apart, three times as far as those of the published ladder of three pairs ({distance(np.arange(1, 101), frequencies(6)).min():.3f})."
    turned = np.abs((w + np.pi) % (2 * np.pi) - np.pi)
    if len(np.unique(turned.round(9))) < 3:
        raise Mistake(f"At lag {lag} the distance is {least:.3f}. Two of your hands show the same or mirrored turns at every step: they add nothing new.")
    if lag == 1:
        raise Mistake(f"Neighbours are only {least:.3f} apart: all three hands are slow (a frequency near a full turn, 2π, is slow, too).")
    raise Mistake(f"At lag {lag} the distance is {least:.3f}; at least 1.2 is asked for. All three hands come back near their start there: change one of them.")


def exact_codes(answer):
    """Codes of large positions, rounded once, at the end; float32 angles pass as far as they are good enough."""
    omega = frequencies(16)
    cases = [
        ("small positions", np.arange(8), 1e-6, None),
        ("positions 256 to 260", np.arange(256, 261), 1e-4, "Positions above 256 were rounded: bf16 holds every second one only."),
        ("image positions from 65,536", np.arange(65_536, 65_552), 0.006, "Positions at 65,536 were rounded: bf16 steps by 512 there."),
        ("positions from 16,777,216", np.arange(2**24, 2**24 + 4), 1e-6, "Positions above 16,777,216 were rounded: float32 has 24 bits, and holds every second one only."),
        ("negative positions", np.arange(-3, 3), 1e-6, "A negative position turns the other way: its sine changes sign."),
    ]
    for name, p, slack, message in cases:
        want = np.concatenate([np.sin(p[:, None] * omega), np.cos(p[:, None] * omega)], axis=1)
        got = np.asarray(answer(p.copy(), omega.copy()))
        if got.shape != want.shape:
            raise Mistake(f"For {len(p)} positions and {len(omega)} frequencies the result has shape {got.shape}; asked for is {want.shape}, sines first.")
        got = got.astype(float)
        off = np.abs(got - want)
        if (off > 2.0**-8 * np.abs(want) + slack).any():
            if np.abs(np.concatenate([got[:, 8:], got[:, :8]], axis=1) - want).max() < 0.01:
                raise Mistake("Sines and cosines have changed places: sines come first.")
            raise Mistake(f"For {name} the codes are off by up to {off.max():.3f}. " + (message or "Is the frequency or the angle rounded before the sine is taken?"))
        if (rounded(got, "bf16") != got).any():
            raise Mistake("The codes are accurate, but not in bf16: round them at the end.")
    return "Whole positions, angles in float64, one rounding at the end: the neighbours stay apart wherever they are."
