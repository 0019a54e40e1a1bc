"""Hands observations to one function, in a thread of its own, one after the other. Decides nothing about what
is observed.

The queue is bounded, by `ObserverOptions` of `_serving/observing.py`: what does not fit is counted, and the
log says so once a minute. Who puts an observation into it never waits.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, deque
from collections.abc import Coroutine
from contextvars import ContextVar
from inspect import iscoroutine
from typing import Any, Final

from .._io import Signal
from .._protocol.context import Observation, without_payload
from .._protocol.errors import log_raised, logger
from .._serving.observing import ObserverOptions
from .threads import WorkerThreads, call_after_fork
from .waiting import BackgroundLoop

_REST_SECONDS: Final = 0.02
"""How long the thread rests before it looks for more. To wake it for each observation would cost requests
more than all else here."""

_QUIET_SECONDS: Final = 60.0
"""The log tells of dropped observations once in so many seconds."""


_IS_OBSERVING: Final[ContextVar[bool]] = ContextVar("oip_asgi_is_observing", default=False)
"""Whether this code runs within an observer. The calls that it makes are not observed: each would be followed
by another, without end."""


class ObserverThread:
    """One function that observes. Its thread begins when there is something to hand over."""

    def __init__(self, options: ObserverOptions, background: BackgroundLoop) -> None:
        self._options = options
        self._background = background
        self._models = None if options.models is None else frozenset(options.models)
        self._name = getattr(options.function, "__qualname__", None) or repr(options.function)
        self._threads = WorkerThreads(1)
        self._dropped = Counter[tuple[str, str | None]]()
        self._has_failed = False
        self._begin()
        call_after_fork(self._begin)

    def _begin(self) -> None:
        # as the garbage collector may end a stream within it, which is observed too
        self._lock = threading.RLock()
        self._queue: deque[Observation] = deque()
        self._is_running = False  # whether the thread hands over, or will
        self._hurry = threading.Event()  # set if the thread must not rest
        self._idle: list[Signal] = []  # to be set when the queue is empty
        self._unlogged = 0  # how many were dropped since the log said so
        self._quiet_until = 0.0

    def hears(self, model: str) -> bool:
        """Whether it observes the models of a name."""
        return self._models is None or model in self._models

    def wants_one(self) -> bool:
        """Whether it wants the observation of a request: not of calls that observers make, and of a sample of
        all others."""
        return not _IS_OBSERVING.get() and random.random() < self._options.sample

    def put(self, observation: Observation) -> None:
        """Put an observation into the queue, if there is room."""
        with self._lock:
            has_room = len(self._queue) < self._options.max_queue
            begins = has_room and not self._is_running
            if has_room:
                self._queue.append(observation)
                self._is_running = True
                if len(self._queue) * 2 >= self._options.max_queue:
                    self._hurry.set()
            else:
                self._add_drop(observation)
        if begins:
            try:
                self._threads.submit(self)
            except RuntimeError:  # the system has no more threads: the next one tries again
                self._is_running = False
        elif not has_room:
            self._log_dropped()

    def run(self) -> None:
        """Hand over what is queued, in the thread, until nothing comes any more."""
        while True:
            while (observation := self._take()) is not None:
                self._hand_over(observation)
                del observation  # its arrays, while it rests
                self._log_dropped()
            self._hurry.wait(_REST_SECONDS)
            self._hurry.clear()
            with self._lock:
                if not self._queue and not self._idle:
                    self._is_running = False
                    return

    def _take(self) -> Observation | None:
        """The next observation. None if the queue is empty; then the signals of `idle` are set."""
        with self._lock:
            if self._queue:
                return self._queue.popleft()
            idle, self._idle = self._idle, []
        for signal in idle:
            signal.set()
        return None

    def _hand_over(self, observation: Observation) -> None:
        token = _IS_OBSERVING.set(True)
        try:
            result = self._options.function(
                observation if self._options.payload else without_payload(observation)
            )
            if iscoroutine(result):
                coroutine: Coroutine[Any, Any, object] = result
                self._background.run(coroutine)
        except BaseException as error:  # whatever it raises, the thread goes on
            if not self._has_failed:
                self._has_failed = True
                log_raised(error, "the observer %s failed; if it fails again, that is not logged", self._name)
        finally:
            _IS_OBSERVING.reset(token)

    def make_idle_signal(self) -> Signal:
        """A signal that is set once all that is in the queue was handed over."""
        signal = Signal()
        with self._lock:
            if self._is_running:
                self._idle.append(signal)
                self._hurry.set()
                return signal
        signal.set()
        return signal

    def drop(self) -> None:
        """Drop what is in the queue, and log how many were dropped since the log said so."""
        self._quiet_until = 0.0
        self._log_dropped()
        with self._lock:
            while self._queue:
                self._add_drop(self._queue.popleft())
        self._log_dropped("the server stops")

    def count_drops(self) -> dict[tuple[str, str | None], int]:
        """How many observations were dropped, by the name and the version of the model."""
        with self._lock:
            return dict(self._dropped)

    def stop(self) -> None:
        """End its thread, which begins anew if there is more to hand over."""
        self._threads.stop()

    def _add_drop(self, observation: Observation) -> None:
        """Count an observation that is dropped. The caller holds the lock."""
        self._dropped[observation.model, observation.version] += 1
        self._unlogged += 1

    def _log_dropped(self, why: str = "") -> None:
        """Log how many were dropped since the log said so, if that is a minute ago. `why` is left out if the
        queue is full."""
        if not self._unlogged or (not why and time.monotonic() < self._quiet_until):
            return
        with self._lock:
            unlogged, self._unlogged = self._unlogged, 0
            self._quiet_until = time.monotonic() + _QUIET_SECONDS
        if unlogged:
            why = why or (
                f"only {self._options.max_queue} may wait: make it quicker, or observe with sample= or a "
                "larger max_queue="
            )
            logger.warning(
                "the observer %s is too slow: %d %s dropped, as %s",
                self._name,
                unlogged,
                "observation was" if unlogged == 1 else "observations were",
                why,
            )
