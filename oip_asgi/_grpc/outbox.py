"""What waits to be sent in one call of `ModelStreamInfer`, on an event loop: one message at a time, and the reply that ends the call.

Knows no requests and no models.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from contextlib import nullcontext, suppress
from typing import Any, Final, TypeAlias

import msgspec

from .messages import Reply

Write: TypeAlias = Callable[[bytes], Coroutine[Any, Any, None]]
"""Sends a message, and returns when the next one may be sent."""

_WRITE_SECONDS: Final = 1.0
"""A message has so much time to be written, even if the deadline of its request passes meanwhile. A client for which that is too short does
not read, so the call ends."""


class Place(msgspec.Struct, eq=False):
    """The place of one request's answers among those of the call, until they have `ended`."""

    _before: asyncio.Event  # set when they may leave
    ended: asyncio.Event = msgspec.field(default_factory=asyncio.Event)  # set when those of the next place may leave

    async def wait(self) -> None:
        await self._before.wait()

    def leave_order(self) -> None:
        """Wait for no other place, and let none wait for this."""
        self._before = self.ended
        self.ended.set()


class Outbox:
    """The messages of one call, and its end."""

    def __init__(self, write: Write) -> None:
        self.end: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        """The reply that ends the call, or what sending has raised."""
        self.is_stuck = False
        """Whether a part of a message was sent, so that no other can follow."""
        self._write = write
        self._writing = asyncio.Lock()
        self._last = asyncio.Event()  # set when the answers of the last place have ended
        self._last.set()

    def take_place(self, *, in_order: bool) -> Place:
        """Take the place of one request. Answers in order leave one request after the other; answers without an order leave at once."""
        place = Place(self._last)
        if in_order:
            self._last = place.ended
        else:
            place.leave_order()
        return place

    async def send(self, message: bytes, place: Place, deadline: float = math.inf) -> None:
        """Send a message after those of the places before it, and return when the next one may be sent.

        If no message can be sent any more, this does not return: the call ends, and cancels it.
        """
        await place.wait()
        async with self._writing:
            if not self.is_stuck and not self.end.done():
                writing = asyncio.ensure_future(self._write(message)) if deadline - time.monotonic() < _WRITE_SECONDS else None
                try:
                    await (self._write(message) if writing is None else asyncio.shield(writing))
                    return
                except asyncio.CancelledError:  # nothing can be sent after a part of a message
                    self.is_stuck = await _is_cut(writing)
                    raise
                except Exception as error:  # the call takes no messages any more
                    self.finish(error)
            if asyncio.current_task().cancelling():  # type: ignore[union-attr]  # this runs in one
                # each task is cancelled only once, and a model or a server may have swallowed it
                raise asyncio.CancelledError
            await asyncio.Event().wait()  # for the cancellation

    async def finish_after_message(self, end: Reply) -> None:
        """`finish`, and cut off no message that is being sent."""
        async with nullcontext() if self.is_stuck else self._writing:
            self.finish(end)

    def finish(self, end: Reply | Exception) -> None:
        """End the call, unless it ends already."""
        if self.end.done():
            return
        if isinstance(end, Reply):
            self.end.set_result(end)
        else:
            self.end.set_exception(end)


async def _is_cut(writing: asyncio.Future[None] | None) -> bool:
    """Let a message be written to its end after the deadline of its request. True if it was not: that took too long, or failed."""
    if writing is None:
        return True
    with suppress(asyncio.CancelledError):
        await asyncio.wait([writing], timeout=_WRITE_SECONDS)
    return writing.cancel() or writing.cancelled() or writing.exception() is not None
