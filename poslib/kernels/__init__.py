"""Kernels in Triton: rotation and attention that need no pass over memory of their own.

Importing `poslib.kernels` loads neither torch nor triton; its modules do, at the first use of one:
``from poslib.kernels import rotary``, or ``kernels.rotary``.  They need torch and triton (the extra
``kernels``).  On a GPU of NVIDIA or AMD the kernels are compiled; without one the interpreter of Triton runs them on the CPU,
slowly, to be read and tested.
"""

import importlib

_MODULES = ("rotary", "attention")


def __getattr__(name):
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")


def __dir__():
    return sorted([*globals(), *_MODULES])
