"""The book's own Sphinx extension.

Sets math with KaTeX while building (so no page runs a math library, and a TeX error fails the
build), adds the figures' front end, gives pictures the alt text that the notebook stored with them,
names theorems in claims, and points the edit button at the .md that a chapter is written in.
"""

from __future__ import annotations

import base64
import hashlib
import html
import importlib.metadata
import json
import re
import sys
from pathlib import Path
from urllib.parse import quote

import quickjs
from docutils import nodes
from sphinx.errors import ExtensionError
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from poslib.teach import figures  # noqa: E402  (poslib need not be installed to build the book)

KATEX_PACKAGE, KATEX_FOLDER = "djangocms-katex", "vendor/katex/"
log = logging.getLogger(__name__)


# ---- mathematics --------------------------------------------------------------------------------

def katex_files():
    """KaTeX's files inside the package that carries them: path below its folder -> file."""
    try:
        listed = importlib.metadata.files(KATEX_PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        raise ExtensionError("KaTeX's files are missing; install them: "
                             "pip install --no-deps -r requirements-assets.txt") from None
    found = {str(f).split(KATEX_FOLDER)[1]: Path(f.locate()) for f in listed if KATEX_FOLDER in str(f)}
    for needed in ("katex.min.js", "katex.min.css"):
        if needed not in found:
            raise ExtensionError(f"{KATEX_PACKAGE} holds no {needed}; is its version the one in requirements-assets.txt?")
    return found


class Katex:
    """Sets formulas; what does not parse becomes a Sphinx warning with file, place and formula."""

    # no macros: JupyterLab, Colab and code hosts would not know them
    OPTIONS = {"throwOnError": True, "strict": "ignore", "output": "htmlAndMathml"}

    def __init__(self):
        self.engine = quickjs.Context()
        self.engine.eval(katex_files()["katex.min.js"].read_text("utf8"))

    def __call__(self, tex, display, node):
        options = json.dumps({**self.OPTIONS, "displayMode": display})
        try:
            # through JSON: QuickJS hands long strings over only when they are flat
            return json.loads(self.engine.eval(f"JSON.stringify(katex.renderToString({json.dumps(tex)}, {options}))"))
        except quickjs.JSException as error:
            reason = str(error).split("\n")[0].encode("ascii", "ignore").decode()
            log.warning("math does not parse: %s  [%s]", reason, tex, location=node, type="katex")
            return f'<code class="math-error">{html.escape(tex)}</code>'


def visit_math(self, node):
    self.body.append(self.starttag(node, "span", "", CLASS="math notranslate nohighlight"))
    self.body.append(self.builder.app.katex(node.astext(), False, node) + "</span>")
    raise nodes.SkipNode


def visit_math_block(self, node):
    self.body.append(self.starttag(node, "div", CLASS="math notranslate nohighlight"))
    if node["number"]:
        self.body.append(f'<span class="eqno">({get_node_equation_number(self, node)})')
        self.add_permalink_ref(node, "Link to this equation")
        self.body.append("</span>")
    # Sphinx numbers equations; the starred environments keep KaTeX from numbering them again
    tex = re.sub(r"\\(begin|end)\{(align|gather|equation|alignat)\}", r"\\\1{\2*}", node.astext().strip())
    if re.search(r"\\\\|&", tex) and "\\begin" not in tex:
        tex = rf"\begin{{aligned}}{tex}\end{{aligned}}"
    self.body.append(self.builder.app.katex(tex, True, node) + "</div>")
    raise nodes.SkipNode


def write_katex(out):
    files = katex_files()
    (out / "fonts").mkdir(parents=True, exist_ok=True)
    css = files["katex.min.css"].read_text("utf8")
    # woff2 alone: every browser that the theme supports reads it
    css = re.sub(r",url\([^)]*\.(?:woff|ttf)\) format\(\"(?:woff|truetype)\"\)", "", css)
    (out / "katex.min.css").write_text(css, "utf8")
    for name, file in files.items():
        if name.startswith("fonts/") and name.endswith(".woff2"):
            (out / name).write_bytes(file.read_bytes())


# ---- pages --------------------------------------------------------------------------------------

def stored_alt_texts(notebook):
    """Alt texts that a notebook's outputs carry, by the name that myst-nb gives the picture's file."""
    found = {}
    for cell in json.loads(notebook.read_text("utf8"))["cells"]:
        for output in cell.get("outputs", []):
            for kind, extra in output.get("metadata", {}).items():
                if isinstance(extra, dict) and "alt" in extra:
                    data = base64.b64decode("".join(output["data"][kind]))
                    found[hashlib.sha256(data).hexdigest()] = extra["alt"]
    return found


def set_alt_texts(app, doctree):
    source = Path(app.env.doc2path(app.env.docname))
    if source.suffix != ".ipynb":
        return
    alts = stored_alt_texts(source)
    for image in doctree.findall(nodes.image):
        alt = alts.get(Path(image["uri"]).stem)
        if alt:
            image["alt"] = alt
        elif not image.get("alt"):
            log.warning("image without alt text: %s", image["uri"], location=image, type="alt")


def finish_page(app, pagename, templatename, context, doctree):
    # docutils gives citations a role that ARIA has since withdrawn
    body = context["body"] = context.get("body", "").replace(' role="doc-biblioentry"', ' role="listitem"')

    def name_theorem(link):
        title = re.search(rf'id="{re.escape(link[1])}">\s*<p class="admonition-title"><span class="caption-number">([^<]*)</span>', body)
        if not title:
            log.warning("a claim names the theorem %r, which this page does not hold", link[1], location=pagename, type="claim")
            return link[0]
        return f'<a href="#{link[1]}">{title[1].strip()}</a>'

    if 'class="claim"' in body:
        context["body"] = re.sub(r'(?<=proved: )<a href="#([\w-]+)">[^<]*</a>', name_theorem, body)
    if pagename.startswith("book/"):
        url = app.config.html_theme_options["repository_url"]
        name = html.unescape(re.sub(r"<[^>]*>", "", context.get("title", pagename)))
        title = quote(f"Mistake on the page “{name}”")
        context["body"] += f'<p class="report"><a href="{url}/issues/new?title={title}">Report a mistake on this page</a></p>'
    for group in context.get("header_buttons", []):
        for button in group.get("buttons", [group]):
            if button.get("label") == "source-edit-button":
                button["url"] = re.sub(r"\.ipynb$", ".md", button["url"])


# ---- set-up -------------------------------------------------------------------------------------

def finish(app, exception):
    if exception or app.builder.format != "html":
        return
    static = Path(app.outdir) / "_static"
    write_katex(static / "katex")
    (static / "figures.js").write_text(figures.scripts(), "utf8")


def setup(app):
    app.katex = Katex()
    app.add_html_math_renderer("katexjs", (visit_math, None), (visit_math_block, None))
    app.add_css_file("katex/katex.min.css")
    app.add_js_file("figures.js", loading_method="defer")
    # pages are written again when what sets them changes
    made_by = Path(__file__).read_bytes() + importlib.metadata.version(KATEX_PACKAGE).encode()
    app.add_config_value("book_made_by", hashlib.sha256(made_by).hexdigest(), "html")
    app.connect("doctree-read", set_alt_texts)
    app.connect("html-page-context", finish_page, priority=900)     # after the theme has made its buttons
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True, "parallel_write_safe": False, "version": "1"}
