"""Sizes of tiles, explicitly: one entry per (kernel, width of a head, bytes of a number, architecture).

Nothing is tuned while it runs, so that a call costs the same each time and a result does not depend on what was timed.
Lengths are no part of a key.  Under the interpreter a program costs about a millisecond whatever its size: big tiles.
"""

from __future__ import annotations

from typing import NamedTuple


class Config(NamedTuple):
    rows: int           # of a tile: tokens, or queries in attention
    keys: int           # of a tile in attention, else 0
    warps: int
    stages: int


TABLE = {}              # {(kernel, width, itemsize, architecture): Config}

# A GPU that is not listed takes the entry of the newest listed one of its make that is not newer.
ARCHITECTURES = ("sm_80", "sm_90", "gfx942")


def find(kernel, width, itemsize, architecture):
    """The entry for a launch.

    Raises ValueError, naming what is not covered and what is.
    """
    known = architecture if architecture == "interpreted" else _listed(architecture)
    try:
        return TABLE[kernel, width, itemsize, known]
    except KeyError:
        pass
    widths = sorted({w for k, w, i, a in TABLE if (k, i, a) == (kernel, itemsize, known)})
    if not widths:
        raise ValueError(f"kernel {kernel!r} has no configuration for numbers of {itemsize} bytes on {architecture}")
    raise ValueError(f"width {width} of a head is not covered by kernel {kernel!r}; allowed are {', '.join(map(str, widths))}")


def _listed(architecture):
    """The listed architecture whose entries `architecture` takes."""
    def number(name):
        return int("".join(c for c in name.removeprefix("sm_") if c.isdigit()) or 0)
    make = "sm_" if architecture.startswith("sm_") else "gfx"
    older = [a for a in ARCHITECTURES if a.startswith(make) and number(a) <= number(architecture)]
    if not older:
        raise ValueError(f"architecture is {architecture!r}; allowed are {', '.join(ARCHITECTURES)} and newer, and the interpreter")
    return max(older, key=number)


# ---- rotation of tiles of tokens ("rotate"), of single rows ("rows"), and on the way into a cache ("write") ----

def _rotary_rows(pairs, itemsize, warps):
    """So many rows that each thread moves 16 bytes at once: 16/itemsize pairs for each of 32 threads of a warp."""
    return max(1, 32 * warps * (16 // itemsize) // pairs)


for _pairs in (1, 2, 4, 8, 16, 32, 64, 128, 256):               # of the channels that turn, up to a power of two
    for _itemsize in (2, 4):
        for _kernel in ("rotate", "rows", "write"):
            for _architecture in ARCHITECTURES:
                TABLE[_kernel, 2 * _pairs, _itemsize, _architecture] = Config(_rotary_rows(_pairs, _itemsize, 4), 0, 4, 1)
            TABLE[_kernel, 2 * _pairs, _itemsize, "interpreted"] = Config(128, 0, 1, 1)


# ---- attention: "forward", "forward_qk" (keys turned in the loop), "decode" (rows: set by the call), gradients ----

# Products of float32 in full precision run outside the tensor cores, in registers: small tiles.
_ATTENTION = {
    # width: {kernel: (rows, keys, warps, stages)} for numbers of 2 bytes
    32: {"forward": (128, 64, 4, 3), "forward_qk": (128, 64, 4, 2), "decode": (16, 128, 4, 2),
         "query_gradient": (128, 64, 4, 2), "key_gradient": (64, 128, 4, 2)},
    64: {"forward": (128, 64, 4, 3), "forward_qk": (128, 64, 4, 2), "decode": (16, 128, 4, 2),
         "query_gradient": (128, 64, 8, 2), "key_gradient": (64, 64, 4, 2)},
    128: {"forward": (128, 64, 8, 2), "forward_qk": (128, 32, 8, 2), "decode": (16, 64, 4, 2),
          "query_gradient": (128, 64, 8, 2), "key_gradient": (64, 64, 8, 2)},
    256: {"forward": (128, 32, 8, 2), "forward_qk": (64, 32, 8, 2), "decode": (16, 32, 4, 2),
          "query_gradient": (64, 32, 8, 2), "key_gradient": (32, 64, 8, 1)},
}
# Where these would not fit into the registers, or shared memory, of an older card.
_SMALLER = {("forward_qk", 64): (64, 64, 4, 2), ("forward_qk", 80): (64, 32, 4, 2), ("forward_qk", 96): (64, 32, 4, 2),
            ("forward_qk", 128): (64, 32, 4, 2), ("forward", 256): (64, 32, 8, 2), ("key_gradient", 64): (32, 64, 4, 2)}
for _width in (32, 64, 80, 96, 128, 256):
    for _kernel, _sizes in _ATTENTION[128 if _width in (80, 96) else _width].items():
        for _architecture in ARCHITECTURES:
            _fits = _sizes if _architecture == "sm_90" else _SMALLER.get((_kernel, _width), _sizes)
            TABLE[_kernel, _width, 2, _architecture] = Config(*_fits)
            TABLE[_kernel, _width, 4, _architecture] = Config(16 if _width > 64 else 32, 32, 4, 1)
        for _itemsize in (2, 4):
            TABLE[_kernel, _width, _itemsize, "interpreted"] = Config(128, 128, 1, 1)
