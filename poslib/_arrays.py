"""What every function asks of its arrays: one kind, an allowed dtype, shapes that fit.

Each check raises TypeError or ValueError with the argument's name, its value, and what is allowed.
"""

from __future__ import annotations

import math
import numbers

import array_api_compat as api


def wide(xp, dtype):
    """The dtype to compute in: float64 stays, everything narrower becomes float32."""
    return xp.float64 if dtype == xp.float64 else xp.float32


def namespace(like):
    if like is None:
        import numpy as np
        return api.array_namespace(np.empty(0)), None
    return namespace_of("like", like), api.device(like)


def namespace_of(name, x):
    if not (api.is_numpy_array(x) or api.is_torch_array(x)):
        raise TypeError(f"{name} is a {type(x).__name__}; allowed are numpy arrays and torch tensors")
    return api.array_namespace(x)


def same_kind(**arrays):
    """The common namespace of numpy arrays or of torch tensors, or an error that says what differs."""
    (first, a), *rest = arrays.items()
    xp = namespace_of(first, a)
    for name, x in rest:
        if namespace_of(name, x) is not xp:
            raise TypeError(f"{name} is a {type(x).__name__}, {first} a {type(a).__name__}: "
                            "give numpy arrays or torch tensors, not both")
    return xp


def floats(xp, **arrays):
    for name, x in arrays.items():
        if not xp.isdtype(x.dtype, "real floating") or xp.finfo(x.dtype).bits > 64:
            raise TypeError(f"{name} has dtype {x.dtype}; allowed are float dtypes of up to 64 bits")


def same_floats(**arrays):
    """The common namespace of arrays of one kind and one float dtype."""
    xp = same_kind(**arrays)
    floats(xp, **arrays)
    (first, a), *rest = arrays.items()
    for name, x in rest:
        if x.dtype != a.dtype:
            raise TypeError(f"{name} has dtype {x.dtype}, {first} {a.dtype}: they must be the same")
    return xp


def broadcast(a, a_shape, b, b_shape):
    for x, y in zip(reversed(a_shape), reversed(b_shape)):
        if x != y and 1 not in (x, y):
            raise ValueError(f"leading axes {tuple(a_shape)} of {a} and {tuple(b_shape)} of {b} do not broadcast")


def fits(name, shape, target):
    """`shape` must broadcast to `target` without enlarging it."""
    padded = (1,) * (len(target) - len(shape)) + tuple(shape)
    if len(shape) > len(target) or any(s not in (1, t) for s, t in zip(padded, target)):
        raise ValueError(f"{name} has shape {tuple(shape)}; allowed is what broadcasts to {tuple(target)}")


def whole(name, value, *, at_least, why=""):
    if isinstance(value, bool) or not (isinstance(value, int) or hasattr(value, "__index__")):   # torch.compile knows the former
        raise TypeError(f"{name} is {value!r}; allowed is a whole number")
    if value < at_least:
        raise ValueError(f"{name} is {value}; allowed is at least {at_least}" + (f" ({why})" if why else ""))


def base(value):
    """A base of frequencies as a Python float: no setting, autocast or module cast can narrow it."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"base is {value!r}; allowed is a finite number of at least 1")
    try:
        wide = float(value)
    except OverflowError:
        wide = math.inf
    if not 1 <= wide < math.inf:
        raise ValueError(f"base is {value!r}; allowed is a finite number of at least 1")
    return wide


def integers(xp, **arrays):
    """Integers that fit into int64."""
    for name, x in arrays.items():
        if not xp.isdtype(x.dtype, "integral") or x.dtype == xp.uint64:
            raise TypeError(f"{name} has dtype {x.dtype}; allowed are integers of up to 64 bits, uint64 excepted")


def same_device(**arrays):
    (first, a), *rest = arrays.items()
    for name, x in rest:
        if _device(x) != _device(a):
            raise ValueError(f"{name} is on device {_device(x)}, {first} on {_device(a)}: they must share one")


def _device(x):
    """As `array_api_compat.device`, which asks a tensor ten times longer."""
    return x.device if api.is_torch_array(x) else api.device(x)


def flag(name, value):
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}; allowed are True and False")


def overlap(a, b):
    """Whether two arrays of one kind have a byte in common; exact, for every stride."""
    import numpy as np
    return np.shares_memory(_footprint(a), _footprint(b))


def same_memory(a, b):
    """Whether two arrays of one shape hold each entry at the same address."""
    a, b = _footprint(a), _footprint(b)
    moves = [(s, t) for s, t, size in zip(a.strides, b.strides, a.shape) if size > 1]
    return a.ctypes.data == b.ctypes.data and all(s == t for s, t in moves)


def overlaps_itself(a):
    """Whether entries of an array may share memory: an axis steps less far than the finer ones reach."""
    a = _footprint(a)
    reach = a.itemsize
    for step, size in sorted((abs(step), size) for step, size in zip(a.strides, a.shape) if size > 1):
        if step < reach:
            return 0 not in a.shape
        reach += step * (size - 1)
    return False


def _footprint(x):
    """An array of numpy at the addresses of `x`, of any device and dtype: to be compared, never read."""
    import numpy as np
    if api.is_numpy_array(x):
        return x
    return np.empty(0) if x.device.type == "meta" else np.asarray(_Memory(x))          # meta: nowhere


class _Memory:
    """What numpy asks of a tensor that it shall see as bytes."""

    def __init__(self, x):
        size = x.element_size()
        self.__array_interface__ = {"version": 3, "typestr": f"|V{size}", "shape": tuple(x.shape),
                                    "strides": tuple(s * size for s in x.stride()), "data": (x.data_ptr(), True)}
