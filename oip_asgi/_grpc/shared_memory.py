"""The methods of the shared memory extensions. Knows no gRPC library, and decides nothing about regions.

Specification: Triton's System Shared Memory Extension and CUDA Shared Memory Extension, gRPC.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from .._protocol.effects import Run, Steps
from .._serving.engine import Engine
from .messages import fill


def status(engine: Engine, request: Any, response: Any) -> Steps[None]:
    """Fill in which regions are registered, or one of them."""
    for region in engine.regions.status(request.name or None):
        fill(response.regions[region.name], region)
    yield from ()


def register(engine: Engine, request: Any, _: Any) -> Steps[None]:
    """Register a region."""
    engine.regions.check_may_register()
    yield Run(partial(engine.regions.register, request.name, request.key, request.offset, request.byte_size), "hook")


def unregister(engine: Engine, request: Any, _: Any) -> Steps[None]:
    """Unregister a region, or all of them."""
    engine.regions.unregister(request.name or None)
    yield from ()


def unregister_cuda(_: Engine, __: Any, ___: Any) -> Steps[None]:
    """Answer that it is done: clients of system shared memory ask for this too when they start."""
    yield from ()
