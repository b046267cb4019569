"""Checkers of chapter 01."""

from __future__ import annotations

import itertools
import random

import numpy as np

from poslib.attention import attention, causal_mask
from poslib.teach.exercises import Mistake, truth

__all__ = ["blind_orders", "distinct_predictions", "pooling", "sees_order"]


def pooling(answer):
    """A read-out of the multiset: no order, but every row counts, and so does how often it occurs."""
    rng = np.random.default_rng(1)
    h = rng.normal(size=(5, 3))

    def read(x):
        result = answer(x.copy())
        if result is None:
            raise Mistake("pooling gave None: is a return missing?")
        got = np.asarray(result, float)
        if got.ndim != 1 or not np.isfinite(got).all():
            raise Mistake(f"pooling gave an array of shape {got.shape}; it should give one vector of finite numbers.")
        return got

    first = read(h)
    near = 1e-9 * max(1.0, np.abs(first).max(initial=0))

    def same(a, b):
        return a.shape == b.shape and np.abs(a - b).max(initial=0) < near

    for _ in range(20):
        order = rng.permutation(5)
        if not same(read(h[order]), first):
            raise Mistake(f"The order {order.tolist()} of the rows changes your result: does it read a fixed place, or weigh places differently?")
    for row in range(5):
        changed = h.copy()
        changed[row] = rng.normal(size=3)
        if same(read(changed), first):
            raise Mistake("A change of one row is lost in your result: it is blind to more than order.")
    a, b = h[:2]
    if same(read(np.stack([a, a, b])), read(np.stack([a, b, b]))):
        raise Mistake("Your result does not tell {a, a, b} from {a, b, b}. Does it count how often a row occurs?")
    return "Order is gone, every row counts, and so does how often it occurs."


def distinct_predictions(answer):
    """How many different predictions: as many as there are different tokens."""
    draw = random.Random(2)
    for _ in range(40):
        tokens = [draw.choice(["the", "dog", "bites", "man", "[MASK]"]) for _ in range(draw.randint(1, 9))]
        got, right = answer(list(tokens)), len(set(tokens))
        if got == right:
            continue
        if got == len(tokens):
            raise Mistake(f"For {tokens} you count {got}, a prediction for each place. Which places must agree, by the corollary on twins?")
        if got == len(set(tokens) - {"[MASK]"}):
            raise Mistake(f"For {tokens} you count {got}: all the masks share one prediction, but that one counts too.")
        raise Mistake(f"For {tokens} you count {got!r}; it is {right}. Equal tokens share a state, different tokens need not.")
    return "Equal tokens have equal states, so there are as many predictions as different tokens, wherever the masks stand."


def blind_orders(answer):
    """Orders that keep all distances: the first order and its mirror image."""
    for n in (3, 4, 5):
        given = answer(n)
        if not isinstance(given, (list, tuple, set)) or not all(isinstance(order, (list, tuple, np.ndarray)) for order in given):
            raise Mistake(f"blind_orders({n}) gave {given!r}; it should give a list of tuples.")
        got = {tuple(int(i) for i in order) for order in given}
        right = {tuple(range(n)), tuple(reversed(range(n)))}
        wrong = sorted(got - set(itertools.permutations(range(n))))
        if wrong:
            raise Mistake(f"{wrong[0]} is not an order of the places 0 to {n - 1}.")
        if tuple(range(n)) not in got:
            raise Mistake(f"For n = {n} the first order itself is missing; it certainly changes nothing.")
        if got == {tuple(range(n))}:
            raise Mistake(f"For n = {n} one more order keeps every distance. What does a mirror do to |i − j|?")
        if got != right:
            extra = sorted(got - right)
            raise Mistake(f"For n = {n}, {extra[0]} brings two tokens nearer or moves them apart; compare |i − j| before and after."
                          if extra else f"For n = {n} the mirror image is missing.")
    return "Only the mirror image keeps every distance: bidirectional ALiBi reads a sentence and its reversal alike."


def _models():
    """What a detector of order meets: (name, function of (n, 6) arrays, whether it sees order)."""
    rng = np.random.default_rng(3)
    w = [rng.normal(size=(6, 6)) * 0.5 for _ in range(3)]

    def layer(x, **options):
        return x + attention(x @ w[0], x @ w[1], x @ w[2], **options)[0]

    def distances(x, ring=False):
        places = np.arange(len(x))
        away = np.abs(places[:, None] - places).astype(float)
        return np.minimum(away, len(x) - away) if ring else away

    def marked(x, place):
        """Adds a vector to one place, if the sentence is that long."""
        code = np.zeros_like(x)
        code[place:place + 1] = 1.0
        return layer(x + code)

    table = rng.normal(size=(64, 6))
    return [
        ("a map that returns its input", lambda x: x, False),
        ("attention without positions", layer, False),
        ("two layers without positions", lambda x: layer(layer(x)), False),
        ("attention whose states are in the hundreds", lambda x: 100 * layer(x), False),
        ("causal attention", lambda x: layer(x, mask=causal_mask(len(x))), True),
        ("a learned table", lambda x: layer(x + table[:len(x)]), True),
        ("a learned table with entries near a millionth", lambda x: layer(x + 1e-6 * table[:len(x)]), True),
        ("bidirectional ALiBi", lambda x: layer(x, bias=-0.5 * distances(x)), True),
        ("a window of one neighbour", lambda x: layer(x, mask=distances(x) <= 1), True),
        ("distances around a ring", lambda x: layer(x, bias=-0.5 * distances(x, ring=True)), True),
        ("a map that reverses the rows", lambda x: x[::-1], True),
        ("a code at the last place alone", lambda x: marked(x, len(x) - 1), True),
        ("a code at the first place alone", lambda x: marked(x, 0), True),
        ("a code at the third place alone", lambda x: marked(x, 2), True),
        ("a code at the eleventh place alone", lambda x: marked(x, 10), True),
    ]


HINTS = {
    "a map that returns its input": "It moves every row along with the input, so it is equivariant. Compare f(PX) with P f(X), not with f(X).",
    "attention without positions": "Sums in another order differ in the last digits; too strict a comparison takes rounding for order.",
    "a learned table with entries near a millionth": "The effect is there, near 1e-6; your tolerance hides it.",
    "bidirectional ALiBi": "If you only reverse the sequence, a mechanism that reads distances cannot be caught; use orders that change them.",
    "distances around a ring": "A cyclic shift or a reversal keeps all distances around a ring; use random permutations.",
    "a code at the first place alone": "Your permutations seem to leave some places alone; move all of them.",
    "a code at the eleventh place alone": "It acts in longer sentences only; n may be as large as 64.",
}
HINTS["a code at the last place alone"] = HINTS["a code at the first place alone"]
HINTS["two layers without positions"] = HINTS["attention whose states are in the hundreds"] = HINTS["attention without positions"]
HINTS["a window of one neighbour"] = HINTS["bidirectional ALiBi"]
HINTS["a code at the third place alone"] = HINTS["a code at the first place alone"]


def sees_order(answer):
    """A detector must not be fooled by rounding, by symmetry, by small effects or by effects at one place."""
    for name, model, right in _models():
        got = truth(answer(model), name)
        if got != right:
            raise Mistake(f"For {name} you answer {got}. {HINTS.get(name, 'Compare f(PX) with P f(X) for random X and P.')}")
    return "Caught all of them, and no innocent one: this test belongs beside every model that is meant to know order."
