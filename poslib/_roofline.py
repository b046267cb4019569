"""Costs, devices, and the time of a roofline; public through `poslib.cost`."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Mapping
from typing import NamedTuple

from poslib import _arrays as arrays
from poslib._cache import choice

SIZES = {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1}      # bytes of one number


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a piece of work moves and computes; costs add up, and a cost times n is that of n layers.

    Parameters
    ----------
    read, written : int, bytes
        From and to memory.
    flops : int
        Additions and multiplications of real numbers.
    launches : int
        Kernels started.

    Examples
    --------
    >>> one = Cost(read=6, written=2, flops=4, launches=1)
    >>> (one + one).bytes, (3 * one).launches, one.intensity
    (16, 3, 0.5)
    """

    read: int = 0
    written: int = 0
    flops: int = 0
    launches: int = 0

    def __post_init__(self):
        for field in dataclasses.fields(self):
            arrays.whole(field.name, getattr(self, field.name), at_least=0)

    def __add__(self, other):
        if not isinstance(other, Cost):
            return NotImplemented
        return Cost(*(getattr(self, f.name) + getattr(other, f.name) for f in dataclasses.fields(self)))

    def __radd__(self, other):
        return self if isinstance(other, int) and other == 0 else NotImplemented        # sum() starts from 0

    def __mul__(self, times):
        arrays.whole("times", times, at_least=0)
        return Cost(*(getattr(self, f.name) * times for f in dataclasses.fields(self)))

    __rmul__ = __mul__

    @property
    def bytes(self):
        """Bytes read and written."""
        return self.read + self.written

    @property
    def intensity(self):
        """Arithmetic intensity: FLOPs for each byte, infinite where no byte moves (0 if nothing is computed either)."""
        return self.flops / self.bytes if self.bytes else math.inf if self.flops else 0.0


@dataclasses.dataclass(frozen=True)
class Device:
    """A machine as the roofline sees it.

    Parameters
    ----------
    name : str
    bandwidth : float, bytes per second
        Between memory and chip, reading and writing together.
    flops : mapping from dtype ("fp32", "bf16", …) to float, FLOPs per second
    cache : int, bytes
        Largest cache that all parts of the chip share.
    memory : int, bytes
    source : str
        Where the numbers are from.

    Examples
    --------
    >>> d = Device("toy", bandwidth=1e9, flops={"fp32": 4e9}, cache=2**20, memory=2**30, source="made up")
    >>> d.ridge("fp32"), d.at(bandwidth=0.5, flops=0.25).ridge("fp32")
    (4.0, 2.0)
    """

    name: str
    bandwidth: float
    flops: Mapping[str, float]
    cache: int
    memory: int
    source: str

    def __post_init__(self):
        _positive("bandwidth", self.bandwidth)
        if not isinstance(self.flops, Mapping) or not self.flops:
            raise TypeError(f"flops is {self.flops!r}; allowed is a mapping from dtype to FLOPs per second")
        for dtype, rate in self.flops.items():
            choice("dtype of flops", dtype, tuple(SIZES))
            _positive(f"flops[{dtype!r}]", rate)
        arrays.whole("cache", self.cache, at_least=0)
        arrays.whole("memory", self.memory, at_least=0)

    def ridge(self, dtype="bf16"):
        """Arithmetic intensity from which on the device computes longer than it loads.

        Parameters
        ----------
        dtype : str
            Of the arithmetic; one that the device has.

        Returns
        -------
        float, FLOPs per byte

        Raises
        ------
        ValueError
            Naming the argument, its value, and what is allowed.

        Examples
        --------
        >>> Device("toy", 1e9, {"fp32": 4e9}, 2**20, 2**30, "made up").ridge("fp32")
        4.0
        """
        choice("dtype", dtype, tuple(self.flops))
        return self.flops[dtype] / self.bandwidth

    def at(self, *, bandwidth=1.0, flops=1.0):
        """The device as it is reached in practice: shares of both peaks.

        Parameters
        ----------
        bandwidth, flops : float, above 0, at most 1

        Returns
        -------
        Device

        Raises
        ------
        TypeError, ValueError
            Naming the argument, its value, and what is allowed.

        Examples
        --------
        >>> Device("toy", 1e9, {"fp32": 4e9}, 2**20, 2**30, "made up").at(bandwidth=0.5).bandwidth
        500000000.0
        """
        for name, share in (("bandwidth", bandwidth), ("flops", flops)):
            _positive(name, share)
            if share > 1:
                raise ValueError(f"{name} is {share}; allowed is a share above 0 and at most 1")
        return dataclasses.replace(self, bandwidth=self.bandwidth * bandwidth,
                                   flops={dtype: rate * flops for dtype, rate in self.flops.items()})


class Time(NamedTuple):
    """What `roofline` returns; all in seconds.

    Parameters
    ----------
    seconds : float
        max(memory, compute) + launch.
    bound : "memory", "compute" or "launch"
        The largest of the three.
    memory, compute, launch : float
        Bytes by bandwidth, FLOPs by their rate, and launches by the time of one.

    Examples
    --------
    >>> Time(3e-6, "memory", memory=2e-6, compute=1e-6, launch=1e-6).bound
    'memory'
    """

    seconds: float
    bound: str
    memory: float
    compute: float
    launch: float


def roofline(cost, device, dtype="bf16", *, launch=0.0):
    """Least time that a device needs: it loads while it computes, and pays for each launch on top.

    Parameters
    ----------
    cost : Cost
    device : Device
    dtype : str
        Of the arithmetic, which decides its rate: one that the device has.  Rotations inside kernels are done in "fp32".
    launch : float, seconds, at least 0
        Of each kernel.  A few microseconds in eager torch on a GPU; to be measured.

    Returns
    -------
    Time

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what is allowed.

    Notes
    -----
    Williams, Waterman and Patterson 2009, *Roofline*.  The launches are added to it.

    Examples
    --------
    >>> toy = Device("toy", 1e9, {"fp32": 4e9}, 2**20, 2**30, "made up")
    >>> t = roofline(Cost(read=2000, written=1000, flops=4000, launches=1), toy, "fp32", launch=1e-6)
    >>> round(t.seconds * 1e6), t.bound
    (4, 'memory')
    """
    _cost("cost", cost)
    if not isinstance(device, Device):
        raise TypeError(f"device is {device!r}; allowed is a Device, e.g. DEVICES['H100']")
    choice("dtype", dtype, tuple(device.flops))
    if isinstance(launch, bool) or not isinstance(launch, numbers.Real):
        raise TypeError(f"launch is {launch!r}; allowed is a number of seconds")
    if not 0 <= launch < math.inf:
        raise ValueError(f"launch is {launch}; allowed are 0 and more seconds, finite")
    parts = {"memory": cost.bytes / device.bandwidth, "compute": cost.flops / device.flops[dtype], "launch": cost.launches * float(launch)}
    seconds = max(parts["memory"], parts["compute"]) + parts["launch"]
    return Time(seconds, max(parts, key=parts.get), **parts)


def _cost(name, value):
    if not isinstance(value, Cost):
        raise TypeError(f"{name} is {value!r}; allowed is a Cost, e.g. Cost(read=2**20)")


def _positive(name, value):
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} is {value!r}; allowed is a number above 0")
    if not 0 < value < math.inf:
        raise ValueError(f"{name} is {value}; allowed is a finite number above 0")
