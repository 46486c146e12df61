"""Figures of one run, as SVG and PNG; colours that the colour-blind can tell apart, markers that survive grey print."""

import io
from collections.abc import Callable, Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from soopf_jax.types import Json

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")


def assignment_comparison(document: Json) -> Figure:
    """INJ of every seed with mean and SD (left), and collapse against its threshold (right)."""
    arms = document["arms"]
    figure = Figure(figsize=(8.0, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    for index, arm in enumerate(arms):
        seeds = np.array([np.nan if v is None else v for v in arm["inj"]["per_seed"]])
        colour, marker = COLOURS[index % 6], MARKERS[index % 6]
        jitter = np.linspace(-0.18, 0.18, len(seeds)) if len(seeds) > 1 else np.zeros(1)
        left.plot(index + jitter, seeds, marker, color=colour, alpha=0.45, markersize=4, linestyle="none")
        left.errorbar(index + 0.3, seeds.mean(), seeds.std(), fmt=marker, color=colour, capsize=3)
        rates = [np.nan if v is None else v for v in arm["collapse"].values()]
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
        axes.imshow(values, vmin=0, vmax=1, cmap="cividis", aspect="auto")
        for (row, column), value in np.ndenumerate(values):
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", color="w" if value < 0.6 else "k")
        axes.set_title(arm["assignment"], fontsize=10)
        axes.set_xticks(range(len(operations)), operations)
        axes.set_yticks(range(len(supports)), supports if index == 0 else [""] * len(supports))
    return figure


FIGURES: Mapping[str, Callable[[Json], Figure]] = {
    "assignment_comparison": assignment_comparison,
    "cell_heatmaps": cell_heatmaps,
}


def render(figure: Figure, kind: str) -> bytes:
    """The figure as `svg` or `png` bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=160)
    return buffer.getvalue()


def _unit_axis(axes: Axes, label: str) -> None:
    axes.set_ylim(-0.03, 1.03)
    axes.set_ylabel(label, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
