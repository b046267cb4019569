"""poslib.kernels.rotary against poslib.rotary bit for bit, against float64, and every error it promises.

Without a GPU the interpreter of Triton runs the kernels.  It neither fuses products with sums nor checks addresses: results are
compared exactly, lengths are odd, and whatever must not be touched is NaN.
"""

import dataclasses
import itertools
import math
import mmap
import random
import sys

import mpmath
import numpy as np
import pytest
import torch

triton = pytest.importorskip("triton", reason="wheels of triton exist for Linux")
import triton.language as tl
from torch.autograd import forward_ad

from conftest import bad_input_test
from poslib import rotary as R
from poslib.kernels import _common, configs
from poslib.kernels import rotary as K

COMPILED = _common.MODE == "compiled"
DEVICE = torch.device("cuda" if COMPILED else "cpu")
EPS = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
DTYPES = tuple(EPS)
LAYOUTS = ("half", "interleaved")
NAN = float("nan")


def vectors(generator, shape, dtype, memory="bhld"):
    """Random vectors (batch, heads, length, width) in the order of `memory`; "sliced" leaves gaps between heads and rows."""
    batch, heads, length, width = shape
    if memory == "blhd":
        x = torch.randn(batch, length, heads, width, generator=generator).transpose(1, 2)
    elif memory == "sliced":
        x = torch.randn(batch, length, heads + 1, width + 8, generator=generator)[:, :, 1:, 8:].transpose(1, 2)
    else:
        x = torch.randn(batch, heads, length, width, generator=generator)
    return x.to(DEVICE).to(dtype)


def seeded(*key):
    return torch.Generator().manual_seed(random.Random(repr(key)).getrandbits(40))


def truth(x, positions, layout, width=None, inverse=False, frequencies=None):
    """In float64, by loops over pairs: nothing of poslib but the frequencies."""
    x = x.double().cpu()
    width = width or x.shape[-1]
    w = torch.tensor(R.frequencies(width) if frequencies is None else frequencies)
    p = torch.as_tensor(positions).double().cpu()
    p = p[None] if p.ndim == 1 else p
    y = x.clone()
    for k in range(width // 2):
        i, j = (k, k + width // 2) if layout == "half" else (2 * k, 2 * k + 1)
        angle = (p * w[k])[:, None] * (-1 if inverse else 1)
        y[..., i] = x[..., i] * angle.cos() - x[..., j] * angle.sin()
        y[..., j] = x[..., j] * angle.cos() + x[..., i] * angle.sin()
    return y


def agree(got, expected, exact, slack=0.0):
    """`got` is `expected` (float64 or of its own dtype): equal where the same roundings were made, else within those of float32 and its own."""
    assert got.dtype in EPS and got.shape == expected.shape
    if exact and not COMPILED:
        assert torch.equal(got, expected)
        return
    expected = expected.double().cpu()
    error = (got.double().cpu() - expected).abs()
    size = expected.abs().amax(-1, keepdim=True) * 2
    assert bool((error <= EPS[got.dtype] * expected.abs() * 1.01 + size * (2.0**-23 + slack) + 1e-7).all()), error.max()


# ---- forward --------------------------------------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Case:
    number: int
    length: int
    head_width: int
    width: int | None
    heads: tuple
    dtype: torch.dtype
    layout: str
    angles: str
    positions: str
    memory: str

    def __str__(self):
        return "-".join(str(v).removeprefix("torch.") for v in dataclasses.astuple(self)[1:]).replace(" ", "")


def draw(number):
    """Each kernel with each layout, dtype and kind of angles in turn, and the rest by chance; some widths are no power of two."""
    lengths, layout, dtype, angles = COMBINATIONS[number % len(COMBINATIONS)]
    choose = random.Random(number).choice
    head_width = choose((8, 32, 64, 64, 80, 96, 128, 128))
    return Case(number, choose(lengths), head_width, choose((None, None, head_width // 2, head_width // 4 * 2 - 2)),
                choose(((4, 4), (4, 2), (6, 1), (3, 3), (12, 1), (2, None))), dtype, layout, angles,
                choose(("offset", "negative", "shared", "one row", "rows")), choose(("bhld", "blhd", "sliced")))


COMBINATIONS = list(itertools.product(((1, 2, 7, 8), (9, 33, 63, 129)), LAYOUTS, DTYPES, ("tables", "phase")))


CASES = [draw(i) for i in range(96)]


def prepared(case, batch=2):
    g = seeded(case)
    q, k = (None if h is None else vectors(g, (batch, h, case.length, case.head_width), case.dtype, case.memory) for h in case.heads)
    ids = torch.randint(-3000, 300000, {"shared": (case.length,), "one row": (1, case.length)}.get(case.positions, (batch, case.length)), generator=g)
    given = {"offset": 1234, "negative": -7}.get(case.positions, ids.to(DEVICE))
    return q, k, given, torch.arange(given, given + case.length, device=DEVICE) if isinstance(given, int) else given


def test_cases_hold_every_value_of_every_axis():
    seen = [set(values) for values in zip(*map(dataclasses.astuple, CASES))]
    assert [len(s) for s in seen][1:] == [8, 6, len(seen[3]), 6, 3, 2, 2, 5, 3] and len(seen[3]) > 6
    assert len({(c.length > K.SHORT, c.layout, c.dtype, c.angles) for c in CASES}) == 24


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rotation(case):
    q, k, given, ids = prepared(case)
    before = [None if x is None else x.clone() for x in (q, k)]
    inverse = bool(case.number // len(COMBINATIONS) % 2)
    turned = K.rotate(q, k, given, layout=case.layout, width=case.width, angles=case.angles, inverse=inverse)
    assert isinstance(turned, torch.Tensor) == (k is None)
    for x, y in zip((q, k), (turned, None) if k is None else turned):
        if x is None:
            continue
        assert y.dtype == x.dtype and y.data_ptr() != x.data_ptr()
        agree(y, truth(x, ids, case.layout, case.width, inverse), exact=False, slack=3e-7)
        if case.angles == "tables":
            agree(y, R.rotate(x, ids, layout=case.layout, width=case.width, inverse=inverse), exact=True)
        if case.width:
            assert torch.equal(y[..., case.width:], x[..., case.width:])
    assert torch.equal(q, before[0]) and (k is None or torch.equal(k, before[1]))


@pytest.mark.parametrize("case", CASES[:28], ids=str)
def test_into_given_memory_and_in_place(case):
    """The tensors given are views in a field of NaN, which stays; strides are theirs, whatever those of q and k are."""
    q, k, given, _ = prepared(case)
    settings = dict(layout=case.layout, width=case.width, angles=case.angles, inverse=bool(case.number % 2))
    expected = K.rotate(q, k, given, **settings)
    expected = (expected,) if k is None else expected
    fields = [torch.full((2, case.length + 2, x.shape[1] + 2, case.head_width + 4), NAN, dtype=x.dtype, device=DEVICE)
              for x in (q, k) if x is not None]
    views = [f[:, 1:-1, 1:-1, 2:-2].transpose(1, 2) for f in fields]
    returned = K.rotate(q, k, given, out=views[0] if k is None else tuple(views), **settings)
    assert all(a is b for a, b in zip((returned,) if k is None else returned, views))
    for field, view, y in zip(fields, views, expected):
        assert torch.equal(view, y)
        view.fill_(NAN)
        assert bool(field.isnan().all())
    views = [view.copy_(x) for view, x in zip(views, (q, k))]
    K.rotate(views[0], None if k is None else views[1], given, out=views[0] if k is None else tuple(views), **settings)
    for field, view, y in zip(fields, views, expected):
        assert torch.equal(view, y)
        view.fill_(NAN)
        assert bool(field.isnan().all())


def test_queries_and_keys_of_one_buffer_are_turned_in_place():
    """As a fused projection leaves them, the values beside them."""
    g = seeded("fused")
    buffer = torch.randn(2, 11, 8, 16, generator=g).to(DEVICE)
    q, k, v = (buffer[:, :, part].transpose(1, 2) for part in (slice(0, 4), slice(4, 6), slice(6, 8)))
    expected, old = K.rotate(q, k, 3, layout="half"), v.clone()
    assert K.rotate(q, k, 3, layout="half", out=(q, k))[0] is q
    assert torch.equal(q, expected[0]) and torch.equal(k, expected[1]) and torch.equal(v, old)


def test_the_same_view_given_as_another_tensor_is_in_place():
    x = vectors(seeded("view"), (1, 2, 9, 8), torch.float32)
    expected = K.rotate(x, None, 3, layout="half", width=4)
    assert torch.equal(K.rotate(x, None, 3, layout="half", width=4, out=x[:]), expected) and torch.equal(x, expected)


@pytest.mark.parametrize("layout, length", list(itertools.product(LAYOUTS, (5, 65))))
def test_bfloat16_is_rounded_to_the_nearest(layout, length):
    q = vectors(seeded(layout, length), (4, 8, length, 64), torch.bfloat16)
    for angles in ("tables", "phase"):
        y = K.rotate(q, None, 100000, layout=layout, angles=angles)
        right = truth(q, torch.arange(100000, 100000 + length), layout).to(torch.bfloat16)
        assert (y.cpu() == right).double().mean() >= 0.999


def test_rounding_of_every_kind_of_bfloat16():
    """The interpreter's own cast cuts; ties, subnormal numbers, infinities and NaN go where torch puts them."""
    bits = torch.arange(0, 2**32, 997 * 31, dtype=torch.int64).to(torch.int32)
    bits = torch.cat([bits, torch.tensor([0x3F808000, 0x3F818000, 0x7F7FFFFF, 0x7FFFFFFF, 0x7F800001, 0x00008000], dtype=torch.int32)])
    x = bits.view(torch.float32).to(DEVICE)
    out = torch.empty_like(x, dtype=torch.bfloat16)
    _store[(math.ceil(len(x) / 65536),)](x, out, len(x), BLOCK=65536)
    expected = x.to(torch.bfloat16)
    assert torch.equal(out.isnan(), expected.isnan())
    assert torch.equal(out[~out.isnan()], expected[~out.isnan()])


@triton.jit
def _store(X, OUT, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(OUT + i, _common.rounded(tl.load(X + i, mask=i < n), OUT.dtype.element_ty), mask=i < n)


# ---- angles ---------------------------------------------------------------------------------------------------------

def test_phases_are_as_exact_far_away_as_near():
    """Of unit vectors: cosine and sine themselves, against 50 digits of the frequencies that were given."""
    x = torch.zeros(1, 1, 6, 64, device=DEVICE)
    x[..., :32] = 1
    worst = {}
    with mpmath.workdps(50):
        for start in (0, 1000, 10**6, 10**9, -10**9):
            y = K.rotate(x, None, start, layout="half", angles="phase")[0, 0].cpu().double().numpy()
            w = [mpmath.mpf(float(v)) for v in R.frequencies(64)]
            cos, sin = ([[float(f((start + i) * v)) for v in w] for i in range(6)] for f in (mpmath.cos, mpmath.sin))
            worst[start] = np.abs(y - np.concatenate([cos, sin], -1)).max()
    assert max(worst.values()) < 2e-7, worst


def test_phases_of_all_quarters_and_of_their_borders():
    """One pair at 4096 places of a turn, by positions alone; and where two polynomials meet."""
    turn = K.Angles(increments=torch.tensor([2**52], device=DEVICE), positions=torch.arange(4096, device=DEVICE))
    x = torch.tensor([1.0, 0.0], device=DEVICE).expand(1, 1, 4096, 2)
    y = K.rotate(x, None, turn, layout="half")[0, 0].double().cpu()
    angle = torch.arange(4096).double() * (2 * math.pi / 4096)
    assert (y - torch.stack([angle.cos(), angle.sin()], -1)).abs().max() < 1.5e-7
    assert y[0].tolist() == [1, 0] and y[1024].tolist() == [0, 1] and y[2048].tolist() == [-1, 0] and y[3072].tolist() == [0, -1]


def test_increments_are_turns_rounded():
    omega = (1.0, 0.1, 3.0, 1e-9, -1.0, 0.0, 2 * math.pi)
    got = K.phases(0, frequencies=omega).increments.tolist()
    with mpmath.workdps(60):
        expected = [int(mpmath.nint(mpmath.mpf(w) / (2 * mpmath.pi) * 2**64)) for w in omega]
    assert all((a - b) % 2**64 == 0 for a, b in zip(got, expected)) and got[5] == 0 and got[0] == -got[4]


@pytest.mark.parametrize("kind", ["tables", "phase"])
def test_frequencies_in_place_of_a_base(kind):
    omega = R.frequencies(16, 500000.0) / 4
    q = vectors(seeded("omega"), (2, 2, 9, 32), torch.float32)
    ids = torch.arange(9, device=DEVICE) * 1000
    right = truth(q, ids, "half", 16, frequencies=omega)
    for given in (omega, tuple(omega.tolist()), torch.tensor(omega, device=DEVICE)):
        agree(K.rotate(q, None, ids, layout="half", width=16, frequencies=given, angles=kind), right, exact=False, slack=2e-7)
    got = K.rotate(q, None, ids, layout="half", width=16, base=500000.0, angles=kind)
    agree(got, truth(q, ids, "half", 16, frequencies=R.frequencies(16, 500000.0)), exact=False, slack=2e-7)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_ids_of_every_integer_dtype(dtype):
    q, ids = vectors(seeded("ids"), (1, 2, 9, 8), torch.float32), torch.tensor([100, 3, 0, 7, 7, 1, 127, 2, 5], device=DEVICE)
    for kind in ("tables", "phase"):
        assert torch.equal(K.rotate(q, None, ids.to(dtype), layout="half", angles=kind), K.rotate(q, None, ids, layout="half", angles=kind))


def test_ids_need_not_lie_side_by_side():
    q, ids = vectors(seeded("gaps"), (2, 2, 9, 8), torch.float32), torch.arange(36, device=DEVICE).reshape(9, 4)[:, :2].T
    for kind in ("tables", "phase"):
        agree(K.rotate(q, None, ids, layout="half", angles=kind), truth(q, ids, "half"), exact=False, slack=2e-7)


def test_angles_are_prepared_once(monkeypatch):
    q, k = (vectors(seeded("layers", h), (2, h, 9, 16), torch.bfloat16) for h in (4, 2))
    ids = torch.randint(0, 1000, (2, 9), generator=seeded("ids")).to(DEVICE)
    for angles, kind in ((K.tables(ids, width=8, base=100.0), "tables"), (K.phases(ids, width=8, base=100.0), "phase")):
        expected = K.rotate(q, k, ids, layout="half", width=8, base=100.0, angles=kind)
        with monkeypatch.context() as m:
            for name in ("tables", "angles", "_frequencies"):
                m.setattr(R, name, None)                    # whoever calls them fails
            m.setattr(K, "_increment", None)
            for _ in range(2):
                got = K.rotate(q, k, angles, layout="half")
                assert torch.equal(got[0], expected[0]) and torch.equal(got[1], expected[1])
    moved = K.rotate(q, k, K.phases(0, width=8, base=100.0, device=DEVICE).at(ids), layout="half")
    assert torch.equal(moved[0], expected[0])


def test_own_tables_scale_as_they_say():
    """YaRN's factor is multiplied into the tables."""
    q, ids = vectors(seeded("yarn"), (2, 2, 9, 8), torch.float32), torch.arange(9, device=DEVICE)
    plain = K.tables(ids, width=8)
    scaled = K.Angles(cos=plain.cos * 2, sin=plain.sin * 2)
    assert torch.equal(K.rotate(q, None, scaled, layout="half"), 2 * K.rotate(q, None, plain, layout="half"))


def test_angles_cannot_be_changed_by_name():
    with pytest.raises(dataclasses.FrozenInstanceError):
        K.phases(0, width=4).positions = 3


# ---- launches -------------------------------------------------------------------------------------------------------

@pytest.fixture
def launches(monkeypatch):
    """Grids of the launches, in order, with the kernels' names."""
    seen = []

    class Seen:
        def __init__(self, name, kernel):
            self.name, self.kernel = name, kernel

        def __getitem__(self, grid):
            seen.append((self.name, *grid))
            return self.kernel[grid]

    for name in ("rotate_kernel", "rows_kernel", "write_kernel"):
        monkeypatch.setattr(K, name, Seen(name, getattr(K, name)))
    return seen


def test_a_program_turns_a_group_of_heads_and_the_key_head_they_share(launches):
    q, k = (vectors(seeded("gqa", h), (2, h, 9, 16), torch.float32) for h in (8, 2))
    K.rotate(q, k, 0, layout="half")
    K.rotate(q, None, 0, layout="half")
    many, one = (vectors(seeded("gqa", h), (1, h, 9, 16), torch.float32) for h in (24, 2))
    got = K.rotate(many, one, 0, layout="half")
    assert launches == [("rotate_kernel", 2, 2), ("rotate_kernel", 2, 1), ("rotate_kernel", 1, 4)]
    assert torch.equal(got[1], R.rotate(one, torch.arange(9, device=DEVICE), layout="half")) or COMPILED


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "gfx942"])
def test_one_token_fills_tiles_with_heads(launches, monkeypatch, architecture):
    """32 heads of 4 entries are 128 rows: 8 tiles of 16, not 128 tiles with a row each."""
    monkeypatch.setattr(K._runtime, "architecture", lambda device: architecture)
    q, k = (vectors(seeded("decode", h), (4, h, 1, 128), torch.bfloat16) for h in (32, 8))
    got = K.rotate(q, k, 77, layout="half")
    assert launches == [("rows_kernel", 8 + 2)]
    agree(got[0], R.rotate(q, torch.tensor([77], device=DEVICE), layout="half"), exact=True)
    agree(got[1], R.rotate(k, torch.tensor([77], device=DEVICE), layout="half"), exact=True)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_tiles_of_a_gpu_give_the_same_bits(monkeypatch, architecture):
    q, k = (vectors(seeded("tiles", h), (2, h, 37, 64), torch.bfloat16, "blhd") for h in (4, 2))
    expected = K.rotate(q, k, 5, layout="interleaved", width=48)
    monkeypatch.setattr(K._runtime, "architecture", lambda device: architecture)
    got = K.rotate(q, k, 5, layout="interleaved", width=48)
    assert torch.equal(got[0], expected[0]) and torch.equal(got[1], expected[1])


@pytest.mark.parametrize("shape", [(0, 4, 3, 8), (2, 4, 0, 8), (2, 0, 3, 8)])
def test_nothing_to_turn_is_no_launch(launches, shape):
    x = torch.empty(shape, device=DEVICE)
    assert K.rotate(x, None, 0, layout="half").shape == shape and K.rotate(x, x, 0, layout="half")[1].shape == shape
    cache = torch.empty(shape[0], shape[1], 5, 8, device=DEVICE)
    K.write(x, x, cache, cache.clone(), layout="half", offset=0)
    assert not launches


# ---- gradients ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("case", [c for c in CASES if c.heads[1]][28:52], ids=str)
def test_gradients_are_turned_back_in_one_launch(case, launches):
    q, k, given, ids = prepared(case)
    q, k = q.detach().requires_grad_(), k.detach().requires_grad_()
    settings = dict(layout=case.layout, width=case.width)
    inverse = bool(case.number % 2)
    outs = K.rotate(q, k, given, angles=case.angles, inverse=inverse, **settings)
    g = seeded("grad", case)
    grads = [vectors(g, x.shape, x.dtype, "blhd") for x in (q, k)]
    got = torch.autograd.grad(outs, (q, k), grads)
    assert len(launches) == 2
    for y, grad in zip(got, grads):
        agree(y, truth(grad, ids, case.layout, case.width, not inverse), exact=False, slack=3e-7)
        if case.angles == "tables":
            agree(y, R.rotate(grad, ids, inverse=not inverse, **settings), exact=True)


@pytest.mark.parametrize("length", [3, 9])
def test_gradients_of_one_of_both_and_of_gradients(length, launches):
    q, k = (vectors(seeded("one", h), (2, h, length, 8), torch.float32).requires_grad_() for h in (4, 2))
    a, b = K.rotate(q, k, 3, layout="half")
    ids = torch.arange(3, 3 + length, device=DEVICE)
    for out, x in ((a, q), (b, k)):
        (grad,) = torch.autograd.grad(out.sum(), x, retain_graph=True)      # an expanded gradient, all strides 0
        agree(grad, R.rotate(torch.ones_like(out), ids, layout="half", inverse=True), exact=True)
    assert len(launches) == 3
    (grad,) = torch.autograd.grad((a**2).sum() / 2, q, create_graph=True)
    torch.testing.assert_close(grad, q)                     # a turn keeps lengths
    (second,) = torch.autograd.grad((grad * a.detach()).sum(), q)
    torch.testing.assert_close(second, a.detach())          # its derivative is the identity


def test_only_what_requires_a_gradient_gets_one():
    q, k = (vectors(seeded("half", h), (1, h, 9, 8), torch.float32) for h in (2, 2))
    a, b = K.rotate(q, k.requires_grad_(), 3, layout="half")
    (a.sum() + b.sum()).backward()
    assert q.grad is None and k.grad is not None
    assert not K.rotate(q, None, 3, layout="half").requires_grad


def test_a_changed_table_is_noticed():
    q, angles = vectors(seeded("changed"), (1, 2, 9, 8), torch.float32).requires_grad_(), K.tables(torch.arange(9, device=DEVICE), width=8)
    y = K.rotate(q, None, angles, layout="half")
    angles.cos.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_other_ways_to_differentiate():
    """Functions of functions see through it; forward mode is refused, not forgotten."""
    q, grad = (vectors(seeded("func", i), (1, 2, 9, 8), torch.float32) for i in range(2))
    got = torch.func.grad(lambda x: (K.rotate(x, None, 3, layout="half") * grad).sum())(q)
    agree(got, R.rotate(grad, torch.arange(3, 12, device=DEVICE), layout="half", inverse=True), exact=True)
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="jvp"):
        K.rotate(forward_ad.make_dual(q, grad), None, 3, layout="half")


@pytest.mark.filterwarnings("ignore:Dynamo")
def test_torch_compile_goes_around_the_interpreter():
    def doubled(x):
        return 2 * K.rotate(x, None, 3, layout="half", angles="phase")
    q, compiled = vectors(seeded("compile"), (1, 2, 3, 8), torch.float32).requires_grad_(), torch.compile(doubled, backend="eager")
    assert torch.equal(compiled(q), doubled(q))
    assert torch.equal(*(torch.autograd.grad(f(q).sum(), q)[0] for f in (compiled, doubled)))


# ---- addresses beyond 32 bits ---------------------------------------------------------------------------------------

def far_apart(shape, axis, step=2**30):
    """Vectors so far apart along `axis` that the offset of the last, 2³¹, is negative in 32 bits.

    The memory is never touched but where they lie; below them there is enough of it that a wrong address is a wrong
    result rather than a crash.
    """
    count = 2**31 + (shape[axis] - 1) * step + 2**20
    if COMPILED:
        memory = torch.empty(count, dtype=torch.bfloat16, device=DEVICE)
    else:
        buffer = mmap.mmap(-1, 2 * count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000))
        memory = torch.frombuffer(buffer, dtype=torch.bfloat16)
    strides, inner = [0, 0, 0, 1], shape[3]
    for i in (2, 1, 0):
        strides[i] = inner
        inner *= shape[i]
    strides[axis] = step
    return memory.as_strided(shape, strides, 2**31)


@pytest.mark.skipif(sys.platform != "linux", reason="memory that is promised and not given")
@pytest.mark.parametrize("axis, length", [(0, 2), (1, 2), (2, 3), (0, 9), (1, 9)])
def test_offsets_have_64_bits(axis, length):
    shape = [1, 1, length, 8]
    shape[axis] = 3
    x = vectors(seeded("far"), shape, torch.bfloat16)
    expected = K.rotate(x, None, 5, layout="half", width=4)
    far = far_apart(shape, axis)
    far.copy_(x)
    assert torch.equal(K.rotate(far, None, 5, layout="half", width=4), expected)
    out = far_apart(shape, axis)
    K.rotate(x, None, 5, layout="half", width=4, out=out)
    assert torch.equal(out, expected)
    k, key = vectors(seeded("near"), shape, torch.bfloat16), far_apart(shape, axis)
    key.copy_(k)
    assert torch.equal(K.rotate(x, key, 5, layout="half", width=4)[1], K.rotate(k, None, 5, layout="half", width=4))


@pytest.mark.skipif(sys.platform != "linux", reason="memory that is promised and not given")
def test_tokens_far_apart_in_a_long_text():
    """9 tokens need the kernel of tiles; their step is 2²⁸, so that the last offset is 2³¹."""
    x = vectors(seeded("text"), (1, 2, 9, 8), torch.bfloat16)
    far = far_apart((1, 2, 9, 8), 2, 2**28)
    far.copy_(x)
    assert torch.equal(K.rotate(far, None, 5, layout="interleaved"), K.rotate(x, None, 5, layout="interleaved"))


@pytest.mark.skipif(sys.platform != "linux", reason="memory that is promised and not given")
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_offsets_of_a_cache_have_64_bits(axis):
    shape = [1, 1, 2, 8]
    shape[axis] = 3
    heads = shape[1]
    k, v = (vectors(seeded("far cache", i), (1, heads, 1, 8), torch.bfloat16) for i in range(2))
    cache_k, cache_v = (far_apart(shape, axis).zero_() for _ in range(2))
    near_k, near_v = torch.zeros(shape, dtype=k.dtype, device=DEVICE), torch.zeros(shape, dtype=k.dtype, device=DEVICE)
    slot = torch.tensor([[shape[0] * shape[2] - 1]], device=DEVICE)
    K.write(k, v, cache_k, cache_v, 7, layout="half", slots=slot)
    K.write(k, v, near_k, near_v, 7, layout="half", slots=slot)
    assert bool(near_v.any()) and torch.equal(cache_k, near_k) and torch.equal(cache_v, near_v)


# ---- writing to a cache ---------------------------------------------------------------------------------------------

WRITES = [(kind, layout, dtype, angles, length)
          for i, (kind, layout, dtype, angles, length) in enumerate(itertools.product(
              ("offset", "offsets", "slots"), LAYOUTS, DTYPES, ("tables", "phase"), (1, 5, 67))) if i % 2 == 0]


@pytest.mark.parametrize("kind, layout, dtype, angles, length", WRITES)
def test_writing(kind, layout, dtype, angles, length, launches):
    """Into NaN: each row that is addressed is there, turned, and all others are NaN still."""
    g = seeded(kind, layout, dtype, angles, length)
    batch, heads, width, v_width, page = 2, 3, 24, 20, 16
    turning = 16 if length == 5 else None
    k = vectors(g, (batch, heads, length, width), dtype, "blhd")
    v = vectors(g, (batch, heads, length, v_width), dtype, "sliced")
    ids = torch.randint(0, 5000, (batch, length), generator=g).to(DEVICE)
    size = page if kind == "slots" else length + 9
    pages = batch * (length // page + 2) if kind == "slots" else batch
    fields = [torch.full((pages, size, heads, w + 2), NAN, dtype=dtype, device=DEVICE) for w in (width, v_width)]
    cache_k, cache_v = (f[..., 1:-1].transpose(1, 2) for f in fields)
    if kind == "slots":
        slots = torch.randperm(pages * page, generator=g)[:batch * length].reshape(batch, length).to(DEVICE)
        slots[1, -1] = -1                                   # padding
        where, places = {"slots": slots}, slots.tolist()
    else:
        first = [4, 4] if kind == "offset" else [9, 2]
        where = {"offset": 4 if kind == "offset" else torch.tensor(first, device=DEVICE)}
        places = [[b * size + first[b] + i for i in range(length)] for b in range(batch)]
    returned = K.write(k, v, cache_k, cache_v, ids, layout=layout, width=turning, angles=angles, **where)
    assert returned[0] is cache_k and returned[1] is cache_v and len(launches) == 1
    turned = K.rotate(k, None, ids, layout=layout, width=turning, angles=angles)
    assert bool(turned.isfinite().all())
    for b, i in itertools.product(range(batch), range(length)):
        slot = places[b][i]
        if slot >= 0:
            for cache, x in ((cache_k, turned), (cache_v, v)):
                row = cache[slot // size, :, slot % size]
                assert torch.equal(row, x[b, :, i])
                row.fill_(NAN)
    assert all(bool(f.isnan().all()) for f in fields)


@pytest.mark.parametrize("angles", ["tables", "phase"])
def test_keys_stand_where_they_are_written_unless_told_otherwise(angles):
    k, v = (vectors(seeded("default", i), (2, 2, 3, 8), torch.float32) for i in range(2))
    for offset, first in ((4, [4, 4]), (torch.tensor([1, 5], device=DEVICE), [1, 5])):
        cache_k, cache_v = (torch.full((2, 2, 8, 8), NAN, device=DEVICE) for _ in range(2))
        K.write(k, v, cache_k, cache_v, layout="half", offset=offset, angles=angles)
        for b in range(2):
            place = slice(first[b], first[b] + 3)
            agree(cache_k[b:b + 1, :, place], truth(k[b:b + 1], torch.arange(first[b], first[b] + 3), "half"), exact=False, slack=2e-7)
            assert torch.equal(cache_v[b, :, place], v[b])


def test_what_is_written_step_by_step_is_the_whole():
    """Prefill, then one token after the other, with prepared angles: the same cache, bit by bit."""
    k, v = (vectors(seeded("steps", i), (2, 2, 12, 16), torch.bfloat16) for i in range(2))
    whole, steps = ([torch.full((2, 2, 16, 16), NAN, dtype=k.dtype, device=DEVICE) for _ in range(2)] for _ in range(2))
    K.write(k, v, *whole, layout="interleaved", offset=0, angles="phase")
    angles = K.phases(0, width=16, device=DEVICE)
    for start, end in ((0, 9), *((i, i + 1) for i in range(9, 12))):
        K.write(k[:, :, start:end], v[:, :, start:end], *steps, angles.at(start), layout="interleaved", offset=start)
    for a, b in zip(whole, steps):
        assert torch.equal(a[:, :, :12], b[:, :, :12]) and bool(a[:, :, 12:].isnan().all()) and bool(b[:, :, 12:].isnan().all())


def test_places_outside_the_cache_are_not_written_to(monkeypatch):
    """On a GPU nobody looks at ids before the launch; here the look is taken away."""
    monkeypatch.setattr(K, "_places", lambda k, cache, offset, slots: (offset if slots is None else slots, 0))
    k = vectors(seeded("outside"), (2, 1, 3, 8), torch.float32)
    for cache_shape, where in (((2, 1, 4, 8), {"offset": torch.tensor([3, -2], device=DEVICE)}),
                               ((2, 1, 4, 8), {"slots": torch.tensor([[3, 8, 99], [-5, -1, 4]], device=DEVICE)})):
        field = torch.full((6, *cache_shape[1:]), NAN, device=DEVICE)
        cache = field[2:4]
        K.write(k, k, cache, cache_v := torch.full(cache_shape, NAN, device=DEVICE), 0, layout="half", **where)
        written = torch.tensor([[3], [0]] if "offset" in where else [[3], [0]])
        for c in (cache, cache_v):
            rows = c[:, 0, :, 0].isfinite().nonzero()
            assert rows.tolist() == [[0, 3], [1, int(written[1])]]
        cache.fill_(NAN)
        assert bool(field.isnan().all())


# ---- errors ---------------------------------------------------------------------------------------------------------

def ones(*shape, dtype=torch.float32):
    return torch.ones(*shape, dtype=dtype, device=DEVICE)


Q, KEYS = ones(2, 4, 3, 8), ones(2, 2, 3, 8)
CACHE = {"cache_k": ones(2, 2, 5, 8), "cache_v": ones(2, 2, 5, 8)}
IDS = torch.arange(3, device=DEVICE)


def put(k=KEYS, v=KEYS, positions=0, layout="half", **settings):
    caches = [settings.pop(n, CACHE[n]) for n in ("cache_k", "cache_v")]
    return K.write(k, v, *caches, positions, layout=layout, **settings)


test_bad_input = bad_input_test({
    "array": (lambda: K.rotate(np.ones((2, 4, 3, 8)), None, 0, layout="half"), TypeError, "q is a ndarray; allowed is a tensor"),
    "float64": (lambda: K.rotate(Q.double(), None, 0, layout="half"), TypeError, "q has dtype torch.float64; allowed are float32, float16"),
    "three axes": (lambda: K.rotate(Q[0], None, 0, layout="half"), ValueError, r"q has shape \(4, 3, 8\); allowed is \(batch, heads"),
    "channels apart": (lambda: K.rotate(ones(2, 4, 8, 3).mT, None, 0, layout="half"), ValueError, "q has strides .*; allowed is 1 for the channels"),
    "two dtypes": (lambda: K.rotate(Q, KEYS.half(), 0, layout="half"), TypeError, "k has dtype torch.float16, q torch.float32: they must"),
    "two devices": (lambda: K.rotate(Q, KEYS.to("meta"), 0, layout="half"), ValueError, "k is on device meta"),
    "two lengths": (lambda: K.rotate(Q, KEYS[:, :, :2], 0, layout="half"), ValueError, "they may differ in their heads alone"),
    "heads": (lambda: K.rotate(Q[:, :3], KEYS, 0, layout="half"), ValueError, "q has 3 heads, k 2; allowed is a number that divides"),
    "more keys": (lambda: K.rotate(KEYS, Q, 0, layout="half"), ValueError, "q has 2 heads, k 4"),
    "layout": (lambda: K.rotate(Q, KEYS, 0, layout="neox"), ValueError, "layout is 'neox'; allowed are 'half'"),
    "odd width": (lambda: K.rotate(Q, KEYS, 0, layout="half", width=3), ValueError, "width is 3"),
    "wide width": (lambda: K.rotate(Q, KEYS, 0, layout="half", width=10), ValueError, "width is 10, x has shape"),
    "base": (lambda: K.rotate(Q, KEYS, 0, layout="half", base=0.5), ValueError, "base is 0.5; allowed is"),
    "two settings": (lambda: K.rotate(Q, KEYS, 0, layout="half", base=5.0, frequencies=(1.0,) * 4), ValueError, "base is 5.0 and frequencies are given"),
    "frequencies": (lambda: K.rotate(Q, KEYS, 0, layout="half", frequencies=(1.0,) * 3, angles="phase"), ValueError, r"frequencies has shape \(3,\)"),
    "infinite": (lambda: K.rotate(Q, KEYS, 0, layout="half", frequencies=(1.0, math.inf, 1.0, 1.0), angles="phase"), ValueError, "frequencies holds inf"),
    "learned": (lambda: K.rotate(Q, KEYS, 0, layout="half", frequencies=ones(4, dtype=torch.float64).requires_grad_()), ValueError,
                "frequencies requires a gradient, which kernels do not form"),
    "angles": (lambda: K.rotate(Q, KEYS, 0, layout="half", angles="fast"), ValueError, "angles is 'fast'; allowed are 'tables' and 'phase'"),
    "inverse": (lambda: K.rotate(Q, KEYS, 0, layout="half", inverse=1), TypeError, "inverse is 1; allowed are True and False"),
    "float ids": (lambda: K.rotate(Q, KEYS, IDS.float(), layout="half"), TypeError, "positions has dtype torch.float32"),
    "float offset": (lambda: K.rotate(Q, KEYS, 1.0, layout="half"), TypeError, "positions is 1.0; allowed is a tensor of integers, or"),
    "bool offset": (lambda: K.rotate(Q, KEYS, True, layout="half"), TypeError, "positions is True"),
    "far offset": (lambda: K.rotate(Q, KEYS, 2**63, layout="half"), ValueError, r"positions is 9223372036854775808; allowed is up to 2\*\*62"),
    "ids of a tensor": (lambda: K.rotate(Q, KEYS, IDS.reshape(1, 1, 3), layout="half"), ValueError, "positions has shape"),
    "few ids": (lambda: K.rotate(Q, KEYS, IDS[:2], layout="half"), ValueError, r"positions has shape \(2,\), x \(2, 4, 3, 8\)"),
    "few phases": (lambda: K.rotate(Q, KEYS, IDS[:1], layout="half", angles="phase"), ValueError, r"positions has shape \(1,\), x"),
    "few tables": (lambda: K.rotate(Q, KEYS, K.tables(IDS[:2], width=4), layout="half"), ValueError, r"positions has shape \(2,\), x"),
    "batches": (lambda: K.rotate(Q, KEYS, IDS.expand(3, 3), layout="half"), ValueError, r"positions has shape \(3, 3\), x"),
    "angles and base": (lambda: K.rotate(Q, KEYS, K.phases(0, width=8), layout="half", base=5.0), ValueError, "base 5.0, .* positions are Angles"),
    "angles too wide": (lambda: K.rotate(Q, KEYS, K.phases(0, width=10), layout="half"), ValueError, "positions turns 5 pairs, x has shape"),
    "ids elsewhere": (lambda: K.rotate(Q, KEYS, torch.arange(3, device="meta"), layout="half"), ValueError, "positions is on device meta"),
    "width of nothing": (lambda: K.phases(0), TypeError, "width is None; allowed is an even number, or frequencies"),
    "tables of a number": (lambda: K.tables(3, width=4), TypeError, "positions is 3; allowed is a tensor of integers"),
    "tables of a scalar": (lambda: K.tables(IDS[0], width=4), ValueError, r"positions has shape \(\); allowed are"),
    "no angles": (lambda: K.Angles(), ValueError, "given are none; allowed are cos and sin, or"),
    "half of angles": (lambda: K.Angles(cos=ones(3, 2)), ValueError, "given are cos; allowed"),
    "both angles": (lambda: K.Angles(ones(3, 2), ones(3, 2), IDS, 0), ValueError, "given are cos, sin, increments, positions"),
    "table dtype": (lambda: K.Angles(ones(3, 2).half(), ones(3, 2).half()), TypeError, "cos has dtype torch.float16; allowed is float32"),
    "table shapes": (lambda: K.Angles(ones(3, 2), ones(3, 1)), ValueError, r"cos has shape \(3, 2\), sin \(3, 1\)"),
    "learned table": (lambda: K.Angles(ones(3, 2).requires_grad_(), ones(3, 2)), ValueError, "cos requires a gradient"),
    "increments": (lambda: K.Angles(increments=IDS.int(), positions=0), TypeError, "increments has dtype torch.int32"),
    "tables elsewhere": (lambda: K.tables(IDS, width=4).at(3), ValueError, "cos and sin hold no frequencies"),
    "one out": (lambda: K.rotate(Q, KEYS, 0, layout="half", out=Q), TypeError, "out is a Tensor; allowed is a pair"),
    "out shape": (lambda: K.rotate(Q, KEYS, 0, layout="half", out=(Q, ones(2, 2, 4, 8))), ValueError, r"out has shape \(2, 2, 4, 8\), x"),
    "out dtype": (lambda: K.rotate(Q, None, 0, layout="half", out=Q.half()), TypeError, "out of q has dtype torch.float16, q torch.float32"),
    "out broadcast": (lambda: K.rotate(Q, None, 0, layout="half", out=ones(1, 4, 3, 8).expand(2, 4, 3, 8)), ValueError, "entries that share memory"),
    "out overlaps": (lambda: (lambda x: K.rotate(x[:, :, :3], None, 0, layout="half", out=x[:, :, 1:]))(ones(2, 4, 4, 8)), ValueError, "out overlaps x in memory"),
    "out overlaps k": (lambda: K.rotate(Q, Q.clone(), 0, layout="half", out=((x := ones(2, 4, 3, 8)), x)), ValueError, "out of q overlaps out of k"),
    "out is k": (lambda: (lambda q, k: K.rotate(q, k, 0, layout="half", out=(k, q)))(ones(2, 4, 3, 8), ones(2, 4, 3, 8)), ValueError, "overlaps q in memory"),
    "out under autograd": (lambda: K.rotate(x := ones(2, 4, 3, 8).requires_grad_(), None, 0, layout="half", out=x), ValueError,
                           "out is given while gradients are recorded"),
    "no place": (lambda: put(), TypeError, "offset is None, slots is None; allowed is one of the two"),
    "two places": (lambda: put(offset=0, slots=IDS), TypeError, "allowed is one of the two"),
    "past the end": (lambda: put(offset=3), ValueError, "offset is 3, k has 3 tokens, cache_k 5 slots; allowed is 0 to 2"),
    "before the start": (lambda: put(offset=-1), ValueError, "offset is -1"),
    "float place": (lambda: put(offset=1.5), TypeError, "offset is 1.5; allowed is a tensor of integers, or a whole number"),
    "number for slots": (lambda: put(slots=3), TypeError, "slots is 3; allowed is a tensor of integers"),
    "offsets": (lambda: put(offset=IDS), ValueError, r"offset has shape \(3,\), k \(2, 2, 3, 8\); allowed is \(2,\)"),
    "slots for none": (lambda: put(positions=None, slots=IDS.expand(2, 3)), TypeError, "positions is None; allowed with slots"),
    "cache dtype": (lambda: put(cache_k=CACHE["cache_k"].half(), offset=0), TypeError, "cache_k has dtype torch.float16, k torch.float32"),
    "cache heads": (lambda: put(cache_v=ones(2, 1, 5, 8), offset=0), ValueError, "heads and head width must be the same"),
    "cache batch": (lambda: put(cache_k=ones(3, 2, 5, 8), cache_v=ones(3, 2, 5, 8), offset=0), ValueError, "with offset they must have one batch"),
    "cache sizes": (lambda: put(cache_k=ones(2, 2, 6, 8), offset=0), ValueError, r"cache_k has shape \(2, 2, 6, 8\), cache_v"),
    "v": (lambda: put(v=KEYS[:, :1], offset=0), ValueError, "they may differ in their head width alone"),
    "one cache": (lambda: put(cache_v=CACHE["cache_k"], offset=0), ValueError, "cache_v overlaps cache_k in memory"),
    "cache is k": (lambda: put(cache_k=KEYS, cache_v=ones(2, 2, 3, 8), offset=0), ValueError, "cache_k overlaps k in memory"),
    "broadcast cache": (lambda: put(cache_k=ones(1, 2, 5, 8).expand(2, 2, 5, 8), offset=0), ValueError, "cache_k has entries that share memory"),
    "cached gradient": (lambda: put(k=KEYS.clone().requires_grad_(), offset=0), ValueError, "gradients are recorded, and a cache takes none"),
    "too wide": (lambda: K.rotate(ones(1, 1, 2, 1024), None, 0, layout="half"), ValueError, "width 1024 of a head is not covered by kernel 'rows'"),
})

if not COMPILED:                                            # on a GPU nobody looks
    test_bad_places = bad_input_test({
        "offsets past the end": (lambda: put(offset=torch.tensor([0, 3])), ValueError, "offset holds 3, k has 3 tokens"),
        "negative offsets": (lambda: put(offset=torch.tensor([0, -3])), ValueError, "offset holds -3"),
        "slots past the end": (lambda: put(slots=torch.tensor([[0, 1, 2], [3, 4, 10]])), ValueError, "slots holds 10"),
    })


def test_all_kernels_have_configurations():
    """Of 16 bytes for each thread, where a tile has so many."""
    for kernel, width, size in itertools.product(("rotate", "rows", "write"), (32, 64, 128, 256), (2, 4)):
        for architecture in configs.ARCHITECTURES:
            c = configs.find(kernel, width, size, architecture)
            assert c.rows * (width // 2) * size == 16 * 32 * c.warps and c.stages == 1
