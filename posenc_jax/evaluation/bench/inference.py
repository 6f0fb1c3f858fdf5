"""The forward pass alone: our encoder against transformers', without dropout."""

import itertools
from typing import Any

from posenc_jax.evaluation.bench.peers import transformers_encoder
from posenc_jax.evaluation.bench.ratio import OURS, ratio_table
from posenc_jax.evaluation.bench.turns import Run, take_turns, threads
from posenc_jax.evaluation.bench.workloads import Workload
from posenc_jax.evaluation.tables import Table

PEERS = {"bert": "transformers' BertModel", "convbert": "transformers' ConvBertModel"}


def bench_encoder(workload: Workload, rounds: int, passes: int) -> tuple[Table, dict[str, Any]]:
    """Tokens a second of each side, as a table and as facts. torch and transformers must be installed; raises
    `UserError` with a side's own words when it fails."""
    sides = {OURS: (our_encoder, (workload,)), PEERS[workload.work]: (transformers_encoder, (workload,))}

    def say(turn: str, seconds: float) -> None:
        print(f"{turn}  {passes * workload.tokens / seconds:,.0f} tokens/s", flush=True)

    seconds, devices = take_turns(sides, rounds, passes, say)
    speeds = {side: [passes * workload.tokens / one for one in times] for side, times in seconds.items()}
    model = workload.config.model
    caption = (
        f"A forward pass of the encoder, {workload.work}, {model.layers} layers x {model.width}, {model.heads} heads, "
        f"{workload.batch_size} rows x {workload.length} without padding, float32, no dropout, {threads()} threads, "
        f"{'; '.join(dict.fromkeys(devices.values()))}. {passes} passes a turn, after one that is not counted."
    )
    sizes = {"batch_size": workload.batch_size, "length": workload.length}
    facts = {"work": workload.work, "size": workload.size, **sizes, "tokens_per_second": speeds}
    return ratio_table(caption, "tokens/s", speeds), facts


def our_encoder(workload: Workload) -> tuple[Run, str]:
    import jax
    from flax import linen as nn

    from posenc_jax.model.encoder import Encoder
    from posenc_jax.parallel.forward import jit_forward

    encoder, words = Encoder(workload.config.model), workload.words()
    segments_BxL = jax.numpy.ones(words[0].shape, jax.numpy.int32)
    params = nn.unbox(jax.jit(encoder.init)(jax.random.key(0), words[0], segments_BxL))
    forward = jit_forward(encoder.apply)
    endless = itertools.cycle(jax.device_put(words))

    def run(passes: int) -> None:
        for tokens_BxL in itertools.islice(endless, passes):
            hidden_BxLxD = forward(params, tokens_BxL, segments_BxL)
        jax.block_until_ready(hidden_BxLxD)

    return run, f"jax {jax.__version__} on {jax.devices()[0].device_kind}"
