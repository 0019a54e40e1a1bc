"""Whose memory an answer is: it never holds what a later call writes, and what nobody can change any more leaves without a copy."""

from __future__ import annotations

import asyncio
import ctypes
import threading
import tracemalloc
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Any, Final, TypeAlias

import numpy as np
import pytest
from numpy._core import multiarray
from numpy.lib.stride_tricks import as_strided, sliding_window_view

from oip_asgi import InferenceRequest, InferenceResponse, InferenceServer, OIPApp, OIPWSGIApp, Tensor
from tests.support.inside import answer_http, before_encoding
from tests.support.inside.http import Response
from tests.support.inside.values import Array
from tests.support.ways import Request, over_wsgi

Fill: TypeAlias = Callable[[int], Any]
"""Writes a number into memory that it uses again, and returns a result that shows it."""

LENGTH: Final = b"inference-header-content-length"


def itself(memory: Array) -> Any:
    return memory


def windows(memory: Array) -> Any:
    return sliding_window_view(memory, 1)


def strided(memory: Array) -> Any:
    return as_strided(memory, writeable=False)


def read_only_view(memory: Array) -> Any:
    view = memory[:]
    view.flags.writeable = False
    return view


def view_of_a_view(memory: Array) -> Any:
    return read_only_view(memory).reshape(-1, 1)


def through_a_memoryview(memory: Array) -> Any:
    return np.frombuffer(memory.data.toreadonly(), memory.dtype)


_pointer: Final = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_API: Final = ctypes.cast(_pointer(multiarray._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
_NEW_ARRAY, _WRITABLE_IN_C_ORDER = 93, 0x501


def by_an_extension(memory: Array) -> Any:
    """An array as C makes it around memory of its own, by PyArray_SimpleNewFromData: it owns nothing, and has no base."""
    size, integer, address = ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p
    signature = ctypes.PYFUNCTYPE(
        ctypes.py_object, ctypes.py_object, integer, ctypes.POINTER(size), integer, address, address, integer, integer, address
    )
    number = np.dtype(memory.dtype).num
    new_array = signature(_API[_NEW_ARRAY])
    return new_array(np.ndarray, 1, (size * 1)(memory.size), number, None, memory.ctypes.data, 0, _WRITABLE_IN_C_ORDER, None)


def in_a_mapping(memory: Array) -> Any:
    return {"y": memory}


def twice(memory: Array) -> Any:
    return memory, memory


def as_response(memory: Array) -> Any:
    return InferenceResponse([Tensor("y", memory)])


SHOWN_ALONE: Final = [itself, windows, strided, read_only_view, view_of_a_view, through_a_memoryview, by_an_extension]
SHOWN: Final = [*SHOWN_ALONE, in_a_mapping, twice, as_response]


def of_array(show: Callable[[Array], Any]) -> Callable[[int], Fill]:
    def make(size: int) -> Fill:
        memory = np.zeros(size, "<f4")

        def fill(number: int) -> Any:
            memory[:] = number
            return show(memory)

        return fill

    return make


def of_bytearray(size: int) -> Fill:
    memory = bytearray(4 * size)

    def fill(number: int) -> Any:
        memory[:] = np.full(size, number, "<f4").tobytes()
        return np.frombuffer(memoryview(memory).toreadonly(), "<f4")

    return fill


def kept_since_it_was_new(size: int) -> Fill:
    kept: list[Array] = []

    def fill(number: int) -> Any:
        if kept:
            kept[0][:] = number
            return kept[0]
        kept.append(np.full(size, number, "<f4"))
        return kept[0]

    return fill


REUSED: Final = {show.__name__: of_array(show) for show in SHOWN} | {"bytearray": of_bytearray, "kept": kept_since_it_was_new}

reused = pytest.mark.parametrize("make", REUSED.values(), ids=REUSED)
kinds = pytest.mark.parametrize("kind", ["def", "async def"])
sizes = pytest.mark.parametrize("size", [1025, 300_000], ids=["above what is always copied", "in several messages"])


def serve(fill: Fill, kind: str) -> InferenceServer:
    """A server of a model that uses its memory again, so it allows one call at once."""
    server = InferenceServer()

    async def fill_async(x: Array) -> Any:
        return fill(int(x[0]))

    server.register("m", fill_async if kind == "async def" else lambda x: fill(int(x[0])), max_concurrency=1)
    return server


def body_of(number: int) -> bytes:
    text = '{"inputs":[{"name":"x","shape":[1],"datatype":"INT32","data":[%d]}],"parameters":{"binary_data_output":true}}'
    return (text % number).encode()


def check(data: bytes, size: int, number: int) -> None:
    """Whether binary data are outputs that hold one number only."""
    assert len(data) in (4 * size, 8 * size)
    assert (np.frombuffer(data, "<f4") == number).all()


@reused
@kinds
@sizes
def test_an_answer_keeps_what_its_call_returned(make: Callable[[int], Fill], kind: str, size: int) -> None:
    server = serve(make(size), kind)
    responses = [answer_http(server, "POST", "/models/m/infer", (), body_of(number)) for number in (1, 2, 3)]
    for number, response in enumerate(responses, 1):
        assert response.status == 200
        check(b"".join(response.parts[1:]), size, number)
    server.stop()


class Held:
    """A request over ASGI whose client takes no more than the head of the answer, until it is let go."""

    def __init__(self, app: OIPApp, number: int) -> None:
        self.has_begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self._body = body_of(number)
        self._sent: list[Any] = []
        scope: Any = {"type": "http", "method": "POST", "path": "/models/m/infer", "headers": []}
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> Any:
        return {"type": "http.request", "body": self._body}

    async def _send(self, message: Any) -> None:
        self._sent.append(message)
        self.has_begun.set()
        await self.go_on.wait()

    async def data(self) -> bytes:
        """The binary data of the answer."""
        self.go_on.set()
        await self.task
        return b"".join(message["body"] for message in self._sent[1:])[int(dict(self._sent[0]["headers"])[LENGTH]) :]


@reused
@kinds
@sizes
def test_over_asgi_while_a_slow_client_takes_its_answer(make: Callable[[int], Fill], kind: str, size: int) -> None:
    async def main() -> None:
        app = OIPApp(server)
        slow = Held(app, 1)
        await slow.has_begun.wait()
        check(await Held(app, 2).data(), size, 2)
        check(await slow.data(), size, 1)

    server = serve(make(size), kind)
    asyncio.run(asyncio.wait_for(main(), 20))
    server.stop()


@reused
@kinds
@sizes
def test_over_wsgi_while_a_slow_client_takes_its_answer(make: Callable[[int], Fill], kind: str, size: int) -> None:
    server = serve(make(size), kind)
    app = OIPWSGIApp(server)

    def begin(number: int) -> tuple[int, Iterable[bytes]]:
        lengths: list[int] = []

        def start_response(status: str, headers: list[tuple[str, str]], exc_info: object = None) -> Callable[[bytes], object]:
            lengths.append(int(dict(headers)["Inference-Header-Content-Length"]))
            return lambda data: None

        body = body_of(number)
        environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/models/m/infer", "CONTENT_LENGTH": str(len(body)), "wsgi.input": BytesIO(body)}
        parts = app(environ, start_response)
        return lengths[0], parts

    slow, quick = begin(1), begin(2)
    for number, (length, parts) in ((2, quick), (1, slow)):
        check(b"".join(parts)[length:], size, number)
    server.stop()


@kinds
def test_no_call_begins_while_the_answer_before_it_is_encoded(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is copied or joined there may still be the model's own memory."""
    begun = [threading.Event(), threading.Event()]
    overlaps: list[bool] = []

    def fill(number: int) -> Any:
        begun[number].set()
        return number

    def hook(request: InferenceRequest) -> None:
        if request["x"][0] == 0:
            overlaps.append(begun[1].wait(0.2))

    before_encoding(monkeypatch, hook)
    server = serve(fill, kind)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(answer_http, server, "POST", "/models/m/infer", (), body_of(0))
        assert begun[0].wait(20)
        second = pool.submit(answer_http, server, "POST", "/models/m/infer", (), body_of(1))
        assert [first.result(20).status, second.result(20).status] == [200, 200]
    assert overlaps == [False]
    server.stop()


# What leaves without a copy


def address_of(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


TEXT: Final = np.arange(5000, dtype="<f4").tobytes()


def backed_by_bytes(x: Array) -> Any:
    return np.frombuffer(TEXT, "<f4")


def part_of_bytes(x: Array) -> Any:
    return np.frombuffer(memoryview(TEXT)[8:], "<f4")


def the_input(x: Array) -> Any:
    return x


def part_of_the_input(x: Array) -> Any:
    return x.reshape(-1, 4)[10:]


def the_input_named(x: Array) -> Any:
    return {"y": x}


UNCHANGED: Final = [backed_by_bytes, part_of_bytes, the_input, part_of_the_input, the_input_named]


@pytest.mark.parametrize("model", UNCHANGED)
@pytest.mark.parametrize("chunk", [2**12, 2**20], ids=["in chunks", "in one piece"])
@pytest.mark.parametrize("is_binary", [True, False], ids=["binary", "JSON"])
@kinds
def test_what_nobody_can_change_leaves_without_a_copy(model: Callable[[Array], Any], chunk: int, is_binary: bool, kind: str) -> None:
    server = InferenceServer()
    addresses: list[int] = []

    def noting(x: Array) -> Any:
        result = model(x)
        addresses.append(address_of(result["y"] if isinstance(result, dict) else result))
        return result

    async def noting_async(x: Array) -> Any:
        return noting(x)

    server.register("m", noting_async if kind == "async def" else noting)
    request = InferenceRequest([Tensor("x", np.arange(5000, dtype="<f4"))], parameters={"binary_data_output": True})
    named, body = request.to_http(binary=is_binary)
    headers = [(name.lower().encode(), value.encode()) for name, value in named.items()]
    response = answer_http(server, "POST", "/models/m/infer", headers, body, chunk=chunk)
    assert response.status == 200
    assert [address_of(np.frombuffer(part, "u1")) for part in response.parts[1:]] == addresses
    server.stop()


def test_a_writable_input_that_the_model_keeps_is_copied() -> None:
    server = InferenceServer()
    kept: list[Array] = []

    @server.model("m", writable=True)
    def model(x: Array) -> Array:
        for array in kept:
            array[:] = 7
        kept.append(x)
        return x

    responses: list[Response] = []
    for number in (1, 2):
        array = np.full(5000, number, "<f4")
        named, body = InferenceRequest([Tensor("x", array)], parameters={"binary_data_output": True}).to_http(binary=True)
        headers = [(name.lower().encode(), value.encode()) for name, value in named.items()]
        responses.append(answer_http(server, "POST", "/models/m/infer", headers, body))
    for number, response in enumerate(responses, 1):
        check(b"".join(response.parts[1:]), 5000, number)


def test_however_many_inputs_come_back_none_is_copied() -> None:
    server = InferenceServer()
    server.register("m", lambda **x: x)
    send = over_wsgi(OIPWSGIApp(server), "")

    def peak(number: int) -> int:
        tensors = [Tensor(str(place), np.zeros(2000)) for place in range(number)]
        headers, body = InferenceRequest(tensors, parameters={"binary_data_output": True}).to_http(binary=True)
        request = Request("POST", "/models/m/infer", tuple(headers.items()), body)
        tracemalloc.start()
        try:
            assert send(request).status == 200
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(1001) < 1.1 * peak(1000)
