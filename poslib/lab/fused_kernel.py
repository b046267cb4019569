"""Chapter 12: a few lines of the machine code that poslib's attention becomes on an H100, and its main loop with other tiles.

    python -m poslib.lab.fused_kernel       compiles (no GPU needed) and stores both
"""

from __future__ import annotations

import dataclasses
import json
import linecache
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from poslib.lab import results

COMMAND = "python -m poslib.lab.fused_kernel"
NAME = "fused_kernel"
TILES = [("none", 32), ("q", 32), ("qk", 64)]           # what is rotated, keys in a tile: not those of poslib.kernels.configs


def listing():
    """The stored lines: first what each is for, then the instruction."""
    return [f"{what}\n    {text}" for what, text in results.load(NAME)["lines"]]


def excerpt(sass):
    """[what it is for, instruction] of a wide load, a product of tensor cores and an exponential; `sass`: what nvdisasm -c -g prints."""
    from poslib.kernels import compiled

    code, loop = compiled.instructions(sass), compiled.loop_of(sass)
    wanted = [("128 bits of memory into four registers", code, lambda i: i.opcode == "LDG" and i.bits == 128),
              ("the turn: a cos minus the product b sin", code, lambda i: i.opcode == "FFMA" and "cos" in linecache.getline(*i.source)),
              ("queries times keys, in the tensor cores", loop, lambda i: i.opcode == "HGMMA"),
              ("an exponential, to base 2", loop, lambda i: i.opcode == "MUFU" and "EX2" in i.modifiers)]
    found = []
    for what, where, fits in wanted:
        i = next((i for i in where if fits(i)), None)
        if i is None:
            raise ValueError(f"sass has no instruction for {what!r}")
        found.append([what, f"{'.'.join((i.opcode, *i.modifiers))} {i.operands}".strip()])
    return found


def loops():
    """{(what is rotated, keys in a tile): report} of attention of width 128 in bf16 on an H100: what `poslib.kernels.compiled` stores, and `TILES`."""
    from poslib.kernels import compiled

    usual = [r for r in compiled.stored() if r.request[:4] == ("attention", 128, "bfloat16", "sm_90")]
    other = [compiled._read(fields) for fields in results.load(NAME)["tiles"]]
    return {(r.switches.get("rotate", "none"), r.settings["BLOCK_N"]): r for r in usual + other}


def _other_tiles():
    """In a process that compiles: a report for each of `TILES`, all else as poslib has it."""
    from poslib.kernels import compiled, configs

    reports = []
    for rotate, keys in TILES:
        name = "forward_qk" if rotate == "qk" else "forward", 128, 2, "sm_90"
        usual = configs.TABLE[name]
        configs.TABLE[name] = usual._replace(keys=keys)
        try:
            reports.append(dataclasses.asdict(compiled._compile(("attention", 128, "bfloat16", "sm_90", {"rotate": rotate}))))
        finally:
            configs.TABLE[name] = usual
    return reports


def _machine_code():
    """In a process that compiles: the text of nvdisasm -c -g for attention with queries turned in registers."""
    import torch

    from poslib.kernels import compiled

    call, functions = compiled.CALLS["attention"]
    with compiled._compiling("sm_90", functions) as found:
        call(torch, 128, torch.bfloat16, rotate="q")
    (_, _, kernel, _), = found
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder, "kernel.cubin")
        cubin.write_bytes(kernel.asm["cubin"])
        return compiled._tool("nvdisasm", "-c", "-g", cubin)


def main(arguments):
    if arguments == ["--work"]:
        print(json.dumps([_machine_code(), _other_tiles()]))
        return
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": cache}
        done = subprocess.run([sys.executable, "-m", "poslib.lab.fused_kernel", "--work"], env=environment, capture_output=True, text=True, check=True)
    import triton

    sass, tiles = json.loads(done.stdout.splitlines()[-1])
    print(results.store(NAME, {"triton": triton.__version__, "lines": excerpt(sass), "tiles": tiles}, command=COMMAND, seeds=[]))


if __name__ == "__main__":
    main(sys.argv[1:])
