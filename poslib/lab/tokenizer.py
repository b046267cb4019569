"""Text to tokens and back, by the vocabulary that a GGUF file carries."""

from __future__ import annotations

import numbers

__all__ = ["Tokenizer"]

NORMAL, CONTROL = 1, 3          # GGUF's types of tokens
# entries that say how text is cut before pairs are merged, and the one value of each that is read
KIND = {"model": "gpt2", "pre": "smollm", "add_bos_token": False, "add_space_prefix": False}


def _package():
    try:
        import tokenizers
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("the tokenizer is run by tokenizers: pip install tokenizers") from error
    return tokenizers


def _letters():
    """{letter: byte} of GPT-2's alphabet: printable bytes of Latin-1 stand for themselves, the others for letters from 256 on."""
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in own]
    return {chr(b): b for b in own} | {chr(256 + n): b for n, b in enumerate(others)}


class Tokenizer:
    """Byte-pair encoding as SmolLM2 uses it.

    Text is cut into digits, each alone, and the rest by GPT-2's rule (runs of letters, of other signs, of spaces, a space
    going with what follows); bytes within a piece are merged pair by pair, the pair learned first first (Sennrich et al. 2016,
    arXiv 1508.07909; on bytes: Radford et al. 2019).

    Parameters
    ----------
    tokens : list of str
        In GPT-2's alphabet for bytes; the place in the list is the token's number.
    merges : list of str
        "left right", in the order they were learned.
    special : list of int
        Numbers of the tokens that stand for no text, such as <|im_start|>.
    """

    def __init__(self, tokens, merges, special=()):
        package = _package()
        ids = {token: n for n, token in enumerate(tokens)}
        if len(ids) != len(tokens):
            raise ValueError("tokens holds a token twice")
        pairs = [tuple(m.split(" ")) for m in merges]
        for merge, pair in zip(merges, pairs):
            if len(pair) != 2 or not {*pair, "".join(pair)} <= ids.keys():
                raise ValueError(f"merges holds {merge!r}; allowed are two tokens with a space between them that together are a token")
        pre, dec = package.pre_tokenizers, package.decoders
        self._run = package.Tokenizer(package.models.BPE(vocab=ids, merges=pairs))
        self._run.pre_tokenizer = pre.Sequence([pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False, use_regex=True)])
        self._run.decoder = dec.ByteLevel()
        self._run.add_special_tokens([package.AddedToken(tokens[n], special=True, normalized=False) for n in special])
        self._bytes = {byte for letter, byte in _letters().items() if letter in ids}
        self.size, self.special = len(tokens), {tokens[n]: n for n in special}

    @classmethod
    def from_metadata(cls, metadata, path):
        """The tokenizer that the metadata of a GGUF file describe; `path` is for messages."""
        def get(name, kind):
            found = metadata.get(f"tokenizer.ggml.{name}")
            if found is None:
                raise ValueError(f"{path} has no entry tokenizer.ggml.{name}")
            if not isinstance(found, list) or not all(type(x) is kind for x in found):
                raise ValueError(f"{path} is damaged: tokenizer.ggml.{name} is no list of {kind.__name__}")
            return found
        for name, allowed in KIND.items():
            found = metadata.get(f"tokenizer.ggml.{name}", False if allowed is False else None)
            if found != allowed:
                raise ValueError(f"{path}: tokenizer.ggml.{name} is {found!r}; allowed is {allowed!r}")
        tokens, merges, kinds = get("tokens", str), get("merges", str), get("token_type", int)
        if len(kinds) != len(tokens):
            raise ValueError(f"{path} is damaged: it has {len(tokens)} tokens and {len(kinds)} types of tokens")
        if not set(kinds) <= {NORMAL, CONTROL}:
            raise ValueError(f"{path}: tokenizer.ggml.token_type holds {min(set(kinds) - {NORMAL, CONTROL})}; "
                             f"allowed are {NORMAL} (text) and {CONTROL} (special)")
        try:
            return cls(tokens, merges, [n for n, kind in enumerate(kinds) if kind == CONTROL])
        except ValueError as error:
            raise ValueError(f"{path} is damaged: tokenizer.ggml.{error}") from None

    def encode(self, text, *, special=True):
        """Numbers of the tokens of a text.

        Parameters
        ----------
        text : str
        special : bool
            Whether the name of a special token, such as <|im_start|>, stands for it or is text like any other.

        Returns
        -------
        list of int

        Raises
        ------
        TypeError
        ValueError
            When the text holds a byte for which there is no token (in SmolLM2's vocabulary six control characters, and
            the first bytes of characters from U+40000 to U+BFFFF); tokenizers itself would leave such characters out.
        """
        if not isinstance(text, str):
            raise TypeError(f"text is a {type(text).__name__}; allowed is str")
        try:
            raw = text.encode("utf8")
        except UnicodeEncodeError as error:
            raise ValueError(f"text holds {text[error.start]!r} at place {error.start}, half of a character") from None
        if not self._bytes.issuperset(raw):
            place = next(n for n, c in enumerate(text) if not self._bytes.issuperset(c.encode("utf8")))
            raise ValueError(f"text holds {text[place]!r} at place {place}, for which there is no token")
        self._run.encode_special_tokens = not special
        return self._run.encode(text, add_special_tokens=False).ids

    def decode(self, ids, *, special=True):
        """The text of tokens.

        Parameters
        ----------
        ids : sequence of int
            A list, numpy array or tensor of shape (length,).
        special : bool
            Whether special tokens appear by name, or are left out.

        Returns
        -------
        str
            With U+FFFD where bytes are no UTF-8: a token may end within a character.

        Raises
        ------
        TypeError, ValueError
            When a number is no token's.
        """
        ids = ids.tolist() if hasattr(ids, "tolist") else list(ids)
        for n in ids:
            if isinstance(n, bool) or not isinstance(n, numbers.Integral):
                raise TypeError(f"ids holds {n!r}; allowed are whole numbers, in shape (length,)")
            if not 0 <= n < self.size:
                raise ValueError(f"ids holds {n}; allowed are 0 to {self.size - 1}")
        return self._run.decode([int(n) for n in ids], skip_special_tokens=not special)
