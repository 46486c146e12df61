"""Finds and loads models of timm: a name in, a float32 model in eval mode out.

Weights come from safetensors only, from the hub or from a file. Code from a checkpoint is never run.
"""

import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from soopf_jax.encoders.hf_checkpoint import download, first_line
from soopf_jax.encoders.hf_preprocess import TIMM, Preprocessing, read_preprocessing
from soopf_jax.encoders.hf_torch import import_torchvision
from soopf_jax.errors import UserError
from soopf_jax.types import Json

import_torchvision()
import timm  # noqa: E402  (timm needs an importable torchvision)

VERSION: str = timm.__version__
WEIGHTS = ["model.safetensors", "open_clip_model.safetensors"]
"""The names that timm's repositories on the hub give to their safetensors file."""


class Published(NamedTuple):
    """A timm model that is to be read as another publication of the same weights is."""

    model: str
    """Its name in timm, with the tag of the weights."""
    preprocessing: Preprocessing
    """Instead of timm's own."""
    bfloat16_rope: bool
    """Whether the periods of the rotary embedding are rounded to bfloat16."""


_DINOV3 = read_preprocessing({}, "DINOv3ViTImageProcessor")

# Meta's checkpoints store the periods in bfloat16; timm computes them in float32, and its model cards say that
# rounding makes the outputs match. transformers computes them in float32 too, so `timm:` without it equals `hf:`.
PUBLISHED: Mapping[str, Published] = {
    "dinov3-timm": Published("vit_large_patch16_dinov3.lvd1689m", _DINOV3, True),
    "dinov3-timm-b": Published("vit_base_patch16_dinov3.lvd1689m", _DINOV3, True),
    "dinov3-timm-s": Published("vit_small_patch16_dinov3.lvd1689m", _DINOV3, True),
}


class Source(NamedTuple):
    """The file of the weights."""

    file: Path
    hub_id: str | None
    """None: a file of the user's."""
    revision: str | None
    """The commit on the hub."""


def settings_of(name: str) -> Json:
    """What timm knows about a model and its weights.

    Raises:
        UserError: timm has no such model, or no such weights.
    """
    architecture, _, _ = name.partition(".")
    if not timm.is_model(architecture):
        close = get_close_matches(architecture, timm.list_models(), n=1, cutoff=0.5)
        hint = f"did you mean '{close[0]}'? " if close else ""
        raise UserError(f"timm {timm.__version__} has no model '{name}': {hint}timm.list_models() names them all")
    try:
        known = timm.get_pretrained_cfg(name)
    except RuntimeError as error:
        raise UserError(f"timm has no weights called '{name}': {first_line(error)}") from error
    return known.to_dict() if known else {}


def local_file(path: str) -> Source:
    """Weights in a file of the user's.

    Raises:
        UserError: There is no such file, or it is no safetensors file.
    """
    file = Path(path).expanduser()
    if file.suffix != ".safetensors":
        raise UserError(f"'{path}' is no .safetensors file, and other formats may run code when read; convert it")
    if not file.is_file():
        raise UserError(f"there is no file '{path}'; check the path")
    return Source(file, None, None)


def _reference(name: str, settings: Json) -> tuple[str, str]:
    """The hub id of the weights, and the revision."""
    reference = settings.get("hf_hub_id")
    if not reference:
        raise UserError(f"timm publishes no weights for '{name}'; give a file: timm:{name}@PATH.safetensors")
    hub_id, _, revision = str(reference).partition("@")
    return hub_id, revision or "main"


def reference_of(encoder: str) -> tuple[str, str] | None:
    """The hub id and the revision of an encoder's weights; None if they are a file of the user's.

    Raises:
        UserError: timm has no such model, or publishes no weights for it.
    """
    name, _, path = encoder.removeprefix("timm:").partition("@")
    model = PUBLISHED[name].model if name in PUBLISHED else name
    return None if path else _reference(model, settings_of(model))


def from_hub(name: str, settings: Json) -> Source:
    """The weights that timm publishes on the hub, downloaded unless they are here.

    Raises:
        UserError: They cannot be had.
    """
    hub_id, revision = _reference(name, settings)
    folder = download(hub_id, revision, WEIGHTS)
    found = [folder / file for file in WEIGHTS if (folder / file).is_file()]
    if not found:
        raise UserError(f"{hub_id} has no safetensors file, and other formats may run code when read; choose another")
    return Source(found[0], hub_id, folder.name)


def load_model(name: str, source: Source) -> Any:
    """The model with every weight of the file and no others, in float32.

    Raises:
        UserError: The weights are not those of the model, or it does not show its patches.
    """
    try:
        # With the number of classes that the weights have, timm insists on every weight, the head's included.
        overlay = {"file": str(source.file), "custom_load": False, "source": "", "url": "", "hf_hub_id": None}
        with _quiet():
            model = timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay)
    except Exception as error:  # timm's own code, of any architecture, and the reader of safetensors
        raise UserError(
            f"the weights in {source.hub_id or source.file} do not load into '{name}': {summary(error)}; "
            "check that they belong together"
        ) from error
    if not hasattr(model, "forward_intermediates"):
        raise UserError(f"'{name}' has no forward_intermediates in timm, so its patches are not known; choose another")
    return model.float().eval().requires_grad_(False)


def timm_preprocessing(model: Any) -> Preprocessing:
    """The evaluation transform of timm's own settings for a model.

    Raises:
        UserError: Images are prepared for it in a way that is not supported.
    """
    settings = timm.data.resolve_data_config(model=model)
    _, height, width = settings["input_size"]
    mode, share = settings["crop_mode"], settings["crop_pct"]
    if mode not in ("center", "squash") or height != width:
        raise UserError(f"timm prepares images for this model in a way that is not supported ({mode}); choose another")
    side = math.floor(height / share)
    return Preprocessing(
        processor=TIMM,
        order="resize-uint8-first",
        resize=side if mode == "center" else (side, side),
        resample=settings["interpolation"],
        crop=(height, width),
        scale=1 / 255,
        mean=tuple(settings["mean"]),
        std=tuple(settings["std"]),
    )


def summary(error: Exception) -> str:
    """The first lines of an error as one of reasonable length."""
    return " ".join(str(error).split())[:200] or type(error).__name__


@contextmanager
def _quiet() -> Iterator[None]:
    """No word from timm: what matters is raised as an error."""
    logger = logging.getLogger("timm")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
