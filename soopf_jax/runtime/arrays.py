"""Converts arrays to the bytes of an npz file and back. Equal arrays give equal bytes, and reading never runs code."""

import io
from collections.abc import Mapping

import numpy as np


def npz_bytes(arrays: Mapping[str, np.ndarray]) -> bytes:
    """An npz file in memory."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def read_npz(data: bytes) -> dict[str, np.ndarray]:
    """All arrays of an npz file.

    Raises:
        ValueError: The bytes are not an npz file, or hold something other than arrays.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    # A damaged archive can fail in zipfile, zlib, numpy's header parser or the allocator.
    except Exception as error:
        raise ValueError(f"not an npz file ({error or type(error).__name__})") from error
    if not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise ValueError("not an npz file: it holds something that is not an array")
    return arrays
