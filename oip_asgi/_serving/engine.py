"""One server: its options, its models, its metadata, its start and stop; whether it and its models are
ready, and what the log says of that. Knows no transport and no wire format.

Asking whether models are ready begins to load those that are only registered. The caller waits for that, or
gets the answer "not ready" at once.
"""

from __future__ import annotations

import json
import math
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any, Final, NamedTuple, TypedDict

import msgspec

from .._codecs.content_types import AnyCodec, Codecs
from .._extensions.shared_memory import Regions, SharedMemory
from .._io import IO, DeadlinePassed, Part
from .._models.loader import call_hook
from .._models.model import Model, Observer, Registry
from .._models.statistics import Statistics
from .._protocol import schemas
from .._protocol.context import Access, Action, MakeAccess
from .._protocol.errors import InferenceError, NotFound, error_text, escape, log_raised, logger
from .._protocol.limits import SHORT_BODY
from .._protocol.options import BOOLEAN, BYTES, CALLABLE, Check, check_options, instance_of, number, text
from .._protocol.specs import LABELS, OTHER_DATATYPES, TensorSpec
from .guard import Authorize, Guard
from .observing import Tracer, record_unknown

_ORIGIN: Final = re.compile("https?://[^/?#@\\s]+")
_ORIGINS: Final = Check(
    'a list of origins, each as browsers send it, such as ["https://console.example"]',
    lambda value: (
        isinstance(value, (list, tuple))
        and all(isinstance(each, str) and _ORIGIN.fullmatch(each) for each in value)
    ),
)
_ALIVE: Final = number(
    "a positive number of seconds, or None for never", lambda value: 0 < value < float("inf")
)
_SECONDS: Final = number("a number of seconds, 0 or more", lambda value: value >= 0)


class ServerKeywords(TypedDict, total=False):
    """The keywords of `InferenceServer` for type checkers, as `ServerOptions` has them."""

    max_body_bytes: int | None
    max_json_bytes: int | None
    debug: bool
    codecs: Sequence[AnyCodec]
    model_control: bool
    docs: bool
    authorize: Authorize | None
    trusted_origins: Sequence[str]
    shutdown_timeout: float
    stream_keep_alive: float | None
    server_timing: bool
    shared_memory: SharedMemory | None


class ServerOptions(msgspec.Struct, frozen=True, eq=False):
    """The options of `InferenceServer`. Raises TypeError or ValueError, with what to write, if one cannot
    be."""

    name: Annotated[str, text('name="models"')] = "oip_asgi"
    version: Annotated[str | None, text('version="1.0.0"')] = None
    max_body_bytes: Annotated[int | None, BYTES] = 134_217_728
    max_json_bytes: Annotated[int | None, BYTES] = 33_554_432
    debug: Annotated[bool, BOOLEAN] = False
    codecs: Sequence[AnyCodec] = ()
    model_control: Annotated[bool, BOOLEAN] = False
    docs: Annotated[bool, BOOLEAN] = True
    authorize: Annotated[Authorize | None, CALLABLE] = None
    trusted_origins: Annotated[Sequence[str], _ORIGINS] = ()
    shutdown_timeout: Annotated[float, _SECONDS] = 10.0
    stream_keep_alive: Annotated[float | None, _ALIVE] = 15.0
    server_timing: Annotated[bool, BOOLEAN] = False
    shared_memory: Annotated[SharedMemory | None, instance_of(SharedMemory, "SharedMemory(allow=[...])")] = (
        None
    )

    def __post_init__(self) -> None:
        check_options(self, "")


_EXTENSIONS: Final = (
    "binary_tensor_data",
    "classification",
    "model_configuration",
    "parameters",
    "statistics",
)
"""Triton's names of what every server supports."""

_UNLOAD_SECONDS: Final = 1.0
"""When the server stops, all `unload=` together have at least this time, even if the calls took all of the
timeout."""

_UNDECLARED: Final = "undeclared_inputs"
"""The metadata's parameter with the names of inputs whose datatype and shape are not declared."""


class Security(NamedTuple):
    """How clients must identify themselves to the host, in the words of OpenAPI."""

    schemes: dict[str, Any]  # the security schemes by name
    needed: list[Any]  # what an operation needs
    open_paths: str
    """A regular expression for the paths that are open to everybody. It matches what follows the mount and
    its slash."""


class Engine:
    """The protocol without any transport."""

    def __init__(
        self,
        options: ServerOptions,
        *,
        version: str,
        codecs: Codecs,
        regions: Regions,
        call_here: Callable[[Callable[[], Any]], Any],
        is_on_loop: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = options
        self.version = version
        limits = [limit for limit in (options.max_body_bytes, options.max_json_bytes) if limit is not None]
        self.short_body = min([SHORT_BODY, *limits])
        """A body of so many bytes may be read before anything is decided: no limit refuses it."""
        self.codecs = codecs
        self.regions = regions
        self.call_here = call_here
        self.is_on_loop = is_on_loop
        self.clock = clock
        self.models = Registry(names_are_told=options.authorize is None)
        self.stopping = False
        self.draining = False
        """Whether readiness is refused, and nothing else: a proxy is to send its requests elsewhere."""
        self.unknown = Statistics()
        """Inference requests for models that nobody knows, and those that `authorize=` refuses."""
        self.guard = None
        if options.authorize is not None:
            self.guard = Guard(options.authorize, call_here, self.unknown, clock, self._find_timeout)
        """Asks `authorize=` before a client does anything with a model. None if the server has none."""
        self.tracer: Tracer | None = None
        """Begins the span of each inference request; None if nobody traces."""
        self.observers: list[Observer] = []
        """One for each `observe`."""
        self.finders: list[Callable[[], object]] = []
        """Functions that register new models. They are called before a client lists or loads models, if it
        may load some."""
        self.security: Security | None = None
        """What `OIPApp.install` knows of the host's authentication, for the OpenAPI document."""
        self.document: tuple[list[object], bytes] | None = None
        """The last OpenAPI document, which `_http.exchange` keeps here, and what it was made from."""
        self.lock = threading.Lock()
        self.blocker: Model | None = None
        """The model that keeps the server from being ready, as the log says. It is written within the
        lock."""

    def _find_timeout(self, access: Access) -> float:
        model = None if access.model is None else self.models.get(access.model, access.version)
        return math.inf if model is None else model.timeout

    async def find_new(self, io: IO) -> None:
        """Let the finders register what is new, if clients may load models."""
        for finder in self.finders if self.options.model_control else ():
            try:
                await call_hook(io, finder)
            except Exception as error:
                log_raised(error, "a function of discover() raised, so what is new may be missing")

    def find_for_inference(self, name: str, version: str | None) -> Model:
        """Find a model for an inference request. Count the request if there is no such model."""
        try:
            return self.models.find(name, version)
        except NotFound as error:
            record_unknown(self.unknown, error)
            raise

    async def find_visible(
        self, io: IO, make_access: MakeAccess, action: Action | None = None
    ) -> list[Model]:
        """Find the models that a client may see in lists: those of which it may read the metadata, and do
        `action` too."""
        models = list(self.models)
        if self.guard is not None:
            models = await self.guard.find_allowed(io, models, make_access, "metadata")
            if action is not None:
                models = await self.guard.find_allowed(io, models, make_access, action)
        return models

    def describe(self) -> schemas.ServerMetadata:
        """Return the server's metadata, with the names of the extensions that it supports, given its
        options."""
        names = list(_EXTENSIONS)
        if self.options.model_control:
            names += ["model_repository", "model_repository(unload_dependents)"]
        if self.regions.is_on:
            names.append("system_shared_memory")
        return schemas.ServerMetadata(self.options.name, self.version, sorted(names))

    def describe_model(self, model: Model) -> schemas.ModelMetadata:
        """Return a model's metadata, with all versions of its name; with `authorize=`, only with its own
        version."""
        options, versions = model.options, self.models.list_versions(model.name)
        if self.guard is not None:
            versions = [version for version in versions if version == model.version]
        # which are not checked
        outputs = [replace(spec, minimum=None, maximum=None) for spec in model.outputs]
        document = schemas.ModelMetadata(
            model.name, model.platform, _describe_tensors(model.inputs), _describe_tensors(outputs)
        )
        parameters: schemas.Parameters = {}
        if options.content_type is not None:
            parameters["content_type"] = options.content_type
        # an entry of `inputs` must have a datatype, and these were declared without one
        if model.binding.inputs.undeclared:
            parameters[_UNDECLARED] = ", ".join(model.binding.inputs.undeclared)
        if parameters:
            document.parameters = parameters
        if versions:
            document.versions = versions
        return document

    async def start(self, io: IO) -> None:
        """Load the models that are to load at the start, all at the same time."""
        begun: list[Part] = []
        try:
            for model in self.models:
                loading = model.lifecycle.begin_to_load(io, at_start=True)
                if loading is not None:
                    begun.append(loading)
            for model in self.models:
                await model.lifecycle.wait_until_loaded(io, at_start=True)
        except BaseException:  # the host gives up starting
            for loading in begun:
                loading.cancel()
            raise

    async def stop(self, io: IO, seconds: float) -> None:
        """Refuse new requests, and give the others so many seconds to finish. After that, refuse requests
        that still wait for a slot."""
        self.stopping = True
        deadline = self.clock() + seconds
        for model in self.models:
            model.limiter.hold_back_no_longer()
        for model in self.models:
            try:
                await io.wait(model.limiter.make_idle_signal(), deadline)
            except DeadlinePassed:
                model.limiter.refuse_waiting(is_unloaded=False)
                logger.warning(
                    "%s still runs %g seconds after the server was told to stop, so it is left behind",
                    model,
                    seconds,
                )
        if self.observers:
            await self._finish_observers(io, deadline)
        await self._unload_all(io, max(deadline, self.clock() + _UNLOAD_SECONDS))

    def count_drops(self) -> Mapping[tuple[str, str | None], int]:
        """How many observations were dropped, by the name and the version of the model."""
        counts = Counter[tuple[str, str | None]]()
        for observer in self.observers:
            counts.update(observer.count_drops())
        return counts

    async def _finish_observers(self, io: IO, deadline: float) -> None:
        """Wait until the observers have got all observations."""
        # a request that ran in a thread is observed back on its event loop, after its slot was given back:
        # this waits for a thread too
        with suppress(DeadlinePassed):  # hooks may block all threads
            await io.run(lambda: None, "hook", deadline=deadline)
        for observer in self.observers:
            with suppress(DeadlinePassed):
                await io.wait(observer.make_idle_signal(), deadline)
            observer.drop()

    async def _unload_all(self, io: IO, deadline: float) -> None:
        """Call `unload=` of the models that have no call left."""
        models = [model for model in self.models if model.loader.has_unload and not model.limiter.running]
        begun = [
            (model, unloading)
            for model in models
            if (unloading := model.lifecycle.unload("unload")) is not None
        ]
        for _, unloading in begun:
            io.spawn(unloading)
        for model, unloading in begun:
            try:
                await io.wait(unloading.ended, deadline)
            except DeadlinePassed:
                logger.warning(
                    "%s: unload= has not returned when the server stopped, so it is left behind", model
                )

    def finish_stop(self) -> None:
        """Reset everything after nothing runs any more. The next start or the next request loads the models
        again."""
        for model in self.models:
            model.lifecycle.forget()
        self.regions.unregister(None)
        self.stopping = self.draining = False


def _describe_tensors(specs: Sequence[TensorSpec]) -> list[schemas.MetadataTensor]:
    described = [schemas.MetadataTensor(spec.name, spec.datatype, list(spec.shape)) for spec in specs]
    for document, spec in zip(described, specs, strict=True):
        others = {} if spec.other_datatypes is None else {OTHER_DATATYPES: spec.other_datatypes}
        labels = {} if spec.labels is None else {LABELS: json.dumps(spec.labels, ensure_ascii=False)}
        if spec.parameters or spec.bounds or others or labels:
            document.parameters = {**spec.parameters, **others, **labels, **spec.bounds}
    return described


# Whether the server and its models are ready

_PAUSED: Final = ("unloading", "unloaded")
"""States of models that were unloaded on purpose."""


async def is_ready(engine: Engine, io: IO) -> bool:
    """True if all models are ready but those unloaded on purpose; False without models."""
    return await find_blockers(engine, io) is None


async def find_blockers(engine: Engine, io: IO, *, waits: bool = True) -> list[Model] | None:
    """Find the models because of which `is_ready` is False; none, if it is because of none. None if it is
    True."""
    if engine.stopping or engine.draining:
        return []
    models = list(engine.models)
    if not models:
        return []
    for model in models:
        model.lifecycle.begin_to_load(io)
    blockers: list[Model] = []
    for model in models:
        if model.lifecycle.state in _PAUSED:
            continue
        if blockers and not model.lifecycle.is_ready:  # the answer is known: it waits for no other load
            blockers.append(model)
            continue
        reason = await _find_reason(engine, io, model, waits=waits)
        if reason is not None:
            # once, as probes ask often; a failed load is in the log already
            if (
                not blockers
                and not engine.stopping
                and model.lifecycle.state != "failed"
                and _replace_blocker(engine, model)
            ):
                logger.warning("the server is not ready, because of %s: %s", model, escape(reason))
            blockers.append(model)
    if blockers:
        return blockers
    if engine.blocker is not None and _replace_blocker(engine, None):
        logger.warning("the server is ready again")
    return None


def say_leaving(engine: Engine) -> str:
    """Why neither the server nor its models are ready, if it stops or drains; else empty."""
    return (
        "the server is stopping" if engine.stopping else "the server is draining" if engine.draining else ""
    )


async def is_model_ready(engine: Engine, io: IO, model: Model, *, waits: bool = True) -> bool:
    """True if a model is loaded, and its `ready=`, if any, says so."""
    return await _find_reason(engine, io, model, waits=waits) is None


async def _find_reason(engine: Engine, io: IO, model: Model, *, waits: bool) -> str | None:
    """Why a model is not ready, for the log; None if it is, as one that is idle, whose `ready=` has nothing
    to ask."""
    if engine.stopping or engine.draining:
        return say_leaving(engine)
    if model.lifecycle.is_idle:
        return None
    model.lifecycle.begin_to_load(io)
    if waits:
        await model.lifecycle.wait_until_loaded(io)
    if not model.lifecycle.is_serving:
        return model.lifecycle.obstacle or "it is still loading"
    if model.ready is None:
        return None
    try:
        return None if await call_hook(io, model.ready) else "its ready= says so"
    except InferenceError as error:
        return error_text(error)
    except Exception as error:
        log_raised(error, "%s: ready= raised, so it counts as not ready", model)
        return "its ready= raised"


def _replace_blocker(engine: Engine, model: Model | None) -> bool:
    """Note which model keeps the server from being ready. False if that is known already."""
    with engine.lock:
        before, engine.blocker = engine.blocker, model
    return before is not model
