"""The hints on a result: every rule on both sides of its limit, their links, and where they are shown."""

import copy

import pytest

from soopf_jax.experiments import hints, results
from soopf_jax.report import run_folder, summary
from tests.planted import GRID
from tests.report_result import dealt_result, dealt_two_edits
from tests.result_folders import save_run
from tests.test_docs import ROOT, anchors

CELLS = [f"{support}/{operation}" for support in ("floor", "wall", "object") for operation in ("hue", "invert", "dots")]


def state(saturated):
    return {name: {"start": {"mean": saturated}, "end": {"mean": 0.9}} for name in ("spread", "saturated", "entropy")}


def healthy(assignment="factorial"):
    """An arm in which nothing is odd."""
    return {
        "assignment": assignment,
        "inj": {"mean": 0.8, "per_cell": dict.fromkeys(CELLS, 0.8)},
        "non_injective": {"mean": 0.82},
        "laundering_gap": 0.02,
        "collapse": {"0.4": 0.0, "0.5": 0.1, "0.6": 0.2},
        "distinct_support_rate": 0.95,
        "validation": 0.9,
        "router_state": state(0.0),
    }


def document(*arms, features=None, **protocol):
    return {
        "config": {"protocol": {"seeds": 10, "source_scale": 1.0, "router_input": "raw", "query_sd": 0.0} | protocol},
        "provenance": {
            "grid": {"supports": ["floor", "wall", "object"], "operations": ["hue", "invert", "dots"]},
            "features": features or {},
        },
        "arms": list(arms or (healthy(),)),
    }


def found(*arms, **other):
    return {hint.id: hint.text for hint in hints.hints(document(*arms, **other))}


def low_invert(value):
    cells = {name: value if "invert" in name else 0.8 for name in CELLS}
    return {"inj": {"mean": 0.65, "per_cell": cells}}


# ------------------------------------------------------------------------------------------------------- the rules


def test_a_healthy_run_has_no_hints():
    assert hints.hints(document()) == []


@pytest.mark.parametrize(
    ("rule", "fine", "odd"),
    [
        ("shared-slots", {"distinct_support_rate": 0.7}, {"distinct_support_rate": 0.69}),
        # 1/9 + 0.2 * 8/9 = 0.28889
        ("near-chance", {"validation": 0.2889}, {"validation": 0.2888}),
        ("low-operation", low_invert(0.5), low_invert(0.49)),
        ("laundering", {"laundering_gap": 0.1}, {"laundering_gap": 0.101}),
        ("collapse", {"collapse": {"0.5": 1 / 3}}, {"collapse": {"0.5": 0.34}}),
        ("saturated-router", {"router_state": state(0.05)}, {"router_state": state(0.051)}),
    ],
)
def test_an_arm_gets_a_hint_beyond_the_limit_of_its_rule_only(rule, fine, odd):
    assert found(healthy() | fine) == {}
    assert list(found(healthy() | odd)) == [rule]


def test_a_change_outside_the_edited_region_gets_a_hint():
    def of(inside):
        return found(features={"statistics": {"change_inside": inside}})

    assert of(0.8) == of(None) == found(features={"statistics": None}) == {}
    assert of(0.53)["change-outside"].startswith("47% of the change")


def test_few_seeds_get_a_hint():
    assert found(seeds=10) == {}
    assert "approximate" in found(seeds=9)["few-seeds"]
    assert "approximate" in found(seeds=3)["few-seeds"]
    assert found(seeds=2)["few-seeds"].startswith("fewer than 3 seeds give no interval and no p-value")


def test_a_hint_names_the_arms_that_it_concerns_with_their_numbers():
    odd = healthy("learned") | {"laundering_gap": 0.38, "inj": {"mean": 0.564, "per_cell": {}}}
    odd["non_injective"] = {"mean": 0.944}
    text = found(healthy(), odd)["laundering"]
    assert "learned 0.944 many-to-one, 0.564 injective" in text
    assert "factorial" not in text


def test_advice_leaves_out_the_options_that_were_tried():
    arm = healthy() | {"distinct_support_rate": 0.5}
    assert found(arm)["shared-slots"].endswith("; try --source-scale 0.1, --router-input rms or --query-sd 0.02")
    assert found(arm, router_input="rms")["shared-slots"].endswith("; try --source-scale 0.1 or --query-sd 0.02")
    tried = {"router_input": "rms", "source_scale": 0.1, "query_sd": 0.02}
    assert found(arm, **tried)["shared-slots"].endswith("(distinct: factorial 0.500)")


def test_a_readout_without_a_router_gets_no_advice_on_routers():
    assert "--" not in found(healthy() | {"distinct_support_rate": 0.5, "router_state": None})["shared-slots"]


def test_where_nothing_was_learned_held_out_cells_get_no_hints():
    arm = healthy() | low_invert(0.1) | {"validation": 0.15, "laundering_gap": 0.3, "collapse": {"0.5": 1.0}}
    assert list(found(arm)) == ["near-chance"]


def test_if_every_operation_is_low_no_operation_is_to_blame():
    arm = healthy() | {"inj": {"mean": 0.3, "per_cell": dict.fromkeys(CELLS, 0.3)}, "collapse": {"0.5": 1.0}}
    assert list(found(arm)) == ["collapse"]


# ----------------------------------------------------------------------------------- real documents, links, output


def undefined_scores(result):
    for arm in result.document["arms"]:
        for name in ("inj", "non_injective"):
            arm[name] |= {"mean": None, "per_cell": dict.fromkeys(arm[name]["per_cell"])}
        names = ("laundering_gap", "distinct_support_rate", "validation")
        arm |= dict.fromkeys(names) | {"collapse": {"0.4": None, "0.5": None, "0.6": None}}
    return result.document


@pytest.mark.parametrize(
    "made", [dealt_result().document, dealt_two_edits().document, undefined_scores(dealt_result())]
)
def test_any_result_can_be_read_and_takes_its_hints(made):
    """Dealt results have no state of the router and no statistics of the features, like results of before."""
    found = [hint._asdict() for hint in hints.hints(made)]
    results.check_document(copy.deepcopy(made) | {"hints": found})


def test_every_hint_links_to_a_heading_of_its_own():
    for rule in hints.RULES:
        page, anchor = rule.link.split("#")
        assert anchor in anchors(ROOT / page), rule.link
    assert len({rule.link for rule in hints.RULES}) == len({rule.id for rule in hints.RULES}) == len(hints.RULES)


def test_the_page_names_the_limits_of_the_rules():
    page = (ROOT / hints.PAGE).read_text()
    assert f"less than a fifth of the way from chance to 1 (below {1 / 9 + hints.LEARNED * 8 / 9:.3f}" in page
    assert f"more than {100 * hints.OUTSIDE:.0f} % of the squared change" in page
    assert f"of over {100 * hints.SATURATED:.0f} % of the patches" in page
    assert f"fewer than {100 * hints.DISTINCT:.0f} % of the fits" in page
    assert f"an INJ below {hints.LOW}, while" in page
    assert f"more than {hints.GAP} above INJ" in page


def test_hints_follow_the_table_on_stderr(tmp_path, capsys):
    scores = [[0.3] * GRID.n_cells] * 3
    folder = tmp_path / "run"
    save_run(folder, {"learned": (scores, [[0.9] * GRID.n_cells] * 3)})
    config = results.load(folder).document["config"]
    assert run_folder.already_done(folder, config, overwrite=False)
    printed = capsys.readouterr()
    assert "hint:" not in printed.out
    assert "hint: much of the accuracy comes from shared slots: learned 0.900 many-to-one, 0.300" in printed.err
    assert "see docs/troubleshooting.md#the-laundering-gap-is-large" in printed.err


def test_names_cannot_write_escape_sequences():
    assert "\x1b" not in summary.advice(document(healthy("\x1b[31m") | {"distinct_support_rate": 0.1}))
