"""Items of a stream over gRPC that are like the ones before them: each leaves as if it had been the only one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oip_asgi import InferenceServer
from tests.support.grpc_ways import MESSAGES, wire_request
from tests.support.inside import Messages, answer_grpc, stream_grpc
from tests.support.streaming import ITEMS, KINDS, alone, both_kinds

READ = MESSAGES["ModelInferRequest"].FromString
ONCE = Messages("ModelInfer", READ, MESSAGES["ModelInferResponse"])
STREAM = Messages("ModelStreamInfer", READ, MESSAGES["ModelStreamInferResponse"])

REQUEST = wire_request("m", [{"name": "n", "datatype": "INT64", "shape": [1]}], [bytes(8)], id="é").SerializeToString()


def serve(model: Callable[[Any], Any]) -> InferenceServer:
    server = InferenceServer()
    server.register("m", model, version="2")
    return server


def told(content: bytes) -> Any:
    """A response without what only streams say."""
    message = MESSAGES["ModelInferResponse"].FromString(content)
    message.parameters.pop("triton_final_response", None)
    return message


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ITEMS)
def test_each_item_leaves_as_if_it_were_the_only_one(name: str, kind: str) -> None:
    server = serve(both_kinds(ITEMS[name])[kind])
    found = [MESSAGES["ModelStreamInferResponse"].FromString(data) for data in stream_grpc(server, STREAM, [REQUEST])]
    server.stop()
    assert [message.error_message for message in found] == [""] * len(found)
    assert {message.infer_response.parameters["triton_final_response"].bool_param for message in found} == {False}
    replies = [answer_grpc(serve(alone(ITEMS[name], place)), ONCE, REQUEST) for place in range(len(list(ITEMS[name]())))]
    assert [told(message.infer_response.SerializeToString()) for message in found] == [told(b"".join(reply.parts)) for reply in replies]
