"""Large tensors on the CPU turn block by block: the same bits as at once, the same derivatives, and `rotary.turn`."""

import weakref

import array_api_compat.torch as xp
import numpy as np
import pytest
import torch
from torch.autograd import forward_ad

from conftest import bad_input_test
from poslib import rotary as R
from poslib._torch import blocks

LAYOUTS = ("half", "interleaved")
layouts = pytest.mark.parametrize("layout", LAYOUTS)
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def draw(seed, *shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def some_tables(x, width, rows):
    ids = torch.randint(-10**5, 10**5, (x.shape[0], x.shape[-2]) if rows else (x.shape[-2],), generator=torch.Generator().manual_seed(1))
    return R.tables(R.angles(ids, R.frequencies(width)), x.dtype)


def at_once(x, cos, sin, layout):
    """The turn of the array API, whatever the size."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "pays", lambda *_: False)
        return R.turn(x, cos, sin, layout=layout)


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def tiny(monkeypatch):
    """Blocks of a few numbers: whatever is turned is cut many times, on all axes."""
    monkeypatch.setattr(blocks, "GRAIN", 4)


def views(x):
    """`x` as itself, with the heads inside, as a part of something wider, one number off, and transposed."""
    yield x
    yield x.transpose(-3, -2).contiguous().transpose(-3, -2)
    yield torch.cat((x, x), -1)[..., :x.shape[-1]]
    yield torch.cat((x[..., :1], x), -1)[..., 1:]
    yield x.mT.contiguous().mT


SHAPES = {  # shape, width: whole steps of the loop over complex numbers, and not; parts for the threads that are even, and not
    "text": ((1, 4, 1200, 128), 128), "batch": ((3, 2, 517, 72), 70), "uneven": ((1, 5, 1023, 32), 32), "80": ((2, 2, 999, 80), 64),
    "96": ((1, 3, 999, 96), 96), "one pair": ((1, 2, 40001, 2), 2), "decoding": ((40, 17, 1, 128), 128), "no axes but two": ((1, 1, 1111, 160), 160),
}


@layouts
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_blocks_have_the_bits_of_the_whole_on_any_number_of_threads(threads, layout, dtype, shape):
    (shape, width), differing = SHAPES[shape], lambda a, b: int((a != b).sum())
    x = draw(2, *shape, dtype=dtype)
    cos, sin = some_tables(x, width, rows=True)
    threads(1)
    want = at_once(x, cos, sin, layout)
    for count in (1, 2, 3):
        threads(count)
        for view in views(x):
            assert view.numel() > 2 * blocks.GRAIN
            got, out, inside = R.turn(view, cos, sin, layout=layout), torch.full_like(view, torch.nan), view.clone()
            assert R.turn(view, cos, sin, layout=layout, out=out) is out and R.turn(inside, cos, sin, layout=layout, out=inside) is inside
            assert differing(got, want) == differing(out, want) == differing(inside, want) == 0 and got.stride() == want.stride()


@layouts
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_a_large_tensor_are_those_of_small_ones(layout, dtype):
    x, ids = draw(3, 2, 8, 300, 96, dtype=dtype), torch.arange(300) * 333
    whole = R.rotate(x, ids, layout=layout, width=64)
    for a, b in ((0, 1), (7, 9), (128, 140), (299, 300)):
        part = R.rotate(x[:1, :, a:b], ids[a:b], layout=layout, width=64)
        assert part.numel() <= 2 * blocks.GRAIN < x.numel() and torch.equal(part, whole[:1, :, a:b])


@layouts
def test_blocks_of_a_few_numbers_cover_everything_once(tiny, layout):
    for shape in ((7,), (2, 7), (3, 2, 7), (2, 3, 5, 33), (2, 1, 1, 40)):
        x = draw(4, *shape, 10)
        for rows in (False, len(shape) > 1):
            cos, sin = some_tables(x, 6, rows)
            want, out = at_once(x, cos, sin, layout), torch.full_like(x, torch.nan)
            assert torch.equal(R.turn(x, cos, sin, layout=layout), want)
            assert torch.equal(R.turn(x, cos, sin, layout=layout, out=out), want)
    nothing = torch.empty(0, 3, 4)
    assert R.rotate(nothing, torch.arange(3), layout=layout, out=nothing) is nothing


@layouts
def test_what_is_not_finite_or_has_a_sign_stays(layout):
    x = draw(5, 40, 40, 128)
    for value, at in ((torch.inf, 3), (-torch.inf, 70), (torch.nan, 9), (-0.0, slice(20, 60)), (0.0, slice(100, 128))):
        x[::3, :, at] = value
    cos, sin = some_tables(x, 128, rows=False)
    cos[::2], sin[::2] = 1, 0
    got, want = R.turn(x, cos, sin, layout=layout), at_once(x, cos, sin, layout)
    assert torch.equal(got.isnan(), want.isnan()) and torch.equal(got.nan_to_num(7), want.nan_to_num(7))
    assert torch.equal(got.signbit() & ~got.isnan(), want.signbit() & ~want.isnan())


def test_where_products_are_fused_pairs_are_not_seen_as_complex_numbers():
    """The reason for the conditions: outside of whole steps torch's complex product has other bits, on x86 with AVX2."""
    fits = lambda *shape: blocks._multiplies_exactly(torch.empty(*shape))
    assert fits(3, 32) == fits(3, 128) == (torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512"))
    odd = torch.empty(3, 131)
    assert not any((fits(3, 16), fits(3, 80), fits(3, 34), blocks._multiplies_exactly(odd[:, 3:]), blocks._multiplies_exactly(odd[:, :128]),
                    blocks._multiplies_exactly(torch.empty(32, 4).mT), blocks._multiplies_exactly(torch.empty(3, 32), torch.empty(3, 64)[:, ::2])))


def test_parts_of_threads_end_with_whole_steps(threads):
    for count in (1, 2, 3, 8):
        threads(count)
        for pairs in (16, blocks.GRAIN, blocks.GRAIN + 16, 2 * blocks.GRAIN, 2 * blocks.GRAIN - 1024, 3 * blocks.GRAIN, 5 * blocks.GRAIN - 32):
            if blocks._fits(pairs):
                parts = min(count, -(-pairs // blocks.GRAIN))
                assert parts == 1 or -(-pairs // parts) % blocks.LANES == 0
        most = blocks.GRAIN * (8 if count == 1 else 32 * count)
        assert blocks._fits(most) and not blocks._fits(most + blocks.LANES * count)


# -- derivatives

@layouts
@pytest.mark.parametrize("width", [6, 4])
@pytest.mark.parametrize("rows", [False, True])
def test_derivatives_once_and_twice_backwards_and_forwards(tiny, layout, width, rows):
    x = draw(6, 2, 2, 5, 6, dtype=torch.float64).requires_grad_()
    cos, sin = some_tables(x, width, rows)
    turn = lambda x: R.turn(x, cos, sin, layout=layout)
    assert "Turn" in type(turn(x).grad_fn).__name__
    assert torch.autograd.gradcheck(turn, x, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(turn, x, check_fwd_over_rev=True, check_rev_over_rev=True)
    forwards, backwards = torch.func.jacfwd(turn)(x.detach()), torch.func.jacrev(turn)(x.detach())       # vmap over derivatives
    assert torch.equal(forwards, backwards)
    torch.testing.assert_close((forwards.flatten(4) @ x.detach().flatten()), turn(x).detach(), rtol=0, atol=1e-14)


@layouts
@pytest.mark.parametrize("width", [6, 4])
def test_derivatives_along_tables(tiny, layout, width):
    x = draw(7, 2, 5, 6, dtype=torch.float64)
    cos, sin = some_tables(x, width, rows=False)
    turn = lambda x, cos, sin: R.turn(x, cos, sin, layout=layout)
    along = [draw(8 + i, *t.shape, dtype=torch.float64) for i, t in enumerate((x, cos, sin))]
    for which in ([0], [1], [2], [0, 1], [1, 2], [0, 1, 2]):
        part = lambda *some, which=which: turn(*(some[which.index(i)] if i in which else t for i, t in enumerate((x, cos, sin))))
        at, to = ([given[i] for i in which] for given in ((x, cos, sin), along))
        _, got = torch.func.jvp(part, tuple(at), tuple(to))
        with forward_ad.dual_level():
            dual = forward_ad.unpack_dual(part(*(forward_ad.make_dual(a, d) for a, d in zip(at, to)))).tangent
        torch.testing.assert_close(dual, got, rtol=0, atol=1e-14)
        step = 1e-6
        slope = (part(*(a + step * d for a, d in zip(at, to))) - part(*(a - step * d for a, d in zip(at, to)))) / (2 * step)
        torch.testing.assert_close(got, slope, rtol=0, atol=1e-8)
    inputs = [t.clone().requires_grad_() for t in (x, cos, sin)]
    assert torch.autograd.gradcheck(turn, inputs)                   # tables that learn: not by blocks


@layouts
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_gradient_is_the_turn_back_bit_for_bit_and_keeps_no_vectors(layout, dtype):
    x, dy, ids = draw(9, 3, 400, 96, dtype=dtype), draw(10, 3, 400, 96, dtype=dtype), torch.arange(400) * 99
    for width in (96, 64):
        hidden = x.clone().requires_grad_() * 1
        alive = weakref.ref(hidden)
        y = R.rotate(hidden, ids, layout=layout, width=width)
        leaf = x.clone().requires_grad_()
        (dx,) = torch.autograd.grad(R.rotate(leaf, ids, layout=layout, width=width), leaf, dy)
        assert torch.equal(dx, R.rotate(dy, ids, layout=layout, width=width, inverse=True))
        del hidden
        assert alive() is None and y.grad_fn is not None
        (dx,) = torch.autograd.grad(R.rotate(leaf, ids, layout=layout, width=width).sum(), leaf)            # an expanded gradient
        assert torch.equal(dx, R.rotate(torch.ones_like(x), ids, layout=layout, width=width, inverse=True))


@layouts
def test_frequencies_learn_from_large_tensors(layout):
    x, ids = draw(11, 2, 400, 96), torch.arange(400)
    grads = []
    for part in (x, x.double()):
        omega = torch.from_numpy(R.frequencies(96)).requires_grad_()
        (R.rotate(part, ids, layout=layout, frequencies=omega) * draw(16, 96)).sum().backward()
        grads.append(omega.grad)
    assert grads[1].abs().min() > 0 and torch.allclose(grads[0], grads[1], rtol=1e-4, atol=1e-3)


@layouts
@pytest.mark.parametrize("dims", [(0, None, None), (2, None, None), (None, 0, 1), (1, 2, None), (-1, -1, 0)])
def test_vmap_over_vectors_and_tables(tiny, layout, dims):
    x = draw(12, 2, 3, 5, 10)
    cos, sin = some_tables(x, 6, rows=True)
    batch = [torch.stack([t, t * 2, t - 1], d) if d is not None else t for t, d in zip((x, cos, sin), dims)]
    turn = lambda *tables: R.turn(*tables, layout=layout)
    got = torch.func.vmap(turn, dims)(*batch)
    for i in range(3):
        assert torch.equal(got[i], turn(*(t if d is None else t.select(d, i) for t, d in zip(batch, dims))))


def test_large_tensors_inside_of_transforms_of_functions():
    """Wrappers own no memory, constants beside them do."""
    x, ids = draw(17, 3, 800, 32), torch.arange(800)
    turn = lambda x: R.rotate(x, ids, layout="half")
    want, many = turn(x), torch.stack([x, 2 * x])
    assert torch.equal(torch.func.vmap(turn)(many), torch.stack([want, 2 * want]))
    assert torch.equal(torch.func.grad(lambda x: (turn(x) * want).sum())(x), R.rotate(want, ids, layout="half", inverse=True))
    assert torch.equal(torch.func.jvp(turn, (x,), (x,))[1], want)
    for constant in (x, x.clone().requires_grad_()):
        assert torch.equal(torch.func.vmap(lambda s: s * turn(constant))(torch.tensor([1.0, 2.0])), torch.stack([want, 2 * want]))
        assert torch.equal(torch.func.grad(lambda s: (s * turn(constant)).sum())(torch.tensor(1.0)), want.sum())
    leaf = x.clone().requires_grad_()
    (rows,) = torch.autograd.grad(turn(leaf), leaf, torch.stack([want, 2 * want]), is_grads_batched=True)
    assert torch.equal(rows[1], 2 * rows[0]) and torch.equal(rows[0], R.rotate(want, ids, layout="half", inverse=True))


# -- what blocks are for, and what not

def test_what_is_not_as_plain_as_it_seems_turns_at_once():
    large, table = torch.zeros(3 * blocks.GRAIN), torch.zeros(1)

    class Other(torch.Tensor):
        pass
    assert blocks.pays(large, table, table, None) and blocks.pays(torch.nn.Parameter(large), table, table, None)
    assert blocks.pays(table, table, table, table) and not blocks.pays(large[:2 * blocks.GRAIN], table, table, None)
    assert not blocks.pays(large.as_subclass(Other), table, table, None) and not blocks.pays(large.to("meta"), table, table, None)
    assert not blocks.pays(large, table, table, large.as_subclass(Other)) and not blocks.pays(large, table.clone().requires_grad_(), table, None)
    other = R.rotate(draw(1, 700, 128).as_subclass(Other), torch.arange(700), layout="half")
    assert type(other) is Other and torch.equal(other.as_subclass(torch.Tensor), R.rotate(draw(1, 700, 128), torch.arange(700), layout="half"))


@pytest.mark.filterwarnings("ignore")
@layouts
def test_a_large_turn_compiles_to_one_graph(layout):
    x, ids = draw(13, 2, 400, 96, dtype=torch.bfloat16), torch.arange(400)
    turn = lambda x: R.rotate(x, ids, layout=layout, width=64)
    assert torch.equal(torch.compile(turn, backend="eager", fullgraph=True)(x), turn(x))


@layouts
@pytest.mark.parametrize("setting", [torch.inference_mode, torch.no_grad, lambda: torch.autocast("cpu", torch.bfloat16), lambda: torch.device("meta"),
                                     lambda: torch.set_grad_enabled(True)])
def test_settings_from_outside_change_no_bit_of_large_tensors(layout, setting):
    x, ids = draw(14, 2, 400, 96, dtype=torch.bfloat16), torch.arange(400)
    before, want = x.clone(), R.rotate(x, ids, layout=layout)
    with setting():
        got = R.rotate(x, ids, layout=layout)
        assert got.dtype == x.dtype and torch.equal(got, want) and torch.equal(x, before)
        got.zero_()
    assert torch.equal(x, before) and torch.equal(R.rotate(x, ids, layout=layout), want)


# -- tables at hand

KINDS = {"numpy": np.asarray, "torch": lambda x: torch.as_tensor(np.asarray(x))}


@pytest.mark.parametrize("kind", KINDS)
@layouts
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_turn_is_rotate_in_two_steps(kind, layout, dtype):
    to = KINDS[kind]
    x = to(draw(15, 2, 3, 5, 10).numpy().astype(dtype))
    for ids in (np.arange(5) * 70000, np.array([[3, 1, -4, 1, 5]]), np.array([[3, 1, -4, 1, 5], [9, 2, 6, 5, 3]])):
        for width in (10, 6):
            cos, sin = R.tables(R.angles(to(ids), R.frequencies(width)), x.dtype)
            for inverse in (False, True):
                want = R.rotate(x, to(ids), layout=layout, width=width, inverse=inverse)
                got = R.turn(x, cos, sin, layout=layout, inverse=inverse)
                assert type(got) is type(x) and got.dtype == x.dtype and bool((got == want).all()) and bool((got != x).any())
                inside = x.clone() if kind == "torch" else x.copy()
                assert R.turn(inside, cos, sin, layout=layout, inverse=inverse, out=inside) is inside and bool((inside == want).all())


def test_out_of_a_turn_while_gradients_are_recorded():
    x, table = torch.ones(3, 4), torch.ones(3, 2)
    for given in ((x.clone().requires_grad_(), table, table), (x, table.clone().requires_grad_(), table), (x, table, table.clone().requires_grad_())):
        with pytest.raises(ValueError, match="out is given while gradients are recorded"):
            R.turn(*given, layout="half", out=torch.empty(3, 4))
        with torch.no_grad():
            assert R.turn(*given, layout="half", out=torch.empty(3, 4)).eq(torch.tensor([0.0, 0, 2, 2])).all()


X, T, C, CT = np.ones((3, 4)), torch.ones(3, 4), np.ones((3, 2)), torch.ones(3, 2)
turn = lambda *tensors, layout="half", **more: R.turn(*tensors, layout=layout, **more)
SHARED = np.ones((3, 6))
BAD = {
    "x list": (lambda: turn([[1.0, 2.0]], C, C), TypeError, r"x is a list"),
    "x integers": (lambda: turn(X.astype(int), C, C), TypeError, r"x has dtype int64; allowed are float dtypes"),
    "x one axis": (lambda: turn(X[0], C, C), ValueError, r"x has shape \(4,\); allowed is \(\.\.\., length, width\)"),
    "no layout": (lambda: R.turn(X, C, C), TypeError, r"layout"),
    "layout": (lambda: turn(X, C, C, layout="neox"), ValueError, r"layout is 'neox'; allowed are 'half'"),
    "inverse": (lambda: turn(X, C, C, inverse=1), TypeError, r"inverse is 1; allowed are True and False"),
    "cos list": (lambda: turn(X, [1.0], C), TypeError, r"cos is a list"),
    "sin kind": (lambda: turn(X, C, CT), TypeError, r"sin is a Tensor, x a ndarray"),
    "narrow": (lambda: turn(X, C.astype("f4"), C.astype("f4")), TypeError, r"cos has dtype float32, x float64; allowed is .*float64"),
    "tables in the dtype of x": (lambda: turn(T.bfloat16(), CT.bfloat16(), CT.bfloat16()), TypeError,
                                 r"cos has dtype torch\.bfloat16, x torch\.bfloat16; allowed is torch\.float32, as tables\(\.\.\., x\.dtype\)"),
    "sin wide": (lambda: turn(T, CT, CT.double()), TypeError, r"sin has dtype torch\.float64, x torch\.float32"),
    "device": (lambda: turn(T, CT, CT.to("meta")), ValueError, r"sin is on device meta, x on cpu"),
    "shapes differ": (lambda: turn(X, C, C[:, :1]), ValueError, r"cos has shape \(3, 2\), sin \(3, 1\): they must be the same"),
    "no pair": (lambda: turn(X, C[:, :0], C[:, :0]), ValueError, r"cos has shape \(3, 0\); allowed is \(length, pairs\)"),
    "a row": (lambda: turn(X, C[0], C[0]), ValueError, r"cos has shape \(2,\); allowed is \(length, pairs\) or \(batch, length, pairs\)"),
    "of heads": (lambda: turn(np.ones((2, 5, 3, 4)), np.ones((2, 1, 3, 2)), np.ones((2, 1, 3, 2))), ValueError, r"cos has shape \(2, 1, 3, 2\)"),
    "length": (lambda: turn(X, C[:2], C[:2]), ValueError, r"cos\[\.\.\., 0\] has shape \(2,\), x \(3, 4\): .*here \(3,\)"),
    "batch": (lambda: turn(np.ones((2, 3, 4)), np.ones((3, 3, 2)), np.ones((3, 3, 2))), ValueError, r"here \(3,\) or \(2, 3\) or \(1, 3\)"),
    "width": (lambda: turn(X, np.ones((3, 3)), np.ones((3, 3))), ValueError, r"cos has shape \(3, 3\), x \(3, 4\); allowed are at most 2 pairs"),
    "duplicated halves": (lambda: turn(X, np.ones((3, 4)), np.ones((3, 4))), ValueError, r"allowed are at most 2 pairs"),
    "out shape": (lambda: turn(X, C, C, out=np.ones((1, 3, 4))), ValueError, r"out has shape \(1, 3, 4\), x \(3, 4\)"),
    "out in the tables": (lambda: turn(X, SHARED[:, :2], C, out=SHARED[:, 1:5]), ValueError, r"out overlaps cos in memory; allowed is an array apart from it"),
    "out in the sines": (lambda: turn(X, C, SHARED[:, :2], out=SHARED[:, 1:5]), ValueError, r"out overlaps sin in memory"),
}


test_bad_input_names_the_argument_the_value_and_what_is_allowed = bad_input_test(BAD)
