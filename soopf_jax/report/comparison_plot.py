"""A comparison of runs as a figure: the seeds of both arms, joined, and the intervals of their difference."""

from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from soopf_jax.report.drawing import colour, label, marker, values
from soopf_jax.report.figures import Plot
from soopf_jax.scoring.metrics import NAMES
from soopf_jax.types import Json


def plot_of(document: Json) -> Plot:
    """The figure of a comparison, not drawn yet."""
    return Plot(
        "Paired seeds and their difference",
        f"Left: {NAMES[document['score']]} of every seed; a line joins the two arms of one seed, open marks are the "
        "reference. Right: arm minus reference, below zero where the reference is better. Dots are seeds, the large "
        "mark is their mean. Thick line: 95 % t interval over seeds. Thin line: 95 % bootstrap interval over seeds and "
        "cells. Intervals that are not defined are left out.",
        partial(draw, document),
    )


def draw(document: Json) -> Figure:
    """Paired seeds (left) and differences (right), for every comparison of the document."""
    comparisons = document["comparisons"]
    figure = Figure(figsize=(10.0, max(3.0, 1.2 + 0.7 * len(comparisons))), layout="constrained")
    left, right = figure.subplots(1, 2)
    per_seed = {_address(arm): values(arm[document["score"]]["per_seed"]) for arm in document["arms"]}
    for index, comparison in enumerate(comparisons):
        pair = np.stack([per_seed[_address(comparison[side])] for side in ("reference", "other")])
        draw_pairs(left, index, pair)
        draw_difference(right, index, pair[1] - pair[0], comparison)
    names = [[_shown(comparison[side]) for side in ("reference", "other")] for comparison in comparisons]
    left.set_xticks(
        [index + end for index in range(len(names)) for end in (-0.2, 0.2)], [name for pair in names for name in pair]
    )
    left.tick_params(axis="x", rotation=30 if len(names) > 2 else 0)
    left.set_xlim(-0.5, len(names) - 0.5)
    left.set_ylabel(NAMES[document["score"]])
    right.axvline(0, color="0.4", linestyle="--", linewidth=1)
    right.set_yticks(range(len(names)), [f"{other}\n- {reference}" for reference, other in names])
    right.set_ylim(len(names) - 0.5, -0.5)
    right.set_xlabel(f"difference of {NAMES[document['score']]}")
    return figure


def draw_pairs(axes: Axes, index: int, pair: np.ndarray) -> None:
    """The scores of the reference and of the other arm, a line for each seed."""
    ends = index + np.array([-0.2, 0.2])
    axes.plot(ends, pair, color=colour(index), linewidth=0.8, alpha=0.6)
    look: dict[str, Any] = {"color": colour(index), "linestyle": "none", "markersize": 5}
    for end, seeds, fill in zip(ends, pair, ("white", colour(index)), strict=True):
        axes.plot(np.full(len(seeds), end), seeds, marker(index), markerfacecolor=fill, **look)


def draw_difference(axes: Axes, index: int, seeds: np.ndarray, comparison: Json) -> None:
    """The differences of the seeds, and their mean with its intervals below them."""
    below = index + 0.2
    axes.plot(seeds, np.full(len(seeds), float(index)), marker(index), color=colour(index), alpha=0.45, markersize=4)
    for kind, place, width in (("bootstrap", below + 0.12, 1.0), ("paired_t", below, 3.0)):
        if comparison[kind]["ci95"] is not None:
            axes.plot(comparison[kind]["ci95"], [place, place], color=colour(index), linewidth=width)
    if comparison["mean_difference"] is not None:
        axes.plot([comparison["mean_difference"]], [below], marker(index), color=colour(index), markersize=8)


def _address(arm: Json) -> tuple[int, str]:
    return arm["run"], arm["assignment"]


def _shown(arm: Json) -> str:
    return label(f"{arm['run']}:{arm['assignment']}", 16)
