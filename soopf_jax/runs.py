"""From rows of the paper to commands of `soopf_jax.bench`.

Rows that differ in their assignment alone are one run with several arms, and a run has all the arms that the paper has
for its setting, whichever table asks: so tables share runs, today and tomorrow.
"""

import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from soopf_jax import plugins
from soopf_jax.paper import Paper, Row

THREE_OPERATIONS = ("hue", "invert", "pattern")
ORIGINALS = ("shapes3d", "coco")
"""Data sets that are read from --data-root."""


class Run(NamedTuple):
    """One command of `soopf_jax.bench`."""

    dataset: str
    encoder: str
    readout: str = "soopf"
    objective: str = "core"
    assignments: tuple[str, ...] = ("factorial", "learned", "compressed")
    operations: tuple[str, ...] = THREE_OPERATIONS
    edits: str = "one"
    router: bool = False
    quick: bool = False
    more: tuple[str, ...] = ()
    """Further options."""


class Obstacle(NamedTuple):
    """Why a run does not take place."""

    reason: str
    """`needs 3dshapes.h5`, `about 9.1 h here`."""
    remedies: tuple[str, ...] = ()
    """What to do about it, each in a line that can stand alone."""


class Places(NamedTuple):
    """Where things are."""

    runs: Path
    """Result folders."""
    data_root: str
    """Original data sets."""
    cache_dir: str = ""
    """Features; empty: the user's cache folder."""


# ------------------------------------------------------------------------------------------- rows to runs


def paper_runs(paper: Paper, quick: bool = False) -> dict[str, Run]:
    """The run that gives each row, by the row's name."""
    groups: dict[tuple, list[Row]] = {}
    for row in paper.rows.values():
        groups.setdefault(_setting(row), []).append(row)
    runs: dict[str, Run] = {}
    for rows in groups.values():
        first, named = rows[0], {row.assignment for row in rows}
        run = Run(
            first.dataset,
            first.encoder,
            first.readout,
            first.objective,
            tuple(name for name in plugins.ASSIGNMENTS if name in named),
            first.operations,
            first.edits,
            any(row.router for row in rows),
            quick,
        )
        runs |= {row.name: run for row in rows}
    return runs


def _setting(row: Row) -> tuple:
    return row.dataset, row.encoder, row.readout, row.objective, row.operations, row.edits


def stand_ins(paper: Paper, datasets: Sequence[str], encoders: Sequence[str], quick: bool = False) -> list[Run]:
    """Every arm that the paper has on its grid, on data and encoders that it has not.

    SO-OPF's own three assignments under the full protocol unless `quick`, all others under the quick one.
    """
    own = {(row.dataset, row.encoder) for row in paper.rows.values()}
    grids = [run for run in paper_runs(paper).values() if (run.operations, run.edits) == (THREE_OPERATIONS, "one")]
    arms: dict[tuple[str, str], set[str]] = {}
    for run in grids:
        arms.setdefault((run.readout, run.objective), set()).update(run.assignments)
    return [
        Run(
            dataset,
            encoder,
            readout,
            objective,
            tuple(name for name in plugins.ASSIGNMENTS if name in named),
            quick=quick or (readout, objective) != ("soopf", "core"),
        )
        for dataset in datasets
        for encoder in encoders
        if (dataset, encoder) not in own
        for (readout, objective), named in arms.items()
    ]


# ----------------------------------------------------------------------------------------- runs to commands


def options(run: Run) -> list[str]:
    """What decides the run, as options of `soopf_jax.bench`."""
    chosen = ["--dataset", run.dataset, "--encoder", run.encoder, "--readout", run.readout]
    if run.assignments != ("native",):  # probes have no other, and are told so by leaving it out
        chosen += ["--assignment", *run.assignments]
    if run.objective not in ("core", "native"):
        chosen += ["--objective", run.objective]
    if run.operations != THREE_OPERATIONS:
        chosen += ["--operations", *run.operations]
    if run.edits != "one":
        chosen += ["--edits", run.edits]
    return [*chosen, *["--router"] * run.router, *["--quick"] * run.quick, *run.more]


def folder(run: Run) -> str:
    """The name of its result folder: what makes it different from other runs."""
    words = [run.dataset, run.encoder, run.readout, *run.assignments, run.objective]
    words += [f"{len(run.operations)}-operations"] * (run.operations != THREE_OPERATIONS)
    words += [f"{run.edits}-edits"] * (run.edits != "one") + ["router"] * run.router + ["quick"] * run.quick
    return slug(" ".join([*dict.fromkeys(words), *run.more]))


def slug(name: str) -> str:
    """A name for a file or a folder."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.")


def arguments(run: Run, places: Places) -> list[str]:
    """The whole command line of `soopf_jax.bench`."""
    data = ["--data-root", places.data_root] if run.dataset in ORIGINALS else []
    cache_dir = ["--cache-dir", places.cache_dir] if places.cache_dir else []
    return [*options(run), *data, *cache_dir, "--out", str(places.runs / folder(run))]


def command(args: Iterable[str]) -> str:
    """As one types it."""
    return f"python -m soopf_jax.bench {shlex.join(args)}"
