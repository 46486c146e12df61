"""What may be kept of a fit besides its statistics: its energies of every pair, and its parameters.

Both are columns like the others while a run trains. Only the selected restart of a fold is kept in the end. In a group
of fits, a restart that another one of the same group beats is therefore overwritten with zeros, which take no space in
a compressed file.
"""

from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, PyTree

from soopf_jax.fitting.protocol import Fits
from soopf_jax.fitting.selection import NOTHING, PREDICTIONS, best_restarts
from soopf_jax.fitting.unfinished import Columns

ENERGIES = ("pair_energy", "pair_scale")
"""The columns of energies: fields of FitStats."""
PARAMS = "params/"
"""Prefix of the columns of parameters. The rest of the name is the path in the tree."""


def columns_to_keep(columns: dict[str, Any], params: PyTree, keep: str) -> dict[str, Any]:
    """The columns of some fits with what is to be kept of them, still on the device.

    Args:
        columns: The statistics, with the energies among them.
        params: The parameters of the same fits.
        keep: One of KEEP.
    """
    if keep == NOTHING:
        return {name: column for name, column in columns.items() if name not in ENERGIES}
    if keep == PREDICTIONS:
        return columns
    leaves, _ = jax.tree_util.tree_flatten_with_path(params)
    named = {PARAMS + jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}
    return columns | named


def without_beaten_restarts(columns: Columns, fits: Fits, ties: str) -> Columns:
    """The columns with zeros in place of what is kept of restarts that cannot be selected any more."""
    best = best_restarts(fits, columns["validation"], columns["failed"], ties)

    def cleared(column: np.ndarray) -> np.ndarray:
        return np.where(best.reshape(-1, *[1] * (column.ndim - 1)), column, np.zeros((), column.dtype))

    return {name: cleared(column) if is_kept(name) else column for name, column in columns.items()}


def split(columns: Columns) -> tuple[Columns, Columns]:
    """The statistics, and what is kept besides them."""
    kept = {name: column for name, column in columns.items() if is_kept(name)}
    return {name: column for name, column in columns.items() if name not in kept}, kept


def params_of(kept: Columns, selected: Bool[np.ndarray, " fits"]) -> dict[str, Any]:
    """The parameters of the selected fits as nested dicts, the fits along the first axis of every array."""
    tree: dict[str, Any] = {}
    for name, column in kept.items():
        if name.startswith(PARAMS):
            *folders, leaf = name.removeprefix(PARAMS).split("/")
            place = tree
            for folder in folders:
                place = place.setdefault(folder, {})
            place[leaf] = column[selected]
    return tree


def is_kept(name: str) -> bool:
    """Whether a column is kept in files of its own rather than in fits.npz."""
    return name in ENERGIES or name.startswith(PARAMS)
