"""Sines and cosines of the position, added to the words at the input (Vaswani et al. 2017, section 3.5)."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from posenc_jax.positions.part import Part
from posenc_jax.positions.places import Places


class Sinusoidal(Part):
    """x + amplitude * PE[position]; PE[p, 2i] = sin(p / 10000^(2i/E)), PE[p, 2i+1] = cos of the same.

    The amplitude is our choice: in the paper words start 1 wide beside waves 1 high, here words start `init_std`
    wide, and so the waves are that high unless `sinusoid_amplitude` says otherwise.
    """

    source: ClassVar[str] = "Vaswani et al. 2017, 3.5; amplitude our choice"
    knobs: ClassVar[tuple[str, ...]] = ("sinusoid_amplitude",)

    def embed(self, x_BxLxE: jax.Array, places: Places) -> jax.Array:
        width, amplitude = x_BxLxE.shape[-1], self.config.positions.sinusoid_amplitude or self.config.init_std
        exact = jnp.promote_types(x_BxLxE.dtype, jnp.float32)  # a bfloat16 position is wrong from 257 on
        axis_E = jnp.arange(width)
        frequency_E = 10_000.0 ** (-2.0 * (axis_E // 2).astype(exact) / width)
        angle_BxLxE = places.position_BxL[..., None].astype(exact) * frequency_E[None, None]
        wave_BxLxE = jnp.where(axis_E[None, None] % 2 == 0, jnp.sin(angle_BxLxE), jnp.cos(angle_BxLxE))
        return x_BxLxE + (amplitude * wave_BxLxE).astype(x_BxLxE.dtype)
