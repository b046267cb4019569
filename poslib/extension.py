"""Stretching a trained RoPE model: which frequencies it turns with past its trained length, and which factors go with them.

A method is a frozen dataclass.  From the width and the base that a model was trained with it makes other frequencies, and says
how much queries and keys grow when they are turned (`Method.rotation_factor`) and how much the softmax scale does
(`Method.softmax_factor`).  Nothing is remembered: methods that depend on how long a text is take its length as an argument, so
that decoding token by token equals reading at once whenever both are told the same length.

Notation: d channels turn, base b, frequencies ω_k = b^(-2k/d), wavelengths λ_k = 2π/ω_k, trained length L, factor s.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import operator
from typing import ClassVar

from poslib import _arrays as arrays, rotary

__all__ = ["ByParts", "DynamicNTK", "Linear", "Llama3", "LongRoPE", "Method", "NTKAware", "PartNTK", "Proportional", "Unscaled", "YaRN",
           "correction_range", "mscale"]

RAMPS = {"paper": "linear in the turns that a pair makes in the trained length", "code": "linear in the number of the pair"}


@dataclasses.dataclass(frozen=True)
class Method:
    """What all methods share; make one of the others, or `Unscaled`.

    Notes
    -----
    Two factors, two places, neither inside the other: `rotate` puts the rotation factor on queries and keys, so that scores get
    its square; `scale` has the softmax factor and not the rotation factor.  ``attention(rotate(q), rotate(k), v, scale=scale(d))``
    holds each once.

    Whether frequencies depend on the length of the text is the class's `dynamic`.  Methods that are not dynamic take a length too,
    and give the same for all.  Texts of different lengths have different frequencies then: turn them one by one, or all for one length.
    ``torch.compile`` makes one graph, and may make another when the length changes; `tables` made outside of it spare that.

    Examples
    --------
    >>> isinstance(Linear(4.0), Method), Linear.dynamic, DynamicNTK.dynamic
    (True, False, True)
    """

    dynamic: ClassVar[bool] = False

    def frequencies(self, width, base=10000.0, *, length=None):
        """Angle per position of each pair, for `poslib.rotary.rotate`.

        Parameters
        ----------
        width : int, even, at least 2
            Number of channels that turn.
        base : float, finite, at least 1
            That the model was trained with.
        length : int, at least 1
            Positions in use: one more than the largest of the whole text, cached tokens included.  Needed by dynamic methods; not the
            room of a buffer, nor the number of tokens of one call.

        Returns
        -------
        numpy array, float64, shape (width/2,), radians per position

        Raises
        ------
        TypeError, ValueError
            Naming the argument, its value, and what is allowed.

        Examples
        --------
        >>> Linear(4.0).frequencies(4)
        array([0.25  , 0.0025])
        """
        import numpy as np
        return np.asarray(self._ladder(width, base, self._used(length)), dtype=np.float64)

    def rotation_factor(self, *, length=None):
        """Factor on turned queries and keys alike (on cosine and sine); scores get its square.

        Parameters
        ----------
        length : int, optional
            As for `frequencies`.

        Returns
        -------
        float
            1.0 for methods without one.  transformers calls it ``attention_scaling``, YaRN's paper √(1/t).

        Examples
        --------
        >>> round(YaRN(16.0, 4096).rotation_factor(), 4)
        1.2773
        """
        return self._rotation(self._used(length))

    def softmax_factor(self):
        """Factor on the softmax scale 1/√(head width), besides the rotation factor and without it.

        Returns
        -------
        float
            1.0 but for `YaRN` with `scale_softmax`.

        Examples
        --------
        >>> round(YaRN(40.0, 4096, mscale=1.0, mscale_all_dim=1.0, scale_softmax=True).softmax_factor(), 4)
        1.8739
        """
        return 1.0

    def scale(self, head_width, *, turned_plain=False, length=None):
        """Softmax scale, for ``scale=`` of `poslib.attention.attention`.

        Parameters
        ----------
        head_width : int, at least 1
            Of the whole head, turned or not.
        turned_plain : bool
            True for queries and keys that `poslib.rotary.rotate` turned with `frequencies`, which holds no factor: the square of the
            rotation factor is then in the scale.  The same only where all channels of a head turn.
        length : int, optional
            As for `frequencies`.

        Returns
        -------
        float

        Examples
        --------
        >>> yarn = YaRN(16.0, 4096)
        >>> yarn.scale(64), round(yarn.scale(64, turned_plain=True), 4)
        (0.125, 0.2039)
        """
        arrays.whole("head_width", head_width, at_least=1)
        arrays.flag("turned_plain", turned_plain)
        scale = self.softmax_factor() / math.sqrt(head_width)
        used = self._used(length) if turned_plain else None
        return scale * self._rotation(used) ** 2 if turned_plain else scale

    def tables(self, positions, width, dtype, base=10000.0, *, length=None, axes=None):
        """Cosines and sines with the rotation factor in them, for `poslib.rotary.turn`.

        Parameters
        ----------
        positions : array or tensor, integers, shape (..., length)
        width : int, even, at least 2
        dtype : dtype of the kind of `positions`
            Of the vectors that are to be turned.
        base, length
            As for `frequencies`.
        axes : integers, shape (width/2,), optional
            As for `poslib.rotary.angles`.

        Returns
        -------
        cos, sin : same kind as `positions`, shape (..., length, width/2)
            float64 for float64 vectors, float32 for all others.

        Examples
        --------
        >>> import numpy as np
        >>> cos, sin = YaRN(16.0, 4096).tables(np.array([0]), 64, np.float32)
        >>> cos.shape, float(cos[0, 0]) > 1.277
        ((1, 32), True)
        """
        used = self._used(length)
        theta = rotary.angles(positions, self._ladder(width, base, used), axes=axes)
        return _tables(arrays.namespace_of("positions", positions), theta, dtype, self._rotation(used))

    def rotate(self, x, positions, *, layout, width=None, base=10000.0, length=None, axes=None, inverse=False, out=None):
        """Turn queries or keys with the method's frequencies and multiply them by its rotation factor.

        Parameters
        ----------
        x : array or tensor, shape (..., length, head width), any float dtype
        positions, layout
            As for `poslib.rotary.rotate`.
        width : int, even, optional
            Only the first `width` channels turn, and only they get the rotation factor.
        base, length
            As for `frequencies`.
        axes
            As for `poslib.rotary.rotate`.
        inverse : bool
            Undo it: turn back, and divide by the rotation factor.
        out
            As for `poslib.rotary.rotate`.

        Returns
        -------
        Same kind, shape, dtype and device as `x`

        Raises
        ------
        TypeError, ValueError
            As for `poslib.rotary.rotate`.

        Notes
        -----
        The factor is multiplied into the tables in float64, and the result is rounded once.  A partial width leaves the scores of
        the other channels as they were: a temperature then reaches a part of each score, as in the models that have it.

        Examples
        --------
        >>> import numpy as np
        >>> x = np.array([[1.0, 0.0]])
        >>> Linear(4.0).rotate(x, np.array([4]), layout="half").round(2)     # by the angle of position 1
        array([[0.54, 0.84]])
        """
        width = _width_of(x, width)
        used = self._used(length)
        return _turned(x, positions, self._ladder(width, base, used), self._rotation(used), layout=layout, width=width, axes=axes,
                       inverse=inverse, out=out)

    def relength(self, x, positions, old, new, *, layout, width=None, base=10000.0, axes=None, out=None):
        """Bring vectors that were turned for one length to another, as a cache of turned keys needs when the text outgrows its length.

        Parameters
        ----------
        x : array or tensor, shape (..., length, head width), any float dtype
            As `rotate` gave them with ``length=old``.
        positions : same kind, integers
            Where they stand.
        old, new : int, at least 1
            Lengths.
        layout, width, base, axes, out
            As they were for `rotate`.

        Returns
        -------
        Same kind, shape, dtype and device as `x`

        Raises
        ------
        TypeError, ValueError
            As for `rotate`.

        Notes
        -----
        Rotations add up: one turn by position times the difference of the frequencies does it, exactly but for rounding, and the
        ratio of the rotation factors goes with it.  As for `poslib.rotary.reposition`, each turn rounds `x` once more; unturned keys
        in the cache need none.

        Examples
        --------
        >>> import numpy as np
        >>> method, x, p = DynamicNTK(2.0, 16), np.ones((16, 4)), np.arange(16)
        >>> old, new = (method.rotate(x, p, layout="half", length=n) for n in (16, 64))
        >>> mended = method.relength(old, p, 16, 64, layout="half")
        >>> bool(abs(old - new).max() > 0.1), bool(abs(mended - new).max() < 1e-14)
        (True, True)
        """
        width = _width_of(x, width)
        for name, length in (("old", old), ("new", new)):
            arrays.whole(name, length, at_least=1)
        before, after = (self._ladder(width, base, operator.index(n)) for n in (old, new))
        return _turned(x, positions, tuple(b - a for a, b in zip(before, after)), self._rotation(new) / self._rotation(old),
                       layout=layout, width=width, axes=axes, inverse=False, out=out)

    def explain(self, width, base=10000.0, *, length=None):
        """Plain sentences: what the method does to the frequencies of a width and a base, and to the scores.

        Parameters
        ----------
        width, base, length
            As for `frequencies`; a dynamic method that is told no length says what it depends on.

        Returns
        -------
        str
            A sentence on each line.

        Examples
        --------
        >>> print(YaRN(16.0, 4096).explain(128))
        YaRN, factor 16 for a trained length of 4,096 (ramp "code").
        Of 64 pairs 21 keep their frequency, 25 are slowed in part, 18 are slowed 16 times.
        Turned queries and keys grow by 1.2773 (rotation factor), scores by 1.6314.
        """
        said = [self._title()]
        if self.dynamic and length is None:
            return "\n".join([*said, "Frequencies depend on the length of the text, which must be given."])
        used = self._used(length)
        said += self._pairs_said(rotary._frequencies(width, base), self._ladder(width, base, used))
        factor = self._rotation(used)
        if factor != 1:
            said.append(f"Turned queries and keys grow by {factor:.5g} (rotation factor), scores by {factor * factor:.5g}.")
        if self.softmax_factor() != 1:
            said.append(f"The softmax scale grows by {self.softmax_factor():.5g} besides (softmax factor).")
        return "\n".join(said)

    def _ladder(self, width, base, length):
        """Frequencies as a tuple of Python floats, which torch.compile can read."""
        raise TypeError(f"{type(self).__name__} has no frequencies; allowed are the methods under it, such as Unscaled")

    def _rotation(self, length):
        return 1.0

    def _title(self):
        return f"{type(self).__name__}, factor {self.factor:g}."

    def _pairs_said(self, before, after):
        """What became of each pair, counted."""
        slowed = [w / v if v else math.inf for w, v in zip(before, after)]
        top = max(slowed)
        kept = sum(r == 1 for r in slowed)
        full = sum(math.isclose(r, top, rel_tol=1e-12) for r in slowed) if top > 1 else 0
        parts = [(kept, "keep their frequency"), (len(slowed) - kept - full, "are slowed in part"),
                 (full, "stand still" if top == math.inf else f"are slowed {top:.5g} times")]
        return [f"Of {len(slowed)} pairs " + ", ".join(f"{n} {what}" for n, what in parts if n) + "."]

    def _used(self, length):
        """A length as a Python int; None where it makes no difference."""
        if length is None:
            if self.dynamic:
                raise TypeError(f"length is None, and the frequencies of {type(self).__name__} depend on it; allowed is a whole "
                                "number, one more than the largest position of the text")
            return None
        arrays.whole("length", length, at_least=1)
        return operator.index(length) if self.dynamic else None


@dataclasses.dataclass(frozen=True)
class Unscaled(Method):
    """Frequencies as they were trained: what the others are compared with.

    Examples
    --------
    >>> Unscaled().frequencies(4)
    array([1.  , 0.01])
    """

    def _ladder(self, width, base, length):
        return tuple(rotary._frequencies(width, base))

    def _title(self):
        return "Unscaled."


@dataclasses.dataclass(frozen=True)
class Linear(Method):
    """Position Interpolation: all pairs s times slower, which is to say positions divided by s.

    Parameters
    ----------
    factor : float, at least 1
        The stretch s.

    Notes
    -----
    Chen et al. 2023 (arXiv 2306.15595), equation 4; ``rope_type="linear"`` of transformers.

    Examples
    --------
    >>> Linear(4.0).frequencies(4)
    array([0.25  , 0.0025])
    """

    factor: float

    def __post_init__(self):
        _set(self, factor=_number("factor", self.factor, at_least=1))

    def positions(self, positions):
        """Positions divided by the factor: the paper's form of the method.

        Parameters
        ----------
        positions : array or tensor, integers

        Returns
        -------
        Same kind and shape, float64
            For ``poslib.rotary.rotate(..., fractional=True)`` with the frequencies of training: the same to rounding as integers with
            the frequencies of the method.

        Examples
        --------
        >>> import numpy as np
        >>> Linear(4.0).positions(np.array([8191]))     # the last of 8,192, for a model trained to 2,048
        array([2047.75])
        """
        xp = arrays.namespace_of("positions", positions)
        arrays.integers(xp, positions=positions)
        return xp.astype(positions, xp.float64) / self.factor

    def _ladder(self, width, base, length):
        return tuple(w / self.factor for w in rotary._frequencies(width, base))


@dataclasses.dataclass(frozen=True)
class NTKAware(Method):
    """A larger base, so that the slowest pair turns s times slower and the fastest as before.

    Parameters
    ----------
    factor : float, at least 1
        The stretch s: how many times slower slow pairs turn.

    Notes
    -----
    Base b·s^(d/(d-2)): Peng et al. 2024 (arXiv 2309.00071), definition 1, after a post of u/bloc97; static NTK in llama.cpp's and vLLM's
    words.  With two channels there is no such base.

    Examples
    --------
    >>> NTKAware(4.0).frequencies(4)
    array([1.    , 0.0025])
    """

    factor: float

    def __post_init__(self):
        _set(self, factor=_number("factor", self.factor, at_least=1))

    def new_base(self, width, base=10000.0):
        """The base that takes the place of the trained one.

        Parameters
        ----------
        width : int, even, at least 4
        base : float

        Returns
        -------
        float

        Examples
        --------
        >>> round(NTKAware(8.0).new_base(128), 2)
        82684.62
        """
        return _grown_base(width, base, self.factor)

    def _ladder(self, width, base, length):
        return tuple(rotary._frequencies(width, self.new_base(width, base)))


@dataclasses.dataclass(frozen=True)
class DynamicNTK(Method):
    """`NTKAware` by as much as the text in use is longer than the trained length.

    Parameters
    ----------
    factor : float, at least 1
        s.  A text of n > L positions is stretched by s·n/L - (s - 1): for s = 1 by n/L.
    trained_length : int, at least 1
        L; up to it nothing changes.

    Notes
    -----
    After a post of u/emozilla; ``rope_type="dynamic"`` of transformers, which takes ``max_position_embeddings`` for L.  Here the length
    is an argument, there it is remembered.  All queries and keys of a text must be turned with one length: when the text grows, keys
    that were cached turned no longer fit.  Keep them unturned, decide on a length beforehand, or repair them by `relength`.

    Examples
    --------
    >>> method = DynamicNTK(2.0, 2048)
    >>> [round(method.new_base(128, length=n), 2) for n in (1, 2048, 4096)]
    [10000.0, 10000.0, 30527.74]
    """

    factor: float
    trained_length: int
    dynamic: ClassVar[bool] = True

    def __post_init__(self):
        _set(self, factor=_number("factor", self.factor, at_least=1), trained_length=_length("trained_length", self.trained_length))

    def new_base(self, width, base=10000.0, *, length):
        """The base for a text of `length` positions.

        Parameters
        ----------
        width : int, even, at least 4
        base : float
        length : int, at least 1

        Returns
        -------
        float

        Examples
        --------
        >>> round(DynamicNTK(2.0, 2048).new_base(128, length=8192), 2)
        72195.86
        """
        return self._base(width, base, self._used(length))

    def _base(self, width, base, length):
        if length <= self.trained_length:
            rotary._even("width", width)
            return arrays.base(base)
        return _grown_base(width, base, self.factor * length / self.trained_length - (self.factor - 1))

    def _ladder(self, width, base, length):
        return tuple(rotary._frequencies(width, self._base(width, base, length)))

    def _title(self):
        return f"DynamicNTK, factor {self.factor:g} beyond a trained length of {self.trained_length:,}."


@dataclasses.dataclass(frozen=True)
class ByParts(Method):
    """Fast pairs as they are, slow pairs s times slower, a ramp between them (NTK-by-parts).

    Parameters
    ----------
    factor : float, at least 1
        The stretch s: how many times slower slow pairs turn.
    trained_length : int, at least 1
        The trained length L, in positions.
    ramp : {"code", "paper"}
        The paper's ramp is linear in the turns L/λ_k that a pair makes in the trained length, that of its authors' code and of
        transformers is linear in k.  Far to both sides of it they agree; on it, frequencies differ by up to 3.04 times for Llama 2
        stretched 16 times.
    beta_fast, beta_slow : float, positive
        Turns above which a pair stays, and below which it is slowed in full.
    truncate : bool, optional
        With ramp "code": whether the ends of the ramp are whole pairs, rounded outwards; True unless given.

    Notes
    -----
    Peng et al. 2024 (arXiv 2309.00071; numbers of its second version), section 3.2: r = L/λ (equation 17, which prints b′ where b is
    meant), γ(r) (equation 18), ω = (1 - γ) ω/s + γ ω; beta_slow is α there, beta_fast β.  For "code": the ramp runs between
    `correction_range`'s ends, at pair numbers.

    Examples
    --------
    >>> paper, code = (ByParts(16.0, 4096, ramp=ramp).frequencies(128) for ramp in ("paper", "code"))
    >>> round(float((code / paper).max()), 2)
    3.04
    """

    factor: float
    trained_length: int
    _: dataclasses.KW_ONLY
    ramp: str = "code"
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool | None = None

    def __post_init__(self):
        _set(self, factor=_number("factor", self.factor, at_least=1), trained_length=_length("trained_length", self.trained_length),
             beta_fast=_number("beta_fast", self.beta_fast, above=0), beta_slow=_number("beta_slow", self.beta_slow, above=0))
        if not isinstance(self.ramp, str) or self.ramp not in RAMPS:
            raise ValueError(f"ramp is {self.ramp!r}; allowed are " + " and ".join(f"'{name}' ({what})" for name, what in RAMPS.items()))
        if self.beta_fast <= self.beta_slow:
            raise ValueError(f"beta_fast is {self.beta_fast:g}, beta_slow {self.beta_slow:g}; allowed is a larger beta_fast")
        if self.truncate is not None:
            arrays.flag("truncate", self.truncate)
            if self.ramp == "paper":
                raise ValueError(f"truncate is {self.truncate} and ramp 'paper', which has no pair numbers; allowed is None")

    def slowed(self, width, base=10000.0):
        """How far each pair is on the way from its own frequency, 0, to the interpolated one, 1 (the paper's 1 - γ).

        Parameters
        ----------
        width : int, even, at least 2
        base : float, above 1

        Returns
        -------
        numpy array, float64, shape (width/2,)

        Examples
        --------
        >>> ByParts(4.0, 64, ramp="paper", beta_fast=4.0).slowed(8).round(2)
        array([0.  , 0.99, 1.  , 1.  ])
        """
        import numpy as np
        return np.asarray(self._shares(rotary._frequencies(width, base), base), dtype=np.float64)

    def _shares(self, omega, base):
        if self.ramp == "paper":
            turns = [self.trained_length * w / (2 * math.pi) for w in omega]
            return [1 - _clip((r - self.beta_slow) / (self.beta_fast - self.beta_slow)) for r in turns]
        return _ramp(len(omega), correction_range(2 * len(omega), base, self.trained_length, beta_fast=self.beta_fast,
                                                  beta_slow=self.beta_slow, truncate=self.truncate is not False))

    def _ladder(self, width, base, length):
        omega = rotary._frequencies(width, base)
        return tuple(w * (1 - r) + w / self.factor * r for w, r in zip(omega, self._shares(omega, base)))

    def _title(self):
        return f"{type(self).__name__}, factor {self.factor:g} for a trained length of {self.trained_length:,} (ramp \"{self.ramp}\")."


@dataclasses.dataclass(frozen=True)
class YaRN(ByParts):
    """`ByParts` with a temperature: scores are multiplied by (0.1 ln s + 1)², so attention sharpens.

    Parameters
    ----------
    factor, trained_length, ramp, beta_fast, beta_slow, truncate
        As for `ByParts`.
    attention_factor : float, positive, optional
        The rotation factor itself, final; nothing else is multiplied into it.
    multiplier : float, positive
        On the rotation factor that follows from the rest; ``attn_factor`` in configurations.
    mscale, mscale_all_dim : float, at least 0, optional
        DeepSeek's weights: the rotation factor is then g(s, mscale)/g(s, mscale_all_dim) with `mscale`'s g.  What is not given counts as 1 and 0,
        so that g(s, 1) is left where neither is, which is the paper's.
    scale_softmax : bool
        Whether the softmax scale is multiplied by g(s, mscale_all_dim)², as in DeepSeek's models; in others that name
        ``mscale_all_dim`` it is not.

    Notes
    -----
    Peng et al. 2024 (arXiv 2309.00071): temperature, second version, section 3.4, equation 22, √(1/t) = 0.1 ln s + 1, on queries and keys both.
    DeepSeek-V2 and -V3, in their code: two weights.  transformers 5.24 uses the weights only where both are given
    and not 0, and g(s, 1) otherwise.

    Examples
    --------
    >>> yarn = YaRN(40.0, 4096, mscale=1.0, mscale_all_dim=1.0, scale_softmax=True)      # DeepSeek-V3: 192 channels
    >>> yarn.rotation_factor(), round(yarn.scale(192), 7)
    (1.0, 0.1352338)
    """

    _: dataclasses.KW_ONLY
    attention_factor: float | None = None
    multiplier: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    scale_softmax: bool = False

    def __post_init__(self):
        super().__post_init__()
        _set(self, multiplier=_number("multiplier", self.multiplier, above=0))
        if self.attention_factor is not None:
            _set(self, attention_factor=_number("attention_factor", self.attention_factor, above=0))
            if self.multiplier != 1:
                raise ValueError(f"attention_factor is {self.attention_factor:g}, which is final, and multiplier {self.multiplier:g}; "
                                 "allowed is one of the two")
        for name in ("mscale", "mscale_all_dim"):
            if getattr(self, name) is not None:
                _set(self, **{name: _number(name, getattr(self, name), at_least=0)})
        arrays.flag("scale_softmax", self.scale_softmax)

    def softmax_factor(self):
        """Factor on the softmax scale: g(s, mscale_all_dim)² with `scale_softmax`, else 1.

        Returns
        -------
        float

        Examples
        --------
        >>> YaRN(40.0, 4096).softmax_factor()
        1.0
        """
        return mscale(self.factor, self.mscale_all_dim or 0.0) ** 2 if self.scale_softmax else 1.0

    def _rotation(self, length):
        if self.attention_factor is not None:
            return self.attention_factor
        weight = 1.0 if self.mscale is None else self.mscale
        return self.multiplier * (mscale(self.factor, weight) / mscale(self.factor, self.mscale_all_dim or 0.0))


@dataclasses.dataclass(frozen=True)
class PartNTK(Method):
    """NTK-by-parts as its authors first published it: two ramps, from interpolation to `NTKAware` to unscaled.

    Parameters
    ----------
    factor : float, at least 1
    trained_length : int, at least 1

    Notes
    -----
    ``LlamaPartNTKScaledRotaryEmbedding`` in the code of Peng et al.: the ramps, linear in the pair number, run from 1.25 turns in the
    trained length to 0.75, and from 16 to 2.  `ByParts` came of it.

    Examples
    --------
    >>> slowed = Unscaled().frequencies(128) / PartNTK(4.0, 2048).frequencies(128)
    >>> slowed[[0, 25, 35, 45, 63]].round(2)
    array([1.  , 1.15, 2.01, 4.  , 4.  ])
    """

    factor: float
    trained_length: int

    def __post_init__(self):
        _set(self, factor=_number("factor", self.factor, at_least=1), trained_length=_length("trained_length", self.trained_length))

    def _ladder(self, width, base, length):
        omega = rotary._frequencies(width, base)
        stretched = rotary._frequencies(width, _grown_base(width, base, self.factor))
        low, high = (_ramp(len(omega), correction_range(width, base, self.trained_length, beta_fast=fast, beta_slow=slow))
                     for fast, slow in ((1.25, 0.75), (16.0, 2.0)))
        inner = [v * (1 - r) + w / self.factor * r for w, v, r in zip(omega, stretched, low)]
        return tuple(w * (1 - r) + v * r for w, v, r in zip(omega, inner, high))

    def _title(self):
        return f"PartNTK, factor {self.factor:g} for a trained length of {self.trained_length:,}."


@dataclasses.dataclass(frozen=True)
class Llama3(Method):
    """Pairs of short wavelength as they are, of long wavelength s times slower, a blend between (Llama 3.1).

    Parameters
    ----------
    factor : float, at least 1
        s; 8 in Llama 3.1, 32 in the small models of 3.2.
    trained_length : int, at least 1
        L; 8,192.
    low_freq_factor, high_freq_factor : float, positive
        Turns in the trained length up to which a pair is slowed in full, and from which it stays.

    Notes
    -----
    ``apply_scaling`` in Meta's ``llama-models``: for L/λ between the two, (1 - t) ω/s + t ω with t = (L/λ - low)/(high - low).  It is
    the paper's ramp of `ByParts` with 1 and 4 turns for 1 and 32, and there is no temperature.

    Examples
    --------
    >>> slowed = Unscaled().frequencies(64, 500000.0) / Llama3(32.0, 8192).frequencies(64, 500000.0)
    >>> slowed[[14, 15, 17, 18, 31]].round(2)
    array([ 1.  ,  1.65,  9.67, 32.  , 32.  ])
    """

    factor: float
    trained_length: int
    _: dataclasses.KW_ONLY
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0

    def __post_init__(self):
        _set(self, factor=_number("factor", self.factor, at_least=1), trained_length=_length("trained_length", self.trained_length),
             low_freq_factor=_number("low_freq_factor", self.low_freq_factor, above=0),
             high_freq_factor=_number("high_freq_factor", self.high_freq_factor, above=0))
        if self.high_freq_factor <= self.low_freq_factor:
            raise ValueError(f"low_freq_factor is {self.low_freq_factor:g}, high_freq_factor {self.high_freq_factor:g}; "
                             "allowed is a larger high_freq_factor")

    def _ladder(self, width, base, length):
        omega = rotary._frequencies(width, base)
        kept = [_clip((self.trained_length * w / (2 * math.pi) - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor))
                for w in omega]
        return tuple((1 - t) * w / self.factor + t * w for w, t in zip(omega, kept))

    def _title(self):
        return f"Llama3, factor {self.factor:g} for a trained length of {self.trained_length:,}."


@dataclasses.dataclass(frozen=True)
class LongRoPE(Method):
    """A divisor for each pair, found by search: one list for texts within the trained length, another beyond.

    Parameters
    ----------
    short_factor, long_factor : sequences of float, positive, one for each pair that turns
        Divisors of the frequencies for texts of up to L positions, and for longer ones.
    trained_length : int, at least 2
        The trained length L, in positions.
    factor : float, at least 1, optional
        s, which gives the rotation factor √(1 + ln s/ln L); needed unless the factor is given itself.
    attention_factor : float, positive, optional
        The rotation factor itself, for short and long texts.
    short_mscale, long_mscale : float, positive, optional
        The rotation factors of short and of long texts, where they differ (Phi-3.5-MoE); both or neither.

    Notes
    -----
    Ding et al. 2024 (arXiv 2402.13753); lists, switch and rotation factor as in ``microsoft/LongRoPE``, Phi-3 and
    ``rope_type="longrope"`` (once "su") of transformers.  The list is chosen once for all positions, by the length in use, and not by
    the room of a buffer.  Keys that were cached turned with the short list do not fit the long one: see `DynamicNTK`.

    Examples
    --------
    >>> method = LongRoPE((1.0, 1.0), (1.0, 8.0), 4096, factor=32.0)
    >>> [float(method.frequencies(4, length=n)[1]) for n in (4096, 4097)], round(method.rotation_factor(length=9), 4)
    ([0.01, 0.00125], 1.1902)
    """

    short_factor: tuple[float, ...]
    long_factor: tuple[float, ...]
    trained_length: int
    _: dataclasses.KW_ONLY
    factor: float | None = None
    attention_factor: float | None = None
    short_mscale: float | None = None
    long_mscale: float | None = None
    dynamic: ClassVar[bool] = True

    def __post_init__(self):
        lists = {name: _divisors(name, getattr(self, name)) for name in ("short_factor", "long_factor")}
        if len(lists["short_factor"]) != len(lists["long_factor"]):
            raise ValueError(f"short_factor has {len(lists['short_factor'])} entries, long_factor {len(lists['long_factor'])}; "
                             "allowed is one in each for every pair that turns")
        _set(self, **lists, trained_length=_length("trained_length", self.trained_length, at_least=2))
        if self.factor is not None:
            _set(self, factor=_number("factor", self.factor, at_least=1))
        for name in ("attention_factor", "short_mscale", "long_mscale"):
            if getattr(self, name) is not None:
                _set(self, **{name: _number(name, getattr(self, name), above=0)})
        if (self.short_mscale is None) != (self.long_mscale is None):
            raise ValueError(f"short_mscale is {self.short_mscale}, long_mscale {self.long_mscale}: give both or neither")
        if self.short_mscale is not None and self.attention_factor is not None:
            raise ValueError(f"attention_factor is {self.attention_factor:g} and short_mscale {self.short_mscale:g}; allowed is one of the two")
        if self.factor is None and self.attention_factor is None and self.short_mscale is None:
            raise ValueError("factor is None, and so is attention_factor; allowed is one of them, or short_mscale and long_mscale")

    def _ladder(self, width, base, length):
        omega = rotary._frequencies(width, base)
        divisors = self.long_factor if length > self.trained_length else self.short_factor
        if len(divisors) != len(omega):
            raise ValueError(f"short_factor and long_factor have {len(divisors)} entries, width is {width}; allowed are {len(omega)}, "
                             "one for each pair that turns")
        return tuple(w / f for w, f in zip(omega, divisors))

    def _rotation(self, length):
        if self.short_mscale is not None:
            return self.long_mscale if length > self.trained_length else self.short_mscale
        if self.attention_factor is not None:
            return self.attention_factor
        return 1.0 if self.factor == 1 else math.sqrt(1 + math.log(self.factor) / math.log(self.trained_length))

    def _title(self):
        return f"LongRoPE: one list of divisors up to {self.trained_length:,} positions, another beyond."

    def _pairs_said(self, before, after):
        slowed = [w / v for w, v in zip(before, after)]
        return [f"The {len(slowed)} pairs are slowed {min(slowed):.5g} to {max(slowed):.5g} times."]


@dataclasses.dataclass(frozen=True)
class Proportional(Method):
    """p-RoPE: the slowest pairs stand still; see `poslib.rotary.proportional_frequencies`.

    Parameters
    ----------
    share : float, 0 to 1
        Of the pairs, the fastest ones, which turn.
    factor : float, at least 1
        They turn slower by this, as ``rope_type="proportional"`` of transformers allows.

    Notes
    -----
    Barbero et al. 2024 (arXiv 2410.06205), section 6.  Models are trained with it; on one that was not it is an intervention.

    Examples
    --------
    >>> Proportional(0.5).frequencies(8)
    array([1. , 0.1, 0. , 0. ])
    """

    share: float
    factor: float = 1.0

    def __post_init__(self):
        rotary._share(self.share, 1)
        _set(self, factor=_number("factor", self.factor, at_least=1))

    def _ladder(self, width, base, length):
        omega = rotary._frequencies(width, base)
        turning = rotary._share(self.share, len(omega))
        return tuple(w / self.factor if k < turning else 0.0 for k, w in enumerate(omega))

    def _title(self):
        return f"Proportional (p-RoPE), share {self.share:g}, factor {self.factor:g}."


def mscale(factor, weight=1.0):
    """YaRN's growth of queries and keys, g(s, m) = 0.1 m ln s + 1.

    Parameters
    ----------
    factor : float, positive
        s; 1 and less give 1.
    weight : float
        m, DeepSeek's; 1 in the paper.

    Returns
    -------
    float
        √(1/t) of the paper: logits are multiplied by its square.

    Notes
    -----
    Peng et al. 2024 (arXiv 2309.00071), second version, equation 22; the third's equation 15.

    Examples
    --------
    >>> [round(mscale(s), 4) for s in (1, 8, 32)]
    [1.0, 1.2079, 1.3466]
    """
    factor, weight = _number("factor", factor, above=0), _number("weight", weight)
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0


def correction_range(width, base, trained_length, *, beta_fast=32.0, beta_slow=1.0, truncate=True):
    """Between which pair numbers the ramp of YaRN's code runs.

    Parameters
    ----------
    width : int, even, at least 2
    base : float, above 1
    trained_length : int, at least 1
    beta_fast, beta_slow : float, positive
        Turns in the trained length at the ramp's two ends.
    truncate : bool
        Whether the ends are rounded outwards, to whole pairs.

    Returns
    -------
    low, high : float
        Up to pair `low` frequencies stay, from `high` on they are slowed in full.  Not below 0 and not above width - 1: that is the code's
        bound, although the last pair is width/2 - 1.

    Raises
    ------
    ValueError
        Where the bounds leave no ramp: for a trained length in which no pair makes `beta_slow` turns, or in which
        all that there could be make `beta_fast`.

    Notes
    -----
    A pair of wavelength λ makes β turns in L where its number is d ln(L/(2πβ))/(2 ln b): ``find_correction_dim`` in the code of Peng et al.

    Examples
    --------
    >>> correction_range(128, 10000.0, 4096)
    (20.0, 46.0)
    """
    rotary._even("width", width)
    base, trained_length = arrays.base(base), _length("trained_length", trained_length)
    arrays.flag("truncate", truncate)
    if base == 1:
        raise ValueError("base is 1: all pairs turn alike; allowed is above 1")
    low, high = (width * math.log(trained_length / (2 * math.pi * _number(name, turns, above=0))) / (2 * math.log(base))
                 for name, turns in (("beta_fast", beta_fast), ("beta_slow", beta_slow)))
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = float(max(low, 0)), float(min(high, width - 1))
    if low > high:
        raise ValueError(f"trained_length is {trained_length}, width {width}, base {base:g}: the ramp would run from pair {low:g} to {high:g}; "
                         "allowed is a length in which it rises, or ramp 'paper'")
    return low, high


def _ramp(pairs, ends):
    """0 up to the first end, 1 from the second on."""
    low, high = ends
    high = high + 0.001 if low == high else high
    return [_clip((k - low) / (high - low)) for k in range(pairs)]


def _clip(x):
    return min(max(x, 0.0), 1.0)


def _grown_base(width, base, factor):
    width, base = rotary._even("width", width), arrays.base(base)
    if width == 2:
        raise ValueError("width is 2: one pair alone is the fastest and the slowest; allowed is at least 4")
    try:
        grown = base * factor ** (width / (width - 2))
    except OverflowError:
        grown = math.inf
    if grown == math.inf:
        raise ValueError(f"base is {base:g}, stretched by {factor:g}: the new one is not finite; allowed is less")
    return grown


def _width_of(x, width):
    arrays.same_floats(x=x)
    if x.ndim < 2:
        raise ValueError(f"x has shape {tuple(x.shape)}; allowed is (..., length, width)")
    return rotary._turned_width("x", x.shape, x.shape[-1], width)


def _turned(x, positions, frequencies, factor, *, layout, width, axes, inverse, out):
    """`rotary.rotate` with a factor on the channels that turn; the same bits where it is 1."""
    if factor == 1:
        return rotary.rotate(x, positions, layout=layout, width=width, frequencies=frequencies, axes=axes, inverse=inverse, out=out)
    arrays.flag("inverse", inverse)
    xp, omega = rotary._checked(x, positions, layout, width, 10000.0, frequencies, axes, False)
    if out is not None:
        rotary._check_out(xp, out, x, positions, omega)
    cos, sin = _tables(xp, rotary.angles(positions, omega, axes=axes), x.dtype, 1 / factor if inverse else factor)
    cos, sin = rotary._rows_for(xp, x, cos), rotary._rows_for(xp, x, sin)
    return rotary._turn(xp, x, cos, -sin if inverse else sin, layout, out)


def _tables(xp, theta, dtype, factor):
    wide = arrays.wide(xp, rotary._float_dtype(xp, dtype))
    return xp.astype(xp.cos(theta) * factor, wide), xp.astype(xp.sin(theta) * factor, wide)


def _set(method, **values):
    """Fields of a frozen dataclass, once, in its making."""
    for name, value in values.items():
        object.__setattr__(method, name, value)


def _number(name, value, *, at_least=None, above=None):
    """A finite number as a Python float."""
    bound = "" if at_least is None and above is None else f" of at least {at_least}" if above is None else f" above {above}"
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} is {value!r}; allowed is a finite number{bound}")
    if not math.isfinite(value) or at_least is not None and value < at_least or above is not None and value <= above:
        raise ValueError(f"{name} is {value!r}; allowed is a finite number{bound}")
    return float(value)


def _length(name, value, at_least=1):
    arrays.whole(name, value, at_least=at_least)
    return operator.index(value)


def _divisors(name, values):
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        raise TypeError(f"{name} is {values!r}; allowed are positive numbers, one for each pair that turns")
    found = tuple(_number(f"{name}[{i}]", v.item() if hasattr(v, "item") else v, above=0) for i, v in enumerate(values))
    if not found:
        raise ValueError(f"{name} is empty; allowed is one number for each pair that turns")
    return found
