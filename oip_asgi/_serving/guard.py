"""Asks the host's `authorize=` before each action of a client on a model. Knows no transport, and looks up no
model.

The table of routes says which action a route is, and `find_visible` of the engine which models a list shows.

False is 403. An `InferenceError` or an HTTP exception of the host's framework keeps its status and text. An
`async def` that is late is 503. Anything else is 500.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeAlias

from .._io import IO, DeadlinePassed
from .._models.callables import is_async
from .._models.model import Model
from .._models.statistics import Statistics, Timings
from .._protocol.context import Access, Action, MakeAccess
from .._protocol.errors import (
    Forbidden,
    InferenceError,
    error_text,
    escape,
    log_fields,
    log_raised,
    logger,
    show,
)
from .observing import outcome_of
from .user_code import convert_host_error, is_sync_only

Authorize: TypeAlias = Callable[[Access], bool | Awaitable[bool]]

_DJANGO_HINT: Final = (
    ": make it an async def, and write user = await access.transport.auser(), and the async methods of "
    "Django, such as "
    'await user.ahas_perm("app.permission")'
)

_MOST_SECONDS: Final = 10.0
"""How long an `async def` may take. Most clients and proxies wait for longer, so that they get the answer."""


class _Late(InferenceError):
    """An `async def` of `authorize=` took too long. The client may try again."""

    status = 503


class Guard:
    """Asks one `authorize=`."""

    def __init__(
        self,
        authorize: Authorize,
        call_here: Callable[[Callable[[], Any]], Any],
        refused: Statistics,
        clock: Callable[[], float],
        find_timeout: Callable[[Access], float],
    ) -> None:
        self._authorize: Any = authorize
        self._clock = clock
        self._find_timeout = find_timeout  # that of the model, in seconds
        self._refused = refused  # counts inference requests that are refused
        with suppress(ValueError):  # not every callable tells its signature
            try:
                inspect.signature(authorize).bind(None)
            except TypeError:
                raise TypeError("authorize= must be a function of one argument, the Access") from None
        self._is_async = is_async(authorize)
        self._call_here = call_here

    async def ask(self, io: IO, access: Access, until: float = float("inf")) -> None:
        """Raise the refusal if an access is not allowed. An `async def` may take until then at most."""
        call, seconds = partial(self._authorize, access), _MOST_SECONDS
        try:
            if self._is_async:
                seconds = min(seconds, self._find_timeout(access))
                allowed = await io.call(call, min(self._clock() + seconds, until))
            else:
                allowed = self._call_here(call)
            if allowed is False:
                raise Forbidden(f"not allowed: {_name_action(access)}")
            if allowed is not True:
                raise TypeError(f"authorize= returned {show(allowed)}: return True or False")
        except DeadlinePassed as error:
            logger.warning(
                "authorize= took more than %g seconds for %s, so the request is refused",
                seconds,
                _name_action(access),
            )
            raise self._as_refusal(_Late("the authorization took too long"), access) from error
        except Exception as error:
            raise self._as_refusal(error, access) from error

    def _as_refusal(self, error: Exception, access: Access) -> InferenceError:
        refusal = error if isinstance(error, InferenceError) else convert_host_error(error)
        if refusal is None:
            log_raised(
                error,
                "authorize= failed, so the request is refused%s",
                _DJANGO_HINT if is_sync_only(error) else "",
            )
            refusal = InferenceError("the authorization failed: see the server's log", status=500)
        elif logger.isEnabledFor(logging.DEBUG):
            logger.debug(
                "authorize= refused %s over %s with %d: %s",
                escape(_name_action(access)),
                access.protocol,
                refusal.status,
                escape(error_text(refusal)),
                extra=log_fields(escape(access.model or ""), access.version, None, 0.0),
            )
        if access.action == "infer":
            self._refused.record(outcome_of(refusal, has_entered=False), Timings(0.0), 0.0)
        return refusal

    async def find_allowed(
        self, io: IO, models: Iterable[Model], make_access: MakeAccess, action: Action
    ) -> list[Model]:
        """Find the models for which a client is allowed an action. The questions may take as long together as
        a single one."""
        allowed: list[Model] = []
        until = self._clock() + _MOST_SECONDS
        for model in models:
            try:
                await self.ask(io, make_access(action, model.name, model.version), until)
            except _Late:
                raise
            except InferenceError:
                continue
            allowed.append(model)
        return allowed


def _name_action(access: Access) -> str:
    return access.action if access.model is None else f"{access.action} with model {show(access.model)}"
