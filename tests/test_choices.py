"""Choices that the paper leaves open, each against a plain NumPy version of what it says."""

import jax
import jax.numpy as jnp
import jsonschema
import numpy as np
import pytest

from soopf_jax.errors import UserError
from soopf_jax.experiments.held_out import benchmark
from soopf_jax.experiments.results import schema
from soopf_jax.fitting import assignments, objectives
from soopf_jax.fitting.arm import Arm
from soopf_jax.fitting.devices import mesh_for
from soopf_jax.fitting.group import make_group
from soopf_jax.fitting.prepare import SourceTransform, dims_of, prepare_table, source_rms, source_transform
from soopf_jax.fitting.program import Training, evaluate, init
from soopf_jax.fitting.protocol import OPTIMISATION, Protocol, leave_one_cell_out, roles
from soopf_jax.fitting.router_stats import router_state, state_of_masks
from soopf_jax.fitting.stats import FitOutcome, fit_stats
from soopf_jax.plugins import READOUTS, resolve
from soopf_jax.readouts.soopf import READOUT
from soopf_jax.report import summary
from tests.planted import GRID, planted_table, random_table


def training(protocol, table, readout=READOUT):
    arm = Arm(readout, assignments.FACTORIAL, objectives.CORE)
    return Training(arm, GRID, dims_of(table, protocol), protocol, mesh_for(1, 1))


def group_of(spec, table):
    fits = leave_one_cell_out(GRID, spec.protocol)
    return make_group(table, spec.arm, spec.protocol, fits, np.arange(len(fits.seed))[None])


def initial(readout, dims):
    return jax.device_get(jax.jit(readout.init, static_argnums=1)(jax.random.key(0), dims))


def outputs_of(readout, state, fit, inputs):
    """What one fit gives for every pair, at the last temperature."""
    params = jax.tree.map(lambda leaf: np.asarray(leaf)[0, fit], state.params["readout"])
    return jax.jit(jax.vmap(readout.apply, in_axes=(None, 0, None)))(params, inputs, np.float32(0.5))


# --------------------------------------------------------------------------------------------- router


@pytest.mark.parametrize("readout", ["soopf", "dense"])
@pytest.mark.parametrize(("asked", "expected"), [(0.0, 64**-0.5), (0.02, 0.02), (1.0, 1.0)])
def test_the_sd_of_the_queries(readout, asked, expected):
    dims = dims_of(random_table(), Protocol(query_sd=asked))._replace(supports=400)
    params = initial(resolve("readout", READOUTS, readout), dims)
    assert float(np.std(params["router"]["q"])) == pytest.approx(expected, rel=0.02)  # of 400 x 64 draws


def test_queries_of_another_sd_are_the_same_draws():
    dims = dims_of(random_table(), Protocol())
    one, other = (initial(READOUT, dims._replace(query_sd=sd)) for sd in (None, 0.02))
    np.testing.assert_allclose(other["router"]["q"], 0.02 * 8 * one["router"]["q"], rtol=1e-5)
    np.testing.assert_array_equal(other["router"]["W_z"], one["router"]["W_z"])


def test_the_rms_is_that_of_the_first_seeds_optimisation_pairs():
    table = random_table(pairs_per_cell=20)
    chosen = roles(table.cell, GRID, 0) == OPTIMISATION
    table.source[~chosen] *= 1e3  # must not matter
    expected = np.sqrt(np.mean(table.source[chosen].astype(float) ** 2))
    assert source_rms(table) == pytest.approx(expected, rel=1e-12)
    transform = source_transform(table, Protocol(router_input="rms", source_scale=0.5))
    assert transform.factor == pytest.approx(0.5 / expected, rel=1e-12)
    assert not transform.layernorm
    assert source_transform(table, Protocol(source_scale=0.5)) == SourceTransform(0.5)


def test_rms_makes_the_router_blind_to_the_encoders_scale():
    table = random_table()
    protocol = Protocol(router_input="rms")
    larger = table._replace(source=(8 * table.source).astype(np.float32))
    one, other = (prepare_table(t, READOUT, source_transform(t, protocol)).inputs.source for t in (table, larger))
    np.testing.assert_allclose(one, other, rtol=1e-6)
    assert np.sqrt(np.mean(np.square(one))) == pytest.approx(1, rel=0.05)


def test_layernorm_normalises_every_source_token_and_nothing_else():
    table = random_table()
    protocol = Protocol(router_input="layernorm", source_scale=2.0)
    found = prepare_table(table, READOUT, source_transform(table, protocol)).inputs
    source = table.source.astype(float)
    centred = source - source.mean(axis=-1, keepdims=True)
    expected = 2 * centred / np.sqrt(source.var(axis=-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(found.source, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(found.content.tokens, prepare_table(table, READOUT).inputs.content.tokens)


# ------------------------------------------------------------------------------------------ alignment


@pytest.mark.parametrize("name", ["soopf", "dense"])
def test_raw_alignment_is_the_mean_of_energies_in_the_papers_scale(name):
    """E from its equation in float64: salience ||delta_n||^2, not divided by its sum."""
    readout, table = resolve("readout", READOUTS, name), planted_table(5)
    stream = np.random.default_rng(0)
    table = table._replace(delta=(table.delta * stream.uniform(0.1, 5, (len(table.cell), 1, 1))).astype(np.float32))
    spec = training(Protocol(seeds=1, restarts=1, steps=1, alignment="raw"), table, readout)
    prepared, group = prepare_table(table, readout), group_of(spec, table)
    state = init(spec, group)
    stats = jax.device_get(evaluate(spec, state, prepared, group))
    role, fit = roles(table.cell, GRID, 0), 4
    outputs = outputs_of(readout, state, fit, prepared.inputs)
    change = np.square(table.delta.astype(float)).sum(axis=(1, 2))
    energy = np.asarray(outputs.energy, float) * change[:, None, None]
    support, _ = GRID.axes(table.cell)
    held_out = group.held_out[0, fit]
    for value in range(3):
        members = (support == value) & (role == OPTIMISATION) & (table.cell != held_out)
        expected = energy[members].sum(axis=2).mean(axis=0)
        np.testing.assert_allclose(stats.c_sup[0, fit, value], expected, rtol=1e-4)


def test_raw_alignment_lets_strong_edits_decide_where_soft_counts_pairs():
    """By hand: of ten pairs of cell 0, nine weak ones have their energy in slot 0, a strong one in slot 3."""
    cell, role = jnp.zeros(10, int), jnp.full(10, OPTIMISATION)
    share = jax.nn.one_hot(jnp.array([0] * 9 + [3]), 9)
    outcome = FitOutcome(share, jnp.array([1.0] * 9 + [100.0]), jnp.eye(9), jnp.int32(8), jnp.bool_(True), None)
    stats = jax.jit(fit_stats, static_argnums=(3, 4, 5))
    soft, raw = (stats(outcome, cell, role, GRID, "flat-cell", alignment).c_sup[0] for alignment in ("soft", "raw"))
    np.testing.assert_allclose(soft, [0.9, 0.1, 0], rtol=1e-6)
    np.testing.assert_allclose(raw, [0.9, 10, 0], rtol=1e-6)


# -------------------------------------------------------------------------------------- router's state


def test_the_state_of_masks_by_hand():
    masks = np.array([[0.5, 0.995, 1 / 3], [0.25, 0.004, 1 / 3], [0.25, 0.001, 1 / 3]], np.float32)
    state = jax.jit(state_of_masks)(masks)
    two_slots = -(0.5 * np.log(0.5) + 0.5 * np.log(0.25)) / np.log(3)
    one_slot = -np.sum(masks[:, 1] * np.log(masks[:, 1])) / np.log(3)
    entropies = [two_slots, one_slot, 1]
    assert float(state.entropy) == pytest.approx(np.mean(entropies), rel=1e-5)
    assert float(state.saturated) == pytest.approx(1 / 3)
    assert float(state.spread) == pytest.approx((np.log(2) + np.log(995) + 0) / 3, rel=1e-5)


def test_the_state_of_routers_is_the_mean_over_pairs_of_any_number():
    table = random_table(pairs_per_cell=9)  # 81 pairs: a block of 64 and a part of one
    spec = training(Protocol(seeds=1, restarts=1, steps=1, query_sd=0.5), table)
    prepared, group = prepare_table(table, READOUT), group_of(spec, table)
    state = init(spec, group)
    found = jax.device_get(router_state(spec, state, prepared))
    for fit in (0, 8):
        masks = outputs_of(READOUT, state, fit, prepared.inputs).masks
        logs = np.log(np.asarray(masks, float))
        assert found.spread[0, fit] == pytest.approx((logs.max(axis=1) - logs.min(axis=1)).mean(), rel=1e-4)
        assert found.saturated[0, fit] == pytest.approx((np.asarray(masks).max(axis=1) > 0.99).mean(), abs=1e-6)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"router_input": "ms"}, "did you mean 'rms'"),
        ({"alignment": "rew"}, "did you mean 'raw'"),
        ({"query_sd": -1.0}, "query_sd must be 0"),
        ({"query_sd": float("nan")}, "query_sd must be 0"),
    ],
)
def test_mistakes_get_one_line(field, message):
    with pytest.raises(UserError, match=message):
        Protocol(**field)


def test_every_result_tells_the_state_of_its_routers():
    """The planted supports are read: a router starts undecided and ends decided."""
    protocol = Protocol(seeds=2, restarts=1, steps=150)
    result = benchmark(planted_table(), assignments=["factorial"], protocol=protocol)
    state = result.document["arms"][0]["router_state"]
    assert state["entropy"]["start"]["mean"] > 0.5 > state["entropy"]["end"]["mean"]
    assert state["spread"]["start"]["mean"] < state["spread"]["end"]["mean"]
    assert state["saturated"]["end"]["mean"] > 0.9
    assert "State of the router" in summary.text(result.document)
    jsonschema.validate(result.document, schema())


def test_a_readout_without_a_router_has_no_state():
    protocol = Protocol(seeds=1, restarts=1, steps=2)
    (arm,) = benchmark(planted_table(10), readout="mlp", protocol=protocol).document["arms"]
    assert arm["router_state"] is None
