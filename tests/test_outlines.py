"""What is remembered of requests never shows: an answer is the same whether others came before it or not, whatever models do to them."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oip_asgi import InferenceRequest, InferenceServer, OIPApp, TensorSpec
from oip_asgi._core.errors import InvalidRequest
from oip_asgi._core.grpc import exchange as rpc
from oip_asgi._core.grpc.wire import bytes_head, ending
from oip_asgi._core.json.documents import PLACEHOLDER
from oip_asgi._core.outlines import REMEMBERED, SHORT
from oip_asgi._core.raw import to_raw
from oip_asgi._core.rest import body as rest
from oip_asgi._core.tensors import InferenceResponse, Tensor
from oip_asgi._runtime.drive import drive
from oip_asgi.grpc import _parse
from tests.core.rest.test_properties import assert_equal
from tests.support.grpc_ways import MESSAGES, wire_request
from tests.support.ways import Request, over_asgi

HEADER: Final = "Inference-Header-Content-Length"
METHOD: Final = rpc.Method("ModelInfer", partial(_parse, MESSAGES["ModelInferRequest"]), MESSAGES["ModelInferResponse"], lambda _: ())

TEXTS: Final = {
    "as clients write it": b'{"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2.5]}]}',
    "without spaces": b'{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,2.5]}]}',
    "nested": b'{"inputs":[{"name":"x","shape":[2,2],"datatype":"INT8","data":[[1,2],[3,4]]}]}',
    "ragged": b'{"inputs":[{"name":"x","shape":[2,2],"datatype":"INT8","data":[[1,2,3],[4]]}]}',
    "data first": b'{"inputs":[{"data":[1,2],"name":"x","shape":[2],"datatype":"FP32","parameters":{"a":"]"}}]}',
    "parameters behind": b'{"inputs":[{"name":"x","shape":[1],"datatype":"INT8","data":[1],"parameters":{"a":1}}],"id":"7"}',
    "outputs behind": (
        b'{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,2]}],"outputs":[{"name":"y","parameters":{"binary_data":true}}]}'
    ),
    "no output's parameters": (
        b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}],"outputs":[{"name":"y"},{"name":"z","parameters":{}}]}'
    ),
    "called data": b'{"inputs":[{"name":"data","shape":[2],"datatype":"FP32","data":[1,2]}]}',
    "called a lot": b'{"inputs":[{"name":"\\"data\\":[1]}","shape":[2],"datatype":"FP32","data":[1,2]}]}',
    "called as the placeholder": b'{"inputs":[{"name":"[7.77e-77]","shape":[2],"datatype":"FP32","data":[1,2]}]}',
    "an id in front": b'{"id": "7\xe2\x98\x83" , "inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,2]}]}',
    "an id of no text": b'{"id":"","inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,2]}]}',
    "an id that is null": b'{"id":null,"inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,2]}]}',
    "an id that is no text": b'{"id":7,"inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,2]}]}',
    "an id with an escape": b'{"id":"\\u0041\\"","inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,2]}]}',
    "an id that is no UTF-8": b'{"id":"\xff","inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,2]}]}',
    "an id with a control character": b'{"id":"\n","inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,2]}]}',
    "two ids": b'{"id":"a","inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,2]}],"id":"b"}',
    "an id and null": b'{"id":"a","inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,2]}],"id":null}',
    "an id at the end": b'{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,2]}] , "id" : "7\xe2\x98\x83" } \n',
    "an id in the middle": b'{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,2]}],"id":"7","parameters":{}}',
    "an id of an input": b'{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,2],"id":"7"}]}',
    "an id among parameters": b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}],"parameters":{"a":1,"id":"7"}}',
    "an id and something behind": b'{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,2]}],"id":"7"}}',
    "an id alone": b'{"id":"a"}',
    "an id and nothing": b'{"id":"a",}',
    "called id": b'{"id":"a","inputs":[{"name":"id","shape":[2],"datatype":"FP32","data":[1,2]}]}',
    "the placeholder": b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP64","data":[7.77e-77]}]}',
    "space before the colon": b'{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","data" : [1,2]}]}',
    "data twice": b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1],"data":[2]}]}',
    "inputs twice": b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}],"inputs":[]}',
    "two inputs": (
        b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]},{"name":"z","shape":[1],"datatype":"FP32","data":[2]}]}'
    ),
    "a scalar": b'{"inputs":[{"name":"x","shape":[],"datatype":"FP32","data":5}]}',
    "a scalar in an array": b'{"inputs":[{"name":"x","shape":[],"datatype":"FP32","data":[5]}]}',
    "a scalar, and an array": b'{"inputs":[{"name":"x","datatype":"FP32","data":5,"shape":[]}],"outputs":[]}',
    "nothing": b'{"inputs":[{"name":"x","shape":[0],"datatype":"FP32","data":[]}]}',
    "no inputs": b'{"inputs":[]}',
    "no array": b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":"x"}]}',
    "strings": b'{"inputs":[{"name":"x","shape":[2],"datatype":"BYTES","data":["a]","b}"]}]}',
    "strings without brackets": b'{"inputs":[{"name":"x","shape":[2],"datatype":"BYTES","data":["a","b"]}]}',
    "truth": b'{"inputs":[{"name":"x","shape":[3],"datatype":"BOOL","data":[true,0,1]}]}',
    "a string among numbers": b'{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,"Infinity"]}]}',
    "a mistake among numbers": b'{"inputs":[{"name":"x","shape":[2],"datatype":"INT8","data":[1,300]}]}',
    "too few": b'{"inputs":[{"name":"x","shape":[3],"datatype":"FP32","data":[1,2]}]}',
    "literals of Python's": b'{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[NaN,-Infinity]}]}',
    "an unknown field": b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1],"more":[2]}],"even":"more"}',
    "an unknown datatype": b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP31","data":[1]}]}',
    "no flag": b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}],"parameters":{"binary_data_output":1}}',
    "unfinished": b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}',
    "something behind": b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]}]',
    "no UTF-8": b'{"inputs":[{"name":"\xff","shape":[1],"datatype":"FP32","data":[1]}]}',
    "long": b'{"inputs":[{"name":"x","shape":[3000],"datatype":"FP32","data":[%s]}]}' % b",".join([b"0.125"] * 3000),
    "long around": b'{"inputs":[{"name":"%s","shape":[1],"datatype":"FP32","data":[1]}]}' % (b"x" * 2 * SHORT),
    "nested deep": b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":%s1%s}]}' % (b"[" * 99, b"]" * 99),
}

HEADS: Final = {
    "one": (b'{"inputs":[{"name":"x","shape":[2],"datatype":"INT16","parameters":{"binary_data_size":4}}]}', b"\x01\x00\x02\x00"),
    "two": (
        b'{"inputs":[{"name":"x","shape":[2],"datatype":"INT16","parameters":{"binary_data_size":4,"a":"b"}},'
        b'{"name":"z","shape":[],"datatype":"BOOL","parameters":{"binary_data_size":1}}],"parameters":{"binary_data_output":true}}',
        b"\x01\x00\x02\x00\x01",
    ),
    "no truth": (b'{"inputs":[{"name":"x","shape":[1],"datatype":"BOOL","parameters":{"binary_data_size":1}}]}', b"\x02"),
    "strings": (b'{"inputs":[{"name":"x","shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":5}}]}', b"\x01\0\0\0a"),
    "nothing": (b'{"inputs":[]}', b""),
    "nothing, and something behind": (b'{"inputs":[]}', b"a"),
    "too short": (b'{"inputs":[{"name":"x","shape":[2],"datatype":"INT16","parameters":{"binary_data_size":4}}]}', b"\x01\x00"),
    "too long": (b'{"inputs":[{"name":"x","shape":[2],"datatype":"INT16","parameters":{"binary_data_size":4}}]}', b"\x01\x00\x02\x00\x03"),
    "another size": (b'{"inputs":[{"name":"x","shape":[2],"datatype":"INT16","parameters":{"binary_data_size":2}}]}', b"\x01\x00"),
    "in the JSON": (b'{"inputs":[{"name":"x","shape":[2],"datatype":"INT16","data":[1,2]}]}', b""),
    "the placeholder in the JSON": (b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP64","data":[7.77e-77]}]}', b""),
    "half of it": (
        b'{"inputs":[{"name":"x","shape":[1],"datatype":"INT8","data":[1]},'
        b'{"name":"z","shape":[1],"datatype":"INT8","parameters":{"binary_data_size":1}}]}',
        b"\x07",
    ),
    "both": (b'{"inputs":[{"name":"x","shape":[1],"datatype":"INT8","data":[1],"parameters":{"binary_data_size":1}}]}', b"\x07"),
    "no JSON": (b"{", b"\x07"),
}


def outcome(body: bytes, header_length: int | None) -> InferenceRequest | str:
    """The request, or why it is none."""
    try:
        return rest.decode_request(body, header_length).request
    except InvalidRequest as error:
        return str(error)


def assert_no_difference(body: bytes, header_length: int | None) -> None:
    """The first and the second time, and without any memory, the same comes of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rest, "_by_outline", lambda *_: None)
        expected = outcome(body, header_length)
    for _ in range(2):
        assert_same_request(outcome(body, header_length), expected)


def assert_same_request(found: InferenceRequest | str, expected: InferenceRequest | str) -> None:
    if isinstance(found, str) or isinstance(expected, str):
        assert found == expected
        return
    assert (found.id, found.parameters) == (expected.id, expected.parameters)
    assert [(output.name, output.parameters) for output in found.outputs] == [(each.name, each.parameters) for each in expected.outputs]
    for tensor, other in zip(found.inputs, expected.inputs, strict=True):
        assert (tensor.name, tensor.parameters) == (other.name, other.parameters)
        assert_equal(tensor.array, other.array)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_text_means_the_same_whether_its_outline_is_known_or_not(text: bytes) -> None:
    assert_no_difference(text, None)
    assert_no_difference(text, len(text))


@pytest.mark.parametrize(("head", "data"), HEADS.values(), ids=HEADS)
def test_a_head_means_the_same_whether_it_is_known_or_not(head: bytes, data: bytes) -> None:
    assert_no_difference(head + data, len(head))
    assert_no_difference(head + data, len(head) - 1)


IDENTIFIED: Final = ["an id in front", "an id at the end"]
KNOWN: Final = [
    "as clients write it",
    "nested",
    "parameters behind",
    "outputs behind",
    "the placeholder",
    "truth",
    "nothing",
    "long",
    *IDENTIFIED,
]
UNKNOWN: Final = [
    "called as the placeholder",
    "data twice",
    "two inputs",
    "strings",
    "an unknown field",
    "long around",
    "data first",
    "an id in the middle",
]


def test_outlines_are_shared_by_requests_whose_numbers_differ() -> None:
    for name in KNOWN:
        first, second = rest.decode_request(TEXTS[name], None), rest.decode_request(TEXTS[name], None)
        assert first.outline is not None
        assert first.outline is second.outline
        assert first.request is not second.request
    assert [rest.decode_request(TEXTS[name], None).request.id for name in IDENTIFIED] == ["7☃", "7☃"]
    other = rest.decode_request(TEXTS["as clients write it"].replace(b"2.5", b"-7e3"), None)
    assert other.outline is rest.decode_request(TEXTS["as clients write it"], None).outline
    assert other.request["x"].tolist() == [[1, -7000]]
    assert [rest.decode_request(TEXTS[name], None).outline for name in UNKNOWN] == [None] * len(UNKNOWN)


PIECES: Final = [
    b'"id":"b",',
    b'"id"',
    b'"data":',
    b'"data"',
    b"[",
    b"]",
    b"[1,2]",
    b"}",
    b"{",
    b",",
    b'"x"',
    b":",
    b"1",
    b" ",
    b'\\"',
    PLACEHOLDER,
]


@given(st.sampled_from(sorted(TEXTS)), st.data())
def test_no_change_of_a_text_makes_a_difference(name: str, data: st.DataObject) -> None:
    text = TEXTS[name][: 4 * SHORT]
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 12)))
        text = text[:start] + data.draw(st.sampled_from([b"", *PIECES])) + text[end:]
    assert_no_difference(text, None)
    assert_no_difference(text + b"\1\0", data.draw(st.integers(1, len(text) + 2)))


def field(number: int, value: bytes) -> bytes:
    return bytes_head(number, len(value)) + value


def shaped(datatype: str, *shape: int, name: str = "x", **fields: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, **fields}


ONE: Final = np.float32(1).tobytes()
MESSAGES_OF: Final[dict[str, Any]] = {
    "as clients write it": wire_request("m", [shaped("FP32", 1)], [ONE]),
    "with an id": wire_request("m", [shaped("FP32", 1)], [ONE], id="7"),
    "with a version and an id": wire_request("m", [shaped("FP32", 1)], [ONE], id="☃", model_version="1"),
    "with a long id": wire_request("m", [shaped("FP32", 1)], [ONE], id="7" * 128),
    "with an id, typed": wire_request("m", [shaped("FP32", 1, contents={"fp32_contents": [1]})], id="7"),
    "colons in names": wire_request("m", [shaped("FP32", 1, name=":::\x04:::")], [ONE]),
    "a lot of colons": wire_request("m", [shaped("FP32", 1, name=":" * 200)], [ONE]),
    "too long": wire_request("m", [shaped("FP32", 1)], [ONE * 2]),
    "nothing": wire_request("m", [shaped("FP32", 0)], [b""]),
    "a scalar": wire_request("m", [shaped("FP32")], [ONE]),
    "two inputs": wire_request("m", [shaped("FP32", 1), shaped("FP32", 1, name="z")], [ONE, ONE]),
    "one input of two raw contents": wire_request("m", [shaped("FP32", 1)], [ONE, ONE]),
    "no inputs": wire_request("m", [], []),
    "no inputs, and raw contents": wire_request("m", [], [ONE]),
    "typed": wire_request("m", [shaped("FP32", 1, contents={"fp32_contents": [1]})]),
    "typed and raw": wire_request("m", [shaped("FP32", 1, contents={"fp32_contents": [1]})], [ONE]),
    "strings": wire_request("m", [shaped("BYTES", 1)], [b"\1\0\0\0a"]),
    "no truth": wire_request("m", [shaped("BOOL", 1)], [b"\2"]),
    "below zero": wire_request("m", [shaped("FP32", -1)], [ONE]),
    "an unknown datatype": wire_request("m", [shaped("FP31", 1)], [ONE]),
    "an unknown model": wire_request("n", [shaped("FP32", 1)], [ONE]),
    "an unknown input": wire_request("m", [shaped("FP32", 1, name="y")], [ONE]),
    "as many bytes as no shape has": wire_request("m", [shaped("FP32", 2**61, 8)], [ONE]),
}
BARE: Final = wire_request("m", [shaped("FP32", 1)])
WHOLE: Final = wire_request("m", [shaped("FP32", 1)], [ONE]).SerializeToString()
BYTES_OF: Final = {
    **{name: message.SerializeToString() for name, message in MESSAGES_OF.items()},
    "an id in front": field(3, b"7") + WHOLE,
    "two ids": field(1, b"m") + field(3, b"7") + field(3, b"8") + WHOLE,
    "an id at the end": WHOLE + field(3, b"7"),
    "an id that is taken back": field(1, b"m") + field(3, b"7") + field(3, b"") + WHOLE,
    "an id that is taken back at once": field(1, b"m") + field(3, b"") + field(3, b"7") + WHOLE,
    "an id that is no UTF-8": field(1, b"m") + field(3, b"\xff") + WHOLE[3:],
    "an id longer than the message": field(1, b"m") + b"\x1a\x7f" + WHOLE[3:],
    "an id alone": field(3, b"7"),
    "a name of no length": b"\x0a",
    "raw contents first": field(7, ONE) + BARE.SerializeToString(),
    "raw contents in between": field(1, b"m") + field(7, ONE) + field(5, BARE.inputs[0].SerializeToString()),
    "what looks like raw contents at the end": BARE.SerializeToString() + field(9, b":\4" + ONE),
    "that behind raw contents": wire_request("m", [shaped("FP32", 1)], [ONE]).SerializeToString() + field(9, b":\4" + ONE),
    "a tag in two bytes": BARE.SerializeToString() + b"\xba\0\4" + ONE,
    "a length in two bytes": BARE.SerializeToString() + b"\x3a\x84\0" + ONE,
    "cut off": wire_request("m", [shaped("FP32", 1)], [ONE]).SerializeToString()[:-1],
    "nothing at all": b"",
    "a tag alone": b":",
    "a length without an end": b":\xff\xff\xff\xff\xff",
}


def assert_no_difference_over_grpc(server: InferenceServer, body: bytes) -> rpc.Reply:
    def reply() -> rpc.Reply:
        return drive(rpc.exchange(server.core, METHOD, body, None), server.running)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rpc, "_recognized", lambda *_: None)
        expected = reply()
    assert [reply(), reply()] == [expected, expected]
    return expected


def echo_server() -> InferenceServer:
    server = InferenceServer()
    server.register("m", lambda **inputs: inputs, inputs=[TensorSpec("x", "FP32", [-1])])
    server.register("any", lambda **inputs: inputs)
    return server


ANSWERED: Final = {
    *("as clients write it", "with an id", "with a long id", "with an id, typed", "nothing", "typed", "raw contents first"),
    *("raw contents in between", "a tag in two bytes", "a length in two bytes", "an id in front", "two ids", "an id at the end"),
    *("an id that is taken back", "an id that is taken back at once", "that behind raw contents"),
}
RECOGNIZED: Final = {
    *("as clients write it", "with an id", "with a version and an id", "colons in names", "nothing", "a scalar", "an id in front"),
    *("an unknown model", "an unknown input", "a length in two bytes"),
}


@pytest.mark.parametrize("case", BYTES_OF)
def test_a_message_means_the_same_whether_its_outline_is_known_or_not(case: str) -> None:
    server, body = echo_server(), BYTES_OF[case]
    reply = assert_no_difference_over_grpc(server, body)
    assert (reply.code == "OK") is (case in ANSWERED), reply
    assert_no_difference_over_grpc(server, body.replace(b"\x0a\x01m", b"\x0a\x03any", 1))
    assert (rpc._recognized(METHOD, body) is not None) is (case in RECOGNIZED)


@given(st.sampled_from(sorted(BYTES_OF)), st.data())
def test_no_change_of_a_message_makes_a_difference(name: str, data: st.DataObject) -> None:
    body = BYTES_OF[name]
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(body)))
        end = data.draw(st.integers(start, min(len(body), start + 4)))
        body = (
            body[:start]
            + data.draw(st.sampled_from([b"", b":", b":\4", b":\0", b"\0", b"\x12\1a", b"\x1a\0", b"\x1a\1b", ONE]))
            + body[end:]
        )
    assert_no_difference_over_grpc(echo_server(), body)


def test_an_id_of_no_text_is_none_over_grpc() -> None:
    recognized = rpc._recognized(METHOD, field(1, b"m") + field(3, b"") + WHOLE[3:])
    assert recognized is not None
    assert recognized.received is not None
    assert recognized.received.request.id is None


def test_where_a_message_ends_with_a_field() -> None:
    head = BARE.SerializeToString()
    body = head + field(7, ONE)
    assert ending(body, 7) == (head, len(head) + 2)
    assert ending(head + field(7, bytes(300)), 7) == (head, len(head) + 3)
    assert [ending(other, 7) for other in (head, body + b"\0", body[:-1], b"", b":")] == [None] * 5


def json_request(model: str, *, data: Any = (1.0,), **fields: Any) -> Request:
    document = {"inputs": [{"name": "x", "shape": [len(data)], "datatype": "FP32", "data": list(data)}], **fields}
    return Request("POST", f"/models/{model}/infer", body=json.dumps(document).encode())


def answered(server: InferenceServer, model: str = "m", **said: Any) -> Any:
    answer = over_asgi(OIPApp(server), "")(json_request(model, **said))
    return json.loads(answer.body) if answer.status == 200 else (answer.status, json.loads(answer.body)["error"])


def test_what_a_model_does_to_its_request_is_not_seen_by_the_next() -> None:
    server = InferenceServer()
    seen: list[Any] = []

    @server.model("m")
    def model(request: InferenceRequest) -> dict[str, Any]:
        [tensor], [output] = request.inputs, request.outputs
        seen.append((tensor.name, dict(tensor.parameters), dict(request.parameters), output.name, dict(output.parameters or {})))
        tensor.name, output.name = "changed", "y"
        tensor.parameters["a"] = request.parameters["b"] = 1
        assert output.parameters is not None
        output.parameters["c"] = 2
        request.outputs.append(output)
        return {"y": tensor.array}

    asked: dict[str, Any] = {"outputs": [{"name": "y", "parameters": {}}], "parameters": {"binary_data_output": False}}
    answers = [answered(server, **asked) for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]
    assert seen == [("x", {}, {"binary_data_output": False}, "y", {})] * 3


@pytest.mark.parametrize("writable", [False, True])
def test_arrays_are_each_requests_own(writable: bool) -> None:
    server = InferenceServer()

    @server.model("m", writable=writable)
    def model(x: np.ndarray) -> np.ndarray:
        if not writable:
            assert not x.flags.writeable
            return x
        x += 1
        return x

    for numbers in ([1, 2], [3, 4], [1, 2]):
        assert answered(server, data=numbers)["outputs"][0]["data"] == [number + writable for number in numbers]


def test_each_model_holds_an_outline_against_its_own_declaration() -> None:
    server = InferenceServer()
    server.register("m", lambda x: x, inputs=[TensorSpec("x", "FP32", [-1])])
    server.register("other", lambda x: x, inputs=[TensorSpec("x", "FP64", [-1])])
    for _ in range(2):
        assert answered(server)["outputs"][0]["data"] == [1]
        assert answered(server, "other") == (400, "input 'x' has datatype FP32: expected FP64")


def test_a_version_that_comes_later_is_the_one_that_answers() -> None:
    server = InferenceServer()
    body = wire_request("m", [shaped("FP32", 1)], [ONE]).SerializeToString()

    def version() -> tuple[str, str]:
        message = MESSAGES["ModelInferResponse"].FromString(drive(rpc.exchange(server.core, METHOD, body, None), server.running).message)
        return message.model_version, answered(server)["model_version"]

    server.register("m", lambda x: x, version="1")
    assert [version(), version()] == [("1", "1")] * 2
    server.register("m", lambda x: x, version="2", inputs=[TensorSpec("x", "FP32", [-1])])
    assert [version(), version()] == [("2", "2")] * 2


def test_a_timeout_and_content_types_are_those_of_the_request_each_time() -> None:
    server = InferenceServer()
    server.register("m", lambda x: x, inputs=[TensorSpec("x", "FP32", [-1])])
    for _ in range(2):
        assert answered(server, parameters={"timeout": 0})[0] == 400
        assert answered(server, parameters={"timeout": 60_000_000})["outputs"][0]["data"] == [1]
        assert answered(server, parameters={"content_type": "np"})["outputs"][0]["data"] == [1]
        assert answered(server, parameters={"content_type": "nope"})[0] == 400
        assert answered(server, parameters={"shared_memory_region": "a"})[0] == 400


def test_a_column_becomes_what_is_declared_every_time() -> None:
    server = InferenceServer()
    server.register("m", lambda x: np.float32(x.ndim), inputs=[TensorSpec("x", "FP32", [-1])])
    tensor = {"name": "input-1", "shape": [2, 1], "datatype": "FP32", "data": [1, 2]}  # as MLServer's clients write it
    body = json.dumps({"inputs": [tensor], "parameters": {"content_type": "np"}}).encode()
    column = Request("POST", "/models/m/infer", body=body)
    answers = [over_asgi(OIPApp(server), "")(column) for _ in range(3)]
    assert [json.loads(answer.body)["outputs"][0]["data"] for answer in answers] == [[1]] * 3


def test_what_is_remembered_is_bounded() -> None:
    server = InferenceServer()
    server.register("m", lambda x: x)
    for size in range(1, 2 * REMEMBERED + 10):
        answered(server, data=[0.5] * size)
    assert 0 < len(server.core.models.find("m", None).accepted) <= REMEMBERED
    assert rest._outlined.cache_info().currsize <= REMEMBERED
    for cached in (rest._outlined, rest._text_around, rpc._outlined, rpc._around):
        assert cached.cache_info().maxsize == REMEMBERED


OUTPUTS: Final[dict[str, Callable[[], Tensor]]] = {
    "numbers": lambda: Tensor("y", np.array([[1, 2]], "f4")),
    "a name that has to be escaped": lambda: Tensor('"\0\u2603[7.77e-77]', np.array([1], "f4")),
    "a scalar": lambda: Tensor("y", np.array(1, "i8")),
    "nothing": lambda: Tensor("y", np.zeros((0, 3), "?")),
    "strings": lambda: Tensor("y", np.array(["a", "é"])),
    "parameters": lambda: Tensor("y", np.array([1], "f4"), {"a": 1}),
}


@pytest.mark.parametrize("version", [None, "\0", "3"])
@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("case", OUTPUTS)
def test_an_answer_of_one_output_reads_as_one_of_several(case: str, binary: bool, version: str | None) -> None:
    """With an id, it is written without any memory."""
    tensor, request = OUTPUTS[case](), InferenceRequest([], parameters={"binary_data_output": binary})
    known = [InferenceResponse([tensor], model_name="\0m", model_version=version) for _ in range(2)]
    texts = [rest.encode_response(response, request) for response in known]
    text, parts = rest.encode_response(InferenceResponse([tensor], {}, "7", "\0m", version), request)
    assert texts[0] == texts[1]
    assert json.loads(text) == {**json.loads(texts[0][0]), "id": "7"}
    assert list(json.loads(text)) == [*json.loads(texts[0][0]), "id"]
    assert [bytes(part) for part in parts] == [bytes(part) for part in texts[0][1]] == ([to_raw(tensor.array)] if binary else [])


@pytest.mark.parametrize("case", OUTPUTS)
def test_a_message_of_one_output_reads_as_one_of_several(case: str) -> None:
    made = MESSAGES["ModelInferResponse"]
    tensor = OUTPUTS[case]()
    messages = [made.FromString(rpc._encode(InferenceResponse([tensor], {}, id_, "m", "1"), made, False)) for id_ in (None, None, "7")]
    assert messages[2].id == "7"
    messages[2].id = ""
    assert messages[0] == messages[1] == messages[2]
    assert list(messages[0].raw_output_contents) == [to_raw(tensor.array)]
