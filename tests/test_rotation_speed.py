"""The benchmark of rotation at tiny sizes: its error column sees wrong peers, its goals are judged by it."""

import json
import subprocess
import time

import pytest
import torch

from poslib import rotary
from poslib.lab import results
from poslib.lab import rotation_speed as S

TINY = (1, 4, 40, 32)


def draw(dtype, shape=TINY):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def rotary_with(layout, ids, x, *, other=False, inverse=False, back=0, table=lambda t: t):
    """Peers that are wrong in one way."""
    cos, sin = (table(t).to(t.dtype) for t in S._tables(ids - back, x))
    layout = {"half": "interleaved", "interleaved": "half"}[layout] if other else layout
    return lambda x: rotary.turn(x, cos, sin, layout=layout, inverse=inverse)


WRONG = {
    "other layout": {"other": True}, "inverse": {"inverse": True}, "one position off": {"back": 1},
    "tables in bfloat16": {"table": torch.Tensor.bfloat16}, "tables in float16": {"table": torch.Tensor.half},
}


@pytest.mark.parametrize("dtype, wrong, ulp", [(torch.float32, 0.45, 2.5), (torch.bfloat16, 0.001, 0.502)])
def test_the_error_column_notices_a_wrong_peer(monkeypatch, dtype, wrong, ulp):
    both = ("half", "interleaved")
    monkeypatch.setattr(S, "METHODS", {"poslib turn": (S._turn, both)} | {
        name: (lambda *given, how=how: rotary_with(*given, **how), both) for name, how in WRONG.items()})
    rows, missing = S.cell(TINY, dtype, 1, "kept", 0)
    rows = {(row["method"], row["layout"]): row for row in S.as_dicts(rows)}
    assert not missing and set(rows) == {("copy", "")} | {(name, layout) for name in ("poslib turn", *WRONG) for layout in both}
    for layout in both:
        ours = rows["poslib turn", layout]
        assert ours["wrong"] < wrong and ours["ulp"] < ulp
        for name in WRONG:
            peer = rows[name, layout]
            if (name, dtype) != ("tables in float16", torch.bfloat16):              # eleven bits: nearly enough
                assert peer["ulp"] > 1.15 * ours["ulp"]
            assert peer["wrong"] > ours["wrong"] + 0.02


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("dtype, bits", [(torch.float32, 24), (torch.bfloat16, 8)])
def test_errors_count_and_measure(layout, dtype, bits):
    x, ids = draw(dtype), torch.arange(40)
    right = S.exact(x, ids, layout).to(dtype)
    wrong, ulp = S.errors(right, x, ids, layout)
    assert wrong == 0 and 0.4 < ulp <= 0.5001                       # no tie among these numbers
    right[0, 1, 2, 3] += 7 * 2.0 ** (1 - bits) * float(right.abs().max())
    wrong, ulp = S.errors(right, x, ids, layout)
    assert wrong == 1 / right.numel() and 7 < ulp < 100


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_the_truth_is_the_turn(layout):
    x, ids = draw(torch.float64), torch.tensor([5, 2047] * 20)
    torch.testing.assert_close(S.exact(x, ids, layout), rotary.rotate(x, ids, layout=layout), rtol=0, atol=1e-11)


def test_every_installed_peer_turns_by_the_same_angles():
    rows, missing = S.cell(TINY, torch.float32, 1, "kept", 0)
    assert set(missing) <= {"transformers", "rotary-embedding-torch", "x-transformers", "torchtune"}
    rows = S.as_dicts(rows)
    assert {row["method"] for row in rows} == {"copy", *S.METHODS} - set(missing)
    for row in rows[1:]:
        assert row["ulp"] < (2.5 if row["method"].startswith(("poslib", "torch.onnx")) else 60) and row["wrong"] < 0.6
        assert 0 < row["forward low"] <= row["forward"] <= row["forward high"]
        assert (row["both"] is None) == (row["method"] in S.NO_GRADIENT)


def test_what_is_not_installed_is_left_out_by_name(monkeypatch):
    def missing(*_):
        raise ModuleNotFoundError("peer")
    monkeypatch.setattr(S, "METHODS", {"poslib turn": (S._turn, ("half",)), "peer": (missing, ("half", "interleaved"))})
    rows, names = S.cell(TINY, torch.float32, 1, "kept", 0)
    assert names == ["peer"] and [row[0] for row in rows] == ["copy", "poslib turn"]


def test_methods_take_turns():
    seen = []
    times = S.take_turns({"a": lambda: seen.append("a"), "b": lambda: seen.append(time.sleep(0.003) or "b")}, 0, 2, at_least=4)
    assert {name: len(found) for name, found in times.items()} == {"a": 4, "b": 4}
    order = "".join(c for i, c in enumerate(seen[4:]) if i == 0 or seen[3 + i] != c)            # repeats of short ones apart
    assert seen[:4] == ["a", "a", "b", "b"] and seen[4:].count("b") == 4 < seen[4:].count("a") and order == "ab" * 4 and all(min(t) > 0 for t in times.values())
    assert S.quartiles([0.003, 0.001, 0.002]) == [1.5, 2, 2.5] and S.quartiles([0.001]) == [1, 1, 1]


def test_the_command_measures_in_processes_with_either_allocator(monkeypatch, tmp_path, capsys):
    environments, start = [], subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *given, env, **named: environments.append(env) or start(*given, env=env, **named))
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1")
    S.main(["--seconds", "0", "--shape", "1,2,6,8", "--shape", "1,2,1,8", "--json", str(tmp_path / "found.json"), "--note", "a test ran"])
    kept, default = environments
    assert kept.items() >= S.KEPT.items() and not set(S.KEPT) & set(default)
    found = json.loads((tmp_path / "found.json").read_text("utf8"))
    assert tuple(found["columns"]) == S.COLUMNS and {"command", "torch", "machine"} <= set(found["made"]) and found["made"]["note"] == "a test ran"
    cells = [key for key, _, _ in S.cells_of(found["rows"])]
    assert cells == [(shape, dtype, threads, "kept") for shape in ("1x2x6x8", "1x2x1x8") for dtype in ("float32", "bfloat16") for threads in (1, 2)] + \
        [("1x2x6x8", dtype, 1, "default") for dtype in ("float32", "bfloat16")]
    said = capsys.readouterr().out
    assert said.count("poslib rotate, out=") == 2 * len(cells) and "copies: MISSED" in said and "wrote found.json" in said


def made_up(method, forward, both, wrong, ulp, dtype="float32", layout="half"):
    return [method, layout, "1x2x3x4", dtype, 1, "kept", forward, forward, forward, both, both, both, wrong, ulp]


def test_goals_are_judged_beside_the_fastest_peer_that_is_as_exact():
    rows = [["copy", "", "1x2x3x4", "float32", 1, "kept", 1.0, 1.0, 1.0, None, None, None, None, None]]
    for layout, fast in (("half", 2.0), ("interleaved", 3.0)):
        rows += [made_up("poslib turn", 2.5, 9.0, 0.4, 1.5, layout=layout), made_up("poslib turn, out=", fast + 0.5, None, 0.4, 1.5, layout=layout),
                 made_up("quick and wrong", 1.0, 4.0, 0.4, 1.6, layout=layout), made_up("exact", fast, None, 0.4, 1.5, layout=layout),
                 made_up("exact and slow", 7.0, None, 0.3, 1.0, layout=layout)]
    assert [line.split(", ", 2)[2] for line in S.verdicts(rows)] == [
        "half, forward: 1.25 times exact: MISSED", "half, forward+backward: 2.25 times quick and wrong: no peer is as exact", "half, out=: 2.5 copies: met",
        "interleaved, forward: 0.83 times exact: met", "interleaved, forward+backward: 2.25 times quick and wrong: no peer is as exact",
        "interleaved, out=: 3.5 copies: MISSED"]
    assert len(S.table(rows)) == 1 + len(rows) and all(text in S.table(rows)[-1] for text in ("30.00%", "7 (7 to 7)     7.0"))


def test_the_stored_numbers_have_every_method_and_our_errors():
    found = results.load("rotation_speed")
    rows = S.as_dicts(found["rows"])
    assert {row["method"] for row in rows} == {"copy", *S.METHODS} and len(rows) == 10 * (1 + sum(len(layouts) for _, layouts in S.METHODS.values()))
    for row in rows:
        if row["method"].startswith("poslib"):
            assert row["ulp"] < (2.5 if row["dtype"] == "float32" else 0.502) and row["wrong"] < (0.45 if row["dtype"] == "float32" else 0.001)
