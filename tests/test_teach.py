"""Claims hold or raise; checkers answer; pictures carry their words."""

import math
import re

import numpy as np
import pytest

from poslib.teach import check, claim, picture
from poslib.teach.plots import axes


def test_a_claim_that_holds_shows_its_bound_and_no_digits():
    shown = claim("a-b", "It is <small>.", 3.14159e-15, below=1e-12, rows=["S1:2", "S2:47"])._repr_html_()
    assert 'id="claim-a-b"' in shown and "&lt; 1e-12" in shown and 'data-rows="S1:2 S2:47"' in shown
    assert "3.14" not in shown and "It is &lt;small&gt;." in shown


@pytest.mark.parametrize("value, bound", [
    (2.0, {"below": 1.0}), (1.0, {"below": 1.0}), (1.0, {"above": 1.0}), (3, {"between": (0, 2)}), (5, {"equals": 6}),
    (math.nan, {"below": 1.0}), (math.nan, {"between": (0, 1)}), ([0.1, 2.0], {"below": 1.0}), ([], {"below": 1.0}),
    ([0.1, math.nan], {"above": 0.0}), (np.float64(2), {"below": 1}), (False, {"equals": True}),
    (np.array([[0.1, 2.0]]), {"below": 1.0}), (math.inf, {"above": 1.0}), ([0, 1], {"equals": (0, 1)}), (1, {"equals": True})])
def test_a_claim_that_fails_raises_with_its_value(value, bound):
    with pytest.raises(AssertionError, match="claim 'x' does not hold: S. The value is"):
        claim("x", "S.", value, **bound)


@pytest.mark.parametrize("value, bound", [
    (0.5, {"below": 1.0}), (2, {"above": 1.0}), (2, {"between": (0, 2)}), (6, {"equals": 6}), ([0.1, 0.2], {"below": 1.0}),
    (np.float32(0.5), {"between": (0, 1)}), (np.array([[0.1, 0.2]]), {"below": 1.0}), ("abc", {"equals": "abc"})])
def test_a_claim_that_holds_is_returned(value, bound):
    assert claim("x", "S.", value, **bound).statement == "S."


@pytest.mark.parametrize("arguments, message", [
    (dict(id="x"), "bounds none; give exactly one"), (dict(id="x", below=1, above=0), r"bounds \['below', 'above'\]"),
    (dict(id="A b", below=1), "id is 'A b'"), (dict(id="x", below=1, kind="sure"), "kind is 'sure'; allowed are proved"),
    (dict(id="x", below=1, kind="proved"), "claim 'x' is proved: give source"),
    (dict(id="x", below=1, kind="measured"), "give source, an experiment, with seeds"),
    (dict(id="x", below=1, rows=["S1:46"]), "rows holds 'S1:46'"), (dict(id="x", below=1, rows=["23"]), "rows holds '23'")])
def test_what_makes_no_claim_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        claim(arguments.pop("id"), "S.", 0.5, **arguments)


def test_a_checker_never_raises_in_the_page():
    def broken(*args):
        raise KeyError("oops")
    for answer in (..., None, broken, 3, "text", lambda *a: None, lambda *a: np.nan):
        verdict = check("order_blindness/pooling", answer)
        assert not verdict.accepted and verdict.message and "<div" in verdict._repr_html_()
    assert "KeyError" in check("order_blindness/pooling", broken).message


def detector(*, compare=lambda f, x, p: np.abs(f(x[p]) - f(x)[p]).max(), orders=None, tolerance=1e-9, n=24, rows=None):
    """A detector of order as a reader might write it."""
    def sees_order(f):
        rng = np.random.default_rng(0)
        gaps = []
        for k in range(20):
            x = rng.normal(size=(n, 6)) if rows is None else rows(n)
            p = rng.permutation(n) if orders is None else orders(n)
            gaps.append(compare(f, x, p))
        return bool(max(gaps) > tolerance)
    return sees_order


def swapped(n, i, j):
    p = np.arange(n)
    p[[i, j]] = p[[j, i]]
    return p


@pytest.mark.parametrize("name, answer, says", [
    ("pooling", lambda h: h.sum(axis=0), None), ("pooling", lambda h: h.mean(axis=0), None), ("pooling", lambda h: h.sum(axis=0) + 1e6, None),
    ("pooling", lambda h: h.max(axis=0), "lost in your result"), ("pooling", lambda h: h[0], "changes your result"),
    ("pooling", lambda h: h.sum(axis=0) + 1e-6 * h[0], "changes your result"), ("pooling", lambda h: h.std(axis=0), "how often a row occurs"),
    ("pooling", lambda h: h.T @ h, "shape"), ("pooling", lambda h: print(end=""), "return missing"),
    ("distinct_predictions", lambda t: len(set(t)), None), ("distinct_predictions", len, "a prediction for each place"),
    ("distinct_predictions", lambda t: len(set(t) - {"[MASK]"}), "that one counts too"),
    ("blind_orders", lambda n: [tuple(range(n)), tuple(range(n))[::-1]], None), ("blind_orders", lambda n: [tuple(range(n))], "mirror"),
    ("blind_orders", lambda n: 2, "list of tuples"), ("blind_orders", lambda n: [tuple(range(1, n + 1))], "is not an order"),
    ("sees_order", detector(), None), ("sees_order", detector(tolerance=0), "rounding"), ("sees_order", detector(tolerance=1e-4), "tolerance hides"),
    ("sees_order", detector(orders=lambda n: np.arange(n)[::-1]), "reverse"), ("sees_order", detector(orders=lambda n: np.roll(np.arange(n), 1)), "cyclic"),
    ("sees_order", detector(orders=lambda n: swapped(n, 0, 1)), "move all of them"), ("sees_order", detector(orders=lambda n: swapped(n, -1, -2)), "move all of them"),
    ("sees_order", detector(n=4), "longer sentences"), ("sees_order", detector(rows=lambda n: np.ones((n, 6))), "random X and P"),
    ("sees_order", detector(compare=lambda f, x, p: np.abs(f(x[p]) - f(x)).max()), "not with f(X)"), ("sees_order", lambda f: True, "not with f(X)"),
    ("sees_order", lambda f: "yes", "True or False"),
    ("sees_order", detector(compare=lambda f, x, p: np.abs(f(x[p]).sum(0) - f(x).sum(0)).max()), "random X and P")])
def test_likely_answers_get_the_right_sentence(name, answer, says):
    verdict = check(f"order_blindness/{name}", answer)
    assert verdict.accepted == (says is None), verdict
    assert says is None or says in verdict.message, verdict.message


def test_an_unknown_exercise_is_named():
    for name in ("order_blindness/nothing", "nowhere/pooling", "pooling", "order_blindness/__all__", "order_blindness/np"):
        with pytest.raises(ValueError, match="exercise is .*; allowed are .*order_blindness/pooling"):
            check(name, 1)


def test_a_picture_is_the_same_twice_and_has_alt_text():
    def draw():
        fig, ax = axes()
        ax.plot([0, 1], [1, 0], label="line")
        ax.legend()
        return picture(fig, "A line that falls from one to zero.")._repr_mimebundle_()
    data, extra = draw()
    assert draw() == (data, extra) and extra["image/png"] == {"alt": "A line that falls from one to zero.", "width": 640}
    assert data["text/plain"].endswith("from one to zero.")
    with pytest.raises(ValueError, match="alt is ''"):
        picture(axes()[0], "")


def test_pictures_that_differ_are_noticed():
    from importlib.util import module_from_spec, spec_from_file_location
    from conftest import ROOT
    spec = spec_from_file_location("root_conftest", ROOT / "conftest.py")
    root = module_from_spec(spec)
    spec.loader.exec_module(root)

    def drawn(height, width=6.4):
        fig, ax = axes(width=width)
        ax.plot([0, 1], [0, height])
        ax.set_ylim(0, 2)
        return [{"data": picture(fig, "A line that rises to some height.")._repr_mimebundle_()[0]}]
    assert root.differing_pictures(drawn(1), drawn(1)) == []
    assert "differs from the stored one" in root.differing_pictures(drawn(1), drawn(1.2))[0]
    assert "pixels" in root.differing_pictures(drawn(1), drawn(1, 6.0))[0]
    assert root.differing_pictures([], drawn(1)) == ["0 pictures were drawn, 1 are stored"]


def test_a_cell_that_says_why_its_output_may_differ_is_not_compared():
    from nbval.plugin import find_comment_markers
    for source, marked in {"# NBVAL_IGNORE_OUTPUT: times of this machine\nprint(1)": {"check": False}, "# NBVAL_IGNORE_OUTPUT\nprint(1)": {"check": False},
                           "print(1)  # NBVAL_IGNORE_OUTPUT": {}, "# nothing to ignore": {}}.items():
        assert dict(find_comment_markers(source)) == marked


def by_counts(x, y):
    return x[-1] == y[-1] and sorted(x) == sorted(y)


def causal_test(sizes, changed, room=1e-9, n=24):
    def is_causal(f):
        x = np.random.default_rng(0).normal(size=(n, 6))
        for size in sizes:
            for cut in changed:
                y = x.copy()
                y[cut:] += 1
                if np.abs(f(size * x)[:cut] - f(size * y)[:cut]).max() > room * size:
                    return False
        return True
    return is_causal


@pytest.mark.parametrize("exercise, answer, message", [
    ("alike", lambda x, y: x == y, "'abc' and 'bac'.*only the order differs"), ("alike", by_counts, "'abb' and 'bababb'.*counts differ, the shares do not"),
    ("alike", lambda x, y: all(abs(x.count(a) / len(x) - y.count(a) / len(y)) < 1e-6 for a in "abcd") and x[-1] == y[-1], "does your function round"),
    ("alike", lambda x, y: all(x.count(a) * len(y) == y.count(a) * len(x) for a in "abcd"), "last place sees its own token"),
    ("alike", lambda x, y: 3, "gave 3; it should give True or False"),
    ("read_back", lambda history: [t for t, _ in history], "in another order"),
    ("read_back", lambda history: [t for t, s in sorted(history, key=lambda z: len(z[1]))], "in another order"),
    ("read_back", lambda history: [t for t, s in sorted(history, key=lambda z: -z[1]["<s>"])][1:], "mark itself is missing"),
    ("read_back", lambda history: ["x"], "you return"), ("read_back", lambda history: [t for t, s in sorted(history, key=lambda z: z[1]["<s>"])], "in another order"),
    ("vernier", [0.0], "One clock is not enough.* 189 and 190"), ("vernier", [0.0, 0.0], "189 and 190 others.*equal marks"),
    ("vernier", [0, np.log(2), 2 * np.log(2)], "within one such octave"), ("vernier", list(range(0, -8, -1)), "422 and 423"),
    ("vernier", [10, 20.0], "0 and 1 others.*large c"), ("vernier", list(range(9)), "9 heads; eight"), ("vernier", "x", "could not convert"),
    ("is_causal", lambda f: True, "attention without a mask you answer True"), ("is_causal", lambda f: False, "causal attention you answer False"),
    ("is_causal", causal_test([1], range(1, 24)), "the number −10,000 you answer True.*in all rows"),
    ("is_causal", causal_test([1, 1000], range(1, 8), n=8), "longer sequences only"),
    ("is_causal", causal_test([1, 1000], range(1, 24), 1e-2), "a mean over the whole sequence.*tolerance"),
    ("is_causal", causal_test([1, 1000], range(1, 8), -1), "causal attention you answer False.*rounding")])
def test_the_likely_mistakes_of_chapter_02_are_named(exercise, answer, message):
    verdict = check(f"causal_mask/{exercise}", answer)
    assert not verdict.accepted and re.search(message, verdict.message), verdict.message


def test_bfloat16_of_the_checker_is_torchs():
    import torch
    from poslib.teach.checkers.causal_mask import _bfloat16
    x = np.concatenate([np.random.default_rng(0).lognormal(0, 5, 20000), 1 / (1 + np.arange(4096.0))])
    x = x.astype(np.float32).astype(float)          # torch goes by way of float32
    assert (_bfloat16(x) == torch.from_numpy(x).to(torch.bfloat16).double().numpy()).all()


def spread_out(at):
    """Interpolation at places that `at(rows, old)` gives."""
    def stretch(table, rows):
        places = np.clip(at(np.arange(rows), len(table), rows), 0, len(table) - 1)
        return np.stack([np.interp(places, np.arange(len(table)), channel) for channel in table.T], axis=1)
    return stretch


def swapped_shares(known):
    """s and 1 − s exchanged; perhaps right where s = 0."""
    def stretch(table, rows):
        at = np.arange(rows) * (len(table) - 1) / (rows - 1)
        m, after = np.floor(at + 1e-9).astype(int), np.minimum(np.floor(at + 1e-9).astype(int) + 1, len(table) - 1)
        s = (at - m)[:, None]
        return np.where(known & (np.abs(s) < 1e-9), table[m], s * table[m] + (1 - s) * table[after])
    return stretch


def projected(which):
    """A tied matrix by orthogonal projections onto the two spans."""
    def tied(e, p, one, two):
        a, b = (np.linalg.pinv(rows) @ rows for rows in (e, p))
        return one @ (a if which != "places" else np.eye(6) - b) + two @ (b if which != "words" else np.eye(6) - a)
    return tied


def null_of(*which):
    """Rows in the null space of some of the three matrices."""
    def unseen(*given):
        *matrices, rows = given
        directions = np.linalg.svd(np.vstack([matrices[i] for i in which]))[2]
        return np.arange(1, rows + 1)[:, None] * directions[2 * len(which)]
    return unseen


def share(count):
    def right_share(trained, start, length, back):
        met = {(s + i, s + i - back) for s in trained for i in range(back, length)}
        return count(met, {s + i for s in trained for i in range(length)}, start, length, back)
    return right_share


@pytest.mark.parametrize("exercise, answer, message", [
    ("stretch", spread_out(lambda r, old, rows: r * old / rows), "the step between new rows"),
    ("stretch", spread_out(lambda r, old, rows: (r + 0.5) * old / rows - 0.5), "pixel centres"),
    ("stretch", lambda table, rows: table[np.rint(np.arange(rows) * (len(table) - 1) / (rows - 1)).astype(int)], "only repeat old rows"),
    ("stretch", swapped_shares(False), "gets the other's share"), ("stretch", swapped_shares(True), "gets the other's share"),
    ("stretch", spread_out(lambda r, old, rows: (r / (rows - 1)) ** 2 * (old - 1)), "the ends are right, row"),
    ("stretch", lambda table, rows: table, r"shape \(4, 3\); it should be \(7, 3\)"), ("stretch", lambda table, rows: None, "is a return missing"),
    ("tied", lambda e, p, one, two: (one + two) / 2, "A sum or a mean"), ("tied", lambda e, p, one, two: one + two, "A sum or a mean"),
    ("tied", lambda e, p, one, two: one, "treats the words rightly"), ("tied", lambda e, p, one, two: two, "treats the places rightly"),
    ("tied", lambda e, p, one, two: (np.linalg.pinv(np.vstack([e, p])) @ np.vstack([e @ one.T, p @ one.T])).T, "treats the words rightly"),
    ("tied", lambda e, p, one, two: one @ one.T @ two, "is off by up to"),
    ("tied", projected("both"), "not orthogonal"), ("tied", projected("words"), "not orthogonal"), ("tied", projected("places"), "not orthogonal"),
    ("tied", lambda e, p, one, two: (np.linalg.pinv(np.vstack([e, p])) @ np.vstack([e @ one.T, p @ two.T])).T
     if np.linalg.matrix_rank(e) == 3 else np.zeros((4, 6)), "until the word vectors depend on each other"),
    ("unseen", null_of(0), "The keys see your table, the queries"), ("unseen", null_of(0, 1), "The values see your table, the queries and the keys do not"),
    ("unseen", lambda q, k, v, rows: np.zeros((rows, 8)), "Two of your rows are equal"),
    ("unseen", lambda q, k, v, rows: np.eye(8)[:rows], "The queries see your table. All rows"),
    ("right_share", share(lambda met, rows, start, length, back: 1.0), "stood in one training sequence|which pairs"),
    ("right_share", share(lambda met, rows, start, length, back: np.mean([start + i in rows for i in range(back, length)])), "Ask which pairs"),
    ("right_share", share(lambda met, rows, start, length, back: np.mean([start + i in rows and start + i - back in rows for i in range(back, length)])), "Ask which pairs"),
    ("right_share", share(lambda met, rows, start, length, back: sum((start + i, start + i - back) in met for i in range(length)) / length), "divide by length − back"),
    ("right_share", share(lambda met, rows, start, length, back: sum(i < back or (start + i, start + i - back) in met for i in range(length)) / length), "divide by length − back"),
    ("right_share", lambda trained, start, length, back: sum(any(t + back <= start + i <= t + length for t in trained) for i in range(back, length)) / (length - back), "one place too long"),
    ("right_share", lambda trained, start, length, back: max(max(0, length - back - abs(start - t)) for t in trained) / (length - back), "Collect the pairs of all"),
    ("right_share", lambda trained, start, length, back: min(1.0, sum(max(0, length - back - abs(start - t)) for t in trained) / (length - back)), "in a set"),
    ("right_share", lambda trained, start, length, back: sum(max(0, length - back - abs(start - t)) for t in trained) / (length - back), "in a set"),
    ("right_share", lambda *given: "all", "should give a number")])
def test_the_likely_mistakes_of_chapter_03_are_named(exercise, answer, message):
    verdict = check(f"learned_positions/{exercise}", answer)
    assert not verdict.accepted and re.search(message, verdict.message), verdict.message


def test_every_right_table_that_nobody_sees_is_accepted():
    common = lambda q, k, v, rows: 100 + null_of(0, 1, 2)(q, k, v, rows)  # noqa: E731
    for answer in (null_of(0, 1, 2), common):
        assert check("learned_positions/unseen", answer).accepted
    seen = lambda q, k, v, rows: common(q, k, v, rows) + 1e-4 * np.eye(8)[:rows]  # noqa: E731
    assert not check("learned_positions/unseen", seen).accepted


def test_one_matrix_may_be_solved_for_the_sums():
    def tied(words, places, one, two):
        sums, wanted = (np.array([f(e, p) for e in words for p in places]) for f in (lambda e, p: e + p, lambda e, p: one @ e + two @ p))
        return (np.linalg.pinv(sums) @ wanted).T
    assert check("learned_positions/tied", tied).accepted
