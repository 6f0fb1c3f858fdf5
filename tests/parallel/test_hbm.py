"""Against programs counted by hand, in the words that the TPU compiler prints."""

import importlib.util
import subprocess
import sys

import pytest

from posenc_jax.parallel.hbm import hbm_bytes
from posenc_jax.parallel.topologies import compiler_environment

ROWS = "bf16[32,512,384]{2,1,0:T(8,128)(2,1)}"
BYTES = 32 * 512 * 384 * 2


def program(*lines, more=""):
    body = "\n".join(f"  {line}" for line in lines)
    return f"HloModule jit_step\n\n{more}\nENTRY %main.1 (p: f32[4]) -> f32[4] {{\n{body}\n}}\n"


def body(name, *lines):
    return "\n".join([f"%{name} (a: f32[4]) -> f32[4] {{", *(f"  {line}" for line in lines), "}", ""])


@pytest.mark.parametrize(
    "kind, size",
    [
        ("f32[16,128]{1,0:T(8,128)}", 16 * 128 * 4),
        ("f32[3,100]{1,0:T(8,128)}", 8 * 128 * 4),
        ("f32[3,100]{0,1:T(8,128)}", 104 * 128 * 4),
        ("f32[3,100]{1,0}", 1200),
        ("bf16[6,9]{1,0:T(8,128)(2,1)}", 8 * 128 * 2),
        ("bf16[32,1,512]{2,1,0:T(2,128)(2,1)}", 32 * 2 * 512 * 2),
        ("s32[32,512,1]{2,1,0:T(8,128)}", 32 * 512 * 128 * 4),
        ("bf16[300]{0:T(256)(128)(2,1)}", 512 * 2),
        ("pred[10]{0:T(1024)}", 1024),
        ("f32[]{:T(128)}", 512),
        ("f32[]", 4),
        ("f8e4m3fn[8,128]{1,0:T(8,128)(4,1)}", 1024),
        ("f32[16,128]{1,0:T(8,128)S(1)}", 0),
        ("s32[]{:S(2)}", 0),
        ("f32[8,128]{1,0:T(8,128)S(0)}", 4096),
    ],
)
def test_an_array_is_as_large_as_its_tiles(kind, size):
    assert hbm_bytes(program(f"%a = {kind} iota(), iota_dimension=0")) == size


MOVES = [
    (f"%r = {ROWS} copy(%p)", 2),
    (f"ROOT %r = {ROWS} add(%p, %q)", 3),
    (f"%r = {ROWS} multiply(%p, %p)", 3),
    (f"%r = ({ROWS}, /*index=1*/{ROWS}) custom-call(%p, %q), custom_call_target=\"tpu_custom_call\"", 4),
    (f"%r = {ROWS} bitcast(%p)", 0),
    (f"%r = ({ROWS}, {ROWS}) tuple(%p, %q)", 0),
    (f"%r = ({ROWS.replace(')}', ')S(1)}')}, {ROWS}, u32[]{{:S(2)}}) copy-start(%p)", 1),
    (f"%r = ({ROWS}, {ROWS}, u32[]{{:S(2)}}) copy-start(%p)", 2),
    (f"%r = {ROWS} copy-done(%p)", 0),
    (f"%r = {ROWS} custom-call(%p, %q), custom_call_target=\"ConcatBitcast\"", 0),
    (f"%r = ({ROWS}, {ROWS}) all-gather-start(%p), dimensions={{0}}", 2),
    (f"%r = {ROWS} all-reduce-start(%p), to_apply=%add", 2),
]  # fmt: skip


@pytest.mark.parametrize("line, arrays", MOVES)
def test_what_each_kind_of_instruction_moves(line, arrays):
    assert hbm_bytes(program(f"%p = {ROWS} parameter(0)", f"%q = {ROWS} parameter(1)", line)) == arrays * BYTES


QUARTER = ROWS.replace("32,", "8,")
SLICES = [
    (f"%r = {QUARTER} slice(%p), slice={{[0:8], [0:512], [0:384]}}", BYTES // 2),
    (f"%r = {QUARTER} dynamic-slice(%p, %i), dynamic_slice_sizes={{8,512,384}}", BYTES // 2 + 4),
    (f"%r = (({ROWS}), {QUARTER.replace(')}', ')S(1)}')}, s32[]{{:S(2)}}) slice-start(%p)", BYTES // 4),
    (f"%r = {ROWS} dynamic-update-slice(%p, %part, %i)", BYTES // 2),
    (f"%r = {QUARTER} fusion(%p, %i), kind=kLoop, calls=%picks", BYTES // 2 + 4),
    (f"%r = {QUARTER} fusion(%p, %i), kind=kLoop, calls=%outer", BYTES // 2 + 4),
    (f"%r = {ROWS} fusion(%p, %part, %i), kind=kLoop, calls=%puts", BYTES // 2 + 4),
    (f"%r = {QUARTER} fusion(%p, %i), kind=kLoop, calls=%picks_and_reads", BYTES + BYTES // 4 + 4),
]  # fmt: skip


@pytest.mark.parametrize("line, size", SLICES)
def test_a_part_of_an_array_moves_as_a_part(line, size):
    given = [f"%a = {ROWS} parameter(0)", "%b = s32[] parameter(1)"]
    cut = f"%s = {QUARTER} dynamic-slice(%a, %b), dynamic_slice_sizes={{8,512,384}}"
    more = body("picks", *given, cut, f"ROOT %m = {QUARTER} multiply(%s, %s)")
    more += body("outer", *given, f"ROOT %m = {QUARTER} fusion(%a, %b), kind=kLoop, calls=%picks")
    more += body("picks_and_reads", *given, cut, f"%n = {ROWS} negate(%a)", f"ROOT %m = {QUARTER} f(%s, %n)")
    more += body(
        "puts", f"%a = {ROWS} parameter(0)", f"%u = {QUARTER} parameter(1)", "%b = s32[] parameter(2)",
        f"ROOT %m = {ROWS} dynamic-update-slice(%a, %u, %b)",
    )  # fmt: skip
    given = [f"%p = {ROWS} parameter(0)", f"%part = {QUARTER} parameter(1)", "%i = s32[] parameter(2)"]
    assert hbm_bytes(program(*given, line, more=more)) == size


def test_a_loop_counts_as_often_as_it_runs_and_a_conditional_as_its_dearest_branch():
    more = body("step", f"%a = {ROWS} parameter(0)", f"ROOT %n = {ROWS} negate(%a)")
    more += body("idle", f"%a = {ROWS} parameter(0)", f"ROOT %c = {ROWS} bitcast(%a)")
    more += body("test", "%a = s32[] parameter(0)")
    given = f"%p = {ROWS} parameter(0)"
    known = 'backend_config={"known_trip_count":{"n":"12"}}'
    loop = f"%w = {ROWS} while(%p), condition=%test, body=%step"
    assert hbm_bytes(program(given, f"{loop}, {known}", more=more)) == 12 * 2 * BYTES
    assert hbm_bytes(program(given, loop, more=more)) == 2 * BYTES
    choice = f"%c = {ROWS} conditional(%p, %p, %p), "
    for branches in ("branch_computations={%idle, %step}", "true_computation=%step, false_computation=%idle"):
        assert hbm_bytes(program(given, choice + branches, more=more)) == 2 * BYTES


COMPILED = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from posenc_jax.parallel.hbm import hbm_bytes
from posenc_jax.parallel.topologies import parse_topology, topology_devices
whole = NamedSharding(Mesh(np.array(topology_devices(parse_topology("v5e:2x2"))[:1]), ("all",)), PartitionSpec())
large = jax.ShapeDtypeStruct((8192, 8192), jnp.bfloat16, sharding=whole)  # 134 MB: not to be kept in VMEM
bias = jax.ShapeDtypeStruct((8192,), jnp.bfloat16, sharding=whole)
for f, given in (
    (lambda x: x.T, (large,)),
    (lambda x, y: x + y, (large, large)),
    (lambda x, b: jax.nn.relu(x * 2 + b[None]), (large, bias)),
    (lambda x, y: x @ y, (large, large)),
):
    print(hbm_bytes(jax.jit(f).lower(*given).compile().as_text()))
"""


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")
def test_compiled_programs_read_and_write_what_they_must():
    done = subprocess.run(
        [sys.executable, "-c", COMPILED], env=compiler_environment(), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    array = 8192 * 8192 * 2
    assert list(map(int, done.stdout.split())) == [2 * array, 3 * array, 2 * array + 8192 * 2, 3 * array]
