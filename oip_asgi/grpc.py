"""The adapter for gRPC, for servers of grpc and of grpc.aio. It translates calls and decides nothing.

Knows grpc and protobuf, the extra `[grpc]`; the answers come from the core.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable, Generator, Iterator
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, TypeAlias

import grpc
import grpc.aio
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from ._core.effects import Send, Signal
from ._core.errors import InvalidRequest
from ._core.grpc.exchange import HEALTH, METHODS, SERVICE, exchange
from ._core.grpc.method import Method, Reply
from ._core.grpc.stream import STREAM, stream_exchange
from ._runtime import bridge
from ._runtime.drive import abandon_async, advance_async, drive, drive_async
from ._runtime.waiting import ClientGone
from .server import InferenceServer

if TYPE_CHECKING:
    GRPCServer: TypeAlias = grpc.Server | grpc.aio.Server
    AwaitingContext: TypeAlias = grpc.aio.ServicerContext[bytes, bytes]
    Context: TypeAlias = grpc.ServicerContext | AwaitingContext


def add_to_server(server: InferenceServer, grpc_server: GRPCServer, *, health: bool = True, reflection: bool = True) -> None:
    """Serve the protocol's `GRPCInferenceService` from a gRPC server.

    Starting and stopping the gRPC server, its ports, credentials and limits stay with the code that made it. Models load when
    `InferenceServer.lifespan` or `start` says so, else at the first call that needs one.

    Args:
        server: The server whose models it serves.
        grpc_server: A server made by `grpc.server` or `grpc.aio.server`, before it is started.
        health: Whether `grpc.health.v1.Health/Check` answers whether the server is ready, where the package
            grpcio-health-checking is installed. Switch it off where the host has a health service of its own.
        reflection: Whether server reflection describes these services, where the package grpcio-reflection is installed.
            Switch it off where the host has its own.

    Specification: gRPC.
    """
    # a pool of its own: in the default one, the messages of other packages for the same protocol would collide with these
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(files("oip_asgi").joinpath("proto/grpc_predict_v2.binpb").read_bytes()).file:
        pool.Add(file)
    names = [SERVICE]
    if health and _add_health(pool):
        names.append(HEALTH)
    grpc_server.add_generic_rpc_handlers([_handler(server, pool, name, grpc_server) for name in names])
    if reflection:
        _add_reflection(names, pool, grpc_server)


def _add_health(pool: DescriptorPool) -> bool:
    try:
        from grpc_health.v1 import health_pb2
    except ImportError:
        return False
    pool.AddSerializedFile(health_pb2.DESCRIPTOR.serialized_pb)
    return True


def _add_reflection(names: list[str], pool: DescriptorPool, grpc_server: GRPCServer) -> None:
    try:
        from grpc_reflection.v1alpha import reflection, reflection_pb2
    except ImportError:
        return
    pool.AddSerializedFile(reflection_pb2.DESCRIPTOR.serialized_pb)
    reflection.enable_server_reflection([*names, reflection.SERVICE_NAME], grpc_server, pool)


def _method(described: MethodDescriptor) -> Method:
    request, response = GetMessageClass(described.input_type), GetMessageClass(described.output_type)
    return Method(described.name, partial(_parse, request), response, _metadata)


def _parse(kind: type[Message], data: bytes) -> Message:
    try:
        return kind.FromString(data)
    except (DecodeError, UnicodeDecodeError):  # the second where protobuf has no compiled part
        raise InvalidRequest(f"the request cannot be parsed: expected the bytes of {kind.DESCRIPTOR.full_name}") from None


def _metadata(context: Context) -> Iterator[tuple[str, str]]:
    for name, value in context.invocation_metadata() or ():
        # names that end in -bin have bytes as values, which travel so
        yield name, b64encode(value).decode() if isinstance(value, bytes) else value


def _handler(server: InferenceServer, pool: DescriptorPool, service: str, grpc_server: GRPCServer) -> grpc.GenericRpcHandler:
    answerer = _awaiting if isinstance(grpc_server, grpc.aio.Server) else _blocking
    described = pool.FindServiceByName(service).methods_by_name
    # no serializers are named, so bytes come: grpc would call INTERNAL what cannot be parsed, which is the client's fault
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        name: grpc.unary_unary_rpc_method_handler(answerer(server, _method(described[name]))) for name in METHODS[service]
    }
    if service == SERVICE:
        streaming = _awaiting_stream if isinstance(grpc_server, grpc.aio.Server) else _blocking_stream
        handlers[STREAM] = grpc.stream_stream_rpc_method_handler(streaming(server, _method(described[STREAM])))
    return grpc.method_handlers_generic_handler(service, handlers)


def _blocking(server: InferenceServer, method: Method) -> Callable[[bytes, grpc.ServicerContext], bytes]:
    engine, runtime = server._inside

    def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            reply = drive(exchange(engine, method, request, context), runtime, gone=_end(context))
        except ClientGone:
            return b""  # the call has ended already
        if reply.code != "OK":
            context.abort(grpc.StatusCode[reply.code], reply.details)
        return reply.message

    return answer


def _end(context: grpc.ServicerContext) -> Signal:
    """Set when the call has ended: is answered, cancelled, or has passed its deadline."""
    end = Signal()
    if not context.add_callback(end.set):
        end.set()
    return end


def _awaiting(server: InferenceServer, method: Method) -> Callable[[bytes, AwaitingContext], Awaitable[bytes]]:
    engine, runtime = server._inside

    async def answer(request: bytes, context: AwaitingContext) -> bytes:
        reply = await drive_async(exchange(engine, method, request, context), runtime)
        if reply.code != "OK":
            await context.abort(grpc.StatusCode[reply.code], reply.details)
        return reply.message

    return answer


def _blocking_stream(
    server: InferenceServer, method: Method
) -> Callable[[Iterator[bytes], grpc.ServicerContext], Generator[bytes, None, None]]:
    engine, runtime = server._inside

    def answer(requests: Iterator[bytes], context: grpc.ServicerContext) -> Generator[bytes, None, None]:
        received = bridge.Requests(requests)
        end = _end(context)
        end.then(received.end)
        reply = yield from bridge.pieces(stream_exchange(engine, method, context, received.receive), runtime, end)
        if reply is not None and reply.code != "OK":
            context.abort(grpc.StatusCode[reply.code], reply.details)

    return answer


def _awaiting_stream(server: InferenceServer, method: Method) -> Callable[[object, AwaitingContext], Awaitable[None]]:
    engine, runtime = server._inside

    async def answer(_: object, context: AwaitingContext) -> None:
        async def receive() -> bytes | None:
            message: object = await context.read()
            return message if isinstance(message, bytes) else None  # the end is an object of grpc's own

        steps = stream_exchange(engine, method, context, receive)
        try:
            reply = await advance_async(steps, runtime)
            while type(reply) is Send:
                await context.write(reply.piece)
                reply = await advance_async(steps, runtime)
        finally:
            await abandon_async(steps, runtime)
        if isinstance(reply, Reply) and reply.code != "OK":
            await context.abort(grpc.StatusCode[reply.code], reply.details)

    return answer
