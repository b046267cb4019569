"""A Llama that can be looked into, and whose positions can be replaced.

Touvron et al. 2023 (arXiv 2302.13971, section 2.2; keys and values shared by groups of heads: 2307.09288): before attention and
before the MLP the stream is divided by its root mean square; queries and keys turn with their position (`poslib.rotary`);
attention is that of `poslib.attention`.

Nothing is kept between calls: what a call reads is in its arguments, the cache too.
"""

from __future__ import annotations

from typing import NamedTuple

from poslib import _arrays as arrays
from poslib.attention import causal_mask, merge_heads, scores, softmax, split_heads
from poslib.lab import pretrained
from poslib.lab._torch import torch
from poslib.rotary import rotate

functional = torch.nn.functional

__all__ = ["Cache", "Llama", "Reading", "Rotary", "greedy", "losses", "open_llama", "rms_normed"]

KEPT = ("rotated", "raw")


class Rotary(NamedTuple):
    """How a model turns its queries and keys: the usual `turn` of `Llama.read`.

    Parameters
    ----------
    layout : {"half", "interleaved"}
    base : float
    frequencies : float64 numpy array, shape (head width/2,), optional
        In place of those that `base` gives.
    factor : float
        On each turned query and key, so that scores get its square (YaRN's temperature, for example).
    """

    layout: str
    base: float = 10000.0
    frequencies: object = None
    factor: float = 1.0

    def __call__(self, x, positions, layer, which):
        """x of shape (batch, heads, length, head width), turned to positions (length,) or (batch, length)."""
        turned = rotate(x, positions, layout=self.layout, base=self.base, frequencies=self.frequencies)
        return turned if self.factor == 1 else turned * self.factor


class Cache(NamedTuple):
    """What was read, for the next call: `Llama.read` makes it, and changes none.

    `kept` says whether keys are "rotated" or "raw"; keys and values have a tensor (batch, kv heads, length, head width) for each
    layer; positions (length,) or (batch, length); texts (batch, length) or None; `counted` says that positions were not given.
    """

    kept: str
    keys: tuple
    values: tuple
    positions: torch.Tensor
    texts: torch.Tensor | None
    counted: bool


class Reading(NamedTuple):
    """States of the last layer, normed, (batch, length, width); and the cache, or None."""

    states: torch.Tensor
    cache: Cache | None


class Llama:
    """A decoder with RMSNorm, rotary positions, shared keys and a gated MLP.

    Parameters
    ----------
    weights : mapping
        Arrays or tensors by the names and shapes of `poslib.lab.pretrained.shapes`.
    settings : poslib.lab.pretrained.Settings
    dtype : torch.dtype
        float32, or float64 to tell round-off from mistakes.

    Raises
    ------
    ValueError
        For a weight that is missing, has another shape or another name.
    """

    def __init__(self, weights, settings, *, dtype=torch.float32):
        if dtype not in (torch.float32, torch.float64):
            raise ValueError(f"dtype is {dtype}; allowed are torch.float32 and torch.float64")
        wanted = pretrained.shapes(settings)
        for name, shape in wanted.items():
            if name not in weights or tuple(weights[name].shape) != shape:
                found = f"shape {tuple(weights[name].shape)}" if name in weights else "none"
                raise ValueError(f"weights has {found} for {name!r}; the settings ask for {shape}")
        if rest := sorted(set(weights) - set(wanted)):
            raise ValueError(f"weights has {rest[0]!r}, which the settings do not ask for")
        self.settings = settings
        self.weights = {name: torch.as_tensor(w).detach().to(dtype) for name, w in weights.items()}
        self.turn = Rotary(settings.layout, settings.base)

    def __call__(self, tokens, positions=None, **how):
        """Logits at every place, shape (batch, length, vocabulary); arguments as for `read`."""
        return self.logits(self.read(tokens, positions, **how).states)

    def logits(self, states):
        """Logits of states (..., width) that `read` gave."""
        return functional.linear(states, self.weights["embedding" if self.settings.tied else "head"])

    def read(self, tokens, positions=None, *, turn=None, texts=None, mask=None, cache=None, keep=None, look=None):
        """States at every place.

        Parameters
        ----------
        tokens : integer tensor, shape (batch, length)
        positions : integer tensor, shape (length,) or (batch, length), optional
            Position ids, any; they decide how queries and keys turn, not who sees whom.  Unless given, the number of earlier
            places of the same text.
        turn : callable, optional
            ``turn(x, positions, layer, which)`` with x queries (batch, heads, length, head width) and which "q", or keys (batch, kv
            heads, …) and which "k", gives them turned; for keys it may give one for each head.  `Rotary` with the settings' base
            and layout unless given.
        texts : integer or bool tensor, shape (batch, length), optional
            Which text each place belongs to: a place sees its own text alone.  For texts packed in a row their numbers; for padding
            on either side a mask that is True where a token stands (the padding is then a text that no token sees).
        mask : bool tensor, optional
            True where a query may look besides; broadcastable to (batch, heads, length, keys).
        cache : Cache, optional
            What stands before; its keys come first.
        keep : {"rotated", "raw"}, optional
            Make a cache, with keys turned once, when they are read, or turned anew in every call.  With "rotated" a `turn` that
            changes from call to call mixes keys of different ones.  What `cache` says, if that is given.
        look : callable, optional
            ``look(layer, site, x)`` is shown each tensor on its way, and may return another in its place.  Sites: "stream" (batch, length, width),
            before each layer and, as layer `layers`, at the end; "q", "k" and "v", as the layer makes them; "turned_q" and "turned_k", as they are
            scored (keys of the cache too); "scores" and "weights" (batch, heads, length, keys), scores without mask; "heads" (batch, heads,
            length, head width).

        Returns
        -------
        Reading

        Raises
        ------
        TypeError, ValueError
            Naming the argument, its value, and what is allowed.
        """
        s, w = self.settings, self.weights
        turn = self.turn if turn is None else turn
        at = (lambda layer, site, x: x) if look is None else (lambda layer, site, x: x if (new := look(layer, site, x)) is None else new)
        keep = _kept(keep, cache)
        _check(tokens, s.vocabulary, positions, texts, cache)
        texts = _joined_texts(texts, cache)
        visible = _visible(tokens, texts, cache)
        places = _places(positions, visible, cache, tokens.shape[-1])
        all_places = places if cache is None else _joined(cache.positions, places)
        visible = visible[:, None] if visible.ndim == 3 else visible
        if mask is not None:
            visible = visible & _mask(mask, (tokens.shape[0], s.heads, *visible.shape[-2:]))
        kept = []
        x = w["embedding"][tokens]
        for n in range(s.layers):
            x = at(n, "stream", x)
            h = rms_normed(x, w[f"{n}.attention_norm"], s.epsilon)
            q, k, v = (at(n, name, split_heads(functional.linear(h, w[f"{n}.{name}"]), count)) for name, count in
                       (("q", s.heads), ("k", s.kv_heads), ("v", s.kv_heads)))
            q = at(n, "turned_q", _turned(turn, q, places, n, "q"))
            if keep != "raw":
                k = _turned(turn, k, places, n, "k", s.heads)
            if cache is not None:
                k, v = torch.cat([cache.keys[n], k], 2), torch.cat([cache.values[n], v], 2)
            kept.append((k, v))
            if keep == "raw":
                k = _turned(turn, k, all_places, n, "k", s.heads)
            k = at(n, "turned_k", k)
            k, v = (t.repeat_interleave(s.heads // t.shape[1], 1) for t in (k, v))     # head h reads keys h // (heads / kv heads)
            if look is None:        # the same without weights to look at; a third of the time for 2,048 tokens
                heads = functional.scaled_dot_product_attention(q, k, v, attn_mask=visible)
            else:
                heads = at(n, "heads", at(n, "weights", softmax(at(n, "scores", scores(q, k)), visible)) @ v)
            x = x + functional.linear(merge_heads(heads), w[f"{n}.out"])
            h = rms_normed(x, w[f"{n}.mlp_norm"], s.epsilon)
            x = x + functional.linear(functional.silu(functional.linear(h, w[f"{n}.gate"])) * functional.linear(h, w[f"{n}.up"]), w[f"{n}.down"])
        states = rms_normed(at(s.layers, "stream", x), w["norm"], s.epsilon)
        if keep is None:
            return Reading(states, None)
        return Reading(states, Cache(keep, *zip(*kept), all_places, texts, positions is None))


def open_llama(where=pretrained.SMOLLM2):
    """The Llama of a file, SmolLM2 unless another is given; see `poslib.lab.pretrained.open_model`."""
    model = pretrained.open_model(where)
    return Llama(model.weights, model.settings)


def losses(model, tokens, positions=None, *, chunk=512, **how):
    """Loss of each next token, in nats, shape (batch, length - 1).

    Logits are made for `chunk` places at a time: those of 2,048 tokens would take 400 MB.  Other arguments as for `Llama.read`.
    """
    states = model.read(tokens, positions, **how).states[:, :-1]
    return torch.cat([functional.cross_entropy(model.logits(x).transpose(1, 2), y, reduction="none")
                      for x, y in zip(states.split(chunk, 1), tokens[:, 1:].split(chunk, 1))], 1)


def greedy(model, tokens, count, *, keep="rotated", turn=None):
    """The `count` tokens that follow, each the likeliest, shape (batch, count); read with a cache."""
    found, cache = [], None
    for _ in range(count):
        states, cache = model.read(found[-1] if found else tokens, turn=turn, cache=cache, keep=keep)
        found.append(model.logits(states[:, -1:]).argmax(-1))
    return torch.cat(found, 1) if found else tokens[:, :0]


def rms_normed(x, gain, epsilon):
    """RMSNorm (Zhang & Sennrich 2019, arXiv 1910.07467, equation 4), with epsilon inside the root as Llama has it.

    Parameters
    ----------
    x : tensor, shape (..., width)
    gain : tensor, shape (width,)
    epsilon : float
        Added to the mean square.

    Returns
    -------
    tensor, shape (..., width)
    """
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * gain


def _kept(keep, cache):
    if keep is not None and keep not in KEPT:
        raise ValueError(f"keep is {keep!r}; allowed are 'rotated', 'raw' and None")
    if cache is None or keep in (None, cache.kept):
        return keep if cache is None else cache.kept
    raise ValueError(f"keep is {keep!r}, and cache holds {cache.kept} keys; allowed is the same, or None")


def _check(tokens, vocabulary, positions, texts, cache):
    for name, x in (("tokens", tokens), ("positions", positions), ("texts", texts)):
        if x is not None and (not isinstance(x, torch.Tensor) or x.is_floating_point() or x.is_complex()
                              or x.dtype == torch.bool and name != "texts"):
            raise TypeError(f"{name} is {f'a tensor of {x.dtype}' if isinstance(x, torch.Tensor) else f'a {type(x).__name__}'}; "
                            f"allowed are integer{' and bool' if name == 'texts' else ''} tensors")
    if tokens.ndim != 2 or 0 in tokens.shape:
        raise ValueError(f"tokens has shape {tuple(tokens.shape)}; allowed is (batch, length), both at least 1")
    low, high = tokens.min().item(), tokens.max().item()
    if low < 0 or high >= vocabulary:
        raise ValueError(f"tokens holds {low if low < 0 else high}; allowed are 0 to {vocabulary - 1}")
    batch, length = tokens.shape
    if positions is not None and positions.shape not in ((length,), (batch, length)):
        raise ValueError(f"positions has shape {tuple(positions.shape)}; allowed are ({length},) and ({batch}, {length})")
    if texts is not None and texts.shape != tokens.shape:
        raise ValueError(f"texts has shape {tuple(texts.shape)}; allowed is that of tokens, {tuple(tokens.shape)}")
    if cache is None:
        return
    if cache.keys[0].shape[0] != batch:
        raise ValueError(f"tokens has {batch} rows, cache {cache.keys[0].shape[0]}; allowed are as many")
    if (texts is None) != (cache.texts is None):
        raise ValueError(f"texts is {'not given, and cache was read with it' if texts is None else 'given, and cache was read without'}; "
                         "allowed is either in all calls")
    if positions is None and not cache.counted:
        raise ValueError("positions is not given, and cache was read at positions of its own; say where the new tokens stand")


def _mask(mask, shape):
    if not isinstance(mask, torch.Tensor) or mask.dtype != torch.bool:
        raise TypeError(f"mask is {f'a tensor of {mask.dtype}' if isinstance(mask, torch.Tensor) else f'a {type(mask).__name__}'}; "
                        "allowed are bool tensors, True where a query may look")
    arrays.fits("mask", mask.shape, shape)
    return mask


def _turned(turn, x, places, layer, which, heads=None):
    """What `turn` makes of queries or keys, in a shape that can be scored."""
    found = turn(x, places, layer, which)
    allowed = [tuple(x.shape)] + ([(x.shape[0], heads, *x.shape[2:])] if heads not in (None, x.shape[1]) else [])
    if not isinstance(found, torch.Tensor) or tuple(found.shape) not in allowed or found.dtype != x.dtype:
        what = f"a tensor {tuple(found.shape)} of {found.dtype}" if isinstance(found, torch.Tensor) else f"a {type(found).__name__}"
        raise ValueError(f"turn made {what} of {which!r}; allowed is {' or '.join(map(str, allowed))}, in {x.dtype}")
    return found


def _joined(before, after):
    """Two tensors (length,) or (batch, length), one after the other."""
    if before.ndim != after.ndim:
        batch = max(before, after, key=lambda t: t.ndim).shape[0]
        before, after = (t.expand(batch, -1) for t in (before, after))
    return torch.cat([before, after], -1)


def _joined_texts(texts, cache):
    texts = None if texts is None else texts.long()
    return texts if texts is None or cache is None else torch.cat([cache.texts, texts], 1)


def _visible(tokens, texts, cache):
    """Who sees whom: (length, keys), or with texts (batch, length, keys)."""
    length = tokens.shape[1]
    keys = length + (0 if cache is None else cache.keys[0].shape[2])
    visible = causal_mask(length, keys, like=tokens)
    return visible if texts is None else visible & (texts[:, keys - length:, None] == texts[:, None])


def _places(positions, visible, cache, length):
    """Positions as given, or the number of earlier places of the same text."""
    return visible.sum(-1) - 1 if positions is None else positions.long()
