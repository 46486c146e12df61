"""The preprocessing of the built-in encoders."""

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image

from soopf_jax.types import Window


def resized(images: UInt8[np.ndarray, "images height width 3"], side: int) -> UInt8[np.ndarray, "images side side 3"]:
    """Resize to a square, bilinear and antialiased. Images of that size stay unchanged."""
    if images.shape[1:3] == (side, side):
        return images
    return np.stack(
        [np.asarray(Image.fromarray(image).resize((side, side), Image.Resampling.BILINEAR)) for image in images]
    )


def normalised(
    images: UInt8[np.ndarray, "images height width 3"],
) -> Float[np.ndarray, "images height width 3"]:
    """(x / 255 - 0.5) / 0.5, in float32."""
    return (images.astype(np.float32) / 255 - 0.5) / 0.5


def whole_image(height: int, width: int, patches: int) -> Window:
    """The window of an encoder that resizes the whole image to a square of patches x patches."""
    return Window(0.0, 0.0, float(height), float(width), patches, patches)
