"""The book's notebooks: pairs in step, outputs stored, the house rules, claims and exercises."""

import ast
import fnmatch
import importlib
import linecache
import re
import sys

import jupytext
import pytest
import yaml

from conftest import ROOT
from poslib.teach.exercises import chapters, check

sys.path.insert(0, str(ROOT / "tools"))
notebooks = importlib.import_module("notebooks")

SOURCES = notebooks.sources()
PAGES = [md.stem for md in SOURCES]                         # every page with a notebook: the primer, the chapters, back matter
CHAPTERS = [p for p in PAGES if re.match(r"\d\d-", p) and not p.startswith("00-")]

# What the pages that are no chapters must have.
PARTS = {
    "00-primer": ("Skip this page if you can answer these four questions", "You will be able to", "Prerequisites", "Time:", "Pause and think",
                  "## Exercises", "## What to remember", "## How to cite this page"),
    "A1-notation": ("Prerequisites", "trap", "## Mappings that come with their modules", "## How to cite this page"),
    "A2-literature": ("Prerequisites", "## Papers", "## The second of the two texts", "## Code", "## How to cite this page"),
}

# Rows of the audit of the two source texts that each chapter must decide.
ROWS = {
    "01-order-blindness": [1, 2, 3, 4, 6, 7, 46, 47, 48, 49, 58],
    "02-causal-mask": [5, 50, 51, 52, 53, 54],
    "03-learned-positions": [8, 9, 10, 11, 12, 55, 56, 57, 59, 60, 61, 62, 63],
    "04-sinusoids": [13, 14, 15, 16, 17, 18, 19, 20, 65, 70, 74, 75, 76, 77],
    "05-collisions": [64, 66, 67, 68, 69, 70, 71, 72, 73, 78, 79],
    "06-relative-scores": [32, 33, 34, 35, 36, 37, 38, 39, 80, 81, 82, 83, 84, 85, 93, 94],
    "07-extrapolation": [20, 37, 41, 64, 75],
    "08-rope-derivation": [21, 22, 23, 24, 25, 26, 40, 84, 96, 97, 98, 99, 100, 101, 103],
    "09-frequencies": [29, 99, 106],
    "10-rope-in-practice": [26, 27, 28, 91, 102],
    "11-bytes-and-flops": [86, 87, 88, 89, 90, 91, 92, 95],
    "12-fused-kernel": [95, 101, 102],
    "13-context-extension": [30, 104, 105, 106, 107, 108, 109, 110, 111, 112],
    "14-real-model": [105, 108, 109],
    "15-position-in-circuits": [29, 42, 43],
    "16-patching-position": [25, 27, 31, 44, 45],
    "17-choosing": [38, 40, 41],
}


def source(chapter):
    return (ROOT / "book" / f"{chapter}.md").read_text("utf8")


def stored(chapter):
    return notebooks.read(ROOT / "book" / f"{chapter}.ipynb")


def code_cells(chapter):
    return [c for c in stored(chapter).cells if c.cell_type == "code"]


def calls(code, name):
    return [n for n in ast.walk(ast.parse(notebooks.plain(code)))
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == name]


def html_of(cell):
    return "".join("".join(o.get("data", {}).get("text/html", "")) for o in cell.outputs)


def test_there_are_chapters():
    assert CHAPTERS and set(CHAPTERS) == set(ROWS)
    assert set(PAGES) - set(CHAPTERS) == set(PARTS)


@pytest.mark.parametrize("chapter", PAGES)
def test_pair_is_in_step_and_executed_with_todays_inputs(chapter):
    assert notebooks.problems(ROOT / "book" / f"{chapter}.md") == []


@pytest.mark.parametrize("chapter", PAGES)
def test_every_code_cell_ran_without_error(chapter):
    cells = code_cells(chapter)
    assert [c.execution_count for c in cells] == list(range(1, len(cells) + 1))
    assert not [o for c in cells for o in c.outputs if o.output_type == "error"]


@pytest.mark.parametrize("chapter", PAGES)
def test_cells_are_short_and_plain(chapter):
    for cell in code_cells(chapter):
        lines = cell.source.splitlines()
        if "long-cell" in cell.metadata.get("tags", []):
            assert lines[0].startswith("# long cell:") and len(lines) <= 45, "say why after '# long cell:'"
        else:
            assert len(lines) <= 15, cell.source
        assert not [line for line in lines if line.rstrip().endswith(";")], "a trailing ; hides nothing from nbval"
        for line in lines:
            assert len(line) <= 78, f"wider than the page: {line}"
            if "NBVAL_IGNORE_OUTPUT" in line:
                assert len(line.split("NBVAL_IGNORE_OUTPUT", 1)[1].split()) >= 3, "a reason is missing beside it"


@pytest.mark.parametrize("chapter", PAGES)
def test_outputs_are_small_and_pictures_have_alt_text(chapter):
    path = ROOT / "book" / f"{chapter}.ipynb"
    assert path.stat().st_size <= 1_500_000
    for cell in code_cells(chapter):
        for output in cell.outputs:
            assert len(str(output.get("data", output))) <= 200_000
            for kind in output.get("data", {}):
                if kind.startswith("image/"):
                    assert len(output.metadata.get(kind, {}).get("alt", "").split()) >= 5, "image without alt text; use picture(fig, alt)"
            assert "<img" not in html_of(cell) or "alt=\"\"" not in html_of(cell)
    assert not re.findall(r"!\[\s*\]\(", source(chapter)), "image without alt text"


def test_sources_are_not_built_beside_their_notebooks():
    excluded = yaml.safe_load((ROOT / "_config.yml").read_text("utf8"))["exclude_patterns"]
    for md in SOURCES:
        assert any(fnmatch.fnmatch(f"book/{md.name}", pattern) for pattern in excluded), f"_config.yml does not exclude book/{md.name}"


def test_the_table_of_contents_holds_every_page():
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf8"))
    listed = [c["file"] for part in toc["parts"] for c in part["chapters"]]
    assert [f for f in listed if re.match(r"book/(\d\d|A\d)-", f)] == [f"book/{c}" for c in PAGES]
    index = (ROOT / "book" / "index.md").read_text("utf8")
    for chapter in PAGES:
        assert f"({chapter}.ipynb)" in index, f"the landing page does not lead to {chapter}"


@pytest.mark.parametrize("chapter", PAGES)
def test_markdown_reads_as_text_elsewhere(chapter):
    text = source(chapter)
    directives = [d for d in re.findall(r"^\s*`{3,}\{([\w:-]+)\}", text, re.M) if d != "code-cell"]
    assert not directives, f"use colon fences for {directives}"
    assert not re.findall(r"^#+ .*\$", text, re.M), "math in a heading"


@pytest.mark.parametrize("chapter", PAGES)
def test_every_displayed_equation_has_a_label_that_code_evaluates(chapter):
    text = source(chapter)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    blocks = re.findall(r"\$\$(.+?)\$\$([^\n]*)", prose, re.S)
    labels = [re.match(r"\s*\((eq:[\w-]+)\)", after) for _, after in blocks]
    assert all(labels), [tex[:60] for (tex, _), label in zip(blocks, labels) if not label]
    code = "\n".join(c.source for c in code_cells(chapter)) + "".join(p.read_text("utf8") for p in (ROOT / "tests").glob("*.py"))
    for label in labels:
        assert f"({label[1]})" in code, f"no cell or test says that it evaluates ({label[1]})"


def all_claims():
    for chapter in PAGES:
        for cell in code_cells(chapter):
            for call in calls(cell.source, "claim"):
                yield chapter, cell, call


def test_every_claim_is_shown_and_has_its_own_name():
    names = []
    for chapter, cell, call in all_claims():
        name = ast.literal_eval(call.args[0])
        assert f'data-claim="{name}"' in html_of(cell), f"claim {name} is not the cell's last expression"
        names.append(name)
    assert len(names) == len(set(names)) and names


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_chapter_decides_its_rows_of_the_audit(chapter):
    assert chapter in ROWS, f"enter the rows of the audit that {chapter} decides in ROWS"
    decided = set()
    for cell in code_cells(chapter):
        for rows in re.findall(r'data-rows="([^"]*)"', html_of(cell)):
            decided |= {int(r.split(":")[1]) for r in rows.split()}
    assert set(ROWS[chapter]) <= decided, f"undecided: {sorted(set(ROWS[chapter]) - decided)}"


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_anatomy(chapter):
    text = source(chapter)
    for needed in ("You will be able to", "Prerequisites", "Pause and think", "Pitfall", "## Exercises", "## What to remember",
                   "## Where the sources differ", "## Further reading", "## How to cite this chapter", "figure("):
        assert needed in text, f"{chapter} has no “{needed}”"
    assert text.index("## Exercises") < text.index("## What to remember")


@pytest.mark.parametrize("page", PARTS)
def test_parts_of_the_other_pages(page):
    for needed in PARTS[page]:
        assert needed in source(page), f"{page} has no “{needed}”"


def test_every_page_sets_up_in_the_same_way():
    """The first cell differs from page to page in its imports alone."""
    def setup(page):
        return code_cells(page)[0].source.partition("np.__version__)\n")[0]
    assert len({setup(page) for page in PAGES}) == 1


# ---- exercises ------------------------------------------------------------------------------------

def exercises():
    """(chapter, exercise, set-up code, stub code, solution code) for every exercise of the book."""
    for chapter in PAGES:
        text = source(chapter)
        setup = code_cells(chapter)[0].source
        for cell in code_cells(chapter):
            for call in calls(cell.source, "check"):
                name = ast.literal_eval(call.args[0])
                after = text.partition(f'check("{name}"')[2].partition("\n:::{exercise}")[0]      # up to the next exercise
                box = re.search(r"^:+\{dropdown\} Solution\n(.*?)^:+\s*$", after, re.S | re.M)
                solution = "\n".join(re.findall(r"^```python\n(.*?)^```", box[1] if box else "", re.S | re.M))
                yield pytest.param(chapter, name, setup, cell.source, solution, id=name)


def verdict(code, name, call):
    """Run code that may end in a check; what the check says."""
    space, code = {"__name__": "exercise"}, notebooks.plain(code)
    linecache.cache[name] = len(code), None, code.splitlines(True), name        # Triton reads the source of kernels
    tree = ast.parse(code)
    tree.body = [n for n in tree.body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Call)
                                              and getattr(n.value.func, "id", "") == "check")]
    exec(compile(tree, name, "exec"), space)
    space["check"] = check
    return eval(call, space)


@pytest.mark.parametrize("chapter, name, setup, stub, solution", list(exercises()))
def test_stub_is_refused_and_solution_accepted(chapter, name, setup, stub, solution):
    assert solution, "no solution: write ':::{dropdown} Solution' with a ```python block"
    call = ast.unparse(calls(stub, "check")[0])
    refused = verdict(setup + "\n" + stub, name, call)
    assert not refused.accepted and len(refused.message) > 20
    accepted = verdict(setup + "\n" + solution, name, call)
    assert accepted.accepted, accepted.message




def test_every_checker_belongs_to_an_exercise():
    used = {p.id for p in exercises()}
    there = {f"{c}/{n}" for c in chapters() for n in importlib.import_module(f"poslib.teach.checkers.{c}").__all__}
    assert used == there


@pytest.mark.parametrize("chapter", PAGES)
def test_exercises_say_minutes_and_difficulty_and_hide_hint_and_solution(chapter):
    text = source(chapter)
    found = re.findall(r"^:::\{exercise\}.*?^:::\s*$", text, re.S | re.M)
    assert len(found) <= 5 and (len(found) >= 3 or chapter not in CHAPTERS)
    for exercise in found:
        assert re.search(r"\d+ minutes?, (easy|medium|hard)", exercise), exercise[:80]
    assert text.count("{dropdown} Hint") >= len(found) and text.count("{dropdown} Solution\n") == len(found)


# ---- bibliography ---------------------------------------------------------------------------------

def test_references_can_be_found():
    from pybtex.database import parse_file
    for key, entry in parse_file(str(ROOT / "book" / "references.bib")).entries.items():
        fields = set(map(str.lower, entry.fields))
        assert {"doi", "eprint"} & fields or {"howpublished", "url"} <= fields, f"{key} has neither DOI nor arXiv id, nor says what it is and where"


def test_jupytext_reads_what_it_wrote():
    for md in SOURCES:
        once = jupytext.writes(jupytext.read(md), fmt="md:myst")
        assert once == jupytext.writes(jupytext.reads(once, fmt="md:myst"), fmt="md:myst")
