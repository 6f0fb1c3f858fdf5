import jax
import numpy as np
import pytest

from posenc_jax.analysis.convolution_windows import convolution_windows
from posenc_jax.analysis.projections import attention_inputs, query_and_key
from posenc_jax.config import ConvolutionConfig, ModelConfig
from posenc_jax.model.encoder import Encoder
from tests.oracle.convolution import convolution_heads
from tests.variants import random_params, rows, small_model


def a_case(kind, rng, mask=True, norm="post", width=3, length=9):
    convolution = ConvolutionConfig(kind=kind, width=width, mask=mask)
    model = small_model("bert_a", "dot_product", "mixed", norm=norm, convolution=convolution)
    tokens, segments = rows(rng, batch=2, length=length)
    tokens, segments = np.array(tokens), np.array(segments)
    segments[0, 5:], segments[1, 7:] = 2, 0
    return model, random_params(Encoder(model), tokens, segments, std=0.5), tokens, segments


@pytest.mark.parametrize("kind", ["span_dynamic", "dynamic", "light"])
@pytest.mark.parametrize("mask, norm, width", [(True, "pre", 3), (False, "post", 25)])
def test_windows_over_the_values_are_what_the_heads_give(kind, mask, norm, width, rng):
    """The oracle makes its windows itself; what it makes of them is linear, so values of 1 and 0 read them out."""
    model, params, tokens, segments = a_case(kind, rng, mask, norm, width)
    positions = np.tile(np.arange(9), (2, 1))
    positions[0, 5:] = np.arange(4)
    found = convolution_windows(model, params, tokens, segments, positions)
    heads, d = model.attention_heads, model.head_width
    assert found.shape == (2, 2, 9, heads, width)
    np.testing.assert_allclose(found.sum(-1), 1)
    for layer, x_BxLxD in enumerate(attention_inputs(model, params, tokens, segments, positions)):
        tree = jax.tree.map(
            lambda leaf, layer=layer: np.float64(leaf[layer]), params["layers"]["attention"]["convolution"]
        )
        query = query_and_key(model, params, layer)[0]
        for row, x_LxD in enumerate(x_BxLxD):
            out_HxLxd = convolution_heads(tree, model, x_LxD, query(x_LxD).swapaxes(0, 1), segments[row])
            value_LxHxd = np.tensordot(x_LxD, tree["value"]["kernel"], 1) + tree["value"]["bias"]
            want_LxHxd = np.zeros((9, heads, d))
            for t in range(9):
                for slot in range(width):
                    at = t + slot - width // 2
                    inside = 0 <= at < 9
                    if inside and not (mask and (segments[row, at] != segments[row, t] or not segments[row, t])):
                        want_LxHxd[t] += found[layer, row, t, :, slot, None] * value_LxHxd[at]
            np.testing.assert_allclose(out_HxLxd.swapaxes(0, 1), want_LxHxd, atol=1e-10)


@pytest.mark.parametrize("kind, moves", [("span_dynamic", True), ("dynamic", False), ("light", False)])
def test_a_span_changes_with_its_words_and_other_windows_of_layer_1_do_not(kind, moves, rng):
    model, params, tokens, segments = a_case(kind, rng)
    tokens[1], segments[1] = tokens[0], segments[0]
    tokens[1, 1] = (tokens[0, 1] + 1) % model.vocab_size
    before_LxHxK, after_LxHxK = convolution_windows(model, params, tokens, segments)[0]
    assert np.allclose(before_LxHxK[2], after_LxHxK[2], atol=1e-9) != moves
    np.testing.assert_allclose(before_LxHxK[5:], after_LxHxK[5:], atol=1e-9)  # another text of the row


@pytest.mark.parametrize(
    "mixer, convolution",
    [
        ("mixed", ConvolutionConfig(kind="separable")),
        ("mixed", ConvolutionConfig(kind="none")),
        ("attention", ConvolutionConfig()),
    ],
)
def test_heads_without_windows_are_refused(mixer, convolution):
    model = ModelConfig(mixer=mixer, convolution=convolution)
    with pytest.raises(ValueError, match=f"{mixer!r}.*{convolution.kind!r}"):
        convolution_windows(model, {}, np.ones((1, 3), int), np.ones((1, 3), int))
