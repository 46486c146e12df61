"""The tables of a run that follow its summary."""

from collections.abc import Mapping

import numpy as np

from soopf_jax.features import geometry
from soopf_jax.grid import Grid
from soopf_jax.report.confusion import axis_accuracy, confusion
from soopf_jax.report.tables import Table
from soopf_jax.runtime.text import number, p_value
from soopf_jax.scoring import metrics
from soopf_jax.types import Json

ROUTER_SCORES = {"iou": "IoU", "iou_edited": "IoU of the edited support", "agreement": "agreement"}
"""The scores of a router's masks, by their names in a result."""
ROUTER_STATE = {"spread": "logit range", "saturated": "saturated", "entropy": "entropy"}
"""How decided a router is, by the names in a result: range of its logits, share of patches of which one slot takes more
than 0.99, entropy of its masks over log S."""
FEATURE_STATISTICS = {
    "source_rms": ("source RMS", "root mean square of the source tokens, over pairs, patches and channels"),
    "delta_rms": ("delta RMS", "the same for delta, the change of the tokens"),
    "change_inside": ("change inside", "share of the squared change that is in the edited region"),
    "effective_rank": (
        "effective rank",
        "how many directions the changes use: exp of the entropy of the normalised eigenvalues of their second moments",
    ),
}
"""What the features are like, by the names in a result: how it is shown, and what it means."""
FEATURE_TERMS = FEATURE_STATISTICS | geometry.MEANINGS
"""The same for all numbers of the features: their statistics and their geometry."""

GRID_SEARCH = {"found": "found", "search_gap": "search gap", "unidentifiable": "a wrong grid fits better"}
"""The verdicts on grids, by their names in a result."""


def combinations(document: Json) -> Table:
    """The scores of every combination of two edited cells, beside chance."""
    scores, levels = document["arms"][0]["two_edits"], document["provenance"]["chance"]
    shown = [row for row in metrics.METRICS[metrics.TWO_EDITS] if row.key in scores]
    rows = [
        (name, *(number(scores[row.key]["per_combination"][name]) for row in shown))
        for name in scores["joint"]["per_combination"]
    ]
    rows.append(("chance", *(number(levels.get(row.key)) for row in shown)))
    return Table("Two edits, per combination", ("edited cells", *(row.name for row in shown)), rows)


def cells(document: Json) -> Table:
    """INJ of every held-out cell, an arm per column, beside chance."""
    arms, chance = document["arms"], number(document["provenance"]["chance"].get("inj"))
    names = list(arms[0]["inj"]["per_cell"])
    header = ("held-out cell", *(arm["assignment"] for arm in arms), "chance")
    rows = [(name, *(number(arm["inj"]["per_cell"][name]) for arm in arms), chance) for name in names]
    return Table("INJ per held-out cell", header, rows)


def tests(document: Json) -> Table:
    """Paired tests over seeds."""
    header = ("a", "b", "score", "n", "a - b", "t", "p", "p (Holm)")
    rows = [
        (
            _side(test["a"]),
            _side(test["b"]),
            metrics.NAMES.get(test["score"], test["score"]),
            str(test["n"]),
            number(test["mean_diff"]),
            number(test["t"], 2),
            p_value(test["p"]),
            p_value(test["p_holm"]),
        )
        for test in document["tests"]
    ]
    return Table("Paired t-tests over seeds", header, rows)


def _side(name: str) -> str:
    """One side of a test under the names of the scores: `learned injective` is `learned INJ`."""
    arm, _, alignment = name.rpartition(" ")
    return f"{arm} {metrics.NAMES['inj']}" if alignment == "injective" else name


def routers(document: Json) -> dict[str, Json]:
    """How well routers find the supports: by arm, on its held-out cells, and for fits that saw all cells."""
    by_arm = {arm["assignment"]: arm.get("router") for arm in document["arms"]}
    found = by_arm | {"diagnostic, all cells observed": document.get("router")}
    return {name: scores for name, scores in found.items() if scores}


def router(document: Json) -> Table | None:
    """Every router's scores over seeds; None where there is no router."""
    rows = [
        (name, *(f"{number(scores[s]['mean'])} ± {number(scores[s]['sd'])}" for s in ROUTER_SCORES))
        for name, scores in routers(document).items()
    ]
    title = "Router masks against the true regions (mean ± SD over seeds)"
    return Table(title, ("fits", *ROUTER_SCORES.values()), rows) if rows else None


def router_state(document: Json) -> Table | None:
    """How decided every arm's routers are, before and after training; None where there is no router."""
    states = {arm["assignment"]: arm.get("router_state") for arm in document["arms"]}
    rows = [
        (name, *(number(state[key][moment]["mean"]) for key in ROUTER_STATE for moment in ("start", "end")))
        for name, state in states.items()
        if state
    ]
    header = ("fits", *(f"{shown}, {moment}" for shown in ROUTER_STATE.values() for moment in ("start", "end")))
    return Table("State of the router before and after training (means over patches)", header, rows) if rows else None


def features(document: Json) -> Table | None:
    """What the features of a run are like; None for a result of an earlier version."""
    origin = document["provenance"]
    found = {"training pairs": origin.get("features", {}), "test pairs": origin.get("test_features", {})}
    rows = [
        (name, *(number(told["statistics"][key]) for key in FEATURE_STATISTICS))
        for name, told in found.items()
        if "statistics" in told
    ]
    header = ("features", *(shown for shown, _ in FEATURE_STATISTICS.values()))
    return Table("What the features are like", header, rows) if rows else None


def feature_geometry(document: Json) -> Table | None:
    """How the innovations of cells lie to one another; None for a result of an earlier version."""
    found = document["provenance"].get("features", {}).get("geometry")
    header = ("features", *(shown for shown, _ in geometry.MEANINGS.values()))
    if not found:
        return None
    row = ("training pairs", *(number(found[key]) for key in geometry.MEANINGS))
    return Table("Geometry of the innovations", header, [row])


def grid_search(document: Json) -> Table | None:
    """What is known of the grids that were decided before training; None where there are none."""
    searches = {arm["assignment"]: arm.get("grid_search") for arm in document["arms"]}
    rows = [
        (name, *(number(search[key]) for key in GRID_SEARCH), number(search["tried_steps"], 0))
        for name, search in searches.items()
        if search
    ]
    header = ("assignment", *GRID_SEARCH.values(), "fit-steps of trials per fold")
    return Table("Grids decided before training (shares of folds)", header, rows) if rows else None


def readings(document: Json, fits: Mapping[str, np.ndarray]) -> Table:
    """What each arm reads held-out pairs as: the cell, its support alone, its operation alone, its commonest error."""
    grid = Grid.of(**document["provenance"]["grid"])
    rows = []
    for index, arm in enumerate(document["arms"]):
        shares = confusion(fits, index, grid)
        supports, operations = axis_accuracy(shares, grid)
        for cell in np.flatnonzero(np.isfinite(supports)):
            others = np.where(np.arange(grid.n_cells) == cell, -1.0, shares[cell])
            error = f"{grid.cell_names[others.argmax()]} ({others.max():.3f})" if others.max() > 0 else "-"
            right = (shares[cell, cell], supports[cell], operations[cell])
            rows.append((grid.cell_names[cell], arm["assignment"], *map(number, right), error))
    header = ("held-out cell", "assignment", "INJ", "support right", "operation right", "commonest error")
    return Table("What held-out pairs are read as", header, rows)
