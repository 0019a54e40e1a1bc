"""The routes of the shared memory extensions. Knows no other routes, and decides nothing about regions.

Specification: Triton's System Shared Memory Extension and CUDA Shared Memory Extension.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..effects import Run, Steps
from ..rest import shared_memory as rest
from ..serving import shared_memory
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


def cuda_status(request: Exchange) -> Response:
    """Answer that there are no regions of CUDA's shared memory."""
    shared_memory.check_cuda_status(request.region)
    return respond(200, [JSON], [b"[]"])


def cuda_register(_: Exchange) -> Response:
    """Refuse to register a region of CUDA's shared memory."""
    raise shared_memory.no_cuda()


def cuda_unregister(_: Exchange) -> Response:
    """Nothing is registered, so nothing is to do: clients ask for it when they start."""
    return respond(200, [], [])
