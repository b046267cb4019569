"""Checkers of chapter 06."""

from __future__ import annotations

import numpy as np

from poslib import relative
from poslib.attention import softmax
from poslib.teach.exercises import Mistake, array

__all__ = ["pick_four", "skewed", "slopes", "whose_sign"]


def slopes(answer):
    """The authors' rule, for every head count."""
    for heads in (8, 1, 2, 16, 3, 6, 12, 5, 20, 40, 7, 9, 25):
        got, want = array(answer(heads), (heads,), f"For {heads} heads your function"), relative.alibi_slopes(heads)
        if np.allclose(got, want, rtol=1e-12):
            continue
        if np.allclose(got, -want, rtol=1e-12):
            raise Mistake(f"For {heads} heads these are the right numbers below zero. Slopes are positive; the minus is in the bias, −m·(i − j).")
        if np.allclose(got, relative.alibi_slopes(heads, "geometric"), rtol=1e-12):
            raise Mistake(f"For {heads} heads this is one series, 2^(−8h/{heads}): what the paper's text says and its code does not do. "
                          "Begin with the largest power of two up to the number of heads.")
        if np.allclose(np.sort(got), np.sort(want), rtol=1e-12):
            raise Mistake(f"For {heads} heads these are the right slopes in another order, and heads are numbered: first the short series, then the others.")
        if np.allclose(got, want * got[0] / want[0], rtol=1e-12):
            raise Mistake(f"For {heads} heads all your slopes are {got[0] / want[0]:.3g} times the right ones: does h count from 1?")
        raise Mistake(f"For {heads} heads you return {np.round(got, 4).tolist()}; the authors' code has {np.round(want, 4).tolist()}.")
    return "Right for every head count, also where the count is no power of two."


def skewed(answer):
    """out[i, j] = x[i, j - i + n - 1] for j <= i, zeros elsewhere."""
    rng = np.random.default_rng(3)
    for n in (4, 1, 2, 3, 9):
        x = rng.normal(size=(n, n))
        kept = x.copy()
        got, want = array(answer(x), (n, n), f"For an array of shape ({n}, {n}) your function"), relative.skew(x)
        if (x != kept).any():
            raise Mistake("Your function changes its argument; work on a copy.")
        if np.allclose(got, want, atol=1e-12):
            continue
        if np.allclose(np.tril(got), want, atol=1e-12):
            raise Mistake("Keys up to the query are right. Above the diagonal other rows' numbers are left over; they should be 0.")
        i, j = np.tril_indices(n)
        if np.allclose(got[i, j], x[i, i - j], atol=1e-12):
            raise Mistake("You take column i − j; the last column belongs to lag 0, the one before it to lag 1.")
        if np.allclose(got, x, atol=1e-12):
            raise Mistake("You return the array as it was: column c holds lag n − 1 − c, whatever the row, and should become a diagonal.")
        small = np.array([[12.0, 11, 10], [22, 21, 20], [32, 31, 30]])          # second digit: the lag
        shown, wanted = (str(np.round(a, 2).astype(int).tolist()) for a in (array(answer(small.copy()), (3, 3), "For an array of shape (3, 3) your function"), relative.skew(small)))
        raise Mistake(f"From {small.astype(int).tolist()} (first digit the query, second the lag) you make {shown}; wanted is {wanted}. "
                      "On which side does the column of zeros go, and which row is dropped after reshaping?")
    return "Every product stands at its own key. (Only the result is looked at: a loop is right too, and slow.)"


def whose_sign(answer):
    """Which sign does a T5 bucket function expect?"""
    def far_own(buckets, both):
        return buckets // (4 if both else 2) - 1
    for both in (True, False):
        for buckets, far in ((32, 128), (16, 50), (8, 20), (64, 512)):
            for takes, words in (("lag", "the lag"), ("key - query", "key − query")):
                sign = 1 if takes == "lag" else -1
                got = answer(lambda x: int(relative.t5_buckets(np.array(sign * int(x)), buckets=buckets, max_distance=far, bidirectional=both)))
                name = f"a function of {buckets} buckets {'for both directions' if both else 'that lets the future share bucket 0'}, which takes {words}"
                if got not in ("lag", "key - query"):
                    raise Mistake(f"You return {got!r}; it should be 'lag' or 'key - query'.")
                if got != takes:
                    raise Mistake(f"For {name} you say {got!r}. Which side has the larger buckets does not tell: keys ahead have the upper half in an encoder, and "
                                  f"bucket 0 in a decoder. Nor need a lag above 1 have a bucket of its own: here that ends at lag {far_own(buckets, both)}. "
                                  "Which lag has the same bucket in all of them?")
    return "The previous token has bucket 1, always: ask with 1 and see."


def pick_four(answer):
    """Two falling heads, one subtracted from the other, that copy the token four places back."""
    try:
        m1, m2, r = (float(x) for x in answer)
    except (TypeError, ValueError):
        raise Mistake(f"pair is {answer!r}; it should be three numbers: m1, m2 and r.") from None
    if not (0 < m1 < 50 and 0 < m2 < 50 and np.isfinite(r)):
        raise Mistake("Slopes must be positive (and below 50), and r a number.")
    if m1 < m2:
        raise Mistake("The subtracted head must be the steeper, m1 > m2: it has to take away the near lags and leave the far ones.")
    if abs(m1 - m2) < 0.02 * max(m1, m2):
        raise Mistake("The slopes differ by less than 2 %: in 16 bits nothing would be left of the difference. Take them further apart.")
    length, symbols = 32, 16
    lag = np.subtract.outer(np.arange(length), np.arange(length))
    kernel = softmax(-m2 * lag, lag >= 0) - r * softmax(-m1 * lag, lag >= 0)
    peak = int(kernel[-1, ::-1].argmax())
    if peak != 4:
        raise Mistake(f"The difference is largest at lag {peak}, not at 4. At which τ is the derivative of e^(−m2 τ) − c e^(−m1 τ) zero?")
    x = np.random.default_rng(11).integers(0, symbols, size=(500, length))
    said = np.einsum("ij,bjv->biv", kernel, np.eye(symbols)[x]).argmax(-1)
    right = (said[:, 4:] == x[:, :-4]).mean()
    if right < 0.7:
        raise Mistake(f"It peaks at lag 4, but broadly: the fourth token back wins in {right:.0%} of the places. Steeper slopes make a narrower peak.")
    return f"It peaks at lag 4, and the fourth token back wins in {right:.0%} of the places, from two heads that each prefer lag 0."
