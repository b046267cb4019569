"""The reference pages (book/reference): what docstrings need on their way from numpydoc to a page.

Docstrings are written to be read in a terminal too. Here absolute values lose their meaning as reST,
arXiv ids become links, and `name` becomes a link where the library has such a name, else code.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from sphinx import addnodes
from sphinx.errors import NoUri
from sphinx.util import inspect

ARXIV = re.compile(r"arXiv (\d{4}\.\d{4,5})")
CHOICE = re.compile(r"^(\w+ : )(\{.*\})", re.M)      # layout : {"half", "interleaved"}


def prepare(app, what, name, obj, options, lines):
    """Before numpydoc parses them: lines of a docstring, changed in place."""
    if what == "module":                # its first sentence is the page's introduction
        lines[:] = lines[lines.index("") + 1:] if "" in lines else []
    text = "\n".join(lines)
    prose, examples, code = text.partition("\nExamples\n")
    prose = CHOICE.sub(r"\1``\2``", prose)            # as code, whose quotes stay straight
    parts = re.split(r"(``.*?``)", prose, flags=re.S)
    parts[::2] = [ARXIV.sub(r"`arXiv \1 <https://arxiv.org/abs/\1>`__", p.replace("|", r"\|")) for p in parts[::2]]
    lines[:] = ("".join(parts) + examples + code).split("\n")


def skip(app, what, name, obj, skip, options):
    """Fields of a named tuple are explained in its docstring."""
    return True if (getattr(obj, "__doc__", None) or "").startswith("Alias for field number") else None


def sign(app, what, name, obj, options, signature, returns):
    """A subclass of a mocked class would show the arguments of the mock."""
    if what == "class" and signature == "(*args, **kwargs)":
        return inspect.stringify_signature(inspect.signature(obj.__init__, bound_method=True), show_annotation=False), returns


def name_parameters(app, doctree):
    """A name that is a parameter of the function at hand means the parameter, not a function of that name."""
    for description in doctree.findall(addnodes.desc):
        parameters = {n.astext() for p in description.findall(addnodes.desc_parameter) for n in p.findall(addnodes.desc_sig_name)}
        for reference in list(description.findall(addnodes.pending_xref)):
            if reference.get("reftype") == "obj" and reference["reftarget"] in parameters:
                reference.replace_self(reference.children)


def name_or_code(app, env, node, content):
    """What is not found is code (a parameter, a value), unless it claims to be of this library."""
    if node.get("refdomain") == "py" and node.get("reftype") == "obj" and not node["reftarget"].startswith("poslib."):
        raise NoUri


def setup(app):
    # pages are read again when this file changes
    app.add_config_value("reference_made_by", hashlib.sha256(Path(__file__).read_bytes()).hexdigest(), "env")
    app.connect("autodoc-process-docstring", prepare, priority=400)     # numpydoc's is 500
    app.connect("autodoc-process-signature", sign)
    app.connect("autodoc-skip-member", skip)
    app.connect("doctree-read", name_parameters)
    app.connect("missing-reference", name_or_code)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "version": "1"}
