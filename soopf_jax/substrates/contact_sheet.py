"""A few pairs of every cell in, one picture out: a row per cell, and for each pair source, edited, difference, region.

Everything drawn is an image, and images are put beside or below each other.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw, ImageFont

from soopf_jax.types import ImagePairs

PANELS = ("source", "edited", "difference", "region")
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
"""Okabe and Ito's, which the colour-blind can tell apart; from the eighth support on they return darker."""
NONE_COLOUR = "#DDDDDD"
NOTE = "(differences in square-root scale)"

FONT_SIZE, LINE = 14, 20
GAP, WIDE_GAP = 4, 16
"""Pixels between the panels of a pair, and between pairs."""


def draw_sheet(title: str, supports: Sequence[str], rows: Mapping[str, Sequence[ImagePairs]], tile: int) -> Image.Image:
    """The sheet. `rows` names its rows and holds their pairs, each alone; panels are about `tile` pixels wide, high."""
    pairs = {name: [beside(draw_panels(pair, len(supports), tile), GAP) for pair in row] for name, row in rows.items()}
    n_columns, pair_width = max(map(len, pairs.values())), max(row[0].width for row in pairs.values())
    header = beside([draw_text(name, (pair_width + GAP) // len(PANELS) - GAP) for name in PANELS], GAP)
    labels = max(draw_text(name).width for name in pairs)
    lines = [
        draw_text(title),
        draw_legend(supports),
        beside([draw_text("", labels), *[header] * n_columns], WIDE_GAP),
        *(beside([draw_text(name, labels), *row], WIDE_GAP) for name, row in pairs.items()),
    ]
    margin = Image.new("RGB", (0, 0))
    return beside([margin, below([margin, *lines, margin], GAP), margin], GAP)


def draw_legend(supports: Sequence[str]) -> Image.Image:
    """A coloured square for each support and for none, with its name."""
    entries = zip((*supports, "none"), region_colours(len(supports)).tolist(), strict=True)
    squares = [(Image.new("RGB", (FONT_SIZE, FONT_SIZE), tuple(colour)), name) for name, colour in entries]
    return beside([*(beside([square, draw_text(name)], GAP) for square, name in squares), draw_text(NOTE)], WIDE_GAP)


def draw_panels(pair: ImagePairs, n_supports: int, tile: int) -> list[Image.Image]:
    """The PANELS of one pair: each pixel repeated a whole number of times, or blocks of pixels made one."""
    source, edited, region = (images[0] for images in pair)
    # The root shows what should not be there: a change of one grey level outside the region becomes 16.
    difference = np.sqrt(255 * np.abs(edited.astype(float) - source)).round().astype(np.uint8)
    size = max(region.shape)
    times, block = max(tile // size, 1), max(round(size / tile), 1)
    panels = [Image.fromarray(pixels).reduce(block) for pixels in (source, edited, difference)]
    # Supports have no mean: a block takes that of its first pixel.
    panels.append(Image.fromarray(region_colours(n_supports)[region[::block, ::block]]))
    return [panel.resize((times * panel.width, times * panel.height), Image.Resampling.NEAREST) for panel in panels]


def region_colours(n_supports: int) -> UInt8[np.ndarray, "supports_and_none 3"]:
    """The colour of each support and, last, where -1 finds it, of no support."""
    cycles = [np.array(_rgb(COLOURS[s % len(COLOURS)])) * 0.6 ** (s // len(COLOURS)) for s in range(n_supports)]
    return np.array([*cycles, _rgb(NONE_COLOUR)]).astype(np.uint8)


def _rgb(colour: str) -> list[int]:
    return [int(colour[place : place + 2], 16) for place in (1, 3, 5)]


# --------------------------------------------------------------------------------------- pieces of a page


def draw_text(text: str, width: int | None = None) -> Image.Image:
    """A line of text, as wide as it is or cut or filled to a width."""
    font = ImageFont.load_default(FONT_SIZE)
    size = math.ceil(font.getlength(text)) if width is None else width, LINE
    line = Image.new("RGB", size, "white")
    ImageDraw.Draw(line).text((0, LINE // 2), text, "black", font, anchor="lm")
    return line


def beside(images: Sequence[Image.Image], gap: int) -> Image.Image:
    """Images from left to right, each half way up."""
    width = sum(image.width + gap for image in images) - gap
    page = Image.new("RGB", (width, max(image.height for image in images)), "white")
    x = 0
    for image in images:
        page.paste(image, (x, (page.height - image.height) // 2))
        x += image.width + gap
    return page


def below(images: Sequence[Image.Image], gap: int) -> Image.Image:
    """Images from top to bottom, all from the left edge."""
    height = sum(image.height + gap for image in images) - gap
    page = Image.new("RGB", (max(image.width for image in images), height), "white")
    y = 0
    for image in images:
        page.paste(image, (0, y))
        y += image.height + gap
    return page
