"""Energies, losses and gradients of the carriers and probes against plain PyTorch (`torch_readouts.py`).

Every size differs from every other, so that no two axes can be confused. Parameters are those of `init` moved by noise,
so that biases and their gradients count. None of these readouts has a posterior to temper: tau must change nothing.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from soopf_jax.fitting import objectives
from soopf_jax.fitting.prepare import PreparedTable, prepare_table
from soopf_jax.grid import Grid
from soopf_jax.plugins import ASSIGNMENTS, OBJECTIVES, READOUTS, resolve
from soopf_jax.readouts.bilinear import scaled_softplus
from soopf_jax.types import Dims, FeatureTable
from tests import torch_readouts as paper
from tests.environment import optimised

GRID = Grid.of(("sky", "ground"), ("hue", "invert", "blur"))
DIMS = Dims(patches=8, channels=11, supports=2, operations=3, router_width=5, hidden=7)
PAIRS_PER_CELL = 4
TOLERANCE = 1e-5
"""Relative to the largest entry; float32 against float64."""
ARMS = [
    ("dense", "factorial", "core"),
    ("dense", "learned", "core"),
    ("bilinear", "factorial", "core"),
    ("bilinear", "learned", "core"),
    ("bilinear-positive", "factorial", "core"),
    ("mlp", "native", "native"),
    ("attention", "native", "native"),
    ("oracle", "native", "native"),
    ("mlp-scaled", "native", "native"),
]


def random_table() -> FeatureTable:
    """Random tokens and fractional regions; in the first five cells one pair has an awkward delta."""
    stream = np.random.default_rng(0)
    cell = np.tile(np.arange(GRID.n_cells), PAIRS_PER_CELL).astype(np.int32)
    source, delta = stream.normal(size=(2, len(cell), DIMS.patches, DIMS.channels)).astype(np.float32)
    region = stream.dirichlet((0.3, 0.3, 0.3), size=(len(cell), DIMS.patches))[..., :2].astype(np.float32)
    sparse, flat, minute, huge, zero = range(5)
    delta[sparse, 2:] = 0
    delta[flat] = 1 + 0.01 * delta[flat]  # large tokens of small variance: here LN's epsilon counts
    delta[minute] *= 1e-4
    delta[huge] *= 1e4
    delta[zero] = 0
    return FeatureTable(source, delta, region, cell, GRID, {})


TABLE = random_table()
RAW_PROBES = ("mlp", "attention", "oracle")


def table_of(name: str) -> FeatureTable:
    """The table for a readout. A probe that sees how strong a change is gets a huge one that its softmax survives."""
    strength = np.where(np.arange(len(TABLE.cell)) == 3, 1e-3, 1.0)[:, None, None] if name in RAW_PROBES else 1.0
    return TABLE._replace(delta=(strength * TABLE.delta).astype(np.float32))


@pytest.fixture(scope="module", autouse=True)
def one_torch_thread():
    """The reference's products are too small to share out."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def some_parameters(readout: str, assignment: str) -> dict:
    """A fit's parameters, away from the zeros of its initial biases."""
    key = jax.random.key(1)
    initial = {
        "readout": jax.jit(resolve("readout", READOUTS, readout).init, static_argnums=1)(key, DIMS),
        "assignment": resolve("assignment", ASSIGNMENTS, assignment).init(key, GRID),
    }
    stream = np.random.default_rng(2)
    return jax.tree.map(lambda leaf: leaf + stream.normal(scale=0.3, size=leaf.shape).astype(np.float32), initial)


@functools.cache
def prepared(name: str) -> PreparedTable:
    with optimised():  # unoptimised sums of LN round too much for the tolerance
        return prepare_table(table_of(name), resolve("readout", READOUTS, name))


def in_torch(params: dict) -> dict:
    return jax.tree.map(lambda leaf: torch.tensor(np.asarray(leaf), dtype=torch.float64, requires_grad=True), params)


def pairs_in_torch(name: str) -> list[paper.Pair]:
    table = table_of(name)
    columns = (torch.tensor(column, dtype=torch.float64) for column in (table.source, table.delta, table.region))
    return [
        paper.Pair(*tokens, *map(int, GRID.axes(cell)))
        for *tokens, cell in zip(*columns, TABLE.cell.tolist(), strict=True)
    ]


def assert_equal(ours: object, theirs: torch.Tensor, what: str) -> None:
    expected = theirs.detach().numpy()
    largest = np.abs(expected).max()
    np.testing.assert_allclose(np.asarray(ours), expected, rtol=0, atol=TOLERANCE * largest, err_msg=what)


@pytest.mark.parametrize("name", paper.READOUTS)
def test_energies_and_masks(name):
    readout = resolve("readout", READOUTS, name)
    params = some_parameters(name, "factorial")["readout"]
    batched = jax.jit(jax.vmap(readout.apply, in_axes=(None, 0, None)))
    ours = batched(params, prepared(name).inputs, jnp.float32(0.5))
    parameters = in_torch(params)
    for index, pair in enumerate(pairs_in_torch(name)):
        theirs = paper.READOUTS[name](parameters, pair)
        assert_equal(ours.energy[index], theirs.energy, f"energy of pair {index}")
        assert (ours.masks is None) == (theirs.masks is None)
        if theirs.masks is not None:
            assert_equal(ours.masks[index], theirs.masks, f"masks of pair {index}")


def our_loss(name: str, assignment: str, objective: str) -> Callable:
    """(params, held-out cell, tau) -> the arm's loss of the whole table."""
    readout, weights = resolve("readout", READOUTS, name), resolve("objective", OBJECTIVES, objective)
    matrix = resolve("assignment", ASSIGNMENTS, assignment).matrix
    table = prepared(name)

    def loss(params: dict, held_out: jax.Array, tau: jax.Array) -> jax.Array:
        output = jax.vmap(readout.apply, in_axes=(None, 0, None))(params["readout"], table.inputs, tau)
        Q = matrix(params["assignment"], held_out, GRID)
        return objectives.total_loss(weights, objectives.outcome(output, Q, table.cell, held_out, GRID))

    return loss


def their_loss(name: str, assignment: str, parameters: dict, held_out: int) -> torch.Tensor:
    """The same of the pairs of observed cells, with labels and rows of Q for these alone."""
    observed = [c for c in range(GRID.n_cells) if c != held_out]
    kept = [index for index, cell in enumerate(TABLE.cell.tolist()) if cell != held_out]
    pairs = [pair for index, pair in enumerate(pairs_in_torch(name)) if index in kept]
    outputs = [paper.READOUTS[name](parameters["readout"], pair) for pair in pairs]
    if assignment == "native":
        return paper.native_loss(outputs, pairs)
    if assignment == "learned":
        Q = torch.nn.functional.softmax(parameters["assignment"]["logits"][observed], dim=1)
    else:
        Q = torch.eye(GRID.n_cells, dtype=torch.float64)[observed]
    return paper.core_loss(outputs, Q, [observed.index(TABLE.cell[index]) for index in kept])


@pytest.mark.parametrize(("name", "assignment", "objective"), ARMS)
def test_losses_and_gradients(name, assignment, objective):
    params = some_parameters(name, assignment)
    value_and_gradient = jax.jit(jax.value_and_grad(our_loss(name, assignment, objective)))
    for held_out, tau in ((-1, 2.0), (5, 0.5)):
        loss, gradients = value_and_gradient(params, jnp.int32(held_out), jnp.float32(tau))
        parameters = in_torch(params)
        expected = their_loss(name, assignment, parameters, held_out)
        expected.backward()
        assert float(loss) == pytest.approx(expected.item(), rel=TOLERANCE)
        for path, gradient in jax.tree_util.tree_leaves_with_path(gradients):
            leaf = parameters
            for step in path:
                leaf = leaf[step.key]
            assert_equal(gradient, leaf.grad, f"{jax.tree_util.keystr(path)}, held out {held_out}, tau {tau}")


@pytest.mark.parametrize("level", [20.0, 0.0, -14.0, -16.0, -60.0, -120.0, -300.0])
def test_bilinear_shares_and_their_gradients_stay_right_where_all_energies_die_away(level):
    """sh = softplus(x) / sum of softplus(x), in float64; by hand a float32 softplus is 0 from x = -104 on."""
    x = level + np.random.default_rng(1).normal(size=(2, 3))
    weight = np.arange(6.0).reshape(2, 3)

    wanted = torch.tensor(x, requires_grad=True)
    energy = torch.nn.functional.softplus(wanted, threshold=1e3)
    share = energy / energy.sum()
    (share * torch.tensor(weight)).sum().backward()

    def weighted(x):
        share = objectives.normalised_energy(scaled_softplus(x))
        return jnp.sum(share * weight.ravel()), share

    gradient, ours = jax.grad(weighted, has_aux=True)(jnp.float32(x))
    np.testing.assert_allclose(ours, share.detach().numpy().ravel(), rtol=3e-5)
    assert wanted.grad.abs().max() > 1e-2
    np.testing.assert_allclose(gradient, wanted.grad.numpy(), atol=3e-5)
