"""Pictures in the house style: readable on a light and a dark page, and by colour-blind readers."""

from __future__ import annotations

import base64
import io

__all__ = ["COLOURS", "MARKERS", "Picture", "axes", "picture"]

#: Okabe and Ito's palette without its yellow, which is too pale on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
#: Lines differ by marker too.
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
STYLE = {
    "figure.facecolor": "white", "axes.facecolor": "white", "savefig.facecolor": "white",   # opaque: a dark page must not show through
    "font.family": "DejaVu Sans", "font.size": 10, "axes.titlesize": 11,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": "#dddddd",
    "lines.linewidth": 1.8, "lines.markersize": 5, "legend.frameon": False, "figure.constrained_layout.use": True,
}
DPI = 150


def axes(columns=1, *, width=6.4, height=3.2, **options):
    """A new figure and its axes (one, or an array), outside pyplot's global state.

    Parameters
    ----------
    columns : int
    width, height : float
        Inches; 6.4 fills the page's column.
    **options
        For ``Figure.subplots``, such as ``sharey=True``.

    Returns
    -------
    figure : matplotlib.figure.Figure
    axes : matplotlib.axes.Axes, or an array of them

    Raises
    ------
    ModuleNotFoundError
        Where matplotlib is not installed.

    Examples
    --------
    >>> fig, ax = axes(width=4.0)
    >>> [round(float(inches), 1) for inches in fig.get_size_inches()]
    [4.0, 3.2]
    """
    try:
        import matplotlib
        from cycler import cycler
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("pictures are drawn by matplotlib: pip install matplotlib") from error

    with matplotlib.rc_context({**STYLE, "axes.prop_cycle": cycler(color=COLOURS) + cycler(marker=MARKERS)}):
        figure = Figure(figsize=(width, height))
        return figure, figure.subplots(1, columns, **options)


class Picture:
    """A finished matplotlib figure with the sentence that stands for it; displays itself.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
    alt : str
        The figure's message in a sentence of at least five words, for those who do not see it.

    Raises
    ------
    ValueError
        For an `alt` that says nothing.

    Examples
    --------
    >>> fig, ax = axes()
    >>> Picture(fig, "An empty frame, with no line.")
    Picture: An empty frame, with no line.
    """

    def __init__(self, figure, alt):
        if not isinstance(alt, str) or len(alt.split()) < 5:
            raise ValueError(f"alt is {alt!r}; say in a sentence what the picture shows")
        self.figure, self.alt = figure, alt

    def __repr__(self):
        return f"Picture: {self.alt}"

    def _repr_mimebundle_(self, include=None, exclude=None):
        import matplotlib

        data = io.BytesIO()
        with matplotlib.rc_context(STYLE):
            self.figure.savefig(data, format="png", dpi=DPI, metadata={"Software": None})
        width = round(self.figure.get_figwidth() * 100)
        return ({"image/png": base64.b64encode(data.getvalue()).decode(), "text/plain": repr(self)},
                {"image/png": {"alt": self.alt, "width": width}})


def picture(figure, alt):
    """Show a matplotlib figure.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
    alt : str
        The figure's message in a sentence of at least five words, for those who do not see it.

    Returns
    -------
    Picture

    Raises
    ------
    ValueError
        For an `alt` that says nothing.

    Examples
    --------
    >>> fig, ax = axes()
    >>> line = ax.plot([0, 1], [0, 1])
    >>> picture(fig, "A line that rises from zero.")
    Picture: A line that rises from zero.
    """
    return Picture(figure, alt)
