"""Checkers of chapter 09."""

from __future__ import annotations

import numpy as np

from poslib.rotary import frequencies
from poslib.teach.exercises import Mistake

__all__ = ["fails_at", "key_for_lag", "unfinished", "xpos_pair"]


def _whole(got, asked):
    """A whole number, or a Mistake."""
    if isinstance(got, (bool, np.bool_)) or not isinstance(got, (int, np.integer)):
        raise Mistake(f"{asked} you give {got!r}; give a whole number.")
    return int(got)


def unfinished(answer):
    """Pairs that move and make less than one turn."""
    stopped = np.where(np.arange(64) < 48, frequencies(128), 0.0)
    cases = [
        (frequencies(128), 4096, "for base 10,000, width 128 and 4,096 tokens"),
        (frequencies(128, 5e5), 8192, "for base 500,000, width 128 and 8,192 tokens"),
        (2 * np.pi / np.array([10.0, 100.0, 1000.0]), 20, "for wavelengths of 10, 100 and 1,000 and 20 tokens"),
        (2 * np.pi / np.array([8.0, 64.0, 512.0, 4096.0]), 64, "for wavelengths of 8, 64, 512 and 4,096 and 64 tokens"),
        (frequencies(32, 1e2), 4096, "for base 100, where every pair finishes,"),
        (stopped, 4096, "for p-RoPE with 48 of 64 pairs moving"),
        (stopped, 512, "for p-RoPE with 48 of 64 pairs moving and 512 tokens"),
    ]
    for omega, length, asked in cases:
        Asked = asked[0].upper() + asked[1:]
        turns = length * omega / (2 * np.pi)
        right = int(((omega > 0) & (turns < 1)).sum())
        got = _whole(answer(omega.copy(), length), Asked)
        if got == right:
            continue
        if got == int((turns < 1).sum()):
            raise Mistake(f"{Asked} you count the pairs that stand still; asked for are those that move and do not finish.")
        if got == int((turns >= 1).sum()):
            raise Mistake(f"{Asked} you count the pairs that do finish.")
        if got == int(((omega > 0) & (turns <= 1)).sum()):
            raise Mistake(f"{Asked} one pair turns exactly once, and that is finished.")
        if got == int(((omega > 0) & (length * omega < 1)).sum()):
            raise Mistake(f"{Asked} you give {got}: a turn is 2π radians, not one.")
        raise Mistake(f"{Asked} there are {right}, and you give {got}. How many turns does each pair make?")
    return "Right, for ladders of any kind."


def _pairs(x):
    return x[:len(x) // 2] + 1j * x[len(x) // 2:]


def key_for_lag(answer):
    """A key whose score with q is highest at lag r, of q's length."""
    rng = np.random.default_rng(3)
    for width, r, base in ((8, 5, 1e4), (8, 0, 1e4), (128, 777, 1e4), (64, 31, 5e5)):
        q, omega = rng.normal(size=width), frequencies(width, base)
        asked = f"For width {width}, base {base:,.0f} and lag {r}"
        k = answer(q.copy(), r, omega.copy())
        try:
            k = np.asarray(k)
            if np.iscomplexobj(k):
                raise Mistake(f"{asked} you return complex numbers; put the real parts into the first half and the imaginary ones into the second.")
            k = k.astype(float)
        except (TypeError, ValueError):
            raise Mistake(f"{asked} your function returns no vector of numbers.") from None
        if k.shape != q.shape:
            raise Mistake(f"{asked} the key has shape {k.shape}; it should have the query's, {q.shape}.")
        h = _pairs(q) * _pairs(k).conj()
        lags = np.arange(-4096, 4097)
        best = int(lags[(np.exp(1j * lags[:, None] * omega) @ h).real.argmax()])
        if best != r:
            if best == -r:
                raise Mistake(f"{asked} the score is highest at lag {best}: the key is turned the wrong way.")
            if np.allclose(k, q):
                raise Mistake(f"{asked} the key is the query, which is wanted most at lag 0.")
            for z in (q[0::2] + 1j * q[1::2], _pairs(q)):
                for by in (r, -r):
                    adjacent = z * np.exp(1j * by * omega)
                    if np.allclose(k, np.stack([adjacent.real, adjacent.imag], axis=1).ravel()):
                        raise Mistake(f"{asked} you pair the channels 2k and 2k + 1; here k and k + d/2 make a pair, in the query and in the key.")
            raise Mistake(f"{asked} the score is highest at lag {best}. Which angle must pair k of the key have?")
        if abs(np.linalg.norm(k) - np.linalg.norm(q)) > 1e-9:
            raise Mistake(f"{asked} the score peaks where it should, but the key's length is {np.linalg.norm(k):.3f} and the query's {np.linalg.norm(q):.3f}.")
    return "Right: the content is turned ahead by what the position will lack."


def fails_at(answer):
    """The smallest lag below a limit with a negative kernel."""
    calls = [
        (frequencies(128), 4096, 1707, "base 10,000"),
        (frequencies(128), 1707, None, "base 10,000 below 1,707"),
        (frequencies(128), 1708, 1707, "base 10,000 below 1,708"),
        (np.array([1.0]), 10, 2, "a single pair of frequency 1"),
        (np.array([1.0, 0.0]), 1000, None, "one pair that turns and one that stands still"),
        (np.array([np.pi]), 5, 1, "a pair that turns by half a circle at each step"),
        (frequencies(128, 90_000), 8192, 6581, "base 90,000"),
        (frequencies(128, 84_000), 1 << 40, 8592, "base 84,000 and a limit of a million millions"),
    ]
    for omega, limit, right, asked in calls:
        try:
            got = answer(omega.copy(), limit)
        except MemoryError:
            raise Mistake(f"For {asked} memory ran out: work through the lags a few thousand at a time.") from None
        except ValueError as error:
            if not any(word in str(error) for word in ("size", "too big", "too large")):
                raise
            raise Mistake(f"For {asked} numpy says: {error}. Work through the lags a few thousand at a time.") from None
        if got is not None:
            got = _whole(got, f"For {asked}")
        if got == right:
            continue
        if right is None:
            raise Mistake(f"For {asked} you give {got}; there is no negative value below the limit, and the answer is None.")
        if got is None:
            raise Mistake(f"For {asked} you give None, but the kernel is negative at lag {right}.")
        if got == right + 1:
            raise Mistake(f"For {asked} you are one too high; lags begin at 0, and so do the entries of an array.")
        if got > right:
            raise Mistake(f"For {asked} you give {got}, where the kernel may well be negative; the first such lag is earlier. Does your search skip lags?")
        raise Mistake(f"For {asked} you give {got}; the kernel is not negative there.")
    return "Right, and without a table of all lags and pairs."


def xpos_pair(answer):
    """The score of xPos for one query and key, at any position."""
    rng = np.random.default_rng(4)
    n = 16
    omega, zeta = frequencies(2 * n), (np.arange(n) / n + 0.4) / 1.4
    q, k = rng.normal(size=(2, n)) + 1j * rng.normal(size=(2, n))
    h = q * k.conj()
    for i, j, B in ((1200, 100, 512), (3, 3, 512), (7, 2, 100), (300, 0, 512), (5000, 4990, 512), (1_000_000, 999_000, 64), (1_000_000, 0, 512)):
        lag = i - j
        wave = np.exp(1j * lag * omega)
        right = float((h * wave).real @ zeta ** (lag / B))
        with np.errstate(all="ignore"):
            got = answer(q.copy(), k.copy(), i, j, omega.copy(), zeta.copy(), B)
        asked = f"For positions {i:,} and {j:,}, B = {B},"
        try:
            value = complex(got)
        except (TypeError, ValueError):
            raise Mistake(f"{asked} you give {got!r}; give one number.") from None
        if value.imag:
            raise Mistake(f"{asked} you give a complex number; the score is its real part.")
        value = value.real
        if not np.isfinite(value):
            raise Mistake(f"{asked} the result is {value}: a factor has left the range of float64. Does the score need ζ to the power of a position?")
        scale = float(np.abs(h) @ zeta ** (lag / B))
        if abs(value - right) <= 1e-7 * scale + 1e-300:
            continue
        for wrong, why in (
            ((h * wave).real @ zeta ** (lag // B), "You divide the lag by B with //, which rounds; the decay is smooth."),
            ((h * wave).real @ zeta ** (lag / 512) if B != 512 else np.nan, "B is an argument, and not always 512."),
            ((h * wave).real.sum(), "That is plain RoPE: the decay is missing."),
            ((h * wave).real @ zeta ** (-lag / float(B)) if lag < 100_000 else np.nan, "The score grows with the lag: the sign of the exponent is the wrong one."),
            ((h * wave.conj()).real @ zeta ** (lag / B), "The pairs turn the wrong way: the lag is i − j."),
            ((q * k * wave).real @ zeta ** (lag / B), "Take the conjugate of the key."),
            ((h * wave).real @ zeta ** lag if lag < 5000 else np.nan, "The decay is by ζ in B tokens, not in each."),
        ):
            if np.isfinite(wrong) and abs(value - wrong) <= 1e-7 * (1 + abs(wrong)):
                raise Mistake(f"{asked} you give {value:.4f} and the score is {right:.4f}. {why}")
        raise Mistake(f"{asked} you give {value:.4f} and the score is {right:.4f}. Compare with the damped series of the chapter.")
    return "Exact at a million, because nothing but the lag enters."
