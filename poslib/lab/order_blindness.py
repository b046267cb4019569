"""The experiments of chapter 01: can a model without positions learn order?

    python -m poslib.lab.order_blindness        writes results/order_blindness.json; half an hour of CPU time
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor

from poslib.lab import results, tasks
from poslib.lab._torch import torch
from poslib.lab.model import Transformer
from poslib.lab.training import cross_entropy, train

SEEDS = range(5)
POSITIONS = ("none", "learned")
ORDER_STEPS, TEXT_STEPS = 300, 4000
KINDS = {"causal": tasks.next_bytes, "masked": tasks.masked_bytes}


def accuracy_on_pairs(model, pairs=1024, seed=77):
    """Share of right answers on sequences and on their swapped twins: half, if the model cannot see order."""
    tokens, label = tasks.first_of_two(pairs, torch.Generator().manual_seed(seed))
    answers = model(torch.cat([tokens, tasks.swap_two(tokens)]))[:, 0].argmax(-1)
    return (answers == torch.cat([label, 1 - label])).double().mean().item()


def learn_order(position, seed, *, steps=ORDER_STEPS, every=20, progress=None):
    """Train a two-layer encoder on `first_of_two`; the curve of `accuracy_on_pairs`, and the model."""
    model = Transformer(vocabulary=13, outputs=2, position=position, max_length=17, seed=seed)
    curve = train(model, lambda g: tasks.first_of_two(64, g), steps=steps, seed=seed, every=every,
                  progress=progress, look=accuracy_on_pairs, loss=lambda logits, label: cross_entropy(logits[:, 0], label))
    return curve, model


def learn_text(kind, position, seed, *, steps=TEXT_STEPS, every=1000, progress=None):
    """Train a byte-level language model, "causal" or "masked"; the curve of its held-out loss in nats a byte."""
    text, held_out = tasks.prose()
    model = Transformer(vocabulary=257, width=64, causal=kind == "causal", position=position, max_length=64, seed=seed)
    inputs, targets = KINDS[kind](held_out, 2048, torch.Generator().manual_seed(99))
    return train(model, lambda g: KINDS[kind](text, 16, g), steps=steps, seed=seed, every=every, progress=progress,
                 look=lambda m: cross_entropy(m(inputs), targets).item())


def entropy_of_bytes():
    """Loss on held-out text of the best guess that ignores all context, in nats a byte."""
    text, held_out = tasks.prose()
    counts = torch.bincount(text.long(), minlength=256).double() + 1
    return float(-(counts / counts.sum()).log()[held_out.long()].mean())


def _run(job):
    kind, position, seed = job
    if kind == "order":
        curve, _ = learn_order(position, seed, progress=False)
    else:
        curve = learn_text(kind, position, seed, progress=False)
    print(f"{kind}, positions {position}, seed {seed}: {curve[-1][1]:.4f} after {curve[-1][0]} steps", flush=True)
    return curve


def main():
    jobs = [(kind, position, seed) for kind in ("order", *KINDS) for position in POSITIONS for seed in SEEDS]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        curves = dict(zip(jobs, pool.map(_run, jobs)))

    def of(kind):
        return {position: [curves[kind, position, seed] for seed in SEEDS] for position in POSITIONS}

    path = results.store("order_blindness", {
        "what": "For each seed a curve of (step, value). order: share of right answers on 1024 sequences and their swapped twins. "
                "causal, masked: held-out loss in nats a byte, prose of Python's manual in windows of 64 bytes; "
                "no_context: the best guess that ignores the context.",
        "no_context": entropy_of_bytes(), "order": of("order"), **{kind: of(kind) for kind in KINDS}},
        command="python -m poslib.lab.order_blindness", seeds=SEEDS)
    print(f"wrote {path.name}")


if __name__ == "__main__":
    main()
