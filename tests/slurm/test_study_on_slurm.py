"""A study on a real Slurm, of which jobs are cancelled, killed and sent away: it ends with the bits of a local one."""

import contextlib
import json
import subprocess
from pathlib import Path

import psutil
import pytest

from soopf_jax import study
from soopf_jax.studies import slurm_queue
from tests.slurm.waiting import HOLD, newest_checkpoint, until

pytestmark = pytest.mark.slurm
STUDY = [
    *("--dataset", "tests.slurm.parts:open_substrate", "--encoder", "tests.slurm.parts:open_layered"),
    *("--layer", "all", "last", "--assignment", "factorial", "--seeds", "1", "--restarts", "1", "--steps", "20"),
    *("--set", "batch_size=8", "checkpoint_seconds=0"),
]
ON_SLURM = ["--launcher", "slurm", "--mem", "500M", "--slurm", "cpus-per-task=1"]


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch, no_report):
    monkeypatch.setattr(slurm_queue, "SECONDS_BETWEEN_LOOKS", 0.5)


def kill_command(row: Path) -> None:
    """Kill the command of a row, and nothing else of its job."""
    (command,) = [p for p in psutil.process_iter(["cmdline"]) if (p.info["cmdline"] or [])[-1:] == [row.name]]
    command.kill()


def kill_node_of(job: str) -> None:
    """Kill all processes of a job, and those with which Slurm watches it: what is left when a node has died."""
    (number,) = squeue(job, "%A")
    for process in psutil.process_iter(["cmdline"]):
        with contextlib.suppress(psutil.Error):
            keeper = " ".join(process.info["cmdline"] or []).startswith(f"slurmstepd: [{number}.")
            if keeper or process.environ().get("SLURM_JOB_ID") == number:
                process.kill()


def squeue(job: str, what: str) -> list[str]:
    """What squeue says of a job; nothing if it is not in the queue."""
    answer = subprocess.run(
        ["squeue", "--noheader", f"--format={what}", f"--jobs={job}"], capture_output=True, text=True
    )
    return answer.stdout.split()


def meet(row: Path, job: str) -> None:
    """Wait until a job is in training, where HOLD keeps it."""
    until(lambda: newest_checkpoint(row) or not squeue(job, "%T"), seconds_between=0.5)
    assert newest_checkpoint(row), "the job has ended before; see its log"


def is_back(job: str) -> bool:
    """Whether a job is in the queue again."""
    return squeue(job, "%T") == ["PENDING"]


def is_missed(job: str) -> bool:
    """Whether Slurm has noticed that a job's node has lost it. It asks its nodes only now and then, or when told to."""
    subprocess.run(["scontrol", "reconfigure"], check=True)
    return is_back(job)


def start_soon(job: str) -> None:
    """Start a job that is in the queue again. By itself, Slurm first lets the credentials of its first start expire.

    The new credentials must be younger than the end of the first start, of which Slurm notes the second.
    """
    subprocess.run(["scontrol", "update", f"JobId={job}", "StartTime=now+3"], check=True)


def test_cancelled_killed_and_requeued_jobs_end_with_the_bits_of_a_local_study(slurm, tmp_path, capfd, monkeypatch):
    out, local, cache = tmp_path / "on-slurm", tmp_path / "local", ["--cache-dir", str(tmp_path / "cache")]
    hold = tmp_path / "hold"
    hold.touch()
    monkeypatch.setenv(HOLD, str(hold))  # every job has it too, and waits in training
    assert study.main([*STUDY, *cache, *ON_SLURM, "--no-wait", "--out", str(out)]) == 0
    assert "0 of 4 runs are done, 4 are missing" in capfd.readouterr().out
    first = json.loads((out / "slurm" / "1" / "jobs.json").read_text())
    killed, left, lost, cancelled = rows = [out / name for (name,) in first["jobs"]]
    job = subprocess.check_output(["squeue", "--noheader", "--format=%F", f"--name={first['name']}"], text=True)
    job = job.split()[0]

    subprocess.run(["scancel", f"{job}_3"], check=True)

    meet(killed, f"{job}_0")
    kill_command(killed)

    meet(left, f"{job}_1")
    subprocess.run(["scancel", "--signal=USR2", f"{job}_1"], check=True)  # what Slurm sends before the time is over
    until(lambda: is_back(f"{job}_1"))
    start_soon(f"{job}_1")

    meet(lost, f"{job}_2")
    kill_node_of(f"{job}_2")
    until(lambda: is_missed(f"{job}_2"), seconds_between=2)
    start_soon(f"{job}_2")

    hold.unlink()
    assert study.main([*STUDY, *cache, *ON_SLURM, "--out", str(out)]) == 0
    told = capfd.readouterr()
    assert "4 of 4 runs are done, 0 are missing" in told.out
    assert "rows: 4 done, 0 running, 0 queued, 0 failed" in told.err
    again = json.loads((out / "slurm" / "2" / "jobs.json").read_text())
    assert again["jobs"] == [[killed.name], [cancelled.name]], "the others were still with Slurm"
    log = next((out / "slurm" / "1").glob("*_1_0_log.out")).read_text()
    assert "kept 1 of 20 steps of factorial; run the same command again to go on" in log
    assert "Requeued job" in log
    assert log.count("-m soopf_jax study") >= 2, "it was started again"

    assert study.main([*STUDY, *cache, "--out", str(local)]) == 0
    for row in rows:
        assert (row / "fits.npz").read_bytes() == (local / row.name / "fits.npz").read_bytes()
    assert (out / "study.csv").read_text() == (local / "study.csv").read_text()


def test_what_slurm_refuses_is_told_in_one_line_and_leaves_nothing(slurm, tmp_path, capfd):
    asked = [*STUDY, "--cache-dir", str(tmp_path / "cache"), "--out", str(tmp_path / "out")]
    assert study.main([*asked, *ON_SLURM, "--partition", "nowhere"]) == 2
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line]
    assert line.startswith("error: Slurm refuses the jobs (sbatch: error: ")
    assert not list((tmp_path / "out" / "slurm").glob("[0-9]*"))


def test_a_row_that_fails_is_named_with_its_log_and_the_others_go_on(slurm, tmp_path, capfd):
    rows = tmp_path / "study.toml"
    rows.write_text('steps = 20\n[[row]]\nseeds = 1\n[[row]]\nseeds = 2\nreadout = "tests.slurm.broken:READOUT"\n')
    parts = [*STUDY[:4], "--assignment", "factorial", "--set", "batch_size=8", "restarts=1"]
    asked = [str(rows), *parts, "--cache-dir", str(tmp_path / "cache"), "--out", str(tmp_path / "out")]
    assert study.main([*asked, *ON_SLURM, "--rows-per-job", "2"]) == 0
    told = capfd.readouterr()
    assert "1 of 2 runs are done, 1 are missing" in told.out
    (jobs,) = [json.loads(path.read_text())["jobs"] for path in (tmp_path / "out" / "slurm").glob("*/jobs.json")]
    assert [len(job) for job in jobs] == [2]
    (line,) = [line for line in told.err.splitlines() if line.startswith("not run: ")]
    assert "its job has ended without a result (not done: " in line
    log = Path(line.rpartition("see ")[2].partition(";")[0])
    assert "broken on purpose" in log.read_text()
