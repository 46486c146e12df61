"""`python -m tests.faults [--short] [NAME ...]` causes faults and prints a table of their effects.

`--short` tries each fault only a few times and, without names, only the faults that `make test` leaves out. The exit
code is 1 if any fault did harm.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

import tests.conftest  # noqa: F401  (shapes are checked and programs compiled once, as in the tests)
from tests.faults.catalogue import CATALOGUE
from tests.faults.tally import Tally, table


def cpu_seconds() -> float:
    """The CPU time of this process and of the processes that it has started."""
    return sum(os.times()[:4])


def main(args: list[str]) -> int:
    """Cause all faults, or those that `args` names."""
    short = "--short" in args
    elsewhere = {name for name, fault in CATALOGUE.items() if short and fault.cheap}
    names = [arg for arg in args if arg != "--short"] or [name for name in CATALOGUE if name not in elsewhere]
    tallies: list[Tally] = []
    for name in names:
        begin, cpu = time.monotonic(), cpu_seconds()
        with tempfile.TemporaryDirectory() as folder:
            try:
                tallies.append(CATALOGUE[name].tally(Path(folder), short=short))
            except Exception as error:  # the test itself failed; continue with the others
                tallies.append(Tally(name, problems=[f"the test broke off: {error!r}"]))
        seconds = f"{time.monotonic() - begin:.0f} s, {cpu_seconds() - cpu:.0f} s of CPU"
        print(f"{name}: {seconds}", file=sys.stderr, flush=True)
    print(table(tallies))
    return int(any(tally.problems for tally in tallies))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
