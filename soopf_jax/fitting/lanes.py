"""Independent pieces of work side by side, in threads of one process.

Groups of fits train this way on a CPU, each on a device of its own (`devices.lane_meshes`).
"""

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from threading import Event
from typing import TypeVar

from soopf_jax.runtime import interrupt

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class Stopped(Exception):
    """Raised in a lane that was asked to stop, because another one failed or the user pressed Ctrl-C."""


Check = Callable[[], None]
"""Work calls it wherever it can end early. It raises an exception if the work is to end."""


def side_by_side(work: Callable[[Item, Check], Outcome], items: Sequence[Item], lanes: int) -> list[Outcome]:
    """Do `work` on every item, at most `lanes` items at a time.

    The first exception ends everything: items that have not begun are dropped, and work under way stops at its next
    check.

    Args:
        work: Gets an item and a check, which it calls from time to time.
        items: The items.
        lanes: The most items at a time.

    Returns:
        The outcomes in the order of the items.
    """
    stop = Event()

    def check() -> None:
        interrupt.check()
        if stop.is_set():
            raise Stopped

    if min(lanes, len(items)) <= 1:  # without threads, Ctrl-C and tracebacks stay simple
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
