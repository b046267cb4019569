"""Exercises: a checker answers with a sentence, and never with a traceback."""

from __future__ import annotations

import html
import importlib
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Mistake", "Verdict", "array", "chapters", "check", "truth"]

HOME = Path(__file__).with_name("checkers")


class Mistake(Exception):
    """What a checker raises to say, in one sentence, what is wrong and why it is likely.

    Parameters
    ----------
    message : str
        The sentence; `check` shows it.

    Examples
    --------
    >>> def above_two(answer):
    ...     if answer <= 2:
    ...         raise Mistake("Your number is not above 2.")
    ...     return "Above 2."
    >>> above_two(3)
    'Above 2.'
    """


@dataclass(frozen=True)
class Verdict:
    """The answer to an answer; displays itself.

    Parameters
    ----------
    accepted : bool
    message : str
        A sentence that says why.

    Examples
    --------
    >>> Verdict(True, "Both rows agree.")
    ✓ Accepted. Both rows agree.
    """

    accepted: bool
    message: str

    def __repr__(self):
        return f"{'✓ Accepted.' if self.accepted else '✗ Not yet.'} {self.message}"

    def _repr_html_(self):
        mark, kind = ("✓ Accepted.", "accepted") if self.accepted else ("✗ Not yet.", "refused")
        return f'<div class="verdict {kind}"><strong>{mark}</strong> {html.escape(self.message)}</div>'


def chapters():
    """Chapters that have checkers.

    Returns
    -------
    list of str
        The first part of the names that `check` takes, sorted.

    Examples
    --------
    >>> "collisions" in chapters()
    True
    """
    return sorted(p.stem for p in HOME.glob("[a-z]*.py"))


def check(exercise, answer):
    """Check an answer to an exercise.

    Parameters
    ----------
    exercise : str
        ``"<chapter>/<exercise>"``, as the stub writes it.
    answer : object
        What the exercise asks for, often a function.

    Returns
    -------
    Verdict
        Whatever `answer` does when it is tried, the verdict says it in a sentence.

    Raises
    ------
    ValueError
        For an exercise that does not exist.

    Examples
    --------
    >>> check("order_blindness/distinct_predictions", ...)
    ✗ Not yet. Nothing to check yet: replace the dots by your answer.
    >>> check("order_blindness/distinct_predictions", lambda tokens: len(set(tokens))).accepted
    True
    """
    chapter, _, name = exercise.partition("/")
    module = importlib.import_module(f"poslib.teach.checkers.{chapter}") if chapter in chapters() else None
    checker = getattr(module, name, None) if name.isidentifier() and not name.startswith("_") else None
    if module is None or name not in module.__all__:
        known = [f"{c}/{n}" for c in chapters() for n in importlib.import_module(f"poslib.teach.checkers.{c}").__all__]
        raise ValueError(f"exercise is {exercise!r}; allowed are {', '.join(known)}")
    try:
        return Verdict(True, checker(_finished(answer)))
    except Mistake as mistake:
        return Verdict(False, str(mistake))
    except NotImplementedError:
        return Verdict(False, "Nothing to check yet: replace the dots by your answer.")
    except Exception as error:          # the reader's code may do anything; the page must go on
        return Verdict(False, f"Trying your answer raised {type(error).__name__}: {error}")


def array(got, shape, who):
    """What an answer gave, as an array of a certain shape; for checkers.

    Parameters
    ----------
    got : object
        What the answer returned.
    shape : tuple of int
    who : str
        How the sentence begins, as "Your function".

    Returns
    -------
    numpy array, float64, shape `shape`, finite

    Raises
    ------
    Mistake
        For anything else, with a sentence about it.

    Examples
    --------
    >>> array([1, 2], (2,), "Your function")
    array([1., 2.])
    """
    if got is None:
        raise Mistake(f"{who} gave None: is a return missing?")
    import numpy as np              # pages are built without it
    if np.iscomplexobj(got):
        if np.abs(np.imag(got)).max(initial=0) > 1e-6:
            raise Mistake(f"{who} gave complex numbers; real ones were asked for.")
        got = np.real(got)
    found = np.asarray(got, float)
    if found.shape != shape:
        raise Mistake(f"{who} gave an array of shape {found.shape}; it should be {shape}.")
    if not np.isfinite(found).all():
        place = tuple(int(n) for n in np.argwhere(~np.isfinite(found))[0])
        raise Mistake(f"{who} gave {found[place]} at place {', '.join(map(str, place))}. Does a cosine pass 1 by a rounding, or is something divided by 0?")
    return found


def truth(got, asked):
    """What an answer gave to a yes-or-no question; for checkers.

    Parameters
    ----------
    got : object
        What the answer returned.
    asked : str
        What it was asked, for the sentence.

    Returns
    -------
    bool

    Raises
    ------
    Mistake
        For anything but True and False.

    Examples
    --------
    >>> truth(True, "a causal mask")
    True
    """
    import numpy as np
    if not isinstance(got, (bool, np.bool_)):
        raise Mistake(f"For {asked} your function gave {got!r}; it should give True or False.")
    return bool(got)


def _finished(answer):
    """The answer, or, where it is a function, one that notices dots left in place of a result."""
    if answer is ... or answer is None:
        raise NotImplementedError
    if not callable(answer):
        return answer

    def finished(*arguments):
        result = answer(*arguments)
        if result is ...:
            raise NotImplementedError
        return result

    return finished
