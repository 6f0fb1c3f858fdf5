"""A question, and a compiler that is a formula."""

from posenc_jax.config_files import load_config
from posenc_jax.evaluation.preflight.process import Question
from posenc_jax.parallel.topologies import parse_topology

GIB = 2**30


def make(spec="configs/tupe.py:tupe_r,tiny,length=64", topology="v5e:2x4", memory_only=False, **changes):
    config = load_config(spec, {"model.vocab_size": 500, **changes})
    return Question(config, 64, parse_topology(topology), memory_only=memory_only)


def formula(fixed, a_row, available=16.0, asked=None):
    """ask() of a compiler that needs `fixed` + `a_row` x rows of a slice of a device, in GiB."""

    def ask(question):
        train, mesh = question.config.train, question.config.mesh
        shares = question.topology.chips // mesh.tensor
        rows = train.batch_size / shares / train.accumulate
        needed = fixed / mesh.fsdp + a_row * rows * (0.5 if question.config.model.remat else 1)
        if asked is not None:
            asked.append(question)
        facts = dict(
            fits=needed <= available, needed=int(needed * GIB), available=int(available * GIB), shares=shares,
            devices=question.topology.chips, device_kind="TPU v5 lite", parameters=10, parameter_bytes=40,
            state_bytes=120, mesh={"data": shares // mesh.fsdp, "fsdp": mesh.fsdp, "tensor": mesh.tensor},
            flops={"encoder": 3e12, "heads": 1e12}, seconds=1.0,
        )  # fmt: skip
        if facts["fits"] and not question.memory_only:
            kinds = ("arguments", "outputs", "aliased", "temporaries", "code")
            facts |= {"memory": dict.fromkeys(kinds, GIB), "pallas_kernels": []}
            facts["collectives"] = [{"kind": "all-reduce", "axes": ["data"], "group": 8, "count": 1, "bytes": 800}]
        return facts

    return ask
