"""What held-out pairs are read as, from the counts of `fits.npz`. Slots are bound to the true axes one to one."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from soopf_jax.grid import Grid
from soopf_jax.scoring import align


def confusion(fits: Mapping[str, np.ndarray], arm: int, grid: Grid) -> Float[np.ndarray, "cells cells"]:
    """The share of pairs of each held-out cell (row) that are read as each cell (column), by the selected fits.

    The diagonal is INJ per cell. A row is NaN where its cell was not held out or no restart could be selected.
    """
    counts = np.zeros((grid.n_cells, grid.n_cells))
    for row in np.flatnonzero((fits["arm"] == arm) & fits["selected"] & (fits["held_out"] >= 0)):
        slots = align.SlotMap(align.injective(fits["C_sup"][row]), align.injective(fits["C_op"][row]))
        slot_of_cell = [slots.slot(cell, grid) for cell in range(grid.n_cells)]
        counts[fits["held_out"][row]] += fits["test_counts"][row][slot_of_cell]
    totals = counts.sum(axis=1, keepdims=True)
    return np.divide(counts, totals, out=np.full_like(counts, np.nan), where=totals > 0)


def axis_accuracy(
    shares: Float[np.ndarray, "cells cells"], grid: Grid
) -> tuple[Float[np.ndarray, " cells"], Float[np.ndarray, " cells"]]:
    """The share of pairs of each held-out cell whose support is read correctly, and the same for the operation."""
    cells = np.arange(grid.n_cells)
    support, operation = (axis[:, None] == axis for axis in grid.axes(cells))
    return (shares * support).sum(axis=1), (shares * operation).sum(axis=1)
