"""What a result keeps of its selected fits, so that every score can be computed again without training.

`predictions.npz` has what every selected fit makes of every pair. With `--keep all`, `params/` has the parameters of
these fits. `results` writes and reads both.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Int, Int8, Int16


class Predictions(NamedTuple):
    """What the selected fit of every fold makes of every pair.

    A row is a fold of an arm. Pairs are in the order of the feature table.
    """

    arm: Int[np.ndarray, " folds"]
    """The index into the arms of result.json."""
    fit: Int[np.ndarray, " folds"]
    """The row of fits.npz."""
    seed: Int[np.ndarray, " folds"]
    held_out: Int[np.ndarray, " folds"]
    """The cell that the fit has never seen; -1 where all cells are observed."""
    restart: Int[np.ndarray, " folds"]
    labels: Int[np.ndarray, "folds cells"]
    """The flat label under which the assignment meets each cell."""
    q: Float[np.ndarray, "folds cells cells"]
    """The assignment Q, rows in the order of the cells: the row of cell c is that of its flat label."""
    energy: Float32[np.ndarray, "folds pairs cells"]
    """The normalised energy of every slot."""
    scale: Float32[np.ndarray, "folds pairs"]
    """The sum of a pair's energy before it is normalised: `energy * scale` is the energy in the paper's scale."""
    prediction: Int16[np.ndarray, "folds pairs"]
    """The slot with the largest energy, the first on ties."""
    role: Int8[np.ndarray, "folds pairs"]
    """The role of each pair in the fold's seed: 1 optimisation, 2 validation, 0 neither."""
    cell: Int[np.ndarray, " pairs"]
    """The true cell of every pair."""
    test_energy: Float32[np.ndarray, "folds test_pairs cells"] | None = None
    """The normalised energy of every pair with two edits; None in a run with one edit."""
    test_cell: Int[np.ndarray, " test_pairs"] | None = None
    """The combination of cells of every pair with two edits."""


class Kept(NamedTuple):
    """What a result keeps besides its statistics."""

    predictions: Predictions
    params: dict[str, Any] | None = None
    """By assignment, the parameters of its folds as nested dicts: {"readout": ..., "assignment": ...}. The first axis
    of each array is that of the arm's rows in the predictions. `router` has those of the fits of all cells."""


def joined(arms: Sequence[Predictions]) -> Predictions:
    """The predictions of all arms in one record."""
    shared = {"cell", "test_cell"}

    def join(name: str) -> Any:
        parts = [getattr(arm, name) for arm in arms]
        return parts[0] if name in shared or parts[0] is None else np.concatenate(parts)

    return Predictions(*map(join, Predictions._fields))


def arrays_of(predictions: Predictions) -> dict[str, np.ndarray]:
    """The content of predictions.npz: the fields that have a value."""
    return {name: array for name, array in predictions._asdict().items() if array is not None}


def from_arrays(arrays: dict[str, np.ndarray]) -> Predictions:
    """The predictions in the content of a file.

    Raises:
        ValueError: An array is missing or unknown.
    """
    try:
        return Predictions(**arrays)
    except TypeError as error:
        raise ValueError(f"predictions.npz does not have the arrays of predictions ({error})") from error
