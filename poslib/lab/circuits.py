"""Look into a small model or a Llama, change what is there, and take its scores apart.

Everything works on `poslib.lab.model.Transformer` and on `poslib.lab.llama.Llama`, and nothing on a model is changed: a patch lives for one call,
so that to unpatch is to call again without it.  A tensor has a layer and a site (`SITES`): "stream" is the residual stream, "turned_q" and "turned_k" are the rotated
queries and keys; ``look`` of `Llama.read` says the rest.  Position ids are a site without a name: they are the argument `positions`, one row for all texts or one for
each; `placed` gives other ids to some layers, or to queries or keys alone.

    found = record(model, tokens, sites="turned_q", layers=1)
    patch = take(found, 1, "turned_q", to=9, source=4)              # shifted: the query of place 4 at place 9
    logits = patched(model, others, [moved(model, patch, 9 - 4)])   # turned on to where it now stands
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from poslib import _arrays as arrays, rotary
from poslib.attention import scores, split_heads
from poslib.lab import encodings
from poslib.lab._torch import torch
from poslib.lab.llama import Llama, rms_normed
from poslib.lab.llama import Rotary as LlamaRotary
from poslib.lab.model import Transformer

__all__ = ["SITES", "Patch", "Placed", "PositionProbe", "Run", "Without", "family", "first_mass", "identity_probe", "induction_mass", "lag_mass", "moved",
           "normed", "patched", "placed", "position_probe", "record", "ridge", "run", "stilled", "take", "terms", "zeroed"]

SITES = ("stream", "q", "k", "v", "turned_q", "turned_k", "scores", "weights", "heads")
PAIRED = ("scores", "weights")      # a query's place and a key's
Tensor = torch.Tensor
Model = Transformer | Llama
Recorded = Mapping[tuple[int, str], Tensor]
Places = int | Sequence[int] | Tensor | None


class _Sizes(NamedTuple):
    layers: int
    heads: int
    kv_heads: int
    head_width: int


def _sizes(model: Model) -> _Sizes:
    if isinstance(model, Llama):
        s = model.settings
        return _Sizes(s.layers, s.heads, s.kv_heads, s.head_width)
    if isinstance(model, Transformer):
        heads = model.blocks[0].heads
        return _Sizes(len(model.blocks), heads, heads, model.embedding.weight.shape[1] // heads)
    raise TypeError(f"model is a {type(model).__name__}; allowed are a Transformer and a Llama of poslib.lab")


# ---- record and patch ------------------------------------------------------------------------------

class Patch(NamedTuple):
    """Values that replace those of a run.

    Parameters
    ----------
    layer : int
        For "stream" the layer before which it stands; ``layers`` is the end.
    site : str
        One of `SITES`.  A patch of "q" is turned by the run it enters, one of "turned_q" has been turned already; "scores" are
        replaced before the mask, which still hides what it hid.
    value : tensor or float
        (batch, places, width) of "stream"; (batch, heads, places, head width) of "q", "k", "v", "turned_q", "turned_k" and "heads"; (batch,
        heads, places, keys) of "scores" and "weights"; or what broadcasts to it; of the model's dtype.
    to : int, sequence of int, or integer tensor (places,) or (batch, places), optional
        The places that are replaced, each once; those of the queries in "scores" and "weights".  All unless given.
    heads : int or sequence of int, optional
        All unless given.  Of "k" and "v" a Llama has its kv heads; of "turned_k", too, unless the run's `turn` makes keys for each query head.
    keys : as `to`, optional
        The keys' places, in "scores" and "weights".
    """

    layer: int
    site: str
    value: Tensor | float
    to: Places = None
    heads: int | Sequence[int] | None = None
    keys: Places = None


class Run(NamedTuple):
    """Logits (batch, length, outputs), and what was recorded: a dict from (layer, site) to tensors."""

    logits: Tensor
    recorded: dict[tuple[int, str], Tensor]


@torch.no_grad()
def run(model: Model, tokens: Tensor, positions: Tensor | None = None, *, patches: Patch | Iterable[Patch] = (), sites: str | Iterable[str] = (),
        layers: int | Iterable[int] | None = None, **how) -> Run:
    """Read tokens with some values replaced, and keep what is asked for.

    Parameters
    ----------
    model : Transformer or Llama
    tokens : integer tensor, shape (batch, length)
    positions : integer tensor, shape (length,) or (batch, length), optional
        Position ids.
    patches : Patch or iterable of Patch
        Done in their order, each where its site is reached; what comes later is computed from them.
    sites : str or iterable of str
        What to record: of `SITES`, as the run goes on with it, patches and all.
    layers : int or iterable of int, optional
        All unless given; the number of layers itself stands for the last "stream".
    **how
        Further arguments of `Llama.read` (turn, texts, mask, cache) or of `Transformer.hidden` (turn, window).

    Returns
    -------
    Run
        Recorded tensors are detached copies.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Notes
    -----
    A Llama that is looked into computes attention in steps, and its last digits differ from those of a plain call: compare patched runs
    with runs of this function.  A Transformer has the same bits.
    """
    size = _sizes(model)
    patches = (patches,) if isinstance(patches, Patch) else tuple(patches)
    if "look" in how:
        raise ValueError("look is given; allowed are patches and sites")
    for patch in patches:
        _known(patch.site, patch.layer, size)
    sites = (sites,) if isinstance(sites, str) else tuple(sites)
    for site in sites:
        _known(site, 0, size)
    layers = range(size.layers + 1) if layers is None else (layers,) if isinstance(layers, numbers.Integral) else tuple(layers)
    if isinstance(layers, tuple):
        for layer in layers:
            _known("stream" if "stream" in sites or not sites else sites[0], layer, size)
    recorded: dict[tuple[int, str], Tensor] = {}

    def look(layer: int, site: str, x: Tensor) -> Tensor:
        for patch in patches:
            if (patch.layer, patch.site) == (layer, site):
                x = _replaced(x, patch)
        if site in sites and layer in layers:
            recorded[layer, site] = x.detach().clone()
        return x

    return Run(model(tokens, positions, look=look, **how), recorded)


def record(model: Model, tokens: Tensor, positions: Tensor | None = None, *, sites: str | Iterable[str], layers: int | Iterable[int] | None = None,
           **how) -> dict[tuple[int, str], Tensor]:
    """What a run has at some sites: a dict from (layer, site) to tensors; arguments as for `run`."""
    return run(model, tokens, positions, sites=sites, layers=layers, **how).recorded


def patched(model: Model, tokens: Tensor, patches: Patch | Iterable[Patch], positions: Tensor | None = None, **how) -> Tensor:
    """Logits of a run with some values replaced; arguments as for `run`."""
    return run(model, tokens, positions, patches=patches, **how).logits


def take(recorded: Recorded, layer: int, site: str, *, to: Places = None, source: Places = None, heads: int | Sequence[int] | None = None,
         keys: Places = None, source_keys: Places = None) -> Patch:
    """A patch with values of a recorded run.

    Parameters
    ----------
    recorded : mapping
        Of `record`.
    layer, site
        Which of its tensors.
    to, heads, keys
        As in `Patch`.
    source, source_keys : as `to`, optional
        Places of the recorded run whose values go to the places `to`, and `keys`, in their order.  Unless given they are the same (an aligned patch);
        otherwise it is a shifted one.

    Returns
    -------
    Patch
    """
    if (layer, site) not in recorded:
        raise ValueError(f"recorded has no ({layer!r}, {site!r}); it has {', '.join(map(str, recorded)) or 'nothing'}")
    x = recorded[layer, site]
    for name, a, given, b in (("source", source, "to", to), ("source_keys", source_keys, "keys", keys)):
        if a is not None and b is None:
            raise ValueError(f"{name} is given without {given}; allowed are both, or {given} alone")
        if a is not None and _count(a) != _count(b):
            raise ValueError(f"{name} has {_count(a)} places, {given} {_count(b)}; allowed are as many")
    (at, name), (at_keys, name_keys) = ((a, given) if b is None else (b, other) for a, given, b, other in
                                        ((to, "to", source, "source"), (keys, "keys", source_keys, "source_keys")))
    where = _where(x, site, at, heads, at_keys, names=(name, name_keys))
    return Patch(layer, site, x[where], to, heads, keys)


def moved(model: Model, patch: Patch, by: int | Tensor) -> Patch:
    """A patch of turned queries or keys, turned on by `by` positions (one for all places, or one for each): R(by), the repair of a shifted patch.

    With ``by`` the new position ids less the old ones, what is patched is turned as its new place would have turned it.
    """
    if patch.site not in ("turned_q", "turned_k"):
        raise ValueError(f"patch is of {patch.site!r}; allowed are 'turned_q' and 'turned_k'")
    if not isinstance(patch.value, Tensor):
        raise TypeError(f"patch has the value {patch.value!r}; allowed is a tensor")
    by = torch.as_tensor(by)
    rows = patch.value.shape[-2]
    if by.ndim == 0:
        by = by.expand(rows)
    return patch._replace(value=rotary.rotate(patch.value, by, **_rotary(model)))


def _known(site, layer, size):
    if site not in SITES:
        raise ValueError(f"site is {site!r}; allowed are {', '.join(SITES)}")
    most = size.layers - (site != "stream")
    if isinstance(layer, bool) or not isinstance(layer, numbers.Integral) or not 0 <= layer <= most:
        raise ValueError(f"layer is {layer!r}; allowed are 0 to {most} for {site!r}")


def _count(places):
    return torch.atleast_1d(torch.as_tensor(places)).shape[-1]


def _chosen(name, chosen, count, *, batch=None):
    """Numbers 0 to count - 1: a tensor (chosen,), or with `batch` (1, chosen) or (batch, chosen)."""
    found = torch.arange(count) if chosen is None else torch.as_tensor(chosen)
    if found.numel() and (found.is_floating_point() or found.is_complex() or found.dtype == torch.bool):
        raise TypeError(f"{name} is {chosen!r}; allowed are whole numbers")
    if found.ndim > (1 if batch is None else 2) or found.ndim == 2 and found.shape[0] != batch:
        raise ValueError(f"{name} has shape {tuple(found.shape)}; allowed is (n,)" + ("" if batch is None else f" or ({batch}, n): a row for each text"))
    found = found.long()
    if wrong := [n for n in found.flatten().tolist() if not 0 <= n < count]:
        raise ValueError(f"{name} holds {wrong[0]}; allowed are 0 to {count - 1}")
    return found.reshape(-1) if batch is None else found if found.ndim == 2 else found.reshape(1, -1)


def _one(name, chosen, count):
    if isinstance(chosen, bool) or not isinstance(chosen, numbers.Integral) or not 0 <= chosen < count:
        raise ValueError(f"{name} is {chosen!r}; allowed are 0 to {count - 1}")
    return int(chosen)


def _where(x, site, to, heads, keys, names=("to", "keys")):
    """Indices that choose places, heads and keys of a site's tensor."""
    for name, value, sites in (("heads", heads, SITES[1:]), ("keys", keys, PAIRED)):
        if value is not None and site not in sites:
            raise ValueError(f"{name} is {value!r}; allowed is None for {site!r}, which has none")
    batch = torch.arange(x.shape[0])
    rows = _chosen(names[0], to, x.shape[1 if site == "stream" else 2], batch=x.shape[0])
    if site == "stream":
        return batch[:, None], rows
    heads = _chosen("heads", heads, x.shape[1])
    if site not in PAIRED:
        return batch[:, None, None], heads[:, None], rows[:, None]
    return batch[:, None, None, None], heads[:, None, None], rows[:, None, :, None], _chosen(names[1], keys, x.shape[3], batch=x.shape[0])[:, None, None]


def _replaced(x, patch):
    where = _where(x, patch.site, patch.to, patch.heads, patch.keys)
    for name, chosen in zip(("to",) if patch.site == "stream" else ("heads", "to", "keys"), where[1:]):
        rows = chosen.reshape(1 if name == "heads" else chosen.shape[0], -1)
        if any(len(set(row)) < len(row) for row in rows.tolist()):
            raise ValueError(f"{name} is {getattr(patch, name)!r}; allowed is each once")
    value = torch.tensor(float(patch.value), dtype=x.dtype) if isinstance(patch.value, numbers.Real) else patch.value
    if not isinstance(value, Tensor) or value.dtype != x.dtype:
        what = f"a tensor of {value.dtype}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise TypeError(f"value is {what}; allowed are a number and a tensor of {x.dtype}")
    arrays.fits("value", value.shape, x[where].shape)
    new = x.clone()
    new[where] = value
    return new


# ---- turns -----------------------------------------------------------------------------------------

Turn = Callable[[Tensor, Tensor, int, str], Tensor]


class _Encoded(NamedTuple):
    """The turn of an encoding of `poslib.lab.encodings`, in the form that `Llama.read` has it."""

    encoding: encodings.Encoding

    def __call__(self, x, positions, layer, which):
        return self.encoding.turn(x, x, positions)[which == "k"]


def _layout(model):
    """Which channels are a pair, of a model that turns them."""
    _sizes(model)
    if isinstance(model, Llama):
        return model.settings.layout
    if not model.positions.only_turns:
        allowed = " and ".join(e.__name__ for e in encodings.ENCODINGS.values() if e.only_turns)
        raise ValueError(f"model has the encoding {type(model.positions).__name__}; allowed are {allowed}, which turn and do nothing else")
    if model.positions.shift is not None:
        raise ValueError("model has a shift, which no turn of queries and keys makes; allowed is None")
    return "half"


def _rotary(model):
    """Layout and frequencies of a model, as `poslib.rotary.rotate` takes them."""
    layout = _layout(model)
    if isinstance(model, Transformer):
        return {"layout": layout, "frequencies": model.positions.frequencies}
    if not isinstance(model.turn, LlamaRotary):
        raise TypeError(f"model.turn is a {type(model.turn).__name__}; allowed is poslib.lab.llama.Rotary")
    return {"layout": layout, "base": model.turn.base, "frequencies": model.turn.frequencies}


def _turn(model, turn=None):
    return turn if turn is not None else model.turn if isinstance(model, Llama) else _Encoded(model.positions)


class Placed(NamedTuple):
    """A `turn` that gives other position ids to some layers, or to queries or keys alone; see `placed`."""

    turn: Turn
    positions: Tensor
    layers: tuple[int, ...] | None
    which: str

    def __call__(self, x: Tensor, positions: Tensor, layer: int, which: str) -> Tensor:
        here = which in self.which and (self.layers is None or layer in self.layers)
        return self.turn(x, self.positions if here else positions, layer, which)


def placed(model: Model, positions: Tensor, *, layer: int | Sequence[int] | None = None, which: str = "qk", turn: Turn | None = None) -> Placed:
    """A `turn` with other position ids: a patch of them that one layer sees, or its queries or keys alone.

    Parameters
    ----------
    model : Transformer or Llama
        With rotary positions.
    positions : integer tensor, shape (length,) or (batch, length)
    layer : int or sequence of int, optional
        All unless given.
    which : {"qk", "q", "k"}
    turn : callable, optional
        What turns; the model's own unless given.

    Returns
    -------
    Placed
        For the argument `turn` of `run`.
    """
    _layout(model)
    if which not in ("qk", "q", "k"):
        raise ValueError(f"which is {which!r}; allowed are 'qk', 'q' and 'k'")
    return Placed(_turn(model, turn), positions, _layers(layer, _sizes(model)), which)


class Without(NamedTuple):
    """A `turn` in which some pairs of some heads are still, or zero; see `stilled` and `zeroed`."""

    turn: Turn
    layers: tuple[int, ...] | None
    hit: Tensor
    zero: bool
    lag: int = 0

    def __call__(self, x: Tensor, positions: Tensor, layer: int, which: str) -> Tensor:
        turned = self.turn(x, positions, layer, which)
        if self.layers is not None and layer not in self.layers or self.zero and which == "k":
            return turned
        if self.zero:
            return turned.masked_fill(self.hit[:, None], 0)
        still = self.turn(x, torch.full_like(positions, self.lag if which == "q" else 0), layer, which)
        hit = self.hit.unflatten(0, (turned.shape[1], -1))          # the query heads that read each key
        if (hit == hit[:, :1]).all():
            hit = hit[:, 0]
        else:
            turned, still = (t.repeat_interleave(hit.shape[1], 1) for t in (turned, still))
            hit = hit.flatten(0, 1)
        return torch.where(hit[:, None], still, turned)


def stilled(model: Model, pairs: int | Sequence[int], *, layer: int | Sequence[int] | None = None, heads: int | Sequence[int] | None = None,
            turn: Turn | None = None, lag: int = 0) -> Without:
    """A `turn` in which some pairs of channels do not turn: every query and key have them as if one lag lay between them.

    Parameters
    ----------
    model : Transformer or Llama
        With rotary positions.
    pairs : int or sequence of int
        From the fastest, 0, to head width/2 - 1.
    layer : int or sequence of int, optional
        All unless given.
    heads : int or sequence of int, optional
        Query heads; all unless given.  The others of a group keep their keys turned: a Llama is then given keys for each query head.
    turn : callable, optional
        What turns the rest; the model's own unless given.
    lag : int
        At 0 queries and keys have these pairs as the model made them.

    Returns
    -------
    Without
        For the argument `turn` of `run` and of the models.
    """
    if isinstance(lag, bool) or not isinstance(lag, numbers.Integral):
        raise TypeError(f"lag is {lag!r}; allowed are whole numbers")
    return _without(model, pairs, layer, heads, turn, zero=False)._replace(lag=int(lag))


def zeroed(model: Model, pairs: int | Sequence[int], *, layer: int | Sequence[int] | None = None, heads: int | Sequence[int] | None = None,
           turn: Turn | None = None) -> Without:
    """A `turn` in which some pairs of channels add nothing to the scores: queries have zeros there.  Arguments as for `stilled`."""
    return _without(model, pairs, layer, heads, turn, zero=True)


def _without(model, pairs, layer, heads, turn, *, zero):
    size, channels = _sizes(model), _channels(model, pairs)
    hit = torch.zeros(size.heads, size.head_width, dtype=torch.bool)
    hit[_chosen("heads", heads, size.heads)[:, None], channels] = True
    return Without(_turn(model, turn), _layers(layer, size), hit, zero)


def _layers(layer, size):
    return None if layer is None else tuple(_chosen("layer", layer, size.layers).tolist())


def _channels(model, pairs):
    """The channels of some pairs of a head."""
    layout, count = _layout(model), _sizes(model).head_width // 2
    pairs = _chosen("pairs", pairs, count)
    return torch.cat([pairs, pairs + count] if layout == "half" else [2 * pairs, 2 * pairs + 1])


# ---- scores taken apart ----------------------------------------------------------------------------

@torch.no_grad()
def terms(model: Model, tokens: Tensor, layer: int, head: int | None = None, positions: Tensor | None = None, **how) -> dict[str, Tensor]:
    """The scaled scores of a layer, before the mask, as a sum of terms with names.

    Parameters
    ----------
    model : Transformer or Llama
    tokens : integer tensor, shape (batch, length)
    layer : int
    head : int, optional
        A query head; all unless given.
    positions : integer tensor, optional
    **how
        As for `run`.

    Returns
    -------
    dict from names to tensors, shape (batch, heads, length, length), or (batch, length, length) for one head
        They add up to what `record` has as "scores".

        - Rotary, p-RoPE and xPos: "pair 0", "pair 1", …, what each pair of channels adds ("shift", too, if the encoding has one).
        - ALiBi, T5 and KERPLE: "content", queries times keys, and "position", the bias.
        - Shaw: "content", and "query-position", queries times the vectors of lags.
        - Learned and sinusoidal tables, at layer 0 alone: "content-content", "content-position", "position-content" and "position-position", the query's part
          first.
        - No encoding: "content".

    Notes
    -----
    Queries and keys are linear in the normed state, but LayerNorm is not linear in token plus position: its deviation depends on both.  Here
    the deviation of each place is frozen to that of the run (epsilon inside); the mean is subtracted from both parts, and the gain multiplies both.
    LayerNorm's bias, which belongs to neither, counts as content; so "position-position" is not what a run without tokens would have.  Behind layer 0 the stream holds
    what attention and MLPs made of both, and no such split exists; asking for one is an error.
    """
    size = _sizes(model)
    _known("scores", layer, size)
    head = None if head is None else _one("head", head, size.heads)
    found = record(model, tokens, positions, sites=("stream", "q", "k", "turned_q", "turned_k"), layers=layer, **how)
    q, k = (found[layer, f"turned_{name}"] for name in "qk")
    parts: dict[str, Tensor] = {}
    if isinstance(model, Llama):
        parts = _pairs(model, q, k)
    else:
        encoding = model.positions
        place = torch.arange(tokens.shape[-1]) if positions is None else positions
        if isinstance(encoding, encodings.Rotary):
            parts = _pairs(model, q, k)
            own = "shift"
        elif isinstance(encoding, (encodings.Learned, encodings.Sinusoid)):
            parts, own = _absolute(model, tokens, place, layer, found[0, "stream"] if layer == 0 else None), "query-position"
        else:
            parts, own = {"content": scores(q, k)}, "query-position"
        for name, extra in (("position", encoding.bias(place, q.dtype)), (own, encoding.scores(q, k, place, layer))):
            if extra is not None:
                parts[name] = extra.expand(q.shape[0], -1, -1, -1).detach().clone()
    if head is None:
        return parts
    return {name: x[:, head] for name, x in parts.items()}


def _pairs(model, q, k):
    """What each pair of channels of turned queries and keys adds to the scaled scores."""
    width = q.shape[-1]
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    layout = model.settings.layout if isinstance(model, Llama) else "half"
    split = (lambda x: x.unflatten(-1, (2, -1)).transpose(-1, -2)) if layout == "half" else (lambda x: x.unflatten(-1, (-1, 2)))
    q, k = split(q), split(k)
    return {f"pair {n}": q[..., n, :] @ k[..., n, :].mT / math.sqrt(width) for n in range(width // 2)}


def _absolute(model, tokens, positions, layer, x):
    """Content and position of queries times those of keys, at layer 0."""
    if layer:
        raise ValueError(f"layer is {layer}; allowed is 0 for {type(model.positions).__name__}, whose vectors are mixed with the tokens' behind it")
    block = model.blocks[0]
    norm = block.norm1
    deviation = (x.var(-1, correction=0, keepdim=True) + norm.eps).sqrt()
    token, code = model.embedding(tokens), model.code(positions).expand_as(x)
    parts = {name: (y - y.mean(-1, keepdim=True)) / deviation * norm.weight for name, y in (("content", token), ("position", code))}
    parts["content"] = parts["content"] + norm.bias
    made = {name: [split_heads(t, block.heads) for t in block.qkv(y).chunk(3, -1)[:2]] for name, y in parts.items()}
    return {f"{a}-{b}": scores(made[a][0], made[b][1]) for a in made for b in made}


@torch.no_grad()
def normed(model: Model, layer: int, stream: Tensor) -> Tensor:
    """What a layer's queries, keys and values are made of: the stream (..., width), normed."""
    _known("q", layer, _sizes(model))
    if isinstance(model, Llama):
        return rms_normed(stream, model.weights[f"{layer}.attention_norm"], model.settings.epsilon)
    return model.blocks[layer].norm1(stream)


@torch.no_grad()
def family(model: Model, layer: int, head: int, lag: int | Sequence[int] | Tensor, *, pairs: int | Sequence[int] | None = None,
           turn: Turn | None = None) -> Tensor:
    """The matrix of a head's scores at a lag: M(lag) = W_Qᵀ R(-lag) W_K / sqrt(head width).

    With x_i and x_j the `normed` states of a query at position i and a key at j, the scaled score is x_iᵀ M(i - j) x_j: a family of bilinear forms, one
    for each lag, where a head without rotation has a single one.

    Parameters
    ----------
    model : Transformer or Llama
        With rotary positions.
    layer, head : int
        A query head; a Llama's reads the key head of its group.
    lag : int, sequence of int, or integer tensor
        i - j: positive where the key came first.
    pairs : int or sequence of int, optional
        Only what these pairs of channels add; the sum over all single pairs is the whole.
    turn : callable, optional
        Such as `stilled` makes, in place of the model's own; one whose scores depend on the lag alone.

    Returns
    -------
    float64 tensor, shape (width, width), or (…, width, width) for lags of shape (…)
    """
    size = _sizes(model)
    _known("q", layer, size)
    head = _one("head", head, size.heads)
    channels = _channels(model, pairs)
    if isinstance(model, Llama):
        q, k = (model.weights[f"{layer}.{name}"] for name in "qk")
    else:
        q, k, _ = model.blocks[layer].qkv.weight.chunk(3)
    lags = torch.as_tensor(lag)
    if lags.is_floating_point() or lags.dtype == torch.bool:
        raise TypeError(f"lag is {lag!r}; allowed are whole numbers")
    turn = _turn(model, turn)
    q, k = (split_heads(w.double().T, count) for w, count in ((q, size.heads), (k, size.kv_heads)))           # (heads, width, head width)
    width = q.shape[1]
    q = turn(q[None], torch.zeros(width, dtype=torch.int64), layer, "q")[0, head]
    found = []
    for one in lags.long().flatten().tolist():
        turned = turn(k[None], torch.full((width,), -one), layer, "k")[0]
        turned = turned[head // (size.heads // turned.shape[0])]
        found.append(q[:, channels] @ turned[:, channels].T / math.sqrt(size.head_width))
    return torch.stack(found).reshape(*lags.shape, width, width) if found else q.new_zeros(*lags.shape, width, width)


# ---- where a head looks ----------------------------------------------------------------------------

def lag_mass(weights: Tensor, lag: int = 1, start: int = 0, *, each: bool = False) -> Tensor:
    """Mean weight on the place `lag` before the query's own; 1 is the previous token.

    Parameters
    ----------
    weights : tensor, shape (batch, heads, length, length)
        As recorded at "weights".  Weights that are even over what a mask shows give the value of chance.
    lag : int
        0 to length - 1.
    start : int
        The first query that counts, 0 to length - 1; one before place `lag` has no such place, and does not count either way.
    each : bool
        One value for each text, in place of the mean over all.

    Returns
    -------
    float64 tensor, shape (heads,), or (batch, heads) with `each`
        Over all queries from `start` on that have such a place.
    """
    _square(weights)
    lag, start = (_one(name, value, weights.shape[-1]) for name, value in (("lag", lag), ("start", start)))
    return _mean(weights.diagonal(-lag, -2, -1)[..., max(start - lag, 0):], each)


def first_mass(weights: Tensor, start: int = 1, *, each: bool = False) -> Tensor:
    """Mean weight on the first place, over the queries from `start` on (a causal query 0 sees nothing else): float64, as `lag_mass` gives it."""
    _square(weights)
    start = _one("start", start, weights.shape[-1])
    return _mean(weights[:, :, start:, 0], each)


def _mean(found, each):
    """Over queries, of (batch, heads, queries), and over texts unless each is asked for."""
    return found.double().mean(-1 if each else (0, 2))


def induction_mass(weights: Tensor, tokens: Tensor) -> Tensor:
    """Mean weight on the places behind earlier occurrences of the query's token.

    Parameters
    ----------
    weights : tensor, shape (batch, heads, length, length)
    tokens : integer tensor, shape (batch, length)

    Returns
    -------
    float64 tensor, shape (heads,)
        Over all queries whose token occurred before; the weights on all places behind such an occurrence are added (for a token that
        stands twice in a row that place is the query's own).  NaN where no token comes twice.
    """
    _square(weights)
    if tokens.shape != (weights.shape[0], weights.shape[-1]):
        raise ValueError(f"tokens has shape {tuple(tokens.shape)}; allowed is {(weights.shape[0], weights.shape[-1])}")
    same = (tokens[:, :, None] == tokens[:, None]).tril(-1)
    behind = torch.nn.functional.pad(same[:, :, :-1], (1, 0))
    mass = (weights.double() * behind[:, None]).sum(-1)
    asked = same.any(-1)
    return (mass * asked[:, None]).sum((0, 2)) / asked.sum()


def _square(weights):
    if weights.ndim != 4 or weights.shape[-1] != weights.shape[-2]:
        raise ValueError(f"weights has shape {tuple(weights.shape)}; allowed is (batch, heads, length, length)")


# ---- probes ----------------------------------------------------------------------------------------

class PositionProbe(NamedTuple):
    """What a linear map of states says of positions it was not fitted to.

    `r2`: share of their variance that a ridge regression explains; `off`: mean distance of its answer; `nearest`: share of its answers that are right
    when rounded; `exact`: share of right answers of a ridge classifier with one output for each position.
    """

    r2: float
    off: float
    nearest: float
    exact: float


def ridge(train_states, train_targets, states, strength: float = 1e-3) -> np.ndarray:
    """Answers of a ridge regression, in closed form.

    Parameters
    ----------
    train_states, states : arrays or tensors, shape (..., width)
    train_targets : array or tensor, shape (..., outputs)
    strength : float, above 0
        Of the penalty, in units of the number of rows.  States and targets are centred, and states scaled to deviation 1, by those of the training.

    Returns
    -------
    float64 numpy array, shape (rows, outputs)
    """
    if not strength > 0:
        raise ValueError(f"strength is {strength!r}; allowed is above 0")
    x, y, new = (_rows(t) for t in (train_states, train_targets, states))
    if len(x) != len(y) or x.shape[1] != new.shape[1]:
        raise ValueError(f"train_states has {len(x)} rows of {x.shape[1]}, train_targets {len(y)} rows, states rows of {new.shape[1]}; they do not fit")
    mean, deviation, centre = x.mean(0), x.std(0), y.mean(0)
    deviation[deviation <= 1e-9 * np.abs(x).max(0)] = np.inf       # a channel that never changed says nothing, whatever it does later
    x, new = (x - mean) / deviation, (new - mean) / deviation
    w = np.linalg.solve(x.T @ x / len(x) + strength * np.eye(x.shape[1]), x.T @ (y - centre) / len(x))
    return new @ w + centre


def position_probe(train_states, train_positions, states, positions, strength: float = 1e-3) -> PositionProbe:
    """How well positions can be read off states by a linear map.

    The caller splits: whole texts into one part or the other, never the places of one text.

    Parameters
    ----------
    train_states, states : arrays or tensors, shape (..., width)
    train_positions, positions : integer arrays or tensors, shape (...)
    strength : float
        See `ridge`.

    Returns
    -------
    PositionProbe
    """
    at, truth = _labels(train_states, train_positions), _labels(states, positions)
    if truth.min() == truth.max():
        raise ValueError(f"positions are all {truth[0]}; allowed are at least two")
    guess = ridge(train_states, at[:, None], states, strength)[:, 0]
    off = guess - truth
    return PositionProbe(float(1 - (off**2).mean() / truth.var()), float(np.abs(off).mean()), float((np.rint(guess) == truth).mean()),
                         identity_probe(train_states, at, states, truth, strength))


def identity_probe(train_states, train_labels, states, labels, strength: float = 1e-3) -> float:
    """Share of labels (of tokens, say) that a ridge classifier names right; it knows those it was trained on.  Arguments as for `position_probe`."""
    at, truth = _labels(train_states, train_labels), _labels(states, labels)
    known = np.unique(at)
    answers = ridge(train_states, (at[:, None] == known).astype(np.float64), states, strength)
    return float((known[answers.argmax(1)] == truth).mean())


def _rows(x):
    x = x.detach().cpu().numpy() if isinstance(x, Tensor) else np.asarray(x)
    return x.reshape(-1, x.shape[-1]).astype(np.float64)


def _labels(states, labels):
    labels = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if labels.size != math.prod(states.shape[:-1]):
        raise ValueError(f"labels have shape {labels.shape}, states {tuple(states.shape)}; allowed is a label for each state")
    return labels.reshape(-1)
