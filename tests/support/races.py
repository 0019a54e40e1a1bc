"""Requests that end in a race: one model of each kind, which a test holds and lets go, and each way to ask it on an event loop."""

from __future__ import annotations

import asyncio
import functools
import json
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import aclosing
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np

from oip_asgi import InferenceError, InferenceServer, OIPApp, ResponseCache, TensorSpec
from oip_asgi.grpc import OIPGRPCApp
from tests.support.grpc_asgi import Got, frame
from tests.support.grpc_ways import MESSAGES, SERVICE, wire_request
from tests.support.inside import list_unfinished

Kind: TypeAlias = Literal["inline", "thread", "coroutine", "batch", "batch of a coroutine", "cache", "load", "stream", "async stream"]
"""A kind of model."""

Manner: TypeAlias = Literal["ends", "cleans up", "swallows", "replaces", "timeout within", "group within"]
"""What a coroutine of a model does when it is cancelled: end; await something first; return all the same; raise another error. Or what it
awaits within."""

Way: TypeAlias = Literal["REST", "gRPC", "Python"]

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
MANNERS: Final[tuple[Manner, ...]] = get_args(Manner)
WAYS: Final[tuple[Way, ...]] = get_args(Way)
STREAMS: Final = ("stream", "async stream")

BODY: Final = b'{"inputs":[{"name":"x","datatype":"FP64","shape":[1,1],"data":[1.0]}]}'
_X: Final = {"name": "x", "datatype": "FP64", "shape": [1, 1], "contents": {"fp64_contents": [1.0]}}

_STATUSES: Final = {"OK": "200", "CANCELLED": "499", "DEADLINE_EXCEEDED": "504", "INTERNAL": "500", "UNAVAILABLE": "503"}


class Racer:
    """A server with one model `m`, whose calls wait until `let_go`. It is made on the event loop that runs."""

    def __init__(self, kind: Kind, manner: Manner = "ends", **options: Any) -> None:
        self.begun = self.open = 0
        """How many calls have begun, and how many of them have not ended."""
        self.strays = 0
        """How many asynchronous generators were ended by another task than that of their request, such as by asyncio."""
        self._leave = threading.Event()
        self._gates: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._manner = manner
        self.server = InferenceServer()
        functions: dict[Kind, Callable[..., Any]] = {
            "inline": self._call_inline,
            "thread": self._call,
            "batch": self._call,
            "stream": self._stream,
            "async stream": self._stream_async,
            "load": self._call_inline,
        }
        more: dict[Kind, dict[str, Any]] = {
            "inline": {"run": "inline"},
            "batch": {"max_batch_size": 4},
            "batch of a coroutine": {"max_batch_size": 4},
            "cache": {"cache": ResponseCache(max_bytes=1 << 20)},
            "load": {"load": self._load, "run": "inline"},
        }
        specs = {"inputs": [TensorSpec("x", "FP64", [-1, 1])], "outputs": [TensorSpec("y", "FP64", [-1, 1])]}
        self.server.register("m", functions.get(kind, self._call_async), **specs, **more.get(kind, {}), **options)  # type: ignore[arg-type]

    def let_go(self) -> None:
        self._leave.set()
        for loop, gate in self._gates:
            if loop is asyncio.get_running_loop():
                gate.set()  # in this tick
            else:
                loop.call_soon_threadsafe(gate.set)

    async def _wait(self) -> None:
        gate = asyncio.Event()
        self._gates.append((asyncio.get_running_loop(), gate))
        if self._leave.is_set():
            gate.set()
            await asyncio.sleep(0)
        await gate.wait()

    def _call_inline(self, x: Any) -> Any:
        self.begun += 1
        return x

    def _call(self, x: Any) -> Any:
        self.begun += 1
        self.open += 1
        try:
            assert self._leave.wait(20)
            return x
        finally:
            self.open -= 1

    async def _call_async(self, x: Any) -> Any:
        await self._hold()
        return x

    async def _load(self) -> None:
        await self._hold()

    def _stream(self, x: Any) -> Iterator[Any]:
        self.open += 1
        try:
            yield x
            self.begun += 1
            assert self._leave.wait(20)
            yield x
        finally:
            self.open -= 1

    async def _stream_async(self, x: Any) -> AsyncIterator[Any]:
        self.open += 1
        task = asyncio.current_task()
        try:
            yield x
            await self._hold()
            yield x
        finally:
            self.open -= 1
            self.strays += asyncio.current_task() is not task

    async def _hold(self) -> None:
        self.begun += 1
        self.open += 1
        try:
            match self._manner:
                case "timeout within":
                    async with asyncio.timeout(20):
                        await self._wait()
                case "group within":
                    async with asyncio.TaskGroup() as group:
                        group.create_task(self._wait())
                case _:
                    await self._wait()
        except asyncio.CancelledError:
            await self._heed()
        finally:
            self.open -= 1

    async def _heed(self) -> None:
        if self._manner == "replaces":
            raise ValueError("another error")
        if self._manner in ("cleans up", "swallows"):
            await asyncio.sleep(0.005)
        if self._manner != "swallows":
            raise asyncio.CancelledError

    def list_unfinished(self) -> dict[str, object]:
        """What has not ended but for the task that asks."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        left = {"tasks": tasks, "calls": self.open, **list_unfinished(self.server)}
        return {what: count for what, count in left.items() if count}


class Cancelling:
    """A coroutine whose task is cancelled at some of the places where it waits, by their numbers."""

    def __init__(self, coroutine: Coroutine[Any, Any, None], *places: int) -> None:
        self._coroutine, self._places = coroutine, places
        self.waits = 0
        """At how many places it has waited."""
        self.cancels = 0
        """How often its task was cancelled."""

    def __await__(self) -> Generator[Any, Any, None]:
        task, steps, error = asyncio.current_task(), self._coroutine.__await__(), None
        assert task is not None
        while True:
            try:
                waits_for = steps.send(None) if error is None else steps.throw(error)
            except StopIteration:
                return
            if self.waits in self._places:
                self.cancels += task.cancel()
            self.waits += 1
            error = None
            try:
                yield waits_for
            except BaseException as thrown:
                error = thrown

    async def run(self) -> None:
        await self


class Asked:
    """One request to a model of a `Racer`, in a task, whose client goes when `gone` is set."""

    def __init__(self, racer: Racer, kind: Kind, way: Way, wrap: Callable[[Any], Any] = lambda asked: asked) -> None:
        self.gone = asyncio.Event()
        self._way, self._streams, self._is_load, self._sent = way, kind in STREAMS, kind == "load", list[Any]()
        if way == "Python":
            asked = self._ask_stream(racer.server) if self._streams else self._ask(racer.server)
        else:
            asked = self._ask_app(racer.server)
        self.task: asyncio.Task[None] = asyncio.ensure_future(wrap(asked))
        self.cancels = 0

    def cancel(self) -> None:
        """Cancel it as its host would."""
        self.cancels += self.task.cancel()

    async def _ask(self, server: InferenceServer) -> None:
        await server.infer("m", {"x": np.array([[1.0]])})

    async def _ask_stream(self, server: InferenceServer) -> None:
        async with aclosing(server.infer_stream("m", {"x": np.array([[1.0]])})) as responses:
            async for response in responses:
                self._sent.append(response)

    async def _ask_app(self, server: InferenceServer) -> None:
        app: Any = OIPApp(server) if self._way == "REST" else _make_grpc_app(server)
        if self._way == "REST":
            path, body = f"/models/m/{'infer_stream' if self._streams else 'infer'}", BODY
            headers = [(b"content-length", b"%d" % len(BODY))]
        else:
            path = f"/{SERVICE}/{'ModelStreamInfer' if self._streams else 'ModelInfer'}"
            body = frame(wire_request("m", [_X]).SerializeToString())
            headers = [(b"content-type", b"application/grpc"), (b"te", b"trailers")]
        # while a model is loaded, a client is only seen to go whose body is all there
        parts = [body] if self._is_load else [body[:20], body[20:], b""]
        messages = [{"type": "http.request", "body": part, "more_body": part is not parts[-1]} for part in parts]
        extensions: dict[str, Any] = {"http.response.trailers": {}}
        scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "http_version": "2", "extensions": extensions}

        async def receive() -> Any:
            await asyncio.sleep(0)  # as where it has not come yet
            if messages:
                return messages.pop(0)
            await self.gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            await asyncio.sleep(0)  # as where the client does not read at once
            self._sent.append(message)

        await app(scope, receive, send)

    async def end(self) -> str:
        """How it ends: a status of HTTP, "cancelled", "cut" for a stream without an end, "error" for one with an error in it."""
        await asyncio.wait([self.task], timeout=20)
        if self.task.cancelled():
            return "cancelled"
        try:
            self.task.result()
        except InferenceError as error:
            return "error" if self._streams and self._sent else str(error.status)
        if self._way == "Python":
            return "200"
        return self._read_rest() if self._way == "REST" else self._read_grpc()

    def _read_rest(self) -> str:
        status = str(self._sent[0]["status"]) if self._sent else "nothing"
        if not self._streams or status != "200":
            return status
        events = [json.loads(event[6:]) for event in b"".join(each["body"] for each in self._sent[1:]).split(b"\n\n")[:-1]]
        return "error" if events and "error" in events[-1] else "cut" if self._sent[-1].get("more_body") else "200"

    def _read_grpc(self) -> str:
        if not self._sent or self._sent[-1]["type"] != "http.response.trailers":
            return "cut" if self._sent else "nothing"
        got = Got(self._sent)
        code, text = got.refusal
        read = MESSAGES["ModelStreamInfer.response"].FromString
        if self._streams and code == "OK" and any(read(message).error_message for message in got.messages):
            return "error"
        return _STATUSES.get(code, f"{code}: {text}")


@functools.lru_cache(1)
def _make_grpc_app(server: InferenceServer) -> OIPGRPCApp:
    """To make one takes as long as some requests."""
    return OIPGRPCApp(server)
