"""Checkers of chapter 07."""

from __future__ import annotations

import math

import numpy as np

from poslib.teach.exercises import Mistake

__all__ = ["far_test", "gaps", "protocols", "reach", "windows"]


def _near(a, b):
    return math.isclose(float(a), float(b), abs_tol=1e-9)


def _curve(seed, length=96):
    rng = np.random.default_rng(seed)
    return 2 + 2 * np.exp(-np.arange(length) / rng.uniform(3, 20)) + rng.normal(0, 0.1, length)


def protocols(answer):
    """Loss in blocks and by a sliding window, from the loss at each place."""
    for seed, T, s in [(1, 64, 16), (0, 16, 16), (2, 64, 1), (3, 33, 5), (4, 96, 96)]:
        curve = _curve(seed)
        got = answer(curve.copy(), T, s)
        try:
            block, slide = map(float, got)
        except (TypeError, ValueError):
            raise Mistake(f"Your function gave {got!r}; it should give two numbers, the loss in blocks and the loss by a sliding window.") from None
        asked = f"For read length {T} and stride {s}"
        if not _near(block, curve[:T].mean()):
            if _near(block, curve[:T + 1].mean()):
                raise Mistake(f"{asked} your blocks have {T + 1} places: the last place of a block of {T} has {T - 1} bytes before it.")
            if _near(block, curve.mean()):
                raise Mistake(f"{asked} you average the whole curve; a block ends after {T} places.")
            raise Mistake(f"{asked} your loss in blocks is {block:.4f}; the mean of the first {T} places is {curve[:T].mean():.4f}.")
        if not _near(slide, curve[T - s:T].mean()):
            for wrong, why in [(curve[-s:].mean(), f"you take the last {s} places of the whole curve; a window of {T} ends at place {T - 1}"),
                               (curve[:s].mean(), f"you count the first {s} places of a window; the window moves so that its last {s} are new"),
                               (curve[T - s - 1:T].mean() if T > s else math.nan, "you count one place too many"),
                               (curve[s:T].mean() if T > s else math.nan, f"you count all places but the first {s}; only the last {s} have not been counted before"),
                               (curve[T - 1], f"you count the last place alone, which is right for stride 1 only")]:
                if _near(slide, wrong):
                    raise Mistake(f"{asked} {why}.")
            raise Mistake(f"{asked} your loss by a sliding window is {slide:.4f}; it is {curve[T - s:T].mean():.4f}.")
    return "Blocks average all places, a sliding window the last ones; with stride T they agree."


def gaps(answer):
    """Mean loss of the places between two read lengths, from losses in blocks."""
    cases = [(0, [8, 16, 24]), (1, [32, 64, 96]), (2, [10, 11, 50]), (3, [1, 2, 3]), (4, [96, 8, 40])]
    for seed, lengths in cases:
        curve = _curve(seed)
        blocks = {T: float(curve[:T].mean()) for T in lengths}
        got = answer(dict(blocks))
        order = sorted(lengths)
        right = {(a, b): float(curve[a:b].mean()) for a, b in zip(order, order[1:])}
        if not isinstance(got, dict) or set(got) != set(right):
            hint = " Are the lengths sorted before you pair them?" if order != lengths else ""
            raise Mistake(f"For the lengths {lengths} your function gave {got!r}; it should be a dictionary with the keys {sorted(right)}.{hint}")
        for pair, value in right.items():
            if _near(got[pair], value):
                continue
            a, b = pair
            if _near(got[pair], (blocks[a] + blocks[b]) / 2):
                raise Mistake(f"Between {a} and {b} you average the two losses; the longer block holds all places of the shorter one as well.")
            if _near(got[pair], blocks[b] - blocks[a]):
                raise Mistake(f"Between {a} and {b} you give the difference of the means. Turn the means into sums first.")
            if _near(got[pair], b * blocks[b] - a * blocks[a]):
                raise Mistake(f"Between {a} and {b} you give the sum over the new places; divide it by their number, {b - a}.")
            raise Mistake(f"Between {a} and {b} the places have the mean loss {value:.4f}; your function gave {float(got[pair]):.4f}.")
    return "A mean times its number is a sum, and sums can be subtracted: a block curve holds the place curve."


def reach(answer):
    """From which place on the loss stays at its level."""
    cases = []
    for w, n in [(1, 40), (7, 64), (30, 200), (0, 20)]:
        curve = np.full(n, 1.5)
        curve[:w] += np.linspace(1.5, 0.2, w)
        cases.append((curve, 0.1, w, "The curve falls and then stays level."))
    dip = np.full(80, 1.5)
    dip[:4], dip[12:20] = 2.5, 2.0
    cases.append((dip, 0.1, 20, "This curve comes down, and leaves its level once more: the first place at the level is not yet the answer."))
    below = np.full(80, 1.5)
    below[:10] = 1.2
    cases.append((below, 0.1, 10, "This curve begins below its level: the distance from the level counts, not its sign."))
    rising = np.full(80, 1.5)
    rising[:5], rising[70:] = 3.0, 1.62
    cases.append((rising, 0.1, 5, "The level is the mean of the whole last quarter, not the last place: 1.56 here."))
    step = np.full(80, 1.5)
    step[:6] = 1.75
    cases.append((step, 0.25, 0, "Within the tolerance means at most so far away: a place that is away by the tolerance itself still counts."))
    late = np.full(80, 1.5)
    late[-1] = 3.5
    cases.append((late, 0.2, 80, "This curve is away from its level at its very last place: no place is left, and the answer is the length."))
    for curve, tolerance, right, hint in cases:
        try:
            got = answer(curve.copy(), tolerance)
        except (IndexError, ValueError) as error:
            raise Mistake(f"On a curve of {len(curve)} places your function raised {type(error).__name__}: {error}. {hint}") from None
        if isinstance(got, bool) or not isinstance(got, (int, np.integer)):
            raise Mistake(f"Your function gave {got!r}; it should be a whole number, the first place from which on the loss stays at its level.")
        if got != right:
            off = " You are one place off." if abs(got - right) == 1 else ""
            raise Mistake(f"Your function gave {got}; the right answer is {right}. {hint}{off}")
    return "From there on more context changes nothing. The model may still look further back; its loss does not show it."


def windows(answer):
    """Windows that count every target once, each with as much context as the stride allows."""
    for n, T, s in [(512, 64, 64), (512, 64, 16), (500, 64, 16), (65, 64, 16), (64, 64, 8), (40, 64, 16), (300, 50, 7), (7, 4, 1)]:
        got = answer(n, T, s)
        asked = f"For {n} places, length {T} and stride {s}"
        try:
            found = [tuple(map(int, w)) for w in got]
            assert all(len(w) == 3 for w in found)
        except (TypeError, ValueError, AssertionError):
            raise Mistake(f"{asked} your function gave {str(got)[:80]}; it should be a list of (start, end, first counted).") from None
        times, starved = np.zeros(n, int), None
        for start, end, first in found:
            if not 0 <= start <= first < end <= n:
                if end > n:
                    raise Mistake(f"{asked} a window ends at {end}, behind the text. Cut the last one short.")
                raise Mistake(f"{asked} you have the window {(start, end, first)}; allowed is 0 ≤ start ≤ first < end ≤ {n}, so that something is counted.")
            if end - start > T:
                raise Mistake(f"{asked} the window {(start, end, first)} is {end - start} long.")
            if first - start < T - s and start > 0 and starved is None:
                starved = f"{asked} place {first} is counted with {first - start} places before it in its window, although {T - s} could be there."
            times[first:end] += 1
        if (times > 1).any():
            place = np.argmax(times > 1)
            raise Mistake(f"{asked} place {place} is counted {times[place]} times: that is the leak. What overlaps must not be counted again.")
        if starved:
            raise Mistake(starved)
        if (times == 0).any():
            place = np.argmax(times == 0)
            why = " Is `end` one past the last place that the window reads?" if times[place:].any() else " The last window may be shorter."
            raise Mistake(f"{asked} place {place} is never counted.{why}")
        if len(found) > max(1, 1 + math.ceil((n - T) / s)):
            raise Mistake(f"{asked} you need {len(found)} windows; {max(1, 1 + math.ceil((n - T) / s))} are enough. The first may count all its places.")
    return "Every place once, with the context that the stride pays for."


def far_test(answer):
    """A test that reading the last 64 tokens cannot pass."""
    try:
        make, solve = answer
    except (TypeError, ValueError):
        raise Mistake("Give a pair of functions, (make, solve).") from None
    if not callable(make) or not callable(solve):
        raise Mistake("Nothing to check yet: write both functions, make and solve.")
    rng = np.random.default_rng(7)
    drawn = []
    for _ in range(1500):
        made = make(rng)
        try:
            tokens, label = np.asarray(made[0], int), int(made[1])
        except (TypeError, ValueError, IndexError):
            raise Mistake(f"make gave {str(made)[:60]}; it should be a list of 256 tokens and the answer.") from None
        if tokens.shape != (256,) or tokens.min() < 0 or tokens.max() > 32 or not 0 <= label < 16:
            raise Mistake("make should give 256 tokens from 0 to 32, and an answer from 0 to 15.")
        drawn.append((tokens, label))
    texts, labels = np.array([t for t, _ in drawn]), np.array([a for _, a in drawn])
    missed = [i for i in range(300) if solve(texts[i].copy()) != labels[i]]
    if missed:
        raise Mistake(f"solve misses {len(missed)} of 300 texts: the answer must be told by the text.")
    if np.bincount(labels, minlength=16).max() > 0.12 * len(labels):
        raise Mistake("One answer comes too often: guessing it would pass the test with more than chance. Draw the answer evenly from 0 to 15.")
    half = len(texts) // 2
    for name, seen in [("the token in one of the last 64 places", [texts[:, p] for p in range(192, 256)]),
                       ("how often a token stands in the last 64 places", [(texts[:, 192:] == k).sum(1) for k in range(33)]),
                       ("the sum of the last 64 tokens", [texts[:, 192:].sum(1) % 16])]:
        for values in seen:
            guess = {v: np.bincount(labels[:half][values[:half] == v], minlength=16).argmax() for v in np.unique(values)}
            if np.mean([guess[v] == a for v, a in zip(values[half:], labels[half:])]) > 0.14:
                raise Mistake(f"A reader of the last 64 tokens beats chance: {name} tells something about the answer.")
    for i in range(200):
        mixed = np.concatenate([texts[i, :192], texts[i + 1, 192:]])
        try:
            same = solve(mixed) == labels[i]
        except Exception:           # what solve looked for stood in the part that was exchanged
            same = False
        if not same:
            raise Mistake("solve looks at the last 64 tokens: with those of another text it gives another answer. What decides must stand earlier.")
    return "No guess that was tried here beats one in sixteen on the last 64 tokens."
