"""Makes Ctrl-C quick, and makes sure that it is never lost and loses no work.

Python raises KeyboardInterrupt in the main thread, wherever it happens to be. That is not enough for four reasons:

- An import of compiled code that is broken off can crash the process. Nothing has been done yet then, so the process
  ends at once.
- Inside a callback or a destructor of a library, Python prints a traceback and drops the exception. Therefore the
  signal is also remembered, long-running code calls `check` from time to time, and the traceback is not printed.
- Training must come to the end of a step before its state can be kept. Within `keeping` nothing is raised: the code
  calls `check`, and keeps its work before it ends.
- While the main thread is inside a compiler, it cannot raise anything. A second thread sees the signal at once. It ends
  the process if the main thread does not answer within GRACE seconds and nothing is being kept, or if the user presses
  Ctrl-C again. No file is left half-written then, because all files are written atomically.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from soopf_jax.runtime import dropped

CODE = 130
"""The exit code of a process that Ctrl-C has ended."""
GRACE = 1.5
"""Seconds that the main thread has to answer, if nothing is being kept."""
INTERRUPTED = "interrupted; what was finished is kept"

_OVER = b"\0\0"
"""What both threads that watch for signals read at the end."""
_asked = threading.Event()
_keeping: list[None] = []
"""An element for every piece of work that keeps what it has done before it ends."""
_kept: dict[str, str] = {}
"""What would be left if the process ended now, in words, by the name of the work."""


@contextmanager
def remembered(message: str = INTERRUPTED) -> Iterator[None]:
    """Remember Ctrl-C in this block. It still raises KeyboardInterrupt.

    A process that ignores the signal continues to ignore it. Background processes of a shell script do so.

    Args:
        message: What to print if the main thread does not answer.
    """
    _asked.clear()
    _kept.clear()
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def remember(number: int, frame: FrameType | None) -> None:
        _asked.set()
        if _keeping:
            return
        if _importing(frame):
            end_at_once(said(message))
        signal.default_int_handler(number, frame)

    dropped.expect(_remembered_interrupt)
    signal.signal(signal.SIGINT, remember)
    try:
        with _watched(message):
            yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _asked.clear()


def _remembered_interrupt(exception: "sys.UnraisableHookArgs") -> bool:
    return asked() and exception.exc_type is KeyboardInterrupt


def _importing(frame: FrameType | None) -> bool:
    """Whether this frame, or one that called it, is part of an import."""
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


def check() -> None:
    """Raise KeyboardInterrupt if Ctrl-C was pressed in the block of `remembered`."""
    if asked():
        raise KeyboardInterrupt


def asked() -> bool:
    """Whether Ctrl-C was pressed in the block of `remembered`."""
    return _asked.is_set()


@contextmanager
def keeping() -> Iterator[None]:
    """Raise nothing in this block, whose code calls `check` and keeps its work if that raises KeyboardInterrupt."""
    _keeping.append(None)
    try:
        yield
    finally:
        _keeping.pop()


def kept(work: str, what: str) -> None:
    """Note what of some work is safe, for the last line of the command: `340 of 500 steps of learned`."""
    _kept[work] = what


def said(message: str) -> str:
    """What to tell the user at the end: what was kept, or else the message of the command."""
    if not _kept:
        return message
    return f"interrupted; kept {', '.join(_kept.values())}; run the same command again to go on"


@contextmanager
def _watched(message: str) -> Iterator[None]:
    """Let a second thread see the signals of this block."""
    receiver, sender = os.pipe()
    os.set_blocking(sender, False)
    before = signal.set_wakeup_fd(sender, warn_on_full_buffer=False)
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(receiver, over, message), name="Ctrl-C", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        over.set()
        os.write(sender, _OVER)
        watcher.join()
        os.close(sender)
        os.close(receiver)


def _watch(receiver: int, over: threading.Event, message: str) -> None:
    """Wait for the first Ctrl-C, then for the end of the block, the end of patience or a second Ctrl-C."""
    if not _next_signal(receiver):
        return
    _asked.set()

    def second() -> None:
        if _next_signal(receiver):
            end_at_once("stopped at once; run the same command again to go on from what was finished")

    other = threading.Thread(target=second, name="second Ctrl-C", daemon=True)
    other.start()
    if _keeping:
        print("\nCtrl-C: keeping what was done (press it again to stop at once)", file=sys.stderr, flush=True)
    while not over.wait(GRACE):
        if not _keeping:
            end_at_once(said(message))
    other.join()


def _next_signal(receiver: int) -> bool:
    """Wait for Ctrl-C. False if the block has ended."""
    number = 1
    while number and number != signal.SIGINT:
        number = os.read(receiver, 1)[0]
    return number == signal.SIGINT


def end_at_once(line: str, code: int = CODE) -> None:
    """End the process, from any thread, without any cleaning up; rich has hidden the cursor of a terminal."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        shown = "\x1b[?25h\n" if os.isatty(2) else ""
        os.write(2, f"{shown}{line}\n".encode())
    os._exit(code)
