"""`python -m tests.faults.wild_clock SEED ...` runs `soopf_jax.bench ...` while the wall clock jumps at every reading.

It runs in a separate process to test that the process ends: a thread could wait for a time that never comes.
"""

import itertools
import sys
import time

import numpy as np

from soopf_jax import bench


def jump(seed: int) -> None:
    """Make the clock wrong by up to 1,000 days from now on, by another number of days each time it is read."""
    now, days = time.time(), itertools.cycle(np.random.default_rng(seed).uniform(-1000, 1000, 997).tolist())
    time.time = lambda: now + 86400 * next(days)


if __name__ == "__main__":
    jump(int(sys.argv[1]))
    sys.exit(bench.main(sys.argv[2:]))
