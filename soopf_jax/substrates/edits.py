"""The five operations: a uint8 image and the mask of its support in, the edited image out.

Pixels outside the mask never change. The same call gives the same bytes on every machine, because elementwise + - * /
and rounding in float64 agree to the last bit everywhere. The sin and exp of a library do not. Therefore the sine here
is a polynomial, and the Gaussian is computed in decimal arithmetic.
"""

import math
from collections.abc import Callable
from decimal import Context, Decimal
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Shaped, UInt8

from soopf_jax.errors import UserError, unknown_name

Image = UInt8[np.ndarray, "height width 3"]
Mask = Bool[np.ndarray, "height width"]
Edit = Callable[[Image, Mask], Image]
"""An operation whose parameters have been drawn."""

OPERATIONS = ("hue", "invert", "pattern", "brightness", "blur")
"""Every operation that the substrates share, the paper's three first."""


class StripeRanges(NamedTuple):
    """The ranges from which a substrate draws the parameters of its stripes."""

    frequency: tuple[float, float]
    """Cycles per pixel of the edited image, [low, high), unless a StripeScale says otherwise."""
    amplitude: tuple[int, int]
    """Grey levels, both ends included."""


class StripeScale(NamedTuple):
    """How the frequency of stripes is read. The paper gives numbers without a unit."""

    unit: str = "cycles"
    """What is counted per pixel: cycles or radians."""
    size: int | None = None
    """The width of the image whose pixels are meant; None: the image that is edited."""


STRIPE_UNITS = {"cycles": 1.0, "radians": 1 / (2 * math.pi)}
"""Cycles in one of each unit."""

FINEST_STRIPES = 0.5
"""The most cycles per pixel that an image can show."""
SHAPES3D_STRIPES = StripeRanges(frequency=(0.15, 0.45), amplitude=(40, 89))
COCO_STRIPES = SHAPES3D_STRIPES
MUJOCO_STRIPES = StripeRanges(frequency=(0.08, 0.22), amplitude=(45, 94))

# In turns, [low, high). Shapes3D has no range: it takes another of its own ten hues.
COCO_HUE = (0.15, 0.85)
MUJOCO_HUE = (0.25, 0.75)

BRIGHTNESS = (40, 89)
"""How many grey levels to add or subtract, both ends included."""
BLUR_SIGMA = (1.5, 3.0)
"""Pixels per 64 pixels of image width, [low, high)."""

# ------------------------------------------------------------------------------------------ operations


def rotate_hue(image: Image, mask: Mask, turns: float) -> Image:
    """Rotate the HSV hue by `turns`, and keep saturation and value."""
    return _paste(image, mask, np.rint(rotate_colour(image.astype(np.float64), turns)))


def invert(image: Image, mask: Mask) -> Image:
    """255 - x."""
    return _paste(image, mask, 255 - image)


def stripes(image: Image, mask: Mask, frequency: float, angle: float, phase: float, amplitude: int) -> Image:
    """x + amplitude * sin(2 pi f (column cos t + row sin t) + phase) on all channels, rounded and clipped.

    Frequency f in cycles per pixel; angle t and phase in turns.
    """
    sine, cosine = sin_turns(np.array([angle, angle + 0.25])).tolist()
    rows, columns = np.ogrid[: image.shape[0], : image.shape[1]]
    along = columns * cosine + rows * sine
    wave = np.rint(amplitude * sin_turns(frequency * along + phase))
    return _paste(image, mask, np.clip(image + wave[:, :, None], 0, 255))


def brightness(image: Image, mask: Mask, offset: int) -> Image:
    """x + offset, clipped."""
    return _paste(image, mask, np.clip(image.astype(np.int64) + offset, 0, 255))


def blur(image: Image, mask: Mask, sigma: float) -> Image:
    """The image blurred by a Gaussian of `sigma` pixels, inside the mask; the image is mirrored at its borders."""
    height, width, _ = image.shape
    channels_first = np.moveaxis(image, 2, 0).astype(np.float64)
    blurred = _blur_matrix(height, sigma) @ channels_first @ _blur_matrix(width, sigma).T
    return _paste(image, mask, np.rint(np.moveaxis(blurred, 0, 2)))


def scaled_stripes(ranges: StripeRanges, scale: StripeScale, width: int) -> StripeRanges:
    """The ranges in cycles per pixel of the edited image.

    Args:
        ranges: The ranges as the paper has them.
        scale: How their frequency is read.
        width: The width of the edited image.

    Raises:
        UserError: The unit is unknown, or the stripes would be finer than two pixels.
    """
    if scale.unit not in STRIPE_UNITS:
        raise unknown_name("unit of stripes", scale.unit, STRIPE_UNITS)
    if scale.size is not None and scale.size < 1:
        raise UserError(f"--stripe-size must be positive, not {scale.size}")
    factor = STRIPE_UNITS[scale.unit] * (1.0 if scale.size is None else scale.size / width)
    low, high = (factor * frequency for frequency in ranges.frequency)
    if high > FINEST_STRIPES:
        finest = f"{high:.2f} cycles per pixel of {width}-pixel images, which show at most {FINEST_STRIPES}"
        raise UserError(f"--stripe-size {scale.size} gives stripes of up to {finest}; choose a smaller one")
    return ranges._replace(frequency=(low, high))


def draw_edit(operation: str, rng: np.random.Generator, ranges: StripeRanges, width: int) -> Edit:
    """Draw the parameters of any operation except hue, which each substrate changes in its own way.

    Args:
        operation: One of OPERATIONS except hue.
        rng: The source of random numbers.
        ranges: The ranges for stripes.
        width: The width of the images to be edited, which scales the blur.

    Raises:
        UserError: The operation is unknown.
    """
    match operation:
        case "invert":
            return invert
        case "pattern":
            return partial(
                stripes,
                frequency=uniform(rng, *ranges.frequency),
                angle=uniform(rng, 0.0, 0.5),
                phase=uniform(rng, 0.0, 1.0),
                amplitude=integer(rng, *ranges.amplitude),
            )
        case "brightness":
            sign = (-1, 1)[integer(rng, 0, 1)]
            return partial(brightness, offset=sign * integer(rng, *BRIGHTNESS))
        case "blur":
            return partial(blur, sigma=uniform(rng, *BLUR_SIGMA) * width / 64)
        case _:
            raise unknown_name("pixel operation", operation, OPERATIONS[1:])


# -------------------------------------------------------------------------------------------- numbers


def uniform(rng: np.random.Generator, low: float, high: float) -> float:
    """A real number in [low, high)."""
    # rng.uniform may differ between machines, as compilers fuse its multiply and add, and it may round up to `high`.
    return min(low + (high - low) * rng.random(), math.nextafter(high, low))


def integer(rng: np.random.Generator, low: int, high: int) -> int:
    """An integer from low to high, both included."""
    # NumPy may change how rng.integers turns random bits into an integer.
    return low + int((high - low + 1) * rng.random())


def rotate_colour(rgb: Float[np.ndarray, "*any 3"], turns: float) -> Float[np.ndarray, "*any 3"]:
    """Rotate the HSV hue of RGB on any scale by `turns`. Saturation and value are kept, exactly if RGB are integers."""
    red, green, blue = rgb[..., 0], rgb[..., 1], rgb[..., 2]
    value = np.maximum(np.maximum(red, green), blue)
    chroma = value - np.minimum(np.minimum(red, green), blue)
    divisor = np.where(chroma > 0, chroma, 1.0)
    sextant = np.where(
        value == red,
        (green - blue) / divisor,
        np.where(value == green, 2 + (blue - red) / divisor, 4 + (red - green) / divisor),
    )
    # A channel is strongest within one sextant of its own hue and weakest beyond two.
    rotated = sextant + 6 * turns
    channels = []
    for own in (0, 2, 4):
        away = rotated - own - 6 * np.rint((rotated - own) / 6)
        channels.append(value - chroma * np.clip(np.abs(away) - 1, 0, 1))
    return np.stack(channels, axis=-1)


def sin_turns(x: Float[np.ndarray, "*any"]) -> Float[np.ndarray, "*any"]:
    """sin(2 pi x) to within 1e-15, from its power series on the half turn around 0."""
    x = x - np.rint(x)
    x = np.where(np.abs(x) > 0.25, np.copysign(0.5, x) - x, x)
    square = x * x
    total = np.full_like(x, _SINE[-1])
    for coefficient in _SINE[-2::-1]:
        total = total * square + coefficient
    return total * x


def _sine_series(terms: int) -> list[float]:
    """Coefficients of x, x^3, ... of sin(2 pi x)."""
    series = [2 * math.pi]
    for k in range(1, terms):
        series.append(-series[-1] * (2 * math.pi) * (2 * math.pi) / (2 * k * (2 * k + 1)))
    return series


_SINE = _sine_series(11)


def _blur_matrix(size: int, sigma: float) -> Float[np.ndarray, "size size"]:
    """Row i holds the weights of pixel i's neighbours, cut at 3 sigma and mirrored at the borders."""
    radius = math.ceil(3 * sigma)
    exp = Context(prec=30).exp
    bell = [float(exp(Decimal(-k * k / (2 * sigma * sigma)))) for k in range(radius + 1)]
    # Weights are multiples of 2^-22 and sum to 1. Two passes over 8-bit pixels then fit the 53 bits of a float64. So
    # the matrix products are exact in any order of summation, and a flat image does not change.
    total = math.fsum([*bell, *bell[1:]])
    tail = [round(weight / total * 2**22) / 2**22 for weight in bell[1:]]
    weights = [1 - 2 * sum(tail), *tail]

    matrix = np.zeros((size, size))
    row = np.arange(size)
    for offset in range(-radius, radius + 1):
        column = (row + offset) % (2 * size)
        matrix[row, np.minimum(column, 2 * size - 1 - column)] += weights[abs(offset)]
    return matrix


def _paste(image: Image, mask: Mask, edited: Shaped[np.ndarray, "height width 3"]) -> Image:
    """`edited` inside the mask and `image` outside it."""
    return np.where(mask[:, :, None], edited.astype(np.uint8), image)
