"""Scores, masks and the weighted sum: the reference that everything else is compared with.

Every function takes numpy arrays or torch tensors and returns the same kind, on the same
device.  Tensors are ordered ``(..., length, width)`` as in torch's
``scaled_dot_product_attention``; leading axes (batch, heads) broadcast.

Half-precision input is computed in float32 and rounded once, at the end.
"""

from __future__ import annotations

import math
import numbers

import array_api_compat as api

from poslib import _arrays as arrays

__all__ = ["attention", "causal_mask", "merge_heads", "padding_mask", "scores", "softmax", "split_heads"]


def scores(q, k, *, scale=None, bias=None):
    """Attention logits ``scale * q kᵀ + bias``.

    Parameters
    ----------
    q : array or tensor, shape (..., queries, width), any float dtype
    k : same kind and dtype, shape (..., keys, width)
    scale : float, optional
        Factor on the dot products; ``1/sqrt(width)`` unless given.  ``scale=1.0`` gives plain
        dot products.
    bias : same kind, optional
        Added after scaling; any float dtype; broadcastable to (..., queries, keys).

    Returns
    -------
    Same kind, shape (..., queries, keys), dtype of `q`

    Raises
    ------
    TypeError
        For a kind or dtype that is not allowed, or kinds and dtypes that are mixed.
    ValueError
        For shapes that do not fit, or a `scale` that is not a finite number.

    Notes
    -----
    Vaswani et al. 2017 (arXiv 1706.03762), equation 1 (without the softmax).

    Examples
    --------
    >>> import numpy as np
    >>> scores(np.array([[1.0, 2.0]]), np.eye(2)).round(3)
    array([[0.707, 1.414]])
    """
    xp = arrays.same_floats(q=q, k=k)
    return xp.astype(_scores(xp, q, k, scale, bias), q.dtype)


def softmax(logits, mask=None):
    """Weights over the last axis; keys hidden by `mask` get weight zero.

    A row without a visible key has no weights to give: it is all zeros, so that its output
    is zero too (torch's ``scaled_dot_product_attention`` does the same).

    Parameters
    ----------
    logits : array or tensor, shape (..., queries, keys), any float dtype
    mask : same kind, bool, optional
        True where a query may look; broadcastable to the shape of `logits`.

    Returns
    -------
    Same kind, shape and dtype as `logits`
        Each row sums to one, or is zero.

    Raises
    ------
    TypeError, ValueError
        As for `scores`; also for a mask that is not bool.

    Examples
    --------
    >>> import numpy as np
    >>> softmax(np.log(np.array([1.0, 3.0, 9.0])), np.array([True, True, False])).round(3)
    array([0.25, 0.75, 0.  ])
    """
    xp = arrays.same_floats(logits=logits)
    if logits.ndim < 1:
        raise ValueError("logits has no axis to normalise over; give shape (..., keys)")
    wide = xp.astype(logits, arrays.wide(xp, logits.dtype))
    return xp.astype(_softmax(xp, wide, mask), logits.dtype)


def attention(q, k, v, *, mask=None, scale=None, bias=None):
    """Softmax attention, with the weights it used.

    Parameters
    ----------
    q : array or tensor, shape (..., queries, width), any float dtype
    k : same kind and dtype, shape (..., keys, width)
    v : same kind and dtype, shape (..., keys, value width)
    mask : same kind, bool, optional
        True where a query may look (see `causal_mask`, `padding_mask`); combine with ``&``.
    scale : float, optional
        ``1/sqrt(width)`` unless given.
    bias : same kind, optional
        Added to the logits after scaling; broadcastable to (..., queries, keys).

    Returns
    -------
    output : same kind and dtype, shape (..., queries, value width)
    weights : same kind and dtype, shape (..., queries, keys)
        A query that sees no key has zero weights and zero output.  A hidden key has weight zero,
        but its value must be finite all the same: 0·NaN is NaN.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Notes
    -----
    Vaswani et al. 2017 (arXiv 1706.03762), equation 1.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.eye(2)
    >>> output, weights = attention(x, x, x, mask=causal_mask(2))
    >>> weights.round(3)
    array([[1.  , 0.  ],
           [0.33, 0.67]])
    """
    xp = arrays.same_floats(q=q, k=k, v=v)
    if v.ndim < 2 or v.shape[-2] != k.shape[-2]:
        raise ValueError(f"v has shape {tuple(v.shape)}, k {tuple(k.shape)}: both need one row per key")
    weights = _softmax(xp, _scores(xp, q, k, scale, bias), mask)
    arrays.broadcast("v", v.shape[:-2], "the weights", weights.shape[:-2])
    output = xp.matmul(weights, xp.astype(v, weights.dtype))
    return xp.astype(output, q.dtype), xp.astype(weights, q.dtype)


def causal_mask(queries, keys=None, *, like=None):
    """Which keys each query may see when none may look ahead.

    With more keys than queries the queries are the last ones, as when decoding with a cache.

    Parameters
    ----------
    queries : int, at least 1
    keys : int, optional
        At least `queries`; equal to it unless given.
    like : array or tensor, optional
        Decides kind and device of the result; numpy unless given.

    Returns
    -------
    bool, shape (queries, keys)
        True at (i, j) when key j is at or before query i.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Examples
    --------
    >>> causal_mask(2, 3)     # two queries that stand at the end of three keys
    array([[ True,  True, False],
           [ True,  True,  True]])
    """
    keys = queries if keys is None else keys
    arrays.whole("queries", queries, at_least=1)
    arrays.whole("keys", keys, at_least=queries, why="queries are the last of the keys")
    xp, device = arrays.namespace(like)
    i = xp.arange(keys - queries, keys, device=device)
    j = xp.arange(keys, device=device)
    return i[:, None] >= j[None, :]


def padding_mask(lengths, keys, *, side="right"):
    """Which keys hold a token and which are padding.

    Parameters
    ----------
    lengths : integer array or tensor, shape (batch,)
        Number of real tokens of each sequence, 0 to `keys`.
    keys : int, at least 1
        Padded length.
    side : {"right", "left"}
        Where the padding stands.

    Returns
    -------
    bool, same kind, shape (batch, 1, 1, keys)
        True where a token stands; broadcasts over heads and queries.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Examples
    --------
    >>> import numpy as np
    >>> padding_mask(np.array([2, 3]), 3, side="left")[:, 0, 0]
    array([[False,  True,  True],
           [ True,  True,  True]])
    """
    arrays.whole("keys", keys, at_least=1)
    if side not in ("right", "left"):
        raise ValueError(f"side is {side!r}; allowed are 'right' and 'left'")
    xp = arrays.namespace_of("lengths", lengths)
    if lengths.ndim != 1 or not xp.isdtype(lengths.dtype, "integral"):
        raise TypeError(f"lengths has dtype {lengths.dtype} and shape {tuple(lengths.shape)}; "
                        "allowed are integers of shape (batch,)")
    wrong = [n for n in lengths.tolist() if not 0 <= n <= keys]
    if wrong:
        raise ValueError(f"lengths holds {wrong[0]}; allowed are 0 to keys = {keys}")
    lengths = xp.astype(lengths, xp.int64)          # keys may not fit into a narrow dtype
    j = xp.arange(keys, device=api.device(lengths))
    real = j[None, :] < lengths[:, None] if side == "right" else j[None, :] >= keys - lengths[:, None]
    return real[:, None, None, :]


def split_heads(x, heads):
    """Cut the channels into heads; head h owns a run of them.

    Parameters
    ----------
    x : array or tensor, shape (..., length, width)
    heads : int, at least 1
        A divisor of the width.

    Returns
    -------
    Same kind and dtype, shape (..., heads, length, width / heads)

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(8).reshape(2, 4)
    >>> split_heads(x, 2).tolist()
    [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]
    """
    xp = arrays.namespace_of("x", x)
    arrays.whole("heads", heads, at_least=1)
    if x.ndim < 2 or x.shape[-1] % heads:
        raise ValueError(f"x has shape {tuple(x.shape)}: its width must be a multiple of heads = {heads}")
    parts = xp.reshape(x, (*x.shape[:-1], heads, x.shape[-1] // heads))
    return xp.moveaxis(parts, -2, -3)


def merge_heads(x):
    """Put the heads' channels side by side; undoes `split_heads`.

    Parameters
    ----------
    x : array or tensor, shape (..., heads, length, width)

    Returns
    -------
    Same kind and dtype, shape (..., length, heads * width)

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(8).reshape(2, 4)
    >>> merge_heads(split_heads(x, 2)).tolist()
    [[0, 1, 2, 3], [4, 5, 6, 7]]
    """
    xp = arrays.namespace_of("x", x)
    if x.ndim < 3:
        raise ValueError(f"x has shape {tuple(x.shape)}; allowed is (..., heads, length, width)")
    parts = xp.moveaxis(x, -3, -2)
    return xp.reshape(parts, (*parts.shape[:-2], parts.shape[-2] * parts.shape[-1]))


def _scores(xp, q, k, scale, bias):
    """Checked logits, in float32 or wider."""
    if q.ndim < 2 or k.ndim < 2 or q.shape[-1] != k.shape[-1] or q.shape[-1] == 0:
        raise ValueError(f"q has shape {tuple(q.shape)}, k {tuple(k.shape)}: "
                         "both need (..., length, width) with the same width, at least 1")
    scale = _scale(scale, q.shape[-1])
    arrays.broadcast("q", q.shape[:-2], "k", k.shape[:-2])
    wide = arrays.wide(xp, q.dtype)
    s = xp.matmul(xp.astype(q, wide), xp.matrix_transpose(xp.astype(k, wide))) * scale
    if bias is None:
        return s
    arrays.same_kind(q=q, bias=bias)
    arrays.floats(xp, bias=bias)
    arrays.fits("bias", bias.shape, s.shape)
    return s + xp.astype(bias, wide)


def _scale(scale, width):
    """Factor on dot products of vectors of `width` channels, as a Python float."""
    if scale is None:
        return 1 / math.sqrt(width)
    if isinstance(scale, bool) or not isinstance(scale, numbers.Real) or not math.isfinite(scale):
        raise ValueError(f"scale is {scale!r}; allowed is a finite number, or None for 1/sqrt(width)")
    return float(scale)


def _softmax(xp, s, mask):
    if mask is not None:
        arrays.same_kind(logits=s, mask=mask)
        if not xp.isdtype(mask.dtype, "bool"):
            raise TypeError(f"mask has dtype {mask.dtype}; allowed is bool, True where a query may look")
        arrays.fits("mask", mask.shape, s.shape)
        s = xp.where(mask, s, -math.inf)
    if s.shape[-1] == 0:
        return s
    top = xp.max(s, axis=-1, keepdims=True)
    top = xp.where(top == -math.inf, 0.0, top)          # a row without a visible key: exp(-inf) = 0
    e = xp.exp(s - top)
    total = xp.sum(e, axis=-1, keepdims=True)
    return e / xp.where(total == 0, 1.0, total)
