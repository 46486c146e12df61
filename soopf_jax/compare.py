"""`python -m soopf_jax.compare RUN RUN ...`: is one run better than another, and by how much?

In: result folders that share grid, pairs, splits and seeds. The first is the reference. Out: paired tests, effect sizes
and the smallest detectable difference as text on stdout and, if asked for, as a page, as a figure or as JSON.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from soopf_jax.errors import UserError, unknown_name
from soopf_jax.experiments.compared_runs import ALLOW_PROTOCOL, SAME_PAIRS, SCORES, check_comparable, open_run
from soopf_jax.runtime import atomic, cli
from soopf_jax.scoring.metrics import NAMES

PROG = "soopf_jax.compare"
PLOTS = (".png", ".svg")

Output = Annotated[str, tyro.conf.arg(metavar="FILE")]


@dataclass(frozen=True)
class Compare:
    """Compare finished runs that share their splits.

    Differences are tested with a paired t and a paired bootstrap, both corrected by Holm, and shown with effect sizes
    and the smallest difference that the seeds could have shown.
    """

    runs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN[:ASSIGNMENT] ...")]
    """Result folders; the first is the reference. Arms with the same assignment are compared, or the arms that you
    pick: runs/x:factorial runs/x:learned."""
    score: Annotated[str, tyro.conf.arg(metavar="NAME")] = "INJ"
    """What is compared: INJ (one slot per value) or many-to-one. The names in result.json work too: inj,
    non_injective."""
    allow_protocol: bool = False
    """Compare although restarts, steps or other choices of the protocol differ; a note says which."""
    same_pairs: bool = False
    """Trust that the feature files hold the same pairs in the same order, although that cannot be checked."""
    wide: bool = False
    """Print every column of the tables, although the terminal is too narrow for them."""
    html: Output = ""
    """Write a self-contained page to this file: the figure of --plot and all tables."""
    plot: Output = ""
    """Draw the seeds of both arms and the intervals of their difference to this .png or .svg file."""
    json: Output = ""
    """Write all numbers to this file."""


def main(args: Sequence[str] | None = None) -> int:
    """Parse the command line and compare. Returns the exit code."""
    return cli.run(lambda: run(cli.parse(Compare, PROG, args)))


def run(options: Compare) -> None:
    """Compare the runs and print the tables.

    Raises:
        UserError: The runs cannot be read, or cannot be compared.
    """
    names = {NAMES[key]: key for key in SCORES}
    score = names.get(options.score, options.score)
    if score not in SCORES:
        raise unknown_name("score", options.score, (*names, *SCORES))
    if len(options.runs) < 2:
        raise UserError("nothing to compare with; name two result folders, or two arms as RUN:ASSIGNMENT")
    drawing = Path(options.plot)
    if options.plot and drawing.suffix not in PLOTS:
        raise UserError(f"--plot draws {' or '.join(PLOTS)} files, not {drawing.name}; change the ending of its name")
    outputs = [Path(name) for name in (options.html, options.plot, options.json) if name]
    for path in outputs:
        atomic.check_writable(path)
    runs = [open_run(text) for text in options.runs]
    given = {SAME_PAIRS: options.same_pairs, ALLOW_PROTOCOL: options.allow_protocol}
    allowed = [option for option, is_given in given.items() if is_given]
    notes = [note for other in runs[1:] for note in check_comparable(runs[0], other, allowed)]
    from soopf_jax.experiments.comparison import compare  # imports scipy, which the mistakes above do not need
    from soopf_jax.report import comparison, comparison_plot, figures, tables

    document = compare(runs, score, notes)
    if options.html:
        atomic.write_bytes(Path(options.html), comparison.page(document).encode())
    if options.plot:
        atomic.write_bytes(drawing, figures.render(comparison_plot.plot_of(document))[drawing.suffix[1:]])
    if options.json:
        atomic.write_bytes(Path(options.json), (json.dumps(document, indent=1, allow_nan=False) + "\n").encode())
    width = tables.terminal_width(options.wide)
    shown = [tables.text(table, width) for table in comparison.all_tables(document)]
    print("\n\n".join([*shown, "\n".join(comparison.notes(document))]))
    for path in outputs:
        print(f"written: {path}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
