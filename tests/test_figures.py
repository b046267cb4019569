"""The figures: their numbers against poslib, and every way of using them."""

import itertools
import json
import math
import re
import statistics
from pathlib import Path

import numpy as np
import pytest

from conftest import SITE
from poslib import absolute, cost, extension, relative, rotary
from poslib.attention import attention, causal_mask, softmax
from poslib.collisions import collision_counts, distance, merged_positions, nearest_lag, rounded
from poslib.lab import atlas, bytes_and_flops, choosing, learned_positions, patching_position, position_in_circuits, real_model, results
from poslib.lab.pretrained import MINILM, installed
from poslib.rotary import rotate
from poslib.teach import figure, figures

CHAPTER = "book/01-order-blindness.html"
FIRST = CHAPTER + "?order.order=0-1-2"           # the figure in its first order, whatever the chapter shows


def figure_pages():
    return [p.relative_to(SITE).as_posix() for p in SITE.glob("book/*.html") if "<pos-fig" in p.read_text("utf8")]


def figures_in_pages():
    return sorted({kind for page in figure_pages() for kind in re.findall(r'<pos-fig kind="(\w[\w-]*)"', (SITE / page).read_text("utf8"))})


# ---- numbers --------------------------------------------------------------------------------------

@pytest.mark.parametrize("sentence, order", [("short", [2, 1, 0]), ("short", [1, 0, 2]), ("twins", [3, 1, 2, 0, 4]), ("twins", [4, 2, 0, 3, 1])])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("layers", [1, 2, 3, 4])
def test_order_computes_what_poslib_computes(sentence, order, mask, layers):
    got = figure("order", sentence=sentence, order=order, mask=mask, layers=layers).compute()
    embedding = dict(zip(got["vocabulary"], np.array(got["embedding"])))

    def run(words):
        h = np.array([embedding[w] for w in words])
        for layer in got["layers"][:layers]:
            q, k, v = (h @ np.array(layer[name]).T for name in "qkv")
            change, weights = attention(q, k, v, mask=causal_mask(len(words)) if mask else None)
            h = h + change
        return h, weights

    before, _ = run(got["words"])
    after, weights = run([got["words"][i] for i in order])
    np.testing.assert_allclose(got["before"], before, atol=1e-12)
    np.testing.assert_allclose(got["after"], after, atol=1e-12)
    np.testing.assert_allclose(got["weights"], weights, atol=1e-12)
    moved = [np.linalg.norm(before[i] - after[order.index(i)]) for i in range(len(order))]
    np.testing.assert_allclose(got["changed"], moved, atol=1e-12)
    twins = [after[order.index(i)] for i in (0, 3)] if sentence == "twins" else None
    assert got["apart"] is None if twins is None else abs(got["apart"] - np.linalg.norm(twins[0] - twins[1])) < 1e-12
    said = figures.call("say", "order", {"sentence": sentence, "order": order, "mask": mask, "layers": layers})
    assert ("no hidden state changed" in said) == (max(moved) < 1e-9)
    for word, distance in zip(got["names"], moved):
        assert distance < 1e-9 or f"{word} by {distance:.3f}" in said


@pytest.mark.parametrize("words", ["different", "two", "constant"])
@pytest.mark.parametrize("order", [[0, 1, 2, 3], [2, 0, 3, 1], [3, 2, 1, 0]])
@pytest.mark.parametrize("mark", [False, True])
@pytest.mark.parametrize("layers", [1, 2, 3, 4])
def test_prefix_computes_what_poslib_computes(words, order, mark, layers):
    state = {"words": words, "order": order, "layers": layers, "mark": mark}
    got = figure("prefix", **state).compute()
    embedding = dict(zip(got["vocabulary"], np.array(got["embedding"])))

    def run(tokens):
        h = np.array([embedding[w] for w in tokens])
        for layer in got["layers"][:layers]:
            q, k, v = (h @ np.array(layer[name]).T for name in "qkv")
            h = h + attention(q, k, v, mask=causal_mask(len(tokens)))[0]
        return h

    skip = int(mark)
    assert got["now"] == got["first"][:skip] + [got["first"][skip + i] for i in order] + got["first"][-1:]
    before, after = run(got["first"]), run(got["now"])
    np.testing.assert_allclose(got["before"], before, atol=1e-12)
    np.testing.assert_allclose(got["after"], after, atol=1e-12)
    moved = np.linalg.norm(before[-1] - after[-1])
    spread = max(np.linalg.norm(a - b) for a in after[skip:] for b in after[skip:])
    np.testing.assert_allclose([got["moved"], got["spread"]], [moved, spread], atol=1e-12)
    # what the chapter proves: one layer does not see the order, more do; equal tokens need a mark to come apart
    assert (moved < 1e-9) == (layers == 1 or got["first"] == got["now"])
    assert (spread < 1e-9) == (words == "constant" and not mark)
    said = figures.call("say", "prefix", state)
    assert ("is where it was" in said) == (moved < 1e-9) and (moved < 1e-9 or f"moved by {moved:.3f}" in said)
    assert ("one and the same state" in said) == (spread < 1e-9) and (spread < 1e-9 or f"{spread:.3f} from each other" in said)


HANDS = {"one": 1, "slow": 1, "nested": 3, "coprime": 3, "free": 3, "ladder2": 2, "ladder3": 3, "ladder4": 4, "ladder8": 8}


@pytest.mark.parametrize("hands", HANDS)
@pytest.mark.parametrize("stretch, length, tolerance, dtype", [
    (0, 256, 0.1, "exact"), (0, 4096, 0.03, "bf16"), (3, 1024, 0.25, "fp16"), (8, 4096, 1.0, "bf16"), (8, 2048, 0.01, "fp32")])


def test_collisions_counts_what_poslib_counts(hands, stretch, length, tolerance, dtype):
    state = {"hands": hands, "stretch": stretch, "length": length, "tolerance": tolerance, "dtype": dtype, "lag": 44}
    got, said = figure("collisions", **state).compute(), figures.call("say", "collisions", state)
    omega = np.array(got["frequencies"], float)
    assert len(omega) == HANDS[hands]
    assert 0 < got["tolerance"] - tolerance < 1e-8
    want = collision_counts(omega, length, got["tolerance"])
    assert (got["pairs"], got["joint"], tuple(got["each"])) == want and f"{want.joint:,} agree" in said
    product = want.pairs * math.prod(e / want.pairs for e in want.each)
    assert abs(got["product"] - product) <= 1e-9 * product
    shown = f"{product:.1f}" if product < 1000 and product != round(product) else f"{product:,.0f}"
    assert len(omega) == 1 or f"predicts {shown}." in said
    assert sum(length - t for t in got["together"]) == want.joint
    lag, nearest = nearest_lag(omega, length - 1)
    assert abs(got["distance"] - nearest) < 1e-9 and abs(distance(np.array([got["nearest"]]), omega)[0] - nearest) < 1e-9
    assert got["nearest"] == lag or nearest < 1e-9, "a whole turn, whose rest in float64 decides nothing"
    assert ("The nearest codes, before rounding, are" in said) == (dtype != "exact")
    assert f"{got['nearest']:,} step" in said and (nearest < 1e-3 or f"at distance {nearest:.4f}" in said)
    merged = [] if dtype == "exact" else sorted(set.intersection(*({int(m) for m in merged_positions(w, length, dtype)} for w in omega)))
    assert got["merged"] == merged
    assert (f"{len(merged):,} of {length - 1:,} positions equal" in said) if merged else ("no neighbours merge" in said or "no position equals" in said)
    turned = np.abs((44 * omega + np.pi) % (2 * np.pi) - np.pi)
    np.testing.assert_allclose(got["gaps"], turned, atol=1e-12)


def test_collisions_knows_the_chapters_numbers():
    def at(hands, **state):
        return figure("collisions", hands=hands, **state).compute()
    np.testing.assert_allclose(at("ladder4")["frequencies"], [1, 0.1, 0.01, 0.001], rtol=1e-14)
    np.testing.assert_allclose(2 * np.pi / np.array(at("coprime", stretch=2)["frequencies"]), [60, 64, 68], rtol=1e-14)
    nested, coprime = at("nested", length=4096), at("coprime", length=4096, tolerance=0.05)
    assert (nested["joint"], nested["nearest"]) == (129_024, 64) and (coprime["joint"], coprime["nearest"]) == (16, 4080)
    assert at("one", length=1024)["nearest"] == 710 and at("slow", stretch=4, length=4096, dtype="bf16")["merged"][0] == 165
    assert at("slow", stretch=2, length=4096, dtype="bf16")["merged"][0] == 167
    assert at("slow", stretch=8, length=4096, dtype="fp32")["merged"] == []


def test_collisions_explains_the_gaps_and_the_last_lag():
    """Neighbours stay apart near each quarter turn; lags beyond the length are not shown."""
    state = {"hands": "slow", "stretch": 2, "length": 4096, "dtype": "bf16", "lag": 44}
    merged = np.array(figure("collisions", **state).compute()["merged"])
    assert merged.size and all(np.abs(merged + 0.5 - quarter).min() > 100 for quarter in (0, 1024, 2048, 3072))
    assert "gap at each quarter turn" in figures.call("say", "collisions", state)
    assert "gap" not in figures.call("say", "collisions", {**state, "stretch": 8}), "not a quarter of its turn is shown"
    beyond = {"length": 256, "lag": 4000}
    assert figure("collisions", **beyond).compute()["lag"] == 255 and "stop at lag 255" in figures.call("say", "collisions", beyond)
    assert "stop at" not in figures.call("say", "collisions", {"length": 256, "lag": 255})


def test_collisions_rounds_as_poslib_does():
    """Cosines and sines of one hand, through the positions that merge, at the edge of the subnormals too."""
    engine = figures._engine()
    js = (figures.JS / "collisions.js").read_text("utf8")
    body = js[js.index("const FORMATS"):js.index("function numbers")]
    x = [1.0, -1.0, 0.0625, 1 - 2**-9, 1 - 2**-9 - 1e-9, 1 + 2**-8, 1 + 3 * 2**-8, -(1 + 2**-8), 3.0e-6, 2.0**-24, 3 * 2.0**-25, 2.0**-25, 0.1, 1 / 3, 1e-39]
    x += np.sin(np.arange(500) * 0.001).tolist()
    for dtype in ("bf16", "fp16", "fp32"):
        got = json.loads(engine.eval(f"(function () {{ const TURN = 6.28; {body} return JSON.stringify({json.dumps(x)}.map((v) => rounded(v, '{dtype}'))); }})()"))
        np.testing.assert_array_equal(np.array(got), rounded(np.array(x), dtype))


@pytest.mark.parametrize("state", [{}, {"position": 0, "pair": 3}, {"position": 96, "pair": 0, "shift": 32}, {"width": "4", "pair": 1, "base": "100", "shift": 1},
                                   {"width": "64", "pair": 31, "position": 77, "shift": 3, "base": "500000"}, {"width": "512", "pair": 255, "position": 50, "shift": 7},
                                   {"shift": -20, "position": 5}, {"shift": -32, "pair": 0}, {"span": "8192", "position": 5000, "pair": 3, "shift": -3, "trained": "4096", "others": True}])


def test_sinusoid_pair_computes_what_poslib_computes(state):
    got = figure("sinusoid-pair", **state).compute()
    s = {"position": 18, "pair": 1, "width": "8", "base": "10000", "shift": 0, **state}
    d, k, base, p, shift = int(s["width"]), s["pair"], float(s["base"]), s["position"], s["shift"]
    omega = absolute.frequencies(d, base=base)
    here, there = absolute.sinusoid(np.array([p, p + shift]), d, base=base)[:, 2 * k:2 * k + 2]
    block = absolute.shift_matrix(shift, d, base=base)[2 * k:2 * k + 2, 2 * k:2 * k + 2]
    for found, right in [(got["here"], here), (got["there"], there)]:
        np.testing.assert_allclose([found["sine"], found["cosine"]], right, atol=1e-12)
    np.testing.assert_allclose(block @ here, [got["there"]["sine"], got["there"]["cosine"]], atol=1e-12)
    np.testing.assert_allclose([got["omega"], got["wavelength"], got["turned"], got["pairs"]], [omega[k], 2 * np.pi / omega[k], shift * omega[k], d / 2], rtol=1e-12)
    said, panels = (figures.call(f, "sinusoid-pair", state) for f in ("say", "draw"))
    assert f"sine {here[0]:.3f}, cosine {here[1]:.3f}" in said.replace("-0.000", "0.000") or abs(here).min() < 5e-4
    for where in (said, panels[0]):
        shown = re.findall(r"turned by ([\d.]+) rad( backwards)?(?: \((\d+) turns? and ([\d.]+) rad\))?", where)
        assert len(shown) == (shift != 0) or where is panels[0]      # there it is a picture's label, too
        for size, back, turns, rest in shown:
            assert abs(float(size) - abs(shift * omega[k])) <= 6e-4 and abs(float(size) / abs(shift * omega[k]) - 1) < 6e-3 and (back != "") == (shift < 0)
            assert (turns != "") == (abs(shift * omega[k]) >= 2 * np.pi) or where is panels[0]
            assert not turns or abs(int(turns) * 2 * np.pi + float(rest) - abs(shift * omega[k])) < 1e-3
    # the tips are where the numbers say: the circle has its centre at (130, 128), radius 92, the cosine upwards
    tips = re.findall(r'cx="([\d.]+)" cy="([\d.]+)" r="6"', panels[0])
    for tip, point in zip(tips, [there, here] if shift else [here], strict=True):
        np.testing.assert_allclose([float(t) for t in tip], [130 + 92 * point[0], 128 - 92 * point[1]], atol=0.006)


@pytest.mark.parametrize("width, pair, trained, position, seen", [("64", 8, 64, 90, True), ("64", 12, 64, 90, False), ("64", 12, 64, 60, True), ("64", 12, 64, 210, True),
                                                                  ("8", 3, 512, 600, False), ("8", 3, 0, 60, None)])


def test_sinusoid_pair_shades_what_training_shows(width, pair, trained, position, seen):
    state = {"width": width, "pair": pair, "trained": str(trained), "position": position, "span": "1024"}
    got, said = figure("sinusoid-pair", **state).compute(), figures.call("say", "sinusoid-pair", state)
    omega = absolute.frequencies(int(width))[pair]
    visited = np.arange(trained) * omega
    assert abs(got["arc"] - (min(visited.max(), 2 * np.pi) if trained else 0)) < 1e-12 or got["arc"] == 2 * np.pi and trained * omega >= 2 * np.pi
    assert ("training text" in said) == (trained > 0) and ("outside" in said) == (seen is False)
    if seen is not None:
        near = np.abs((position * omega - visited + np.pi) % (2 * np.pi) - np.pi).min()
        assert got["seen"] == seen == bool(near <= omega), "as far from all visited points as they are from each other"
    assert figures.call("draw", "sinusoid-pair", state)[1].count("<rect") == (trained > 0)


def test_sinusoid_pair_shows_the_other_hands():
    for width in (8, 512):
        panel = figures.call("draw", "sinusoid-pair", {"width": str(width), "others": True, "position": 7, "span": "1024"})[0]
        omega, found = absolute.frequencies(width), re.findall(r'x2="([\d.]+)" y2="([\d.]+)"[^>]*data-pair="(\d+)"', panel)
        assert [int(k) for _, _, k in found] == [k for k in range(0, width // 2, max(1, width // 64)) if k != 1]
        for x, y, k in found:
            np.testing.assert_allclose([float(x), float(y)], [130 + 92 * np.sin(7 * omega[int(k)]), 128 - 92 * np.cos(7 * omega[int(k)])], atol=0.006)
    assert "data-pair" not in "".join(figures.call("draw", "sinusoid-pair", {}))


def test_sinusoid_pair_does_not_draw_waves_it_cannot_show():
    fast, slow = (figures.call("draw", "sinusoid-pair", {"span": "8192", "pair": pair})[1] for pair in (0, 2))
    assert "1,304 turns: too many to draw" in fast and "<polyline" not in fast and slow.count("<polyline") == 2


@pytest.mark.parametrize("state", [{}, {"i": 4, "j": 10}, {"i": 0, "j": 0, "omega": 1.0}, {"i": 32, "j": 1, "omega": 0.95, "shift": 32}, {"i": 3, "j": 30, "omega": 0.05, "shift": 7}])


def test_rope_pair_computes_what_poslib_computes(state):
    s = {"i": 10, "j": 4, "omega": 0.35, "shift": 0, **state}
    got, said = figure("rope-pair", **state).compute(), figures.call("say", "rope-pair", state)
    places = np.array([s["i"] + s["shift"], s["j"] + s["shift"]])
    turned = rotate(np.array([[1.0, 0], [1.0, 0]]), places, layout="interleaved", frequencies=np.array([s["omega"]]))
    np.testing.assert_allclose([[got[n]["x"], got[n]["y"]] for n in ("query", "key")], turned, atol=1e-12)
    score = float(turned[0] @ turned[1])
    assert abs(got["score"] - score) < 1e-12 and got["lag"] == s["i"] - s["j"]
    assert f"= {score:.3f}".replace("-", "−") in said and ("Both moved" in said) == (s["shift"] > 0)
    assert ("behind" in said) == (got["lag"] < 0)
    unmoved = figure("rope-pair", **{**state, "shift": 0}).compute()
    assert abs(unmoved["score"] - score) < 1e-12, "moving both changes nothing"
    dial, plot = figures.call("draw", "rope-pair", state)
    tips = [[float(v) for v in tip] for tip in re.findall(r'cx="([\d.]+)" cy="([\d.]+)" r="6"', dial)]
    np.testing.assert_allclose(tips, [[130 + 92 * x, 122 - 92 * y] for x, y in turned[::-1]], atol=0.006)
    [point] = re.findall(r'cx="([\d.]+)" cy="([\d.]+)" r="6"', plot)
    np.testing.assert_allclose([float(v) for v in point], [34 + 338 * (got["lag"] + 32) / 64, 122 - 84 * score], atol=0.006)


@pytest.mark.parametrize("state", [{}, {"reading": "rows"}, {"query": 45, "key": 45, "lag": -5}, {"query": 30, "key": -150, "lag": 9, "omega": 1.0, "reading": "rows"},
                                   {"query": -75, "key": 20, "lag": 16, "omega": 0.9}, {"lag": 0, "query": 100}])


def test_rope_sign_computes_what_poslib_computes(state):
    s = {"query": 0, "key": 90, "lag": 6, "omega": 0.35, "reading": "columns", **state}
    got, said = figure("rope-sign", **state).compute(), figures.call("say", "rope-sign", state)
    q, k = (np.array([[math.cos(math.radians(s[n])), math.sin(math.radians(s[n]))]]) for n in ("query", "key"))
    turn = lambda x, p, back=False: rotate(x, np.array([p]), layout="interleaved", frequencies=np.array([s["omega"]]), inverse=back)  # noqa: E731
    columns, rows = ((turn(q, 20 + s["lag"], back) @ turn(k, 20, back).T).item() for back in (False, True))    # a row times the same matrix turns back
    np.testing.assert_allclose([got["columns"], got["rows"]], [columns, rows], atol=1e-12)
    shown = turn(q, s["lag"], s["reading"] == "rows")[0]
    np.testing.assert_allclose([math.cos(got["turned"]), math.sin(got["turned"])], shown, atol=1e-12)
    blind = abs(q[0, 0] * k[0, 1] - q[0, 1] * k[0, 0]) < 1e-9
    assert got["blind"] == blind == ("no test with these two sees the sign" in said) and (not blind or abs(columns - rows) < 1e-12)
    for value in (columns, rows):
        assert f"{value:+.3f}".replace("-", "−") in said or abs(value) < 5e-4
    dial, plot = figures.call("draw", "rope-sign", state)
    tips = re.findall(r'cx="([\d.]+)" cy="([\d.]+)" r="6"', dial)
    np.testing.assert_allclose([float(v) for v in tips[-1]], [132 + 74 * shown[0], 122 - 74 * shown[1]], atol=0.006)
    [angle] = re.findall(r"from k to q turned: (−?[\d.]+) rad", dial)          # its cosine is the score
    assert abs(math.cos(float(angle.replace("−", "-"))) - (rows if s["reading"] == "rows" else columns)) < 0.006
    dots = re.findall(r'cx="([\d.]+)" cy="([\d.]+)" r="6"', plot)
    np.testing.assert_allclose([float(y) for _, y in dots], [128 - 78 * rows, 128 - 78 * columns], atol=0.006)


def test_a_range_may_depend_on_another_control():
    """The last pair depends on the width; a narrower width brings the pair back into range."""
    complete = lambda **s: figures.call("complete", "sinusoid-pair", s)["pair"]  # noqa: E731
    assert complete(width="512", pair=255) == 255 and complete(width="8", pair=255) == 3 and complete(width="4") == 1
    with pytest.raises(ValueError, match="pair is 4, which sinusoid-pair does not allow .it would show 3."):
        figure("sinusoid-pair", pair=4)


@pytest.fixture(scope="module")
def minilm_table():
    if not installed(MINILM):
        pytest.skip(f"{MINILM.package} is not installed")
    return learned_positions.real_tables()[1]


def test_learned_table_keeps_the_digits_of_the_weights(minilm_table):
    script = (figures.JS / "learned-table.js").read_text("utf8")
    for name, text in learned_positions.figure_data().items():
        kept = re.search(rf"const {name} = '([^']*)';", script)[1]
        assert len(kept) == len(text)
        if name == "NEAREST":
            assert kept == text
        else:                           # the last of 4095 steps may turn over on another machine
            steps = [[64 * learned_positions.LETTERS.index(a) + learned_positions.LETTERS.index(b) for a, b in zip(t[::2], t[1::2])] for t in (kept, text)]
            assert np.abs(np.subtract(*steps)).max() <= 1


@pytest.mark.parametrize("position, lag, axes", [(0, 1, "1-2"), (1, 6, "3-4"), (100, 6, "8-10"), (127, 128, "2-3"), (300, 255, "1-3"), (509, 2, "5-6"), (511, 3, "1-2")])
def test_learned_table_computes_what_the_weights_say(minilm_table, position, lag, axes):
    state = {"position": position, "lag": lag, "axes": axes}
    got = figure("learned-table", **state).compute()
    rows, other = minilm_table, position + lag if position + lag < 512 else position - lag
    assert got["other"] == other
    lengths, apart = np.linalg.norm(rows, axis=1), np.linalg.norm(rows - rows[position], axis=1)
    np.testing.assert_allclose(got["cosines"], rows @ rows[position] / lengths / lengths[position], atol=0.01)
    assert abs(got["cosine"] - got["cosines"][other]) < 1e-12
    assert abs(got["distance"] - apart[other]) < 0.01
    np.testing.assert_allclose(got["lengths"], lengths[[position, other]], atol=1e-3)
    nearest = int(np.where(np.arange(512) == position, np.inf, apart).argmin())
    assert got["nearest"] == nearest and got["adjacent"] == (abs(nearest - position) == 1)
    first, second = map(int, axes.split("-"))
    held = np.diff(learned_positions.held_by(rows), prepend=0)
    np.testing.assert_allclose(got["shares"], held[[first - 1, second - 1]], atol=1e-3)
    two = learned_positions.axes_of(rows, 10)[[int(a) - 1 for a in axes.split("-")]]
    found, right = np.array(got["map"]), rows @ two.T
    np.testing.assert_allclose(found * np.sign((found * right).sum(0)), right, atol=2e-3)       # an axis has two directions
    said = figures.call("say", "learned-table", state)
    assert f"Rows {position} and {other}, {lag} {f'back (there is no row {position + lag})' if other < position else 'further on'}: cosine {got['cosine']:.2f}, distance {got['distance']:.2f}." in said.replace("-0.00", "0.00")
    assert f"nearest to row {position} is row {nearest}, {'a' if got['adjacent'] else 'not a'} neighbour" in said
    assert ("long row" in said) == bool({0, 511} & {position, other})
    if 0 in (position, other):
        assert "most of that lies on axis 11" in said and np.abs(learned_positions.axes_of(rows, 11)[-1] @ rows[0]) > 0.9 * lengths[0]


@pytest.mark.parametrize("method", ["alibi", "t5", "clip", "kerple", "fire", "window"])
@pytest.mark.parametrize("heads, head, distance, buckets", [(8, 1, 64, 16), (12, 11, 20, 32), (3, 3, 128, 6), (1, 9, 40, 4)])
@pytest.mark.parametrize("causal", [True, False])
def test_relative_bias_computes_what_poslib_computes(method, heads, head, distance, buckets, causal):
    state = {"method": method, "heads": heads, "head": head, "distance": distance, "buckets": buckets, "causal": causal}
    got = figure("relative-bias", **state).compute()
    shown, lags, both = min(head, heads), np.array(got["lags"]), not causal
    assert got["head"] == shown and lags.tolist() == (list(range(97)) if causal else list(range(-48, 49)))
    np.testing.assert_allclose(got["slopes"], relative.alibi_slopes(heads), rtol=1e-15)
    far = np.arange(-300, 301) if both else np.arange(301)
    index = relative.t5_buckets(far, buckets=buckets, max_distance=distance, bidirectional=both)
    assert got["starts"] == [int(np.abs(far[(index >= k) & (far >= 0)]).min()) for k in range(1, got["side"])]

    def bias(i, j):
        """(heads, queries, keys), by poslib where it has the method; the examples' numbers by their formulas."""
        h, tau = np.arange(1, heads + 1), np.subtract.outer(i, j)
        steep = (heads - h + 1) / heads
        if method == "alibi":
            return relative.alibi_bias(i, j, relative.alibi_slopes(heads), symmetric=both)
        if method == "t5":
            near = -np.multiply.outer(np.log1p([0, *got["starts"]]), steep)
            table = np.concatenate([near, near - 1]) if both else near
            np.testing.assert_allclose(got["settings"]["table"], table[:, shown - 1], atol=1e-12)
            return relative.t5_bias(i, j, table, max_distance=distance, bidirectional=both)
        if method == "clip":
            table = -np.abs(np.arange(distance, -distance - 1, -1) - 4 * (h[:, None] - 1)) / 4        # a row for each j - i, as Shaw's
            return table[:, relative.shaw_index(i, j, distance)]
        if method == "kerple":
            return relative.kerple_bias(i, j, steep, np.full(heads, 16 / distance), kind="log")
        if method == "fire":
            return relative.fire_bias(i, j, lambda x: -4 * steep * x**2, c=16 / distance, threshold=distance)
        return np.where(np.abs(tau) < np.ceil(distance * h / heads)[:, None, None], 0.0, -np.inf)

    query = np.array([got["query"]])
    row = bias(query, query - lags)[:, 0]
    as_numbers = np.array([[-np.inf if b is None else b for b in r] for r in got["heads"]])
    np.testing.assert_allclose(as_numbers, row, atol=1e-11)
    np.testing.assert_allclose([-np.inf if b is None else b for b in got["bias"]], row[shown - 1], atol=1e-11)
    places = np.array(got["places"])
    matrix = bias(places, places)[shown - 1]
    if causal:
        matrix = np.where(causal_mask(len(places)), matrix, -np.inf)
    np.testing.assert_allclose([[-np.inf if b is None else b for b in r] for r in got["matrix"]], matrix, atol=1e-11)
    weights = softmax(row[shown - 1][None])[0]
    within = [weights[np.abs(lags) <= t].sum() for t in range(97)]
    assert within[got["half"]] >= 0.5 - 1e-9 and (got["half"] == 0 or within[got["half"] - 1] < 0.5)
    said = figures.call("say", "relative-bias", state)
    at = row[shown - 1][lags.tolist().index(16)]
    assert ("no weight at all" in said) == (at == -np.inf) and (at == -np.inf or f"a bias of {at:.2f}".replace("-0.00", "0.00") in said)
    assert f"T5’s bucket {relative.t5_buckets(np.array(16), buckets=buckets, max_distance=distance, bidirectional=both)}." in said


@pytest.mark.parametrize("state", [{}, {"protocol": "sliding", "length": 512, "stride": 4, "window": True}, {"first": "t5", "second": "t5", "length": 32, "stride": 32},
                                   {"first": "t5-tuned", "second": "kerple-tuned", "length": 64, "window": True}])
def test_loss_by_length_shows_the_stored_losses(state):
    stored = atlas.figure_runs()
    got = figure("loss-by-length", **state).compute()
    T, s = state.get("length", 192), state.get("stride", 16)
    assert [m["method"] for m in got["methods"]] == list(dict.fromkeys([state.get("first", "alibi"), state.get("second", "rotary")]))
    for m in got["methods"]:
        runs = stored[m["method"]]
        place = np.mean([r["by_place"] for r in runs], axis=0)
        assert m["seeds"] == len(runs) and np.abs(np.array(m["place"]) - place.reshape(-1, 4).mean(1)).max() < 0.00051
        for name, right in [("block", place[:T].mean()), ("sliding", place[T - s:T].mean())]:
            assert abs(m[name] - right) < 0.00051
        at = [got["lengths"].index(n) for n in (64, 512)]
        np.testing.assert_allclose([m["blocks"][i] for i in at], [place[:64].mean(), place.mean()], atol=0.00051)
        np.testing.assert_allclose([m["slides"][i] for i in at], [place[64 - s:64].mean(), place[-s:].mean()], atol=0.00051)
        for name, key in [("full", "tail"), ("window", "tail_window")]:
            np.testing.assert_allclose(m[name], np.mean([list(r[key].values()) for r in runs], axis=0), atol=0.00051)
    said = figures.call("say", "loss-by-length", state)
    shown = state.get("protocol", "block")
    assert all(f"{m['name']} {m[shown]:.2f} nats a byte" in said for m in got["methods"])
    if len(got["methods"]) == 2:
        best = {p: min(got["methods"], key=lambda m: m[p])["name"] for p in ("block", "sliding")}
        assert (f"In blocks {best['block']} reads better, sliding {best['sliding']} does." in said) == (best["block"] != best["sliding"])


@pytest.mark.parametrize("look", ["first", "second", "rotary", "learned"])
def test_decision_guide_ranks_as_the_rules_of_the_lab_do(look):
    rules = choosing.rules()
    for answers in itertools.islice(itertools.product(*choosing.CONSTRAINTS.values()), 0, None, 1 if look == "first" else 7):
        state = dict(zip(choosing.CONSTRAINTS, answers))
        got, right = figure("decision-guide", **state, look=look).compute(), choosing.recommend(rules, **state)
        assert [m["method"] for m in got["list"]] == [m["method"] for m in right]
        for mine, theirs in zip(got["list"], right):
            assert all([(r["reason"], r["source"]) for r in mine[side]] == [(r.reason, r.source) for r in theirs[side]] for side in ("for", "against", "out"))
        assert got["shown"] == {"first": right[0]["method"], "second": right[1]["method"]}.get(look, look)
        said = figures.call("say", "decision-guide", {**state, "look": look})
        assert f"Most speaks for {choosing.METHODS[right[0]['method']]}" in said
        assert all((choosing.METHODS[m["method"]] in said.partition("Out: ")[2]) == bool(m["out"]) for m in right if m["method"] != "rotary")


@pytest.mark.parametrize("state", [{}, {"content": "random", "lag": 0}, {"base": "500000", "content": "aimed", "lag": 777, "trained": "8192"}, {"width": "16", "base": "100", "lag": 4096}, {"content": "aimed", "lag": 8000},
                                   {"share": "0.5", "content": "random"}, {"share": "0.25", "width": "256", "base": "10000000", "trained": "131072"}, {"share": "0.75", "content": "aimed", "lag": 31}])
def test_rotary_spectrum_computes_what_poslib_computes(state):
    got, said = figure("rotary-spectrum", **state).compute(), figures.call("say", "rotary-spectrum", state)
    s = {"base": "10000", "width": "128", "content": "equal", "share": "1", "trained": "4096", "lag": 100, **state}
    width, trained, lag = int(s["width"]), int(s["trained"]), s["lag"]
    n = width // 2
    omega = np.where(np.arange(n) < int(float(s["share"]) * n), rotary.frequencies(width, float(s["base"])), 0.0)
    np.testing.assert_allclose(got["omega"], omega, rtol=1e-13)
    turns = trained * omega / (2 * np.pi)
    np.testing.assert_allclose(got["turns"], turns, rtol=1e-12)
    groups = [turns >= 1, (turns > 0) & (turns < 1), omega == 0]
    assert [got["finished"], got["unfinished"], got["still"]] == [int(g.sum()) for g in groups]
    # a query and a key with this content, turned by poslib
    a, phi = np.array(got["amplitude"]), np.array(got["phase"])
    z = a * np.exp(1j * phi)
    q, k = np.concatenate([z.real, z.imag]), np.repeat([1.0, 0.0], n)
    lags = np.array(got["lags"])
    assert lags[0] == 0 and lags[-1] == 65_536 and (np.diff(lags) > 0).all()
    for lags, parts in ((lags, np.array(got["curves"])), (np.array([lag]), np.array([got["marked"]]))):
        Q = rotary.rotate(np.tile(q, (len(lags), 1)), lags, layout="half", frequencies=omega)
        each = (Q * k).reshape(len(lags), 2, n).sum(1) / a.sum()
        np.testing.assert_allclose(parts, np.stack([each[:, g].sum(1) for g in groups], axis=1), atol=1e-10)
    assert (s["content"] == "random") != (np.ptp(a) == 0)
    drawn = dict(zip(got["lags"], np.sum(got["curves"], axis=1)))
    assert abs(drawn[lag] - sum(got["marked"])) < 1e-12, "the dot is on the curve"
    if s["content"] == "aimed":
        assert abs(drawn[777] - 1) < 1e-12 and max(drawn, key=drawn.get) == 777 and (lag == 777 or sum(got["marked"]) < 1 - 1e-3)
    total = sum(got["marked"])
    assert f"{groups[0].sum()} pairs finish a turn, {groups[1].sum()} do not" in said and f"the score is {total:.3f}".replace("-0.000", "0.000") in said
    assert ("never move" in said) == bool(groups[2].sum())
    panels = figures.call("draw", "rotary-spectrum", state)
    assert panels[1].count("<circle") == groups[0].sum() + groups[1].sum() and panels[1].count('fill="#1f83d6"') == groups[0].sum()


LADDERS = {"llama2": (128, 1e4, 4096), "llama1": (128, 1e4, 2048), "llama3": (128, 5e5, 8192), "toy": (32, 188, 64), "usual": (32, 1e4, 64)}
STRETCHED = {"none": lambda f, L: extension.Unscaled(), "pi": lambda f, L: extension.Linear(f), "ntk": lambda f, L: extension.NTKAware(f),
             "paper": lambda f, L: extension.ByParts(f, L, ramp="paper"), "code": lambda f, L: extension.ByParts(f, L), "llama3": lambda f, L: extension.Llama3(f, L), "toy": lambda f, L: extension.ByParts(f, L, ramp="paper", beta_slow=0.5, beta_fast=2)}


@pytest.mark.parametrize("state", [{}, {"method": "ntk"}, {"method": "pi", "read": "8"}, {"model": "toy", "pair": 9}, {"model": "usual", "method": "paper", "read": "8", "pair": 15}, {"model": "llama3", "method": "llama3", "factor": "8", "read": "32", "pair": 30},
                                   {"method": "code", "factor": "16", "read": "32", "pair": 47}, {"model": "llama1", "method": "ntk", "factor": "32", "read": "16", "tolerance": "0.5", "pair": 45}, {"model": "toy", "method": "code", "read": "1", "pair": 3},
                                   {"model": "usual", "tolerance": "0.1", "read": "32", "pair": 6}, {"model": "toy", "method": "toy", "pair": 8}])
def test_frequency_ladder_computes_what_poslib_computes(state):
    got, said = figure("frequency-ladder", **state).compute(), figures.call("say", "frequency-ladder", state)
    s = {"model": "llama2", "method": "none", "factor": "4", "read": "4", "tolerance": "0.02", "pair": 50, **state}
    width, base, L = LADDERS[s["model"]]
    T, eps = int(s["read"]) * L, float(s["tolerance"])
    omega, now = rotary.frequencies(width, base), STRETCHED[s["method"]](int(s["factor"]), L).frequencies(width, base)
    np.testing.assert_allclose(got["omega"], omega, rtol=1e-12)
    np.testing.assert_allclose(got["now"], now, rtol=1e-11)
    np.testing.assert_allclose(got["turns"], L * omega / (2 * np.pi), rtol=1e-12)
    for k in range(width // 2):
        arc, phase = L * omega[k], np.arange(L, T) * now[k] % (2 * np.pi)
        away = np.where((phase > arc) & (arc < 2 * np.pi), np.minimum(phase - arc, 2 * np.pi - phase), 0)
        assert abs(got["share"][k] * max(T - L, 1) - (away > eps).sum()) <= 1, k        # a lag on the border may fall to either side
        assert abs(got["far"][k] - away.max(initial=0)) < 1e-6, k
    nearer = distance(np.array([1]), omega)[0] / distance(np.array([1]), now)[0]
    assert abs(got["nearer"] / nearer - 1) < 1e-9
    assert ("No method" if s["method"] == "none" else "as far apart as before" if nearer < 1.005 else f"{nearer:.2f} times nearer") in said
    share = np.array(got["share"])
    assert [got["any"], got["most"]] == [(share > 0).sum(), (share > 0.5).sum()]
    assert ("no lag is new" in said) == (T == L) and f"{100 * share[s['pair']]:.0f} % of the new lags are outside, the furthest by {got['far'][s['pair']]:.2f} rad" in said
    panels = figures.call("draw", "frequency-ladder", state)
    assert panels[0].count('fill="#d9541a"') == 2 * got["any"] and panels[0].count('fill="#1f83d6"') == len(omega) - got["any"]


def test_helpers_are_no_figures_and_come_with_every_figure():
    assert not [kind for kind in figures.kinds() if kind.startswith("_")]
    assert "F.tools.stack =" in figures.scripts("prefix") and "define('order'" not in figures.scripts("prefix")


def test_state_that_is_not_allowed_is_refused_in_python():
    for given, message in [({"layers": 5}, "layers is 5"), ({"order": [0, 0, 1]}, r"order is \[0, 0, 1\]"), ({"mask": 1}, "mask is 1"),
                           ({"depth": 2}, "no control 'depth'; allowed are sentence, order, mask, layers")]:
        with pytest.raises(ValueError, match=message):
            figure("order", **given)
    with pytest.raises(ValueError, match="kind is 'chaos'; allowed are .*order"):
        figure("chaos")


def test_state_from_an_address_is_repaired_in_the_page():
    wild = {"layers": 99, "order": [7], "mask": "yes", "sentence": "nobody"}
    assert figures.call("complete", "order", wild) == {"sentence": "short", "order": [0, 1, 2], "mask": False, "layers": 4}


def test_the_stored_form_is_small_and_reproducible(monkeypatch):
    monkeypatch.setenv("POSLIB_STATIC", "1")
    html = figure("order", layers=2).html()
    assert html == figure("order", layers=2).html() and "<script" not in html
    assert figure("order").widget().__class__.__name__ == "Figure", "a widget needs a kernel; the page has none"


WHEEL = [("bf16", "position", 12.01, 5, "10000"), ("bf16", "frequency", 15.5, 40, "500000"), ("bf16", "angle", 9.3, 0, "10000"), ("bf16", "all", 13.37, 1, "10000"),
         ("bf16", "table", 17.2, 3, "10000"), ("fp16", "position", 11.01, 0, "10000"), ("fp16", "all", 15.9, 2, "10000"), ("fp16", "table", 20.0, 63, "500000"),
         ("fp32", "frequency", 20.0, 1, "10000"), ("fp32", "angle", 19.99, 0, "500000"), ("fp32", "all", 17.01, 7, "10000"), ("fp32", "table", 3.0, 9, "10000")]


@pytest.mark.parametrize("dtype, what, power, pair, base", WHEEL)
def test_phase_wheel_rounds_as_poslib_does(dtype, what, power, pair, base):
    """Hands and errors against numpy float64 and `poslib.collisions.rounded`, which rounds elsewhere."""
    state = {"format": dtype, "what": what, "power": power, "pair": pair, "base": base}
    got, w = figure("phase-wheel", **state).compute(), rotary.frequencies(128, float(base))[pair]
    np.testing.assert_allclose(got["omega"], w, rtol=1e-12)
    low = lambda x: rounded(np.atleast_1d(float(x)), dtype)[0]  # noqa: E731
    for key, p in (("now", round(2**power)), ("next", round(2**power) + 1)):
        exact = p * w
        found = {"position": lambda: low(p) * w, "frequency": lambda: p * low(w), "angle": lambda: low(exact), "all": lambda: low(low(p) * low(w)),
                 "table": lambda: exact}[what]()
        assert got[key]["position"] == p and abs(got[key]["exact"] - exact) < 1e-9
        cosine, sine = (low(f(exact)) for f in (np.cos, np.sin)) if what == "table" else (np.cos(found), np.sin(found))
        error = np.angle((cosine + 1j * sine) * np.exp(-1j * exact)) if what == "table" else found - exact
        assert abs(got[key]["error"] - error) < 1e-8 and abs(got[key]["cosine"] - cosine) < 1e-9 and abs(got[key]["sine"] - sine) < 1e-9
    assert got["merged"] == (got["now"]["cosine"] == got["next"]["cosine"] and got["now"]["sine"] == got["next"]["sine"])
    said = figures.call("say", "phase-wheel", state)
    assert ("merged" in said) == got["merged"]
    size = abs(got["now"]["error"])
    if 1e-3 <= size < 1000:
        assert f"off by {float(f'{size:.4g}'):.10g} rad" in said


def test_phase_wheel_draws_the_largest_error_nearby_and_says_where_a_format_ends():
    got = figure("phase-wheel", format="bf16", what="frequency", pair=10).compute()
    w = rotary.frequencies(128)[10]
    for e, error in got["curve"]:
        last = max(round(2 ** (e + i / 96)) for i in range(12))
        assert abs(error - last * abs(rounded(np.array([w]), "bf16")[0] - w)) < 1e-9 * max(1, last)
    over = {"format": "fp16", "what": "position", "power": 18}
    got = figure("phase-wheel", **over).compute()
    assert got["now"]["found"] is None and not got["merged"] and got["curve"][-1][1] is None
    assert "no number that large" in figures.call("say", "phase-wheel", over)
    merged = {"format": "bf16", "what": "position", "power": 12.01}
    assert figure("phase-wheel", **merged).compute()["merged"] and "the two are merged" in figures.call("say", "phase-wheel", merged)
    assert not figure("phase-wheel", **{**merged, "power": 7}).compute()["merged"]


@pytest.mark.parametrize("model, heads", [("llama3", (32, 8, 128)), ("llama2", (32, 32, 128)), ("llama70", (64, 8, 128)), ("smol", (9, 3, 64)), ("s2", (16, 16, 128))])
@pytest.mark.parametrize("phase, length, batch, dtype, device", [
    ("prefill", 9, 0, "bf16", "h100"), ("prefill", 13, 3, "fp32", "a100"), ("prefill", 17, 0, "bf16", "mi300x"), ("prefill", 20, 1, "bf16", "cpu"),
    ("decode", 9, 8, "bf16", "h200"), ("decode", 13, 0, "fp32", "h100"), ("decode", 20, 5, "bf16", "a100")])
def test_position_cost_computes_what_poslib_computes(model, heads, phase, length, batch, dtype, device):
    got = figure("position-cost", model=model, phase=phase, length=length, batch=batch, dtype=dtype, device=device).compute()
    a = cost.Attention(heads=heads[0], kv_heads=heads[1], head_dim=heads[2], queries=1 if phase == "decode" else 2**length, keys=2**length,
                       batch=2**batch, dtype=dtype)
    assert got["heads"] == list(heads) and got["tokens"] == a.keys and got["batch"] == a.batch
    if device == "cpu":
        here = bytes_and_flops.cpu()
    else:
        here = cost.DEVICES[{"a100": "A100", "h100": "H100", "h200": "H200", "mi300x": "MI300X"}[device]]
    turned_keys = 3 * a.batch * a.kv_heads * a.queries * a.head_dim        # as they are written: FLOPs, and no byte more
    want = [(cost.attention(a), False), (cost.scalar_bias(a), True), (cost.scalar_bias(a, "built", dtype=dtype), True),
            *((cost.lag_vectors(a, way), False) for way in ("naive", "tiled", "banded", "cached", "skewed")),
            (cost.rotation(a, "rotate_half"), True), (cost.rotation(a, "fused"), True),
            (cost.rotation(a, "in_attention", parts="q") + cost.Cost(flops=turned_keys), True)]
    assert len(got["ways"]) == len(want)
    for way, (each, exact) in zip(got["ways"], want):
        if way["name"] == "numbers as a matrix":                           # the table from which it is built is fp32, like `scalar_bias(a)`
            each = each + cost.Cost(read=a.heads * a.lags * (4 - a.size))
        assert [float(way[k]) for k in ("read", "written", "flops", "starts")] == [float(x) for x in (each.read, each.written, each.flops, each.launches)]
        assert way["intensity"] == (pytest.approx(each.intensity) if each.bytes else None)
        time = cost.roofline(each, here, "fp32" if exact else dtype, launch=0 if device == "cpu" else 3e-6)
        assert way["seconds"] == pytest.approx(time.seconds, rel=1e-12)
        assert way["bound"] == {"launch": "starts"}.get(time.bound, time.bound)
        if exact or each.launches:                                         # a kernel of its own, or arithmetic of another rate, or attention itself
            assert way["added"] is None
        else:                                                              # in the attention kernel
            more = cost.roofline(cost.attention(a) + each, here, dtype).seconds - cost.roofline(cost.attention(a), here, dtype).seconds
            assert way["added"] == pytest.approx(more, rel=1e-9, abs=1e-15)
        stored = each.written if way["name"] in ("numbers as a matrix", "vectors, skewed product") else 0
        assert way["stored"] == stored and way["fits"] == (stored <= here.memory)
    said = figures.call("say", "position-cost", {"model": model, "phase": phase, "length": length, "batch": batch, "dtype": dtype, "device": device})
    assert said.startswith("A model, not a measurement.") and ("Too big" in said) == any(not way["fits"] for way in got["ways"])


def test_position_cost_answers_the_question_of_its_page():
    """Decoding one text: which ways take longer than attention itself, and what 64 texts change."""
    for batch, longer in ((0, [4, 5, 6, 7, 8, 9]), (6, [4, 5, 6])):
        ways = figure("position-cost", phase="decode", model="llama3", length=13, batch=batch, dtype="bf16", device="h100").compute()["ways"]
        assert [n for n, way in enumerate(ways, 1) if way["seconds"] > ways[0]["seconds"]] == longer
        assert ways[8]["bound"] == "starts"


TILE_WALKS = [{}, {"way": "eager"}, {"way": "separate", "causal": False, "group": "1"}, {"way": "q", "step": 30, "bn": "128", "bm": "32"},
              {"way": "qk", "causal": False, "length": 1024, "group": "8", "step": 100}, {"way": "qk", "bm": "32", "bn": "128", "length": 640, "step": 57},
              {"way": "qk", "bm": "64", "bn": "32", "length": 256, "step": 0}, {"way": "q", "length": 384, "group": "2", "step": 24}]


@pytest.mark.parametrize("state", TILE_WALKS)
def test_tile_walk_counts_what_a_walk_counts(state):
    """Against a walk over rows and keys one at a time, and against poslib.cost."""
    got, said = figure("tile-walk", **state).compute(), figures.call("say", "tile-walk", state)
    s = {"way": "qk", "causal": True, "length": 512, "bm": "128", "bn": "64", "group": "4", "step": 11, **state}
    L, BM, BN, G, D = s["length"], int(s["bm"]), int(s["bn"]), int(s["group"]), 128
    tiles = [(g, i, j) for g in range(G) for i in range(0, L, BM) for j in range(0, L, BN) if not s["causal"] or j < i + BM]
    assert got["tiles"] == len(tiles)
    inside = {"q": s["way"] in ("q", "qk"), "k": s["way"] == "qk"}
    a = cost.Attention(heads=G, kv_heads=1, head_dim=D, queries=L, causal=s["causal"])
    first = {"eager": cost.rotation(a, "rotate_half").bytes, "separate": cost.rotation(a, "fused").bytes}.get(s["way"], 0)
    for part, done in (("now", tiles[:min(s["step"], len(tiles))]), ("all", tiles)):
        turned, loads, table = np.zeros(L, int) if inside["k"] else np.ones(L, int), {"q": 0, "k": 0, "v": 0, "o": 0}, 0
        for n, (g, i, j) in enumerate(done):
            if n == 0 or done[n - 1][:2] != (g, i):
                loads["q"] += BM * D * 2
                table += BM * inside["q"]
            if tiles[n + 1:n + 2] == [] or tiles[n + 1][:2] != (g, i):
                loads["o"] += BM * D * 2
            loads["k"] += BN * D * 2
            loads["v"] += BN * D * 2
            turned[j:j + BN] += inside["k"]
            table += BN * inside["k"]
        bytes_ = got[part]["bytes"]
        assert {k: bytes_[k] for k in "qkvo"} == loads
        assert np.repeat(got[part]["turned"], BN).tolist() == turned.tolist()
        written = {"eager": 2 * L, "separate": L, "q": L, "qk": 0}[s["way"]]            # rows read before the walk
        assert got[part]["table"] == table + written and bytes_["table"] == got[part]["table"] * 4 * D
        assert bytes_["rotation"] + (bytes_["table"] if first else 0) == first
        assert got[part]["sum"] == sum(bytes_.values())
    if inside["k"] and BM % BN == 0:
        assert cost.rotation(a, "in_attention", parts="k", tile=(BM, BN)).flops == 3 * D * sum(got["all"]["turned"]) * BN
    at_least = cost.attention(a)                                                           # each tile once
    assert got["all"]["bytes"]["o"] == at_least.written and got["all"]["bytes"]["q"] + 2 * a.k_bytes == at_least.read
    where = tiles[min(s["step"], len(tiles)) - 1] if s["step"] else None
    shown = f"Query head {where[0] + 1} of {G}, query tile {where[1] // BM + 1} of {L // BM}, key tile {where[2] // BN + 1} of {L // BN}" if where else "No tile of"
    assert f"for cosines and sines {got['now']['bytes']['table'] / 1024:,.0f} of {got['all']['bytes']['table'] / 1024:,.0f}. " in said
    ways = [figure("tile-walk", **state | {"way": way}).compute()["all"]["bytes"] for way in ("eager", "separate", "q", "qk")]
    assert got["widest"] == max(max(way.values()) for way in ways)                         # one scale for the bars of all ways
    assert got["turns"] == sum(got["all"]["turned"]) * BN and f"{got['turns']:,} turns of keys, " in said
    assert float(re.search(r"([\d.]+) MFLOP", said)[1]) == pytest.approx(3 * D * got["turns"] / 1e6, abs=0.006)
    assert shown in said and f"{got['now']['sum'] / 1024:,.0f} of {got['all']['sum'] / 1024:,.0f} KiB" in said
    low, high = min(got["all"]["turned"]), max(got["all"]["turned"])
    assert ("turned once" if not inside["k"] else f"turned {low} to {high} times" if low < high else f"turned {high} times") in said


@pytest.mark.parametrize("state", [{}, {"text": "code", "gap": "16384", "each": True}, {"text": "prose", "factor": "2", "gap": "0", "ratio": True}, {"factor": "8", "gap": "57344"}])
@pytest.mark.parametrize("method", ["NTK-aware", "PI", "dynamic NTK", "by parts", "YaRN", "Llama 3", "p-RoPE"])
def test_gap_probe_shows_the_stored_losses(method, state):
    stored = results.load("real_model")
    got, said = figure("gap-probe", method=method, **state).compute(), figures.call("say", "gap-probe", {"method": method, **state})
    s = {"factor": "4", "text": "all", "gap": "9000", **state}
    mine = [i for i, name in enumerate(stored["passages"]) if s["text"] == "all" or name.startswith(s["text"])]
    assert got["passages"] == len(mine) == (10 if s["text"] == "all" else 5)
    row = method + "/" + ("1" if method == "p-RoPE" else s["factor"])
    for part, name in (("plain", "none/1"), ("stretched", row)):
        right, shown = real_model.readings(stored, f"grid/{name}"), got[part]
        assert shown["gaps"] == list(right)
        for n, (one, two) in enumerate(right.values()):
            np.testing.assert_allclose(shown["second"][n], two[mine], atol=1e-9)
            np.testing.assert_allclose([shown["first"][n], shown["mean"][n], shown["low"][n], shown["high"][n]],
                                       [one[mine].mean(), two[mine].mean(), two[mine].min(), two[mine].max()], atol=1e-9)
        at = shown["gaps"].index(int(s["gap"]))
        price = got["plain"]["first"][0]
        verdict = "more than guessing" if shown["mean"][at] > 1.1 * price else "about what guessing costs" if shown["mean"][at] > 0.9 * price else "less than guessing"
        mean, low, high = (shown[key][at] for key in ("mean", "low", "high"))
        numbers = re.search((r"as trained: " if part == "plain" else r"(?:by \d|p-RoPE): ") + r"([\d.]+) nats a token \(([\d.]+) to ([\d.]+)\), ([a-z ]+)", said).groups()
        assert all(abs(float(x) - y) < 0.0051 for x, y in zip(numbers, (mean, low, high))) and numbers[3].strip() == verdict


def patched_scores(encoding, site, move, on=0, place=16, back=3, pairs=8, gain=40):
    """The figure's built head once more, with complex numbers, and where its query asks from."""
    omega, j, ids = 100.0 ** (-np.arange(pairs) / pairs), place + move, np.arange(32)
    code = lambda p: np.exp(1j * np.multiply.outer(p, omega))  # noqa: E731
    ids = np.where(ids == place, j, ids) if site == "ids" else ids
    asks = {"learned": j if site in ("stream", "q", "turned q", "ids") else place,
            "rotary": j + on if site == "turned q" else j if site == "ids" else place, "t5": j if site == "ids" else place}[encoding]
    keys = np.where(np.arange(32) == place, j, ids) if encoding == "learned" and site == "stream" else ids
    return gain / pairs * (code(asks - back) * code(keys).conj()).real.sum(-1), asks


@pytest.mark.parametrize("move, on", [(-8, 0), (-8, -8), (-3, 0), (0, 0), (0, 5), (1, -1), (3, 0), (3, -2), (8, -8), (8, 8)])
@pytest.mark.parametrize("site", ["stream", "stream, codes exchanged", "q", "turned q", "ids"])
@pytest.mark.parametrize("encoding", patching_position.FIGURE)
def test_patch_site_is_the_head_by_hand_and_shows_the_stored_answers(encoding, site, move, on):
    state = {"encoding": encoding, "site": site, "move": move, "on": on}
    got, said = figure("patch-site", **state).compute(), figures.call("say", "patch-site", state).replace("\xa0", " ")
    (wanted, asks), turns = patched_scores(encoding, site, move, on), encoding == "rotary" and site == "turned q"
    np.testing.assert_allclose(got["scores"], wanted, atol=1e-9)
    weights = np.exp(wanted - wanted.max()) / np.exp(wanted - wanted.max()).sum()
    np.testing.assert_allclose(got["weights"], weights, atol=1e-9)
    assert (got["own"], got["source"], got["asks"]) == (13, 13 + move, asks) and weights[got["looks"]] > weights.max() - 1e-9
    assert f"asks from place {asks}." in said and float(re.search(r"The built head puts (\d+) %", said)[1]) == pytest.approx(100 * weights[13], abs=0.51)
    if found := re.search(r"; (\d+) % are on place (\d+)", said):
        assert int(found[2]) == asks - 3 and float(found[1]) == pytest.approx(100 * weights[asks - 3], abs=0.51)
    assert bool(found) == (asks - 3 not in (-3, 13, 13 + move)) and ("wants place −3, and there is none" in said) == (asks == 0)
    second = figures.call("draw", "patch-site", state)[1]
    assert ("does nothing here" in said) == ("does nothing here<" in second) == bool(on and not turns), "a control without effect says so"
    stored = results.load("patching_position")
    row = "turned q, turned back" if turns and on and on == -move else site
    if move == 0 or turns and on not in (0, -move):
        assert got["trained"] is None and ("not run" if move == 0 else "two turns only") in said
        return
    right = np.array([one["query"][row][stored["moves"].index(move)] for one in patching_position.of(stored, f"copier/{encoding}")])
    np.testing.assert_allclose(np.transpose([got["trained"]["own"], got["trained"]["source"]]), 100 * right, atol=0.51)
    spans = [[int(x) for x in span if x] for span in re.findall(r"(\d+)(?: to (\d+))? % of the sequences|source’s in (\d+)(?: to (\d+))? %", said)]
    assert [(s[0], s[-1]) for s in spans] == [(min(got["trained"][k]), max(got["trained"][k])) for k in ("own", "source")]


@pytest.mark.parametrize("move", [-8, -1, 2, 7])
def test_only_minus_the_displacement_repairs_a_turned_query(move):
    """What a reader is to find with the second slider of patch-site."""
    found = {on: figure("patch-site", move=move, on=on).compute() for on in range(-8, 9)}
    assert [on for on, c in found.items() if c["looks"] == c["own"]] == [-move] and found[-move]["asks"] == 16
    assert all(c["trained"] is None for on, c in found.items() if on not in (0, -move))
    assert min(found[0]["trained"]["source"]) > 90 and min(found[-move]["trained"]["own"]) > 90


@pytest.mark.parametrize("state", [{}, {"on0": False}, {"on0": False, "on5": False, "keys": 256}, {"on4": False, "on6": False, "keys": 8}, {f"on{n}": False for n in range(7)}])
@pytest.mark.parametrize("content", ["first", "second", "one", "four", "all"])
def test_score_waves_adds_up_what_poslib_turns(content, state):
    heads = position_in_circuits.figure_data()
    content = list(heads)[["first", "second"].index(content)] if content in ("first", "second") else content
    got, said = figure("score-waves", content=content, **state).compute(), figures.call("say", "score-waves", {"content": content, **state})
    w, keys = rotary.frequencies(64, 100000.0), state.get("keys", 64)
    count = {"one": 1, "four": 4, "all": 32}.get(content)
    z = np.array(heads[content][0]) / 1000 + 1j * np.array(heads[content][1]) / 1000 if count is None else np.where(np.arange(32) < count, 12 / (count or 1), 0) * np.exp(-1j * w)
    # a query with z in its pairs and a key of ones, turned by poslib
    q = np.concatenate([z.real, z.imag])[None].repeat(keys, 0)
    turned = rotate(q, np.arange(keys), layout="half", frequencies=w)[:, :32]
    lanes, total = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 8), (8, 16), (16, 32)], np.zeros(keys)
    for n, (a, b) in enumerate(lanes):
        on = state.get(f"on{n}", True)
        lane = turned[:, a:b].sum(1) if on else np.full(keys, z.real[a:b].sum())
        np.testing.assert_allclose(got["lanes"][n], lane, atol=1e-9)
        total += lane
    drawn = re.findall(r"adds (−?[\d.]+) at each lag", figures.call("draw", "score-waves", {"content": content, **state})[0])
    still = [got["lanes"][n][0] for n in range(7) if not state.get(f"on{n}", True)]
    np.testing.assert_allclose([float(x.replace("−", "-")) for x in drawn], still, atol=6e-3)
    weights = softmax(total)
    np.testing.assert_allclose(got["weights"], weights, atol=1e-9)
    full = [turned[:, a:b].sum(1) for a, b in lanes]
    np.testing.assert_allclose(got["high"], max(np.ptp(lane) for lane in full) / 2, atol=1e-9, err_msg="rows keep their scale when a pair is off")
    if len(still) == 7:
        assert said == f"No pair turns: all {keys} keys have one score and one weight, {weights[1]:.3f}."
        return
    made = {"one": "Pair 0 alone", "four": "Pairs 0 to 3 alone", "all": "All pairs alike"}.get(content)
    assert said.startswith((f"{made}, the amplitudes add up to 12. " if made else "") + {0: "All pairs turn. ", 1: "Not turning: pair 0. ", 2: "Not turning: pairs "}[len(still)])
    best, rival = int(weights.argmax()), np.delete(total, 1).max()
    one, at, top, gap, side, other = re.search(r"lag 1 gets the weight ([\d.]+); the most goes to lag (\d+) \(([\d.]+)\). The score at lag 1 is ([\d.]+) (above|below) that of the best other lag, (\d+)", said).groups()
    assert abs(float(one) - weights[1]) < 6e-4 and int(at) == best and abs(float(top) - weights[best]) < 6e-4
    assert abs(float(gap) - abs(total[1] - rival)) < 6e-3 and (side == "above") == (total[1] >= rival)
    assert abs(total[int(other)] - rival) < 1e-9 and other != "1"


def test_every_figure_of_the_book_is_tested_here():
    assert set(figures_in_pages()) <= {"collisions", "decision-guide", "frequency-ladder", "gap-probe", "learned-table", "loss-by-length", "order", "patch-site", "phase-wheel", "position-cost", "prefix", "relative-bias", "rope-pair", "rope-sign", "rotary-spectrum", "score-waves", "sinusoid-pair", "tile-walk"}, "write a test that compares the new figure's numbers with poslib"
    assert set(figures.kinds()) == set(figures_in_pages()), "a figure that no page shows"


# ---- in the page ----------------------------------------------------------------------------------

def said(fig):
    return fig.locator(".say").inner_text()


@pytest.mark.parametrize("path", figure_pages() or ["the book is not built"])
def test_no_control_is_dead(open_page, path):
    """Each control of each figure, by keyboard: the picture must change."""
    page = open_page(path)
    for n in range(page.locator("pos-fig").count()):
        fig = page.locator("pos-fig").nth(n)
        panels = lambda: fig.evaluate("f => f.shadowRoot.querySelector('.panels').innerHTML")  # noqa: E731
        for box in fig.locator("input, select").all():
            name, before = box.get_attribute("name"), panels()
            box.focus()
            kind = box.get_attribute("type") or "select"
            at_top = kind == "range" and box.input_value() == box.get_attribute("max")
            page.keyboard.press({"range": "Home" if at_top else "End", "checkbox": "Space"}.get(kind, "ArrowDown"))
            assert panels() != before, f"{name} is dead"
        for button in fig.locator("[data-next]").all():
            before = panels()
            button.focus()
            page.keyboard.press("Enter")
            assert panels() != before, "the button for the next order is dead"
        before = panels()
        fig.get_by_role("button", name="Reset").click()
        assert panels() != before, "Reset is dead"
    assert page.faults == []


def test_order_by_keyboard_alone(open_page):
    page = open_page(FIRST)
    fig = page.locator('pos-fig[kind="order"]').first
    fig.get_by_role("button", name="dog", exact=True).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert "“bites man dog”" in said(fig) and "no hidden state changed" in said(fig)
    assert fig.evaluate("f => f.shadowRoot.activeElement.textContent") == "dog", "the moved word keeps the focus"
    page.keyboard.press("ArrowRight")                           # at the end: stays
    assert "“bites man dog”" in said(fig)
    fig.get_by_label("causal mask").focus()
    page.keyboard.press("Space")
    moved = figure("order", order=[1, 2, 0], mask=True).compute()["changed"]
    assert f"dog by {moved[0]:.3f}" in said(fig)
    fig.get_by_role("button", name="Reset").press("Enter")
    assert "“bites dog man”, no mask, 1 layer" in said(fig), "back to what the chapter shows"


def test_order_by_buttons(open_page):
    page = open_page(FIRST)
    fig = page.locator('pos-fig[kind="order"]').first
    fig.get_by_role("button", name="man", exact=True).click()
    fig.get_by_role("button", name="Move left").click()
    assert "“dog man bites”" in said(fig)
    fig.get_by_role("button", name="Next order").click()
    assert "“bites dog man”" in said(fig)
    fig.get_by_label("sentence").select_option("twins")
    assert "“the₁ dog bites the₂ man”" in said(fig)


@pytest.mark.parametrize("scheme", ["http", "file"])
def test_the_address_carries_the_state(open_page, site, scheme):
    page = open_page(f"{site}/{CHAPTER}" if scheme == "http" else (SITE / CHAPTER).as_uri())
    fig = page.locator('pos-fig[kind="order"]').first
    fig.get_by_role("button", name="Next order").click()
    fig.get_by_label("attention layers").press("End")
    page.wait_for_timeout(400)
    assert "order.order=1-2-0" in page.url and "order.layers=4" in page.url
    other = open_page(page.url)
    other.wait_for_timeout(300)
    assert said(other.locator('pos-fig[kind="order"]').first) == said(fig)
    fig.get_by_role("button", name="Reset").click()
    page.wait_for_timeout(400)
    assert "order." not in page.url
    assert page.faults == other.faults == []


def test_a_wild_address_does_no_harm(open_page):
    page = open_page(CHAPTER + "?order.layers=abc&order.order=9-9&order.mask=maybe&order.sentence=%3Cb%3E")
    page.wait_for_timeout(200)
    assert "“dog bites man”, no mask, 1 layer" in said(page.locator('pos-fig[kind="order"]').first) and page.faults == []


def test_the_picture_can_be_saved(open_page):
    page = open_page(FIRST)
    fig = page.locator('pos-fig[kind="order"]').first
    with page.expect_download() as waiting:
        fig.get_by_role("button", name="Save picture").click()
    assert waiting.value.suggested_filename == "order.svg"
    svg = Path(waiting.value.path()).read_text("utf8")
    assert svg.startswith("<svg") and "attention weights" in svg and "dog bites man" in svg


def test_the_saved_sentence_is_not_cut_off():
    state = {"sentence": "twins", "order": [4, 3, 2, 1, 0], "mask": True, "layers": 4}
    sheet = figures.call("sheet", "order", state)
    lines = re.findall(r'fill="#222"[^>]*>([^<]*)</text>', sheet)
    assert " ".join(lines) == figures.call("say", "order", state) and len(lines) > 1
    assert max(map(len, lines)) * 6.6 < int(re.match(r'<svg [^>]*width="(\d+)"', sheet)[1])


def test_without_scripts_a_picture_stands_there(open_page):
    page = open_page(CHAPTER, java_script_enabled=False)
    for fig in page.locator("pos-fig").all():
        for image in fig.locator("img").all():
            assert image.is_visible() and len(image.get_attribute("alt").split()) > 5
        assert len(fig.locator("p").inner_text()) > 20


def test_on_paper_nothing_is_lost(open_page):
    page = open_page(CHAPTER)
    page.emulate_media(media="print")
    fig = page.locator('pos-fig[kind="order"]').first
    assert fig.locator("svg").first.is_visible() and fig.locator(".say").is_visible()
    assert not fig.get_by_label("attention layers").is_visible()


def test_in_the_dark_the_ink_is_light(open_page):
    for scheme, light in [("light", False), ("dark", True)]:
        page = open_page(CHAPTER, color_scheme=scheme)
        page.wait_for_timeout(200)
        colour = page.evaluate("getComputedStyle(document.querySelector('pos-fig').shadowRoot.querySelector('text')).fill")
        assert (np.mean([int(x) for x in re.findall(r"\d+", colour)[:3]]) > 128) == light, colour


def test_in_a_sandboxed_frame(open_page, monkeypatch):
    """A hosted notebook shows each output in a frame that has no origin of its own."""
    monkeypatch.delenv("POSLIB_STATIC", raising=False)
    page = open_page("book/index.html")
    page.evaluate("""html => { const frame = document.createElement('iframe');
        Object.assign(frame, { sandbox: 'allow-scripts', srcdoc: html, width: 340, height: 900 });
        document.body.append(frame); }""", f"<!doctype html><body>{figure('order', mask=True).html()}</body>")
    fig = page.frame_locator("iframe").locator("pos-fig")
    fig.get_by_role("button", name="Next order").click()
    assert "“dog man bites”, causal mask" in fig.locator(".say").inner_text()
    assert [f for f in page.faults if "sandbox" not in f.lower()] == []


def test_moves_within_a_frame_and_paints_soon(open_page):
    """Goals 16 ms and 1 s; five times that is a fault (median of 30 moves, of 5 openings)."""
    page = open_page(CHAPTER)
    times = page.locator('pos-fig[kind="order"]').first.evaluate("""async fig => {
        const slider = fig.shadowRoot.querySelector('[type=range]'), times = [];
        for (let i = 0; i < 30; i++) {
            slider.value = 1 + i % 4;
            const start = performance.now();
            slider.dispatchEvent(new Event('input', { bubbles: true }));
            fig.shadowRoot.querySelector('svg').getBoundingClientRect();
            times.push(performance.now() - start);
            await new Promise(requestAnimationFrame);
        }
        return times; }""")
    paints = []
    for _ in range(5):
        page = open_page((SITE / CHAPTER).as_uri())
        page.wait_for_timeout(300)
        paints.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
    print(f"\nslider move to repaint: median {statistics.median(times):.1f} ms; first paint from disk: {statistics.median(paints):.0f} ms")
    assert statistics.median(times) < 5 * 16 and statistics.median(paints) < 5 * 1000


# ---- with a kernel --------------------------------------------------------------------------------

def test_widget_state_is_pythons_too(monkeypatch):
    monkeypatch.delenv("POSLIB_STATIC", raising=False)
    widget = figure("order", layers=3).widget()
    assert widget.state == {"sentence": "short", "order": [0, 1, 2], "mask": False, "layers": 3}
    seen = []
    widget.observe(lambda change: seen.append(change["new"]), "state")
    widget.state = {**widget.state, "mask": True}
    assert seen == [{"sentence": "short", "order": [0, 1, 2], "mask": True, "layers": 3}]


@pytest.mark.parametrize("chapter, name, control, start, other, left_alone, extra", [
    ("04-sinusoids", "clock", "shift", {"shift": 12, "others": True}, {"pair": 2}, ("position", 18), (-20, 7)),
    ("08-rope-derivation", "dial", "shift", {}, {"omega": 0.5}, ("i", 10), (20, 7)),
    ("13-context-extension", "ladder", "pair", {}, {"method": "ntk"}, ("factor", "4"), (20, 7)),
])
def test_a_slider_of_python_and_the_figure_follow_each_other(monkeypatch, chapter, name, control, start, other, left_alone, extra):
    """The cells of chapters 04, 08 and 13 that tie them, run as a live notebook would."""
    import nbformat
    pytest.importorskip("ipywidgets")
    monkeypatch.delenv("POSLIB_STATIC", raising=False)
    notebook = nbformat.read(Path(__file__).parent.parent / "book" / f"{chapter}.ipynb", as_version=4)
    [cell] = [c for c in notebook.cells if c.cell_type == "code" and ".widget()" in c.source]
    space = {"figure": figure}
    exec(cell.source, space)
    slider, fig, shown = space["slider"], space[name], space["shown"]
    assert slider.value == fig.state[control] == start.get(control, figures.call("complete", fig.kind, {})[control]) and slider in shown.children and fig in shown.children
    slider.value = extra[0]                                     # Python moves the figure
    assert fig.state[control] == extra[0] and fig.state[left_alone[0]] == left_alone[1]
    fig.state = {**fig.state, control: extra[1], **other}       # the reader moves the figure
    assert slider.value == extra[1] and {**fig.state, **other} == fig.state
    lowest, highest = (figures.call("complete", fig.kind, {control: s})[control] for s in (-999, 999))
    assert (slider.min, slider.max) == (lowest, highest), "neither cuts off what the other shows"
    monkeypatch.setenv("POSLIB_STATIC", "1")
    space = {"figure": figure}
    exec(cell.source, space)
    assert space["shown"].state == start and "slider" not in space


def test_finite_numbers_only():
    assert all(math.isfinite(x) for x in figure("order", layers=4).compute()["changed"])
    json.dumps(figure("order").compute(), allow_nan=False)
