"""Make arms from names. In: what the user asks for. Out: checked records for the trainer."""

from collections.abc import Mapping, Sequence

from soopf_jax import plugins
from soopf_jax.errors import UserError
from soopf_jax.experiments.experiment import Parts
from soopf_jax.experiments.options import ASSIGNMENTS, Bench, parse_weights
from soopf_jax.fitting.arm import Arm
from soopf_jax.fitting.objectives import Objective, with_weights
from soopf_jax.types import Assignment, FeatureTable, Readout


def parts_of(bench: Bench) -> Parts:
    """What the options of a run ask to be trained."""
    return Parts(bench.readout_name, bench.assignment, bench.objective, parse_weights(bench.weight))


def make_arms(
    readout: str | Readout,
    assignments: Sequence[str | Assignment] | None = None,
    objective: str | Objective | None = None,
    weights: Mapping[str, float] | None = None,
) -> list[Arm]:
    """One arm per assignment, from names, `package.module:attr` or values.

    Args:
        readout: The part that every arm has.
        assignments: By default the paper's three; for a probe `native`.
        objective: By default `core`; for a probe `native`.
        weights: Other weights for terms of the objective.

    Raises:
        UserError: A name is unknown, or the parts do not go together.
    """
    part = plugins.resolve("readout", plugins.READOUTS, readout) if isinstance(readout, str) else readout
    probe = part.labels == "native"
    assignments = assignments or (("native",) if probe else ASSIGNMENTS)
    objective = objective or ("native" if probe else "core")
    if probe and (list(assignments) != ["native"] or objective != "native"):
        raise UserError(
            "a probe is trained on native axis labels; leave --assignment and --objective out, or set both to native"
        )
    terms = plugins.resolve("objective", plugins.OBJECTIVES, objective) if isinstance(objective, str) else objective
    terms = with_weights(with_weights({}, terms), weights or {})
    return [
        Arm(
            part,
            plugins.resolve("assignment", plugins.ASSIGNMENTS, a) if isinstance(a, str) else a,
            terms,
            readout if isinstance(readout, str) else "custom",
            a if isinstance(a, str) else f"custom-{index}",
            objective if isinstance(objective, str) else "custom",
        )
        for index, a in enumerate(assignments)
    ]


def check_regions(table: FeatureTable, arm: Arm) -> None:
    """Check that the features have region maps if the readout asks for them.

    Raises:
        UserError: They have none.
    """
    if "region" in arm.readout.sees and table.region is None:
        raise UserError(f"readout {arm.readout_name} needs region maps, which these features lack; add `region`")


def check_router(table: FeatureTable, arm: Arm) -> None:
    """Check that there is a router, and that there are region maps to compare its masks with.

    Raises:
        UserError: One of them is missing.
    """
    if table.region is None:
        raise UserError("the router diagnostic needs region maps, which these features lack; leave --router out")
    if arm.readout.labels == "native":
        raise UserError("a probe has no router; leave --router out")
