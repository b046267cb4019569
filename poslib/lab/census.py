"""A census of published rotary models: what turns, how fast, and how long the training windows were.

`load` gives the entries, each with a source for every cell; nothing is read from the network.  A cell that was not found
is None, with the reason beside it, and never a guess.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from poslib.rotary import frequencies

__all__ = ["FIELDS", "Entry", "load", "sources"]

FILE = Path(__file__).parent / "data" / "census.json"
FIELDS = {
    "head_width": "channels of a query or key in one head",
    "rotary_width": "channels of them that turn",
    "base": "of the ladder of frequencies, before any rescaling",
    "rope_type": "default, or the method of extension (chapter 13), or proportional",
    "layout": "half or interleaved, as the source's code pairs the channels",
    "trained_length": "tokens of a training window at this base, before any rescaling of the ladder",
    "max_positions": "positions that the source says the released model is meant for",
}


class Entry(NamedTuple):
    """One model, or one kind of its layers.  Each field of `FIELDS` is a value or None; `cells` has their sources."""

    name: str
    year: int
    note: str
    head_width: int
    rotary_width: int
    base: float
    rope_type: str | None
    layout: str | None
    trained_length: int | None
    max_positions: int | None
    cells: dict

    def frequencies(self):
        """Frequencies of the pairs that turn, radians per position, float64; extensions are left out."""
        if self.rope_type == "proportional":        # the fast end of a ladder over the whole head
            return frequencies(self.head_width, self.base)[:self.rotary_width // 2]
        return frequencies(self.rotary_width, self.base)

    def turns(self):
        """Turns that each pair makes in a window of the trained length, fastest first; None if that is not known."""
        return None if self.trained_length is None else self.trained_length * self.frequencies() / (2 * np.pi)


def load():
    """All entries, by year."""
    return [Entry(m["name"], m["year"], m.get("note", ""), **{f: m[f]["value"] for f in FIELDS}, cells={f: m[f] for f in FIELDS})
            for m in _read()["models"]]


def sources():
    """What the cells' sources are: repository and commit, or package and version, and whose work it is."""
    return _read()["sources"]


def _read():
    return json.loads(FILE.read_text("utf8"))
