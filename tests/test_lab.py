"""The experiments' parts: tasks with right labels, a model that is blind exactly when it should be."""

import json
import mmap
import platform
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from poslib import absolute, cost, relative
from poslib.absolute import frequencies, sinusoid
from poslib.attention import split_heads
from poslib.collisions import angle_error, kernel, rounded
from poslib.lab import (atlas, bytes_and_flops, causal_mask, census, choosing, circuits, collisions, context_extension, extrapolation, learned_positions, llama,
                        order_blindness, patching_position, position_in_circuits, pretrained, real_model, relative_scores, results, rope_in_practice,
                        sinusoids, tasks, traffic, weight_layout)
from poslib.lab import frequencies as lab_frequencies
from poslib.lab.encodings import ENCODINGS, Encoding
from poslib.lab.model import Transformer
from poslib.lab.training import cross_entropy, one_thread, train
from poslib.rotary import frequencies as rotary_frequencies
from poslib.rotary import rotate


def g(seed=0):
    return torch.Generator().manual_seed(seed)


def test_labels_of_first_of_two():
    tokens, label = tasks.first_of_two(500, g())
    for row, right in zip(tokens.tolist(), label.tolist()):
        assert row[0] == tasks.CLS and row.count(tasks.A) == row.count(tasks.B) == row.count(tasks.CLS) == 1
        assert right == int(row.index(tasks.A) < row.index(tasks.B))
    assert 0.4 < label.double().mean() < 0.6
    assert (tasks.first_of_two(500, g())[0] == tokens).all() and (tasks.first_of_two(500, g(1))[0] != tokens).any()
    with pytest.raises(ValueError, match="length is 2"):
        tasks.first_of_two(1, g(), length=2)


def test_swapping_turns_every_label_over():
    tokens, label = tasks.first_of_two(100, g())
    for row, right in zip(tasks.swap_two(tokens).tolist(), label.tolist()):
        assert int(row.index(tasks.A) < row.index(tasks.B)) == 1 - right
    assert (tasks.swap_two(tasks.swap_two(tokens)) == tokens).all()


def test_places_of_random_tokens():
    tokens, place = tasks.own_place(200, g(), length=9)
    assert (place == torch.arange(9)).all() and tokens.shape == place.shape == (200, 9)
    assert (tokens[:, 0] == tasks.CLS).all() and (tokens[:, 1:] < tasks.FILLERS).all()
    assert (tasks.own_place(200, g(), length=9, marked=False)[0] < tasks.FILLERS).all()
    with pytest.raises(ValueError, match="length is 1"):
        tasks.own_place(1, g(), length=1)


def test_text_windows():
    text, held_out = tasks.prose()
    assert len(text) > 100_000 and len(held_out) > 10_000
    x, y = tasks.next_bytes(text, 8, g())
    assert x.shape == y.shape == (8, 64) and (x[:, 1:] == y[:, :-1]).all()
    x, y = tasks.masked_bytes(text, 64, g())
    hidden = x == tasks.MASK
    assert (y[hidden] < 256).all() and (y[hidden] >= 0).all() and (y[~hidden] == tasks.IGNORED).all()
    assert 0.12 < hidden.double().mean() < 0.18
    short = torch.arange(65, dtype=torch.uint8)          # just long enough
    assert tasks.next_bytes(short, 4, g())[1][0, -1] == 64
    with pytest.raises(ValueError, match="share is 0"):
        tasks.masked_bytes(text, 1, g(), share=0)


@pytest.mark.parametrize("position, blind", [("none", True), ("learned", False)])
def test_encoder_without_positions_is_equivariant_and_no_other(position, blind):
    model = Transformer(vocabulary=13, position=position, max_length=9).double()
    tokens = torch.randint(0, 13, (3, 9), generator=g())
    order = torch.randperm(9, generator=g(1))
    with torch.no_grad():
        gap = (model(tokens[:, order]) - model(tokens)[:, order]).abs().max().item()
    assert (gap < 1e-12) == blind and (blind or gap > 1e-4)


def test_decoder_does_not_see_the_future():
    model = Transformer(vocabulary=13, causal=True).double()
    a = torch.randint(0, 13, (1, 9), generator=g())
    b = a.clone()
    b[0, 5:] = torch.randint(0, 13, (4,), generator=g(2))
    with torch.no_grad():
        gap = (model(a) - model(b)).abs().amax(-1)[0]
    assert gap[:5].max() < 1e-14 and gap[5:].max() > 1e-6


def test_seed_makes_the_model_and_leaves_the_global_generator_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    a, b, c = (Transformer(vocabulary=5, seed=s).head.weight for s in (1, 1, 2))
    assert (a == b).all() and (a != c).any() and (torch.get_rng_state() == before).all()


@pytest.mark.parametrize("arguments, message", [
    ({"position": "rope"}, "position is 'rope'; allowed are none, learned, .*rotary"), ({"width": 30, "heads": 4}, "width is 30; allowed are multiples"),
    ({"position": "learned"}, "max_length is None")])


def test_bad_models_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Transformer(vocabulary=5, **arguments)


def test_a_sequence_longer_than_the_table_is_refused():
    with pytest.raises(ValueError, match="positions holds 4, the table has 4 rows: allowed are 0 to 3"):
        Transformer(vocabulary=5, position="learned", max_length=4)(torch.zeros(1, 5, dtype=torch.long))


def test_training_is_the_same_twice_and_learns(capsys):
    def run():
        model = Transformer(vocabulary=13, seed=1)
        return train(model, lambda gen: (lambda x: (x, x))(torch.randint(0, 13, (8, 5), generator=gen)), steps=40, every=20, seed=3,
                     look=lambda m: cross_entropy(m(torch.arange(13)[None]), torch.arange(13)[None]).item(), progress=True)
    first = run()
    assert first == run() and [s for s, _ in first] == [20, 40] and first[-1][1] < 0.7 * np.log(13)
    assert "step 40/40, loss" in capsys.readouterr().err
    with pytest.raises(ValueError, match="steps is 0"):
        train(Transformer(vocabulary=3), None, steps=0)
    with pytest.raises(ValueError, match="both every and look"):
        train(Transformer(vocabulary=3), None, steps=1, every=1)


def test_stored_results_say_how_they_were_made():
    for path in results.HOME.glob("*.json"):
        made = results.load(path.stem)["made"]
        assert {"command", "seeds", "python", "numpy", "torch", "machine"} <= set(made)
    with pytest.raises(ValueError, match="name is 'nothing'; stored are .*order_blindness"):
        results.load("nothing")


def test_a_result_that_is_not_there_is_empty_and_a_broken_one_an_error(tmp_path, monkeypatch):
    assert results.stored("order_blindness") == results.load("order_blindness")
    monkeypatch.setattr(results, "HOME", tmp_path)
    assert results.stored("nothing") == {}
    odd = {"texts": ["   ", "a  b", "line\n  two", "[ x ]"], "numbers": [1, [2.5, 3]]}
    assert json.loads(results._written(odd)) == odd, "what stands in a text stays"
    (tmp_path / "broken.json").write_text('{"runs": [', "utf8")
    with pytest.raises(ValueError, match="Expecting value"):
        results.stored("broken")


def test_results_are_rounded_and_of_pythons_own_kinds():
    got = results.rounded({1: (0.123456, np.float32(2 / 3)), "a": [np.arange(3), np.array([[1 / 3]]), torch.tensor(0.25)], "b": {None: np.int64(7), 0.5: "x"},
                           "c": [None, True, np.bool_(False), 3, "0.123456", -1e-5, np.float64(1e5 / 3)]})
    want = {"1": [0.1235, 0.6667], "a": [[0, 1, 2], [[0.3333]], 0.25], "b": {"None": 7, "0.5": "x"}, "c": [None, True, False, 3, "0.123456", -0.0, 33333.3333]}
    assert got == want and repr(got) == repr(want) and results.rounded(got) == got
    assert type(got["1"][1]) is float and type(got["b"]["None"]) is int and got["c"][1] is True and got["c"][2] is False


def test_stored_results_are_rounded_as_the_next_run_would_round_them():
    """What is stored comes out of rounding with the same bytes, so that a run that goes on changes nothing that was finished."""
    for name, keys in {"atlas": ["search", "runs"], "causal_mask": ["runs"], "context_extension": ["runs"], "extrapolation": ["counted", "runs", "needle", "copy"],
                       "learned_positions": ["copy", "text", "real"], "real_model": ["first", "second"], "sinusoids": ["runs"], "weight_layout": ["loss"]}.items():
        stored = results.load(name)
        for key in keys:
            assert results._written(results.rounded(stored[key])) == results._written(stored[key]), (name, key)
        assert results._written(stored) == (results.HOME / f"{name}.json").read_text("utf8"), name


FIGURES = {"loss-by-length": atlas.figure_data, "gap-probe": real_model.figure_data, "patch-site": patching_position.figure_data,
           "score-waves": position_in_circuits.figure_data, "decision-guide": lambda: {"methods": choosing.METHODS, "rules": [list(r) for r in choosing.rules()]}}


@pytest.mark.parametrize("kind", FIGURES)
def test_a_figures_data_are_put_where_they_stand(kind, tmp_path, monkeypatch):
    """Into code that holds other data, and the whole file is as it was, byte by byte."""
    there = (results.FIGURES / f"{kind}.js").read_bytes()
    other, count = re.subn(rb"(?m)^  const DATA = .*;$", b"  const DATA = [];", there)
    monkeypatch.setattr(results, "FIGURES", tmp_path)
    (tmp_path / f"{kind}.js").write_bytes(other)
    assert count == 1 and results.put_into_figure(kind, FIGURES[kind]()).read_bytes() == there, f"{kind}.js does not hold what is stored"


def test_data_without_a_place_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FIGURES", tmp_path)
    with pytest.raises(ValueError, match="kind is 'wheel'; there is no wheel.js in"):
        results.put_into_figure("wheel", [])
    (tmp_path / "wheel.js").write_text("const DATA = [];\n", "utf8")
    with pytest.raises(ValueError, match="kind is 'wheel'; wheel.js has no line '  const DATA = …;'"):
        results.put_into_figure("wheel", [])
    (tmp_path / "wheel.js").write_text("(() => {\n  const DATA = [1, 2];\n})();\n", "utf8")
    path = results.put_into_figure("wheel", {"a\\1": ["…", 0.5]})
    assert path.read_text("utf8") == '(() => {\n  const DATA = {"a\\\\1":["…",0.5]};\n})();\n'


def test_stored_curves_come_from_this_code():
    """The first steps of one stored run, run again."""
    curve, model = order_blindness.learn_order("none", 0, steps=20)
    assert abs(curve[0][1] - 0.5) < 1e-9
    tokens, _ = tasks.first_of_two(50, g(4))
    with torch.no_grad():
        gap = (model(tokens) - model(tasks.swap_two(tokens)))[:, 0].abs().max()
    assert gap < 1e-4, "swapping A and B in place must not change what CLS sees"


def test_ridge_probe_finds_what_is_linear_and_nothing_in_noise():
    place = torch.arange(32).repeat(200, 1)
    noise = torch.randn(2, 200, 32, 8, generator=g())
    signal = noise.clone()
    signal[..., 3] += place                                        # one channel holds the place, the others do not
    assert causal_mask.ridge_r2(signal[0], place, signal[1], place) > 0.98
    assert abs(causal_mask.ridge_r2(noise[0], place, noise[1], place)) < 0.02
    inverse = 1.0 / (1 + place[..., None]).expand(-1, -1, 8)
    assert 0.3 < causal_mask.ridge_r2(inverse, place, inverse, place) < 0.7, "1/(1+n) is not linear in n"


def test_without_a_mask_the_place_cannot_be_learned():
    """Behind the mark all tokens are interchangeable: the best share of right answers is 2 of 32."""
    found = causal_mask.learn_place("marked, no mask", 3, steps=30)
    assert np.mean(found["right"]) < 0.09 and np.mean(found["off"]) > 7 and found["r2_after"] < 0.15


def test_stored_probes_come_from_this_code():
    """The part of a stored run that needs no training, and the layout of all of them."""
    stored = results.load("causal_mask")
    assert set(stored["runs"]) == set(causal_mask.RUNS)
    for name, runs in stored["runs"].items():
        layers, width, causal, marked = causal_mask.RUNS[name]
        assert len(runs) == 5 and all(len(s["off"]) == len(s["right"]) == stored["length"] == 32 for s in runs)
        model = Transformer(vocabulary=13, outputs=32, width=width, layers=layers, causal=causal, seed=0)
        assert runs[0]["parameters"] == sum(p.numel() for p in model.parameters())
        if layers == 1:
            assert abs(causal_mask.probe(model, marked) - runs[0]["r2_before"]) < 0.01
    sizes = {name: runs[0]["parameters"] for name, runs in stored["runs"].items()}
    assert min(sizes["unmarked, 1 wide layer"], sizes["unmarked, 2 wide layers"]) >= sizes["unmarked, 3 layers"]


def test_few_sequences_keep_their_own_answers(monkeypatch):
    """What a model is trained on: the same few sequences, each with its answers, none at the places held out."""
    seen = []
    monkeypatch.setattr(relative_scores, "train", lambda model, batch, *, steps, seed, position_rate, loss, progress: seen.append((batch(g(seed)), position_rate)))
    relative_scores.learn("t5", {"position_rate": 10}, 3, size=4, held_out=[9, 14])
    relative_scores.learn("learned", {}, 3)
    (tokens, targets), rate = seen[0]
    known, _ = relative_scores.draw(4, 1003)
    assert rate == 10 and seen[1][1] == 1 and tokens.shape == (32, 32) and {tuple(t) for t in tokens.tolist()} == {tuple(t) for t in known.tolist()}
    asked = targets != tasks.IGNORED
    assert (targets[asked] == tokens.roll(4, 1)[asked]).all() and not asked[:, [0, 1, 2, 3, 9, 14]].any() and asked[:, 4:9].all()
    assert len({tuple(t) for t in seen[1][0][0].tolist()}) == 32, "fresh sequences, unless a size is given"


def test_right_answers_are_counted_where_they_are_asked():
    tokens, targets = relative_scores.draw(50, 1)

    class Copier(torch.nn.Module):
        def forward(self, x):
            answer = x.roll(4, 1)
            answer[:, 20:] = (answer[:, 20:] + 1) % 16                 # wrong from place 20 on
            return torch.nn.functional.one_hot(answer, 16).float()

    assert relative_scores.right(Copier(), tokens, targets) == pytest.approx(16 / 28)
    assert relative_scores.right(Copier(), tokens, targets, [5, 19]) == 1 and relative_scores.right(Copier(), tokens, targets, [20, 31]) == 0


def test_rows_are_filled_with_their_neighbours():
    model = relative_scores.new_model("learned", {}, 0)
    old = model.positions.weight.detach().clone()
    relative_scores.fill(model, relative_scores.HELD_OUT["every fifth"])
    new = model.positions.weight.detach()
    assert torch.equal(new[14], (old[13] + old[15]) / 2) and torch.equal(new[13], old[13]) and torch.equal(new[30], old[30])
    relative_scores.fill(model, relative_scores.HELD_OUT["second half"])
    assert torch.equal(new[31], new[14:16].mean(0)) and torch.equal(new[16], new[14:16].mean(0))


def test_every_fifth_place_is_new_as_a_query_alone():
    held = set(relative_scores.HELD_OUT["every fifth"])
    assert held == {9, 14, 19, 24, 29}
    for p in held:
        assert p - 4 not in held and p + 4 not in held, "its key, and the query whose key it is, are asked; 29 is the key of none"


def test_buckets_of_lags_that_no_asked_place_saw_are_hushed():
    model = relative_scores.new_model("t5", {}, 0)
    old = model.positions.weight.detach().clone()
    relative_scores.hush(model, 16)
    new = model.positions.weight.detach()
    seen = int(relative.t5_buckets(np.array(15)))
    assert torch.equal(new[:seen + 1], old[:seen + 1]) and (new[seen + 1:] == -20).all() and len(new) > seen + 1


def test_the_best_setting_is_chosen_and_among_equals_the_smallest():
    assert relative_scores.choice([[0.2, 0.2], [0.5, 0.7], [0.6, 0.6005]]) == 1 and relative_scores.choice([[0.1], [0.2], [0.9]]) == 2


def test_stored_copying_comes_from_this_code():
    stored = results.load("relative_scores")
    assert set(stored["few"]) == set(stored["elsewhere"]) == set(relative_scores.SETTINGS)
    assert stored["settings"] == relative_scores.SETTINGS
    for method, tried in stored["search"].items():
        assert len(tried) == 4 and all(len(seeds) == 2 for seeds in tried), "as many settings for each method"
        best = relative_scores.choice(tried)
        assert stored["chosen"][method] == relative_scores.SETTINGS[method][best]
        assert {int(k) for k in stored["few"][method]} == set(relative_scores.SIZES) and all(len(r) == 5 for r in stored["few"][method].values())
    again = relative_scores.from_few("t5", stored["chosen"]["t5"], 0, 8)
    assert abs(again["fresh"] - stored["few"]["t5"]["8"][0]["fresh"]) < 0.1


# ---- positions in the model -----------------------------------------------------------------------

@pytest.mark.parametrize("position", ["learned", "sinusoid"])
def test_the_model_takes_position_ids(position):
    model = Transformer(vocabulary=13, position=position, max_length=40).double()
    tokens = torch.randint(0, 13, (2, 9), generator=g())
    ids = torch.arange(9)
    assert torch.equal(model(tokens), model(tokens, ids)) and torch.equal(model(tokens, ids), model(tokens, ids.expand(2, 9)))
    shifted = model(tokens, ids + 30)
    assert (shifted - model(tokens)).abs().max() > 1e-3
    rows = torch.stack([ids, ids + 30])
    assert torch.allclose(model(tokens, rows), torch.stack([model(tokens)[0], shifted[1]]), atol=1e-12)
    order = torch.randperm(9, generator=g(1))          # an encoder does not mind the order in which tokens are listed
    assert torch.allclose(model(tokens[:, order], ids[order]), model(tokens)[:, order], atol=1e-12)


def test_sinusoids_enter_with_their_factor():
    model = Transformer(vocabulary=13, position="sinusoid", position_scale=0.25)
    tokens = torch.zeros(1, 300, dtype=torch.long)
    added = (model.embed(tokens) - model.embedding(tokens))[0]
    assert (added - 0.25 * absolute.sinusoid(torch.arange(300), 32, dtype=torch.float32)).abs().max() < 1e-6
    assert "positions" not in "".join(model.state_dict())


def test_stored_collisions_come_from_this_code():
    """The short rows of chapter 05's stored run, run again; it is deterministic."""
    stored = results.load("collisions")
    assert stored["lengths"] == list(collisions.LENGTHS) and stored["last"] == list(collisions.LAST) and stored["made"]["seeds"] == []
    assert set(stored["nearest"]) == {*map(str, collisions.PAIRS), "256"}
    for pairs in (1, 3, 8):
        lag, distance = collisions.nearest(pairs, 4096)
        assert lag == stored["nearest"][str(pairs)][0][0] and abs(distance / stored["nearest"][str(pairs)][0][1] - 1) < 1e-9
    for k, last in enumerate(collisions.LAST[:2]):
        for dtype, row in collisions.errors(last).items():
            for how, error in row.items():
                assert abs(error / stored["errors"][k][dtype][how] - 1) < 1e-6
    assert stored["periods"] == list(collisions.PERIODS) and [collisions.merged(P) for P in collisions.PERIODS[:4]] == stored["merged"][:4]
    assert [P for P in collisions.PERIODS if P & (P - 1)] == list(collisions.PERIODS), "powers of two have one significand"
    # float16 ends after 65,504: the angle of the fastest pair overflows, its frequency does not
    assert stored["errors"][-1]["fp16"]["angle"] is stored["errors"][-1]["fp16"]["all"] is None and stored["errors"][-1]["fp16"]["frequencies"] > 100


def test_merged_positions_by_a_loop():
    """One hand, period 4096, in bf16: every code beside the next."""
    m = np.arange(4096) * (2 * np.pi / 4096)
    code = np.stack([rounded(np.sin(m), "bf16"), rounded(np.cos(m), "bf16")])
    same = np.flatnonzero((code[:, 1:] == code[:, :-1]).all(axis=0))
    assert collisions.merged(4096)["bf16"] == {"merged": len(same), "first": int(same[0])}


def test_usual_float32_angles():
    """Position by position: float32 power, quotient and product against float64."""
    inv_freq = 1.0 / (10_000.0 ** (torch.arange(0, 128, 2).float() / 128))
    exact = 10_000.0 ** (-2 * np.arange(64) / 128)
    worst = max(np.abs((torch.tensor(float(p)) * inv_freq).double().numpy() - p * exact).max() for p in range(300))
    assert abs(collisions.usual_error(299) / worst - 1) < 1e-6 and 0 < worst < 1e-4


def test_share_of_the_lag_in_scores():
    lag = np.subtract.outer(np.arange(20), np.arange(20)).astype(float)
    noise = np.random.default_rng(0).normal(size=(20, 20))
    for_each_query = noise[:, :1]
    assert abs(sinusoids.lag_share(np.sin(lag) + for_each_query) - 1) < 1e-9, "a constant for each query is not seen"
    assert 0 < sinusoids.lag_share(noise) < 0.4 and sinusoids.lag_share(np.cumsum(noise[:1].repeat(20, 0), 1)) < 0.4
    upper = np.where(lag < 0, 1e6, np.sin(lag))
    assert abs(sinusoids.lag_share(upper) - 1) < 1e-9, "hidden keys do not count"


def test_scores_of_codes_are_the_models_own():
    """Without its token's part the first layer's score is W_Q c · W_K c' / sqrt(d)."""
    model = Transformer(vocabulary=256, width=64, causal=True, position="sinusoid", seed=3)
    got = sinusoids.position_scores(model, head=1, start=5, length=4)
    with torch.no_grad():
        x = model.embed(torch.zeros(1, 9, dtype=torch.long)) - model.embedding.weight[0]
        x = (x - x.mean(-1, keepdim=True)) * model.blocks[0].norm1.weight
        q, k, _ = model.blocks[0].qkv(x).chunk(3, dim=-1)
    np.testing.assert_allclose(got, (q[0, 5:, 32:] @ k[0, 5:, 32:].T / 32**0.5).numpy(), atol=1e-5)
    shares = [sinusoids.lag_share(sinusoids.position_scores(Transformer(vocabulary=256, width=64, causal=True, position=kind, max_length=64, seed=0), head))
              for kind in ("sinusoid", "learned") for head in (0, 1)]
    stored = results.load("sinusoids")["runs"]
    np.testing.assert_allclose(shares, stored["sinusoid"][0]["lag_share_before"] + stored["learned"][0]["lag_share_before"], atol=2e-4)


def test_readings_judge_the_same_targets():
    """A model that ignores positions and sees one byte back reads a moved block like any other."""
    windows = sinusoids.held_out_windows(3, 256)
    assert windows[0].shape == windows[1].shape == (3, 256) and (windows[0][:, 1:] == windows[1][:, :-1]).all()
    blind = Transformer(vocabulary=256, width=64, causal=True, layers=1, seed=1)
    found = sinusoids.readings(blind, windows)
    assert abs(found["block"] - found["moved"]) < 1e-6
    clock = Transformer(vocabulary=256, width=64, causal=True, position="sinusoid", position_scale=5.0, seed=1)
    found = sinusoids.readings(clock, windows)
    assert abs(found["block"] - found["moved"]) > 1e-4
    second = [w[:, 64:128] for w in windows]
    assert abs(found["block"] - sinusoids.losses(clock, *second)[-32:].mean()) < 1e-6, "the last 32 of the second 64 bytes"
    assert abs(sinusoids.second_half(clock, second) - found["block"]) < 1e-9
    for shift, start, same in [(0, 0, "block"), (0, 64, "moved"), (64, 0, "moved")]:
        assert abs(sinusoids.moved_in_part(clock, second, "fast+middle+slowest", shift, start) - found[same]) < 1e-6
    for here, same in [(0, "block"), (64, "moved")]:
        assert abs(sinusoids.moved_scores(clock, second, here, here) - found[same]) < 1e-6
    class Some(Encoding):
        def embed(self, x, positions):
            return x + 5.0 * torch.where(moved, code[64:], code[:64])

    inner, block = clock.positions, clock.blocks[0]
    parts = {group: sinusoids.moved_in_part(clock, second, group, 64) for group in ("fast", "middle", "slowest")}
    assert clock.positions is inner and clock.blocks[0] is block, "the model is as it was"
    code = sinusoid(torch.arange(128), 64).float()
    turn = 2 * np.pi / frequencies(64)
    for group, low, high in [("fast", 0, 64), ("middle", 64, 512), ("slowest", 512, 1e9)]:
        moved = torch.tensor(np.repeat((turn > low) & (turn <= high), 2))
        clock.positions = Some()
        assert abs(parts[group] - sinusoids.second_half(clock, second)) < 1e-6
    assert [int(sinusoids.hands(group).sum()) for group in parts] == [9, 7, 16]


def test_only_the_scores_read_another_clock():
    """Layer 1's values and the stream keep the old one: with uniform attention nothing is left of the move."""
    model = Transformer(vocabulary=256, width=64, causal=True, position="sinusoid", position_scale=5.0, seed=1)
    windows = [w[:, :64] for w in sinusoids.held_out_windows(3, 256)]
    assert abs(sinusoids.moved_scores(model, windows, 64, 0) - sinusoids.second_half(model, windows)) > 1e-5
    with torch.no_grad():
        model.blocks[0].qkv.weight[:128] = 0
    assert abs(sinusoids.moved_scores(model, windows, 64, 0) - sinusoids.second_half(model, windows)) < 1e-6
    assert abs(sinusoids.moved_scores(model, windows, 0, 64) - sinusoids.second_half(model, windows, torch.arange(64) + 64)) < 1e-6


def test_the_parts_of_a_score_add_up():
    model = Transformer(vocabulary=256, width=64, causal=True, position="sinusoid", seed=3)
    with torch.no_grad():
        model.blocks[0].norm1.weight.normal_(generator=torch.Generator().manual_seed(0))
        model.blocks[0].norm1.bias.normal_(generator=torch.Generator().manual_seed(1))
        tokens = sinusoids.held_out_windows(2, 64)[0]
        parts = sinusoids.score_parts(model, tokens)
        q, k, _ = model.blocks[0].qkv(model.blocks[0].norm1(model.embed(tokens))).chunk(3, dim=-1)
    np.testing.assert_allclose(parts.sum(1)[1], q[..., 32:] @ k[..., 32:].mT / 32**0.5, atol=1e-5)
    seen = torch.ones(64, 64).tril().bool()
    sizes = np.array(sinusoids.part_sizes(model, tokens))
    rows = [parts[1, 2, w, i, :i + 1] for w in range(2) for i in range(64)]
    assert abs(sizes[1, 2] - sum(((r - r.mean()) ** 2).sum() for r in rows) / seen.sum() / 2) < 1e-5
    model.positions.factor = 0.0
    assert np.abs(np.array(sinusoids.part_sizes(model, tokens))[:, :3]).max() < 1e-9, "without a code words are all"


def test_scrambled_positions_are_the_same_in_another_order():
    at = sinusoids.scrambled(4, 32)
    assert (at.sort(1)[0] == torch.arange(32)).all() and len({tuple(row) for row in at.tolist()}) == 4
    model = Transformer(vocabulary=256, width=64, causal=True, position="sinusoid", seed=1)
    windows = sinusoids.held_out_windows(70, 32)
    rows = sinusoids.losses(model, *windows, torch.arange(32).repeat(70, 1) + 3)
    assert (rows - sinusoids.losses(model, *windows, torch.arange(32) + 3)).abs().max() < 1e-6, "a row of positions for each window"


def test_stored_sinusoids_have_every_reading():
    stored = results.load("sinusoids")
    assert stored["L"] == 64 and {k: len(v) for k, v in stored["runs"].items()} == {"sinusoid": 5, "learned": 5}
    for run in stored["runs"]["sinusoid"]:
        assert len(run["by_place"]) == len(run["by_place_in_blocks"]) == 256 and len(run["by_start"]) == len(stored["starts"])
        assert set(run["moved_part"]) == set(sinusoids.GROUPS) and set(run["ahead_seen"]) == set(run["ahead_unseen"]) == set(sinusoids.AHEAD)
        # windows of 2L and 4L begin with the same bytes: places 32 to 63 of the second block are the targets of "block", those of 96 to 127 of "whole"
        assert abs(np.mean(run["by_place_in_blocks"][96:128]) - run["block"]) < 2e-4 and abs(np.mean(run["by_place"][96:128]) - run["whole"]) < 2e-4
        assert abs(np.mean(run["by_place"][:64]) - np.mean(run["by_place_in_blocks"][:64])) < 2e-4


# ---- learned positions ----------------------------------------------------------------------------

def test_copying_asks_for_the_symbol_three_back():
    (tokens, ids), targets = learned_positions.copying(torch.tensor([0, 24, 7]), g())
    assert (ids[:, 0] == torch.tensor([0, 24, 7])).all() and (ids.diff() == 1).all()
    assert (targets[:, 3:] == tokens[:, :-3]).all() and (targets[:, :3] == tasks.IGNORED).all()
    assert learned_positions.starts_of(0.0, 500, g()).max() == 0
    late = learned_positions.starts_of(0.25, 2000, g())
    assert set(late.tolist()) == {0, 24} and 0.2 < (late == 24).double().mean() < 0.3
    assert set(learned_positions.starts_of(None, 2000, g()).tolist()) == set(range(25))


def test_held_places_are_never_read():
    window = torch.arange(72).repeat(2, 1)
    (tokens, ids), targets = learned_positions.without_held(window, window + 1)
    assert tokens.shape == targets.shape == (2, 64) and (tokens == ids).all() and not set(ids.tolist()) & set(learned_positions.HELD)
    assert sorted(ids.tolist() + list(learned_positions.HELD)) == list(range(72)) and (targets == ids + 1).all()
    model, seen = learned_positions.learn_text(0, steps=2, looks=(0, 2))
    moved = np.abs(seen[1][2] - seen[0][2]).max(1)
    decayed = np.abs(seen[0][2]).max() * 3e-3 * 0.01 * 2             # all that happens to a row without gradient
    assert (moved[list(learned_positions.HELD)] <= decayed).all() and (moved[list(learned_positions.READ)] > decayed).all()


def test_filling_the_held_rows():
    table = torch.arange(72.0)[:, None].repeat(1, 3)                  # on a straight line the neighbours' mean is the row itself
    held, read = list(learned_positions.HELD), list(learned_positions.READ)
    for how in learned_positions.FILLS:
        assert (learned_positions.filled(table, how)[read] == table[read]).all()
    assert (learned_positions.filled(table, "mean of both neighbours") == table).all() and (learned_positions.filled(table, "noise") == table).all()
    assert (learned_positions.filled(table, "row before")[held] == table[held] - 1).all()
    assert (learned_positions.filled(table, "zero")[held] == 0).all()
    model = Transformer(vocabulary=257, position="learned", max_length=72)
    before = model.positions.weight.clone()
    tokens, targets = learned_positions.hidden_bytes(tasks.prose()[1], 64, g())
    losses = [learned_positions.loss_with(model, t, tokens, targets) for t in (before.detach(), torch.zeros_like(before))]
    assert losses[0] != losses[1] and (model.positions.weight == before).all(), "the model gets its own table back"


def test_readouts_and_explained_variance():
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 4000, 6)), rng.normal(size=(6, 2))
    read = learned_positions.readout(x[0], x[0] @ w + 3)
    assert learned_positions.explained(read(x[1]), x[1] @ w + 3) > 0.999
    assert abs(learned_positions.explained(learned_positions.readout(x[0], rng.normal(size=4000))(x[1]), rng.normal(size=4000))) < 0.01
    assert learned_positions.explained(np.zeros(4), np.array([1.0, 1, 3, 3])) == -4
    table = rng.normal(size=(9, 6))
    e = rng.normal(size=(2, 300, 1, 6)) * 0.1
    states = [[table + part, (table + part)[..., ::-1], e[i] + np.zeros((300, 9, 6))] for i, part in enumerate(e)]
    found = learned_positions.by_depth(*states, np.arange(9), table)
    assert min(found["vector"][:2]) > 0.9 and abs(found["vector"][2]) < 0.05 and found["own"][2] < 0.05
    assert abs(found["along"][0] - found["own"][0]) < 0.05 and abs(found["shift"][0]) < 0.2
    moved = learned_positions.by_depth(*[[s[0], s[0] - 2 * s[0].std((0, 1))] for s in states], np.arange(9), table)
    assert moved["first"][1] < 0 and abs(moved["along"][1] - moved["along"][0]) < 1e-6 and abs(moved["shift"][1]) > 1, "an offset alone leaves r² as it was"
    assert abs(found["own"][0] - found["own"][1]) < 1e-6 and found["first"][1] < found["own"][1] - 0.3, "a permuted state needs another read-out"


def test_subspaces():
    rng = np.random.default_rng(0)
    a = learned_positions.random_axes(5, 40, rng)
    assert np.abs(a @ a.T - np.eye(5)).max() < 1e-12 and abs(learned_positions.overlap(a, a) - 1) < 1e-12
    assert learned_positions.overlap(np.eye(8)[:3], np.eye(8)[3:6]) == 0 and abs(learned_positions.overlap(np.eye(8)[:3], np.eye(8)[2:5]) - 1 / 3) < 1e-12
    x = rng.normal(size=(20, 40))
    assert np.abs(learned_positions.without(x, a) @ a.T).max() < 1e-12
    rows = rng.normal(size=(200, 6)) * [9, 8, 1, 1, 1, 1] + 7
    assert learned_positions.overlap(learned_positions.axes_of(rows, 2), np.eye(6)[:2]) > 0.98
    words, places = np.zeros((60, 20)), np.zeros((30, 20))
    words[:, :10], places[:, 10:] = rng.normal(size=(60, 10)), rng.normal(size=(30, 10))
    places[:, 10] = np.linspace(-1, 1, 30)
    found = learned_positions.separate(words, places, 10, tokens=10, samples=2000)
    assert found["nothing"]["place"] > 0.99 and found["word directions"]["place"] > 0.99 and found["place directions"]["place"] < 0.01
    assert found["place directions"]["word"] > 0.8


def test_neighbours_lags_and_waves():
    turn = 2 * np.pi * np.arange(512)[:, None] / [18, 55] + [0, 1]
    rows = np.concatenate([np.sin(turn), np.cos(turn)], axis=1)
    assert learned_positions.neighbours(rows[:40]) == 1 and learned_positions.neighbours(np.random.default_rng(0).normal(size=(60, 60))) < 0.15
    lags = learned_positions.by_lag(learned_positions.cosines(rows))
    np.testing.assert_allclose(lags, (np.cos(2 * np.pi * np.arange(512) / 18) + np.cos(2 * np.pi * np.arange(512) / 55)) / 2, atol=1e-12)
    found = learned_positions.in_bands(learned_positions.spectrum(rows))
    assert found[1] + found[2] > 0.99 and max(found[0], found[3]) < 0.005
    walk = np.mean(learned_positions.walks(5), axis=0)
    assert walk[0] > 0.85 and walk[3] < 0.005 and abs(learned_positions.walks(1)[0][0] - learned_positions.walks(1, seed=1)[0][0]) > 1e-6
    for axes, turn in (((1, 2), 18), ((3, 4), 55)):
        some = np.stack([f(2 * np.pi * np.arange(512) / period) * size for period, size in ((18, 2), (55, 1)) for f in (np.sin, np.cos)], 1)
        turned, varies = learned_positions.rounds(some, *axes)
        assert abs(turned - turn) < 0.2 and varies < 0.05
    assert learned_positions.farther_is_nearer(np.arange(512.0)[:, None], 3, 5) == 0 and learned_positions.farther_is_nearer(np.stack([np.sin(0.4 * np.pi * np.arange(512)), np.cos(0.4 * np.pi * np.arange(512))], 1), 3, 5) == 1
    assert np.abs(learned_positions.held_by(rows)[3] - 1) < 1e-9


def test_a_turned_table_keeps_its_geometry_alone():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(30, 12)) * np.linspace(3, 0.1, 12)
    turned = learned_positions.rotated(table, 1)
    assert np.abs(turned @ turned.T - table @ table.T).max() < 1e-9 and np.abs(turned - table).max() > 0.1
    assert np.abs(turned - learned_positions.rotated(table, 2)).max() > 0.1
    words = rng.normal(size=(40, 12)) + 5
    same = learned_positions.of_means(words, words, 3)
    assert abs(same["cosine"] - 1) < 1e-9 and abs(same["overlap"] - 1) < 1e-9
    assert learned_positions.of_means(words, table - table.mean(0) + np.eye(12)[0] - np.eye(12)[1], 3)["cosine"] < 0.5


def test_what_weight_decay_leaves_of_an_unread_row():
    model = Transformer(vocabulary=16, position="learned", max_length=48, seed=0)
    before = model.positions.weight.detach().clone()
    learned_positions.train(learned_positions.Placed(model), lambda generator: learned_positions.copying(torch.zeros(2, dtype=torch.long), generator), steps=60)
    left = model.positions.weight.detach()[24:] / before[24:]
    np.testing.assert_allclose(left, learned_positions.decay(60), rtol=1e-5)
    assert 0.93 < learned_positions.decay(4000) < 0.94


@pytest.fixture(scope="module")
def weights():
    if not pretrained.installed(pretrained.MINILM):
        pytest.skip(f"{pretrained.MINILM.package} is not installed")


def test_minilm_is_a_bert(weights):
    """Its first layer written out with poslib's attention, and sentences that mean the same are near."""
    from poslib.attention import attention, merge_heads, split_heads
    tokens = learned_positions.random_pieces(2, 20, 0)
    states = learned_positions.minilm(tokens)
    assert [tuple(s.shape) for s in states] == [(2, 20, 384)] * 7
    w = {name: t.double() for name, t in learned_positions._weights().items()}
    norm = lambda x, n: (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + 1e-12).sqrt() * w[f"{n}.weight"] + w[f"{n}.bias"]  # noqa: E731
    lin = lambda x, n: x @ w[f"{n}.weight"].T + w[f"{n}.bias"]  # noqa: E731
    x = norm(w["embeddings.word_embeddings.weight"][tokens] + w["embeddings.position_embeddings.weight"][:20] + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    at = "encoder.layer.0"
    q, k, v = (split_heads(lin(x, f"{at}.attention.self.{n}"), 12) for n in ("query", "key", "value"))
    y = norm(x + lin(merge_heads(attention(q, k, v)[0]), f"{at}.attention.output.dense"), f"{at}.attention.output.LayerNorm")
    inner = lin(y, f"{at}.intermediate.dense")
    inner = inner * (1 + torch.erf(inner / 2 ** 0.5)) / 2
    y = norm(y + lin(inner, f"{at}.output.dense"), f"{at}.output.LayerNorm")
    assert (states[0].double() - x).abs().max() < 1e-5 and (states[1].double() - y).abs().max() < 1e-4

    vocabulary = pretrained._path(pretrained.MINILM).with_name("vocab.txt").read_text("utf8").split("\n")

    def meaning(sentence):
        ids = torch.tensor([[vocabulary.index(word) for word in f"[CLS] {sentence} [SEP]".split()]])
        return torch.nn.functional.normalize(learned_positions.minilm(ids)[-1].mean(1), dim=-1)[0]
    cat, kitten, market = map(meaning, ("a cat sits on the carpet", "a kitten lies on a rug", "the stock market fell today"))
    assert cat @ kitten > 0.5 and cat @ market < 0.2


def test_minilm_without_its_table_is_blind(weights):
    tokens, order = learned_positions.random_pieces(1, 16, 1), torch.randperm(16, generator=g(3))
    for table, blind in ((torch.zeros(512, 384), True), (None, False)):
        a, b = (learned_positions.minilm(t, table=table)[-1] for t in (tokens, tokens[:, order]))
        assert ((a[:, order] - b).abs().max() < 1e-4) == blind


def test_stored_facts_about_the_real_table_come_from_its_weights(weights):
    stored, now = results.load("learned_positions")["real"], learned_positions.real_facts()
    flat = lambda value: [x for part in value.values() for x in part] if isinstance(value, dict) else np.ravel(value)  # noqa: E731
    for name, value in now.items():
        np.testing.assert_allclose(flat(stored[name]), flat(value), atol=2e-3, err_msg=name)
    words, table = learned_positions.real_tables()
    means = learned_positions.of_means(words, table)
    assert all(abs(stored["means"][name] - value) < 2e-3 for name, value in means.items())
    np.testing.assert_allclose(stored["walks"][:3], learned_positions.walks(3), atol=1e-4)
    again = learned_positions.overlaps(words, table, (10,), draws=1)["10"]
    assert abs(again["found"] - stored["overlap"]["10"]["found"]) < 2e-4 and abs(again["variance"] - stored["overlap"]["10"]["variance"]) < 2e-4


def test_stored_learned_positions_have_all_their_parts():
    stored = results.load("learned_positions")
    assert set(stored["copy"]) == set(learned_positions.SHARES) and all(len(runs) == 5 for runs in stored["copy"].values())
    assert all(len(s["right"]) == 25 for runs in stored["copy"].values() for s in runs)
    assert len(stored["text"]) == 5 and [look["step"] for look in stored["text"][0]["looks"]] == list(learned_positions.LOOKS)
    real = stored["real"]
    assert real["made"]["command"].endswith("learned_positions real") and "'made' within it" in stored["what"], "the parts say when they were computed"
    assert all(len(real["shift"][base][c]) == 7 for base in "01" for c in map(str, learned_positions.SHIFTS))
    assert len(real["separate_rotated"]) == len(real["depth"]) == 3 and all(len(d["along"]) == 7 for d in real["depth"])
    start = stored["text"][2]["looks"][0]
    table = Transformer(vocabulary=257, width=64, position="learned", max_length=72, position_scale=0.2, seed=2).positions.weight.detach().numpy()
    assert abs(start["neighbours"] - learned_positions.neighbours(table[list(learned_positions.READ)])) < 1e-3


# ---- encodings ------------------------------------------------------------------------------------

RELATIVE = [m for m in ENCODINGS if m not in ("learned", "sinusoid")]
SETTINGS = {"rotary": {"base": 100.0}, "alibi": {"slopes": (0.5, 0.125)}, "shaw": {"clip": 3, "std": 0.5}, "t5": {"std": 1.0},
            "xpos": {"scale_base": 64}, "proportional": {"share": 0.4}}


def decoder(method, **more):
    return Transformer(vocabulary=13, causal=True, position=method, max_length=200, settings=SETTINGS.get(method), **more).double()


@torch.no_grad()
@pytest.mark.parametrize("method", ENCODINGS)
def test_relative_encodings_do_not_notice_a_shift_of_all_ids_and_absolute_ones_do(method):
    model, tokens, ids = decoder(method), torch.randint(0, 13, (2, 12), generator=g()), torch.arange(12)
    gap = (model(tokens, ids) - model(tokens, ids + 77)).abs().max()
    assert gap < 1e-10 if method in RELATIVE else gap > 1e-3
    other = (model(tokens, ids) - model(tokens, 2 * ids)).abs().max()
    assert other == 0 if method == "none" else other > 1e-6, "the ids are not used"


@torch.no_grad()
@pytest.mark.parametrize("method", ENCODINGS)
def test_a_layer_is_what_its_formula_says(method):
    """One block by loops over queries and keys, with each encoding's formula written out."""
    model, window = decoder(method, layers=1, seed=3), 6
    tokens, ids = torch.randint(0, 13, (1, 11), generator=g(5)), torch.tensor([4, 0, 9, 10, 2, 30, 31, 32, 5, 40, 41])
    block, positions, x = model.blocks[0], model.positions, model.embedding(tokens)
    if method == "learned":
        x = x + positions.weight[ids]
    if method == "sinusoid":
        x = x + 0.5 * absolute.sinusoid(ids, 32)
    q, k, v = (split_heads(t, 2)[0] for t in block.qkv(block.norm1(x)).chunk(3, dim=-1))
    if method in ("rotary", "proportional", "xpos"):
        omega = (100.0 if method == "rotary" else 10000.0) ** (-torch.arange(8, dtype=torch.float64) / 8)
        omega = omega * (torch.arange(8) < 3) if method == "proportional" else omega
        zeta = (torch.arange(8) / 8 + 0.4) / 1.4 if method == "xpos" else torch.ones(8)
        turns = [torch.exp(1j * ids[:, None] * omega) * zeta.double() ** (way * ids[:, None] / 64) for way in (1, -1)]
        q, k = (torch.view_as_real(torch.complex(t[..., :8], t[..., 8:]) * turn).movedim(-1, -2).flatten(-2)
                for t, turn in zip((q, k), turns))
    out = torch.zeros_like(v)
    for h in range(2):
        for i in range(11):
            keys = range(max(0, i - window + 1), i + 1)
            lag = [int(ids[i] - ids[j]) for j in keys]
            score = torch.stack([q[h, i] @ k[h, j] / 4 for j in keys])
            if method == "alibi":
                score = score - (0.5, 0.125)[h] * torch.tensor(lag)
            if method == "kerple":
                r1, r2 = torch.nn.functional.softplus(positions.raw)[:, h]
                score = score - r1 * torch.log(1 + r2 * torch.tensor(lag).abs())
            if method == "t5":
                bucket = [0 if n < 0 else n if n < 16 else 16 + int(16 * np.log(n / 16) / np.log(128 / 16)) for n in lag]
                score = score + positions.weight[bucket, h]
            clipped = [min(3, max(-3, n)) for n in lag]
            if method == "shaw":
                rows = [3 - n for n in clipped]
                score = score + positions.keys[0][rows] @ q[h, i] / 4
            weights = score.softmax(0)
            out[h, i] = weights @ v[h, keys[0]:i + 1] + (weights @ positions.values[0][rows] if method == "shaw" else 0)
    x = x + block.out(out.movedim(0, 1).flatten(-2))
    x = x + block.mlp(block.norm2(x))
    assert (model.hidden(tokens, ids, window=window)[1] - x).abs().max() < 1e-6


@torch.no_grad()
@pytest.mark.parametrize("method", RELATIVE)
def test_a_window_reaches_as_far_as_its_layers_add_up_to(method):
    """Two layers with a window of 5 see eight places back, not nine."""
    model, tokens = decoder(method), torch.randint(0, 13, (1, 20), generator=g(1))
    before = model(tokens, window=5)[0, -1]
    for back, seen in [(4, True), (8, True), (9, False), (19, False)]:
        changed = tokens.clone()
        changed[0, -1 - back] = (changed[0, -1 - back] + 1) % 13
        assert ((model(changed, window=5)[0, -1] - before).abs().max() > 0) == seen, back
    assert torch.equal(model(tokens, window=20), model(tokens)) and not torch.equal(model(tokens, window=19), model(tokens))
    alone = model(tokens[:, -9:], window=5)[0, -1]
    assert method == "none" or (alone - before).abs().max() < 1e-10, "within its reach, the text before it does not matter"


def test_the_rate_of_positions_reaches_the_positions_alone():
    def moved(method, factor):
        model = Transformer(vocabulary=5, position=method, max_length=9, seed=1)
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        train(model, lambda gen: (lambda x: (x, x))(torch.randint(0, 5, (8, 9), generator=gen)), steps=1, position_rate=factor, progress=False)
        return {name: (p.detach() - before[name]).abs().max().item() for name, p in model.named_parameters()}

    for method in ("learned", "t5", "shaw", "kerple"):
        one, ten, zero = (moved(method, factor) for factor in (1, 10, 0))
        own = [name for name in one if name.startswith("positions.")]
        assert own and all(zero[name] == 0 and 0 < 9 * one[name] < ten[name] < 11 * one[name] for name in own)
        assert all(one[name] == ten[name] == zero[name] for name in one if name not in own)
    assert moved("none", 10) == moved("none", 1)


# ---- the atlas ------------------------------------------------------------------------------------

def test_copy_back_asks_for_the_token_so_many_places_before():
    tokens, targets = tasks.copy_back(50, g(), length=20, back=4, symbols=7)
    assert (targets[:, :4] == tasks.IGNORED).all() and (targets[:, 4:] == tokens[:, :-4]).all() and tokens.max() == 6
    with pytest.raises(ValueError, match="back is 20; allowed is 1 to length - 1 = 19"):
        tasks.copy_back(1, g(), length=20, back=20)


def test_needle_hides_one_token_at_the_lags_asked_for():
    tokens, targets = tasks.needle(400, g(), length=30, lags=(5, 9), symbols=16)
    assert (targets[:, :-1] == tasks.IGNORED).all() and (tokens[:, -1] == 32).all()
    place = (tokens < 16).nonzero()
    assert (place[:, 0] == torch.arange(400)).all(), "one needle in each"
    assert set((29 - place[:, 1]).tolist()) == {5, 6, 7, 8, 9} and (tokens[place[:, 0], place[:, 1]] == targets[:, -1]).all()
    for lags in [(0, 3), (3, 30), (4, 3)]:
        with pytest.raises(ValueError, match="lags is"):
            tasks.needle(1, g(), length=30, lags=lags)


def test_programs_are_split_by_file():
    parts = tasks.programs()
    assert len(parts[0]) > 5e6 and min(len(p) for p in parts[1:]) > 5e5
    blocks = [{bytes(p[i:i + 400].tolist()) for i in range(0, len(p) - 400, 400)} for p in parts]
    assert not blocks[1] & blocks[2], "a file in two parts"


def test_the_setting_with_the_smallest_mean_loss_is_best():
    search = [{"task": t, "method": m, "choice": c, "seed": s, "loss": loss} for t, m, c, s, loss in [
        ("copy", "t5", 0, 100, 1.0), ("copy", "t5", 0, 101, 1.0), ("copy", "t5", 1, 100, 0.1), ("copy", "t5", 1, 101, 2.5),
        ("copy", "t5", 2, 100, 0.8), ("copy", "t5", 2, 101, 0.9), ("copy", "t5", 3, 100, 0.9), ("copy", "t5", 3, 101, 0.9),
        ("text", "t5", 3, 100, 0.0), ("copy", "shaw", 3, 100, 0.0)]]
    assert atlas.best(search, "copy", "t5") == 2


def _halves(task, method, choice, seed):
    return {"task": task, "method": method, "choice": choice, "seed": seed, "loss": seed / 2}


def test_the_atlas_goes_on_where_it_stopped(capsys):
    jobs, found, saved = [("copy", "none", 0, s) for s in range(4)], [_halves("copy", "none", 0, 1)], []
    atlas._missing(_halves, jobs, found, lambda: saved.append(len(found)))
    assert saved == [2, 3, 4] and sorted(r["seed"] for r in found) == [0, 1, 2, 3]
    atlas._missing(_halves, jobs, found, lambda: saved.append("again"))
    assert saved == [2, 3, 4] and "3/3 copy, none" in capsys.readouterr().out


class Backwards(torch.nn.Module):
    """Knows what stood `back` places before, or where the needle is; sees no key `window` or more places back."""

    def __init__(self, symbols, back=None):
        super().__init__()
        self.symbols, self.back = symbols, back

    def forward(self, tokens, window=None):
        n = tokens.shape[1]
        if self.back:
            told = tokens.roll(self.back, 1)
        else:
            told = tokens.masked_fill(tokens >= 16, -1).masked_fill(torch.arange(n) <= n - 1 - (window or n), -1).amax(1, keepdim=True).clamp(0).expand(-1, n)
        return torch.nn.functional.one_hot(told, self.symbols).double()


def test_the_newest_part_of_each_length_is_asked():
    assert atlas.right("copy", Backwards(16, back=4)) == {1: 1.0, 2: 1.0, 4: 1.0, 8: 1.0}
    needle = Backwards(33)
    assert atlas.right("needle", needle) == {1: 1.0, 2: 1.0, 4: 1.0, 8: 1.0}
    seen = atlas.right("needle", needle, window=64)
    assert seen[1] == 1 and max(seen[f] for f in (2, 4, 8)) < 0.13, "lags that the shorter length had are asked again"


class Counter(torch.nn.Module):
    """Bets on the byte whose number is that of the keys in view."""

    def forward(self, tokens, window=None):
        view = torch.arange(1, tokens.shape[1] + 1).clamp(max=window or 10**9)
        return 50.0 * torch.nn.functional.one_hot(view % 256, 256).double().expand(len(tokens), -1, -1)


def test_text_is_read_with_more_and_more_context_on_the_same_targets():
    full, near = atlas.read_text(Counter(), count=4), atlas.read_text(Counter(), 64, count=4)
    tokens, targets = atlas.draw("text", atlas.TESTED, 4, length=512)
    for f in atlas.FACTORS:
        for window, got in [(None, full[f]), (64, near[f])]:
            view = torch.arange(64 * f - 31, 64 * f + 1).clamp(max=window or 10**9) % 256
            hit = (targets[:, -32:] == view).double()
            assert abs(got - (50 * (1 - hit)).mean()) < 1e-6
    assert len(atlas.by_place(Counter(), count=4)) == 512 and full[1] == near[1]


def test_the_stored_atlas_is_what_this_code_makes():
    stored = results.load("atlas")
    assert stored["methods"] == json_like(atlas.METHODS) and stored["tasks"] == {name: t._asdict() for name, t in atlas.TASKS.items()}
    for r in stored["runs"]:
        assert r["choice"] == atlas.setting(stored["search"], r["task"], r["method"]) and r["seed"] in atlas.SEEDS
        if r["task"] == "previous":
            continue
        names = ("tail", "tail_window") if r["task"] == "text" else ("right", "right_window")
        assert all(list(r[name]) == ["1", "2", "4", "8"] for name in names) and r[names[0]]["1"] == r[names[1]]["1"]
    assert len({(r["task"], r["method"], r["seed"]) for r in stored["runs"]}) == len(stored["runs"])
    t = atlas.TASKS["copy"]
    sizes = {m: sum(p.numel() for p in Transformer(vocabulary=t.vocabulary, width=t.width, causal=True, position=m, max_length=256, settings=atlas.METHODS[m][0].get("settings"))
                    .parameters()) for m in atlas.METHODS}
    assert all(r["parameters"] == sizes[r["method"]] for r in stored["runs"] if r["task"] == "copy")


def json_like(x):
    if isinstance(x, dict):
        return {k: json_like(v) for k, v in x.items()}
    return [json_like(v) for v in x] if isinstance(x, (list, tuple)) else x


# ---- chapter 7 ------------------------------------------------------------------------------------

def test_the_counting_model_counts():
    train, test = (np.frombuffer(text, np.uint8) for text in (b"abracadabra abracadabra", b"cadabra bar"))
    right = []
    for t in range(3, len(test)):
        p, row = 1 / 256, []
        for k in range(4):
            context = bytes(test[t - k:t])
            followed = [train[i] for i in range(k, len(train)) if bytes(train[i - k:i]) == context]
            p = (followed.count(test[t]) + 2.0 * p) / (len(followed) + 2.0)
            row.append(-np.log(p))
        right.append(row)
    losses = extrapolation.counted(train, test, order=3, prior=2.0)
    assert np.abs(losses - np.array(right).T).max() < 1e-12
    assert abs(extrapolation.in_blocks(losses, 4) - np.mean([losses[min(i % 4, 3), i] for i in range(8)])) < 1e-12


def test_the_stored_reading_of_chapter_7_is_complete():
    stored = results.load("extrapolation")
    assert [(r["method"], r["seed"]) for r in stored["runs"]] == [(m, seed) for m in extrapolation.SHORT for seed in range(5)]
    for r in stored["runs"]:
        assert r["tail"]["1"] == r["tail_window"]["1"]
        assert [int(w) for w in r["narrow"]] == list(extrapolation.WINDOWS) and len(r["by_place"]) == 512
    assert [int(T) for T in stored["counted"]["blocks"]] == list(extrapolation.LENGTHS) and len(stored["counted"]["by_context"]) == 6


# ---- chapter 9 ------------------------------------------------------------------------------------

def test_first_failure_is_where_the_kernel_first_turns_negative():
    for base, width in ((1e4, 128), (84_000, 128), (90_000, 128), (1e2, 16), (1e4, 64)):
        lag = lab_frequencies.first_failure(base, width=width)
        value = kernel(np.arange(lag + 1), rotary_frequencies(width, base))
        assert value[-1] < 0 and (value[:-1] >= 0).all()
    assert lab_frequencies.first_failure(1e4, limit=1707) is None and lab_frequencies.first_failure(1e4, limit=1708) == 1707


def test_a_hint_does_not_change_whether_a_base_holds():
    for base, length in ((4100.0, 1024), (4294.5, 1024), (5500.0, 1024)):
        found = [lab_frequencies.some_failure(base, length, hint) for hint in (None, 0, 500, 1023)]
        fails = lab_frequencies.first_failure(base, limit=length) is not None
        assert [f is not None for f in found] == [fails] * 4
        assert all(kernel(np.array([f]), rotary_frequencies(128, base))[0] < 0 for f in found if f is not None)
    assert {lab_frequencies.first_failure(b, limit=1024) is None for b in (4100.0, 4294.5)} == {True, False}, "both answers occur above"


def test_the_smallest_base_holds_and_the_step_below_does_not():
    base = lab_frequencies.smallest_base(1024, start=4200)
    assert lab_frequencies.first_failure(base, limit=1024) is None
    assert lab_frequencies.first_failure(base * np.exp(-lab_frequencies.STEP), limit=1024) is not None
    stored = results.load("frequencies")
    assert abs(stored["smallest"]["1024"] / base - 1) < 1e-3
    assert list(map(int, stored["smallest"])) == list(lab_frequencies.LENGTHS)
    assert all(lab_frequencies.first_failure(b) == lag for b, lag in list(zip(*stored["comb"].values()))[::97])


def test_census_has_a_source_for_every_cell_and_no_guess():
    known, entries = census.sources(), census.load()
    assert len({e.name.split(",")[0] for e in entries}) >= 25 and len({e.name for e in entries}) == len(entries)
    for source in known.values():
        assert re.fullmatch("[0-9a-f]{40}", source.get("commit", "0" * 40)) and ("repository" in source) != ("version" in source) and source["what"]
    used = set()
    for e in entries:
        assert list(e.cells) == list(census.FIELDS)
        for field, cell in e.cells.items():
            assert cell["value"] == getattr(e, field)
            if cell["value"] is None:
                assert cell == {"value": None, "reason": "not found"}, f"{e.name}, {field}"
            else:
                assert set(cell) == {"value", "source", "at"} and len(cell["at"]) > 5, f"{e.name}, {field}"
                used.add(cell["source"])
    assert used == set(known), "a source that no cell uses, or a cell whose source is not described"


def test_census_cells_are_in_range_and_fit_together():
    for e in census.load():
        assert 2021 <= e.year <= 2026
        assert 2 <= e.rotary_width <= e.head_width <= 1024 and e.rotary_width % 2 == e.head_width % 2 == 0, e.name
        assert 100 <= e.base <= 1e8
        assert e.rope_type in {"default", "linear", "yarn", "llama3", "proportional", None} and e.layout in {"half", "interleaved", None}
        if e.trained_length and e.max_positions:
            assert 512 <= e.trained_length <= e.max_positions, e.name
        if e.rope_type in {"yarn", "llama3"} and e.trained_length:
            assert e.trained_length < e.max_positions, f"{e.name} is extended"
        omega = e.frequencies()
        assert len(omega) == e.rotary_width // 2 and omega[0] == 1 and (np.diff(omega) < 0).all()
        if e.turns() is not None:
            np.testing.assert_allclose(e.turns()[0], e.trained_length / (2 * np.pi))


def test_census_knows_what_the_literature_says():
    """Numbers that can be had elsewhere: Llama 2's 46 finished pairs of 64, the last frequency of Gemma 4's quarter."""
    entries = {e.name: e for e in census.load()}
    assert (entries["Llama 2 7B"].turns() >= 1).sum() == 46
    np.testing.assert_allclose(entries["Gemma 4 E2B, global layers"].frequencies()[-1], 0.033376, atol=1e-6)
    np.testing.assert_allclose(entries["Phi-2"].frequencies()[1], 0.56234133, atol=1e-8)


# ---- chapter 10 -----------------------------------------------------------------------------------

def test_a_share_of_correctly_rounded_results_counts_them():
    exact = torch.tensor([1.0, 1 + 2**-8, 1 + 3 * 2**-8, 3.0], dtype=torch.float64)            # two ties; the even neighbours are 1 and 1 + 4/256
    assert rope_in_practice.right(exact.bfloat16(), exact) == 1
    assert rope_in_practice.right(torch.tensor([1.0, 1 + 2**-7, 1 + 2**-6, 2.984375]).bfloat16(), exact) == 0.5


def test_each_way_rounds_what_its_name_says():
    x, p = rope_in_practice.drawn(4096, 3, rows=64)
    found, exact = rope_in_practice.ways(x, p)
    assert torch.equal(found["the result, once"], rotate(x, p, layout="half")) and exact.dtype == torch.float64
    assert (exact - rotate(x.double(), p, layout="half")).abs().max() == 0
    order = [rope_in_practice.right(y, exact) for y in found.values()]
    assert order == sorted(order, reverse=True) and order[0] > 0.999 and order[-1] < 0.3 and all(y.dtype == torch.bfloat16 for y in found.values())
    at_0, exact_0 = rope_in_practice.ways(x, torch.zeros(64, dtype=torch.int64))
    assert all(torch.equal(y, x) for y in at_0.values()) and torch.equal(exact_0, x.double()), "position 0 turns nothing, however it is rounded"


def test_phase_errors_are_those_of_chapter_5_where_both_have_them():
    p = np.arange(4096)
    found = rope_in_practice.phase_errors(p)
    assert abs(found["frequencies in bf16"].max() / angle_error(p, frequencies(128), "bf16", "frequencies") - 1) < 1e-9
    assert found["positions in bf16"][:257].max() == 0 and found["positions in bf16"][257] == 1
    assert 2**-10 < found["tables in bf16"].max() < 2**-8 and found["tables in fp32"].max() < 2**-24


def test_scores_that_nothing_rounds_do_not_depend_on_their_start():
    how = rope_in_practice.roundings()
    assert rope_in_practice.score_spread(how["nothing"], draws=2, starts=16) < 1e-12
    assert rope_in_practice.score_spread(how["results and positions"], draws=2, starts=16) > 10 * rope_in_practice.score_spread(how["results"], draws=2, starts=16) > 1e-3


@torch.no_grad()
def test_a_converted_llama_says_the_same_and_one_with_other_heads_does_not():
    model, tokens = rope_in_practice.tiny(), torch.randint(0, 64, (2, 9), generator=g(2))
    other = rope_in_practice.converted(model, "interleaved")
    assert (other(tokens) - model(tokens)).abs().max() < 1e-10 and not torch.equal(other.weights["1.k"], model.weights["1.k"])
    assert (rope_in_practice.converted(model, "interleaved", heads=2)(tokens) - model(tokens)).abs().max() > 0.01
    with pytest.raises(ValueError, match="heads is 3"):
        rope_in_practice.converted(model, "interleaved", kv_heads=3)


def test_a_place_written_into_a_stream_can_be_read_and_noise_cannot():
    noise = torch.randn(10, 60, 12, generator=g(4)).double()
    place = torch.linspace(-1, 1, 60).double()[None, :, None]
    with_place = noise + 2 * place * torch.randn(12, generator=g(5)).double()
    assert rope_in_practice.readable(with_place, [0, 1]) > 0.7 and abs(rope_in_practice.readable(noise, [0, 1])) < 0.15
    shuffled = with_place[:, torch.randperm(60, generator=g(6))]
    assert rope_in_practice.readable(shuffled, [0, 1]) < 0.2, "a place that is not in the order of the stream"


def test_stored_results_of_chapter_10_have_all_their_parts():
    stored = results.load("rope_in_practice")
    assert [int(n) for n in stored["shares"]] == list(rope_in_practice.LENGTHS)
    assert all(len(row["right"]) == 5 for rows in stored["shares"].values() for row in rows.values())
    live = rope_in_practice.shares(4096, 2)
    assert all(abs(stored["shares"]["4096"][name]["right"][2] - row["right"]) < 0.01 for name, row in live.items())
    assert list(stored["peers"]) == ["poslib", *rope_in_practice.PEERS] and list(stored["heads"]) == list(weight_layout.PASSAGES)
    for key in ("probe", "probe_not_turned"):
        assert [int(n) for n in stored[key]] == list(rope_in_practice.LAYERS) and all(len(r) == 5 for r in stored[key].values())
    partners = results.load("weight_layout")["partners"]
    assert all(len(r) == 30 for rows in partners.values() for r in rows.values()) and set(partners) == {"q", "k"}


def test_partners_are_found_in_the_layout_that_the_weights_were_drawn_in():
    model = rope_in_practice.tiny()
    scale = torch.rand(4 * 4, generator=g(7)).repeat_interleave(2) + 0.1                       # the two rows of an interleaved pair: one scale
    for name in ("0.q", "1.q", "2.q"):
        model.weights[name] = model.weights[name] * scale[:, None].double()
    found = weight_layout.partners(model)["q"]
    assert min(found["interleaved"]) > 0.6 and all(a > b + 0.2 for a, b in zip(found["interleaved"], found["half"]))


def test_the_machine_of_chapter_11_is_a_device_with_what_was_stored():
    stored, device = results.load("bytes_and_flops"), bytes_and_flops.cpu()
    assert device.bandwidth == stored["best"]["bandwidth"] and device.flops == {t: stored["best"][t] for t in ("fp32", "bf16")}
    assert all(0 < stored["lowest"][name] <= best for name, best in stored["best"].items())
    assert 1e9 < device.bandwidth < 1e12 and 1e9 < device.flops["fp32"] < 1e13, "no processor copies or multiplies at such a rate"
    assert stored["threads"] == 1 and stored["runs"] >= 5 and "one thread" in device.source


def test_measuring_the_machine_of_chapter_11_takes_the_best_of_its_runs_and_leaves_the_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        found = bytes_and_flops.measured(runs=2, megabytes=1)
        assert torch.get_num_threads() == 2 and found["runs"] == 2
    finally:
        torch.set_num_threads(before)
    assert all(found["lowest"][name] <= best for name, best in found["best"].items()) and set(found["best"]) == {"bandwidth", "fp32", "bf16"}


def test_every_way_to_rotate_of_chapter_11_turns_by_the_same_angles():
    shape = (1, 2, 24, 16)
    for dtype, off in (("fp32", 1e-5), ("bf16", 0.1)):
        calls = bytes_and_flops.calls(dtype, shape)
        x = calls["copy"]().clone()
        want = {layout: rotate(x.double(), torch.arange(24), layout=layout) for layout in ("half", "interleaved")}
        for way, call in calls.items():
            if way != "copy":
                right = want["interleaved" if way in ("complex", "poslib interleaved") else "half"]
                assert (call().double() - right).abs().max() < off, way


def test_ways_to_rotate_are_timed_in_copies_and_their_faults_counted():
    found = bytes_and_flops.ways("fp32", 0.2, shape=(1, 2, 16, 8))
    assert set(found) == {"copy", *traffic.ROTATIONS, "poslib half", "poslib interleaved"}
    assert all(a <= b <= c for a, b, c in (row["copies"] for row in found.values())) and found["copy"]["copies"][1] == 1
    fresh = bytes_and_flops.faults(lambda: torch.frombuffer(mmap.mmap(-1, 1 << 24), dtype=torch.uint8).fill_(1))
    assert 8 <= fresh <= 5000 and bytes_and_flops.faults(lambda: None) < 4, "16 MiB of new memory: 8 pages of 2 MiB to 4,096 of 4 KiB"


def test_stored_ways_to_rotate_of_chapter_11_have_all_their_parts():
    stored = results.load("bytes_and_flops")
    for allocator in ("kept", "default"):
        for dtype in ("fp32", "bf16"):
            assert set(stored["ways"][allocator][dtype]) == {"copy", *traffic.ROTATIONS, "poslib half", "poslib interleaved"}
    assert max(row["faults"] for rows in stored["ways"]["kept"].values() for row in rows.values()) < 16, "memory that is kept faults no more"


# ---- context extension ----------------------------------------------------------------------------

def test_repeated_sequences_repeat_and_ask_once_they_do():
    tokens, targets = tasks.repeated(64, torch.Generator().manual_seed(3), length=40, periods=(5, 9), symbols=48)
    assert tokens.shape == targets.shape == (64, 40) and 0 <= tokens.min() and tokens.max() < 48
    asked = targets != tasks.IGNORED
    period = asked.int().argmax(1)                      # the first place that is asked is the one where the first token comes again
    assert set(period.tolist()) == {5, 6, 7, 8, 9}
    for row, want, p in zip(tokens, targets, period.tolist()):
        assert (row[p:] == row[:-p]).all() and (want[p:-1] == row[p + 1:]).all() and want[-1] == row[40 - p]
        assert (want[:p] == tasks.IGNORED).all() and asked.sum(1).min() == 40 - 9
    again, _ = tasks.repeated(64, torch.Generator().manual_seed(3), length=40, periods=(5, 9), symbols=48)
    assert (again == tokens).all()
    with pytest.raises(ValueError, match=r"periods is \(5, 40\); allowed are two from 1 to length - 1 = 39"):
        tasks.repeated(2, torch.Generator(), length=40, periods=(5, 40))


def test_turns_in_the_scores_are_turns():
    """Nothing turned, all angles in the shift: the rotary model, and its own angles twice are twice its positions."""
    model = Transformer(vocabulary=9, width=32, causal=True, position="rotary", seed=1, settings={"base": 188.0}).double()
    tokens = torch.randint(0, 9, (3, 20), generator=torch.Generator().manual_seed(0))
    plain, double, w = model(tokens), model(tokens, 2 * torch.arange(20)), model.positions.frequencies
    all_angles = torch.outer(torch.as_tensor(w), torch.arange(20, dtype=torch.float64))
    with context_extension.as_if(model, np.zeros(8), shift=all_angles):
        assert (model(tokens) - plain).abs().max() < 1e-12
    with context_extension.as_if(model, shift=all_angles):
        assert (model(tokens) - double).abs().max() < 1e-12 < 1e-6 < (plain - double).abs().max()
    some = all_angles.clone()
    some[[0, 2, 3, 4, 5, 6, 7]] = 0
    with context_extension.as_if(model, np.where(np.arange(8) == 1, 0, w), shift=some):         # one pair alone in the shift
        assert (model(tokens) - plain).abs().max() < 1e-12
    with context_extension.as_if(model, factor=1.3):
        assert (model(tokens) - plain).abs().max() > 1e-6
    assert (model(tokens) == plain).all(), "what was set is taken back"
    with context_extension.as_if(model, shift=all_angles), pytest.raises(ValueError, match="consecutive"):
        model(tokens, 2 * torch.arange(20))


def test_pairs_are_put_back_at_new_lags_alone_and_with_phases_that_were_seen():
    for base in context_extension.LADDERS.values():
        w = torch.as_tensor(rotary_frequencies(32, base))
        groups = context_extension.groups(base)
        assert sorted(np.concatenate([*groups.values()])) == list(range(16)) and (2 * np.pi / w.numpy()[groups["fast"]] <= 64).all()
        assert (2 * np.pi / w.numpy()[groups["slow"]] > 256).all() and (2 * np.pi / w.numpy()[groups["middle"]] > 64).all()
        for kind in ("clamp", "drawn", "nearest"):
            shift = context_extension.in_range(base, groups["middle"], kind, 5)
            assert not shift[:, :64].any() and not shift[groups["fast"]].any() and not shift[groups["slow"]].any()
            phase = (shift + torch.outer(w, torch.arange(256)))[groups["middle"], 64:]
            seen = torch.outer(w, torch.arange(64))[groups["middle"]]
            away = (torch.exp(1j * phase)[:, :, None] - torch.exp(1j * seen)[:, None]).abs()
            assert away.min(-1).values.max() < 1e-9, "a phase that was seen"
            assert (away.argmin(-1) == 63).all() == (kind == "clamp")
            if kind == "nearest":
                before = torch.exp(1j * torch.outer(w, torch.arange(256)))[groups["middle"], 64:]
                assert ((torch.exp(1j * phase) - before).abs() <= (torch.exp(1j * seen)[:, None] - before[:, :, None]).abs().min(-1).values + 1e-9).all()
        half = context_extension.in_range(base, np.arange(16), "drawn", first=32)
        assert half[:, 32:64].any() and not half[:, :32].any()
        assert {name for name, _, _ in context_extension.conditions(base, 0)} >= {"random %d" % len(g) for g in groups.values()}
        assert all(len(draws) == (3 if kind == "drawn" and name != "none" else 1) for name, kind, draws in context_extension.conditions(base, 0))


def test_lags_are_drawn_as_often_as_a_causal_window_holds_them():
    w = torch.as_tensor(rotary_frequencies(32, 188.0))
    shift = torch.stack([context_extension.in_range(188.0, np.array([15]), "drawn", 0, draw)[15, 64:] for draw in range(40)])
    lag = ((shift + w[15] * torch.arange(64, 256)) / w[15]).round()      # the slowest pair has not turned: its phase tells the lag
    often = torch.bincount(lag.long().flatten(), minlength=64) / lag.numel()
    want = torch.arange(64, 0, -1) / (64 * 65 / 2)
    assert lag.min() >= 0 and len(often) == 64 and (often - want).abs().max() < 0.006 and (often - 1 / 64).abs().max() > 0.01
    assert (shift[0] != shift[1]).any(), "each draw is its own"


def test_stretched_ladders_are_the_librarys():
    from poslib import extension
    base, L = 188.0, 64
    for name, length, method in (("pi", 256, extension.Linear(4)), ("ntk", 256, extension.NTKAware(4)), ("dynamic", 128, extension.DynamicNTK(1, L)),
                                 ("dynamic", 64, extension.DynamicNTK(1, L)), ("dynamic_hf", 256, extension.DynamicNTK(4, L)), ("none", 256, extension.Unscaled()),
                                 ("by_parts", 256, extension.ByParts(4, L, ramp="paper", beta_slow=0.5, beta_fast=2)), ("ntk_chosen", 256, extension.NTKAware(8)),
                                 ("least", 256, extension.ByParts(4, L, ramp="paper", beta_slow=1, beta_fast=1 + 1e-9)), ("yarn_paper", 256, extension.YaRN(4, L, ramp="paper"))):
        frequencies, factor, near = context_extension.stretched(name, base, ((0.5, 2), 8), length)
        np.testing.assert_allclose(frequencies, method.frequencies(32, base, length=length), rtol=1e-12)
        assert abs(factor - method.rotation_factor(length=length)) < 1e-12 and near is None
    assert context_extension.stretched("window_temperature", base, ((1, 4), 4), 256)[1:] == (context_extension.temperature(), 64)


def test_the_stored_model_of_chapter_13_is_that_of_the_stored_results():
    stored = results.load("context_extension")
    assert stored["trained"] == 64 and stored["ladders"] == context_extension.LADDERS
    found = {context_extension._unit(r): r for r in stored["runs"]}
    assert list(found) == [unit for unit in context_extension._work() if unit in found], "in order, none twice"
    assert sorted({seed for *_, seed in found}) == stored["made"]["seeds"]
    model, was = context_extension.stored("text"), found["zero", "text", "llama", 0]["methods"]
    chosen = context_extension.chosen(stored["runs"], "text", "llama")
    for name in ("window", "yarn"):
        frequencies, factor, near = context_extension.stretched(name, 188.0, chosen, 64)
        with context_extension.as_if(model, frequencies, factor):
            assert abs(context_extension.tail(model, *context_extension.held_out(atlas.TESTED), 64, near) - was[name]["64"]) < 0.002
    conditions = found["ablation", "text", "llama", 0]["conditions"]
    made = context_extension.conditions(188.0, 0)
    assert [(c["group"], c["put"], len(c["loss"])) for c in conditions[:len(made)]] == [(n, k, len(d)) for n, k, d in made]
    [middle] = [c["loss"] for c in conditions if (c["group"], c["put"]) == ("middle", "nearest")]
    with context_extension.as_if(model, shift=context_extension.in_range(188.0, context_extension.groups(188.0)["middle"], "nearest")):
        tokens, targets = (x[:32] for x in context_extension.held_out(atlas.TESTED))
        assert abs(context_extension.tail(model, tokens, targets, 256) - middle[0]) < 0.002


def test_the_window_baseline_is_tuned_on_the_same_batches_with_its_window(monkeypatch):
    monkeypatch.setitem(context_extension.TUNING, "steps", 2)
    model, seen = context_extension.new("copy", 188.0, 0), []
    inside = Transformer.forward
    monkeypatch.setattr(Transformer, "forward", lambda self, tokens, positions=None, *, window=None: (seen.append((tokens.clone(), window)), inside(self, tokens, window=window))[1])
    tuned = [context_extension.tuned("copy", model, name, 188.0, ((1, 4), 4), 0, progress=False) for name in ("none", "window")]
    assert [w for _, w in seen] == [None, None, 64, 64] and all((a == b).all() and a.shape == (4, 256) for (a, _), (b, _) in zip(seen[:2], seen[2:]))
    assert (tuned[0].head.weight != tuned[1].head.weight).any() and (model.head.weight == context_extension.new("copy", 188.0, 0).head.weight).all()


def test_entropies_of_attention_are_those_of_its_weights():
    model = Transformer(vocabulary=256, width=64, causal=True, position="rotary", seed=1, settings={"base": 188.0})
    with torch.no_grad():
        for block in model.blocks:
            block.qkv.weight[:64] = 0           # queries of nothing: each place looks at all before it alike
    found = context_extension.entropies(model, "none", 188.0, ((1, 4), 4))
    want = {n: np.log(np.arange(n - 31, n + 1)).mean() for n in (64, 256)}
    assert all(abs(e - want[n]) < 1e-3 for n in want for e in found[n]) and "mix" not in vars(model.positions)


# ---- chapter 14 -----------------------------------------------------------------------------------

SMOLLM2 = pretrained.Settings(49152, 576, 1536, 30, 9, 3, 64, 100000.0, 1e-5, 8192, True, "interleaved")


def test_a_second_reading_sees_the_first_a_gap_away():
    model, n = rope_in_practice.tiny(), 12
    tokens = torch.randint(0, 64, (3, n), generator=g(8))
    guess, by_gap = real_model.curve(model, tokens, (0, 40))
    for gap, loss in by_gap.items():
        ids = torch.cat([torch.arange(n), torch.arange(n) + n + gap])
        whole = llama.losses(model, tokens.repeat(1, 2), ids)
        torch.testing.assert_close(guess, whole[:, :n - 1].mean(1))
        torch.testing.assert_close(loss, whole[:, n:].mean(1))
    assert (by_gap[0] - by_gap[40]).abs().max() > 1e-3
    slowed = real_model.stretched(model.settings, [1, 2], factor=4)
    assert (real_model.curve(model, tokens, (40,), slowed)[1][40] - by_gap[40]).abs().max() > 1e-3


def test_pairs_can_see_gaps_of_their_own():
    model, n = rope_in_practice.tiny(), 12
    s, tokens = model.settings, torch.randint(0, 64, (2, n), generator=g(9))
    _, cache = real_model.first(model, tokens)
    far, near = (real_model.second(model, tokens, gap, cache) for gap in (500, 7))
    for pairs, right in (([], far), (range(4), near)):
        given = real_model.second(model, tokens, 0, cache, real_model.apart(s, 500, list(pairs), 7, n))
        torch.testing.assert_close(given, right)
    some = real_model.apart(s, 500, [1, 3], np.array([7, 9]), n)
    assert some.gaps == (500, 7, 500, 9)
    x = torch.randn(1, 1, 2, 8, generator=g(10)).double()
    found = some(x, torch.tensor([n - 1, n]), 0, "q")
    for row, (place, gaps) in enumerate([(n - 1, (0, 0, 0, 0)), (n, (500, 7, 500, 9))]):
        for pair, gap in enumerate(gaps):
            whole = rotate(x[0, 0, row:row + 1], torch.tensor([place + gap]), layout="half", base=s.base)[0]
            torch.testing.assert_close(found[0, 0, row, [pair, pair + 4]], whole[[pair, pair + 4]])


def test_groups_of_pairs_and_drawn_gaps():
    found = real_model.groups(SMOLLM2)
    assert [len(found[k]) for k in ("fast", "middle", "slow", "middle + slow", "barely fast", "all", "none")] == [20, 4, 8, 12, 3, 32, 0]
    wave = 2 * np.pi / rotary_frequencies(64, 1e5)
    assert wave[found["fast"]].max() <= 8192 < wave[found["middle"]].min() <= wave[found["middle"]].max() <= 4 * 8192 < wave[found["slow"]].min()
    assert all(len(set(pairs)) == int(name.split()[1].rstrip(",")) for name, pairs in found.items() if name.startswith("random"))
    gaps = np.concatenate([real_model.drawn_gaps(SMOLLM2, draw) for draw in range(50)])
    assert gaps.min() >= 0 and gaps.max() + 2 * real_model.TOKENS - 1 < 8192 and gaps.max() > 7000


def test_share_of_copying_kept():
    np.testing.assert_allclose(real_model.kept([2.0, 3.0], [0.5, 1.0], [0.5, 3.0]), [1, 0])
    assert real_model.kept(2.0, 0.5, 5.0) == -2


def test_the_stored_gap_probe_is_complete():
    stored = results.load("real_model")
    jobs = real_model.jobs(SMOLLM2)
    assert list(stored["second"]) == list(stored["first"]) == list(jobs)
    assert stored["groups"] == {name: pairs.tolist() for name, pairs in real_model.groups(SMOLLM2).items()}
    assert len(stored["passages"]) == 10 and sum(p.startswith("code") for p in stored["passages"]) == 5
    for name, todo in jobs.items():
        found = real_model.readings(stored, name)
        assert list(found) == [gap for gap, *_ in todo] and all(one.shape == two.shape == (10,) for one, two in found.values())


def test_two_passages_of_the_stored_gap_probe_are_measured_again(smollm2_passages):
    model, tokens, at = smollm2_passages
    stored = results.load("real_model")
    with one_thread():
        guess, by_gap = real_model.curve(model, tokens, (9000,))
        slowed = real_model.curve(model, tokens, (9000,), real_model.stretched(model.settings, stored["groups"]["middle + slow"]))
    for name, (one, two) in (("grid/none/1", (guess, by_gap)), ("scaled/middle + slow", slowed)):
        wanted = real_model.readings(stored, name)[9000]
        assert np.abs(one.numpy() - wanted[0][at]).max() < 0.02 and np.abs(two[9000].numpy() - wanted[1][at]).max() < 0.02


@pytest.fixture
def smollm2_passages():
    """SmolLM2, two of the stored passages, and which they are; other versions of Python have other ones."""
    if not pretrained.installed(pretrained.SMOLLM2):
        pytest.skip("SmolLM2 is not installed")
    stored = results.load("real_model")
    if stored["made"]["python"] != platform.python_version():
        pytest.skip("the library and manual of another Python were read")
    texts = real_model.passages(pretrained.open_tokenizer(pretrained.SMOLLM2))
    assert list(texts) == stored["passages"]
    at = [2, 8]
    return llama.open_llama(), torch.stack([texts[stored["passages"][i]] for i in at]), at


# ---- chapter 16 ------------------------------------------------------------------------------------

def test_the_stored_patches_are_the_jobs_and_the_figure_holds_them():
    stored = results.load("patching_position")
    assert set(stored["runs"]) == set(patching_position.jobs()) | {"smol"}
    assert stored["moves"] == list(patching_position.MOVES)
    text = (Path(results.__file__).parents[2] / "teach" / "js" / "patch-site.js").read_text("utf8")
    assert json.loads(re.search(r"^  const DATA = (.*);$", text, re.M)[1]) == json.loads(json.dumps(patching_position.figure_data()))


def loud(model):
    """A model whose attention decides what it answers, untrained as it is."""
    with torch.no_grad():
        for block in model.blocks:
            block.qkv.weight.mul_(6)
    return model


def test_runs_of_a_chain_line_up():
    """Ids further on move nothing for a relative encoding; other content does; a whole stream from elsewhere gives what the source gives."""
    model = patching_position.chain("alibi", steps=1)[1]
    tokens, alone, states, longer = patching_position.runs(model, 4)
    assert tokens.shape[1] == patching_position.READ and all(x.shape == states["own"].shape for x in states.values())
    assert (states["own"] - states["ids"]).abs().max() < 1e-5 < 1e-3 < (states["own"] - states["other"]).abs().max()
    found = patching_position.chain_sites(loud(model), 4)
    assert found["own"] == found["own, unpatched"] and found["own"][1] == 0 and found["ids"][1] < 1e-5 < found["other"][1]
    assert torch.equal(longer[:, 4:], tokens)
    weights = circuits.record(model, tokens, sites="weights", layers=0)[0, "weights"]
    np.testing.assert_allclose(patching_position.previous(model), weights.diagonal(-1, -2, -1).mean((0, 2)), rtol=1e-4)
    for name in ("window", "window, unpatched"):
        assert len(found["by place"][name]) == 11 and np.mean(found["by place"][name]) == pytest.approx(found[name][0])
    assert states["fillers"][:, :patching_position.PREFIX].shape == states["window"][:, :patching_position.PREFIX].shape
    assert (states["fillers"] - states["window"]).abs().amax((0, 2)).min() > 1e-5, "what stands in front gets into every state"


def test_sinks_are_measured_where_they_are_said_to_be(monkeypatch):
    """On a random Llama, whose first place is no sink: what the theorems say must agree, and each patch must do something."""
    model, tokens = rope_in_practice.tiny(), torch.randint(10, 64, (2, 40), generator=g(7))
    for name, value in {"DEPTHS": (range(1), range(1, 3)), "BEFORE": (1, 2), "MARKS": {"a mark": 3}, "FAR": (9,), "sink_layer": lambda lengths: 1}.items():
        monkeypatch.setattr(patching_position, name, value)
    found = patching_position.sinks(model, tokens)
    by = {name: np.array(x) for name, x in found["by"].items()}
    whole = np.stack([x.numpy() for x in circuits.record(model, tokens, sites="weights").values()])       # (layers, batch, heads, queries, keys)
    for on, name in ((0, "place 0"), (1, "place 1"), (32, "the middle")):
        each = whole[:, :, :, max(32, on + 1):, on].mean((2, 3))
        np.testing.assert_allclose(by[name], [each[0], each[1:].mean(0)], rtol=1e-4)
    np.testing.assert_allclose(found["weights"], whole[:, :, :, 32:, 0].mean((1, 2, 3)), rtol=1e-4)
    np.testing.assert_allclose(by["all ids 1000 further on, on place 0"], by["place 0"], rtol=1e-3)
    np.testing.assert_allclose(by["first token dropped, on the new first"], by["first token masked, on the second"], rtol=1e-3)
    for name in by:
        if "state" in name:
            plain = by["place 0" if name.endswith("place 0") else "the middle"]
            np.testing.assert_allclose(by[name][0], plain[0], rtol=1e-3, err_msg="before the layer of the patch nothing changes")
            assert np.abs(by[name][1] - plain[1]).min() > 1e-5, name
    two = by["first state to the middle, another to place 0, on the middle"], by["another state to the middle, another to place 0, on the middle"]
    np.testing.assert_allclose(found["moved"]["1"], [x[1] for x in two], rtol=1e-6)


def test_fillers_are_patched_at_the_places_of_the_longer_run(monkeypatch):
    """A run patched with its own keys and values answers as it would have done."""
    model, draw = loud(patching_position.chain("rotary", steps=1)[1]), patching_position._draw
    monkeypatch.setattr(patching_position, "_draw", lambda seed, **how: draw(806 if seed == 812 else seed, **how))
    found = patching_position.chain_sites(model, 4)
    assert found["fillers"] == found["window, unpatched"]


def test_the_key_of_an_answer_is_patched_behind_a_layer():
    """A second layer that copies the token BACK before, whatever the first did, answers with what stands there."""
    model = patching_position.copier("rotary", 0, layers=2, steps=1)
    i, n = patching_position.PLACE, patching_position.PLACE - patching_position.BACK
    ours, theirs = (patching_position._draw(seed) for seed in (802, 803))
    states = circuits.record(model, theirs, sites="stream", layers=1)[1, "stream"][:, n]

    def look(layer, site, x):
        if (layer, site) == (1, "stream"):
            x = x.clone()
            x[:, n] = states
            return x

    with torch.no_grad():
        answer = model(ours, look=look)[:, i].argmax(-1)
    count = ours[:, n] != theirs[:, n]
    wanted = [(answer == x[:, n])[count].double().mean().item() for x in (ours, theirs)]
    np.testing.assert_allclose(patching_position.behind_at_the_key(model), wanted, atol=1e-6)


def test_varied_starts_put_random_tokens_in_front():
    """Targets stay beside their tokens: each is the next token, wherever it counts."""
    for seed in range(5):
        tokens, targets = patching_position._repeated(torch.Generator().manual_seed(seed), varied=True)
        counted = targets[:, :-1] != tasks.IGNORED
        assert tokens.shape == targets.shape and counted.any() and (tokens[:, 1:] == targets[:, :-1])[counted].all()


# ---- chapter 17 -----------------------------------------------------------------------------------

def test_the_first_step_with_enough_right_answers_is_counted():
    assert atlas.steps_until([(20, 0.5), (40, 0.99), (60, 0.98), (80, 1.0)]) == 40
    assert atlas.steps_until([(20, 0.5), (40, 0.9899)]) is None
    seen = []
    atlas.learn("previous", "rotary", {}, 0, steps=30, progress=False, seen=seen)
    assert [step for step, _ in seen] == [20, 30] and all(0 <= share <= 1 for _, share in seen)


def test_looking_on_does_not_change_what_is_learned():
    one, two = (atlas.learn("previous", "t5", {}, 3, steps=21, progress=False, seen=seen) for seen in (None, []))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters()))


def test_xpos_is_for_decoders_alone():
    with pytest.raises(ValueError, match="causal is False"):
        Transformer(vocabulary=5, position="xpos")


def test_stored_steps_to_one_back_follow_from_the_curves():
    mine = [r for r in results.load("atlas")["runs"] if r["task"] == "previous"]
    assert {r["method"] for r in mine} == set(atlas.METHODS) and len(mine) == 5 * len(atlas.METHODS)
    for r in mine:
        assert len(r["curve"]) == 10 and r["steps"] == atlas.steps_until([(20 * n, x) for n, x in enumerate(r["curve"], 1)])


def test_census_of_layers_has_a_source_for_every_cell():
    known, entries = choosing.layer_sources(), choosing.layers()
    assert len(entries) >= 25 and len({e.name for e in entries}) == len(entries) and [e.year for e in entries] == sorted(e.year for e in entries)
    for e in entries:
        assert list(e.cells) == list(choosing.FIELDS) and 2017 <= e.year <= 2026
        for field, cell in e.cells.items():
            assert cell["value"] == getattr(e, field)
            assert cell["value"] is None or (cell["source"] in known and len(cell["at"]) > 5), f"{e.name}, {field}"
        assert e.window is None or e.window >= 0
        assert all(x is None or x == "0" or re.fullmatch("[0-9]+ of [0-9]+", x) for x in (e.windowed, e.nope))
        assert (e.window == 0) <= (e.windowed in (None, "0")) and (e.share is None or 0 < e.share <= 1)
        assert e.position == "rotary" or (e.share is None), e.name


def test_recommendations_follow_from_the_rules():
    rule = choosing.Rule
    given = [rule({"model": "decoder"}, "shaw", "for", "a", "x"), rule({"lag": True}, "shaw", "out", "b", "x"), rule({}, "t5", "for", "c", "x"),
             rule({"model": "decoder", "lag": True}, "t5", "against", "d", "x"), rule({}, "alibi", "against", "e", "x")]
    answers = {"model": "decoder", "length": "loss", "kernel": "bias", "lag": False, "tune": False, "memory": False, "apart": False}
    order = [m["method"] for m in choosing.recommend(given, **answers)]
    assert order[:2] == ["shaw", "t5"] and order[-1] == "alibi"
    order = [m["method"] for m in choosing.recommend(given, **{**answers, "lag": True})]
    assert order[-1] == "shaw" and order[0] == "none", "ties in the order of METHODS"
    with pytest.raises(ValueError, match="model is 'both'"):
        choosing.recommend(given, **{**answers, "model": "both"})
    rules = choosing.rules()
    assert all(r.method in choosing.METHODS and r.side in ("for", "against", "out") for r in rules)
    assert all(k in choosing.CONSTRAINTS and v in choosing.CONSTRAINTS[k] for r in rules for k, v in r.when.items())
    for k, values in choosing.CONSTRAINTS.items():
        assert any(k in r.when for r in rules), k


def test_what_encodings_cost_is_what_poslib_says():
    a = cost.Attention(heads=4, head_dim=16, queries=256)
    n = {m: choosing.bytes_of(m, a) for m in atlas.METHODS}
    assert n["none"] == 0 and n["t5"] == n["kerple"] == 4 * 256 * 4 and n["alibi"] == 16 and n["rotary"] == n["proportional"] == 256 * 16 * 4
    assert n["xpos"] == 2 * n["rotary"] and n["learned"] == cost.absolute(a).bytes
    with pytest.raises(ValueError, match="method is 'path'"):
        choosing.bytes_of("path", a)


def test_ratios_of_times_are_taken_round_by_round():
    assert choosing.ratios({"none": [1.0, 2.0, 4.0], "t5": [2.0, 6.0, 16.0]})["t5"][1] == 3.0
    stored = results.load("choosing")["step"]
    assert list(stored) == list(atlas.METHODS) and stored["none"] == [1.0, 1.0, 1.0] and all(a <= b <= c for a, b, c in stored.values())


# ---- chapter 15 -----------------------------------------------------------------------------------

def test_scores_by_content_are_those_of_the_first_layer():
    tokens = position_in_circuits.draw(1, 5)[0]
    i, j = torch.tril_indices(64, 64)
    for method in ("rotary", "alibi", "t5", "none"):
        model = position_in_circuits.new_model(method, 1)
        for p in model.parameters():
            p.data.add_(0.1 * torch.randn(p.shape, generator=g(3)))
        found = torch.as_tensor(position_in_circuits.content_scores(model))[:, tokens[0][i], tokens[0][j], i - j]
        whole = circuits.record(model, tokens, sites="scores")[0, "scores"][0][:, i, j]
        torch.testing.assert_close(found.float(), whole, atol=1e-4, rtol=1e-4)
        shares = position_in_circuits.shares(found_all := position_in_circuits.content_scores(model)[0])
        assert abs(sum(shares.values()) - 1) < 1e-9 and (shares["interaction"] < 1e-20) == (method != "rotary")
        others = found_all[..., 0][~np.eye(48, dtype=bool)].mean()
        assert abs(position_in_circuits.own(found_all) - (found_all[..., 0].diagonal().mean() - others)) < 1e-9


def test_masses_on_the_place_before_and_on_induction():
    weights = torch.zeros(1, 1, 8, 8)
    weights[0, 0, torch.arange(1, 8), torch.arange(7)] = 1
    weights = torch.zeros(2, 1, 8, 8)
    for row, period in enumerate((3, 4)):
        for place in range(period, 8):
            weights[row, 0, place, place - period + 1] = 0.75
    torch.testing.assert_close(position_in_circuits.induction_mass(weights, torch.tensor([3, 4])), torch.full((2, 1), 0.75))
    assert position_in_circuits.induction_mass(weights, torch.tensor([4, 3])).max() < 0.4
    tokens, targets, periods = position_in_circuits.draw(6, 2)
    for row, period in zip(tokens, periods.tolist()):
        assert 8 <= period <= 32 and bool((row[period:] == row[:-period]).all())


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_pairs_of_one_head_are_switched_off(layout):
    model = rope_in_practice.tiny()
    model = llama.Llama(model.weights, model.settings._replace(layout=layout), dtype=torch.float64)
    tokens = torch.randint(0, 64, (2, 20), generator=g(4))
    q, k = position_in_circuits.queries_and_keys(model, tokens, [(1, 2)])[1, 2]
    turned, still = position_in_circuits.pair_scores(q, k, model.settings)
    for way in ("stilled", "zeroed"):
        turn = position_in_circuits.lesioned(model, [(1, 2), (2, 0)], [0, 2], getattr(circuits, way))
        wanted = circuits.record(model, tokens, sites="weights", turn=turn)[1, "weights"]
        torch.testing.assert_close(position_in_circuits.without(turned, still, [0, 2], way), wanted[:, 2])
        assert (wanted[:, 2] - circuits.record(model, tokens, sites="weights")[1, "weights"][:, 2]).abs().max() > 1e-3
    _, held = position_in_circuits.pair_scores(q, k, model.settings, held=5)
    at_five = circuits.record(model, tokens, sites="weights", turn=circuits.stilled(model, [0, 2], layer=1, heads=2, lag=5))[1, "weights"]
    torch.testing.assert_close(position_in_circuits.without(turned, held, [0, 2], "stilled"), at_five[:, 2])
    torch.testing.assert_close(held.diagonal(-5, -2, -1), turned.diagonal(-5, -2, -1))
    assert (held - still).abs().max() > 1e-3
    own = q[:, 3:4].expand_as(q)                                # one query everywhere: a held pair does not see where it stands
    row = position_in_circuits.pair_scores(own, k, model.settings, held=5)[1]
    torch.testing.assert_close(row, row[:, :, :1].expand_as(row))
    lower, _ = position_in_circuits.pair_scores(q, k, model.settings, 3)
    torch.testing.assert_close(lower.sum(1), circuits.record(
        model, tokens, sites="scores", turn=circuits.placed(model, torch.arange(20) - 3, which="q", layer=1))[1, "scores"][:, 2])


def test_two_readings_and_what_a_lesion_does_to_them():
    model, tokens = rope_in_practice.tiny(), torch.randint(0, 64, (2, 12), generator=g(8))
    first, second = position_in_circuits.copying(model, tokens)
    whole = llama.losses(model, tokens.repeat(1, 2))
    torch.testing.assert_close(first, whole[:, :11].mean(1))
    torch.testing.assert_close(second, whole[:, 12:].mean(1))
    lesions = [position_in_circuits.copying(model, tokens, [(0, 0), (2, 1)], [0], getattr(circuits, way)) for way in ("stilled", "zeroed")]
    assert all((a - b).abs().min() > 1e-6 for a, b in ((lesions[0][1], second), (lesions[1][1], lesions[0][1])))


def test_a_share_among_the_nearest_keys(monkeypatch):
    monkeypatch.setattr(position_in_circuits, "FROM", 7)
    weights = torch.full((1, 9, 9), 1 / 9).tril()
    assert position_in_circuits.near(weights).item() == pytest.approx(1 / 7) and position_in_circuits.previous(weights).item() == pytest.approx(1 / 9)
    weights[0, 7:, :1] = 5.0                                    # lags 7 and 8 do not count
    weights[0, 7, 6], weights[0, 8, 7] = 8 / 9, 2 / 9
    assert position_in_circuits.near(weights).item() == pytest.approx((8 / 14 + 2 / 8) / 2)


def test_one_head_scores_by_some_parts_alone(monkeypatch):
    test = position_in_circuits.draw(4, 3)
    for method in ("rotary", "alibi"):
        model = position_in_circuits.new_model(method, 1)
        table = position_in_circuits.content_scores(model)[1]
        split = position_in_circuits.parts(table)
        np.testing.assert_allclose(sum(split.values()) + np.zeros_like(table), table)
        assert all(abs(split["content"].mean(axis)).max() < 1e-12 for axis in [(0, 1)]) and abs(split["interaction"].mean(2)).max() < 1e-12
        found = position_in_circuits.reduced(model, 1, test)
        seen = position_in_circuits.look_at(model, test)
        assert found["whole"] == [seen["right"], pytest.approx(seen["previous"][0][1], abs=1e-4)]
        x = split["lag"]
        mass = np.mean([np.exp(x[1]) / np.exp(x[:i + 1]).sum() for i in range(8, 64)])
        assert found["lag"][1] == pytest.approx(mass, abs=1e-4)
        assert (found["whole"] == found["lag and content"]) == (method == "alibi")
        assert found["nothing"][1] == pytest.approx(np.mean([1 / (i + 1) for i in range(8, 64)]), abs=1e-4)
        table = x[None, None] + np.zeros((48, 48, 64)) + (position_in_circuits.own(split["content"]) * np.eye(48))[..., None]
        monkeypatch.setattr(position_in_circuits, "content_scores", lambda model, table=table: [None, table])
        assert position_in_circuits.reduced(model, 1, test)["whole"] == found["lag and own"]
        monkeypatch.undo()
        assert found["content"][1] != found["whole"][1]


def test_tokens_to_rest_on_are_taken_out_and_put_in(monkeypatch):
    class Words:
        def encode(self, text):
            return {" ": [7], " the": [8], "two": [1, 2]}.get(text, [9])

    asked = []
    monkeypatch.setattr(position_in_circuits, "anchors", lambda model, tokens: (asked.append(tokens[0].tolist()), [(n, 0.5) for n in range(30)])[1])
    with pytest.raises(ValueError, match="text is 'two', which is 2 tokens; allowed is one"):
        position_in_circuits.single(Words(), "two")
    texts = {"has": torch.tensor([40, 8, 41, 7, 7, 42]), "not": torch.arange(20, 25).repeat(21)}
    found = position_in_circuits.resting(None, texts, Words())
    assert found["places"] == {" ": {"has": 3, "not": None}, " the": {"has": 1, "not": None}}
    assert asked[:4] == [[40, 9, 41, 9, 9, 42], [40, 8, 41, 9, 9, 42], [40, 9, 41, 7, 7, 42], [40, 8, 9, 7, 7, 9]]
    assert set(found["out"]) == {"both", " ", " the", "control"} and all(x == {"has": list(range(4, 10))} for x in found["out"].values())
    put = [row for row in asked[4:]]
    assert len(put) == 25 and {tuple(n for n in range(105) if row[n] < 20) for row in put} == {(1,), (5,), (20,), (60,), (100,)}
    assert all(set(by_place) == {"1", "5", "20", "60", "100"} and all(set(x) == {"not"} for x in by_place.values()) for by_place in found["in"].values())


def test_where_a_lone_pair_comes_round(monkeypatch):
    monkeypatch.setattr(position_in_circuits, "LATER", 16)
    weights = torch.zeros(1, 17, 17)
    weights[0, 16, 16 - 7], weights[0, 16, 16 - 10], weights[0, 16, 15] = 0.3, 0.1, 0.6         # cos(6) is above 0.8, cos(9) is not; lag 1 is near
    assert position_in_circuits.come_round(weights).item() == pytest.approx(0.75)


def test_lesions_are_of_the_heads_that_they_name():
    before, names = np.random.default_rng(0).random((16, 30, 9)), results.load("position_in_circuits")["smollm2"]["passages"]
    heads, found = position_in_circuits.chosen(before, names), position_in_circuits.lesions(before, names)
    assert found["none"][:2] == ((), ()) and all(found[f"ten heads, pair {k} {way}"][:2] == (heads, [k]) for k in range(4) for way in ("stilled", "zeroed"))
    assert list(found["ten heads, pairs 1-3 zeroed"][1]) == [1, 2, 3] and found["ten heads, pairs 1-3 zeroed"][2] is circuits.zeroed
    assert [found[f"head {n}, {h}, pair 0 stilled"][0] for n, h in heads] == [[head] for head in heads]
    held = found["ten heads, pair 0 held at lag 4"]
    assert held[:2] == (heads, [0]) and held[2].func is circuits.stilled and held[2].keywords == {"lag": 4} and found["the first head, pair 0 held at lag 1"][0] == heads[:1]
    by_layer = [found[f"those of layers {x}, pair 0 stilled"][0] for x in ("0 to 9", "10 to 15", "16 to 29")]
    assert sorted(sum(by_layer, [])) == sorted(heads)
    for name in ("draw 0", "draw 1", "draw 2", "next ten"):
        which = found[f"{name}, pair 0 stilled"][0]
        assert len(which) == 10 and not set(which) & set(heads) and which == found[f"{name}, all pairs zeroed"][0]


def test_the_stored_circuits_are_complete():
    stored = results.load("position_in_circuits")
    toys, real = stored["toys"], stored["smollm2"]
    assert set(toys) == {f"{m}/2/{s}" for m in position_in_circuits.METHODS for s in range(5)} | {f"rotary/1/{s}" for s in range(3)}
    assert all(len(row["steps"]) == len(row["right"]) == 48 for row in toys.values())
    assert {name for name, row in toys.items() if "reduced" in row} == {f"{m}/2/{s}" for m in ("rotary", "alibi", "t5") for s in range(5)}
    before, names = np.array(real["before"]), real["passages"]
    assert before.shape == np.array(real["first"]).shape == (16, 30, 9) and set(real["chosen on"]) <= set(names)
    heads = position_in_circuits.chosen(before, names)
    others = position_in_circuits.drawn_heads(before, heads, 5, 0)
    assert [tuple(map(int, name.split(", "))) for name in real["heads"]] == heads + others and not set(heads) & set(others)
    for found in real["heads"].values():
        assert set(found["stilled"]) == set(found["zeroed"]) == set(position_in_circuits.groups(32)) and len(found["whole"]) == 10
    assert list(real["copying"]) == list(position_in_circuits.lesions(before, names))
    assert all(len(x["first"]) == len(x["second"]) == 4 for x in real["copying"].values())
    assert all(set(x) == set(names) for x in real["resting"]["places"].values())


def test_the_figure_score_waves_holds_what_is_stored():
    text = (Path(results.__file__).parents[2] / "teach" / "js" / "score-waves.js").read_text("utf8")
    assert json.loads(re.search(r"^  const DATA = (.*);$", text, re.M)[1]) == position_in_circuits.figure_data(), "python -m poslib.lab.position_in_circuits --figure"
