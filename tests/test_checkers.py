"""Likely wrong answers to the exercises are refused, each with the sentence that names the mistake."""

import importlib

import numpy as np
import pytest

from poslib.absolute import shift_matrix, sinusoid
from poslib.teach import check

# ---- chapter 04 -----------------------------------------------------------------------------------

def wrong_sinusoids():
    """Likely wrong answers of chapter 04, and what the checker must say."""
    def width(p, d, sign=-1, kind=float):
        column = np.arange(d)
        angle = (p * kind(1e4) ** (sign * 2 * (column // 2) / d)).astype(kind)
        return np.where(column % 2 == 0, np.sin(angle), np.cos(angle)).astype(float)

    def angle(k, M):
        return round(np.arctan2(M[2 * k, 2 * k + 1], M[2 * k, 2 * k]) / 10.0 ** -k)

    def nearest(shifts, M, part=slice(None)):
        return min(shifts, key=lambda s: np.abs((M - shift_matrix(s, 8))[part, part]).max())

    def clock(code, shift, shifts=range(-100, 101), positions=range(2101), within=1e-9):
        return all(np.abs(shift(s) @ code(p) - code(p + s)).max() < within for s in shifts for p in positions if 0 <= p + s <= 2100)

    def limit(tau, base):
        return np.cos(np.exp(np.log(tau / base) + np.log(base) * (np.arange(100_000) + 0.5) / 100_000)).mean()

    return [
        ("any_width", lambda p, d: width(p, d, kind=np.float32), "float32"), ("any_width", lambda p, d: width(p, d, sign=1), "minus"),
        ("any_width", lambda p, d: width(p, d)[:d - d % 2], "last sine is dropped"), ("any_width", lambda p, d: sinusoid(np.array(p), d + 1)[:d] if d % 2 else width(p, d), "as if it were"),
        ("which_shift", lambda M: angle(0, M), "turns of the fastest hand"), ("which_shift", lambda M: angle(1, M), "turns of the second hand"),
        ("which_shift", lambda M: angle(2, M), "turns of the third hand"), ("which_shift", lambda M: angle(3, M), "too coarse"),
        ("which_shift", lambda M: next((s for s in range(-500, 501) if (shift_matrix(s, 8) == M).all()), None), "rounded, so none agrees exactly"),
        ("which_shift", lambda M: nearest(range(501), M), "may be negative"), ("which_shift", lambda M: nearest(range(-500, 501), M, slice(0, 2)), "turns of the fastest hand"),
        ("same_clock", lambda c, s: clock(c, s, [3, -64], [777]), "up to position 511"), ("same_clock", lambda c, s: clock(c, s, [-37, -1, 2, 64], range(100, 2001, 19)), "try them all"),
        ("same_clock", lambda c, s: clock(c, s, [5, -45, 73], range(5, 2101, 10)), "steps of ten or twenty"), ("same_clock", lambda c, s: clock(c, s, [5, -45, 73, 1], range(100, 2001)), "begins at position 0"),
        ("same_clock", lambda c, s: clock(c, s, [5, -45, 73, 1], range(2001)), "2,100"), ("same_clock", lambda c, s: clock(c, s, [5, -45, 1], range(0, 2101)), "one shift"),
        ("same_clock", lambda c, s: clock(c, s, within=1e-18), "last digits"),
        ("three_back", lambda w: (0 * w, np.sign(np.sin(3 * w))), "sine itself"), ("three_back", lambda w: (np.zeros(5), np.sin(3 * w)), "one number for each"),
        ("kernel_limit", limit, "even"), ("kernel_limit", lambda tau, base: limit(abs(tau), base) if tau else np.log(0.0 * tau), "case of its own"),
        ("kernel_limit", lambda tau, base: importlib.import_module("scipy_is_not_here").sici(tau), "a sum over a fine grid will do"),
    ]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name, answer, said", wrong_sinusoids(), ids=lambda x: x if isinstance(x, str) else "")
def test_wrong_answers_of_chapter_04_are_named(name, answer, said):
    got = check(f"sinusoids/{name}", answer)
    assert not got.accepted and said in got.message, got.message


# ---- chapter 05 -----------------------------------------------------------------------------------

WRONG = {
    "the slowest decides": ("collides", "lambda i, j, P: (i - j) % max(P) == 0", "does not always decide"),
    "the last decides": ("collides", "lambda i, j, P: (i - j) % P[-1] == 0", "does not always decide"),
    "with itself": ("collides", "lambda i, j, P: all((i - j) % p == 0 for p in P)", "does not collide with itself"),
    "smallest earlier": ("first_repeat", "lambda w, t, n: min(((a, b) for a, b in repeats(codes(w, t, n))), default=None)", "complete sooner"),
    "one past the limit": ("first_repeat", "lambda w, t, n: first(codes(w, t, n + 1))", "`limit` itself"),
    "zero only": ("first_repeat", "lambda w, t, n: next((r for r in repeats(codes(w, t, n)) if r[0] == 0), None)", "position 0 only"),
    "angle rounded": ("first_repeat", "lambda w, t, n: first([code(rounded(p * w, t), t) for p in range(n)])", "the angle or"),
    "no cosine": ("first_repeat", "lambda w, t, n: first([c[:len(w)] for c in codes(w, t, n)])", "compare the cosines"),
    "not rounded": ("first_repeat", "lambda w, t, n: first([tuple(rows(p * w).tolist()) for p in range(n)])", "rounded before"),
    "alternating": ("exact_codes", "lambda p, w: rounded(rows(p[:, None] * w).reshape(len(p), 2, -1).swapaxes(1, 2).reshape(len(p), -1), 'bf16')", "alternate"),
    "frequencies in float32": ("exact_codes", "lambda p, w: rounded(rows(p[:, None] * w.astype(np.float32).astype(float)), 'bf16')", "Frequencies were rounded to float32"),
    "a bfloat16 tensor": ("exact_codes", "lambda p, w: __import__('torch').tensor(rows(p[:, None] * w)).bfloat16()", "as `rounded` does"),
}
HELPERS = """
import numpy as np
from poslib.collisions import rounded
rows = lambda angle: np.concatenate([np.sin(angle), np.cos(angle)], axis=-1)
code = lambda angle, t: tuple((rounded(rows(angle), t) + 0.0).tolist())
codes = lambda w, t, n: [code(p * w, t) for p in range(n)]
def repeats(found):
    seen = {}
    for p, c in enumerate(found):
        if c in seen:
            yield seen[c], p
        seen.setdefault(c, p)
first = lambda found: next(repeats(found), None)
"""


@pytest.mark.parametrize("case", WRONG)
def test_likely_wrong_answers_about_collisions_get_their_own_sentence(case):
    name, code, sentence = WRONG[case]
    space = {}
    exec(HELPERS, space)
    told = check(f"collisions/{name}", eval(code, space))
    assert not told.accepted and sentence in told.message, told.message


# ---- chapter 09 -----------------------------------------------------------------------------------

def wrong_frequencies():
    """Likely wrong answers of chapter 09, and what the checker must say."""
    def turns(w, n):
        return n * w / (2 * np.pi)

    def turned(q, r, w, adjacent=False, times=1.0):
        n = len(q) // 2
        z = (q[0::2] + 1j * q[1::2] if adjacent else q[:n] + 1j * q[n:]) * np.exp(1j * r * w) * times
        return np.stack([z.real, z.imag], axis=1).ravel() if adjacent else np.concatenate([z.real, z.imag])

    def first(w, limit, start=0, step=1, most=20_000):
        lags = np.arange(start, min(limit, most), step)
        below = lags[np.cos(np.outer(lags, w)).sum(axis=1) < 0]
        return int(below[0]) if below.size else None

    def scaled(q, k, i, j, w, z, B):
        return ((q * np.exp(1j * i * w) * z**(i / B)) * (k * np.exp(1j * j * w) * z**(-j / B)).conj()).real.sum()

    def damped(q, k, lag, w, power):
        return ((q * k.conj()) * np.exp(1j * lag * w)).real @ power

    return [
        ("unfinished", lambda w, n: int((turns(w, n) < 1).sum()), "stand still"), ("unfinished", lambda w, n: int((turns(w, n) >= 1).sum()), "that do finish"),
        ("unfinished", lambda w, n: int(((w > 0) & (turns(w, n) <= 1)).sum()), "exactly once"), ("unfinished", lambda w, n: int(((w > 0) & (n * w < 1)).sum()), "2π radians"),
        ("unfinished", lambda w, n: ((w > 0) & (turns(w, n) < 1)).sum() / 1, "whole number"), ("unfinished", lambda w, n: int(len(w) // 4), "How many turns"),
        ("key_for_lag", lambda q, r, w: turned(q, -r, w), "wrong way"), ("key_for_lag", lambda q, r, w: q, "wanted most at lag 0"),
        ("key_for_lag", lambda q, r, w: turned(q, r, w, adjacent=True), "2k and 2k + 1"), ("key_for_lag", lambda q, r, w: turned(q, r, w, times=2), "length is"),
        ("key_for_lag", lambda q, r, w: turned(q, r, w)[:4], "shape"), ("key_for_lag", lambda q, r, w: turned(q, r, w) + 0j, "complex"),
        ("fails_at", lambda w, n: first(w, n, step=2), "skip lags"), ("fails_at", lambda w, n: first(w, n + 1), "None"),
        ("fails_at", lambda w, n: first(w, n, most=2000), "negative at lag 6581"), ("fails_at", lambda w, n: (first(w, n) or -1) + 1 or None, "one too high"),
        ("fails_at", lambda w, n: int((np.cos(np.outer(np.arange(n), w)).sum(1) < 0).argmax()) or None, "a few thousand at a time"),
        ("xpos_pair", scaled, "left the range"), ("xpos_pair", lambda q, k, i, j, w, z, B: damped(q, k, i - j, w, np.ones(len(w))), "decay is missing"),
        ("xpos_pair", lambda q, k, i, j, w, z, B: damped(q, k, i - j, w, z**((j - i) / B)), "sign of the exponent"),
        ("xpos_pair", lambda q, k, i, j, w, z, B: damped(q, k, j - i, w, z**((i - j) / B)), "turn the wrong way"),
        ("xpos_pair", lambda q, k, i, j, w, z, B: damped(q, k.conj(), i - j, w, z**((i - j) / B)), "conjugate"),
        ("xpos_pair", lambda q, k, i, j, w, z, B: damped(q, k, i - j, w, z ** float(i - j)), "by ζ in B tokens"),
        ("xpos_pair", lambda q, k, i, j, w, z, B: q * k, "one number"),
        ("xpos_pair", lambda q, k, i, j, w, z, B: damped(q, k, i - j, w, z**((i - j) / 512)), "not always 512"),
        ("xpos_pair", lambda q, k, i, j, w, z, B: damped(q, k, i - j, w, z**((i - j) // B)), "rounds"),
        ("key_for_lag", lambda q, r, w: turned(q, -r, w, adjacent=True), "2k and 2k + 1"),
        ("key_for_lag", lambda q, r, w: turned(q, r, w).reshape(2, -1).T.ravel(), "in the query and in the key"),
        ("key_for_lag", lambda q, r, w: q * w, "broadcast"), ("fails_at", lambda w, n: w + np.ones(3), "broadcast"),
        ("unfinished", lambda w, n: int((turns(w, n) < 1).sum()), "For p-RoPE"),
    ]


@pytest.mark.parametrize("name, answer, sentence", wrong_frequencies())
def test_likely_wrong_answers_about_frequencies_get_their_own_sentence(name, answer, sentence):
    told = check(f"frequencies/{name}", answer)
    assert not told.accepted and sentence in told.message, told.message
