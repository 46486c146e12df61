"""Hints: what looks odd in a finished run, what usually causes it, and where the documentation says more.

In: the document of a result. Out: at most one hint for each rule of `RULES`, in the order of the table. A hint names
every arm that it concerns. A rule whose numbers are missing, as in results of earlier versions, gives no hint.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from soopf_jax.grid import Grid
from soopf_jax.scoring.statistics import ENOUGH_SEEDS, MIN_SEEDS
from soopf_jax.types import Json

PAGE = "docs/troubleshooting.md"
"""The page that explains hints, as a path in the repository."""

DISTINCT = 0.7
"""Fewer fits than this with a slot for each support: supports share slots."""
LEARNED = 0.2
"""A validation accuracy that is less than this share of the way from chance to 1 is near chance."""
LOW = 0.5
"""The paper's threshold of a collapsed fit. A cell below it counts as low."""
COLLAPSED = 1 / 3
"""A larger share of collapsed fits than this is pointed out."""
GAP = 0.1
"""A larger gain by shared slots than this is pointed out."""
OUTSIDE = 0.2
"""A larger share of the change outside the edited region than this is pointed out."""
SATURATED = 0.05
"""A larger share of patches that one slot takes before training than this is pointed out."""

ROUTER_OPTIONS: Mapping[str, tuple[Any, str]] = {
    "source_scale": (1.0, "--source-scale 0.1"),
    "router_input": ("raw", "--router-input rms"),
    "query_sd": (0.0, "--query-sd 0.02"),
}
"""Options that keep a router undecided for longer, by their names in a result: (value of a run that has not tried it,
what to try)."""


class Hint(NamedTuple):
    """Advice on one oddity of a run."""

    id: str
    """The name of the rule."""
    text: str
    """One or two sentences: what was found in which arms, and what to try."""
    link: str
    """The page and the anchor of its explanation, as a path in the repository."""


class Rule(NamedTuple):
    """One oddity and how it is found."""

    id: str
    link: str
    """The page and the anchor of its explanation."""
    text: Callable[[Json], str]
    """From the document of a result to the text of the hint; empty if nothing is odd."""


def hints(document: Json) -> list[Hint]:
    """The hints on a result, the most fundamental first."""
    found = ((rule, rule.text(document)) for rule in RULES)
    return [Hint(rule.id, text, rule.link) for rule, text in found if text]


# ------------------------------------------------------------------------------------------------------ the rules


def near_chance(document: Json) -> str:
    """The fits have not learned the cells that they were trained on."""
    arms = [f"{arm['assignment']} {arm['validation']:.3f}" for arm in document["arms"] if not _learned(document, arm)]
    if not arms:
        return ""
    return (
        f"validation accuracy on observed cells is near chance ({_chance(document):.3f}): {', '.join(arms)}. The fits "
        "have not learned the edits that they saw; look at the pairs, and try more --steps"
    )


def change_outside(document: Json) -> str:
    """The encoder's tokens change where nothing was edited."""
    inside = (document["provenance"].get("features", {}).get("statistics") or {}).get("change_inside")
    if inside is None or 1 - inside <= OUTSIDE:
        return ""
    return (
        f"{1 - inside:.0%} of the change of the tokens lies outside the edited region. The encoder mixes patches; an "
        "earlier --layer usually keeps an edit where it was made"
    )


def saturated_router(document: Json) -> str:
    """The router is decided before it has learned anything."""
    shares = [(arm["assignment"], _router(arm, "saturated", "start")) for arm in document["arms"]]
    arms = [f"{name} {share:.0%}" for name, share in shares if share is not None and share > SATURATED]
    if not arms:
        return ""
    return (
        f"before training, one slot already takes more than 0.99 of many patches: {', '.join(arms)} of them. Such a "
        f"router hardly learns{_router_advice(document)}"
    )


def shared_slots(document: Json) -> str:
    """Two supports share a slot."""
    rates = [(arm, arm["distinct_support_rate"]) for arm in document["arms"]]
    low = [(arm, rate) for arm, rate in rates if rate is not None and rate < DISTINCT]
    if not low:
        return ""
    arms = ", ".join(f"{arm['assignment']} {rate:.3f}" for arm, rate in low)
    advice = _router_advice(document) if any(arm.get("router_state") for arm, _ in low) else ""
    return f"two supports share a slot in many fits (distinct: {arms}){advice}"


def low_operation(document: Json) -> str:
    """Every cell of one operation is low, while another operation is read."""
    arms = [
        f"{', '.join(names)} ({arm['assignment']})"
        for arm in _learned_arms(document)
        if (names := _low_operations(arm, Grid.of(**document["provenance"]["grid"])))
    ]
    if not arms:
        return ""
    return (
        f"all held-out cells of an operation are below {LOW}: {'; '.join(arms)}. It is probably taken for another "
        "operation; the report's table 'What held-out pairs are read as' says for which"
    )


def laundering(document: Json) -> str:
    """Accuracy that comes from shared slots."""
    arms = [
        f"{arm['assignment']} {arm['non_injective']['mean']:.3f} many-to-one, {arm['inj']['mean']:.3f} injective"
        for arm in _learned_arms(document)
        if arm["laundering_gap"] is not None and arm["laundering_gap"] > GAP
    ]
    return f"much of the accuracy comes from shared slots: {'; '.join(arms)}. Report INJ" if arms else ""


def collapse(document: Json) -> str:
    """Many fits do not read their held-out cell, although they have learned the others."""
    arms = [
        f"{rate:.0%} of {arm['assignment']} (validation {arm['validation']:.3f})"
        for arm in _learned_arms(document)
        if (rate := arm["collapse"][str(LOW)]) is not None and rate > COLLAPSED
    ]
    if not arms:
        return ""
    return (
        f"many fits read less than half of the cell that they have not seen: {', '.join(arms)}. See whether it is the "
        "same cells in every seed"
    )


def few_seeds(document: Json) -> str:
    """The seeds are too few for certain statistics."""
    seeds = document["config"]["protocol"]["seeds"]
    if seeds >= ENOUGH_SEEDS:
        return ""
    if seeds < MIN_SEEDS:
        return f"fewer than {MIN_SEEDS} seeds give no interval and no p-value; use more --seeds, the paper has 10"
    return f"intervals of fewer than {ENOUGH_SEEDS} seeds are approximate (~): a rare kind of fit may not be among them"


RULES = (
    Rule("near-chance", f"{PAGE}#validation-is-near-chance", near_chance),
    Rule("change-outside", f"{PAGE}#the-change-lies-outside-the-edited-region", change_outside),
    Rule("saturated-router", f"{PAGE}#the-router-is-saturated-at-the-start", saturated_router),
    Rule("shared-slots", f"{PAGE}#two-supports-share-a-slot", shared_slots),
    Rule("low-operation", f"{PAGE}#all-cells-of-one-operation-are-low", low_operation),
    Rule("laundering", f"{PAGE}#the-laundering-gap-is-large", laundering),
    Rule("collapse", f"{PAGE}#many-fits-collapse", collapse),
    Rule("few-seeds", "docs/statistics.md#few-seeds", few_seeds),
)


# ----------------------------------------------------------------------------------------- what the rules read


def _chance(document: Json) -> float:
    return 1 / Grid.of(**document["provenance"]["grid"]).n_cells


def _learned(document: Json, arm: Json) -> bool:
    """Whether the validation accuracy is clearly above chance; true where it is unknown."""
    validation, chance = arm["validation"], _chance(document)
    return validation is None or (validation - chance) / (1 - chance) >= LEARNED


def _learned_arms(document: Json) -> Iterator[Json]:
    """The arms whose scores can be odd for another reason than that nothing was learned."""
    return (arm for arm in document["arms"] if arm["validation"] is not None and _learned(document, arm))


def _router(arm: Json, name: str, moment: str) -> float | None:
    state = arm.get("router_state")
    mean: float | None = state[name][moment]["mean"] if state else None
    return mean


def _router_advice(document: Json) -> str:
    """What is left to try of the options of the router."""
    sizes = document["config"]["protocol"]
    left = [text for name, (untried, text) in ROUTER_OPTIONS.items() if sizes.get(name) == untried]
    return f"; try {', '.join(left[:-1])}{' or ' if left[:-1] else ''}{left[-1]}" if left else ""


def _low_operations(arm: Json, grid: Grid) -> list[str]:
    """The operations of which every cell is low. None if no operation is read, because then it is not the operation."""
    cells = [arm["inj"]["per_cell"].get(name) for name in grid.cell_names]
    if None in cells:
        return []
    best = [max(cells[o :: grid.n_operations]) for o in range(grid.n_operations)]
    low = [name for name, value in zip(grid.operations, best, strict=True) if value < LOW]
    return low if len(low) < grid.n_operations else []
