"""The experiments of chapter 13: small rotary models stretched to four times their length, and which of their pairs fail there.

    python -m poslib.lab.context_extension          does what is missing in results/context_extension.json; 40 minutes of CPU time
    python -m poslib.lab.context_extension --keep DIR     keeps the trained models there, so that a second start need not train again
    python -m poslib.lab.context_extension --seed 0       only what is missing of this seed
    python -m poslib.lab.context_extension --show   prints what is there

Two tasks: language models read Python's own standard library ("text"), others continue random sequences that repeat themselves
("copy").  Two ladders of frequencies: the base at which the slowest pair's wavelength is to the trained length what it is in Llama-2,
for all experiments, and base 10,000, for two of them. Eight seeds each.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from pathlib import Path

import numpy as np

from poslib import rotary
from poslib.lab import atlas, results, tasks
from poslib.lab._torch import torch
from poslib.lab.model import Transformer
from poslib.lab.training import one_thread, train

functional = torch.nn.functional

TRAINED, FACTOR, HEAD = 64, 4, 32               # length, how far it is stretched, head width
LADDERS = {"llama": 188.0, "usual": 10000.0}    # bases: the slowest wavelength is 13.3 and 552 trained lengths
TASKS = {"text": {"vocabulary": 256, "steps": 1000}, "copy": {"vocabulary": 48, "steps": 600}}
SEEDS = {"llama": range(8), "usual": range(8)}
WINDOWS = ((1, 32), (1, 4), (0.5, 2), (0.25, 1))        # turns: of the last pair that is stretched in full, of the first that is left alone
NTK_FACTORS = (4, 6, 8, 13)                     # of NTK-aware scaling: from the one asked for to the one whose reach is four trained lengths
ZERO = ("none", "pi", "ntk", "ntk_chosen", "dynamic", "dynamic_hf", "least", "by_parts_paper", "by_parts", "yarn_paper", "yarn", "pi_temperature",
        "temperature", "window", "window_temperature")
TUNED = ("none", "pi", "ntk_chosen", "yarn", "window")
TUNING = {"steps": 100, "batch": 4, "rate": 1e-3, "warmup": 10}
LENGTHS = (TRAINED, 2 * TRAINED, FACTOR * TRAINED)
OFFSETS = (16, 24, 32, 48, 64, 80, 96, 112, 128, 160, 192)      # periods that copying is asked for, at the greatest length
TEMPERATURES = (0.8, 0.9, 1.0, 1.1, 1.2, 1.3)
DRAWS = 3                                        # of phases, for each group of pairs
CHECKPOINTS = Path(__file__).parent / "checkpoints"


# ---- methods -----------------------------------------------------------------------------------------

def turns(base):
    """Full turns of each pair within the trained length."""
    return TRAINED * rotary.frequencies(HEAD, base) / (2 * np.pi)


def by_parts(base, window, s=FACTOR):
    """The ramp of YaRN's paper: pairs with fewer turns than the window's first number are stretched, with more than the second left alone."""
    kept = np.clip((turns(base) - window[0]) / (window[1] - window[0]), 0, 1)
    return rotary.frequencies(HEAD, base) * (kept + (1 - kept) / s)


def temperature(s=FACTOR):
    """YaRN's factor of queries and of keys."""
    return 0.1 * np.log(s) + 1


def ntk(base, s):
    """A larger base, at which the slowest pair is s times slower."""
    return rotary.frequencies(HEAD, base * max(s, 1) ** (HEAD / (HEAD - 2)))


def stretched(name, base, chosen, length):
    """What one method makes of a model: frequencies, factor of queries and keys, and how many keys a place sees (None: all).

    `chosen` are the window of by-parts and the factor of NTK-aware scaling; `length` matters to the dynamic methods alone.
    """
    (window, by), plain, s = chosen, rotary.frequencies(HEAD, base), length / TRAINED
    factors = {"ntk": FACTOR, "ntk_chosen": by, "dynamic": s, "dynamic_hf": FACTOR * s - (FACTOR - 1)}
    frequencies = {"pi": plain / FACTOR, "by_parts": by_parts(base, window), "by_parts_paper": by_parts(base, WINDOWS[0])}
    frequencies |= {"least": np.where(turns(base) >= 1, plain, plain / FACTOR)}
    frequencies |= {"pi_temperature": frequencies["pi"], "yarn": frequencies["by_parts"], "yarn_paper": frequencies["by_parts_paper"]}
    frequencies |= {n: ntk(base, by) for n, by in factors.items()}
    factor = temperature() if name in ("yarn", "yarn_paper", "pi_temperature", "temperature", "window_temperature") else 1.0
    return frequencies.get(name, plain), factor, TRAINED if name.startswith("window") else None


@contextlib.contextmanager
def as_if(model, frequencies=None, factor=1.0, shift=None):
    """The model with other frequencies, another factor, or further turns of some lags."""
    p = model.positions
    before = p.frequencies, p.factor, p.shift
    p.frequencies, p.factor, p.shift = p.frequencies if frequencies is None else frequencies, factor, shift
    try:
        yield model
    finally:
        p.frequencies, p.factor, p.shift = before


# ---- models and data ---------------------------------------------------------------------------------

def new(task, base, seed):
    return Transformer(vocabulary=TASKS[task]["vocabulary"], width=2 * HEAD, causal=True, position="rotary", seed=seed, settings={"base": base})


def batch(task, count, generator, length, periods=(8, TRAINED - 1)):
    if task == "text":
        return tasks.next_bytes(tasks.programs()[0], count, generator, length=length)
    return tasks.repeated(count, generator, length=length, periods=periods)


def learn(task, base, seed, *, steps=None, progress=None):
    """A model trained at the short length; copying, with all periods from 8 that fit."""
    model = new(task, base, seed)
    train(model, lambda g: batch(task, 16, g, TRAINED), steps=steps or TASKS[task]["steps"], seed=seed, progress=progress)
    return model


class Near(torch.nn.Module):
    """A model whose places see so many keys."""

    def __init__(self, model, window):
        super().__init__()
        self.model, self.window = model, window

    def forward(self, tokens):
        return self.model(tokens, window=self.window)


def tuned(task, model, name, base, chosen, seed, progress=None):
    """A copy of the model, tuned at the long length as the method has it, all methods on the same batches."""
    other = new(task, base, seed)
    other.load_state_dict(model.state_dict())
    frequencies, factor, near = stretched(name, base, chosen, LENGTHS[-1])
    with as_if(other, frequencies, factor):
        train(Near(other, near), lambda g: batch(task, TUNING["batch"], g, LENGTHS[-1], (TRAINED // 2, 2 * TRAINED)), steps=TUNING["steps"],
              seed=1000 + seed, rate=TUNING["rate"], warmup=TUNING["warmup"], progress=progress)
    return other


def held_out(part, count=64):
    """Windows of text of the greatest length, the same for every model."""
    return atlas.draw("text", part, count, length=LENGTHS[-1])


def tail(model, tokens, targets, length, window=None):
    """Mean loss in nats of the last 32 bytes, with `length` bytes read."""
    return atlas.losses(model, tokens[:, -length:], targets[:, -length:], window)[:, -atlas.TAIL:].mean().item()


def repeating(part, periods, count=12):
    """Repeating sequences of the greatest length, the same for every model."""
    generator = torch.Generator().manual_seed(900 + part)
    return tasks.repeated(count, generator, length=LENGTHS[-1], periods=periods)


def right(model, tokens, targets, window=None):
    """Share of right answers in the last 32 places."""
    answers = atlas.logits(model, tokens, window).argmax(-1)[:, -atlas.TAIL:]
    return (answers == targets[:, -atlas.TAIL:]).double().mean().item()


def copied(model, part=atlas.TESTED, window=None, offsets=OFFSETS):
    """Share of right answers for each period."""
    return {p: right(model, *repeating(part, (p, p)), window) for p in offsets}


# ---- what is measured --------------------------------------------------------------------------------

def choosing(task, model, base):
    """How well by-parts does with each window, and NTK-aware scaling with each factor, on data that nothing else is measured on."""
    found = {}
    for kind, settings in (("windows", {f"{w[0]},{w[1]}": by_parts(base, w) for w in WINDOWS}), ("factors", {str(s): ntk(base, s) for s in NTK_FACTORS})):
        found[kind] = {}
        for name, frequencies in settings.items():
            with as_if(model, frequencies):
                found[kind][name] = (tail(model, *held_out(atlas.CHOSEN), LENGTHS[-1]) if task == "text" else
                                     float(np.mean([*copied(model, atlas.CHOSEN, offsets=[p for p in OFFSETS if p > TRAINED]).values()])))
    return found


def chosen(runs, task, ladder):
    """The window and the factor that did best for the first seed."""
    [mine] = [r for r in runs if (r["kind"], r["task"], r["ladder"]) == ("choosing", task, ladder)]
    best = min if task == "text" else max
    return best(WINDOWS, key=lambda w: mine["windows"][f"{w[0]},{w[1]}"]), best(NTK_FACTORS, key=lambda s: mine["factors"][str(s)])


def read(task, model, name, base, chosen):
    """Loss at each length, or right answers for each period, with one method in force."""
    if task == "copy":
        frequencies, factor, near = stretched(name, base, chosen, LENGTHS[-1])
        with as_if(model, frequencies, factor):
            return copied(model, window=near)
    found = {}
    for length in LENGTHS:
        frequencies, factor, near = stretched(name, base, chosen, length)
        with as_if(model, frequencies, factor):
            found[length] = tail(model, *held_out(atlas.TESTED), length, near)
    return found


def groups(base):
    """Pairs by wavelength: at most the trained length, at most the stretched one, longer."""
    t = turns(base)
    return {"fast": np.flatnonzero(t >= 1), "middle": np.flatnonzero((t < 1) & (t >= 1 / FACTOR)), "slow": np.flatnonzero(t < 1 / FACTOR)}


def in_range(base, pairs, kind, seed=0, draw=0, first=TRAINED):
    """Turns that give some pairs, at lags from `first` on, the phase of a lag below the trained length.  Shape (pairs, lags).

    Which lag: the last ("clamp"); the one whose phase is nearest on the circle ("nearest"); or one drawn for each pair and lag, as often
    as a causal window holds it, that is with a weight that falls from the lag 0 to the last ("drawn").
    """
    lags, w, shape = np.arange(LENGTHS[-1]), rotary.frequencies(HEAD, base)[:, None], (HEAD // 2, LENGTHS[-1])
    if kind == "drawn":
        often = np.arange(TRAINED, 0, -1)
        lag = np.random.default_rng([77, seed, draw]).choice(TRAINED, shape, p=often / often.sum())
    elif kind == "nearest":
        apart = np.exp(1j * w * lags)[:, :, None] * np.exp(-1j * w * lags[:TRAINED])[:, None]
        lag = np.abs(np.angle(apart)).argmin(-1)
    else:
        lag = np.full(shape, TRAINED - 1)
    shift = np.zeros(shape)
    further = w * (lag - lags)
    shift[pairs] = (np.arctan2(np.sin(further), np.cos(further)) * (lags >= first))[pairs]
    return torch.as_tensor(shift)


def named(base):
    """The groups, alone and in twos, and all pairs."""
    g = groups(base)
    return {**g, **{f"{a}+{b}": np.r_[g[a], g[b]] for a, b in (("fast", "middle"), ("fast", "slow"), ("middle", "slow"))}, "all": np.arange(HEAD // 2)}


def conditions(base, seed):
    """What the ablation puts back in range: (name, kind, pairs of each draw)."""
    g = named(base)
    found = [("none", "drawn", [np.arange(0)])] + [(n, "drawn", [p] * DRAWS) for n, p in g.items()]
    found += [(n, kind, [g[n]]) for kind in ("nearest", "clamp") for n in (*groups(base), "middle+slow", "all")]
    for size in sorted({len(p) for p in groups(base).values()}):
        found.append((f"random {size}", "drawn", [np.sort(np.random.default_rng([78, seed, size, draw]).permutation(HEAD // 2)[:size]) for draw in range(DRAWS)]))
    return found


def ablated(task, model, base, seed):
    """Loss on the stretched length, or right answers for short and long periods, with groups of pairs back in range, draw by draw.

    For text also the price of drawing: the loss at the trained length, if lags in its second half are drawn that needed no repair.
    """
    found = []
    tokens, targets = (x[:32] for x in held_out(atlas.TESTED))
    near, far = repeating(atlas.TESTED, (8, TRAINED // 2), 16), repeating(atlas.TESTED, (TRAINED + 1, 2 * TRAINED), 16)
    for name, kind, draws in conditions(base, seed):
        values = []
        for draw, pairs in enumerate(draws):
            with as_if(model, shift=in_range(base, pairs, kind, seed, draw) if len(pairs) else None):
                values.append({"loss": tail(model, tokens, targets, LENGTHS[-1])} if task == "text" else {"near": right(model, *near), "far": right(model, *far)})
        found.append({"group": name, "put": kind, **{key: [v[key] for v in values] for key in values[0]}})
    if task == "text":
        for name, pairs in {"none": np.arange(0), **named(base)}.items():
            losses = []
            for draw in range(DRAWS if len(pairs) else 1):
                with as_if(model, shift=in_range(base, pairs, "drawn", seed, draw, TRAINED // 2) if len(pairs) else None):
                    losses.append(tail(model, tokens, targets, TRAINED))
            found.append({"group": name, "put": "lesion", "loss": losses})
        found.append({"group": "none", "put": "window", "loss": [tail(model, tokens, targets, LENGTHS[-1], TRAINED)]})
    return found


def exposed(model, base, seed):
    """Loss on the stretched length if one pair alone meets the lags as they are, the others drawn back in range: for each pair, and none; draw by draw."""
    tokens, targets = (x[:16] for x in held_out(atlas.TESTED))
    found = []
    for alone in (*range(HEAD // 2), None):
        found.append([])
        for draw in range(DRAWS):
            with as_if(model, shift=in_range(base, np.array([k for k in range(HEAD // 2) if k != alone]), "drawn", seed, draw)):
                found[-1].append(tail(model, tokens, targets, LENGTHS[-1]))
    return found


@torch.no_grad()
@one_thread()
def entropies(model, name, base, chosen):
    """Mean entropy in nats of the last 32 places' attention, in each layer, at the trained and the stretched length."""
    tokens, _ = held_out(atlas.TESTED)
    found = {}
    for length in (LENGTHS[0], LENGTHS[-1]):
        seen = []

        def look(weights, positions, layer, seen=seen):
            seen.append(-torch.special.xlogy(weights, weights)[..., -atlas.TAIL:, :].sum(-1).mean().item())
        frequencies, factor, near = stretched(name, base, chosen, length)
        model.positions.mix = look
        try:
            with as_if(model, frequencies, factor):
                model(tokens[:16, -length:], window=near)
        finally:
            del model.positions.mix
        found[length] = [round(-x if x < 0 else x, 4) for x in seen]
    return found


def tempered(model, base, chosen):
    """Loss under several factors of queries and keys: plain at the trained length, plain with a window, by parts at the stretched length."""
    tokens, targets = (x[:32] for x in held_out(atlas.TESTED))
    found = {"plain": {}, "window": {}, "by_parts": {}, "pi": {}}
    for f in TEMPERATURES:
        with as_if(model, factor=f):
            found["plain"][f] = tail(model, tokens, targets, TRAINED)
            found["window"][f] = tail(model, tokens, targets, LENGTHS[-1], TRAINED)
        for name in ("by_parts", "pi"):
            with as_if(model, stretched(name, base, chosen, LENGTHS[-1])[0], f):
                found[name][f] = tail(model, tokens, targets, LENGTHS[-1])
    return found


# ---- the run -----------------------------------------------------------------------------------------

def _work():
    """Every unit of work in the order in which it is done, seed by seed: (kind, task, ladder, seed)."""
    for seed in SEEDS["llama"]:
        for ladder in LADDERS:
            if seed in SEEDS[ladder]:
                for task in TASKS if ladder == "llama" else ("text",):
                    for kind in (("choosing",) if seed == 0 else ()) + ("ablation", "zero") + (("exposed", "temperature") if (task, ladder) == ("text", "llama") else ()):
                        yield kind, task, ladder, seed
        for task in TASKS:
            yield "tuned", task, "llama", seed


def _unit(r):
    return r["kind"], r["task"], r["ladder"], r["seed"]


def _done(kind, task, ladder, seed, model, chosen):
    base = LADDERS[ladder]
    if kind == "choosing":
        return choosing(task, model, base)
    if kind == "ablation":
        return {"conditions": ablated(task, model, base, seed)}
    if kind == "exposed":
        return {"losses": exposed(model, base, seed)}
    if kind == "zero":
        return {"methods": {n: read(task, model, n, base, chosen) for n in ZERO}}
    if kind == "temperature":
        return {"temperature": tempered(model, base, chosen), "entropy": {n: entropies(model, n, base, chosen) for n in ("none", "pi", "ntk", "by_parts", "yarn")}}
    return {"methods": {n: read(task, tuned(task, model, n, base, chosen, seed, progress=False), n, base, chosen) for n in TUNED}}


def stored(task, ladder="llama"):
    """The model of seed 0, as the run trained it."""
    from safetensors.torch import load_file

    model = new(task, LADDERS[ladder], 0)
    model.load_state_dict(load_file(CHECKPOINTS / f"context_extension_{task}.safetensors"))
    return model


def _trained(task, ladder, seed, keep):
    path = keep / f"{task}-{ladder}-{seed}.pt" if keep else None
    if path and path.exists():
        model = new(task, LADDERS[ladder], seed)
        model.load_state_dict(torch.load(path))
    else:
        model = learn(task, LADDERS[ladder], seed, progress=False)
        if path:
            torch.save(model.state_dict(), path)
    if (ladder, seed) == ("llama", 0):
        from safetensors.torch import save_file

        CHECKPOINTS.mkdir(exist_ok=True)
        save_file(model.state_dict(), CHECKPOINTS / f"context_extension_{task}.safetensors")
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--keep", type=Path, metavar="DIR", help="a directory for trained models")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--show", action="store_true", help="print what is stored")
    options = parser.parse_args()
    runs = results.stored("context_extension").get("runs", [])

    def save():
        order = {unit: i for i, unit in enumerate(_work())}
        runs.sort(key=lambda r: order[_unit(r)])
        results.store("context_extension", {
            "what": "Rotary models of chapter 13 (poslib.lab.context_extension), trained at length 64. text: loss in nats of the last 32 bytes; copy: share of "
                    "right answers, by period. zero: methods with factor 4, nothing trained; tuned: after 100 steps. choosing: by-parts with several windows and "
                    "NTK-aware scaling with several factors, on data for choosing. ablation: pairs put back in range at lags from 64 on, draw by draw; lesion: "
                    "drawn at lags 32 to 63, read at 64. exposed: all but one put back, for each, and all. temperature: loss by the factor of queries and keys; "
                    "entropy: mean entropy of attention in nats, by layer, at both lengths.",
            "trained": TRAINED, "factor": FACTOR, "ladders": LADDERS, "tasks": TASKS, "tuning": TUNING, "runs": runs},
            command="python -m poslib.lab.context_extension", seeds=sorted({r["seed"] for r in runs}))

    models = {}
    for unit in () if options.show else _work():
        if unit in map(_unit, runs) or options.seed not in (None, unit[-1]):
            continue
        kind, task, ladder, seed = unit
        if (task, ladder, seed) not in models:
            models[task, ladder, seed] = _trained(task, ladder, seed, options.keep)
        best = chosen(runs, task, ladder) if kind in ("zero", "temperature", "tuned") else None
        found = results.rounded(_done(*unit, models[task, ladder, seed], best))
        runs.append({"kind": kind, "task": task, "ladder": ladder, "seed": seed, **found})
        save()
        print(*unit, f"{os.times().user:.0f} s", flush=True)
    for r in runs if options.show else ():
        print(r)


if __name__ == "__main__":
    main()
