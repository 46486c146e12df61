"""Building, listing and removing feature stores on a local path, so that a kill at any moment does no harm.

Blocks of pairs go into `<folder>.partial`. A block counts once its line is in `<folder>.journal`, which names each of
its files with size and SHA-256; `finish` writes the manifest and renames the folder. Whatever the journal does not name
is thrown away when a build goes on after an interruption, and nothing written here depends on the time or the process,
so an interrupted build ends with the same bytes as any other. `<folder>.lock` keeps a second process waiting meanwhile.
"""

import errno
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import zarr
from filelock import FileLock, Timeout
from jaxtyping import Float, Int
from zarr.codecs import Crc32cCodec

from soopf_jax.errors import UserError, unknown_name
from soopf_jax.store import (
    MANIFEST,
    canonical,
    features_folder,
    is_metadata,
    make_manifest,
    open_store,
    sha256,
)
from soopf_jax.types import Json

FILL = {"source": np.nan, "delta": np.nan, "region": np.nan, "cell": -1}
"""What pads the last chunk: nothing that could be taken for a value."""
CHOSEN_BY_THE_FIRST_RUN = ("pairs_per_block", "images_per_batch")
"""A build that goes on keeps these: how images are batched decides the last bits of their tokens."""


class Block(NamedTuple):
    """The features of some consecutive pairs, as they are stored."""

    source: Float[np.ndarray, "pairs patches channels"]
    delta: Float[np.ndarray, "pairs patches channels"]
    region: Float[np.ndarray, "pairs patches supports"]
    """float32: half precision could carry a share across the threshold of 0.5, and it is small."""
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
        """Where the files are until then."""
        return _beside(self.folder, "partial")

    @property
    def journal(self) -> Path:
        """One line with the recipe, then one line per block."""
        return _beside(self.folder, "journal")


class Listed(NamedTuple):
    """A store in the cache."""

    name: str
    state: str
    """`ready`, `unfinished`, or what is wrong with it."""
    bytes: int


# --------------------------------------------------------------------------------------------- building


@contextmanager
def locked(folder: Path, wait: bool = True) -> Iterator[None]:
    """Be the only process that builds or removes this store. A process that dies loses its lock."""
    with _writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(_beside(folder, "lock"))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if not wait:
                raise UserError(f"{folder.name} is being built by another process; stop that one first") from None
            print(f"waiting for another process that is building {folder.name}", file=sys.stderr, flush=True)
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


def begin(folder: Path, recipe: Json) -> Partial:
    """Start a build, or go on with an interrupted one that has the same inputs and versions."""
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


def finish(partial: Partial) -> None:
    """Write the manifest and give the store its name: one rename, after which it is there and whole."""
    with _writing(partial.folder):
        _write_synced(partial.work / MANIFEST, make_manifest(partial.recipe, partial.files))
        partial.work.rename(partial.folder)
        partial.journal.unlink()


def _encode(recipe: Json, index: int, block: Block) -> dict[str, bytes]:
    """The files of one block, one chunk per array; the first block brings zarr's metadata with it."""
    memory: dict[str, Any] = {}
    group = zarr.open_group(store=memory, mode="w", zarr_format=3)
    start = index * recipe["pairs_per_block"]
    for name, values in block._asdict().items():
        array = group.create_array(
            name,
            shape=(recipe["pairs"], *values.shape[1:]),
            chunks=(recipe["pairs_per_block"], *values.shape[1:]),
            dtype=values.dtype,
            # No compression: zstd takes 8 % off real tokens and two to eight times as long to read.
            compressors=[Crc32cCodec()],
            fill_value=FILL[name],
            chunk_key_encoding={"name": "default", "separator": "."},
            config={"write_empty_chunks": True},
        )
        array[start : start + len(values)] = values
    wanted = [name for name in memory if index == 0 or not is_metadata(name)]
    return {name: memory[name].to_bytes() for name in wanted}


def _journal_lines(journal: Path) -> list[Any]:
    """The whole lines of a journal, if there is one; a line cut short by an interruption ends it."""
    lines: list[Any] = []
    for line in journal.read_bytes().split(b"\n")[:-1] if journal.exists() else []:
        try:
            lines.append(json.loads(line))
        except ValueError:
            break
    return lines


def _discard_unnamed(partial: Partial) -> None:
    """Leave no file in the working folder that the journal does not name."""
    partial.work.mkdir(parents=True, exist_ok=True)
    for path in partial.work.rglob("*"):
        if path.is_file() and path.relative_to(partial.work).as_posix() not in partial.files:
            path.unlink()


# ----------------------------------------------------------------------------------- listing and removing


def list_stores(cache_dir: str | Path | None) -> list[Listed]:
    """Every store in the cache, by name."""
    root = features_folder(cache_dir)
    folders = [path for path in root.iterdir() if path.is_dir()] if root.is_dir() else []
    return [
        Listed(name, _state(root / name), sum(_folder_bytes(root / part) for part in (name, f"{name}.partial")))
        for name in sorted({path.name.removesuffix(".partial") for path in folders})
    ]


def remove(name: str, cache_dir: str | Path | None) -> None:
    """Delete a store of the cache, finished or not. A kill on the way leaves an unfinished store."""
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


def _state(folder: Path) -> str:
    if not folder.exists():
        return "unfinished"
    try:
        open_store(folder)
    except UserError as error:
        return str(error)
    return "ready"


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
    """Turn what a disk can refuse into one line."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            again = "free some and run the same command again: it goes on where it stopped"
            raise UserError(f"no space left for {folder}; {again}") from error
        raise UserError(f"cannot write {folder}: {error}; choose another place with --cache-dir") from error
