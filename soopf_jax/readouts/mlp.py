"""The MLP probe: a hidden layer on the mean-pooled innovation field, and a head each for support and operation."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.linen.initializers import lecun_normal
from jaxtyping import Array, Float, PyTree

from soopf_jax.readouts.innovation import unit_scale
from soopf_jax.types import Dims, PairView, Readout, ReadoutOutput


class MLP(nn.Module):
    """An MLP with two heads. The energy is the outer product of their posteriors."""

    supports: int
    operations: int
    hidden: int

    @nn.compact
    def __call__(self, pooled: Float[Array, " channels"]) -> ReadoutOutput:
        """E_{s,o} = p(s) p(o)."""
        hidden = nn.Dense(self.hidden, kernel_init=lecun_normal(), name="hidden")(pooled)
        hidden = jax.nn.gelu(hidden, approximate=False)
        support = nn.Dense(self.supports, kernel_init=lecun_normal(), name="support")(hidden)
        operation = nn.Dense(self.operations, kernel_init=lecun_normal(), name="operation")(hidden)
        return ReadoutOutput(jnp.outer(jax.nn.softmax(support), jax.nn.softmax(operation)))


def prepare(pair: PairView) -> Float[Array, " channels"]:
    """The mean over patches."""
    return jnp.mean(pair.delta.astype(jnp.float32), axis=0)


def prepare_scaled(pair: PairView) -> Float[Array, " channels"]:
    """The mean over patches of delta / rms(delta)."""
    return jnp.mean(unit_scale(pair.delta), axis=0)


def init(key: jax.Array, dims: Dims) -> PyTree:
    """LeCun-normal weights and zero bias."""
    return MLP(dims.supports, dims.operations, dims.hidden).init(key, jnp.zeros(dims.channels))["params"]


def apply(params: PyTree, pooled: Float[Array, " channels"], tau: Float[Array, ""]) -> ReadoutOutput:
    """Energy of one pair."""
    del tau
    hidden, supports = params["support"]["kernel"].shape
    operations = params["operation"]["bias"].shape[0]
    return MLP(supports, operations, hidden).apply({"params": params}, pooled)


READOUT = Readout(prepare, init, apply, labels="native")
SCALED = Readout(prepare_scaled, init, apply, labels="native")
"""A variant that is not in the paper: the probe does not see how strong a change is."""
