import pytest

from posenc_jax.config import Config
from posenc_jax.errors import UsageError
from posenc_jax.training.workdir import open_workdir
from tests.tiny_rows import write_rows


def test_a_run_does_not_live_among_its_rows(tmp_path, monkeypatch):
    info = write_rows(tmp_path / "rows", train=20)
    before = set(info.path.iterdir())
    monkeypatch.chdir(tmp_path)
    for workdir in (info.path, info.path / ".." / "rows", info.path.relative_to(tmp_path)):
        with pytest.raises(UsageError, match="is the folder of the rows"):
            open_workdir(workdir, Config(), info)
    assert set(info.path.iterdir()) == before
