"""The streams that are measured: one process over uvicorn, one over grpc.aio.

Each has the bare stream of its kind beside the models, all of which make the same items, so that a run compares what it measures under the
same conditions. The bare streams encode each item, as an application would.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc.aio
import msgspec
import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from oip_asgi import InferenceServer, OIPApp, TensorSpec
from oip_asgi.grpc import add_to_server
from tests.support.grpc_ways import MESSAGES, SERVICE

OUTPUT = "text_output"

_encode = msgspec.json.Encoder().encode


async def items(n: np.ndarray) -> AsyncIterator[np.ndarray]:
    for index in range(int(n[0])):
        yield np.array([index])


async def texts(n: np.ndarray) -> AsyncIterator[str]:
    for _ in range(int(n[0])):
        yield "word"


def blocking_items(n: np.ndarray) -> Iterator[np.ndarray]:
    for index in range(int(n[0])):
        yield np.array([index])


def make_server() -> InferenceServer:
    """The models."""
    server = InferenceServer()
    options: dict[str, Any] = {"max_concurrency": 100, "max_queue": 100}
    for name, model in (("async", items), ("thread", blocking_items)):
        server.register(name, model, outputs=[TensorSpec(OUTPUT, "INT64", [1])], **options)
    server.register("texts", texts, outputs=[TensorSpec(OUTPUT, "BYTES", [1])], **options)
    return server


async def bare_events(request: Request) -> StreamingResponse:
    count = int((await request.json())["n"][0])

    async def events() -> AsyncIterator[bytes]:
        for index in range(count):
            yield b"data: %b\n\n" % _encode({"model_name": "bare", OUTPUT: index})

    return StreamingResponse(events(), media_type="text/event-stream")


def make_app() -> Starlette:
    """Events, bare and of the models."""
    app = Starlette(routes=[Route("/bare", bare_events, methods=["POST"])])
    OIPApp(make_server()).install(app, "/v2")
    return app


async def bare_messages(requests: AsyncIterator[bytes], _: Any) -> AsyncIterator[bytes]:
    """The same number of responses over gRPC, each a message that is filled and serialized."""
    async for data in requests:
        request = MESSAGES["ModelInferRequest"].FromString(data)
        for index in range(int.from_bytes(request.raw_input_contents[0], "little")):
            message = MESSAGES["ModelStreamInfer.response"]()
            response = message.infer_response
            response.model_name = "bare"
            response.outputs.add(name=OUTPUT, datatype="INT64", shape=[1])
            response.raw_output_contents.append(index.to_bytes(8, "little"))
            yield message.SerializeToString()


async def serve_grpc(port: int, *, is_bare: bool) -> None:
    """Serve over grpc.aio: `ModelStreamInfer` is that of the models, or the bare one."""
    server = grpc.aio.server()
    if is_bare:
        handler: Any = grpc.stream_stream_rpc_method_handler(bare_messages)
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, {"ModelStreamInfer": handler})])
    else:
        add_to_server(make_server(), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


def serve(kind: str, port: int) -> None:
    """Serve one of the kinds: "uvicorn", "bare gRPC" or "grpc.aio"."""
    if kind == "uvicorn":
        import uvicorn

        uvicorn.run(make_app(), port=port, log_level="warning", access_log=False)
    else:
        asyncio.run(serve_grpc(port, is_bare=kind == "bare gRPC"))


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
