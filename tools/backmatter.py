"""The back matter's Sphinx extension: lists that are made from the notebooks while the book is built.

    {claims} KIND       the claims of one kind, page by page
    {audit-verdicts}    the verdicts of book/audit.yml: what each means, how often, which rows
    {audit} S1          the rows of one text, each with the claims that decide it
    {chapters}          what each page needs, minutes of reading and of exercises; with a drawing of what needs what
    {figures}           the figures that move, and where they are
    {exercises}         every exercise with minutes and difficulty
    {course} HOURS      lines `minutes | what | with what` as a table, and their sum; `after | …` ends a session and says what a student can do then
    {cite-example} …    how to cite one claim (`claim NAME`) or one figure in some state (`figure KIND NAME=NUMBER …`)
    {bibtex}            an entry for the book and for each page that says how to cite it

What a page is made of (notebooks, _toc.yml, audit.yml, CITATION.cff, this file) is noted, so that Sphinx makes it again when that changes.
"""

from __future__ import annotations

import functools
import hashlib
import html
import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

import yaml
from docutils import nodes
from sphinx import addnodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from poslib.teach import figures  # noqa: E402  (poslib need not be installed to build the book)

BOOK = ROOT / "book"
log = logging.getLogger(__name__)


# ---- reading --------------------------------------------------------------------------------------

class Claim(NamedTuple):
    """A claim, as its notebook stores it."""

    name: str
    kind: str
    bound: str
    source: str
    rows: tuple
    statement: str


class Exercise(NamedTuple):
    label: str
    title: str
    minutes: int
    difficulty: str


CLAIM = re.compile(r'<div class="claim" id="claim-[^"]*" data-claim="([^"]*)" data-kind="([^"]*)" data-bound="([^"]*)" '
                   r'data-source="([^"]*)" data-rows="([^"]*)"><a [^>]*>[^<]*</a> (.*?) <span class="claim-how">', re.S)
EXERCISE = re.compile(r"^:::+\{exercise\} (.+)\n:label: (\S+)\n+\*(\d+) minutes?, (\w+)\.\*", re.M)
CHAPTER = re.compile(r"(\d\d)-")


def pages():
    """Names of the pages that are notebooks, in the order of _toc.yml."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf8"))
    files = [c["file"] for part in toc["parts"] for c in part["chapters"]]
    return [f.removeprefix("book/") for f in files if (ROOT / f"{f}.ipynb").exists()]


def cells(page, kind):
    path = BOOK / f"{page}.ipynb"
    return [c for c in _cells(path, path.stat().st_mtime_ns) if c["cell_type"] == kind]


@functools.lru_cache(64)
def _cells(path, changed):
    return json.loads(path.read_text("utf8"))["cells"]


def text(page):
    """What the page says, without its code."""
    return "\n\n".join("".join(c["source"]) for c in cells(page, "markdown"))


def claims(page):
    """The claims of a page, in its order."""
    shown = "\n".join("".join(o.get("data", {}).get("text/html", "")) for c in cells(page, "code") for o in c["outputs"])
    found = [Claim(*map(html.unescape, (n, kind, bound, source)), tuple(rows.split()), html.unescape(statement))
             for n, kind, bound, source, rows, statement in CLAIM.findall(shown)]
    stored = shown.count('<div class="claim"')
    if len(found) != stored:
        raise ValueError(f"{page}: {stored} claims are stored, {len(found)} can be read")
    return found


def title(page):
    return re.search(r"^# (.+)", text(page), re.M)[1]


def number(page):
    """The chapter's number, or None for primer and back matter."""
    found = CHAPTER.match(page)
    return int(found[1]) or None if found else None


def name(page):
    """What a sentence calls the page."""
    if number(page):
        return f"chapter {number(page)}"
    return "the primer" if page.startswith("00-") else title(page)


def exercises(page):
    return [Exercise(label, heading, int(minutes), difficulty) for heading, label, minutes, difficulty in EXERCISE.findall(text(page))]


def reading_minutes(page):
    found = re.search(r"\*\*Time:\*\*\s+(\d+)\s+minutes\s+to\s+read", text(page))
    return int(found[1]) if found else None


def needs(page):
    """Pages that its prerequisites name."""
    found = re.search(r"\*\*Prerequisites:\*\*(.*?)(\*\*Time|\n\n)", text(page), re.S)
    named = re.findall(r"\{doc\}`[^`]*<(\d\d-[\w-]+)>`", found[1]) if found else []
    return [p for p in pages() if p in named]


def shown_figures(page):
    """Names of the figures on a page, each once."""
    code = "\n".join("".join(c["source"]) for c in cells(page, "code"))
    return list(dict.fromkeys(re.findall(r'\bfigure\("([\w-]+)"', code)))


def figure_title(kind):
    return re.search(r"^\s*title: '(.*)',$", (figures.JS / f"{kind}.js").read_text("utf8"), re.M)[1].replace("\\'", "'")


def short_names():
    """What the map on the landing page calls each page."""
    return dict((page, n) for n, page in re.findall(r"\[([^\]]+)\]\(([\w-]+)\.ipynb\)", (BOOK / "index.md").read_text("utf8")))


def audit():
    """The verdicts, and for each text its sections with their rows."""
    data = yaml.safe_load((BOOK / "audit.yml").read_text("utf8"))
    return data.pop("verdicts"), data


def rows():
    """Every row of the audit: ("S1", row)."""
    return [(source, row) for source, sections in audit()[1].items() for section in sections for row in section["rows"]]


def deciders():
    """Row, as "S1:23" -> [(page, claim), …], in the order of the book."""
    found = {}
    for page in pages():
        for claim in claims(page):
            for row in claim.rows:
                found.setdefault(row, []).append((page, claim))
    return found


def own_entry(page):
    """The BibTeX entry that the page prints for itself: its key and fields, or None."""
    found = re.search(r"^```bibtex\n@\w+\{(\w+),\n(.*?)^\}", text(page), re.S | re.M)
    return (found[1], dict(re.findall(r"^ +(\w+) += \{(.*)\},?$", found[2], re.M))) if found else None


def bibtex(page=None):
    """An entry for the book, or for one page of it."""
    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf8"))
    book, released = cff["title"].partition(":")[0], str(cff["date-released"])
    authors = " and ".join("{{%s}}" % a["name"] if "name" in a else "{%s, %s}" % (a["family-names"], a["given-names"]) for a in cff["authors"])
    if page is None:
        kind, key, fields = "book", f"pit{released[:4]}", {"author": authors, "title": "{%s}" % cff["title"]}
    else:
        kind, key = "incollection", (own_entry(page) or ("pit2026" + re.sub(r"^\w\w-|-", "", page),))[0]
        heading = re.sub(r"(\w*[A-Z]\w*[A-Z]\w*)", r"{\1}", title(page))
        fields = {"author": authors, "title": "{%s}" % heading, "booktitle": "{%s}" % book}
        if number(page):
            fields["chapter"] = "{%d}" % number(page)
    fields |= {"year": "{%s}" % released[:4], "note": "{Version %s}" % cff["version"], "url": "{%s}" % cff["repository-code"]}
    return f"@{kind}{{{key},\n" + ",\n".join(f"  {n:9} = {v}" for n, v in fields.items()) + "\n}"


# ---- writing --------------------------------------------------------------------------------------

class List(SphinxDirective):
    """A directive that reads files."""

    has_content = False
    made_of = ()                        # beside the notebooks

    def run(self):
        for file in (ROOT / "_toc.yml", *(BOOK / f"{p}.ipynb" for p in pages()), *(ROOT / f for f in self.made_of)):
            self.env.note_dependency(str(file))
        return self.make()

    def link(self, page, anchor, *children, **attributes):
        uri = self.env.app.builder.get_relative_uri(self.env.docname, f"book/{page}") + (f"#{anchor}" if anchor else "")
        return nodes.reference("", "", *[nodes.Text(c) if isinstance(c, str) else c for c in children], refuri=uri, internal=True, **attributes)

    def inline(self, markdown):
        children, messages = self.parse_inline(markdown)
        return children + messages

    def capital(self, page):
        label = name(page)
        return label[0].upper() + label[1:]

    def table(self, heads, widths, body):
        """A table; a row that is one cell goes across."""
        group = nodes.tgroup("", *[nodes.colspec(colwidth=w) for w in widths], cols=len(heads))
        group += nodes.thead("", nodes.row("", *[nodes.entry("", nodes.paragraph("", h)) for h in heads]))
        group += nodes.tbody("", *[nodes.row("", *[nodes.entry("", nodes.paragraph("", "", *cell), **({"morecols": len(heads) - 1} if len(row) == 1 else {}))
                                                  for cell in row]) for row in body])
        return nodes.table("", group, classes=["back-table"])


class ClaimsOfKind(List):
    required_arguments = 1

    def make(self):
        kind, made = self.arguments[0], []
        for page in pages():
            found = [c for c in claims(page) if c.kind == kind]
            if not found:
                continue
            made.append(nodes.paragraph("", "", nodes.strong("", self.capital(page)),
                                        *([nodes.Text(", "), self.link(page, "", title(page))] if number(page) else [])))
            made.append(nodes.bullet_list("", *[nodes.list_item("", self.entry(page, c)) for c in found], classes=["claims-list"]))
        return made

    def entry(self, page, claim):
        line = nodes.paragraph("", "", self.link(page, f"claim-{claim.name}", claim.statement), nodes.Text(" "),
                               nodes.literal("", claim.bound, classes=["claim-bound"] + ["claim-short"] * (len(claim.bound) < 20)))
        if claim.kind == "proved":
            line += [nodes.Text(" · "), addnodes.pending_xref("", nodes.inline("", claim.source), refdomain="prf", reftype="ref",
                                                             reftarget=claim.source, refdoc=self.env.docname, refexplicit=False, refwarn=True)]
        elif claim.source:
            line += nodes.Text(f" · {claim.source}")
        for row in claim.rows:
            line += [nodes.Text(" · "), self.link("audit", row_id(row), row)]
        return line


def row_id(row):
    return "row-" + row.lower().replace(":", "-")


class Verdicts(List):
    made_of = ("book/audit.yml",)

    def make(self):
        made = []
        for verdict, (label, meaning) in audit()[0].items():
            found = [f"{source}:{row['row']}" for source, row in rows() if row["verdict"] == verdict]
            links = [part for row in found for part in (self.link("audit", row_id(row), row), nodes.Text(" "))]
            made.append(nodes.paragraph("", "", nodes.inline("", label, classes=["audit-verdict", f"audit-{verdict}"]), nodes.Text(" "),
                                        *self.inline(meaning), nodes.Text(f" {len(found)} of {len(rows())} rows:")))
            made.append(nodes.paragraph("", "", *links, classes=["audit-links"]))
        return made


class Audit(List):
    required_arguments = 1
    made_of = ("book/audit.yml",)

    def make(self):
        source, made = self.arguments[0], []
        verdicts, texts = audit()
        decided = deciders()
        for count, section in enumerate(texts[source]):
            part = nodes.section("", nodes.title("", section["section"]), ids=[f"audit-{source.lower()}-{count + 1}"])
            for row in section["rows"]:
                label = f"{source}:{row['row']}"
                box = nodes.container("", classes=["audit-row"], ids=[row_id(label)])
                box += nodes.paragraph("", "", nodes.strong("", label), nodes.Text(" "), *self.inline(row["says"]), nodes.Text(" "),
                                       nodes.inline("", verdicts[row["verdict"]][0], classes=["audit-verdict", f"audit-{row['verdict']}"]))
                box += nodes.paragraph("", "", *self.inline(row["because"]))
                if "reading" in row:
                    box += nodes.paragraph("", "", nodes.emphasis("", "Right if read as: "), *self.inline(row["reading"]))
                box += self.links(decided.get(label, []))
                part += box
            made.append(part)
        return made

    def links(self, found):
        line = nodes.paragraph("", "", classes=["audit-links"])
        if not found:
            line += nodes.Text("No claim decides this row yet.")
        for page in dict.fromkeys(page for page, _ in found):
            line += nodes.Text(("Decided in " if not line.children else "; in ") + name(page) + ": ")
            for k, claim in enumerate(c for p, c in found if p == page):
                line += [nodes.Text(", " if k else ""), self.link(page, f"claim-{claim.name}", claim.name)]
        return line


class Chapters(List):
    made_of = ("book/index.md",)

    def make(self):
        body = []
        chosen = [p for p in pages() if CHAPTER.match(p)]
        for page in chosen:
            before = [part for p in needs(page) for part in (self.link(p, "", str(number(p) or "primer")), nodes.Text(", "))][:-1]
            minutes = sum(e.minutes for e in exercises(page))
            body.append([[self.link(page, "", f"{number(page)} {title(page)}" if number(page) else title(page))],
                         [nodes.Text(str(reading_minutes(page)))], [nodes.Text(str(minutes))], before or [nodes.Text("–")]])
        return [nodes.raw("", drawing(chosen), format="html"),
                self.table(["chapter", "read", "exercises", "needs"], [60, 10, 10, 20], body)]


def drawing(chosen):
    """The pages below each other, with an arc from each to those that need it."""
    names, step, x = short_names(), 26, 128
    at = {page: 20 + step * k for k, page in enumerate(chosen)}
    lines = []
    for page in chosen:
        for before in needs(page):
            a, b = at[before], at[page] - 5
            out = x - min(118, 16 + 11 * (b - a) / step)
            lines.append(f'<path d="M{x - 6},{a} C{out:.0f},{a} {out:.0f},{b} {x - 7},{b}" marker-end="url(#needs-arrow)"/>')
    dots = "".join(f'<circle cx="{x}" cy="{y}" r="4"/>' for y in at.values())
    texts = "".join(f'<text x="{x + 12}" y="{y + 4.5:.1f}">{html.escape(f"{number(p)}  {names[p]}" if number(p) else names[p])}</text>' for p, y in at.items())
    height = 20 + step * len(chosen)
    return (f'<svg class="needs" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 340 {height}" role="img" aria-label="The pages of the book, each joined to '
            'those that need it; the table below says the same in words"><defs><marker id="needs-arrow" viewBox="0 0 8 8" refX="7" refY="4" '
            'markerWidth="7" markerHeight="7" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="currentColor"/></marker></defs>'
            f'<g fill="none" stroke="currentColor" stroke-opacity=".6">{"".join(lines)}</g><g fill="currentColor">{dots}</g>'
            f'<g fill="currentColor" font-family="system-ui,sans-serif" font-size="14">{texts}</g></svg>')


class Figures(List):
    made_of = tuple(str(p.relative_to(ROOT)) for p in sorted(figures.JS.glob("*.js")))

    def make(self):
        body = [[[nodes.literal("", kind), nodes.Text(", "), self.link(page, "", name(page))], [nodes.Text(figure_title(kind))]]
                for page in pages() for kind in shown_figures(page)]
        return [self.table(["figure", "shows"], [35, 65], body)]


class Exercises(List):
    def make(self):
        body = []
        for page in pages():
            found = exercises(page)
            if found:
                heading = f"{number(page)}. {title(page)}" if number(page) else title(page)
                body.append([[nodes.strong("", "", self.link(page, "exercises", heading)), nodes.Text(f" {sum(e.minutes for e in found)} minutes in all")]])
                body += [[[self.link(page, e.label, *self.inline(e.title))], [nodes.Text(str(e.minutes))], [nodes.Text(e.difficulty)]] for e in found]
        return [self.table(["exercise", "minutes", "difficulty"], [70, 15, 15], body)]


class Course(List):
    required_arguments = 1
    has_content = True

    def make(self):
        lines = [[part.strip() for part in line.split("|")] for line in self.content if line.strip()]
        total = sum(int(line[0]) for line in lines if line[0] != "after")
        if total != 60 * int(self.arguments[0]):
            log.warning("a course of %s hours lasts %d minutes", self.arguments[0], total, location=self.get_location(), type="course")
        body, minutes = [], 0
        for first, what, *how in lines:
            if first == "after":
                body.append([[nodes.strong("", f"After these {minutes} minutes a student can "), *self.inline(what)]])
                minutes = 0
            else:
                body.append([[nodes.Text(first)], [*self.inline(what), nodes.Text("; "), *self.inline(*how)]])
                minutes += int(first)
        body.append([[nodes.strong("", str(total))], [nodes.Text("minutes in all")]])
        return [self.table(["minutes", "what, with what"], [10, 90], body)]


class CiteExample(List):
    """A sentence that cites a claim or a figure, and the same for LaTeX."""

    required_arguments = 2
    final_argument_whitespace = True
    made_of = ("CITATION.cff",)

    def make(self):
        what, arguments = self.arguments[0], self.arguments[1].split()
        page, anchor, quoted, called = (claim_to_cite if what == "claim" else figure_to_cite)(*arguments)
        cff = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf8"))
        version, address = f"version {cff['version']}", f"book/{page}.html{anchor}"
        uri = self.env.app.builder.get_relative_uri(self.env.docname, f"book/{page}") + anchor
        said = nodes.paragraph("", "", nodes.Text(f"{quoted} ({cff['authors'][0]['name']}, "), nodes.emphasis("", cff["title"].partition(":")[0]),
                               nodes.Text(f", {str(cff['date-released'])[:4]}, {name(page)}, {what} "), nodes.literal("", called), nodes.Text(f", {version}, "),
                               nodes.reference("", address, refuri=uri, internal=True), nodes.Text(")"))
        latex = nodes.literal("", f"\\cite[{what} \\texttt{{{called}}}, {version}]{{{own_entry(page)[0]}}}")
        return [nodes.block_quote("", said), nodes.paragraph("", "", nodes.Text("In LaTeX, with the entry of the chapter below: "), latex)]


def claim_to_cite(called):
    """Page, anchor, the claim in quotes with its bound and kind, and its name."""
    page, claim = next((p, c) for p in pages() for c in claims(p) if c.name == called)
    how = f"{claim.kind}, {claim.source}" if claim.source else claim.kind
    return page, f"#claim-{called}", f"“{claim.statement}” [{claim.bound}; {how}]", called


def figure_to_cite(called, *state):
    """Page, address of the figure in a state, what it shows, and its name; a name or number that the figure lacks is an error."""
    state = {n: float(x) if "." in x else int(x) for n, x in (part.split("=") for part in state)}
    figures.Figure(called, **state).compute()
    page = next(p for p in pages() if called in shown_figures(p))
    shown = ", ".join(f"{n} = {x}" for n, x in state.items())
    return page, "?" + "&".join(f"{called}.{n}={x}" for n, x in state.items()), f"Figure: {figure_title(called)}; {shown}", called


class Bibtex(List):
    made_of = ("CITATION.cff",)

    def make(self):
        made = [nodes.literal_block("", bibtex(), language="bibtex")]
        for page in pages():
            if own_entry(page):
                made += [nodes.paragraph("", "", self.link(page, "", self.capital(page)), *([nodes.Text(f", {title(page)}")] if number(page) else [])),
                         nodes.literal_block("", bibtex(page), language="bibtex")]
        return made


def setup(app):
    # pages are read again when this file changes
    app.add_config_value("back_matter_made_by", hashlib.sha256(Path(__file__).read_bytes()).hexdigest(), "env")
    for directive, made in {"claims": ClaimsOfKind, "audit-verdicts": Verdicts, "audit": Audit, "chapters": Chapters, "figures": Figures,
                            "exercises": Exercises, "course": Course, "bibtex": Bibtex, "cite-example": CiteExample}.items():
        app.add_directive(directive, made)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "version": "1"}
