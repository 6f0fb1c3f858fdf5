"""Which tasks a command line gets, and what it is told of the others."""

import pytest

from posenc_jax.data.tasks import GLUE_TASKS
from posenc_jax.errors import UserError
from posenc_jax.evaluation.glue.task_data import load_tasks

RTE = "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n1\tc\td\tnot_entailment\n"


@pytest.mark.parametrize("tfds", [False, True])
def test_all_stands_for_what_is_there_and_each_absent_task_is_named_with_the_reason(tmp_path, tfds):
    with pytest.raises(UserError) as caught:
        load_tasks(f"tfds:{tmp_path}" if tfds else tmp_path, ["all"])
    for name in GLUE_TASKS:
        assert f"{name} is left out: " in str(caught.value)


def test_what_is_there_but_damaged_is_not_left_out(tmp_path):
    (tmp_path / "RTE").mkdir()
    for split in ("train", "dev"):
        (tmp_path / "RTE" / f"{split}.tsv").write_text(RTE)
    tasks, skipped = load_tasks(tmp_path, ["all"])
    assert [task.spec.name for task in tasks] == ["RTE"] and len(skipped) == len(GLUE_TASKS) - 1
    (tmp_path / "RTE" / "dev.tsv").write_text(RTE + "2\te")
    with pytest.raises(UserError, match="line 4 is cut short"):
        load_tasks(tmp_path, ["all"])
