"""Long data of any form: read in chunks, in bounded memory, and no text more than twice."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from oip_asgi._core.datatypes import Array, dtype_of
from oip_asgi._core.errors import InvalidRequest
from oip_asgi._core.json import accelerators, chunks, documents, elements, numbers
from oip_asgi._core.json import data as json_data
from oip_asgi._core.json.data import from_json, to_json
from oip_asgi._core.limits import MAX_TENSORS, ON_LOOP
from oip_asgi._core.rest import body as rest
from oip_asgi._core.rest import costs
from oip_asgi._core.tensors import lend_nothing

MIB = 2**20


def text_of(*inputs: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"inputs": inputs, **more}, separators=(",", ":")).encode()


def tensor(datatype: str, shape: list[int], data: str, more: str = "") -> str:
    return f'{{"name":"x","shape":{json.dumps(shape)},"datatype":"{datatype}","data":{data}{more}}}'


def document(*tensors: str) -> bytes:
    return f'{{"inputs":[{",".join(tensors)}]}}'.encode()


def array_of(element: str, times: int, *last: str) -> str:
    """A JSON array of so many elements, and what is behind them."""
    return f"[{','.join([element] * times + list(last))}]"


def repeated(element: str, size: int, *, dimensions: int = 0) -> tuple[list[int], str]:
    """A shape, and as many elements as so many bytes have, each in so many arrays of its own."""
    item = "[" * dimensions + element + "]" * dimensions
    times = size // (len(item) + 1)
    return [times] + [1] * dimensions, array_of(item, times)


LONG: dict[str, Callable[[int], bytes]] = {
    "numbers": lambda size: document(tensor("FP64", *repeated("1", size))),
    "numbers of many digits": lambda size: document(tensor("FP32", *repeated("0.12345678901234567", size))),
    "slow numbers": lambda size: document(tensor("FP64", *repeated("1e300", size))),
    "nulls": lambda size: document(tensor("FP64", *repeated("null", size))),
    "literals": lambda size: document(tensor("FP64", *repeated("NaN", size))),
    "integers": lambda size: document(tensor("INT64", *repeated("1", size))),
    "integers with exponents": lambda size: document(tensor("INT64", *repeated("1e3", size))),
    "truth": lambda size: document(tensor("BOOL", *repeated("0", size))),
    "BF16": lambda size: document(tensor("BF16", *repeated("1", size))),
    "each in an array": lambda size: document(tensor("FP32", *repeated("1", size, dimensions=1))),
    "each in two arrays": lambda size: document(tensor("FP32", *repeated("1", size, dimensions=2))),
    "each in sixty arrays": lambda size: document(tensor("FP32", *repeated("1", size, dimensions=60))),
    "integers with exponents in arrays": lambda size: document(tensor("INT64", *repeated("1e3", size, dimensions=2))),
    "empty arrays": lambda size: document(tensor("FP32", [size // 3, 0], array_of("[]", size // 3))),
    "whitespace": lambda size: document(tensor("FP32", [0], f"[{' ' * size}]")),
    "small inputs": lambda size: document(*[tensor("FP32", [1], "[1]")] * (size // 54)),
    "small inputs of no elements": lambda size: document(*[tensor("FP32", [0], "[]")] * (size // 53)),
    "small inputs of truth": lambda size: document(*[tensor("BOOL", [1], "[1]")] * (size // 54)),
    "small inputs of one row": lambda size: document(*[tensor("INT8", [1, 1], "[1]")] * (size // 56)),
    "small inputs of strings": lambda size: document(*[tensor("BYTES", [1], '["a"]')] * (size // 57)),
    "small inputs with unknown fields": lambda size: document(*[tensor("FP32", [1], "[1]", ',"more":1')] * (size // 63)),
}

STRINGS: dict[str, Callable[[int], bytes]] = {
    "short strings": lambda size: document(tensor("BYTES", *repeated('"ab"', size))),
    "empty strings": lambda size: document(tensor("BYTES", *repeated('""', size))),
    "strings with escapes": lambda size: document(tensor("BYTES", *repeated('"\\n\\u0041"', size))),
    "strings in arrays": lambda size: document(tensor("BYTES", *repeated('"ab"', size, dimensions=2))),
    "one string": lambda size: document(tensor("BYTES", [1], f'["{"a" * size}"]')),
    "a scalar": lambda size: document(tensor("BYTES", [], f'"{"a" * size}"')),
}


def memory(body: bytes) -> float:
    """How much memory a body takes while it is decoded, itself included, in bytes for each of its."""
    tracemalloc.start()
    try:
        request = rest.decode_request(body, None)
        assert request.inputs
        return 1 + tracemalloc.get_traced_memory()[1] / len(body)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("has_fast", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("make", LONG.values(), ids=LONG)
def test_no_body_takes_more_than_eight_times_its_size(
    make: Callable[[int], bytes], has_fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_fast:
        monkeypatch.setattr(accelerators, "_library", lambda name: None)
    assert memory(make(MIB)) < 8


@pytest.mark.parametrize("make", STRINGS.values(), ids=STRINGS)
def test_no_strings_take_more_than_twelve_times_their_size(make: Callable[[int], bytes]) -> None:
    assert memory(make(MIB)) < 12


@pytest.mark.parametrize("name", [name for name in LONG if not name.startswith("small")])
def test_no_lists_are_left_to_the_garbage_collector(name: str) -> None:
    body = LONG[name](MIB)
    collected: list[Any] = []
    gc.collect()

    def seen(phase: str, info: dict[str, int]) -> None:
        collected.append((phase, info))

    gc.callbacks.append(seen)
    try:
        rest.decode_request(body, None)
    finally:
        gc.callbacks.remove(seen)
    assert len(collected) < 10


SLOW = "2.4703282292062327208e-324"

FAILING = {
    "the last number is too large": tensor("FP64", [2408], array_of(SLOW, 2407, "1e999")),
    "the last is a string": tensor("FP64", [20_001], array_of("1.5", 20_000, '"x"')),
    "the last is no number": tensor("FP64", [20_001], array_of("1.5", 20_000, "01")),
    "the last is not whole": tensor("INT64", [20_001], array_of("1e3", 20_000, "1.5")),
    "the last is out of range": tensor("INT8", [20_001], array_of("1", 20_000, "300")),
    "one too many": tensor("FP32", [20_000], array_of("1.5", 20_001)),
    "one too few": tensor("FP32", [20_002], array_of("1.5", 20_001)),
    "not closed": tensor("FP32", [20_001, 1], array_of("[1]", 20_001)[:-1]),
    "the last in arrays is a string": tensor("FP32", [20_001, 1, 1], array_of("[[1]]", 20_000, '[["x"]]')),
    "the last is not in an array": tensor("FP32", [20_001, 1, 1], array_of("[[1]]", 20_000, "[1]")),
    "a string among strings": tensor("BYTES", [20_001], array_of('"abc"', 20_000, "1")),
    "short": tensor("FP64", [400], array_of(SLOW, 100, '"x"')),
}


@pytest.mark.parametrize("has_fast", [True, False])
@pytest.mark.parametrize("name", FAILING)
def test_a_text_that_fails_is_parsed_twice_at_most(name: str, has_fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_fast:
        monkeypatch.setattr(accelerators, "_library", lambda name: None)
    parsed: list[int] = []

    def counting(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(text: bytes, *args: Any) -> Any:
            parsed.append(len(text))
            return function(text, *args)

        return call

    monkeypatch.setattr(json_data, "_decode_plain", counting(json_data._decode_plain))
    monkeypatch.setattr(elements, "_decode", counting(elements._decode))
    body = document(FAILING[name])
    with pytest.raises(InvalidRequest):
        rest.decode_request(body, None)
    assert sum(parsed) <= 2.01 * len(body)


@pytest.mark.parametrize("has_fast", [True, False])
@pytest.mark.parametrize("size", [2 * documents._UNCHECKED, 20_000, 200_000])
def test_a_decoder_that_is_slow_with_some_numbers_gets_few_of_them(size: int, has_fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_fast:
        monkeypatch.setattr(accelerators, "_library", lambda name: None)
    seen: list[bytes] = []

    class Decoder:
        def __init__(self, decoder: Any) -> None:
            self._decoder = decoder

        def decode(self, text: Any) -> Any:
            seen.append(bytes(text))
            return self._decoder.decode(text)

    decoder, read = json_data._decoder, accelerators.read
    monkeypatch.setattr(json_data, "_decoder", lambda kind, depth: Decoder(decoder(kind, depth)))

    def spied(text: bytes, dtype: Any) -> Any:
        seen.append(text)
        return read(text, dtype)

    monkeypatch.setattr(accelerators, "read", spied)
    for literal in ("1e300", "-5e-324", SLOW, "1E+0300", "17976931348623158e292"):
        shape, text = repeated(literal, size)
        nested, within = repeated(literal, size, dimensions=2)
        few = [tensor("FP64", [10], array_of(literal, 10))] * (size // 100)
        for body in (document(tensor("FP64", shape, text)), document(tensor("FP64", nested, within)), document(*few)):
            request = rest.decode_request(body, None)
            assert {float(value) for item in request.inputs for value in item.array.ravel()} == {float(literal)}
    assert not any(numbers.are_many_slow(text) for text in seen)


@pytest.mark.parametrize("other", ["NaN", '"Infinity"', '"\\u004eaN"', " null ", "1"])
def test_no_call_decodes_more_than_a_millisecond_of_slow_numbers(other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    decode = elements._decode

    def counting(text: bytes, *args: Any) -> Any:
        seen.append(text.count(SLOW.encode()))
        return decode(text, *args)

    monkeypatch.setattr(elements, "_decode", counting)
    body = document(tensor("FP64", [20_000], f"[{','.join([other, *[SLOW] * 99] * 200)}]"))
    [item] = rest.decode_request(body, None).inputs
    [odd] = np.array([json.loads(other)], np.float64)
    assert np.array_equal(item.array, np.array([odd, *[float(SLOW)] * 99] * 200), equal_nan=True)
    assert sum(seen) == 99 * 200
    assert max(seen) <= 4096 / len(SLOW)


@pytest.mark.parametrize("text", ['["a,b","c"]', "[1 ]", "[1,2]", '["a", "b\\",\\"",2]', "[[],1,[2]]"])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_the_parts_of_an_array_are_its_elements_in_order(text: str, size: int) -> None:
    parts = list(chunks.parts(text.encode(), size))
    assert [element for part in parts for element in json.loads(part)] == json.loads(text)
    assert size < 100 or len(parts) == 1


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
        ("BYTES", [30_000], array_of('"ab"', 29_999, "null"), "data[29999] is null: expected a string for BYTES"),
        ("FP32", [1], "[" * 50_000 + "]" * 50_000, "data is nested too deep: expected 1 in a flat array"),
        ("FP32", [30_000], array_of("1.5", 29_999, "1."), "data behind element "),
        ("FP64", [30_000], array_of(SLOW, 29_999, '"x"'), "data[29999] is a string: expected a number"),
        ("FP64", [30_000, 1], array_of(f"[{SLOW}]", 29_999, '["x"]'), "data[29999][0] is a string: expected a number"),
        ("FP64", [30_000], array_of(SLOW, 29_999, ""), "data behind element "),
        ("FP64", [30_000], array_of(SLOW, 29_998, "", "1"), "data behind element "),
        ("FP64", [30_000], array_of(SLOW, 30_001), "data has too many elements: expected 30000 in a flat array"),
        ("FP64", [30_000], array_of(SLOW, 29_999), "data has another form, or too few elements, from element "),
        ("INT8", [30_000], array_of("1", 29_999, "NaN"), "NaN, Infinity and -Infinity are no JSON: expected them as elements of"),
    ],
)
def test_what_is_wrong_with_long_data(datatype: str, shape: list[int], text: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        rest.decode_request(document(tensor(datatype, shape, text)), None)
    assert str(caught.value).startswith((f"inputs[0] ('x'): {message}", message))


SHAPES = [(1, 224, 224, 3), (3000, 1, 1), (2, 1, 1, 5000), (1, 1, 1, 9000), (700, 9), (5, 3, 700), (1,) * 60 + (50, 3, 1, 7), (4000, 2)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("datatype", ["FP32", "INT16", "BOOL", "BYTES"])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), ("\n ,\n   ", ":")])
def test_data_nests_as_its_shape(shape: tuple[int, ...], datatype: str, separators: tuple[str, str]) -> None:
    values: Array = np.random.default_rng(0).integers(0, 2, shape)
    array = np.array([b'"a],[\\"' if value else b"[" for value in values.ravel()], object) if datatype == "BYTES" else values
    array = array.astype(dtype_of(datatype)).reshape(shape)
    nested = np.array([element.decode() for element in array.ravel()], object).reshape(shape) if datatype == "BYTES" else array
    for text in (json.dumps(nested.tolist(), separators=separators).encode(), to_json(array)):
        read = from_json(text, array.dtype, shape)
        assert (read.dtype, read.shape) == (array.dtype, shape)
        assert (read == array).all()


BINARY = (
    rb'{"inputs":[{"name":"x","shape":[%d],"datatype":"B\u0059TES","parameters":{"binary_data_size":%d}}]}',
    rb'{"inputs":[{"name":"x","shape":[%d],"datatype":"BYTES","parameters":{"binary_data_size":%d}}]}',
    rb'{"inputs":[{"name":"x","shape":[%d],"more":"field","datatype":"BYTES","parameters":{"binary_data_size":%d}}]}',
)


@pytest.mark.parametrize("head", BINARY)
def test_what_binary_strings_cost_is_known_however_the_datatype_is_written(head: bytes) -> None:
    text = head % (MIB, 4 * MIB)
    assert costs.decoding_cost(text + bytes(4 * MIB), len(text)) > 30 * ON_LOOP


def test_binary_numbers_cost_nothing() -> None:
    text = b'{"inputs":[{"name":"BYTES","shape":[%d],"datatype":"INT8","parameters":{"binary_data_size":%d}}]}' % (MIB, MIB)
    assert costs.decoding_cost(text + bytes(MIB), len(text)) == costs.decoding_cost(text, None) < 1000
    assert costs.decoding_cost(bytes(MIB), 0) < ON_LOOP < costs.decoding_cost(bytes(2**25), 0)


def test_long_json_costs_too_much_for_an_event_loop_whatever_it_says() -> None:
    assert costs.decoding_cost(b" " * 16_000, None) <= ON_LOOP < costs.decoding_cost(b" " * 17_000, None)
    assert costs.decoding_cost(b" " * 17_000 + bytes(MIB), 17_000) > ON_LOOP


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            b'{"inputs":[],"parameters":{"a":"%s"}}' % (b"a" * 3 * MIB),
            "parameters has 3145736 bytes beside long data: expected 2097152 at most",
        ),
        (b'{"inputs":[{"name":"%s"}]}' % (b"a" * 3 * MIB), "inputs[0] has 3145739 bytes beside long data: expected 2097152 at most"),
        (b'{"inputs":[],"more":[%s1]}' % (b"1," * 9 * MIB), "the JSON has 18874392 bytes beside long data: expected 16777216 at most"),
        (
            text_of(
                *[{"name": "x", "shape": [1], "datatype": "INT8", "parameters": dict.fromkeys("abcdefghijk", 1), "data": [1]}] * 10_000
            ),
            f"the inputs have more than {documents.MAX_PARAMETERS} parameters",
        ),
    ],
)
def test_how_much_json_there_may_be_beside_data(text: bytes, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        rest.decode_request(text, None)
    assert str(caught.value) == message


@pytest.mark.slow
def test_as_many_inputs_as_there_may_be() -> None:
    body = document(*[tensor("FP32", [1], "[1]")] * MAX_TENSORS)
    assert len(rest.decode_request(body, None).inputs) == MAX_TENSORS


def test_decoding_changes_nothing_that_it_was_given() -> None:
    body = b'{"inputs":[{"name":"x","shape":[1],"datatype":"INT8","parameters":{"a":1,"binary_data_size":1}}]}'
    item = next(iter(documents.plain_request(body).inputs))
    before = dict(item.parameters or {})
    decoded = rest._decode_tensor(item, rest._BinaryData(b"\1"), from_json, lend_nothing)
    assert (item.parameters, decoded.parameters) == (before, {"a": 1})


@pytest.mark.parametrize(
    ("item", "field", "size"),
    [(b"{}", b"inputs", 2 * MIB - 100), (b"{}", b"inputs", 3 * MIB), (b"1", b"outputs", MIB), (b"[]", b"unknown", 3 * MIB)],
)
def test_items_are_counted_before_anything_is_made_of_them(item: bytes, field: bytes, size: int) -> None:
    body = b'{"inputs":[],"%b":[%b]}' % (field, b",".join([item] * (size // (len(item) + 1))))
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest, match="more than 300000 inputs, outputs and parameters"):
            rest.decode_request(body, None)
        assert tracemalloc.get_traced_memory()[1] < 8 * len(body)
    finally:
        tracemalloc.stop()
