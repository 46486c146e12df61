"""Comparing runs: what is refused, what is compared with what, and the numbers that come out."""

import itertools
import json
import math
from dataclasses import asdict
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from scipy import stats

from soopf_jax import compare
from soopf_jax.experiments import comparison as comparing
from soopf_jax.experiments import results
from soopf_jax.grid import Grid
from soopf_jax.report import comparison_plot
from soopf_jax.scoring import statistics
from tests.planted import GRID
from tests.result_folders import STORE, save_run


def accuracies(seed, mean=0.6, seeds=10, cells=9):
    return np.clip(np.random.default_rng(seed).normal(mean, 0.1, size=(seeds, cells)), 0, 1)


def arm(seed, mean=0.6, gap=0.1, **shape):
    inj = accuracies(seed, mean, **shape)
    return inj, np.clip(inj + gap, 0, 1)


@pytest.fixture
def two(tmp_path):
    """Two runs with two arms each, and the INJ matrices that they were made from."""
    arms = [{"factorial": arm(0), "learned": arm(1)}, {"learned": arm(2, 0.5), "factorial": arm(3, 0.7)}]
    folders = [save_run(tmp_path / name, scores) for name, scores in zip("ab", arms, strict=True)]
    return folders, [{name: inj for name, (inj, _) in scores.items()} for scores in arms]


def run(*args):
    return compare.main([str(arg) for arg in args])


def compared(tmp_path, *args):
    """The numbers of a comparison, as written to JSON."""
    assert run(*args, "--json", tmp_path / "c.json") == 0
    return json.loads((tmp_path / "c.json").read_text())


def refused(capsys, *args):
    """The one line that a refused command prints."""
    assert run(*args) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("error: ")
    return line


def edit_result(folder, change=lambda document: None):
    """Change a saved result.json, as no run would; its seal fits again."""
    path = Path(folder) / "result.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(results.sealed(document, (Path(folder) / "fits.npz").read_bytes())))


# ----------------------------------------------------------------------------------------------------- the numbers


def test_arms_of_equal_assignment_are_compared_on_selected_restarts_as_scipy_does(two, tmp_path):
    folders, (a, b) = two
    document = compared(tmp_path, *folders)
    assert [c["reference"]["assignment"] for c in document["comparisons"]] == ["factorial", "learned"]
    for comparison in document["comparisons"]:
        name = comparison["other"]["assignment"]
        left, right = a[name].mean(axis=1), b[name].mean(axis=1)
        expected = stats.ttest_rel(right, left)
        assert (comparison["n_seeds"], comparison["n_cells"]) == (10, 9)
        assert comparison["mean_difference"] == pytest.approx(right.mean() - left.mean())
        assert comparison["paired_t"]["t"] == pytest.approx(expected.statistic)
        assert comparison["paired_t"]["p"] == pytest.approx(expected.pvalue)
        assert comparison["effect_size"]["d_z"] == pytest.approx(expected.statistic / math.sqrt(10))
        low, high = comparison["bootstrap"]["ci95"]
        assert low < comparison["mean_difference"] < high


def test_holm_goes_over_every_test_that_is_printed(two, tmp_path):
    document = compared(tmp_path, *two[0])
    tests = [test for c in document["comparisons"] for test in (c["paired_t"], c["bootstrap"])]
    assert len(tests) == 4
    order = sorted(tests, key=lambda test: test["p"])
    steps = itertools.accumulate(((4 - i) * test["p"] for i, test in enumerate(order)), max)
    assert [test["p_holm"] for test in order] == pytest.approx([min(1.0, step) for step in steps])


def test_the_paper_s_comparison_of_two_arms_of_one_run(tmp_path):
    """A mean difference of .075 with t = 3.33 over ten seeds: p = .0088, d_z = 3.33 / sqrt(10) = 1.05."""
    noise = np.random.default_rng(5).normal(size=10)
    noise = (noise - noise.mean()) / noise.std(ddof=1)
    difference = 0.075 + noise * 0.075 * math.sqrt(10) / 3.33
    learned = np.full((10, 9), 0.5)
    factorial = learned + difference[:, None]
    folder = save_run(tmp_path / "a", {"factorial": (factorial, factorial), "learned": (learned, learned)})
    (found,) = compared(tmp_path, f"{folder}:learned", f"{folder}:factorial")["comparisons"]
    assert found["mean_difference"] == pytest.approx(0.075)
    assert found["paired_t"]["t"] == pytest.approx(3.33)
    assert round(found["paired_t"]["p"], 4) == 0.0088
    assert round(found["effect_size"]["d_z"], 2) == 1.05
    sd = 0.075 * math.sqrt(10) / 3.33
    assert found["detectable"]["difference"] == pytest.approx(found["detectable"]["d_z"] * sd)
    assert (found["reference"], found["other"]) == (
        {"run": 1, "assignment": "learned"},
        {"run": 1, "assignment": "factorial"},
    )


def test_seeds_that_lose_more_than_a_twentieth_are_counted_for_every_arm(tmp_path, capsys):
    """As in the paper's audit: nine of ten seeds lose .2, one loses .05 exactly."""
    inj = np.full((10, 9), 0.5)
    many = inj + np.where(np.arange(10) == 3, 0.05, 0.2)[:, None]
    folder = save_run(tmp_path / "a", {"learned": (inj, many), "factorial": (inj, inj)})
    document = compared(tmp_path, f"{folder}:learned", f"{folder}:factorial")
    assert {a["assignment"]: a["seeds_that_lose"] for a in document["arms"]} == {"learned": 9, "factorial": 0}
    assert document["arms"][0]["laundering_gap"] == pytest.approx(0.185)
    assert "9 of 10" in capsys.readouterr().out


def test_the_number_of_tests_is_told(tmp_path, capsys):
    """Three seeds have a t-test and are too few for a bootstrap."""
    inj = np.linspace(0.2, 0.7, 27).reshape(3, 9)
    folder = save_run(tmp_path / "a", {"learned": (inj, inj), "factorial": (inj**2, inj)})
    assert run(f"{folder}:learned", f"{folder}:factorial") == 0
    assert "p (Holm) is corrected for the 1 test shown here" in capsys.readouterr().out


def test_many_to_one_accuracy_can_be_compared_instead(tmp_path):
    inj = accuracies(0)
    a = save_run(tmp_path / "a", {"learned": (inj, inj)})
    b = save_run(tmp_path / "b", {"learned": (inj, np.clip(inj + accuracies(1, 0.1), 0, 1))})
    (on_inj,) = compared(tmp_path, a, b)["comparisons"]
    (on_many,) = compared(tmp_path, a, b, "--score", "non_injective")["comparisons"]
    assert on_inj["mean_difference"] == 0
    assert on_many["mean_difference"] > 0.05


def test_equal_runs_have_no_p_value_but_a_reason(two, tmp_path, capsys):
    folder = two[0][0]
    (found,) = compared(tmp_path, f"{folder}:learned", f"{folder}:learned")["comparisons"]
    assert found["mean_difference"] == 0
    assert found["paired_t"] == {"t": None, "p": None, "ci95": None, "ci95_method": None, "p_holm": None}
    assert found["bootstrap"]["p"] is found["bootstrap"]["p_holm"] is None
    assert found["undefined"] == "equal scores in every seed and cell"
    assert "1:learned - 1:learned: equal scores in every seed and cell" in capsys.readouterr().out


def test_a_fold_without_a_restart_makes_the_comparison_undefined_never_nan(tmp_path):
    inj = accuracies(0)
    inj[2, 4] = np.nan
    a = save_run(tmp_path / "a", {"learned": arm(1)})
    b = save_run(tmp_path / "b", {"learned": (inj, inj)})
    document = compared(tmp_path, a, b)
    (found,) = document["comparisons"]
    assert found["mean_difference"] is None
    assert found["undefined"] == "a fold has no restart that could be selected"
    assert document["arms"][1]["seeds_that_lose"] is None
    jsonschema.validate(document, comparing.schema())


def test_one_seed_has_a_difference_and_nothing_else(tmp_path):
    folders = [save_run(tmp_path / name, {"learned": arm(i, seeds=1)}) for i, name in enumerate("ab")]
    (found,) = compared(tmp_path, *folders)["comparisons"]
    assert found["mean_difference"] is not None
    assert found["paired_t"]["p"] is found["bootstrap"]["p"] is found["detectable"]["d_z"] is None


# --------------------------------------------------------------------------------------------- what is compared


def test_a_pick_on_one_side_picks_the_same_assignment_on_the_other(two, tmp_path):
    a, b = two[0]
    for runs in ((f"{a}:learned", b), (a, f"{b}:learned")):
        (found,) = compared(tmp_path, *runs)["comparisons"]
        assert (found["reference"], found["other"]) == (
            {"run": 1, "assignment": "learned"},
            {"run": 2, "assignment": "learned"},
        )


def test_an_assignment_s_name_and_a_folder_s_may_have_colons(tmp_path):
    folder = save_run(tmp_path / "a:b", {"my.module:Q": arm(0), "learned": arm(1)})
    (found,) = compared(tmp_path, f"{folder}:my.module:Q", f"{folder}:learned")["comparisons"]
    assert found["reference"]["assignment"] == "my.module:Q"
    assert len(compared(tmp_path, folder, folder)["comparisons"]) == 2


def test_encoders_on_the_same_pairs_may_be_compared(tmp_path, capsys):
    other = STORE | {"inputs": STORE["inputs"] | {"encoder": {"name": "dinov3"}}}
    a = save_run(tmp_path / "a", {"learned": arm(0)})
    b = save_run(tmp_path / "b", {"learned": arm(1)}, features=other, config={"encoder": "dinov3"})
    assert run(a, b) == 0
    assert "dinov3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"grid": Grid.of(("floor", "wall", "object"), ("hue", "invert", "blur"))}, "other grid, operations"),
        (
            {"features": STORE | {"inputs": STORE["inputs"] | {"substrate": {"name": "mujoco"}}}},
            "other pairs, name mujoco against shapes3d-lite",
        ),
        ({"features": STORE | {"inputs": STORE["inputs"] | {"cells": "beef"}}}, "other pairs, cells beef against c0ff"),
        ({"pairs_per_cell": 30}, "other splits, pairs of each cell [30"),
        ({"steps": 9}, "other protocol, steps 9 against 3; run both alike or add --allow-protocol"),
        ({"batch_size": 32}, "other protocol, batch_size 32 against 64"),
    ],
)
def test_runs_that_are_not_comparable_are_refused_in_one_line(changes, said, tmp_path, capsys):
    a = save_run(tmp_path / "a", {"learned": arm(0)})
    b = save_run(tmp_path / "b", {"learned": arm(1)}, **changes)
    line = refused(capsys, a, b)
    assert said in line
    assert b in line


def test_another_data_seed_is_refused_even_if_the_user_vouches_for_the_pairs(tmp_path, capsys):
    substrate = STORE["inputs"]["substrate"] | {"data_seed": 1}
    a = save_run(tmp_path / "a", {"learned": arm(0)})
    b = save_run(
        tmp_path / "b", {"learned": arm(1)}, features=STORE | {"inputs": STORE["inputs"] | {"substrate": substrate}}
    )
    assert "data_seed 1 against 0; run both on the same pairs" in refused(capsys, a, b, "--same-pairs")


@pytest.mark.parametrize(
    ("shape", "grid", "said"),
    [({"seeds": 9}, GRID, "seeds [0"), ({"cells": 8}, Grid.of("abcd", "xy"), "held-out cells [0")],
)
def test_other_seeds_or_other_held_out_cells_are_refused(shape, grid, said, tmp_path, capsys):
    a = save_run(tmp_path / "a", {"learned": arm(0)})
    b = save_run(tmp_path / "b", {"learned": arm(1, **shape)}, grid)
    edit_result(b, lambda document: document["provenance"].update(grid=asdict(GRID)))
    assert f"other splits, {said}" in refused(capsys, a, b)


def test_another_protocol_passes_when_asked_for_and_is_noted(tmp_path, capsys):
    a = save_run(tmp_path / "a", {"learned": arm(0)})
    b = save_run(tmp_path / "b", {"learned": arm(1)}, steps=9)
    assert run(a, b, "--allow-protocol") == 0
    assert "other protocol than the reference, steps 9 against 3 (--allow-protocol)" in capsys.readouterr().out


def test_a_run_from_before_a_choice_existed_has_its_default(tmp_path):
    a = save_run(tmp_path / "a", {"learned": arm(0)})
    b = save_run(tmp_path / "b", {"learned": arm(1)})
    edit_result(b, lambda document: document["config"]["protocol"].pop("hidden"))
    assert run(a, b) == 0


def test_feature_files_need_the_user_s_word_that_their_pairs_are_the_same(tmp_path, capsys):
    features = [{"kind": "npz", "file": "t.npz", "sha256": digest, "pairs_per_cell": None} for digest in ("aa", "bb")]
    a, b = (save_run(tmp_path / f["sha256"], {"learned": arm(i)}, features=f) for i, f in enumerate(features))
    assert "add --same-pairs" in refused(capsys, a, b)
    assert run(a, b, "--same-pairs") == 0
    assert "other pairs than the reference, sha256 bb against aa (--same-pairs)" in capsys.readouterr().out


def test_features_of_unknown_content_are_never_taken_for_the_same(tmp_path, capsys):
    a, b = (save_run(tmp_path / name, {"learned": arm(0)}, features={"kind": "mine"}) for name in "ab")
    assert "sha256 unknown in b against unknown in a" in refused(capsys, a, b)
    assert run(a, a) == 0, "but a run has its own pairs"


def test_mistakes_get_one_line(two, tmp_path, capsys):
    (a, b), _ = two
    assert "nothing to compare with" in refused(capsys, a)
    assert "not a finished run" in refused(capsys, a, tmp_path / "nowhere")
    assert "did you mean 'learned'?" in refused(capsys, a, f"{b}:lerned")
    assert "unknown score 'recovery'" in refused(capsys, a, b, "--score", "recovery")
    lone = save_run(tmp_path / "lone", {"compressed": arm(0)})
    assert "pick one arm of each, as RUN:ASSIGNMENT" in refused(capsys, a, lone)
    two_edits = save_run(tmp_path / "two", {"factorial": arm(0)}, config={"edits": "two"})
    assert "holds no cell out" in refused(capsys, a, two_edits)


def test_fits_without_a_needed_column_are_a_mistake(two, tmp_path, capsys):
    (a, b), _ = two
    with np.load(tmp_path / "b/fits.npz") as file:
        kept = {name: file[name] for name in file.files if name != "inj"}
    np.savez(tmp_path / "b/fits.npz", **kept)
    edit_result(b)
    assert "fits.npz lacks inj" in refused(capsys, a, b)


# -------------------------------------------------------------------------------------------------------- the page


def test_the_page_is_self_contained_and_escapes_what_comes_from_files(tmp_path, capsys):
    evil = "<img src=x onerror=alert(1)>\x1b[2J"
    a = save_run(tmp_path / "a", {evil: arm(0)}, config={"encoder": evil})
    assert run(a, a, "--html", tmp_path / "deep/c.html") == 0
    html = (tmp_path / "deep/c.html").read_text()
    assert "<img src=x" not in html
    assert html.count("<img") == 1, "the plot"
    assert "&lt;img src=x onerror=alert(1)&gt;" in html
    assert "http:" not in html.replace("http-equiv", "")
    assert "https:" not in html
    assert "\x1b" not in html + capsys.readouterr().out, "terminals obey escape sequences"


def test_the_plot_joins_the_seeds_and_draws_the_intervals_of_their_difference(two, tmp_path):
    folders, (a, b) = two
    document = compared(tmp_path, *folders)
    left, right = comparison_plot.draw(document).axes
    for index, name in enumerate(("factorial", "learned")):
        seeds = np.stack([a[name].mean(axis=1), b[name].mean(axis=1)])
        joined = [line.get_ydata() for line in left.lines[12 * index : 12 * index + 10]]
        np.testing.assert_allclose(joined, seeds.T)
        dots, bootstrap, t, mean = (line.get_xdata() for line in right.lines[4 * index : 4 * index + 4])
        np.testing.assert_allclose(dots, seeds[1] - seeds[0])
        low, high = stats.ttest_rel(seeds[1], seeds[0]).confidence_interval(0.95)
        np.testing.assert_allclose(t, [low, high])
        np.testing.assert_allclose(bootstrap, document["comparisons"][index]["bootstrap"]["ci95"])
        np.testing.assert_allclose(mean, [np.mean(seeds[1] - seeds[0])])
    assert [text.get_text() for text in right.get_yticklabels()] == [
        "2:factorial\n- 1:factorial",
        "2:learned\n- 1:learned",
    ]


def test_an_undefined_interval_is_not_drawn(two, tmp_path):
    folder = two[0][0]
    document = compared(tmp_path, f"{folder}:learned", folder + ":learned")
    assert document["comparisons"][0]["paired_t"]["p"] is None
    document["comparisons"][0]["paired_t"]["ci95"] = document["comparisons"][0]["bootstrap"]["ci95"] = None
    _, right = comparison_plot.draw(document).axes
    assert len(right.lines) == 3  # the seeds, their mean, and zero


def test_the_plot_is_written_in_the_format_of_its_name(two, tmp_path, capsys):
    assert run(*two[0], "--plot", tmp_path / "c.png") == 0
    assert (tmp_path / "c.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert run(*two[0], "--plot", tmp_path / "c.svg") == 0
    assert b"<svg" in (tmp_path / "c.svg").read_bytes()
    capsys.readouterr()
    assert "--plot draws .png or .svg files, not c.gif" in refused(capsys, *two[0], "--plot", tmp_path / "c.gif")


def test_the_arms_of_the_audit_are_those_of_the_result_file(two, tmp_path):
    folders, (a, _) = two
    document = compared(tmp_path, *folders)
    spread = statistics.spread(a["learned"], GRID.cell_names)
    found = next(arm for arm in document["arms"] if (arm["run"], arm["assignment"]) == (1, "learned"))
    assert found["inj"] == {key: spread[key] for key in ("mean", "ci95", "ci95_method", "per_seed")}
