"""Which fits share a program: as many as pay and fit into memory, in groups that all have one shape.

In: the fits of an arm and how many may run at once. Out: the rows of `Fits` that each call of the program trains.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Int

from soopf_jax import devices
from soopf_jax.protocol import Fits

MEMORY_SHARE = 0.9
"""Of a device's memory, what a program may plan to use."""


class Rows(NamedTuple):
    """The fits of one call of the program, as rows of `Fits`, a line for each seed."""

    row: Int[np.ndarray, "seeds fits"]
    real: Bool[np.ndarray, "seeds fits"]
    """False for the copies that fill a group up, so that one compiled program serves all groups."""


def shape_of(fits: Fits, fits_per_program: int) -> tuple[int, int]:
    """(seeds, fits of each seed) in a group: whole seeds where one fits, else a part of one."""
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


def fits_at_once(fits: Fits, needed: Callable[[int], int], limit: int | None = None) -> int:
    """The number of fits per program: one seed's on a CPU, where they just fill the caches; all of them elsewhere.

    Halved until `needed(fits per program)` bytes fit into `limit`, by default the device's memory.
    """
    limit = int(MEMORY_SHARE * devices.memory_of_device()) if limit is None else limit
    seeds = len(np.unique(fits.seed))
    per_seed = len(fits.seed) // seeds
    count = per_seed if jax.default_backend() == "cpu" and jax.device_count() == 1 else len(fits.seed)
    while count > 1 and needed(count) > limit:
        count = per_seed * (count // per_seed // 2) or per_seed if count > per_seed else count // 2
    return count


def lanes(groups: int, wanted: int | None = None) -> int:
    """How many groups of fits train side by side: on a CPU what is wanted, or one per core; elsewhere one at a time."""
    if jax.default_backend() != "cpu" or jax.device_count() > 1:
        return 1
    return min(wanted or devices.threads(), groups)


def lanes_in_memory(lanes: int, needed: int, shared: int, limit: int | None = None) -> int:
    """As many of the lanes as fit into memory, where each needs so many bytes, of which some are the same in all."""
    limit = int(MEMORY_SHARE * devices.memory_of_device()) if limit is None else limit
    return max(1, min(lanes, (limit - shared) // max(1, needed - shared)))


def bytes_needed(compiled: Any) -> int:
    """What a compiled program holds on a device at once, its arguments included."""
    memory = compiled.memory_analysis()
    return int(
        memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        - memory.alias_size_in_bytes
        + memory.temp_size_in_bytes
    )
