"""The adapters for gRPC: in the ASGI application itself, and for servers of grpc and of grpc.aio. They
translate calls and decide nothing.

Knows protobuf, and grpc only if it is given a server of grpc; the answers come from the core.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from ._grpc.messages import Method, Reply
from ._grpc.methods import exchange, reply_error
from ._grpc.over_asgi import OIPGRPCApp as OIPGRPCApp
from ._grpc.over_asgi import TrailersMiddleware as TrailersMiddleware
from ._grpc.services import Converse, Services
from ._hosts.frameworks import check_server, describe
from ._http.routes import HEALTH_METHODS as HEALTH_METHODS
from ._io import ClientGone, Signal, Stopped
from ._protocol.errors import InferenceError
from ._runtime.async_io import AsyncIO
from ._runtime.blocking_io import BlockingIO, Written
from .server import InferenceServer

if TYPE_CHECKING:
    import grpc.aio

    GRPCServer: TypeAlias = grpc.Server | grpc.aio.Server
    AwaitingContext: TypeAlias = grpc.aio.ServicerContext[bytes, bytes]
    Context: TypeAlias = grpc.ServicerContext | AwaitingContext


def add_to_server(
    server: InferenceServer, grpc_server: GRPCServer, *, health: bool = True, reflection: bool = True
) -> None:
    """Serve the protocol's `GRPCInferenceService` from a gRPC server.

    Starting and stopping the gRPC server, its ports, credentials and limits stay with the code that made it.
    Models load when `InferenceServer.lifespan` or `start` says so, else at the first call that needs one.

    Args:
        server: The server whose models it serves.
        grpc_server: A server made by `grpc.server` or `grpc.aio.server`, before it is started.
        health: Whether `grpc.health.v1.Health/Check` answers whether the server is ready. Switch it off if
            the host has a health service of its own.
        reflection: Whether server reflection, v1 and v1alpha, describes these services. Switch it off if the
            host has its own.

    Raises:
        TypeError: One of the two is something else, such as if they are swapped.

    Specification: gRPC.
    """
    check_server(server, "add_to_server", "add_to_server(server, grpc_server), the InferenceServer first")
    if not hasattr(grpc_server, "add_generic_rpc_handlers"):
        raise TypeError(
            f"add_to_server takes a server of grpc or grpc.aio, not {describe(grpc_server)}: write "
            "add_to_server(server, grpc.aio.server())"
        )
    import grpc.aio

    services = Services(server, _read_metadata, health=health, reflection=reflection)
    is_aio = isinstance(grpc_server, grpc.aio.Server)
    answer, converse = (_answer_async, _converse_async) if is_aio else (_answer, _converse)
    # without serializers we get bytes: grpc would answer INTERNAL to bytes that it cannot parse, although
    # that is the client's fault
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        **{
            path: grpc.unary_unary_rpc_method_handler(partial(answer, server, method))
            for path, method in services.methods.items()
        },
        **{
            path: grpc.stream_stream_rpc_method_handler(partial(converse, server, each))
            for path, each in services.conversations.items()
        },
    }
    for service in services.names:
        prefix = f"/{service}/"
        own = {
            path.removeprefix(prefix): handler
            for path, handler in handlers.items()
            if path.startswith(prefix)
        }
        grpc_server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, own)])


def _read_metadata(context: Context) -> Iterator[tuple[str, str]]:
    for name, value in context.invocation_metadata() or ():
        # names that end in -bin have bytes as values, which are base64 in headers
        yield name, b64encode(value).decode() if isinstance(value, bytes) else value


def _to_status(reply: Reply) -> tuple[grpc.StatusCode, str]:
    """Return the code and the text of an error, as `context.abort` takes them."""
    import grpc

    return grpc.StatusCode[reply.code], reply.details


def _make_end_signal(context: grpc.ServicerContext) -> Signal:
    """Return a signal that is set when the call has ended: by its answer, by the client or at its
    deadline."""
    end = Signal()
    if not context.add_callback(end.set):
        end.set()
    return end


def _answer(server: InferenceServer, method: Method, request: bytes, context: grpc.ServicerContext) -> bytes:
    engine, runtime = server._inside
    io = BlockingIO(runtime, None, _make_end_signal(context))
    try:
        reply = io.complete(exchange(engine, method, request, context, io))
    except ClientGone:
        return b""  # the call has ended already
    except Exception as error:
        context.abort(*_to_status(reply_error(error)))
    if reply.metadata:
        context.send_initial_metadata(tuple(reply.metadata))
    return b"".join(reply.parts)


async def _answer_async(
    server: InferenceServer, method: Method, request: bytes, context: AwaitingContext
) -> bytes:
    engine, runtime = server._inside
    io = AsyncIO(runtime)
    try:
        reply = await io.complete(exchange(engine, method, request, context, io))
    except Exception as error:
        await context.abort(*_to_status(reply_error(error)))
    if reply.metadata:
        await context.send_initial_metadata(tuple(reply.metadata))
    return b"".join(reply.parts)


def _converse(
    server: InferenceServer, converse: Converse, requests: Iterator[bytes], context: grpc.ServicerContext
) -> Generator[bytes, None, None]:
    # a thread for this call only: all calls of a server may wait for their clients at the same time
    thread = ThreadPoolExecutor(1, "oip_asgi requests")
    end = _make_end_signal(context)
    end.then(partial(thread.shutdown, wait=False))

    async def receive() -> bytes | None:
        try:
            return await asyncio.get_running_loop().run_in_executor(thread, next, requests, None)
        except Exception:  # the call has ended
            return None

    written = Written(partial(converse, context, receive), server._inside.runtime, end)
    for message in written:
        yield message
    try:
        reply = written.result()
    except Stopped:
        reply = reply_error(InferenceError("the server is stopping", status=503))
    if reply is not None and reply.code != "OK":
        context.abort(*_to_status(reply))


async def _converse_async(
    _: InferenceServer, converse: Converse, __: object, context: AwaitingContext
) -> None:
    async def receive() -> bytes | None:
        message: object = await context.read()
        return message if isinstance(message, bytes) else None  # grpc marks the end with an object of its own

    async def write(message: bytes) -> None:
        await context.write(message)

    reply = await converse(context, receive, write)
    if reply.code != "OK":
        await context.abort(*_to_status(reply))
