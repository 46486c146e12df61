"""Writes that happen or do not: a reader never meets half a file, and a finished folder is never half replaced."""

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from soopf_jax.errors import UserError

LOCK = "lock"
"""The file in a folder that tells a process that another is at work there."""


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file in one step: a temporary neighbour, fsync, rename."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


@contextlib.contextmanager
def new_folder(path: Path, replace: bool = False, within: Path | None = None) -> Iterator[Path]:
    """A temporary folder that becomes `path` at the end of the block, or vanishes if the block fails.

    Until then it is beside `path`, or `within` another folder of the same file system.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=within or path.parent, prefix=f".{path.name}."))
    try:
        yield temporary
        os.chmod(temporary, 0o755)
        if replace and path.exists():
            old = Path(tempfile.mkdtemp(dir=within or path.parent, prefix=f".{path.name}.old."))
            os.replace(path, old / path.name)
            os.replace(temporary, path)
            shutil.rmtree(old)
        else:
            os.rename(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


@contextlib.contextmanager
def only_process(folder: Path, waiting: str) -> Iterator[bool]:
    """Be the only process at work in a folder, which is made if need be; gives whether that took waiting.

    `waiting` is said on stderr before. A process that dies loses its lock, one that is done may remove the folder.
    """
    lock, waited = FileLock(folder / LOCK), False
    while not lock.is_locked:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=-1 if waited else 0)
        except Timeout:
            print(waiting, file=sys.stderr, flush=True)
            waited = True
        except FileNotFoundError:
            waited = True  # the folder went after we had made it: whoever was at work there has just finished
    try:
        yield waited
    finally:
        lock.release()


def clear(folder: Path) -> None:
    """Remove all that is in a folder but its lock."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()


def check_writable(folder: Path) -> None:
    """Fail before the work rather than after it: can a folder be made here?"""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        os.rmdir(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    except OSError as error:
        raise UserError(f"cannot write to {folder.parent}: {error.strerror}; choose another folder") from error
