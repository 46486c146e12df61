"""What a report is about; every panel of the page is a function of it."""

from collections.abc import Mapping
from typing import NamedTuple

from soopf_jax.experiments.results import Result
from soopf_jax.grid import Grid
from soopf_jax.report.examples import Examples
from soopf_jax.report.figures import Plot


class Subject(NamedTuple):
    """What a report is about."""

    result: Result
    plots: Mapping[str, Plot]
    """The figures by name."""
    drawn: Mapping[str, bytes]
    """The figures' bytes by path."""
    examples: Examples | None

    @property
    def grid(self) -> Grid:
        """The grid of the run."""
        return Grid.of(**self.result.document["provenance"]["grid"])
