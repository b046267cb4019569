"""Results of experiments that take long: stored as package data, each with how it was made, and put into the figures that show them."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
from pathlib import Path

__all__ = ["load", "provenance", "put_into_figure", "rounded", "store", "stored"]

HOME = Path(__file__).parent
FIGURES = HOME.parents[1] / "teach" / "js"


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


def stored(name):
    """The stored result of an experiment, or nothing: what a run that goes on where the last one stopped begins with.

    Parameters
    ----------
    name : str
        File name without ``.json``.

    Returns
    -------
    dict
        As `load` gives it; empty where there is no such file.  A file that cannot be read is an error: taken for none, it would be overwritten.
    """
    return load(name) if (HOME / f"{name}.json").exists() else {}


def store(name, result, *, command, seeds):
    """Write a result beside the package's others, with its provenance under ``made``."""
    path = HOME / f"{name}.json"
    path.write_text(_written({"made": provenance(command, seeds), **result}), "utf8")
    return path


def rounded(x):
    """A result as it is stored: fractions with four digits after the point.

    Parameters
    ----------
    x : dict, list, tuple, array, tensor, number, str, or None
        Of each other, to any depth.

    Returns
    -------
    dict, list, float, int, bool, str, or None
        Keys of dictionaries as text, tuples and arrays as lists, numbers as Python's own; all but fractions keep their values.
    """
    if isinstance(x, dict):
        return {str(key): rounded(value) for key, value in x.items()}
    if isinstance(x, list | tuple):
        return [rounded(value) for value in x]
    if hasattr(x, "tolist"):                # numpy and torch, numbers too
        return rounded(x.tolist())
    return round(x, 4) if isinstance(x, float) else x


def put_into_figure(kind, data):
    """Write what a figure shows into its code, as the line that begins with ``const DATA``.

    Parameters
    ----------
    kind : str
        Of the figure: its code is ``poslib/teach/js/<kind>.js``.
    data : dict or list
        What JSON can hold.

    Returns
    -------
    pathlib.Path
        The file.

    Raises
    ------
    ValueError
        If there is no such file, or no such line in it.
    """
    path = FIGURES / f"{kind}.js"
    if not path.exists():
        raise ValueError(f"kind is {kind!r}; there is no {path.name} in {FIGURES}")
    line = f"  const DATA = {json.dumps(data, separators=(',', ':'), ensure_ascii=False)};"
    # a function gives the line, since in a text each backslash of the data would be read as an escape
    text, found = re.subn(r"^  const DATA = .*;$", lambda _: line, path.read_text("utf8"), count=1, flags=re.M)
    if not found:
        raise ValueError(f"kind is {kind!r}; {path.name} has no line '  const DATA = …;' to put the data in")
    path.write_text(text, "utf8")
    return path


def _written(result):
    """JSON with an indent, but a list without lists or dicts in it on one line."""
    return _lines(result, 0) + "\n"


def _lines(x, depth):
    if isinstance(x, dict) and x:
        begin, items, end = "{", [f"{json.dumps(key if isinstance(key, str) else json.dumps(key), ensure_ascii=False)}: {_lines(v, depth + 1)}" for key, v in x.items()], "}"
    elif isinstance(x, list | tuple) and any(isinstance(v, dict | list | tuple) for v in x):
        begin, items, end = "[", [_lines(v, depth + 1) for v in x], "]"
    else:
        return json.dumps(x, ensure_ascii=False)
    pad = "\n" + " " * (depth + 1)
    return begin + pad + f",{pad}".join(items) + pad[:-1] + end


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
