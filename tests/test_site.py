"""Every built page, in a browser without a network and in its files: nothing broken, nothing missing."""

import gzip
import re
import subprocess
from urllib.parse import unquote, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from bs4 import BeautifulSoup

from conftest import ROOT, SITE

PAGES = sorted(p.relative_to(SITE).as_posix() for p in SITE.rglob("*.html") if "_static" not in p.parts)
CONTENT = [p for p in PAGES if p.startswith("book/")]
SHOTS = SITE.parent / "screenshots"
REPOSITORY = urlsplit(re.search(r"^  url: *(\S+)", ROOT.joinpath("_config.yml").read_text("utf8"), re.M)[1]).path.strip("/")

# Faults of the theme that CSS cannot mend, by axe's rule: where they may occur.
THEME_FAULTS = {}


def soup(page):
    return BeautifulSoup((SITE / page).read_text("utf8"), "html.parser")


def test_the_book_is_built():
    assert "index.html" in PAGES and len(CONTENT) >= 3, "run make book"


def axe_faults(page):
    found = Axe().run(page).response["violations"]
    return [f"{v['id']}: {node['target']} {node['failureSummary'][:300]}" for v in found for node in v["nodes"]
            if not any(re.search(where, str(node["target"])) for where in THEME_FAULTS.get(v["id"], ()))]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_page_in_the_browser(open_page, path, theme):
    page = open_page(path, color_scheme=theme)
    if path == "index.html":
        page.wait_for_url("**/book/index.html")
    page.wait_for_load_state("load")
    page.wait_for_timeout(400)
    SHOTS.mkdir(exist_ok=True)
    for width in (1280, 360):                # first of all: a failing page is worth a look
        page.set_viewport_size({"width": width, "height": 800})
        page.wait_for_timeout(100)
        name = f"{path.replace('/', '-').removesuffix('.html')}-{theme}-{width}.png"
        page.screenshot(path=SHOTS / name, full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, f"scrolls sideways at {width} px"
    assert page.evaluate("document.documentElement.dataset.theme") == theme
    assert page.faults == []
    empty = page.eval_on_selector_all("pos-fig", "figs => figs.filter(f => !f.shadowRoot || f.shadowRoot.querySelectorAll('svg *').length < 5).length")
    assert empty == 0, "a figure is empty"
    assert page.eval_on_selector_all(".bd-article img", "imgs => imgs.filter(i => i.checkVisibility() && !i.naturalWidth).length") == 0, "a broken picture"
    # The theme gives what scrolls a place in the tab order a third of a second after the last change of size, or later on a busy machine.
    page.wait_for_function("[...document.querySelectorAll('pre')].every(e => e.scrollWidth <= e.clientWidth || e.tabIndex === 0)")
    assert axe_faults(page) == []


@pytest.mark.parametrize("path", CONTENT)
def test_page_from_the_disk(open_page, path):
    page = open_page((SITE / path).as_uri())
    page.wait_for_timeout(300)
    assert page.faults == []
    assert page.evaluate("[...document.querySelectorAll('pos-fig')].every(f => f.shadowRoot)")


@pytest.mark.parametrize("path", PAGES)
def test_mathematics_is_set(path):
    page = soup(path)
    for math in page.select(".math"):
        assert math.select_one(".katex math"), f"not set: {math.get_text()[:80]}"
        math.decompose()
    for code in page.select("pre, code, script, style"):
        code.decompose()
    left = re.findall(r"\\\(|\\\[|\$[^$\s][^$]*\$|\\(?:frac|sum|omega|begin)\b", page.get_text())
    assert not left, f"raw TeX: {left[:3]}"


@pytest.mark.parametrize("path", CONTENT)
def test_pictures_have_alt_text_and_headings_are_in_order(path):
    article = soup(path).select_one("article")
    for image in article.select("img"):
        assert len(image.get("alt", "").split()) >= 3, f"alt text of {image.get('src', '')[:60]}"
    levels = [int(h.name[1]) for h in article.select("h1, h2, h3, h4, h5, h6")]
    assert levels.count(1) == 1 and levels[0] == 1
    assert all(b <= a + 1 for a, b in zip(levels, levels[1:])), levels
    assert not article.select("h1 .math, h2 .math, h3 .math"), "math in a heading"


def local_links():
    for path in PAGES:
        page = soup(path)
        for tag, attribute in (("a", "href"), ("img", "src"), ("script", "src"), ("link", "href"), ("iframe", "src")):
            for node in page.find_all(tag, **{attribute: True}):
                link = urlsplit(node[attribute])
                if link.scheme in ("", "file") and not link.netloc:
                    yield path, node[attribute], link


def test_links_and_anchors_resolve():
    anchors, broken = {}, []
    for path, written, link in local_links():
        target = (SITE / path).parent / unquote(link.path) if link.path else SITE / path
        target = target.resolve()
        if not target.is_file():
            broken.append(f"{path}: {written}")
        elif link.fragment and target.suffix == ".html":
            if target not in anchors:
                page = BeautifulSoup(target.read_text("utf8"), "html.parser")
                anchors[target] = {n["id"] for n in page.find_all(id=True)}
            if unquote(link.fragment) not in anchors[target]:
                broken.append(f"{path}: {written} (no such anchor)")
    assert broken == []


def test_nothing_is_loaded_from_outside():
    """Read from the files: what a browser has not asked for yet (lazy, hover) counts too."""
    outside = []
    for path in PAGES:
        page = soup(path)
        for tag, attribute in (("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src"), ("source", "src")):
            for node in page.find_all(tag, **{attribute: True}):
                if urlsplit(node[attribute]).netloc and node.get("rel") not in (["canonical"],):
                    outside.append(f"{path}: {node[attribute]}")
        assert not re.search(r"thebe|require\.js|cdn\.|jsdelivr|unpkg", str(page), re.I), path
    assert outside == []


def in_git():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    assert listed.returncode == 0, "launch buttons are compared with git: " + listed.stderr
    return set(listed.stdout.splitlines())


def test_launch_and_edit_buttons_point_at_files_in_git():
    tracked, seen = in_git(), set()
    for path in CONTENT:
        for a in soup(path).select("a[href]"):
            url = urlsplit(a["href"])
            found = re.search(r"(?:blob|edit|tree)/main/(.+)$", url.path) or re.search(r"lab/tree/([^&]+)", unquote(url.query))
            if found and REPOSITORY in a["href"] and url.netloc in ("colab.research.google.com", "mybinder.org", "github.com"):
                assert found[1] in tracked, f"{path}: {a['href']}"
                seen.add((url.netloc, found[1].rsplit(".")[-1], "edit" in url.path))
    assert ("colab.research.google.com", "ipynb", False) in seen and ("mybinder.org", "ipynb", False) in seen
    assert ("github.com", "md", True) in seen and ("github.com", "ipynb", True) not in seen, "edit leads to the .md"


@pytest.mark.parametrize("path", CONTENT)
def test_a_mistake_can_be_reported_from_every_page(path):
    import yaml
    url = yaml.safe_load((ROOT / "_config.yml").read_text("utf8"))["repository"]["url"]
    link = soup(path).select_one("p.report a")["href"]
    assert link.startswith(f"{url}/issues/new?title=Mistake") and not set("<>") & set(unquote(link)), "the title is text, without tags"


@pytest.mark.parametrize("path", CONTENT)
def test_page_weight(path):
    raw = (SITE / path).read_bytes()
    assert len(raw) <= 1_000_000 and len(gzip.compress(raw)) <= 150_000
