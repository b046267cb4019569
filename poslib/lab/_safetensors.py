"""Llamas as Hugging Face stores them: one model.safetensors, and config.json beside it."""

from __future__ import annotations

import contextlib
import json

from poslib.lab._gguf import _ratio

TYPES = ("F32", "F16", "BF16")
# what a config may say, besides its sizes, of the one architecture that is read
FIXED = {"model_type": ("llama",), "hidden_act": ("silu",), "attention_bias": (False,), "mlp_bias": (False,)}


def config(path):
    """config.json as a dict."""
    try:
        found = json.loads(path.read_text("utf8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} is missing: the settings of a model stand in config.json beside its weights") from None
    except ValueError as error:         # JSON and UTF-8 both
        raise ValueError(f"{path} is no JSON file: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds a {type(found).__name__}; allowed is an object with the settings of a model")
    return found


def settings(path):
    """Settings of a Llama, by the names of `poslib.lab.pretrained.Settings`, unchecked; `path` is that of config.json."""
    c = config(path)
    if "model_type" not in c:
        raise ValueError(f"{path} has no entry model_type")
    for name, allowed in FIXED.items():
        if c.get(name, allowed[0]) not in allowed:
            raise ValueError(f"{path}: {name} is {c[name]!r}; allowed is {allowed[0]!r}")

    def get(name, *default):
        if c.get(name) is None and not default:
            raise ValueError(f"{path} has no entry {name}")
        return default[0] if c.get(name) is None else c[name]
    heads = get("num_attention_heads")
    return {"vocabulary": get("vocab_size"), "width": get("hidden_size"), "inner": get("intermediate_size"), "layers": get("num_hidden_layers"),
            "heads": heads, "kv_heads": get("num_key_value_heads", heads), "head_width": get("head_dim", _ratio(get("hidden_size"), heads)),
            "base": _base(path, c), "epsilon": get("rms_norm_eps", 1e-6), "length": get("max_position_embeddings"),
            "tied": get("tie_word_embeddings", False), "layout": "half"}


def _base(path, c):
    """rope_theta stands at the top (transformers 4) or in rope_parameters (5); rope_scaling is the older name."""
    for name in ("rope_parameters", "rope_scaling"):
        found = c.get(name)
        if found is None:
            continue
        if not isinstance(found, dict):
            raise ValueError(f"{path}: {name} is {found!r}; allowed is an object, or null")
        kind = found.get("rope_type", found.get("type", "default"))
        rest = set(found) - {"rope_type", "type", "rope_theta"}
        if kind != "default" or rest:
            raise ValueError(f"{path}: {name} is {found!r}; scaled or partial rotary frequencies are not read, allowed is 'default'")
        if "rope_theta" in found:
            return found["rope_theta"]
    return c.get("rope_theta", 10000.0)


@contextlib.contextmanager
def opened(path):
    """The file, by safetensors; an error of its own becomes a sentence with the file's name."""
    try:
        from safetensors import SafetensorError, safe_open
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("the weights of pretrained models are read by safetensors: pip install safetensors") from error
    from poslib.lab._torch import torch  # noqa: F401  numpy has no bfloat16
    if not path.stat().st_size:
        raise ValueError(f"{path} is empty")
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except SafetensorError as error:
        raise ValueError(f"{path} is no safetensors file, or is cut off or damaged: {error}") from None


def shapes(path, file):
    """{name: shape}, of a file whose types are all read."""
    found = {}
    for name in sorted(file.keys()):
        part = file.get_slice(name)
        if part.get_dtype() not in TYPES:
            raise ValueError(f"{path}: tensor {name} has type {part.get_dtype()}; allowed are {', '.join(TYPES)}")
        found[name] = tuple(part.get_shape())
    return found


def array(path, file, name):
    """One tensor, a new float32 array."""
    from poslib.lab._torch import torch
    found = file.get_tensor(name).to(torch.float32, copy=True)
    if not found.isfinite().all():
        raise ValueError(f"{path} is damaged: tensor {name} holds values that are not finite")
    return found.numpy()
