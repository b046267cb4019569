"""poslib.absolute against decimal arithmetic, the defining identities, and every error it promises."""

import ast
import math
from decimal import Decimal, getcontext
from pathlib import Path

import array_api_compat
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import bad_input_test
from poslib import absolute as B
from poslib.collisions import rounded

getcontext().prec = 60
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803")
EPS = 2.0**-52
XP = array_api_compat.array_namespace(torch.ones(1))
KINDS = {"numpy": np.asarray, "torch": lambda x: torch.tensor(np.asarray(x))}
EVERY = [0, 1, -1, 40, 255, 256, 257, 2047, 2049, 4095, -4095, 65537, 131071, 10**6]
positions = st.integers(-10**6, 10**6)
quick = settings(max_examples=60, deadline=None)


def sine_cosine(x):
    """Of a Decimal, to some 50 digits: reduced by π, then the power series."""
    x = x - 2 * PI * (x / (2 * PI)).to_integral_value()
    term, s, c, n = Decimal(1), Decimal(0), Decimal(0), 0
    while abs(term) > Decimal("1e-55"):
        sign = -1 if n % 4 > 1 else 1
        if n % 2:
            s += sign * term
        else:
            c += sign * term
        n += 1
        term = term * x / n
    return s, c


def exact(p, k):
    """Sine and cosine of p·10000^(-2k/8) = p/10^k, which decimals hold exactly."""
    return sine_cosine(Decimal(p) / 10**k)


# ---- the formula ----

def test_the_oracle_knows_some_sines():
    s, c = sine_cosine(PI / 6)
    assert abs(s - Decimal("0.5")) < Decimal("1e-45") and abs(c * c - Decimal("0.75")) < Decimal("1e-45")


@pytest.mark.parametrize("kind", KINDS)
def test_paper_form_equals_decimal_arithmetic_at_every_length(kind):
    code = np.asarray(B.sinusoid(KINDS[kind](EVERY), 8))
    for row, p in zip(code, EVERY):
        for k in range(4):
            bound = 2 * EPS * (1 + abs(p) / 10**k)
            s, c = exact(p, k)
            assert abs(Decimal(float(row[2 * k])) - s) <= Decimal(bound)
            assert abs(Decimal(float(row[2 * k + 1])) - c) <= Decimal(bound)


# Independent double precision evaluations of the two formulas, and of the grid (cell 2, 3) by hand from the first.
PAPER_D8_P3 = [0.1411200080598672, -0.9899924966004454, 0.2955202066613396, 0.955336489125606, 0.02999550020249566,
               0.9995500337489875, 0.002999995500002025, 0.999995500003375]
BLOCKS_D8_P3 = [0.1411200080598672, 0.13879810108005053, 0.006463259070189645, 0.00029999999550000005,
                -0.9899924966004454, 0.990320699135675, 0.9999791129229608, 0.9999999550000004]
GRID_D8_23 = [0.9092974268256817, -0.4161468365471424, 0.01999866669333308, 0.9998000066665778, 0.1411200080598672,
              -0.9899924966004454, 0.02999550020249566, 0.9995500337489875]
ODD_D5_P3 = [0.141120, -0.989992, 0.075285, 0.997162, 0.001893]


def test_frequencies_and_the_last_wavelength():
    # Vaswani et al. 2017, section 3.5, gives "2π to 10000·2π"; the last of 256 wavelengths is shorter
    w = B.frequencies(512)
    assert w[0] == 1 and round(2 * math.pi / w[-1]) == 60611
    assert int((2 * math.pi / w <= 512).sum()) == 123
    np.testing.assert_allclose(B.frequencies(8), [1, 0.1, 0.01, 0.001], rtol=EPS)
    np.testing.assert_allclose(B.frequencies(8, form="blocks"), 10000.0 ** (-np.arange(4) / 3), rtol=2 * EPS)
    np.testing.assert_allclose(B.frequencies(128)[[0, 1, 16, 32, 63]],
                               [1, 0.8659643233600653, 0.1, 0.01, 1.1547819846894582e-4], rtol=1e-15)
    assert len(B.frequencies(5)) == 3 and len(B.frequencies(5, form="blocks")) == 2
    assert isinstance(B.frequencies(4, like=torch.ones(1)), torch.Tensor)


@quick
@given(st.lists(positions, min_size=1, max_size=4), st.integers(1, 33), st.sampled_from([2.0, 100.0, 10000.0, 5e5]))
def test_each_column_is_what_the_paper_says(ps, width, base):
    code = B.sinusoid(np.array(ps), width, base=base)
    assert code.shape == (len(ps), width) and code.dtype == np.float64
    for row, p in zip(code, ps):
        for j, x in enumerate(row):
            angle = p * base ** (-2 * (j // 2) / width)
            assert abs(x - (math.cos if j % 2 else math.sin)(angle)) <= 4 * EPS * (1 + abs(angle))


@quick
@given(positions, st.integers(2, 33))
def test_each_column_is_what_tensor2tensor_says(p, width):
    row, n = B.sinusoid(np.array(p), width, form="blocks"), width // 2
    for i in range(n):
        angle = p * math.exp(-i * math.log(10000) / max(n - 1, 1))
        bound = 4 * EPS * (1 + 10 * abs(angle))         # exp(-i·log) errs by more than a power does
        assert abs(row[i] - math.sin(angle)) <= bound and abs(row[n + i] - math.cos(angle)) <= bound
    assert row.shape == (width,) and (width % 2 == 0 or row[-1] == 0)


@quick
@given(st.lists(positions, min_size=1, max_size=5), st.integers(1, 40).map(lambda n: 2 * n), st.sampled_from(B.FORMS))
def test_every_code_has_squared_length_half_the_width(ps, width, form):
    np.testing.assert_allclose((B.sinusoid(np.array(ps), width, form=form) ** 2).sum(-1), width / 2, rtol=1e-14)


@quick
@given(positions, positions, st.integers(1, 20), st.sampled_from(B.FORMS), st.booleans())
def test_a_shift_is_one_matrix_for_all_positions(p, shift, half, form, odd):
    width = 2 * half + (odd and form == "blocks")
    m = B.shift_matrix(shift, width, form=form)
    want = B.sinusoid(np.array(p + shift), width, form=form)
    bound = 4 * EPS * (2 + abs(p) + abs(shift) + abs(p + shift))
    np.testing.assert_allclose(m @ B.sinusoid(np.array(p), width, form=form), want, rtol=0, atol=bound)
    np.testing.assert_allclose(m @ m.T, np.eye(width), atol=1e-15)


def test_shift_matrix_is_for_columns_and_its_transpose_for_rows():
    assert B.shift_matrix(1, 2).tolist() == [[math.cos(1), math.sin(1)], [-math.sin(1), math.cos(1)]]
    x = torch.arange(5)
    m = B.shift_matrix(-2, 6, like=x)
    torch.testing.assert_close(B.sinusoid(x, 6) @ m.T, B.sinusoid(x - 2, 6), rtol=0, atol=1e-15)
    assert (B.shift_matrix(0, 6) == np.eye(6)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_grid_gives_half_the_width_to_each_axis(kind):
    like = KINDS[kind](np.zeros(1))
    code = B.sinusoid_2d(3, 5, 8, like=like)
    assert type(code) is type(like) and tuple(code.shape) == (3, 5, 8)
    np.testing.assert_allclose(np.asarray(code)[2, 3], GRID_D8_23, rtol=1e-15)
    for r in range(3):
        for c in range(5):
            want = np.concatenate([B.sinusoid(np.array(r), 4), B.sinusoid(np.array(c), 4)])
            np.testing.assert_allclose(np.asarray(code)[r, c], want, rtol=0, atol=EPS)


@pytest.mark.parametrize("kind", KINDS)
def test_fractional_positions_only_when_asked_for(kind):
    to = KINDS[kind]
    half = np.asarray(B.sinusoid(to(np.array([0.5, -2.25])), 2, fractional=True))
    np.testing.assert_allclose(half[:, 0], [math.sin(0.5), math.sin(-2.25)], rtol=EPS)
    both = B.sinusoid(to(np.array([3])), 4, fractional=True) == B.sinusoid(to(np.array([3.0])), 4, fractional=True)
    assert bool(both.all())


# ---- dtypes ----

@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.dtype(">f4")])
def test_numpy_codes_are_rounded_once(dtype):
    p = np.arange(-300, 3000)
    code, wide = B.sinusoid(p, 16, base=1e6, dtype=dtype), B.sinusoid(p, 16, base=1e6)
    assert code.dtype == dtype and (code == wide.astype(dtype)).all()


@pytest.mark.parametrize("dtype, name", [(torch.bfloat16, "bf16"), (torch.float16, "fp16"), (torch.float32, "fp32")])
def test_torch_codes_are_rounded_once(dtype, name):
    p = torch.arange(-2000, 20000)
    code, wide = B.sinusoid(p, 16, base=1e7, dtype=dtype), B.sinusoid(p, 16, base=1e7)
    assert code.dtype == dtype
    assert (code.double().numpy() == rounded(wide, name)).all()


@pytest.mark.parametrize("dtype, name", [(torch.bfloat16, "bf16"), (torch.float16, "fp16")])
def test_ties_that_a_detour_over_float32_would_move(dtype, name):
    half = 2.0 ** (-8 if name == "bf16" else -11)
    x = np.array([1 + half + d for d in (-2.0**-40, 0, 2.0**-40)] + [3 * 2.0**-26 + 2.0**-60, 2.0**-25, -1 - half - 2.0**-50])
    got = B._rounded(XP, torch.tensor(x), dtype).double().numpy()
    assert got.tolist() == rounded(x, name).tolist()
    assert (torch.tensor(x).to(dtype).double().numpy() != got).any()      # the plain cast does move one
    assert B._rounded(XP, torch.tensor([math.inf, -math.inf, 0.0]), dtype).tolist() == [math.inf, -math.inf, 0]


def test_narrow_and_unsigned_positions_do_not_overflow():
    want = B.sinusoid(np.array([3, 200]), 6)
    for dtype in (np.uint8, np.uint16, np.uint64, np.int16):
        assert (B.sinusoid(np.array([3, 200], dtype), np.uint8(6)) == want).all()
    small = B.sinusoid(torch.tensor([3, 200], dtype=torch.uint8), 6).numpy()
    np.testing.assert_allclose(small, want, rtol=0, atol=2 * EPS)
    table = np.arange(600.0).reshape(300, 2)
    assert B.lookup(table, np.array([200], np.uint8), offset=np.uint8(99))[0, 0] == 598
    assert B.resize(table, np.uint8(200)).shape == (200, 2)
    m = B.shift_matrix(np.int8(100), np.uint8(200))
    np.testing.assert_allclose(m, B.shift_matrix(100, 200), atol=0)
    assert B.sinusoid_2d(np.uint8(200), np.uint8(2), np.uint8(8)).shape == (200, 2, 8)


# ---- learned tables ----

@pytest.mark.parametrize("kind", KINDS)
def test_lookup_takes_the_row(kind):
    to = KINDS[kind]
    table = to(np.arange(12.0).reshape(6, 2))
    ids = to(np.array([[0, 3], [5, 5]]))
    got = B.lookup(table, ids)
    assert type(got) is type(table) and np.asarray(got).tolist() == [[[0, 1], [6, 7]], [[10, 11], [10, 11]]]
    assert np.asarray(B.lookup(table, to(np.array(3)), offset=2)).tolist() == [10, 11]
    assert tuple(B.lookup(table, ids[:0]).shape) == (0, 2, 2)


@given(st.integers(1, 9), st.integers(0, 4), st.integers(-20, 20))
@settings(max_examples=150, deadline=None)
def test_lookup_is_right_or_an_error(rows, offset, p):
    table = np.arange(rows)[:, None] * 1.0
    if 0 <= p < rows - offset:
        assert B.lookup(table, np.array([p]), offset=offset)[0, 0] == p + offset
    else:
        with pytest.raises(ValueError, match=rf"positions holds {p}, the table has {rows} rows"):
            B.lookup(table, np.array([p]), offset=offset)


@pytest.mark.parametrize("kind", KINDS)
@given(st.integers(2, 12), st.integers(2, 30), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_resize_keeps_the_ends_and_interpolates_positions(kind, old, rows, seed):
    table = np.random.default_rng(seed).normal(size=(old, 3))
    got = B.resize(KINDS[kind](table), rows)
    assert type(got) is type(KINDS[kind](table)) and tuple(got.shape) == (rows, 3)
    got = np.asarray(got)
    assert (got[0] == table[0]).all() and (got[-1] == table[-1]).all()
    for c in range(3):
        want = np.interp(np.arange(rows) * (old - 1) / (rows - 1), np.arange(old), table[:, c])
        np.testing.assert_allclose(got[:, c], want, rtol=0, atol=1e-14)
    assert rows != old or (got == table).all()


def test_resize_is_exact_where_it_can_be():
    line = np.arange(5.0)[:, None] * [1, -3] + [0, 7]
    assert B.resize(line, 9).tolist() == (np.arange(9.0)[:, None] / 2 * [1, -3] + [0, 7]).tolist()
    rng = np.random.default_rng(0)
    table = rng.normal(size=(5, 4))
    assert (B.resize(table, 13)[::3] == table).all()              # old rows that are met
    assert (B.resize(np.full((3, 1), 0.1), 8) == 0.1).all()       # a constant stays one
    assert B.resize(table[:1], 1).tolist() == table[:1].tolist()


@pytest.mark.parametrize("dtype, name", [(torch.bfloat16, "bf16"), (torch.float16, "fp16"), (torch.float32, "fp32")])
def test_resize_keeps_the_dtype_and_rounds_once(dtype, name):
    table = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
    got = B.resize(table, 101)
    assert got.dtype == dtype
    assert (got.double().numpy() == rounded(B.resize(table.double(), 101), name)).all()
    half = table.numpy() if dtype != torch.bfloat16 else table.float().numpy()
    assert B.resize(half, 7).dtype == half.dtype


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_table_learns_through_lookup_and_resize(dtype):
    table = torch.randn(5, 2, generator=torch.Generator().manual_seed(1)).to(dtype).requires_grad_()
    B.resize(table, 9).sum().backward()
    # of the 9 new rows each old end gives 1 + ½, each inner row 1 + ½ + ½
    assert table.grad.tolist() == [[1.5] * 2, [2.0] * 2, [2.0] * 2, [2.0] * 2, [1.5] * 2]


# ---- known faults of other libraries, each as a test of its whole kind ----

def p01_f20_f28_positions_are_never_cast_to_the_dtype_of_the_result():
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        for p in (256, 2048, 65536):
            a, b = B.sinusoid(torch.tensor([p, p + 1]), 64, dtype=dtype)
            assert bool((a != b).any()), (dtype, p)
    c = B.sinusoid(np.array([256, 257]), 2)[:, 1]
    np.testing.assert_allclose(c, [-0.0397908, 0.8193055], atol=5e-8)
    with torch.autocast("cpu", torch.bfloat16):
        assert (B.sinusoid(torch.arange(300), 8) == B.sinusoid(torch.arange(300), 8, dtype=torch.float64)).all()
        np.testing.assert_allclose(B.sinusoid(torch.tensor([256, 257]), 2)[:, 1], [-0.0397908, 0.8193055], atol=5e-8)


def p02_p16_p17_f08_rows_far_out_equal_the_exact_ones():
    for p in (0, 1, 40, 2047, 2048, 2049, 2050, 2051, 4095, 65537, 131071, 10**6):
        s, c = map(float, exact(p, 0))
        for dtype, bound in ((np.float64, 1e-12), (np.float32, 2**-25 + 1e-12)):
            np.testing.assert_allclose(B.sinusoid(np.array([p]), 2, dtype=dtype)[0], [s, c], rtol=0, atol=bound)
    assert round(float(B.sinusoid(np.array([2049]), 2)[0, 1]), 6) == 0.776572


def p03_p07_nothing_is_kept_that_a_cast_could_spoil():
    before = B.sinusoid(torch.arange(4096), 128)
    B.sinusoid(torch.arange(16), 128, dtype=torch.bfloat16)
    assert (B.sinusoid(torch.arange(4096), 128) == before).all()
    assert abs(float(before[4095, 11]) + 0.711392) < 1e-6                 # pair 5, cosine


def p05_no_matrix_product_in_the_path_of_the_angles():
    tree = ast.parse(Path(B.__file__).read_text("utf8"))
    names = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    assert not names & {"matmul", "einsum", "outer", "tensordot", "dot", "vecdot"}
    assert not [n for n in ast.walk(tree) if isinstance(n, ast.MatMult)]


def p06_the_default_dtype_has_no_say():
    want = B.sinusoid(torch.arange(4096), 16)
    table, grid = torch.randn(4, 2, dtype=torch.float64), B.sinusoid_2d(2, 3, 8, like=want)
    stretched, shift = B.resize(table, 9), B.shift_matrix(3, 4, like=table)
    old = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.bfloat16)
        assert (B.sinusoid(torch.arange(4096), 16) == want).all() and len(torch.unique(want, dim=0)) == 4096
        assert (B.sinusoid_2d(2, 3, 8, like=want) == grid).all()
        assert (B.resize(table, 9) == stretched).all() and (B.shift_matrix(3, 4, like=table) == shift).all()
    finally:
        torch.set_default_dtype(old)


def p08_a_narrow_result_has_its_angles_in_float64():
    s, c = map(float, (math.sin(1044.26784), math.cos(1044.26784)))
    row = B.sinusoid(np.array([1857]), 32, dtype=np.float16)[0]
    assert abs(float(row[2]) - s) < 1e-3 and abs(float(row[3]) - 0.306693) < 3e-4 and abs(c - 0.306693) < 1e-5


def p10_p11_p15_bf16_entries_are_the_exact_ones_rounded():
    p = torch.tensor([0, 1, 40, 4095, 131071, 10**6])
    code = B.sinusoid(p, 8, dtype=torch.bfloat16).double().numpy()
    for row, m in zip(code, p.tolist()):
        want = [float(x) for k in range(4) for x in exact(m, k)]
        assert (row == rounded(np.array(want), "bf16")).all()


def p12_p92_f10_no_call_changes_another():
    fresh = [B.sinusoid(torch.arange(o, o + 300), 16) for o in (0, 3)]
    assert not (fresh[0] == fresh[1]).all()
    B.sinusoid(torch.arange(300), 16, dtype=torch.bfloat16)
    for o in (3, 0, 3):
        again = B.sinusoid(torch.arange(o, o + 300), 16)
        assert (again == fresh[o > 0]).all()
        again.zero_()                           # what a caller does to a result is its own affair


def p13_512_positions_from_65536_on_give_512_codes():
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        code = B.sinusoid(torch.arange(65536, 65536 + 512), 64, dtype=dtype)
        assert len(torch.unique(code.float(), dim=0)) == 512


def p36_a_grown_table_equals_the_whole_bit_for_bit():
    for kind in KINDS.values():
        for form in B.FORMS:
            whole = np.asarray(B.sinusoid(kind(np.arange(700)), 24, form=form))
            parts = [np.asarray(B.sinusoid(kind(np.arange(a, b)), 24, form=form)) for a, b in ((0, 256), (256, 700))]
            np.testing.assert_allclose(np.concatenate(parts), whole, rtol=0, atol=2 * EPS)
            if kind is np.asarray:
                assert (np.concatenate(parts) == whole).all()


def p86_every_row_that_is_a_position_learns():
    for offset in (0, 2, 4):
        table = torch.randn(8, 3, requires_grad=True)
        B.lookup(table, torch.arange(8 - offset)[None], offset=offset).sum().backward()
        assert (table.grad[offset:] == 1).all() and (table.grad[:offset] == 0).all()


def p87_f15_a_position_past_either_end_is_a_named_error():
    for to in KINDS.values():
        table = to(np.zeros((512, 2)))
        with pytest.raises(ValueError, match=r"positions holds 510, the table has 512 rows, the first 2 of them "
                                             r"\(offset\) for no position: allowed are 0 to 509"):
            B.lookup(table, to(np.arange(512)), offset=2)
        assert tuple(B.lookup(to(np.zeros((514, 2))), to(np.arange(512)), offset=2).shape) == (512, 2)
        small = to(np.zeros((4, 2)))
        for p in (10, 4, -1, -4, -2**62):
            with pytest.raises(ValueError, match=rf"positions holds {p}, the table has 4 rows: allowed are 0 to 3"):
                B.lookup(small, to(np.array([0, p])))
        with pytest.raises(ValueError, match="positions holds -1,"):      # never the padding rows
            B.lookup(small, to(np.array([-1])), offset=2)


def p88_f17_odd_widths_follow_the_documented_rule():
    np.testing.assert_allclose(B.sinusoid(np.array([3]), 5)[0], ODD_D5_P3, atol=5e-7)
    for width in range(1, 10):
        for form in B.FORMS:
            if form == "paper" or width > 1:
                assert B.sinusoid(np.arange(4), width, form=form).shape == (4, width)
        if width % 2:
            last = B.sinusoid(np.array([3]), width)[0, -1]
            assert abs(last - math.sin(3 * 10000.0 ** (-(width - 1) / width))) < 4 * EPS
            with pytest.raises(ValueError, match=rf"width is {width}; allowed are even widths"):
                B.shift_matrix(1, width)


def p90_sine_and_cosine_of_a_pair_share_their_frequency():
    assert B.sinusoid(np.array([1]), 4)[0, 3] == math.cos(0.01)
    for width in (2, 4, 6, 64, 512):
        code = B.sinusoid(np.arange(1, 9), width)
        np.testing.assert_allclose(code[:, ::2] ** 2 + code[:, 1::2] ** 2, 1, rtol=4 * EPS)


def p91_both_conventions_are_there_and_differ():
    np.testing.assert_allclose(B.sinusoid(np.array([3]), 8)[0], PAPER_D8_P3, rtol=1e-15)
    np.testing.assert_allclose(B.sinusoid(np.array([3]), 8, form="blocks")[0], BLOCKS_D8_P3, rtol=1e-15)
    paper, blocks = (B.frequencies(8, form=f) for f in B.FORMS)
    assert (paper[1:] != blocks[1:]).all()          # not even a permutation of each other


def p55_f13_each_row_of_a_batch_has_its_own_positions():
    ids = torch.tensor([[0, 1, 2], [5, 0, -1]])
    code = B.sinusoid(ids, 6)
    assert code.shape == (2, 3, 6)
    for b in range(2):
        torch.testing.assert_close(code[b], B.sinusoid(ids[b], 6), rtol=0, atol=2 * EPS)
    table = torch.randn(8, 2)
    assert (B.lookup(table, ids.abs()) == torch.stack([table[ids[0]], table[ids[1].abs()]])).all()


FAULTS = {
    "P01 F20 F28": p01_f20_f28_positions_are_never_cast_to_the_dtype_of_the_result,
    "P02 P16 P17 F08": p02_p16_p17_f08_rows_far_out_equal_the_exact_ones,
    "P03 P07": p03_p07_nothing_is_kept_that_a_cast_could_spoil,
    "P05": p05_no_matrix_product_in_the_path_of_the_angles,
    "P06": p06_the_default_dtype_has_no_say,
    "P08": p08_a_narrow_result_has_its_angles_in_float64,
    "P10 P11 P15": p10_p11_p15_bf16_entries_are_the_exact_ones_rounded,
    "P12 P92 F10": p12_p92_f10_no_call_changes_another,
    "P13": p13_512_positions_from_65536_on_give_512_codes,
    "P36": p36_a_grown_table_equals_the_whole_bit_for_bit,
    "P55 F13": p55_f13_each_row_of_a_batch_has_its_own_positions,
    "P86": p86_every_row_that_is_a_position_learns,
    "P87 F15": p87_f15_a_position_past_either_end_is_a_named_error,
    "P88 F17": p88_f17_odd_widths_follow_the_documented_rule,
    "P90": p90_sine_and_cosine_of_a_pair_share_their_frequency,
    "P91": p91_both_conventions_are_there_and_differ,
}


@pytest.mark.parametrize("rows", FAULTS)
def test_known_faults_of_other_libraries_are_absent(rows):
    FAULTS[rows]()


# ---- promises ----

def test_inputs_are_not_changed():
    p, table = np.arange(4), np.random.default_rng(0).normal(size=(5, 2))
    copies = p.copy(), table.copy()
    B.sinusoid(p, 8)
    got = B.resize(table, 5), B.resize(table, 9), B.lookup(table, p)
    for g in got:
        g += 1
    assert (p == copies[0]).all() and (table == copies[1]).all()


P, T = np.arange(3), np.zeros((4, 2))
BAD = {  # what is passed -> error and a piece of its message
    "a list": (lambda: B.sinusoid([0, 1], 4), TypeError, r"positions is a list; allowed are numpy arrays and torch"),
    "float positions": (lambda: B.sinusoid(P * 1.0, 4), TypeError, r"positions has dtype float64; allowed are integers, or floats with fractional=True"),
    "bool positions": (lambda: B.sinusoid(P > 1, 4), TypeError, r"positions has dtype bool; allowed are integers"),
    "bool, fractional": (lambda: B.sinusoid(P > 1, 4, fractional=True), TypeError, r"positions has dtype bool"),
    "complex": (lambda: B.sinusoid(P * 1j, 4, fractional=True), TypeError, r"positions has dtype complex128"),
    "nan": (lambda: B.sinusoid(np.array([0.5, math.nan]), 4, fractional=True), ValueError, r"positions holds nan; allowed is up to 2\*\*53"),
    "half inf": (lambda: B.sinusoid(np.array([math.inf], np.float16), 4, fractional=True), ValueError, r"positions holds inf; allowed"),
    "torch half inf": (lambda: B.sinusoid(torch.tensor([-math.inf]).half(), 4, fractional=True), ValueError, r"positions holds -inf"),
    "far": (lambda: B.sinusoid(np.array([0, 2**53 + 1]), 4), ValueError, r"positions holds 9007199254740993; allowed is up to 2\*\*53"),
    "far back": (lambda: B.sinusoid(torch.tensor([-2**63]), 4), ValueError, r"positions holds -9223372036854775808"),
    "uint64": (lambda: B.sinusoid(np.array([2**64 - 1], np.uint64), 4), ValueError, r"positions holds 18446744073709551615"),
    "width 0": (lambda: B.sinusoid(P, 0), ValueError, r"width is 0; allowed is at least 1"),
    "width 1": (lambda: B.sinusoid(P, 1, form="blocks"), ValueError, r"width is 1; allowed is at least 2 \(one sine and one cosine\)"),
    "width 4.0": (lambda: B.sinusoid(P, 4.0), TypeError, r"width is 4\.0; allowed is a whole number"),
    "width True": (lambda: B.frequencies(True), TypeError, r"width is True; allowed is a whole number"),
    "form": (lambda: B.sinusoid(P, 4, form="t2t"), ValueError, r"form is 't2t'; allowed are 'paper' .* and 'blocks'"),
    "base 0": (lambda: B.sinusoid(P, 4, base=0), ValueError, r"base is 0; allowed is a finite number of at least 1"),
    "base huge": (lambda: B.frequencies(4, base=10**400), ValueError, r"base is 1000"),
    "base nan": (lambda: B.frequencies(4, base=math.nan), ValueError, r"base is nan"),
    "base inf": (lambda: B.shift_matrix(1, 4, base=math.inf), ValueError, r"base is inf"),
    "base text": (lambda: B.sinusoid(P, 4, base="1e4"), TypeError, r"base is '1e4'"),
    "base True": (lambda: B.sinusoid(P, 4, base=True), TypeError, r"base is True"),
    "dtype int": (lambda: B.sinusoid(P, 4, dtype=np.int32), TypeError, r"dtype is .*int32.*; allowed are float dtypes"),
    "dtype of torch": (lambda: B.sinusoid(P, 4, dtype=torch.float32), TypeError, r"dtype is torch.float32; allowed .* positions' library"),
    "dtype of numpy": (lambda: B.sinusoid(torch.arange(3), 4, dtype=np.float32), TypeError, r"dtype is .*float32"),
    "dtype long": (lambda: B.sinusoid(P, 4, dtype=np.longdouble), TypeError, r"16 to 64 bits"),
    "dtype text": (lambda: B.sinusoid(P, 4, dtype="bf16"), TypeError, r"dtype is 'bf16'"),
    "rows 0": (lambda: B.sinusoid_2d(0, 2, 8), ValueError, r"rows is 0; allowed is at least 1"),
    "columns": (lambda: B.sinusoid_2d(2, 2.5, 8), TypeError, r"columns is 2\.5; allowed is a whole number"),
    "width 6": (lambda: B.sinusoid_2d(2, 2, 6), ValueError, r"width is 6; allowed are multiples of 4"),
    "like": (lambda: B.sinusoid_2d(2, 2, 8, like=[1]), TypeError, r"like is a list"),
    "shift": (lambda: B.shift_matrix(0.5, 4), TypeError, r"shift is 0\.5; allowed is a whole number"),
    "shift far": (lambda: B.shift_matrix(2**53 + 1, 4), ValueError, r"shift is 9007199254740993; allowed is at most 2\*\*53"),
    "shift far back": (lambda: B.shift_matrix(-2**53 - 1, 4), ValueError, r"shift is -9007199254740993; allowed is at least"),
    "float ids": (lambda: B.lookup(T, P * 1.0), TypeError, r"positions has dtype float64; allowed are integers"),
    "mask ids": (lambda: B.lookup(T, np.ones(4, bool)), TypeError, r"positions has dtype bool; allowed are integers"),
    "mixed kinds": (lambda: B.lookup(T, torch.arange(3)), TypeError, r"positions is a Tensor, table a ndarray"),
    "int table": (lambda: B.lookup(T.astype(int), P), TypeError, r"table has dtype int64; allowed are float"),
    "table shape": (lambda: B.lookup(T[0], P), ValueError, r"table has shape \(2,\); allowed is \(rows, width\)"),
    "no rows": (lambda: B.resize(T[:0], 3), ValueError, r"table has shape \(0, 2\); allowed"),
    "offset": (lambda: B.lookup(T, P, offset=-1), ValueError, r"offset is -1; allowed is at least 0"),
    "offset all": (lambda: B.lookup(T, P, offset=4), ValueError, r"positions holds 0, the table has 4 rows, the first 4 .* no position is left"),
    "uint64 id": (lambda: B.lookup(T, np.array([2**63], np.uint64)), ValueError, r"positions holds 9223372036854775808"),
    "one row": (lambda: B.resize(T, 1), ValueError, r"rows is 1, the table has 4: both must be at least 2"),
    "from one row": (lambda: B.resize(T[:1], 3), ValueError, r"rows is 3, the table has 1: both"),
    "resize 0": (lambda: B.resize(T, 0), ValueError, r"rows is 0; allowed is at least 1"),
    "resize float": (lambda: B.resize(T, 4.0), TypeError, r"rows is 4\.0; allowed is a whole number"),
    "resize list": (lambda: B.resize([[1.0]], 2), TypeError, r"table is a list"),
}


test_bad_input_names_the_argument_the_value_and_what_is_allowed = bad_input_test(BAD)
