"""`python -m soopf_jax.leaderboard FOLDER`: every result below a folder in one table, as text, page and CSV.

The table has a row per arm. `report/leaderboard_table.py` makes it, and `report/leaderboard_page.py` makes the page.
Here are the command's options and its messages.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from soopf_jax.errors import UserError
from soopf_jax.runtime import atomic, cli
from soopf_jax.runtime.text import printable

PROG = "soopf_jax.leaderboard"
Output = Annotated[str, tyro.conf.arg(metavar="FILE")]


@dataclass(frozen=True)
class Leaderboard:
    """Put every result below a folder into one table: encoders x substrates x assignments, with intervals."""

    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """The folder that holds result folders, at any depth. Results that cannot be read are listed on stderr and left
    out."""
    wide: bool = False
    """Print every column of the table, although the terminal is too narrow for them."""
    html: Output = ""
    """Write a self-contained page to this file: encoders x data sets, a plot of INJ with intervals, and all columns,
    which sort and filter. It links the reports of the results by relative paths."""
    csv: Output = ""
    """Write all rows to this file, numbers in full."""


def main(args: Sequence[str] | None = None) -> int:
    """Parse the command line and make the leaderboard. Returns the exit code."""
    return cli.run(lambda: run(cli.parse(Leaderboard, PROG, args)))


def run(options: Leaderboard) -> None:
    """Gather the results below a folder and print their table.

    Raises:
        UserError: The folder does not exist or holds no result, or a file cannot be written.
    """
    root = Path(options.folder)
    if not root.is_dir():
        raise UserError(f"{root} is not a folder; give one that holds results")
    outputs = [Path(name) for name in (options.html, options.csv) if name]
    for path in outputs:
        atomic.check_writable(path)
    # Imported here because reading results needs JAX, which `--help` and mistakes should not wait for.
    from soopf_jax.report import leaderboard_page, leaderboard_table, tables

    arms, left_out = leaderboard_table.gather(root)
    for reason in left_out:
        print(f"left out: {printable(reason)}", file=sys.stderr)
    if not arms:
        raise UserError(f"{root} holds no result that can be shown; python -m soopf_jax.bench makes one")
    table = leaderboard_table.as_table(arms)
    if options.html:
        atomic.write_bytes(Path(options.html), leaderboard_page.page(arms, Path(options.html)).encode())
    if options.csv:
        atomic.write_bytes(Path(options.csv), leaderboard_table.as_csv(arms).encode())
    print(tables.text(table, tables.terminal_width(options.wide)))
    for path in outputs:
        print(f"written: {path}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
