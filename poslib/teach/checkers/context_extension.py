"""Checkers of chapter 13."""

from __future__ import annotations

import math

import numpy as np

from poslib.extension import ByParts
from poslib.rotary import frequencies
from poslib.teach.exercises import Mistake, array

__all__ = ["factor", "furthest_apart", "needed", "turn_on"]


def needed(answer):
    """The factor with which NTK-aware scaling keeps all pairs within their arcs."""
    def finished(d, base, L):
        return int((L * frequencies(d, base) >= 2 * np.pi).sum())
    cases = [("Llama 2 and 16,384 tokens", 128, 1e4, 4096, 16384), ("Llama 3 and 131,072", 128, 5e5, 8192, 131072), ("width 32, base 188, 64 and 256", 32, 188.0, 64, 256),
             ("width 64, base 10,000, 100 and 150", 64, 1e4, 100, 150), ("a text of 50 after training on 64", 32, 188.0, 64, 50),
             ("width 8, base 10 and 4,096, where every pair finished a turn", 8, 10.0, 4096, 65536)]
    for name, d, base, L, T in cases:
        k = finished(d, base, L)
        right = 1.0 if T <= L or k == d // 2 else (T / L) ** ((d - 2) / (2 * k))
        got = float(array(answer(d, base, L, T), (), f"For {name} your function"))
        if abs(got / right - 1) < 1e-6:
            continue
        if T <= L:
            raise Mistake(f"For {name} your function gave {got:.4g}; no lag is new there, and the smallest factor allowed is 1.")
        if k == d // 2:
            raise Mistake(f"For {name} your function gave {got:.4g}; no pair can leave its arc, so nothing needs to slow down.")
        power = math.log(got) / math.log(T / L) if got > 0 else math.nan
        if abs(power - 1) < 1e-6:
            raise Mistake(f"For {name} you give T/L; so much slows the last pair alone, and all before it less.")
        if abs(power - 2 * k / (d - 2)) < 1e-6:
            raise Mistake(f"For {name} the exponent is upside down: {got:.4g} slows pairs by less than T/L everywhere.")
        if any(abs(power - (d - 2) / (2 * other)) < 1e-6 for other in (k - 1, k + 1) if other):
            raise Mistake(f"For {name} you are one pair off: the first pair that did not finish a turn has the number {k}, counted from 0.")
        if abs(power - d / (2 * k)) < 1e-6:
            raise Mistake(f"For {name} you give (T/L)^(d/2k): that would be how the base grows; asked for is s, and b' = b s^(d/(d - 2)).")
        raise Mistake(f"For {name} your function gave {got:.4g}. Pair {k} is the first that did not finish a turn; by what does NTK-aware scaling with factor s slow it?")
    return "Right: the first pair that did not finish a turn decides."


def furthest_apart(answer):
    """The pair on which YaRN's two ramps differ most, and code over paper."""
    for d, base, L, s in ((128, 1e4, 4096, 16), (128, 1e4, 4096, 32), (128, 1e4, 2048, 4), (32, 522.0, 65536, 2), (64, 1.5e5, 4096, 32), (128, 1e6, 32768, 4)):
        paper, code = (ByParts(s, L, ramp=r).frequencies(d, base) for r in ("paper", "code"))
        ratio = code / paper
        k = int(np.abs(np.log(ratio)).argmax())
        asked = f"For width {d}, base {base:,.0f}, {L:,} tokens and factor {s}"
        got = answer(d, base, L, s)
        if not isinstance(got, (tuple, list)) or len(got) != 2:
            raise Mistake(f"{asked} your function gave {got!r}; asked for are two, the pair's number and the ratio.")
        pair, found = array(got, (2,), f"{asked} your function")
        if pair == k and abs(found / ratio[k] - 1) < 1e-3:
            continue
        if pair == k and abs(found * ratio[k] - 1) < 1e-3:
            raise Mistake(f"{asked} pair {k} is right, and the ratio is upside down: code over paper is {ratio[k]:.3f}.")
        if pair == int(np.abs(code - paper).argmax()):
            raise Mistake(f"{asked} you look for the largest difference; frequencies span four powers of ten, so ratios are asked for.")
        if found == k and abs(pair / ratio[k] - 1) < 1e-3:
            raise Mistake(f"{asked} you give the ratio first; asked for is the pair's number first.")
        if pair == int(ratio.argmax()):
            raise Mistake(f"{asked} you take the largest ratio; pair {k} differs more, the other way: {ratio[k]:.3f} is further from 1 than {ratio.max():.3f}, as a ratio.")
        raise Mistake(f"{asked} you give pair {pair:.0f} and {found:.3f}; on pair {k} the ratio is {ratio[k]:.3f}. Does the ramp run from 1 to 32 turns, and has the code's whole "
                      "pairs for its ends?")
    return "Right, on six ladders."


def spun(keys, positions, w, interleaved=False):
    """Each key turned by its position times its own frequencies, shape (keys, width/2)."""
    turn = np.exp(1j * np.asarray(positions)[:, None] * w)
    if interleaved:
        z = (keys[:, ::2] + 1j * keys[:, 1::2]) * turn
        return np.stack([z.real, z.imag], axis=-1).reshape(keys.shape)
    z = (keys[:, :keys.shape[1] // 2] + 1j * keys[:, keys.shape[1] // 2:]) * turn
    return np.concatenate([z.real, z.imag], axis=-1)


def turn_on(answer):
    """Keys that were turned with one ladder each, brought to another."""
    rng = np.random.default_rng(8)
    for d, positions, trained, length in ((8, np.arange(6), 3, 8), (64, np.arange(40), 16, 40), (64, np.array([5, 3, 900, 0]), 4, 1000)):
        def ladder(n, d=d, trained=trained):
            return frequencies(d, 1e4 * max(1.0, 2 * n / trained - 1) ** (d / (d - 2)))
        old, new = np.stack([ladder(p + 1) for p in positions]), ladder(length)
        raw = rng.normal(size=(len(positions), d))
        before, right = spun(raw, positions, old), spun(raw, positions, new)
        got = array(answer(before.copy(), positions.copy(), old.copy(), new.copy()), raw.shape, f"For width {d} your function")

        def is_(other, got=got):
            return np.abs(got - other).max() < 1e-5
        if is_(right):
            continue
        asked = f"For width {d} and {len(positions)} keys"
        if is_(before):
            raise Mistake(f"{asked} you return the keys as they were.")
        if is_(raw):
            raise Mistake(f"{asked} you return the unturned keys; they should be turned as `new` says.")
        if is_(spun(before, positions, np.broadcast_to(new, old.shape))):
            raise Mistake(f"{asked} you turn with the new frequencies on top of the old turn: take the old one off.")
        if is_(spun(before, positions, old - new)):
            raise Mistake(f"{asked} you turn the wrong way: from old to new it is new minus old.")
        if is_(spun(before, positions, np.broadcast_to(new - old[0], old.shape))) or is_(spun(before, positions, np.broadcast_to(new - old[-1], old.shape))):
            raise Mistake(f"{asked} you turn all keys by one difference; each came with frequencies of its own, old[i].")
        if is_(spun(before, np.arange(len(positions)), new - old)):
            raise Mistake(f"{asked} you count the keys; each has a position of its own.")
        if is_(spun(before, positions, new - old, interleaved=True)):
            raise Mistake(f"{asked} you pair channels 2k and 2k + 1; in the layout \"half\" they are k and k + d/2.")
        raise Mistake(f"{asked} the keys are off by up to {np.abs(got - right).max():.2g}. Key i is turned by positions[i] times old[i]; which angle is missing?")
    return "Right: turns add up, so no unturned key is needed."


def factor(answer):
    """The number on all scores that keeps a key's weight among more keys."""
    def right(w, L, n):
        return (math.log(w / (1 - w)) + math.log(n - 1)) / (math.log(w / (1 - w)) + math.log(L - 1))
    for w, L, n in ((0.9, 64, 256), (0.5, 4096, 65536), (0.5, 64, 64), (0.3, 1000, 8000), (0.99, 4096, 65536)):
        asked = f"For weight {w}, {L:,} and {n:,} keys"
        got = float(array(answer(w, L, n), (), f"{asked} your function"))
        r = right(w, L, n)
        if abs(got - r) < 1e-6:
            continue
        if abs(got - math.log(n) / math.log(L)) < 1e-9:
            raise Mistake(f"{asked} you give ln n/ln L; the key itself is not among the others, and the weight counts, too.")
        if abs(got - math.log(n - 1) / math.log(L - 1)) < 1e-9:
            raise Mistake(f"{asked} you give the factor for half of the weight.")
        if abs(got - 1 / r) < 1e-6:
            raise Mistake(f"{asked} it is upside down: with more keys scores must grow.")
        if abs(got - (r - 1) * (math.log(w / (1 - w)) + math.log(L - 1))) < 1e-6:
            raise Mistake(f"{asked} you give by how much the gap must grow; asked for is how many times.")
        raise Mistake(f"{asked} you give {got:.4f}; check: among {L:,} keys the gap g has w = 1/(1 + (L - 1)exp(-g)).")
    return "Right: the surer the head was, the less it needs."
