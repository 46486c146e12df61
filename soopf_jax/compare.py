"""`python -m soopf_jax.compare RUN RUN ...`: is one run better than another, by how much, and could we have seen less?

In: result folders that share grid, pairs, splits and seeds, the first of them the reference. Out: paired tests, effect
sizes and the smallest detectable difference as text on stdout, and as a page or as JSON where asked for.
"""

import itertools
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jsonschema
import numpy as np
import tyro
from jaxtyping import Float

from soopf_jax import atomic, cli, results, score, statistics
from soopf_jax.errors import UserError, unknown_name
from soopf_jax.protocol import Fits
from soopf_jax.report import comparison, tables
from soopf_jax.report.naming import name_run, printable, protocol_of
from soopf_jax.types import Json

PROG = "soopf_jax.compare"
SCORES = ("inj", "non_injective")
_COLUMNS = {"arm", "seed", "held_out", "restart", "selected", "test_counts", *SCORES}

Output = Annotated[str, tyro.conf.arg(metavar="FILE", help_behavior_hint="")]


@dataclass(frozen=True)
class Compare:
    """Compare runs on equal splits: paired t and paired bootstrap, Holm-corrected, effect sizes, power."""

    runs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN[:ASSIGNMENT]")]
    """Result folders; the first is the reference. Arms of equal assignment are compared, or those that are picked:
    runs/x:factorial runs/x:learned."""
    score: Annotated[str, tyro.conf.arg(metavar="NAME")] = "inj"
    """What is compared: inj (one slot per value), or non_injective (many-to-one)."""
    allow_protocol: bool = False
    """Compare although restarts, steps or other choices of the protocol differ; a note says which."""
    same_pairs: bool = False
    """I know that the feature files hold the same pairs in the same order, although that cannot be checked."""
    html: Output = ""
    """Write a self-contained page there."""
    json: Output = ""
    """Write all numbers there."""


class Run(NamedTuple):
    """A result folder, and the arm of it that the user picked."""

    folder: Path
    result: results.Result
    assignment: str | None

    @property
    def assignments(self) -> tuple[str, ...]:
        """The arms to compare: the one that was picked, or all."""
        return (self.assignment,) if self.assignment else tuple(_arms(self.result.document))


class Arm(NamedTuple):
    """The scores of the selected restarts of one arm."""

    run: int
    """The number of its run in the tables, from 1."""
    record: Json
    """Its element of the result's `arms`."""
    inj: Float[np.ndarray, "seeds cells"]
    non_injective: Float[np.ndarray, "seeds cells"]


def main(args: Sequence[str] | None = None) -> int:
    """Parse, compare, exit code."""
    return cli.run(lambda: run(cli.parse(Compare, PROG, args)))


def run(options: Compare) -> None:
    """From folders to tables."""
    if options.score not in SCORES:
        raise unknown_name("score", options.score, SCORES)
    if len(options.runs) < 2:
        raise UserError("nothing to compare with; name two result folders, or two arms as RUN:ASSIGNMENT")
    outputs = [Path(name) for name in (options.html, options.json) if name]
    for path in outputs:
        atomic.check_writable(path)
    runs = [open_run(text) for text in options.runs]
    notes = [note for other in runs[1:] for note in check_comparable(runs[0], other, options)]
    document = compare(runs, options.score, notes)
    if options.html:
        atomic.write_bytes(Path(options.html), comparison.page(document).encode())
    if options.json:
        atomic.write_bytes(Path(options.json), (json.dumps(document, indent=1, allow_nan=False) + "\n").encode())
    print("\n\n".join([*map(tables.text, comparison.all_tables(document)), "\n".join(comparison.notes(document))]))
    for path in outputs:
        print(f"written: {path}", file=sys.stderr)


# -------------------------------------------------------------------------------------------- opening runs


def open_run(text: str) -> Run:
    """`RUN` or `RUN:ASSIGNMENT`; colons may be part of either."""
    splits = [(text, ""), *((text[:i], text[i + 1 :]) for i in reversed(range(len(text))) if text[i] == ":")]
    folder, assignment = next((split for split in splits if Path(split[0]).is_dir()), splits[0])
    result = results.load(Path(folder))
    if tables.two_edits(result.document["config"]):
        raise UserError(f"{folder} reads two edits at once and holds no cell out; compare runs without --edits two")
    if missing := _COLUMNS - result.fits.keys():
        raise UserError(f"{folder}/fits.npz lacks {', '.join(sorted(missing))}; run it again with --overwrite")
    if assignment and assignment not in _arms(result.document):
        raise unknown_name("assignment", assignment, _arms(result.document), f" (the arms of {folder})")
    try:
        name_run(result.document)
    except UserError as error:
        raise UserError(f"{folder}: {error}") from error
    return Run(Path(folder), result, assignment or None)


def read_arm(run: Run, number: int, assignment: str) -> Arm:
    """An arm's (seeds x held-out cells) accuracies; NaN where no restart could be selected."""
    fits, index = run.result.fits, _arms(run.result.document)[assignment]
    rows = (fits["arm"] == index) & (fits["held_out"] >= 0)
    of_arm = Fits(*(fits[name][rows] for name in Fits._fields))
    inj, non_injective = (score.fold_matrix(of_arm, fits["selected"][rows], fits[name][rows]) for name in SCORES)
    wanted = splits(run)
    if inj.shape != (len(wanted["seeds"]), len(wanted["held-out cells"])):
        raise UserError(f"{run.folder}/fits.npz lacks fits of {assignment}; run it again with --overwrite")
    return Arm(number, run.result.document["arms"][index], inj, non_injective)


def _arms(document: Json) -> dict[str, int]:
    """The position of every arm by its assignment."""
    return {arm["assignment"]: index for index, arm in enumerate(document["arms"])}


# ------------------------------------------------------------------------------------- what may be compared


def check_comparable(reference: Run, other: Run, options: Compare) -> list[str]:
    """Refuse runs whose seeds do not mean the same splits; what an option lets pass comes back as notes."""
    documents = [run.result.document for run in (reference, other)]
    identities = [pairs_identity(run) for run in (reference, other)]
    elsewhere = any(identity["made"] != "here" for identity in identities)
    hint = " or, if you know that they are the same, add --same-pairs" if elsewhere else ""
    alike = [{name: v for name, v in protocol_of(document).items() if name != "seeds"} for document in documents]
    checks = (
        ("grid", [document["provenance"]["grid"] for document in documents], "compare runs on one grid", ""),
        ("pairs", identities, f"run both on the same pairs{hint}", "--same-pairs" if elsewhere else ""),
        ("splits", [splits(reference), splits(other)], "run both with the same seeds on the same pairs", ""),
        ("protocol", alike, "run both alike or add --allow-protocol", "--allow-protocol"),
    )
    given = {"--same-pairs": options.same_pairs, "--allow-protocol": options.allow_protocol}
    notes = []
    for name, sides, remedy, option in checks:
        if found := _difference(*sides):
            if not given.get(option):
                raise UserError(
                    f"{other.folder} cannot be compared with {reference.folder}: other {name}, {found}; {remedy}"
                )
            notes.append(printable(f"{other.folder}: other {name} than the reference, {found} ({option})"))
    return notes


def pairs_identity(run: Run) -> dict[str, Any]:
    """What is known of the image pairs behind the features, whatever the encoder; what is unknown equals nothing."""
    features = run.result.document["provenance"].get("features", {})
    if features.get("kind") == "store":
        return {"made": "here", **features["inputs"]["substrate"], "cells": features["inputs"]["cells"]}
    content = features.get("sha256", f"unknown in {run.folder.resolve().name}")
    return {"made": "elsewhere", "sha256": content, "pairs_per_cell": features.get("pairs_per_cell")}


def splits(run: Run) -> dict[str, Any]:
    """Seeds, held-out cells and the pairs of each: with equal pairs, all that the splits depend on."""
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


# --------------------------------------------------------------------------------------------- comparing


def compare(runs: Sequence[Run], score_name: str = "inj", notes: Sequence[str] = ()) -> dict[str, Any]:
    """Everything about runs that may be compared, as `compare.schema.json` has it."""
    folders = list(dict.fromkeys(run.folder.resolve() for run in runs))
    arms: dict[tuple[int, str], Arm] = {}

    def arm_of(run: Run, assignment: str) -> Arm:
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
    return json.loads(resources.files("soopf_jax").joinpath("compare.schema.json").read_text())


def pairs_of_arms(reference: Run, other: Run) -> list[tuple[str, str]]:
    """The two arms that were picked, or else all of equal assignment."""
    if reference.assignment and other.assignment:
        return [(reference.assignment, other.assignment)]
    pairs = [(a, b) for a, b in itertools.product(reference.assignments, other.assignments) if a == b]
    if not pairs:
        theirs, ours = ", ".join(other.assignments), ", ".join(reference.assignments)
        raise UserError(f"{other.folder} has {theirs} and {reference.folder} has {ours}; pick arms as RUN:ASSIGNMENT")
    return pairs


def compare_arms(reference: Arm, other: Arm, score_name: str) -> dict[str, Any]:
    """Other minus reference; `p_holm` is still to come."""
    difference = getattr(other, score_name) - getattr(reference, score_name)
    seeds = difference.mean(axis=1)
    return {
        "reference": _address(reference),
        "other": _address(other),
        "n_seeds": difference.shape[0],
        "n_cells": difference.shape[1],
        "mean_difference": score.number(seeds.mean()),
        "paired_t": statistics.paired_t(seeds),
        "bootstrap": statistics.paired_bootstrap(difference) | {"draws": statistics.DRAWS},
        "effect_size": statistics.effect_size(seeds),
        "detectable": statistics.detectable(seeds),
        "undefined": statistics.why_undefined(difference),
    }


def audit(arm: Arm) -> dict[str, Any]:
    """What an arm scores, and what it loses under injective scoring."""
    return {
        **_address(arm),
        "n_seeds": len(arm.inj),
        **{name: {key: arm.record[name][key] for key in ("mean", "ci95", "per_seed")} for name in SCORES},
        "laundering_gap": arm.record["laundering_gap"],
        "seeds_that_lose": statistics.seeds_that_lose(arm.inj, arm.non_injective),
    }


def _address(arm: Arm) -> dict[str, Any]:
    return {"run": arm.run, "assignment": printable(arm.record["assignment"])}


def describe_run(run: Run) -> dict[str, str]:
    """What was run, for the first table."""
    return {**name_run(run.result.document)._asdict(), "folder": printable(str(run.folder))}


if __name__ == "__main__":
    sys.exit(main())
