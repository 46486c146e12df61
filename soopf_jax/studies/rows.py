"""A row of a study is the options of one run. This module names its result folder and says why it cannot run."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from soopf_jax.errors import UserError
from soopf_jax.experiments.arms import parts_of
from soopf_jax.experiments.catalogue import EXPERIMENTS
from soopf_jax.experiments.options import ONLY_IF_GIVEN, SIZES, Bench, arguments, given, record
from soopf_jax.fitting.protocol import Choices
from soopf_jax.runtime.hashing import digest, slug

ORIGINALS = ("shapes3d", "coco")
"""Data sets that are read from --data-root."""
OPERATIONS = ("hue", "invert", "pattern", "brightness", "blur")
"""The operations in the order in which a grid of two to five of them has them."""
LONGEST_NAME = 180
"""Characters of a folder's name. Work folders add some, and file systems allow 255."""
OF_FEATURES = ("layer", "weight", "dtype", "data_seed", *ONLY_IF_GIVEN)
"""Options that a folder's name has if they were given, beside those of the protocol."""


class Obstacle(NamedTuple):
    """Why a run does not take place."""

    reason: str
    """`needs 3dshapes.h5`, `about 9.1 h here`."""
    remedies: tuple[str, ...] = ()
    """What to do about it. Each is a complete line."""


def damaged(place: Path, error: UserError) -> Obstacle:
    """A result folder that cannot be read, as the problem of its row."""
    reason = str(error).rpartition(";")[0].replace(f"{place} ", "its result ", 1)
    return Obstacle(reason, (f"{place}: {reason}; mend or remove this folder, then give the same command again",))


class Places(NamedTuple):
    """The folders of a study."""

    runs: Path
    """Result folders."""
    data_root: str
    """Original data sets."""
    cache_dir: str = ""
    """Features; empty: the user's cache folder."""


class ArmNames(NamedTuple):
    """What the arms of a run are called."""

    assignments: tuple[str, ...]
    objective: str


@cache
def arm_names(run: Bench) -> ArmNames:
    """The names of a run's arms, defaults filled in."""
    arms = EXPERIMENTS[run.edits].make_arms(parts_of(run))
    return ArmNames(tuple(arm.assignment_name for arm in arms), arms[0].objective_name)


def folder(run: Bench) -> str:
    """The name of its result folder: what makes it different from other runs."""
    assignments, objective = arm_names(run)
    words = [run.dataset_name, run.encoder_name, run.readout_name, *assignments, objective]
    usual = run.operations == OPERATIONS[: len(run.operations)]
    words += ([f"{len(run.operations)}-operations"] if usual else run.operations) if run.operations else []
    words += [f"{run.pairs_per_cell}-pairs"] if run.pairs_per_cell else []
    words += [f"{run.edits}-edits"] * (run.edits != "one") + ["router"] * run.router + ["quick"] * run.quick
    named = {*OF_FEATURES, *SIZES, "preset", *Choices.__dataclass_fields__}
    changed = {name: value for name, value in given(run).items() if name in named}
    if "tau_start" in changed:
        changed["tau_end"] = run.choices.tau_end  # the two ends are one choice
    name = slug(" ".join([*dict.fromkeys(words), *arguments(changed)]))
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 11]}-{digest(name)[:10]}"


def configuration(run: Bench, features_keys: Sequence[str] = ()) -> dict[str, Any]:
    """What its result records of these options, defaults filled in.

    Args:
        run: The options.
        features_keys: The keys of its features, as far as they are known.
    """
    assignments, objective = arm_names(run)
    return record(run, features_keys) | {"assignment": list(assignments), "objective": objective}


def placed(run: Bench, places: Places) -> Bench:
    """The run with the folders that it reads and writes."""
    original = run.dataset_name.partition(":")[0] in ORIGINALS
    return replace(
        run,
        data_root=places.data_root if original else None,
        cache_dir=places.cache_dir or None,
        out=str(places.runs / folder(run)),
    )
