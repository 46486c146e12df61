"""Unpacks a zip file into a folder: either completely or not at all, and never outside that folder."""

import shutil
import stat
import zlib
from pathlib import Path, PurePosixPath
from zipfile import BadZipFile, ZipFile, ZipInfo

from soopf_jax.errors import UserError
from soopf_jax.runtime import atomic
from soopf_jax.runtime.progress import bar
from soopf_jax.substrates.originals.download import CHUNK, MB, in_megabytes

MOST_EXPANSION = 20
"""COCO's annotations grow to about three times the size of their zip file; a zip bomb grows a thousandfold or more."""


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive whose entries are all below a folder named like `folder`.

    Every entry is checked before the first is written. zipfile never yields more bytes than an entry declares, and it
    checks the CRC-32 of every entry.

    Raises:
        UserError: The archive is damaged or unsafe, or the disk has too little room.
    """
    try:
        with ZipFile(archive) as opened:
            places = {entry: place(entry, folder.name) for entry in opened.infolist() if not entry.is_dir()}
            check_room(archive, folder, sum(entry.file_size for entry in places))
            with atomic.new_folder(folder) as temporary:
                extract(opened, {entry: temporary / path for entry, path in places.items()}, folder.name)
    except (BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, FileExistsError) as error:
        raise UserError(f"{archive} cannot be unpacked ({error}); remove it and fetch it again") from error


def extract(opened: ZipFile, places: dict[ZipInfo, Path], name: str) -> None:
    """Write each entry to its path, which must not exist yet."""
    total = sum(entry.file_size for entry in places)
    with bar(f"unpacking {name}", total // MB, "MB") as advance:
        show, done = in_megabytes(advance), 0
        for entry, path in places.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with opened.open(entry) as packed, path.open("xb") as file:
                shutil.copyfileobj(packed, file, CHUNK)
            done += entry.file_size
            show(done)


def place(entry: ZipInfo, folder: str) -> PurePosixPath:
    """The path of an entry inside its folder.

    Raises:
        BadZipFile: The entry is not a plain file, or not inside the folder.
    """
    path = PurePosixPath(entry.filename)
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise BadZipFile(f"{entry.filename} is no plain file")
    if len(path.parts) < 2 or path.parts[0] != folder or ".." in path.parts or "\\" in entry.filename:
        raise BadZipFile(f"{entry.filename} is not below {folder}")
    return path.relative_to(folder)


def check_room(archive: Path, folder: Path, total: int) -> None:
    """Check the total size of the entries.

    Raises:
        BadZipFile: The archive would grow so much that it must be a zip bomb.
        UserError: The disk has too little room.
    """
    if total > MOST_EXPANSION * archive.stat().st_size:
        raise BadZipFile(f"it would grow to {total} bytes")
    free = shutil.disk_usage(folder.parent).free
    if total > free:
        needed = f"{total / 1e9:.1f} GB, and {folder.parent} has {free / 1e9:.1f} GB left"
        raise UserError(f"unpacking {archive.name} takes {needed}; free some, then run the same command again to go on")
