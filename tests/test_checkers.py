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


# ---- chapter 08 -----------------------------------------------------------------------------------

def wrong_rope_derivation():
    """Likely wrong answers of chapter 08, and what the checker must say."""
    def turn(x, p, angle=lambda k, d: 1e4 ** (-2 * k / d), sign=1):
        d = len(x)
        z = (x[::2] + 1j * x[1::2]) * np.exp(sign * 1j * p * angle(np.arange(d // 2), d))
        return np.stack([z.real, z.imag], axis=1).ravel()

    def half(x, p):
        order = np.argsort(np.r_[0:len(x):2, 1:len(x):2])
        return turn(x[order], p)[np.argsort(order)]

    def overwritten(x, p):
        x = x.copy()
        angle = p * 1e4 ** (-np.arange(0, len(x), 2) / len(x))
        x[::2] = x[::2] * np.cos(angle) - x[1::2] * np.sin(angle)
        x[1::2] = x[::2] * np.sin(angle) + x[1::2] * np.cos(angle)
        return x

    def in_place(x, p):
        x[:] = turn(x, p)
        return x

    def flip(*rows):
        def mirror(W):
            W = W.copy()
            for part in rows:
                W[part] *= -1
            return W
        return mirror

    def maps(swap=False, alone=False, wrong_side=False, same=False, raw=False):
        def two_maps(G0, G1):
            X, power = np.linalg.solve(G0, G1), np.linalg.matrix_power
            if raw:
                X = G1
            if wrong_side:
                X = G1 @ np.linalg.inv(G0)
            s, left = -1 if swap else 1, np.eye(len(G0)) if alone else G0
            return lambda p: (left @ power(X, s * p)).T, lambda p: power(X, p if same else -s * p)
        return two_maps

    def loops(G0, G1):
        X = np.linalg.solve(G0, G1)

        def repeated(M, start):
            def f(p):
                now = start
                for _ in range(p):
                    now = M @ now
                return now
            return f
        return repeated(X.T, G0.T), repeated(np.linalg.inv(X), np.eye(len(G0)))

    def no_transpose(on_X):
        def two_maps(G0, G1):
            X, power = np.linalg.solve(G0, G1), np.linalg.matrix_power
            return lambda p: power(X, p) @ G0.T if on_X else G0 @ power(X, p), lambda p: power(X, -p)
        return two_maps

    def mirror_in_place(W):
        W[1::2] *= -1
        return W

    cosines = lambda O: np.linalg.eigvalsh(O + O.T) / 2 * (1 + 1e-15)  # noqa: E731
    signs = lambda n: np.where(np.arange(n) % 2, -1, 1)  # noqa: E731

    return [
        ("turn_one", lambda x, p: turn(x, p, sign=-1), "clockwise"), ("turn_one", half, "k + d/2"), ("turn_one", overwritten, "overwritten"), ("turn_one", in_place, "new array"),
        ("turn_one", lambda x, p: turn(x, p, lambda k, d: 1e4 ** (-k / d)), "−k/d"), ("turn_one", lambda x, p: turn(x, p, lambda k, d: 1e4 ** (-2 * (k + 1) / d)), "count from 1"),
        ("turn_one", lambda x, p: turn(x, p, lambda k, d: 1e4 ** (2 * k / d)), "minus of the exponent"), ("turn_one", lambda x, p: turn(x, p, lambda k, d: k * 0 + 1.0), "own ω_k"),
        ("turn_one", lambda x, p: turn(x, p, lambda k, d: 1e4 ** (-4 * k / d)), "twice as steep"), ("turn_one", lambda x, p: x[::2] + 1j * x[1::2], "complex"),
        ("turn_one", lambda x, p: turn(x, abs(p)), "sign of p is lost"), ("turn_one", lambda x, p: turn(x.astype(np.float32), np.float32(p)).astype(np.float32), "float32"),
        ("turn_one", lambda x, p: np.r_[turn(x, p)[::2], turn(x, p)[1::2]], "out of order"),
        ("needed_score", lambda n, s: np.log(n * (1 - s) / s), "one of the n"), ("needed_score", lambda n, s: np.log((n - 1) / s), "sum below the line"),
        ("needed_score", lambda n, s: np.log((n - 1) * s / (1 - s)), "the others that get it"), ("needed_score", lambda n, s: (n - 1) * (1 - s) / s, "logarithm"),
        ("needed_score", lambda n, s: np.log2((n - 1) * (1 - s) / s), "base 2"), ("needed_score", lambda n, s: np.log10((n - 1) * (1 - s) / s), "base 10"),
        ("needed_score", lambda n, s: np.log((1 - s) / s), "how many they are"), ("needed_score", lambda n, s: -np.log((n - 1) * (1 - s) / s), "reversed"),
        ("mirror", lambda W: W, "as it was"), ("mirror", mirror_in_place, "new array"),
        ("mirror", lambda W: W * signs(W.shape[1]), "F W."), ("mirror", lambda W: signs(len(W))[:, None] * W * signs(W.shape[1]), "F W F"), ("mirror", lambda W: -W, "did not change"), ("mirror", flip(slice(None, None, 4)), "Which channel"),
        ("mirror", lambda W: W[::-1] * np.arange(1, len(W) + 1)[:, None], "lag 0"), ("mirror", flip([0, 1]), "cancels"),
        ("angles_of", lambda O: np.sort(np.angle(np.linalg.eigvals(O))), "negative"), ("angles_of", lambda O: np.sort(np.abs(np.angle(np.linalg.eigvals(O))))[::-1], "smallest comes first"),
        ("angles_of", lambda O: np.linalg.eigvalsh(O + O.T) / 2, "cosines"), ("angles_of", lambda O: np.zeros(3), "shape"),
        ("angles_of", lambda O: np.sort(np.arccos(cosines(O))), "nan at place"),
        ("two_maps", maps(swap=True), "wrong sign"), ("two_maps", maps(wrong_side=True), "commute"), ("two_maps", maps(same=True), "i = j"),
        ("two_maps", maps(alone=True), "powers alone"), ("two_maps", maps(raw=True), "G(1) itself"), ("two_maps", maps(raw=True, alone=True), "G(1) itself"),
        ("two_maps", loops, "negative p"), ("two_maps", no_transpose(True), "transpose on X"), ("two_maps", no_transpose(False), "transpose of the one"), ("two_maps", lambda a, b: (a, b), "two functions"),
    ]


@pytest.mark.parametrize("name, answer, said", wrong_rope_derivation(), ids=lambda x: x if isinstance(x, str) else "")
def test_wrong_answers_of_chapter_08_are_named(name, answer, said):
    got = check(f"rope_derivation/{name}", answer)
    assert not got.accepted and said in got.message, got.message


def test_right_answers_of_chapter_08_may_take_other_ways():
    swapped = lambda W: W.reshape(-1, 2, W.shape[1])[:, ::-1].reshape(W.shape)  # noqa: E731
    for name, answer in [("mirror", swapped), ("angles_of", lambda O: np.sort(np.arccos(np.clip(np.linalg.eigvalsh(O + O.T) / 2, -1, 1)))),
                         ("two_maps", lambda a, b: (lambda p: np.linalg.matrix_power(b @ np.linalg.inv(a), p).T, lambda p: np.linalg.matrix_power(b @ np.linalg.inv(a), -p) @ a))]:
        assert check(f"rope_derivation/{name}", answer).accepted, check(f"rope_derivation/{name}", answer).message
