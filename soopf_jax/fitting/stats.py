"""What leaves the device after training: small statistics of every fit, enough for every score."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from soopf_jax.fitting.protocol import ALIGNMENTS, OPTIMISATION, VALIDATION
from soopf_jax.grid import Grid
from soopf_jax.types import AnyArray


class FitStats(NamedTuple):
    """The statistics of some fits, one row per fit."""

    validation: Float[AnyArray, " fits"]
    """Share of validation pairs that the arm's selector counts as correct."""
    c_sup: Float[AnyArray, "fits supports supports"]
    """Mean support marginal of the energy that slots are matched on, by true support, over optimisation pairs of
    observed cells."""
    c_op: Float[AnyArray, "fits operations operations"]
    """The same for operations."""
    q: Float[AnyArray, "fits cells cells"]
    """The assignment, rows in the order of the cells."""
    test_counts: Int[AnyArray, "fits cells"]
    """How many held-out pairs have their largest energy at each slot."""
    failed: Bool[AnyArray, " fits"]
    c_sup_by_alignment: Float[AnyArray, "fits alignments supports supports"] | None = None
    """The matrix of supports under every alignment, in the order of `ALIGNMENTS`."""
    c_op_by_alignment: Float[AnyArray, "fits alignments operations operations"] | None = None
    """The same for operations."""
    example_energy: Float[AnyArray, "fits cells"] | None = None
    """Normalised energy of one pair of the held-out cell, the first, for the report's examples."""
    example_masks: Float[AnyArray, "fits supports patches"] | None = None
    """The router's masks of that pair."""
    pair_energy: Float[AnyArray, "fits pairs cells"] | None = None
    """Normalised energy of every pair of the table. It leaves the device only if it is to be kept."""
    pair_scale: Float[AnyArray, "fits pairs"] | None = None
    """The sum of each pair's energy before it is normalised, in the paper's scale."""


class FitOutcome(NamedTuple):
    """One trained fit, as its statistics need it."""

    share: Float[Array, "pairs cells"]
    """Normalised energies of the whole table."""
    total: Float[Array, " pairs"]
    """The sum of each pair's energy before it is normalised, in the paper's scale."""
    q: Float[Array, "cells cells"]
    held_out: Int[Array, ""]
    alive: Bool[Array, ""]
    """False where some loss or gradient was not finite."""
    example_masks: Float[Array, "supports patches"] | None


def fit_stats(
    fit: FitOutcome,
    cell: Int[Array, " pairs"],
    role: Int[Array, " pairs"],
    grid: Grid,
    selector: str,
    alignment: str,
) -> FitStats:
    """The statistics of one fit.

    Args:
        fit: The trained fit.
        cell: The true cell of every pair.
        role: The role of every pair in the fit's seed.
        grid: The grid.
        selector: How validation pairs are scored: `flat-cell` or `native-joint`.
        alignment: What slots are matched on, one of `ALIGNMENTS`.
    """
    observed = cell != fit.held_out
    prediction = jnp.argmax(fit.share, axis=-1)
    if selector == "native-joint":
        correct = prediction == cell
    else:
        labels = jnp.where(jnp.arange(grid.n_cells) != fit.held_out, fit.share @ fit.q.T, -jnp.inf)
        correct = jnp.argmax(labels, axis=-1) == cell
    validation = observed & (role == VALIDATION)
    aligned_on = (observed & (role == OPTIMISATION)).astype(jnp.float32)

    matched_on = {
        "raw": fit.share * fit.total[:, None],
        "soft": fit.share,
        "hard": jax.nn.one_hot(prediction, grid.n_cells),
    }
    by_alignment = [
        _alignment_matrices(matched_on[name].reshape(-1, grid.n_supports, grid.n_operations), cell, aligned_on, grid)
        for name in ALIGNMENTS
    ]
    c_sup, c_op = (jnp.stack(matrices) for matrices in zip(*by_alignment, strict=True))
    chosen = ALIGNMENTS.index(alignment)
    return FitStats(
        validation=jnp.sum(correct & validation) / jnp.sum(validation),
        c_sup=c_sup[chosen],
        c_op=c_op[chosen],
        q=fit.q,
        test_counts=jnp.sum(jax.nn.one_hot(prediction, grid.n_cells, dtype=jnp.int32) * ~observed[:, None], axis=0),
        failed=~(fit.alive & jnp.all(jnp.isfinite(fit.share))),
        c_sup_by_alignment=c_sup,
        c_op_by_alignment=c_op,
        example_energy=fit.share[jnp.argmax(cell == fit.held_out)],
        example_masks=fit.example_masks,
        pair_energy=fit.share,
        pair_scale=fit.total,
    )


def _alignment_matrices(
    energy: Float[Array, "pairs supports operations"],
    cell: Int[Array, " pairs"],
    weight: Float[Array, " pairs"],
    grid: Grid,
) -> tuple[Float[Array, "supports supports"], Float[Array, "operations operations"]]:
    """C_sup and C_op: the mean marginals of the energy by true support and by true operation."""
    support, operation = grid.axes(cell)
    return _mean_by(support, energy.sum(axis=2), weight), _mean_by(operation, energy.sum(axis=1), weight)


def _mean_by(
    value: Int[Array, " pairs"], marginal: Float[Array, "pairs slots"], weight: Float[Array, " pairs"]
) -> Float[Array, "slots slots"]:
    """Row v: the mean marginal of the pairs whose true axis value is v."""
    members = jax.nn.one_hot(value, marginal.shape[1]) * weight[:, None]
    return members.T @ marginal / jnp.maximum(jnp.sum(members, axis=0), 1.0)[:, None]
