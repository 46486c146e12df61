"""Who is best, and is it really: ranks of rows under resampled seeds, and paired tests between rows.

In: panels. Out: placings and contests, with a reason where the project's rules give no number.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from soopf_jax.scoring import score
from soopf_jax.scoring.ranking import Ranking, ranking, ranks_of
from soopf_jax.scoring.statistics import MIN_BOOTSTRAP_SEEDS, MIN_SEEDS
from soopf_jax.studies.grouping import Panel, Row, selected_row

# ------------------------------------------------------------------------------------------------------- ranks


class Placings(NamedTuple):
    """The ranks of some rows of a panel by INJ."""

    rows: list[Row]
    rank: list[float]
    """By mean INJ; 1 is the best."""
    seeds_won: list[float]
    """The seeds in which a row is first. Rows that share a first place count as an equal part each."""
    seeds: int
    bootstrap: Ranking | None
    """None with fewer seeds than the project's rules ask for."""


def placings(rows: Sequence[Row]) -> Placings | None:
    """The ranks of rows of one panel. Rows that are not complete are left out; None if fewer than two are left."""
    rows = [row for row in rows if row.outcome.arm["inj"]["mean"] is not None]
    if len(rows) < 2:
        return None
    scores = np.stack([row.outcome.inj for row in rows])
    by_seed = ranks_of(scores.T)
    best = by_seed == by_seed.min(axis=1, keepdims=True)
    return Placings(
        rows,
        ranks_of(scores.mean(axis=1)[None])[0].tolist(),
        (best / best.sum(axis=1, keepdims=True)).sum(axis=0).tolist(),
        scores.shape[1],
        ranking(scores) if scores.shape[1] >= MIN_BOOTSTRAP_SEEDS else None,
    )


# ------------------------------------------------------------------------------------------------- comparisons


class Contest(NamedTuple):
    """Two rows of a panel, compared over seeds."""

    panel: Panel
    a: Row
    b: Row
    difference: float | None
    """INJ of a minus INJ of b."""
    t: float | None
    p: float | None
    p_holm: float | None
    obstacle: str
    """Why there is no p-value; empty if there is one."""


def contests(panels: Sequence[Panel]) -> list[Contest]:
    """The paired tests of a study, under one correction.

    The layers of a series are compared with the one that has the best validation accuracy. The series are compared
    with one another at these layers. INJ plays no part in the choice of pairs.
    """
    pairs = [(panel, a, b) for panel in panels for a, b in pairs_of(panel)]
    tests = [score.paired_test(*(row.outcome.arm["inj"]["per_seed"] for row in (a, b))) for _, a, b in pairs]
    adjusted = score.holm([test["p"] for test in tests])
    return [
        Contest(panel, a, b, test["mean_diff"], test["t"], test["p"], p_holm, "" if p_holm is not None else why(a, b))
        for (panel, a, b), test, p_holm in zip(pairs, tests, adjusted, strict=True)
    ]


def pairs_of(panel: Panel) -> list[tuple[Row, Row]]:
    """The pairs of rows that are compared."""
    series = panel.series.values()
    chosen = [selected_row(rows) for rows in series]
    layers = [(row, best) for rows, best in zip(series, chosen, strict=True) for row in rows if row is not best]
    return [*itertools.combinations(chosen, 2), *layers]


def why(a: Row, b: Row) -> str:
    """Why two rows have no p-value."""
    if any(row.outcome.arm["inj"]["mean"] is None for row in (a, b)):
        return "a fold has no selected restart"
    if len(a.outcome.inj) < MIN_SEEDS:
        return f"needs {MIN_SEEDS} seeds"
    return "the same difference in every seed"
