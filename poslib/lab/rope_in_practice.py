"""The experiments of chapter 10: what each rounding costs, other libraries, and position in a rotary model's stream.

    python -m poslib.lab.rope_in_practice        writes results/rope_in_practice.json; a few minutes of CPU time

The layout of SmolLM2's weights is found by `poslib.lab.weight_layout`.  The part about other libraries is kept as stored where
one of them is missing; so is the part about SmolLM2.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import random

import numpy as np

from poslib.collisions import rounded
from poslib.lab import pretrained, results
from poslib.lab._torch import torch
from poslib.lab.llama import Llama, losses, open_llama
from poslib.lab.training import one_thread
from poslib.lab.weight_layout import PASSAGES, not_turned, passage
from poslib.rotary import angles, convert, frequencies, rotate

WIDTH, BASE, SEEDS = 128, 10000.0, range(5)
LENGTHS = (4096, 131_072)
LAYERS = (0, 1, 2, 4, 8, 15, 22, 30)
PEERS = ("transformers", "rotary-embedding-torch", "x-transformers")


# ---- a Llama of random weights, in float64 ---------------------------------------------------------

def tiny(seed=0):
    """Three layers, four query heads that share two keys, weights drawn at random: for statements about any weights."""
    settings = pretrained.Settings(vocabulary=64, width=32, inner=48, layers=3, heads=4, kv_heads=2, head_width=8, base=100.0, epsilon=1e-5,
                                   length=64, tied=True, layout="half")
    draw = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in pretrained.shapes(settings).items():
        gain = name.endswith("norm")
        weights[name] = torch.ones(shape) if gain else torch.randn(shape, generator=draw) * (1.0 if name == "embedding" else shape[-1] ** -0.5)
    return Llama(weights, settings, dtype=torch.float64)


def converted(model, target, *, heads=None, kv_heads=None):
    """A Llama whose queries and keys are stored in the layout `target`; other numbers of heads than its own are a mistake to look at."""
    s = model.settings
    count = {"q": heads or s.heads, "k": kv_heads or s.kv_heads}
    weights = {name: convert(w, source=s.layout, target=target, heads=count[name[-1]]) if name.endswith((".q", ".k")) else w
               for name, w in model.weights.items()}
    return Llama(weights, s._replace(layout=target), dtype=weights["embedding"].dtype)


# ---- precision -------------------------------------------------------------------------------------

def usual_angles(p):
    """The angles most libraries form: frequencies 1/base^(2k/d), positions and products in float32."""
    w = 1.0 / BASE ** (torch.arange(0, WIDTH, 2, dtype=torch.float32) / WIDTH)
    return p.float()[:, None] * w


def _turned(x, cos, sin):
    """Halves turned by tables, every product and sum in the dtype of what goes in."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def ways(x, p):
    """bf16 vectors x (rows, WIDTH) turned to positions p (rows,), as bf16: name of what is rounded, result."""
    exact = angles(p, frequencies(WIDTH, BASE))
    usual = usual_angles(p)
    narrow = p.bfloat16()[:, None] * frequencies_bf16()
    bf16 = torch.bfloat16
    return {
        "the result, once": rotate(x, p, layout="half", base=BASE),
        "and the angle, to fp32": _turned(x.float(), usual.cos(), usual.sin()).to(bf16),
        "and the table, to bf16": _turned(x.float(), usual.cos().to(bf16).float(), usual.sin().to(bf16).float()).to(bf16),
        "and each product, to bf16": _turned(x, usual.cos().to(bf16), usual.sin().to(bf16)),
        "everything, to bf16": _turned(x, narrow.cos(), narrow.sin()),
    }, _turned(x.double(), exact.cos(), exact.sin())


def frequencies_bf16():
    return torch.as_tensor(frequencies(WIDTH, BASE)).bfloat16()


def drawn(length, seed, rows=512):
    """bf16 vectors, and positions below `length`."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(rows, WIDTH, generator=draw).bfloat16(), torch.randint(0, length, (rows,), generator=draw)


def right(found, exact):
    """Share of bf16 results that are the bf16 number nearest to the exact one."""
    return float((rounded(exact.numpy(), "bf16") == found.double().numpy()).mean())


def shares(length, seed, rows=512):
    """For each of `ways` the share of correctly rounded results, and the largest error."""
    x, p = drawn(length, seed, rows)
    found, exact = ways(x, p)
    return {name: {"right": right(y, exact), "error": float((y.double() - exact).abs().max())} for name, y in found.items()}


def phase_errors(p):
    """Largest phase error over all pairs, in radians, at positions p (an integer array), for each thing that may be rounded."""
    w = frequencies(WIDTH, BASE)
    exact = p[:, None] * w
    usual = usual_angles(torch.as_tensor(p)).double().numpy()

    def of_table(dtype):
        c, s = rounded(np.cos(exact), dtype), rounded(np.sin(exact), dtype)
        return np.arctan2(s * np.cos(exact) - c * np.sin(exact), c * np.cos(exact) + s * np.sin(exact))

    return {name: np.abs(error).max(axis=1) for name, error in {
        "positions in bf16": rounded(p, "bf16")[:, None] * w - exact,
        "frequencies in bf16": p[:, None] * rounded(w, "bf16") - exact,
        "angles in fp32": usual - exact,
        "tables in bf16": of_table("bf16"),
        "tables in fp32": of_table("fp32"),
    }.items()}


def roundings():
    """Functions that turn x (rows, WIDTH) to positions (rows,) in float64, by what they round."""
    w = frequencies(WIDTH, BASE)
    low = lambda x: rounded(x, "bf16")  # noqa: E731

    def made(angle, table=lambda t: t, result=low):
        def turn(x, p):
            theta = angle(p)
            c, s, (a, b) = table(np.cos(theta)), table(np.sin(theta)), np.split(x, 2, axis=1)
            return result(np.concatenate([a * c - b * s, b * c + a * s], axis=1))
        return turn

    exact = lambda p: p[:, None] * w  # noqa: E731
    fp32 = lambda p: usual_angles(torch.as_tensor(p)).double().numpy()  # noqa: E731
    return {
        "nothing": made(exact, result=lambda y: y),
        "results": made(exact),
        "results, angles to fp32": made(fp32),
        "angles to fp32 alone": made(fp32, result=lambda y: y),
        "results and tables": made(exact, low),
        "results and positions": made(lambda p: low(p)[:, None] * w),
    }


def score_spread(how, draws=64, lag=63, starts=128, length=4096, seed=0):
    """Standard deviation of one score over where its pair stands, root mean square over draws of (q, k); scores q·k/√width.

    `how` turns x (rows, WIDTH) to positions (rows,) and says what is rounded.
    """
    rng = np.random.default_rng(seed)
    p = np.sort(rng.choice(length - lag, starts, replace=False))
    found = []
    for _ in range(draws):
        q, k = rounded(rng.normal(size=(2, WIDTH)), "bf16")
        s = (how(np.tile(q, (starts, 1)), p + lag) * how(np.tile(k, (starts, 1)), p)).sum(1) / WIDTH**0.5
        found.append(s.var())
    return float(np.mean(found) ** 0.5)


# ---- other libraries -------------------------------------------------------------------------------

def _transformers(x):
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb
    config = LlamaConfig(hidden_size=WIDTH, num_attention_heads=1, max_position_embeddings=x.shape[-2], rope_parameters={"rope_type": "default", "rope_theta": BASE})
    cos, sin = LlamaRotaryEmbedding(config)(x, torch.arange(x.shape[-2])[None])
    return apply_rotary_pos_emb(x, x, cos, sin)[0], "half"


def _rotary_embedding_torch(x):
    from rotary_embedding_torch import RotaryEmbedding
    return RotaryEmbedding(WIDTH, theta=BASE).rotate_queries_or_keys(x), "interleaved"


def _x_transformers(x):
    from x_transformers.x_transformers import RotaryEmbedding, apply_rotary_pos_emb
    turn, scale = RotaryEmbedding(WIDTH, base=BASE).forward_from_seq_len(x.shape[-2])
    return apply_rotary_pos_emb(x, turn, scale), "interleaved"


@torch.no_grad()
def peers(length=4096, seed=0):
    """What other libraries make of bf16 queries (1, 1, length, WIDTH) with positions 0, …, length - 1."""
    x = torch.randn(1, 1, length, WIDTH, generator=torch.Generator().manual_seed(seed)).bfloat16()
    p, found = torch.arange(length), {}
    runs = dict(zip(PEERS, (_transformers, _rotary_embedding_torch, _x_transformers)))
    for name, run in ({"poslib": lambda x: (rotate(x, p, layout="half", base=BASE), "half")} | runs).items():
        y, layout = run(x)
        exact = rotate(x.double(), p, layout=layout, base=BASE)
        found[name] = {"version": importlib.metadata.version(name) if name in PEERS else "", "dtype": str(y.dtype).removeprefix("torch."),
                       "right": right(y.bfloat16(), exact), "error": float((y.double() - exact).abs().max())}
        print(name, found[name], flush=True)
    return found


# ---- heads -----------------------------------------------------------------------------------------

def by_heads(model, tokens):
    """Mean loss of a Llama whose weights were converted with the right numbers of heads, and with that of its keys for its queries too."""
    s = model.settings
    return {name: losses(converted(model, "half", heads=count), tokens).mean().item() for name, count in (("right", s.heads), ("wrong", s.kv_heads))}


# ---- position in the stream ------------------------------------------------------------------------

def prose(tokenizer, count, length, seed=0):
    """`count` passages of Python's own manual, tokens (count, length), each from a random place."""
    from pydoc_data import topics
    text, pick = "\n".join(topics.topics[name] for name in sorted(topics.topics)), random.Random(seed)
    starts = [pick.randrange(len(text) - 12 * length) for _ in range(count)]
    return torch.tensor([tokenizer.encode(text[s:s + 12 * length].partition(" ")[2])[:length] for s in starts])


@torch.no_grad()
def streams(model, tokens, layers=LAYERS, turn=None):
    """The residual stream before each of `layers`, (passages, length, width) by layer; `turn` as in `Llama.read`."""
    kept = {n: [] for n in layers}

    def look(layer, site, x):
        if site == "stream" and layer in kept:
            kept[layer].append(x)
    for row in tokens:
        model.read(row[None], turn=turn, look=look)
    return {n: torch.cat(x).double() for n, x in kept.items()}


def readable(x, test, first=8, ridge=1e-2):
    """Share of the variance of the position that a linear map explains on passages `test`, fitted on the others (places from `first` on)."""
    x = x[:, first:]
    x = (x - x.mean((0, 1))) / x.std((0, 1))
    place = torch.arange(first, first + x.shape[1]).double().expand(x.shape[:2])
    place = place - place.mean()
    fit = [i for i in range(len(x)) if i not in test]
    a, b = x[fit].flatten(0, 1), place[fit].flatten()
    w = torch.linalg.solve(a.T @ a + ridge * len(a) * torch.eye(a.shape[1]), a.T @ b)
    left = (x[test] @ w - place[test]).square().mean()
    return float(1 - left / place[test].square().mean())


@torch.no_grad()
def probe(model, tokenizer, passages=40, length=192, turn=None):
    """Can the position be read from the stream of a model?  For each layer five numbers, one for each fifth of the passages left out."""
    states = streams(model, prose(tokenizer, passages, length), turn=turn)
    fold = passages // len(SEEDS)
    return {str(n): [round(readable(x, list(range(s * fold, (s + 1) * fold))), 3) for s in SEEDS] for n, x in states.items()}


@one_thread()
def main():
    stored, found = results.stored("rope_in_practice"), {}
    for length in LENGTHS:
        runs = [shares(length, seed) for seed in SEEDS]
        found[str(length)] = {name: {key: [run[name][key] for run in runs] for key in ("right", "error")} for name in runs[0]}
        for name, row in found[str(length)].items():
            print(length, name, row, flush=True)
    others = [name for name in PEERS if importlib.util.find_spec(name.replace("-", "_")) is None]
    libraries = stored["peers"] if others else peers()
    if pretrained.installed(pretrained.SMOLLM2):
        model, tokenizer = open_llama(), pretrained.open_tokenizer(pretrained.SMOLLM2)
        heads = {name: by_heads(model, passage(name, tokenizer, 256)) for name in PASSAGES}
        print(heads, flush=True)
        read, unturned = probe(model, tokenizer), probe(model, tokenizer, turn=not_turned)
    else:
        heads, read, unturned = (stored[key] for key in ("heads", "probe", "probe_not_turned"))
    print(read, unturned, flush=True)
    results.store("rope_in_practice", {
        "what": f"Vectors of width {WIDTH}, base {BASE:g}. shares: bf16 vectors turned at positions below a length, five draws of 512; the share of results "
                "that are the nearest bf16 number, and the largest error. peers: other libraries on bf16 vectors at positions 0 to 4,095. "
                "heads: SmolLM2 converted to halves, 9 heads of queries taken for 9 or for 3; mean loss in nats a token, 256 tokens of each of five files. "
                "probe: the share of the position's variance that a linear map explains in SmolLM2's stream before each layer, 40 passages of 192 tokens, "
                "each fifth of them left out in turn; probe_not_turned: the same, nothing turned.",
        "shares": found, "peers": libraries, "heads": heads, "probe": read, "probe_not_turned": unturned}, command="python -m poslib.lab.rope_in_practice", seeds=SEEDS)


if __name__ == "__main__":
    main()
