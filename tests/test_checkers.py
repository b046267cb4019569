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


# ---- chapter 10 -----------------------------------------------------------------------------------

def rope_answers():
    """Likely wrong answers of chapter 10, and what the checker must say."""
    from poslib.rotary import frequencies, reposition, rotate

    def drop(keys, first, last, sign=1, all_of_them=False, cut=None):
        old = np.r_[0:first, len(keys) - last:len(keys)]
        new = np.arange(len(old))
        step = sign * (new - old)
        return rotate(keys[old], np.full(len(old), step[-1] if len(step) else 0) if all_of_them else step, layout="half")

    def twice(keys, first, last):
        old = np.r_[0:first, len(keys) - last:len(keys)]
        return rotate(keys[old], np.arange(len(old)), layout="half")

    def late_slice(keys, first, last):
        kept = np.concatenate([keys[:first], keys[-last:]])
        return reposition(kept, np.r_[0:first, len(keys) - last:len(keys)], np.arange(first + last), layout="half")

    def seen(f, tolerance=1e-7, half_is_8=False):
        y = f(np.eye(16), np.full(16, 1))
        width = int((np.abs(y - np.eye(16)).max(1) > tolerance).sum())
        return ("half" if np.abs(y[0, 8]) > 0.1 else "interleaved") if half_is_8 else ("interleaved" if np.abs(y[0, 1]) > 0.1 else "half"), width

    def padded(x, row):
        n = len(x) // 2
        a, c = np.split(x, 2)
        return np.concatenate([a * row[:n] - c * row[n:2 * n], c * row[:n] + a * row[n:2 * n]])

    def decode(x, offset):
        return rotate(x, offset + np.arange(x.shape[2]), layout="half")

    def mixed(x, ids3, share, sections, **more):
        axes = np.repeat(np.arange(3), sections)
        return rotate(x, ids3, layout="half", axes=axes, width=2 * len(axes), **more)

    def wide_ladder(x, ids3, share, sections):
        return mixed(x, ids3, share, sections, frequencies=frequencies(x.shape[1])[:sum(sections)])

    def first_text(x, offset):
        y = x.copy()
        y[0] = decode(x[:1], offset)[0]
        return y if x.shape[2] == 1 else decode(x, offset)

    good = {"padded": padded, "decode": decode, "mixed": mixed}
    return [
        ("position_ids", lambda m, c: np.arange(m.shape[1]) + np.zeros_like(m, dtype=int), "number the places"),
        ("position_ids", lambda m, c: np.cumsum(m, 1) - m, "come before: add them"), ("position_ids", lambda m, c: np.arange(m.shape[1]) + c[:, None], "filled places"),
        ("position_ids", lambda m, c: np.cumsum(m, 1) + c[:, None], "one too large"), ("position_ids", lambda m, c: (np.cumsum(m, 1) - m + c[:, None])[0], "shape"),
        ("position_ids", lambda m, c: (np.cumsum(m, 1) - m + c[:, None]).astype(float), "whole numbers"),
        ("dialect", lambda f: seen(f, 1e-2), "slowest pair moves by very little"), ("dialect", lambda f: seen(f, half_is_8=True), "not 8, when fewer"),
        ("dialect", lambda f: (seen(f)[0], 16), "copied bit by bit"), ("dialect", lambda f: "half", "the pair (layout, width)"),
        ("position_ids", lambda m, c: np.cumsum(m, 1) - m + c[:, None, None, None] @ np.ones((7, 3)), "needs an axis"),
        ("dialect", lambda f: (seen(f)[0], seen(f)[1] // 2), "Do you count pairs?"), ("dialect", lambda f: (seen(f)[0], 15), "the number is even"),
        ("dialect", lambda f: (seen(f)[0], "16"), "the number of channels that turn"),
        ("drop_middle", lambda k, a, b: drop(k, a, b).astype("f4"), "the result is float32"),
        ("drop_middle", lambda k, a, b: drop(k, a, b) + 0.1 * (np.arange(a + b) >= 2)[:, None], "row 2 is the first"),
        ("drop_middle", lambda k, a, b: np.concatenate([drop(k, a, b), k[:3, :2]]), "With 20 keys, 4 and 8 kept: your function stops"),
        ("drop_middle", lambda k, a, b: k[np.r_[0:a, len(k) - b:len(k)]], "none is turned"), ("drop_middle", twice, "turned already"),
        ("drop_middle", lambda k, a, b: drop(k, a, b, -1), "the wrong way"), ("drop_middle", lambda k, a, b: drop(k, a, b, all_of_them=True), "the first keys keep"),
        ("drop_middle", late_slice, ""),
        ("museum", {**good, "padded": lambda x, row: padded(x, np.concatenate([row[:len(x) // 2], row[len(row) // 2:]]))}, "Where do they begin"),
        ("museum", {**good, "decode": first_text}, "only the first text is right"), ("museum", {**good, "mixed": wide_ladder}, "a ladder of their own"),
        ("museum", {**good, "mixed": lambda x, i, share, s: rotate(x, i, layout="half", axes=np.r_[np.repeat(np.arange(3), s), np.full(x.shape[1] // 2 - sum(s), 2)])}, "others be copied"),
        ("museum", {"padded": padded}, "Hand in a dictionary"),
    ]


@pytest.mark.parametrize("name, answer, sentence", rope_answers())
def test_likely_wrong_answers_about_rope_in_practice_get_their_own_sentence(name, answer, sentence):
    told = check(f"rope_in_practice/{name}", answer)
    assert not told.accepted and sentence in told.message, told.message
