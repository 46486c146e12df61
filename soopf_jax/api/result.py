"""A finished run as a value: it shows itself, gives its scores, saves, reports and plots itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from soopf_jax.api import show
from soopf_jax.api.frame import frame_of
from soopf_jax.api.plot import Plots
from soopf_jax.api.scores import Arm, arms_of
from soopf_jax.errors import UserError
from soopf_jax.experiments import results
from soopf_jax.experiments.hints import hints
from soopf_jax.experiments.predictions import Kept
from soopf_jax.experiments.results import Readings
from soopf_jax.report import page
from soopf_jax.report.examples import Examples
from soopf_jax.runtime import atomic

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """A finished run.

    Examples:
        >>> result = soopf.benchmark(dataset="shapes3d-lite", encoder="pixels", protocol=soopf.QUICK)
        >>> result.arms["factorial"].inj.mean
        >>> result.save("runs/mine")
    """

    document: dict[str, Any]
    """What result.json holds: configuration, provenance, arms, tests, warnings."""
    fits: dict[str, np.ndarray]
    """What fits.npz holds: columns with a row per fit. `arm` is the index into the document's arms."""
    readings: Readings | None = None
    """What the report's examples show; not on disk."""
    examples: Examples | None = None
    """The same with images; not on disk."""
    kept: Kept | None = None
    """What the run has kept of its selected fits: predictions and, if they were asked for, parameters. For a run that
    was loaded, `load_predictions` and `load_params` read them."""

    # ------------------------------------------------------------------------------------------------- looking

    @cached_property
    def arms(self) -> Mapping[str, Arm]:
        """The arms by assignment, in the order of the run. Several of one name are numbered: `learned (1)`."""
        return arms_of(self.document["arms"])

    @property
    def warnings(self) -> list[str]:
        """What to know before using a number."""
        return list(self.document["warnings"])

    @property
    def hints(self) -> list[str]:
        """What looks odd in this run, and what to try."""
        return [hint.text for hint in hints(self.document)]

    @property
    def plot(self) -> Plots:
        """The figures of the report: `result.plot.cells()` and others."""
        return Plots(self._on_disk, self.examples)

    def to_frame(self) -> pandas.DataFrame:
        """One row per fit: names of the arm and the held-out cell, seed, restart and scores.

        Examples:
            >>> frame = result.to_frame()
            >>> frame[frame.selected].groupby(["assignment", "support"]).inj.mean()

        Raises:
            MissingPackage: pandas is not installed.
        """
        return frame_of(self._on_disk)

    def __repr__(self) -> str:
        return show.text(self.document)

    def _repr_html_(self) -> str:
        return show.html(self.document)

    def __eq__(self, other: object) -> bool:
        """Whether both have the same configuration, provenance, scores and fits."""
        if not isinstance(other, Result):
            return NotImplemented
        columns = self.fits.keys() == other.fits.keys() and all(
            np.array_equal(column, other.fits[name], equal_nan=column.dtype.kind == "f")
            for name, column in self.fits.items()
        )
        return columns and _unsealed(self.document) == _unsealed(other.document)

    __hash__ = None  # type: ignore[assignment]

    # ------------------------------------------------------------------------------------------------- keeping

    def save(self, folder: str | Path, overwrite: bool = False) -> Path:
        """Write the folder that the command line writes: result.json, fits.npz, report.html and figures.

        The folder appears at once and whole. Saving the same result there again does nothing.

        Args:
            folder: Where the result goes.
            overwrite: Whether another result that is there may be replaced.

        Returns:
            The folder.

        Raises:
            UserError: Something else is there, or the folder cannot be written.
        """
        folder = Path(folder).expanduser()
        there = folder.exists() and not (folder.is_dir() and not any(folder.iterdir()))
        if there and not (folder / "result.json").is_file():
            raise UserError(f"{folder} holds something that is no result; choose another folder")
        if there and not overwrite:
            if load(folder) == self:
                return folder
            raise UserError(f"{folder} holds another result; choose another folder or add overwrite=True")
        atomic.check_writable(folder)
        results.save(self._on_disk, folder, page.pages(self._on_disk, self.examples), replace=True)
        return folder

    def report(self, file: str | Path) -> Path:
        """Write the report as one self-contained HTML file.

        Args:
            file: Where it goes. A file that is there is replaced.

        Returns:
            The file.

        Raises:
            UserError: The file cannot be written.
        """
        file = Path(file).expanduser()
        if file.is_dir():
            raise UserError(f"{file} is a folder; give the name of a file, such as report.html")
        atomic.check_writable(file)
        atomic.write_bytes(file, page.pages(self._on_disk, self.examples)["report.html"])
        return file

    @property
    def _on_disk(self) -> results.Result:
        """The result as the layers below know it."""
        return results.Result(self.document, self.fits, self.readings, self.kept)


def load(path: str | Path) -> Result:
    """Read a finished run, of the command line or of `Result.save`.

    Examples:
        >>> soopf.load("runs/mine").arms["learned"].inj.interval

    Args:
        path: The folder of the run, or its result.json.

    Raises:
        UserError: There is no finished run, or its files are damaged.
    """
    path = Path(path).expanduser()
    found = results.load(path.parent if path.name in ("result.json", "fits.npz", "report.html") else path)
    return Result(found.document, found.fits)


def _unsealed(document: Mapping[str, Any]) -> Any:
    """The document as JSON has it, without the digests that saving adds."""
    provenance = {name: value for name, value in document["provenance"].items() if name != results.SEAL}
    return json.loads(json.dumps({**document, "provenance": provenance}))
