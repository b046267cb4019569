"""Chapter 12: its kernels and those of its solutions compile for a GPU, which the interpreter does not promise; its lines of machine code."""

import ast
import json
import os
import re
import subprocess
import sys

import jupytext
import numpy as np
import pytest

from conftest import ROOT
from poslib.lab import fused_kernel, results
from poslib.teach import check

COMPILE = '''
import json, linecache, sys
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
source, sizes, types = json.load(sys.stdin)
linecache.cache["<kernels>"] = len(source), None, source.splitlines(True), "<kernels>"
space = {"__name__": "kernels", "triton": triton, "tl": tl}
exec(compile(source, "<kernels>", "exec"), space)
for name, choices in sizes:
    kernel = space[name]
    constants = {p.name: choices[p.name] for p in kernel.params if p.is_constexpr}
    given = {n: "constexpr" if n in constants else types.get(n, "*fp32" if n not in ("L", "G") and n.isupper() or n in ("Q2", "K2") else "i32") for n in kernel.arg_names}
    if constants.get("PHASE"):
        given["OMEGA"] = "*i64"
    triton.compile(ASTSource(kernel, given, {(kernel.arg_names.index(n),): v for n, v in constants.items()}), GPUTarget("cuda", 90, 32), {"num_warps": 4})
    print(name, flush=True)
'''
SIZES = {"BLOCK": 64, "n": 32, "D": 32, "R": 16, "BL": 16, "BM": 32, "BN": 16, "B": 16, "G": 2, "SIGN": -1}
TYPES = {"START": "i32", "scale": "fp32", "OUT": "*fp32", "CAST": "*bf16", "HAND": "*bf16", "SQUARE": "*bf16"}
HELPERS = {"turn", "halves", "whole", "table_rows", "dot", "tile", "put_back", "nearest_bf16"}      # called by others
SWITCHES = {"flash": [{"TURN": t, "CAUSAL": c} for t, c in ((1, False), (2, True))],
            "angles": [{"PHASE": True}, {"PHASE": False}], "grad_q": [{"CAUSAL": True}], "grad_kv": [{"CAUSAL": True}]}


def kernels():
    """Source of every kernel: cells and solutions, a later one of the same name under a new one."""
    chapter = jupytext.read(ROOT / "book" / "12-fused-kernel.md")
    cells = [c.source for c in chapter.cells if c.cell_type == "code"][1:]
    cells += re.findall(r"^```python\n(.*?)^```", "\n".join(c.source for c in chapter.cells if c.cell_type == "markdown"), re.S | re.M)
    found = {}
    for cell in cells:
        for node in ast.parse(cell).body:
            if isinstance(node, ast.FunctionDef) and "triton.jit" in map(ast.unparse, node.decorator_list):
                node.name += "_solution" * (node.name in found)
                found[node.name] = ast.unparse(node)
    return found


def test_every_kernel_of_the_chapter_compiles(tmp_path):
    found = kernels()
    assert HELPERS <= set(found) and len(found) > 20
    requests = [(name, SIZES | switch) for name in found if name not in HELPERS for switch in SWITCHES.get(name, [{}])]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TRITON_")} | {"TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}

    def run(source, requests):
        return subprocess.run([sys.executable, "-c", COMPILE], input=json.dumps([source, requests, TYPES]), capture_output=True, text=True, env=environment)
    done = run("\n\n".join(found.values()), requests)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == [name for name, _ in requests]
    broken = found["flash"].replace("cj, sj = table_rows", "c, s = table_rows").replace("turn(k1, k2, cj, sj)", "turn(k1, k2, c, s)")
    assert broken != found["flash"] and run("\n\n".join({**found, "flash": broken}.values()), [("flash", SIZES | SWITCHES["flash"][-1])]).returncode


SASS = """
        /*0010*/                   LDG.E R4, desc[UR16][R2.64] ;
        /*0020*/                   LDG.E.128 R32, desc[UR16][R2.64] ;
        //## File "%s", line 1
        /*0030*/                   FFMA R1, R2, R3, R4 ;
        //## File "%s", line 2
        /*0040*/                   FFMA R5, R6, R7, -R8 ;
        /*0050*/                   HGMMA.64x64x16.F32.BF16 R88, R136, gdesc[UR12], RZ, !UPT ;
.L_x_1:
        /*0060*/                   HGMMA.64x128x16.F32.BF16 R8, R9, gdesc[UR8], R8 ;
        /*0070*/                   MUFU.RCP R1, R2 ;
        /*0080*/                   MUFU.EX2 R3, R4 ;
        /*0090*/              @P0 BRA `(.L_x_1) ;
"""


def test_the_excerpt_of_machine_code_takes_the_lines_that_it_names(tmp_path):
    source = tmp_path / "kernel.py"
    source.write_text("acc * shrink\na * cos - b * sin\n")
    text = SASS % (source, source)
    found = [line for _, line in fused_kernel.excerpt(text)]
    assert found == ["LDG.E.128 R32, desc[UR16][R2.64]", "FFMA R5, R6, R7, -R8", "HGMMA.64x128x16.F32.BF16 R8, R9, gdesc[UR8], R8", "MUFU.EX2 R3, R4"]
    for gone in ("LDG.E.128", "-R8", "MUFU.EX2"):
        with pytest.raises(ValueError, match="no instruction"):
            fused_kernel.excerpt("\n".join(line for line in text.splitlines() if gone not in line))
    stored = results.load("fused_kernel")["lines"]
    assert [line.split()[0].split(".")[0] for _, line in stored] == ["LDG", "FFMA", "HGMMA", "MUFU"] and len(fused_kernel.listing()) == 4


def wrong_answers():
    """Likely wrong answers to the exercises, and what the checker must say."""
    import torch

    def turned(x, cos, sin, apart, sign=1):
        n, y = cos.shape[1], x.clone()
        a, b = x[:, :n], x[:, apart:apart + n]
        y[:, :n], y[:, apart:apart + n] = a * cos - sign * b * sin, b * cos + sign * a * sin
        return y

    def without_tail(x, cos, sin):
        y = turned(x, cos, sin, cos.shape[1])
        y[:, 2 * cos.shape[1]:] = np.nan
        return y

    def zero_tail(x, cos, sin):
        return without_tail(x, cos, sin).nan_to_num()

    def half_done(x, cos, sin):
        n = cos.shape[1]
        x[:, n:] = x[:, n:] * cos + x[:, :n] * sin
        x[:, :n] = x[:, :n] * cos - x[:, n:] * sin
        return x

    def neighbours(x, cos, sin):
        n, y = cos.shape[1], x.clone()
        a, b = x[:, :2 * n:2], x[:, 1:2 * n:2]
        y[:, :2 * n:2], y[:, 1:2 * n:2] = a * cos - b * sin, b * cos + a * sin
        return y

    def wide_rows(x, cos, sin):
        at = torch.arange(len(x))[:, None] * (x.shape[1] // 2) + torch.arange(cos.shape[1])
        cos, sin = (torch.cat([t.flatten(), torch.full((x.numel(),), np.nan)])[at] for t in (cos.cpu(), sin.cpu()))
        return turned(x, cos.to(x.device), sin.to(x.device), cos.shape[1])

    def far_partner(x, cos, sin):
        n, half, y = cos.shape[1], x.shape[1] // 2, x * np.nan
        y[:, 2 * n:] = x[:, 2 * n:]
        y[:, :n], y[:, half:half + n] = turned(x, cos, sin, half)[:, :n], turned(x, cos, sin, half)[:, half:half + n]
        return y

    def past_the_end(x, cos, sin):
        memory = torch.full((len(x) + 40, x.shape[1]), np.nan, device=x.device)
        memory[:-len(x) // 32 * -32] = 0
        memory[:len(x)] = turned(x, cos, sin, cos.shape[1])
        return memory[:len(x)]

    def twice(x, cos, sin):
        return x.copy_(turned(turned(x, cos, sin, cos.shape[1]), cos, sin, cos.shape[1]))

    def attends(absent, late=False):
        """Softmax over blocks of 16 with a score of `absent` for what is not there; `late`: it counts in the maximum alone."""
        def answer(q, k, v):
            s = q @ k.T / 32**0.5
            more = torch.full((len(q), -len(k) % 16), absent, device=q.device)
            top = torch.cat([s, more], 1).amax(1, keepdim=True)
            p, rest = torch.exp(s - top), torch.exp(more - top) * (not late)
            return p @ v / (p.sum(1, keepdim=True) + rest.sum(1, keepdim=True))
        return answer

    def padded(q, k, v):
        more = torch.zeros(-len(k) % 16, k.shape[1], device=k.device)
        return torch.softmax(q @ torch.cat([k, more]).T / 32**0.5, -1) @ torch.cat([v, more])

    def windows(L, BM, BN, W, of_tile):
        n = np.zeros(L, int)
        for a in range(0, L, BM):
            low, b = max(a - W + 1, 0), min(a + BM, L) - 1
            n[low // BN * BN if of_tile else low:(b // BN + 1) * BN if of_tile else b + 1] += 1
        return n

    def later(L, BM, BN, W, ahead):
        n = np.zeros(L, int)
        for a in range(0, L, BM):
            n[max(a - W + 1, 0) // BN * BN:((min(a + BM, L) - 1 + ahead) // BN + 1) * BN] += 1
        return n

    return [
        ("window_turns", lambda L, BM, BN, W: -(-L // BM) - np.arange(L) // BN * BN // BM, "without a window"),
        ("window_turns", lambda L, BM, BN, W: np.minimum(W, L - np.arange(L)), "queries that see the key"),
        ("window_turns", lambda L, BM, BN, W: windows(L, BM, BN, W, False), "loaded and turned whole"),
        ("window_turns", lambda L, BM, BN, W: np.full(L, -(-L // BM)), "every tile of queries"),
        ("window_turns", lambda L, BM, BN, W: later(L, BM, BN, W, L), "keys after the query"),
        ("window_turns", lambda L, BM, BN, W: later(L, BM, BN, W, W - 1), "keys after the query"),
        ("window_turns", lambda L, BM, BN, W: 3, "a number for each"),
        ("window_turns", lambda L, BM, BN, W: windows(L, BM, BN, W + 1, True), "you say"),
        ("turn_partly", without_tail, "must be copied"), ("turn_partly", zero_tail, "not copies"),
        ("turn_partly", lambda x, c, s: turned(x, c, s, x.shape[1] // 2), "k + 16"), ("turn_partly", lambda x, c, s: turned(x, c, s, c.shape[1], -1), "wrong way"),
        ("turn_partly", lambda x, c, s: x.copy_(turned(x, c, s, c.shape[1])), "input was changed"), ("turn_partly", lambda x, c, s: x * np.nan, "Nothing was stored"),
        ("turn_partly", lambda x, c, s: x.tolist(), "a tensor"), ("turn_partly", neighbours, "you pair neighbours"), ("turn_partly", wide_rows, "32 numbers apart"),
        ("turn_partly", far_partner, "k + 16"), ("turn_partly", past_the_end, "behind the end of y, in row 45"),
        ("in_place", lambda x, c, s: turned(x, c, s, c.shape[1]), "other memory"), ("in_place", half_done, "already overwritten"), ("in_place", lambda x, c, s: x, "unchanged"),
        ("in_place", twice, "turned twice"),
        ("attend", attends(-100.0), "scores near -200"), ("attend", attends(0.0, late=True), "scores near -200"),
        ("attend", padded, "absent ones"), ("attend", lambda q, k, v: v.clone(), "off by"), ("attend", lambda q, k, v: v * np.nan, "NaN"),
    ]


@pytest.mark.parametrize("name, answer, said", wrong_answers(), ids=lambda x: x if isinstance(x, str) else "")
def test_wrong_answers_of_chapter_12_are_named(name, answer, said):
    got = check(f"fused_kernel/{name}", answer)
    assert not got.accepted and said in got.message, got.message


def test_turns_in_a_window_are_what_the_solution_says():
    """1 + B_N ⌈(W - 1)/B_N⌉/B_M on average, away from the ends, where B_N divides B_M."""
    for BM, BN, W in [(64, 64, 1), (64, 64, 64), (64, 32, 17), (64, 32, 33), (128, 64, 200), (32, 16, 1024)]:
        n = np.zeros(8192)
        for a in range(0, 8192, BM):
            n[max(a - W + 1, 0) // BN * BN:a + BM] += 1
        assert n[2048:-2048].mean() == 1 + BN * -(-(W - 1) // BN) / BM


def test_the_loops_with_other_tiles_differ_in_the_tile_alone():
    loops = fused_kernel.loops()
    assert set(loops) == {(rotate, keys) for rotate in ("none", "q", "qk") for keys in (32, 64)}
    assert set(fused_kernel.TILES) < set(loops)
    for (rotate, keys), report in loops.items():
        assert report.settings == {"BLOCK_M": 128, "BLOCK_N": keys, "num_warps": 8, "num_stages": 2} and report.switches.get("rotate", "none") == rotate
