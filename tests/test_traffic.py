"""The counter of real torch code on operations counted by hand; the formulas of poslib.cost against it; the reader's processor."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F

from poslib import attention, cost, relative, rotary
from poslib.cost import Attention, Cost
from poslib.lab import machine, traffic

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "fp64": torch.float64}
# batch, heads, kv_heads, queries, head_dim, channels that turn: MHA, GQA, MQA, odd lengths, partial widths
SHAPES = [(1, 4, 4, 7, 8, 8), (2, 6, 2, 5, 16, 16), (2, 6, 2, 5, 16, 4), (1, 3, 1, 1, 10, 6), (3, 2, 1, 9, 6, 2)]


def draw(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def layer(shape, dtype, **more):
    batch, heads, groups, queries, width, _ = shape
    a = Attention(batch=batch, heads=heads, kv_heads=groups, head_dim=width, queries=queries, dtype=dtype, **more)
    return a, draw(batch, heads, queries, width, dtype=DTYPES[dtype]), draw(batch, groups, a.keys, width, dtype=DTYPES[dtype])


# ---- the counter ----

X, ROW, IDS = draw(6, 8), draw(8), torch.tensor([1, 1, 3])
B = 6 * 8 * 4
BY_HAND = {  # what is run: bytes read, written, kernels, FLOPs
    "sum of two": (lambda: X + X.clone(), 3 * B, 2 * B, 2, 48),
    "the same twice is read once": (lambda: X * X, B, B, 1, 48),
    "number": (lambda: X * 2.0, B, B, 1, 48),
    "a row is broadcast": (lambda: X + ROW, B + 32, B, 1, 48),
    "an expanded row is still a row": (lambda: X + ROW.expand(6, 8), B + 32, B, 1, 48),
    "an expanded row made whole": (lambda: ROW.expand(6, 8).contiguous(), 32, B, 1, 0),
    "a row and itself expanded": (lambda: ROW + ROW.expand(6, 8), 32, B, 1, 48),
    "every other column, expanded": (lambda: X[:, ::2].expand(5, 6, 4).clone(), B // 2, 5 * B // 2, 1, 0),
    "in place, returning nothing": (lambda: torch._foreach_mul_([X.clone(), ROW.clone()], 2.0), 2 * B + 64, 2 * B + 64, 3, 0),
    "windows overlap": (lambda: torch.arange(10.0).unfold(0, 4, 1).clone(), 40, 40 + 7 * 4 * 4, 2, 0),
    "views": (lambda: (X.view(8, 6).T[1:, None], X.reshape(2, 3, 8), X.chunk(2, 0), X[2], X.detach(), X.unflatten(1, (2, 4)).mT), 0, 0, 0, 0),
    "a view is read in part": (lambda: X[:, :4].neg(), B // 2, B // 2, 1, 0),
    "reshape that copies": (lambda: X.T.reshape(48), B, B, 1, 0),
    "no place yet": (lambda: (torch.empty(5, 5), torch.empty_like(X), X.new_empty(3)), 0, 0, 0, 0),
    "zeros": (lambda: torch.zeros(5, 5), 0, 100, 1, 0),
    "in place": (lambda: X.clone().mul_(3).add_(ROW), 3 * B + 32, 3 * B, 3, 96),
    "in place with itself": (lambda: X.clone().mul_(X), 2 * B + B, 2 * B, 2, 48),
    "fused in place": (lambda: X.clone().addcmul_(X, ROW, value=-1), 3 * B + 32, 2 * B, 2, 96),
    "copied over": (lambda: torch.empty_like(X).copy_(X), B, B, 1, 0),
    "a row copied over all": (lambda: torch.empty_like(X).copy_(ROW), 32, B, 1, 0),
    "part copied over": (lambda: torch.empty_like(X)[:, 2:4].copy_(X[:, :2]), B // 4, B // 4, 1, 0),
    "filled": (lambda: (torch.empty_like(X).fill_(3), torch.empty_like(X).zero_()), 0, 2 * B, 2, 0),
    "out is not read": (lambda: torch.mul(X, ROW, out=torch.empty_like(X)), B + 32, B, 1, 48),
    "out of a product": (lambda: torch.mm(X, X.T, out=torch.empty(6, 6)), B, 144, 1, 2 * 6 * 6 * 8),
    "cast": (lambda: X.bfloat16(), B, B // 2, 1, 0),
    "cast to itself": (lambda: X.float(), 0, 0, 0, 0),
    "cat": (lambda: torch.cat((X, X[:2], ROW[None])), B + 64 + 32, 9 * 32, 1, 0),
    "stack of one": (lambda: torch.stack((ROW, ROW)), 32, 64, 1, 0),
    "lookup": (lambda: F.embedding(IDS, X), 24 + 96, 96, 1, 0),
    "lookup by index": (lambda: X[IDS], 24 + 96, 96, 1, 0),
    "index_select": (lambda: X.index_select(1, IDS), 24 + 72, 72, 1, 0),
    "gather": (lambda: X.gather(1, IDS[None]), 24 + 12, 12, 1, 0),
    "store by index": (lambda: torch.empty_like(X).index_put_((IDS,), X[:3]), 24 + 96, 96, 1, 0),
    "store rows": (lambda: torch.empty_like(X).index_copy_(0, IDS, X[:3]), 24 + 96, 96, 1, 0),
    "complex product": (lambda: torch.view_as_complex(X.view(6, 4, 2)) * torch.view_as_complex(ROW.view(4, 2)), B + 32, B, 1, 24 * 6),
    "complex sum": (lambda: torch.view_as_complex(X.view(6, 4, 2)) + torch.view_as_complex(ROW.view(4, 2)), B + 32, B, 1, 48),
    "product of matrices": (lambda: X @ ROW[:, None].expand(8, 3), B + 32, 6 * 3 * 4, 1, 2 * 6 * 8 * 3),
    "softmax has no flops here": (lambda: X.softmax(-1), B, B, 1, 0),
    "whole numbers have no flops": (lambda: IDS + IDS, 24, 24, 1, 0),
    "nothing": (lambda: X[:0] + X[:0], 0, 0, 1, 0),
    "zeros and a copy": (lambda: torch.ops.aten.slice_backward(X, [6, 10], 1, 0, 8, 1), B, 240 + B, 2, 0),
}


@pytest.mark.parametrize("what", BY_HAND)
def test_operations_counted_by_hand(what):
    call, *want = BY_HAND[what]
    got = traffic.count(call)
    assert [got.read, got.written, got.kernels, got.flops] == want, got.operations
    assert got.cost == Cost(got.read, got.written, got.flops, got.kernels)
    assert sum(k for k, _, _ in got.by_operation.values()) == got.kernels == sum(row[1] for row in got.operations)


def test_a_fused_attention_is_one_kernel_of_the_ideal_traffic():
    for causal in (True, False):
        a, q, k = layer((2, 4, 4, 64, 32, 32), "fp32", causal=causal)
        got = traffic.count(lambda: F.scaled_dot_product_attention(q, k, k.clone(), is_causal=causal))
        clone, (name, kernels, read, written) = got.operations
        logsumexp = 2 * 4 * 64 * 4                                      # kept for the gradient
        assert "flash" in name and kernels == 1 and (read, written) == (cost.attention(a).read, cost.attention(a).written + logsumexp)
        assert got.flops == cost.attention(dataclasses.replace(a, causal=False)).flops       # torch's count knows no mask


def test_tensors_without_data_are_counted_at_any_size():
    def rotated(device, n):
        x = torch.empty(1, 4, n, 64, dtype=torch.bfloat16, device=device)
        tables = traffic.tables(n, 64, "rotate_half", x.dtype, device=device)
        return traffic.count(traffic.rotate, x, tables, "rotate_half")
    assert dataclasses.replace(rotated("meta", 8)) == rotated("cpu", 8)
    a = Attention(heads=4, head_dim=64, queries=131072)
    assert rotated("meta", a.queries).cost == cost.rotation(a, "rotate_half", parts="q")


def test_what_ran_is_named_in_order():
    got = traffic.count(traffic.rotate, draw(1, 2, 3, 4), traffic.tables(3, 4, "rotate_half", torch.float32), "rotate_half")
    assert [row[0] for row in got.operations] == ["mul", "neg", "cat", "mul", "add"] and got.by_operation["mul"] == (2, 2 * (96 + 48), 192)


# ---- the formulas ----

@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("way", traffic.ROTATIONS)
def test_eager_rotations_move_what_the_formulas_say(way, shape, dtype):
    a, q, k = layer(shape, dtype)
    width = shape[-1]
    table = traffic.tables(a.queries, width, way, DTYPES[dtype])
    outs = torch.empty_like(q), torch.empty_like(k)
    for parts in ("qk", "q", "k"):
        got = traffic.count(lambda: [traffic.rotate(x, table, way, width=width, out=out) for x, out, part in zip((q, k), outs, "qk") if part in parts])
        assert got.cost == cost.rotation(a, way, parts=parts, width=width), got.operations


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("way", traffic.ROTATIONS)
def test_eager_rotations_rotate(way, shape):
    _, q, _ = layer(shape, "fp32")
    width, ids = shape[-1], torch.arange(shape[3])
    want = rotary.rotate(q, ids, layout="interleaved" if way == "complex" else "half", width=width)
    x = q.clone()
    got = traffic.rotate(x, traffic.tables(shape[3], width, way, torch.float32), way, width=width)
    torch.testing.assert_close(got, want, rtol=0, atol=2e-6)
    assert (got is x) == (way == "in_place") and (way == "in_place" or torch.equal(x, q))


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("shape", [s for s in SHAPES if s[4] == s[5]], ids=str)
@pytest.mark.parametrize("way", ["rotate_half", "split_cat"])
def test_their_gradients_move_what_the_formulas_say(way, shape, dtype):
    a, q, k = layer(shape, dtype)
    table = traffic.tables(a.queries, a.head_dim, way, DTYPES[dtype])
    total = Cost()
    for x in (q, k):
        x.requires_grad_()
        y = traffic.rotate(x, table, way)
        got = traffic.count(torch.autograd.grad, y, x, torch.ones_like(y))
        total += got.cost
    assert total == cost.rotation_backward(a, way) and got.kernels == {"rotate_half": 9, "split_cat": 8}[way]


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp64"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_eager_attention_moves_what_the_formula_says(shape, causal, dtype):
    a, q, k = layer(shape, dtype, causal=causal, keys=shape[3] + 3)
    mask = torch.full((a.queries, a.keys), -torch.inf, dtype=DTYPES[dtype]).triu(1 + a.keys - a.queries) if causal else None
    v = k.flip(-1)
    got = traffic.count(traffic.attend, q, k, v, mask)
    assert got.cost == cost.attention(a, "eager"), got.operations
    if dtype == "fp64":
        group = a.heads // a.kv_heads
        seen = torch.arange(a.keys) <= torch.arange(a.queries)[:, None] + a.keys - a.queries
        want = attention.attention(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), mask=seen if causal else None)[0]
        torch.testing.assert_close(traffic.attend(q, k, v, mask), want)


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp64"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_relative_terms_move_what_the_formulas_say(shape, dtype):
    a, q, _ = layer((shape[0], shape[1], shape[1], *shape[3:]), dtype, causal=False)
    n, table = a.queries, draw(2 * shape[3] - 1, a.head_dim, dtype=DTYPES[dtype])
    ids = torch.arange(n)
    lags = ids[:, None] - ids
    read_by_attention = Cost(a.batch * a.heads * a.pairs * a.size, 0, a.batch * a.heads * a.pairs)
    stored = traffic.count(traffic.stored_vectors, q, table, n - 1 - lags)
    skewed = traffic.count(traffic.skewed, q, table)
    assert stored.cost + read_by_attention == cost.lag_vectors(a, "stored", shared=True), stored.operations
    assert skewed.cost + read_by_attention == cost.lag_vectors(a, "skewed", shared=True), skewed.operations
    if dtype == "fp64":                                                 # rows of Shaw's table go by j - i, from -clip on
        want = relative.shaw_scores(q, table, ids, ids, scale=1.0) if n > 1 else q @ table.mT
        torch.testing.assert_close(traffic.stored_vectors(q, table, n - 1 - lags), want)
        torch.testing.assert_close(traffic.skewed(q, table), want)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_absolute_vectors_move_what_the_formula_says(dtype):
    a = Attention(heads=3, head_dim=4, queries=5, batch=2, dtype=dtype)
    x, table, ids = draw(2, 5, 12, dtype=DTYPES[dtype]), draw(9, 12, dtype=DTYPES[dtype]), torch.arange(5)
    assert traffic.count(lambda: x + table[:5]).cost == cost.absolute(a)
    assert traffic.count(lambda: x + F.embedding(ids, table)).cost == cost.absolute(a, "gather")


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_stored_bias_and_a_step_of_decoding_move_what_the_formulas_say(dtype):
    a = Attention(heads=4, head_dim=64, queries=8, batch=2, causal=False, dtype=dtype)
    q, k, v = (draw(2, 4, 8, 64, dtype=DTYPES[dtype]) for _ in "qkv")
    k, v, bias = k + 1, v + 2, draw(1, 4, 8, 8, dtype=DTYPES[dtype]).expand(2, 4, 8, 8)
    plain, biased = (traffic.count(lambda b=b: F.scaled_dot_product_attention(q, k, v, attn_mask=b)) for b in (None, bias.contiguous()))
    assert biased.read - plain.read == cost.scalar_bias(a, "stored", dtype=dtype).read

    step = Attention(heads=4, kv_heads=4, head_dim=64, queries=1, keys=8, batch=2, dtype=dtype)
    cache = [torch.zeros(2, 4, 12, 64, dtype=DTYPES[dtype]) for _ in "kv"]
    new = [draw(2, 4, 1, 64, dtype=DTYPES[dtype]) + i for i in (1, 2)]
    def decode():
        for held, x in zip(cache, new):
            held[:, :, 7:8].copy_(x)
        F.scaled_dot_product_attention(q[:, :, :1], cache[0][:, :, :8], cache[1][:, :, :8])
    got, want = traffic.count(decode), cost.decode(step, "none")
    assert got.read == want.read and got.written - want.written == 2 * 4 * 4       # logsumexp in float32
    assert got.flops == want.flops and got.kernels == want.launches + 1          # keys and values here by two kernels


def test_unknown_ways_are_refused():
    with pytest.raises(ValueError, match="way is 'fused'; allowed are 'rotate_half', 'float'"):
        traffic.rotate(draw(1, 1, 2, 2), None, "fused")
    with pytest.raises(ValueError, match=r"dtypes is \('int8',\); allowed are 'fp64', 'fp32'"):
        machine.measure(dtypes=("int8",))


# ---- the reader's processor ----

def test_the_processor_is_measured_soon_and_plausibly(monkeypatch):
    asked, best = [], machine.best
    monkeypatch.setattr(machine, "best", lambda call, seconds: asked.append(seconds) or best(call, seconds / 10))
    device = machine.measure(megabytes=64)
    assert len(asked) == 3 and sum(asked) <= 1                                   # and as long again for making the arrays
    assert 1e8 < device.bandwidth < 2e12 and all(1e8 < rate < 1e14 for rate in device.flops.values()) and set(device.flops) == {"fp32", "bf16"}
    assert device.memory > 2**28 and f"{torch.get_num_threads()} thread" in device.name
    assert cost.roofline(Cost(read=int(device.bandwidth)), device, "fp32").seconds == pytest.approx(1)


def test_copies_are_counted_twice_and_products_by_their_flops(monkeypatch):
    monkeypatch.setattr(machine, "best", lambda call, seconds: call() is None or 0.5)
    assert machine.copying(megabytes=3) == 2 * 3 * 2**20 / 0.5 and machine.multiplying(torch.float32, size=10) == 2 * 10**3 / 0.5


def test_the_best_of_several_is_taken(monkeypatch):
    clock = iter([0, 0, 9, 10, 12, 13, 20, 25, 26])                              # end at 24; takes of 9, 2 and 5; looks at 13 and 26
    monkeypatch.setattr(machine.time, "perf_counter", lambda: next(clock))
    calls = []
    assert machine.best(lambda: calls.append(1), seconds=24) == 2 and len(calls) == 4


def test_the_largest_cache_that_linux_lists(tmp_path):
    for index, text in enumerate(("48K\n", "2M\n", "1G\n")):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(text)
    assert machine.last_cache(tmp_path) == 2**30 and machine.last_cache(tmp_path / "nowhere") >= 0
