"""The experiments of chapter 16: what a patched activation brings along, and where.

    python -m poslib.lab.patching_position             writes results/patching_position.json; about a quarter of an hour of CPU time, needs SmolLM2
    python -m poslib.lab.patching_position --figure    writes the data of the figure patch-site, from the stored result

What is finished is kept in the result's file, and a run that was interrupted goes on from there.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from poslib.attention import split_heads
from poslib.lab import pretrained, real_model, results, tasks
from poslib.lab._torch import torch
from poslib.lab.circuits import Patch, identity_probe, lag_mass, moved, normed, position_probe, record, run, take
from poslib.lab.encodings import Rotary
from poslib.lab.llama import Llama, open_llama
from poslib.lab.model import Transformer
from poslib.lab.training import one_thread, train

SEEDS = range(5)
# one layer that copies
LENGTH, BACK, SYMBOLS, PLACE = 32, 3, 16, 16
MOVES = tuple(m for m in range(-8, 9) if m)
COPIERS = {"learned": {}, "sinusoid": {}, "t5": {"position_rate": 10.0}, "shaw": {}, "rotary": {}}
# two layers that look up what came after the token at hand
READ, AHEAD, PREFIX, PERIOD, KINDS = 40, 8, 8, 20, 32
AHEADS = (1, 4, 8)
CHAINS = {
    "rotary": {"position": "rotary"},
    "alibi": {"position": "alibi", "settings": {"slopes": (1.0, 0.0625)}},
    "alibi, usual slopes": {"position": "alibi"},
    "t5": {"position": "t5"},
    "t5, fast table": {"position": "t5", "position_rate": 10.0},
    "t5, longer": {"position": "t5", "steps": 1800},
    "learned": {"position": "learned"},
    "learned, varied starts": {"position": "learned", "varied": True},
    "learned, varied starts, longer": {"position": "learned", "varied": True, "steps": 1800},
}
STEPS = {"copier": 250, "chain": 600}
TOKENS, FROM = 96, 32                   # of a passage of the real model; the first query that is looked at
START = 64                              # tokens put before a passage
DEPTHS = range(3, 11), range(12, 30)    # layers in which the first place is a sink: early and late ones
BEFORE = (1, 2, 3, 5, 8, 12, 20)        # layers before which the first state is moved
FAR = (500, 2000, 8000, 20000)          # ids of the first token
MARKS = {"the end-of-text token": 0, "a space": 216}            # as SmolLM2 numbers them


# ---- one layer: copy the token three back ----------------------------------------------------------

def copier(position, seed=0, *, back=BACK, causal=False, layers=1, steps=None, progress=False):
    """One layer (or more) with one head, trained to say the token `back` places before, by one of `COPIERS`."""
    model = Transformer(vocabulary=SYMBOLS, width=64, heads=1, layers=layers, causal=causal, position=position, max_length=LENGTH, seed=seed)
    train(model, lambda g: tasks.copy_back(32, g, length=LENGTH, back=back, symbols=SYMBOLS), steps=STEPS["copier"] if steps is None else steps, seed=seed,
          position_rate=COPIERS[position].get("position_rate", 1.0), progress=progress)
    return model


def _draw(seed, sequences=128, length=LENGTH, symbols=SYMBOLS):
    return torch.randint(0, symbols, (sequences, length), generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def copies(model, back=BACK):
    """Share of right answers on new sequences."""
    tokens = _draw(801)
    return float((model(tokens).argmax(-1)[:, back:] == tokens[:, :-back]).float().mean())


@torch.no_grad()
def query_sites(model, move, *, place=PLACE, back=BACK):
    """The query's side at place i is exchanged for that of place j = i + move, taken from other sequences: what is answered at i?

    Returns
    -------
    dict
        By the site: the share of sequences answered with the model's own token, i - back, with the source's, j - back, and the
        weight of the query on the two places.  Only sequences in which the two tokens differ count.
    """
    i, j = place, place + move
    ours, theirs = _draw(802), _draw(803)
    twin = theirs.clone()
    twin[:, j] = ours[:, i]                             # the same token at j, in another sequence
    other = record(model, theirs, sites=("stream", "q", "turned_q"), layers=0)
    code = model.code(torch.tensor([i, j]))
    stream = other[0, "stream"][:, [j]]
    found = {
        "stream, same token": take(record(model, twin, sites="stream", layers=0), 0, "stream", to=i, source=j),
        "stream": take(other, 0, "stream", to=i, source=j),
        "stream, aligned": take(other, 0, "stream", to=i),
        "stream, codes exchanged": Patch(0, "stream", stream - code[1] + code[0], i),
        "q": take(other, 0, "q", to=i, source=j),
        "turned q": take(other, 0, "turned_q", to=i, source=j),
    }
    if isinstance(model.positions, Rotary):
        found["turned q, turned back"] = moved(model, found["turned q"], i - j)
    found = {site: _answered(model, ours, i, j, back, [patch]) for site, patch in found.items()}
    ids = torch.arange(ours.shape[1])
    ids[i] = j
    return found | {"ids": _answered(model, ours, i, j, back, [], ids)}


def _answered(model, tokens, i, j, back, patches, positions=None):
    logits, seen = run(model, tokens, positions, patches=patches, sites="weights", layers=0)
    own, source = tokens[:, i - back], tokens[:, j - back]
    count, answer, weights = own != source, logits[:, i].argmax(-1), seen[0, "weights"][:, 0, i]
    return [float((answer == wanted)[count].float().mean()) for wanted in (own, source)] + [float(weights[:, at - back].mean()) for at in (i, j)]


@torch.no_grad()
def key_sites(model, move, *, place=PLACE, back=BACK):
    """Key or value at n = i - back are exchanged for those of m = n + move, from other sequences.

    Returns
    -------
    dict
        By the site: the weight on n of query i, whose lag to n is the trained one, and of query i + move, whose lag to m is; and the
        share of answers at i that are the token at n, and the source's token at m.
    """
    i, n, m = place, place - back, place - back + move
    ours, theirs = _draw(802), _draw(803)
    found = {}
    for site in ("k", "turned_k", "v"):
        patch = take(record(model, theirs, sites=site, layers=0), 0, site, to=n, source=m)
        logits, seen = run(model, ours, patches=[patch], sites="weights", layers=0)
        count, answer = ours[:, n] != theirs[:, m], logits[:, i].argmax(-1)
        found[site.replace("_", " ")] = ([float(seen[0, "weights"][:, 0, at, n].mean()) for at in (i, i + move)]
                                         + [float((answer == wanted)[count].float().mean()) for wanted in (ours[:, n], theirs[:, m])])
    return found


@torch.no_grad()
def behind_a_layer(model, move, *, place=PLACE, back=BACK):
    """The stream behind the first layer at place i is exchanged for that of place i + move of other sequences.

    Returns
    -------
    list
        Shares of answers at i: own token, i - back; the token at j - back of this sequence; that of the source's sequence.  Only sequences in which
        the three differ count.
    """
    i, j = place, place + move
    ours, theirs = _draw(802), _draw(803)
    logits = run(model, ours, patches=[take(record(model, theirs, sites="stream", layers=1), 1, "stream", to=i, source=j)]).logits
    wanted = torch.stack([ours[:, i - back], ours[:, j - back], theirs[:, j - back]])
    count = (wanted[0] != wanted[2]) & ((wanted[1] != wanted[0]) | (move == 0)) & (wanted[1] != wanted[2])
    return (logits[:, i].argmax(-1) == wanted)[:, count].float().mean(1).tolist()


@torch.no_grad()
def behind_at_the_key(model, *, place=PLACE, back=BACK):
    """The stream behind the first layer at the key's place i - back is exchanged for that of other sequences: own and source answers at i."""
    i, n = place, place - back
    ours, theirs = _draw(802), _draw(803)
    logits = run(model, ours, patches=[take(record(model, theirs, sites="stream", layers=1), 1, "stream", to=n)]).logits
    count = ours[:, n] != theirs[:, n]
    return [float((logits[:, i].argmax(-1) == wanted[:, n])[count].float().mean()) for wanted in (ours, theirs)]


def deep(position, seed):
    """A copier of two layers, patched between them."""
    model = copier(position, seed, layers=2)
    return {"right": copies(model), "aligned": behind_a_layer(model, 0), "shifted": behind_a_layer(model, 6), "key": behind_at_the_key(model)}


def trap(causal, back, seed):
    """The learned copier, causal or not, one or three back: own and source answers for a source before and behind the query."""
    model = copier("learned", seed, back=back, causal=causal)
    found = {move: query_sites(model, move, back=back)["stream, same token"] for move in (-6, 6)}
    return {"right": copies(model, back), "before": found[-6], "behind": found[6]}


# ---- two layers: induction -------------------------------------------------------------------------

def chain(name, seed=0, *, steps=None, progress=False):
    """Two causal layers, trained on sequences that repeat themselves, by one of `CHAINS`; and the same model untrained."""
    how = CHAINS[name]
    made = [Transformer(vocabulary=KINDS, width=64, heads=2, layers=2, causal=True, position=how["position"], settings=how.get("settings"),
                        max_length=READ + AHEAD, seed=seed) for _ in range(2)]
    train(made[0], lambda g: _repeated(g, varied=how.get("varied", False)), steps=how.get("steps", STEPS["chain"]) if steps is None else steps,
          seed=seed, position_rate=how.get("position_rate", 1.0), progress=progress)
    return made


def _repeated(generator, batch=16, varied=False):
    """`tasks.repeated`, of the length that the shifted runs need; with `varied`, behind 0 to `AHEAD` random tokens."""
    tokens, targets = tasks.repeated(batch, generator, length=READ + AHEAD, periods=(8, PERIOD), symbols=KINDS)
    if not varied:
        return tokens, targets
    front = int(torch.randint(0, AHEAD + 1, (1,), generator=generator))
    junk = torch.randint(0, KINDS, (batch, front), generator=generator)
    return (torch.cat([x, y], 1)[:, :READ + AHEAD] for x, y in ((junk, tokens), (torch.full_like(junk, tasks.IGNORED), targets)))


def _certain():
    """Sequences that read `PERIOD` different tokens twice: the answers of the second round are certain."""
    once = torch.rand(128, KINDS, generator=torch.Generator().manual_seed(804)).argsort(1)[:, :PERIOD]
    return once[:, torch.arange(READ) % PERIOD]


@torch.no_grad()
def previous(model):
    """Mean weight of each head of the first layer on the place before, in the sequences of `runs`."""
    return lag_mass(record(model, _certain(), sites="weights", layers=0)[0, "weights"]).tolist()


@torch.no_grad()
def runs(model, ahead=AHEAD):
    """Sequences with a period; the logits of other runs of them, by name; and their streams after the first layer, place by place.

    "ids": the same tokens, ids `ahead` further on.  "prefix": other tokens at the first places, ids as they were.  "window": `ahead` more
    tokens in front, so that every place stands further on and sees more.  "fillers": as "window", with other tokens in front.  "other": other
    tokens everywhere.
    """
    tokens = _certain()
    other = _draw(805, length=READ, symbols=KINDS)
    mixed = torch.cat([other[:, :PREFIX], tokens[:, PREFIX:]], 1)
    longer, fillers = (torch.cat([_draw(seed, length=ahead, symbols=KINDS), tokens], 1) for seed in (806, 812))
    after = lambda x, positions=None: record(model, x, positions, sites="stream", layers=1)[1, "stream"]  # noqa: E731
    shifted = torch.arange(READ) + ahead
    alone = {"own": model(tokens), "ids": model(tokens, shifted), "prefix": model(mixed), "window": model(longer)[:, ahead:]}
    return tokens, alone, {"own": after(tokens), "ids": after(tokens, shifted), "prefix": after(mixed), "window": after(longer)[:, ahead:],
                           "fillers": after(fillers)[:, ahead:], "other": after(other)}, longer


@torch.no_grad()
def chain_sites(model, ahead=AHEAD):
    """Keys and values of the second layer, or its whole stream, from the places on that follow the prefix, exchanged for those of another run.

    Returns
    -------
    dict
        By the run: share of right answers in the second period, and how far the first layer's states are from the model's own, in
        lengths of these.  "unpatched" is the other run by itself: what a patch from it could at best keep.  "fillers" alone is patched into the
        run "window", at as many places further on: other content in front, the same ids, as many keys.  "by place", of "window" patched and unpatched: right
        answers by the place of the first key that has the answer, without displacement from `PREFIX` + 1 on.
    """
    tokens, alone, states, longer = runs(model, ahead)
    places, block = list(range(PREFIX, READ)), model.blocks[1]
    code = model.code(torch.arange(READ + ahead))
    states["window, codes exchanged"] = states["window"] - code[ahead:] + code[:READ]
    asked = torch.arange(PREFIX + PERIOD, 2 * PERIOD - 1)     # one earlier occurrence of each, which is patched

    def by_place(logits):
        return (logits.argmax(-1)[:, asked] == tokens[:, asked + 1]).float().mean(0)

    def answers(patches, tokens=tokens):
        return run(model, tokens, patches=patches).logits

    def keys(x, ahead=0):
        _, k, v = block.qkv(normed(model, 1, x[:, PREFIX:])).chunk(3, -1)
        return [Patch(1, site, split_heads(t, block.heads), [n + ahead for n in places]) for site, t in (("k", k), ("v", v))]

    right = {name: by_place(answers(keys(x))) for name, x in states.items()}
    right["fillers"] = by_place(answers(keys(states["fillers"], ahead), longer)[:, ahead:])
    right |= {f"{name}, unpatched": by_place(logits) for name, logits in alone.items()}
    for name in ("ids", "window", "prefix"):
        right[f"{name}, whole stream"] = by_place(answers([Patch(1, "stream", states[name][:, PREFIX:], places)]))
    own = states["own"][:, PREFIX:]
    off = {name: float(((x[:, PREFIX:] - own).norm(dim=-1) / own.norm(dim=-1)).mean()) for name, x in states.items()}
    found = {name: [float(x.mean()), off[name.removesuffix(", unpatched").removesuffix(", whole stream")]] for name, x in right.items()}
    return found | {"by place": {name: right[name].tolist() for name in ("window", "window, unpatched")}}


@torch.no_grad()
def chain_probes(model, sequences=256):
    """What a linear map reads in the stream before each layer and at the end, on sequences it was not fitted to.

    Returns
    -------
    dict
        "place": share of the variance of the place, without the first one; "shuffled": the same with the training sequences' places
        shuffled; "token": share of tokens named right; "shuffled token".
    """
    tokens = [_repeated(torch.Generator().manual_seed(seed), sequences)[0] for seed in (807, 808)]
    place = torch.arange(1, tokens[0].shape[1]).repeat(sequences, 1)
    mixed = place.flatten()[torch.randperm(place.numel(), generator=torch.Generator().manual_seed(809))].view_as(place)
    symbols = tokens[0][:, 1:].flatten()[torch.randperm(place.numel(), generator=torch.Generator().manual_seed(810))].view_as(place)
    found = {"place": [], "shuffled": [], "token": [], "shuffled token": []}
    for layer in range(3):
        a, b = (record(model, x, sites="stream", layers=layer)[layer, "stream"][:, 1:] for x in tokens)
        found["place"].append(position_probe(a, place, b, place).r2)
        found["shuffled"].append(position_probe(a, mixed, b, place).r2)
        found["token"].append(identity_probe(a, tokens[0][:, 1:], b, tokens[1][:, 1:]))
        found["shuffled token"].append(identity_probe(a, symbols, b, tokens[1][:, 1:]))
    return found


# ---- SmolLM2 ---------------------------------------------------------------------------------------

def passages(tokenizer, tokens=TOKENS):
    """Ten passages, (names, integer tensor (10, tokens)); those of chapter 14, cut short."""
    found = real_model.passages(tokenizer)
    return list(found), torch.stack([t[:tokens] for t in found.values()])


@torch.no_grad()
def masses(model, tokens, on, positions=None, *, look=None, mask=None, start=FROM):
    """Mean weight that the queries from `start` on put on the place `on`, over heads and queries: (batch, layers)."""
    found = []

    def watch(layer, site, x):
        new = None if look is None else look(layer, site, x)
        if site == "weights":
            w = x if new is None else new
            found.append(w[:, :, max(start, on + 1):, on].mean((1, 2)))
        return new

    model.read(tokens, positions, look=watch, mask=mask)
    return torch.stack(found, 1)


def exchange(layer, states):
    """A `look` that puts states (batch, width) into the stream before one layer: {place: state}."""
    def look(at, site, x):
        if (at, site) != (layer, "stream"):
            return None
        x = x.clone()
        for place, state in states.items():
            x[:, place] = state
        return x
    return look


def sink_layer(lengths):
    """First layer before which the stream at place 0 is ten times as long as elsewhere; `lengths` of (layers + 1, places)."""
    ratio = lengths[:, 0] / np.median(lengths[:, 1:], axis=1)
    return int(np.flatnonzero(ratio > 10)[0])


@torch.no_grad()
def sinks(model, tokens, middle=FROM):
    """The first token as a resting place: where the weight goes when something is changed.

    Returns
    -------
    dict
        "layer": where states are exchanged; "lengths": mean length of the stream before each layer, at places 0 to 3 and the median of
        the others; "by": by what was done, weights of each passage, means over heads, queries and the layers of `DEPTHS`; "weights": on place 0, of
        each layer; "moved": by the layer before which the first state goes to the middle and another to place 0, late weights on the middle, and
        those with another state there.
    """
    seen = record(model, tokens, sites="stream")
    streams = [seen[n, "stream"] for n in range(model.settings.layers + 1)]
    lengths = np.stack([x.norm(dim=-1).mean(0).numpy() for x in streams])
    layer, n, place = sink_layer(lengths), tokens.shape[1], torch.arange(tokens.shape[1])
    blind = torch.ones(n, n, dtype=torch.bool)
    blind[1:, 0] = False
    twin, rolled = tokens.clone(), place.clone()
    twin[:, middle] = tokens[:, 0]
    rolled[0], rolled[middle] = middle, 0
    first, usual = streams[layer][:, 0], streams[layer][:, middle - 1]
    longer = first.norm(dim=-1, keepdim=True) / usual.norm(dim=-1, keepdim=True)      # which of the two is it, direction or length?
    todo = {
        "place 0": dict(on=0),
        "place 1": dict(on=1),
        "the middle": dict(on=middle),
        "first token dropped, on the new first": dict(tokens=tokens[:, 1:], on=0, start=FROM - 1),
        "first token masked, on the second": dict(on=1, mask=blind),
        "first token copied to the middle, on the middle": dict(tokens=twin, on=middle),
        "all ids 1000 further on, on place 0": dict(on=0, positions=place + 1000),
        **{f"first id {far}, on place 0": dict(on=0, positions=place.masked_fill(place == 0, far)) for far in FAR},
        **{f"{text} put in the middle, on the middle": dict(on=middle, tokens=torch.where(place == middle, token, tokens)) for text, token in MARKS.items()},
        "ids of place 0 and the middle exchanged, on place 0": dict(on=0, positions=rolled),
        "ids of place 0 and the middle exchanged, on the middle": dict(on=middle, positions=rolled),
        "first state to the middle, on the middle": dict(on=middle, look=exchange(layer, {middle: first})),
        "another state to the middle, on the middle": dict(on=middle, look=exchange(layer, {middle: usual})),
        "another state, stretched, to the middle, on the middle": dict(on=middle, look=exchange(layer, {middle: usual * longer})),
        "first state, shrunk, to the middle, on the middle": dict(on=middle, look=exchange(layer, {middle: first / longer})),
        "first state, shrunk, in its place, on place 0": dict(on=0, look=exchange(layer, {0: first / longer})),
        "another state to place 0, on place 0": dict(on=0, look=exchange(layer, {0: usual})),
        "first state to the middle, another to place 0, on the middle": dict(on=middle, look=exchange(layer, {0: usual, middle: first})),
        "first state, shrunk, to the middle, another to place 0, on the middle": dict(on=middle, look=exchange(layer, {0: usual, middle: first / longer})),
        "another state to the middle, another to place 0, on the middle": dict(on=middle, look=exchange(layer, {0: usual, middle: usual})),
    }

    def by_depth(**how):
        weights = masses(model, **({"tokens": tokens} | how))
        return [weights[:, list(depth)].mean(1).tolist() for depth in DEPTHS]

    moved = {}
    for n in BEFORE:
        x = streams[n]
        both = {0: x[:, middle - 1], middle: x[:, 0]}
        control = {0: x[:, middle - 1], middle: x[:, middle - 1]}
        moved[str(n)] = [by_depth(on=middle, look=exchange(n, states))[1] for states in (both, control)]
    return {"layer": layer, "lengths": [[*row[:4].tolist(), float(np.median(row[4:]))] for row in lengths], "by": {name: by_depth(**how) for name, how in todo.items()},
            "weights": masses(model, tokens, 0).mean(0).tolist(), "moved": moved}


@torch.no_grad()
def starts(model, tokens, before=START):
    """The same tokens at the same lags, at the start of a window and further on: how far apart are the states?

    For each layer and passage, without the first eight places: the distance of states in lengths of the first, when all ids are `before`
    further on ("ids"), and when `before` tokens of the next passage stand in front as well ("window"); and between two such windows, with tokens of the next
    passage and of the one after it in front ("fillers").
    """
    place = torch.arange(tokens.shape[1])
    other = tokens.roll(1, 0)
    own = record(model, tokens, sites="stream")
    ids = record(model, tokens, place + before, sites="stream")
    window, fillers = (record(model, torch.cat([front[:, :before], tokens], 1), sites="stream") for front in (other, tokens.roll(2, 0)))
    found = {"ids": [], "window": [], "fillers": []}
    for n in range(model.settings.layers + 1):
        a, later = own[n, "stream"][:, 8:], window[n, "stream"][:, before + 8:]
        for name, a, b in (("ids", a, ids[n, "stream"][:, 8:]), ("window", a, later), ("fillers", later, fillers[n, "stream"][:, before + 8:])):
            found[name].append(((a - b).norm(dim=-1) / a.norm(dim=-1)).mean(1).tolist())
    return found


LOOKED = (0, 1, 2, 4, 8, 12, 16, 20, 24, 28, 30)       # layers whose stream is probed
STRENGTH = 1.0                          # of the ridge: 576 channels, and few windows
OTHERS = (0.1, 10.0)                    # for the place alone
COMMON = 16                             # tokens to tell apart: the most frequent ones
TEXTS = len(real_model.PROGRAMS) + len(real_model.TOPICS)


@torch.no_grad()
def streams(model, tokens, layers):
    """The stream before some layers, without the logits, which would take a gigabyte: {layer: (batch, length, width)}."""
    found = {n: [] for n in layers}

    def watch(layer, site, x):
        if site == "stream" and layer in found:
            found[layer].append(x)

    for some in tokens.split(10):
        model.read(some, look=watch)
    return {n: torch.cat(x) for n, x in found.items()}


@torch.no_grad()
def real_probes(model, tokens):
    """Place (from 8 on) and identity of the commonest tokens, read by linear maps; every third window is held out.

    "place, folds": with each third of the windows held out in turn; "place, texts": with each third of the texts, whole.
    """
    seen = streams(model, tokens, LOOKED)
    place = torch.arange(8, tokens.shape[1]).repeat(len(tokens), 1)
    cut = tokens[:, 8:]
    kinds, counts = cut.unique(return_counts=True)
    common = kinds[counts.argsort(descending=True)[:COMMON]]
    label = (cut[..., None] == common).float().argmax(-1)
    is_common = (cut[..., None] == common).any(-1)
    g = torch.Generator().manual_seed(811)
    held = torch.arange(len(tokens)) % 3 == 2
    fit = ~held
    mixed = place[fit].flatten()[torch.randperm(place[fit].numel(), generator=g)].view_as(place[fit])
    labels = label[fit][is_common[fit]]
    shuffled = labels[torch.randperm(len(labels), generator=g)]
    found = {"place": [], "shuffled": [], "token": [], "shuffled token": []}
    for n in LOOKED:
        x = seen[n][:, 8:]
        for strength in OTHERS:
            found.setdefault(f"place, strength {strength:g}", []).append(position_probe(x[fit], place[fit], x[held], place[held], strength=strength).r2)
        for name, group in (("folds", torch.arange(len(tokens)) % 3), ("texts", torch.arange(len(tokens)) * TEXTS // len(tokens) % 3)):
            thirds = [position_probe(x[group != k], place[group != k], x[group == k], place[group == k], strength=STRENGTH).r2 for k in range(3)]
            found.setdefault(f"place, {name}", []).append(thirds)
        found["place"].append(found["place, folds"][-1][2])         # the third that is held out here
        found["shuffled"].append(position_probe(x[fit], mixed, x[held], place[held], strength=STRENGTH).r2)
        a, b = x[fit][is_common[fit]], x[held][is_common[held]]
        found["token"].append(identity_probe(a, labels, b, label[held][is_common[held]], strength=STRENGTH))
        found["shuffled token"].append(identity_probe(a, shuffled, b, label[held][is_common[held]], strength=STRENGTH))
    return found | {"commonest": float((label[held][is_common[held]] == labels.bincount().argmax()).float().mean())}


def windows(tokenizer, tokens=TOKENS, count=60):
    """Windows of text for the probes, (count, tokens): the same number from each of chapter 14's texts, side by side."""
    from pydoc_data.topics import topics
    texts = [Path(module.__file__).read_text("utf8") for module in real_model.PROGRAMS] + [topics[name] for name in real_model.TOPICS]
    each = count // len(texts)
    found = [torch.tensor(tokenizer.encode(text)[:each * tokens]).view(each, tokens) for text in texts]
    return torch.cat(found)


def untrained(model, seed=0):
    """A Llama of the same shape with random weights: normal, the scale of each matrix as the trained one's; norms one."""
    g = torch.Generator().manual_seed(seed)
    weights = {name: torch.randn(w.shape, generator=g) * w.std() if w.ndim == 2 else torch.ones_like(w) for name, w in model.weights.items()}
    return Llama(weights, model.settings)


# ---- the stored run --------------------------------------------------------------------------------

def _unit_copier(name, seed):
    model = copier(name, seed)
    by = {move: query_sites(model, move) for move in MOVES}
    return {"right": copies(model), "query": {site: [by[move][site][:2] for move in MOVES] for site in by[MOVES[0]]},
            "mass": {site: by[6][site][2:] for site in by[6]}, "key": key_sites(model, 6)}


def _unit_chain(name, seed):
    model, raw = chain(name, seed)
    return {"patched": {str(ahead): chain_sites(model, ahead) for ahead in AHEADS}, "previous": previous(model), "probes": chain_probes(model), "untrained": chain_probes(raw)}


def jobs():
    """What is measured, in order: {"section/name/seed": callable without arguments}."""
    found = {f"copier/{name}/{seed}": (lambda name=name, seed=seed: _unit_copier(name, seed)) for name in COPIERS for seed in SEEDS}
    found |= {f"trap/{'causal' if causal else 'full'}, {back} back/{seed}": (lambda causal=causal, back=back, seed=seed: trap(causal, back, seed))
              for causal, back in ((True, 1), (True, 3), (False, 1)) for seed in SEEDS}
    found |= {f"deep/{name}/{seed}": (lambda name=name, seed=seed: deep(name, seed)) for name in ("learned", "rotary") for seed in SEEDS}
    return found | {f"chain/{name}/{seed}": (lambda name=name, seed=seed: _unit_chain(name, seed)) for name in CHAINS for seed in SEEDS}


def _real():
    tokenizer, model = pretrained.open_tokenizer(pretrained.SMOLLM2), open_llama()
    names, tokens = passages(tokenizer)
    text = windows(tokenizer)
    return {"passages": names, "sinks": sinks(model, tokens), "starts": starts(model, tokens), "probes": real_probes(model, text),
            "untrained": real_probes(untrained(model), text)}


@one_thread()
def main():
    found, todo = results.stored("patching_position").get("runs", {}), ({"smol": _real} if pretrained.installed(pretrained.SMOLLM2) else {}) | jobs()
    for number, (name, work) in enumerate(todo.items(), 1):
        if name in found:
            continue
        found[name] = results.rounded(work())
        print(f"{number}/{len(todo)}", name, flush=True)
        results.store("patching_position", {
            "what": "copier/encoding/seed: one layer that copies three back; query: by the site, for each of `moves`, shares of own and source answers; "
                    "mass: weights on the two places, move 6; key: see key_sites.  trap: learned positions, answers for a source before and behind the "
                    "query.  deep: two layers, patched between them; see behind_a_layer.  chain/encoding/seed: two layers that look up; patched: by the displacement and the run, share of right answers and distance of "
                    "states; probes: see chain_probes.  smol: SmolLM2; see sinks, starts, real_probes.",
            "moves": MOVES, "layers": LOOKED, "runs": found}, command="python -m poslib.lab.patching_position", seeds=SEEDS)
    results.put_into_figure("patch-site", figure_data())


def of(stored, name):
    """The results of one experiment in all seeds: `of(stored, "copier/rotary")`."""
    return [stored["runs"][f"{name}/{seed}"] for seed in SEEDS]


SHOWN = ("stream", "stream, codes exchanged", "q", "turned q", "turned q, turned back", "ids")
FIGURE = ("learned", "rotary", "t5")


def figure_data(stored=None):
    """What the figure patch-site holds: for each encoding and site, and each move, percent of own and of source answers in each seed."""
    runs_ = (results.load("patching_position") if stored is None else stored)["runs"]
    found = {}
    for name in FIGURE:
        seeds = [runs_[f"copier/{name}/{seed}"]["query"] for seed in SEEDS]
        found[name] = {site: [[[round(100 * s[site][n][which]) for s in seeds] for which in (0, 1)] for n in range(len(MOVES))]
                       for site in SHOWN if site in seeds[0]}
    return {"moves": MOVES, "by": found}


if __name__ == "__main__":
    results.put_into_figure("patch-site", figure_data()) if "--figure" in sys.argv[1:] else main()
