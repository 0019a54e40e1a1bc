"""Whose memory an answer is: it never holds what a later call writes, and what nobody can change any more leaves without a copy."""

from __future__ import annotations

import asyncio
import ctypes
import threading
import tracemalloc
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from itertools import product
from typing import Any, Final, TypeAlias

import numpy as np
import pytest
from numpy._core import multiarray
from numpy.lib.stride_tricks import as_strided, sliding_window_view

from oip_asgi import InferenceRequest, InferenceResponse, InferenceServer, OIPWSGIApp, Tensor
from tests.support.inside import answer_http, before_encoding
from tests.support.inside.http import Response
from tests.support.inside.values import Array
from tests.support.talk import Talk
from tests.support.ways import Request, over_wsgi

Fill: TypeAlias = Callable[[int], Any]
"""Writes a number into memory that it uses again, and returns a result that shows it."""

LENGTH: Final = "inference-header-content-length"


def read_only_view(memory: Array) -> Any:
    view = memory[:]
    view.flags.writeable = False
    return view


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


SHOWN: Final[dict[str, Callable[[Array], Any]]] = {
    "itself": lambda memory: memory,
    "windows": lambda memory: sliding_window_view(memory, 1),
    "strided": lambda memory: as_strided(memory, writeable=False),
    "a read-only view": read_only_view,
    "a view of a view": lambda memory: read_only_view(memory).reshape(-1, 1),
    "a memoryview": lambda memory: np.frombuffer(memory.data.toreadonly(), memory.dtype),
    "by an extension": by_an_extension,
    "in a mapping": lambda memory: {"y": memory},
    "twice": lambda memory: (memory, memory),
    "as a response": lambda memory: InferenceResponse([Tensor("y", memory)]),
}


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


REUSED: Final = {name: of_array(show) for name, show in SHOWN.items()} | {"bytearray": of_bytearray, "kept": kept_since_it_was_new}
SMALL, LARGE = 1025, 300_000
"""Above what is always copied, and in several messages."""

reused = pytest.mark.parametrize(
    ("name", "kind", "size"),
    [*product(REUSED, ["def"], [SMALL]), ("itself", "async def", SMALL), ("itself", "def", LARGE), ("windows", "async def", LARGE)],
)
kinds = pytest.mark.parametrize("kind", ["def", "async def"])


def serve(fill: Fill, kind: str) -> InferenceServer:
    server = InferenceServer()

    async def fill_async(x: Array) -> Any:
        return fill(int(x[0]))

    server.register("m", fill_async if kind == "async def" else lambda x: fill(int(x[0])), max_concurrency=1)
    return server


def body_of(number: int) -> bytes:
    text = '{"inputs":[{"name":"x","shape":[1],"datatype":"INT32","data":[%d]}],"parameters":{"binary_data_output":true}}'
    return (text % number).encode()


def check(data: bytes, size: int, number: int) -> None:
    assert len(data) in (4 * size, 8 * size)
    assert (np.frombuffer(data, "<f4") == number).all()


@reused
async def test_over_asgi_while_a_slow_client_takes_its_answer(name: str, kind: str, size: int) -> None:
    server = serve(REUSED[name](size), kind)
    slow = Talk(server, body=body_of(1))
    slow.takes.clear()
    quick = Talk(server, body=body_of(2))
    await quick.task
    slow.takes.set()
    await slow.task
    for number, talk in ((2, quick), (1, slow)):
        check(talk.body[int(talk.header(LENGTH) or 0) :], size, number)
    await asyncio.to_thread(server.stop)


@reused
def test_over_wsgi_while_a_slow_client_takes_its_answer(name: str, kind: str, size: int) -> None:
    server = serve(REUSED[name](size), kind)
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

    begun = [(number, *begin(number)) for number in (1, 2, 3)]
    for number, length, parts in reversed(begun):
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


UNCHANGED: Final[dict[str, Callable[[Array], Any]]] = {
    "backed by bytes": lambda x: np.frombuffer(TEXT, "<f4"),
    "part of bytes": lambda x: np.frombuffer(memoryview(TEXT)[8:], "<f4"),
    "the input": lambda x: x,
    "part of the input": lambda x: x.reshape(-1, 4)[10:],
    "the input by name": lambda x: {"y": x},
}
IN_CHUNKS, WHOLE = 2**12, 2**20


@pytest.mark.parametrize(
    ("name", "chunk", "is_binary", "kind"),
    [
        *product(UNCHANGED, [IN_CHUNKS], [True], ["def"]),
        *product(["the input"], [IN_CHUNKS, WHOLE], [True, False], ["async def"]),
        *product(["part of the input"], [WHOLE], [True, False], ["def"]),
    ],
)
def test_what_nobody_can_change_leaves_without_a_copy(name: str, chunk: int, is_binary: bool, kind: str) -> None:
    server = InferenceServer()
    addresses: list[int] = []

    def noting(x: Array) -> Any:
        result = UNCHANGED[name](x)
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


def test_a_copy_of_an_input_that_the_model_keeps_is_copied() -> None:
    server = InferenceServer()
    kept: list[Array] = []

    @server.model("m")
    def model(x: Array) -> Array:
        x = x.copy()
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
        tensors = [Tensor(str(place), np.zeros(600)) for place in range(number)]
        headers, body = InferenceRequest(tensors, parameters={"binary_data_output": True}).to_http(binary=True)
        request = Request("POST", "/models/m/infer", tuple(headers.items()), body)
        tracemalloc.start()
        try:
            assert send(request).status == 200
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(1001) < 1.1 * peak(1000)
