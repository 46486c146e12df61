"""Preprocesses images as a checkpoint's `preprocessor_config.json` says, without torchvision.

In: uint8 images of one size. Out: the model's input, and where its patches lie in the images. The order of the steps
depends on the processor class and is not in the JSON file: DINOv3's class rescales to floats and then resizes, and the
others resize the uint8 image. This module follows the same order and calls the same two resize functions as those
classes: torch's `interpolate(antialias=True)` for floats and Pillow's for uint8.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor

from soopf_jax.errors import UserError, unknown_name
from soopf_jax.types import Json, Window

RESIZE_UINT8_FIRST = "resize-uint8-first"
RESCALE_FIRST = "rescale-first"
TIMM = "timm"
"""The processor of timm's own transform, which no file of the hub names."""

_CLIP = {
    "image_mean": (0.48145466, 0.4578275, 0.40821073),
    "image_std": (0.26862954, 0.26130258, 0.27577711),
    "size": {"shortest_edge": 224},
    "do_center_crop": True,
    "default_to_square": False,
}
_HALF = {"image_mean": (0.5, 0.5, 0.5), "image_std": (0.5, 0.5, 0.5)}
_IMAGENET = {"image_mean": (0.485, 0.456, 0.406), "image_std": (0.229, 0.224, 0.225)}

COMMON: Json = {
    "order": RESIZE_UINT8_FIRST,
    "do_resize": True,
    "size": {"height": 224, "width": 224},
    "default_to_square": True,
    "resample": int(Image.Resampling.BICUBIC),
    "do_center_crop": False,
    "crop_size": {"height": 224, "width": 224},
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
}
"""The defaults that the classes below share."""

PROCESSORS: Mapping[str, Json] = {
    "BeitImageProcessor": _HALF,
    "BitImageProcessor": _CLIP,
    "CLIPImageProcessor": _CLIP,
    "DeiTImageProcessor": {**_HALF, "size": {"height": 256, "width": 256}, "do_center_crop": True},
    "DINOv3ViTImageProcessor": {
        **_IMAGENET,
        "order": RESCALE_FIRST,
        "resample": int(Image.Resampling.BILINEAR),
    },
    "SiglipImageProcessor": {**_HALF, "default_to_square": False},
    "ViTImageProcessor": {**_HALF, "resample": int(Image.Resampling.BILINEAR)},
}
"""The defaults of the hub's processor classes, and the order of their steps, which the JSON file never holds."""

_KNOWN_STEPS = (
    "do_resize",
    "do_center_crop",
    "do_rescale",
    "do_normalize",
    "do_convert_rgb",
    "do_reduce_labels",
)


class Preprocessing(NamedTuple):
    """Everything that determines the pixel values. It is part of the encoder's identity."""

    processor: str
    """The hub's processor class."""
    order: str
    """`rescale-first` or `resize-uint8-first`."""
    resize: tuple[int, int] | int | None
    """(height, width), or the length of the shortest edge, or no resize."""
    resample: str
    """`bilinear`, `bicubic`, ...; always antialiased."""
    crop: tuple[int, int] | None
    """(height, width) of the centre crop."""
    scale: float
    """What a grey level is multiplied by."""
    mean: tuple[float, ...]
    std: tuple[float, ...]


# ---------------------------------------------------------------------------------- the checkpoint's settings


def read_preprocessing(settings: Json, default_processor: str | None) -> Preprocessing:
    """The steps that a `preprocessor_config.json` asks for.

    Args:
        settings: The content of the file. The class's default replaces a key that is missing or null.
        default_processor: The processor class to use if the file names none.

    Raises:
        UserError: The file asks for something that is not supported.
    """
    given = settings.get("image_processor_type") or settings.get("feature_extractor_type") or default_processor
    if given is None:
        raise UserError("preprocessor_config.json does not name its image_processor_type; add it")
    name = str(given).removesuffix("Fast").removesuffix("Pil").replace("FeatureExtractor", "ImageProcessor")
    if name not in PROCESSORS:
        raise unknown_name(
            "image processor", name, PROCESSORS, also="; edit preprocessor_config.json to use one of these"
        )
    for step, wanted in settings.items():
        if step.startswith("do_") and wanted and step not in _KNOWN_STEPS:
            raise UserError(f"preprocessor_config.json asks for '{step}', which is not supported; set it to false")
    defaults = {**COMMON, **PROCESSORS[name]}
    steps = {**defaults, **{key: value for key, value in settings.items() if value is not None}}
    try:
        return Preprocessing(
            processor=name,
            order=defaults["order"],
            resize=_size(steps["size"], bool(steps["default_to_square"])) if steps["do_resize"] else None,
            resample=Image.Resampling(steps["resample"]).name.lower(),
            crop=_pair(_size(steps["crop_size"], square=True)) if steps["do_center_crop"] else None,
            scale=float(steps["rescale_factor"]) if steps["do_rescale"] else 1.0,
            mean=_channels(steps["image_mean"]) if steps["do_normalize"] else (0.0, 0.0, 0.0),
            std=_channels(steps["image_std"]) if steps["do_normalize"] else (1.0, 1.0, 1.0),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"preprocessor_config.json cannot be followed ({error}); correct it") from error


def _size(size: object, square: bool) -> tuple[int, int] | int:
    """(height, width), or the length of the shortest edge. A single number means a square if `square`, else an edge."""
    if isinstance(size, Mapping):
        keys = {key for key, value in size.items() if value is not None}
        if keys == {"shortest_edge"}:
            return int(size["shortest_edge"])
        if keys == {"height", "width"}:
            return int(size["height"]), int(size["width"])
        raise ValueError(f"size has the keys {', '.join(sorted(keys))}, not height and width or shortest_edge")
    if isinstance(size, list | tuple):
        height, width = size
        return int(height), int(width)
    if isinstance(size, int):
        return (size, size) if square else size
    raise TypeError(f"size is {size!r}")


def _pair(size: tuple[int, int] | int) -> tuple[int, int]:
    if isinstance(size, int):
        raise TypeError("crop_size needs height and width")
    return size


def _channels(values: object) -> tuple[float, ...]:
    """One value per colour channel; a single number stands for all three."""
    each = values if isinstance(values, list | tuple) else (values,) * 3
    if len(each) != 3:
        raise ValueError(f"{len(each)} means or standard deviations for 3 colour channels")
    return tuple(float(value) for value in each)


# --------------------------------------------------------------------------------------------------- geometry


def resized_size(preprocessing: Preprocessing, height: int, width: int) -> tuple[int, int]:
    """(height, width) of an image after the resize."""
    match preprocessing.resize:
        case None:
            return height, width
        case int(edge):
            # The longer edge is truncated to an integer, not rounded, as in the hub's classes.
            return (edge, int(edge * width / height)) if height <= width else (int(edge * height / width), edge)
        case size:
            return size


def crop_box(preprocessing: Preprocessing, height: int, width: int) -> tuple[int, int, int, int]:
    """(top, left, height, width) of the centre crop in a resized image."""
    if preprocessing.crop is None:
        return 0, 0, height, width
    rows, columns = preprocessing.crop
    if rows > height or columns > width:
        raise UserError(
            f"images of {height} x {width} pixels are smaller than the centre crop of {rows} x {columns} in "
            "preprocessor_config.json; enlarge its size or give larger images"
        )
    if preprocessing.processor == TIMM:  # torchvision rounds half a pixel to the even neighbour, the hub's classes down
        return round((height - rows) / 2), round((width - columns) / 2), rows, columns
    return (height - rows) // 2, (width - columns) // 2, rows, columns


def token_window(preprocessing: Preprocessing, patch: tuple[int, int], height: int, width: int) -> Window:
    """The part of a `height` x `width` image that the patches cover, in pixels of that image."""
    resized_height, resized_width = resized_size(preprocessing, height, width)
    top, left, crop_height, crop_width = crop_box(preprocessing, resized_height, resized_width)
    rows, columns = crop_height // patch[0], crop_width // patch[1]
    down, across = height / resized_height, width / resized_width
    return Window(
        top=top * down,
        left=left * across,
        height=rows * patch[0] * down,
        width=columns * patch[1] * across,
        rows=rows,
        columns=columns,
    )


# ----------------------------------------------------------------------------------------------------- pixels


def pixel_values(
    preprocessing: Preprocessing, images: UInt8[np.ndarray, "images height width 3"], device: torch.device
) -> Float[Tensor, "images 3 rows columns"]:
    """The model's input, in float32 on `device`."""
    size = resized_size(preprocessing, *images.shape[1:3])
    top, left, height, width = crop_box(preprocessing, *size)
    if preprocessing.order == RESCALE_FIRST:
        scaled = _channels_first(images, device) * preprocessing.scale
        resized = resize_float(scaled, size, preprocessing.resample)
        cropped = resized[:, :, top : top + height, left : left + width]
    else:
        grey = resize_uint8(images, size, preprocessing.resample)[:, top : top + height, left : left + width]
        cropped = _channels_first(grey, device) * preprocessing.scale
    mean, std = (
        torch.tensor(each, dtype=torch.float32, device=device)[:, None, None]
        for each in (preprocessing.mean, preprocessing.std)
    )
    return (cropped - mean) / std


def _channels_first(images: UInt8[np.ndarray, "images rows columns 3"], device: torch.device) -> Tensor:
    # torch.tensor makes a copy. from_numpy would warn about a read-only array, such as a memory map.
    return moved(torch.tensor(images), device).permute(0, 3, 1, 2).contiguous().float()


def moved(images: Tensor, device: torch.device) -> Tensor:
    """The images on a device. A GPU reads them from pinned memory, while it computes the batch before."""
    return images.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else images.to(device)


def resize_uint8(
    images: UInt8[np.ndarray, "images height width 3"], size: tuple[int, int], resample: str
) -> UInt8[np.ndarray, "images rows columns 3"]:
    """Resize with Pillow, in several threads. Pillow releases the interpreter lock."""
    method = Image.Resampling[resample.upper()]

    def resize(image: np.ndarray) -> np.ndarray:
        return np.asarray(Image.fromarray(image).resize(size[::-1], method))

    with ThreadPoolExecutor() as pool:
        return np.stack(list(pool.map(resize, images)))


def resize_float(images: Float[Tensor, "images 3 height width"], size: tuple[int, int], resample: str) -> Tensor:
    """Resize with antialiasing, by the function that torchvision calls for floats."""
    if resample not in ("bilinear", "bicubic"):
        raise UserError(f"resampling '{resample}' of float images is not supported; use bilinear (2) or bicubic (3)")
    return torch.nn.functional.interpolate(images, size=size, mode=resample, antialias=True, align_corners=False)
