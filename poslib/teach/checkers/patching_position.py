"""Checkers of chapter 16."""

from __future__ import annotations

import numpy as np

from poslib.rotary import frequencies, rotate
from poslib.teach.exercises import Mistake

__all__ = ["place", "query_at_i", "repaired", "verdict"]


def _vector(got, size, asked):
    """A float64 vector, or a Mistake."""
    try:
        x = np.asarray(got, dtype=np.float64)
    except (TypeError, ValueError):
        raise Mistake(f"{asked} you give {got!r}; give an array of {size} real numbers.") from None
    if x.shape != (size,):
        raise Mistake(f"{asked} you give an array of shape {x.shape}; allowed is ({size},), as the query has.")
    return x


def repaired(answer):
    """A query turned for j becomes one turned for i."""
    rng = np.random.default_rng(16)
    for d, i, j in ((8, 5, 11), (8, 11, 5), (2, 0, 7), (64, 300, 4), (8, 9, 9)):
        omega, q = frequencies(d, 100.0), rng.normal(size=d)
        turn = lambda x, p, layout="half": rotate(x[None], np.array([p]), layout=layout, frequencies=omega)[0]  # noqa: B023, E731
        x = turn(q, j)
        got, asked = _vector(answer(x.copy(), i, j, omega.copy()), d, f"For d = {d}, i = {i}, j = {j}"), f"For d = {d}, i = {i}, j = {j}"
        if np.abs(got - turn(q, i)).max() < 1e-6:
            continue
        for wrong, why in ((x, "you give the query back as it was: it still asks from j."), (turn(x, j - i), "you turn the wrong way: the angle is (i − j)ω, so that R_j drops out."),
                           (turn(x, i), "you turn by i on top of j. The turn by j is already in it, and has to come off."), (q, "you take the turn by j off and leave it there; now turn for i."),
                           (turn(x, i - j, "interleaved"), "channels are paired next to each other; here k is paired with k + d/2.")):
            if np.abs(got - wrong).max() < 1e-6:
                raise Mistake(f"{asked} {why}")
        raise Mistake(f"{asked} the result is not the query turned for i. Each pair, as a complex number, is multiplied by one number of length 1.")
    return "Right: no content was needed, since R_{i−j} R_j = R_i whatever q is."


def place(answer):
    """The place of a query from its weight on itself, all other lags equal."""
    for i in (0, 1, 5, 40, 1000):
        for c in (1.0, 3.0, 0.25):
            w = c / (c + i)
            asked = f"For w = {w:.4f}" + ("" if c == 1 else f" and c = {c:g}")
            got = answer(w) if c == 1 else answer(w, c)
            if isinstance(got, (bool, np.bool_)) or not isinstance(got, (int, float, np.integer, np.floating)):
                raise Mistake(f"{asked} you give {got!r}; give a whole number.")
            if abs(got - i) < 1e-3:
                continue
            if c == 1 and abs(got - (i + 1)) < 1e-3:
                raise Mistake(f"{asked} you give {got:g}, the number of keys that are seen. Place 0 sees one, itself: the answer is {i}.")
            if c != 1 and abs(got - (1 / w - 1)) < 1e-3:
                raise Mistake(f"{asked} you give {got:g}, as if all lags had the score 0. The own place has the numerator c: w = c / (c + i).")
            if c != 1 and abs(got - (1 / w - c)) < 1e-3:
                raise Mistake(f"{asked} you give {got:g}: the numerator of the own place is c as well, not 1.")
            raise Mistake(f"{asked} you give {got:g}; the query stands at {i}. What does the softmax's denominator hold at place i?")
    return "Right: the scores see lags alone, and the weight tells the place."


def verdict(answer):
    """Which control explains a fall."""
    cases = [
        ((0.99, 0.98, 0.99, 0.99), "nothing", "the patched run is as good as the clean one."),
        ((0.99, 0.98, 0.60, 0.60), "nothing", "the patch costs nothing; what the controls do does not matter then."),
        ((1.00, 0.34, 0.36, 0.99), "source", "the source run does no better by itself, so a patch from it could not."),
        ((1.00, 0.34, 0.36, 0.35), "source", "the source run does no better by itself; it comes before the aligned patch."),
        ((0.99, 0.71, 0.99, 0.72), "content", "the aligned patch, with foreign content and no displacement, falls as far."),
        ((0.99, 0.71, 0.99, 0.60), "content", "the aligned patch falls even further."),
        ((1.00, 0.05, 0.99, 0.98), "position", "neither the source nor foreign content explains the fall."),
        ((0.90, 0.70, 0.95, 0.80), "position", "both controls do better than the shifted patch."),
    ]
    for numbers, right, why in cases:
        got = answer(*numbers)
        if got == right:
            continue
        shown = "clean {}, shifted {}, alone {}, aligned {}".format(*numbers)
        if got not in ("nothing", "source", "content", "position"):
            raise Mistake(f"For {shown} you give {got!r}; give one of “nothing”, “source”, “content” and “position”.")
        raise Mistake(f"For {shown} you say “{got}”; it is “{right}”: {why}")
    if answer(1.0, 0.5, 0.6, 1.0, 0.2) != "source" or answer(1.0, 0.5, 0.6, 1.0, 0.05) != "position":
        raise Mistake("For clean 1, shifted 0.5, alone 0.6, aligned 1 the answer depends on tol: with 0.2 it is “source”, with 0.05 “position”. Do you use tol?")
    return "Right: position is what is left when the cheaper explanations have failed."


def query_at_i(answer):
    """Exchange the code of a query behind a norm without gain."""
    rng = np.random.default_rng(17)
    for d, h in ((8, 8), (16, 4), (6, 3)):
        e, Pi, Pj = rng.normal(size=(3, d)) + rng.normal(size=(3, 1))
        W = rng.normal(size=(h, d))
        new, old = e + Pi, e + Pj
        q, right = W @ (old - old.mean()) / old.std(), W @ (new - new.mean()) / new.std()
        asked = f"For width {d} and {h} channels of the query"
        got = _vector(answer(q.copy(), W.copy(), float(old.std()), Pi.copy(), Pj.copy(), float(new.std())), h, asked)
        if np.abs(got - right).max() < 1e-9:
            continue
        step = Pi - Pj
        flat = W @ (step - step.mean())
        for wrong, why in ((q + W @ step, "the norm is left out: undo the old deviation, add the codes, divide by the new one."), (q + flat, "both deviations are left out."),
                           ((old.std() * q + W @ step) / new.std(), "the norm also takes the mean off, and Pi − Pj has one of its own."),
                           ((old.std() * q - flat) / new.std(), "the sign is turned over: take Pj off and put Pi on."),
                           ((old.std() * q + flat) / old.std(), "you divide by the old deviation; e + Pi has another."), (q + flat / new.std(), "the query still stands under the old deviation: multiply it by sigma first.")):
            if np.abs(got - wrong).max() < 1e-9:
                raise Mistake(f"{asked}: {why}")
        raise Mistake(f"{asked} the result is not W norm(e + Pi). Begin with sigma · q, which is W (x − mean of x).")
    return "Right, and exact; only the two deviations had to be known, and they know the content."
