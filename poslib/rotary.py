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

import math
import operator

import array_api_compat as api

from poslib import _arrays as arrays, absolute

__all__ = ["angles", "convert", "frequencies", "proportional_frequencies", "reposition", "rotate", "tables", "turn", "xpos"]

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

    Examples
    --------
    >>> frequencies(4)
    array([1.  , 0.01])
    """
    import numpy as np
    return np.asarray(_frequencies(width, base), dtype=np.float64)


def proportional_frequencies(width, share, base=10000.0):
    """Frequencies of p-RoPE: those of the whole width, the slowest pairs stopped.

    Parameters
    ----------
    width : int, even, at least 2
        All channels, which also stand in the exponent: unlike a partial width, whose pairs span all
        frequencies among fewer channels.
    share : float, 0 to 1
        The first floor(share·width/2) pairs turn; a product that misses a whole number by less than
        10⁻⁶ counts as that number (0.29·200 is 57.99… in floating point).
    base : float, finite, at least 1

    Returns
    -------
    numpy array, float64, shape (width/2,) : for `rotate`, which leaves finite pairs of frequency 0 as they are.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Notes
    -----
    Barbero et al. 2024 (arXiv 2410.06205), section 6, stop the slowest frequencies; Gemma 4 and
    ``rope_type="proportional"`` of transformers are this.

    Examples
    --------
    >>> proportional_frequencies(8, 0.5)
    array([1. , 0.1, 0. , 0. ])
    """
    import numpy as np
    omega = np.asarray(_frequencies(width, base), dtype=np.float64)
    omega[_share(share, len(omega)):] = 0
    return omega


def angles(positions, frequencies, *, axes=None, fractional=False):
    """Angle of each pair at each position, positions × frequencies, in float64.

    Parameters
    ----------
    positions : array or tensor, shape (..., length)
        Integers of any sign, in any order.  With ``fractional=True`` also float32 or float64 (narrower
        floats merge neighbouring positions before they arrive here).
    frequencies : float64, shape (pairs,)
        Same kind as `positions`, or a numpy array (see `frequencies`), or a tuple of floats.
    axes : integers, shape (pairs,), optional
        With several position ids for each token, positions (axes, ..., length): which of them turns each
        pair, counted from 0.  `poslib.multiaxis` makes those of axial RoPE and M-RoPE.
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

    Examples
    --------
    >>> import numpy as np
    >>> angles(np.array([7]), frequencies(4))
    array([[7.  , 0.07]])
    >>> angles(np.array([[0, 7], [5, 5]]), frequencies(4), axes=(0, 1))     # pair 0 by axis 0, pair 1 by axis 1
    array([[0.  , 0.05],
           [7.  , 0.05]])
    """
    arrays.flag("fractional", fractional)
    xp = arrays.namespace_of("positions", positions)
    _check_positions(xp, positions, fractional)
    if positions.ndim < (1 if axes is None else 2):
        raise ValueError("positions has no axis; give shape (..., length)" if axes is None else
                         f"positions has shape {tuple(positions.shape)}; allowed with axes is (axes, ..., length)")
    omega = _float64_vector(xp, "frequencies", frequencies, positions)
    wide = xp.astype(positions, xp.float64)
    if axes is None:
        return wide[..., None] * omega
    return _of_each_pair(xp, wide, _axes(axes, omega.shape[0], positions.shape[0])) * omega


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

    Examples
    --------
    >>> import numpy as np
    >>> cos, sin = tables(angles(np.array([0, 7]), frequencies(4)), np.float32)
    >>> cos.round(2)
    array([[1.  , 1.  ],
           [0.75, 1.  ]], dtype=float32)
    """
    xp = arrays.namespace_of("angles", angles)
    if angles.dtype != xp.float64:
        raise TypeError(f"angles has dtype {angles.dtype}; allowed is float64")
    wide = arrays.wide(xp, _float_dtype(xp, dtype))
    return xp.astype(xp.cos(angles), wide), xp.astype(xp.sin(angles), wide)


def rotate(x, positions, *, layout, width=None, base=10000.0, frequencies=None, axes=None, inverse=False, fractional=False,
           out=None):
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
        In place of those that `base` gives; same kind as `x`, or a numpy array, or a tuple of floats.
    axes : integers, shape (width/2,), optional
        Several position ids for each token, positions (axes, length) or (axes, batch, length): which
        of them turns each pair (see `poslib.multiaxis`).  Equal ids on all axes are the turn without `axes`, bit
        by bit.
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
    Su et al. 2021, equation 34; partial width: Wang and Komatsuzaki 2021 (GPT-J).  The turn is orthogonal,
    so its gradient is the inverse turn; torch differentiates through it twice and more.  With tensors on
    the meta device only the shape is known.

    A module should hold `width` and `base` as Python numbers (or frequencies as a tuple of floats), which
    ``.bfloat16()``, ``.to("meta")`` and ``state_dict`` leave alone, and ``torch.compile`` can read.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[1.0, 0.0, 1.0, 0.0]])
    >>> rotate(x, np.array([1]), layout="interleaved").round(2)     # by 1 and by 0.01 radian
    array([[0.54, 0.84, 1.  , 0.01]])
    >>> rotate(x, np.array([1]), layout="interleaved", width=2).round(2)
    array([[0.54, 0.84, 1.  , 0.  ]])
    """
    arrays.flag("inverse", inverse)
    xp, frequencies = _checked(x, positions, layout, width, base, frequencies, axes, fractional)
    if out is not None:
        _check_out(xp, out, x, positions, frequencies)
    cos, sin = tables(angles(positions, frequencies, axes=axes, fractional=fractional), x.dtype)
    cos, sin = _rows_for(xp, x, cos), _rows_for(xp, x, sin)
    return _turn(xp, x, cos, -sin if inverse else sin, layout, out)


def turn(x, cos, sin, *, layout, inverse=False, out=None):
    """Turn each pair of channels by tables that are at hand: `rotate` in two steps, bit by bit.

    For queries and keys of all layers, which stand at the same positions: their `tables` are formed once.  In decoding
    that is most of the time.

    Parameters
    ----------
    x : array or tensor, shape (..., length, width), any float dtype
    cos, sin : same kind, shape (length, pairs) or (batch, length, pairs)
        What `tables` gives for the positions of the rows and the dtype of `x`: float64 for float64, float32 for all
        others.  They say how many channels turn, the first 2 pairs; the rest is copied.  As in `rotate`, batch may be 1.
    layout, inverse, out
        As for `rotate`.

    Returns
    -------
    Same kind, shape, dtype and device as `x`; a new array, or `out`.

    Raises
    ------
    TypeError, ValueError
        As `rotate`.

    Notes
    -----
    Whether the tables are those of the right positions and frequencies cannot be checked.

    Examples
    --------
    >>> import numpy as np
    >>> q, k = np.ones((2, 5, 4)), np.ones((1, 5, 4))                       # two heads share one of the keys
    >>> cos, sin = tables(angles(np.arange(5), frequencies(4)), q.dtype)
    >>> q, k = turn(q, cos, sin, layout="half"), turn(k, cos, sin, layout="half")
    >>> bool((k == rotate(np.ones((1, 5, 4)), np.arange(5), layout="half")).all())
    True
    """
    arrays.flag("inverse", inverse)
    xp = arrays.same_floats(x=x)
    _layout(layout)
    arrays.same_kind(x=x, cos=cos, sin=sin)
    wide = arrays.wide(xp, x.dtype)
    for name, table in (("cos", cos), ("sin", sin)):
        if table.dtype != wide:
            raise TypeError(f"{name} has dtype {table.dtype}, x {x.dtype}; allowed is {wide}, as tables(..., x.dtype) gives it")
    arrays.same_device(x=x, cos=cos, sin=sin)
    _check_tables(x, cos, sin)
    if out is not None:
        _check_out(xp, out, x, cos, sin)
        for name, table in (("cos", cos), ("sin", sin)):
            if arrays.overlap(out, table):
                raise ValueError(f"out overlaps {name} in memory; allowed is an array apart from it")
    cos, sin = _rows_for(xp, x, cos), _rows_for(xp, x, sin)
    return _turn(xp, x, cos, -sin if inverse else sin, layout, out)


def reposition(x, old, new, *, layout, width=None, base=10000.0, frequencies=None, axes=None, out=None):
    """Turn vectors that stand at `old` positions on to `new` ones, as a cache of keys needs when text before them goes.

    Parameters
    ----------
    x : array or tensor, shape (..., length, width), any float dtype
        Vectors as `rotate` returned them for the positions `old`.
    old, new : same kind, integers, shape (length,) or (batch, length), any sign and order
        With `axes`: (axes, length) or (axes, batch, length).
    layout, width, base, frequencies, axes, out
        As they were for `rotate`.

    Returns
    -------
    Same kind, shape, dtype and device as `x`.

    Raises
    ------
    TypeError, ValueError
        As `rotate`.

    Notes
    -----
    Rotations add up, so one turn by the exact integer new - old does it, wherever old is (Su et al. 2021,
    equation 16).  What cannot be undone is that `x` was rounded: its error turns along, and the result is
    rounded again.  A key of dtype bfloat16 comes out with 1.4 times the error of one that is turned afresh (the
    root of two roundings; two entries of three are the same).  n long moves, all different, cost the root of n + 1;
    many small ones far more, since a turn by less than half a step of the dtype is rounded away each time (1,000
    moves by one: 300 times).  If that matters, move a cache once from where it was first written, or keep unturned
    keys.  A turn by 0 changes no finite value.

    For keys of `xpos`, multiply by the scale too: ``xpos(x, new - old, role="key", ...)`` with center 0.

    Examples
    --------
    >>> import numpy as np
    >>> k = rotate(np.ones((3, 4)), np.array([7, 8, 9]), layout="half")
    >>> moved = reposition(k, np.array([7, 8, 9]), np.array([0, 1, 2]), layout="half")
    >>> bool(abs(moved - rotate(np.ones((3, 4)), np.array([0, 1, 2]), layout="half")).max() < 1e-15)
    True
    """
    xp = arrays.same_kind(x=x, old=old, new=new)
    arrays.integers(xp, old=old, new=new)
    arrays.same_device(x=x, old=old, new=new)
    settings = {"layout": layout, "width": width, "base": base, "frequencies": frequencies, "axes": axes}
    for name, positions in (("old", old), ("new", new)):
        _check_rows(x, positions, axes, name)
    if axes is not None and old.ndim != new.ndim:       # the ids of one text beside those of a batch
        old, new = (p if p.ndim == 3 else p[:, None, :] for p in (old, new))
    return rotate(x, xp.astype(new, xp.int64) - xp.astype(old, xp.int64), **settings, out=out)


def xpos(x, positions, *, role, layout, width=None, base=10000.0, frequencies=None, center=0, scale_base=512, gamma=0.4):
    """Turn queries or keys and scale them, so that scores fall with the lag (xPos).

    Parameters
    ----------
    x, positions
        As for `rotate`; positions are integers.
    role : {"query", "key"}
        Queries are multiplied by ζ_k^((p - center)/scale_base), keys by its inverse.
    layout, width, base, frequencies
        As for `rotate`.
    center : int
        Position where nothing is scaled.  Scores do not depend on it, so long as queries and keys, cached
        ones too, share it: hence a fixed number.  Centers taken from the length of the text, as in
        torchscale, x-transformers and flash-attention, change between a cached key and a later query.
        The default fits texts that begin at 0; half of the longest text doubles the reach.
    scale_base : float, positive
        Positions over which pair k falls to ζ_k of its size.
    gamma : float, positive

    Returns
    -------
    Same kind, shape, dtype and device as `x`; a new array.  Channels beyond `width` are copied.

    Raises
    ------
    TypeError, ValueError
        As `rotate`; and for positions so far from the center that a scale leaves the range of the dtype's
        normal numbers: by default 35,694 positions for float32 and bfloat16, 3,966 for float16.

    Notes
    -----
    Sun et al. 2022 (arXiv 2212.10554), section 3.2 and Algorithm 1: ζ_k = (2k/width + γ)/(1 + γ).  The score of
    pair k is that of RoPE times ζ_k^((i - j)/scale_base).  The scale is computed in float64 and multiplied into the
    tables, so the result is rounded once.  The positions are looked at: under ``torch.compile`` the graph breaks here.

    Examples
    --------
    >>> import numpy as np
    >>> q, k = (xpos(np.ones((1, 4)), np.array([p]), role=role, layout="half") for p, role in ((600, "query"), (88, "key")))
    >>> rope = rotate(np.ones((1, 4)), np.array([512]), layout="half")      # the lag
    >>> zeta = np.array([0.4, 0.9]) / 1.4                                   # of pairs 0 and 1
    >>> bool(np.isclose((q * k).sum(), (rope * np.tile(zeta, 2)).sum()))
    True
    """
    xp, frequencies = _checked(x, positions, layout, width, base, frequencies, None, False)
    if not isinstance(role, str) or role not in ("query", "key"):
        raise ValueError(f"role is {role!r}; allowed are 'query' (times the scale) and 'key' (divided by it)")
    center = _center(center)
    logs = _xpos_logs(frequencies.shape[0], scale_base, gamma)
    away = xp.astype(positions, xp.int64) - center
    _check_reach(xp, away, x.dtype, -logs[0], center)
    rates = xp.asarray(logs if role == "query" else [-log for log in logs], dtype=xp.float64, device=api.device(x))
    scale = xp.exp(xp.astype(away, xp.float64)[..., None] * rates)
    theta, wide = angles(positions, frequencies), arrays.wide(xp, x.dtype)
    cos, sin = (_rows_for(xp, x, xp.astype(part(theta) * scale, wide)) for part in (xp.cos, xp.sin))
    return _turn(xp, x, cos, sin, layout)


def convert(weight, *, source, target, heads, width=None, axis=0):
    """Reorder the output channels of a query or key projection from one layout to another.

    Parameters
    ----------
    weight : array or tensor, any dtype
        Rows of the projection on `axis`: weight (heads · head width, inputs), bias (heads · head width,), the
        gain of a norm that all heads share (head width,) with ``heads=1``.
    source, target : {"half", "interleaved"}
        Layout that the weights were trained with, and the one that `rotate` will be told.
    heads : int, at least 1
        Of the queries for their projection, of the keys (fewer in grouped-query attention) for theirs.
    width : int, even, at least 2, optional
        How many channels of each head turn; all unless given.  The others stay in place.
    axis : int

    Returns
    -------
    Same kind, shape and dtype; a new array.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Notes
    -----
    The scores with `target` are those of the old weights with `source`, since query and key channels are
    permuted alike; values and the output projection keep their order.  Whatever acts on turned
    channels must be converted with them: weight, bias, norm gain.  From interleaved to half is the
    ``permute`` of the script that brought Llama to Hugging Face; the round trip is the identity.

    Examples
    --------
    >>> import numpy as np
    >>> convert(np.arange(8), source="interleaved", target="half", heads=2)
    array([0, 2, 1, 3, 4, 6, 5, 7])
    """
    xp = arrays.namespace_of("weight", weight)
    _layout(source, "source")
    _layout(target, "target")
    arrays.whole("heads", heads, at_least=1)
    if isinstance(axis, bool) or not hasattr(axis, "__index__"):
        raise TypeError(f"axis is {axis!r}; allowed is a whole number")
    axis = operator.index(axis)
    if not -weight.ndim <= axis < weight.ndim:
        raise ValueError(f"axis is {axis}, weight has shape {tuple(weight.shape)}; allowed are {-weight.ndim} "
                         f"to {weight.ndim - 1}")
    rows = weight.shape[axis]
    if rows % heads:
        raise ValueError(f"heads is {heads}, weight has shape {tuple(weight.shape)}: {rows} rows are no whole number for each")
    head = rows // heads
    width = _turned_width("weight", weight.shape, head, width)
    order = list(range(head))
    if source != target:
        pairs = width // 2
        order[:width] = ([*range(0, width, 2), *range(1, width, 2)] if target == "half" else
                         [k + half for k in range(pairs) for half in (0, pairs)])
    index = xp.asarray([h * head + i for h in range(heads) for i in order], dtype=xp.int64, device=api.device(weight))
    return xp.take(weight, index, axis=axis)


def _layout(layout, name="layout"):
    if not isinstance(layout, str) or layout not in LAYOUTS:
        allowed = " and ".join(f"'{known}' ({meaning})" for known, meaning in LAYOUTS.items())
        raise ValueError(f"{name} is {layout!r}; allowed are {allowed}")


def _checked(x, positions, layout, width, base, frequencies, axes, fractional):
    """The namespace, and float64 frequencies beside `x`, after every check that a turn asks for."""
    xp = arrays.same_floats(x=x)
    _layout(layout)
    arrays.flag("fractional", fractional)
    arrays.same_kind(x=x, positions=positions)
    _check_positions(xp, positions, fractional)
    arrays.same_device(x=x, positions=positions)
    _check_rows(x, positions, axes)
    width = _turned_width("x", x.shape, x.shape[-1], width)
    return xp, _given_or_of_base(xp, frequencies, base, width, x, positions)


def _turn(xp, x, cos, sin, layout, out=None):
    """All arithmetic on vectors: the first channels of `x` by tables (..., length, pairs), into `out` if there is one."""
    if api.is_torch_array(x):
        from poslib._torch import blocks
        if blocks.pays(x, cos, sin, out):
            return blocks.turn(x, cos, sin, layout, out)
    pairs = cos.shape[-1]
    width = 2 * pairs
    wide = xp.astype(x if width == x.shape[-1] else x[..., :width], cos.dtype)
    a, b = (wide[..., :pairs], wide[..., pairs:]) if layout == "half" else (wide[..., 0::2], wide[..., 1::2])
    turned = (a * cos - b * sin, b * cos + a * sin)
    turned = xp.reshape(xp.stack(turned, axis=-2 if layout == "half" else -1), wide.shape)
    turned = xp.astype(turned, x.dtype)
    if out is None and width == x.shape[-1]:
        return turned
    if out is None:
        cat = getattr(xp, "cat", xp.concat)         # torch's, under the only name that `is_grads_batched` knows
        return cat([turned, x[..., width:]], -1)
    out[..., :width] = turned
    if out is not x and width < x.shape[-1]:
        out[..., width:] = x[..., width:]
    return out


def _rows_for(xp, x, table):
    """A table (batch, length, pairs) for each entry of the first axis of `x`, the same for its heads."""
    if table.ndim == 2:
        return table
    return xp.reshape(table, (table.shape[0], *(1,) * (x.ndim - 3), *table.shape[1:]))


def _turned_width(name, shape, head, width):
    """How many of `head` channels turn, checked."""
    if width is None:
        if head < 2 or head % 2:
            raise ValueError(f"{name} has shape {tuple(shape)}: its width {head} must be even and at least 2, "
                             "or width say how many channels turn")
        return head
    width = _even("width", width)
    if width > head:
        raise ValueError(f"width is {width}, {name} has shape {tuple(shape)}; allowed is at most {head}")
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


def _check_rows(x, positions, axes=None, name="positions"):
    """`positions` must be (length,) or (batch, length) of `x`, after an axis of their own if there are `axes`."""
    if x.ndim < 2:
        raise ValueError(f"x has shape {tuple(x.shape)}; allowed is (..., length, width)")
    allowed = [(x.shape[-2],)]
    if x.ndim > 2:
        allowed += [(x.shape[0], x.shape[-2]), (1, x.shape[-2])]
    own = () if axes is None else tuple(positions.shape[:1])
    if tuple(positions.shape) not in [own + shape for shape in allowed] or axes is not None and not own:
        fit = " or ".join(str(s) for s in dict.fromkeys(allowed))
        before = "" if axes is None else "an axis for the axes, then "
        raise ValueError(f"{name} has shape {tuple(positions.shape)}, x {tuple(x.shape)}: allowed is {before}(length,) "
                         f"or (batch, length), here {fit}")


def _check_tables(x, cos, sin):
    """Tables must have the rows of `x`, as positions have them, and pairs for no more channels than there are."""
    if tuple(cos.shape) != tuple(sin.shape):
        raise ValueError(f"cos has shape {tuple(cos.shape)}, sin {tuple(sin.shape)}: they must be the same")
    if cos.ndim not in (2, 3) or cos.shape[-1] < 1:
        raise ValueError(f"cos has shape {tuple(cos.shape)}; allowed is (length, pairs) or (batch, length, pairs), at least one pair")
    _check_rows(x, cos[..., 0], name="cos[..., 0]")
    if 2 * cos.shape[-1] > x.shape[-1]:
        raise ValueError(f"cos has shape {tuple(cos.shape)}, x {tuple(x.shape)}; allowed are at most {x.shape[-1] // 2} pairs")


def _axes(axes, pairs, count):
    """`axes` as a list of Python ints: one of 0, ..., count - 1 for each pair."""
    if api.is_numpy_array(axes) or api.is_torch_array(axes):
        arrays.integers(arrays.namespace_of("axes", axes), axes=axes)
        shape, values = tuple(axes.shape), axes.tolist()
    elif isinstance(axes, (tuple, list)):
        for axis in axes:
            arrays.whole("axes", axis, at_least=0)
        shape, values = (len(axes),), [operator.index(axis) for axis in axes]
    else:
        raise TypeError(f"axes is a {type(axes).__name__}; allowed are integers: a tuple, a list, an array or a tensor")
    if shape != (pairs,):
        raise ValueError(f"axes has shape {shape}; allowed is one for each pair, ({pairs},)")
    for axis in values:
        if not 0 <= axis < count:
            raise ValueError(f"axes holds {axis}, positions has {count} axes; allowed are 0 to {count - 1}")
    return values


def _of_each_pair(xp, positions, axes):
    """The id that turns each pair: (axes, ..., length) becomes (..., length, pairs)."""
    index = xp.asarray(axes, dtype=xp.int64, device=api.device(positions))
    return xp.moveaxis(xp.take(positions, index, axis=0), 0, -1)


def _share(share, pairs):
    """How many of `pairs` a share is, a slip of floating point forgiven."""
    if isinstance(share, bool) or not isinstance(share, (int, float)):
        raise TypeError(f"share is {share!r}; allowed is a number from 0 to 1")
    if not 0 <= share <= 1:
        raise ValueError(f"share is {share!r}; allowed is a number from 0 to 1")
    return math.floor(share * pairs + 1e-6)


def _center(center):
    if isinstance(center, bool) or not hasattr(center, "__index__"):
        raise TypeError(f"center is {center!r}; allowed is a whole number")
    center = operator.index(center)
    if abs(center) > absolute.EXACT:
        raise ValueError(f"center is {center}; allowed is up to 2**53 in size")
    return center


def _xpos_logs(pairs, scale_base, gamma):
    """Logarithm of the scale of each pair, for one position; falling in size."""
    for name, value in (("scale_base", scale_base), ("gamma", gamma)):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(f"{name} is {value!r}; allowed is a positive finite number")
        if not 0 < value < math.inf:
            raise ValueError(f"{name} is {value!r}; allowed is a positive finite number")
    return [math.log((k / pairs + gamma) / (1 + gamma)) / scale_base for k in range(pairs)]


def _check_reach(xp, away, dtype, rate, center):
    """No scale may leave the normal numbers of `dtype`, upwards or downwards."""
    info = xp.finfo(dtype)
    reach = min(math.log(float(info.max)), -math.log(float(info.smallest_normal))) / rate
    if math.prod(away.shape) and str(api.device(away)) != "meta":
        for found in (int(xp.min(away)), int(xp.max(away))):
            if abs(found) > reach:
                raise ValueError(f"positions holds {found + center}, center is {center}: the scale of {dtype} vectors "
                                 f"reaches {math.floor(reach)} positions to each side; allowed are those, a nearer center, "
                                 "a wider dtype, or a larger scale_base")


def _float64_vector(xp, name, values, positions):
    """`values` as the kind and on the device of `positions`; numpy arrays and tuples of floats count as settings."""
    if isinstance(values, tuple):           # torch.compile can look into these, not into numpy arrays
        if not values or not all(isinstance(value, float) for value in values):
            raise TypeError(f"{name} is {values!r}; allowed in a tuple are floats, at least one")
        return xp.asarray(list(values), dtype=xp.float64, device=api.device(positions))
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
