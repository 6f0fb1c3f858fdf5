"""The encoder and its heads, pure Flax Linen."""
