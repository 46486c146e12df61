"""Assignments Q: how flat cell labels reach the energy grid.

A label is a number 0..C-1. An assignment that sees `axes` or `order` gets the cell's number. For any other assignment
the trainer shuffles the labels, so they tell nothing about the axes. Q always has C rows; the trainer leaves the
held-out row out of the softmax.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from soopf_jax.fitting import matching, searching
from soopf_jax.grid import Grid
from soopf_jax.types import Assignment

LEARNED_INIT_SD = 0.1
SINKHORN_TEMPERATURE = 0.3
"""Divides the logits. The lower it is, the nearer Q is to a permutation."""
SINKHORN_ITERATIONS = 15
"""Normalisations of the rows and then the columns. A last normalisation of the rows follows them."""


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
    """Row y of the doubly stochastic Q that maximises <Q, A> / T + entropy(Q), by Sinkhorn's iterations. A: the logits.

    The columns of Q sum to one as well, so labels compete for cells: they cannot crowd into one cell and leave others
    empty. Two labels that the readout cannot tell apart share two cells equally. The held-out row takes what the
    observed rows leave in each column. Its logits are 0, and its own parameters are not read. This costs no
    generality, because adding a constant to a column of A does not change Q. The rows are normalised last, so their
    sums are exact, while those of the columns are approximate.
    """
    observed = jnp.arange(grid.n_cells) != held_out

    def balance(_: Int[Array, ""], log_q: Array) -> Array:
        return jax.nn.log_softmax(jax.nn.log_softmax(log_q, axis=1), axis=0)

    log_q = jnp.where(observed[:, None], params["logits"] / SINKHORN_TEMPERATURE, 0.0)
    return jax.nn.softmax(jax.lax.fori_loop(0, SINKHORN_ITERATIONS, balance, log_q), axis=1)


def _label_order(params: PyTree, held_out: Int[Array, ""], grid: Grid) -> Float[Array, "cells cells"]:
    """The i-th observed label maps to column i; the final column stays unused.

    Labels after the held-out one move up by one place: column = label - [label > held_out].
    """
    del params
    label = jnp.arange(grid.n_cells)
    column = label - ((held_out >= 0) & (label > held_out))
    return jax.nn.one_hot(column, grid.n_cells)


def _unknown(key: jax.Array, grid: Grid) -> PyTree:
    """The Q of an unknown grid. It is replaced by the proposed one before training."""
    del key
    return {"q": jnp.full((grid.n_cells, grid.n_cells), 1 / grid.n_cells)}


def _fixed(params: PyTree, held_out: Int[Array, ""], grid: Grid) -> Float[Array, "cells cells"]:
    """The proposed Q. It has no gradient, so training leaves it as it is."""
    del held_out, grid
    return jax.lax.stop_gradient(params["q"])


FACTORIAL = Assignment(_nothing, _identity, sees=("axes",))
LEARNED = Assignment(_logits, _softmax_rows)
SINKHORN = Assignment(_logits, _balanced_rows)
"""Not in the paper. Like `learned`, it gets flat labels only, but the columns of Q sum to one as well."""
NATIVE = Assignment(_nothing, _identity, sees=("axes",), selector="native-joint")
"""For probes. They are trained and selected on native axis labels and do not use Q."""
COMPRESSED = Assignment(_nothing, _label_order, sees=("order",))
PLACED = Assignment(_unknown, _fixed)
"""A grid that is decided before training, one for each fit. The job of the fits has the grids."""
MATCHED = PLACED._replace(proposer=matching.PROPOSER)
"""Not in the paper. It places labels by the similarity of their pairs, before training."""
SEARCHED = PLACED._replace(proposer=searching.PROPOSER)
"""Not in the paper. It begins with the grids of `matched` and chooses by training loss, in short training."""
