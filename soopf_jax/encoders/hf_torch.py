"""What all encoders that run on torch have in common: the device, the precision, layer numbers and batches."""

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import psutil
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from soopf_jax.encoders.hf_preprocess import Preprocessing, pixel_values, token_window
from soopf_jax.errors import UserError
from soopf_jax.types import Encoder, Json, Layers, Window

DTYPE = "float32"
"""The precision of every encoder on every device; part of each encoder's identity."""

_OPERATORS: list[Any] = []
"""Holds the library below: torch forgets operators whose library object is gone."""


def import_torchvision() -> None:
    """Import torchvision, if it is installed, also where its compiled part does not fit the installed torch.

    timm imports torchvision, and so does transformers as soon as torchvision is installed. The wheels on PyPI are
    compiled for CUDA. Beside a CPU build of torch, the compiled part is not loaded, and the import fails because
    torchvision registers `nms` with torch by name. Encoders use nothing but its Python parts, so the two operators
    that it asks for are declared, without an implementation, after the import has failed and only then. A
    torchvision that fits its torch is imported as it is.
    """
    if find_spec("torchvision") is None:
        return
    try:
        import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::nms" not in str(error) or _OPERATORS:
            raise
        library = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _OPERATORS.append(library)
        import_module("torchvision")


def choose_device() -> torch.device:
    """The GPU if there is one. Convolutions on it are then computed in float32 as well, and not in TF32."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.backends.cudnn.allow_tf32 = False
    return torch.device("cuda")


def count_from_front(layer: int | None, blocks: int) -> int | None:
    """The number of a layer, where negative numbers count from the last block; None stays None."""
    if layer is None:
        return None
    if not -blocks - 1 <= layer <= blocks:
        raise UserError(
            f"there is no layer {layer}; choose 0 (embeddings) to {blocks} (last block), or -1 for the last"
        )
    return layer % (blocks + 1)


def images_per_batch(device: torch.device, floats_per_image: int) -> int:
    """Images that a quarter of the free memory holds, as others wait prepared; no more than pays off."""
    on_gpu = device.type == "cuda"
    free = torch.cuda.mem_get_info(device)[0] if on_gpu else psutil.virtual_memory().available
    return int(min(max(free // 4 // (4 * floats_per_image), 1), 256 if on_gpu else 32))


def torch_encoder(
    identity: Json,
    forward: Callable[[Tensor, Sequence[int | None]], Sequence[np.ndarray]],
    depth: int | None,
    preprocessing: Preprocessing,
    patch: tuple[int, int],
    device: torch.device,
    batch_size: int,
) -> Encoder:
    """An Encoder from a forward pass.

    Args:
        identity: All that decides the tokens. Its entry `layer` is the layer that `encode` reads.
        forward: (pixel values [images, 3, rows, columns], layers) -> patch tokens [images, patches, channels] of each.
        depth: The number of blocks; None if the model has no layers that share one grid of patches.
        preprocessing: How images become pixel values.
        patch: (height, width) of a patch in pixels of the model's input.
        device: Where the model is.
        batch_size: Images per forward pass.
    """

    def prepare(images: UInt8[np.ndarray, "images height width 3"]) -> Float[Tensor, "images 3 rows columns"]:
        return pixel_values(preprocessing, images, device)

    def own_layer(pixels: Float[Tensor, "images 3 rows columns"]) -> Float[np.ndarray, "images patches channels"]:
        return forward(pixels, [identity["layer"]])[0]

    def encode(
        images: UInt8[np.ndarray, "images height width 3"],
    ) -> Float[np.ndarray, "images patches channels"]:
        starts = range(0, len(images), batch_size)
        return np.concatenate([own_layer(prepare(images[i : i + batch_size])) for i in starts])

    def window(height: int, width: int) -> Window:
        return token_window(preprocessing, patch, height, width)

    layers = None if depth is None else Layers(depth, lambda layer: {**identity, "layer": layer}, forward)
    return Encoder(identity, encode, window, batch_size, stages=(prepare, own_layer), layers=layers)
