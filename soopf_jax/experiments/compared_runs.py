"""Open runs to be compared. Result folders are refused unless a seed means the same splits in all of them."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from soopf_jax.errors import UserError, unknown_name
from soopf_jax.experiments import results
from soopf_jax.experiments.naming import name_run, protocol_of
from soopf_jax.runtime.text import printable
from soopf_jax.scoring import metrics
from soopf_jax.types import Json

SCORES = ("inj", "non_injective")
COLUMNS = {"arm", "seed", "held_out", "restart", "selected", "test_counts", *SCORES}
"""The columns of fits.npz that a comparison reads."""
SAME_PAIRS, ALLOW_PROTOCOL = "--same-pairs", "--allow-protocol"
"""The options that allow a difference."""


class ComparedRun(NamedTuple):
    """A result folder, and the arm of it that the user picked."""

    folder: Path
    result: results.Result
    assignment: str | None

    @property
    def assignments(self) -> tuple[str, ...]:
        """The arms to compare: the one that was picked, or all."""
        return (self.assignment,) if self.assignment else tuple(arms_of(self.result.document))


def open_run(text: str) -> ComparedRun:
    """Open the run that `RUN` or `RUN:ASSIGNMENT` names. Both parts may contain colons.

    Raises:
        UserError: The folder holds no run that can be compared, or the run has no such arm.
    """
    splits = [(text, ""), *((text[:i], text[i + 1 :]) for i in reversed(range(len(text))) if text[i] == ":")]
    folder, assignment = next((split for split in splits if Path(split[0]).is_dir()), splits[0])
    result = results.load(Path(folder))
    if metrics.experiment_of(result.document["config"]) != metrics.HELD_OUT:
        raise UserError(f"{folder} reads two edits at once and holds no cell out; compare runs without --edits two")
    if missing := COLUMNS - result.fits.keys():
        raise UserError(f"{folder}/fits.npz lacks {', '.join(sorted(missing))}; run it again with --overwrite")
    if assignment and assignment not in arms_of(result.document):
        raise unknown_name("assignment", assignment, arms_of(result.document), f" (the arms of {folder})")
    try:
        name_run(result.document)
    except UserError as error:
        raise UserError(f"{folder}: {error}") from error
    return ComparedRun(Path(folder), result, assignment or None)


def arms_of(document: Json) -> dict[str, int]:
    """The position of every arm by its assignment."""
    return {arm["assignment"]: index for index, arm in enumerate(document["arms"])}


def check_comparable(reference: ComparedRun, other: ComparedRun, allowed: Collection[str] = ()) -> list[str]:
    """Notes on the differences between two runs that the user allows.

    Args:
        reference: The run that the other is compared with.
        other: The other run.
        allowed: The options that were given, of SAME_PAIRS and ALLOW_PROTOCOL.

    Raises:
        UserError: The runs differ in a way that is not allowed. Their seeds then do not mean the same.
    """
    documents = [run.result.document for run in (reference, other)]
    identities = [pairs_identity(run) for run in (reference, other)]
    elsewhere = any(identity["made"] != "here" for identity in identities)
    hint = " or, if you know that they are the same, add --same-pairs" if elsewhere else ""
    alike = [{name: v for name, v in protocol_of(document).items() if name != "seeds"} for document in documents]
    checks = (
        ("grid", [document["provenance"]["grid"] for document in documents], "compare runs on one grid", ""),
        ("pairs", identities, f"run both on the same pairs{hint}", SAME_PAIRS if elsewhere else ""),
        ("splits", [splits(reference), splits(other)], "run both with the same seeds on the same pairs", ""),
        ("protocol", alike, "run both alike or add --allow-protocol", ALLOW_PROTOCOL),
    )
    notes = []
    for name, sides, remedy, option in checks:
        if found := _difference(*sides):
            if option not in allowed:
                raise UserError(
                    f"{other.folder} cannot be compared with {reference.folder}: other {name}, {found}; {remedy}"
                )
            notes.append(printable(f"{other.folder}: other {name} than the reference, {found} ({option})"))
    return notes


def pairs_identity(run: ComparedRun) -> dict[str, Any]:
    """What is known of the image pairs behind the features, whatever the encoder. Unknown pairs equal no others."""
    features = run.result.document["provenance"].get("features", {})
    if features.get("kind") == "store":
        return {"made": "here", **features["inputs"]["substrate"], "cells": features["inputs"]["cells"]}
    content = features.get("sha256", f"unknown in {run.folder.resolve().name}")
    return {"made": "elsewhere", "sha256": content, "pairs_per_cell": features.get("pairs_per_cell")}


def splits(run: ComparedRun) -> dict[str, Any]:
    """Seeds, held-out cells and the number of pairs of each. For equal pairs, nothing else decides the splits."""
    fits = run.result.fits
    held_out, total = fits["held_out"], fits["test_counts"].sum(axis=1)
    cells = np.unique(held_out[held_out >= 0])
    return {
        "seeds": np.unique(fits["seed"]).tolist(),
        "held-out cells": cells.tolist(),
        "pairs of each cell": [int(total[held_out == cell].max()) for cell in cells],
    }


def _difference(left: Mapping[str, Any], right: Mapping[str, Any]) -> str:
    """`data_seed 1 against 0` of the first entry that differs; empty if none does."""
    for key in (*left, *(key for key in right if key not in left)):
        if left.get(key) != right.get(key):
            return f"{key} {_short(right.get(key))} against {_short(left.get(key))}"
    return ""


def _short(value: Any) -> str:
    text = printable(str(value))
    return text if len(text) <= 40 else f"{text[:37]}..."
