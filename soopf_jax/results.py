"""A run on disk: `result.json` (config, provenance, scores), `fits.npz` (a row per fit) and the report beside them."""

import hashlib
import io
import json
import platform
from collections.abc import Mapping
from importlib import metadata, resources
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jsonschema
import numpy as np
from jaxtyping import Float, Int

from soopf_jax import atomic, devices
from soopf_jax.errors import UserError
from soopf_jax.types import Json

SCHEMA_VERSION = 1
SEAL = "sha256"
"""Where the provenance in result.json has the digests of the two files that are read again."""
COLUMNS = {
    **dict.fromkeys(("arm", "seed", "held_out", "restart"), ("i", 1)),
    **dict.fromkeys(("selected", "failed"), ("b", 1)),
    **dict.fromkeys(("validation", "inj", "non_injective"), ("f", 1)),
    **dict.fromkeys(("C_sup", "C_op", "Q"), ("f", 3)),
    "test_counts": ("i", 2),
    "loss": ("f", 2),
}
"""The kind and the rank of the columns of fits.npz, a row per fit; others may be there."""
_PACKAGES = ("soopf_jax", "jax", "jaxlib", "flax", "optax", "numpy", "scipy")


class Readings(NamedTuple):
    """What the selected fits of seed 0 make of the first pair of the cell that each has never seen."""

    pair: Int[np.ndarray, " folds"]
    region: Float[np.ndarray, "folds patches supports"] | None
    masks: dict[str, Float[np.ndarray, "folds supports patches"]]
    """By assignment, slots in the order of the true supports; empty where the readout has none."""
    energy: dict[str, Float[np.ndarray, "folds cells"]]
    """By assignment, normalised, slots in the order of the true cells."""


class Result(NamedTuple):
    """A finished run."""

    document: dict[str, Any]
    """result.json."""
    fits: dict[str, np.ndarray]
    """fits.npz: `arm` is the index into the document's arms."""
    readings: Readings | None = None
    """What the report's examples show; not on disk."""


def schema() -> Json:
    """The JSON schema of result.json."""
    return json.loads(resources.files("soopf_jax").joinpath("result.schema.json").read_text())


def digest(value: Json) -> str:
    """SHA-256 of a JSON object in canonical form."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def environment() -> dict[str, Any]:
    """Versions, device and threads: what float32 rounding depends on."""
    device = jax.devices()[0]
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "packages": {name: metadata.version(name) for name in _PACKAGES},
        "device": device.device_kind,
        "platform": device.platform,
        "devices": jax.device_count(),
        "threads": devices.threads(),
    }


def save(result: Result, folder: Path, pages: Mapping[str, bytes], replace: bool, within: Path | None = None) -> None:
    """Write the whole folder, or nothing. `pages` are the report's files, by their path in the folder.

    It is put together `within` a folder of the same file system, by default the one where it will be.
    """
    jsonschema.validate(result.document, schema())
    fits = npz_bytes(result.fits)
    document = json.dumps(sealed(result.document, fits), indent=1, allow_nan=False) + "\n"
    with atomic.new_folder(folder, replace, within) as new:
        for name, data in {"result.json": document.encode(), "fits.npz": fits, **pages}.items():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            atomic.write_bytes(new / name, data)


def sealed(document: Json, fits: bytes) -> dict[str, Any]:
    """The document with a digest of all else in it and one of fits.npz, so that a changed number is noticed."""
    provenance = {name: value for name, value in document["provenance"].items() if name != SEAL}
    content = {**document, "provenance": provenance}
    seal = {"result.json": digest(content), "fits.npz": hashlib.sha256(fits).hexdigest()}
    return {**content, "provenance": {**provenance, SEAL: seal}}


def load(folder: Path) -> Result:
    """Read a finished run; anything else in its place is a user's mistake."""
    try:
        document = json.loads((folder / "result.json").read_bytes())
        jsonschema.validate(document, schema())
        check_cells(document)
        data = (folder / "fits.npz").read_bytes()
        seal = sealed(document, data)["provenance"][SEAL]
        if document["provenance"].get(SEAL, seal) != seal:
            raise ValueError("its files are not as they were written")
        fits = read_npz(data)
        check_columns(fits)
    except FileNotFoundError as error:
        raise UserError(
            f"{folder} is not a finished run: no {Path(error.filename).name}; give another folder"
        ) from error
    except (jsonschema.ValidationError, ValueError, OSError, RecursionError) as error:
        reason = str(error).splitlines()[0][:200]
        raise UserError(f"{folder} cannot be read as a run: {reason}; run it again with --overwrite") from error
    return Result(document, fits)


def check_cells(document: Json) -> None:
    """A ValueError unless all arms have their scores by the same cells, or by the same pairs of cells."""
    arms = document["arms"]
    by_cell = [arm[name]["per_cell"].keys() for arm in arms for name in ("inj", "non_injective")]
    by_pair = [found["per_combination"].keys() for arm in arms for found in arm.get("two_edits", {}).values()]
    if any(names != kind[0] for kind in (by_cell, by_pair) for names in kind):
        raise ValueError("its arms do not have scores of the same cells")


def check_columns(fits: Mapping[str, np.ndarray]) -> None:
    """A ValueError unless every column has a row per fit, and those that are known their kind and rank."""
    if len({column.shape[:1] for column in fits.values()} | {()}) != 2:
        raise ValueError("fits.npz does not have a row per fit")
    for name in COLUMNS.keys() & fits.keys():
        if (fits[name].dtype.kind, fits[name].ndim) != COLUMNS[name]:
            raise ValueError(f"column {name} of fits.npz is {fits[name].dtype} of shape {list(fits[name].shape)}")


def npz_bytes(arrays: Mapping[str, np.ndarray]) -> bytes:
    """An npz file in memory; equal arrays give equal bytes."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def read_npz(data: bytes) -> dict[str, np.ndarray]:
    """All arrays of an npz file, never a pickle; a ValueError over any other content."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    # A damaged archive fails in a dozen ways: in zipfile, zlib, numpy's header parser or the allocator.
    except Exception as error:
        raise ValueError(f"no npz file ({error or type(error).__name__})") from error
    if not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise ValueError("no npz file: it holds something that is no array")
    return arrays
