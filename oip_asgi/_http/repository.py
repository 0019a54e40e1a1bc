"""The routes of the model repository extension. Knows no other routes, and decides nothing about models.

Specification: Triton's Model Repository Extension.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from .._models.model import Model
from .._protocol.datatypes import Buffer
from .._protocol.effects import Run, Steps
from .._protocol.limits import LOOP_BYTES
from .._rest import repository as rest
from .._serving import repository
from .response import JSON, Response, encoded_json, respond

if TYPE_CHECKING:
    from .exchange import Exchange


def index(request: Exchange) -> Steps[Response]:
    """Answer which models there are, and in which states."""
    ready: bool = yield from _read(request, rest.wants_ready)
    return respond(200, [JSON], [encoded_json(repository.index(request.engine, ready=ready))])


def load(request: Exchange, model: Model) -> Steps[Response]:
    """Load all versions of a model, and answer when that is done."""
    repository.check_control(request.engine)
    parameters = repository.load_parameters((yield from _read(request, rest.parameters)))
    yield from repository.load(request.engine, model.name, None, parameters)
    return respond(200, [], [])


def unload(request: Exchange, model: Model) -> Steps[Response]:
    """Unload all versions of a model; that may take longer than the answer."""
    repository.check_control(request.engine)
    repository.check_unload_parameters((yield from _read(request, rest.parameters)))
    yield from repository.unload(request.engine, model.name, None)
    return respond(200, [], [])


def _read(request: Exchange, decode: Callable[[Buffer], Any]) -> Steps[Any]:
    request.form.json_limit = None  # the files of a load are base64 in its JSON
    body: Buffer = yield request.form.read()
    if len(body) <= LOOP_BYTES:
        return decode(body)
    return (yield Run(partial(decode, body), "conversion", for_client=True))
