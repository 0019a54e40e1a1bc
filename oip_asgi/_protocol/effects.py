"""What the core asks of its driver. Each effect is described here and carried out elsewhere.

A request is one generator. It yields effects, gets the result of each from its driver, or the exception, and returns its answer. So
every decision exists once, for callers that block and for callers that await. Only its driver advances a generator. An answer in
pieces is no different: its generator yields them between other effects, and its driver stops at each.

Several effects have a `deadline`, in seconds of `time.monotonic`, after which the driver throws `DeadlinePassed`. An effect that is
`for_client` is not needed after the client has gone: then the driver throws `Abandoned` into the generator.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Coroutine, Generator
from types import GeneratorType
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar, final

import msgspec

from .errors import TakenBy

T = TypeVar("T")

Work: TypeAlias = Literal["model", "hook", "conversion"]
"""What a function does, which says where it runs under an event loop: a model's call in a worker thread; a hook such as `load=` in threads
of its own, so that it never waits for models; the decoding or encoding of a large body in a few threads."""


class Signal(msgspec.Struct, eq=False):
    """An event that any thread may set, once. It never blocks: who waits for it gives it a function to call."""

    _callbacks: list[Callable[[], object]] | None = msgspec.field(default_factory=list)
    _lock: threading.Lock = msgspec.field(default_factory=threading.Lock)

    def is_set(self) -> bool:
        return self._callbacks is None

    def set(self) -> None:
        """Set it, and call the functions that `then` got, in this thread. Does nothing if it is set already."""
        with self._lock:
            callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            callback()

    def then(self, callback: Callable[[], object]) -> None:
        """Call a function as soon as it is set: now, if it is set already."""
        with self._lock:
            if self._callbacks is not None:
                self._callbacks.append(callback)
                return
        callback()


class Fed(Protocol):
    """Takes the chunks of a request's body. `request_body.Body` is one, and describes the methods."""

    @property
    def coding(self) -> object: ...
    def count_next(self, most: int, /) -> int: ...
    def feed(self, chunk: bytes, /) -> None: ...
    def finish(self, *, cut_off: bool = False, taken_by: TakenBy | None = None) -> Any: ...


@final
class Read(msgspec.Struct, frozen=True):
    """Feed the request's body into `body`, and send the result of its `finish`."""

    body: Fed


@final
class Wait(msgspec.Struct, frozen=True):
    signal: Signal
    deadline: float = math.inf
    for_client: bool = False


@final
class Run(msgspec.Struct, frozen=True):
    """Call a function once `after` is set, and send its result. Under an event loop it runs where its `work` says.

    It is called once, or never if nobody waits for it any more. If everybody has left while it runs, it runs to its end, and `late` is
    called with what it raises.
    """

    function: Callable[[], Any]
    work: Work
    after: Signal | None = None
    deadline: float = math.inf
    for_client: bool = False
    late: Callable[[BaseException], None] | None = None


@final
class Await(msgspec.Struct, frozen=True):
    """Call a coroutine function on an event loop, await it, and send its result.

    After the deadline it is cancelled and awaited to its end. What it raises then is the cause of `DeadlinePassed`.
    """

    function: Callable[[], Coroutine[Any, Any, Any]]
    deadline: float = math.inf
    for_client: bool = False
    in_one_task: bool = False  # whether all of these of one generator are awaited in the same task


@final
class Spawn(msgspec.Struct, eq=False):
    """Run another generator to its end, also if this one is given up. This one goes on at once."""

    part: Generator[Effect, Any, None]
    unwanted: Signal | None = None
    """Once it is set, effects of the part that are `for_client` end as if its client had gone."""
    is_apart: bool = False  # whether the part sees none of this generator's context variables
    ended: Signal = msgspec.field(default_factory=Signal)  # set by the driver when it has ended, or was cancelled
    is_lost: Callable[[], bool] = lambda: False
    """Set by the driver: returns True if its event loop was closed, or it was left in the parent of a fork: it never ends."""
    cancel: Callable[[], object] = lambda: None  # set by the driver: cancels it, if that is possible


@final
class Start(msgspec.Struct, frozen=True):
    """Send the head of an HTTP response, whose names are in lower case. Its body follows as a `Send` for each piece, and has no length."""

    status: int
    headers: list[tuple[bytes, bytes]]
    deadline: float = math.inf


@final
class Send(msgspec.Struct, frozen=True):
    """Send a piece of an answer. The generator goes on when the client has room for the next one, which is the back-pressure."""

    piece: Any
    deadline: float = math.inf


class Abandoned(BaseException):
    """Thrown into a generator for which nobody waits any more. It may still yield effects to clean up, but sends nothing."""


class DeadlinePassed(Exception):
    """Thrown into a generator whose effect took longer than its deadline."""


class QuitWithin(Exception):
    """Thrown into a generator if its function or coroutine raised something that is not an `Exception`. The cause is what was raised, such
    as `SystemExit`, or a cancellation if the coroutine awaited something that was cancelled."""


class Stopped(Exception):
    """Thrown into a generator whose effect was cancelled because the server stops."""


Piece: TypeAlias = Start | Send
"""The effects that send the answer."""

PIECES: Final = (Start, Send)

Effect: TypeAlias = Read | Wait | Run | Await | Spawn | Piece
Steps: TypeAlias = Generator[Effect, Any, T]


def finish(answer: Any) -> Steps[Any]:
    """The steps of a function that returns its result, or the steps that are left if it must wait for something."""
    return answer if isinstance(answer, GeneratorType) else _return(answer)


def _return(result: Any) -> Steps[Any]:
    yield from ()
    return result
