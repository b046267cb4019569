"""What the GPU's compiler makes of the kernels, read on a machine without a GPU.

    python -m poslib.kernels.compiled               prints the table; about a minute
    python -m poslib.kernels.compiled --json FILE   writes it too
    python -m poslib.kernels.compiled --all         more head sizes, dtypes and both architectures

Triton's wheel carries the assembler (ptxas) and disassembler (nvdisasm) of NVIDIA, and neither needs a GPU.  Here a kernel is
called through the library's own public function, with a driver that only says which GPU it stands for: the launch is stopped
once its code is compiled.  So what is read is what a user of that GPU runs: the same configuration, and the same attributes
(alignment of pointers, divisibility of strides) that the compiler derives from the arguments.

Code for a GPU cannot be made in a process where Triton interprets, so every compilation happens in a process of its own, with
an empty cache.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import json
import linecache
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from poslib.lab import results

__all__ = ["Instruction", "Report", "accesses", "compile_kernel", "compile_kernels", "count", "instructions", "loop_of", "stored", "table"]

SHARED = {"sm_80": 166912, "sm_90": 232448}             # bytes of shared memory that one program may have

NARROW = {  # what a thread may access in less than 128 bits: a pointer of the kernels, and why
    "LSE": "one float32 for each row of queries, 1/128 of the bytes of the row itself at head_dim 64 in 16 bits",
    "DELTA": "one float32 for each row of queries, as LSE",
    "INCREMENTS": "one int64 for each pair, the same for all rows of a program",
    "POSITIONS": "one id for each row",
    "WHERE": "one slot for each row",
    "SLOPES": "one float32 for each head",
}

# -- reading machine code (SASS)

KINDS = {  # what an instruction does: opcodes, without their modifiers
    "tensor": ("HGMMA", "HMMA", "QGMMA", "QMMA", "IGMMA", "IMMA", "DMMA"),
    "multiply-add": ("FFMA", "FFMA2"),
    "multiply": ("FMUL", "FMUL2"),
    "add": ("FADD", "FADD2"),
    "special function": ("MUFU",),
    "convert": ("F2F", "F2FP", "F2I", "I2F", "I2FP"),
    "unpack": ("PRMT", "SHF", "LOP3"),
    "shared load": ("LDS", "LDSM"),
    "shared store": ("STS", "STSM"),
    "global load": ("LDG",),
    "copy to shared": ("LDGSTS", "UTMALDG", "UBLKCP"),
    "global store": ("STG", "UTMASTG", "RED", "REDG", "ATOM", "ATOMG"),
    "local": ("LDL", "STL"),
    "wait": ("BAR", "WARPSYNC", "WARPGROUP", "DEPBAR", "LDGDEPBAR", "FENCE", "MEMBAR", "SYNCS", "ERRBAR", "NANOSLEEP"),
}
_KIND = {opcode: kind for kind, opcodes in KINDS.items() for opcode in opcodes}
_CODE = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(?:@!?(U?P\w+)\s+)?([A-Z][A-Z0-9_]*)((?:\.\w+)*)\s*(.*?)\s*;")
_LABEL = re.compile(r"\s*(\.L_x_\d+):")
_LINE = re.compile(r'\s*//## File "(.*)", line (\d+)')
_TARGET = re.compile(r"`\((\.L_x_\d+)\)")


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One machine instruction.

    Parameters
    ----------
    opcode : str
        Without modifiers, such as ``"LDG"``.
    modifiers : tuple of str
        Such as ``("E", "128")``.
    operands : str
    guarded : bool
        Whether a predicate can switch it off.
    label : str
        The label that stands before it, or "".
    source : tuple (str, int)
        File and line of the kernel that it comes from, where the listing says; else ("", 0).

    Examples
    --------
    >>> instructions("        /*0440*/              @!P0 LDG.E.128 R100, desc[UR14][R10.64] ;")[0].modifiers
    ('E', '128')
    """

    opcode: str
    modifiers: tuple[str, ...]
    operands: str
    guarded: bool = False
    label: str = ""
    source: tuple[str, int] = ("", 0)

    @property
    def kind(self):
        """One of the names in `KINDS`, or "other".

        Returns
        -------
        str

        Examples
        --------
        >>> instructions("        /*0440*/   HMMA.16816.F32.BF16 R4, R8, R12, R4 ;")[0].kind
        'tensor'
        """
        return _KIND.get(self.opcode, "other")

    @property
    def bits(self):
        """Width of a memory access, for each thread.

        Returns
        -------
        int

        Examples
        --------
        >>> instructions("        /*0440*/   STG.E desc[UR14][R4.64], R7 ;")[0].bits
        32
        """
        widths = {"256": 256, "128": 128, "64": 64, "U16": 16, "S16": 16, "16": 16, "U8": 8, "S8": 8, "8": 8}
        return next((widths[m] for m in self.modifiers if m in widths), 32)


def instructions(sass):
    """The instructions of a listing of nvdisasm.

    Parameters
    ----------
    sass : str
        Text that ``nvdisasm -c -gi`` prints for one kernel.

    Returns
    -------
    list of Instruction

    Raises
    ------
    ValueError
        When the text holds no instruction or one that is not understood: then it has another form than this function knows.

    Examples
    --------
    >>> [i.opcode for i in instructions("        /*0000*/   MOV R1, RZ ;\\n        /*0010*/   EXIT ;")]
    ['MOV', 'EXIT']
    """
    found, label, source = [], "", ("", 0)
    for line in sass.splitlines():
        if match := _LABEL.match(line):
            label = match[1]
        elif match := _LINE.match(line):
            source = (match[1], int(match[2]))
        elif match := _CODE.match(line):
            _, guard, opcode, modifiers, operands = match.groups()
            found.append(Instruction(opcode, tuple(modifiers.split(".")[1:]), operands, guard is not None, label, source))
            label = ""
        elif line.lstrip().startswith("/*") and "*/" in line:
            raise ValueError(f"sass has a line that is not understood: {line.strip()!r}")
    if not found:
        raise ValueError("sass holds no instruction; allowed is what nvdisasm -c prints")
    return found


def loop_of(sass):
    """The main loop: the instructions of one turn.

    Parameters
    ----------
    sass : str or list of Instruction

    Returns
    -------
    list of Instruction
        From the label that a later branch leads back to, to that branch.  Of the loops that multiply matrices (without tensor
        cores: that have float32 multiply-adds), the shortest: it holds no smaller one, and a causal kernel has a second
        one with the comparisons of the mask in it.  Empty if there is none.

    Examples
    --------
    >>> text = '''        .L_x_1:
    ...         /*0010*/   HMMA.16816.F32.BF16 R4, R8, R12, R4 ;
    ...         /*0020*/   @P0 BRA `(.L_x_1) ;'''
    >>> [i.opcode for i in loop_of(text)]
    ['HMMA', 'BRA']
    """
    code = instructions(sass) if isinstance(sass, str) else sass
    place = {i.label: n for n, i in enumerate(code) if i.label}
    spans = []
    for end, instruction in enumerate(code):
        target = instruction.opcode == "BRA" and _TARGET.search(instruction.operands)
        if target and place.get(target[1], end + 1) <= end:
            spans.append((place[target[1]], end + 1))
    for kind in ("tensor", "multiply-add"):
        busy = [s for s in spans if any(i.kind == kind for i in code[slice(*s)])]
        if busy:                                        # the shortest holds no other
            return code[slice(*min(busy, key=lambda s: s[1] - s[0]))]
    return []


def count(code):
    """How many instructions of each kind.

    Parameters
    ----------
    code : list of Instruction

    Returns
    -------
    dict
        The names of `KINDS` that occur, "other", and their sum under "all"; without NOP, which fills the end of a kernel.

    Examples
    --------
    >>> count(instructions("        /*0000*/   MUFU.EX2 R1, R2 ;"))
    {'special function': 1, 'all': 1}
    """
    found = Counter(i.kind for i in code if i.opcode != "NOP")
    return {kind: found[kind] for kind in [*KINDS, "other"] if found[kind]} | {"all": found.total()}


def accesses(code):
    """Loads from and stores to global memory, by their width.

    Parameters
    ----------
    code : list of Instruction

    Returns
    -------
    loads, stores : dict
        Bits of one thread's access: how many instructions.  Copies from global to shared memory count as loads.

    Examples
    --------
    >>> accesses(instructions("        /*0000*/   LDGSTS.E.BYPASS.LTC128B.64 [R1+0x80], desc[UR1][R2.64] ;"))
    ({64: 1}, {})
    """
    loads = Counter(i.bits for i in code if i.opcode in ("LDG", "LDGSTS", "LD"))
    stores = Counter(i.bits for i in code if i.opcode in ("STG", "ST", "RED", "REDG", "ATOM", "ATOMG"))
    return tuple(dict(sorted(found.items(), reverse=True)) for found in (loads, stores))


# -- reports

@dataclasses.dataclass(frozen=True)
class Report:
    """What one kernel became.

    Parameters
    ----------
    kernel : str
        A name of `CALLS`.
    head_dim : int
    dtype : str
    arch : {"sm_80", "sm_90"}
        A100, and H100 or H200.
    switches : dict
        What differs from the defaults of the call.
    function : str
        The kernel's function.
    settings : dict
        Its compile-time numbers: sizes of the tile, warps, stages.
    registers : int
        For each thread, of 255.
    stack, spilled : int, bytes
        Memory for each thread that stands in for registers: the stack, and what is stored to and loaded from it.
    shared : int, bytes
        Shared memory of a program.
    loads, stores : dict
        Accesses of global memory: bits of one thread's access, how many instructions.
    narrow : list
        Those of less than 128 bit: "load" or "store", bits, and the line of the kernel that they come from.
    code, loop : dict
        Instructions by kind, of the kernel and of one turn of its main loop.
    opcodes : dict
        Tensor-core instructions by opcode.

    Examples
    --------
    >>> report = stored()[0]
    >>> report.kernel, report.spilled
    ('rotary', 0)
    """

    kernel: str
    head_dim: int
    dtype: str
    arch: str
    switches: dict
    function: str
    settings: dict
    registers: int
    stack: int
    spilled: int
    shared: int
    loads: dict
    stores: dict
    narrow: list
    code: dict
    loop: dict
    opcodes: dict

    @property
    def unexplained(self):
        """Accesses of less than 128 bits whose line names no pointer of `NARROW`.

        Returns
        -------
        list

        Examples
        --------
        >>> [report.unexplained for report in stored()[:4]]
        [[], [], [], []]
        """
        return [access for access in self.narrow if not any(re.search(rf"\b{name}\b", access[3]) for name in NARROW)]

    @property
    def request(self):
        """What was compiled, as `compile_kernels` takes it.

        Returns
        -------
        tuple

        Examples
        --------
        >>> stored()[0].request[:2]
        ('rotary', 128)
        """
        return self.kernel, self.head_dim, self.dtype, self.arch, self.switches


def _report(request, function, settings, listing, usage, log, shared):
    """A report from the texts of nvdisasm, cuobjdump and ptxas."""
    code = instructions(listing)
    spills = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log)
    registers, stack = re.search(r"REG:(\d+)", usage), re.search(r"STACK:(\d+)", usage)
    if len(spills) != 1 or not registers or not stack:
        raise ValueError(f"ptxas or cuobjdump says nothing of spills, registers or stack: {log!r}, {usage!r}")
    loads, stores = accesses(code)
    narrow = Counter()
    for i in code:
        if i.opcode in ("LDG", "LDGSTS", "LD", "STG", "ST", "RED", "REDG", "ATOM", "ATOMG") and i.bits < 128:
            file, line = i.source
            what = "load" if i.opcode in ("LDG", "LDGSTS", "LD") else "store"
            text = linecache.getline(file, line).partition("#")[0]
            narrow[what, i.bits, Path(file).name, " ".join(text.split())] += 1
    name, head_dim, dtype, arch, switches = request
    return Report(
        name, head_dim, dtype, arch, switches, function, settings, int(registers[1]), int(stack[1]), sum(map(int, spills[0])), shared,
        loads, stores, [[*key, number] for key, number in sorted(narrow.items())], count(code), count(loop_of(code)) if loop_of(code) else {},
        dict(Counter(i.opcode for i in code if i.kind == "tensor")))


def _read(fields):
    """A report out of JSON, whose keys are strings."""
    return Report(**fields | {name: {int(k): v for k, v in fields[name].items()} for name in ("loads", "stores")})


# -- the calls whose kernels are compiled: each is one of the public functions, on tensors of the dtype

def _rotary(torch, head_dim, dtype, *, layout="half", width=None, angles="tables", length=256, ids=False, in_place=False):
    """Rotation of Q (32 heads) and K (8 heads)."""
    from poslib.kernels import rotary
    q, k = (torch.zeros(2, heads, length, head_dim, dtype=dtype) for heads in (32, 8))
    rotary.rotate(q, k, torch.arange(length) if ids else 0, layout=layout, width=width, angles=angles, out=(q, k) if in_place else None)


def _attention(torch, head_dim, dtype, *, rotate="none", layout="half", length=256, keys=256, backward=False, is_causal=True, **options):
    """Attention of 32 query heads to 8 key heads."""
    from poslib.kernels.attention import attention
    q, k, v = (torch.zeros(2, heads, n, head_dim, dtype=dtype, requires_grad=backward) for heads, n in ((32, length), (8, keys), (8, keys)))
    if rotate != "none":
        options["layout"] = layout
    out = attention(q, k, v, rotate=rotate, is_causal=is_causal, offset=keys - length, **options)
    if backward:
        out.backward(torch.zeros_like(out))


def _training(torch, head_dim, dtype, **switches):
    """Attention forward and backward."""
    _attention(torch, head_dim, dtype, backward=True, **switches)


def _decode(torch, head_dim, dtype, *, keys=4096, **switches):
    """One new token for each of two sequences, beside a cache."""
    _attention(torch, head_dim, dtype, length=1, keys=keys, **switches)


CALLS = {  # name: how it is called, the functions one of which is meant
    "rotary": (_rotary, ("rotate_kernel", "rows_kernel")),
    "attention": (_attention, ("forward_kernel",)),
    "attention dq": (_training, ("query_gradient_kernel",)),
    "attention dkv": (_training, ("key_gradient_kernel",)),
    "decode": (_decode, ("decode_kernel",)),
}


# -- compiling, in a process of its own

class _Driver:
    """Stands for a GPU that is not there."""

    def __init__(self, target):
        self.target = target

    def get_current_target(self):
        return self.target

    def get_current_device(self):
        return self.target.arch

    def get_current_stream(self, device):
        return 0


@contextlib.contextmanager
def _compiling(arch, wanted):
    """Launches of kernels stop at the compiled kernel; those of the functions `wanted` are put into the list that this gives."""
    from poslib.kernels import _runtime
    if _runtime.mode() != "compiled":
        raise RuntimeError("kernels are interpreted in this process; compile_kernel compiles in another one")
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.runtime.jit import JITFunction
    from poslib.kernels import attention
    _runtime._architecture, _runtime.check_device = lambda device: arch, lambda name, x: None
    attention.MODE = "ahead of time"                    # tensors of the CPU stand for those of the GPU
    launch, found = JITFunction.run, []

    def run(self, *arguments, grid, warmup, **named):
        if self.fn.__name__ not in wanted:
            return None
        log = io.StringIO()
        with contextlib.redirect_stdout(log):
            kernel = launch(self, *arguments, grid=grid, warmup=True, **named)
        found.append((self, named, kernel, log.getvalue()))
        return kernel

    triton.knobs.nvidia.dump_ptxas_log = True
    triton.runtime.driver.set_active(_Driver(GPUTarget("cuda", int(arch.removeprefix("sm_")), 32)))
    JITFunction.run = run
    try:
        yield found
    finally:
        JITFunction.run = launch


def _tool(name, *arguments):
    import triton.backends.nvidia
    program = Path(triton.backends.nvidia.__path__[0], "bin", name)
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout


def _compile(request):
    """The report of one request, in a process that compiles."""
    import torch
    name, head_dim, dtype, arch, switches = request
    call, functions = CALLS[name]
    with _compiling(arch, functions) as found:
        call(torch, head_dim, getattr(torch, dtype), **switches)
    if len(found) != 1:
        raise RuntimeError(f"{name}: {len(found)} launches of {' or '.join(functions)}; expected is one")
    jitted, named, kernel, log = found[0]
    jitted.device_caches.clear()                        # a kernel that comes twice is compiled twice: the log belongs to it
    settings = {k: named[k] for k in ("ROWS", "BLOCK_M", "BLOCK_N") if k in named}
    settings |= {"num_warps": kernel.metadata.num_warps, "num_stages": kernel.metadata.num_stages}
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder, "kernel.cubin")
        cubin.write_bytes(kernel.asm["cubin"])
        listing, usage = _tool("nvdisasm", "-c", "-g", cubin), _tool("cuobjdump", "--dump-resource-usage", cubin)
    return _report(request, jitted.fn.__name__, settings, listing, usage, log, kernel.metadata.shared)


def _work(requests):
    """What the process does: one line of JSON for each request."""
    for request in requests:
        try:
            print(json.dumps(dataclasses.asdict(_compile(request))), flush=True)
        except Exception as error:                      # the others are still compiled
            print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)


def _checked(request):
    """(kernel, head_dim, dtype, arch, switches) with names that exist."""
    name, head_dim, dtype, arch, switches = request
    dtype = str(dtype).removeprefix("torch.")
    for what, value, allowed in (("name", name, CALLS), ("dtype", dtype, ("float16", "bfloat16", "float32")), ("arch", arch, SHARED)):
        if value not in allowed:
            raise ValueError(f"{what} is {value!r}; allowed are {', '.join(allowed)}")
    return [name, head_dim, dtype, arch, dict(switches)]


def compile_kernels(requests, progress=None):
    """Compile kernels for GPUs that need not be there, and read what came out.

    Parameters
    ----------
    requests : iterable of (name, head_dim, dtype, arch, switches)
        As the arguments of `compile_kernel`, the switches as a dict.
    progress : callable, optional
        Gets each report as soon as it is there, in no certain order.

    Returns
    -------
    list of Report

    Raises
    ------
    ValueError
        For a name, dtype or architecture that is not known.
    RuntimeError
        When a kernel does not compile.

    Notes
    -----
    In two new processes with empty caches: three seconds to start, and one or two for each kernel.

    Examples
    --------
    >>> compile_kernels([])
    []
    """
    requests = [_checked(request) for request in requests]
    parts = [part for part in (requests[::2], requests[1::2]) if part]
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda part: _compile_apart(part, progress), parts))
    return [done[n % 2][n // 2] for n in range(len(requests))]


def _compile_apart(requests, progress):
    """Reports of requests, from one new process."""
    reports = []
    with tempfile.TemporaryDirectory() as cache:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TRITON_")} | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": cache}
        environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), environment.get("PYTHONPATH", "")])
        with subprocess.Popen([sys.executable, "-m", "poslib.kernels.compiled", "--work", json.dumps(requests)], env=environment,
                              text=True, stdout=subprocess.PIPE) as process:
            for line in process.stdout:
                fields = json.loads(line)
                if "error" in fields:
                    process.kill()
                    raise RuntimeError(f"{requests[len(reports)]} does not compile: {fields['error']}")
                reports.append(_read(fields))
                if progress:
                    progress(reports[-1])
    if len(reports) != len(requests):
        raise RuntimeError(f"the process that compiles ended with {process.returncode} at {requests[len(reports)]}")
    return reports


def compile_kernel(name, head_dim, dtype, arch, **switches):
    """Compile one kernel for a GPU that need not be there, and read what came out.

    Parameters
    ----------
    name : {"rotary", "attention", "attention dq", "attention dkv", "decode"}
        Rotation of Q and K; attention forward; its backward for q, and for k and v; attention of one new token to a cache.
    head_dim : int
    dtype : {"float16", "bfloat16", "float32"}, or the dtype of torch
    arch : {"sm_80", "sm_90"}
        A100; H100 and H200.
    **switches
        Of the public function: ``layout``, ``width``, ``angles`` of the rotation, ``rotate`` of attention; and ``length``, ``keys``.

    Returns
    -------
    Report

    Raises
    ------
    ValueError
        For a name, dtype or architecture that is not known.
    RuntimeError
        When it does not compile.

    Examples
    --------
    >>> report = compile_kernel("rotary", 64, "bfloat16", "sm_90", layout="half")
    >>> report.spilled, set(report.stores)
    (0, {128})
    """
    return compile_kernels([(name, head_dim, dtype, arch, switches)])[0]


# -- the table

def _rows(everything=False):
    """Requests of the default table, those that chapter 12 shows first; with `everything` all head sizes, dtypes and layouts."""
    def attention(arch, **switches):
        return "attention", 128, "bfloat16", arch, switches

    def rotary(arch="sm_90", **switches):
        return "rotary", 128, "bfloat16", arch, switches
    rows = [rotary(), rotary(angles="phase"), attention("sm_90"), attention("sm_90", rotate="q"), attention("sm_90", rotate="qk"),
            attention("sm_80", rotate="q"), ("attention dkv", 128, "bfloat16", "sm_90", {"rotate": "q"}), ("decode", 128, "bfloat16", "sm_90", {"rotate": "q"})]
    rows += [rotary(layout="interleaved"), rotary(width=32), rotary(length=1), rotary("sm_80"), rotary("sm_80", layout="interleaved"),
             attention("sm_80"), attention("sm_80", rotate="qk")]
    rows += [("attention", 64, "bfloat16", arch, {"rotate": rotate}) for arch in SHARED for rotate in ("none", "q", "qk")]
    rows += [(f"attention {part}", head_dim, "bfloat16", arch, {"rotate": "q"}) for arch in SHARED for part in ("dq", "dkv") for head_dim in (64, 128)]
    rows += [("decode", 128, "bfloat16", arch, {"rotate": rotate}) for arch in SHARED for rotate in ("none", "q", "qk")]
    if everything:
        rows += [("rotary", head_dim, dtype, arch, {"layout": layout, "angles": angles, "length": length}) for arch in SHARED for head_dim in (64, 128)
                 for dtype in ("float16", "bfloat16", "float32") for layout in ("half", "interleaved") for angles in ("tables", "phase") for length in (1, 256)]
        rows += [("attention", head_dim, dtype, arch, {"rotate": rotate, "layout": layout}) for arch in SHARED for head_dim in (32, 64, 80, 96, 128, 256)
                 for dtype in ("float16", "bfloat16", "float32") for rotate in ("none", "q", "qk") for layout in ("half", "interleaved")]
        rows += [("attention", 128, "bfloat16", arch, extra) for arch in SHARED for extra in ({"window": 512}, {"is_causal": False})]
    unique = {json.dumps(_plain(row)): row for row in rows}
    return list(unique.values())


def _plain(row):
    """A request without the switches that are the defaults."""
    name, head_dim, dtype, arch, switches = row
    default = {"layout": "half", "angles": "tables", "length": 256, "rotate": "none"}
    return [name, head_dim, dtype, arch, {k: v for k, v in sorted(switches.items()) if default.get(k) != v}]


def _widths(found):
    return " ".join(f"{number}x{bits}" for bits, number in found.items()) or "-"


def table(rows):
    """Reports as lines of text.

    Parameters
    ----------
    rows : iterable of Report

    Returns
    -------
    list of str
        A head and one line each.

    Examples
    --------
    >>> print("\\n".join(line[:49].rstrip() for line in table(stored()[:1])))
    kernel        head_dim dtype    arch  switches
    rotary             128 bfloat16 sm_90
    """
    lines = [f"{'kernel':13} {'head_dim':>8} {'dtype':8} {'arch':5} {'switches':24} {'tile':>9} {'warps':>5} {'stages':>6} {'registers':>9} {'stack':>5} "
             f"{'spilled':>7} {'shared':>7}  {'loads':20} {'stores':18} {'tensor':11} {'all':>5}  {'loop':>4} {'multiply-add':>12} {'special':>7}"]
    for r in rows:
        tile = "x".join(str(v) for k, v in r.settings.items() if not k.startswith("num"))
        switches = " ".join(f"{k}={v}" for k, v in r.switches.items())
        tensor = " ".join(f"{n} {op}" for op, n in r.opcodes.items())
        loop = f"{r.loop['all']:4} {r.loop.get('multiply-add', 0):12} {r.loop.get('special function', 0):7}" if r.loop else ""
        lines.append(f"{r.kernel:13} {r.head_dim:8} {r.dtype:8} {r.arch:5} {switches:24} {tile:>9} {r.settings['num_warps']:5} {r.settings['num_stages']:6} "
                     f"{r.registers:9} {r.stack:5} {r.spilled:7} {r.shared:7}  {_widths(r.loads):20} {_widths(r.stores):18} {tensor:11} {r.code['all']:5}  "
                     f"{loop}".rstrip())
    return lines


def stored():
    """The reports that come with the package.

    Returns
    -------
    tuple of Report
        Those that chapter 12 shows first, in its order.

    Examples
    --------
    >>> {report.arch for report in stored()} == {"sm_80", "sm_90"}
    True
    """
    return tuple(_read(fields) for fields in results.load("kernels_compiled")["rows"])


def _made(command):
    """How the table was made: the versions that decide it."""
    import importlib.metadata
    ptxas = re.search(r"release ([\d.]+), V([\d.]+)", _tool("ptxas", "--version"))
    return results.provenance(command, seeds=[]) | {"triton": importlib.metadata.version("triton"), "ptxas": ptxas[2]}


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m poslib.kernels.compiled", description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the reports too")
    parser.add_argument("--all", action="store_true", help="more head sizes, dtypes and layouts")
    parser.add_argument("--work", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.work:
        return _work(given.work)
    rows = _rows(given.all)
    reports = compile_kernels(rows, progress=lambda report: print(f"compiled: {' '.join(map(str, report.request))}", file=sys.stderr))
    print("\n".join(table(reports)))
    if given.json:
        written = {"made": _made("python -m poslib.kernels.compiled" + " --all" * given.all + f" --json {given.json}"),
                   "rows": [dataclasses.asdict(report) for report in reports]}
        Path(given.json).write_text(results._written(written), "utf8")
        print(f"wrote {Path(given.json).name}")


if __name__ == "__main__":
    main()
