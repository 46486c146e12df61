"""The attention probe: a learned query pools the innovation tokens, one for the support and one for the operation."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.linen.initializers import lecun_normal, normal
from jaxtyping import Array, Float, PyTree

from soopf_jax.readouts.innovation import unit_scale
from soopf_jax.types import Dims, PairView, Readout, ReadoutOutput


class Head(nn.Module):
    """softmax(W sum_n a_n x_n + b) with a = softmax_n(<x_n, k> / sqrt(D)); k is the query."""

    values: int

    @nn.compact
    def __call__(self, tokens: Float[Array, "patches channels"]) -> Float[Array, " values"]:
        """The posterior over the values of one axis."""
        channels = tokens.shape[1]
        query = self.param("query", normal(1.0), (channels,))
        attention = jax.nn.softmax(tokens @ query / channels**0.5)
        return jax.nn.softmax(nn.Dense(self.values, kernel_init=lecun_normal(), name="out")(attention @ tokens))


class Attention(nn.Module):
    """The energy is the outer product of the two heads' posteriors."""

    supports: int
    operations: int

    @nn.compact
    def __call__(self, tokens: Float[Array, "patches channels"]) -> ReadoutOutput:
        """E_{s,o} = p(s) p(o)."""
        support, operation = Head(self.supports, name="support"), Head(self.operations, name="operation")
        return ReadoutOutput(jnp.outer(support(tokens), operation(tokens)))


def prepare(pair: PairView) -> Float[Array, "patches channels"]:
    """The innovation tokens."""
    return pair.delta.astype(jnp.float32)


def prepare_scaled(pair: PairView) -> Float[Array, "patches channels"]:
    """The innovation tokens at unit scale, delta / rms(delta)."""
    return unit_scale(pair.delta)


def init(key: jax.Array, dims: Dims) -> PyTree:
    """Queries ~ N(0, 1); the heads have LeCun-normal weights and zero bias."""
    tokens = jnp.zeros((dims.patches, dims.channels))
    return Attention(dims.supports, dims.operations).init(key, tokens)["params"]


def apply(params: PyTree, tokens: Float[Array, "patches channels"], tau: Float[Array, ""]) -> ReadoutOutput:
    """Energy of one pair."""
    del tau
    sizes = (params[axis]["out"]["bias"].shape[0] for axis in ("support", "operation"))
    return Attention(*sizes).apply({"params": params}, tokens)


READOUT = Readout(prepare, init, apply, labels="native")
SCALED = Readout(prepare_scaled, init, apply, labels="native")
"""A variant that is not in the paper: the probe does not see how strong a change is."""
