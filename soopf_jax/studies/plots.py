"""The figures of a study: layer profiles, maps of encoders and of cells, where errors lie, and features against INJ.

In: panels of rows. Out: matplotlib's own figures, and the points in them that stand for rows.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from soopf_jax.report.drawing import DASHES, MARKERS, MAX_NUMBERED, centres, colour, heatmap, label, unit_axis, values
from soopf_jax.runtime.palette import ARM_COLOURS, SKY, VERMILION
from soopf_jax.studies.geometry_ranks import Statistic
from soopf_jax.studies.grouping import AFTER_LAST_BLOCK, Panel, Row, output_row, selected_row
from soopf_jax.studies.outcome import Errors

SCORES = {
    "inj": "INJ",
    "many_to_one": "many-to-one",
    "support": "support alone",
    "operation": "operation alone",
}
"""The scores of a profile, as `Outcome.scores` names them."""
ERRORS = {"support": ("support only", SKY), "operation": ("operation only", VERMILION), "both": ("both", "0.55")}
WIDTH = 7.2
"""Inches of a figure that a narrow window can show without scrolling far."""


class Point(NamedTuple):
    """Where a row is in a figure."""

    axes: Axes
    x: float
    y: float
    row: Row


Drawn = tuple[Figure, list[Point]]


def look(row: Row) -> dict[str, Any]:
    """Colour, marker and dash of a series. They are other ones together for each of the first 36 series."""
    again = row.colour // len(ARM_COLOURS)
    return {
        "color": colour(row.colour),
        "marker": MARKERS[(row.colour + again) % len(MARKERS)],
        "linestyle": DASHES[again % len(DASHES)],
    }


def legend_below(figure: Figure, axes: Axes) -> None:
    """One legend for all axes of a figure, if there is more than one name in it."""
    lines, names = axes.get_legend_handles_labels()
    if len(names) > 1:
        figure.legend(lines, names, loc="outside lower center", ncols=min(len(names), 3))


# ------------------------------------------------------------------------------------------------- layer profile


def profile(panel: Panel) -> Drawn:
    """The four scores against relative depth, a line for each series and a band for its interval over seeds."""
    figure, points = Figure(figsize=(WIDTH, 5.4), layout="constrained"), []
    every = figure.subplots(2, 2, sharex=True, sharey=True).ravel()
    for axes, (score, name) in zip(every, SCORES.items(), strict=True):
        for rows in panel.series.values():
            points += profile_line(axes, rows, score)
        level = chance(panel.rows[0], score)
        axes.axhline(level, color="0.4", linestyle=(0, (1, 2)), linewidth=1)
        axes.annotate("chance", (0, level), (2, 2), xycoords=axes.get_yaxis_transform(), textcoords="offset points")
        axes.set_title(name, loc="left")
        unit_axis(axes)
        axes.set_xlim(-0.04, AFTER_LAST_BLOCK + 0.04)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1, AFTER_LAST_BLOCK], ["0", "0.25", "0.5", "0.75", "1", "last"])
    for axes in every[2:]:
        axes.set_xlabel("relative depth of the layer")
    legend_below(figure, every[0])
    return figure, points


def profile_line(axes: Axes, rows: Sequence[Row], score: str) -> list[Point]:
    """One series. A series that is read at its output only is a line across all depths, with its point at the end."""
    scores = [row.outcome.scores[score] for row in rows]
    places, means = np.array([row.place for row in rows]), values([found["mean"] for found in scores])
    ends = np.array([found["ci95"] or (np.nan, np.nan) for found in scores])
    style = look(rows[0]) | {"markersize": 4, "linewidth": 1.4}
    if rows[0].layered:
        axes.plot(places, means, label=rows[0].series, **style)
        band = places, ends
    else:
        across = np.array([0.0, AFTER_LAST_BLOCK])
        axes.plot(across, means.repeat(2), label=rows[0].series, markevery=[1], **style)
        band = across, ends.repeat(2, axis=0)
    axes.fill_between(band[0], *band[1].T, color=style["color"], alpha=0.14, linewidth=0)
    if len(rows) == 1 and rows[0].layered:  # a band of one point has no width
        axes.plot(places.repeat(2), ends[0], color=style["color"], alpha=0.4, linewidth=3)
    return [Point(axes, x, y, row) for x, y, row in zip(places, means, rows, strict=True) if np.isfinite(y)]


def chance(row: Row, score: str) -> float:
    """What guessing scores."""
    grid = row.outcome.grid
    return 1 / {"support": grid.n_supports, "operation": grid.n_operations}.get(score, grid.n_cells)


# ------------------------------------------------------------------------------------------- encoder x data set


def encoder_map(panels: Sequence[Panel]) -> Drawn:
    """INJ of every series (rows) on every data set (columns), for the panels of one assignment.

    Left: at the encoder's output or, without it, the deepest layer. Right: at the layer with the best validation
    accuracy.
    """
    names = list(dict.fromkeys(series for panel in panels for series in panel.series))
    figure = Figure(figsize=(max(WIDTH, 2.6 + 2.2 * len(panels)), 1.1 + 0.5 * len(names)), layout="constrained")
    points: list[Point] = []
    titles = {"at the output": output_row, "at the layer with the best validation accuracy": selected_row}
    every = figure.subplots(1, 2, sharey=True)
    for axes, (title, choose) in zip(every, titles.items(), strict=True):
        shares = np.full((len(names), len(panels)), np.nan)
        for column, panel in enumerate(panels):
            for series, rows in panel.series.items():
                row, place = choose(rows), names.index(series)
                shares[place, column] = values([row.outcome.arm["inj"]["mean"]])[0]
                points.append(Point(axes, column + 0.5, place + 0.5, row))
        heatmap(axes, shares, below=_layers(points, axes, shares))
        axes.set_title(label(title, 26))
        axes.set_xticks(centres(len(panels)), [label(panel.data, 16) for panel in panels])
    every[0].set_yticks(centres(len(names)), [label(name, 26) for name in names])
    return figure, points


def _layers(points: Sequence[Point], axes: Axes, shares: np.ndarray) -> dict[tuple[int, int], str]:
    """The layer that each field of a map shows, where the series has several."""
    return {(int(p.y), int(p.x)): p.row.layer for p in points if p.axes is axes and p.row.layered}


# ------------------------------------------------------------------------------------------------------- cells


def cell_map(panel: Panel) -> Drawn:
    """INJ of every held-out cell (columns) of every row, a map for each series."""
    series = panel.series
    names = panel.rows[0].outcome.grid.cell_names
    heights = [len(rows) for rows in series.values()]
    each = 0.55 if len(names) <= MAX_NUMBERED else 0.2
    size = max(WIDTH, 2.4 + each * len(names)), 1.2 + 0.27 * sum(heights) + 0.35 * len(heights)
    figure = Figure(figsize=size, layout="constrained")
    points: list[Point] = []
    every = figure.subplots(len(series), 1, squeeze=False, sharex=True, height_ratios=heights)[:, 0]
    for axes, (name, rows) in zip(every, series.items(), strict=True):
        shares = np.stack([values([row.outcome.arm["inj"]["per_cell"].get(cell) for cell in names]) for row in rows])
        heatmap(axes, shares)
        axes.set_title(label(name, 60), loc="left")
        axes.set_yticks(centres(len(rows)), [row.layer for row in rows])
        points += [Point(axes, -0.3, place + 0.5, row) for place, row in enumerate(rows)]
    every[-1].set_xticks(centres(len(names)), [label(cell, 24) for cell in names], rotation=40, ha="right")
    return figure, points


# ------------------------------------------------------------------------------------------------- where or what


def error_bars(panel: Panel) -> Drawn:
    """For every row, the shares of its errors that lie in the support only, in the operation only, or in both."""
    rows = [row for row in panel.complete if sum(row.outcome.errors) > 0]
    figure = Figure(figsize=(WIDTH, 1.3 + 0.26 * (len(rows) + 1)), layout="constrained")
    axes, points = figure.subplots(), []
    bars = [np.array(row.outcome.errors) / sum(row.outcome.errors) for row in rows]
    bars.append(errors_by_chance(panel.rows[0]))
    left = np.zeros(len(bars))
    for part, (name, tint) in enumerate(ERRORS.values()):
        widths = np.array([bar[part] for bar in bars])
        axes.barh(range(len(bars)), widths, 0.78, left=left, color=tint, label=name, edgecolor="white", linewidth=0.5)
        for place, (start, width) in enumerate(zip(left, widths, strict=True)):
            if width >= 0.06:
                axes.text(start + width / 2, place, f"{100 * width:.0f}", ha="center", va="center", fontsize=8)
        left += widths
    for place, row in enumerate(rows):
        axes.text(1.01, place, f"{sum(row.outcome.errors):.2f}", va="center", fontsize=8)
        points.append(Point(axes, 0.5, float(place), row))
    axes.text(1.01, -0.9, "errors", va="center", fontsize=8)
    axes.set_yticks(range(len(bars)), [*(label(row.name, 40) for row in rows), "a wrong cell at random"])
    axes.set(
        xlim=(0, 1.08), ylim=(len(bars) - 0.4, -1.4), xlabel="share of the held-out errors (in the bars: per cent)"
    )
    axes.set_xticks(np.linspace(0, 1, 6))
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure, points


def errors_by_chance(row: Row) -> Float[np.ndarray, " kinds"]:
    """The shares of errors if every wrong cell is read equally often."""
    supports, operations = row.outcome.grid.n_supports - 1, row.outcome.grid.n_operations - 1
    kinds = Errors(support=supports, operation=operations, both=supports * operations)
    return np.array(kinds) / sum(kinds)


# ---------------------------------------------------------------------------------------------- features and INJ


def against_features(panel: Panel, statistics: Mapping[str, Statistic]) -> Drawn:
    """INJ against every statistic of the features; a point for each row."""
    columns = 2 if len(statistics) in (2, 4) else min(3, len(statistics))
    lines = -(-len(statistics) // columns)
    figure = Figure(figsize=(WIDTH, 0.5 + 2.2 * lines), layout="constrained")
    every, points = figure.subplots(lines, columns, squeeze=False, sharey=True).ravel(), []
    for axes, statistic in zip(every, statistics.values(), strict=False):
        for row, x in zip(statistic.rows, statistic.values, strict=True):
            y = row.outcome.arm["inj"]["mean"]
            axes.plot(x, y, **(look(row) | {"linestyle": "none", "markersize": 5, "label": row.series}))
            points.append(Point(axes, x, y, row))
        axes.set_xlabel(label(statistic.name, 28))
        axes.set_title(statistic.shown, loc="left", fontsize=9)
        axes.locator_params(axis="x", nbins=4)
        axes.margins(0.1)
    for axes in every[len(statistics) :]:
        axes.set_visible(False)
    for axes in every[::columns]:
        axes.set_ylabel("INJ")
    found = {name: line for axes in every for line, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    if len(found) > 1:
        figure.legend(list(found.values()), list(found), loc="outside lower center", ncols=min(3, len(found)))
    return figure, points
