"""Long data of any form: read in chunks, in bounded memory."""

from __future__ import annotations

import gc
import json
import tracemalloc
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceServer, OIPApp
from tests.support.asking import error
from tests.support.ways import Request, over_asgi
from tests.support.wire import objects, read, received, written

MIB = 2**20


def tensor(datatype: str, shape: list[int], data: str, more: str = "") -> str:
    return f'{{"name":"x","shape":{json.dumps(shape)},"datatype":"{datatype}","data":{data}{more}}}'


def document(*tensors: str) -> bytes:
    return f'{{"inputs":[{",".join(tensors)}]}}'.encode()


def refusal(body: bytes) -> tuple[int, str]:
    """What a server answers."""
    server = InferenceServer()
    server.register("m", lambda **inputs: 1)
    return error(over_asgi(OIPApp(server), "")(Request("POST", "/models/m/infer", (), body)))


def array_of(element: str, times: int, *last: str) -> str:
    """A JSON array of so many elements, and what is behind them."""
    return f"[{','.join([element] * times + list(last))}]"


def repeated(element: str, size: int, *, dimensions: int = 0) -> tuple[list[int], str]:
    """A shape, and as many elements as so many bytes have, each in so many arrays of its own."""
    item = "[" * dimensions + element + "]" * dimensions
    times = size // (len(item) + 1)
    return [times] + [1] * dimensions, array_of(item, times)


def long_of(datatype: str, element: str, dimensions: int, size: int = MIB) -> bytes:
    return document(tensor(datatype, *repeated(element, size, dimensions=dimensions)))


NUMBERS = [
    *(("FP64", element, 0) for element in ("1", "1e300", "null", "NaN")),
    *(("FP32", "0.12345678901234567", 0), ("INT64", "1", 0), ("INT64", "1e3", 0), ("BOOL", "0", 0), ("BF16", "1", 0)),
    *(("FP32", "1", dimensions) for dimensions in (1, 2, 60)),
    ("INT64", "1e3", 2),
]
STRINGS = [*(("BYTES", element, 0) for element in ('"ab"', '""', '"\\n\\u0041"')), ("BYTES", '"ab"', 2)]
ONE_STRING = [document(tensor("BYTES", [1], f'["{"a" * MIB}"]')), document(tensor("BYTES", [], f'"{"a" * MIB}"'))]
NOTHING = [document(tensor("FP32", [MIB // 3, 0], array_of("[]", MIB // 3))), document(tensor("FP32", [0], f"[{' ' * MIB}]"))]
SMALL = [
    *(tensor("FP32", [1], "[1]"), tensor("FP32", [0], "[]"), tensor("BOOL", [1], "[1]"), tensor("INT8", [1, 1], "[1]")),
    *(tensor("BYTES", [1], '["a"]'), tensor("FP32", [1], "[1]", ',"more":1')),
]


def memory(body: bytes) -> float:
    """How much memory a body takes while it is decoded, itself included, in bytes for each of its."""
    tracemalloc.start()
    try:
        assert received(body).inputs
        return 1 + tracemalloc.get_traced_memory()[1] / len(body)
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_no_body_takes_more_than_twelve_times_its_size_and_no_strings_more_than_24_times() -> None:
    for each in NUMBERS:
        assert memory(long_of(*each)) < 12, each
    for body in NOTHING:
        assert memory(body) < 12, body[:60]
    for item in SMALL:
        assert memory(document(*[item] * (MIB // (len(item) + 1)))) < 12, item
    for body in (*(long_of(*each) for each in STRINGS), *ONE_STRING):
        assert memory(body) < 24, body[:60]


def test_no_lists_are_left_to_the_garbage_collector() -> None:
    collected: list[Any] = []

    def seen(phase: str, info: dict[str, int]) -> None:
        collected.append((phase, info))

    for body in (*(long_of(*each, size=MIB // 2) for each in NUMBERS), *NOTHING):
        gc.collect(1)  # the young ones are counted anew
        collected.clear()
        gc.callbacks.append(seen)
        try:
            received(body)
        finally:
            gc.callbacks.remove(seen)
        assert len(collected) < 10, body[:60]


SLOW = "2.4703282292062327208e-324"


@pytest.mark.parametrize("literal", ["1e300", "-5e-324", SLOW, "1E+0300", "17976931348623158e292"])
def test_numbers_that_are_slow_to_read(literal: str) -> None:
    for size in (2000, 50_000):
        shape, text = repeated(literal, size)
        nested, within = repeated(literal, size, dimensions=2)
        for body in (document(tensor("FP64", shape, text)), document(tensor("FP64", nested, within))):
            assert set(received(body).inputs[0].array.ravel().tolist()) == {float(literal)}
        for other in ("NaN", '"Infinity"', '"\\u004eaN"', " null ", "1"):
            mixed = f"[{','.join([other, *[literal] * 99] * (size // 100))}]".encode()
            [odd] = np.array([json.loads(other)], np.float64)
            array = read(mixed, "FP64", (size // 100 * 100,))
            assert np.array_equal(array, np.array([odd, *[float(literal)] * 99] * (size // 100)), equal_nan=True), other


MISSING_STRINGS = (
    'a data frame takes missing strings among JSON texts: parameters {"content_type": "pd_json"}, data ["null", "\\"Bonn\\""]; '
    'and a missing date is "NaT"'
)
MISSING_INTEGERS = (
    'a data frame takes missing integers among JSON texts: datatype "BYTES", parameters {"content_type": "pd_json", "pd_dtype": "UInt8"}, '
    'data ["null", "7"]'
)


@pytest.mark.parametrize(
    ("datatype", "shape", "text", "message"),
    [
        ("FP32", [30_000], array_of("1.5", 29_999, '"x"'), "data[29999] is a string: expected a number"),
        ("FP32", [30_000, 1], array_of("[1.5]", 29_999, "[true]"), "data[29999][0] is true or false: expected a number"),
        (
            "FP32",
            [15_000, 2],
            array_of("[1.5,2]", 14_999, "[1,1e39]"),
            "data: element 29999 is 1e+39, which is out of range for FP32",
        ),
        ("INT8", [60_000], array_of("1", 59_999, "128"), "data: element 59999 is out of range for INT8: expected -128 to 127"),
        ("INT8", [60_000], array_of("1", 59_999, "1.5"), "data[59999] is not a whole number: expected an integer for INT8"),
        ("INT8", [60_000], array_of("1", 60_001), "data has too many elements: expected 60000 in a flat array"),
        ("INT8", [60_000], array_of("1", 59_000), "data has another form, or too few elements, from element "),
        ("INT8", [60_000, 1], array_of("[1]", 59_999, "1"), "data has another form, or too few elements, from element "),
        ("BYTES", [30_000], array_of('"ab"', 29_999, "null"), f"data[29999] is null: expected a string for BYTES; {MISSING_STRINGS}"),
        ("UINT8", [60_000], array_of("1", 59_999, "null"), f"data[59999] is null: expected an integer for UINT8; {MISSING_INTEGERS}"),
        ("FP32", [1], "[" * 500_000 + "]" * 500_000, "the JSON is nested more than 100 deep"),
        ("FP32", [30_000], array_of("1.5", 29_999, "1."), "the body is not valid JSON: JSON is malformed: invalid number (byte 1200"),
        ("FP64", [30_000], array_of(SLOW, 29_999, '"x"'), "data[29999] is a string: expected a number"),
        ("FP64", [30_000, 1], array_of(f"[{SLOW}]", 29_999, '["x"]'), "data[29999][0] is a string: expected a number"),
        (
            "FP64",
            [30_000],
            array_of(SLOW, 29_999, ""),
            "the body is not valid JSON: JSON is malformed: trailing comma in array (byte 810038)",
        ),
        ("INT8", [30_000], array_of("1", 29_999, "NaN"), "NaN, Infinity and -Infinity are no JSON: expected them as elements of"),
    ],
)
def test_what_is_wrong_with_long_data(datatype: str, shape: list[int], text: str, message: str) -> None:
    status, found = refusal(document(tensor(datatype, shape, text)))
    assert (status, found.removeprefix("inputs[0] ('x'): ")[: len(message)]) == (400, message)


SHAPES = [(1, 48, 48, 3), (3000, 1, 1), (2, 1, 1, 5000), (1, 1, 1, 9000), (700, 9), (5, 3, 700), (1,) * 60 + (50, 3, 1, 7), (4000, 2)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("datatype", ["FP32", "INT16", "BOOL", "BYTES"])
def test_data_nests_as_its_shape(shape: tuple[int, ...], datatype: str) -> None:
    values = np.random.default_rng(0).integers(0, 2, shape)
    array: Any = objects([b'"a],[\\"' if value else b"[" for value in values.ravel()], *shape)
    if datatype != "BYTES":
        array = values.astype({"FP32": "f4", "INT16": "i2", "BOOL": "?"}[datatype])
    nested = np.array([element.decode() for element in array.ravel()], object).reshape(shape) if datatype == "BYTES" else array
    texts = [json.dumps(nested.tolist(), separators=separators).encode() for separators in ((",", ":"), (", ", ": "), ("\n ,\n   ", ":"))]
    for text in (*texts, written(array)):
        found = read(text, datatype, shape)
        assert (found.dtype, found.shape) == (array.dtype, shape)
        assert (found == array).all()


MISREAD = np.frombuffer(b"\xfd\x43\xae\x15", "<f4")
"""The fewest digits that name it among FP32 are those of an FP64 that lies halfway to the next FP32."""


def test_every_fp32_comes_back_also_to_a_reader_of_fp64() -> None:
    bits = np.random.default_rng(0).integers(0, 2**32, 200_000, np.uint32)
    values = np.concatenate([bits.view("<f4"), MISREAD, -MISREAD])
    values = values[np.isfinite(values)]
    text = written(values)
    assert np.array(json.loads(text), np.float64).astype("<f4").tobytes() == values.tobytes()
    assert read(text, "FP32", values.shape).tobytes() == values.tobytes()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"inputs":[],"parameters":{%b"x":1}}' % (b'"a":1,' * 100_000), "the request has more than 100000 members"),
        (b'{"inputs":[],"a":{%b"x":1}}' % (b'"a":1,' * 800_000), "the JSON has more than 450000 members"),
        (
            b'{"inputs":[{"name":"x","shape":[%b1],"datatype":"INT8"}]}' % (b"1," * MIB),
            "inputs[0].shape has too many dimensions: at most 64 are possible",
        ),
    ],
)
def test_how_many_members_there_may_be(text: bytes, message: str) -> None:
    assert refusal(text) == (400, message)


@pytest.mark.parametrize("item", [b"{}", b"1"])
@pytest.mark.parametrize("field", [b"inputs", b"outputs"])
def test_items_that_are_none_cost_nothing(item: bytes, field: bytes) -> None:
    body = b'{"inputs":[],"%b":[%b]}' % (field, b",".join([item] * (3 * MIB // (len(item) + 1))))
    refusal(b"")  # what the first request costs
    tracemalloc.start()
    try:
        assert refusal(body)[0] == 400
        assert tracemalloc.get_traced_memory()[1] < len(body)
    finally:
        tracemalloc.stop()
