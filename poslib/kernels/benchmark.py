"""How fast the kernels are on a GPU, beside what else there is, and whether each of them is right.

    python -m poslib.kernels.benchmark --json FILE          under four minutes on one GPU
    python -m poslib.kernels.benchmark --dry                the same steps at tiny sizes, on the CPU, with a clock that stands still

First what the card can do at all: bytes copied and multiplications per second.  Then every way is compared with float64
arithmetic, where its gradients are asked for with them too; one that is wrong is reported and never timed.  Then the times:
medians and quartiles of CUDA events, the level 2 cache overwritten before each call.  Cases come in the order of their
importance, and where the limit cuts them off, the rest is listed as not reached.

A way gets its tables, its preferred order of axes and a compiled form before the clock starts; what it must do for each
layer of a model is on the clock, the separate rotation of Q and K in particular.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib
import importlib.metadata
import json
import platform
import shlex
import subprocess
import sys
import time
from pathlib import Path

from poslib import cost
from poslib.kernels import _runtime

MODE = _runtime.mode()                      # before anything imports triton

import torch                                            # noqa: E402
import torch.nn.functional as F                         # noqa: E402

from poslib.kernels import attention, rotary            # noqa: E402
from poslib.lab import results as stored                # noqa: E402

BASE = 10000.0
SEED = 0
LONGEST = 25                                # seconds that one row may take: compiling FlexAttention forward and backward
PEERS = ("flash-attn", "flashinfer-python", "liger-kernel")
# Relative error (norms) that bfloat16 may have.  Its unit roundoff u is 2⁻⁹; an output rounded once is within u, and each
# operand that is rounded on the way adds as much: tables, products and sums in eager code, weights in attention, and in the
# backward pass the scores' gradients too.  A wrong layout, sign, mask or position is above 0.1.
BOUND = {"forward": 6 * 2.0 ** -9, "gradient": 10 * 2.0 ** -9}


# -- what is measured

@dataclasses.dataclass(frozen=True)
class Case:
    """One shape; `kind` is "rotary", "attention" (causal, all queries) or "decode" (the last query)."""

    kind: str
    batch: int
    queries: int
    keys: int
    backward: bool = False
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128

    @property
    def sizes(self):
        """As `poslib.cost` takes it."""
        return cost.Attention(heads=self.heads, kv_heads=self.kv_heads, head_dim=self.head_dim, queries=self.queries, keys=self.keys, batch=self.batch)

    @property
    def least(self):
        """What no implementation can save: inputs read and results written once, the products of attention."""
        a = self.sizes
        if self.kind == "rotary":
            return _moved(a, "fused", "qk", None, self.backward)
        forward = cost.attention(a)
        if not self.backward:
            return forward
        # q, k, v, the result and its gradient are read, three gradients written; five products for the two of the forward pass
        return forward + cost.Cost(3 * a.q_bytes + 2 * a.k_bytes, a.q_bytes + 2 * a.k_bytes, forward.flops * 5 // 2, 2)


def _moved(a, way, parts, tables, backward):
    """Traffic of a rotation, and of its gradient; its arithmetic, which is not that of tensor cores, is left out."""
    found = cost.rotation(a, way, parts=parts, tables=tables)
    if backward:
        found += cost.rotation_backward(a, way, parts=parts, tables=tables)
    return cost.Cost(found.read, found.written, 0, found.launches)


def cases(dry):
    """All cases, the most important first."""
    if dry:
        small = {"heads": 2, "kv_heads": 1, "head_dim": 32}             # the interpreter takes a millisecond for each operation
        return [Case("rotary", 1, 24, 24, **small), Case("attention", 1, 24, 24, **small), Case("decode", 2, 1, 40, **small),
                Case("attention", 1, 24, 24, True, **small), Case("rotary", 1, 24, 24, True, **small)]

    def prefill(kind, length, backward=False):
        return Case(kind, max(1, 8192 // length), length, length, backward)
    found = [prefill("rotary", 4096), prefill("attention", 4096), Case("decode", 32, 1, 8192), prefill("attention", 4096, True)]
    for length in (1024, 16384, 2048, 8192):
        found += [prefill("rotary", length), prefill("attention", length)]
    found += [Case("decode", 32, 1, 2048), Case("decode", 32, 1, 32768), Case("decode", 1, 1, 32768), Case("rotary", 32, 1, 1), prefill("rotary", 4096, True)]
    for length in (1024, 16384, 2048, 8192):
        found += [prefill("attention", length, True), prefill("rotary", length, True)]
    return found


def _checks(case, dry):
    """Small shapes of a case's kind on which every element and every gradient is compared: odd lengths, below and above a tile."""
    lengths = (9,) if dry else (7, 130)
    kv_heads = 1 if dry else 2
    small = {"batch": 1 if dry else 2, "heads": kv_heads * case.heads // case.kv_heads, "kv_heads": kv_heads}
    return [dataclasses.replace(case, queries=1 if case.kind == "decode" else n, keys=n, **small) for n in lengths]


class Inputs:
    """Tensors of a case, bfloat16, and what the ways need beside them: `given` says which of q and k come turned already."""

    def __init__(self, case, device, given="raw"):
        self.case, self.device, self.given = case, device, given
        draw = torch.Generator(device).manual_seed(SEED)
        sizes = ((case.heads, case.queries), (case.kv_heads, case.keys), (case.kv_heads, case.keys))
        self.q, self.k, self.v = (torch.randn(case.batch, h, n, case.head_dim, generator=draw, device=device, dtype=torch.bfloat16) for h, n in sizes)
        self.gradients = [torch.randn(x.shape, generator=draw, device=device, dtype=torch.bfloat16)
                          for x in ((self.q, self.k) if case.kind == "rotary" else (self.q,))]
        self.start = 4095 if case.kind == "rotary" and case.queries == 1 else case.keys - case.queries       # position of the first query
        self.q_ids = torch.arange(self.start, self.start + case.queries, device=device)
        self.k_ids = self.q_ids if case.kind == "rotary" else torch.arange(case.keys, device=device)
        self.angles = torch.arange(int(self.q_ids[-1]) + 1, device=device).double()[:, None] * _omega(case.head_dim, device)

    @functools.cached_property
    def wide_tables(self):
        """Cosines and sines as transformers makes them: bfloat16, each column twice."""
        both = torch.cat([self.angles, self.angles], -1)
        return both.cos().bfloat16(), both.sin().bfloat16()

    @functools.cached_property
    def tables(self):
        return self.angles.cos().float(), self.angles.sin().float()


def _omega(head_dim, device):
    return BASE ** (-torch.arange(0, head_dim, 2, device=device, dtype=torch.float64) / head_dim)


# -- the truth

def turned(x, ids):
    """Rotation in float64 by complex numbers, layout "half"."""
    half = x.shape[-1] // 2
    angles = ids.double()[:, None] * _omega(x.shape[-1], x.device)
    z = torch.complex(x[..., :half].double(), x[..., half:].double()) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([z.real, z.imag], -1)


def truth(inputs, q, k, v, rows=slice(None)):
    """What the results are in float64; in attention for some rows of the queries only, if asked."""
    q_ids = inputs.q_ids[rows]
    q = q[:, :, rows].double() if inputs.given == "turned" else turned(q[:, :, rows], q_ids)
    if inputs.case.kind == "rotary":
        return q, turned(k[:, :, rows], q_ids)
    k = turned(k, inputs.k_ids) if inputs.given == "raw" else k.double()
    group = q.shape[1] // k.shape[1]
    scores = q.unflatten(1, (-1, group)) @ k[:, :, None].mT * q.shape[-1] ** -0.5
    scores = scores.masked_fill(inputs.k_ids > q_ids[:, None], -torch.inf)
    return ((scores.softmax(-1) @ v.double()[:, :, None]).flatten(1, 2),)


def difference(got, want):
    """Relative error in the norm, infinite where something is not finite or has another shape."""
    if got.shape != want.shape or not torch.isfinite(got).all():
        return float("inf")
    return float((got.double() - want).norm() / want.norm().clamp_min(1e-30))


def _few_rows(inputs):
    """First, middle and last query of the first and last sequence: what can be compared in float64 at any size."""
    rows = sorted({0, inputs.case.queries // 2, inputs.case.queries - 1})
    batch = sorted({0, inputs.case.batch - 1})
    return batch, rows


# -- the ways: build(inputs, compiled) gives a call of q, k, v, whose results are a tuple

def _turn_eager(x, cos, sin):
    """As transformers writes it for Llama."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def _turn_both(q, k, cos_q, sin_q, cos_k, sin_k):
    return _turn_eager(q, cos_q, sin_q), _turn_eager(k, cos_k, sin_k)


def _rows_of(tables, ids):
    return tuple(table[ids] for table in tables)


def _tables_of(inputs, tables):
    """Cosines and sines of the queries, then of the keys."""
    return *_rows_of(tables, inputs.q_ids), *_rows_of(tables, inputs.k_ids)


def _eager(inputs, compiled):
    tables = _tables_of(inputs, inputs.wide_tables)
    return lambda q, k, v: _turn_both(q, k, *tables)


def _compile(inputs, compiled):
    tables = _tables_of(inputs, inputs.wide_tables)
    turn = compiled(_turn_both)
    return lambda q, k, v: turn(q, k, *tables)


def _own_rotary(inputs, compiled, phase=False, in_place=False):
    prepare = rotary.phases if phase else rotary.tables
    ready = prepare(inputs.q_ids, width=inputs.case.head_dim, base=BASE)
    return lambda q, k, v: rotary.rotate(q, k, ready, layout="half", out=(q, k) if in_place else None)


def _liger(inputs, compiled):
    turn = importlib.import_module("liger_kernel.transformers.rope").liger_rotary_pos_emb
    cos, sin = (table[None] for table in _tables_of(inputs, inputs.wide_tables)[:2])
    return lambda q, k, v: turn(q, k, cos, sin)


def _flash_turn(x, cos, sin):
    turn = importlib.import_module("flash_attn.layers.rotary").apply_rotary_emb
    return turn(x.transpose(1, 2), cos, sin).transpose(1, 2)


def _flash_rotary(inputs, compiled):
    importlib.import_module("flash_attn.layers.rotary")
    cos_q, sin_q, cos_k, sin_k = _tables_of(inputs, inputs.tables)
    return lambda q, k, v: (_flash_turn(q, cos_q, sin_q), _flash_turn(k, cos_k, sin_k))


def _flashinfer_rotary(inputs, compiled):
    turn = importlib.import_module("flashinfer.rope").apply_rope_pos_ids
    ids = inputs.q_ids.int().repeat(inputs.case.batch)

    def call(q, k, v):
        flat = (x.transpose(1, 2).flatten(0, 1) for x in (q, k))
        return tuple(x.unflatten(0, (inputs.case.batch, -1)).transpose(1, 2) for x in turn(*flat, ids, rope_theta=BASE))
    return call


def _own_attention(inputs, compiled, rotate="none"):
    options = {} if rotate == "none" else {"layout": "half", "positions": _rows_of(inputs.tables, inputs.q_ids)}
    if rotate == "qk":
        options["key_positions"] = _rows_of(inputs.tables, inputs.k_ids)
    return lambda q, k, v: (attention.attention(q, k, v, rotate=rotate, is_causal=True, offset=inputs.start, **options),)


def _own_turn_then_q(inputs, compiled):
    """K turned by a launch of its own, Q in attention."""
    ready = rotary.tables(inputs.k_ids, width=inputs.case.head_dim, base=BASE)
    attend = _own_attention(inputs, compiled, rotate="q")
    return lambda q, k, v: attend(q, rotary.rotate(k, None, ready, layout="half"), v)


def _sdpa(inputs, compiled):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    causal = inputs.case.queries > 1

    def call(q, k, v):
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return (F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1]),)
    return call


def _after(turn, attend):
    """Attention after a separate rotation of Q and K; of the new token's Q alone where K comes turned out of the cache."""
    def build(inputs, compiled):
        first, then = turn(inputs, compiled), attend(inputs, compiled)

        def call(q, k, v):
            q, k = first(q, k, v)
            return then(q, k, v)
        return call
    return build


def _compile_first(inputs, compiled):
    """Rotation compiled by torch, keys as they are in the cache in decode."""
    if inputs.given != "keys turned":
        return _compile(inputs, compiled)
    cos, sin = _tables_of(inputs, inputs.wide_tables)[:2]
    turn = compiled(_turn_eager)
    return lambda q, k, v: (turn(q, cos, sin), k)


def _eager_first(inputs, compiled):
    return _compile_first(inputs, lambda function: function)


def _own_first(inputs, compiled):
    if inputs.given == "keys turned":
        ready = rotary.tables(inputs.q_ids, width=inputs.case.head_dim, base=BASE)
        return lambda q, k, v: (rotary.rotate(q, None, ready, layout="half"), k)
    return _own_rotary(inputs, compiled)


def _flex(inputs, compiled):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    start = inputs.start
    mask = create_block_mask(lambda b, h, i, j: j <= i + start, None, None, inputs.case.queries, inputs.case.keys, device=inputs.device)
    attend = compiled(flex_attention)
    return lambda q, k, v: (attend(q, k, v, block_mask=mask, enable_gqa=True),)


def _flash(inputs, compiled):
    attend = importlib.import_module("flash_attn").flash_attn_func
    return lambda q, k, v: (attend(*(x.transpose(1, 2) for x in (q, k, v)), causal=True).transpose(1, 2),)


def _flash_first(inputs, compiled):
    if inputs.given != "keys turned":
        return _flash_rotary(inputs, compiled)
    importlib.import_module("flash_attn.layers.rotary")
    cos, sin = _tables_of(inputs, inputs.tables)[:2]
    return lambda q, k, v: (_flash_turn(q, cos, sin), k)


def _flashinfer(inputs, compiled):
    """Both turned inside; its plain functions take one sequence."""
    code = importlib.import_module("flashinfer")
    options = {"pos_encoding_mode": "ROPE_LLAMA", "rope_theta": BASE}

    def call(q, k, v):
        done = []
        for b in range(q.shape[0]):
            keys, values = (x[b].transpose(0, 1) for x in (k, v))
            if inputs.case.kind == "decode":
                done.append(code.single_decode_with_kv_cache(q[b, :, 0], keys, values, **options)[:, None])
            else:
                done.append(code.single_prefill_with_kv_cache(q[b].transpose(0, 1), keys, values, causal=True, **options).transpose(0, 1))
        return (torch.stack(done),)
    return call


@dataclasses.dataclass(frozen=True)
class Way:
    """One way to do what a case asks for.

    given: "raw", "keys turned" (K was turned when it was written) or "turned" (nothing left to rotate: what attention costs
    alone); first: axes it is made for, "heads" (batch, heads, length, width) or "tokens"; only: a condition on the case;
    turn: the name of its rotation in `poslib.cost`, the parts that turn and the tables, None where no formula is known.
    """

    build: object
    turn: tuple | None = None
    given: str = "raw"
    first: str = "heads"
    gradient: bool = True
    only: object = lambda case: True


def _compile_at(case):
    """Compiling takes seconds for each length: not at all of them."""
    return case.queries in (1, 1024, 4096, 16384) or case.keys < 1024


WAYS = {
    "rotary": {
        "poslib": Way(lambda *a: _own_rotary(*a), turn=("fused", "qk", "fp32")),
        "torch eager": Way(_eager, turn=("rotate_half", "qk", None)),
        "torch.compile": Way(_compile, only=_compile_at),
        "poslib in place": Way(lambda *a: _own_rotary(*a, in_place=True), gradient=False, turn=("fused_in_place", "qk", "fp32")),
        "poslib, phases": Way(lambda *a: _own_rotary(*a, phase=True), turn=("fused", "qk", None)),
        "Liger": Way(_liger, first="tokens", turn=("fused", "qk", "fp32")),
        "flash-attn": Way(_flash_rotary, first="tokens", turn=("fused", "qk", "fp32")),
        "flashinfer": Way(_flashinfer_rotary, first="tokens", gradient=False, turn=("fused", "qk", None)),
    },
    "attention": {
        "poslib, Q turned inside": Way(lambda *a: _own_attention(*a, rotate="q"), given="keys turned", turn=("in_attention", "q", "fp32")),
        "poslib, without rotation": Way(_own_attention, given="turned", turn=()),
        "poslib, Q and K turned inside": Way(lambda *a: _own_attention(*a, rotate="qk"), turn=("in_attention", "qk", "fp32")),
        "poslib, K turned before and Q inside": Way(_own_turn_then_q, turn=("fused", "k", "fp32")),
        "SDPA flash, without rotation": Way(_sdpa, given="turned", turn=()),
        "SDPA flash after torch eager": Way(_after(_eager_first, _sdpa), turn=("rotate_half", "qk", None)),
        "SDPA flash after torch.compile": Way(_after(_compile_first, _sdpa), only=_compile_at),
        "SDPA flash after poslib": Way(_after(_own_first, _sdpa), turn=("fused", "qk", "fp32")),
        "flash-attn after its rotation": Way(_after(_flash_first, _flash), first="tokens", turn=("fused", "qk", "fp32")),
        "flashinfer, Q and K turned inside": Way(_flashinfer, first="tokens", gradient=False, only=lambda case: case.batch <= 2, turn=("in_attention", "qk", None)),
        "flex_attention after torch.compile": Way(_after(_compile_first, _flex), only=lambda case: case.keys < 1024 or case.keys in (4096, 16384) and case.queries > 1),
    },
}
# In decode the cache may hold keys that were turned when they were written, as most libraries do, or raw ones.
WAYS["decode"] = {
    name: dataclasses.replace(way, given="keys turned", turn=way.turn and (way.turn[0], "q", way.turn[2])) if "after" in name else way
    for name, way in WAYS["attention"].items() if name not in ("poslib, K turned before and Q inside", "flex_attention after torch.compile")
} | {"poslib, all raw keys turned before": WAYS["attention"]["poslib, K turned before and Q inside"]}


# -- running a way

def _leaves(inputs, way, gradient):
    """Copies of q, k and v as the way wants them: it may change them in place."""
    q, k = inputs.q, inputs.k
    if way.given == "turned":
        q = torch.stack([turned(x, inputs.q_ids).bfloat16() for x in q])
    if way.given != "raw":
        k = torch.stack([turned(x, inputs.k_ids).bfloat16() for x in k])        # one by one: float64 of all would be large
    leaves = [x.clone() for x in (q, k, inputs.v)]
    if way.first == "tokens":
        leaves = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in leaves]
    return [x.requires_grad_(gradient) for x in leaves]


def _prepared(case, way, device, compiled):
    """(inputs, leaves, call) of a way."""
    inputs = Inputs(case, device, way.given)
    call = way.build(inputs, compiled)
    return inputs, _leaves(inputs, way, case.backward), call


def _both_passes(inputs, leaves, call):
    wrt = leaves[:2] if inputs.case.kind == "rotary" else leaves
    return torch.autograd.grad(call(*leaves), wrt, inputs.gradients)


def error_of(case, way, device, compiled, dry):
    """Largest relative error of the results of a way in units of what is allowed, all elements compared; of its gradients too."""
    worst = 0.0
    for small in _checks(case, dry):
        inputs, leaves, call = _prepared(small, way, device, compiled)
        before = [x.detach().double().requires_grad_(case.backward) for x in leaves]
        gradients = [g.double() for g in inputs.gradients]              # some ways change what they are given
        want = truth(inputs, *before)
        found = list(zip(call(*leaves), want, strict=True))
        worst = max([worst, *(difference(g.detach(), w.detach()) / BOUND["forward"] for g, w in found)])
        if case.backward:
            wrt = before[:2] if case.kind == "rotary" else before
            pairs = zip(_both_passes(inputs, leaves, call), torch.autograd.grad(want, wrt, gradients), strict=True)
            worst = max([worst, *(difference(g, w) / BOUND["gradient"] for g, w in pairs)])
    return worst


def error_here(inputs, leaves, results):
    """The same at the size that is timed, for a few rows of the first and the last sequence."""
    batch, rows = _few_rows(inputs)
    want = truth(inputs, *(x.detach()[batch] for x in leaves), rows=rows)
    return max(difference(g.detach()[batch][:, :, rows], w) / BOUND["forward"] for g, w in zip(results, want, strict=True))


def _reason(error):
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}"


def _about(case, name, way):
    return {"kind": case.kind, "way": name, "given": way.given, "pass": "forward+backward" if case.backward else "forward",
            **{f: getattr(case, f) for f in ("batch", "heads", "kv_heads", "queries", "keys", "head_dim")}}


def measure(case, way, device, compiled, timer, error):
    """The verdict on a way, and times in milliseconds where it is "right"; `error` is that of `error_of`."""
    row = {"verdict": "wrong", "error": error}
    if not error <= 1:
        return row
    inputs, leaves, call = _prepared(case, way, device, compiled)
    before = [x.detach().clone() for x in leaves]
    row["error"] = max(error, error_here(inputs, before, call(*leaves)))
    del before
    if not row["error"] <= 1:
        return row
    low, median, high = timer((lambda: _both_passes(inputs, leaves, call)) if case.backward else (lambda: call(*leaves)))
    return row | {"verdict": "right", "low": low, "median": median, "high": high}


def attempt(function, *given):
    """What `function` gives, or why there is nothing: a peer's refusal of a case is a result, not the end of the run."""
    try:
        return function(*given)
    except ImportError as error:
        return {"verdict": "not installed", "reason": _reason(error)}
    except Exception as error:
        return {"verdict": "failed", "reason": _reason(error)}


# -- the card

def ceilings(timer, device, dry):
    """Bytes per second of a copy, read and write together, and operations per second of a bfloat16 product."""
    numbers, side = (2 ** 12, 64) if dry else (2 ** 31, 8192)
    a = torch.ones(numbers, dtype=torch.bfloat16, device=device)
    b = torch.empty_like(a)
    copied = 4 * numbers / (timer(lambda: b.copy_(a))[1] * 1e-3)
    del a, b
    a, b = (torch.randn(side, side, dtype=torch.bfloat16, device=device) for _ in "ab")
    return {"bytes per second": copied, "operations per second": 2 * side ** 3 / (timer(lambda: a @ b)[1] * 1e-3)}


def measured(ceiling, device):
    """The card as `poslib.cost` takes it, with the rates that it reached."""
    card = torch.cuda.get_device_properties(0) if device == "cuda" else None
    return cost.Device("here", ceiling["bytes per second"], {"bf16": ceiling["operations per second"]}, card.L2_cache_size if card else 0,
                       card.total_memory if card else 0, "measured before the cases")


def predicted(case, way):
    """What the way moves and multiplies by the formulas of `poslib.cost`, or None."""
    if way.turn is None:
        return None
    if case.kind == "rotary":
        return _moved(case.sizes, *way.turn, case.backward)
    if not way.turn:
        return case.least
    a = case.sizes
    if case.kind == "decode" and way.turn[:2] == ("fused", "k"):        # all keys of the cache, not the new one alone
        a = dataclasses.replace(a, queries=case.keys)
    return case.least + _moved(a, *way.turn, case.backward)


def milliseconds(work, card):
    """Roofline without the time of launches."""
    return 1e3 * cost.roofline(work, card, "bf16").seconds


def _ask_nvidia(*what):
    try:
        said = subprocess.run(["nvidia-smi", f"--query-gpu={','.join(what)}", "--format=csv,noheader"], capture_output=True, text=True, timeout=20)
        return dict(zip(what, (x.strip() for x in said.stdout.splitlines()[0].split(",")))) if said.stdout else {}
    except (OSError, subprocess.SubprocessError):
        return {}


def made(command, device):
    """Card, driver, clocks, versions, seeds and command."""
    versions = {}
    for package in ("torch", "triton", *PEERS):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    card = torch.cuda.get_device_name() if device == "cuda" else "no GPU: a dry run, its times mean nothing"
    return {"command": command, "seeds": [SEED], "card": card, "python": platform.python_version(), "cuda": torch.version.cuda, **versions,
            **_ask_nvidia("driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem", "power.limit", "temperature.gpu")}


# -- the run

def _timer(call):
    """Lower quartile, median and upper quartile in milliseconds, level 2 cache overwritten before each call."""
    from triton.testing import do_bench
    return do_bench(call, warmup=15, rep=80, quantiles=[0.25, 0.5, 0.75])


def _compiler():
    """torch.compile for one shape at a time; it must not fall back to eager code, which would be measured in its place."""
    torch._dynamo.config.recompile_limit = 64
    return functools.partial(torch.compile, fullgraph=True, dynamic=False)


def _standing_still(call):
    call()
    return 1.0, 1.0, 1.0


def run(dry, limit, progress=print, clock=time.monotonic):
    """Ceilings and rows; every planned row is there, with a verdict.

    Errors of all ways come first, then times.  Nothing is begun later than `LONGEST` before the limit.
    """
    start, device = clock(), "cpu" if dry else "cuda"
    timer, compiled = (_standing_still, lambda function: function) if dry else (_timer, _compiler())
    planned = [(case, name, way) for case in cases(dry) for name, way in WAYS[case.kind].items()
               if (way.gradient or not case.backward) and way.only(case)]

    def late():
        return clock() - start > limit - LONGEST
    ceiling, errors, rows = ceilings(timer, device, dry), {}, []
    card = measured(ceiling, device)
    for case, name, way in planned:
        if (key := (case.kind, name, case.backward)) not in errors and not late():
            errors[key] = attempt(error_of, case, way, device, compiled, dry)
    progress(f"{len(errors)} ways compared with float64 in {clock() - start:.0f} s")
    for case, name, way in planned:
        error = errors.get((case.kind, name, case.backward), "missing")
        if late() or error == "missing":
            found = {"verdict": "not reached"}
        elif isinstance(error, dict):
            found = error
        else:
            found = attempt(measure, case, way, device, compiled, timer, error)
        if found["verdict"] == "right":
            found["of roofline"] = milliseconds(case.least, card) / found["median"]
            work = predicted(case, way)
            found["predicted"] = work and milliseconds(work, card)
        rows.append(_about(case, name, way) | found)
        progress(line(rows[-1]))
    return {"ceilings": ceiling, "rows": rows, "seconds": round(clock() - start, 1)}


def line(row):
    """A row as text."""
    text = f"{row['kind']:9} {row['pass']:16} {row['batch']:2} x {row['queries']:5} of {row['keys']:5}  {row['way']:37} {row['verdict']:13}"
    if "median" in row:
        text += f" {row['median']:9.4f} ms ({row['low']:.4f} to {row['high']:.4f}) {row['of roofline']:7.1%} of the roofline"
    return text + (f" {row['error']:.2f} of the error allowed" if row["verdict"] == "wrong" else f" {row.get('reason', '')}").rstrip()


def results():
    """The stored numbers of a GPU, or None: then nothing has been measured yet."""
    return stored.load("kernels_gpu") if (stored.HOME / "kernels_gpu.json").exists() else None


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m poslib.kernels.benchmark", description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the numbers too")
    parser.add_argument("--limit-s", type=float, default=240, help="be done in so many seconds (default 240)")
    parser.add_argument("--dry", action="store_true", help="tiny sizes on the CPU, interpreted, nothing timed")
    given = parser.parse_args(arguments)
    if not given.dry and MODE != "compiled":
        parser.exit(2, "this needs a GPU that torch can use; --dry runs the same steps without one\n")
    if given.dry and MODE != "interpreted":
        parser.exit(2, f"--dry runs on the CPU: set {_runtime.VARIABLE}=1 first\n")
    command = shlex.join(["python", "-m", "poslib.kernels.benchmark", *(sys.argv[1:] if arguments is None else arguments)])
    found = run(given.dry, given.limit_s, progress=lambda text: print(text, flush=True))
    found = {"made": made(command, "cpu" if given.dry else "cuda"),
             "what": ("Times in milliseconds (quartiles); error in units of what is allowed; of roofline: the least possible time by the card's ceilings "
                      "as a share of the median; predicted: the time of what the way moves, by poslib.cost and those ceilings, launches free."), **found}
    wrong = [row for row in found["rows"] if row["verdict"] == "wrong"]
    print(f"{len(found['rows'])} rows in {found['seconds']} s, {len(wrong)} wrong")
    if given.json:
        Path(given.json).write_text(stored._written(found), "utf8")
        print(f"wrote {Path(given.json).name}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
