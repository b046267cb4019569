"""Rotary position embedding (RoPE): pairs of channels turn by an angle proportional to the position.

After Su et al., *RoFormer* (arXiv 2104.09864), section 3.2.2 and equations 15 and 34: at position p
the pair (a, b) with frequency ω becomes

    a cos pω - b sin pω,    b cos pω + a sin pω,

so that the dot product of a query at i with a key at j depends on the positions through the lag i - j
alone.  Angles are formed in float64, whatever the inputs are; float32 and narrower vectors are turned
in float32 and rounded once, at the end.  Nothing is cached, and no argument is changed: the result
depends on the arguments alone.

Every function takes numpy arrays or torch tensors and returns the same kind, on the same device.
"""

from __future__ import annotations

import operator

import array_api_compat as api

from poslib import _arrays as arrays, absolute

__all__ = ["angles", "frequencies", "rotate", "tables"]

LAYOUTS = {
    "half": "pairs k and k + width/2: NeoX, Llama in Hugging Face",
    "interleaved": "pairs 2k and 2k + 1: GPT-J, Llama in Meta's code",
}


def frequencies(width, base=10000.0):
    """Angle per position of each pair, ω_k = base^(-2k/width), k = 0, …, width/2 - 1.

    Parameters
    ----------
    width : int, even, at least 2
        Number of channels that turn.
    base : float, finite, at least 1

    Returns
    -------
    numpy array, float64, shape (width/2,), radians per position
        Settings rather than data: `angles` and `rotate` take it beside torch tensors too.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Notes
    -----
    Su et al. 2021, equation 15 (there k counts from 1).
    """
    import numpy as np
    return np.asarray(_frequencies(width, base), dtype=np.float64)


def angles(positions, frequencies, *, fractional=False):
    """Angle of each pair at each position, positions × frequencies, in float64.

    Parameters
    ----------
    positions : array or tensor, shape (..., length)
        Integers of any sign, in any order.  With ``fractional=True`` also float32 or float64 (narrower
        floats merge neighbouring positions before they arrive here).
    frequencies : float64, shape (pairs,)
        Same kind as `positions`, or a numpy array (see `frequencies`).
    fractional : bool
        Whether positions may be floats.

    Returns
    -------
    Same kind as `positions`, float64, shape (..., length, pairs), radians; not reduced modulo 2π.

    Raises
    ------
    TypeError
        For a kind or dtype that is not allowed.
    ValueError
        For shapes or devices that do not fit.

    Notes
    -----
    With `frequencies(width, base)` the angle at position p is within (3 + ln base) 2⁻⁵³ |p| ω_k of the
    exact one: 2e-9 radians at p = 10⁶ for any base up to a million.  The error stays below half a unit of
    a float32 cosine near 1, 3e-8, up to p = 10⁷.  The cosine and sine of a float64 reduce large
    angles exactly, so nothing else grows with the position.

    Values are not looked at: a position or frequency that is not finite gives NaN further on.
    """
    arrays.flag("fractional", fractional)
    xp = arrays.namespace_of("positions", positions)
    _check_positions(xp, positions, fractional)
    if positions.ndim < 1:
        raise ValueError("positions has no axis; give shape (..., length)")
    omega = _float64_vector(xp, "frequencies", frequencies, positions)
    return xp.astype(positions, xp.float64)[..., None] * omega


def tables(angles, dtype):
    """Cosines and sines of the angles, computed in float64.

    Parameters
    ----------
    angles : array or tensor, float64, shape (..., length, pairs), radians
    dtype : dtype of the kind of `angles`
        Dtype of the vectors that are to be turned, any float dtype.

    Returns
    -------
    cos, sin : same kind and shape as `angles`
        float64 for float64 vectors, float32 for all others: one column for each pair, not duplicated.

    Raises
    ------
    TypeError
        For a kind or dtype that is not allowed.
    """
    xp = arrays.namespace_of("angles", angles)
    if angles.dtype != xp.float64:
        raise TypeError(f"angles has dtype {angles.dtype}; allowed is float64")
    wide = arrays.wide(xp, _float_dtype(xp, dtype))
    return xp.astype(xp.cos(angles), wide), xp.astype(xp.sin(angles), wide)


def rotate(x, positions, *, layout, width=None, base=10000.0, frequencies=None, inverse=False, fractional=False, out=None):
    """Turn each pair of channels by its angle at the position of its row.

    Parameters
    ----------
    x : array or tensor, shape (..., length, width), any float dtype
        Queries or keys in the order of torch's ``scaled_dot_product_attention``, e.g. (batch, heads,
        length, head width).
    positions : same kind, integers, shape (length,) or (batch, length), any sign and order
        (length,) holds for every row of `x`.  (batch, length) gives each entry of the *first* axis of
        `x` its own positions, shared by all axes between the first and the length (the heads); batch
        may be 1.  Nothing else broadcasts.
    layout : {"half", "interleaved"}
        Which channels form pair k: "half" takes k and k + width/2 (NeoX, Llama in Hugging Face),
        "interleaved" 2k and 2k + 1 (GPT-J, Llama in Meta's code).  Weights trained with one give
        wrong scores with the other, hence no default.
    width : int, even, at least 2, optional
        Only the first `width` channels turn, in pairs among themselves, with the frequencies of that
        width; the rest is copied bit by bit (GPT-J, GPT-NeoX, Phi).  All channels turn unless given.
    base : float, finite, at least 1
    frequencies : float64, shape (width/2,), optional
        In place of those that `base` gives; same kind as `x`, or a numpy array.
    inverse : bool
        Turn back: by the negated angles.
    fractional : bool
        Whether positions may be floats (see `angles`).
    out : like `x`: same kind, shape, dtype, device, optional
        Where the result goes.  May be `x` itself, or the same view of its memory (in place), and may not
        overlap it otherwise.  Not while torch records gradients of what goes in.

    Returns
    -------
    Same kind, shape, dtype and device as `x`; a new array, even at position 0, or `out`.

    Raises
    ------
    TypeError
        For a kind or dtype that is not allowed, or kinds that are mixed.
    ValueError
        For shapes, devices or memory that do not fit, an unknown layout, or a base out of range.

    Notes
    -----
    Su et al. 2021, equation 34; partial width: Wang and Komatsuzaki 2021 (GPT-J).  The turn is orthogonal, so its gradient is the inverse turn; torch
    differentiates through it twice and more.  With tensors on the meta device only the shape is known.

    A module should hold `width` and `base` as Python numbers (or frequencies as a numpy array), which
    ``.bfloat16()``, ``.to("meta")`` and ``state_dict`` leave alone.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[1.0, 0.0, 1.0, 0.0]])
    >>> rotate(x, np.array([1]), layout="interleaved").round(2)     # by 1 and by 0.01 radian
    array([[0.54, 0.84, 1.  , 0.01]])
    >>> rotate(x, np.array([1]), layout="interleaved", width=2).round(2)
    array([[0.54, 0.84, 1.  , 0.  ]])
    """
    xp = arrays.same_floats(x=x)
    _layout(layout)
    arrays.flag("inverse", inverse)
    arrays.flag("fractional", fractional)
    arrays.same_kind(x=x, positions=positions)
    _check_positions(xp, positions, fractional)
    arrays.same_device(x=x, positions=positions)
    _check_rows(x, positions)
    width = _turned_width(x, width)
    frequencies = _given_or_of_base(xp, frequencies, base, width, x, positions)
    if out is not None:
        _check_out(xp, out, x, positions, frequencies)
    cos, sin = tables(angles(positions, frequencies, fractional=fractional), x.dtype)
    if positions.ndim == 2:         # one row of tables for each batch entry, the same for its heads
        between = (1,) * (x.ndim - 3)
        cos, sin = (xp.reshape(t, (t.shape[0], *between, *t.shape[1:])) for t in (cos, sin))
    return _turn(xp, x, cos, -sin if inverse else sin, layout, out)


def _layout(layout):
    if not isinstance(layout, str) or layout not in LAYOUTS:
        allowed = " and ".join(f"'{name}' ({meaning})" for name, meaning in LAYOUTS.items())
        raise ValueError(f"layout is {layout!r}; allowed are {allowed}")


def _turn(xp, x, cos, sin, layout, out=None):
    """All arithmetic on vectors: the first channels of `x` by tables (..., length, pairs), into `out` if there is one."""
    pairs = cos.shape[-1]
    width = 2 * pairs
    wide = xp.astype(x[..., :width], cos.dtype)
    a, b = (wide[..., :pairs], wide[..., pairs:]) if layout == "half" else (wide[..., 0::2], wide[..., 1::2])
    turned = (a * cos - b * sin, b * cos + a * sin)
    turned = xp.concat(turned, axis=-1) if layout == "half" else xp.reshape(xp.stack(turned, axis=-1), wide.shape)
    turned = xp.astype(turned, x.dtype)
    if out is None:
        return turned if width == x.shape[-1] else xp.concat([turned, x[..., width:]], axis=-1)
    out[..., :width] = turned
    if out is not x and width < x.shape[-1]:
        out[..., width:] = x[..., width:]
    return out


def _turned_width(x, width):
    """How many channels of `x` turn, checked."""
    if width is None:
        width = x.shape[-1]
        if width < 2 or width % 2:
            raise ValueError(f"x has shape {tuple(x.shape)}: its width {width} must be even and at least 2, "
                             "or width say how many channels turn")
        return width
    width = _even("width", width)
    if width > x.shape[-1]:
        raise ValueError(f"width is {width}, x has shape {tuple(x.shape)}; allowed is at most {x.shape[-1]}")
    return width


def _given_or_of_base(xp, frequencies, base, width, x, positions):
    """float64 frequencies beside `x`, one for each pair of `width` channels."""
    if frequencies is None:
        return xp.asarray(_frequencies(width, base), dtype=xp.float64, device=api.device(x))
    if base != 10000.0:
        raise ValueError(f"base is {base!r} and frequencies are given; allowed is one of the two")
    frequencies = _float64_vector(xp, "frequencies", frequencies, positions)
    if frequencies.shape[0] != width // 2:
        raise ValueError(f"frequencies has shape {tuple(frequencies.shape)}; allowed is one for each pair, ({width // 2},); "
                         "to turn fewer channels, give width")
    return frequencies


def _check_out(xp, out, x, *inputs):
    """`out` must be like `x`, in the memory of `x` or outside it, and unknown to autograd."""
    arrays.same_floats(x=x, out=out)
    arrays.same_device(x=x, out=out)
    if tuple(out.shape) != tuple(x.shape):
        raise ValueError(f"out has shape {tuple(out.shape)}, x {tuple(x.shape)}: they must be the same")
    if api.is_torch_array(x):
        if xp.is_grad_enabled() and any(t.requires_grad for t in (out, x, *inputs)):
            raise ValueError("out is given while gradients are recorded; allowed is out=None, or torch.no_grad()")
    elif not out.flags.writeable:
        raise ValueError("out is read-only; allowed is an array that can be written to")
    if arrays.overlaps_itself(out):
        raise ValueError("out has entries that share memory, as broadcast arrays do; allowed is one place for each")
    if out is not x and arrays.overlap(out, x) and not arrays.same_memory(out, x):
        raise ValueError("out overlaps x in memory; allowed is x itself, or an array apart from it")


def _frequencies(width, base):
    """Python floats, the paper's for sinusoids too, for whole pairs."""
    _even("width", width)
    return absolute._frequencies(width, base, "paper")


def _even(name, value):
    arrays.whole(name, value, at_least=2)
    if value % 2:
        raise ValueError(f"{name} is {value}; allowed are even numbers: channels turn in pairs")
    return operator.index(value)


def _check_positions(xp, positions, fractional):
    if xp.isdtype(positions.dtype, "integral"):
        arrays.integers(xp, positions=positions)
    elif not (fractional and positions.dtype in (xp.float32, xp.float64)):
        raise TypeError(f"positions has dtype {positions.dtype}; allowed are integers, "
                        "and float32 or float64 with fractional=True")


def _check_rows(x, positions):
    """`positions` must be (length,) or (batch, length) of `x`."""
    if x.ndim < 2:
        raise ValueError(f"x has shape {tuple(x.shape)}; allowed is (..., length, width)")
    shape, allowed = tuple(positions.shape), [(x.shape[-2],)]
    if x.ndim > 2:
        allowed += [(x.shape[0], x.shape[-2]), (1, x.shape[-2])]
    if shape not in allowed:
        fit = " or ".join(str(s) for s in dict.fromkeys(allowed))
        raise ValueError(f"positions has shape {shape}, x {tuple(x.shape)}: allowed is (length,) or (batch, length), "
                         f"here {fit}")


def _float64_vector(xp, name, values, positions):
    """`values` as the kind and on the device of `positions`; numpy arrays count as settings."""
    if not (api.is_numpy_array(values) or arrays.namespace_of(name, values) is xp):
        arrays.same_kind(positions=positions, **{name: values})
    if values.dtype != api.array_namespace(values).float64:
        raise TypeError(f"{name} has dtype {values.dtype}; allowed is float64")
    if values.ndim != 1 or values.shape[0] < 1:
        raise ValueError(f"{name} has shape {tuple(values.shape)}; allowed is (pairs,), at least one")
    if arrays.namespace_of(name, values) is not xp:
        return xp.asarray(values.tolist(), dtype=xp.float64, device=api.device(positions))
    arrays.same_device(positions=positions, **{name: values})
    return values


def _float_dtype(xp, dtype):
    """`dtype` if the namespace knows it as a float dtype of up to 64 bits."""
    try:
        fine = xp.isdtype(dtype, "real floating") and xp.finfo(dtype).bits <= 64
    except (TypeError, ValueError, AttributeError):
        fine = False
    if not fine:
        raise TypeError(f"dtype is {dtype!r}; allowed are float dtypes of up to 64 bits, of the kind of angles")
    return dtype
