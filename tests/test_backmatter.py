"""The back matter: what is made from the notebooks is whole, and leads to where it says."""

import ast
import importlib
import pickle
import re
import sys
from urllib.parse import urlsplit

import pytest
import yaml
from bs4 import BeautifulSoup
from pybtex.database import parse_file, parse_string

from conftest import ROOT, SITE, need_site
from poslib.teach import figures
from poslib.teach.claims import KINDS, LAST_ROW

sys.path.insert(0, str(ROOT / "tools"))
back = importlib.import_module("backmatter")

BOOK = ROOT / "book"
MADE = {"claims": back.ClaimsOfKind, "audit": back.Audit, "instructors": back.Exercises, "citing": back.Bibtex}     # pages, and what makes them
PAGES = back.pages()
CHAPTERS = [p for p in PAGES if back.number(p)]
DECIDERS = back.deciders()
CLAIMS = {claim.name: (page, claim) for page in PAGES for claim in back.claims(page)}


def article(page):
    need_site()
    return BeautifulSoup((SITE / "book" / f"{page}.html").read_text("utf8"), "html.parser").select_one("article")


def links(node):
    """(file, fragment) of every link, as written."""
    return [(urlsplit(a["href"]).path, urlsplit(a["href"]).fragment) for a in node.select("a.reference.internal[href]")]


def target(page, anchor):
    return f"{page}.html", anchor


# ---- what is read ---------------------------------------------------------------------------------

def test_all_pages_with_claims_and_their_claims_are_read():
    assert {f"{p.stem}" for p in BOOK.glob("*.ipynb")} == set(PAGES)
    for page in PAGES:
        stored = BeautifulSoup("".join("".join(o.get("data", {}).get("text/html", "")) for c in back.cells(page, "code") for o in c["outputs"]), "html.parser")
        boxes = stored.select(".claim")
        assert [b["data-claim"] for b in boxes] == [c.name for c in back.claims(page)]
        for box, claim in zip(boxes, back.claims(page)):
            assert f"verified {claim.statement} {claim.bound}" in box.get_text() and box["data-kind"] == claim.kind in KINDS
    assert len(CLAIMS) == sum(len(back.claims(page)) for page in PAGES) > 300


def test_a_claim_that_cannot_be_read_is_an_error(monkeypatch):
    output = {"outputs": [{"data": {"text/html": '<div class="claim" id="claim-a">of another make</div>'}}]}
    monkeypatch.setattr(back, "cells", lambda page, kind: [output])
    with pytest.raises(ValueError, match="1 claims are stored, 0 can be read"):
        back.claims("a-page")


@pytest.mark.parametrize("page", MADE)
def test_page_is_made_again_when_what_it_is_made_of_changes(page):
    """Sphinx reads a page again when one of its dependencies is newer."""
    need_site()
    environment = pickle.loads((SITE.parent / ".doctrees" / "environment.pickle").read_bytes())
    noted = {(ROOT / f).resolve() for f in environment.dependencies[f"book/{page}"]}
    needed = [ROOT / "_toc.yml", *(BOOK / f"{p}.ipynb" for p in PAGES), *(ROOT / f for f in MADE[page].made_of)]
    assert {f.resolve() for f in needed} <= noted


# ---- claims ---------------------------------------------------------------------------------------

def test_every_claim_is_listed_under_its_kind_and_leads_to_its_cell():
    page = article("claims")
    for kind in KINDS:
        items = page.select(f"#{kind} li")
        wanted = [(p, c) for p, c in CLAIMS.values() if c.kind == kind]
        assert [links(i)[0] for i in items] == [target(p, f"claim-{c.name}") for p, c in wanted]
        for item, (_, claim) in zip(items, wanted):
            assert claim.bound in item.get_text()
            assert {f"row-{r.lower().replace(':', '-')}" for r in claim.rows} <= {fragment for _, fragment in links(item)}
            if kind == "proved":
                assert claim.source in {fragment for _, fragment in links(item)}, "no link to the theorem"


def test_cited_claims_name_an_entry_of_the_bibliography():
    known = set(parse_file(str(BOOK / "references.bib")).entries)
    for _, claim in CLAIMS.values():
        if claim.kind == "cited":
            assert claim.source.split(",")[0] in known or claim.source.startswith("the census"), claim


# ---- the audit ------------------------------------------------------------------------------------

def test_the_audit_has_every_row_once_and_in_order():
    for source, (first, last) in LAST_ROW.items():
        assert [row["row"] for s, row in back.rows() if s == source] == list(range(first, last + 1))


def test_every_row_has_a_verdict_that_is_defined_a_reason_and_where_needed_a_reading():
    verdicts = back.audit()[0]
    for source, row in back.rows():
        assert row["verdict"] in verdicts, f"{source}:{row['row']}"
        assert set(row) == {"row", "says", "verdict", "because"} | ({"reading"} if row["verdict"] != "right" else set()), row
        for field in {"says", "because", "reading"} & set(row):
            assert 5 <= len(row[field]) <= 220 and "\n" not in row[field] and row[field].endswith((".", "?")), row
    assert set(verdicts) == {row["verdict"] for _, row in back.rows()}
    assert all(len(label) < 30 and meaning.endswith(".") for label, meaning in verdicts.values())


def test_every_row_is_decided_by_a_claim():
    undecided = {f"{source}:{row['row']}" for source, row in back.rows()} - set(DECIDERS)
    assert not undecided, "no claim has these rows"


def test_rows_that_are_listed_by_chapters_are_rows():
    known = {f"{source}:{row['row']}" for source, row in back.rows()}
    assert set(DECIDERS) <= known


def test_every_row_is_shown_with_its_verdict_and_leads_to_the_claims_that_decide_it():
    page, verdicts = article("audit"), back.audit()[0]
    for source, row in back.rows():
        label = f"{source}:{row['row']}"
        box = page.select_one("#" + back.row_id(label))
        assert box.select_one("strong").get_text() == label
        assert box.select_one(".audit-verdict").get_text() == verdicts[row["verdict"]][0]
        assert links(box.select_one(".audit-links")) == [target(p, f"claim-{c.name}") for p, c in DECIDERS.get(label, [])]
    assert len(page.select(".audit-row")) == len(back.rows())


def test_the_list_of_verdicts_counts_every_row():
    found = [fragment for block in article("audit").select("#the-verdicts .audit-links") for _, fragment in links(block)]
    assert sorted(found) == sorted(back.row_id(f"{source}:{row['row']}") for source, row in back.rows())


# ---- errata of the literature ---------------------------------------------------------------------

def test_each_erratum_says_what_was_published_what_holds_and_where_it_is_in_full():
    entries = re.split(r"^### ", back.text("A2-literature"), flags=re.M)[1:]
    assert len(entries) >= 10
    for entry in entries:
        assert entry.count("**Published.**") == entry.count("**Holds.**") == entry.count("In full:") == 1, entry[:60]
        assert re.search(r"\{doc\}`[^`]*<\d\d-", entry.partition("In full:")[2]), entry[:60]
    for cell in back.cells("A2-literature", "code")[1:]:
        lines = "".join(cell["source"]).splitlines()
        assert sum(bool(line.strip()) for line in lines) <= 10 and "claim(" in "".join(lines)


# ---- for instructors ------------------------------------------------------------------------------

def test_every_exercise_is_listed_with_minutes_difficulty_and_a_link():
    boxes = {page: len(re.findall(r"^:::+\{exercise\}", back.text(page), re.M)) for page in PAGES}
    assert boxes == {page: len(back.exercises(page)) for page in PAGES} and sum(boxes.values()) > 50
    body = article("instructors").select("#exercises tbody tr")
    listed = [(links(r)[0], *(td.get_text() for td in r.select("td")[1:])) for r in body if len(r.select("td")) == 3]
    wanted = [(target(page, e.label), str(e.minutes), e.difficulty) for page in PAGES for e in back.exercises(page)]
    assert listed == wanted


def test_every_chapter_says_how_long_it_takes_and_needs_only_what_comes_before():
    for k, page in enumerate(p for p in PAGES if back.CHAPTER.match(p)):
        assert 10 <= back.reading_minutes(page) <= 120, page
        assert all(PAGES.index(n) < k for n in back.needs(page)) and (back.needs(page) or k < 2), page
    body = article("instructors").select("#what-each-chapter-needs tbody tr")
    assert len(body) == len(CHAPTERS) + 1
    for line, page in zip(body, [p for p in PAGES if back.CHAPTER.match(p)]):
        cells = line.select("td")
        assert links(cells[0]) == [target(page, "")] and cells[1].get_text() == str(back.reading_minutes(page))
        assert links(cells[3]) == [target(n, "") for n in back.needs(page)]
    drawn = article("instructors").select("svg.needs path[marker-end]")
    assert len(drawn) == sum(len(back.needs(p)) for p in PAGES if back.CHAPTER.match(p))
    assert len(article("instructors").select("svg.needs text")) == len(body)


def test_every_figure_is_listed_with_the_page_that_shows_it():
    shown = [(kind, page) for page in PAGES for kind in back.shown_figures(page)]
    assert {kind for kind, _ in shown} == set(figures.kinds())
    body = article("instructors").select("#figures-to-show tbody tr")
    assert [(line.select_one("code").get_text(), links(line)[0][0].removesuffix(".html")) for line in body] == shown
    assert [line.select("td")[1].get_text().replace("’", "'") for line in body] == [back.figure_title(kind).replace("’", "'") for kind, _ in shown]


def course(hours):
    """Its lines, each as the list of its parts."""
    block = re.search(rf"^:::\{{course\}} {hours}\n(.*?)^:::", (BOOK / "instructors.md").read_text("utf8"), re.S | re.M)[1]
    return [[part.strip() for part in line.split("|")] for line in block.strip().splitlines()]


@pytest.mark.parametrize("hours", [2, 6, 12])
def test_after_each_session_of_two_hours_stands_what_a_student_can_do_and_an_exercise_of_it(hours):
    shown, sessions, minutes, read = [], 0, 0, set()
    homes = {e.label: page for page in PAGES for e in back.exercises(page)}
    for first, what, *_ in course(hours):
        if first != "after":
            minutes, read = minutes + int(first), read | set(re.findall(r"\{doc\}`[^`]*<(\d\d-[\w-]+)>`", what)) | {homes[x] for x in re.findall(r"<(ex-[\w-]+)>", what)}
            continue
        needed = re.findall(r"\{ref\}`[^`]*<(ex-[\w-]+)>`", what)
        assert needed and {homes[label] for label in needed} <= read, what
        assert minutes == 120
        sessions, minutes, read = sessions + 1, 0, set()
        shown.append([target(homes[label], label) for label in needed])
    assert (sessions, minutes) == (hours // 2, 0)
    table = article("instructors").select("#three-courses > section table")[[2, 6, 12].index(hours)]
    rows = [r for r in table.select("tbody tr") if r.get_text().strip().startswith("After these 120 minutes a student can ")]
    assert [links(r) for r in rows] == shown


def test_checkers_print_no_line_of_a_solution():
    """The page for instructors says so."""
    seen = 0
    for page in PAGES:
        kept = "\n".join("".join(c["source"]) for c in back.cells(page, "markdown"))
        code = re.findall(r"\{dropdown\} Solution\n```python\n(.*?)^```", kept, re.S | re.M)
        lines = {line.strip() for block in code for line in block.splitlines() if len(line.strip()) > 15}
        names = {n for cell in back.cells(page, "code") for n in re.findall(r'check\("(\w+)/', "".join(cell["source"]))}
        for name in names:
            tree = ast.parse((ROOT / "poslib" / "teach" / "checkers" / f"{name}.py").read_text("utf8"))
            said = "\n".join(n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str))
            assert not [line for line in lines if line in said], name
            seen += len(lines)
    assert seen > 300


@pytest.mark.parametrize("hours", [2, 6, 12])
def test_courses_take_the_hours_that_they_promise(hours):
    lines = [line for line in course(hours) if line[0] != "after"]
    assert sum(int(minutes) for minutes, _, _ in lines) == 60 * hours
    for name in re.findall(r"`([a-z-]+)`", "".join(with_what for _, _, with_what in lines)):
        assert name in figures.kinds()
    sections = article("instructors").select("#three-courses > section table")
    assert str(60 * hours) in [t.select("tbody tr")[-1].select_one("strong").get_text() for t in sections]


# ---- how to cite ----------------------------------------------------------------------------------

def plain(value):
    return value.replace("{", "").replace("}", "")


def test_entries_are_made_from_citation_cff_and_agree_with_those_of_the_chapters():
    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf8"))
    keys = [next(iter(parse_string(back.bibtex(), "bibtex").entries))]
    for page in PAGES:
        key, own = back.own_entry(page)
        data = parse_string(back.bibtex(page), "bibtex").entries
        made = data[key]
        fields = {n: plain(v) for n, v in made.fields.items()} | {"author": plain(str(made.persons["author"][0]))}
        assert fields["note"] == f"Version {cff['version']}" and fields["url"] == cff["repository-code"]
        for name, value in own.items():
            assert fields[name] == plain(value), f"{page} says {name} = {value}"
        assert fields.get("chapter") == (str(back.number(page)) if back.number(page) else None)
        keys.append(key)
    assert len(keys) == len(set(keys))
    shown = [block.get_text().strip() for block in article("citing").select("pre")]
    assert shown == [back.bibtex(), *map(back.bibtex, PAGES)]


def test_the_examples_cite_a_claim_and_a_figure_by_name_version_and_address():
    version = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf8"))["version"]
    quotes = article("citing").select("blockquote")
    assert len(quotes) == 2
    for quote, what in zip(quotes, ("claim", "figure")):
        called, said = quote.select_one("code").get_text(), quote.get_text().replace("’", "'")
        assert f"{what} {called}, version {version}, " in said
        address = urlsplit(quote.select_one("a")["href"])
        page = address.path.removesuffix(".html")
        latex = quote.find_next_sibling("p").select_one("code").get_text()
        assert latex == f"\\cite[{what} \\texttt{{{called}}}, version {version}]{{{back.own_entry(page)[0]}}}"
        if what == "claim":
            home, claim = CLAIMS[called]
            assert (page, address.fragment) == (home, f"claim-{called}") and f"“{claim.statement}” [{claim.bound}; {claim.kind}" in said
            assert article(page).select_one(f"#{address.fragment}")
        else:
            state = dict(part.split("=") for part in address.query.split("&"))
            assert called in back.shown_figures(page) and all(key.startswith(f"{called}.") for key in state)
            numbers = {key.partition(".")[2]: int(x) for key, x in state.items()}
            got = figures.Figure(called, **numbers).compute()
            assert got["query"]["position"] == numbers["i"] + numbers["shift"] and got["lag"] == numbers["i"] - numbers["j"]


@pytest.mark.parametrize("wrong", [("no-such-figure", "i=1"), ("rope-pair", "nowhere=1"), ("rope-pair", "i=1000")])
def test_an_example_with_a_state_that_its_figure_lacks_is_an_error(wrong):
    with pytest.raises(ValueError):
        back.figure_to_cite(*wrong)


# ---- glossary, bibliography, numbers --------------------------------------------------------------

def test_terms_are_sorted_lead_to_a_page_and_are_in_the_index():
    terms = article("glossary").select("dl.glossary > dt")
    names = [next(t.stripped_strings) for t in terms]
    assert len(names) > 50 and names == sorted(names, key=str.casefold) and len(set(names)) == len(names)
    for term in terms:
        said = term.find_next_sibling("dd")
        assert [1 for file, _ in links(said) if file] and len(re.findall(r"\.\s", said.get_text())) <= 4, term.get_text()
    index = (SITE / "genindex.html").read_text("utf8")
    assert index.count('href="book/glossary.html#term-') >= len(names)


@pytest.mark.parametrize("page", ["13-context-extension", "14-real-model", "17-choosing"])
def test_terms_that_a_chapter_uses_lead_to_the_glossary(page):
    used = [m[1] or m[2] for m in re.finditer(r"\{term\}`(?:[^`<]*<([^`>]+)>|([^`]+))`", back.text(page))]
    shown = [fragment for file, fragment in links(article(page)) if file == "glossary.html" and fragment.startswith("term-")]
    assert 4 <= len(used) == len(set(used)) == len(shown) and all(fragment.startswith("term-") for fragment in shown)


def cited():
    for page in BOOK.glob("*.md"):
        for keys in re.findall(r"\{cite:\w+\}`([^`]+)`", page.read_text("utf8")):
            yield from (key.strip() for key in keys.split(","))


def test_every_entry_is_cited_and_every_citation_is_an_entry():
    entries = set(parse_file(str(BOOK / "references.bib")).entries)
    assert set(cited()) == entries


def test_identifiers_of_the_bibliography_look_like_identifiers():
    for key, entry in parse_file(str(BOOK / "references.bib")).entries.items():
        fields = {n.lower(): v for n, v in entry.fields.items()}
        assert {"doi", "eprint"} & set(fields) or {"howpublished", "url"} <= set(fields), key
        assert re.fullmatch(r"10\.\d{4,}/\S+", fields.get("doi", "10.1000/x")), key
        assert re.fullmatch(r"\d{4}\.\d{4,5}", fields.get("eprint", "1706.03762")), key
        assert fields.get("url", "https://a").startswith("http"), key


def test_the_back_matter_is_whole_and_the_landing_page_leads_to_it():
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf8"))
    part = next(p for p in toc["parts"] if p.get("caption") == "Back matter")
    files = [c["file"].removeprefix("book/") for c in part["chapters"]]
    assert files == ["A1-notation", "claims", "audit", "A2-literature", "glossary", "instructors", "citing", "errata", "bibliography"]
    assert {f"{f}.html" for f in files} <= {file for file, _ in links(article("index"))}


# Headline numbers of the plan: the claim that has it, a page and the words that show it, or why the book does without.
NUMBERS = {
    "H1 wavelengths": ("04-sinusoids", "60,611 steps a turn, not 62,832"),
    "H2 learned or sinusoidal": ("04-sinusoids", "25.8 and 25.7 BLEU"),
    "H3 equivariance": "stack-is-equivariant",
    "H4 order by depth": "order-from-depth-two",
    "H5 probe baseline": "baseline-distance",
    "H6 gap without positions": "masked-models-need-positions",        # measured here; the published perplexities could not be looked up
    "H7 T5 buckets": "t5-buckets",
    "H8 ALiBi slopes": "two-rules-for-slopes",
    "H9 ALiBi's flatness": "ext-press-recovered",
    "H10 decay curve": ("09-frequencies", "lag    0: 32.50"),
    "H11 no decay on average": "freq-random",
    "H12 best at any distance": "freq-aimed",
    "H13 base bounds": "freq-smaller",
    "H14 power law": "freq-power-law",
    "H15 wide limit": "freq-limit",
    "H16 first sign change": ("09-frequencies", "base    10,000 first fails at lag  1,707"),
    "H17 interpolation bound": "cx-pi-512",
    "H18 extrapolation term": ("13-context-extension", "times a factor that is 1.12"),
    "H19 NTK base": "cx-ntk",
    "H20 blow-up of a fit": None,       # a least-squares fit is no model; chapters 7, 13 and 14 measure trained ones
    "H21 YaRN's temperature": "cx-yarn-sharpens",
    "H22 YaRN's ramp": "cx-two-yarns",
    "H23 Llama 3.1": "cx-llama3",
    "H24 critical dimension": "freq-finished",
    "H25 slow bands": "freq-finished",
    "H26 turns in training": "freq-census-slow",
    "H27 positions in bf16": "col-distinct-positions",
    "H28 bf16 is not relative": "rip-not-relative",
    "H29 traffic": "baf-chain",
    "H30 skew": ("11-bytes-and-flops", "8.59 GB of vectors, 4.19 MB"),
    "H31 Llama 4": ("13-context-extension", "Llama 4 at positions 8,190, 131,071, 1,048,575: 1.000 1.283"),
    "H32 attention fading": "cx-log-n",
    "H33 gap": "cx-gap",
    "H34 MLA": "baf-mla-cache",
    "H35 variance clock": "variance-is-a-clock",
    "H36 phase bounds": None,           # an abstract alone was seen; chapter 9 has the bounds that it proves
    "H37 predecessor sets": "same-predecessors",
    "H38 ALiBi on keys alone": "alibi-is-key-only",
}


@pytest.mark.parametrize("number", NUMBERS)
def test_each_headline_number_is_where_it_is_said_to_be(number):
    where = NUMBERS[number]
    if isinstance(where, str):
        assert where in CLAIMS
    elif where:
        page, words = where
        shown = back.text(page) + "".join("".join(o.get("text", "")) for c in back.cells(page, "code") for o in c["outputs"])
        assert words in shown


def test_all_headline_numbers_are_there():
    assert [n.split()[0] for n in NUMBERS] == [f"H{k}" for k in range(1, 39)]
