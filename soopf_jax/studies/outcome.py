"""What comes out of a study: one record per arm of every finished run, and the CSV file of all of them.

In: the result folders of the runs. Out: scores, the accuracy on each axis alone, where the errors lie, and the
statistics and the geometry of the features.
"""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from soopf_jax.encoders.layers import relative_depth
from soopf_jax.errors import UserError
from soopf_jax.experiments import results
from soopf_jax.experiments.naming import RunName, name_run
from soopf_jax.experiments.options import Bench
from soopf_jax.experiments.results import Result
from soopf_jax.grid import Grid
from soopf_jax.report.confusion import axis_accuracy, confusion
from soopf_jax.report.tables import csv_text
from soopf_jax.runtime import atomic
from soopf_jax.runtime.text import printable
from soopf_jax.scoring import statistics
from soopf_jax.scoring.statistics import json_number
from soopf_jax.studies.rows import Obstacle, damaged, folder
from soopf_jax.types import Json

COLUMNS = ("arm", "seed", "held_out", "selected", "C_sup", "C_op", "test_counts")
"""What is read of fits.npz."""


class Errors(NamedTuple):
    """The share of held-out pairs that are read wrong in only one axis, or in both. The three sum to 1 - INJ."""

    support: float
    """The support is wrong and the operation is right."""
    operation: float
    """The operation is wrong and the support is right."""
    both: float


class Outcome(NamedTuple):
    """One arm of one run of a study."""

    dataset: str
    encoder: str
    layer: int | None
    depth: float
    """The relative depth of the layer, from 0 to 1."""
    readout: str
    assignment: str
    objective: str
    protocol: str
    folder: str
    """The result folder, seen from the folder of the study."""
    arm: Json
    """Its element of the result's `arms`."""
    support: Float[np.ndarray, " seeds"]
    """The share of held-out pairs whose support is read correctly, whatever the operation is."""
    operation: Float[np.ndarray, " seeds"]
    errors: Errors
    features: Mapping[str, float | None]
    """The statistics of the features and their geometry, as the result has them."""
    name: RunName
    """What was run, in words."""
    grid: Grid
    test_pairs: int
    """The held-out pairs behind the score of a seed."""

    @property
    def inj(self) -> Float[np.ndarray, " seeds"]:
        """INJ of every seed; NaN where it is undefined."""
        return _per_seed(self.arm["inj"])

    @property
    def many_to_one(self) -> Float[np.ndarray, " seeds"]:
        """Many-to-one accuracy of every seed."""
        return _per_seed(self.arm["non_injective"])

    @property
    def scores(self) -> dict[str, Json]:
        """The four scores of a study, each with its mean and its interval over seeds."""
        by_axis = {
            name: statistics.over_seeds(per_seed, statistics.score_interval(per_seed, self.test_pairs))
            for name, per_seed in (("support", self.support), ("operation", self.operation))
        }
        return {"inj": self.arm["inj"], "many_to_one": self.arm["non_injective"], **by_axis}


def _per_seed(spread: Json) -> Float[np.ndarray, " seeds"]:
    return np.array([np.nan if value is None else value for value in spread["per_seed"]], float)


def outcomes(
    found: Mapping[Bench, Json | Obstacle], runs: Path, depths: Mapping[str, int | None]
) -> tuple[list[Outcome], dict[Bench, Obstacle]]:
    """The arms of all finished runs that hold cells out, and why those of other finished runs cannot be shown.

    Args:
        found: The results, or why there is none.
        runs: The folder of the result folders.
        depths: The number of blocks of every encoder; None if it has none or is not here.
    """
    made: list[Outcome] = []
    unreadable: dict[Bench, Obstacle] = {}
    for run, document in found.items():
        if isinstance(document, Obstacle) or run.edits != "one":
            continue
        deepest = depths.get(run.encoder_name) or max(other.layer or 1 for other in found)
        place = runs / folder(run)
        try:
            made += outcomes_of(run, results.load(place), deepest)
        except UserError as error:
            unreadable[run] = damaged(place, error)
    return made, unreadable


def outcomes_of(run: Bench, result: Result, deepest: int) -> list[Outcome]:
    """The arms of one run.

    Args:
        run: Its options.
        result: What it has found.
        deepest: The number of blocks of its encoder.

    Raises:
        UserError: The result lacks something that runs record.
    """
    if lacking := [name for name in COLUMNS if name not in result.fits]:
        raise UserError(f"its fits.npz has no column {lacking[0]}; run it again")
    document, name = result.document, name_run(result.document)
    grid = Grid.of(*(document["provenance"]["grid"][axis] for axis in ("supports", "operations")))
    made = []
    for number, arm in enumerate(document["arms"]):
        support, operation = by_axis(result.fits, number, grid)
        made.append(
            Outcome(
                dataset=run.dataset_name,
                encoder=run.encoder_name,
                layer=run.layer,
                depth=relative_depth(run.layer, deepest),
                readout=name.readout,
                assignment=arm["assignment"],
                objective=name.objective,
                protocol=name.protocol,
                folder=folder(run),
                arm=arm,
                support=support,
                operation=operation,
                errors=errors_of(result.fits, number, grid),
                features=numbers_of(document["provenance"]["features"]),
                name=name,
                grid=grid,
                test_pairs=pairs_of_a_seed(result.fits, number),
            )
        )
    return made


def numbers_of(features: Json) -> dict[str, float | None]:
    """The statistics and the geometry of a run's features, as far as its result has them."""
    return {**(features.get("statistics") or {}), **(features.get("geometry") or {})}


def by_axis(
    fits: Mapping[str, np.ndarray], arm: int, grid: Grid
) -> tuple[Float[np.ndarray, " seeds"], Float[np.ndarray, " seeds"]]:
    """The accuracy on supports alone and on operations alone, per seed; means over the held-out cells."""
    pairs = []
    for seed in np.unique(fits["seed"]):
        of_seed = {name: column[fits["seed"] == seed] for name, column in fits.items()}
        pairs.append([axis.mean() for axis in axis_accuracy(confusion(of_seed, arm, grid), grid)])
    support, operation = np.array(pairs).T
    return support, operation


def pairs_of_a_seed(fits: Mapping[str, np.ndarray], arm: int) -> int:
    """The held-out pairs behind the score of one seed of an arm."""
    counted = (fits["arm"] == arm) & fits["selected"] & (fits["held_out"] >= 0)
    return int(fits["test_counts"][counted].sum()) // max(1, len(np.unique(fits["seed"][counted])))


def errors_of(fits: Mapping[str, np.ndarray], arm: int, grid: Grid) -> Errors:
    """Where the errors of all seeds lie, as means over the held-out cells."""
    shares = confusion(fits, arm, grid)
    support, operation = axis_accuracy(shares, grid)
    joint = np.diagonal(shares)
    both = 1 - support - operation + joint
    return Errors(float((operation - joint).mean()), float((support - joint).mean()), float(both.mean()))


# --------------------------------------------------------------------------------------------------- the file


def record(outcome: Outcome) -> dict[str, Any]:
    """A row of the CSV file. Numbers have all digits."""
    arm, wrong = outcome.arm, sum(outcome.errors)
    interval = arm["inj"]["ci95"] or (None, None)
    return {
        "dataset": outcome.dataset,
        "encoder": outcome.encoder,
        "layer": "last" if outcome.layer is None else outcome.layer,
        "relative_depth": outcome.depth,
        "readout": outcome.readout,
        "assignment": printable(outcome.assignment),
        "objective": outcome.objective,
        "protocol": outcome.protocol,
        "seeds": len(outcome.inj),
        "inj": arm["inj"]["mean"],
        "inj_low": interval[0],
        "inj_high": interval[1],
        "many_to_one": arm["non_injective"]["mean"],
        "support_accuracy": json_number(outcome.support.mean()),
        "operation_accuracy": json_number(outcome.operation.mean()),
        **{
            f"error_share_{name}": json_number(share / wrong if wrong else np.nan)
            for name, share in outcome.errors._asdict().items()
        },
        **outcome.features,
        "result": outcome.folder,
    }


def as_csv(found: Sequence[Outcome]) -> str:
    """All records as CSV."""
    return csv_text([record(outcome) for outcome in found])


def as_parquet(found: Sequence[Outcome]) -> bytes | None:
    """The same as a Parquet file; None if pyarrow is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        return None
    records = [record(outcome) | {"layer": str(record(outcome)["layer"])} for outcome in found]
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), buffer)
    return buffer.getvalue()


def write(found: Sequence[Outcome], folder: Path) -> None:
    """Write study.csv and, if pyarrow is installed, study.parquet."""
    atomic.write_bytes(folder / "study.csv", as_csv(found).encode())
    if (parquet := as_parquet(found)) is not None:
        atomic.write_bytes(folder / "study.parquet", parquet)
