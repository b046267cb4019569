"""How near the codes of two positions come, in exact arithmetic and after rounding.

A code is the list of (cos, sin) of the phases p·ω, one pair for each frequency ω, in radians per position.
What two codes have in common depends on the lag between the positions alone, so every count below
is a sum over lags.  `kernel` and `distance` return the kind of array they are given; the rest, which is
analysis, returns numbers and numpy arrays.
"""

from __future__ import annotations

import math
import numbers
from fractions import Fraction
from typing import NamedTuple

import array_api_compat as api
import numpy as np

from poslib import _arrays as arrays
from poslib.absolute import EXACT, _number, _positions

__all__ = ["Collisions", "angle_error", "collision_counts", "distance", "distinct_positions", "kernel",
           "merged_positions", "nearest_lag", "rounded"]

CHUNK = 1 << 16     # lags at a time
PRECISIONS = {      # bits of the significand, exponents of the smallest and the largest normal number
    "bf16": (8, -126, 127),
    "fp16": (11, -14, 15),
    "fp32": (24, -126, 127),
}
# 2π within 1e-80
TURN = 2 * Fraction("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803")


def kernel(lags, frequencies, *, fractional=False):
    """κ(τ) = Σ_k cos(τ ω_k): the dot product of two codes at lag τ.

    Parameters
    ----------
    lags : integer array or tensor, shape (...)
        Any sign, up to 2**53 in size.
    frequencies : float array or tensor of the same kind, shape (n,), n at least 1
        Radians per position, up to 2**53 in size.
    fractional : bool
        Allow floats as lags, up to 2**53 in size.

    Returns
    -------
    Same kind, float64, shape (...)
        n at lag 0, even in the lag.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Notes
    -----
    Dot product of Vaswani et al. 2017 (arXiv 1706.03762), section 3.5, by cos a cos b + sin a sin b = cos(a - b).

    Examples
    --------
    >>> import numpy as np
    >>> kernel(np.array([0, 1, 44]), np.array([1.0, 0.01])).round(3)
    array([2.   , 1.54 , 1.905])
    """
    xp = arrays.same_kind(lags=lags, frequencies=frequencies)
    tau = _positions("lags", lags, fractional)
    return _sum(xp.cos(tau * w) for w in _rates(frequencies))


def distance(lags, frequencies, *, fractional=False):
    """Euclidean distance of two codes at lag τ: sqrt(2(n - κ(τ))).

    Formed as 2 sqrt(Σ_k sin²(τω_k/2)), without the cancellation of n - κ, so that small distances
    keep all their digits.

    Parameters
    ----------
    lags, frequencies, fractional
        As for `kernel`.

    Returns
    -------
    Same kind, float64, shape (...)

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Examples
    --------
    >>> import numpy as np
    >>> distance(np.array([0, 1, 44]), np.array([1.0, 0.01])).round(3)
    array([0.   , 0.959, 0.437])
    """
    xp = arrays.same_kind(lags=lags, frequencies=frequencies)
    tau = _positions("lags", lags, fractional)
    return 2 * xp.sqrt(_sum(xp.sin(tau * (w / 2)) ** 2 for w in _rates(frequencies)))


def nearest_lag(frequencies, limit):
    """The lag in 1 ... limit at which codes come closest, the smallest if several do.

    Parameters
    ----------
    frequencies : float array or tensor, shape (n,), n at least 1
    limit : int, at least 1, up to 2**53

    Returns
    -------
    lag : int
    distance : float

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Notes
    -----
    Works through the lags a chunk at a time; memory does not grow with `limit`.

    Examples
    --------
    >>> import numpy as np
    >>> lag, gap = nearest_lag(np.array([1.0]), 100)     # 44 radians are nearly seven turns
    >>> lag, round(gap, 4)
    (44, 0.0177)
    """
    omega = np.asarray(_rates(frequencies))
    limit = _length("limit", limit)
    best, least = 0, math.inf
    for tau in _chunks(1, limit + 1):
        d = distance(tau, omega)
        i = int(np.argmin(d))
        if best == 0 or d[i] < least:
            best, least = int(tau[i]), float(d[i])
    return best, least


class Collisions(NamedTuple):
    """What `collision_counts` returns: numbers of pairs of different positions i < j.

    Parameters
    ----------
    pairs : int
        All pairs.
    joint : int
        Those that collide at every frequency.
    each : tuple of int
        For each frequency those that collide at it.

    Examples
    --------
    >>> import numpy as np
    >>> counts = collision_counts(np.array([1.0, 0.5]), 50, 0.02)
    >>> counts.pairs, counts.joint, counts.each
    (1225, 0, (6, 0))
    """

    pairs: int
    joint: int
    each: tuple


def collision_counts(frequencies, length, tolerance):
    """How many pairs of positions 0 ... length - 1 have phases that agree within a tolerance.

    Parameters
    ----------
    frequencies : float array or tensor, shape (n,), n at least 1
    length : int, at least 1
    tolerance : float, 0 to π
        Two phases agree when they are at most this far apart on the circle, in radians.

    Returns
    -------
    Collisions
        pairs = length(length - 1)/2; joint, the pairs that agree at every frequency; each, a count for every
        frequency.  Two positions drawn independently, which may be the same, collide with probability
        (2·joint + length)/length².

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Notes
    -----
    A lag τ stands for length - τ pairs.  The count is exact for the frequencies as given: a phase too close
    to the tolerance for float64 is decided in rational arithmetic.  Mind that a float is no exact
    fraction of 2π, and that 64 steps of the float 2π/64 miss the full turn by about 1e-16; with a tolerance
    of 0 nothing but a frequency of 0 collides.

    Examples
    --------
    >>> import numpy as np
    >>> collision_counts(np.array([1.0, 2.0]), 50, 0.02)
    Collisions(pairs=1225, joint=0, each=(6, 28))
    """
    omega = _rates(frequencies)
    length = _length("length", length)
    if isinstance(tolerance, bool) or not isinstance(tolerance, numbers.Real) or not 0 <= tolerance <= math.pi:
        raise ValueError(f"tolerance is {tolerance!r}; allowed is an angle from 0 to pi, in radians")
    tolerance = float(tolerance)
    joint, each = 0, [0] * len(omega)
    for tau in _chunks(1, length):
        weight = length - tau
        together = np.ones(len(tau), bool)
        for k, w in enumerate(omega):
            agree = _agree(tau, w, tolerance)
            each[k] += int(weight[agree].sum())
            together &= agree
        joint += int(weight[together].sum())
    return Collisions(length * (length - 1) // 2, joint, tuple(each))


def rounded(x, dtype):
    """Numbers rounded to bf16, fp16 or fp32, to nearest with ties to even, as those formats do.

    Parameters
    ----------
    x : float or integer array or tensor, shape (...)
        Taken to float64 first, which must not lose anything.
    dtype : {"bf16", "fp16", "fp32"}

    Returns
    -------
    numpy float64, shape (...)
        Rounded once, subnormals included; too large becomes infinite.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Notes
    -----
    IEEE 754-2019, sections 3.3 and 4.3.1; bf16 is float32 with an 8 bit significand.

    Examples
    --------
    >>> import numpy as np
    >>> rounded(np.array([256, 257, 258]), "bf16")
    array([256., 256., 258.])
    """
    _precision(dtype)
    xp = arrays.namespace_of("x", x)
    if xp.isdtype(x.dtype, "integral"):
        x = _positions("x", x, False)
    else:
        arrays.floats(xp, x=x)
    return _round(_numpy(xp.astype(x, xp.float64)), dtype)


def merged_positions(frequency, length, dtype):
    """Positions whose rounded (cos, sin) equals that of the next position.

    Parameters
    ----------
    frequency : float
        Radians per position, up to 2**53 in size.
    length : int, at least 1
        Positions 0 ... length - 1; the last has no next one.
    dtype : {"bf16", "fp16", "fp32"}
        What cosine and sine are stored in; both are computed in float64.

    Returns
    -------
    numpy int64, shape (number of them,), ascending
        Each m for which m and m + 1 merge.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Examples
    --------
    >>> merged_positions(1e-4, 262, "bf16")
    array([157, 163, 168, 174, 179, 185, 190, 196, 201, 207, 212, 218, 223,
           229, 234, 240, 246, 251, 257])
    """
    if isinstance(frequency, bool) or not isinstance(frequency, numbers.Real) or not abs(frequency) <= EXACT:
        raise ValueError(f"frequency is {frequency!r}; allowed is a number up to 2**53 in size, "
                         "in radians per position")
    length = _length("length", length)
    _precision(dtype)
    merged = [np.empty(0, np.int64)]
    for m in _chunks(0, length - 1):
        here, there = m * float(frequency), (m + 1) * float(frequency)
        same = np.ones(len(m), bool)
        for f in (np.cos, np.sin):
            same &= _round(f(here), dtype) == _round(f(there), dtype)
        merged.append(m[same])
    return np.concatenate(merged)


def angle_error(positions, frequencies, dtype, how):
    """The largest error of a phase, in radians, when it is formed in low precision.

    The maximum is over all positions given and all frequencies; for "up to position m" give
    ``np.arange(m + 1)``.  Errors are not reduced modulo a turn.

    Parameters
    ----------
    positions : integer array or tensor, shape (...), at least one
    frequencies : float array or tensor, shape (n,), n at least 1
    dtype : {"bf16", "fp16", "fp32"}
    how : {"frequencies", "angle", "all"}
        What is rounded to `dtype`: the frequencies only; the exact angle only; or position, frequency and
        their product in turn, as when everything is computed in `dtype`.

    Returns
    -------
    float
        Largest abs(computed - p·ω); infinite when a position or angle overflows.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Notes
    -----
    Rounding to nearest with p significant bits errs by at most 2**-p of the number, so "frequencies" errs by
    at most max(p·ω)·2**-8 in bf16 as long as ω is a normal number.

    Examples
    --------
    >>> import numpy as np
    >>> round(angle_error(np.arange(1000), np.array([1.0, 0.1]), "bf16", "angle"), 3)
    2.0
    """
    w = np.asarray(_rates(frequencies))
    _precision(dtype)
    if how not in ("frequencies", "angle", "all"):
        raise ValueError(f"how is {how!r}; allowed are 'frequencies', 'angle' and 'all'")
    p = _numpy(_positions("positions", positions, False)).reshape(-1)
    if p.size == 0:
        raise ValueError(f"positions has shape {tuple(positions.shape)}; allowed is at least one position")
    low, worst = _round(w, dtype), 0.0
    for start in range(0, p.size, CHUNK // 8):
        m = p[start:start + CHUNK // 8, None]
        with np.errstate(invalid="ignore", over="ignore"):     # infinity · 0
            if how == "frequencies":
                error = m * (low - w)
            elif how == "angle":
                error = _round(m * w, dtype) - m * w
            else:
                error = _round(_round(m, dtype) * low, dtype) - m * w
        worst = max(worst, float(np.max(np.nan_to_num(np.abs(error), nan=math.inf, posinf=math.inf))))
    return worst


def distinct_positions(length, dtype):
    """How many different numbers positions 0 ... length - 1 become when rounded.

    Not the number of representable integers below `length`: with ties to even the last positions may round up
    to `length` itself, which counts here, and to infinity, which counts once.

    Parameters
    ----------
    length : int, at least 1, up to 2**53
    dtype : {"bf16", "fp16", "fp32"}

    Returns
    -------
    int

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Examples
    --------
    >>> distinct_positions(1000, "bf16"), distinct_positions(1000, "fp16")
    (507, 1000)
    """
    length = _length("length", length)
    bits, _, largest = _precision(dtype)
    last = float(_round(np.asarray(float(length - 1)), dtype))
    infinite = math.isinf(last)
    last = 2 ** (largest + 1) - 2 ** (largest + 1 - bits) if infinite else int(last)
    octaves = max(last.bit_length() - bits, 0)      # each holds 2**(bits - 1) numbers, of spacing 2**octave
    return octaves * 2 ** (bits - 1) + (last >> octaves) + 1 + infinite


def _sum(terms):
    """Their sum, carrying what each addition loses (Neumaier 1974)."""
    total = next(terms)
    lost = 0 * total
    for x in terms:
        new = total + x
        part = new - total
        lost = lost + ((total - (new - part)) + (x - part))
        total = new
    return total + lost


def _agree(tau, w, tolerance):
    angle = tau * w
    gap = np.abs(np.arctan2(np.sin(angle), np.cos(angle)))
    agree = gap <= tolerance
    # float64 is in doubt when closer than the errors of product, sine, cosine and arctangent together
    for i in np.flatnonzero(np.abs(gap - tolerance) < np.where(angle == 0, 0, np.abs(angle) * 2.0**-52 + 2.0**-48)):
        exact = int(tau[i]) * Fraction(w)
        agree[i] = abs(exact - round(exact / TURN) * TURN) <= tolerance
    return agree


def _round(x, dtype):
    bits, smallest, largest = PRECISIONS[dtype]
    _, exponent = np.frexp(x)
    unit = np.maximum(exponent, smallest + 1) - bits       # exponent of the last place
    with np.errstate(over="ignore"):
        y = np.ldexp(np.rint(np.ldexp(x, -unit)), unit)
    return np.where(np.abs(y) >= 2.0 ** (largest + 1), np.copysign(np.inf, x), y)


def _rates(frequencies):
    """Frequencies as Python floats, checked."""
    xp = arrays.namespace_of("frequencies", frequencies)
    arrays.floats(xp, frequencies=frequencies)
    if frequencies.ndim != 1 or frequencies.shape[0] == 0:
        raise ValueError(f"frequencies has shape {tuple(frequencies.shape)}; allowed is (n,) with n at least 1")
    omega = frequencies.tolist()
    for w in omega:
        if not abs(w) <= EXACT:
            raise ValueError(f"frequencies holds {w}; allowed are numbers up to 2**53 in size, in radians per position")
    return omega


def _numpy(x):
    return np.asarray(api.to_device(x.detach() if api.is_torch_array(x) else x, "cpu"))


def _chunks(start, stop):
    for first in range(start, stop, CHUNK):
        yield np.arange(first, min(first + CHUNK, stop), dtype=np.int64)


def _precision(dtype):
    if not isinstance(dtype, str) or dtype not in PRECISIONS:
        raise ValueError(f"dtype is {dtype!r}; allowed are 'bf16', 'fp16' and 'fp32'")
    return PRECISIONS[dtype]


def _length(name, value):
    value = _number(name, value, at_least=1)
    if value > EXACT:
        raise ValueError(f"{name} is {value}; allowed is at most 2**53, which float64 holds exactly")
    return value
