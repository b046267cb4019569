"""The experiments of chapter 14: how far SmolLM2 sees, and what each way of stretching it does.

    python -m poslib.lab.real_model             writes results/real_model.json; needs SmolLM2; about an hour and a half of CPU time
    python -m poslib.lab.real_model --figure    writes the data of the figure gap-probe, from the stored result

A passage is read twice, and the position ids of the second reading stand a gap further on.  A model that sees its first reading
copies; one that does not has to guess.  So distances far beyond the trained length are measured without long sequences.

What is finished is kept in the result's file, and a run that was interrupted goes on from there.
"""

from __future__ import annotations

import argparse
import ast
import csv
import heapq
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

import numpy as np

from poslib import extension
from poslib.lab import pretrained, results
from poslib.lab._torch import torch
from poslib.lab.llama import Rotary, losses, open_llama
from poslib.lab.training import one_thread
from poslib.rotary import frequencies, rotate

TOKENS = 256                            # of a passage
PROGRAMS = (argparse, ast, csv, heapq, textwrap)
TOPICS = ("assignment", "attribute-access", "execmodel", "import", "strings")
FINE = (0, 1024, 2048, 3072, 4096, 4608, 5120, 5632, 6144, 6656, 7168, 7680, 9000, 12_000, 16_384, 24_000, 32_768, 57_344)
GAPS = (0, 2048, 4096, 6144, 7680, 9000, 12_000, 16_384, 24_000, 32_768, 57_344)
FACTORS = (2, 4, 8)
FAR = (9000, 16_384)                    # gaps of the ablation: all distances beyond the trained length
INSIDE = 2048                           # a gap that the model copies over
DRAWS = range(3)


# ---- passages --------------------------------------------------------------------------------------

def passages(tokenizer, tokens=TOKENS):
    """Python's own library and its manual: {name: integer tensor (tokens,)}, five passages of code, five of English.

    A passage starts a third of the way into its text, past licences and import lines.
    """
    from pydoc_data.topics import topics

    texts = {f"code: {module.__name__}": Path(module.__file__).read_text("utf8") for module in PROGRAMS}
    texts |= {f"prose: {name}": topics[name] for name in TOPICS}
    found = {}
    for name, text in texts.items():
        ids = tokenizer.encode(text[len(text) // 3:].partition("\n")[2])[:tokens]
        if len(ids) < tokens:
            raise ValueError(f"passage {name!r} has {len(ids)} tokens; allowed are at least {tokens}")
        found[name] = torch.tensor(ids)
    return found


# ---- turning ---------------------------------------------------------------------------------------

class Apart(NamedTuple):
    """A `turn` that moves positions from `start` on, each pair of channels by a distance of its own.

    Parameters
    ----------
    layout : {"half", "interleaved"}
    frequencies : float64 numpy array, shape (head width/2,)
    start : int
        First position that is moved.
    gaps : tuple of int, length head width/2
    """

    layout: str
    frequencies: object
    start: int
    gaps: tuple

    def __call__(self, x, positions, layer, which):
        moved = (positions >= self.start).long()
        places = torch.stack([positions + gap * moved for gap in self.gaps])
        return rotate(x, places, layout=self.layout, frequencies=self.frequencies, axes=tuple(range(len(self.gaps))))


def methods(settings):
    """Ways of stretching that need no training: {name: {factor: `poslib.extension.Method`}}.

    LongRoPE is not among them: its factors come from a search on the model, and nobody has published one for this model.  p-RoPE
    is trained with; here it stills the pairs that have not finished a turn.
    """
    trained = settings.length
    made = {"PI": extension.Linear, "NTK-aware": extension.NTKAware, "dynamic NTK": lambda s: extension.DynamicNTK(s, trained),
            "by parts": lambda s: extension.ByParts(s, trained, ramp="paper"), "YaRN": lambda s: extension.YaRN(s, trained),
            "Llama 3": lambda s: extension.Llama3(s, trained)}
    found = {name: {s: make(s) for s in FACTORS} for name, make in made.items()}
    turning = len(bands(settings)["fast"]) / (settings.head_width // 2)
    return found | {"p-RoPE": {1: extension.Proportional(turning)}}


def turned(settings, method, length):
    """The `turn` of a method for a text of `length` positions."""
    return Rotary(settings.layout, frequencies=method.frequencies(settings.head_width, settings.base, length=length),
                  factor=method.rotation_factor(length=length))


def stretched(settings, pairs, factor=4):
    """A `turn` in which the frequencies of some pairs are divided by `factor`."""
    w = frequencies(settings.head_width, settings.base)
    w[np.asarray(pairs, int)] /= factor
    return Rotary(settings.layout, frequencies=w)


def bands(settings):
    """Pairs by their wavelength: fast, at most the trained length L; middle, at most 4L; slow, above."""
    wavelength = 2 * np.pi / frequencies(settings.head_width, settings.base)
    trained = settings.length
    return {"fast": np.flatnonzero(wavelength <= trained), "middle": np.flatnonzero((wavelength > trained) & (wavelength <= 4 * trained)),
            "slow": np.flatnonzero(wavelength > 4 * trained)}


def groups(settings, draws=DRAWS):
    """The bands alone, in twos and together; random groups as large as middle, slow, and both; and the pairs just below the trained length."""
    band, pairs = bands(settings), settings.head_width // 2
    names = list(band)
    found = {"none": np.array([], int), **band}
    found |= {f"{a} + {b}": np.sort(np.concatenate([band[a], band[b]])) for i, a in enumerate(names) for b in names[i + 1:]}
    found["all"] = np.arange(pairs)
    wavelength = 2 * np.pi / frequencies(settings.head_width, settings.base)
    found["barely fast"] = np.flatnonzero((wavelength > settings.length / 4) & (wavelength <= settings.length))
    for size in ("middle", "slow", "middle + slow"):
        for draw in draws:
            found[f"random {len(found[size])}, draw {draw}"] = np.sort(np.random.default_rng(draw).choice(pairs, len(found[size]), replace=False))
    return found


# ---- reading twice ---------------------------------------------------------------------------------

@torch.no_grad()
def first(model, tokens, turn=None):
    """A passage's first reading: what guessing costs, in nats a token, shape (batch,), and the cache that it leaves."""
    place = torch.arange(tokens.shape[1])
    return losses(model, tokens, place, turn=turn).mean(1), model.read(tokens, place, turn=turn, keep="rotated").cache


@torch.no_grad()
def second(model, tokens, gap, cache, turn=None):
    """Mean loss of the second reading, in nats a token, shape (batch,), its ids `gap` further on than they would stand.

    Parameters
    ----------
    model : poslib.lab.llama.Llama
    tokens : integer tensor, shape (batch, length)
    gap : int
    cache : poslib.lab.llama.Cache
        Of the `first` reading, with the same `turn`.
    turn : callable, optional
        As in `Llama.read`.
    """
    place = torch.arange(tokens.shape[1]) + tokens.shape[1] + gap
    return losses(model, tokens, place, turn=turn, cache=cache).mean(1)


def curve(model, tokens, gaps, turn=None):
    """Both readings of your own tokens by your own model.

    Parameters
    ----------
    model : poslib.lab.llama.Llama
        `poslib.lab.llama.open_llama` opens the checkpoints that it can be given.
    tokens : integer tensor, shape (batch, length)
        Passages of equal length.
    gaps : iterable of int
    turn : callable, optional
        As in `Llama.read`; `turned` makes those of `poslib.extension`.

    Returns
    -------
    guess : tensor, shape (batch,)
        Loss of the first reading, in nats a token.
    by_gap : dict
        Loss of the second reading, shape (batch,), by the gap.
    """
    guess, cache = first(model, tokens, turn)
    return guess, {gap: second(model, tokens, gap, cache, turn) for gap in gaps}


def apart(settings, gap, pairs, inside, tokens=TOKENS):
    """A `turn` for `second` with the gap 0: all pairs see it `gap` further on, but some of them `inside`.

    Parameters
    ----------
    settings : poslib.lab.pretrained.Settings
    gap : int
    pairs : integer array
    inside : int or integer array, one for each of `pairs`
    """
    gaps = np.full(settings.head_width // 2, gap)
    gaps[pairs] = inside
    return Apart(settings.layout, frequencies(settings.head_width, settings.base), tokens, tuple(int(g) for g in gaps))


def drawn_gaps(settings, draw, tokens=TOKENS):
    """For each pair a gap at which all distances between the two readings were trained, drawn at random."""
    return np.random.default_rng(100 + draw).integers(0, settings.length - 2 * tokens, settings.head_width // 2)


# ---- reading the stored run ------------------------------------------------------------------------

def readings(stored, name):
    """Both readings of one job of the stored run: {gap: (first, second)}, float64 arrays with a loss for each passage."""
    one, two = stored["first"][name], stored["second"][name]
    return {int(gap): (np.array(one.get("all", one.get(gap))), np.array(loss)) for gap, loss in two.items()}


def kept(guess, beside, loss):
    """Share of copying that is kept: 1 where the second reading costs what it costs at the gap 0, 0 where it costs what guessing does."""
    guess, beside, loss = (np.asarray(x, float) for x in (guess, beside, loss))
    return (guess - loss) / (guess - beside)


def figure_data(stored=None):
    """What the figure gap-probe holds: losses of each passage, in ten-thousandths of a nat a token, for every way of stretching that is stored."""
    stored = results.load("real_model") if stored is None else stored
    rows = {}
    for name in stored["second"]:
        section, _, row = name.partition("/")
        if section == "grid":
            found = readings(stored, name)
            guesses, losses_ = ([[round(10_000 * float(v)) for v in pair[which]] for pair in found.values()] for which in (0, 1))
            rows[row] = {"gaps": list(found), "first": guesses if any(g != guesses[0] for g in guesses) else guesses[:1], "second": losses_}
    return {"tokens": TOKENS, "passages": stored["passages"], "rows": rows}


# ---- the stored run --------------------------------------------------------------------------------

def jobs(settings, tokens=TOKENS):
    """What is measured, in order: {"section/name/…": [(gap, turn of the first reading, turn of the second, gap of its ids)]}; see `main`."""
    found = {"grid/none/1": [(gap, None, None, gap) for gap in FINE]}
    for group, pairs in groups(settings).items():
        turn = stretched(settings, pairs)
        found[f"scaled/{group}"] = [(gap, turn, turn, gap) for gap in (0, *FAR)]
    for name, by_factor in methods(settings).items():
        for factor, method in by_factor.items():
            turns = {gap: turned(settings, method, 2 * tokens + gap if method.dynamic else None) for gap in GAPS}
            found[f"grid/{name}/{factor}"] = [(gap, turns[gap if method.dynamic else 0], turns[gap if method.dynamic else 0], gap) for gap in GAPS]
    for group, pairs in groups(settings).items():
        insides = {"same": INSIDE} | ({} if group.startswith("random") else {f"drawn {draw}": drawn_gaps(settings, draw, tokens)[pairs] for draw in DRAWS})
        for how, inside in insides.items():
            found[f"phases/{group}/{how}"] = [(gap, None, apart(settings, gap, pairs, inside, tokens), 0) for gap in FAR]
    return found


@torch.no_grad()
@one_thread()
def main():
    stored = results.stored("real_model")
    found = {key: stored.get(key, {}) for key in ("first", "second")}
    model, tokenizer = open_llama(), pretrained.open_tokenizer(pretrained.SMOLLM2)
    texts = passages(tokenizer)
    tokens = torch.stack(list(texts.values()))
    plain, todo = first(model, tokens), jobs(model.settings)
    for number, (name, readings) in enumerate(todo.items(), 1):
        if name in found["second"]:
            continue
        before, guess, row = None, {}, {}
        for gap, one, two, ids in readings:
            if one is not before:
                begun, before = first(model, tokens, one), one
            loss, cache = plain if one is None else begun
            guess[str(gap)], row[str(gap)] = loss.tolist(), second(model, tokens, ids, cache, two).tolist()
        found["first"][name] = results.rounded(guess if len({tuple(x) for x in guess.values()}) > 1 else {"all": loss.tolist()})
        found["second"][name] = results.rounded(row)
        print(f"{number}/{len(todo)}", name, {gap: round(float(np.mean(x)), 2) for gap, x in row.items()}, flush=True)
        results.store("real_model", {
            "what": f"SmolLM2 reads passages of {TOKENS} tokens twice. first, second: mean loss in nats a token of either reading, a number for each of "
                    "`passages`, by the gap between the readings' ids (all: the same for each gap). grid/method/factor: ways of stretching. scaled/group: "
                    f"frequencies of some pairs divided by 4. phases/group: some pairs see a gap of {INSIDE} (same), or gaps drawn for each of them (drawn 0, "
                    "…), in place of the true one.",
            "passages": list(texts), "groups": {name: pairs.tolist() for name, pairs in groups(model.settings).items()}, **found},
            command="python -m poslib.lab.real_model", seeds=DRAWS)


if __name__ == "__main__":
    results.put_into_figure("gap-probe", figure_data()) if "--figure" in sys.argv[1:] else main()
