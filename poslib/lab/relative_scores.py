"""The experiments of chapter 06: what does a score that sees the lag alone save?

    python -m poslib.lab.relative_scores        writes results/relative_scores.json; ten minutes of CPU time

A small decoder says the token that stood four places back (`tasks.copy_back`, 32 places, 16 random symbols).  Each way of bringing
position in has four settings of its one knob, of which the best at 16 sequences (the
smallest of those that are as good) is used everywhere; all else is equal.
"""

from __future__ import annotations

from poslib import relative
from poslib.lab import results, tasks
from poslib.lab._torch import torch
from poslib.lab.model import Transformer
from poslib.lab.training import cross_entropy, one_thread, train

LENGTH, BACK, SYMBOLS, STEPS, BATCH = 32, 4, 16, 250, 32
SEEDS, SEARCH_SEEDS, SEARCH_AT = range(5), (100, 101), 16
SIZES = (8, 16, 32)                          # different training sequences
RATES = [{"position_rate": r} for r in (1, 10, 100, 300)]
SETTINGS = {"learned": RATES, "sinusoid": [{"position_scale": s} for s in (0.5, 2, 4, 8)], "t5": RATES, "shaw": RATES}
LONGER = 6                                   # times the steps, for T5 at the common rate
# places where no answer is asked in training.  "every fifth": each row is trained as a key, since place p is what place p + 4 must
# find, and its own key p - 4 is trained too; only as a query it is new.  (29 is new altogether: no place 33 looks for it.)
HELD_OUT = {"every fifth": list(range(9, LENGTH, 5)), "second half": list(range(LENGTH // 2, LENGTH))}


def draw(count, seed):
    """Sequences and their answers."""
    return tasks.copy_back(count, torch.Generator().manual_seed(seed), length=LENGTH, back=BACK, symbols=SYMBOLS)


def new_model(method, setting, seed):
    """Two layers, width 32, two heads."""
    return Transformer(vocabulary=SYMBOLS, causal=True, position=method, max_length=LENGTH, seed=seed,
                       position_scale=setting.get("position_scale", 0.5))


@torch.no_grad()
@one_thread()
def right(model, tokens, targets, places=None):
    """Share of right answers, at some places only if they are given."""
    asked = targets != tasks.IGNORED
    if places is not None:
        chosen = torch.zeros(LENGTH, dtype=torch.bool)
        chosen[places] = True
        asked &= chosen
    return (model(tokens).argmax(-1) == targets)[asked].double().mean().item()


def learn(method, setting, seed, *, size=None, held_out=(), steps=STEPS, progress=None):
    """Train on batches from `size` fixed sequences, or on fresh ones; without answers at the places held out."""
    model = new_model(method, setting, seed)
    if size is not None:
        known = draw(size, 1000 + seed)

    def batch(g):
        if size is None:
            tokens, targets = tasks.copy_back(BATCH, g, length=LENGTH, back=BACK, symbols=SYMBOLS)
        else:
            drawn = torch.randint(0, size, (BATCH,), generator=g)
            tokens, targets = known[0][drawn], known[1][drawn]
        targets = targets.clone()
        targets[:, list(held_out)] = tasks.IGNORED
        return tokens, targets

    train(model, batch, steps=steps, seed=seed, position_rate=setting.get("position_rate", 1), loss=cross_entropy, progress=progress)
    return model


def from_few(method, setting, seed, size, *, steps=STEPS, progress=None):
    """Share of right answers on fresh sequences, and on those trained on."""
    model = learn(method, setting, seed, size=size, steps=steps, progress=progress)
    return {"fresh": right(model, *draw(512, 99)), "known": right(model, *draw(size, 1000 + seed))}


def fill(model, places):
    """Put into the learned table, at some places, the mean of the nearest rows before and behind that are not among them.

    Where there are none behind, the mean of the last two rows before.
    """
    table, others = model.positions.weight.data, [p for p in range(LENGTH) if p not in places]
    for p in places:
        before, behind = [o for o in others if o < p], [o for o in others if o > p]
        table[p] = table[[before[-1], behind[0]] if behind else before[-2:]].mean(0)


@torch.no_grad()
def hush(model, lag):
    """Give the buckets of T5 that begin at `lag` or beyond a bias that no content outbids."""
    model.positions.weight[relative.t5_buckets(torch.tensor(lag)):] = -20


def elsewhere(method, setting, seed, design, *, steps=STEPS, progress=None):
    """Share of right answers at the places trained on and at those held out.

    For a table also with filled rows, for T5 with hushed buckets: those of lags that no place asked in training saw.
    """
    places = HELD_OUT[design]
    asked = [p for p in range(BACK, LENGTH) if p not in places]
    model, test = learn(method, setting, seed, held_out=places, steps=steps, progress=progress), draw(512, 99)
    found = {"asked": right(model, *test, asked), "held_out": right(model, *test, places)}
    if method == "learned":
        fill(model, places)
        found["filled"] = right(model, *test, places)
    if method == "t5" and max(asked) + 1 < LENGTH:
        hush(model, max(asked) + 1)
        found["hushed"] = right(model, *test, places)
    return found


def choice(tried):
    """Index of the first setting that is within 0.001 of the best, on average over the seeds."""
    means = [sum(seeds) / len(seeds) for seeds in tried]
    return next(n for n, mean in enumerate(means) if mean > max(means) - 0.001)


def main():
    def said(what, found):
        print(what, {k: round(v, 3) for k, v in found.items()}, flush=True)
        return found

    search, chosen, few, other = {}, {}, {}, {}
    for method, settings in SETTINGS.items():
        search[method] = [[said(f"search {method} {s} {seed}", from_few(method, s, seed, SEARCH_AT, progress=False))["fresh"]
                           for seed in SEARCH_SEEDS] for s in settings]
        chosen[method] = settings[choice(search[method])]
    longer = [said(f"t5, common rate, {LONGER} times the steps, seed {seed}",
                   from_few("t5", RATES[0], seed, SEARCH_AT, steps=LONGER * STEPS, progress=False)) for seed in SEARCH_SEEDS]
    for method, setting in chosen.items():
        other[method] = {design: [said(f"{method}, {design}, seed {seed}", elsewhere(method, setting, seed, design, progress=False))
                                  for seed in SEEDS] for design in HELD_OUT}
    for method, setting in chosen.items():
        few[method] = {str(size): [said(f"{method}, {size} sequences, seed {seed}", from_few(method, setting, seed, size, progress=False))
                                   for seed in SEEDS] for size in SIZES}
    path = results.store("relative_scores", {
        "what": "Shares of right answers, copying the token four places back: 32 places, 16 symbols, 250 steps of 32 sequences. "
                "search: on fresh sequences after 16 known ones, for each setting and two seeds. few: for each method and number of "
                "training sequences and each seed, on fresh sequences and on the known. elsewhere: fresh sequences in training, answers "
                "asked at some places only; then at these and at the others. filled: untrained rows replaced by the mean of neighbours. "
                "hushed: T5's buckets of lags that no asked place saw, set to -20. longer: T5 at the common rate, 16 sequences, "
                "1,500 steps, for the two seeds of the search.",
        "settings": SETTINGS, "search": search, "longer": longer, "chosen": chosen, "few": few, "elsewhere": other},
        command="python -m poslib.lab.relative_scores", seeds=SEEDS)
    print(f"wrote {path.name}")


if __name__ == "__main__":
    main()
