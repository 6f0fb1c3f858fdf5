"""Eight simulated devices, and array mistakes that NumPy forgives are errors."""

import importlib.metadata
import os

os.environ["JAX_PLATFORMS"] = "cpu"
# Unoptimised machine code: most of a test's time is compilation, and what is tested is the arithmetic. The last two
# flags compile two times faster; newer versions know them no more.
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0" + (
    " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    if importlib.metadata.version("jax").startswith("0.10.")
    else ""
)

import jax
import numpy as np
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "standard")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="module", autouse=True)
def _forget_compiled_code():
    """Two workers would otherwise keep four gigabytes each by the end."""
    yield
    jax.clear_caches()
