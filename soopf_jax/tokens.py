"""Checks tokens that were made elsewhere: arrays in, the parts of a FeatureTable out.

`FeatureTable.from_tokens` has the arrays in memory, and `features/npz.py` reads them from a file.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Integer

from soopf_jax.errors import UserError
from soopf_jax.grid import MIN_PAIRS_PER_CELL, Grid

SHAPES = {
    "source": ("pairs", "patches", "channels"),
    "edited": ("pairs", "patches", "channels"),
    "cell": ("pairs",),
    "supports": ("names",),
    "operations": ("names",),
    "region": ("pairs", "patches"),
}
KINDS = {
    "source": ("f", "floating-point"),
    "edited": ("f", "floating-point"),
    "cell": ("iu", "integers"),
    "supports": ("U", "strings"),
    "operations": ("U", "strings"),
    "region": ("iu", "integers"),
}
OPTIONAL = {"region"}


class Tokens(NamedTuple):
    """Checked tokens. The fields are those of a FeatureTable."""

    source: Float[np.ndarray, "pairs patches channels"]
    delta: Float[np.ndarray, "pairs patches channels"]
    region: Float[np.ndarray, "pairs patches supports"] | None
    cell: Int[np.ndarray, " pairs"]
    grid: Grid

    def sha256(self) -> str:
        """The digest of all values and names, in hexadecimal."""
        found = hashlib.sha256(repr((self.source.shape, self.grid)).encode())
        for array in (self.source, self.delta, self.cell, self.region):
            if array is not None:
                found.update(np.ascontiguousarray(array).data)
        return found.hexdigest()


def as_arrays(**values: Any) -> dict[str, np.ndarray]:
    """Anything that NumPy can read, by name: lists, NumPy and JAX arrays, torch tensors. None is left out.

    Raises:
        UserError: A value is no array.
    """
    arrays = {}
    for name, value in values.items():
        try:
            if value is not None:
                arrays[name] = np.asarray(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise UserError(f"{name} cannot be read as an array ({error}); give a NumPy array") from error
    return arrays


def check_tokens(arrays: Mapping[str, np.ndarray], pairs_per_cell: int | None = None) -> Tokens:
    """Check arrays that have the names, shapes and kinds of SHAPES and KINDS.

    Args:
        arrays: The arrays. They are not changed.
        pairs_per_cell: How many pairs of each cell to keep, the first ones; None keeps all.

    Raises:
        UserError: They cannot be used together.
    """
    _check_layout(arrays)
    grid = Grid.of(arrays["supports"].tolist(), arrays["operations"].tolist())
    _check_indices("cell", arrays["cell"], 0, grid.n_cells)
    kept = _first_of_each_cell(arrays["cell"], grid, pairs_per_cell)
    source, edited = (_tokens(name, arrays[name], kept) for name in ("source", "edited"))
    region = _one_hot(arrays["region"][kept], grid.n_supports) if "region" in arrays else None
    return Tokens(source, np.subtract(edited, source, out=edited), region, arrays["cell"][kept].astype(np.int32), grid)


def _check_layout(arrays: Mapping[str, np.ndarray]) -> None:
    """Check that every array has its rank and kind, and that arrays agree on the lengths of shared axes."""
    lengths: dict[str, tuple[str, int]] = {}
    for name, array in arrays.items():
        kind, kind_name = KINDS[name]
        expected = f"{name} must be {kind_name} [{', '.join(SHAPES[name])}]"
        if array.ndim != len(SHAPES[name]) or array.dtype.kind not in kind:
            raise UserError(f"{expected}, not {array.dtype} {list(array.shape)}; reshape or convert it")
        if 0 in array.shape:
            raise UserError(f"{name} is empty ({list(array.shape)}); save some pairs")
        for axis, length in zip(SHAPES[name], array.shape, strict=True):
            other, known = lengths.setdefault(axis, (name, length))
            if axis != "names" and known != length:
                raise UserError(f"{name} has {length} {axis} but {other} has {known}; make them agree")


def _check_indices(name: str, values: Integer[np.ndarray, "..."], low: int, high: int) -> None:
    wrong = (values < low) | (values >= high)
    if wrong.any():
        found = values[wrong].flat[0]
        raise UserError(f"{name} holds {found}, outside {low}..{high - 1}; correct it or the names of the grid")


def _first_of_each_cell(
    cell: Integer[np.ndarray, " pairs"], grid: Grid, limit: int | None
) -> Integer[np.ndarray, " kept"]:
    """The numbers of the pairs to keep, in the order of the file."""
    if limit is not None and limit < MIN_PAIRS_PER_CELL:
        raise UserError(f"--pairs-per-cell {limit} is too few; take at least {MIN_PAIRS_PER_CELL}")
    members = [np.flatnonzero(cell == c)[:limit] for c in range(grid.n_cells)]
    for name, pairs in zip(grid.cell_names, members, strict=True):
        if len(pairs) < MIN_PAIRS_PER_CELL:
            count = f"{len(pairs)} pairs" if len(pairs) else "no pair"
            raise UserError(f"cell {name} has {count}; every cell needs at least {MIN_PAIRS_PER_CELL}")
    return np.sort(np.concatenate(members))


def _tokens(
    name: str, tokens: Float[np.ndarray, "P N D"], kept: Integer[np.ndarray, " kept"]
) -> Float[np.ndarray, "kept N D"]:
    """The kept pairs in float32. A UserError unless they are finite and the sum of their squares is too."""
    tokens = tokens[kept]
    peak = np.abs(tokens).max(axis=(1, 2))
    if not np.isfinite(peak).all():
        pair = kept[np.argmin(np.isfinite(peak))]
        raise UserError(f"{name} of pair {pair} holds NaN or infinity; leave it out or encode it again")
    limit = 0.1 * np.sqrt(np.finfo(np.float32).max / tokens[0].size)
    if peak.max() > limit:
        pair = kept[np.argmax(peak)]
        raise UserError(
            f"{name} of pair {pair} holds {peak.max():.3g}: squares, summed over a pair, would overflow float32;"
            f" divide all features by the same number to bring them below {limit:.1g}"
        )
    return tokens.astype(np.float32)


def _one_hot(region: Integer[np.ndarray, "P N"], n_supports: int) -> Float[np.ndarray, "P N S"]:
    """The share of each support in each patch: a patch belongs wholly to its support."""
    _check_indices("region", region, -1, n_supports)
    return (region[..., None] == np.arange(n_supports)).astype(np.float32)
