"""GGUF files: what stands in their head, and their tensors as float32.

The head is read here, not by the gguf package: every length it states is checked against the file before anything is read,
so that a damaged file gives a sentence.  (The package's reader, 0.19.0, does not end when the length of an array is damaged,
and needs 2.6 s for the head of SmolLM2 where this needs 0.1.)  What the blocks mean is left to the package.

The format: ggml's docs/gguf.md, versions 2 and 3.
"""

from __future__ import annotations

import mmap
import struct
from typing import NamedTuple

import numpy as np

SCALARS = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8"}
STRING, ARRAY = 8, 9
TYPES = {0: ("F32", 1, 4), 1: ("F16", 1, 2), 3: ("Q4_1", 32, 20), 8: ("Q8_0", 32, 34)}      # name, values and bytes of a block
SPECIAL = ("rope.scaling.", "rope.scale_linear", "expert_count", "attention.sliding_window")  # of Llamas that are more than a Llama


class Tensor(NamedTuple):
    """Where a tensor stands."""

    kind: int
    shape: tuple[int, ...]
    start: int
    size: int


class Head(NamedTuple):
    """What a file says before its weights."""

    path: object
    metadata: dict
    tensors: dict[str, Tensor]
    data: mmap.mmap


class _Bytes:
    """A file that is read from front to back, never past its end."""

    def __init__(self, path):
        self.path, self.at = path, 0
        with open(path, "rb") as file:
            if not file.seek(0, 2):
                raise ValueError(f"{path} is empty")
            self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def take(self, count, what):
        if count > len(self.data) - self.at:
            raise ValueError(f"{self.path} ends at byte {len(self.data)}, within {what}: it is cut off or damaged")
        self.at += count
        return self.data[self.at - count:self.at]

    def number(self, kind, what):
        return struct.unpack("<" + kind, self.take(struct.calcsize("<" + kind), what))[0]

    def string(self, what):
        try:
            return self.take(self.number("Q", what), what).decode("utf8")
        except UnicodeDecodeError:
            raise ValueError(f"{self.path} is damaged: {what} is no UTF-8 text") from None

    def value(self, kind, what):
        """A number, a text, or a list of either."""
        if kind == STRING:
            return self.string(what)
        if kind == ARRAY:
            kind, count = self.number("I", what), self.number("Q", what)
            if kind == STRING:
                if count > len(self.data) // 8:         # each has a length of 8 bytes
                    raise ValueError(f"{self.path} is cut off or damaged: {what} says it holds {count} texts")
                return [self.string(what) for _ in range(count)]
            return self.numbers(kind, count, what).tolist()
        return self.numbers(kind, 1, what).tolist()[0]

    def numbers(self, kind, count, what):
        if kind not in SCALARS:
            raise ValueError(f"{self.path} is damaged: {what} has type {kind}; allowed are {', '.join(map(str, SCALARS))}, "
                             f"{STRING} (text), and {ARRAY} (a list of them)")
        dtype = np.dtype(SCALARS[kind])
        raw = self.take(count * dtype.itemsize, what)
        if dtype == bool and raw.strip(b"\0\1"):
            raise ValueError(f"{self.path} is damaged: {what} is neither true nor false")
        return np.frombuffer(raw, dtype)


def head(path):
    """Metadata and places of the tensors of a GGUF file.

    Raises
    ------
    FileNotFoundError
    ValueError
        When the file is empty, cut off, damaged, or no GGUF file; the message names the file and what is wrong.
    """
    file = _Bytes(path)
    if file.data[:4] != b"GGUF":
        raise ValueError(f"{path} is no GGUF file: it begins with {file.data[:4]!r}, not with b'GGUF'")
    file.at = 4
    version = file.number("I", "its version")
    if version not in (2, 3):
        raise ValueError(f"{path} has GGUF version {version}; allowed are 2 and 3, in little-endian order")
    tensors, entries = file.number("Q", "its number of tensors"), file.number("Q", "its number of entries")
    metadata = {}
    for n in range(entries):
        name = file.string(f"the name of entry {n}")
        if name in metadata:
            raise ValueError(f"{path} is damaged: it has two entries {name}")
        metadata[name] = file.value(file.number("I", f"the type of {name}"), name)
    return Head(path, metadata, _places(file, tensors, metadata), file.data)


def _places(file, count, metadata):
    """{name: Tensor}; the tensors must follow each other without a gap, as ggml asks too."""
    found = {}
    for n in range(count):
        name = file.string(f"the name of tensor {n}")
        if name in found:
            raise ValueError(f"{file.path} is damaged: it has two tensors {name}")
        axes = file.number("I", f"the shape of {name}")
        if not 1 <= axes <= 4:
            raise ValueError(f"{file.path} is damaged: tensor {name} has {axes} axes; allowed are 1 to 4")
        shape = tuple(file.number("Q", f"the shape of {name}") for _ in range(axes))[::-1]
        found[name] = shape, file.number("I", f"the type of {name}"), file.number("Q", f"the place of {name}")
    align = metadata.get("general.alignment", 32)
    if not isinstance(align, int) or align < 1 or align & (align - 1):
        raise ValueError(f"{file.path} is damaged: general.alignment is {align!r}; allowed are powers of two")
    first = at = -(-file.at // align) * align
    for name, (shape, kind, offset) in found.items():
        size = _size(file.path, name, shape, kind)
        if first + offset != at:
            raise ValueError(f"{file.path} is damaged: tensor {name} should start at byte {at}, and is said to start at byte {first + offset}")
        if at + size > len(file.data):
            raise ValueError(f"{file.path} ends at byte {len(file.data)}, within tensor {name}, which reaches byte {at + size}: it is cut off or damaged")
        found[name] = Tensor(kind, shape, at, size)
        at += -(-size // align) * align
    return found


def _size(path, name, shape, kind):
    """Bytes of a tensor."""
    if kind not in TYPES:
        raise ValueError(f"{path}: tensor {name} has type {_type_name(kind)}; allowed are {', '.join(t[0] for t in TYPES.values())}")
    what, values, size = TYPES[kind]
    count = 1
    for n in shape:
        count *= n
    if not count or shape[-1] % values:
        raise ValueError(f"{path} is damaged: tensor {name} has shape {shape}; rows of {what} hold multiples of {values} values, at least one")
    return count // values * size


def _type_name(kind):
    try:
        return _package().GGMLQuantizationType(kind).name
    except ValueError:
        return f"{kind}, which is unknown"


def _package():
    try:
        import gguf
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("the weights of GGUF files are read by gguf: pip install gguf") from error
    return gguf


def array(file, name):
    """One tensor of a file (a `Head`), a new float32 array."""
    gguf, tensor = _package(), file.tensors[name]
    what, values, size = TYPES[tensor.kind]
    raw = np.frombuffer(file.data, np.uint8, tensor.size, tensor.start)
    rows = raw.reshape(*tensor.shape[:-1], tensor.shape[-1] // values * size)
    with np.errstate(all="ignore"):         # damaged scales may overflow; that is told below
        found = gguf.dequantize(rows, gguf.GGMLQuantizationType[what]).astype(np.float32)
    if not np.isfinite(found).all():
        raise ValueError(f"{file.path} is damaged: tensor {name} holds values that are not finite")
    return found


def settings(file):
    """Settings of a Llama, by the names of `poslib.lab.pretrained.Settings`, unchecked."""
    kind = file.metadata.get("general.architecture")
    if kind != "llama":
        raise ValueError(f"{file.path} holds a model of architecture {kind!r}; allowed is 'llama'")
    for name, value in file.metadata.items():
        if name.startswith(tuple(f"llama.{s}" for s in SPECIAL)) and value not in (0, 1.0, "none"):
            raise ValueError(f"{file.path}: {name} is {value!r}; such models are not read")
    get = lambda name, *default: _entry(file, f"llama.{name}", *default)  # noqa: E731
    width, heads = get("embedding_length"), get("attention.head_count")
    head_width = get("attention.key_length", _ratio(width, heads))
    for name in ("attention.value_length", "rope.dimension_count"):
        if get(name, head_width) != head_width:
            raise ValueError(f"{file.path}: llama.{name} is {get(name)!r}; allowed is the width of a head, {head_width}")
    embedding = file.tensors.get("token_embd.weight")
    return {"vocabulary": get("vocab_size", embedding.shape[0] if embedding else None), "width": width, "inner": get("feed_forward_length"),
            "layers": get("block_count"), "heads": heads, "kv_heads": get("attention.head_count_kv", heads), "head_width": head_width,
            "base": get("rope.freq_base", 10000.0), "epsilon": get("attention.layer_norm_rms_epsilon"), "length": get("context_length"),
            "tied": "output.weight" not in file.tensors, "layout": "interleaved"}


def _ratio(a, b):
    """a / b where that is a whole number; anything else is refused later, by its own name."""
    return a // b if type(a) is type(b) is int and b > 0 and a % b == 0 else None


def _entry(file, name, *default):
    if name not in file.metadata and not default:
        raise ValueError(f"{file.path} has no entry {name}")
    return file.metadata.get(name, *default)
