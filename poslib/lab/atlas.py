"""The same small models under every encoding: one command, one schema of results.

    python -m poslib.lab.atlas              runs what is missing in results/atlas.json; 75 minutes of CPU time
    python -m poslib.lab.atlas --only t5    runs one method
    python -m poslib.lab.atlas --task copy  runs one task
    python -m poslib.lab.atlas --show       prints what is there
    python -m poslib.lab.atlas --figure     writes the data of the figure loss-by-length

Four tasks.  "text": byte-level language models read Python's own standard library.  "copy": say the token that stood four
places back.  "needle": find the one token that is no filler.  "previous": say the token one place back; after how many steps
it is right 99 times in a hundred, on data that is not trained on, is the result.  Models have two layers and two heads and are trained at one length.
For each task every method gets the same search: four settings, two seeds, half the steps, judged at the trained length on
data that is neither trained nor tested on.  Then five other seeds train in full with the best setting.  ("previous" takes the
settings that "copy" found.)
"""

from __future__ import annotations

import argparse
import functools
import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import NamedTuple

from poslib.lab import results, tasks
from poslib.lab._torch import torch
from poslib.lab.model import Transformer
from poslib.lab.training import cross_entropy, one_thread, train

functional = torch.nn.functional


class Task(NamedTuple):
    """How one task is trained."""

    length: int
    width: int
    vocabulary: int
    batch: int
    steps: int


TASKS = {"text": Task(64, 64, 256, 16, 1000), "copy": Task(32, 32, 16, 32, 400), "needle": Task(64, 32, 33, 32, 400),
         "previous": Task(32, 32, 16, 32, 200)}
FACTORS = (1, 2, 4, 8)          # lengths read, in units of the trained one
TAIL = 32                       # last targets of a window of text, which all context lengths share
EVERY, ENOUGH = 20, 0.99     # "previous": how often the share of right answers is asked for, and which ends the count
SEEDS, SEARCH_SEEDS = range(5), (100, 101)
TRAINED, CHOSEN, TESTED = range(3)      # parts of `tasks.programs`; for the other tasks, seeds of the data
# method: the four settings that are tried; the first is the usual one
METHODS = {
    "none": [{"rate": r} for r in (3e-3, 1e-3, 6e-3, 1e-2)],
    "learned": [{"position_rate": r} for r in (1, 3, 10, 0.3)],
    "sinusoid": [{"position_scale": s} for s in (0.5, 0.125, 0.25, 1.0)],
    "rotary": [{"settings": {"base": b}} for b in (1e4, 1e2, 1e3, 1e5)],
    "alibi": [{"settings": {"slopes": s}} for s in ((1 / 16, 1 / 256), (1 / 4, 1 / 16), (1 / 2, 1 / 16), (1, 1 / 4))],
    "t5": [{"position_rate": r, "settings": {"max_distance": 64}} for r in (1, 3, 10, 30)],
    "shaw": [{"position_rate": r, "settings": {"clip": 16}} for r in (1, 3, 10, 0.3)],
    "kerple": [{"position_rate": r} for r in (1, 3, 10, 30)],
    "xpos": [{"settings": {"scale_base": s}} for s in (512, 128, 32, 16)],
    "proportional": [{"settings": {"share": p, "base": b}} for p, b in ((0.75, 1e4), (0.5, 1e4), (0.25, 1e4), (0.5, 1e2))],
}


def draw(task, part, count, *, length=None, generator=None, **more):
    """Tokens and targets of a task: training data from `generator`, otherwise the same for every model."""
    length = TASKS[task].length if length is None else length
    if generator is None:
        generator = torch.Generator().manual_seed(900 + part)
    if task == "text":
        return tasks.next_bytes(tasks.programs()[part], count, generator, length=length)
    return {"copy": tasks.copy_back, "needle": tasks.needle, "previous": functools.partial(tasks.copy_back, back=1)}[task](count, generator, length=length, **more)


@one_thread()
def learn(task, method, setting, seed, *, steps=None, progress=None, seen=None):
    """Train one model of the atlas; learned tables have rows for every length that is read.

    With a list `seen` it gets (step, share of right answers at the trained length) every `EVERY` steps.
    """
    t = TASKS[task]
    model = Transformer(vocabulary=t.vocabulary, width=t.width, causal=True, position=method, seed=seed, max_length=FACTORS[-1] * t.length,
                        position_scale=setting.get("position_scale", 0.5), settings=setting.get("settings"))
    looking = {} if seen is None else {"every": EVERY, "look": functools.partial(_share, *draw(task, TESTED, 256))}
    found = train(model, lambda g: draw(task, TRAINED, t.batch, generator=g), steps=steps or t.steps, seed=seed, rate=setting.get("rate", 3e-3),
                  position_rate=setting.get("position_rate", 1), progress=progress, **looking)
    if seen is not None:
        seen.extend(found)
    return model


@torch.no_grad()
@one_thread()
def logits(model, tokens, window=None, batch=32):
    """Of all places, a few sequences at a time."""
    return torch.cat([model(x, window=window) for x in tokens.split(batch)])


def losses(model, tokens, targets, window=None):
    """Loss in nats at each place, shape (sequences, length)."""
    return functional.cross_entropy(logits(model, tokens, window).transpose(1, 2), targets, reduction="none")


def _share(tokens, targets, model):
    asked = targets != tasks.IGNORED
    return (logits(model, tokens).argmax(-1) == targets)[asked].double().mean().item()


def steps_until(seen, enough=ENOUGH):
    """The first step of [(step, share)] with that share, or None."""
    return next((step for step, share in seen if share >= enough), None)


def judged(task, model):
    """Mean loss at the trained length, on data that is only used to choose settings."""
    tokens, targets = draw(task, CHOSEN, 512)
    return cross_entropy(logits(model, tokens), targets).item()


def read_text(model, window=None, count=128):
    """Loss on the last places of the same windows, read with more and more context before them; {factor: nats a byte}."""
    length = TASKS["text"].length
    tokens, targets = draw("text", TESTED, count, length=FACTORS[-1] * length)
    return {f: losses(model, tokens[:, -f * length:], targets[:, -f * length:], window)[:, -TAIL:].mean().item() for f in FACTORS}


def by_place(model, count=128):
    """Loss at each place of windows of the greatest length, averaged over windows: place p has p bytes before it."""
    return losses(model, *draw("text", TESTED, count, length=FACTORS[-1] * TASKS["text"].length)).mean(0).tolist()


def right(task, model, window=None, count=256):
    """Share of right answers at each length, asked only where the next smaller length had no place (needle: no lag)."""
    found = {}
    for f in FACTORS:
        length = f * TASKS[task].length
        first = 0 if f == 1 else length // 2
        more = {"lags": (max(first, 1), length - 1)} if task == "needle" else {}
        tokens, targets = draw(task, TESTED, count, length=length, **more)
        asked = targets != tasks.IGNORED
        if task == "copy":
            asked[:, :first] = False
        found[f] = (logits(model, tokens, window).argmax(-1) == targets)[asked].double().mean().item()
    return found


def measured(task, model):
    """What is stored of a trained model, each also with every place seeing the trained length alone; of "previous" the curve is all."""
    window = TASKS[task].length
    if task == "previous":
        return {}
    if task == "text":
        return {"tail": read_text(model), "tail_window": read_text(model, window), "by_place": by_place(model)}
    return {"right": right(task, model), "right_window": right(task, model, window)}


def _search(task, method, choice, seed):
    model = learn(task, method, METHODS[method][choice], seed, steps=TASKS[task].steps // 2, progress=False)
    return {"task": task, "method": method, "choice": choice, "seed": seed, "loss": round(judged(task, model), 4)}


def _run(task, method, choice, seed):
    start, seen = time.process_time(), [] if task == "previous" else None
    model = learn(task, method, METHODS[method][choice], seed, progress=False, seen=seen)
    seconds = round(time.process_time() - start, 1)
    more = {} if seen is None else {"steps": steps_until(seen), "curve": results.rounded([share for _, share in seen])}
    return {"task": task, "method": method, "choice": choice, "seed": seed, "parameters": sum(p.numel() for p in model.parameters()),
            "seconds": seconds, **results.rounded(measured(task, model)), **more}


def best(search, task, method):
    """Which of a method's settings had the smallest mean loss in the search."""
    def mean(choice):
        found = [r["loss"] for r in search if (r["task"], r["method"], r["choice"]) == (task, method, choice)]
        return sum(found) / len(found)
    return min(range(len(METHODS[method])), key=mean)


def setting(search, task, method):
    """Which setting the full runs have: the best of the task's own search; "previous" has that of "copy", the same task further apart."""
    return best(search, "copy" if task == "previous" else task, method)


def figure_runs():
    """Runs on text that the figure loss-by-length shows, by the names that it gives them: "rotary" with its usual setting, "rotary-tuned"."""
    found = {}
    for name, end in (("extrapolation", ""), ("atlas", "-tuned")):
        for r in results.load(name)["runs"]:
            if r["task"] == "text" and r["method"] not in ("xpos", "proportional"):      # which chapter 17 adds
                found.setdefault(r["method"] + end, []).append(r)
    return found


def figure_data(group=4):
    """What the figure loss-by-length holds: means over seeds, places in groups, three digits after the point."""
    def mean(mine, of):
        return [round(sum(x) / len(x), 3) for x in zip(*map(of, mine))]

    methods = {m: {"seeds": len(mine), "place": mean(mine, lambda r: [sum(r["by_place"][i:i + group]) / group for i in range(0, len(r["by_place"]), group)]),
                   "full": mean(mine, lambda r: r["tail"].values()), "window": mean(mine, lambda r: r["tail_window"].values())}
               for m, mine in figure_runs().items()}
    return {"trained": TASKS["text"].length, "group": group, "lengths": [f * TASKS["text"].length for f in FACTORS], "methods": methods}


def _key(r):
    return list(TASKS).index(r["task"]), list(METHODS).index(r["method"]), r["choice"], r["seed"]


def _missing(function, jobs, found, save, workers=None):
    """Do the jobs that are not in `found`, side by side; save after each, so that a second start goes on where the first stopped."""
    there = {(r["task"], r["method"], r["choice"], r["seed"]) for r in found}
    jobs = [job for job in jobs if job not in there]
    with ProcessPoolExecutor(workers or os.cpu_count()) as pool:
        for n, done in enumerate(as_completed([pool.submit(function, *job) for job in jobs]), 1):
            r = done.result()
            found.append(r)
            save()
            print(f"{n}/{len(jobs)} {r['task']}, {r['method']}, setting {r['choice']}, seed {r['seed']}: "
                  f"{r.get('loss', r.get('tail', r.get('right', r.get('steps'))))}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=METHODS, default=list(METHODS), metavar="METHOD", help=", ".join(METHODS))
    parser.add_argument("--task", nargs="+", choices=TASKS, default=list(TASKS), metavar="TASK", help=", ".join(TASKS))
    parser.add_argument("--workers", type=int, help="processes side by side; all cores unless given")
    parser.add_argument("--show", action="store_true", help="print the stored table")
    parser.add_argument("--figure", action="store_true", help="write the data of the figure loss-by-length")
    options = parser.parse_args()
    stored = results.stored("atlas")
    search, runs = stored.get("search", []), stored.get("runs", [])

    def save():
        results.store("atlas", {
            "what": "Four tasks, one training length each (poslib.lab.atlas). search: mean loss at that length of each method's settings. runs: the best "
                    "setting, five seeds. text: loss in nats a byte; tail, of the last 32 places of the same windows with 1, 2, 4, 8 times the trained "
                    "context; by_place, at each place. copy, needle: right, share of right answers in the newest part of 1, 2, 4, 8 times the trained "
                    "length. previous: curve, share of right answers at the trained length every 20 steps; steps, the first with 0.99. tail_window and right_window: every place sees the trained length alone.",
            "tasks": {name: t._asdict() for name, t in TASKS.items()}, "methods": METHODS,
            "search": sorted(search, key=_key), "runs": sorted(runs, key=_key)}, command="python -m poslib.lab.atlas", seeds=SEEDS)

    if options.figure:
        results.put_into_figure("loss-by-length", figure_data())
        return
    if not options.show:
        for task in options.task:
            if task != "previous":
                _missing(_search, [(task, m, c, s) for m in options.only for c in range(len(METHODS[m])) for s in SEARCH_SEEDS], search, save,
                         options.workers)
            _missing(_run, [(task, m, setting(search, task, m), s) for m in options.only for s in SEEDS], runs, save, options.workers)
    for task in options.task:
        for method in options.only:
            mine = [r.get("tail") or r.get("right") or r for r in runs if (r["task"], r["method"]) == (task, method)]
            if task == "previous" and mine:
                print(task, method.ljust(9), *(r["steps"] for r in mine))
                continue
            print(task.ljust(7), method.ljust(9), *(f"{sum(r[str(f)] for r in mine) / len(mine):.3f}" for f in FACTORS) if mine else ["not run"])


if __name__ == "__main__":
    main()
