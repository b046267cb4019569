"""The experiments of chapter 02: can a model without positions say where a token stands?

    python -m poslib.lab.causal_mask        writes results/causal_mask.json; five minutes of CPU time
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor

from poslib.lab import results, tasks
from poslib.lab._torch import torch
from poslib.lab.model import Transformer
from poslib.lab.training import one_thread, train

SEEDS = range(5)
LENGTH, STEPS = 32, 300
# name: (layers, width, causal, first token marked); widths 40 and 56 have the parameters of three layers 32 wide
RUNS = {
    "marked, 1 layer": (1, 32, True, True),
    "marked, 2 layers": (2, 32, True, True),
    "marked, no mask": (2, 32, False, True),
    "unmarked, 1 layer": (1, 32, True, False),
    "unmarked, 2 layers": (2, 32, True, False),
    "unmarked, 3 layers": (3, 32, True, False),
    "unmarked, 1 wide layer": (1, 56, True, False),
    "unmarked, 2 wide layers": (2, 40, True, False),
}


def ridge_r2(train_states, train_place, states, place, strength=1e-3):
    """Share of the variance of `place` that a linear map of the states explains on sequences it was not fitted to.

    Parameters
    ----------
    train_states, states : float tensors, shape (..., width)
    train_place, place : tensors, shape (...)
    strength : float
        Ridge penalty in units of the number of rows; states are standardised first.
    """
    x, y = train_states.double().flatten(0, -2), train_place.double().flatten()
    mean, sd = x.mean(0), x.std(0) + 1e-12
    x, centre = (x - mean) / sd, y.mean()
    gram = x.T @ x / len(x) + strength * torch.eye(x.shape[1], dtype=x.dtype)
    w = torch.linalg.solve(gram, x.T @ (y - centre) / len(x))
    truth = place.double().flatten()
    guess = (states.double().flatten(0, -2) - mean) / sd @ w + centre
    return float(1 - ((guess - truth) ** 2).mean() / truth.var(correction=0))


@torch.no_grad()
def probe(model, marked, sequences=512):
    """`ridge_r2` of the place in the model's last states."""
    (a, at), (b, bt) = (tasks.own_place(sequences, torch.Generator().manual_seed(seed), length=LENGTH, marked=marked) for seed in (501, 502))
    return ridge_r2(model.hidden(a)[-1], at, model.hidden(b)[-1], bt)


@torch.no_grad()
def answers(model, marked, sequences=512):
    """Share of right places, and the mean distance from the right place, for each place."""
    tokens, place = tasks.own_place(sequences, torch.Generator().manual_seed(503), length=LENGTH, marked=marked)
    off = (model(tokens).argmax(-1) - place).abs().double()
    return (off == 0).double().mean(0).tolist(), off.mean(0).tolist()


@one_thread()
def learn_place(name, seed, *, steps=STEPS, progress=None):
    """Train one of `RUNS` to name each token's place; what it answers, and its probes before and after."""
    layers, width, causal, marked = RUNS[name]
    model = Transformer(vocabulary=13, outputs=LENGTH, width=width, layers=layers, causal=causal, seed=seed)
    before = probe(model, marked)
    train(model, lambda g: tasks.own_place(64, g, length=LENGTH, marked=marked), steps=steps, seed=seed, progress=progress)
    right, off = answers(model, marked)
    return {"parameters": sum(p.numel() for p in model.parameters()), "right": right, "off": off,
            "r2_before": before, "r2_after": probe(model, marked)}


def _run(job):
    name, seed = job
    found = learn_place(name, seed, progress=False)
    print(f"{name}, seed {seed}: {sum(found['off']) / LENGTH:.2f} places off, R2 {found['r2_before']:.2f} -> {found['r2_after']:.2f}", flush=True)
    return results.rounded(found)


def main():
    jobs = [(name, seed) for name in RUNS for seed in SEEDS]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        found = dict(zip(jobs, pool.map(_run, jobs)))
    path = results.store("causal_mask", {
        "what": f"Models without positions name the place of each of {LENGTH} random tokens, {STEPS} steps of training. For each run and seed: "
                "parameters; right and off, share of right answers and mean distance from the right place, at each place; "
                "r2_before and r2_after, the share of the place's variance that a ridge probe of the last states explains on new sequences.",
        "length": LENGTH, "steps": STEPS, "runs": {name: [found[name, seed] for seed in SEEDS] for name in RUNS}},
        command="python -m poslib.lab.causal_mask", seeds=SEEDS)
    print(f"wrote {path.name}")


if __name__ == "__main__":
    main()
