"""Positional embeddings for transformers, exact and readable.

Importing `poslib` loads neither torch nor triton.  Each module is one part of the book
*Position in Transformers*; import the one you need, e.g. ``from poslib import attention``.
"""

__version__ = "0.1.0"
