"""Claims: statements that the page makes and the cell beside them checks."""

from __future__ import annotations

import html
import math
import re
from dataclasses import dataclass

__all__ = ["Claim", "claim"]

KINDS = {
    "proved": "a theorem of the book; the value is a numerical witness",
    "checked": "evaluated where it stands",
    "measured": "an experiment, with seeds, spread and machine",
    "cited": "somebody else's result, with its reference",
}
LAST_ROW = {"S1": (1, 45), "S2": (46, 112)}       # rows of the audit of the two source texts


@dataclass(frozen=True)
class Claim:
    """A claim that held; displays itself as one line that can be linked to.

    Parameters
    ----------
    id, statement : str
        As `claim` was given them.
    bound : str
        The bound as it is shown.
    kind, source : str
        As `claim` was given them.
    rows : tuple of str
        Rows of the audit that it decides.

    Examples
    --------
    >>> held = claim("two-ones", "One and one are two.", 1 + 1, equals=2)
    >>> held.bound, held.kind
    ('= 2', 'checked')
    """

    id: str
    statement: str
    bound: str
    kind: str
    source: str
    rows: tuple

    def __repr__(self):
        return f"verified: {self.statement} [{self.bound}; {self.kind}{f', {self.source}' if self.source else ''}]"

    def _repr_html_(self):
        e = html.escape
        source = f'<a href="#{e(self.source)}">{e(self.source)}</a>' if self.kind == "proved" else e(self.source)
        how = f'<span class="claim-bound">{e(self.bound)}</span> · {self.kind}' + (f": {source}" if source else "")
        return (f'<div class="claim" id="claim-{self.id}" data-claim="{self.id}" data-kind="{self.kind}" '
                f'data-bound="{e(self.bound)}" data-source="{e(self.source)}" data-rows="{e(" ".join(self.rows))}">'
                f'<a class="claim-mark" href="#claim-{self.id}">✓ verified</a> {e(self.statement)} '
                f'<span class="claim-how">{how}</span></div>')


def claim(id, statement, value, *, below=None, above=None, between=None, equals=None,
          kind="checked", source="", rows=()):
    """Check a statement; raise when it does not hold.

    Parameters
    ----------
    id : str
        Lower-case words joined by hyphens, unique in the book; the link is ``#claim-<id>``.
    statement : str
        The sentence that is checked.
    value : number, or a list or array of numbers, or with `equals` anything that compares
        Each number must be finite and satisfy the bound.
    below, above : float
        Strict bounds.  Exactly one of `below`, `above`, `between`, `equals` is given.
    between : (float, float)
        Inclusive bounds.
    equals : object
        Of the same type, and compared with ``==``.
    kind : {"checked", "proved", "measured", "cited"}
    source : str
        Needed for the last three: the label of the theorem; seeds, spread and machine; the reference.
    rows : sequence of str
        Rows of the audit that this decides, as ``"S1:2"`` or ``"S2:47"``.

    Returns
    -------
    Claim
        The bound is shown, never the digits of `value`: they may differ on another machine.

    Raises
    ------
    AssertionError
        When the claim does not hold; the message has the value.
    ValueError
        For arguments that make no claim.

    Examples
    --------
    >>> claim("two-ones", "One and one are two.", 1 + 1, equals=2)
    verified: One and one are two. [= 2; checked]
    >>> claim("near-pi", "22/7 is near π.", abs(22 / 7 - 3.14159), below=0.01)
    verified: 22/7 is near π. [< 0.01; checked]
    """
    bounds = {"below": below, "above": above, "between": between, "equals": equals}
    given = [name for name, bound in bounds.items() if bound is not None]
    if len(given) != 1:
        raise ValueError(f"claim {id!r} has bounds {given or 'none'}; give exactly one of {', '.join(bounds)}")
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", id):
        raise ValueError(f"id is {id!r}; allowed are lower-case words joined by hyphens")
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}; allowed are {', '.join(KINDS)}")
    if not source and kind != "checked":
        raise ValueError(f"claim {id!r} is {kind}: give source, {KINDS[kind]}")
    for row in rows:
        text, _, number = row.partition(":")
        if text not in LAST_ROW or not number.isdigit() or not LAST_ROW[text][0] <= int(number) <= LAST_ROW[text][1]:
            raise ValueError(f"rows holds {row!r}; allowed are S1:1 to S1:45 and S2:46 to S2:112")
    holds, shown = _check(given[0], bounds[given[0]], value)
    if not holds:
        raise AssertionError(f"claim {id!r} does not hold: {statement} The value is {value!r}, the bound {shown}.")
    return Claim(id, statement, shown, kind, source, tuple(rows))


def _check(name, bound, value):
    if name == "equals":
        return type(value) is type(bound) and bool(value == bound), f"= {bound}"
    if hasattr(value, "ravel"):         # an array: every entry counts
        value = value.ravel().tolist()
    values = [float(v) for v in (value if isinstance(value, (list, tuple)) else [value])]
    if not values or not all(map(math.isfinite, values)):
        return False, f"{name} {bound}"
    if name == "below":
        return all(v < bound for v in values), f"< {bound:g}"
    if name == "above":
        return all(v > bound for v in values), f"> {bound:g}"
    low, high = bound
    return all(low <= v <= high for v in values), f"between {low:g} and {high:g}"
