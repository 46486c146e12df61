"""A dry run says what a run would take, from the memory that compiled programs need, and computes nothing."""

from dataclasses import replace

import pytest

from soopf_jax.experiments import dry_run
from soopf_jax.experiments.opened import open_run
from soopf_jax.experiments.options import Bench
from soopf_jax.fitting import devices
from soopf_jax.report.run_folder import carry_out
from tests import tiny_parts

TINY = Bench(
    dataset="tests.tiny_parts:open_substrate",
    encoder="tests.tiny_parts:open_encoder",
    seeds=4,
    restarts=2,
    steps=10,
    dry_run=True,
)


def test_this_machine_s_plan_is_printed_and_nothing_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    asked = []
    monkeypatch.setattr(dry_run, "make_plan", lambda job, session, test: asked.append(job) or dry_run_plan())
    carry_out(TINY)
    out = capsys.readouterr().out
    assert "3 arms of 72 fits, 10 steps each; 54 pairs of 9 x 16 tokens" in out
    assert "18 fits at once, 2 lanes, 3.00 of" in out
    assert list(tmp_path.iterdir()) == []
    (job,) = asked
    assert job.prepared.inputs.source.shape == (54, tiny_parts.PATCHES, tiny_parts.CHANNELS)


def dry_run_plan():
    from soopf_jax.fitting.unfinished import Plan

    return Plan(18, 3_000_000_000, 2)


def test_fits_on_a_gpu_are_halved_until_its_memory_holds_them(monkeypatch):
    """72 fits of 0.5 GB beside a table of 3 GB: 39 GB, 21 GB for two seeds and 12 GB for one. 7.2 GB hold 4 fits."""
    asked = []

    def needed(job, count, lanes, test, among):
        asked.append(count)
        return {"init": 0, "advance": int((3 + 0.5 * count) * 1e9), "evaluate": int(4e9)}

    monkeypatch.setattr(dry_run, "bytes_of_programs", needed)
    monkeypatch.setattr(dry_run.targets, "devices_of", lambda target: None)
    monkeypatch.setattr(devices, "is_single_cpu", lambda among: False)
    text = dry_run.describe(open_run(TINY), "h100")
    assert "NVIDIA H100 80GB HBM3, compiled and not run" in text
    lines = [line.split() for line in text.splitlines()[-4:]]
    assert [(int(line[0]), int(line[2])) for line in lines] == [(8, 4), (16, 18), (24, 36), (80, 72)]
    assert len(set(asked)) == len(asked), "every number of fits is compiled once"


def test_the_number_of_fits_that_was_asked_for_is_planned(monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(dry_run, "make_plan", lambda job, session, test: asked.append(session) or dry_run_plan())
    carry_out(replace(TINY, fits_per_program=7))
    assert [session.fits_per_program for session in asked] == [7]
    monkeypatch.setattr(dry_run, "bytes_of_programs", lambda job, count, *_: {"advance": count * 10**9})
    monkeypatch.setattr(dry_run.targets, "devices_of", lambda target: None)
    lines = [line.split() for line in dry_run.describe(open_run(TINY), "h100", 9).splitlines()[-4:]]
    assert [line[2] for line in lines] == ["9"] * 4
    assert [" ".join(line[6:]) for line in lines] == ["too small for them", *["needs 9.00 GB in advance"] * 3]


def test_a_card_that_is_too_small_is_said_so(monkeypatch):
    monkeypatch.setattr(dry_run, "bytes_of_programs", lambda *args: {"advance": int(50e9)})
    monkeypatch.setattr(dry_run.targets, "devices_of", lambda target: None)
    text = dry_run.describe(open_run(TINY), "a100")
    assert text.count("too small even for one fit") == 3
    assert "50.00 GB in advance" in text


@pytest.mark.parametrize("option", ["dry_run", "target"])
def test_a_plan_is_no_part_of_the_record(option):
    assert option not in open_run(TINY).config
