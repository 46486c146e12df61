"""From the paper's rows to commands, and from results to tables."""

import re
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from soopf_jax import bench, reproduce
from soopf_jax.experiments import options
from soopf_jax.experiments.arms import make_arms
from soopf_jax.experiments.options import Bench, arguments, command, given
from soopf_jax.fitting.protocol import PRESETS
from soopf_jax.paper import paper_tables, runs, selection, sensitivity
from soopf_jax.paper import published as paper
from soopf_jax.report.tables import Table
from soopf_jax.studies import cost, opening, planning, rows, sheets
from soopf_jax.studies.rows import Obstacle, Places
from tests import tiny_parts

PAPER = paper.load()
TINY = ("tests.tiny_parts:open_substrate", "tests.tiny_parts:open_encoder")
TINY_FOLDER = "tests.tiny-parts-open-substrate-tests.tiny-parts-open-encoder"


@pytest.fixture(autouse=True)
def in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


# -------------------------------------------------------------------------------------------- rows to commands


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            "shapes3d/dinov3/learned",
            "--dataset shapes3d --encoder dinov3 --readout soopf --assignment factorial learned compressed",
        ),
        (
            "shapes3d/dinov3/dense/enhanced",
            "--dataset shapes3d --encoder dinov3 --readout dense --assignment learned --objective enhanced",
        ),
        ("mujoco/dinov3/oracle", "--dataset mujoco --encoder dinov3 --readout oracle"),
        (
            "mujoco/dinov3/router",
            "--dataset mujoco --encoder dinov3 --readout soopf --assignment factorial learned --router",
        ),
        (
            "shapes3d/dinov3/3x5",
            "--dataset shapes3d --encoder dinov3 --readout soopf --assignment factorial "
            "--operations hue invert pattern brightness blur",
        ),
        (
            "shapes3d/dinov3/two-edits",
            "--dataset shapes3d --encoder dinov3 --readout soopf --assignment factorial --edits two",
        ),
        ("coco/random-vit", "--dataset coco --encoder random-vit --readout soopf --assignment factorial"),
    ],
)
def test_a_row_of_the_paper_is_a_command(row, words):
    assert arguments(given(runs.paper_runs(PAPER)[row])) == words.split()


def test_every_command_asks_for_what_its_row_says():
    for name, run in runs.paper_runs(PAPER).items():
        row, asked = PAPER.rows[name], bench.parse(arguments(given(run)))
        assert (asked.dataset, asked.encoder, asked.readout) == (row.dataset, row.encoder, row.readout)
        assert asked.edits == row.edits
        assert (asked.operations or runs.THREE_OPERATIONS) == row.operations
        size = asked.protocol
        assert (size.seeds, size.restarts, size.steps) == (row.seeds, row.restarts, row.steps)
        arms = make_arms(asked.readout, asked.assignment, asked.objective)
        assert row.assignment in [arm.assignment_name for arm in arms]
        assert {arm.objective_name for arm in arms} == {row.objective}


def test_tables_share_runs_and_ask_for_the_same_ones_alone_or_together():
    def wanted(*names):
        return selection.wanted_runs(PAPER, names, selection.Selection())

    assert list(wanted("headline")) == list(dict.fromkeys(wanted("headline")))
    assert len(wanted("headline")) == 5  # data sets and encoders: the assignments of each are arms of one run
    assert set(wanted("cross-encoder")) == set(wanted("headline"))
    together = wanted("headline", "cross-encoder", "router")
    assert set(together) == set(wanted("headline")) | set(wanted("router")) == set(wanted("headline"))
    assert together[runs.paper_runs(PAPER)["mujoco/dinov3/router"]] == ["headline", "cross-encoder", "router"]
    assert set(wanted(*PAPER.tables)) == set(runs.paper_runs(PAPER).values())


def test_a_stand_in_has_the_paper_s_arms_and_never_the_paper_s_inputs():
    found = runs.stand_ins(PAPER, ["shapes3d-lite", "coco"], ["pixels"])
    assert {run.dataset for run in found} == {"shapes3d-lite"}, "COCO with pixels is a row of the paper"
    names = {run: rows.arm_names(run) for run in found}
    arms = {(run.readout, a, names[run].objective): run.quick for run in found for a in names[run].assignments}
    assert arms == {
        ("soopf", "factorial", "core"): False,
        ("soopf", "learned", "core"): False,
        ("soopf", "compressed", "core"): False,
        ("bilinear", "factorial", "core"): True,
        ("mlp", "native", "native"): True,
        ("attention", "native", "native"): True,
        ("oracle", "native", "native"): True,
        ("soopf", "factorial", "enhanced"): True,
        ("soopf", "learned", "enhanced"): True,
        ("dense", "learned", "enhanced"): True,
    }


def test_runs_have_folders_of_their_own():
    default = sensitivity.default_run("shapes3d-lite", "pixels", quick=False)
    everything = {
        *runs.paper_runs(PAPER).values(),
        *runs.paper_runs(PAPER, quick=True).values(),
        *runs.stand_ins(PAPER, ["shapes3d-lite", "mujoco"], ["pixels", "random-vit-s"]),
        *sensitivity.study(default),
    }
    assert len({rows.folder(run) for run in everything}) == len(everything)


@pytest.mark.parametrize(
    ("run", "name"),
    [
        ("shapes3d/dinov3/learned", "shapes3d-dinov3-soopf-factorial-learned-compressed-core"),
        ("shapes3d/dinov3/dense/enhanced", "shapes3d-dinov3-dense-learned-enhanced"),
        ("mujoco/dinov3/oracle", "mujoco-dinov3-oracle-native"),
        ("mujoco/dinov3/router", "mujoco-dinov3-soopf-factorial-learned-core-router"),
        ("shapes3d/dinov3/3x5", "shapes3d-dinov3-soopf-factorial-core-5-operations"),
        ("shapes3d/dinov3/two-edits", "shapes3d-dinov3-soopf-factorial-core-two-edits"),
    ],
)
def test_a_folder_has_the_name_that_finished_runs_have(run, name):
    """Names as the version before this one gave them."""
    assert rows.folder(runs.paper_runs(PAPER)[run]) == name
    assert rows.folder(runs.paper_runs(PAPER, quick=True)[run]) == f"{name}-quick"


def test_a_folder_of_the_study_has_the_name_that_finished_runs_have():
    default = sensitivity.default_run("mujoco", "pixels", quick=False)
    names = {rows.folder(run).removeprefix("mujoco-pixels-soopf-") for run in sensitivity.study(default)}
    assert {
        "factorial-learned-core-quick-seeds-10",
        "factorial-learned-core-quick-seeds-10-batch-size-32",
        "factorial-learned-core-quick-seeds-10-tau-start-1-tau-end-1",
        "factorial-learned-core-quick-seeds-10-tau-start-0.5-tau-end-0.5",
        "factorial-learned-core-quick-seeds-10-learning-rate-0.0025",
        "learned-core-quick-seeds-10-q-scale-10",
        "factorial-learned-core-quick-seeds-10-ties-last",
    } <= names


def test_another_alignment_needs_no_run_of_its_own():
    default = sensitivity.default_run("mujoco", "pixels", quick=True)
    alignment, preset = (
        next(choice for choice in sensitivity.CHOICES if choice.name == name) for name in ("alignment", "preset")
    )
    assert sensitivity.changed_run(default, alignment) == default
    assert sensitivity.changed_run(default, preset).protocol.alignment == "raw"
    base, soft = [0.5, 0.52, 0.48], [0.7, 0.73, 0.69]
    arms = [
        arm(name, base) | {"inj_by_alignment": {"soft": {"mean": 0.7067, "per_seed": soft}}}
        for name in sensitivity.ARMS
    ]
    found = dict.fromkeys(sensitivity.study(default), document(*arms))
    shown = {row[:2]: row[2:4] for row in sensitivity.sheet(default, found).table.rows}
    assert shown["alignment raw -> soft", "learned"] == ("0.707", "+0.207")
    assert shown["preset paper -> ours", "learned"] == ("0.707", "+0.207")


def test_the_preset_of_the_study_is_ours():
    default = sensitivity.default_run("mujoco", "pixels", quick=True)
    changes = next(choice.changes for choice in sensitivity.CHOICES if choice.name == "preset")
    assert replace(default.choices, **changes) == PRESETS["ours"]


def test_the_study_changes_one_choice_at_a_time():
    default = sensitivity.default_run("shapes3d-lite", "pixels", quick=False)
    assert (default.protocol.seeds, default.protocol.restarts, default.protocol.steps) == (10, 2, 500)
    for choice in sensitivity.CHOICES:
        before = given(replace(default, assignment=choice.arms))
        after = given(sensitivity.changed_run(default, choice))
        usual = {**asdict(default), **asdict(default.choices), "alignment": choice.changes.get("alignment")}
        wanted = {name: value for name, value in choice.changes.items() if value != usual[name]}
        assert {name: after[name] for name in after.keys() - before.keys()} == wanted, choice
        assert before.items() <= after.items()
        together = ({"tau_start", "tau_end"}, {"router_input", "query_sd"}, {"router_input", "alignment"})
        assert len(choice.changes) == 1 or set(choice.changes) in together, choice


# --------------------------------------------------------------------------------------------------- the plan


def plan(wanted, hours=1.0, rate=1e9, chosen=lambda run: True):
    places = Places(Path("runs"), "no-such-folder", "cache")
    return planning.plan({run: ["t"] for run in wanted}, places, rate, hours, chosen)


def test_what_is_missing_is_named_with_the_way_to_get_it():
    (planned,) = plan([Bench("shapes3d", "dinov3")])
    assert planned.obstacle.reason == "needs 3dshapes.h5 and DINOv3 weights"
    data, weights = planned.obstacle.remedies
    assert data.startswith("3dshapes.h5: python -m soopf_jax.substrates fetch shapes3d")
    assert "hf download facebook/dinov3-vitl16-pretrain-lvd1689m" in weights
    (coco,) = plan([Bench("coco", "pixels")])
    assert coco.obstacle.reason == "needs COCO train2017"


def test_weights_in_the_hub_s_cache_are_found_without_the_hub():
    assert opening.missing_weights("siglip2").reason == "needs SigLIP2 weights"
    model = Path("hub/models--google--siglip2-large-patch16-256")
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text("abc")
    (model / "snapshots" / "abc").mkdir(parents=True)
    (model / "snapshots" / "abc" / "model.safetensors").touch()
    assert opening.missing_weights("siglip2") is None
    assert opening.missing_weights("hf:google/siglip2-large-patch16-256@main") is None
    assert opening.missing_weights("hf:.") is None, "a folder"
    assert opening.missing_weights("pixels") is None, "no weights at all"


def test_a_part_of_one_s_own_says_what_its_opener_says():
    (planned,) = plan([Bench("folder:nowhere", "pixels")])
    assert planned.obstacle.reason.startswith("needs folder:nowhere (")


def test_left_out_by_the_user():
    (planned,) = plan([Bench("mujoco", "pixels")], chosen=lambda run: False)
    assert planned.obstacle.reason == "left out by --dataset or --encoder"


def test_the_cost_counts_fits_steps_and_arms(monkeypatch):
    monkeypatch.setattr(cost, "seconds", lambda work, rate: work.fits * work.steps * work.batch / rate)
    monkeypatch.setattr(cost, "encode_seconds", lambda encoder, images, rate: 0.0)
    two_edits = Bench(*TINY, edits="two")
    mlp = Bench(*TINY, readout="mlp")
    one, two, probe = plan([Bench(*TINY, quick=True), two_edits, mlp], hours=1e9, rate=10.0)
    assert one.seconds == 3 * (3 * 9 * 2) * 500 * 64 / 10
    assert two.seconds == (5 * 5) * 2000 * 64 / 10
    assert probe.seconds == (10 * 9 * 5) * 2000 * 64 / 10


def test_features_are_computed_once(monkeypatch):
    monkeypatch.setattr(cost, "seconds", lambda work, rate: 100.0)
    monkeypatch.setattr(cost, "encode_seconds", lambda encoder, images, rate: float(images))
    first, second = plan([Bench(*TINY, assignment=("factorial",)), Bench(*TINY, readout="mlp")])
    assert first.seconds == 100 + 2 * 6 * 9, "two images of each of six pairs of nine cells"
    assert second.seconds == 100


def test_a_blank_image_tells_the_sizes():
    inputs = planning.look(Bench(*TINY, cache_dir="cache"), opening.Openers())
    assert (inputs.patches, inputs.channels, inputs.stored) == (tiny_parts.PATCHES, tiny_parts.CHANNELS, False)


def test_hours_are_for_all_runs_and_a_long_run_does_not_stop_a_short_one(monkeypatch):
    hours = {3 * 2 * 9: 0.4, 10 * 5 * 9: 0.9}
    monkeypatch.setattr(cost, "seconds", lambda work, rate: 3600 * hours[work.fits])
    one = ("factorial",)
    quick, full = Bench(*TINY, assignment=one, quick=True), Bench(*TINY, assignment=one)
    first, long, second, third = plan(
        [quick, full, replace(quick, readout="dense"), replace(quick, readout="bilinear")]
    )
    assert [p.obstacle is None for p in (first, long, second, third)] == [True, False, True, False]
    assert long.obstacle.reason == "about 54 min here"
    assert long.obstacle.remedies[0].endswith(command(rows.placed(full, Places(Path("runs"), "", "cache"))))


@pytest.mark.parametrize(("seconds", "said"), [(59.6, "60 s"), (600.0, "10 min"), (7560.0, "2.1 h")])
def test_durations(seconds, said):
    assert planning.duration(seconds) == said


# -------------------------------------------------------------------------------------------------- the tables


def arm(assignment, inj, sd=0.01, shared=None, cells=None):
    """An arm of a result, as far as tables read it."""
    inj_per_seed = inj if isinstance(inj, list) else [inj, inj]
    shared_per_seed = shared or inj_per_seed
    return {
        "assignment": assignment,
        "inj": {
            "mean": float(np.mean(inj_per_seed)),
            "sd": sd,
            "ci95": [0.1, 0.2],
            "per_seed": inj_per_seed,
            "per_cell": cells or {},
        },
        "non_injective": {"mean": float(np.mean(shared_per_seed)), "sd": sd, "per_seed": shared_per_seed},
        "laundering_gap": 0.0,
        "min_cell": 0.6,
        "collapse": {"0.4": 0.0, "0.5": 0.022, "0.6": 0.1},
        "recovery": None,
        "distinct_support_rate": 1.0,
    }


def document(*arms, protocol="full", **more):
    return {"protocol": protocol, "arms": list(arms), "tests": [], **more}


NOTHING = Obstacle("needs a miracle", ("a miracle: wait",))


def lines(table, found):
    """The rows of a comparison, by (entry's title, score)."""
    sheet = paper_tables.against_paper(PAPER, PAPER.tables[table], lambda row: found.get(row.name, NOTHING))
    rows, title = {}, ""
    for row in sheet.table.rows:
        title = row[0] or title
        rows[title, row[1]] = row[2:]
    return rows


def test_ours_the_paper_s_and_the_difference_side_by_side():
    rows = lines("headline", {"shapes3d/dinov3/factorial": document(arm("factorial", 0.88))})
    assert rows["Shapes3D, DINOv3: factorial", "INJ"] == ("0.874 +- 0.009", "0.880 +- 0.010", "+0.006", "inside")
    assert rows["Shapes3D, DINOv3: factorial", "Min"] == ("0.613", "0.600", "-0.013", "")
    assert rows["Shapes3D, DINOv3: factorial", "Coll. (0.5)"] == ("0.022", "0.022", "+0.000", "")
    assert rows["Shapes3D, DINOv3: factorial", "Rec."] == ("n/a", "n/a", "-", "")
    assert rows["COCO, DINOv3: factorial", "INJ"] == ("0.799 +- 0.015", "-", "-", "not run: needs a miracle")


@pytest.mark.parametrize(
    ("inj", "verdict"),
    [(0.8834, "inside"), (0.8646, "inside"), (0.8836, "outside"), (0.8644, "outside"), (0.874, "inside")],
)
def test_inside_is_within_one_sd_and_half_a_digit(inj, verdict):
    """0.874 +- 0.009 in tab:headline serves tab:baselines too, which prints no spread."""
    for table, title in (("headline", "Shapes3D, DINOv3: factorial"), ("baselines", "SO-OPF, factorial Q, Shapes3D")):
        rows = lines(table, {"shapes3d/dinov3/factorial": document(arm("factorial", inj))})
        assert rows[title, "INJ"][-1] == verdict


def test_other_protocols_are_labelled():
    rows = lines("headline", {"shapes3d/dinov3/factorial": document(arm("factorial", 0.5), protocol="quick")})
    assert rows["Shapes3D, DINOv3: factorial", "INJ"][-1] == "outside (quick protocol)"


def test_cells_seeds_tests_and_router_are_read_where_they_are():
    cells = {"floor/hue": 0.3, "wall/hue": 0.1, "object/hue": 0.2, "floor/pattern": 0.9, "floor/invert": 0.05}
    learned = arm("learned", [0.5, 0.5, 0.5], shared=[0.551, 0.549, 0.5])
    test = {"a": "learned many-to-one", "b": "learned injective", "score": "non_injective"}
    test |= {"mean_diff": 0.2, "t": 3.0, "p": 0.01}
    router = {"iou": {"mean": 0.8, "sd": 0.02}, "agreement": {"mean": 0.9, "sd": 0.01}}
    whole = document(arm("factorial", 0.4, cells=cells), learned, tests=[test | {"a": "x"}, test], router=router)
    found = {f"mujoco/dinov3/{name}": whole for name in ("factorial", "learned", "router")}
    assert lines("cells", found)["MuJoCo, DINOv3", "Hue, lowest cell"][:3] == ("0.090", "0.100", "+0.010")
    assert lines("cells", found)["MuJoCo, DINOv3", "Hue, highest cell"][:3] == ("0.275", "0.300", "+0.025")
    assert lines("laundering", found)["MuJoCo, DINOv3", "Seeds losing > .05"][:3] == ("9", "1", "-8")
    title = "MuJoCo, DINOv3: learned, many-to-one - injective"
    assert lines("tests", found)[title, "t"] == ("4.71", "3.00", "-1.71", "")
    row = lines("router", found)["MuJoCo, 630 held-out examples", "IoU"]
    assert row == ("0.821 [1]", "0.800 +- 0.020", "-0.021", "")


def test_every_table_shows_its_contradictions_and_remedies():
    sheet = paper_tables.against_paper(PAPER, PAPER.tables["headline"], lambda row: NOTHING)
    shown = sheets.text(sheet)
    assert "0.045 [2]" in shown
    assert f"[2] {PAPER.notes['siglip2-min']}" in shown
    assert shown.count("not run; a miracle: wait") == 1
    everything = sheets.text(paper_tables.contradictions(PAPER))
    assert all(note in everything for note in (*PAPER.notes.values(), *PAPER.general_notes))


def all_sheets():
    quick = sensitivity.default_run("shapes3d-lite", "pixels", quick=True)
    stand_ins = runs.stand_ins(PAPER, ["shapes3d-lite"], ["pixels"])
    found = dict.fromkeys(stand_ins, document(arm("factorial", 0.5)))
    return [
        *(paper_tables.against_paper(PAPER, table, lambda row: NOTHING) for table in PAPER.tables.values()),
        paper_tables.contradictions(PAPER),
        paper_tables.stand_in("shapes3d-lite", "pixels", found | {stand_ins[1]: NOTHING}),
        sensitivity.sheet(quick, dict.fromkeys(sensitivity.study(quick), NOTHING)),
    ]


@pytest.mark.parametrize("sheet", all_sheets(), ids=lambda sheet: sheet.name)
def test_latex_is_balanced(sheet):
    source = sheets.latex(sheet)
    plain = source.replace(r"\{", "").replace(r"\}", "")
    assert plain.count("{") == plain.count("}")
    assert source.replace(r"\$", "").count("$") % 2 == 0
    begun, ended = re.findall(r"\\begin\{(\w+)\}", source), re.findall(r"\\end\{(\w+)\}", source)
    assert begun == ended[::-1] == ["table", "tabular"]
    rows = [line for line in source.splitlines() if line.endswith(r"\\")]
    assert len(rows) == 1 + len(sheet.table.rows)
    assert {line.replace(r"\&", "").count("&") for line in rows} == {len(sheet.table.header) - 1}
    assert not re.search(r"(?<!\\)[%#_]", source)


def test_latex_escapes_what_means_something_to_it():
    sheet = sheets.Sheet("x", Table("50 % & a_b", ("{", "#"), [("a\\b", "1 +- 2 --x")]), ("<~^",))
    source = sheets.latex(sheet)
    assert r"\caption{50 \% \& a\_b}" in source
    assert r"a\textbackslash{}b & 1 $\pm$ 2 -{}-x \\" in source
    assert r"$<$\textasciitilde{}\textasciicircum{}" in source


def test_markdown_has_a_cell_for_every_column():
    for sheet in all_sheets():
        table = [line for line in sheets.markdown(sheet).splitlines() if line.startswith("|")]
        assert {line.count("|") for line in table} == {len(sheet.table.header) + 1}


def test_the_study_tests_every_change_against_the_default():
    default = sensitivity.default_run("shapes3d-lite", "pixels", quick=True)
    base, better = [0.5, 0.52, 0.48, 0.5], [0.7, 0.73, 0.69, 0.7]
    found = dict.fromkeys(sensitivity.study(default), document(arm("factorial", base), arm("learned", base)))
    first = sensitivity.changed_run(default, sensitivity.CHOICES[0])
    found[first] = document(arm("factorial", better), arm("learned", base))
    found[sensitivity.changed_run(default, sensitivity.CHOICES[1])] = NOTHING
    rows = sensitivity.sheet(default, found).table.rows
    assert rows[0] == ("all at their defaults", "factorial", "0.500", "-", "-", "-", "the reference")
    test = stats.ttest_rel(better, base)
    low, high = test.confidence_interval(0.95)
    interval, p = f"~{low:+.3f} to {high:+.3f}", f"{test.pvalue:.2g}"  # ~: fewer than ten seeds
    expected = ("SD of the router's queries 0.02 -> 0.125", "factorial", "0.705", "+0.205", interval, p, "matters")
    assert rows[2] == expected, "equal vectors have no p, so that Holm counts one test"
    assert rows[3][-1] == "no difference at all"
    assert rows[4][-1] == "not run: needs a miracle"
    assert sensitivity.verdict(0.1, 0.051) == "no effect seen"


# --------------------------------------------------------------------------------------------- the command


def call(*args):
    return reproduce.main([*args, "--runs", "runs", "--out", "tables", "--cache-dir", "cache", "--data-root", "no"])


def test_from_the_command_line_to_tables(monkeypatch, capsys):
    monkeypatch.setattr(options, "QUICK", (2, 1, 4))
    monkeypatch.setattr(cost, "machine_rate", lambda: 1e10)
    mlp = Bench(*TINY, readout="mlp", quick=True)  # one of the stand-ins: compiling an arm takes seconds
    monkeypatch.setattr(runs, "stand_ins", lambda *args: [mlp])
    asked = ["--quick", "--table", "headline", "stand-in", "--dataset", TINY[0], "--encoder", TINY[1]]
    assert call(*asked) == 0
    out, err = capsys.readouterr()
    assert f"{TINY_FOLDER}-mlp-native-quick" in out.split("\n\n")[0]
    assert "python -m soopf_jax.bench --dataset tests.tiny_parts:open_substrate" in err
    written = {path.name for path in Path("tables").iterdir()}
    stand_in = f"stand-in-{TINY_FOLDER}"
    assert written == {f"{name}.{suffix}" for name in ("headline", stand_in) for suffix in ("txt", "md", "tex")}
    result = planning.finished(mlp, Path("runs"), None)
    inj = f"{result['arms'][0]['inj']['mean']:.3f} +- {result['arms'][0]['inj']['sd']:.3f}"
    (line,) = [line for line in Path(f"tables/{stand_in}.txt").read_text().splitlines() if line.startswith("mlp")]
    assert inj in line
    assert line.endswith("custom")
    assert "not run: left out by --dataset or --encoder" in Path("tables/headline.txt").read_text()

    before = Path(f"tables/{stand_in}.txt").read_text()
    assert call(*asked) == 0
    out, err = capsys.readouterr()
    assert out.split("\n\n")[0].count(" done ") == 1
    assert "soopf_jax.bench" not in err
    assert Path(f"tables/{stand_in}.txt").read_text() == before

    result_of = planning.finished
    assert result_of(mlp, Path("runs"), "another key") is None, "other features, another result"
    other = replace(mlp, steps=5)
    (Path("runs") / rows.folder(mlp)).rename(Path("runs") / rows.folder(other))
    assert result_of(other, Path("runs"), None) is None, "another protocol, another result"


def test_a_dry_run_runs_nothing_and_gives_the_commands(monkeypatch, capsys):
    monkeypatch.setattr(cost, "machine_rate", lambda: 1e10)
    assert call("--table", "stand-in", "--dataset", TINY[0], "--encoder", TINY[1], "--dry-run") == 0
    assert not Path("runs").exists() or not list(Path("runs").iterdir())
    assert capsys.readouterr().out.count("python -m soopf_jax.bench") == 7


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--table", "headlines"], "did you mean 'headline'?"),
        (["--dataset", "mujocco"], "did you mean 'mujoco'?"),
        (["--encoder", "pixel"], "did you mean 'pixels'?"),
        (["--max-hours", "0"], "--max-hours must be positive"),
        (["--max-hours", "nan"], "--max-hours must be positive"),
        (["--tabel", "headline"], "did you mean --table?"),
    ],
)
def test_mistakes_get_one_line_and_exit_code_2(args, said, capsys):
    assert call(*args) == 2
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert said in line
    assert printed.out == ""
