"""Checkers of chapter 12.  The answers launch kernels: on a GPU where there is one, else under Triton's interpreter."""

from __future__ import annotations

import numpy as np

from poslib.attention import attention
from poslib.rotary import angles, frequencies
from poslib.teach.exercises import Mistake

__all__ = ["attend", "in_place", "turn_partly", "window_turns"]
BEHIND = 40                                             # rows of memory behind the end of what is given, full of NaN


def window_turns(answer):
    """Rotations of each key in the loop of a kernel with a sliding window."""
    for L, BM, BN, W in [(64, 16, 16, 16), (64, 16, 16, 1), (100, 32, 16, 20), (100, 16, 32, 7), (50, 64, 16, 500), (130, 32, 64, 33)]:
        i, j = np.arange(L)[:, None], np.arange(L)[None, :]
        sees = (j <= i) & (j > i - W)

        def met(sees, BM=BM, BN=BN, L=L):
            tiles = np.add.reduceat(np.add.reduceat(sees, np.arange(0, L, BM), axis=0), np.arange(0, L, BN), axis=1) > 0
            return tiles.sum(0)[np.arange(L) // BN]
        right = met(sees)
        got = np.asarray(answer(L, BM, BN, W))
        asked = f"With L = {L}, BM = {BM}, BN = {BN}, W = {W}"
        if got.shape != (L,) or got.dtype.kind not in "iuf":
            raise Mistake(f"{asked} your function gave an array of shape {got.shape}; asked for is a number for each of the {L} keys.")
        if (got == right).all():
            continue
        T = -(-L // BM)
        usual = [
            (T - np.arange(L) // BN * BN // BM, "that is the count without a window. Tiles that lie wholly before the window are not visited."),
            (sees.sum(0), "you count the queries that see the key. It is turned once for a tile of queries."),
            (np.array([len({q // BM for q in np.flatnonzero(sees[:, key])}) for key in range(L)]),
             "you count the tiles of queries that see the key itself. A tile of keys is loaded and turned whole, if any of its keys is seen."),
            (np.full(L, T), "you count every tile of queries, as without a mask."),
            *((met(seen), "you count visits to keys after the query too. A query sees the keys i - W < j <= i.") for seen in (j > i - W, abs(i - j) < W)),
        ]
        for wrong, sentence in usual:
            if (got == wrong).all():
                raise Mistake(f"{asked}: {sentence}")
        key = int(np.argmax(got != right))
        raise Mistake(f"{asked}: key {key} is turned {right[key]} times, and you say {got[key]}. Which query tiles have a query that sees some key of its tile?")
    return "Right: with a window the number does not grow with the length."


def _device():
    from poslib.kernels import _runtime
    return "cpu" if _runtime.mode() == "interpreted" else "cuda"


def _case(length, width, turned):
    """x and tables of `turned` channels, NaN behind the end of each."""
    import torch
    rng = np.random.default_rng(length)
    theta = angles(np.arange(length), frequencies(turned))
    padded = []
    for values in (rng.normal(size=(length, width)), np.cos(theta), np.sin(theta)):
        memory = torch.full((length + BEHIND, values.shape[1]), float("nan"), device=_device())
        memory[:length] = torch.tensor(values, dtype=torch.float32)
        padded.append(memory[:length])
    return *padded, theta


def _behind(y):
    """What lies behind the end of y in its memory, where that has room for BEHIND rows more; else nothing."""
    room = y.untyped_storage().nbytes() // y.element_size() - y.storage_offset()
    if not y.is_contiguous() or room < (len(y) + BEHIND) * y.shape[1]:
        return np.empty((0, y.shape[1]))
    return y.as_strided((BEHIND, y.shape[1]), (y.shape[1], 1), y.storage_offset() + y.numel()).double().cpu().numpy()


def _numbers(got, like, who):
    """The result as float64; complaints about kind and shape."""
    import torch
    if not torch.is_tensor(got):
        raise Mistake(f"{who} gave {type(got).__name__}; asked for is a tensor.")
    if tuple(got.shape) != tuple(like.shape):
        raise Mistake(f"{who} gave a tensor of shape {tuple(got.shape)}; asked for is {tuple(like.shape)}.")
    return got.detach().double().cpu().numpy()


def _turned(x, theta, apart):
    """x with the pairs (k, k + apart) turned, in float64."""
    y, n = x.copy(), theta.shape[1]
    a, b = x[:, :n], x[:, apart:apart + n]
    y[:, :n], y[:, apart:apart + n] = a * np.cos(theta) - b * np.sin(theta), b * np.cos(theta) + a * np.sin(theta)
    return y


def _same(y, wanted):
    """Whether y is `wanted`, NaN where that is NaN; not if nearly all of it is NaN."""
    there = ~np.isnan(wanted)
    return there.mean() > 0.2 and bool((np.isnan(y) == ~there).all()) and np.abs(y - wanted)[there].max() < 1e-5


def turn_partly(answer):
    """A partial rotation, the rest copied."""
    for length, width, turned in [(32, 64, 32), (45, 64, 32), (5, 48, 16)]:
        x, cos, sin, theta = _case(length, width, turned)
        before = x.clone()
        got = answer(x, cos, sin)
        y, given = _numbers(got, x, "turn_partly"), before.double().cpu().numpy()
        right, asked = _turned(given, theta, turned // 2), f"With {length} rows of {width} channels, of which {turned} turn"
        if not bool((x == before).all()):
            raise Mistake("The input was changed; turn_partly writes to y.")
        if np.isnan(y).all():
            raise Mistake("Nothing was stored: all of y is still NaN.")
        if np.isnan(y[:, turned:]).all() and not np.isnan(y[:, :turned]).any():
            raise Mistake(f"{asked}: the other {width - turned} are still NaN. Out of place they must be copied.")
        behind = _behind(got)
        if not np.isnan(behind).all():
            raise Mistake(f"{asked}, something was stored behind the end of y, in row {length + int((~np.isnan(behind)).any(1).argmax())}. Which of your stores has no mask for the rows?")
        if not np.isnan(y).any() and np.abs(y - right).max() < 1e-5:
            continue
        half = turned // 2
        pairs, flat = given[:, :turned].reshape(length, half, 2), np.concatenate([theta.ravel(), np.full(length * width, np.nan)])
        neighbours = np.stack([pairs[..., 0] * np.cos(theta) - pairs[..., 1] * np.sin(theta), pairs[..., 1] * np.cos(theta) + pairs[..., 0] * np.sin(theta)], -1)
        wide = flat[np.arange(length)[:, None] * (width // 2) + np.arange(half)]      # rows of the tables, taken to be as wide as for all of x
        if _same(y[:, :turned], neighbours.reshape(length, turned)):
            raise Mistake(f"{asked}: you pair neighbours, channel 2k with 2k + 1. Here the halves of the part that turns go together: k with k + {half}.")
        if _same(y[:, :half], _turned(given, wide, half)[:, :half]):
            raise Mistake(f"{asked}: your rows of the tables are {width // 2} numbers apart. The tables have {half} columns, whatever the width of x.")
        if half != width // 2 and _same(y[:, :half], _turned(given, theta, width // 2)[:, :half]):
            raise Mistake(f"{asked}: you pair channel k with k + {width // 2}. The halves are those of the part that turns: k + {turned // 2}.")
        if np.isnan(y).any():
            row, channel = np.argwhere(np.isnan(y))[0]
            raise Mistake(f"{asked}: row {row} has NaN in channel {channel}. Was it not stored, or was something loaded from behind the end of x or of a table?")
        if np.abs(y - _turned(given, -theta, turned // 2)).max() < 1e-5:
            raise Mistake(f"{asked}: the turn goes the wrong way. The first channel of a pair becomes a cos - b sin.")
        if np.abs(y[:, :turned] - right[:, :turned]).max() < 1e-5:
            raise Mistake(f"{asked}: the first {turned} channels are right, the others are not copies of x.")
        raise Mistake(f"{asked}: the first wrong row is {int((np.abs(y - right).max(1) > 1e-5).argmax())}. Tables have {turned // 2} columns, rows of x have {width}.")
    return "Right: turned in front, copied behind, and nothing else touched."


def in_place(answer):
    """A rotation in its own memory."""
    for length, width in [(32, 32), (50, 64)]:
        x, cos, sin, theta = _case(length, width, width)
        given, address = x.double().cpu().numpy(), x.data_ptr()
        got = answer(x, cos, sin)
        y = _numbers(got, x, "in_place")
        right, half = _turned(given, theta, width // 2), width // 2
        if got.data_ptr() != address or not np.array_equal(_numbers(x, x, "x"), y):
            raise Mistake("The result is in other memory than x; asked for is a turn in place, which returns x itself.")
        if np.abs(y - right).max() < 1e-5:
            continue
        first = np.abs(y[:, :half] - right[:, :half]).max() < 1e-5
        second = np.abs(y[:, half:] - right[:, half:]).max() < 1e-5
        if first != second:
            raise Mistake(f"The {'first' if first else 'second'} halves are right and the {'second' if first else 'first'} are not: "
                          "their program has loaded what another one had already overwritten.")
        if np.array_equal(y, given):
            raise Mistake("x is unchanged. Is something stored to it?")
        if np.abs(y - _turned(given, 2 * theta, half)).max() < 1e-5:
            raise Mistake("Every pair is turned twice: two programs still do it, one after the other. How many programs does a block of rows need now?")
        raise Mistake(f"With {length} rows of width {width}, row {int((np.abs(y - right).max(1) > 1e-5).argmax())} is the first that is wrong.")
    return "Right, and in the memory of x. Where each pair belongs to one program no order can harm it; a copy of x made first is safe too, and costs its bytes."


def attend(answer):
    """Attention at lengths that are no multiple of the block."""
    import torch
    for length, low in [(n, False) for n in (16, 48, 1, 7, 17, 40)] + [(17, True)]:
        rng = np.random.default_rng(length)
        memory = torch.full((3, length + BEHIND, 32), float("nan"), device=_device())
        memory[:, :length] = torch.tensor(rng.normal(size=(3, length, 32)), dtype=torch.float32)
        if low:                                         # scores of -200, and a little more or less
            memory[:2, :length, 0] = torch.tensor([[-200.0], [32**0.5]], device=_device())
            memory[0, :length, 1:] *= 0.3
        q, k, v = (m[:length] for m in memory)
        y = _numbers(answer(q, k, v), q, "attend")
        wide = [x.double().cpu().numpy() for x in (q, k, v)]
        right = attention(*wide)[0]
        if low:
            if not np.abs(y - right).max() < 1e-3:      # NaN is no answer either
                raise Mistake("With 17 keys and scores near -200 it fails: the absent keys set the maximum, or have a weight. "
                              "Their score must be lower than any that can occur, minus infinity, before the maximum is taken.")
            continue
        if np.isnan(y).any():
            raise Mistake(f"With {length} keys the output has NaN in row {int(np.isnan(y).any(1).argmax())}. Does something come from behind the end, or is -inf taken from -inf?")
        if np.abs(y - right).max() < 1e-4:
            continue
        more = -length % 16
        absent = attention(wide[0], *(np.vstack([x, np.zeros((more, 32))]) for x in wide[1:]))[0]
        if np.abs(y - absent).max() < 1e-4:
            raise Mistake(f"With {length} keys the {more} absent ones of the last block take part: loaded as zeros they have the score 0, and so a weight.")
        raise Mistake(f"With {length} keys the output is off by {np.abs(y - right).max():.3g}.")
    return "Right at every length: absent keys have the score minus infinity."
