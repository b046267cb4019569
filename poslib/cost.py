"""What position costs: bytes, FLOPs and kernels of every way to bring it in, the time of a roofline, a cache simulator.

Everything is counted, nothing is measured: closed formulas in whole numbers.  Bytes are those that move between
memory and chip when a kernel loads each of its inputs once and stores its output once; what lies in a cache
between two kernels is not credited.  A FLOP is one addition or multiplication of real numbers; softmax, comparisons
and changes of sign are not counted.  One attention layer, forward, unless it says otherwise.

`simulate` and `walk` count the same loads access by access; ``poslib.lab.traffic`` counts what real torch code moves.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from poslib import _arrays as arrays, _cache
from poslib._cache import Traffic, simulate, walk
from poslib._roofline import SIZES, Cost, Device, Time, roofline

__all__ = ["Attention", "Cost", "DEVICES", "Device", "Step", "Time", "Traffic", "absolute", "attention", "cache_bytes",
           "cache_numbers", "decode", "lag_vectors", "latent_attention", "relative_memory", "relative_steps", "repositioning",
           "roofline", "rotation", "rotation_backward", "scalar_bias", "simulate", "walk"]

# ---- what is described --------------------------------------------------------------------------

_HOPPER = {"fp64": 67e12, "fp32": 67e12, "tf32": 494.7e12, "bf16": 989.4e12, "fp16": 989.4e12, "fp8": 1978.9e12}

#: Data-sheet values, dense (what the sheets print with sparsity is halved), by name: "A100" (SXM, 80 GB), "H100" (SXM),
#: "H200" (SXM), "MI300X".  "fp32" is the rate of ordinary float32 arithmetic, which rotations inside kernels have.
#:
#: :meta hide-value:
DEVICES = {
    "A100": Device("NVIDIA A100 SXM 80 GB", 2.039e12, {"fp64": 19.5e12, "fp32": 19.5e12, "tf32": 156e12, "bf16": 312e12, "fp16": 312e12},
                   40 * 2**20, 80 * 10**9, "NVIDIA A100 data sheet; L2 cache: NVIDIA A100 architecture white paper"),
    "H100": Device("NVIDIA H100 SXM", 3.35e12, _HOPPER, 50 * 2**20, 80 * 10**9,
                   "NVIDIA H100 data sheet; digits and L2 cache: NVIDIA H100 architecture white paper"),
    "H200": Device("NVIDIA H200 SXM", 4.8e12, _HOPPER, 50 * 2**20, 141 * 10**9,
                   "NVIDIA H200 data sheet; L2 cache: that of the H100, whose chip it has"),
    "MI300X": Device("AMD Instinct MI300X", 5.3e12, {"fp64": 163.4e12, "fp32": 163.4e12, "tf32": 653.7e12, "bf16": 1307.4e12,
                                                     "fp16": 1307.4e12, "fp8": 2614.9e12},
                     256 * 2**20, 192 * 10**9, "AMD Instinct MI300X data sheet; Infinity Cache: AMD GPU specifications, ROCm documentation"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attention:
    """Sizes of one attention layer.

    Parameters
    ----------
    heads, head_dim, queries : int, at least 1
        Query heads, width of a head, and queries of each text.
    keys : int
        As many as queries unless given.  The queries are the last of the places: a decoding step has queries=1.
    kv_heads : int, a divisor of heads
        As many as heads (MHA) unless given; 1 is MQA, between lies GQA.
    batch : int, at least 1
    causal : bool
        Query i sees the keys j ≤ i; then keys must be at least queries.
    dtype : str
        Of queries, keys, values and output: "fp64", "fp32", "bf16", "fp16" or "fp8".

    Notes
    -----
    ``dataclasses.replace`` keeps the keys and kv_heads that were filled in: name them too when queries or heads change.

    Examples
    --------
    >>> a = Attention(heads=32, kv_heads=8, head_dim=128, queries=4096)
    >>> a.pairs, a.lags, a.q_bytes // 2**20, a.k_bytes // 2**20
    (8390656, 4096, 32, 8)
    """

    heads: int
    head_dim: int
    queries: int
    keys: int | None = None
    kv_heads: int | None = None
    batch: int = 1
    causal: bool = True
    dtype: str = "bf16"

    def __post_init__(self):
        for name in ("heads", "head_dim", "batch"):
            arrays.whole(name, getattr(self, name), at_least=1)
        keys, _ = _cache.sizes(self.queries, self.keys, (1, 1), self.causal)
        object.__setattr__(self, "keys", keys)
        object.__setattr__(self, "kv_heads", self.heads if self.kv_heads is None else self.kv_heads)
        arrays.whole("kv_heads", self.kv_heads, at_least=1)
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads is {self.kv_heads}; allowed are divisors of heads, {self.heads}")
        _cache.choice("dtype", self.dtype, tuple(SIZES))

    @property
    def size(self):
        """Bytes of one number."""
        return SIZES[self.dtype]

    @property
    def pairs(self):
        """Pairs of a query and a key that it sees, in one head of one text."""
        hidden = self.queries * (self.queries - 1) // 2 if self.causal else 0
        return self.queries * self.keys - hidden

    @property
    def lags(self):
        """Different lags i - j among those pairs."""
        return self.keys if self.causal else self.queries + self.keys - 1

    @property
    def q_bytes(self):
        """Bytes of the queries, and of the output."""
        return self.batch * self.heads * self.queries * self.head_dim * self.size

    @property
    def k_bytes(self):
        """Bytes of all keys, and of all values."""
        return self.batch * self.kv_heads * self.keys * self.head_dim * self.size

    @property
    def score_bytes(self):
        """Bytes of the matrix of scores of all heads, masked places included."""
        return self.batch * self.heads * self.queries * self.keys * self.size


# ---- attention itself ---------------------------------------------------------------------------

def attention(a, way="fused"):
    """Attention without position.

    Parameters
    ----------
    a : Attention
    way : str
        "fused": one kernel; queries, keys and values are read once, the output is written, scores never leave the chip,
        masked pairs are skipped.  "eager": product, scaling, mask (if causal; a matrix that is added), softmax,
        product, each over the whole matrix of scores.

    Returns
    -------
    Cost

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Notes
    -----
    "fused" is the least that any kernel can move; FlashAttention (Dao et al. 2022) reads keys and values again for each
    tile of queries, mostly from the cache.

    Examples
    --------
    >>> a = Attention(heads=1, head_dim=64, queries=4096)
    >>> attention(a, "eager").bytes // attention(a).bytes
    145
    """
    _attention(a)
    _cache.choice("way", way, ("fused", "eager"))
    per_pair = 4 * a.batch * a.heads * a.head_dim                # one multiplication and addition in each of two products
    if way == "fused":
        return Cost(a.q_bytes + 2 * a.k_bytes, a.q_bytes, per_pair * a.pairs, 1)
    s, mask = a.score_bytes, a.queries * a.keys * a.size
    scores = a.batch * a.heads * a.queries * a.keys
    made = Cost(a.q_bytes + a.k_bytes, s, per_pair // 2 * a.queries * a.keys, 1)
    passes = Cost(s, s, scores, 1) + Cost(s, s, 0, 1)             # scaling, softmax
    masked = Cost(s + mask, s, scores, 1) if a.causal else Cost()
    return made + passes + masked + Cost(s + a.k_bytes, a.q_bytes, per_pair // 2 * a.queries * a.keys, 1)


def latent_attention(a, *, latent, rotary=0, absorbed=True):
    """Attention over a cache of latent vectors (MLA), scores, softmax and weighted sum in one kernel.

    Parameters
    ----------
    a : Attention
        Its head_dim is the width of a head's keys without their rotary part; kv_heads is not used.
    latent : int, at least 1
        Width d_c of the vector that is cached for each token.
    rotary : int, at least 0
        Width d_R of the key that turns and that all heads share.
    absorbed : bool
        The matrix that expands a latent vector to keys is multiplied into the queries, once for each query; possible
        where no rotation stands between the two.  Otherwise the keys of all heads are made anew from the cache.

    Returns
    -------
    Cost
        The products with the queries (absorbed) and with the output are those of other layers and not counted.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Notes
    -----
    DeepSeek-AI 2024, *DeepSeek-V2*, sections 2.1.2 and 2.1.3.

    Examples
    --------
    >>> a = Attention(heads=128, head_dim=128, queries=1, keys=4096)
    >>> latent_attention(a, latent=512, rotary=64, absorbed=False).flops // latent_attention(a, latent=512, rotary=64).flops
    60
    """
    _attention(a)
    arrays.whole("latent", latent, at_least=1)
    arrays.whole("rotary", rotary, at_least=0)
    arrays.flag("absorbed", absorbed)
    rows = a.batch * a.heads
    cache = a.batch * a.keys * (latent + rotary) * a.size
    width = latent if absorbed else a.head_dim
    expanded = 0 if absorbed else 2 * rows * a.keys * latent * a.head_dim
    weights = 0 if absorbed else a.heads * latent * a.head_dim * a.size
    return Cost(rows * a.queries * (width + rotary) * a.size + cache + weights, rows * a.queries * latent * a.size,
                2 * rows * a.pairs * (width + rotary + latent) + expanded, 1)


# ---- absolute, relative -------------------------------------------------------------------------

def absolute(a, way="add"):
    """Adding a position's vector to each token's, at the bottom of the network.

    Parameters
    ----------
    a : Attention
        The width is heads · head_dim; the tokens are the queries.
    way : str
        "add": the vectors of the first places are a slice of the table.  "gather": they are copied by position ids (8 bytes
        each), then added; the ids are one row for the whole batch.

    Returns
    -------
    Cost

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Examples
    --------
    >>> a = Attention(heads=12, head_dim=64, queries=1024, batch=8)
    >>> absolute(a).bytes / a.q_bytes, absolute(a, "gather").launches
    (2.125, 2)
    """
    _attention(a)
    _cache.choice("way", way, ("add", "gather"))
    table = a.queries * a.heads * a.head_dim * a.size
    gathered = Cost(table + 8 * a.queries, table, 0, 1) if way == "gather" else Cost()
    return gathered + Cost(a.q_bytes + table, a.q_bytes, a.q_bytes // a.size, 1)


def scalar_bias(a, way="table", *, dtype="fp32"):
    """What a number for each lag and head adds to fused attention (ALiBi, T5, KERPLE).

    Parameters
    ----------
    a : Attention
    way : str
        "slope": one number for each head, the bias formed in registers (ALiBi).  "table": one for each lag and head.
        "stored": a matrix queries × keys for each head lies in memory; each text of the batch reads the pairs it sees.
        "built": that matrix is written first, from the table.
    dtype : str
        Of the bias.

    Returns
    -------
    Cost

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Examples
    --------
    >>> a = Attention(heads=1, head_dim=128, queries=131072)
    >>> scalar_bias(a).bytes / 2**10, scalar_bias(a, "built", dtype="bf16").written / 2**30
    (512.0, 32.0)
    """
    _attention(a)
    _cache.choice("way", way, ("slope", "table", "stored", "built"))
    _cache.choice("dtype", dtype, tuple(SIZES))
    size, pairs = SIZES[dtype], a.batch * a.heads * a.pairs
    if way == "slope":
        return Cost(a.heads * size, 0, 2 * pairs)
    table = Cost(a.heads * a.lags * size)
    if way == "table":
        return table + Cost(0, 0, pairs)
    built = table + Cost(0, a.heads * a.queries * a.keys * size, 0, 1) if way == "built" else Cost()
    return built + Cost(pairs * size, 0, pairs)


def lag_vectors(a, way, *, tile=(128, 128), clip=None, shared=False, dtype=None):
    """What a learned vector r for each lag adds to fused attention: scores q_i · r_{i-j}.

    Parameters
    ----------
    a : Attention
    way : str
        How the rows of the table come to the pairs.

        "naive"
            Each pair loads its row.
        "tiled"
            Each tile of queries × keys loads the lags that it has: queries + keys - 1 of them, fewer where the mask cuts.
        "banded"
            A tile keeps the lags that it shares with the tile to its left, and loads the others.
        "cached"
            Each row is loaded once: the table of a head fits into the cache.  The least that is possible.
        "clipped"
            Lags beyond ±clip share the last row.  Each tile of queries loads all rows and multiplies by them; pairs
            pick their product.
        "stored"
            The rows of all pairs are copied into a tensor queries × keys × width (ids of 8 bytes), multiplied by the
            queries, and the products read as a bias.
        "skewed"
            One product of the queries with the rows of all lags, read as a bias along its diagonals.
    tile : (int, int)
        Queries and keys of a tile; for "tiled", "banded" and, its first, "clipped".
    clip : int, at least 0
        For "clipped" alone.
    shared : bool
        All heads have one table.  Changes "cached", "stored" and "skewed"; elsewhere each head loads for itself.
    dtype : str
        Of the table; that of `a` unless given.  Products that are stored have the dtype of `a`.

    Returns
    -------
    Cost

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Notes
    -----
    Shaw et al. 2018 (arXiv 1803.02155), section 3.3, for "stored" and "clipped"; Huang et al. 2019 (arXiv 1809.04281),
    section 3.4, for "skewed".  A cache of rows that evicts the least recently used makes these steps by itself (`simulate` and
    `walk`, way "blocked"; as many queries as keys, no mask, tiles that divide them): misses are exactly those of "tiled" from
    queries + keys - 1 rows of a tile on, of "banded" from queries + 2 · keys - 1 on.  The vectors on values that Shaw et al. also have cost the same once more.

    Examples
    --------
    >>> a = Attention(heads=1, head_dim=2048, queries=131072, causal=False)
    >>> [round(lag_vectors(a, way).read / 2**30, 1) for way in ("naive", "tiled", "banded", "cached")]
    [65536.0, 1020.0, 512.5, 1.0]
    """
    _attention(a)
    _cache.choice("way", way, ("naive", "tiled", "banded", "cached", "clipped", "stored", "skewed"))
    _cache.sizes(a.queries, a.keys, tile, a.causal)
    arrays.flag("shared", shared)
    _cache.choice("dtype", a.dtype if dtype is None else dtype, tuple(SIZES))
    if (clip is None) == (way == "clipped"):
        raise ValueError(f"clip is {clip}; allowed is a whole number where way is 'clipped', and None elsewhere (way is {way!r})")
    row = a.head_dim * SIZES[dtype or a.dtype]
    per_head, heads = a.batch * a.heads, 1 if shared else a.heads
    products = Cost(0, 0, (2 * a.head_dim + 1) * per_head * a.pairs)             # … and the addition to the score
    if way == "naive":
        return products + Cost(per_head * a.pairs * row)
    if way == "tiled":
        return products + Cost(per_head * _tiled_rows(a, tile) * row)
    if way == "banded":
        return products + Cost(per_head * _banded_rows(a, tile) * row)
    if way == "cached":
        return products + Cost(heads * a.lags * row)
    bias = per_head * a.pairs                                                    # read and added by the attention kernel
    if way == "clipped":
        arrays.whole("clip", clip, at_least=0)
        rows = min(a.lags, clip + 1 if a.causal else 2 * clip + 1)
        return Cost(per_head * -(-a.queries // tile[0]) * rows * row, 0, 2 * per_head * a.queries * rows * a.head_dim + bias)
    bias = Cost(bias * a.size, 0, bias)
    if way == "stored":
        matrix = a.queries * a.keys
        copied = Cost(heads * matrix * row + 8 * matrix, heads * matrix * row, 0, 1)
        return copied + Cost(a.q_bytes + heads * matrix * row, a.score_bytes, 2 * per_head * matrix * a.head_dim, 1) + bias
    product = per_head * a.queries * a.lags
    return Cost(a.q_bytes + heads * a.lags * row, product * a.size, 2 * product * a.head_dim, 1) + bias


def _tiled_rows(a, tile):
    """Lags of each tile, summed: high + wide - 1, but not those below 0 where the mask hides them."""
    high, wide = tile
    if not a.causal:
        down, across = -(-a.queries // high), -(-a.keys // wide)
        return across * a.queries + down * a.keys - down * across
    total, before = 0, a.keys - a.queries
    for first in range(0, a.queries, high):
        end = min(first + high, a.queries)
        top = before + end                                       # keys 0 … top - 1 are seen by the tile's last query
        whole = max(0, (before + first + 1) // wide)             # tiles of keys that all its queries see
        total += whole * (end - first + wide - 1)
        for left in range(whole * wide, top, wide):
            right = min(left + wide, a.keys)
            total += min(end - first + right - left - 1, top - left)
    return total


def _banded_rows(a, tile):
    """A row of tiles needs the lags from its first pair to its last: high + keys - 1, or those from 0 on."""
    high, before = tile[0], a.keys - a.queries
    if not a.causal:
        return a.queries + -(-a.queries // high) * (a.keys - 1)
    full, rest = divmod(a.queries, high)
    return full * before + high * full * (full + 1) // 2 + (a.keys if rest else 0)


def relative_memory(a, way):
    """Bytes that vectors or numbers for lags occupy, all heads together.

    Parameters
    ----------
    a : Attention
    way : str
        "vectors": a row of head_dim for each pair and head (not for each text).  "rows": one for each lag and head.
        "numbers": one number for each pair and head.  "number": one number for each lag and head.

    Returns
    -------
    int, bytes

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Notes
    -----
    Huang et al. 2019 (arXiv 1809.04281), table 1, has the first two for 2,048 tokens of width 512.

    Examples
    --------
    >>> a = Attention(heads=8, head_dim=64, queries=2048, dtype="fp32")
    >>> round(relative_memory(a, "vectors") / 1e9, 2), round(relative_memory(a, "rows") / 1e6, 2)
    (8.59, 4.19)
    """
    _attention(a)
    _cache.choice("way", way, ("vectors", "rows", "numbers", "number"))
    places = a.queries * a.keys if way in ("vectors", "numbers") else a.lags
    return a.heads * places * (a.head_dim if way in ("vectors", "rows") else 1) * a.size


class Step(NamedTuple):
    """One step of `relative_steps`.

    Parameters
    ----------
    name : str
    bytes : int
        Traffic after this step.
    factor : float
        How many times less than before it.
    why : str

    Examples
    --------
    >>> Step("read only", bytes=50, factor=2.0, why="Nothing is written back.").factor
    2.0
    """

    name: str
    bytes: int
    factor: float
    why: str


def relative_steps(length=131072, width=2048, *, heads=16, tile=(128, 128), dtype="bf16"):
    """From the traffic of loading the whole table for each token, as one text has it, to what is needed.

    Parameters
    ----------
    length : int, at least 1
        Tokens, and relative distances.
    width : int, a multiple of heads
        Of a distance's vector, all heads together.
    heads : int, at least 1
    tile : (int, int)
        Queries and keys of a tile.
    dtype : str

    Returns
    -------
    list of Step
        Bytes of one layer, one text; the first is length² · width · size, read and written.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Examples
    --------
    >>> for step in relative_steps()[:4]: print(step.name, round(step.bytes / 2**30), round(step.factor, 2))
    as written 131072 1.0
    read only 65536 2.0
    tiles 1020 64.25
    bands 512 1.99
    """
    for name, value in (("length", length), ("width", width), ("heads", heads)):
        arrays.whole(name, value, at_least=1)
    if width % heads:
        raise ValueError(f"width is {width}; allowed are multiples of heads, {heads}")
    full = Attention(heads=heads, head_dim=width // heads, queries=length, causal=False, dtype=dtype)
    causal = dataclasses.replace(full, causal=True)
    naive = lag_vectors(full, "naive").read
    table = lag_vectors(causal, "cached").read // heads
    found = [
        ("as written", 2 * naive, "Each token loads the vectors of all distances, and writes as much."),
        ("read only", naive, "Nothing is written back: the vectors are only multiplied."),
        ("tiles", lag_vectors(full, "tiled", tile=tile).read, f"A tile of {tile[0]} × {tile[1]} pairs has {sum(tile) - 1} distances; it loads each once."),
        ("bands", lag_vectors(full, "banded", tile=tile).read, "The next tile to the right shares distances with this one, and keeps them."),
        ("causal", lag_vectors(causal, "banded", tile=tile).read, "Pairs with j > i are not computed."),
        ("cached", lag_vectors(causal, "cached").read, f"One head's table has {table} bytes: where that fits into the cache, memory is read once."),
        ("scalars", scalar_bias(causal).read, "One float32 for each distance and head in place of a vector (ALiBi, T5)."),
    ]
    before = [found[0][1]] + [step[1] for step in found]
    return [Step(name, size, last / size, why) for (name, size, why), last in zip(found, before)]


# ---- rotation -----------------------------------------------------------------------------------

ROTATIONS = ("rotate_half", "float", "complex", "split_cat", "out", "in_place", "fused", "fused_in_place", "in_attention")


def rotation(a, way, *, parts="qk", width=None, tables="fp32", tile=(128, 128)):
    """Rotary embedding of queries and keys.

    Parameters
    ----------
    a : Attention
        As many new keys as queries are turned; "in_attention" turns all keys.
    way : str
        Eager torch, one kernel for each operation (``poslib.lab.traffic`` has the code):

        "rotate_half"
            x·cos + cat(-x₂, x₁)·sin in the dtype of `a`, tables as wide as the head.
        "float"
            The same in float32, between two casts.
        "complex"
            Interleaved pairs as complex64 times a complex table, between two casts.
        "split_cat"
            The two halves of the result, then cat; tables half as wide.
        "out"
            Into memory that is given, by mul and addcmul.
        "in_place"
            Over the input.

        One kernel of its own:

        "fused"
            Reads and writes each once, queries and keys in one launch.
        "fused_in_place"
            The same over the input: channels that do not turn are not touched.
        "in_attention"
            In registers of the attention kernel, after loading: no traffic but the tables.  Keys are turned again for each
            tile of queries and each query head.
    parts : "qk", "q" or "k"
    width : int, even, at most head_dim
        Channels that turn; all unless given.
    tables : str or None
        Dtype of the cosines and sines of the last three ways, which read them once; None where the kernel forms them.
        Eager ways have them in the dtype in which they compute.
    tile : (int, int)
        For "in_attention".

    Returns
    -------
    Cost
        3 FLOPs for each channel that turns: 4 multiplications and 2 additions a pair.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Examples
    --------
    >>> a = Attention(heads=32, kv_heads=8, head_dim=128, queries=8192)
    >>> ways = ("rotate_half", "float", "fused", "in_attention")
    >>> [round(rotation(a, way, tables=None).bytes / a.q_bytes, 2) for way in ways]
    [12.62, 32.75, 2.5, 0.0]
    """
    width = _rotation(a, way, ROTATIONS, parts, width)
    if tables is not None:
        _cache.choice("tables", tables, tuple(SIZES))
    _cache.sizes(a.queries, a.keys, tile, a.causal)
    heads = {"q": a.heads, "k": a.kv_heads}
    table = 0 if tables is None else width * SIZES[tables]                       # cos and sin of one position
    if way == "in_attention":
        visits = {"q": a.queries, "k": _banded_rows(a, tile) if a.causal else -(-a.queries // tile[0]) * a.keys}
        positions = max(a.queries if part == "q" else a.keys for part in parts)
        turned = sum(visits[part] for part in parts)                             # by each query head
        return Cost(positions * table, 0, 3 * a.batch * a.heads * turned * width)
    tokens = a.batch * a.queries
    if way in ("fused", "fused_in_place"):
        moved = tokens * sum(heads[p] for p in parts) * (a.head_dim if way == "fused" else width)
        return Cost(moved * a.size + a.queries * table, moved * a.size, 3 * tokens * sum(heads[p] for p in parts) * width, 1)
    return sum(_eager_rotation(tokens * heads[p] * a.head_dim, tokens * heads[p] * width, a.queries * width, a.size, way) for p in parts)


def _eager_rotation(n, w, t, size, way):
    """One tensor of n numbers, w of which turn, by cos and sin of t numbers each (two halves of t/2)."""
    flops = 3 * w
    if way == "rotate_half":                     # neg ½+½, cat 1+1, mul 1+1, mul 1+1, add 2+1
        turned = Cost((11 * w // 2 + 2 * t) * size, 9 * w // 2 * size, flops, 5)
    elif way == "float":
        turned = _eager_rotation(w, w, t, 4, "rotate_half") + _casts(w, size)
    elif way == "complex":                       # one product of w/2 complex numbers
        turned = Cost((w + t) * 4, w * 4, flops, 1) + _casts(w, size)
    elif way == "split_cat":                     # four mul ½+½, two add or sub 1+½, cat 1+1
        turned = Cost((5 * w + 2 * t) * size, 4 * w * size, flops, 7)
    elif way == "out":                           # two mul ½+½, two addcmul 1+½; the rest is copied
        rest = Cost((n - w) * size, (n - w) * size, 0, 1) if n > w else Cost()
        return Cost((3 * w + 2 * t) * size, 2 * w * size, flops, 4) + rest
    else:                                        # in_place: three mul ½+½, addcmul 1+½, add 1+½
        return Cost((7 * w // 2 + 2 * t) * size, 5 * w // 2 * size, flops, 5)
    return turned + (Cost(n * size, n * size, 0, 1) if n > w else Cost())       # cat with the channels that stay


def _casts(w, size):
    """To float32 and back; float32 itself needs neither."""
    return Cost(w * (size + 4), w * (size + 4), 0, 2) if size != 4 else Cost()


def rotation_backward(a, way, *, parts="qk", tables="fp32"):
    """Gradient of `rotation`: the same turn by the opposite angle, if it is done by one kernel.

    Parameters
    ----------
    a : Attention
    way : str
        "rotate_half" and "split_cat": what autograd makes of the eager forms, of the whole width.  "fused": one kernel for
        both gradients.  "in_attention": before the attention kernel stores them.
    parts : "qk", "q" or "k"
    tables : str or None
        As for `rotation`.

    Returns
    -------
    Cost
        From the gradient of the turned vectors to that of the vectors.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Examples
    --------
    >>> a = Attention(heads=32, head_dim=128, queries=8192)
    >>> ways = ("rotate_half", "split_cat", "fused", "in_attention")
    >>> [rotation_backward(a, way, parts="q", tables=None).bytes / a.q_bytes for way in ways]
    [15.0625, 10.0625, 2.0, 0.0]
    """
    width = _rotation(a, way, ("rotate_half", "split_cat", "fused", "in_attention"), parts, None)
    if tables is not None:
        _cache.choice("tables", tables, tuple(SIZES))
    heads = {"q": a.heads, "k": a.kv_heads}
    if way == "fused":
        return rotation(a, "fused", parts=parts, tables=tables)
    turned = [a.batch * a.queries * heads[part] * width for part in parts]
    t = a.queries * width
    if way == "in_attention":
        return Cost(t * SIZES[tables] if tables else 0, 0, 3 * sum(turned))
    if way == "rotate_half":                     # two mul 1+1, neg ½+½, two slices put into zeros 0+1 and ½+½, two add 2+1
        return sum(Cost((15 * n // 2 + 2 * t) * a.size, 15 * n // 2 * a.size, 4 * n, 9) for n in turned)
    return sum(Cost((11 * n // 2 + 2 * t) * a.size, 9 * n // 2 * a.size, 3 * n, 8) for n in turned)      # split_cat's forward and a neg


# ---- the cache of keys and values ---------------------------------------------------------------

def cache_numbers(kind, *, heads=None, kv_heads=None, head_dim=None, latent=None, rotary=None):
    """Numbers that one token leaves in the cache of one layer.

    Parameters
    ----------
    kind : "mha", "gqa", "mqa" or "mla"
    heads : int
        For "mha": 2 · heads · head_dim.
    kv_heads : int
        For "gqa": 2 · kv_heads · head_dim.  ("mqa" has one: 2 · head_dim.)
    head_dim : int
        For all but "mla".
    latent, rotary : int
        For "mla": latent + rotary, the latent vector d_c and the key d_R that turns.

    Returns
    -------
    int

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Examples
    --------
    >>> mla = cache_numbers("mla", latent=512, rotary=64)
    >>> mla, mla / cache_numbers("mqa", head_dim=128)             # as much as 2.25 groups
    (576, 2.25)
    """
    needs = {"mha": ("heads", "head_dim"), "gqa": ("kv_heads", "head_dim"), "mqa": ("head_dim",), "mla": ("latent", "rotary")}
    _cache.choice("kind", kind, tuple(needs))
    given = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "latent": latent, "rotary": rotary}
    for name, value in given.items():
        if name in needs[kind]:
            arrays.whole(name, value, at_least=0 if name == "rotary" else 1, why=f"kind is {kind!r}")
        elif value is not None:
            raise ValueError(f"{name} is {value!r}; allowed where kind is {kind!r} are {' and '.join(needs[kind])}")
    if kind == "mla":
        return latent + rotary
    return 2 * {"mha": heads, "gqa": kv_heads, "mqa": 1}[kind] * head_dim


def cache_bytes(numbers, *, tokens, layers=1, batch=1, dtype="bf16"):
    """Bytes of a cache: numbers · tokens · layers · batch · size.

    Parameters
    ----------
    numbers : int
        For each token and layer: of `cache_numbers`.
    tokens, layers, batch : int
    dtype : str

    Returns
    -------
    int, bytes

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Examples
    --------
    >>> cache_bytes(cache_numbers("gqa", kv_heads=8, head_dim=128), tokens=131072, layers=32) / 2**30
    16.0
    """
    for name, value in (("numbers", numbers), ("tokens", tokens), ("layers", layers), ("batch", batch)):
        arrays.whole(name, value, at_least=0)
    _cache.choice("dtype", dtype, tuple(SIZES))
    return numbers * tokens * layers * batch * SIZES[dtype]


def decode(a, way="rotated", *, width=None, tables="fp32"):
    """A step of decoding: new keys and values go to the cache, then attention over all of it.

    Parameters
    ----------
    a : Attention
        queries: the new tokens, mostly 1.  keys: all that are seen, the new ones included.
    way : str
        "none": no rotation.  "rotated": the cache holds turned keys; new ones are turned as they are stored, queries as they are
        loaded.  "raw_first": it holds keys as they are, and a kernel turns all of them, into new memory, in each step.
        "raw_inside": it holds keys as they are, and the attention kernel turns them in registers, once for each key head.
    width : int, even, at most head_dim
        Channels that turn; all unless given.
    tables : str or None
        Dtype of cosines and sines, read once for each position that is turned; None where the kernel forms them.

    Returns
    -------
    Cost

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Examples
    --------
    >>> a = Attention(heads=32, kv_heads=8, head_dim=128, queries=1, keys=8192, batch=32)
    >>> [round(decode(a, way).bytes / decode(a, "none").bytes, 2) for way in ("rotated", "raw_first", "raw_inside")]
    [1.0, 2.0, 1.0]
    """
    ways = ("none", "rotated", "raw_first", "raw_inside")
    width = _rotation(a, way, ways, "qk", width)
    if tables is not None:
        _cache.choice("tables", tables, tuple(SIZES))
    new = 2 * a.batch * a.kv_heads * a.queries * a.head_dim * a.size
    plain = Cost(new, new, 0, 1) + attention(a)
    if way == "none":
        return plain
    table = width * SIZES[tables] if tables else 0
    turned_queries = Cost(a.queries * table, 0, 3 * a.batch * a.heads * a.queries * width)
    keys = a.queries if way == "rotated" else a.keys
    turned_keys = Cost(0 if way == "rotated" else keys * table, 0, 3 * a.batch * a.kv_heads * keys * width)
    copied = Cost(a.k_bytes, a.k_bytes, 0, 1) if way == "raw_first" else Cost()
    return plain + turned_queries + turned_keys + copied


def repositioning(a, *, width=None):
    """Turning all cached keys in place by the difference of their positions, when these change after caching.

    Parameters
    ----------
    a : Attention
    width : int, even, at most head_dim
        Channels that turn; all unless given.

    Returns
    -------
    Cost
        All keys move by one distance: there is no table.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Examples
    --------
    >>> a = Attention(heads=32, kv_heads=8, head_dim=128, queries=1, keys=8192)
    >>> repositioning(a).bytes == 2 * a.k_bytes
    True
    """
    width = _rotation(a, "", ("",), "k", width)
    turned = a.batch * a.kv_heads * a.keys * width
    return Cost(turned * a.size, turned * a.size, 3 * turned, 1)


# ---- checks -------------------------------------------------------------------------------------

def _attention(a):
    if not isinstance(a, Attention):
        raise TypeError(f"a is {a!r}; allowed is an Attention, e.g. Attention(heads=32, head_dim=128, queries=4096)")


def _rotation(a, way, ways, parts, width):
    """Checked: the number of channels that turn."""
    _attention(a)
    _cache.choice("way", way, ways)
    _cache.choice("parts", parts, ("qk", "q", "k"))
    name, width = ("head_dim", a.head_dim) if width is None else ("width", width)
    arrays.whole(name, width, at_least=2)
    if width % 2 or width > a.head_dim:
        raise ValueError(f"{name} is {width}; allowed are even numbers up to head_dim, {a.head_dim}: channels turn in pairs")
    return width
