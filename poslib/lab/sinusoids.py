"""The experiments of chapter 04: learned table or sinusoids in range, and sinusoids past the length of training.

    python -m poslib.lab.sinusoids        writes results/sinusoids.json; a quarter of an hour of CPU time
"""

from __future__ import annotations

import math

import numpy as np

from poslib.absolute import frequencies, sinusoid
from poslib.attention import attention, merge_heads, split_heads
from poslib.lab import results, tasks
from poslib.lab._torch import torch
from poslib.lab.encodings import Encoding
from poslib.lab.model import Transformer
from poslib.lab.training import one_thread, train

SEEDS = range(5)
KINDS = ("sinusoid", "learned")
L, FAR, STEPS = 64, 256, 2500
STARTS, NEAR_STARTS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 1000), (0, 8, 16, 24, 32)
SHARE_STARTS = (0, 32, 64, 128, 1000)
GROUPS = ("fast", "middle", "slowest", "fast+slowest", "middle+slowest")
AHEAD = ("fast", "middle", "slowest", "middle+slowest")


def held_out_windows(count, length, seed=99):
    """Windows of held-out prose and the byte that follows each of their bytes: both (count, length)."""
    return tasks.next_bytes(tasks.prose()[1], count, torch.Generator().manual_seed(seed), length=length)


def hands(group, width=64):
    """A mask over the pairs: "fast" finish a turn within L, "middle" need up to 8L for one, "slowest" more; "fast+middle" joins groups."""
    turn = 2 * math.pi / frequencies(width, like=torch.ones(1))
    parts = {"fast": turn <= L, "middle": (turn > L) & (turn <= 8 * L), "slowest": turn > 8 * L}
    return torch.stack([parts[name] for name in group.split("+")]).any(0)


@torch.no_grad()
def losses(model, tokens, targets, positions=None, batch=64):
    """Loss at every place in nats, averaged over the windows: (length,).  Positions are the same for all windows, or a row for each."""
    total, each_its_own = 0.0, positions is not None and positions.ndim == 2
    places = positions.split(batch) if each_its_own else [positions] * -(-len(tokens) // batch)
    for x, y, at in zip(tokens.split(batch), targets.split(batch), places):
        each = torch.nn.functional.cross_entropy(model(x, at).flatten(0, 1), y.flatten(), reduction="none")
        total = total + each.reshape(y.shape).double().sum(0)
    return total / len(tokens)


def second_half(model, windows, positions=None):
    """Mean loss on the second half of the windows, each read from its beginning."""
    return losses(model, *windows, positions)[windows[0].shape[1] // 2:].mean().item()


def readings(model, windows):
    """Loss on the same last 32 targets of windows of 2L bytes, read in three ways.

    "whole": 2L bytes at positions 0 to 2L - 1.  "block": the last L bytes at positions 0 to L - 1, as in training.
    "moved": the last L bytes at positions L to 2L - 1, so that nothing but the positions is new.
    """
    tokens, targets = (w[:, :2 * L] for w in windows)
    last, at = (tokens[:, L:], targets[:, L:]), torch.arange(L)
    return {"whole": losses(model, tokens, targets)[-32:].mean().item(),
            "block": second_half(model, last), "moved": second_half(model, last, at + L)}


class _Moved(Encoding):
    """Sinusoids whose pairs in `mask` stand `shift` positions further on than the others."""

    def __init__(self, inner, mask, shift):
        super().__init__()
        self.inner, self.columns, self.shift = inner, mask.repeat_interleave(2), shift

    def embed(self, x, positions):
        return torch.where(self.columns, self.inner.embed(x, positions + self.shift), self.inner.embed(x, positions))


def moved_in_part(model, windows, group, shift, start=0):
    """`second_half` of windows that begin at position `start`, but for the hands of a group, which stand `shift` further on."""
    inner = model.positions
    model.positions = _Moved(inner, hands(group), shift)
    try:
        return second_half(model, windows, torch.arange(windows[0].shape[1]) + start)
    finally:
        model.positions = inner


class _OtherScores(torch.nn.Module):
    """A layer whose queries and keys read its input plus `extra`; its values and the stream do not."""

    def __init__(self, block, extra):
        super().__init__()
        self.block, self.extra = block, extra

    def forward(self, x, mask, *_):
        block = self.block
        q, k, _ = (split_heads(t, block.heads) for t in block.qkv(block.norm1(x + self.extra)).chunk(3, dim=-1))
        v = split_heads(block.qkv(block.norm1(x)).chunk(3, dim=-1)[2], block.heads)
        x = x + block.out(merge_heads(attention(q, k, v, mask=mask)[0]))
        return x + block.mlp(block.norm2(x))


def moved_scores(model, windows, scores, rest):
    """`second_half` where layer 1's queries and keys read the clock from position `scores` on, and all else from `rest` on."""
    at, block = torch.arange(windows[0].shape[1]), model.blocks[0]
    extra = model.code(at + scores) - model.code(at + rest)
    model.blocks[0] = _OtherScores(block, extra.detach())
    try:
        return second_half(model, windows, at + rest)
    finally:
        model.blocks[0] = block


def scrambled(count, length, seed=98):
    """Positions 0 to length - 1 in an order of its own for each window: (count, length)."""
    return torch.rand(count, length, generator=torch.Generator().manual_seed(seed)).argsort(1)


@torch.no_grad()
def position_scores(model, head, start=0, length=L):
    """Layer 1's scores between the codes alone, without the factor that its norm takes from the token: (length, length) float64."""
    block = model.blocks[0]
    code = model.code(torch.arange(start, start + length))
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


@torch.no_grad()
def score_parts(model, tokens):
    """Layer 1's scores as a sum of four: code with code, code with word, word with code, word with word (query first).

    Shape (heads, 4, windows, length, length).  The norm's factor, which depends on word and code, stays in; its constant is
    counted with the words.
    """
    block, word = model.blocks[0], model.embedding(tokens)
    code = model.embed(tokens) - word
    factor = block.norm1.weight / ((word + code).var(-1, unbiased=False, keepdim=True) + block.norm1.eps).sqrt()
    word, code = ((x - x.mean(-1, keepdim=True)) * factor for x in (word, code))
    word = word + block.norm1.bias
    (qw, kw), (qc, kc) = ([split_heads(t, block.heads) for t in block.qkv(x).chunk(3, dim=-1)[:2]] for x in (word, code))
    parts = [q @ k.mT / math.sqrt(q.shape[-1]) for q, k in ((qc, kc), (qc, kw), (qw, kc), (qw, kw))]
    return torch.stack(parts).movedim(2, 0)


def part_sizes(model, tokens):
    """Mean square of each of the four `score_parts` over visible keys, its mean for each query taken out: (heads, 4) as lists."""
    parts = score_parts(model, tokens).double()
    seen = torch.ones(parts.shape[-2:]).tril()
    rest = (parts - (parts * seen).sum(-1, keepdim=True) / seen.sum(-1, keepdim=True)) * seen
    return ((rest ** 2).sum((-1, -2)) / seen.sum()).mean(-1).tolist()


@torch.no_grad()
def unseen(model, untrained):
    """What words do in the directions where the L codes hardly reach (a singular value below 1/1000 of the largest).

    The share of the word vectors' variance that lies there, and how far layer 1's query and key matrices moved there in
    training, as a part of their first norm.
    """
    _, size, directions = torch.linalg.svd(sinusoid(torch.arange(L), 64))
    there = directions[size < 1e-3 * size[0]].T
    word = model.embedding.weight.double()
    word = word - word.mean(0)
    new, old = (m.blocks[0].qkv.weight[:128].double() @ there for m in (model, untrained))
    return {"words": ((word @ there).square().sum() / word.square().sum()).item(), "moved": ((new - old).norm() / old.norm()).item()}


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
    found["by_start_in_range"] = [second_half(model, half, torch.arange(L // 2) + start) for start in NEAR_STARTS]
    found["scrambled"] = second_half(model, half, scrambled(1024, L // 2))
    found["part_sizes"] = part_sizes(model, held_out_windows(256, L)[0])
    if kind == "sinusoid":
        tokens, targets = windows = held_out_windows(1024, FAR)
        cut = [torch.cat(w.split(L, dim=1)) for w in windows]             # first blocks of all windows, then second blocks, …
        near, second = ([w[:, part * L:(part + 1) * L] for w in windows] for part in (0, 1))
        found |= readings(model, windows)
        found["moved_part"] = {group: moved_in_part(model, second, group, L) for group in GROUPS}
        found["ahead_seen"] = {group: moved_in_part(model, half, group, L // 2) for group in AHEAD}
        found["ahead_unseen"] = {group: moved_in_part(model, half, group, L // 2, start=L // 2) for group in AHEAD}
        found["moved_scores"], found["moved_rest"] = moved_scores(model, second, L, 0), moved_scores(model, second, 0, L)
        found["unseen"] = unseen(model, untrained)
        found["lag_share_from"] = [[lag_share(position_scores(model, head, start)) for head in (0, 1)] for start in SHARE_STARTS]
        found["by_place"] = losses(model, tokens, targets).tolist()
        found["by_place_in_blocks"] = [x for part in range(FAR // L) for x in
                                       losses(model, *(w[part * 1024:(part + 1) * 1024] for w in cut)).tolist()]
        found["by_start"] = [second_half(model, near, torch.arange(L) + start) for start in STARTS]
    return found


def main():
    runs = {kind: [] for kind in KINDS}
    for seed in SEEDS:
        for kind in KINDS:
            runs[kind].append(results.rounded(measure(kind, seed, progress=False)))
            print(kind, seed, {k: v for k, v in runs[kind][-1].items() if not k.startswith("by_place")}, flush=True)
    path = results.store("sinusoids", {
        "what": f"Byte-level causal models (width 64, 2 layers, 2 heads) trained on the prose of Python's manual in windows of {L}, {STEPS} steps of 16 windows. "
                "For each kind a dictionary for each seed, losses in nats a byte on held-out pages. in_range: windows of L. lag_share_before, _after: for each head of layer 1, "
                "the share of the scores between codes alone that is a function of the lag, untrained and trained. whole, block, moved: the same last 32 targets of windows of 2L, "
                "read at positions 0…2L-1, in the last L bytes at 0…L-1, and in the last L bytes at L…2L-1. moved_part: as block, but the hands of one group at L…2L-1 "
                "(fast: a turn takes at most L, middle: at most 8L, slowest: more). ahead_seen: windows of L/2 at 0…L/2-1, one group at L/2…L-1, last 16 targets; "
                "ahead_unseen: the same windows at L/2…L-1, one group at L…3L/2-1. moved_scores: as block, but layer 1's queries and keys read the clock at L…2L-1; moved_rest: all else does. "
                "unseen: in the directions that the L codes hardly reach, the share of the word vectors' variance, and how far layer 1's query and key matrices moved in training, relative to their start. "
                "part_sizes: for each head of layer 1 the mean square, over visible keys, of the scores' parts code-code, code-word, word-code, word-word (query first), each query's mean taken out. "
                "lag_share_from: lag_share_after for positions that begin at each of share_starts. by_place: loss at each place of windows of 4L; by_place_in_blocks: the same "
                "windows read in blocks of L, each from position 0. by_start: last 32 targets of windows of L whose first position is each of starts. "
                "by_start_in_range: last 16 targets of windows of L/2 that begin at each of near_starts, so that no position is new; "
                "scrambled: the same windows with positions 0…L/2-1 in an order drawn for each.",
        "L": L, "steps": STEPS, "starts": list(STARTS), "near_starts": list(NEAR_STARTS), "share_starts": list(SHARE_STARTS), "runs": runs},
        command="python -m poslib.lab.sinusoids", seeds=SEEDS)
    print(f"wrote {path.name}")


if __name__ == "__main__":
    main()
