"""The bilinear carrier: a position factor times a content factor, with no competition between slots."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.linen.initializers import normal
from jaxtyping import Array, Float, PyTree

from soopf_jax.readouts.router import Router
from soopf_jax.readouts.soopf import Prepared, prepare
from soopf_jax.readouts.stride import as_wide
from soopf_jax.types import Dims, Readout, ReadoutOutput

FAR_BELOW = -15.0
"""Below this, softplus(x) is exp(x) in float32."""


def scaled_softplus(x: Float[Array, "supports operations"]) -> Float[Array, "supports operations"]:
    """softplus(x), times exp(-max x) where even the largest x is far below zero.

    A factor of the whole pair cancels in its normalised energy. Without it, that would be 0 / 0 in float32 for a pair
    whose energies have all died away, and its gradient not finite long before.
    """
    largest = jax.lax.stop_gradient(jnp.max(x))
    return jnp.where(largest < FAR_BELOW, jnp.exp(x - largest), jax.nn.softplus(x))


class Bilinear(nn.Module):
    """u_n = W_z z_src,n + p_n meets a_s, V LN(delta_n) meets b_o."""

    supports: int
    operations: int
    width: int
    channels: int

    @nn.compact
    def __call__(self, pair: Prepared) -> ReadoutOutput:
        """E_{s,o} = softplus(sum_n w_n (a_s . u_n)(b_o . V LN(delta_n))), w = salience normalised over patches."""
        position = Router(self.supports, self.width, self.channels, name="position")(pair.source)
        v = self.param("V", normal(self.channels**-0.5), (self.channels, self.width))
        b = self.param("b", normal(self.width**-0.5), (self.operations, self.width))
        folded = as_wide(v @ b.T, pair.content, axis=0)  # like the router's: <V x, b> = <x, V^T b>
        content = pair.content @ folded
        return ReadoutOutput(scaled_softplus((position * pair.salience) @ content))


def init(key: jax.Array, dims: Dims) -> PyTree:
    """a and b ~ N(0, 1/R), W_z and V ~ N(0, 1/D), p ~ N(0, 0.02^2)."""
    tokens = jnp.zeros((dims.patches, dims.channels))
    model = Bilinear(dims.supports, dims.operations, dims.router_width, dims.channels)
    return model.init(key, Prepared(tokens, tokens, tokens[:, 0], tokens[0]))["params"]


def apply(params: PyTree, pair: Prepared, tau: Float[Array, ""]) -> ReadoutOutput:
    """Energy of one pair; there are no masks, and no posterior to temper."""
    del tau
    operations, width = params["b"].shape
    supports, channels = params["position"]["q"].shape[0], params["V"].shape[0]
    return Bilinear(supports, operations, width, channels).apply({"params": params}, pair)


READOUT = Readout(prepare, init, apply)
