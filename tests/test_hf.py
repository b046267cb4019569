"""poslib.hf: configurations as people have them, each trap of the names, and every error it promises.

F05 is a fault of transformers (an odd width from 0.29 of 200), P43 Automodel 2825 (an unknown kind taken for another), P45 Soup 793
(a configuration changed after it was read), P50 pie 603 (exponent of another width), P52 maxtext 4615 (partial width dropped in one
mode), P95 MNN 4133 (chunked for interleaved sections), F04 transformers (head_dim None).
"""

import dataclasses
import types

import numpy as np
import pytest
import torch

from conftest import bad_input_test
from poslib import hf, multiaxis, rotary
from poslib.hf import RotaryConfig, from_hf_config

GPT2 = {"n_embd": 4096, "n_head": 16}
SIZES = {"hidden_size": 2048, "num_attention_heads": 32}
LLAMA = {"model_type": "llama", **SIZES}
GEMMA3 = {"model_type": "gemma3_text", "head_dim": 256, "rope_parameters": {
    "full_attention": {"rope_type": "default", "rope_theta": 1000000.0}, "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}}
OLD_GEMMA3 = {"model_type": "gemma3_text", "head_dim": 256, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0,
              "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}
GEMMA4 = {"model_type": "gemma4_text", "head_dim": 256, "global_head_dim": 512, "rope_parameters": {
    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}}
LAYERS4 = {"layer_types": ["sliding_attention", "full_attention"], "per_layer_config": {"01": {"head_dim": 512}}}
QWEN2VL = {"model_type": "qwen2_vl", "hidden_size": 3584, "num_attention_heads": 28, "rope_theta": 1000000.0,
           "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}
QWEN3VL = {"model_type": "qwen3_vl", "vision_config": {"hidden_size": 1152}, "text_config": {
    "model_type": "qwen3_vl_text", "head_dim": 128, "rope_theta": 5000000, "rope_scaling": {
        "mrope_interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default"}}}
DEEPSEEK = {"model_type": "deepseek_v3", "hidden_size": 7168, "num_attention_heads": 128, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
            "rope_theta": 10000, "rope_scaling": None}

READ = {  # a configuration, options -> head_dim, width, layout, base and what else is not None
    "llama": (LLAMA, {}, (64, 64, "half", 10000.0), {}),
    "smollm2": ({"model_type": "llama", "hidden_size": 576, "num_attention_heads": 9, "rope_theta": 100000, "rope_scaling": None, "rope_interleaved": False},
                {}, (64, 64, "half", 100000.0), {}),
    "nested base": ({**LLAMA, "rope_parameters": {"rope_type": "default", "rope_theta": 777.0}}, {}, (64, 64, "half", 777.0), {}),
    "both places agree": ({**LLAMA, "rope_theta": 777, "rope_parameters": {"type": "default", "rope_theta": 777.0}}, {}, (64, 64, "half", 777.0), {}),
    "head_dim null": ({**LLAMA, "head_dim": None}, {}, (64, 64, "half", 10000.0), {}),                                     # F04
    "head_dim": ({**LLAMA, "head_dim": 96}, {}, (96, 96, "half", 10000.0), {}),
    "pythia": ({"model_type": "gpt_neox", "hidden_size": 768, "num_attention_heads": 12, "rotary_pct": 0.25, "rotary_emb_base": 10000},
               {}, (64, 16, "half", 10000.0), {}),                                                                         # P50
    "phi-2": ({"model_type": "phi", "hidden_size": 2560, "num_attention_heads": 32, "partial_rotary_factor": 0.4, "rope_theta": 10000.0},
              {}, (80, 32, "half", 10000.0), {}),
    "phi-4-mini": ({"model_type": "phi3", "hidden_size": 3072, "num_attention_heads": 24, "partial_rotary_factor": 0.75, "rope_theta": 10000.0},
                   {}, (128, 96, "half", 10000.0), {}),
    "stablelm": ({"model_type": "stablelm", **SIZES, "rope_pct": 0.25}, {}, (64, 16, "half", 10000.0), {}),
    "nested share": ({"model_type": "phi", **SIZES, "rope_parameters": {"partial_rotary_factor": 0.25, "rope_theta": 5.0}}, {}, (64, 16, "half", 5.0), {}),
    "default share": ({"model_type": "nemotron", "head_dim": 128}, {}, (128, 64, "half", 10000.0), {}),
    "slip of a float": ({"model_type": "phi", "head_dim": 200, "partial_rotary_factor": 0.29}, {}, (200, 58, "half", 10000.0), {}),     # F05
    "not whole": ({"model_type": "phi", "head_dim": 192, "partial_rotary_factor": 0.334}, {}, (192, 64, "half", 10000.0), {}),
    "gpt-j": ({"model_type": "gptj", **GPT2, "rotary_dim": 64}, {}, (256, 64, "interleaved", 10000.0), {}),
    "minimax": ({"model_type": "minimax_m2", "head_dim": 128, "rotary_dim": 64, "rope_theta": 5000000}, {}, (128, 64, "half", 5e6), {}),
    "glm": ({"model_type": "glm4", "head_dim": 128, "partial_rotary_factor": 0.5}, {}, (128, 64, "interleaved", 10000.0), {}),
    "cohere": ({"model_type": "cohere", **SIZES, "rope_theta": 8000000}, {}, (64, 64, "interleaved", 8e6), {}),
    "unknown": ({"model_type": "new", **SIZES, "rope_theta": 9}, {"layout": "interleaved"}, (64, 64, "interleaved", 9.0), {}),
    "no type": ({**SIZES, "rope_theta": 9, "partial_rotary_factor": 0.5}, {"layout": "half"}, (64, 32, "half", 9.0), {}),
    "layout agrees": (LLAMA, {"layout": "half"}, (64, 64, "half", 10000.0), {}),
    "deepseek": (DEEPSEEK, {}, (64, 64, "interleaved", 10000.0), {}),
    "deepseek half": ({**DEEPSEEK, "rope_interleave": False}, {}, (64, 64, "half", 10000.0), {}),
    "share of the whole": ({**DEEPSEEK, "head_dim": 128, "partial_rotary_factor": 0.5}, {}, (64, 64, "interleaved", 10000.0), {}),
    "gemma 3 full": (GEMMA3, {"layer_type": "full_attention"}, (256, 256, "half", 1e6), {}),
    "gemma 3 sliding": (GEMMA3, {"layer_type": "sliding_attention"}, (256, 256, "half", 10000.0), {}),
    "gemma 3 old sliding": (OLD_GEMMA3, {"layer_type": "sliding_attention"}, (256, 256, "half", 10000.0), {}),
    "gemma 3 old full": ({**OLD_GEMMA3, "rope_scaling": None}, {"layer_type": "full_attention"}, (256, 256, "half", 1e6), {}),
    "gemma 4 full": (GEMMA4, {"layer_type": "full_attention"}, (512, 512, "half", 1e6), {"share": 0.25}),
    "gemma 4 sliding": (GEMMA4, {"layer_type": "sliding_attention"}, (256, 256, "half", 10000.0), {}),
    "gemma 4 by layer": ({**GEMMA4, **LAYERS4, "global_head_dim": None}, {"layer_type": "full_attention"}, (512, 512, "half", 1e6), {"share": 0.25}),
    "layers alike": ({**GEMMA3, "model_type": "olmo3", "rope_parameters": dict.fromkeys(GEMMA3["rope_parameters"], {"rope_theta": 5.0})},
                     {}, (256, 256, "half", 5.0), {}),
    "qwen2-vl": (QWEN2VL, {}, (128, 128, "half", 1e6), {"sections": (16, 24, 24), "order": "chunked"}),
    "qwen2-vl twice": ({**QWEN2VL, "rope_scaling": {**QWEN2VL["rope_scaling"], "rope_type": "default"}}, {}, (128, 128, "half", 1e6),
                       {"sections": (16, 24, 24), "order": "chunked"}),
    "qwen3-vl": (QWEN3VL, {}, (128, 128, "half", 5e6), {"sections": (24, 20, 20), "order": "interleaved"}),             # P95
    "sections of unknown": ({"model_type": "new", "head_dim": 24, "rope_theta": 9, "partial_rotary_factor": 0.5,          # P52
                             "rope_scaling": {"mrope_section": [3, 2, 1], "mrope_interleaved": False}}, {"layout": "half"},
                            (24, 12, "half", 9.0), {"sections": (3, 2, 1), "order": "chunked"}),
}


@pytest.mark.parametrize("case", READ)
def test_what_is_read(case):
    config, options, main, other = READ[case]
    before = repr(config)
    got = from_hf_config(config, **options)
    assert (got.head_dim, got.width, got.layout, got.base) == main and isinstance(got.base, float)
    assert {name: value for name in ("sections", "order", "share") if (value := getattr(got, name)) is not None} == other
    assert repr(config) == before
    assert from_hf_config(types.SimpleNamespace(to_dict=lambda: config), **options) == got


@pytest.mark.parametrize("case", READ)
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_what_is_read_is_what_turns(case, kind):
    config, options, *_ = READ[case]
    got = from_hf_config(config, **options)
    axes = () if got.sections is None else (3,)
    ids = np.random.default_rng(1).integers(-9000, 9000, (*axes, 5))
    x = np.random.default_rng(2).normal(size=(2, 5, got.head_dim))
    x, ids = (torch.from_numpy(x), torch.from_numpy(ids)) if kind == "torch" else (x, ids)
    omega = rotary.frequencies(got.width, got.base) if got.share is None else rotary.proportional_frequencies(got.width, got.share, got.base)
    which = None if got.sections is None else multiaxis.mrope_axes(got.sections, order=got.order)
    assert (got.frequencies() == omega).all() and got.axes == (None if which is None else tuple(which))
    want = rotary.rotate(x, ids, layout=got.layout, width=got.width, frequencies=omega, axes=which)
    assert bool((got.rotate(x, ids) == want).all()) and float(abs(want - x).max()) > 0.1
    assert bool((got.rotate(x, ids, inverse=True) == rotary.rotate(x, ids, layout=got.layout, width=got.width, frequencies=omega,
                                                                  axes=which, inverse=True)).all())
    assert got.rotate(x, ids, out=x) is x and bool((x == want).all())


def test_it_is_frozen_and_equal_by_value():  # P45
    got = from_hf_config(LLAMA)
    with pytest.raises(dataclasses.FrozenInstanceError):
        got.base = 5.0
    assert got == from_hf_config(dict(LLAMA)) and hash(got) == hash(from_hf_config(LLAMA))
    assert hash(from_hf_config(QWEN2VL)) != hash(got)


@pytest.mark.filterwarnings("ignore")
def test_it_compiles_to_one_graph():
    got, x, ids = from_hf_config(QWEN2VL), torch.randn(2, 5, 128), torch.arange(15).reshape(3, 5)
    assert torch.equal(torch.compile(got.rotate, backend="eager", fullgraph=True)(x, ids), got.rotate(x, ids))


EXPLAINED = {
    "llama": ["All 64 channels of a head turn.", 'Pair k is channels k and k + 32 (layout "half").',
              "Pair k turns by 10000^(-2k/64) radians per position: wavelengths from 6.28 to 47,117 positions.",
              "The file gives no base; transformers takes 10000 for llama."],
    "gpt-j": ["Of the 256 channels of a head, the first 64 turn; the other 192 are copied.", 'Pair k is channels 2k and 2k + 1 (layout "interleaved").',
              "Pair k turns by 10000^(-2k/64) radians per position: wavelengths from 6.28 to 47,117 positions."],
    "gemma 4 full": ["All 512 channels of a head turn.", 'Pair k is channels k and k + 256 (layout "half").',
                     "Only the 64 fastest of 256 pairs turn (p-RoPE); the others stand still.",
                     "Pair k turns by 1000000^(-2k/512) radians per position: wavelengths from 6.28 to 188 positions."],
    "qwen3-vl": ["All 128 channels of a head turn.", 'Pair k is channels k and k + 64 (layout "half").',
                 "Pair k turns by 5000000^(-2k/128) radians per position: wavelengths from 6.28 to 24,687,577 positions.",
                 "A token has 3 positions (M-RoPE, interleaved), which turn 24, 20, 20 pairs.",
                 "Only text_config was read, not the encoders of pictures or sound."],
}


@pytest.mark.parametrize("case", EXPLAINED)
def test_what_is_explained(case):
    config, options, *_ = READ[case]
    assert from_hf_config(config, **options).explain().split("\n") == EXPLAINED[case]


def test_what_else_is_explained():
    lines = lambda config: from_hf_config(config).explain()
    assert "The file gives no share; transformers takes 0.5 for nemotron." in lines(READ["default share"][0])
    assert "qk_rope_head_dim" in lines(DEEPSEEK) and "qk_rope" not in lines(LLAMA)
    assert "Only the layers of sliding attention turn." in lines({**LLAMA, "model_type": "cohere2"})
    assert "no_rope_layers is 0 do not turn" in lines({**LLAMA, "model_type": "smollm3", "no_rope_layers": [1, 0]})
    assert "Values turn too" in lines({"model_type": "roformer", **SIZES, "rotary_value": True})
    assert RotaryConfig(2, 2, "half", 9.0).explain().endswith("Pair k turns by 9^(-2k/2) radians per position.")


def scaled(kind, **more):
    return {**LLAMA, "rope_scaling": {"rope_type": kind, "factor": 4.0, **more}}


BAD = {  # what is passed -> error and a piece of its message
    "a list": (lambda: from_hf_config([1]), TypeError, r"config is a list; allowed is a mapping, or an object with to_dict\(\)"),
    "unknown kind": (lambda: from_hf_config(scaled("mystery")), ValueError, r"rope_type is 'mystery', which is not known"),               # P43
    "axial": (lambda: from_hf_config(scaled("axial")), ValueError, r"rope_type is 'axial', which is not known"),
    "two kinds": (lambda: from_hf_config(scaled("default", type="yarn")), ValueError, r"rope_type is 'default' and type 'yarn'"),
    "factor alone": (lambda: from_hf_config({**LLAMA, "rope_scaling": {"factor": 4.0}}), ValueError, r"factor is 4\.0 with rope_type 'default'; allowed is 1, or"),
    "unknown key": (lambda: from_hf_config({**LLAMA, "rope_parameters": {"rope_theta": 5.0, "beta_fast": 32}}), ValueError,
                    r"rope_type is 'default' and beta_fast is given, which is not known"),
    "two dictionaries": (lambda: from_hf_config({**scaled("default"), "rope_parameters": {"rope_theta": 5.0}}), ValueError,
                         r"rope_parameters and rope_scaling differ"),
    "no dictionary": (lambda: from_hf_config({**LLAMA, "rope_scaling": "yarn"}), TypeError, r"rope_scaling is 'yarn'; allowed is a mapping"),
    "gemma": (lambda: from_hf_config(GEMMA3), ValueError, r"rope_parameters differs by the kind of layer; give layer_type, one of \['full_attention', 'sliding"),
    "old gemma": (lambda: from_hf_config(OLD_GEMMA3), ValueError, r"differs by the kind of layer; give layer_type"),
    "no such layer": (lambda: from_hf_config(GEMMA3, layer_type="linear"), ValueError, r"layer_type is 'linear'; allowed are \['full_attention'"),
    "layer of a flat file": (lambda: from_hf_config({**LLAMA, "layer_types": ["full_attention"]}, layer_type="x"), ValueError, r"layer_type is 'x'; allowed"),
    "widths of layers": (lambda: from_hf_config({**LLAMA, "head_dim": 64, "global_head_dim": 128}), ValueError,
                         r"head_dim differs by the kind of layer \(per_layer_config, global_head_dim\); give layer_type"),
    "widths by layer": (lambda: from_hf_config({**LLAMA, "head_dim": 64, "per_layer_config": {"0": {"head_dim": 128}}}), ValueError, r"head_dim differs by the kind"),
    "widths of one kind": (lambda: from_hf_config({**LLAMA, "layer_types": ["full_attention"] * 2, "per_layer_config": {
        "0": {"head_dim": 128}, "1": {"head_dim": 64}}}, layer_type="full_attention"), ValueError, r"head_dim is \[64, 128\] in layers of 'full_attention'"),
    "still layer": (lambda: from_hf_config({**GEMMA3, "rope_parameters": {"full_attention": None, "sliding_attention": {"rope_theta": 5.0}}},
                                           layer_type="full_attention"), ValueError, r"None for 'full_attention': nothing turns in these layers"),
    "unknown model": (lambda: from_hf_config({**LLAMA, "model_type": "new"}), ValueError, r"model_type is 'new', whose layout is not known; give layout="),
    "no model": (lambda: from_hf_config(SIZES), ValueError, r"model_type is None, whose layout is not known"),
    "nanochat": (lambda: from_hf_config({**LLAMA, "model_type": "nanochat"}, layout="half"), ValueError, r"nanochat', which is not read: it turns by the negated"),
    "deepseek 4": (lambda: from_hf_config({**DEEPSEEK, "model_type": "deepseek_v4"}), ValueError, r"the last channels of a head turn"),
    "other layout": (lambda: from_hf_config(LLAMA, layout="interleaved"), ValueError, r"layout is 'interleaved', model_type 'llama' has 'half'"),
    "no layout": (lambda: from_hf_config({**LLAMA, "model_type": "new"}, layout="neox"), ValueError, r"layout is 'neox'; allowed are 'half'"),
    "alibi": (lambda: from_hf_config({**LLAMA, "model_type": "falcon", "alibi": True}), ValueError, r"config says 'alibi': nothing turns"),
    "absolute": (lambda: from_hf_config({**LLAMA, "position_embedding_type": "absolute"}), ValueError, r"config says 'absolute'"),
    "two bases": (lambda: from_hf_config({**LLAMA, "rope_theta": 5, "rope_parameters": {"rope_theta": 6.0}}), ValueError, r"the base is given as .*allowed is one number"),
    "base of gpt-j": (lambda: from_hf_config({"model_type": "gptj", **GPT2, "rotary_dim": 64, "rope_theta": 5}), ValueError, r"'gptj' always has 10000"),
    "base text": (lambda: from_hf_config({**LLAMA, "rope_theta": "1e4"}), TypeError, r"base is '1e4'"),
    "base of unknown": (lambda: from_hf_config({**LLAMA, "model_type": "new"}, layout="half"), ValueError, r"no base is given and none is known for model_type 'new'"),
    "two shares": (lambda: from_hf_config({"model_type": "phi", **SIZES, "partial_rotary_factor": 0.5, "rotary_pct": 0.25}), ValueError, r"the share that turns is given as"),
    "share of llama": (lambda: from_hf_config({**LLAMA, "partial_rotary_factor": 0.5}), ValueError, r"partial_rotary_factor is 0\.5, but model_type 'llama' turns whole heads"),
    "share beyond": (lambda: from_hf_config({"model_type": "phi", **SIZES, "partial_rotary_factor": 1.5}), ValueError, r"share is 1\.5"),
    "odd share": (lambda: from_hf_config({"model_type": "phi", "head_dim": 42, "partial_rotary_factor": 0.5}), ValueError,
                  r"partial_rotary_factor is 0\.5 of 42 channels, 21 of them: allowed is what gives an even number"),
    "odd head": (lambda: from_hf_config({**LLAMA, "head_dim": 65}), ValueError, r"of 65 channels, 65 of them"),
    "rotary_dim and share": (lambda: from_hf_config({"model_type": "minimax_m2", "head_dim": 128, "rotary_dim": 64, "partial_rotary_factor": 0.25}),
                             ValueError, r"rotary_dim is 64 and partial_rotary_factor 0\.25, of 128 channels: they do not agree"),
    "rotary_dim beyond": (lambda: from_hf_config({"model_type": "gptj", **GPT2, "rotary_dim": 512}), ValueError, r"width is 512; allowed is at most head_dim, 256"),
    "rotary_dim null": (lambda: from_hf_config({"model_type": "gptj", **GPT2, "rotary_dim": None}), ValueError, r"rotary_dim is None: transformers makes"),
    "share of a part": (lambda: from_hf_config({**DEEPSEEK, "head_dim": 128, "partial_rotary_factor": 0.25}), ValueError, r"0\.25 and qk_rope_head_dim 64: they do not agree"),
    "no sizes": (lambda: from_hf_config({"model_type": "llama"}), ValueError, r"hidden_size and n_embd are missing"),
    "sizes": (lambda: from_hf_config({**LLAMA, "num_attention_heads": 30}), ValueError, r"hidden_size is 2048, num_attention_heads 30: no whole number"),
    "head_dim text": (lambda: from_hf_config({**LLAMA, "head_dim": "64"}), TypeError, r"head_dim is '64'; allowed is a whole number"),
    "no sections": (lambda: from_hf_config({**QWEN2VL, "rope_scaling": None}), ValueError, r"mrope_section is missing, which model_type 'qwen2_vl' needs"),
    "other order": (lambda: from_hf_config({**QWEN2VL, "rope_scaling": {"mrope_section": [16, 24, 24], "mrope_interleaved": True}}), ValueError,
                    r"mrope_interleaved is True, model_type 'qwen2_vl' has 'chunked' sections"),
    "order unknown": (lambda: from_hf_config({**LLAMA, "rope_scaling": {"mrope_section": [16, 8, 8]}}), ValueError, r"neither mrope_interleaved nor model_type 'llama'"),
    "order text": (lambda: from_hf_config({**LLAMA, "rope_scaling": {"mrope_section": [16, 8, 8], "mrope_interleaved": "yes"}}), TypeError, r"mrope_interleaved is 'yes'"),
    "sections of another width": (lambda: from_hf_config({**QWEN2VL, "head_dim": 64}), ValueError, r"sections is \(16, 24, 24\), of 64 pairs; allowed are 32"),
    "x": (lambda: from_hf_config(LLAMA).rotate(np.ones((3, 32)), np.arange(3)), ValueError, r"x has shape \(3, 32\); allowed is \(\.\.\., length, 64\)"),
    "by hand width": (lambda: RotaryConfig(8, 10, "half", 9.0), ValueError, r"width is 10; allowed is at most head_dim, 8"),
    "by hand order": (lambda: RotaryConfig(8, 8, "half", 9.0, sections=(2, 1, 1)), ValueError, r"give both or neither"),
    "by hand share": (lambda: RotaryConfig(8, 8, "half", 9.0, share=2), ValueError, r"share is 2"),
    "by hand base": (lambda: RotaryConfig(8, 8, "half", 0), ValueError, r"base is 0"),
}


test_bad_input_names_the_argument_the_value_and_what_is_allowed = bad_input_test(BAD)
