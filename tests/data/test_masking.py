import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.config import MlmConfig
from posenc_jax.data.masking import mask_tokens, predictions_per_row
from posenc_jax.data.tokenizer import CLS, MASK, PAD, SEP, SPECIALS, Specials

VOCAB = 300


def make_rows(rng, batch=400, length=64):
    tokens = rng.integers(len(SPECIALS), VOCAB, (batch, length)).astype(np.int32)
    tokens[:, 0], tokens[:, 40] = CLS, SEP
    tokens[:, 50:] = PAD
    return tokens


def mask(tokens, seed=0, row=None, **settings):
    row = jnp.arange(len(tokens)) if row is None else row
    config = MlmConfig(**settings)
    masked = jax.jit(lambda t, r: mask_tokens(jax.random.key(seed), t, r, VOCAB, config))(tokens, row)
    return jax.tree.map(np.asarray, masked)


def test_specials_and_padding_are_never_predicted_nor_changed(rng):
    tokens = make_rows(rng)
    got = mask(tokens)
    chosen = got["target"][got["predicted_weight"] > 0]
    assert not np.isin(chosen, [PAD, CLS, SEP, MASK]).any()
    special = np.isin(tokens, [PAD, CLS, SEP])
    np.testing.assert_array_equal(got["tokens"][special], tokens[special])


def test_targets_are_the_words_that_stood_there_each_once_and_the_rest_is_untouched(rng):
    tokens = make_rows(rng)
    got = mask(tokens)
    np.testing.assert_array_equal(np.take_along_axis(tokens, got["predicted"], 1), got["target"])
    for row in range(len(tokens)):
        used = got["predicted"][row][got["predicted_weight"][row] > 0]
        assert len(set(used)) == len(used)
        changed = np.flatnonzero(got["tokens"][row] != tokens[row])
        assert set(changed) <= set(used)


def test_shares_are_80_10_10_of_15_percent(rng):
    tokens = make_rows(rng, batch=3000)
    got = mask(tokens)
    used = got["predicted_weight"] > 0
    candidates = 48
    assert abs(used.sum(1).mean() - 0.15 * candidates) < 0.05  # floor(0.15 n + U) has that mean exactly
    assert set(used.sum(1)) == {7, 8}
    hidden = np.take_along_axis(got["tokens"], got["predicted"], 1)[used]
    target = got["target"][used]
    n = len(target)
    for share, want in [((hidden == MASK).mean(), 0.8), ((hidden == target).mean(), 0.1 + 0.1 / (VOCAB - 5))]:
        assert abs(share - want) < 4 * np.sqrt(want * (1 - want) / n)
    random = hidden[(hidden != MASK) & (hidden != target)]
    assert random.min() == len(SPECIALS) and random.max() == VOCAB - 1


def test_electras_shares_are_85_and_15_and_no_random_word(rng):
    """convbert_and_electra.md 3.1."""
    got = mask(make_rows(rng, batch=1000), random_share=0.0, kept_share=0.15)
    used = got["predicted_weight"] > 0
    hidden, target = np.take_along_axis(got["tokens"], got["predicted"], 1)[used], got["target"][used]
    kept = hidden == target
    assert ((hidden == MASK) | kept).all()
    assert abs(kept.mean() - 0.15) < 4 * np.sqrt(0.15 * 0.85 / len(kept))


def test_every_candidate_is_drawn_equally_often(rng):
    tokens = make_rows(rng, batch=6000)
    got = mask(tokens)
    counts = np.bincount(got["predicted"][got["predicted_weight"] > 0], minlength=64)[np.r_[1:40, 41:50]]
    want = counts.mean()
    assert ((counts - want) ** 2 / want).sum() < 48 + 5 * np.sqrt(2 * 48)


def test_what_hides_a_row_depends_on_key_and_row_number_only(rng):
    tokens = make_rows(rng, batch=8)
    whole = mask(tokens)
    alone = mask(tokens[5:6], row=jnp.array([5]))
    for name, value in alone.items():
        np.testing.assert_array_equal(value[0], whole[name][5])
    assert (mask(tokens, seed=1)["predicted"] != whole["predicted"]).any()
    assert (whole["predicted"][0] != whole["predicted"][1]).any()


def test_mask_special_lets_cls_and_sep_be_predicted_but_no_padding(rng):
    got = mask(make_rows(rng, batch=2000), mask_special=True)
    chosen = got["target"][got["predicted_weight"] > 0]
    assert np.isin([CLS, SEP], chosen).all() and PAD not in chosen


@pytest.mark.parametrize("filled", [0, 1, 2, 3])
def test_rows_with_few_words_or_none_predict_no_more_than_they_have(filled):
    tokens = np.zeros((50, 64), np.int32)
    tokens[:, 1 : 1 + filled] = 9
    got = mask(tokens, rate=0.5)
    assert got["predicted_weight"].sum(1).max() <= filled
    assert got["predicted"].shape == (50, predictions_per_row(64, MlmConfig(rate=0.5)))
    assert filled == 0 or got["predicted_weight"].sum() > 0


def test_other_special_ids_are_taken_from_the_tokenizer(rng):
    """BERT's: the words before, between and after its special ids are all drawn, and no special one is."""
    specials = Specials(pad=0, unk=10, cls=11, sep=12, mask=13)
    ordinary = np.setdiff1d(np.arange(20), specials)
    tokens = rng.choice(ordinary, (400, 64)).astype(np.int32)
    tokens[:, 0], tokens[:, 50:] = specials.cls, specials.pad
    config = MlmConfig(rate=0.5)
    masked = jax.jit(lambda t: mask_tokens(jax.random.key(0), t, jnp.arange(400), 20, config, specials))(tokens)
    got = jax.tree.map(np.asarray, masked)
    used = got["predicted_weight"] > 0
    hidden = np.take_along_axis(got["tokens"], got["predicted"], 1)[used]
    target = got["target"][used]
    assert abs((hidden == specials.mask).mean() - 0.8) < 0.03
    assert set(hidden[(hidden != specials.mask) & (hidden != target)]) == set(ordinary)
    assert not np.isin(target, specials[:1] + specials[2:]).any()
    np.testing.assert_array_equal(got["tokens"][:, 50:], specials.pad)


# ---- whole words, spans, and drawing with replacement -------------------------------------------------------------


def make_words(rng, batch=600, length=64):
    """Even ids begin a word, odd ones go on with it; [CLS] ... [SEP] padding. Returns tokens, starts, word numbers."""
    tokens = rng.integers(len(SPECIALS), VOCAB, (batch, length)).astype(np.int32)
    tokens[:, 0], tokens[:, 50], tokens[:, 51:] = CLS, SEP, PAD
    starts = (np.arange(VOCAB) % 2 == 0) | (np.arange(VOCAB) < len(SPECIALS))
    begins = starts[tokens]
    begins[:, 1] = True
    return tokens, starts, np.cumsum(begins, 1)


def mask_units(tokens, starts, **settings):
    config = MlmConfig(**settings)
    masked = jax.jit(
        lambda t: mask_tokens(jax.random.key(3), t, jnp.arange(len(t)), VOCAB, config, is_start_V=jnp.array(starts))
    )(tokens)
    return jax.tree.map(np.asarray, masked)


def predicted_slots(got, row):
    return set(got["predicted"][row][got["predicted_weight"][row] > 0])


def test_whole_words_are_predicted_whole_each_piece_once_and_15_percent_in_the_mean(rng):
    tokens, starts, word = make_words(rng, batch=4000)
    got = mask_units(tokens, starts, unit="word")
    counts = []
    for row in range(600):
        used = got["predicted"][row][got["predicted_weight"][row] > 0]
        slots = set(used)
        assert len(slots) == len(used) and not np.isin(tokens[row][used], [CLS, SEP, PAD]).any()
        for number in set(word[row][list(slots)]):
            assert set(np.flatnonzero((word[row] == number) & (np.arange(64) < 50))) <= slots
    counts = got["predicted_weight"].sum(1)
    assert abs(counts.mean() - 0.15 * 49) < 0.06  # a word that does not fit into the last slots is left out, rarely
    np.testing.assert_array_equal(np.take_along_axis(tokens, got["predicted"], 1), got["target"])


def test_long_words_are_drawn_nearly_as_often_as_short_ones(rng):
    tokens, starts, word = make_words(rng, batch=4000)
    got = mask_units(tokens, starts, unit="word")
    by_length = {}
    for row in range(4000):
        sizes = np.bincount(word[row][1:50])
        chosen = set(word[row][list(predicted_slots(got, row))])
        for number in np.flatnonzero(sizes):
            by_length.setdefault(min(sizes[number], 4), []).append(number in chosen)
    rates = [np.mean(hits) for length, hits in sorted(by_length.items())]
    # A long word is more often the one that reaches the share and may be left out: 0.14 against 0.16.
    assert len(rates) == 4 and max(rates) - min(rates) < 0.03, rates


def test_spans_are_words_in_a_row_of_the_asked_mean_length_and_stop_at_specials(rng):
    tokens = rng.integers(len(SPECIALS), VOCAB, (4000, 128)).astype(np.int32)
    tokens[:, 0], tokens[:, 64] = CLS, SEP
    starts = np.ones(VOCAB, bool)  # each token a word
    got = mask_units(tokens, starts, unit="span", span_words=3.0, rate=0.05)
    runs = []
    for row in range(4000):
        slots = sorted(predicted_slots(got, row))
        assert not {0, 64} & set(slots)
        for i, slot in enumerate(slots):
            if i and slot == slots[i - 1] + 1:
                runs[-1] += 1
            else:
                runs.append(1)
    # Long spans less often fit the small share, two may touch, and a row's end cuts some.
    assert 2.4 < np.mean(runs) < 3.4
    assert abs(got["predicted_weight"].sum(1).mean() - 0.05 * 126) < 0.15


@pytest.mark.parametrize("unit", ["word", "span"])
def test_rows_of_padding_alone_predict_nothing_in_any_unit(unit):
    got = mask_units(np.zeros((4, 64), np.int32), np.ones(VOCAB, bool), unit=unit)
    assert got["predicted_weight"].sum() == 0 and (got["tokens"] == PAD).all()


def test_with_replacement_as_electras_code(rng):
    """convbert_and_electra.md 3.1: at length 128 it draws 19 slots, 6.9 % of them twice, so that 13.8 % are masked."""
    tokens = rng.integers(len(SPECIALS), VOCAB, (4000, 128)).astype(np.int32)
    tokens[:, 0], tokens[:, 64], tokens[:, 127] = CLS, SEP, SEP
    got = mask(tokens, with_replacement=True, random_share=0.0, kept_share=0.15)
    assert got["predicted"].shape == (4000, 19)
    np.testing.assert_array_equal(got["predicted_weight"], 1.0)  # round(0.15 * 128) = 19
    distinct = np.array([len(set(row)) for row in got["predicted"]])
    assert abs(1 - distinct.mean() / 19 - 0.069) < 0.003
    assert abs(distinct.mean() / 128 - 0.138) < 0.001
    assert not np.isin(got["target"], [CLS, SEP, PAD]).any()
    drawn = np.zeros(tokens.shape, int)
    np.add.at(drawn, (np.arange(4000)[:, None], got["predicted"]), 1)
    is_masked = got["tokens"] == MASK
    assert not is_masked[drawn == 0].any()
    for times in (1, 2):  # masked if any of its draws says so
        assert abs(is_masked[drawn == times].mean() - (1 - 0.15**times)) < 0.01
    short = tokens.copy()
    short[:, 30:] = PAD
    used = mask(short, with_replacement=True, random_share=0.0, kept_share=0.15)["predicted_weight"].sum(1)
    assert set(used) == {4.0}  # round half to even of 0.15 * 30, [CLS] counted
