"""Checkers of chapter 04."""

from __future__ import annotations

import numpy as np

from poslib.absolute import frequencies, shift_matrix, sinusoid
from poslib.teach.exercises import Mistake, array, truth

__all__ = ["any_width", "kernel_limit", "same_clock", "three_back", "which_shift"]


def any_width(answer):
    """The code at any width, and the wrong turns that public code has taken."""
    for d in (8, 2, 64, 1, 3, 5, 7, 9):
        for p in (0, 1, 3, 18, 1000, -2):
            if answer(p, d) is None:
                raise Mistake("any_width gave None: is a return missing?")
            length = np.size(answer(p, d))
            if d % 2 and length == d - 1:
                raise Mistake(f"At the odd width {d} you give {length} numbers: the last sine is dropped. It stays, without its cosine.")
            if d % 2 and length == d + 1:
                raise Mistake(f"At the odd width {d} you give {length} numbers: there is no column for the last cosine.")
            got = array(answer(p, d), (d,), f"any_width({p}, {d})")
            right = sinusoid(np.array(p), d)
            if np.abs(got - right).max() < 1e-9:
                continue
            column = np.arange(d)
            wrong = {
                "Your cosines have frequencies of their own. Columns 2k and 2k + 1 are one hand: both have ω_k.":
                    np.where(column % 2, np.cos(p * 1e4 ** (-column / d)), np.sin(p * 1e4 ** (-column / d))),
                "Two slips at once: the ladder is twice as steep, since the column's number is 2k already, and a cosine has another speed than its sine.":
                    np.where(column % 2, np.cos(p * 1e4 ** (-2 * column / d)), np.sin(p * 1e4 ** (-2 * column / d))),
                "Your ladder is twice as steep: in column 2k the exponent is −2k/d, so the column's number enters once.":
                    sinusoid(np.array(p), d, base=1e8),
                "The minus of the exponent is missing: your hands get faster from pair to pair, and should get slower.":
                    np.where(column % 2, np.cos(p * 1e4 ** (column // 2 * 2 / d)), np.sin(p * 1e4 ** (column // 2 * 2 / d))),
                f"At the odd width {d} you count as if it were {d + 1}: the exponent has the width itself.": sinusoid(np.array(p), d + 1)[:d],
                "Sine and cosine have changed places: the sine comes first.":
                    np.where(column % 2, np.sin(p * 1e4 ** (-(column // 2 * 2) / d)), np.cos(p * 1e4 ** (-(column // 2 * 2) / d))),
                "You have all sines first and then the cosines; in this form they alternate.":
                    np.concatenate([right[::2], right[1::2]]),
            }
            for said, values in wrong.items():
                if np.abs(got - values).max() < 1e-9:
                    raise Mistake(said)
            at, off = int(np.argmax(np.abs(got - right))), np.abs(got - right).max()
            if off < 1e-3:
                raise Mistake(f"At position {p}, width {d} you are off by {off:.0e}: nearly right. That is what angles in float32 give; form them in float64.")
            raise Mistake(f"At position {p}, width {d}, column {at} is {got[at]:.4f}; it should be {right[at]:.4f}.")
    return "Right at every width; at an odd one the last sine stands alone, and cannot be shifted."


def which_shift(answer):
    """Reading a shift off a matrix given with two decimals."""
    for s in (0, 3, -3, 1, 40, 500, -499, 137, -8, 63, 250):
        got = answer(shift_matrix(s, 8).round(2))
        if got is None:
            raise Mistake("which_shift gave None: is a return missing? Or did no shift pass your test? The entries are rounded, so none agrees exactly: take the nearest.")
        got = float(got)
        if got == s:
            continue
        if got == -s:
            raise Mistake(f"For the matrix of {s} you answer {got:g}: the right size, the wrong way. In the first row of each block stands +sin(sω), and a cosine does not know the sign.")
        if abs(got - s) < 0.5:
            raise Mistake(f"For the matrix of {s} you answer {got:g}: near enough to round it to a whole number.")
        for k, turn in enumerate(2 * np.pi / frequencies(8)[:3]):
            within = (0.6 if abs(got) <= turn / 2 + 1 else 0.1, 0.6, 1.2)[k]             # an answer from this hand alone is at most half its turn
            if abs((got - s + turn / 2) % turn - turn / 2) < within and abs(got - s) > turn / 2:
                which = ("fastest hand", "second hand", "third hand")[k]
                raise Mistake(f"For the matrix of {s} you answer {got:g}, whole turns of the {which} away, up to rounding. A slower hand tells how many.")
        if s < 0 <= got:
            raise Mistake(f"For the matrix of {s} you answer {got:g}. Shifts may be negative: do you try those, or lose a sign?")
        if abs(got - s) <= 10:
            raise Mistake(f"For the matrix of {s} you answer {got:g}: close. The slow hand alone is too coarse at two decimals; let a faster one refine it.")
        raise Mistake(f"For the matrix of {s} you answer {got:g}.")
    return "Slow hands say about where, fast hands say exactly where."


def _clocks():
    """(name, code, shift, whether they belong together, hint): what `same_clock` meets."""
    d, omega = 8, frequencies(8)

    def stored(**how):
        rows = sinusoid(np.arange(-100, 2201), d, **how)          # row by row, an answer that tries everything would take long
        return lambda p: rows[p + 100].copy() if -100 <= p <= 2200 else sinusoid(np.array(p), d, **how)

    sine_first = stored()
    matrices = {s: shift_matrix(s, d) for s in range(-100, 101)}

    def cosine_first(p):
        return sine_first(p).reshape(-1, 2)[:, ::-1].ravel()

    def clockwise(s):
        return matrices[s].copy() if s in matrices else shift_matrix(s, d)

    def counter(s):
        return clockwise(s).T

    def wraps(p):
        return sine_first(p % 512)

    def coarse(p):
        return sine_first(p).round(3)

    def slow_wrong(s):
        m = clockwise(s)
        m[6:, 6:] = m[6:, 6:].T
        return m

    def ones(p):
        return np.ones(d)

    opposite = "Page and program differ in the sign of every sine. Positions and shifts of 0 cannot show it."
    return [
        ("sine first, turning clockwise", sine_first, clockwise, True, "These two belong together, up to rounding in the last digits."),
        ("cosine first, turning counter-clockwise", cosine_first, counter, True, "With the cosine first the hands turn the other way, and this matrix does."),
        ("sine first, turning counter-clockwise", sine_first, counter, False, opposite),
        ("cosine first, turning clockwise", cosine_first, clockwise, False, opposite),
        ("a pair whose slowest hand alone goes the wrong way", sine_first, slow_wrong, False,
         "The slowest hand moves by a thousandth of a radian a step; test large positions or shifts, or compare more closely."),
        ("a table that starts again at position 512", wraps, clockwise, False, "It is right up to position 511; positions up to 2,100 were promised."),
        ("a code stored with three decimals", coarse, clockwise, False, "It is off by up to a thousandth; rounding in float64 is a billion times smaller."),
        ("a code that is the same everywhere", ones, lambda s: np.eye(d), True, "It says nothing about positions, but what was asked holds: shift(s) takes code(p) to code(p + s)."),
        ("frequencies with a float base of 10,000.5", stored(base=10000.5), clockwise, False,
         "The two have slightly different frequencies; the gap grows with the shift."),
        ("a shift that is right for even steps only", sine_first, lambda s: clockwise(s - s % 2), False, "Steps of odd size are wrong; try several."),
        ("a shift that is right going forward only", sine_first, lambda s: clockwise(abs(s)), False, "Shifts may be negative."),
        ("a shift that is wrong at 5 alone", sine_first, lambda s: clockwise(s if s != 5 else 4), False, "There are only 201 shifts: try them all."),
        ("shifts from −49 to −41 that go the wrong way", sine_first, lambda s: clockwise(-s if -49 <= s <= -41 else s), False, "There are only 201 shifts: try them all."),
        ("one matrix with one wrong entry", sine_first, lambda s: clockwise(s) + (s == 73) * 1e-3 * np.eye(d)[:, ::-1][:, :1] * np.eye(d)[3], False,
         "One entry is off by a thousandth, at one shift. Try all shifts, and compare closely."),
        ("a code that is wrong at position 0 alone", lambda p: sine_first(p) if p else np.zeros(d), clockwise, False, "The range begins at position 0: start there."),
        ("a code that is wrong at position 1,733 alone", lambda p: sine_first(p if p != 1733 else 1734), clockwise, False, "Every position counts; steps of ten or twenty miss one."),
        ("a code that is wrong above position 2,090", lambda p: sine_first(min(p, 2090)), clockwise, False, "The range ends at position 2,100: go on to the end."),
        ("a blocks form with its own matrix", stored(form="blocks"), lambda s: shift_matrix(s, d, form="blocks"), True,
         "Another order of the columns, and a matrix to match."),
        ("two hands of one speed", lambda p: np.tile([np.sin(p * omega[0]), np.cos(p * omega[0])], 4), lambda s: np.kron(np.eye(4), clockwise(s)[:2, :2]), True,
         "Four equal hands are a poor clock, but one matrix shifts it."),
    ]


def same_clock(answer):
    """A test that compares a code with the matrix that is said to shift it."""
    for name, code, shift, right, hint in _clocks():
        got = truth(answer(code, shift), name)
        if got != right:
            raise Mistake(f"For {name} you answer {got}. {hint}")
    return "Found every mismatch, and no false alarm."


def three_back(answer):
    """Weights of cosines and sines that single out lag 3 and shun lag −3."""
    lags = np.arange(-100, 101)
    for d in (64, 128, 512):
        omega = frequencies(d)
        given = answer(omega.copy())
        if not isinstance(given, (tuple, list)) or len(given) != 2:
            raise Mistake(f"three_back gave {type(given).__name__}; it should give two arrays, a and b.")
        for name, x in zip("ab", given):
            if np.shape(x) not in (omega.shape, ()):
                raise Mistake(f"{name} has the shape {np.shape(x)}; at width {d} it should have one number for each of the {len(omega)} hands.")
        a, b = (array(np.broadcast_to(np.asarray(x, float), omega.shape), omega.shape, "three_back") for x in given)
        angles = np.outer(lags, omega)
        score = np.cos(angles) @ a + np.sin(angles) @ b
        best, worst = lags[score == score.max()], lags[score == score.min()]
        if np.ptp(score) < 1e-9:
            raise Mistake("Your score is the same at every lag.")
        if best.tolist() == [3] and worst.tolist() == [-3]:
            continue
        if best.tolist() == [-3]:
            raise Mistake("Your score is largest at lag −3, three ahead. Sines are odd: turn the sign of b.")
        if len(best) > 1:
            raise Mistake(f"At width {d} the largest score is shared by the lags {best.tolist()}. Without sines a score cannot tell left from right.")
        if best.tolist() == [3]:
            raise Mistake(f"At width {d} lag 3 is largest, but the smallest score is at lag {worst[0]}, not at −3. The even part of a score cannot tell 3 from −3: how much of it do you need?")
        if (b * np.sin(3 * omega) >= 0).all():
            raise Mistake(f"At width {d} the largest score is at lag {best[0]}, not at 3. Your signs are right, the sizes are not: a hand that 3 steps hardly turn "
                          "should count little. Among weights of one total square, which make the score at lag 3 largest? Weigh each hand by its sine itself.")
        raise Mistake(f"At width {d} the largest score is at lag {best[0]}, not at 3. Which sine is largest where the hand has turned by 3ω?")
    return "A head with this map looks three back and shuns three ahead, from every position."


def _again(error):
    raise error


def kernel_limit(answer):
    """The limit of κ(τ)/(d/2) as the width grows."""
    u = (np.arange(1 << 19) + 0.5) / (1 << 19)
    for base in (1e4, 100.0):
        for tau in (0, 1, 3, -3, 10, 100, 1000):
            try:
                got = answer(tau, base)
            except ModuleNotFoundError as error:
                raise Mistake(f"{error.name} is not installed here, and not needed: a sum over a fine grid will do.") from None
            except (ArithmeticError, ValueError) as error:
                got = np.nan if tau <= 0 else _again(error)
            if got is None:
                raise Mistake("kernel_limit gave None: is a return missing?")
            got, right = float(got), float(np.cos(tau * base ** -u).mean())
            if not np.isfinite(got):
                raise Mistake({0: "Lag 0 needs a case of its own in your formula: all cosines are 1 there, and so is the limit.",
                               -1: f"At lag {tau} your formula gives no number. The kernel is even: take the size of the lag."}.get(np.sign(tau), f"At lag {tau} you give {got}."))
            if abs(got - right) < 1e-3:
                continue
            sums = [np.cos(tau * frequencies(d, base=base)).mean() for d in (8, 64, 128, 256, 512, 1024)]
            if np.abs(np.array(sums) - got).min() < 1e-9:
                raise Mistake(f"At lag {tau} you give the value of a finite width, off by {abs(got - right):.4f}. A wider code, or the middle of each step, comes closer.")
            if abs(got - right * np.log(base)) < 2e-3:
                raise Mistake("Your integral over the angle lacks the factor 1/ln b.")
            raise Mistake(f"At lag {tau} and base {base:g} you give {got:.4f}; the limit is {right:.4f}.")
    return "As the clock gets more hands its kernel settles down: for lags well above 1 and well below b to a slow decline, the logarithm's."
