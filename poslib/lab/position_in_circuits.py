"""The experiments of chapter 15: which circuits use position, in small models without MLPs and in SmolLM2.

    python -m poslib.lab.position_in_circuits   writes results/position_in_circuits.json; ten minutes of CPU time; without SmolLM2 its part is left as it was
    python -m poslib.lab.position_in_circuits --figure    writes the data of the figure score-waves, from the stored result

Two layers of attention and nothing else learn to continue a sequence that repeats itself (`tasks.repeated`).  How much do their heads look
at the place before, how much at what followed the token last time, and when do they begin?  In SmolLM2, heads that look at the place before
are chosen on some passages and measured on others; there pairs of one head stop turning, or count for nothing.

What is finished is kept in the result's file, and a run that was interrupted goes on from there.
"""

from __future__ import annotations

import sys
from functools import partial

import numpy as np

from poslib.attention import causal_mask, softmax, split_heads
from poslib.lab import pretrained, real_model, results, tasks
from poslib.lab._torch import torch
from poslib.lab.circuits import Patch, first_mass, lag_mass, record, run, stilled, zeroed
from poslib.lab.llama import losses, open_llama
from poslib.lab.model import Transformer
from poslib.lab.training import one_thread, train
from poslib.rotary import rotate

nn = torch.nn

LENGTH, SYMBOLS, PERIODS = 64, 48, (8, 32)
STEPS, EVERY, BATCH, SEEDS = 480, 10, 16, range(5)
# steps and settings that differ: ALiBi's usual slopes for two heads, 1/16 and 1/256, are too flat for this (chapter 7); T5's table needs a rate of its own (chapter 6)
METHODS = {"rotary": {}, "alibi": {"settings": {"slopes": (1.0, 0.0625)}}, "t5": {"settings": {"max_distance": 64}, "position_rate": 10},
           "learned": {}, "none": {}}
TEST = 32                               # sequences on which heads are measured
LATE = 32                               # queries from here on are asked about the first place


# ---- small models ----------------------------------------------------------------------------------

class Nothing(nn.Module):
    """In place of an MLP: adds nothing."""

    def forward(self, x):
        return torch.zeros_like(x)


def attention_only(**how):
    """A `Transformer` whose layers are attention alone."""
    model = Transformer(**how)
    for block in model.blocks:
        block.mlp = Nothing()
    return model


def new_model(method, seed, layers=2):
    """Width 64, two heads, causal, attention alone."""
    return attention_only(vocabulary=SYMBOLS, width=64, heads=2, layers=layers, causal=True, position=method, max_length=LENGTH, seed=seed,
                          settings=METHODS[method].get("settings"))


def draw(count, seed):
    """Repeating sequences, what is asked, and the period of each: `tasks.repeated` with the period read off its targets."""
    tokens, targets = tasks.repeated(count, torch.Generator().manual_seed(seed), length=LENGTH, periods=PERIODS, symbols=SYMBOLS)
    return tokens, targets, (targets == tasks.IGNORED).sum(1)


def patterns(model, tokens):
    """Attention weights of each layer: tensors (batch, heads, length, length)."""
    return list(record(model, tokens, sites="weights").values())


def induction_mass(weights, periods):
    """Mean weight on the places after the token's earlier occurrences one period apart, where there is one: (batch, heads)."""
    place = torch.arange(weights.shape[-1])
    back = place[:, None] - place - periods[:, None, None]
    wanted = (back % periods[:, None, None] == periods[:, None, None] - 1) & (back >= -1) & (place[:, None] >= periods[:, None, None])
    asked = place >= periods[:, None]
    return (weights * wanted[:, None]).sum(-1).mul(asked[:, None]).sum(-1) / asked.sum(-1, keepdim=True)


@torch.no_grad()
def look_at(model, test):
    """Share of right answers, and for each layer and head the mass on the place before, on induction, and on the first place."""
    tokens, targets, periods = test
    asked, seen = targets != tasks.IGNORED, patterns(model, tokens)

    def of(layers):
        return [layer.mean(0) for layer in layers]

    return results.rounded({
        "right": (model(tokens).argmax(-1) == targets)[asked].double().mean(),
        "previous": of(lag_mass(w, start=PERIODS[0], each=True) for w in seen), "induction": of(induction_mass(w, periods) for w in seen),
        "first": of(first_mass(w, LATE, each=True) for w in seen)})


def learn(method, seed, *, layers=2, steps=STEPS, every=EVERY, progress=None):
    """Train one model; what `look_at` sees on the way: (model, [(step, …)])."""
    model, test = new_model(method, seed, layers), draw(TEST, 9000)
    seen = train(model, lambda g: tasks.repeated(BATCH, g, length=LENGTH, periods=PERIODS, symbols=SYMBOLS), steps=steps, seed=seed,
                 position_rate=METHODS[method].get("position_rate", 1), every=every, look=lambda m: look_at(m, test), progress=progress)
    return model, seen


@torch.no_grad()
def content_scores(model, lags=LENGTH):
    """Scores of the first layer by query token, key token and lag: float64 (heads, symbols, symbols, lags).

    Of encodings that add nothing to the tokens' vectors: there the first layer's score has no other arguments.
    """
    block, x = model.blocks[0], model.embedding.weight
    q, k, _ = (split_heads(t[None], block.heads)[0].double() for t in block.qkv(block.norm1(x)).chunk(3, -1))     # (heads, symbols, width)
    found = []
    for lag in range(lags):
        one = torch.full((SYMBOLS,), lag), torch.zeros(SYMBOLS, dtype=torch.long)
        turned_q, turned_k = model.positions.turn(q, q, one[0])[0], model.positions.turn(k, k, one[1])[1]
        found.append(turned_q @ turned_k.mT / q.shape[-1] ** 0.5)
    scores = torch.stack(found, -1)
    bias = model.positions.bias(torch.arange(lags), torch.float64)
    return (scores if bias is None else scores + bias[:, -1].flip(-1)[:, None, None]).numpy()


def parts(scores):
    """Scores (contents, contents, lags) split into mean, lag, content and interaction, which add up to them; see (eq:pc-split)."""
    mean = scores.mean()
    lag, content = scores.mean((0, 1)) - mean, scores.mean(2)[..., None] - mean
    return {"mean": mean, "lag": lag, "content": content, "interaction": scores - mean - lag - content}


def shares(scores):
    """Variance of scores (contents, contents, lags) that lag, content and interaction have; the three add up to 1."""
    found = parts(scores)
    return {name: float((part ** 2).mean() / scores.var()) for name, part in found.items() if name != "mean"}


@torch.no_grad()
def reduced(model, head, test):
    """What is left if one head of the first layer scores by some of the `parts` alone: share of right answers, and the head's mass on the place before.

    Returns
    -------
    dict
        "whole", "lag and content", "lag", "content", "lag and own", "nothing": [right, mass].  "own" is of the content only how much a token's score with
        itself is above others, one number for all tokens; with "nothing" the weights are even.  Softmax does not see the mean.
    """
    tokens, targets, _ = test
    asked, split = targets != tasks.IGNORED, parts(content_scores(model)[head])
    lags = (torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)).clamp(0)      # later keys are masked
    content = split["content"][..., 0]
    split |= {"own": (own(content[..., None]) * np.eye(SYMBOLS))[..., None], "nothing": 0}
    found = {}
    for name in ("whole", "lag and content", "lag", "content", "lag and own", "nothing"):
        wanted = ("lag", "content", "interaction") if name == "whole" else name.split(" and ")
        table = torch.as_tensor(sum(split[part] for part in wanted) + np.zeros((SYMBOLS, SYMBOLS, LENGTH)))
        scores = table[tokens[:, :, None], tokens[:, None], lags].float()[:, None]
        seen = run(model, tokens, patches=[Patch(0, "scores", scores, heads=head)], sites="weights", layers=0)
        right = (seen.logits.argmax(-1) == targets)[asked].double().mean().item()
        found[name] = [right, lag_mass(seen.recorded[0, "weights"], start=PERIODS[0])[head].item()]
    return results.rounded(found)


def own(scores):
    """How much a token's score with itself is above that with others, at lag 0, on average; scores (contents, contents, lags)."""
    now, count = scores[..., 0], len(scores)
    return float(np.trace(now) / count - (now.sum() - np.trace(now)) / (count * (count - 1)))


def begins(row, kind, layer, threshold=0.4):
    """First step of a stored row at which the best head of a layer puts more than `threshold` there; None if none does."""
    return next((step for step, found in zip(row["steps"], row[kind]) if max(found[layer]) > threshold), None)


# ---- SmolLM2 ---------------------------------------------------------------------------------------

TOKENS, FROM = 256, 16                  # of a passage; queries before that are not counted
RANDOM = 6                              # passages of random tokens
CHOOSING = ("code: argparse", "code: ast", "prose: assignment", "prose: attribute-access", "random 0", "random 1")
HEADS, OTHERS = 10, 5                   # that look at the place before; drawn from the rest
MOVED = (1, 4)                          # by which the queries' ids are lowered
HELD = (0, 1, 4, 16)                    # lags at which pair 0 is held
REST, RESTING = 6, range(4, 10)         # a layer whose heads' common resting place is named; layers that share it
RESTFUL, PLAIN, INTO = (" ", " the"), (" of", "\n", "   "), (1, 5, 20, 60, 100)       # tokens taken out or put in; other common ones; places
NEAR, TURN, LATER = 7, 0.8, 100         # keys among which pair 0 might do; how nearly a lag looks to it like lag 1; queries with many far keys
COPIED, DRAWS = 128, range(3)           # tokens that are read twice; draws of as many heads


def passages(tokenizer, vocabulary):
    """Chapter 14's ten, and random tokens: {name: integer tensor (TOKENS,)}."""
    found = real_model.passages(tokenizer, TOKENS)
    g = torch.Generator().manual_seed(15)
    return found | {f"random {n}": torch.randint(0, vocabulary, (TOKENS,), generator=g) for n in range(RANDOM)}


@torch.no_grad()
def masses(model, tokens):
    """Mean weight on the place before and on the first place, of queries from FROM on: two float64 arrays (batch, layers, heads)."""
    before, first = [], []

    def look(layer, site, x):
        if site == "weights":
            before.append(lag_mass(x, start=FROM, each=True))
            first.append(first_mass(x, FROM, each=True))

    model.read(tokens, look=look)
    return tuple(torch.stack(found, 1).numpy() for found in (before, first))


@torch.no_grad()
def anchors(model, tokens):
    """Where each layer rests: the key in the first half that the second half's queries weigh most, over all heads, and that mean weight: [(place, weight)]."""
    found, half = [], tokens.shape[1] // 2

    def look(layer, site, x):
        if site == "weights":
            weight, place = x[0, :, half:, :half].mean((0, 1)).max(-1)
            found.append((int(place), float(weight)))

    model.read(tokens, look=look)
    return results.rounded(found)


def single(tokenizer, text):
    """The one token that a text is."""
    tokens = tokenizer.encode(text)
    if len(tokens) != 1:
        raise ValueError(f"text is {text!r}, which is {len(tokens)} tokens; allowed is one")
    return tokens[0]


def resting(model, texts, tokenizer):
    """Is it a token that layers `RESTING` rest on?  Their anchors, by passage, when tokens are taken out or put in.

    Returns
    -------
    dict
        places: by the token of `RESTFUL`, where it first stands in each passage, None if nowhere.  out, of passages that have one of them: "both" made
        " of", or each alone; "control", the token behind each made " of" instead.  in, by the token and the place: put into each passage that
        has neither.  A list of the layers' places for each passage.
    """
    marks, of = {text: single(tokenizer, text) for text in RESTFUL}, single(tokenizer, PLAIN[0])
    found = {"places": {text: {} for text in RESTFUL}, "out": {text: {} for text in ("both", *RESTFUL, "control")},
             "in": {text: {str(place): {} for place in INTO} for text in RESTFUL + PLAIN}}

    def places(tokens):
        rows = anchors(model, tokens[None])
        return [rows[n][0] for n in RESTING]

    for name, tokens in texts.items():
        hits = {text: tokens == mark for text, mark in marks.items()}
        for text, hit in hits.items():
            found["places"][text][name] = int(hit.nonzero()[0]) if hit.any() else None
        both = torch.stack(list(hits.values())).any(0)
        if both.any():
            behind = both.roll(1) & ~both
            behind[0] = False
            for text, where in {"both": both, **hits, "control": behind}.items():
                found["out"][text][name] = places(tokens.masked_fill(where, of))
        else:
            for text, by_place in found["in"].items():
                for place in INTO:
                    changed = tokens.clone()
                    changed[place] = single(tokenizer, text)
                    by_place[str(place)][name] = places(changed)
    return found


@torch.no_grad()
def queries_and_keys(model, tokens, heads):
    """Queries and keys of some heads, unturned: {(layer, head): (q, k)}, each (batch, length, head width)."""
    s, kept = model.settings, {}

    def look(layer, site, x):
        if site in ("q", "k"):
            kept[layer, site] = x

    model.read(tokens, look=look)
    return {(n, h): (kept[n, "q"][:, h], kept[n, "k"][:, h // (s.heads // s.kv_heads)]) for n, h in heads}


def pair_scores(q, k, settings, shift=0, held=0):
    """Scaled scores of one head by pair, turned, and with all keys at one lag: two tensors (batch, pairs, length, length).

    Parameters
    ----------
    q, k : tensors, shape (batch, length, head width), unturned
    settings : poslib.lab.pretrained.Settings
    shift : int
        By which the queries' position ids are lowered; the keys' stay.
    held : int
        The lag at which pairs that do not turn are held.  At 0 they are as the model made them.
    """
    places, width = torch.arange(q.shape[1]), q.shape[-1]

    def pairs(x, positions):
        x = rotate(x, positions, layout=settings.layout, base=settings.base)
        return torch.view_as_real(as_pairs(x, settings.layout)).transpose(1, 2)                                # (batch, pairs, length, 2)

    return tuple(pairs(q, to) @ pairs(k, at).mT / width ** 0.5 for to, at in ((places - shift, places), (torch.full_like(places, held), 0 * places)))


def without(turned, still, pairs, way):
    """The head's weights when some pairs do not turn ("stilled") or count for nothing ("zeroed"), (batch, length, length)."""
    on = torch.ones(turned.shape[1], dtype=torch.bool)
    on[list(pairs)] = False
    s = turned[:, on].sum(1) + (still[:, ~on].sum(1) if way == "stilled" else 0)
    return softmax(s, causal_mask(s.shape[-1], like=s))


def previous(weights, lag=1):
    """Mean weight of one head on the place before, or `lag` before, of queries from FROM on: (batch,)."""
    return lag_mass(weights[:, None], lag, FROM, each=True)[:, 0]


def near(weights):
    """Share that lag 1 has of a head's weight on the lags 0 to NEAR - 1, mean over queries from FROM on: (batch,)."""
    lags = torch.stack([weights.diagonal(-lag, -2, -1)[:, FROM - lag:] for lag in range(NEAR)])
    return (lags[1] / lags.sum(0)).mean(-1)


def come_round(weights):
    """Share of a head's weight on lags from NEAR on that is on those which pair 0 takes for lag 1: cos(lag - 1) > TURN, of queries from LATER on: (batch,)."""
    lag = torch.arange(weights.shape[-1])[:, None] - torch.arange(weights.shape[-1])
    far, again = lag >= NEAR, (lag >= NEAR) & (torch.cos(lag - 1.0) > TURN)
    return ((weights * again).sum(-1) / (weights * far).sum(-1))[:, LATER:].mean(-1)


def groups(pairs):
    """What is switched off: each pair, bands, and all pairs but the first one or four."""
    bands = {"0-3": range(4), "4-7": range(4, 8), "8-15": range(8, 16), "16-31": range(16, pairs), "all": range(pairs),
             "all but 0": range(1, pairs), "all but 0-3": range(4, pairs)}
    return {**{str(k): [k] for k in range(pairs)}, **{name: list(p) for name, p in bands.items()}}


@torch.no_grad()
def of_one_head(q, k, settings):
    """What one head does on each passage: the mass on the place before, whole and with pairs switched off, and how far its pattern moves.

    Returns
    -------
    dict
        whole : list; way : {group: list} of masses; way + " moves" : {group: list} of mean total variation distances to the whole pattern; way + " near" :
        {group: list} of the share that lag 1 has of the weight on the lags 0 to `NEAR` - 1, "none" being the whole head; held: {lag: masses} with pair 0 held at
        a lag (0 is "stilled"); "come round": by even weights, by pair 0 alone (the others stilled), by the whole head; moved: {s: [mass on lag 1, mass on lag 1 + s]} with the queries' ids lowered by s; arrows: [real, imaginary] of each pair's mean query times its
        mean key, over the root of the width; fixed: [queries, keys], for each pair the square of the mean over the mean of the squares.
    """
    turned, still = pair_scores(q, k, settings)
    whole = without(turned, still, [], "stilled")
    found = {"whole": previous(whole)}
    for way in ("stilled", "zeroed"):
        found[way], found[f"{way} moves"], found[f"{way} near"] = {}, {}, {"none": near(whole)}
        for name, pairs in groups(turned.shape[1]).items():
            weights = without(turned, still, pairs, way)
            found[way][name] = previous(weights)
            found[f"{way} moves"][name] = (weights - whole).abs().sum(-1)[:, FROM:].mean(-1) / 2
            if name.startswith("all but"):
                found[f"{way} near"][name] = near(weights)
    lonely = without(turned, still, groups(turned.shape[1])["all but 0"], "stilled")
    found["come round"] = [come_round(torch.full_like(lonely, 1.0)), come_round(lonely), come_round(whole)]
    found["held"] = {str(lag): previous(without(turned, pair_scores(q, k, settings, held=lag)[1], [0], "stilled")) for lag in HELD}
    found["moved"] = {}
    for s in MOVED:
        weights = without(*pair_scores(q, k, settings, s), [], "stilled")
        found["moved"][str(s)] = [previous(weights, lag) for lag in (1, 1 + s)]
    z = [as_pairs(x, settings.layout)[:, FROM:] for x in (q, k)]                                                # (batch, length, pairs), complex
    arrows = z[0].mean(1) * z[1].mean(1).conj() / q.shape[-1] ** 0.5
    found["arrows"] = [arrows.real.T, arrows.imag.T]
    found["fixed"] = [(x.mean(1).abs() ** 2 / (x.abs() ** 2).mean(1)).T for x in z]
    return results.rounded(found)


def as_pairs(x, layout):
    """Channels (..., width) as complex numbers (..., pairs)."""
    x = x.unflatten(-1, (2, -1)).mT if layout == "half" else x.unflatten(-1, (-1, 2))
    return torch.view_as_complex(x.contiguous())


def lesioned(model, heads, pairs, way=stilled):
    """A `turn` for `Llama.read` in which some pairs of some heads, (layer, head), are `circuits.stilled` or `circuits.zeroed`."""
    turn = None
    for layer in sorted({n for n, _ in heads}):
        turn = way(model, list(pairs), layer=layer, heads=[h for n, h in heads if n == layer], turn=turn)
    return turn


def lesions(before, names):
    """What is done to heads in `copying`: {name: (heads, pairs, way)}, of the heads that were chosen, of each of them, of the next ten and of drawn ones."""
    heads = chosen(before, names)
    found = {"none": ((), (), stilled)}
    for title, way in (("stilled", stilled), ("zeroed", zeroed)):
        found |= {f"ten heads, pair {k} {title}": (heads, [k], way) for k in range(4)}
        found |= {f"ten heads, pairs {a}-{b} {title}": (heads, range(a, b + 1), way) for a, b in ((0, 3), (1, 3), (4, 7), (8, 15), (16, 31))}
    found |= {f"head {n}, {h}, pair 0 stilled": ([(n, h)], [0], stilled) for n, h in heads}
    found |= {f"those of layers {title}, pair 0 stilled": ([head for head in heads if head[0] in layers], [0], stilled)
              for title, layers in (("0 to 9", range(10)), ("10 to 15", range(10, 16)), ("16 to 29", range(16, 30)))}
    others = {f"draw {n}": drawn_heads(before, heads, HEADS, 100 + n) for n in DRAWS} | {"next ten": chosen(before, names, 2 * HEADS)[HEADS:]}
    found |= {"the other nine, pair 0 stilled": (heads[1:], [0], stilled), "ten heads, all pairs zeroed": (heads, range(32), zeroed)}
    found |= {f"{name}, {what}": (which, pairs, way) for name, which in others.items()
              for what, pairs, way in (("pair 0 stilled", [0], stilled), ("all pairs zeroed", range(32), zeroed))}
    return found | {f"{name}, pair 0 held at lag {lag}": (which, [0], partial(stilled, lag=lag)) for lag in HELD[1:]
                    for name, which in (("ten heads", heads), ("the first head", heads[:1]))}


@torch.no_grad()
def copying(model, tokens, heads=(), pairs=(), way=stilled):
    """Mean losses of a passage's first and second reading, one right after the other, in nats a token: two tensors (batch,).

    The second reading is counted from its second token on, the first time that there is something to copy.
    """
    length = tokens.shape[1]
    found = losses(model, tokens.repeat(1, 2), turn=lesioned(model, heads, pairs, way))
    return found[:, :length - 1].mean(1), found[:, length:].mean(1)


def chosen(before, names, count=HEADS):
    """The heads that look at the place before most, on the passages they are chosen on: [(layer, head)]."""
    mean = before[[names.index(n) for n in CHOOSING]].mean(0)
    return [tuple(int(i) for i in np.unravel_index(at, mean.shape)) for at in np.argsort(-mean, axis=None)[:count]]


def drawn_heads(before, not_these, count, seed):
    """Other heads, at random."""
    rest = [(n, h) for n in range(before.shape[1]) for h in range(before.shape[2]) if (n, h) not in not_these]
    return [rest[i] for i in sorted(np.random.default_rng(seed).choice(len(rest), count, replace=False))]


def figure_data(stored=None):
    """What the figure score-waves holds of SmolLM2's heads: the mean arrows of each pair, in thousandths, {"layer, head": [real, imaginary]}."""
    heads = (results.load("position_in_circuits") if stored is None else stored)["smollm2"]["heads"]
    best = [name for name, found in heads.items() if found["kind"] == "previous"][:3]
    return {name: [[round(1000 * float(np.mean(pair))) for pair in part] for part in heads[name]["arrows"]] for name in best}


# ---- the stored run --------------------------------------------------------------------------------

def _toys(stored, keep):
    for layers, seeds, methods in ((2, SEEDS, METHODS), (1, SEEDS[:3], ["rotary"])):
        for method in methods:
            for seed in seeds:
                name = f"{method}/{layers}/{seed}"
                if name in stored:
                    continue
                model, seen = learn(method, seed, layers=layers, progress=False)
                row = {"steps": [step for step, _ in seen], **{key: [found[key] for _, found in seen] for key in seen[0][1]}}
                if method != "learned":
                    tables = content_scores(model)
                    row["shares"] = [{k: round(v, 6) for k, v in shares(s).items()} for s in tables]
                    row["own"] = results.rounded([own(s) for s in tables])
                if layers == 2 and method in ("rotary", "alibi", "t5"):
                    row["reduced"] = reduced(model, int(np.argmax(row["previous"][-1][0])), draw(TEST, 9000))
                stored[name] = row
                last = seen[-1][1]
                print(name, "right", last["right"], "previous", last["previous"], "induction", last["induction"], flush=True)
                keep()


def _real(stored, keep):
    model, tokenizer = open_llama(), pretrained.open_tokenizer(pretrained.SMOLLM2)
    texts = passages(tokenizer, model.settings.vocabulary)
    names = list(texts)
    if "before" not in stored:
        both = [masses(model, tokens[None]) for tokens in texts.values()]
        stored |= {"passages": names, "chosen on": list(CHOOSING), **{key: results.rounded([found[n][0] for found in both])
                                                                     for n, key in enumerate(("before", "first"))}}
        print("masses of all heads on", len(names), "passages", flush=True)
        keep()
    if "anchors" not in stored:
        stored["anchors"] = [anchors(model, tokens[None]) for tokens in texts.values()]
        stored["anchor tokens"] = [tokenizer.decode([int(tokens[found[REST][0]])]) for tokens, found in zip(texts.values(), stored["anchors"])]
        print("anchors", [found[REST] for found in stored["anchors"]], flush=True)
        keep()
    if "resting" not in stored:
        stored["resting"] = resting(model, texts, tokenizer)
        print("resting", stored["resting"], flush=True)
        keep()
    before = np.array(stored["before"])
    heads = chosen(before, names)
    others = drawn_heads(before, heads, OTHERS, 0)
    stored.setdefault("heads", {})
    measured = [n for n in names if n not in CHOOSING]
    todo = [h for h in heads + others if f"{h[0]}, {h[1]}" not in stored["heads"]]
    if todo:
        found = [queries_and_keys(model, texts[n][None], todo) for n in measured]
    for head in todo:
        rows = [of_one_head(*f[head], model.settings) for f in found]
        stored["heads"][f"{head[0]}, {head[1]}"] = {"kind": "previous" if head in heads else "other", **_together(rows)}
        print("head", head, "mass before", np.mean([r["whole"] for r in rows]).round(3), flush=True)
        keep()
    stored.setdefault("copying", {})
    tokens = torch.stack([texts[n][:COPIED] for n in measured if n.startswith("random")])
    for name, how in lesions(before, names).items():
        if name not in stored["copying"]:
            both = [copying(model, t[None], *how) for t in tokens]
            stored["copying"][name] = results.rounded({key: torch.cat(loss) for key, loss in zip(("first", "second"), zip(*both))})
            print("first and second reading,", name, *(np.mean(loss).round(3) for loss in stored["copying"][name].values()), flush=True)
            keep()


def _together(rows):
    """Lists of one passage each, by the same keys, to one list of all passages."""
    if isinstance(rows[0], dict):
        return {key: _together([r[key] for r in rows]) for key in rows[0]}
    if isinstance(rows[0][0], list):
        return [_together([r[i] for r in rows]) for i in range(len(rows[0]))]
    return [v for r in rows for v in r]


@one_thread()
def main():
    stored = results.stored("position_in_circuits")
    toys, real = stored.get("toys", {}), stored.get("smollm2", {})

    def keep():
        results.store("position_in_circuits", {
            "what": f"toys: encoding/layers/seed; {STEPS} steps of {BATCH} sequences of {LENGTH} tokens ({SYMBOLS} kinds) that repeat with periods {PERIODS[0]} to {PERIODS[1]}. By step: "
                    "share of right answers; for each layer and head the mean weight on the place before, on induction (after earlier occurrences), and on the "
                    f"first place for queries from {LATE} on. shares: variance of the first layer's scores, for each head; own: score of a token with itself, less that with others; reduced: right answers, and mass on the place before, when the first layer's previous-token head scores by some parts alone. smollm2: before, first: mean weight of "
                    f"each passage, layer and head on the place before and on the first place, queries from {FROM} on. heads: on passages they were not chosen on; "
                    f"pairs stilled or zeroed at that head alone; moves: total variation; near: share of lag 1 among the {NEAR} nearest keys. copying: losses of the first and the second reading of random tokens, nats a token. anchors: of each passage and layer the place that all heads weigh most, and how much; resting: see there.",
            "toys": toys, "smollm2": real}, command="python -m poslib.lab.position_in_circuits", seeds=SEEDS)

    if pretrained.installed(pretrained.SMOLLM2):
        _real(real, keep)
    _toys(toys, keep)


if __name__ == "__main__":
    results.put_into_figure("score-waves", figure_data()) if "--figure" in sys.argv[1:] else main()
