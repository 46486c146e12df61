"""A folder of files at a path or at any fsspec address: list, read, write and remove its files.

Drivers of object stores raise errors of many kinds. Whatever goes wrong on the way there leaves this module as a
UserError of one line. Errors of the local disk and missing files keep their type, because callers know what they mean.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import fsspec

from soopf_jax.errors import UserError
from soopf_jax.plugins import missing_package
from soopf_jax.runtime.text import is_address
from soopf_jax.types import Json

AGAIN = "check the address, your credentials and the network, and run the same command again to go on"
FILES_AT_ONCE = 4
"""Files that are copied at the same time."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Unreachable(UserError):
    """What is at an address cannot be read or written now."""


class Folder(NamedTuple):
    """A folder at a path or fsspec address. It need not exist."""

    address: str
    files: Any
    """The fsspec file system."""
    root: str
    """The path of the folder on that file system."""

    def read(self, name: str) -> bytes:
        """The content of a file."""
        with self._reached():
            return self.files.cat_file(f"{self.root}/{name}")

    def sizes(self) -> dict[str, int]:
        """name -> size of every file in the folder, subfolders included."""
        with self._reached():
            found = self.files.find(self.root, detail=True)
            return {path.removeprefix(self.root).lstrip("/"): info["size"] for path, info in found.items()}

    def folders(self) -> list[str]:
        """The names of the folders in it, sorted; none if it does not exist."""
        with self._reached(), suppress(FileNotFoundError):
            found = self.files.ls(self.root, detail=True)
            return sorted(info["name"].rstrip("/").rpartition("/")[2] for info in found if info["type"] == "directory")
        return []

    def has(self, name: str) -> bool:
        """Whether there is a file of this name."""
        return self._described(name) is not None

    def holds(self, name: str, data: bytes) -> bool:
        """Whether a file has exactly this content.

        The server's own MD5 is enough where it gives one. Otherwise the file is read.
        """
        described = self._described(name)
        if described is None or described["size"] != len(data):
            return False
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        return md5_of_server(described) == md5 or self.read(name) == data

    def write(self, name: str, data: bytes) -> None:
        """Write a file. Object stores show it when it is complete."""
        with self._reached():
            try:
                self.files.pipe_file(f"{self.root}/{name}", data)
            except FileNotFoundError as error:
                raise self._unreachable(error) from error  # there is no such bucket

    def remove(self, first: str) -> None:
        """Remove the folder, and the file called `first` before all others."""
        with self._reached():
            with suppress(FileNotFoundError):
                self.files.rm_file(f"{self.root}/{first}")
            with suppress(FileNotFoundError):
                self.files.rm(self.root, recursive=True)

    def _described(self, name: str) -> Json | None:
        """What the file system says of a file; None if there is none."""
        with self._reached(), suppress(FileNotFoundError):
            return self.files.info(f"{self.root}/{name}")
        return None

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except (UserError, FileNotFoundError, MemoryError):
            raise
        except Exception as error:  # every driver has errors of its own
            if not is_address(self.address):
                raise
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> Unreachable:
        return Unreachable(f"cannot reach {self.address} ({str(error) or type(error).__name__}); {AGAIN}")


def open_folder(address: str | Path) -> Folder:
    """The folder at a path or address. Nothing is read or written.

    Raises:
        UserError: The kind of address is unknown, or plain http to another machine.
        MissingPackage: The driver for this kind of address is not installed.
    """
    address = str(address) if is_address(address) else str(Path(address).expanduser())
    scheme = address.partition("://")[0] if is_address(address) else ""
    if scheme == "http" and urlsplit(address).hostname not in LOOPBACK:
        raise UserError(f"{address} would be read without encryption; use https")
    options = {"auto_mkdir": True} if scheme in ("file", "local") else {}
    try:
        files, root = fsspec.core.url_to_fs(address, **options)
    except ImportError as error:
        package = error.name or getattr(error.__cause__, "name", None)
        if package:
            raise missing_package(address, package) from error
        raise UserError(f"cannot open {address}: {error}") from error
    except Exception as error:  # a driver that finds no credentials or cannot use its settings
        raise UserError(f"cannot open {address}: {error}") from error
    files.invalidate_cache()
    return Folder(address, files, root.rstrip("/"))


def for_all(action: Callable[[str], None], names: Iterable[str]) -> None:
    """Do something for every file, a few at a time. After an error no other file is begun, and the error is raised."""
    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        for _ in pool.map(action, names):
            pass


def md5_of_server(described: Json) -> str | None:
    """The MD5 of a file in hexadecimal, as far as a server gives it.

    Args:
        described: What fsspec knows of the file. S3 gives the MD5 as ETag of a file that came in one part, Google as
            `md5Hash` in base64. An ETag of another kind equals no MD5.
    """
    if "md5Hash" in described:
        return base64.b64decode(described["md5Hash"]).hex()
    etag = str(described.get("ETag", "")).strip('"')
    return etag if re.fullmatch("[0-9a-f]{32}", etag) else None
