"""Checks the content of a store that was made elsewhere: what a forger could write, and our own writer never would."""

import json

import numpy as np

from soopf_jax.errors import UserError
from soopf_jax.features.address import open_folder
from soopf_jax.features.store import Damaged, Store, StoredArray, damaged, read
from soopf_jax.grid import Grid
from soopf_jax.runtime.hashing import digest, sha256

CODECS = ["bytes", "crc32c"]
"""How the arrays of a store are encoded. No other codec of zarr's is ever run."""
PAIRS_AT_ONCE = 32


def check(opened: Store) -> None:
    """Check that a store is one that this package could have written.

    Its key is that of its inputs, its arrays fit together, its cells are those that the key covers, and its tokens are
    finite.

    Args:
        opened: A store. Its manifest and the sizes of its files have been checked already.

    Raises:
        Damaged: Something is wrong.
    """
    try:
        problem = _of_manifest(opened) or _of_arrays(opened)
    except Damaged:
        raise
    except (UserError, KeyError, TypeError, ValueError, AttributeError) as error:
        problem = f"it cannot be understood ({type(error).__name__}: {error})"
    if problem:
        raise damaged(opened.address, problem)


def _of_manifest(opened: Store) -> str | None:
    """What is wrong with the manifest, or None."""
    manifest = opened.manifest
    inputs = manifest["inputs"]
    if manifest["key"] != digest({"format": manifest["format"], "inputs": inputs}):
        return "its key is not that of its inputs"
    Grid.of(inputs["supports"], inputs["operations"])
    folder = open_folder(opened.address)
    for name in ("source", "delta", "region", "cell"):
        described = json.loads(folder.read(f"{name}/zarr.json"))
        if [codec["name"] for codec in described["codecs"]] != CODECS:
            return f"{name} is encoded in another way"
    return None


def _of_arrays(opened: Store) -> str | None:
    """What is wrong with the arrays, or None."""
    inputs = opened.manifest["inputs"]
    source, delta, region, cell = (StoredArray(opened, name) for name in ("source", "delta", "region", "cell"))
    expected = {
        "source": (source, inputs["dtype"], source.shape),
        "delta": (delta, inputs["dtype"], source.shape),
        "region": (region, "float32", (*source.shape[:2], len(inputs["supports"]))),
        "cell": (cell, "int32", source.shape[:1]),
    }
    if len(source.shape) != 3 or len(source) != opened.manifest["pairs"]:
        return f"source has the shape {list(source.shape)}"
    for name, (array, dtype, shape) in expected.items():
        if str(array.dtype) != dtype or array.shape != shape:
            return f"{name} is {array.dtype} {list(array.shape)} instead of {dtype} {list(shape)}"
    if sha256(read(opened, "cell").astype("<i4").tobytes()) != inputs["cells"]:
        return "its cells are not those of its key"
    for name, array in (("source", source), ("delta", delta), ("region", region)):
        for start in range(0, len(array), PAIRS_AT_ONCE):
            if not np.isfinite(array[start : start + PAIRS_AT_ONCE]).all():
                return f"{name} holds NaN or infinity"
    return None
