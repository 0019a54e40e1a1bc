"""The messages of gRPC as protobuf's classes, for servers and clients. Knows protobuf, and no gRPC
library."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib.resources import files

from .._hosts.frameworks import make_import_error

try:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto as FileDescriptorProto
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.json_format import MessageToJson as MessageToJson
    from google.protobuf.json_format import Parse as Parse
    from google.protobuf.json_format import ParseDict as ParseDict
    from google.protobuf.message import DecodeError, Message
    from google.protobuf.message_factory import GetMessageClass as GetMessageClass
except ImportError as error:
    also = ", and grpcio for add_to_server"
    raise make_import_error(error, "google.protobuf", "protobuf", also=also) from error

from .._protocol.datatypes import Buffer
from .._protocol.errors import InvalidRequest


def make_pool() -> tuple[DescriptorPool, list[type[Message]]]:
    """A pool of its own, as in the default one the messages of other packages for the same protocol would
    collide with these; and the classes to keep, as `add_file` says."""
    pool, classes = DescriptorPool(), list[type[Message]]()
    for name in ("grpc_predict_v2.binpb", "services.binpb"):
        for file in FileDescriptorSet.FromString(files("oip_asgi").joinpath("proto", name).read_bytes()).file:
            classes += add_file(pool, file)
    return pool, classes


def add_file(pool: DescriptorPool, file: FileDescriptorProto) -> list[type[Message]]:
    """Add a file to a pool. Keep the classes: protobuf keeps none of a message within a message, so one
    thread would get it while the garbage collector clears it in another."""
    pool.Add(file)
    return list(_make_classes(pool.FindFileByName(file.name).message_types_by_name.values()))


def _make_classes(messages: Iterable[Descriptor]) -> Iterator[type[Message]]:
    for message in messages:
        yield GetMessageClass(message)
        for nested in _make_classes(message.nested_types):
            yield nested


def make_parser(kind: type[Message]) -> Callable[[Buffer], Message]:
    """Make the function that parses messages."""
    from_string = kind.FromString

    def parse(data: Buffer) -> Message:
        try:
            return from_string(data if type(data) is bytes else bytes(data))
        except (DecodeError, UnicodeDecodeError):  # the second comes from protobuf without its compiled part
            raise InvalidRequest(
                f"the request cannot be parsed: expected the bytes of {kind.DESCRIPTOR.full_name}"
            ) from None

    return parse
