"""Attention with the rotation inside: scaled dot products, softmax and sum in one kernel, queries and keys turned in registers.

`attention` stands where ``poslib.rotary.rotate`` and torch's ``scaled_dot_product_attention`` would, forward and backward.
What its kernels do not cover goes to those two, and `plan` says so and why.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from poslib import _arrays as arrays, rotary
from poslib.kernels import _runtime, configs, rotary as kernel
from poslib.kernels._backward import key_gradient_kernel, query_gradient_kernel
from poslib.kernels._common import MODE, triton
from poslib.kernels._decode import combine_kernel, decode_kernel
from poslib.kernels._forward import forward_kernel
from poslib.kernels._request import checked

__all__ = ["Plan", "attention", "plan"]

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
DECODE_ROWS = 64            # queries times heads of a group that fit the tile of a decoding program
DECODE_KEYS = 256           # below, a second launch costs more than the split saves
STRETCHES = 128             # at most, over which one query's keys are split
GRID = 65535                # programs on the second and third axis of a grid
ROW_STRIDE = 2**24          # entries from one row to the next: 128 of them, a tile, stay below 2³¹


@dataclass(frozen=True)
class Plan:
    """How a call of `attention` runs; ``str`` makes a sentence of it.

    Parameters
    ----------
    path : {"fused", "decode", "separate"}
        One kernel; two kernels, with the keys split over programs; or `poslib.rotary` and torch's attention.
    reasons : tuple of str
        Why this path.
    kernels : tuple of str
        One for each launch of the forward pass, with the sizes of its tiles.
    copied_bytes : int
        Bytes of copies of queries, keys and values that the forward pass writes to memory: turned, made contiguous, or, on the
        separate path, repeated for the query heads of a group and widened for a bias.
    mode : {"compiled", "interpreted", "torch"}

    Returns
    -------
    Plan

    Examples
    --------
    >>> import torch
    >>> q = torch.ones(1, 1, 5, 64, dtype=torch.float64)
    >>> print(plan(q, q, q))
    separate: torch's attention, since kernels take float32, float16, bfloat16, not float64; copies: 0 bytes.
    """

    path: str
    reasons: tuple
    kernels: tuple
    copied_bytes: int
    mode: str

    def __str__(self):
        how = " and ".join(self.kernels)
        interpreted = ", interpreted on the CPU" if self.mode == "interpreted" else ""
        return f"{self.path}: {how}{interpreted}, since {'; '.join(self.reasons)}; copies: {self.copied_bytes:,} bytes."


def attention(q, k, v, positions=None, key_positions=None, *, rotate="none", layout=None, width=None, base=10000.0,
              frequencies=None, is_causal=False, offset=None, window=None, slopes=None, scale=None, attn_mask=None,
              dropout_p=0.0, precision="ieee", return_plan=False):
    """Softmax attention of queries and keys that are turned on the way in.

    Parameters
    ----------
    q : tensor, shape (batch, heads, queries, head width), any float dtype
    k, v : same dtype and device, shapes (batch, key heads, keys, head width) and (batch, key heads, keys, value width)
        The heads of `q` are a multiple of theirs: query head h uses key head h // (heads / key heads), as torch does with
        ``enable_gqa=True``.  Any strides; a last one other than 1 costs a copy.
    positions : int, integers of shape (queries,) or (batch, queries), Angles, or (cos, sin), optional
        Where the queries stand, for the turn alone (what is seen is up to `offset`).  An int is the position of the first,
        the others follow; unless given, `offset`.  `poslib.kernels.rotary.tables` or `poslib.rotary.tables`, formed once for
        all layers, say how many channels turn too; for keys they may be narrower than float32, to be read faster.
    key_positions : as `positions`, of the keys, optional
        With ``rotate="qk"``.  Unless given: counted so that the key at index `offset` has the position of the first query,
        or the same tensor as `positions` where there are as many keys as queries and `offset` is 0.
    rotate : {"none", "q", "qk"}
        What is turned here.  "q": keys were turned when they were written, as by `poslib.kernels.rotary.write`; the loop over
        keys is then the one without rotation.  "qk": keys are raw in memory, and each tile of queries turns them again,
        in registers; where gradients are recorded they are turned once instead, since the backward pass keeps them turned.
    layout, width, base, frequencies
        As for `poslib.rotary.rotate`.
    is_causal : bool
        Query i sees the keys 0, …, offset + i.
    offset : int, optional
        Index, on the axis of keys, of the key that belongs to query 0: how many keys are in a cache before this call.
        0 for as many keys as queries; with another number, and anything that depends on it, it must be given: torch's
        ``is_causal`` means 0 (the top left corner), a cache means keys - queries (the bottom right).
    window : int, at least 1, optional
        Only keys less than so many indices away: with `is_causal` the last `window`, the query's own included.
    slopes : float tensor, shape (heads,), optional
        ALiBi: slope times the distance in indices is taken off the score (`poslib.relative.alibi_slopes`).
    scale : float, optional
        ``1/sqrt(head width)`` unless given.
    attn_mask : tensor, optional
        As in torch: bool, True where a query looks, or a float bias.  With `is_causal` and `window` both must allow a key.
    dropout_p : float, 0 to 1, below 1
    precision : {"ieee", "tf32"}
        Of products of float32 in compiled kernels: full, or by tensor cores, whose factors have 11 bits (errors of about 3e-4).
    return_plan : bool

    Returns
    -------
    Tensor (batch, heads, queries, value width), of the dtype of `q`; with `return_plan` also the `Plan`.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Notes
    -----
    A query that sees no key gives 0.  Rows of `k` and `v` that no query sees are not read: behind the end of a cache may
    lie anything.  Queries and keys are turned in float32 and rounded once to their dtype; sums are float32, and the output
    is rounded once.  Gradients reach `q`, `k` and `v`, second derivatives are refused (RuntimeError); learned frequencies send a call on the separate path, and
    slopes that require gradients are refused.

    Online softmax: Milakov and Gimelshein 2018 (arXiv 1805.02867).  Tiles: Dao 2023 (arXiv 2307.08691).

    Examples
    --------
    >>> import torch
    >>> q, k, v = torch.ones(1, 2, 3, 32), torch.ones(1, 1, 3, 32), torch.arange(96.0).reshape(1, 1, 3, 32)
    >>> attention(q, k, v, rotate="qk", layout="half", is_causal=True)[0, :, 0, :3]     # the first query sees the first key
    tensor([[0., 1., 2.],
            [0., 1., 2.]])
    """
    call = checked(q, k, v, positions, key_positions, rotate, layout, width, base, frequencies, is_causal, offset, window, slopes,
                   scale, attn_mask, dropout_p, precision)
    arrays.flag("return_plan", return_plan)
    how = _plan(q, k, v, call)
    if how.path == "separate":
        out = _separate(q, k, v, call)
    else:
        with _runtime.on(q.device):
            call = replace(call, **_tables(call, q))
            q, k, v = map(_readable, (q, k, v))
            if how.path == "decode":
                out = _decode(q, k, v, call)
            else:
                out = _Fused.apply(q, k, v, call) if _records(q, k, v) else _forward(q, k, v, call, False)[0]
    return (out, how) if return_plan else out


def plan(q, k, v, positions=None, key_positions=None, *, rotate="none", layout=None, width=None, base=10000.0,
         frequencies=None, is_causal=False, offset=None, window=None, slopes=None, scale=None, attn_mask=None,
         dropout_p=0.0, precision="ieee"):
    """How `attention` would run, without running it.

    Parameters
    ----------
    q, k, v, positions, key_positions, rotate, layout, width, base, frequencies, is_causal, offset, window, slopes, scale, attn_mask, dropout_p, precision
        As for `attention`.

    Returns
    -------
    Plan

    Raises
    ------
    TypeError, ValueError
        As `attention`.

    Examples
    --------
    >>> import torch
    >>> q, cache = torch.ones(1, 8, 1, 64), torch.ones(1, 2, 1024, 64)
    >>> how = plan(q, cache, cache, rotate="q", layout="half", is_causal=True, offset=1000)
    >>> how.path, how.copied_bytes
    ('decode', 0)
    """
    return _plan(q, k, v, checked(q, k, v, positions, key_positions, rotate, layout, width, base, frequencies, is_causal, offset,
                                  window, slopes, scale, attn_mask, dropout_p, precision))


# ---- which way it goes -----------------------------------------------------------------------------

def _plan(q, k, v, call):
    against = _against_kernels(q, k, v, call)
    if against:
        turned = {"none": (), "q": (q,), "qk": (q, k)}[call.rotate]
        kernels = ("poslib.rotary",) * bool(turned) + ("torch's attention",)
        return Plan("separate", tuple(against), kernels, sum(x.nbytes for x in turned) + _handed_on(q, k, v, call), "torch")
    strided = [x for x in (q, k, v) if x.stride(-1) != 1]
    copied = sum(x.nbytes for x in strided)
    reasons = ["the kernels cover it"]
    if strided:
        reasons.append(f"{len(strided)} of q, k, v are copied, whose channels are not side by side")
    group = q.shape[1] // k.shape[1]
    if not _records(q, k, v) and q.shape[2] * group <= DECODE_ROWS and k.shape[2] > DECODE_KEYS:
        config, stretches, _, _ = _stretches(q, k, call)
        kernels = (f"one kernel for {stretches} stretches of keys ({_rows(q, k)} × {config.keys} tiles)", "one that combines them")
        reasons[0] = f"{q.shape[2]} queries times {group} heads of a group fit one tile"
        return Plan("decode", tuple(reasons), kernels, copied, MODE)
    inside = call.rotate
    if _records(q, k, v) and call.rotate != "none":
        copied += q.nbytes
        reasons.append("the backward pass keeps the turned queries")
        if call.rotate == "qk":
            inside = "q"
            copied += k.nbytes
            reasons.append("it keeps turned keys too, so they are turned once, before the kernel")
    config = _config("forward_qk" if inside == "qk" else "forward", q)
    what = {"none": "", "q": " that turns queries in registers", "qk": " that turns queries and keys in registers"}[inside]
    return Plan("fused", tuple(reasons), (f"one kernel{what} ({config.rows} × {config.keys} tiles)",), copied, MODE)


def _handed_on(q, k, v, call):
    """Bytes of the copies that `_separate` makes for torch's attention, after turning: keys and values for each query head, wider numbers."""
    low, high = _seen(q.shape[2], k.shape[2], call)
    if low == high or not q.shape[2]:
        return 0
    heads, seen = q.shape[0] * q.shape[1], high - low
    repeated = heads * seen * (k.shape[3] + v.shape[3])
    copied = repeated * q.element_size() * (q.shape[1] > k.shape[1])
    biased = call.slopes is not None or call.attn_mask is not None and call.attn_mask.dtype != torch.bool
    if biased and q.element_size() < 4:
        copied += 4 * (heads * q.shape[2] * q.shape[3] + repeated)
    return copied


def _against_kernels(q, k, v, call):
    """Sentences that each rule the kernels out."""
    if q.dtype not in DTYPES:
        names = ", ".join(str(t).removeprefix("torch.") for t in DTYPES)
        return [f"kernels take {names}, not {str(q.dtype).removeprefix('torch.')}"]
    found = []
    if MODE == "compiled" and q.device.type != "cuda":
        found.append(f"kernels are compiled for a GPU in this process, and q is on {q.device}")
    elif MODE == "interpreted" and q.device.type != "cpu":
        found.append(f"kernels are interpreted on the CPU in this process, and q is on {q.device}")
    else:
        try:
            _config("forward", q)
        except ValueError as error:
            found.append(str(error))
    if v.shape[3] != q.shape[3]:
        found.append(f"v has width {v.shape[3]}, q {q.shape[3]}")
    if call.attn_mask is not None:
        found.append("attn_mask is given")
    if call.dropout_p:
        found.append("dropout_p is not 0")
    if call.scale <= 0:
        found.append("scale is not positive")
    if any(part is not None and part.requires_grad for part in _angle_parts(call)):
        found.append("frequencies or tables require gradients")
    if not q.numel() or not k.numel():
        found.append("q or k is empty")
    if max(q.shape[0], q.shape[1], q.shape[2] if q.shape[2] <= DECODE_ROWS else 0) > GRID:
        found.append(f"batch or heads exceed {GRID}")
    if any(abs(x.stride(2)) >= ROW_STRIDE for x in (q, k, v)):
        found.append(f"rows are {ROW_STRIDE} entries apart, or more")
    return found


def _angle_parts(call):
    for given in (call.positions, call.key_positions):
        if isinstance(given, tuple):
            yield from given
    if isinstance(call.frequencies, torch.Tensor):
        yield call.frequencies


def _records(*tensors):
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


def _config(kernel, q):
    return configs.find(kernel, q.shape[3], q.element_size(), _runtime.architecture(q.device))


def _rows(q, k):
    """Rows of the tile of a decoding program: a power of two, and what tensor cores take."""
    return max(16, triton.next_power_of_2(q.shape[2] * (q.shape[1] // k.shape[1])))


def _stretches(q, k, call):
    """Configuration, number of stretches, the key at which the first begins, and their length, both whole blocks."""
    config = _config("decode", q)
    high = min(k.shape[2], call.offset + q.shape[2]) if call.is_causal else k.shape[2]
    origin = max(call.offset - call.window + 1, 0) // config.keys * config.keys if call.window else 0
    blocks = max(1, -(-(high - origin) // config.keys))
    wanted = max(1, _programs(q.device) // (q.shape[0] * k.shape[1]))
    each = -(-blocks // min(wanted, blocks, STRETCHES))
    return config, -(-blocks // each), origin, each * config.keys


def _programs(device):
    """About how many programs fill the device: two for each multiprocessor."""
    return 2 * torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 8


# ---- kernels ---------------------------------------------------------------------------------------

def _tables(call, q):
    """Tables without gaps in place of positions, of float32 unless narrower ones were given."""
    def table(given):
        if given is None:
            return None
        if not isinstance(given, tuple):
            given = rotary.tables(rotary.angles(given, call.frequencies), torch.float32)
        return tuple(part.contiguous() for part in given)
    return {"positions": table(call.positions), "key_positions": table(call.key_positions), "slopes":
            None if call.slopes is None else call.slopes.to(torch.float32).contiguous()}


def _readable(x):
    return x if x.stride(-1) == 1 else x.contiguous()


def _pointers(tables, dummy):
    """Cosines, sines, and their rows from one entry of the batch to the next."""
    if tables is None:
        return dummy, dummy, 0
    cos, sin = tables
    return cos, sin, cos.shape[1] if cos.ndim == 3 and cos.shape[0] > 1 else 0


def _shape(q, k, call):
    """Compile-time arguments that all kernels share."""
    interleaved = call.layout == "interleaved"
    width = q.shape[3]
    return dict(D=width, HALF=triton.next_power_of_2(width) // 2, GROUP=q.shape[1] // k.shape[1], PAIRS=call.width // 2,
                INTERLEAVED=interleaved, CAUSAL=call.is_causal, WINDOW=call.window, ALIBI=call.slopes is not None,
                PRECISION=call.precision if q.dtype == torch.float32 else "tf32")


def _forward(q, k, v, call, save):
    """Output; with `save` also turned queries and the log2-sum-exp of rows."""
    batch, heads, queries, width = q.shape
    rotate_k = call.rotate == "qk"
    config = _config("forward_qk" if rotate_k else "forward", q)
    out = torch.empty_like(q)
    lse = torch.empty(batch, heads, queries, dtype=torch.float32, device=q.device) if save else q
    turned = torch.empty(q.shape, dtype=q.dtype, device=q.device) if save and call.rotate != "none" else q
    cos_q, sin_q, st_q = _pointers(call.positions, q)
    cos_k, sin_k, st_k = _pointers(call.key_positions if rotate_k else None, q)
    _runtime.launcher(forward_kernel, triton.cdiv(queries, config.rows), heads, batch)(
        q, k, v, out, lse, turned, cos_q, sin_q, cos_k, sin_k, q if call.slopes is None else call.slopes, call.scale,
        queries, k.shape[2], call.offset, heads, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3], st_q, st_k,
        **_shape(q, k, call), ROTATE_Q=call.rotate != "none", ROTATE_K=rotate_k, SAVE=save, BLOCK_M=config.rows, BLOCK_N=config.keys,
        num_warps=config.warps, num_stages=config.stages)
    return out, turned, lse


class _Fused(torch.autograd.Function):
    """The fused path while gradients are recorded.  Queries and keys are kept turned, in place of raw ones."""

    @staticmethod
    def forward(ctx, q, k, v, call):
        inside = call
        if call.rotate == "qk":
            cos, sin = (part.to(torch.float32) for part in call.key_positions)
            k = kernel.rotate(k, None, kernel.Angles(cos=cos, sin=sin), layout=call.layout)
            inside = replace(call, rotate="q")
        out, turned, lse = _forward(q, k, v, inside, True)
        ctx.save_for_backward(turned, k, v, out, lse)
        ctx.call = call
        return out

    @staticmethod
    def backward(ctx, gradient):
        if torch.is_grad_enabled():     # torch's own once_differentiable would drop the second derivative of a sum without a word
            raise RuntimeError("create_graph is True, and the kernels have no second derivatives; allowed is create_graph=False, "
                               "or poslib.rotary.rotate and torch's scaled_dot_product_attention")
        q, k, v, out, lse = ctx.saved_tensors
        with _runtime.on(q.device):
            return (*_backward(_readable(gradient), q, k, v, out, lse, ctx.call, ctx.needs_input_grad), None)


def _backward(gradient, q, k, v, out, lse, call, needed):
    batch, heads, queries, _ = q.shape
    kv_heads, keys = k.shape[1], k.shape[2]
    shape = _shape(q, k, call)
    delta = torch.empty_like(lse)
    dq = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    slopes = q if call.slopes is None else call.slopes
    sizes = (call.scale, queries, keys, call.offset, heads, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3])
    cos, sin, st = _pointers(call.positions, q)
    config = _config("query_gradient", q)
    _runtime.launcher(query_gradient_kernel, triton.cdiv(queries, config.rows), heads, batch)(
        q, k, v, out, gradient, dq, lse, delta, cos, sin, slopes, *sizes, *out.stride()[:3], *gradient.stride()[:3], *dq.stride()[:3],
        st, **shape, ROTATE_Q=call.rotate != "none", BLOCK_M=config.rows, BLOCK_N=config.keys, num_warps=config.warps,
        num_stages=config.stages)
    if not any(needed[1:3]):
        return dq, None, None
    dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (k, v))
    cos, sin, st = _pointers(call.key_positions, q)
    config = _config("key_gradient", q)
    _runtime.launcher(key_gradient_kernel, triton.cdiv(keys, config.keys), kv_heads, batch)(
        q, k, v, gradient, dk, dv, lse, delta, cos, sin, slopes, *sizes, *gradient.stride()[:3], *dk.stride()[:3], *dv.stride()[:3],
        st, **shape, ROTATE_K=call.rotate == "qk", BLOCK_M=config.rows, BLOCK_N=config.keys, num_warps=config.warps,
        num_stages=config.stages)
    return dq, dk, dv


def _decode(q, k, v, call):
    batch, heads, queries, width = q.shape
    config, stretches, origin, stretch = _stretches(q, k, call)
    part = torch.empty(stretches, batch, heads, queries, width, dtype=torch.float32, device=q.device)
    lse = torch.empty(part.shape[:-1], dtype=torch.float32, device=q.device)
    out = torch.empty_like(q)
    cos_q, sin_q, st_q = _pointers(call.positions, q)
    cos_k, sin_k, st_k = _pointers(call.key_positions, q)
    _runtime.launcher(decode_kernel, stretches, k.shape[1], batch)(
        q, k, v, part, lse, cos_q, sin_q, cos_k, sin_k, q if call.slopes is None else call.slopes, call.scale, queries, k.shape[2],
        call.offset, heads, origin, stretch, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], st_q, st_k, **_shape(q, k, call),
        ROTATE_Q=call.rotate != "none", ROTATE_K=call.rotate == "qk", BLOCK_M=_rows(q, k), BLOCK_N=config.keys,
        num_warps=config.warps, num_stages=config.stages)
    _runtime.launcher(combine_kernel, queries, heads, batch)(
        part, lse, out, stretches, queries, heads, *out.stride()[:3], D=width, COLUMNS=triton.next_power_of_2(width),
        STRETCHES=triton.next_power_of_2(stretches))
    return out


# ---- without kernels -------------------------------------------------------------------------------

def _separate(q, k, v, call):
    """`poslib.rotary` and torch's attention; what torch has no argument for becomes a mask."""
    if call.rotate != "none":
        q = _turned(q, call.positions, call)
    if call.rotate == "qk":
        k = _turned(k, call.key_positions, call)
    low, high = _seen(q.shape[2], k.shape[2], call)
    mask = call.attn_mask
    if mask is not None and mask.shape[-1] > 1:
        mask = mask[..., low:high]
    k, v = k[:, :, low:high], v[:, :, low:high]
    if not k.shape[2] or not q.shape[2]:
        return _nothing(q, k, v)
    see, bias = _mask(q, k, low, mask, call)
    dtype, group = q.dtype, q.shape[1] // k.shape[1]
    if group > 1:
        k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    blind = None
    if see is not None:
        blind = ~see.any(-1, keepdim=True)      # torch's backends differ on a row without keys: let it look, and drop the result
        see = see | blind
    if bias is not None:                        # a bias of half precision would be off by whole units at far keys
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        q, k, v, bias = (x.to(wide) for x in (q, k, v, bias))
        see = bias if see is None else bias.masked_fill(~see, -math.inf)
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=see, dropout_p=call.dropout_p, scale=call.scale)
    if blind is not None:
        out = out.masked_fill(blind, 0)
    return out.to(dtype)


def _nothing(q, k, v):
    """Zeros, through which gradients of zero reach the inputs."""
    none = q.sum() * 0 + k.sum() * 0 + v.sum() * 0
    return none.expand(*q.shape[:3], v.shape[3]).clone()


def _turned(x, given, call):
    if isinstance(given, tuple):
        return rotary.turn(x, *(part.to(torch.float64 if x.dtype == torch.float64 else torch.float32) for part in given), layout=call.layout)
    return rotary.rotate(x, given, layout=call.layout, width=call.width, frequencies=call.frequencies)


def _seen(queries, keys, call):
    """Keys that some query sees: from, to."""
    low, high = 0, keys
    if call.is_causal:
        high = min(high, call.offset + queries)
    elif call.window:
        high = min(high, call.offset + queries + call.window - 1)
    if call.window:
        low = max(call.offset - call.window + 1, 0)
    return min(low, keys), max(high, min(low, keys))


def _mask(q, k, low, mask, call):
    """Which keys are seen, and what is added to the scores; None for all, and for nothing."""
    query = call.offset + torch.arange(q.shape[2], device=q.device)[:, None]
    key = low + torch.arange(k.shape[2], device=q.device)
    see = bias = None
    if call.is_causal or call.window:
        see = key <= query if call.is_causal else torch.ones((), dtype=torch.bool, device=q.device).expand(query.shape[0], key.shape[0])
        if call.window:
            see = see & ((query - key).abs() < call.window)
    if call.slopes is not None:
        wide = torch.float64 if q.dtype == torch.float64 else torch.float32
        bias = -call.slopes.to(wide)[:, None, None] * (query - key).abs()
    if mask is not None and mask.dtype == torch.bool:
        see = mask if see is None else see & mask
    elif mask is not None:
        bias = mask if bias is None else bias + mask
        hidden = mask == -math.inf
        see = ~hidden if see is None else see & ~hidden
        bias = bias.masked_fill(hidden, 0)
    return see, bias
