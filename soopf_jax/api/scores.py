"""The scores of a result as typed values, read from the records of result.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from soopf_jax.types import Json

AS_RECORDED = (
    *("assignment", "readout", "objective", "n_fits", "failed_fits"),
    *("laundering_gap", "min_cell", "recovery", "exact_recovery", "distinct_support_rate", "validation"),
)
"""The fields of an arm that are in its record as they are."""


@dataclass(frozen=True)
class Score:
    """A score over the seeds of a run. What is undefined is None."""

    mean: float | None
    """Mean over cells within each seed, then over seeds."""
    sd: float | None
    """Population SD over seeds."""
    interval: tuple[float, float] | None
    """95% interval of the mean over seeds."""
    per_seed: tuple[float | None, ...]
    per_cell: dict[str, float | None]
    """By the name of the held-out cell, `floor/hue`; with two edits, by both names, `floor/hue+wall/invert`."""
    interval_method: str | None = None
    """How the interval was made; None for results that do not say it."""


@dataclass(frozen=True)
class Arm:
    """One row of the table: a readout, trained with one assignment."""

    assignment: str
    readout: str
    objective: str
    sees: tuple[str, ...]
    """The labels that it reads beyond flat cell labels."""
    n_fits: int
    """Selected fits: one for each seed and held-out cell."""
    failed_fits: int
    inj: Score
    """INJ: the share of held-out pairs read as their own cell, every support and operation with a slot of its own."""
    non_injective: Score
    """The same where two values may share a slot; tables call it many-to-one."""
    laundering_gap: float | None
    """`non_injective.mean - inj.mean`: accuracy that comes from shared slots."""
    min_cell: float | None
    """The lowest INJ of a held-out cell."""
    collapse: dict[float, float | None]
    """The share of fits with INJ strictly below a threshold, by the threshold: 0.4, 0.5, 0.6."""
    recovery: float | None
    """The share of observed labels that a learned Q puts at their place in the grid."""
    exact_recovery: float | None
    """The share of fits in which Q puts all of them there."""
    distinct_support_rate: float | None
    """The share of fits whose many-to-one binding gives each support a slot of its own."""
    validation: float | None
    """Mean validation accuracy of the selected fits."""
    two_edits: dict[str, Score]
    """Scores of pairs with two edits, by name; empty for held-out cells."""
    record: Json = field(repr=False)
    """The arm as result.json has it, with whatever else was recorded."""


def score_of(record: Json) -> Score:
    """The score that a record of result.json holds."""
    low_high = record["ci95"]
    return Score(
        record["mean"],
        record["sd"],
        None if low_high is None else (low_high[0], low_high[1]),
        tuple(record["per_seed"]),
        dict(record.get("per_cell") or record.get("per_combination") or {}),
        record.get("ci95_method"),
    )


def arm_of(record: Json) -> Arm:
    """The arm that a record of result.json holds."""
    return Arm(
        **{name: record[name] for name in AS_RECORDED},
        sees=tuple(record["sees"]),
        inj=score_of(record["inj"]),
        non_injective=score_of(record["non_injective"]),
        collapse={float(threshold): share for threshold, share in record["collapse"].items()},
        two_edits={name: score_of(score) for name, score in record.get("two_edits", {}).items()},
        record=record,
    )


def arms_of(records: Sequence[Json]) -> dict[str, Arm]:
    """Arms by assignment. Where several have the same assignment, they are numbered: `learned (1)`, `learned (2)`."""
    names = [record["assignment"] for record in records]
    labels = [
        name if names.count(name) == 1 else f"{name} ({names[: index + 1].count(name)})"
        for index, name in enumerate(names)
    ]
    return {label: arm_of(record) for label, record in zip(labels, records, strict=True)}
