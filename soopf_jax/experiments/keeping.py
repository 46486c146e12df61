"""Decides what a run keeps of its selected fits, and makes it from the columns of training."""

import math
from typing import Any

import jax
import numpy as np

from soopf_jax.errors import unknown_name
from soopf_jax.experiments.experiment import Data, TrainedArm
from soopf_jax.experiments.predictions import Predictions
from soopf_jax.fitting.arm import Arm
from soopf_jax.fitting.prepare import dims_of
from soopf_jax.fitting.protocol import Fits, Protocol, flat_labels, roles
from soopf_jax.fitting.selection import EVERYTHING, KEEP, NOTHING, PREDICTIONS
from soopf_jax.fitting.unfinished import Columns

KEPT_UP_TO = 256_000_000
"""Bytes of predictions that are kept if nothing else is asked for. The paper's protocol has 37 MB."""
BESIDE_ENERGY = 4 + 2 + 1
"""Bytes of a pair's scale, prediction and role."""


def what_to_keep(asked: str | None, n_bytes: int) -> str:
    """What a run keeps whose predictions have this number of bytes, if `asked` is what the user asked for.

    Raises:
        UserError: There is no such choice.
    """
    if asked is not None and asked not in KEEP:
        raise unknown_name("thing to keep", asked, KEEP)
    return asked or (PREDICTIONS if n_bytes <= KEPT_UP_TO else NOTHING)


def announcement(asked: str | None, keep: str, n_folds: int, data: Data, size_of_params: int) -> str:
    """One line for the user: what will be kept, and how large it is before compression.

    Args:
        asked: What the user asked for; None if nothing.
        keep: What will be kept.
        n_folds: The number of folds of all arms.
        data: The features.
        size_of_params: The bytes of one fit's parameters.
    """
    predicted = megabytes(bytes_of_predictions(n_folds, data))
    if keep == NOTHING:
        return "" if asked else f"predictions of every pair would take {predicted}; keep them with --keep predictions"
    params = f" and parameters ({megabytes(n_folds * size_of_params)})" if keep == EVERYTHING else ""
    return f"keeps predictions ({predicted}){params} of {n_folds} selected fits"


def count_folds(fits: Fits) -> int:
    """The number of folds of an arm."""
    return np.unique(np.stack([fits.seed, fits.held_out]), axis=1).shape[1]


def bytes_of_params(arm: Arm, data: Data, protocol: Protocol) -> int:
    """The size of the parameters of one fit's readout; nothing is computed."""
    shapes = jax.eval_shape(lambda: arm.readout.init(jax.random.key(0), dims_of(data.table, protocol)))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))


def bytes_of_predictions(n_folds: int, data: Data) -> int:
    """The size of the predictions of some folds, before compression."""
    n_cells = data.table.grid.n_cells
    tested = 0 if data.test is None else len(data.test.cell)
    return n_folds * (len(data.table.cell) * (4 * n_cells + BESIDE_ENERGY) + tested * 4 * n_cells)


def predictions_of(number: int, arm: Arm, trained: TrainedArm, kept: Columns, data: Data) -> Predictions:
    """The predictions of the arm with this number, from what was kept while it trained."""
    table, rows = data.table, np.flatnonzero(trained.scores.selected)
    seeds = trained.fits.seed[rows]
    role = {seed: roles(table.cell, table.grid, seed) for seed in set(seeds.tolist())}
    labels = {seed: flat_labels(table.grid, seed, arm.assignment.sees) for seed in role}
    energy = kept["pair_energy"][rows]
    return Predictions(
        arm=np.full(len(rows), number, np.int32),
        fit=(number * len(trained.fits.seed) + rows).astype(np.int32),
        seed=seeds,
        held_out=trained.fits.held_out[rows],
        restart=trained.fits.restart[rows],
        labels=_rows(labels, seeds, (table.grid.n_cells,), np.int32),
        q=trained.stats.q[rows],
        energy=energy,
        scale=kept["pair_scale"][rows],
        prediction=np.argmax(energy, axis=-1).astype(np.int16),
        role=_rows(role, seeds, table.cell.shape, np.int8),
        cell=table.cell,
        test_energy=None if data.test is None else trained.columns["energy"][rows],
        test_cell=None if data.test is None else data.test.cell,
    )


def megabytes(n_bytes: int) -> str:
    """`37 MB`, at least 1."""
    return f"{max(1, math.ceil(n_bytes / 1e6))} MB"


def _rows(by_seed: dict[int, np.ndarray], seeds: np.ndarray, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """A row for every fold, of its seed; of the right shape where there is no fold at all."""
    return np.array([by_seed[seed] for seed in seeds.tolist()], dtype).reshape(-1, *shape)
