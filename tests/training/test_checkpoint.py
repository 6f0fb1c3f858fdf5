import json
import logging
import math
import pathlib
import shutil
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from posenc_jax.config import MeshConfig, MlmConfig
from posenc_jax.errors import UserError
from posenc_jax.objectives.mlm import Mlm
from posenc_jax.parallel.mesh import make_mesh
from posenc_jax.training.checkpoint import FOLDER, Checkpoints, Keep, read_params, restore_params, save_params
from posenc_jax.training.state import abstract_state, create_state
from tests.variants import small_model

OPTIMIZER = optax.adam(1e-3)


def objective(variant="tupe_r", **changes):
    return Mlm(small_model(variant, **{"vocab_size": 72, "width": 32, "heads": 4, **changes}), MlmConfig())


def mesh_of(devices):
    return make_mesh(MeshConfig(), jax.devices()[:devices])


def save(workdir, steps, devices=1, **meta):
    state = create_state(objective(), OPTIMIZER, mesh_of(devices), seed=0)
    with Checkpoints(workdir) as checkpoints:
        for step in steps:
            state = state.replace(step=jnp.int32(step), params=jax.tree.map(lambda leaf: leaf + 1, state.params))
            checkpoints.save(state, {"step": step, "seconds": 1.5, **meta})
    return jax.device_get(state)


def restore(workdir, devices=1, **options):
    with Checkpoints(workdir) as checkpoints:
        return checkpoints.restore(abstract_state(objective(), OPTIMIZER, mesh_of(devices)), **options)


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
    truncate(tmp_path / FOLDER / "2" / "params")
    assert int(restore(tmp_path)[0].step) == 1
    assert {"2.unreadable", "2.unreadable1"} <= {path.name for path in (tmp_path / FOLDER).iterdir()}


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
    save(tmp_path, [1], validation_loss=2.5)
    before = restore(tmp_path)[0]
    saved = save(tmp_path, [1, 2], validation_loss=2.5)
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


def kept_steps(workdir, losses, **keep):
    """Which of the steps stay, the second half saved after a restart."""
    state = create_state(objective(), OPTIMIZER, mesh_of(1), seed=0)
    half = len(losses) // 2
    for part in (range(half), range(half, len(losses))):
        with Checkpoints(workdir, Keep(**keep)) as checkpoints:
            for number in part:
                checkpoints.save(
                    state.replace(step=jnp.int32(number + 1)), {"step": number + 1, "validation_loss": losses[number]}
                )
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


@pytest.mark.parametrize("damage", [b"", b'{"validation_l', b'{"validation_losr": 1.0}', b"\xff\xfe", b"[1]"])
def test_a_damaged_loss_costs_no_checkpoint_and_the_best_stays_it(tmp_path, damage):
    kept_steps(tmp_path, [1.0, 2.0], newest=2, best=1)
    (tmp_path / FOLDER / "1" / "metrics" / "metrics").write_bytes(damage)
    assert kept_steps(tmp_path, [None, None, 3.0, 4.0], newest=1, best=1) == [1, 4]


def restore_into(workdir, target):
    with Checkpoints(workdir) as checkpoints:
        return checkpoints.restore(target)


@pytest.mark.parametrize(
    ("other", "optimizer", "differences"),
    [
        (dict(width=64), OPTIMIZER, ["key/bias: the checkpoint has float32[2, 4, 8], the config wants "]),
        (dict(variant="bert_a"), OPTIMIZER, ["the checkpoint has float32[", "the config wants none", "and "]),
        (dict(), optax.sgd(1e-3), ["opt_state/0/count: the checkpoint has int32[], the config wants none", "more"]),
    ],
)  # fmt: skip
def test_a_checkpoint_of_another_config_is_refused_with_what_differs_and_stays(tmp_path, other, optimizer, differences):
    save(tmp_path, [1, 2])
    target = abstract_state(objective(**other), optimizer, mesh_of(1))
    with pytest.raises(UserError, match=r"checkpoint 2 in .* is of another model than the config: ") as refusal:
        restore_into(tmp_path, target)
    for words in [*differences, "Put back the config.json"]:
        assert words in str(refusal.value)
    assert len(str(refusal.value)) < 900
    assert sorted(path.name for path in (tmp_path / FOLDER).iterdir()) == ["1", "2"]


def test_parameters_of_another_config_are_refused_with_what_differs(tmp_path):
    save(tmp_path, [1, 2])
    target = abstract_state(objective(width=64), OPTIMIZER, mesh_of(1)).params["encoder"]
    with pytest.raises(UserError, match=r"key/bias: the checkpoint has float32\[2, 4, 8\], the config wants float32"):
        restore_params(tmp_path, {"encoder": target})


def test_a_listing_that_has_lost_an_array_is_not_taken_for_another_config(tmp_path):
    save(tmp_path, [1, 2])
    listing = tmp_path / FOLDER / "2" / "params" / "_METADATA"
    content = json.loads(listing.read_text())
    content["tree_metadata"].popitem()
    listing.write_text(json.dumps(content))
    told = []
    state, _ = restore(tmp_path, warn=told.append)
    assert int(state.step) == 1 and "checkpoint 2 cannot be read" in told[0]


def without_record(step):
    meta = step / "meta" / "metadata"
    content = json.loads(meta.read_text())
    del content["arrays"]
    meta.write_text(json.dumps(content))


def test_a_checkpoint_from_before_there_were_sums_is_read(tmp_path):
    saved = save(tmp_path, [1])
    without_record(tmp_path / FOLDER / "1")
    state, meta = restore(tmp_path)
    assert_equal(state, saved)
    assert meta == {"step": 1, "seconds": 1.5}
    assert_equal(read_params(tmp_path)[0], saved.params)


@pytest.mark.parametrize("damage", [lambda meta: meta.write_text(meta.read_text()[:50]), lambda meta: meta.unlink()])
def test_parameters_whose_record_is_damaged_are_not_taken_unchecked(tmp_path, damage):
    saved, told = save(tmp_path, [1, 2]), []
    damage(tmp_path / FOLDER / "2" / "meta" / "metadata")
    target = abstract_state(objective(), OPTIMIZER, mesh_of(1)).params
    for params, step in (read_params(tmp_path, told.append), restore_params(tmp_path, target, told.append)):
        assert step == 1 and "checkpoint 2 cannot be read" in told.pop()
        np.testing.assert_array_equal(params["encoder"]["words"] + 1, saved.params["encoder"]["words"])


def test_a_float64_from_elsewhere_is_whole_without_x64(tmp_path):
    params = {"encoder": {"words": np.arange(20).reshape(5, 4) / 7}}
    save_params(tmp_path, params)
    assert_equal(read_params(tmp_path)[0], params)


def change_one_bit(step, whole):
    """Writes parameters anew of which one bit is another, as a disk that lies does: every file is well-formed."""
    params = jax.tree.map(np.array, whole)
    params["encoder"]["words"].view(np.uint32)[3, 1] ^= 1
    shutil.rmtree(step / "params")
    with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as writer:
        writer.save(step.absolute() / "params", args=ocp.args.StandardSave(params))


@pytest.mark.parametrize("read", ["state", "all", "whole", "part"])
def test_one_other_bit_in_files_that_are_well_formed_is_found(tmp_path, read):
    saved = save(tmp_path, [1, 2])
    target, told = abstract_state(objective(), OPTIMIZER, mesh_of(1)), []
    readers = {
        "state": lambda: (restore(tmp_path, warn=told.append)[0].params, 1),
        "all": lambda: read_params(tmp_path, told.append),
        "whole": lambda: restore_params(tmp_path, target.params, told.append),
        "part": lambda: restore_params(tmp_path, {"encoder": target.params["encoder"]}, told.append),
    }
    change_one_bit(tmp_path / FOLDER / "2", saved.params)
    params, step = readers[read]()
    assert step == 1 and "checkpoint 2 cannot be read" in told[0]
    np.testing.assert_array_equal(params["encoder"]["words"] + 1, saved.params["encoder"]["words"])


def test_parameters_brought_from_elsewhere_are_checked_too(tmp_path):
    params = {"encoder": {"words": np.arange(20, dtype=np.float32).reshape(5, 4)}}
    save_params(tmp_path, params)
    read, step = read_params(tmp_path)
    assert step == 0 and type(read["encoder"]["words"]) is np.ndarray
    assert_equal(read, params)
    change_one_bit(tmp_path / FOLDER / "0", params)
    with pytest.raises(UserError, match="its numbers are not those that were saved"):
        read_params(tmp_path)


def test_what_a_killed_save_left_is_removed_at_the_next_start_and_nothing_else(tmp_path):
    save(tmp_path, [1, 2])
    folder = tmp_path / FOLDER
    shutil.copytree(folder / "2", folder / "3.orbax-checkpoint-tmp")
    shutil.copytree(folder / "2", folder / "4.orbax-checkpoint-tmp-1796")
    shutil.copytree(folder / "2", folder / "5.unreadable")
    assert int(restore(tmp_path)[0].step) == 2
    assert sorted(path.name for path in folder.iterdir()) == ["1", "2", "5.unreadable"]


def fail_in_the_background(checkpoints):
    state = create_state(objective(), OPTIMIZER, mesh_of(1), seed=0)
    checkpoints.save(state.replace(step=jnp.int32(10)), {"step": 10, "this": {1, 2}})  # JSON is made late
    return state


TOLD = "cannot write checkpoint 10 in .*type set"


def test_a_write_that_failed_is_told_by_its_step_before_the_next(tmp_path):
    with Checkpoints(tmp_path) as checkpoints:
        state = fail_in_the_background(checkpoints)
        with pytest.raises(UserError, match=TOLD):
            checkpoints.save(state.replace(step=jnp.int32(20)), {"step": 20})


@pytest.mark.parametrize("ends", [KeyboardInterrupt, UserError])
def test_a_write_that_failed_is_told_at_the_end_unless_something_else_ends_the_run(tmp_path, ends):
    with pytest.raises(UserError, match=TOLD), Checkpoints(tmp_path / "one") as checkpoints:
        fail_in_the_background(checkpoints)
    with pytest.raises(ends, match="this is why"), Checkpoints(tmp_path / "other") as checkpoints:
        fail_in_the_background(checkpoints)
        raise ends("this is why")


def test_only_orbax_is_silenced_and_only_while_any_is_open(tmp_path, caplog, monkeypatch):
    heard = []
    monkeypatch.setattr(sys, "unraisablehook", hook := heard.append)
    closed_loop = types.SimpleNamespace(exc_value=RuntimeError("Event loop is closed"))
    logger = logging.getLogger("absl")
    monkeypatch.setattr(logger, "propagate", True)

    def told_by(package):
        caplog.clear()
        file = str(pathlib.Path(package.__file__).parent / "module.py")
        logger.handle(logging.LogRecord("absl", logging.ERROR, file, 1, "words", None, None))
        sys.unraisablehook(closed_loop)
        return len(caplog.records), len(heard)

    first, second = Checkpoints(tmp_path / "first"), Checkpoints(tmp_path / "second")
    assert told_by(ocp) == (0, 0) and told_by(jax) == (1, 0)
    first.close()
    assert told_by(ocp) == (0, 0) and told_by(jax) == (1, 0)
    second.close()
    assert sys.unraisablehook is hook and told_by(ocp) == (1, 1)


MESHES = [dict(data=8), dict(data=2, fsdp=2, tensor=2), dict(data=1), dict(data=1, fsdp=4, tensor=2)]


def test_a_state_goes_from_mesh_to_mesh_bit_for_bit(tmp_path, rng):
    """Saved on each mesh, restored on the next, saved again: parameters and optimizer state stay what they were."""
    meshes = [make_mesh(MeshConfig(**sizes), jax.devices()[: math.prod(sizes.values())]) for sizes in MESHES]
    state = create_state(objective(), OPTIMIZER, meshes[0], seed=0)
    drawn = lambda leaf: jax.device_put(rng.normal(size=leaf.shape).astype(np.float32), leaf.sharding)  # noqa: E731
    moved = jax.tree.map(drawn, state.opt_state[0].mu)
    state = state.replace(opt_state=(state.opt_state[0]._replace(mu=moved), *state.opt_state[1:]))
    whole = jax.device_get((state.params, state.opt_state))
    for step, mesh in enumerate([*meshes[1:], meshes[0]], 1):
        target = abstract_state(objective(), OPTIMIZER, mesh)
        with Checkpoints(tmp_path) as checkpoints:
            checkpoints.save(state.replace(step=jnp.int32(step)), {"step": step})
            checkpoints.wait()
            state, _ = checkpoints.restore(target)
        assert_equal((state.params, state.opt_state), whole)
        laid = jax.tree.map(lambda leaf, want: leaf.sharding.is_equivalent_to(want.sharding, leaf.ndim), state, target)
        assert all(jax.tree.leaves(laid))
        assert state.params["encoder"]["words"].sharding.is_fully_replicated == (mesh.shape["fsdp"] == 1)


def test_a_half_written_step_is_not_taken_for_a_checkpoint(tmp_path):
    save(tmp_path, [1, 2])
    (tmp_path / FOLDER / "2" / "commit_success.txt").unlink(missing_ok=True)
    (tmp_path / FOLDER / "2").rename(tmp_path / FOLDER / "2.orbax-checkpoint-tmp-77")
    assert int(restore(tmp_path)[0].step) == 1


def test_the_reason_is_more_than_a_name_that_the_reader_missed(tmp_path):
    save(tmp_path, [1])
    path = tmp_path / FOLDER / "1" / "params" / "_METADATA"
    path.write_text(path.read_text().replace("key_type", "kez_type"))
    with pytest.raises(UserError, match=r"can be read \(KeyError 'key_type'\)"):
        restore(tmp_path)
    with pytest.raises(UserError, match=r"KeyError 'key_type'\); put back a whole copy, or name another workdir"):
        read_params(tmp_path)


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


def test_one_step_is_read_by_its_number(tmp_path):
    saved = save(tmp_path, [1, 2])
    for params, step in (read_params(tmp_path, step=1), restore_params(tmp_path, saved.params, step=1)):
        assert step == 1
        np.testing.assert_array_equal(params["encoder"]["words"] + 1, saved.params["encoder"]["words"])
    with pytest.raises(UserError, match=r"no checkpoint 3; there are: 1, 2"):
        read_params(tmp_path, step=3)


def test_reading_parameters_where_there_are_none_names_the_mend(tmp_path):
    with pytest.raises(UserError, match=r"no checkpoint that can be read .*run `pretrain`"):
        restore_params(tmp_path, {})
