"""The reader's own processor as a `poslib.cost.Device`, measured in under two seconds.

    python -m poslib.lab.machine        prints it
"""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

from poslib import cost
from poslib.lab._torch import torch


def best(call, seconds, at_least=2):
    """Least wall time of one call, in seconds, after one that is not counted."""
    call()
    times, end = [], time.perf_counter() + seconds
    while len(times) < at_least or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def copying(megabytes=256, seconds=0.3):
    """Bytes per second, read and written together, of copying one array onto another.

    Both are touched before the clock starts: no page fault is timed.  The array must be larger than the cache.
    """
    x = torch.ones(megabytes * 2**18)                        # float32
    out = torch.zeros_like(x)
    return 2 * x.numel() * x.element_size() / best(lambda: out.copy_(x), seconds)


def multiplying(dtype, size=1024, seconds=0.2):
    """FLOPs per second of the product of two square matrices."""
    a, b = torch.randn(size, size).to(dtype), torch.randn(size, size).to(dtype)
    return 2 * size**3 / best(lambda: a @ b, seconds)


def _asked(name):
    """A number that the system knows, or 0."""
    try:
        return max(0, os.sysconf(name))
    except (AttributeError, OSError, ValueError):
        return 0


def last_cache(folder="/sys/devices/system/cpu/cpu0/cache"):
    """Bytes of the largest cache, as Linux lists it ("32K", "260M"); what sysconf knows elsewhere; 0 where nothing does."""
    sizes = [_asked("SC_LEVEL2_CACHE_SIZE"), _asked("SC_LEVEL3_CACHE_SIZE")]
    for path in Path(folder).glob("index*/size"):
        text = path.read_text("ascii").strip()
        sizes.append(int(text.rstrip("KMG")) << {"K": 10, "M": 20, "G": 30}.get(text[-1], 0))
    return max(sizes)


def measure(megabytes=256, dtypes=("fp32", "bf16")):
    """This machine: best of the repetitions that fit into about a second, with as many threads as torch has.

    Parameters
    ----------
    megabytes : int
        Size of the array that is copied, 2²⁰ bytes each; two of them are held.
    dtypes : of "fp64", "fp32", "bf16", "fp16"
        Whose matrix products are timed.

    Returns
    -------
    poslib.cost.Device
        Cache and memory as the system says; 0 where it does not.
    """
    names = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    unknown = [d for d in dtypes if d not in names]
    if unknown or not dtypes:
        raise ValueError(f"dtypes is {dtypes!r}; allowed are {', '.join(map(repr, names))}")
    size = {"fp32": 1024, "bf16": 512}                       # 16 bits may be slow: no instruction for them on older processors
    with torch.no_grad():
        bandwidth = copying(megabytes)
        flops = {d: multiplying(names[d], size.get(d, 512)) for d in dtypes}
    threads = torch.get_num_threads()
    return cost.Device(f"{platform.machine()} processor, {threads} thread{'s' * (threads > 1)}", bandwidth, flops,
                       last_cache(), _asked("SC_PAGE_SIZE") * _asked("SC_PHYS_PAGES"),
                       f"measured: copying 2 × {megabytes} MiB; matrix products; torch {torch.__version__}")


def main():
    start = time.perf_counter()
    device = measure()
    rates = ", ".join(f"{dtype} {rate / 1e9:.0f} GFLOP/s (ridge {device.ridge(dtype):.1f} FLOP/B)" for dtype, rate in device.flops.items())
    print(f"{device.name}: {device.bandwidth / 1e9:.1f} GB/s, {rates}; cache {device.cache / 2**20:.0f} MiB, memory {device.memory / 2**30:.1f} GiB; "
          f"{time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
