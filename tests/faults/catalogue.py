"""The table of all faults, with the number of tries in a short and in a long test."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.faults import damage, disks, kills, sharing
from tests.faults.tally import Tally


class Fault(NamedTuple):
    """A fault, and how often to try it."""

    happen: Callable[[Path, int, np.random.Generator], Tally]
    """(an empty folder, the number of tries, a random generator) -> the outcome. It causes the fault."""
    short: int
    long: int
    cheap: bool = True
    """Whether the short test is part of `make test`. The short tests of the others are in `make faults-short`."""

    def tally(self, folder: Path, short: bool, seed: int = 0) -> Tally:
        """Cause the fault and count the outcomes."""
        return self.happen(folder, self.short if short else self.long, np.random.default_rng(seed))


CATALOGUE = {
    fault.happen.__name__: fault
    for fault in (
        Fault(kills.encoding, short=1, long=20, cheap=False),
        Fault(kills.fitting, short=1, long=10),
        Fault(kills.report_writing, short=1, long=10, cheap=False),
        Fault(kills.study, short=2, long=10, cheap=False),
        Fault(kills.every_step_of_saving, short=1, long=1),
        Fault(disks.full_disk_for_features, short=2, long=20),
        Fault(disks.full_disk_for_results, short=1, long=12, cheap=False),
        Fault(disks.read_only_folders, short=1, long=1, cheap=False),
        Fault(damage.stores, short=6, long=200),
        Fault(damage.unfinished_work, short=3, long=60),
        Fault(damage.finished_results, short=10, long=300),
        Fault(damage.features_files, short=20, long=1000),
        Fault(damage.image_folders, short=10, long=200),
        Fault(damage.annotations, short=10, long=200),
        Fault(damage.h5_files, short=6, long=100),
        Fault(damage.checkpoint_folders, short=9, long=100),
        Fault(sharing.one_cache, short=2, long=8, cheap=False),
        Fault(sharing.one_output, short=2, long=2, cheap=False),
        Fault(sharing.jumping_clock, short=1, long=5, cheap=False),
    )
}
"""All faults, by the name of the function that causes them."""
