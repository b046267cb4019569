"""Tasks whose answer depends on order, and the text that the small language models read.

A batch is drawn from an explicit `torch.Generator`: the same seed gives the same batches.
"""

from __future__ import annotations

import functools

from poslib.lab._torch import torch

__all__ = ["A", "B", "CLS", "IGNORED", "MASK", "first_of_two", "masked_bytes", "next_bytes", "own_place", "prose", "swap_two"]

FILLERS = 10            # tokens 0…9
A, B, CLS = 10, 11, 12
MASK = 256              # beside the 256 bytes
IGNORED = -100          # cross-entropy's own marker for "no target here"


def first_of_two(batch, generator, *, length=17):
    """Which of two marked tokens comes first?

    Parameters
    ----------
    batch : int
    generator : torch.Generator
    length : int, at least 3
        A `CLS` token, then fillers among which one `A` and one `B` stand.

    Returns
    -------
    tokens : int64, shape (batch, length)
    label : int64, shape (batch,) : 1 where A comes before B
    """
    if length < 3:
        raise ValueError(f"length is {length}; allowed is at least 3: CLS, A and B")
    tokens = torch.randint(0, FILLERS, (batch, length), generator=generator)
    places = torch.rand(batch, length - 1, generator=generator).argsort(1)[:, :2] + 1
    tokens.scatter_(1, places[:, :1], A)
    tokens.scatter_(1, places[:, 1:], B)
    tokens[:, 0] = CLS
    return tokens, (places[:, 0] < places[:, 1]).long()


def swap_two(tokens):
    """The same sequences with A and B exchanged: every label of `first_of_two` turns over."""
    swapped = tokens.clone()
    swapped[tokens == A], swapped[tokens == B] = B, A
    return swapped


def own_place(batch, generator, *, length=32, marked=True):
    """Where does each token stand?  The tokens are random, so they do not tell.

    Parameters
    ----------
    batch : int
    generator : torch.Generator
    length : int, at least 2
    marked : bool
        Whether the first token is `CLS`, which occurs nowhere else.

    Returns
    -------
    tokens : int64, shape (batch, length)
    place : int64, shape (batch, length) : 0 to length - 1 in each row
    """
    if length < 2:
        raise ValueError(f"length is {length}; allowed is at least 2")
    tokens = torch.randint(0, FILLERS, (batch, length), generator=generator)
    if marked:
        tokens[:, 0] = CLS
    return tokens, torch.arange(length).repeat(batch, 1)


@functools.cache
def prose():
    """English prose that comes with Python: the reference manual's topics, in bytes.

    Every tenth topic (in the alphabet's order) is held out.

    Returns
    -------
    train, held_out : uint8 tensors
    """
    from pydoc_data.topics import topics

    texts = [topics[name].encode() for name in sorted(topics)]
    held_out = [t for i, t in enumerate(texts) if i % 10 == 3]
    train = [t for i, t in enumerate(texts) if i % 10 != 3]
    return tuple(torch.tensor(list(b"\n".join(part)), dtype=torch.uint8) for part in (train, held_out))


def _windows(text, batch, length, generator):
    if len(text) < length:
        raise ValueError(f"text has {len(text)} bytes; allowed is at least a window, {length}")
    start = torch.randint(0, len(text) - length + 1, (batch,), generator=generator)
    return text[start[:, None] + torch.arange(length)].long()


def next_bytes(text, batch, generator, *, length=64):
    """Windows of `text` and, for each place, the byte that follows: both (batch, length)."""
    window = _windows(text, batch, length + 1, generator)
    return window[:, :-1], window[:, 1:]


def masked_bytes(text, batch, generator, *, length=64, share=0.15):
    """Windows of `text` in which a share of the bytes is hidden behind `MASK`.

    Returns
    -------
    tokens, targets : int64, shape (batch, length)
        Targets are `IGNORED` where nothing is hidden.
    """
    if not 0 < share < 1:
        raise ValueError(f"share is {share}; allowed is between 0 and 1")
    window = _windows(text, batch, length, generator)
    hidden = torch.rand(window.shape, generator=generator) < share
    return window.masked_fill(hidden, MASK), window.masked_fill(~hidden, IGNORED)
