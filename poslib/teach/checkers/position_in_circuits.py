"""Checkers of chapter 15."""

from __future__ import annotations

import numpy as np

from poslib.rotary import frequencies, rotate
from poslib.teach.exercises import Mistake

__all__ = ["amplitude", "family", "switched", "three_shares"]


def _numbers(got, shape, asked):
    """An array of a shape, or a Mistake."""
    if isinstance(got, dict):
        raise Mistake(f"{asked} you give a dict; give its numbers, in a list or an array.")
    try:
        got = np.asarray(got, float)
    except (TypeError, ValueError):
        raise Mistake(f"{asked} give numbers, not {got!r}.") from None
    if got.shape != shape:
        raise Mistake(f"{asked} you give the shape {got.shape}; it should be {shape}.")
    if not np.isfinite(got).all():
        raise Mistake(f"{asked} you give {got[~np.isfinite(got)][0]}. Does something overflow, or is it divided by 0?")
    return got


def three_shares(answer):
    """Shares of the variance that lag, content and interaction have."""
    rng = np.random.default_rng(15)
    content, lag = rng.normal(size=(5, 4)), rng.normal(size=7)
    tables = {"content plus lag": content[..., None] + lag + 3, "a table of all three": content[..., None] + lag + rng.normal(size=(5, 4, 7)) - 2,
              "content alone": np.repeat(content[..., None], 7, 2)}
    for name, s in tables.items():
        asked = f"For {name}"
        got = _numbers(answer(s.copy()), (3,), asked)
        c = s - s.mean()
        by_lag, by_content = c.mean((0, 1)), c.mean(2)
        rest = c - by_lag - by_content[..., None]
        right = np.array([(by_lag ** 2).mean(), (by_content ** 2).mean(), (rest ** 2).mean()]) / (c ** 2).mean()
        if np.abs(got - right).max() < 1e-9:
            continue
        if np.abs(got - right * s.var()).max() < 1e-9:
            raise Mistake(f"{asked} you give the variances of the parts. A share is a variance divided by that of the whole table.")
        roots = np.sqrt(right)
        if min(np.abs(got - wrong).max() for wrong in (roots, roots / roots.sum(), roots * s.std())) < 1e-7:
            raise Mistake(f"{asked} you take standard deviations in place of variances. Only variances of orthogonal parts add up to that of the whole.")
        if np.abs(got[[1, 0, 2]] - right).max() < 1e-9:
            raise Mistake(f"{asked} the lag's share and the content's have changed places: average over the contents to get what the lag does.")
        raw = s.mean((0, 1)), s.mean(2)
        if np.abs(got[:2] - [(raw[0] ** 2).mean() / (s ** 2).mean(), (raw[1] ** 2).mean() / (s ** 2).mean()]).max() < 1e-9:
            raise Mistake(f"{asked} you count the mean of the whole table as a part. Subtract it first: a constant moves no weight.")
        if abs(got.sum() - 1) > 1e-6:
            raise Mistake(f"{asked} your shares add up to {got.sum():.3f}. Is the interaction what is left after mean, lag and content are subtracted?")
        off = [part for part, mine, its in zip(("lag", "content", "interaction"), got, right) if abs(mine - its) > 1e-9]
        raise Mistake(f"{asked} your shares add up to 1, but {' and '.join(off) if len(off) < 3 else 'all three'} differ from the table's. The lag's part is an average over axes 0 and 1, the content's over axis 2.")
    return "Right: and for scores that add content and lag the third share is 0."


def family(answer):
    """The matrix of a head's scores at a lag."""
    rng = np.random.default_rng(16)
    for d, width, lag in ((4, 6, 3), (8, 5, 0), (8, 5, 11)):
        wq, wk, w = rng.normal(size=(d, width)), rng.normal(size=(d, width)), frequencies(d, 100.0)
        got = _numbers(answer(wq.copy(), wk.copy(), lag, w.copy()), (width, width), f"For head width {d} and model width {width}")

        def made(lag, wq=wq, wk=wk, w=w, d=d, layout="half"):
            turned = rotate(wk.T, np.full(wk.shape[1], -lag), layout=layout, frequencies=w)
            return wq.T @ turned.T / np.sqrt(d)

        if np.abs(got - made(lag)).max() < 1e-5:      # float32 will do
            continue
        for wrong, why in ((made(-lag), "That is the map of a key that comes later: the sign of the lag is turned round. The key is turned by minus the lag."),
                           (made(lag) * np.sqrt(d), "Divide by the root of the head's width: the scores are scaled."),
                           (made(lag).T, "That is the transpose: queries belong on the left, keys on the right."),
                           (made(lag, layout="interleaved"), "You turn neighbouring channels; here pair k is the channels k and k + d/2."),
                           (made(0), "That does not turn at all: the map is the same at every lag.")):
            if np.abs(got - wrong).max() < 1e-5:
                raise Mistake(f"At lag {lag}: {why}")
        factor = (got * made(lag)).sum() / (made(lag) ** 2).sum()
        if factor and np.abs(got / factor - made(lag)).max() < 1e-5:
            raise Mistake(f"At lag {lag} your matrix is the head's times a number. The scores are divided by the root of the head's width, which `omega` tells.")
        raise Mistake(f"At lag {lag} your matrix is not the head's. Turn each column of W_K as a key, and multiply W_Q transposed by what comes out.")
    return "Right: one matrix for each lag, and at lag 0 the one that a head without rotation would have."


def amplitude(answer):
    """The smallest amplitude that gives the aimed lag half of the weight."""
    for omega, n in ((1.0, 4), (1.0, 40), (0.7, 3), (0.3, 12), (0.02, 100)):
        asked = f"For a frequency of {omega} and {n} keys"
        got = float(_numbers(answer(omega, n), (), asked))
        others = np.delete(1 - np.cos(omega * (np.arange(n) - 1)), 1)

        def rest(a, others=others):
            return np.exp(-a * others).sum()

        right = _smallest(rest)
        if abs(got / right - 1) < 1e-4:
            continue
        for wrong, why in ((np.log(n - 1) / others.min(), "That is the upper bound, as if all other keys were as good as the best of them. (It comes out, too, if lag 1 is counted among its own rivals.)"),
                           (np.log(n - 1) / others.mean(), "That is the lower bound, as if all other keys were equally good."),
                           (_smallest(lambda a: np.exp(-a * (1 - np.cos(omega * np.arange(1, n)))).sum()), "You aim at lag 0; the head is to look at lag 1, with lag 0 among its rivals.")):
            if abs(wrong / right - 1) > 1e-2 and abs(got / wrong - 1) < 1e-4:
                raise Mistake(f"{asked} you give {got:.4g}. {why}")
        if abs(got / right - 1) < 1e-2:
            raise Mistake(f"{asked} you are near, but not to one part in ten thousand: go on halving, and halve without rounding.")
        share = 1 / (1 + rest(got))
        raise Mistake(f"{asked} you give {got:.4g}, and lag 1 gets {share:.3f} of the weight; " + ("more is needed." if share < 0.5 else "less would do."))
    return "Right: and at frequency 1 a hundred keys cost over a thousand times what four keys cost."


def _smallest(rest):
    """Where a falling function is 1."""
    low, high = 0.0, 1.0
    while rest(high) > 1:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if rest(middle) > 1 else (low, middle)
    return high


def switched(answer):
    """Weights of one query over its keys when some pairs are stilled or zeroed."""
    rng = np.random.default_rng(17)
    for d, n, off in ((8, 6, [0]), (8, 9, [1, 3]), (6, 5, [])):
        q, keys, w = rng.normal(size=d) * 2, rng.normal(size=(n, d)) * 2, frequencies(d, 50.0)
        z = (q[:d // 2] + 1j * q[d // 2:]) * (keys[:, :d // 2] - 1j * keys[:, d // 2:])
        lag = np.arange(n)[::-1, None]
        on = np.ones(d // 2, bool)
        on[off] = False

        def weights(s):
            e = np.exp(s - s.max())
            return e / e.sum()

        def made(way, sign=1, scale=np.sqrt(d), z=z, lag=lag, on=on, w=w):
            turned, still = (z * np.exp(sign * 1j * lag * w)).real, z.real
            return weights((turned[:, on].sum(1) + (still[:, ~on].sum(1) if way == "stilled" else 0)) / scale)

        gave = {way: _numbers(answer(q.copy(), keys.copy(), w.copy(), list(off), way), (n,), f"For pairs {off} {way}, {n} keys") for way in ("stilled", "zeroed")}
        if off and max(np.abs(gave[a] - made(b)).max() for a, b in (("stilled", "zeroed"), ("zeroed", "stilled"))) < 1e-9:
            raise Mistake("Stilled and zeroed are exchanged. A stilled pair does not turn, and adds what query and key say to each other at lag 0; a zeroed one adds nothing.")
        for way, got in gave.items():
            asked = f"For pairs {off} {way}, {n} keys"
            if np.abs(got - made(way)).max() < 1e-9:
                continue
            other = {"stilled": "zeroed", "zeroed": "stilled"}[way]
            for wrong, why in ((made(other), f"These are the weights with the pairs {other}. Stilled, a pair keeps what query and key say to each other at lag 0; zeroed, it says nothing."),
                               (made(way, sign=-1), "The lags have the wrong sign: the query stands at the last place, and turns ahead of the keys."),
                               (made(way, lag=lag[::-1]), "The lag is counted from the wrong end: the query stands at the last place, so the last key has the lag 0."),
                               (made(way, sign=-1, lag=lag[::-1]), "The keys turn and the query does not. It stands at the last place, and turns too."),
                               (made(way, scale=1.0), "Divide the scores by the root of the head's width before the softmax."),
                               (made(way, scale=np.sqrt(max(1, 2 * on.sum()))), "Divide by the root of the whole width, pairs that are off too: switching off must not sharpen the rest."),
                               (weights((z * np.exp(1j * lag * w)).real.sum(1) / np.sqrt(d)), "Nothing was switched off.")):
                if np.abs(got - wrong).max() < 1e-9:
                    raise Mistake(f"{asked}: {why}")
            if abs(got.sum() - 1) > 1e-9:
                raise Mistake(f"{asked}: your weights add up to {got.sum():.3f}. Is the softmax there?")
            if off and np.abs(_numbers(answer(q.copy(), keys.copy(), w.copy(), [], way), (n,), asked) - made(way, on=np.ones_like(on))).max() < 1e-9:
                raise Mistake(f"{asked}: your weights are not those of the head, though with no pair off they are. What does a pair that is off add? Both of its channels count, in the query and in the keys.")
            raise Mistake(f"{asked}: your weights are not those of the head, the key at lag {n - 1 - np.abs(got - made(way)).argmax()} differs most. Try it with no pair off first.")
    return "Right: two ways of taking a pair away, and they are different questions."
