"""The experiments of chapter 07 that the atlas does not hold: a model that counts bytes, and models trained for seconds.

    python -m poslib.lab.extrapolation        writes results/extrapolation.json; twelve minutes of CPU time
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from poslib.lab import atlas, results, tasks

ORDER = 5                               # bytes that the counting model remembers
LENGTHS = (8, 16, 32, 64, 128, 256, 512)
WINDOWS = (2, 4, 8, 16, 32, 64)
SHORT = ("learned", "sinusoid", "t5", "rotary", "alibi")       # trained for seconds, in their usual settings
SLOPES = {"usual": 0, "steep": 3}       # settings of ALiBi in the atlas that seek needles
LONGER = ("alibi", "kerple")            # which learn to copy slowly
SEEDS, STEPS, LONG_STEPS = range(5), 300, 2000


def counted(train, test, order=ORDER, prior=4.0):
    """Losses of a model that counts what followed the last k bytes, for each k from 0 to `order`.

    p_k(x) = (times x followed the last k bytes + prior p_(k-1)(x)) / (times they occurred + prior); p_(-1) is even over 256 bytes.

    Parameters
    ----------
    train, test : integer arrays of bytes
    order : int
    prior : float

    Returns
    -------
    float64, shape (order + 1, len(test) - order)
        Nats for each byte of `test` that has `order` bytes before it.
    """
    p = np.full(len(test) - order, 1 / 256)
    found = []
    for k in range(order + 1):
        seen, asked = (_spans(text, k, k + 1) for text in (train, test))
        context = asked >> 8
        numerator = _times(seen, asked)[order - k:]
        denominator = _times(_spans(train, k, k), context)[order - k:]
        p = (numerator + prior * p) / (denominator + prior)
        found.append(-np.log(p))
    return np.array(found)


def _spans(text, k, length):
    """Each run of `length` bytes that has a byte after its first k, as one number."""
    text, count = np.asarray(text, np.int64), len(text) - k
    code = np.zeros(count, np.int64)
    for step in range(length):
        code = code << 8 | text[step:step + count]
    return code


def _times(seen, asked):
    """How often each number asked for was seen."""
    values, times = np.unique(seen, return_counts=True)
    place = np.minimum(np.searchsorted(values, asked), len(values) - 1)
    return np.where(values[place] == asked, times[place], 0)


def in_blocks(losses, length):
    """Mean loss in blocks of `length`: the first byte of a block has no context, the next one byte, and so on.

    `losses` are those of `counted`: a row for each context, a column for each byte.
    """
    have = np.arange(losses.shape[1] // length * length) % length
    return float(losses[np.minimum(have, len(losses) - 1), np.arange(len(have))].mean())


def learn(method, seed, *, steps=STEPS, progress=None):
    """A model of the atlas in its usual setting, trained for a third of its steps."""
    return atlas.learn("text", method, atlas.METHODS[method][0], seed, steps=steps, progress=progress)


def readings(model, count=128):
    """Loss on the last places of windows of each length, with all of it in view and with the trained length alone."""
    return {"tail": atlas.read_text(model, count=count), "tail_window": atlas.read_text(model, atlas.TASKS["text"].length, count=count)}


def narrow(model, count=128):
    """Loss on the last places at the trained length, each place seeing the last few bytes in each layer; {bytes in view: nats a byte}."""
    tokens, targets = atlas.draw("text", atlas.TESTED, count)
    return {w: atlas.losses(model, tokens, targets, w)[:, -atlas.TAIL:].mean().item() for w in WINDOWS}


def cut(model, count=128):
    """Mean loss on the same bytes, cut into blocks of each length; {length: nats a byte}."""
    longest = atlas.FACTORS[-1] * atlas.TASKS["text"].length
    tokens, targets = atlas.draw("text", atlas.TESTED, count, length=longest)
    return {T: atlas.losses(model, tokens.reshape(-1, T), targets.reshape(-1, T)).mean().item()
            for T in (f * atlas.TASKS["text"].length for f in atlas.FACTORS)}


def copies(method, seed, steps=LONG_STEPS, progress=None):
    """Shares of right answers of a copying model in the setting that the atlas chose for it, trained for longer."""
    best = atlas.best(results.load("atlas")["search"], "copy", method)
    return results.rounded(atlas.right("copy", atlas.learn("copy", method, atlas.METHODS[method][best], seed, steps=steps, progress=progress)))


def needles(slopes, seed, progress=None):
    """Shares of right answers of an ALiBi model that seeks needles, as the atlas measures them."""
    model = atlas.learn("needle", "alibi", atlas.METHODS["alibi"][SLOPES[slopes]], seed, progress=progress)
    return results.rounded(atlas.measured("needle", model))


def _short(method, seed):
    model = learn(method, seed, progress=False)
    found = results.rounded({**atlas.measured("text", model), "narrow": narrow(model), "cut": cut(model)})
    print(method, seed, found["tail"], flush=True)
    return {"task": "text", "method": method, "choice": 0, "seed": seed, **found}


def main():
    train, _, test = (part.numpy() for part in tasks.programs())
    losses = counted(train, test)
    stored = results.rounded({"by_context": losses.mean(1), "bytes": losses.shape[1], "trained_bytes": len(train),
                              "blocks": {T: in_blocks(losses, T) for T in LENGTHS}})
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        copied = {m: [pool.submit(copies, m, seed, progress=False) for seed in SEEDS] for m in LONGER}
        runs = [pool.submit(_short, m, seed) for m in SHORT for seed in SEEDS]
        sought = {slopes: [pool.submit(needles, slopes, seed, progress=False) for seed in SEEDS] for slopes in SLOPES}
        runs = [r.result() for r in runs]
        copied, sought = ({name: [r.result() for r in mine] for name, mine in found.items()} for found in (copied, sought))
    results.store("extrapolation", {
        "what": "counted: a model that counts what followed the last k bytes of Python's library (poslib.lab.extrapolation.counted); by_context, its loss "
                "in nats a byte for k = 0, 1, …; blocks, in blocks of so many bytes. runs: models of the atlas in their usual settings, trained for 300 "
                "steps and measured as there; narrow, loss of the last 32 places at the trained length with the last few bytes in view in each layer; cut, the "
                "same bytes in blocks of each length. needle: ALiBi models of the atlas that seek needles, with two of its settings. copy: right answers of "
                "models that copy, trained for 2,000 steps in the setting of the atlas.",
        "counted": stored, "steps": STEPS, "runs": runs, "needle": sought, "copy": copied}, command="python -m poslib.lab.extrapolation", seeds=SEEDS)


if __name__ == "__main__":
    main()
