"""A table cut into blocks of pairs. All blocks have one shape, so one compiled program serves them all."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int


class Blocks(NamedTuple):
    """The rows of a table, cut into blocks of one size."""

    row: Int[Array, "blocks size"]
    """Numbers of rows. The last block is filled up with copies of the last row."""
    real: Bool[Array, "blocks size"]
    """False for these copies."""


def in_blocks(n_rows: int, size: int) -> Blocks:
    """Cut `n_rows` rows into blocks of `size` rows. A table with fewer rows is one smaller block."""
    size = min(size, n_rows)
    row = jnp.arange(-(-n_rows // size) * size).reshape(-1, size)
    return Blocks(jnp.minimum(row, n_rows - 1), row < n_rows)
