"""Whether a server and its models are ready, and what the log says of it. Knows no transport.

Asking begins to load the models that are only registered. The caller waits for that, or gets the answer "not ready" at once.
"""

from __future__ import annotations

from typing import Final

from .._io import IO
from .._models.loader import call_hook
from .._models.model import Model
from .._protocol.errors import InferenceError, error_text
from .._protocol.log import escape, log_raised, logger
from .engine import Engine

_PAUSED: Final = ("unloading", "unloaded")
"""States of models that were unloaded on purpose."""


async def is_ready(engine: Engine, io: IO) -> bool:
    """True if all models are ready but those unloaded on purpose; without models, `ready_when_empty`."""
    return await find_blockers(engine, io) is None


async def find_blockers(engine: Engine, io: IO, *, waits: bool = True) -> list[Model] | None:
    """Find the models because of which `is_ready` is False; none, if it is because of none. None if it is True."""
    if engine.stopping or engine.draining:
        return []
    models = list(engine.models)
    if not models:
        return None if engine.options.ready_when_empty else []
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
            if not blockers:
                _log_not_ready(engine, model, reason)
            blockers.append(model)
    if blockers:
        return blockers
    if engine.blocker is not None and _replace_blocker(engine, None):
        logger.warning("the server is ready again")
    return None


def say_leaving(engine: Engine) -> str:
    """Why neither the server nor its models are ready, if it stops or drains; else empty."""
    return "the server is stopping" if engine.stopping else "the server is draining" if engine.draining else ""


async def is_model_ready(engine: Engine, io: IO, model: Model, *, waits: bool = True) -> bool:
    """True if a model is loaded, and its `ready=`, if any, says so."""
    return await _find_reason(engine, io, model, waits=waits) is None


async def _find_reason(engine: Engine, io: IO, model: Model, *, waits: bool) -> str | None:
    """Why a model is not ready, for the log; None if it is, as one that is idle, whose `ready=` has nothing to ask."""
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


def _log_not_ready(engine: Engine, model: Model, reason: str) -> None:
    """Log once which model keeps the server from being ready: probes ask often. A failed load is in the log already."""
    if not engine.stopping and model.lifecycle.state != "failed" and _replace_blocker(engine, model):
        logger.warning("the server is not ready, because of %s: %s", model, escape(reason))


def _replace_blocker(engine: Engine, model: Model | None) -> bool:
    """Note which model keeps the server from being ready. False if that is known already."""
    with engine.lock:
        before, engine.blocker = engine.blocker, model
    return before is not model
