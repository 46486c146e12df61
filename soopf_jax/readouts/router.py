"""The support router, Eq. (2): which support slot does each patch belong to? For one pair."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.linen.initializers import normal
from jaxtyping import Array, Float

from soopf_jax.readouts.stride import as_wide


class Router(nn.Module):
    """<W_z z_src,n + p_n, q_s>: how well each patch, by content and position, fits each support slot.

    Learned without any pixel mask; its softmax over s is the mask M_{s,n}.
    """

    supports: int
    width: int
    channels: int

    @nn.compact
    def __call__(self, source: Float[Array, "patches wide"], relative: bool = False) -> Float[Array, "slots patches"]:
        """Logits, with the patches last: element-wise work on long rows is what a CPU vectorises.

        `relative`: those of all slots but the last, less that of the last.
        """
        w_z = self.param("W_z", normal(self.channels**-0.5), (self.channels, self.width))
        p = self.param("p", normal(0.02), (source.shape[0], self.width))
        q = self.param("q", normal(self.width**-0.5), (self.supports, self.width))
        if relative:
            q = q[:-1] - q[-1]
        # <W_z z + p, q> = <z, W_z^T q> + <p, q>: D x S products per patch instead of D x R.
        folded = as_wide(w_z @ q.T, source, axis=0)
        return (source.astype(jnp.float32) @ folded + p @ q.T).T

    def masks(self, source: Float[Array, "patches wide"]) -> Float[Array, "supports patches"]:
        """M_{s,n} = softmax_s of the logits, which does not see what all have in common: S - 1 products do for S."""
        return jax.nn.softmax(jnp.pad(self(source, relative=True), ((0, 1), (0, 0))), axis=0)
