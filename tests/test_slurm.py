"""Rows as jobs of Slurm, without one: `sbatch` and `squeue` are scripts. A real Slurm is in `tests/slurm`."""

import json
import sys
import time
from pathlib import Path

import pytest

from soopf_jax import study
from soopf_jax.encoders.layers import LAST
from soopf_jax.errors import MissingPackage, UserError
from soopf_jax.experiments.options import Bench
from soopf_jax.fitting import devices
from soopf_jax.studies import definition, slurm, slurm_queue
from soopf_jax.studies.job import Command
from soopf_jax.studies.planning import Planned, Workload, beside
from soopf_jax.studies.rows import folder
from tests.planted import GRID

TINY = ["--dataset", "tests.tiny_parts:open_substrate", "--encoder", "tests.tiny_parts:open_layered", "--quick"]


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A folder with scripts in place of Slurm's commands. `queue` there is what squeue prints."""
    place = tmp_path / "cluster"
    place.mkdir()
    scripts = {
        "sbatch": f'cat "$1" >> {place}/submitted; echo "Submitted batch job 7"',
        "squeue": f'echo "$@" >> {place}/asked; cat {place}/queue',
        "srun": "exit 1",
    }
    for name, text in scripts.items():
        (place / name).write_text(f"#!/bin/sh\n{text}\n")
        (place / name).chmod(0o755)
    (place / "queue").touch()
    monkeypatch.setenv("PATH", str(place), prepend=":")
    return place


def planned(seconds=60.0, encoding=0.0, table=1_000, **options):
    """A row whose table takes so many bytes."""
    run = Bench("tests.tiny_parts:open_substrate", "tests.tiny_parts:open_layered", quick=True, **options)
    pairs = table // 8
    return Planned(run, (), None, seconds, encoding, None, Workload([0] * pairs, GRID, 1, 1, "key", False))


# ------------------------------------------------------------------------------------------------ what is asked for


def test_jobs_have_rows_of_one_data_set_and_encoder():
    rows = [planned(layer=layer) for layer in (1, 2, 3)] + [planned(pairs_per_cell=7)]
    names = [[[p.run.layer for p in job] for job in jobs] for jobs in slurm.arrays(rows, 2)]
    assert names == [[[1, 2], [3]], [[None]]]


def test_resources_by_hand(monkeypatch):
    """Two jobs of 40 and 50 minutes without the encoding of 10, which either may have to wait for."""
    monkeypatch.setattr(devices, "threads", lambda: 3)
    rows = [planned(1500.0 + 600, 600.0, layer=1), planned(900.0, layer=2), planned(3000.0, layer=3)]
    jobs = [rows[:2], rows[2:]]
    assert slurm.resources(jobs, {}) == {"time": 120, "cpus_per_task": 3, "mem": "5G", "requeue": True}
    asked = slurm.resources(jobs, {"mem_per_cpu": "2G", "time": "1:00:00", "partition": "gpu"})
    assert asked == {
        "time": "1:00:00",
        "cpus_per_task": 3,
        "requeue": True,
        "mem_per_cpu": "2G",
        "partition": "gpu",
    }


def test_a_job_asks_for_the_largest_table_and_no_less_than_ten_minutes():
    asked = slurm.resources([[planned(5.0, table=8_000_000)]], {})
    assert (asked["time"], asked["mem"]) == (10, "5G")


def test_options_of_sbatch():
    asked = slurm.parse_options(["qos=long", "--cpus-per-task=8", "exclusive", "comment=a=b"])
    assert asked == {"qos": "long", "cpus_per_task": "8", "exclusive": True, "comment": "a=b"}


@pytest.mark.parametrize("wrong", ["=x", "qos=", "two words", "array=0-3", "job-name=mine"])
def test_options_that_sbatch_cannot_have(wrong):
    with pytest.raises(UserError, match=r"--slurm"):
        slurm.parse_options([wrong])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--launcher", "slrm"], "did you mean 'slurm'"),
        (["--partition", "gpu"], "--partition is for jobs of Slurm; add --launcher slurm"),
        (["--no-wait"], "--wait is for jobs of Slurm"),
        (["--launcher", "slurm", "--rows-per-job", "0"], "--rows-per-job must be at least 1"),
        (["--only", "no-such-row"], "unknown row of this study 'no-such-row'"),
    ],
)
def test_mistakes(words, said, tmp_path, capsys):
    assert study.main([*TINY, *words, "--out", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err


def test_a_job_is_the_command_of_the_user():
    asked = study.Study(
        file="mine.toml", layer=("all",), quick=True, out="here", keep_features="none", max_hours=3.0, launcher="slurm"
    )
    launch = study.launch_of(study.check(asked))
    assert launch.words == [
        *(sys.executable, "-m", "soopf_jax", "study", "mine.toml"),
        *("--layer", "all", "--quick", "--out", "here"),
    ]


def test_rows_that_are_encoded_together_are_planned_together():
    rows = definition.rows_of(
        [{"encoder": ["random-vit-s", "pixels"], "layer": [1, 2, LAST]}], {"random-vit-s": 12}.get
    )
    chosen = beside([folder(rows[0])], rows)
    assert [(row.encoder, row.layer) for row in rows if chosen(row)] == [
        ("random-vit-s", 1),
        ("random-vit-s", 2),
        ("random-vit-s", None),
    ]


def test_a_run_keeps_to_the_memory_of_its_job(monkeypatch):
    before = devices.memory_of_device()
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "100")
    assert devices.memory_of_device() == 100 * 2**20 < before
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "0")
    assert devices.memory_of_device() == before


# --------------------------------------------------------------------------------------------- what is under way


def test_queue_and_results_decide_where_a_row_is(cluster, tmp_path):
    place = tmp_path / "study" / "slurm"
    for number, (name, jobs) in enumerate([("old", [["a"], ["b", "c"]]), ("new", [["a"]])], 1):
        (place / str(number)).mkdir(parents=True)
        (place / str(number) / "jobs.json").write_text(json.dumps({"name": name, "jobs": jobs}))
    (place / "1" / "7_1_0_log.out").touch()
    (tmp_path / "study" / "d").mkdir()
    (tmp_path / "study" / "d" / "result.json").touch()
    (cluster / "queue").write_text("new|N/A|PENDING\nold|1|COMPLETING\n")
    found = slurm_queue.look(place, ["a", "b", "c", "d", "e"])
    assert {name: row.state for name, row in found.items()} == {
        "a": "queued",
        "b": "running",
        "c": "running",
        "d": "done",
        "e": "failed",
    }
    assert found["c"].log == place / "1" / "7_1_0_log.out"
    assert "--name=old,new" in (cluster / "asked").read_text()


def test_what_is_under_way_is_not_submitted_again(cluster, tmp_path, capfd):
    out = tmp_path / "out"
    asked = [*TINY, "--layer", "all", "--out", str(out), "--cache-dir", str(tmp_path / "cache")]
    on_slurm = [*asked, "--launcher", "slurm", "--no-wait", "--gpus", "1"]
    assert study.main(on_slurm) == 0
    first = json.loads((out / "slurm" / "1" / "jobs.json").read_text())
    assert [len(job) for job in first["jobs"]] == [1, 1, 1]
    script = (cluster / "submitted").read_text()
    for line in ("array=0-2%3", f"job-name={first['name']}", "gpus=1", "requeue", "time=10", "mem=5G"):
        assert f"#SBATCH --{line}\n" in script

    (cluster / "queue").write_text(f"{first['name']}|0|PENDING\n{first['name']}|2|RUNNING\n")
    assert study.main(on_slurm) == 0
    second = json.loads((out / "slurm" / "2" / "jobs.json").read_text())
    assert second["jobs"] == [first["jobs"][1]]
    (out / "slurm" / "2" / "8_0_log.out").write_text("error: not done: x (no luck); see above\n")
    capfd.readouterr()

    (out / "slurm" / "1" / "jobs.json").rename(out / "slurm" / "1" / "elsewhere")
    (cluster / "queue").write_text(f"{first['name']}|0|PENDING\n")
    assert study.main([*on_slurm, "--dry-run"]) == 0
    assert "3 jobs for 3 rows, each with time=10" in capfd.readouterr().out
    assert not (out / "slurm" / "3").exists()


def test_a_failure_is_told_with_its_log(tmp_path, capsys):
    log = tmp_path / "7_0_log.out"
    log.write_text("error: one; do\nstudy\nerror: no space left; free some\nlast\n")
    obstacle = slurm._why("row", slurm_queue.Row(slurm_queue.FAILED, log))
    assert obstacle.reason == "its job has ended without a result (no space left)"
    assert f"see {log}" in capsys.readouterr().err
    assert (
        slurm._why("row", slurm_queue.Row(slurm_queue.FAILED, None)).reason == "its job was cancelled before it began"
    )
    assert slurm._why("row", slurm_queue.Row(slurm_queue.QUEUED, None)).reason == "queued in Slurm"


def test_what_is_missing_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"^--launcher slurm needs sbatch, which is not on this machine; start"):
        slurm.check_at_hand()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match=r"needs submitit, .* pip install 'soopf_jax\[slurm\]'$"):
        slurm.check_at_hand()


def test_a_queue_that_does_not_answer(cluster):
    (cluster / "squeue").write_text("#!/bin/sh\necho 'slurm_load_jobs error: no luck' >&2\nexit 1\n")
    with pytest.raises(UserError, match=r"squeue does not answer \(slurm_load_jobs error: no luck\)"):
        slurm_queue.in_queue(["x"])


# ------------------------------------------------------------------------------------------------------ the job


def test_a_job_ends_with_the_code_of_its_command(capfd):
    Command([sys.executable, "-c", "print('said')"])()
    assert capfd.readouterr().out.splitlines()[-1] == "said"
    for program, code in (("import sys; sys.exit(2)", 2), ("import os; os.kill(os.getpid(), 9)", 128 + 9)):
        with pytest.raises(SystemExit) as stop:
            Command([sys.executable, "-c", program])()
        assert stop.value.code == code


def test_a_job_that_has_to_leave_interrupts_its_command_and_is_the_same_afterwards(tmp_path):
    kept = tmp_path / "kept"
    program = f"""
import pathlib, time
try:
    pathlib.Path({str(tmp_path / "began")!r}).touch()
    time.sleep(60)
except KeyboardInterrupt:
    pathlib.Path({str(kept)!r}).touch()
"""
    words = [sys.executable, "-c", program]
    job, sleep, asked, again = Command(words), time.sleep, [], []

    def leave(seconds):
        """The job is asked to leave once, although waiting for its command sleeps as well."""
        sleep(seconds)
        if (tmp_path / "began").exists() and not asked:
            asked.append(True)
            again.append(job.checkpoint())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("soopf_jax.studies.job.time.sleep", leave)
        job()
    assert kept.exists()
    assert [one.function.words for one in again] == [words]


def test_a_pickled_job_holds_its_words_alone():
    """submitit writes it by cloudpickle; only the job that was submitted loads it."""
    assert Command(["a", "b"]).__dict__ == {"words": ["a", "b"], "_process": None}
    assert Path(sys.modules[Command.__module__].__file__).name == "job.py"
