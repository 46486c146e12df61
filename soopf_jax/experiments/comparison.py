"""Is one run better than another, by how much, and how small a difference could we have seen?

In: runs that may be compared. Out: the document of `compare.schema.json`. It has paired tests over seeds, a bootstrap
over seeds and cells, Holm's correction over all of them, effect sizes and the smallest difference that could have been
seen.
"""

import itertools
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any, NamedTuple

import jsonschema
import numpy as np
from jaxtyping import Float

from soopf_jax.errors import UserError
from soopf_jax.experiments.compared_runs import SCORES, ComparedRun, arms_of, splits
from soopf_jax.experiments.naming import name_run
from soopf_jax.fitting.protocol import Fits
from soopf_jax.runtime.text import printable
from soopf_jax.scoring import score, statistics
from soopf_jax.types import Json

_SPREAD = ("mean", "ci95", "ci95_method", "per_seed")
"""What a comparison keeps of a score. Results of earlier versions do not say how an interval was made."""


class ComparedArm(NamedTuple):
    """The scores of the selected restarts of one arm."""

    run: int
    """The number of its run in the tables, from 1."""
    record: Json
    """Its element of the result's `arms`."""
    inj: Float[np.ndarray, "seeds cells"]
    non_injective: Float[np.ndarray, "seeds cells"]


def read_arm(run: ComparedRun, number: int, assignment: str) -> ComparedArm:
    """An arm's (seeds x held-out cells) accuracies; NaN where no restart could be selected."""
    fits, index = run.result.fits, arms_of(run.result.document)[assignment]
    rows = (fits["arm"] == index) & (fits["held_out"] >= 0)
    of_arm = Fits(*(fits[name][rows] for name in Fits._fields))
    inj, non_injective = (score.fold_matrix(of_arm, fits["selected"][rows], fits[name][rows]) for name in SCORES)
    wanted = splits(run)
    if inj.shape != (len(wanted["seeds"]), len(wanted["held-out cells"])):
        raise UserError(f"{run.folder}/fits.npz lacks fits of {assignment}; run it again with --overwrite")
    return ComparedArm(number, run.result.document["arms"][index], inj, non_injective)


def compare(runs: Sequence[ComparedRun], score_name: str = "inj", notes: Sequence[str] = ()) -> dict[str, Any]:
    """Compare the first run with each of the others.

    Args:
        runs: Runs that `check_comparable` has accepted.
        score_name: `inj` or `non_injective`.
        notes: The notes of `check_comparable`.

    Returns:
        The document of `compare.schema.json`.

    Raises:
        UserError: Fits are missing, or the runs have no arms in common.
    """
    folders = list(dict.fromkeys(run.folder.resolve() for run in runs))
    arms: dict[tuple[int, str], ComparedArm] = {}

    def arm_of(run: ComparedRun, assignment: str) -> ComparedArm:
        key = folders.index(run.folder.resolve()) + 1, assignment
        if key not in arms:
            arms[key] = read_arm(run, *key)
        return arms[key]

    compared = [
        compare_arms(arm_of(runs[0], ours), arm_of(other, theirs), score_name)
        for other in runs[1:]
        for ours, theirs in pairs_of_arms(runs[0], other)
    ]
    tests = [test for found in compared for test in (found["paired_t"], found["bootstrap"])]
    for test, adjusted in zip(tests, score.holm([test["p"] for test in tests]), strict=True):
        test["p_holm"] = adjusted
    document = {
        "schema_version": 1,
        "score": score_name,
        "runs": [describe_run(run) for run in {run.folder.resolve(): run for run in runs}.values()],
        "arms": [audit(arm) for arm in sorted(arms.values(), key=lambda arm: arm.run)],
        "comparisons": compared,
        "notes": list(notes),
    }
    jsonschema.validate(document, schema())
    return document


def schema() -> Json:
    """The JSON schema of a comparison."""
    return json.loads(resources.files("soopf_jax.experiments").joinpath("compare.schema.json").read_text())


def pairs_of_arms(reference: ComparedRun, other: ComparedRun) -> list[tuple[str, str]]:
    """The two arms that were picked, or else all of equal assignment."""
    if reference.assignment and other.assignment:
        return [(reference.assignment, other.assignment)]
    pairs = [(a, b) for a, b in itertools.product(reference.assignments, other.assignments) if a == b]
    if not pairs:
        theirs, ours = ", ".join(other.assignments), ", ".join(reference.assignments)
        raise UserError(
            f"{other.folder} has {theirs} and {reference.folder} has {ours}; pick one arm of each, as RUN:ASSIGNMENT"
        )
    return pairs


def compare_arms(reference: ComparedArm, other: ComparedArm, score_name: str) -> dict[str, Any]:
    """Tests and effect sizes of other minus reference. `compare` adds `p_holm`, which depends on all comparisons."""
    difference = getattr(other, score_name) - getattr(reference, score_name)
    seeds = difference.mean(axis=1)
    return {
        "reference": _address(reference),
        "other": _address(other),
        "n_seeds": difference.shape[0],
        "n_cells": difference.shape[1],
        "mean_difference": statistics.json_number(seeds.mean()),
        "paired_t": statistics.paired_t(seeds),
        "bootstrap": statistics.paired_bootstrap(difference) | {"draws": statistics.DRAWS},
        "effect_size": statistics.effect_size(seeds),
        "detectable": statistics.detectable(seeds),
        "undefined": statistics.why_undefined(difference),
    }


def audit(arm: ComparedArm) -> dict[str, Any]:
    """What an arm scores, and what it loses under injective scoring."""
    return {
        **_address(arm),
        "n_seeds": len(arm.inj),
        **{name: {key: arm.record[name].get(key) for key in _SPREAD} for name in SCORES},
        "laundering_gap": arm.record["laundering_gap"],
        "seeds_that_lose": statistics.seeds_that_lose(arm.inj, arm.non_injective),
    }


def _address(arm: ComparedArm) -> dict[str, Any]:
    return {"run": arm.run, "assignment": printable(arm.record["assignment"])}


def describe_run(run: ComparedRun) -> dict[str, str]:
    """What was run, for the first table."""
    return {**name_run(run.result.document)._asdict(), "folder": printable(str(run.folder))}
