"""A registered model: its options, what it declares, its slots, its lifecycle, its numbers and its observers.
And the models of one server, by name and version. Knows no requests and no transport.

Which names and versions a model may have is decided in `model_options`.
"""

from __future__ import annotations

import copy
import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, Protocol
from urllib.parse import quote

from .._codecs.content_types import Codecs
from .._extensions.cache import Cache
from .._io import Signal
from .._protocol.context import Observation
from .._protocol.errors import NotFound, describe_expected, find_near, list_names, logger, show
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


# The models of one server

_INTEGER: Final = re.compile("[0-9]+")

UNVERSIONED: Final = "1"
"""What statistics call the version of a model without versions, and what clients may call it: Triton numbers
all versions, and perf_analyzer reads a number there."""


class Registry:
    """The registered models, in the order of their registration. If not `names_are_told`, errors name none: a
    client may not see all.

    Models may come and go while requests look them up, in any thread. So a list of versions is never changed,
    only replaced, and a dict is changed key by key, and copied in one step by those who go through it: a copy
    for each change would cost as much as there are models.
    """

    def __init__(self, *, names_are_told: bool = True) -> None:
        self._names_are_told = names_are_told
        self._models: dict[str, list[Model]] = {}
        """The versions of each name."""
        self._found: dict[tuple[str, str | None], Model] = {}
        """What requests find by a name and a version, or None for a request without one."""
        self.by_path: dict[str, Model] = {}
        """The same by path, such as "/models/iris/versions/2", as clients usually spell it, with the version
        that the path names."""
        self._lock = threading.Lock()

    def add(self, model: Model) -> Model | None:
        """Take a model in, and return the one that it replaces. Raises ValueError if it may not replace one,
        or only some have versions."""
        with self._lock:
            models = self._models.get(model.name, [])
            old = next((other for other in models if other.version == model.version), None)
            if old is not None and not model.options.replace:
                raise ValueError(
                    f"{model} is registered already: give this one another name or version, or write "
                    "replace=True"
                )
            if old is None and models and None in (model.version, models[0].version):
                raise ValueError(
                    f"{model} is registered both with a version and without: give each of them a version"
                )
            self._replace_versions(
                model.name,
                [*models, model] if old is None else [model if other is old else other for other in models],
            )
            return old

    def remove(self, name: str, version: str | None) -> list[Model]:
        """Take a model out, and return it; all versions of the name if none is given. Raises NotFound."""
        with self._lock:
            gone = self.find_versions(name, version)
            self._replace_versions(name, [model for model in self._models[name] if model not in gone])
            return gone

    def _replace_versions(self, name: str, models: list[Model]) -> None:
        before, after = _index_versions(name, self._models.get(name, [])), _index_versions(name, models)
        if models:
            self._models[name] = models
        else:
            del self._models[name]
        for key, model in after.items():
            self._found[key] = model
            self.by_path[path_of(*key)] = model
        for key in before.keys() - after.keys():
            del self._found[key], self.by_path[path_of(*key)]

    def __contains__(self, name: object) -> bool:
        return name in self._models

    def __iter__(self) -> Iterator[Model]:
        return (model for versions in list(self._models.values()) for model in versions)

    def all(self) -> list[tuple[Model, list[Model]]]:
        """For each name the model of requests that name no version, and the models of all versions."""
        return [(find_default(versions), versions) for versions in list(self._models.values())]

    def list_versions(self, name: str) -> list[str]:
        """The versions of a name; none if it has no versions, or is not registered."""
        return [model.version for model in self._models.get(name, ()) if model.version is not None]

    def find_versions(self, name: str, version: str | None) -> list[Model]:
        """The model of this name and version; all versions of the name if none is given. Raises NotFound."""
        model = self.find(name, version)
        return [model] if version is not None else list(self._models.get(name, [model]))

    def get(self, name: str, version: str | None) -> Model | None:
        """The model of this name and version, if there is one."""
        return self._found.get((name, version))

    def find(self, name: str, version: str | None) -> Model:
        """The model of this name and version, or NotFound."""
        model = self._found.get((name, version))
        if model is not None:
            if model.lifecycle.state == "ready" or version is not None or model.lifecycle.will_serve:
                return model
            # the default version does not serve: the highest one that does answers
            serving = [each for each in self._models.get(name, ()) if each.lifecycle.is_ready]
            return find_default(serving) if serving else model
        if version is None or name not in self:
            expected = (
                _describe_names(name, list(self._models))
                if self._names_are_told
                else "the list of models has those that you may see"
            )
            raise NotFound(f"Request for unknown model: {show(name)} is not found: {expected}")
        numbers = self.list_versions(name)
        expected = f"expected {list_names(numbers)}" if numbers else "it has no versions"
        if not self._names_are_told:
            expected = "expected another one"
        # Triton's words for a version that is no number, which one of its examples looks for
        if not _INTEGER.fullmatch(version):
            expected += f"; failed to get model version from specified version string {show(version)}"
        raise NotFound(
            f"Request for unknown model: {show(name)} version {show(version)} is not found: {expected}"
        )


def _index_versions(name: str, models: list[Model]) -> dict[tuple[str, str | None], Model]:
    """What requests for a name find, given all its versions."""
    by_key: dict[tuple[str, str | None], Model] = {(name, model.version): model for model in models}
    if models:
        by_key[name, None] = find_default(models)
        if models[0].version is None:
            by_key[name, UNVERSIONED] = models[0]
    return by_key


@lru_cache(256)  # the same from request to request
def path_of(name: str, version: str | int | None = None) -> str:
    """The path of a model, or of one version, percent-encoded: a slash in a name too."""
    path = f"/models/{quote(name, safe='')}"
    return path if version is None else f"{path}/versions/{quote(str(version), safe='')}"


def _describe_names(name: str, names: list[str]) -> str:
    """What to ask for in the place of a name that is unknown."""
    if not names:
        return "no model is registered: server.model and server.register do that"
    return describe_expected(names, find_near(name, names))


def find_default(models: list[Model]) -> Model:
    """The version for requests that name none: the highest number, else the one that was registered last."""
    if all(model.version is not None and _INTEGER.fullmatch(model.version) for model in models):
        return max(models, key=lambda model: int(model.version or 0))
    return models[-1]
