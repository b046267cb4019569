"""Compiled or interpreted: how the kernels run in this process, decided before triton is imported.

Triton reads the environment variable TRITON_INTERPRET when a kernel is decorated, and decorates its own helpers
(``tl.sum``, ``tl.zeros``) when ``triton.language`` is imported.  A process is therefore in one mode for good, and
whoever imports triton first decides.  Every module of `poslib.kernels` calls `mode` before it does.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import sys

VARIABLE = "TRITON_INTERPRET"
YES = ("1", "true", "on", "yes", "y")           # what triton takes for a yes
INSTALL = "pip install torch triton"


def mode():
    """"compiled" or "interpreted", and the variable set for triton, whose import may follow.

    The variable decides where it is set ("0" compiles without a GPU too, ahead of time); where it is not, kernels are
    compiled for a GPU of NVIDIA or AMD that torch can use, and interpreted on the CPU if there is none.

    Raises ModuleNotFoundError without torch or triton, RuntimeError where triton was imported in the other mode.
    """
    _need_packages()
    import torch

    wish = os.environ.get(VARIABLE, "")
    compiled = wish.lower() not in YES if wish else bool(torch.cuda.is_available())       # also true for ROCm
    found, wanted = loaded(), "compiled" if compiled else "interpreted"
    if found not in (None, wanted):
        raise RuntimeError(
            f"triton was imported before poslib.kernels, in a process where its kernels are {found}; here they must be {wanted}, "
            f"and one process cannot mix the two. torch.compile imports triton at its first call: import poslib.kernels.rotary before "
            f"that, or set {VARIABLE}={0 if compiled else 1} before Python starts")
    if not wish and not compiled:
        os.environ[VARIABLE] = "1"
    return wanted


def loaded():
    """The mode that triton is in, None if nobody has imported it."""
    kind = type(getattr(sys.modules.get("triton.language"), "sum", None)).__name__
    return {"JITFunction": "compiled", "InterpretedFunction": "interpreted"}.get(kind)


def _need_packages():
    """triton is looked for, not imported: that would decide the mode."""
    for package in ("torch", "triton"):
        if sys.modules.get(package) is None and (package in sys.modules or importlib.util.find_spec(package) is None):
            raise ModuleNotFoundError(f"poslib.kernels needs {package}, which is not installed: {INSTALL}; wheels of triton exist for Linux", name=package)


def architecture(device):
    """What kernels for `device` are configured for: "interpreted", "sm_90", "gfx942", ..."""
    return "interpreted" if loaded() == "interpreted" else _architecture(device)


@functools.cache
def _architecture(device):
    import torch
    if torch.version.hip:
        return torch.cuda.get_device_properties(device).gcnArchName.split(":")[0]
    return "sm_{}{}".format(*torch.cuda.get_device_capability(device))


def check_device(name, x):
    """Compiled kernels cannot read the memory of the CPU."""
    if loaded() == "compiled" and x.device.type != "cuda":
        raise ValueError(f"{name} is on device {x.device}; allowed is a GPU, for which kernels are compiled in this process "
                         f"({VARIABLE}=1, set before Python starts, runs them on the CPU)")


def launcher(kernel, *grid):
    """What launches `kernel` on a grid: itself, or the interpreter, into which torch.compile must not look."""
    launch = kernel[grid]
    if loaded() == "interpreted" and "torch._dynamo" in sys.modules:
        import torch
        launch = torch._dynamo.disable(launch)
    return launch


def on(device):
    """A context in which kernels are launched on `device`, which need not be the current one."""
    import torch
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
