"""poslib.relative against loops over pairs in whole numbers, fractions or float64, and every error it promises.

Ids such as P75 name public reports of the kind of mistake that a test rules out; REPORTS says which.
"""

import ast
import functools
import inspect
import math
import os
import shutil
from fractions import Fraction

import mpmath               # comes with torch
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import bad_input_test, reports_to_cover
from poslib import nn
from poslib import positions as P
from poslib import relative as R
from poslib.attention import attention, causal_mask, scores, softmax
from poslib.collisions import rounded

REPORTS = {
    "P06": "transformers 28685: constructors that return bfloat16", "P73": "transformers 22161: left padding",
    "P75": "MLX 3071: the plain series for every head count", "P76": "TensorRT-LLM 1611: two rules in dispute",
    "P77": "aprender 2143: exponent one too small", "P78": "transformers 28380: no slopes for 6 heads",
    "P80": "attention_with_linear_biases 5: key-only form without a causal mask", "P81": "vllm 945: rows off by a constant",
    "P82": "x-transformers 10: sign and clamp of T5's buckets", "P83": "transformers 8518: T5 bias in cross-attention",
    "P85": "mlx-examples 113: wrong T5 buckets", "F07": "transformers, Falcon: slopes times positions in bfloat16",
    "F23": "attention-gym: the plain series for every head count", "F25": "transformers, T5: sizes without sense, bfloat16 logarithms",
}
covers, test_every_report_has_its_test = reports_to_cover(REPORTS)
KINDS = {"numpy": np.asarray, "torch": lambda x: torch.from_numpy(np.array(x))}
kinds = pytest.mark.parametrize("kind", KINDS)
quick = settings(max_examples=40, deadline=None)
ids = st.lists(st.integers(-300, 300), min_size=1, max_size=6)
I3 = np.arange(3)


def draw(seed, *shape, dtype=np.float64):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def pairs(queries, keys, f):
    """f(i, j) for each query position i and key position j."""
    return np.array([[f(i, j) for j in keys] for i in queries])


# -- ALiBi

SLOPES = {  # the authors' code, as Bloom in Hugging Face has it
    1: [2**-8], 2: [2**-4, 2**-8], 3: [0.0625, 0.00390625, 0.25], 6: [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125],
    8: [2.0**-h for h in range(1, 9)],
    12: [2.0**-h for h in range(1, 9)] + [0.7071067811865476, 0.3535533905932738, 0.1767766952966369, 0.08838834764831845],
}


def exponents(heads):
    """The paper's recursion: halves of a series, then every other member of the series twice as long."""
    if heads & (heads - 1) == 0:
        return [Fraction(8 * h, heads) for h in range(1, heads + 1)]
    power = max(2**n for n in range(12) if 2**n < heads)
    return exponents(power) + exponents(2 * power)[0::2][:heads - power]


@covers("P75", "P76", "P77", "P78", "F23")
@kinds
def test_slopes_of_every_head_count_are_those_of_the_paper(kind):
    like = KINDS[kind](np.zeros(1))
    for heads in range(1, 70):
        got = R.alibi_slopes(heads, like=like)
        assert type(got) is type(like) and got.dtype == like.dtype and tuple(got.shape) == (heads,)
        for slope, e in zip(got.tolist(), exponents(heads)):
            assert abs(slope - float(mpmath.mpf(2) ** (-mpmath.mpf(e.numerator) / e.denominator))) <= 2**-53 * slope
        assert heads not in SLOPES or got.tolist() == pytest.approx(SLOPES[heads], rel=4e-16)
    eight, ten = R.alibi_slopes(8).tolist(), R.alibi_slopes(np.uint8(10)).tolist()
    assert eight[0] == 0.5 and eight[-1] == 0.00390625                           # not 1 and 2^-7
    assert ten[:8] == eight and ten[8:] == pytest.approx([0.707107, 0.353553], abs=5e-7)
    twenty = R.alibi_slopes(20)
    np.testing.assert_allclose(twenty[[0, 10, 18, 19]], [0.7071067811865476, 0.02209708691207961, 0.42044820762685725,
                                                         0.29730177875068026], rtol=4e-16)


@covers("P75", "P76", "F23")
def test_the_plain_series_has_its_own_name():
    for heads in range(1, 40):
        plain = R.alibi_slopes(heads, "geometric")
        np.testing.assert_allclose(plain, 2.0 ** (-8 * np.arange(1, heads + 1) / heads), rtol=4e-16)
        assert (plain.tolist() == R.alibi_slopes(heads).tolist()) == (heads & (heads - 1) == 0)
    assert R.alibi_slopes(12, "geometric")[0] == pytest.approx(0.62996, abs=1e-5) and R.alibi_slopes(12)[0] == 0.5


@covers("P80", "P81")
@kinds
@given(ids, ids, st.integers(1, 5), st.booleans())
@quick
def test_alibi_is_the_slope_times_the_lag(kind, queries, keys, heads, symmetric):
    to, slopes = KINDS[kind], R.alibi_slopes(heads)
    want = np.stack([pairs(queries, keys, lambda i, j: -m * abs(i - j) if symmetric else -m * (i - j)) for m in slopes])
    for given_slopes in (slopes, to(slopes)):
        got = R.alibi_bias(to(queries), to(keys), given_slopes, symmetric=symmetric)
        assert type(got) is type(to(0.0 * I3)) and got.dtype == to(0.0 * I3).dtype
        assert (np.asarray(got) == want).all() and not np.signbit(np.asarray(got)[want == 0]).any()


@covers("P80", "P81")
def test_only_the_symmetric_form_needs_a_causal_mask_to_be_key_only():
    n, slopes = 9, R.alibi_slopes(2)
    i, logits, causal = np.arange(n), draw(0, 2, n, n), causal_mask(n)
    key_only = slopes[:, None, None] * i
    full, both = R.alibi_bias(i, i, slopes), R.alibi_bias(i, i, slopes, symmetric=True)
    some = draw(1, n, n) > 0
    some[:, 0] = True
    for mask in (None, causal, some):
        assert np.abs(softmax(logits + full, mask) - softmax(logits + key_only, mask)).max() < 1e-15
    assert np.abs(softmax(logits + both, causal) - softmax(logits + key_only, causal)).max() < 1e-15
    assert np.abs(softmax(logits + both) - softmax(logits + key_only)).max() > 0.05
    assert both[0, 0, 3] == -3 * slopes[0] and (np.diagonal(full, axis1=1, axis2=2) == 0).all()
    mpt = R.alibi_bias(np.array([4]), np.arange(5), R.alibi_slopes(12))          # MPT's rows for 12 heads
    assert mpt[0, 0].tolist() == [-2, -1.5, -1, -0.5, 0]
    np.testing.assert_allclose(mpt[8, 0], [-2.8284271247461903, -2.121320343559643, -1.4142135623730951,
                                           -0.7071067811865476, 0], rtol=4e-16)


@covers("P73", "P81")
@kinds
def test_left_padding_changes_no_weight(kind):
    mask = KINDS[kind]([[False, False, True, True, True], [True] * 5])
    at = P.from_mask(mask)
    slopes = R.alibi_slopes(4)
    padded = np.asarray(R.alibi_bias(at, at, slopes))
    alone = R.alibi_bias(I3, I3, slopes)
    assert padded.shape == (2, 4, 5, 5) and (padded[0, :, 2:, 2:] == alone).all()
    bloom = np.array([0, 0, 0, 0.25, 0.5])                                       # Bloom's row for this mask, head 0
    got = padded[0, 0, 4, 2:]
    np.testing.assert_allclose(softmax(got[None]), softmax(bloom[None, 2:]), rtol=1e-15)
    raw = KINDS[kind](np.arange(5))
    assert (np.asarray(R.alibi_bias(raw, raw, slopes))[:, 2:, 2:] == alone).all()    # a moved origin is the same


@covers("F07")
@pytest.mark.parametrize("dtype, name", [(torch.bfloat16, "bf16"), (torch.float16, "fp16"), (torch.float32, "fp32")])
def test_alibi_is_rounded_once(dtype, name):
    i, slopes = torch.arange(1024), R.alibi_slopes(12)
    wide = R.alibi_bias(i[-1:], i, slopes)
    got = R.alibi_bias(i[-1:], i, slopes, dtype=dtype)
    assert got.dtype == dtype and (got.double().numpy() == rounded(wide.numpy(), name)).all()
    assert len(set(wide[8, 0].tolist())) == 1024
    assert float((got.double() - wide).abs().max()) <= 2 ** (9 - {"bf16": 8, "fp16": 11, "fp32": 24}[name])
    if name == "fp32":
        assert len(set(got[8, 0].tolist())) == 1024
        assert (R.alibi_bias(i[-1:].numpy(), i.numpy(), slopes, dtype=np.float32) == got.numpy()).all()


def test_what_the_docstring_says_of_sixteen_bits():
    i = torch.arange(8192)
    slopes = np.array([0.5])
    last = lambda bias: softmax(bias.double().reshape(1, -1))[0, -6:].tolist()
    want = [.032, .053, .088, .145, .239, .394]
    key_only = (0.5 * i.double()).bfloat16()
    assert len(set(key_only[-16:].tolist())) == 1 and key_only[-17] != key_only[-16]
    assert last(key_only) == pytest.approx([.0625] * 6, abs=1e-4)
    assert last((0.5 * i.double()).half()) == pytest.approx([.007, .054, .054, .054, .399, .399], abs=1e-3)
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        assert last(R.alibi_bias(i[-1:], i, slopes, dtype=dtype)) == pytest.approx(want, abs=1e-3)


# -- T5

SIZES = [(32, 128), (16, 64), (32, 64), (8, 20), (64, 1000), (4, 5), (12, 40), (36, 10**6), (32, 17)]
SEEN = [-200, -128, -127, -91, -64, -46, -45, -32, -23, -16, -12, -11, -8, -7, -1, 0, 1, 7, 8, 11, 12, 16, 23, 32, 45, 46,
        64, 91, 127, 128, 200]
BUCKETS = {  # of the relative positions SEEN (key - query), both directions; T5 in Hugging Face
    (32, 128): [15, 15, 15, 15, 14, 13, 12, 12, 11, 10, 9, 8, 8, 7, 1, 0, 17, 23, 24, 24, 25, 26, 27, 28, 28, 29, 30, 31, 31,
                31, 31],
    (16, 64): [7, 7, 7, 7, 7, 7, 7, 7, 6, 6, 5, 5, 5, 4, 1, 0, 9, 12, 13, 13, 13, 14, 14, 15, 15, 15, 15, 15, 15, 15, 15],
}


def t5_bucket(relative, buckets, max_distance, bidirectional):
    """The authors' formula for one relative position; whole numbers decide what the logarithm is compared with."""
    upper = 0
    if bidirectional:
        buckets //= 2
        upper = buckets if relative > 0 else 0
        n = abs(relative)
    else:
        n = max(-relative, 0)
    exact = buckets // 2
    if n < exact:
        return upper + n
    steps = buckets - exact     # floor(steps · ln(n/exact) / ln(max/exact)) is the largest s with (n/exact)^steps >= (max/exact)^s
    s = 0
    while s < steps and Fraction(n, exact) ** steps >= Fraction(max_distance, exact) ** (s + 1):
        s += 1
    return upper + min(exact + s, buckets - 1)


@covers("P82", "F25")
@kinds
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("buckets, far", SIZES)
def test_buckets_of_every_lag_are_those_of_the_formula(kind, buckets, far, bidirectional):
    relative = sorted({*range(-200, 201), *(s * (far + d) for s in (1, -1) for d in (-1, 0, 1)), -far * 9, far * 9})
    got = R.t5_buckets(KINDS[kind]([-r for r in relative]), buckets=buckets, max_distance=far, bidirectional=bidirectional)
    assert got.tolist() == [t5_bucket(r, buckets, far, bidirectional) for r in relative]
    assert str(got.dtype).endswith("int64") and type(got) is type(KINDS[kind](I3))


@covers("P82", "P85", "F25")
@kinds
def test_buckets_that_were_published(kind):
    to = KINDS[kind]
    for (buckets, far), want in BUCKETS.items():
        assert R.t5_buckets(to([-r for r in SEEN]), buckets=buckets, max_distance=far, bidirectional=True).tolist() == want
    lags = P.lags(to(np.arange(10)), to(np.arange(10)))
    square = R.t5_buckets(lags, bidirectional=True)
    assert square[0].tolist() == [0, 17, 18, 19, 20, 21, 22, 23, 24, 24]
    assert square[:, 0].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 8]
    assert R.t5_buckets(to([16, 32, 64, 127, 128, 0, -1, -50])).tolist() == [16, 21, 26, 31, 31, 0, 0, 0]
    assert R.t5_buckets(to([16, 32, 90]), bidirectional=True).tolist() == [10, 12, 14]     # bfloat16 logarithms: 9, …


@covers("F25")
@given(st.integers(1, 40), st.integers(1, 10**6), st.booleans())
@quick
def test_buckets_are_monotone_total_and_reach_the_last(half, beyond, bidirectional):
    buckets = 2 * half * (1 + bidirectional)
    side = 2 * half
    far = side // 2 + beyond
    lags = np.array(sorted({0, 1, 2**63 - 1, -2**63, *(f * d for f in (1, -1) for d in (side // 2, far - 1, far, far + 1, far // 3))}))
    got = R.t5_buckets(lags, buckets=buckets, max_distance=far, bidirectional=bidirectional)
    assert (got >= 0).all() and (got < buckets).all() and (np.diff(got[lags >= 0]) >= 0).all()
    assert got[-1] == side - 1 and (got[lags >= far] == side - 1).all() and got[lags == 0] == 0
    if bidirectional:
        assert (np.diff(got[lags < 0]) <= 0).all() and got[0] == buckets - 1 and (got[lags < 0] > side).all()
    else:
        assert (got[lags < 0] == 0).all()


@kinds
@given(ids, ids, st.booleans(), st.sampled_from(["float16", "float32", "float64"]))
@quick
def test_t5_bias_is_the_entry_of_the_bucket(kind, queries, keys, bidirectional, dtype):
    to, table = KINDS[kind], draw(3, 16, 3, dtype=dtype)
    got = R.t5_bias(to(queries), to(keys), to(table), max_distance=50, bidirectional=bidirectional)
    want = pairs(queries, keys, lambda i, j: table[t5_bucket(j - i, 16, 50, bidirectional)])
    assert got.dtype == to(table).dtype and (np.asarray(got) == np.moveaxis(want, -1, 0)).all()


@covers("P83")
def test_cross_attention_has_no_place_in_the_module():
    with pytest.raises(TypeError, match="cross"):
        nn.T5Bias(32, 4, cross=True)
    for doc in (nn.T5Bias.__doc__, R.t5_bias.__doc__):
        assert "T5's cross-attention has n" in " ".join(doc.split())


# -- Shaw et al.

SHAW = {  # tensor2tensor, clip 2: length 5, and the last two queries of it
    5: [[2, 3, 4, 4, 4], [1, 2, 3, 4, 4], [0, 1, 2, 3, 4], [0, 0, 1, 2, 3], [0, 0, 0, 1, 2]],
    2: [[0, 0, 1, 2, 3], [0, 0, 0, 1, 2]],
}


@kinds
def test_rows_of_the_shaw_table(kind):
    to = KINDS[kind]
    for n, want in SHAW.items():
        assert R.shaw_index(to(np.arange(5 - n, 5)), to(np.arange(5)), 2).tolist() == want
    assert R.shaw_index(to([7]), to([0, 7, 99]), np.uint8(200)).tolist() == [[193, 200, 292]]
    assert R.shaw_index(to([7]), to([0, 7, 99]), 0).tolist() == [[0, 0, 0]]


def shaw_loops(q, k, v, keys, values, queries_at, keys_at, mask=None):
    """Equations 3 and 4 for one head: scores with a_ij added to each key, output with a_ij added to each value."""
    clip, width = len(keys) // 2, q.shape[-1]
    row = lambda i, j: max(-clip, min(clip, j - i)) + clip
    e = np.array([[q[a] @ (k[b] + keys[row(i, j)]) / math.sqrt(width) for b, j in enumerate(keys_at)]
                  for a, i in enumerate(queries_at)])
    w = softmax(e, mask)
    z = np.array([sum(w[a, b] * (v[b] + values[row(i, j)]) for b, j in enumerate(keys_at)) for a, i in enumerate(queries_at)])
    return z, w


@kinds
@given(ids, ids, st.integers(0, 3), st.integers(0, 2**32 - 1))
@quick
def test_shaw_attention_equals_the_papers_loops(kind, queries, keys, clip, seed):
    to, (n, m) = KINDS[kind], (len(queries), len(keys))
    q, k, v = draw(seed, n, 4), draw(seed + 1, m, 4), draw(seed + 2, m, 3)
    a_k, a_v = draw(seed + 3, 2 * clip + 1, 4), draw(seed + 4, 2 * clip + 1, 3)
    at = to(queries), to(keys)
    output, weights = attention(to(q), to(k), to(v), bias=R.shaw_scores(to(q), to(a_k), *at))
    output = output + R.shaw_values(weights, to(a_v), *at)
    z, w = shaw_loops(q, k, v, a_k, a_v, queries, keys)
    np.testing.assert_allclose(np.asarray(weights), w, atol=1e-13)
    np.testing.assert_allclose(np.asarray(output), z, atol=1e-13)


@kinds
@pytest.mark.parametrize("own", [False, True], ids=["shared", "a table of each head"])
def test_positions_of_rows_belong_to_the_first_axis(kind, own):
    to, at, keys_at = KINDS[kind], np.array([[0, 5, 9, -3], [7, 7, 1, 2]]), np.array([[1, 5, 0], [8, -8, 2]])
    q, w, table = draw(5, 2, 3, 4, 6), draw(6, 2, 3, 4, 3), draw(7, 3, 5, 6)
    s = np.asarray(R.shaw_scores(to(q), to(table if own else table[0]), to(at), to(keys_at), scale=1.0))
    o = np.asarray(R.shaw_values(to(w), to(table if own else table[0]), to(at), to(keys_at)))
    index = R.shaw_index(at, keys_at, 2)
    for b in range(2):
        for h in range(3):
            a = table[h if own else 0][index[b]]
            np.testing.assert_allclose(s[b, h], np.einsum("id,ijd->ij", q[b, h], a), atol=1e-14)
            np.testing.assert_allclose(o[b, h], np.einsum("ij,ijd->id", w[b, h], a), atol=1e-14)
    shared = np.asarray(R.shaw_scores(to(q), to(table[0]), to(at[:1]), to(keys_at[0]), scale=1.0))
    np.testing.assert_allclose(shared[0], np.asarray(R.shaw_scores(to(q[0]), to(table[0]), to(at[0]), to(keys_at[0]), scale=1.0)))


def test_scale_is_that_of_scores():
    q, table = draw(8, 3, 16), draw(9, 5, 16)
    plain = R.shaw_scores(q, table, I3, I3, scale=1.0)
    np.testing.assert_allclose(R.shaw_scores(q, table, I3, I3), plain / 4, rtol=1e-15)
    r, u = draw(10, 5, 16), draw(11, 16)
    plain = R.transformer_xl_scores(q, q, r, u, u, I3, I3, first_lag=-2, scale=1.0)
    np.testing.assert_allclose(R.transformer_xl_scores(q, q, r, u, u, I3, I3, first_lag=-2), plain / 4, rtol=1e-15)


@pytest.mark.parametrize("dtype, name", [(torch.bfloat16, "bf16"), (torch.float16, "fp16"), (torch.float32, "fp32")])
def test_half_precision_products_are_rounded_once(dtype, name):
    at, to = torch.arange(12), lambda x: torch.tensor(x).to(dtype)
    q, w, table, u = to(draw(12, 12, 8)), to(draw(13, 12, 12)), to(draw(14, 23, 8)), to(draw(15, 8))
    for f, args in ((R.shaw_scores, (q, table)), (R.shaw_values, (w, table)),
                    (functools.partial(R.transformer_xl_scores, first_lag=-11), (q, q, table, u, u))):
        got, want = f(*args, at, at), f(*(x.double() for x in args), at, at).numpy()
        assert got.dtype == dtype
        if name == "fp32":
            np.testing.assert_allclose(got.numpy(), want, rtol=0, atol=3e-6)
        else:
            assert (got.double().numpy() == rounded(want, name)).mean() > 0.98


def test_no_array_of_pairs_times_width_arises():
    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        largest = 0

        def __torch_dispatch__(self, op, types, args=(), kwargs=None):
            out = op(*args, **(kwargs or {}))
            for x in out if isinstance(out, (tuple, list)) else (out,):
                if isinstance(x, torch.Tensor):
                    self.largest = max(self.largest, x.numel())
            return out

    n, width, at = 64, 32, torch.arange(64)
    q, table, w, long = torch.ones(n, width), torch.ones(9, width), torch.ones(n, n), torch.ones(2 * n - 1, width)
    for call in (lambda: R.shaw_scores(q, table, at, at), lambda: R.shaw_values(w, table, at, at),
                 lambda: R.transformer_xl_scores(q, q, long, long[0], long[0], at, at, first_lag=1 - n),
                 lambda: R.skew(q @ long.T), lambda: R.skew(w)):
        with Watch() as watch:
            call()
        assert 0 < watch.largest <= (n + 1) * 2 * n


# -- the skew

@kinds
@pytest.mark.parametrize("n", [1, 2, 5])
def test_skew_aligns_and_leaves_no_garbage(kind, n):
    wide, narrow = draw(16, 2, n, 2 * n - 1), draw(17, 2, n, n)
    got = np.asarray(R.skew(KINDS[kind](wide)))
    assert got.tolist() == [[[x[i, j - i + n - 1] for j in range(n)] for i in range(n)] for x in wide]
    if n > 1:
        got = np.asarray(R.skew(KINDS[kind](narrow)))
        assert got.tolist() == [[[x[i, j - i + n - 1] if j <= i else 0 for j in range(n)] for i in range(n)] for x in narrow]
        narrow[:, 0, :-1] = np.nan                          # what belongs to no pair stays out
        assert not np.isnan(np.asarray(R.skew(KINDS[kind](narrow)))).any()


def test_skew_that_was_published_and_its_dtype():
    x = np.arange(28, dtype="f4").reshape(4, 7)
    assert R.skew(x).tolist() == [[3, 4, 5, 6], [9, 10, 11, 12], [15, 16, 17, 18], [21, 22, 23, 24]]
    assert R.skew(x).dtype == np.float32 and R.skew(torch.ones(2, 2).bfloat16()).dtype == torch.bfloat16
    assert R.skew(np.ones((0, 3, 3))).shape == (0, 3, 3)


def test_skew_and_lookup_agree():
    n, q = 6, draw(18, 2, 6, 4)
    table, i = draw(19, 11, 4), np.arange(6)
    looked_up = R.shaw_scores(q, table, i, i, scale=1.0)
    np.testing.assert_allclose(R.skew(q @ table.T), looked_up, atol=1e-14)
    np.testing.assert_allclose(R.skew(q @ table[:n].T), np.tril(looked_up), atol=1e-14)


# -- Transformer-XL

@kinds
@given(ids, ids, st.integers(0, 2**32 - 1))
@quick
def test_transformer_xl_is_the_sum_of_its_four_terms(kind, queries, keys, seed):
    to, first = KINDS[kind], min(queries) - max(keys)
    n, m, count = len(queries), len(keys), max(queries) - min(keys) - first + 1
    q, k, r = draw(seed, 2, n, 4), draw(seed + 1, 2, m, 4), draw(seed + 2, 2, count, 4)
    u, v = draw(seed + 3, 2, 4), draw(seed + 4, 2, 4)
    got = R.transformer_xl_scores(*(to(x) for x in (q, k, r, u, v, queries, keys)), first_lag=first, scale=1.0)
    for h in range(2):
        for a, i in enumerate(queries):
            for b, j in enumerate(keys):
                rel = r[h, i - j - first]
                want = q[h, a] @ k[h, b] + q[h, a] @ rel + u[h] @ k[h, b] + v[h] @ rel
                assert abs(float(got[h, a, b]) - want) < 1e-12


def test_transformer_xl_generalises_shaw_and_plain_scores():
    q, k, table, none = draw(20, 4, 6), draw(21, 4, 6), draw(22, 7, 6), np.zeros(6)
    i = np.arange(4)
    xl = R.transformer_xl_scores(q, k, table[::-1].copy(), none, none, i, i, first_lag=-3)     # by lag, not by j - i
    np.testing.assert_allclose(xl, scores(q, k) + R.shaw_scores(q, table, i, i), atol=1e-14)
    rows = R.transformer_xl_scores(q[3:], k, table[3::-1].copy(), none, none, i[3:], i)        # lags 0 to 3 do in decoding
    np.testing.assert_allclose(rows, xl[3:], atol=1e-14)


# -- KERPLE and FIRE

@kinds
@given(ids, ids, st.floats(0.01, 9), st.floats(0.01, 2))
@quick
@mpmath.workdps(40)
def test_kerple_is_its_two_formulas(kind, queries, keys, r1, r2):
    to = KINDS[kind]
    for form, f in (("log", lambda t: -r1 * mpmath.log(1 + mpmath.mpf(r2) * t)), ("power", lambda t: -r1 * mpmath.mpf(t) ** r2)):
        got = R.kerple_bias(to(queries), to(keys), np.array([1.0, r1]), to([1.0, r2]), kind=form)
        want = pairs(queries, keys, lambda i, j: float(f(abs(i - j))))
        np.testing.assert_allclose(np.asarray(got)[1], want, rtol=1e-14)
        assert not np.signbit(np.asarray(got)[1][want == 0]).any()


def test_kerple_becomes_alibi_and_is_conditionally_positive_definite():
    i, slopes = np.arange(30), R.alibi_slopes(3)
    assert (R.kerple_bias(i, i, slopes, np.ones(3), kind="power") == R.alibi_bias(i, i, slopes, symmetric=True)).all()
    for form, r2 in (("log", 5.0), ("power", 0.3), ("power", 1.0), ("power", 2.0)):
        k = R.kerple_bias(i, i, np.ones(1), np.array([r2]), kind=form)[0]
        centre = np.eye(30) - 1 / 30                        # vectors whose entries sum to zero
        assert np.linalg.eigvalsh(centre @ k @ centre).min() > -1e-9 * np.abs(k).max()
    k = -np.abs(i[:, None] - i[None, :]) ** 2.5             # beyond 2 it is none
    assert np.linalg.eigvalsh(centre @ k @ centre).min() < -1
    with pytest.raises(ValueError, match="r2 holds 2.5; allowed are positive numbers up to 2"):
        R.kerple_bias(i, i, np.ones(1), np.array([2.5]), kind="power")
    assert R.kerple_bias(i, i, np.ones(1), np.array([2.5]), kind="log").shape == (1, 30, 30)


@kinds
@given(ids, ids, st.floats(0.01, 9), st.floats(0.5, 400))
@quick
@mpmath.workdps(40)
def test_fire_input_is_its_formula(kind, queries, keys, c, threshold):
    to, psi = KINDS[kind], lambda x: mpmath.log(mpmath.mpf(c) * x + 1)
    want = pairs(queries, keys, lambda i, j: float(psi(abs(i - j)) / psi(max(threshold, i))))
    for a, b in ((c, threshold), (np.float64(c), to(threshold))):
        np.testing.assert_allclose(np.asarray(R.fire_input(to(queries), to(keys), c=a, threshold=b)), want, rtol=1e-14)


def test_fire_stays_between_nought_and_one_at_any_length():
    for n in (5, 100, 10**6):
        x = R.fire_input(np.array([n - 1]), np.array([0, n // 2, n - 1]), c=0.1, threshold=64.0)[0]
        assert 0 == x[2] < x[1] < x[0] <= 1
    assert R.fire_input(np.array([10**6]), np.array([0]), c=0.1, threshold=64.0)[0, 0] == 1


@kinds
def test_fire_bias_is_the_network_of_the_input(kind):
    to, w = KINDS[kind], draw(23, 1, 3)
    at = to([[3, 4], [0, 90]])
    seen = []
    net = lambda x: seen.append(x) or x @ to(w.astype("f4"))
    got = R.fire_bias(at, at, net, c=0.5, threshold=8.0, dtype=to(w.astype("f4")).dtype)
    x = R.fire_input(at, at, c=0.5, threshold=8.0)
    assert seen[0].dtype == to(w.astype("f4")).dtype and tuple(got.shape) == (2, 3, 2, 2)
    np.testing.assert_allclose(np.asarray(got), np.asarray(x)[:, None] * w[0][:, None, None], rtol=1e-6)
    kink = R.fire_bias(at, at, lambda x: -2.0 * (x - 0.5) * (x > 0.5), c=0.5, threshold=8.0)
    np.testing.assert_allclose(np.asarray(kink)[1, 0], -2 * np.maximum(np.asarray(x)[1] - 0.5, 0), rtol=1e-15)


# -- all of them

NET = draw(24, 1, 2)
TABLE, ROWS, U = draw(25, 16, 2), draw(26, 2, 1201, 4), draw(27, 2, 4)


def forms(to):
    """Each form as a function of q (2, queries, 4), k (2, keys, 4) and positions; its result is (2, queries, keys)."""
    bias = lambda f: lambda q, k, i, j: f(i, j)
    return {
        "alibi": bias(lambda i, j: R.alibi_bias(i, j, R.alibi_slopes(2))),
        "alibi symmetric": bias(lambda i, j: R.alibi_bias(i, j, R.alibi_slopes(2), symmetric=True)),
        "t5": bias(lambda i, j: R.t5_bias(i, j, to(TABLE))),
        "t5 both": bias(lambda i, j: R.t5_bias(i, j, to(TABLE), bidirectional=True)),
        "shaw": lambda q, k, i, j: R.shaw_scores(q, to(ROWS[:, :7]), i, j),
        "xl": lambda q, k, i, j: R.transformer_xl_scores(q, k, to(ROWS), to(U), to(U[0]), i, j, first_lag=-600),
        "kerple": bias(lambda i, j: R.kerple_bias(i, j, np.array([1.0, 0.3]), np.array([2.0, 0.1]), kind="log")),
        "fire": bias(lambda i, j: R.fire_bias(i, j, lambda x: x @ to(NET), c=0.1, threshold=64.0)),
    }


@kinds
@pytest.mark.parametrize("form", forms(np.asarray))
@given(st.lists(st.integers(0, 300), min_size=2, max_size=7), st.integers(-50, 50), st.randoms(use_true_random=False))
@settings(max_examples=15, deadline=None)
def test_shift_permutation_decoding_and_kind(kind, form, at, shift, random):
    to, n = KINDS[kind], len(at)
    f = forms(to)[form]
    q, k, at = draw(28, 2, n, 4), draw(29, 2, n, 4), np.array(at)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12)
    call = lambda q, k, i, j: np.asarray(f(to(q), to(k), to(i), to(j)))
    whole = call(q, k, at, at)
    assert whole.shape == (2, n, n)
    close(whole, forms(np.asarray)[form](q, k, at, at))                         # numpy and torch
    for t in range(n):                                                          # decoding: the last query, all keys so far
        close(call(q[:, t:t + 1], k[:, :t + 1], at[t:t + 1], at[:t + 1]), whole[:, t:t + 1, :t + 1])
    order = np.array(random.sample(range(n), n))
    close(call(q[:, order], k[:, order], at[order], at[order]), whole[:, order][:, :, order])
    if form != "fire":                                                          # FIRE counts from the start of the text
        close(call(q, k, at + shift, at + shift), whole)


def test_fire_is_not_translation_invariant_past_its_threshold():
    x = lambda shift: R.fire_input(I3 + shift, I3 + shift, c=0.1, threshold=64.0)
    assert (x(5) == x(0)).all() and np.abs(x(500) - x(0)).max() > 0.01


@kinds
def test_inputs_are_not_changed_and_not_shared(kind):
    to = KINDS[kind]
    named = {"q": draw(30, 2, 3, 4), "k": draw(31, 2, 3, 4), "i": np.arange(3), "j": np.arange(3)}
    args = {name: to(x.copy()) for name, x in named.items()}
    for form, f in forms(to).items():
        got = f(*args.values())
        got += 1.0
        assert all((np.asarray(args[name]) == x).all() for name, x in named.items()), form
    w, slopes, table = to(draw(32, 3, 3)), to(R.alibi_slopes(2)), to(TABLE.copy())
    before = [np.asarray(x).copy() for x in (w, slopes, table)]
    for got in (R.skew(w), R.shaw_values(w, table[:5], args["i"], args["j"]), R.alibi_bias(args["i"], args["j"], slopes),
                R.t5_bias(args["i"], args["j"], table)):
        got += 1.0
    assert all((np.asarray(x) == b).all() for x, b in zip((w, slopes, table), before))


@pytest.mark.parametrize("form", forms(np.asarray))
def test_integers_of_any_dtype_are_positions(form):
    q, k, at = draw(33, 2, 2, 4), draw(34, 2, 2, 4), [3, 200]
    want = forms(np.asarray)[form](q, k, np.array(at), np.array(at))
    for dtype in ("uint8", "int16", "uint16", "int32"):
        assert (forms(np.asarray)[form](q, k, np.array(at, dtype), np.array(at, dtype)) == want).all()
    small = torch.tensor(at, dtype=torch.uint8)
    got = forms(KINDS["torch"])[form](torch.tensor(q), torch.tensor(k), small, small)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-13)


# -- torch

GRADS = {
    "shaw scores": (lambda q, t: R.shaw_scores(q, t, AT[0], AT[1]), (2, 3, 4), (5, 4)),
    "shaw scores, rows and heads": (lambda q, t: R.shaw_scores(q, t, AT[:, :3], AT), (2, 2, 3, 4), (2, 5, 4)),
    "shaw values": (lambda w, t: R.shaw_values(w, t, AT[0], AT[1]), (2, 3, 3), (5, 2)),
    "t5": (lambda t: R.t5_bias(AT[0], AT[1], t, max_distance=9, bidirectional=True), (8, 2)),
    "transformer xl": (lambda q, k, r, u, v: R.transformer_xl_scores(q, k, r, u, v, AT[0], AT[1], first_lag=-8),
                       (2, 3, 4), (2, 3, 4), (17, 4), (2, 4), (4,)),
    "skew": (lambda x: R.skew(x), (2, 3, 3)),
    "skew, wide": (lambda x: R.skew(x), (3, 5)),
    "alibi": (lambda m: R.alibi_bias(AT[0], AT[1], m, symmetric=True), (3,)),
    "kerple log": (lambda a, b: R.kerple_bias(AT[0], AT[1], a.exp(), b.exp(), kind="log"), (2,), (2,)),
    "kerple power": (lambda a, b: R.kerple_bias(AT[0], AT[1], a.exp(), 2 * b.sigmoid(), kind="power"), (2,), (2,)),
    "fire": (lambda c, w: R.fire_bias(AT[0], AT[1], lambda x: x @ w, c=c[0].exp(), threshold=c[1].exp()), (2,), (1, 2)),
}
AT = torch.tensor([[0, 3, 7], [2, 3, 8]])


@pytest.mark.parametrize("name", GRADS)
def test_gradients_once_and_twice(name):
    f, *shapes = GRADS[name]
    args = [torch.tensor(draw(40 + n, *shape), requires_grad=True) for n, shape in enumerate(shapes)]
    assert torch.autograd.gradcheck(f, args) and torch.autograd.gradgradcheck(f, args)


class Narrowed:
    """torch's constructors return bfloat16, as some engines make them while a model is built."""
    names = ("tensor", "arange", "linspace", "zeros", "ones", "full", "empty", "eye")

    def __enter__(self):
        import array_api_compat.torch as compat
        self.kept = [(where, n, getattr(where, n)) for where in (torch, compat) for n in self.names if hasattr(where, n)]
        for where, name, make in self.kept:
            def narrow(*args, make=make, **named):
                made = make(*args, **named)
                return made.to(torch.bfloat16) if made.is_floating_point() else made
            setattr(where, name, narrow)

    def __exit__(self, *_):
        for where, name, make in self.kept:
            setattr(where, name, make)


@covers("P06", "F07")
@pytest.mark.parametrize("form", forms(np.asarray))
def test_settings_from_outside_change_no_bit(form):
    q, k, at = torch.tensor(draw(35, 2, 3, 4)), torch.tensor(draw(36, 2, 3, 4)), torch.tensor([0, 257, 300])
    f = forms(KINDS["torch"])[form]
    want, table, w = f(q, k, at, at), torch.tensor(ROWS[0, :5]), torch.tensor(draw(37, 3, 3))
    values = R.shaw_values(w, table, at, at)
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert torch.equal(f(q, k, at, at), want) and torch.equal(R.shaw_values(w, table, at, at), values)
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.device("meta"):
        assert torch.equal(f(q, k, at, at), want) and torch.equal(R.shaw_values(w, table, at, at), values)
    with Narrowed():
        assert torch.equal(f(q, k, at, at), want) and torch.equal(R.shaw_values(w, table, at, at), values)
        assert R.alibi_slopes(3, like=q).dtype == torch.float64


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("f", [
    lambda x, i, j: R.alibi_bias(i, j, x[0], dtype=torch.bfloat16), lambda x, i, j: R.t5_bias(i, j, x, max_distance=9, bidirectional=True),
    lambda x, i, j: R.shaw_scores(x[:3], x[:3], i, j), lambda x, i, j: R.shaw_values(x[:3, :3], x[:3], i, j),
], ids=["alibi", "t5", "shaw scores", "shaw values"])
def test_compiles_to_one_graph(f):
    args = torch.tensor(draw(38, 4, 5)), torch.tensor([0, 257, 300]), torch.arange(3)
    assert torch.equal(torch.compile(f, backend="eager", fullgraph=True)(*args), f(*args))


def test_the_meta_device_knows_shape_and_dtype():
    i, x = torch.zeros(2, 3, dtype=torch.int64, device="meta"), torch.ones(2, 4, 3, 3, device="meta").bfloat16()
    got = [R.alibi_bias(i, i, R.alibi_slopes(4), dtype=torch.bfloat16), R.t5_bias(i, i, x[0, 0, 0, :].expand(8, 3)[:, :1].expand(8, 4)),
           R.shaw_scores(x, x[0, 0], i, i), R.shaw_values(x, x[0, 0], i, i), R.skew(x)]
    assert all(y.shape == (2, 4, 3, 3) and y.dtype == torch.bfloat16 and y.device.type == "meta" for y in got)


def test_the_module_knows_no_logarithm_on_the_way_to_buckets():
    tree = ast.parse(inspect.getsource(R.t5_buckets) + inspect.getsource(R._t5_starts))
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not names & {"log", "log2", "log1p", "exp", "float32", "float64"}


SLOPE = torch.tensor(R.alibi_slopes(3))
BIASES = torch.tensor(draw(41, 16, 3))
LATE, ROWS_OF = torch.arange(30, 43), torch.stack([torch.arange(13), torch.arange(13) * 5 - 7])
MODS = {  # score_mod, and the bias that it stands for
    "alibi": (lambda: R.alibi_score_mod(SLOPE), lambda i: R.alibi_bias(i, i, SLOPE)),
    "alibi symmetric": (lambda: R.alibi_score_mod(SLOPE, symmetric=True), lambda i: R.alibi_bias(i, i, SLOPE, symmetric=True)),
    "alibi at": (lambda: R.alibi_score_mod(SLOPE, query_positions=LATE, key_positions=ROWS_OF),
                 lambda i: R.alibi_bias(LATE, ROWS_OF, SLOPE)),
    "alibi decoding": (lambda: R.alibi_score_mod(SLOPE, query_positions=LATE), lambda i: R.alibi_bias(LATE, i, SLOPE)),
    "t5": (lambda: R.t5_score_mod(BIASES, max_distance=11), lambda i: R.t5_bias(i, i, BIASES, max_distance=11)),
    "t5 both, at": (lambda: R.t5_score_mod(BIASES, bidirectional=True, query_positions=ROWS_OF, key_positions=LATE),
                    lambda i: R.t5_bias(ROWS_OF, LATE, BIASES, bidirectional=True)),
}


def flexed(name, flex, dtype):
    mod, bias = MODS[name]
    q, k, v = (torch.tensor(draw(42 + n, 2, 3, 13, 16)).to(dtype) for n in range(3))
    want, _ = attention(q.double(), k.double(), v.double(), bias=bias(torch.arange(13)).double())
    plain, _ = attention(q.double(), k.double(), v.double())
    assert float((want - plain).abs().max()) > 0.05
    with torch.no_grad():
        return float((flex(q, k, v, score_mod=mod()) - want).abs().max())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODS)
def test_score_mods_give_what_the_bias_gives(name):
    from torch.nn.attention.flex_attention import flex_attention
    assert flexed(name, flex_attention, torch.float64) < 1e-12
    assert flexed(name, flex_attention, torch.float32) < 5e-6


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(not shutil.which(os.environ.get("CXX", "g++")), reason="torch.compile needs a C++ compiler on CPUs")
@pytest.mark.parametrize("name", ["alibi at", "t5 both, at"])
def test_score_mods_compile(name):
    from torch.nn.attention.flex_attention import flex_attention
    torch._dynamo.reset()
    assert flexed(name, torch.compile(flex_attention, dynamic=False), torch.float32) < 5e-6


# -- errors

T, META = torch.ones(3, 4), torch.arange(3, device="meta")
X, T3, F2 = np.ones((3, 4)), torch.arange(3), np.ones(2)
TAB, M = np.ones((5, 4)), R.alibi_slopes(2)
xl = functools.partial(R.transformer_xl_scores, query_positions=I3, key_positions=I3, first_lag=-2)
kerple = functools.partial(R.kerple_bias, I3, I3, kind="log")
fire = functools.partial(R.fire_input, I3, I3)
net = lambda f: R.fire_bias(I3, I3, f, c=1.0, threshold=2.0)
SINGLE = "allowed are float32 and float64"
BAD = {  # what is passed -> error and a piece of its message
    "heads 0": (lambda: R.alibi_slopes(0), ValueError, r"heads is 0; allowed is at least 1"),
    "heads float": (lambda: R.alibi_slopes(8.0), TypeError, r"heads is 8\.0; allowed is a whole number"),
    "heads bool": (lambda: R.alibi_slopes(True), TypeError, r"heads is True"),
    "rule": (lambda: R.alibi_slopes(8, "plain"), ValueError, r"rule is 'plain'; allowed are 'paper' \(.*Bloom.*\) and 'geometric' \(.*attention-gym"),
    "like": (lambda: R.alibi_slopes(8, like=[1]), TypeError, r"like is a list"),
    "slopes list": (lambda: R.alibi_bias(I3, I3, [0.5]), TypeError, r"slopes is a list"),
    "slopes half": (lambda: R.alibi_bias(T3, T3, torch.ones(2).bfloat16()), TypeError, r"slopes has dtype torch\.bfloat16; " + SINGLE),
    "slopes ints": (lambda: R.alibi_bias(I3, I3, I3), TypeError, r"slopes has dtype int64; " + SINGLE),
    "slopes kind": (lambda: R.alibi_bias(I3, I3, torch.ones(2)), TypeError, r"slopes is a Tensor, query_positions a ndarray"),
    "slopes shape": (lambda: R.alibi_bias(I3, I3, np.ones((2, 1))), ValueError, r"slopes has shape \(2, 1\); allowed is \(heads,\)"),
    "no slopes": (lambda: R.alibi_bias(I3, I3, np.ones(0)), ValueError, r"slopes has shape \(0,\); .* at least one"),
    "slopes device": (lambda: R.alibi_bias(META, META, torch.ones(2)), ValueError, r"slopes is on device cpu, query_positions on meta"),
    "symmetric": (lambda: R.alibi_bias(I3, I3, M, symmetric=1), TypeError, r"symmetric is 1; allowed are True and False"),
    "positions list": (lambda: R.alibi_bias([0], I3, M), TypeError, r"query_positions is a list"),
    "positions float": (lambda: R.alibi_bias(I3, I3 * 1.0, M), TypeError, r"key_positions has dtype float64; allowed are integers"),
    "positions kinds": (lambda: R.alibi_bias(I3, T3, M), TypeError, r"key_positions is a Tensor, query_positions a ndarray"),
    "positions number": (lambda: R.alibi_bias(np.array(1), I3, M), ValueError, r"query_positions has no axis"),
    "positions rows": (lambda: R.alibi_bias(np.ones((2, 3), int), np.ones((3, 3), int), M), ValueError, r"do not broadcast"),
    "dtype int": (lambda: R.alibi_bias(I3, I3, M, dtype=np.int32), TypeError, r"dtype is .*int32.*; allowed are float dtypes"),
    "dtype other": (lambda: R.alibi_bias(I3, I3, M, dtype=torch.float32), TypeError, r"dtype is torch\.float32"),
    "lags list": (lambda: R.t5_buckets([0]), TypeError, r"lags is a list"),
    "lags float": (lambda: R.t5_buckets(X), TypeError, r"lags has dtype float64; allowed are integers"),
    "buckets 1": (lambda: R.t5_buckets(I3, buckets=1), ValueError, r"buckets is 1; allowed is at least 2"),
    "buckets 2": (lambda: R.t5_buckets(I3, buckets=2, bidirectional=True), ValueError, r"buckets is 2; allowed is at least 4 \(two for each side\)"),
    "buckets 3": (lambda: R.t5_buckets(I3, buckets=3, bidirectional=True), ValueError, r"buckets is 3; allowed is at least 4"),
    "buckets odd": (lambda: R.t5_buckets(I3, buckets=33, bidirectional=True), ValueError, r"buckets is 33; allowed are even numbers"),
    "buckets float": (lambda: R.t5_buckets(I3, buckets=32.0), TypeError, r"buckets is 32\.0; allowed is a whole number"),
    "too near": (lambda: R.t5_buckets(I3, buckets=16, max_distance=8), ValueError, r"max_distance is 8; allowed is at least 9 \(each distance up to 7 has"),
    "too near, both": (lambda: R.t5_buckets(I3, buckets=32, max_distance=8, bidirectional=True), ValueError, r"max_distance is 8; allowed is at least 9"),
    "distance float": (lambda: R.t5_buckets(I3, max_distance=128.0), TypeError, r"max_distance is 128\.0"),
    "distance huge": (lambda: R.t5_buckets(I3, max_distance=2**60), ValueError, r"max_distance is 1152921504606846976; allowed is at most 2\*\*53"),
    "both": (lambda: R.t5_buckets(I3, bidirectional="yes"), TypeError, r"bidirectional is 'yes'"),
    "t5 table": (lambda: R.t5_bias(I3, I3, np.ones(32)), ValueError, r"table has shape \(32,\); allowed is \(buckets, heads\)"),
    "t5 no head": (lambda: R.t5_bias(I3, I3, np.ones((32, 0))), ValueError, r"table has shape \(32, 0\)"),
    "t5 ints": (lambda: R.t5_bias(I3, I3, np.ones((32, 2), int)), TypeError, r"table has dtype int64; allowed are float dtypes"),
    "t5 rows": (lambda: R.t5_bias(I3, I3, np.ones((2, 2)), bidirectional=True), ValueError, r"buckets is 2; allowed is at least 4"),
    "t5 kind": (lambda: R.t5_bias(I3, I3, torch.ones(32, 2)), TypeError, r"query_positions is a ndarray, table a Tensor"),
    "t5 device": (lambda: R.t5_bias(META, META, torch.ones(32, 2)), ValueError, r"query_positions is on device meta, table on cpu"),
    "clip": (lambda: R.shaw_index(I3, I3, -1), ValueError, r"clip is -1; allowed is at least 0"),
    "clip float": (lambda: R.shaw_index(I3, I3, 2.0), TypeError, r"clip is 2\.0; allowed is a whole number"),
    "clip huge": (lambda: R.shaw_index(I3, I3, 2**70), ValueError, r"clip is .*; allowed is at most 2\*\*53"),
    "shaw even": (lambda: R.shaw_scores(X, TAB[:4], I3, I3), ValueError, r"table has shape \(4, 4\); allowed is .* odd number of rows"),
    "shaw axes": (lambda: R.shaw_scores(X, TAB[0], I3, I3), ValueError, r"table has shape \(4,\)"),
    "shaw width": (lambda: R.shaw_scores(X, TAB[:, :3], I3, I3), ValueError, r"table has shape \(5, 3\), q \(3, 4\): .* of the same width"),
    "shaw q": (lambda: R.shaw_scores(X[0], TAB, I3, I3), ValueError, r"q has shape \(4,\); allowed is \(\.\.\., queries, width\)"),
    "shaw no width": (lambda: R.shaw_scores(X[:, :0], TAB[:, :0], I3, I3), ValueError, r"width at least 1"),
    "shaw heads": (lambda: R.shaw_scores(np.ones((2, 3, 4)), np.ones((3, 5, 4)), I3, I3), ValueError, r"table has shape \(3, 5, 4\); allowed is what broadcasts to \(2, 5, 4\)"),
    "shaw dtype": (lambda: R.shaw_scores(X, TAB.astype("f4"), I3, I3), TypeError, r"table has dtype float32, q float64: they must be the same"),
    "shaw kind": (lambda: R.shaw_scores(X, TAB, T3, T3), TypeError, r"query_positions is a Tensor, q a ndarray"),
    "shaw device": (lambda: R.shaw_scores(T, torch.ones(5, 4), META, META), ValueError, r"query_positions is on device meta, q on cpu"),
    "shaw table device": (lambda: R.shaw_scores(T, torch.ones(5, 4, device="meta"), T3, T3), ValueError, r"q is on device cpu, table on meta"),
    "shaw scale": (lambda: R.shaw_scores(X, TAB, I3, I3, scale=math.nan), ValueError, r"scale is nan; allowed is a finite number"),
    "shaw queries": (lambda: R.shaw_scores(X, TAB, I3[:2], I3), ValueError, r"lags of shape \(2, 3\), q has shape \(3, 4\): allowed are positions \(length,\) or \(batch, length\)"),
    "shaw batch": (lambda: R.shaw_scores(X, TAB, I3[None], I3[None]), ValueError, r"lags of shape \(1, 3, 3\), q has shape \(3, 4\)"),
    "shaw other batch": (lambda: R.shaw_scores(np.ones((2, 3, 4)), TAB, np.ones((3, 3), int), I3), ValueError, r"lags of shape \(3, 3, 3\)"),
    "weights axes": (lambda: R.shaw_values(F2, TAB, I3, I3), ValueError, r"weights has shape \(2,\); allowed is \(\.\.\., queries, keys\)"),
    "weights keys": (lambda: R.shaw_values(X, TAB, I3, I3), ValueError, r"weights has shape \(3, 4\), there are 3 key_positions: allowed is one column"),
    "weights queries": (lambda: R.shaw_values(X.T, TAB, I3, I3), ValueError, r"lags of shape \(3, 3\), weights has shape \(4, 3\)"),
    "weights heads": (lambda: R.shaw_values(np.ones((2, 3, 3)), np.ones((3, 5, 4)), I3, I3), ValueError, r"table has shape \(3, 5, 4\)"),
    "weights kind": (lambda: R.shaw_values(X[:, :3], torch.ones(5, 4).double(), I3, I3), TypeError, r"table is a Tensor, weights a ndarray"),
    "weights device": (lambda: R.shaw_values(T[:, :3], torch.ones(5, 4), META, META), ValueError, r"query_positions is on device meta, weights on cpu"),
    "weights table": (lambda: R.shaw_values(X[:, :3], TAB[:4], I3, I3), ValueError, r"odd number of rows"),
    "weights table device": (lambda: R.shaw_values(T[:, :3], torch.ones(5, 4, device="meta"), T3, T3), ValueError, r"table is on device meta, weights on cpu"),
    "skew list": (lambda: R.skew([[1.0]]), TypeError, r"x is a list"),
    "skew shape": (lambda: R.skew(X), ValueError, r"x has shape \(3, 4\); allowed is \(\.\.\., length, length\) or"),
    "skew axis": (lambda: R.skew(F2), ValueError, r"x has shape \(2,\)"),
    "skew empty": (lambda: R.skew(np.ones((0, 0))), ValueError, r"x has shape \(0, 0\)"),
    "xl lag": (lambda: R.transformer_xl_scores(X, X, TAB[:3], X[0], X[0], I3, I3), ValueError, r"r has the lags 0 to 2, the positions -1: allowed is a row for every lag"),
    "xl far": (lambda: xl(X, X, TAB[:4], X[0], X[0]), ValueError, r"r has the lags -2 to 1, the positions 2"),
    "xl first": (lambda: R.transformer_xl_scores(X, X, TAB, X[0], X[0], I3, I3, first_lag=-2.0), TypeError, r"first_lag is -2\.0"),
    "xl keys": (lambda: xl(X, X[:2], TAB, X[0], X[0]), ValueError, r"k has shape \(2, 4\), there are 3 key_positions: allowed is one row"),
    "xl queries": (lambda: xl(X[:2], X, TAB, X[0], X[0]), ValueError, r"q has shape \(2, 4\)"),
    "xl width": (lambda: xl(X, X, TAB[:, :3], X[0], X[0]), ValueError, r"r has shape \(5, 3\), q \(3, 4\): allowed is \(\.\.\., rows, width\)"),
    "xl u": (lambda: xl(X, X, TAB, F2, X[0]), ValueError, r"u has shape \(2,\), q \(3, 4\): allowed is \(\.\.\., width\)"),
    "xl v": (lambda: xl(X, X, TAB, X[0], X), ValueError, r"v has shape \(3, 4\); allowed is what broadcasts to \(4,\)"),
    "xl k axes": (lambda: xl(X, X[0], TAB, X[0], X[0]), ValueError, r"k has shape \(4,\)"),
    "xl dtype": (lambda: xl(X, X, TAB, X[0].astype("f4"), X[0]), TypeError, r"u has dtype float32, q float64"),
    "xl scale": (lambda: xl(X, X, TAB, X[0], X[0], scale="1"), ValueError, r"scale is '1'"),
    "kind": (lambda: R.kerple_bias(I3, I3, F2, F2, kind="linear"), ValueError, r"kind is 'linear'; allowed are 'log' .* and 'power'"),
    "r1 negative": (lambda: kerple(-F2, F2), ValueError, r"r1 holds -1\.0; allowed are positive finite numbers"),
    "r2 zero": (lambda: kerple(F2, 0 * F2), ValueError, r"r2 holds 0\.0; allowed are positive finite numbers"),
    "r2 nan": (lambda: kerple(F2, F2 * math.nan), ValueError, r"r2 holds nan"),
    "r1 inf": (lambda: kerple(F2 * math.inf, F2), ValueError, r"r1 holds inf"),
    "r2 heads": (lambda: kerple(F2, np.ones(3)), ValueError, r"r1 has 2 heads, r2 3: they must be the same"),
    "r1 number": (lambda: kerple(1.0, F2), TypeError, r"r1 is a float"),
    "c zero": (lambda: fire(c=0.0, threshold=1.0), ValueError, r"c is 0\.0; allowed is a positive finite number"),
    "c text": (lambda: fire(c="1", threshold=1.0), TypeError, r"c is '1'; allowed is a positive finite number"),
    "c bool": (lambda: fire(c=True, threshold=1.0), TypeError, r"c is True"),
    "threshold": (lambda: fire(c=1.0, threshold=np.array(-2.0)), ValueError, r"threshold holds -2\.0; allowed are positive"),
    "threshold kind": (lambda: fire(c=1.0, threshold=torch.tensor(2.0)), TypeError, r"threshold is a Tensor, query_positions a ndarray"),
    "threshold axes": (lambda: fire(c=1.0, threshold=F2), TypeError, r"threshold has dtype float64 and shape \(2,\); .* without axes"),
    "threshold half": (lambda: R.fire_input(T3, T3, c=1.0, threshold=torch.tensor(2.0).half()), TypeError, r"threshold has dtype torch\.float16"),
    "network": (lambda: net(3), TypeError, r"network is 3; allowed is a callable"),
    "network shape": (lambda: net(lambda x: x[..., 0]), ValueError, r"network gave shape \(3, 3\) for \(3, 3, 1\); allowed is"),
    "network kind": (lambda: net(lambda x: torch.ones(3, 3, 1)), TypeError, r"the network's output is a Tensor"),
    "mod numpy": (lambda: R.alibi_score_mod(M), TypeError, r"slopes is a ndarray; allowed are torch tensors"),
    "mod slopes": (lambda: R.alibi_score_mod(torch.ones(2, 2)), ValueError, r"slopes has shape \(2, 2\)"),
    "mod half": (lambda: R.alibi_score_mod(torch.ones(2).half()), TypeError, r"slopes has dtype torch\.float16"),
    "mod symmetric": (lambda: R.alibi_score_mod(SLOPE, symmetric=None), TypeError, r"symmetric is None"),
    "mod positions": (lambda: R.alibi_score_mod(SLOPE, query_positions=I3), TypeError, r"query_positions is a ndarray, slopes a Tensor"),
    "mod float": (lambda: R.alibi_score_mod(SLOPE, key_positions=torch.ones(3)), TypeError, r"key_positions has dtype torch\.float32"),
    "mod axes": (lambda: R.alibi_score_mod(SLOPE, key_positions=torch.tensor(3)), ValueError, r"key_positions has shape \(\); allowed is \(length,\) or"),
    "mod device": (lambda: R.alibi_score_mod(SLOPE, key_positions=META), ValueError, r"key_positions is on device meta, slopes on cpu"),
    "mod table": (lambda: R.t5_score_mod(torch.ones(32)), ValueError, r"table has shape \(32,\); allowed is \(buckets, heads\)"),
    "mod t5 numpy": (lambda: R.t5_score_mod(TABLE), TypeError, r"table is a ndarray; allowed are torch tensors"),
    "mod buckets": (lambda: R.t5_score_mod(torch.ones(5, 2), bidirectional=True), ValueError, r"buckets is 5; allowed are even numbers"),
    "mod distance": (lambda: R.t5_score_mod(torch.ones(32, 2), max_distance=16), ValueError, r"max_distance is 16; allowed is at least 17"),
}


test_bad_input_names_the_argument_the_value_and_what_is_allowed = covers("F25")(bad_input_test(BAD))
