"""`pixels`: a baseline without a network. A token is its patch averaged to 4 x 4 RGB values in [-1, 1], so D = 48."""

import numpy as np
from jaxtyping import Float, UInt8

from soopf_jax.encoders.images import normalised, resized, whole_image
from soopf_jax.errors import UserError
from soopf_jax.types import Encoder, EncoderRequest, Window

SMALL_SIDE, SMALL_PATCHES = 64, 8
"""Images of 64 x 64 pixels are not resized and have 8 x 8 patches of 8 x 8 pixels."""
LARGE_SIDE, LARGE_PATCHES = 224, 14
"""All other images are resized and have 14 x 14 patches of 16 x 16 pixels."""
TOKEN_SIDE = 4


def encode(images: UInt8[np.ndarray, "images height width 3"]) -> Float[np.ndarray, "images patches 48"]:
    """Patch averages. Patches are row-major; within a token, so are the 4 x 4 places, each with its RGB."""
    small = images.shape[1:3] == (SMALL_SIDE, SMALL_SIDE)
    side, patches = (SMALL_SIDE, SMALL_PATCHES) if small else (LARGE_SIDE, LARGE_PATCHES)
    values = normalised(resized(images, side))
    places, pixels = patches * TOKEN_SIDE, side // (patches * TOKEN_SIDE)
    means = values.reshape(-1, places, pixels, places, pixels, 3).mean(axis=(2, 4))
    tokens = means.reshape(-1, patches, TOKEN_SIDE, patches, TOKEN_SIDE, 3).transpose(0, 1, 3, 2, 4, 5)
    return tokens.reshape(len(images), patches**2, TOKEN_SIDE**2 * 3)


def window(height: int, width: int) -> Window:
    """The whole image."""
    return whole_image(height, width, SMALL_PATCHES if (height, width) == (SMALL_SIDE, SMALL_SIDE) else LARGE_PATCHES)


def open_encoder(request: EncoderRequest) -> Encoder:
    """The pixels encoder. It has no layers, so a request for one is a UserError."""
    if request.layer is not None:
        raise UserError("encoder pixels has no layers; leave --layer out")
    return Encoder({"name": "pixels", "version": "1"}, encode, window, batch_size=256)
