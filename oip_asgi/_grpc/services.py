"""The services and messages of gRPC as protobuf's classes, and server reflection, which describes them.

Knows protobuf, and no gRPC library.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final

from .._protocol.errors import InvalidRequest
from .._protocol.limits import MAX_QUESTION
from ..server import InferenceServer
from .messages import Method, Reply
from .methods import HEALTH, METHODS, SERVICE, reply_error
from .protobuf import (
    FileDescriptorProto,
    GetMessageClass,
    MessageToJson,
    Parse,
    ParseDict,
    add_file,
    make_parser,
    make_pool,
)
from .stream_call import STREAM, Receive, StreamCall, Write

Metadata = Callable[[Any], Iterable[tuple[str, str]]]
"""Reads a call's metadata from the adapter's own object: names in lower case, values as text."""

Converse = Callable[[Any, Receive, Write], Coroutine[Any, Any, Reply]]
"""Answers a call of any number of messages. It takes the adapter's own object, and what receives requests and
writes responses."""

_V1, _V1ALPHA = "grpc.reflection.v1", "grpc.reflection.v1alpha"
REFLECTION: Final = (f"{_V1}.ServerReflection", f"{_V1ALPHA}.ServerReflection")

_INVALID_ARGUMENT, _NOT_FOUND = 3, 5


class Services:
    """The services that are served over gRPC.

    `methods` answer one message with one, and `conversations` have any number of messages, both ways. Their
    keys are paths, such as "/inference.GRPCInferenceService/ModelInfer".
    """

    def __init__(
        self, server: InferenceServer, metadata: Metadata, *, health: bool, reflection: bool
    ) -> None:
        self._pool, self._classes = make_pool()
        older = _make_older(
            FileDescriptorProto.FromString(self._pool.FindFileContainingSymbol(REFLECTION[0]).serialized_pb)
        )
        self._classes += add_file(self._pool, older)
        self.names = [SERVICE, *([HEALTH] if health else []), *(REFLECTION if reflection else [])]
        self.methods = {
            f"/{service}/{name}": self._make_method(service, name, metadata)
            for service in self.names
            for name in METHODS.get(service, ())
        }
        stream = partial(_converse, server, self._make_method(SERVICE, STREAM, metadata))
        self.conversations: dict[str, Converse] = {f"/{SERVICE}/{STREAM}": stream}
        for service in REFLECTION if reflection else ():
            self.conversations[f"/{service}/ServerReflectionInfo"] = partial(
                _answer_each, partial(self.reflect, service)
            )

    def _make_method(self, service: str, name: str, metadata: Metadata) -> Method:
        described = self._pool.FindServiceByName(service).methods_by_name.get(name)
        if described is None:  # a method of Triton's that is refused with a reason
            return Method(name, bytes, bytes, bytes, metadata)
        response = GetMessageClass(described.output_type)

        def write(document: Any) -> bytes:
            return ParseDict(document, response(), ignore_unknown_fields=True).SerializeToString()

        return Method(name, make_parser(GetMessageClass(described.input_type)), response, write, metadata)

    def reflect(self, service: str, data: bytes) -> bytes:
        """Answer one question of server reflection."""
        if len(data) > MAX_QUESTION:
            raise InvalidRequest(f"the question has {len(data)} bytes: expected {MAX_QUESTION} at most")
        [described] = self._pool.FindServiceByName(service).methods
        question: Any = make_parser(GetMessageClass(described.input_type))(data)
        answer: Any = GetMessageClass(described.output_type)(valid_host=question.host)
        answer.original_request.CopyFrom(question)
        kind = question.WhichOneof("message_request")
        files = answer.file_descriptor_response.file_descriptor_proto  # none of them needs another one
        try:
            if kind == "list_services":
                for name in sorted(self.names):
                    answer.list_services_response.service.add(name=name)
            elif kind == "file_by_filename":
                files.append(self._pool.FindFileByName(question.file_by_filename).serialized_pb)
            elif kind == "file_containing_symbol":
                found = self._pool.FindFileContainingSymbol(question.file_containing_symbol)
                files.append(found.serialized_pb)
            elif kind == "all_extension_numbers_of_type":
                message = self._pool.FindMessageTypeByName(question.all_extension_numbers_of_type)
                answer.all_extension_numbers_response.base_type_name = message.full_name
            elif kind == "file_containing_extension":
                raise KeyError  # these messages have none
            else:
                _write_error(answer, _INVALID_ARGUMENT, "this kind of question is not known")
        except KeyError:
            _write_error(answer, _NOT_FOUND, "not found")
        return bytes(answer.SerializeToString())


async def _converse(
    server: InferenceServer, method: Method, transport: Any, receive: Receive, write: Write
) -> Reply:
    engine, runtime = server._inside
    return await StreamCall(engine, runtime, method, transport, receive, write).run()


async def _answer_each(respond: Callable[[bytes], bytes], _: Any, receive: Receive, write: Write) -> Reply:
    """Answer each message of a call, as it comes, until one is refused."""
    try:
        while (message := await receive()) is not None:
            await write(respond(message))
    except InvalidRequest as error:
        return reply_error(error)
    return Reply()


def _make_older(file: FileDescriptorProto) -> FileDescriptorProto:
    """Make reflection's older version, which has the same messages in another package."""
    older = Parse(MessageToJson(file).replace(_V1, _V1ALPHA), FileDescriptorProto())
    older.name = "reflection_v1alpha.proto"
    return older


def _write_error(answer: Any, code: int, text: str) -> None:
    answer.error_response.error_code, answer.error_response.error_message = code, text
