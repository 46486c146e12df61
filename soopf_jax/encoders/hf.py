"""Vision transformers of the Hugging Face hub as frozen encoders. Only `hf*.py` and `torch_module.py` use torch.

In: `dinov3`, `siglip2` or another name of HUB_IDS, `hf:ID_OR_FOLDER`, or `hf-random:ID_OR_FOLDER` for the same
architecture with untrained weights, or `random-dinov3-l` for DINOv3's architecture without any file. An ID may end with
a revision (`owner/name@revision`). Out: an Encoder that returns patch tokens.

Hidden layers are counted as in transformers. Layer 0 is the input of the first block, and layer l is the output of
block l without any norm; negative numbers count from the end. If no layer is chosen, the tokens are
`last_hidden_state`: the output of the last block, after the final norm if the model applies one to its patches.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import PIL
import torch
import transformers
from jaxtyping import Float
from torch import Tensor

from soopf_jax.encoders.hf_architectures import ANY, ARCHITECTURES, HUB_IDS, UNTRAINED, Architecture
from soopf_jax.encoders.hf_checkpoint import (
    Checkpoint,
    config_sha256,
    find_checkpoint,
    load_pretrained,
    load_random,
    read_config,
    weights_sha256,
    without_files,
)
from soopf_jax.encoders.hf_preprocess import Preprocessing, pixel_values, read_preprocessing, token_window
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

RANDOM_SEED = 0
"""The seed of untrained weights."""


class Vision(NamedTuple):
    """A loaded model and everything that is needed to read its tokens."""

    name: str
    """The hub id or the folder, for messages."""
    model: Any
    architecture: Architecture
    preprocessing: Preprocessing
    patch: tuple[int, int]
    """(height, width) of a patch in pixels of the model's input."""
    layer: int | None
    device: torch.device


class Shape(NamedTuple):
    """What one forward pass shows about a model."""

    prefix: int
    """Tokens before the patches."""
    tokens: int
    """All tokens."""
    channels: int
    has_layers: bool
    """Whether its hidden states are known to be the inputs and outputs of its blocks."""


def open_encoder(request: EncoderRequest) -> Encoder:
    """The encoder called `dinov3`, `hf:ID_OR_FOLDER`, `hf-random:ID_OR_FOLDER`, ..."""
    name, _, reference = request.name.partition(":")
    known = (*HUB_IDS, *UNTRAINED)
    if name not in ("hf", "hf-random") and request.name not in known:
        raise unknown_name("encoder", request.name, known, also=", hf:ID_OR_FOLDER or hf-random:ID_OR_FOLDER")
    import_torchvision()
    pretrained = name != "hf-random" and name not in UNTRAINED
    if name in UNTRAINED:
        checkpoint = without_files(UNTRAINED[name])
    else:
        checkpoint = find_checkpoint(HUB_IDS.get(request.name, reference), weights=pretrained)
    vision = _load(checkpoint, request.layer, pretrained)
    shape = _look(vision)

    def forward(
        pixels: Float[Tensor, "images 3 rows columns"], layers: Sequence[int | None]
    ) -> list[Float[np.ndarray, "images patches channels"]]:
        return _tokens(vision, shape.prefix, pixels, layers)

    identity = {"name": name, **_identity(vision, checkpoint, pretrained)}
    depth = vision.model.config.num_hidden_layers if shape.has_layers else None
    batch_size = _batch_size(vision, shape)
    return torch_encoder(identity, forward, depth, vision.preprocessing, vision.patch, vision.device, batch_size)


def _load(checkpoint: Checkpoint, layer: int | None, pretrained: bool) -> Vision:
    """Load the model onto its device. All settings are checked before the weights are read."""
    architecture = ARCHITECTURES.get(checkpoint.config.get("model_type", ""), ANY)
    config = read_config(checkpoint, architecture)
    patch = _patch_size(checkpoint, config)
    layer = count_from_front(layer, config.num_hidden_layers)
    preprocessing = _preprocessing(checkpoint, architecture, config, pretrained)
    if pretrained:
        model = load_pretrained(checkpoint, architecture, config)
    else:
        model = load_random(architecture, config, RANDOM_SEED)
    device = choose_device()
    return Vision(checkpoint.name, model.to(device), architecture, preprocessing, patch, layer, device)


def _identity(vision: Vision, checkpoint: Checkpoint, pretrained: bool) -> Json:
    """Everything that determines the tokens. It holds no path: equal files in two folders are the same encoder."""
    return {
        "hub_id": checkpoint.hub_id,
        "revision": checkpoint.revision,
        "class": type(vision.model).__name__,
        "config_sha256": config_sha256(checkpoint.config),
        "weights": weights_sha256(checkpoint) if pretrained else {"random_seed": RANDOM_SEED},
        "preprocessing": vision.preprocessing._asdict(),
        "layer": vision.layer,
        "final_norm": vision.architecture.final_norm,
        "dtype": DTYPE,
        "versions": {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "pillow": PIL.__version__,
        },
    }


# --------------------------------------------------------------------------------------------- what was asked


def _patch_size(checkpoint: Checkpoint, config: Any) -> tuple[int, int]:
    """(height, width) of a patch; a UserError for a model without patches."""
    match getattr(config, "patch_size", None), getattr(config, "num_hidden_layers", None):
        case int(side), int():
            return side, side
        case [int(height), int(width)], int():
            return height, width
    raise UserError(
        f"{checkpoint.name} is a '{config.model_type}' model, which gives no patch tokens; "
        "choose a vision transformer such as facebook/dinov2-small"
    )


def _preprocessing(checkpoint: Checkpoint, architecture: Architecture, config: Any, pretrained: bool) -> Preprocessing:
    """The checkpoint's own preprocessing. Untrained weights may fall back to the default of their architecture."""
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
    vision: Vision, prefix: int, pixels: Float[Tensor, "images 3 rows columns"], layers: Sequence[int | None]
) -> list[Float[np.ndarray, "images patches channels"]]:
    """Patch tokens of one batch at each of the layers, from one pass."""
    rows, columns = (side // patch for side, patch in zip(pixels.shape[2:], vision.patch, strict=True))
    output = _forward(vision, pixels, hidden_states=any(layer is not None for layer in layers))
    states = [output.last_hidden_state if layer is None else output.hidden_states[layer] for layer in layers]
    found = [state[:, prefix:].float().cpu().numpy() for state in states]
    for tokens in found:
        if tokens.shape[1] != rows * columns:
            raise UserError(
                f"{vision.name} gives {tokens.shape[1]} tokens for {rows} x {columns} patches; "
                "choose a model that keeps one token per patch"
            )
    return found


@torch.inference_mode()
def _forward(vision: Vision, pixels: Float[Tensor, "images 3 rows columns"], hidden_states: bool) -> Any:
    """Run the model. The type of the output depends on the model."""
    extra: dict[str, Any] = {"output_hidden_states": True} if hidden_states else {}
    if vision.architecture.noise:
        patches = (pixels.shape[2] // vision.patch[0]) * (pixels.shape[3] // vision.patch[1])
        extra["noise"] = torch.arange(patches, device=vision.device).float().expand(len(pixels), -1)
    return vision.model(pixel_values=pixels, **extra)


# ------------------------------------------------------------------------------------- looking before leaping


def _look(vision: Vision) -> Shape:
    """Encode one black image and check the output.

    Raises:
        UserError: The model cannot encode the image, or its tokens are not the expected ones.
    """
    height, width = _image_size(vision.model.config)
    try:
        black = np.zeros((1, height, width, 3), np.uint8)
        pixels = pixel_values(vision.preprocessing, black, vision.device)
        output = _forward(vision, pixels, hidden_states=True)
        _, tokens, channels = output.last_hidden_state.shape
    except UserError:
        raise
    except Exception as error:  # code of any architecture may raise anything
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
    has_layers = _layers_agree(vision, output)
    if not has_layers and (vision.architecture.final_norm != "unknown" or vision.layer is not None):
        raise UserError(
            f"{type(vision.model).__name__} of transformers {transformers.__version__} gives other hidden layers than "
            "this program knows; use another version of transformers, or another model"
        )
    return Shape(prefix, tokens, channels, has_layers)


@torch.inference_mode()
def _layers_agree(vision: Vision, output: Any) -> bool:
    """Whether there is one hidden state before each block and one after the last.

    The final norm, if it is known, must also turn the last hidden state into the output.
    """
    hidden, last = output.hidden_states, output.last_hidden_state
    final_norm = vision.architecture.final_norm
    blocks = vision.model.config.num_hidden_layers
    agree = [state.shape for state in hidden or ()] == [last.shape] * (blocks + 1)
    if not agree or final_norm == "unknown":
        return agree
    normed = hidden[-1] if final_norm == "none" else vision.model.get_submodule(final_norm)(hidden[-1])
    return torch.allclose(normed.float(), last.float(), rtol=1e-3, atol=1e-3)


def _batch_size(vision: Vision, shape: Shape) -> int:
    """The number of images per batch that memory allows, if every hidden layer is kept."""
    config, tokens = vision.model.config, shape.tokens
    # A block holds the residual, its norm, q, k, v, the attention's output and the MLP's two wide layers.
    held = 16 + config.num_hidden_layers + 1
    floats = tokens * shape.channels * held + tokens**2 * getattr(config, "num_attention_heads", 16)
    return images_per_batch(vision.device, floats)
