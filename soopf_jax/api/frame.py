"""The fits of a result as a pandas table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from soopf_jax import plugins
from soopf_jax.experiments.results import Result
from soopf_jax.grid import Grid

if TYPE_CHECKING:
    import pandas

NUMBERS = ("arm", "held_out")
"""Columns of fits.npz that hold the numbers of things that have names."""


def frame_of(result: Result) -> pandas.DataFrame:
    """One row per fit, with names where fits.npz has numbers.

    Raises:
        MissingPackage: pandas is not installed.
    """
    plugins.require("to_frame", "pandas")
    import pandas

    fits, arms = result.fits, result.document["arms"]
    grid = Grid.of(**result.document["provenance"]["grid"])
    columns: dict[str, Any] = {
        part: [arms[number][part] for number in fits["arm"]] for part in ("assignment", "readout", "objective")
    }
    # A fit that has seen all cells has the number -1, the place of the None that is added to the names.
    for column, names in {
        "held_out": grid.cell_names,
        "support": tuple(support for support in grid.supports for _ in grid.operations),
        "operation": grid.operations * grid.n_supports,
    }.items():
        columns[column] = np.array([*names, None], object)[fits["held_out"]]
    numbers = {name: column for name, column in fits.items() if column.ndim == 1 and name not in NUMBERS}
    return pandas.DataFrame({**columns, **numbers})
