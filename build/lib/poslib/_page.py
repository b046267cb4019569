"""Whether the book is being made, which figures and progress lines must know."""

import os


def is_static():
    """True while the book is made or tested: outputs must be small, and the same on every run."""
    return os.environ.get("POSLIB_STATIC", "") not in ("", "0")
