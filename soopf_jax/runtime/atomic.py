"""Atomic writes and locks: a reader never sees a half-written file or a half-replaced folder."""

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from filelock import FileLock, Timeout

from soopf_jax.errors import UserError

LOCK = "lock"
"""The name of the lock file in a folder that one process works in at a time."""


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically: write a temporary file beside it, call fsync and rename."""
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
    """A temporary folder that becomes `path` at the end of the block, or is deleted if the block fails.

    Args:
        path: The folder to make.
        replace: Whether to replace an existing folder.
        within: Where to put the temporary folder, on the same file system; by default beside `path`.
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
def locked(file: Path, message: str, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of a file. Its folder is made if necessary. A process that dies releases its lock.

    Args:
        file: The lock file. Another process may remove its folder when it has finished.
        message: What to tell the user if another process holds the lock.
        wait: Whether to print the message on stderr and wait, or to raise it.

    Yields:
        Whether the lock had to be waited for.

    Raises:
        UserError: Another process holds the lock, and `wait` is false.
    """
    lock, waited = FileLock(file), False
    while not lock.is_locked:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=-1 if waited else 0)
        except Timeout:
            if not wait:
                raise UserError(message) from None
            print(message, file=sys.stderr, flush=True)
            waited = True
        except FileNotFoundError:
            waited = True  # another process has just finished and removed the folder
    try:
        yield waited
    finally:
        lock.release()


def only_process(folder: Path, waiting: str) -> AbstractContextManager[bool]:
    """Make this the only process that works in a folder. Like `locked`, with a lock file in the folder."""
    return locked(folder / LOCK, waiting)


def remove(folder: Path) -> None:
    """Remove a folder in which this process holds the lock.

    It is renamed first. A process that waits for the lock would otherwise make its file again while the folder is being
    emptied. If the folder is gone already, nothing is done.
    """
    aside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f"{folder.name}."))
    try:
        with contextlib.suppress(FileNotFoundError):
            os.replace(folder, aside)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def clear(folder: Path) -> None:
    """Remove everything in a folder except its lock file."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()


def check_writable(folder: Path) -> None:
    """Check that a folder can be made here, to fail before the work rather than after it.

    Raises:
        UserError: The folder cannot be made.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        os.rmdir(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    except OSError as error:
        raise UserError(f"cannot write to {folder.parent}: {error.strerror}; choose another folder") from error
