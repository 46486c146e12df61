"""The compiled programs of one arm, without the static parts that all of them take first."""

from functools import partial
from typing import Any, NamedTuple

from soopf_jax.fitting import program
from soopf_jax.fitting.devices import mesh_for
from soopf_jax.fitting.program import Training


class BoundProgram(NamedTuple):
    spec: Training
    init: Any
    advance: Any
    evaluate: Any
    energies: Any


def make_program(arm, grid, dims, protocol, mesh=None):
    """By default on all devices, as the trainer has it."""
    spec = Training(arm, grid, dims, protocol, mesh or mesh_for(protocol.seeds, grid.n_cells * protocol.restarts))
    programs = (program.init, program.advance, program.evaluate, program.energies)
    return BoundProgram(spec, *(partial(function, spec) for function in programs))
