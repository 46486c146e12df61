"""Programs that are compiled once per process for the same static parts and the same shapes.

A program is a function `f(spec, *arrays)`. Its `spec` is hashable and names the mesh that it runs on. The first call
compiles the program for the shapes of its arrays. Every later call with the same spec and shapes uses the compiled
program, whichever arm, run or lane it comes from. Each device gets its share of the fits; fits do not communicate.
"""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import PyTree

from soopf_jax.fitting import devices
from soopf_jax.runtime.platforms import tracing_for
from soopf_jax.runtime.progress import phase

Spec = Any
"""What a program depends on besides the shapes of its arrays: a hashable NamedTuple with a field `mesh`."""
Layout = Any
"""How an argument or a result lies on the mesh: a PartitionSpec, or a tree with one for each part."""

MAPS, MOST_MAPS = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
"""Where Linux lists the memory maps of this process, a line for each, and how many a process may have."""
_compiled: dict[Any, jax.stages.Compiled] = {}
"""Every program of this process, by function, spec and shapes."""
_donors: dict[Any, jax.stages.Compiled] = {}
"""Among programs that differ only in their lane, the one that was compiled first. The others are copied from it."""
_locks: defaultdict[Any, Lock] = defaultdict(Lock)


class Program:
    """A function of (spec, arrays) with its compiled forms. Make one with the decorator `program`."""

    def __init__(self, function: Callable[..., Any], takes: tuple[Layout, ...], gives: Layout, **options: Any) -> None:
        self._function, self._takes, self._gives = function, takes, gives
        self._once = options.pop("once", False)
        self.__doc__, self.__name__ = function.__doc__, function.__name__

        def traced(spec: Spec, *args: Any) -> Any:
            return self._spread(spec, *args)

        traced.__name__ = traced.__qualname__ = function.__name__  # what profiles and XLA's dumps show
        self.jitted = jax.jit(traced, static_argnums=0, **options)

    def __call__(self, spec: Spec, *args: Any) -> Any:
        """Run the program. It is compiled if it has not been yet."""
        args = jax.tree.map(_array, args)
        return self.compiled(spec, *args)(*args)

    def compiled(self, spec: Spec, *args: PyTree) -> jax.stages.Compiled:
        """The program for arrays of these shapes.

        Args:
            spec: The static parts.
            *args: Arrays, or `jax.ShapeDtypeStruct`s of them.

        Returns:
            The compiled program, which takes the arrays without the spec.
        """
        shapes = tuple((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(args))
        key = self, spec, jax.tree.structure(args), shapes
        threads = devices.threads_of_lane(spec.mesh)
        like = self, spec._replace(mesh=None), jax.tree.structure(args), shapes, threads
        with _locks[like if threads else key]:
            if key not in _compiled:
                donor = _donors.get(like) if threads else None
                copy = devices.copy_program(donor, spec.mesh) if donor is not None else None
                _compiled[key] = copy or self._compile(spec, args)
                _donors.setdefault(like, _compiled[key])
        return _compiled[key]

    def shapes(self, spec: Spec, *args: PyTree) -> PyTree:
        """The shapes of the program's results for arguments of these shapes. Nothing is compiled."""
        found = self._traced(spec, args).out_info
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), found)

    def _compile(self, spec: Spec, args: PyTree) -> jax.stages.Compiled:
        options = devices.compiler_options(spec.mesh, self._once)
        with phase(f"compiling {self.__name__}"):
            return self._traced(spec, args).lower().compile(compiler_options=options)

    def _traced(self, spec: Spec, args: PyTree) -> jax.stages.Traced:
        """The program for arrays of these shapes as JAX's expression. JAX keeps it, so it is traced once."""

        def struct(leaf: Any, where: PartitionSpec) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(spec.mesh, where))

        return self.jitted.trace(spec, *jax.tree.map(struct, args, jax.tree.broadcast(self._takes, args)))

    def _spread(self, spec: Spec, *args: Any) -> Any:
        """The function on each device's share of the fits. It may ask for the platform that it is traced for."""

        def on_one_device(*args: Any) -> Any:
            with tracing_for(spec.mesh):
                return self._function(spec, *args)

        takes, gives = self._takes, self._gives
        return jax.shard_map(on_one_device, mesh=spec.mesh, in_specs=takes, out_specs=gives, check_vma=False)(*args)


def program(*takes: Layout, gives: Layout, **options: Any) -> Callable[[Callable[..., Any]], Program]:
    """Decorate a function of (spec, *arrays) to be compiled once.

    Args:
        *takes: How each array argument lies on the mesh.
        gives: How the result lies on the mesh.
        **options: `once=True` is for a program that runs only once per fit; the compiler then spends less time on it.
            All other options go to `jax.jit`, whose argument numbers count the spec as 0.
    """
    return lambda function: Program(function, takes, gives, **options)


def make_room() -> None:
    """Drop all programs if they take half of the memory maps that Linux lets a process have.

    A program for a CPU takes about 200 of the usual 65,530. Without a free one, LLVM ends the process.
    """
    if MOST_MAPS.exists() and 2 * MAPS.read_bytes().count(b"\n") > int(MOST_MAPS.read_text()):
        forget()


def forget() -> None:
    """Drop every compiled program of this process, JAX's own included."""
    _compiled.clear()
    _donors.clear()
    jax.clear_caches()


def _array(leaf: Any) -> Any:
    """Turn a Python number into an array of its 32-bit type."""
    return leaf if hasattr(leaf, "dtype") else np.asarray(leaf, jax.dtypes.canonicalize_dtype(np.asarray(leaf).dtype))
