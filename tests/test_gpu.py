"""The programs of every arm in the forms of a GPU, lowered for CUDA. `make gpu-check` compiles them as well."""

import jax
import numpy as np
import pytest

from soopf_jax import plugins
from soopf_jax.experiments.arms import make_arms
from soopf_jax.fitting import footprint
from soopf_jax.fitting.devices import mesh_for
from soopf_jax.fitting.group import make_group
from soopf_jax.fitting.prepare import dims_of, prepared_shapes, table_of_zeros
from soopf_jax.fitting.program import Training
from soopf_jax.fitting.protocol import Protocol, leave_one_cell_out
from soopf_jax.grid import Grid
from soopf_jax.runtime import platforms

GRID = Grid.of(["a", "b", "c"], ["x", "y", "z"])
TABLE = table_of_zeros(np.repeat(np.arange(9, dtype=np.int32), 6), GRID, patches=4, channels=8)
PROBES = [name for name in plugins.READOUTS if name.split("-")[0] in ("mlp", "attention", "oracle")]
ARMS = [
    *(("soopf", name, "core") for name in plugins.ASSIGNMENTS if name != "native"),
    ("soopf", "learned", "enhanced"),
    ("dense", "learned", "core"),
    ("bilinear", "learned", "core"),
    ("bilinear-positive", "factorial", "core"),
    *((name, "native", "native") for name in PROBES),
]


def lowered(arm, precision, names):
    """The StableHLO of an arm's programs for CUDA, by name. Nothing is computed or compiled."""
    protocol = Protocol(seeds=2, restarts=1, steps=7, matmul_precision=precision)
    readout, assignment, objective = arm
    made = make_arms(readout, [assignment], objective)[0]
    spec = Training(made, GRID, dims_of(TABLE, protocol), protocol, mesh_for(1, 1))
    fits = leave_one_cell_out(GRID, protocol)
    group = jax.eval_shape(lambda: make_group(TABLE, made, protocol, fits, np.arange(18).reshape(2, 9)))
    calls = footprint.calls(spec, prepared_shapes(TABLE, made.readout, spec.mesh), group, TABLE.region.shape)
    traced = {name: calls[name].program.jitted.trace(*calls[name].arguments) for name in names if name in calls}
    return {name: stages.lower(lowering_platforms=("cuda",)).as_text() for name, stages in traced.items()}


@pytest.fixture
def gpu_mesh(monkeypatch):
    """Programs are traced as for a GPU. No other test has this protocol, so nothing traced here is used elsewhere."""
    monkeypatch.setattr(platforms, "platform_of", lambda mesh: "gpu")


def test_every_part_of_the_project_is_in_some_arm():
    used = [set(column) for column in zip(*ARMS, strict=True)]
    assert used == [set(plugins.READOUTS), set(plugins.ASSIGNMENTS), set(plugins.OBJECTIVES)]


@pytest.mark.parametrize("arm", ARMS, ids="/".join)
def test_training_and_evaluation_lower_for_cuda(arm, gpu_mesh):
    for text in lowered(arm, "highest", ["advance", "evaluate"]).values():
        assert "callback" not in text, "nothing calls back to the host"
        assert "HIGHEST" in text or arm[0] in PROBES
        assert "DEFAULT" not in text.replace("DEFAULT_", "")


def test_all_programs_lower_for_cuda_and_half_precision_tokens_stay_so(gpu_mesh):
    names = ["init", "advance", "router_state", "router_sums"]
    found = lowered(("soopf", "learned", "core"), "default", names)
    assert list(found) == names
    assert "HIGHEST" not in "".join(found.values())
    assert found["advance"].count("tensor<54x4x8xf16>") >= 2, "source and delta as they are stored"
    assert "tensor<54x4x8xf32>" not in found["advance"]
