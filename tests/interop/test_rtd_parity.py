"""Replaced-token detection step by step beside transformers' ElectraForMaskedLM and ElectraForPreTraining, which share
their embeddings as ours do: same weights, same masks, same samples, plain gradient descent."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax

from posenc_jax.config import MeshConfig, MlmConfig, ModelConfig, PositionConfig, RtdConfig
from posenc_jax.interop.exporting import write_model
from posenc_jax.interop.names import FAMILIES
from posenc_jax.objectives.rtd import Rtd, generator_config
from posenc_jax.parallel.mesh import make_mesh
from posenc_jax.training.state import create_state
from posenc_jax.training.step import make_train_step
from tests.interop.theirs import VOCAB, torch, transformers

MODEL = ModelConfig(
    layers=2, width=48, heads=4, feed_forward_width=96, vocab_size=VOCAB, embedding_width=20, token_types=2,
    positions=PositionConfig(max_length=40), init="truncated_normal", init_std=0.15, norm_eps=1e-12, dropout=0.0,
    attention_dropout=0.0,
)  # fmt: skip
STEPS, RATE = 4, 0.02


@dataclasses.dataclass(frozen=True)
class Given(Rtd):
    """Masks and samples are decided beforehand: step s of all, from what the batch brings."""

    def prepare(self, batch, key):
        return batch

    def _replace(self, logits_BxMxV, examples):
        tokens = examples["corrupted"]
        return tokens, (tokens != examples["original"]).astype(jnp.float32), jnp.zeros(())


def make_examples(objective, params, seed):
    rng = np.random.default_rng(seed)
    tokens = rng.integers(5, VOCAB, (6, 24)).astype(np.int32)
    tokens[:, 0] = 2
    segments = np.ones_like(tokens)
    for row in range(6):
        tokens[row, 24 - 3 * row :] = segments[row, 24 - 3 * row :] = 0
    batch = {"tokens": tokens, "segments": segments, "row": np.arange(6, dtype=np.int32)}
    honest = Rtd(objective.model, objective.mlm, objective.rtd)

    @jax.jit
    def draw(params):
        examples = honest.prepare(batch, jax.random.key(seed))
        logits = honest._generate(params, examples, jax.random.key(0), False)
        return {**examples, "corrupted": honest._replace(logits, examples)[0]}

    return jax.device_get(draw(params))


def their_losses(generator, discriminator, examples):
    mask = torch.tensor(examples["segments"]).long()
    labels = np.full(examples["tokens"].shape, -100)
    used = examples["predicted_weight"] > 0
    rows = np.broadcast_to(np.arange(6)[:, None], used.shape)
    labels[rows[used], examples["predicted"][used]] = examples["target"][used]
    tokens = torch.tensor(examples["tokens"]).long()
    mlm = generator(input_ids=tokens, attention_mask=mask, labels=torch.from_numpy(labels).long()).loss
    replaced = torch.tensor(examples["corrupted"] != examples["original"]).float()
    corrupted = torch.tensor(examples["corrupted"]).long()
    return mlm, discriminator(input_ids=corrupted, attention_mask=mask, labels=replaced).loss


def test_losses_of_several_steps_equal_transformers(tmp_path):
    objective = Given(MODEL, MlmConfig(rate=0.25, random_share=0.0, kept_share=0.15), RtdConfig(generator_size=0.5))
    mesh, sgd = make_mesh(MeshConfig(), jax.devices()[:1]), optax.sgd(RATE)
    state = create_state(objective, sgd, mesh, seed=3)
    params = jax.device_get(state.params)
    small = generator_config(MODEL, objective.rtd)
    networks = {"generator": (small, objective.generator_params(params))}
    networks["discriminator"] = (MODEL, {name: params[name] for name in ("encoder", "rtd_head")})
    loaded = []
    for name, (model, tree) in networks.items():
        (tmp_path / name).mkdir()
        class_name = write_model(tmp_path / name, FAMILIES["electra"], model, tree, pad=0)
        loaded.append(getattr(transformers, class_name).from_pretrained(tmp_path / name).train())
    generator, discriminator = loaded
    generator.electra.embeddings = discriminator.electra.embeddings
    generator.generator_lm_head.weight = discriminator.electra.embeddings.word_embeddings.weight
    theirs = torch.optim.SGD({id(p): p for model in loaded for p in model.parameters()}.values(), lr=RATE)

    step, ours, reference = make_train_step(objective, sgd, mesh), [], []
    for number in range(STEPS):
        examples = make_examples(objective, params, number)
        state, metrics = step(state, examples)
        ours.append([float(metrics["mlm_loss"]), float(metrics["rtd_loss"])])
        params = jax.device_get(state.params)
        theirs.zero_grad()
        mlm, rtd = their_losses(generator, discriminator, examples)
        reference.append([mlm.item(), rtd.item()])
        (mlm + 50 * rtd).backward()
        theirs.step()
    np.testing.assert_allclose(ours, reference, rtol=0, atol=1e-4)
    assert abs(ours[-1][1] - ours[0][1]) > 0.01  # the steps did something
    words = discriminator.electra.embeddings.word_embeddings.weight.detach().numpy()
    # Row 0 apart: a sampled [PAD] is a word to us; transformers gives no gradient to its look-up.
    np.testing.assert_allclose(params["encoder"]["words"][1:], words[1:], atol=1e-4)
