"""Figures of one run, as SVG and PNG; colours that the colour-blind can tell apart, markers that survive grey print."""

import io
import textwrap
from collections.abc import Callable, Mapping

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from soopf_jax.grid import Grid
from soopf_jax.report import tables
from soopf_jax.types import Json

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")


def assignment_comparison(document: Json) -> Figure:
    """INJ of every seed with mean and SD (left), and collapse against its threshold (right)."""
    arms = document["arms"]
    figure = Figure(figsize=(8.0, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    for index, arm in enumerate(arms):
        colour, marker = _seed_dots(left, index, np.array(arm["inj"]["per_seed"], float))
        rates = np.array(list(arm["collapse"].values()), float)
        right.plot([float(t) for t in arm["collapse"]], rates, marker=marker, color=colour, label=arm["assignment"])
    left.axhline(document["provenance"]["chance"]["inj"], color="0.4", linestyle="--", linewidth=1)
    left.set_xticks(range(len(arms)), [arm["assignment"] for arm in arms])
    _unit_axis(left, "INJ (dots: seeds, bar: mean and SD)")
    _unit_axis(right, "collapse rate")
    right.set_xlabel("threshold")
    right.set_xticks([float(t) for t in arms[0]["collapse"]])
    right.legend(frameon=False, fontsize=8)
    return figure


def cell_heatmaps(document: Json) -> Figure:
    """INJ of every held-out cell on the support x operation grid, one map per arm."""
    arms, grid = document["arms"], document["provenance"]["grid"]
    supports, operations = grid["supports"], grid["operations"]
    figure = Figure(figsize=(1.2 + 2.4 * len(arms), 0.9 + 0.6 * len(supports)), layout="constrained")
    for index, (axes, arm) in enumerate(zip(np.atleast_1d(figure.subplots(1, len(arms))), arms, strict=True)):
        cells = arm["inj"]["per_cell"]
        values = np.array([[cells[f"{s}/{o}"] for o in operations] for s in supports], float)
        _heatmap(axes, values)
        axes.set_title(arm["assignment"], fontsize=10)
        axes.set_xticks(range(len(operations)), operations)
        axes.set_yticks(range(len(supports)), supports if index == 0 else [""] * len(supports))
    return figure


def two_edit_scores(document: Json) -> Figure:
    """Every score of every seed with mean, SD and chance (left); joint accuracy of each pair of cells (right)."""
    (arm,), levels = document["arms"], document["provenance"]["chance"]
    figure = Figure(figsize=(10.0, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(2, 3))
    for index, name in enumerate(tables.TWO_EDIT_SCORES):
        seeds = np.array(arm["two_edits"][name]["per_seed"], float)
        _seed_dots(left, index, seeds)
        left.hlines(levels[name], index - 0.3, index + 0.4, color="0.4", linestyle="--", linewidth=1)
    left.set_xticks(range(len(levels)), [textwrap.fill(shown, 8) for shown in tables.TWO_EDIT_SCORES.values()])
    _unit_axis(left, "accuracy (bar: mean and SD, dashes: chance)")

    grid = Grid.of(**document["provenance"]["grid"])
    joint = np.full((grid.n_cells, grid.n_cells), np.nan)
    joint[*np.transpose(grid.combinations(2))] = list(arm["two_edits"]["joint"]["per_combination"].values())
    # No first cell is on the last support, no second one on the first.
    first, second = grid.cell_names[: -grid.n_operations], grid.cell_names[grid.n_operations :]
    _heatmap(right, joint[: len(first), grid.n_operations :])
    right.set_xticks(range(len(second)), second, rotation=30, ha="right", fontsize=8)
    right.set_yticks(range(len(first)), first, fontsize=8)
    right.set_title("joint accuracy", fontsize=10)
    return figure


FIGURES: Mapping[str, Callable[[Json], Figure]] = {
    "assignment_comparison": assignment_comparison,
    "cell_heatmaps": cell_heatmaps,
}
TWO_EDIT_FIGURES: Mapping[str, Callable[[Json], Figure]] = {"two_edit_scores": two_edit_scores}


def figures_of(document: Json) -> Mapping[str, Callable[[Json], Figure]]:
    """The figures that fit a run."""
    return TWO_EDIT_FIGURES if tables.two_edits(document["config"]) else FIGURES


def render(figure: Figure, kind: str) -> bytes:
    """The figure as `svg` or `png` bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=160)
    return buffer.getvalue()


def _seed_dots(axes: Axes, index: int, seeds: Float[np.ndarray, " seeds"]) -> tuple[str, str]:
    """The score of every seed, NaN where undefined, with mean and SD beside them; returns colour and marker."""
    colour, marker = COLOURS[index % 6], MARKERS[index % 6]
    jitter = np.linspace(-0.18, 0.18, len(seeds)) if len(seeds) > 1 else np.zeros(1)
    axes.plot(index + jitter, seeds, marker, color=colour, alpha=0.45, markersize=4, linestyle="none")
    axes.errorbar(index + 0.3, seeds.mean(), seeds.std(), fmt=marker, color=colour, capsize=3)
    return colour, marker


def _heatmap(axes: Axes, values: Float[np.ndarray, "rows columns"]) -> None:
    """Shares on a grid, each with its number; NaN is left blank."""
    axes.imshow(values, vmin=0, vmax=1, cmap="cividis", aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", color="w" if value < 0.6 else "k")


def _unit_axis(axes: Axes, label: str) -> None:
    axes.set_ylim(-0.03, 1.03)
    axes.set_ylabel(label, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
