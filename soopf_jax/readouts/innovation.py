"""What readouts take from an innovation field, whatever their parameters: scale, salience, content. For one pair."""

import jax.numpy as jnp
from jaxtyping import Array, Float

LN_EPSILON = 1e-5


def unit_scale(delta: Float[Array, "patches channels"]) -> Float[Array, "patches channels"]:
    """delta / rms(delta), in float32; zero stays zero.

    Makes all that follows independent of the encoder's scale, LN's epsilon included. The detour over
    max |delta| keeps the squares inside float32 for any finite delta.
    """
    delta = delta.astype(jnp.float32)
    delta = delta / _or_one(jnp.max(jnp.abs(delta)))
    return delta / _or_one(jnp.sqrt(jnp.mean(delta**2)))


def salience(delta: Float[Array, "patches channels"]) -> Float[Array, " patches"]:
    """sal_n = ||delta_n||^2, divided by its sum over the pair; all zero where delta is."""
    squared_norm = jnp.sum(delta**2, axis=-1)
    return squared_norm / _or_one(jnp.sum(squared_norm))


def layer_norm(delta: Float[Array, "patches channels"]) -> Float[Array, "patches channels"]:
    """LN(delta_n): every patch to zero mean and unit variance (two-pass), without affine parameters."""
    centred = delta - jnp.mean(delta, axis=-1, keepdims=True)
    return centred / jnp.sqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + LN_EPSILON)


def _or_one(scale: Float[Array, ""]) -> Float[Array, ""]:
    return jnp.where(scale > 0, scale, 1.0)
