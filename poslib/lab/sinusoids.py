"""The experiments of chapter 04: learned table or sinusoids in range, and sinusoids past the length of training.

    python -m poslib.lab.sinusoids        writes results/sinusoids.json; a quarter of an hour of CPU time
"""

from __future__ import annotations

import math

import numpy as np

from poslib.absolute import frequencies
from poslib.lab import results, tasks
from poslib.lab._torch import torch
from poslib.lab.model import Transformer
from poslib.lab.training import cross_entropy, one_thread, train
from poslib.nn import LearnedPositions

SEEDS = range(5)
KINDS = ("sinusoid", "learned")
L, FAR, STEPS = 64, 256, 2500
STARTS, NEAR_STARTS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 1000), (0, 8, 16, 24, 32)
SHARE_STARTS = (0, 32, 64, 128, 1000)


def held_out_windows(count, length, seed=99):
    """Windows of held-out prose and the byte that follows each of their bytes: both (count, length)."""
    return tasks.next_bytes(tasks.prose()[1], count, torch.Generator().manual_seed(seed), length=length)


@torch.no_grad()
def losses(model, tokens, targets, positions=None, batch=64):
    """Loss at every place in nats, averaged over the windows: (length,)."""
    total = 0.0
    for x, y in zip(tokens.split(batch), targets.split(batch)):
        each = torch.nn.functional.cross_entropy(model(x, positions).flatten(0, 1), y.flatten(), reduction="none")
        total = total + each.reshape(y.shape).double().sum(0)
    return total / len(tokens)


def readings(model, windows):
    """Loss on the same last 32 targets of windows of 2L bytes, read in three ways.

    "whole": 2L bytes at positions 0 to 2L - 1.  "block": the last L bytes at positions 0 to L - 1, as in training.
    "moved": the last L bytes at positions L to 2L - 1, so that nothing but the positions is new.
    """
    tokens, targets = (w[:, :2 * L] for w in windows)
    last, at = (tokens[:, L:], targets[:, L:]), torch.arange(L)
    return {"whole": losses(model, tokens, targets)[-32:].mean().item(),
            "block": losses(model, *last)[-32:].mean().item(),
            "moved": losses(model, *last, at + L)[-32:].mean().item()}


class _TwoClocks(torch.nn.Module):
    """Sinusoids whose slow pairs (those of `slow`, a mask over pairs) and fast pairs stand at different positions."""

    def __init__(self, positions, slow, shift_fast, shift_slow):
        super().__init__()
        self.inner, self.columns, self.shifts = positions, slow.repeat_interleave(2), (shift_fast, shift_slow)

    def forward(self, positions):
        fast, slow = (self.inner(positions + shift) for shift in self.shifts)
        return torch.where(self.columns, slow, fast)


def moved_in_part(model, windows, shift_fast, shift_slow):
    """The reading "block" of `readings`, but the pairs that finish a turn within L, or the others, stand further on."""
    slow = 2 * math.pi / frequencies(64, like=torch.ones(1)) > L
    tokens, targets = (w[:, L:2 * L] for w in windows)
    inner = model.positions
    model.positions = _TwoClocks(inner, slow, shift_fast, shift_slow)
    try:
        return losses(model, tokens, targets)[-32:].mean().item()
    finally:
        model.positions = inner


@torch.no_grad()
def position_scores(model, head, start=0, length=L):
    """Layer 1's scores between the codes alone, without the factor that its norm takes from the token: (length, length) float64."""
    block = model.blocks[0]
    code = model.positions(torch.arange(start, start + length))
    if not isinstance(model.positions, LearnedPositions):
        code = model.position_scale * code
    code = ((code - code.mean(-1, keepdim=True)) * block.norm1.weight).double()
    q, k, _ = (code @ w.double().T for w in block.qkv.weight.chunk(3))
    size = q.shape[1] // block.heads
    part = slice(head * size, (head + 1) * size)
    return (q[:, part] @ k[:, part].T / math.sqrt(size)).numpy()


def lag_share(scores):
    """How far causal scores are a function of the lag: 1 if they are one, up to a constant for each query.

    The softmax does not see a constant for each query, so it is taken out first.  Of the variance that is left, the share that
    the best function of the lag explains.
    """
    n = len(scores)
    i, j = np.tril_indices(n)
    y, query, lag = scores[i, j], np.eye(n)[i], np.eye(n)[i - j][:, 1:]     # without lag 0: the queries' columns add up to 1 already

    def rest(x):
        return ((y - x @ np.linalg.solve(x.T @ x, x.T @ y)) ** 2).sum()
    return float(1 - rest(np.hstack([query, lag])) / rest(query))


@one_thread()
def learn_text(kind, seed, *, steps=STEPS, progress=None):
    """Train a causal byte-level model of width 64 and two layers in windows of L; the model."""
    text, _ = tasks.prose()
    model = Transformer(vocabulary=256, width=64, causal=True, position=kind, max_length=L, seed=seed)
    train(model, lambda g: tasks.next_bytes(text, 16, g, length=L), steps=steps, seed=seed, progress=progress)
    return model


@one_thread()
def measure(kind, seed, *, steps=STEPS, progress=None):
    """Train one model and read it in range, and, with sinusoids, past the length of training."""
    untrained = Transformer(vocabulary=256, width=64, causal=True, position=kind, max_length=L, seed=seed)
    model = learn_text(kind, seed, steps=steps, progress=progress)
    found = {"in_range": losses(model, *held_out_windows(2048, L)).mean().item(),
             "lag_share_before": [lag_share(position_scores(untrained, head)) for head in (0, 1)],
             "lag_share_after": [lag_share(position_scores(model, head)) for head in (0, 1)]}
    half = held_out_windows(1024, L // 2)
    found["by_start_in_range"] = [losses(model, *half, torch.arange(L // 2) + start)[-16:].mean().item() for start in NEAR_STARTS]
    if kind == "sinusoid":
        tokens, targets = windows = held_out_windows(1024, FAR)
        cut = [torch.cat(w.split(L, dim=1)) for w in windows]             # first blocks of all windows, then second blocks, …
        near = [w[:, :L] for w in windows]
        found |= readings(model, windows)
        found["moved_fast"], found["moved_slow"] = moved_in_part(model, windows, L, 0), moved_in_part(model, windows, 0, L)
        found["lag_share_from"] = [[lag_share(position_scores(model, head, start)) for head in (0, 1)] for start in SHARE_STARTS]
        found["by_place"] = losses(model, tokens, targets).tolist()
        found["by_place_in_blocks"] = [x for part in range(FAR // L) for x in
                                       losses(model, *(w[part * 1024:(part + 1) * 1024] for w in cut)).tolist()]
        found["by_start"] = [losses(model, *near, torch.arange(L) + start)[-32:].mean().item() for start in STARTS]
    return found


def _rounded(x):
    return {k: _rounded(v) for k, v in x.items()} if isinstance(x, dict) else [_rounded(v) for v in x] if isinstance(x, list) else round(x, 4)


def main():
    runs = {kind: [] for kind in KINDS}
    for seed in SEEDS:
        for kind in KINDS:
            runs[kind].append(_rounded(measure(kind, seed, progress=False)))
            print(kind, seed, {k: v for k, v in runs[kind][-1].items() if not k.startswith("by_place")}, flush=True)
    path = results.store("sinusoids", {
        "what": f"Byte-level causal models (width 64, 2 layers, 2 heads) trained on the prose of Python's manual in windows of {L}, {STEPS} steps of 16 windows. "
                "For each kind a dictionary for each seed, losses in nats a byte on held-out pages. in_range: windows of L. lag_share_before, _after: for each head of layer 1, "
                "the share of the scores between codes alone that is a function of the lag, untrained and trained. whole, block, moved: the same last 32 targets of windows of 2L, "
                "read at positions 0…2L-1, in the last L bytes at 0…L-1, and in the last L bytes at L…2L-1. moved_fast, moved_slow: as block, but the pairs that finish a turn within L, "
                "or the others, at L…2L-1. lag_share_from: lag_share_after for positions that begin at each of share_starts. by_place: loss at each place of windows of 4L; by_place_in_blocks: the same "
                "windows read in blocks of L, each from position 0. by_start: last 32 targets of windows of L whose first position is each of starts. "
                "by_start_in_range: last 16 targets of windows of L/2 that begin at each of near_starts, so that no position is new.",
        "L": L, "steps": STEPS, "starts": list(STARTS), "near_starts": list(NEAR_STARTS), "share_starts": list(SHARE_STARTS), "runs": runs},
        command="python -m poslib.lab.sinusoids", seeds=SEEDS)
    print(f"wrote {path.name}")


if __name__ == "__main__":
    main()
