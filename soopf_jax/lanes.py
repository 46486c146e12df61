"""Independent pieces of work side by side, in threads of one process. What each of them does is its own affair: groups
of fits bring a device of their own along (`devices.lane_meshes`).
"""

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import cache
from threading import Event, Lock
from typing import TypeVar

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class Stopped(Exception):
    """Raised in a lane that was asked to stop, because another one failed or the user pressed Ctrl-C."""


Check = Callable[[], None]
"""To be called where work may end early; raises Stopped if it shall."""


def once(work: Callable[[], Outcome]) -> Callable[[], Outcome]:
    """`work`, done at the first call, whichever lane makes it; others wait for it, and all get its outcome."""
    lock, kept = Lock(), cache(work)

    def outcome() -> Outcome:
        with lock:
            return kept()

    return outcome


def side_by_side(work: Callable[[Item, Check], Outcome], items: Sequence[Item], lanes: int) -> list[Outcome]:
    """`work` of every item, in their order, at most `lanes` at a time.

    The first exception ends all: what has not begun never does, what runs stops at its next check.
    """
    stop = Event()

    def check() -> None:
        if stop.is_set():
            raise Stopped

    if min(lanes, len(items)) <= 1:  # Ctrl-C and tracebacks stay as plain as they can be
        return [work(item, check) for item in items]
    with ThreadPoolExecutor(lanes) as pool:
        try:
            futures = [pool.submit(work, item, check) for item in items]
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
            return [future.result() for future in futures]
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
