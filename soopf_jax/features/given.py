"""Features that a user names by a place, instead of a data set and an encoder: what `--features` takes."""

from pathlib import Path

from soopf_jax.errors import UserError
from soopf_jax.features import foreign, pack, store
from soopf_jax.features.npz import load_npz
from soopf_jax.features.table import load
from soopf_jax.runtime.text import is_address
from soopf_jax.types import FeatureTable


def load_features(
    place: str | Path, pairs_per_cell: int | None = None, cache_dir: str | Path | None = None
) -> FeatureTable:
    """The features in a .npz file, in a feature pack or in a store.

    Args:
        place: A .npz file (`npz.py`); or the folder or fsspec address of a pack or store. What is at an address is
            first copied into the cache here.
        pairs_per_cell: How many pairs of each cell of a .npz file to keep, the first ones; None keeps all.
        cache_dir: The cache, if it is here; by default in the user's cache folder.

    Raises:
        UserError: There are no such features, or they cannot be used.
    """
    if not is_address(place) and not Path(place).expanduser().is_dir():
        return load_npz(place, pairs_per_cell)
    if pairs_per_cell is not None:
        raise UserError(f"{place} has all pairs that it was built with; leave --pairs-per-cell out")
    here = None if is_address(cache_dir) else cache_dir
    folder = pack.fetch(place, here) if is_address(place) else Path(place).expanduser()
    opened = store.open_store(folder)
    foreign.check(opened)
    if opened.manifest["inputs"]["substrate"].get("edits", 1) != 1:
        raise UserError(f"{place} has two edits per pair; --features takes one edit per pair")
    return load(folder, lazily=True)
