"""Tasks whose answer depends on order, and the text that the small language models read.

A batch is drawn from an explicit `torch.Generator`: the same seed gives the same batches.
"""

from __future__ import annotations

import functools
from pathlib import Path

from poslib.lab._torch import torch

__all__ = ["A", "B", "CLS", "IGNORED", "MASK", "copy_back", "first_of_two", "masked_bytes", "needle", "next_bytes", "own_place", "programs", "prose",
           "repeated", "swap_two"]

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


@functools.cache
def programs():
    """The sources of Python's own standard library, in bytes; packages' first level, tests left out.

    Split by file: every tenth for testing, every tenth for choosing settings.

    Returns
    -------
    train, chosen_on, tested_on : uint8 tensors
    """
    import sysconfig

    root = Path(sysconfig.get_path("stdlib"))
    files = sorted(p for pattern in ("*.py", "*/*.py") for p in root.glob(pattern)
                   if not {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3"} & set(p.relative_to(root).parts))
    texts = [p.read_bytes() for p in files]
    parts = [t for i, t in enumerate(texts) if i % 10 not in (3, 7)], texts[7::10], texts[3::10]
    return tuple(torch.tensor(list(b"\n".join(part)), dtype=torch.uint8) for part in parts)


def copy_back(batch, generator, *, length=32, back=4, symbols=16):
    """Say the token that stood `back` places before; the tokens are random.

    Returns
    -------
    tokens, targets : int64, shape (batch, length)
        Targets are `IGNORED` at the first `back` places.
    """
    if not 0 < back < length:
        raise ValueError(f"back is {back}; allowed is 1 to length - 1 = {length - 1}")
    tokens = torch.randint(0, symbols, (batch, length), generator=generator)
    targets = tokens.roll(back, 1)
    targets[:, :back] = IGNORED
    return tokens, targets


def needle(batch, generator, *, length=64, lags=None, symbols=16):
    """Find the one token that is no filler, wherever it stands, and say which it is at the last place.

    Content alone tells which token it is, so that position is needed for nothing; what is tested is whether an
    encoding lets a query see that far.

    Parameters
    ----------
    length : int, at least 2
    lags : (int, int), optional
        Smallest and largest lag between the last place and the needle; 1 to length - 1 unless given.
    symbols : int
        Kinds of needles, tokens 0 to symbols - 1; fillers are the same number of tokens above, the question one more.

    Returns
    -------
    tokens, targets : int64, shape (batch, length)
        Targets are `IGNORED` but for the last place.
    """
    near, far = (1, length - 1) if lags is None else lags
    if not 1 <= near <= far < length:
        raise ValueError(f"lags is {lags!r}; allowed are two from 1 to length - 1 = {length - 1}, the smaller first")
    tokens = torch.randint(symbols, 2 * symbols, (batch, length), generator=generator)
    answer = torch.randint(0, symbols, (batch,), generator=generator)
    lag = torch.randint(near, far + 1, (batch,), generator=generator)
    tokens[torch.arange(batch), length - 1 - lag] = answer
    tokens[:, -1] = 2 * symbols
    targets = torch.full_like(tokens, IGNORED)
    targets[:, -1] = answer
    return tokens, targets


def repeated(batch, generator, *, length=64, periods=(8, 32), symbols=48):
    """A random sequence that repeats itself: say the next token, which stood one period before.

    Each sequence has its own period.  To answer, a model finds where the token at hand stood last and looks one place further.

    Parameters
    ----------
    length : int
    periods : (int, int)
        Smallest and largest; drawn evenly, ends included.
    symbols : int
        Kinds of tokens.

    Returns
    -------
    tokens, targets : int64, shape (batch, length)
        Targets are `IGNORED` until the first token has come a second time.
    """
    near, far = periods
    if not 1 <= near <= far < length:
        raise ValueError(f"periods is {periods!r}; allowed are two from 1 to length - 1 = {length - 1}, the smaller first")
    period = torch.randint(near, far + 1, (batch, 1), generator=generator)
    once = torch.randint(0, symbols, (batch, far), generator=generator)
    place = torch.arange(length + 1)
    tokens = once.gather(1, place % period)
    targets = tokens[:, 1:].masked_fill(place[:-1] < period, IGNORED)
    return tokens[:, :-1], targets


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
