"""Our parameters and the keys of Hugging Face files: one table a family, read in both directions.

A line is our path, their key and the layout (`layouts.py`). "@" stands before what a class with a head keeps under
its family's name ("bert."); "#" is the number of a layer, whose parameters we stack (convbert_and_electra.md 7).
"""

from typing import NamedTuple


class Entry(NamedTuple):
    ours: str
    theirs: str
    layout: str

    @property
    def group(self) -> str:
        """The subtree it is of: encoder, head, pooler ..."""
        return self.ours.partition("/")[0]

    @property
    def stacked(self) -> bool:
        return "#" in self.theirs


class Family(NamedTuple):
    name: str
    """As config.json writes it in `model_type`, and before the keys of a class with a head."""
    label: str
    stem: str
    """What the names of its classes begin with."""
    entries: tuple[Entry, ...]
    tied: dict[str, str]
    """Keys that a file may repeat or leave out, and the one they are equal to."""
    required: dict[str, tuple[str, ...]]
    """Groups that a class must have beside the encoder, by the end of its name; the others may come along."""
    spellings: tuple[str, ...] = ()
    """Other names in `model_type`."""


def _table(*texts: str) -> tuple[Entry, ...]:
    return tuple(Entry(*line.split()) for text in texts for line in text.strip().splitlines())


_EMBEDDINGS = """
encoder/words                          @embeddings.word_embeddings.weight        same
encoder/positions/learned/table        @embeddings.position_embeddings.weight    same
encoder/types                          @embeddings.token_type_embeddings.weight  same
encoder/norm/scale                     @embeddings.LayerNorm.weight              same
encoder/norm/bias                      @embeddings.LayerNorm.bias                same
"""
_WIDEN = """
encoder/widen/kernel                   @embeddings_project.weight                linear
encoder/widen/bias                     @embeddings_project.bias                  same
"""
_LAYERS = """
encoder/layers/attention/query/kernel  @encoder.layer.#.attention.self.query.weight   linear
encoder/layers/attention/query/bias    @encoder.layer.#.attention.self.query.bias     flat
encoder/layers/attention/key/kernel    @encoder.layer.#.attention.self.key.weight     linear
encoder/layers/attention/key/bias      @encoder.layer.#.attention.self.key.bias       flat
encoder/layers/attention/value/kernel  @encoder.layer.#.attention.self.value.weight   linear
encoder/layers/attention/value/bias    @encoder.layer.#.attention.self.value.bias     flat
encoder/layers/attention/output/kernel @encoder.layer.#.attention.output.dense.weight linear_of_heads
encoder/layers/attention/output/bias   @encoder.layer.#.attention.output.dense.bias   same
encoder/layers/attention_norm/scale    @encoder.layer.#.attention.output.LayerNorm.weight same
encoder/layers/attention_norm/bias     @encoder.layer.#.attention.output.LayerNorm.bias   same
encoder/layers/feed_forward/inner/kernel @encoder.layer.#.intermediate.dense.weight   linear_or_groups
encoder/layers/feed_forward/inner/bias @encoder.layer.#.intermediate.dense.bias       same
encoder/layers/feed_forward/outer/kernel @encoder.layer.#.output.dense.weight         linear_or_groups
encoder/layers/feed_forward/outer/bias @encoder.layer.#.output.dense.bias             same
encoder/layers/feed_forward_norm/scale @encoder.layer.#.output.LayerNorm.weight       same
encoder/layers/feed_forward_norm/bias  @encoder.layer.#.output.LayerNorm.bias         same
"""
_CONVOLUTION = """
encoder/layers/attention/convolution/key/depthwise        @encoder.layer.#.attention.self.key_conv_attn_layer.depthwise.weight depthwise
encoder/layers/attention/convolution/key/pointwise/kernel @encoder.layer.#.attention.self.key_conv_attn_layer.pointwise.weight pointwise
encoder/layers/attention/convolution/key/pointwise/bias   @encoder.layer.#.attention.self.key_conv_attn_layer.bias             column
encoder/layers/attention/convolution/window/kernel        @encoder.layer.#.attention.self.conv_kernel_layer.weight             linear_of_heads
encoder/layers/attention/convolution/window/bias          @encoder.layer.#.attention.self.conv_kernel_layer.bias               flat
encoder/layers/attention/convolution/value/kernel         @encoder.layer.#.attention.self.conv_out_layer.weight                linear
encoder/layers/attention/convolution/value/bias           @encoder.layer.#.attention.self.conv_out_layer.bias                  flat
"""  # noqa: E501
_POOLER = """
pooler/kernel                          @pooler.dense.weight                      linear
pooler/bias                            @pooler.dense.bias                        same
"""
_BERT_HEADS = """
head/dense/kernel                      cls.predictions.transform.dense.weight      linear
head/dense/bias                        cls.predictions.transform.dense.bias        same
head/norm/scale                        cls.predictions.transform.LayerNorm.weight  same
head/norm/bias                         cls.predictions.transform.LayerNorm.bias    same
head/bias                              cls.predictions.bias                        same
next_sentence/kernel                   cls.seq_relationship.weight                 linear
next_sentence/bias                     cls.seq_relationship.bias                   same
"""
_ROBERTA_HEAD = """
head/dense/kernel                      lm_head.dense.weight                      linear
head/dense/bias                        lm_head.dense.bias                        same
head/norm/scale                        lm_head.layer_norm.weight                 same
head/norm/bias                         lm_head.layer_norm.bias                   same
head/bias                              lm_head.bias                              same
"""
_ELECTRA_HEADS = """
head/dense/kernel                      generator_predictions.dense.weight        linear
head/dense/bias                        generator_predictions.dense.bias          same
head/norm/scale                        generator_predictions.LayerNorm.weight    same
head/norm/bias                         generator_predictions.LayerNorm.bias      same
head/bias                              generator_lm_head.bias                    same
rtd_head/dense/kernel                  discriminator_predictions.dense.weight    linear
rtd_head/dense/bias                    discriminator_predictions.dense.bias      same
rtd_head/output/kernel                 discriminator_predictions.dense_prediction.weight linear
rtd_head/output/bias                   discriminator_predictions.dense_prediction.bias   same
"""

WORDS = "embeddings.word_embeddings.weight"
_MLM = {"ForMaskedLM": ("head",)}
_TIED_GENERATOR = {"generator_lm_head.weight": WORDS}

FAMILIES = {
    family.name: family
    for family in (
        Family(
            "bert", "BERT", "Bert", _table(_EMBEDDINGS, _LAYERS, _POOLER, _BERT_HEADS),
            {"cls.predictions.decoder.weight": WORDS, "cls.predictions.decoder.bias": "cls.predictions.bias"},
            {**_MLM, "ForPreTraining": ("head", "next_sentence", "pooler"),
             "ForNextSentencePrediction": ("next_sentence", "pooler")},
        ),
        Family(
            "roberta", "RoBERTa", "Roberta", _table(_EMBEDDINGS, _LAYERS, _POOLER, _ROBERTA_HEAD),
            {"lm_head.decoder.weight": WORDS, "lm_head.decoder.bias": "lm_head.bias"}, _MLM,
        ),
        Family(
            "electra", "ELECTRA", "Electra", _table(_EMBEDDINGS, _WIDEN, _LAYERS, _ELECTRA_HEADS),
            _TIED_GENERATOR, {"ForPreTraining": ("rtd_head",), **_MLM},
        ),
        Family(  # Hugging Face has no class with the replaced-token head: its keys are ELECTRA's
            "convbert", "ConvBERT", "ConvBert", _table(_EMBEDDINGS, _WIDEN, _LAYERS, _CONVOLUTION, _ELECTRA_HEADS),
            _TIED_GENERATOR, _MLM, ("conv_bert",),
        ),
    )
}  # fmt: skip
"""The families by name."""

BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
"""Constants that older versions saved among the weights."""


def class_name(family: Family, groups: set[str]) -> str:
    """The Hugging Face class that holds these groups of parameters: "BertForMaskedLM"."""
    held = [end for end, needed in family.required.items() if set(needed) <= groups]
    return family.stem + (max(held, key=lambda end: len(family.required[end])) if held else "Model")
