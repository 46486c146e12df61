"""Products and softmaxes of one pair and one fit, in the form that suits the device that a program is traced for.

On a CPU matrix products are the fastest form of nearly everything. On a GPU a step is limited by the bytes that it
moves, and the forms here save passes over the parameters and over the tokens (`make gpu-check` counts them). Both forms
have the same value up to rounding.
"""

from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from soopf_jax.readouts.innovation import layer_norm, moments, root_mean_square, unit_scale
from soopf_jax.readouts.stride import widen
from soopf_jax.runtime.platforms import CPU, platform


def fold(weights: Float[Array, "rows width"], queries: Float[Array, "slots width"]) -> Float[Array, "rows slots"]:
    """<weights_i, queries_s> for all rows i and the few slots s."""
    return weights @ queries.T if platform() == CPU else _fold_elementwise(weights, queries)


@jax.custom_vjp
def _fold_elementwise(
    weights: Float[Array, "rows width"], queries: Float[Array, "slots width"]
) -> Float[Array, "rows slots"]:
    """`weights @ queries.T` as a sum, whose gradient XLA computes where Adam needs it.

    The gradient of the weights has as many numbers as the weights, but it is made of few. As a matrix product it would
    be written to memory and read again.
    """
    return jnp.sum(weights[:, None, :] * queries, axis=-1)


def _fold_forward(weights: Array, queries: Array) -> tuple[Array, Any]:
    return _fold_elementwise(weights, queries), (weights, queries)


def _fold_backward(saved: Any, gradient: Float[Array, "rows slots"]) -> tuple[Array, Array]:
    weights, queries = saved
    return jnp.sum(gradient[:, :, None] * queries, axis=1), gradient.T @ weights


_fold_elementwise.defvjp(_fold_forward, _fold_backward)


def softmax_beside_zero(logits: Float[Array, "all_but_one patches"]) -> Float[Array, "slots patches"]:
    """The softmax over the first axis of these logits and a last one that is zero."""
    if platform() == CPU:
        return jax.nn.softmax(jnp.pad(logits, ((0, 1), (0, 0))), axis=0)
    rows = list(logits)  # slot by slot, because a GPU reduces slowly along an axis of two or three
    top = jax.lax.stop_gradient(reduce(jnp.maximum, rows, jnp.zeros_like(rows[0])))
    exponentials = [*(jnp.exp(row - top) for row in rows), jnp.exp(-top)]
    return jnp.stack(exponentials) / sum(exponentials)


class Content(NamedTuple):
    """LN(delta) of one pair: row n is scale_n tokens_n - shift_n.

    On a GPU, half-precision tokens stay as they are stored, and the normalisation becomes part of the weights that
    multiply them. They then take half the memory and half the traffic, without any further rounding. Elsewhere the
    tokens are LN(delta) itself in float32, and there is neither scale nor shift.
    """

    tokens: Float[Array, "patches wide"]
    """`wide` is the number of channels with the zeros of `stride.widen`."""
    scale: Float[Array, " patches"] | None = None
    shift: Float[Array, " patches"] | None = None

    def projected(self, folded: Float[Array, "wide values"]) -> Float[Array, "patches values"]:
        """LN(delta) @ folded."""
        if self.scale is None or self.shift is None:
            return self.tokens @ folded
        product = self.tokens.astype(jnp.float32) @ folded
        return self.scale[:, None] * product - jnp.outer(self.shift, jnp.sum(folded, axis=0))

    def pooled(self, weights: Float[Array, "slots patches"]) -> "Pooled":
        """weights @ LN(delta)."""
        if self.scale is None or self.shift is None:
            return Pooled(weights @ self.tokens)
        return Pooled((weights * self.scale) @ self.tokens.astype(jnp.float32), weights @ self.shift)


class Pooled(NamedTuple):
    """Sums of rows of LN(delta): sum_s - shift_s in every channel."""

    sum: Float[Array, "slots wide"]
    shift: Float[Array, " slots"] | None = None

    def times(self, weight: Float[Array, "hidden wide"]) -> Float[Array, "slots hidden"]:
        """The sums @ weight.T. The shift is applied to the few numbers of the result."""
        product = self.sum @ weight.T
        return product if self.shift is None else product - jnp.outer(self.shift, jnp.sum(weight, axis=1))


def content_of(delta: Float[Array, "patches channels"]) -> Content:
    """LN(delta) of the stored innovation field, after it was brought to unit scale."""
    scaled = unit_scale(delta)
    if platform() == CPU or delta.dtype != jnp.float16:
        return Content(widen(layer_norm(scaled)))
    mean, deviation = (column[:, 0] for column in moments(scaled))
    return Content(delta, 1 / (root_mean_square(delta) * deviation), mean / deviation)
