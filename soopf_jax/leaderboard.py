"""`python -m soopf_jax.leaderboard FOLDER`: every result below a folder in one table, as text, page and CSV.

The table has a row per arm. `report/leaderboard_table.py` makes it, `report/leaderboard_page.py` makes the page, and
`report/hub_export.py` makes files for the Hugging Face hub. Here are the command's options and its messages.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from soopf_jax.errors import UserError, unknown_name
from soopf_jax.runtime import atomic, cli
from soopf_jax.runtime.text import printable

if TYPE_CHECKING:
    from soopf_jax.report.leaderboard_table import RankedArm

PROG = "soopf_jax.leaderboard"
EXPORTS = ("hub", "model-index")
Output = Annotated[str, tyro.conf.arg(metavar="FILE")]


@dataclass(frozen=True)
class Leaderboard:
    """Put every result below a folder into one table: encoders x data sets x assignments, with intervals."""

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
    export: Annotated[str, tyro.conf.arg(metavar="NAME")] = ""
    """Write files for the Hugging Face hub to the folder --to, and print the commands that upload them. hub: the
    evaluation results of models and the eval.yaml of the benchmark. model-index: the older form, metadata of models."""
    to: Annotated[str, tyro.conf.arg(metavar="DIR")] = ""
    """With --export: the new folder for these files."""
    benchmark: Annotated[str, tyro.conf.arg(metavar="NAME")] = ""
    """With --export: the OWNER/NAME of the dataset repository on the hub that stands for the benchmark. --export hub
    needs it."""


def main(args: Sequence[str] | None = None) -> int:
    """Parse the command line and make the leaderboard. Returns the exit code."""
    return cli.run(lambda: run(check(cli.parse(Leaderboard, PROG, args))))


def check(options: Leaderboard) -> Leaderboard:
    """The options, if they can be used together.

    Raises:
        UserError: They cannot.
    """
    if not options.export:
        if options.to or options.benchmark:
            raise UserError("--to and --benchmark belong to an export; add --export hub, or leave them out")
        return options
    if options.export not in EXPORTS:
        raise unknown_name("value of --export", options.export, EXPORTS)
    if not options.to:
        raise UserError("--export needs the folder that the files go to; add --to DIR")
    if options.export == "hub" and not options.benchmark:
        raise UserError("--export hub needs the dataset repository of the benchmark; add --benchmark OWNER/NAME")
    if Path(options.to).is_file() or (Path(options.to).is_dir() and any(Path(options.to).iterdir())):
        raise UserError(f"{options.to} exists already; remove it, or choose another --to")
    return options


def run(options: Leaderboard) -> None:
    """Gather the results below a folder and print their table.

    Raises:
        UserError: The folder does not exist or holds no result, or a file cannot be written.
    """
    root = Path(options.folder)
    if not root.is_dir():
        raise UserError(f"{root} is not a folder; give one that holds results")
    outputs = [Path(name) for name in (options.html, options.csv, options.to) if name]
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
    commands = write_export(options, arms) if options.export else ()
    print(tables.text(table, tables.terminal_width(options.wide)))
    for path in outputs:
        print(f"written: {path}", file=sys.stderr)
    for command in commands:
        print(f"to upload: {command}", file=sys.stderr)


def write_export(options: Leaderboard, arms: "Sequence[RankedArm]") -> Sequence[str]:
    """Write the files for the hub, and say which arms are left out.

    Returns:
        The commands that upload the files.

    Raises:
        UserError: Nothing can be exported.
    """
    from soopf_jax.report import hub_export

    export = hub_export.FORMS[options.export](arms, options.to, options.benchmark)
    for reason in export.left_out:
        print(f"not exported: {printable(reason)}", file=sys.stderr)
    with atomic.new_folder(Path(options.to)) as new:
        for name, data in export.files.items():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            atomic.write_bytes(new / name, data)
    return export.commands


if __name__ == "__main__":
    sys.exit(main())
