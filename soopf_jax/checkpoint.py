"""Half-trained fits on disk, so that an interruption costs a minute: Orbax, in a thread of its own, the newest kept.

The thread is ours, one for all groups of fits: the threads of Orbax's asynchronous saves wait for each other by the
wall clock and by a number that all saves of a process share, so that a clock that jumps, or two saves at once, leave
some that never end, and with them the process.

A checkpoint carries a fingerprint of its arrays. One that cannot be read, or whose arrays are not those that were
saved, is as good as none: training then starts again, and no wrong number comes of it. One that cannot be written is
no reason to stop.
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

from soopf_jax import devices

_THREAD = ThreadPoolExecutor(1, "checkpoints")
"""Where all saves and restores of this process happen, one after another. It starts with the first of them."""


class Checkpoints:
    """The checkpoints of one group of fits, in one folder; as a context manager it waits for the last write."""

    def __init__(self, folder: Path, seconds_between: float) -> None:
        self._folder = folder.absolute()
        self._seconds_between = seconds_between
        self._last = time.monotonic()
        self._manager: Any = None
        self._writing: Future[None] | None = None

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close()

    def offer(self, step: int, tree: PyTree) -> None:
        """Save `tree`, the state after `step` steps, if the last save is long enough ago; training goes on meanwhile.

        Several processes wait for the end: their steps and Orbax's meeting points must not overtake each other.
        """
        if not devices.agreed(time.monotonic() - self._last >= self._seconds_between):
            return
        self._finish()
        copy = jax.tree.map(jnp.copy, tree)  # training goes on in the original's memory while this is written
        saved = _orbax().args.StandardSave({"tree": copy, "fingerprint": fingerprint(copy)})
        self._writing = _THREAD.submit(lambda: self._open().save(step, args=saved))
        if jax.process_count() > 1:
            self._finish()
        self._last = time.monotonic()

    def newest_step(self) -> int | None:
        """The number of steps behind the newest checkpoint."""
        return _there(lambda: self._open().latest_step()) if devices.agreed(self._folder.exists()) else None

    def restore(self, step: int, like: PyTree) -> PyTree | None:
        """The tree saved after `step` steps, shaped and placed as `like`; None if it is damaged."""
        shapes = jax.tree.map(_shape, {"tree": like, "fingerprint": fingerprint(like)})
        try:
            saved = _there(lambda: self._open().restore(step, args=_orbax().args.StandardRestore(shapes)))
            if int(fingerprint(saved["tree"])) != int(saved["fingerprint"]):
                raise ValueError("the arrays are not those that were saved")
        except Exception as error:  # whatever Orbax and TensorStore raise over damaged files
            self._warn("read, so that its fits start again", error)
            self._close()
            if devices.is_main():
                shutil.rmtree(self._folder, ignore_errors=True)
            return None
        return saved["tree"]

    def _finish(self) -> None:
        """Wait for the save under way."""
        writing, self._writing = self._writing, None
        try:
            if writing is not None:
                writing.result()
        except Exception as error:  # a full disk, as Orbax and TensorStore put it
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


def _there(work: Callable[[], Any]) -> Any:
    return _THREAD.submit(work).result()


@cache
def _orbax() -> Any:
    """Imported on use: it takes a second, which short runs need not spend.

    What goes wrong in it we say in one line; the tracebacks of its log and of the threads that a failed write leaves
    behind, whose event loop is closed, say no more.
    """
    import orbax.checkpoint

    logging.getLogger("absl").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    hook = sys.unraisablehook

    def quieter(unraisable: Any) -> None:
        if str(unraisable.exc_value) != "Event loop is closed":
            hook(unraisable)

    sys.unraisablehook = quieter
    return orbax.checkpoint


@jax.jit
def fingerprint(tree: PyTree) -> UInt32[Array, ""]:
    """A sum of all 32-bit words, each times an odd number of its own: any one changed word changes it."""
    total = jnp.uint32(0)
    for number, leaf in enumerate(jax.tree.leaves(tree)):
        words = leaf.astype(jnp.uint32) if leaf.dtype == bool else jax.lax.bitcast_convert_type(leaf, jnp.uint32)
        place = jnp.arange(words.size, dtype=jnp.uint32).reshape(words.shape)
        total += jnp.sum((words + jnp.uint32(number)) * (2 * place + 1), dtype=jnp.uint32)
    return total


def _shape(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=getattr(leaf, "sharding", None))
