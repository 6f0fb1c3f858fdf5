"""States of every token, as they are in rows run alone; moments as NumPy takes them of all states at once."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.analysis import states as module
from posenc_jax.analysis.states import collect_states, encode_with, moments_of, states_of, stream_moments
from posenc_jax.analysis.texts import MarkedText
from posenc_jax.errors import UserError
from posenc_jax.interop.pretrained import layer_names, layer_states, load_encoder
from tests.tiny_workdirs import sentences, write_workdir

TEXTS = [*sentences(40, 1, 6), *sentences(20, 2, 16), *sentences(6, 3)]


@pytest.fixture(scope="module", params=["post", "pre"])
def encoder(request, tmp_path_factory):
    return load_encoder(write_workdir(tmp_path_factory.mktemp("run") / "run", norm=request.param))


def made_up_texts(rng, count=50, longest=30):
    """Rows of ids that `spikes` turns into states."""
    for number in range(count):
        slots = int(rng.integers(3, longest))
        special = np.arange(slots) % (slots - 1) == 0
        word = np.where(special, -1, np.arange(slots) - 1).astype(np.int32)
        ids = rng.integers(0, 1000, slots).astype(np.int32)
        yield MarkedText(number, ids, word, special, np.zeros(slots, bool), tuple("w" * slots))


def spikes(tokens_BxL, segments_BxL):
    """Float32 [3, B, L, 16] that depends on the id alone; NaN at padding; one dimension at -22 among small ones."""
    rng = np.random.default_rng(7)
    table_3x1000x16 = rng.normal(0, 0.5, (3, 1000, 16)).astype(np.float32)
    table_3x1000x16[1:, :, 5] -= 22
    states = table_3x1000x16[:, tokens_BxL]
    return np.where(segments_BxL[None, :, :, None] > 0, states, np.nan)


def test_states_are_those_of_each_row_alone(encoder):
    found = states_of(encoder, TEXTS)
    model, pretrained = encoder.pretrained.model, encoder.pretrained
    assert found.layers == layer_names(model) and found.states_ExNxD.dtype == np.float32
    assert (np.diff(found.sentence_N) >= 0).all()
    params = jax.device_get(encoder.params)
    for number in (0, len(TEXTS) - 1):
        chosen = found.take(found.sentence_N == number)
        ids = [pretrained.tokenizer.cls, *pretrained.tokenizer.encode(TEXTS[number]), pretrained.tokenizer.sep]
        np.testing.assert_array_equal(chosen.token_N, ids)
        np.testing.assert_array_equal(chosen.position_N, np.arange(len(ids)))
        alone = layer_states(model, params, jnp.array([ids]), jnp.ones((1, len(ids)), jnp.int32))[:, 0]
        np.testing.assert_allclose(chosen.states_ExNxD, alone, rtol=0, atol=2e-5)
        assert [chosen.word_text(n) for n in np.flatnonzero(np.diff(chosen.word_N, prepend=-1))][:-1] == [
            *TEXTS[number].split()
        ]
        assert chosen.word_text(0) == ""


def test_specials_stay_or_go_and_the_rest_is_the_same(encoder):
    whole, inner = states_of(encoder, TEXTS[:30]), states_of(encoder, TEXTS[:30], special=False)
    assert whole.special_N.sum() == 60 and not inner.special_N.any()
    np.testing.assert_array_equal(whole.take(~whole.special_N).states_ExNxD, inner.states_ExNxD)
    np.testing.assert_array_equal(whole.position_N[~whole.special_N], inner.position_N)


def test_memory_is_bounded_by_whole_texts_in_order_and_no_more_are_read(rng):
    texts = list(made_up_texts(rng, 20))
    read = []

    def reading():
        for text in texts:
            read.append(text.sentence)
            yield text

    lengths = [len(text.ids_L) for text in texts]
    bound = sum(lengths[:7]) + lengths[7] - 1
    found = collect_states(spikes, reading(), 30, max_tokens=bound)
    assert len(found) == sum(lengths[:7]) and set(found.sentence_N) == set(range(7)) == set(found.words)
    assert read == list(range(8))
    assert np.isfinite(found.states_ExNxD).all() and found.layers == ("0", "1", "2")
    with pytest.raises(ValueError, match=r"first text has .* at most 2 are kept"):
        collect_states(spikes, texts, 30, max_tokens=2)


@pytest.mark.parametrize("special", [True, False])
def test_moments_are_those_of_all_states_at_once(special, rng, monkeypatch):
    """Over many batches, with a spike of -22 among values of 0.5 and NaN at padding; against NumPy in float64."""
    texts = list(made_up_texts(rng, 400))
    made = []
    real = module.batches
    monkeypatch.setattr(module, "batches", lambda *given: made.append(0) or real(*given, batch_tokens=256))
    streamed = stream_moments(spikes, iter(texts), 30, special=special)
    assert made
    kept = collect_states(spikes, texts, 30, special=special).states_ExNxD.astype(np.float64)
    assert streamed.count == kept.shape[1] == sum(len(text.ids_L) - (0 if special else 2) for text in texts)
    np.testing.assert_allclose(streamed.mean_ExD, kept.mean(1), rtol=0, atol=2e-7)
    np.testing.assert_allclose(streamed.variance_ExD, kept.var(1), rtol=1e-6)
    for shares, find in ((streamed.min_share_ExD, np.argmin), (streamed.max_share_ExD, np.argmax)):
        expected = [np.bincount(places, minlength=16) / kept.shape[1] for places in find(kept, axis=2)]
        np.testing.assert_allclose(shares, expected, rtol=0, atol=1e-12)
    assert streamed.min_share_ExD[1, 5] == 1
    broken = lambda tokens, segments: np.where(tokens[..., None] == texts[0].ids_L[1], np.nan, spikes(tokens, segments))  # noqa: E731
    for read in (collect_states, lambda *given: stream_moments(*given, special=special)):
        with pytest.raises(UserError, match="states of layer 0 are not finite"):
            read(broken, texts, 30)
    with pytest.raises(ValueError, match="no token"):
        stream_moments(spikes, [], 30, special=special)


def test_moments_of_an_encoder_are_those_of_its_states_in_few_compilations(encoder):
    kept = states_of(encoder, TEXTS, special=False).states_ExNxD.astype(np.float64)
    before = module._batch_moments._cache_size()
    streamed = moments_of(encoder, TEXTS, special=False)
    np.testing.assert_allclose(streamed.mean_ExD, kept.mean(1), rtol=0, atol=1e-6)
    np.testing.assert_allclose(streamed.variance_ExD, kept.var(1), rtol=1e-4)
    moments_of(encoder, TEXTS[::-1][:33], special=False)
    assert module._batch_moments._cache_size() - before <= 3  # 16, 32 and 48 slots, in eighths of a batch


def test_any_number_of_rows_goes_onto_all_devices(encoder):
    encode, tokenizer = encode_with(encoder), encoder.pretrained.tokenizer
    ids = np.array([[tokenizer.cls, 7, 8, tokenizer.sep, 0, 0]] * 3, np.int32)
    segments = (ids > 0).astype(np.int32)
    states = np.asarray(encode(ids, segments))
    assert states.shape[1:] == (3, 6, 32)
    noise = np.asarray(encode(np.where(segments > 0, ids, 50), segments))  # what stands at padding is not seen
    np.testing.assert_array_equal(states, noise)


def test_a_checkpoint_loads_by_its_path(tmp_path):
    workdir = write_workdir(tmp_path / "run")
    newest, named = load_encoder(workdir), load_encoder(workdir / "checkpoints" / "0")
    assert named.name == newest.name and named.pretrained.workdir == workdir
    with pytest.raises(UserError, match=r"no checkpoint 7; there are: 0"):
        load_encoder(workdir / "checkpoints" / "7")


def test_marks_that_do_not_fit_are_refused(rng):
    found = collect_states(spikes, list(made_up_texts(rng, 3)), 30)
    with pytest.raises(ValueError, match="position_N"):
        dataclasses.replace(found, position_N=found.position_N[1:])
    with pytest.raises(ValueError, match="2 names"):
        dataclasses.replace(found, layers=("0", "1"))
