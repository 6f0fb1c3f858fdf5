import dataclasses

import pytest

from posenc_jax.config import Config, PositionConfig, config_diff, describe
from posenc_jax.config_files import load_config, parse_arg, shipped_variants
from posenc_jax.durations import to_steps
from posenc_jax.errors import UsageError

TINY = "configs/tupe.py:tupe_r,tiny"


def test_a_config_file_becomes_frozen_typed_dataclasses():
    config = load_config(TINY)
    assert config.model.positions == PositionConfig(scheme="tupe+t5", untie_cls=True)
    assert (config.model.layers, config.model.width) == (2, 128)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.model.width = 3
    hash(config)


def test_both_files_give_the_same_baselines():
    assert load_config("configs/bert.py:bert_r,small") == load_config("configs/tupe.py:bert_r,small")


def test_base_is_the_papers_table_2():
    config = load_config("configs/tupe.py")
    optimizer = config.optimizer
    assert (config.model.layers, config.model.width, config.model.heads) == (12, 768, 12)
    assert (config.train.steps, config.train.batch_size) == (1_000_000, 256)
    assert (optimizer.learning_rate, optimizer.b1, optimizer.b2, optimizer.eps) == (1e-4, 0.9, 0.999, 1e-6)
    assert (optimizer.weight_decay, optimizer.decay_norms_and_biases, optimizer.clip_norm) == (0.01, True, 1.0)
    assert (config.model.dropout, config.model.attention_dropout, config.model.norm) == (0.1, 0.1, "post")
    assert to_steps(optimizer.warmup, "w", tokens_per_step=1, steps_per_epoch=1, run=1_000_000) == 10_000


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("train.steps", "1e4", 10_000),
        ("train.steps", "200", 200),
        ("train.steps", "3 epochs", "3 epochs"),
        ("train.batch_size", "6.4e1", 64),
        ("optimizer.learning_rate", "1", 1.0),
        ("optimizer.clip_norm", "None", None),
        ("optimizer.clip_norm", "2", 2.0),
        ("model.vocab_size", "500", 500),
        ("model.scan", "false", False),
        ("model.positions.scheme", "none", "none"),
        ("data.path", "123", "123"),
    ],
)
def test_overrides_are_read_by_the_fields_type(key, text, value):
    config = load_config(TINY, {key: text})
    for name in key.split("."):
        config = getattr(config, name)
    assert config == value and type(config) is type(value)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"train.step": 1}, r"'train.step'; did you mean 'steps'"),
        ({"modell.width": 1}, r"'modell'; did you mean 'model'"),
        ({"model.width.x": 1}, r"model.width is one setting"),
        ({"train.batch_size": "2.5"}, r"train.batch_size='2.5' must be a whole number"),
        ({"train.batch_size": "many"}, r"train.batch_size='many' must be a whole number"),
        ({"model.scan": "maybe"}, r"model.scan='maybe' must be true or false"),
        ({"model.norm": "pots"}, r"model.norm='pots' is not one of 'post', 'pre'; did you mean 'post'"),
        ({"model.heads": 3}, r"model.width=128 is not divisible by model.heads=3; 129"),
        ({"model.dropout": 1.0}, r"model.dropout=1.0 must be at least 0 and below 1"),
        ({"optimizer.learning_rate": 0}, r"optimizer.learning_rate=0.0 must be above 0"),
        ({"optimizer.learning_rate": "inf"}, r"optimizer.learning_rate=inf must be above 0, and finite"),
        ({"mlm.rate": 1.5}, r"mlm.rate=1.5 must lie between 0 and 1"),
        ({"train.accumulate": 5}, r"train.batch_size=32 is not divisible by train.accumulate=5"),
        ({"model.positions.buckets": 30}, r"buckets=30 must be a multiple of 4"),
        ({"model.positions.max_distance": 8}, r"max_distance=8 must be above"),
        ({"train.steps": "soon"}, r"train.steps='soon' is not a duration"),
        ({"train.steps": "1.5"}, r"whole number of steps"),
        ({"train.seed": -1}, r"train.seed=-1"),
        ({"train.steps": "1e30"}, r"train.steps=1\d+ must be below 2\^31"),
        ({"model.positions.max_length": 1e12}, r"must be below 2\^31"),
        ({"train.steps": None}, r"train.steps=None must be a whole number or text"),
        ({"mesh.data": 0}, r"mesh.data=0 must be at least 1, or -1"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused_by_name(overrides, words):
    with pytest.raises(UsageError, match=words):
        load_config(TINY, overrides)


def test_a_missing_file_and_an_unknown_variant_name_what_there_is():
    with pytest.raises(
        UsageError, match=r"no config file 'nowhere.py'; shipped ones are configs/bert.py, configs/convbert.py"
    ):
        load_config("nowhere.py")
    with pytest.raises(UsageError, match=r"no 'tupe_b'; did you mean 'tupe_r'|'tupe_a'"):
        load_config("configs/tupe.py:tupe_b")


def test_a_broken_config_file_is_one_sentence(tmp_path):
    for text, words in [
        ("x = 1/0", "ZeroDivisionError"),
        ("x = 1", "no function get_config"),
        ("def get_config(arg): return {}[1]", "KeyError"),
        ("def get_config(arg): return 5", "TypeError"),
        ("import sys; sys.exit(3)", "SystemExit"),
    ]:
        (tmp_path / "broken.py").write_text(text)
        with pytest.raises(UsageError, match=words):
            load_config(str(tmp_path / "broken.py"))


def test_a_users_own_file_may_build_on_a_shipped_one(tmp_path):
    body = "c = base(arg)\n    c.model.layers = 5\n    return c\n"
    own = f"from configs.bert import get_config as base\ndef get_config(arg=''):\n    {body}"
    (tmp_path / "own.py").write_text(own)
    assert load_config(f"{tmp_path / 'own.py'}:bert_r,tiny").model.layers == 5


def test_parse_arg_takes_words_in_any_order():
    assert parse_arg("big, length=7,b", ["a", "b"], ["small", "big"], ["length"]) == ("b", "big", {"length": 7})
    assert parse_arg("", ["a", "b"], ["small"]) == ("a", "small", {})
    with pytest.raises(UsageError, match="names two variants, 'a' and 'b'"):
        parse_arg("a,b", ["a", "b"], ["small"])
    with pytest.raises(UsageError, match="takes a, b, small, length="):
        parse_arg("depth=3", ["a", "b"], ["small"], ["length"])


@pytest.mark.parametrize(
    ("duration", "steps"),
    [
        (7, 7),
        ("7", 7),
        ("1e3", 1000),
        ("6 %", 12),
        ("50%", 100),
        ("4096 tokens", 4),
        ("2 epochs", 25),
        ("0", 0),
        ("0.001 epochs", 1),
    ],
)
def test_durations(duration, steps):
    assert to_steps(duration, "key", tokens_per_step=1024, steps_per_epoch=12.5, run=200) == steps


def test_a_run_cannot_be_a_share_of_itself():
    with pytest.raises(UsageError, match="share of a run whose length it is"):
        to_steps("10 %", "train.steps", tokens_per_step=1, steps_per_epoch=1, run=None)


def test_the_diff_of_two_configs_names_fields_and_leaves_out_what_changes_no_result():
    old = load_config(TINY)
    new = load_config(TINY, {"model.width": 256, "train.log_every": 7, "data.path": "elsewhere"})
    assert config_diff(old, new) == ["model.width: 128 -> 256"]
    assert config_diff(Config(), Config()) == []


MODEL = "configs/bert.py:bert_a,tiny"


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"model.convolution.width": 8, "model.mixer": "mixed"}, r"model.convolution.width=8 must be odd"),
        (
            {"model.convolution.head_ratio": 3, "model.mixer": "mixed"},
            r"model.heads=4 .* model.convolution.head_ratio=3",
        ),
        ({"model.feed_forward_groups": 3}, r"model.width=128 .* model.feed_forward_groups=3"),
        ({"model.feed_forward_groups": 4, "model.feed_forward_width": 510}, r"model.feed_forward_width=510 .*=4"),
        ({"model.embedding_width": 0}, r"model.embedding_width=0 must be at least 1"),
        ({"model.positions.max_distance": 1e9}, r"max_distance=1000000000 .* must be at most 1,048,576"),
        (
            {"mlm.random_share": 0.6, "mlm.kept_share": 0.5},
            r"mlm.random_share=0.6 and mlm.kept_share=0.5 are more than",
        ),
        ({"model.token_types": -1}, r"model.token_types=-1 must be at least 0"),
        ({"model.positions.clip": 0}, r"model.positions.clip=0 must be at least 1"),
        ({"model.positions.rope_base": 0}, r"model.positions.rope_base=0.0 must be above 0"),
        ({"model.compatibility.name": "pairwize"}, r"did you mean 'pairwise'"),
        ({"model.mixer": "mixd"}, r"did you mean 'mixed'"),
    ],
)
def test_a_model_whose_parts_do_not_fit_is_refused(overrides, words):
    with pytest.raises(UsageError, match=words):
        load_config(MODEL, overrides)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"model.compatibility.form": "diagonal"}, r"form='diagonal' would change nothing; only .*name=pairwise"),
        ({"model.compatibility.start": "identity", "model.compatibility.name": "symmetric"}, r"only .*name=pairwise"),
        ({"model.compatibility.matched_init": True, "model.compatibility.name": "pairwise"}, r"only .*dot_product"),
        (
            {"model.convolution.kind": "none", "model.convolution.width": 5, "model.mixer": "mixed"},
            r"model.convolution.width=5 would change nothing; only a convolution",
        ),
        ({"model.convolution.width": 5}, r"model.convolution.width=5 would change nothing; only model.mixer=mixed"),
    ],
)
def test_a_setting_that_nothing_reads_is_refused(overrides, words):
    with pytest.raises(UsageError, match=words):
        load_config(MODEL, overrides)


def test_few_heads_leave_one_that_attends():
    """As the published code: fewer heads than the ratio leave one (convbert_and_electra.md 1.5)."""
    model = load_config(MODEL, {"model.mixer": "mixed", "model.heads": 1}).model
    assert (model.attention_heads, model.head_width) == (1, 128)


def test_a_variant_is_described_by_what_is_not_plain_bert():
    name = lambda spec, **changes: describe(load_config(spec, changes))  # noqa: E731
    assert name("configs/bert.py:bert_a,tiny") == "learned"
    assert name("configs/tupe.py:tupe_r,tiny") == "tupe+t5, untie_cls"
    assert name("configs/symmetric.py:bert_matched") == "learned, dot_product, matched_init"
    assert name("configs/symmetric.py:pairwise_diagonal") == "learned, pairwise, form=diagonal"
    assert name("configs/convbert.py:light,medium_small") == "learned, light, 2 groups, replaced tokens"
    assert name("configs/convbert.py:convbert_mlm") == "learned, span_dynamic"
    assert name("configs/mth.py:mth_squared", **{"mlm.unit": "word"}).startswith(
        "ddrp, masks words whole, 0.1 TCD squa"
    )
    assert name("configs/convbert.py:no_convolution").startswith("learned, no convolution, replaced tokens")


def test_shipped_variants_are_what_load_config_takes():
    found = shipped_variants()
    assert "configs/tupe.py:tupe_r" in found and len(found) == len(set(found)) > 30


def test_a_variation_that_is_no_number_is_refused():
    with pytest.raises(UsageError, match="argument length=abc must be a whole number"):
        load_config("configs/ddrp.py:ddrp,tiny,length=abc")
