"""Models that come and go while requests run: what the server says of them, and what it is asked to load, unload and unregister.

REST, gRPC and Python ask the same functions. Knows no transport.

Specification: Triton's Model Repository Extension.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal

import msgspec

from .. import schemas
from ..effects import Spawn, Steps, Wait
from ..errors import Forbidden, InferenceError, InvalidRequest, NotReady, shown
from ..models.life import State
from ..models.loader import LoadParameters
from ..models.model import Model
from .engine import Engine

_FILE: Final = "file:"

_STATES: Final[Mapping[State, tuple[str, str]]] = MappingProxyType(
    {
        "registered": ("UNAVAILABLE", "not loaded yet"),
        "loading": ("LOADING", ""),
        "ready": ("READY", ""),
        "reloading": ("READY", "loading again: what was loaded before serves meanwhile"),
        "failed": ("UNAVAILABLE", "load failed, see the server's log"),
        "unloading": ("UNLOADING", ""),
        "unloaded": ("UNAVAILABLE", "unloaded"),
    }
)
"""What the repository's index calls each state, and why it is that."""

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
    state: Literal["registered", "loading", "ready", "reloading", "failed", "unloading", "unloaded"]
    reason: str


def status(model: Model) -> ModelStatus:
    """What is said of one model."""
    state = model.life.state
    reason = _RELOAD_FAILED if state == "ready" and model.life.has_failed_to_reload else _STATES[state][1]
    return ModelStatus(model.name, model.version, state, reason)


def index(engine: Engine, *, ready: bool) -> list[schemas.ModelIndex]:
    """The repository's index: one entry for each version of each model. It loads nothing, and calls no `ready=`.

    Args:
        engine: The server.
        ready: Whether to leave out what is not ready.
    """
    entries = [(status(model), _STATES[model.life.state][0]) for model in engine.models]
    return [
        schemas.ModelIndex(told.name, told.version or msgspec.UNSET, state, told.reason or msgspec.UNSET)
        for told, state in entries
        if state == "READY" or not ready
    ]


def check_control(engine: Engine) -> None:
    """Refuse to load and unload for clients where that is switched off.

    Raises:
        Forbidden: It is.
    """
    if not engine.model_control:
        raise Forbidden("this server does not let clients load and unload models: InferenceServer(model_control=True) does")


def load_parameters(parameters: Mapping[str, Any]) -> LoadParameters:
    """The parameters of a request to load.

    Args:
        parameters: As they were sent, with the contents of files as `bytes`.

    Raises:
        InvalidRequest: One of them is wrong; the text names it.
    """
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
    """Load a model, and wait until it is loaded. Once begun, that goes on where nobody waits any more.

    Args:
        engine: The server.
        name: The model's name.
        version: Its version; None for all of them.
        parameters: What `load=` gets, where it has a parameter.

    Raises:
        NotFound: There is no such model.
        InvalidRequest: Parameters were sent, and `load=` takes none.
        ModelFailed: `load=` raised; where another version failed too, that is in the log.
        NotReady: The model was unloaded meanwhile, or the server stops.
    """
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
        if not model.loader.has_load and model.life.is_serving:
            continue  # there is nothing to load again
        try:
            yield from model.life.load(parameters)
        except InferenceError as error:
            errors.append(error)


def unload(engine: Engine, name: str, version: str | None) -> Steps[list[Model]]:
    """Begin to unload a model: no call begins from here on, those that wait for a slot are refused, and those that run come to their end.

    Args:
        engine: The server.
        name: The model's name.
        version: Its version; None for all of them.

    Returns:
        The models, whose `life.until_unloaded` waits for the end of that.

    Raises:
        NotFound: There is no such model.
    """
    return (yield from _unload(engine.models.named(name, version)))


def unregister(engine: Engine, name: str, version: str | None) -> Steps[list[Model]]:
    """`unload`, for a model that is not known any more from here on."""
    return (yield from _unload(engine.models.remove(name, version)))


def _unload(models: list[Model]) -> Steps[list[Model]]:
    for model in models:
        unloading = model.life.unload()
        model.limiter.turn_away(is_unloaded=True)
        if unloading is not None:
            yield unloading
            unloading.ended.then(model.statistics.clear)
            if model.cache is not None:
                unloading.ended.then(model.cache.clear)
    return models


def until_unloaded(models: list[Model]) -> Steps[None]:
    """Wait until models have been unloaded."""
    for model in models:
        yield from model.life.until_unloaded()


def check_unload_parameters(parameters: Mapping[str, Any]) -> None:
    """Look at the parameters of a request to unload. No model depends on another here, so `unload_dependents` changes nothing.

    Raises:
        InvalidRequest: One of them is unknown, or no boolean.
    """
    for name, value in parameters.items():
        if name != "unload_dependents":
            raise InvalidRequest(f"unknown parameter {shown(name)}: expected unload_dependents, or none")
        if not isinstance(value, bool):
            raise InvalidRequest(f"parameters.unload_dependents: expected a boolean, but got {shown(value)}")
