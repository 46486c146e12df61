"""Work side by side: order, limit, and an end for all when one fails."""

import threading
import time

import pytest

from soopf_jax.fitting.lanes import Stopped, side_by_side

PATIENCE = 20.0
"""Seconds after which a test that waits for another thread gives up."""


@pytest.mark.parametrize("lanes", [1, 2, 5])
def test_results_come_in_the_order_of_the_items(lanes):
    def square(item, check):
        time.sleep(0.01 * (4 - item))  # later items are done first
        return item * item

    assert side_by_side(square, [0, 1, 2, 3], lanes) == [0, 1, 4, 9]


def test_two_run_at_once_and_never_three():
    together, running, most, lock = threading.Barrier(2, timeout=PATIENCE), 0, 0, threading.Lock()

    def work(item, check):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait()  # passes only while another one is here as well
        with lock:
            running -= 1

    side_by_side(work, range(6), 2)
    assert most == 2


def test_one_lane_is_the_callers_own_thread():
    assert side_by_side(lambda item, check: threading.current_thread(), [1, 2], 1) == [threading.current_thread()] * 2


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_a_failure_stops_the_others_at_their_next_check_and_what_waits_never_begins(error):
    begun, stopped, ready = [], [], threading.Barrier(2, timeout=PATIENCE)

    def work(item, check):
        begun.append(item)
        ready.wait()
        if item == 1:
            raise error
        end = time.monotonic() + PATIENCE
        try:
            while time.monotonic() < end:
                check()
        except Stopped:
            stopped.append(item)
            raise

    with pytest.raises(type(error)):
        side_by_side(work, range(4), 2)
    assert stopped == [0]
    assert 3 not in begun
