"""How the answers of one call over gRPC are written: one at a time, in turn, and not behind a failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceError, InferenceServer
from tests.support.grpc_ways import MESSAGES, wire_request
from tests.support.inside import Messages, begin_grpc, is_idle
from tests.support.streaming import Noted
from tests.support.talk import until

STREAM = Messages("ModelStreamInfer", MESSAGES["ModelInferRequest"].FromString, MESSAGES["ModelStreamInferResponse"])


def request(model: str, n: int, request_id: str = "", **fields: Any) -> bytes:
    tensor = {"name": "n", "datatype": "INT64", "shape": [1]}
    data: bytes = wire_request(model, [tensor], [np.array([n]).tobytes()], id=request_id, **fields).SerializeToString()
    return data


def serve(**models: Callable[..., Any]) -> InferenceServer:
    server = InferenceServer()
    for name, model in models.items():
        server.register(name, model, max_concurrency=100)
    return server


def call(
    server: InferenceServer,
    requests: Sequence[bytes],
    write: Callable[[bytes], Coroutine[Any, Any, None]],
    metadata: Sequence[tuple[str, str]] = (),
) -> asyncio.Future[Any]:
    """Begin a call on the running event loop."""
    left = list(requests)

    async def receive() -> bytes | None:
        return left.pop(0) if left else None

    return asyncio.ensure_future(begin_grpc(server, STREAM, receive, write, metadata))


def test_one_message_is_written_at_a_time_and_everybody_has_a_turn() -> None:
    noted, ids, writing = Noted(), list[str](), [0, 0]

    async def write(message: bytes) -> None:
        writing[0] += 1
        writing[1] = max(writing)
        await asyncio.sleep(0)
        ids.append(MESSAGES["ModelStreamInferResponse"].FromString(message).infer_response.id)
        writing[0] -= 1

    server = serve(m=noted.awaiting)

    async def main() -> None:
        reply = await asyncio.wait_for(call(server, [request("m", 20, str(number)) for number in range(10)], write), 20)
        assert reply.code == "OK"

    asyncio.run(main())
    assert writing == [0, 1]
    assert sorted(ids) == sorted(str(number) for number in range(10) for _ in range(20))
    assert len(set(ids[-20:])) > 5  # no stream waits until another one has ended
    assert is_idle(server)


def test_what_writing_raises_ends_the_call_and_its_generators() -> None:
    noted, written = Noted(), list[bytes]()

    async def write(message: bytes) -> None:
        if len(written) == 3:
            raise OSError("the client has gone")
        written.append(message)

    async def silent(n: Any) -> AsyncIterator[int]:
        try:
            yield 0
            await asyncio.sleep(60)
        finally:
            noted.ended.append("silent")

    server = serve(m=noted.awaiting, silent=silent)

    async def main() -> None:
        with pytest.raises(OSError, match="the client has gone"):
            await asyncio.wait_for(call(server, [request("silent", 1), request("m", 1000)], write), 20)
        await until(lambda: is_idle(server))
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    assert len(written) == 3
    assert "silent" in noted.ended
    assert "finally" in noted.ended


def test_nothing_is_written_behind_the_error_that_ends_a_call_nor_cut_off_by_it() -> None:
    noted, written, cut = Noted(), list[bytes](), list[bool]()

    async def write(message: bytes) -> None:
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            cut.append(True)
            raise
        written.append(message)

    def fails(n: Any) -> Any:
        raise InferenceError("no", status=422)

    server = serve(m=noted.awaiting, fails=fails)

    async def main() -> None:
        calling = call(server, [request("m", 1000), request("fails", 1)], write, [("triton_grpc_error", "true")])
        reply = await asyncio.wait_for(calling, 20)
        assert (reply.code, reply.details) == ("INVALID_ARGUMENT", "no")
        number = len(written)
        await asyncio.sleep(0.05)
        assert len(written) == number < 1000

    asyncio.run(main())
    assert cut == []
    assert noted.ended[-1] == "finally"
    assert is_idle(server)
    server.stop()


def test_a_reload_from_a_generator_to_a_function_leaves_the_flags_of_the_stream_that_runs() -> None:
    def many(n: Any) -> Iterator[int]:
        yield from range(int(n[0]))

    functions, flags = [lambda n: n, many], list[bool]()
    server = InferenceServer()
    server.register("m", load=functions.pop)

    async def write(message: bytes) -> None:
        if not flags:
            await server.load("m")
        flags.append(MESSAGES["ModelStreamInferResponse"].FromString(message).infer_response.parameters["triton_final_response"].bool_param)

    async def main() -> None:
        parameters = {"triton_enable_empty_final_response": {"bool_param": True}}
        reply = await asyncio.wait_for(call(server, [request("m", 3, parameters=parameters)], write), 20)
        assert reply.code == "OK"
        assert flags == [False, False, False, True]
        flags.clear()
        functions.append(many)
        reply = await asyncio.wait_for(call(server, [request("m", 3, parameters=parameters)], write), 20)
        assert (reply.code, flags) == ("OK", [True])

    asyncio.run(main())
    server.stop()
