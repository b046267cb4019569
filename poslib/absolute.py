"""Absolute position vectors: sinusoids and learned tables.

Positions are whole numbers of any sign and order, as numpy arrays or torch tensors; the same kind
comes back, on the same device.  Angles are formed in float64, whatever the dtype asked for, and
each result is rounded once.  Nothing is cached: a row depends on the arguments alone.
"""

from __future__ import annotations

import math
import operator

import array_api_compat as api

from poslib import _arrays as arrays

__all__ = ["frequencies", "lookup", "resize", "shift_matrix", "sinusoid", "sinusoid_2d"]

FORMS = ("paper", "blocks")
EXACT = 2**53       # float64 holds every whole number up to here


def frequencies(width, *, base=10000.0, form="paper", like=None):
    """Angular frequencies of `sinusoid`, fastest first.

    Parameters
    ----------
    width : int
        At least 1; at least 2 for ``form="blocks"``.
    base : float, at least 1
    form : {"paper", "blocks"}
        ``base**(-2k/width)`` for k < ceil(width/2), or ``base**(-i/(n-1))`` for i < n = width // 2.
    like : array or tensor, optional
        Decides kind and device of the result; numpy unless given.

    Returns
    -------
    float64, shape (ceil(width/2),) or (width // 2,)
        Radians per position.

    Raises
    ------
    TypeError, ValueError
        For a width, base or form that is not allowed.

    Notes
    -----
    Vaswani et al. 2017 (arXiv 1706.03762), section 3.5; tensor2tensor, ``get_timing_signal_1d``, for "blocks".  The last
    wavelength of the paper is 2π·base**(1 - 2/width), not base·2π.

    Examples
    --------
    >>> frequencies(6).round(4)
    array([1.    , 0.0464, 0.0022])
    """
    xp, device = arrays.namespace(like)
    return xp.asarray(_frequencies(width, base, form), dtype=xp.float64, device=device)


def sinusoid(positions, width, *, base=10000.0, form="paper", fractional=False, dtype=None):
    """Sinusoidal position vectors.

    Parameters
    ----------
    positions : integer array or tensor, shape (...)
        Any sign and order, up to 2**53 in size, which float64 holds exactly.
    width : int
        At least 1; at least 2 for ``form="blocks"``.
    base : float, at least 1
    form : {"paper", "blocks"}
        "paper": column 2k is ``sin(p·base**(-2k/width))``, column 2k + 1 its cosine.  An odd width
        enters the exponent as it is (some libraries round it up first), and the last column is
        a sine without its cosine.
        "blocks": n = width // 2 sines, then n cosines, of ``p·base**(-i/(n-1))``; an odd width ends in
        a column of zeros.  With n = 1 the frequency is 1.
    fractional : bool
        Allow floats as positions, up to 2**53 in size.
    dtype : float dtype of the library of `positions`, 16 to 64 bits, optional
        float64 unless given.

    Returns
    -------
    Same kind, shape (..., width)

    Raises
    ------
    TypeError
        For positions that are no integers (without `fractional`), or a dtype that is not allowed.
    ValueError
        For a position float64 cannot hold, and a width, base or form that is not allowed.

    Notes
    -----
    Vaswani et al. 2017 (arXiv 1706.03762), section 3.5; tensor2tensor, ``get_timing_signal_1d``, for "blocks".  Before the
    rounding to `dtype` an entry is off by no more than a few units of 2**-53 times (1 + its angle): the
    frequency and the product are rounded to float64.

    Examples
    --------
    >>> import numpy as np
    >>> sinusoid(np.arange(3), 4).round(3)
    array([[ 0.   ,  1.   ,  0.   ,  1.   ],
           [ 0.841,  0.54 ,  0.01 ,  1.   ],
           [ 0.909, -0.416,  0.02 ,  1.   ]])
    """
    xp = arrays.namespace_of("positions", positions)
    dtype = _dtype(xp, dtype)
    width = _number("width", width, at_least=1)
    omega = xp.asarray(_frequencies(width, base, form), dtype=xp.float64, device=api.device(positions))
    angles = _positions("positions", positions, fractional)[..., None] * omega
    sine, cosine = xp.sin(angles), xp.cos(angles)
    if form == "paper":
        code = xp.reshape(xp.stack([sine, cosine], axis=-1), (*positions.shape, 2 * omega.shape[0]))[..., :width]
    else:
        parts = [sine, cosine] + [xp.zeros_like(sine[..., :1])] * (width % 2)
        code = xp.concat(parts, axis=-1)
    return _rounded(xp, code, dtype)


def sinusoid_2d(rows, columns, width, *, base=10000.0, form="paper", dtype=None, like=None):
    """Position vectors of a grid: half the width says the row, half the column.

    Parameters
    ----------
    rows, columns : int, at least 1
        Size of the grid.
    width : int
        A multiple of 4, so that each axis gets whole pairs.
    base, form, dtype
        As for `sinusoid`, which is used with width / 2.
    like : array or tensor, optional
        Decides kind and device of the result; numpy unless given.

    Returns
    -------
    Shape (rows, columns, width)
        At (r, c) the code of r, then the code of c.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Examples
    --------
    >>> grid = sinusoid_2d(2, 3, 8)
    >>> grid.shape
    (2, 3, 8)
    >>> grid[1, 2].round(2)     # row 1, then column 2
    array([ 0.84,  0.54,  0.01,  1.  ,  0.91, -0.42,  0.02,  1.  ])
    """
    rows, columns = _number("rows", rows, at_least=1), _number("columns", columns, at_least=1)
    width = _number("width", width, at_least=4)
    if width % 4:
        raise ValueError(f"width is {width}; allowed are multiples of 4: whole pairs for rows and for columns")
    xp, device = arrays.namespace(like)
    r, c = (sinusoid(xp.arange(n, device=device), width // 2, base=base, form=form, dtype=dtype)
            for n in (rows, columns))
    shape = (rows, columns, width // 2)
    return xp.concat([xp.broadcast_to(r[:, None, :], shape), xp.broadcast_to(c[None, :, :], shape)], axis=-1)


def shift_matrix(shift, width, *, base=10000.0, form="paper", like=None):
    """The matrix M with PE(p + shift) = M PE(p) for every p, codes being columns.

    For codes stored as rows, as `sinusoid` returns them: ``PE(p + shift) = PE(p) @ M.T``.

    Parameters
    ----------
    shift : int
        Any sign, up to 2**53 in size.
    width : int
        Even for ``form="paper"``: a sine without its cosine cannot be shifted.
    base, form
        As for `sinusoid`.
    like : array or tensor, optional
        Decides kind and device of the result; numpy unless given.

    Returns
    -------
    float64, shape (width, width), orthogonal
        For each frequency the block [[cos, sin], [-sin, cos]] of its angle ``shift·ω``, in the rows and
        columns of its sine and cosine.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Notes
    -----
    Vaswani et al. 2017 (arXiv 1706.03762), section 3.5 ("PE(pos+k) can be represented as a linear function of PE(pos)").

    Examples
    --------
    >>> import numpy as np
    >>> here, there = sinusoid(np.array([2, 7]), 4)
    >>> bool(abs(shift_matrix(5, 4) @ here - there).max() < 1e-12)
    True
    """
    shift = _number("shift", shift, at_least=-EXACT)
    width = _number("width", width, at_least=1)
    omega = _frequencies(width, base, form)
    if form == "paper" and width % 2:
        raise ValueError(f"width is {width}; allowed are even widths: the last sine has no cosine to turn with")
    if shift > EXACT:
        raise ValueError(f"shift is {shift}; allowed is at most 2**53, which float64 holds exactly")
    matrix = [[float(i == j) for j in range(width)] for i in range(width)]
    for k, w in enumerate(omega):
        s, c = (2 * k, 2 * k + 1) if form == "paper" else (k, len(omega) + k)
        matrix[s][s] = matrix[c][c] = math.cos(shift * w)
        matrix[s][c] = math.sin(shift * w)
        matrix[c][s] = -matrix[s][c]
    xp, device = arrays.namespace(like)
    return xp.asarray(matrix, dtype=xp.float64, device=device)


def lookup(table, positions, *, offset=0):
    """Rows of a learned table; a position it does not have is an error, never another row.

    Parameters
    ----------
    table : array or tensor, shape (rows, width), any float dtype
    positions : integer array or tensor of the same kind, shape (...)
        0 to rows - offset - 1.
    offset : int, at least 0
        Rows at the start that stand for no position, as padding does: position p is row p + offset.
        BART and OPT have 2, RoBERTa the padding index plus 1.

    Returns
    -------
    Same kind and dtype, shape (..., width)

    Raises
    ------
    TypeError
        For a table that is not float, positions that are not integers, or kinds that differ.
    ValueError
        For a position outside the table, naming it and the number of rows.

    Notes
    -----
    Gehring et al. 2017 (arXiv 1705.03122), section 3.1; Devlin et al. 2019 (arXiv 1810.04805).

    Examples
    --------
    >>> import numpy as np
    >>> table = np.array([[0.0, 0.0], [0.1, 0.2], [0.3, 0.4]])
    >>> lookup(table, np.array([1, 0]), offset=1)     # row 0 is padding's
    array([[0.3, 0.4],
           [0.1, 0.2]])
    """
    xp = arrays.same_kind(table=table, positions=positions)
    _table(xp, table)
    offset = _number("offset", offset, at_least=0)
    p = _integers("positions", positions)
    count = table.shape[0] - offset
    bad = p[(p < 0) | (p >= count)]
    if math.prod(bad.shape):
        kept = f", the first {offset} of them (offset) for no position" if offset else ""
        allowed = f"allowed are 0 to {count - 1}" if count > 0 else "no position is left"
        raise ValueError(f"positions holds {int(bad[0])}, the table has {table.shape[0]} rows{kept}: {allowed}")
    return table[p + offset, ...]


def resize(table, rows):
    """A learned table stretched or squeezed to another number of rows, by linear interpolation.

    First and last row stay where they are: new row r is the old table at r·(old - 1)/(rows - 1).  Other
    conventions exist: r·old/rows (Chen et al. 2023, arXiv 2306.15595, for rotary positions), which leaves the last new rows
    beyond the last old one, and pixel centres (``align_corners=False``).

    Parameters
    ----------
    table : array or tensor, shape (old, width), any float dtype
        Take rows that stand for no position off first (see `lookup`).
    rows : int
        At least 2, as must be `old`, or equal to `old`.

    Returns
    -------
    Same kind and dtype, shape (rows, width)
        A new array.  Rows that fall on old rows equal them bit by bit; the others are computed in float64
        and then rounded once to the dtype.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Examples
    --------
    >>> import numpy as np
    >>> resize(np.array([[0.0, 3.0], [1.0, 5.0]]), 4).round(3)
    array([[0.   , 3.   ],
           [0.333, 3.667],
           [0.667, 4.333],
           [1.   , 5.   ]])
    """
    xp = arrays.namespace_of("table", table)
    _table(xp, table)
    old = table.shape[0]
    rows = _number("rows", rows, at_least=1)
    if min(old, rows) < 2 and old != rows:
        raise ValueError(f"rows is {rows}, the table has {old}: both must be at least 2 to keep the first and the last")
    steps = max(rows - 1, 1)
    at = xp.arange(rows, device=api.device(table)) * (old - 1)     # old positions, in units of 1/steps
    low, rest = at // steps, at % steps
    a, b = table[low, ...], table[low + xp.astype(rest > 0, xp.int64), ...]
    share = xp.astype(rest, xp.float64)[:, None] / steps
    wide_a, wide_b = xp.astype(a, xp.float64), xp.astype(b, xp.float64)
    between = _rounded(xp, (1 - share) * wide_a + share * wide_b, table.dtype)
    return xp.where((rest == 0)[:, None] | (a == b), a, between)


def _frequencies(width, base, form):
    if form not in FORMS:
        raise ValueError(f"form is {form!r}; allowed are 'paper' (sine and cosine alternate) "
                         "and 'blocks' (sines, then cosines)")
    if form == "paper":
        width = _number("width", width, at_least=1)
    else:
        width = _number("width", width, at_least=2, why="one sine and one cosine")
    base = arrays.base(base)
    if form == "paper":
        return [base ** (-2 * k / width) for k in range((width + 1) // 2)]
    n = width // 2
    return [base ** (-i / max(n - 1, 1)) for i in range(n)]


def _number(name, value, **bounds):
    """`value` as a Python int, checked: a narrow numpy integer would overflow."""
    arrays.whole(name, value, **bounds)
    return operator.index(value)


def _integers(name, x):
    """`x` as int64, checked."""
    xp = arrays.namespace_of(name, x)
    if not xp.isdtype(x.dtype, "integral"):
        raise TypeError(f"{name} has dtype {x.dtype}; allowed are integers")
    p = xp.astype(x, xp.int64)
    if xp.isdtype(x.dtype, "unsigned integer"):
        big = p[p < 0]
        if math.prod(big.shape):
            raise ValueError(f"{name} holds {int(big[0]) + 2**64}; allowed are whole numbers below 2**63")
    return p


def _positions(name, x, fractional):
    """`x` in float64, without loss."""
    xp = arrays.namespace_of(name, x)
    if xp.isdtype(x.dtype, "integral"):
        x = _integers(name, x)
    elif fractional:
        arrays.floats(xp, **{name: x})
        x = xp.astype(x, xp.float64)
    else:
        raise TypeError(f"{name} has dtype {x.dtype}; allowed are integers, or floats with fractional=True")
    far = x[~((x <= EXACT) & (x >= -EXACT))]
    if math.prod(far.shape):
        raise ValueError(f"{name} holds {far[0].item()}; allowed is up to 2**53 in size, "
                         "where float64 holds every whole number")
    return xp.astype(x, xp.float64)


def _table(xp, table):
    arrays.floats(xp, table=table)
    if table.ndim != 2 or table.shape[0] == 0:
        raise ValueError(f"table has shape {tuple(table.shape)}; allowed is (rows, width) with at least one row")


def _dtype(xp, dtype):
    if dtype is None:
        return xp.float64
    try:
        allowed = xp.isdtype(dtype, "real floating") and 16 <= xp.finfo(dtype).bits <= 64
    except (AttributeError, TypeError, ValueError):
        allowed = False
    if not allowed:
        raise TypeError(f"dtype is {dtype!r}; allowed are float dtypes of the positions' library, 16 to 64 bits")
    return dtype


def _rounded(xp, x, dtype):
    """float64 to `dtype`, to nearest, in one rounding.

    torch goes to 16 bits by way of float32 and so rounds twice, which moves ties.  The detour does no
    harm when float32 is reached by rounding to odd (Boldo and Melquiond 2008).
    """
    if api.is_torch_array(x) and xp.finfo(dtype).bits == 16:
        near = xp.astype(x, xp.float32)
        f, y = near.detach(), x.detach()
        even = (f.view(xp.int32) & 1) == 0
        other = xp.nextafter(f, xp.where(y > f, math.inf, -math.inf).to(xp.float32))
        odd = xp.where(even & (xp.astype(f, xp.float64) != y) & xp.isfinite(f), other, f)
        x = near + (odd - f) if x.requires_grad else odd
    return xp.astype(x, dtype)
