"""The feature store: a folder of zarr arrays for each combination of encoder, substrate and dtype.

This module defines a store's recipe, key and manifest, and it reads and checks finished stores on a path or at any
fsspec address. `store_writer.py` builds them. `open_store` checks that the manifest and zarr's metadata are unchanged
and that every file in the manifest exists with the right size. The CRC-32C of each chunk is checked when the chunk is
read. `verify` checks every byte of every file, and that there are no other files.
"""

import json
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import platformdirs
from jaxtyping import Int

from soopf_jax.errors import UserError, unknown_name
from soopf_jax.features.address import Folder, Unreachable, open_folder
from soopf_jax.grid import Grid
from soopf_jax.runtime.hashing import canonical, digest, sha256, slug
from soopf_jax.runtime.text import is_address
from soopf_jax.types import Json

FORMAT = 1
"""The version of the layout of a store. It increases whenever the layout changes, and is part of every key."""
DTYPES = ("float16", "float32")
MANIFEST = "manifest.json"
CARD, SUMS = "README.md", "SHA256SUMS"
"""What a feature pack (`pack.py`) has beside the files of its store."""
FILES = re.compile(r"zarr\.json|(?:source|delta|region|cell)/(?:zarr\.json|c(?:\.\d+)+)")
"""The names of a store's files. No other name in a manifest is ever followed."""
RECORDED_PACKAGES = ("soopf_jax", "numpy", "jax", "jaxlib", "flax", "torch", "transformers", "pillow", "zarr")


class Damaged(UserError):
    """A store is not as it was written."""


class Store(NamedTuple):
    """A finished store whose manifest, metadata and file sizes have been checked."""

    address: str
    manifest: Json


# ------------------------------------------------------------------------------------- recipe and manifest


def make_recipe(
    encoder: Json,
    substrate: Json,
    grid: Grid,
    cell: Int[np.ndarray, "pairs"],
    dtype: str,
    pairs_per_block: int,
    images_per_batch: int,
) -> dict[str, Any]:
    """The manifest of a store without its files.

    Args:
        encoder: The identity of the encoder.
        substrate: The identity of the substrate.
        grid: The supports and operations.
        cell: The cell of every pair.
        dtype: The number format of the tokens.
        pairs_per_block: The number of pairs in a block.
        images_per_batch: The number of images in a batch of the encoder.

    Returns:
        The recipe. Its `key` is a hash of the format and `inputs` only.

    Raises:
        UserError: The dtype is unknown, or an identity is not plain JSON.
    """
    if dtype not in DTYPES:
        raise unknown_name("dtype", dtype, DTYPES)
    inputs = {
        "encoder": encoder,
        "substrate": substrate,
        "supports": grid.supports,
        "operations": grid.operations,
        "cells": sha256(np.asarray(cell, "<i4").tobytes()),
        "dtype": dtype,
    }
    try:
        key = digest({"format": FORMAT, "inputs": inputs})
    except (TypeError, ValueError) as error:
        raise UserError(f"the identity of an encoder or substrate must be plain finite JSON: {error}") from error
    recipe = {
        "format": FORMAT,
        "key": key,
        "inputs": inputs,
        "pairs": len(cell),
        "pairs_per_block": min(pairs_per_block, len(cell)),
        "images_per_batch": images_per_batch,
        "versions": _versions(),
    }
    return json.loads(canonical(recipe))


def make_manifest(recipe: Json, files: Json, statistics: Json | None = None) -> bytes:
    """The bytes of a manifest.

    Args:
        recipe: The recipe of the store.
        files: `name -> [size, SHA-256]` of every file.
        statistics: Those of the tokens, as `statistics.py` has them. Older stores have none.

    Returns:
        All of these and their digest, as JSON.
    """
    content = {**recipe, "files": files, **({} if statistics is None else {"statistics": statistics})}
    return manifest_bytes({**content, "digest": digest(content)})


def features_folder(cache_dir: str | Path | None) -> Path:
    """The folder that holds all stores; by default in the user's cache folder.

    A cache at an address (`remote.py`) has its working copies in the user's cache folder.
    """
    if cache_dir is None or cache_dir == "" or is_address(cache_dir):
        cache_dir = platformdirs.user_cache_dir("soopf_jax")
    return Path(cache_dir).expanduser() / "features"


def store_folder(recipe: Json, cache_dir: str | Path | None) -> Path:
    """`<cache_dir>/features/<substrate>-<encoder>-<dtype>-<first 16 hex digits of the key>`."""
    inputs = recipe["inputs"]
    encoder = inputs["encoder"]
    model = encoder.get("hub_id") or encoder.get("class") or ""
    words = [inputs["substrate"].get("name", ""), encoder.get("name", ""), model, inputs["dtype"]]
    name = slug("-".join(map(str, words)).lower().replace(".", "-"))[-80:].strip("-")
    return features_folder(cache_dir) / f"{name}-{recipe['key'][:16]}"


def manifest_bytes(manifest: Json) -> bytes:
    """The bytes of a whole manifest."""
    return json.dumps(manifest, sort_keys=True, indent=1, allow_nan=False).encode() + b"\n"


def _versions() -> dict[str, str]:
    """The versions of installed packages, imported or not. They are the same in every process of an environment."""
    versions = {"python": platform.python_version()}
    for package in RECORDED_PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


# ---------------------------------------------------------------------------------------------- reading


def open_store(address: str | Path) -> Store:
    """Open a finished store for reading. The docstring of this module says what is checked.

    Raises:
        UserError: There is no store at the address, or it is damaged.
    """
    folder = open_folder(address)
    manifest = read_manifest(folder)
    sizes = folder.sizes()
    for name, (size, checksum) in manifest["files"].items():
        if problem := _problem(folder, name, sizes.get(name), size, checksum if is_metadata(name) else None):
            raise damaged(folder.address, problem)
    return Store(folder.address, manifest)


class StoredArray:
    """One array of a store in its stored dtype. A slice is read from the disk when it is asked for."""

    def __init__(self, store: Store, name: str) -> None:
        import zarr  # slow to import, and command lines import this module before they need zarr

        self._store, self._name = store, name
        with self._blaming_damage():
            self._array = zarr.open_array(store=store.address, path=name, mode="r")
        self.shape, self.dtype, self.rows_per_chunk = self._array.shape, self._array.dtype, self._array.chunks[0]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        with self._blaming_damage():
            return self._array[rows]

    @contextmanager
    def _blaming_damage(self) -> Iterator[None]:
        try:
            yield
        except (ValueError, OSError, KeyError) as error:
            raise damaged(self._store.address, f"{self._name} cannot be read ({error})") from error


def read(store: Store, name: str) -> np.ndarray:
    """Read a whole array of a store. This needs memory for the array and one or two chunks."""
    array = StoredArray(store, name)
    values = np.empty(array.shape, array.dtype)
    for start in range(0, len(values), array.rows_per_chunk):
        values[start : start + array.rows_per_chunk] = array[start : start + array.rows_per_chunk]
    return values


def verify(address: str | Path) -> list[str]:
    """Compare a store with what was written.

    Returns:
        One line per difference; an empty list if there is none.

    Raises:
        Unreachable: The address cannot be reached.
    """
    folder = open_folder(address)
    try:
        manifest = read_manifest(folder)
    except Unreachable:
        raise
    except UserError as error:
        return [str(error)]
    sizes, written = folder.sizes(), manifest["files"]
    extra = [f"{name} does not belong to it" for name in sizes if name not in {*written, MANIFEST, CARD, SUMS}]
    changed = [_problem(folder, name, sizes.get(name), *expected) for name, expected in written.items()]
    return [str(damaged(folder.address, problem)) for problem in extra + changed if problem]


def is_metadata(name: str) -> bool:
    """Whether a file describes arrays rather than holding their values. Such a file has no CRC of its own."""
    return name.rpartition("/")[2] == "zarr.json"


def read_manifest(folder: Folder) -> dict[str, Any]:
    """The manifest; a UserError unless this version could have written exactly these bytes."""
    try:
        text = folder.read(MANIFEST)
        manifest = json.loads(text)
        if manifest["format"] != FORMAT:
            versions = f"store format {manifest['format']}, this version reads {FORMAT}"
            raise UserError(f"{folder.address} has {versions}; remove it and build it again")
        content = {name: value for name, value in manifest.items() if name != "digest"}
        if manifest["digest"] != digest(content) or text != manifest_bytes(manifest):
            raise damaged(folder.address, f"{MANIFEST} has changed")
        for name, (size, _) in manifest["files"].items():
            if not FILES.fullmatch(name) or not isinstance(size, int):
                raise damaged(folder.address, f"{MANIFEST} names a file that is none of a store")
    except OSError as error:
        raise UserError(f"no feature store at {folder.address} ({error}); build it first") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(folder.address, f"{MANIFEST} cannot be read ({error})") from error
    return manifest


def read_checked(folder: Folder, manifest: Json, name: str) -> bytes:
    """The content of a file of a store.

    Raises:
        Damaged: The file is missing or has changed.
    """
    size, checksum = manifest["files"][name]
    try:
        data = folder.read(name)
    except FileNotFoundError as error:
        raise damaged(folder.address, f"{name} is missing") from error
    if len(data) != size:
        raise damaged(folder.address, f"{name} has {len(data)} bytes instead of {size}")
    if sha256(data) != checksum:
        raise damaged(folder.address, f"{name} has changed")
    return data


def _problem(folder: Folder, name: str, found_size: int | None, size: int, checksum: str | None) -> str | None:
    """What is wrong with one file, or None. Its bytes are read only if there is a checksum."""
    if found_size is None:
        return f"{name} is missing"
    if found_size != size:
        return f"{name} has {found_size} bytes instead of {size}"
    if checksum is not None and sha256(folder.read(name)) != checksum:
        return f"{name} has changed"
    return None


def damaged(address: str, problem: str) -> Damaged:
    """The error for a damaged store, for the caller to raise."""
    return Damaged(f"feature store {address} is damaged: {problem}; remove it and build it again, or get it again")
