"""Assignments Q: how flat cell labels reach the energy grid.

A label is a number 0..C-1. For an assignment that sees `axes` or `order` it is the cell's number; for any other the
trainer shuffles the labels with a permutation of its own, so that nothing about the axes can be read from them.
Q always has C rows; the trainer leaves the held-out row out of the softmax.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from soopf_jax.grid import Grid
from soopf_jax.types import Assignment

LEARNED_INIT_SD = 0.1
SINKHORN_TEMPERATURE = 0.3
"""Divides the logits: the lower, the nearer Q is to a permutation."""
SINKHORN_ITERATIONS = 15
"""Row and column normalisations before the last one of rows."""


def _nothing(key: jax.Array, grid: Grid) -> PyTree:
    del key, grid
    return {}


def _identity(params: PyTree, held_out: Int[Array, ""], grid: Grid) -> Float[Array, "cells cells"]:
    """Row y is one-hot at the true grid location (s_y, o_y)."""
    del params, held_out
    return jnp.eye(grid.n_cells)


def _logits(key: jax.Array, grid: Grid) -> PyTree:
    return {"logits": LEARNED_INIT_SD * jax.random.normal(key, (grid.n_cells, grid.n_cells))}


def _softmax_rows(params: PyTree, held_out: Int[Array, ""], grid: Grid) -> Float[Array, "cells cells"]:
    """Row y is softmax(a_y), optimised jointly with the readout."""
    del held_out, grid
    return jax.nn.softmax(params["logits"], axis=-1)


def _balanced_rows(params: PyTree, held_out: Int[Array, ""], grid: Grid) -> Float[Array, "cells cells"]:
    """Row y of the doubly stochastic Q that maximises <Q, A> / T + entropy(Q), A the logits: Sinkhorn's iterations.

    Labels compete: every cell has one row's worth to give, so that labels cannot crowd into one cell and leave others
    empty; two that the readout cannot tell apart divide two cells by halves. The held-out row is slack: its logits are
    0 and it takes what the observed rows leave, one row's worth in all. That costs no generality, since adding a
    constant to a column of A does not change Q; the held-out label's own parameters stay unread. The last
    normalisation is of rows, so that theirs are the sums that are exact.
    """
    observed = jnp.arange(grid.n_cells) != held_out

    def balance(_: Int[Array, ""], log_q: Array) -> Array:
        return jax.nn.log_softmax(jax.nn.log_softmax(log_q, axis=1), axis=0)

    log_q = jnp.where(observed[:, None], params["logits"] / SINKHORN_TEMPERATURE, 0.0)
    return jax.nn.softmax(jax.lax.fori_loop(0, SINKHORN_ITERATIONS, balance, log_q), axis=1)


def _label_order(params: PyTree, held_out: Int[Array, ""], grid: Grid) -> Float[Array, "cells cells"]:
    """The i-th observed label maps to column i; the final column stays unused.

    Labels behind the held-out one move up by one place: column = label - [label > held_out].
    """
    del params
    label = jnp.arange(grid.n_cells)
    column = label - ((held_out >= 0) & (label > held_out))
    return jax.nn.one_hot(column, grid.n_cells)


FACTORIAL = Assignment(_nothing, _identity, sees=("axes",))
LEARNED = Assignment(_logits, _softmax_rows)
SINKHORN = Assignment(_logits, _balanced_rows)
"""Beyond the paper: `learned`, from the same flat labels, with columns that sum to one as well."""
NATIVE = Assignment(_nothing, _identity, sees=("axes",), selector="native-joint")
"""No Q at all: for probes that are trained and selected on native axis labels."""
COMPRESSED = Assignment(_nothing, _label_order, sees=("order",))
