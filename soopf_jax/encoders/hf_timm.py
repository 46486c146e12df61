"""Models of timm as frozen encoders.

In: `timm:NAME` for weights from the hub, `timm:NAME@PATH.safetensors` for a file, or a name in PUBLISHED. Out: an
Encoder that gives the patch tokens. For transformers with blocks, layers are counted as in `hf.py`: 0 is what the
first block receives, l what block l returns. For other models, whose features are grids of different sizes, layer l
is timm's feature number l. No layer at all: the last one, after the final norm where the model has one for its
patches. Weights come from safetensors only; code from a checkpoint is never run.
"""

import hashlib
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import PIL
import torch
from jaxtyping import Float
from torch import Tensor

from soopf_jax.encoders.hf_checkpoint import download, first_line
from soopf_jax.encoders.hf_preprocess import TIMM, Preprocessing, read_preprocessing
from soopf_jax.encoders.hf_torch import (
    DTYPE,
    choose_device,
    count_from_front,
    images_per_batch,
    import_torchvision,
    torch_encoder,
)
from soopf_jax.errors import UserError, unknown_name
from soopf_jax.types import Encoder, EncoderRequest, Json

import_torchvision()
import timm  # noqa: E402  (timm needs an importable torchvision)

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


class Grid(NamedTuple):
    """What one forward pass shows about a model."""

    patch: tuple[int, int]
    """(height, width) of a patch in pixels of the model's input."""
    tokens: int
    channels: int
    final_norm: str
    """`norm` where the model normalises its patch tokens at the end, else `none`."""


def open_encoder(request: EncoderRequest) -> Encoder:
    """The encoder called `timm:NAME`, `timm:NAME@PATH.safetensors`, `dinov3-timm`, ...

    Raises:
        UserError: timm has no such model, its weights cannot be had, or it gives no grid of patch tokens.
    """
    name = request.name.removeprefix("timm:")
    if name == request.name and name not in PUBLISHED:
        raise unknown_name("encoder", request.name, PUBLISHED, also=", timm:NAME or timm:NAME@PATH.safetensors")
    name, _, path = name.partition("@")
    published = PUBLISHED.get(name)
    model_name = published.model if published else name
    settings = _settings(model_name)
    source = _local(path) if path else _from_hub(model_name, settings)
    model = _load(model_name, source)
    if published and published.bfloat16_rope:
        model.rope.periods = model.rope.periods.to(torch.bfloat16).to(torch.float32)
    preprocessing = published.preprocessing if published else timm_preprocessing(model)
    device = choose_device()
    model = model.to(device)
    blocks = _blocks(model)
    layer = count_from_front(request.layer, blocks) if blocks else _feature_number(model, request.layer)
    grid = _look(model_name, model, layer, preprocessing, device)

    def forward(
        pixels: Float[Tensor, "images 3 rows columns"], layers: Sequence[int | None]
    ) -> list[Float[np.ndarray, "images patches channels"]]:
        return [tokens.cpu().numpy() for tokens in _tokens(model, layers, pixels)]

    identity = {
        "name": "timm",
        "hub_id": source.hub_id,
        "revision": source.revision,
        "model": model_name,
        "class": type(model).__name__,
        "licence": settings.get("license"),
        "weights": {source.file.name if source.hub_id else "file": _sha256(source.file)},
        "preprocessing": preprocessing._asdict(),
        "layer": layer,
        "final_norm": grid.final_norm,
        "rope_periods": "bfloat16" if published and published.bfloat16_rope else "as timm computes them",
        "dtype": DTYPE,
        "versions": {"torch": torch.__version__, "timm": timm.__version__, "pillow": PIL.__version__},
    }
    # As in hf.py: what a block holds at once, every layer's output, and the attention.
    batch_size = images_per_batch(device, grid.tokens * grid.channels * (16 + blocks) + grid.tokens**2 * 16)
    return torch_encoder(identity, forward, blocks or None, preprocessing, grid.patch, device, batch_size)


# ---------------------------------------------------------------------------------------------- finding the model


def _settings(name: str) -> Json:
    """What timm knows about a model and its weights."""
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


def _local(path: str) -> Source:
    file = Path(path).expanduser()
    if file.suffix != ".safetensors":
        raise UserError(f"'{path}' is no .safetensors file, and other formats may run code when read; convert it")
    if not file.is_file():
        raise UserError(f"there is no file '{path}'; check the path")
    return Source(file, None, None)


def _from_hub(name: str, settings: Json) -> Source:
    reference = settings.get("hf_hub_id")
    if not reference:
        raise UserError(f"timm publishes no weights for '{name}'; give a file: timm:{name}@PATH.safetensors")
    hub_id, _, revision = str(reference).partition("@")
    folder = download(hub_id, revision or "main", WEIGHTS)
    found = [folder / file for file in WEIGHTS if (folder / file).is_file()]
    if not found:
        raise UserError(f"{hub_id} has no safetensors file, and other formats may run code when read; choose another")
    return Source(found[0], hub_id, folder.name)


def _load(name: str, source: Source) -> Any:
    """The model with every weight of the file and no others, in float32."""
    try:
        # With the number of classes that the weights have, timm insists on every weight, the head's included.
        overlay = {"file": str(source.file), "custom_load": False, "source": "", "url": "", "hf_hub_id": None}
        with _quiet():
            model = timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay)
    except Exception as error:  # timm's own code, of any architecture, and the reader of safetensors
        raise UserError(
            f"the weights in {source.hub_id or source.file} do not load into '{name}': {_summary(error)}; "
            "check that they belong together"
        ) from error
    if not hasattr(model, "forward_intermediates"):
        raise UserError(f"'{name}' has no forward_intermediates in timm, so its patches are not known; choose another")
    return model.float().eval().requires_grad_(False)


def timm_preprocessing(model: Any) -> Preprocessing:
    """The evaluation transform of timm's own settings for a model."""
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


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _summary(error: Exception) -> str:
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


# --------------------------------------------------------------------------------------------------- the tokens


def _blocks(model: Any) -> int:
    """The number of blocks of a vision transformer; 0 for any other model."""
    return len(model.blocks) if hasattr(model, "num_prefix_tokens") and hasattr(model, "blocks") else 0


def _feature_number(model: Any, layer: int | None) -> int | None:
    """The number of a feature of a model without blocks, counted from the front."""
    features = len(model.feature_info)
    if layer is not None and not -features <= layer < features:
        raise UserError(f"there is no layer {layer}; choose 0 to {features - 1}, or -1 for the last")
    return None if layer is None else layer % features


@torch.inference_mode()
def _tokens(
    model: Any, layers: Sequence[int | None], pixels: Float[Tensor, "images 3 rows columns"]
) -> list[Float[Tensor, "images patches channels"]]:
    """Row-major patch tokens of one batch at each of the layers, prefix tokens dropped."""
    if not _blocks(model):
        return [_grid(model, layer, layer is None, pixels).flatten(2).transpose(1, 2) for layer in layers]
    embeddings: list[Tensor] = []
    # The input of the first block, layer 0, is not among timm's intermediates.
    hook = model.blocks[0].register_forward_pre_hook(lambda _, given: embeddings.append(given[0]))
    numbers = sorted({_blocks(model) if layer is None else max(layer, 1) for layer in layers})
    try:
        output, grids = model.forward_intermediates(
            pixels, indices=[number - 1 for number in numbers], stop_early=None not in layers, output_fmt="NCHW"
        )
    finally:
        hook.remove()
    found: dict[int | None, Tensor] = dict(zip(numbers, grids, strict=True))
    found = {number: grid.flatten(2).transpose(1, 2) for number, grid in found.items()}
    found |= {number: tokens[:, model.num_prefix_tokens :] for number, tokens in ((0, embeddings[0]), (None, output))}
    return [found[layer] for layer in layers]


@torch.inference_mode()
def _grid(
    model: Any, layer: int | None, norm: bool, pixels: Float[Tensor, "images 3 height width"]
) -> Float[Tensor, "images channels rows columns"]:
    """The output of a block, or a feature of a model without blocks, by timm's own function."""
    last = (_blocks(model) or len(model.feature_info)) - 1
    number = last if layer is None else layer - bool(_blocks(model))
    options = {"indices": [number], "norm": norm, "stop_early": True, "intermediates_only": True}
    return model.forward_intermediates(pixels, output_fmt="NCHW", **options)[0]


@torch.inference_mode()
def _look(name: str, model: Any, layer: int | None, preprocessing: Preprocessing, device: torch.device) -> Grid:
    """Run one grey image through the whole model and see what comes out."""
    height, width = preprocessing.crop or preprocessing.resize  # type: ignore[misc]
    shown = layer if layer or not _blocks(model) else None
    try:
        pixels = torch.zeros(1, 3, height, width, device=device)
        grid = _grid(model, shown, shown is None, pixels)
        last, plain = (_grid(model, None, norm, pixels) for norm in (True, False))
        _, channels, rows, columns = grid.shape
        agree = True
        if _blocks(model):
            output = model.forward_features(pixels)[:, model.num_prefix_tokens :]
            agree = torch.allclose(output, _tokens(model, [None], pixels)[0], rtol=1e-4, atol=1e-4)
    except Exception as error:  # the model's own code, of any architecture
        raise UserError(
            f"'{name}' of timm gives no grid of patch tokens ({_summary(error)}); choose another"
        ) from error
    if not agree or height % rows or width % columns:
        raise UserError(f"'{name}' of timm gives {rows} x {columns} tokens that are not its patches; choose another")
    norm = "none" if torch.equal(last, plain) else "norm"
    return Grid((height // rows, width // columns), rows * columns, channels, norm)
