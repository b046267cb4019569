"""Interactive figures: one front end, written in JavaScript, for four hosts.

The static page and a live notebook run it in the browser; `Figure.widget` ties it to Python;
QuickJS runs it here, to draw the picture that a page without scripts shows and to give tests
its numbers.  ``js/core.js`` and the helpers ``js/_*.js`` are shared, ``js/<kind>.js`` is one figure.
"""

from __future__ import annotations

import base64
import functools
import html
import json
import re
from pathlib import Path

from poslib._page import is_static

__all__ = ["Figure", "figure", "kinds", "scripts"]

JS = Path(__file__).with_name("js")


def kinds():
    """Names of the figures there are.

    Returns
    -------
    list of str
        Sorted.

    Examples
    --------
    >>> "order" in kinds()
    True
    """
    return sorted(p.stem for p in JS.glob("[a-z]*.js") if p.stem != "core")


def scripts(*names):
    """The front end's JavaScript.

    Parameters
    ----------
    *names : str
        Figures that it shall draw; all of them unless named.

    Returns
    -------
    str

    Examples
    --------
    >>> len(scripts("order")) < len(scripts())
    True
    """
    helpers = sorted(p.stem for p in JS.glob("_*.js"))
    return "\n".join((JS / f"{name}.js").read_text("utf8") for name in ("core", *helpers, *(names or kinds())))


@functools.cache
def _engine():
    """The front end inside QuickJS, or None where quickjs-ng is not installed (Colab, say)."""
    try:
        import quickjs
    except ImportError:
        return None
    engine = quickjs.Context()
    engine.eval(scripts())
    return engine


def call(function, *arguments):
    """What the front end's pure `function` returns for JSON-like arguments."""
    engine = _engine()
    if engine is None:
        raise ModuleNotFoundError("figures are drawn in Python by quickjs-ng: pip install quickjs-ng")
    written = ", ".join(json.dumps(a) for a in arguments)
    return json.loads(engine.eval(f"JSON.stringify(PosFig.{function}({written}))"))


class Figure:
    """A figure of one kind in one state; displays itself.

    Parameters
    ----------
    kind : str
        One of `kinds()`.
    **state
        Starting values of its controls, by name; the others start at the figure's own.

    Raises
    ------
    ValueError
        For a kind, a control or a value that does not exist.

    Examples
    --------
    >>> Figure("sinusoid-pair")
    figure('sinusoid-pair')
    """

    def __init__(self, kind, **state):
        if kind not in kinds():
            raise ValueError(f"kind is {kind!r}; allowed are {', '.join(kinds())}")
        if _engine() is not None:
            names = call("controls", kind)
            for name in state:
                if name not in names:
                    raise ValueError(f"{kind} has no control {name!r}; allowed are {', '.join(names)}")
            kept = call("complete", kind, state)
            for name, value in state.items():
                if kept[name] != value:
                    raise ValueError(f"{name} is {value!r}, which {kind} does not allow (it would show {kept[name]!r})")
        self.kind, self.state = kind, state

    def __repr__(self):
        return f"figure({', '.join([repr(self.kind), *(f'{k}={v!r}' for k, v in self.state.items())])})"

    def compute(self):
        """The numbers that the figure shows, as its JavaScript computes them.

        Returns
        -------
        dict

        Raises
        ------
        ModuleNotFoundError
            Where quickjs-ng is not installed.

        Examples
        --------
        >>> sorted(Figure("order").compute())
        ['after', 'apart', 'before', 'changed', 'embedding', 'layers', 'names', 'vocabulary', 'weights', 'words']
        """
        return call("compute", self.kind, self.state)

    def _picture(self):
        """What shows without scripts: an untrusted notebook, a reader with scripts off, a code host.

        Sanitisers drop inline ``<svg>`` but keep ``<img>``; an image does not see the page's text
        colour, so it brings a white card.
        """
        if _engine() is None:
            return f"<p>{html.escape(repr(self))}</p>"
        images = []
        for svg in call("draw", self.kind, self.state):
            width, height = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg).groups()
            alt = re.search(r'aria-label="([^"]*)"', svg)[1]
            card = re.sub(r'<svg (.*?) style="[^"]*"', rf'<svg \1 width="{width}" height="{height}" color="#222" style="background:#fff"', svg, count=1)
            data = base64.b64encode(card.encode()).decode()
            images.append(f'<img alt="{alt}" width="{width}" height="{height}" src="data:image/svg+xml;base64,{data}">')
        return "".join(images) + f"<p>{html.escape(call('say', self.kind, self.state))}</p>"

    def html(self):
        """The figure as HTML; in a live notebook with the script that moves it.

        Returns
        -------
        str

        Examples
        --------
        >>> Figure("order").html()[:21]
        '<pos-fig kind="order"'
        """
        state = html.escape(json.dumps(self.state, sort_keys=True))
        tag = f'<pos-fig kind="{self.kind}" state="{state}">{self._picture()}</pos-fig>'
        return tag if is_static() else f"{tag}\n<script>{scripts(self.kind)}</script>"

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/plain": repr(self), "text/html": self.html()}

    def widget(self):
        """The same figure with a `state` that Python can read, set and observe.

        While the book is made there is no kernel to answer, and the figure itself is returned.

        Returns
        -------
        anywidget.AnyWidget
            Its traits are `kind` and `state`.

        Raises
        ------
        ModuleNotFoundError
            Where anywidget is not installed.

        Examples
        --------
        >>> figure("order").widget().kind
        'order'
        """
        return self if is_static() else _widget_class()(self)


figure = Figure


@functools.cache
def _widget_class():
    try:
        import anywidget
        import traitlets
    except ImportError as error:
        raise ModuleNotFoundError("a figure becomes a widget by anywidget: pip install anywidget") from error

    class FigureWidget(anywidget.AnyWidget):
        _esm = traitlets.Unicode().tag(sync=True)
        kind = traitlets.Unicode().tag(sync=True)
        state = traitlets.Dict().tag(sync=True)

        def __init__(self, fig):
            state = call("complete", fig.kind, fig.state) if _engine() else fig.state
            super().__init__(kind=fig.kind, state=state,
                             _esm=scripts(fig.kind) + "\nexport default { render: globalThis.PosFig.render };\n")

    return FigureWidget
