"""SO-OPF, Eqs. (2) to (6): energy = support salience x competitive operation posterior.

In: the source tokens, for the router, and the innovation field. Out: the S x O energy grid and the router's masks.
"""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.linen.initializers import lecun_normal
from jaxtyping import Array, Float, PyTree

from soopf_jax.readouts.innovation import layer_norm, salience, unit_scale
from soopf_jax.readouts.router import Router
from soopf_jax.types import Dims, PairView, Readout, ReadoutOutput

TINY = 1e-12
"""Far below any share of salience that matters; keeps h finite where a slot has none."""


class Prepared(NamedTuple):
    """One pair, ready for any number of fits."""

    source: Float[Array, "patches channels"]
    content: Float[Array, "patches channels"]
    """LN(delta)."""
    salience: Float[Array, " patches"]


class SOOPF(nn.Module):
    """The factored carrier."""

    supports: int
    operations: int
    router_width: int
    hidden: int

    @nn.compact
    def __call__(self, pair: Prepared, tau: Float[Array, ""]) -> ReadoutOutput:
        """E_{s,o} = A_s pi_{s,o}."""
        # M_{s,n} = softmax_s <W_z z_src,n + p_n, q_s>
        masks = jax.nn.softmax(Router(self.supports, self.router_width, name="router")(pair.source), axis=0)
        # A_s = sum_n M_{s,n} sal_n
        weights = masks * pair.salience
        mass = jnp.sum(weights, axis=1)
        # h_s = sum_n M_{s,n} sal_n LN(delta_n) / A_s
        h = weights @ pair.content / jnp.maximum(mass, TINY)[:, None]
        # pi_{s,o} = softmax_o(f(h_s) / tau)
        hidden = nn.Dense(self.hidden, kernel_init=lecun_normal(), name="hidden")(h)
        logits = nn.Dense(self.operations, kernel_init=lecun_normal(), name="operation")(
            jax.nn.gelu(hidden, approximate=False)
        )
        posterior = jax.nn.softmax(logits / tau, axis=-1)
        return ReadoutOutput(mass[:, None] * posterior, masks)


def prepare(pair: PairView) -> Prepared:
    """LN(delta) and the salience, once for all fits and steps."""
    delta = unit_scale(pair.delta)
    return Prepared(pair.source, layer_norm(delta), salience(delta))


def init(key: jax.Array, dims: Dims) -> PyTree:
    """W_z ~ N(0, 1/D), q ~ N(0, 1/R), p ~ N(0, 0.02^2); f LeCun-normal with zero bias."""
    model = SOOPF(dims.supports, dims.operations, dims.router_width, dims.hidden)
    tokens = jnp.zeros((dims.patches, dims.channels))
    return model.init(key, Prepared(tokens, tokens, tokens[:, 0]), jnp.float32(1.0))["params"]


def apply(params: PyTree, pair: Prepared, tau: Float[Array, ""]) -> ReadoutOutput:
    """Energy and masks of one pair; the sizes are those of the parameters."""
    supports, router_width = params["router"]["q"].shape
    hidden, operations = params["operation"]["kernel"].shape
    return SOOPF(supports, operations, router_width, hidden).apply({"params": params}, pair, tau)


READOUT = Readout(prepare, init, apply)
