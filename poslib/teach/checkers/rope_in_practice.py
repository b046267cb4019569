"""Checkers of chapter 10."""

from __future__ import annotations

import numpy as np

from poslib import positions
from poslib.rotary import frequencies, rotate
from poslib.teach.exercises import Mistake

__all__ = ["dialect", "drop_middle", "museum", "position_ids"]


def _array(got, shape, what, numbers="floats"):
    """The answer as an array of the shape asked for."""
    try:
        found = np.asarray(got)
        good = found.dtype.kind in ("iu" if numbers == "whole numbers" else "fiu")
    except (TypeError, ValueError):
        good = False
    if got is None or got is ... or not good:
        raise Mistake(f"{what} gave {type(got).__name__ if not isinstance(got, np.ndarray) else got.dtype}; asked for is an array of {numbers}.")
    if found.shape != shape:
        raise Mistake(f"{what} gave an array of shape {found.shape}; asked for is {shape}.")
    return found


def position_ids(answer):
    """The number of real tokens before, in the cache and in the row."""
    cases = [
        ("rows with fill and caches of 3 and 7", [[0, 0, 1, 1], [0, 1, 1, 1]], [3, 7]),
        ("two rows, one with fill, empty caches", [[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]], [0, 0]),
        ("one new token in each of three rows with caches of 5, 0 and 9", [[1], [1], [1]], [5, 0, 9]),
        ("a row without new tokens", [[0, 0, 0], [1, 1, 1]], [4, 2]),
    ]
    for name, mask, cached in cases:
        mask, cached = np.array(mask) == 1, np.array(cached)
        right = positions.from_mask(mask, offsets=cached)
        try:
            got = answer(mask.copy(), cached.copy())
        except ValueError as error:
            raise Mistake(f"For {name} your function stops: {error}. `cached` has one number a row, and needs an axis for the places.") from None
        got = _array(got, mask.shape, f"position_ids, for {name},", "whole numbers")
        places = np.arange(mask.shape[1])
        usual = [
            (places + np.zeros_like(mask, dtype=int), "You number the places, fill and cache forgotten."),
            (right - cached[:, None], "The tokens of the cache come before: add them."),
            (places + cached[:, None], "You count filled places as tokens."),
            (right + 1, "Everything is one too large: the first token of a text stands at 0. Does cumsum count the token itself?"),
            (np.arange(mask.shape[1]) - (~mask).sum(1)[:, None] + cached.max(), "Each row has a cache of its own length."),
        ]
        if (got != right)[mask].any():
            for wrong, sentence in usual:
                if not (got != wrong)[mask].any():
                    raise Mistake(f"For {name}: {sentence}")
            row = int(np.argmax(((got != right) & mask).any(1)))
            raise Mistake(f"For {name}, row {row} should have {right[row][mask[row]].tolist()} at its real tokens, and has {got[row][mask[row]].tolist()}.")
    return "Right: every row counts its own tokens, those in the cache included."


def dialect(answer):
    """Layout and width of a function, from the outside."""
    for layout, width, base in [("half", 16, 1e4), ("interleaved", 16, 1e4), ("half", 8, 1e4), ("interleaved", 8, 1e4), ("interleaved", 4, 5e4),
                                ("half", 14, 1e5), ("interleaved", 14, 1e5), ("half", 4, 1e5), ("half", 16, 1e5), ("interleaved", 12, 500.0)]:
        got = answer(lambda x, p: rotate(x, p, layout=layout, width=width, base=base))
        asked = f"a function with layout {layout!r}, width {width} and base {base:,.0f}"
        if not isinstance(got, (tuple, list)) or len(got) != 2:
            raise Mistake(f"dialect gave {got!r}; asked for is the pair (layout, width).")
        if got[0] not in ("half", "interleaved"):
            raise Mistake(f"The first entry is {got[0]!r}; allowed are 'half' and 'interleaved'.")
        if not isinstance(got[1], (int, np.integer)):
            raise Mistake(f"The second entry is {got[1]!r}; asked for is the number of channels that turn.")
        if got[0] != layout:
            raise Mistake(f"For {asked} you say {got[0]!r}. In halves the partner of channel 0 is channel width/2, not 8, when fewer than 16 channels turn."
                          if width < 16 and layout == "half" else f"For {asked} you say {got[0]!r}. Where does channel 0 go at position 1?")
        if got[1] != width:
            small = "The slowest pair moves by very little: is your tolerance small enough, or your position large enough?"
            hint = ("Channels turn in pairs, so the number is even. Do all your rows stand at a position other than 0?" if got[1] % 2 else
                    f"Do you count pairs? Asked are channels. Or: {small}" if 2 * got[1] == width else
                    small if got[1] < width else "Channels that do not turn are copied bit by bit: what did you take for a turn?")
            raise Mistake(f"For {asked} you say width {got[1]}. {hint}")
    return "Right: two questions to a black box settle the dialect."


def drop_middle(answer):
    """Kept keys, turned to their new places."""
    rng = np.random.default_rng(5)
    for length, first, last in [(20, 4, 8), (50, 4, 1), (10, 0, 4), (10, 3, 0), (12, 6, 6), (300, 2, 40)]:
        raw = rng.normal(size=(length, 16))
        keys = rotate(raw, np.arange(length), layout="half")
        before = keys.copy()
        old = np.r_[0:first, length - last:length]
        new = np.arange(first + last)
        right = rotate(raw[old], new, layout="half")
        asked = f"With {length} keys, {first} and {last} kept"
        try:
            got = answer(keys, first, last)
        except ValueError as error:
            raise Mistake(f"{asked}: your function stops: {error}") from None
        got = _array(got, right.shape, f"drop_middle, for {length} keys of which {first} and {last} are kept,")
        if not np.array_equal(keys, before):
            raise Mistake("Your function changes the keys that it was given; work on a copy.")
        if np.abs(got - right).max() < 1e-9:
            continue
        if got.dtype != keys.dtype and np.abs(got - right).max() < 1e-2:
            raise Mistake(f"{asked}: the result is {got.dtype}, and the keys are {keys.dtype}.")
        shift = old - new
        usual = [
            (keys[old], "the right keys are kept, but none is turned to its new position."),
            (rotate(keys[old], new, layout="half"), "the stored keys are turned already: you turn them by the new position on top. Turn by the difference."),
            (rotate(keys[old], shift, layout="half"), "you turn the wrong way: new minus old, not old minus new."),
            (rotate(keys[old], -np.full(len(old), length - first - last), layout="half"), "the first keys keep their positions; only the last ones move."),
            (rotate(keys[old], new - old, layout="interleaved"), "the keys are in halves, and you turn neighbouring channels."),
        ]
        for wrong, sentence in usual:
            if np.abs(got - wrong).max() < 1e-9:
                raise Mistake(f"{asked}: {sentence}")
        raise Mistake(f"{asked}: row {int((np.abs(got - right).max(1) > 1e-9).argmax())} is the first that is not the key at its new position.")
    return "Right: a key moves by the difference of its positions, wherever it came from."


def _padded(mend):
    rng = np.random.default_rng(1)
    for d in (8, 6, 24, 192):
        x, angle = rng.normal(size=d), 5 * frequencies(d)
        size = 1 << (d - 1).bit_length()
        row = np.concatenate([np.cos(angle), np.sin(angle), np.full(size - d, 7.0)])
        got = _array(mend(x.copy(), row.copy()), (d,), f"padded, for {d} channels,")
        want = rotate(x[None], np.array([5]), layout="half")[0]
        if np.abs(got - want).max() > 1e-9:
            if abs((got**2).sum() - (x**2).sum()) > 1e-6 * (x**2).sum():
                raise Mistake(f"padded: with {d} channels and a row of {size} numbers the length of x changes: what you take for sines are other numbers. Where do they begin?")
            raise Mistake(f"padded: with {d} channels the result is not x turned in halves.")


def _decode(mend):
    rng = np.random.default_rng(2)
    for batch, heads, length in [(1, 2, 5), (3, 2, 4), (1, 2, 1), (3, 2, 1), (4, 1, 1)]:
        x = rng.normal(size=(batch, heads, length, 8))
        want = rotate(x, 5 + np.arange(length), layout="half")
        got = _array(mend(x.copy(), 5), x.shape, f"decode, for {batch} texts and {length} new tokens,")
        if np.abs(got - want).max() > 1e-9:
            if batch > 1 and np.abs(got[0] - want[0]).max() < 1e-9:
                raise Mistake(f"decode: with {batch} texts and {length} new token{'s' if length > 1 else ''} only the first text is right. What happens to the others?")
            raise Mistake(f"decode: with {batch} texts and {length} new tokens the result is not the turn from position 5 on.")


def _mixed(mend):
    rng = np.random.default_rng(3)
    for width, share, sections in [(12, 1.0, (3, 2, 1)), (16, 0.5, (2, 1, 1)), (24, 0.25, (1, 1, 1)), (16, 0.75, (2, 2, 2))]:
        x, ids3 = rng.normal(size=(7, width)), rng.integers(0, 50, (3, 7))
        turned = 2 * sum(sections)
        axes = np.repeat(np.arange(3), sections)
        want = rotate(x, ids3, layout="half", axes=axes, width=turned)
        got = _array(mend(x.copy(), ids3.copy(), share, sections), x.shape, f"mixed, for a share of {share},")
        if np.abs(got - want).max() < 1e-9:
            continue
        if (got[:, turned:] != x[:, turned:]).any():
            raise Mistake(f"mixed: the first {turned} of {width} channels should turn, and the others be copied; yours change.")
        narrow = rotate(x[:, :turned], ids3, layout="half", axes=axes, frequencies=frequencies(width)[:turned // 2])
        if np.abs(got[:, :turned] - narrow).max() < 1e-9:
            raise Mistake("mixed: the frequencies are those of the whole width. Channels that turn have a ladder of their own, base^(-2k/width) with the width that turns.")
        raise Mistake(f"mixed: of the {turned} channels that turn some turn by another angle than their axis says.")


def museum(answer):
    """Three repairs, each against an independent reference."""
    rooms = {"padded": _padded, "decode": _decode, "mixed": _mixed}
    if not isinstance(answer, dict) or set(answer) != set(rooms):
        raise Mistake(f"Hand in a dictionary with the keys {', '.join(rooms)}.")
    for name, examine in rooms.items():
        if not callable(answer[name]):
            raise Mistake(f"{name} is {answer[name]!r}; hand in a function.")
        try:
            examine(answer[name])
        except (IndexError, ValueError, TypeError) as error:
            raise Mistake(f"{name} stops with {type(error).__name__}: {error}") from None
    return "All three turn as they should, for widths that are no power of two, many texts and a share."
