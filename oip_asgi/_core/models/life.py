"""The life of one model: registered, loading, ready or failed. One load at a time, for all who wait for it. Knows no requests."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from ..effects import Spawn, Steps, Wait
from ..log import log_raised
from .hooks import call_hook

State: TypeAlias = Literal["registered", "loading", "ready", "failed"]
"""A model with `load=` is registered first; one without is ready from the start."""

Event: TypeAlias = Literal["load", "loaded", "raised", "abandoned", "forget"]

_TRANSITIONS: Final[Mapping[tuple[State, Event], State]] = MappingProxyType(
    {
        ("registered", "load"): "loading",
        ("loading", "loaded"): "ready",
        ("loading", "raised"): "failed",
        ("loading", "abandoned"): "registered",
        ("ready", "forget"): "registered",
        ("failed", "forget"): "registered",
    }
)


class Life:
    """The state of one model.

    Args:
        called: What the model is called, for the log.
        load: Its `load=`, or None.
    """

    def __init__(self, called: str, load: Callable[[], Any] | None) -> None:
        self.state: State = "ready" if load is None else "registered"
        self._called = called
        self._load = load
        self._lock = threading.RLock()
        self._loading: Spawn | None = None
        self._is_waited_for = False
        self.load_seconds: float | None = None
        """How long the last load took that succeeded; None where there was none."""

    def _move(self, event: Event) -> None:
        self.state = _TRANSITIONS[self.state, event]

    def begin(self) -> Spawn | None:
        """The loading of a model that waits for it, for its driver to start; requests that come meanwhile are told that it loads.

        Returns:
            None where it does not wait for that.
        """
        with self._lock:
            return self._begin(is_waited_for=False) if self.state == "registered" else None

    def settle(self, *, at_start: bool = False) -> Steps[None]:
        """Load the model where it waits for that, and wait while a request loads it.

        Args:
            at_start: Whether to wait also while the start of the server loads it.
        """
        while self.state in ("registered", "loading"):
            with self._lock:
                self._take_up_lost()
                begun = self._begin(is_waited_for=True) if self.state == "registered" else None
                loading = begun or self._loading
            if begun is not None:
                yield begun
            if loading is None or not (self._is_waited_for or at_start):
                return
            yield Wait(loading.ended)

    def _take_up_lost(self) -> None:
        """A load that was cancelled, or whose event loop was closed, ends: the model is registered again."""
        loading = self._loading
        if loading is not None and (loading.is_lost() or loading.ended.is_set()):
            loading.part.close()
            if self.state == "loading":  # it had not even begun
                self._end("abandoned")

    def _end(self, event: Event) -> None:
        with self._lock:
            self._loading = None
            self._move(event)

    def _begin(self, *, is_waited_for: bool) -> Spawn:
        self._move("load")
        self._is_waited_for = is_waited_for
        self._loading = Spawn(self._run())
        return self._loading

    def _run(self) -> Steps[None]:
        event: Event = "abandoned"
        try:
            assert self._load is not None  # only a model with `load=` is ever registered only
            begun = time.monotonic()
            yield from call_hook(self._load)
            self.load_seconds = time.monotonic() - begun
            event = "loaded"
        except Exception as error:
            event = "raised"
            log_raised(logging.ERROR, error, "%s: load= raised, so it will never be ready", self._called)
        finally:
            self._end(event)

    def forget(self) -> None:
        """Have the model loaded again at the next start, if it has `load=`."""
        with self._lock:
            if self._load is not None and (self.state, "forget") in _TRANSITIONS:
                self._move("forget")
