"""`python -m tests.faults [--short]`: let every fault happen and print what came of it; exit code 1 if any did harm."""

import os
import sys
import tempfile
import time
from pathlib import Path

import tests.conftest  # noqa: F401  (shapes are checked and programs compiled once, as in the tests)
from tests.faults.catalogue import CATALOGUE
from tests.faults.tally import Tally, table


def cpu_seconds() -> float:
    """Of this process and those that it has started."""
    return sum(os.times()[:4])


def main(args: list[str]) -> int:
    """All faults, or those that are named."""
    names = [arg for arg in args if arg != "--short"] or list(CATALOGUE)
    tallies: list[Tally] = []
    for name in names:
        begin, cpu = time.monotonic(), cpu_seconds()
        with tempfile.TemporaryDirectory() as folder:
            try:
                tallies.append(CATALOGUE[name].tally(Path(folder), short="--short" in args))
            except Exception as error:  # a fault in the test itself: the others count all the same
                tallies.append(Tally(name, problems=[f"the test broke off: {error!r}"]))
        seconds = f"{time.monotonic() - begin:.0f} s, {cpu_seconds() - cpu:.0f} s of CPU"
        print(f"{name}: {seconds}", file=sys.stderr, flush=True)
    print(table(tallies))
    return int(any(tally.problems for tally in tallies))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
