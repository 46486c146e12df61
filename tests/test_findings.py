"""The sentence on top of a report, from documents and counts made by hand."""

import numpy as np
import pytest

from soopf_jax.grid import Grid
from soopf_jax.report import findings
from soopf_jax.report.findings import finding

from .report_result import dealt_two_edits

GRID = Grid(("floor", "wall"), ("hue", "invert", "stripes"))
EXCHANGED = np.eye(6)[[1, 0, 2, 4, 3, 5]]
"""Every pair of hue is read as invert on the same support, and the other way round."""
SHARED_OPERATIONS = np.array([[0.7, 0.3, 0.0], [0.6, 0.4, 0.0], [0.0, 0.0, 1.0]])
"""Native hue and invert both have most of their energy in the first slot."""


def document(scores, seeds=10):
    """Arms with these {assignment: (INJ, many-to-one)}; half the width of every interval is 0.05."""
    return {
        "config": {"protocol": {"seeds": seeds}},
        "provenance": {
            "grid": {"supports": list(GRID.supports), "operations": list(GRID.operations)},
            "chance": {"inj": 1 / 6},
        },
        "arms": [
            {
                "assignment": name,
                "inj": {"mean": inj, "ci95": None if inj is None else [inj - 0.05, inj + 0.05]},
                "non_injective": {"mean": many},
            }
            for name, (inj, many) in scores.items()
        ],
    }


def fits(*read_as, operations=None, supports=None):
    """One fit for each arm and held-out cell. `read_as[arm]` has the share of each cell's pairs read as each cell."""
    n_arms, cells = len(read_as), GRID.n_cells
    bindings = {"C_sup": supports or [np.eye(2)] * n_arms, "C_op": operations or [np.eye(3)] * n_arms}
    return {
        "arm": np.repeat(np.arange(n_arms), cells),
        "selected": np.ones(n_arms * cells, bool),
        "held_out": np.tile(np.arange(cells), n_arms),
        "test_counts": np.round(100 * np.concatenate(read_as)).astype(int),
        **{column: np.repeat(np.stack(matrices), cells, axis=0) for column, matrices in bindings.items()},
    }


def mixture(share, confused=EXCHANGED):
    """Pairs that are confused with this share, and right otherwise."""
    return share * confused + (1 - share) * np.eye(6)


def test_the_sentence_of_the_issue():
    found = finding(
        document({"factorial": (0.62, 0.65), "learned": (0.56, 0.94)}),
        fits(mixture(0.5), mixture(0.6), operations=[np.eye(3), SHARED_OPERATIONS]),
    )
    assert found == (
        "INJ is at best 0.62, with factorial assignment (chance 0.17); "
        "hue and invert are confused on every support (0.50 of these pairs); "
        "learned assignment launders operations: 0.94 many-to-one, 0.56 injective."
    )


def test_what_only_the_best_arm_confuses_has_its_name_and_its_places():
    only_floor = np.eye(6)[[1, 0, 2, 3, 4, 5]]
    found = finding(
        document({"learned": (0.5, 0.5), "factorial": (0.8, 0.8)}), fits(np.eye(6), mixture(0.4, only_floor))
    )
    assert found == (
        "INJ is at best 0.80, with factorial assignment (chance 0.17); "
        "with factorial assignment hue and invert are confused on floor (0.40 of these pairs)."
    )


def test_supports_that_are_confused_have_operations_for_places():
    other_support = np.eye(6)[[3, 4, 2, 0, 1, 5]]  # hue and invert, but not stripes, land on the other support
    found = findings.confusions(mixture(0.3, other_support), GRID)
    assert [confusion.text for confusion in found] == ["floor and wall are confused under hue and invert"]
    assert found[0].share == pytest.approx(0.3)


@pytest.mark.parametrize(("there", "back", "named"), [(0.4, 0.0, True), (0.2, 0.2, True), (0.38, 0.0, False)])
def test_both_directions_count_half(there, back, named):
    shares = np.eye(6)
    shares[0, [0, 1]], shares[1, [0, 1]] = (1 - there, there), (back, 1 - back)
    assert bool(findings.confusions(shares, GRID)) == named


def test_a_cell_that_was_not_held_out_is_not_confused():
    shares = np.full((6, 6), np.nan)
    assert findings.confusions(shares, GRID) == []


def test_the_two_most_confused_pairs_are_named():
    shares = np.eye(6)
    for first in (0, 3):  # of each support
        block = np.array([[0.2, 0.5, 0.3], [0.5, 0.1, 0.4], [0.3, 0.4, 0.3]])
        shares[first : first + 3, first : first + 3] = block
    assert [c.values for c in findings.confusions(shares, GRID)] == [
        ("hue", "invert"),
        ("invert", "stripes"),
        ("hue", "stripes"),
    ]
    assert finding(document({"native": (0.4, 0.4)}), fits(shares)) == (
        "INJ is 0.40 with native assignment (chance 0.17); "
        "hue and invert are confused on every support (0.50 of these pairs); "
        "invert and stripes are confused on every support (0.40 of these pairs)."
    )


def test_at_chance_there_is_nothing_to_confuse():
    """The interval 0.15 to 0.25 holds chance, 1/6."""
    assert finding(document({"native": (0.2, 0.2)}), fits(EXCHANGED)) == (
        "Native assignment does not read held-out cells better than chance (INJ is 0.20, chance 0.17)."
    )
    assert finding(document({"a": (0.1, 0.15), "b": (0.2, 0.2)}), fits(EXCHANGED, EXCHANGED)) == (
        "No assignment reads held-out cells better than chance (INJ is at best 0.20, chance 0.17)."
    )


@pytest.mark.parametrize(
    ("supports", "operations", "said"),
    [
        (np.eye(2), SHARED_OPERATIONS, "launders operations"),
        (np.ones((2, 2)), np.eye(3), "launders supports"),
        (np.ones((2, 2)), SHARED_OPERATIONS, "launders supports and operations"),
        (np.eye(2), np.eye(3), "gains from shared slots"),
    ],
)
def test_laundering_names_the_axes_whose_values_share_slots(supports, operations, said):
    found = finding(document({"learned": (0.5, 0.7)}), fits(np.eye(6), operations=[operations], supports=[supports]))
    assert found.endswith(f"; learned assignment {said}: 0.70 many-to-one, 0.50 injective.")


def test_arms_that_launder_the_same_axes_share_a_clause():
    found = finding(
        document({"factorial": (0.6, 0.6), "learned": (0.5, 0.9), "compressed": (0.4, 0.7)}),
        fits(*[np.eye(6)] * 3, operations=[np.eye(3), SHARED_OPERATIONS, SHARED_OPERATIONS]),
    )
    assert found.endswith(
        "; learned and compressed assignment launder operations: 0.90 and 0.70 many-to-one, 0.50 and 0.40 injective."
    )


def test_a_small_gap_is_not_laundering():
    assert "launders" not in finding(document({"learned": (0.5, 0.59)}), fits(np.eye(6)))


def test_few_seeds_are_said_and_incomplete_arms_left_out():
    scores = {"factorial": (None, None), "learned": (0.5, 0.5)}
    found = finding(document(scores, seeds=3), fits(np.eye(6), np.eye(6)))
    assert found == "INJ is 0.50 with learned assignment (chance 0.17); measured with 3 seeds only."
    assert finding(document({"factorial": (None, None)}), fits(np.eye(6))) == ""


def test_two_edits_have_a_sentence_of_their_own():
    result = dealt_two_edits()
    for key, mean in (("joint", 0.451), ("at_least_one", 0.95), ("support_pair", 0.8)):
        result.document["arms"][0]["two_edits"][key]["mean"] = mean
    # 9 cells: 1 / 36; 1 - C(7, 2) / 36 = 15 / 36; 3 supports: 1 / 3.
    assert finding(*result[:2]) == (
        "Both edited cells are found in 0.45 of the pairs (chance 0.03); at least one is found in 0.95 of the pairs "
        "(chance 0.42); both supports are found in 0.80 of the pairs (chance 0.33); measured with 3 seeds only."
    )
