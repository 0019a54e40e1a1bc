"""`ModelStreamInfer` over real servers, grpc, grpc.aio and ASGI: order, errors, ends, and how much is unanswered at once."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any

import grpc
import numpy as np
import pytest

from oip_asgi import InferenceContext, InferenceError, InferenceServer, TensorSpec
from tests.support.grpc_asgi import STREAM as METHOD
from tests.support.grpc_ways import MESSAGES, SERVINGS, Client, wire_request
from tests.support.metrics import is_idle, outcomes
from tests.support.streaming import Noted
from tests.support.talk import block_until
from tests.support.threads import mounted

MOST_UNANSWERED = 64
"""How many requests of one call are read before one of them is answered."""
WANTS_FINAL = {"triton_enable_empty_final_response": {"bool_param": True}}


class Call:
    def __init__(self, address: str, **options: Any) -> None:
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.channel = grpc.insecure_channel(address)
        stream: Any = self.channel.stream_stream(METHOD, response_deserializer=MESSAGES["ModelStreamInfer.response"].FromString)
        self.call = stream(iter(self._requests.get, None), **{"timeout": 30, **options})

    def __enter__(self) -> Call:
        return self

    def __exit__(self, *_: object) -> None:
        self._requests.put(None)
        self.call.cancel()
        self.channel.close()

    def send(self, model: str, n: int = 3, request_id: str = "", **fields: Any) -> None:
        numbers = {"name": "n", "datatype": "INT64", "shape": [1], "contents": {"int64_contents": [n]}}
        self.send_bytes(wire_request(model, [numbers], id=request_id, **fields).SerializeToString())

    def send_bytes(self, message: bytes | None) -> None:
        """None is the end."""
        self._requests.put(message)

    def next(self) -> Any:
        return next(self.call)

    def rest(self) -> list[Any]:
        return list(self.call)


def said(message: Any) -> Any:
    """The id, the number and whether it is the last; or the id and the error."""
    response = message.infer_response
    if message.error_message:
        return (response.id, response.model_name, message.error_message)
    numbers = [int(np.frombuffer(raw, "i8")[0]) for raw in response.raw_output_contents]
    return (response.id, numbers, response.parameters["triton_final_response"].bool_param)


class Models:
    def __init__(self) -> None:
        self.server = InferenceServer()
        self.noted = Noted()
        self.silent = Noted(silent_after=0)
        self.leave = threading.Event()
        self.begun = self.made = 0
        models: dict[str, Any] = {"def": self.noted.blocking, "async": self.noted.awaiting, "quick": lambda n: n}
        models |= {"silent": self.silent.awaiting, "silent def": self.silent.blocking, "stubborn": self.stubborn}
        models |= {"slow": self.slow, "large": self.large, "refuses": self.refuses, "context": self.context}
        for name, model in models.items():
            self.server.register(name, model)
        self.server.register("versioned", self.noted.awaiting, version="2")
        self.server.register("loaded", load=lambda: self.silent.awaiting)
        self.server.register("waits", self.waits, max_concurrency=1000, max_queue=1000)
        self.server.register("fails", self.fails, version="3")
        self.server.register("busy", self.silent.awaiting, max_concurrency=1, max_queue=0)
        self.server.register("scaled", self.scaled, inputs=[TensorSpec("n", "INT64", [1])])

    def scaled(self, n: Any, factor: int = 2) -> Any:
        return n * factor

    async def waits(self, n: Any) -> Any:
        self.begun += 1
        while not self.leave.is_set():
            await asyncio.sleep(0.005)
        return n

    async def stubborn(self, n: Any) -> AsyncIterator[Any]:
        try:
            yield n
            with suppress(asyncio.CancelledError):  # as `asyncio.wait_for` did at times before Python 3.12
                await asyncio.sleep(20)
            while True:
                await asyncio.sleep(0.005)
                yield n
        finally:
            self.silent.ended.append("finally")

    def slow(self, n: Any) -> Any:
        assert self.leave.wait(20)
        return n

    async def large(self, n: Any) -> AsyncIterator[Any]:
        for _ in range(int(n[0])):
            self.made += 1
            yield np.zeros(100_000)

    def fails(self, n: Any) -> Iterator[Any]:
        yield n
        raise ValueError("secret")

    async def refuses(self, n: Any) -> AsyncIterator[Any]:
        if n is not None:
            raise InferenceError("the teapot is empty", status=404)
        yield n

    def context(self, n: Any, context: InferenceContext) -> Any:
        path = context.transport["path"] if isinstance(context.transport, dict) else METHOD  # an ASGI scope, or a context of grpc
        return np.array([len(path)]) if context.headers["x-custom"] == "yes" else n


@pytest.fixture
def models() -> Iterator[Models]:
    made = Models()
    yield made
    made.leave.set()
    made.silent.go_on.set()


ALL: dict[str, Any] = {**SERVINGS, "ASGI": mounted}


@pytest.fixture(params=ALL)
def address(request: pytest.FixtureRequest, models: Models) -> Iterator[str]:
    with ALL[request.param](models.server) as where:
        yield where
    block_until(lambda: is_idle(models.server))


def test_what_is_said_of_items_and_ends(address: str) -> None:
    with Call(address, metadata=[("x-custom", "yes")]) as call:
        for model in ("def", "async"):  # each item is a response, and none is the last
            call.send(model, request_id="a")
            messages = [call.next() for _ in range(3)]
            assert [said(message) for message in messages] == [("a", [number], False) for number in range(3)]
            assert {message.infer_response.model_name for message in messages} == {model}
        call.send("async", 0, "a")  # of which nothing is said
        call.send("quick", 5, "a", parameters=WANTS_FINAL)
        assert said(call.next()) == ("a", [5], True)
        call.send("context", 1)
        assert said(call.next()) == ("", [len(METHOD)], True)
        call.send("scaled", parameters={"factor": {"int64_param": 5}, **WANTS_FINAL})
        assert said(call.next()) == ("", [15], True)
        call.send("versioned", 1, "a", parameters=WANTS_FINAL)
        call.send("async", 0, "b", parameters=WANTS_FINAL)
        call.send_bytes(None)
        messages = sorted(call.rest(), key=lambda message: str(message.infer_response.id))
        assert call.call.code() is grpc.StatusCode.OK
    assert [said(message) for message in messages] == [("a", [0], False), ("a", [], True), ("b", [], True)]
    assert [message.infer_response.model_version for message in messages] == ["2", "2", ""]
    assert [len(message.infer_response.outputs) for message in messages] == [1, 0, 0]


def test_plain_models_answer_in_the_order_of_their_requests_and_streams_as_they_come(address: str, models: Models) -> None:
    with Call(address) as call:
        call.send("loaded", 2, "silent")  # a generator that is loaded for its request holds back no other
        call.send("quick", 5, "a")
        assert sorted(map(said, (call.next(), call.next()))) == [("a", [5], True), ("silent", [0], False)]
        call.send("slow", 1, "first")
        call.send("quick", 2, "second")
        call.send("nowhere", 3, "third")
        call.send("async", 2, "stream")
        assert [said(call.next()), said(call.next())] == [("stream", [0], False), ("stream", [1], False)]
        models.leave.set()
        assert [said(call.next()), said(call.next())] == [("first", [1], True), ("second", [2], True)]
        assert said(call.next())[0] == "third"
        assert models.silent.ended == []
    models.leave.clear()
    with Call(address) as call:  # what runs is finished when the client sends no more
        call.send("slow", 1, "a")
        call.send_bytes(None)
        threading.Timer(0.1, models.leave.set).start()
        assert [said(message) for message in call.rest()] == [("a", [1], True)]


def test_errors_name_the_model_and_the_request_and_the_call_goes_on(address: str, models: Models, caplog: pytest.LogCaptureFixture) -> None:
    with Call(address) as call:
        call.send("nowhere", request_id="a")
        request_id, model, text = said(call.next())
        assert (request_id, model) == ("a", "")
        assert text.startswith("request id 'a': Request for unknown model: 'nowhere' is not found")
        call.send("fails", 4, "b", parameters=WANTS_FINAL)
        assert said(call.next()) == ("b", [4], False)
        failure = call.next()
        assert said(failure) == ("b", "fails", "request id 'b': model 'fails' version '3' failed: see the server's log")
        assert failure.infer_response.model_version == "3"
        assert said(call.next()) == ("b", [], True)
        call.send("refuses", request_id="c")
        assert said(call.next()) == ("c", "refuses", "model 'refuses', request id 'c': the teapot is empty")
        call.send("refuses")
        assert said(call.next()) == ("", "refuses", "model 'refuses': the teapot is empty")
        call.send("nowhere")
        assert said(call.next())[2].startswith("Request for unknown model: 'nowhere' is not found")
        call.send_bytes(wire_request("quick", id="d").SerializeToString())
        assert said(call.next()) == ("d", "", "model 'quick', request id 'd': missing input 'n': expected 'n', but got no inputs")
        call.send_bytes(b"\xff\xff")
        assert said(call.next()) == ("", "", "the request cannot be parsed: expected the bytes of inference.ModelInferRequest")
        call.send("scaled", parameters={"fctor": {"int64_param": 5}})
        text = "model 'scaled': unknown parameter 'fctor': expected 'factor'; did you mean 'factor'?"
        assert said(call.next()) == ("", "", text)
        call.send("busy", 2, "a")
        assert said(call.next()) == ("a", [0], False)
        call.send("busy", 2, "b")
        text = "request id 'b': model 'busy' is busy: 1 call runs and 0 wait, which is all it takes"
        assert said(call.next()) == ("b", "", text)
        call.send("quick", 5)
        assert said(call.next()) == ("", [5], True)
    assert outcomes(models.server, "") == {"invalid": 3}
    assert "secret" in caplog.text


def test_a_call_may_ask_to_end_at_the_first_error(address: str, models: Models) -> None:
    with Call(address, metadata=[("triton_grpc_error", "true")]) as call:
        call.send("silent", 2, "a")
        assert said(call.next()) == ("a", [0], False)
        call.send("nowhere")
        with pytest.raises(grpc.RpcError):
            call.next()
        assert call.call.code() is grpc.StatusCode.NOT_FOUND
        assert call.call.details().startswith("Request for unknown model: 'nowhere' is not found")
        # before its next item was asked for, or while it made it
        block_until(lambda: models.silent.ended in (["closed", "finally"], ["cancelled", "finally"]))


@pytest.mark.parametrize("model", ["silent", "silent def", "stubborn"])
def test_a_cancelled_call_ends_its_generators(address: str, models: Models, model: str) -> None:
    """Also one that swallows the cancellation, at its next item."""
    with Call(address, metadata=[("triton_grpc_error", "true")] if model == "stubborn" else []) as call:
        for _ in range(2):
            call.send(model, 2)
            call.next()
        call.call.cancel()
        models.silent.go_on.set() if model == "silent def" else None
        block_until(lambda: models.silent.ended.count("finally") == 2)
        block_until(lambda: is_idle(models.server))


def test_the_deadline_of_a_call_ends_its_generators(address: str, models: Models) -> None:
    with Call(address, timeout=0.5) as call:
        call.send("silent")
        call.next()
        with pytest.raises(grpc.RpcError):
            call.next()
        assert call.call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        block_until(lambda: models.silent.ended == ["cancelled", "finally"])


def has_settled(number: Callable[[], int]) -> bool:
    before = number()
    threading.Event().wait(0.3)
    return before == number()


@pytest.mark.parametrize("address", SERVINGS, indirect=True)  # hypercorn 0.18 takes whatever it is sent
def test_the_next_item_is_made_when_the_last_was_written(address: str, models: Models) -> None:
    with Call(address) as call:
        call.send("large", 10_000)
        call.next()
        block_until(lambda: has_settled(lambda: models.made))  # what the connection takes unread is taken
        assert models.made < 1000
        call.call.cancel()


@pytest.mark.parametrize(("address", "kind"), [("grpc", "async def"), ("grpc.aio", "def")], indirect=["address"])
def test_a_client_that_does_not_read_holds_no_slot_after_the_deadline(address: str, models: Models, kind: str) -> None:
    def blocking(n: Any) -> Iterator[Any]:
        for _ in range(int(n[0])):
            yield np.zeros(100_000)

    models.server.register("unread", blocking if kind == "def" else models.large, stream_timeout=0.5)
    models.server.register("unread too", models.large, stream_timeout=0.7)
    with Call(address) as call:
        call.send("unread", 10_000)
        call.next()
        call.send("unread too", 10_000)
        block_until(lambda: is_idle(models.server))
        models.server.unload_sync("unread")
        with pytest.raises(grpc.RpcError):
            call.rest()
        assert call.call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert call.call.details().endswith("seconds, its stream_timeout")


def test_the_deadline_of_one_stream_ends_no_other_request_of_the_call(address: str, models: Models) -> None:
    async def endless(n: Any) -> AsyncIterator[Any]:
        while True:
            yield n
            await asyncio.sleep(0)

    models.server.register("endless", endless, stream_timeout=0.2)
    for _ in range(2):
        with Call(address) as call:
            call.send("endless", request_id="a")
            call.send("waits", 7, "b")
            while not call.next().error_message:
                pass
            models.leave.set()
            assert said(call.next()) == ("b", [7], True)
            models.leave.clear()


def test_a_stream_that_the_end_of_the_server_cuts_is_no_whole_one(models: Models) -> None:
    server = InferenceServer(shutdown_timeout=0.1)
    server.register("silent", models.silent.awaiting)
    with SERVINGS["grpc"](server) as address, Call(address) as call:
        server.start()
        call.send("silent")
        call.next()
        threading.Thread(target=server.stop).start()
        with pytest.raises(grpc.RpcError) as caught:
            call.rest()
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.UNAVAILABLE, "the server is stopping")


def test_no_more_is_read_while_many_requests_are_unanswered(address: str, models: Models) -> None:
    numbers = range(MOST_UNANSWERED + 20)
    with Call(address) as call:
        for number in numbers:
            call.send("waits", number, str(number))
        block_until(lambda: models.begun >= MOST_UNANSWERED)
        assert has_settled(lambda: models.begun)
        assert models.begun == MOST_UNANSWERED
        models.leave.set()
        assert [said(call.next()) for _ in numbers] == [(str(number), [number], True) for number in numbers]


def test_infer_names_the_stream(address: str) -> None:
    numbers = {"name": "n", "datatype": "INT64", "shape": [1], "contents": {"int64_contents": [3]}}
    code, text = Client(address).refusal("ModelInfer", wire_request("async", [numbers]))
    assert (code, text.endswith("ModelStreamInfer over gRPC")) == ("INVALID_ARGUMENT", True)


def test_long_requests_are_answered_too(address: str, models: Models) -> None:
    models.server.register("long", lambda x: x[-1:])
    array, long = np.arange(100_000), {"name": "x", "datatype": "INT64", "shape": [100_000]}
    contents = {**long, "contents": {"int64_contents": array.tolist()}}

    def send(model: str, request_id: str, tensor: Any, *raw: bytes) -> None:
        call.send_bytes(wire_request(model, [tensor], raw, id=request_id, parameters=WANTS_FINAL).SerializeToString())

    with Call(address) as call:
        send("long", "a", long, array.tobytes())
        assert said(call.next()) == ("a", [99_999], True)
        send("long", "b", contents)
        assert said(call.next()) == ("b", [99_999], True)
        send("long", "c", {**contents, "shape": [7]})
        assert said(call.next())[2].startswith("model 'long', request id 'c': inpu")
        assert said(call.next()) == ("c", [], True)
        for tensor, raw in ((long, [array.tobytes()]), (contents, [])):  # refused before a worker thread has read them
            send("nowhere", "d", tensor, *raw)
            assert said(call.next())[2].startswith("request id 'd': Req")
            assert said(call.next()) == ("d", [], True)


async def cancelled_future(n: Any) -> Any:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    return await future


async def cancels_itself(n: Any) -> Any:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


def test_a_model_that_is_cancelled_from_within_has_failed(address: str, models: Models) -> None:
    models.server.register("cancelled", cancelled_future)
    models.server.register("cancels", cancels_itself)
    with Call(address) as call:
        call.send("cancelled", request_id="7")
        call.send_bytes(None)
        [message] = call.rest()
        assert message.error_message == "request id '7': model 'cancelled' failed: see the server's log"
    with Call(address) as call:
        call.send("cancels")
        with pytest.raises(grpc.RpcError):
            call.rest()
        failed = "model 'cancels' failed: it cancelled the task that runs it"
        assert (call.call.code(), call.call.details()) == (grpc.StatusCode.INTERNAL, failed)
