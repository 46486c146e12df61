"""The trained program against the paper's equations in plain PyTorch (`torch_reference.py`), fit by fit.

Losses and gradients are those of the trainer itself: one step from a fresh optimiser leaves Adam's first moment at
(1 - 0.9) times the gradient.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from soopf_jax.fitting import objectives
from soopf_jax.fitting.arm import Arm
from soopf_jax.fitting.group import Group, make_group
from soopf_jax.fitting.prepare import PreparedTable, dims_of, prepare_table
from soopf_jax.fitting.program import FitState
from soopf_jax.fitting.protocol import ALIGNMENTS, OPTIMISATION, VALIDATION, Fits, Protocol
from soopf_jax.plugins import ASSIGNMENTS, resolve
from soopf_jax.readouts.soopf import READOUT
from soopf_jax.types import FeatureTable, ReadoutOutput
from tests import torch_reference as paper
from tests.planted import GRID
from tests.programs import BoundProgram, make_program

PROTOCOL = Protocol(seeds=2, restarts=1, steps=50, query_sd=0.0)
FITS = Fits(
    seed=np.repeat([0, 1], 5).astype(np.int32),
    held_out=np.arange(-1, 9, dtype=np.int32),
    restart=np.zeros(10, np.int32),
)
"""Every held-out cell, and -1: all nine observed. Two seeds, so that their labels and batches differ."""
FIRST, LAST = 0, PROTOCOL.steps - 1
APPLY = jax.jit(jax.vmap(READOUT.apply, in_axes=(None, 0, None)))
"""One fit's readout over many pairs."""
PAIRS_PER_CELL, PATCHES, CHANNELS = 20, 9, 12
AWKWARD = np.arange(5) * (PAIRS_PER_CELL + 1)
"""Pairs of five different cells whose delta `awkward` makes special."""


def noisy_table() -> FeatureTable:
    """Tokens that tell their region and their edit, but not without mistakes."""
    stream = np.random.default_rng(0)
    cell = np.repeat(np.arange(9), PAIRS_PER_CELL).astype(np.int32)
    support, operation = GRID.axes(cell)
    direction = np.linalg.qr(stream.normal(size=(CHANNELS, CHANNELS)))[0]
    region = np.arange(PATCHES) % 3
    source, delta = stream.normal(size=(2, len(cell), PATCHES, CHANNELS))
    source += 2 * direction[region]
    delta += 2 * (region == support[:, None])[..., None] * direction[3 + operation][:, None]
    return FeatureTable(source.astype(np.float32), delta.astype(np.float32), None, cell, GRID, {})


@pytest.fixture(scope="module")
def awkward() -> tuple[FeatureTable, PreparedTable]:
    """The same with a sparse, a flat, a minute, a huge and a zero delta."""
    table = noisy_table()
    sparse, flat, minute, huge, zero = AWKWARD
    table.delta[sparse, 2:] = 0
    table.delta[flat] = 1 + 0.01 * table.delta[flat]  # large tokens of small variance: here LN's epsilon counts
    table.delta[minute] *= 1e-4
    table.delta[huge] *= 1e4
    table.delta[zero] = 0
    return table, prepare_table(table, READOUT)


STARVED = {f"slot {slot} starved by {logits}": (slot, logits) for slot in (0, 2) for logits in (12, 25)}
"""Trained fits whose router gives one slot exp(-12) or exp(-25) of what it gave: far less than float32's precision."""


class Trained(NamedTuple):
    """An arm after its 50 steps, with what it started from."""

    assignment: str
    program: BoundProgram
    group: Group
    table: PreparedTable
    initial: dict
    final: dict

    def params(self, moment: str) -> dict:
        """Those of all fits, `initial`, `final` or one of STARVED."""
        if moment not in STARVED:
            return getattr(self, moment)
        slot, logits = STARVED[moment]
        router = self.final["readout"]["router"]
        shift = np.linalg.pinv(router["q"])[..., slot]  # <shift, q_s> = 1 for this slot and 0 for the others
        starving = {**router, "p": router["p"] - np.float32(logits) * shift[..., None, :]}
        return {**self.final, "readout": {**self.final["readout"], "router": starving}}


@pytest.fixture(scope="module", autouse=True)
def one_torch_thread():
    """The reference's products are too small to share out, and waiting threads would slow down XLA's."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module", params=["factorial", "learned", "compressed"])
def trained(request) -> Trained:
    table = noisy_table()
    arm = Arm(READOUT, resolve("assignment", ASSIGNMENTS, request.param), objectives.CORE)
    group = make_group(table, arm, PROTOCOL, FITS, np.arange(len(FITS.seed)).reshape(len(np.unique(FITS.seed)), -1))
    program = make_program(arm, GRID, dims_of(table, PROTOCOL), PROTOCOL)
    prepared = prepare_table(table, READOUT)
    state = program.init(group)
    initial = jax.tree.map(np.array, state.params)  # copied, because `advance` takes over the state's memory
    state, _ = program.advance(state, prepared, group, 0, PROTOCOL.steps)
    return Trained(request.param, program, group, prepared, initial, jax.tree.map(np.asarray, state.params))


def in_paper_notation(params: dict, held_out_label: int) -> dict[str, torch.Tensor]:
    """One fit's parameters (or gradients) under the names, shapes and precision of the reference."""
    readout, logits = params["readout"], params["assignment"].get("logits")
    named = {
        "W_z": readout["router"]["W_z"].T,
        "p": readout["router"]["p"],
        "q": readout["router"]["q"],
        "W_1": readout["hidden"]["weight"],
        "b_1": readout["hidden"]["bias"],
        "W_2": readout["operation"]["kernel"].T,
        "b_2": readout["operation"]["bias"],
    }
    if logits is not None:
        named["a"] = logits[paper.observed(held_out_label)]
    return {name: torch.tensor(np.asarray(value), dtype=torch.float64) for name, value in named.items()}


def one_fit(params: dict, seed: int, fit: int) -> dict:
    return jax.tree.map(lambda leaf: leaf[seed, fit], params)


def every_fit(group: Group):
    """(seed, fit, held-out cell, held-out label) of every fit."""
    for (seed, fit), held_out in np.ndenumerate(group.held_out):
        yield seed, fit, int(held_out), int(group.labels[seed, held_out]) if held_out >= 0 else -1


def pairs_of(table: FeatureTable, rows: np.ndarray, labels: np.ndarray) -> paper.Pairs:
    """Some rows of the table in float64, under the flat labels that a seed gives its cells."""
    source, delta = (torch.tensor(tokens[rows], dtype=torch.float64) for tokens in (table.source, table.delta))
    return paper.Pairs(source, delta, torch.tensor(labels[table.cell[rows]], dtype=torch.int64))


def assert_equal(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor], tolerance: float, where: str) -> None:
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=0, atol=tolerance, err_msg=f"{name}, {where}")


@pytest.mark.parametrize("tau", [2.0, 0.5])
@pytest.mark.parametrize("moment", ["initial", "final", *STARVED])
def test_energies_and_masks(trained, awkward, moment, tau):
    table, prepared = awkward
    pairs = pairs_of(table, np.arange(len(table.cell)), np.arange(9))
    for seed, fit, held_out, held_out_label in every_fit(trained.group):
        params = one_fit(trained.params(moment), seed, fit)
        ours = APPLY(params["readout"], prepared.inputs, jnp.float32(tau))
        parameters = in_paper_notation(params, held_out_label)
        theirs = {
            "energy": paper.energy(parameters, pairs.source, pairs.delta, tau),
            "masks": paper.masks(parameters, pairs.source),
        }
        assert_equal({"energy": ours.energy, "masks": ours.masks}, theirs, 1e-5, f"held out {held_out}")


@pytest.mark.parametrize(("moment", "step"), [("initial", FIRST), ("final", LAST), *((s, LAST) for s in STARVED)])
def test_losses_and_gradients(trained, awkward, moment, step):
    (table, prepared), tau = awkward, paper.temperature(step, PROTOCOL.steps)
    batches = trained.group.batches.copy()
    batches[..., : len(AWKWARD)] = AWKWARD  # so that cells also differ in their numbers of pairs
    group = trained.group._replace(batches=batches)
    params = jax.tree.map(jnp.array, trained.params(moment))
    fresh = FitState(params, trained.program.init(group).optimiser, jnp.ones(group.held_out.shape, bool))
    state, losses = trained.program.advance(fresh, prepared, group, step, step + 1)
    gradients = jax.tree.map(lambda moment: np.asarray(moment) / (1 - 0.9), state.optimiser[0].mu)

    for seed, fit, held_out, held_out_label in every_fit(group):
        parameters = in_paper_notation(one_fit(trained.params(moment), seed, fit), held_out_label)
        for value in parameters.values():
            value.requires_grad_()
        pairs = pairs_of(table, batches[seed, step], group.labels[seed])
        loss = paper.core_loss(parameters, trained.assignment, pairs, held_out_label, tau)
        theirs = dict(zip(parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True))
        assert float(losses[seed, fit]) == pytest.approx(loss.item(), abs=1e-5)
        ours = in_paper_notation(one_fit(gradients, seed, fit), held_out_label)
        assert_equal(ours, theirs, 1e-5, f"held out {held_out}")


def test_fifty_steps_end_at_the_same_parameters(trained):
    table, group = noisy_table(), trained.group
    for seed, fit, held_out, held_out_label in every_fit(group):
        start = in_paper_notation(one_fit(trained.initial, seed, fit), held_out_label)
        end = in_paper_notation(one_fit(trained.final, seed, fit), held_out_label)
        batches = [pairs_of(table, rows, group.labels[seed]) for rows in group.batches[seed]]
        fitted = paper.train(start, trained.assignment, batches, PROTOCOL.steps, held_out_label)
        assert_equal(end, fitted, 1e-3, f"seed {seed}, held out {held_out}")


@pytest.mark.parametrize("trained", ["learned"], indirect=True)
def test_the_held_out_row_of_a_learned_assignment_never_moves(trained):
    before, after = (params["assignment"]["logits"] for params in (trained.initial, trained.final))
    for seed, fit, held_out, held_out_label in every_fit(trained.group):
        moved = np.any(before[seed, fit] != after[seed, fit], axis=-1)
        assert moved.tolist() == [label != held_out_label for label in range(9)], f"held out {held_out}"


@pytest.mark.parametrize("held_out", range(9))
def test_nine_masked_rows_give_the_loss_of_the_papers_eight(held_out):
    stream = np.random.default_rng(held_out)
    energy = stream.gamma(0.5, size=(40, 3, 3)).astype(np.float32)
    Q = stream.dirichlet(np.full(9, 0.5), size=9).astype(np.float32)
    cell = stream.integers(9, size=40).astype(np.int32)
    batch = objectives.outcome(
        ReadoutOutput(jnp.asarray(energy)), jnp.asarray(Q), jnp.asarray(cell), jnp.int32(held_out), GRID
    )

    seen = cell != held_out
    y = [paper.observed(held_out).index(label) for label in cell[seen].tolist()]
    logits = paper.cell_logits(
        torch.tensor(energy[seen], dtype=torch.float64),
        torch.tensor(np.delete(Q, held_out, axis=0), dtype=torch.float64),
    )
    expected = torch.nn.functional.cross_entropy(logits, torch.tensor(y)).item()
    assert float(objectives.cell_loss(batch)) == pytest.approx(expected, abs=1e-5)


def test_evaluation_after_training(trained):
    table, group = noisy_table(), trained.group
    state = trained.program.init(group)._replace(params=trained.final)
    stats = jax.tree.map(np.asarray, trained.program.evaluate(state, trained.table, group))
    assert not stats.failed.any()
    for seed, fit, held_out, held_out_label in every_fit(group):
        parameters = in_paper_notation(one_fit(trained.final, seed, fit), held_out_label)
        role, labels = group.role[seed], group.labels[seed]
        validation, optimisation, held = (
            np.flatnonzero(rows) for rows in (role == VALIDATION, role == OPTIMISATION, table.cell == held_out)
        )

        pairs = pairs_of(table, validation, labels)
        accuracy = paper.flat_cell_accuracy(parameters, trained.assignment, pairs, held_out_label)
        assert stats.validation[seed, fit] == pytest.approx(accuracy, abs=1e-6)

        pairs, cell = pairs_of(table, optimisation, labels), torch.tensor(table.cell[optimisation])
        soft = ALIGNMENTS.index("soft")
        C_sup, C_op = paper.alignment_matrices(parameters, pairs, cell, held_out, normalised=True)
        np.testing.assert_allclose(stats.c_sup_by_alignment[seed, fit, soft], C_sup, rtol=0, atol=1e-5)
        np.testing.assert_allclose(stats.c_op_by_alignment[seed, fit, soft], C_op, rtol=0, atol=1e-5)
        C_sup, C_op = paper.alignment_matrices(parameters, pairs, cell, held_out, normalised=False)
        np.testing.assert_allclose(stats.c_sup[seed, fit], C_sup, rtol=1e-5)
        np.testing.assert_allclose(stats.c_op[seed, fit], C_op, rtol=1e-5)

        counts = paper.argmax_counts(parameters, pairs_of(table, held, labels))
        assert stats.test_counts[seed, fit].tolist() == counts.tolist()

        # Ours has its rows in the order of the cells, the paper's in the order of the observed labels.
        cell_of_row = np.argsort(labels)[paper.observed(held_out_label)]
        Q = paper.ASSIGNMENTS[trained.assignment](parameters, held_out_label)
        np.testing.assert_allclose(stats.q[seed, fit, cell_of_row], Q, rtol=0, atol=1e-5)
