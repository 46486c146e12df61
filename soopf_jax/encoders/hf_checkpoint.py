"""Finds and loads checkpoints from the Hugging Face hub or from a folder.

In: `owner/name`, `owner/name@revision` or a folder. Out: a float32 model in eval mode. All of its weights come from
safetensors files, or from a seed. A hub id is first resolved to the folder of one commit in the hub's cache. This way
the commit is known, and all checkpoints are loaded from folders. Code from a checkpoint is never run.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from huggingface_hub import constants, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    StrictDataclassError,
)
from safetensors import SafetensorError

from soopf_jax.encoders.hf_architectures import UNGATED, Architecture
from soopf_jax.errors import UserError
from soopf_jax.runtime.hashing import file_sha256, sha256
from soopf_jax.types import Json

SETTINGS = ["config.json", "preprocessor_config.json", "processor_config.json"]
WEIGHTS = ["model.safetensors", "model.safetensors.index.json", "model-*.safetensors"]

_VOLATILE = ("_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype")


class Checkpoint(NamedTuple):
    """The files of one model."""

    folder: Path | None
    """None for an architecture without files."""
    hub_id: str | None
    """None for a folder of the user."""
    revision: str | None
    """The commit on the hub."""
    config: Json
    """`config.json`."""
    preprocessor: Json | None
    """The settings of the image processor; None if there is no such file."""
    weights: tuple[Path, ...]
    """The safetensors files; empty if no weights were asked for."""

    @property
    def name(self) -> str:
        """Its name in messages."""
        return self.hub_id or str(self.folder or self.config["model_type"])


def without_files(config: Json) -> Checkpoint:
    """An architecture for untrained weights, from its config alone."""
    return Checkpoint(None, None, None, config, None, ())


# ------------------------------------------------------------------------------------------------- finding it


def find_checkpoint(reference: str, weights: bool) -> Checkpoint:
    """Find a checkpoint in a folder or on the hub. Missing files are downloaded.

    Args:
        reference: A folder, `owner/name` or `owner/name@revision`.
        weights: Whether the weights are needed too.

    Raises:
        UserError: There is no such checkpoint, it cannot be downloaded, or it lacks files.
    """
    if not reference:
        raise UserError("a hub id or a folder must follow the colon, such as hf:facebook/dinov2-small")
    hub_id, revision, folder = None, None, Path(reference).expanduser()
    if not folder.is_dir():
        if reference.startswith(("/", ".", "~")):
            raise UserError(f"no folder '{reference}'; check the path, or give a hub id such as facebook/dinov2-small")
        hub_id, _, wanted = reference.partition("@")
        folder = download(hub_id, wanted or "main", SETTINGS + WEIGHTS * weights)
        revision = folder.name
    config = _read_json(folder / "config.json")
    if config is None:
        raise UserError(f"{reference} has no config.json; give a folder that save_pretrained wrote, or a hub id")
    nested = (_read_json(folder / "processor_config.json") or {}).get("image_processor")
    preprocessor = nested or _read_json(folder / "preprocessor_config.json")
    files = _weight_files(folder, reference) if weights else ()
    return Checkpoint(folder, hub_id, revision, config, preprocessor, files)


def download(hub_id: str, revision: str, patterns: list[str]) -> Path:
    """The folder of one commit in the hub's cache."""
    try:
        return Path(snapshot_download(hub_id, revision=revision, allow_patterns=patterns))
    except HFValidationError as error:
        raise UserError(f"'{hub_id}' is neither a folder nor a hub id (owner/name); check the spelling") from error
    except GatedRepoError as error:
        raise UserError(
            f"{hub_id} is gated and you have no access: accept its terms at {constants.ENDPOINT}/{hub_id}, "
            f"then log in with `hf auth login` or set HF_TOKEN{_ungated(hub_id)}"
        ) from error
    except RepositoryNotFoundError as error:
        raise UserError(
            f"the hub has no model '{hub_id}', or it is private; check the spelling, or log in with `hf auth login`"
        ) from error
    except RevisionNotFoundError as error:
        raise UserError(f"{hub_id} has no revision '{revision}'; check the branch, tag or commit") from error
    except LocalEntryNotFoundError as error:
        offline = constants.HF_HUB_OFFLINE
        why, remedy = ("HF_HUB_OFFLINE is set", "unset it") if offline else ("no network", "connect")
        raise UserError(
            f"{hub_id} is not in the cache of downloads and the hub cannot be reached ({why}); "
            f"{remedy} and try again, or give a folder"
        ) from error
    except Exception as error:  # the many ways in which a transfer or the disk may fail
        raise UserError(f"cannot download {hub_id}: {first_line(error)}; put that right and try again") from error


def _ungated(hub_id: str) -> str:
    """How to do without access, where the same weights are published elsewhere as well."""
    copy = UNGATED.get(hub_id)
    return f"; or use timm's ungated copy of the same weights, under the same licence: --encoder {copy}" if copy else ""


def _weight_files(folder: Path, reference: str) -> tuple[Path, ...]:
    """`model.safetensors`, or the files that its index names if the weights are split."""
    whole = folder / "model.safetensors"
    if whole.is_file():
        return (whole,)
    index = _read_json(folder / "model.safetensors.index.json")
    if index is None:
        raise UserError(
            f"{reference} has no model.safetensors, and other formats may run code when read; save the model again "
            "with save_pretrained, or name a revision that has the file (hf:owner/name@revision)"
        )
    parts = sorted(set(index.get("weight_map", {}).values()))
    for part in parts:
        if not (folder / part).is_file():
            raise UserError(
                f"{reference} lacks {part}, which its model.safetensors.index.json names; get the file again"
            )
    return tuple(folder / part for part in parts)


def _read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None if there is no file."""
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON ({error}); get the file again") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} does not hold a JSON object; get the file again")
    return content


# --------------------------------------------------------------------------------------------- identifying it


def weights_sha256(checkpoint: Checkpoint) -> Mapping[str, str]:
    """File name -> SHA-256 of its bytes."""
    return {path.name: file_sha256(path) for path in checkpoint.weights}


def config_sha256(config: Json) -> str:
    """SHA-256 of a config without the entries that do not affect the tokens, such as paths, versions and dtypes."""
    kept = {key: value for key, value in config.items() if key not in _VOLATILE}
    return sha256(json.dumps(kept, sort_keys=True).encode())


# ------------------------------------------------------------------------------------------------- loading it


def read_config(checkpoint: Checkpoint, architecture: Architecture) -> Any:
    """The config object of the vision model. In CLIP and SigLIP it is a part of the whole model's config."""
    kind = checkpoint.config.get("model_type")
    if kind not in transformers.CONFIG_MAPPING:
        raise UserError(
            f"{checkpoint.name} is of a model type ('{kind}') that transformers {transformers.__version__} does not "
            "know, and code from a checkpoint is never run; choose another model"
        )
    try:
        with _quiet():
            if checkpoint.folder is None:
                config = transformers.AutoConfig.for_model(**checkpoint.config)
            else:
                config = transformers.AutoConfig.from_pretrained(
                    checkpoint.folder, local_files_only=True, trust_remote_code=False
                )
    except (ValueError, TypeError, KeyError, OSError, ImportError, StrictDataclassError) as error:
        raise UserError(f"the config.json of {checkpoint.name} is faulty ({error}); get the file again") from error
    config = getattr(config, "vision_config", config)
    for key, value in architecture.overrides.items():
        setattr(config, key, value)
    return config


def load_pretrained(checkpoint: Checkpoint, architecture: Architecture, config: Any) -> Any:
    """The model with the weights of the checkpoint.

    Raises:
        UserError: The weights cannot be read, or are not exactly those that the model needs.
    """
    try:
        with _quiet():
            model, info = getattr(transformers, architecture.model).from_pretrained(
                checkpoint.folder,
                config=config,
                dtype=torch.float32,
                use_safetensors=True,
                local_files_only=True,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
                **architecture.options,
            )
    except (RuntimeError, ValueError, TypeError, OSError, ImportError, SafetensorError) as error:
        raise UserError(
            f"the weights of {checkpoint.name} cannot be loaded: {first_line(error)}; get the files again"
        ) from error
    faults = {
        "lacks weights": info["missing_keys"],
        "has weights of another shape": {key for key, *_ in info["mismatched_keys"]},
        "has unexpected weights": {k for k in info["unexpected_keys"] if not k.startswith(architecture.other_parts)},
    }
    for fault, keys in faults.items():
        if keys:
            raise UserError(
                f"{checkpoint.name} {fault}, such as {min(keys)} ({len(keys)} in all): its config.json and its weights "
                "do not belong together; get both again"
            )
    return model.eval().requires_grad_(False)


def load_random(architecture: Architecture, config: Any, seed: int) -> Any:
    """The same architecture with random weights, initialised by its class."""
    with _quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if architecture.model == "AutoModel":
            model = transformers.AutoModel.from_config(config, dtype=torch.float32, trust_remote_code=False)
        else:
            model = getattr(transformers, architecture.model)(config, **architecture.options)
    return model.eval().requires_grad_(False)


def first_line(error: Exception) -> str:
    """The first line of an error that says something."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__).rstrip(".")


@contextmanager
def _quiet() -> Iterator[None]:
    """Turn off the progress bars and warnings of transformers. Everything that matters is raised as an error."""
    logging = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
