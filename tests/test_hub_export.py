"""Files for the Hugging Face hub: written by us, read back by huggingface_hub's own parsers and PyYAML."""

import re
import shlex
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
import yaml
from huggingface_hub import ModelCard, parse_eval_result_entries
from huggingface_hub.repocard_data import model_index_to_eval_results

from soopf_jax import leaderboard, plugins
from soopf_jax.report import hub_export
from tests.result_folders import STORE, save_run

SMALL = {"name": "dinov2-s", "hub_id": "facebook/dinov2-small", "revision": "c0ffee", "weights": "abc", "layer": 12}
TIMM = {"name": "timm", "hub_id": "timm/vit_s", "revision": "bee", "weights": {"model.safetensors": "ab"}, "layer": 12}
BENCHMARK = "someone/soopf"
TASK = "shapes3d-lite-3x3-180-pairs-soopf-core-{}-custom-3-x-2-x-3"


def scores(mean):
    """Three seeds of means m - .03, m and m + .03."""
    inj = np.full((3, 9), mean) + np.array([[-0.03], [0.0], [0.03]])
    return inj, inj + 0.1


def save(folder, encoder=SMALL, mean=0.55, arms=("learned",), features=None, **config):
    inputs = STORE["inputs"] | {"encoder": encoder}
    config = {"encoder": encoder["name"], "layer": None, "dtype": "float16"} | config
    return save_run(
        folder, dict.fromkeys(arms, scores(mean)), features=features or STORE | {"inputs": inputs}, config=config
    )


def export(tmp_path, *more, form="hub", to="out"):
    return leaderboard.main([str(tmp_path / "runs"), "--export", form, "--to", str(tmp_path / to), *more])


def results_of(path):
    return {entry.task_id: entry for entry in parse_eval_result_entries(yaml.safe_load(path.read_text()))}


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


# ------------------------------------------------------------------------------------------------ today's form


def test_results_are_read_back_by_the_hubs_own_parser(tmp_path):
    save(tmp_path / "runs/a", arms=("factorial", "learned"))
    save(tmp_path / "runs/b", mean=0.25, layer=6, encoder=SMALL | {"layer": 6})
    save(tmp_path / "runs/c", TIMM, mean=0.45)
    assert export(tmp_path, "--benchmark", BENCHMARK) == 0
    models = tmp_path / "out/models"
    small = models / "facebook/dinov2-small/.eval_results"
    assert files(tmp_path / "out") == [
        "benchmark/eval.yaml",
        "models/facebook/dinov2-small/.eval_results/soopf-dinov2-s-layer-6.yaml",
        "models/facebook/dinov2-small/.eval_results/soopf-dinov2-s.yaml",
        "models/timm/vit_s/.eval_results/soopf-timm.yaml",
    ]
    last, sixth = results_of(small / "soopf-dinov2-s.yaml"), results_of(small / "soopf-dinov2-s-layer-6.yaml")
    assert set(last) == {TASK.format("factorial"), TASK.format("learned")}
    assert {entry.dataset_id for entry in (*last.values(), *sixth.values())} == {BENCHMARK}
    found = [entry.value for entry in (last[TASK.format("learned")], *sixth.values())]
    assert found == pytest.approx([0.55, 0.25])
    (other,) = results_of(models / "timm/vit_s/.eval_results/soopf-timm.yaml").values()
    assert other.value == pytest.approx(0.45)


def test_the_notes_say_what_a_reader_of_the_score_must_know(tmp_path):
    """Seed means .52 .55 .58: half the t interval is 4.302653 * .03 / sqrt(3) = .0745, so its upper end is .625."""
    save(tmp_path / "runs/a", layer=6, encoder=SMALL | {"layer": 6})
    assert export(tmp_path, "--benchmark", BENCHMARK) == 0
    (entry,) = results_of(next((tmp_path / "out").rglob("soopf-*.yaml"))).values()
    for said in (
        *("INJ 0.550, 95% interval over seeds [0.", ", 0.625] (approximate t and score), chance 0.111"),
        *("many-to-one accuracy 0.650", "protocol custom 3 x 2 x 3 (3 seeds, 2 restarts, 3 steps)"),
        *("readout soopf, assignment learned, objective core", "encoder dinov2-s layer 6, layer 6"),
        *("revision c0ffee", "3 x 3 cells, 180 pairs", "is a stand-in for Shapes3D", "soopf_jax of unknown version"),
    ):
        assert said in entry.notes, said
    save(tmp_path / "other/runs/b", dataset="mujoco")
    assert export(tmp_path / "other", "--benchmark", BENCHMARK) == 0
    (entry,) = results_of(next((tmp_path / "other/out").rglob("soopf-*.yaml"))).values()
    assert "stand-in" not in entry.notes
    assert "output after the final norm" in entry.notes


def test_the_benchmark_lists_every_task_once(tmp_path):
    save(tmp_path / "runs/a", arms=("factorial", "learned"))
    save(tmp_path / "runs/b", TIMM)
    save(tmp_path / "runs/c", dataset="mujoco")
    assert export(tmp_path, "--benchmark", BENCHMARK) == 0
    described = yaml.safe_load((tmp_path / "out/benchmark/eval.yaml").read_text())
    assert list(described) == ["name", "description", "evaluation_framework", "tasks"]
    expected = [("mujoco", "learned"), ("shapes3d-lite", "factorial"), ("shapes3d-lite", "learned")]
    assert described["tasks"] == [
        {"id": TASK.format(name).replace("shapes3d-lite", data), "config": data, "split": "test"}
        for data, name in expected
    ]


@pytest.mark.parametrize(
    ("option", "value"),
    [("steps", 9), ("learning_rate", 0.01), ("alignment", "soft")],
)
def test_runs_of_other_protocols_are_other_tasks(tmp_path, option, value):
    inputs = STORE | {"inputs": STORE["inputs"] | {"encoder": SMALL}}
    config = {"encoder": "dinov2-s"}
    save_run(tmp_path / "runs/a", {"learned": scores(0.5)}, features=inputs, config=config)
    save_run(tmp_path / "runs/b", {"learned": scores(0.5)}, features=inputs, config=config, **{option: value})
    assert export(tmp_path, "--benchmark", BENCHMARK) == 0
    assert len(yaml.safe_load((tmp_path / "out/benchmark/eval.yaml").read_text())["tasks"]) == 2


def test_what_is_not_of_a_model_on_the_hub_is_left_out_with_the_reason(tmp_path, capsys):
    save(tmp_path / "runs/good")
    save(tmp_path / "runs/pixels", {"name": "pixels"})
    save(tmp_path / "runs/random", SMALL | {"name": "hf-random:facebook/dinov2-small", "weights": {"random_seed": 0}})
    save(tmp_path / "runs/tokens", features={"kind": "npz", "file": "tokens.npz"})
    save(tmp_path / "runs/failed", mean=float("nan"))
    save(tmp_path / "runs/escape", SMALL | {"hub_id": "../../../escape"})
    save(tmp_path / "runs/damaged", features={"kind": "store", "inputs": {"encoder": "vit"}})
    assert export(tmp_path, "--benchmark", BENCHMARK) == 0
    said = dict(re.findall(r"^not exported: (\w+) learned: (.*)$", capsys.readouterr().err, re.MULTILINE))
    assert said == {
        "pixels": "no repository on the hub is known for the encoder pixels",
        "random": f"the encoder hf-random:{SMALL['hub_id']} has untrained weights, not those of {SMALL['hub_id']}",
        "tokens": "its tokens were made elsewhere, so no model repository is known",
        "failed": "its INJ is undefined",
        "escape": "'../../../escape' is not the name of a repository on the hub",
        "damaged": "its tokens were made elsewhere, so no model repository is known",
    }
    assert len(files(tmp_path / "out")) == 2


def test_of_equal_runs_the_first_by_name_counts_and_not_the_best(tmp_path, capsys):
    save(tmp_path / "runs/a", mean=0.3)
    save(tmp_path / "runs/b", SMALL | {"name": "hf:facebook/dinov2-small"}, mean=0.6)
    assert export(tmp_path, "--benchmark", BENCHMARK) == 0
    assert "not exported: b learned: a has the same encoder and task" in capsys.readouterr().err
    (written,) = (tmp_path / "out").rglob("soopf-*.yaml")
    (entry,) = results_of(written).values()
    assert entry.value == pytest.approx(0.3)


def test_the_printed_commands_upload_each_folder_to_its_repository(tmp_path, capsys, monkeypatch):
    """The hub's own command line reads them; what it would send is noted instead of sent."""
    from click.testing import CliRunner
    from huggingface_hub.cli.hf import app

    sent = []

    def upload_folder(self, *, folder_path, path_in_repo, repo_id, repo_type, create_pr, **others):
        sent.append((repo_id, repo_type, path_in_repo, create_pr, files(Path(folder_path))))
        return "sent"

    made = type("Made", (), {})
    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", upload_folder)
    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", lambda self, repo_id, **others: made_of(made, repo_id))
    save(tmp_path / "runs/a")
    assert export(tmp_path, "--benchmark", BENCHMARK, to="with space") == 0
    commands = re.findall(r"^to upload: hf (.*)$", capsys.readouterr().err, re.MULTILINE)
    for command in commands:
        done = CliRunner().invoke(app, shlex.split(command))
        assert done.exit_code == 0, (done.output, done.exception)
    assert sent == [
        (BENCHMARK, "dataset", ".", False, ["eval.yaml"]),
        ("facebook/dinov2-small", "model", ".eval_results", True, ["soopf-dinov2-s.yaml"]),
    ]


def made_of(kind, repo_id):
    made = kind()
    made.repo_id = repo_id
    return made


# ----------------------------------------------------------------------------------------------- the older form


def test_the_model_index_is_read_back_by_the_hubs_own_parser_and_merged_by_the_printed_command(
    tmp_path, capsys, monkeypatch
):
    save(tmp_path / "runs/a", arms=("factorial", "learned"))
    save(tmp_path / "runs/b", mean=0.25, layer=6, encoder=SMALL | {"layer": 6})
    assert export(tmp_path, form="model-index") == 0
    path = tmp_path / "out/models/facebook/dinov2-small/README.md"
    assert files(tmp_path / "out") == ["models/facebook/dinov2-small/README.md"]
    front_matter = yaml.safe_load(path.read_text().split("---\n")[1])
    name, found = model_index_to_eval_results(front_matter["model-index"])
    assert name == "dinov2-small"
    values = {(result.dataset_config, result.metric_name): result.metric_value for result in found}
    last, sixth = "INJ of dinov2-s", "INJ of dinov2-s layer 6"
    assert values == pytest.approx(
        {
            (TASK.format("factorial"), last): 0.55,
            (TASK.format("learned"), last): 0.55,
            (TASK.format("learned"), sixth): 0.25,
        }
    )
    assert {result.dataset_type for result in found} == {"shapes3d-lite"}
    assert all(result.metric_args["ci95"][0] < result.metric_value < result.metric_args["ci95"][1] for result in found)
    assert "stand-in for Shapes3D" in found[0].metric_args["notes"]

    merged = []
    monkeypatch.setattr(huggingface_hub, "metadata_update", lambda *args, **options: merged.append((args, options)))
    (command,) = re.findall(r"^to upload: (.*)$", capsys.readouterr().err, re.MULTILINE)
    python, flag, program = shlex.split(command)
    assert (python, flag) == ("python", "-c")
    exec(program, {})
    ((repository, metadata), options) = merged[0]
    assert repository == "facebook/dinov2-small"
    assert metadata == {"model-index": front_matter["model-index"]} == ModelCard.load(path).data.to_dict()
    assert options == {"create_pr": True}


# ------------------------------------------------------------------------------------------------------ mistakes


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--export", "hup", "--to", "x"], "unknown value of --export 'hup': did you mean 'hub'?"),
        (["--export", "hub", "--benchmark", BENCHMARK], "add --to DIR"),
        (["--export", "hub", "--to", "x"], "add --benchmark OWNER/NAME"),
        (["--export", "hub", "--to", "x", "--benchmark", "soopf"], "--benchmark takes the OWNER/NAME of"),
        (["--export", "hub", "--to", "x", "--benchmark", "a/b/c"], "hub, not 'a/b/c'; correct it"),
        (["--export", "hub", "--to", "runs", "--benchmark", BENCHMARK], "runs exists already"),
        (["--to", "x"], "add --export hub"),
    ],
)
def test_a_mistake_gets_one_line_and_writes_nothing(options, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "runs/a")
    assert leaderboard.main(["runs", *options]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert not (tmp_path / "x").exists()


def test_nothing_to_export_is_a_mistake_that_names_the_reasons(tmp_path, capsys):
    save(tmp_path / "runs/a", {"name": "pixels"})
    assert export(tmp_path, "--benchmark", BENCHMARK) == 2
    assert (
        "error: nothing to export (no repository on the hub is known for the encoder pixels)" in capsys.readouterr().err
    )
    assert not (tmp_path / "out").exists()


def test_without_the_library_the_message_names_the_extra(tmp_path, capsys, monkeypatch):
    save(tmp_path / "runs/a")
    monkeypatch.setattr(plugins.importlib.util, "find_spec", lambda name: None)
    assert export(tmp_path, "--benchmark", BENCHMARK) == 2
    assert "--export needs huggingface_hub, which the extra encoders brings" in capsys.readouterr().err


def test_the_command_offers_every_form():
    assert tuple(hub_export.FORMS) == leaderboard.EXPORTS
