"""Checkers of chapter 03."""

from __future__ import annotations

import numpy as np

from poslib import absolute
from poslib.teach.exercises import Mistake, array

__all__ = ["right_share", "stretch", "tied", "unseen"]


def stretch(answer):
    """Linear interpolation between the first and the last row."""
    rng = np.random.default_rng(1)
    for old, rows in ((4, 7), (5, 9), (3, 10), (6, 4), (5, 5)):
        table = rng.normal(size=(old, 3))
        got, right = array(answer(table.copy(), rows), (rows, 3), "stretch"), absolute.resize(table, rows)
        if np.abs(got - right).max() < 1e-9:
            continue
        at = np.arange(rows)
        shifted = _between(table, at * old / rows)
        centred = _between(table, (at + 0.5) * old / rows - 0.5)
        if np.abs(got - shifted).max() < 1e-9:
            raise Mistake(f"From {old} to {rows} rows your last row is not the old last row: the step between new rows is (old − 1)/(rows − 1), not old/rows.")
        if np.abs(got - centred).max() < 1e-9:
            raise Mistake("You interpolate between pixel centres, as for images; here the first and the last row should stay where they are.")
        place = at * (old - 1) / (rows - 1)
        swapped, mixed = _between(table, place, swap=True), np.abs(place - np.rint(place)) > 1e-9
        if np.abs(got - swapped)[:-1].max() < 1e-9 or mixed.any() and np.abs(got - swapped)[mixed].max() < 1e-9:
            raise Mistake(f"From {old} to {rows} rows each neighbour gets the other's share: a new place near row m should be nearly row m, so s belongs to row m + 1.")
        known = np.abs(got[:, None] - table).max(-1).min(1) < 1e-9
        if known.all():
            raise Mistake(f"From {old} to {rows} rows you only repeat old rows; a new place between two of them gets a mixture of both.")
        if np.abs(got[[0, -1]] - table[[0, -1]]).max() > 1e-9:
            raise Mistake(f"From {old} to {rows} rows the first and the last row should stay where they are.")
        raise Mistake(f"From {old} to {rows} rows the ends are right, row {int(np.abs(got - right).max(1).argmax())} is not: which share of each neighbour does it get?")
    return "First and last row stay, and every other one is a mixture of its two neighbours: this is poslib's resize."


def _between(table, at, swap=False):
    at = np.clip(at, 0, len(table) - 1)
    low = np.minimum((at + 1e-9).astype(int), len(table) - 2)
    share = (1 - (at - low) if swap else at - low)[:, None]
    return table[low] + share * (table[low + 1] - table[low])


def tied(answer):
    """One matrix for the sum does what two matrices do for the parts, where their spans meet in 0 alone."""
    rng = np.random.default_rng(2)
    for case in range(4):
        words, places = rng.normal(size=(3, 6)), rng.normal(size=(2, 6))
        if case == 3:
            words[2] = words[0] - 2 * words[1]         # dependent rows do no harm
        one, two = rng.normal(size=(2, 4, 6))
        got = array(answer(words.copy(), places.copy(), one.copy(), two.copy()), (4, 6), "tied")
        error = max(np.abs(got @ (e + p) - one @ e - two @ p).max() for e in words for p in places)
        if error < 1e-8:
            continue
        if np.abs(got - one - two).max() < 1e-9 or np.abs(got - (one + two) / 2).max() < 1e-9:
            raise Mistake("A sum or a mean of the two matrices lets each of them act on the word and on the place; W should act as W1 on words and as W2 on places.")
        on_words, on_places = (np.linalg.pinv(rows) @ rows for rows in (words, places))
        for a, b in ((on_words, on_places), (np.eye(6) - on_places, on_places), (on_words, np.eye(6) - on_words)):
            if np.abs(got - one @ a - two @ b).max() < 1e-8:
                raise Mistake("You project orthogonally onto the spans, and the two spans are not orthogonal: a word has a part in the places' span, which must not be "
                              "taken for a place. Ask only what W does to each word and to each place.")
        if np.abs(got @ words.T - one @ words.T).max() < 1e-8:
            raise Mistake("Your W treats the words rightly; on the places it should act as W2.")
        if np.abs(got @ places.T - two @ places.T).max() < 1e-8:
            raise Mistake("Your W treats the places rightly; on the words it should act as W1.")
        if case == 3:
            raise Mistake("It works until the word vectors depend on each other. Solving with a pseudo-inverse or by least squares needs no independent rows.")
        raise Mistake(f"W(e + p) is off by up to {error:.2g}. W must send each word vector e to W1 e and each row p to W2 p, all at once.")
    return "One matrix does the work of two: as long as the spans meet in 0 alone, a linear reader of the sum has lost nothing."


def unseen(answer):
    """A table of different rows that queries, keys and values cannot tell apart (whether they send them to 0 or to another common vector)."""
    rng = np.random.default_rng(3)
    for rows in (2, 5):
        matrices = rng.normal(size=(3, 2, 8))
        got = array(answer(*(m.copy() for m in matrices), rows), (rows, 8), "unseen")
        apart = np.abs(got[:, None] - got).max(-1) + np.eye(rows)
        if apart.min() < 1e-6:
            raise Mistake("Two of your rows are equal. All of them should differ, and still not be seen.")
        change = got - got[0]
        seen = [np.abs(change @ m.T).max() / np.abs(change).max() for m in matrices]
        for name, size in zip(("queries", "keys", "values"), seen):
            if size > 1e-9:
                blind = [n for n, s in zip(("queries", "keys", "values"), seen) if s <= 1e-9]
                raise Mistake(f"The {name} see your table" + (f", the {' and the '.join(blind)} do not" if blind else "") +
                              ". All rows must have the same image under all three matrices, 0 for example: stack them.")
    return "All rows differ and the layer cannot tell them apart: with this table it is as blind to order as without one."


def right_share(answer):
    """What a copying head with a separate entry for each pair of rows gets right."""
    for trained, start, length, back in (([0], 0, 24, 3), ([0], 24, 24, 3), ([0], 8, 24, 3), ([0, 24], 12, 24, 3), ([0, 24], 23, 24, 3), (list(range(25)), 12, 24, 3),
                                         ([0, 8, 16], 4, 10, 4), ([5], 3, 9, 2), ([0, 10], 5, 10, 1), ([0, 1], 10, 24, 3), ([0, 4], 8, 16, 2)):
        pairs = {(s + i, s + i - back) for s in trained for i in range(back, length)}
        rows = {s + i for s in trained for i in range(length)}
        right = np.mean([(start + i, start + i - back) in pairs for i in range(back, length)])
        got = answer(list(trained), start, length, back)
        if not isinstance(got, (int, float, np.floating, np.integer)):
            raise Mistake(f"right_share gave {got!r}; it should give a number.")
        if abs(got - right) < 1e-9:
            continue
        case = f"Trained at {trained if len(trained) < 6 else f'{trained[0]} to {trained[-1]}'}, tested at {start} (length {length}, back {back}) you predict {got:.3f}, and it is {right:.3f}. "
        by_row = np.mean([start + i in rows for i in range(back, length)])
        by_rows = np.mean([start + i in rows and start + i - back in rows for i in range(back, length)])
        if abs(got - by_row) < 1e-9 or abs(got - by_rows) < 1e-9:
            raise Mistake(case + "You ask which rows were trained. Ask which pairs of rows stood in one training sequence.")
        last = {(s + i, s + i - back) for s in trained for i in range(back, length + 1)}
        if abs(got - np.mean([(start + i, start + i - back) in last for i in range(back, length)])) < 1e-9:
            raise Mistake(case + "A sequence that starts at s ends at s + length − 1: your training sequences are one place too long.")
        blocks = [np.mean([back <= start + i - s < length for i in range(back, length)]) for s in trained]
        if abs(got - max(blocks)) < 1e-9:
            raise Mistake(case + "You count the one training start that helps most. Collect the pairs of all of them.")
        if abs(got - sum(blocks)) < 1e-9 or abs(got - min(1, sum(blocks))) < 1e-9:
            raise Mistake(case + "Training sequences may overlap, and you count a pair that two of them hold twice. Collect the pairs in a set.")
        if abs(got * length - right * (length - back)) < 1e-9 or abs(got * length - right * (length - back) - back) < 1e-9:
            raise Mistake(case + "The first places have no target: divide by length − back.")
        raise Mistake(case + "Count the targets whose row and the row `back` before it stood in one training sequence at that distance.")
    return "Row by row everything may be trained, and the pair still be new: with absolute rows each distance is learned once for each place."
