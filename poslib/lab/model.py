"""A small transformer whose only sense of position is the one it is given."""

from __future__ import annotations

from poslib.attention import attention, causal_mask, merge_heads, split_heads
from poslib.lab._torch import torch
from poslib.nn import LearnedPositions, SinusoidalPositions

nn = torch.nn

__all__ = ["POSITIONS", "Transformer"]

POSITIONS = ("none", "learned", "sinusoid")


class Block(nn.Module):
    """One pre-norm layer: attention, then an MLP, each added to the residual stream."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, mask):
        q, k, v = (split_heads(t, self.heads) for t in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        heads, _ = attention(q, k, v, mask=mask)
        x = x + self.out(merge_heads(heads))
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
    position : {"none", "learned", "sinusoid"}
        "learned" adds a trained vector to each place's token, "sinusoid" a fixed one.
    max_length : int, optional
        Rows of the learned table; needed for it.
    position_scale : float
        Standard deviation of the table's first values, or the factor of the sinusoids; the tokens' deviation is 0.5.
    seed : int
        Of the weights; the global generator is left as it was.

    Notes
    -----
    Width 32, two heads and two layers, the smallest used in the book, train in seconds on one core.
    """

    def __init__(self, *, vocabulary, outputs=None, width=32, heads=2, layers=2, causal=False,
                 position="none", max_length=None, position_scale=0.5, seed=0):
        super().__init__()
        if position not in POSITIONS:
            raise ValueError(f"position is {position!r}; allowed are {', '.join(POSITIONS)}")
        if width % heads:
            raise ValueError(f"width is {width}; allowed are multiples of heads = {heads}")
        if position == "learned" and max_length is None:
            raise ValueError("max_length is None; a learned table needs its number of rows")
        self.causal = causal
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.embedding = nn.Embedding(vocabulary, width)
            self.positions, self.position_scale = None, position_scale
            if position == "learned":
                self.positions = LearnedPositions(max_length, width)
            elif position == "sinusoid":
                self.positions = SinusoidalPositions(width)
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
        """What enters the first layer: the tokens' vectors and, added to them, those of the positions."""
        x = self.embedding(tokens)
        if self.positions is None:
            return x
        if positions is None:
            positions = torch.arange(tokens.shape[-1], device=tokens.device)
        code = self.positions(positions)
        return x + (code if isinstance(self.positions, LearnedPositions) else self.position_scale * code.to(x.dtype))

    def hidden(self, tokens, positions=None):
        """States after each layer, what enters the first one before them: layers + 1 tensors of (batch, length, width).

        Parameters
        ----------
        tokens : integer tensor, shape (batch, length)
        positions : integer tensor, shape (length,) or (batch, length), optional
            0, 1, 2, … unless given.
        """
        x = self.embed(tokens, positions)
        mask = causal_mask(tokens.shape[-1], like=x) if self.causal else None
        states = [x]
        for block in self.blocks:
            states.append(block(states[-1], mask))
        return states

    def forward(self, tokens, positions=None):
        """Logits at every place, shape (batch, length, outputs)."""
        return self.head(self.norm(self.hidden(tokens, positions)[-1]))
