"""The two tools behind make: pairs and their execution, and what set-up says when something is missing."""

import importlib
import os
import subprocess
import sys

import pytest

from conftest import ROOT

sys.path.insert(0, str(ROOT / "tools"))
notebooks = importlib.import_module("notebooks")

SOURCE = """---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

# A chapter

```{code-cell} ipython3
:tags: [some-tag]
print(1 + 1)
```

Words.

```{code-cell} ipython3
import numpy as np
import poslib.attention
"text"
```
"""


@pytest.fixture
def chapter(tmp_path, monkeypatch):
    """A book of one chapter in a place of its own."""
    for name in ("ROOT", "BOOK"):
        monkeypatch.setattr(notebooks, name, tmp_path)
    package = tmp_path / "poslib"
    (package / "teach" / "js").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "attention.py").write_text("import math\n")
    (package / "other.py").write_text("")
    (package / "teach" / "js" / "text.js").write_text("1")
    (package / "teach" / "js" / "unused.js").write_text("1")
    (package / "teach" / "js" / "_shared.js").write_text("1")
    (tmp_path / "constraints.txt").write_text("numpy==1.0\npytest==1.0\n")
    md = tmp_path / "01-a.md"
    md.write_text(SOURCE)
    return md


def test_a_run_is_repeated_only_when_an_input_changed_and_changes_no_byte(chapter):
    nb = chapter.with_suffix(".ipynb")
    assert notebooks.problems(chapter) == ["01-a.ipynb is missing"]
    assert notebooks.update(chapter, force=False).startswith("executed")
    first = nb.read_bytes()
    assert notebooks.problems(chapter) == [] and notebooks.update(chapter, force=False) == "up to date"
    assert notebooks.update(chapter, force=True).endswith("no byte changed") and nb.read_bytes() == first
    written = notebooks.read(nb)
    assert written.cells[1].outputs[0].text == "2\n" and written.cells[1].metadata.tags == ["some-tag"]
    assert len({c.id for c in written.cells}) == len(written.cells)
    assert str(notebooks.ROOT) not in os.environ.get("PYTHONPATH", ""), "kernels started later would import this book's poslib"


@pytest.mark.parametrize("file, text, counts", [
    ("poslib/attention.py", "x = 1", True), ("poslib/__init__.py", "x = 1", True), ("poslib/other.py", "x = 1", False),
    ("poslib/teach/js/text.js", "2", True), ("poslib/teach/js/unused.js", "2", False), ("poslib/teach/js/_shared.js", "2", True),
    ("constraints.txt", "numpy==2.0\npytest==1.0\n", True), ("constraints.txt", "numpy==1.0\npytest==2.0\n", False)])
def test_what_counts_as_an_input(chapter, file, text, counts):
    before = notebooks.inputs(notebooks.parsed(chapter))
    (notebooks.ROOT / file).write_text(text)
    assert (notebooks.inputs(notebooks.parsed(chapter)) != before) == counts


def test_a_changed_source_is_out_of_step(chapter):
    notebooks.update(chapter, force=False)
    chapter.write_text(SOURCE.replace("Words.", "Other words."))
    assert notebooks.problems(chapter) == ["01-a.ipynb is out of step with 01-a.md"]


def test_edits_in_the_notebook_are_not_lost(chapter):
    notebooks.update(chapter, force=False)
    nb = notebooks.read(chapter.with_suffix(".ipynb"))
    nb.cells[2].source = "Edited in the notebook."
    notebooks.write(nb, chapter.with_suffix(".ipynb"))
    assert "edited by hand in cells [2]" in notebooks.problems(chapter)[0]
    with pytest.raises(SystemExit, match="--from-notebook"):
        notebooks.update(chapter, force=False)
    notebooks.carry_back(chapter)
    assert "Edited in the notebook." in chapter.read_text()
    notebooks.update(chapter, force=True)
    assert notebooks.problems(chapter) == []


def test_an_error_in_a_cell_stops_and_keeps_the_old_notebook(chapter):
    from nbclient.exceptions import CellExecutionError
    notebooks.update(chapter, force=False)
    before = chapter.with_suffix(".ipynb").read_bytes()
    chapter.write_text(SOURCE.replace("print(1 + 1)", "1 / 0"))
    with pytest.raises(CellExecutionError, match="division by zero"):
        notebooks.update(chapter, force=False)
    assert chapter.with_suffix(".ipynb").read_bytes() == before


def test_sources_are_the_pages_with_a_notebook_in_the_order_of_the_book(chapter):
    for name in ("A1-b.md", "00-p.md", "02-c.md", "bibliography.md", "A1-b.ipynb", "Another-1.md"):
        (notebooks.BOOK / name).write_text("")
    assert [md.name for md in notebooks.sources()] == ["00-p.md", "01-a.md", "02-c.md", "A1-b.md"]


def test_an_unknown_chapter_is_named():
    run = subprocess.run([sys.executable, "tools/notebooks.py", "99"], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 1 and "no chapter is named 99; there are 00-primer, 01-order-blindness" in run.stderr


# ---- set-up ---------------------------------------------------------------------------------------

def run_setup(code, **env):
    """Set-up's checks in a Python that lacks something."""
    code = f"import sys; sys.path.insert(0, 'tools'); import setup\n{code}"
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, env={**os.environ, **env})


@pytest.mark.parametrize("code, sentence", [
    ("sys.version_info = (3, 9, 2); setup.check_python()", "Python 3.11 or newer is needed; .* is 3.9. Install one .*apt-get install python3.11"),
    ("sys.modules['ensurepip'] = None; setup.check_python()", r"Python's venv module is missing. Install it: sudo apt-get install python3\.\d+-venv"),
    ("setup.CHROMIUM = ('no-such-browser',); setup.check_chromium()", "none was found. Install it .*apt-get install chromium")])
def test_what_is_missing_is_named_with_its_command(code, sentence):
    import re
    run = run_setup(code, CHROMIUM="")
    assert run.returncode == 1 and re.search(sentence, run.stderr), run.stderr


def test_a_named_browser_that_is_not_there_is_refused():
    run = run_setup("setup.check_chromium()", CHROMIUM="/no/such/chrome")
    assert run.returncode == 1 and "CHROMIUM=/path/to/chrome" in run.stderr


def test_setup_reads_under_an_old_python():
    import ast
    ast.parse((ROOT / "tools" / "setup.py").read_text(), feature_version=(3, 6))


def test_make_names_a_python_that_is_not_there():
    run = subprocess.run(["make", "book", "PYTHON=no-such-python"], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode and "no-such-python was not found" in run.stdout and "apt-get install python3" in run.stdout


def test_requirements_are_pinned_and_within_the_lock():
    import re
    lock = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().lower().replace("_", "-").splitlines() if "==" in line)
    for name in ("requirements-book.txt", "requirements.txt"):
        for line in (ROOT / name).read_text().splitlines():
            if line and not line.startswith(("#", "-")):
                package, version = re.fullmatch(r'([\w-]+)==([\w.]+)(?:; sys_platform == "\w+")?(?:\s+#.*)?', line).groups()
                assert lock[package.lower()] == version


def test_the_light_set_has_no_torch():
    text = (ROOT / "requirements-book.txt").read_text()
    assert "torch=" not in text and "triton" not in text
