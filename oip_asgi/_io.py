"""How a request waits: the face of what waits for it, and how a wait can end. Two classes of `_runtime` have
this face.

A request is one coroutine, which gets an `IO`. On an event loop, `AsyncIO` lets it await; in a thread,
`BlockingIO` blocks inside each method, so that the coroutine never suspends, and `finish` runs it. So each
decision exists once, for callers of both kinds.

Several methods take a `deadline`, in seconds of `time.monotonic`, after which they raise `DeadlinePassed`.
`wait`, `run` and `call` may raise `ClientGone`, never under WSGI. `read` does not: if the client goes, the
body ends too early, and the answer is 400.

Knows nothing of the package.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import msgspec

T = TypeVar("T")

Work: TypeAlias = Literal["model", "hook", "conversion"]
"""What a function does, which says in which threads of `runtime.Runtime` it runs under an event loop: a
model's call in a worker thread; a hook such as `load=` in threads of its own, so that it never waits for
models; the decoding or encoding of a large body in a few threads."""


class Signal(msgspec.Struct, eq=False):
    """An event that any thread may set, once. It never blocks: to wait for it, give it a function to call."""

    _callbacks: list[Callable[[], object]] | None = msgspec.field(default_factory=list)
    _lock: threading.Lock = msgspec.field(default_factory=threading.Lock)

    def is_set(self) -> bool:
        return self._callbacks is None

    def set(self) -> None:
        """Set it, and call the functions that `then` got, in this thread. Does nothing if it is set
        already."""
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


Late: TypeAlias = Callable[[BaseException], None]
"""Called with what a function raises when nobody waits for it any more."""


class Fed(Protocol):
    """Takes the chunks of a request's body. `request_body.Body` is one, and describes the methods."""

    @property
    def coding(self) -> object: ...
    def count_next(self, most: int, /) -> int: ...
    def feed(self, chunk: bytes, /) -> None: ...
    def finish(self, *, cut_off: bool = False, taken_by: Callable[[], Any] | None = None) -> Any: ...


class Part(msgspec.Struct, eq=False):
    """A coroutine that goes on by itself once `IO.spawn` has begun it, also if the request that began it is
    given up."""

    _make: Callable[[IO], Coroutine[Any, Any, object]] | None
    unwanted: Signal | None = None  # once it is set, the part's client counts as gone
    is_apart: bool = False  # whether it sees none of the context variables of who begins it
    ended: Signal = msgspec.field(default_factory=Signal)  # set when it has ended, or was cancelled
    is_lost: Callable[[], bool] = lambda: False
    """Set by `spawn`: returns True if its event loop was closed, or it was left in the parent of a fork: it
    never ends."""
    cancel: Callable[[], object] = lambda: None  # set by `spawn`: cancels it, if that is possible

    def make(self, io: IO) -> Coroutine[Any, Any, object]:
        """Make the coroutine, once: what makes it often refers to this, which would be a cycle."""
        make, self._make = self._make, None
        assert make is not None  # it is begun once
        return make(io)

    def forget(self) -> None:
        """Let go of what refers to this, as it has ended."""
        self._make, self.cancel = None, lambda: None


class IO(Protocol):
    """What a request may wait for."""

    until: float
    """When the client must have taken the last piece of a stream. `stream` sets it, and the sender of the
    pieces reads it; infinity where nothing waits for the client."""

    beat: Any
    """What sends, or has sent, a sign of life of `keep_alive`; None as long as there was none."""

    def read(self, body: Fed) -> Awaitable[Any]:
        """Feed the request's body into `body`, and return the result of its `finish`."""

    def wait(self, signal: Signal, deadline: float = math.inf) -> Awaitable[None]: ...

    def run(
        self,
        function: Callable[[], T],
        work: Work,
        after: Signal | None = None,
        deadline: float = math.inf,
        late: Late | None = None,
    ) -> Awaitable[T]:
        """Call a function once `after` is set, and return its result. Under an event loop it runs in a thread
        for its `work`.

        It is called once, or never if nobody waits for it any more. If everybody has left while it runs, it
        runs to its end, and `late` is called with what it raises. If it raises something that is not an
        `Exception`, this raises `QuitWithin`.
        """

    def run_ahead(
        self,
        function: Callable[[], T | None],
        work: Work,
        after: Signal | None = None,
        deadline: float = math.inf,
        late: Late | None = None,
    ) -> Awaitable[T | None]:
        """`run` one function again and again, each time its next result is asked for. After None or an error,
        there are no more results.

        If results are pushed to the client, as `AsyncIO` does over HTTP and gRPC, the thread goes on
        meanwhile, up to two results ahead. Where a caller asks for each, such as under WSGI and from Python,
        it does not: each call is a trip of its own.
        """

    def run_always(self, function: Callable[[], T], work: Work) -> Awaitable[T]:
        """`run` what cleans up: it is called also if nobody waits for it any more."""

    def call(
        self,
        function: Callable[[], Coroutine[Any, Any, T]],
        deadline: float = math.inf,
        in_one_task: bool = False,
    ) -> Awaitable[T]:
        """Call a coroutine function on an event loop, and return its result. `in_one_task`, all of a request
        run in the same task.

        At the deadline, or if the client goes, it is cancelled, and awaited to its end. What it raises then
        is the cause of this error.
        """

    def call_always(self, function: Callable[[], Coroutine[Any, Any, T]]) -> Awaitable[T]:
        """`call` what cleans up, in the task of the others: no deadline ends it, and from here on no client
        ends anything.

        If its host cancels it again, it is cut short.
        """

    def spawn(self, part: Part) -> None:
        """Begin a part, which goes on by itself."""

    def make_spawner(self) -> Callable[[Part], bool]:
        """Return what spawns a part as this does, but later and from any thread. It returns False once the
        event loop has ended."""

    def keep_alive(self, seconds: float, make: Callable[[], Any]) -> None:
        """From now on, send the sign of life that `make` returns each time that nothing was sent for so many
        seconds.

        Only where results are pushed to the client. A caller that asks for each of them gets no others.
        """

    def can_wait(self) -> bool:
        """False where nothing can be awaited any more, as the event loop has ended."""


class ClientGone(BaseException):
    """The client went before there was an answer. It is not an `Exception`, as a request that nobody waits
    for has not failed."""


class DeadlinePassed(Exception):
    """Something took longer than its deadline."""


class QuitWithin(Exception):
    """A function or coroutine raised something that is not an `Exception`. The cause is what was raised, such
    as `SystemExit`, or a cancellation if the coroutine awaited something that was cancelled."""


class Stopped(Exception):
    """The slot of a request was taken away before it ran: the server stops, the model was unloaded, or nobody
    waits any more."""


async def begin(items: AsyncGenerator[T, None]) -> T | None:
    """Begin a generator, and return its first item; None if it has none.

    Its owner closes it. So the event loop must not close it, neither when it is dropped nor when the loop
    ends.
    """
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, None)
    try:
        first = anext(items, None)
    finally:
        sys.set_asyncgen_hooks(*hooks)
    return await first


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        coroutine.close()
    raise AssertionError("a coroutine that must not wait has waited")
