"""The life of one model: its state, the function that it was loaded to, and its loads and unloads. Only one of them runs at a time, and
all who wait for a load wait for the same one. Knows no requests.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, final

from ..effects import Spawn, Steps, Wait
from ..errors import ModelFailed, NotReady
from ..log import log_raised
from .handler import Handler
from .loader import Loader, LoadParameters

State: TypeAlias = Literal["registered", "loading", "ready", "reloading", "failed", "unloading", "unloaded"]
"""A model with `load=` is registered first; one without is ready from the start. While it is reloading, what was loaded before serves."""

Event: TypeAlias = Literal["load", "loaded", "raised", "abandoned", "unload", "let go", "forget"]

_TRANSITIONS: Final[Mapping[tuple[State, Event], State]] = MappingProxyType(
    {
        ("registered", "load"): "loading",
        ("failed", "load"): "loading",
        ("unloaded", "load"): "loading",
        ("ready", "load"): "reloading",
        ("loading", "loaded"): "ready",
        ("loading", "raised"): "failed",
        ("loading", "abandoned"): "registered",
        ("reloading", "loaded"): "ready",
        ("reloading", "raised"): "ready",
        ("reloading", "abandoned"): "ready",
        ("registered", "unload"): "unloaded",
        ("failed", "unload"): "unloaded",
        ("loading", "unload"): "unloading",
        ("ready", "unload"): "unloading",
        ("reloading", "unload"): "unloading",
        ("unloading", "loaded"): "unloading",
        ("unloading", "raised"): "unloading",
        ("unloading", "abandoned"): "unloading",
        ("unloading", "let go"): "unloaded",
        ("ready", "forget"): "registered",
        ("failed", "forget"): "registered",
        ("unloaded", "forget"): "registered",
    }
)


@final
class _Loading:
    """One load.

    Args:
        is_waited_for: Whether requests that come meanwhile wait for it.
    """

    spawn: Spawn

    def __init__(self, is_waited_for: bool) -> None:
        self.is_waited_for = is_waited_for
        self.error: Exception | None = None


class Life:
    """The state of one model, and what answers its requests.

    Args:
        called: What the model is called, for the log.
        loader: How it is loaded and let go.
        handler: What answers from the start; None where it is to be loaded first.
        describe: Called with what answers from now on, before it does.
    """

    def __init__(self, called: str, loader: Loader, handler: Handler | None, describe: Callable[[Handler], None]) -> None:
        self.state: State = "registered" if handler is None else "ready"
        self.has_failed_to_reload = False
        self._handler = handler
        self._called = called
        self._loader = loader
        self._describe = describe
        self._lock = threading.RLock()
        self._loading: _Loading | None = None
        self._unloading: Spawn | None = None
        self._unwanted: list[Handler] = []
        self._replaced: list[Handler] = []
        self.load_seconds: float | None = None
        """How long the last load took that succeeded; None where there was none."""

    def _move(self, event: Event) -> None:
        self.state = _TRANSITIONS[self.state, event]

    @property
    def is_serving(self) -> bool:
        """Whether requests are answered."""
        return self.state in ("ready", "reloading")

    def lend(self) -> Handler | None:
        """What answers a request, which ends that use of it; None where nothing does."""
        while True:
            handler = self._handler
            if handler is None:
                return None
            handler.uses.items.append(None)
            if handler is self._handler:
                return handler
            handler.uses.end()  # it was replaced meanwhile, and may have been found idle

    # Loading

    def begin(self) -> Spawn | None:
        """The loading of a model that waits for it, for its driver to start; requests that come meanwhile are told that it loads.

        Returns:
            None where it does not wait for that.
        """
        with self._lock:
            return self._begin(LoadParameters(), is_waited_for=False).spawn if self.state == "registered" else None

    def settle(self, *, at_start: bool = False) -> Steps[None]:
        """Load the model where it waits for that, and wait while a request loads it.

        Args:
            at_start: Whether to wait also while the start of the server loads it.
        """
        while self.state in ("registered", "loading"):
            with self._lock:
                self._take_up_lost()
                begun = self._begin(LoadParameters(), is_waited_for=True) if self.state == "registered" else None
                loading = begun or self._loading
            if begun is not None:
                yield begun.spawn
            if loading is None or not (loading.is_waited_for or at_start):
                return
            yield Wait(loading.spawn.ended)

    def load(self, parameters: LoadParameters) -> Steps[None]:
        """Load the model, again where it is loaded, behind a load or an unload that is under way. What was loaded before serves meanwhile.

        Raises:
            ModelFailed: `load=` raised, which is the cause; what was loaded before still serves.
            NotReady: The model was unloaded meanwhile.
        """
        while True:
            with self._lock:
                self._take_up_lost()
                before = self._unloading or (self._loading and self._loading.spawn)
                # a request would have loaded a model that is registered only, and waited for that
                loading = self._begin(parameters, is_waited_for=self.state == "registered") if before is None else None
            if loading is not None:
                break
            assert before is not None  # else it has begun
            yield Wait(before.ended)
        yield loading.spawn
        yield Wait(loading.spawn.ended)
        if loading.error is not None:
            raise ModelFailed(f"{self._called}: load failed, see the server's log") from loading.error
        if self.state in ("unloading", "unloaded"):
            raise NotReady(f"{self._called} was unloaded while it was loading")

    def _take_up_lost(self) -> None:
        """A load or an unload that was cancelled, or whose event loop was closed, ends."""
        loading, unloading = self._loading, self._unloading
        if loading is not None and (loading.spawn.is_lost() or loading.spawn.ended.is_set()):
            loading.spawn.part.close()
            if self._loading is loading:  # it had not even begun
                self._end_load("abandoned", None)
        if unloading is not None and (unloading.is_lost() or unloading.ended.is_set()):
            unloading.part.close()
            if self._unloading is unloading:
                self._end_unload()

    def _begin(self, parameters: LoadParameters, *, is_waited_for: bool) -> _Loading:
        self._move("load")
        loading = self._loading = _Loading(is_waited_for)
        loading.spawn = Spawn(self._run(loading, parameters))
        return loading

    def _run(self, loading: _Loading, parameters: LoadParameters) -> Steps[None]:
        event: Event = "abandoned"
        made = replaced = None
        try:
            begun = time.monotonic()
            made = yield from self._loader.load(parameters)
            self.load_seconds = time.monotonic() - begun
            event = "loaded"
        except Exception as error:
            event, loading.error = "raised", error
            remains = ", so what was loaded before still serves" if self.is_serving else ", so it is not ready"
            log_raised(logging.ERROR, error, "%s: load= raised%s", self._called, remains)
        finally:
            replaced = self._end_load(event, made)
            del loading  # its error knows this frame: together they would live until the next garbage collection
        if replaced is not None and self._loader.is_factory and self._loader.has_unload:
            self._replaced.append(replaced)
            yield Spawn(self._let_go(replaced))

    def _end_load(self, event: Event, made: Handler | None) -> Handler | None:
        """Take in what a load made. Returns what it replaces."""
        with self._lock:
            self._loading = None
            was_serving = self.is_serving
            self._move(event)
            self.has_failed_to_reload = was_serving and event == "raised"
            if made is None:
                return None
            if self.state == "unloading":
                self._unwanted.append(made)
                return None
            self._describe(made)
            replaced, self._handler = self._handler, made
            return replaced

    def _let_go(self, handler: Handler) -> Steps[None]:
        yield Wait(handler.uses.idle())
        with self._lock:
            if handler not in self._replaced:  # the model was unloaded meanwhile, and this with it
                return
        yield from self._loader.unload([handler])
        with self._lock:  # not before: where this is cancelled, the unloading of the model does it
            if handler in self._replaced:
                self._replaced.remove(handler)

    # Unloading

    def unload(self) -> Spawn | None:
        """The unloading of the model, for its driver to start: it answers no request from now on, and those that run come to their end.

        Returns:
            None where nothing is loaded, or it is being unloaded already.
        """
        with self._lock:
            self._take_up_lost()
            if (self.state, "unload") not in _TRANSITIONS:
                return None
            self._move("unload")
            self.has_failed_to_reload = False
            if self.state == "unloaded":
                return None
            handlers = self._replaced if self._handler is None else [*self._replaced, self._handler]
            self._handler, self._replaced = None, []
            self._unloading = Spawn(self._unload(handlers, self._loading))
            return self._unloading

    def until_unloaded(self) -> Steps[None]:
        """Wait while it is being unloaded."""
        unloading = self._unloading
        if unloading is not None:
            yield Wait(unloading.ended)

    def _unload(self, handlers: list[Handler], loading: _Loading | None) -> Steps[None]:
        try:
            if loading is not None:
                yield Wait(loading.spawn.ended)
                handlers += self._unwanted
                self._unwanted.clear()
            for handler in handlers:
                yield Wait(handler.uses.idle())
            yield from self._loader.unload(handlers)
        finally:
            self._end_unload()

    def _end_unload(self) -> None:
        with self._lock:
            self._unloading = None
            self._unwanted.clear()
            self._move("let go")

    def forget(self) -> None:
        """Have the model loaded again at the next start, where there is something to load."""
        with self._lock:
            if (self.state, "forget") in _TRANSITIONS and (self._loader.has_load or self.state != "ready"):
                self._move("forget")
                self._handler = None
                self.has_failed_to_reload = False
