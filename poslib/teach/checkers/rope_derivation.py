"""Checkers of chapter 08."""

from __future__ import annotations

import numpy as np

from poslib.rotary import frequencies, rotate
from poslib.teach.exercises import Mistake, array

__all__ = ["angles_of", "mirror", "needed_score", "turn_one", "two_maps"]


def turn_one(answer):
    """A vector turned to a position, interleaved pairs, and the usual slips."""
    rng = np.random.default_rng(8)
    for d in (2, 8, 64):
        for p in (0, 1, 3, -2, 1000):
            x = rng.normal(size=d)
            given = x.copy()
            got = array(answer(given, p), (d,), f"turn_one(x, {p}) at width {d}")
            if (given != x).any():
                raise Mistake("You changed x itself. Others may still need it: return a new array.")

            def by(angle, layout="interleaved"):
                return rotate(x[None], np.array([1]), layout=layout, frequencies=np.asarray(angle, float))[0]

            omega = frequencies(d)
            right = by(p * omega)
            if np.abs(got - right).max() < 1e-9:
                continue
            if p < 0 and np.abs(got - by(-p * omega)).max() < 1e-9:
                raise Mistake(f"At position {p} you turn as at {-p}: the sign of p is lost.")
            if np.abs(got - right).max() < 1e-3 * np.linalg.norm(x):
                raise Mistake(f"At width {d}, position {p} you are off by {np.abs(got - right).max():.1g}: nearly right. Is something in float32, or rounded on the way?")
            k = np.arange(d // 2)
            wrong = {
                "The numbers are right and out of order: first channels come before all second ones. Put them back as neighbours.": np.r_[right[::2], right[1::2]],
                "You turn clockwise: the minus belongs to the sine of the first channel.": by(-p * omega),
                "You pair k with k + d/2. This exercise pairs the neighbours 2k and 2k + 1.": by(p * omega, "half"),
                "All pairs turn alike in your version; pair k has its own ω_k.": by(p * np.ones(d // 2)),
                "Your ladder has the exponent −k/d; it is −2k/d.": by(p * 1e4 ** (-k / d)),
                "Your ladder is twice as steep: k counts pairs, so 2k is the channel already.": by(p * 1e4 ** (-4 * k / d)),
                "Your pairs count from 1: the first one has ω = 1.": by(p * 1e4 ** (-2 * (k + 1) / d)),
                "The minus of the exponent is missing: your pairs get faster, and should get slower.": by(p * 1e4 ** (2 * k / d)),
            }
            for said, values in wrong.items():
                if np.abs(got - values).max() < 1e-9:
                    raise Mistake(said)
            if abs(np.linalg.norm(got) - np.linalg.norm(x)) > 1e-9:
                raise Mistake(f"At width {d}, position {p} your vector has the length {np.linalg.norm(got):.4f} and x has {np.linalg.norm(x):.4f}: a turn keeps it. "
                              "Do you use a channel that you have just overwritten, or one sign twice?")
            raise Mistake(f"At width {d}, position {p} you are off by {np.abs(got - right).max():.2g}.")
    return "Turned as poslib turns it, at every position, backwards too."


def needed_score(answer):
    """How high a score must be if n - 1 others have the score 0."""
    for n in (4, 2, 10, 1000, 131_072):                     # 4 and 0.13 first: no two of the slips agree there
        for share in (0.13, 0.5, 0.01, 0.001):
            got = answer(n, share)
            if got is None:
                raise Mistake("needed_score gave None: is a return missing?")
            got, right = float(got), float(np.log((n - 1) * (1 - share) / share))
            if abs(got - right) < 1e-9:
                continue
            wrong = {
                "You gave the others n keys; one of the n is the one that is looked at.": np.log(n * (1 - share) / share),
                "You ask for the share of one ignored key; the others share it together.": np.log((1 - (n - 1) * share) / share) if (n - 1) * share < 1 else np.nan,
                "You set the weight of the one key to the share; it is the others that get it.": np.log((n - 1) * share / (1 - share)),
                "You forgot the one key in the sum below the line: the weights of all n add up to one.": np.log((n - 1) / share),
                "You gave e to the score; the score is its logarithm.": (n - 1) * (1 - share) / share,
                "You took the logarithm to base 10; the softmax has base e.": right / np.log(10),
                "You took the logarithm to base 2; the softmax has base e.": right / np.log(2),
                "You left out how many they are: n − 1 keys share the share.": np.log((1 - share) / share),
                "Your sign is reversed: the key must be louder than the others, not quieter.": -right,
            }
            for said, value in wrong.items():
                if abs(got - value) < 1e-9:
                    raise Mistake(said)
            total = (n - 1) / (n - 1 + np.exp(got)) if got < 700 else 0.0
            raise Mistake(f"With {n} keys and the score {got:.3f} the others get {total:.4g} of the weight; {share} was asked for.")
    return "Zeros are quiet only beside a loud one, and the more there are, the louder it must be."


def mirror(answer):
    """Weights for the other sign of the lag."""
    rng = np.random.default_rng(9)
    p = np.arange(6)
    for d, wide in ((8, 8), (8, 5), (2, 3), (16, 16)):
        W_Q, W_K = rng.normal(size=(2, d, wide))
        x = rng.normal(size=(6, wide))
        given = [W_Q.copy(), W_K.copy()]
        new = [array(answer(W), W.shape, "mirror(W)").copy() for W in given]
        if any((a != b).any() for a, b in zip(given, (W_Q, W_K))):
            raise Mistake("You changed W itself. Others may still need it: return a new array.")

        def scores(weights, inverse):
            q, k = (rotate(x @ W.T, p, layout="interleaved", inverse=inverse) for W in weights)
            return q @ k.T

        want, got = scores((W_Q, W_K), True), scores(new, False)
        if np.abs(want - got).max() < 1e-9:
            continue
        if all(np.abs(a - b).max() < 1e-12 for a, b in zip(new, (W_Q, W_K))):
            raise Mistake("You returned W as it was, so the scores did not change.")
        if all(np.abs(a + b).max() < 1e-12 for a, b in zip(new, (W_Q, W_K))):
            raise Mistake("The scores did not change: a factor of −1 on everything cancels between query and key.")
        if wide == d:
            F = np.where(np.arange(d) % 2, -1, 1)
            for what, values in ("W F", W_Q * F), ("F W F", F[:, None] * W_Q * F):
                if min(np.abs(new[0] - values).max(), np.abs(new[0] + values).max()) < 1e-12:
                    raise Mistake(f"You return {what}. The channels of the head are the rows of W, so F acts from the left alone: F W.")
        if np.abs(got - scores((W_Q, W_K), False)).max() < 1e-9:
            raise Mistake("Your change cancels between query and key: the scores are those of the unchanged weights. What does it do to one pair?")
        if np.abs(np.diag(got) - np.diag(want)).max() > 1e-9:
            raise Mistake("Even at lag 0 your scores differ, where nothing is turned. The change must keep all dot products.")
        raise Mistake(f"Your scores at other lags are off by {np.abs(want - got).max():.2g}. Which channel of each pair do you flip, and do its neighbours 2k and 2k + 1 form the pair?")
    return "One flipped channel in each pair turns every lag round."


def angles_of(answer):
    """The angles by which an orthogonal matrix turns."""
    rng = np.random.default_rng(10)

    def rotations(angles, signs):
        n = 2 * len(angles) + len(signs)
        D = np.zeros((n, n))
        for m, a in enumerate(angles):
            D[2 * m:2 * m + 2, 2 * m:2 * m + 2] = [[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]
        D[range(2 * len(angles), n), range(2 * len(angles), n)] = signs
        B, _ = np.linalg.qr(rng.normal(size=(n, n)))
        return B @ D @ B.T

    for angles, signs in ([0.35], []), ([2.1, 0.4, 1.3], []), ([2.8], [1]), ([0.7, 0.7, 3.0], [-1]), ([1.2], [1, -1]), ([], [-1, -1, 1]), ([np.pi / 2, 0.001], []):
        right = np.sort([*np.repeat(angles, 2), *(0.0 if s > 0 else np.pi for s in signs)])
        O = rotations(angles, signs)
        with np.errstate(invalid="ignore"):
            got = array(answer(O), right.shape, "angles_of(O)")
        if np.abs(got - right).max() < 1e-6:
            continue
        if np.abs(np.sort(np.abs(got)) - right).max() < 1e-6 and (got < -1e-6).any():
            raise Mistake("The sizes are right, some signs are negative. The direction of a turn depends on the side from which one looks at its plane: take sizes, from 0 to π.")
        if np.abs(np.sort(got) - right).max() < 1e-6:
            raise Mistake("The angles are right, the order is not: the smallest comes first.")
        if np.abs(np.sort(np.arccos(np.clip(got, -1, 1))) - right).max() < 1e-6:
            raise Mistake("You gave the cosines; the angles were asked for.")
        raise Mistake(f"For blocks that turn by {[round(float(a), 4) for a in angles]} and the signs {list(signs)} you answer {got.round(4).tolist()}; it should be {right.round(4).tolist()}.")
    return "Two numbers for each plane, 0 and π for what only stays or flips: the frequencies are in the matrix, whatever the basis."


def two_maps(answer):
    """Maps for queries and keys from the scores at lags 0 and 1."""
    rng = np.random.default_rng(11)

    def case(d, X=None):
        G0 = rng.normal(size=(d, d)) + 2 * np.eye(d)
        X = np.eye(d) + 0.3 * rng.normal(size=(d, d)) if X is None else X
        return G0, G0 @ X, X

    c, s = np.cos(0.35), np.sin(0.35)
    for G0, G1, X in (case(1), case(3), case(4), case(2, np.array([[1.0, -0.5], [0, 1]])), case(2, 0.9 * np.array([[c, s], [-s, c]])), case(3, np.diag([1, -1, 2.0]))):
        d = len(G0)
        given = answer(G0.copy(), G1.copy())
        if not isinstance(given, (tuple, list)) or len(given) != 2 or not all(map(callable, given)):
            raise Mistake("two_maps should return two functions, one for queries and one for keys.")
        A, B = given
        _name_the_slip(A, B, G0, G1, X, d)
        tables = {p: (array(A(p), (d, d), f"the queries' map at {p}"), array(B(p), (d, d), f"the keys' map at {p}")) for p in range(-3, 6)}
        for i in range(-3, 6):
            for j in range(-3, 6):
                want = G0 @ np.linalg.matrix_power(X, i - j)
                got = tables[i][0].T @ tables[j][1]
                if np.abs(got - want).max() < 1e-7 * max(1, np.abs(want).max()) + 1e-9 * np.abs(tables[i][0]).max() * np.abs(tables[j][1]).max():
                    continue
                raise Mistake(f"Right for all positions p ≥ 0; at i = {i}, j = {j} the product is off by {np.abs(got - want).max():.2g}. What do your maps do at a negative p? (A loop over range(p) does nothing there.)")
    return "Lags 0 and 1 fix all the others: the second map undoes what the first one does, step by step."


def _name_the_slip(A, B, G0, G1, X, d):
    """The likely mistake of two maps that fail at positions p ≥ 0 already."""
    power, near = np.linalg.matrix_power, lambda a, b: np.abs(a - b).max() < 1e-7 * max(1, np.abs(b).max())
    Q, K = ([array(M(p), (d, d), f"the {who} map at {p}") for p in range(4)] for M, who in ((A, "queries'"), (B, "keys'")))

    def gives(f, flip=False):
        return all(near((Q[i] if flip else Q[i].T) @ K[j], f(i, j)) for i in range(4) for j in range(4))

    if gives(lambda i, j: G0 @ power(X, i - j)):
        return
    left, right = X, G1 @ np.linalg.inv(G0)
    for step in (left, right):
        if gives(lambda i, j, step=step: power(step, i - j)):
            raise Mistake("Your maps give the powers alone; at lag 0 the product should be G(0).")
    if gives(lambda i, j: G0 @ power(G1, i - j)) or gives(lambda i, j: power(G1, i - j) @ G0) or gives(lambda i, j: power(G1, i - j)):
        raise Mistake("Your step is G(1) itself. G(1) = Q_0ᵀ X K_0 holds the factors of G(0) too; take them out.")
    if gives(lambda i, j: G0 @ power(X, j - i)):
        raise Mistake("Your lag has the wrong sign: at (1, 0) you give what belongs to (0, 1). Queries carry the positive powers.")
    if gives(lambda i, j: G0 @ power(X, i - j), flip=True):
        raise Mistake("Your queries' map is the transpose of the one that is needed: the product is that of Q(i).T and K(j).")
    if near(Q[0].T @ K[0], G0) and all(np.linalg.cond(M) < 1e12 for M in (Q[0], K[0], K[1])):
        query, key = np.linalg.solve(Q[0].T, Q[1].T), K[0] @ np.linalg.inv(K[1])      # both should be X
        if near(query, key.T) and not near(query, key):
            raise Mistake("One step of your queries is the transpose of what the keys' step undoes. Q_p = (Xᵀ)^p Q_0: is the transpose on X missing?")
    for i in range(4):
        if not near(Q[i].T @ K[i], G0):
            raise Mistake(f"At i = j = {i} the product should be G(0) and is off by {np.abs(Q[i].T @ K[i] - G0).max():.2g}. Does the key's map undo what the query's does?")
    raise Mistake(f"At i = 1, j = 0 the product is off by {np.abs(Q[1].T @ K[0] - G1).max():.2g} from G(1). Matrices do not commute: on which side of G(0) does the power stand, and what does the transpose do to the order?")
