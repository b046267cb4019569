"""Keeps each chapter's two files in step and executes what changed.

    python tools/notebooks.py [NAME ...]     write and execute book/NN-*.ipynb from book/NN-*.md, and A1-*, A2-* of the back matter
    python tools/notebooks.py --check        say which pairs are out of step, change nothing
    python tools/notebooks.py --from-notebook NAME ...   carry edits made in the .ipynb back to the .md
    python tools/notebooks.py --force [NAME ...]         execute even what is up to date, drop edits in the .ipynb

The .md is the source; the .ipynb carries the outputs. A notebook is executed again when one of its
inputs changed: its source, a poslib module that it imports (directly or not), package data that it
names, or the pinned version of a package that these import. A run on the same machine changes no byte.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import os
import re
import sys
import time
from pathlib import Path

import jupytext
import nbformat

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "book"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
HEADER = {"text_representation": {"extension": ".md", "format_name": "myst"}}
TIMEOUT = 120       # seconds a cell may take


def sources():
    """The .md files of primer, chapters and back matter that have a notebook, in the order of the book."""
    return sorted(BOOK.glob("[0-9][0-9]-*.md")) + sorted(BOOK.glob("A[0-9]-*.md"))


def parsed(md):
    """The notebook that a chapter's source describes: no outputs, ids from position and source."""
    notebook = jupytext.read(md)
    cells = []
    for place, cell in enumerate(notebook.cells):
        cells.append(nbformat.v4.new_code_cell(cell.source) if cell.cell_type == "code" else nbformat.v4.new_markdown_cell(cell.source))
        cells[-1].metadata.update(cell.metadata)
        cells[-1].id = cell_id(place, cell.source)
    return nbformat.v4.new_notebook(cells=cells, metadata={"jupytext": HEADER, "kernelspec": KERNEL, "language_info": {"name": "python"}})


def cell_id(place, source):
    return f"{place:03d}-{hashlib.sha256(source.encode()).hexdigest()[:8]}"


def edited_by_hand(notebook):
    """Numbers of the cells whose text is not the one they were given their id for."""
    return [i for i, c in enumerate(notebook.cells) if c.get("id") != cell_id(i, c.source)]


def in_step(md, notebook):
    """True when the notebook has the source's cells, with the same ids and tags."""
    def essence(nb):
        return [(c.cell_type, c.source, c.id, dict(c.metadata)) for c in nb.cells]
    return essence(parsed(md)) == essence(notebook)


def plain(code):
    """A cell's code without the lines that only IPython reads."""
    return re.sub(r"^(\s*)[%!].*$", r"\1pass", code, flags=re.M)


def _imports_and_words(code):
    """Names of imported modules, and the strings that the code holds."""
    names, words = set(), set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names.update(a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{a.name}" for a in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 60:
            words.add(node.value)
    return names, words


def _module_file(name):
    path = ROOT.joinpath(*name.split("."))
    return next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.exists()), None)


def inputs(notebook):
    """A digest of everything that the notebook's outputs depend on."""
    code = "\n".join(plain(c.source) for c in notebook.cells if c.cell_type == "code")
    to_read, files, outside, said = [code], set(), set(), set()
    while to_read:
        names, words = _imports_and_words(to_read.pop())
        said |= words
        for name in names:
            if name.split(".")[0] != "poslib":
                outside.add(name.split(".")[0])
                continue
            parts = name.split(".")
            for end in range(1, len(parts) + 1):       # importing a.b.c runs a, a.b and a.b.c
                file = _module_file(".".join(parts[:end]))
                if file and file not in files:
                    files.add(file)
                    to_read.append(file.read_text("utf8"))
    # package data is read by name: "order" brings js/order.js (and the front end's shared files), "order_blindness" brings results and checkers of that name
    for file in (ROOT / "poslib").rglob("*"):
        if file.suffix in (".js", ".json", ".py") and file.parent.name in ("js", "results", "data", "checkers"):
            if file.stem in said | {"core"} or file.match("js/_*.js") or any(w.startswith(file.stem + "/") for w in said):
                files.add(file)
    digest = hashlib.sha256(repr([(c.cell_type, c.source) for c in notebook.cells]).encode())
    for file in sorted(files):
        digest.update(str(file.relative_to(ROOT)).encode() + file.read_bytes())
    for line in sorted((ROOT / "constraints.txt").read_text().splitlines()):
        if line.split("==")[0].lower().replace("-", "_") in {n.lower() for n in outside}:
            digest.update(line.encode())
    return digest.hexdigest()[:16]


def read(path):
    return nbformat.read(path, as_version=4)


def write(notebook, path):
    path.write_text(nbformat.writes(notebook) + "\n", "utf8")


def problems(md):
    """What is wrong with a pair, as sentences."""
    path = md.with_suffix(".ipynb")
    name = path.relative_to(ROOT)
    if not path.exists():
        return [f"{name} is missing"]
    notebook = read(path)
    if edited_by_hand(notebook):
        return [f"{name} was edited by hand in cells {edited_by_hand(notebook)}; carry the edits over with --from-notebook"]
    if not in_step(md, notebook):
        return [f"{name} is out of step with {md.name}"]
    if notebook.metadata.get("poslib", {}).get("inputs") != inputs(notebook):
        return [f"{name} was executed with other inputs (poslib, data or versions changed since)"]
    return []


def execute(notebook, folder):
    from nbclient import NotebookClient

    env = {**os.environ, "POSLIB_STATIC": "1", "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    NotebookClient(notebook, timeout=TIMEOUT, kernel_name="python3", record_timing=False, store_widget_state=False, coalesce_streams=True,
                   resources={"metadata": {"path": str(folder)}}).execute(env=env)


def update(md, force):
    """Bring one pair up to date; returns what was done."""
    path = md.with_suffix(".ipynb")
    if path.exists() and not force:
        wrong = problems(md)
        if not wrong:
            return "up to date"
        if edited_by_hand(read(path)):
            sys.exit(f"{wrong[0]}, or drop them with --force")
    notebook = parsed(md)
    digest, start = inputs(notebook), time.perf_counter()
    execute(notebook, md.parent)
    notebook.metadata = {"jupytext": HEADER, "kernelspec": KERNEL, "language_info": {"name": "python"}, "poslib": {"inputs": digest}}
    before = path.read_text("utf8") if path.exists() else ""
    write(notebook, path)
    same = before == path.read_text("utf8")
    return f"executed in {time.perf_counter() - start:.1f} s" + (", no byte changed" if same else "")


def carry_back(md):
    """Write the notebook's text into the source."""
    notebook = read(md.with_suffix(".ipynb"))
    for cell in notebook.cells:
        cell.pop("id", None)
    md.write_text(jupytext.writes(notebook, fmt="md:myst"), "utf8")
    return "carried back; now run make notebooks"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="chapters, as 01 or 01-order-blindness; all unless named")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--force", action="store_true")
    parser.add_argument("--from-notebook", action="store_true")
    options = parser.parse_args()
    chosen = [md for md in sources() if not options.names or any(md.stem.startswith(Path(n).stem) for n in options.names)]
    if not chosen:
        sys.exit(f"no chapter is named {', '.join(options.names)}; there are {', '.join(md.stem for md in sources())}")
    if options.check:
        wrong = [sentence for md in chosen for sentence in problems(md)]
        print("\n".join(wrong) or f"{len(chosen)} pairs are in step")
        return 1 if wrong else 0
    for md in chosen:
        print(f"{md.stem}: ", end="", flush=True)
        print(carry_back(md) if options.from_notebook else update(md, options.force), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
