"""The figure of the layer study: where in depth a support, an operation and both together can be read."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from soopf_jax.runtime import atomic

NAME = "layers.png"
AXES = {"support_accuracy": ("support alone", "0.45", ":"), "operation_accuracy": ("operation alone", "0.45", "--")}
COLOURS = ("#0072b2", "#d55e00", "#009e73")
Row = Mapping[str, str]
"""A row of study.csv."""


def draw(rows: Sequence[Row], names: Mapping[str, str], folder: Path) -> None:
    """Write the figure, one panel for each data set.

    The accuracy on one axis alone is drawn for the first encoder. An encoder that is read at its output only is a level
    line.

    Args:
        rows: The rows of study.csv, with one assignment.
        names: Encoders that have another name in figures.
        folder: Where the figure goes.
    """
    datasets, encoders = (list(dict.fromkeys(row[key] for row in rows)) for key in ("dataset", "encoder"))
    figure, axes = plt.subplots(1, len(datasets), figsize=(11, 4.2), sharey=True, layout="constrained", squeeze=False)
    for panel, dataset in zip(axes[0], datasets, strict=True):
        for number, encoder in enumerate(encoders):
            found = [row for row in rows if (row["dataset"], row["encoder"]) == (dataset, encoder)]
            blocks = [row for row in found if row["layer"] != "last"]  # `last` is the same depth after the final norm
            found = sorted(blocks or found, key=lambda row: float(row["relative_depth"]))
            _draw_encoder(panel, found, names.get(encoder, encoder), COLOURS[number], with_axes=number == 0)
        panel.axhline(1 / 9, color="0.8", linewidth=0.8)
        panel.set(title=dataset, xlabel="relative depth", xlim=(0, 1.02), ylim=(0, 1.02))
    axes[0][0].set_ylabel("accuracy on held-out cells")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, ncols=len(labels), loc="outside lower center")
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=110, format="png")
    plt.close(figure)
    atomic.write_bytes(folder / NAME, drawn.getvalue())


def _draw_encoder(panel: Axes, rows: Sequence[Row], name: str, colour: str, with_axes: bool) -> None:
    """INJ with its interval over seeds, and what can be read of each axis alone."""
    depth = [float(row["relative_depth"]) for row in rows]
    inj, low, high = ([float(row[key]) for row in rows] for key in ("inj", "inj_low", "inj_high"))
    if len(rows) == 1:
        depth, inj, low, high = [0, 1], 2 * inj, 2 * low, 2 * high
    panel.plot(depth, inj, color=colour, marker="o" if len(rows) > 1 else "", markersize=4, label=f"INJ, {name}")
    panel.fill_between(depth, low, high, color=colour, alpha=0.15, linewidth=0)
    for key, (label, grey, style) in AXES.items() if with_axes else ():
        panel.plot(depth, [float(row[key]) for row in rows], style, color=grey, label=f"{label}, {name}")
