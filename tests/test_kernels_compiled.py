"""What the GPU's compiler makes of the kernels: readers of machine code on pieces of real listings, and the kernels themselves."""

import dataclasses
import json
import os
import subprocess
import sys

import pytest

from poslib.kernels import compiled as C
from poslib.lab import results

# ---- the readers: pieces of what nvdisasm prints for a kernel on sm_90 and on sm_80, lines left out --------------------

SM90 = """
\t.headerflags\t@"EF_CUDA_TEXMODE_UNIFIED EF_CUDA_64BIT_ADDRESS EF_CUDA_SM90 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM90)"
        .global         kernel
.text.kernel:
\t//## File "/a place/kernel.py", line 132
        /*0000*/                   LDC R1, c[0x0][0x28] ;
\t//## File "/a place/kernel.py", line 35
        /*0440*/              @!P0 LDG.E.128 R100, desc[UR14][R10.64] ;
        /*0460*/              @!P0 LDG.E.128 R96, desc[UR14][R10.64+0x80] ;
        /*29e0*/                   LDGSTS.E.BYPASS.128 [R171+0x8000], desc[UR14][R24.64], P5 ;
        /*2a10*/                   LDGDEPBAR ;
        /*2d40*/              @!P0 BRA `(.L_x_0) ;
.L_x_1:
\t//## File "/a place/kernel.py", line 32
        /*30c0*/                   DEPBAR.LE SB0, 0x0 ;
        /*30d0*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*3100*/                   UISETP.GT.AND UP0, UPT, UR9, 0x1, UPT ;
        /*32b0*/                   HGMMA.64x64x16.F32.BF16 R88, R136, gdesc[UR16], RZ, !UPT ;
        /*32f0*/                   HGMMA.64x64x16.F32.BF16 R88, R140, gdesc[UR16], R88 ;
        /*3f10*/                   MUFU.EX2 R138, R138 ;
        /*4580*/                   LDGSTS.E.BYPASS.128 [R101+0x8000], desc[UR14][R90.64], !P0 ;
        /*46b0*/                   FFMA R155, R138, R155, R101 ;
        /*46c0*/              @!P0 BRA `(.L_x_1) ;
.L_x_0:
        /*4770*/              @!PT LDS RZ, [RZ] ;
        /*4890*/               @P1 BRA `(.L_x_2) ;
.L_x_3:
        /*4900*/                   HGMMA.64x64x16.F32.BF16 R88, R136, gdesc[UR16], RZ, !UPT ;
        /*4910*/                   FSEL R17, R88, -INF , !P3 ;
        /*4920*/                   FSEL R18, R89, -INF , !P4 ;
        /*4930*/                   FSEL R19, R90, -INF , !P5 ;
        /*4940*/                   FSEL R20, R91, -INF , !P6 ;
        /*4950*/                   MUFU.EX2 R138, R138 ;
        /*4960*/                   LDGSTS.E.BYPASS.LTC128B.64 [R105+0x8000], desc[UR14][R88.64], P0 ;
        /*4970*/                   LDGSTS.E.BYPASS.LTC128B [R105+0x9000], desc[UR14][R88.64], P0 ;
        /*4980*/                   FFMA.FTZ R155, R138, R155, R101 ;
        /*7010*/              @!P0 BRA `(.L_x_3) ;
.L_x_2:
        /*8ac0*/                   F2FP.BF16.F32.PACK_AB R28, R29, R28 ;
        /*8e70*/              @!P6 STG.E.128 desc[UR14][R18.64], R48 ;
\t//## File "/a place/kernel.py", line 196
        /*8f30*/                   STG.E desc[UR14][R4.64], R7 ;
        /*8f40*/                   EXIT ;
.L_x_4:
        /*8f50*/                   BRA `(.L_x_4);
        /*8f60*/                   NOP;
        /*8f70*/                   NOP;
.L_x_5:
"""
SM80 = """
        /*0800*/              @!P0 LDG.E.128 R36, [R46.64] ;
        /*0850*/               @P2 LDG.E.U16 R12, [R2.64+0x4] ;
        /*0860*/               @P2 LDG.E.64 R14, [R2.64+0x8] ;
.L_x_1:
        /*2fa0*/                   HMMA.16816.F32.BF16 R32, R32.reuse, R28, RZ ;
        /*2fb0*/                   LDSM.16.M88.4 R28, [R172+0x800] ;
        /*4a60*/                   LDGSTS.E.BYPASS.128 [R175+0xf000], [R26.64+0x80], !P0 ;
        /*4a70*/                   @!UP0 UIADD3 UR4, UR4, -UR8, URZ ;
        /*4c50*/               @P0 CALL.REL.NOINC `(.L_x_0) ;
        /*4c60*/                   BRA `(.L_x_1) ;
.L_x_0:
        /*4c70*/                   STL.64 [R1+0x10], R4 ;
        /*4c80*/                   LDL.LU.64 R4, [R1+0x10] ;
        /*9c80*/              @!P5 STG.E.U16 [R16.64], R20 ;
        /*9c90*/                   EXIT ;
"""


def test_every_instruction_is_read_with_its_line():
    code = C.instructions(SM90)
    assert len(code) == SM90.count("/*") == 34 and len(C.instructions(SM80)) == SM80.count("/*") == 13
    assert [i.source for i in code[:2]] == [("/a place/kernel.py", 132), ("/a place/kernel.py", 35)]
    assert code[1] == C.Instruction("LDG", ("E", "128"), "R100, desc[UR14][R10.64]", True, "", ("/a place/kernel.py", 35))
    assert code[6].label == ".L_x_1" and not code[7].label and not code[0].guarded
    for text in ("", ".text.kernel:\n.L_x_1:\n", "MOV R1, RZ ;"):
        with pytest.raises(ValueError, match="no instruction"):
            C.instructions(text)
    with pytest.raises(ValueError, match=r"not understood: '/\*4c60\*/ +17 ;'"):
        C.instructions(SM80.replace("BRA `", "17 ;\n        /*4c61*/ BRA `"))


def test_widths_are_those_of_the_access_not_of_the_cache():
    assert C.accesses(C.instructions(SM90)) == ({128: 4, 64: 1, 32: 1}, {128: 1, 32: 1})
    assert C.accesses(C.instructions(SM80)) == ({128: 2, 64: 1, 16: 1}, {16: 1})            # the stack is no global memory


def test_the_main_loop_is_the_shortest_that_multiplies_matrices():
    code = C.instructions(SM90)
    assert C.loop_of(SM90) == C.loop_of(code) == code[6:15]
    assert C.count(C.loop_of(SM90)) == {"tensor": 2, "multiply-add": 1, "special function": 1, "copy to shared": 1, "wait": 2, "other": 2, "all": 9}
    assert [i.opcode for i in C.loop_of(SM80)] == ["HMMA", "LDSM", "LDGSTS", "UIADD3", "CALL", "BRA"]      # left by a call, closed by a plain branch
    without = SM90.replace("HGMMA.64x64x16.F32.BF16", "IMAD")
    assert C.count(C.loop_of(without)) == {"multiply-add": 1, "special function": 1, "copy to shared": 1, "wait": 2, "other": 4, "all": 9}
    assert C.loop_of(without.replace("FFMA", "FADD")) == []                                  # the branch to itself at the end is none


def test_of_nested_loops_the_inner_one_counts():
    nested = SM80.replace("        /*0850*/", ".L_x_9:\n        /*0850*/").replace("        /*4c70*/", "        /*4c68*/    @P3 BRA `(.L_x_9) ;\n        /*4c70*/")
    assert C.loop_of(nested)[0].opcode == "HMMA" and len(C.loop_of(nested)) == 6
    waiting = SM80.replace("        /*4a60*/", ".L_x_8:\n        /*4a58*/  SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R2 ;\n        /*4a59*/   @!P0 BRA `(.L_x_8) ;\n        /*4a60*/")
    assert len(C.loop_of(waiting)) == 8                                                     # a loop that only waits is part of it


def test_kinds_are_counted():
    assert C.count(C.instructions(SM80)) == {"tensor": 1, "shared load": 1, "global load": 3, "copy to shared": 1, "global store": 1, "local": 2, "other": 4, "all": 13}
    assert C.count(C.instructions(SM90))["all"] == 32                                       # two are padding


LOG = """ptxas info    : Compiling entry function 'kernel' for 'sm_90a'
ptxas info    : Function properties for kernel
    {} bytes stack frame, {} bytes spill stores, {} bytes spill loads
ptxas info    : Used 192 registers, used 1 barriers, 1024 bytes smem
"""
USAGE = """
Resource usage:
 Common:
  GLOBAL:11 CONSTANT[4]:8
 Function kernel:
  REG:{} STACK:{} SHARED:1024 LOCAL:0 CONSTANT[0]:688 TEXTURE:0 SURFACE:0 SAMPLER:0
"""
REQUEST = ["attention", 128, "bfloat16", "sm_90", {"rotate": "q"}]


def a_report(listing=SM90, usage=USAGE.format(192, 0), log=LOG.format(0, 0, 0)):
    return C._report(REQUEST, "kernel", {"BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 8, "num_stages": 2}, listing, usage, log, 98304)


def test_a_report_has_what_the_tools_say(tmp_path):
    kernel = tmp_path / "kernel.py"
    kernel.write_text("\n" * 195 + "    tl.store(LSE + row, lse)\n")
    report = a_report(SM90.replace("/a place", str(tmp_path)), USAGE.format(191, 568), LOG.format(568, 840, 1006))
    assert (report.registers, report.stack, report.spilled, report.shared) == (191, 568, 1846, 98304)
    assert report.opcodes == {"HGMMA": 3} and report.loop["all"] == 9 and report.code["all"] == 32
    assert report.narrow == [["load", 32, "kernel.py", "", 1], ["load", 64, "kernel.py", "", 1], ["store", 32, "kernel.py", "tl.store(LSE + row, lse)", 1]]
    assert C._read(json.loads(json.dumps(dataclasses.asdict(report)))) == report
    line = C.table([report])[1]
    assert line.split() == ("attention 128 bfloat16 sm_90 rotate=q 128x64 8 2 191 568 1846 98304 4x128 1x64 1x32 1x128 1x32 3 HGMMA 32 9 1 1").split()


@pytest.mark.parametrize("change", [{"log": ""}, {"log": LOG.format(0, 0, 0) * 2}, {"usage": ""}, {"usage": "REG:12"}])
def test_tools_that_say_nothing_are_an_error(change):
    with pytest.raises(ValueError, match="says nothing"):
        a_report(**change)
