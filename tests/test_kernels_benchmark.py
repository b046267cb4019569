"""The benchmark for a GPU, run dry: every way is compared with float64 before it is timed, and a wrong one is not timed."""

import json

import pytest
import torch

from poslib import attention as reference, rotary as exact
from poslib.kernels import benchmark as B
from poslib.lab import results

VERDICTS = {"right", "wrong", "failed", "not installed", "not reached"}
SHAPE = {"heads": 2, "kv_heads": 1, "head_dim": 32}
ROTARY, ROTARY_BOTH = B.Case("rotary", 1, 24, 24, **SHAPE), B.Case("rotary", 1, 24, 24, True, **SHAPE)
ATTENTION, ATTENTION_BOTH = B.Case("attention", 1, 24, 24, **SHAPE), B.Case("attention", 1, 24, 24, True, **SHAPE)
DECODE = B.Case("decode", 2, 1, 40, **SHAPE)


def planned():
    return [(case.kind, case.backward, name) for case in B.cases(True) for name, way in B.WAYS[case.kind].items() if way.gradient or not case.backward]


def test_a_dry_run_has_every_row_with_a_verdict(tmp_path, capsys):
    assert B.main(["--dry", "--json", str(tmp_path / "found.json"), "--limit-s", "400"]) == 0
    found = json.loads((tmp_path / "found.json").read_text("utf8"))
    rows = found["rows"]
    assert [(row["kind"], row["pass"] == "forward+backward", row["way"]) for row in rows] == planned() and len(rows) > 40
    for row in rows:
        if row["verdict"] == "right":
            assert 0 <= row["error"] <= 1 and row["low"] == row["median"] == row["high"] == 1.0 and row["of roofline"] > 0 and (row["predicted"] is None or row["predicted"] > 0)
        else:
            assert row["verdict"] in VERDICTS - {"wrong", "not reached"} and row["reason"] and "median" not in row
        if row["way"].startswith(("poslib", "torch", "SDPA")):
            assert row["verdict"] == "right", row
    assert {"command", "seeds", "card", "torch", "triton", "flash-attn", "liger-kernel", "cuda"} <= set(found["made"]) and set(found["ceilings"]) == {
        "bytes per second", "operations per second"}
    said = capsys.readouterr().out
    assert said.count("rotary ") + said.count("attention ") + said.count("decode ") >= len(rows) and "0 wrong" in said and "wrote found.json" in said


def run(monkeypatch, case, *names, **options):
    """Rows of some ways in one case, and how many calls were timed."""
    timed = []
    monkeypatch.setattr(B, "_standing_still", lambda call: timed.append(call) or (1.0, 1.0, 1.0))
    monkeypatch.setattr(B, "cases", lambda dry: [case])
    monkeypatch.setattr(B, "WAYS", {case.kind: {name: B.WAYS[case.kind][name] for name in names}})
    return B.run(True, options.pop("limit", 400), progress=lambda text: None, **options)["rows"], len(timed) - 2      # two ceilings


def wrong_layout(turn, q, k, ids, *, layout, **named):
    return turn(q, k, ids, layout="interleaved", **named)


def a_bit_large(turn, *given, **named):
    return tuple(x * 1.03 for x in turn(*given, **named))


def keys_alone(turn, *given, **named):
    return given[0].clone(), turn(*given, **named)[1]


def last_channel(turn, *given, **named):
    q, k = turn(*given, **named)
    return q.index_fill(3, torch.tensor(31), 0), k


def not_a_number(turn, *given, **named):
    q, k = turn(*given, **named)
    return q.index_fill(2, torch.tensor(8), float("nan")), k


def long_ones(turn, *given, **named):
    """Right up to 16 tokens: as an offset that overflows."""
    q, k = turn(*given, **named)
    return (q, k) if q.shape[2] <= 16 else (q, k.index_fill(2, torch.tensor(q.shape[2] - 1), 0))


@pytest.mark.parametrize("fault", [wrong_layout, a_bit_large, keys_alone, last_channel, not_a_number, long_ones])
def test_a_wrong_rotation_is_reported_and_not_timed(monkeypatch, fault):
    turn = B.rotary.rotate
    monkeypatch.setattr(B.rotary, "rotate", lambda *given, **named: fault(turn, *given, **named))
    (row, right), timed = run(monkeypatch, ROTARY, "poslib", "torch eager")
    assert row["verdict"] == "wrong" and row["error"] > 1 and "median" not in row and timed == 1 and right["verdict"] == "right"
    assert "wrong" in B.line(row) and "of the error allowed" in B.line(row)


class WrongGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 1.05


@pytest.mark.parametrize("fault", ["positions", "scale", "mask", "gradient"])
def test_wrong_attention_is_reported_and_not_timed(monkeypatch, fault):
    attend = B.attention.attention

    def wrong(q, k, v, **named):
        if fault == "positions":
            named["positions"] = tuple(x.roll(1, 0) for x in named["positions"])
        if fault == "scale":
            named["scale"] = 0.9 * q.shape[-1] ** -0.5
        if fault == "mask":
            named["is_causal"] = False
        return attend(q, k, WrongGradient.apply(v) if fault == "gradient" else v, **named)
    monkeypatch.setattr(B.attention, "attention", wrong)
    (row,), timed = run(monkeypatch, ATTENTION_BOTH if fault == "gradient" else ATTENTION, "poslib, Q turned inside")
    assert row["verdict"] == "wrong" and row["error"] > 1 and timed == 0
    if fault == "gradient":
        assert run(monkeypatch, ATTENTION, "poslib, Q turned inside")[0][0]["verdict"] == "right"


def test_what_fails_or_is_missing_is_said_and_the_rest_goes_on(monkeypatch):
    def broken(*given, **named):
        raise NotImplementedError("not for\nthis size")
    monkeypatch.setattr(B.rotary, "rotate", broken)
    monkeypatch.setitem(B.WAYS["rotary"], "Liger", B.Way(lambda *given: B.importlib.import_module("a_package_that_is_not_there")))
    (row, missing, right), timed = run(monkeypatch, ROTARY, "poslib", "Liger", "torch eager")
    assert row["verdict"] == "failed" and row["reason"] == "NotImplementedError: not for this size" and right["verdict"] == "right" and timed == 1
    assert missing["verdict"] == "not installed" and "a_package_that_is_not_there" in missing["reason"]


def test_what_the_limit_cuts_off_is_listed(monkeypatch):
    hours = iter(range(10**6))
    rows, timed = run(monkeypatch, ROTARY, "torch eager", "torch.compile", clock=lambda: 3600.0 * next(hours), limit=B.LONGEST + 3600 * 4)
    assert [row["verdict"] for row in rows] == ["right", "not reached"] and timed == 1
    assert set(rows[1]) == set(rows[0]) - {"error", "low", "median", "high", "of roofline", "predicted"} and "not reached" in B.line(rows[1])


def test_a_way_that_changes_its_arguments_does_not_change_the_truth(monkeypatch):
    def in_place(q, k, *given, **named):
        for x in (q, k):
            x.copy_(exact.rotate(x.clone(), torch.arange(x.shape[2]), layout="half"))
        return q, k
    monkeypatch.setattr(B.rotary, "rotate", in_place)
    (row,), timed = run(monkeypatch, ROTARY, "poslib")
    assert row["verdict"] == "right" and timed == 1


@pytest.mark.parametrize("given", ["raw", "keys turned", "turned"])
@pytest.mark.parametrize("case", [ROTARY, ATTENTION, DECODE])
def test_the_truth_is_that_of_the_library(case, given):
    if case is ROTARY and given != "raw":
        return
    inputs = B.Inputs(case, "cpu", given)
    q, k, v = (x.double() for x in (inputs.q, inputs.k, inputs.v))
    want_q = q if given == "turned" else exact.rotate(q, inputs.q_ids, layout="half")
    want_k = k if given != "raw" else exact.rotate(k, inputs.k_ids, layout="half")
    if case is not ROTARY:
        mask = inputs.k_ids <= inputs.q_ids[:, None]
        want_q = reference.attention(want_q, want_k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), mask=mask)[0]
    got = B.truth(inputs, inputs.q, inputs.k, inputs.v)
    for x, y in zip(got, (want_q, want_k)):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-10)
    rows = [0, case.queries // 2]
    for x, y in zip(B.truth(inputs, inputs.q, inputs.k, inputs.v, rows=rows), got):
        torch.testing.assert_close(x, y[:, :, rows], rtol=0, atol=1e-14)


def test_the_least_work_counts_each_number_once():
    def work(*given, **named):
        found = B.Case(*given, **named).least
        return found.bytes, found.flops
    heads = {"heads": 32, "kv_heads": 8, "head_dim": 128}
    moved = 2 * 2 * 2 * 4096 * 40 * 128
    assert work("rotary", 2, 4096, 4096, **heads) == (moved, 0) and work("rotary", 2, 4096, 4096, True, **heads) == (2 * moved, 0)
    moved, flops = 2 * (3 * 2 * 4 * 2 + 3 * 4 * 2), 4 * 2 * 4 * (1 + 2 + 3)
    small = {"heads": 2, "kv_heads": 1, "head_dim": 4}
    assert work("attention", 1, 3, 3, **small) == (moved, flops)
    assert work("attention", 1, 3, 3, True, **small) == (moved + 2 * (4 * 3 * 2 * 4 + 4 * 3 * 4), flops * 3.5)
    assert work("decode", 32, 1, 8192, **heads) == (2 * 32 * (2 * 32 * 128 + 2 * 8 * 8192 * 128), 4 * 32 * 32 * 128 * 8192)
    card = B.measured({"bytes per second": 1e12, "operations per second": 1e9}, "cpu")
    assert B.milliseconds(B.Case("attention", 1, 3, 3, **small).least, card) == pytest.approx(192e-6)
    assert B.milliseconds(B.Case("rotary", 2, 4096, 4096, **heads).least, card) == pytest.approx(2 * 2 * 2 * 4096 * 40 * 128 * 1e-9)


def test_predictions_order_the_ways():
    heads = {"heads": 32, "kv_heads": 8, "head_dim": 128}
    for back in (False, True):
        case = B.Case("rotary", 2, 4096, 4096, back, **heads)
        moved = {name: B.predicted(case, way).bytes for name, way in B.WAYS["rotary"].items() if way.turn and (way.gradient or not back)}
        assert moved["poslib, phases"] == case.least.bytes < moved["poslib"] < 1.1 * case.least.bytes and 4.9 < moved["torch eager"] / moved["poslib"] < 7
    case = B.Case("attention", 2, 4096, 4096, **heads)
    moved = {name: B.predicted(case, way) for name, way in B.WAYS["attention"].items() if way.turn is not None}
    assert moved["poslib, without rotation"] == moved["SDPA flash, without rotation"] == case.least
    assert moved["poslib, Q turned inside"].bytes < moved["poslib, K turned before and Q inside"].bytes < moved["SDPA flash after poslib"].bytes \
        < moved["SDPA flash after torch eager"].bytes and len({found.flops for found in moved.values()}) == 1
    case = B.Case("decode", 32, 1, 8192, **heads)
    moved = {name: B.predicted(case, way).bytes / case.least.bytes for name, way in B.WAYS["decode"].items() if way.turn is not None}
    assert 1.9 < moved["poslib, all raw keys turned before"] < 2.1 and all(share < 1.01 for name, share in moved.items() if "before" not in name)
    assert B.predicted(case, B.WAYS["attention"]["flex_attention after torch.compile"]) is None


def test_cases_cover_what_was_promised():
    full = B.cases(False)
    assert {c.keys for c in full if c.kind == "decode"} == {2048, 8192, 32768}
    for kind in ("rotary", "attention"):
        for back in (False, True):
            assert {1024, 2048, 4096, 8192, 16384} == {c.queries for c in full if c.kind == kind and c.backward == back and c.queries > 1}
    assert len(set(full)) == len(full) and {c.kind for c in full[:3]} == {"rotary", "attention", "decode"}
    for kind, ways in B.WAYS.items():
        for name, way in ways.items():
            assert any(way.only(case) for case in full if case.kind == kind), name


def test_nothing_is_stored_until_it_was_measured(monkeypatch, tmp_path):
    monkeypatch.setattr(results, "HOME", tmp_path)
    assert B.results() is None
    (tmp_path / "kernels_gpu.json").write_text('{"rows": []}', "utf8")
    assert B.results() == {"rows": []}


def test_without_a_gpu_it_says_what_to_do(capsys):
    if B.MODE == "interpreted":
        with pytest.raises(SystemExit) as end:
            B.main([])
        assert end.value.code == 2 and "--dry" in capsys.readouterr().err
