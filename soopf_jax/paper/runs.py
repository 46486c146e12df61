"""From rows of the paper to runs of `soopf_jax.bench`.

Rows that differ only in their assignment are one run with several arms. A run has all arms that the paper has for its
setting, whichever table asks for it. Tables can therefore share runs.
"""

from collections.abc import Iterable, Sequence

from soopf_jax import plugins
from soopf_jax.experiments.options import Bench
from soopf_jax.paper.published import Paper, PublishedArm

THREE_OPERATIONS = ("hue", "invert", "pattern")


# ------------------------------------------------------------------------------------------- rows to runs


def paper_runs(paper: Paper, quick: bool = False) -> dict[str, Bench]:
    """The run that gives each row, by the row's name."""
    groups: dict[tuple, list[PublishedArm]] = {}
    for row in paper.rows.values():
        groups.setdefault(_setting(row), []).append(row)
    runs: dict[str, Bench] = {}
    for rows in groups.values():
        first = rows[0]
        run = Bench(
            first.dataset,
            first.encoder,
            readout=first.readout,
            assignment=_assignments(row.assignment for row in rows),
            objective=_objective(first.objective),
            operations=() if first.operations == THREE_OPERATIONS else first.operations,
            edits=first.edits,
            router=any(row.router for row in rows),
            quick=quick,
        )
        runs |= {row.name: run for row in rows}
    return runs


def _setting(row: PublishedArm) -> tuple:
    return row.dataset, row.encoder, row.readout, row.objective, row.operations, row.edits


def _assignments(named: Iterable[str]) -> tuple[str, ...]:
    """In the order of the plug-ins; empty for a probe, which has no choice."""
    found = set(named)
    return () if found == {"native"} else tuple(name for name in plugins.ASSIGNMENTS if name in found)


def _objective(name: str) -> str | None:
    """The value of --objective; None if leaving the option out means the same."""
    return None if name in ("core", "native") else name


def stand_ins(paper: Paper, datasets: Sequence[str], encoders: Sequence[str], quick: bool = False) -> list[Bench]:
    """The paper's arms on its 3 x 3 grid, for pairs of data set and encoder that are not in the paper.

    SO-OPF's own three assignments run under the full protocol unless `quick`. All other arms run under the quick one.
    """
    own = {(row.dataset, row.encoder) for row in paper.rows.values()}
    arms: dict[tuple[str, str], set[str]] = {}
    for row in paper.rows.values():
        if (row.operations, row.edits) == (THREE_OPERATIONS, "one"):
            arms.setdefault((row.readout, row.objective), set()).add(row.assignment)
    return [
        Bench(
            dataset,
            encoder,
            readout=readout,
            assignment=_assignments(named),
            objective=_objective(objective),
            quick=quick or (readout, objective) != ("soopf", "core"),
        )
        for dataset in datasets
        for encoder in encoders
        if (dataset, encoder) not in own
        for (readout, objective), named in arms.items()
    ]
