"""The metrics of an arm, one row each.

From the rows of `METRICS` come the scores in result.json, their part of its JSON schema, the table on the terminal and
on the report page with its glossary, and the columns of the leaderboard and of its CSV file. To add a metric, add a
row. A result that is older than a metric shows it as undefined.
"""

from math import comb
from typing import Any

import numpy as np
from jaxtyping import Float

from soopf_jax.grid import Grid
from soopf_jax.runtime.text import number
from soopf_jax.scoring import align
from soopf_jax.scoring.metric_row import (
    DIFFERENCE,
    SCORE,
    SPREAD,
    Column,
    FoldScores,
    Metric,
    hidden,
    one_number,
    sd_and_interval,
    two_edit_score,
)
from soopf_jax.scoring.statistics import INTERVAL_MEANING, json_number, spread
from soopf_jax.types import Json

HELD_OUT, TWO_EDITS = "one", "two"
"""The experiments, by the number of edits as a run's configuration has it."""
COLLAPSE_THRESHOLDS = (0.4, 0.5, 0.6)

# ---------------------------------------------------------------------------------------------- held-out cells


def collapse(inj: Float[np.ndarray, "seeds cells"], threshold: float) -> float | None:
    """Share of (seed, held-out cell) fits whose accuracy is strictly below the threshold."""
    return json_number(np.mean(inj < threshold)) if np.isfinite(inj).all() else None


def _laundering_gap(folds: FoldScores) -> float | None:
    return json_number(folds.non_injective.mean(axis=1).mean() - folds.inj.mean(axis=1).mean())


def _exact_recovery(folds: FoldScores) -> float | None:
    return json_number(np.mean(folds.recovery == 1.0)) if np.isfinite(folds.recovery).all() else None


def _inj_csv(arm: Json) -> dict[str, Any]:
    low, high = arm["inj"]["ci95"] or (None, None)
    return {
        "inj": arm["inj"]["mean"],
        "inj_sd": arm["inj"]["sd"],
        "inj_ci95_low": low,
        "inj_ci95_high": high,
        "inj_ci95_method": arm["inj"].get("ci95_method"),
    }


def _show_recovery(arm: Json) -> str:
    shown = f"{number(arm['recovery'])} ({number(arm['exact_recovery'])})"
    return shown if arm["recovery"] is not None else "n/a"


def _show_by_alignment(arm: Json) -> str:
    return " ".join(number(inj["mean"]) for inj in arm.get("inj_by_alignment", {}).values()) or "n/a"


_INJ = Column("INJ", lambda arm: number(arm["inj"]["mean"]))
_INJ_SD, _INJ_INTERVAL = sd_and_interval(lambda arm: arm["inj"])
_MANY_TO_ONE = Column("many-to-one", lambda arm: number(arm["non_injective"]["mean"]))

_HELD_OUT_ROWS = (
    Metric(
        "inj",
        "INJ",
        lambda folds: spread(folds.inj, folds.cell_names, folds.pairs),
        {
            "INJ": "injective accuracy: share of held-out pairs read as their own cell, after every support and every "
            "operation has been bound to a slot of its own (Hungarian, on optimisation pairs); mean over cells, then "
            "seeds",
            "SD, 95% interval": INTERVAL_MEANING,
        },
        columns=(_INJ, _INJ_SD, _INJ_INTERVAL),
        ranking=(_INJ, _INJ_INTERVAL),
        csv=_inj_csv,
        schema=SPREAD,
        chance=lambda grid: 1 / grid.n_cells,
    ),
    Metric(
        "non_injective",
        "many-to-one",
        lambda folds: spread(folds.non_injective, folds.cell_names, folds.pairs),
        {"many-to-one": "the same, but two values may be bound to one slot"},
        columns=(_MANY_TO_ONE,),
        ranking=(_MANY_TO_ONE,),
        csv=lambda arm: {"non_injective": arm["non_injective"]["mean"]},
        schema=SPREAD,
    ),
    one_number(
        "laundering_gap",
        "gap",
        "many-to-one minus INJ: accuracy that comes from shared slots (operation laundering)",
        _laundering_gap,
    )._replace(schema=DIFFERENCE),
    one_number(
        "min_cell",
        "min cell",
        "the lowest INJ of a held-out cell",
        lambda folds: json_number(folds.inj.mean(axis=0).min()),
    ),
    Metric(
        "collapse",
        "collapse",
        lambda folds: {str(threshold): collapse(folds.inj, threshold) for threshold in COLLAPSE_THRESHOLDS},
        {"collapse": "share of (seed, held-out cell) fits with INJ strictly below 0.4, 0.5, 0.6"},
        columns=(
            Column(
                "collapse .4/.5/.6",
                lambda arm: " ".join(number(arm["collapse"][str(threshold)]) for threshold in COLLAPSE_THRESHOLDS),
            ),
        ),
        ranking=(Column("collapse .5", lambda arm: number(arm["collapse"]["0.5"])),),
        csv=lambda arm: {f"collapse_{threshold}": rate for threshold, rate in arm["collapse"].items()},
        schema={
            "type": "object",
            "required": [str(threshold) for threshold in COLLAPSE_THRESHOLDS],
            "additionalProperties": False,
            "patternProperties": {r"^0\.[456]$": SCORE},
        },
    ),
    Metric(
        "recovery",
        "recovery",
        lambda folds: json_number(folds.recovery.mean()),
        {
            "recovery (exact)": "share of observed labels that a learned Q puts at their place in the grid, best over "
            "permutations of the axes, and the share of fits where all are; n/a where nothing was learned"
        },
        columns=(Column("recovery (exact)", _show_recovery),),
        ranking=(),
        csv=lambda arm: {"recovery": arm["recovery"]},
        chance=align.chance_recovery,
    ),
    hidden("exact_recovery", _exact_recovery)._replace(csv=lambda arm: {"exact_recovery": arm["exact_recovery"]}),
    one_number(
        "distinct_support_rate",
        "distinct",
        "share of fits whose many-to-one binding gives each support a slot of its own",
        lambda folds: json_number(folds.distinct_support.mean()),
    )._replace(ranking=()),
    hidden("validation", lambda folds: json_number(folds.validation.mean())),
)

_INJ_BY_ALIGNMENT = Metric(
    "inj_by_alignment",
    "INJ by alignment",
    lambda folds: {name: spread(inj, folds.cell_names, folds.pairs) for name, inj in folds.inj_by_alignment.items()},
    {
        "INJ raw/soft/hard": "INJ of the same fits with slots matched on the energy (raw), on the normalised energy "
        "(soft) or on the slot of the largest energy (hard)"
    },
    columns=(Column("INJ raw/soft/hard", _show_by_alignment),),
    ranking=(),
    csv=lambda arm: {f"inj_{name}": inj["mean"] for name, inj in arm.get("inj_by_alignment", {}).items()},
    schema={"type": "object", "additionalProperties": SPREAD},
)

# --------------------------------------------------------------------------------------------------- two edits

_JOINT = two_edit_score(
    "joint",
    "joint",
    "share of pairs whose two largest energies are those of the two edited cells",
    lambda read: (read.top == read.edited).all(axis=1),
    lambda grid: 1 / comb(grid.n_cells, 2),
)
_TWO_EDITS_ROWS = (
    _JOINT._replace(columns=(*_JOINT.columns, *sd_and_interval(lambda arm: arm["two_edits"]["joint"]))),
    two_edit_score(
        "at_least_one",
        "at least one",
        "share where at least one of them is",
        lambda read: (read.top[:, :, None] == read.edited[:, None, :]).any(axis=(1, 2)),
        lambda grid: 1 - comb(grid.n_cells - 2, 2) / comb(grid.n_cells, 2),
    ),
    two_edit_score(
        "support_pair",
        "support pair",
        "share where the two largest support marginals are those of the edited supports",
        lambda read: (read.top_supports == read.edited_supports).all(axis=1),
        lambda grid: 1 / comb(grid.n_supports, 2),
    ),
    two_edit_score(
        "support_pair_of_top_two",
        "pair of top two",
        "share where the two largest energies lie in the two edited supports",
        lambda read: (read.supports_of_top == read.edited_supports).all(axis=1),
        lambda grid: grid.n_operations**2 / comb(grid.n_cells, 2),
    ),
)

# ---------------------------------------------------------------------------------------------------- the table

METRICS: dict[str, tuple[Metric, ...]] = {
    HELD_OUT: (
        *(row._replace(required=True) for row in _HELD_OUT_ROWS),
        _INJ_BY_ALIGNMENT,
    ),
    TWO_EDITS: tuple(row._replace(required=True) for row in _TWO_EDITS_ROWS),
}
"""By experiment, in the order of every table. The arms of both experiments have the metrics of the first."""
NAMES = {row.key: row.name for rows in METRICS.values() for row in rows}
"""What people call a metric, by its name in result.json and in the leaderboard's CSV file."""


def experiment_of(config: Json) -> str:
    """The experiment that a run's configuration names; held-out cells if it names none or an unknown one."""
    name = config.get("edits", HELD_OUT)
    return name if name in list(METRICS) else HELD_OUT


def chance(experiment: str, grid: Grid) -> dict[str, float | None]:
    """What guessing scores, by the metric's key, as the result file has it."""
    return {row.key: row.chance(grid) for row in METRICS[experiment] if row.chance}


def add_to_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Complete the JSON schema of result.json, which lacks only the metrics of an arm."""
    arm = schema["properties"]["arms"]["items"]
    for place, rows in ((arm, METRICS[HELD_OUT]), (arm["properties"]["two_edits"], METRICS[TWO_EDITS])):
        place["properties"] |= {row.key: row.schema for row in rows}
        place["required"] += [row.key for row in rows if row.required]
    return schema
