"""A program of its own, for processes with other devices than the tests': train a little and say who did what.

Run as `python -m tests.sharded_training OUT.npz`; with JAX_NUM_PROCESSES set, one of several processes.
"""

import os
import sys

import jax
import numpy as np
from jax.experimental import multihost_utils

from soopf_jax.fitting import assignments, devices, objectives
from soopf_jax.fitting.arm import Arm
from soopf_jax.fitting.group import LAYOUT_OF_GROUP, make_group
from soopf_jax.fitting.prepare import prepare_table
from soopf_jax.fitting.program import advance, evaluate, init
from soopf_jax.fitting.protocol import Protocol, leave_one_cell_out
from soopf_jax.fitting.train import Job, groups_and_meshes
from soopf_jax.readouts.soopf import READOUT
from soopf_jax.runtime.arrays import npz_bytes
from tests.planted import random_table

PROTOCOL = Protocol(seeds=3, restarts=1, steps=50)
ARM = Arm(READOUT, assignments.LEARNED, objectives.CORE)


def leaves(name: str, tree) -> dict[str, np.ndarray]:
    """A parameter tree, whole on the host, by path."""
    found = jax.tree_util.tree_leaves_with_path(devices.to_host(tree))
    return {f"{name}{jax.tree_util.keystr(path)}": np.asarray(leaf) for path, leaf in found}


def main(out: str) -> None:
    """Three seeds of nine fits, all at once."""
    if "JAX_NUM_PROCESSES" in os.environ:
        devices.join_processes()
    table = random_table()
    fits = leave_one_cell_out(table.grid, PROTOCOL)
    prepared = prepare_table(table, READOUT)
    (rows,), (mesh,) = groups_and_meshes(fits, len(fits.seed), 1)
    spec = Job(ARM, table, prepared, PROTOCOL, fits).training(mesh)
    host_group = make_group(table, ARM, PROTOCOL, fits, rows.row)
    group = devices.put(host_group, mesh, LAYOUT_OF_GROUP)
    state = init(spec, group)
    columns = leaves("before", state.params)
    compiled = advance.compiled(spec, state, prepared, group, np.int32(0), np.int32(0))
    state, loss = compiled(state, prepared, group, np.int32(0), np.int32(PROTOCOL.steps))
    columns |= leaves("after", state.params) | leaves("stats", evaluate(spec, state, prepared, group))
    weights = state.params["readout"]["hidden"]["weight"]
    shards = np.array([[shard.device.id, *shard.data.shape[:2]] for shard in weights.addressable_shards])
    if jax.process_count() > 1:
        shards = np.asarray(multihost_utils.process_allgather(shards)).reshape(-1, 3)
    columns |= {
        "loss": devices.to_host(loss),
        "batches": host_group.batches,
        "role": host_group.role,
        "real": rows.real,
        "shards": shards,
        "mesh": np.array(mesh.devices.shape),
        "text": np.array(compiled.as_text()),
    }
    if devices.is_main():
        with open(out, "wb") as file:
            file.write(npz_bytes(columns))


if __name__ == "__main__":
    main(sys.argv[1])
