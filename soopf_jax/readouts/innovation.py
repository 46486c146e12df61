"""Scale, salience and content of the innovation field of one pair. They do not depend on a readout's parameters."""

import jax.numpy as jnp
from jaxtyping import Array, Float

LN_EPSILON = 1e-5


def unit_scale(delta: Float[Array, "patches channels"]) -> Float[Array, "patches channels"]:
    """delta / rms(delta), in float32; an all-zero delta stays zero.

    Everything computed from the result is independent of the encoder's scale, in spite of the epsilon in `layer_norm`.
    The first division, by max |delta|, keeps the squares within the range of float32 for any finite delta.
    """
    delta = delta.astype(jnp.float32)
    delta = delta / _or_one(jnp.max(jnp.abs(delta)))
    return delta / _or_one(jnp.sqrt(jnp.mean(delta**2)))


def salience(delta: Float[Array, "patches channels"]) -> Float[Array, " patches"]:
    """sal_n = ||delta_n||^2, divided by its sum over the pair; all zero if delta is."""
    squared_norm = jnp.sum(delta**2, axis=-1)
    return squared_norm / _or_one(jnp.sum(squared_norm))


def layer_norm(delta: Float[Array, "patches channels"]) -> Float[Array, "patches channels"]:
    """LN(delta_n): every patch scaled to zero mean and unit variance, without affine parameters."""
    mean, deviation = moments(delta)
    return (delta - mean) / deviation


def moments(delta: Float[Array, "patches channels"]) -> tuple[Float[Array, "patches 1"], Float[Array, "patches 1"]]:
    """The mean and the standard deviation of every patch that `layer_norm` divides out, its epsilon included."""
    mean = jnp.mean(delta, axis=-1, keepdims=True)
    return mean, jnp.sqrt(jnp.mean((delta - mean) ** 2, axis=-1, keepdims=True) + LN_EPSILON)


def root_mean_square(delta: Float[Array, "patches channels"]) -> Float[Array, ""]:
    """The number that `unit_scale` divides by, for a delta whose squares float32 can hold; 1 if delta is zero."""
    return _or_one(jnp.sqrt(jnp.mean(delta.astype(jnp.float32) ** 2)))


def _or_one(scale: Float[Array, ""]) -> Float[Array, ""]:
    return jnp.where(scale > 0, scale, 1.0)
