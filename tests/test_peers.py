"""poslib beside other libraries: the same to rounding where they are exact, and by how much not where they are not.

Whole models with random weights run in transformers; their queries and keys are taken where they leave the projections and
where they enter attention.  Bands around measured errors have two sides: they fail when the peer becomes better too.
"""

import importlib
import importlib.util
from pathlib import Path

import array_api_compat.torch
import numpy as np
import pytest
import torch

from poslib import absolute, hf, multiaxis
from poslib import positions as P
from poslib import rotary as R

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers==5.24.0")
pytestmark = pytest.mark.filterwarnings("ignore")

IDS = torch.tensor([[0, 1, 2, 5, 40, 41], [7, 8, 9, 0, 1, 64]])
TEXT = {"vocab_size": 32, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 1,
        "intermediate_size": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
MLA = {"q_lora_rank": None, "kv_lora_rank": 8, "qk_nope_head_dim": 10, "qk_rope_head_dim": 8, "v_head_dim": 12, "n_routed_experts": 2,
       "num_experts_per_tok": 1, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "num_key_value_heads": 4}
SECTIONS = lambda *sections, **more: {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": list(sections), **more}}
MODELS = {  # model type -> settings of a tiny one
    "llama": {"rope_theta": 500000.0}, "mistral": {}, "qwen2": {}, "qwen3_moe": {"head_dim": 16, "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 8},
    "gpt_neox": {"rotary_pct": 0.25}, "phi": {"partial_rotary_factor": 0.5}, "phi3": {"partial_rotary_factor": 0.75},
    "stablelm": {"partial_rotary_factor": 0.25}, "glm": {"head_dim": 16}, "glm4": {"head_dim": 16}, "cohere": {}, "helium": {"head_dim": 16},
    "ernie4_5": {"head_dim": 16}, "gptj": {"n_embd": 64, "n_head": 4, "n_layer": 1, "rotary_dim": 8},
    "deepseek_v2": MLA, "deepseek_v3": MLA, "gemma3_text": {"head_dim": 16, "layer_types": ["full_attention"]},
    "qwen2_vl_text": SECTIONS(2, 3, 3), "qwen2_5_vl_text": SECTIONS(4, 2, 2), "qwen3_vl_text": {**SECTIONS(4, 2, 2, mrope_interleaved=True), "head_dim": 16},
}


def tiny(model, dtype=torch.float32):
    """A configuration, a model of it, and the module of its code."""
    torch.manual_seed(1)
    config = transformers.CONFIG_MAPPING[model](**{**TEXT, **MODELS[model]})
    config._attn_implementation = "eager"
    made = transformers.AutoModel.from_config(config).to(dtype).eval()
    return config, made, importlib.import_module(type(made).__module__)


@torch.no_grad()
def queries_and_keys(model, ids, monkeypatch):
    """(before, after) of queries and of keys, each (batch, heads, length, channels that rotary positions may touch)."""
    config, made, code = tiny(model)
    held, seen = {}, []
    for name, part in made.named_modules():
        part.register_forward_hook(lambda m, i, o, name=name.rsplit(".", 1)[-1]: held.__setitem__(name, o))
    real = code.eager_attention_forward
    monkeypatch.setattr(code, "eager_attention_forward", lambda module, q, k, *rest, **named: (seen.append((q, k)), real(module, q, k, *rest, **named))[1])
    made(input_ids=torch.arange(12).reshape(2, 6) + 3, position_ids=ids, use_cache=False)
    ((q, k),) = seen
    heads = lambda x, width: x.unflatten(-1, (-1, width)).transpose(1, 2)
    if model == "gpt_neox":
        before = heads(held["query_key_value"], 48).chunk(3, dim=-1)[:2]
    elif model == "phi3":
        before = [heads(part, 16) for part in held["qkv_proj"].split([64, 32, 32], dim=-1)[:2]]
    elif "q_norm" in held:
        before = [held[name].transpose(1, 2) for name in ("q_norm", "k_norm")]
        before = [x if x.shape[1] in (2, 4) else x.transpose(1, 2) for x in before]
    elif model.startswith("deepseek"):
        before = [heads(held["q_proj"], 18)[..., 10:], held["kv_a_proj_with_mqa"][..., 8:][:, None]]
        q, k = q[..., 10:], k[:, :1, :, 10:]
    else:
        before = [heads(held[name], 16) for name in ("q_proj", "k_proj")]
    return config, list(zip(before, (q, k)))


@pytest.mark.parametrize("model", MODELS)
def test_queries_and_keys_of_a_whole_model(model, monkeypatch):
    ids = torch.stack([IDS, IDS.flip(1), IDS + 3]) if "_vl_" in model else IDS
    config, pairs = queries_and_keys(model, ids, monkeypatch)
    read = hf.from_hf_config(config.to_dict(), layer_type="full_attention" if "gemma" in model else None)
    assert read == hf.from_hf_config(config, layer_type="full_attention" if "gemma" in model else None)
    for before, after in pairs:
        want = read.rotate(before, ids)
        if model == "deepseek_v3":          # turns neighbours and leaves them in halves, queries and keys alike: the same scores
            want = want[..., R.convert(torch.arange(8), source="interleaved", target="half", heads=1)]
        assert after.shape == want.shape and float((want - before).abs().max()) > 0.1 * float(before.abs().max())
        torch.testing.assert_close(after, want, rtol=0, atol=1e-5 * float(before.abs().max()))
        assert torch.equal(after[..., read.width:], before[..., read.width:])


def models_with_code():
    for model in hf.MODELS:
        name = model if model in transformers.CONFIG_MAPPING and not model.endswith("vl") and not model.endswith("vl_moe") else model + "_text"
        if model not in ("gptj", "codegen", "roformer"):
            yield model, name


@pytest.mark.parametrize("model, name", list(models_with_code()))
def test_the_list_of_models_is_what_the_installed_code_does(model, name):
    made = transformers.CONFIG_MAPPING[name]
    code = importlib.import_module(made.__module__.replace("configuration_", "modeling_"))
    layout, base, share = hf.MODELS[model]
    if model == "gemma4_text":              # its function takes one of the two; its frequencies have their own test
        turn = lambda x, cos, sin: code.apply_rotary_pos_emb(x, cos, sin)
    elif model in ("deepseek_v2", "llama4_text"):
        turn = lambda x, cos, sin: code.apply_rotary_emb(x.transpose(1, 2) if "llama" in model else x, x.transpose(1, 2) if "llama" in model else x,
                                                         torch.complex(cos, sin)[..., :4])[0]
    elif model == "deepseek_v3":
        turn = lambda x, cos, sin: code.apply_rotary_pos_emb_interleave(x, x, cos, sin)[0]
    else:
        turn = lambda x, cos, sin: code.apply_rotary_pos_emb(x, x, cos, sin)[0]
    x, ids = torch.randn(1, 2, 3, 8, generator=torch.Generator().manual_seed(0)), torch.arange(3)
    theta = R.angles(ids[None], R.frequencies(8)).float()
    wide = (lambda t: t.repeat_interleave(2, -1)) if "cohere" in model else (lambda t: torch.cat([t, t], -1))
    want = R.rotate(x, ids, layout=layout)
    if model == "deepseek_v3":
        want = R.convert(want, source="interleaved", target="half", heads=1, axis=-1)
    got = turn(x, wide(theta.cos()), wide(theta.sin()))
    torch.testing.assert_close(got.transpose(1, 2) if model == "llama4_text" else got, want, rtol=0, atol=1e-6)
    assert base == (None if isinstance(made.default_theta, dict) or model == "gemma4_text" else made.default_theta)
    if share is not None:
        config = made()
        assert share == config.rope_parameters.get("partial_rotary_factor", 1.0)
    elif model not in ("gemma4_text", "deepseek_v2", "deepseek_v3", "llama4_text"):
        config = made()                     # whole heads, whatever the share
        rotary = next(v for k, v in vars(code).items() if k.endswith("RotaryEmbedding") and "Vision" not in k and hasattr(v, "compute_default_rope_parameters"))
        nested = [k for k, v in config.rope_parameters.items() if isinstance(v, dict)]
        inner = config.rope_parameters[nested[0]] if nested else config.rope_parameters
        more = {"layer_type": nested[0]} if nested else {}
        whole = len(rotary.compute_default_rope_parameters(config, device="cpu", **more)[0])
        inner["partial_rotary_factor"] = 0.5
        assert len(rotary.compute_default_rope_parameters(config, device="cpu", **more)[0]) == whole


def test_proportional_frequencies_are_those_of_the_installed_code():
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    config = transformers.LlamaConfig(head_dim=512, rope_parameters={"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25})
    theirs, factor = ROPE_INIT_FUNCTIONS["proportional"](config)
    assert factor == 1
    np.testing.assert_allclose(theirs.numpy(), R.proportional_frequencies(512, 0.25, 1e6), rtol=3e-7, atol=0)
    for share, head, ours in ((0.29, 200, 29), (0.57, 200, 57)):            # their floor of 57.999999999999986 / 2 and 113.99999999999999 / 2
        config = transformers.LlamaConfig(head_dim=head, rope_parameters={"rope_type": "proportional", "rope_theta": 1e4, "partial_rotary_factor": share})
        assert int((ROPE_INIT_FUNCTIONS["proportional"](config)[0] != 0).sum()) == ours - 1
        assert np.count_nonzero(R.proportional_frequencies(head, share)) == ours


# -- ids of text with pictures

def their_ids(model, parts, merge=2):
    config = transformers.CONFIG_MAPPING[model]()
    config.vision_config.spatial_merge_size = merge
    code = importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))
    make = {"qwen2_vl": "Qwen2VLModel", "qwen2_5_vl": "Qwen2_5_VLModel"}[model]
    cls = getattr(code, make)
    model = cls.__new__(cls)
    torch.nn.Module.__init__(model)
    model.config = config
    kinds, images, films = [], [], []
    for part in parts:
        if isinstance(part, int):
            kinds += [0] * part
        else:
            t, rows, columns = part
            kinds += [1 if t == 1 else 2] * (t * rows * columns)
            (images if t == 1 else films).append((t, rows * merge, columns * merge))
    kinds = torch.tensor([kinds])
    grids = {name: torch.tensor(found) for name, found in (("image_grid_thw", images), ("video_grid_thw", films)) if found}
    ids, delta = model.get_rope_index(torch.zeros_like(kinds), kinds, **grids)
    return ids[:, 0], int(delta) + kinds.shape[1]


@pytest.mark.parametrize("parts", [[3, (1, 2, 3), 4], [(1, 3, 2), 1, (1, 1, 1), 2], [2, (2, 3, 4), 1, (1, 4, 1), 2], [5, (3, 3, 3), 2]])
def test_ids_of_pictures_and_short_films(parts):
    ids, following = their_ids("qwen2_vl", parts)
    assert torch.equal(P.mrope(parts, like=ids), ids) and following == int(ids.max()) + 1


def test_behind_a_long_film_their_ids_repeat_and_decoding_goes_on_elsewhere():
    parts = [1, (6, 2, 2), 2]
    ours, (theirs, following) = P.mrope(parts), their_ids("qwen2_vl", parts)
    assert ours[:, -2:].tolist() == [[7, 8]] * 3 and theirs[:, -2:].tolist() == [[3, 4]] * 3        # the film holds the times 1 to 6
    assert following == 7                                   # a next token, decoded; in a text of one more token it has 5
    assert int(their_ids("qwen2_vl", [1, (6, 2, 2), 3])[0][0, -1]) == 5


# -- far positions and bfloat16

WIDTH, FAR = 128, (4097, 131071, 10**6)


def llama(ids, x):
    code = importlib.import_module("transformers.models.llama.modeling_llama")
    config = transformers.LlamaConfig(head_dim=WIDTH, max_position_embeddings=2**21)
    cos, sin = code.LlamaRotaryEmbedding(config)(x, ids[None])
    return code.apply_rotary_pos_emb(x, x, cos, sin)[0], "half"


def gptj(ids, x):
    code = importlib.import_module("transformers.models.gptj.modeling_gptj")
    table = code.create_sinusoidal_positions(int(ids.max()) + 1, WIDTH)[ids][None].to(x.dtype)
    sin, cos = table.chunk(2, dim=-1)
    return code.apply_rotary_pos_emb(x.transpose(1, 2), sin, cos).transpose(1, 2), "interleaved"


def rotary_embedding_torch(ids, x):
    made = pytest.importorskip("rotary_embedding_torch", reason="rotary-embedding-torch is not installed").RotaryEmbedding(WIDTH)
    from rotary_embedding_torch import apply_rotary_emb
    return apply_rotary_emb(made(ids), x), "interleaved"


def x_transformers(ids, x):
    made = pytest.importorskip("x_transformers.x_transformers", reason="x-transformers is not installed")
    return made.apply_rotary_pos_emb(x, *made.RotaryEmbedding(WIDTH)(ids)), "interleaved"


def torchtune(ids, x):
    spec = importlib.util.find_spec("torchtune")
    if spec is None:
        pytest.skip("torchtune is not installed")
    path = Path(spec.submodule_search_locations[0], "modules", "position_embeddings.py")        # the package needs more than this file does
    spec = importlib.util.spec_from_file_location("torchtune_positions", path)
    code = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(code)
    turned = code.RotaryPositionalEmbeddings(WIDTH, max_seq_len=int(ids.max()) + 1)(x.transpose(1, 2), input_pos=ids[None])
    return turned.transpose(1, 2), "interleaved"


OTHERS = (3.6e-4, 7.6e-3, 9.6e-2)
ERRORS = {  # largest error in float32 at each of FAR, of vectors whose entries are 1 on average; poslib's stays below 4e-7
    llama: (3.1e-4, 8.0e-3, 1.1e-1), gptj: OTHERS, rotary_embedding_torch: OTHERS, x_transformers: OTHERS, torchtune: OTHERS,
}


@pytest.mark.parametrize("peer", ERRORS)
def test_errors_at_far_positions(peer):
    x, ids = torch.randn(1, 4, len(FAR), WIDTH, generator=torch.Generator().manual_seed(3)), torch.tensor(FAR)
    x = torch.nn.functional.normalize(x, dim=-1) * WIDTH**0.5
    theirs, layout = peer(ids, x)
    exact = R.rotate(x.double(), ids, layout=layout)
    assert float((R.rotate(x, ids, layout=layout) - exact).abs().max()) < 4e-7
    for error, stored in zip((theirs - exact).abs().amax((0, 1, 3)).tolist(), ERRORS[peer]):
        assert 0.5 * stored < error < 2 * stored


@pytest.mark.parametrize("peer", ERRORS)
def test_near_positions_agree(peer):
    x, ids = torch.randn(1, 4, 40, WIDTH, generator=torch.Generator().manual_seed(3)), torch.arange(40)
    theirs, layout = peer(ids, x)
    torch.testing.assert_close(theirs, R.rotate(x, ids, layout=layout), rtol=0, atol=2e-5)


def test_how_many_bfloat16_entries_are_correctly_rounded():
    ids = torch.tensor([5, 100, 1000, 4097, 32768, 65537, 131071])
    x = torch.randn(1, 8, 7, WIDTH, generator=torch.Generator().manual_seed(4)).bfloat16()
    right = absolute._rounded(array_api_compat.torch, R.rotate(x.double(), ids, layout="half"), torch.bfloat16)
    share = lambda got: float((got == right).double().mean())
    assert share(R.rotate(x, ids, layout="half")) >= 0.999 and 0.55 < share(llama(ids, x)[0]) < 0.72


# -- tables for ONNX, axial RoPE, xPos

@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("width", [16, 10])
def test_onnx_turns_alike_with_our_tables(layout, width):
    x = torch.randn(2, 3, 5, 16, generator=torch.Generator().manual_seed(5))
    ids = torch.tensor([[0, 7, 2, 9, 1], [5, 5, 3, 8, 9]])
    cos, sin = R.tables(R.angles(torch.arange(10), R.frequencies(width)), x.dtype)
    theirs = torch.onnx.ops.rotary_embedding(x, cos, sin, ids, interleaved=layout == "interleaved", rotary_embedding_dim=width if width < 16 else 0)
    torch.testing.assert_close(theirs, R.rotate(x, ids, layout=layout, width=width), rtol=0, atol=1e-6)


def test_axial_rope_of_rotary_embedding_torch():
    peer = pytest.importorskip("rotary_embedding_torch", reason="rotary-embedding-torch is not installed")
    x = torch.randn(2, 3, 4, 16, generator=torch.Generator().manual_seed(6))
    theirs = peer.apply_rotary_emb(peer.RotaryEmbedding(8).get_axial_freqs(3, 4), x)
    ours = R.rotate(x.flatten(1, 2), P.grid(3, 4, like=x), layout="interleaved", axes=multiaxis.axial_axes(16), frequencies=multiaxis.axial_frequencies(16))
    torch.testing.assert_close(theirs.flatten(1, 2), ours, rtol=0, atol=2e-6)


def test_axial_rope_of_the_vision_encoder_of_qwen2_vl():
    code = importlib.import_module("transformers.models.qwen2_vl.modeling_qwen2_vl")
    x = torch.randn(12, 4, 16, generator=torch.Generator().manual_seed(7))
    ids = P.grid(3, 4, like=x)
    speeds = torch.from_numpy(R.frequencies(8)).float()
    theta = (ids.T[:, :, None] * speeds).flatten(1)                             # as its rotary table: rows, then columns
    theirs = code.apply_rotary_pos_emb_vision(x, x, torch.cat([theta, theta], -1).cos(), torch.cat([theta, theta], -1).sin())[0]
    ours = R.rotate(x.transpose(0, 1), ids, layout="half", axes=multiaxis.axial_axes(16), frequencies=multiaxis.axial_frequencies(16))
    torch.testing.assert_close(theirs.transpose(0, 1), ours, rtol=0, atol=2e-6)


def scores(q, k):
    return q.double() @ k.double().transpose(-1, -2)


def xpos_scores(q, k, center=0):
    ids = torch.arange(q.shape[-2])
    return scores(*(R.xpos(x, ids, role=role, layout="interleaved", center=center) for x, role in ((q, "query"), (k, "key"))))


def test_xpos_of_rotary_embedding_torch_agrees_on_whole_texts_and_not_in_decoding():  # P93
    peer = pytest.importorskip("rotary_embedding_torch", reason="rotary-embedding-torch is not installed")
    q, k = torch.randn(2, 1, 2, 8, 16, generator=torch.Generator().manual_seed(8))
    theirs = scores(*peer.RotaryEmbedding(16, use_xpos=True).rotate_queries_and_keys(q, k))
    torch.testing.assert_close(theirs, xpos_scores(q, k), rtol=0, atol=2e-5)
    last = peer.RotaryEmbedding(16, use_xpos=True, cache_if_possible=False).rotate_queries_with_cached_keys(q[..., -1:, :], k)
    gap = float(((scores(*last) - theirs[..., -1:, :]).abs().max() / theirs[..., -1, :].abs().max()))
    assert 0.5 < gap / 0.0046 < 2
    at_the_end = R.xpos(q[..., -1:, :], torch.tensor([7]), role="query", layout="interleaved")
    ours = scores(at_the_end, R.xpos(k, torch.arange(8), role="key", layout="interleaved"))
    torch.testing.assert_close(ours, xpos_scores(q, k)[..., -1:, :], rtol=0, atol=1e-12)


def test_the_center_of_x_transformers_moves_with_the_text():  # F12
    peer = pytest.importorskip("x_transformers.x_transformers", reason="x-transformers is not installed")
    made = peer.RotaryEmbedding(16, use_xpos=True)
    scale = lambda length: float(made(torch.arange(length))[1][0, 3, 0])
    q, k = torch.randn(2, 1, 2, 8, 16, generator=torch.Generator().manual_seed(9))
    freqs, by = made(torch.arange(8))
    theirs = scores(peer.apply_rotary_pos_emb(q, freqs, by), peer.apply_rotary_pos_emb(k, freqs, by**-1))
    torch.testing.assert_close(theirs, xpos_scores(q, k, center=5), rtol=0, atol=2e-5)
    assert scale(8) == pytest.approx(1.00245, abs=1e-5) and scale(16) == pytest.approx(1.01231, abs=1e-5)


def test_xpos_is_the_formula_of_torchscale():
    """The scales written down from torchscale's description: ((2k + 0.4 d) / 1.4 d) to the power of (p - length // 2) / 512."""
    length, d = 10, 8
    q, k = torch.randn(2, 1, 1, length, d, generator=torch.Generator().manual_seed(10)).double()
    power = (torch.arange(length) - length // 2) / 512
    scale = (((torch.arange(0, d, 2) + 0.4 * d) / (1.4 * d)).double() ** power[:, None].double()).repeat_interleave(2, -1)
    ids = torch.arange(length)
    theirs = [R.rotate(x, ids, layout="interleaved") * by for x, by in ((q, scale), (k, 1 / scale))]
    for got, role, x in zip(theirs, ("query", "key"), (q, k)):
        torch.testing.assert_close(got, R.xpos(x, ids, role=role, layout="interleaved", center=5), rtol=0, atol=1e-7)
    torch.testing.assert_close(scores(*theirs), xpos_scores(q, k), rtol=0, atol=1e-6)
