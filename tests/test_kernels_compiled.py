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
    kernel.write_text("\n" * 195 + "    tl.store(LSE + row,  lse)     # why\n")
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


def test_narrow_accesses_are_explained_by_the_pointer_that_their_line_names():
    lines = ["tl.store(LSE + flat + lane, lse, mask=ok)", "x = tl.load(COS + p)", "slope = tl.load(SLOPES + head)", "y = tl.load(LSE2 + p)", ""]
    report = dataclasses.replace(a_report(), narrow=[["load", 32, "kernel.py", line, 1] for line in lines])
    assert [access[3] for access in report.unexplained] == [lines[1], lines[3], lines[4]]
    assert len(C.NARROW) == 6 and all(C.NARROW.values())


@pytest.mark.parametrize("request_, message", [
    (("rotation", 128, "bfloat16", "sm_90"), "name is 'rotation'; allowed are rotary, attention"),
    (("rotary", 128, "bf16", "sm_90"), "dtype is 'bf16'; allowed are float16"), (("rotary", 128, "bfloat16", "sm_70"), "arch is 'sm_70'; allowed are sm_80")])
def test_unknown_names_are_refused(request_, message):
    with pytest.raises(ValueError, match=message):
        C.compile_kernel(*request_)


# ---- the kernels: compiled once for all tests, in processes that do not interpret ---------------------------------------

HALVES = ("float16", "bfloat16")
ROTARY = [("rotary", 128, dtype, arch, {"layout": layout}) for arch in C.SHARED for dtype in HALVES for layout in ("half", "interleaved")]
FORWARD = [("attention", head_dim, dtype, arch, {"rotate": rotate})
           for arch in C.SHARED for head_dim in (64, 128) for dtype in HALVES for rotate in ("none", "q")]
CHAPTER = C._rows()[:8]


def key(request):
    return json.dumps(C._plain(request))


@pytest.fixture(scope="module")
def reports():
    wanted = {key(request): request for request in [*ROTARY, *FORWARD, *CHAPTER]}
    return dict(zip(wanted, C.compile_kernels(wanted.values())))


def of(reports, *requests):
    found = [reports[key(request)] for request in requests]
    assert len(found) == len(requests) > 0
    return found


def test_nothing_spills_and_everything_fits(reports):
    for r in of(reports, *ROTARY, *FORWARD):
        assert (r.spilled, r.stack, r.code.get("local", 0)) == (0, 0, 0), r.request
        assert 16 <= r.registers <= 255 and 0 <= r.shared <= C.SHARED[r.arch] and r.registers * 32 * r.settings["num_warps"] <= 65536, r.request


def test_memory_is_accessed_128_bits_at_a_time(reports):
    for r in of(reports, *ROTARY, *FORWARD):
        assert r.unexplained == [], r.request
        assert set(r.loads) == set(r.stores) == {128}, r.request          # nothing to explain: no lse, ids or phases in these
        assert r.loads[128] >= 8 and r.stores[128] >= 4, r.request
    phase = reports[key(CHAPTER[1])]
    assert phase.loads[64] == 1 and phase.narrow[0][3].count("INCREMENTS") and phase.unexplained == []


def test_products_run_on_tensor_cores(reports):
    for r in of(reports, *FORWARD):
        assert set(r.opcodes) == {"HGMMA" if r.arch == "sm_90" else "HMMA"} and min(r.opcodes.values()) >= 16, r.request
        assert r.loop["tensor"] >= 4 and r.loop["special function"] >= 8 and r.loop["all"] < r.code["all"] / 2, r.request
    assert all(r.opcodes == {} == r.loop for r in of(reports, *ROTARY))


def test_turning_queries_inside_costs_nothing_in_the_loop(reports):
    pairs = list(zip(FORWARD[::2], FORWARD[1::2]))
    for plain, turned in pairs:
        assert plain[4]["rotate"] == "none" and turned[:4] == plain[:4] and turned[4]["rotate"] == "q"
        without, inside = of(reports, plain, turned)
        assert without.settings == inside.settings and inside.loop["all"] <= without.loop["all"], (turned, inside.loop, without.loop)
        for kind in ("tensor", "multiply-add", "multiply", "special function", "copy to shared", "convert"):
            assert inside.loop.get(kind, 0) == without.loop.get(kind, 0), (turned, kind)
        assert inside.code["all"] > without.code["all"]                                        # the turn is there, before the loop
    assert len(pairs) == 8


def test_turning_keys_inside_costs_instructions_in_the_loop(reports):
    plain, queries, both = of(reports, *CHAPTER[2:5])
    def each_key(r):
        return {kind: number / r.settings["BLOCK_N"] for kind, number in r.loop.items()}
    assert each_key(both)["all"] > 1.2 * each_key(queries)["all"] and each_key(both)["convert"] > each_key(queries)["convert"]
    assert each_key(both)["shared store"] > 0 and "shared store" not in queries.loop and "shared store" not in plain.loop


def test_the_stored_table_is_what_the_compiler_makes_now(reports):
    stored = C.stored()
    assert [key(r.request) for r in stored] == [key(request) for request in C._rows()]
    made = results.load("kernels_compiled")["made"]
    assert {"command", "torch", "triton", "ptxas", "python"} <= set(made)
    for old, new in zip(stored[:8], of(reports, *CHAPTER), strict=True):
        assert old == new


def test_what_has_no_kernel_does_not_compile():
    with pytest.raises(RuntimeError, match="attention.*does not compile.*0 launches of forward_kernel"):
        C.compile_kernel("attention", 100, "bfloat16", "sm_90")


def test_the_command_prints_and_writes_the_table(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(C, "_rows", lambda everything: [("rotary", 64, "float16", "sm_80", {})])
    C.main(["--json", str(tmp_path / "found.json")])
    found = json.loads((tmp_path / "found.json").read_text("utf8"))
    said = capsys.readouterr()
    assert found["rows"][0]["kernel"] == "rotary" and C._read(found["rows"][0]).stores == {128: 10} and found["made"]["ptxas"].startswith("12.")
    assert "rotary              64 float16  sm_80" in said.out and "wrote found.json" in said.out and "compiled: rotary 64" in said.err


def test_a_process_that_interprets_refuses_to_compile_and_reading_needs_no_triton():
    code = "import sys; from poslib.kernels import compiled as C; C.stored(); C.loop_of('/*0000*/ EXIT ;'); assert not {'torch', 'triton'} & set(sys.modules)\n"
    code += "try:\n with C._compiling('sm_90', ()): pass\nexcept RuntimeError as error: print(error)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"TRITON_INTERPRET": "1"}, check=True)
    assert "interpreted in this process" in done.stdout
