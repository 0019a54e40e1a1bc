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
from oip_asgi._core.grpc import exchange as rpc
from oip_asgi._core.grpc.wire import bytes_head, ending
from oip_asgi._core.outlines import REMEMBERED
from oip_asgi._core.raw import to_raw
from oip_asgi._core.rest import body as rest
from oip_asgi._core.tensors import InferenceResponse, Tensor
from oip_asgi._runtime.drive import drive
from oip_asgi.grpc import _parse

from .grpc_ways import MESSAGES, wire_request
from .ways import Request, over_asgi

METHOD: Final = rpc.Method("ModelInfer", partial(_parse, MESSAGES["ModelInferRequest"]), MESSAGES["ModelInferResponse"], lambda _: ())


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
    for cached in (rpc._outlined, rpc._around):
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
