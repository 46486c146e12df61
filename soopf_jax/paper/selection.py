"""Which runs the wanted tables need, and the tables that are made from their results.

In: names of tables, and the data sets and encoders that were asked for. Out: the runs with the tables that need them
and, after the runs, the tables.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from soopf_jax.experiments.options import Bench
from soopf_jax.paper import paper_tables, runs, sensitivity
from soopf_jax.paper.published import CONTRADICTIONS, SENSITIVITY, STAND_IN, Paper, PublishedArm
from soopf_jax.studies.rows import Obstacle
from soopf_jax.studies.sheets import Sheet
from soopf_jax.types import Json

DATASETS, ENCODERS = ("shapes3d-lite", "mujoco"), ("pixels",)
"""The defaults of the stand-ins and of the sensitivity study."""


class Selection(NamedTuple):
    """What was asked for; empty: everything, or the defaults above."""

    datasets: tuple[str, ...] = ()
    encoders: tuple[str, ...] = ()
    quick: bool = False


def wanted_runs(paper: Paper, names: Sequence[str], asked: Selection) -> dict[Bench, list[str]]:
    """The runs that the tables need, each once, with the tables that need it."""
    by_row = runs.paper_runs(paper, asked.quick)
    wanted: dict[Bench, list[str]] = {}
    for name in names:
        if name == STAND_IN:
            needed = runs.stand_ins(paper, asked.datasets or DATASETS, asked.encoders or ENCODERS, asked.quick)
        elif name == SENSITIVITY:
            needed = [r for default in studies(asked) for r in sensitivity.study(default)]
        elif name == CONTRADICTIONS:
            needed = []
        else:
            needed = [by_row[entry.row.name] for entry in paper.tables[name].entries]
        for r in dict.fromkeys(needed):
            wanted.setdefault(r, []).append(name)
    return wanted


def studies(asked: Selection) -> list[Bench]:
    """The default run of each table of the sensitivity study."""
    return [
        sensitivity.default_run(dataset, encoder, asked.quick)
        for dataset in asked.datasets or DATASETS
        for encoder in asked.encoders or ENCODERS
    ]


def chosen(r: Bench, asked: Selection) -> bool:
    """Whether --dataset and --encoder let a run take place."""
    wanted = ((asked.datasets, r.dataset_name), (asked.encoders, r.encoder_name))
    return all(not names or name in names for names, name in wanted)


def make_sheets(name: str, paper: Paper, found: Mapping[Bench, Json | Obstacle], asked: Selection) -> list[Sheet]:
    """The tables of one name: one of the paper's, or one for each stand-in or study."""
    if name == STAND_IN:
        own = runs.stand_ins(paper, asked.datasets or DATASETS, asked.encoders or ENCODERS, asked.quick)
        by_pair: dict[tuple[str, str], list[Bench]] = {}
        for r in own:
            by_pair.setdefault((r.dataset_name, r.encoder_name), []).append(r)
        return [paper_tables.stand_in(*pair, {r: found[r] for r in group}) for pair, group in by_pair.items()]
    if name == SENSITIVITY:
        return [sensitivity.sheet(default, found) for default in studies(asked)]
    if name == CONTRADICTIONS:
        return [paper_tables.contradictions(paper)]
    by_row = runs.paper_runs(paper, asked.quick)

    def find(row: PublishedArm) -> Json | Obstacle:
        return found[by_row[row.name]]

    return [paper_tables.against_paper(paper, paper.tables[name], find)]
