"""Which position id turns which pair of channels, where a token has several: axial RoPE and M-RoPE.

A grid of an image has a row and a column, a video a time too.  `poslib.positions.grid` and `mrope` make the ids,
shape (axes, length); the functions here say for each pair which of them turns it, and `poslib.rotary.rotate` takes
both::

    rotary.rotate(q, positions.grid(rows, columns), layout="half", frequencies=axial_frequencies(64, 2), axes=axial_axes(64, 2))

They are settings, numpy arrays, for tensors too.  Other maps exist (alternating axes, as in Pixtral): any
integers, one for each pair, will do.
"""

from __future__ import annotations

import operator

from poslib import _arrays as arrays, rotary

__all__ = ["axial_axes", "axial_frequencies", "mrope_axes"]

ORDERS = {
    "chunked": "the sections one after the other: Qwen2-VL, Qwen2.5-VL",
    "interleaved": "the axes in turn, what is left for the first: Qwen3-VL",
}


def axial_axes(width, axes=2):
    """The axis of each pair in axial RoPE: an equal block of pairs for each axis, in order.

    Parameters
    ----------
    width : int
        Number of channels that turn, a multiple of 2·axes.
    axes : int, at least 1

    Returns
    -------
    numpy array, int64, shape (width/2,)

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Notes
    -----
    Two axes with layout "half" are the vision encoder of Qwen2-VL; with layout "interleaved" the 2-D RoPE of
    rotary-embedding-torch.

    Examples
    --------
    >>> axial_axes(8)
    array([0, 0, 1, 1])
    """
    import numpy as np
    width, axes = _whole_blocks(width, axes)
    return np.repeat(np.arange(axes), width // (2 * axes))


def axial_frequencies(width, axes=2, base=10000.0):
    """Frequencies of axial RoPE: each axis has the full range, those of a vector of width/axes channels.

    Parameters
    ----------
    width, axes
        As for `axial_axes`.
    base : float, finite, at least 1

    Returns
    -------
    numpy array, float64, shape (width/2,), radians per position
        For each axis ``rotary.frequencies(width // axes, base)``.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Examples
    --------
    >>> axial_frequencies(8)
    array([1.  , 0.01, 1.  , 0.01])
    """
    import numpy as np
    width, axes = _whole_blocks(width, axes)
    return np.tile(rotary.frequencies(width // axes, base), axes)


def mrope_axes(sections, *, order):
    """The axis of each pair in M-RoPE, whose axes (time, row, column) share one range of frequencies.

    Parameters
    ----------
    sections : sequence of int, each at least 1
        Number of pairs of each axis, ``mrope_section`` in configs: (16, 24, 24) in Qwen2-VL, (24, 20, 20) in
        Qwen3-VL.
    order : {"chunked", "interleaved"}
        "chunked": the fastest pairs to the first axis, and so on.  "interleaved": pair k to axis k mod axes until
        an axis has its number; what is left to the first.  Weights trained with one give wrong scores with
        the other, hence no default.

    Returns
    -------
    numpy array, int64, shape (sum of sections,)

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed; also for sections whose interleaving would not
        give each axis its number of pairs.

    Notes
    -----
    Wang et al. 2024, *Qwen2-VL* (arXiv 2409.12191), section 2.1; Bai et al. 2025, *Qwen3-VL* (arXiv 2511.21631),
    section 2.  The frequencies are those of the whole width, ``rotary.frequencies(2 * sum(sections), base)``.

    Examples
    --------
    >>> mrope_axes((3, 2, 1), order="chunked")
    array([0, 0, 0, 1, 1, 2])
    >>> mrope_axes((3, 2, 1), order="interleaved")
    array([0, 1, 2, 0, 1, 0])
    """
    import numpy as np
    if not isinstance(order, str) or order not in ORDERS:
        allowed = " and ".join(f"'{name}' ({meaning})" for name, meaning in ORDERS.items())
        raise ValueError(f"order is {order!r}; allowed are {allowed}")
    if isinstance(sections, (str, bytes)) or not hasattr(sections, "__iter__"):
        raise TypeError(f"sections is {sections!r}; allowed are whole numbers, one for each axis")
    sections = list(sections)
    for count in sections:
        arrays.whole("sections", count, at_least=1)
    if not sections:
        raise ValueError("sections is empty; allowed is at least one whole number")
    if order == "chunked":
        return np.repeat(np.arange(len(sections)), sections)
    n, found = len(sections), np.zeros(sum(sections), dtype=np.int64)
    for axis, count in enumerate(sections[1:], start=1):
        found[axis:n * count:n] = axis
    counts = np.bincount(found, minlength=n).tolist()
    if counts != sections:
        raise ValueError(f"sections is {tuple(sections)}; interleaved, one pair in {n} would give the axes {tuple(counts)}: "
                         "allowed are sections where no later axis has more than its share")
    return found


def _whole_blocks(width, axes):
    arrays.whole("axes", axes, at_least=1)
    arrays.whole("width", width, at_least=2)
    axes, width = operator.index(axes), operator.index(width)
    if width % (2 * axes):
        raise ValueError(f"width is {width}; allowed are multiples of {2 * axes}: whole pairs for each of {axes} axes")
    return width, axes
