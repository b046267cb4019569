"""Draws the picture in README.md: the figure `order` in two states, as the page shows it.

    python tools/readme_figure.py        writes book/_static/order-two-states.svg
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from poslib.teach import figures  # noqa: E402

PICTURE = ROOT / "book" / "_static" / "order-two-states.svg"
STATES = [{"order": [1, 0, 2], "layers": 2}, {"order": [1, 0, 2], "layers": 2, "mask": True}]


def drawn():
    """The SVG text: both states, one below the other."""
    y, width, body = 0, 0, ""
    for state in STATES:
        sheet = figures.call("sheet", "order", state)
        w, h = map(int, re.match(r'<svg [^>]*width="(\d+)" height="(\d+)"', sheet).groups())
        body += sheet.replace("<svg ", f'<svg y="{y}" ', 1)
        y, width = y + h + 10, max(width, w)
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y - 10}">{body}</svg>\n'


if __name__ == "__main__":
    PICTURE.write_text(drawn(), "utf8")
    print(f"wrote {PICTURE.relative_to(ROOT)}")
