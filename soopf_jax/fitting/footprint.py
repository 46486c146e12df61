"""What the programs of a group of fits need of a device's memory, by XLA's own analysis of the compiled programs.

In: the shapes of a lane's arrays. Out: bytes by the name of each program. A run needs the most that any of its programs
needs, and that is not always the training program.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from soopf_jax.fitting.compiled import Program
from soopf_jax.fitting.group import Group
from soopf_jax.fitting.prepare import PreparedTable
from soopf_jax.fitting.program import Training, advance, energies, evaluate, init
from soopf_jax.fitting.router_stats import has_masks, router_state, router_sums

STEP = jax.ShapeDtypeStruct((), np.int32)


class Call(NamedTuple):
    """A program with its static parts and the shapes of its arguments."""

    program: Program
    arguments: tuple[Any, ...]
    """The static parts first."""
    held: int = 0
    """Bytes on each device while it runs: the table and the fits, whether or not the program reads all of them."""


def calls(
    spec: Training,
    table: PreparedTable,
    group: Group,
    region: tuple[int, ...] | None = None,
    test: PreparedTable | None = None,
) -> dict[str, Call]:
    """Every program that a group of fits runs once its table is prepared, by name, in the order of their use.

    Args:
        spec: The static parts.
        table: The prepared table, or the shapes of it.
        group: The fits, or the shapes of them.
        region: The shape of the region maps, where there are any.
        test: A further table whose energies are asked for.
    """
    state = init.shapes(spec, group.at_rest)
    fits = nbytes(state) // spec.mesh.size
    held = nbytes((table, test)) + fits
    found = {
        "init": Call(init, (spec, group.at_rest), held - fits),
        "advance": Call(advance, (spec, state, table, group, STEP, STEP), held),
        "evaluate": Call(evaluate, (spec, state, table, group.at_rest), held),
    }
    if has_masks(spec.arm.readout, table, spec.dims):
        both = held + fits  # the routers before training are looked at as well
        found["router_state"] = Call(router_state, (spec, state, table), both)
        if region is not None:
            maps = jax.ShapeDtypeStruct(region, jnp.float32)
            found["router_sums"] = Call(router_sums, (spec, state, table, maps, group.at_rest), both + nbytes(maps))
    if test is not None:
        found["energies"] = Call(energies, (spec, state, test), held)
    return found


def bytes_of_calls(wanted: dict[str, Call]) -> dict[str, int]:
    """What is on a device at once while each program runs. Programs that have not been compiled yet are compiled."""
    return {name: bytes_needed(call.program.compiled(*call.arguments), call.held) for name, call in wanted.items()}


def bytes_needed(compiled: Any, held: int = 0) -> int:
    """What is on a device at once while a compiled program runs.

    Args:
        compiled: The program.
        held: Bytes that are there anyway. Most of them are arguments, but a program does not take those that it
            does not read.
    """
    memory = compiled.memory_analysis()
    new = memory.output_size_in_bytes - memory.alias_size_in_bytes + memory.temp_size_in_bytes
    return int(max(memory.argument_size_in_bytes, held) + new)


def nbytes(tree: PyTree) -> int:
    """Bytes of arrays, or of arrays of these shapes."""
    return sum(math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(tree))
