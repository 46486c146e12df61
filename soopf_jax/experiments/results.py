"""A run on disk: `result.json` (config, provenance, scores), `fits.npz` (a row per fit) and the report beside them.

A run that keeps its predictions has `predictions.npz` too, and one that keeps its parameters has the folder `params`.
"""

import json
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import numpy as np
from jaxtyping import Float, Int

from soopf_jax.errors import UserError
from soopf_jax.experiments.predictions import Kept, Predictions, arrays_of, from_arrays
from soopf_jax.runtime import atomic
from soopf_jax.runtime.arrays import npz_bytes, read_npz
from soopf_jax.runtime.hashing import digest, sha256
from soopf_jax.scoring import metrics
from soopf_jax.types import Json

SCHEMA_VERSION = 1
"""Written into every result.json. It increases when a document can no longer be read by the rules of the last number:
when a field is removed or renamed, or means something else. A new field that may be missing is no reason."""
BEFORE_THERE_WAS_A_CHOICE = {"alignment": "soft", "query_sd": 0.0}
"""What runs did whose protocols do not name these choices. The defaults of today are others."""
SEAL = "sha256"
"""The entry of the provenance that holds a digest of everything in the folder that is read again."""
PREDICTIONS, PARAMS = "predictions.npz", "params"
KEPT_FILES = {"none": (), "predictions": (PREDICTIONS,), "all": (PREDICTIONS, PARAMS)}
"""What the folder has besides scores and report, by the value of --keep."""
COLUMNS = {
    **dict.fromkeys(("arm", "seed", "held_out", "restart"), ("i", 1)),
    **dict.fromkeys(("selected", "failed"), ("b", 1)),
    **dict.fromkeys(("validation", "inj", "non_injective"), ("f", 1)),
    **dict.fromkeys(("C_sup", "C_op", "Q"), ("f", 3)),
    "test_counts": ("i", 2),
    "loss": ("f", 2),
}
"""The kind and the rank of the columns of fits.npz, which have a row per fit. There may be further columns."""
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
    kept: Kept | None = None
    """What is kept of every selected fit; `load` leaves it on the disk, where `predictions` and `params` read it."""


def schema() -> Json:
    """The JSON schema of result.json."""
    text = resources.files("soopf_jax.experiments").joinpath("result.schema.json").read_text()
    return metrics.add_to_schema(json.loads(text))


def check_document(document: Any) -> None:
    """A jsonschema.ValidationError unless the document keeps to the schema."""
    validator = _validator(json.dumps(schema()))
    error = jsonschema.exceptions.best_match(validator.iter_errors(document))
    if error is not None:
        raise error


@cache
def _validator(text: str) -> Any:
    """What checks documents by a schema, given as JSON.

    `jsonschema.validate` checks the schema too, which takes ten times as long as checking a document by it.
    """
    parsed = json.loads(text)
    kind = jsonschema.validators.validator_for(parsed)
    kind.check_schema(parsed)
    return kind(parsed)


def environment() -> dict[str, Any]:
    """Versions, device and threads: what float32 rounding depends on."""
    import jax

    from soopf_jax.fitting import devices

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
    """Write the whole folder, or nothing.

    Args:
        result: The run.
        folder: Where the result goes.
        pages: The report's files, by their path in the folder.
        replace: Whether a folder that is there already may be replaced.
        within: Where the folder is put together, on the same file system; by default beside its final place.
    """
    check_document(result.document)
    fits, kept = npz_bytes(result.fits), result.kept
    predicted = {PREDICTIONS: npz_bytes(arrays_of(kept.predictions))} if kept else {}
    seals = {name: sha256(data) for name, data in predicted.items()}
    if kept and kept.params:
        seals[PARAMS] = _checkpoint().digest_of_tree(kept.params)
    document = json.dumps(sealed(result.document, fits, seals), indent=1, allow_nan=False) + "\n"
    with atomic.new_folder(folder, replace, within) as new:
        if kept and kept.params:
            _checkpoint().write_tree(new / PARAMS, kept.params)
        for name, data in {"result.json": document.encode(), "fits.npz": fits, **predicted, **pages}.items():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            atomic.write_bytes(new / name, data)


def sealed(document: Json, fits: bytes, others: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The document with digests of its own content and of fits.npz, by which a changed number is noticed.

    Args:
        document: The content of result.json.
        fits: The bytes of fits.npz.
        others: Digests of whatever else is kept. By default those that the document has.
    """
    provenance = {name: value for name, value in document["provenance"].items() if name != SEAL}
    content = {**document, "provenance": provenance}
    seal = {**(document["provenance"].get(SEAL, {}) if others is None else others)}
    seal |= {"result.json": digest(content), "fits.npz": sha256(fits)}
    return {**content, "provenance": {**provenance, SEAL: seal}}


def load(folder: Path) -> Result:
    """Read a finished run.

    Raises:
        UserError: The folder holds no finished run, or its files are damaged.
    """
    if folder.is_file():
        raise UserError(f"{folder} is a file; name the folder of the run, {folder.parent}")
    with _reading(folder):
        document = json.loads((folder / "result.json").read_bytes())
        check_version(document, folder)
        check_document(document)
        check_cells(document)
        data = (folder / "fits.npz").read_bytes()
        seal = sealed(document, data)["provenance"][SEAL]
        if document["provenance"].get(SEAL, seal) != seal:
            raise ValueError("its files are not as they were written")
        fits = read_npz(data)
        check_columns(fits)
        document["config"] = today(document["config"])
    return Result(document, fits)


def predictions(folder: str | Path) -> Predictions:
    """What the selected fits of a finished run make of every pair.

    Raises:
        UserError: The folder holds no finished run, the run has not kept its predictions, or they are damaged.
    """
    seal = _seal_of(Path(folder), PREDICTIONS, "predictions")
    with _reading(folder):
        data = (Path(folder) / PREDICTIONS).read_bytes()
        if sha256(data) != seal:
            raise ValueError(f"{PREDICTIONS} is not as it was written")
        return from_arrays(read_npz(data))


def params(folder: str | Path) -> dict[str, Any]:
    """The parameters of the selected fits of a finished run, as `Kept.params` has them.

    Raises:
        UserError: The folder holds no finished run, the run has not kept its parameters, or they are damaged.
    """
    seal = _seal_of(Path(folder), PARAMS, "all")
    with _reading(folder):
        try:
            tree = _checkpoint().read_tree(Path(folder) / PARAMS)
        except Exception as error:  # Orbax and TensorStore raise many kinds of exceptions for damaged files
            raise ValueError(f"{PARAMS} cannot be read ({error})") from error
        if _checkpoint().digest_of_tree(tree) != seal:
            raise ValueError(f"{PARAMS} are not as they were written")
        return tree


def _checkpoint() -> Any:
    """The module that writes and reads parameters. It imports JAX, which most readers of results do not need."""
    from soopf_jax.fitting import checkpoint

    return checkpoint


def _seal_of(folder: Path, name: str, option: str) -> str:
    """The digest that a finished run has of something that it keeps."""
    seals = load(folder).document["provenance"].get(SEAL, {})
    if name not in seals:
        raise UserError(f"{folder} has not kept {name}; run it again with --keep {option} --overwrite")
    return seals[name]


@contextmanager
def _reading(folder: str | Path) -> Iterator[None]:
    """Turn an error of reading a run into a UserError."""
    try:
        yield
    except FileNotFoundError as error:
        raise UserError(
            f"{folder} is not a finished run: no {Path(error.filename).name}; give another folder"
        ) from error
    except (jsonschema.ValidationError, ValueError, OSError, RecursionError) as error:
        reason = str(error).splitlines()[0][:200]
        raise UserError(f"{folder} cannot be read as a run: {reason}; run it again with --overwrite") from error


def today(config: Json) -> dict[str, Any]:
    """A recorded configuration in today's terms.

    The COCO split was once a separate option, and a protocol did not name what could not be chosen.
    """
    words = {name: value for name, value in config.items() if name != "coco_split"}
    if words.get("dataset") == "coco" and config.get("coco_split", "train2017") != "train2017":
        words["dataset"] = f"coco:{config['coco_split']}"
    if "protocol" in words:
        words["protocol"] = BEFORE_THERE_WAS_A_CHOICE | words["protocol"]
    return words


def check_version(document: Any, folder: Path) -> None:
    """Check that this version of the program knows the document's schema.

    Raises:
        UserError: A later version of the program wrote the document.
    """
    version = document.get("schema_version") if isinstance(document, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise UserError(
            f"{folder} was made by a newer version of soopf_jax: its result.json has schema version {version}, and this"
            f" version reads up to {SCHEMA_VERSION}; upgrade soopf_jax"
        )


def check_cells(document: Json) -> None:
    """Raise a ValueError unless all arms have scores of the same cells, or of the same pairs of cells."""
    arms = document["arms"]
    by_cell = [arm[name]["per_cell"].keys() for arm in arms for name in ("inj", "non_injective")]
    by_pair = [found["per_combination"].keys() for arm in arms for found in arm.get("two_edits", {}).values()]
    if any(names != kind[0] for kind in (by_cell, by_pair) for names in kind):
        raise ValueError("its arms do not have scores of the same cells")


def check_columns(fits: Mapping[str, np.ndarray]) -> None:
    """Raise a ValueError unless every column has a row per fit and every known column has its kind and rank."""
    if len({column.shape[:1] for column in fits.values()} | {()}) != 2:
        raise ValueError("fits.npz does not have a row per fit")
    for name in COLUMNS.keys() & fits.keys():
        if (fits[name].dtype.kind, fits[name].ndim) != COLUMNS[name]:
            raise ValueError(f"column {name} of fits.npz is {fits[name].dtype} of shape {list(fits[name].shape)}")
