"""The drawn overview of protocol, carrier and assignment: `python -m docs.overview FOLDER`.

Its images are pairs of the built-in substrate and its matrices come from the assignments themselves; the masks and
energies of the middle panel are sketches of what each part computes.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import tyro
from jaxtyping import Num, UInt8
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from soopf_jax.errors import UserError
from soopf_jax.fitting.assignments import COMPRESSED, FACTORIAL, LEARNED
from soopf_jax.grid import Grid
from soopf_jax.report import figures
from soopf_jax.report.drawing import share_map
from soopf_jax.report.examples import draw_image
from soopf_jax.runtime import atomic, cli
from soopf_jax.runtime.palette import ARM_COLOURS, difference, region_colours
from soopf_jax.substrates import shapes3d_lite
from soopf_jax.types import ImagePairs, SubstrateRequest

Length = int | float
"""On a canvas."""
HELD_OUT = 4
"""The cell in the middle of the grid: wall, invert."""
HELD_OUT_COLOUR = ARM_COLOURS[1]
ARMS = (
    ("factorial", FACTORIAL, "told the axes:\nlabel to its own (s, o)"),
    ("learned", LEARNED, "told flat labels only:\nstarts even, estimates Q"),
    ("compressed", COMPRESSED, "told the label order:\ni-th label to slot i"),
)


class Scene(NamedTuple):
    """The grid and the first pair of each of its cells."""

    grid: Grid
    pairs: ImagePairs


@dataclass(frozen=True)
class Overview:
    """Draw the overview of protocol, carrier and assignment as overview.svg and overview.png."""

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """Where to."""


def main(args: Sequence[str] | None = None) -> int:
    """Parse, draw, exit code."""
    return cli.run(lambda: write(cli.parse(Overview, "docs.overview", args).folder))


def write(folder: Path) -> None:
    """Both files."""
    if not folder.is_dir():
        raise UserError(f"no folder {folder}; make it, or give another")
    scene = open_scene()
    for kind, data in figures.render(figures.Plot("Overview", "", lambda: overview(scene))).items():
        atomic.write_bytes(folder / f"overview.{kind}", data)
        print(folder / f"overview.{kind}")


def open_scene() -> Scene:
    """From the built-in substrate."""
    substrate = shapes3d_lite.open_substrate(SubstrateRequest("shapes3d-lite"))
    first = [int(np.flatnonzero(substrate.cell == cell)[0]) for cell in range(substrate.grid.n_cells)]
    return Scene(substrate.grid, substrate.render(first))


def overview(scene: Scene) -> Figure:
    """Protocol (a), carrier (b), assignment (c)."""
    figure = Figure(figsize=(12.0, 4.1), layout="constrained")
    left, middle, right = figure.subfigures(1, 3, squeeze=False, width_ratios=(3.3, 5.6, 3.1))[0]
    draw_protocol(left.subplots(scene.grid.n_supports, scene.grid.n_operations), scene)
    left.suptitle("a  Leave one cell out", x=0.02, ha="left", fontweight="bold")
    left.supxlabel("red: held out, test only; blue: its support\nand its operation, trained on", fontsize=8)
    draw_carrier(middle.subplots(), scene)
    middle.suptitle("b  SO-OPF: how much, times what", x=0.02, ha="left", fontweight="bold")
    draw_assignments(right.subplots(len(ARMS), 1), scene.grid)
    right.suptitle("c  Assignment Q: labels to slots", x=0.02, ha="left", fontweight="bold")
    return figure


# ------------------------------------------------------------------------------------------------- panel a


def draw_protocol(every: np.ndarray, scene: Scene) -> None:
    """The edited image of every cell; one cell is held out, its support and its operation are seen elsewhere."""
    for cell, axes in enumerate(every.flat):
        support, operation = scene.grid.axes(cell)
        draw_image(axes, scene.pairs.edited[cell])
        if support == 0:
            axes.set_title(scene.grid.operations[operation])
        if operation == 0:
            axes.set_ylabel(scene.grid.supports[support], fontsize=10)
        held_out = scene.grid.axes(HELD_OUT)
        if cell == HELD_OUT:
            axes.spines[:].set(visible=True, color=HELD_OUT_COLOUR, linewidth=4)
        elif support == held_out[0] or operation == held_out[1]:
            axes.spines[:].set(visible=True, color=ARM_COLOURS[0], linewidth=2)


# ------------------------------------------------------------------------------------------------- panel b


def draw_carrier(axes: Axes, scene: Scene) -> None:
    """From a pair to its energy grid, on a canvas of 100 x 66."""
    axes.set(xlim=(0, 100), ylim=(0, 66))
    axes.set_axis_off()
    source, edited, region = (images[HELD_OUT] for images in scene.pairs)
    colours = region_colours(scene.grid.n_supports)
    picture(axes, source, (0, 41), "source")
    picture(axes, edited, (0, 9), "edited")
    box(axes, (19, 24, 10, 18), "frozen\nencoder", "0.92")
    picture(axes, patch_means(colours[region]), (34, 41), "Mₛ,ₙ: router masks")
    picture(axes, patch_means(difference(source, edited)), (34, 9), "Δzₙ: change of tokens")
    box(axes, (55.5, 41, 25, 17), "Aₛ = Σₙ Mₛ,ₙ ‖Δzₙ‖²\n\nhow much change\nfalls on support s", "#d6e9f5")
    box(axes, (55.5, 9, 25, 17), "πₛ,ₒ = softmaxₒ f(hₛ)/τ\n\nwhich operation,\nwhatever its size", "#fbe3d3")
    for start, end in (
        ((16.5, 49), (18.5, 39)),
        ((16.5, 17), (18.5, 27)),
        ((29.5, 39), (33.5, 48)),
        ((29.5, 27), (33.5, 18)),
        ((50.5, 50), (55, 50)),
        ((50.5, 18), (55, 18)),
        ((50.5, 24), (55.5, 40.5)),
        ((50.5, 43), (55.5, 26.5)),
        ((81, 48), (85.5, 40)),
        ((81, 18), (85.5, 28)),
    ):
        axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": "0.35", "shrinkA": 0, "shrinkB": 0})
    draw_energy(axes, (86, 27), 14, "Eₛ,ₒ = Aₛ πₛ,ₒ")


def patch_means(image: Num[np.ndarray, "height width 3"], side: int = 8) -> UInt8[np.ndarray, "rows columns 3"]:
    """The image as `side` x `side` patches, each the mean of its pixels."""
    height, width, _ = image.shape
    blocks = image.reshape(side, height // side, side, width // side, 3)
    return blocks.mean(axis=(1, 3)).round().astype(np.uint8)


def picture(
    axes: Axes, image: UInt8[np.ndarray, "height width 3"], corner: tuple[Length, Length], caption: str
) -> None:
    """An image with its lower left corner on the canvas, 16 wide and 17 high, and its caption beneath."""
    x, y = corner
    axes.imshow(image, extent=(x, x + 16, y, y + 17), interpolation="nearest", aspect="auto")
    axes.text(x + 8, y - 1.5, caption, ha="center", va="top", fontsize=8)


def box(axes: Axes, place: tuple[Length, Length, Length, Length], text: str, colour: str) -> None:
    """A step, at (x, y, width, height)."""
    x, y, width, height = place
    axes.add_patch(FancyBboxPatch((x, y), width, height, "round,pad=0,rounding_size=1.5", fc=colour, ec="0.35"))
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=8)


def draw_energy(axes: Axes, corner: tuple[Length, Length], side: Length, caption: str) -> None:
    """A sketch of the energy grid of the held-out pair: most on its support, and there on its operation."""
    (x, y), field = corner, side / 3
    energy = np.outer((0.1, 0.8, 0.1), (0.2, 0.6, 0.2))
    for (row, column), value in np.ndenumerate(energy):
        place = x + column * field, y + (2 - row) * field
        axes.add_patch(Rectangle(place, field, field, fc=matplotlib.colormaps["Purples"](value / 0.6), ec="0.6"))
    middle = Rectangle((x + field, y + field), field, field, fill=False, ec=HELD_OUT_COLOUR, linewidth=2.5, zorder=3)
    axes.add_patch(middle)
    axes.text(x + side / 2, y - 1.5, caption, ha="center", va="top", fontsize=8)


# ------------------------------------------------------------------------------------------------- panel c


def draw_assignments(every: np.ndarray, grid: Grid) -> None:
    """Q of each arm at the start of training; the held-out row is never read."""
    for axes, (name, assignment, told) in zip(every, ARMS, strict=True):
        params = assignment.init(jax.random.key(0), grid)
        q = np.array(assignment.matrix(params, jnp.int32(HELD_OUT), grid), float)
        q[HELD_OUT] = np.nan
        share_map(axes, q)
        axes.set(aspect="equal", xticks=[], yticks=[])
        axes.add_patch(Rectangle((0, HELD_OUT), grid.n_cells, 1, fc="0.9", ec=HELD_OUT_COLOUR, hatch="///", lw=0))
        axes.text(1.1, 0.58, name, transform=axes.transAxes, va="bottom", fontweight="bold")
        axes.text(1.1, 0.54, told, transform=axes.transAxes, va="top", fontsize=8)
        axes.set_ylabel("labels", fontsize=8)
    every[-1].set_xlabel("slots of the grid", fontsize=8)


if __name__ == "__main__":
    sys.exit(main())
