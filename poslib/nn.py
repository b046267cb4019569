"""Torch modules over the functions: settings are Python numbers, nothing but what is trained is stored.

A module's only tensors are its parameters.  Angles and codes are formed from Python numbers at each
call, in float64, so that ``.bfloat16()``, ``.to("meta")``, autocast and loading a ``state_dict`` cannot narrow,
lose or stale them.
"""

from __future__ import annotations

try:
    import torch
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("poslib.nn needs torch: pip install torch") from error

from poslib import _arrays as arrays, absolute, attention, extension, relative, rotary

__all__ = ["LearnedPositions", "Rotary", "ShawRelative", "SinusoidalPositions", "T5Bias"]


class LearnedPositions(torch.nn.Module):
    """A trained vector for each position.

    Parameters
    ----------
    rows : int, at least 1
        Positions 0 to rows - 1.
    width : int, at least 1
    std : float, at least 0
        Standard deviation of the first values, which are normal.
    device, dtype
        Of the table, as for ``torch.nn.Embedding``.

    Notes
    -----
    The table is the parameter `weight`, (rows, width), so that the `state_dict` of a ``torch.nn.Embedding`` loads.

    Examples
    --------
    >>> LearnedPositions(10, 4)
    LearnedPositions(rows=10, width=4)
    """

    def __init__(self, rows, width, *, std=0.02, device=None, dtype=None):
        super().__init__()
        arrays.whole("rows", rows, at_least=1)
        arrays.whole("width", width, at_least=1)
        self.weight = _table(rows, width, std, device, dtype)

    def forward(self, positions):
        """Rows of the table; see `poslib.absolute.lookup`, which refuses a position that it does not have.

        Parameters
        ----------
        positions : integer tensor, shape (...)

        Returns
        -------
        tensor of the table's dtype, shape (..., width)

        Examples
        --------
        >>> import torch
        >>> codes = LearnedPositions(10, 4)
        >>> codes(torch.tensor([0, 9])).shape
        torch.Size([2, 4])
        """
        return absolute.lookup(self.weight, positions)

    @torch.no_grad()
    def resize(self, rows):
        """Stretch or squeeze the table in place; see `poslib.absolute.resize`.

        The parameter is a new one: give it to the optimiser again.

        Parameters
        ----------
        rows : int
            At least 2, as must be the number of rows so far, or equal to it.

        Returns
        -------
        LearnedPositions
            The module itself.

        Examples
        --------
        >>> LearnedPositions(10, 4).resize(20)
        LearnedPositions(rows=20, width=4)
        """
        self.weight = torch.nn.Parameter(absolute.resize(self.weight.detach(), rows), requires_grad=self.weight.requires_grad)
        return self

    def extra_repr(self):
        return f"rows={self.weight.shape[0]}, width={self.weight.shape[1]}"


class SinusoidalPositions(torch.nn.Module):
    """Sinusoidal position vectors; nothing is trained or stored.

    Parameters
    ----------
    width : int
    base : float, at least 1
    form : {"paper", "blocks"}
        See `poslib.absolute.sinusoid`.

    Examples
    --------
    >>> SinusoidalPositions(4)
    SinusoidalPositions(width=4, base=10000.0, form='paper')
    """

    def __init__(self, width, *, base=10000.0, form="paper"):
        super().__init__()
        absolute.frequencies(width, base=base, form=form)       # refuses what is not allowed, here rather than at the first call
        self.width, self.base, self.form = width, base, form

    def forward(self, positions, dtype=None):
        """Codes of positions; see `poslib.absolute.sinusoid`.

        Parameters
        ----------
        positions : integer tensor, shape (...)
        dtype : torch float dtype, optional
            float32 unless given, whatever the module was cast to: cast what it is added to instead.

        Returns
        -------
        tensor, shape (..., width)

        Examples
        --------
        >>> import torch
        >>> codes = SinusoidalPositions(4)
        >>> codes(torch.arange(2)).round(decimals=2)
        tensor([[0.0000, 1.0000, 0.0000, 1.0000],
                [0.8400, 0.5400, 0.0100, 1.0000]])
        """
        dtype = torch.float32 if dtype is None else dtype
        return absolute.sinusoid(positions, self.width, base=self.base, form=self.form, dtype=dtype)

    def extra_repr(self):
        return f"width={self.width}, base={self.base}, form={self.form!r}"


class Rotary(torch.nn.Module):
    """Rotation of queries and keys by their positions; nothing is trained or stored.

    Parameters
    ----------
    width : int, even
        Number of channels that turn.
    layout : {"half", "interleaved"}
        See `poslib.rotary.rotate`.
    base : float, at least 1
    head_width : int, at least `width`, optional
        Width of a head; its channels beyond `width` are copied.  `width` unless given.
    frequencies : numpy array, float64, shape (width/2,), or tuple of floats, optional
        In place of those that `base` gives, as `poslib.rotary.proportional_frequencies` and `poslib.multiaxis`
        make them.
    axes : integers, shape (width/2,), optional
        Which position id turns each pair, where a token has several; see `poslib.multiaxis`.
    method : poslib.extension.Method, optional
        How the frequencies of `base` are stretched; not beside `frequencies`.  Its rotation factor goes on queries and keys, its
        `poslib.extension.Method.scale` is the caller's.

    Examples
    --------
    >>> import torch
    >>> turn = Rotary(32, layout="half", head_width=80)             # Phi-2
    >>> q, k = turn(torch.ones(1, 4, 3, 80), torch.ones(1, 2, 3, 80), torch.arange(3))
    >>> q.shape, k.shape
    (torch.Size([1, 4, 3, 80]), torch.Size([1, 2, 3, 80]))
    """

    def __init__(self, width, *, layout, base=10000.0, head_width=None, frequencies=None, axes=None, method=None):
        super().__init__()
        arrays.whole("width", width, at_least=2)
        self.head_width = width if head_width is None else head_width
        arrays.whole("head_width", self.head_width, at_least=width, why="the channels that turn")
        self.width, self.layout, self.base = width, layout, base
        if isinstance(frequencies, torch.Tensor):
            raise TypeError("frequencies is a Tensor; allowed are a numpy array and a tuple, which no cast of the module narrows")
        self.frequencies = tuple(frequencies.tolist()) if hasattr(frequencies, "tolist") else frequencies
        self.axes = None if axes is None else tuple(rotary._axes(axes, width // 2, 2**31))
        if method is not None and not isinstance(method, extension.Method):
            raise TypeError(f"method is a {type(method).__name__}; allowed are the methods of poslib.extension")
        if method is not None and frequencies is not None:
            raise ValueError("frequencies and method are given; allowed is one of the two")
        self.method = method
        for length in () if method is None else (1, 2**31):
            ladder = method.frequencies(width, base, length=length)
        self._ladder = None if method is None or method.dynamic else tuple(ladder.tolist())
        own = () if axes is None else (max(self.axes) + 1,)
        no_tokens = torch.zeros(*own, 0, dtype=torch.int64, device="cpu")
        # refuses what is not allowed, here rather than at the first call
        nothing = torch.zeros(0, self.head_width, device="cpu")
        rotary.rotate(nothing, no_tokens, **{**self._settings(), "frequencies": frequencies})

    def forward(self, q, k, positions, key_positions=None, length=None):
        """Turn queries and keys; see `poslib.rotary.rotate` and `poslib.extension.Method.rotate`.

        Parameters
        ----------
        q, k : tensors, shape (..., length, head_width)
            The heads of `k` may be fewer, and its length another one, as in decoding.
        positions : integer tensor, shape (length,) or (batch, length)
            Of the queries.  With `axes`: (axes, length) or (axes, batch, length).
        key_positions : integer tensor, optional
            Of the keys; those of the queries unless given.
        length : int, optional
            Positions in use, cached ones too, for a dynamic method.

        Returns
        -------
        q, k : new tensors of the same shapes and dtypes

        Examples
        --------
        >>> import torch
        >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
        >>> q, k = Rotary(2, layout="half")(x, x, torch.tensor([0, 1]))
        >>> q.round(decimals=2)
        tensor([[1.0000, 0.0000],
                [0.5400, 0.8400]])
        """
        for name, x in (("q", q), ("k", k)):
            if x.shape[-1] != self.head_width:
                raise ValueError(f"{name} has shape {tuple(x.shape)}; allowed is (..., length, {self.head_width})")
        keys_at = positions if key_positions is None else key_positions
        if self.method is None:
            return rotary.rotate(q, positions, **self._settings()), rotary.rotate(k, keys_at, **self._settings())
        settings = {"layout": self.layout, "width": self.width, "axes": self.axes, "inverse": False, "out": None}
        used = self.method._used(length)
        made = self.method._ladder(self.width, self.base, used) if self._ladder is None else self._ladder, self.method._rotation(used)
        return extension._turned(q, positions, *made, **settings), extension._turned(k, keys_at, *made, **settings)

    def _settings(self):
        return {"layout": self.layout, "width": self.width, "base": self.base, "frequencies": self.frequencies, "axes": self.axes}

    def extra_repr(self):
        said = f"width={self.width}, layout={self.layout!r}, "
        said += f"base={self.base}" if self.frequencies is None else f"frequencies={self.width // 2} given"
        said += f", head_width={self.head_width}" if self.head_width != self.width else ""
        said += f", method={self.method}" if self.method is not None else ""
        return said + (f", axes={self.axes}" if self.axes is not None else "")


class T5Bias(torch.nn.Module):
    """A trained bias of each head for each bucket of lags.  For self-attention; T5's cross-attention has none.

    Parameters
    ----------
    buckets : int
    heads : int, at least 1
    max_distance, bidirectional
        See `poslib.relative.t5_buckets`.
    std, device, dtype
        See `LearnedPositions`.

    Notes
    -----
    The table is the parameter `weight`, (buckets, heads), so that T5's ``relative_attention_bias`` loads.

    Examples
    --------
    >>> T5Bias(32, 8, bidirectional=True)
    T5Bias(buckets=32, heads=8, max_distance=128, bidirectional=True)
    """

    def __init__(self, buckets, heads, *, max_distance=128, bidirectional=False, std=0.02, device=None, dtype=None):
        super().__init__()
        relative._t5_sizes(buckets, max_distance, bidirectional)
        arrays.whole("heads", heads, at_least=1)
        self.weight = _table(buckets, heads, std, device, dtype)
        self.max_distance, self.bidirectional = max_distance, bidirectional

    def forward(self, positions, key_positions=None):
        """Bias of each pair of places; see `poslib.relative.t5_bias`.

        Parameters
        ----------
        positions : integer tensor, shape (length,) or (batch, length)
            Of the queries.
        key_positions : integer tensor, optional
            Of the keys; those of the queries unless given.

        Returns
        -------
        tensor of the table's dtype, shape (..., heads, queries, keys)
            For ``attention(q, k, v, scale=1.0, bias=...)``: T5 does not scale.

        Examples
        --------
        >>> import torch
        >>> T5Bias(32, 8)(torch.tensor([9]), torch.arange(10)).shape     # decoding: one query, ten keys
        torch.Size([8, 1, 10])
        """
        keys_at = positions if key_positions is None else key_positions
        return relative.t5_bias(positions, keys_at, self.weight, max_distance=self.max_distance,
                                bidirectional=self.bidirectional)

    def extra_repr(self):
        buckets, heads = self.weight.shape
        return f"buckets={buckets}, heads={heads}, max_distance={self.max_distance}, bidirectional={self.bidirectional}"


class ShawRelative(torch.nn.Module):
    """Attention with trained vectors for each clipped distance, added to keys and to values.

    Parameters
    ----------
    clip : int, at least 0
        Distances beyond share the vectors of the last.
    width, value_width : int, at least 1
        Of a head; the same unless given.  All heads share the vectors.
    std, device, dtype
        See `LearnedPositions`.

    Examples
    --------
    >>> ShawRelative(16, 64)
    ShawRelative(clip=16, width=64, value_width=64)
    """

    def __init__(self, clip, width, value_width=None, *, std=0.02, device=None, dtype=None):
        super().__init__()
        arrays.whole("clip", clip, at_least=0)
        value_width = width if value_width is None else value_width
        for name, size in (("width", width), ("value_width", value_width)):
            arrays.whole(name, size, at_least=1)
        self.keys, self.values = (_table(2 * clip + 1, n, std, device, dtype) for n in (width, value_width))

    def forward(self, q, k, v, positions, key_positions=None, mask=None):
        """Attention with relative vectors; see `poslib.relative.shaw_scores` and `poslib.relative.shaw_values`.

        Parameters
        ----------
        q : tensor, shape (..., queries, width), any float dtype
        k : tensor of the same dtype, shape (..., keys, width)
        v : tensor of the same dtype, shape (..., keys, value width)
        positions : integer tensor, shape (queries,) or (batch, queries)
            Of the queries.
        key_positions : integer tensor, optional
            Of the keys; those of the queries unless given.
        mask : bool tensor, optional
            True where a query may look; see `poslib.attention.attention`.

        Returns
        -------
        output : tensor of the dtype of `q`, shape (..., queries, value width)
        weights : tensor of the dtype of `q`, shape (..., queries, keys)

        Examples
        --------
        >>> import torch
        >>> x = torch.ones(8, 10, 64)     # heads, length, width
        >>> output, weights = ShawRelative(16, 64)(x, x, x, torch.arange(10))
        >>> output.shape, weights.shape
        (torch.Size([8, 10, 64]), torch.Size([8, 10, 10]))
        """
        at = positions, positions if key_positions is None else key_positions
        wide = torch.float64 if q.dtype == torch.float64 else torch.float32     # one rounding, at the end
        wide_q = q.to(wide)
        output, weights = attention.attention(wide_q, k.to(wide), v.to(wide), mask=mask,
                                              bias=relative.shaw_scores(wide_q, self.keys.to(wide), *at))
        output = output + relative.shaw_values(weights, self.values.to(wide), *at)
        return output.to(q.dtype), weights.to(q.dtype)

    def extra_repr(self):
        return f"clip={self.keys.shape[0] // 2}, width={self.keys.shape[1]}, value_width={self.values.shape[1]}"


def _table(rows, width, std, device, dtype):
    """A parameter with normal values of standard deviation `std`."""
    if not 0 <= std < float("inf"):
        raise ValueError(f"std is {std!r}; allowed is a finite number of at least 0")
    return torch.nn.Parameter(torch.nn.init.normal_(torch.empty(rows, width, device=device, dtype=dtype), std=std))
