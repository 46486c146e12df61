"""The compiled programs of one arm, without the static parts that they take first, and a count of compilations."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from jax._src import monitoring

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
    mesh = mesh or mesh_for(protocol.seeds, grid.n_cells * protocol.restarts)
    spec = Training(arm, grid, dims, protocol.of_programs, mesh)
    return BoundProgram(
        spec,
        lambda group: program.init(spec, group.at_rest),
        partial(program.advance, spec),
        lambda state, table, group: program.evaluate(spec, state, table, group.at_rest),
        partial(program.energies, spec),
    )


@contextmanager
def compilations() -> Iterator[Counter]:
    """A counter of the programs that XLA compiles or JAX takes from its cache on disk, by name."""
    found: Counter = Counter()

    def listen(event: str, seconds: float, fun_name: str = "", **_: object) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            found[fun_name.removeprefix("jit(").removesuffix(")")] += 1

    monitoring.register_event_duration_secs_listener(listen)
    try:
        yield found
    finally:
        monitoring.unregister_event_duration_listener(listen)
