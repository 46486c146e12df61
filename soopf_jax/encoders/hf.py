"""Vision transformers of the Hugging Face hub as frozen encoders. `hf*.py` alone import torch.

In: `dinov3`, `siglip2` and the other names of HUB_IDS, `hf:ID_OR_FOLDER`, or `hf-random:ID_OR_FOLDER` for
the same architecture with untrained weights; an ID may carry a revision (`owner/name@revision`). Out: an
Encoder that gives the patch tokens. Hidden layers are counted as transformers does: 0 is what the first
block receives, l what block l returns, up to the last block's output before the final norm; negative numbers
count from the end. No layer at all: `last_hidden_state`, the last block's output after the final norm, where
the model has one for its patches. No other layer gets a norm.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import PIL
import psutil
import torch
import transformers
from jaxtyping import Float, UInt8
from torch import Tensor

from soopf_jax.encoders.hf_architectures import ANY, ARCHITECTURES, HUB_IDS, Architecture
from soopf_jax.encoders.hf_checkpoint import (
    Checkpoint,
    config_sha256,
    find_checkpoint,
    load_pretrained,
    load_random,
    read_config,
    weights_sha256,
)
from soopf_jax.encoders.hf_preprocess import Preprocessing, pixel_values, read_preprocessing, token_window
from soopf_jax.errors import UserError, unknown_name
from soopf_jax.types import Encoder, EncoderRequest, Json, Window

RANDOM_SEED = 0
"""Draws the weights of `hf-random:`."""


class Vision(NamedTuple):
    """A loaded model and all that is needed to read its tokens."""

    name: str
    """The hub id or the folder, for messages."""
    model: Any
    architecture: Architecture
    preprocessing: Preprocessing
    patch: tuple[int, int]
    """(height, width) of a patch in pixels of the model's input."""
    layer: int | None
    device: torch.device


def open_encoder(request: EncoderRequest) -> Encoder:
    """The encoder called `dinov3`, `hf:ID_OR_FOLDER`, `hf-random:ID_OR_FOLDER`, ..."""
    name, _, reference = request.name.partition(":")
    if name not in ("hf", "hf-random") and request.name not in HUB_IDS:
        raise unknown_name("encoder", request.name, HUB_IDS, also=", hf:ID_OR_FOLDER or hf-random:ID_OR_FOLDER")
    pretrained = name != "hf-random"
    checkpoint = find_checkpoint(HUB_IDS.get(request.name, reference), weights=pretrained)
    vision = _load(checkpoint, request.layer, pretrained)
    prefix, tokens, channels = _look(vision)
    batch_size = _batch_size(vision, tokens, channels)

    def prepare(images: UInt8[np.ndarray, "images height width 3"]) -> Float[Tensor, "images 3 rows columns"]:
        return pixel_values(vision.preprocessing, images, vision.device)

    def forward(pixels: Float[Tensor, "images 3 rows columns"]) -> Float[np.ndarray, "images patches channels"]:
        return _tokens(vision, prefix, pixels)

    def encode(
        images: UInt8[np.ndarray, "images height width 3"],
    ) -> Float[np.ndarray, "images patches channels"]:
        starts = range(0, len(images), batch_size)
        return np.concatenate([forward(prepare(images[i : i + batch_size])) for i in starts])

    def window(height: int, width: int) -> Window:
        return token_window(vision.preprocessing, vision.patch, height, width)

    identity = {"name": name, **_identity(vision, checkpoint, pretrained)}
    return Encoder(identity, encode, window, batch_size, (prepare, forward))


def _load(checkpoint: Checkpoint, layer: int | None, pretrained: bool) -> Vision:
    """The model on its device. What can be wrong with the settings is found before the weights are read."""
    architecture = ARCHITECTURES.get(checkpoint.config.get("model_type", ""), ANY)
    config = read_config(checkpoint, architecture)
    patch = _patch_size(checkpoint, config)
    layer = _layer(layer, config.num_hidden_layers)
    preprocessing = _preprocessing(checkpoint, architecture, config, pretrained)
    if pretrained:
        model = load_pretrained(checkpoint, architecture, config)
    else:
        model = load_random(architecture, config, RANDOM_SEED)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return Vision(checkpoint.name, model.to(device), architecture, preprocessing, patch, layer, device)


def _identity(vision: Vision, checkpoint: Checkpoint, pretrained: bool) -> Json:
    """All that decides the tokens, and no path: equal files in two folders are the same encoder."""
    return {
        "hub_id": checkpoint.hub_id,
        "revision": checkpoint.revision,
        "class": type(vision.model).__name__,
        "config_sha256": config_sha256(checkpoint.config),
        "weights": weights_sha256(checkpoint) if pretrained else {"random_seed": RANDOM_SEED},
        "preprocessing": vision.preprocessing._asdict(),
        "layer": vision.layer,
        "final_norm": vision.architecture.final_norm,
        "dtype": "bfloat16 autocast" if vision.device.type == "cuda" else "float32",
        "versions": {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "pillow": PIL.__version__,
        },
    }


# --------------------------------------------------------------------------------------------- what was asked


def _patch_size(checkpoint: Checkpoint, config: Any) -> tuple[int, int]:
    """(height, width) of a patch; an error for a model that has none."""
    match getattr(config, "patch_size", None), getattr(config, "num_hidden_layers", None):
        case int(side), int():
            return side, side
        case [int(height), int(width)], int():
            return height, width
    raise UserError(
        f"{checkpoint.name} is a '{config.model_type}' model, which gives no patch tokens; "
        "choose a vision transformer such as facebook/dinov2-small"
    )


def _layer(layer: int | None, blocks: int) -> int | None:
    """The layer counted from the front."""
    if layer is None:
        return None
    if not -blocks - 1 <= layer <= blocks:
        raise UserError(
            f"there is no layer {layer}; choose 0 (embeddings) to {blocks} (last block), or -1 for the last"
        )
    return layer % (blocks + 1)


def _preprocessing(checkpoint: Checkpoint, architecture: Architecture, config: Any, pretrained: bool) -> Preprocessing:
    """The checkpoint's own preprocessing; untrained weights may do with the usual one of their kind."""
    settings = checkpoint.preprocessor
    if settings is None:
        if pretrained or architecture.processor is None:
            raise UserError(
                f"{checkpoint.name} has no preprocessor_config.json, so how to prepare its images is not known; "
                "copy the file from where the model comes from"
            )
        height, width = _image_size(config)
        fitting = {"size": {"height": height, "width": width}, "do_center_crop": False}
        settings = {} if architecture.any_size else fitting
    return read_preprocessing(settings, architecture.processor)


def _image_size(config: Any) -> tuple[int, int]:
    size = getattr(config, "image_size", 224)
    return (size, size) if isinstance(size, int) else tuple(size)


# ---------------------------------------------------------------------------------------------------- forward


def _tokens(
    vision: Vision, prefix: int, pixels: Float[Tensor, "images 3 rows columns"]
) -> Float[np.ndarray, "images patches channels"]:
    """Patch tokens of one batch."""
    rows, columns = (side // patch for side, patch in zip(pixels.shape[2:], vision.patch, strict=True))
    output = _forward(vision, pixels, hidden_states=vision.layer is not None)
    hidden = output.last_hidden_state if vision.layer is None else output.hidden_states[vision.layer]
    tokens = hidden[:, prefix:].float().cpu().numpy()
    if tokens.shape[1] != rows * columns:
        raise UserError(
            f"{vision.name} gives {tokens.shape[1]} tokens for {rows} x {columns} patches; "
            "choose a model that keeps one token per patch"
        )
    return tokens


@torch.inference_mode()
def _forward(vision: Vision, pixels: Float[Tensor, "images 3 rows columns"], hidden_states: bool) -> Any:
    """The model's own output, of its own class."""
    extra: dict[str, Any] = {"output_hidden_states": True} if hidden_states else {}
    if vision.architecture.noise:
        patches = (pixels.shape[2] // vision.patch[0]) * (pixels.shape[3] // vision.patch[1])
        extra["noise"] = torch.arange(patches, device=vision.device).float().expand(len(pixels), -1)
    with _precision(vision.device):
        return vision.model(pixel_values=pixels, **extra)


def _precision(device: torch.device) -> AbstractContextManager[Any]:
    return torch.autocast("cuda", torch.bfloat16) if device.type == "cuda" else nullcontext()


# ------------------------------------------------------------------------------------- looking before leaping


def _look(vision: Vision) -> tuple[int, int, int]:
    """Run one black image; (tokens before the patches, tokens in all, channels), where they are as expected."""
    height, width = _image_size(vision.model.config)
    try:
        black = np.zeros((1, height, width, 3), np.uint8)
        pixels = pixel_values(vision.preprocessing, black, vision.device)
        output = _forward(vision, pixels, hidden_states=True)
        _, tokens, channels = output.last_hidden_state.shape
    except UserError:
        raise
    except Exception as error:  # the model's own code, of any architecture
        raise UserError(
            f"{vision.name} gives no patch tokens for an image as its preprocessing makes it ({error}); "
            "choose another model"
        ) from error
    window = token_window(vision.preprocessing, vision.patch, height, width)
    prefix = tokens - window.rows * window.columns
    registers = getattr(vision.model.config, "num_register_tokens", None) or 0
    class_tokens = vision.architecture.class_tokens
    expected = (0, 1 + registers) if class_tokens is None else (class_tokens + registers,)
    if prefix not in expected:
        raise UserError(
            f"{vision.name} gives {tokens} tokens for {window.rows} x {window.columns} patches, not one per patch and "
            f"{' or '.join(map(str, expected))} before them; choose another model"
        )
    _check_layers(vision, output)
    return prefix, tokens, channels


@torch.inference_mode()
def _check_layers(vision: Vision, output: Any) -> None:
    """There is one hidden state per block and one before, and the final norm turns the last one into the output."""
    hidden, last = output.hidden_states, output.last_hidden_state
    final_norm = vision.architecture.final_norm
    if final_norm == "unknown" and vision.layer is None:
        return
    blocks = vision.model.config.num_hidden_layers
    agree = [state.shape for state in hidden or ()] == [last.shape] * (blocks + 1)
    if agree and final_norm != "unknown":
        with _precision(vision.device):
            normed = hidden[-1] if final_norm == "none" else vision.model.get_submodule(final_norm)(hidden[-1])
        agree = torch.allclose(normed.float(), last.float(), rtol=1e-3, atol=1e-3)
    if not agree:
        raise UserError(
            f"{type(vision.model).__name__} of transformers {transformers.__version__} gives other hidden layers than "
            "this program knows; use another version of transformers, or another model"
        )


def _batch_size(vision: Vision, tokens: int, channels: int) -> int:
    """Images that a quarter of the free memory holds, as others wait prepared; no more than pays off."""
    on_gpu = vision.device.type == "cuda"
    free = torch.cuda.mem_get_info(vision.device)[0] if on_gpu else psutil.virtual_memory().available
    config = vision.model.config
    kept = config.num_hidden_layers + 1 if vision.layer is not None else 0
    # A block holds the residual, its norm, q, k, v, the attention's output and the MLP's two wide layers.
    floats = tokens * channels * (16 + kept) + tokens**2 * getattr(config, "num_attention_heads", 16)
    return int(min(max(free // 4 // (4 * floats), 1), 256 if on_gpu else 32))
