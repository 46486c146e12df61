"""The bilinear carrier: a position factor times a content factor, with no competition between slots.

The paper names this carrier and gives no equation. `python -m benchmarks.bilinear_forms` compares several forms.
"""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.linen.initializers import normal
from jaxtyping import Array, Float, PyTree

from soopf_jax.readouts.forms import Content, fold
from soopf_jax.readouts.router import Router
from soopf_jax.readouts.soopf import Prepared, prepare
from soopf_jax.readouts.stride import as_wide
from soopf_jax.types import Dims, Readout, ReadoutOutput

FAR_BELOW = -15.0
"""Below this, softplus(x) is exp(x) in float32."""


def scaled_softplus(x: Float[Array, "supports operations"]) -> Float[Array, "supports operations"]:
    """softplus(x), multiplied by exp(-max x) if all x are far below zero.

    A common factor of all energies of a pair cancels when they are normalised. Without this factor, a pair whose
    energies are all tiny would be normalised to 0 / 0 in float32, and its gradient would stop being finite even
    earlier.
    """
    largest = jax.lax.stop_gradient(jnp.max(x))
    return jnp.where(largest < FAR_BELOW, jnp.exp(x - largest), jax.nn.softplus(x))


def signed(
    position: Float[Array, "supports patches"],
    content: Float[Array, "patches operations"],
    sal: Float[Array, " patches"],
) -> Float[Array, "supports operations"]:
    """E_{s,o} = softplus(sum_n sal_n position_{s,n} content_{n,o}): the sum is signed, the energy is positive."""
    return scaled_softplus((position * sal) @ content)


def positive(
    position: Float[Array, "supports patches"],
    content: Float[Array, "patches operations"],
    sal: Float[Array, " patches"],
) -> Float[Array, "supports operations"]:
    """E_{s,o} = sum_n sal_n softplus(position_{s,n}) softplus(content_{n,o}): both factors are positive."""
    return (jax.nn.softplus(position) * sal) @ jax.nn.softplus(content)


class Bilinear(nn.Module):
    """The product of a position factor <a_s, W_z z_src,n + p_n> and a content factor <b_o, V LN(delta_n)>."""

    supports: int
    operations: int
    width: int
    channels: int
    form: Callable[[Array, Array, Array], Float[Array, "supports operations"]]
    """What makes an energy of the two factors and the salience: `signed` or `positive`."""

    @nn.compact
    def __call__(self, pair: Prepared) -> ReadoutOutput:
        """The energy of one pair."""
        position = Router(self.supports, self.width, self.channels, name="position")(pair.source)
        v = self.param("V", normal(self.channels**-0.5), (self.channels, self.width))
        b = self.param("b", normal(self.width**-0.5), (self.operations, self.width))
        folded = as_wide(fold(v, b), pair.content.tokens, axis=0)  # as in the router: <V x, b> = <x, V^T b>
        return ReadoutOutput(self.form(position, pair.content.projected(folded), pair.salience))


def readout(form: Callable[[Array, Array, Array], Float[Array, "supports operations"]]) -> Readout:
    """The carrier with one of the forms. a and b ~ N(0, 1/R), W_z and V ~ N(0, 1/D), p ~ N(0, 0.02^2)."""

    def init(key: jax.Array, dims: Dims) -> PyTree:
        tokens = jnp.zeros((dims.patches, dims.channels))
        model = Bilinear(dims.supports, dims.operations, dims.router_width, dims.channels, form)
        return model.init(key, Prepared(tokens, Content(tokens), tokens[:, 0], tokens[0]))["params"]

    def apply(params: PyTree, pair: Prepared, tau: Float[Array, ""]) -> ReadoutOutput:
        """Energy of one pair. There are no masks, and tau is not used."""
        del tau
        operations, width = params["b"].shape
        supports, channels = params["position"]["q"].shape[0], params["V"].shape[0]
        return Bilinear(supports, operations, width, channels, form).apply({"params": params}, pair)

    return Readout(prepare, init, apply)


READOUT, POSITIVE = readout(signed), readout(positive)
