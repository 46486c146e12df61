"""The command line: `python -m soopf_jax.bench`. Progress on stderr, the table on stdout, a result folder on disk.

The options are in `experiments.options`, and `report.run_folder` carries them out. The latter loads JAX. It is imported
only after the options have been checked, because a message about a mistake should not wait for that. All imports that
take time are within `cli.run`, where Ctrl-C ends with one line.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from soopf_jax.runtime import cli

if TYPE_CHECKING:
    from soopf_jax.experiments.options import Bench

PROG = "soopf_jax.bench"


def main(args: Sequence[str] | None = None) -> int:
    """Parse the command line and run the benchmark. Returns the exit code."""
    return cli.run(lambda: run(parse(args)), interrupted="interrupted; run the same command again to go on")


def parse(args: Sequence[str] | None = None) -> "Bench":
    """The options of a command line, by default that of the process.

    Raises:
        UserError: The options cannot be read, or cannot be used together.
    """
    from soopf_jax.experiments.options import HELP, Bench, check, defaults

    args = sys.argv[1:] if args is None else args
    return check(cli.parse(Bench, PROG, args, defaults(args), HELP))


def run(bench: "Bench") -> None:
    """Carry out a run.

    Raises:
        UserError: The options ask for something that cannot be done here.
    """
    from soopf_jax.runtime import progress

    with progress.shown(), progress.phase("loading JAX"):
        from soopf_jax.report.run_folder import carry_out

    carry_out(bench)


if __name__ == "__main__":
    sys.exit(main())
