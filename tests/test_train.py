"""Interrupted training ends with the bits of undisturbed training."""

import re
import signal
from contextlib import contextmanager

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from soopf_jax.experiments.held_out import benchmark
from soopf_jax.fitting import assignments, compiled, devices, objectives
from soopf_jax.fitting.arm import Arm
from soopf_jax.fitting.group import make_group
from soopf_jax.fitting.prepare import SourceTransform, dims_of, prepare_table
from soopf_jax.fitting.protocol import Protocol, leave_one_cell_out
from soopf_jax.fitting.train import Job, Session, groups_and_meshes, make_plan, train_arm
from soopf_jax.fitting.unfinished import PLAN, Plan
from soopf_jax.readouts.soopf import READOUT
from soopf_jax.runtime import cli
from soopf_jax.runtime.arrays import npz_bytes
from tests.planted import planted_table, random_table
from tests.programs import make_program

PROTOCOL = Protocol(seeds=2, restarts=1, steps=20)
ARM = Arm(READOUT, assignments.LEARNED, objectives.CORE)


class Interrupted(Exception):
    """Stands for whatever ends a process."""


def interrupted_after(calls: int):
    """A progress bar that breaks off."""

    @contextmanager
    def bar(description, total):
        left = calls

        def advance(n):
            nonlocal left
            left -= 1
            if left < 0:
                raise Interrupted

        yield advance

    return bar


def ctrl_c_after(calls: int):
    """A progress bar that presses Ctrl-C."""

    @contextmanager
    def bar(description, total):
        left = calls

        def advance(n):
            nonlocal left
            left -= 1
            if left == 0:
                signal.raise_signal(signal.SIGINT)

        yield advance

    return bar


def run(session, protocol=PROTOCOL):
    return npz_bytes(benchmark(planted_table(10), assignments=["learned"], protocol=protocol, session=session).fits)


@pytest.fixture(scope="module")
def undisturbed():
    return run(Session())


@pytest.mark.parametrize(("calls", "lanes"), [(20, 1), (33, 1), (7, 2)])
def test_an_interrupted_run_goes_on_to_the_same_bits(tmp_path, undisturbed, calls, lanes):
    with pytest.raises(Interrupted):
        run(Session(tmp_path, interrupted_after(calls), checkpoint_seconds=0.0, lanes=lanes))
    checkpoints = list(tmp_path.glob("*.checkpoint"))
    if lanes == 1:
        assert len(checkpoints) == (calls != 20), "20 chunks of one step; one, of the group that was being trained"
    assert run(Session(tmp_path, checkpoint_seconds=0.0, lanes=lanes)) == undisturbed
    assert not list(tmp_path.glob("*.checkpoint"))


@pytest.mark.parametrize(("calls", "lanes", "kept"), [(7, 1, 3), (20, 1, 10), (30, 1, 15), (7, 2, None)])
def test_ctrl_c_keeps_every_step_that_was_trained(tmp_path, undisturbed, capsys, calls, lanes, kept):
    """Two groups of 9 of the 18 fits, one step a call: half as many steps of all fits as calls."""
    own = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert cli.run(lambda: run(Session(tmp_path, ctrl_c_after(calls), lanes=lanes))) == 130
    finally:
        signal.signal(signal.SIGINT, own)
    last = capsys.readouterr().err.splitlines()[-1]
    assert re.fullmatch(r"interrupted; kept \d+ of 20 steps of learned; run the same command again to go on", last)
    done = []

    @contextmanager
    def counting(description, total):
        yield done.append

    assert run(Session(tmp_path, counting, lanes=lanes)) == undisturbed
    assert sum(done) == 18 * 20
    if kept is not None:
        assert f"kept {kept} of 20" in last
        assert sum(n for n in done if n > 9) == 9 * calls, "larger calls report what an earlier run has done"


def test_work_that_a_checkpoint_holds_is_not_done_again(tmp_path):
    with pytest.raises(Interrupted):
        run(Session(tmp_path, interrupted_after(15), checkpoint_seconds=0.0, lanes=1))
    steps = []

    @contextmanager
    def counting(description, total):
        yield steps.append

    run(Session(tmp_path, counting, checkpoint_seconds=0.0, lanes=1))
    first = steps[0]
    assert first >= 9 * 14, "the first call tells what the checkpoint holds"
    assert sum(steps) == 2 * 9 * 20


def test_a_damaged_finished_group_is_trained_again(tmp_path, undisturbed):
    with pytest.raises(Interrupted):
        run(Session(tmp_path, interrupted_after(25), lanes=1))
    (saved,) = tmp_path.glob("*.npz")
    saved.write_bytes(saved.read_bytes()[:-50])
    assert run(Session(tmp_path)) == undisturbed


def test_the_number_of_fits_at_once_is_kept_for_the_next_start(tmp_path):
    table = planted_table(10)
    fits = leave_one_cell_out(table.grid, PROTOCOL)
    prepared = prepare_table(table, READOUT)
    job = Job(ARM, table, prepared, PROTOCOL, fits)
    first = make_plan(job, Session(tmp_path, fits_per_program=4, lanes=3))
    again = make_plan(job, Session(tmp_path))
    assert first == again == (4, first.bytes_per_device, 3)
    groups, meshes = groups_and_meshes(fits, first.fits_per_program, first.lanes)
    assert groups[0].row.shape == (1, 4)
    assert len(meshes) == 3
    tokens = table.source.nbytes + table.delta.nbytes
    (tmp_path / PLAN).write_text('{"fits_per_program": -1}')
    own = make_plan(job, Session(tmp_path, lanes=2))
    assert own.fits_per_program == 9, "one seed's on a CPU"
    assert tokens < first.bytes_per_device < own.bytes_per_device


def test_the_grouping_of_fits_changes_no_more_than_rounding():
    table = random_table()
    protocol = Protocol(seeds=2, restarts=1, steps=25)
    fits = leave_one_cell_out(table.grid, protocol)
    prepared = prepare_table(table, READOUT)
    columns = [
        train_arm(Job(ARM, table, prepared, protocol, fits, scores_only=True), Plan(at_once, 0), Session())
        for at_once in (18, 9, 4)
    ]
    for other in columns[1:]:
        for name in ("c_sup", "c_op", "q", "loss"):
            np.testing.assert_allclose(other[name], columns[0][name], rtol=1e-3, atol=1e-4, err_msg=name)


def test_the_scale_of_source_tokens_and_of_q_are_factors():
    table = random_table()
    doubled = table._replace(source=2 * table.source)
    a, b = prepare_table(table, READOUT, SourceTransform(2.0)).inputs, prepare_table(doubled, READOUT).inputs
    jax.tree.map(np.testing.assert_array_equal, a, b)
    group = make_group(table, ARM, PROTOCOL, leave_one_cell_out(table.grid, PROTOCOL), np.arange(9)[None])
    one, three = (
        make_program(ARM, table.grid, dims_of(table, protocol), protocol).init(group).params["assignment"]
        for protocol in (PROTOCOL, Protocol(seeds=2, restarts=1, steps=60, q_scale=3.0))
    )
    jax.tree.map(lambda x, y: np.testing.assert_allclose(y, 3 * x, rtol=1e-6), one, three)
    assert jnp.any(jax.tree.leaves(one)[0] != 0)


# ------------------------------------------------- after these, everything is compiled again


def test_lanes_share_a_program(monkeypatch, undisturbed, no_cache_on_disk):
    copies = []

    def watched(program, mesh, copy_program=devices.copy_program):
        copies.append(copy_program(program, mesh))
        return copies[-1]

    monkeypatch.setattr(devices, "copy_program", watched)
    compiled.forget()
    assert run(Session(lanes=2)) == undisturbed
    assert len(copies) == 5, "init, advance, evaluate, router_state and router_sums of the second lane"
    assert None not in copies


def test_lanes_that_cannot_share_a_program_compile_their_own(monkeypatch, undisturbed):
    asked = []
    monkeypatch.setattr(devices, "copy_program", lambda program, mesh: asked.append(mesh))
    compiled.forget()
    assert run(Session(lanes=2)) == undisturbed
    assert len(asked) == 5
    assert set(asked) <= set(devices.lane_meshes(2))
