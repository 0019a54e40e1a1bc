"""`idle_unload=`: unloads a model that nobody has called for long. Knows no requests, no threads and no event
loops."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from .._io import IO, Part, Signal
from .._protocol.errors import logger
from .handler import Handler
from .limiter import Uses


class Lifecycle(Protocol):
    """The model, as far as this knows it."""

    @property
    def state(self) -> str: ...
    @property
    def handler(self) -> Handler | None: ...
    def unload(self, event: Literal["idle"], /) -> Part | None: ...


class IdleUnload(msgspec.Struct, frozen=True, eq=False):
    """When a model is unloaded, and by what."""

    label: str
    seconds: float
    lock: threading.RLock  # the model's
    clock: Callable[[], float]
    alarm: Callable[[float, Callable[[], object]], object]
    """Calls a method after so many seconds, unless its object is gone by then."""
    io: IO
    """Where a model is unloaded if the event loop that has loaded it has ended."""

    def watch(self, lifecycle: Lifecycle, uses: Uses, begin: Callable[[Part], bool]) -> None:
        """Watch a handler that serves from now on, by its uses. `begin` begins the unload where the load ran;
        False if it cannot."""
        watch = _Watch(self, lifecycle, uses, begin)
        watch.note()
        self.alarm(self.seconds, watch.ring)


class _Watch:
    """Watches one handler as long as it serves. It refers to the handler's uses, not to the handler, which is
    freed with its last use."""

    def __init__(
        self, idle: IdleUnload, lifecycle: Lifecycle, uses: Uses, begin: Callable[[Part], bool]
    ) -> None:
        self._idle = idle
        self._lifecycle = lifecycle
        self._uses = uses
        self._begin = begin
        self._since = 0.0

    def _is_current(self) -> bool:
        handler = self._lifecycle.handler
        return handler is not None and handler.uses is self._uses

    def note(self) -> None:
        """Note that nobody uses the handler from now on; the next last use calls this again."""
        with self._idle.lock:
            self._since = self._idle.clock()
            if self._is_current():
                unused = Signal()
                unused.then(self.note)
                self._uses.idle.append(unused)

    def ring(self) -> None:
        """Unload the model if nobody has called it for long; else look again when that can be the case at the
        earliest."""
        idle, lifecycle = self._idle, self._lifecycle
        unloading = None
        with idle.lock:
            if not self._is_current():
                return
            is_busy = self._uses.count or lifecycle.state != "ready"
            seconds = idle.seconds if is_busy else self._since + idle.seconds - idle.clock()
            if seconds <= 0:
                unloading = lifecycle.unload("idle")
        if unloading is None:
            idle.alarm(seconds, self.ring)
            return
        logger.info(
            "nobody has called model %s for %g s, so it is unloaded: the next request loads it again",
            idle.label,
            idle.seconds,
        )
        if not self._begin(unloading):
            idle.io.spawn(unloading)
