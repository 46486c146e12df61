"""One contract for every readout in the table, and the checker's own teeth."""

import jax.numpy as jnp
import pytest

from soopf_jax import plugins
from soopf_jax.errors import UserError
from soopf_jax.experiments.arms import make_arms
from soopf_jax.experiments.held_out import benchmark
from soopf_jax.fitting import objectives
from soopf_jax.fitting.protocol import Protocol
from soopf_jax.readouts import soopf
from soopf_jax.testing import check_readout
from soopf_jax.types import ReadoutOutput
from tests.planted import planted_table

SOOPF = soopf.READOUT


@pytest.mark.parametrize("name", plugins.READOUTS)
def test_every_readout_keeps_the_contract(name):
    check_readout(plugins.resolve("readout", plugins.READOUTS, name))


def changed_energy(change):
    def apply(params, pair, tau):
        output = SOOPF.apply(params, pair, tau)
        return output._replace(energy=change(output.energy))

    return SOOPF._replace(apply=apply)


def unused_parameter(key, dims):
    return {**SOOPF.init(key, dims), "idle": jnp.ones(3)}


def greedy_prepare(pair):
    return SOOPF.prepare(pair)._replace(salience=pair.region[:, 0])


@pytest.mark.parametrize(
    ("readout", "complaint"),
    [
        (changed_energy(lambda e: e.T), "energy has shape"),
        (changed_energy(lambda e: e - 1), "negative"),
        (changed_energy(lambda e: e / 0), "not finite"),
        (SOOPF._replace(init=unused_parameter), "idle"),
        (SOOPF._replace(prepare=greedy_prepare), "does not name"),
        (SOOPF._replace(sees=("axes",)), "cannot see"),
    ],
)
def test_the_checker_catches(readout, complaint):
    with pytest.raises(AssertionError, match=complaint):
        check_readout(readout)


def test_probes_are_trained_and_selected_on_native_labels():
    (arm,) = make_arms("oracle")
    assert (arm.assignment_name, arm.objective_name, arm.assignment.selector) == ("native", "native", "native-joint")
    assert arm.sees == ("axes", "region", "support")
    with pytest.raises(UserError, match="native"):
        make_arms("mlp", ["factorial"])


def test_the_oracle_needs_region_maps():
    with pytest.raises(UserError, match="needs region maps"):
        benchmark(planted_table()._replace(region=None), "oracle")


@pytest.mark.parametrize("name", ["bilinear", "oracle"])
@pytest.mark.usefixtures("optimised")
def test_carriers_that_can_compose_read_a_planted_grid(name):
    assignments = None if name == "oracle" else ["factorial"]
    result = benchmark(planted_table(), name, assignments, protocol=Protocol(seeds=1, restarts=2, steps=300))
    assert result.document["arms"][0]["inj"]["mean"] >= 0.9


def test_a_readout_without_masks_has_no_mask_loss():
    output = ReadoutOutput(jnp.ones((2, 3, 3)))
    batch = objectives.outcome(output, jnp.eye(9), jnp.array([0, 1]), jnp.int32(8), planted_table().grid)
    assert objectives.mask_loss(batch) == 0.0
