"""An arm: one row of a results table, as the parts that are trained together."""

from dataclasses import dataclass, field

from soopf_jax.fitting import objectives
from soopf_jax.fitting.objectives import Objective
from soopf_jax.types import Assignment, Readout


@dataclass(frozen=True)
class Arm:
    """What is trained, and under which names it is reported.

    Two arms are equal if their parts are equal, whatever their names. Equal arms share compiled programs.
    """

    readout: Readout
    assignment: Assignment
    objective: Objective
    readout_name: str = field(default="soopf", compare=False)
    assignment_name: str = field(default="factorial", compare=False)
    objective_name: str = field(default="core", compare=False)

    def __hash__(self) -> int:
        return hash((self.readout, self.assignment, tuple(sorted(self.objective.items(), key=lambda item: item[0]))))

    @property
    def sees(self) -> tuple[str, ...]:
        """Every label that some part of the arm reads beyond flat cell labels."""
        seen = {*self.readout.sees, *self.assignment.sees, *objectives.seen_by(self.objective)}
        return tuple(sorted(seen))
