"""The dense carrier, Eq. (11): squared innovation channels pooled independently for every operation.

It couples operation identity to the amount of change: operations with the same squares cannot be told apart.
"""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.linen.initializers import normal
from jaxtyping import Array, Float, PyTree

from soopf_jax.readouts.innovation import unit_scale
from soopf_jax.readouts.router import Router
from soopf_jax.types import Dims, PairView, Readout, ReadoutOutput


class Prepared(NamedTuple):
    """One pair, ready for any number of fits."""

    source: Float[Array, "patches channels"]
    squares: Float[Array, "patches channels"]
    """delta^2, divided by its sum over the pair."""


class Dense(nn.Module):
    """A non-negative weight per operation and channel."""

    supports: int
    operations: int
    router_width: int

    @nn.compact
    def __call__(self, pair: Prepared) -> ReadoutOutput:
        """E_{s,o} = sum_n M_{s,n} sum_c softplus(W_{o,c}) delta_{n,c}^2."""
        masks = Router(self.supports, self.router_width, name="router").masks(pair.source)
        weights = self.param("W", normal(0.1), (self.operations, pair.squares.shape[1]))
        return ReadoutOutput((masks @ pair.squares) @ jax.nn.softplus(weights).T, masks)


def prepare(pair: PairView) -> Prepared:
    """The squares, once for all fits and steps."""
    squares = unit_scale(pair.delta) ** 2
    total = jnp.sum(squares)
    return Prepared(pair.source, squares / jnp.where(total > 0, total, 1.0))


def init(key: jax.Array, dims: Dims) -> PyTree:
    """W ~ N(0, 0.1^2), the router as in SO-OPF."""
    tokens = jnp.zeros((dims.patches, dims.channels))
    model = Dense(dims.supports, dims.operations, dims.router_width)
    return model.init(key, Prepared(tokens, tokens))["params"]


def apply(params: PyTree, pair: Prepared, tau: Float[Array, ""]) -> ReadoutOutput:
    """Energy and masks of one pair; there is no posterior to temper."""
    del tau
    supports, router_width = params["router"]["q"].shape
    return Dense(supports, params["W"].shape[0], router_width).apply({"params": params}, pair)


READOUT = Readout(prepare, init, apply)
