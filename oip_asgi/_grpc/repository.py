"""The methods of the model repository extension. Knows no gRPC library, and decides nothing about models.

KServe's own messages have the model's name where Triton's have the repository's, and two fields in their answers where Triton's have none.

Specification: Triton's Model Repository Extension, gRPC.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .._protocol.effects import Steps
from .._protocol.errors import InvalidRequest, NotFound, shown
from .._serving import repository
from .._serving.engine import Engine


def index(engine: Engine, request: Any, response: Any) -> Steps[None]:
    """Fill in which models there are, and in which states."""
    if request.repository_name:
        raise NotFound(f"unknown repository {shown(request.repository_name)}: leave repository_name out")
    for entry in repository.index(engine, ready=request.ready):
        told = {name: value for name, value in msgspec.structs.asdict(entry).items() if value is not msgspec.UNSET}
        response.models.add(**told)
    yield from ()


def load(engine: Engine, request: Any, response: Any) -> Steps[None]:
    """Load all versions of a model, and answer when that is done."""
    name = _name(engine, request)
    parameters = repository.load_parameters(_parameters(request))
    yield from repository.load(engine, name, None, parameters)
    response.model_name, response.is_loaded = name, True


def unload(engine: Engine, request: Any, response: Any) -> Steps[None]:
    """Unload all versions of a model; that may take longer than the answer."""
    name = _name(engine, request)
    repository.check_unload_parameters(_parameters(request))
    yield from repository.unload(engine, name, None)
    response.model_name, response.is_unloaded = name, True


def _name(engine: Engine, request: Any) -> str:
    name, repository_name = request.model_name, request.repository_name
    if name and repository_name:
        raise NotFound(f"unknown repository {shown(repository_name)}: leave repository_name out")
    found: str = name or repository_name  # the second is what KServe's clients send
    engine.models.find(found, None)
    repository.check_control(engine)
    return found


def _parameters(request: Any) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    for name, parameter in request.parameters.items():
        choice = parameter.WhichOneof("parameter_choice")
        if choice is None:
            raise InvalidRequest(f"parameters[{shown(name)}] has no value: expected bool_param, int64_param, string_param or bytes_param")
        parameters[name] = getattr(parameter, choice)
    return parameters
