"""Position ids: which place in its own text each token holds.

Every function takes numpy arrays or torch tensors and returns the same kind, on the same device.
Positions are int64 and count from 0 (or from the offset given); they are never floats, whose
narrow kinds merge neighbours (bfloat16 from 256 on).
"""

from __future__ import annotations

import array_api_compat as api

from poslib import _arrays as arrays

__all__ = ["consecutive", "from_cu_seqlens", "from_lengths", "from_mask", "lags"]


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
