"""A run on disk: `result.json` (config, provenance, scores), `fits.npz` (a row per fit) and the report beside them."""

import hashlib
import io
import json
import platform
import zipfile
from collections.abc import Mapping
from importlib import metadata, resources
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jsonschema
import numpy as np

from soopf_jax import atomic
from soopf_jax.errors import UserError
from soopf_jax.types import Json

SCHEMA_VERSION = 1
_PACKAGES = ("soopf_jax", "jax", "jaxlib", "flax", "optax", "numpy", "scipy")


class Result(NamedTuple):
    """A finished run."""

    document: dict[str, Any]
    """result.json."""
    fits: dict[str, np.ndarray]
    """fits.npz: `arm` is the index into the document's arms."""


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
    }


def save(result: Result, folder: Path, pages: Mapping[str, bytes], replace: bool) -> None:
    """Write the whole folder, or nothing. `pages` are the report's files, by their path in the folder."""
    jsonschema.validate(result.document, schema())
    document = json.dumps(result.document, indent=1, allow_nan=False) + "\n"
    with atomic.new_folder(folder, replace) as new:
        for name, data in {
            "result.json": document.encode(),
            "fits.npz": npz_bytes(result.fits),
            **pages,
        }.items():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            atomic.write_bytes(new / name, data)


def load(folder: Path) -> Result:
    """Read a finished run; anything else in its place is a user's mistake."""
    try:
        document = json.loads((folder / "result.json").read_text())
        jsonschema.validate(document, schema())
        fits = read_npz((folder / "fits.npz").read_bytes())
    except FileNotFoundError as error:
        raise UserError(
            f"{folder} is not a finished run: no {Path(error.filename).name}; give another folder"
        ) from error
    except (jsonschema.ValidationError, ValueError, OSError, zipfile.BadZipFile) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{folder} cannot be read as a run: {reason}; run it again with --overwrite") from error
    return Result(document, fits)


def npz_bytes(arrays: Mapping[str, np.ndarray]) -> bytes:
    """An npz file in memory; equal arrays give equal bytes."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def read_npz(data: bytes) -> dict[str, np.ndarray]:
    """All arrays of an npz file, never a pickle."""
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        return {name: file[name] for name in file.files}
