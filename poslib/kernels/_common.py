"""What all kernels share: exact rounding, operands of dot products, the turn of a tile in both layouts.

A row of vectors becomes two tiles, the first and the second channel of each pair: `load_pairs` and `store_pairs` know
the layout, and nothing between them does.
"""

from __future__ import annotations

from poslib.kernels import _runtime

MODE = _runtime.mode()                      # before triton is imported

import triton                               # noqa: E402
import triton.language as tl                # noqa: E402

INTERP = tl.constexpr(MODE == "interpreted")
LOG2E = tl.constexpr(1.4426950408889634)    # exp(x) = exp2(x LOG2E)

# Angle of 2⁻³⁴ turns, and sin t = t + t³ S(t²), cos t = 1 - t²/2 + t⁴ C(t²) for |t| up to π/4: near-minimax polynomials,
# fitted in Chebyshev points.  Both are within 1e-8, less than a float32 near 1 resolves.
STEP = tl.constexpr(3.6572951981678992e-10)
S0, S1, S2 = tl.constexpr(-0.166666646623), tl.constexpr(0.00833274827063), tl.constexpr(-0.000195878908804)
C0, C1, C2 = tl.constexpr(0.0416666646595), tl.constexpr(-0.00138883030359), tl.constexpr(2.45479420851e-05)


@triton.jit
def nearest_bf16(x):
    """float32 to bfloat16, ties to even, in integers: the interpreter's own cast cuts bits off.

    NaN stays NaN: its payload is cut instead of rounded, which could carry it into the sign.
    """
    bits = x.to(tl.uint32, bitcast=True)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    bits = tl.where(x == x, rounded, (bits >> 16) | 0x40)
    return bits.to(tl.uint16).to(tl.bfloat16, bitcast=True)


@triton.jit
def rounded(x, DTYPE: tl.constexpr):
    """A float32 tile in the dtype of memory, rounded once."""
    if INTERP and DTYPE == tl.bfloat16:
        return nearest_bf16(x)
    else:
        return x.to(DTYPE)


@triton.jit
def operand(x, DTYPE: tl.constexpr):
    """A float32 tile rounded to `DTYPE` for ``tl.dot``.  The interpreter multiplies bfloat16 wrongly: there its values, in float32."""
    if INTERP and DTYPE == tl.bfloat16:
        return nearest_bf16(x).to(tl.float32)
    else:
        return x.to(DTYPE)


@triton.jit
def loaded_operand(x):
    """A tile as it came from memory, for ``tl.dot``."""
    if INTERP and x.dtype == tl.bfloat16:
        return x.to(tl.float32)
    else:
        return x


@triton.jit
def turn(a, b, cos, sin):
    """The pairs (a, b), turned; all float32.  Su et al. 2021, equation 34."""
    return a * cos - b * sin, b * cos + a * sin


@triton.jit
def load_pairs(rows, ok, PAIRS: tl.constexpr, BLOCK_PAIRS: tl.constexpr, INTERLEAVED: tl.constexpr):
    """Both channels of each pair, (rows, BLOCK_PAIRS) in the dtype of memory.

    rows: pointers to channel 0, (rows,); ok: which of them exist.  The layout "interleaved" is loaded whole and pulled apart in
    registers, since loads of every second channel would be narrow.
    """
    if INTERLEAVED:
        channel = tl.arange(0, 2 * BLOCK_PAIRS)
        if BLOCK_PAIRS == PAIRS:
            x = tl.load(rows[:, None] + channel[None, :], mask=ok[:, None], other=0.0)
        else:
            x = tl.load(rows[:, None] + channel[None, :], mask=ok[:, None] & (channel < 2 * PAIRS)[None, :], other=0.0)
        a, b = tl.split(tl.reshape(x, (x.shape[0], BLOCK_PAIRS, 2)))
    else:
        pair = tl.arange(0, BLOCK_PAIRS)
        first = rows[:, None] + pair[None, :]
        if BLOCK_PAIRS == PAIRS:
            a = tl.load(first, mask=ok[:, None], other=0.0)
            b = tl.load(first + PAIRS, mask=ok[:, None], other=0.0)
        else:
            there = ok[:, None] & (pair < PAIRS)[None, :]
            a = tl.load(first, mask=there, other=0.0)
            b = tl.load(first + PAIRS, mask=there, other=0.0)
    return a, b


@triton.jit
def store_pairs(rows, ok, a, b, PAIRS: tl.constexpr, BLOCK_PAIRS: tl.constexpr, INTERLEAVED: tl.constexpr):
    """The inverse of `load_pairs`; float32 tiles, rounded here."""
    DTYPE: tl.constexpr = rows.dtype.element_ty
    if INTERLEAVED:
        channel = tl.arange(0, 2 * BLOCK_PAIRS)
        x = rounded(tl.reshape(tl.join(a, b), (a.shape[0], 2 * BLOCK_PAIRS)), DTYPE)
        if BLOCK_PAIRS == PAIRS:
            tl.store(rows[:, None] + channel[None, :], x, mask=ok[:, None])
        else:
            tl.store(rows[:, None] + channel[None, :], x, mask=ok[:, None] & (channel < 2 * PAIRS)[None, :])
    else:
        pair = tl.arange(0, BLOCK_PAIRS)
        first = rows[:, None] + pair[None, :]
        if BLOCK_PAIRS == PAIRS:
            there = ok[:, None]
        else:
            there = ok[:, None] & (pair < PAIRS)[None, :]
        tl.store(first, rounded(a, DTYPE), mask=there)
        tl.store(first + PAIRS, rounded(b, DTYPE), mask=there)


@triton.jit
def load_tables(COS, SIN, row, ok, PAIRS: tl.constexpr, BLOCK_PAIRS: tl.constexpr):
    """Cosines and sines, float32 (rows, BLOCK_PAIRS), from tables (..., PAIRS) without gaps; row: int64 index of a row in them."""
    pair = tl.arange(0, BLOCK_PAIRS)
    at = row[:, None] * PAIRS + pair[None, :]
    if BLOCK_PAIRS == PAIRS:
        there = ok[:, None]
    else:
        there = ok[:, None] & (pair < PAIRS)[None, :]
    return tl.load(COS + at, mask=there, other=1.0), tl.load(SIN + at, mask=there, other=0.0)


@triton.jit
def phase_tables(INCREMENTS, position, PAIRS: tl.constexpr, BLOCK_PAIRS: tl.constexpr):
    """Cosines and sines, float32 (rows, BLOCK_PAIRS), of positions (rows,) times increments: turns per position times 2⁶⁴, int64.

    The product of integers drops whole turns and nothing else, so the angle is as exact at position 10⁶ as at 1.  The top
    two bits, rounded, are its quarter; the rest, within an eighth of a turn, goes through short polynomials.
    """
    pair = tl.arange(0, BLOCK_PAIRS)
    increment = tl.load(INCREMENTS + pair, mask=pair < PAIRS, other=0)
    phase = position.to(tl.int64)[:, None] * increment[None, :]
    quarter = (phase + (1 << 61)) >> 62
    t = ((phase - (quarter << 62)) >> 30).to(tl.int32).to(tl.float32) * STEP
    u = t * t
    sine = t + t * u * (S0 + u * (S1 + u * S2))
    cosine = 1.0 - 0.5 * u + u * u * (C0 + u * (C1 + u * C2))
    odd = (quarter & 1) != 0
    cos = tl.where(odd, sine, cosine)
    sin = tl.where(odd, cosine, sine)
    return tl.where(((quarter + 1) & 2) != 0, -cos, cos), tl.where((quarter & 2) != 0, -sin, sin)
