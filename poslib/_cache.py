"""The walks of an attention kernel over the lags, and a cache that counts what misses it; public through `poslib.cost`."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from poslib import _arrays as arrays

WALKS = ("naive", "blocked", "tiled", "banded")


class Traffic(NamedTuple):
    """What `simulate` counts.

    Parameters
    ----------
    accesses : int
        Length of the trace.
    misses : int
        Accesses that did not find their line in the cache.
    bytes : int
        misses · line: what was loaded from memory.

    Examples
    --------
    >>> Traffic(accesses=6, misses=4, bytes=512).bytes
    512
    """

    accesses: int
    misses: int
    bytes: int


def simulate(trace, capacity, line=1):
    """Send a trace through a cache that throws out what was used least recently (LRU).

    The cache is fully associative and empty at the start; nothing is written back.

    Parameters
    ----------
    trace : iterable of hashable names
        One entry for each access, naming the line: a lag of `walk`, or any number, string or tuple.
    capacity : int, bytes, at least 0
        The cache holds capacity // line lines; with none, every access misses.
    line : int, bytes, at least 1
        Size of one line: of one row of the table, say.

    Returns
    -------
    Traffic : accesses, misses, and bytes loaded

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Examples
    --------
    >>> simulate("abcabc", capacity=3).misses
    3
    >>> simulate("abcabc", capacity=2).misses                 # always just thrown out
    6
    """
    arrays.whole("capacity", capacity, at_least=0)
    arrays.whole("line", line, at_least=1)
    room, held = capacity // line, OrderedDict()             # oldest first
    accesses = misses = 0
    for name in trace:
        accesses += 1
        if name in held:
            held.move_to_end(name)
            continue
        misses += 1
        held[name] = None
        if len(held) > room:
            held.popitem(last=False)
    return Traffic(accesses, misses, misses * line)


def tiles(length, size):
    """(first, last + 1) of each tile; the last one may be shorter."""
    return [(start, min(start + size, length)) for start in range(0, length, size)]


def walk(queries, keys=None, *, way, tile=(128, 128), causal=True):
    """The lags i - j that one head of an attention kernel asks for, in order: a trace for `simulate`.

    Parameters
    ----------
    queries, keys : int, at least 1
        The queries are the last `queries` of the `keys` places; as many as keys unless given.
    way : str
        "naive": for each query all its keys, one pair after the other.  "blocked": the same pairs, tile by tile.
        "tiled": each tile asks once for each lag that it needs, as a kernel does that holds them on chip for the
        tile.  "banded": only for the lags that the tile to the left did not have.
    tile : (int, int)
        Queries and keys of a tile; not used by "naive".
    causal : bool
        Only pairs with j ≤ i, and only tiles and lags that have such a pair.

    Returns
    -------
    iterator of int

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Examples
    --------
    >>> list(walk(3, way="naive"))
    [0, 1, 0, 2, 1, 0]
    >>> list(walk(4, way="tiled", tile=(2, 2), causal=False))
    [-1, 0, 1, -3, -2, -1, 1, 2, 3, -1, 0, 1]
    """
    keys, (high, wide) = sizes(queries, keys, tile, causal)
    choice("way", way, WALKS)
    return _walk(queries, keys, way, high, wide, causal)


def _walk(queries, keys, way, high, wide, causal):
    before = keys - queries
    if way == "naive":
        high, wide = 1, keys
    for first, end in tiles(queries, high):
        held = range(0)
        for left, right in tiles(keys, wide):
            rows, columns = range(before + first, before + end), range(left, right)
            if causal and left > rows[-1]:
                break
            if way in ("naive", "blocked"):
                yield from (i - j for i in rows for j in columns if j <= i or not causal)
                continue
            lags = range(rows[0] - columns[-1], rows[-1] - left + 1)
            lags = range(max(0, lags[0]), lags[-1] + 1) if causal else lags
            yield from (lag for lag in lags if lag not in held)
            held = lags if way == "banded" else held


def sizes(queries, keys, tile, causal):
    """Checked: the number of keys, and the tile."""
    arrays.whole("queries", queries, at_least=1)
    keys = queries if keys is None else keys
    arrays.whole("keys", keys, at_least=1)
    arrays.flag("causal", causal)
    if causal and keys < queries:
        raise ValueError(f"keys is {keys}; allowed is at least queries, {queries}, where causal is True "
                         "(the queries are the last places)")
    if not isinstance(tile, tuple | list) or len(tile) != 2:
        raise TypeError(f"tile is {tile!r}; allowed is a pair (queries, keys) of whole numbers")
    for side in tile:
        arrays.whole("tile", side, at_least=1)
    return keys, tuple(tile)


def choice(name, value, allowed):
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} is {value!r}; allowed are {', '.join(map(repr, allowed))}")
