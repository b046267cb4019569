"""poslib.attention against a float64 oracle written with loops, and every error it promises."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import bad_input_test
from poslib import attention as A

KINDS = {"numpy": np.asarray, "torch": lambda x: torch.tensor(np.asarray(x))}


def oracle(q, k, v, mask=None, scale=None, bias=None):
    """Softmax attention over one head, entry by entry, in float64."""
    out = np.zeros((len(q), v.shape[1]))
    weights = np.zeros((len(q), len(k)))
    scale = 1 / math.sqrt(q.shape[1]) if scale is None else scale
    for i in range(len(q)):
        logit = {j: scale * math.fsum(q[i] * k[j]) + (0.0 if bias is None else bias[i, j])
                 for j in range(len(k)) if mask is None or mask[i, j]}
        if not logit:
            continue
        top = max(logit.values())
        z = math.fsum(math.exp(x - top) for x in logit.values())
        for j, x in logit.items():
            weights[i, j] = math.exp(x - top) / z
            out[i] += weights[i, j] * v[j]
    return out, weights


def draw(rng, *shape):
    return rng.normal(size=shape)


@pytest.mark.parametrize("kind", KINDS)
@given(st.integers(1, 6), st.integers(1, 7), st.integers(1, 5), st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
@settings(max_examples=40, deadline=None)
def test_equals_the_oracle(kind, queries, keys, width, seed, masked, biased):
    rng = np.random.default_rng(seed)
    q, k, v = draw(rng, queries, width), draw(rng, keys, width), draw(rng, keys, 3)
    mask = rng.random((queries, keys)) < 0.6 if masked else None
    bias = draw(rng, queries, keys) if biased else None
    scale = None if seed % 2 else 0.7
    to = KINDS[kind]
    out, w = A.attention(to(q), to(k), to(v), mask=None if mask is None else to(mask), scale=scale,
                         bias=None if bias is None else to(bias))
    want_out, want_w = oracle(q, k, v, mask, scale, bias)
    assert type(out) is type(to(q)) and type(w) is type(to(q))
    np.testing.assert_allclose(np.asarray(w), want_w, atol=1e-14)
    np.testing.assert_allclose(np.asarray(out), want_out, atol=1e-13)


def test_scores_are_scaled_once_and_biased_after_scaling():
    q, k = np.array([[3.0, 0, 0, 4]]), np.array([[1.0, 2, 2, 1]])
    assert A.scores(q, k)[0, 0] == 3.5
    assert A.scores(q, k, scale=1.0)[0, 0] == 7.0
    assert A.scores(q, k, bias=np.array([[10.0]]))[0, 0] == 13.5


def test_equals_torch_with_heads_batch_and_masks():
    g = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(2, 4, 9, 8, generator=g, dtype=torch.float64) for _ in range(3))
    real = A.padding_mask(torch.tensor([9, 6]), 9)
    mask = A.causal_mask(9, like=q) & real
    out, w = A.attention(q, k, v, mask=mask)
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    torch.testing.assert_close(out, want, rtol=0, atol=1e-14)
    assert bool((w[1, :, :, 6:] == 0).all())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_narrow_input_is_rounded_once(dtype):
    g = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(3, 40, 16, generator=g).to(dtype) for _ in range(3))
    out, w = A.attention(q, k, v)
    exact, exact_w = A.attention(q.double(), k.double(), v.double())
    assert out.dtype == w.dtype == dtype
    if dtype == torch.float32:
        assert (out.double() - exact).abs().max() < 1e-6
    else:       # float32 inside: all but ties of the one rounding agree with the exact result
        assert (out == exact.to(dtype)).double().mean() > 0.995
        assert (w == exact_w.to(dtype)).double().mean() > 0.995


def test_numpy_half_precision_keeps_its_dtype():
    q = np.ones((2, 4), np.float16)
    assert A.attention(q, q, q)[0].dtype == np.float16 and A.scores(q, q).dtype == np.float16


def test_large_logits_do_not_overflow():
    w = A.softmax(np.array([[1e4, 1e4 - 1.0, -1e4]]))
    np.testing.assert_allclose(w, [[1 / (1 + math.exp(-1)), 1 / (1 + math.e), 0]], atol=1e-15)


@pytest.mark.parametrize("kind", KINDS)
def test_a_query_without_a_visible_key_gets_zeros_and_no_nan(kind):
    to = KINDS[kind]
    x = to(np.ones((2, 3)))
    out, w = A.attention(x, x, x, mask=to(np.array([[False, False], [True, True]])))
    assert np.asarray(out).tolist() == [[0, 0, 0], [1, 1, 1]] and np.asarray(w).tolist() == [[0, 0], [0.5, 0.5]]
    hidden = A.softmax(to(np.array([[-np.inf, -np.inf]])))
    assert np.asarray(hidden).tolist() == [[0, 0]]


def test_gradients_stay_finite_where_a_row_is_hidden():
    q = torch.ones(2, 3, dtype=torch.float64, requires_grad=True)
    out, _ = A.attention(q, q, q, mask=torch.tensor([[False, False], [True, False]]))
    out.sum().backward()
    assert bool(torch.isfinite(q.grad).all())


def test_causal_mask_shows_the_past_and_the_token_itself():
    assert A.causal_mask(3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert A.causal_mask(1, 3).tolist() == [[True, True, True]]
    assert A.causal_mask(2, 3).tolist() == [[True, True, False], [True, True, True]]
    assert isinstance(A.causal_mask(2, like=torch.ones(1)), torch.Tensor)


def test_decoding_one_query_equals_the_last_row_of_the_whole():
    rng = np.random.default_rng(1)
    q, k, v = (draw(rng, 2, 6, 4) for _ in range(3))
    whole, _ = A.attention(q, k, v, mask=A.causal_mask(6))
    last, _ = A.attention(q[:, -1:], k, v, mask=A.causal_mask(1, 6))
    np.testing.assert_allclose(last, whole[:, -1:], atol=1e-15)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_mask_counts_from_either_side(kind):
    lengths = KINDS[kind](np.array([0, 2, 3]))
    right = np.asarray(A.padding_mask(lengths, 3))[:, 0, 0].tolist()
    left = np.asarray(A.padding_mask(lengths, 3, side="left"))[:, 0, 0].tolist()
    assert right == [[False] * 3, [True, True, False], [True] * 3]
    assert left == [[False] * 3, [False, True, True], [True] * 3]


def test_padding_mask_is_right_for_narrow_integers():
    for dtype in (torch.uint8, torch.int8):
        mask = A.padding_mask(torch.tensor([10], dtype=dtype), 300, side="left")
        assert int(mask.sum()) == 10 and bool(mask[0, 0, 0, -10:].all())
    assert int(A.padding_mask(np.array([10], np.uint8), 300, side="left").sum()) == 10


def test_scale_may_be_a_numpy_number():
    x = np.eye(2)
    for scale in (np.float32(2), np.int64(2)):
        assert (A.scores(x, x, scale=scale) == 2 * x).all()


def test_padding_never_leaks_into_real_tokens():
    rng = np.random.default_rng(2)
    short = draw(rng, 1, 1, 4, 8)
    padded = np.concatenate([short, np.full((1, 1, 3, 8), 1e6)], axis=-2)
    out, _ = A.attention(padded, padded, padded, mask=A.padding_mask(np.array([4]), 7))
    want, _ = A.attention(short, short, short)
    np.testing.assert_allclose(out[..., :4, :], want, atol=1e-15)


def test_heads_split_and_merge():
    x = np.arange(2 * 3 * 8.0).reshape(2, 3, 8)
    parts = A.split_heads(x, 4)
    assert parts.shape == (2, 4, 3, 2) and parts[1, 2, 0].tolist() == x[1, 0, 4:6].tolist()
    assert (A.merge_heads(parts) == x).all()


def test_inputs_are_not_changed():
    rng = np.random.default_rng(4)
    q, k, v, b = draw(rng, 3, 2), draw(rng, 3, 2), draw(rng, 3, 2), draw(rng, 3, 3)
    copies = [a.copy() for a in (q, k, v, b)]
    A.attention(q, k, v, mask=A.causal_mask(3), bias=b)
    assert all((a == c).all() for a, c in zip((q, k, v, b), copies))


X = np.ones((3, 4))
BAD = {  # what is passed -> error and a piece of its message
    "a list": (lambda: A.scores([[1.0]], X), TypeError, r"q is a list; allowed are numpy arrays and torch tensors"),
    "mixed kinds": (lambda: A.attention(X, torch.ones(3, 4), X), TypeError, r"k is a Tensor, q a ndarray"),
    "integers": (lambda: A.scores(X.astype(int), X.astype(int)), TypeError, r"q has dtype int64; allowed are float"),
    "long double": (lambda: A.softmax(X.astype(np.longdouble)), TypeError, r"logits has dtype .* up to 64 bits"),
    "mixed dtypes": (lambda: A.scores(X, X.astype("f4")), TypeError, r"k has dtype float32, q float64"),
    "widths": (lambda: A.scores(X, X[:, :2]), ValueError, r"q has shape \(3, 4\), k \(3, 2\)"),
    "no width": (lambda: A.scores(X[:, :0], X[:, :0]), ValueError, r"same width, at least 1"),
    "one axis": (lambda: A.scores(X[0], X), ValueError, r"\(\.\.\., length, width\)"),
    "leading axes": (lambda: A.scores(np.ones((2, 3, 4)), np.ones((5, 3, 4))), ValueError, r"\(2,\) of q and \(5,\) of k"),
    "values": (lambda: A.attention(X, X, X[:2]), ValueError, r"v has shape \(2, 4\), k \(3, 4\)"),
    "scale text": (lambda: A.scores(X, X, scale="1"), ValueError, r"scale is '1'; allowed is a finite number"),
    "scale nan": (lambda: A.scores(X, X, scale=math.nan), ValueError, r"scale is nan"),
    "scale bool": (lambda: A.scores(X, X, scale=True), ValueError, r"scale is True"),
    "bias shape": (lambda: A.scores(X, X, bias=np.zeros((2, 3, 3))), ValueError, r"bias has shape \(2, 3, 3\); allowed"),
    "bias dtype": (lambda: A.scores(X, X, bias=np.zeros((3, 3), int)), TypeError, r"bias has dtype int64"),
    "bias kind": (lambda: A.scores(X, X, bias=torch.zeros(3, 3)), TypeError, r"bias is a Tensor"),
    "mask dtype": (lambda: A.attention(X, X, X, mask=np.ones((3, 3))), TypeError, r"mask has dtype float64; allowed is bool"),
    "mask shape": (lambda: A.softmax(X, np.ones((2, 4), bool)), ValueError, r"mask has shape \(2, 4\); allowed"),
    "scalar": (lambda: A.softmax(np.array(1.0)), ValueError, r"no axis to normalise"),
    "no queries": (lambda: A.causal_mask(0), ValueError, r"queries is 0; allowed is at least 1"),
    "few keys": (lambda: A.causal_mask(4, 3), ValueError, r"keys is 3; allowed is at least 4 \(queries are the last"),
    "half a query": (lambda: A.causal_mask(2.0), TypeError, r"queries is 2\.0; allowed is a whole number"),
    "side": (lambda: A.padding_mask(np.array([1]), 2, side="top"), ValueError, r"side is 'top'; allowed are 'right' and 'left'"),
    "too long": (lambda: A.padding_mask(np.array([3]), 2), ValueError, r"lengths holds 3; allowed are 0 to keys = 2"),
    "float lengths": (lambda: A.padding_mask(np.array([1.0]), 2), TypeError, r"lengths has dtype float64"),
    "heads": (lambda: A.split_heads(X, 3), ValueError, r"multiple of heads = 3"),
    "merge": (lambda: A.merge_heads(X), ValueError, r"x has shape \(3, 4\)"),
}


test_bad_input_names_the_argument_the_value_and_what_is_allowed = bad_input_test(BAD)
