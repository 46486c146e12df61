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
from soopf_jax.readouts.stride import as_wide, widen
from soopf_jax.types import Dims, PairView, Readout, ReadoutOutput


class Prepared(NamedTuple):
    """One pair, ready for any number of fits; `wide`: the channels, and perhaps zeros behind them."""

    source: Float[Array, "patches wide"]
    squares: Float[Array, "patches wide"]
    """delta^2, divided by its sum over the pair."""


class Dense(nn.Module):
    """A non-negative weight per operation and channel."""

    supports: int
    operations: int
    router_width: int
    channels: int

    @nn.compact
    def __call__(self, pair: Prepared) -> ReadoutOutput:
        """E_{s,o} = sum_n M_{s,n} sum_c softplus(W_{o,c}) delta_{n,c}^2."""
        masks = Router(self.supports, self.router_width, self.channels, name="router").masks(pair.source)
        weights = jax.nn.softplus(self.param("W", normal(0.1), (self.operations, self.channels)))
        return ReadoutOutput((masks @ pair.squares) @ as_wide(weights, pair.squares).T, masks)


def prepare(pair: PairView) -> Prepared:
    """The squares, once for all fits and steps."""
    squares = unit_scale(pair.delta) ** 2
    total = jnp.sum(squares)
    return Prepared(widen(pair.source), widen(squares / jnp.where(total > 0, total, 1.0)))


def init(key: jax.Array, dims: Dims) -> PyTree:
    """W ~ N(0, 0.1^2), the router as in SO-OPF."""
    tokens = jnp.zeros((dims.patches, dims.channels))
    model = Dense(dims.supports, dims.operations, dims.router_width, dims.channels)
    return model.init(key, Prepared(tokens, tokens))["params"]


def apply(params: PyTree, pair: Prepared, tau: Float[Array, ""]) -> ReadoutOutput:
    """Energy and masks of one pair; there is no posterior to temper."""
    del tau
    supports, router_width = params["router"]["q"].shape
    operations, channels = params["W"].shape
    return Dense(supports, operations, router_width, channels).apply({"params": params}, pair)


READOUT = Readout(prepare, init, apply)
