"""The tables of results in the documentation: what was run for each of them, and what it shows.

In: the result of every source of a table, or why there is none. Out: a table, whose place on a page has its name.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from benchmarks import assignments as compared
from docs import benchmark_tables, matching_tables
from docs.evidence import NOT_RUN, Command, Found, ResultTable, only
from soopf_jax.experiments.naming import with_caveat
from soopf_jax.experiments.options import Bench
from soopf_jax.paper import published, sensitivity
from soopf_jax.report import census as report
from soopf_jax.report.tables import Table
from soopf_jax.runtime.text import number
from soopf_jax.scoring.statistics import score_interval, shown_interval
from soopf_jax.studies.rows import Obstacle
from soopf_jax.types import Json

VIT = compared.VIT
ENCODERS = {VIT: "ViT-S/14"}
"""Encoders that tables call by another name."""


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
    for dataset, encoder, pairs in (
        *(("shapes3d-lite", "pixels", 0), ("mujoco", "pixels", 0), ("shapes3d-lite", "random-vit-s", 120)),
    )
    for readout, assignment in READOUTS.items()
]
SHORT = {"restarts": 1, "steps": 300}
"""The protocol of the study with ViTs, beside its ten seeds; a step with a ViT takes ten times as long as one with
pixels."""
STUDIES = {
    encoder: replace(sensitivity.default_run("shapes3d-lite", encoder, quick=False), **size)
    for encoder, size in ((VIT, SHORT), ("random-vit-s", SHORT), ("pixels", {}))
}
"""The runs with all choices at their defaults, ten seeds each."""
ROUTER_CHOICES = (
    "SD of the router's queries", "router input", "router input and SD", "alignment", "preset", "source scale",
)  # fmt: skip
"""The choices for which the scale of an encoder's tokens matters. The others are studied with pixels alone."""
ASSIGNMENTS = {pair: compared.runs_of(pair, compared.Options()) for pair in compared.PAIRS}
"""The runs of every pair of data set and encoder on which assignments are compared."""
MODULE = "benchmarks.assignments_tried"
TRIED = {
    pair: compared.runs_of(
        pair,
        compared.Options(
            assignments=("learned", "matched", f"{MODULE}:SLOW", f"{MODULE}:FROM_MATCHED"), equal_budget=False
        ),
    )
    for pair in compared.PAIRS
    if pair.endswith("/pixels")
}
"""The same, for assignments that were tried and are not offered."""
LAYERS = Command(("soopf_jax", "study", "examples/layers.toml"), "study.csv")
CENSUSES = {
    (dataset, encoder): Command(
        ("soopf_jax", "census", "--dataset", dataset, "--encoder", encoder, "--sample", "23", *size), "census.json"
    )
    for encoder, size in (("pixels", ("--seeds", "5")), (VIT, ("--seeds", "1", "--pairs-per-cell", "120")))
    for dataset in ("shapes3d-lite", "mujoco")
}
"""By data set and encoder. A grid of 3 x 3 has 36 neighbours of the true one, so 60 grids are in each."""


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
    done = ((run, document) for run, document in found.items() if not isinstance(document, Obstacle))
    return ((run, document) for run, document in done if isinstance(run, Bench))


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


def _missing(document: Json | Obstacle) -> bool:
    return isinstance(document, Obstacle)


def of_pairs(
    show: Callable[[Mapping[str, compared.Compared]], Table], by_pair: Mapping[str, Sequence[Bench]]
) -> ResultTable:
    """A table that compares assignments on all pairs of data set and encoder of which all runs are there."""

    def shown(found: Found) -> Table:
        documents = {pair: [found[run] for run in runs] for pair, runs in by_pair.items()}
        complete = {pair: found for pair, found in documents.items() if not any(map(_missing, found))}
        return show({pair: compared.compared(found) for pair, found in complete.items()})

    return ResultTable([run for runs in by_pair.values() for run in runs], shown)


def census(found: Found) -> Table:
    """Where the true grid ranks, by both criteria."""
    documents = {names: found[source] for names, source in CENSUSES.items()}
    tables = {names: report.summary(document) for names, document in documents.items() if not _missing(document)}
    (header,) = {table.header for table in tables.values()}
    rows = [
        (dataset, ENCODERS.get(encoder, encoder), *row)
        for (dataset, encoder), table in tables.items()
        for row in table.rows
    ]
    return Table("", ("data set", "encoder", *header), rows)


def layers(found: Found) -> Table:
    """A row for every encoder and layer, the data sets side by side."""
    document = only(found)
    by_reading: dict[tuple[str, str], dict[str, Json]] = {}
    for row in document["rows"]:
        encoder = ENCODERS.get(row["encoder"], row["encoder"])
        by_reading.setdefault((encoder, row["layer"]), {})[row["dataset"]] = row
    datasets = list(dict.fromkeys(row["dataset"] for row in document["rows"]))
    columns = {
        "inj": "INJ", "support_accuracy": "support alone", "operation_accuracy": "operation alone",
        "change_inside": "change inside", "what_additive_r2": "additive R2 of what",
    }  # fmt: skip
    rows = [
        (*reading, *(two_digits(by_dataset[dataset][key]) for key in columns for dataset in datasets))
        for reading, by_dataset in by_reading.items()
    ]
    header = (f"{name}, {dataset}" for name in columns.values() for dataset in datasets)
    return Table("", ("encoder", "layer", *header), rows)


def two_digits(value: str) -> str:
    """A number of a CSV file as a table shows it."""
    return number(float(value), 2) if value else "-"


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
    "layers": ResultTable([LAYERS], layers),
    "assignments": of_pairs(compared.scores, ASSIGNMENTS),
    "assignments-tests": of_pairs(compared.paired_tests, ASSIGNMENTS),
    "assignments-tried": of_pairs(compared.scores, TRIED),
    "census": ResultTable(list(CENSUSES.values()), census),
    **matching_tables.TABLES,
    **benchmark_tables.TABLES,
}
"""By name, in the order in which their runs are done."""
OF_FIGURE = ("study-vit", "study-random", "study-pixels")
"""The tables whose runs the figure of the sensitivity study shows. Like a table, it is made when it is complete."""
