"""Turns values into canonical JSON and digests, and names into file names."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any


def canonical(value: Any) -> bytes:
    """The canonical JSON text of a value: equal values give equal bytes.

    Args:
        value: Anything that JSON can hold; tuples count as lists.

    Raises:
        TypeError: The value holds something that JSON cannot represent.
        ValueError: The value holds NaN or infinity.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def sha256(data: bytes) -> str:
    """The SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal. The file is not read into memory as a whole."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(value: Any) -> str:
    """The SHA-256 of a value's canonical JSON, in hexadecimal."""
    return sha256(canonical(value))


def slug(name: str) -> str:
    """A name for a file or a folder: runs of anything but letters, digits and dots become one hyphen."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.")
