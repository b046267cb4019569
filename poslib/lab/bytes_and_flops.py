"""The machine of chapter 11: what the computer reached that stored the chapter's numbers.

    python -m poslib.lab.bytes_and_flops        writes results/bytes_and_flops.json; half a minute

One thread, best of many runs: where other work shares the machine, a run that has a core for itself is likely among them.
"""

from __future__ import annotations

from poslib import cost
from poslib.lab import results

RUNS = 20


def cpu():
    """The machine of the stored run, as a device of `poslib.cost`.

    Returns
    -------
    poslib.cost.Device
        Rates are the best of several runs, rounded to two digits.
    """
    stored = results.load("bytes_and_flops")
    best = stored["best"]
    return cost.Device("CPU", best["bandwidth"], {t: best[t] for t in ("fp32", "bf16")}, stored["cache"], stored["memory"],
                       f"measured, one thread, best of {stored['runs']} runs, {stored['made']['machine']}")


def _two_digits(x):
    return float(f"{x:.1e}")


def measured(runs=RUNS, megabytes=256):
    """What `poslib.lab.machine.measure` finds, several times: the best of each rate, and the lowest beside it."""
    from poslib.lab import machine
    from poslib.lab._torch import torch
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = [machine.measure(megabytes) for _ in range(runs)]
    finally:
        torch.set_num_threads(threads)
    rates = {"bandwidth": [m.bandwidth for m in found], **{t: [m.flops[t] for m in found] for t in ("fp32", "bf16")}}
    return {"runs": runs, "threads": 1, "best": {name: _two_digits(max(r)) for name, r in rates.items()},
            "lowest": {name: _two_digits(min(r)) for name, r in rates.items()}, "cache": found[0].cache, "memory": found[0].memory}


def main():
    results.store("bytes_and_flops", measured(), command="python -m poslib.lab.bytes_and_flops", seeds=[])


if __name__ == "__main__":
    main()
