"""The torch modules: the functions bit by bit, whatever is done to a module on the way."""

import copy
import subprocess
import sys

import pytest
import torch

from conftest import bad_input_test
from poslib import absolute, nn, rotary

IDS = torch.tensor([0, 3, 7, 1])
FAR = torch.tensor([256, 257, 4095, 10**6])


def draw(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


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
], ids=["sinusoid", "blocks", "queries", "keys"])
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


def test_representations_name_the_settings():
    assert repr(nn.Rotary(8, layout="half")) == "Rotary(width=8, layout='half', base=10000.0)"
    assert repr(nn.SinusoidalPositions(6)) == "SinusoidalPositions(width=6, base=10000.0, form='paper')"
    assert repr(nn.LearnedPositions(5, 2).resize(7)) == "LearnedPositions(rows=7, width=2)"


def test_without_torch_the_error_says_what_to_install():
    code = "import sys; sys.modules['torch'] = None\ntry:\n    import poslib.nn\nexcept ModuleNotFoundError as e:\n    print(e)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "poslib.nn needs torch: pip install torch\n"


Q, WIDE = torch.ones(1, 1, 4, 8), torch.ones(1, 1, 4, 10)
BAD = {  # what is passed -> error and a piece of its message
    "rows": (lambda: nn.LearnedPositions(0, 3), ValueError, r"rows is 0; allowed is at least 1"),
    "rows float": (lambda: nn.LearnedPositions(2.0, 3), TypeError, r"rows is 2\.0; allowed is a whole number"),
    "width": (lambda: nn.LearnedPositions(2, 0), ValueError, r"width is 0; allowed is at least 1"),
    "std": (lambda: nn.LearnedPositions(2, 3, std=-1), ValueError, r"std is -1; allowed is a finite number of at least 0"),
    "std nan": (lambda: nn.LearnedPositions(2, 3, std=float("nan")), ValueError, r"std is nan"),
    "float ids": (lambda: nn.LearnedPositions(2, 3)(torch.ones(2)), TypeError, r"positions has dtype torch\.float32; allowed are integers"),
    "resize": (lambda: nn.LearnedPositions(2, 3).resize(1), ValueError, r"rows is 1, the table has 2"),
    "base at once": (lambda: nn.SinusoidalPositions(4, base=0), ValueError, r"base is 0; allowed"),
    "form at once": (lambda: nn.SinusoidalPositions(4, form="mixed"), ValueError, r"form is 'mixed'; allowed are 'paper'"),
    "dtype": (lambda: nn.SinusoidalPositions(4)(IDS, dtype=torch.int32), TypeError, r"dtype is torch\.int32; allowed are float dtypes"),
    "layout at once": (lambda: nn.Rotary(8, layout="neox"), ValueError, r"layout is 'neox'; allowed are 'half' \(.*NeoX.*\) and 'interleaved'"),
    "odd": (lambda: nn.Rotary(7, layout="half"), ValueError, r"width is 7; allowed are even numbers"),
    "wide q": (lambda: nn.Rotary(8, layout="half")(WIDE, Q, IDS), ValueError, r"q has shape \(1, 1, 4, 10\); allowed is \(\.\.\., length, 8\)"),
    "wide k": (lambda: nn.Rotary(8, layout="half")(Q, WIDE, IDS), ValueError, r"k has shape \(1, 1, 4, 10\); allowed"),
}


test_bad_input_names_the_argument_the_value_and_what_is_allowed = bad_input_test(BAD)
