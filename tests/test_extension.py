"""poslib.extension against truths of 40 digits, stored reference values, transformers' own functions, and every error it promises.

Ids such as P18 name public reports of the kind of mistake that a test rules out; REPORTS says which.
"""

import contextlib
import copy
import dataclasses
import functools
import importlib
import math
import pickle

import mpmath               # comes with torch
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import bad_input_test, reports_to_cover
from poslib import extension as E
from poslib import hf, nn
from poslib import rotary as R
from poslib.attention import attention, causal_mask, scores
from poslib.hf import from_hf_config

REPORTS = {
    "P18": "transformers 25104: cached keys turned with an older base", "P20": "vllm 5093: dynamic as static at the longest length",
    "P21": "vllm 52665: a length below the trained one", "P22": "vllm 55910: rows past the trained length", "P23": "mlxcel 1324: positions doubled",
    "P25": "vllm 46280: attention_factor dropped", "P26": "sglang 33558: attention_factor as a multiplier",
    "P27": "TensorRT-LLM 16379: attention_factor fed back into its formula", "P28": "vllm 48623: mscale and mscale_all_dim ignored",
    "P30": "imp 880: two weights merged into one", "P31": "DeepSeek-R1 684: attn_factor not read", "P32": "vllm 28244: truncate not read",
    "P33": "keras-hub 2981: ramp ends at the last pair", "P35": "llama.cpp 18006: a weight that the file does not give",
    "P36": "sglang 38786: a grown table differs", "P37": "transformers 33129: short list cached, long list used",
    "P38": "vllm 27431: list chosen for each position", "P40": "llama.cpp 8995: list chosen by the room of the cache",
    "P41": "tvm 18102: lists of the head's width", "P42": "unsloth 6197: Llama 3 scaling dropped", "P43": "Automodel 2825: unknown kind taken for another",
    "P45": "Soup 793: a configuration changed after it was read", "P102": "transformers 35716: graph breaks",
    "F02": "transformers: long base kept for a text of just the trained length", "F03": "transformers: mscale alone ignored",
    "F04": "transformers: head_dim None", "F19": "keras-hub: every frequency divided",
}
covers, test_every_report_has_its_test = reports_to_cover(REPORTS)
KINDS = {"numpy": np.asarray, "torch": lambda x: torch.as_tensor(np.asarray(x))}
kinds, layouts = pytest.mark.parametrize("kind", KINDS), pytest.mark.parametrize("layout", ("half", "interleaved"))
quick = settings(max_examples=40, deadline=None)

LISTS = [1 + k / 16 for k in range(16)], [1 + 3 * k for k in range(16)]
METHODS = {  # for 32 channels
    "unscaled": E.Unscaled(), "linear": E.Linear(4), "ntk": E.NTKAware(4), "dynamic": E.DynamicNTK(2, 16), "by parts": E.ByParts(4, 64, beta_fast=8),
    "by parts, paper": E.ByParts(4, 64, ramp="paper", beta_fast=8), "by parts, raw": E.ByParts(4, 64, beta_fast=8, truncate=False),
    "yarn": E.YaRN(4, 64, beta_fast=8), "yarn, paper": E.YaRN(4, 64, beta_fast=8, ramp="paper"),
    "yarn, weights": E.YaRN(40, 64, mscale=1, mscale_all_dim=0.707, scale_softmax=True), "part ntk": E.PartNTK(4, 256),
    "llama 3": E.Llama3(8, 64), "longrope": E.LongRoPE(*LISTS, 16, factor=32), "longrope, two factors": E.LongRoPE(*LISTS, 16, short_mscale=1.1, long_mscale=1.3),
    "p-rope": E.Proportional(0.5, 2),
}
methods = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


def draw(seed, *shape, dtype=np.float64):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


# -- the numbers

@functools.cache
def exact(method, k, width, base, length):
    """Frequency of pair k from 40 digits, by the formula of the paper or of the code that is named."""
    with mpmath.workdps(40):
        m, d, name = mpmath.mpf, mpmath.mpf(width), type(method).__name__
        ladder = lambda b: mpmath.power(b, -2 * m(k) / d)
        omega, s = ladder(m(base)), m(getattr(method, "factor", 1) or 1)
        if name == "Linear":
            return omega / s
        if name in ("NTKAware", "DynamicNTK"):
            if name == "DynamicNTK":
                s = max(m(1), s * length / method.trained_length - (s - 1)) if length > method.trained_length else m(1)
            return ladder(m(base) * s ** (d / (d - 2)))
        if name in ("ByParts", "YaRN"):
            trained = m(method.trained_length)
            if method.ramp == "paper":
                r = trained / (2 * mpmath.pi / omega)                       # turns
                gamma = 0 if r < method.beta_slow else 1 if r > method.beta_fast else (r - method.beta_slow) / (m(method.beta_fast) - method.beta_slow)
                return (1 - gamma) * omega / s + gamma * omega
            at = lambda turns: d * mpmath.log(trained / (2 * mpmath.pi * turns)) / (2 * mpmath.log(base))
            low, high = at(m(method.beta_fast)), at(m(method.beta_slow))
            if method.truncate in (None, True):
                low, high = mpmath.floor(low), mpmath.ceil(high)
            low, high = max(low, m(0)), min(high, d - 1)
            r = min(max((k - low) / (high - low), m(0)), m(1))
            return omega * (1 - r) + omega / s * r
        if name == "Llama3":
            wave, trained, lo, hi = 2 * mpmath.pi / omega, m(method.trained_length), m(method.low_freq_factor), m(method.high_freq_factor)
            if wave < trained / hi:
                return omega
            t = (trained / wave - lo) / (hi - lo)
            return omega / s if wave > trained / lo else (1 - t) * omega / s + t * omega
        if name == "LongRoPE":
            return omega / m((method.long_factor if length > method.trained_length else method.short_factor)[k])
        if name == "Proportional":
            return omega / s if k < int(m(method.share) * width / 2) else m(0)
        return omega


TRUE = {**{name: m for name, m in METHODS.items() if name != "part ntk"},
        "yarn far": E.YaRN(16, 4096), "yarn long": E.YaRN(4, 131072), "yarn short": E.YaRN(8, 300, beta_fast=64, truncate=False),
        "paper far": E.ByParts(32, 4096, ramp="paper"), "llama 3.1": E.Llama3(8, 8192), "llama odd": E.Llama3(3, 777, low_freq_factor=0.5, high_freq_factor=9)}


@covers("P20", "P21", "P32", "P33", "P42", "F19")
@pytest.mark.parametrize("name", TRUE)
@pytest.mark.parametrize("base", [10000.0, 500000.0, 77.0])
def test_frequencies_from_forty_digits(name, base):
    method = TRUE[name]
    for length in (1, 16, 17, 40, 4096):
        got = method.frequencies(32, base, length=length)
        assert got.dtype == np.float64 and got.shape == (16,)
        np.testing.assert_allclose(got, [float(exact(method, k, 32, base, length)) for k in range(16)], rtol=2e-14, atol=0)


SHORT, LONG = [1 + 0.01 * i for i in range(48)], [1 + 0.5 * i for i in range(48)]
PHI = E.LongRoPE(SHORT, LONG, 4096, factor=131072 / 4096)
REFERENCE = {  # method, width, base, length: {pair: frequency} in float64, evaluated apart from any library
    "linear": (E.Linear(4), 128, 1e4, None, {0: 0.25, 1: 0.21649108084001634, 16: 0.025, 32: 0.0025, 63: 2.8869549617236455e-05}),
    "ntk": (E.NTKAware(8), 128, 1e4, None, {0: 1.0, 1: 0.8378480019188024, 16: 0.058971722444868216, 32: 0.003477664048114574, 63: 1.4434774808618228e-05}),
    "dynamic, 1024": (E.DynamicNTK(2, 2048), 128, 1e4, 1024, {0: 1.0, 1: 0.8659643233600653, 16: 0.1, 32: 0.01, 63: 0.00011547819846894582}),
    "dynamic, 2048": (E.DynamicNTK(2, 2048), 128, 1e4, 2048, {0: 1.0, 1: 0.8659643233600653, 16: 0.1, 32: 0.01, 63: 0.00011547819846894582}),
    "dynamic, 4096": (E.DynamicNTK(2, 2048), 128, 1e4, 4096, {0: 1.0, 1: 0.8509942913412162, 16: 0.07565303370243151, 32: 0.005723381508381238, 63: 3.849273282298194e-05}),
    "dynamic, 8192": (E.DynamicNTK(2, 2048), 128, 1e4, 8192, {0: 1.0, 1: 0.8396257425643114, 16: 0.06100591233818991, 32: 0.003721721340214912, 63: 1.649688549556369e-05}),
    "part ntk": (E.PartNTK(4, 2048), 128, 1e4, None, {0: 1.0, 25: 0.02376334169761691, 35: 0.003224204291455175, 45: 0.000384981631514873, 63: 2.8869549617236455e-05}),
    "llama 2, 16": (E.YaRN(16, 4096), 128, 1e4, None, {0: 1.0, 20: 0.05623413251903491, 30: 0.00852684377296741, 33: 0.004600435467850348, 40: 0.0008817889629315672,
                                                      46: 8.334508951020775e-05, 63: 7.217387404309114e-06}),
    "qwen, 4": (E.YaRN(4, 32768), 128, 1e6, None, {0: 1.0, 23: 0.006978305848598663, 31: 0.0008029597275452302, 40: 4.445698525097307e-05, 63: 3.102344401879299e-07}),
    "gpt-oss": (E.YaRN(32, 4096, truncate=False), 64, 150000.0, None, {0: 1.0, 8: 0.050813274815461475, 13: 0.0038603593171920685, 18: 3.8308812373753384e-05, 31: 3.0235114281192144e-07}),
    "gpt-oss, whole pairs": (E.YaRN(32, 4096, truncate=True), 64, 150000.0, None, {0: 1.0, 8: 0.050813274815461475, 13: 0.004069554714758243, 18: 3.8308812373753384e-05, 31: 3.0235114281192144e-07}),
    "deepseek, 40": (E.YaRN(40, 4096, mscale=0.707, mscale_all_dim=0.707), 64, 1e4, None, {0: 1.0, 10: 0.05623413251903491, 16: 0.0055, 23: 3.33380358040831e-05, 31: 3.3338035804083097e-06}),
    "betas": (E.YaRN(8, 2048, beta_fast=16, beta_slow=2), 128, 1e4, None, {0: 1.0, 20: 0.05623413251903491, 28: 0.010002821681468942, 36: 0.0007029266564879364, 63: 1.4434774808618228e-05}),
    "llama 3.2": (E.Llama3(32, 8192), 64, 5e5, None, {0: 1.0, 14: 0.003211445994752591, 15: 0.001290547928209264, 16: 0.00042955679655936815, 17: 9.70828780262767e-05,
                                                     18: 1.9461638184831125e-05, 31: 9.41830672543491e-08}),
    "llama 3.1": (E.Llama3(8, 8192), 128, 5e5, None, {0: 1.0, 28: 0.003211445994752591, 29: 0.002166570763503359, 32: 0.0005248461609929547, 35: 9.556212353964683e-05, 63: 3.068925988914511e-07}),
    "phi, 4096": (PHI, 96, 1e4, 4096, {0: 1.0, 1: 0.8172318666019984, 12: 0.08928571428571429, 24: 0.008064516129032258, 47: 8.241684752575435e-05}),
    "phi, 4097": (PHI, 96, 1e4, 4097, {0: 1.0, 1: 0.5502694568453456, 12: 0.014285714285714287, 24: 0.0007692307692307692, 47: 4.94501085154526e-06}),
}


@covers("P20", "P21", "P32", "P42")
@pytest.mark.parametrize("case", REFERENCE)
def test_reference_values(case):
    method, width, base, length, want = REFERENCE[case]
    got = method.frequencies(width, base, length=length)
    np.testing.assert_allclose(got[list(want)], list(want.values()), rtol=4e-15, atol=0)


def test_new_bases():
    assert E.NTKAware(8).new_base(128) == pytest.approx(82684.62264056221, rel=1e-15)
    assert [E.DynamicNTK(2, 2048).new_base(128, length=n) for n in (1, 1024, 2048)] == [1e4] * 3
    assert E.DynamicNTK(2, 2048).new_base(128, length=4096) == pytest.approx(30527.7367488067, rel=1e-15)
    np.testing.assert_allclose([E.NTKAware(s).new_base(128) for s in (2, 4, 8, 16)], [2.022e4, 4.089e4, 8.268e4, 1.672e5], rtol=3e-4)      # H19
    got = E.NTKAware(8).frequencies(128)
    assert got[0] == 1 and got[63] == pytest.approx(R.frequencies(128)[63] / 8, rel=1e-14)
    assert E.DynamicNTK(1, 2048).new_base(64, length=6144) == pytest.approx(E.NTKAware(3).new_base(64), rel=1e-15)      # YaRN's section 3.3: s is the ratio


RANGES = {(128, 1e4, 2048): (16.128001690012354, 40.21040134313085, 16, 41), (64, 150000.0, 4096): (8.092779115512402, 17.39802450158856, 8, 18),
          (128, 1e6, 32768): (23.5959476083381, 39.6508807104171, 23, 40), (64, 1e4, 131072): (22.513440636877274, 34.55464046343652, 22, 35),
          (128, 1e4, 4096): (20.94448162063605, 45.02688127375455, 20, 46)}


@covers("P32", "P33")
@pytest.mark.parametrize("case", RANGES)
def test_the_range_of_the_code_ramp(case):
    got = (*E.correction_range(*case, truncate=False), *E.correction_range(*case))
    np.testing.assert_allclose(got, RANGES[case], rtol=0, atol=1e-14)
    assert E.correction_range(8, 1e4, 10) == (0, 1)                     # not below 0
    assert E.correction_range(8, 10.0, 12700) == (7, 7)                 # not above width - 1, wherever the last pair is
    assert E.ByParts(4, 12700).slowed(8, 10.0).tolist() == [0] * 4      # a ramp between equal ends is a step, here behind the last pair
    assert E.correction_range(8, 1e8, 202, beta_slow=31.9) == (0, 1) and E.ByParts(4, 7, beta_slow=1.1, truncate=False, beta_fast=1.2).slowed(4, 1e4).tolist() == [0, 1]


@covers("P32", "P33")
def test_the_ramp_may_end_beyond_the_last_pair():
    got = E.YaRN(16, 131072).slowed(64)                                 # range 22 to 35, last pair 31
    np.testing.assert_allclose(got[[22, 23, 31]], [0, 1 / 13, 9 / 13], rtol=1e-15)


FACTORS = {  # YaRN's options -> rotation factor
    "paper": (dict(factor=16), 1.2772588722239782), "one": (dict(factor=1), 1.0), "gpt-oss": (dict(factor=32), 1.3465735902799727),
    "final": (dict(factor=64, attention_factor=1.0), 1.0), "final, large": (dict(factor=128, attention_factor=1.4852030), 1.4852030),
    "final, fed back": (dict(factor=64, attention_factor=1.4158883), 1.4158883),
    "final, beside weights": (dict(factor=64, attention_factor=1.25, mscale=1.0, mscale_all_dim=0.5), 1.25),
    "multiplier": (dict(factor=4, multiplier=0.8782488562869419), 1.0), "equal weights": (dict(factor=16, mscale=1, mscale_all_dim=1), 1.0),
    "equal small weights": (dict(factor=40, mscale=0.707, mscale_all_dim=0.707), 1.0), "ratio": (dict(factor=40, mscale=1.0, mscale_all_dim=0.707), 1.3688879454113936 / 1.2608037774058553),
    "DeepSeek's rule for one weight": (dict(factor=40, mscale=0.707), 1.2608037774058553), "the other weight": (dict(factor=40, mscale_all_dim=1), 1.0),
    "no weight by name": (dict(factor=32, mscale_all_dim=0), 1.3465735902799727), "zero": (dict(factor=32, mscale=0.0), 1.0),
}


@covers("P25", "P26", "P27", "P28", "P30", "P31", "P35", "F03")
@pytest.mark.parametrize("case", FACTORS)
def test_rotation_factors_of_yarn(case):
    options, want = FACTORS[case]
    method = E.YaRN(trained_length=4096, **options)
    assert method.rotation_factor() == pytest.approx(want, rel=1e-15) and method.softmax_factor() == 1
    assert method.rotation_factor(length=9) == method.rotation_factor()
    again = dataclasses.replace(method, attention_factor=method.rotation_factor(), multiplier=1.0)      # P27: reading what was written
    assert again.rotation_factor() == method.rotation_factor()
    cos, sin = method.tables(np.array([0, 1]), 64, np.float64)
    np.testing.assert_allclose(np.hypot(cos, sin), want, rtol=1e-15)


def test_other_factors():
    assert [E.mscale(s) for s in (0.5, 1, 2, 4, 8, 16, 32, 40, 64, 128)] == pytest.approx(
        [1, 1, 1.0693147180559945, 1.138629436111989, 1.2079441541679836, 1.2772588722239782, 1.3465735902799727, 1.3688879454113936, 1.4158883083359672, 1.4852030263919618], rel=1e-15)
    np.testing.assert_allclose([E.mscale(s) ** 2 for s in (2, 4, 8, 16, 32)], [1.143, 1.296, 1.459, 1.631, 1.813], atol=5e-4)       # H21: logits sharpen
    assert PHI.rotation_factor(length=1) == PHI.rotation_factor(length=9999) == pytest.approx(1.1902380714238083, rel=1e-15)
    assert dataclasses.replace(PHI, factor=1.0).rotation_factor(length=1) == 1
    both = METHODS["longrope, two factors"]
    assert (both.rotation_factor(length=16), both.rotation_factor(length=17)) == (1.1, 1.3)
    deepseek = E.YaRN(40, 4096, mscale=1.0, mscale_all_dim=1.0, scale_softmax=True)
    assert deepseek.rotation_factor() == 1 and deepseek.scale(192) == pytest.approx(0.0721688 * 1.8738541, rel=1e-6)
    assert all(m.rotation_factor() == 1 for m in METHODS.values() if not m.dynamic and not isinstance(m, E.YaRN))


def test_ramp_of_the_paper_and_of_the_code_for_llama_2():
    """Of 64 pairs 21 stay, 25 are on the ramp, 18 slow in full on paper; the code's differ by more than 5 % for 24 pairs, up to 3.04 times."""
    paper, code = (E.ByParts(16, 4096, ramp=ramp) for ramp in ("paper", "code"))
    share = paper.slowed(128)
    assert [int((share == 0).sum()), int(((share > 0) & (share < 1)).sum()), int((share == 1).sum())] == [21, 25, 18]
    ratio = code.frequencies(128) / paper.frequencies(128)
    assert int((abs(ratio - 1) > 0.05).sum()) == 24 and ratio.max() == pytest.approx(3.04, abs=5e-3) and int(ratio.argmax()) == 38
    for options, worst in ((dict(factor=32), 3.96), (dict(truncate=False), 2.92)):
        ratio = dataclasses.replace(code, **options).frequencies(128) / dataclasses.replace(paper, factor=options.get("factor", 16)).frequencies(128)
        assert ratio.max() == pytest.approx(worst, abs=5e-3)


@covers("P42")
def test_bands_of_llama_3():
    def bands(method, width):
        slowed = R.frequencies(width, 5e5) / method.frequencies(width, 5e5)
        return int((slowed == 1).sum()), int(((slowed > 1) & (slowed < method.factor * (1 - 1e-12))).sum())
    assert bands(E.Llama3(8, 8192), 128) == (29, 6) and bands(E.Llama3(32, 8192), 64) == (15, 3)
    alike = E.ByParts(8, 8192, ramp="paper", beta_slow=1, beta_fast=4)
    np.testing.assert_allclose(E.Llama3(8, 8192).frequencies(128, 5e5), alike.frequencies(128, 5e5), rtol=1e-15)


@quick
@given(st.integers(2, 20), st.floats(2, 1e6), st.floats(1, 100), st.integers(64, 10**6))
def test_no_method_quickens_a_pair_or_slows_it_too_far(half, base, factor, trained):
    omega = R.frequencies(2 * half, base)
    made = [E.Linear(factor), E.NTKAware(factor), E.ByParts(factor, trained, ramp="paper"), E.Llama3(factor, trained), E.YaRN(factor, trained, ramp="paper")]
    with contextlib.suppress(ValueError):
        E.correction_range(2 * half, base, trained)
        made.append(E.ByParts(factor, trained))
    for method in made:
        got = method.frequencies(2 * half, base)
        assert (got <= omega * (1 + 1e-12)).all() and (got >= omega / factor * (1 - 1e-12)).all(), method
        assert (np.diff(got) <= 1e-12 * got[:-1]).all()
    for method in (E.Linear(1.0), E.NTKAware(1.0), E.ByParts(1.0, trained, ramp="paper"), E.Llama3(1.0, trained)):
        np.testing.assert_allclose(method.frequencies(2 * half, base), omega, rtol=1e-13)


def test_p_rope_is_that_of_rotary():
    for share in (0.0, 0.29, 0.5, 1.0):
        assert (E.Proportional(share).frequencies(200, 1e6) == R.proportional_frequencies(200, share, 1e6)).all()
        assert (E.Proportional(share, 4).frequencies(200) == R.proportional_frequencies(200, share) / 4).all()


# -- turning

@covers("P23")
@kinds
@layouts
@methods
def test_turning_is_rotary_with_these_frequencies_times_the_factor(method, kind, layout):
    x, ids = KINDS[kind](draw(1, 2, 3, 7, 40)), KINDS[kind](np.array([[0, 1, 5, 9, 40, 41, 63], [-3, 0, 0, 7, 2, 1, 60]]))
    for length in (16, 64):
        omega, factor = method.frequencies(32, length=length), method.rotation_factor(length=length)
        got = method.rotate(x, ids, layout=layout, width=32, length=length)
        plain = R.rotate(x, ids, layout=layout, width=32, frequencies=omega)
        assert type(got) is type(x) and bool((got[..., 32:] == x[..., 32:]).all())
        np.testing.assert_allclose(np.asarray(got)[..., :32], np.asarray(plain)[..., :32] * factor, rtol=0, atol=1e-14)
        if factor == 1:
            assert bool((got == plain).all())
        back = method.rotate(got, ids, layout=layout, width=32, length=length, inverse=True)
        np.testing.assert_allclose(np.asarray(back), np.asarray(x), atol=1e-14)
        cos, sin = method.tables(ids, 32, x.dtype, length=length)
        assert bool((R.turn(x, cos, sin, layout=layout) == got).all())
        other = method.rotate(x + 0, ids, layout=layout, width=32, length=length, out=(out := x + 0))
        assert other is out and bool((out == got).all())
        assert method.rotate(y := x + 0, ids, layout=layout, width=32, length=length, out=y) is y and bool((y == got).all())
    one = method.rotate(x[..., :1, :32], ids[:, 1:2] * 0 + 1, layout="half", length=16)
    np.testing.assert_allclose(np.asarray(one)[0, 0, 0, 0], R.rotate(np.asarray(x)[..., :1, :32], np.array([1]), layout="half", frequencies=method.frequencies(
        32, length=16))[0, 0, 0, 0] * method.rotation_factor(length=16), rtol=1e-14)


@kinds
def test_dividing_positions_is_dividing_frequencies(kind):
    x, ids, method = KINDS[kind](draw(2, 3, 6, 32)), KINDS[kind](np.array([0, 1, 7, 2047, 8191, 65535])), E.Linear(4)
    paper = R.rotate(x, method.positions(ids), layout="half", fractional=True)
    np.testing.assert_allclose(np.asarray(paper), np.asarray(method.rotate(x, ids, layout="half")), atol=1e-11)
    assert float(method.positions(ids)[4]) == 2047.75          # row 107: the last of 8,192 ids, not 2,048
    assert method.positions(ids).dtype == (torch.float64 if kind == "torch" else np.float64)


@layouts
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_one_rounding_with_the_factor(layout, dtype):
    """Narrow results are those of float32 tables and arithmetic, rounded once; float32 is within two units of float64."""
    x, ids, method = torch.from_numpy(draw(3, 4, 64, 32)), torch.arange(64) * 900, E.YaRN(4, 64, beta_fast=8)
    x = x.to(getattr(torch, dtype))
    got, want = method.rotate(x, ids, layout=layout), method.rotate(x.double(), ids, layout=layout)
    assert got.dtype == x.dtype
    if dtype == "float32":
        assert float((got - want).abs().max()) < 4 * 2**-24 * float(want.abs().max())
    else:
        assert float((got == want.to(x.dtype)).float().mean()) > 0.999


@methods
def test_gradients_are_the_turn_back_times_the_factor(method):
    x, ids, up = torch.from_numpy(draw(4, 2, 5, 32)).requires_grad_(), torch.arange(5), torch.from_numpy(draw(5, 2, 5, 32))
    method.rotate(x, ids, layout="half", length=20).backward(up)
    want = method.rotate(up, ids, layout="half", length=20, inverse=True) * method.rotation_factor(length=20) ** 2
    torch.testing.assert_close(x.grad, want, rtol=0, atol=1e-13)


def test_axes_have_their_own_ids():
    x, ids, axes = draw(6, 2, 5, 32), np.array([[0, 1, 2, 3, 4], [0, 0, 7, 7, 7]]), (0, 1) * 8
    got = METHODS["yarn"].rotate(x, ids, layout="half", axes=axes)
    want = R.rotate(x, ids, layout="half", axes=axes, frequencies=METHODS["yarn"].frequencies(32)) * METHODS["yarn"].rotation_factor()
    np.testing.assert_allclose(got, want, atol=1e-14)
    cos, sin = METHODS["yarn"].tables(ids, 32, x.dtype, axes=axes)
    assert (R.turn(x, cos, sin, layout="half") == got).all()


@methods
def test_each_factor_is_in_one_place(method):
    """Turning with the factor and a scale without it, or turning plainly and a scale with it: the same weights, YaRN's scores ×(0.1 ln s + 1)²."""
    q, k, v = (draw(seed, 2, 9, 32) for seed in (7, 8, 9))
    ids, at, mask = np.arange(9), {"layout": "half"}, causal_mask(9)
    factor, omega = method.rotation_factor(length=40), method.frequencies(32, length=40)
    one = attention(*(method.rotate(x, ids, length=40, **at) for x in (q, k)), v, mask=mask, scale=method.scale(32))
    plain = [R.rotate(x, ids, frequencies=omega, **at) for x in (q, k)]
    other = attention(*plain, v, mask=mask, scale=method.scale(32, turned_plain=True, length=40))
    np.testing.assert_allclose(one[0], other[0], atol=1e-13)
    want = scores(*plain) * factor**2 * method.softmax_factor()
    np.testing.assert_allclose(scores(*(method.rotate(x, ids, length=40, **at) for x in (q, k)), scale=method.scale(32)), want, atol=1e-13)


def test_a_partial_width_gives_the_temperature_to_a_part_of_the_score():
    method, q, k, ids = METHODS["yarn"], draw(10, 4, 40), draw(11, 4, 40), np.arange(4)
    turned = scores(*(method.rotate(x, ids, layout="half", width=32) for x in (q, k)), scale=1.0)
    part = scores(*(R.rotate(x[:, :32], ids, layout="half", frequencies=method.frequencies(32)) for x in (q, k)), scale=1.0)
    np.testing.assert_allclose(turned, part * method.rotation_factor() ** 2 + q[:, 32:] @ k[:, 32:].T, atol=1e-13)


# -- decoding, and lengths that change

@covers("P18", "P22", "P36", "P38")
@kinds
@methods
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_decoding_equals_the_whole_bit_for_bit(method, kind, dtype):
    x, ids = KINDS[kind](draw(12, 2, 3, 40, 32, dtype=dtype)), KINDS[kind](np.arange(40))
    for length in (16, 40, 4097):
        whole = method.rotate(x, ids, layout="half", length=length)
        for a, b in ((0, 1), (15, 16), (16, 17), (39, 40), (3, 21)):
            assert bool((method.rotate(x[..., a:b, :], ids[a:b], layout="half", length=length) == whole[..., a:b, :]).all())


@covers("P18", "P37")
@pytest.mark.parametrize("name", ["dynamic", "longrope", "longrope, two factors"])
def test_scores_of_a_growing_text(name):
    """Keys cached turned at each length in turn give other scores than a reading at once; unturned keys and repaired ones do not."""
    method, q, k = METHODS[name], draw(13, 40, 32), draw(14, 40, 32)
    turn = lambda x, ids, n: method.rotate(x, np.asarray(ids), layout="half", length=n)
    whole = scores(turn(q, range(40), 40), turn(k, range(40), 40))[-1]
    query = turn(q[39:], [39], 40)
    stale = np.concatenate([turn(k[p:p + 1], [p], p + 1) for p in range(40)])
    assert abs(scores(query, stale)[0] - whole).max() > 0.5
    np.testing.assert_allclose(scores(query, turn(k, range(40), 40))[0], whole, atol=1e-14)                 # unturned keys in the cache
    mended = np.concatenate([method.relength(stale[p:p + 1], np.array([p]), p + 1, 40, layout="half") for p in range(40)])
    np.testing.assert_allclose(scores(query, mended)[0], whole, atol=1e-13)
    ahead = np.concatenate([turn(k[p:p + 1], [p], 40) for p in range(40)])                                  # one length from the start
    np.testing.assert_allclose(scores(query, ahead)[0], whole, atol=1e-14)


@kinds
@layouts
@methods
def test_relength_brings_keys_to_another_length(method, kind, layout):
    x, ids = KINDS[kind](draw(15, 2, 3, 20, 36)), KINDS[kind](np.arange(40).reshape(2, 20))
    settings = {"layout": layout, "width": 32, "base": 777.0}
    old, new = (method.rotate(x, ids, length=n, **settings) for n in (9, 50))
    got = method.relength(old, ids, 9, 50, **settings)
    np.testing.assert_allclose(np.asarray(got), np.asarray(new), atol=1e-13)
    np.testing.assert_allclose(np.asarray(method.relength(new, ids, 50, 9, **settings)), np.asarray(old), atol=1e-13)
    assert bool((method.relength(old, ids, 9, 9, **settings) == old).all())
    assert method.relength(y := old + 0, ids, 9, 50, out=y, **settings) is y and bool((y == got).all())
    assert method.dynamic == (float(abs(new - old).max()) > 0.1)


def test_a_moved_cache_at_one_length():
    """`rotary.reposition` with a method's frequencies moves keys without touching the factor."""
    for method in METHODS.values():
        k = method.rotate(draw(16, 3, 5, 32), np.arange(5) + 30, layout="half", length=40)
        moved = R.reposition(k, np.arange(5) + 30, np.arange(5), layout="half", frequencies=method.frequencies(32, length=40))
        np.testing.assert_allclose(moved, method.rotate(draw(16, 3, 5, 32), np.arange(5), layout="half", length=40), atol=1e-13)


@covers("P20", "P21", "P40", "F02", "P38")
def test_the_length_in_use_decides_and_nothing_is_remembered():
    method, lists = METHODS["dynamic"], METHODS["longrope"]
    trained = R.frequencies(32)
    for n in (1, 8, 15, 16, 64, 16, 1):                        # long ones between: F02
        assert ((method.frequencies(32, length=n) == trained).all()) == (n <= 16)
        assert ((lists.frequencies(32, length=n) == trained / np.array(LISTS[n > 16])).all())
    x = draw(17, 100, 32)                                       # a buffer of 100 rows of which 10 are in use
    got = lists.rotate(x, np.arange(100), layout="half", length=10)
    assert (got[:10] == lists.rotate(x[:10], np.arange(10), layout="half", length=10)).all()
    assert (method.frequencies(32, length=np.int32(64)) == method.frequencies(32, length=64)).all()


@methods
def test_methods_are_frozen_equal_by_value_and_can_be_stored(method):
    assert pickle.loads(pickle.dumps(method)) == method == copy.deepcopy(method) and hash(method) == hash(copy.deepcopy(method))
    for field in dataclasses.fields(method):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(method, field.name, 5)
    assert len({*METHODS.values()}) == len(METHODS)


@covers("P102")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["dynamic", "longrope, two factors", "yarn"])
def test_it_compiles_to_one_graph_whatever_the_length(name):
    method, x, ids = METHODS[name], torch.randn(2, 5, 32), torch.arange(5)
    module, read = nn.Rotary(32, layout="half", method=method), hf.RotaryConfig(32, 32, "half", 10000.0, method=method)
    turn = read.rotate if name == "yarn" else lambda x, ids, length: module(x, x, ids, length=length)[1]
    compiled = torch.compile(turn, backend="eager", fullgraph=True)
    for length in (16, 17, 40):
        assert torch.equal(compiled(x, ids, length=length), method.rotate(x, ids, layout="half", length=length))


# -- configuration files

LLAMA = {"model_type": "llama", "hidden_size": 2048, "num_attention_heads": 32, "max_position_embeddings": 131072}
L = "original_max_position_embeddings"
YARN = {"rope_type": "yarn", "factor": 4.0, L: 32768}
LLAMA3 = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, L: 8192}
SU = {"rope_type": "longrope", "short_factor": SHORT[:32], "long_factor": LONG[:32], L: 4096}
MLA = {"model_type": "deepseek_v3", "qk_rope_head_dim": 64, "rope_theta": 10000, "max_position_embeddings": 163840}
V3 = {"type": "yarn", "factor": 40, L: 4096, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0}
QWEN2VL = {"model_type": "qwen2_vl", "head_dim": 128, "rope_theta": 1e6, "max_position_embeddings": 32768}
GEMMA3 = {"model_type": "gemma3_text", "head_dim": 256, "max_position_embeddings": 131072}
with_rope = lambda inner, file=LLAMA, spelling="rope_scaling": {**file, spelling: inner}

READ = {  # a configuration, options -> method
    "linear": (with_rope({"type": "linear", "factor": 2}), {}, E.Linear(2)),
    "dynamic": (with_rope({"type": "dynamic", "factor": 2.0}), {}, E.DynamicNTK(2, 131072)),
    "dynamic, its length twice": (with_rope({"type": "dynamic", "factor": 2.0, L: 131072}), {}, E.DynamicNTK(2, 131072)),
    "yarn": (with_rope(YARN), {}, E.YaRN(4, 32768)),
    "new spelling": (with_rope({**YARN, "rope_theta": 1e6}, spelling="rope_parameters"), {}, E.YaRN(4, 32768)),
    "both names of the kind": (with_rope({**YARN, "type": "yarn"}), {}, E.YaRN(4, 32768)),
    "both spellings": ({**with_rope(YARN), "rope_parameters": {**{k: v for k, v in YARN.items() if k != "rope_type"}, "type": "yarn", "rope_theta": 1e6, "mscale": None}}, {}, E.YaRN(4, 32768)),
    "every option": (with_rope({**YARN, "beta_fast": 16, "beta_slow": 2, "truncate": False, "attention_factor": 1.25}), {},
                     E.YaRN(4, 32768, beta_fast=16, beta_slow=2, truncate=False, attention_factor=1.25)),
    "multiplier": (with_rope({**YARN, "attn_factor": 0.8782488562869419}), {}, E.YaRN(4, 32768, multiplier=0.8782488562869419)),
    "multiplier and what follows from it": (with_rope({**YARN, "attn_factor": 1}), {}, E.YaRN(4, 32768)),
    "finetuned": (with_rope({**YARN, "finetuned": True}), {}, E.YaRN(4, 32768)),
    "factor from the lengths": (with_rope({"rope_type": "yarn", "factor": None, L: 32768}), {}, E.YaRN(4, 32768)),
    "length of the model": (with_rope({"rope_type": "yarn", "factor": 4}), {}, E.YaRN(4, 131072)),
    "length beside": ({**with_rope({"rope_type": "yarn", "factor": 4}), L: 32768}, {}, E.YaRN(4, 32768)),
    "length in both": ({**with_rope(YARN), L: 32768}, {}, E.YaRN(4, 32768)),
    "deepseek": (with_rope(V3, MLA), {}, E.YaRN(40, 4096, mscale=1, mscale_all_dim=1, scale_softmax=True)),
    "weights of another model": (with_rope({**V3, "factor": 4.0}), {}, E.YaRN(4, 4096, mscale=1, mscale_all_dim=1)),
    "final factor as the weights say": (with_rope({**V3, "attention_factor": 1.0}), {}, E.YaRN(40, 4096, mscale=1, mscale_all_dim=1, attention_factor=1)),
    "llama 3": (with_rope(LLAMA3), {}, E.Llama3(32, 8192)),
    "longrope": (with_rope(SU), {}, E.LongRoPE(SHORT[:32], LONG[:32], 4096, factor=32)),
    "su": (with_rope({**SU, "rope_type": None, "type": "su"}), {}, E.LongRoPE(SHORT[:32], LONG[:32], 4096, factor=32)),
    "longrope, final": (with_rope({**SU, "attention_factor": 1.5}), {}, E.LongRoPE(SHORT[:32], LONG[:32], 4096, factor=32, attention_factor=1.5)),
    "p-rope, slower": (with_rope({"rope_type": "proportional", "partial_rotary_factor": 0.25, "factor": 8.0}), {}, E.Proportional(0.25, 8)),
    "m-rope": (with_rope({**YARN, "mrope_section": [16, 24, 24]}, QWEN2VL), {}, E.YaRN(4, 32768)),
    "old gemma": ({**GEMMA3, "rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}, {"layer_type": "full_attention"}, E.Linear(8)),
    "old gemma, near": ({**GEMMA3, "rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}, {"layer_type": "sliding_attention"}, None),
    "gemma": (with_rope({"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}, GEMMA3,
                        "rope_parameters"), {"layer_type": "full_attention"}, E.Linear(8)),
    "nested yarn": (with_rope({"full_attention": {**YARN, "rope_theta": 1e6, "truncate": False}, "sliding_attention": {"rope_theta": 1e4}}, GEMMA3, "rope_parameters"),
                    {"layer_type": "full_attention"}, E.YaRN(4, 32768, truncate=False)),
    "unknown model": (with_rope({**YARN, "rope_theta": 1e6}, {**LLAMA, "model_type": "new"}), {"layout": "interleaved"}, E.YaRN(4, 32768)),
    "factor 1": (with_rope({"type": "linear", "factor": 1.0}), {}, E.Linear(1)),
    "default": (with_rope({"rope_type": "default", "factor": 1.0}), {}, None),
}


@covers("P25", "P31", "P32", "P43")
@pytest.mark.parametrize("case", READ)
def test_what_is_read(case):
    file, options, want = READ[case]
    before = repr(file)
    got = from_hf_config(file, **options)
    assert got.method == want and repr(file) == before and hash(got) == hash(from_hf_config(copy.deepcopy(file), **options))
    axes = () if got.sections is None else (3,)
    x, ids = draw(20, 2, 5, got.head_dim), np.random.default_rng(1).integers(0, 9000, (*axes, 5))
    made = E.Unscaled() if want is None else want
    turned = made.rotate(x, ids, layout=got.layout, width=got.width, base=got.base, axes=got.axes, length=9000)
    assert (got.rotate(x, ids, length=9000) == turned).all() and abs(turned - x).max() > 0.1
    assert (got.frequencies(length=9000) == made.frequencies(got.width, got.base, length=9000)).all()
    assert got.rotation_factor(length=9000) == made.rotation_factor(length=9000) and got.softmax_factor() == made.softmax_factor()
    np.testing.assert_allclose(got.rotate(got.rotate(x, ids, length=9000), ids, length=9000, inverse=True), x, atol=1e-11)
    assert got.dynamic == made.dynamic and got.explain(length=9000) != (got.explain() if got.dynamic else "")


@covers("P45")
def test_what_was_read_does_not_follow_the_file():
    file = with_rope(copy.deepcopy(SU))
    got = from_hf_config(file)
    file["rope_scaling"]["long_factor"][:] = [9.0] * 32
    file["rope_scaling"]["rope_type"] = "linear"
    assert got.method == READ["longrope"][2]
    for thing, name in ((got, "method"), (got.method, "long_factor")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(thing, name, None)


EXPLAINED = {
    "yarn": ["Before stretching, pair k turns by 10000^(-2k/64) radians per position: wavelengths from 6.28 to 47,117 positions.",
             'YaRN, factor 4 for a trained length of 32,768 (ramp "code").', "Of 32 pairs 18 keep their frequency, 12 are slowed in part, 2 are slowed 4 times.",
             "Turned queries and keys grow by 1.1386 (rotation factor), scores by 1.2965."],
    "deepseek": ['YaRN, factor 40 for a trained length of 4,096 (ramp "code").', "Of 32 pairs 11 keep their frequency, 12 are slowed in part, 9 are slowed 40 times.",
                 "The softmax scale grows by 1.8739 besides (softmax factor)."],
    "dynamic": ["DynamicNTK, factor 2 beyond a trained length of 131,072.", "Frequencies depend on the length of the text, which must be given."],
    "linear": ["Linear, factor 2.", "Of 32 pairs 32 are slowed 2 times."], "llama 3": ["Llama3, factor 32 for a trained length of 8,192.",
               "Of 32 pairs 21 keep their frequency, 4 are slowed in part, 7 are slowed 32 times."],
    "p-rope, slower": ["Proportional (p-RoPE), share 0.25, factor 8.", "Of 32 pairs 8 are slowed in part, 24 stand still."],
    "finetuned": ["finetuned says how the model was trained, and changes nothing here."],
    "length of the model": ["The file gives no original_max_position_embeddings; transformers takes max_position_embeddings, 131,072."],
    "weights of another model": ["max_position_embeddings is 131,072, 32 times the trained length; the factor is taken as given, 4."],
}


@pytest.mark.parametrize("case", EXPLAINED)
def test_what_is_explained(case):
    file, options, _ = READ[case]
    lines = from_hf_config(file, **options).explain().split("\n")
    assert [line for line in EXPLAINED[case] if line not in lines] == [], lines


def test_what_is_explained_for_a_length():
    said = from_hf_config(READ["longrope"][0]).explain
    assert "The 32 pairs are slowed 1 to 1.31 times." in said(length=4096) and "The 32 pairs are slowed 1 to 16.5 times." in said(length=4097)
    assert "grow by 1.1902 (rotation factor), scores by 1.4167" in said(length=4097)
    dynamic = from_hf_config(READ["dynamic"][0]).explain
    assert "Of 32 pairs 32 keep their frequency." in dynamic(length=131072)
    assert "Of 32 pairs 1 keep their frequency, 30 are slowed in part, 1 are slowed 3 times." in dynamic(length=262144)
    assert E.Unscaled().explain(8) == "Unscaled.\nOf 4 pairs 4 keep their frequency."


read = lambda inner, file=LLAMA, **options: lambda: from_hf_config(with_rope(inner, file), **options)
without = lambda inner, key: {k: v for k, v in inner.items() if k != key}
BAD_FILES = {  # what is passed -> error and a piece of its message
    "unknown kind": (read({"rope_type": "mystery"}), ValueError, r"rope_type is 'mystery', which is not known; allowed are 'default', .*'longrope'"),
    "kind of no text": (read({"rope_type": 7}), ValueError, r"rope_type is 7, which is not known"),
    "ntk": (read({"type": "ntk", "factor": 4.0}), ValueError, r"'ntk', which is not known; .* make poslib\.extension\.NTKAware or DynamicNTK by hand"),
    "two kinds": (read({"rope_type": "yarn", "type": "linear", "factor": 4.0}), ValueError, r"rope_type is 'yarn' and type 'linear': allowed is one"),
    "key of another kind": (read({"rope_type": "linear", "factor": 4.0, "beta_fast": 32}), ValueError, r"rope_type is 'linear' and beta_fast is given, which is not known of it"),
    "a typing mistake": (read({**YARN, "beta_fats": 32}), ValueError, r"'yarn' and beta_fats is given"),
    "alpha": (read({"type": "dynamic", "factor": 1.0, "alpha": 1000.0}), ValueError, r"'dynamic' and alpha is given"),
    "factor alone": (read({"factor": 4.0}), ValueError, r"factor is 4\.0 with rope_type 'default'; allowed is 1, or a rope_type that stretches"),
    "no factor": (read({"type": "linear"}), ValueError, r"rope_type is 'linear' and factor is missing; allowed is a number"),
    "no factor, dynamic": (read({"type": "dynamic"}), ValueError, r"rope_type is 'dynamic' and factor is missing"),
    "no factor, llama 3": (read(without(LLAMA3, "factor")), ValueError, r"rope_type is 'llama3' and factor is missing"),
    "no band": (read(without(LLAMA3, "low_freq_factor")), ValueError, r"low_freq_factor is missing"),
    "no other band": (read(without(LLAMA3, "high_freq_factor")), ValueError, r"high_freq_factor is missing"),
    "no list": (read(without(SU, "long_factor")), ValueError, r"long_factor is missing; allowed is a list of numbers"),
    "no length": (read(without(SU, L)), ValueError, r"rope_type is 'longrope' and original_max_position_embeddings is missing; allowed is a whole number"),
    "no length at all": (read(without(YARN, L), without(LLAMA, "max_position_embeddings")), ValueError, r"'yarn' and original_max_position_embeddings is missing"),
    "no length, dynamic": (read({"type": "dynamic", "factor": 2}, without(LLAMA, "max_position_embeddings")), ValueError, r"'dynamic' and max_position_embeddings is missing"),
    "neither factor nor lengths": (read(without(YARN, "factor"), without(LLAMA, "max_position_embeddings")), ValueError, r"factor is missing, and so is max_position_embeddings"),
    "shorter than it was trained": (read({**YARN, "factor": None}, {**LLAMA, "max_position_embeddings": 4096}), ValueError,
                                    r"factor is missing, and max_position_embeddings is 4,096 for a trained length of 32,768"),
    "two lengths": (read(YARN, {**LLAMA, L: 4096}), ValueError, r"the trained length is given as .*32768.*4096.*; allowed is one number"),
    "two lengths, dynamic": (read({"type": "dynamic", "factor": 2, L: 4096}), ValueError, r"the trained length is given as .*4096.*131072"),
    "length text": (read({**YARN, L: "32k"}), TypeError, r"original_max_position_embeddings of the dictionary is '32k'; allowed is a whole number"),
    "length of no whole number": (read({**YARN, L: 32768.0}), TypeError, r"is 32768\.0; allowed is a whole number"),
    "longest text": (read(YARN, {**LLAMA, "max_position_embeddings": "long"}), TypeError, r"max_position_embeddings is 'long'"),
    "final and multiplier": (read({**YARN, "attention_factor": 1.0, "attn_factor": 0.9}), ValueError, r"attention_factor is 1, which is final, and multiplier 0\.9"),
    "final and weights": (read({**V3, "attention_factor": 1.3688879}), ValueError, r"attention_factor is 1\.36889, and mscale and mscale_all_dim give 1; allowed is one number"),
    "weights of an unknown model": (read({**V3, "rope_theta": 9.0}, {**LLAMA, "model_type": "new"}, layout="half"), ValueError, r"mscale_all_dim is 1\.0 and model_type 'new': whether"),
    "factor below 1": (read({"type": "linear", "factor": 0.5}), ValueError, r"factor is 0\.5; allowed is a finite number of at least 1"),
    "factor text": (read({"type": "linear", "factor": "4"}), TypeError, r"factor is '4'; allowed is a finite number"),
    "factor of yarn": (read({**YARN, "factor": "4"}), TypeError, r"factor is '4'; allowed is a finite number of at least 1"),
    "weight text": (read({**YARN, "mscale": "1"}), TypeError, r"mscale is '1'; allowed is a finite number of at least 0"),
    "multiplier text": (read({**YARN, "attn_factor": "1"}), TypeError, r"multiplier is '1'; allowed is a finite number above 0"),
    "finetuned": (read({**YARN, "finetuned": "yes"}), TypeError, r"finetuned is 'yes'; allowed are True and False"),
    "a dictionary of its kind": (read("yarn"), TypeError, r"rope_scaling is 'yarn'; allowed is a mapping"),
    "beta zero": (read({**YARN, "beta_fast": 0}), ValueError, r"beta_fast is 0; allowed is a finite number above 0"),
    "truncate text": (read({**YARN, "truncate": "no"}), TypeError, r"truncate is 'no'; allowed are True and False"),
    "lists of the head": (lambda: from_hf_config({"model_type": "phi3", "hidden_size": 3072, "num_attention_heads": 24, "max_position_embeddings": 131072, "rope_theta": 1e4,
                                                  "partial_rotary_factor": 0.75, "rope_scaling": {**SU, "short_factor": [1.0] * 64, "long_factor": [1.0] * 64}}), ValueError,
                          r"short_factor and long_factor have 64 entries, width is 96; allowed are 48, one for each pair that turns"),
    "spellings differ": (lambda: from_hf_config({**with_rope(YARN), "rope_parameters": {**YARN, "factor": 8.0}}), ValueError, r"rope_parameters and rope_scaling differ in factor; allowed"),
    "one spelling says more": (lambda: from_hf_config({**with_rope(YARN), "rope_parameters": {**YARN, "beta_fast": 16}}), ValueError, r"differ in beta_fast"),
    "kinds of spellings": (lambda: from_hf_config({**with_rope({"type": "linear", "factor": 4.0}), "rope_parameters": {**YARN}}), ValueError, r"differ in original_max.*, rope_type"),
    "bases of spellings": (lambda: from_hf_config({**with_rope({**YARN, "rope_theta": 5.0}), "rope_parameters": {**YARN, "rope_theta": 6.0}}), ValueError, r"differ in rope_theta"),
    "dynamic without length": (lambda: from_hf_config(READ["dynamic"][0]).rotate(np.ones((1, 64)), np.arange(1)), TypeError, r"length is None, and the frequencies of DynamicNTK"),
    "by hand": (lambda: hf.RotaryConfig(8, 8, "half", 9.0, method="yarn"), TypeError, r"method is a str; allowed are the methods of poslib\.extension"),
    "by hand, twice": (lambda: hf.RotaryConfig(8, 8, "half", 9.0, share=0.5, method=E.Linear(2)), ValueError, r"share is 0\.5 and method Linear\(factor=2\.0\): allowed is one"),
    "by hand, two channels": (lambda: hf.RotaryConfig(2, 2, "half", 9.0, method=E.DynamicNTK(2, 8)), ValueError, r"width is 2: one pair alone"),
}
test_bad_files_name_the_key_the_value_and_what_is_allowed = covers("P41", "P43")(bad_input_test(BAD_FILES))

ONE, IDS = np.ones((3, 8)), np.arange(3)
BAD = {
    "factor": (lambda: E.Linear(0.5), ValueError, r"factor is 0\.5; allowed is a finite number of at least 1"),
    "factor nan": (lambda: E.NTKAware(math.nan), ValueError, r"factor is nan"),
    "factor bool": (lambda: E.DynamicNTK(True, 8), TypeError, r"factor is True; allowed is a finite number of at least 1"),
    "factor infinite": (lambda: E.PartNTK(math.inf, 8), ValueError, r"factor is inf"),
    "trained length": (lambda: E.DynamicNTK(2, 0), ValueError, r"trained_length is 0; allowed is at least 1"),
    "trained length float": (lambda: E.Llama3(8, 8192.0), TypeError, r"trained_length is 8192\.0; allowed is a whole number"),
    "trained length 1": (lambda: E.LongRoPE([1], [1], 1, factor=2), ValueError, r"trained_length is 1; allowed is at least 2"),
    "ramp": (lambda: E.ByParts(4, 64, ramp="linear"), ValueError, r"ramp is 'linear'; allowed are 'paper' \(linear in the turns.*'code' \(linear in the number"),
    "betas": (lambda: E.YaRN(4, 64, beta_fast=1), ValueError, r"beta_fast is 1, beta_slow 1; allowed is a larger beta_fast"),
    "beta": (lambda: E.YaRN(4, 64, beta_slow=0), ValueError, r"beta_slow is 0; allowed is a finite number above 0"),
    "truncate": (lambda: E.YaRN(4, 64, truncate=1), TypeError, r"truncate is 1; allowed are True and False"),
    "truncate of the paper": (lambda: E.ByParts(4, 64, ramp="paper", truncate=True), ValueError, r"truncate is True and ramp 'paper', which has no pair numbers; allowed is None"),
    "attention factor": (lambda: E.YaRN(4, 64, attention_factor=0), ValueError, r"attention_factor is 0; allowed is a finite number above 0"),
    "attention factor twice": (lambda: E.YaRN(4, 64, attention_factor=1.1, multiplier=2), ValueError, r"attention_factor is 1\.1, which is final, and multiplier 2"),
    "multiplier": (lambda: E.YaRN(4, 64, multiplier=-1), ValueError, r"multiplier is -1"),
    "weight": (lambda: E.YaRN(4, 64, mscale=-1), ValueError, r"mscale is -1; allowed is a finite number of at least 0"),
    "other weight": (lambda: E.YaRN(4, 64, mscale_all_dim="1"), TypeError, r"mscale_all_dim is '1'"),
    "scale_softmax": (lambda: E.YaRN(4, 64, scale_softmax=1), TypeError, r"scale_softmax is 1; allowed are True and False"),
    "bands": (lambda: E.Llama3(8, 64, low_freq_factor=4), ValueError, r"low_freq_factor is 4, high_freq_factor 4; allowed is a larger high_freq_factor"),
    "lists": (lambda: E.LongRoPE([1.0], [1.0, 2.0], 64, factor=2), ValueError, r"short_factor has 1 entries, long_factor 2; allowed is one in each"),
    "list empty": (lambda: E.LongRoPE([], [], 64, factor=2), ValueError, r"short_factor is empty"),
    "list entry": (lambda: E.LongRoPE([1, 0], [1, 1], 64, factor=2), ValueError, r"short_factor\[1\] is 0; allowed is a finite number above 0"),
    "list text": (lambda: E.LongRoPE("12", [1, 1], 64, factor=2), TypeError, r"short_factor is '12'; allowed are positive numbers"),
    "list number": (lambda: E.LongRoPE([1, 1], 2, 64, factor=2), TypeError, r"long_factor is 2; allowed are"),
    "list of another width": (lambda: PHI.frequencies(128, length=1), ValueError, r"have 48 entries, width is 128; allowed are 64"),
    "no factor": (lambda: E.LongRoPE([1], [1], 64), ValueError, r"factor is None, and so is attention_factor"),
    "one mscale": (lambda: E.LongRoPE([1], [1], 64, short_mscale=1), ValueError, r"short_mscale is 1.*, long_mscale None: give both or neither"),
    "three factors": (lambda: E.LongRoPE([1], [1], 64, attention_factor=1, short_mscale=1, long_mscale=1), ValueError, r"attention_factor is 1 and short_mscale 1"),
    "share": (lambda: E.Proportional(1.5), ValueError, r"share is 1\.5; allowed is a number from 0 to 1"),
    "width": (lambda: E.Linear(2).frequencies(7), ValueError, r"width is 7; allowed are even numbers"),
    "width of one pair": (lambda: E.NTKAware(2).frequencies(2), ValueError, r"width is 2: one pair alone is the fastest and the slowest; allowed is at least 4"),
    "base": (lambda: E.Linear(2).frequencies(8, 0.5), ValueError, r"base is 0\.5; allowed is a finite number of at least 1"),
    "base of one": (lambda: E.ByParts(2, 64).frequencies(8, 1), ValueError, r"base is 1: all pairs turn alike"),
    "base too large": (lambda: E.NTKAware(1e300).frequencies(4), ValueError, r"stretched by 1e\+300: the new one is not finite"),
    "base within the length": (lambda: E.DynamicNTK(2, 64).frequencies(8, 0.5, length=9), ValueError, r"base is 0\.5"),
    "width within the length": (lambda: E.DynamicNTK(2, 64).frequencies(7, length=9), ValueError, r"width is 7"),
    "no turn in the length": (lambda: E.YaRN(2, 1).frequencies(8, 10.0), ValueError, r"trained_length is 1, width 8, base 10: the ramp would run from pair 0 to -3; allowed"),
    "too many turns": (lambda: E.YaRN(2, 10**5).frequencies(8, 10.0), ValueError, r"trained_length is 100000, width 8, base 10: the ramp would run from pair 10 to 7"),
    "length missing": (lambda: PHI.frequencies(96), TypeError, r"length is None, and the frequencies of LongRoPE depend on it; allowed is a whole number, one more than"),
    "length missing, factor": (lambda: PHI.rotation_factor(), TypeError, r"length is None"),
    "length zero": (lambda: E.DynamicNTK(2, 8).new_base(8, length=0), ValueError, r"length is 0; allowed is at least 1"),
    "length of a static one": (lambda: E.Linear(2).frequencies(8, length=-1), ValueError, r"length is -1; allowed is at least 1"),
    "length float": (lambda: E.Linear(2).rotate(ONE, IDS, layout="half", length=3.0), TypeError, r"length is 3\.0; allowed is a whole number"),
    "old": (lambda: E.Linear(2).relength(ONE, IDS, 0, 1, layout="half"), ValueError, r"old is 0; allowed is at least 1"),
    "new": (lambda: E.Linear(2).relength(ONE, IDS, 1, 1.5, layout="half"), TypeError, r"new is 1\.5"),
    "x": (lambda: E.Linear(2).rotate([1.0], IDS, layout="half"), TypeError, r"x is a list; allowed are numpy arrays and torch tensors"),
    "x whole": (lambda: E.YaRN(2, 64).rotate(np.ones((3, 8), int), IDS, layout="half"), TypeError, r"x has dtype int64"),
    "x flat": (lambda: E.Linear(2).rotate(np.ones(8), IDS, layout="half"), ValueError, r"x has shape \(8,\); allowed is \(\.\.\., length, width\)"),
    "x odd": (lambda: E.Linear(2).rotate(np.ones((3, 7)), IDS, layout="half"), ValueError, r"x has shape \(3, 7\): its width 7 must be even"),
    "width beyond": (lambda: E.Linear(2).rotate(ONE, IDS, layout="half", width=10), ValueError, r"width is 10, x has shape \(3, 8\); allowed is at most 8"),
    "layout": (lambda: E.YaRN(2, 64).rotate(ONE, IDS, layout="neox"), ValueError, r"layout is 'neox'; allowed are 'half'"),
    "positions": (lambda: E.YaRN(2, 64).rotate(ONE, IDS[:2], layout="half"), ValueError, r"positions has shape \(2,\), x \(3, 8\): allowed is"),
    "positions kind": (lambda: E.YaRN(2, 64).rotate(ONE, torch.arange(3), layout="half"), TypeError, r"positions is a Tensor, x a ndarray"),
    "positions float": (lambda: E.Linear(2).positions(np.ones(3)), TypeError, r"positions has dtype float64; allowed are integers"),
    "inverse": (lambda: E.YaRN(2, 64).rotate(ONE, IDS, layout="half", inverse=1), TypeError, r"inverse is 1"),
    "out": (lambda: E.YaRN(2, 64).rotate(ONE, IDS, layout="half", out=np.ones((3, 6))), ValueError, r"out has shape \(3, 6\), x \(3, 8\)"),
    "axes": (lambda: E.YaRN(2, 64).rotate(ONE, IDS[None], layout="half", axes=(0, 0, 0, 1)), ValueError, r"axes holds 1, positions has 1 axes"),
    "dtype": (lambda: E.YaRN(2, 64).tables(IDS, 8, np.int64), TypeError, r"dtype is .*int64.*; allowed are float dtypes"),
    "head width": (lambda: E.Linear(2).scale(0), ValueError, r"head_width is 0; allowed is at least 1"),
    "turned plain": (lambda: E.Linear(2).scale(8, turned_plain=1), TypeError, r"turned_plain is 1; allowed are True and False"),
    "mscale": (lambda: E.mscale(0), ValueError, r"factor is 0; allowed is a finite number above 0"),
    "mscale weight": (lambda: E.mscale(2, None), TypeError, r"weight is None; allowed is a finite number"),
    "range truncate": (lambda: E.correction_range(8, 1e4, 64, truncate=None), TypeError, r"truncate is None; allowed are True and False"),
    "range betas": (lambda: E.correction_range(8, 1e4, 64, beta_slow=-1), ValueError, r"beta_slow is -1; allowed is a finite number above 0"),
    "the class itself": (lambda: E.Method().frequencies(8), TypeError, r"Method has no frequencies; allowed are the methods under it"),
    "nn method": (lambda: nn.Rotary(8, layout="half", method="yarn"), TypeError, r"method is a str; allowed are the methods of poslib\.extension"),
    "nn both": (lambda: nn.Rotary(8, layout="half", method=E.Linear(2), frequencies=R.frequencies(8)), ValueError, r"frequencies and method are given; allowed is one of the two"),
    "nn lists": (lambda: nn.Rotary(8, layout="half", method=PHI), ValueError, r"have 48 entries, width is 8; allowed are 4"),
    "nn base": (lambda: nn.Rotary(8, layout="half", method=E.Linear(2), base=0), ValueError, r"base is 0"),
}
test_bad_input_names_the_argument_the_value_and_what_is_allowed = bad_input_test(BAD)


# -- torch modules

@methods
def test_the_module_turns_as_the_method(method):
    module = nn.Rotary(32, layout="half", head_width=40, base=777.0, method=method)
    q, k = torch.from_numpy(draw(18, 1, 4, 6, 40)), torch.from_numpy(draw(19, 1, 2, 9, 40))
    at, keys_at = torch.arange(6) + 3, torch.arange(9)
    got = module.bfloat16()(q, k, at, keys_at, length=20)
    for x, ids, y in ((q, at, got[0]), (k, keys_at, got[1])):
        assert torch.equal(y, method.rotate(x, ids, layout="half", width=32, base=777.0, length=20))
    assert not module.state_dict() and torch.equal(copy.deepcopy(module)(q, k, at, keys_at, 20)[1], got[1])
    assert repr(module) == f"Rotary(width=32, layout='half', base=777.0, head_width=40, method={method})"
    if method.dynamic:
        with pytest.raises(TypeError, match="length is None, and the frequencies of"):
            module(q, k, at, keys_at)
    else:
        assert torch.equal(module(q, k, at, keys_at)[0], got[0])


# -- beside transformers

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers==5.24.0")
rope_utils = importlib.import_module("transformers.modeling_rope_utils")
PHI_LISTS = {"short_factor": SHORT[:32], "long_factor": LONG[:32]}
GRID = [  # (rope_type, parameters beside the base)
    *[("linear", {"factor": f}) for f in (1.0, 2.5, 8.0)],
    *[("dynamic", {"factor": f}) for f in (1.0, 2.0, 8.0)],
    *[("yarn", {"factor": f, **more}) for f in (1.0, 4.0, 40.0) for more in (
        {}, {"truncate": False}, {"beta_fast": 16.0, "beta_slow": 2.0}, {"attention_factor": 1.25}, {"mscale": 1.0, "mscale_all_dim": 0.707},
        {"mscale": 0.707, "mscale_all_dim": 0.707}, {"mscale": 1.0, "mscale_all_dim": 1.0, "truncate": False, "beta_fast": 8})],
    *[("llama3", {"factor": f, "low_freq_factor": low, "high_freq_factor": high}) for f in (1.0, 8.0, 32.0) for low, high in ((1.0, 4.0), (0.5, 9.0))],
    *[("longrope", {**PHI_LISTS, **more}) for more in ({"factor": 32.0}, {"factor": 1.0}, {}, {"attention_factor": 1.5}, {"attention_factor": 1.5, "factor": 4.0})],
    *[("proportional", {"partial_rotary_factor": p, **more}) for p in (0.25, 1.0) for more in ({}, {"factor": 4.0})],
]


def files(kind, parameters, base, trained, longest, spelling="rope_parameters"):
    """What config.json would hold, of a Llama with heads of 64 channels."""
    inner = {"rope_type": kind, "rope_theta": base, **parameters}
    if kind in ("yarn", "llama3", "longrope"):
        inner["original_max_position_embeddings"] = trained
    return {"model_type": "llama", "hidden_size": 256, "num_attention_heads": 4, "head_dim": 64, "max_position_embeddings": longest, spelling: inner}


@contextlib.contextmanager
def in_float64(monkeypatch):
    """What they compute in float32, in float64."""
    with monkeypatch.context() as patch:
        patch.setattr(torch, "float", torch.float64)
        patch.setattr(torch, "float32", torch.float64)
        patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        yield


@covers("P25", "P28", "P30", "P32", "P42", "P43")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind, parameters", GRID, ids=[f"{kind} {i}" for i, (kind, _) in enumerate(GRID)])
def test_frequencies_and_factors_are_those_of_transformers(kind, parameters, monkeypatch):
    for base, trained, longest in ((10000.0, 4096, 131072), (500000.0, 8192, 32768), (1e6, 32768, 32768), (150000.0, 4096, 4096)):
        file = files(kind, copy.deepcopy(parameters), base, trained, longest)
        read = from_hf_config(file)
        made = transformers.LlamaConfig(**copy.deepcopy({k: v for k, v in file.items() if k != "model_type"}))
        for length in (1, trained, trained + 1, longest + 1, 3 * longest):
            ask = {"seq_len": length} if kind in ("dynamic", "longrope") else {}
            theirs, factor = rope_utils.ROPE_INIT_FUNCTIONS[kind](made, "cpu", **ask)
            ours = read.frequencies(length=length)
            assert read.rotation_factor(length=length) == factor and read.softmax_factor() == 1
            # theirs: exponents rounded to float32, then a power, and a few products or differences more
            np.testing.assert_allclose(theirs.numpy(), ours, rtol=(4 + math.log(base)) * 2**-24, atol=0)
            with in_float64(monkeypatch):
                theirs, _ = rope_utils.ROPE_INIT_FUNCTIONS[kind](made, "cpu", **ask)
            assert theirs.dtype == torch.float64
            np.testing.assert_allclose(theirs.numpy(), ours, rtol=2e-14, atol=0)
        assert read.method is not None or parameters == {"partial_rotary_factor": parameters.get("partial_rotary_factor")}


WHOLE = {  # configurations of tiny models with heads of 16 channels -> lengths to read
    "linear": ({"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}}, (6, 40)),
    "dynamic": ({"max_position_embeddings": 32, "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, (6, 32, 33, 80)),
    "yarn": ({"max_position_embeddings": 256, "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64}}, (6, 80)),
    "yarn, old spelling": ({"max_position_embeddings": 256, "rope_theta": 1e4, "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}}, (6, 80)),
    "llama3": ({"max_position_embeddings": 512, "rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                                                    "original_max_position_embeddings": 64}}, (6, 80)),
    "longrope": ({"max_position_embeddings": 256, "rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": LISTS[0][:8], "long_factor": LISTS[1][:8],
                                                                      "original_max_position_embeddings": 32}}, (6, 32, 33, 80)),
}
TINY = {"vocab_size": 32, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 1, "intermediate_size": 16,
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def run(kind, file, monkeypatch, lengths, **more):
    """A tiny model of the class, read at each length: (queries and keys before and after the turn, softmax scale) for each."""
    torch.manual_seed(1)
    config = transformers.CONFIG_MAPPING[kind](**{**TINY, **more, **copy.deepcopy(file)})
    config._attn_implementation = "eager"
    made = transformers.AutoModel.from_config(config).eval()
    code = importlib.import_module(type(made).__module__)
    held, seen = {}, []
    for name, part in made.named_modules():
        part.register_forward_hook(lambda m, i, o, name=name.rsplit(".", 1)[-1]: held.__setitem__(name, o))
    real = code.eager_attention_forward

    def watch(module, q, k, *rest, **named):
        seen.append((q, k, named.get("scaling")))
        return real(module, q, k, *rest, **named)
    monkeypatch.setattr(code, "eager_attention_forward", watch)
    for length in lengths:
        with torch.no_grad():
            made(input_ids=torch.arange(length)[None] % 29 + 3, use_cache=False)
        q, k, scaling = seen.pop()
        yield config, held, q, k, scaling


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", WHOLE)
def test_whole_tiny_llamas_turn_like_what_is_read(case, monkeypatch):
    file, lengths = WHOLE[case]
    read = from_hf_config({"model_type": "llama", **TINY, **file})
    assert read.method is not None
    for length, (config, held, q, k, scaling) in zip(lengths, run("llama", file, monkeypatch, lengths)):
        heads = lambda x: x.unflatten(-1, (-1, 16)).transpose(1, 2)
        assert scaling == read.method.scale(16) and from_hf_config(config).method == read.method
        for before, after in ((heads(held["q_proj"]), q), (heads(held["k_proj"]), k)):
            want = read.rotate(before, torch.arange(length), length=length)
            assert float((want - before).abs().max()) > 0.1 * float(before.abs().max())
            torch.testing.assert_close(after, want, rtol=0, atol=2e-5 * float(before.abs().max()))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("weights", [{"mscale": 1.0, "mscale_all_dim": 1.0}, {"mscale": 1.0, "mscale_all_dim": 0.707}, {}])
@pytest.mark.parametrize("model", ["deepseek_v2", "deepseek_v3"])
def test_both_factors_of_a_whole_deepseek(model, weights, monkeypatch):
    more = {"q_lora_rank": None, "kv_lora_rank": 8, "qk_nope_head_dim": 10, "qk_rope_head_dim": 8, "v_head_dim": 12, "n_routed_experts": 2, "num_experts_per_tok": 1,
            "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "num_key_value_heads": 4, "max_position_embeddings": 2560}
    file = {"rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 64, "beta_fast": 32, "beta_slow": 1, **weights}, "rope_theta": 10000}
    read = from_hf_config({"model_type": model, **TINY, **more, **file})
    ((config, held, q, k, scaling),) = run(model, file, monkeypatch, (40,), **more)
    before = held["q_proj"].unflatten(-1, (-1, 18)).transpose(1, 2)[..., 10:]
    want = read.rotate(before, torch.arange(40))
    if model == "deepseek_v3":          # turns neighbours and leaves them in halves
        want = want[..., R.convert(torch.arange(8), source="interleaved", target="half", heads=1)]
    torch.testing.assert_close(q[..., 10:], want, rtol=0, atol=2e-5 * float(before.abs().max()))
    # v2 with the softmax scale of its heads, and the factor of the other part
    assert scaling == pytest.approx(read.method.scale(18), rel=1e-15)
    assert (read.softmax_factor() == 1) == (not weights)


@pytest.mark.filterwarnings("ignore")
def test_phi3_with_its_length_beside_the_dictionary(monkeypatch):
    file = {"max_position_embeddings": 256, "original_max_position_embeddings": 32, "partial_rotary_factor": 0.75,
            "rope_scaling": {"type": "su", "short_factor": LISTS[0][:6], "long_factor": LISTS[1][:6]}, "rope_theta": 1e4}
    read = from_hf_config({"model_type": "phi3", **TINY, **file})
    assert read.method == E.LongRoPE(LISTS[0][:6], LISTS[1][:6], 32, factor=8) and read.width == 12
    assert from_hf_config({"model_type": "phi3", **TINY, **file, "rope_scaling": {**file["rope_scaling"], "type": "yarn"}}).method == read.method
    for length, (_, held, q, k, _) in zip((32, 33), run("phi3", {**file, "rope_scaling": {**file["rope_scaling"], "type": "longrope"}}, monkeypatch, (32, 33))):
        before = held["qkv_proj"].split([64, 32, 32], dim=-1)[0].unflatten(-1, (-1, 16)).transpose(1, 2)
        torch.testing.assert_close(q, read.rotate(before, torch.arange(length), length=length), rtol=0, atol=2e-5 * float(before.abs().max()))


# -- where transformers does otherwise: each test fails when it no longer does

def their_rope(file):
    code = importlib.import_module("transformers.models.llama.modeling_llama")
    return code.LlamaRotaryEmbedding(transformers.LlamaConfig(**{**TINY, **copy.deepcopy(file)}))


@covers("F02", "P18")
@pytest.mark.filterwarnings("ignore")
def test_transformers_keeps_the_long_base_for_a_text_of_just_the_trained_length():
    file = {"max_position_embeddings": 16, "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}
    theirs, read, x = their_rope(file), from_hf_config({"model_type": "llama", **TINY, **file}), torch.zeros(1)
    cosines = [theirs(x, torch.arange(n)[None])[0][0, :16, :8] for n in (16, 64, 16, 15)]
    assert torch.equal(cosines[0][:15], cosines[3]) and float((cosines[0] - cosines[2]).abs().max()) > 0.1
    ours = [torch.from_numpy(np.cos(np.outer(np.arange(16), read.frequencies(length=n)))).float() for n in (16, 64, 16)]
    assert torch.equal(ours[0], ours[2])
    torch.testing.assert_close(cosines[0], ours[0], rtol=0, atol=2e-6)
    torch.testing.assert_close(cosines[1], ours[1], rtol=0, atol=2e-6)


@covers("F04")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind, parameters", [("dynamic", {"factor": 2.0}), ("yarn", {"factor": 4.0}), ("longrope", {**PHI_LISTS, "factor": 4.0})])
def test_transformers_cannot_do_without_head_dim(kind, parameters):
    file = {**files(kind, parameters, 1e4, 64, 256), "head_dim": None}
    made = transformers.LlamaConfig(**copy.deepcopy({k: v for k, v in files(kind, parameters, 1e4, 64, 256).items() if k != "model_type"}))
    made.head_dim = None
    with pytest.raises(TypeError):
        rope_utils.ROPE_INIT_FUNCTIONS[kind](made, "cpu")
    assert from_hf_config(file) == from_hf_config(files(kind, parameters, 1e4, 64, 256))


@covers("F03", "P31", "P35")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("more, ours, theirs", [({"mscale": 0.707}, 1.2608037774058553, 1.3688879454113936), ({"mscale_all_dim": 0.707}, 1.3688879454113936 / 1.2608037774058553, 1.3688879454113936),
                                                ({"attn_factor": 0.8}, 0.8 * 1.3688879454113936, 1.3688879454113936), ({"mscale": 0.0}, 1.0, 1.3688879454113936)])
def test_transformers_leaves_out_one_weight_alone_a_weight_of_zero_and_attn_factor(more, ours, theirs):
    file = files("yarn", {"factor": 40.0, **more}, 1e4, 4096, 163840)
    read = from_hf_config(file)
    assert read.rotation_factor() == pytest.approx(ours, rel=1e-15) and "transformers 5.24 reads a rotation factor of 1.3689 from this file" in read.explain()
    made = transformers.LlamaConfig(**{k: v for k, v in file.items() if k != "model_type"})
    assert rope_utils.ROPE_INIT_FUNCTIONS["yarn"](made, "cpu")[1] == pytest.approx(theirs, rel=1e-15)
    assert "transformers" not in from_hf_config(files("yarn", {"factor": 40.0}, 1e4, 4096, 163840)).explain()


@pytest.mark.filterwarnings("ignore")
def test_transformers_does_not_look_for_truncate_in_a_nested_dictionary():
    inner = {"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "original_max_position_embeddings": 4096, "truncate": False}
    layers = {"layer_types": ["full_attention"], "rope_parameters": {"full_attention": inner, "sliding_attention": {"rope_type": "default", "rope_theta": 150000.0}}}
    read = from_hf_config({"model_type": "llama", "head_dim": 64, "max_position_embeddings": 131072, **layers}, layer_type="full_attention")
    assert read.method == E.YaRN(32, 4096, truncate=False)
    made = transformers.CONFIG_MAPPING["olmo3"](head_dim=64, hidden_size=256, num_attention_heads=4, num_hidden_layers=1, max_position_embeddings=131072,
                                               **copy.deepcopy({**layers, "layer_types": ["full_attention", "sliding_attention"][:1]}))
    made.head_dim = 64
    theirs = rope_utils.ROPE_INIT_FUNCTIONS["yarn"](made, "cpu", layer_type="full_attention")[0].numpy()
    np.testing.assert_allclose(theirs, dataclasses.replace(read.method, truncate=True).frequencies(64, 150000.0), rtol=1e-6)
    assert abs(theirs / read.frequencies() - 1).max() > 0.04


@pytest.mark.filterwarnings("ignore")
def test_transformers_turns_phimoe_with_the_short_list_at_every_length():
    inner = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": LISTS[0][:8], "long_factor": LISTS[1][:8], "short_mscale": 1.1, "long_mscale": 1.3,
             "original_max_position_embeddings": 32}
    file = {"max_position_embeddings": 256, "original_max_position_embeddings": 32, "rope_scaling": inner, "rope_theta": 1e4}
    read = from_hf_config({"model_type": "phimoe", **TINY, **file})
    assert read.method == E.LongRoPE(LISTS[0][:8], LISTS[1][:8], 32, factor=8, short_mscale=1.1, long_mscale=1.3)
    assert "short list at every length" in read.explain()
    code = importlib.import_module("transformers.models.phimoe.modeling_phimoe")
    theirs = code.PhimoeRotaryEmbedding(transformers.CONFIG_MAPPING["phimoe"](**{**TINY, **copy.deepcopy(file)}))
    for n, factor in ((32, 1.1), (40, 1.3)):
        cos = theirs(torch.zeros(1), torch.arange(n)[None])[0][0, :, :8].numpy()
        np.testing.assert_allclose(cos, factor * np.cos(np.outer(np.arange(n), read.frequencies(length=32))), atol=1e-5)
    assert abs(read.frequencies(length=33) / read.frequencies(length=32) - 1).max() > 0.5


# -- beside others

def test_linear_and_ntk_are_those_of_rotary_embedding_torch():
    peer = pytest.importorskip("rotary_embedding_torch")
    rope = peer.RotaryEmbedding(32, theta=1e4, theta_rescale_factor=4.0)
    np.testing.assert_allclose(rope.freqs.detach().numpy(), E.NTKAware(4).frequencies(32), rtol=1e-6)
    x, ids = torch.randn(1, 2, 9, 32), torch.arange(9)
    rope = peer.RotaryEmbedding(32, theta=1e4, interpolate_factor=4.0)
    torch.testing.assert_close(rope.rotate_queries_or_keys(x), E.Linear(4).rotate(x, ids, layout="interleaved"), rtol=0, atol=1e-5)


@covers("P42")
def test_llama_3_is_that_of_torchtune():
    from importlib.util import find_spec
    if find_spec("torchtune") is None:
        pytest.skip("torchtune is not installed")
    path = next(iter(find_spec("torchtune").submodule_search_locations)) + "/models/llama3_1/_position_embeddings.py"
    spec = importlib.util.spec_from_file_location("their_llama3", path)
    spec.loader.exec_module(theirs := importlib.util.module_from_spec(spec))
    rope = theirs.Llama3ScaledRoPE(dim=128, max_seq_len=16, base=500000, scale_factor=8)
    np.testing.assert_allclose(rope.theta.numpy(), E.Llama3(8, 8192).frequencies(128, 5e5), rtol=1e-6)
