"""Does a statistic of the features go with INJ? The rank correlation over the rows of a panel.

In: a panel. Out: for every number that results keep of their features, its values and Spearman's rho. A statistic that
results gain is taken up without a change here; `FEATURE_TERMS` has the names for people.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy

from soopf_jax.report.details import FEATURE_TERMS
from soopf_jax.runtime.text import printable
from soopf_jax.studies.grouping import Panel, Row

MIN_ROWS = 5
"""Fewer rows give no rank correlation. Four rows are in the order of their scores by chance once in 24 times."""


class Statistic(NamedTuple):
    """A statistic of the features over the rows that have it."""

    name: str
    rows: tuple[Row, ...]
    values: tuple[float, ...]
    rho: float | None
    """Spearman's rank correlation with INJ; None with too few rows or if one of the two does not vary."""

    @property
    def shown(self) -> str:
        """`rho = +0.71, 12 rows`."""
        n = f"{len(self.rows)} row{'s' * (len(self.rows) != 1)}"
        if len(self.rows) < MIN_ROWS:
            return f"too few rows ({len(self.rows)})"
        return f"rho undefined, {n}" if self.rho is None else f"rho = {self.rho:+.2f}, {n}"


def statistics_of(panel: Panel) -> dict[str, Statistic]:
    """The statistics that some complete row of the panel has, by their names in results."""
    rows = panel.complete
    names = dict.fromkeys(name for row in rows for name, value in row.outcome.features.items() if _is_number(value))
    found = {}
    for key in names:
        having = tuple(row for row in rows if _is_number(row.outcome.features.get(key)))
        values = tuple(float(row.outcome.features[key] or 0.0) for row in having)
        scores = [row.outcome.arm["inj"]["mean"] for row in having]
        found[key] = Statistic(name_of(key), having, values, spearman(values, scores))
    return found


def name_of(key: str) -> str:
    """What people call a statistic of the features; its name in results if there is no other."""
    return FEATURE_TERMS[key][0] if key in FEATURE_TERMS else printable(key).replace("_", " ")


def spearman(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Spearman's rank correlation; None below MIN_ROWS values or if all values of one side are equal."""
    if len(a) < MIN_ROWS or len(set(a)) == 1 or len(set(b)) == 1:
        return None
    return float(scipy.stats.spearmanr(a, b).statistic)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))
