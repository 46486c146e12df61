"""How far apart the rows of tokens lie in memory, which decides the pace of products on a CPU.

Rows that lie a large power of two apart share the same few lines of the cache and push each other out of it: on one
core, products that run along the patches reach 40 GFLOP/s for D = 1024 and 87 for D = 1040. Channels that are zero
change no product, so prepared tokens get some; parameters never do, and meet the tokens through `as_wide`.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

LINE = 16
"""float32 numbers in a line of the cache."""
LEAST = 256
"""Channels from which the zeros, at most two lines of them, cost less than they gain."""


def widen(tokens: Float[Array, "*rows channels"]) -> Float[Array, "*rows wide"]:
    """Zero channels up to an odd number of cache lines per row: then rows spread over the whole cache."""
    channels = tokens.shape[-1]
    if jax.default_backend() != "cpu" or channels < LEAST:
        return tokens
    lines = -(-channels // LINE)
    return _padded(tokens, LINE * (lines + (lines % 2 == 0)), axis=-1)


def as_wide(weights: Float[Array, "..."], tokens: Float[Array, "*patches wide"], axis: int = -1) -> Float[Array, "..."]:
    """Weights of channels, which lie along `axis`, with zeros for those that `widen` gave the tokens."""
    return _padded(weights, tokens.shape[-1], axis)


def _padded(x: Float[Array, "..."], width: int, axis: int) -> Float[Array, "..."]:
    padding = [(0, 0)] * x.ndim
    padding[axis] = (0, width - x.shape[axis])
    return jnp.pad(x, padding)
