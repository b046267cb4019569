"""Rotation of queries and keys in one launch, and of keys on their way into a cache.

The turn is that of `poslib.rotary`: float64 angles, float32 arithmetic, one rounding.  What a kernel adds is that every
number is read once and written once; in eager mode the same turn takes five passes over memory or more.  Tensors are of torch, float32,
float16 or bfloat16, in the order (batch, heads, length, head width), with any strides except that channels lie side by side.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from fractions import Fraction

from poslib import _arrays as arrays, rotary
from poslib.kernels import _runtime, configs
from poslib.kernels._common import load_pairs, load_tables, phase_tables, store_pairs, turn

import torch
from torch.autograd import forward_ad
import triton
import triton.language as tl

__all__ = ["Angles", "phases", "rotate", "tables", "write"]

SHORT = 8                                                   # up to so many tokens, tiles are made of heads
TURNS = 0x28BE60DB9391054A7F09D5F47D4D3770                  # 2¹²⁸/2π
FLOATS = (torch.float32, torch.float16, torch.bfloat16)


# ---- kernels --------------------------------------------------------------------------------------------------------

@triton.jit
def _angles(COS, SIN, INCREMENTS, POSITIONS, batch, token, ok, offset, step,
            PHASE: tl.constexpr, HAS_POSITIONS: tl.constexpr, INVERSE: tl.constexpr, PAIRS: tl.constexpr, BLOCK_PAIRS: tl.constexpr):
    """Cosines and sines of tokens; step: from one entry of the batch to the next in the tables or positions, 0 where it shares them."""
    if PHASE:
        if HAS_POSITIONS:
            position = tl.load(POSITIONS + batch * step + token, mask=ok, other=0)
        else:
            position = token + offset
        cos, sin = phase_tables(INCREMENTS, position, PAIRS, BLOCK_PAIRS)
    else:
        cos, sin = load_tables(COS, SIN, batch * step + token, ok, PAIRS, BLOCK_PAIRS)
    if INVERSE:
        sin = -sin
    return cos, sin


@triton.jit
def _copy(source, target, ok, FIRST: tl.constexpr, END: tl.constexpr, BLOCK: tl.constexpr):
    """Channels FIRST, ..., END - 1 of rows, as they are."""
    channel = FIRST + tl.arange(0, BLOCK)
    there = ok[:, None] & (channel < END)[None, :]
    tl.store(target[:, None] + channel[None, :], tl.load(source[:, None] + channel[None, :], mask=there), mask=there)


@triton.jit
def _turn_rows(source, target, ok, cos, sin, WIDTH: tl.constexpr, PAIRS: tl.constexpr, BLOCK_PAIRS: tl.constexpr,
               BLOCK_TAIL: tl.constexpr, INTERLEAVED: tl.constexpr):
    """Rows of `source`, turned, into `target`: pointers to channel 0 of each row."""
    a, b = load_pairs(source, ok, PAIRS, BLOCK_PAIRS, INTERLEAVED)
    a, b = turn(a.to(tl.float32), b.to(tl.float32), cos, sin)
    store_pairs(target, ok, a, b, PAIRS, BLOCK_PAIRS, INTERLEAVED)
    if BLOCK_TAIL > 0:                                      # a partial width; in place the rest stays where it is
        _copy(source, target, ok, 2 * PAIRS, WIDTH, BLOCK_TAIL)


# Lengths, and what follows from them, are not specialised on: else each new length would be compiled anew.
@triton.jit(do_not_specialize=["offset", "step", "length", "blocks"])
def rotate_kernel(Q, K, OUT_Q, OUT_K, COS, SIN, INCREMENTS, POSITIONS, offset, step, length, blocks,
                  q_batch, q_head, q_token, k_batch, k_head, k_token,
                  out_q_batch, out_q_head, out_q_token, out_k_batch, out_k_head, out_k_token,
                  GROUP: tl.constexpr, HEADS: tl.constexpr, HAS_K: tl.constexpr,
                  PHASE: tl.constexpr, HAS_POSITIONS: tl.constexpr, INVERSE: tl.constexpr, INTERLEAVED: tl.constexpr,
                  WIDTH: tl.constexpr, PAIRS: tl.constexpr, BLOCK_PAIRS: tl.constexpr, BLOCK_TAIL: tl.constexpr, ROWS: tl.constexpr):
    """ROWS tokens of HEADS query heads and of the key head that they share: the cosines and sines are loaded once for all.

    Grid: (batch · blocks, key heads · GROUP / HEADS).  GROUP: query heads for each key head.
    """
    token = tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS)
    ok = token < length
    token = token.to(tl.int64)                              # products with strides pass 2³¹ in tensors of 4 GB
    batch = (tl.program_id(0) // blocks).to(tl.int64)
    first = tl.program_id(1) * HEADS
    cos, sin = _angles(COS, SIN, INCREMENTS, POSITIONS, batch, token, ok, offset, step, PHASE, HAS_POSITIONS, INVERSE, PAIRS, BLOCK_PAIRS)
    for i in tl.static_range(HEADS):
        head = (first + i).to(tl.int64)
        _turn_rows(Q + batch * q_batch + head * q_head + token * q_token,
                   OUT_Q + batch * out_q_batch + head * out_q_head + token * out_q_token,
                   ok, cos, sin, WIDTH, PAIRS, BLOCK_PAIRS, BLOCK_TAIL, INTERLEAVED)
    if HAS_K:
        if first % GROUP == 0:                              # the first program of a group takes the key head
            head = (first // GROUP).to(tl.int64)
            _turn_rows(K + batch * k_batch + head * k_head + token * k_token,
                       OUT_K + batch * out_k_batch + head * out_k_head + token * out_k_token,
                       ok, cos, sin, WIDTH, PAIRS, BLOCK_PAIRS, BLOCK_TAIL, INTERLEAVED)


@triton.jit
def _split(row, length, HEADS: tl.constexpr):
    """Rows numbered over (batch, token, head), as three int64."""
    token = row // HEADS
    return (token // length).to(tl.int64), (token % length).to(tl.int64), (row % HEADS).to(tl.int64)


@triton.jit
def _turn_any_rows(X, OUT, block, COS, SIN, INCREMENTS, POSITIONS, offset, step, length, count,
                   x_batch, x_head, x_token, out_batch, out_head, out_token, HEADS: tl.constexpr,
                   PHASE: tl.constexpr, HAS_POSITIONS: tl.constexpr, INVERSE: tl.constexpr, INTERLEAVED: tl.constexpr,
                   WIDTH: tl.constexpr, PAIRS: tl.constexpr, BLOCK_PAIRS: tl.constexpr, BLOCK_TAIL: tl.constexpr, ROWS: tl.constexpr):
    row = block * ROWS + tl.arange(0, ROWS)
    ok = row < count
    batch, token, head = _split(row, length, HEADS)
    cos, sin = _angles(COS, SIN, INCREMENTS, POSITIONS, batch, token, ok, offset, step, PHASE, HAS_POSITIONS, INVERSE, PAIRS, BLOCK_PAIRS)
    _turn_rows(X + batch * x_batch + head * x_head + token * x_token,
               OUT + batch * out_batch + head * out_head + token * out_token,
               ok, cos, sin, WIDTH, PAIRS, BLOCK_PAIRS, BLOCK_TAIL, INTERLEAVED)


@triton.jit(do_not_specialize=["offset", "step", "length", "q_count", "k_count", "q_blocks"])
def rows_kernel(Q, K, OUT_Q, OUT_K, COS, SIN, INCREMENTS, POSITIONS, offset, step, length, q_count, k_count, q_blocks,
                q_batch, q_head, q_token, k_batch, k_head, k_token,
                out_q_batch, out_q_head, out_q_token, out_k_batch, out_k_head, out_k_token,
                Q_HEADS: tl.constexpr, K_HEADS: tl.constexpr,
                PHASE: tl.constexpr, HAS_POSITIONS: tl.constexpr, INVERSE: tl.constexpr, INTERLEAVED: tl.constexpr,
                WIDTH: tl.constexpr, PAIRS: tl.constexpr, BLOCK_PAIRS: tl.constexpr, BLOCK_TAIL: tl.constexpr, ROWS: tl.constexpr):
    """Few tokens, as in decoding: ROWS rows whatever their token, heads running fastest, so that a tile is full at length 1.

    Grid: blocks of query rows, then blocks of key rows.
    """
    block = tl.program_id(0)
    if block < q_blocks:
        _turn_any_rows(Q, OUT_Q, block, COS, SIN, INCREMENTS, POSITIONS, offset, step, length, q_count,
                       q_batch, q_head, q_token, out_q_batch, out_q_head, out_q_token, Q_HEADS,
                       PHASE, HAS_POSITIONS, INVERSE, INTERLEAVED, WIDTH, PAIRS, BLOCK_PAIRS, BLOCK_TAIL, ROWS)
    else:
        _turn_any_rows(K, OUT_K, block - q_blocks, COS, SIN, INCREMENTS, POSITIONS, offset, step, length, k_count,
                       k_batch, k_head, k_token, out_k_batch, out_k_head, out_k_token, K_HEADS,
                       PHASE, HAS_POSITIONS, INVERSE, INTERLEAVED, WIDTH, PAIRS, BLOCK_PAIRS, BLOCK_TAIL, ROWS)


@triton.jit(do_not_specialize=["offset", "step", "length", "count", "start", "slots"])
def write_kernel(K, V, CACHE_K, CACHE_V, WHERE, COS, SIN, INCREMENTS, POSITIONS, offset, step, length, count, start, slots,
                 k_batch, k_head, k_token, v_batch, v_head, v_token,
                 cache_k_page, cache_k_head, cache_k_slot, cache_v_page, cache_v_head, cache_v_slot,
                 HEADS: tl.constexpr, PAGE: tl.constexpr, PAGED: tl.constexpr, HAS_STARTS: tl.constexpr,
                 PHASE: tl.constexpr, HAS_POSITIONS: tl.constexpr, INTERLEAVED: tl.constexpr,
                 WIDTH: tl.constexpr, PAIRS: tl.constexpr, BLOCK_PAIRS: tl.constexpr, BLOCK_TAIL: tl.constexpr,
                 V_WIDTH: tl.constexpr, BLOCK_V: tl.constexpr, ROWS: tl.constexpr):
    """ROWS rows of keys, turned, and of values, as they are, each to its slot.  Grid: blocks of rows, as in `rows_kernel`.

    WHERE holds the slot of each token (PAGED), or the first slot of each entry of the batch (HAS_STARTS), else `start` is that of all.
    A slot that does not exist is not written to.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    ok = row < count
    batch, token, head = _split(row, length, HEADS)
    cos, sin = _angles(COS, SIN, INCREMENTS, POSITIONS, batch, token, ok, offset, step, PHASE, HAS_POSITIONS, False, PAIRS, BLOCK_PAIRS)
    if PAGED:
        slot = tl.load(WHERE + batch * length + token, mask=ok, other=-1).to(tl.int64)
        ok = ok & (slot >= 0) & (slot < slots)
        page = slot // PAGE
        slot = slot % PAGE
    else:
        if HAS_STARTS:
            slot = tl.load(WHERE + batch, mask=ok, other=-1).to(tl.int64) + token
        else:
            slot = token + start
        ok = ok & (slot >= 0) & (slot < PAGE)
        page = batch
    _turn_rows(K + batch * k_batch + head * k_head + token * k_token,
               CACHE_K + page * cache_k_page + head * cache_k_head + slot * cache_k_slot,
               ok, cos, sin, WIDTH, PAIRS, BLOCK_PAIRS, BLOCK_TAIL, INTERLEAVED)
    _copy(V + batch * v_batch + head * v_head + token * v_token,
          CACHE_V + page * cache_v_page + head * cache_v_head + slot * cache_v_slot, ok, 0, V_WIDTH, BLOCK_V)


# ---- angles ---------------------------------------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True, eq=False)
class Angles:
    """What kernels need to know of positions and frequencies, prepared once for all layers by `tables` or `phases`.

    Parameters
    ----------
    cos, sin : tensors, float32, shape (length, pairs) or (batch, length, pairs), optional
        Of the rows that are to be turned; batch may be 1.  `tables` makes them.  Own ones, scaled by YaRN's factor say, do as well.
    increments : tensor, int64, shape (pairs,), optional
        In place of cos and sin: turns per position times 2⁶⁴, modulo 2⁶⁴.  `phases` makes them.
    positions : tensor, integers, shape (length,) or (batch, length), or int, optional
        With increments: where the rows stand; a number is the position of the first, and the others follow.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Examples
    --------
    >>> import torch
    >>> Angles(cos=torch.ones(3, 2), sin=torch.zeros(3, 2)).pairs       # no turn of three rows
    2
    """

    cos: torch.Tensor | None = None
    sin: torch.Tensor | None = None
    increments: torch.Tensor | None = None
    positions: torch.Tensor | int | None = None

    def __post_init__(self):
        given = [name for name in ("cos", "sin", "increments", "positions") if getattr(self, name) is not None]
        if given not in (["cos", "sin"], ["increments", "positions"]):
            raise ValueError(f"given are {', '.join(given) or 'none'}; allowed are cos and sin, or increments and positions")
        if self.cos is not None:
            arrays.same_device(cos=self.cos, sin=self.sin)
            if self.cos.shape != self.sin.shape or self.cos.ndim not in (2, 3) or self.cos.shape[-1] < 1:
                raise ValueError(f"cos has shape {tuple(self.cos.shape)}, sin {tuple(self.sin.shape)}; "
                                 "allowed are (length, pairs) and (batch, length, pairs), at least one pair, the same for both")
            for name, table in (("cos", self.cos), ("sin", self.sin)):
                if table.dtype != torch.float32:
                    raise TypeError(f"{name} has dtype {table.dtype}; allowed is float32")
                if table.requires_grad:
                    raise ValueError(f"{name} requires a gradient, which kernels do not form; allowed are fixed tables, or poslib.rotary.turn")
                object.__setattr__(self, name, table.contiguous())
        else:
            if self.increments.dtype != torch.int64 or self.increments.ndim != 1 or not len(self.increments):
                raise TypeError(f"increments has dtype {self.increments.dtype} and shape {tuple(self.increments.shape)}; "
                                "allowed is int64, (pairs,), at least one")
            object.__setattr__(self, "increments", self.increments.contiguous())
            object.__setattr__(self, "positions", _positions(self.positions))

    @property
    def pairs(self):
        """How many pairs of channels turn.

        Returns
        -------
        int

        Examples
        --------
        >>> phases(0, width=64).pairs
        32
        """
        return (self.cos if self.increments is None else self.increments).shape[-1]

    def at(self, positions):
        """The same frequencies at other positions: for the next token.

        Parameters
        ----------
        positions : tensor, integers, shape (length,) or (batch, length), or int

        Returns
        -------
        Angles

        Raises
        ------
        ValueError
            For angles made by `tables`, which hold no frequencies.

        Examples
        --------
        >>> phases(0, width=64).at(7).positions
        7
        """
        if self.increments is None:
            raise ValueError("cos and sin hold no frequencies; allowed are angles made by phases, or tables(positions, ...) anew")
        return dataclasses.replace(self, positions=positions)

    def _parts(self):
        return self.cos, self.sin, self.increments, self.positions

    def _tensors(self):
        return [t for t in self._parts() if isinstance(t, torch.Tensor)]


def tables(positions, *, width=None, base=10000.0, frequencies=None):
    """Cosines and sines of the rows, formed in float64 and rounded to float32: those of `poslib.rotary`.

    Parameters
    ----------
    positions : tensor, integers, shape (length,) or (batch, length), any sign and order
    width : int, even, at least 2
        How many channels turn.  Not needed where frequencies say it.
    base : float, finite, at least 1
    frequencies : float64, shape (width/2,), optional
        In place of those that `base` gives: a tensor, a numpy array, or a tuple of floats.

    Returns
    -------
    Angles
        With 8 bytes for each row and pair, on the device of `positions`.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Examples
    --------
    >>> import torch
    >>> tables(torch.arange(5), width=64).cos.shape
    torch.Size([5, 32])
    """
    if not isinstance(positions, torch.Tensor):
        raise TypeError(f"positions is {positions!r}; allowed is a tensor of integers, such as torch.arange(start, end)")
    if not 1 <= positions.ndim <= 2:
        raise ValueError(f"positions has shape {tuple(positions.shape)}; allowed are (length,) and (batch, length)")
    xp = arrays.namespace_of("positions", positions)
    omega = rotary._given_or_of_base(xp, frequencies, base, _width(width, frequencies), positions, positions)
    return Angles(*rotary.tables(rotary.angles(positions, omega), torch.float32))


def phases(positions, *, width=None, base=10000.0, frequencies=None, device=None):
    """Frequencies as 64-bit integers: the kernel forms angles itself, as exact at position 10⁶ as at 1, and reads no tables.

    Parameters
    ----------
    positions : tensor, integers, shape (length,) or (batch, length), any sign and order, or int
        A number is the position of the first row, and the others follow it.
    width, base, frequencies
        As for `tables`.
    device : torch device, optional
        Of the vectors that will be turned; that of `positions` unless given.

    Returns
    -------
    Angles
        With 8 bytes for each pair.  The frequencies are read here, which waits for a GPU if they lie there; `Angles.at` does not.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Notes
    -----
    A frequency ω is stored as ω 2⁶⁴/2π, rounded, modulo 2⁶⁴.  Its product with an integer position, modulo 2⁶⁴, is the angle in
    parts of a turn, without any error but that of the rounding, 2⁻⁶⁵ turns per position.  Cosine and sine are within 2e-7.

    Examples
    --------
    >>> phases(5, frequencies=(1.0,)).increments                            # 1/2π of a turn, in parts of 2⁻⁶⁴
    tensor([2935890503282001226])
    """
    values = _values(frequencies, base, _width(width, frequencies))
    if device is None and isinstance(positions, torch.Tensor):
        device = positions.device
    return Angles(increments=torch.tensor([_increment(w) for w in values], dtype=torch.int64, device=device), positions=positions)


def _increment(omega):
    """Radians per position as turns times 2⁶⁴, in the range of int64."""
    if not math.isfinite(omega):
        raise ValueError(f"frequencies holds {omega!r}; allowed are finite numbers")
    turns = round(Fraction(omega) * TURNS / 2**64) % 2**64
    return turns - 2**64 if turns >= 2**63 else turns


def _values(frequencies, base, width):
    """Frequencies as a list of Python floats, whatever holds them."""
    if frequencies is None:
        return [float(w) for w in rotary._frequencies(width, base)]
    like = torch.empty(0) if not isinstance(frequencies, torch.Tensor) else frequencies
    return rotary._given_or_of_base(arrays.namespace_of("like", like), frequencies, base, width, like, like).tolist()


def _width(width, frequencies):
    """How many channels turn, where no vectors say it."""
    if width is not None:
        return rotary._even("width", width)
    if frequencies is None:
        raise TypeError("width is None; allowed is an even number, or frequencies in its place")
    shape = (len(frequencies),) if isinstance(frequencies, tuple) else getattr(frequencies, "shape", None)
    if shape is None or len(shape) != 1:
        raise ValueError(f"frequencies is {frequencies!r}; allowed is float64 of shape (pairs,): a tensor, an array, or a tuple of floats")
    return 2 * shape[0]


def _positions(positions):
    """A tensor of integers without gaps, or a Python int of 64 bits."""
    if isinstance(positions, torch.Tensor):
        arrays.integers(arrays.namespace_of("positions", positions), positions=positions)
        if not 1 <= positions.ndim <= 2:
            raise ValueError(f"positions has shape {tuple(positions.shape)}; allowed are (length,) and (batch, length), or a number")
        return positions.contiguous()
    if isinstance(positions, bool) or not hasattr(positions, "__index__"):
        raise TypeError(f"positions is {positions!r}; allowed is a tensor of integers, or the whole number where the first row stands")
    positions = operator.index(positions)
    if not -2**62 <= positions <= 2**62:
        raise ValueError(f"positions is {positions}; allowed is up to 2**62 in size")
    return positions


# ---- rotation -------------------------------------------------------------------------------------------------------

def rotate(q, k, positions, *, layout, width=None, base=10000.0, frequencies=None, angles="tables", inverse=False, out=None):
    """Turn queries and keys by the angles of their positions, in one launch.

    Parameters
    ----------
    q : tensor, float32, float16 or bfloat16, shape (batch, heads, length, head width)
        Any strides, but channels must lie side by side.
    k : like `q`, shape (batch, key heads, length, head width), or None
        Its heads divide those of `q` (grouped-query attention).  None turns `q` alone.
    positions : tensor, integers, shape (length,) or (batch, length), or int, or Angles
        Ids of any sign and order (batch may be 1), or the position of the first row.  Angles, from `tables` or `phases`, hold for
        all layers, and for `width`, `base`, `frequencies` and `angles` too.
    layout : {"half", "interleaved"}
    width, base, frequencies
        As for `poslib.rotary.rotate`.
    angles : {"tables", "phase"}
        Where cosines come from: tables formed here in float64, or the kernel, by 64-bit integers (see `phases`).
    inverse : bool
        Turn back: by the negated angles.
    out : (tensor, tensor), or tensor where `k` is None, optional
        Where the results go: like `q` and `k`, or these themselves (in place).  Not while torch records gradients.

    Returns
    -------
    q, k : like those given, new tensors or `out`; `q` alone where `k` is None.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Notes
    -----
    Su et al. 2021, equation 34.  The gradient is the inverse turn, in one launch too, and can be differentiated again.  Results are those of
    `poslib.rotary.rotate` up to the last place of float32, since a GPU may fuse products with sums, and are rounded once to narrower dtypes.
    With tables the call is ready for any number of layers once they are made; with angles="phase" nothing but the vectors is read.

    Examples
    --------
    >>> import torch
    >>> q, k = torch.ones(1, 4, 3, 8), torch.ones(1, 2, 3, 8)               # two query heads for each key head
    >>> q, k = rotate(q, k, 0, layout="half")
    >>> bool((q[:, :2] == k).all())
    True
    """
    arrays.flag("inverse", inverse)
    rotary._layout(layout)
    _check_vectors(q, k)
    angles = _angles_for(q, positions, width, base, frequencies, angles)
    interleaved = layout == "interleaved"
    if out is None and _differentiates(q, k):
        turned = _Rotate.apply(q, k, *angles._parts(), interleaved, inverse)
    else:                                                   # without autograd's own wait for each call
        turned = _new(q, k) if out is None else _outputs(q, k, out, angles)
        _rotate_into(q, k, *turned, angles, interleaved, inverse)
    return turned[0] if k is None else tuple(turned)


def _differentiates(q, k):
    """Whether autograd looks on: backwards, or forwards, which `_Rotate` refuses."""
    recorded = torch.is_grad_enabled() and (q.requires_grad or k is not None and k.requires_grad)
    return recorded or forward_ad._current_level >= 0


def _new(q, k):
    return [None if x is None else torch.empty_like(x) for x in (q, k)]


class _Rotate(torch.autograd.Function):
    """Orthogonal, so that the gradient is the turn back.  Tables and ids are arguments, so that torch notices if they are changed."""

    @staticmethod
    def forward(q, k, cos, sin, increments, positions, interleaved, inverse):
        outs = _new(q, k)
        _rotate_into(q, k, *outs, Angles(cos, sin, increments, positions), interleaved, inverse)
        return tuple(outs)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, _, cos, sin, increments, positions, ctx.interleaved, ctx.inverse = inputs
        ids = isinstance(positions, torch.Tensor)
        ctx.save_for_backward(cos, sin, increments, positions if ids else None)
        ctx.offset = None if ids else positions
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, q, k):
        q, k = (x if x is None or x.stride(-1) == 1 else x.contiguous() for x in (q, k))
        cos, sin, increments, ids = ctx.saved_tensors
        back = cos, sin, increments, ctx.offset if ids is None else ids, ctx.interleaved, not ctx.inverse
        if q is not None:
            q, k = _Rotate.apply(q, k, *back)
        elif k is not None:                                 # keys alone
            k, _ = _Rotate.apply(k, None, *back)
        return q, k, *(None,) * 6


def _rotate_into(q, k, out_q, out_k, angles, interleaved, inverse):
    """One launch, of the kernel that fits the length."""
    batch, q_heads, length, head_width = q.shape
    if not q.numel():
        return
    k_heads = 0 if k is None else k.shape[1]
    in_place = out_q is q and out_k is k
    if k is None:
        k, out_k = q, out_q                                 # never read
    short = length <= SHORT
    block = triton.next_power_of_2(angles.pairs)
    config = configs.find("rows" if short else "rotate", 2 * block, q.element_size(), _runtime.architecture(q.device))
    blocks = _blocks(length, config.rows)
    tensors = (q, k, out_q, out_k, *_pointers(angles, q))
    strides = (*q.stride()[:3], *k.stride()[:3], *out_q.stride()[:3], *out_k.stride()[:3])
    settings = dict(_settings(angles, block, head_width, interleaved), INVERSE=inverse, ROWS=config.rows,
                    BLOCK_TAIL=0 if in_place else _tail(head_width, angles.pairs),
                    num_warps=config.warps, num_stages=config.stages)
    with _runtime.on(q.device):
        if short:
            q_count, k_count = (_count(batch, length, heads) for heads in (q_heads, k_heads))
            q_blocks, k_blocks = (_blocks(count, config.rows) for count in (q_count, k_count))
            _runtime.launcher(rows_kernel, q_blocks + k_blocks)(
                *tensors, *_steps(angles), length, q_count, k_count, q_blocks, *strides,
                Q_HEADS=q_heads, K_HEADS=max(k_heads, 1), **settings)
        else:
            group = q_heads // (k_heads or 1)
            heads = max(n for n in range(1, 9) if group % n == 0)
            _runtime.launcher(rotate_kernel, batch * blocks, q_heads // heads)(
                *tensors, *_steps(angles), length, blocks, *strides, GROUP=group, HEADS=heads, HAS_K=k_heads > 0, **settings)


def _blocks(count, rows):
    return -(-count // rows)


def _pointers(angles, like):
    """Tables, increments and positions; where there are none, something to point at."""
    return (*(like if t is None else t for t in (angles.cos, angles.sin, angles.increments)),
            angles.positions if isinstance(angles.positions, torch.Tensor) else like)


def _steps(angles):
    """The position of the first row, and how far the angles of one entry of the batch are from those of the next."""
    given = angles.cos if angles.increments is None else angles.positions
    if not isinstance(given, torch.Tensor):
        return given, 0
    shape = given.shape[:-1] if angles.increments is None else given.shape
    return 0, shape[1] if len(shape) == 2 and shape[0] > 1 else 0


def _settings(angles, block, head_width, interleaved):
    return {"PHASE": angles.increments is not None, "HAS_POSITIONS": isinstance(angles.positions, torch.Tensor),
            "INTERLEAVED": interleaved, "WIDTH": head_width, "PAIRS": angles.pairs, "BLOCK_PAIRS": block}


def _tail(head_width, pairs):
    """Room for the channels that do not turn."""
    return triton.next_power_of_2(head_width - 2 * pairs) if head_width > 2 * pairs else 0


def _count(batch, length, heads):
    count = batch * length * heads
    if count >= 2**31 - 2**16:                              # rows are numbered in 32 bits
        raise ValueError(f"batch, length and heads are {batch}, {length}, {heads}; allowed are fewer than 2**31 - 2**16 rows in a launch")
    return count


# ---- writing to a cache ---------------------------------------------------------------------------------------------

def write(k, v, cache_k, cache_v, positions=None, *, layout, offset=None, slots=None, width=None, base=10000.0, frequencies=None,
          angles="tables"):
    """Write keys, turned, and values, as they are, to their places in a cache, in one launch.

    Parameters
    ----------
    k : tensor, float32, float16 or bfloat16, shape (batch, heads, length, head width)
    v : like `k`, but its head width may be another
    cache_k, cache_v : like `k` and `v`, shape (batch, heads, slots, head width), or (pages, heads, page, head width) with `slots`
        Changed.  What is not addressed is not touched.
    positions : tensor, int or Angles, optional
        Of the keys, as for `rotate`.  With `offset` they are the places in the cache unless given.
    layout : {"half", "interleaved"}
    offset : int, or tensor, integers, shape (batch,)
        Where the first token goes, in all entries of the batch or in each; the others follow it.
    slots : tensor, integers, shape (batch, length)
        In place of `offset`, for a cache of pages: token goes to page slot // page, row slot % page.  Negative ones are
        left out (padding); no slot may be named twice.
    width, base, frequencies, angles
        As for `rotate`.

    Returns
    -------
    cache_k, cache_v : the tensors given

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.  Places outside the cache are refused if they are numbers or on the CPU;
        on a GPU, where looking at them would wait for it, nothing is written there.

    Examples
    --------
    >>> import torch
    >>> cache_k, cache_v = torch.zeros(1, 2, 8, 4), torch.zeros(1, 2, 8, 4)
    >>> _ = write(torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 4), cache_k, cache_v, layout="half", offset=5)
    >>> cache_v[0, 0, :, 0]
    tensor([0., 0., 0., 0., 0., 1., 1., 1.])
    """
    rotary._layout(layout)
    _check_write(k, v, cache_k, cache_v)
    batch, heads, length, head_width = k.shape
    where, start = _places(k, cache_k, offset, slots)
    if positions is None:
        if slots is not None:
            raise TypeError("positions is None; allowed with slots are ids, a number or Angles: slots do not tell where a token stands")
        positions = start if where is None else where[:, None] + torch.arange(length, device=where.device)
    angles = _angles_for(k, positions, width, base, frequencies, angles)
    if not k.numel():
        return cache_k, cache_v
    block = triton.next_power_of_2(angles.pairs)
    config = configs.find("write", 2 * block, k.element_size(), _runtime.architecture(k.device))
    count = _count(batch, length, heads)
    with _runtime.on(k.device):
        _runtime.launcher(write_kernel, _blocks(count, config.rows))(
            k, v, cache_k, cache_v, k if where is None else where, *_pointers(angles, k), *_steps(angles), length, count, start,
            cache_k.shape[0] * cache_k.shape[2], *k.stride()[:3], *v.stride()[:3], *cache_k.stride()[:3], *cache_v.stride()[:3],
            HEADS=heads, PAGE=cache_k.shape[2], PAGED=slots is not None, HAS_STARTS=where is not None,
            **_settings(angles, block, head_width, layout == "interleaved"), BLOCK_TAIL=_tail(head_width, angles.pairs),
            V_WIDTH=v.shape[3], BLOCK_V=triton.next_power_of_2(v.shape[3]), ROWS=config.rows,
            num_warps=config.warps, num_stages=config.stages)
    return cache_k, cache_v


def _places(k, cache, offset, slots):
    """A tensor of slots, or of first slots, or None; and the first slot of all where it is None."""
    batch, _, length, _ = k.shape
    if (offset is None) == (slots is None):
        raise TypeError(f"offset is {offset!r}, slots is {slots!r}; allowed is one of the two")
    name, given, shape, size = ("offset", offset, (batch,), cache.shape[2] - length + 1) if slots is None else \
        ("slots", slots, (batch, length), cache.shape[0] * cache.shape[2])
    if slots is None and cache.shape[0] != batch:
        raise ValueError(f"cache_k has shape {tuple(cache.shape)}, k {tuple(k.shape)}: with offset they must have one batch")
    if not isinstance(given, torch.Tensor):
        if slots is not None or isinstance(given, bool) or not hasattr(given, "__index__"):
            allowed = "a tensor of integers" + (", or a whole number" if slots is None else "")
            raise TypeError(f"{name} is {given!r}; allowed is {allowed}")
        given = operator.index(given)
        if not 0 <= given < max(size, 1) or size < 1:
            raise ValueError(f"offset is {given}, k has {length} tokens, cache_k {cache.shape[2]} slots; allowed is 0 to {size - 1}")
        return None, given
    arrays.integers(arrays.namespace_of(name, given), **{name: given})
    arrays.same_device(k=k, **{name: given})
    if tuple(given.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(given.shape)}, k {tuple(k.shape)}; allowed is {shape}")
    if given.device.type == "cpu" and given.numel():
        low, high = int(given.min()), int(given.max())
        if high >= size or slots is None and low < 0:
            raise ValueError(f"{name} holds {high if high >= size else low}, k has {length} tokens, cache_k shape {tuple(cache.shape)}; "
                             f"allowed is {'0' if slots is None else 'below 0, to leave a token out, or up'} to {size - 1}")
    return given.contiguous(), 0


# ---- checks ---------------------------------------------------------------------------------------------------------

def _check_tensor(name, x, like=None):
    """A tensor (batch, heads, length, head width) that kernels can read, of the dtype and device of `like` = (name, tensor)."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name} is a {type(x).__name__}; allowed is a tensor")
    if x.dtype not in FLOATS:
        raise TypeError(f"{name} has dtype {x.dtype}; allowed are float32, float16 and bfloat16 (poslib.rotary turns others)")
    if x.ndim != 4:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; allowed is (batch, heads, length, head width)")
    if x.shape[3] > 1 and x.stride(3) != 1:
        raise ValueError(f"{name} has strides {x.stride()}; allowed is 1 for the channels, as {name}.contiguous() has it")
    _runtime.check_device(name, x)
    if like is not None:
        other, y = like
        arrays.same_device(**{other: y, name: x})
        if x.dtype != y.dtype:
            raise TypeError(f"{name} has dtype {x.dtype}, {other} {y.dtype}: they must be the same")


def _check_vectors(q, k):
    _check_tensor("q", q)
    if k is None:
        return
    _check_tensor("k", k, ("q", q))
    if (k.shape[0], *k.shape[2:]) != (q.shape[0], *q.shape[2:]):
        raise ValueError(f"q has shape {tuple(q.shape)}, k {tuple(k.shape)}: they may differ in their heads alone")
    if q.shape[1] and not k.shape[1] or k.shape[1] and q.shape[1] % k.shape[1] or k.shape[1] > q.shape[1]:
        raise ValueError(f"q has {q.shape[1]} heads, k {k.shape[1]}; allowed is a number that divides those of q")


def _angles_for(x, positions, width, base, frequencies, kind):
    """Angles that fit `x`, made here unless they are given."""
    if kind not in ("tables", "phase"):
        raise ValueError(f"angles is {kind!r}; allowed are 'tables' and 'phase'")
    if isinstance(positions, Angles):
        if width is not None or base != 10000.0 or frequencies is not None:
            raise ValueError(f"width is {width!r}, base {base!r}, frequencies {frequencies!r}, and positions are Angles, which hold these; "
                             "allowed is one of the two")
        angles = positions
        if 2 * angles.pairs > x.shape[3]:
            raise ValueError(f"positions turns {angles.pairs} pairs, x has shape {tuple(x.shape)}; allowed are at most {x.shape[3] // 2}")
    else:
        width = rotary._turned_width("x", x.shape, x.shape[3], width)
        if isinstance(frequencies, torch.Tensor) and frequencies.requires_grad and torch.is_grad_enabled():
            raise ValueError("frequencies requires a gradient, which kernels do not form; allowed are fixed ones, or poslib.rotary.rotate")
        positions = _positions(positions)
        if kind == "phase":
            angles = phases(positions, width=width, base=base, frequencies=frequencies, device=x.device)
        else:
            if isinstance(positions, int):
                positions = torch.arange(positions, positions + x.shape[2], device=x.device)
            angles = tables(positions, width=width, base=base, frequencies=frequencies)
    for name, t in (("positions", t) for t in angles._tensors()):
        arrays.same_device(x=x, **{name: t})
    rows = angles.positions if angles.cos is None else angles.cos[..., 0]
    if isinstance(rows, torch.Tensor):
        rotary._check_rows(x, rows)
    return angles


def _outputs(q, k, out, angles):
    """`out` as [of q, of k or None], after all checks that writing to it asks for."""
    pair = (out,) if k is None else out
    if k is not None and (not isinstance(out, (tuple, list)) or len(out) != 2):
        raise TypeError(f"out is a {type(out).__name__}; allowed is a pair of tensors, (q, k) for a turn in place")
    named = [("q", q, pair[0])] + ([] if k is None else [("k", k, pair[1])])
    for name, x, y in named:
        _check_tensor(f"out of {name}", y, (name, x))
        rotary._check_out(arrays.namespace_of("x", x), y, x)
    if k is not None:
        for name, x, other, y in (("q", q, "k", pair[1]), ("k", k, "q", pair[0])):
            if arrays.overlap(x, y):
                raise ValueError(f"out of {other} overlaps {name} in memory; allowed are tensors apart from each other")
        if arrays.overlap(*pair):
            raise ValueError("out of q overlaps out of k in memory; allowed are tensors apart from each other")
    for t in angles._tensors():
        if any(arrays.overlap(y, t) for y in pair):
            raise ValueError("out overlaps the positions or tables in memory; allowed are tensors apart from them")
    return [x if arrays.same_memory(x, y) else y for _, x, y in named] + [None] * (k is None)


def _check_write(k, v, cache_k, cache_v):
    _check_tensor("k", k)
    for name, x in (("v", v), ("cache_k", cache_k), ("cache_v", cache_v)):
        _check_tensor(name, x, ("k", k))
    if v.shape[:3] != k.shape[:3]:
        raise ValueError(f"k has shape {tuple(k.shape)}, v {tuple(v.shape)}: they may differ in their head width alone")
    for name, x, cache in (("k", k, cache_k), ("v", v, cache_v)):
        if (cache.shape[1], cache.shape[3]) != (x.shape[1], x.shape[3]):
            raise ValueError(f"{name} has shape {tuple(x.shape)}, cache_{name} {tuple(cache.shape)}: heads and head width must be the same")
        if arrays.overlaps_itself(cache):
            raise ValueError(f"cache_{name} has entries that share memory, as broadcast tensors do; allowed is one place for each")
        for other, y in (("k", k), ("v", v)) + ((("cache_k", cache_k),) if name == "v" else ()):
            if arrays.overlap(cache, y):
                raise ValueError(f"cache_{name} overlaps {other} in memory; allowed are tensors apart from each other")
    if cache_v.shape[:3] != cache_k.shape[:3]:
        raise ValueError(f"cache_k has shape {tuple(cache_k.shape)}, cache_v {tuple(cache_v.shape)}: they may differ in their head width alone")
    if torch.is_grad_enabled() and any(t.requires_grad for t in (k, v, cache_k, cache_v)):
        raise ValueError("gradients are recorded, and a cache takes none; allowed is torch.no_grad(), or tensors that require none")
