"""The ways in over gRPC: real servers on a free port, blocking and awaiting, and the least client that can ask them.

The client's messages come from a pool of its own, so that no generated code for the same protocol is needed, or in the way.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from importlib.resources import files
from typing import Any, Final, TypeAlias

import grpc
import grpc.aio
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from oip_asgi import InferenceServer
from oip_asgi.grpc import add_to_server

SERVICE: Final = "inference.GRPCInferenceService"
CODES: Final = [code.name for code in sorted(grpc.StatusCode, key=lambda code: code.value[0])]
"""The names of gRPC's codes, by number."""

UNLIMITED: Final = [("grpc.max_receive_message_length", -1)]

Serving: TypeAlias = Callable[..., AbstractContextManager[str]]
"""From an `InferenceServer`, and interceptors of the host's, to the address where it is served."""


@contextmanager
def blocking(server: InferenceServer, *interceptors: Any, executor: ThreadPoolExecutor | None = None) -> Iterator[str]:
    """A `grpc.server` with the protocol; gives its address."""
    grpc_server = grpc.server(executor or ThreadPoolExecutor(4), options=UNLIMITED, interceptors=list(interceptors))
    add_to_server(server, grpc_server)
    port = grpc_server.add_insecure_port("127.0.0.1:0")
    grpc_server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        grpc_server.stop(0).wait()
        server.stop()


@contextmanager
def awaiting(server: InferenceServer, *interceptors: Any) -> Iterator[str]:
    """A `grpc.aio.server` with the protocol, on an event loop in a thread of its own; gives its address."""
    started = threading.Event()
    known: dict[str, Any] = {}

    async def serve() -> None:
        grpc_server = grpc.aio.server(options=UNLIMITED, interceptors=list(interceptors))
        add_to_server(server, grpc_server)
        known["port"] = grpc_server.add_insecure_port("127.0.0.1:0")
        known["loop"], known["stop"] = asyncio.get_running_loop(), asyncio.Event()
        await grpc_server.start()
        started.set()
        await known["stop"].wait()
        await grpc_server.stop(0)

    thread = threading.Thread(target=asyncio.run, args=[serve()])
    thread.start()
    assert started.wait(30)
    try:
        yield f"127.0.0.1:{known['port']}"
    finally:
        known["loop"].call_soon_threadsafe(known["stop"].set)
        thread.join(30)
        assert not thread.is_alive()


SERVE: Final = """
from concurrent.futures import ThreadPoolExecutor
import grpc
from oip_asgi import InferenceServer
from oip_asgi.grpc import add_to_server
add_to_server(InferenceServer(), grpc.server(ThreadPoolExecutor(1)))
"""


def run_alone(code: str) -> None:
    """Run code, such as `SERVE`, in a process of its own, where warnings are errors."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


SERVINGS: Final[dict[str, Serving]] = {"grpc": blocking, "grpc.aio": awaiting}


def _all_kinds(messages: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, kind in messages.items():
        yield name, kind
        yield from _all_kinds(kind.nested_types_by_name)


def message_classes() -> dict[str, Any]:
    """The protocol's messages by name, and the request and response of each method by "method.request" and "method.response".

    All of them, as protobuf keeps no class of a message within a message, and crashes if threads use it while the garbage collector runs.
    """
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(files("oip_asgi").joinpath("proto/grpc_predict_v2.binpb").read_bytes()).file:
        pool.Add(file)
    service = pool.FindServiceByName(SERVICE)
    classes: dict[str, Any] = {name: GetMessageClass(kind) for name, kind in _all_kinds(service.file.message_types_by_name)}
    for method in service.methods:
        for end, kind in (("request", method.input_type), ("response", method.output_type)):
            classes[f"{method.name}.{end}"] = classes[kind.name] = GetMessageClass(kind)
    return classes


MESSAGES: Final = message_classes()


def fields_of(messages: Iterable[Any]) -> dict[str, tuple[int, int]]:
    """The number and type of every field of some messages' descriptors, and of the messages inside them, by full name."""
    found: dict[str, tuple[int, int]] = {}
    for message in messages:
        found.update({field.full_name: (field.number, field.type) for field in message.fields})
        inner = [field.message_type for field in message.fields if field.message_type is not None]
        found.update(fields_of(inner))
    return found


def own_fields() -> dict[str, tuple[int, int]]:
    """Those of the messages that the package ships."""
    return fields_of(kind.DESCRIPTOR for kind in MESSAGES.values())


def made(kind: str, **fields: Any) -> Any:
    """A message of the values of its fields, with dicts for messages and maps, which protobuf's own constructors take since 5.0 only."""
    message = MESSAGES[kind]()
    _fill(message, fields)
    return message


def _fill(message: Any, fields: dict[str, Any]) -> None:
    for name, value in fields.items():
        target = getattr(message, name)
        if isinstance(value, dict) and hasattr(target, "keys"):
            for key, item in value.items():
                _fill(target[key], item)
        elif isinstance(value, dict):
            target.SetInParent()
            _fill(target, value)
        elif not hasattr(target, "extend"):
            setattr(message, name, value)
        elif hasattr(target, "add"):
            for item in value:
                _fill(target.add(), item)
        else:
            target.extend(value)


def wire_request(model: str, tensors: Sequence[dict[str, Any]] = (), raw: Sequence[bytes] = (), **fields: Any) -> Any:
    """A `ModelInferRequest`."""
    return made("ModelInferRequest", model_name=model, inputs=tensors, raw_input_contents=raw, **fields)


class Client:
    """Asks a server, with messages or with bytes."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address, options=UNLIMITED)

    def begin(self, method: str, message: Any = None, *, metadata: Any = None, timeout: float = 30) -> Any:
        """Begin a call, whose `result()` is awaited and which may be cancelled."""
        if not isinstance(message, bytes):
            message = (MESSAGES[f"{method}.request"]() if message is None else message).SerializeToString()
        path = f"/{SERVICE}/{method}"
        read = MESSAGES[f"{method}.response"].FromString
        return self.channel.unary_unary(path, response_deserializer=read).future(message, metadata=metadata, timeout=timeout)

    def ask(self, method: str, message: Any = None, **options: Any) -> Any:
        """The response message."""
        return self.begin(method, message, **options).result()

    def refusal(self, method: str, message: Any = None, **options: Any) -> tuple[str, str]:
        """The code and the text of the error that the server answers."""
        error = self.begin(method, message, **options).exception()
        assert error is not None, "the server did not refuse"
        return error.code().name, error.details()
