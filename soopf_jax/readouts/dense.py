"""The dense carrier, Eq. (11): squared innovation channels are pooled independently for every operation.

The dense carrier confuses what changed with how much changed: operations with the same squares cannot be told apart.
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
    """One pair, ready for any number of fits. `wide` is the number of channels with the zeros of `stride.widen`."""

    source: Float[Array, "patches wide"]
    squares: Float[Array, "patches wide"]
    """delta^2, divided by its sum over the pair."""


class Dense(nn.Module):
    """The dense carrier, with a non-negative weight per operation and channel."""

    supports: int
    operations: int
    router_width: int
    channels: int
    query_sd: float | None = None

    @nn.compact
    def __call__(self, pair: Prepared) -> ReadoutOutput:
        """E_{s,o} = sum_n M_{s,n} sum_c softplus(W_{o,c}) delta_{n,c}^2."""
        router = Router(self.supports, self.router_width, self.channels, self.query_sd, name="router")
        masks = router.masks(pair.source)
        weights = jax.nn.softplus(self.param("W", normal(0.1), (self.operations, self.channels)))
        return ReadoutOutput((masks @ pair.squares) @ as_wide(weights, pair.squares).T, masks)


def prepare(pair: PairView) -> Prepared:
    """The normalised squares, computed once for all fits and steps."""
    squares = unit_scale(pair.delta) ** 2
    total = jnp.sum(squares)
    return Prepared(widen(pair.source), widen(squares / jnp.where(total > 0, total, 1.0)))


def init(key: jax.Array, dims: Dims) -> PyTree:
    """W ~ N(0, 0.1^2); the router is initialised as in SO-OPF."""
    tokens = jnp.zeros((dims.patches, dims.channels))
    model = Dense(dims.supports, dims.operations, dims.router_width, dims.channels, dims.query_sd)
    return model.init(key, Prepared(tokens, tokens))["params"]


def apply(params: PyTree, pair: Prepared, tau: Float[Array, ""]) -> ReadoutOutput:
    """Energy and masks of one pair. tau is not used."""
    del tau
    supports, router_width = params["router"]["q"].shape
    operations, channels = params["W"].shape
    return Dense(supports, operations, router_width, channels).apply({"params": params}, pair)


READOUT = Readout(prepare, init, apply, quadratic=True)
