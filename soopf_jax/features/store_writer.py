"""Builds, lists and removes feature stores on a local path. A process may be killed at any moment without damage.

Blocks of pairs are written to `<folder>.partial`. A block counts once its line is in `<folder>.journal`; the line names
each file of the block with its size and SHA-256. `finish` writes the manifest and renames the folder. A build that
continues after an interruption first deletes all files that the journal does not name. Nothing in a store depends on
the time or the process, so an interrupted build ends with the same bytes as any other. A second process waits for the
lock on `<folder>.lock`.
"""

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from soopf_jax.errors import UserError, unknown_name
from soopf_jax.features.address import Folder, for_all
from soopf_jax.features.store import (
    MANIFEST,
    Damaged,
    Store,
    features_folder,
    is_metadata,
    make_manifest,
    manifest_bytes,
    open_store,
    read_checked,
    read_manifest,
)
from soopf_jax.runtime import atomic
from soopf_jax.runtime.hashing import canonical, sha256
from soopf_jax.types import Json

FILL = {"source": np.nan, "delta": np.nan, "region": np.nan, "cell": -1}
"""The padding of the last chunk. It cannot be mistaken for a value."""
CHOSEN_BY_THE_FIRST_RUN = ("pairs_per_block", "images_per_batch")
"""A build that continues keeps these settings, because the last bits of tokens depend on how images are batched."""


class Block(NamedTuple):
    """The features of some consecutive pairs, as they are stored."""

    source: Float[np.ndarray, "pairs patches channels"]
    delta: Float[np.ndarray, "pairs patches channels"]
    region: Float[np.ndarray, "pairs patches supports"]
    """In float32, because half precision could move a share across the threshold of 0.5. The array is small anyway."""
    cell: Int[np.ndarray, "pairs"]


@dataclass
class Partial:
    """A store that is being built."""

    folder: Path
    """Where the finished store will be."""
    recipe: Json
    files: dict[str, Any]
    """name -> [size, SHA-256] of every file that the journal names."""
    blocks: int
    """How many blocks the journal names."""

    @property
    def work(self) -> Path:
        """The folder of the files until the store is finished."""
        return _beside(self.folder, "partial")

    @property
    def journal(self) -> Path:
        """One line with the recipe, then one line per block."""
        return _beside(self.folder, "journal")


UNFINISHED = "unfinished"


class Listed(NamedTuple):
    """A store in the cache."""

    name: str
    state: str
    """`ready`, `unfinished`, or what is wrong with it."""
    bytes: int
    statistics: Json | None = None
    """Those of a finished store, as `statistics.py` has them; None in a store of an earlier version."""


# --------------------------------------------------------------------------------------------- building


@contextmanager
def locked(folder: Path, wait: bool = True) -> Iterator[None]:
    """Make this the only process that builds or removes the store. A process that dies releases its lock.

    Args:
        folder: The folder of the finished store.
        wait: Whether to wait for another process that holds the lock.

    Raises:
        UserError: Another process holds the lock and `wait` is false, or the folder cannot be written.
    """
    waiting = f"waiting for another process that is building {folder.name}"
    refused = f"{folder.name} is being built by another process; stop that one first"
    with ExitStack() as stack:
        with _writing(folder):
            stack.enter_context(atomic.locked(_beside(folder, "lock"), waiting if wait else refused, wait))
        yield


def begin(folder: Path, recipe: Json) -> Partial:
    """Start a build, or continue an interrupted one that has the same inputs and versions."""
    partial = Partial(folder, recipe, files={}, blocks=0)
    with _writing(folder):
        header, *lines = _journal_lines(partial.journal) or [{}]
        same = {**recipe, **{name: header.get(name) for name in CHOSEN_BY_THE_FIRST_RUN}} == header
        if same:
            partial.recipe = header
        for files in lines if same else []:
            if not all(_has_size(partial.work / name, size) for name, (size, _) in files.items()):
                break
            partial.files |= files
            partial.blocks += 1
        _discard_unnamed(partial)
        kept = [partial.recipe, *lines[: partial.blocks]]
        fresh = _beside(folder, "journal.new")
        _write_synced(fresh, b"".join(canonical(line) + b"\n" for line in kept))
        fresh.replace(partial.journal)
    return partial


def append(partial: Partial, index: int, block: Block) -> None:
    """Write block number `index`, which must be the next one."""
    if index != partial.blocks:
        raise ValueError(f"block {index} cannot follow {partial.blocks} blocks")
    files = _encode(partial.recipe, index, block)
    named = {name: [len(data), sha256(data)] for name, data in files.items()}
    with _writing(partial.folder):
        for name, data in files.items():
            _write_synced(partial.work / name, data)
        _write_synced(partial.journal, canonical(named) + b"\n", mode="ab")
    partial.files |= named
    partial.blocks += 1


def finish(partial: Partial, statistics: Json | None = None) -> None:
    """Write the manifest, with statistics of the tokens, then rename the folder. The store appears in one step."""
    with _writing(partial.folder):
        _write_synced(partial.work / MANIFEST, make_manifest(partial.recipe, partial.files, statistics))
        partial.work.rename(partial.folder)
        partial.journal.unlink()


def adopt(folder: Path, source: Folder, check: Callable[[Store], None]) -> None:
    """Copy a finished store from elsewhere to its place here. A copy that was interrupted goes on where it stopped.

    The caller holds the lock of the folder. Every byte is compared with the manifest before the store appears.

    Args:
        folder: Where the store will be.
        source: Where it comes from.
        check: Raises Damaged if the content of the store cannot be used.

    Raises:
        Damaged: A file is missing or has changed. Nothing is left of the copy.
        UserError: The source cannot be read, or the folder cannot be written.
    """
    manifest = read_manifest(source)
    copy = Partial(folder, manifest, manifest["files"], blocks=0)

    def fetch(name: str) -> None:
        size, checksum = manifest["files"][name]
        if _has_size(copy.work / name, size) and sha256((copy.work / name).read_bytes()) == checksum:
            return
        data = read_checked(source, manifest, name)
        with _writing(folder):
            _write_synced(copy.work / name, data)

    with _writing(folder):
        copy.journal.unlink(missing_ok=True)  # of a build that this store replaces
        _discard_unnamed(copy)
    try:
        for_all(fetch, manifest["files"])
        check(Store(str(copy.work), manifest))
    except Damaged:
        shutil.rmtree(copy.work)
        raise
    with _writing(folder):
        _write_synced(copy.work / MANIFEST, manifest_bytes(manifest))
        copy.work.rename(folder)


def _encode(recipe: Json, index: int, block: Block) -> dict[str, bytes]:
    """The files of one block, one chunk per array. The first block also has zarr's metadata."""
    import zarr

    memory: dict[str, Any] = {}
    group = zarr.open_group(store=memory, mode="w", zarr_format=3)
    start = index * recipe["pairs_per_block"]
    for name, values in block._asdict().items():
        array = group.create_array(
            name,
            shape=(recipe["pairs"], *values.shape[1:]),
            chunks=(recipe["pairs_per_block"], *values.shape[1:]),
            dtype=values.dtype,
            # zstd would make real tokens only 8 % smaller and take two to eight times as long to read.
            compressors=[zarr.codecs.Crc32cCodec()],
            fill_value=FILL[name],
            chunk_key_encoding={"name": "default", "separator": "."},
            config={"write_empty_chunks": True},
        )
        array[start : start + len(values)] = values
    wanted = [name for name in memory if index == 0 or not is_metadata(name)]
    return {name: memory[name].to_bytes() for name in wanted}


def _journal_lines(journal: Path) -> list[Any]:
    """The complete lines of a journal, if there is one. An interruption may have cut the last line short."""
    lines: list[Any] = []
    for line in journal.read_bytes().split(b"\n")[:-1] if journal.exists() else []:
        try:
            lines.append(json.loads(line))
        except ValueError:
            break
    return lines


def _discard_unnamed(partial: Partial) -> None:
    """Delete every file in the working folder that the journal does not name."""
    partial.work.mkdir(parents=True, exist_ok=True)
    for path in partial.work.rglob("*"):
        if path.is_file() and path.relative_to(partial.work).as_posix() not in partial.files:
            path.unlink()


# ----------------------------------------------------------------------------------- listing and removing


def list_stores(cache_dir: str | Path | None) -> list[Listed]:
    """Every store in the cache, sorted by name."""
    root = features_folder(cache_dir)
    folders = [path for path in root.iterdir() if path.is_dir()] if root.is_dir() else []
    return [_listed(root / name) for name in sorted({path.name.removesuffix(".partial") for path in folders})]


def remove(name: str, cache_dir: str | Path | None) -> None:
    """Delete a store from the cache, finished or not. If the process is killed meanwhile, an unfinished store remains.

    Raises:
        UserError: There is no such store, or another process is building it.
    """
    valid = [listed.name for listed in list_stores(cache_dir)]
    if name not in valid:
        raise (
            unknown_name("feature store", name, valid) if valid else UserError("there is no feature store to remove")
        )
    folder = features_folder(cache_dir) / name
    work, journal = _beside(folder, "partial"), _beside(folder, "journal")
    with locked(folder, wait=False), _writing(folder):
        journal.unlink(missing_ok=True)
        if work.exists():
            shutil.rmtree(work)
        if folder.exists():
            folder.rename(work)
            shutil.rmtree(work)


def _listed(folder: Path) -> Listed:
    state, statistics = UNFINISHED, None
    try:
        if folder.exists():
            state, statistics = "ready", open_store(folder).manifest.get("statistics")
    except UserError as error:
        state = str(error)
    return Listed(folder.name, state, _folder_bytes(folder) + _folder_bytes(_beside(folder, "partial")), statistics)


def _folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


# ----------------------------------------------------------------------------------------------- files


def _beside(folder: Path, suffix: str) -> Path:
    return folder.with_name(f"{folder.name}.{suffix}")


def _has_size(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size


def _write_synced(path: Path, data: bytes, mode: str = "wb") -> None:
    """Write a file and wait until it is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open(mode) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Turn an error of the disk into a UserError."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            again = "free some and run the same command again: it goes on where it stopped"
            raise UserError(f"no space left for {folder}; {again}") from error
        raise UserError(f"cannot write {folder}: {error}; choose another place with --cache-dir") from error
