"""The model repository: loads, unloads and unregisters models while requests run, and tells their states.
Knows no transport.

Specification: Triton's Model Repository Extension.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from .._io import IO, Part
from .._models.lifecycle import State
from .._models.loader import LoadParameters
from .._models.model import Model
from .._protocol.context import Action
from .._protocol.datatypes import Buffer
from .._protocol.errors import Forbidden, InferenceError, InvalidRequest, NotFound, NotReady, show
from .._protocol.limits import MAX_QUESTION
from .._protocol.schemas import ModelIndex, Parameters
from .._protocol.specs import TensorSpec
from .._serving.engine import Engine
from .._serving.user_code import find_callers
from .common import GrpcMethod, GrpcMethods, Question, RestRoute, decode_question, read_parameters

_FILE: Final = "file:"

_MAX_COMMAS: Final = 100_000
"""In a long body: each decoded member takes a hundred bytes. Files in base64 have no commas."""

PublicState: TypeAlias = Literal[
    "registered", "loading", "ready", "reloading", "idle", "failed", "unloading", "unloaded"
]

_STATES: Final[Mapping[State, tuple[PublicState, str, str]]] = {
    "registered": ("registered", "UNAVAILABLE", "not loaded yet"),
    "loading": ("loading", "LOADING", ""),
    "ready": ("ready", "READY", ""),
    "reloading": ("reloading", "READY", "loading again: what was loaded before serves meanwhile"),
    "idling": ("idle", "READY", "unloaded: the next request loads it again"),
    "idle": ("idle", "READY", "unloaded: the next request loads it again"),
    "waking": ("loading", "READY", "loading again: nobody had called it, and requests wait for that"),
    "failed": ("failed", "UNAVAILABLE", "load failed, see the server's log"),
    "unloading": ("unloading", "UNLOADING", ""),
    "unloaded": ("unloaded", "UNAVAILABLE", "unloaded"),
    "unregistering": ("unloading", "UNLOADING", ""),
    "unregistered": ("unloaded", "UNAVAILABLE", "unloaded"),
}
"""For each state: its name for users, its name in Triton's index, and the reason for it."""

_RELOAD_FAILED: Final[Mapping[State, str]] = {
    "ready": "load failed, see the server's log: what was loaded before still serves",
    "idle": "load failed, see the server's log: the next request tries again",
}


class ModelStatus(msgspec.Struct, frozen=True):
    """What `InferenceServer.models` says of one version of a model.

    Args:
        name: The model's name.
        version: Its version, None for a model without versions.
        state: "registered" before it is loaded; "loading"; "ready"; "reloading", while what was loaded before
            serves; "idle", until the next request loads it again, after `idle_unload=` or a stop of the
            server that could not wait for `unload=`; "failed", if `load=` raised; "unloading", while running
            calls end; "unloaded".
        reason: Why it is in that state, in words; empty if there is nothing to say.
        inputs: What it takes, as far as that is known: a `load=` may say it.
        outputs: What it returns, as far as that is declared.
    """

    name: str
    version: str | None
    state: PublicState
    reason: str
    inputs: Sequence[TensorSpec] = ()
    outputs: Sequence[TensorSpec] = ()


class IndexRequest(msgspec.Struct):
    ready: bool | None = None


class ControlRequest(msgspec.Struct):
    parameters: Parameters | None = None


def read_status(model: Model) -> ModelStatus:
    now, reload_failed = model.lifecycle.state, model.lifecycle.reload_failed
    state, _, reason = _STATES[now]
    reason = _RELOAD_FAILED.get(now, reason) if reload_failed else model.lifecycle.obstacle or reason
    return ModelStatus(model.name, model.version, state, reason, model.inputs, model.outputs)


def list_models(models: Iterable[Model], *, ready: bool) -> list[ModelIndex]:
    """List models, only ready ones if `ready`. This loads nothing, and calls no `ready=`."""
    entries = [(read_status(model), _STATES[model.lifecycle.state][1]) for model in models]
    return [
        ModelIndex(
            name=status.name,
            version=status.version or msgspec.UNSET,
            state=state,
            reason=status.reason or msgspec.UNSET,
        )
        for status, state in entries
        if state == "READY" or not ready
    ]


def list_blockers(models: Iterable[Model]) -> list[ModelIndex]:
    """List models that are not ready, whatever their state is."""
    entries = list_models(models, ready=False)
    for entry in entries:
        if entry.state == "READY":
            entry.state, entry.reason = "UNAVAILABLE", "it is not ready, as the log says"
    return entries


async def load(engine: Engine, io: IO, name: str, version: str | None, parameters: LoadParameters) -> None:
    """Load a model, or all its versions, and wait for the end. The load continues if nobody waits any
    more."""
    models = engine.models.find_versions(name, version)
    for model in models:
        if parameters and not model.loader.takes_parameters:
            raise InvalidRequest(
                f"{model} takes no parameters: its load= has no parameter for them, so send none"
            )
    if engine.stopping:
        raise NotReady(f"model {show(name)} is not loaded: the server is stopping")
    outcomes: list[InferenceError | None] = []
    every = Part(lambda io: _load_each(io, models, parameters, outcomes))
    io.spawn(every)
    await io.wait(every.ended)
    for error in filter(None, outcomes):
        raise error
    if len(outcomes) < len(models):
        raise NotReady(f"model {show(name)} is not loaded: its load was cancelled")


async def _load_each(
    io: IO, models: list[Model], parameters: LoadParameters, outcomes: list[InferenceError | None]
) -> None:
    """Load models one after the other. Adds the outcome of each: its error, or None."""
    for model in models:
        try:
            if model.loader.has_load or not model.lifecycle.is_serving:  # else there is nothing to load again
                await model.lifecycle.load(io, parameters)
            outcomes.append(None)
        except InferenceError as error:
            outcomes.append(error)


def unload(
    engine: Engine, io: IO, name: str, version: str | None, event: Literal["unload", "unregister"] = "unload"
) -> list[Model]:
    """Begin to unload a model, or all its versions, and return them. After "unregister", requests do not find
    it any more."""
    models = (
        engine.models.find_versions(name, version)
        if event == "unload"
        else engine.models.remove(name, version)
    )
    end_models(io, models, event)
    return models


def end_models(
    io: IO, models: list[Model], event: Literal["unload", "unregister"], *, refuses_waiting: bool = True
) -> None:
    """Let models end. Waiting requests are refused, unless another model has replaced this one; running ones
    end first."""
    for model in models:
        unloading = model.lifecycle.unload(event)
        if refuses_waiting:
            model.limiter.refuse_waiting(is_unloaded=True)
        if unloading is not None:
            io.spawn(unloading)
            unloading.ended.then(model.statistics.clear)
            if model.cache is not None:
                unloading.ended.then(model.cache.clear)


async def wait_until_unloaded(
    engine: Engine, io: IO, name: str, version: str | None, event: Literal["unload", "unregister"]
) -> None:
    """`unload` models, and wait until `unload=` has run, but not for a model that this is called by."""
    for model in unload(engine, io, name, version, event):
        if model not in find_callers():
            await model.lifecycle.wait_until_unloaded(io)


# Parameters of requests to load and unload


def _check_control(engine: Engine) -> None:
    if not engine.options.model_control:
        raise Forbidden(
            "this server does not let clients load and unload models: InferenceServer(model_control=True) "
            "does"
        )


def _read_load_parameters(parameters: Mapping[str, Any], sent_as: type[str] | type[bytes]) -> LoadParameters:
    config: dict[str, Any] = {}
    files: dict[str, bytes] = {}
    others: dict[str, Any] = {}
    for name, value in parameters.items():
        if name == "config":
            config = _read_config(value)
        elif name.startswith(_FILE):
            files[_check_path(name)] = _read_file(name, value, sent_as)
        else:
            others[name] = value
    if files and "config" not in parameters:
        raise InvalidRequest("parameters have files but no config: send the parameter config too")
    return LoadParameters(config, files, others)


def _read_config(value: object) -> dict[str, Any]:
    expected = "parameters.config: expected the text of a JSON object"
    if not isinstance(value, str):
        raise InvalidRequest(f"{expected}, but got {show(value)}")
    return decode_question(value, dict[str, Any], None, expected)


def _check_path(name: str) -> str:
    path = name.removeprefix(_FILE)
    # on Windows, a backslash and a drive's colon separate the parts of a path
    parts = path.replace("\\", "/").split("/")
    if not all(parts) or ".." in parts or "." in parts or ":" in path or "\0" in path:
        raise InvalidRequest(
            f"parameters[{show(name)}]: expected a relative path, without '..', such as file:1/model.onnx"
        )
    return path


def _read_file(name: str, value: Any, sent_as: type[str] | type[bytes]) -> bytes:
    """Read the contents of a file: text in base64, or bytes."""
    expected = (
        f"parameters[{show(name)}]: expected {'base64' if sent_as is str else 'the contents of a file'}"
    )
    if not isinstance(value, sent_as):
        raise InvalidRequest(f"{expected}, but got {show(value)}")
    try:
        return value if isinstance(value, bytes) else base64.b64decode(value, validate=True)
    except ValueError as error:
        raise InvalidRequest(f"{expected}: {error}") from None


def _check_unload_parameters(parameters: Mapping[str, Any]) -> None:
    """No model depends on another here, so `unload_dependents` changes nothing."""
    for name, value in parameters.items():
        if name != "unload_dependents":
            raise InvalidRequest(f"unknown parameter {show(name)}: expected unload_dependents, or none")
        if not isinstance(value, bool):
            raise InvalidRequest(f"parameters.unload_dependents: expected a boolean, but got {show(value)}")


# REST: files are base64


async def _rest_index(engine: Engine, question: Question) -> list[ModelIndex]:
    request = await question.read(
        lambda body: decode_question(body, IndexRequest) if body else IndexRequest()
    )
    await find_to_list(engine, question.io, question.find_visible)
    return list_models(await question.find_visible(), ready=bool(request.ready))


async def find_to_list(
    engine: Engine, io: IO, find_visible: Callable[[Action], Coroutine[Any, Any, list[Any]]]
) -> None:
    """Find new models before a list, for a client that may load at least one of those that are known."""
    if (
        engine.finders
        and engine.options.model_control
        and (engine.guard is None or await find_visible("load"))
    ):
        await engine.find_new(io)


async def _rest_load(engine: Engine, question: Question, model: Model) -> None:
    _check_control(engine)
    parameters = await question.read(lambda body: _read_load_parameters(_read_control(body), str))
    await load(engine, question.io, model.name, None, parameters)


async def _rest_unload(engine: Engine, question: Question, model: Model) -> None:
    _check_control(engine)
    _check_unload_parameters(await question.read(_read_control))
    unload(engine, question.io, model.name, None)


def _read_control(body: Buffer) -> Parameters:
    if len(body) > MAX_QUESTION and bytes(body).count(b",") > _MAX_COMMAS:
        raise InvalidRequest("the body has too many members: expected a few parameters, which may be long")
    return (decode_question(body, ControlRequest, None).parameters or {}) if body else {}


REST: Final = (
    RestRoute("POST", "/repository/index", _rest_index),
    RestRoute("POST", "/repository/models/{model}/load", _rest_load, "load"),
    RestRoute("POST", "/repository/models/{model}/unload", _rest_unload, "unload"),
)

# gRPC: KServe's own messages have the model's name where Triton's have the repository's, and two fields in
# their answers where Triton's have none


def _grpc_index(_: Engine, request: Any, visible: list[Model]) -> Any:
    if request.repository_name:
        raise NotFound(f"unknown repository {show(request.repository_name)}: leave repository_name out")
    return {"models": list_models(visible, ready=request.ready)}


async def _grpc_load(engine: Engine, request: Any, io: IO) -> Any:
    name = _find_controlled(engine, request)
    await load(engine, io, name, None, _read_load_parameters(_read_parameters(request), bytes))
    return {"model_name": name, "is_loaded": True}


async def _grpc_unload(engine: Engine, request: Any, io: IO) -> Any:
    name = _find_controlled(engine, request)
    _check_unload_parameters(_read_parameters(request))
    unload(engine, io, name, None)
    return {"model_name": name, "is_unloaded": True}


def find_name(request: Any) -> str:
    """Find the name of the model that a message is to load or unload. KServe's clients send it as the
    repository's."""
    name, repository_name = request.model_name, request.repository_name
    if name and repository_name:
        raise NotFound(f"unknown repository {show(repository_name)}: leave repository_name out")
    return str(name or repository_name)


def _find_controlled(engine: Engine, request: Any) -> str:
    name = find_name(request)
    engine.models.find(name, None)
    _check_control(engine)
    return name


def _read_parameters(request: Any) -> dict[str, Any]:
    return read_parameters(request.parameters, "parameters", " or bytes_param")


GRPC: Final[GrpcMethods] = {
    "RepositoryIndex": GrpcMethod(_grpc_index, lists_models=True),
    "RepositoryModelLoad": GrpcMethod(_grpc_load, "load"),
    "RepositoryModelUnload": GrpcMethod(_grpc_unload, "unload"),
}
