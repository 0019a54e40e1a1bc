"""What the core asks of whoever drives it, and what it answers. Each step is described here and done elsewhere.

A request is one generator of the core's. It yields steps, is sent what came of each (or is thrown what was raised), and returns
its answer. So every decision exists once, for callers that block and for callers that await.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from types import CoroutineType
from typing import Any, Final, Literal, TypeAlias, TypeVar, final

import msgspec

from .body import Body
from .datatypes import Buffer
from .errors import ModelFault
from .models.signature import is_async

T = TypeVar("T")

_WHOLE: Final = 2**20
"""Bytes up to which an answer is one message, which is there twice, or thrice where its client is slow: each message costs a server as
much as a copy of 100 KB."""

_MESSAGE: Final = 2**17
"""The most bytes in each message of a longer one: malloc has blocks of that size at hand, so they cost no page faults."""

LARGE: Final = 2**16
"""Above this many bytes to look at one by one, requests are decoded in a worker thread under ASGI and grpc.aio, so that the event loop
goes on: it takes as long as a few trips to a thread."""

Pool: TypeAlias = Literal["thread", "aside", "conversion"]
"""Which worker threads: those of models; those aside, so that loading and health never queue behind models; those for large bodies."""


@final
class Read(msgspec.Struct, frozen=True):
    """Feed the request's body into `body`, and send what it finishes with."""

    body: Body


@final
class Wait(msgspec.Struct, frozen=True):
    """Wait until somebody else has finished `future`; an exception of its is thrown. The rest as in `Call`."""

    future: Future[None]
    deadline: float = math.inf
    for_client: bool = False


@final
class Call(msgspec.Struct, frozen=True):
    """Call user code, and send its result.

    Under ASGI, `run` says where: awaited or called on the event loop, or in a worker thread of some pool. Callers that block call
    what is not "async" as it is.

    At `deadline`, in seconds of `time.monotonic`, what is awaited is cancelled and awaited to its end, and what runs in a thread is
    left to itself; either way `DeadlinePassed` is thrown. `for_client` says that nobody needs it once the client has gone: then the
    same happens, and the generator is closed. What is not `for_client` goes on, whatever becomes of the request. `late` is told what a
    thread that was left to itself at its deadline has raised behind it.
    """

    function: Callable[..., Any]
    run: Literal["async", "inline"] | Pool
    args: tuple[Any, ...] = ()
    deadline: float = math.inf
    for_client: bool = False
    late: Callable[[Exception], None] | None = None

    @classmethod
    def aside(cls, function: Callable[[], Any]) -> Call:
        """A call of a hook, such as `load=`."""
        return cls(function, "async" if is_async(function) else "aside")


@final
class Together(msgspec.Struct, frozen=True):
    """Finish several generators, at the same time where there are threads or an event loop for it."""

    parts: list[Generator[Step, Any, None]]


def _never() -> bool:
    return False


@final
class Apart(msgspec.Struct, eq=False):
    """Finish a generator whatever becomes of the one that yields this, which goes on at once under ASGI and grpc.aio.

    `ended` is set as soon as it is finished, or cancelled. Whoever finishes it says in `is_lost` how to tell that neither will happen, as
    its event loop was closed under it.
    """

    part: Generator[Step, Any, None]
    ended: Future[None] = msgspec.field(default_factory=Future)
    is_lost: Callable[[], bool] = _never


class DeadlinePassed(Exception):
    """Thrown into the generator whose step took longer than its deadline. Its cause is what was raised while that was cancelled."""


class CancelledWithin(Exception):
    """Thrown into the generator whose call ended cancelled, though nobody had cancelled it: it awaited what somebody else did."""


class QuitWithin(Exception):
    """Thrown into the generator whose call raised what ends threads and processes, such as `SystemExit`, which is its cause."""


class Stopped(Exception):
    """Thrown into the generator whose step was cancelled because the server stops."""


@final
class Response(msgspec.Struct, frozen=True):
    """An answer: its parts are sent one after the other, `size` bytes in all. `Content-Length` is among the headers."""

    status: int
    headers: list[tuple[bytes, bytes]]
    parts: list[Buffer]
    size: int

    def messages(self) -> Iterable[tuple[bytes, bool]]:
        """The parts as `bytes`, which is what servers take, and whether more of them follow.

        They are few, as each costs a call, and none is so large that much is there twice.
        """
        return [(b"".join(self.parts), False)] if self.size <= _WHOLE else self._pieces()

    def _pieces(self) -> Iterator[tuple[bytes, bool]]:
        gathered: list[memoryview] = []
        size, left = 0, self.size
        for part in self.parts:
            rest = memoryview(part)
            while rest:
                piece, rest = rest[: _MESSAGE - size], rest[_MESSAGE - size :]
                gathered.append(piece)
                size += len(piece)
                left -= len(piece)
                if size == _MESSAGE or not left:
                    yield b"".join(gathered), left > 0
                    gathered, size = [], 0


Step: TypeAlias = Read | Wait | Call | Together | Apart
Steps: TypeAlias = Generator[Step, Any, T]
Exchange: TypeAlias = Steps[Response]


def no_coroutine(result: Any) -> Any:
    """What came of a call, unless it is a coroutine that nobody would await.

    Raises:
        ModelFault: It is one.
    """
    if isinstance(result, CoroutineType):
        result.close()
        raise ModelFault("it returned a coroutine: register the async def itself")
    return result
