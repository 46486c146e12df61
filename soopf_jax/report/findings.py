"""What a run found, in one sentence: how well it reads, which values it confuses, and where accuracy is laundered.

The sentence is made by rules from the scores in `result.json` and the counts in `fits.npz`. Nothing in it is a test of
significance; the tables of the report have those.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from soopf_jax.experiments.hints import GAP
from soopf_jax.grid import Grid
from soopf_jax.report.confusion import confusion
from soopf_jax.runtime.text import number
from soopf_jax.scoring import align, metrics
from soopf_jax.types import Json

CONFUSED = 0.2
"""Two values are confused in a place if at least this share of their held-out pairs there is read as the other."""
SHARED = 0.5
"""An axis is laundered if two of its values share a slot in at least this share of the fits."""
FEW_SEEDS = 5
"""A run with fewer seeds says so."""
MAX_CONFUSIONS = 2
"""How many pairs of confused values the sentence names, the most confused first."""


def finding(document: Json, fits: Mapping[str, np.ndarray]) -> str:
    """The sentence about a run.

    Args:
        document: result.json.
        fits: fits.npz.

    Returns:
        A sentence with a full stop; empty if no arm is complete.
    """
    clauses = RULES[metrics.experiment_of(document["config"])](document, fits)
    text = "; ".join(clauses)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


# ---------------------------------------------------------------------------------------------- held-out cells


def held_out(document: Json, fits: Mapping[str, np.ndarray]) -> list[str]:
    """The clauses about a run with held-out cells."""
    complete = [(i, arm) for i, arm in enumerate(document["arms"]) if arm["inj"]["mean"] is not None]
    if not complete:
        return []
    best_first = sorted(complete, key=lambda item: -item[1]["inj"]["mean"])
    level, is_above_chance = level_of(best_first[0][1], len(complete), document["provenance"]["chance"].get("inj"))
    found = [level]
    if is_above_chance:
        grid = Grid.of(**document["provenance"]["grid"])
        every = [confusions(confusion(fits, index, grid), grid) for index, _ in best_first]
        found += confusion_clauses(every, best_first[0][1]["assignment"])
    laundered: dict[tuple[str, ...], list[Json]] = {}  # by the axes whose values share slots
    for index, arm in complete:
        if arm["non_injective"]["mean"] - arm["inj"]["mean"] > GAP:
            laundered.setdefault(shares_slots(fits, index), []).append(arm)
    found += [laundering(arms, axes) for axes, arms in laundered.items()]
    return found + few_seeds(document)


def level_of(arm: Json, n_arms: int, chance: float | None) -> tuple[str, bool]:
    """How well the best arm reads, and whether that is better than chance."""
    name, score = arm["assignment"], arm["inj"]
    lowest = score["mean"] if score["ci95"] is None else score["ci95"][0]
    if chance is not None and lowest <= chance:
        subject = "no assignment reads" if n_arms > 1 else f"{name} assignment does not read"
        at_best = "at best " if n_arms > 1 else ""
        best = f"INJ is {at_best}{number(score['mean'], 2)}, chance {number(chance, 2)}"
        return f"{subject} held-out cells better than chance ({best})", False
    guess = "" if chance is None else f" (chance {number(chance, 2)})"
    if n_arms > 1:
        return f"INJ is at best {number(score['mean'], 2)}, with {name} assignment{guess}", True
    return f"INJ is {number(score['mean'], 2)} with {name} assignment{guess}", True


def laundering(arms: Sequence[Json], axes: Sequence[str]) -> str:
    """`learned assignment launders operations: 0.94 many-to-one, 0.56 injective`; all arms launder the same axes."""
    verbs = ("launders", "gains") if len(arms) == 1 else ("launder", "gain")
    what = f"{verbs[0]} {' and '.join(axes)}" if axes else f"{verbs[1]} from shared slots"
    names = listed([arm["assignment"] for arm in arms])
    many, injective = (listed([number(arm[score]["mean"], 2) for arm in arms]) for score in ("non_injective", "inj"))
    return f"{names} assignment {what}: {many} many-to-one, {injective} injective"


def shares_slots(fits: Mapping[str, np.ndarray], arm: int) -> tuple[str, ...]:
    """The axes on which an arm's selected fits bind two values to one slot, if they mostly do."""
    rows = (fits["arm"] == arm) & fits["selected"]
    found = []
    for axis, column in (("supports", "C_sup"), ("operations", "C_op")):
        shared = [len(set(align.many_to_one(matrix))) < len(matrix) for matrix in fits[column][rows]]
        if shared and np.mean(shared) >= SHARED:
            found.append(axis)
    return tuple(found)


def few_seeds(document: Json) -> list[str]:
    """A warning if there are few seeds."""
    seeds = document["config"]["protocol"]["seeds"]
    return [f"measured with {seeds} seed{'s' if seeds > 1 else ''} only"] if seeds < FEW_SEEDS else []


# --------------------------------------------------------------------------------------------------- confusions


class Confusion(NamedTuple):
    """Two values of one axis that are taken for each other."""

    values: tuple[str, str]
    place: str
    """Where this happens: `on every support`, `under hue and invert`."""
    share: float
    """The share of the held-out pairs of both values, in these places, that are read as the other value."""

    @property
    def text(self) -> str:
        """`hue and invert are confused on every support`."""
        return f"{' and '.join(self.values)} are confused {self.place}"


def confusions(shares: Float[np.ndarray, "cells cells"], grid: Grid) -> list[Confusion]:
    """The pairs of operations and of supports that are confused, the most confused first.

    Args:
        shares: The share of pairs of each held-out cell (row) that are read as each cell (column).
        grid: The grid of the cells.
    """
    by_axes = shares.reshape(grid.n_supports, grid.n_operations, grid.n_supports, grid.n_operations)
    # On one support: true operation x operation that is read. Under one operation: the same for supports.
    operations = [by_axes[s, :, s, :] for s in range(grid.n_supports)]
    supports = [by_axes[:, o, :, o] for o in range(grid.n_operations)]
    found = [
        *_confused(operations, grid.operations, grid.supports, "on", "support"),
        *_confused(supports, grid.supports, grid.operations, "under", "operation"),
    ]
    return sorted(found, key=lambda confusion: -confusion.share)


def _confused(
    maps: Sequence[Float[np.ndarray, "values values"]],
    values: Sequence[str],
    places: Sequence[str],
    preposition: str,
    place: str,
) -> list[Confusion]:
    found = []
    for a, b in combinations(range(len(values)), 2):
        exchanged = np.array([(read[a, b] + read[b, a]) / 2 for read in maps])
        here = np.flatnonzero(exchanged >= CONFUSED).tolist()  # NaN, of a cell that was not held out, is not
        if here:
            names = f"every {place}" if len(here) == len(places) > 1 else listed([places[i] for i in here])
            pair = values[a], values[b]
            found.append(Confusion(pair, f"{preposition} {names}", float(exchanged[here].mean())))
    return found


def confusion_clauses(every: Sequence[Sequence[Confusion]], best: str) -> list[str]:
    """What the best arm confuses; its name is left out where all arms do the same."""
    clauses = []
    for confused in every[0][:MAX_CONFUSIONS]:
        is_common = all(confused.text in [other.text for other in others] for others in every)
        arm = "" if is_common else f"with {best} assignment "
        clauses.append(f"{arm}{confused.text} ({number(confused.share, 2)} of these pairs)")
    return clauses


# ----------------------------------------------------------------------------------------------------- two edits


def two_edits(document: Json, fits: Mapping[str, np.ndarray]) -> list[str]:
    """The clauses about a run that reads two edits at once."""
    del fits
    scores, chance = document["arms"][0]["two_edits"], document["provenance"]["chance"]
    if scores["joint"]["mean"] is None:
        return []
    shown = {"joint": "both edited cells are", "at_least_one": "at least one is", "support_pair": "both supports are"}
    parts = [
        f"{words} found in {number(scores[key]['mean'], 2)} of the pairs (chance {number(chance.get(key), 2)})"
        for key, words in shown.items()
        if key in scores
    ]
    return [*parts, *few_seeds(document)]


RULES: dict[str, Callable[[Json, Mapping[str, np.ndarray]], list[str]]] = {
    metrics.HELD_OUT: held_out,
    metrics.TWO_EDITS: two_edits,
}
"""The clauses of the sentence, by experiment."""
