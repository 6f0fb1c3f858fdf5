import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from posenc_jax.training.fingerprint import _bit_sum_numpy, bit_sums, described, differences


def expected(x):
    """The sum as its docstring has it, word by word in Python's whole numbers."""
    words = np.asarray(x).view({1: np.uint8, 2: np.uint16}.get(x.dtype.itemsize, np.uint32)).ravel()
    return sum(int(word) * (2 * place + 1) for place, word in enumerate(words)) % 2**32


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int8", "int32", "bool"])
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (2, 1, 4)])
def test_the_sum_is_each_word_times_an_odd_number_of_its_place(rng, dtype, shape):
    x = jnp.asarray(rng.normal(size=shape) * 9, dtype)
    assert bit_sums({"x": x}) == {"x": expected(x)}
    assert bit_sums({"x": np.asarray(x)}) == {"x": expected(x)}
    assert _bit_sum_numpy(np.asarray(x), at_once=2) == expected(x)


def test_numpys_arrays_are_summed_as_they_are_without_a_device(rng):
    x = rng.normal(size=(3, 5))
    with jax.enable_x64(True):
        assert bit_sums({"x": jnp.asarray(x)}) == {"x": expected(x)}
    with jax.transfer_guard("disallow"):
        assert bit_sums({"x": x, "turned": x.T}) == {"x": expected(x), "turned": expected(x.T.copy())}


def test_any_flipped_bit_and_any_two_places_exchanged_change_it(rng):
    x = np.asarray(rng.normal(size=(3, 5)), np.float32)
    whole = bit_sums({"x": x})["x"]
    for bit in range(32):
        flipped = x.copy().view(np.uint32)
        flipped[1, 2] ^= np.uint32(1 << bit)
        assert bit_sums({"x": flipped.view(np.float32)})["x"] != whole
    assert bit_sums({"x": x.reshape(5, 3).T.copy()})["x"] != whole


def test_names_are_those_of_the_tree_and_the_sum_of_a_part_is_that_of_the_whole():
    params = {"encoder": {"words": jnp.ones((2, 3))}, "head": jnp.zeros(4, jnp.bfloat16)}
    state = optax.adam(1.0).init(params)
    kinds = described({"params": params, "opt_state": jax.eval_shape(lambda: state)})
    assert kinds["params/encoder/words"] == "float32[2, 3]" and kinds["params/head"] == "bfloat16[4]"
    assert kinds["opt_state/0/count"] == "int32[]" and kinds["opt_state/0/mu/encoder/words"] == "float32[2, 3]"
    part = bit_sums({"params": {"encoder": params["encoder"]}})
    assert part.items() <= bit_sums({"params": params, "opt_state": state}).items()


def test_differences_name_what_is_other_missing_or_too_much_parameters_first():
    there = {"opt_state/0": "f[1]", "params/a": "f[1]", "params/b": "f[2]", "params/same": "f[3]"}
    wanted = {"opt_state/0": "f[9]", "params/b": "f[7]", "params/c": "f[1]", "params/same": "f[3]"}
    assert differences(there, wanted) == [
        "params/a: the checkpoint has f[1], the config wants none",
        "params/b: the checkpoint has f[2], the config wants f[7]",
        "params/c: the checkpoint has none, the config wants f[1]",
        "opt_state/0: the checkpoint has f[1], the config wants f[9]",
    ]
    assert differences(there, wanted, shown=1)[1:] == ["and 3 more"]
    assert differences(there, there) == []
