"""A registered model: its options, what it declares, its slots, its lifecycle, its numbers and its observers.
Knows no requests and no transport."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from .._codecs.content_types import Codecs
from .._extensions.cache import Cache
from .._io import Signal
from .._protocol.context import Observation
from .._protocol.log import logger
from .arguments import Arguments, Binding
from .callables import kind_of
from .estimators import name_platform
from .handler import Handler, make_handler
from .inputs import Input, make_inputs
from .lifecycle import Lifecycle
from .limiter import Batches, Limiter
from .loader import Loader
from .model_options import CONCURRENCY, NO_TIMEOUT, ModelOptions
from .statistics import Statistics

_LONG_DELAY: Final = 1.0
"""Seconds. A longer delay, only to fill a batch, was probably meant in milliseconds."""


class Observer(Protocol):
    """Hands what is put into its queue to one function of a user."""

    def hears(self, model: str, /) -> bool:
        """Whether it observes the models of a name."""

    def wants_one(self) -> bool:
        """Whether it wants the observation of a request: asked once for each, before anything of the request
        is copied."""

    def put(self, observation: Observation, /) -> None:
        """Put an observation into the queue, if there is room."""

    def make_idle_signal(self) -> Signal:
        """A signal that is set once all that is in the queue was handed over."""

    def drop(self) -> None:
        """Drop what is in the queue, and log how much that was."""

    def count_drops(self) -> Mapping[tuple[str, str | None], int]:
        """How many observations were dropped, by the name and the version of the model."""

    def stop(self) -> None:
        """End its thread."""


class Model:
    def __init__(self, options: ModelOptions, codecs: Codecs) -> None:
        self.options = options
        self.name = options.name
        self.version = options.version
        self.inputs = tuple(options.inputs)
        self.outputs = tuple(options.outputs)
        self.streams, self.platform = False, "python"
        declared = [Input(spec.name, spec, content_type=spec.content_type) for spec in self.inputs]
        self.binding = Binding(
            inputs=make_inputs(declared, None if declared else "value"), arguments=Arguments(), codecs=codecs
        )
        """How its function is called, as far as that is known: `load=` may return another function."""
        self.timeout = _to_seconds(options.timeout)
        self.stream_timeout = _to_seconds(options.stream_timeout)
        self.has_batches = options.max_batch_size is not None
        """Whether requests may share a call."""
        self.limiter = self._make_limiter()
        if options.max_batch_size is not None:
            self._warn_of_queue(options.max_batch_size)
            if options.max_batch_delay > _LONG_DELAY:
                logger.warning(
                    "%s: max_batch_delay=%g is in seconds, for which requests are held back: for "
                    "milliseconds, write %g",
                    self, options.max_batch_delay, options.max_batch_delay / 1000,
                )  # fmt: skip
        self.cache = None if options.cache is None else Cache(options.cache)
        self.statistics = Statistics()
        self.observers: tuple[Observer, ...] = ()
        self.loader = Loader(options, codecs)
        first = None
        if options.function is not None:
            # a function that can never be a model fails here, not when it is loaded
            first = make_handler(options.function, options, codecs, is_loaded=options.load is None)
            self._describe(first)
        self.lifecycle = Lifecycle(
            options.label, self.loader, None if self.loader.has_load else first, self._describe, self.limiter
        )

    def _make_limiter(self) -> Limiter:
        options = self.options
        # left out, it is 1 for batches; others have that of their handler's kind, see `_describe`
        bounds = options.max_concurrency or 1, options.max_queue
        if options.max_batch_size is None:
            return Limiter(*bounds)
        return Batches(*bounds, options.max_batch_size)

    def make_stand_in(self, handler: Handler) -> Model:
        """A copy of this model, with slots and numbers of its own. A handler that does not serve yet answers
        its requests."""
        stand_in = copy.copy(self)
        stand_in.observers = ()
        stand_in.cache, stand_in.statistics, stand_in.limiter = None, Statistics(), self._make_limiter()
        stand_in.lifecycle = Lifecycle(
            self.options.label, self.loader, handler, stand_in._describe, stand_in.limiter
        )
        stand_in._describe(handler)
        return stand_in

    def _describe(self, handler: Handler) -> None:
        """Take over the description of the handler that answers requests from now on."""
        if self.cache is not None:
            self.cache.clear()
        self.streams, self.platform = handler.streams, name_platform(handler.function)
        self.inputs, self.outputs = map(tuple, handler.shown)
        # last: who sees a new one, as OpenAPI's documents do, finds the rest of its description too
        self.binding = handler.binding
        if self.options.max_concurrency is None and not self.has_batches:
            self.limiter.set_max_concurrency(CONCURRENCY[handler.kind])

    def _warn_of_queue(self, most: int) -> None:
        limiter = self.limiter
        let_in = limiter.max_concurrency + limiter.max_queue
        if let_in < most:
            logger.warning(
                "%s: at most %d requests are let in, max_concurrency=%d and max_queue=%d, so requests of "
                "one row never fill a batch of "
                "max_batch_size=%d: raise max_queue",
                self, let_in, limiter.max_concurrency, limiter.max_queue, most,
            )  # fmt: skip

    @property
    def ready(self) -> Callable[[], Any] | None:
        """What says whether it is ready; what `load=` returned may bring it, and takes it along when it is
        unloaded."""
        handler = self.lifecycle.handler
        return self.options.ready if handler is None else handler.options.ready

    @property
    def is_async(self) -> bool:
        """Whether its function runs on an event loop, or streams; a function that `load=` returns may do
        so."""
        return self.options.function is None or kind_of(self.options.function, "thread") != "thread"

    def __str__(self) -> str:
        return str(self.options)

    def __repr__(self) -> str:
        return f"<{self}: {self.lifecycle.state}>"


def _to_seconds(timeout: float | None) -> float:
    return math.inf if timeout is None or timeout >= NO_TIMEOUT else timeout
