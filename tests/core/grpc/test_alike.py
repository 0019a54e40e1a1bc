"""Items of a stream over gRPC that are like the ones before them: each leaves as if it had been the only one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from oip_asgi import InferenceServer
from oip_asgi.grpc import OIPGRPCApp
from tests.support.grpc_asgi import INFER, STREAM, call, frame
from tests.support.grpc_ways import MESSAGES, wire_request
from tests.support.streaming import ITEMS, alone, both_kinds

NUMBERS = {"name": "n", "datatype": "INT64", "shape": [1]}


@pytest.mark.parametrize("name", ITEMS)
def test_each_item_leaves_as_if_it_were_the_only_one(name: str) -> None:
    make, server = ITEMS[name], InferenceServer()
    singles = {str(place): alone(make, place) for place in range(len(list(make())))}
    for model, function in {**both_kinds(make), **singles}.items():
        server.register(model, function, version="2")
    app = OIPGRPCApp(server)

    async def ask(path: str, model: str) -> list[Any]:
        asked = wire_request(model, [NUMBERS], [bytes(8)], id="é").SerializeToString()
        got = await call(app, path, frame(asked))
        assert got.refusal == ("OK", "")
        return [MESSAGES[f"{path.rpartition('/')[2]}.response"].FromString(message) for message in got.messages]

    async def ask_all() -> None:
        expected = [response for model in singles for response in await ask(INFER, model)]
        for model in both_kinds(make):
            found = await ask(STREAM, model)
            assert [message.error_message for message in found] == [""] * len(found)
            responses = [message.infer_response for message in found]
            assert [each.parameters.pop("triton_final_response").bool_param for each in responses] == [False] * len(found)
            for each in (*expected, *responses):
                each.model_name = ""
            assert responses == expected

    asyncio.run(ask_all())
