"""Checkers of chapter 17."""

from __future__ import annotations

import math

import numpy as np

from poslib.teach.exercises import Mistake

__all__ = ["audit", "cache", "chosen", "settled"]


def _pattern(n, every, off, on):
    return [on if (i + 1) % every == 0 else off for i in range(n)]


CARDS = [   # a configuration, its right answer, and what to say of it
    ({"num_hidden_layers": 8, "hidden_size": 512, "num_attention_heads": 8}, (0, 0, 64),
     "No key speaks of a window or of layers without positions: there are none, and all hidden_size / num_attention_heads channels turn."),
    ({"num_hidden_layers": 6, "hidden_size": 512, "num_attention_heads": 8, "head_dim": 128, "partial_rotary_factor": 0.25}, (0, 0, 32),
     "Where head_dim is given it counts, not hidden_size / num_attention_heads."),
    ({"num_hidden_layers": 12, "hidden_size": 512, "num_attention_heads": 8, "sliding_window": 4096, "use_sliding_window": False}, (0, 0, 64),
     "sliding_window has a number, but use_sliding_window is false: no layer has a window."),
    ({"num_hidden_layers": 12, "hidden_size": 512, "num_attention_heads": 8, "sliding_window": 4096}, (12, 0, 64),
     "A window and no list of layers: all layers have it, as in Mistral 7B v0.1."),
    ({"num_hidden_layers": 10, "hidden_size": 512, "num_attention_heads": 8, "sliding_window": 1024,
      "layer_types": _pattern(10, 4, "sliding_attention", "full_attention")}, (8, 0, 64),
     "layer_types lists each layer; count those that say sliding_attention."),
    ({"num_hidden_layers": 12, "hidden_size": 512, "num_attention_heads": 8, "no_rope_layers": _pattern(12, 4, 1, 0)}, (0, 3, 64),
     "In no_rope_layers a 1 marks a layer that turns, despite the name (this chapter's pitfall)."),
    ({"num_hidden_layers": 9, "hidden_size": 600, "num_attention_heads": 6, "head_dim": 96, "partial_rotary_factor": 0.5, "sliding_window": 512,
      "use_sliding_window": True, "layer_types": _pattern(9, 3, "sliding_attention", "full_attention"), "no_rope_layers": _pattern(9, 3, 1, 0)}, (6, 3, 48),
     "All of it at once."),
    ({"num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4, "sliding_window": None, "layer_types": ["full_attention"] * 4}, (0, 0, 64),
     "sliding_window is null: there is no window."),
]


def audit(answer):
    """What a configuration says: layers with a window, layers without positions, channels that turn."""
    for card, right, why in CARDS:
        try:
            got = answer({k: list(v) if isinstance(v, list) else v for k, v in card.items()})
        except KeyError as error:
            raise Mistake(f"Your function wants the key {error}, which this configuration lacks. {why}") from None
        try:
            got = tuple(got)
            whole = len(got) == 3 and all(float(x).is_integer() and not isinstance(x, bool) for x in got)
        except (TypeError, ValueError):
            whole = False
        if not whole:
            raise Mistake(f"Your function gave {got!r}; it should give three whole numbers: layers with a window, layers without positions, channels that turn.")
        for name, mine, true in zip(("layers with a window", "layers without positions", "channels that turn"), got, right):
            if mine != true:
                raise Mistake(f"You find {int(mine)} {name}; there are {true}. {why}")
    return "Windows, layers without positions and turned channels, each from the key that decides it."


def settled(answer):
    """Whether one method is ahead of another, with the seeds and the search in view."""
    cases = [
        ([2.0, 2.1, 2.0, 2.2, 2.1], [2.5, 2.4, 2.6, 2.4, 2.5], False, False, "first", "All seeds of the first are below all of the second, and a small loss is a good one."),
        ([2.5, 2.4, 2.6, 2.4, 2.5], [2.0, 2.1, 2.0, 2.2, 2.1], False, False, "second", "All seeds of the second are below all of the first."),
        ([2.0, 2.1, 2.0, 2.2, 2.1], [2.15, 2.4, 2.6, 2.4, 2.5], False, False, "open", "The means are apart, but one seed of the second is below one of the first."),
        ([2.0, 2.1, 2.0, 2.2, 2.1], [2.5, 2.4, 2.6, 2.4, 2.5], False, True, "open", "The loser's best setting is at the edge of its search: there may be more to have."),
        ([2.0, 2.1, 2.0, 2.2, 2.1], [2.5, 2.4, 2.6, 2.4, 2.5], True, False, "first", "The winner's best setting is at the edge: more search could only help it. The verdict stands."),
        ([2.5, 2.4, 2.6, 2.4, 2.5], [2.0, 2.1, 2.0, 2.2, 2.1], True, False, "open", "Here the first has lost, and its best setting is at the edge."),
        ([2.5, 2.4, 2.6, 2.4, 2.5], [2.0, 2.1, 2.0, 2.2, 2.1], False, True, "second", "The winner, the second, is at the edge: more search could only help it."),
        ([2.2, 2.1], [2.2, 2.3], False, False, "open", "A seed of the one equals a seed of the other: nobody is below."),
    ]
    for x, y, edge_x, edge_y, right, why in cases:
        got = answer(np.array(x), np.array(y), edge_x, edge_y)
        if got not in ("first", "second", "open"):
            raise Mistake(f"Your function gave {got!r}; it should say 'first', 'second' or 'open'.")
        if got != right:
            raise Mistake(f"You say {got!r}; the answer is {right!r}. {why}")
    return "Ahead in every seed, and the loser had its chance: only then is a comparison settled."


def chosen(answer):
    """Which methods have most reasons on their side, by rules that are given."""
    rules = [({}, "a", "for"), ({}, "b", "for"), ({"long": True}, "b", "for"), ({"long": True}, "a", "out"), ({"long": True, "fast": True}, "b", "against"),
             ({"fast": True}, "c", "for"), ({"fast": False}, "c", "against"), ({"long": True}, "c", "for")]
    # methods that no rule names are not there
    cases = [({"long": False, "fast": False}, {"a", "b"}, "Both have one reason for them, c has one against."),
             ({"long": True, "fast": False}, {"b"}, "b has two reasons; a is out."),
             ({"long": False, "fast": True}, {"a", "b", "c"}, "Each of the three has one reason."),
             ({"long": True, "fast": True}, {"c"}, "b has two reasons for and one against, c two for it; a is out.")]
    more = [({}, "x", "for"), ({}, "x", "for"), ({}, "x", "for"), ({"far": True}, "x", "out"), ({}, "y", "against"), ({"far": True}, "z", "against"), ({"far": True}, "z", "against")]
    tests = [(rules, a, r, w) for a, r, w in cases]
    tests.append((more, {"far": True}, {"y"}, "x has three reasons for it, but a rule says that it is out: no number of reasons outweighs that."))
    tests.append(([({"far": True}, "x", "for"), ({}, "y", "against")], {"far": False}, {"x"}, "No rule fires for x, which leaves it at 0; y has one against it."))
    for given, answers, right, why in tests:
        got = answer([(dict(w), m, s) for w, m, s in given], dict(answers))
        if isinstance(got, str) or not hasattr(got, "__iter__"):
            raise Mistake(f"Your function gave {got!r}; it should give a set of methods, all that share the first place.")
        if set(got) != right:
            raise Mistake(f"For {answers} you choose {', '.join(sorted(map(str, got))) or 'nothing'}; first are {', '.join(sorted(right))}. {why}")
    return "A rule fires when all of its conditions hold; out is out; the rest is counting."


def cache(answer):
    """What share of a cache windows save."""
    def share(layers, every, window, tokens):
        full = layers // every
        return 1 - (full * tokens + (layers - full) * min(window, tokens)) / (layers * tokens)

    for case in [(32, 4, 4096, 262144), (48, 4, 8192, 262144), (26, 6, 1024, 131072), (36, 2, 128, 131072), (32, 4, 4096, 2048), (10, 4, 100, 1000), (8, 1, 64, 4096)]:
        layers, every, window, tokens = case
        right, full = share(*case), layers // every
        got = answer(*case)
        if isinstance(got, bool) or not isinstance(got, (int, float, np.integer, np.floating)):
            raise Mistake(f"cache{case} gave {got!r}; it should be a number, the share that is saved.")
        if math.isclose(got, right, abs_tol=1e-9):
            continue
        for wrong, why in [(1 - right, "that is the share which is kept; asked for is what is saved"),
                           (1 - (full * tokens + (layers - full) * window) / (layers * tokens), "a window that is longer than the text caches the text, no more"),
                           (1 - ((layers - full) * tokens + full * min(window, tokens)) / (layers * tokens), f"you give the windows to {full} layers; those are the full ones, the other {layers - full} have windows"),
                           (1 - full / layers, "the layers with windows cache something, too"),
                           (1 - (tokens / every + (1 - 1 / every) * min(window, tokens)) / tokens, f"of {layers} layers {full} are full, every {every}th one; {layers}/{every} is no whole number"),
                           (1 - (-(-layers // every) * tokens + (layers + -layers // every) * min(window, tokens)) / (layers * tokens), f"you round {layers}/{every} up; full is every {every}th layer, counted from 1"),
                           (1 - min(window, tokens) / tokens, "you give every layer a window")]:
            if math.isclose(got, wrong, abs_tol=1e-9):
                raise Mistake(f"For {layers} layers, every {every}th full, windows of {window:,} and {tokens:,} tokens: {why}.")
        raise Mistake(f"For {layers} layers, every {every}th full, windows of {window:,} and {tokens:,} tokens the share saved is {right:.4f}; your function gave {float(got):.4f}.")
    return "Three windows to one full layer save nearly three quarters of a long text's cache, and nothing of a short one's."
