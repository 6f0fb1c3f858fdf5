import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from posenc_jax.config import MeshConfig, MlmConfig
from posenc_jax.errors import UserError
from posenc_jax.objectives.mlm import Mlm
from posenc_jax.parallel.mesh import make_mesh
from posenc_jax.training.checkpoint import FOLDER, Checkpoints, restore_params
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
