"""Reads tokens that were made elsewhere: `--features FILE.npz` in, a FeatureTable out."""

import re
from pathlib import Path

import numpy as np

from soopf_jax.errors import UserError
from soopf_jax.runtime.hashing import file_sha256
from soopf_jax.tokens import OPTIONAL, SHAPES, check_tokens
from soopf_jax.types import FeatureTable


def load_npz(path: str | Path, pairs_per_cell: int | None = None) -> FeatureTable:
    """The features in a .npz file.

    The file holds `source[P,N,D]` and `edited[P,N,D]` (float), `cell[P]` (int, support * n_operations + operation),
    `supports` and `operations` (names) and optionally `region[P,N]` (int, the support of each patch, -1 for none).
    Pickled objects are refused.

    Args:
        path: The file.
        pairs_per_cell: How many pairs of each cell to keep, the first ones; None keeps all.

    Raises:
        UserError: The file cannot be read, or its content is not as described.
    """
    try:
        arrays, digest = _read(Path(path).expanduser())
        tokens = check_tokens(arrays, pairs_per_cell)
    except UserError as error:
        raise UserError(f"features file {path}: {error}") from error.__cause__
    provenance = {"kind": "npz", "file": Path(path).name, "sha256": digest, "pairs_per_cell": pairs_per_cell}
    return FeatureTable(*tokens, provenance)


def _read(path: Path) -> tuple[dict[str, np.ndarray], str]:
    """The arrays of the file and its SHA-256."""
    if not path.is_file():
        raise UserError("there is no such file; check the path")
    try:
        digest = file_sha256(path)
        with np.load(path, allow_pickle=False) as archive:
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise UserError("it holds a single array; save all of them with numpy.savez")
            _check_names(set(archive.files))
            return {name: archive[name] for name in archive.files}, digest
    except UserError:
        raise
    # A damaged archive can fail in zipfile, zlib, numpy's header parser or the allocator.
    except Exception as error:
        reason = re.sub(r"\s+", " ", str(error))[:120] or type(error).__name__
        raise UserError(f"cannot be read as .npz ({reason}); save it again with numpy.savez") from error


def _check_names(names: set[str]) -> None:
    if missing := SHAPES.keys() - names - OPTIONAL:
        raise UserError(f"it lacks {', '.join(sorted(missing))}; add what is missing with numpy.savez")
    if unknown := names - SHAPES.keys():
        raise UserError(f"unknown array {', '.join(sorted(unknown))}; it may hold only {', '.join(SHAPES)}")
