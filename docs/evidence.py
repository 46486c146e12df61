"""What the tables of the documentation come from: results that are kept in docs/evidence, and the runs that make them.

A source is a run of the benchmark, or any other command that writes a file. Its file is kept under a name that says
what was run, so that every number can be traced, and so that a run is done once and not on every machine.
"""

import contextlib
import csv
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from soopf_jax import bench
from soopf_jax.errors import UserError
from soopf_jax.experiments.options import Bench, check
from soopf_jax.report.tables import Table
from soopf_jax.runtime import atomic
from soopf_jax.runtime.hashing import slug
from soopf_jax.studies.rows import Obstacle, Places, configuration, placed
from soopf_jax.studies.rows import folder as folder_of
from soopf_jax.types import Json

EVIDENCE = Path(__file__).parent / "evidence"
OUT = "{out}"
"""Stands for the folder of a command's output."""
NOT_RUN = Obstacle("not run")


class Command(NamedTuple):
    """A command of this repository that is not a run of the benchmark."""

    words: tuple[str, ...]
    """The module and its options. They name the evidence, so other options have other evidence."""
    file: str
    """The file that it writes, below its output folder."""
    to: tuple[str, ...] = ("--out", OUT)
    """Options that say where the output goes."""

    @property
    def name(self) -> str:
        """What makes it different from other commands."""
        return slug(" ".join(self.words))


Source = Bench | Command
Found = Mapping[Source, Json | Obstacle]
"""The result of every source, or why there is none."""


class ResultTable(NamedTuple):
    """A table of the documentation."""

    sources: Sequence[Source]
    """What it shows."""
    show: Callable[[Found], Table]


def only(found: Found) -> Json:
    """The result of the one source of a table."""
    (document,) = found.values()
    assert not isinstance(document, Obstacle)
    return document


def path(source: Source) -> Path:
    """Where the result of a source is kept."""
    if isinstance(source, Bench):
        return EVIDENCE / f"{folder_of(source)}.json"
    return EVIDENCE / f"{source.name}{Path(source.file).suffix}"


def read(source: Source) -> Json | Obstacle:
    """The result of a source. That of a run must have the choices which its options stand for today.

    Returns:
        A result.json or another JSON document; of a CSV file `{"rows": [a dictionary for each row]}`.
    """
    kept = path(source)
    if not kept.exists():
        return NOT_RUN
    if kept.suffix == ".csv":
        return {"rows": list(csv.DictReader(kept.read_text().splitlines()))}
    document: Json = json.loads(kept.read_bytes())
    if isinstance(source, Bench) and not configuration(source).items() <= document["config"].items():
        return NOT_RUN
    return document


def carry_out(source: Source, places: Places) -> None:
    """Run a source and keep its result. One that cannot be run here is reported, and the others go on."""
    print(path(source).stem, file=sys.stderr, flush=True)
    try:
        made = run(source, places) if isinstance(source, Bench) else call(source, places)
    except UserError as error:
        print(f"not run: {error}", file=sys.stderr)
        return
    EVIDENCE.mkdir(exist_ok=True)
    atomic.write_bytes(path(source), made.read_bytes())


def run(source: Bench, places: Places) -> Path:
    """Do a run. Returns its result.json."""
    with contextlib.redirect_stdout(sys.stderr):
        bench.run(check(placed(source, places)))
    return places.runs / folder_of(source) / "result.json"


def call(source: Command, places: Places) -> Path:
    """Start a command. Returns the file that it has written.

    Raises:
        UserError: It has failed.
    """
    out = places.runs / source.name
    out.mkdir(parents=True, exist_ok=True)
    words = [word.replace(OUT, str(out)) for word in (*source.words, *source.to)]
    ended = subprocess.run([sys.executable, "-m", *words], stdout=sys.stderr, cwd=Path(__file__).parent.parent)
    if ended.returncode:
        raise UserError(f"python -m {' '.join(words)} ended with {ended.returncode}")
    return out / source.file
