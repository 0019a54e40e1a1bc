"""Messages as clients in other languages may write them, byte by byte: the encoding leaves several ways to say the same, and all are read.

Format: Protocol Buffers, Encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from oip_asgi import InferenceRequest, InferenceResponse, InferenceServer, Tensor
from tests.support.grpc_ways import SERVINGS, Client, wire_request
from tests.table.test_grpc import parameters_of

VARINT, FIXED64, BYTES, START_GROUP, END_GROUP, FIXED32 = range(6)


def number(value: int) -> bytes:
    """A varint; negative numbers take ten bytes."""
    value &= 2**64 - 1
    head = bytearray()
    while value > 0x7F:
        head.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*head, value])


def varint(field: int, value: int) -> bytes:
    return number(field << 3 | VARINT) + number(value)


def field(number_of_it: int, value: bytes | str) -> bytes:
    value = value.encode() if isinstance(value, str) else value
    return number(number_of_it << 3 | BYTES) + number(len(value)) + value


def fixed32(number_of_it: int, value: float) -> bytes:
    return number(number_of_it << 3 | FIXED32) + struct.pack("<f", value)


MODEL = field(1, "echo")
NAMED = field(1, "x") + field(2, "FP32")
SHAPE = field(3, number(2))
FLOATS = struct.pack("<2f", 1.5, 2.5)
CONTENTS = field(5, field(6, FLOATS))
LATER = varint(99, 7) + field(100, "later") + number(101 << 3 | FIXED64) + bytes(8) + fixed32(102, 1)
GROUP = number(103 << 3 | START_GROUP) + varint(1, 5) + number(103 << 3 | END_GROUP)

SAME = {
    "packed, as most write it": MODEL + field(5, NAMED + SHAPE + CONTENTS),
    "unpacked elements": MODEL + field(5, NAMED + SHAPE + field(5, fixed32(6, 1.5) + fixed32(6, 2.5))),
    "elements in two packs": MODEL + field(5, NAMED + SHAPE + field(5, field(6, FLOATS[:4]) + field(6, FLOATS[4:]))),
    "elements packed and unpacked": MODEL + field(5, NAMED + SHAPE + field(5, field(6, FLOATS[:4]) + fixed32(6, 2.5))),
    "contents in two pieces": MODEL + field(5, NAMED + SHAPE + field(5, field(6, FLOATS[:4])) + field(5, field(6, FLOATS[4:]))),
    "unpacked dimensions": MODEL + field(5, NAMED + varint(3, 2) + CONTENTS),
    "a dimension in more bytes than it needs": MODEL + field(5, NAMED + field(3, b"\x82\x80\x80\0") + CONTENTS),
    "fields in another order": field(5, CONTENTS + SHAPE + field(2, "FP32") + field(1, "x")) + MODEL,
    "a field twice, of which the last counts": field(1, "nope")
    + MODEL
    + field(5, field(1, "y") + field(2, "FP64") + NAMED + SHAPE + CONTENTS),
    "defaults in full": MODEL + field(2, "") + field(3, "") + field(5, NAMED + SHAPE + CONTENTS),
    "fields of a later version": LATER + MODEL + field(5, NAMED + LATER + SHAPE + field(5, field(6, FLOATS) + LATER)) + LATER,
    "groups, which are no longer in use": GROUP + MODEL + field(5, NAMED + GROUP + SHAPE + CONTENTS) + GROUP,
    "a field of another wire type, which is unknown then": MODEL + fixed32(3, 1) + field(5, NAMED + SHAPE + CONTENTS),
}


def echo(request: InferenceRequest) -> InferenceResponse:
    return InferenceResponse([Tensor(tensor.name, tensor.array, tensor.parameters) for tensor in request.inputs], request.parameters)


@pytest.fixture(scope="module", params=SERVINGS)
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    server = InferenceServer()
    server.register("echo", echo)
    with SERVINGS[request.param](server) as address:
        yield Client(address)


def test_every_way_to_write_a_tensor_is_read(client: Client) -> None:
    for way, data in SAME.items():
        answer = client.ask("ModelInfer", data)
        [output] = answer.outputs
        found = (output.name, output.datatype, [*output.shape], [*answer.raw_output_contents])
        assert found == ("x", "FP32", [2], [FLOATS]), way


@pytest.mark.parametrize("size", [8, 80_000])
def test_raw_contents_between_the_other_fields_are_read(client: Client, size: int) -> None:
    """Also above the size from which on they are taken off the message."""
    raw = [bytes([place + 1]) * size for place in range(2)]
    tensors = [field(5, field(1, name) + field(2, "UINT8") + field(3, number(size))) for name in "ab"]
    data = field(7, raw[0]) + tensors[0] + GROUP * (size < 100) + MODEL + field(7, raw[1]) + LATER + tensors[1]
    answer = client.ask("ModelInfer", data)
    assert [output.name for output in answer.outputs] == ["a", "b"]
    assert list(answer.raw_output_contents) == raw
    beside_group = GROUP + MODEL + tensors[0] + field(7, raw[0])
    assert list(client.ask("ModelInfer", beside_group).raw_output_contents) == raw[:1]


def entry(key: str | None, value: bytes | None) -> bytes:
    """An entry of the map `parameters` of a request."""
    return field(4, (b"" if key is None else field(1, key)) + (b"" if value is None else field(2, value)))


ONE, TWO = varint(2, 1), varint(2, 2)

MAPS = {
    "no key": (entry(None, ONE), {"": 1}),
    "the empty key": (entry("", ONE), {"": 1}),
    "a key twice": (entry("a", ONE) + entry("b", ONE) + entry("a", TWO), {"a": 2, "b": 1}),
    "a key twice, of different kinds": (entry("a", ONE) + entry("a", field(3, "text")), {"a": "text"}),
    "a value twice": (entry("a", ONE + field(3, "text")), {"a": "text"}),
    "zero, which is a value": (entry("a", varint(2, 0)), {"a": 0}),
    "false, which is a value": (entry("a", varint(1, 0)), {"a": False}),
    "a boolean above one": (entry("a", varint(1, 2)), {"a": True}),
    "value before key": (field(4, field(2, ONE) + field(1, "a")), {"a": 1}),
    "a negative number": (entry("a", varint(2, -1)), {"a": -1}),
    "the largest number": (entry("a", varint(5, 2**64 - 1)), {"a": 2**64 - 1}),
    "fields of a later version": (entry("a", LATER + ONE), {"a": 1}),
}


def test_parameters_are_read_as_maps_are(client: Client) -> None:
    for case, (data, expected) in MAPS.items():
        found = parameters_of(client.ask("ModelInfer", MODEL + data))
        assert found == expected, case
        assert {name: type(value) for name, value in found.items()} == {name: type(value) for name, value in expected.items()}, case


def test_a_parameter_of_no_kind_that_is_known_is_refused(client: Client) -> None:
    for value in (None, b"", LATER):
        code, text = client.refusal("ModelInfer", MODEL + entry("a", value))
        assert (code, text[:28]) == ("INVALID_ARGUMENT", "parameters['a'] has no value")


def test_an_empty_message_asks_for_the_model_without_a_name(client: Client) -> None:
    for method in ("ModelInfer", "ModelReady", "ModelMetadata"):
        assert client.refusal(method, b"") == ("NOT_FOUND", "Request for unknown model: '' is not found: expected 'echo'")


def test_methods_without_arguments_take_those_of_later_versions(client: Client) -> None:
    for method in ("ServerLive", "ServerReady", "ServerMetadata"):
        assert client.ask(method, LATER + GROUP) == client.ask(method, b"")
        assert client.refusal(method, b"\xff")[0] == "INVALID_ARGUMENT"


ONES: dict[str, tuple[Any, dict[str, bytes]]] = {
    "bool_contents": (True, {"BOOL": b"\1"}),
    "int_contents": (1, {"INT8": b"\1", "INT16": b"\1\0", "INT32": b"\1\0\0\0"}),
    "int64_contents": (1, {"INT64": b"\1" + bytes(7)}),
    "uint_contents": (1, {"UINT8": b"\1", "UINT16": b"\1\0", "UINT32": b"\1\0\0\0"}),
    "uint64_contents": (1, {"UINT64": b"\1" + bytes(7)}),
    "fp32_contents": (1.0, {"FP32": b"\0\0\x80?"}),
    "fp64_contents": (1.0, {"FP64": bytes(6) + b"\xf0?"}),
    "bytes_contents": (b"1", {"BYTES": b"\1\0\0\x001"}),
}
"""Each field: a one, and the bytes of it in the datatypes whose field it is."""


def test_contents_are_in_the_one_field_of_their_datatype(client: Client) -> None:
    fields = {datatype: (field, raw) for field, (_, datatypes) in ONES.items() for datatype, raw in datatypes.items()}
    for contents, (element, _) in ONES.items():
        for datatype in (*fields, "FP16", "BF16"):
            request = wire_request("echo", [{"name": "x", "datatype": datatype, "shape": [1], "contents": {contents: [element]}}])
            expected, raw = fields.get(datatype, (None, b""))
            if contents == expected:
                assert list(client.ask("ModelInfer", request).raw_output_contents) == [raw]
                continue
            text = f"inputs[0] ('x'): contents.{contents} is given: expected contents.{expected} for {datatype}"
            if expected is None:
                text = f"inputs[0] ('x'): datatype {datatype} has no field in contents: send it as raw_input_contents"
            assert client.refusal("ModelInfer", request) == ("INVALID_ARGUMENT", text)


NESTED = {
    "messages in an unknown field": MODEL + field(99, field(1, b"") * 1000),
    "groups in groups": MODEL + number(9 << 3 | START_GROUP) * 100_000,
    "groups in groups, which end": MODEL + number(9 << 3 | START_GROUP) * 50_000 + number(9 << 3 | END_GROUP) * 50_000,
    "the end of no group": MODEL + number(9 << 3 | END_GROUP),
    "field number 0": MODEL + b"\0\0",
}


def test_nesting_never_hurts(client: Client) -> None:
    for data in NESTED.values():
        if client.begin("ModelInfer", data).exception() is not None:
            assert client.refusal("ModelInfer", data)[0] == "INVALID_ARGUMENT"
        assert client.ask("ServerLive").live is True
