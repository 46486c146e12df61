"""The tables of the study page: ranks, paired comparisons, all rows."""

from collections.abc import Sequence

from soopf_jax.report.tables import Table
from soopf_jax.runtime.text import interval, number, p_value, signed
from soopf_jax.scoring.statistics import MIN_BOOTSTRAP_SEEDS, shown_interval
from soopf_jax.studies.contests import Contest, Placings
from soopf_jax.studies.geometry_ranks import name_of, statistics_of
from soopf_jax.studies.grouping import Panel, Row
from soopf_jax.studies.plots import SCORES


def ranks(title: str, placings: Placings) -> Table:
    """The rank of every row, how often it is first, and its mean rank among resampled seeds."""
    header = ("row", "INJ", "rank", "first in seeds", "first (bootstrap)", "mean rank (bootstrap)", "95% of ranks")
    found = placings.bootstrap
    rows = []
    for index in sorted(range(len(placings.rows)), key=lambda index: placings.rank[index]):
        row = placings.rows[index]
        resampled = (
            (f"needs {MIN_BOOTSTRAP_SEEDS} seeds", "-", "-")
            if found is None
            else (
                number(float(found.first[index])),
                number(float(found.mean_rank[index]), 2),
                interval((float(found.low[index]), float(found.high[index])), 1),
            )
        )
        won = f"{placings.seeds_won[index]:.3g} of {placings.seeds}"
        rows.append((row.name, number(row.outcome.arm["inj"]["mean"]), f"{placings.rank[index]:g}", won, *resampled))
    return Table(title, header, rows)


def comparisons(contests: Sequence[Contest]) -> Table:
    """All paired tests, the smallest p first."""
    order = sorted(contests, key=lambda contest: (contest.p is None, contest.p or 0.0))
    rows = [
        (
            contest.a.name,
            contest.b.name,
            contest.panel.data,
            contest.panel.assignment,
            signed(contest.difference),
            number(contest.t, 2),
            p_value(contest.p),
            p_value(contest.p_holm) if not contest.obstacle else contest.obstacle,
        )
        for contest in order
    ]
    header = ("a", "b", "data set", "assignment", "INJ of a - b", "t", "p", "p (Holm)")
    return Table("Paired t-tests over seeds", header, rows)


def all_rows(panels: Sequence[Panel]) -> tuple[Table, list[Row]]:
    """Every row with its scores, where its errors lie and what its features are like; and the rows in this order."""
    rows = [(panel, row) for panel in panels for row in panel.rows]
    keys = list(dict.fromkeys(key for panel in panels for key in statistics_of(panel)))
    table = [
        (
            row.series,
            row.layer if row.layered else "-",
            number(row.outcome.depth, 2) if row.layered else "-",
            panel.data,
            panel.assignment,
            *(number(row.outcome.scores[score]["mean"]) for score in SCORES),
            shown_interval(row.outcome.arm["inj"]),
            *_errors(row),
            number(row.outcome.arm["validation"]),
            *(_shown(row.outcome.features.get(key)) for key in keys),
            "report",
        )
        for panel, row in rows
    ]
    header = (
        *("encoder", "layer", "depth", "data set", "assignment", *SCORES.values(), "95% interval of INJ"),
        *("wrong support only", "wrong operation only", "both wrong", "validation", *map(name_of, keys), "result"),
    )
    return Table("All rows", header, table), [row for _, row in rows]


def _errors(row: Row) -> list[str]:
    complete = row.outcome.arm["inj"]["mean"] is not None
    return [number(share if complete else None) for share in row.outcome.errors]


def _shown(value: float | None) -> str:
    return f"{value:.3g}" if isinstance(value, int | float) else number(None)
