"""A run in a few lines: what was run, whether it can be trusted, and a row of scores for each arm.

What depends on the experiment (held-out cells or two edits) is in one table, `PRESENTATIONS`.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from soopf_jax.experiments.hints import hints
from soopf_jax.experiments.naming import encoder_of
from soopf_jax.experiments.options import PAPER_SIZES
from soopf_jax.report import tables
from soopf_jax.report.details import (
    FEATURE_TERMS,
    cells,
    combinations,
    feature_geometry,
    features,
    grid_search,
    readings,
    router,
    router_state,
    tests,
)
from soopf_jax.report.tables import Table
from soopf_jax.runtime.text import UNDEFINED, count, number, printable
from soopf_jax.scoring import metrics, statistics
from soopf_jax.scoring.metric_row import Column, Metric
from soopf_jax.types import Json

ASSIGNMENT = Column("assignment", lambda arm: arm["assignment"])
VALIDATION = Column("validation", lambda arm: number(arm["validation"]))
PROTOCOL_NOTES = {
    "full": "full protocol",
    "quick": "quick protocol, not the paper's {seeds} seeds, 5 restarts, 2,000 steps",
    "custom": "custom protocol, not the paper's {seeds} seeds, 5 restarts, 2,000 steps",
}


class Presentation(NamedTuple):
    """How the runs of one experiment are shown, apart from their metrics."""

    paper_seeds: int
    """The seeds of the paper's protocol."""
    fits: str
    """What was fitted: a format string with the fields `seeds`, `restarts` and `cells`, counts with their nouns."""
    last_columns: tuple[Column, ...]
    """Columns of the summary that follow those of the metrics."""
    last_terms: Mapping[str, str]
    """Entries of the glossary that follow those of the metrics."""
    details: tuple[Callable[[Json], Table | None], ...]
    """Tables of the result; None where a run has nothing to show in one."""
    fit_details: tuple[Callable[[Json, Mapping[str, np.ndarray]], Table], ...]
    """Tables of the result and its fits, on the page only."""


PRESENTATIONS = {
    metrics.HELD_OUT: Presentation(
        paper_seeds=PAPER_SIZES[metrics.HELD_OUT][0],
        fits="{seeds} x {cells} x {restarts}",
        last_columns=(),
        last_terms={"sees": "labels an arm may read beyond flat cell labels"},
        details=(cells, tests, grid_search, router, router_state, features, feature_geometry),
        fit_details=(readings,),
    ),
    metrics.TWO_EDITS: Presentation(
        paper_seeds=PAPER_SIZES[metrics.TWO_EDITS][0],
        fits="two edits, {seeds} x {restarts} on all {cells}",
        last_columns=(VALIDATION,),
        last_terms={"SD, 95% interval": statistics.INTERVAL_MEANING},
        details=(combinations, router, router_state, features, feature_geometry),
        fit_details=(),
    ),
}
"""By experiment."""


def presentation(config: Json) -> Presentation:
    """How a run of this configuration is shown."""
    return PRESENTATIONS[metrics.experiment_of(config)]


def metrics_of(config: Json) -> tuple[Metric, ...]:
    """The metrics that a run of this configuration shows."""
    return metrics.METRICS[metrics.experiment_of(config)]


# ------------------------------------------------------------------------------------------ what was run


def protocol_note(config: Json, protocol: str) -> str:
    """What the protocol is called and, unless it is the paper's, how it differs."""
    return PROTOCOL_NOTES[protocol].format(seeds=presentation(config).paper_seeds)


def headline(config: Json, protocol: str, n_cells: int) -> str:
    """One line: what was run and under which protocol."""
    source = config.get("features") or f"{config.get('dataset', 'table')}, {encoder_of(config)}"
    size = config["protocol"]
    fits = presentation(config).fits.format(
        seeds=count(size["seeds"], "seed"), restarts=count(size["restarts"], "restart"), cells=count(n_cells, "cell")
    )
    return f"{source}: {fits}, {count(size['steps'], 'step')} ({protocol_note(config, protocol)})"


def title(document: Json) -> str:
    """The headline of a finished run. If some of it cannot be trusted, it begins with a caveat."""
    grid = document["provenance"]["grid"]
    n_cells = len(grid["supports"]) * len(grid["operations"])
    return caveat(document) + headline(document["config"], document["protocol"], n_cells)


def caveat(document: Json) -> str:
    """`2 FITS FAILED, learned INCOMPLETE: `; empty where every fit can be trusted."""
    failed = sum(arm["failed_fits"] for arm in document["arms"])
    found = [f"{count(failed, 'fit').upper()} FAILED"] if failed else []
    scores = [main_score(document["config"], arm) for arm in document["arms"]]
    found += [f"{assignment} INCOMPLETE" for assignment, _, score in scores if score == UNDEFINED]
    return f"{', '.join(found)}: " if found else ""


# ----------------------------------------------------------------------------------- one row for each arm


def columns(config: Json) -> list[Column]:
    """The columns of the summary."""
    own = [column for row in metrics_of(config) for column in row.columns]
    return [ASSIGNMENT, *own, *presentation(config).last_columns]


def summary(document: Json) -> Table:
    """Every arm."""
    shown = columns(document["config"])
    rows = [tuple(column.show(arm) for column in shown) for arm in document["arms"]]
    return Table("Scores", tuple(column.header for column in shown), rows)


def main_score(config: Json, arm: Json) -> tuple[str, str, str]:
    """(assignment, name, value) of an arm's first score."""
    assignment, score, *_ = columns(config)
    return assignment.show(arm), score.header, score.show(arm)


def glossary(config: Json) -> dict[str, str]:
    """What the columns of the summary mean: term -> meaning."""
    own = {term: meaning for row in metrics_of(config) for term, meaning in row.glossary.items()}
    return own | dict(presentation(config).last_terms) | dict(FEATURE_TERMS.values())


def chance(document: Json) -> str:
    """`INJ 0.111, recovery 0.402`: what guessing scores."""
    levels = document["provenance"]["chance"]
    known = [row for row in metrics_of(document["config"]) if row.chance]
    return ", ".join(f"{row.name} {number(levels.get(row.key))}" for row in known)


# ------------------------------------------------------------------------------------------- the whole run


def details(document: Json) -> list[Table]:
    """The tables that follow the summary."""
    made = (make(document) for make in presentation(document["config"]).details)
    return [table for table in made if table is not None]


def text(document: Json, width: int | None = None) -> str:
    """The whole run for the terminal. The first line says if some of it cannot be trusted.

    Args:
        document: The result.
        width: How wide the tables may be; None: as wide as they are.
    """
    scores = summary(document)._replace(title=printable(title(document)))
    lines = [
        tables.text(scores, width),
        f"chance: {chance(document)}",
        *(f"\n{tables.text(table, width)}" for table in details(document)),
        *(printable(f"warning: {warning}") for warning in document["warnings"]),
    ]
    return "\n".join(lines)


def advice(document: Json) -> str:
    """The hints for the terminal, a line each and the page that says more; empty where nothing looks odd."""
    return "\n".join(f"hint: {printable(hint.text)}\n      see {hint.link}" for hint in hints(document))
