"""The same work by transformers: training steps as it ships them and with logits at masked words only, fine-tuning,
inference."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from posenc_jax.config import Config, ModelConfig
from posenc_jax.evaluation.bench.turns import Run, threads
from posenc_jax.evaluation.bench.workloads import IGNORED, Finetuning, Workload

Loss = Callable[..., Any]
"""The arrays of a batch -> a loss. To learn masked words: those [B, L], and their labels, `IGNORED` where nothing is
predicted."""


def transformers_steps(workload: Workload, masked_only: bool) -> tuple[Run, str]:
    """Whole rows, so no attention mask is given: the fastest way through their models."""
    device = _device()
    make = {"bert": _bert, "convbert": _convbert, "electra": _electra}[workload.work]
    module, loss = make(workload.config, masked_only)
    return _training(module, loss, [_tensors(batch, device) for batch in workload.masked_batches()], device)


def transformers_finetuning(work: Finetuning, batches: Sequence[dict[str, np.ndarray]]) -> tuple[Run, str]:
    """A classifier that goes round `padded_batches`, with all that their tokenizer hands to the model."""
    device = _device()
    module, loss = classifier(work)
    names = ("tokens", "segments", "labels")
    return _training(module, loss, [_tensors([batch[name] for name in names], device) for batch in batches], device)


def transformers_encoder(workload: Workload) -> tuple[Run, str]:
    """Forward passes of the encoder alone over the workload's rows, without dropout."""
    import torch

    device = _device()
    encoder = encoder_of(workload).to(device).eval()
    endless = itertools.cycle(_tensors(workload.words(), device))

    def run(passes: int) -> None:
        with torch.inference_mode():
            for tokens_BxL in itertools.islice(endless, passes):
                encoder(input_ids=tokens_BxL)
        _wait(device)

    return run, _runs_on(device)


def encoder_of(workload: Workload) -> Any:
    """Their BertModel or ConvBertModel of the workload's sizes, without a pooler."""
    module, _ = {"bert": _bert, "convbert": _convbert}[workload.work](workload.config, True)
    return module.base_model


def _device() -> str:
    import torch

    torch.set_num_threads(threads())
    torch.manual_seed(0)
    return "cuda" if torch.cuda.is_available() else "cpu"


def _runs_on(device: str) -> str:
    import torch
    import transformers

    return f"transformers {transformers.__version__}, torch {torch.__version__} on {device}"


def _wait(device: str) -> None:
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


def _tensors(arrays: Sequence[np.ndarray], device: str) -> tuple[Any, ...]:
    import torch

    return tuple(torch.from_numpy(np.asarray(array, np.int64)).to(device) for array in arrays)


def _training(module: Any, loss: Loss, batches: Sequence[Sequence[Any]], device: str) -> tuple[Run, str]:
    """Steps that go round the batches."""
    import torch

    module.to(device).train()
    # Fused, as transformers' own trainer takes it.
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4, eps=1e-6, weight_decay=0.01, fused=True)
    endless = itertools.cycle(batches)

    def run(steps: int) -> None:
        for batch in itertools.islice(endless, steps):
            optimizer.zero_grad(set_to_none=True)
            loss(*batch).backward()
            torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimizer.step()
        _wait(device)

    return run, _runs_on(device)


def classifier(work: Finetuning) -> tuple[Any, Loss]:
    import torch
    import transformers

    config = transformers.BertConfig(**_sizes(work.model), num_labels=2, attn_implementation="sdpa")
    peer = transformers.BertForSequenceClassification(config)

    def loss(tokens_BxL: Any, mask_BxL: Any, labels_B: Any) -> Any:
        types_BxL = torch.zeros_like(tokens_BxL)
        return peer(input_ids=tokens_BxL, attention_mask=mask_BxL, token_type_ids=types_BxL, labels=labels_B).loss

    return peer, loss


def _bert(settings: Config, masked_only: bool) -> tuple[Any, Loss]:
    import transformers

    model = settings.model
    peer = transformers.BertForMaskedLM(transformers.BertConfig(**_sizes(model), attn_implementation="sdpa"))
    return peer, _masked_loss(peer, peer.bert, peer.cls, masked_only)


def _convbert(settings: Config, masked_only: bool) -> tuple[Any, Loss]:
    import transformers

    model = settings.model
    config = transformers.ConvBertConfig(
        **_sizes(model),
        embedding_size=model.embedding_width or model.width,
        head_ratio=model.convolution.head_ratio,
        conv_kernel_size=model.convolution.width,
        num_groups=model.feed_forward_groups,
    )
    peer = transformers.ConvBertForMaskedLM(config)
    return peer, _masked_loss(peer, peer.convbert, _head(peer), masked_only)


def _electra(settings: Config, masked_only: bool) -> tuple[Any, Loss]:
    """Generator and discriminator put together as the paper has it: the tables of the embeddings are one."""
    import torch
    import transformers

    from posenc_jax.objectives.rtd import generator_config

    model, rtd = settings.model, settings.rtd

    def config(sizes: ModelConfig) -> Any:
        return transformers.ElectraConfig(
            **_sizes(sizes), embedding_size=model.embedding_width or model.width, attn_implementation="sdpa"
        )

    generator = transformers.ElectraForMaskedLM(config(generator_config(model, rtd)))
    discriminator = transformers.ElectraForPreTraining(config(model))
    generator.electra.embeddings = discriminator.electra.embeddings
    generator.generator_lm_head.weight = discriminator.electra.embeddings.word_embeddings.weight
    head = _head(generator)

    def loss(tokens_BxL: Any, labels_BxL: Any) -> Any:
        is_masked_BxL = labels_BxL != IGNORED
        if masked_only:
            logits_NxV = head(generator.electra(input_ids=tokens_BxL).last_hidden_state[is_masked_BxL])
            guess = torch.nn.functional.cross_entropy(logits_NxV, labels_BxL[is_masked_BxL])
        else:
            output = generator(input_ids=tokens_BxL, labels=labels_BxL)
            logits_NxV, guess = output.logits[is_masked_BxL], output.loss
        noise_NxV = -torch.log(-torch.log(torch.rand_like(logits_NxV)))
        filled_BxL = tokens_BxL.masked_scatter(is_masked_BxL, (logits_NxV.detach() + noise_NxV).argmax(-1))
        words_BxL = torch.where(is_masked_BxL, labels_BxL, tokens_BxL)
        found = discriminator(input_ids=filled_BxL, labels=(filled_BxL != words_BxL).float()).loss
        return rtd.generator_weight * guess + rtd.discriminator_weight * found

    return torch.nn.ModuleList([generator, discriminator]), loss


def _masked_loss(peer: Any, encoder: Any, head: Any, masked_only: bool) -> Loss:
    import torch

    def loss(tokens_BxL: Any, labels_BxL: Any) -> Any:
        if not masked_only:
            return peer(input_ids=tokens_BxL, labels=labels_BxL).loss
        is_masked_BxL = labels_BxL != IGNORED
        logits_NxV = head(encoder(input_ids=tokens_BxL).last_hidden_state[is_masked_BxL])
        return torch.nn.functional.cross_entropy(logits_NxV, labels_BxL[is_masked_BxL])

    return loss


def _head(peer: Any) -> Callable[[Any], Any]:
    return lambda hidden: peer.generator_lm_head(peer.generator_predictions(hidden))


def _sizes(model: ModelConfig) -> dict[str, Any]:
    return dict(
        vocab_size=model.vocab_size,
        hidden_size=model.width,
        num_hidden_layers=model.layers,
        num_attention_heads=model.heads,
        intermediate_size=model.feed_forward_width,
        max_position_embeddings=model.positions.max_length,
        hidden_dropout_prob=model.dropout,
        attention_probs_dropout_prob=model.attention_dropout,
    )
