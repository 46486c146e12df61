"""The figures of a result, one method each: `result.plot.cells()`."""

from __future__ import annotations

from functools import partial

from matplotlib.figure import Figure

from soopf_jax.errors import UserError
from soopf_jax.experiments.results import Result
from soopf_jax.report import figures
from soopf_jax.report.examples import Examples


class Plots:
    """The figures of a report as matplotlib's own. A notebook shows them; `figure.savefig(file)` saves them."""

    def __init__(self, result: Result, examples: Examples | None = None) -> None:
        self._plots = figures.plots_of(result, examples)

    def __repr__(self) -> str:
        return "result.plot: .seeds(), .cells(), .confusion(), .collapse(), .training(), .masks()"

    def seeds(self) -> Figure:
        """The scores of every seed: INJ, collapse, and many-to-one beside INJ. With two edits, all their scores."""
        return self._draw("assignment_audit", "two_edit_scores")

    def cells(self) -> Figure:
        """INJ and many-to-one accuracy of every held-out cell. With two edits, joint accuracy of all pairs of cells."""
        return self._draw("cell_heatmaps", "two_edit_scores")

    def confusion(self) -> Figure:
        """What pairs of each held-out cell are read as."""
        return self._draw("cell_confusion")

    def collapse(self) -> Figure:
        """The share of fits whose INJ is below each threshold."""
        return self._draw("collapse_thresholds")

    def training(self) -> Figure:
        """The loss of the selected fits during training."""
        return self._draw("training_curves")

    def masks(self) -> Figure:
        """The router's masks of some pairs, beside the images. A result that was loaded has no images."""
        return self._draw("router_masks")

    def _draw(self, *names: str) -> Figure:
        found = next((self._plots[name] for name in names if name in self._plots), None)
        if found is None:
            kinds = ", ".join(self._plots)
            raise UserError(f"there is no data for the figure {names[0]} in this result; it has {kinds}")
        with figures.styled():
            figure = found.draw()
        # Without pyplot, a notebook does not know how to show a figure.
        figure._repr_png_ = partial(_png, figure)  # type: ignore[attr-defined]
        return figure


def _png(figure: Figure) -> bytes:
    with figures.styled():
        return figures.to_bytes(figure, "png")
