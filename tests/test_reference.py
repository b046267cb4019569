"""Docstrings of the public names, the examples in them, and the reference pages that are made of them."""

import ast
import doctest
import importlib
import inspect
import re
import sys

import pytest
import yaml
from bs4 import BeautifulSoup
from numpydoc.docscrape import NumpyDocString

from conftest import ROOT, SITE, need_site

# Every module that says what is public, except the experiments and the checkers of exercises.
FILES = sorted(p for folder in ("poslib", "poslib/kernels", "poslib/teach") for p in (ROOT / folder).glob("[a-z]*.py"))
MODULES = [".".join(p.relative_to(ROOT).with_suffix("").parts) for p in FILES if "__all__ = " in p.read_text("utf8")]
PAGES = [f["file"] for part in yaml.safe_load((ROOT / "_toc.yml").read_text("utf8"))["parts"]
         for f in part["chapters"] if f["file"].startswith("book/reference/")]
HOOKS = {"extra_repr"}                      # torch's, called by repr


def methods(cls):
    """Methods and properties of a class."""
    return [(n, m) for n, m in vars(cls).items()
            if (inspect.isfunction(m) or isinstance(m, property)) and not n.startswith("_") and n not in HOOKS]


def public(module):
    """(full name, object) of what a module offers, in order: names of `__all__`, and the methods of its own classes."""
    home = importlib.import_module(module)
    for name in home.__all__:
        thing = getattr(home, name)
        yield f"{module}.{name}", thing
        if inspect.isclass(thing) and thing.__name__ == name and not issubclass(thing, tuple):
            yield from ((f"{module}.{name}.{m}", function) for m, function in methods(thing))


DOCUMENTED = [(name, thing) for module in MODULES for name, thing in public(module) if callable(thing)]


def parameters(thing):
    """Names in the signature, as a docstring writes them."""
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    if inspect.isclass(thing) and issubclass(thing, BaseException) and "__init__" not in vars(thing):
        return None                         # Exception's own signature says nothing
    return [stars.get(p.kind, "") + p.name for p in inspect.signature(thing).parameters.values() if p.name != "self"]


def sections(thing):
    return NumpyDocString(inspect.cleandoc(thing.__doc__ or ""))


def test_the_modules_are_found():
    assert {"poslib.attention", "poslib.nn", "poslib.relative", "poslib.teach.claims"} <= set(MODULES) and len(DOCUMENTED) > 60


@pytest.mark.parametrize("name, thing", DOCUMENTED, ids=[n for n, _ in DOCUMENTED])
def test_docstring_says_what_goes_in_and_what_comes_out(name, thing):
    doc = sections(thing)
    assert " ".join(doc["Summary"]).endswith("."), "the first line is a sentence"
    written = [n for p in doc["Parameters"] for n in p.name.split(", ")]
    wanted = parameters(thing)
    assert written == wanted if wanted is not None else written
    assert inspect.isclass(thing) or doc["Returns"], "no section Returns"


def example(thing):
    return "\n".join(sections(thing)["Examples"]).strip("\n")


@pytest.mark.parametrize("name, thing", DOCUMENTED, ids=[n for n, _ in DOCUMENTED])
def test_example_is_short_and_runs_after_the_line_that_its_page_names(name, thing):
    text = example(thing)
    lines = [line for line in text.splitlines() if line.strip()]
    assert 2 <= len(lines) <= 6 and lines[0].startswith(">>> "), "an example of two to six lines"
    assert max(map(len, lines)) <= 120 and not re.search(r"\d\.\d{9}", text), "wide, or not rounded"
    assert doctest.DocTestParser().get_examples(text)[-1].want, "an example that shows nothing"
    module = next(m for m in MODULES if name.startswith(m + "."))
    space = {}
    exec(f"from {module} import *", space)
    said = []
    test = doctest.DocTestParser().get_doctest(text + "\n", space, name, None, 0)
    doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    assert not said, "".join(said)


def test_arxiv_ids_are_those_of_the_bibliography():
    known = set(re.findall(r"eprint = \{([\d.]+)\}", (ROOT / "book" / "references.bib").read_text("utf8")))
    cited = {i for p in FILES for i in re.findall(r"arXiv (\d{4}\.\d+)", p.read_text("utf8"))}
    assert len(cited) > 8 and cited <= known, cited - known


def imported_at_once(node):
    """Packages that a module needs to be imported at all; those of functions come later."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (a.name.split(".")[0] for a in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield child.module.split(".")[0]
        elif not isinstance(child, ast.FunctionDef):
            yield from imported_at_once(child)


def test_the_light_set_can_read_every_module():
    """What this environment has and the light set has not must be mocked, or `make book` fails elsewhere."""
    mocked = yaml.safe_load((ROOT / "_config.yml").read_text("utf8"))["sphinx"]["config"]["autodoc_mock_imports"]
    needed = {name for folder in ("poslib", "poslib/kernels", "poslib/teach") for p in (ROOT / folder).glob("*.py")
              for name in imported_at_once(ast.parse(p.read_text("utf8")))}
    assert {"numpy", "torch"} <= needed and needed - set(sys.stdlib_module_names) - {"poslib"} <= set(mocked)


# ---- pages ----------------------------------------------------------------------------------------

def shown(page):
    """What a page documents, in its order, and the modules it names in its import lines."""
    need_site()
    soup = BeautifulSoup((SITE / f"{page}.html").read_text("utf8"), "html.parser")
    names = [d["id"] for d in soup.select("dt.sig[id]")]
    return names, re.findall(r"from (poslib[\w.]*) import \*", soup.select_one("article").get_text())


def test_every_public_name_is_on_a_page_and_nothing_else_is():
    names = [n for page in PAGES for n in shown(page)[0]]
    wanted = {n for module in MODULES for n, _ in public(module)}
    assert sorted(set(names)) == sorted(names), "shown twice"
    assert wanted - set(names) == set(), "missing"
    assert set(names) - wanted == set(), "not public"


@pytest.mark.parametrize("page", PAGES)
def test_page_is_whole_and_in_the_order_of_all(page):
    names, modules = shown(page)
    for module in modules:
        own = [n.removeprefix(module + ".") for n in names if n.startswith(module + ".")]
        assert [n for n in own if "." not in n] == importlib.import_module(module).__all__
    assert modules and {n for n in names if not n.startswith(tuple(m + "." for m in modules))} == set()
    article = BeautifulSoup((SITE / f"{page}.html").read_text("utf8"), "html.parser").select_one("article")
    intro = article.select_one("h1 + p").get_text()
    assert len(re.findall(r"\.\s|[.:]$", intro)) == 2, f"an introduction of two sentences: {intro}"
    for entry in article.select("dt.sig[id]"):
        assert "*args" not in entry.get_text(), "the signature of a mock"
    left = [t for t in ("\\|", ":py:", "---", "`arXiv") if t in article.get_text()]
    assert not left, f"not rendered: {left}"


def test_arxiv_ids_are_links_and_names_lead_to_names():
    for page in PAGES:
        article = BeautifulSoup((SITE / f"{page}.html").read_text("utf8"), "html.parser").select_one("article")
        text = re.findall(r"arXiv \d{4}\.\d+", article.get_text())
        assert text == [a.get_text() for a in article.select("a[href^='https://arxiv.org/abs/']")]
    article = BeautifulSoup((SITE / "book/reference/relative.html").read_text("utf8"), "html.parser")
    linked = {a["href"] for a in article.select("dd a.reference.internal[href*='#poslib']")}
    assert {"#poslib.relative.t5_buckets", "attention.html#poslib.attention.scores"} <= linked
    assert "#poslib.relative.positions" not in str(article)


def test_a_parameter_that_is_called_like_a_function_is_no_link():
    article = BeautifulSoup((SITE / "book/reference/rotary.html").read_text("utf8"), "html.parser")
    body = article.find(id="poslib.rotary.tables").find_next_sibling("dd")
    assert "angles" in [c.get_text() for c in body.select("code")]
    assert not body.select("a[href='#poslib.rotary.angles']")


def test_index_and_readme_say_where_the_reference_is():
    index = (ROOT / "book" / "index.md").read_text("utf8")
    for page in PAGES:
        assert f"({page.removeprefix('book/')}.md)" in index, f"the landing page does not lead to {page}"
    assert "book/reference/" in (ROOT / "README.md").read_text("utf8")
