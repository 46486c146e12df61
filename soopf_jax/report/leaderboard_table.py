"""The leaderboard: the arms of all results below a folder, as a table and as CSV.

Arms are sorted by substrate, grid, pairs and protocol before INJ: only arms that agree in these may be ranked.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from soopf_jax.errors import UserError
from soopf_jax.experiments import results
from soopf_jax.experiments.naming import RunName, name_run, without_folder
from soopf_jax.report.tables import Table, csv_text
from soopf_jax.runtime.text import printable
from soopf_jax.scoring import metrics
from soopf_jax.types import Json


class RankedArm(NamedTuple):
    """One arm of one run."""

    name: RunName
    arm: Json
    """Its element of the result's `arms`."""
    document: Json
    """The whole result."""
    folder: str
    """The result's folder, below the folder that was searched."""
    report: Path | None = None
    """Its report.html, if it has one."""
    chance: float | None = None
    """The INJ of guessing."""


# ----------------------------------------------------------------------------------------------- gathering


def gather(root: Path) -> tuple[list[RankedArm], list[str]]:
    """The arms of all results below a folder in their order, and why each result that cannot be shown was left out."""
    arms: list[RankedArm] = []
    left_out: list[str] = []
    for folder in result_folders(root):
        try:
            arms += arms_of(folder, folder.relative_to(root))
        except UserError as error:
            left_out.append(str(error))
    return sorted(arms, key=_rank), left_out


def result_folders(root: Path) -> Iterator[Path]:
    """Folders with a `result.json`; hidden ones belong to runs that are not finished."""
    for path in sorted(root.rglob("result.json")):
        if not any(part.startswith(".") for part in path.relative_to(root).parts):
            yield path.parent


def arms_of(folder: Path, shown: Path) -> list[RankedArm]:
    """The arms of one result."""
    document = results.load(folder).document
    if metrics.experiment_of(document["config"]) != metrics.HELD_OUT:
        raise UserError(f"{folder} reads two edits at once and holds no cell out")
    try:
        name = name_run(document)
    except UserError as error:
        raise UserError(f"{folder}: {error}") from error
    report, chance = folder / "report.html", document["provenance"]["chance"].get("inj")
    found = report if report.is_file() else None
    return [RankedArm(name, arm, document, printable(str(shown)), found, chance) for arm in document["arms"]]


def _rank(ranked: RankedArm) -> tuple[Any, ...]:
    """Best first within the rows that may be ranked, undefined scores last."""
    name, mean = ranked.name, ranked.arm["inj"]["mean"]
    return (name.substrate, name.grid, name.pairs, name.protocol, mean is None, -(mean or 0.0), ranked.folder)


# ------------------------------------------------------------------------------------------------- writing


FIRST_COLUMNS: dict[str, Callable[[RankedArm], str]] = {
    "substrate": lambda ranked: without_folder(ranked.name.substrate),
    "encoder": lambda ranked: without_folder(ranked.name.encoder),
    "assignment": lambda ranked: printable(ranked.arm["assignment"]),
    "protocol": lambda ranked: ranked.name.protocol,
}
LAST_COLUMNS: dict[str, Callable[[RankedArm], str]] = {
    "seeds": lambda ranked: str(len(ranked.arm["inj"]["per_seed"])),
    "readout": lambda ranked: ranked.name.readout,
    "objective": lambda ranked: ranked.name.objective,
    "grid": lambda ranked: ranked.name.grid,
    "pairs": lambda ranked: ranked.name.pairs,
    "result": lambda ranked: ranked.folder,
}
"""The columns before and after those of the metrics."""


def as_table(arms: Sequence[RankedArm]) -> Table:
    """For people. Numbers have three digits, and scores stand beside the names that matter most."""
    scores = [column for row in metrics.METRICS[metrics.HELD_OUT] for column in row.ranking]
    rows = [
        (
            *(show(ranked) for show in FIRST_COLUMNS.values()),
            *(column.show(ranked.arm) for column in scores),
            *(show(ranked) for show in LAST_COLUMNS.values()),
        )
        for ranked in arms
    ]
    header = (*FIRST_COLUMNS, *(column.header for column in scores), *LAST_COLUMNS)
    return Table("All arms, best first within substrate, grid, pairs and protocol", header, rows)


def as_csv(arms: Sequence[RankedArm]) -> str:
    """For programs. Numbers have all digits, and undefined ones are empty."""
    return csv_text([_record(ranked) for ranked in arms])


def _record(ranked: RankedArm) -> dict[str, Any]:
    arm = ranked.arm
    scores = [row.csv(arm) for row in metrics.METRICS[metrics.HELD_OUT]]
    return {
        **ranked.name._asdict(),
        "assignment": printable(arm["assignment"]),
        "seeds": len(arm["inj"]["per_seed"]),
        "failed_fits": arm["failed_fits"],
        **{name: value for columns in scores for name, value in columns.items()},
        "chance": ranked.chance,
        "result": ranked.folder,
    }
