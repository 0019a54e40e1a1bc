"""Models that are loaded, unloaded and unregistered while requests run, and their states as REST, gRPC and Python show them.

Knows no transport.

Specification: Triton's Model Repository Extension.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

import msgspec

from .._models.lifecycle import State
from .._models.loader import LoadParameters
from .._models.model import Model
from .._protocol import schemas
from .._protocol.effects import Spawn, Steps, Wait
from .._protocol.errors import Forbidden, InferenceError, InvalidRequest, NotReady, shown
from .engine import Engine

_FILE: Final = "file:"

PublicState: TypeAlias = Literal["registered", "loading", "ready", "reloading", "failed", "unloading", "unloaded"]

_STATES: Final[Mapping[State, tuple[PublicState, str, str]]] = MappingProxyType(
    {
        "registered": ("registered", "UNAVAILABLE", "not loaded yet"),
        "loading": ("loading", "LOADING", ""),
        "ready": ("ready", "READY", ""),
        "reloading": ("reloading", "READY", "loading again: what was loaded before serves meanwhile"),
        "failed": ("failed", "UNAVAILABLE", "load failed, see the server's log"),
        "unloading": ("unloading", "UNLOADING", ""),
        "unloaded": ("unloaded", "UNAVAILABLE", "unloaded"),
        "unregistering": ("unloading", "UNLOADING", ""),
        "unregistered": ("unloaded", "UNAVAILABLE", "unloaded"),
    }
)
"""For each state: what users call it, what Triton's index calls it, and why the model is in it."""

_RELOAD_FAILED: Final = "load failed, see the server's log: what was loaded before still serves"


class ModelStatus(msgspec.Struct, frozen=True):
    """What `InferenceServer.models` says of one version of a model.

    Args:
        name: The model's name.
        version: Its version, None for a model without versions.
        state: "registered" before it is loaded; "loading"; "ready"; "reloading", while what was loaded before serves; "failed", where
            `load=` raised; "unloading", while calls that run come to their end; "unloaded".
        reason: Why it is in that state, in words; empty where there is nothing to say.
    """

    name: str
    version: str | None
    state: PublicState
    reason: str


def status(model: Model) -> ModelStatus:
    """The status of one model."""
    state, _, reason = _STATES[model.lifecycle.state]
    return ModelStatus(model.name, model.version, state, _RELOAD_FAILED if model.lifecycle.reload_failed else reason)


def index(engine: Engine, *, ready: bool) -> list[schemas.ModelIndex]:
    """The repository's index, of ready models only if `ready`. It loads nothing, and calls no `ready=`."""
    entries = [(status(model), _STATES[model.lifecycle.state][1]) for model in engine.models]
    return [
        schemas.ModelIndex(shown.name, shown.version or msgspec.UNSET, state, shown.reason or msgspec.UNSET)
        for shown, state in entries
        if state == "READY" or not ready
    ]


def check_control(engine: Engine) -> None:
    """Raise Forbidden if clients may not load and unload."""
    if not engine.model_control:
        raise Forbidden("this server does not let clients load and unload models: InferenceServer(model_control=True) does")


def load_parameters(parameters: Mapping[str, Any]) -> LoadParameters:
    """The parameters of a request to load, of those that were sent. Raises InvalidRequest."""
    config: dict[str, Any] = {}
    files: dict[str, bytes] = {}
    others: dict[str, Any] = {}
    for name, value in parameters.items():
        if name == "config":
            config = _config(value)
        elif name.startswith(_FILE):
            files[_path(name)] = _bytes(name, value)
        else:
            others[name] = value
    if files and "config" not in parameters:
        raise InvalidRequest("parameters have files but no config: send the parameter config too")
    return LoadParameters(config, files, others)


def _config(value: object) -> dict[str, Any]:
    expected = "parameters.config: expected the text of a JSON object"
    if not isinstance(value, str):
        raise InvalidRequest(f"{expected}, but got {shown(value)}")
    try:
        return msgspec.json.decode(value, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidRequest(f"{expected}: {error}") from None


def _path(name: str) -> str:
    path = name.removeprefix(_FILE)
    # a backslash and a drive's colon are what separates the parts of a path on Windows
    parts = path.replace("\\", "/").split("/")
    if not all(parts) or ".." in parts or "." in parts or ":" in path or "\0" in path:
        raise InvalidRequest(f"parameters[{shown(name)}]: expected a relative path, without '..', such as file:1/model.onnx")
    return path


def _bytes(name: str, value: object) -> bytes:
    if not isinstance(value, bytes):
        raise InvalidRequest(f"parameters[{shown(name)}]: expected the contents of a file, but got {shown(value)}")
    return value


def load(engine: Engine, name: str, version: str | None, parameters: LoadParameters) -> Steps[None]:
    """Load a model, or all its versions, and wait for the end. The load goes on if nobody waits any more."""
    models = engine.models.named(name, version)
    for model in models:
        if parameters and not model.loader.takes_parameters:
            raise InvalidRequest(f"{model} takes no parameters: its load= has no parameter for them, so send none")
    if engine.stopping:
        raise NotReady(f"model {shown(name)} is not loaded: the server is stopping")
    errors: list[InferenceError] = []
    every = Spawn(_load_each(models, parameters, errors))
    yield every
    yield Wait(every.ended, for_client=True)
    if errors:
        raise errors[0]


def _load_each(models: list[Model], parameters: LoadParameters, errors: list[InferenceError]) -> Steps[None]:
    for model in models:
        if not model.loader.has_load and model.lifecycle.is_serving:
            continue  # there is nothing to load again
        try:
            yield from model.lifecycle.load(parameters)
        except InferenceError as error:
            errors.append(error)


def unload(engine: Engine, name: str, version: str | None) -> Steps[list[Model]]:
    """Begin to unload a model, or all its versions, and return them. Requests that wait are refused; those that run end first."""
    return (yield from _unload(engine.models.named(name, version), "unload"))


def unregister(engine: Engine, name: str, version: str | None) -> Steps[list[Model]]:
    """`unload`, for a model that requests do not find any more."""
    return (yield from _unload(engine.models.remove(name, version), "unregister"))


def _unload(models: list[Model], event: Literal["unload", "unregister"]) -> Steps[list[Model]]:
    for model in models:
        unloading = model.lifecycle.unload(event)
        model.limiter.refuse_waiting(is_unloaded=True)
        if unloading is not None:
            yield unloading
            unloading.ended.then(model.statistics.clear)
            if model.cache is not None:
                unloading.ended.then(model.cache.clear)
    return models


def wait_until_unloaded(models: list[Model]) -> Steps[None]:
    """Wait until models have been unloaded."""
    for model in models:
        yield from model.lifecycle.wait_until_unloaded()


def check_unload_parameters(parameters: Mapping[str, Any]) -> None:
    """Check the parameters of a request to unload. No model depends on another here, so `unload_dependents` changes nothing."""
    for name, value in parameters.items():
        if name != "unload_dependents":
            raise InvalidRequest(f"unknown parameter {shown(name)}: expected unload_dependents, or none")
        if not isinstance(value, bool):
            raise InvalidRequest(f"parameters.unload_dependents: expected a boolean, but got {shown(value)}")
