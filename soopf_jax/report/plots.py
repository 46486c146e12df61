"""What a figure of a run shows: from a result to matplotlib's own figure, in the paper's layout."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from soopf_jax.experiments.results import Result
from soopf_jax.grid import Grid
from soopf_jax.report.confusion import confusion
from soopf_jax.report.drawing import (
    DASHES,
    centres,
    colour,
    heatmap,
    label,
    marker,
    seed_dots,
    unit_axis,
    values,
)
from soopf_jax.runtime.text import number
from soopf_jax.scoring import metrics
from soopf_jax.types import Json

# -------------------------------------------------------------------------------------- the assignment audit


def assignment_audit(result: Result) -> Figure:
    """INJ of every seed (a), collapse with recovery beneath (b), many-to-one and injective scores of seeds (c)."""
    arms, chance = result.document["arms"], result.document["provenance"]["chance"]["inj"]
    figure = Figure(figsize=(max(9.0, 3.0 * len(arms)), 3.3), layout="constrained")
    a, b, c = figure.subplots(1, 3)
    for index, arm in enumerate(arms):
        seed_dots(a, index, values(arm["inj"]["per_seed"]))
    a.axhline(chance, color="0.4", linestyle="--", linewidth=1)
    a.annotate("chance", (1, chance), (0, 2), xycoords=a.get_yaxis_transform(), textcoords="offset points", ha="right")
    a.set_title("a  injective accuracy (INJ)", loc="left")
    collapse_bars(b, arms)
    b.set_title("b  collapse: fits with INJ below 0.5", loc="left")
    seed_pairs(c, arms)
    c.set_title("c  many-to-one against injective", loc="left")
    for axes in (a, b, c):
        unit_axis(axes)
        axes.set_xticks(range(len(arms)), [label(arm["assignment"]) for arm in arms])
        axes.set_xlim(-0.6, len(arms) - 0.4)
    return figure


def collapse_bars(axes: Axes, arms: Sequence[Json]) -> None:
    """The collapse rate of each arm at 0.5 and, beneath the arms' names, what Q has recovered of the grid."""
    lines = max(label(arm["assignment"]).count("\n") + 1 for arm in arms)
    beneath: dict[str, Any] = {
        "xycoords": axes.get_xaxis_transform(),
        "textcoords": "offset points",
        "color": "0.35",
        "va": "top",
    }
    for index, arm in enumerate(arms):
        rate = arm["collapse"]["0.5"]
        axes.bar(index, rate or 0, 0.55, color=colour(index))
        axes.annotate(number(rate, 2), (index, rate or 0), (0, 2), textcoords="offset points", ha="center")
        recovery = "n/a" if arm["recovery"] is None else number(arm["recovery"], 2)
        axes.annotate(recovery, (index, 0), (0, -8 - 12 * lines), ha="center", **beneath)
    axes.annotate("recovery", (-0.55, 0), (0, -8 - 12 * lines), ha="right", **beneath)


def seed_pairs(axes: Axes, arms: Sequence[Json]) -> None:
    """Each seed's many-to-one and injective score, joined; short rules are means."""
    for index, arm in enumerate(arms):
        pairs = np.stack([values(arm[score]["per_seed"]) for score in ("non_injective", "inj")])
        ends = index + np.array([-0.2, 0.2])
        axes.plot(ends, pairs, color=colour(index), linewidth=0.8, alpha=0.6)
        for end, side, seeds, fill in zip(ends, (-1, 1), pairs, ("white", colour(index)), strict=True):
            look: dict[str, Any] = {
                "color": colour(index),
                "markerfacecolor": fill,
                "linestyle": "none",
                "markersize": 4,
            }
            axes.plot(np.full_like(seeds, end), seeds, marker(index), **look)
            axes.plot(end + side * np.array([0.06, 0.18]), np.full(2, seeds.mean()), color=colour(index), linewidth=2)
    for fill, name in (("white", "many-to-one"), ("0.3", "injective")):
        axes.plot([], [], "o", color="0.3", markerfacecolor=fill, markersize=4, label=name)
    lines = max(label(arm["assignment"]).count("\n") + 1 for arm in arms)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.06 - 0.05 * lines), ncols=2, handletextpad=0.1)


# ---------------------------------------------------------------------------------------------------- cells


def cell_heatmaps(result: Result) -> Figure:
    """INJ and many-to-one accuracy of every held-out cell on the support x operation grid, a column per arm."""
    arms, grid = result.document["arms"], Grid.of(**result.document["provenance"]["grid"])
    width, height = max(1.5, 0.62 * grid.n_operations), 0.36 * grid.n_supports
    figure = Figure(figsize=(1.4 + width * len(arms), 1.0 + 2 * height), layout="constrained")
    above, below = figure.subplots(2, len(arms), squeeze=False, sharex=True, sharey=True)
    for row, score, shown in ((above, "inj", "INJ"), (below, "non_injective", "many-to-one")):
        for axes, arm in zip(row, arms, strict=True):
            shares = values([arm[score]["per_cell"].get(name) for name in grid.cell_names])
            heatmap(axes, shares.reshape(grid.n_supports, grid.n_operations))
        row[0].set_yticks(centres(grid.n_supports), map(label, grid.supports))
        row[0].set_ylabel(shown)
    for top, bottom, arm in zip(above, below, arms, strict=True):
        top.set_title(label(arm["assignment"], 20))
        bottom.set_xticks(centres(grid.n_operations), [label(name, 10) for name in grid.operations])
    return figure


def cell_confusion(result: Result) -> Figure:
    """True held-out cell x predicted cell, a map per arm."""
    arms, grid = result.document["arms"], Grid.of(**result.document["provenance"]["grid"])
    names, ticks = [label(name, 24) for name in grid.cell_names], centres(grid.n_cells)
    side = 0.4 + 0.28 * grid.n_cells
    figure = Figure(figsize=(1.2 + side * len(arms), 1.3 + side), layout="constrained")
    every = figure.subplots(1, len(arms), squeeze=False, sharey=True)[0]
    for index, (axes, arm) in enumerate(zip(every, arms, strict=True)):
        heatmap(axes, confusion(result.fits, index, grid), digits=0)
        for first in range(0, grid.n_cells, grid.n_operations):
            block = (first, first), grid.n_operations, grid.n_operations
            axes.add_patch(Rectangle(*block, fill=False, edgecolor="0.5", linewidth=1, clip_on=False))
        for cell in range(grid.n_cells):
            axes.add_patch(Rectangle((cell, cell), 1, 1, fill=False, edgecolor="black", linewidth=1.2, clip_on=False))
        axes.set_xticks(ticks, names, rotation=90, fontsize=8)
        axes.set_yticks(ticks, names, fontsize=8)
        axes.set_title(label(arm["assignment"], 24))
        axes.set_xlabel("read as")
    every[0].set_ylabel("held-out cell")
    return figure


# ---------------------------------------------------------------------------------------------- all the fits


def selected(result: Result, arm: int, column: str) -> np.ndarray:
    """A column of `fits.npz`, of an arm's selected restarts."""
    fits = result.fits
    return fits[column][(fits["arm"] == arm) & fits["selected"]]


def collapse_curve(
    inj: Float[np.ndarray, " fits"],
) -> tuple[Float[np.ndarray, " thresholds"], Float[np.ndarray, " thresholds"]]:
    """The thresholds at which the share of fits strictly below changes, and the share from each to the next one."""
    return np.r_[0.0, np.sort(inj), 1.0], np.r_[0.0, np.arange(1, len(inj) + 1), len(inj)] / len(inj)


def collapse_thresholds(result: Result) -> Figure:
    """The share of selected fits whose INJ is below each threshold; an incomplete arm has no curve."""
    figure = Figure(figsize=(5.6, 3.0), layout="constrained")
    axes = figure.subplots()
    for index, arm in enumerate(result.document["arms"]):
        inj = selected(result, index, "inj")
        look: dict[str, Any] = {"color": colour(index), "linestyle": DASHES[index % len(DASHES)]}
        if len(inj) < arm["n_fits"]:
            axes.plot([], [], label=f"{label(arm['assignment'])}\n(incomplete)", **look)
        else:
            axes.step(*collapse_curve(inj), where="post", label=label(arm["assignment"]), **look)
    for threshold in metrics.COLLAPSE_THRESHOLDS:
        axes.axvline(threshold, color="0.6", linestyle="dotted", linewidth=1)
    axes.set(xlim=(0, 1), xlabel="threshold", ylabel="share of fits with INJ below it")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    unit_axis(axes)
    return figure


def training_curves(result: Result) -> Figure:
    """The loss of selected fits, median and middle 90 %, in each chunk of training."""
    figure = Figure(figsize=(5.6, 3.0), layout="constrained")
    axes = figure.subplots()
    for index, arm in enumerate(result.document["arms"]):
        loss = selected(result, index, "loss")
        if not len(loss):
            continue
        # The mean loss of a chunk is drawn at its middle.
        step = (np.arange(loss.shape[1]) + 0.5) * result.document["config"]["protocol"]["steps"] / loss.shape[1]
        low, median, high = np.quantile(loss, (0.05, 0.5, 0.95), axis=0)
        axes.fill_between(step, low, high, color=colour(index), alpha=0.18, linewidth=0)
        axes.plot(
            step, median, color=colour(index), linestyle=DASHES[index % len(DASHES)], label=label(arm["assignment"])
        )
    axes.set(xlabel="step", ylabel="loss", xlim=(0, result.document["config"]["protocol"]["steps"]))
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


# ------------------------------------------------------------------------------------------------- two edits


def two_edit_scores(result: Result) -> Figure:
    """Every score of every seed with mean, SD and chance (left); joint accuracy of each pair of cells (right)."""
    (arm,), levels = result.document["arms"], result.document["provenance"]["chance"]
    figure = Figure(figsize=(10.0, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(2, 3))
    scores = [row for row in metrics.METRICS[metrics.TWO_EDITS] if row.key in arm["two_edits"]]
    for index, row in enumerate(scores):
        seed_dots(left, index, values(arm["two_edits"][row.key]["per_seed"]))
        if row.key in levels:
            left.hlines(levels[row.key], index - 0.3, index + 0.4, color="0.4", linestyle="--", linewidth=1)
    left.set_xticks(range(len(scores)), [label(row.name, 8) for row in scores])
    left.set_ylabel("accuracy")
    unit_axis(left)

    grid = Grid.of(**result.document["provenance"]["grid"])
    joint = np.full((grid.n_cells, grid.n_cells), np.nan)
    joint[*np.transpose(grid.combinations(2))] = values(list(arm["two_edits"]["joint"]["per_combination"].values()))
    # The first cell of a pair is never on the last support, and the second is never on the first.
    first, second = grid.cell_names[: -grid.n_operations], grid.cell_names[grid.n_operations :]
    heatmap(right, joint[: len(first), grid.n_operations :])
    right.set_xticks(centres(len(second)), [label(name, 24) for name in second], rotation=30, ha="right", fontsize=8)
    right.set_yticks(centres(len(first)), [label(name, 24) for name in first], fontsize=8)
    right.set_title("joint accuracy")
    return figure
