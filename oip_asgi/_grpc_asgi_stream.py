"""gRPC calls of several messages over ASGI, both ways. It translates messages and decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

from ._grpc.frames import FrameReader
from ._grpc.http import TOO_LATE
from ._grpc.method import Reply, refusal
from ._protocol.effects import DeadlinePassed, Run
from ._protocol.errors import InferenceError
from ._runtime.runtime import Runtime
from ._runtime.waiting import ClientGone, attend, until_gone
from .asgi import ClientOf

if TYPE_CHECKING:
    from starlette.types import Receive

_PART: Final = 2**14
"""Bytes of a body in which messages are looked for at once: all of them wait here, and what is compressed becomes larger. The others wait
in the chunk, which is as large as the server likes, or on the connection."""


@final
class Requests:
    """The messages that a client sends, and then the message that it has gone."""

    def __init__(self, receive: Receive, reader: FrameReader, runtime: Runtime) -> None:
        self.error: InferenceError | None = None
        self._receive = receive
        self._reader = reader
        self._runtime = runtime
        self._messages: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._is_taken = asyncio.Event()
        self._reading = asyncio.ensure_future(self._read())

    async def next(self) -> bytes | None:
        """The next message; None where there are no more."""
        message = await self._messages.get()
        self._is_taken.set()
        return message

    async def is_gone(self) -> bool:
        """Wait until the client has gone, or cannot be read."""
        await asyncio.wait([self._reading])
        return True

    def check(self) -> None:
        """Raise what `receive` raised, where the client cannot be read."""
        self._reading.result()

    async def end(self) -> None:
        """Read no more."""
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)  # which takes what it raised: asyncio would log it

    async def _read(self) -> None:
        more = True
        while more and (message := await self._receive())["type"] != "http.disconnect":
            more = message.get("more_body", False)
            if self.error is None:
                await self._take(message.get("body", b""), is_last=not more)
        if not more:
            await until_gone(ClientOf(self._receive, self._runtime).is_gone)

    async def _take(self, chunk: bytes, *, is_last: bool) -> None:
        """Take the messages out of a chunk, those of each part when the ones before are taken."""
        try:
            for start in range(0, len(chunk), _PART):
                while not self._messages.empty():
                    self._is_taken.clear()
                    await self._is_taken.wait()
                try:
                    await self._feed(chunk[start : start + _PART])
                finally:  # there are messages in front of a wrong frame too
                    for each in self._reader.take():
                        self._messages.put_nowait(bytes(each))
            if is_last:
                self._reader.finish()
                self._messages.put_nowait(None)
        except InferenceError as error:
            self.error = error
            self._messages.put_nowait(None)

    async def _feed(self, part: bytes) -> None:
        if self._reader.is_compressed:
            await self._runtime.run(Run(partial(self._reader.feed, part), "conversion"))
        else:
            self._reader.feed(part)


def in_turns(put: Callable[[bytes], Awaitable[None]]) -> Callable[[bytes], Coroutine[Any, Any, None]]:
    """What sends messages, and lets other tasks run after each, also where a server takes all at once: the requests of a call share it."""

    async def write(message: bytes) -> None:
        await put(message)
        await asyncio.sleep(0)

    return write


async def ending(answering: Coroutine[Any, Any, Reply], requests: Requests, deadline: float) -> Reply:
    """Wait until a call has been answered, and return how it ended."""
    try:
        reply = await attend(answering, deadline, requests.is_gone)
    except DeadlinePassed:
        return TOO_LATE
    except ClientGone:
        requests.check()
        raise
    finally:
        await requests.end()
    return reply if requests.error is None or reply.code != "OK" else refusal(requests.error)
