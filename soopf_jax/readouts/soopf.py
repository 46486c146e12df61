"""SO-OPF, Eqs. (2) to (6): energy = support salience x competitive operation posterior.

In: the source tokens, for the router, and the innovation field. Out: the S x O energy grid and the router's masks.
"""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.linen.initializers import lecun_normal, zeros_init
from jaxtyping import Array, Float, PyTree

from soopf_jax.readouts.innovation import layer_norm, salience, unit_scale
from soopf_jax.readouts.router import Router
from soopf_jax.readouts.stride import as_wide, widen
from soopf_jax.types import Dims, PairView, Readout, ReadoutOutput

TINY = 1e-12
"""Far below any share of salience that matters; keeps h finite where a slot has none."""


class Prepared(NamedTuple):
    """One pair, ready for any number of fits; `wide`: the channels, and perhaps zeros behind them."""

    source: Float[Array, "patches wide"]
    content: Float[Array, "patches wide"]
    """LN(delta)."""
    salience: Float[Array, " patches"]
    total: Float[Array, " wide"]
    """sum_n sal_n LN(delta_n): what the slots share out among them."""


class Hidden(nn.Module):
    """W_1 h_s + b_1 of every slot s, the first layer of f.

    h_s = pooled_s / A_s, and W_1 pooled_s of the last slot is the rest of W_1 total, so that nothing of size D is
    computed for that slot. The rest has the rounding error of the whole: where a slot has next to no mass its h_s is
    off by more than the others', but its energy and all gradients through it carry the factor A_s.
    """

    width: int
    channels: int

    @nn.compact
    def __call__(
        self,
        pooled: Float[Array, "all_but_one wide"],
        total: Float[Array, " wide"],
        mass: Float[Array, " supports"],
    ) -> Float[Array, "supports hidden"]:
        """Divides after the product: a row has H numbers there, and D before."""
        # (hidden, channels): the order in which the gradient's product leaves it, where Adam reads along rows.
        shape = (self.width, self.channels)
        weight = self.param("weight", lambda key, shape: lecun_normal()(key, shape[::-1]).T, shape)
        bias = self.param("bias", zeros_init(), (self.width,))
        weight = as_wide(weight, total)
        first, whole = pooled @ weight.T, total @ weight.T
        projected = jnp.concatenate([first, (whole - jnp.sum(first, axis=0))[None]])
        return projected / jnp.maximum(mass, TINY)[:, None] + bias


class SOOPF(nn.Module):
    """The factored carrier."""

    supports: int
    operations: int
    router_width: int
    hidden: int
    channels: int

    @nn.compact
    def __call__(self, pair: Prepared, tau: Float[Array, ""]) -> ReadoutOutput:
        """E_{s,o} = A_s pi_{s,o}."""
        # M_{s,n} = softmax_s <W_z z_src,n + p_n, q_s>
        masks = Router(self.supports, self.router_width, self.channels, name="router").masks(pair.source)
        # A_s = sum_n M_{s,n} sal_n
        weights = masks * pair.salience
        mass = jnp.sum(weights, axis=1)
        # h_s = sum_n M_{s,n} sal_n LN(delta_n) / A_s
        pooled = weights[:-1] @ pair.content
        # pi_{s,o} = softmax_o(f(h_s) / tau)
        hidden = Hidden(self.hidden, self.channels, name="hidden")(pooled, pair.total, mass)
        logits = nn.Dense(self.operations, kernel_init=lecun_normal(), name="operation")(
            jax.nn.gelu(hidden, approximate=False)
        )
        posterior = jax.nn.softmax(logits / tau, axis=-1)
        return ReadoutOutput(mass[:, None] * posterior, masks)


def prepare(pair: PairView) -> Prepared:
    """LN(delta), the salience and their sum, once for all fits and steps."""
    delta = unit_scale(pair.delta)
    content, sal = layer_norm(delta), salience(delta)
    return Prepared(widen(pair.source), widen(content), sal, widen(sal @ content))


def init(key: jax.Array, dims: Dims) -> PyTree:
    """W_z ~ N(0, 1/D), q ~ N(0, 1/R), p ~ N(0, 0.02^2); f LeCun-normal with zero bias."""
    model = SOOPF(dims.supports, dims.operations, dims.router_width, dims.hidden, dims.channels)
    tokens = jnp.zeros((dims.patches, dims.channels))
    return model.init(key, Prepared(tokens, tokens, tokens[:, 0], tokens[0]), jnp.float32(1.0))["params"]


def apply(params: PyTree, pair: Prepared, tau: Float[Array, ""]) -> ReadoutOutput:
    """Energy and masks of one pair; the sizes are those of the parameters."""
    supports, router_width = params["router"]["q"].shape
    hidden, operations = params["operation"]["kernel"].shape
    channels = params["router"]["W_z"].shape[0]
    return SOOPF(supports, operations, router_width, hidden, channels).apply({"params": params}, pair, tau)


READOUT = Readout(prepare, init, apply)
