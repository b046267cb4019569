"""Checkers of chapter 11."""

from __future__ import annotations

import math
import random
from collections import OrderedDict
from fractions import Fraction

import numpy as np

from poslib.teach.exercises import Mistake

__all__ = ["even", "misses", "through", "window_rows"]


def _whole(got, what):
    """The answer as a whole number."""
    if isinstance(got, (float, np.floating)) and float(got).is_integer():
        got = int(got)
    if isinstance(got, bool) or not isinstance(got, (int, np.integer)):
        raise Mistake(f"{what} gave {got!r}; asked for is a whole number.")
    return int(got)


def _fetched(n, block, window):
    """Rows fetched, counted tile by tile; and what usual mistakes would count."""
    band = pairs = tiles = 0
    for start in range(0, n, block):
        kept = set()
        for keys in range(0, start + 1, block):
            need = [i - j for i in range(start, start + block) for j in range(keys, keys + block) if 0 <= i - j < window]
            band, pairs, tiles = band + len(set(need) - kept), pairs + len(need), tiles + len(set(need))
            kept = set(need)
    return band, pairs, tiles


def window_rows(answer):
    """Rows fetched by the band walk under a window."""
    for n, block, window in [(48, 8, 12), (48, 8, 48), (48, 8, 1), (60, 5, 7), (64, 16, 40), (20, 20, 3), (9, 1, 4), (24, 4, 24)]:
        right, pairs, tiles = _fetched(n, block, window)
        what = f"window_rows({n}, {block}, {window})"
        got = _whole(answer(n, block, window), what)
        if got == right:
            continue
        m = n // block
        for wrong, sentence in [
            (n * (m + 1) // 2, "That is the walk without a window: no block needs more than w lags."),
            (m * window, "The first blocks have fewer than w lags: the text begins at 0."),
            (pairs, "You count a row for each pair; each block of queries fetches a lag once."),
            (tiles, "You count each tile's lags; the band keeps what the tile before had."),
            (sum(min(window + block - 1, t * block) for t in range(1, m + 1)),
             "The window is a limit on the lag, the same for every query of the block: w lags, not w + B − 1."),
            (sum(min(window, t * block) for t in range(m)), "The first block of queries meets B lags, not none: count blocks from 1."),
        ]:
            if got == wrong:
                raise Mistake(f"{what} gave {got}. {sentence}")
        raise Mistake(f"{what} gave {got}; counted tile by tile it is {right}.")
    return "Right: each block of queries fetches each of its lags once, and a window leaves it w of them at most."


def _misses(trace, capacity, on_hit=True):
    kept, missed = OrderedDict(), 0
    for row in trace:
        if row in kept:
            if on_hit:
                kept.move_to_end(row)
        else:
            missed += 1
            kept[row] = None
        while len(kept) > capacity:
            kept.popitem(last=False)
    return missed


def misses(answer):
    """Misses of an LRU cache."""
    rng = random.Random(0)
    cases = [("300 reads of 12 rows at random, capacity 7", [rng.randrange(12) for _ in range(300)], 7),
             ("a walk through 5 rows, three times, capacity 4", [*range(5)] * 3, 4),
             ("the same with capacity 5", [*range(5)] * 3, 5),
             ("rows 0, 1, 0, 2, 0, 3, 0 and 1 with capacity 2", [0, 1, 0, 2, 0, 3, 0, 1], 2),
             ("forwards and backwards through 6 rows, capacity 4", [*range(6), *range(5, -1, -1)], 4),
             ("an empty trace", [], 3),
             ("the same row four times, capacity 0", [7, 7, 7, 7], 0),
             ("the same row four times, capacity 1", [7, 7, 7, 7], 1)]
    for name, trace, capacity in cases:
        right = _misses(trace, capacity)
        got = _whole(answer(list(trace), capacity), f"misses, for {name},")
        if got == right:
            continue
        for wrong, sentence in [
            (_misses(trace, capacity, on_hit=False), "Your cache throws out what came in first. A hit must make the row the newest again."),
            (len(trace) - right, "These are the hits."),
            (len(set(trace)), "You count each row once, as if nothing were ever thrown out."),
            (_misses(trace, capacity + 1), "Your cache holds one row more than its capacity."),
            (_misses(trace, capacity - 1) if capacity else -1, "Your cache holds one row less than its capacity."),
        ]:
            if got == wrong:
                raise Mistake(f"For {name}: {got}. {sentence}")
        raise Mistake(f"For {name}: {got} misses; it should be {right}.")
    return "Right. A cyclic walk through one row more than fits misses every time."


def even(answer):
    """The length at which a turn takes as long as causal attention."""
    for H, G, c, e, ridge in [(32, 8, 2, 4, 256), (32, 8, 10, 2, 295), (32, 32, 10, 2, 150), (16, 1, 2, 4, 20), (64, 8, 26, 2, 206)]:
        exact = Fraction(c * e * (H + G) * ridge, 2 * H)
        what = f"even({H}, {G}, {c}, {e}, {ridge})"
        got = answer(H, G, c, e, ridge)
        if isinstance(got, (float, np.floating)) and not float(got).is_integer() and abs(got - float(exact)) < 1.6:
            raise Mistake(f"{what} gave {got}; asked for is the largest whole length, so round down.")
        got = _whole(got, what)
        right = math.floor(exact) - 1
        if got == right:
            continue
        for wrong, sentence in [
            (math.ceil(exact) - 1, "At that length attention takes longer already: round down."),
            (math.floor(exact), "n + 1 stands in the formula, not n: a query sees its own key too."),
            (math.floor(exact / 2) - 1, "Causal attention takes 2Hn(n + 1)d FLOPs, not 4: the mask hides half."),
            (math.floor(exact * 2) - 1, "Attention has two products, QKᵀ and AV: 2Hn(n + 1)d FLOPs under a mask."),
            (c * e * ridge // 2 - 1, "Keys are turned too: (H + G)/H."),
            (math.floor(exact / e) - 1, "Bytes, not numbers: the format's e is missing."),
        ]:
            if got == wrong:
                raise Mistake(f"{what} gave {got}. {sentence}")
        raise Mistake(f"{what} gave {got}; setting the ratio to 1 gives n + 1 = {float(exact):.1f}.")
    return "Right. The width cancels: both grow with it."


def _pairs_stack(rng, heads, width, pairs):
    """Blocks aI + bJ from latent pair k to pair k of each head, for the given pairs."""
    W = np.zeros((heads, width, 2 * len(pairs)))
    for h in range(heads):
        for n, k in enumerate(pairs):
            a, b = rng.normal(size=2)
            W[np.ix_([h], [k, k + width // 2], [2 * n, 2 * n + 1])] = [[[a, -b], [b, a]]]
    return W.reshape(heads * width, -1)


def through(answer):
    """Which of the two ways lets a stack of key matrices through."""
    rng = np.random.default_rng(0)
    heads, width = 3, 8
    omega = np.array([1.0, 0.3, 0.05, 0.01])
    part = np.array([1.0, 0.1, 0.0, 0.0])
    still = np.zeros((heads, width, 5))
    still[:, [2, 3, 6, 7]] = rng.normal(size=(heads, 4, 5))
    still = still.reshape(-1, 5)
    special = _pairs_stack(rng, heads, width, [0, 1, 2, 3])
    few = _pairs_stack(rng, heads, width, [1])
    mixed = np.concatenate([_pairs_stack(rng, heads, width, [0, 1]), still], axis=1)
    swapped = special.copy().reshape(heads, width, -1)
    swapped[0, :, :2] *= -1
    swapped[0, 4, :2] *= -1                                     # one head's pair reflected
    random_stack = rng.normal(size=(heads * width, 6))
    mix = rng.normal(size=(8, 8))
    wide = rng.normal(size=(width, 11))
    cases = [("a random stack", random_stack, omega, "neither"),
             ("a random stack whose turned channels are zero", still, part, "absorb"),
             ("the same stack when all pairs turn", still, omega, "neither"),
             ("blocks aI + bJ, pair to pair", special, omega, "turn"),
             ("the same with its latent channels mixed by a matrix", special @ mix, omega, "turn"),
             ("blocks for one pair only", few, omega, "turn"),
             ("blocks for turned pairs beside a free part for the unturned", mixed, part, "turn"),
             ("blocks, one of them reflected in one head", swapped.reshape(heads * width, -1), omega, "neither"),
             ("one head with more latent channels than rows", wide, omega, "turn"),
             ("no turned pair at all", random_stack, np.zeros(4), "absorb"),
             ("a slow pair only", random_stack, np.array([1e-4, 0, 0, 0]), "neither")]
    for name, W, frequencies, right in cases:
        got = answer(W.copy(), frequencies.copy())
        if got not in ("absorb", "turn", "neither"):
            raise Mistake(f"through gave {got!r}; asked for is 'absorb', 'turn' or 'neither'.")
        if got == right:
            continue
        reason = {
            ("absorb", "turn"): "Turning by one place changes the matrix, so the query cannot swallow it; only turned latents work.",
            ("absorb", "neither"): "Turning by one place changes the matrix.",
            ("turn", "absorb"): "Nothing changes when the columns are turned: the simpler way works.",
            ("turn", "neither"): "The turned columns are not combinations of the columns. Do you test each head alone? The cache has one latent for all heads.",
            ("neither", "turn"): "The turned columns are combinations of the columns. Compare images, not matrices.",
            ("neither", "absorb"): "The turned channels are zero, so turning changes nothing.",
        }[got, right]
        raise Mistake(f"For {name} you say {got!r}; it is {right!r}. {reason}")
    return "Right: absorb if a turn changes nothing, turn the latent if it keeps the image."

