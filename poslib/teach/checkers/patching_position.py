"""Checkers of chapter 16."""

from __future__ import annotations

import numpy as np

from poslib.rotary import frequencies, rotate
from poslib.teach.exercises import Mistake

__all__ = ["place", "query_at_i", "repaired", "verdict"]


def _vector(got, size, asked):
    """A float64 vector, or a Mistake."""
    if np.iscomplexobj(got):
        raise Mistake(f"{asked} you give complex numbers; give their real and imaginary parts, an array of {size} real numbers.")
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
        if np.abs(got - turn(q, i)).max() < 1e-4:      # float32 will do
            continue
        for wrong, why in ((x, "you give the query back as it was: it still asks from j."), (turn(x, j - i), "you turn the wrong way: the angle is (i − j)ω, so that R_j drops out."),
                           (turn(x, i), "you turn by i on top of j. The turn by j is already in it, and has to come off."), (q, "you take the turn by j off and leave it there; now turn for i."),
                           (turn(x, i - j, "interleaved"), "channels are paired next to each other; here k is paired with k + d/2.")):
            if np.abs(got - wrong).max() < 1e-4:
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
                raise Mistake(f"{asked} you give {got:g}, the number of keys that are seen. Place 0 sees one already, itself.")
            if got == i - 1 and c / w - c < i:
                raise Mistake(f"{asked} you give {got:g}. A computed {i - 1}.999… is cut to {i - 1}: round to the nearest whole number.")
            if c != 1 and min(abs(got - (1 / w - 1)), abs(got - round(1 / w - 1)), abs(got - (round(1 / w) - 1))) < 1e-3:
                raise Mistake(f"{asked} you give {got:g}, as if all lags had the score 0. The own place has the numerator c: w = c / (c + i).")
            if c != 1 and abs(got - (1 / w - c)) < 1e-3:
                raise Mistake(f"{asked} you give {got:g}: the numerator of the own place is c as well, not 1.")
            raise Mistake(f"{asked} you give {got:g}; the query stands {'before' if i < got else 'behind'} that. What does the softmax's denominator hold at place i?")
    return "Right: the scores see lags alone, and the weight tells the place."


# What a fall shows: in the order in which they are asked, each with what is true if it applies.
ASKED = (("nothing", lambda clean, shifted, ids, alone, tol: clean <= shifted + tol), ("window", lambda clean, shifted, ids, alone, tol: clean <= ids + tol),
         ("source", lambda clean, shifted, ids, alone, tol: alone <= shifted + tol))


def _verdict(numbers, tol, asked=ASKED):
    """The first that applies."""
    return next((name for name, applies in asked if applies(*numbers, tol)), "position")


def _in_order(*names):
    return lambda numbers, tol: _verdict(numbers, tol, [(name, dict(ASKED)[name]) for name in names])


def _asking(**other):
    return lambda numbers, tol: _verdict(numbers, tol, [(name, other.get(name, applies)) for name, applies in ASKED])


_FALL = "Ask first whether the patch costs anything. Where nothing falls, there is nothing that a control could explain."
_WINDOW = "The window comes before the source: where ids alone cost nothing, displacement did it not, however the source does by itself."
WRONG_VERDICTS = [
    (_in_order("nothing", "source", "window"), _WINDOW),
    *((_in_order(*names), _FALL) for names in (("window", "nothing", "source"), ("window", "source", "nothing"), ("source", "nothing", "window"), ("source", "window", "nothing"))),
    (_in_order("nothing", "window"), "You never ask how the source does by itself. A source that fails by itself explains a patch that fails."),
    (_in_order("nothing", "source"), "You never ask what ids alone do. Where they cost nothing, displacement did it not."),
    (_in_order("window", "source"), _FALL),
    (lambda numbers, tol: _verdict(numbers, 0.03), "You compare with 0.03 whatever tol is. Do you use tol?"),
    (lambda numbers, tol: _verdict(numbers, 0.0), "Two accuracies that differ by tol or less count as equal. Do you use tol?"),
    (_asking(nothing=lambda clean, shifted, ids, alone, tol: abs(clean - shifted) <= tol, window=lambda clean, shifted, ids, alone, tol: abs(clean - ids) <= tol,
             source=lambda clean, shifted, ids, alone, tol: abs(alone - shifted) <= tol), "You take absolute values. Better is not worse: what does not fall short costs nothing."),
    (_asking(nothing=lambda clean, shifted, ids, alone, tol: abs(clean - shifted) <= tol), "A patched run that is better than the clean one has lost nothing either."),
    (_asking(window=lambda clean, shifted, ids, alone, tol: abs(clean - ids) <= tol), "Ids alone cost nothing where that run is better than the clean one, too."),
    (_asking(source=lambda clean, shifted, ids, alone, tol: abs(alone - shifted) <= tol), "A source that by itself is worse than the patched run does no better than it, either."),
    (_asking(window=lambda clean, shifted, ids, alone, tol: ids > shifted + tol), "You compare ids with shifted. Whether ids alone cost something is seen beside clean: they may cost less than the patch, and still cost."),
    (_asking(source=lambda clean, shifted, ids, alone, tol: alone < clean - tol), "You compare alone with clean. The question is whether the source does better by itself than the patched run does."),
    (_asking(window=lambda clean, shifted, ids, alone, tol: abs(ids - shifted) <= tol), "Ids that fall as far as the patch speak for displacement, not for the window."),
    (_asking(window=lambda clean, shifted, ids, alone, tol: clean > ids + tol), "“Window” is for ids that cost nothing: then what stands in front did it."),
    (_asking(source=lambda clean, shifted, ids, alone, tol: alone > shifted + tol), "“Source” is for a source that does no better by itself than the patched run."),
]


def verdict(answer):
    """Which control explains a fall."""
    said = [  # the first three are rows of the chapter: T5 at 8, the table at 8 and at 1; no place where a rounding could decide
        ((0.99, 0.69, 0.99, 0.71), "Ids alone cost nothing there, so displacement did no harm."),
        ((1.00, 0.32, 0.33, 0.34), "Ids alone cost as much as the patch; and how does the source do by itself?"),
        ((1.00, 0.90, 0.90, 0.99), "Ids alone cost as much as the patch, and the source does better by itself."),
        ((0.99, 0.98, 0.99, 0.99), "The patched run is as good as the clean one."),
        ((0.99, 0.98, 0.60, 0.60), "The patch costs nothing; what the controls do does not matter then."),
        ((0.90, 0.97, 0.70, 0.70), "The patched run is better than the clean one."),
        ((1.00, 0.34, 0.60, 0.36), "Ids alone cost less than the patch, but they cost; and the source?"),
        ((1.00, 0.50, 0.50, 0.30), "The source does worse by itself than the patched run."),
        ((1.00, 0.34, 0.35, 0.80), "The source does worse than the clean run, but far better than the patched one."),
        ((0.95, 0.70, 0.99, 0.98), "Ids alone cost nothing, they even help."),
    ]
    rng = np.random.default_rng(18)
    cases = [(numbers, 0.03) for numbers, _ in said] + [((1.0, 0.9, 0.6, 0.6), 0.2), ((1.0, 0.5, 0.9, 0.9), 0.2), ((1.0, 0.5, 0.6, 0.6), 0.2), ((1.0, 0.5, 0.6, 0.6), 0.05)]
    while len(cases) < 400:               # too many to copy
        numbers, tol = tuple(rng.choice(np.arange(2, 101), 4) / 100), float(rng.choice([0.015, 0.035, 0.105]))
        cases.append((tuple(map(float, numbers)), tol))
    gave = [answer(*numbers) if n < len(said) else answer(*numbers, tol) for n, (numbers, tol) in enumerate(cases)]
    right = [_verdict(*case) for case in cases]
    for (numbers, tol), got in zip(cases, gave):
        if not isinstance(got, str) or got not in ("nothing", "window", "source", "position"):
            raise Mistake(f"For clean {numbers[0]}, shifted {numbers[1]}, ids {numbers[2]}, alone {numbers[3]} you give {got!r}; give one of “nothing”, “window”, “source” and “position”.")
    if gave == right:
        return "Right: position is what is left when the cheaper explanations have failed."
    wrong = [n for n, (a, b) in enumerate(zip(gave, right)) if a != b]
    why = next((why for rule, why in WRONG_VERDICTS if gave == [rule(*case) for case in cases]), "")
    n = next((n for n in wrong if why == _FALL and right[n] == "nothing"), wrong[0])      # a case that the sentence fits
    if not why:
        why = said[n][1] if n < len(said) else "With tol left at 0.03 your first verdicts are right, and this one is not. Does each comparison use tol?"
    raise Mistake("For clean {}, shifted {}, ids {}, alone {}, tol {} you say “{}”. ".format(*cases[n][0], cases[n][1], gave[n]) + why)


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
        if np.abs(got - right).max() < 1e-5:
            continue
        step = Pi - Pj
        flat = W @ (step - step.mean())
        for wrong, why in ((q + W @ step, "the norm is left out: undo the old deviation, add the codes, divide by the new one."), (q + flat, "both deviations are left out."),
                           ((old.std() * q + W @ step) / new.std(), "the norm also takes the mean off, and Pi − Pj has one of its own."),
                           ((old.std() * q - flat) / new.std(), "the sign is turned over: take Pj off and put Pi on."),
                           ((old.std() * q + flat) / old.std(), "you divide by the old deviation; e + Pi has another."), (q + flat / new.std(), "the query still stands under the old deviation: multiply it by sigma first.")):
            if np.abs(got - wrong).max() < 1e-5:
                raise Mistake(f"{asked}: {why}")
        raise Mistake(f"{asked} the result is not W norm(e + Pi). Begin with sigma · q, which is W (x − mean of x).")
    return "Right, and exact; only the two deviations had to be known, and they know the content."
