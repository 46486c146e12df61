"""Examples of held-out pairs and of what a fit that never saw their cell makes of them, as pictures."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt8
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from soopf_jax.grid import Grid
from soopf_jax.report.drawing import label
from soopf_jax.runtime.palette import region_colours
from soopf_jax.scoring.router_diagnostic import iou
from soopf_jax.types import Window

TINT = 0.65
"""How much of a pixel is the colour of its support, in an overlay."""


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


# --------------------------------------------------------------------------------------------------- images


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
    # Pixels outside every patch have the index -1. It selects the last row, which has no tint.
    tint, strength = np.r_[shares @ colours, np.zeros((1, 3))], np.r_[shares.sum(axis=1), 0.0]
    patch = patch_of_pixels(window, *image.shape[:2])
    grey = image.mean(axis=2, keepdims=True)
    mixed = grey * (1 - TINT * strength[patch][..., None]) + TINT * tint[patch]
    return mixed.clip(0, 255).round().astype(np.uint8)


def covered(region: Float[np.ndarray, "patches supports"] | None, n_patches: int) -> Float[np.ndarray, " patches"]:
    """The share of each patch that belongs to any support; 1 where the regions are not known.

    A router must give every patch to some slot. The pictures of its masks leave out what belongs to no support.
    """
    return np.ones(n_patches) if region is None else region.sum(axis=1)


def mask_picture(
    mask: Float[np.ndarray, " patches"],
    counted: Float[np.ndarray, " patches"],
    support: int,
    n_supports: int,
) -> Float[np.ndarray, "patches 3"]:
    """One slot's mask as colours from 0 to 1.

    A patch that the slot takes as a whole has the colour of its support, and one that it leaves alone is white. The
    share of a patch that belongs to no support is grey, whatever the mask is there.
    """
    colours = region_colours(n_supports) / 255
    inside = 1 + mask[:, None] * (colours[support] - 1)
    return counted[:, None] * inside + (1 - counted[:, None]) * colours[-1]


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
        counted = covered(None if examples.region is None else examples.region[row], masks.shape[2])
        if examples.region is not None:
            draw_image(axes[1], overlay(examples.edited[row], examples.region[row], examples.window))
        for support, slot in enumerate(axes[1 + known :]):
            drawn = mask_picture(masks[row, support], counted, support, grid.n_supports)
            draw_mask(slot, drawn, examples.window, edited=bool(support == supports[row]))
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


def draw_mask(axes: Axes, picture: Float[np.ndarray, "patches 3"], window: Window, edited: bool) -> None:
    """One slot's mask, with a thick frame where its support was edited."""
    axes.imshow(picture.reshape(window.rows, window.columns, 3), interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(visible=True, color="black" if edited else "0.7", linewidth=3 if edited else 0.8)
