"""The routes of the shared memory extensions. Knows no other routes, and decides nothing about regions.

Specification: Triton's System Shared Memory Extension and CUDA Shared Memory Extension.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from .._protocol.effects import Run, Steps
from .._rest import shared_memory as rest
from .response import JSON, Response, encoded_json, respond

if TYPE_CHECKING:
    from .exchange import Exchange


def status(request: Exchange) -> Response:
    """Answer which regions are registered, or one of them."""
    return respond(200, [JSON], [encoded_json(request.engine.regions.status(request.region))])


def register(request: Exchange) -> Steps[Response]:
    """Register a region."""
    regions, name = request.engine.regions, request.region
    assert name is not None  # the route has it
    regions.check_may_register()
    asked = rest.registration((yield request.form.read()))
    yield Run(partial(regions.register, name, asked.key, asked.offset or 0, asked.byte_size), "hook")
    return respond(200, [], [])


def unregister(request: Exchange) -> Response:
    """Unregister a region, or all of them."""
    request.engine.regions.unregister(request.region)
    return respond(200, [], [])


def unregister_cuda(_: Exchange) -> Response:
    """Answer that it is done: clients of system shared memory ask for this too when they start."""
    return respond(200, [], [])
