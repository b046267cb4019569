"""The torch modules: the functions bit by bit, whatever is done to a module on the way."""

import copy
import subprocess
import sys

import pytest
import torch

from conftest import bad_input_test
from poslib import absolute, multiaxis, nn, relative, rotary
from poslib.attention import attention, causal_mask

IDS = torch.tensor([0, 3, 7, 1])
FAR = torch.tensor([256, 257, 4095, 10**6])


def draw(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


DRAWN, AXES = draw(2, 3, 4, 8), multiaxis.mrope_axes((2, 1, 1), order="interleaved")


def treated(make):
    """A module as made, and after everything that narrows or loses what is kept in buffers."""
    with torch.device("meta"):
        made = make()
    yield from (make(), make().bfloat16(), make().half().float(), copy.deepcopy(make()), made.to_empty(device="cpu"))


@pytest.mark.parametrize("make, call, want", [
    (lambda: nn.SinusoidalPositions(6, base=500.0), lambda m: m(FAR), absolute.sinusoid(FAR, 6, base=500.0, dtype=torch.float32)),
    (lambda: nn.SinusoidalPositions(7, form="blocks"), lambda m: m(FAR, dtype=torch.float64), absolute.sinusoid(FAR, 7, form="blocks")),
    (lambda: nn.Rotary(8, layout="half", base=777.0), lambda m: m(draw(2, 3, 4, 8), draw(2, 1, 4, 8, seed=1), FAR)[0],
     rotary.rotate(draw(2, 3, 4, 8), FAR, layout="half", base=777.0)),
    (lambda: nn.Rotary(8, layout="interleaved"), lambda m: m(draw(2, 3, 4, 8), draw(2, 1, 4, 8, seed=1), FAR)[1],
     rotary.rotate(draw(2, 1, 4, 8, seed=1), FAR, layout="interleaved")),
    (lambda: nn.Rotary(6, layout="half", head_width=8, frequencies=rotary.proportional_frequencies(6, 0.5)), lambda m: m(DRAWN, DRAWN, FAR)[0],
     rotary.rotate(DRAWN, FAR, layout="half", width=6, frequencies=rotary.proportional_frequencies(6, 0.5))),
    (lambda: nn.Rotary(8, layout="half", axes=AXES), lambda m: m(DRAWN, DRAWN, torch.stack([FAR, IDS, -FAR]))[0],
     rotary.rotate(DRAWN, torch.stack([FAR, IDS, -FAR]), layout="half", axes=AXES)),
], ids=["sinusoid", "blocks", "queries", "keys", "partial", "axes"])
def test_fixed_positions_survive_casts_copies_and_meta(make, call, want):
    for module in treated(make):
        assert torch.equal(call(module), want) and not module.state_dict()
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(call(module), want)
        with pytest.raises(RuntimeError, match="Unexpected key"):
            module.load_state_dict({"inv_freq": torch.ones(4)})


def test_learned_positions_look_up_and_learn():
    module = nn.LearnedPositions(8, 3, std=0.5)
    assert torch.equal(module(IDS), module.weight[IDS]) and list(module.state_dict()) == ["weight"]
    module(IDS[None]).sum().backward()
    assert module.weight.grad[[0, 1, 3, 7]].eq(1).all() and module.weight.grad[[2, 4, 5, 6]].eq(0).all()
    for p in (8, -1):
        with pytest.raises(ValueError, match=f"positions holds {p}, the table has 8 rows: allowed are 0 to 7"):
            module(torch.tensor([0, p]))


def test_the_first_values_have_the_asked_spread_and_no_other_generator():
    torch.manual_seed(3)
    table = nn.LearnedPositions(400, 100, std=0.3).weight
    assert abs(table.std().item() - 0.3) < 0.01 and abs(table.mean().item()) < 0.01
    torch.manual_seed(3)
    assert torch.equal(nn.LearnedPositions(400, 100, std=0.3).weight, table)
    assert nn.LearnedPositions(2, 3, std=0).weight.eq(0).all()
    assert nn.LearnedPositions(2, 3, dtype=torch.float64, device="meta").weight.dtype == torch.float64


def test_weights_of_an_embedding_load():
    embedding, module = torch.nn.Embedding(8, 3), nn.LearnedPositions(8, 3)
    module.load_state_dict(embedding.state_dict())
    assert torch.equal(module(IDS), embedding(IDS))


def test_resizing_keeps_dtype_and_whether_it_is_trained():
    module = nn.LearnedPositions(5, 2, dtype=torch.bfloat16)
    module.weight.requires_grad_(False)
    want = absolute.resize(module.weight, 9)
    assert module.resize(9) is module and torch.equal(module.weight, want)
    assert module.weight.dtype == torch.bfloat16 and not module.weight.requires_grad
    assert isinstance(nn.LearnedPositions(5, 2).resize(3).weight, torch.nn.Parameter)
    assert torch.equal(module(torch.tensor([8])), want[8:])


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_decoding_one_by_one_is_the_same_as_all_at_once(layout):
    turn = nn.Rotary(8, layout=layout)
    q, k, ids = draw(2, 4, 6, 8), draw(2, 2, 6, 8, seed=1), torch.arange(6)
    full_q, full_k = turn(q, k, ids)
    for i in range(6):
        now, _ = turn(q[:, :, i:i + 1], k[:, :, :1], ids[i:i + 1], key_positions=ids[:1])
        assert torch.equal(now, full_q[:, :, i:i + 1])
    step_q, step_k = turn(q[:, :, 5:], k, ids[5:], key_positions=ids)
    assert torch.equal(step_q, full_q[:, :, 5:]) and torch.equal(step_k, full_k)


def test_t5_bias_is_the_function_of_its_table():
    module = nn.T5Bias(8, 3, max_distance=9, bidirectional=True, std=1.0)
    assert list(module.state_dict()) == ["weight"] and module.weight.shape == (8, 3)
    late = torch.tensor([[7], [2]])
    assert torch.equal(module(IDS), relative.t5_bias(IDS, IDS, module.weight, max_distance=9, bidirectional=True))
    assert torch.equal(module(late, IDS), relative.t5_bias(late, IDS, module.weight, max_distance=9, bidirectional=True))
    assert torch.equal(module(late, IDS)[0], module(IDS)[:, 2:3])            # decoding
    module(IDS).sum().backward()
    assert module.weight.grad.sum() == 3 * 16 and module.bfloat16()(IDS).dtype == torch.bfloat16
    embedding = torch.nn.Embedding(32, 4)
    module = nn.T5Bias(32, 4)
    module.load_state_dict(embedding.state_dict())
    buckets = relative.t5_buckets(IDS[:, None] - IDS[None, :])
    assert torch.equal(module(IDS), embedding(buckets).permute(2, 0, 1))


def test_shaw_relative_adds_its_vectors_to_keys_and_values():
    module, mask = nn.ShawRelative(2, 8, 5, std=1.0), causal_mask(4, like=torch.empty(0))
    q, k, v = draw(2, 3, 4, 8), draw(2, 3, 4, 8, seed=1), draw(2, 3, 4, 5, seed=2)
    output, weights = module(q, k, v, torch.arange(4), mask=mask)
    index = (torch.arange(4)[None, :] - torch.arange(4)[:, None]).clamp(-2, 2) + 2
    for i in range(4):
        want, w = attention(q[:, :, i:i + 1], k + module.keys[index[i]], v + module.values[index[i]], mask=mask[i:i + 1])
        torch.testing.assert_close(output[:, :, i:i + 1], want)
        torch.testing.assert_close(weights[:, :, i:i + 1], w)
    last, _ = module(q[:, :, 3:], k, v, torch.tensor([3]), key_positions=torch.arange(4))
    torch.testing.assert_close(last, output[:, :, 3:])
    output.sum().backward()
    assert module.keys.grad[:3].abs().min() > 0 and module.values.grad[:3].abs().min() > 0       # later keys are hidden
    assert {n: tuple(p.shape) for n, p in module.named_parameters()} == {"keys": (5, 8), "values": (5, 5)}
    half, _ = module(q.bfloat16(), k.bfloat16(), v.bfloat16(), torch.arange(4), mask=mask)
    wide, _ = module(q.bfloat16().float(), k.bfloat16().float(), v.bfloat16().float(), torch.arange(4), mask=mask)
    assert torch.equal(half, wide.bfloat16())                                                    # one rounding
    assert module.double()(q.double(), k.double(), v.double(), torch.arange(4))[0].dtype == torch.float64


def test_representations_name_the_settings():
    assert repr(nn.T5Bias(8, 3)) == "T5Bias(buckets=8, heads=3, max_distance=128, bidirectional=False)"
    assert repr(nn.ShawRelative(2, 8)) == "ShawRelative(clip=2, width=8, value_width=8)"
    assert repr(nn.Rotary(8, layout="half")) == "Rotary(width=8, layout='half', base=10000.0)"
    assert repr(nn.Rotary(4, layout="half", head_width=8, axes=(0, 1), frequencies=rotary.frequencies(4))) == \
        "Rotary(width=4, layout='half', frequencies=2 given, head_width=8, axes=(0, 1))"
    assert repr(nn.SinusoidalPositions(6)) == "SinusoidalPositions(width=6, base=10000.0, form='paper')"
    assert repr(nn.LearnedPositions(5, 2).resize(7)) == "LearnedPositions(rows=7, width=2)"


def test_without_torch_the_error_says_what_to_install():
    code = "import sys; sys.modules['torch'] = None\ntry:\n    import poslib.nn\nexcept ModuleNotFoundError as e:\n    print(e)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "poslib.nn needs torch: pip install torch\n"


Q, WIDE = torch.ones(1, 1, 4, 8), torch.ones(1, 1, 4, 10)

@pytest.mark.filterwarnings("ignore")
def test_rotary_compiles_to_one_graph_with_every_setting():
    module = nn.Rotary(6, layout="half", head_width=8, frequencies=multiaxis.axial_frequencies(6, 3), axes=multiaxis.axial_axes(6, 3))
    ids = torch.stack([FAR, IDS, -FAR])
    assert torch.equal(torch.compile(module, backend="eager", fullgraph=True)(DRAWN, DRAWN, ids)[0], module(DRAWN, DRAWN, ids)[0])


def test_rotary_keeps_frequencies_of_its_own():
    omega = rotary.frequencies(8)
    module = nn.Rotary(8, layout="half", frequencies=omega)
    omega[:] = 0
    assert torch.equal(module(DRAWN, DRAWN, FAR)[1], rotary.rotate(DRAWN, FAR, layout="half"))


BAD = {  # what is passed -> error and a piece of its message
    "rows": (lambda: nn.LearnedPositions(0, 3), ValueError, r"rows is 0; allowed is at least 1"),
    "rows float": (lambda: nn.LearnedPositions(2.0, 3), TypeError, r"rows is 2\.0; allowed is a whole number"),
    "width": (lambda: nn.LearnedPositions(2, 0), ValueError, r"width is 0; allowed is at least 1"),
    "std": (lambda: nn.LearnedPositions(2, 3, std=-1), ValueError, r"std is -1; allowed is a finite number of at least 0"),
    "std nan": (lambda: nn.LearnedPositions(2, 3, std=float("nan")), ValueError, r"std is nan"),
    "float ids": (lambda: nn.LearnedPositions(2, 3)(torch.ones(2)), TypeError, r"positions has dtype torch\.float32; allowed are integers"),
    "resize": (lambda: nn.LearnedPositions(2, 3).resize(1), ValueError, r"rows is 1, the table has 2"),
    "frequencies at once": (lambda: nn.Rotary(8, layout="half", frequencies=torch.ones(4).double()), TypeError, r"frequencies is a Tensor; allowed are a numpy array and a tuple"),
    "frequencies list": (lambda: nn.Rotary(8, layout="half", frequencies=[1.0]), TypeError, r"frequencies is a list"),
    "frequencies narrow": (lambda: nn.Rotary(8, layout="half", frequencies=rotary.frequencies(8).astype("f4")), TypeError, r"frequencies has dtype float32"),
    "frequencies few": (lambda: nn.Rotary(8, layout="half", frequencies=rotary.frequencies(4)), ValueError, r"frequencies has shape \(2,\)"),
    "head width": (lambda: nn.Rotary(8, layout="half", head_width=6), ValueError, r"head_width is 6; allowed is at least 8 \(the channels that turn\)"),
    "axes at once": (lambda: nn.Rotary(8, layout="half", axes=(0, 1)), ValueError, r"axes has shape \(2,\)"),
    "axes negative": (lambda: nn.Rotary(4, layout="half", axes=(0, -1)), ValueError, r"axes is -1; allowed is at least 0"),
    "rotary base": (lambda: nn.Rotary(8, layout="half", base=0), ValueError, r"base is 0"),
    "rotary odd": (lambda: nn.Rotary(7, layout="half"), ValueError, r"width is 7"),
    "rotary layout": (lambda: nn.Rotary(8, layout="neox"), ValueError, r"layout is 'neox'"),
    "ids of one axis": (lambda: nn.Rotary(8, layout="half", axes=AXES)(DRAWN, DRAWN, FAR), ValueError, r"an axis for the axes, then"),
    "ids of few axes": (lambda: nn.Rotary(8, layout="half", axes=AXES)(DRAWN, DRAWN, FAR[None]), ValueError, r"axes holds 1, positions has 1 axes"),
    "buckets at once": (lambda: nn.T5Bias(33, 4, bidirectional=True), ValueError, r"buckets is 33; allowed are even numbers"),
    "distance at once": (lambda: nn.T5Bias(32, 4, max_distance=16), ValueError, r"max_distance is 16; allowed is at least 17"),
    "heads": (lambda: nn.T5Bias(32, 0), ValueError, r"heads is 0; allowed is at least 1"),
    "bias std": (lambda: nn.T5Bias(32, 4, std=-1), ValueError, r"std is -1"),
    "clip": (lambda: nn.ShawRelative(-1, 4), ValueError, r"clip is -1; allowed is at least 0"),
    "shaw width": (lambda: nn.ShawRelative(2, 0), ValueError, r"width is 0; allowed is at least 1"),
    "shaw value width": (lambda: nn.ShawRelative(2, 4, 2.0), TypeError, r"value_width is 2\.0; allowed is a whole number"),
    "shaw std": (lambda: nn.ShawRelative(2, 4, std=float("inf")), ValueError, r"std is inf"),
    "shaw queries": (lambda: nn.ShawRelative(2, 8)(Q, Q, Q, IDS[:2], IDS), ValueError, r"lags of shape \(2, 4\), q has shape \(1, 1, 4, 8\)"),
    "base at once": (lambda: nn.SinusoidalPositions(4, base=0), ValueError, r"base is 0; allowed"),
    "form at once": (lambda: nn.SinusoidalPositions(4, form="mixed"), ValueError, r"form is 'mixed'; allowed are 'paper'"),
    "dtype": (lambda: nn.SinusoidalPositions(4)(IDS, dtype=torch.int32), TypeError, r"dtype is torch\.int32; allowed are float dtypes"),
    "layout at once": (lambda: nn.Rotary(8, layout="neox"), ValueError, r"layout is 'neox'; allowed are 'half' \(.*NeoX.*\) and 'interleaved'"),
    "odd": (lambda: nn.Rotary(7, layout="half"), ValueError, r"width is 7; allowed are even numbers"),
    "wide q": (lambda: nn.Rotary(8, layout="half")(WIDE, Q, IDS), ValueError, r"q has shape \(1, 1, 4, 10\); allowed is \(\.\.\., length, 8\)"),
    "wide k": (lambda: nn.Rotary(8, layout="half")(Q, WIDE, IDS), ValueError, r"k has shape \(1, 1, 4, 10\); allowed"),
}


test_bad_input_names_the_argument_the_value_and_what_is_allowed = bad_input_test(BAD)
