"""poslib.rotary against truths of 40 digits, float64 loops, and every error it promises.

Ids such as P01 name public reports of the kind of mistake that a test rules out; REPORTS says which.
"""

import ast
import copy
import doctest
import functools
import inspect
import math

import array_api_compat.torch
import mpmath               # comes with torch
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from conftest import bad_input_test, reports_to_cover
from poslib import multiaxis
from poslib import positions as P
from poslib import rotary as R
from poslib.attention import attention, causal_mask

REPORTS = {
    "P01": "transformers 29285: angles in bfloat16 under autocast", "P02": "transformers 25681: positions in half precision",
    "P03": "transformers 29496: frequencies cast by .bfloat16()", "P05": "transformers 48428: angles by a TF32 matmul",
    "P06": "transformers 28685: constructors that return bfloat16", "P07": "DeepSpeed 5812: tables cast with the module",
    "P08": "gpt-neox 1003: table in model precision", "P10": "sglang-jax 1472: frequencies in bfloat16",
    "P11": "modded-nanogpt 39: tables in bfloat16", "P12": "sglang 33117: first call narrows a shared table",
    "P13": "diffusers 13922: far positions merge", "P15": "TransformerEngine 1245: maths narrower than float32",
    "P16": "mlxcel 1049: sine of unreduced angles", "P17": "imp 1316: tests end at position 40",
    "P22": "vllm 55910: table too short", "P23": "mlxcel 1324: positions doubled", "P36": "sglang 38786: grown table differs",
    "P46": "nanotron 427: layouts mixed up", "P47": "hipfire 241: layouts mixed up", "P48": "flash-attention 862: two defaults",
    "P50": "pie 603: exponent of another width", "P51": "cascadia 69: vectors unturned though tables are right",
    "P52": "maxtext 4615: partial width dropped in one mode", "P53": "transformers 48217: odd width", "P55": "Liger-Kernel 477: rows of positions ignored",
    "P57": "vllm 52416: 32-bit overflow", "P60": "vllm 17091: strides ignored", "P61": "vllm-ascend 12723: padded widths",
    "P62": "sglang 30123: reads past the turned width",
    "P63": "mlx 3795: one token, many rows", "P65": "apex 1750: wrong backward", "P66": "flash-attention 569: backward of one option",
    "P67": "candle 3568: no gradient", "P68": "sglang 19636: written back or not", "P70": "Megatron-LM 453: packed ids ignored",
    "P71": "Megatron-LM 5243: packed rows of a rank", "P72": "Automodel 2377: values of ids ignored",
    "P73": "transformers 22161: left padding", "P92": "rotary-embedding-torch 11: cache key",
    "P93": "rotary-embedding-torch 27: cached keys without scale", "P95": "MNN 4133: chunked for interleaved",
    "P96": "vllm-omni 1784: segments for alternating axes", "P97": "mlx-vlm 1621: second chunk",
    "P98": "transformers 45902: garbage after meta", "P100": "FastPLMs 47: garbage after meta", "P101": "vllm 33800: state changed in forward",
    "P102": "transformers 35716: graph breaks", "P103": "unsloth 840: other device", "F08": "transformers: float32 angles",
    "F09": "rotary-embedding-torch: cached offset", "F12": "x-transformers: xPos centre from the length",
    "F14": "flash-attention: xPos centre from the cache", "F24": "torchscale: xPos centre from the length", "F10": "rotary-embedding-torch: positions in query dtype",
    "F15": "flash-attention: past the table, unturned", "F17": "Liger-Kernel: odd width accepted",
    "F18": "torchtune: past the table, negative ids", "F22": "positional-encodings: stale dtype",
    "F27": "TransformerEngine: backward forgets positions", "F28": "TransformerEngine: buffer of frequencies is cast",
}
covers, test_every_report_has_its_test = reports_to_cover(REPORTS)
KINDS = {"numpy": np.asarray, "torch": lambda x: torch.as_tensor(np.asarray(x))}
LAYOUTS = ("half", "interleaved")
FAR = (0, 1, 40, 256, 257, 2049, 4095, 65537, 131071, 10**6)
kinds, layouts = pytest.mark.parametrize("kind", KINDS), pytest.mark.parametrize("layout", LAYOUTS)
quick = settings(max_examples=40, deadline=None)


@functools.cache
def exact(p, k, width, base=10000):
    """Cosine and sine of p * base^(-2k/width), as float64, from 40 digits."""
    with mpmath.workdps(40):
        angle = mpmath.mpf(p) * mpmath.power(mpmath.mpf(base), mpmath.mpf(-2 * k) / width)
        return float(mpmath.cos(angle)), float(mpmath.sin(angle))


def oracle(x, positions, layout, base=10000, inverse=False):
    """The turn of one (length, width) matrix, entry by entry, in float64."""
    x, out = np.asarray(x, np.float64), np.empty(np.shape(x))
    width = x.shape[1]
    for t, p in enumerate(np.asarray(positions).tolist()):
        for k in range(width // 2):
            i, j = (k, k + width // 2) if layout == "half" else (2 * k, 2 * k + 1)
            c, s = exact(-p if inverse else p, k, width, base)
            out[t, i], out[t, j] = x[t, i] * c - x[t, j] * s, x[t, j] * c + x[t, i] * s
    return out


def to_bits(values, bits):
    """float64 rounded once, half to even, to a significand of `bits` bits (normal range)."""
    mantissa, exponent = np.frexp(np.asarray(values, np.float64))
    return np.ldexp(np.rint(np.ldexp(mantissa, bits)), exponent - bits)


def draw(seed, *shape, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


# -- the numbers

TRUTHS = {  # float64 evaluations independent of any library (the libraries' own float32 digits differ from the sixth on)
    (128, 10000): {0: 1.0, 1: 0.8659643233600653, 16: 0.1, 32: 0.01, 63: 0.00011547819846894582},
    (128, 500000): {0: 1.0, 1: 0.8146172338565447, 16: 0.03760603093086393, 32: 0.001414213562373095, 63: 2.455140791131609e-06},
    (64, 10000): {1: 0.7498942093324559},
    (32, 10000): {1: 0.5623413251903491},
}
COSINES = {  # position -> pair -> cosine, width 128, base 10000
    257: {0: 0.8193055291449822, 1: -0.8774639724785827, 2: -0.4663290224135354, 5: 0.8712504419556839, 63: 0.9995596435373999},
    4097: {0: 0.9347719612835539, 1: -0.5422136532684205, 2: 0.9870611266049992, 5: -0.9811220857527088, 63: 0.8901535981971244},
    10**6: {0: 0.9367521275331447, 1: -0.9998661568058302, 2: -0.6855140741846857, 5: -0.241107830975838, 63: -0.7243331022660039},
}
TURNED = {  # 1, …, 8 at position 3, base 10000
    "half": [-1.6955925368997815, 0.13755173828317435, 2.7886815998294927, 3.975982036013484,
             -4.8088424749423595, 6.323059348076315, 7.086836736850399, 8.011963982027009],
    "interleaved": [-1.27223251272018, -1.8388649851410237, 1.6839286407314598, 4.707906576486443,
                    4.817777167529964, 6.147277703506403, 6.975968536023609, 8.020963968527013],
}


@covers("P50")
@pytest.mark.parametrize("width, base", TRUTHS)
def test_frequencies(width, base):
    omega = R.frequencies(width, base)
    assert isinstance(omega, np.ndarray) and omega.dtype == np.float64 and omega.shape == (width // 2,)
    for k, want in TRUTHS[width, base].items():
        assert abs(omega[k] - want) <= 4e-16 * want


@covers("P23", "F08")
@kinds
@pytest.mark.parametrize("p", COSINES)
def test_cosines_at_far_positions(kind, p):
    a = R.angles(KINDS[kind]([p]), R.frequencies(128))
    assert R.angles(KINDS[kind]([1]), R.frequencies(128)).tolist() == [R.frequencies(128).tolist()]
    cos, _ = R.tables(a, a.dtype)
    for k, want in COSINES[p].items():
        assert abs(float(cos[0, k]) - want) < 2e-9 and abs(exact(p, k, 128)[0] - want) < 2e-9


@covers("P47", "P51", "P23")
@kinds
@layouts
def test_the_turned_vector(kind, layout):
    x = np.arange(1.0, 9)[None]
    got = R.rotate(KINDS[kind](x), KINDS[kind]([3]), layout=layout)
    np.testing.assert_allclose(np.asarray(got)[0], TURNED[layout], rtol=0, atol=4e-15)
    narrow = R.rotate(KINDS[kind](x.astype("f4")), KINDS[kind]([3]), layout=layout)
    np.testing.assert_allclose(np.asarray(narrow)[0], TURNED[layout], rtol=0, atol=1e-6)


@covers("P01", "P02", "P03", "P08", "P10", "P13")
def test_the_triples_of_the_reports():
    cos = lambda p, k, width: float(R.tables(R.angles(torch.tensor([p]), R.frequencies(width)), torch.bfloat16)[0][0, k])
    assert abs(cos(256, 0, 2) + 0.0397908) < 1e-7 and abs(cos(257, 0, 2) - 0.8193055) < 1e-7
    assert abs(cos(2049, 0, 2) - 0.776572) < 1e-6
    assert abs(cos(4095, 5, 128) + 0.711392) < 1e-6
    assert abs(cos(1857, 1, 32) - 0.306693) < 1e-6
    assert abs(float(R.angles(torch.tensor([1857]), R.frequencies(32))[0, 1]) - 1044.26784) < 1e-5
    rows, _ = R.tables(R.angles(torch.arange(65536, 66048), R.frequencies(128)), torch.bfloat16)
    assert len({tuple(r) for r in rows.tolist()}) == 512


@covers("P16", "P17")
@kinds
@pytest.mark.parametrize("width, base", [(8, 10000), (6, 10000), (64, 500000), (2, 10000)])
def test_angles_and_tables_keep_the_stated_bounds(kind, width, base):
    ids = [sign * p for p in FAR for sign in (1, -1)]
    omega = R.frequencies(width, base)
    a = R.angles(KINDS[kind](ids), omega)
    wide, narrow = R.tables(a, a.dtype), R.tables(a, KINDS[kind](np.zeros(1, "f4")).dtype)
    for t, p in enumerate(ids):
        for k in range(width // 2):
            bound = (3 + math.log(base)) * 2**-53 * abs(p) * omega[k]
            with mpmath.workdps(40):
                true = mpmath.mpf(p) * mpmath.power(base, mpmath.mpf(-2 * k) / width)
                assert abs(mpmath.mpf(float(a[t, k])) - true) <= bound
            for table, unit in ((wide, 2**-52), (narrow, 2**-25 * 1.01)):
                for got, want in zip(table, exact(p, k, width, base)):
                    assert abs(float(got[t, k]) - want) <= bound + unit


@covers("P02", "P22", "F15", "F18")
def test_tables_have_a_column_for_each_pair_and_no_end():
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        cos, sin = R.tables(R.angles(torch.tensor([2047, 2048, 65537, 10**9, -1]), R.frequencies(16)), dtype)
        assert cos.shape == sin.shape == (5, 8)
        assert cos.dtype == sin.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert len({tuple(r) for r in cos.tolist()}) == 5
    cos, _ = R.tables(R.angles(np.arange(3), R.frequencies(4)), np.float16)
    assert cos.dtype == np.float32


@covers("P11", "P15", "F28")
@layouts
@pytest.mark.parametrize("dtype, bits", [(torch.bfloat16, 8), (torch.float16, 11)])
@pytest.mark.parametrize("base", [10000, 500000])
def test_half_precision_is_correctly_rounded(layout, dtype, bits, base):
    width, length = 128, 80                                             # 10,240 outputs
    x = draw(11, length, width, dtype=dtype)
    ids = torch.randint(-10**6, 10**6 + 1, (length,), generator=torch.Generator().manual_seed(12))
    got = R.rotate(x, ids, layout=layout, base=base)
    want = to_bits(oracle(x.double(), ids, layout, base), bits)
    assert got.dtype == dtype and (got.double().numpy() == want).mean() >= 0.999
    assert np.abs(got.double().numpy() - want).max() <= 2.0 ** (3 - bits)


def test_the_reference_rounds_once():
    x = 1 + 2**-8 + 2**-40                      # above the middle of two bfloat16; float32 takes it for the middle
    assert to_bits(x, 8) == 1 + 2**-7 and float(torch.tensor(x, dtype=torch.float64).to(torch.bfloat16)) == 1
    assert to_bits([1 + 2**-8, -1 - 3 * 2**-8], 8).tolist() == [1, -1 - 2**-6]


@covers("P10", "P17")
@kinds
@layouts
@given(st.integers(1, 6), st.lists(st.integers(-10**6, 10**6), min_size=1, max_size=5), st.integers(0, 2**32 - 1), st.booleans())
@quick
def test_equals_the_oracle(kind, layout, pairs, ids, seed, inverse):
    x = np.random.default_rng(seed).normal(size=(len(ids), 2 * pairs))
    to = KINDS[kind]
    want = oracle(x, ids, layout, inverse=inverse)
    got = R.rotate(to(x), to(ids), layout=layout, inverse=inverse)
    assert type(got) is type(to(x)) and got.dtype == to(x).dtype
    np.testing.assert_allclose(np.asarray(got), want, rtol=0, atol=1e-8)
    got = R.rotate(to(x.astype("f4")), to(ids), layout=layout, inverse=inverse)
    assert got.dtype == to(x.astype("f4")).dtype
    np.testing.assert_allclose(np.asarray(got), want, rtol=0, atol=2e-6)


# -- what a rotation keeps

@layouts
@given(st.integers(-10**5, 10**5), st.integers(-10**5, 10**5), st.integers(-10**5, 10**5), st.integers(0, 2**32 - 1))
@quick
def test_scores_depend_on_the_lag_alone(layout, i, j, shift, seed):
    for dtype in (np.float64, np.float32):
        q, k = np.random.default_rng(seed).normal(size=(2, 1, 16)).astype(dtype)
        score = lambda i, j: float(np.sum(R.rotate(q, np.array([i]), layout=layout).astype("f8")
                                          * R.rotate(k, np.array([j]), layout=layout).astype("f8")))
        size = float(np.linalg.norm(q.astype("f8")) * np.linalg.norm(k.astype("f8")))
        gap, far = abs(score(i, j) - score(i + shift, j + shift)), max(map(abs, (i, j, i + shift, j + shift)))
        assert gap <= 8 * np.finfo(dtype).eps * (1 + far) * size
        if dtype == np.float32:         # the angles are float64: the position brings next to nothing
            assert gap <= 8 * np.finfo(dtype).eps * size


@covers("P61", "P65")
@kinds
@layouts
@pytest.mark.parametrize("width", [2, 6, 24, 96, 192])
def test_inverse_undoes_and_norms_stay(kind, layout, width):
    x, ids = KINDS[kind](draw(width, 2, 3, len(FAR), width).numpy()), KINDS[kind](FAR)
    turned = R.rotate(x, ids, layout=layout)
    assert float(abs(turned - x)[:, :, 1:].max()) > 0.1
    assert float(abs(R.rotate(turned, ids, layout=layout, inverse=True) - x).max()) < 1e-14
    assert float(abs(R.rotate(turned, -ids, layout=layout) - x).max()) < 1e-14
    assert float(abs((turned**2).sum(-1) ** 0.5 - (x**2).sum(-1) ** 0.5).max()) < 1e-13


@covers("P46", "P47", "P48")
def test_layouts_agree_after_the_permutation_of_channels_and_only_then():
    for width in (4, 8, 64):
        order = np.r_[0:width:2, 1:width:2]                             # even channels, then odd ones
        assert width > 4 or order.tolist() == [0, 2, 1, 3]
        x = draw(3, 2, 7, width).numpy()
        ids = np.arange(7) * 5
        pairs = R.rotate(x, ids, layout="interleaved")
        assert (R.rotate(x[..., order], ids, layout="half") == pairs[..., order]).all()
        assert np.abs(R.rotate(x, ids, layout="half") - pairs).max() > 0.1
    assert inspect.signature(R.rotate).parameters["layout"].default is inspect.Parameter.empty


@kinds
@layouts
def test_width_two_is_one_plane_in_both_layouts(kind, layout):
    got = R.rotate(KINDS[kind]([[1.0, 0.0]]), KINDS[kind]([6]), layout=layout)
    np.testing.assert_allclose(np.asarray(got), [[math.cos(6), math.sin(6)]], atol=1e-15)


# -- partial width and proportional frequencies

PARTIAL = {  # 1, …, 8 at position 3, width 4, base 10000
    "half": [-1.413352520780047, 1.8791180666879925, -2.828857481741469, 4.058191135400942, 5.0, 6.0, 7.0, 8.0],
    "interleaved": [-1.27223251272018, -1.8388649851410237, 2.87866810043698, 4.088186635603437, 5.0, 6.0, 7.0, 8.0],
}


@covers("P50", "P51")
@kinds
@layouts
def test_the_partly_turned_vector(kind, layout):
    x = np.arange(1.0, 9)[None]
    got = np.asarray(R.rotate(KINDS[kind](x), KINDS[kind]([3]), layout=layout, width=4))
    np.testing.assert_allclose(got[0], PARTIAL[layout], rtol=0, atol=4e-15)


@covers("P51", "P52", "P61", "P62")
@kinds
@layouts
@pytest.mark.parametrize("width, head", [(2, 3), (4, 16), (6, 64), (24, 25), (32, 80), (96, 128), (192, 256)])
def test_the_first_channels_turn_as_a_vector_of_their_own_and_the_rest_is_copied(kind, layout, width, head):
    to = KINDS[kind]
    for dtype in (np.float64, np.float16):
        x = draw(head, 2, 3, len(FAR), head).numpy().astype(dtype)
        bits = x.view(np.uint16 if dtype == np.float16 else np.uint64)
        bits[..., width:] = np.random.default_rng(0).integers(0, 2**16, bits[..., width:].shape)     # not-a-numbers and all
        got = np.asarray(R.rotate(to(x), to(FAR), layout=layout, width=width))
        assert got.dtype == x.dtype and (got.view(bits.dtype)[..., width:] == bits[..., width:]).all()
        assert (got[..., :width] == np.asarray(R.rotate(to(x[..., :width]), to(FAR), layout=layout))).all()
    whole = to(draw(1, len(FAR), width).numpy())
    assert bool((R.rotate(whole, to(FAR), layout=layout, width=width) == R.rotate(whole, to(FAR), layout=layout)).all())


@layouts
@pytest.mark.parametrize("inverse", [False, True])
def test_gradients_of_the_partial_turn(layout, inverse):
    ids = torch.tensor([5, -2, 131071])
    f = lambda x: R.rotate(x, ids, layout=layout, width=4, inverse=inverse)
    x = draw(16, 2, 3, 7).requires_grad_()
    assert torch.autograd.gradcheck(f, x) and torch.autograd.gradgradcheck(f, x)
    dy = draw(17, 2, 3, 7)
    (dx,) = torch.autograd.grad(f(x), x, dy)
    torch.testing.assert_close(dx, R.rotate(dy, ids, layout=layout, width=4, inverse=not inverse), rtol=0, atol=1e-15)


# -- into a given place

class Slots:
    """Views of one block of memory (5, 3, 16) as (3, 5, 8): each called by what it is."""

    def __init__(self, kind, dtype):
        block = draw(31, 5, 3, 16).to(dtype)
        self.block = block if kind == "torch" else block.numpy()
        swap = (lambda x: x.transpose(0, 1)) if kind == "torch" else (lambda x: x.swapaxes(0, 1))
        self.left, self.right, self.shifted, self.every = (swap(self.block[..., s]) for s in (
            slice(0, 8), slice(8, 16), slice(4, 12), slice(0, 16, 2)))


def copied(x):
    return x.clone() if isinstance(x, torch.Tensor) else x.copy()


@covers("P60", "P68")
@kinds
@layouts
@pytest.mark.parametrize("width", [None, 4])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_out_gets_the_same_bits_in_place_and_apart(kind, layout, width, dtype):
    ids = KINDS[kind]([5, -2, 9, 131071, 0])
    for source, target in (("left", "left"), ("left", "right"), ("every", "every")):
        slots = Slots(kind, dtype)
        x, out, before = getattr(slots, source), getattr(slots, target), copied(slots.block)
        want = R.rotate(x, ids, layout=layout, width=width)
        got = R.rotate(x, ids, layout=layout, width=width, out=out)
        assert got is out and bool((out == want).all())
        untouched = {"left": np.s_[..., 8:], "right": np.s_[..., :8], "every": np.s_[..., 1::2]}[target]
        assert bool((slots.block[untouched] == before[untouched]).all())
    again = Slots(kind, dtype)                      # another view of the same memory is in place too
    want = R.rotate(again.left, ids, layout=layout, width=width)
    assert R.rotate(again.left, ids, layout=layout, width=width, out=again.left[:]) is not again.left
    assert bool((again.left == want).all())


@covers("P68")
def test_out_while_gradients_are_recorded():
    ids, x = torch.arange(3), torch.ones(3, 4)
    for leaf, kwargs in ((x.clone().requires_grad_(), {}), (x, {"frequencies": torch.ones(2).double().requires_grad_()})):
        with pytest.raises(ValueError, match=r"out is given while gradients are recorded; allowed is out=None, or torch\.no_grad"):
            R.rotate(leaf, ids, layout="half", out=torch.empty(3, 4), **kwargs)
        with torch.no_grad():
            assert torch.equal(R.rotate(leaf, ids, layout="half", out=torch.empty(3, 4), **kwargs), R.rotate(leaf, ids, layout="half", **kwargs))
    with pytest.raises(ValueError, match="out is given while gradients"):
        R.rotate(x, ids, layout="half", out=torch.empty(3, 4).requires_grad_())
    with torch.inference_mode():
        got = R.rotate(x, ids, layout="half", out=torch.empty(3, 4))
    assert torch.equal(got, R.rotate(x, ids, layout="half")) and torch.equal(x, torch.ones(3, 4))


def test_out_on_the_meta_device():
    x, ids = torch.ones(3, 4, device="meta"), torch.zeros(3, dtype=torch.int64, device="meta")
    out = torch.empty(3, 4, device="meta")
    assert R.rotate(x, ids, layout="half", out=out) is out


# -- positions

@covers("P55", "P63", "P70", "P71", "P72", "F18")
@kinds
@layouts
def test_rows_of_positions_belong_to_the_first_axis(kind, layout):
    to = KINDS[kind]
    x, ids = draw(5, 2, 3, 4, 5, 8).numpy(), np.array([[7, 8, -3, 0, 8], [1000003, -4, 5, 5, 2]])
    for shape in ((2, 3, 4, 5, 8), (2, 3, 5, 8), (2, 5, 8)):
        part = x.reshape(-1)[:math.prod(shape)].reshape(shape)
        got = np.asarray(R.rotate(to(part), to(ids), layout=layout))
        for b in range(2):
            for head in np.ndindex(shape[1:-2]):
                np.testing.assert_allclose(got[(b, *head)], oracle(part[(b, *head)], ids[b], layout), atol=1e-8)
            assert (np.asarray(R.rotate(to(part[b]), to(ids[b]), layout=layout)) == got[b]).all()
        shared = R.rotate(to(part), to(ids[:1]), layout=layout)
        assert bool((shared == R.rotate(to(part), to(ids[0]), layout=layout)).all())


@covers("P22", "P36", "P63", "P92", "P97", "F09")
@kinds
@layouts
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_decoding_equals_the_whole_bit_for_bit(kind, layout, dtype):
    if kind == "numpy" and dtype == "bfloat16":
        pytest.skip("numpy has no bfloat16")
    for width, start in ((2, 0), (6, 4095), (64, 131000), (128, 10**6)):
        x, ids = draw(6, 2, 3, 33, width), torch.arange(start, start + 33)
        x = x.to(getattr(torch, dtype)) if kind == "torch" else x.numpy().astype(dtype)
        ids = ids if kind == "torch" else ids.numpy()
        whole = R.rotate(x, ids, layout=layout)
        for t in range(33):
            assert bool((R.rotate(x[..., t:t + 1, :], ids[t:t + 1], layout=layout) == whole[..., t:t + 1, :]).all())
        for a, b in ((0, 4), (4, 21), (21, 33)):                        # chunks
            assert bool((R.rotate(x[..., a:b, :], ids[a:b], layout=layout) == whole[..., a:b, :]).all())


@covers("P70", "P71", "P73")
@layouts
def test_packed_and_padded_texts_are_turned_like_separate_ones(layout):
    x = draw(7, 2, 9, 8).numpy()
    packed = R.rotate(x, P.from_lengths(np.array([4, 5])), layout=layout)
    alone = [R.rotate(x[:, :4], np.arange(4), layout=layout), R.rotate(x[:, 4:], np.arange(5), layout=layout)]
    assert (packed == np.concatenate(alone, axis=1)).all()
    mask = np.array([[False] * 4 + [True] * 5, [True] * 9])
    padded = R.rotate(x[:, None], P.from_mask(mask), layout=layout)[:, 0]
    assert (padded[0, 4:] == R.rotate(x[0, 4:], np.arange(5), layout=layout)).all()
    ranks = [0, 3, 4, 7]
    cut = R.rotate(x[0, :8][ranks], P.from_cu_seqlens(np.array([0, 4, 8]))[ranks], layout=layout)
    assert (cut == R.rotate(x[0, :8], np.array([0, 1, 2, 3] * 2), layout=layout)[ranks]).all()


@covers("P57", "P02")
@kinds
def test_any_integer_dtype_and_far_positions(kind):
    to, x = KINDS[kind], KINDS[kind](np.ones((1, 4)))
    for dtype in ("int8", "uint8", "int16", "int32", "int64"):
        ids = np.array([np.iinfo(dtype).max], dtype)
        if dtype != "int64":
            np.testing.assert_allclose(np.asarray(R.rotate(x, to(ids), layout="half")),
                                       oracle(np.ones((1, 4)), ids, "half"), atol=3e-6)
    for p in (2**31 + 5, -2**31 - 6, 2**40):
        bound = (3 + math.log(10000)) * 2**-53 * abs(p)
        got = np.asarray(R.rotate(x, to([p]), layout="half"))
        np.testing.assert_allclose(got, oracle(np.ones((1, 4)), [p], "half"), atol=2 * bound)


@kinds
def test_fractional_positions_need_permission(kind):
    to = KINDS[kind]
    x = to(np.ones((2, 4)))
    for dtype in ("float32", "float64"):
        got = R.rotate(x, to(np.array([0.25, -7.5], dtype)), layout="half", fractional=True)
        np.testing.assert_allclose(np.asarray(got), oracle(np.ones((2, 4)), [0.25, -7.5], "half"), atol=1e-14)
    assert bool((R.rotate(x, to([1, 2]), layout="half", fractional=True) == R.rotate(x, to([1, 2]), layout="half")).all())


@kinds
def test_what_is_not_finite_stays_visible(kind):
    x = KINDS[kind](np.ones((2, 4)))
    with np.errstate(invalid="ignore"):
        got = np.asarray(R.rotate(x, KINDS[kind]([math.nan, math.inf]), layout="half", fractional=True))
    assert np.isnan(got).all()


@kinds
def test_frequencies_may_be_given(kind):
    to = KINDS[kind]
    x, ids = to(draw(8, 3, 8).numpy()), to([0, 5, 9])
    omega = R.frequencies(8, 777.0)
    want = R.rotate(x, ids, layout="half", base=777.0)
    assert bool((R.rotate(x, ids, layout="half", frequencies=omega) == want).all())
    assert bool((R.rotate(x, ids, layout="half", frequencies=to(omega)) == want).all())
    assert bool((R.rotate(x, ids, layout="half", frequencies=0 * omega) == x).all())


# -- several axes

MROPE = [-1.1311125046603125, -0.4068621292767202, 0.62845442083363, 0.9695545335464919, 0.9891700155825935, 0.9986065543044623,
         -0.8488724885405782, 1.3544235702912193, 1.2669037220462598, 1.0295455339514832, 1.0107139458186631, 1.0013915067046302]


@covers("P95")
@kinds
def test_the_vector_turned_by_interleaved_sections(kind):
    to, axes = KINDS[kind], multiaxis.mrope_axes((3, 2, 1), order="interleaved")
    got = np.asarray(R.rotate(to(np.ones((1, 12))), to([[3], [5], [7]]), layout="half", axes=axes))
    np.testing.assert_allclose(got[0], MROPE, rtol=0, atol=4e-15)
    other = multiaxis.mrope_axes((3, 2, 1), order="chunked")
    assert np.abs(got - np.asarray(R.rotate(to(np.ones((1, 12))), to([[3], [5], [7]]), layout="half", axes=other))).max() > 0.1


@covers("P95", "P96", "P52")
@kinds
@layouts
@pytest.mark.parametrize("axes", [(0, 0, 1, 1, 2, 2), (0, 1, 2, 0, 1, 0), (1, 0, 1, 0, 1, 0), (2, 2, 2, 2, 2, 2)])
def test_each_pair_turns_by_its_own_axis(kind, layout, axes):
    to = KINDS[kind]
    ids = np.random.default_rng(5).integers(-10**6, 10**6, (3, 2, 5))
    x = draw(41, 2, 4, 5, 14).numpy()
    got = np.asarray(R.rotate(to(x), to(ids), layout=layout, width=12, axes=axes))
    for k, axis in enumerate(axes):
        alone = np.asarray(R.rotate(to(x), to(ids[axis]), layout=layout, width=12))
        pair = [k, k + 6] if layout == "half" else [2 * k, 2 * k + 1]
        assert (got[..., pair] == alone[..., pair]).all()
    assert (got[..., 12:] == x[..., 12:]).all()
    for given in (np.array(axes, "u1"), torch.tensor(axes), list(axes)):
        assert (np.asarray(R.rotate(to(x), to(ids), layout=layout, width=12, axes=given)) == got).all()
    shared = np.asarray(R.rotate(to(x), to(ids[:, :1]), layout=layout, width=12, axes=axes))
    assert (shared == np.asarray(R.rotate(to(x), to(ids[:, 0]), layout=layout, width=12, axes=axes))).all()
    assert (shared[0] == got[0]).all()


@kinds
@layouts
@pytest.mark.parametrize("axes", [multiaxis.mrope_axes((16, 24, 24), order="chunked"), multiaxis.mrope_axes((24, 20, 20), order="interleaved")])
def test_text_with_equal_ids_turns_as_with_one_axis_bit_for_bit(kind, layout, axes):
    to = KINDS[kind]
    x, ids = draw(42, 2, len(FAR), 128, dtype=torch.float32).numpy(), np.array(FAR)
    want = R.rotate(to(x), to(ids), layout=layout)
    assert bool((R.rotate(to(x), to(np.stack([ids] * 3)), layout=layout, axes=axes) == want).all())


@layouts
def test_gradients_through_several_axes(layout):
    ids = torch.tensor([[5, -2, 131071], [0, 9, 4]])
    f = lambda x, omega: R.rotate(x, ids, layout=layout, width=4, axes=(1, 0), frequencies=omega)
    x, omega = draw(43, 2, 3, 5).requires_grad_(), torch.tensor([1.0, 0.3], dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: f(x, omega.detach()), x) and torch.autograd.gradgradcheck(lambda x: f(x, omega.detach()), x)
    g = lambda x, p, omega: R.rotate(x, p, layout=layout, width=4, axes=(1, 0), frequencies=omega, fractional=True)
    small = draw(44, 2, 3).requires_grad_()                 # at far positions finite differences of angles would be noise
    assert torch.autograd.gradcheck(g, (x, small, omega)) and torch.autograd.gradgradcheck(g, (x, small, omega))


def test_sequences_of_pixels_take_frequencies_and_places_of_their_own():
    want = [3.141592653589793, 7.330382858376183, 11.519173063162574, 15.707963267948966]
    got = R.angles(np.array([1.0]), np.linspace(1, 10 / 2, 4) * np.pi, fractional=True)
    np.testing.assert_allclose(got[0], want, rtol=2e-16)


# -- moving what is cached

@kinds
@layouts
@pytest.mark.parametrize("width, axes", [(None, None), (4, None), (6, (0, 1, 1))])
def test_moved_keys_stand_where_they_would_have_been_turned(kind, layout, width, axes):
    to, rng = KINDS[kind], np.random.default_rng(7)
    own = () if axes is None else (2,)
    k, settings = draw(45, 2, 3, 5, 8), {"layout": layout, "width": width, "axes": axes}
    k = to(k.numpy())
    old, new = (rng.integers(-10**6, 10**6, (*own, 2, 5)) for _ in "on")
    at_old, at_new = (R.rotate(k, to(p), **settings) for p in (old, new))
    assert float(abs(R.reposition(at_old, to(old), to(new), **settings) - at_new).max()) < 2e-9     # the bound on two far angles
    same = R.reposition(at_old, to(old), to(old), **settings)
    assert same is not at_old and bool((same == at_old).all())
    line = old[..., 0, :]
    shifted = R.reposition(R.rotate(k, to(line), **settings), to(line.astype("i4")), to(new), **settings)     # one text's ids to a batch's
    assert float(abs(shifted - at_new).max()) < 4e-9
    inside = copied(at_old)
    assert R.reposition(inside, to(old), to(new), out=inside, **settings) is inside
    assert bool((inside == R.reposition(at_old, to(old), to(new), **settings)).all())
    narrow = to(np.array([250], "u1")), to(np.array([3], "u1"))
    got = R.reposition(R.rotate(k[:, :, :1], narrow[0], layout=layout), *narrow, layout=layout)
    assert float(abs(got - R.rotate(k[:, :, :1], narrow[1], layout=layout)).max()) < 1e-13


def test_what_moving_costs_a_cache_of_bfloat16():
    k, generator = draw(46, 400, 128, dtype=torch.bfloat16), torch.Generator().manual_seed(2)
    places = [torch.randint(0, 131072, (400,), generator=generator) for _ in range(8)]
    size = lambda got, at: float((got.double() - R.rotate(k.double(), at, layout="half")).square().mean().sqrt())
    moved = R.rotate(k, places[0], layout="half")
    once = size(moved, places[0])
    for n in range(1, 8):
        moved = R.reposition(moved, places[n - 1], places[n], layout="half")
        assert 0.95 < size(moved, places[n]) / (once * (n + 1) ** 0.5) < 1.05
    fresh = R.rotate(k, places[1], layout="half")
    first = R.reposition(R.rotate(k, places[0], layout="half"), places[0], places[1], layout="half")
    assert 0.4 < float((first == fresh).float().mean()) < 0.6                                   # so many entries are the fresh ones


@layouts
def test_gradients_of_moving(layout):
    old, new = torch.tensor([5, -2, 131071]), torch.tensor([0, 7, 131070])
    f = lambda x: R.reposition(x, old, new, layout=layout, width=4)
    x = draw(47, 2, 3, 5).requires_grad_()
    assert torch.autograd.gradcheck(f, x) and torch.autograd.gradgradcheck(f, x)


# -- p-RoPE

@covers("P50")
def test_proportional_frequencies_span_the_whole_width():
    omega = R.proportional_frequencies(512, 0.25, 1e6)
    assert omega.shape == (256,) and (omega[:64] == R.frequencies(512, 1e6)[:64]).all() and (omega[64:] == 0).all()
    assert abs(omega[63] - 1e6 ** (-126 / 512)) < 1e-17
    for share, turning in ((0, 0), (0.0, 0), (1, 100), (1.0, 100), (0.29, 29), (0.57, 57), (0.294, 29), (0.58, 58), (1 / 3, 33)):
        assert np.count_nonzero(R.proportional_frequencies(200, share)) == turning
    x = draw(48, 3, 8)
    got = R.rotate(x, torch.tensor([1, -5, 10**6]), layout="half", frequencies=R.proportional_frequencies(8, 0.5))
    assert torch.equal(got[:, [2, 3, 6, 7]], x[:, [2, 3, 6, 7]]) and not torch.isclose(got[:, [0, 4]], x[:, [0, 4]]).any()
    assert not torch.allclose(got, R.rotate(x, torch.tensor([1, -5, 10**6]), layout="half", width=4))


# -- xPos

ZETA = [0.28571428571428575, 0.46428571428571436, 0.6428571428571429, 0.8214285714285714]
XPOS = {  # width 8, position 7, center 5
    "query": [0.7502219665238323, 0.7625533177644518, 0.995830802695246, 0.9992074144749866],        # cosines times scale
    "key": [0.7576005961775066, 0.767137927043704, 0.9992741692795892, 1.000744176148585],
}
XPOS_ONES = [0.09644254720116727, 1.4040013858464975, 0.12026351872788359, 1.40484311680102,
             0.9260085662489473, 1.0656530391415449, 0.9922128483287082, 1.0062019806212652]


@kinds
def test_the_scaled_vector(kind):
    to = KINDS[kind]
    for role, want in XPOS.items():
        got = R.xpos(to(np.array([[1.0] * 4 + [0.0] * 4])), to([7]), role=role, layout="half", center=5)
        np.testing.assert_allclose(np.asarray(got)[0, :4], want, rtol=0, atol=3e-15)
    got = R.xpos(to(np.ones((1, 8))), to([7]), role="query", layout="interleaved", center=5)
    np.testing.assert_allclose(np.asarray(got)[0], XPOS_ONES, rtol=0, atol=3e-15)
    start = R.xpos(to(np.ones((1, 8))), to([512]), role="query", layout="half", frequencies=np.zeros(4))
    np.testing.assert_allclose(np.asarray(start)[0], ZETA * 2, rtol=1e-14)


@covers("P93", "F12", "F14", "F24")
@kinds
@layouts
@given(st.integers(-10**4, 10**4), st.integers(-10**4, 10**4), st.integers(-10**4, 10**4), st.integers(0, 2**32 - 1))
@quick
def test_scaled_scores_fall_with_the_lag_and_know_no_center(kind, layout, i, j, center, seed):
    to, (q, k) = KINDS[kind], np.random.default_rng(seed).normal(size=(2, 1, 8))
    turned = [np.asarray(R.rotate(to(x), to([p]), layout=layout)) for x, p in ((q, i), (k, j))]
    zeta = np.array(ZETA * 2 if layout == "half" else np.repeat(ZETA, 2))
    want = (turned[0] * turned[1] * zeta ** ((i - j) / 512)).sum()
    for c in (0, center):
        a, b = (np.asarray(R.xpos(to(x), to([p]), role=role, layout=layout, center=c)) for x, p, role in ((q, i, "query"), (k, j, "key")))
        assert abs((a * b).sum() - want) <= 1e-9 * (np.abs(turned[0] * turned[1]) * zeta ** ((i - j) / 512)).sum() + 1e-300


@pytest.mark.parametrize("dtype, reach", [(torch.float16, 3966), (torch.bfloat16, 35694), (torch.float32, 35694), (torch.float64, 289519)])
@pytest.mark.parametrize("role", ["query", "key"])
@pytest.mark.parametrize("center", [0, -7])
def test_scales_stay_within_the_normal_numbers_or_are_refused(dtype, reach, role, center):
    x = torch.ones(1, 8, dtype=dtype)
    call = lambda p: R.xpos(x, torch.tensor([p]), role=role, layout="half", center=center, frequencies=np.zeros(4))
    for sign in (1, -1):
        got = call(center + sign * reach).double()
        assert got.isfinite().all() and got.min() >= torch.finfo(dtype).smallest_normal
        with pytest.raises(ValueError, match=rf"positions holds {center + sign * (reach + 1)}, center is {center}: the scale of {dtype} "
                                             rf"vectors reaches {reach} positions to each side"):
            call(center + sign * (reach + 1))


@layouts
def test_scaled_halves_are_rounded_once_and_gradients_pass(layout):
    ids = torch.randint(-3000, 3000, (80,), generator=torch.Generator().manual_seed(1))
    x = draw(49, 80, 64, dtype=torch.bfloat16)
    want = to_bits(R.xpos(x.double(), ids, role="key", layout=layout).numpy(), 8)
    assert (R.xpos(x, ids, role="key", layout=layout).double().numpy() == want).mean() >= 0.999
    f = lambda x: R.xpos(x, ids[:3], role="query", layout=layout, width=4, center=9)
    x = draw(50, 2, 3, 5).requires_grad_()
    assert torch.autograd.gradcheck(f, x) and torch.autograd.gradgradcheck(f, x)
    assert torch.equal(f(x)[..., 4:], x[..., 4:])
    meta = R.xpos(torch.ones(1, 8, device="meta"), torch.tensor([10**6], device="meta"), role="key", layout=layout)
    assert meta.shape == (1, 8)
    none = R.xpos(torch.ones(0, 8), torch.zeros(0, dtype=torch.int64), role="key", layout=layout)
    assert none.shape == (0, 8)


def test_moved_keys_of_xpos():
    k, old, new = draw(51, 5, 8), torch.arange(5) + 900, torch.arange(5)
    cached = R.xpos(k, old, role="key", layout="half", center=40)
    moved = R.xpos(cached, new - old, role="key", layout="half")
    torch.testing.assert_close(moved, R.xpos(k, new, role="key", layout="half", center=40), rtol=1e-12, atol=0)


# -- decode equals full, in every mode

MODES = {
    "plain": {}, "partial": {"width": 6}, "proportional": {"frequencies": R.proportional_frequencies(12, 0.5)}, "base": {"base": 77.0},
    "chunked": {"axes": multiaxis.mrope_axes((1, 2, 3), order="chunked")}, "interleaved": {"axes": multiaxis.mrope_axes((2, 2, 2), order="interleaved")},
    "axial": {"axes": multiaxis.axial_axes(12, 2), "frequencies": multiaxis.axial_frequencies(12, 2)},
    "partial axial": {"width": 8, "axes": multiaxis.axial_axes(8, 2), "frequencies": multiaxis.axial_frequencies(8, 2)},
    "query": {"role": "query", "center": 3}, "key": {"role": "key", "width": 8},
}


@covers("P36", "P52", "P63", "P93", "P97", "F12", "F14", "F24")
@kinds
@layouts
@pytest.mark.parametrize("mode", MODES)
def test_one_by_one_and_in_chunks_is_the_whole_bit_for_bit(kind, layout, mode):
    to, settings = KINDS[kind], MODES[mode]
    turn = R.xpos if "role" in settings else R.rotate
    axes = () if "axes" not in settings else (max(settings["axes"]) + 1,)
    for dtype in ("float16", "float32", "float64"):
        for rows in ((), (2,)):
            ids = np.cumsum(np.random.default_rng(3).integers(0, 40, (*axes, *rows, 11)), axis=-1) - 90      # some negative, some repeated
            x = to(draw(52, 2, 3, 11, 12).numpy().astype(dtype))
            whole = turn(x, to(ids), layout=layout, **settings)
            assert float(abs(whole - x).max()) > 0.1
            for a, b in [(t, t + 1) for t in range(11)] + [(0, 4), (4, 11)]:
                part = turn(x[:, :, a:b], to(ids[..., a:b]), layout=layout, **settings)
                assert bool((part == whole[:, :, a:b]).all())


# -- weights from one layout to another

@covers("P46", "P47")
@kinds
def test_the_order_of_converted_rows(kind):
    to = KINDS[kind]
    for heads, width, want in ((1, None, [0, 2, 4, 6, 8, 1, 3, 5, 7, 9]), (1, 4, [0, 2, 1, 3, 4, 5, 6, 7, 8, 9]), (1, 2, list(range(10))),
                               (5, None, list(range(10)))):
        assert R.convert(to(np.arange(10)), source="interleaved", target="half", heads=heads, width=width).tolist() == want
    assert R.convert(to(np.arange(12)), source="half", target="interleaved", heads=2, width=4).tolist() == [0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11]
    assert R.convert(to(np.arange(6)), source="half", target="interleaved", heads=1).tolist() == [0, 3, 1, 4, 2, 5]


@covers("P46")
@kinds
@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 3), st.sampled_from([0, 1, -1, -2]), st.sampled_from([LAYOUTS, LAYOUTS[::-1]]))
@quick
def test_converting_back_and_forth_changes_no_bit(kind, heads, pairs, rest, axis, way):
    width = 2 * pairs
    shape = [3, 3]
    shape[axis] = heads * (width + rest)
    w = KINDS[kind](np.random.default_rng(1).integers(0, 2**63, shape).view(np.float64))        # any bits
    bits = lambda x: np.asarray(x).view(np.int64)
    there = R.convert(w, source=way[0], target=way[1], heads=heads, width=width, axis=axis)
    back = R.convert(there, source=way[1], target=way[0], heads=heads, width=width, axis=axis)
    assert (bits(back) == bits(w)).all() and (pairs == 1 or not (bits(there) == bits(w)).all())
    same = R.convert(w, source=way[0], target=way[0], heads=heads, width=width, axis=axis)
    assert (bits(same) == bits(w)).all() and same is not w
    assert (np.sort(bits(there), axis=axis) == np.sort(bits(w), axis=axis)).all()


class Toy:
    """Attention with grouped keys, biases, a norm on heads, and a partial turn."""
    heads, kv, head, width = 4, 2, 10, 6

    def __init__(self):
        one = lambda seed, *shape: draw(seed, *shape)
        self.weights = {name: one(i, n * self.head, 16) for i, (name, n) in enumerate((("q", 4), ("k", 2), ("v", 2)), start=60)}
        self.biases = {name: one(i, n * self.head) for i, (name, n) in enumerate((("q", 4), ("k", 2), ("v", 2)), start=70)}
        self.gains = {name: one(i, self.head) for i, name in enumerate("qk", start=80)}

    def converted(self, source, target, parts):
        other, convert = copy.deepcopy(self), functools.partial(R.convert, source=source, target=target, width=self.width)
        for kind in parts:
            held = getattr(other, kind)
            for name, heads in (("q", self.heads), ("k", self.kv)):
                held[name] = convert(held[name], heads=1 if kind == "gains" else heads)
        return other

    def __call__(self, x, ids, layout):
        project = lambda name, n: (x @ self.weights[name].T + self.biases[name]).unflatten(-1, (n, self.head)).transpose(1, 2)
        normed = lambda y, name: y / y.square().mean(-1, keepdim=True).sqrt() * self.gains[name]
        q, k = (R.rotate(normed(project(name, n), name), ids, layout=layout, width=self.width) for name, n in (("q", self.heads), ("k", self.kv)))
        k, v = (y.repeat_interleave(self.heads // self.kv, dim=1) for y in (k, project("v", self.kv)))
        return attention(q, k, v, mask=causal_mask(x.shape[1], like=x))


@covers("P46", "P47", "P48")
@pytest.mark.parametrize("source, target", [LAYOUTS, LAYOUTS[::-1]])
def test_a_whole_attention_is_the_same_after_conversion_and_only_of_all_parts(source, target):
    toy, x, ids = Toy(), draw(90, 2, 7, 16), torch.arange(7) + 300
    output, weights = toy(x, ids, source)
    parts = ("weights", "biases", "gains")
    again = toy.converted(source, target, parts)(x, ids, target)
    torch.testing.assert_close(again, (output, weights), rtol=0, atol=1e-13)
    for missing in parts:
        other = toy.converted(source, target, [p for p in parts if p != missing])(x, ids, target)
        assert float((other[1] - weights).abs().max()) > 1e-3
    assert float((toy(x, ids, target)[1] - weights).abs().max()) > 1e-3


def test_every_dtype_converts_and_gradients_pass():
    for dtype in (torch.bfloat16, torch.float16, torch.int8, torch.bool):
        w = (draw(91, 8, 3) > 0).to(dtype)
        assert R.convert(w, source="half", target="interleaved", heads=1).dtype == dtype
    w = draw(92, 8).requires_grad_()
    (R.convert(w, source="half", target="interleaved", heads=2) * torch.arange(8.0)).sum().backward()
    assert w.grad.tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_examples_of_the_docstrings():
    for module in (R, multiaxis):
        found = {t.name.rsplit(".", 1)[1]: t for t in doctest.DocTestFinder().find(module) if t.examples}
        assert set(module.__all__) <= set(found)
        assert doctest.testmod(module).failed == 0


# -- torch: settings from outside, devices, gradients

SETTINGS = {
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "default dtype": lambda: Default(torch.bfloat16),
    "default device": lambda: torch.device("meta"),
    "constructors": lambda: Narrowed(),
    "matmul precision": lambda: Tf32(),
    "inference": torch.inference_mode,
}


class Default:
    def __init__(self, dtype):
        self.dtype = dtype

    def __enter__(self):
        torch.set_default_dtype(self.dtype)

    def __exit__(self, *_):
        torch.set_default_dtype(torch.float32)


class Tf32(Default):
    def __init__(self):
        pass

    def __enter__(self):
        torch.set_float32_matmul_precision("high")

    def __exit__(self, *_):
        torch.set_float32_matmul_precision("highest")


class Narrowed(Default):
    """torch's constructors return bfloat16, as some engines make them while a model is built."""
    names = ("tensor", "arange", "linspace", "zeros", "ones", "full", "empty", "eye")

    def __init__(self):
        self.kept = {(where, name): getattr(where, name) for where in (torch, array_api_compat.torch) for name in self.names
                     if hasattr(where, name)}

    def __enter__(self):
        for (where, name), make in self.kept.items():
            def narrow(*args, make=make, **named):
                made = make(*args, **named)
                return made.to(torch.bfloat16) if made.is_floating_point() else made
            setattr(where, name, narrow)

    def __exit__(self, *_):
        for (where, name), make in self.kept.items():
            setattr(where, name, make)


@covers("P01", "P05", "P06", "P07", "P12", "P13", "F10", "F22")
@pytest.mark.parametrize("setting", SETTINGS)
@layouts
def test_settings_from_outside_change_no_bit(setting, layout):
    ids = torch.tensor([[0, 256, 257, 2049], [65536, 65537, -1, 10**6]])
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        x = draw(9, 2, 3, 4, 16, dtype=dtype)
        want = R.rotate(x, ids, layout=layout)
        with SETTINGS[setting]():
            got = R.rotate(x, ids, layout=layout)
            omega = R.frequencies(16)
            a = R.angles(ids, omega)
        assert got.dtype == dtype and torch.equal(got, want) and a.dtype == torch.float64
        assert torch.equal(a, ids.double()[..., None] * torch.from_numpy(R.frequencies(16)))


@covers("P12", "P92", "F09", "F10", "F22")
@layouts
def test_calls_do_not_know_of_each_other(layout):
    x, ids = draw(10, 300, 16, dtype=torch.float32), torch.arange(300)
    first = R.rotate(x, ids, layout=layout)
    R.rotate(x.bfloat16(), ids, layout=layout)
    R.rotate(x, ids + 3, layout=layout, base=7.0)
    again = R.rotate(x, ids, layout=layout)
    assert torch.equal(first, again) and again.data_ptr() != first.data_ptr()


class Turn(torch.nn.Module):
    """How a module should hold its settings: Python numbers, or frequencies as a numpy array."""

    def __init__(self, width, frequencies=None):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.eye(width))
        self.settings = {"layout": "half"} | ({"base": 500000.0} if frequencies is None else {"frequencies": frequencies})

    def forward(self, x, ids):
        return R.rotate(x, ids, **self.settings)


@covers("P03", "P07", "P98", "P100", "P101", "F28")
@pytest.mark.parametrize("omega", [None, R.frequencies(16, 500000.0)], ids=["base", "frequencies"])
def test_a_module_may_be_cast_copied_and_made_on_meta(omega):
    x, ids = draw(13, 4, 16, dtype=torch.float32), torch.tensor([256, 257, 4095, 10**6])
    want = Turn(16, omega)(x, ids)
    with torch.device("meta"):
        made = Turn(16, omega)
    for module in (Turn(16, omega).bfloat16(), Turn(16, omega).half().float(), copy.deepcopy(Turn(16, omega)),
                   made.to_empty(device="cpu").bfloat16()):
        kept = dict(module.settings)
        assert torch.equal(module(x, ids), want) and list(module.state_dict()) == ["weight"]
        assert all(module.settings[name] is value for name, value in kept.items())


@covers("P03", "P10")
def test_narrow_frequencies_are_refused_rather_than_used():
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        with pytest.raises(TypeError, match=rf"frequencies has dtype {dtype}; allowed is float64"):
            R.rotate(torch.ones(1, 4), torch.tensor([1]), layout="half", frequencies=torch.ones(2, dtype=dtype))


@covers("P103", "P98")
@layouts
def test_the_meta_device_knows_shape_and_dtype(layout):
    ids = torch.zeros(2, 5, dtype=torch.int64, device="meta")
    for dtype in (torch.bfloat16, torch.float64):
        got = R.rotate(torch.ones(2, 3, 5, 8, dtype=dtype, device="meta"), ids, layout=layout)
        assert got.shape == (2, 3, 5, 8) and got.dtype == dtype and got.device.type == "meta"
    assert R.angles(ids, R.frequencies(8)).shape == (2, 5, 4)


class Watch(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        self.seen.append(op)
        return op(*args, **(kwargs or {}))


@covers("P05", "P68", "P101")
@layouts
def test_no_matrix_product_and_no_write_in_place(layout):
    with Watch() as watch:
        R.rotate(torch.ones(2, 3, 5, 8), torch.zeros(2, 5, dtype=torch.int64), layout=layout, inverse=True)
    assert len(watch.seen) > 5
    assert not [op for op in watch.seen if op._schema.is_mutable]
    assert not [op for op in watch.seen if any(word in str(op) for word in ("mm", "matmul", "dot", "einsum"))]
    tree = ast.parse(inspect.getsource(R))
    called = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not called & {"matmul", "einsum", "outer", "dot", "tensordot", "vecdot"}
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.MatMult)]


@covers("P68")
@kinds
@layouts
def test_inputs_are_not_changed_and_not_shared(kind, layout):
    to = KINDS[kind]
    x, ids, omega = to(draw(14, 3, 8).numpy()), to([0, 0, 5]), to(R.frequencies(8))
    before = [np.asarray(v).copy() for v in (x, ids, omega)]
    out = R.rotate(x, ids, layout=layout, frequencies=omega)
    for table in R.tables(R.angles(ids, omega), omega.dtype):
        table[...] = 0
    out[...] = 7
    assert all((np.asarray(v) == b).all() for v, b in zip((x, ids, omega), before))


@covers("P60")
@layouts
def test_strides_do_not_matter(layout):
    qkv = draw(15, 2, 5, 3, 24, dtype=torch.float32)
    ids = torch.tensor([[0, 3, 9, 2, 1], [7, -7, 7, 0, 4]])
    views = [qkv[..., 8:16].transpose(1, 2), qkv.permute(0, 2, 1, 3)[..., ::3], qkv[:1, :, :1, :8].transpose(1, 2).expand(2, 3, 5, 8)]
    for view in views:
        want = R.rotate(view.contiguous(), ids, layout=layout)
        assert torch.equal(R.rotate(view, ids, layout=layout), want)
        assert (R.rotate(view.numpy(), ids.numpy(), layout=layout) == want.numpy()).mean() > 0.99
    assert torch.equal(R.rotate(qkv[:, :, 0, :8], ids.T.contiguous().T, layout=layout), R.rotate(qkv[:, :, 0, :8].contiguous(), ids, layout=layout))
    back = qkv.numpy()[:, ::-1, 0, ::-1]
    assert (R.rotate(back, ids.numpy(), layout=layout) == R.rotate(back.copy(), ids.numpy(), layout=layout)).all()


@covers("P65", "P66", "P67", "F27")
@layouts
@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("rows", [False, True])
def test_gradients_once_and_twice(layout, inverse, rows):
    ids = torch.tensor([[5, -2, 131071], [0, 9, 4]]) if rows else torch.tensor([5, -2, 131071])
    f = lambda x: R.rotate(x, ids, layout=layout, inverse=inverse)
    x = draw(16, 2, 2, 3, 6).requires_grad_()
    assert torch.autograd.gradcheck(f, x) and torch.autograd.gradgradcheck(f, x)
    y, dy = f(x).detach(), draw(17, 2, 2, 3, 6)
    (dx,) = torch.autograd.grad(f(x), x, dy)
    torch.testing.assert_close(dx, R.rotate(dy, ids, layout=layout, inverse=not inverse), rtol=0, atol=1e-15)
    assert abs(float((dy * y).sum() - (dx * x.detach()).sum())) < 1e-13


@covers("P67")
@layouts
def test_gradients_of_half_precision_are_rounded_once(layout):
    x, dy, ids = draw(18, 40, 64, dtype=torch.bfloat16).requires_grad_(), draw(19, 40, 64, dtype=torch.bfloat16), torch.arange(40) * 25000
    with torch.autocast("cpu", dtype=torch.bfloat16):
        R.rotate(x, ids, layout=layout).backward(dy)
    assert x.grad.dtype == torch.bfloat16
    assert (x.grad.double().numpy() == to_bits(oracle(dy.double(), ids, layout, inverse=True), 8)).mean() >= 0.999


@layouts
def test_gradients_reach_frequencies_and_fractional_positions(layout):
    f = lambda x, p, omega: R.rotate(x, p, layout=layout, frequencies=omega, fractional=True)
    x, p, omega = draw(20, 3, 4), draw(21, 3), torch.tensor([1.0, 0.3], dtype=torch.float64)
    assert torch.autograd.gradcheck(f, [v.requires_grad_() for v in (x, p, omega)])


@covers("P102")
@pytest.mark.filterwarnings("ignore")
@layouts
def test_compiles_to_one_graph(layout):
    f = torch.compile(lambda x, ids: R.rotate(x, ids, layout=layout), backend="eager", fullgraph=True)
    x, ids = draw(22, 2, 3, 5, 8, dtype=torch.bfloat16), torch.tensor([[0, 1, 2, 3, 4], [7, 7, -1, 0, 10**6]])
    assert torch.equal(f(x, ids), R.rotate(x, ids, layout=layout))


# -- errors

X, T, ID, ID_T, ID5 = np.ones((3, 4)), torch.ones(3, 4), np.arange(3), torch.arange(3), np.arange(5)
ID2 = np.arange(6).reshape(2, 3)
turn = functools.partial(R.rotate, layout="half")
scaled = lambda **named: R.xpos(X, ID, **{"role": "key", "layout": "half", **named})
BAD = {  # what is passed -> error and a piece of its message
    "odd width": (lambda: R.frequencies(65), ValueError, r"width is 65; allowed are even numbers"),                 # P53, F17
    "no width": (lambda: R.frequencies(0), ValueError, r"width is 0; allowed is at least 2"),
    "width float": (lambda: R.frequencies(4.0), TypeError, r"width is 4\.0; allowed is a whole number"),
    "width bool": (lambda: R.frequencies(True), TypeError, r"width is True"),
    "base below one": (lambda: R.frequencies(4, 0.99), ValueError, r"base is 0\.99; allowed is a finite number of at least 1"),
    "base negative": (lambda: R.frequencies(4, -2.0), ValueError, r"base is -2\.0"),
    "base nan": (lambda: R.frequencies(4, math.nan), ValueError, r"base is nan"),
    "base inf": (lambda: R.frequencies(4, math.inf), ValueError, r"base is inf"),
    "base huge": (lambda: R.frequencies(4, 10**400), ValueError, r"base is 1000"),
    "base text": (lambda: R.frequencies(4, "1e4"), TypeError, r"base is '1e4'; allowed is a finite number of at least 1"),
    "base bool": (lambda: R.frequencies(4, True), TypeError, r"base is True"),
    "base tensor": (lambda: R.frequencies(4, torch.tensor(1e4, dtype=torch.bfloat16)), TypeError, r"base is tensor"),   # P03
    "base in rotate": (lambda: turn(X, ID, base=0.5), ValueError, r"base is 0\.5; allowed"),
    "angles list": (lambda: R.angles([1], R.frequencies(4)), TypeError, r"positions is a list; allowed are numpy arrays"),
    "angles scalar": (lambda: R.angles(np.array(1), R.frequencies(4)), ValueError, r"positions has no axis"),
    "angles float": (lambda: R.angles(np.array([1.0]), R.frequencies(4)), TypeError,
                     r"positions has dtype float64; allowed are integers, and float32 or float64 with fractional=True"),
    "angles half": (lambda: R.angles(torch.ones(1).bfloat16(), R.frequencies(4), fractional=True), TypeError,
                    r"positions has dtype torch\.bfloat16"),                                                        # P01, F10
    "angles bool": (lambda: R.angles(np.array([True]), R.frequencies(4), fractional=True), TypeError, r"positions has dtype bool"),
    "angles uint64": (lambda: R.angles(np.array([1], np.uint64), R.frequencies(4)), TypeError, r"positions has dtype uint64"),
    "angles flag": (lambda: R.angles(ID, R.frequencies(4), fractional=1), TypeError, r"fractional is 1; allowed are True and False"),
    "omega list": (lambda: R.angles(ID, [1.0]), TypeError, r"frequencies is a list"),
    "omega kind": (lambda: R.angles(ID, torch.ones(2).double()), TypeError, r"frequencies is a Tensor, positions a ndarray"),
    "omega dtype": (lambda: R.angles(ID, np.ones(2, "f4")), TypeError, r"frequencies has dtype float32; allowed is float64"),
    "omega shape": (lambda: R.angles(ID, np.ones((2, 1))), ValueError, r"frequencies has shape \(2, 1\); allowed is \(pairs,\)"),
    "omega empty": (lambda: R.angles(ID, np.ones(0)), ValueError, r"frequencies has shape \(0,\); .* at least one"),
    "omega device": (lambda: R.angles(torch.arange(3), torch.ones(2, device="meta").double()), ValueError,
                     r"frequencies is on device meta, positions on cpu"),
    "table kind": (lambda: R.tables([1.0], np.float32), TypeError, r"angles is a list"),
    "table angles": (lambda: R.tables(np.ones(3, "f4"), np.float32), TypeError, r"angles has dtype float32; allowed is float64"),
    "table dtype": (lambda: R.tables(X, int), TypeError, r"dtype is <class 'int'>; allowed are float dtypes"),
    "table text": (lambda: R.tables(X, "float32"), TypeError, r"dtype is 'float32'"),
    "table other kind": (lambda: R.tables(X, torch.bfloat16), TypeError, r"dtype is torch\.bfloat16; .* of the kind of angles"),
    "table long": (lambda: R.tables(X, np.longdouble), TypeError, r"dtype is .*longdouble.*up to 64 bits"),
    "x list": (lambda: turn([[1.0, 2.0]], ID), TypeError, r"x is a list"),
    "x integers": (lambda: turn(X.astype(int), ID), TypeError, r"x has dtype int64; allowed are float dtypes"),
    "x complex": (lambda: turn(X.astype(complex), ID), TypeError, r"x has dtype complex128"),
    "x long double": (lambda: turn(X.astype(np.longdouble), ID), TypeError, r"x has dtype .* up to 64 bits"),
    "x one axis": (lambda: turn(X[0], ID), ValueError, r"x has shape \(4,\); allowed is \(\.\.\., length, width\)"),
    "x odd": (lambda: turn(X[:, :3], ID), ValueError, r"x has shape \(3, 3\): its width 3 must be even"),             # P53, F17
    "x no width": (lambda: turn(X[:, :0], ID), ValueError, r"its width 0 must be even and at least 2"),
    "no layout": (lambda: R.rotate(X, ID), TypeError, r"layout"),                                                   # P48
    "layout neox": (lambda: R.rotate(X, ID, layout="neox"), ValueError,
                    r"layout is 'neox'; allowed are 'half' \(.*NeoX, Llama in Hugging Face\) and 'interleaved' \(.*GPT-J, Llama in Meta's code\)"),
    "layout bool": (lambda: R.rotate(X, ID, layout=True), ValueError, r"layout is True; allowed are 'half'"),
    "positions list": (lambda: turn(X, [0, 1, 2]), TypeError, r"positions is a list"),
    "positions kind": (lambda: turn(X, torch.arange(3)), TypeError, r"positions is a Tensor, x a ndarray"),
    "positions float": (lambda: turn(X, ID + 0.5), TypeError, r"positions has dtype float64; allowed are integers"),
    "positions device": (lambda: turn(T.to("meta"), torch.arange(3)), ValueError, r"positions is on device cpu, x on meta"),  # P103
    "too few": (lambda: turn(X, ID[:2]), ValueError, r"positions has shape \(2,\), x \(3, 4\): .*here \(3,\)"),      # F15
    "too many": (lambda: turn(X, np.arange(4)), ValueError, r"positions has shape \(4,\)"),
    "one for all": (lambda: turn(X, ID[:1]), ValueError, r"positions has shape \(1,\)"),
    "one for all heads": (lambda: turn(np.ones((2, 3, 4)), ID[:1]), ValueError, r"positions has shape \(1,\), x \(2, 3, 4\)"),
    "a number": (lambda: turn(X, np.array(3)), ValueError, r"positions has shape \(\)"),
    "rows without batch": (lambda: turn(X, ID[None]), ValueError, r"positions has shape \(1, 3\), x \(3, 4\)"),
    "other batch": (lambda: turn(X[None, None].repeat(2, 0), np.ones((3, 3), int)), ValueError, r"here \(3,\) or \(2, 3\) or \(1, 3\)"),
    "rows of heads": (lambda: turn(np.ones((2, 3, 5, 4)), np.ones((2, 3, 5), int)), ValueError, r"positions has shape \(2, 3, 5\)"),
    "given list": (lambda: turn(X, ID, frequencies=[1.0, 2.0]), TypeError, r"frequencies is a list"),
    "given few": (lambda: turn(X, ID, frequencies=np.ones(1)), ValueError,
                  r"frequencies has shape \(1,\); allowed is one for each pair, \(2,\); to turn fewer channels, give width"),
    "given twice": (lambda: turn(X, ID, base=5.0, frequencies=np.ones(2)), ValueError, r"base is 5\.0 and frequencies are given"),
    "width odd": (lambda: turn(X, ID, width=3), ValueError, r"width is 3; allowed are even numbers: channels turn in pairs"),
    "width zero": (lambda: turn(X, ID, width=0), ValueError, r"width is 0; allowed is at least 2"),
    "width share": (lambda: turn(X, ID, width=0.5), TypeError, r"width is 0\.5; allowed is a whole number"),
    "width beyond": (lambda: turn(X, ID, width=6), ValueError, r"width is 6, x has shape \(3, 4\); allowed is at most 4"),
    "given for all": (lambda: turn(X, ID, width=2, frequencies=np.ones(2)), ValueError, r"frequencies has shape \(2,\); .*each pair, \(1,\)"),
    "out list": (lambda: turn(X, ID, out=[]), TypeError, r"out is a list"),
    "out kind": (lambda: turn(X, ID, out=torch.ones(3, 4)), TypeError, r"out is a Tensor, x a ndarray"),
    "out dtype": (lambda: turn(T, ID_T, out=T.double()), TypeError, r"out has dtype torch\.float64, x torch\.float32: they must be the same"),
    "out device": (lambda: turn(T, ID_T, out=T.to("meta")), ValueError, r"out is on device meta, x on cpu"),
    "out shape": (lambda: turn(X, ID, out=np.ones((1, 3, 4))), ValueError, r"out has shape \(1, 3, 4\), x \(3, 4\): they must be the same"),
    **{f"out overlaps, {kind} {part}": (
        lambda kind=kind, part=part: turn((slots := Slots(kind, torch.bfloat16 if kind == "torch" else torch.float32)).left,
                                          KINDS[kind](ID5), out=getattr(slots, part)), ValueError,
        r"out overlaps x in memory; allowed is x itself, or an array apart from it")
       for kind in KINDS for part in ("shifted", "every")},
    "out broadcast": (lambda: turn(T, ID_T, out=torch.empty(4).expand(3, 4)), ValueError, r"out has entries that share memory"),
    "out broadcast is x": (lambda: (lambda x: turn(x, ID_T, out=x))(torch.empty(4).expand(3, 4)), ValueError, r"out has entries that share"),
    "out windows": (lambda: turn(X, ID, out=np.lib.stride_tricks.as_strided(np.ones(9), (3, 4), (16, 8))), ValueError, r"out has entries that share"),
    "out read-only": (lambda: turn(X, ID, out=np.broadcast_to(X, (3, 4))), ValueError, r"out is read-only"),
    "axes text": (lambda: turn(X, ID2, axes="01"), TypeError, r"axes is a str; allowed are integers"),
    "axes floats": (lambda: turn(X, ID2, axes=np.array([0.0, 1.0])), TypeError, r"axes has dtype float64"),
    "axes float": (lambda: turn(X, ID2, axes=(0, 1.0)), TypeError, r"axes is 1\.0; allowed is a whole number"),
    "axes few": (lambda: turn(X, ID2, axes=(0,)), ValueError, r"axes has shape \(1,\); allowed is one for each pair, \(2,\)"),
    "axes shape": (lambda: turn(X, ID2, axes=np.array([[0, 1]])), ValueError, r"axes has shape \(1, 2\)"),
    "axes beyond": (lambda: turn(X, ID2, axes=(0, 2)), ValueError, r"axes holds 2, positions has 2 axes; allowed are 0 to 1"),
    "axes negative": (lambda: turn(X, ID2, axes=np.array([0, -1])), ValueError, r"axes holds -1, positions has 2 axes"),
    "axes without ids": (lambda: turn(X, ID, axes=(0, 0)), ValueError, r"positions has shape \(3,\), .*an axis for the axes, then"),
    "axes in angles": (lambda: R.angles(ID, R.frequencies(4), axes=(0, 0)), ValueError, r"allowed with axes is \(axes, \.\.\., length\)"),
    "axes rows": (lambda: turn(X, np.ones((2, 4), int), axes=(0, 1)), ValueError, r"positions has shape \(2, 4\), x \(3, 4\): .*here \(3,\)"),
    "ids without axes": (lambda: turn(np.ones((2, 3, 4)), np.ones((3, 2, 3), int)), ValueError, r"positions has shape \(3, 2, 3\)"),
    "old": (lambda: R.reposition(X, ID[:2], ID, layout="half"), ValueError, r"old has shape \(2,\), x \(3, 4\): .*here \(3,\)"),
    "new": (lambda: R.reposition(X, ID, ID[:2], layout="half"), ValueError, r"new has shape \(2,\)"),
    "old float": (lambda: R.reposition(X, ID + 0.5, ID, layout="half"), TypeError, r"old has dtype float64; allowed are integers"),
    "new kind": (lambda: R.reposition(X, ID, ID_T, layout="half"), TypeError, r"new is a Tensor, x a ndarray"),
    "new device": (lambda: R.reposition(T, ID_T, ID_T.to("meta"), layout="half"), ValueError, r"new is on device meta, x on cpu"),
    "moved layout": (lambda: R.reposition(X, ID, ID, layout="neox"), ValueError, r"layout is 'neox'"),
    "share": (lambda: R.proportional_frequencies(8, 1.5), ValueError, r"share is 1\.5; allowed is a number from 0 to 1"),
    "share nan": (lambda: R.proportional_frequencies(8, math.nan), ValueError, r"share is nan"),
    "share bool": (lambda: R.proportional_frequencies(8, True), TypeError, r"share is True"),
    "share text": (lambda: R.proportional_frequencies(8, "1"), TypeError, r"share is '1'"),
    "share width": (lambda: R.proportional_frequencies(7, 0.5), ValueError, r"width is 7; allowed are even"),
    "no role": (lambda: R.xpos(X, ID, layout="half"), TypeError, r"role"),
    "role": (lambda: scaled(role="q"), ValueError, r"role is 'q'; allowed are 'query' \(scaled up\) and 'key' \(scaled down\)"),
    "center": (lambda: scaled(center=0.5), TypeError, r"center is 0\.5; allowed is a whole number"),
    "center bool": (lambda: scaled(center=True), TypeError, r"center is True"),
    "center far": (lambda: scaled(center=2**60), ValueError, r"center is 1152921504606846976; allowed is up to 2\*\*53 in size"),
    "scale_base": (lambda: scaled(scale_base=0), ValueError, r"scale_base is 0; allowed is a positive finite number"),
    "scale_base text": (lambda: scaled(scale_base="512"), TypeError, r"scale_base is '512'"),
    "gamma": (lambda: scaled(gamma=math.inf), ValueError, r"gamma is inf; allowed is a positive finite number"),
    "scaled float": (lambda: R.xpos(X, ID + 0.5, role="key", layout="half"), TypeError, r"positions has dtype float64"),
    "convert layout": (lambda: R.convert(X, source="neox", target="half", heads=1), ValueError, r"source is 'neox'; allowed are 'half'"),
    "convert target": (lambda: R.convert(X, source="half", target=None, heads=1), ValueError, r"target is None; allowed are 'half'"),
    "convert list": (lambda: R.convert([1.0], source="half", target="half", heads=1), TypeError, r"weight is a list"),
    "convert heads": (lambda: R.convert(X, source="half", target="half", heads=2), ValueError, r"heads is 2, weight has shape \(3, 4\): 3 rows"),
    "convert no head": (lambda: R.convert(X, source="half", target="half", heads=0), ValueError, r"heads is 0; allowed is at least 1"),
    "convert odd": (lambda: R.convert(X, source="half", target="half", heads=1), ValueError, r"weight has shape \(3, 4\): its width 3 must be even"),
    "convert width": (lambda: R.convert(X, source="half", target="half", heads=1, width=4), ValueError, r"width is 4, weight has shape .*at most 3"),
    "convert axis": (lambda: R.convert(X, source="half", target="half", heads=1, axis=2), ValueError, r"axis is 2, weight has shape .*-2 to 1"),
    "convert axis text": (lambda: R.convert(X, source="half", target="half", heads=1, axis="0"), TypeError, r"axis is '0'"),
    "inverse number": (lambda: turn(X, ID, inverse=-1), TypeError, r"inverse is -1; allowed are True and False"),
    "fractional text": (lambda: turn(X, ID, fractional="yes"), TypeError, r"fractional is 'yes'"),
}


test_bad_input_names_the_argument_the_value_and_what_is_allowed = covers("P53", "F15", "F17", "P48", "P103")(bad_input_test(BAD))
