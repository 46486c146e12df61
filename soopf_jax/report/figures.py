"""The figures of a run as files: which there are, what to say about each, and their bytes.

Equal results give equal bytes: no dates, no random names, and nothing of the user's own matplotlib settings.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from soopf_jax.experiments.results import Result
from soopf_jax.grid import Grid
from soopf_jax.report import html_page, plots
from soopf_jax.report.examples import Examples, router_masks
from soopf_jax.scoring import metrics

STYLE: Any = {
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "svg.hashsalt": "soopf_jax",  # the names of elements then depend only on what is drawn
    "text.parse_math": False,  # a name may hold a dollar sign
}
METADATA: dict[str, dict[str, str | None]] = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}
"""The two formats. None leaves out metadata that depend on the day or the machine."""


class Plot(NamedTuple):
    """A figure that is not drawn yet."""

    title: str
    caption: str
    draw: Callable[[], Figure]


_HELD_OUT: dict[str, tuple[str, str, Callable[[Result], Figure]]] = {
    "assignment_audit": (
        "Assignment audit",
        "a: INJ; dots are seeds, each a mean over held-out cells, beside them mean and SD. b: share of (seed, held-out "
        "cell) fits with INJ below 0.5; beneath, how much of the grid a learned Q has recovered. c: every seed "
        "scored many-to-one and injectively; where its line falls, values shared a slot. Short rules are means.",
        plots.assignment_audit,
    ),
    "cell_heatmaps": (
        "Held-out cells",
        "Accuracy of each held-out cell, a mean over seeds, under injective and under many-to-one alignment.",
        plots.cell_heatmaps,
    ),
    "cell_confusion": (
        "Confusion of cells",
        "What pairs of each held-out cell are read as, in per cent of its pairs over all seeds, slots aligned "
        "injectively. Black frames: the right cell. Grey frames: the right support. Blank: less than half a per cent.",
        plots.cell_confusion,
    ),
    "collapse_thresholds": (
        "Collapse against its threshold",
        "Share of (seed, held-out cell) fits whose INJ is strictly below a threshold. Dotted lines mark the thresholds "
        "of the tables.",
        plots.collapse_thresholds,
    ),
}
_TWO_EDITS: dict[str, tuple[str, str, Callable[[Result], Figure]]] = {
    "two_edit_scores": (
        "Two edits at once",
        "Left: scores of every seed with mean and SD; dashes are chance. Right: joint accuracy of each pair of cells.",
        plots.two_edit_scores,
    ),
}
FIGURES = {metrics.HELD_OUT: _HELD_OUT, metrics.TWO_EDITS: _TWO_EDITS}
"""By experiment: title, caption and drawing by file name, in the order of the report."""


def plots_of(result: Result, examples: Examples | None = None) -> dict[str, Plot]:
    """The figures that there is data for, by file name."""
    kinds = FIGURES[metrics.experiment_of(result.document["config"])]
    found = {name: Plot(title, caption, partial(draw, result)) for name, (title, caption, draw) in kinds.items()}
    if examples is not None and examples.masks:
        found["router_masks"] = Plot(
            "Router masks",
            "One edit of each support. Beside the edited image and, where known, the true regions: how much of each "
            "patch the router gives to each slot, in the colour of the support that the slot is matched to. Grey: what "
            "belongs to no support. Black frames: the edited support.",
            partial(router_masks, examples, Grid.of(**result.document["provenance"]["grid"])),
        )
    if "loss" in result.fits:
        found["training_curves"] = Plot(
            "Training curves",
            "Mean loss in each part of the training of the selected fits: their median and their middle 90 %.",
            partial(plots.training_curves, result),
        )
    return found


@contextmanager
def styled() -> Iterator[None]:
    """Use STYLE, and nothing of the user's own settings, during a block."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


class Spot(NamedTuple):
    """A point of a figure that leads somewhere, in the units of its axes."""

    axes: Axes
    x: float
    y: float
    address: str
    text: str
    """What the point stands for."""


def svg_with_links(figure: Figure, spots: Sequence[Spot]) -> tuple[bytes, list[html_page.Link]]:
    """A figure as SVG, and where its spots are on it. Call it under `styled`, as for drawing the figure."""
    drawn = to_bytes(figure, "svg")  # places are final only after the layout of saving
    links = []
    for axes, x, y, address, text in spots:
        across, up = figure.transFigure.inverted().transform(axes.transData.transform((x, y)))
        links.append(html_page.Link(float(across), float(1 - up), address, text))
    return drawn, links


def render(plot: Plot) -> dict[str, bytes]:
    """The figure as `svg` and as `png`."""
    with styled():
        figure = plot.draw()
        svg = to_bytes(figure, "svg")
        figure.set_layout_engine("none")  # everything has its place
        return {"svg": svg, "png": to_bytes(figure, "png")}


def to_bytes(figure: Figure, kind: str) -> bytes:
    """The figure as `svg` or `png` bytes, under matplotlib's current settings."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=160, metadata=METADATA[kind])
    return buffer.getvalue()
