"""The primer and the notation page: a wrong formula turns its claim red, a wrong answer is named."""

import importlib
import re
import sys

import numpy as np
import pytest

from conftest import ROOT
from poslib.teach import check

sys.path.insert(0, str(ROOT / "tools"))
notebooks = importlib.import_module("notebooks")


def cells(page):
    return [notebooks.plain(c.source) for c in notebooks.parsed(ROOT / "book" / f"{page}.md").cells if c.cell_type == "code"]


def run(page, old="", new=""):
    """Execute a page's cells, with one change; what they define."""
    space, code = {}, cells(page)
    if old and sum(c.count(old) for c in code) != 1:        # no AssertionError: that is what a noticed mistake raises
        raise LookupError(f"{old!r} is not found exactly once")
    for cell in code:
        exec(compile(cell.replace(old, new) if old else cell, page, "exec"), space)
    return space


# (page, what is right, what is wrong, the claim that must notice; None: an assert of the cell)
MISTAKES = [
    ("00-primer", "np.log(2), np.log(5)]])", "np.log(2), np.log(4)]])", "primer-by-hand"),
    ("00-primer", "softmax(S + 100)", "softmax(S * 1.01)", "primer-differences"),
    ("00-primer", "((keys @ q) ** 2).mean()", "abs(keys @ q).mean()", "primer-scale"),
    ("00-primer", "softmax(S / 0.05)", "softmax(S * 0.05)", "primer-temperature"),
    ("00-primer", "if j <= i else 0.0", "if j < i else 0.0", "primer-causal"),
    ("00-primer", "mask=causal_mask(6))", "mask=None)", "primer-prefix"),
    ("00-primer", "split_heads(x @ W.T, heads=3)", "split_heads(x @ W.T, heads=4)", None),
    ("00-primer", "shapes = [q.shape, scores(q, k).shape,", "shapes = [q.shape, scores(q[:1], k).shape[::-1],", "primer-shapes"),
    ("00-primer", "column = W_Q @ x[1, 2]", "column = W_Q.T @ x[1, 2]", "primer-heads"),
    ("00-primer", "(z * w.conjugate()).real,", "(z * w).real,", "primer-dot"),
    ("00-primer", "[[np.cos(phi), -np.sin(phi)],\n                     [np.sin(phi), np.cos(phi)]]",
     "[[np.cos(phi), np.sin(phi)],\n                     [-np.sin(phi), np.cos(phi)]]", "primer-rot"),
    ("00-primer", "rot(s + t)", "rot(s - t)", "primer-compose"),
    ("00-primer", "difference = q @ rot(beta - alpha)", "difference = q @ rot(alpha - beta)", "primer-difference"),
    ("00-primer", "abs(q @ rot(alpha - beta) @ k - s)", "abs(q @ rot(beta - alpha) @ k - s)", None),
    ("00-primer", "abs(rows - q @ rot(alpha - beta) @ k)", "abs(rows - q @ rot(beta - alpha) @ k)", "primer-rows"),
    ("00-primer", "wavelength = 2 * np.pi / omega", "wavelength = 1 / omega", "primer-wavelength"),
    ("00-primer", "2 * np.sin(gap / 2)", "gap", "primer-wrap"),
    ("00-primer", "base ** (-2 * np.arange(d // 2) / d)", "base ** (-np.arange(d // 2) / d)", "primer-ladder"),
    ("00-primer", "6.2 - 2 * np.pi\n", "6.2 - np.pi\n", None),
    ("00-primer", "wrap(p * fast - p * slow)", "wrap((p + 0.5) * (fast - slow))", "primer-wheel"),
    ("A1-notation", "q @ R(-lag) @ k,", "q @ R(lag) @ k,", "notation-score"),
    ("A1-notation", "np.conj(k[::2] + 1j * k[1::2])", "(k[::2] + 1j * k[1::2])", "notation-score"),
    ("A1-notation", "lambda p: rot(p * w).T)", "lambda p: rot(p * w))", "notation-s1"),
    ("A1-notation", "plain + book", "plain - book", "notation-s1"),
    ("A1-notation", "np.cos(lags * w))", "np.sin(lags * w))", "notation-s1-demo"),
    ("A1-notation", "R(i).T @ R(j) - R(j - i)", "R(i).T @ R(j) - R(i - j)", "notation-s2"),
    ("A1-notation", "as_column = rot(-shift * w)", "as_column = rot(shift * w)", "notation-shift"),
    ("A1-notation", "-2 * (n - 1) / d", "-2 * n / d", "notation-counting"),
    ("A1-notation", "np.clip(j - i, -K, K)", "np.clip(i - j, -K, K)", "notation-shaw-t5"),
    ("A1-notation", "16 * (memory_minus_query > 0)", "16 * (memory_minus_query < 0)", "notation-shaw-t5"),
    ("A1-notation", "return max(-memory_minus_query, 0)", "return max(memory_minus_query, 0)", None),
    ("A1-notation", "wrong = [t5_causal(lag)", "wrong = [t5_causal(-lag)", "notation-t5-sign"),
    ("A1-notation", "(slice(0, d, 2), slice(1, d, 2))", "(slice(1, d, 2), slice(0, d, 2))", "notation-interleaved"),
    ("A1-notation", "rows, at, layout=name)", "rows, -at, layout=name)", "notation-rotate"),
    ("A1-notation", "offsets=padded.sum(axis=1)", "offsets=padded.sum(axis=1) - 1", "notation-count"),
    ("A1-notation", "np.array([0, 3, 5])", "np.array([0, 2, 5])", "notation-count"),
    ("A1-notation", "np.exp(1j * p * frequencies(x.shape[-1]))", "np.exp(-1j * p * frequencies(x.shape[-1]))", "notation-dialects"),
    ("A1-notation", "[-b, a]", "[b, -a]", "notation-dialects"),
    ("A1-notation", "np.r_[0:8:2, 1:8:2]", "np.r_[1:8:2, 0:8:2]", "notation-permutation"),
    ("A1-notation", "to_half(W_K, 2)", "W_K", "notation-weights"),
    ("A1-notation", "a ** 2 * plain", "a * plain", "notation-factors"),
    ("A1-notation", "freq_scale = 1 / s", "freq_scale = s", "notation-factors"),
    ("A1-notation", "'forward' if y[partner] > 0", "'forward' if y[partner] < 0", None),
    ("A1-notation", "else 'backward'}", "else 'forward'}", "notation-litmus"),
]


@pytest.mark.parametrize("page", ["00-primer", "A1-notation"])
def test_every_claim_has_a_mistake_that_it_notices(page):
    claims = re.findall(r'claim\("([\w-]+)"', "\n".join(cells(page)))
    assert claims and set(claims) == {name for where, _, _, name in MISTAKES if where == page and name}


@pytest.mark.parametrize("page, old, new, name", MISTAKES, ids=lambda v: None if v is None or len(str(v)) > 24 else str(v))
def test_a_wrong_formula_turns_its_claim_red(page, old, new, name):
    with pytest.raises(AssertionError) as raised:
        run(page, old, new)
    if name:
        assert f"claim '{name}' does not hold" in str(raised.value)
    else:
        assert "claim" not in str(raised.value), "name the claim that notices"


def test_the_layouts_of_the_notation_page_are_torchs_complex_multiplication():
    torch = pytest.importorskip("torch")
    rotate = run("A1-notation")["rotate"]
    x = np.random.default_rng(4).normal(size=(2, 3, 12))
    angles = 7 * torch.tensor(10_000.0, dtype=torch.float64) ** (-torch.arange(0, 12, 2, dtype=torch.float64) / 12)
    turn = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(torch.from_numpy(x).reshape(2, 3, 6, 2))
    halves = torch.complex(torch.from_numpy(x)[..., :6].contiguous(), torch.from_numpy(x)[..., 6:].contiguous())
    np.testing.assert_allclose(rotate(x, 7, "interleaved"), torch.view_as_real(pairs * turn).reshape(2, 3, 12), atol=1e-12)
    np.testing.assert_allclose(rotate(x, 7, "half"), torch.cat([(halves * turn).real, (halves * turn).imag], -1), atol=1e-12)


def test_the_half_layout_has_the_known_values():
    rotate = run("A1-notation")["rotate"]
    known = [-1.695593, 0.137552, 2.788682, 3.975982, -4.808842, 6.323059, 7.086837, 8.011964]     # x = 1…8, position 3
    np.testing.assert_allclose(rotate(np.arange(1.0, 9), 3, "half"), known, atol=1e-6)


# ---- wrong answers ----------------------------------------------------------------------------------

def rotation(phi):
    return np.array([[np.cos(phi), -np.sin(phi)], [np.sin(phi), np.cos(phi)]])


def overwritten(x, phi):
    x[:, 0] = np.cos(phi) * x[:, 0] - np.sin(phi) * x[:, 1]
    x[:, 1] = np.sin(phi) * x[:, 0] + np.cos(phi) * x[:, 1]
    return x


def normalised(e, axis=1):
    return e / e.sum(axis=axis, keepdims=True)


@pytest.mark.parametrize("exercise, answer, sentence", [
    ("turn", lambda x, phi: np.stack([r @ rotation(a) for r, a in zip(x, phi)]), "clockwise"),
    ("turn", lambda x, phi: np.stack([rotation(np.deg2rad(a)) @ r for r, a in zip(x, phi)]), "radians already"),
    ("turn", lambda x, phi: x @ rotation(phi[0]).T, "row j needs phi"),
    ("turn", lambda x, phi: np.stack([rotation(a) @ r[::-1] for r, a in zip(x, phi)]), "before they are turned"),
    ("turn", lambda x, phi: np.stack([(rotation(a) @ r)[::-1] for r, a in zip(x, phi)]), "after they are turned"),
    ("turn", overwritten, "already overwritten"),
    ("turn", lambda x, phi: x, "quarter turn"),
    ("turn", lambda x, phi: x[:, 0], "the shape"),
    ("gap", lambda a, b: abs(a - b), "whole turns still count"),
    ("gap", lambda a, b: (a - b) % (2 * np.pi), "other way round is shorter"),
    ("gap", lambda a, b: abs(a % (2 * np.pi) - b % (2 * np.pi)), "needs it too"),
    ("gap", lambda a, b: float(np.angle(np.exp(1j * (a - b)))), "not negative"),
    ("gap", lambda a, b: 0.0, "the shorter way round is"),
    ("masked_softmax", lambda S, v: normalised(np.exp(S)), "mask has no effect"),
    ("masked_softmax", lambda S, v: normalised(np.exp(S)) * v, "after the softmax"),
    ("masked_softmax", lambda S, v: normalised(np.exp(S * v)), "score 0 still has the exponential 1"),
    ("masked_softmax", lambda S, v: normalised(np.where(v, np.exp(S), 0), axis=0), "columns add up to one"),
    ("masked_softmax", lambda S, v: normalised(np.where(v, np.exp(S), 0)), "not numbers"),
    ("masked_softmax", lambda S, v: normalised(np.exp(np.where(v, S, -1e3))), "not numbers"),
    ("masked_softmax", lambda S, v: normalised(np.where(v, np.exp(S - S.max(1, keepdims=True)), 0)), "not numbers|visible"),
    ("masked_softmax", lambda S, v: normalised(np.where(v, np.exp(S - S.max()), 0)), "each row its own"),
    ("masked_softmax", lambda S, v: S[0], "the shape"),
    ("masked_softmax", lambda S, v: v / v.sum(1, keepdims=True), "small scores")])
def test_a_wrong_answer_is_named(exercise, answer, sentence):
    with np.errstate(all="ignore"):
        verdict = check(f"primer/{exercise}", answer)
    assert not verdict.accepted and re.search(sentence, verdict.message), verdict.message
