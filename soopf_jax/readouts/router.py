"""The support router, Eq. (2): assigns each patch of one pair to support slots."""

import flax.linen as nn
import jax.numpy as jnp
from flax.linen.initializers import normal
from jaxtyping import Array, Float

from soopf_jax.readouts.forms import fold, softmax_beside_zero
from soopf_jax.readouts.stride import as_wide


class Router(nn.Module):
    """<W_z z_src,n + p_n, q_s>: how well the content and the position of each patch fit each support slot.

    The softmax of this over s is the mask M_{s,n}. The router is trained without pixel masks.
    """

    supports: int
    width: int
    channels: int
    query_sd: float | None = None
    """The initial SD of q; None: 1 / sqrt(width)."""

    @nn.compact
    def __call__(self, source: Float[Array, "patches wide"], relative: bool = False) -> Float[Array, "slots patches"]:
        """The logits of all slots.

        Patches are the last axis, because a CPU vectorises elementwise work on long rows.

        Args:
            source: The source tokens.
            relative: Whether to subtract the logits of the last slot from those of all others, and to leave the last
                slot out.
        """
        w_z = self.param("W_z", normal(self.channels**-0.5), (self.channels, self.width))
        p = self.param("p", normal(0.02), (source.shape[0], self.width))
        query_sd = self.width**-0.5 if self.query_sd is None else self.query_sd
        q = self.param("q", normal(query_sd), (self.supports, self.width))
        if relative:
            q = q[:-1] - q[-1]
        # <W_z z + p, q> = <z, W_z^T q> + <p, q> takes D x S multiplications per patch instead of D x R.
        folded = as_wide(fold(w_z, q), source, axis=0)
        return (source.astype(jnp.float32) @ folded + fold(p, q)).T

    def masks(self, source: Float[Array, "patches wide"]) -> Float[Array, "supports patches"]:
        """M_{s,n}, the softmax over s of the logits.

        A softmax does not change if the same number is subtracted from all logits. The logits of the last slot are
        subtracted, so they become zero and need not be computed.
        """
        return softmax_beside_zero(self(source, relative=True))
