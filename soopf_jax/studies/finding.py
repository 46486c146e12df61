"""What a study found, in one sentence that rules make from numbers.

Layers are chosen by validation accuracy and never by the score that is told. Nothing in the sentence is a test of
significance; the page has those.
"""

from collections.abc import Sequence

from soopf_jax.report.findings import FEW_SEEDS, listed
from soopf_jax.runtime.text import count, number
from soopf_jax.studies.grouping import Panel, Row, by_data, selected_row


def finding(panels: Sequence[Panel]) -> str:
    """The sentence about a study, with a full stop; empty if no row is complete."""
    rows = [row for panel in panels for row in panel.complete]
    if not rows:
        return ""
    groups = by_data(panels)
    clauses = [clause for data, group in groups.items() for clause in best_of(data if len(groups) > 1 else "", group)]
    text = "; ".join([*clauses, *better_axis(rows), *few_seeds(rows)])
    return f"{text[0].upper()}{text[1:]}."


def best_of(data: str, panels: Sequence[Panel]) -> list[str]:
    """The best series and assignment on a data set, each at the layer with its best validation accuracy."""
    series = [
        complete
        for panel in panels
        for rows in panel.series.values()
        if (complete := [row for row in rows if row in panel.complete])
    ]
    if not series:
        return []
    chosen = [(selected_row(rows), len(rows)) for rows in series]
    best, n_layers = max(chosen, key=lambda each: each[0].outcome.arm["inj"]["mean"])
    inj, guess = best.outcome.arm["inj"], 1 / best.outcome.grid.n_cells
    place = f"on {data}, " if data else ""
    if (inj["mean"] if inj["ci95"] is None else inj["ci95"][0]) <= guess:
        return [
            f"{place}no row reads held-out cells better than chance "
            f"(INJ is at best {number(inj['mean'], 2)}, chance {number(guess, 2)})"
        ]
    among = "is best" if len(chosen) > 1 else "reads held-out cells"
    subject = f"{best.outcome.assignment} assignment on {best.series}"
    return [
        f"{place}{subject} {among}{depth_of(best, n_layers)}: INJ {number(inj['mean'], 2)} (chance {number(guess, 2)})"
    ]


def depth_of(row: Row, n_layers: int) -> str:
    """` at relative depth 0.58 (layer 7)`, and how it was chosen from several layers; nothing for a series that is read
    at its output only."""
    if not row.layered:
        return ""
    where = "its output" if row.outcome.layer is None else f"relative depth {row.outcome.depth:.2f} ({row.layer})"
    why = ", the layer with the best validation accuracy" if n_layers > 1 else ""
    return f" at {where}{why}"


def better_axis(rows: Sequence[Row]) -> list[str]:
    """Which of supports and operations is read better, and in how many rows."""
    more = [float(row.outcome.support.mean() - row.outcome.operation.mean()) for row in rows]
    supports, operations = sum(m > 0 for m in more), sum(m < 0 for m in more)
    if supports == operations:
        return []
    better, worse, n = (
        ("supports", "operations", supports) if supports > operations else ("operations", "supports", operations)
    )
    where = "everywhere" if n == len(rows) else f"in {n} of {len(rows)} rows"
    return [f"{better} are read better than {worse} {where}"] if len(rows) > 1 else [f"{better} are read better"]


def few_seeds(rows: Sequence[Row]) -> list[str]:
    """A warning if there are few seeds."""
    fewest = min(len(row.outcome.inj) for row in rows)
    return [f"measured with {count(fewest, 'seed')} only"] if fewest < FEW_SEEDS else []


def subjects(panels: Sequence[Panel]) -> str:
    """`shapes3d-lite and mujoco: random-vit-s and pixels`; numbers where there are many."""
    data = list(by_data(panels))
    series = list(dict.fromkeys(row.series for panel in panels for row in panel.rows))
    words = [
        listed(names) if len(names) <= 4 else count(len(names), noun)
        for names, noun in ((data, "data set"), (series, "encoder"))
    ]
    return ": ".join(words)
