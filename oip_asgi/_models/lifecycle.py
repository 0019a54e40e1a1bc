"""The lifecycle of one model: its states, and what each event does in them; the handler that answers its
requests; and when it is loaded and unloaded. Knows no requests.

Only one load or unload runs at a time, and all who wait for a load wait for the same one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Literal, TypeAlias, final

from .._io import IO, Part
from .._protocol.errors import (
    SOON,
    InferenceError,
    ModelFailed,
    NotFound,
    NotReady,
    NotYet,
    log_raised,
    logger,
)
from .handler import Handler
from .limiter import Limiter
from .loader import IdleUnload, Loader, LoadParameters, Retired

State: TypeAlias = Literal[
    "registered",
    "loading",
    "ready",
    "reloading",
    "idling",
    "idle",
    "waking",
    "failed",
    "unloading",
    "unloaded",
    "unregistering",
    "unregistered",
]
"""A model with `load=` is registered first; one without is ready from the start. While it is reloading, its
old handler serves.

A model with `idle_unload=` that nobody calls is unloaded while it is idling, idle after that, and waking
while the next request loads it. It counts as ready in these three states. One whose `unload=` still runs when
the server has stopped is idling too: the next request after that loads it.
"""

Event: TypeAlias = Literal[
    "load", "loaded", "raised", "cancelled", "idle", "unload", "unregister", "unload ended", "server stopped"
]
"""What somebody asked for, or how that ended. A request to a model asks to load it only if it is registered
or idle: see `Lifecycle`."""

Action: TypeAlias = Literal[
    "begin to load",
    "wait",
    "refuse",
    "serve",
    "serve as before",
    "discard",
    "begin to unload",
    "forget",
    "nothing",
]
"""What the model does because of an event. "Discard" is for a load that ends while the model is unloaded."""

_TABLE: Final[tuple[tuple[Event, tuple[State, ...], Action, State | None], ...]] = (
    ("load", ("registered", "failed", "unloaded"), "begin to load", "loading"),
    ("load", ("ready",), "begin to load", "reloading"),
    ("load", ("idle",), "begin to load", "waking"),
    ("load", ("loading", "reloading", "idling", "waking", "unloading"), "wait", None),
    ("load", ("unregistering", "unregistered"), "refuse", None),
    #
    ("loaded", ("loading",), "serve", "ready"),
    ("raised", ("loading",), "nothing", "failed"),
    ("cancelled", ("loading",), "nothing", "registered"),
    ("loaded", ("reloading",), "serve", "ready"),
    ("raised", ("reloading",), "serve as before", "ready"),
    ("cancelled", ("reloading",), "nothing", "ready"),
    ("loaded", ("waking",), "serve", "ready"),
    ("raised", ("waking",), "nothing", "idle"),
    ("cancelled", ("waking",), "nothing", "idle"),
    ("loaded", ("unloading", "unregistering"), "discard", None),
    ("raised", ("unloading", "unregistering"), "nothing", None),
    ("cancelled", ("unloading", "unregistering"), "discard", None),
    #
    ("idle", ("ready",), "begin to unload", "idling"),
    ("unload ended", ("idling",), "nothing", "idle"),
    #
    ("unload", ("registered", "failed", "unloaded"), "nothing", "unloaded"),
    ("unload", ("loading", "ready", "reloading", "idle", "waking"), "begin to unload", "unloading"),
    ("unload", ("idling",), "nothing", "unloading"),
    ("unload", ("unloading", "unregistering", "unregistered"), "nothing", None),
    ("unregister", ("registered", "failed", "unloaded"), "nothing", "unregistered"),
    ("unregister", ("loading", "ready", "reloading", "idle", "waking"), "begin to unload", "unregistering"),
    ("unregister", ("idling", "unloading"), "nothing", "unregistering"),
    ("unload ended", ("unloading",), "nothing", "unloaded"),
    ("unload ended", ("unregistering",), "nothing", "unregistered"),
    #
    ("server stopped", ("registered", "idle", "failed", "unloaded"), "nothing", "registered"),
    ("server stopped", ("ready",), "forget", "registered"),
    ("server stopped", ("unloading",), "nothing", "idling"),
    (
        "server stopped",
        ("loading", "reloading", "idling", "waking", "unregistering", "unregistered"),
        "nothing",
        None,
    ),
)
"""What each event does in some states, and the next state; None if the state does not change."""

TRANSITIONS: Final[Mapping[tuple[State, Event], tuple[Action, State]]] = {
    (state, event): (action, after or state) for event, states, action, after in _TABLE for state in states
}
"""All that can happen to a model. Any other event in a state is an error of this package."""


# The lifecycle, and what is said of it

_REASONS: Final[Mapping[State, str]] = {
    "failed": "its load failed, see the server's log",
    "unloading": "it was unloaded",
    "unloaded": "it was unloaded",
}

_LOADING: Final = "it is still loading"
_TRIED_AGAIN: Final = "its load failed, see the server's log; the next request tries again"

_AGAIN_SECONDS: Final = 5.0
"""How long a load that failed because of something else is not tried again: requests and probes come
often."""

_TRIED_LATER: Final = "it is not ready until a request or a probe loads it again, at most every five seconds"

_REMAINS: Final[Mapping[State, str]] = {
    "reloading": "what was loaded before still serves",
    "waking": "the next request tries again",
}
"""What follows from a load that raised."""

_NOT_TRIED_AGAIN: Final = (
    "it is not ready; only server.load(...), server.load_sync(...), or a client of a server with "
    "model_control=True, loads it again"
)


def _log_failure(error: Exception, label: str, state: State, before: str) -> None:
    """Log what a load raised; an obstacle that is there as before is in the log already."""
    follows, cause = (
        (_TRIED_LATER, error.__cause__) if isinstance(error, NotYet) else (_NOT_TRIED_AGAIN, None)
    )
    if not before or before != str(error):
        log_raised(cause or error, "model %s: load= raised, so %s", label, _REMAINS.get(state, follows))


@final
class _Load:
    """One load and its outcome. Requests that come while it runs wait for it if it `is_waited_for`, else they
    are refused."""

    part: Part

    def __init__(self, *, is_waited_for: bool) -> None:
        self.is_waited_for = is_waited_for
        self.action: Action | None = None
        self.error: Exception | None = None

    @property
    def was_cancelled(self) -> bool:
        return self.action == "nothing" and self.error is None


class Lifecycle:
    """The state of one model, and the handler that answers its requests."""

    def __init__(
        self,
        label: str,
        loader: Loader,
        handler: Handler | None,
        describe: Callable[[Handler], None],
        limiter: Limiter,
    ) -> None:
        self.state: State = "registered" if handler is None else "ready"
        self.reload_failed = False
        self.load_seconds: float | None = None  # how long the last load took that succeeded
        self.idle_unload: IdleUnload | None = None
        self.handler = handler  # what answers requests; None if it is not loaded
        self._label = label
        self._loader = loader
        self._describe = describe
        self._lock = limiter.lock
        self._loading: _Load | None = None
        self._unloading: Part | None = None
        self._retired = Retired(loader, limiter)
        # why it is not ready, if load= raised NotYet, and when that is tried again
        self.obstacle, self._again_at = "", 0.0
        self._parameters = LoadParameters()  # those of the last load, for the request that wakes the model

    def _move_state(self, event: Event) -> Action:
        """Go to the next state, and return what to do. The caller holds the lock."""
        action, self.state = TRANSITIONS[self.state, event]
        self.reload_failed = event == "raised" and self.is_ready
        self.obstacle = self.obstacle if self.state in ("failed", "loading") else ""
        return action

    @property
    def is_serving(self) -> bool:
        return self.state in ("ready", "reloading")

    @property
    def is_idle(self) -> bool:
        """Whether `idle_unload=` has unloaded it: it counts as ready, and requests wait until it is loaded
        again."""
        return self.state in ("idling", "idle", "waking")

    @property
    def is_ready(self) -> bool:
        return self.is_serving or self.is_idle

    @property
    def will_serve(self) -> bool:
        """Whether requests are answered now, or after the load that they begin or wait for."""
        return (
            self.is_ready
            or self.state == "registered"
            or (self._loading is not None and self._loading.is_waited_for)
        )

    def make_refusal(self, otherwise: str = _LOADING) -> InferenceError:
        """The error for a request, if the model does not serve: why, or `otherwise` if the state does not say
        it."""
        if self.state in ("unregistering", "unregistered"):
            return NotFound(f"model {self._label} is not found: it was unregistered")
        reason = self.obstacle or _REASONS.get(self.state, otherwise)
        return NotReady(
            f"model {self._label} is not ready: {reason}",
            headers=SOON if self.obstacle or reason == _LOADING else None,
        )

    # Loading

    def begin_to_load(self, io: IO, *, at_start: bool = False) -> Part | None:
        """Load the model if it is only registered, without waiting. Requests that come meanwhile wait for it;
        `at_start`, they are refused, as they are while a load is tried again that had an obstacle."""
        with self._lock:
            again = self.obstacle != "" and time.monotonic() >= self._again_at
            begun = self._begin_if("failed" if again else "registered", is_waited_for=not (again or at_start))
        if begun is not None:
            io.spawn(begun.part)
        return begun and begun.part

    async def wait_until_loaded(self, io: IO, *, at_start: bool = False, wakes: bool = False) -> None:
        """Load the model if it is only registered, and wait for a load that a request began; `at_start`, for
        any load.

        If it `wakes` the model, it loads one that is idle too, and raises NotReady if that fails.
        """
        while self.state in ("registered", "loading") or (self.is_idle and wakes):
            with self._loader.guard_wait() as may_wait:
                if not may_wait:
                    if self.is_idle:
                        raise self.make_refusal()
                    return
                with self._lock:
                    begun = self._begin_if("registered", "idle") if wakes else self._begin_if("registered")
                    loading = begun or self._loading
                    unloading = self._unloading if self.state == "idling" else None
                if unloading is not None:
                    await io.wait(unloading.ended)
                    continue
                if loading is None or not (loading.is_waited_for or at_start):
                    return
                if begun is not None:
                    io.spawn(loading.part)
                await io.wait(loading.part.ended)
                if loading.error is not None and self.is_idle:
                    raise self.make_refusal(_TRIED_AGAIN)

    async def load(self, io: IO, parameters: LoadParameters) -> None:
        """Wait for a load or an unload that runs, then load the model, or load it again. Its old handler
        serves until that has ended."""
        own = None
        with self._loader.guard_wait() as may_wait:
            if not may_wait:
                raise NotReady(
                    f"model {self._label} cannot be loaded by a load= or unload= for which its own waits: "
                    "that would never end"
                )
            while own is None or own.was_cancelled:
                with self._lock:
                    self._end_lost()
                    # requests wait for a load that they would have begun themselves
                    own = self._begin(parameters, is_waited_for=self.state in ("registered", "idle"))
                    # an unload that runs waits for the load that runs
                    running = self._unloading if self._loading is None else self._loading.part
                assert running is not None  # else it would have begun
                if own is not None:
                    io.spawn(running)
                await io.wait(running.ended)
        if own.error is not None:
            raise ModelFailed(f"failed to load {self._label}: see the server's log") from own.error
        if own.action == "discard":
            error = self.make_refusal()
            raise (
                error
                if isinstance(error, NotFound)
                else NotReady(f"model {self._label} was unloaded while it was loading")
            )

    def _begin_if(self, *states: State, is_waited_for: bool = True) -> _Load | None:
        """Begin a load if the model is in one of these states, also if its load was lost or cancelled. The
        caller holds the lock."""
        self._end_lost()
        if self.state not in states:
            return None
        return self._begin(
            self._parameters if self.state == "idle" else LoadParameters(), is_waited_for=is_waited_for
        )

    def _begin(self, parameters: LoadParameters, *, is_waited_for: bool) -> _Load | None:
        """Begin a load, which the caller spawns; None if another one or an unload runs. The caller holds the
        lock."""
        action = self._move_state("load")
        if action == "refuse":
            raise self.make_refusal()
        if action == "wait":
            return None
        loading = self._loading = _Load(is_waited_for=is_waited_for)
        loading.part = Part(lambda io: self._load(io, loading, parameters))
        # if it was cancelled before it began
        loading.part.ended.then(partial(self._end_load, loading, "cancelled"))
        return loading

    def _end_lost(self) -> None:
        """End a load or an unload whose event loop was closed, or whose thread a fork has left behind. The
        caller holds the lock."""
        lost = self._unloading if self._loading is None else self._loading.part
        while lost is not None and lost.is_lost():
            lost.ended.set()  # which ends that load or unload; an unload may begin then
            lost = self._unloading

    async def _load(self, io: IO, loading: _Load, parameters: LoadParameters) -> None:
        event: Event = "cancelled"
        loaded = None
        try:
            since = time.monotonic()
            loaded = await self._loader.load(io, parameters)
            self.load_seconds = time.monotonic() - since
            event, self.obstacle = "loaded", ""
            logger.info("model %s is loaded after %.1f s", self._label, self.load_seconds)
        except Exception as error:
            event, loading.error = "raised", error
            _log_failure(error, self._label, self.state, self.obstacle)
            self.obstacle = str(error) if isinstance(error, NotYet) else ""
            self._again_at = time.monotonic() + _AGAIN_SECONDS
        finally:
            replaced = self._end_load(loading, event, loaded)
            if self.idle_unload is not None and loading.action == "serve" and loaded is not None:
                self._parameters = parameters
                self.idle_unload.watch(self, loaded.uses, io.make_spawner())
            loading.part.ended.set()  # those who wait for it do not need the unload that follows
            # its error refers to this frame: the cycle would live until the next garbage collection
            del loading
        if replaced is not None:
            io.spawn(Part(lambda io: self._retired.unload(io, replaced)))

    def _end_load(self, loading: _Load, event: Event, loaded: Handler | None = None) -> Handler | None:
        """End a load. Returns the handler that the new one replaces if `unload=` must be called with it."""
        with self._lock:
            if self._loading is not loading:
                return None
            self._loading = None
            loading.action = self._move_state(event)
            if loaded is not None and loading.action == "discard":
                self._retired.add(loaded)
            elif loaded is not None:
                self._describe(loaded)
                replaced, self.handler = self.handler, loaded
                if replaced is not None and self._loader.is_factory and self._loader.has_unload:
                    self._retired.add(replaced)
                    return replaced
            return None

    # Unloading

    def unload(self, event: Literal["idle", "unload", "unregister"]) -> Part | None:
        """Let no request begin any more. Returns the unloading, which the caller spawns; None if there is
        nothing to do."""
        with self._lock:
            self._end_lost()
            if self._move_state(event) != "begin to unload":
                return None
            handler, self.handler = self.handler, None
            if handler is not None:
                self._retired.add(handler)
            loading = self._loading and self._loading.part
            unloading = self._unloading = Part(lambda io: self._retired.unload_all(io, loading))
            unloading.ended.then(self._end_unload)
            return unloading

    async def wait_until_unloaded(self, io: IO) -> None:
        unloading = self._unloading
        with self._loader.guard_wait() as may_wait:
            if unloading is not None and may_wait:
                await io.wait(unloading.ended)

    def forget(self) -> None:
        """Let the next start of the server load the model again."""
        with self._lock:
            stays = self._loader.has_unload or not self._loader.has_load
            if not (stays and self.state == "ready") and self._move_state("server stopped") == "forget":
                self.handler = None

    def _end_unload(self) -> None:
        with self._lock:
            if self._loading is not None:  # it was cancelled while it waited for this load
                self._loading.part.ended.then(self._end_unload)
                return
            self._unloading = None
            self._retired.forget()
            self._move_state("unload ended")
