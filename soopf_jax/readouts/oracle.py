"""The oracle-region operation classifier: it is given the edited region and only classifies the operation."""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.linen.initializers import lecun_normal
from jaxtyping import Array, Float, PyTree

from soopf_jax.readouts.innovation import unit_scale
from soopf_jax.types import Dims, PairView, Readout, ReadoutOutput


class Prepared(NamedTuple):
    """One pair, ready for any number of fits."""

    pooled: Float[Array, " channels"]
    """The innovation field averaged over the true region."""
    support: Float[Array, " supports"]
    """One-hot at the true support."""


class Oracle(nn.Module):
    """A two-layer operation head."""

    operations: int
    hidden: int

    @nn.compact
    def __call__(self, pair: Prepared) -> ReadoutOutput:
        """E_{s,o} = [s is the true support] p(o)."""
        hidden = nn.Dense(self.hidden, kernel_init=lecun_normal(), name="hidden")(pair.pooled)
        logits = nn.Dense(self.operations, kernel_init=lecun_normal(), name="operation")(
            jax.nn.gelu(hidden, approximate=False)
        )
        return ReadoutOutput(jnp.outer(pair.support, jax.nn.softmax(logits)))


def prepare(pair: PairView) -> Prepared:
    """Pool delta over the edited support's share of each patch."""
    return pool(pair, pair.delta.astype(jnp.float32))


def prepare_scaled(pair: PairView) -> Prepared:
    """Pool delta / rms(delta) over the edited support's share of each patch."""
    return pool(pair, unit_scale(pair.delta))


def pool(pair: PairView, delta: Float[Array, "patches channels"]) -> Prepared:
    """The mean of an innovation field over the edited support's share of each patch."""
    assert pair.region is not None, "the oracle sees the region"
    region = pair.region.astype(jnp.float32)
    share = region[:, pair.support]
    pooled = share @ delta / jnp.maximum(jnp.sum(share), 1e-6)
    return Prepared(pooled, jax.nn.one_hot(pair.support, region.shape[1]))


def init(key: jax.Array, dims: Dims) -> PyTree:
    """LeCun-normal weights and zero bias."""
    pair = Prepared(jnp.zeros(dims.channels), jnp.zeros(dims.supports))
    return Oracle(dims.operations, dims.hidden).init(key, pair)["params"]


def apply(params: PyTree, pair: Prepared, tau: Float[Array, ""]) -> ReadoutOutput:
    """Energy of one pair."""
    del tau
    hidden, operations = params["operation"]["kernel"].shape
    return Oracle(operations, hidden).apply({"params": params}, pair)


READOUT = Readout(prepare, init, apply, sees=("region", "support"), labels="native")
SCALED = Readout(prepare_scaled, init, apply, sees=("region", "support"), labels="native")
"""A variant that is not in the paper: the probe does not see how strong a change is."""
