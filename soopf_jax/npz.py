"""Tokens made elsewhere: `--features FILE.npz` in, a FeatureTable out, or one line that says what is wrong."""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Float, Integer

from soopf_jax.errors import UserError
from soopf_jax.grid import MIN_PAIRS_PER_CELL, Grid
from soopf_jax.types import FeatureTable

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


def load_npz(path: str | Path, pairs_per_cell: int | None = None) -> FeatureTable:
    """The features in a .npz file; `pairs_per_cell` keeps the first so many pairs of each cell.

    `source[P,N,D]` and `edited[P,N,D]` (float), `cell[P]` (int, support * n_operations + operation), `supports`
    and `operations` (names), optionally `region[P,N]` (the support of each patch, -1 for none). No pickles.
    """
    try:
        arrays, digest = _read(Path(path).expanduser())
        _check_layout(arrays)
        grid = Grid.of(arrays["supports"].tolist(), arrays["operations"].tolist())
        _check_indices("cell", arrays["cell"], 0, grid.n_cells)
        kept = _first_of_each_cell(arrays["cell"], grid, pairs_per_cell)
        source, edited = (_tokens(name, arrays[name], kept) for name in ("source", "edited"))
        region = _one_hot(arrays["region"][kept], grid.n_supports) if "region" in arrays else None
    except UserError as error:
        raise UserError(f"features file {path}: {error}") from error.__cause__
    return FeatureTable(
        source=source,
        delta=np.subtract(edited, source, out=edited),
        region=region,
        cell=arrays["cell"][kept].astype(np.int32),
        grid=grid,
        provenance={
            "kind": "npz",
            "file": Path(path).name,
            "sha256": digest,
            "pairs_per_cell": pairs_per_cell,
        },
    )


def _read(path: Path) -> tuple[dict[str, np.ndarray], str]:
    """The arrays of the file and its SHA-256."""
    if not path.is_file():
        raise UserError("there is no such file; check the path")
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        with np.load(path, allow_pickle=False) as archive:
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise UserError("it holds a single array; save all of them with numpy.savez")
            _check_names(set(archive.files))
            return {name: archive[name] for name in archive.files}, digest
    except UserError:
        raise
    # A damaged archive fails in a dozen ways: in zipfile, zlib, numpy's header parser or the allocator.
    except Exception as error:
        reason = re.sub(r"\s+", " ", str(error))[:120] or type(error).__name__
        raise UserError(f"cannot be read as .npz ({reason}); save it again with numpy.savez") from error


def _check_names(names: set[str]) -> None:
    if missing := SHAPES.keys() - names - OPTIONAL:
        raise UserError(f"it lacks {', '.join(sorted(missing))}; add what is missing with numpy.savez")
    if unknown := names - SHAPES.keys():
        raise UserError(f"unknown array {', '.join(sorted(unknown))}; it may hold only {', '.join(SHAPES)}")


def _check_layout(arrays: Mapping[str, np.ndarray]) -> None:
    """Every array has its rank and kind, and those that share an axis agree on its length."""
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
    """The numbers of the pairs to keep, in the file's order."""
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
    """The kept pairs in float32: finite, and small enough that the sum of their squares is finite too."""
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
    """The whole of a patch belongs to its support."""
    _check_indices("region", region, -1, n_supports)
    return (region[..., None] == np.arange(n_supports)).astype(np.float32)
