"""Relative positions in the scores: ALiBi, T5, Shaw, Transformer-XL, KERPLE, FIRE, and the skew.

Every function takes the positions of the queries and of the keys, so that decoding is the same function:
its row is the row of the whole.  Positions are integers of any sign and order, (length,) or (batch,
length); a token's position is its place in its own text (`poslib.positions` makes them from masks and packed
texts).  The lag is τ = i - j, positive where the key came first.

Biases are (..., heads, queries, keys), ready for ``attention(q, k, v, bias=...)``: they are added after
scaling.  They are computed in float64 and rounded once, to the dtype asked for.  Nothing is cached, no
argument is changed.  Functions take numpy arrays or torch tensors and return the same kind, on the same
device; those that end in `_score_mod` are for torch's ``flex_attention`` and take tensors.
"""

from __future__ import annotations

import math
import numbers

import array_api_compat as api

from poslib import _arrays as arrays, absolute, attention, positions

__all__ = ["alibi_bias", "alibi_score_mod", "alibi_slopes", "fire_bias", "fire_input", "kerple_bias", "shaw_index",
           "shaw_scores", "shaw_values", "skew", "t5_bias", "t5_buckets", "t5_score_mod", "transformer_xl_scores"]

RULES = {
    "paper": "the authors' code, Bloom, MPT and Falcon in Hugging Face, llama.cpp, vLLM, x-transformers",
    "geometric": "2^(-8h/heads) for every head count: attention-gym, MLX before its pull request 3071",
}
KINDS = {"log": math.inf, "power": 2}       # of KERPLE, with the largest r2


# -- ALiBi

def alibi_slopes(heads, rule="paper", *, like=None):
    """Slope of each head's penalty.

    Parameters
    ----------
    heads : int, at least 1
    rule : {"paper", "geometric"}
        The two agree where `heads` is a power of two, and nowhere else.
        "paper": with P the largest power of two up to `heads`, the slopes 2^(-8h/P), h = 1, …, P, then the
        members h = 1, 3, 5, … of the series of 2P heads.  The authors' code, Bloom, MPT and Falcon in Hugging
        Face, llama.cpp, vLLM, x-transformers.
        "geometric": 2^(-8h/heads), h = 1, …, heads.  attention-gym, and MLX before its pull request 3071.
        A model needs the rule it was trained with.
    like : array or tensor, optional
        Decides kind and device of the result; numpy unless given.

    Returns
    -------
    float64, shape (heads,)

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Notes
    -----
    Press et al. 2022 (arXiv 2108.12409), section 3, for powers of two; ``get_slopes`` in the authors' code for
    other head counts.

    Examples
    --------
    >>> alibi_slopes(4)
    array([0.25      , 0.0625    , 0.015625  , 0.00390625])
    >>> alibi_slopes(3), alibi_slopes(3, "geometric").round(4)
    (array([0.0625    , 0.00390625, 0.25      ]), array([0.1575, 0.0248, 0.0039]))
    """
    heads = _whole("heads", heads, at_least=1)
    if not isinstance(rule, str) or rule not in RULES:
        allowed = " and ".join(f"'{name}' ({meaning})" for name, meaning in RULES.items())
        raise ValueError(f"rule is {rule!r}; allowed are {allowed}")
    power = heads if rule == "geometric" else 1 << (heads.bit_length() - 1)
    exponents = [8 * h / power for h in range(1, power + 1)]
    exponents += [4 * (2 * h + 1) / power for h in range(heads - power)]
    xp, device = arrays.namespace(like)
    return xp.asarray([2.0**-e for e in exponents], dtype=xp.float64, device=device)


def alibi_bias(query_positions, key_positions, slopes, *, symmetric=False, dtype=None):
    """Penalty that grows with the lag: -m·(i - j), or -m·|i - j|.

    Parameters
    ----------
    query_positions : integer array or tensor, shape (..., queries)
    key_positions : same kind, shape (..., keys)
        Leading axes broadcast.
    slopes : float32 or float64, shape (heads,)
        Same kind as the positions, or a numpy array (see `alibi_slopes`).  Narrower slopes are refused: they
        were rounded before they arrived here.
    symmetric : bool
        Whether keys that come later are penalised too.  Otherwise their bias is *positive*, and a causal mask
        must hide them.
    dtype : float dtype of the library of the positions, 16 to 64 bits, optional
        float64 unless given.

    Returns
    -------
    Same kind as the positions, shape (..., heads, queries, keys)
        0 where the lag is 0.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Notes
    -----
    Press et al. 2022 (arXiv 2108.12409), section 3; the symmetric form is for attention in both directions.

    -m·(i - j) is m·j plus a constant of its row, which softmax does not see: any row constant is free, under
    any mask, and so a moved origin, as left padding brings it, changes no weight.  (With |i - j| this holds
    only for keys that a causal mask leaves.)  It holds for real numbers.  The key-only form m·j must *not* be
    stored in 16 bits: at slope 1/2 and 8,192 keys bfloat16 gives the last 16 keys the same bias, and the last
    six weights, which should be .032 .053 .088 .145 .239 .394, become .0625 each.  In the relative form, which is
    returned here, biases are small where weights are large, and 16 bits do little harm.

    Examples
    --------
    >>> import numpy as np
    >>> i = np.arange(3)
    >>> alibi_bias(i, i, np.array([0.5]), symmetric=True)[0]
    array([[ 0. , -0.5, -1. ],
           [-0.5,  0. , -0.5],
           [-1. , -0.5,  0. ]])
    """
    arrays.flag("symmetric", symmetric)
    lag, xp, dtype = _lags(query_positions, key_positions, dtype)
    slopes = _per_head(xp, "slopes", slopes, lag)
    return absolute._rounded(xp, slopes * xp.astype(_ahead(lag, symmetric), xp.float64)[..., None, :, :], dtype)


# -- T5

def t5_buckets(lags, *, buckets=32, max_distance=128, bidirectional=False):
    """Bucket of each lag: one for each small distance, wider and wider ones for larger distances.

    Parameters
    ----------
    lags : integer array or tensor, any shape
        τ = i - j (see `poslib.positions.lags`).  T5 speaks of the relative position key - query, which is -τ.
    buckets : int
        Number of buckets, at least 2; with `bidirectional` even and at least 4, half for each side.
    max_distance : int
        From this distance on all lags share the last bucket (or share it sooner); greater than the number of
        distances that have a bucket of their own, half of each side's buckets (rounded down).
    bidirectional : bool
        False: keys that come later (negative lags) share bucket 0 with lag 0, as in T5's decoder.  True: they
        have the upper half of the buckets, as in T5's encoder.

    Returns
    -------
    int64, same kind and shape, 0 to buckets - 1

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Notes
    -----
    Raffel et al. 2020 (arXiv 1910.10683), section 2.1, describes it; the formula is that of
    ``_relative_position_bucket`` in the authors' code.  With N buckets a side and e = N // 2, distance n ≥ e
    belongs to bucket e + floor((N - e)·ln(n/e)/ln(max_distance/e)), at most N - 1.  No logarithm is taken here:
    bucket e + k begins at the smallest n with n^(N-e) ≥ e^(N-e-k)·max_distance^k, in whole numbers.

    Examples
    --------
    >>> import numpy as np
    >>> t5_buckets(np.array([-1, 0, 1, 15, 16, 32, 64, 127, 1000]))
    array([ 0,  0,  1, 15, 16, 21, 26, 31, 31])
    """
    xp = arrays.namespace_of("lags", lags)
    arrays.integers(xp, lags=lags)
    side, far = _t5_sizes(buckets, max_distance, bidirectional)
    lag = xp.clip(xp.astype(lags, xp.int64), -far, far)       # all beyond are alike; |-2**63| would not fit
    starts = xp.asarray(_t5_starts(side, far), dtype=xp.int64, device=api.device(lags))
    if not bidirectional:
        return xp.searchsorted(starts, xp.clip(lag, 0, far), side="right")
    return xp.searchsorted(starts, xp.abs(lag), side="right") + side * xp.astype(lag < 0, xp.int64)


def t5_bias(query_positions, key_positions, table, *, max_distance=128, bidirectional=False):
    """Learned bias of the bucket of each lag.

    For self-attention, whose queries and keys are places of one text: T5's cross-attention has no bias.  T5
    does not scale its dot products: ``attention(..., scale=1.0, bias=...)``.

    Parameters
    ----------
    query_positions : integer array or tensor, shape (..., queries)
    key_positions : same kind, shape (..., keys)
        Leading axes broadcast.
    table : same kind, any float dtype, shape (buckets, heads)
    max_distance, bidirectional
        See `t5_buckets`.

    Returns
    -------
    Same kind and dtype as `table`, shape (..., heads, queries, keys)
        Its entries, not rounded.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Notes
    -----
    Raffel et al. 2020 (arXiv 1910.10683), section 2.1.  Gradients reach `table`.

    Examples
    --------
    >>> import numpy as np
    >>> table = np.arange(8.0).reshape(4, 2)     # four buckets, two heads
    >>> t5_bias(np.array([9]), np.array([9, 8, 0]), table)[:, 0]
    array([[0., 2., 4.],
           [1., 3., 5.]])
    """
    lag, xp, _ = _lags(query_positions, key_positions, None)
    _beside("table", table, query_positions)
    _t5_table(xp, table)
    index = t5_buckets(lag, buckets=table.shape[0], max_distance=max_distance, bidirectional=bidirectional)
    return xp.moveaxis(table[index], -1, -3)


def _t5_sizes(buckets, max_distance, bidirectional):
    """Number of buckets of each side, and the largest distance, everything checked."""
    arrays.flag("bidirectional", bidirectional)
    sides = 2 if bidirectional else 1
    buckets = _whole("buckets", buckets, at_least=2 * sides, why="two for each side" if bidirectional else "")
    if buckets % sides:
        raise ValueError(f"buckets is {buckets}; allowed are even numbers with bidirectional=True: half for each side")
    side = buckets // sides
    why = f"each distance up to {side // 2 - 1} has a bucket of its own"
    return side, _whole("max_distance", max_distance, at_least=side // 2 + 1, why=why)


def _t5_starts(side, far):
    """First distance of buckets 1, 2, …, side - 1, in whole numbers of any size."""
    exact = side // 2
    p = side - exact
    starts = list(range(1, exact + 1))
    for k in range(1, p):
        n, want = starts[-1], exact ** (p - k) * far**k
        high = far                              # far**p >= want always
        while n < high:                         # the smallest n with n**p >= want
            middle = (n + high) // 2
            n, high = (n, middle) if middle**p >= want else (middle + 1, high)
        starts.append(n)
    return starts


def _t5_table(xp, table):
    arrays.floats(xp, table=table)
    if table.ndim != 2 or table.shape[1] < 1:
        raise ValueError(f"table has shape {tuple(table.shape)}; allowed is (buckets, heads)")


# -- Shaw et al.

def shaw_index(query_positions, key_positions, clip):
    """Row of the table for each pair: clip(j - i, -clip, clip) + clip.

    Parameters
    ----------
    query_positions : integer array or tensor, shape (..., queries)
    key_positions : same kind, shape (..., keys)
        Leading axes broadcast.
    clip : int, at least 0
        Largest distance that has a row of its own.

    Returns
    -------
    int64, same kind, shape (..., queries, keys), 0 to 2·clip
        0 for keys `clip` or more before the query.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Notes
    -----
    Shaw et al. 2018 (arXiv 1803.02155), section 3.2.

    Examples
    --------
    >>> import numpy as np
    >>> i = np.arange(3)
    >>> shaw_index(i, i, 1)
    array([[1, 2, 2],
           [0, 1, 2],
           [0, 0, 1]])
    """
    clip = _whole("clip", clip, at_least=0)
    lag, xp, _ = _lags(query_positions, key_positions, None)
    return clip - xp.clip(lag, -clip, clip)


def shaw_scores(q, table, query_positions, key_positions, *, scale=None):
    """What relative key vectors add to the scores: scale · q_i · a_ij.

    ``attention(q, k, v, bias=shaw_scores(q, table, ...))`` has the scores q_i · (k_j + a_ij) / sqrt(width).

    Parameters
    ----------
    q : array or tensor, shape (..., queries, width), any float dtype
    table : same kind and dtype, shape (rows, width), or (heads, rows, width) for a table of each head
        2·clip + 1 rows, for j - i from -clip to clip (see `shaw_index`).
    query_positions : same kind, integers, shape (queries,) or (batch, queries)
    key_positions : same kind, integers, shape (keys,) or (batch, keys)
        (batch, length) gives each entry of the *first* axis of `q` its own positions, shared by its heads.
    scale : float, optional
        ``1/sqrt(width)`` unless given, as for `poslib.attention.scores`; 1.0 gives plain dot products.

    Returns
    -------
    Same kind and dtype as `q`, shape (..., queries, keys)

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Notes
    -----
    Shaw et al. 2018 (arXiv 1803.02155), equation 4, without the products with the keys.  Each query is multiplied with each row
    once and the products are looked up, so that no (queries, keys, width) array arises.

    Examples
    --------
    >>> import numpy as np
    >>> q, table = np.ones((2, 1)), np.array([[-1.0], [0.0], [0.5]])
    >>> i = np.arange(2)
    >>> shaw_scores(q, table, i, i)
    array([[ 0. ,  0.5],
           [-1. ,  0. ]])
    """
    xp = arrays.same_floats(q=q, table=table)
    clip = _shaw_clip(table)
    _widths(q, table=(table, 2))
    scale = attention._scale(scale, q.shape[-1])
    _beside("q", q, query_positions)
    index = _aligned(xp, shaw_index(query_positions, key_positions, clip), "q", q)
    wide = arrays.wide(xp, q.dtype)
    return xp.astype(_looked_up(xp, xp.astype(q, wide), xp.astype(table, wide), index) * scale, q.dtype)


def shaw_values(weights, table, query_positions, key_positions):
    """What relative value vectors add to the output: the sum over j of weights_ij · a_ij.

    Parameters
    ----------
    weights : array or tensor, shape (..., queries, keys), any float dtype
        As `poslib.attention.attention` returns them.
    table : same kind and dtype, shape (rows, width), or (heads, rows, width) for a table of each head
        2·clip + 1 rows, for j - i from -clip to clip (see `shaw_index`).
    query_positions, key_positions
        As for `shaw_scores`, with `weights` in place of `q`.

    Returns
    -------
    Same kind and dtype as `weights`, shape (..., queries, width)
        To be added to the output.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Notes
    -----
    Shaw et al. 2018 (arXiv 1803.02155), equation 3, without the sum over the values.  The weights of keys that share a row are
    added first, so that no (queries, keys, width) array arises.

    Examples
    --------
    >>> import numpy as np
    >>> weights, table = np.array([[0.5, 0.25, 0.25]]), np.array([[-1.0], [0.0], [1.0]])
    >>> shaw_values(weights, table, np.array([2]), np.arange(3))
    array([[-0.75]])
    """
    xp = arrays.same_floats(weights=weights, table=table)
    clip = _shaw_clip(table)
    if weights.ndim < 2:
        raise ValueError(f"weights has shape {tuple(weights.shape)}; allowed is (..., queries, keys)")
    arrays.fits("table", table.shape, (*weights.shape[:-2], *table.shape[-2:]))
    arrays.same_device(weights=weights, table=table)
    _beside("weights", weights, query_positions)
    index = _aligned(xp, shaw_index(query_positions, key_positions, clip), "weights", weights)
    _one_per_key("weights", weights, weights.shape[-1], index)
    wide = arrays.wide(xp, weights.dtype)
    by_row = _scatter(xp, xp.astype(weights, wide), index, table.shape[-2])
    return xp.astype(xp.matmul(by_row, xp.astype(table, wide)), weights.dtype)


def skew(x):
    """Shift the rows of products with relative vectors so that column j belongs to key j.

    For whole texts, whose queries and keys are the same places in order.  `shaw_scores` does the same by
    looking up, for any positions; this is the way without an index.

    Parameters
    ----------
    x : array or tensor, shape (..., length, length) or (..., length, 2·length - 1)
        Row i holds the products of query i with the vectors of j - i = 1 - length, 2 - length, … up to 0, or
        up to length - 1.

    Returns
    -------
    Same kind and dtype, shape (..., length, length)
        Entry (i, j) is ``x[..., i, j - i + length - 1]``.  From the narrow form keys that come later (j > i) have
        no product; their entries, which the published procedure leaves filled with those of the next rows, are
        0.  A causal mask has to hide them all the same.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Notes
    -----
    Huang et al. 2019 (arXiv 1809.04281), the skewing procedure, for the narrow form; tensor2tensor's
    ``_relative_position_to_absolute_position_unmasked`` for the wide one.

    Examples
    --------
    >>> import numpy as np
    >>> skew(np.arange(1, 10).reshape(3, 3))
    array([[3, 0, 0],
           [5, 6, 0],
           [7, 8, 9]])
    """
    xp = arrays.namespace_of("x", x)
    n = x.shape[-2] if x.ndim > 1 else 0
    if n < 1 or x.shape[-1] not in (n, 2 * n - 1):
        raise ValueError(f"x has shape {tuple(x.shape)}; allowed is (..., length, length) or (..., length, 2·length - 1)")
    lead = tuple(x.shape[:-2])
    column = xp.zeros_like(x[..., :1])
    if x.shape[-1] == n:
        # A column before the first makes rows one longer: read in rows of n, each starts one place sooner.
        shifted = xp.reshape(xp.concat([column, x], axis=-1), (*lead, n + 1, n))[..., 1:, :]
        place = xp.arange(n, device=api.device(x))
        return xp.where(place[:, None] >= place[None, :], shifted, column[..., :1, :])
    flat = xp.reshape(xp.concat([x, column], axis=-1), (*lead, 2 * n * n))
    flat = xp.concat([flat, xp.zeros_like(flat[..., :n - 1])], axis=-1)
    return xp.reshape(flat, (*lead, n + 1, 2 * n - 1))[..., :n, n - 1:]


def _shaw_clip(table):
    if table.ndim < 2 or table.shape[-2] % 2 == 0:
        raise ValueError(f"table has shape {tuple(table.shape)}; allowed is (..., rows, width) with an odd number of rows, "
                         "2·clip + 1")
    return table.shape[-2] // 2


# -- Transformer-XL

def transformer_xl_scores(q, k, r, u, v, query_positions, key_positions, *, first_lag=0, scale=None):
    """Scores of Transformer-XL: scale · [(q_i + u) · k_j + (q_i + v) · r_τ].

    Its four terms are (a) q·k, (b) q·r, (c) u·k and (d) v·r.

    Parameters
    ----------
    q : array or tensor, shape (..., queries, width), any float dtype
    k : same kind and dtype, shape (..., keys, width)
    r : same kind and dtype, shape (lags, width), or (heads, lags, width)
        Relative keys, already projected: row t is that of lag first_lag + t.  In the paper they are
        ``sinusoid(lags, model width) @ W``.
    u, v : same kind and dtype, shape (width,) or (heads, width)
    query_positions, key_positions
        As for `shaw_scores`.
    first_lag : int
        Lag of the first row of `r`.  Every lag i - j that occurs must have its row, those that a mask hides
        too: 1 - length for a whole text.
    scale : float, optional
        ``1/sqrt(width)`` unless given, as in the authors' code; the paper's formula has 1.0.

    Returns
    -------
    Same kind and dtype as `q`, shape (..., queries, keys)

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Notes
    -----
    Dai et al. 2019 (arXiv 1901.02860), section 3.3, the second decomposition of the score (not numbered).  Each
    query is multiplied with each row of `r` once and the products are looked up.

    Examples
    --------
    >>> import numpy as np
    >>> x, r, zero, i = np.eye(2), np.ones((3, 2)), np.zeros(2), np.arange(2)
    >>> transformer_xl_scores(x, x, r, zero, zero, i, i, first_lag=-1, scale=1.0)
    array([[2., 1.],
           [1., 2.]])
    """
    xp = arrays.same_floats(q=q, k=k, r=r, u=u, v=v)
    _widths(q, k=(k, 2), r=(r, 2), u=(u, 1), v=(v, 1))
    scale = attention._scale(scale, q.shape[-1])
    first_lag = _whole("first_lag", first_lag, at_least=-absolute.EXACT)
    _beside("q", q, query_positions)
    lag, rows = positions.lags(query_positions, key_positions), r.shape[-2]
    outside = lag[(lag < first_lag) | (lag >= first_lag + rows)]
    if math.prod(outside.shape):
        raise ValueError(f"r has the lags {first_lag} to {first_lag + rows - 1}, the positions {int(outside[0])}: "
                         "allowed is a row for every lag that occurs")
    index = _aligned(xp, lag - first_lag, "q", q)
    _one_per_key("k", k, k.shape[-2], index)
    wide = arrays.wide(xp, q.dtype)
    dtype, (q, k, r, u, v) = q.dtype, (xp.astype(x, wide) for x in (q, k, r, u, v))
    content = xp.matmul(q + u[..., None, :], xp.matrix_transpose(k))
    return xp.astype((content + _looked_up(xp, q + v[..., None, :], r, index)) * scale, dtype)


# -- KERPLE and FIRE

def kerple_bias(query_positions, key_positions, r1, r2, *, kind, dtype=None):
    """Penalty with a learned shape: -r1·log(1 + r2·|τ|), or -r1·|τ|^r2.

    Parameters
    ----------
    query_positions : integer array or tensor, shape (..., queries)
    key_positions : same kind, shape (..., keys)
        Leading axes broadcast.
    r1, r2 : float32 or float64, shape (heads,)
        Same kind as the positions, or numpy arrays.  Both positive; for "power" r2 is at most 2.  A model that
        learns them keeps them there, e.g. as the softplus of its parameters.
    kind : {"log", "power"}
        ALiBi, symmetric, is "power" with r2 = 1.
    dtype : float dtype of the library of the positions, 16 to 64 bits, optional
        float64 unless given.

    Returns
    -------
    Same kind as the positions, shape (..., heads, queries, keys)

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Notes
    -----
    Chi et al. 2022 (arXiv 2205.09921), logarithmic and power variant.  In these ranges the bias is a
    conditionally positive definite kernel of the positions: plus a constant, which softmax does not see, it is
    a dot product.  Gradients reach r1 and r2.

    Examples
    --------
    >>> import numpy as np
    >>> r1, r2 = np.array([1.0]), np.array([1.0])
    >>> kerple_bias(np.array([8]), np.array([8, 7, 0]), r1, r2, kind="log").round(3)
    array([[[ 0.   , -0.693, -2.197]]])
    """
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"kind is {kind!r}; allowed are 'log' (-r1·log(1 + r2·|τ|)) and 'power' (-r1·|τ|^r2)")
    lag, xp, dtype = _lags(query_positions, key_positions, dtype)
    r1, r2 = _per_head(xp, "r1", r1, lag), _per_head(xp, "r2", r2, lag)
    if r1.shape != r2.shape:
        raise ValueError(f"r1 has {r1.shape[0]} heads, r2 {r2.shape[0]}: they must be the same")
    _positive("r1", r1, math.inf)
    _positive("r2", r2, KINDS[kind])
    distance = xp.astype(xp.abs(lag), xp.float64)[..., None, :, :]
    if kind == "log":
        grown = xp.log1p(r2 * distance)
    else:       # 0 without a power of 0, whose second derivative torch takes for NaN
        grown = xp.where(distance > 0, xp.where(distance > 0, distance, 1.0) ** r2, 0.0)
    return absolute._rounded(xp, 0.0 - r1 * grown, dtype)


def fire_input(query_positions, key_positions, *, c, threshold, dtype=None):
    """Lag as FIRE's network sees it: ψ(|τ|) / ψ(max(threshold, i)), with ψ(x) = log(c·x + 1).

    Parameters
    ----------
    query_positions : integer array or tensor, shape (..., queries)
    key_positions : same kind, shape (..., keys)
        Leading axes broadcast.  They count from 0 at the start of each text: with a query past the threshold, moving
        both changes the result.
    c, threshold : float, or 0-d float32 or float64 array of the kind of the positions
        Positive.  Both are trained in the paper.
    dtype : float dtype of the library of the positions, 16 to 64 bits, optional
        float64 unless given.

    Returns
    -------
    Same kind as the positions, shape (..., queries, keys)
        0 to 1 for keys that are not later than the query, in a text of any length whose positions count from 0.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Notes
    -----
    Li et al. 2024 (arXiv 2310.04418), which has τ, for causal attention; public implementations take |τ|.

    Examples
    --------
    >>> import numpy as np
    >>> fire_input(np.array([4]), np.array([0, 2, 4]), c=1.0, threshold=2.0).round(3)
    array([[1.   , 0.683, 0.   ]])
    """
    lag, xp, dtype = _lags(query_positions, key_positions, dtype)
    c, threshold = _setting(xp, "c", c, lag), _setting(xp, "threshold", threshold, lag)
    at = xp.astype(query_positions, xp.float64)[..., :, None]
    reach = xp.where(at > threshold, at, threshold)
    return absolute._rounded(xp, xp.log1p(c * xp.astype(xp.abs(lag), xp.float64)) / xp.log1p(c * reach), dtype)


def fire_bias(query_positions, key_positions, network, *, c, threshold, dtype=None):
    """Bias of FIRE: a small network of the normalised lag.

    Parameters
    ----------
    query_positions, key_positions
        See `fire_input`.
    network : callable
        Takes (..., queries, keys, 1), the values of `fire_input`, and gives (..., queries, keys, heads).
    c, threshold
        See `fire_input`.
    dtype : float dtype of the library of the positions, 16 to 64 bits, optional
        What the network is given; float64 unless given.

    Returns
    -------
    Same kind as the positions, shape (..., heads, queries, keys)
        What the network gives, its last axis moved.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Notes
    -----
    Li et al. 2024 (arXiv 2310.04418).

    Examples
    --------
    >>> import numpy as np
    >>> two_heads = lambda y: y * np.array([-1.0, -2.0])
    >>> fire_bias(np.array([4]), np.array([0, 2]), two_heads, c=1.0, threshold=2.0).round(3)[:, 0]
    array([[-1.   , -0.683],
           [-2.   , -1.365]])
    """
    if not callable(network):
        raise TypeError(f"network is {network!r}; allowed is a callable, (..., 1) to (..., heads)")
    x = fire_input(query_positions, key_positions, c=c, threshold=threshold, dtype=dtype)
    y = network(x[..., None])
    xp = arrays.same_kind(query_positions=query_positions, **{"the network's output": y})
    if y.ndim != x.ndim + 1 or tuple(y.shape[:-1]) != tuple(x.shape):
        raise ValueError(f"network gave shape {tuple(y.shape)} for {(*x.shape, 1)}; allowed is {(*x.shape, 'heads')}")
    return xp.moveaxis(y, -1, -3)


# -- torch's flex_attention

def alibi_score_mod(slopes, *, query_positions=None, key_positions=None, symmetric=False):
    """`alibi_bias` for ``torch.nn.attention.flex_attention``, where no bias matrix is built.

    Parameters
    ----------
    slopes : float32 or float64 tensor, shape (heads,)
        ``alibi_slopes(heads, like=q)`` makes them.  On GPUs float32 is faster and as good: a bias is then off by no
        more than 2**-23 of itself.
    query_positions : integer tensor, shape (queries,) or (batch, queries), optional
        0, 1, 2, … unless given.  In decoding the queries are the last places of the text: give them.
    key_positions : integer tensor, shape (keys,) or (batch, keys), optional
        0, 1, 2, … unless given.
    symmetric : bool
        See `alibi_bias`.

    Returns
    -------
    Function (score, batch, head, query index, key index) -> score

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Examples
    --------
    >>> import torch
    >>> score_mod = alibi_score_mod(torch.tensor([0.5, 0.25]))
    >>> score_mod(torch.tensor(1.0), 0, 1, 7, 5)     # head 1, query 7, key 5
    tensor(0.5000)
    """
    arrays.flag("symmetric", symmetric)
    xp = _torch("slopes", slopes)
    slopes = _per_head(xp, "slopes", slopes, slopes, widen=False)[:, 0, 0]
    lag = _lag_of("slopes", slopes, query_positions, key_positions)

    def score_mod(score, batch, head, query, key):
        ahead = _ahead(lag(batch, query, key), symmetric)
        return score + (slopes[head] * ahead).to(score.dtype)

    return score_mod


def t5_score_mod(table, *, max_distance=128, bidirectional=False, query_positions=None, key_positions=None):
    """`t5_bias` for ``torch.nn.attention.flex_attention``, where no bias matrix is built.

    T5 does not scale its dot products: ``flex_attention(..., scale=1.0)``.

    Parameters
    ----------
    table : tensor, any float dtype, shape (buckets, heads)
    max_distance, bidirectional
        See `t5_buckets`.
    query_positions, key_positions
        See `alibi_score_mod`.

    Returns
    -------
    Function (score, batch, head, query index, key index) -> score
        It keeps one entry for each lag up to `max_distance`, taken from `table` when it is built: build it anew
        in every training step.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Examples
    --------
    >>> import torch
    >>> score_mod = t5_score_mod(torch.arange(4.0)[:, None])     # four buckets, one head
    >>> query, key = torch.tensor(9), torch.tensor(8)
    >>> score_mod(torch.tensor(0.5), 0, 0, query, key)
    tensor(1.5000)
    """
    xp = _torch("table", table)
    _t5_table(xp, table)
    _, far = _t5_sizes(table.shape[0], max_distance, bidirectional)
    each = xp.arange(-far, far + 1, device=api.device(table))
    by_lag = table[t5_buckets(each, buckets=table.shape[0], max_distance=far, bidirectional=bidirectional)]
    lag = _lag_of("table", table, query_positions, key_positions)

    def score_mod(score, batch, head, query, key):
        row = lag(batch, query, key).clamp(-far, far) + far
        return score + by_lag[row, head].to(score.dtype)

    return score_mod


def _torch(name, x):
    if not api.is_torch_array(x):
        raise TypeError(f"{name} is a {type(x).__name__}; allowed are torch tensors: flex_attention is torch's")
    return api.array_namespace(x)


def _lag_of(beside, like, query_positions, key_positions):
    """A function of batch, query index and key index that gives the lag."""
    def reader(name, ids):
        if ids is None:
            return lambda batch, index: index
        xp = arrays.same_kind(**{beside: like, name: ids})
        arrays.integers(xp, **{name: ids})
        arrays.same_device(**{beside: like, name: ids})
        if ids.ndim not in (1, 2):
            raise ValueError(f"{name} has shape {tuple(ids.shape)}; allowed is (length,) or (batch, length)")
        ids = xp.astype(ids, xp.int64)
        return (lambda batch, index: ids[index]) if ids.ndim == 1 else (lambda batch, index: ids[batch, index])

    i, j = reader("query_positions", query_positions), reader("key_positions", key_positions)
    return lambda batch, query, key: i(batch, query) - j(batch, key)


# -- shared

def _lags(query_positions, key_positions, dtype):
    """Checked lags, their namespace, and the checked dtype of the result."""
    lag = positions.lags(query_positions, key_positions)
    xp = api.array_namespace(lag)
    return lag, xp, absolute._dtype(xp, dtype)


def _whole(name, value, *, at_least, why=""):
    """`value` as a Python int, checked: a narrow numpy integer would overflow."""
    value = absolute._number(name, value, at_least=at_least, why=why)
    if value > absolute.EXACT:
        raise ValueError(f"{name} is {value}; allowed is at most 2**53")
    return value


def _ahead(lag, symmetric):
    """What multiplies a slope: j - i, or -|i - j|."""
    return -abs(lag) if symmetric else -lag


def _per_head(xp, name, values, like, widen=True):
    """`values` in float64 as (heads, 1, 1), on the device of `like`; numpy arrays count as settings."""
    own = arrays.namespace_of(name, values)
    if own is not xp and not api.is_numpy_array(values):
        arrays.same_kind(query_positions=like, **{name: values})
    if values.dtype not in (own.float32, own.float64):
        raise TypeError(f"{name} has dtype {values.dtype}; allowed are float32 and float64")
    if values.ndim != 1 or values.shape[0] < 1:
        raise ValueError(f"{name} has shape {tuple(values.shape)}; allowed is (heads,), at least one")
    if own is not xp:
        values = xp.asarray(values.tolist(), dtype=xp.float64, device=api.device(like))
    arrays.same_device(query_positions=like, **{name: values})
    return (xp.astype(values, xp.float64) if widen else values)[:, None, None]


def _positive(name, values, top):
    bad = values[~((values > 0) & (values <= top) & (values < math.inf))]
    if math.prod(bad.shape):
        allowed = "positive finite numbers" if top == math.inf else f"positive numbers up to {top}"
        raise ValueError(f"{name} holds {float(bad[0])}; allowed are {allowed}")


def _setting(xp, name, value, like):
    """A positive number, as a Python float or a float64 array without axes."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        if not 0 < value < math.inf:
            raise ValueError(f"{name} is {value!r}; allowed is a positive finite number")
        return float(value)
    if not (api.is_numpy_array(value) or api.is_torch_array(value)):
        raise TypeError(f"{name} is {value!r}; allowed is a positive finite number")
    arrays.same_kind(query_positions=like, **{name: value})
    if value.dtype not in (xp.float32, xp.float64) or value.ndim:
        raise TypeError(f"{name} has dtype {value.dtype} and shape {tuple(value.shape)}; allowed are float32 and float64 "
                        "without axes")
    arrays.same_device(query_positions=like, **{name: value})
    _positive(name, value[None], math.inf)
    return xp.astype(value, xp.float64)


def _beside(name, x, query_positions):
    arrays.same_kind(**{name: x}, query_positions=query_positions)
    arrays.same_device(**{name: x}, query_positions=query_positions)


def _widths(q, **others):
    """All have the last axis of `q`, at least so many axes, and leading axes that broadcast to those of `q`."""
    if q.ndim < 2 or q.shape[-1] == 0:
        raise ValueError(f"q has shape {tuple(q.shape)}; allowed is (..., queries, width) with width at least 1")
    for name, (x, axes) in others.items():
        if x.ndim < axes or x.shape[-1] != q.shape[-1]:
            raise ValueError(f"{name} has shape {tuple(x.shape)}, q {tuple(q.shape)}: allowed is "
                             f"{'(..., rows, width)' if axes == 2 else '(..., width)'} of the same width")
        arrays.fits(name, x.shape, (*q.shape[:-2], *x.shape[-axes:]))
        arrays.same_device(**{name: x}, q=q)


def _aligned(xp, index, name, x):
    """`index`, (batch, queries, keys) or (queries, keys), for each leading axis of `x`: batch is its first axis."""
    lead, own = tuple(x.shape[:-2]), tuple(index.shape[:-2])
    padded = (*own, *(1,) * (len(lead) - len(own)))
    if len(padded) > len(lead) or any(s not in (1, t) for s, t in zip(padded, lead)) or x.shape[-2] != index.shape[-2]:
        raise ValueError(f"query_positions and key_positions make lags of shape {tuple(index.shape)}, {name} has shape "
                         f"{tuple(x.shape)}: allowed are positions (length,) or (batch, length), one for each query")
    return xp.broadcast_to(xp.reshape(index, (*padded, *index.shape[-2:])), (*lead, *index.shape[-2:]))


def _one_per_key(name, x, count, index):
    if count != index.shape[-1]:
        raise ValueError(f"{name} has shape {tuple(x.shape)}, there are {index.shape[-1]} key_positions: "
                         f"allowed is one {'column' if name == 'weights' else 'row'} for each")


def _looked_up(xp, q, table, index):
    """q_i · table[index_ij] for each i and j: all products with the rows first, then the lookup."""
    return _gather(xp, xp.matmul(q, xp.matrix_transpose(table)), index)


def _gather(xp, x, index):
    """x[..., index] along the last axis; the array standard's name for it is younger than the oldest release we allow."""
    return x.gather(-1, index) if api.is_torch_array(x) else xp.take_along_axis(x, index, axis=-1)


def _scatter(xp, x, index, rows):
    """The transpose of `_gather`: entry r of the last axis is the sum of x where index is r.  The standard has none."""
    lead = tuple(x.shape[:-1])
    if api.is_torch_array(x):
        zeros = xp.astype(xp.zeros((*lead, rows), dtype=x.dtype, device=api.device(x)), x.dtype)
        return zeros.scatter_add(-1, index, x)
    line = xp.reshape(xp.arange(math.prod(lead)), (*lead, 1)) * rows
    sums = xp.bincount(xp.reshape(line + index, (-1,)), weights=xp.reshape(x, (-1,)), minlength=math.prod(lead) * rows)
    return xp.astype(xp.reshape(sums, (*lead, rows)), x.dtype)
