import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from posenc_jax.config import MeshConfig, MlmConfig
from posenc_jax.errors import UserError
from posenc_jax.objectives.mlm import Mlm
from posenc_jax.parallel.mesh import make_mesh
from posenc_jax.training.checkpoint import FOLDER, Checkpoints, Keep, _bit_sum, _sums, restore_params
from posenc_jax.training.state import abstract_state, create_state
from tests.variants import small_model

OPTIMIZER = optax.adam(1e-3)


def objective():
    return Mlm(small_model("tupe_r", vocab_size=72, width=32, heads=4), MlmConfig())


def mesh_of(devices):
    return make_mesh(MeshConfig(), jax.devices()[:devices])


def save(workdir, steps, devices=1):
    checkpoints = Checkpoints(workdir)
    state = create_state(objective(), OPTIMIZER, mesh_of(devices), seed=0)
    for step in steps:
        state = state.replace(step=jnp.int32(step), params=jax.tree.map(lambda leaf: leaf + 1, state.params))
        checkpoints.save(state, {"step": step, "seconds": 1.5})
    checkpoints.wait()
    checkpoints.close()
    return jax.device_get(state)


def restore(workdir, devices=1, **options):
    checkpoints = Checkpoints(workdir)
    try:
        return checkpoints.restore(abstract_state(objective(), OPTIMIZER, mesh_of(devices)), **options)
    finally:
        checkpoints.close()


def assert_equal(tree, other):
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(tree), jax.device_get(other))


@pytest.mark.parametrize(("wrote", "reads"), [(1, 8), (8, 1), (8, 8)])
def test_a_state_is_restored_bit_for_bit_on_any_number_of_devices(tmp_path, wrote, reads):
    saved = save(tmp_path, [3], devices=wrote)
    state, meta = restore(tmp_path, devices=reads)
    assert_equal(state, saved)
    assert meta == {"step": 3, "seconds": 1.5}
    assert len(state.params["encoder"]["words"].sharding.device_set) == reads


def test_an_empty_folder_restores_nothing(tmp_path):
    assert restore(tmp_path) is None


def test_only_the_newest_are_kept(tmp_path):
    save(tmp_path, [1, 2, 3, 4, 5])
    assert sorted(path.name for path in (tmp_path / FOLDER).iterdir()) == ["3", "4", "5"]


def truncate(folder):
    """Cuts every larger file of a checkpoint's parameters in half."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size > 2000]
    assert files
    for path in files:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_a_truncated_newest_step_is_set_aside_and_the_one_before_is_used(tmp_path):
    save(tmp_path, [1])
    first = restore(tmp_path)[0]
    save(tmp_path, [1, 2])
    truncate(tmp_path / FOLDER / "2" / "params")
    told = []
    state, _ = restore(tmp_path, warn=told.append)
    assert_equal(state, first)
    assert (tmp_path / FOLDER / "2.unreadable").is_dir()
    assert "checkpoint 2 cannot be read" in told[0] and "going on from step 1" in told[0]
    assert int(restore(tmp_path)[0].step) == 1
    save(tmp_path, [2])  # the place is free again
    assert int(restore(tmp_path)[0].step) == 2


def bits_of(folder, spacing):
    """(file, bit) pairs through every file of a checkpoint, some tens of them in large files."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and (size := path.stat().st_size):
            for byte in range(size // 2 % spacing, size, max(spacing, size // 4)):
                yield path, 8 * byte + byte % 8


def flip(path, bit):
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def test_one_flipped_bit_anywhere_is_found_or_changes_nothing(tmp_path):
    save(tmp_path, [1])
    before = restore(tmp_path)[0]
    saved = save(tmp_path, [1, 2])
    fallbacks = tried = 0
    for path, bit in bits_of(tmp_path / FOLDER / "2", 97):
        flip(path, bit)
        told = []
        state, _ = restore(tmp_path, warn=told.append)
        tried += 1
        if told:
            fallbacks += 1
            assert "checkpoint 2 cannot be read and is set aside" in told[0]
            (tmp_path / FOLDER / "2.unreadable").rename(tmp_path / FOLDER / "2")
        assert_equal(state, before if told else saved)
        flip(path, bit)
    assert tried > 20 and fallbacks > 5


def test_sums_are_the_same_on_every_mesh_and_any_bit_changes_them():
    state = create_state(objective(), OPTIMIZER, mesh_of(1), seed=0)
    once = _sums(state)
    assert _sums(create_state(objective(), OPTIMIZER, mesh_of(8), seed=0)) == once
    x = jnp.asarray(np.random.default_rng(0).normal(size=(3, 5)), jnp.float32)
    whole = int(_bit_sum(x))
    for bit in range(32):
        flipped = np.asarray(x).copy().view(np.uint32)
        flipped[1, 2] ^= np.uint32(1 << bit)
        assert int(_bit_sum(jnp.asarray(flipped.view(np.float32)))) != whole
    assert int(_bit_sum(x.T)) != whole  # places count
    for dtype in (jnp.bfloat16, jnp.int8, jnp.bool_):
        assert int(_bit_sum(jnp.ones((2, 2), dtype))) > 0


def kept_steps(workdir, losses, **keep):
    """Which of the steps stay, the second half saved after a restart."""
    state = create_state(objective(), OPTIMIZER, mesh_of(1), seed=0)
    half = len(losses) // 2
    for part in (range(half), range(half, len(losses))):
        checkpoints = Checkpoints(workdir, Keep(**keep))
        for number in part:
            checkpoints.save(
                state.replace(step=jnp.int32(number + 1)), {"step": number + 1, "validation_loss": losses[number]}
            )
        checkpoints.wait()
        checkpoints.close()
    return sorted(int(path.name) for path in (workdir / FOLDER).iterdir() if path.name.isdigit())


@pytest.mark.parametrize(
    ("keep", "kept"),
    [
        (dict(newest=2), [7, 8]),
        (dict(newest=1, every=3), [3, 6, 8]),
        (dict(newest=1, best=2), [2, 5, 8]),
        (dict(newest=1, every=4, best=1), [4, 5, 8]),
    ],
)
def test_the_newest_every_nth_and_the_best_stay_also_over_a_restart(tmp_path, keep, kept):
    assert kept_steps(tmp_path, [5.0, 2.0, 4.0, None, 1.0, 3.0, None, 6.0], **keep) == kept


def test_a_half_written_step_is_not_taken_for_a_checkpoint(tmp_path):
    save(tmp_path, [1, 2])
    (tmp_path / FOLDER / "2" / "commit_success.txt").unlink(missing_ok=True)
    (tmp_path / FOLDER / "2").rename(tmp_path / FOLDER / "2.orbax-checkpoint-tmp-77")
    assert int(restore(tmp_path)[0].step) == 1


def test_when_no_step_can_be_read_nothing_is_moved_and_the_mend_is_named(tmp_path):
    save(tmp_path, [1])
    truncate(tmp_path / FOLDER / "1")
    with pytest.raises(UserError, match=r"none of the checkpoints 1 .* can be read .*put back a whole copy"):
        restore(tmp_path)
    assert (tmp_path / FOLDER / "1").is_dir()


def test_parameters_alone_and_a_part_of_them_can_be_read(tmp_path):
    saved = save(tmp_path, [1, 2])
    target = abstract_state(objective(), OPTIMIZER, mesh_of(1)).params
    params, step = restore_params(tmp_path, target)
    assert_equal(params, saved.params)
    assert step == 2
    params, _ = restore_params(tmp_path, {"encoder": target["encoder"]})
    assert_equal(params, {"encoder": saved.params["encoder"]})
    truncate(tmp_path / FOLDER / "2" / "params")
    told = []
    earlier, step = restore_params(tmp_path, {"encoder": target["encoder"]}, warn=told.append)
    assert step == 1 and "checkpoint 2 cannot be read" in told[0]
    np.testing.assert_array_equal(earlier["encoder"]["words"] + 1, saved.params["encoder"]["words"])


def test_reading_parameters_where_there_are_none_names_the_mend(tmp_path):
    with pytest.raises(UserError, match=r"no checkpoint that can be read .*run `pretrain`"):
        restore_params(tmp_path, {})
