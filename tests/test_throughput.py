"""The PyTorch loops take the steps of the JAX program, so that their times can be compared; the benchmark's sums."""

import io
import json
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import throughput
from soopf_jax.errors import UserError
from soopf_jax.fitting.prepare import prepare_table
from tests.programs import make_program

torch_loops = throughput.torch_loops
STEPS, PATCHES, CHANNELS = 6, 5, 8


@pytest.fixture(scope="module", autouse=True)
def one_torch_thread():
    """The products are too small to share out, and waiting threads would slow down XLA's."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def table():
    return throughput.noise_table(PATCHES, CHANNELS)


@pytest.fixture(scope="module")
def program_and_group(table):
    spec = throughput.training_of(table)
    program = make_program(spec.arm, spec.grid, spec.dims, spec.protocol, spec.mesh)
    return program, *throughput.groups_of(table, throughput.FITS_PER_SEED)


@pytest.fixture(scope="module")
def task(table, program_and_group):
    program, group = program_and_group
    return torch_loops.task_of(table, group, program.init(group).params, throughput.PROTOCOL)


@pytest.fixture(scope="module")
def ours(table, program_and_group):
    """Losses [steps, fits] of the JAX program and its parameters after the last step."""
    program, group = program_and_group
    prepared = prepare_table(table, throughput.ARM.readout, mesh=throughput.one_device())
    state, losses = program.init(group), []
    for step in range(STEPS):
        state, loss = program.advance(state, prepared, group, step, step + 1)
        losses.append(np.asarray(loss[0]))
    return np.stack(losses), torch_loops.paper_notation(state.params)


def assert_same(losses, parameters, task, ours, fits):
    """Losses within rounding; of the way that each parameter went, less than a hundredth is different.

    Adam divides by the root of the squared gradient: a gradient that is nothing but rounding moves its element anyhow,
    and no tolerance per element holds. A wrong equation changes the way as a whole.
    """
    np.testing.assert_allclose(losses, ours[0][:, fits], rtol=0, atol=2e-5)
    for name, value in parameters.items():
        way = ours[1][name][fits] - task.start[name][fits]
        assert (value.detach() - ours[1][name][fits]).norm() < 1e-2 * way.norm(), name


@pytest.mark.parametrize("precomputed", [False, True])
@pytest.mark.parametrize("fit", [0, 13, 44])
def test_one_fit_at_a_time_takes_the_programs_steps(task, ours, fit, precomputed):
    loop = torch_loops.sequential(task, fit, precomputed)
    losses = [loop.step(number).item() for number in range(STEPS)]
    assert_same(losses, loop.parameters, task, ours, fit)


def test_all_fits_batched_take_the_programs_steps(task, ours):
    loop = torch_loops.batched(task)
    losses = torch.stack([loop.step(number) for number in range(STEPS)])
    assert_same(losses, loop.parameters, task, ours, slice(None))


def test_the_steps_move_every_parameter_of_every_fit(task, ours):
    for name, start in task.start.items():
        moved = (ours[1][name] - start).flatten(1).abs().amax(dim=1)
        assert moved.min() > 1e-3, name  # six Adam steps of 5e-3 each


def test_a_fit_reads_nothing_of_its_held_out_cell(task):
    fit = 13
    held_out = task.cell == task.held_out[fit]
    changed = task._replace(source=task.source.clone(), delta=task.delta.clone())
    changed.source[held_out] *= 3
    changed.delta[held_out] += 1
    for make in (torch_loops.batched, lambda task: torch_loops.sequential(task, fit)):
        before, after = make(task), make(changed)
        losses = [torch.atleast_1d(loop.step(0)) for loop in (before, after)]
        same = losses[0] == losses[1]
        assert same[fit % len(same)]
        if len(same) > 1:
            assert same.tolist() == (task.held_out == task.held_out[fit]).tolist()


def test_summary_by_hand():
    jax_name = throughput.jax_name(90)
    times = [
        {throughput.SEQUENTIAL: 60.0, throughput.PRECOMPUTED: 30.0, throughput.BATCHED: 4.0, jax_name: 2.0},
        {throughput.SEQUENTIAL: 40.0, throughput.PRECOMPUTED: 40.0, throughput.BATCHED: 8.0, jax_name: 4.0},
        {throughput.SEQUENTIAL: 50.0, throughput.PRECOMPUTED: 10.0, throughput.BATCHED: 9.0, jax_name: 1.0},
    ]
    part = throughput.summary(times, rates=[1e9, 2e9, 4e9], flops=2e6, name=jax_name)  # floors of 2, 1 and 0.5 ms
    assert part["ratio_to_floor"] == 2  # of 1, 4 and 2
    assert part["speedup_vs_torch"] == 30  # of 30, 10 and 50
    assert part["speedup_vs_torch_precomputed"] == 10  # of 15, 10 and 10
    assert part["speedup_vs_torch_batched"] == 2  # of 2, 2 and 9
    assert part["ms_per_fit_step"][jax_name] == 2
    assert part["floor_ms_per_fit_step"] == 1
    assert part["gemm_gflops"] == 2


def test_a_group_is_the_fits_of_one_seed(table):
    (one,) = throughput.groups_of(table, 1)
    (seed,) = throughput.groups_of(table, 45)
    two = throughput.groups_of(table, 90)
    assert one.held_out.shape == (1, 1)
    assert [group.held_out.shape for group in two] == [(1, 45), (1, 45)]
    assert [group.seed.tolist() for group in two] == [[0], [1]]
    pairs = set(zip(seed.held_out[0].tolist(), seed.restart[0].tolist(), strict=True))
    assert pairs == {(held_out, restart) for held_out in range(9) for restart in range(5)}


@pytest.mark.parametrize("lanes", [1, 2])
def test_a_measured_method_trains_every_group(table, program_and_group, lanes):
    groups, prepared = throughput.groups_of(table, 90), prepare_table(table, throughput.ARM.readout)
    starts = [throughput.to_host(program_and_group[0].init(group)) for group in groups]
    called = []

    def watched(number, lane):
        def advance(*args):
            called.append((number, args[2].seed.tolist(), int(args[-1])))
            return lane.compiled(*args)

        return lane._replace(compiled=advance)

    compiled = throughput.compiled_lanes(table, prepared, starts[0], groups[0], lanes)
    method = throughput.jax_method([watched(*numbered) for numbered in enumerate(compiled)], starts, groups)
    method.run(2)
    method.run(3)
    assert (method.fits, method.lanes) == (90, lanes)
    assert sorted(called) == [(seed % lanes, [seed], steps) for seed in (0, 1) for steps in (2, 3)]


def test_json_on_stdout_has_the_promised_keys(monkeypatch, tmp_path):
    """With methods of known duration: 20, 10, 1 and 0.25 ms per fit-step, twice as fast on small tokens."""
    by_name = {
        throughput.SEQUENTIAL: 0.02,
        throughput.PRECOMPUTED: 0.01,
        throughput.BATCHED: 0.045,
        "jax, 90 fits": 0.0225,
    }

    def methods_of(table, counts, steps_per_call):
        pace = 2 if table.source.shape[2] == 4 else 1
        methods = {
            name: throughput.Method(fits, lambda steps, s=seconds: steps * s / pace, 3.0)
            for (name, seconds), fits in zip(by_name.items(), (1, 1, 45, 90), strict=True)
        }
        return methods, "jax, 90 fits"

    monkeypatch.setattr(throughput, "methods_of", methods_of)
    monkeypatch.setattr(throughput, "timed", lambda run, steps: run(steps))
    monkeypatch.setattr(throughput.cost, "machine_rate", lambda budget: 1e9)
    picture, out = tmp_path / "speed.svg", io.StringIO()
    sizes = ["--patches", "4", "--channels", "8", "--small-patches", "3", "--small-channels", "4"]
    with redirect_stdout(out):
        throughput.main([*sizes, "--json", "-", "--plot", str(picture)])
    document = json.loads(out.getvalue())
    for part in (document, document["small_tokens"]):
        assert part["speedup_vs_torch"] == pytest.approx(80)
        assert part["speedup_vs_torch_precomputed"] == pytest.approx(40)
        assert part["speedup_vs_torch_batched"] == pytest.approx(4)
        assert part["compile_seconds"]["jax, 90 fits"] == 3
    # 8*64*4*8*3 + 6*64*3*8*64 = 638,976 operations at 1 GFLOP/s, and 8*64*3*4*3 + 6*64*3*4*64 = 313,344.
    assert document["ratio_to_floor"] == pytest.approx(0.25 / 0.638976)
    assert document["small_tokens"]["ratio_to_floor"] == pytest.approx(0.125 / 0.313344)
    assert document["ms_per_fit_step"][throughput.SEQUENTIAL] == pytest.approx(20)
    assert document["versions"]["torch"] == torch.__version__
    assert picture.read_text().count("<!-- floor -->") == 1  # matplotlib's comment on the legend's entry


@pytest.mark.slow
def test_the_quick_form_prints_one_document():
    script = Path(throughput.__file__)
    done = subprocess.run(
        [sys.executable, script, "--quick", "--json", "-"], cwd=script.parents[1], capture_output=True, check=True
    )
    document = json.loads(done.stdout)
    assert document["speedup_vs_torch"] > document["speedup_vs_torch_precomputed"] > 1


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--fits", "50"], "whole seeds of 45, not 50"),
        (["--json", "no/such/folder/x.json"], "no folder"),
        (["--rounds", "0"], "at least 1"),
        (["--quik"], "did you mean --quick?"),
    ],
)
def test_mistakes_are_told_before_anything_is_measured(args, says):
    with pytest.raises(UserError, match=says.replace("?", r"\?")):
        throughput.main(args)


def test_quick_changes_defaults_and_explicit_values_win():
    options = throughput.parse(["--quick", "--rounds", "7"])
    assert (options.fits, options.rounds, options.seconds) == ((), 7, 0.2)
