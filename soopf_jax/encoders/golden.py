"""Published token values of checkpoints on one COCO image, and what may be wrong with an encoder that gives others."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, UInt8

from soopf_jax.encoders.hf_preprocess import Preprocessing, pixel_values, read_preprocessing
from soopf_jax.types import Encoder

IMAGE = "val2017/000000039769.jpg"
"""The image of every value below, in COCO's folders."""


class Golden(NamedTuple):
    """The first channels of the first patch tokens, after the final norm."""

    values: tuple[tuple[float, ...], ...]
    """A row per patch."""
    tolerance: float
    """Absolute and relative, as in the source."""
    source: str
    preprocessing: Preprocessing


_COMMIT = "huggingface/transformers at d56c55b"
_DINOV3 = read_preprocessing({}, "DINOv3ViTImageProcessor")
_DINOV2 = read_preprocessing(
    {"size": {"shortest_edge": 256}, "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]},
    "BitImageProcessor",
)


def _dinov3(*values: float) -> Golden:
    source = f"{_COMMIT}, src/transformers/models/dinov3_vit/convert_dinov3_vit_to_hf.py"
    return Golden((values,), 1e-3, source, _DINOV3)


GOLDEN: Mapping[str, Golden] = {
    "facebook/dinov3-vits16-pretrain-lvd1689m": _dinov3(-0.038754, -0.250895, -0.016392, -0.455473, 0.571582),
    "facebook/dinov3-vits16plus-pretrain-lvd1689m": _dinov3(0.144551, -0.388117, -0.393433, -0.157695, -0.600380),
    "facebook/dinov3-vitb16-pretrain-lvd1689m": _dinov3(-0.082523, -0.456272, -0.728029, -0.430680, -0.152880),
    "facebook/dinov3-vitl16-pretrain-lvd1689m": _dinov3(-0.211367, -0.490863, -0.257131, 0.101763, 0.154511),
    "facebook/dinov3-vith16plus-pretrain-lvd1689m": _dinov3(-0.093817, 0.287407, -0.050036, 0.428043, 0.094561),
    "facebook/dinov3-vit7b16-pretrain-lvd1689m": _dinov3(0.044442, -0.052542, 0.070777, -0.065111, -0.026546),
    "facebook/dinov2-base": Golden(
        ((-3.3830, -0.8899, -1.0198), (-2.9340, 1.1604, -0.7696)),
        1e-3,
        f"{_COMMIT}, tests/models/dinov2/test_modeling_dinov2.py (its first row is the class token)",
        _DINOV2,
    ),
}
"""By hub id. transformers has no token values for SigLIP2, nor for patches of DINOv2 with registers."""

TIMM_COPIES: Mapping[str, str] = {
    "vit_small_patch16_dinov3.lvd1689m": "facebook/dinov3-vits16-pretrain-lvd1689m",
    "vit_small_plus_patch16_dinov3.lvd1689m": "facebook/dinov3-vits16plus-pretrain-lvd1689m",
    "vit_base_patch16_dinov3.lvd1689m": "facebook/dinov3-vitb16-pretrain-lvd1689m",
    "vit_large_patch16_dinov3.lvd1689m": "facebook/dinov3-vitl16-pretrain-lvd1689m",
    "vit_huge_plus_patch16_dinov3.lvd1689m": "facebook/dinov3-vith16plus-pretrain-lvd1689m",
    "vit_7b_patch16_dinov3.lvd1689m": "facebook/dinov3-vit7b16-pretrain-lvd1689m",
}
"""timm's models by name, and the repositories whose weights they hold."""


def difference(
    encoder: Encoder,
    before_norm: Callable[[], Encoder],
    golden: Golden,
    image: UInt8[np.ndarray, "height width 3"],
) -> str | None:
    """What makes an encoder's tokens differ from the published ones; None where they agree.

    Args:
        encoder: Opened without a layer, that is, after the final norm. Its `stages` must be given.
        before_norm: Opens the same encoder at its last layer, before the final norm; called only if need be.
        golden: The published values.
        image: The image that they belong to.
    """
    if encoder.stages is None:
        raise ValueError("the encoder does not tell preprocessing and forward pass apart")
    prepare, forward = encoder.stages
    window = encoder.window(*image.shape[:2])
    pixels = prepare(image[None])
    tokens = forward(pixels)[0]
    surplus = len(tokens) - window.rows * window.columns
    if surplus == 0 and _agrees(tokens, golden):
        return None
    if surplus:
        return (
            f"wrong registers: {abs(surplus)} token(s) too {'few' if surplus > 0 else 'many'} are dropped at the front"
        )
    expected = pixel_values(golden.preprocessing, image[None], pixels.device)
    if pixels.shape != expected.shape or np.abs((pixels - expected).cpu().numpy()).max() > 1e-3:
        step = _preprocessing_fault(golden.preprocessing, image, pixels)
        rest = "" if _agrees(forward(expected)[0], golden) else "; and the tokens differ even with the right pixels"
        return f"wrong preprocessing: {step}{rest}"
    for shift in range(1, min(len(tokens) - len(golden.values), 16) + 1):
        if _agrees(tokens[shift:], golden):
            return f"wrong registers: the first patch is token {shift} of those returned"
    if np.array_equal(before_norm().encode(image[None])[0], tokens):
        return "no final norm: the tokens are those of the last block"
    return "other weights: pixels, registers and final norm are as they should be, but the tokens are not"


def _agrees(tokens: Float[np.ndarray, "patches channels"], golden: Golden) -> bool:
    values = np.array(golden.values)
    rows, columns = values.shape
    found = tokens[:rows, :columns]
    return found.shape == values.shape and np.allclose(found, values, rtol=golden.tolerance, atol=golden.tolerance)


def _preprocessing_fault(right: Preprocessing, image: UInt8[np.ndarray, "height width 3"], pixels: object) -> str:
    """The one step whose change turns the right pixels into those given."""
    given = pixels.cpu().numpy()  # type: ignore[attr-defined]
    swapped = image[..., ::-1].copy()
    faults = {
        "the channels are read as BGR, not RGB": (right, swapped),
        **{
            f"{method} instead of {right.resample} resizing": (right._replace(resample=method), image)
            for method in ("bicubic", "bilinear")
            if method != right.resample
        },
        "the order of rescaling and resizing": (
            right._replace(order="resize-uint8-first" if right.order == "rescale-first" else "rescale-first"),
            image,
        ),
        "mean and standard deviation": (right._replace(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)), image),
    }
    for name, (steps, shown) in faults.items():
        wrong = pixel_values(steps, shown[None], pixels.device).cpu().numpy()  # type: ignore[attr-defined]
        if wrong.shape == given.shape and np.abs(wrong - given).max() <= 1e-3:
            return name
    return f"pixels of {given.shape[2]} x {given.shape[3]} that are made in another way"
