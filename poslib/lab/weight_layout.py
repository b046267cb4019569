"""The experiment of chapter 10: in which layout do the rows of a file's queries and keys stand?

    python -m poslib.lab.weight_layout        writes results/weight_layout.json; needs SmolLM2; a minute of CPU time

No shape says it.  A model that is turned in the other layout still runs, and is only worse; that decides.  The lengths of the
rows are a hint: in many heads the two channels of a pair have rows of similar length.
"""

from __future__ import annotations

import argparse
import csv
import heapq
import json.decoder
import textwrap
from pathlib import Path

from poslib.lab import pretrained, results
from poslib.lab._torch import torch
from poslib.lab.llama import Llama, Rotary, losses
from poslib.lab.training import one_thread

TOKENS = 512
PASSAGES = {module.__name__: module.__file__ for module in (argparse, heapq, textwrap, csv, json.decoder)}


def not_turned(x, positions, layer, which):
    """A `turn` that leaves positions out."""
    return x


def turns(settings):
    """The ways a model may be turned: both layouts, and not at all."""
    return {layout: Rotary(layout, settings.base) for layout in ("interleaved", "half")} | {"not turned": not_turned}


def by_layout(model, tokens):
    """Mean loss of `model` on tokens (batch, length), in nats a token, for each of `turns`."""
    return {name: losses(model, tokens, turn=turn).mean().item() for name, turn in turns(model.settings).items()}


def partners(model):
    """Correlation of the log lengths of partners' rows, for queries and keys and each layout, one number a layer."""
    s, found = model.settings, {}
    for which, heads in (("q", s.heads), ("k", s.kv_heads)):
        found[which] = {layout: [] for layout in ("interleaved", "half")}
        for layer in range(s.layers):
            length = model.weights[f"{layer}.{which}"].norm(dim=1).log().reshape(heads, -1)
            for layout, pairs in (("interleaved", (length[:, ::2], length[:, 1::2])), ("half", length.chunk(2, 1))):
                found[which][layout].append(round(torch.corrcoef(torch.stack([x.flatten() for x in pairs]))[0, 1].item(), 3))
    return found


def passage(name, tokenizer, tokens=TOKENS):
    """The first tokens of one of `PASSAGES`, shape (1, tokens)."""
    return torch.tensor([tokenizer.encode(Path(PASSAGES[name]).read_text("utf8"))[:tokens]])


@torch.no_grad()
@one_thread()
def main():
    model, tokenizer = pretrained.open_model(pretrained.SMOLLM2), pretrained.open_tokenizer(pretrained.SMOLLM2)
    llama = Llama(model.weights, model.settings)
    found = {}
    for name in PASSAGES:
        found[name] = results.rounded(by_layout(llama, passage(name, tokenizer)))
        print(name, found[name], flush=True)
    lengths = partners(llama)
    print(lengths, flush=True)
    results.store("weight_layout", {
        "what": f"{model.name} as its GGUF file stores it, queries and keys turned in each layout and not at all (poslib.lab.weight_layout): mean loss in "
                f"nats a token over the first {TOKENS} tokens of five files of Python's library. partners: correlation of the log lengths of the two rows of a pair, "
                "if pairs are those of each layout, one number a layer, for queries and keys.",
        "model": model.name, "tokens": TOKENS, "loss": found, "partners": lengths}, command="python -m poslib.lab.weight_layout", seeds=())


if __name__ == "__main__":
    main()
