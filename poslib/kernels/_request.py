"""What a call of `poslib.kernels.attention` asks for: every argument checked, positions and settings brought into one form."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass

import torch

from poslib import _arrays as arrays, rotary
from poslib.kernels import rotary as kernel

ROTATE = {"none": "queries and keys as they are", "q": "queries; keys come turned", "qk": "queries and keys"}


@dataclass(frozen=True)
class Call:
    """A checked call.  Positions are tensors, or pairs of tables; None where nothing turns."""

    rotate: str
    positions: object
    key_positions: object
    layout: str | None
    width: int
    frequencies: object
    is_causal: bool
    offset: int
    window: int             # 0: none
    slopes: torch.Tensor | None
    scale: float
    attn_mask: torch.Tensor | None
    dropout_p: float
    precision: str


def checked(q, k, v, positions, key_positions, rotate, layout, width, base, frequencies, is_causal, offset, window, slopes, scale,
            attn_mask, dropout_p, precision):
    _check_vectors(q, k, v)
    queries, keys, head_width = q.shape[2], k.shape[2], q.shape[3]
    arrays.flag("is_causal", is_causal)
    if rotate not in ROTATE:
        allowed = ", ".join(f"{name!r} ({what})" for name, what in ROTATE.items())
        raise ValueError(f"rotate is {rotate!r}; allowed are {allowed}")
    if precision not in ("ieee", "tf32"):
        raise ValueError(f"precision is {precision!r}; allowed are 'ieee' and 'tf32'")
    if window is not None:
        arrays.whole("window", window, at_least=1)
    depends = [name for name, used in (("is_causal", is_causal), ("window", window is not None), ("slopes", slopes is not None)) if used]
    if offset is not None and (isinstance(offset, bool) or not hasattr(offset, "__index__")):
        raise TypeError(f"offset is {offset!r}; allowed is a whole number")
    if offset is None:
        if queries != keys and depends:
            raise ValueError(f"{depends[0]} is given for {queries} queries and {keys} keys without offset; allowed is offset=0 (query 0 stands "
                             f"at key 0, as torch's is_causal has it) or offset={keys - queries} (the last query at the last key, as with a cache)")
        offset = 0
    offset = operator.index(offset)
    if not -2**30 < offset < 2**30 or max(queries, keys) >= 2**30:
        raise ValueError(f"offset is {offset}, q has {queries} rows, k {keys}; allowed are less than 2**30")
    if scale is None:
        scale = head_width ** -0.5 if head_width else 1.0
    elif isinstance(scale, bool) or not isinstance(scale, (int, float)) or not math.isfinite(scale):
        raise ValueError(f"scale is {scale!r}; allowed is a finite number")
    if isinstance(dropout_p, bool) or not isinstance(dropout_p, (int, float)) or not 0 <= dropout_p < 1:
        raise ValueError(f"dropout_p is {dropout_p!r}; allowed is a number from 0 to below 1")
    _check_slopes(slopes, q)
    _check_mask(attn_mask, q, keys)
    if rotate == "none":
        for name, value in (("positions", positions), ("key_positions", key_positions), ("layout", layout), ("width", width),
                            ("frequencies", frequencies)):
            if value is not None:
                raise ValueError(f"{name} is given and rotate is 'none', which turns nothing; allowed are rotate='q' and 'qk'")
        width, of_queries, of_keys = head_width, None, None
    else:
        rotary._layout(layout)
        of_queries, of_keys = _positions(q, k, positions, key_positions, rotate, offset)
        given = [p for p in (of_queries, of_keys) if isinstance(p, tuple)]
        if given and width is None:
            width = 2 * given[0][0].shape[-1]
        width = rotary._turned_width("q", q.shape, head_width, width)
        if given and frequencies is not None:
            raise ValueError("frequencies are given, and positions as tables (cos, sin), which have theirs; allowed is one of the two")
        for cos, _ in given:
            if 2 * cos.shape[-1] != width:
                raise ValueError(f"cos has shape {tuple(cos.shape)}, and {width} channels turn; allowed are {width // 2} pairs")
        if not isinstance(of_queries, tuple) or of_keys is not None and not isinstance(of_keys, tuple):
            frequencies = rotary._given_or_of_base(arrays.namespace_of("q", q), frequencies, base, width, q, q)
    return Call(rotate, of_queries, of_keys, layout, width, frequencies, is_causal, offset, window or 0, slopes, float(scale),
                 attn_mask, float(dropout_p), precision)


def _check_vectors(q, k, v):
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name} is a {type(x).__name__}; allowed are torch tensors")
        if x.ndim != 4:
            raise ValueError(f"{name} has shape {tuple(x.shape)}; allowed is (batch, heads, length, width)")
    arrays.same_floats(q=q, k=k, v=v)
    arrays.same_device(q=q, k=k, v=v)
    if k.shape[0] != q.shape[0] or k.shape[3] != q.shape[3] or v.shape[:3] != k.shape[:3]:
        raise ValueError(f"q has shape {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}; allowed are one batch, one width for q and k, "
                         "and for v the heads and the length of k")
    if k.shape[1] < 1 or q.shape[1] % k.shape[1]:
        raise ValueError(f"q has {q.shape[1]} heads, k {k.shape[1]}; allowed is a whole number of query heads for each key head")


def _check_slopes(slopes, q):
    if slopes is None:
        return
    if not isinstance(slopes, torch.Tensor) or slopes.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"slopes is {getattr(slopes, 'dtype', type(slopes).__name__)}; allowed is a tensor of float32 or float64")
    arrays.same_device(q=q, slopes=slopes)
    if tuple(slopes.shape) != (q.shape[1],):
        raise ValueError(f"slopes has shape {tuple(slopes.shape)}; allowed is one for each head of q, ({q.shape[1]},)")
    if slopes.requires_grad:
        raise ValueError("slopes requires gradients, which are not formed here; allowed is slopes.detach(), or attn_mask with the bias")


def _check_mask(mask, q, keys):
    if mask is None:
        return
    if not isinstance(mask, torch.Tensor) or not (mask.dtype == torch.bool or mask.dtype.is_floating_point):
        raise TypeError(f"attn_mask is {getattr(mask, 'dtype', type(mask).__name__)}; allowed is a bool or float tensor")
    arrays.same_device(q=q, attn_mask=mask)
    arrays.fits("attn_mask", mask.shape, (*q.shape[:3], keys))


def _positions(q, k, positions, key_positions, rotate, offset):
    """Positions of queries and of keys, each a tensor or a pair of tables; None for keys that come turned."""
    if rotate == "q" and key_positions is not None:
        raise ValueError("key_positions are given and rotate is 'q', with which keys come turned; allowed is rotate='qk'")
    queries, keys = q.shape[2], k.shape[2]
    if positions is None:
        positions = offset
    if rotate == "qk" and key_positions is None:
        if _is_int(positions):
            key_positions = operator.index(positions) - offset
        elif queries == keys and offset == 0:
            key_positions = positions
        else:
            raise ValueError(f"positions are given without key_positions, for {queries} queries and {keys} keys with offset {offset}; "
                             "allowed are both, or an int")
    return (_of_rows("positions", positions, q, False), None if rotate == "q" else _of_rows("key_positions", key_positions, k, True))


def _is_int(x):
    return not isinstance(x, (bool, torch.Tensor)) and hasattr(x, "__index__")


def _of_rows(name, given, x, narrow):
    if _is_int(given):
        first = operator.index(given)
        return torch.arange(first, first + x.shape[2], device=x.device)
    if isinstance(given, kernel.Angles):
        if given.cos is None:
            raise ValueError(f"{name} are Angles made by phases; allowed are those made by tables")
        given = given.cos, given.sin
    if isinstance(given, tuple) and len(given) == 2:
        arrays.same_kind(q=x, cos=given[0], sin=given[1])
        arrays.same_device(q=x, cos=given[0], sin=given[1])
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        allowed = {wide, torch.bfloat16, torch.float16} if narrow and wide == torch.float32 else {wide}
        for table, part in zip(("cos", "sin"), given):
            if part.dtype not in allowed or part.dtype != given[0].dtype:
                raise TypeError(f"{table} of {name} has dtype {part.dtype}; allowed is {' or '.join(map(str, allowed))}, for both")
        rotary._check_tables(x, *given)
        return given
    if not isinstance(given, torch.Tensor):
        raise TypeError(f"{name} is a {type(given).__name__}; allowed are an int, integers in a tensor, Angles, and (cos, sin)")
    arrays.integers(arrays.namespace_of(name, given), **{name: given})
    arrays.same_device(q=x, **{name: given})
    rotary._check_rows(x, given, name=name)
    return given
