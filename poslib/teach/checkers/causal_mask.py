"""Checkers of chapter 02."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction

import numpy as np

from poslib.attention import attention, causal_mask
from poslib.teach.exercises import Mistake, truth

__all__ = ["alike", "is_causal", "read_back", "vernier"]


def alike(answer):
    """One layer: the same last token and the same proportions."""
    cases = [
        ("abc", "bac", True, "Both end in c and hold the same letters; only the order differs, which one layer does not see."),
        ("abac", "baac", True, "Only the order of the prefix differs, and one layer does not see it."),
        ("abb", "bababb", True, "The counts differ, the shares do not: does the number of letters enter your comparison?"),
        ("abb", "bba", False, "The last tokens differ, and the last place sees its own token."),
        ("ab", "aab", False, "Both end in b and hold the same kinds of letters, but in other proportions."),
        ("a", "aaaa", True, "A constant text has one state everywhere, whatever its length."),
        ("abcc", "abdc", False, "There is a letter in one text that the other does not have."),
        ("ab" + "a" * 8 + "b", "ba" + "a" * 8 + "b", True, "Only the order of the prefix differs, and one layer does not see it."),
        ("a" * 20_000 + "b" * 20_001, "a" * 20_001 + "b" * 20_002, False, "The shares are close, not equal: does your function round?"),
        ("aab" * 7, "aab" * 3, True, "The shares are equal; comparing quotients of floats may have told them apart."),
    ]
    for x, y, right, message in cases:
        if truth(answer(x, y), f"{x!r:.20} and {y!r:.20}") != right:
            shown = f"{x!r} and {y!r}" if len(x) < 20 else f"{x.count('a')} a's with {x.count('b')} b's and {y.count('a')} with {y.count('b')}"
            raise Mistake(f"For {shown} the answer is {right}. {message}")
    return "The last token and the exact proportions: that is all one layer sees."


def read_back(answer):
    """The word from its history: the mark's share at place i is 1/i."""
    draw = random.Random(5)
    for text in ("a", "ab", "ba", "aab", "abab", "the dog bites the man", "abcabcabcabc", "a" * 12 + "b" + "a" * 11):
        word = ["<s>", *(text.split() if " " in text else text)]
        history = [(word[i], {a: Fraction(n, i + 1) for a, n in Counter(word[:i + 1]).items()}) for i in range(len(word))]
        draw.shuffle(history)
        got = list(answer([(token, dict(shares)) for token, shares in history]))
        if got == word:
            continue
        if sorted(map(str, got)) == sorted(word):
            raise Mistake(f"For the history of {' '.join(word)} you return the right tokens in another order: {' '.join(map(str, got))}. "
                          "Which number in each element falls from place to place, and by how much?")
        if got == word[1:]:
            raise Mistake("The mark itself is missing at the beginning.")
        raise Mistake(f"For the history of {' '.join(word)} you return {got!r}.")
    return "Each element shows its own place, so the multiset is the word: two layers have all they need."


def _bfloat16(x):
    """float64 to the nearest bfloat16 (ties to even), as float64; normal numbers only."""
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.round(mantissa * 256) / 256, exponent)


def vernier(answer):
    """At most eight marks whose bfloat16 counters together tell the places 0 to 430 apart."""
    c = np.asarray(answer, float)
    if c.ndim != 1 or not len(c) or not np.isfinite(c).all() or np.abs(c).max() > 80:
        raise Mistake(f"marks is {answer!r}; it should be a list of numbers between −80 and 80.")
    if len(c) > 8:
        raise Mistake(f"You use {len(c)} heads; eight are allowed.")
    n = np.arange(431)
    seen = _bfloat16(np.exp(c) / (np.exp(c) + n[:, None]))
    ties = np.flatnonzero((seen[1:] == seen[:-1]).all(axis=1))
    if not len(ties):
        return "No two places share all their values: coarse clocks, set against each other, make a fine one."
    if len(c) == 1:
        raise Mistake(f"One clock is not enough: the places that see {ties[0]} and {ties[0] + 1} others get the same value. Others may tick in between.")
    if len(np.unique(c)) == 1:
        raise Mistake(f"The places that see {ties[0]} and {ties[0] + 1} others get the same values: equal marks tick together, however many there are.")
    if ties[0] < 100:
        raise Mistake(f"Already the places that see {ties[0]} and {ties[0] + 1} others get the same values. With a large c the weight stays near 1, where "
                      "the grid is coarse.")
    raise Mistake(f"The places that see {ties[0]} and {ties[0] + 1} others still get the same values. Do your clocks tick at different places? "
                  "Far out each c only stretches the scale, and the grid repeats with every factor of 2: spread the clocks within one such octave.")


def _models():
    """What a test of causality meets: (name, function of (n, 6) arrays, whether it is causal)."""
    rng = np.random.default_rng(4)
    w = [rng.normal(size=(6, 6)) * 0.5 for _ in range(3)]

    def layer(x, visible):
        return x + attention(x @ w[0], x @ w[1], x @ w[2], mask=visible)[0]

    def lag(x):
        i = np.arange(len(x))
        return i[:, None] - i

    def by_number(x):
        """Hidden scores are replaced by −10,000: a small score among the small, a large one among the very small."""
        s = np.where(causal_mask(len(x)), (x @ w[0]) @ (x @ w[1]).T / 6 ** 0.5, -10_000.0)
        e = np.exp(s - s.max(axis=1, keepdims=True))
        return x + e / e.sum(axis=1, keepdims=True) @ (x @ w[2])

    def centred(x):
        return layer(x - 1e-3 * x.mean(axis=0), causal_mask(len(x)))

    return [
        ("causal attention", lambda x: layer(x, causal_mask(len(x))), True),
        ("two causal layers", lambda x: layer(layer(x, causal_mask(len(x))), causal_mask(len(x))), True),
        ("a causal window", lambda x: layer(x, (lag(x) >= 0) & (lag(x) < 2)), True),
        ("a map of each row by itself", np.tanh, True),
        ("attention without a mask", lambda x: layer(x, lag(x) > -len(x)), False),
        ("a mask that is one step off", lambda x: layer(x, lag(x) >= -1), False),
        ("a mask transposed", lambda x: layer(x, lag(x) <= 0), False),
        ("a window open to both sides", lambda x: layer(x, np.abs(lag(x)) < 2), False),
        ("a mask that leaks from three rows ahead", lambda x: layer(x, (lag(x) >= 0) | (lag(x) == -3)), False),
        ("a mask that fails in its twelfth row", lambda x: layer(x, (lag(x) >= 0) | (np.arange(len(x)) == 11)[:, None]), False),
        ("a mean over the whole sequence", centred, False),
        ("a mask that hides with the number −10,000", by_number, False),
    ]


def is_causal(answer):
    """A detector must find small leaks, near leaks, and those that show only at large scores; and accuse no causal model."""
    hints = {
        "a mask that is one step off": "It leaks from the very next row only: change that one, too.",
        "a window open to both sides": "It leaks from the very next row only: change that one, too.",
        "a mask that leaks from three rows ahead": "It leaks from one row, three ahead: change all later rows, at several cuts.",
        "a mask that fails in its twelfth row": "It leaks in longer sequences only; n may be as large as 64.",
        "a mean over the whole sequence": "The leak is there, near 1e-4; your tolerance hides it.",
        "a mask that hides with the number −10,000": "With scores of ordinary size it is sound. Try inputs a thousand times as large, in all rows.",
    }
    for name, model, right in _models():
        if truth(answer(model), name) == right:
            continue
        if right:
            raise Mistake(f"For {name} you answer False, but no earlier output depends on a later row. Compare only rows before the change, with a little room for rounding.")
        raise Mistake(f"For {name} you answer True. {hints.get(name, 'Change later rows, and compare the outputs of all earlier ones.')}")
    return "Caught every leak and accused no causal model: run it on each new mask, after everything that will be done to that mask."
