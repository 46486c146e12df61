"""Preprocessing against the hub's own classes, a triangle filter written out in NumPy, and geometry by hand."""

import warnings

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from soopf_jax.encoders.hf_preprocess import (
    PROCESSORS,
    Preprocessing,
    moved,
    pixel_values,
    read_preprocessing,
    resize_float,
    token_window,
)
from soopf_jax.errors import UserError
from soopf_jax.types import Window

CPU = torch.device("cpu")
GREY_TOLERANCE = 1e-4
"""Grey levels: the same pixels up to float32 rounding of the rescale and the normalisation."""

PIL_CLASSES = sorted(set(PROCESSORS) - {"DINOv3ViTImageProcessor"})

CHECKPOINT_SETTINGS = {
    "dinov2": {
        "image_processor_type": "BitImageProcessor",
        "size": {"shortest_edge": 256},
        "crop_size": {"height": 224, "width": 224},
        "do_center_crop": True,
        "resample": 3,
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
    },
    "siglip2": {
        "image_processor_type": "SiglipImageProcessor",
        "size": {"height": 256, "width": 256},
        "resample": 2,
        "do_convert_rgb": None,
    },
    "clip, as first published": {
        "feature_extractor_type": "CLIPFeatureExtractor",
        "size": 224,
        "crop_size": 224,
        "resample": 3,
    },
    "mae, as first published": {
        "feature_extractor_type": "ViTFeatureExtractor",
        "size": 224,
        "image_mean": [0.485] * 3,
    },
    "raw grey levels": {"image_processor_type": "ViTImageProcessor", "do_normalize": False, "do_rescale": False},
    "as it comes": {"image_processor_type": "ViTImageProcessorFast", "do_resize": False},
}

DINOV3_SETTINGS = {
    "image_processor_type": "DINOv3ViTImageProcessorFast",
    "crop_size": None,
    "do_center_crop": None,
    "resample": 2,
    "rescale_factor": 0.00392156862745098,
    "size": {"height": 224, "width": 224},
}


def noise(seed: int, height: int, width: int, count: int = 2) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, height, width, 3), dtype=np.uint8)


def hub_pixels(preprocessing: Preprocessing, given_settings: dict, images: np.ndarray) -> np.ndarray:
    """The same by the hub's own PIL class."""
    processor = getattr(transformers, preprocessing.processor + "Pil")(**given_settings)
    return np.stack([processor(Image.fromarray(image), return_tensors="np")["pixel_values"][0] for image in images])


def grey_difference(preprocessing: Preprocessing, ours: torch.Tensor, theirs: np.ndarray) -> float:
    std = np.array(preprocessing.std)[:, None, None]
    return float((np.abs(ours.numpy() - theirs) * std / preprocessing.scale).max())


# ---------------------------------------------------------------------------- the hub's classes


@pytest.mark.parametrize("size", [(64, 64), (256, 256), (300, 400), (401, 300)])
@pytest.mark.parametrize("name", PIL_CLASSES)
def test_class_defaults_give_the_pixels_of_the_hub_class(name, size):
    preprocessing = read_preprocessing({"image_processor_type": name}, None)
    images = noise(0, *size)
    ours = pixel_values(preprocessing, images, CPU)
    assert grey_difference(preprocessing, ours, hub_pixels(preprocessing, {}, images)) <= GREY_TOLERANCE


@pytest.mark.parametrize("name", CHECKPOINT_SETTINGS)
def test_settings_of_checkpoints_give_the_pixels_of_the_hub_class(name):
    given_settings = CHECKPOINT_SETTINGS[name]
    preprocessing = read_preprocessing(given_settings, None)
    images = noise(1, 280, 240)
    ours = pixel_values(preprocessing, images, CPU)
    assert grey_difference(preprocessing, ours, hub_pixels(preprocessing, given_settings, images)) <= GREY_TOLERANCE


@settings(max_examples=25, deadline=None)
@given(height=st.integers(20, 150), width=st.integers(20, 150), edge=st.integers(20, 60), crop=st.integers(1, 20))
def test_any_image_size_gives_the_pixels_of_the_hub_class(height, width, edge, crop):
    given_settings = {"size": {"shortest_edge": edge}, "crop_size": {"height": crop, "width": crop + edge - 20}}
    preprocessing = read_preprocessing(given_settings, "CLIPImageProcessor")
    images = noise(height, height, width, count=1)
    ours = pixel_values(preprocessing, images, CPU)
    assert grey_difference(preprocessing, ours, hub_pixels(preprocessing, given_settings, images)) <= GREY_TOLERANCE


@pytest.mark.parametrize("size", [(64, 64), (256, 256), (300, 400)])
def test_dinov3_gives_the_pixels_of_the_hub_class(size):
    pytest.importorskip("torchvision", reason="the hub's DINOv3 image processor exists only on torchvision")
    preprocessing = read_preprocessing(DINOV3_SETTINGS, None)
    images = noise(2, *size)
    theirs = transformers.DINOv3ViTImageProcessor(**DINOV3_SETTINGS)(list(images), return_tensors="pt")["pixel_values"]
    ours = pixel_values(preprocessing, images, CPU)
    assert grey_difference(preprocessing, ours, theirs.numpy()) <= GREY_TOLERANCE


def test_dinov3_settings_are_rescale_bilinear_imagenet():
    preprocessing = read_preprocessing(DINOV3_SETTINGS, None)
    assert preprocessing == Preprocessing(
        processor="DINOv3ViTImageProcessor",
        order="rescale-first",
        resize=(224, 224),
        resample="bilinear",
        crop=None,
        scale=1 / 255,
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
    )


# ---------------------------------------------------------------------------- the float resize


def triangle_filter(length: int, target: int) -> np.ndarray:
    """[target, length]: the weights of an antialiased linear resize, from their definition."""
    scale = length / target
    centres = (np.arange(target)[:, None] + 0.5) * scale
    distances = np.abs(np.arange(length) + 0.5 - centres) / max(scale, 1.0)
    weights = np.maximum(0.0, 1.0 - distances)
    return weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(("size", "target"), [((256, 256), (224, 224)), ((64, 64), (224, 224)), ((97, 131), (32, 48))])
def test_float_resize_is_a_triangle_filter(size, target):
    images = noise(3, *size)
    ours = resize_float(torch.tensor(images).permute(0, 3, 1, 2).float(), target, "bilinear").numpy()
    down, across = triangle_filter(size[0], target[0]), triangle_filter(size[1], target[1])
    expected = np.einsum("ih,bhwc,jw->bcij", down, images.astype(np.float64), across, optimize=True)
    # torch computes the places of the filter in float32: off by one spacing on each axis, over a contrast of 255.
    tolerance = 2 * 255 * np.spacing(np.float32(max(size + target)))
    assert np.abs(ours - expected).max() <= tolerance < 0.02


def test_rescale_first_never_rounds_to_grey_levels():
    """The two orders differ by the rounding of the resized uint8 image: up to half a grey level, and not less."""
    images = noise(4, 256, 256)
    rescale_first = read_preprocessing({**DINOV3_SETTINGS, "do_normalize": False}, None)
    resize_first = rescale_first._replace(order="resize-uint8-first")
    floats, rounded = (pixel_values(each, images, CPU).numpy() * 255 for each in (rescale_first, resize_first))
    assert np.abs(rounded - np.round(rounded)).max() < 1e-3
    assert np.abs(floats - np.round(floats)).max() > 0.4
    assert 0.4 < np.abs(floats - rounded).max() < 1.1


# ---------------------------------------------------------------------------- geometry


def test_window_of_a_wide_image_by_hand():
    preprocessing = read_preprocessing(CHECKPOINT_SETTINGS["dinov2"], None)
    # 480 x 640 -> 256 x 341 (int(256 * 640 / 480)) -> rows 16 to 240, columns 58 to 282 -> 16 x 16 patches of 14.
    expected = Window(30.0, 58 * 640 / 341, 420.0, 224 * 640 / 341, 16, 16)
    assert token_window(preprocessing, (14, 14), 480, 640) == pytest.approx(expected)


def test_window_leaves_out_what_no_patch_covers():
    preprocessing = read_preprocessing({"do_resize": False}, "ViTImageProcessor")
    assert token_window(preprocessing, (16, 8), 50, 30) == Window(0.0, 0.0, 48.0, 24.0, 3, 3)


@pytest.mark.parametrize("name", ["dinov2", "siglip2", "clip, as first published"])
@pytest.mark.parametrize("size", [(480, 640), (250, 200), (64, 64)])
def test_a_patch_shows_the_part_of_the_image_that_the_window_says(name, size):
    """On two ramps, the mean grey level of a patch is the place of its centre in the source image."""
    height, width = size
    preprocessing = read_preprocessing(CHECKPOINT_SETTINGS[name], None)
    window = token_window(preprocessing, (14, 14), height, width)
    ramps = np.zeros((1, height, width, 3), np.uint8)
    ramps[..., 0] = np.round((np.arange(height)[:, None] + 0.5) / height * 255)
    ramps[..., 1] = np.round((np.arange(width) + 0.5) / width * 255)
    pixels = pixel_values(preprocessing, ramps, CPU)[0].numpy()
    grey = pixels * np.array(preprocessing.std)[:, None, None] + np.array(preprocessing.mean)[:, None, None]
    covered = grey[:, : window.rows * 14, : window.columns * 14]
    means = covered.reshape(3, window.rows, 14, window.columns, 14).mean(axis=(2, 4))
    middle_rows = window.top + (np.arange(window.rows) + 0.5) * window.height / window.rows
    middle_columns = window.left + (np.arange(window.columns) + 0.5) * window.width / window.columns
    np.testing.assert_allclose(means[0], np.broadcast_to(middle_rows[:, None] / height, means[0].shape), atol=0.01)
    np.testing.assert_allclose(means[1], np.broadcast_to(middle_columns / width, means[1].shape), atol=0.01)


# ---------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("given_settings", "message"),
    [
        ({"image_processor_type": "SamImageProcessor"}, "unknown image processor 'SamImageProcessor'"),
        ({}, "does not name its image_processor_type"),
        ({"image_processor_type": "ViTImageProcessor", "do_pad": True}, "asks for 'do_pad'"),
        ({"image_processor_type": "ViTImageProcessor", "size": {"longest_edge": 224}}, "longest_edge"),
        ({"image_processor_type": "ViTImageProcessor", "size": "large"}, "'large'"),
        ({"image_processor_type": "ViTImageProcessor", "resample": 77}, "77"),
        ({"image_processor_type": "ViTImageProcessor", "image_mean": [0.5, 0.5]}, "3 colour channels"),
        ({"image_processor_type": "CLIPImageProcessor", "crop_size": {"shortest_edge": 224}}, "crop_size"),
    ],
)
def test_settings_that_cannot_be_followed(given_settings, message):
    with pytest.raises(UserError, match=message) as caught:
        read_preprocessing(given_settings, None)
    assert "\n" not in str(caught.value)


def test_an_image_smaller_than_the_crop():
    preprocessing = read_preprocessing({"do_resize": False}, "CLIPImageProcessor")
    with pytest.raises(UserError, match="64 x 64 pixels are smaller than the centre crop of 224 x 224"):
        pixel_values(preprocessing, noise(5, 64, 64), CPU)


def test_resampling_that_torch_lacks():
    preprocessing = read_preprocessing({**DINOV3_SETTINGS, "resample": 1}, None)
    with pytest.raises(UserError, match="'lanczos'"):
        pixel_values(preprocessing, noise(5, 64, 64), CPU)


@pytest.mark.parametrize("processor", ["ViTImageProcessor", "DINOv3ViTImageProcessor"])
def test_read_only_images_are_taken_without_a_warning(processor):
    images = noise(6, 64, 64)
    images.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pixel_values(read_preprocessing({}, processor), images, CPU)


def test_images_go_to_a_gpu_from_pinned_memory_and_without_waiting(monkeypatch):
    images, done = torch.zeros(2, 3), []

    def to(self, device, non_blocking=False):
        done.append((device.type, non_blocking))
        return self

    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: done.append("pinned") or self)
    monkeypatch.setattr(torch.Tensor, "to", to)
    moved(images, torch.device("cuda"))
    moved(images, CPU)
    assert done == ["pinned", ("cuda", True), ("cpu", False)]
