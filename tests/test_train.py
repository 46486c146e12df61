"""Interrupted training ends with the bits of undisturbed training."""

from contextlib import contextmanager

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from soopf_jax import assignments, devices, objectives, results
from soopf_jax.fit import Arm, dims_of, make_group, make_program, prepare_table
from soopf_jax.protocol import Protocol, leave_one_cell_out
from soopf_jax.readouts.soopf import READOUT
from soopf_jax.runner import benchmark
from soopf_jax.train import PLAN, Session, make_plan, make_trainer, train_arm
from tests.planted import planted_table, random_table

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


def run(session, protocol=PROTOCOL):
    return results.npz_bytes(
        benchmark(planted_table(10), assignments=["learned"], protocol=protocol, session=session).fits
    )


@pytest.fixture(scope="module")
def undisturbed():
    return run(Session())


@pytest.mark.parametrize("calls", [7, 20, 33])
@pytest.mark.parametrize("lanes", [1, 2])
def test_an_interrupted_run_goes_on_to_the_same_bits(tmp_path, undisturbed, calls, lanes):
    with pytest.raises(Interrupted):
        run(Session(tmp_path, interrupted_after(calls), checkpoint_seconds=0.0, lanes=lanes))
    checkpoints = list(tmp_path.glob("*.checkpoint"))
    if lanes == 1:
        assert len(checkpoints) == (calls != 20), "20 chunks of one step; one, of the group that was being trained"
    assert run(Session(tmp_path, checkpoint_seconds=0.0, lanes=lanes)) == undisturbed
    assert not list(tmp_path.glob("*.checkpoint"))


def test_lanes_share_a_program(monkeypatch, undisturbed, no_cache_on_disk):
    copies = []

    def watched(compiled, mesh, copied=devices.copied):
        copies.append(copied(compiled, mesh))
        return copies[-1]

    monkeypatch.setattr(devices, "copied", watched)
    assert run(Session(lanes=2)) == undisturbed
    assert len(copies) == 1
    assert copies[0] is not None


def test_lanes_that_cannot_share_a_program_compile_their_own(monkeypatch, undisturbed):
    asked = []
    monkeypatch.setattr(devices, "copied", lambda compiled, mesh: asked.append(mesh))
    assert run(Session(lanes=2)) == undisturbed
    assert asked == [devices.lane_meshes(2)[1]]


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
    first, _ = make_plan(ARM, table, prepared, PROTOCOL, fits, Session(tmp_path, fits_per_program=4, lanes=3))
    again, trainer = make_plan(ARM, table, prepared, PROTOCOL, fits, Session(tmp_path))
    assert first == again == (4, first.bytes_per_device, 3)
    assert trainer.groups[0].row.shape == (1, 4)
    tokens = table.source.nbytes + table.delta.nbytes
    (tmp_path / PLAN).write_text('{"fits_per_program": -1}')
    own, _ = make_plan(ARM, table, prepared, PROTOCOL, fits, Session(tmp_path))
    assert own.fits_per_program == 9, "one seed's on a CPU"
    assert tokens < first.bytes_per_device < own.bytes_per_device


def test_the_grouping_of_fits_changes_no_more_than_rounding():
    table = random_table()
    protocol = Protocol(seeds=2, restarts=1, steps=25)
    fits = leave_one_cell_out(table.grid, protocol)
    prepared = prepare_table(table, READOUT)
    columns = [
        train_arm(make_trainer(ARM, table, prepared, protocol, fits, at_once), ARM, table, protocol, fits, Session())
        for at_once in (18, 9, 4)
    ]
    for other in columns[1:]:
        for name in ("c_sup", "c_op", "q", "loss"):
            np.testing.assert_allclose(other[name], columns[0][name], rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("precision", ["default", "highest"])
def test_training_lowers_for_cuda(precision):
    table = random_table()
    protocol = Protocol(seeds=1, restarts=1, steps=5, matmul_precision=precision)
    group = make_group(table, ARM, protocol, leave_one_cell_out(table.grid, protocol), np.arange(9)[None])
    program = make_program(ARM, table.grid, dims_of(table, protocol), protocol)
    prepared = prepare_table(table, READOUT)
    state = program.init(group)
    steps = (np.int32(0), np.int32(5))
    for function, args in (
        (program.init, (group,)),
        (program.advance, (state, prepared, group, *steps)),
        (program.evaluate, (state, prepared, group)),
    ):
        lowered = export.export(function, platforms=["cuda"])(*args)
        assert lowered.platforms == ("cuda",)
        assert "custom_call @callback" not in lowered.mlir_module(), "nothing calls back to the host"
    assert ("HIGHEST" in lowered.mlir_module()) == (precision == "highest")


def test_the_scale_of_source_tokens_and_of_q_are_factors():
    table = random_table()
    doubled = table._replace(source=2 * table.source)
    a, b = prepare_table(table, READOUT, 2.0).inputs, prepare_table(doubled, READOUT).inputs
    jax.tree.map(np.testing.assert_array_equal, a, b)
    group = make_group(table, ARM, PROTOCOL, leave_one_cell_out(table.grid, PROTOCOL), np.arange(9)[None])
    one, three = (
        make_program(ARM, table.grid, dims_of(table, protocol), protocol).init(group).params["assignment"]
        for protocol in (PROTOCOL, Protocol(seeds=2, restarts=1, steps=60, q_scale=3.0))
    )
    jax.tree.map(lambda x, y: np.testing.assert_allclose(y, 3 * x, rtol=1e-6), one, three)
    assert jnp.any(jax.tree.leaves(one)[0] != 0)
