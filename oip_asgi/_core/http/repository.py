"""The routes of the model repository extension. Knows no other routes, and decides nothing about models.

Specification: Triton's Model Repository Extension.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..datatypes import Buffer
from ..effects import Run, Steps
from ..limits import ON_LOOP
from ..models.model import Model
from ..rest import repository as rest
from ..serving import lives
from .response import JSON, Response, encoded_json, respond

if TYPE_CHECKING:
    from .exchange import Exchange


def index(request: Exchange) -> Steps[Response]:
    """Answer which models there are, and in which states."""
    ready: bool = yield from _read(request, rest.wants_ready)
    return respond(200, [JSON], [encoded_json(lives.index(request.engine, ready=ready))])


def load(request: Exchange, model: Model) -> Steps[Response]:
    """Load all versions of a model, and answer when that is done."""
    lives.check_control(request.engine)
    parameters = lives.load_parameters((yield from _read(request, rest.parameters)))
    yield from lives.load(request.engine, model.name, None, parameters)
    return respond(200, [], [])


def unload(request: Exchange, model: Model) -> Steps[Response]:
    """Unload all versions of a model; that may take longer than the answer."""
    lives.check_control(request.engine)
    lives.check_unload_parameters((yield from _read(request, rest.parameters)))
    yield from lives.unload(request.engine, model.name, None)
    return respond(200, [], [])


def _read(request: Exchange, decode: Callable[[Buffer], Any]) -> Steps[Any]:
    body: Buffer = yield request.form.read()
    if len(body) <= ON_LOOP:
        return decode(body)
    return (yield Run(partial(decode, body), "conversion", for_client=True))
