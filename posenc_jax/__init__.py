"""posenc_jax: pre-training of encoder language models in JAX, where the position scheme is one config line."""

__version__ = "0.1.0"
