"""Large tensors on the CPU, turned block by block: each goes through all the arithmetic while it is in the cache.

The products, differences and sums are those of `poslib.rotary`, rounded one by one, so that no bit differs.
What a call takes from the memory is `x` and the result, not the eight steps in between, and a gradient is
one more turn, backwards, instead of a graph of these steps.
"""

from __future__ import annotations

import array_api_compat.torch as xp
import torch

from poslib import rotary

__all__ = ["pays", "turn"]

GRAIN = 32768       # torch's: threads share elementwise work in parts of at least so many entries
LANES = 16          # pairs that torch multiplies in one step of its loop over complex numbers, or a multiple of it


def pays(x, cos, sin, out):
    """Whether blocks are faster: `x` is large or `out` is given, and all is as plain as it seems.

    Small tensors would wait for the function around the arithmetic longer than for the arithmetic.
    """
    return ((out is not None or x.numel() > 2 * GRAIN) and x.device.type == "cpu"
            and not (cos.requires_grad or sin.requires_grad) and not torch.compiler.is_compiling()
            and all(_plain(t) for t in (x, cos, sin, out) if t is not None))


def _plain(x):
    """Not a subclass, and not one of the wrappers that look like tensors inside of vmap and its like: these own no memory."""
    try:
        return type(x) in (torch.Tensor, torch.nn.Parameter) and x.data_ptr() is not None
    except RuntimeError:
        return False


def turn(x, cos, sin, layout, out=None):
    """The first channels of `x` turned by tables that broadcast to (..., length, pairs); the others copied.

    `out` is apart from `x` in memory or the same, and takes no part in differentiation.
    """
    return _Turn.apply(x, cos, sin, layout) if out is None else _write(x, cos, sin, layout, out)


class _Turn(torch.autograd.Function):
    """A linear map of the vectors, whose transpose is the turn back; and a linear map of the tables."""

    generate_vmap_rule = True           # asked for where others are mapped over

    @staticmethod
    def forward(x, cos, sin, layout):
        return _write(x, cos, sin, layout, torch.empty_like(x, memory_format=torch.contiguous_format))

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, cos, sin, ctx.layout = inputs
        ctx.save_for_backward(cos, sin)
        ctx.save_for_forward(x, cos, sin)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, gradient):
        cos, sin = ctx.saved_tensors
        if gradient is None:
            return None, None, None, None
        return rotary._turn(xp, gradient, cos, -sin, ctx.layout), None, None, None

    @staticmethod
    def jvp(ctx, dx, dcos, dsin, _):
        x, cos, sin = ctx.saved_tensors
        parts = [] if dx is None else [rotary._turn(xp, dx, cos, sin, ctx.layout)]
        if dcos is not None or dsin is not None:
            dcos, dsin = (torch.zeros_like(cos) if d is None else d for d in (dcos, dsin))
            width = 2 * cos.shape[-1]
            turning = rotary._turn(xp, x[..., :width], dcos, dsin, ctx.layout)
            parts.append(torch.nn.functional.pad(turning, (0, x.shape[-1] - width)))
        return sum(parts[1:], parts[0])


def _write(x, cos, sin, layout, out):
    width = 2 * cos.shape[-1]
    _turn(x[..., :width], cos, sin, layout, out[..., :width])
    if out is not x and width < x.shape[-1]:
        out[..., width:] = x[..., width:]
    return out


def _turn(x, cos, sin, layout, out):
    """Halve until a block fits: rows first, since all heads use the angles of a row."""
    long = [axis for axis, size in enumerate(x.shape[:-1]) if size > 1]
    if not long or _fits(x.numel() // 2):
        return _turn_block(x, cos, sin, layout, out)
    axis = long[-1] if x.shape[long[-1]] > 32 else long[0]
    half = x.shape[axis] // 2
    for start, size in ((0, half), (half, x.shape[axis] - half)):
        at = axis - x.ndim
        tables = (t.narrow(at, start, size) if t.ndim >= -at and t.shape[at] > 1 else t for t in (cos, sin))
        _turn(x.narrow(axis, start, size), *tables, layout, out.narrow(axis, start, size))


def _fits(pairs):
    """Whether so many pairs are a block: small enough for the cache, large where threads wait for each other at every step.

    On cores that others use too such a wait may take milliseconds.  And no thread may begin within a step of torch's
    loops: single complex numbers are multiplied with other roundings.
    """
    threads = torch.get_num_threads()
    parts = min(threads, -(-pairs // GRAIN))
    return pairs <= GRAIN * (8 if threads == 1 else 32 * threads) and (parts <= 1 or pairs % (parts * LANES) == 0)


def _turn_block(x, cos, sin, layout, out):
    wide = x.to(cos.dtype)                                  # `x` itself, or a buffer to work in
    target = out if out.dtype == cos.dtype else wide
    if layout == "interleaved" and _multiplies_exactly(wide, target):
        torch.mul(_complex(wide), torch.complex(cos, sin), out=_complex(target))
    else:
        (a, b), (new_a, new_b) = (x.tensor_split(2, -1) if layout == "half" else (x[..., 0::2], x[..., 1::2])
                                  for x in (wide, target))
        from_b, from_a = b * sin, a * sin                   # before `target`, which may be `wide`, is written to
        torch.mul(a, cos, out=new_a).sub_(from_b)
        torch.mul(b, cos, out=new_b).add_(from_a)
    if target is not out:
        out.copy_(target)


def _multiplies_exactly(*tensors):
    """Whether torch can see pairs as complex numbers, whose products it then rounds like `a * cos - b * sin`.

    It does in whole steps of its vectorised loops on x86, and not where numbers are left over or where the compiler chose
    the instructions: there products are fused with sums.
    """
    return (torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512") and tensors[0].shape[-1] % (2 * LANES) == 0
            and all(t.stride(-1) == 1 and t.storage_offset() % 2 == 0 and not any(s % 2 for s in t.stride()[:-1]) for t in tensors))


def _complex(x):
    return torch.view_as_complex(x.unflatten(-1, (-1, 2)))
