"""Examples of held-out pairs and of what a fit that never saw their cell makes of them, as pictures."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt8
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from soopf_jax.grid import Grid
from soopf_jax.report.drawing import GREEN, label
from soopf_jax.substrates.contact_sheet import region_colours
from soopf_jax.types import Window

TINT = 0.65
"""How much of a pixel is the colour of its support, in an overlay."""
COUNTED = 0.5
"""A patch counts in IoU where one support has more of it than this."""


class Examples(NamedTuple):
    """One pair of each held-out cell, read by the selected fit of seed 0 that never saw this cell."""

    pair: Int[np.ndarray, " examples"]
    """The pair's number in the substrate."""
    cell: Int[np.ndarray, " examples"]
    """Its true cell, which was held out."""
    source: UInt8[np.ndarray, "examples height width 3"]
    edited: UInt8[np.ndarray, "examples height width 3"]
    window: Window
    """The part of the image that tokens cover."""
    region: Float[np.ndarray, "examples patches supports"] | None
    """The share of each patch that belongs to each support; None where it is not known."""
    masks: dict[str, Float[np.ndarray, "examples supports patches"]]
    """The router's masks by assignment, slots in the order of the true supports; empty where there is no router."""
    energy: dict[str, Float[np.ndarray, "examples cells"]]
    """The energy by assignment, normalised, slots in the order of the true cells."""


def iou(
    masks: Float[np.ndarray, "supports patches"], region: Float[np.ndarray, "patches supports"]
) -> Float[np.ndarray, " supports"]:
    """Intersection over union of each support's hard mask and its region; NaN where the support is absent.

    Hard mask: the slot with the most of a patch. Region: the support with more than half of it; other patches do not
    count.
    """
    counted = region.max(axis=1) > COUNTED
    supports = np.arange(region.shape[1])[:, None]
    found, true = (values[counted].argmax(axis=1) == supports for values in (masks.T, region))
    union = (found | true).sum(axis=1)
    present = true.any(axis=1)
    return np.where(present, (found & true).sum(axis=1) / np.maximum(union, 1), np.nan)


# --------------------------------------------------------------------------------------------------- images


def difference(
    source: UInt8[np.ndarray, "height width 3"], edited: UInt8[np.ndarray, "height width 3"]
) -> UInt8[np.ndarray, "height width 3"]:
    """Where two images differ, in square-root scale, which shows faint changes: one grey level becomes 16."""
    return np.sqrt(255 * np.abs(edited.astype(float) - source)).round().astype(np.uint8)


def patch_of_pixels(window: Window, height: int, width: int) -> Int[np.ndarray, "height width"]:
    """The patch that the middle of each pixel lies in, -1 outside the window."""
    row = np.floor((np.arange(height) + 0.5 - window.top) * window.rows / window.height).astype(int)
    column = np.floor((np.arange(width) + 0.5 - window.left) * window.columns / window.width).astype(int)
    inside = ((row >= 0) & (row < window.rows))[:, None] & ((column >= 0) & (column < window.columns))
    return np.where(inside, row[:, None] * window.columns + column, -1)


def overlay(
    image: UInt8[np.ndarray, "height width 3"], shares: Float[np.ndarray, "patches supports"], window: Window
) -> UInt8[np.ndarray, "height width 3"]:
    """The image in grey, its patches tinted in the colours of the supports that share them."""
    colours = region_colours(shares.shape[1])[:-1].astype(float)
    # The last row, where -1 finds it, is that of a patch which belongs to no support.
    tint, strength = np.r_[shares @ colours, np.zeros((1, 3))], np.r_[shares.sum(axis=1), 0.0]
    patch = patch_of_pixels(window, *image.shape[:2])
    grey = image.mean(axis=2, keepdims=True)
    mixed = grey * (1 - TINT * strength[patch][..., None]) + TINT * tint[patch]
    return mixed.clip(0, 255).round().astype(np.uint8)


# --------------------------------------------------------------------------------------------- router figure


def router_masks(examples: Examples, grid: Grid) -> Figure:
    """A row for an edit of each support: edited image, true regions, one soft mask per slot of the first assignment."""
    assignment, masks = next(iter(examples.masks.items()))
    supports, _ = grid.axes(examples.cell)
    rows = [int(np.flatnonzero(supports == s)[0]) for s in range(grid.n_supports) if s in supports]
    known = examples.region is not None
    columns = 1 + known + grid.n_supports
    figure = Figure(figsize=(1.5 * columns, 0.5 + 1.6 * len(rows)), layout="constrained")
    every = figure.subplots(len(rows), columns, squeeze=False)
    for axes, row in zip(every, rows, strict=True):
        draw_image(axes[0], examples.edited[row])
        axes[0].set_ylabel(label(grid.cell_names[examples.cell[row]], 16))
        if examples.region is not None:
            draw_image(axes[1], overlay(examples.edited[row], examples.region[row], examples.window))
        for support, slot in enumerate(axes[1 + known :]):
            draw_mask(slot, masks[row, support], examples.window, edited=bool(support == supports[row]))
            if examples.region is not None:
                score = iou(masks[row], examples.region[row])[support]
                slot.set_xlabel("absent" if np.isnan(score) else f"IoU {score:.2f}", labelpad=2)
    titles = ["edited", *["true regions"][:known], *(f"{label(name)} slot" for name in grid.supports)]
    for axes, title in zip(every[0], titles, strict=True):
        axes.set_title(title)
    figure.suptitle(f"{label(assignment, 40)} assignment", fontsize=10)
    return figure


def draw_image(axes: Axes, image: UInt8[np.ndarray, "height width 3"]) -> None:
    """An image without ticks."""
    axes.imshow(image, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def draw_mask(axes: Axes, mask: Float[np.ndarray, " patches"], window: Window, edited: bool) -> None:
    """One slot's mask, white where it takes the whole patch; framed in green where its support was edited."""
    axes.imshow(mask.reshape(window.rows, window.columns), vmin=0, vmax=1, cmap="gray", interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(visible=True, color=GREEN if edited else "0.7", linewidth=3 if edited else 0.8)
