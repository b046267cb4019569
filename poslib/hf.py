"""What a model's configuration file says about rotation: which channels turn, in which layout, how fast, and how they are stretched.

`from_hf_config` reads ``config.json`` of a Hugging Face checkpoint, as a mapping, without the class of the model and
without transformers.  What the file leaves open (the layout always, some defaults) is what transformers 5.24
does for the model type; a type that is not in the list needs ``layout=``.  What is not understood is refused by
name: nothing is silently left out.

The reader stands above `rotary`, `multiaxis` and `extension`, which know nothing of files.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from poslib import _arrays as arrays, extension, multiaxis, rotary

__all__ = ["RotaryConfig", "from_hf_config"]

# model type: layout, base and share of a head that turns where the file says nothing; share None: always all of it.
# Checked against the installed transformers by tests/test_peers.py.
WHOLE = dict.fromkeys("""llama mistral qwen2 qwen2_moe qwen3 qwen3_moe gemma gemma2 falcon olmo olmo2 olmoe granite granitemoe
                         starcoder2 exaone4 seed_oss arcee diffllama dots1 jetmoe""".split(), ("half", 10000.0, None))
MODELS = {
    **WHOLE,
    "mixtral": ("half", 1e6, None), "phimoe": ("half", 1e6, None), "minimax": ("half", 1e6, None),
    "lfm2": ("half", 1e6, None),
    "olmo3": ("half", 500000.0, None), "bitnet": ("half", 500000.0, None), "smollm3": ("half", 2e6, None),
    "gemma3_text": ("half", None, None), "gemma4_text": ("half", None, None),
    "phi": ("half", 10000.0, 0.5), "phi3": ("half", 10000.0, 1.0), "persimmon": ("half", 10000.0, 0.5),
    "stablelm": ("half", 10000.0, 0.25), "gpt_neox": ("half", 10000.0, 0.25), "gpt_neox_japanese": ("half", 10000.0, 1.0),
    "nemotron": ("half", 10000.0, 0.5), "glm4_moe": ("half", 10000.0, 0.5), "qwen3_next": ("half", 10000.0, 0.25),
    "recurrent_gemma": ("half", 10000.0, 0.5), "minimax_m2": ("half", 5e6, 1.0),
    "glm": ("interleaved", 10000.0, 0.5), "glm4": ("interleaved", 10000.0, 0.5),
    "cohere": ("interleaved", 500000.0, None), "cohere2": ("interleaved", 10000.0, None),
    "helium": ("interleaved", 100000.0, None),
    "ernie4_5": ("interleaved", 500000.0, None), "ernie4_5_moe": ("interleaved", 500000.0, None),
    "llama4_text": ("interleaved", 500000.0, None),
    "gptj": ("interleaved", 10000.0, None), "codegen": ("interleaved", 10000.0, None), "roformer": ("interleaved", 10000.0, None),
    "deepseek_v2": ("interleaved", 10000.0, None), "deepseek_v3": ("interleaved", 10000.0, None),
    "qwen2_vl": ("half", 1e6, None), "qwen2_5_vl": ("half", 1e6, None), "qwen3_vl": ("half", 500000.0, None),
    "qwen3_vl_moe": ("half", 500000.0, None),
}
MROPE = {"qwen2_vl": "chunked", "qwen2_5_vl": "chunked", "qwen3_vl": "interleaved", "qwen3_vl_moe": "interleaved"}
FIXED_BASE = ("gptj", "codegen", "roformer")
REFUSED = {
    "nanochat": "it turns by the negated angles: rotary.rotate(..., layout='half', inverse=True) does",
    "deepseek_v4": "the last channels of a head turn: slice x and call rotary.rotate",
}
# keys of the dictionary: of every kind, and of each
KNOWN = {"rope_type", "type", "rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved", "factor"}
LENGTH = "original_max_position_embeddings"
KINDS = {
    "default": set(), "proportional": set(), "linear": set(), "dynamic": {LENGTH},
    "yarn": {LENGTH, "beta_fast", "beta_slow", "truncate", "attention_factor", "attn_factor", "mscale", "mscale_all_dim", "finetuned"},
    "llama3": {LENGTH, "low_freq_factor", "high_freq_factor"},
    "longrope": {LENGTH, "short_factor", "long_factor", "attention_factor", "short_mscale", "long_mscale"},
}
OTHER_NAMES = {"su": "longrope", "mrope": "default"}
# whose code multiplies the softmax scale for mscale_all_dim, and whose "yarn" is another name of "longrope"
SOFTMAX = ("deepseek_v2", "deepseek_v3")
PHI3 = ("phi3", "phimoe")
SOME_LAYERS = {
    "no_rope_layers": "Layers whose entry of no_rope_layers is 0 do not turn.",
    "cohere2": "Only the layers of sliding attention turn.",
    "exaone4": "With a sliding window, only the layers that have it turn.",
    "rotary_value": "Values turn too (rotary_value).",
}


@dataclasses.dataclass(frozen=True)
class RotaryConfig:
    """How the heads of a model turn; made by `from_hf_config`, or by hand.

    Parameters
    ----------
    head_dim : int
        Channels of a head; where a separate part of the head turns (DeepSeek), of that part.
    width : int, even, at most `head_dim`
        The first channels, which turn.
    layout : {"half", "interleaved"}
    base : float
    sections : tuple of int, optional
        Pairs of each axis in M-RoPE.
    order : {"chunked", "interleaved"}, with `sections`
    share : float, optional
        p-RoPE: the share of the pairs that turn, with the frequencies of the whole width.
    method : poslib.extension.Method, optional
        How the frequencies are stretched; not beside `share`.
    notes : tuple of str
        What `explain` adds.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Examples
    --------
    >>> RotaryConfig(head_dim=128, width=128, layout="half", base=1e6, sections=(16, 24, 24), order="chunked").axes[14:18]
    (0, 0, 1, 1)
    """

    head_dim: int
    width: int
    layout: str
    base: float
    sections: tuple[int, ...] | None = None
    order: str | None = None
    share: float | None = None
    method: extension.Method | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self):
        arrays.whole("head_dim", self.head_dim, at_least=2)
        if rotary._even("width", self.width) > self.head_dim:
            raise ValueError(f"width is {self.width}; allowed is at most head_dim, {self.head_dim}")
        rotary._layout(self.layout)
        arrays.base(self.base)
        if self.share is not None:
            rotary._share(self.share, self.width // 2)
        if (self.sections is None) != (self.order is None):
            raise ValueError(f"sections is {self.sections}, order {self.order!r}: give both or neither")
        if self.sections is not None and len(multiaxis.mrope_axes(self.sections, order=self.order)) != self.width // 2:
            raise ValueError(f"sections is {self.sections}, of {sum(self.sections)} pairs; allowed are {self.width // 2}, "
                             "half of the width")
        if self.method is not None and not isinstance(self.method, extension.Method):
            raise TypeError(f"method is a {type(self.method).__name__}; allowed are the methods of poslib.extension")
        if self.method is not None and self.share is not None:
            raise ValueError(f"share is {self.share} and method {self.method}: allowed is one of the two, extension.Proportional for both")
        for length in (1, 2**31) if self.dynamic else ():
            self.method.frequencies(self.width, self.base, length=length)       # refuses what does not fit, here rather than at the first call
        # what `rotate` needs, as Python numbers once and for all: torch.compile looks into these, not into numpy
        object.__setattr__(self, "_frequencies", None if self.dynamic else tuple(self.frequencies().tolist()))
        object.__setattr__(self, "_axes", None if self.sections is None else
                           tuple(multiaxis.mrope_axes(self.sections, order=self.order).tolist()))

    @property
    def axes(self):
        """Axis of each pair, for `poslib.rotary.rotate`; None where a token has one position."""
        return self._axes

    @property
    def dynamic(self):
        """Whether frequencies depend on the length of the text, which `rotate` must then be told."""
        return self.method is not None and self.method.dynamic

    def frequencies(self, *, length=None):
        """Angle per position of each pair, for `poslib.rotary.rotate`.

        Parameters
        ----------
        length : int, optional
            Positions in use, for dynamic methods; see `poslib.extension.Method.frequencies`.

        Returns
        -------
        numpy array, float64, shape (width/2,)
            Radians per position.

        Examples
        --------
        >>> RotaryConfig(head_dim=80, width=4, layout="half", base=10000.0).frequencies()
        array([1.  , 0.01])
        """
        if self.method is not None:
            return self.method.frequencies(self.width, self.base, length=length)
        if self.share is None:
            return rotary.frequencies(self.width, self.base)
        return rotary.proportional_frequencies(self.width, self.share, self.base)

    def rotation_factor(self, *, length=None):
        """Factor on turned queries and keys, which `rotate` puts there; see `poslib.extension.Method.rotation_factor`.

        Parameters
        ----------
        length : int, optional
            As for `frequencies`.

        Returns
        -------
        float

        Examples
        --------
        >>> RotaryConfig(head_dim=64, width=64, layout="half", base=10000.0).rotation_factor()
        1.0
        """
        return 1.0 if self.method is None else self.method.rotation_factor(length=length)

    def softmax_factor(self):
        """Factor on the model's own softmax scale, which is the caller's to apply; see `poslib.extension.Method.softmax_factor`.

        Returns
        -------
        float

        Examples
        --------
        >>> config = {"model_type": "deepseek_v3", "qk_rope_head_dim": 64, "rope_theta": 10000, "rope_scaling": {"type": "yarn",
        ...           "factor": 40, "original_max_position_embeddings": 4096, "mscale": 1.0, "mscale_all_dim": 1.0}}
        >>> read = from_hf_config(config)
        >>> read.rotation_factor(), round(read.softmax_factor(), 4)
        (1.0, 1.8739)
        """
        return 1.0 if self.method is None else self.method.softmax_factor()

    def rotate(self, x, positions, *, length=None, inverse=False, out=None):
        """Turn queries or keys, with the method's rotation factor if there is one; see `poslib.rotary.rotate`.

        Parameters
        ----------
        x : array or tensor, shape (..., length, head_dim), any float dtype
        positions : same kind, integers, shape (length,) or (batch, length)
            With sections (axes, length) or (axes, batch, length).
        length : int, optional
            As for `frequencies`.
        inverse : bool
            Turn back.
        out : array or tensor, optional
            Where to put the result; may be `x`.

        Returns
        -------
        Same kind, shape, dtype and device as `x`

        Raises
        ------
        TypeError, ValueError
            As for `poslib.rotary.rotate`.

        Examples
        --------
        >>> import numpy as np
        >>> config = RotaryConfig(head_dim=3, width=2, layout="half", base=10000.0)
        >>> config.rotate(np.ones((1, 3)), np.array([1])).round(2)     # the third channel is copied
        array([[-0.3 ,  1.38,  1.  ]])
        """
        if x.shape[-1] != self.head_dim:
            raise ValueError(f"x has shape {tuple(x.shape)}; allowed is (..., length, {self.head_dim})")
        if self.method is None:
            return rotary.rotate(x, positions, layout=self.layout, width=self.width, frequencies=self._frequencies, axes=self._axes,
                                 inverse=inverse, out=out)
        used = self.method._used(length)
        frequencies = self.method._ladder(self.width, self.base, used) if self.dynamic else self._frequencies
        return extension._turned(x, positions, frequencies, self.method._rotation(used), layout=self.layout, width=self.width, axes=self._axes,
                                 inverse=inverse, out=out)

    def explain(self, *, length=None):
        """Plain sentences: what will be turned, and how.

        Parameters
        ----------
        length : int, optional
            As for `frequencies`; without it a dynamic method says what it depends on.

        Returns
        -------
        str
            A sentence on each line.

        Examples
        --------
        >>> print(RotaryConfig(head_dim=80, width=32, layout="half", base=10000.0).explain())
        Of the 80 channels of a head, the first 32 turn; the other 48 are copied.
        Pair k is channels k and k + 16 (layout "half").
        Pair k turns by 10000^(-2k/32) radians per position: wavelengths from 6.28 to 35,333 positions.
        """
        pairs = self.width // 2
        rest = self.head_dim - self.width
        said = [f"All {self.head_dim} channels of a head turn." if not rest else
                f"Of the {self.head_dim} channels of a head, the first {self.width} turn; the other {rest} are copied.",
                f"Pair k is channels k and k + {pairs} (layout \"half\")." if self.layout == "half" else
                "Pair k is channels 2k and 2k + 1 (layout \"interleaved\")."]
        trained = rotary.frequencies(self.width, self.base) if self.share is None else self.frequencies()
        moving = [w for w in trained.tolist() if w]
        speed = f"{'Pair' if self.method is None else 'Before stretching, pair'} k turns by {self.base:.15g}^(-2k/{self.width}) radians per position"
        if len(moving) < pairs:
            said.append(f"Only the {len(moving)} fastest of {pairs} pairs turn (p-RoPE); the others stand still.")
        said.append(speed + (f": wavelengths from 6.28 to {2 * math.pi / moving[-1]:,.0f} positions." if len(moving) > 1 else "."))
        if self.sections is not None:
            numbers = ", ".join(map(str, self.sections))
            said.append(f"A token has {len(self.sections)} positions (M-RoPE, {self.order}), which turn {numbers} pairs.")
        if self.method is not None:
            said.append(self.method.explain(self.width, self.base, length=length))
        return "\n".join([*said, *self.notes])


def from_hf_config(config, *, layout=None, layer_type=None):
    """Read how a model turns its queries and keys from its configuration.

    Parameters
    ----------
    config : mapping, or an object with ``to_dict()``
        What ``config.json`` holds.  Where there is a ``text_config``, that part is read.
    layout : {"half", "interleaved"}, optional
        For model types that are not in the list; must agree where the type is.
    layer_type : str, optional
        For models whose kinds of layers differ, "full_attention" or "sliding_attention" in Gemma 3.

    Returns
    -------
    RotaryConfig

    Raises
    ------
    TypeError, ValueError
        For what is missing, contradicts itself, or is not known: a kind, a key, or two keys that say different things.

    Notes
    -----
    Names: the base is ``rope_theta``, ``rotary_emb_base``, or stands in ``rope_parameters`` or ``rope_scaling``; the share
    that turns is ``partial_rotary_factor``, ``rotary_pct``, ``rope_pct``, or a width ``rotary_dim``.  A share gives
    floor(share · head_dim + 10⁻⁶) channels: where the product is not whole, as transformers has it, and 58 for 0.29 of
    200, where transformers' ``int`` makes 57.  An odd number of channels is refused.

    Kinds: default, linear, dynamic, yarn, llama3, longrope (su), proportional, under ``rope_type`` or ``type``.  The trained length is
    ``original_max_position_embeddings``, in the dictionary or beside it, for "dynamic" ``max_position_embeddings``.  ``attention_factor`` is final,
    ``attn_factor`` a multiplier.  Where transformers 5.24 would do otherwise than the result, `RotaryConfig.explain` says so.

    Examples
    --------
    >>> config = from_hf_config({"model_type": "gpt_neox", "hidden_size": 512, "num_attention_heads": 8, "rotary_pct": 0.25,
    ...                          "rotary_emb_base": 10000})
    >>> config.head_dim, config.width, config.layout
    (64, 16, 'half')
    """
    file = _mapping(config)
    notes = []
    if isinstance(file.get("text_config"), Mapping):
        file = {"model_type": file.get("model_type"), **file["text_config"]}
        notes.append("Only text_config was read, not the encoders of pictures or sound.")
    model, (layout, default_base, default_share) = _model(file, layout)
    if file.get("alibi") or file.get("position_embedding_type", "rotary") not in ("rotary", "rope"):
        said = "alibi" if file.get("alibi") else file["position_embedding_type"]
        raise ValueError(f"config says {said!r}: nothing turns in this model")
    given = _rope_dictionary(file, layer_type)
    kind = _kind(given, model)
    head_dim = _head_dim(file, layer_type)
    base = _base(file, given, model, default_base, layer_type, notes)
    share, width = _turning(file, given, model, head_dim, default_share, kind, notes)
    sections, order = _sections(given, model)
    method = _method(file, given, kind, model, share, notes)
    share = None if isinstance(method, extension.Proportional) else share
    if "qk_rope_head_dim" in file:
        notes.append(f"These are the {head_dim} channels of qk_rope_head_dim, which stand behind the qk_nope_head_dim of a "
                     "query; all heads share one such key.")
    notes += [text for name, text in SOME_LAYERS.items() if name == model or file.get(name)]
    return RotaryConfig(head_dim, width, layout, base, sections, order, share, method, tuple(notes))


def _mapping(config):
    if not isinstance(config, Mapping) and callable(getattr(config, "to_dict", None)):
        config = config.to_dict()
    if not isinstance(config, Mapping):
        raise TypeError(f"config is a {type(config).__name__}; allowed is a mapping, or an object with to_dict()")
    return config


def _model(file, layout):
    """Model type, and its layout, default base and default share."""
    name = file.get("model_type")
    model = name.removesuffix("_text") if isinstance(name, str) and name.removesuffix("_text") in MODELS else name
    if model in REFUSED:
        raise ValueError(f"model_type is {name!r}, which is not read: {REFUSED[model]}")
    if layout is not None:
        rotary._layout(layout)
    if model not in MODELS:
        if layout is None:
            raise ValueError(f"model_type is {name!r}, whose layout is not known; give layout='half' or 'interleaved'")
        return model, (layout, None, 1.0)
    known, base, share = MODELS[model]
    if model == "deepseek_v3" and not file.get("rope_interleave", True):
        known = "half"
    if layout not in (None, known):
        raise ValueError(f"layout is {layout!r}, model_type {name!r} has {known!r}; allowed is that, or layout=None")
    return model, (known, base, share)


def _rope_dictionary(file, layer_type):
    """rope_parameters or rope_scaling, of the layer type; {} where there is none."""
    both = {name: file[name] for name in ("rope_parameters", "rope_scaling") if file.get(name)}
    for name, value in both.items():
        if not isinstance(value, Mapping):
            raise TypeError(f"{name} is {value!r}; allowed is a mapping")
    if len(both) == 2 and (differ := _differences(*both.values())):
        raise ValueError(f"rope_parameters and rope_scaling differ in {', '.join(differ)}; allowed is one of the two, or the same in both")
    if len(both) == 2:
        both = {"rope_parameters": {**both["rope_scaling"], **both["rope_parameters"]}}
    name, given = next(iter(both.items()), ("rope_parameters", {}))
    nested = {key: value for key, value in given.items()
              if isinstance(value, Mapping) or value is None and key.endswith("_attention")}
    if "rope_local_base_freq" in file and not nested:        # Gemma 3 before transformers 5
        nested = {"full_attention": {**given, "rope_theta": file.get("rope_theta", 1e6)},
                  "sliding_attention": {"rope_theta": file["rope_local_base_freq"]}}
    if not nested:
        if layer_type is not None and layer_type not in (file.get("layer_types") or [layer_type]):
            raise ValueError(f"layer_type is {layer_type!r}; allowed are {sorted(set(file['layer_types']))}")
        return given
    if layer_type is None and len({repr(sorted(v.items())) if v else v for v in nested.values()}) > 1:
        raise ValueError(f"{name} differs by the kind of layer; give layer_type, one of {sorted(nested)}")
    layer_type = next(iter(nested)) if layer_type is None else layer_type
    if layer_type not in nested:
        raise ValueError(f"layer_type is {layer_type!r}; allowed are {sorted(nested)}")
    if nested[layer_type] is None:
        raise ValueError(f"{name} is None for {layer_type!r}: nothing turns in these layers")
    return nested[layer_type]


def _differences(one, other):
    """Keys under which two dictionaries say different things; "type" is "rope_type", the base and the share may stand in one alone."""
    one, other = ({"rope_type" if key == "type" else key: value for key, value in d.items() if value is not None} for d in (one, other))
    one, other = ({"rope_type": "default", **d} for d in (one, other))
    return sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key)
                  and not (key in ("rope_theta", "partial_rotary_factor") and None in (one.get(key), other.get(key))))


def _kind(given, model):
    """One of `KINDS`; the rest is refused by name."""
    names = [given[key] for key in ("rope_type", "type") if given.get(key) is not None]
    plain = [OTHER_NAMES.get(name, name) if isinstance(name, str) else name for name in names]
    if len(set(map(str, plain))) > 1:
        raise ValueError(f"rope_type is {names[0]!r} and type {names[1]!r}: allowed is one of the two")
    kind = plain[0] if plain else "default"
    if kind == "yarn" and model in PHI3:
        kind = "longrope"                       # as the first files of Phi-3 call it
    if kind not in KINDS if isinstance(kind, str) else True:
        why = "; it means different things to different readers: make poslib.extension.NTKAware or DynamicNTK by hand" if kind == "ntk" else ""
        raise ValueError(f"rope_type is {kind!r}, which is not known; allowed are {', '.join(map(repr, KINDS))}{why}")
    unknown = sorted(key for key, value in given.items() if key not in KNOWN | KINDS[kind] and value is not None)
    if unknown:
        raise ValueError(f"rope_type is {kind!r} and {unknown[0]} is given, which is not known of it; it would be left out")
    if kind == "default" and given.get("factor") not in (None, 1, 1.0):
        raise ValueError(f"factor is {given['factor']!r} with rope_type 'default'; allowed is 1, or a rope_type that stretches")
    return kind


def _method(file, given, kind, model, share, notes):
    """The method of extension that the dictionary describes, or None."""
    of = {key: value for key, value in given.items() if value is not None}
    if kind == "default" or kind == "proportional" and of.get("factor") in (None, 1, 1.0):
        return None
    if kind == "proportional":
        return extension.Proportional(share, of["factor"])
    if kind == "linear":
        return extension.Linear(_needed(of, "factor", kind))
    length = _trained_length(file, of, kind, model, notes)
    if kind == "dynamic":
        return extension.DynamicNTK(_needed(of, "factor", kind), length)
    if kind == "llama3":
        return extension.Llama3(_needed(of, "factor", kind), length, low_freq_factor=_needed(of, "low_freq_factor", kind),
                                high_freq_factor=_needed(of, "high_freq_factor", kind))
    factor = _factor(file, of, length, notes)
    if kind == "longrope":
        lists = (_needed(of, name, kind) for name in ("short_factor", "long_factor"))
        own = {name: of[name] for name in ("attention_factor", "short_mscale", "long_mscale") if name in of}
        if model == "phimoe":
            notes.append("transformers 5.24 turns with the short list at every length in this model, whatever the file says.")
        return extension.LongRoPE(*lists, length, factor=factor, **own)
    return _yarn(of, factor, length, model, notes)


def _yarn(of, factor, length, model, notes):
    own = {name: of[name] for name in ("beta_fast", "beta_slow", "truncate", "attention_factor", "mscale", "mscale_all_dim") if name in of}
    if "finetuned" in of:
        arrays.flag("finetuned", of["finetuned"])
        notes.append("finetuned says how the model was trained, and changes nothing here.")
    if of.get("mscale_all_dim") and model not in MODELS:
        raise ValueError(f"mscale_all_dim is {of['mscale_all_dim']!r} and model_type {model!r}: whether its softmax scale grows too is not known; "
                         "make RotaryConfig with a poslib.extension.YaRN by hand")
    method = extension.YaRN(factor, length, multiplier=of.get("attn_factor", 1.0), scale_softmax=model in SOFTMAX, **own)
    implied = dataclasses.replace(method, attention_factor=None).rotation_factor()
    weighed = "mscale" in of or "mscale_all_dim" in of
    if method.attention_factor is not None and weighed and not math.isclose(method.attention_factor, implied, rel_tol=1e-6):
        raise ValueError(f"attention_factor is {method.attention_factor:g}, and mscale and mscale_all_dim give {implied:.6g}; allowed is one number")
    usual = extension.mscale(factor) if not (of.get("mscale") and of.get("mscale_all_dim")) else \
        extension.mscale(factor, of["mscale"]) / extension.mscale(factor, of["mscale_all_dim"])
    if method.attention_factor is None and not math.isclose(method.rotation_factor(), usual, rel_tol=1e-6):
        notes.append(f"transformers 5.24 reads a rotation factor of {usual:.5g} from this file, without "
                     f"{'attn_factor' if method.multiplier != 1 else 'the one weight that it gives'}.")
    return method


def _trained_length(file, of, kind, model, notes):
    """The trained length, from inside the dictionary, beside it, or the length that the model is meant for."""
    found = {name: value for name, value in ((f"{LENGTH} of the dictionary", of.get(LENGTH)), (LENGTH, file.get(LENGTH)),
                                             *([("max_position_embeddings", file.get("max_position_embeddings"))] if kind == "dynamic" else []))
             if value is not None}
    for name, value in found.items():
        arrays.whole(name, value, at_least=1)
    if len(set(found.values())) > 1:
        raise ValueError(f"the trained length is given as {found}; allowed is one number")
    if found:
        return next(iter(found.values()))
    if kind == "longrope" or file.get("max_position_embeddings") is None:
        missing = "max_position_embeddings" if kind == "dynamic" else LENGTH
        raise ValueError(f"rope_type is {kind!r} and {missing} is missing; allowed is a whole number")
    notes.append(f"The file gives no {LENGTH}; transformers takes max_position_embeddings, {_whole(file, 'max_position_embeddings'):,}.")
    return _whole(file, "max_position_embeddings")


def _factor(file, of, length, notes):
    """The factor as given, or the ratio of the two lengths; a note where they differ."""
    longest = file.get("max_position_embeddings")
    ratio = None if longest is None else _whole(file, "max_position_embeddings") / length
    if "factor" not in of:
        if ratio is None:
            raise ValueError("factor is missing, and so is max_position_embeddings, which would give it; allowed is a number")
        if ratio < 1:
            raise ValueError(f"factor is missing, and max_position_embeddings is {longest:,} for a trained length of {length:,}; allowed is a factor")
        return ratio
    factor = extension._number("factor", of["factor"], at_least=1)
    if ratio not in (None, 1.0, factor):
        notes.append(f"max_position_embeddings is {longest:,}, {ratio:g} times the trained length; the factor is taken as given, {factor:g}.")
    return factor


def _needed(of, name, kind):
    if name not in of:
        raise ValueError(f"rope_type is {kind!r} and {name} is missing; allowed is " +
                         ("a list of numbers" if name in ("short_factor", "long_factor") else "a number"))
    return of[name]


def _head_dim(file, layer_type):
    if file.get("qk_rope_head_dim") is not None:
        return _whole(file, "qk_rope_head_dim")
    own = {layer: entry["head_dim"] for layer, entry in (file.get("per_layer_config") or {}).items() if entry.get("head_dim")}
    if layer_type is None and (own or file.get("global_head_dim") is not None):
        raise ValueError("head_dim differs by the kind of layer (per_layer_config, global_head_dim); give layer_type")
    found = {own.get(layer) for layer in own if dict(enumerate(file.get("layer_types") or ())).get(int(layer)) == layer_type}
    if len(found) > 1:
        raise ValueError(f"head_dim is {sorted(found)} in layers of {layer_type!r}; allowed is one for all of them")
    if found:
        return _whole({"head_dim": found.pop()}, "head_dim")
    if layer_type == "full_attention" and file.get("global_head_dim") is not None:
        return _whole(file, "global_head_dim")
    if file.get("head_dim") is not None:
        return _whole(file, "head_dim")
    hidden, heads = (_first(file, names) for names in (("hidden_size", "n_embd"), ("num_attention_heads", "n_head")))
    if hidden % heads:
        raise ValueError(f"hidden_size is {hidden}, num_attention_heads {heads}: no whole number for each; give head_dim")
    return hidden // heads


def _base(file, given, model, default, layer_type, notes):
    found = {name: value for name, value in (
        ("rope_theta of the dictionary", given.get("rope_theta")),
        ("rope_theta", None if "rope_local_base_freq" in file or _nested(file) else file.get("rope_theta")),
        ("rotary_emb_base", file.get("rotary_emb_base"))) if value is not None}
    if len(set(found.values())) > 1:
        raise ValueError(f"the base is given as {found}; allowed is one number")
    if model in FIXED_BASE:
        if set(found.values()) - {default}:
            raise ValueError(f"the base is given as {found}, but model_type {model!r} always has {default:.15g}")
        return default
    if found:
        return arrays.base(next(iter(found.values())))
    if default is None:
        raise ValueError(f"no base is given and none is known for model_type {model!r}; allowed is rope_theta, a number")
    notes.append(f"The file gives no base; transformers takes {default:.15g} for {model}.")
    return default


def _nested(file):
    return any(isinstance(value, Mapping) for value in (file.get("rope_parameters") or {}).values())


def _turning(file, given, model, head_dim, default, kind, notes):
    """Share of p-RoPE or None, and how many channels turn."""
    shares = {name: value for name, value in (
        ("partial_rotary_factor of the dictionary", given.get("partial_rotary_factor")),
        *((name, file.get(name)) for name in ("partial_rotary_factor", "rotary_pct", "rope_pct"))) if value is not None}
    if len(set(shares.values())) > 1:
        raise ValueError(f"the share that turns is given as {shares}; allowed is one number")
    share = next(iter(shares.values()), None)
    if kind == "proportional":
        return (1.0 if share is None else share), head_dim
    if file.get("qk_rope_head_dim") is not None and share is not None:
        whole = _whole(file, "head_dim") if file.get("head_dim") is not None else head_dim
        if rotary._share(share, whole) != head_dim:
            raise ValueError(f"{next(iter(shares))} is {share} and qk_rope_head_dim {head_dim}: they do not agree")
        return None, head_dim
    if file.get("rotary_dim") is not None:
        width = _whole(file, "rotary_dim")
        if share is not None and rotary._share(share, head_dim) != width:
            raise ValueError(f"rotary_dim is {width} and {next(iter(shares))} {share}, of {head_dim} channels: "
                             "they do not agree")
        return None, width
    if model in ("gptj", "codegen"):
        raise ValueError("rotary_dim is None: transformers makes frequencies of the whole model's width then; "
                         "allowed is a number")
    if share is None:
        if default not in (None, 1.0):
            notes.append(f"The file gives no share; transformers takes {default} for {model}.")
        share = 1.0 if default is None else default
    elif default is None and share != 1:
        raise ValueError(f"{next(iter(shares))} is {share}, but model_type {model!r} turns whole heads whatever it says; "
                         "allowed is 1")
    width = rotary._share(share, head_dim)
    if width < 2 or width % 2:
        raise ValueError(f"{next(iter(shares), 'the share')} is {share} of {head_dim} channels, {width} of them: "
                         "allowed is what gives an even number of at least 2")
    return None, width


def _sections(given, model):
    """Sections and order of M-RoPE, or None and None."""
    order = MROPE.get(model)
    sections, flag = given.get("mrope_section"), given.get("mrope_interleaved")
    if sections is None:
        if order is not None:
            raise ValueError(f"mrope_section is missing, which model_type {model!r} needs; "
                             "allowed are whole numbers, one for each axis")
        return None, None
    if flag is not None:
        arrays.flag("mrope_interleaved", flag)
        said = "interleaved" if flag else "chunked"
        if order not in (None, said):
            raise ValueError(f"mrope_interleaved is {flag}, model_type {model!r} has {order!r} sections")
        order = said
    if order is None:
        raise ValueError(f"mrope_section is given, but neither mrope_interleaved nor model_type {model!r} says in which order")
    return tuple(sections), order


def _whole(file, name):
    arrays.whole(name, file[name], at_least=1)
    return file[name]


def _first(file, names):
    for name in names:
        if file.get(name) is not None:
            return _whole(file, name)
    raise ValueError(f"{' and '.join(names)} are missing; allowed is a whole number")
