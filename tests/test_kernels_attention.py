"""poslib.kernels.attention against attention in float64, within bounds that follow from its roundings.

Memory that a kernel did not write is NaN, and so are rows of a cache that no query sees.  Without a GPU the interpreter of
Triton runs the kernels: lengths are short and odd.
"""

import ctypes
import itertools
import math
import mmap
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import bad_input_test
from poslib import relative, rotary as R
from poslib.kernels import _common, attention as A, configs
from poslib.kernels import rotary as K

DEVICE = torch.device("cuda" if _common.MODE == "compiled" else "cpu")
UNIT = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}      # half a step at 1
TINY = {torch.float32: 0.0, torch.float16: 2.0**-25, torch.bfloat16: 0.0}               # half the smallest step of all
W = UNIT[torch.float32]
DTYPES = tuple(UNIT)
LAYOUTS = ("half", "interleaved")
NAN = float("nan")


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """The interpreter multiplies by numpy, whose threads wait for each other ten times as long as a small product takes."""
    for path in (Path(np.__file__).parent.parent / "numpy.libs").glob("libscipy_openblas64_*.so"):
        library = ctypes.CDLL(str(path))
        before = library.scipy_openblas_get_num_threads64_()
        library.scipy_openblas_set_num_threads64_(1)
        yield
        library.scipy_openblas_set_num_threads64_(before)
        return
    yield


@pytest.fixture(autouse=True)
def poisoned():
    """torch fills what nobody has written to with NaN."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert torch.empty(3).isnan().all() and torch.empty_like(torch.ones(3)).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


# ---- cases -----------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Case:
    queries: int
    keys: int
    width: int = 64
    dtype: torch.dtype = torch.float32
    rotate: str = "none"
    layout: str = "half"
    turned: int | None = None           # channels
    heads: tuple = (2, 1)
    causal: bool = True
    offset: int | None = None           # of the last query at the last key unless given
    positions: str = "default"          # or "int", "rows", "batch", "tables"
    window: int | None = None
    slopes: bool = False
    scale: float | None = None
    order: str = "bhld"                 # of memory; or "blhd", "sliced"
    small: bool = False                 # tiles of 32 by 32
    batch: int = 2

    def __str__(self):
        parts = [f"{self.queries}x{self.keys}", f"d{self.width}", str(self.dtype)[6:], self.rotate]
        for name in ("layout", "turned", "heads", "causal", "offset", "positions", "window", "slopes", "scale", "order", "small"):
            value, default = getattr(self, name), Case.__dataclass_fields__[name].default
            if value != default:
                parts.append(f"{name}={value}".replace(" ", ""))
        return "-".join(parts)

    @property
    def first(self):
        return self.keys - self.queries if self.offset is None else self.offset


def first_tier():
    """Every length with every width and dtype; the other choices take turns."""
    lengths = ((1, 1), (7, 7), (63, 63), (129, 129), (7, 63), (63, 129), (129, 7), (1, 129))
    turn = itertools.count()
    for (queries, keys), width, dtype in itertools.product(lengths, (64, 128), DTYPES):
        n = next(turn)
        rotate = ("q", "qk", "none", "qk", "q")[n % 5]
        yield Case(queries, keys, width, dtype, rotate, LAYOUTS[n // 3 % 2], (None, None, width // 2, 24)[n % 4] if rotate != "none" else None,
                   ((2, 2), (4, 1), (8, 1))[n // 2 % 3], n % 7 not in (2, 4), None if n % 5 else (0, 5, 40)[n // 5 % 3],
                   ("default", "int", "batch", "rows", "tables")[n // 2 % 5] if rotate != "none" else "default",
                   order=("bhld", "blhd", "sliced")[n % 3], small=n % 4 == 1 and queries > 7, batch=2 if n // 2 % 3 == 0 or queries < 8 and n % 2 else 1)


def second_tier():
    for n, (width, dtype) in enumerate(itertools.product((32, 80, 96, 256), DTYPES)):
        yield Case((63, 129)[n % 2], 129, width, dtype, ("q", "qk", "none")[(n + n // 3) % 3], LAYOUTS[n // 2 % 2], order=("blhd", "bhld")[n % 2],
                   turned=24 if n % 3 and (n + n // 3) % 3 < 2 else None, causal=n % 4 > 0, small=n % 2 == 0, batch=1)
    for n, window in enumerate((1, 5, 40, 64, 100, 300)):
        yield Case(63 if n % 2 else 129, 129, dtype=DTYPES[n % 3], rotate=("q", "qk", "none")[n % 3], window=window, causal=n % 3 < 2,
                   slopes=n % 2 == 0, small=n != 4, batch=1, layout=LAYOUTS[n % 2] if n % 3 < 2 else "half")
    for n, causal in enumerate((True, False, True)):
        yield Case(63, 129, dtype=DTYPES[n], rotate="q", slopes=True, causal=causal, heads=(3, 1), small=True, batch=1)
    yield Case(9, 50, offset=10, window=4, batch=1)                     # a window in the middle of a cache
    yield Case(9, 50, offset=70, window=30, causal=False, batch=1)      # far ahead: the last queries see no key
    yield Case(63, 63, scale=1.0, rotate="qk", batch=1)
    yield Case(63, 63, scale=0.01, rotate="q", slopes=True, batch=1)


def decoding():
    for n, (queries, heads, dtype) in enumerate(itertools.product((1, 3), ((4, 4), (8, 1), (8, 2)), DTYPES)):
        yield Case(queries, 401, (64, 128, 80)[n % 3], dtype, ("q", "qk", "none")[(n + n // 3) % 3], LAYOUTS[n // 2 % 2], heads=heads, causal=n % 5 > 0,
                   offset=(None, 300, 0)[n // 2 % 3], window=(None, 150)[n // 3 % 2], slopes=n % 4 == 3, batch=1 + n % 2,
                   positions=("default", "int")[n % 2] if (n + n // 3) % 3 < 2 else "default", order=("bhld", "blhd")[n % 2])


FIRST, SECOND, DECODING = map(list, (first_tier(), second_tier(), decoding()))


def vectors(case, generator, heads, length):
    shape = (case.batch, length, heads, case.width) if case.order == "blhd" else (case.batch, heads, length, case.width)
    if case.order == "sliced":
        shape = (case.batch, heads, length + 3, case.width + 8)
    x = torch.randn(shape, generator=generator).to(case.dtype).to(DEVICE)
    return x.transpose(1, 2) if case.order == "blhd" else x[:, :, 3:, :case.width] if case.order == "sliced" else x


def inputs(case):
    """q, k, v, a gradient, and keywords; rows of the cache that no query sees are NaN."""
    generator = torch.Generator().manual_seed(hash((case.queries, case.keys, case.width, case.heads[0], case.batch)) % 2**31)
    q, k, v, g = (vectors(case, generator, h, n) for h, n in ((case.heads[0], case.queries), (case.heads[1], case.keys),
                                                              (case.heads[1], case.keys), (case.heads[0], case.queries)))
    unseen = ~visible(case).any(0)
    k[:, :, unseen] = NAN
    v[:, :, unseen] = NAN
    given = {"is_causal": case.causal, "offset": case.first, "window": case.window, "scale": case.scale}
    if case.rotate != "none":
        given |= {"rotate": case.rotate, "layout": case.layout, "width": case.turned}
        of_queries, of_keys = positions(case)
        if case.positions == "int":
            given["positions"] = int(of_queries[0, 0])
        elif case.positions != "default":
            pick = (lambda p: p[0]) if case.positions == "rows" else (lambda p: p)
            if case.positions == "tables":
                pick = lambda p: R.tables(R.angles(p, R.frequencies(case.turned or case.width)), torch.float32)       # noqa: E731
            given["positions"] = pick(of_queries)
            if case.rotate == "qk":
                given["key_positions"] = pick(of_keys)
    if case.slopes:
        given["slopes"] = relative.alibi_slopes(case.heads[0], like=torch.ones(1, device=DEVICE)).float()
    return q, k, v, g, given


def positions(case):
    """Of queries and keys, (batch, length), as the case means them."""
    of_queries, of_keys = torch.arange(case.queries) + case.first, torch.arange(case.keys)
    far = 0 if case.positions == "default" else 100_000
    step = torch.arange(case.batch)[:, None] * (1_000 if case.positions in ("batch", "tables") else 0)
    return (of_queries + far + step).to(DEVICE), (of_keys + far + step).to(DEVICE)


def visible(case):
    query, key = case.first + torch.arange(case.queries)[:, None], torch.arange(case.keys)
    see = key <= query if case.causal else torch.ones(case.queries, case.keys, dtype=torch.bool)
    return (see & ((query - key).abs() < case.window) if case.window else see).to(DEVICE)


# ---- truth, and how far roundings may lead from it -----------------------------------------------------

def partners(case):
    """For each channel the other one of its pair; itself where it does not turn."""
    width, other = case.turned or case.width, torch.arange(case.width)
    turning = other[:width].clone()
    other[:width] = (turning + width // 2) % width if case.layout == "half" else turning ^ 1
    return other.to(DEVICE)


def mixed(case, error, on):
    """Errors of channels after a turn: both channels of the pair go into each."""
    other = partners(case)
    moves = other != torch.arange(case.width, device=DEVICE)
    return torch.where(moves, error + error[..., other], error) if on else error


def turned(case, x, at, on, back=False):
    """Turned in float64, and the error of doing it in float32 with tables of float32 and rounding once."""
    if not on:
        return x, torch.zeros_like(x)
    y = R.rotate(x, at, layout=case.layout, width=case.turned, inverse=back)
    return y, 5 * W * mixed(case, x.abs(), True) + UNIT[case.dtype] * y.abs() + TINY[case.dtype]


def truth(case, q, k, v, g=None, slopes=None):
    """[(output, bound of its error)], and with `g` also those of the gradients of q, k, v.

    First-order analysis, entry by entry: u is the unit of the dtype, W of float32.  Rounded to the dtype are turned queries and keys, weights,
    derivatives of scores, and results; all else is float32, where a sum of n terms is off by n W of the terms' sizes.
    """
    u, tiny = UNIT[case.dtype], TINY[case.dtype]
    q, k, v = (x.double().nan_to_num(0.0) for x in (q, k, v))
    at_q, at_k = positions(case)
    q, err_q = turned(case, q, at_q, case.rotate != "none")
    k, err_k = turned(case, k, at_k, case.rotate == "qk")
    group, keys = case.heads[0] // case.heads[1], case.keys
    k, err_k, v = (x.repeat_interleave(group, 1) for x in (k, err_k, v))
    scale, t = case.scale or case.width**-0.5, (lambda x: x.transpose(-1, -2))
    s = scale * q @ t(k)
    sizes = scale * q.abs() @ t(k.abs())
    err_s = scale * (err_q @ t(k.abs()) + q.abs() @ t(err_k) + err_q @ t(err_k)) + (case.width + 4) * W * sizes
    if slopes is not None:
        away = (case.first + torch.arange(case.queries)[:, None] - torch.arange(keys)).abs().to(DEVICE)
        s = s - slopes.double()[:, None, None] * away
        err_s = err_s + 6 * W * slopes.double()[:, None, None] * away
    see = visible(case)
    s, err_s, sizes = s.masked_fill(~see, -math.inf), err_s.masked_fill(~see, 0), s.abs().masked_fill(~see, 0)
    p = torch.softmax(s, -1).nan_to_num(0.0)
    # The exponent, relative to the largest: its own rounding and that of exp2; every weight and their sum can be off.
    off = torch.expm1(2 * (err_s + 6 * W * sizes + 8 * W).amax(-1, keepdim=True)) + (keys + 8) * W
    o = p @ v
    fewest = tiny * see.double() @ v.abs()
    err_o = (off + u) * (p @ v.abs()) + fewest + u * o.abs() + tiny
    if g is None:
        return [(o, err_o)]
    g = g.double()
    delta, err_delta = (o * g).sum(-1, keepdim=True), (err_o * g.abs() + case.width * W * (o * g).abs()).sum(-1, keepdim=True)
    slope_p, err_dp = g @ t(v), case.width * W * g.abs() @ t(v.abs())
    ds = p * (slope_p - delta)
    err_ds = p * (off * (slope_p - delta).abs() + (1 + off) * (err_dp + err_delta + 2 * W * (slope_p.abs() + delta.abs()))) + u * ds.abs()
    err_ds = err_ds * (1 + u) + tiny * see

    def results(x, err_x, sizes, rows, at, on, heads):
        """Sums over a group, scaled, turned back and rounded."""
        x, err_x, sizes = (y.unflatten(1, (heads, -1)).sum(2) for y in (x, err_x, sizes))
        err = mixed(case, err_x + rows * W * sizes, on)
        x = R.rotate(x, at, layout=case.layout, width=case.turned, inverse=True) if on else x
        return x, err + 5 * W * mixed(case, x.abs(), on) + u * (x.abs() + err) + tiny
    kv = case.heads[1]
    dq = results(scale * ds @ k, scale * (err_ds @ (k.abs() + err_k) + ds.abs() @ err_k), scale * ds.abs() @ k.abs(), keys + 4, at_q,
                 case.rotate != "none", case.heads[0])
    dk = results(scale * t(ds) @ q, scale * (t(err_ds) @ (q.abs() + err_q) + t(ds).abs() @ err_q), scale * t(ds).abs() @ q.abs(),
                 group * case.queries + 4, at_k, case.rotate == "qk", kv)
    dv = results(t(p) @ g, t(p * (off + u) + tiny * see) @ g.abs(), t(p) @ g.abs(), group * case.queries + 4, at_k, False, kv)
    return [(o, err_o), dq, dk, dv]


def check(got, wanted):
    for name, x, (y, bound) in zip("o dq dk dv".split(), got, wanted):
        assert x.isfinite().all(), f"{name} has entries that are not finite"
        excess = ((x.double() - y).abs() / bound.clamp_min(1e-300)).max()
        assert excess <= 1, f"{name} is off by {excess:.3g} times what roundings explain"


def small_tiles(monkeypatch, case):
    if case.small and _common.MODE == "interpreted":
        for kernel in ("forward", "forward_qk", "query_gradient", "key_gradient"):
            monkeypatch.setitem(configs.TABLE, (kernel, case.width, case.dtype.itemsize, "interpreted"), configs.Config(32, 32, 1, 1))


def run(case, q, k, v, g, given):
    """Output, and gradients where there is a gradient to begin with."""
    if g is None:
        return [A.attention(q, k, v, **given)]
    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
    out = A.attention(q, k, v, **given)
    return [out.detach(), *torch.autograd.grad(out, (q, k, v), g)]


@pytest.mark.parametrize("case", FIRST + SECOND, ids=str)
def test_forward_and_backward(case, monkeypatch):
    small_tiles(monkeypatch, case)
    q, k, v, g, given = inputs(case)
    gradients = (FIRST + SECOND).index(case) % 3 != 1           # the others run as without training
    g = g if gradients else None
    with torch.set_grad_enabled(gradients):
        leaves = [x.detach().requires_grad_(gradients) for x in (q, k, v)]
        assert A.plan(*leaves, **given).path == "fused"
        check(run(case, q, k, v, g, given), truth(case, q, k, v, g, given.get("slopes")))


@pytest.mark.parametrize("case", DECODING, ids=str)
def test_decoding(case):
    q, k, v, _, given = inputs(case)
    out, how = A.attention(q, k, v, **given, return_plan=True)
    assert how.path == "decode" and len(how.kernels) == 2
    check([out], truth(case, q, k, v, slopes=given.get("slopes")))


def test_the_cases_cover_what_they_should():
    for name, values in {"rotate": ("none", "q", "qk"), "layout": LAYOUTS, "dtype": DTYPES, "heads": ((2, 2), (4, 1), (8, 1)), "causal": (True, False),
                         "positions": ("default", "int", "rows", "batch", "tables"), "order": ("bhld", "blhd", "sliced"),
                         "turned": (None, 24, 32, 64)}.items():
        assert set(values) <= {getattr(case, name) for case in FIRST}, name
    assert {case.path for case in map(hidden_rows, FIRST + SECOND + DECODING)} == {"whole", "cut"}
    assert {case.batch for case in FIRST if case.positions in ("batch", "tables") and case.rotate != "none"} == {1, 2}
    assert len(FIRST) == 48 and len(SECOND) >= 24


def hidden_rows(case):
    case_ = visible(case).any(0).all()
    return type("Seen", (), {"path": "whole" if case_ else "cut"})


# ---- one by one ------------------------------------------------------------------------------------

def plain(dtype=torch.float32, queries=13, keys=13, width=64, heads=(4, 2)):
    generator = torch.Generator().manual_seed(7)
    return tuple(torch.randn(2, h, n, width, generator=generator).to(DEVICE).to(dtype) for h, n in
                 ((heads[0], queries), (heads[1], keys), (heads[1], keys)))


def test_in_place_of_rotation_and_torch():
    q, k, v = plain()
    here = torch.arange(13, device=DEVICE)
    wanted = torch.nn.functional.scaled_dot_product_attention(R.rotate(q, here, layout="half"), R.rotate(k, here, layout="half"), v, is_causal=True,
                                                              enable_gqa=True)
    assert torch.allclose(A.attention(q, k, v, rotate="qk", layout="half", is_causal=True), wanted, atol=2e-6)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_the_backward_pass_keeps_was_turned_once_and_rounded_once(dtype):
    q, k, v = (x.requires_grad_() for x in plain(dtype))
    for layout in LAYOUTS:
        out = A.attention(q, k, v, 10**6, rotate="qk", layout=layout, is_causal=True)
        kept = out.grad_fn.saved_tensors[:2]
        for x, y in zip(kept, (q, k)):
            exact = R.rotate(y.detach().double(), 10**6 + torch.arange(13, device=DEVICE), layout=layout)
            right = (x == exact.to(dtype)).double().mean()
            assert right > (0.999 if dtype != torch.float32 else 0.6), right
            assert (x - exact).abs().max() <= UNIT[dtype] * 8


def test_decoding_step_by_step_is_the_whole():
    """Keys turned as they are written; then each query alone, with the cache behind it not yet written."""
    q, k, v = plain(queries=300, keys=300, heads=(2, 1))
    whole = A.attention(q, k, v, rotate="qk", layout="interleaved", is_causal=True)
    cache = K.rotate(k, None, 0, layout="interleaved"), v.clone()
    for step in (0, 1, 255, 256, 299):
        so_far = [torch.where(torch.arange(300, device=DEVICE)[:, None] <= step, x, NAN) for x in cache]
        one = A.attention(q[:, :, step:step + 1], *so_far, rotate="q", layout="interleaved", is_causal=True, offset=step)
        assert torch.allclose(one[:, :, 0], whole[:, :, step], atol=2e-6)


def test_queries_without_a_key_give_zero_and_gradients_of_zero():
    q, k, v = (x.requires_grad_() for x in plain(queries=9, keys=4))
    for path, given in (("fused", {}), ("separate", {"attn_mask": torch.ones(9, 4, dtype=torch.bool, device=DEVICE)})):
        out, how = A.attention(q, k, v, is_causal=True, offset=-5, **given, return_plan=True)
        assert how.path == path and (out[:, :, :5] == 0).all() and (out[:, :, 5:] != 0).all()
        dq, dk, _ = torch.autograd.grad(out.sum(), (q, k, v))
        assert (dq[:, :, :5] == 0).all() and dk.isfinite().all()
    assert (A.attention(q[:, :, :1].detach(), *(x.detach().repeat(1, 1, 70, 1) for x in (k, v)), is_causal=True, offset=-1) == 0).all()


def test_gradient_that_is_one_number_expanded():
    q, k, v = (x.requires_grad_() for x in plain())
    a = torch.autograd.grad(A.attention(q, k, v).sum(), (q, k, v))
    b = torch.autograd.grad(A.attention(q, k, v), (q, k, v), torch.ones_like(q))
    assert all((x == y).all() for x, y in zip(a, b))


def test_gradients_of_some_inputs_only():
    q, k, v = plain()
    whole = torch.autograd.grad(A.attention(*(leaves := [x.clone().requires_grad_() for x in (q, k, v)])).sum(), leaves)
    for chosen in range(3):
        leaves = [x.clone().requires_grad_(i == chosen) for i, x in enumerate((q, k, v))]
        A.attention(*leaves).sum().backward()
        assert [x.grad is not None for x in leaves] == [i == chosen for i in range(3)] and (leaves[chosen].grad == whole[chosen]).all()


def test_narrow_tables_for_keys():
    q, k, v = plain(torch.bfloat16)
    cos, sin = R.tables(R.angles(torch.arange(13, device=DEVICE), R.frequencies(64)), torch.float32)
    wide = A.attention(q, k, v, (cos, sin), rotate="qk", layout="half")
    narrow = A.attention(q, k, v, (cos, sin), (cos.bfloat16(), sin.bfloat16()), rotate="qk", layout="half")
    assert 0 < (wide - narrow).abs().max() < 0.05
    assert (A.attention(q, k, v, K.tables(torch.arange(13, device=DEVICE), width=64), rotate="qk", layout="half") == wide).all()


def test_frequencies_and_base():
    q, k, v = plain()
    a = A.attention(q, k, v, rotate="qk", layout="half", base=5e5)
    assert (a == A.attention(q, k, v, rotate="qk", layout="half", frequencies=R.frequencies(64, 5e5))).all()
    assert (a - A.attention(q, k, v, rotate="qk", layout="half")).abs().max() > 1e-3


def test_rows_far_apart_need_offsets_of_64_bits():
    """The last row lies 2³² entries behind the first, in memory of which only the rows are ever touched."""
    rows, step, start = 257, 2**24 - 64, 2**20             # 32 bits would lead in front of the first row, to zeros
    size = start + rows * step
    if DEVICE.type == "cuda":
        memory = torch.zeros(size, dtype=torch.float16, device=DEVICE)
    else:
        reserve = getattr(mmap, "MAP_NORESERVE", 0x4000)
        memory = torch.frombuffer(mmap.mmap(-1, 2 * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | reserve), dtype=torch.float16)
    far = memory.as_strided((1, 1, rows, 64), (0, 0, step, 1), start)
    q, k, _ = (x[:1] for x in plain(torch.float16, 65, rows, heads=(1, 1)))
    far.copy_(k)
    assert (rows - 1) * step > 2**31
    assert (A.attention(q, far, far, rotate="q", layout="half") == A.attention(q, k, k, rotate="q", layout="half")).all()


# ---- plans -----------------------------------------------------------------------------------------

def plans():
    q, k, v = plain()
    wide = torch.ones(2, 2, 13, 48, device=DEVICE)
    mask = torch.rand(13, 13, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    return {
        "float64": ([x.double() for x in (q, k, v)], {"is_causal": True}, "not float64"),
        "mask": ((q, k, v), {"attn_mask": mask > 0.3}, "attn_mask"),
        "bias": ((q, k, v), {"attn_mask": mask, "is_causal": True, "window": 5}, "attn_mask"),
        "bias for half precision": ([x.bfloat16() for x in (q, k, v)], {"attn_mask": mask, "slopes": torch.full((4,), 0.5, device=DEVICE)}, "attn_mask"),
        "width": ([x[..., :40] for x in (q, k, v)], {}, "width 40 of a head is not covered"),
        "width of v": ((q, k, wide), {"window": 3}, "v has width 48"),
        "scale": ((q, k, v), {"scale": -1.0, "slopes": torch.full((4,), 0.5, device=DEVICE)}, "scale is not positive"),
    }


@pytest.mark.parametrize("name", plans())
@pytest.mark.parametrize("rotate", ("none", "q", "qk"))
def test_what_kernels_do_not_cover_goes_to_torch_and_is_right(name, rotate, monkeypatch):
    (q, k, v), given, reason = plans()[name]
    asked = given if rotate == "none" else given | {"rotate": rotate, "layout": "half"}
    written, sdpa = [], torch.nn.functional.scaled_dot_product_attention

    def heard(usual):
        def listening(*x, **more):
            written.append(usual(*x, **more))
            return written[-1]
        return listening

    def attend(*handed, **more):
        written.extend(x for x in handed if x.dtype != q.dtype)                     # widened
        return sdpa(*handed, **more)
    with monkeypatch.context() as m:
        m.setattr(A, "_turned", heard(A._turned))
        m.setattr(torch.Tensor, "repeat_interleave", heard(torch.Tensor.repeat_interleave))
        m.setattr(torch.nn.functional, "scaled_dot_product_attention", attend)
        out, how = A.attention(q, k, v, **asked, return_plan=True)
    assert how.path == "separate" and reason in str(how) and how == A.plan(q, k, v, **asked)
    assert how.copied_bytes == sum(x.nbytes for x in written) and len(written) == {"none": 0, "q": 1, "qk": 2}[rotate] + 2 + 3 * (name == "bias for half precision")
    here, wide = torch.arange(13, device=DEVICE), [x.double() for x in (q, k, v)]
    turn = lambda x: R.rotate(x, here, layout="half")       # noqa: E731
    wide = [turn(wide[0]) if rotate != "none" else wide[0], turn(wide[1]) if rotate == "qk" else wide[1], wide[2]]
    wide[1:] = (x.repeat_interleave(2, 1) for x in wide[1:])
    s = wide[0] @ wide[1].transpose(-1, -2) * given.get("scale", q.shape[-1] ** -0.5)
    away, mask = here[:, None] - here, given.get("attn_mask", torch.ones(13, 13, dtype=torch.bool, device=DEVICE))
    s = s.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else s + mask
    s = s.masked_fill((away < 0) & given.get("is_causal", False) | (away.abs() >= given.get("window", 99)), -math.inf)
    s = s - away.abs() * 0.5 if "slopes" in given else s
    wanted = torch.softmax(s, -1) @ wide[2]
    assert torch.allclose(out.double(), wanted, atol={torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.05}[q.dtype])


def test_dropout_and_learned_frequencies_go_to_torch():
    q, k, v = plain()
    out, how = A.attention(q, k, v, dropout_p=0.5, return_plan=True)
    assert how.path == "separate" and "dropout_p" in str(how) and (out - A.attention(q, k, v)).abs().max() > 0.1
    learned = torch.tensor(R.frequencies(64), device=DEVICE, requires_grad=True)
    out, how = A.attention(q, k, v, rotate="qk", layout="half", frequencies=learned, return_plan=True)
    assert how.path == "separate" and "require gradients" in str(how)
    assert torch.autograd.grad(out.square().sum(), learned)[0].abs().max() > 0


def test_gradients_on_the_separate_path():
    q, k, v = (x[:1].double().requires_grad_() for x in plain(queries=3, keys=4, width=4, heads=(2, 1)))
    assert torch.autograd.gradcheck(lambda *x: A.attention(*x, rotate="qk", layout="interleaved", is_causal=True, offset=1, window=2), (q, k, v))


def test_nothing_to_attend_to():
    q, k, v = (x.requires_grad_() for x in plain())
    out = A.attention(q, k[:, :, :0], v[:, :, :0])
    assert out.shape == q.shape and (out == 0).all() and (torch.autograd.grad(out.sum(), q)[0] == 0).all()
    assert A.attention(q[:, :, :0], k, v).shape == (2, 4, 0, 64) and A.attention(q[:0], k[:0], v[:0]).shape == (0, 4, 13, 64)


def test_plans_say_what_is_copied():
    q, k, v = plain()
    inside = {"rotate": "qk", "layout": "half"}
    assert A.plan(q, k, v, **inside).copied_bytes == 0 and "turns queries and keys in registers" in str(A.plan(q, k, v, **inside))
    training = A.plan(q.requires_grad_(), k, v, **inside)
    assert training.copied_bytes == q.nbytes + k.nbytes and "turned once, before the kernel" in str(training)
    assert A.plan(q, k, v, rotate="q", layout="half").copied_bytes == q.nbytes
    with torch.no_grad():
        assert A.plan(q, k, v, **inside).copied_bytes == 0
        apart = k.transpose(-1, -2).contiguous().transpose(-1, -2)
        how = A.plan(q, apart, v)
        assert how.copied_bytes == k.nbytes and "not side by side" in str(how)
        assert (A.attention(q, apart, v) == A.attention(q, k, v)).all()


def test_nothing_is_kept_where_no_gradient_is_recorded(monkeypatch):
    kept, forward = [], A._forward
    monkeypatch.setattr(A, "_forward", lambda *given: kept.append(given[-1]) or forward(*given))
    q, k, v = (x.requires_grad_() for x in plain())
    out = A.attention(q, k, v)
    with torch.no_grad():
        assert (A.attention(q, k, v) == out).all()
    assert kept == [True, False]


def test_a_plan_runs_nothing(monkeypatch):
    for name in ("_forward", "_decode", "_separate"):
        monkeypatch.setattr(A, name, lambda *_: pytest.fail("ran"))
    q, k, v = plain()
    assert [A.plan(q, k, v).path, A.plan(q[:, :, :1], k.repeat(1, 1, 30, 1), v.repeat(1, 1, 30, 1)).path, A.plan(*(x.double() for x in (q, k, v))).path] \
        == ["fused", "decode", "separate"]


def test_keys_of_a_cache_are_read_up_to_the_last_query_only():
    q, k, v = plain(queries=3, keys=129)
    cut = A.attention(q, k[:, :, :50], v[:, :, :50], is_causal=True, offset=47)
    k[:, :, 50:] = NAN
    v[:, :, 50:] = NAN
    for given in ({}, {"attn_mask": torch.ones(3, 129, dtype=torch.bool, device=DEVICE)}):
        assert torch.allclose(A.attention(q, k, v, is_causal=True, offset=47, **given), cut, atol=1e-6)


def test_any_order_of_memory_gives_the_same_bits():
    q, k, v = plain()
    there = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    assert (A.attention(q, k, v) == A.attention(*there)).all()


def test_second_derivatives_are_refused():
    q, k, v = (x.requires_grad_() for x in plain())
    with pytest.raises(RuntimeError, match="create_graph is True"):
        torch.autograd.grad(A.attention(q, k, v).sum(), q, create_graph=True)


Q, KEYS, V = plain(queries=3, keys=5)
TURN = {"rotate": "q", "layout": "half"}
TABLES = R.tables(R.angles(torch.arange(3, device=DEVICE), R.frequencies(64)), torch.float32)
test_bad_input = bad_input_test({
    "numpy": (lambda: A.attention(Q.cpu().numpy(), KEYS, V), TypeError, "q is a ndarray"),
    "axes": (lambda: A.attention(Q[0], KEYS, V), ValueError, r"q has shape \(4, 3, 64\)"),
    "dtypes": (lambda: A.attention(Q, KEYS.half(), V), TypeError, "k has dtype torch.float16"),
    "integers": (lambda: A.attention(Q.int(), KEYS.int(), V.int()), TypeError, "q has dtype torch.int32"),
    "batch": (lambda: A.attention(Q[:1], KEYS, V), ValueError, "one batch"),
    "heads": (lambda: A.attention(Q[:, :3], KEYS, V), ValueError, "3 heads, k 2"),
    "rotate": (lambda: A.attention(Q, KEYS, V, rotate="k"), ValueError, "rotate is 'k'"),
    "no layout": (lambda: A.attention(Q, KEYS, V, rotate="q"), ValueError, "layout is None"),
    "positions without a turn": (lambda: A.attention(Q, KEYS, V, 3), ValueError, "positions is given and rotate is 'none'"),
    "layout without a turn": (lambda: A.attention(Q, KEYS, V, layout="half"), ValueError, "layout is given and rotate"),
    "turned keys": (lambda: A.attention(Q, KEYS, V, 0, 0, **TURN), ValueError, "keys come turned"),
    "keys unknown": (lambda: A.attention(Q, KEYS, V, torch.arange(3), rotate="qk", layout="half", offset=2), ValueError, "without key_positions"),
    "corner": (lambda: A.attention(Q, KEYS, V, is_causal=True), ValueError, "offset=0 .* or offset=2"),
    "corner of a window": (lambda: A.attention(Q, KEYS, V, window=3), ValueError, "window is given for 3 queries and 5 keys"),
    "corner of slopes": (lambda: A.attention(Q, KEYS, V, slopes=torch.ones(4)), ValueError, "slopes is given for"),
    "offset": (lambda: A.attention(Q, KEYS, V, offset=1.5), TypeError, "offset is 1.5"),
    "far offset": (lambda: A.attention(Q, KEYS, V, offset=2**31), ValueError, "2147483648"),
    "window": (lambda: A.attention(Q, KEYS, V, window=0, offset=0), ValueError, "window is 0"),
    "scale": (lambda: A.attention(Q, KEYS, V, scale=NAN), ValueError, "scale is nan"),
    "dropout": (lambda: A.attention(Q, KEYS, V, dropout_p=1.0), ValueError, "dropout_p is 1.0"),
    "precision": (lambda: A.attention(Q, KEYS, V, precision="tf32x3"), ValueError, "precision is 'tf32x3'"),
    "slopes": (lambda: A.attention(Q, KEYS, V, slopes=torch.ones(2), offset=0), ValueError, r"slopes has shape \(2,\)"),
    "narrow slopes": (lambda: A.attention(Q, KEYS, V, slopes=torch.ones(4).half(), offset=0), TypeError, "float16"),
    "learned slopes": (lambda: A.attention(Q, KEYS, V, slopes=torch.ones(4, requires_grad=True), offset=0), ValueError, "slopes requires gradients"),
    "mask": (lambda: A.attention(Q, KEYS, V, attn_mask=torch.ones(3, 4)), ValueError, r"attn_mask has shape \(3, 4\)"),
    "mask of integers": (lambda: A.attention(Q, KEYS, V, attn_mask=torch.ones(3, 5).int()), TypeError, "attn_mask is torch.int32"),
    "flag": (lambda: A.attention(Q, KEYS, V, is_causal=1), TypeError, "is_causal is 1"),
    "odd width": (lambda: A.attention(Q, KEYS, V, **TURN, width=3), ValueError, "width is 3"),
    "wide": (lambda: A.attention(Q, KEYS, V, **TURN, width=66), ValueError, "width is 66"),
    "positions": (lambda: A.attention(Q, KEYS, V, torch.arange(4), **TURN), ValueError, r"positions has shape \(4,\)"),
    "float positions": (lambda: A.attention(Q, KEYS, V, torch.ones(3), **TURN), TypeError, "positions has dtype torch.float32"),
    "list": (lambda: A.attention(Q, KEYS, V, [0, 1, 2], **TURN), TypeError, "positions is a list"),
    "tables of half": (lambda: A.attention(Q, KEYS, V, tuple(t.half() for t in TABLES), **TURN), TypeError, "cos of positions has dtype torch.float16"),
    "tables and frequencies": (lambda: A.attention(Q, KEYS, V, TABLES, **TURN, frequencies=R.frequencies(64)), ValueError, "allowed is one of the two"),
    "pairs": (lambda: A.attention(Q, KEYS, V, TABLES, **TURN, width=32), ValueError, "32 channels turn; allowed are 16 pairs"),
    "phases": (lambda: A.attention(Q, KEYS, V, K.phases(0, width=64), **TURN), ValueError, "made by tables"),
    "return_plan": (lambda: A.attention(Q, KEYS, V, return_plan=1), TypeError, "return_plan is 1"),
})
