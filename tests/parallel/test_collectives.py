"""Against hand-written programs of the forms that compilers print, and compiled ones whose traffic is known."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from posenc_jax.config import MeshConfig
from posenc_jax.parallel.collectives import Collective, collectives
from posenc_jax.parallel.mesh import make_mesh

MESH = make_mesh(MeshConfig(data=2, fsdp=2, tensor=2))


def program(*lines, more=""):
    body = "\n".join(f"  {line}" for line in lines)
    return f"HloModule jit_step\n\n{more}\nENTRY %main.1 (p: f32[4]) -> f32[4] {{\n{body}\n}}\n"


def all_reduce(groups, shape="f32[10,4]{1,0}"):
    return f"%all-reduce.1 = {shape} all-reduce(%p), channel_id=1, {groups}, to_apply=%add"


@pytest.mark.parametrize(
    "groups, axes, size",
    [
        ("replica_groups={{0,1},{2,3},{4,5},{6,7}}", ("tensor",), 2),
        ("replica_groups={{0,2},{1,3},{4,6},{5,7}}", ("fsdp",), 2),
        ("replica_groups={{0,4},{1,5},{2,6},{3,7}}", ("data",), 2),
        ("replica_groups={{0,1,2,3},{4,5,6,7}}", ("fsdp", "tensor"), 4),
        ("replica_groups={{0,5,2,7},{4,1,6,3}}", ("data", "fsdp", "tensor"), 4),
        ("replica_groups={}", ("data", "fsdp", "tensor"), 8),
        ("replica_groups=[1,8]<=[8]", ("data", "fsdp", "tensor"), 8),
        ("replica_groups=[4,2]<=[8]", ("tensor",), 2),
        ("replica_groups=[4,2]<=[2,4]T(1,0)", ("data",), 2),
        ("replica_groups=[4,2]<=[2,2,2]T(0,2,1)", ("fsdp",), 2),
        ("replica_groups=[2,4]<=[4,2]T(1,0)", ("data", "fsdp"), 4),
        ("replica_groups=mesh['a'=2,'b'=4] {'a'}", ("data",), 2),
        ("replica_groups=mesh['a'=2,'b'=4] {'b'}", ("fsdp", "tensor"), 4),
        ("replica_groups=mesh['a'=2,'b'=4] {'b':(1)2}", ("fsdp",), 2),
        ("replica_groups=mesh['a'=2,'b'=4] {'b':(2)2}", ("tensor",), 2),
        ("replica_groups=mesh['a'=2,'b'=1,'c'=4], device_ids=([4,2]T(1,0)) {'a'}", ("tensor",), 2),
        ("replica_groups=mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'b'}", ("data",), 2),
        ("replica_groups=mesh['a'=4,'b'=2], device_ids=(0,4,1,5,2,6,3,7) {'b'}", ("data",), 2),
    ],
)
def test_the_axes_of_every_way_to_write_groups(groups, axes, size):
    assert collectives(program(all_reduce(groups)), MESH) == [Collective("all-reduce", axes, size, 1, 160)]


@pytest.mark.parametrize("groups", ["", "replica_groups={{0,1},{8,9}}", "replica_groups=@something"])
def test_groups_that_are_not_understood_are_told(groups):
    (found,) = collectives(program(all_reduce(groups)), MESH)
    assert found.axes == ("?",) and found.bytes == 160


@pytest.mark.parametrize("slices, count", [("1,2", 2), ("1:4", 4), ("1:3,7", 4)])
def test_what_is_sent_between_slices_stands_apart(slices, count):
    send = (
        "%send.1 = (f32[10,4]{1,0:T(2,128)}, u32[], token[]) send(%p, %after-all), channel_id=3, "
        'is_host_transfer=true, frontend_attributes={_xla_host_transfer_handler_name="xla_megascale_runtime",'
        f'_xla_megascale_target="{{{slices}}}x{{0:7}}",_xla_megascale_transfer_type="ALL_REDUCE"}}'
    )
    done = "%send-done = token[] send-done(%send.1), channel_id=3, is_host_transfer=true"
    assert collectives(program(send, done), MESH) == [Collective("all-reduce", ("slices",), count, 1, 160)]


def test_groups_of_one_device_send_nothing():
    assert collectives(program(all_reduce("replica_groups={{0},{1},{2},{3},{4},{5},{6},{7}}")), MESH) == []


FSDP = "replica_groups={{0,2},{1,3},{4,6},{5,7}}"


@pytest.mark.parametrize(
    "line, kind, size",
    [
        (f"%a = bf16[8,4]{{1,0:T(8,128)(2,1)S(1)}} all-reduce(%p), {FSDP}", "all-reduce", 64),
        (f"%a = (f32[3]{{0}}, pred[5]{{0}}, /*index=2*/s32[]) all-reduce(%p, %q, %r), {FSDP}", "all-reduce", 21),
        (f"%a = (f32[3]{{0}}, f32[2]{{0}}) all-reduce-start(%p, %q), {FSDP}", "all-reduce", 20),
        (f"%a = f32[8,4]{{1,0}} all-gather(%p), {FSDP}, dimensions={{0}}", "all-gather", 128),
        (f"ROOT %a = (f32[4,4]{{1,0}}, f32[8,4]{{1,0}}) all-gather-start(%p), {FSDP}", "all-gather", 128),
        (f"%a = ((f32[2], f32[4]), (f32[4], f32[8])) all-gather-start(%p, %q), {FSDP}", "all-gather", 48),
        (f"%a = f32[4,4]{{1,0}} reduce-scatter(%p), {FSDP}, dimensions={{0}}", "reduce-scatter", 128),
        (f"%a = s4[8]{{0}} all-to-all(%p), {FSDP}", "all-to-all", 4),
        ("%a = f32[6]{0} collective-permute(%p), source_target_pairs={{0,2},{2,0}}", "collective-permute", 24),
        (
            "%a = (f32[6]{0}, f32[6]{0}, u32[], u32[]) collective-permute-start(%p), source_target_pairs={{0,2},{2,0}}",
            "collective-permute",
            24,
        ),
    ],
)
def test_kind_and_bytes_of_every_operation(line, kind, size):
    done = f"%d = f32[8,4]{{1,0}} {kind}-done(%a)"
    assert collectives(program(line, done), MESH) == [Collective(kind, ("fsdp",), 2, 1, size)]


def loop(backend_config="", limit=12):
    return f"""
%body.1 (p: (s32[], f32[4])) -> (s32[], f32[4]) {{
  {all_reduce(FSDP)}
}}

%condition.1 (p: (s32[], f32[4])) -> pred[] {{
  %limit.1 = s32[]{{:T(128)}} constant({limit})
  %i.1 = s32[]{{:T(128)}} get-tuple-element(%p), index=0
  ROOT %lt.1 = pred[]{{:T(512)}} compare(%i.1, %limit.1), direction=LT, metadata={{}}
}}

%outer.1 (p: (s32[], f32[4])) -> (s32[], f32[4]) {{
  %while.1 = (s32[], f32[4]) while(%p), condition=%condition.1, body=%body.1{backend_config}
}}
"""


WHILE = (
    '%while.2 = (s32[], f32[4]) while(%p), condition=%c, body=%outer.1, backend_config={"known_trip_count":{"n":"3"}}'
)


def test_loops_multiply_and_nest():
    said = ', backend_config={"known_trip_count":{"n":"5"}}'
    assert collectives(program(WHILE, more=loop(said)), MESH)[0][3:] == (15, 15 * 160)


def test_how_often_a_loop_runs_is_read_from_its_condition_where_the_line_does_not_say():
    assert collectives(program(WHILE, more=loop()), MESH)[0][3:] == (36, 36 * 160)


def test_a_loop_without_a_known_end_counts_once():
    unknown = loop().replace("%limit.1 = s32[]{:T(128)} constant(12)", "%limit.1 = s32[] parameter(1)")
    assert collectives(program(WHILE, more=unknown), MESH)[0][3:] == (3, 3 * 160)


def test_what_is_started_and_awaited_apart_counts_once():
    inner = f"%wrapped.1 (p: f32[4]) -> f32[4] {{\n  {all_reduce(FSDP)}\n}}\n"
    lines = [
        "%s = ((f32[4]), f32[4], u32[]) async-start(%p), calls=%wrapped.1",
        "%u = ((f32[4]), f32[4], u32[]) async-update(%s), calls=%wrapped.1",
        "%d = f32[4] async-done(%u), calls=%wrapped.1",
    ]
    assert collectives(program(*lines, more=inner), MESH)[0].count == 1


def test_a_fused_all_reduce_of_which_each_device_keeps_a_part_is_a_reduce_scatter():
    inner = f"%all-reduce-scatter.3 (p: f32[4]) -> f32[4] {{\n  {all_reduce(FSDP)}\n}}\n"
    call = "%f = f32[5,4]{1,0} fusion(%p), kind=kCustom, calls=%all-reduce-scatter.3"
    assert collectives(program(call, more=inner), MESH) == [Collective("reduce-scatter", ("fsdp",), 2, 1, 160)]


def test_what_is_done_in_pieces_inside_other_operations_counts_once():
    piece = 'channel_id=7, replica_groups={{0,2},{1,3},{4,6},{5,7}}, frontend_attributes={chain_id="0"}'
    inner = "\n".join(
        f"%async_collective_fusion.{i} (p: f32[4]) -> f32[8] {{\n  %a.{i} = f32[8] all-gather(%p), {piece}\n}}\n"
        for i in range(3)
    )
    calls = [f"%f.{i} = f32[8] fusion(%p), kind=kCustom, calls=%async_collective_fusion.{i}" for i in range(3)]
    assert collectives(program(*calls, more=inner), MESH) == [Collective("all-gather", ("fsdp",), 2, 1, 32)]


def test_operations_of_one_kind_over_the_same_axes_are_summed():
    other = "replica_groups={{0,1},{2,3},{4,5},{6,7}}"
    found = collectives(program(all_reduce(FSDP), all_reduce(FSDP, "f32[2]"), all_reduce(other, "f32[1]")), MESH)
    assert found == [
        Collective("all-reduce", ("fsdp",), 2, 2, 168),
        Collective("all-reduce", ("tensor",), 2, 1, 4),
    ]


def compiled(function, *args):
    return collectives(jax.jit(function).lower(*args).compile().as_text(), MESH)


def array(*spec, shape=(16, 8)):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(MESH, PartitionSpec(*spec)))


def test_a_compiled_sum_over_rows_reduces_the_result_over_their_axes():
    assert compiled(lambda x: x.sum(0), array(("data", "fsdp"))) == [
        Collective("all-reduce", ("data", "fsdp"), 4, 1, 8 * 4)
    ]


def test_a_compiled_gather_in_a_loop_counts_each_turn():
    def whole(x):
        return jax.lax.with_sharding_constraint(x, NamedSharding(MESH, PartitionSpec()))

    def function(x):
        return jax.lax.scan(lambda total, row: (total + whole(row), None), jnp.zeros(8), x)[0]

    found = compiled(function, array(None, "tensor"))
    assert [(c.kind, c.axes) for c in found] == [("all-gather", ("tensor",))]
    assert found[0].bytes in (16 * 8 * 4, 8 * 4)  # each turn, or once after the loop where the compiler sees that


def test_a_compiled_permutation_and_exchange():
    def local(x):
        turned = jax.lax.ppermute(x, "data", [(0, 1), (1, 0)])
        return jax.lax.all_to_all(turned, "fsdp", 1, 0, tiled=True)

    spec = PartitionSpec(("data", "fsdp"))
    found = compiled(
        jax.shard_map(local, mesh=MESH, in_specs=spec, out_specs=PartitionSpec("data", "fsdp")), array(*spec)
    )
    size = 16 * 8 * 4 // 4
    assert found == [
        Collective("all-to-all", ("fsdp",), 2, 1, size),
        Collective("collective-permute", ("data",), 2, 1, size),
    ]
