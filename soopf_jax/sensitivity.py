"""Which of the choices that the paper leaves open matter: one of them changed at a time, all else at its default.

In: the results of the runs below. Out: a table per data set and encoder: INJ, the difference from the default paired
over seeds with its interval, and whether it stands after Holm's correction over the whole table.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from soopf_jax import score, statistics
from soopf_jax.report.paper_tables import Sheet, remedies
from soopf_jax.report.tables import Table, number, signed
from soopf_jax.runs import Obstacle, Run, slug
from soopf_jax.types import Json

ARMS = ("factorial", "learned")
NOTE = (
    "difference, 95 % interval (t) and p: paired over seeds against all choices at their defaults; Holm over the whole"
    " table. Few seeds have wide intervals: no effect seen does not mean that there is none"
)


class Choice(NamedTuple):
    """One value of one choice."""

    name: str
    default: str
    value: str
    options: tuple[str, ...]
    arms: tuple[str, ...] = ARMS


CHOICES = (
    Choice("batch size", "64", "32", ("--batch-size", "32")),
    Choice("batch size", "64", "128", ("--batch-size", "128")),
    Choice("router width", "64", "32", ("--router-width", "32")),
    Choice("router width", "64", "128", ("--router-width", "128")),
    Choice("tau", "2 to 0.5", "1 to 1", ("--tau-start", "1", "--tau-end", "1")),
    Choice("tau", "2 to 0.5", "0.5 to 0.5", ("--tau-start", "0.5", "--tau-end", "0.5")),
    Choice("learning rate", "0.005", "0.0025", ("--learning-rate", "0.0025")),
    Choice("learning rate", "0.005", "0.01", ("--learning-rate", "0.01")),
    Choice("source scale", "1", "0.1", ("--source-scale", "0.1")),
    Choice("source scale", "1", "10", ("--source-scale", "10")),
    Choice("SD of Q's initial logits", "0.1", "0.01", ("--q-scale", "0.1"), ("learned",)),
    Choice("SD of Q's initial logits", "0.1", "1", ("--q-scale", "10"), ("learned",)),
    Choice("alignment energy", "soft", "hard", ("--alignment", "hard")),
    Choice("ties", "first", "last", ("--ties", "last")),
)


def default_run(dataset: str, encoder: str, quick: bool) -> Run:
    """Every choice at its default. Ten seeds, since three cannot tell noise from effect, unless `quick`."""
    return Run(dataset, encoder, assignments=ARMS, quick=True, more=() if quick else ("--seeds", "10"))


def changed_run(default: Run, choice: Choice) -> Run:
    """The default run but for one choice."""
    return default._replace(assignments=choice.arms, more=(*default.more, *choice.options))


def study(default: Run) -> list[Run]:
    """All runs of one table."""
    return [default, *(changed_run(default, choice) for choice in CHOICES)]


def sheet(default: Run, found: Mapping[Run, Json | Obstacle]) -> Sheet:
    """One line per choice, value and assignment."""
    reference = found[default]
    lines = [(choice, arm, found[changed_run(default, choice)]) for choice in CHOICES for arm in choice.arms]
    tests = [_test(changed, reference, arm) for _, arm, changed in lines]
    adjusted = score.holm([test["p"] for test in tests])
    rows = [_default_row(arm, reference) for arm in ARMS]
    for (choice, arm, changed), test, p_holm in zip(lines, tests, adjusted, strict=True):
        label = (f"{choice.name} {choice.default} -> {choice.value}", arm)
        if isinstance(changed, Obstacle):
            rows.append((*label, "-", "-", "-", "-", f"not run: {changed.reason}"))
        else:
            inj, mean = number(_arm(changed, arm)["inj"]["mean"]), test["mean"]
            rows.append((*label, inj, signed(mean), _interval(test["ci95"]), _p_value(p_holm), verdict(mean, p_holm)))
    header = ("choice", "assignment", "INJ", "difference", "95 % interval", "p (Holm)", "verdict")
    title = f"Sensitivity: {default.dataset} with {default.encoder}"
    notes = (NOTE, *remedies(found[run] for run in study(default)))
    return Sheet(slug(f"sensitivity {default.dataset} {default.encoder}"), Table(title, header, rows), notes)


def verdict(difference: float | None, p_holm: float | None) -> str:
    """`matters` where the difference stands after correction."""
    if difference == 0:
        return "no difference at all"
    if p_holm is None:
        return "undefined"
    return "matters" if p_holm < statistics.LEVEL else "no effect seen"


def _test(changed: Json | Obstacle, reference: Json | Obstacle, arm: str) -> dict[str, Any]:
    """The paired test of INJ over seeds; undefined where one of the two was not run, or has no score."""
    undefined = {"mean": None, "p": None, "ci95": None}
    if isinstance(changed, Obstacle) or isinstance(reference, Obstacle):
        return undefined
    ours, theirs = (_arm(document, arm)["inj"]["per_seed"] for document in (changed, reference))
    if None in (*ours, *theirs):
        return undefined
    difference = np.array(ours) - np.array(theirs)
    return {"mean": float(difference.mean()), **statistics.paired_t(difference)}


def _default_row(arm: str, reference: Json | Obstacle) -> tuple[str, ...]:
    if isinstance(reference, Obstacle):
        return ("all at their defaults", arm, "-", "-", "-", "-", f"not run: {reference.reason}")
    return ("all at their defaults", arm, number(_arm(reference, arm)["inj"]["mean"]), "-", "-", "-", "the reference")


def _arm(document: Json, assignment: str) -> Json:
    return next(arm for arm in document["arms"] if arm["assignment"] == assignment)


def _interval(ends: Sequence[float] | None) -> str:
    return "-" if ends is None else " to ".join(map(signed, ends))


def _p_value(p: float | None) -> str:
    return "-" if p is None else f"{p:.2g}"
