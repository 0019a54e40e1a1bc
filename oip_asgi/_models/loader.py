"""Loads and unloads one model: calls its hooks, makes its handler, and unloads the handlers that get no more
requests, also after `idle_unload=`. Knows no requests, and of a lifecycle only whether it is ready.

With `warm_up=`, what was loaded is called before it serves: by `warm_up` of `_serving/python_calls.py`, which
`register` gives to the loader.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, Literal, Protocol, final

import msgspec

from .._codecs.content_types import Codecs
from .._io import IO, Part, Signal
from .._protocol.errors import ModelFault, log_raised, logger, show
from .callables import is_async, refuse_coroutine
from .handler import Handler, Loaded, make_handler
from .limiter import Limiter, Uses, set_signals
from .model_options import ModelOptions


class LoadParameters(msgspec.Struct, frozen=True, eq=False):
    """What a request to load a model sends along: a `load=` with one parameter receives it. Empty if nothing
    was sent.

    Args:
        config: The JSON object of the parameter `config`.
        files: The bytes of each parameter `file:<path>`, by path.
        parameters: All other parameters.

    Specification: Triton's Model Repository Extension, Load.
    """

    config: Mapping[str, Any] = {}
    files: Mapping[str, bytes] = {}
    parameters: Mapping[str, str | int | bool | bytes | float] = {}

    def __bool__(self) -> bool:
        return bool(self.config or self.files or self.parameters)


class _Hook(msgspec.Struct, eq=False):
    """One run of a `load=` or `unload=`. What it has started, such as a task, may live longer."""

    loader: Loader
    is_over: bool = False


_HOOKS: Final[ContextVar[tuple[_Hook, ...]]] = ContextVar("oip_asgi_hooks", default=())
"""The hooks within which this code runs, the outermost first."""


async def call_hook(io: IO, hook: Callable[[], Any]) -> Any:
    """Call `load=`, `unload=` or `ready=`, which may be an `async def`, and return its result."""
    if is_async(hook):
        return await io.call(hook)
    return refuse_coroutine(await io.run(hook, "hook"))


def _takes_argument(hook: Callable[..., Any] | None, where: str) -> bool:
    """Whether a hook takes one argument: it has a positional parameter without a default."""
    try:
        parameters = [] if hook is None else list(inspect.signature(hook).parameters.values())
    except (ValueError, TypeError):  # a callable that is not written in Python
        return False
    if any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters):
        raise TypeError(
            f"{where} has a keyword parameter without a default: it is called with one argument or none"
        )
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = sum(p.default is p.empty for p in positional)
    if required > 1:
        raise TypeError(
            f"{where} has {required} parameters without a default: it is called with one argument or none"
        )
    return required == 1


class Loader:
    """Loads and unloads one model. Raises TypeError if `load=` or `unload=` cannot be called with what they
    get."""

    def __init__(self, options: ModelOptions, codecs: Codecs) -> None:
        self._options = options
        self._codecs = codecs
        self.has_load = options.load is not None or bool(options.warm_up)
        """Whether the model is loaded before it serves: `load=` is called, or its function with examples."""
        self.has_unload = options.unload is not None
        """Whether something is called when the model is unloaded. What `load=` returns may bring it."""
        self.is_factory = options.function is None
        """Whether `load=` returns the function."""
        self.takes_parameters = _takes_argument(options.load, f"{options}: load=")
        self.warm_up: Callable[[IO, Handler], Coroutine[Any, Any, None]] | None = None
        """Calls what was loaded before it serves; it raises if the load has failed with that."""
        self._waits_for: list[Loader] = []
        """The models for whose loads and unloads hooks of this one wait."""
        self._unload_takes_function = _takes_argument(options.unload, f"{options}: unload=")
        if self._unload_takes_function and not self.is_factory:
            raise TypeError(
                f"{options}: unload= has a parameter for what load= returned, but the function is "
                "registered: leave one out"
            )

    @contextmanager
    def guard_wait(self) -> Iterator[bool]:
        """Around code that waits for the model's load or unload. Yields False if it would wait for ever: the
        load or unload waits for a hook that runs this code."""
        within = [run.loader for run in _HOOKS.get() if not run.is_over]
        for loader in within:
            # before it is looked at: two that begin at the same time both see it
            loader._waits_for.append(self)
        try:
            yield not self._waits_for_any(within)
        finally:
            for loader in within:
                loader._waits_for.remove(self)

    def _waits_for_any(self, others: Sequence[Loader]) -> bool:
        """Whether the model is one of the others, or a hook of it waits for one, directly or through other
        models."""
        reached = [self]
        for loader in reached:  # which grows meanwhile
            reached += [each for each in loader._waits_for if each not in reached]
        return any(loader in others for loader in reached)

    async def _call(
        self, io: IO, hook: Callable[..., Any], *args: Any, claim: Callable[[], bool] = lambda: True
    ) -> Any:
        """Call a hook if `claim()`, just before the call, is true. `guard_wait` knows of it while it runs."""
        run = _Hook(self)
        runs = (*_HOOKS.get(), run)

        async def call_async() -> Any:
            _HOOKS.set(runs)  # of a task that does nothing else
            try:
                return await hook(*args) if claim() else None
            finally:
                run.is_over = True

        def call() -> Any:
            token = _HOOKS.set(runs)
            try:
                return hook(*args) if claim() else None
            finally:
                _HOOKS.reset(token)
                run.is_over = True

        return await call_hook(io, call_async if is_async(hook) else call)

    async def load(self, io: IO, parameters: LoadParameters) -> Handler:
        """Call `load=` if there is one, and return the handler when it is warm. Raises what `load=` raised,
        or why its result cannot be a model."""
        options, function = self._options, self._options.function
        returned: Any = None
        if options.load is not None:
            returned = await self._call(io, options.load, *([parameters] if self.takes_parameters else ()))
        if function is None and not callable(returned) and not isinstance(returned, Loaded):
            what = "return the function that answers, such as model.predict, or register one beside load="
            raise ModelFault(f"{options}: load= returned {show(returned)}: {what}")
        if function is not None and returned is not None:
            raise ModelFault(
                f"{options}: load= returned {show(returned)} beside a registered function, so nobody would "
                "call it: return None, "
                f"or leave the function out, as in server.register({options.name!r}, load=...)"
            )
        handler = make_handler(returned if function is None else function, options, self._codecs)
        self.has_unload |= handler.options.unload is not None
        try:
            if self.warm_up is not None:
                await self.warm_up(io, handler)
        except BaseException:
            if io.can_wait():
                await self.unload(io, handler)
            raise
        return handler

    async def unload(self, io: IO, handler: Handler, claim: Callable[[], bool] = lambda: True) -> None:
        """Call `unload=` for a handler if `claim()`, just before the call, is true. What `unload=` raises is
        logged."""
        unload = handler.options.unload
        if unload is None:
            return
        args = [handler.function] if self._unload_takes_function else []
        try:
            await self._call(io, unload, *args, claim=claim)
        except Exception as error:
            log_raised(error, "%s: unload= raised", self._options)


@final
class Retired:
    """The handlers of one model that get no more requests, and whose `unload=` is still to be called."""

    def __init__(self, loader: Loader, limiter: Limiter) -> None:
        self._loader = loader
        self._lock = limiter.lock
        self._handlers: dict[Handler, bool] = {}

    def add(self, handler: Handler) -> None:
        """Keep a handler: all that `load=` made, but a registered function only once. The caller holds the
        lock."""
        if self._loader.is_factory or not self._handlers:
            self._handlers[handler] = True

    async def unload_all(self, io: IO, loading: Part | None) -> None:
        """Call `unload=` for all of them, after a load that runs."""
        if loading is not None:
            await io.wait(loading.ended)
        with self._lock:
            handlers = list(self._handlers)
        for handler in handlers:
            await self.unload(io, handler)

    def forget(self) -> None:
        """Let go of them if the model has no `unload=`. The caller holds the lock."""
        if not self._loader.has_unload:
            self._handlers.clear()

    async def unload(self, io: IO, handler: Handler) -> None:
        """Call `unload=` for a handler as soon as no request uses it. If that is cancelled before the call, a
        later unload calls it."""
        idle = Signal()
        with self._lock:
            handler.uses.idle.append(idle)
            unused = handler.uses.take_idle()
        set_signals(unused)
        await io.wait(idle)
        # one step, so it needs no lock: the first caller gets True, and calls `unload=`
        await self._loader.unload(io, handler, claim=partial(self._handlers.pop, handler, False))


# `idle_unload=`


class _Watched(Protocol):
    """The lifecycle of a model, as far as this knows it."""

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

    def watch(self, lifecycle: _Watched, uses: Uses, begin: Callable[[Part], bool]) -> None:
        """Watch a handler that serves from now on, by its uses. `begin` begins the unload where the load ran;
        False if it cannot."""
        watch = _Watch(self, lifecycle, uses, begin)
        watch.note()
        self.alarm(self.seconds, watch.ring)


class _Watch:
    """Watches one handler as long as it serves. It refers to the handler's uses, not to the handler, which is
    freed with its last use."""

    def __init__(
        self, idle: IdleUnload, lifecycle: _Watched, uses: Uses, begin: Callable[[Part], bool]
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
