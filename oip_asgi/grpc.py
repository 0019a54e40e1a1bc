"""The adapters for gRPC: in the ASGI application itself, and for servers of grpc and of grpc.aio. They translate calls and decide nothing.

Knows protobuf, and grpc only if it is given a server of grpc; the answers come from the core.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from ._grpc.exchange import exchange
from ._grpc.messages import Method
from ._grpc_asgi import OIPGRPCApp as OIPGRPCApp
from ._grpc_asgi import TrailersMiddleware as TrailersMiddleware
from ._hosts import check_server, describe
from ._protocol.effects import Signal
from ._runtime.blocking import drive, iterate_written
from ._runtime.drive import drive_async
from ._runtime.runtime import Runtime
from ._runtime.waiting import ClientGone
from ._services import Converse, Services
from .server import InferenceServer

if TYPE_CHECKING:
    import grpc
    import grpc.aio

    GRPCServer: TypeAlias = grpc.Server | grpc.aio.Server
    AwaitingContext: TypeAlias = grpc.aio.ServicerContext[bytes, bytes]
    Context: TypeAlias = grpc.ServicerContext | AwaitingContext

_ADD: Final = "add_to_server(server, grpc.aio.server())"


def add_to_server(server: InferenceServer, grpc_server: GRPCServer, *, health: bool = True, reflection: bool = True) -> None:
    """Serve the protocol's `GRPCInferenceService` from a gRPC server.

    Starting and stopping the gRPC server, its ports, credentials and limits stay with the code that made it. Models load when
    `InferenceServer.lifespan` or `start` says so, else at the first call that needs one.

    Args:
        server: The server whose models it serves.
        grpc_server: A server made by `grpc.server` or `grpc.aio.server`, before it is started.
        health: Whether `grpc.health.v1.Health/Check` answers whether the server is ready. Switch it off if the host has a health
            service of its own.
        reflection: Whether server reflection, v1 and v1alpha, describes these services. Switch it off if the host has its own.

    Raises:
        TypeError: One of the two is something else, such as if they are swapped.

    Specification: gRPC.
    """
    check_server(server, "add_to_server", "add_to_server(server, grpc_server), the InferenceServer first")
    if not hasattr(grpc_server, "add_generic_rpc_handlers"):
        raise TypeError(f"add_to_server takes a server of grpc or grpc.aio, not {describe(grpc_server)}: write {_ADD}")
    services = Services(_read_metadata, health=health, reflection=reflection)
    grpc_server.add_generic_rpc_handlers([_make_handler(server, services, name, grpc_server) for name in services.names])


def _read_metadata(context: Context) -> Iterator[tuple[str, str]]:
    for name, value in context.invocation_metadata() or ():
        # names that end in -bin have bytes as values, which are base64 in headers
        yield name, b64encode(value).decode() if isinstance(value, bytes) else value


def _make_handler(server: InferenceServer, services: Services, service: str, grpc_server: GRPCServer) -> grpc.GenericRpcHandler:
    import grpc
    import grpc.aio

    is_aio = isinstance(grpc_server, grpc.aio.Server)
    # without serializers we get bytes: grpc would answer INTERNAL to bytes that it cannot parse, although that is the client's fault
    answerer = _make_awaiting if is_aio else _make_blocking
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        method.name: grpc.unary_unary_rpc_method_handler(answerer(server, method)) for method in services.find_methods(service)
    }
    streaming = _make_awaiting_stream if is_aio else _make_blocking_stream
    for name, converse in services.find_conversations(server._inside.engine, service).items():
        handlers[name] = grpc.stream_stream_rpc_method_handler(streaming(server._inside.runtime, converse))
    return grpc.method_handlers_generic_handler(service, handlers)


def _make_blocking(server: InferenceServer, method: Method) -> Callable[[bytes, grpc.ServicerContext], bytes]:
    import grpc

    engine, runtime = server._inside

    def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            reply = drive(exchange(engine, method, request, context), runtime, gone=_watch_end(context))
        except ClientGone:
            return b""  # the call has ended already
        if reply.code != "OK":
            context.abort(grpc.StatusCode[reply.code], reply.details)
        return reply.message

    return answer


def _watch_end(context: grpc.ServicerContext) -> Signal:
    """Return a signal that is set when the call has ended: by its answer, by the client or at its deadline."""
    end = Signal()
    if not context.add_callback(end.set):
        end.set()
    return end


def _make_awaiting(server: InferenceServer, method: Method) -> Callable[[bytes, AwaitingContext], Awaitable[bytes]]:
    import grpc

    engine, runtime = server._inside

    async def answer(request: bytes, context: AwaitingContext) -> bytes:
        reply = await drive_async(exchange(engine, method, request, context), runtime)
        if reply.code != "OK":
            await context.abort(grpc.StatusCode[reply.code], reply.details)
        return reply.message

    return answer


def _make_blocking_stream(
    runtime: Runtime, converse: Converse
) -> Callable[[Iterator[bytes], grpc.ServicerContext], Generator[bytes, None, None]]:
    import grpc

    def answer(requests: Iterator[bytes], context: grpc.ServicerContext) -> Generator[bytes, None, None]:
        # a thread for this call only: all calls of a server may wait for their clients at the same time
        thread = ThreadPoolExecutor(1, "oip_asgi requests")
        end = _watch_end(context)
        end.then(partial(thread.shutdown, wait=False))

        async def receive() -> bytes | None:
            try:
                return await asyncio.get_running_loop().run_in_executor(thread, next, requests, None)
            except Exception:  # the call has ended
                return None

        reply = yield from iterate_written(partial(converse, context, receive), runtime, end)
        if reply is not None and reply.code != "OK":
            context.abort(grpc.StatusCode[reply.code], reply.details)

    return answer


def _make_awaiting_stream(runtime: Runtime, converse: Converse) -> Callable[[object, AwaitingContext], Awaitable[None]]:
    import grpc

    async def answer(_: object, context: AwaitingContext) -> None:
        async def receive() -> bytes | None:
            message: object = await context.read()
            return message if isinstance(message, bytes) else None  # grpc marks the end with an object of its own

        async def write(message: bytes) -> None:
            await context.write(message)

        reply = await drive_async(converse(context, receive, write), runtime)
        if reply.code != "OK":
            await context.abort(grpc.StatusCode[reply.code], reply.details)

    return answer
