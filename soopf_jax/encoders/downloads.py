"""What an encoder would download. Plans ask this first: they neither wait for a network nor fill a disk."""

from pathlib import Path
from typing import NamedTuple

from soopf_jax import plugins
from soopf_jax.encoders.hf_architectures import HUB_IDS


class Wanted(NamedTuple):
    """Files of a repository on the hub."""

    hub_id: str
    revision: str
    files: tuple[str, ...]
    """One of them is there if the others are."""


def wanted(name: str) -> Wanted | None:
    """What an encoder reads from the hub; None if that is nothing.

    Raises:
        UserError: timm has no such model.
        MissingPackage: The encoder needs a package that is not installed.
    """
    kind, _, argument = name.partition(":")
    if plugins.ENCODERS.get(name) == plugins.ENCODERS["timm:"] or kind == "timm":
        plugins.require(f"encoder '{name}'", "torch", "transformers", "timm")
        from soopf_jax.encoders.hf_timm_checkpoint import WEIGHTS, reference_of

        found = reference_of(name)
        return Wanted(*found, tuple(WEIGHTS)) if found else None
    reference = HUB_IDS.get(name, argument if kind in ("hf", "hf-random") else "")
    if not reference or reference.startswith(("/", ".", "~")) or Path(reference).is_dir():
        return None
    files = ("config.json",) if kind == "hf-random" else ("model.safetensors", "model.safetensors.index.json")
    hub_id, _, revision = reference.partition("@")
    return Wanted(hub_id, revision or "main", files)


def to_download(name: str) -> str | None:
    """The hub id of what an encoder would have to download; None if all of it is on this machine. The hub is not asked.

    Raises:
        UserError: timm has no such model.
        MissingPackage: The encoder needs a package that is not installed.
    """
    asked = wanted(name)
    if asked is None:
        return None
    plugins.require(f"encoder '{name}'", "huggingface_hub")
    from huggingface_hub import try_to_load_from_cache

    there = (try_to_load_from_cache(asked.hub_id, file, revision=asked.revision) for file in asked.files)
    return None if any(isinstance(path, str) for path in there) else asked.hub_id
