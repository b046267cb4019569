"""Results of experiments that take long: stored as package data, each with how it was made."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
from pathlib import Path

__all__ = ["load", "provenance", "store"]

HOME = Path(__file__).parent


def load(name):
    """The stored result of an experiment.

    Parameters
    ----------
    name : str
        File name without ``.json``.

    Returns
    -------
    dict
        ``made`` says how (command, seeds, versions, machine); the other keys are the experiment's own.
    """
    path = HOME / f"{name}.json"
    if not path.exists():
        raise ValueError(f"name is {name!r}; stored are {', '.join(sorted(p.stem for p in HOME.glob('*.json')))}")
    return json.loads(path.read_text("utf8"))


def store(name, result, *, command, seeds):
    """Write a result beside the package's others, with its provenance under ``made``."""
    path = HOME / f"{name}.json"
    path.write_text(_written({"made": provenance(command, seeds), **result}), "utf8")
    return path


def _written(result):
    """JSON with an indent, but lists of numbers on one line each."""
    text = json.dumps(result, indent=1, ensure_ascii=False)
    return re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", lambda m: "[" + " ".join(m[1].split()) + "]", text) + "\n"


def provenance(command, seeds):
    """How a result comes to be: command, seeds, versions of Python, numpy and torch, and the machine."""
    return {
        "command": command,
        "seeds": list(seeds),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("numpy", "torch")},
        "machine": f"{_processor()}, {os.cpu_count()} cores, no GPU used",
    }


def _processor():
    try:
        with open("/proc/cpuinfo", encoding="utf8") as f:
            return next(line.split(":", 1)[1].strip() for line in f if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
