"""Which of the choices that the paper leaves open matter: one of them changed at a time, all else at its default.

In: the results of the runs below. Out: a table per data set and encoder: INJ, the difference from the default paired
over seeds with its interval, and whether it stands after Holm's correction over the whole table.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from soopf_jax.experiments.options import Bench, changed
from soopf_jax.paper.paper_tables import remedies
from soopf_jax.report.tables import Table
from soopf_jax.runtime.hashing import slug
from soopf_jax.runtime.text import number, p_value, signed
from soopf_jax.scoring import score, statistics
from soopf_jax.studies.rows import Obstacle
from soopf_jax.studies.sheets import Sheet
from soopf_jax.types import Json

ARMS = ("factorial", "learned")
NOTE = (
    "difference, 95 % interval (t; ~ marks fewer than 10 seeds, where it is approximate) and p: paired over seeds"
    " against all choices at their defaults; Holm over the whole table. Few seeds have wide intervals: no effect seen"
    " does not mean that there is none"
)


class Choice(NamedTuple):
    """One value of one choice."""

    name: str
    default: str
    value: str
    changes: Mapping[str, Any]
    """Options of a run with their values."""
    arms: tuple[str, ...] = ARMS


class Effect(NamedTuple):
    """What a choice does to INJ of one arm."""

    choice: Choice
    arm: str
    inj: float | None
    difference: float | None
    """From all choices at their defaults, a mean over seeds; None where one of the two was not run."""
    test: Json
    """The paired t-test, with `ci95` and `ci95_method`."""
    p_holm: float | None
    obstacle: Obstacle | None
    """Why the run did not take place."""


CHOICES = (
    Choice("SD of the router's queries", "0.02", "0.125", {"query_sd": 0.0}),
    Choice("router input", "raw", "rms", {"router_input": "rms"}),
    Choice("router input", "raw", "layernorm", {"router_input": "layernorm"}),
    Choice("router input and SD", "raw, 0.02", "rms, 0.125", {"router_input": "rms", "query_sd": 0.0}),
    Choice("alignment", "raw", "soft", {"alignment": "soft"}),
    Choice("alignment", "raw", "hard", {"alignment": "hard"}),
    Choice("preset", "paper", "ours", {"router_input": "rms", "alignment": "soft"}),
    Choice("batch size", "64", "32", {"batch_size": 32}),
    Choice("batch size", "64", "128", {"batch_size": 128}),
    Choice("router width", "64", "32", {"router_width": 32}),
    Choice("router width", "64", "128", {"router_width": 128}),
    Choice("tau", "2 to 0.5", "1 to 1", {"tau_start": 1.0, "tau_end": 1.0}),
    Choice("tau", "2 to 0.5", "0.5 to 0.5", {"tau_start": 0.5, "tau_end": 0.5}),
    Choice("learning rate", "0.005", "0.0025", {"learning_rate": 0.0025}),
    Choice("learning rate", "0.005", "0.01", {"learning_rate": 0.01}),
    Choice("source scale", "1", "0.1", {"source_scale": 0.1}),
    Choice("source scale", "1", "10", {"source_scale": 10.0}),
    Choice("SD of Q's initial logits", "0.1", "0.01", {"q_scale": 0.1}, ("learned",)),
    Choice("SD of Q's initial logits", "0.1", "1", {"q_scale": 10.0}, ("learned",)),
    Choice("ties", "first", "last", {"ties": "last"}),
    Choice("unit of stripes", "cycles", "radians", {"stripe_unit": "radians"}),
    Choice("stripes per pixel of", "the edited image", "224 pixels", {"stripe_size": 224}),
    Choice("batch size", "64", "all", {"batch_size": 0}),
)


def default_run(dataset: str, encoder: str, quick: bool) -> Bench:
    """The quick protocol with every choice at its default.

    Unless `quick`, it has ten seeds, because three seeds cannot tell an effect from noise.
    """
    return Bench(dataset, encoder, readout="soopf", assignment=ARMS, quick=True, seeds=None if quick else 10)


def changed_run(default: Bench, choice: Choice) -> Bench:
    """The default run but for one choice. Every run has INJ under all alignments, so another one needs no run."""
    changes = {name: value for name, value in choice.changes.items() if name != "alignment"}
    return changed(default, {**changes, "assignment": choice.arms})


def study(default: Bench) -> list[Bench]:
    """All runs of one table."""
    return list(dict.fromkeys([default, *(changed_run(default, choice) for choice in CHOICES)]))


def effects(default: Bench, found: Mapping[Bench, Json | Obstacle]) -> list[Effect]:
    """The effect of every choice on every arm, with Holm's correction over all of them."""
    lines = [(choice, arm, found[changed_run(default, choice)]) for choice in CHOICES for arm in choice.arms]
    scores = [_inj(result, arm, choice) for choice, arm, result in lines]
    tests = [_test(inj, _inj(found[default], arm)) for inj, (_, arm, _) in zip(scores, lines, strict=True)]
    adjusted = score.holm([test["p"] for test in tests])
    return [
        Effect(choice, arm, inj["mean"], test["mean"], test, p, result if isinstance(result, Obstacle) else None)
        for (choice, arm, result), inj, test, p in zip(lines, scores, tests, adjusted, strict=True)
    ]


def sheet(default: Bench, found: Mapping[Bench, Json | Obstacle]) -> Sheet:
    """One line per choice, value and assignment."""
    rows = [_default_row(arm, found[default]) for arm in ARMS]
    for choice, arm, inj, difference, test, p_holm, obstacle in effects(default, found):
        label = (f"{choice.name} {choice.default} -> {choice.value}", arm)
        if obstacle:
            rows.append((*label, "-", "-", "-", "-", f"not run: {obstacle.reason}"))
        else:
            told = (number(inj), signed(difference), _interval(test), p_value(p_holm), verdict(difference, p_holm))
            rows.append((*label, *told))
    header = ("choice", "assignment", "INJ", "difference", "95 % interval", "p (Holm)", "verdict")
    title = f"Sensitivity: {default.dataset_name} with {default.encoder_name}"
    notes = (NOTE, *remedies(found[run] for run in study(default)))
    return Sheet(slug(f"sensitivity {default.dataset_name} {default.encoder_name}"), Table(title, header, rows), notes)


def verdict(difference: float | None, p_holm: float | None) -> str:
    """`matters` if the difference is significant after correction."""
    if difference == 0:
        return "no difference at all"
    if p_holm is None:
        return "undefined"
    return "matters" if p_holm < statistics.LEVEL else "no effect seen"


def _test(ours: Json, reference: Json) -> dict[str, Any]:
    """The paired test of INJ over seeds; undefined where one of the two was not run, or has no score."""
    inj, default = ours["per_seed"], reference["per_seed"]
    if not inj or not default or None in (*inj, *default):
        return {"mean": None, "p": None, "ci95": None}
    difference = np.array(inj) - np.array(default)
    return {"mean": float(difference.mean()), **statistics.paired_t(difference)}


def _default_row(arm: str, reference: Json | Obstacle) -> tuple[str, ...]:
    if isinstance(reference, Obstacle):
        return ("all at their defaults", arm, "-", "-", "-", "-", f"not run: {reference.reason}")
    return ("all at their defaults", arm, number(_inj(reference, arm)["mean"]), "-", "-", "-", "the reference")


def _inj(document: Json | Obstacle, assignment: str, choice: Choice | None = None) -> Json:
    """INJ of an arm, under the choice's alignment if it changes that; no seeds where there is no such result."""
    nothing = {"mean": None, "per_seed": ()}
    if isinstance(document, Obstacle):
        return nothing
    arm = next(arm for arm in document["arms"] if arm["assignment"] == assignment)
    alignment = choice.changes.get("alignment") if choice else None
    return arm.get("inj_by_alignment", {}).get(alignment, nothing) if alignment else arm["inj"]


def _interval(test: Json) -> str:
    mark = "~" if statistics.is_approximate(test) else ""
    return "-" if test["ci95"] is None else mark + " to ".join(map(signed, test["ci95"]))
