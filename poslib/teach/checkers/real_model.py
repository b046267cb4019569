"""Checkers of chapter 14."""

from __future__ import annotations

import numpy as np

from poslib.rotary import frequencies, rotate
from poslib.teach.exercises import Mistake

__all__ = ["apart", "last_gap", "mean_kept", "reach"]


def _whole(got, asked):
    """A whole number or None, or a Mistake."""
    if got is None:
        return None
    if isinstance(got, (bool, np.bool_)) or not isinstance(got, (int, np.integer)):
        raise Mistake(f"{asked} you give {got!r}; give a whole number, or None.")
    return int(got)


def last_gap(answer):
    """The largest gap at which all lags between two readings are below L."""
    for L, n in ((8192, 256), (64, 16), (100, 50), (99, 50), (512, 1), (10, 300)):
        asked = f"For L = {L:,} and n = {n}"
        got, right = _whole(answer(L, n), asked), L - 2 * n if L >= 2 * n else None
        if got == right:
            continue
        if right is None:
            raise Mistake(f"{asked} you give {got}; the readings alone hold a lag of {2 * n - 1}, and a gap is not negative: the answer is None.")
        if got is None:
            raise Mistake(f"{asked} you give None, but at the gap 0 the largest lag is {2 * n - 1}, which the window holds.")
        if got == L - n or got == L - n - 1:
            raise Mistake(f"{asked} you give {got}: that looks at the first token of the second reading. Its last one is n - 1 further on.")
        if got in (right + 1, right - 1):
            raise Mistake(f"{asked} you give {got}, one off. At the gap g the largest lag is g + 2n - 1; the window's is L - 1.")
        raise Mistake(f"{asked} you give {got}. Which two places of the two readings are furthest apart?")
    return "Right: all lags there were trained, whatever the model makes of them."


def mean_kept(answer):
    """Mean over passages of the share of copying kept, by gap."""
    rng = np.random.default_rng(14)
    for count in (1, 7):
        u = rng.uniform(1.5, 3.5, count)
        c = {5000: u * rng.uniform(0.3, 1.4, count), 0: u * rng.uniform(0.05, 0.3, count), 9000: u * rng.uniform(0.9, 2, count)}
        c[1000] = c[0] * rng.uniform(0.5, 1.2, count)       # copied better than beside, some of them
        got = answer(u.copy(), {g: x.copy() for g, x in c.items()})
        if not isinstance(got, dict) or set(got) != set(c):
            raise Mistake(f"Return a dictionary with a share for each of the gaps {sorted(c)}.")
        for gap, x in c.items():
            try:
                value = float(got[gap])
            except (TypeError, ValueError):
                raise Mistake(f"At the gap {gap:,} you give {got[gap]!r}; give one number, the mean over passages.") from None
            shares = (u - x) / (u - c[0])
            if abs(value - shares.mean()) < 1e-9:
                continue
            for wrong, why in (*((np.clip(shares, *ends).mean(), "Do not clip: below 0 the first reading does harm, above 1 it helps more from afar.")
                                 for ends in ((0, 1), (0, None), (None, 1))),
                               ((1 - x / u).mean(), "At the gap 0 the share must be 1: divide by u - c(0), not by u."),
                               ((u - x).mean() / (u - c[0]).mean(), "That is the ratio of the means. Take each passage's share first."),
                               (1 - shares.mean(), "That is the share lost; asked is what is kept."),
                               ((u - x).mean(), "That is a difference in nats. Divide it by the same difference at the gap 0.")):
                if abs(value - wrong) < 1e-9:
                    raise Mistake(f"At the gap {gap:,} you give {value:.3f} and the mean share is {shares.mean():.3f}. {why}")
            raise Mistake(f"At the gap {gap:,} you give {value:.3f} and the mean share is {shares.mean():.3f}.")
    return "Right: 1 beside, 0 for guessing, each passage counted alike."


def reach(answer):
    """The largest gap up to which a share is kept throughout."""
    dip = {0: 1.0, 2048: 1.0, 4608: 0.4, 5632: 0.9, 7680: 0.1}
    for kept, least, right in ((dip, 0.5, 2048), (dip, 0.3, 5632), (dip, 0.05, 7680), (dip, 1.01, None), (dip, 1.0, 2048), (dict(reversed(dip.items())), 0.5, 2048),
                               ({4096: 0.2, 1024: 0.8}, 0.5, 1024), ({9000: 0.9, 100: 0.1}, 0.5, None), ({0: 0.7}, 0.7, 0)):
        asked = f"For {kept} and at least {least}"
        got = _whole(answer(dict(kept), least), asked)
        if got == right:
            continue
        good = [g for g, s in kept.items() if s >= least]
        if right is None and got is not None:
            raise Mistake(f"{asked} you give {got}, but the smallest gap in the list fails already: the answer is None.")
        if got is None:
            raise Mistake(f"{asked} you give None; {right} and all smaller gaps pass{', and a share that equals the least is enough' if least in kept.values() else ''}."
                          + (" Note that 0 is a gap, and counts as false." if right == 0 else ""))
        if good and got == max(good):
            raise Mistake(f"{asked} you give {got}. There the share is large enough, and at a smaller gap it is not: a hole in between.")
        if got == [g for g in kept if g in good][-1]:
            raise Mistake(f"{asked} you give {got}: the gaps need not come in order.")
        raise Mistake(f"{asked} you give {got}; the answer is {right}. A share that equals the least is enough.")
    return "Right: a reach with no hole in it, as far as the list can tell."


def apart(answer):
    """The score of a query and key whose pairs see different gaps."""
    rng = np.random.default_rng(41)
    for n, lag, high in ((4, 3, 1), (32, 255, 9000), (8, 0, 100)):
        q, k = rng.normal(size=(2, 2 * n))
        gaps, omega = rng.integers(0, high, n), frequencies(2 * n, 100.0)
        turned = rotate(np.stack([q] * n)[:, None], (lag + gaps)[:, None], layout="half", frequencies=omega)[:, 0]     # row m: all pairs by m's gap
        own = np.array([turned[m, m] * k[m] + turned[m, n + m] * k[n + m] for m in range(n)])
        right = own.sum() / np.sqrt(2 * n)
        asked = f"For width {2 * n}, lag {lag} and gaps {'all 0' if high == 1 else f'up to {high:,}'}"
        got = answer(q.copy(), k.copy(), lag, gaps.copy(), omega.copy())
        try:
            value = complex(got)
        except (TypeError, ValueError):
            raise Mistake(f"{asked} you give {got!r}; give one number.") from None
        if abs(value.imag) > 1e-9:
            raise Mistake(f"{asked} you give a complex number; the score is its real part.")
        if abs(value.real - right) < 1e-9:
            continue
        z = (q[:n] + 1j * q[n:]) * (k[:n] - 1j * k[n:])
        near = (q[0::2] + 1j * q[1::2]) * (k[0::2] - 1j * k[1::2])
        angle = (lag + gaps) * omega
        for wrong, why in ((own.sum(), "Divide by the root of the head's width."), (own.sum() / np.sqrt(n), "The width is 2n: two channels for each pair."),
                           ((z * np.exp(-1j * angle)).real.sum() / np.sqrt(2 * n), "The pairs turn the wrong way: the query is ahead by the lag."),
                           ((near * np.exp(1j * angle)).real.sum() / np.sqrt(2 * n), "You pair the channels 2k and 2k + 1; here k and k + d/2 make a pair."),
                           ((z * np.exp(1j * lag * omega)).real.sum() / np.sqrt(2 * n), "The gaps are missing."),
                           ((z * np.exp(1j * gaps * omega)).real.sum() / np.sqrt(2 * n), "The lag is missing: a pair sees the lag plus its gap."),
                           (((q[:n] + 1j * q[n:]) * (k[:n] + 1j * k[n:]) * np.exp(1j * angle)).real.sum() / np.sqrt(2 * n), "Take the conjugate of the key.")):
            if abs(value.real - wrong) < 1e-9:
                raise Mistake(f"{asked} you give {value.real:.4f} and the score is {right:.4f}. {why}")
        if abs(value.real - right) < 1e-3:
            raise Mistake(f"{asked} you are off by {abs(value.real - right):.0e}. Form the angles in float64.")
        raise Mistake(f"{asked} you give {value.real:.4f} and the score is {right:.4f}. Turn pair by pair, each by its own distance.")
    return "Right: every pair has a distance of its own now."
