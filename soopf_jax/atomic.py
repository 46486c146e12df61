"""Writes that happen or do not: a reader never meets half a file, and a finished folder is never half replaced."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from soopf_jax.errors import UserError


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
def new_folder(path: Path, replace: bool = False) -> Iterator[Path]:
    """A temporary folder beside `path` that becomes `path` at the end of the block, or vanishes if the block fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        yield temporary
        os.chmod(temporary, 0o755)
        if replace and path.exists():
            old = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.old."))
            os.replace(path, old / path.name)
            os.replace(temporary, path)
            shutil.rmtree(old)
        else:
            os.rename(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def check_writable(folder: Path) -> None:
    """Fail before the work rather than after it: can a folder be made here?"""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        os.rmdir(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    except OSError as error:
        raise UserError(f"cannot write to {folder.parent}: {error.strerror}; choose another folder") from error
