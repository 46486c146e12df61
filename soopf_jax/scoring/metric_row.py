"""What a metric is: the row of the table in `metrics.py`, and the records that its value is computed from."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from soopf_jax.grid import Grid
from soopf_jax.runtime.text import number
from soopf_jax.scoring.statistics import shown_interval
from soopf_jax.types import Json

SCORE: Json = {"$ref": "#/$defs/score"}
SPREAD: Json = {"$ref": "#/$defs/spread"}
TWO_EDIT_SCORE: Json = {"$ref": "#/$defs/two_edit_score"}
DIFFERENCE: Json = {"type": ["number", "null"]}
"""Parts of the JSON schema. The first three are defined in result.schema.json."""

# ----------------------------------------------------------------------------------- what metrics are made of


class FoldScores(NamedTuple):
    """Scores of an arm's selected fits by fold; NaN where no restart of a fold could be selected."""

    inj: Float[np.ndarray, "seeds cells"]
    """Held-out accuracy after injective alignment."""
    non_injective: Float[np.ndarray, "seeds cells"]
    """Held-out accuracy after many-to-one alignment."""
    recovery: Float[np.ndarray, "seeds cells"]
    """Share of the observed rows of Q that are at their place in the grid."""
    distinct_support: Float[np.ndarray, "seeds cells"]
    """1 where the many-to-one support map is injective, else 0."""
    validation: Float[np.ndarray, "seeds cells"]
    """Validation accuracy."""
    cell_names: Sequence[str]
    """The held-out cells, in the order of the columns."""
    inj_by_alignment: Mapping[str, Float[np.ndarray, "seeds cells"]]
    """Held-out accuracy after injective alignment on each of the energies that slots can be matched on."""
    pairs: int | None = None
    """Test pairs of a seed, over all held-out cells."""


class TwoEditReading(NamedTuple):
    """What a fit reads in pairs with two edits. Cells and supports are in ascending order."""

    edited: Int[np.ndarray, "pairs 2"]
    """The edited cells."""
    edited_supports: Int[np.ndarray, "pairs 2"]
    top: Int[np.ndarray, "pairs 2"]
    """The cells with the two largest energies."""
    supports_of_top: Int[np.ndarray, "pairs 2"]
    """Their supports."""
    top_supports: Int[np.ndarray, "pairs 2"]
    """The supports with the two largest marginals of the energy."""


# --------------------------------------------------------------------------------------------------- one row


class Column(NamedTuple):
    """A column of a table with a row per arm."""

    header: str
    show: Callable[[Json], str]
    """From an element of the result's `arms` to the text of the cell."""


class Metric(NamedTuple):
    """Everything that the project knows about one metric."""

    key: str
    """The name in result.json."""
    name: str
    """What people call it."""
    compute: Callable[[Any], Any]
    """From FoldScores to the value in result.json; with two edits, from a TwoEditReading to which pairs are correct."""
    glossary: Mapping[str, str]
    """What the report says about its columns: term -> meaning."""
    columns: tuple[Column, ...]
    """Its columns in the table of a run."""
    ranking: tuple[Column, ...]
    """Its columns in the leaderboard."""
    csv: Callable[[Json], Mapping[str, Any]]
    """From an element of the result's `arms` to the columns of the leaderboard's CSV file."""
    schema: Json = SCORE
    """The JSON schema of the value."""
    chance: Callable[[Grid], float | None] | None = None
    """What guessing scores, where that is known."""
    required: bool = False
    """Whether every result has it. A new metric is not required, so that older results can still be read."""


def one_number(key: str, name: str, meaning: str, compute: Callable[[FoldScores], float | None]) -> Metric:
    """A metric that is one number, shown in every table under its name."""
    columns = (Column(name, lambda arm: number(arm.get(key))),)
    return Metric(key, name, compute, {name: meaning}, columns, columns, lambda arm: {key: arm.get(key)})


def hidden(key: str, compute: Callable[[FoldScores], float | None]) -> Metric:
    """A metric that is one number in result.json and in no table."""
    return Metric(key, key, compute, {}, (), (), lambda arm: {})


def two_edit_score(
    key: str,
    name: str,
    meaning: str,
    hits: Callable[[TwoEditReading], Any],
    chance: Callable[[Grid], float | None] | None = None,
) -> Metric:
    """A share of pairs with two edits, shown under its name in the table of a run."""
    columns = (Column(name, lambda arm: number(_two_edits(arm, key).get("mean"))),)
    return Metric(key, name, hits, {name: meaning}, columns, (), lambda arm: {}, TWO_EDIT_SCORE, chance)


def _two_edits(arm: Json, key: str) -> Json:
    return arm.get("two_edits", {}).get(key, {})


def sd_and_interval(spread_of: Callable[[Json], Json]) -> tuple[Column, Column]:
    """The columns beside the mean of a run's main score."""
    return (
        Column("SD", lambda arm: number(spread_of(arm)["sd"])),
        Column("95% interval", lambda arm: shown_interval(spread_of(arm))),
    )
