"""The paper's numbers against each other: what must agree does, and what does not carries a note."""

import copy
import json
import math
from pathlib import Path

import pytest
from scipy import stats

from soopf_jax.fitting import objectives
from soopf_jax.fitting.protocol import Protocol, split_sizes
from soopf_jax.paper import published as paper
from soopf_jax.scoring import score

PAPER = paper.load()
DOCUMENT = json.loads((Path(__file__).parent.parent / "assets" / "paper.json").read_text())
ROUNDING = 0.0005


def printed(row, score_name):
    """The one value that the paper prints for a score of a row."""
    (value,) = {n.value for r, s, n in PAPER.scores() if (r.name, s) == (row, score_name)}
    return value


def all_printed(*score_names):
    return [(r, s, n) for r, s, n in PAPER.scores() if s in score_names]


def paired_tests():
    return {entry.title: entry for entry in PAPER.tables["tests"].entries}


def constant(quantity):
    (value,) = [c.value for c in PAPER.constants if c.quantity == quantity]
    return value


def is_multiple(value, denominator):
    """Whether some k / denominator is printed as this value."""
    return abs(round(value * denominator) / denominator - value) <= ROUNDING + 1e-12


def p_of(t):
    return 2 * stats.t.sf(t, df=9)


# --------------------------------------------------------------------------------------------- completeness


def test_the_tables_have_as_many_rows_as_the_paper_prints():
    rows = {name: len(table.entries) for name, table in PAPER.tables.items()}
    assert rows["headline"] == 3 + 2 + 2 + 2 + 2
    assert rows["baselines"] == 6 * 3 + 2  # six methods on three data sets, two carriers on COCO alone
    assert rows["carrier"] == 6
    assert rows["cross-encoder"] == 11
    assert rows["thresholds"] == 2 * 3 + 2 * 2


def test_a_number_says_where_it_stands_and_of_how_many():
    entry = PAPER.tables["headline"].entries[0]
    number = entry.numbers["inj"]
    assert (number.value, number.sd, number.n) == (0.874, 0.009, 10)
    assert number.where == "tab:headline, row Shapes3D, DINOv3: factorial, column INJ"
    assert PAPER.tables["two-edits"].entries[0].numbers["two_edits/joint"].n == 5


def test_a_spread_is_found_wherever_it_is_printed():
    assert PAPER.spread(PAPER.rows["coco/pixels"], "inj") == 0.016  # in the text, not in tab:baselines
    assert PAPER.spread(PAPER.rows["coco/dinov3/mlp"], "inj") is None


# ------------------------------------------------------------------------------------------ what must agree


def test_a_number_is_the_same_wherever_it_is_printed():
    seen = {}
    for row, name, number in PAPER.scores():
        assert seen.setdefault((row.name, name), number.value) == number.value, number.where


def test_collapse_rates_are_shares_of_90_fits():
    found = all_printed("collapse/0.4", "collapse/0.5", "collapse/0.6")
    assert len(found) > 40
    for row, _, number in found:
        assert is_multiple(number.value, row.seeds * 3 * len(row.operations)), number.where


def test_collapse_grows_with_the_threshold():
    for entry in PAPER.tables["thresholds"].entries:
        rates = [entry.numbers[f"collapse/{t}"].value for t in ("0.4", "0.5", "0.6")]
        assert rates == sorted(rates)


def test_collapse_bounds_the_mean():
    """A share c of fits below 0.5 and the others at or above it: 0.5 (1 - c) <= INJ < 0.5 c + (1 - c)."""
    for row, _, number in all_printed("collapse/0.5"):
        inj, c = printed(row.name, "inj"), number.value
        assert 0.5 * (1 - c) - ROUNDING <= inj <= 0.5 * c + 1 - c + ROUNDING, number.where


def test_the_lowest_cell_is_not_above_the_mean():
    for row, _, number in all_printed("min_cell"):
        assert number.value <= printed(row.name, "inj")


def test_distinct_support_rate_is_a_share_of_fits():
    assert is_multiple(printed("mujoco/siglip2/learned", "distinct_support_rate"), 90)


def test_laundering_gaps_are_differences():
    for row, _, number in all_printed("laundering_gap"):
        difference = printed(row.name, "non_injective") - printed(row.name, "inj")
        assert math.isclose(number.value, difference, abs_tol=1e-9)


def test_the_sd_of_a_difference_fits_the_sds_of_its_parts():
    """t = d sqrt(n) / s gives s; as population SD it lies between |a - b| and a + b."""
    entry = paired_tests()["COCO, SigLIP2: factorial - learned, INJ"]
    s = entry.numbers["mean_diff"].value * math.sqrt(10) / entry.numbers["t"].value * math.sqrt(9 / 10)
    a, b = (PAPER.spread(PAPER.rows[f"coco/siglip2/{name}"], "inj") for name in ("factorial", "learned"))
    assert abs(a - b) < s < a + b


def test_p_of_the_first_test_follows_from_its_t():
    entry = paired_tests()["Shapes3D, core: factorial - learned, many-to-one"]
    assert round(p_of(entry.numbers["t"].value), 4) == entry.numbers["p"].value == 0.0031


def test_mujoco_cells_average_to_the_mean():
    """Three cells of each operation within the printed ranges."""
    numbers = PAPER.tables["cells"].entries[1].numbers
    ranges = [(numbers[f"cells/{o}/low"].value, numbers[f"cells/{o}/high"].value) for o in ("hue", "invert", "pattern")]
    low, high = (sum(2 * r[end] + r[1 - end] for r in ranges) / 9 for end in (0, 1))
    assert low <= printed("mujoco/siglip2/factorial", "inj") <= high


def test_constants_are_those_of_the_code():
    protocol = Protocol()
    assert (protocol.seeds, protocol.restarts, protocol.steps) == tuple(
        constant(name) for name in ("seeds", "restarts", "steps")
    )
    assert (protocol.tau_start, protocol.tau_end) == (
        constant("tau at the first step"),
        constant("tau at the last step"),
    )
    assert protocol.learning_rate == constant("learning rate of Adam")
    assert protocol.hidden == constant("hidden units of the operation MLP")
    assert constant("scale of the energy-share logits") == objectives.LOGIT_SCALE
    assert constant("localisation margin rho") == objectives.LOCALISATION_MARGIN
    for name in ("loc", "bal", "axis", "opinj"):
        assert objectives.ENHANCED[name] == constant(f"weight of L_{name}, enhanced")
        assert objectives.CORE.get(name, 0) == 0
    for n in (350, 300):
        roles = ("optimisation", "validation", "unused")
        assert split_sizes(n) == tuple(constant(f"{role} pairs of a {n}-pair cell") for role in roles)


def test_counts_multiply():
    assert constant("source images, COCO") == constant("cells") * constant("pairs per cell, COCO")
    assert constant("held-out examples of the router diagnostic") == 9 * constant("unused pairs of a 350-pair cell")
    assert constant("fits (seed, held-out cell) of ten seeds") == 10 * constant("cells")
    assert constant("one over uniform chance, two edits") == math.comb(9, 2)
    assert constant("patches of DINOv3") == (224 // 16) ** 2
    assert constant("patches of SigLIP2") == (256 // 16) ** 2


# ------------------------------------------------------------------------------------------- what does not


def test_recovery_is_a_share_of_rows_and_said_to_be_of_fits():
    for _, _, number in all_printed("recovery"):
        assert is_multiple(number.value, 720), number.where
        assert (number.note == "recovery") == (not is_multiple(number.value, 90)), number.where


def test_differences_are_those_of_the_means_or_noted_and_within_rounding():
    means = {
        "Shapes3D, core: factorial - learned, many-to-one": (0.874, 0.780),
        "COCO, SigLIP2: factorial - learned, INJ": (0.826, 0.751),
        "MuJoCo, DINOv3: learned, many-to-one - injective": (0.790, 0.569),
        "Shapes3D, enhanced: factorial - learned": (0.913, 0.841),
    }
    for title, (a, b) in means.items():
        number = paired_tests()[title].numbers["mean_diff"]
        off = abs(number.value - (a - b))
        assert off <= 2 * ROUNDING + 1e-9
        assert (number.note == "raw-difference") == (off > ROUNDING), title


def test_p_of_the_second_test_does_not_follow_but_for_rounding():
    number = paired_tests()["COCO, SigLIP2: factorial - learned, INJ"].numbers["p"]
    assert (round(p_of(3.33), 4), number.value, number.note) == (0.0088, 0.0087, "p-of-t")
    assert p_of(3.335) < 0.00875 < p_of(3.325)


def test_holm_s_note():
    p_values = [entry.numbers["p"].value for entry in paired_tests().values() if "p" in entry.numbers]
    adjusted = score.holm([*p_values, p_of(4.71)])
    assert [round(adjusted[p_values.index(p)], 4) for p in (0.0031, 0.0087)] == [0.0093, 0.0174]
    assert ".0031 at .0093 and .0087 at .0174" in PAPER.notes["holm"]


def test_the_lowest_cell_is_the_lowest_of_the_ranges_or_noted():
    for entry in PAPER.tables["cells"].entries:
        lowest = min(number.value for number in entry.numbers.values() if number)
        headline = next(e for e in PAPER.tables["headline"].entries if e.row == entry.row).numbers["min_cell"]
        assert (headline.value != lowest) == (headline.note == "siglip2-min"), entry.title


def test_two_right_cells_would_mean_two_right_supports():
    numbers = PAPER.tables["two-edits"].entries[0].numbers
    assert numbers["two_edits/support_pair"].value < numbers["two_edits/joint"].value
    assert numbers["two_edits/support_pair"].note == "support-pair"


def test_every_note_is_used():
    assert {number.note for number in PAPER.all_numbers()} - {None} == set(PAPER.notes)


# ------------------------------------------------------------------------------------------------- checks


def broken(change):
    document = copy.deepcopy(DOCUMENT)
    change(document)
    return document


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d["rows"]["coco/pixels"].update(encoder="pixel"), "names 'pixel'"),
        (lambda d: d["rows"]["coco/pixels"].update(colour="red"), "colour"),
        (lambda d: d["rows"]["coco/pixels"].pop("dataset"), "dataset"),
        (lambda d: d["tables"][0]["entries"][0].update(row="nowhere"), "nowhere"),
        (lambda d: d["tables"][0]["entries"][0]["values"].update(inj=1.2), "is no share"),
        (lambda d: d["tables"][0]["entries"][0]["values"].update(inj=float("nan")), "cannot be"),
        (lambda d: d["tables"][0]["entries"][0]["values"].update(inj={"value": 0.5, "note": "none"}), "no note 'none'"),
        (lambda d: d["tables"][0]["entries"][0]["values"].update(INJ=0.5), "INJ"),
        (lambda d: d["tables"][0]["entries"].append(d["tables"][0]["entries"][0]), "two rows of the same name"),
        (lambda d: d["statements"][0].update(sd=-0.1), "cannot be"),
    ],
)
def test_a_faulty_file_is_refused(change, said):
    with pytest.raises(ValueError, match=said):
        paper.parse(broken(change))
