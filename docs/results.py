"""Makes every table of results in the documentation: `make results` does the missing runs and writes the pages.

A page marks the place of a table with `<!-- results NAME -->` and `<!-- end -->`. What stands between the two comes
from the result.json of a run, never from a keyboard. These files are kept in docs/evidence, so that every number can be
traced, and so that a run is done once and not on every machine. A run that was not done is left out, and the table says
so.
"""

import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from docs.choices_figure import draw
from soopf_jax import bench
from soopf_jax.errors import UserError, unknown_name
from soopf_jax.experiments.naming import with_caveat
from soopf_jax.experiments.options import Bench, check, record
from soopf_jax.paper import published, sensitivity
from soopf_jax.report import tables
from soopf_jax.report.tables import Table
from soopf_jax.runtime import atomic, cli
from soopf_jax.runtime.text import number
from soopf_jax.scoring.statistics import score_interval, shown_interval
from soopf_jax.studies.rows import Obstacle, Places, placed
from soopf_jax.studies.rows import folder as folder_of
from soopf_jax.types import Json

ROOT = Path(__file__).parent.parent
EVIDENCE = ROOT / "docs" / "evidence"
"""The result.json of every run, named after its folder."""
PAGES = ("README.md", "docs/results.md", "docs/choices.md")
VIT = "hf:../shared/encoders/vits14-imgfocus"
ENCODERS = {VIT: "ViT-S/14"}
"""Encoders that tables call by another name."""
NOT_RUN = Obstacle("not run")
Found = Mapping[Bench, Json | Obstacle]


class ResultTable(NamedTuple):
    """A table of the documentation."""

    runs: Sequence[Bench]
    """The runs that it shows."""
    show: Callable[[Found], Table]


# ------------------------------------------------------------------------------------------------- what was run

DEFAULT = Bench()
FULL = ("factorial", "learned")
"""The arms of the full protocol on a real encoder."""
FULL_VIT = [Bench(dataset, VIT, readout="soopf", assignment=FULL) for dataset in ("shapes3d-lite", "mujoco")]
WIDE = Bench(
    "shapes3d-lite", assignment=FULL, operations=("hue", "invert", "pattern", "brightness", "blur"), quick=True
)
WIDE_GRID = [WIDE, replace(WIDE, encoder=VIT, pairs_per_cell=100)]
TWO_EDITS = [Bench("shapes3d-lite", encoder, assignment=("factorial",), edits="two") for encoder in ("pixels", VIT)]
COCO = [Bench("coco:val2017", VIT, assignment=FULL, pairs_per_cell=7, quick=True, seeds=10)]
READOUTS = {
    "soopf": ("factorial", "learned", "compressed"), "dense": ("factorial",), "bilinear": ("factorial",),
    "bilinear-positive": ("factorial",),
    "mlp": (), "mlp-scaled": (), "attention": (), "attention-scaled": (), "oracle": (), "oracle-scaled": (),
}  # fmt: skip
"""Readouts and their arms; a probe has one."""
ALL_READOUTS = [
    Bench(dataset, encoder, readout=readout, assignment=assignment, quick=True, pairs_per_cell=pairs)
    for dataset in ("shapes3d-lite", "mujoco")
    for encoder, pairs in (("pixels", 0), ("random-vit-s", 120))
    for readout, assignment in READOUTS.items()
]
STUDIES = {
    encoder: sensitivity.default_run("shapes3d-lite", encoder, quick=False)
    for encoder in (VIT, "random-vit-s", "pixels")
}
"""The runs with all choices at their defaults, ten seeds each."""
ROUTER_CHOICES = (
    "SD of the router's queries", "router input", "router input and SD", "alignment", "preset", "source scale",
)  # fmt: skip
"""The choices for which the scale of an encoder's tokens matters. The others are studied with pixels alone."""


# ---------------------------------------------------------------------------------------------------- the tables

SCORES = (
    "INJ",
    "SD",
    "95% interval",
    "many-to-one",
    "gap",
    "min cell",
    "collapse .5",
    "recovery (exact)",
    "validation",
)


def scores(arm: Json, document: Json) -> tuple[str, ...]:
    """The columns `SCORES` of an arm. The interval is made as this version makes it, whichever version did the run."""
    interval = score_interval(np.array(arm["inj"]["per_seed"], float), document["provenance"]["pairs"])
    recovery = f"{number(arm['recovery'])} ({number(arm['exact_recovery'])})" if arm["recovery"] is not None else "n/a"
    return (
        *(number(arm["inj"]["mean"]), number(arm["inj"]["sd"]), shown_interval(interval)),
        *(number(arm["non_injective"]["mean"]), number(arm["laundering_gap"]), number(arm["min_cell"])),
        *(number(arm["collapse"]["0.5"]), recovery, number(arm["validation"])),
    )


def arms_table(labels: Mapping[str, Callable[[Bench, Json], str]]) -> Callable[[Found], Table]:
    """A table with a row for every arm of every run, and these columns before the scores."""

    def show(found: Found) -> Table:
        rows = [
            (*(label(run, arm) for label in labels.values()), *scores(arm, document))
            for run, document in finished(found)
            for arm in document["arms"]
        ]
        return Table("", (*labels, *SCORES), rows)

    return show


def finished(found: Found) -> Iterable[tuple[Bench, Json]]:
    """The runs that were done."""
    return ((run, document) for run, document in found.items() if not isinstance(document, Obstacle))


ASSIGNMENT = {"assignment": lambda run, arm: arm["assignment"]}
DATASET = {"data set": lambda run, arm: run.dataset_name}
ENCODER = {"encoder": lambda run, arm: ENCODERS.get(run.encoder_name, run.encoder_name)}
READOUT = {"readout": lambda run, arm: with_caveat(run.readout_name, run.readout_name)}


def cells(found: Found) -> Table:
    """INJ of each held-out cell of one run."""
    ((_, document),) = finished(found)
    arms = document["arms"]
    rows = [
        (name, *(number(arm["inj"]["per_cell"][name]) for arm in arms), number(document["provenance"]["chance"]["inj"]))
        for name in arms[0]["inj"]["per_cell"]
    ]
    return Table("", ("held-out cell", *(arm["assignment"] for arm in arms), "chance"), rows)


def alignments(found: Found) -> Table:
    """INJ of the same fits under every alignment."""
    rows = [
        (run.dataset_name, ENCODERS.get(run.encoder_name, run.encoder_name), arm["assignment"],
         *(number(arm["inj_by_alignment"][name]["mean"]) for name in ("raw", "soft", "hard")))
        for run, document in finished(found)
        for arm in document["arms"]
    ]  # fmt: skip
    return Table("", ("data set", "encoder", "assignment", "raw", "soft", "hard"), rows)


def beside_the_paper(found: Found) -> Table:
    """The full protocol on a real encoder, with the paper's numbers for its own data and encoder."""
    printed: dict[tuple[str, str], float] = {}
    for row, score, value in published.load().scores():
        if (row.encoder, row.readout, row.objective, score) == ("dinov3", "soopf", "core", "inj"):
            printed.setdefault((row.dataset, row.assignment), value.value)  # the headline table comes first
    rows = [
        (
            run.dataset_name,
            arm["assignment"],
            *scores(arm, document),
            paper_value(printed, run.dataset_name, arm["assignment"]),
        )
        for run, document in finished(found)
        for arm in document["arms"]
    ]
    return Table("", ("data set", "assignment", *SCORES, "the paper's INJ, DINOv3-L"), rows)


def paper_value(printed: Mapping[tuple[str, str], float], dataset: str, assignment: str) -> str:
    """`0.874 (Shapes3D)`: what the paper has for the data set that ours stands for."""
    original = dataset.removesuffix("-lite")
    return f"{number(printed.get((original, assignment)))} ({original})"


def two_edits(found: Found) -> Table:
    """Every score of the experiment with two edits, a row per encoder."""
    names = {
        "joint": "joint", "at_least_one": "at least one", "support_pair": "support pair",
        "support_pair_of_top_two": "pair of top two",
    }  # fmt: skip
    rows = []
    for run, document in finished(found):
        score, chance = document["arms"][0]["two_edits"], document["provenance"]["chance"]
        means = (f"{number(score[key]['mean'])} (chance {number(chance[key])})" for key in names)
        encoder = ENCODERS.get(run.encoder_name, run.encoder_name)
        rows.append((encoder, *means, number(score["joint"]["sd"]), number(document["arms"][0]["validation"])))
    return Table("", ("encoder", *names.values(), "SD of joint", "validation"), rows)


def study(encoder: str, names: Sequence[str] = ()) -> ResultTable:
    """One table of the sensitivity study, with all choices or with those of these names only."""
    default = STUDIES[encoder]
    chosen = [choice for choice in sensitivity.CHOICES if not names or choice.name in names]
    wanted = list(dict.fromkeys([default, *(sensitivity.changed_run(default, choice) for choice in chosen)]))

    def show(found: Found) -> Table:
        everything = dict.fromkeys(sensitivity.study(default), NOT_RUN) | dict(found)
        table = sensitivity.sheet(default, everything).table
        return table._replace(title="", rows=[row for row in table.rows if not row[-1].startswith("not run")])

    return ResultTable(wanted, show)


TABLES = {
    "default": ResultTable([DEFAULT], arms_table(ASSIGNMENT)),
    "cells": ResultTable([DEFAULT], cells),
    "full": ResultTable(FULL_VIT, beside_the_paper),
    "mujoco": ResultTable([Bench("mujoco")], arms_table(ASSIGNMENT)),
    "two-edits": ResultTable(TWO_EDITS, two_edits),
    "grid": ResultTable(WIDE_GRID, arms_table(ENCODER | ASSIGNMENT)),
    "coco": ResultTable(COCO, arms_table(ASSIGNMENT)),
    "study-vit": study(VIT, ROUTER_CHOICES),
    "study-random": study("random-vit-s", ROUTER_CHOICES),
    "study-pixels": study("pixels"),
    "readouts": ResultTable(ALL_READOUTS, arms_table(DATASET | ENCODER | READOUT | ASSIGNMENT)),
    "alignments": ResultTable([DEFAULT, Bench("mujoco"), *FULL_VIT], alignments),
}
"""By name, in the order in which their runs are done."""
OF_FIGURE = ("study-vit", "study-random", "study-pixels")
"""The tables whose runs the figure of the sensitivity study shows. Like a table, it is made when it is complete."""


# -------------------------------------------------------------------------------------------- runs and pages


@dataclass(frozen=True)
class Results:
    """Do the runs behind the documentation's tables and write the tables into the pages."""

    only: tuple[str, ...] = ()
    """Tables whose runs to do; by default all. Every table whose runs are all in docs/evidence is written."""
    runs: str = "runs/results"
    """Where result folders are written."""
    data_root: str = "../shared/coco-mini"
    """Folder of COCO."""
    again: bool = False
    """Do runs again although docs/evidence has them."""
    dry_run: bool = False
    """Run nothing: write the pages from what is there."""


def main(args: Sequence[str] | None = None) -> int:
    """Parse the command line, run and write. Returns the exit code."""
    return cli.run(lambda: run(cli.parse(Results, "docs.results", args, Results())))


def run(asked: Results) -> None:
    """Do the runs that are missing, then write every table.

    Raises:
        UserError: There is no such table.
    """
    places = Places(Path(asked.runs), asked.data_root)
    for name in asked.only:
        if name not in TABLES:
            raise unknown_name("table", name, TABLES)
    for name in () if asked.dry_run else asked.only or TABLES:
        for wanted in TABLES[name].runs:
            if asked.again or isinstance(read(wanted), Obstacle):
                carry_out(wanted, places)
    found = {wanted: read(wanted) for table in TABLES.values() for wanted in table.runs}
    for page in PAGES:
        path = ROOT / page
        atomic.write_bytes(path, filled(path.read_text(), found).encode())
    if not any(number_missing(TABLES[name], found) for name in OF_FIGURE):
        studies = [(ENCODERS.get(encoder, encoder), default) for encoder, default in STUDIES.items()]
        draw(studies, found, ROOT / "assets")
    print("\n".join(missing_runs(found)), file=sys.stderr)


def carry_out(wanted: Bench, places: Places) -> None:
    """Do a run and keep its result.json. One that cannot be done here is reported, and the others go on."""
    print(folder_of(wanted), file=sys.stderr, flush=True)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            bench.run(check(placed(wanted, places)))
    except UserError as error:
        print(f"not run: {error}", file=sys.stderr)
        return
    EVIDENCE.mkdir(exist_ok=True)
    atomic.write_bytes(evidence(wanted), (places.runs / folder_of(wanted) / "result.json").read_bytes())


def evidence(wanted: Bench) -> Path:
    """Where the result.json of a run is kept."""
    return EVIDENCE / f"{folder_of(wanted)}.json"


def read(wanted: Bench) -> Json | Obstacle:
    """The result of a run, if it was done with the choices that these options have today."""
    if not evidence(wanted).exists():
        return NOT_RUN
    document: Json = json.loads(evidence(wanted).read_bytes())
    today = record(wanted, ())
    return document if today.items() <= document["config"].items() else NOT_RUN


def filled(page: str, found: Found) -> str:
    """The page with every table that it has a place for and whose runs are all there."""
    for name, table in TABLES.items():
        if number_missing(table, found):
            continue
        of_table = {wanted: found[wanted] for wanted in table.runs}
        begin, end = f"<!-- results {name} -->\n", "<!-- end -->"
        before, found_begin, rest = page.partition(begin)
        if found_begin:
            _, found_end, after = rest.partition(end)
            page = f"{before}{begin}\n{tables.markdown(table.show(of_table))}\n\n{found_end}{after}"
    return page


def number_missing(table: ResultTable, found: Found) -> int:
    """How many runs of a table were not done."""
    return sum(isinstance(found[wanted], Obstacle) for wanted in table.runs)


def missing_runs(found: Found) -> list[str]:
    """A line for every table that cannot be written yet."""
    lines = []
    for name, table in TABLES.items():
        if missing := number_missing(table, found):
            lines.append(f"{name}: {missing} of {len(table.runs)} runs are missing; the table stays as it is")
    return lines


if __name__ == "__main__":
    sys.exit(main())
