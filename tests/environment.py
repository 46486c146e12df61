"""What all processes of the tests share. Import it before JAX, which reads these variables once.

Programs are compiled without LLVM's optimisation and by XLA's older emitters, which takes a third of the time; tests
compile far more than they compute. `XLA_FLAGS= make test` tests the programs as users run them, and a test gives a
process of its own the users' options with `XLA_FLAGS=""`.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

_QUICKLY_COMPILED = (
    *("--xla_backend_optimization_level=0", "--xla_cpu_use_fusion_emitters=false"),
    "--xla_cpu_parallel_codegen_split_count=1",  # a worker has one core
)
os.environ.setdefault("XLA_FLAGS", " ".join(_QUICKLY_COMPILED))
# The folder outlives the session, so that the next one is quick.
_CACHE = Path(tempfile.gettempdir()) / f"soopf_jax-tests-{os.getuid()}" / "compiled"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
"""The cores of the whole test run, of which a worker has one. Empty where a process cannot choose its cores."""


def pin_worker() -> None:
    """Give each of pytest-xdist's workers one core: the threads of two workers would wait for each other."""
    worker, workers = os.environ.get("PYTEST_XDIST_WORKER"), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
    if worker and 1 < workers <= len(CORES):
        os.sched_setaffinity(0, {CORES[int(worker.removeprefix("gw"))]})


@contextmanager
def on_cores(count: int) -> Iterator[None]:
    """Processes that are started now run on so many cores."""
    own = os.sched_getaffinity(0) if CORES else set()
    if CORES:
        os.sched_setaffinity(0, CORES[:count])
    yield
    if CORES:
        os.sched_setaffinity(0, own)


@contextmanager
def optimised() -> Iterator[None]:
    """Compile two programs with some optimisation: for tests that train for hundreds of steps, or that check rounding.

    A program that was compiled before in this process stays as it is.
    """
    from soopf_jax.fitting import compiled, devices

    def compile_(program: Any, spec: Any, args: Any) -> Any:
        level = {"xla_backend_optimization_level": "1"} if program.__name__ in ("prepare_block", "advance") else {}
        options = devices.compiler_options(spec.mesh, once=True) | level
        return program._traced(spec, args).lower().compile(compiler_options=options)

    with mock.patch.object(compiled.Program, "_compile", compile_):
        yield
