"""How one model is loaded and unloaded: calls of `load=` and `unload=`, and what comes of them. Knows no states and no requests."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import msgspec

from .._codecs.registry import Codecs
from .._protocol.effects import Steps
from .._protocol.errors import ModelFault, shown
from .._protocol.log import log_raised
from .callables import is_async
from .handler import Handler
from .hooks import call_hook, wants_argument
from .options import ModelOptions

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class LoadParameters(msgspec.Struct, frozen=True, eq=False):
    """What a request to load a model sends along: a `load=` with one parameter receives it. Empty where nothing was sent.

    Args:
        config: The JSON object of the parameter `config`.
        files: The bytes of each parameter `file:<path>`, by path.
        parameters: All other parameters.

    Specification: Triton's Model Repository Extension, Load.
    """

    config: Mapping[str, Any] = _NOTHING
    files: Mapping[str, bytes] = _NOTHING
    parameters: Mapping[str, str | int | bool | bytes | float] = _NOTHING

    def __bool__(self) -> bool:
        return bool(self.config or self.files or self.parameters)


class Loader:
    """How one model is loaded and unloaded. Raises TypeError if `load=` or `unload=` cannot be called with what they get."""

    def __init__(self, options: ModelOptions, codecs: Codecs) -> None:
        self._options = options
        self._codecs = codecs
        load, unload = options.load, options.unload
        self.takes_parameters = load is not None and wants_argument(load, LoadParameters, f"{options}: load=")
        self.is_factory = options.function is None
        self._unload_takes_function = unload is not None and wants_argument(unload, None, f"{options}: unload=")
        if self._unload_takes_function and not self.is_factory:
            raise TypeError(f"{options}: unload= has a parameter for what load= returned, but the function is registered: leave one out")

    @property
    def has_load(self) -> bool:
        """Whether there is anything to load."""
        return self._options.load is not None

    @property
    def has_unload(self) -> bool:
        """Whether something must be called when the model is unloaded."""
        return self._options.unload is not None

    def load(self, parameters: LoadParameters) -> Steps[Handler]:
        """Call `load=` if there is one, and return the handler. Raises what `load=` raised, or why what it returned cannot be a model."""
        options, made = self._options, None
        if options.load is not None:
            made = yield from call_hook(options.load, *((parameters,) if self.takes_parameters else ()))
        if options.function is None:
            if made is None:
                raise ModelFault(f"{options}: load= returned None: return the function that answers, or register one beside load=")
            return Handler(made, options, self._codecs)
        if made is not None:
            raise ModelFault(
                f"{options}: load= returned {shown(made)} beside a registered function, so nobody would call it: return None, "
                f"or leave the function out, as in server.register({options.name!r}, load=...)"
            )
        return Handler(options.function, options, self._codecs)

    def unload(self, handler: Handler, claim: Callable[[], bool]) -> Steps[None]:
        """Call `unload=` for a handler if `claim`, which is asked just before, says so. What `unload=` raises is logged."""
        unload = self._options.unload
        if unload is None:
            return
        called = partial(unload, handler.function) if self._unload_takes_function else unload

        async def call_async() -> None:
            if claim():
                await called()

        def call() -> Any:
            return called() if claim() else None

        try:
            yield from call_hook(call_async if is_async(unload) else call)
        except Exception as error:
            log_raised(logging.ERROR, error, "%s: unload= raised", self._options)
