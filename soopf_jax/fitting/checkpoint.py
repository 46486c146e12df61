"""Checkpoints of fits that are still training. Orbax writes them in a separate thread, and only the newest is kept.

All groups of fits share one thread, which we start ourselves. Orbax can also save asynchronously in threads of its
own. These wait for each other by the wall clock and by a counter that all saves of a process share. If the clock jumps,
or if two saves run at once, some of the threads never end, and then the process does not end either.

A checkpoint carries a fingerprint of its arrays. If a checkpoint cannot be read, or if its arrays are not those that
were saved, training starts again, and no wrong number results. If a checkpoint cannot be written, training goes on.
"""

import logging
import shutil
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree, UInt32

from soopf_jax.fitting import devices
from soopf_jax.runtime import dropped
from soopf_jax.runtime.hashing import digest, sha256

_THREAD = ThreadPoolExecutor(1, "checkpoints")
"""All saves and restores of this process happen here, one after another. The thread starts with the first of them."""


class Checkpoints:
    """The checkpoints of one group of fits, in one folder. Leaving its `with` block waits for the last write.

    Args:
        folder: The folder.
        seconds_between: The least time between two checkpoints.
        on_written: Gets the number of steps that a checkpoint holds as soon as it is safe.
    """

    def __init__(self, folder: Path, seconds_between: float, on_written: Callable[[int], None] | None = None) -> None:
        self._folder = folder.absolute()
        self._on_written = on_written
        self._newest: int | None = None
        self._seconds_between = seconds_between
        self._last = time.monotonic()
        self._manager: Any = None
        self._writing: Future[None] | None = None

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close()

    def due(self, seconds: float | None = None) -> bool:
        """Whether the last save is long enough ago. Every process gets the same answer.

        Args:
            seconds: How long; by default the least time between two checkpoints.
        """
        return devices.agreed(time.monotonic() - self._last >= (self._seconds_between if seconds is None else seconds))

    def save(self, step: int, tree: PyTree) -> None:
        """Save `tree`, the state after `step` steps, while training goes on.

        If there are several processes, training waits for the end of the save, because all processes must reach their
        steps and Orbax's synchronisation points in the same order.
        """
        self._finish()
        copy, found = _snapshot(tree)

        def write() -> None:
            saved = _orbax().args.StandardSave({"tree": copy, "fingerprint": found})
            self._open().save(step, args=saved)
            self._note(step)

        self._writing = _THREAD.submit(write)
        if jax.process_count() > 1:
            self._finish()
        self._last = time.monotonic()

    def keep(self, step: int, tree: PyTree) -> None:
        """Save `tree`, and wait until it is written. For a process that is about to end."""
        self._finish()
        if step != self._newest and jax.process_count() == 1:  # several processes would have to agree to end
            self.save(step, tree)
            self._finish()

    def newest_step(self) -> int | None:
        """The number of steps after which the newest checkpoint was saved; None if there is no checkpoint."""
        return _there(lambda: self._open().latest_step()) if devices.agreed(self._folder.exists()) else None

    def restore(self, step: int, like: PyTree) -> PyTree | None:
        """The tree saved after `step` steps, shaped and placed as `like`; None if it is damaged."""
        shapes = jax.tree.map(_shape, {"tree": like, "fingerprint": fingerprint(like)})
        try:
            saved = _there(lambda: self._open().restore(step, args=_orbax().args.StandardRestore(shapes)))
            if int(fingerprint(saved["tree"])) != int(saved["fingerprint"]):
                raise ValueError("the arrays are not those that were saved")
        except Exception as error:  # Orbax and TensorStore raise many kinds of exceptions for damaged files
            self._warn("read, so its fits start again", error)
            self._close()
            if devices.is_main():
                shutil.rmtree(self._folder, ignore_errors=True)
            return None
        self._note(step)
        return saved["tree"]

    def _note(self, step: int) -> None:
        """A checkpoint after so many steps is on the disk."""
        self._newest = step
        if self._on_written:
            self._on_written(step)

    def _finish(self) -> None:
        """Wait for the save under way."""
        writing, self._writing = self._writing, None
        try:
            if writing is not None:
                writing.result()
        except Exception as error:  # Orbax and TensorStore raise many kinds of exceptions, for example for a full disk
            self._warn("written", error)

    def _warn(self, what: str, error: Exception) -> None:
        reason = (str(error).splitlines() or [""])[0][:200] or type(error).__name__
        print(f"checkpoint {self._folder.name} cannot be {what}: {reason}", file=sys.stderr)

    def _open(self) -> Any:
        if self._manager is None:
            options = _orbax().CheckpointManagerOptions(max_to_keep=1, enable_async_checkpointing=False)
            self._manager = _orbax().CheckpointManager(self._folder, options=options)
        return self._manager

    def _close(self) -> None:
        self._finish()
        manager, self._manager = self._manager, None
        try:
            if manager is not None:
                _there(manager.close)
        except Exception as error:  # as in `_finish`
            self._warn("written", error)


def write_tree(folder: Path, tree: PyTree) -> None:
    """Write arrays of the host into a new folder. Only this process takes part, whatever the number of processes."""
    _there(lambda: _alone().save(folder.absolute(), args=_orbax().args.PyTreeSave(tree)))


def read_tree(folder: Path) -> PyTree:
    """The tree in a folder that `write_tree` wrote: nested dicts of NumPy arrays. What it raises depends on Orbax."""
    return _there(lambda: _alone().restore(folder.absolute()))


def digest_of_tree(tree: PyTree) -> str:
    """The SHA-256 of the arrays of a tree, with their places, types and shapes."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return digest([[jax.tree_util.keystr(path), str(x.dtype), x.shape, sha256(x.tobytes())] for path, x in leaves])


def _alone() -> Any:
    """What writes and reads in the calling thread, without waiting for other processes."""
    process = jax.process_index()
    options = _orbax().options.MultiprocessingOptions(
        primary_host=process, active_processes={process}, barrier_sync_key_prefix=f"alone_{process}"
    )
    handler = _orbax().PyTreeCheckpointHandler(multiprocessing_options=options)
    return _orbax().Checkpointer(handler, multiprocessing_options=options)


def _there(work: Callable[[], Any]) -> Any:
    return _THREAD.submit(work).result()


@cache
def _orbax() -> Any:
    """Import Orbax on first use. The import takes a second, which short runs can save.

    We report every failure in one line. The tracebacks in Orbax's log, and those of the threads that a failed write
    leaves behind with a closed event loop, add nothing to it and are silenced.
    """
    import orbax.checkpoint

    logging.getLogger("absl").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    dropped.expect(_event_loop_is_closed)
    return orbax.checkpoint


def _event_loop_is_closed(exception: "sys.UnraisableHookArgs") -> bool:
    return str(exception.exc_value) == "Event loop is closed"


@jax.jit
def _snapshot(tree: PyTree) -> tuple[PyTree, UInt32[Array, ""]]:
    """A copy and its fingerprint. The copy stays the same while training overwrites the original."""
    return jax.tree.map(jnp.copy, tree), fingerprint(tree)


@jax.jit
def fingerprint(tree: PyTree) -> UInt32[Array, ""]:
    """The sum of all 32-bit words, each multiplied by an odd number. A change of any one word changes the sum."""
    total = jnp.uint32(0)
    for number, leaf in enumerate(jax.tree.leaves(tree)):
        words = leaf.astype(jnp.uint32) if leaf.dtype == bool else jax.lax.bitcast_convert_type(leaf, jnp.uint32)
        place = jnp.arange(words.size, dtype=jnp.uint32).reshape(words.shape)
        total += jnp.sum((words + jnp.uint32(number)) * (2 * place + 1), dtype=jnp.uint32)
    return total


def _shape(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=getattr(leaf, "sharding", None))
