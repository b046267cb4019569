"""Checkers of the primer."""

from __future__ import annotations

import numpy as np

from poslib.teach.exercises import Mistake

__all__ = ["gap", "masked_softmax", "turn"]


def turn(answer):
    """Rows turned counter-clockwise, each by its own angle in radians."""
    rng = np.random.default_rng(5)
    x, phi = rng.normal(size=(7, 2)), rng.uniform(-6, 6, size=7)

    def right(x, phi):
        z = (x[:, 0] + 1j * x[:, 1]) * np.exp(1j * phi)
        return np.stack([z.real, z.imag], axis=1)

    got = np.asarray(answer(x.copy(), phi.copy()))
    if got.shape != x.shape:
        raise Mistake(f"Your result has the shape {got.shape}; it should be that of x, {x.shape}.")
    likely = [
        (right(x, -phi), "Your rows turn clockwise: a row times Rot(φ) turns the other way, and so does a pair of swapped sines."),
        (right(x, np.deg2rad(phi)), "Your turns are too small: the angles are radians already."),
        (right(x, np.full(7, phi[0])), "Every row is turned by the first angle; row j needs phi[j]."),
        (right(x[:, ::-1], phi), "The two coordinates are exchanged before they are turned."),
        (right(x, phi)[:, ::-1], "The two coordinates are exchanged after they are turned."),
    ]
    for wrong, sentence in likely:
        if np.allclose(got, wrong, atol=1e-9):
            raise Mistake(sentence)
    if not np.allclose(np.hypot(got[:, 0], got[:, 1]), np.hypot(x[:, 0], x[:, 1]), atol=1e-9):
        raise Mistake("Your points change their distance from the origin; a turn does not. Did you use a coordinate that was already overwritten?")
    if not np.allclose(got, right(x, phi), atol=1e-9):
        raise Mistake("The lengths are kept, but the directions are not those of a turn by phi[j]; try x = (1, 0) and a quarter turn.")
    return "Each row is turned by its own angle, counter-clockwise, and keeps its length."


def gap(answer):
    """Distance of two directions: the shorter way round, after whole turns are dropped."""
    full = 2 * np.pi
    for alpha, beta in [(0.0, 0.0), (0.5, 0.2), (0.2, 0.5), (18.95, 6.2), (0.1, 6.2), (6.2, 0.1), (-1.0, 3.0), (25.0, -40.0), (0.0, np.pi)]:
        got = float(answer(alpha, beta))
        way = (alpha - beta) % full
        right = min(way, full - way)
        if abs(got - right) < 1e-9:
            continue
        pair = f"gap({alpha:g}, {beta:g})"
        if got < 0:
            raise Mistake(f"{pair} is {got:.3f}; a distance is not negative.")
        if abs(got - abs(alpha - beta)) < 1e-9:
            raise Mistake(f"{pair} is {got:.3f}: whole turns still count. Angles that differ by 2π are the same direction.")
        if abs(got - way) < 1e-9 or abs(got - abs(alpha - beta) % full) < 1e-9:
            raise Mistake(f"{pair} is {got:.3f}, more than half a turn; the other way round is shorter.")
        if abs(got - abs(alpha % full - beta % full)) < 1e-9:
            raise Mistake(f"{pair} is {got:.3f}: each angle is wrapped, but their difference needs it too.")
        raise Mistake(f"{pair} is {got:.3f}; the shorter way round is {right:.3f}.")
    return "Whole turns are dropped and the shorter way is taken: a distance between directions."


def masked_softmax(answer):
    """Hidden keys have no weight and no influence, large scores no overflow."""
    S = np.array([[0.5, 2.0, -1.0, 0.0], [1.0, 1.0, 3.0, -2.0], [0.0, -1.0, 0.5, 2.0]])
    visible = np.array([[True, False, True, False], [True, True, True, False], [False, False, False, True]])

    def right(S):
        S = np.where(visible, S, -np.inf)
        e = np.exp(S - S.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    def tried(S):
        with np.errstate(all="ignore"):
            return np.asarray(answer(S.copy(), visible.copy()), float)

    got = tried(S)
    if got.shape != S.shape:
        raise Mistake(f"Your weights have the shape {got.shape}; there is one for each score, {S.shape}.")
    e = np.exp(S)
    if np.allclose(got, e / e.sum(axis=1, keepdims=True)):
        raise Mistake("The mask has no effect: hidden keys keep their weight.")
    if np.allclose(got, np.where(visible, e, 0) / e.sum(axis=1, keepdims=True)):
        raise Mistake("The weights of a row do not add up to one: you hid the keys after the softmax, when they had already taken their share of the sum.")
    zero = np.exp(np.where(visible, S, 0))
    if np.allclose(got, zero / zero.sum(axis=1, keepdims=True)):
        raise Mistake("A hidden key with the score 0 still has the exponential 1. Which score has the exponential 0?")
    by_column = np.where(visible, e, 0)
    if np.allclose(got, by_column / by_column.sum(axis=0, keepdims=True)):
        raise Mistake("Your columns add up to one; it is each query, a row, that has one unit of weight to give.")
    if not np.allclose(got, right(S), atol=1e-12):
        raise Mistake("For small scores the weights are not exp(score) over the sum of the visible exponentials.")
    for name, big in [("All scores near 1,000", S + 1000), ("A hidden score of 1,000", np.where(visible, S, 1000.0)),
                      ("All scores near -1,000", S - 1000), ("Rows of very different size", S + np.array([[0.0], [1000.0], [0.0]]))]:
        got = tried(big)
        if not np.isfinite(got).all():
            raise Mistake(f"{name}: the weights are not numbers any more. Before the exponential, subtract from each row its own largest visible score.")
        if not np.allclose(got, right(big), atol=1e-9):
            raise Mistake(f"{name}: the weights of the visible keys change, though only differences between visible scores of a row may matter.")
    return "Hidden keys have no weight and no influence, rows add up to one, and nothing overflows."
