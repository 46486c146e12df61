"""Makes every table of results in the documentation: `make results` does the missing runs and writes the pages.

A page marks the place of a table with `<!-- results NAME -->` and `<!-- end -->`. What stands between the two comes
from a file in docs/evidence, never from a keyboard. What was not run is left out, and the table says so.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import throughput
from docs import choices_figure, layers_figure
from docs.benchmark_tables import SPEED
from docs.evidence import Found, ResultTable, carry_out, read
from docs.result_tables import ENCODERS, LAYERS, OF_FIGURE, STUDIES, TABLES
from soopf_jax.errors import unknown_name
from soopf_jax.report import tables
from soopf_jax.runtime import atomic, cli
from soopf_jax.studies.rows import Obstacle, Places

ROOT = Path(__file__).parent.parent
PAGES = (
    "README.md",
    *(f"docs/{page}.md" for page in ("results", "choices", "assignments", "speed", "studies", "gpu")),
)


@dataclass(frozen=True)
class Results:
    """Do the runs behind the documentation's tables and write the tables into the pages."""

    only: tuple[str, ...] = ()
    """Tables whose runs to do; by default all. Every table is written."""
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
        for source in TABLES[name].sources:
            if asked.again or isinstance(read(source), Obstacle):
                carry_out(source, places)
    found = {source: read(source) for table in TABLES.values() for source in table.sources}
    for page in PAGES:
        path = ROOT / page
        atomic.write_bytes(path, filled(path.read_text(), found).encode())
    draw_figures(found)
    print("\n".join(missing_runs(found)), file=sys.stderr)


def draw_figures(found: Found) -> None:
    """The figures of the studies that are complete."""
    if not any(number_missing(TABLES[name], found) for name in OF_FIGURE):
        studies = [(ENCODERS.get(encoder, encoder), default) for encoder, default in STUDIES.items()]
        choices_figure.draw(studies, found, ROOT / "assets")
    layers = found[LAYERS]
    if not isinstance(layers, Obstacle):
        layers_figure.draw(layers["rows"], ENCODERS, ROOT / "assets")
    speed = found[SPEED]
    if not isinstance(speed, Obstacle):
        throughput.plot(speed).savefig(ROOT / "assets" / "speed.png")


def filled(page: str, found: Found) -> str:
    """The page with every table that it has a place for."""
    for name, table in TABLES.items():
        begin, end = f"<!-- results {name} -->\n", "<!-- end -->"
        before, found_begin, rest = page.partition(begin)
        if found_begin:
            _, found_end, after = rest.partition(end)
            page = f"{before}{begin}\n{shown(table, found)}\n\n{found_end}{after}"
    return page


def shown(table: ResultTable, found: Found) -> str:
    """A table as Markdown. What was not run is left out, and the table says so."""
    of_table = {source: found[source] for source in table.sources}
    missing = number_missing(table, found)
    made = tables.markdown(table.show(of_table)) if missing < len(of_table) else ""
    told = f"{missing} of {len(of_table)} runs of this table were not done." if missing else ""
    return "\n\n".join(filter(None, (made, told)))


def number_missing(table: ResultTable, found: Found) -> int:
    """How many sources of a table have no result."""
    return sum(isinstance(found[source], Obstacle) for source in table.sources)


def missing_runs(found: Found) -> list[str]:
    """A line for every table that is not complete."""
    lines = []
    for name, table in TABLES.items():
        if missing := number_missing(table, found):
            lines.append(f"{name}: {missing} of {len(table.sources)} runs are missing")
    return lines


if __name__ == "__main__":
    sys.exit(main())
