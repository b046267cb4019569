"""Every way of telling a small model where its tokens stand, behind one interface.

A model calls five hooks: `embed` where tokens become vectors, `bias` once for the scores of all layers, and in each layer
`turn` on queries and keys, `scores` beside theirs, and `mix` beside the weighted sum of the values.  Each encoding
overrides those that it uses; what they are, the functions of `poslib` say.
"""

from __future__ import annotations

from poslib import relative, rotary
from poslib.lab._torch import torch
from poslib.nn import LearnedPositions, SinusoidalPositions, T5Bias

nn = torch.nn

__all__ = ["ENCODINGS", "Encoding", "encoding"]


class Encoding(nn.Module):
    """No position at all, and what the others change.

    All take `positions`, integers of shape (length,) or (batch, length), which queries and keys share.

    Attributes
    ----------
    only_turns : bool
        Whether the encoding turns the pairs of queries and keys by their positions, as `poslib.rotary.rotate` does, and does nothing else but for a
        constant factor: then a query that is turned on is the query at a later place, which `poslib.lab.circuits` relies on.  Such an encoding has
        `frequencies` and a `shift`, as `Rotary` has them; a shift that is set adds what no turn does.
    """

    only_turns = False

    def embed(self, x, positions):
        """Tokens' vectors (batch, length, width), with what is added to them."""
        return x

    def turn(self, q, k, positions):
        """Queries and keys (batch, heads, length, head width), as the scores shall see them."""
        return q, k

    def bias(self, positions, dtype):
        """What is added to the scaled scores (batch, heads, length, length) of every layer, or None."""
        return None

    def scores(self, q, k, positions, layer):
        """What one layer's queries and keys, turned, add to its scaled scores, or None."""
        return None

    def mix(self, weights, positions, layer):
        """What is added to the heads' outputs (batch, heads, length, head width), or None."""
        return None


class Learned(LearnedPositions, Encoding):
    """A trained vector for each position, added to the tokens'."""

    def __init__(self, *, width, max_length, std=0.5, **_):
        if max_length is None:
            raise ValueError("max_length is None; a learned table needs its number of rows")
        super().__init__(max_length, width, std=std)

    def embed(self, x, positions):
        return x + self(positions)


class Sinusoid(SinusoidalPositions, Encoding):
    """Sines and cosines of Vaswani et al. 2017, times a factor, added to the tokens' vectors."""

    def __init__(self, *, width, factor=0.5, base=10000.0, **_):
        super().__init__(width, base=base)
        self.factor = factor

    def embed(self, x, positions):
        return x + self.factor * self(positions, x.dtype)


class Rotary(Encoding):
    """Queries and keys turned by their positions.

    After training `frequencies` may be replaced; so may `factor`, of queries and keys both, and `shift`: angles (pairs, lags) by
    which each pair turns further in the scores of each lag, which no frequencies could.
    """

    only_turns = True

    def __init__(self, *, width, heads, base=10000.0, **_):
        super().__init__()
        self.frequencies = rotary.frequencies(width // heads, base)
        self.factor, self.shift = 1.0, None

    def turn(self, q, k, positions):
        turned = (rotary.rotate(x, positions, layout="half", frequencies=self.frequencies) for x in (q, k))
        return tuple(x if self.factor == 1 else self.factor * x for x in turned)

    def scores(self, q, k, positions, layer):
        return None if self.shift is None else shifted_scores(q, k, self.shift, positions)


class Proportional(Rotary):
    """p-RoPE: of the whole head's frequencies the fastest share, the other pairs stand still."""

    def __init__(self, *, width, heads, share=0.75, base=10000.0, **more):
        super().__init__(width=width, heads=heads, base=base, **more)
        self.frequencies = rotary.proportional_frequencies(width // heads, share, base)


class Xpos(Rotary):
    """Queries and keys turned, and scaled so that each pair's score falls with the lag; for decoders alone."""

    only_turns = False

    def __init__(self, *, width, heads, causal=True, scale_base=512, **more):
        if not causal:
            raise ValueError("causal is False; allowed is True: the scores of xPos would grow toward later keys")
        super().__init__(width=width, heads=heads, **more)
        self.scale_base = scale_base

    def turn(self, q, k, positions):
        return tuple(rotary.xpos(x, positions, role=role, layout="half", frequencies=self.frequencies, scale_base=self.scale_base)
                     for x, role in ((q, "query"), (k, "key")))


def shifted_scores(q, k, shift, positions):
    """What turned queries and keys add to their scaled scores if pair k turns by shift[k, lag] further: Re z_k (exp(i shift) - 1) / sqrt(width).

    Only pairs and lags with a shift cost anything.

    Parameters
    ----------
    q, k : tensors, shape (batch, heads, length, width), pairs in the layout "half"
    shift : float64 tensor, shape (width / 2, lags)
        For the lags 0, 1, 2, …; later ones and negative ones are not shifted.
    positions : integer tensor, shape (length,), consecutive

    Returns
    -------
    tensor, shape (batch, heads, length, length)
    """
    length, pairs = q.shape[-2], q.shape[-1] // 2
    if positions.ndim != 1 or not bool((positions.diff() == 1).all()):
        raise ValueError(f"positions has shape {tuple(positions.shape)}; allowed are consecutive ones, shape (length,)")
    added = q.new_zeros(*q.shape[:-1], length)
    here, lags = (found.nonzero().flatten() for found in ((shift != 0).any(1), (shift != 0).any(0)))
    channels = torch.cat([here, here + pairs])
    q, k = q[..., channels] / (2 * pairs) ** 0.5, k[..., channels]
    crossed = torch.cat(q.tensor_split(2, -1)[::-1], -1)
    cos, sin = torch.cos(shift[here]) - 1, torch.sin(shift[here])
    # the pair (a, b) of q, turned, is (a cos - b sin, b cos + a sin)
    cos, sin = (torch.cat(x).to(q.dtype) for x in ((cos, cos), (-sin, sin)))
    for lag in lags[lags < length].tolist():
        turned = q[..., lag:, :] * cos[:, lag] + crossed[..., lag:, :] * sin[:, lag]
        torch.diagonal(added, -lag, -2, -1).copy_((turned * k[..., :length - lag, :]).sum(-1))
    return added


class Alibi(Encoding):
    """A penalty of slope times lag; the slopes are set, not learned."""

    def __init__(self, *, heads, slopes=None, causal=True, **_):
        super().__init__()
        self.slopes = relative.alibi_slopes(heads) if slopes is None else slopes
        self.symmetric = not causal
        if len(self.slopes) != heads:
            raise ValueError(f"slopes is {slopes!r}; allowed is one for each of {heads} heads")

    def bias(self, positions, dtype):
        slopes = torch.as_tensor(self.slopes, dtype=torch.float64, device=positions.device)
        return relative.alibi_bias(positions, positions, slopes, symmetric=self.symmetric, dtype=dtype)


class T5(T5Bias, Encoding):
    """A trained number for each head and bucket of lags, the same in all layers."""

    def __init__(self, *, heads, buckets=32, max_distance=128, causal=True, std=0.02, **_):
        super().__init__(buckets, heads, max_distance=max_distance, bidirectional=not causal, std=std)

    def bias(self, positions, dtype):
        return self(positions)


class Shaw(Encoding):
    """Trained vectors for each lag up to a clip, for keys and for values; tables of a layer serve all its heads."""

    def __init__(self, *, width, heads, layers, clip=16, std=0.02, **_):
        super().__init__()
        shape = (layers, 2 * clip + 1, width // heads)
        self.keys, self.values = nn.Parameter(torch.empty(shape)), nn.Parameter(torch.empty(shape))
        for table in (self.keys, self.values):
            nn.init.normal_(table, std=std)

    def scores(self, q, k, positions, layer):
        return relative.shaw_scores(q, self.keys[layer], positions, positions)

    def mix(self, weights, positions, layer):
        return relative.shaw_values(weights, self.values[layer], positions, positions)


class Kerple(Encoding):
    """A penalty that grows with the logarithm of the lag; two trained numbers for each head."""

    def __init__(self, *, heads, **_):
        super().__init__()
        self.raw = nn.Parameter(torch.zeros(2, heads))

    def bias(self, positions, dtype):
        r1, r2 = nn.functional.softplus(self.raw)
        return relative.kerple_bias(positions, positions, r1, r2, kind="log", dtype=dtype)


ENCODINGS = {"none": Encoding, "learned": Learned, "sinusoid": Sinusoid, "rotary": Rotary, "alibi": Alibi, "t5": T5, "shaw": Shaw, "kerple": Kerple,
             "xpos": Xpos, "proportional": Proportional}


def encoding(name, **settings):
    """An encoding by its name in `ENCODINGS`.

    Parameters
    ----------
    name : str
    **settings
        width, heads, layers, max_length and causal of the model, and the encoding's own.
    """
    if name not in ENCODINGS:
        raise ValueError(f"position is {name!r}; allowed are {', '.join(ENCODINGS)}")
    return Encoding() if name == "none" else ENCODINGS[name](**settings)
