"""Training that is the same on every run, and shows how far it is."""

from __future__ import annotations

import contextlib
import sys

from poslib._page import is_static
from poslib.lab._torch import torch

functional = torch.nn.functional

__all__ = ["cross_entropy", "one_thread", "train"]


def cross_entropy(logits, targets):
    """Mean loss in nats over the targets that are not ignored; logits (..., classes), targets (...)."""
    return functional.cross_entropy(logits.flatten(0, -2), targets.flatten())


@contextlib.contextmanager
def one_thread():
    """These models are too small to share out: threads only wait for each other, and change last digits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _groups(model, rate, position_rate):
    """Parameters of the positions apart from the others, where their rate differs."""
    if position_rate == 1:
        return model.parameters()
    apart = [p for name, p in model.named_parameters() if name.startswith("positions.")]
    others = [p for name, p in model.named_parameters() if not name.startswith("positions.")]
    return [{"params": others}] + ([{"params": apart, "lr": rate * position_rate}] if apart else [])


@one_thread()
def train(model, batch, *, steps, seed=0, loss=cross_entropy, rate=3e-3, position_rate=1.0, warmup=50, every=None, look=None,
          progress=None):
    """Train with AdamW; the rate warms up, then falls linearly to a tenth.

    Parameters
    ----------
    model : torch.nn.Module
        Changed in place.
    batch : callable
        ``batch(generator)`` gives ``(inputs, targets)``.
    steps : int, at least 1
    seed : int
        Of the batches.
    loss : callable
        ``loss(model(inputs), targets)``.
    rate : float
        Largest learning rate.
    position_rate : float
        Factor on it for the parameters of ``model.positions``, if it has any.
    every, look : int and callable, optional
        ``look(model)`` is called every so many steps (and after the last); its results are returned.
    progress : bool, optional
        Whether to show a line that counts steps; on in a live session, off while the book is made.

    Returns
    -------
    list of (step, result of `look`)
    """
    if steps < 1:
        raise ValueError(f"steps is {steps}; allowed is at least 1")
    if (every is None) != (look is None):
        raise ValueError("give both every and look, or neither")
    progress = not is_static() if progress is None else progress
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(_groups(model, rate, position_rate), lr=rate, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda s: min((s + 1) / warmup, 1.0) * (1 - 0.9 * min(s / steps, 1.0)))
    seen = []
    for step in range(1, steps + 1):
        inputs, targets = batch(generator)
        value = loss(model(inputs), targets)
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        schedule.step()
        if look and (step % every == 0 or step == steps):
            with torch.no_grad():
                seen.append((step, look(model)))
        if progress and (step % 20 == 0 or step == steps):
            print(f"\rstep {step}/{steps}, loss {value.item():.3f}", end="" if step < steps else "\n",
                  file=sys.stderr, flush=True)
    return seen
