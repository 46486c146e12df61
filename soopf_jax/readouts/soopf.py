"""SO-OPF, Eqs. (2) to (6): energy = support salience x competitive operation posterior.

In: the source tokens, which the router reads, and the innovation field. Out: the S x O energy grid and the router's
masks.
"""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.linen.initializers import lecun_normal, zeros_init
from jaxtyping import Array, Float, PyTree

from soopf_jax.readouts.forms import Content, Pooled, content_of
from soopf_jax.readouts.innovation import layer_norm, salience, unit_scale
from soopf_jax.readouts.router import Router
from soopf_jax.readouts.stride import as_wide, widen
from soopf_jax.types import Dims, PairView, Readout, ReadoutOutput

TINY = 1e-12
"""A divisor for slots without salience, which keeps h finite. It is far below any salience that matters."""


class Prepared(NamedTuple):
    """One pair, ready for any number of fits. `wide` is the number of channels with the zeros of `stride.widen`."""

    source: Float[Array, "patches wide"]
    content: Content
    """LN(delta)."""
    salience: Float[Array, " patches"]
    total: Float[Array, " wide"]
    """sum_n sal_n LN(delta_n), which is also the sum of pooled_s over all slots."""


class Hidden(nn.Module):
    """W_1 h_s + b_1 for every slot s, which is the first layer of f.

    h_s = pooled_s / A_s. The last slot needs no product of size D: its W_1 pooled_s is W_1 total minus those of the
    other slots. This difference has the rounding error of W_1 total. If the last slot has a tiny mass A_s, its h_s is
    therefore less accurate. This does no harm, because its energy and all gradients through it have the factor A_s.
    """

    width: int
    channels: int

    @nn.compact
    def __call__(
        self,
        pooled: Pooled,
        total: Float[Array, " wide"],
        mass: Float[Array, " supports"],
    ) -> Float[Array, "supports hidden"]:
        """The hidden layer. The division by A_s comes after the product, where a row has H numbers instead of D."""
        # The shape is (hidden, channels), because the gradient has this layout and Adam then reads along rows.
        shape = (self.width, self.channels)
        weight = self.param("weight", lambda key, shape: lecun_normal()(key, shape[::-1]).T, shape)
        bias = self.param("bias", zeros_init(), (self.width,))
        weight = as_wide(weight, total)
        first, whole = pooled.times(weight), total @ weight.T
        projected = jnp.concatenate([first, (whole - jnp.sum(first, axis=0))[None]])
        return projected / jnp.maximum(mass, TINY)[:, None] + bias


class SOOPF(nn.Module):
    """The factored carrier: salience per support times a posterior over operations."""

    supports: int
    operations: int
    router_width: int
    hidden: int
    channels: int
    query_sd: float | None = None

    @nn.compact
    def __call__(self, pair: Prepared, tau: Float[Array, ""]) -> ReadoutOutput:
        """E_{s,o} = A_s pi_{s,o}."""
        # M_{s,n} = softmax_s <W_z z_src,n + p_n, q_s>
        router = Router(self.supports, self.router_width, self.channels, self.query_sd, name="router")
        masks = router.masks(pair.source)
        # A_s = sum_n M_{s,n} sal_n
        weights = masks * pair.salience
        mass = jnp.sum(weights, axis=1)
        # h_s = sum_n M_{s,n} sal_n LN(delta_n) / A_s
        pooled = pair.content.pooled(weights[:-1])
        # pi_{s,o} = softmax_o(f(h_s) / tau)
        hidden = Hidden(self.hidden, self.channels, name="hidden")(pooled, pair.total, mass)
        logits = nn.Dense(self.operations, kernel_init=lecun_normal(), name="operation")(
            jax.nn.gelu(hidden, approximate=False)
        )
        posterior = jax.nn.softmax(logits / tau, axis=-1)
        return ReadoutOutput(mass[:, None] * posterior, masks)


def prepare(pair: PairView) -> Prepared:
    """LN(delta), the salience and their weighted sum, computed once for all fits and steps."""
    delta = unit_scale(pair.delta)
    sal = salience(delta)
    return Prepared(widen(pair.source), content_of(pair.delta), sal, widen(sal @ layer_norm(delta)))


def init(key: jax.Array, dims: Dims) -> PyTree:
    """W_z ~ N(0, 1/D), q ~ N(0, query_sd^2) or N(0, 1/R), p ~ N(0, 0.02^2); f LeCun-normal with zero bias."""
    sizes = dims.supports, dims.operations, dims.router_width, dims.hidden, dims.channels
    model = SOOPF(*sizes, query_sd=dims.query_sd)
    tokens = jnp.zeros((dims.patches, dims.channels))
    return model.init(key, Prepared(tokens, Content(tokens), tokens[:, 0], tokens[0]), jnp.float32(1.0))["params"]


def apply(params: PyTree, pair: Prepared, tau: Float[Array, ""]) -> ReadoutOutput:
    """Energy and masks of one pair. The sizes follow from the parameters."""
    supports, router_width = params["router"]["q"].shape
    hidden, operations = params["operation"]["kernel"].shape
    channels = params["router"]["W_z"].shape[0]
    return SOOPF(supports, operations, router_width, hidden, channels).apply({"params": params}, pair, tau)


READOUT = Readout(prepare, init, apply, quadratic=True)
