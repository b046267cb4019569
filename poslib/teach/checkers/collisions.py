"""Checkers of chapter 05."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from poslib.absolute import frequencies
from poslib.collisions import distance, rounded
from poslib.teach.exercises import Mistake, truth

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
        (0, 96, [64, 96], False, "At lag 96 the slowest hand is back and the other is not: the slowest does not always decide."),
        (0, 16, [15, 16], False, "At lag 16 the slowest hand is back and the other is not: the slowest does not always decide."),
        (0, 64, [64, 96], False, "At lag 64 the last hand of the list is not back: every one of them must be."),
        (5, 5, [3], False, "A position does not collide with itself: the definition asks for two different ones."),
    ]
    for i, j, periods, right, message in cases:
        asked = f"positions {i} and {j} and the periods {', '.join(map(str, periods))}"
        if truth(answer(i, j, list(periods)), asked) != right:
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


def _code(angle, dtype):
    """Rows (sines, cosines), rounded, as tuples; `dtype` None rounds nothing."""
    code = np.concatenate([np.sin(angle), np.cos(angle)], axis=1)
    return [tuple(row) for row in (code if dtype is None else rounded(code, dtype) + 0.0).tolist()]


def _first(codes):
    seen = {}
    for p, code in enumerate(codes):
        if code in seen:
            return seen[code], p
        seen[code] = p
    return None


def _usual_repeats(omega, dtype, limit):
    """Wrong answers that are easily given, each with a question; the right one first."""
    angle = np.arange(limit + 1)[:, None] * omega
    codes = _code(angle, dtype)
    below = codes[:limit]
    last = {code: p for p, code in enumerate(below)}
    yield _first(below), None
    yield _first(codes), "`limit` itself is not one of the positions below it: where does your loop end?"
    yield _first(below[:-1]), "Does your loop reach the last position below the limit?"
    yield (next(((0, p) for p in range(1, limit) if below[p] == below[0]), None),
           "Do you compare with position 0 only? Any two positions may share a code.")
    yield (next(((p - 1, p) for p in range(1, limit) if below[p] == below[p - 1]), None),
           "Do you compare each position with the one before it only?")
    yield (next(((p, below.index(code, p + 1)) for p, code in enumerate(below) if last[code] > p), None),
           "These two do share a code, but another pair is complete sooner. Which of its two numbers should be smallest?")
    sines = [code[:len(omega)] for code in below]
    yield _first(sines), "Do you compare the cosines, too? Two angles can have one sine."
    yield _first([code[len(omega):] for code in below]), "Do you compare the sines, too? Two angles can have one cosine."
    yield _first([code[::len(omega)] for code in below]), "Do you compare every hand, or the first alone?"
    for then in (dtype, None):
        yield _first(_code(rounded(angle[:limit], dtype), then)), "What is rounded here, the angle or the finished sine and cosine?"
    yield _first(_code(angle[:limit], None)), "Are sines and cosines rounded before they are compared?"


def first_repeat(answer):
    """The smallest position whose rounded code equals the code of an earlier position."""
    slow = np.array([2 * np.pi / 16_384])
    cases = [                                              # in this order None has one likely cause after the other
        (np.array([1e-10]), "fp16", 100),                  # all sines are stored as 0
        (slow, "bf16", 1000),
        (slow, "fp16", 3000),
        (np.array([1.0]), "bf16", 4096),
        (np.array([0.7]), "bf16", 4096),
        (np.array([2 * np.pi / 1000, 2 * np.pi / 1500]), "bf16", 3500),
        (frequencies(4), "bf16", 2000),
        (slow, "bf16", 150),
        (slow, "bf16", 166),                               # 165 and 166 are the first
        (slow, "bf16", 167),
    ]
    likely = None                                          # questions whose wrong answers were right so far
    for omega, dtype, limit in cases:
        (right, _), *wrong = _usual_repeats(omega, dtype, limit)
        got = answer(np.array(omega), dtype, limit)
        asked = f"For frequencies {', '.join(f'{w:.6g}' for w in omega)}, {dtype} and {limit:,} positions"
        if got is not None:
            try:
                first, second = got
                found = (int(first), int(second))
            except (TypeError, ValueError):
                raise Mistake(f"{asked} you give {got!r}; give the pair (earlier position, later position), or None.") from None
        else:
            found = None
        if found == right:
            agree = {q for given, q in wrong if given == found}
            likely = agree if likely is None else likely & agree
            continue
        if right and found == right[::-1]:
            raise Mistake(f"{asked} the pair is right; give the earlier position first.")
        question = next((q for given, q in wrong if given == found and (likely is None or q in likely)), None)
        if question is None:
            question = "Do two positions below the limit share a code? Compare each with all earlier ones, at every hand, sine and cosine, after rounding."
        raise Mistake(f"{asked} you give {found}, which is not the first repeat. {question}")
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


def _usual_codes(p, omega):
    """What codes become when something else is rounded: the sentence and the codes, sines first."""
    p, w = p[:, None], omega
    single = p.astype(np.float32)
    for sentence, angle in (
        ("Positions were rounded to bf16, which holds every whole number to 256 only.", rounded(p, "bf16") * w),
        ("Frequencies were rounded to bf16: the code is that of another ladder.", p * rounded(w, "bf16")),
        ("The angle was rounded to bf16 before the sine was taken.", rounded(p * w, "bf16")),
        ("Positions, frequencies and angles were rounded to bf16.", rounded(rounded(p, "bf16") * rounded(w, "bf16"), "bf16")),
        ("Positions were rounded to float32, which holds every whole number to 16,777,216 only.", single.astype(float) * w),
        ("Frequencies were rounded to float32. That loses up to 1 part in 16 million, of an angle of millions of radians.", p * w.astype(np.float32).astype(float)),
        ("Angles were formed in float32. One of 16 million radians has no digits after the point there.", (single * w.astype(np.float32)).astype(float)),
        ("The exact angle was rounded to float32 before the sine was taken.", (p * w).astype(np.float32).astype(float)),
    ):
        yield sentence, np.concatenate([np.sin(angle), np.cos(angle)], axis=1)


def exact_codes(answer):
    """Codes of large positions, rounded once, at the end."""
    omega = frequencies(16)
    half = len(omega)
    cases = [
        ("small positions", np.arange(8), 1e-6),
        ("positions 256 to 260", np.arange(256, 261), 1e-4),
        ("image positions from 65,536", np.arange(65_536, 65_552), 0.006),       # lets float32 pass so far
        ("positions from 16,777,216", np.arange(2**24, 2**24 + 4), 1e-6),
        ("negative positions", np.arange(-3, 3), 1e-6),
    ]
    for name, p, slack in cases:
        want = np.concatenate([np.sin(p[:, None] * omega), np.cos(p[:, None] * omega)], axis=1)
        got = answer(p.copy(), omega.copy())
        try:
            got = np.asarray(got)
            shape, got = got.shape, got.astype(float)
        except (TypeError, ValueError):
            kind = getattr(got, "dtype", type(got).__name__)
            raise Mistake(f"The result is of type {kind}, which numpy does not read as numbers; return float64 values that are bf16 numbers, as `rounded` does.") from None
        if shape != want.shape:
            raise Mistake(f"For {len(p)} positions and {half} frequencies the result has shape {shape}; asked for is {want.shape}, sines first.")
        bound = 2.0**-8 * np.abs(want) + slack
        if (np.abs(got - want) > bound).any():
            alternating = np.stack([want[:, :half], want[:, half:]], axis=2).reshape(want.shape)
            if (np.abs(got - alternating) < 0.01).all():
                raise Mistake("Sines and cosines alternate in your rows; asked for are all sines first, then all cosines.")
            if (np.abs(got - np.roll(want, half, axis=1)) < 0.01).all():
                raise Mistake("Sines and cosines have changed places: sines come first.")
            near = [(min(np.abs(got - codes).max(), np.abs(got - rounded(codes, "bf16")).max()), i, s) for i, (s, codes) in enumerate(_usual_codes(p, omega))]
            sentence = min(near)[2] if min(near)[0] < 0.006 else None
            if sentence is None and (p < 0).any():
                sentence = "A negative position turns the other way: its sine changes sign."
            off = np.abs(got - want)
            raise Mistake(f"For {name} the codes are off by up to {off.max():.3f}. " + (sentence or "Which of position, frequency and angle is exact in your code?"))
        if (rounded(got, "bf16") != got).any():
            raise Mistake("The codes are accurate, but not in bf16: round them at the end.")
    return "Whole positions, angles in float64, one rounding at the end: the neighbours stay apart wherever they are."
