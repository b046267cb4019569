"""Position ids: which place in its own text each token holds.

Every function takes numpy arrays or torch tensors and returns the same kind, on the same device.
Positions are int64 and count from 0 (or from the offset given); they are never floats, whose
narrow kinds merge neighbours (bfloat16 from 256 on).
"""

from __future__ import annotations

import math
import operator

import array_api_compat as api

from poslib import _arrays as arrays

__all__ = ["consecutive", "from_cu_seqlens", "from_lengths", "from_mask", "grid", "lags", "mrope"]


def consecutive(length, *, offsets=None, like=None):
    """Positions 0, 1, …, length - 1, moved by an offset for each row.

    Parameters
    ----------
    length : int, at least 0
    offsets : integer array or tensor, shape (...), optional
        Position of the first token of each row, any sign: when decoding, the number of tokens that
        the cache of the row holds.
    like : array or tensor, optional
        Decides kind and device of the result when there are no offsets; numpy unless given.

    Returns
    -------
    int64, shape (length,), or (..., length) with offsets

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Examples
    --------
    >>> import numpy as np
    >>> consecutive(3)
    array([0, 1, 2])
    >>> consecutive(3, offsets=np.array([5, -1]))
    array([[ 5,  6,  7],
           [-1,  0,  1]])
    """
    arrays.whole("length", length, at_least=0)
    if offsets is None:
        xp, device = arrays.namespace(like)
        return xp.arange(length, dtype=xp.int64, device=device)
    xp = arrays.namespace_of("offsets", offsets)
    arrays.integers(xp, offsets=offsets)
    if like is not None:
        arrays.same_kind(like=like, offsets=offsets)
        arrays.same_device(like=like, offsets=offsets)
    steps = xp.arange(length, dtype=xp.int64, device=api.device(offsets))
    return xp.astype(offsets, xp.int64)[..., None] + steps


def from_mask(mask, *, offsets=None):
    """Positions in padded rows: the number of real tokens that stand before.

    Parameters
    ----------
    mask : bool array or tensor, shape (..., length)
        True where a token stands, wherever the padding is: left, right or between.
    offsets : integer array or tensor, shape (...), optional
        Position of the first real token of each row; 0 unless given.

    Returns
    -------
    int64, same kind and shape as `mask`
        The rule holds for padded places too: padding on the left gets the position of the first
        token, padding elsewhere the position that the next token would have.  Without offsets every
        value lies in 0 … length - 1, so that any table with `length` rows can be indexed.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Examples
    --------
    >>> import numpy as np
    >>> from_mask(np.array([[False, True, True], [True, True, False]]))
    array([[0, 0, 1],
           [0, 1, 2]])
    """
    xp = arrays.namespace_of("mask", mask)
    if not xp.isdtype(mask.dtype, "bool"):
        raise TypeError(f"mask has dtype {mask.dtype}; allowed is bool, True where a token stands (write mask == 1)")
    if mask.ndim < 1:
        raise ValueError("mask has no axis of places; give shape (..., length)")
    real = xp.astype(mask, xp.int64)
    before = xp.cumulative_sum(real, axis=-1) - real
    if offsets is None:
        return before
    arrays.same_kind(mask=mask, offsets=offsets)
    arrays.integers(xp, offsets=offsets)
    arrays.same_device(mask=mask, offsets=offsets)
    if tuple(offsets.shape) != tuple(mask.shape[:-1]):
        raise ValueError(f"offsets has shape {tuple(offsets.shape)}; allowed is one for each row of mask, "
                         f"{tuple(mask.shape[:-1])}")
    return before + xp.astype(offsets, xp.int64)[..., None]


def from_lengths(lengths, *, offsets=None):
    """Positions in texts packed one after the other: each text starts anew.

    Parameters
    ----------
    lengths : integer array or tensor, shape (texts,)
        Number of tokens of each text, 0 or more.
    offsets : integer array or tensor, shape (texts,), optional
        Position of the first token of each text; 0 unless given.

    Returns
    -------
    int64, same kind, shape (sum of lengths,)

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Examples
    --------
    >>> import numpy as np
    >>> from_lengths(np.array([2, 3]))
    array([0, 1, 0, 1, 2])
    """
    xp = arrays.namespace_of("lengths", lengths)
    arrays.integers(xp, lengths=lengths)
    if lengths.ndim != 1:
        raise ValueError(f"lengths has shape {tuple(lengths.shape)}; allowed is (texts,)")
    counts = lengths.tolist()
    if any(n < 0 for n in counts):
        raise ValueError(f"lengths holds {min(counts)}; allowed are 0 and more")
    starts = [0] * len(counts)
    if offsets is not None:
        arrays.same_kind(lengths=lengths, offsets=offsets)
        arrays.integers(xp, offsets=offsets)
        if tuple(offsets.shape) != tuple(lengths.shape):
            raise ValueError(f"offsets has shape {tuple(offsets.shape)}; allowed is one for each text, "
                             f"{tuple(lengths.shape)}")
        starts = offsets.tolist()
    device = api.device(lengths)
    texts = [xp.arange(first, first + n, dtype=xp.int64, device=device) for first, n in zip(starts, counts)]
    return xp.concat(texts) if texts else xp.zeros((0,), dtype=xp.int64, device=device)


def from_cu_seqlens(cu_seqlens, *, offsets=None):
    """Positions in packed texts, from where each text starts and ends (`from_lengths` otherwise).

    Parameters
    ----------
    cu_seqlens : integer array or tensor, shape (texts + 1,)
        0, then the number of tokens up to the end of each text: never falling.
    offsets : integer array or tensor, shape (texts,), optional
        Position of the first token of each text; 0 unless given.

    Returns
    -------
    int64, same kind, shape (last of cu_seqlens,)

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Examples
    --------
    >>> import numpy as np
    >>> from_cu_seqlens(np.array([0, 2, 5]))
    array([0, 1, 0, 1, 2])
    """
    xp = arrays.namespace_of("cu_seqlens", cu_seqlens)
    arrays.integers(xp, cu_seqlens=cu_seqlens)
    if cu_seqlens.ndim != 1 or cu_seqlens.shape[0] < 1:
        raise ValueError(f"cu_seqlens has shape {tuple(cu_seqlens.shape)}; allowed is (texts + 1,)")
    ends = cu_seqlens.tolist()
    if ends[0] != 0:
        raise ValueError(f"cu_seqlens starts with {ends[0]}; allowed is 0")
    for a, b in zip(ends, ends[1:]):
        if b < a:
            raise ValueError(f"cu_seqlens falls from {a} to {b}; allowed are numbers that never fall")
    wide = xp.astype(cu_seqlens, xp.int64)
    return from_lengths(wide[1:] - wide[:-1], offsets=offsets)


def grid(*sizes, offsets=None, like=None):
    """Ids of the cells of a grid, the last axis fastest: row and column of a picture, time too of a film.

    Parameters
    ----------
    *sizes : int, at least 0
        Number of cells along each axis; at least one axis.
    offsets : sequence of int, one for each axis, optional
        Id of the first cell; 0 unless given.
    like : array or tensor, optional
        Decides kind and device of the result; numpy unless given.

    Returns
    -------
    int64, shape (axes, product of sizes)
        For ``rotary.rotate(..., axes=...)``; see `poslib.multiaxis`.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Examples
    --------
    >>> grid(2, 3)
    array([[0, 0, 0, 1, 1, 1],
           [0, 1, 2, 0, 1, 2]])
    """
    sizes = _sizes("sizes", sizes)
    firsts = [0] * len(sizes) if offsets is None else _wholes("offsets", offsets)
    if len(firsts) != len(sizes):
        raise ValueError(f"offsets is {tuple(firsts)}, sizes {tuple(sizes)}: allowed is one offset for each axis")
    xp, device = arrays.namespace(like)
    cells = xp.arange(math.prod(sizes), dtype=xp.int64, device=device)
    ids, inner = [], math.prod(sizes)
    for size, first in zip(sizes, firsts):
        inner //= max(size, 1)
        ids.append(cells // max(inner, 1) % max(size, 1) + first)
    return xp.stack(ids)


def mrope(parts, *, start=0, like=None):
    """Ids of text mixed with pictures and films, for M-RoPE: (time, row, column) of each token.

    A text counts on all three axes alike.  A picture of t × rows × columns tokens (t is 1 for a still one) counts from
    where the text stopped, each axis for itself.  What follows begins after the largest id so far.

    Parameters
    ----------
    parts : sequence of int, and of (t, rows, columns)
        Number of tokens of a text, or the grid of a picture in tokens, after merging of patches.
    start : int
        First id.
    like : array or tensor, optional
        Decides kind and device of the result; numpy unless given.

    Returns
    -------
    int64, shape (3, tokens)
        The next token stands at ``ids.max() + 1`` on all axes (at `start` if there is none): its position is not
        the number of tokens before.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Notes
    -----
    Wang et al. 2024, *Qwen2-VL* (arXiv 2409.12191), section 2.1.  transformers 5.24 goes on after the rows and columns
    alone, so that its ids repeat behind a film of more frames than rows and columns; the paper, and this
    function, count the frames too.

    Examples
    --------
    >>> mrope([2, (1, 2, 2), 1])
    array([[0, 1, 2, 2, 2, 2, 4],
           [0, 1, 2, 2, 3, 3, 4],
           [0, 1, 2, 3, 2, 3, 4]])
    """
    if isinstance(parts, (str, bytes)) or not hasattr(parts, "__iter__"):
        raise TypeError(f"parts is {parts!r}; allowed are whole numbers and (t, rows, columns)")
    (start,) = _wholes("start", (start,))
    xp, device = arrays.namespace(like)
    ids, following = [xp.zeros((3, 0), dtype=xp.int64, device=device)], start
    for part in parts:
        if hasattr(part, "__iter__"):
            sizes = _sizes("parts", tuple(part))
            if len(sizes) != 3:
                raise ValueError(f"parts holds {tuple(sizes)}; allowed are whole numbers and (t, rows, columns)")
            ids.append(grid(*sizes, offsets=(following,) * 3, like=like))
            following += max(sizes) if math.prod(sizes) else 0
        else:
            (tokens,) = _sizes("parts", (part,))
            text = xp.arange(following, following + tokens, dtype=xp.int64, device=device)
            ids.append(xp.stack([text] * 3))
            following += tokens
    return xp.concat(ids, axis=1)


def lags(query_positions, key_positions):
    """How far each query stands behind each key: τ = i - j, positive where the key came first.

    Parameters
    ----------
    query_positions : integer array or tensor, shape (..., queries)
    key_positions : same kind, shape (..., keys)
        Leading axes broadcast.

    Returns
    -------
    int64, same kind, shape (..., queries, keys)

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Examples
    --------
    >>> import numpy as np
    >>> lags(np.array([3, 4]), np.arange(5))
    array([[ 3,  2,  1,  0, -1],
           [ 4,  3,  2,  1,  0]])
    """
    named = {"query_positions": query_positions, "key_positions": key_positions}
    xp = arrays.same_kind(**named)
    arrays.integers(xp, **named)
    arrays.same_device(**named)
    for name, x in named.items():
        if x.ndim < 1:
            raise ValueError(f"{name} has no axis; give shape (..., length)")
    arrays.broadcast("query_positions", query_positions.shape[:-1], "key_positions", key_positions.shape[:-1])
    return xp.astype(query_positions, xp.int64)[..., :, None] - xp.astype(key_positions, xp.int64)[..., None, :]


def _sizes(name, values):
    """Python ints of at least 0, at least one of them."""
    if not values:
        raise ValueError(f"{name} is empty; allowed is at least one whole number")
    for value in values:
        arrays.whole(name, value, at_least=0)
    return [operator.index(value) for value in values]


def _wholes(name, values):
    """Python ints of any sign."""
    for value in values:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TypeError(f"{name} holds {value!r}; allowed are whole numbers")
    return [operator.index(value) for value in values]
