"""`python -m tests.faults.wild_clock SEED ...`: `soopf_jax.bench ...` while the wall clock jumps with every look at it.

A process of its own, because one that does its work may still not end: a thread can wait for a time that never comes.
"""

import itertools
import sys
import time

import numpy as np

from soopf_jax import bench


def jump(seed: int) -> None:
    """From now on the clock is off by up to 1,000 days, another number of them each time."""
    now, days = time.time(), itertools.cycle(np.random.default_rng(seed).uniform(-1000, 1000, 997).tolist())
    time.time = lambda: now + 86400 * next(days)


if __name__ == "__main__":
    jump(int(sys.argv[1]))
    sys.exit(bench.main(sys.argv[2:]))
