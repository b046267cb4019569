"""What chapter 17 asks of the atlas, of published models, and of a reader who has to choose.

    python -m poslib.lab.choosing            writes results/choosing.json: what a step costs with each encoding; two minutes
    python -m poslib.lab.choosing --figure   writes the rules into the figure decision-guide

The atlas itself is `poslib.lab.atlas`.  `layers` is a census of what stands around the rotary settings of
`poslib.lab.census`: windows, layers without positions, the scale of the scores.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import NamedTuple

from poslib import cost
from poslib.lab import atlas, census, results

__all__ = ["CONSTRAINTS", "FIELDS", "METHODS", "Layers", "Rule", "bytes_of", "layer_sources", "layers", "ratios", "recommend", "rules", "step_times"]

# ---- a census of layers ---------------------------------------------------------------------------

FIELDS = {
    "position": "what tells the model where its tokens stand",
    "base": "of the rotary ladder, or of the sinusoids",
    "share": "of the channels of a head that turn",
    "window": "tokens that a query sees in the layers with a window; 0 where no layer has one",
    "windowed": "how many layers have it",
    "nope": "how many layers (with softmax attention) have no positions",
    "temperature": "factor of the scores, d being the width of a head",
}
FILE = Path(__file__).parent / "data" / "layers.json"


class Layers(NamedTuple):
    """One model.  Each field of `FIELDS` is a value or None; `cells` has their sources."""

    name: str
    year: int
    kind: str
    position: str
    base: float | None
    share: float | None
    window: int | None
    windowed: str | None
    nope: str | None
    temperature: str | None
    cells: dict


def layers():
    """All entries, by year; base and share of those that `census` has are its cells."""
    rotary, found = {e.name: e for e in census.load()}, []
    for m in _read()["models"]:
        cells = {f: m[f] for f in FIELDS if f in m}
        if "census" in m:
            e = rotary[m["census"]]
            wide, turned = e.cells["head_width"], e.cells["rotary_width"]
            cells["base"] = e.cells["base"]
            cells["share"] = {"value": e.rotary_width / e.head_width, "source": turned["source"], "at": f"{turned['at']}; width: {wide['at']}"}
        cells = {f: cells[f] for f in FIELDS}
        found.append(Layers(m["name"], m["year"], m["kind"], **{f: c["value"] for f, c in cells.items()}, cells=cells))
    return found


def layer_sources():
    """What the cells' sources are."""
    return {**census.sources(), **_read()["sources"]}


def _read():
    return json.loads(FILE.read_text("utf8"))


# ---- what an encoding costs -----------------------------------------------------------------------

ROUNDS = 25


def bytes_of(method, a):
    """Bytes that a method adds to reading `a`, an `Attention` of `poslib.cost`: of one layer, or once at the entrance.

    Fused kernels throughout: rotation in the attention kernel with stored tables, Shaw's vectors for keys and values clipped at 16.
    """
    if method == "none":
        return 0
    if method in ("learned", "sinusoid"):
        return cost.absolute(a).bytes
    if method == "alibi":
        return cost.scalar_bias(a, "slope").bytes
    if method in ("t5", "kerple"):
        return cost.scalar_bias(a, "table").bytes
    if method == "shaw":            # clipped at 16, as in the atlas
        return 2 * cost.lag_vectors(a, "clipped", clip=16).bytes
    if method in ("rotary", "proportional"):
        return cost.rotation(a, "in_attention").bytes
    if method == "xpos":            # queries and keys have tables of their own
        return 2 * cost.rotation(a, "in_attention").bytes
    raise ValueError(f"method is {method!r}; allowed are {', '.join(atlas.METHODS)}")


def step_times(rounds=ROUNDS):
    """CPU seconds of a training step on text with each encoding; all take turns, once per round; {method: [seconds]}."""
    from poslib.lab._torch import torch
    from poslib.lab.model import Transformer
    from poslib.lab.training import cross_entropy, one_thread

    t, models, found = atlas.TASKS["text"], {}, {}
    for m, settings in atlas.METHODS.items():
        model = Transformer(vocabulary=t.vocabulary, width=t.width, causal=True, position=m, max_length=8 * t.length, settings=settings[0].get("settings"))
        models[m], found[m] = (model, torch.optim.AdamW(model.parameters(), lr=1e-3)), []
    tokens, targets = atlas.draw("text", atlas.TRAINED, t.batch)
    with one_thread():
        for n in range(rounds + 2):
            for m, (model, optimiser) in models.items():
                start = time.process_time()
                loss = cross_entropy(model(tokens), targets)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                if n >= 2:                      # two rounds to warm up
                    found[m].append(time.process_time() - start)
    return found


def ratios(times):
    """Median over rounds of each method's time in times of "none" of the same round, and the quarters around it."""
    found = {}
    for m, mine in times.items():
        r = [a / b for a, b in zip(mine, times["none"])]
        low, middle, high = statistics.quantiles(r, n=4) if len(r) > 1 else r * 3
        found[m] = [round(x, 3) for x in (low, middle, high)]
    return found


# ---- a guide --------------------------------------------------------------------------------------

METHODS = {"none": "no positions", "learned": "learned table", "sinusoid": "sinusoids", "shaw": "Shaw", "t5": "T5 bias", "alibi": "ALiBi", "kerple": "KERPLE",
           "rotary": "RoPE", "proportional": "p-RoPE", "xpos": "xPos", "mixed": "RoPE windows, NoPE between"}
CONSTRAINTS = {
    "model": {"decoder": "a decoder", "encoder": "an encoder"},
    "length": {"trained": "the trained length", "loss": "longer, near tokens matter", "fetch": "longer, far tokens matter"},
    "kernel": {"turn": "turned queries and keys", "bias": "a number added to scores"},
    "lag": {False: "", True: "an exact lag must be met"},
    "tune": {False: "", True: "training on long texts at the end"},
    "memory": {False: "", True: "the cache must stay small"},
    "apart": {False: "", True: "position as a term of its own"},
}
CLOSE, BEHIND = 0.15, 0.2                               # nats a byte at L over the best
SMALL, LARGE, FOUND, LOST, FAILED = 0.05, 0.3, 0.99, 0.9, 0.5        # nats a byte at 8 L over those at L; shares of right answers


class Rule(NamedTuple):
    """When all of `when` holds, a reason for or against a method, or why it is out; `source` is a chapter, the atlas or a paper."""

    when: dict
    method: str
    side: str
    reason: str
    source: str


def _measured(runs, task, key):
    """What the atlas's runs have for each method: an array with a row for each seed and columns for 1, 2, 4, 8 times L."""
    import numpy as np
    return {m: np.array([list(r[key].values()) for r in runs if (r["task"], r["method"]) == (task, m)]) for m in atlas.METHODS}


def rules():
    """All rules; those that come from the atlas are read off its stored results."""
    found = []

    def add(side, methods, reason, source, **when):
        found.extend(Rule(when, m, side, reason, source) for m in methods.split())

    add("for", "none", "the causal mask alone tells a decoder something of order", "chapter 2", model="decoder")
    add("out", "none", "without a mask and without positions all orders look alike", "chapter 1", model="encoder")
    add("out", "xpos", "its scores would grow toward later keys", "chapter 8", model="encoder")
    add("against", "alibi kerple", "the penalty is the same on both sides: no direction", "chapter 6", model="encoder")
    add("against", "mixed", "its layers without positions lean on the causal mask", "chapter 2", model="encoder")
    add("for", "learned sinusoid shaw t5 rotary proportional", "tells left from right as it stands", "chapter 6", model="encoder")
    add("out", "learned", "there are no trained rows past the table", "chapter 3", length="loss")
    add("out", "learned", "there are no trained rows past the table", "chapter 3", length="fetch")
    add("for", "mixed", "turns no lag beyond the window, whatever the length", "this chapter", length="loss")
    add("for", "mixed", "layers without positions reach every key; no new phases", "this chapter", length="fetch")
    runs = results.load("atlas")["runs"]
    text, near = _measured(runs, "text", "tail"), _measured(runs, "text", "tail_window")
    needle, copy = _measured(runs, "needle", "right"), _measured(runs, "copy", "right")
    best = [m for m in text if len(text[m])]
    least = min(text[m][:, 0].mean() for m in best)
    for m in best:
        behind = text[m][:, 0].mean() - least
        if behind < CLOSE:
            add("for", m, f"atlas: loss at L within {CLOSE} of the best", "atlas")
        elif behind > BEHIND:
            add("against", m, f"atlas: loss at L is {behind:.2f} behind the best", "atlas")
        if all(r["steps"] is None for r in runs if (r["task"], r["method"]) == ("previous", m)):
            add("against", m, "atlas: no seed learned one place back in 200 steps", "atlas", lag=True)
        rise = text[m][:, 3] - text[m][:, 0]
        if rise.max() < SMALL:
            add("for", m, f"atlas: loss at 8 L within {SMALL} of that at L, every seed", "atlas", length="loss")
        elif rise.mean() > LARGE:
            add("against", m, f"atlas: loss at 8 L worse by {rise.mean():.1f} nats in the mean", "atlas", length="loss")
        if needle[m][:, 3].min() > FOUND:
            add("for", m, "atlas: all needles found at 8 L, every seed", "atlas", length="fetch")
        elif needle[m][:, 3].mean() < LOST:
            add("against", m, f"atlas: {100 * needle[m][:, 3].mean():.0f} % of the needles found at 8 L", "atlas", length="fetch")
        if abs(near[m][:, 3] - text[m][:, 0]).max() < SMALL:
            add("for", m, f"atlas: seeing L bytes in each layer, loss at 8 L within {SMALL} of L", "atlas", memory=True)
        for length, column, at in (("trained", 0, "L"), ("loss", 3, "8 L"), ("fetch", 3, "8 L")):
            if copy[m][:, column].min() > FOUND:
                add("for", m, f"atlas: copies from four back at {at}, every seed", "atlas", lag=True, length=length)
            elif copy[m][:, column].mean() < LOST:
                side = "against" if copy[m][:, column].mean() >= FAILED else "out"
                add(side, m, f"atlas: copies {100 * copy[m][:, column].mean():.0f} % from four back at {at}", "atlas", lag=True, length=length)
    add("for", "rotary proportional xpos mixed", "turned before the kernel: any attention kernel will do", "chapter 12", kernel="turn")
    add("for", "none learned sinusoid", "the kernel sees nothing of it", "chapter 11", kernel="turn")
    add("out", "shaw", "a vector for each lag inside the kernel", "chapter 11", kernel="turn")
    add("out", "t5 kerple", "needs a kernel that adds a number for each lag", "chapter 11", kernel="turn")
    add("against", "alibi", "needs a kernel that knows its slopes", "chapter 11", kernel="turn")
    add("for", "t5 alibi kerple", "one number a lag and head: few bytes", "chapter 11", kernel="bias")
    add("against", "shaw", "a vector a lag: more bytes and products than a number", "chapter 11", kernel="bias")
    add("for", "rotary proportional", "its ladder can be rescaled and tuned", "chapter 13", tune=True)
    add("for", "mixed", "pretrained RoPE models were converted so by further training", "Puvvada et al. 2025", tune=True)
    add("against", "alibi", "slopes are set: there is nothing to tune", "chapter 6", tune=True)
    add("for", "mixed", "three windows to one full layer: a quarter of the cache and a little", "this chapter", memory=True)
    add("against", "none", "full layers only: without positions there is nothing near", "this chapter", memory=True)
    add("for", "t5 alibi kerple", "score = content + a number: two terms to read", "chapter 6", apart=True)
    add("for", "shaw", "score = content + a term with the lag", "chapter 6", apart=True)
    add("against", "none", "no term at all: what there is of position is in the states", "chapter 2", apart=True)
    add("against", "learned sinusoid", "position runs through the stream and every matrix", "chapter 3", apart=True)
    add("against", "rotary proportional xpos mixed", "content and lag are one product: a map for each lag", "chapter 8", apart=True)
    return found


def recommend(given=None, **answers):
    """Methods in the order of reasons for less reasons against; those that are out come last, ties in the order of `METHODS`.

    Parameters
    ----------
    given : list of Rule, optional
        `rules()` unless given.
    **answers
        One of each of `CONSTRAINTS`.

    Returns
    -------
    list of dict: method, for, against, out (lists of rules)
    """
    for name, allowed in CONSTRAINTS.items():
        if answers.get(name) not in allowed:
            raise ValueError(f"{name} is {answers.get(name)!r}; allowed are {', '.join(map(repr, allowed))}")
    fired = [r for r in (rules() if given is None else given) if all(answers[k] == v for k, v in r.when.items())]
    found = [{"method": m, **{side: [r for r in fired if (r.method, r.side) == (m, side)] for side in ("for", "against", "out")}} for m in METHODS]
    return sorted(found, key=lambda f: (bool(f["out"]), len(f["against"]) - len(f["for"])))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--figure", action="store_true", help="write the rules into the figure decision-guide")
    if parser.parse_args().figure:
        results.put_into_figure("decision-guide", {"methods": METHODS, "rules": [list(r) for r in rules()]})
        return
    found = ratios(step_times())
    results.store("choosing", {
        "what": "CPU time of a training step on the atlas's text (batch 16, 64 bytes, width 64, one thread) in times of the model without positions, "
                f"encodings taking turns, {ROUNDS} rounds: quarters and median.", "step": found},
        command="python -m poslib.lab.choosing", seeds=[])
    for m, r in found.items():
        print(m.ljust(13), *r)


if __name__ == "__main__":
    main()
