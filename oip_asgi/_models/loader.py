"""Loads and unloads one model: calls its hooks, and makes its handler. Knows no states and no requests."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import msgspec

from .._codecs.content_types import Codecs
from .._io import IO
from .._protocol.errors import ModelFault, log_raised, show
from .callables import is_async, refuse_coroutine
from .handler import Handler, Loaded, make_handler
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
        self.prove: Callable[[IO, Handler], Coroutine[Any, Any, None]] | None = None
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
        """Call `load=` if there is one, and return the handler when it is proved. Raises what `load=` raised,
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
            if self.prove is not None:
                await self.prove(io, handler)
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
