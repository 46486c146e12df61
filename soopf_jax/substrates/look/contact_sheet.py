"""A few pairs of every cell in, one picture out: a row per cell, and for each pair source, edited, difference, region.

Every element is drawn as an image of its own. The sheet puts these images beside or below each other.
"""

import math
from collections.abc import Mapping, Sequence

from PIL import Image, ImageDraw, ImageFont

from soopf_jax.runtime.palette import difference, region_colours
from soopf_jax.types import ImagePairs

PANELS = ("source", "edited", "difference", "region")
NOTE = "(differences in square-root scale)"

FONT_SIZE, LINE = 14, 20
GAP, WIDE_GAP = 4, 16
"""Pixels between the panels of a pair, and between pairs."""


def draw_sheet(title: str, supports: Sequence[str], rows: Mapping[str, Sequence[ImagePairs]], tile: int) -> Image.Image:
    """Draw the sheet.

    Args:
        title: The first line of the sheet.
        supports: The names of the supports, for the legend.
        rows: The name of each row and its pairs. Each entry holds one pair.
        tile: The approximate width and height of each panel in pixels.
    """
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
    """A coloured square with a name for each support, and one for no support."""
    entries = zip((*supports, "none"), region_colours(len(supports)).tolist(), strict=True)
    squares = [(Image.new("RGB", (FONT_SIZE, FONT_SIZE), tuple(colour)), name) for name, colour in entries]
    return beside([*(beside([square, draw_text(name)], GAP) for square, name in squares), draw_text(NOTE)], WIDE_GAP)


def draw_panels(pair: ImagePairs, n_supports: int, tile: int) -> list[Image.Image]:
    """The PANELS of one pair. Each pixel is repeated a whole number of times, or blocks of pixels are averaged."""
    source, edited, region = (images[0] for images in pair)
    size = max(region.shape)
    times, block = max(tile // size, 1), max(round(size / tile), 1)
    panels = [Image.fromarray(pixels).reduce(block) for pixels in (source, edited, difference(source, edited))]
    # Supports cannot be averaged, so a block shows the support of its first pixel.
    panels.append(Image.fromarray(region_colours(n_supports)[region[::block, ::block]]))
    return [panel.resize((times * panel.width, times * panel.height), Image.Resampling.NEAREST) for panel in panels]


# --------------------------------------------------------------------------------------- pieces of a page


def draw_text(text: str, width: int | None = None) -> Image.Image:
    """A line of text; with `width`, cut or padded to that many pixels."""
    font = ImageFont.load_default(FONT_SIZE)
    size = math.ceil(font.getlength(text)) if width is None else width, LINE
    line = Image.new("RGB", size, "white")
    ImageDraw.Draw(line).text((0, LINE // 2), text, "black", font, anchor="lm")
    return line


def beside(images: Sequence[Image.Image], gap: int) -> Image.Image:
    """Images side by side from left to right, centred vertically."""
    width = sum(image.width + gap for image in images) - gap
    page = Image.new("RGB", (width, max(image.height for image in images)), "white")
    x = 0
    for image in images:
        page.paste(image, (x, (page.height - image.height) // 2))
        x += image.width + gap
    return page


def below(images: Sequence[Image.Image], gap: int) -> Image.Image:
    """Images from top to bottom, aligned at the left edge."""
    height = sum(image.height + gap for image in images) - gap
    page = Image.new("RGB", (max(image.width for image in images), height), "white")
    y = 0
    for image in images:
        page.paste(image, (0, y))
        y += image.height + gap
    return page
