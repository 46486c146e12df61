"""Programs are compiled once per process for the same arm, sizes and protocol; counted by JAX's own events."""

import gc
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from soopf_jax.experiments.held_out import benchmark, make_arms
from soopf_jax.fitting import compiled
from soopf_jax.fitting.compiled import program
from soopf_jax.fitting.devices import EVERYWHERE, mesh_for
from soopf_jax.fitting.protocol import Protocol
from soopf_jax.fitting.train import Session
from tests.planted import planted_table
from tests.programs import compilations

PROTOCOL = Protocol(seeds=2, restarts=1, steps=20)


class Spec(NamedTuple):
    factor: float
    mesh: Any


def run(assignments, protocol=PROTOCOL, seed=0, session=None):
    return benchmark(
        planted_table(10, seed=seed), assignments=assignments, protocol=protocol, session=session or Session()
    )


def test_a_second_benchmark_in_the_same_process_compiles_nothing():
    run(["factorial", "learned"])
    with compilations() as found:
        run(["factorial", "learned"], seed=1)
    assert not found


PER_ARM = {"init", "advance", "evaluate", "router_state", "router_sums"}


def test_what_lies_outside_programs_is_no_reason_to_compile_them_again():
    run(["learned"])
    with compilations() as found:
        run(["learned"], Protocol(seeds=3, restarts=1, steps=20, ties="last"))
    assert not PER_ARM & set(found)
    with compilations() as found:
        run(["learned"], Protocol(seeds=2, restarts=1, steps=13, source_scale=2.0))
    assert PER_ARM & set(found) == {"advance"}, "the minibatches of all steps have another shape"


@pytest.mark.parametrize(
    "read",
    [
        *({"learning_rate": 0.1}, {"tau_start": 1.0}, {"tau_end": 0.25}, {"q_scale": 3.0}),
        *({"alignment": "soft"}, {"matmul_precision": "high"}),
    ],
)
def test_what_programs_read_names_them(read):
    assert Protocol(seeds=2, **read).of_programs == Protocol(**read).of_programs != Protocol().of_programs


def test_another_arm_compiles_its_own_programs_but_shares_the_prepared_table():
    compiled.forget()
    with compilations() as found:
        run(["factorial"])
    assert {"init", "advance", "evaluate", "prepare_block", "empty_table", "router_sums"} <= set(found)
    with compilations() as found:
        run(["learned"])
    assert "prepare_block" not in found, "the table is the same"
    assert found["advance"] > 0


@pytest.mark.skipif(not compiled.MAPS.exists(), reason="only Linux lists memory maps")
def test_programs_are_dropped_before_their_memory_maps_run_out(tmp_path, monkeypatch):
    def maps():
        return len(compiled.MAPS.read_text().splitlines())

    run(["learned"])
    full, most = maps(), tmp_path / "most"
    monkeypatch.setattr(compiled, "MOST_MAPS", most)
    most.write_text(f"{3 * full}\n")
    with compilations() as found:
        run(["learned"])
    assert not found, "there is room for as many again"
    most.write_text(f"{full}\n")
    compiled.make_room()
    gc.collect()
    assert maps() < full - 500
    with compilations() as found:
        run(["learned"])
    assert found["advance"] > 0


def test_the_checkpoints_of_a_group_compile_one_program(tmp_path):
    session = Session(tmp_path, checkpoint_seconds=0.0, lanes=1)
    with compilations() as found:
        run(["learned"], Protocol(seeds=1, restarts=1, steps=12), session=session)
    assert found["_snapshot"] == 1


def test_arms_are_equal_where_their_parts_are():
    a, b = (make_arms("soopf", ["factorial"], weights={"mask": 0.5})[0] for _ in range(2))
    (other,) = make_arms("soopf", ["factorial"], weights={"mask": 0.25})
    assert a == b
    assert hash(a) == hash(b)
    assert a != other


def test_a_program_is_named_and_gives_what_its_function_gives():
    calls = []

    @program(EVERYWHERE, gives=EVERYWHERE)
    def twice(spec, x):
        calls.append(spec)
        return spec.factor * x

    spec = Spec(2.0, mesh_for(1, 1))
    x = np.arange(3.0, dtype=np.float32)
    np.testing.assert_array_equal(twice(spec, x), 2 * x)
    traced = len(calls)
    np.testing.assert_array_equal(twice(spec, 2 * x), 4 * x)
    assert len(calls) == traced, "the same shapes are not traced again"
    np.testing.assert_array_equal(twice(spec, np.ones(5, np.float32)), np.full(5, 2.0))
    assert len(calls) > traced
    assert "jit_twice" in twice.compiled(spec, x).as_text()
    assert twice.shapes(spec, x).shape == (3,)


def test_python_numbers_are_arrays_of_32_bits():
    @program(EVERYWHERE, gives=EVERYWHERE)
    def successor(spec, x):
        return x + 1

    found = successor(Spec(0.0, mesh_for(1, 1)), 41)
    assert (int(found), found.dtype) == (42, jax.numpy.int32)
