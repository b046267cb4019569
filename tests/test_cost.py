"""poslib.cost against counts pair by pair, walks through a cache, numbers of the papers, and every error."""

import dataclasses
import itertools
import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from conftest import bad_input_test
from poslib import cost as C
from poslib.cost import Attention, Cost

quick = settings(max_examples=80, deadline=None)
GIB = 2**30
SIZE = {"fp64": 8, "fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}
side = st.integers(1, 9)


@st.composite
def layers(draw, square=False):
    groups, per_group, queries = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 24))
    causal = draw(st.booleans())
    keys = queries if square else queries + draw(st.integers(0 if causal else 1 - queries, 20))
    return Attention(heads=groups * per_group, kv_heads=groups, head_dim=2 * draw(st.integers(1, 4)), queries=queries, keys=keys,
                     batch=draw(st.integers(1, 3)), causal=causal, dtype=draw(st.sampled_from(sorted(SIZE))))


def seen(a):
    """Pairs (i, j) of one head; the queries are the last places."""
    before = a.keys - a.queries
    return [(before + q, j) for q in range(a.queries) for j in range(a.keys) if not a.causal or j <= before + q]


def blocks(a, tile):
    """The pairs of each tile that has some, tile by tile in a row, row by row."""
    before = a.keys - a.queries
    found = {}
    for i, j in seen(a):
        found.setdefault((i - before) // tile[0], {}).setdefault(j // tile[1], []).append((i, j))
    return [[row[column] for column in sorted(row)] for _, row in sorted(found.items())]


# ---- sizes ----

@quick
@given(layers())
def test_sizes_of_a_layer_by_counting(a):
    pairs = seen(a)
    assert a.pairs == len(pairs) and a.lags == len({i - j for i, j in pairs}) and a.size == SIZE[a.dtype]
    assert a.q_bytes == len(list(itertools.product(*map(range, (a.batch, a.heads, a.queries, a.head_dim))))) * a.size
    assert a.k_bytes == sum(a.size for _ in itertools.product(*map(range, (a.batch, a.kv_heads, a.keys, a.head_dim))))
    assert a.score_bytes == a.batch * a.heads * a.queries * a.keys * SIZE[a.dtype]


def test_defaults_are_plain_causal_attention():
    a = Attention(heads=4, head_dim=8, queries=10)
    assert (a.keys, a.kv_heads, a.batch, a.causal, a.dtype) == (10, 4, 1, True, "bf16")
    assert dataclasses.replace(a, dtype="fp32").size == 4 and hash(a) == hash(dataclasses.replace(a))


# ---- costs, devices, time ----

def test_costs_add_and_repeat():
    a, b = Cost(1, 2, 3, 4), Cost(10, 20, 30, 40)
    assert a + b == Cost(11, 22, 33, 44) == sum([a, b]) and 3 * a == a * 3 == a + a + a and 0 * a == Cost()
    assert a.bytes == 3 and a.intensity == 1 and Cost(flops=1).intensity == math.inf and Cost(launches=1).intensity == 0
    with pytest.raises(TypeError):
        a + 1
    with pytest.raises(TypeError):
        sum([a], start=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        a.read = 7


TOY = C.Device("toy", bandwidth=100.0, flops={"fp32": 1000.0, "bf16": 4000.0}, cache=10, memory=1000, source="made up")


@pytest.mark.parametrize("work, dtype, launch, seconds, bound", [
    (Cost(150, 50, 1000), "fp32", 0, 2, "memory"), (Cost(150, 50, 3000), "fp32", 0, 3, "compute"),
    (Cost(150, 50, 3000), "bf16", 0, 2, "memory"), (Cost(150, 50, 1000, 5), "fp32", 1, 7, "launch"),
    (Cost(150, 50, 1000, 1), "fp32", 1, 3, "memory"), (Cost(), "fp32", 1, 0, "memory"),
])
def test_the_roofline_is_the_longer_of_loading_and_computing(work, dtype, launch, seconds, bound):
    t = C.roofline(work, TOY, dtype, launch=launch)
    assert (t.seconds, t.bound) == (seconds, bound) and t.seconds == max(t.memory, t.compute) + t.launch


@quick
@given(st.builds(Cost, *[st.integers(0, 10**12)] * 3, st.integers(0, 100)), st.builds(Cost, *[st.integers(0, 10**12)] * 3, st.integers(0, 100)),
       st.sampled_from(sorted(C.DEVICES)), st.floats(0, 1e-5))
def test_more_work_takes_longer_and_parts_one_after_the_other_not_less(a, b, name, launch):
    def time(work):
        return C.roofline(work, C.DEVICES[name], launch=launch).seconds
    assert max(time(a), time(b)) * (1 - 1e-12) <= time(a + b) <= (time(a) + time(b)) * (1 + 1e-12)


@quick
@given(st.integers(1, 10**9), st.integers(1, 10**15), st.sampled_from(sorted(C.DEVICES)))
def test_the_ridge_parts_memory_from_compute(moved, flops, name):
    device = C.DEVICES[name]
    work = Cost(moved, 0, flops)
    assume(abs(work.intensity / device.ridge("bf16") - 1) > 1e-9)
    assert C.roofline(work, device).bound == ("compute" if work.intensity > device.ridge("bf16") else "memory")


def test_devices_hold_dense_numbers_of_one_generation():
    d = C.DEVICES
    assert list(d) == ["A100", "H100", "H200", "MI300X"] and all(x.source and x.memory >= 80e9 for x in d.values())
    for device in d.values():
        rate = device.flops
        assert rate["bf16"] == rate["fp16"] > rate["tf32"] > rate["fp32"]
        assert abs(rate["bf16"] / rate["tf32"] - 2) < 1e-3 and ("fp8" not in rate or abs(rate["fp8"] / rate["bf16"] - 2) < 1e-3)
    assert d["H100"].flops == d["H200"].flops and d["H200"].bandwidth / d["H100"].bandwidth == pytest.approx(1.43, abs=0.005)
    assert [round(d[n].ridge()) for n in d] == [153, 295, 206, 247]
    half = d["H100"].at(bandwidth=0.5, flops=0.25)
    assert half.bandwidth == 1.675e12 and half.flops["bf16"] == 989.4e12 / 4 and half.cache == d["H100"].cache


# ---- attention ----

@quick
@given(layers())
def test_fused_attention_by_counting(a):
    rows, d = a.batch * a.heads, a.head_dim
    flops = sum(2 * d + 2 * d for _ in seen(a)) * rows             # q·k, and a weight times v added
    want = Cost((rows * a.queries + 2 * a.batch * a.kv_heads * a.keys) * d * a.size, rows * a.queries * d * a.size, flops, 1)
    assert C.attention(a) == C.attention(a, "fused") == want
    eager = C.attention(a, "eager")
    assert eager.flops >= want.flops and eager.launches == 4 + a.causal
    assert eager.bytes >= C.attention(a).bytes + 6 * a.score_bytes


@quick
@given(layers(), st.integers(1, 8), st.integers(0, 4))
def test_latent_attention_by_counting(a, latent, rotary):
    rows, pairs = a.batch * a.heads, len(seen(a))
    absorbed = C.latent_attention(a, latent=latent, rotary=rotary)
    per_pair = 2 * (latent + rotary) + 2 * latent
    assert absorbed == Cost((rows * a.queries * (latent + rotary) + a.batch * a.keys * (latent + rotary)) * a.size,
                            rows * a.queries * latent * a.size, rows * pairs * per_pair, 1)
    expanded = C.latent_attention(a, latent=latent, rotary=rotary, absorbed=False)
    keys_made = rows * a.keys * a.head_dim * 2 * latent
    assert expanded.flops == rows * pairs * (2 * (a.head_dim + rotary) + 2 * latent) + keys_made
    assert expanded.written == absorbed.written
    assert expanded.read == (rows * a.queries * (a.head_dim + rotary) + a.batch * a.keys * (latent + rotary) + a.heads * latent * a.head_dim) * a.size


def test_latent_attention_reads_the_cache_once_for_all_heads():
    a = Attention(heads=128, head_dim=128, queries=1, keys=4096)
    cached = C.cache_bytes(C.cache_numbers("mla", latent=512, rotary=64), tokens=4096)
    assert cached < C.latent_attention(a, latent=512, rotary=64).read < 1.04 * cached
    assert C.latent_attention(a, latent=512, rotary=64).intensity > 100 * C.attention(a).intensity


# ---- absolute and scalar ----

@quick
@given(layers())
def test_scalar_biases_by_counting(a):
    rows, pairs = a.batch * a.heads, len(seen(a))
    lags = len({i - j for i, j in seen(a)})
    assert C.scalar_bias(a, "slope") == Cost(4 * a.heads, 0, 2 * rows * pairs)
    assert C.scalar_bias(a) == Cost(4 * a.heads * lags, 0, rows * pairs)
    assert C.scalar_bias(a, "stored", dtype="fp16") == Cost(2 * rows * pairs, 0, rows * pairs)
    built = C.scalar_bias(a, "built", dtype="fp16")
    assert built == C.scalar_bias(a, "stored", dtype="fp16") + Cost(2 * a.heads * lags, 2 * a.heads * a.queries * a.keys, 0, 1)
    x = a.batch * a.queries * a.heads * a.head_dim
    assert C.absolute(a) == Cost((x + x // a.batch) * a.size, x * a.size, x, 1)
    assert C.absolute(a, "gather") == C.absolute(a) + Cost(x // a.batch * a.size + 8 * a.queries, x // a.batch * a.size, 0, 1)


# ---- vectors for lags ----

@quick
@given(layers(), side, side)
def test_walks_visit_the_pairs_and_lags_of_each_tile(a, high, wide):
    def walk(way):
        return list(C.walk(a.queries, a.keys, way=way, tile=(high, wide), causal=a.causal))
    rows = blocks(a, (high, wide))
    assert walk("naive") == [i - j for i, j in seen(a)]
    assert walk("blocked") == [i - j for row in rows for tile in row for i, j in tile]
    assert walk("tiled") == [lag for row in rows for tile in row for lag in sorted({i - j for i, j in tile})]
    banded = []
    for row in rows:
        held = set()
        for tile in row:
            lags = {i - j for i, j in tile}
            banded += sorted(lags - held)
            held = lags
    assert walk("banded") == banded


@quick
@given(layers(), side, side, st.sampled_from([None, "fp32", "bf16"]))
def test_lag_vectors_by_counting(a, high, wide, dtype):
    row = a.head_dim * SIZE[dtype or a.dtype]
    rows, flops = a.batch * a.heads, (2 * a.head_dim + 1) * a.batch * a.heads * len(seen(a))
    for way in ("naive", "tiled", "banded"):
        loads = len(list(C.walk(a.queries, a.keys, way=way, tile=(high, wide), causal=a.causal)))
        assert C.lag_vectors(a, way, tile=(high, wide), dtype=dtype) == Cost(rows * loads * row, 0, flops, 0)
    lags = len({i - j for i, j in seen(a)})
    assert C.lag_vectors(a, "cached", dtype=dtype) == Cost(a.heads * lags * row, 0, flops)
    assert C.lag_vectors(a, "cached", shared=True, dtype=dtype) == Cost(lags * row, 0, flops)


@quick
@given(layers(), st.integers(0, 30), side)
def test_clipped_rows_are_multiplied_once_for_each_query(a, clip, high):
    distinct = len({max(-clip, min(clip, lag)) for lag in range(0 if a.causal else -10**3, 10**3)})
    c = C.lag_vectors(a, "clipped", clip=clip, tile=(high, 1))
    rows = min(distinct, a.lags)
    groups = len({q // high for q in range(a.queries)})
    assert c.read == a.batch * a.heads * groups * rows * a.head_dim * a.size and c.written == c.launches == 0
    assert c.flops == a.batch * a.heads * (a.queries * rows * 2 * a.head_dim + len(seen(a)))


@quick
@given(layers(), side, side)
def test_better_walks_load_less(a, high, wide):
    loads = [C.lag_vectors(a, way, tile=(high, wide)).read for way in ("naive", "tiled", "banded")]
    loads.append(C.lag_vectors(a, "cached").read)
    assert loads[0] >= loads[1] >= loads[2] and a.batch * loads[2] >= loads[2] >= loads[3]
    assert C.lag_vectors(a, "tiled", tile=(1, 1)) == C.lag_vectors(a, "naive")
    assert C.lag_vectors(a, "tiled", tile=(10**3, 10**3)).read == a.batch * loads[3]
    assert C.relative_memory(a, "rows") == loads[3] and C.relative_memory(a, "number") * a.head_dim == loads[3]
    assert C.relative_memory(a, "vectors") == a.head_dim * C.relative_memory(a, "numbers") == a.head_dim * a.score_bytes // a.batch


@given(st.integers(1, 20), st.integers(1, 5), st.integers(1, 5))
def test_a_tile_has_one_lag_less_than_its_sides(n, high, wide):                # lemma 10.1
    assert len({i - j for i in range(n, n + high) for j in range(wide)}) == high + wide - 1
    whole = Attention(heads=1, head_dim=1, queries=high * n, keys=wide * n, causal=False, dtype="fp8")
    assert C.lag_vectors(whole, "tiled", tile=(high, wide)).read == n * n * (high + wide - 1)


def test_the_skewed_product_does_twice_the_needed_work():
    for causal in (True, False):
        a = Attention(heads=1, head_dim=64, queries=4096, causal=causal)
        extra = C.lag_vectors(a, "skewed").flops / C.lag_vectors(a, "naive").flops
        assert 1.98 < extra < 2.01
        assert C.lag_vectors(a, "stored").bytes > 60 * C.lag_vectors(a, "skewed").bytes / 2


def test_intensity_of_the_relative_term_is_the_height_of_the_tile():            # lemma 10.3
    for causal, high in itertools.product((True, False), (16, 128)):
        a = Attention(heads=1, head_dim=128, queries=16384, causal=causal)
        c = C.lag_vectors(a, "banded", tile=(high, 128))
        assert c.intensity == pytest.approx(high, rel=0.02)
        assert C.lag_vectors(a, "naive").intensity == pytest.approx(1, rel=0.01)
        assert c.intensity < C.DEVICES["H100"].ridge("bf16") < C.lag_vectors(a, "banded", tile=(384, 128)).intensity


# ---- the cache simulator ----

def misses_by_distance(trace, room):
    """LRU keeps a line exactly while fewer than `room` others were used since."""
    last, count = {}, 0
    for now, name in enumerate(trace):
        between = set(trace[last[name] + 1:now]) if name in last else None
        count += between is None or len(between) >= room
        last[name] = now
    return count


@quick
@given(st.lists(st.integers(0, 8), max_size=40), st.integers(0, 60), st.integers(1, 7))
def test_the_simulator_by_distances_of_reuse(trace, capacity, line):
    got = C.simulate(iter(trace), capacity, line)
    assert got == C.Traffic(len(trace), got.misses, line * got.misses) and got.misses == misses_by_distance(trace, capacity // line)


@quick
@given(st.lists(st.integers(0, 8), max_size=40), st.integers(0, 9))
def test_a_larger_cache_never_misses_more(trace, room):
    assert C.simulate(trace, room + 1).misses <= C.simulate(trace, room).misses <= len(trace)
    assert C.simulate(trace, 9).misses == len(set(trace)) and C.simulate(trace, 0).misses == len(trace)


@pytest.mark.parametrize("n", [8, 33])
def test_naive_loads_are_what_a_cache_of_less_than_the_table_makes_of_rows(n):
    a = Attention(heads=1, head_dim=2, queries=n, causal=False)
    def loaded(room):
        return C.simulate(C.walk(n, way="naive", causal=False), 4 * room, line=4).bytes
    assert loaded(1) == loaded(n) == C.lag_vectors(a, "naive").read            # the least recent lag is always the next one needed
    assert loaded(n + 1) == C.lag_vectors(a, "cached").read
    back_and_forth = [i - j for i in range(n) for j in (range(n) if i % 2 else reversed(range(n)))]
    assert C.simulate(back_and_forth, n // 2).misses < 0.7 * n * n             # so the naive count is no law: the order decides


@pytest.mark.parametrize("n, room", [(16, 5), (40, 39), (40, 1), (40, 40)])
def test_under_the_causal_mask_short_rows_stay_in_the_cache(n, room):
    got = C.simulate(C.walk(n, way="naive"), room).misses
    assert got == room + sum(i + 1 for i in range(room, n))
    assert got <= C.lag_vectors(Attention(heads=1, head_dim=1, queries=n, dtype="fp8"), "naive").read


@pytest.mark.parametrize("n, high, wide", [(48, 8, 8), (48, 8, 4), (48, 4, 8), (60, 5, 6), (64, 2, 8)])
def test_tiled_and_banded_loads_are_steps_of_a_cache(n, high, wide):
    a = Attention(heads=1, head_dim=3, queries=n, causal=False, dtype="fp8")
    def loaded(room):
        return C.simulate(C.walk(n, way="blocked", tile=(high, wide), causal=False), 3 * room, line=3).bytes
    tiled, banded = (C.lag_vectors(a, way, tile=(high, wide)).read for way in ("tiled", "banded"))
    assert banded < tiled
    assert loaded(high + wide - 2) >= loaded(high + wide - 1) == tiled         # it holds a tile, but throws out what the next one needs
    assert loaded(high + 2 * wide - 2) == tiled and loaded(high + 2 * wide - 1) == banded
    assert loaded(n - 1) == banded and loaded(2 * high + n - 1) == C.lag_vectors(a, "cached").read


@quick
@given(layers(square=True), st.integers(2, 6), st.integers(2, 6))
def test_a_cache_is_never_worse_than_tiles_that_forget(a, high, wide):
    def lru(room):
        return C.simulate(C.walk(a.queries, way="blocked", tile=(high, wide), causal=a.causal), room).misses
    row = a.batch * a.heads * a.head_dim * a.size
    assert lru(high + wide - 1) * row <= C.lag_vectors(a, "tiled", tile=(high, wide)).read
    assert lru(high + 2 * wide - 1) * row <= C.lag_vectors(a, "banded", tile=(high, wide)).read
    assert lru(0) == a.pairs and lru(10**4) == a.lags


# ---- numbers of the texts ----

def test_h29_the_traffic_of_the_table_and_what_undoes_it():
    n, width = 131072, 2048
    steps = C.relative_steps()
    assert [s.name for s in steps] == ["as written", "read only", "tiles", "bands", "causal", "cached", "scalars"]
    by = {s.name: s.bytes for s in steps}
    assert by["as written"] == n * n * width * 2 * 2 == 131072 * GIB and by["read only"] == 65536 * GIB and by["tiles"] == 1020 * GIB
    assert by["bands"] == (n + 1024 * (n - 1)) * width * 2                      # 512 GiB and the first 128 rows of each row of tiles
    assert 512 < by["bands"] / GIB < 512.5 and by["causal"] == 128 * 1024 * 1025 // 2 * width * 2 and by["causal"] == 256.25 * GIB
    assert by["cached"] == n * width * 2 == GIB // 2 and by["scalars"] == 16 * n * 4 == 8 * 2**20
    assert steps[0].factor == 1 and math.prod(s.factor for s in steps) == pytest.approx(by["as written"] / by["scalars"])
    assert [round(s.factor, 2) for s in steps[1:4]] == [2, 64.25, 1.99]
    for step, before in zip(steps[1:], steps):
        assert step.factor == before.bytes / step.bytes > 1
    h100 = C.DEVICES["H100"]
    assert by["as written"] / h100.bandwidth == pytest.approx(42.0, abs=0.05) and by["bands"] / h100.bandwidth == pytest.approx(0.164, abs=1e-3)
    full = Attention(heads=16, head_dim=128, queries=n, causal=False)
    assert C.lag_vectors(full, "naive").flops == pytest.approx(70.4e12, rel=5e-3)
    assert f" {32 * 2**20} bytes" in steps[5].why and 32 * 2**20 < h100.cache


def test_the_steps_are_those_of_any_size():
    steps = C.relative_steps(20, 12, heads=3, tile=(4, 5), dtype="fp32")
    full = Attention(heads=3, head_dim=4, queries=20, causal=False, dtype="fp32")
    causal = dataclasses.replace(full, causal=True)
    def count(a, way):
        return 3 * 16 * len(list(C.walk(20, way=way, tile=(4, 5), causal=a.causal)))
    assert [s.bytes for s in steps] == [2 * 400 * 48, 400 * 48, count(full, "tiled"), count(full, "banded"), count(causal, "banded"),
                                        20 * 48, 20 * 3 * 4]


def test_h30_the_memory_that_the_skew_saves():
    whole = Attention(heads=8, head_dim=64, queries=2048, dtype="fp32")
    assert C.relative_memory(whole, "vectors") == 4 * 2048**2 * 512 == 8_589_934_592 and C.relative_memory(whole, "rows") == 4 * 2048 * 512 == 4_194_304
    head = dataclasses.replace(whole, heads=1, kv_heads=1)
    assert C.relative_memory(head, "vectors") == pytest.approx(1.1e9, rel=0.03) and C.relative_memory(head, "rows") == pytest.approx(0.52e6, rel=0.01)
    one = Attention(heads=1, head_dim=128, queries=131072)
    assert C.relative_memory(one, "numbers") == 32 * GIB and C.scalar_bias(one).read == 512 * 2**10


def test_h34_the_cache_of_latent_vectors():
    mla = C.cache_numbers("mla", latent=512, rotary=64)
    assert mla == 576 and mla / (2 * 128) == 2.25
    mha = C.cache_numbers("mha", heads=128, head_dim=128)
    assert mha == 32768 == C.cache_numbers("gqa", kv_heads=128, head_dim=128) and mha / mla == pytest.approx(56.9, abs=0.05)
    assert C.cache_numbers("gqa", kv_heads=8, head_dim=128) == 8 * C.cache_numbers("mqa", head_dim=128) == 2048
    assert C.cache_bytes(mla, tokens=7, layers=3, batch=2, dtype="fp8") == 576 * 42
    a = Attention(heads=32, kv_heads=8, head_dim=128, queries=1, keys=500, batch=3)
    assert C.cache_bytes(C.cache_numbers("gqa", kv_heads=8, head_dim=128), tokens=500, batch=3) == 2 * a.k_bytes


def test_row_95_rotation_among_the_flops_of_attention():
    a = Attention(heads=16, head_dim=128, queries=131072)
    share = C.rotation(a, "fused").flops / C.attention(a).flops
    assert share == pytest.approx(2.3e-5, rel=0.01)                             # 6 n d of 2 n² d: 3/n
    assert share == pytest.approx(3 / 131072, rel=1e-4)
    h100 = C.DEVICES["H100"]
    assert C.roofline(C.rotation(a, "fused"), h100, "fp32").bound == "memory" and C.roofline(C.attention(a), h100).bound == "compute"
    step = Attention(heads=16, head_dim=128, queries=1, keys=131072)
    assert all(C.roofline(C.decode(step, way), h100).bound == "memory" for way in ("none", "rotated", "raw_first", "raw_inside"))


def test_row_92_vectors_at_decoding():
    for batch in (1, 8):
        a = Attention(heads=16, head_dim=128, queries=1, keys=4096, batch=batch)
        assert C.lag_vectors(a, "cached").read / (2 * a.k_bytes) == 0.5 / batch
        assert C.scalar_bias(a).read / (2 * a.k_bytes) < 0.01


def test_prefill_shares_of_the_shared_model():
    """Llama-3-8B's layer on an H100 at 60 % of its FLOPs, 3 microseconds a launch."""
    h100 = C.DEVICES["H100"].at(flops=0.6)
    for n, attention, eager, fused in ((1024, 14.5, 61, 9.3), (8192, 926, 280, 53), (32768, 14809, 1032, 203)):
        a = Attention(heads=32, kv_heads=8, head_dim=128, queries=n)
        assert C.roofline(C.attention(a), h100).seconds * 1e6 == pytest.approx(attention, rel=0.005)
        for way, want in (("rotate_half", eager), ("fused", fused)):
            got = C.roofline(C.rotation(a, way, tables=None), h100, "fp32", launch=3e-6).seconds * 1e6
            assert want * 0.995 <= got <= want * 1.012                          # eager reads its tables too, which the model left out


# ---- rotation ----

EAGER = {"rotate_half": (10, 10, 5), "float": (26, 10, 7), "complex": (10, 2, 3), "split_cat": (9, 9, 7), "out": (5, 5, 4), "in_place": (6, 6, 5)}


@pytest.mark.parametrize("way", EAGER)
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_eager_rotations_in_sizes_of_the_tensor(way, dtype):
    narrow, wide, launches = EAGER[way]
    a = Attention(heads=64, head_dim=64, queries=32, batch=64, dtype=dtype)     # so many heads that tables are nothing
    c = C.rotation(a, way, parts="q")
    assert 0 < c.bytes / a.q_bytes - (wide if dtype == "fp32" else narrow) < 0.01
    assert c.launches == launches - (2 if dtype == "fp32" and way in ("float", "complex") else 0) and c.flops == 3 * a.q_bytes / a.size


@quick
@given(layers(), st.data())
def test_rotations_are_sums_over_queries_and_new_keys(a, data):
    width = 2 * data.draw(st.integers(1, a.head_dim // 2))
    for way in C.ROTATIONS:
        q, k, both = (C.rotation(a, way, parts=parts, width=width) for parts in ("q", "k", "qk"))
        assert both.written == q.written + k.written and both.flops == q.flops + k.flops
        if way in EAGER:
            assert both == q + k
            assert k == C.rotation(dataclasses.replace(a, heads=a.kv_heads), way, parts="q", width=width)
        else:
            assert q.launches == k.launches == both.launches == (way != "in_attention")
    new = a.batch * a.queries * (a.heads + a.kv_heads)
    table = a.queries * width * 4
    assert C.rotation(a, "fused", width=width) == Cost(new * a.head_dim * a.size + table, new * a.head_dim * a.size, 3 * new * width, 1)
    assert C.rotation(a, "fused_in_place", width=width) == Cost(new * width * a.size + table, new * width * a.size, 3 * new * width, 1)
    assert C.rotation(a, "fused", width=width, tables=None).read == new * a.head_dim * a.size


@quick
@given(layers(), side, side)
def test_keys_turned_in_attention_turn_once_for_each_tile_of_queries(a, high, wide):
    rows = a.batch * a.heads
    turned = sum(len({j for tile in row for _, j in tile}) for row in blocks(a, (high, 1)))
    k = C.rotation(a, "in_attention", parts="k", tile=(high, wide))
    assert k == Cost(a.keys * a.head_dim * 4, 0, 3 * rows * turned * a.head_dim)
    q = C.rotation(a, "in_attention", parts="q", tile=(high, wide), tables="bf16")
    assert q == Cost(a.queries * a.head_dim * 2, 0, 3 * rows * a.queries * a.head_dim)


def test_the_gradient_is_one_more_turn_if_one_kernel_makes_it():
    a = Attention(heads=4, kv_heads=2, head_dim=8, queries=16, keys=20)
    assert C.rotation_backward(a, "fused") == C.rotation(a, "fused")
    assert C.rotation_backward(a, "in_attention", tables=None) == Cost(flops=3 * 6 * 16 * 8)
    assert C.rotation_backward(a, "in_attention").read == 16 * 8 * 4
    assert C.rotation_backward(a, "rotate_half").bytes > 1.4 * C.rotation_backward(a, "split_cat").bytes


# ---- decoding ----

@quick
@given(layers(), st.data())
def test_decoding_by_counting(a, data):
    width = 2 * data.draw(st.integers(1, a.head_dim // 2))
    new = 2 * a.batch * a.kv_heads * a.queries * a.head_dim * a.size
    plain = C.decode(a, "none")
    assert plain == C.attention(a) + Cost(new, new, 0, 1)
    table, q = 4 * width, 3 * a.batch * a.heads * a.queries * width
    def k(tokens):
        return 3 * a.batch * a.kv_heads * tokens * width
    assert C.decode(a, "rotated", width=width) == plain + Cost(a.queries * table, 0, q + k(a.queries))
    inside = C.decode(a, "raw_inside", width=width)
    assert inside == plain + Cost((a.queries + a.keys) * table, 0, q + k(a.keys))
    assert C.decode(a, "raw_first", width=width) == inside + Cost(a.k_bytes, a.k_bytes, 0, 1)
    assert C.decode(a, "raw_inside", width=width, tables=None).read == plain.read
    turned = a.batch * a.kv_heads * a.keys * width
    assert C.repositioning(a, width=width) == Cost(turned * a.size, turned * a.size, 3 * turned, 1)


def test_groups_and_latents_shrink_what_a_step_reads():
    def step(kv_heads, batch=32):
        return C.decode(Attention(heads=32, kv_heads=kv_heads, head_dim=128, queries=1, keys=8192, batch=batch), "none").bytes
    assert step(32) / step(8) == pytest.approx(4, rel=1e-3) and step(32) / step(1) == pytest.approx(32, rel=0.02)
    a = Attention(heads=32, kv_heads=8, head_dim=128, queries=1, keys=8192, batch=32)
    h200 = dataclasses.replace(C.DEVICES["H200"], bandwidth=4.3e12)
    assert C.roofline(C.decode(a, "none"), h200).seconds == pytest.approx(250e-6, rel=0.01)


# ---- all formulas ----

def all_costs(a):
    yield from ((f"attention {way}", C.attention(a, way)) for way in ("fused", "eager"))
    yield from ((f"latent {on}", C.latent_attention(a, latent=6, rotary=2, absorbed=on)) for on in (True, False))
    yield from ((f"absolute {way}", C.absolute(a, way)) for way in ("add", "gather"))
    yield from ((f"scalar {way}", C.scalar_bias(a, way)) for way in ("slope", "table", "stored", "built"))
    yield from ((f"vectors {way}", C.lag_vectors(a, way, tile=(3, 4))) for way in ("naive", "tiled", "banded", "cached", "stored", "skewed"))
    yield "vectors clipped", C.lag_vectors(a, "clipped", clip=3, tile=(3, 4))
    yield from ((f"rotation {way}", C.rotation(a, way, tile=(3, 4))) for way in C.ROTATIONS)
    yield from ((f"backward {way}", C.rotation_backward(a, way)) for way in ("rotate_half", "split_cat", "fused", "in_attention"))
    yield from ((f"decode {way}", C.decode(a, way)) for way in ("none", "rotated", "raw_first", "raw_inside"))
    yield "repositioning", C.repositioning(a)


@quick
@given(layers(square=True), st.sampled_from(["batch", "groups", "head_dim", "queries", "keys", "all"]))
def test_more_of_anything_never_costs_less(a, what):
    bigger = dataclasses.replace(a, batch=a.batch + (what in ("batch", "all")), head_dim=a.head_dim + 2 * (what in ("head_dim", "all")),
                                 heads=a.heads * (1 + (what in ("groups", "all"))), kv_heads=a.kv_heads * (1 + (what in ("groups", "all"))),
                                 queries=a.queries + (what in ("queries", "all")), keys=a.keys + (what in ("keys", "queries", "all")))
    for (name, small), (_, big) in zip(all_costs(a), all_costs(bigger), strict=True):
        assert big.read >= small.read and big.written >= small.written and big.flops >= small.flops and big.launches == small.launches, name


@quick
@given(layers())
def test_flops_do_not_depend_on_the_dtype_and_all_numbers_are_whole(a):
    wide = dataclasses.replace(a, dtype="fp64")
    for (name, c), (_, w) in zip(all_costs(a), all_costs(wide), strict=True):
        assert c.flops == w.flops and c.bytes <= w.bytes or name in ("rotation float", "rotation complex"), name
        assert all(type(x) is int for x in (c.read, c.written, c.flops, c.launches)), name


# ---- errors ----

A = Attention(heads=4, head_dim=8, queries=16)
BAD = [
    (lambda: Attention(heads=0, head_dim=8, queries=4), ValueError, "heads is 0; allowed is at least 1"),
    (lambda: Attention(heads=4, head_dim=-8, queries=4), ValueError, "head_dim is -8; allowed is at least 1"),
    (lambda: Attention(heads=4, head_dim=8, queries=4.0), TypeError, "queries is 4.0; allowed is a whole number"),
    (lambda: Attention(heads=4, head_dim=8, queries=4, keys=3), ValueError, "keys is 3; allowed is at least queries, 4"),
    (lambda: Attention(heads=4, head_dim=8, queries=4, keys=-1), ValueError, "keys is -1; allowed is at least 1"),
    (lambda: Attention(heads=4, kv_heads=3, head_dim=8, queries=4), ValueError, "kv_heads is 3; allowed are divisors of heads, 4"),
    (lambda: Attention(heads=4, head_dim=8, queries=4, batch=True), TypeError, "batch is True; allowed is a whole number"),
    (lambda: Attention(heads=4, head_dim=8, queries=4, causal=1), TypeError, "causal is 1; allowed are True and False"),
    (lambda: Attention(heads=4, head_dim=8, queries=4, dtype="half"), ValueError, "dtype is 'half'; allowed are 'fp64', 'fp32'"),
    (lambda: Attention(heads=4, head_dim=8, queries=4, dtype=2), ValueError, "dtype is 2; allowed are"),
    (lambda: Cost(read=-1), ValueError, "read is -1; allowed is at least 0"),
    (lambda: Cost(flops=0.5), TypeError, "flops is 0.5; allowed is a whole number"),
    (lambda: Cost() * 0.5, TypeError, "times is 0.5; allowed is a whole number"),
    (lambda: dataclasses.replace(TOY, bandwidth=0), ValueError, "bandwidth is 0; allowed is a finite number above 0"),
    (lambda: dataclasses.replace(TOY, bandwidth="3 TB/s"), TypeError, "bandwidth is '3 TB/s'; allowed is a number above 0"),
    (lambda: dataclasses.replace(TOY, flops={}), TypeError, "flops is {}; allowed is a mapping"),
    (lambda: dataclasses.replace(TOY, flops={"float32": 1.0}), ValueError, "dtype of flops is 'float32'; allowed are"),
    (lambda: dataclasses.replace(TOY, flops={"fp32": math.inf}), ValueError, r"flops\['fp32'\] is inf; allowed is a finite number"),
    (lambda: dataclasses.replace(TOY, cache=-1), ValueError, "cache is -1; allowed is at least 0"),
    (lambda: TOY.ridge("fp8"), ValueError, "dtype is 'fp8'; allowed are 'fp32', 'bf16'"),
    (lambda: TOY.at(bandwidth=1.5), ValueError, "bandwidth is 1.5; allowed is a share above 0 and at most 1"),
    (lambda: TOY.at(flops=0), ValueError, "flops is 0; allowed is a finite number above 0"),
    (lambda: C.roofline(5, TOY), TypeError, "cost is 5; allowed is a Cost"),
    (lambda: C.roofline(Cost(), "H100"), TypeError, "device is 'H100'; allowed is a Device"),
    (lambda: C.roofline(Cost(), TOY, "fp8"), ValueError, "dtype is 'fp8'; allowed are 'fp32', 'bf16'"),
    (lambda: C.roofline(Cost(), TOY, launch=-1e-6), ValueError, "launch is -1e-06; allowed are 0 and more seconds"),
    (lambda: C.roofline(Cost(), TOY, launch="3us"), TypeError, "launch is '3us'; allowed is a number of seconds"),
    (lambda: C.attention(4), TypeError, "a is 4; allowed is an Attention"),
    (lambda: C.attention(A, "flash"), ValueError, "way is 'flash'; allowed are 'fused', 'eager'"),
    (lambda: C.latent_attention(A, latent=0), ValueError, "latent is 0; allowed is at least 1"),
    (lambda: C.latent_attention(A, latent=4, rotary=-1), ValueError, "rotary is -1; allowed is at least 0"),
    (lambda: C.latent_attention(A, latent=4, absorbed=None), TypeError, "absorbed is None; allowed are True and False"),
    (lambda: C.absolute(A, "fused"), ValueError, "way is 'fused'; allowed are 'add', 'gather'"),
    (lambda: C.scalar_bias(A, "vector"), ValueError, "way is 'vector'; allowed are 'slope', 'table', 'stored', 'built'"),
    (lambda: C.scalar_bias(A, dtype="int8"), ValueError, "dtype is 'int8'; allowed are"),
    (lambda: C.lag_vectors(A, "skew"), ValueError, "way is 'skew'; allowed are 'naive', 'tiled'"),
    (lambda: C.lag_vectors(A, "tiled", tile=(0, 4)), ValueError, "tile is 0; allowed is at least 1"),
    (lambda: C.lag_vectors(A, "tiled", tile=4), TypeError, r"tile is 4; allowed is a pair \(queries, keys\)"),
    (lambda: C.lag_vectors(A, "clipped"), ValueError, "clip is None; allowed is a whole number where way is 'clipped'"),
    (lambda: C.lag_vectors(A, "clipped", clip=-1), ValueError, "clip is -1; allowed is at least 0"),
    (lambda: C.lag_vectors(A, "naive", clip=2), ValueError, "clip is 2; allowed is .* None elsewhere"),
    (lambda: C.lag_vectors(A, "naive", shared=1), TypeError, "shared is 1; allowed are True and False"),
    (lambda: C.lag_vectors(A, "naive", dtype="x"), ValueError, "dtype is 'x'; allowed are"),
    (lambda: C.relative_memory(A, "bytes"), ValueError, "way is 'bytes'; allowed are 'vectors'"),
    (lambda: C.relative_steps(16, 10, heads=4), ValueError, "width is 10; allowed are multiples of heads, 4"),
    (lambda: C.relative_steps(0), ValueError, "length is 0; allowed is at least 1"),
    (lambda: C.rotation(A, "flash"), ValueError, "way is 'flash'; allowed are 'rotate_half'"),
    (lambda: C.rotation(A, "fused", parts="v"), ValueError, "parts is 'v'; allowed are 'qk', 'q', 'k'"),
    (lambda: C.rotation(A, "fused", width=3), ValueError, "width is 3; allowed are even numbers up to head_dim, 8"),
    (lambda: C.rotation(A, "fused", width=10), ValueError, "width is 10; allowed are even numbers up to head_dim, 8"),
    (lambda: C.rotation(dataclasses.replace(A, head_dim=7), "fused"), ValueError, "head_dim is 7; allowed are even numbers"),
    (lambda: C.rotation(A, "fused", tables="half"), ValueError, "tables is 'half'; allowed are"),
    (lambda: C.rotation(A, "in_attention", tile=(1, 2, 3)), TypeError, r"tile is \(1, 2, 3\); allowed is a pair"),
    (lambda: C.rotation_backward(A, "out"), ValueError, "way is 'out'; allowed are 'rotate_half', 'split_cat'"),
    (lambda: C.cache_numbers("xqa"), ValueError, "kind is 'xqa'; allowed are 'mha', 'gqa', 'mqa', 'mla'"),
    (lambda: C.cache_numbers("mha", head_dim=4), TypeError, "heads is None; allowed is a whole number"),
    (lambda: C.cache_numbers("mla", latent=4, rotary=2, heads=3), ValueError, "heads is 3; allowed where kind is 'mla' are latent and rotary"),
    (lambda: C.cache_bytes(4, tokens=-1), ValueError, "tokens is -1; allowed is at least 0"),
    (lambda: C.cache_bytes(4, tokens=1, dtype="x"), ValueError, "dtype is 'x'; allowed are"),
    (lambda: C.decode(A, "raw"), ValueError, "way is 'raw'; allowed are 'none', 'rotated'"),
    (lambda: C.decode(A, tables="x"), ValueError, "tables is 'x'; allowed are"),
    (lambda: C.repositioning(A, width=0), ValueError, "width is 0; allowed is at least 2"),
    (lambda: C.simulate([1], -1), ValueError, "capacity is -1; allowed is at least 0"),
    (lambda: C.simulate([1], 4, line=0), ValueError, "line is 0; allowed is at least 1"),
    (lambda: C.walk(4, way="diagonal"), ValueError, "way is 'diagonal'; allowed are 'naive', 'blocked'"),
    (lambda: C.walk(4, 2, way="naive"), ValueError, "keys is 2; allowed is at least queries, 4"),
]
test_errors = bad_input_test({f"{number}: {case[2]}": case for number, case in enumerate(BAD)})
