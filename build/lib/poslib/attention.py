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
    Same kind, shape (..., queries, keys), dtype of `q`.

    Raises
    ------
    TypeError
        For a kind or dtype that is not allowed, or kinds and dtypes that are mixed.
    ValueError
        For shapes that do not fit, or a `scale` that is not a finite number.

    Notes
    -----
    Vaswani et al. 2017, equation 1 (without the softmax).
    """
    xp = _same_floats(q=q, k=k)
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
    Same kind, shape and dtype as `logits`; each row sums to one, or is zero.

    Raises
    ------
    TypeError, ValueError
        As for `scores`; also for a mask that is not bool.
    """
    xp = _same_floats(logits=logits)
    if logits.ndim < 1:
        raise ValueError("logits has no axis to normalise over; give shape (..., keys)")
    wide = xp.astype(logits, _wide(xp, logits.dtype))
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
    Vaswani et al. 2017, equation 1.
    """
    xp = _same_floats(q=q, k=k, v=v)
    if v.ndim < 2 or v.shape[-2] != k.shape[-2]:
        raise ValueError(f"v has shape {tuple(v.shape)}, k {tuple(k.shape)}: both need one row per key")
    weights = _softmax(xp, _scores(xp, q, k, scale, bias), mask)
    _broadcast("v", v.shape[:-2], "the weights", weights.shape[:-2])
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
    bool, shape (queries, keys) : True at (i, j) when key j is at or before query i.
    """
    keys = queries if keys is None else keys
    _whole("queries", queries, at_least=1)
    _whole("keys", keys, at_least=queries, why="queries are the last of the keys")
    xp, device = _namespace(like)
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
    bool, same kind, shape (batch, 1, 1, keys) : True where a token stands; broadcasts over heads
    and queries.
    """
    _whole("keys", keys, at_least=1)
    if side not in ("right", "left"):
        raise ValueError(f"side is {side!r}; allowed are 'right' and 'left'")
    xp = _namespace_of("lengths", lengths)
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
    """(..., length, width) to (..., heads, length, width / heads); head h owns a run of channels."""
    xp = _namespace_of("x", x)
    _whole("heads", heads, at_least=1)
    if x.ndim < 2 or x.shape[-1] % heads:
        raise ValueError(f"x has shape {tuple(x.shape)}: its width must be a multiple of heads = {heads}")
    parts = xp.reshape(x, (*x.shape[:-1], heads, x.shape[-1] // heads))
    return xp.moveaxis(parts, -2, -3)


def merge_heads(x):
    """(..., heads, length, width) to (..., length, heads * width); undoes `split_heads`."""
    xp = _namespace_of("x", x)
    if x.ndim < 3:
        raise ValueError(f"x has shape {tuple(x.shape)}; allowed is (..., heads, length, width)")
    parts = xp.moveaxis(x, -3, -2)
    return xp.reshape(parts, (*parts.shape[:-2], parts.shape[-2] * parts.shape[-1]))


def _scores(xp, q, k, scale, bias):
    """Checked logits, in float32 or wider."""
    if q.ndim < 2 or k.ndim < 2 or q.shape[-1] != k.shape[-1] or q.shape[-1] == 0:
        raise ValueError(f"q has shape {tuple(q.shape)}, k {tuple(k.shape)}: "
                         "both need (..., length, width) with the same width, at least 1")
    if scale is None:
        scale = 1 / math.sqrt(q.shape[-1])
    elif isinstance(scale, bool) or not isinstance(scale, numbers.Real) or not math.isfinite(scale):
        raise ValueError(f"scale is {scale!r}; allowed is a finite number, or None for 1/sqrt(width)")
    scale = float(scale)
    _broadcast("q", q.shape[:-2], "k", k.shape[:-2])
    wide = _wide(xp, q.dtype)
    s = xp.matmul(xp.astype(q, wide), xp.matrix_transpose(xp.astype(k, wide))) * scale
    if bias is None:
        return s
    _same_kind(q=q, bias=bias)
    _floats(xp, bias=bias)
    _fits("bias", bias.shape, s.shape)
    return s + xp.astype(bias, wide)


def _softmax(xp, s, mask):
    if mask is not None:
        _same_kind(logits=s, mask=mask)
        if not xp.isdtype(mask.dtype, "bool"):
            raise TypeError(f"mask has dtype {mask.dtype}; allowed is bool, True where a query may look")
        _fits("mask", mask.shape, s.shape)
        s = xp.where(mask, s, -math.inf)
    if s.shape[-1] == 0:
        return s
    top = xp.max(s, axis=-1, keepdims=True)
    top = xp.where(top == -math.inf, 0.0, top)          # a row without a visible key: exp(-inf) = 0
    e = xp.exp(s - top)
    total = xp.sum(e, axis=-1, keepdims=True)
    return e / xp.where(total == 0, 1.0, total)


def _wide(xp, dtype):
    """The dtype to compute in: float64 stays, everything narrower becomes float32."""
    return xp.float64 if dtype == xp.float64 else xp.float32


def _namespace(like):
    if like is None:
        import numpy as np
        return api.array_namespace(np.empty(0)), None
    return _namespace_of("like", like), api.device(like)


def _namespace_of(name, x):
    if not (api.is_numpy_array(x) or api.is_torch_array(x)):
        raise TypeError(f"{name} is a {type(x).__name__}; allowed are numpy arrays and torch tensors")
    return api.array_namespace(x)


def _same_kind(**arrays):
    """The common namespace of numpy arrays or of torch tensors, or an error that says what differs."""
    (first, a), *rest = arrays.items()
    xp = _namespace_of(first, a)
    for name, x in rest:
        if _namespace_of(name, x) is not xp:
            raise TypeError(f"{name} is a {type(x).__name__}, {first} a {type(a).__name__}: "
                            "give numpy arrays or torch tensors, not both")
    return xp


def _floats(xp, **arrays):
    for name, x in arrays.items():
        if not xp.isdtype(x.dtype, "real floating") or xp.finfo(x.dtype).bits > 64:
            raise TypeError(f"{name} has dtype {x.dtype}; allowed are float dtypes of up to 64 bits")


def _same_floats(**arrays):
    """The common namespace of arrays of one kind and one float dtype."""
    xp = _same_kind(**arrays)
    _floats(xp, **arrays)
    (first, a), *rest = arrays.items()
    for name, x in rest:
        if x.dtype != a.dtype:
            raise TypeError(f"{name} has dtype {x.dtype}, {first} {a.dtype}: they must be the same")
    return xp


def _broadcast(a, a_shape, b, b_shape):
    for x, y in zip(reversed(a_shape), reversed(b_shape)):
        if x != y and 1 not in (x, y):
            raise ValueError(f"leading axes {tuple(a_shape)} of {a} and {tuple(b_shape)} of {b} do not broadcast")


def _fits(name, shape, target):
    """`shape` must broadcast to `target` without enlarging it."""
    padded = (1,) * (len(target) - len(shape)) + tuple(shape)
    if len(shape) > len(target) or any(s not in (1, t) for s, t in zip(padded, target)):
        raise ValueError(f"{name} has shape {tuple(shape)}; allowed is what broadcasts to {tuple(target)}")


def _whole(name, value, *, at_least, why=""):
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} is {value!r}; allowed is a whole number")
    if value < at_least:
        raise ValueError(f"{name} is {value}; allowed is at least {at_least}" + (f" ({why})" if why else ""))
