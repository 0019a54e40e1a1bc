"""Methods that are called after a time, from one thread."""

from __future__ import annotations

import threading
import time

from tests.support.inside.runtime import Alarms
from tests.support.talk import block_until


class Bell:
    def __init__(self) -> None:
        self.rung: list[float] = []
        self.threads: set[threading.Thread] = set()

    def ring(self) -> None:
        self.rung.append(time.monotonic())
        self.threads.add(threading.current_thread())


def test_they_are_called_in_their_order_and_not_too_early_from_one_thread_which_ends() -> None:
    alarms, late, soon, since = Alarms(), Bell(), Bell(), time.monotonic()
    alarms.set(0.1, late.ring)
    alarms.set(0.02, soon.ring)
    block_until(lambda: late.rung and soon.rung)
    assert since + 0.02 <= soon.rung[0] < late.rung[0]
    assert late.rung[0] >= since + 0.1
    assert late.threads == soon.threads
    [thread] = soon.threads
    assert thread.name == "oip_asgi alarms"
    block_until(lambda: not thread.is_alive())
    alarms.set(0.0, late.ring)
    block_until(lambda: len(late.rung) == 2)


def test_what_nobody_else_keeps_is_not_called() -> None:
    alarms, bell, other = Alarms(), Bell(), Bell()
    rung = bell.rung
    alarms.set(0.01, bell.ring)
    alarms.set(0.02, other.ring)
    del bell
    block_until(lambda: other.rung)
    assert rung == []


def test_after_a_stop_what_was_due_is_called_once_there_is_another() -> None:
    alarms, bell, other = Alarms(), Bell(), Bell()
    alarms.set(0.05, bell.ring)
    alarms.stop()
    time.sleep(0.1)
    assert bell.rung == []
    alarms.set(0.0, other.ring)
    block_until(lambda: bell.rung and other.rung)
    alarms.stop()
