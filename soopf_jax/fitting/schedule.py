"""Which fits are trained together: groups of one shape, as large as is fast and as memory allows.

In: the fits of an arm and how many may run at once. Out: the rows of `Fits` that each call of the program trains.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Int

from soopf_jax.fitting import devices
from soopf_jax.fitting.protocol import Fits

MEMORY_SHARE = 0.9
"""The share of a device's memory that a program may plan to use."""


class Rows(NamedTuple):
    """The fits of one call of the program, as rows of `Fits`, a line for each seed."""

    row: Int[np.ndarray, "seeds fits"]
    real: Bool[np.ndarray, "seeds fits"]
    """False for copies. They give all groups the same shape, so one compiled program serves them all."""


def shape_of(fits: Fits, fits_per_program: int) -> tuple[int, int]:
    """The (seeds, fits of each seed) of a group: whole seeds if at least one fits in, else a part of one seed."""
    seeds = len(np.unique(fits.seed))
    per_seed = len(fits.seed) // seeds
    if fits_per_program < per_seed:
        return 1, max(1, fits_per_program)
    return min(seeds, fits_per_program // per_seed), per_seed


def groups(fits: Fits, shape: tuple[int, int], mesh_shape: tuple[int, int] = (1, 1)) -> list[Rows]:
    """All fits, in groups of `shape` rounded up to a multiple of the mesh."""
    seeds = len(np.unique(fits.seed))
    rows = np.arange(len(fits.seed)).reshape(seeds, -1)
    height, width = (-(-size // devices_) * devices_ for size, devices_ in zip(shape, mesh_shape, strict=True))
    found = []
    for top in range(0, rows.shape[0], shape[0]):
        for left in range(0, rows.shape[1], shape[1]):
            block = rows[top : top + shape[0], left : left + shape[1]]
            missing = [(0, height - block.shape[0]), (0, width - block.shape[1])]
            found.append(Rows(np.pad(block, missing, mode="edge"), np.pad(np.ones(block.shape, bool), missing)))
    return found


def fits_at_once(
    fits: Fits, needed: Callable[[int], int], limit: int | None = None, among: Sequence[jax.Device] | None = None
) -> int:
    """How many fits one program trains.

    On a single CPU device these are the fits of one seed, which just fill the caches. Elsewhere they are all fits. The
    number is halved until it fits into memory.

    Args:
        fits: All fits of an arm.
        needed: From a number of fits per program to the bytes that they need.
        limit: The bytes that may be used; by default most of the device's memory.
        among: The devices that train them; None: all devices of this run.
    """
    limit = int(MEMORY_SHARE * devices.memory_of_device()) if limit is None else limit
    seeds = len(np.unique(fits.seed))
    per_seed = len(fits.seed) // seeds
    count = per_seed if devices.is_single_cpu(among) else len(fits.seed)
    while count > 1 and needed(count) > limit:
        count = per_seed * (count // per_seed // 2) or per_seed if count > per_seed else count // 2
    return count


def lanes(groups: int, wanted: int | None = None, among: Sequence[jax.Device] | None = None) -> int:
    """How many groups of fits train side by side: on a CPU `wanted`, or one per core; elsewhere one at a time."""
    if not devices.is_single_cpu(among):
        return 1
    return min(wanted or devices.threads(), groups)


def lanes_in_memory(lanes: int, needed: int, shared: int, limit: int | None = None) -> int:
    """How many of the lanes fit into memory, at least one.

    Args:
        lanes: How many are wanted.
        needed: The bytes that each lane needs.
        shared: The part of these bytes that all lanes share.
        limit: The bytes that may be used; by default most of the device's memory.
    """
    limit = int(MEMORY_SHARE * devices.memory_of_device()) if limit is None else limit
    return max(1, min(lanes, (limit - shared) // max(1, needed - shared)))
