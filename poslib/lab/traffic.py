"""What torch code moves: bytes read and written, kernels and FLOPs, counted operation by operation.

`count` runs a function and looks at each operation that torch dispatches, as `poslib.cost` counts them: an operation reads
each of its inputs once and writes its output once.  Views move nothing; a tensor that is broadcast counts the storage
that it touches; what is overwritten without being read (`out=`, `copy_`, `fill_`) is not read; lookups read the rows that
they take, stores by position write the rows that they are given.  Shapes decide all of it, so tensors on the device "meta" are counted too, at any size.

Below are the ways to rotate, to attend and to add relative terms whose formulas `poslib.cost` has, each as the few lines of
eager torch that it is.
"""

from __future__ import annotations

import dataclasses
import math

from poslib import cost
from poslib.lab._torch import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

ROTATIONS = ("rotate_half", "float", "complex", "split_cat", "out", "in_place")

NOTHING = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "lift_fresh", "_unsafe_view", "_local_scalar_dense",
           "as_strided_", "detach_", "resize_", "set_", "squeeze_", "t_", "transpose_", "unsqueeze_"}
OVERWRITES = {"copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_"}
LOOKUPS = {"embedding", "gather", "index", "index_select", "take"}
STORES = {"index_copy_", "index_put_", "scatter_"}            # write as many numbers as they are given
PADDED = {"slice_backward", "select_backward"}               # zeros, then a copy into them: two kernels in one operation
FLOPS = {"add": 1, "add_": 1, "sub": 1, "sub_": 1, "rsub": 1, "mul": 1, "mul_": 1, "div": 1, "div_": 1,      # for each number of the result
         "addcmul": 2, "addcmul_": 2, "addcdiv": 2, "addcdiv_": 2}


@dataclasses.dataclass(frozen=True)
class Counted:
    """What `count` found.

    Parameters
    ----------
    read, written : int, bytes
    kernels : int
    flops : int
        Of matrix products (torch's own formulas, which do not see masks), additions, multiplications; not of softmax, nor of
        changes of sign.
    operations : tuple of (name, kernels, read, written)
        In the order in which they ran; views are left out.
    """

    read: int
    written: int
    kernels: int
    flops: int
    operations: tuple

    @property
    def cost(self):
        """The same as a `poslib.cost.Cost`."""
        return cost.Cost(self.read, self.written, self.flops, self.kernels)

    @property
    def by_operation(self):
        """{name: (kernels, read, written)}, summed."""
        found = {}
        for name, *numbers in self.operations:
            found[name] = tuple(a + b for a, b in zip(found.get(name, (0, 0, 0)), numbers))
        return found


def count(function, *args, **kwargs):
    """Run ``function(*args, **kwargs)`` and count what its operations move.

    What runs inside one operation (a fused attention, say) is one kernel that reads the operation's inputs and writes
    its outputs.  Operations of other threads are not seen.

    Returns
    -------
    Counted
    """
    with _Counter() as counter:
        function(*args, **kwargs)
    rows = counter.rows
    return Counted(sum(r[2] for r in rows), sum(r[3] for r in rows), sum(r[1] for r in rows), counter.flops, tuple(rows))


class _Counter(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.rows, self.flops = [], 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = operation(*args, **kwargs)
        name = operation.overloadpacket.__name__
        if name in NOTHING or _is_view(operation):
            return out
        inputs, written = _arguments(operation, args, kwargs)
        results = list(_tensors(out))
        if name in PADDED:
            grad = touched(inputs)
            self.rows.append((name, 2, grad, touched(results) + grad))
        elif name in LOOKUPS:                                # ids, and as many numbers as are copied
            ids = [t for t in inputs if t.dtype in (torch.int64, torch.int32)][-1:] if name != "index" else inputs[1:]
            self.rows.append((name, 1, touched(ids) + touched(results), touched(results)))
        elif name in STORES:
            moved = [t for t in inputs if t is not args[0]]
            self.rows.append((name, 1, touched(moved), touched(moved[-1:])))
        else:
            new = results if not written else written
            self.rows.append((name, 1, touched(inputs), touched(new)))
        self.flops += _flops(operation, name, args, kwargs, out)
        return out


def touched(tensors):
    """Bytes of storage that tensors cover; what is given twice (transposed, even), or broadcast, counts once."""
    seen = {(t.untyped_storage()._cdata, t.storage_offset(), t.dtype, tuple(sorted((s, n) for n, s in zip(t.shape, t.stride()) if n > 1 and s))): t
            for t in tensors}
    return sum(_covered(t) for t in seen.values())


def _covered(t):
    if 0 in t.shape:
        return 0
    steps = [(n, s) for n, s in zip(t.shape, t.stride()) if s]
    return min(math.prod(n for n, _ in steps), 1 + sum((n - 1) * s for n, s in steps)) * t.element_size()     # windows overlap


def _is_view(operation):
    returns = operation._schema.returns
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def _arguments(operation, args, kwargs):
    """Tensors that an operation reads, and those of its arguments that it writes."""
    schema = operation._schema
    positional = [a for a in schema.arguments if not a.kwarg_only]
    given = list(zip(positional, args)) + [(a, kwargs[a.name]) for a in schema.arguments if a.name in kwargs]
    read, written = [], []
    for argument, value in given:
        tensors = list(_tensors(value))
        writes = argument.alias_info is not None and argument.alias_info.is_write
        written += tensors if writes else []
        if not writes or not (argument.is_out or operation.overloadpacket.__name__ in OVERWRITES):
            read += tensors
    return read, written


def _tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for v in value:
            yield from _tensors(v)


def _flops(operation, name, args, kwargs, out):
    if operation.overloadpacket in flop_registry:
        kwargs = {name: value for name, value in kwargs.items() if name != "out"}
        return int(flop_registry[operation.overloadpacket](*args, **kwargs, out_val=out))
    if name == "_scaled_dot_product_flash_attention_for_cpu":
        return sdpa_flop_count(*(t.shape for t in args[:3]))
    if name not in FLOPS or not isinstance(out, torch.Tensor) or not (out.is_floating_point() or out.is_complex()):
        return 0
    if out.is_complex():
        return out.numel() * (6 if name.startswith("mul") else 2)
    return out.numel() * FLOPS[name]


# ---- rotation -----------------------------------------------------------------------------------

def tables(positions, width, way, dtype, *, base=10000.0, device=None):
    """The tables that a way of `rotate` wants, for consecutive positions: (cos, sin), or one of complex numbers."""
    omega = base ** (-torch.arange(0, width, 2, dtype=torch.float64, device=device) / width)
    angle = torch.arange(positions, dtype=torch.float64, device=device)[:, None] * omega
    if way == "complex":
        return torch.polar(torch.ones_like(angle), angle).to(torch.complex64)
    if way in ("rotate_half", "float"):
        angle = torch.cat((angle, angle), -1)
    dtype = torch.float32 if way == "float" else dtype
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x, table, way, *, width=None, out=None):
    """One tensor, eagerly, in one of the ways of `poslib.cost.rotation`.

    Parameters
    ----------
    x : tensor, (batch, heads, length, head_dim)
    table : what `tables` gives for `way`
    way : str
        One of `ROTATIONS`; "complex" turns interleaved pairs, the others half a width apart.
    width : int
        Channels that turn; all unless given.
    out : tensor like `x`
        For "out" alone; made here unless given.

    Returns
    -------
    tensor like `x`; `x` itself for "in_place"
    """
    if way not in ROTATIONS:
        raise ValueError(f"way is {way!r}; allowed are {', '.join(map(repr, ROTATIONS))}")
    width = x.shape[-1] if width is None else width
    turn, rest = x[..., :width], x[..., width:]
    if way == "out":
        out = torch.empty_like(x) if out is None else out
        _into(turn, *table, out[..., :width])
        if width < x.shape[-1]:
            out[..., width:].copy_(rest)
        return out
    if way == "in_place":
        _over(turn, *table)
        return x
    turned = {"rotate_half": _rotate_half, "float": _float, "complex": _complex, "split_cat": _split_cat}[way](turn, table)
    return turned if width == x.shape[-1] else torch.cat((turned, rest), -1)


def _rotate_half(x, table):
    cos, sin = table
    a, b = x[..., :x.shape[-1] // 2], x[..., x.shape[-1] // 2:]
    return x * cos + torch.cat((-b, a), -1) * sin


def _float(x, table):
    return _rotate_half(x.float(), table).to(x.dtype)


def _complex(x, table):
    z = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(z * table).flatten(-2).to(x.dtype)


def _split_cat(x, table):
    cos, sin = table
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def _into(x, cos, sin, out):
    a, b = x.chunk(2, -1)
    first, second = out.chunk(2, -1)
    torch.mul(a, cos, out=first)
    first.addcmul_(b, sin, value=-1)
    torch.mul(b, cos, out=second)
    second.addcmul_(a, sin)


def _over(x, cos, sin):
    a, b = x.chunk(2, -1)
    kept = a * sin
    a.mul_(cos).addcmul_(b, sin, value=-1)
    b.mul_(cos).add_(kept)


# ---- attention and relative terms ---------------------------------------------------------------

def attend(q, k, v, mask=None):
    """Eager attention; the query heads of a group share its keys, which are not copied.  `mask` is added to the scores."""
    (batch, heads, queries, width), (groups, keys) = q.shape, k.shape[1:3]
    scores = q.reshape(batch, groups, -1, width) @ k.mT
    scores = scores * width ** -0.5
    if mask is not None:
        scores = (scores.view(batch, heads, queries, keys) + mask).view(scores.shape)
    return (scores.softmax(-1) @ v).view(q.shape)


def stored_vectors(q, table, lags):
    """q_i · table[lags_ij] by way of a tensor (queries, keys, width): all heads share the table."""
    batch, heads, queries, width = q.shape
    rows = table[lags]
    products = q.permute(2, 0, 1, 3).reshape(queries, batch * heads, width) @ rows.mT
    return products.view(queries, batch, heads, -1).permute(1, 2, 0, 3)


def skewed(q, table):
    """q_i · r_{i-j} for as many keys as queries: one product, then its diagonals as a view.

    Rows of `table`: lags n - 1, n - 2, …, 1 - n (2n - 1 rows), shared by all heads.
    """
    batch, heads, n, _ = q.shape
    products = (q @ table.mT).contiguous()                   # at [i, n - 1 - lag]; row i is wanted from n - 1 - i on
    width = 2 * n - 1
    return products.as_strided((batch, heads, n, n), (heads * n * width, n * width, width - 1, 1), n - 1)
