"""A small transformer whose only sense of position is the one it is given."""

from __future__ import annotations

from poslib.attention import attention, causal_mask, merge_heads, scores, softmax, split_heads
from poslib.lab._torch import torch
from poslib.lab.encodings import encoding
from poslib.positions import lags

nn = torch.nn

__all__ = ["Transformer"]


class Block(nn.Module):
    """One pre-norm layer: attention, then an MLP, each added to the residual stream."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, mask, bias, encoding, positions, layer, at=None, turn=None):
        q, k, v = (split_heads(t, self.heads) for t in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        if at is not None:
            q, k, v = at(layer, "q", q), at(layer, "k", k), at(layer, "v", v)
        q, k = encoding.turn(q, k, positions) if turn is None else (turn(q, positions, layer, "q"), turn(k, positions, layer, "k"))
        if at is not None:
            q, k = at(layer, "turned_q", q), at(layer, "turned_k", k)
        own = encoding.scores(q, k, positions, layer)
        bias = bias if own is None else own if bias is None else bias + own
        if at is None:
            heads, weights = attention(q, k, v, mask=mask, bias=bias)
        else:       # the same, in steps
            weights = at(layer, "weights", softmax(at(layer, "scores", scores(q, k, bias=bias)), mask))
            heads = weights @ v
        more = encoding.mix(weights, positions, layer)
        heads = heads if more is None else heads + more
        x = x + self.out(merge_heads(heads if at is None else at(layer, "heads", heads)))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    """An encoder, or with ``causal=True`` a decoder.

    Parameters
    ----------
    vocabulary : int
        Number of tokens.
    outputs : int, optional
        Width of the logits; `vocabulary` unless given.
    width, heads, layers : int
    causal : bool
        Whether a position sees later ones.
    position : str
        One of `poslib.lab.encodings.ENCODINGS`.
    max_length : int, optional
        Rows of the learned table; needed for it.
    position_scale : float
        Standard deviation of the learned table's first values, or the factor of the sinusoids; the tokens' deviation is 0.5.
    settings : dict, optional
        Other settings of the encoding, such as ``{"slopes": (1, 0.25)}`` for "alibi".
    seed : int
        Of the weights; the global generator is left as it was.

    Notes
    -----
    Width 32, two heads and two layers, the smallest used in the book, train in seconds on one core.
    """

    def __init__(self, *, vocabulary, outputs=None, width=32, heads=2, layers=2, causal=False,
                 position="none", max_length=None, position_scale=0.5, settings=None, seed=0):
        super().__init__()
        if width % heads:
            raise ValueError(f"width is {width}; allowed are multiples of heads = {heads}")
        self.causal = causal
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.embedding = nn.Embedding(vocabulary, width)
            self.positions = encoding(position, width=width, heads=heads, layers=layers, causal=causal, max_length=max_length,
                                      **{"learned": {"std": position_scale}, "sinusoid": {"factor": position_scale}}.get(position, {}),
                                      **(settings or {}))
            self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, vocabulary if outputs is None else outputs, bias=False)
            nn.init.normal_(self.embedding.weight, std=0.5)
            if position == "learned":
                nn.init.normal_(self.positions.weight, std=position_scale)
            for block in self.blocks:       # quiet layers at first: the stream starts near the embedding
                for last in (block.out, block.mlp[2]):
                    nn.init.normal_(last.weight, std=0.04 / (2 * layers) ** 0.5)

    def embed(self, tokens, positions=None):
        """What enters the first layer: the tokens' vectors, with what the encoding adds."""
        if positions is None:
            positions = torch.arange(tokens.shape[-1], device=tokens.device)
        return self.positions.embed(self.embedding(tokens), positions)

    def code(self, positions):
        """What the encoding adds to the tokens' vectors at these positions: (..., width), zeros if nothing."""
        width = self.embedding.weight.shape[1]
        return self.positions.embed(self.embedding.weight.new_zeros(*positions.shape, width), positions)

    def hidden(self, tokens, positions=None, *, window=None, look=None, turn=None):
        """States after each layer, what enters the first one before them: layers + 1 tensors of (batch, length, width).

        Parameters
        ----------
        tokens : integer tensor, shape (batch, length)
        positions : integer tensor, shape (length,) or (batch, length), optional
            0, 1, 2, … unless given.
        window : int, optional
            A place sees no key that stands this many places before it, or more.
        look : callable, optional
            ``look(layer, site, x)`` is shown each tensor on its way, and may return another in its place.  Sites, as in
            `poslib.lab.llama.Llama.read`: "stream" (batch, length, width), before each layer and, as layer `layers`, at the end; "q", "k" and
            "v" (batch, heads, length, head width), as the layer makes them; "turned_q" and "turned_k", as they are scored; "scores" (batch,
            heads, length, length), with all that the encoding adds, without mask; "weights"; "heads" (batch, heads, length, head width),
            with what the encoding adds to them.  Numbers are the same, bit by bit, with and without.
        turn : callable, optional
            ``turn(x, positions, layer, which)`` with x queries and which "q", or keys and which "k", gives them turned, in place of the
            encoding; the contract is that of `Llama.read`.
        """
        length = tokens.shape[-1]
        place = torch.arange(length, device=tokens.device)
        positions = place if positions is None else positions
        x = self.embed(tokens, positions)
        mask = causal_mask(length, like=x) if self.causal else None
        if window is not None:
            near = lags(place, place) < window
            mask = near if mask is None else mask & near
        bias = self.positions.bias(positions, x.dtype)
        if look is None:
            at, more = (lambda layer, site, x: x), {} if turn is None else {"turn": turn}
        else:
            at = lambda layer, site, x: x if (new := look(layer, site, x)) is None else new
            more = {"at": at, "turn": turn}
        states = [at(0, "stream", x)]
        for layer, block in enumerate(self.blocks):
            states.append(at(layer + 1, "stream", block(states[-1], mask, bias, self.positions, positions, layer, **more)))
        return states

    def forward(self, tokens, positions=None, **how):
        """Logits at every place, shape (batch, length, outputs); arguments as for `hidden`."""
        return self.head(self.norm(self.hidden(tokens, positions, **how)[-1]))
