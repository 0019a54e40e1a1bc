"""Methods, replies, and the messages of `ModelInfer` <-> InferenceRequest and InferenceResponse. Typed
contents have 8 MiB at most.

Knows messages by their fields alone: no protobuf, no gRPC library. Loops over short repeated fields copy them
to a list with `[:]`: protobuf's own iterator is slower, as it ends with an exception and its text.

Specification: gRPC, Message Contents and Tensor Data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from .._extensions.common import read_parameters
from .._io import IO
from .._models.handler import Handler
from .._protocol.array_requests import ArrayModel, ArrayRequest
from .._protocol.context import Access, Action, ReceivedHeaders, ResponseHeaders, join_repeated
from .._protocol.datatypes import Array, Buffer, DType, dtype_of, make_integer_array, name_of
from .._protocol.errors import InvalidRequest, TooLarge, show
from .._protocol.limits import LOOP_BINARY, LOOP_BYTES, may_hold_more
from .._protocol.schemas import Parameters, RequestOutput
from .._protocol.tensor_bytes import count, find_memories, from_bytes, own_bytes, own_one
from .._protocol.tensors import (
    REGION,
    InferenceRequest,
    InferenceResponse,
    ReadRegion,
    Tensor,
    check_supported,
    drop_shared_memory,
    make_tensor,
)
from .wire import check_fields, encode_bytes_head, find_texts, has_more_fields, split_field

_MODEL_NAME, _MODEL_VERSION, _RAW_INPUT_CONTENTS, _RAW_OUTPUT_CONTENTS = 1, 2, 7, 6

_FEW_FIELDS: Final = 64
"""Fields of a long request that an event loop decodes: it looks at each twice, which takes a microsecond."""

MAX_PARSED: Final = 2**23
"""The most bytes of a request that protobuf parses: all but its raw contents, so typed contents mostly."""

_CHOICES: Final = (
    (bool, "bool_param"),
    (int, "int64_param"),
    (float, "double_param"),
    (str, "string_param"),
    (bytes, "bytes_param"),
)

TYPED: Final[Mapping[str, str]] = {
    "BOOL": "bool_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""For each datatype, the field of `InferTensorContents` that holds it. FP16 and BF16 have none: they travel
raw."""

_TOGETHER: Final = 2**16
"""Elements of typed contents that are read before other threads may run."""


class Method(msgspec.Struct, frozen=True, eq=False):
    """A method and its messages."""

    name: str
    parse: Callable[[Buffer], Any]  # makes the request message of its bytes, or raises InvalidRequest
    response: Callable[[], Any]  # makes an empty response message
    # makes the bytes of the response message of a document with the same fields
    write: Callable[[Any], bytes]
    metadata: Callable[[Any], Iterable[tuple[str, str]]]
    """Gives a call's metadata, of the adapter's own object: names in lower case, values as text."""

    def named_headers(self, transport: Any) -> Mapping[str, str]:
        """The metadata of a call by name."""
        return ReceivedHeaders(join_repeated(self.metadata(transport), ", "))

    def make_access(self, transport: Any, action: Action, model: str | None, version: str | None) -> Access:
        return Access(
            action,
            model,
            version,
            headers=lambda: self.named_headers(transport),
            transport=transport,
            protocol="grpc",
        )


class Reply(msgspec.Struct, frozen=True):
    """How a call ends: with a message, in parts, or none after those of a stream; or with the name of an
    error's code and its text."""

    parts: list[Buffer] = []
    code: str = "OK"
    details: str = ""
    metadata: Sequence[tuple[str, str]] = ()  # the initial metadata, names in lower case


class GRPCHead(msgspec.Struct, eq=False):
    """One `ModelInfer` call without its message."""

    method: Method
    transport: Any
    response_headers: ResponseHeaders | None = None

    def named_headers(self) -> Mapping[str, str]:
        return self.method.named_headers(self.transport)


class GRPCFormat:
    """The wire format of one `ModelInfer` call. Until `decode` parses a long request, in a worker thread,
    only its model is known."""

    __slots__ = ("body", "head", "message", "model_name", "model_version", "timeout")

    size = None
    shares_arrays = False

    def __init__(self, method: Method, body: Buffer, transport: Any, timeout: float) -> None:
        self.head = GRPCHead(method, transport)
        self.timeout = timeout
        self.body = body
        self.message: Any = None
        if len(body) <= LOOP_BYTES:
            message = self.message = method.parse(body)
            self.model_name, self.model_version = message.model_name, message.model_version
        else:
            self.model_name, self.model_version = find_texts(body, (_MODEL_NAME, _MODEL_VERSION))

    async def read(self, _: IO) -> Buffer:
        return self.body

    def is_quick(self, body: Buffer) -> bool:
        if len(body) > LOOP_BINARY or has_more_fields(body, _FEW_FIELDS):
            return False
        rest, _ = split_field(body, _RAW_INPUT_CONTENTS)
        return len(rest) <= LOOP_BYTES and not may_hold_more(bytes(rest))

    def sends_bytes(self, _: InferenceRequest) -> bool:
        return True

    def parse(self) -> Sequence[Buffer]:
        """Parse a long request, and return its raw contents as views, not copies."""
        rest, raw = split_field(self.body, _RAW_INPUT_CONTENTS)
        if len(rest) > MAX_PARSED:
            raise TooLarge(
                f"the request has {len(rest)} bytes beside raw_input_contents, typed contents mostly: "
                f"expected {MAX_PARSED} at most: "
                "send raw_input_contents, in a request of 5000 inputs at most"
            )
        check_fields(rest)
        message = self.message = self.head.method.parse(rest)
        if (message.model_name, message.model_version) != (self.model_name, self.model_version):
            raise InvalidRequest(
                "the request names its model more than once: expected one model_name and one model_version"
            )
        return raw or message.raw_input_contents

    def decode(
        self, _: Buffer, handler: Handler, read_region: ReadRegion, model: ArrayModel | None = None, /
    ) -> InferenceRequest | ArrayRequest:
        raw: Sequence[Buffer | None] = (
            self.parse() if self.message is None else self.message.raw_input_contents[:]
        )
        message = self.message
        inputs, outputs, parameters = message.inputs[:], message.outputs, message.parameters
        if model is not None and not (parameters or outputs) and len(raw) == len(inputs) == len(model.inputs):
            arrays = _read_arrays(inputs, raw, model)
            if arrays is not None:
                return ArrayRequest(model, arrays, message.id or None, True, {}, [])
        if len(raw) != len(inputs):
            raw = _match_raw(inputs, raw, self.model_name)
        tensors: list[Tensor] = []
        for item in inputs:
            contents = raw[len(tensors)]
            if (
                contents is not None
                and item.HasField("contents")
                and (handler.is_checked or item.contents.ListFields())
            ):
                raise _make_two_contents_error(item, self.model_name)
            try:
                tensors.append(decode_tensor(item, len(tensors), contents, read_region))
            except InvalidRequest:
                texts = item.contents.bytes_contents
                if handler.is_checked or contents is not None or not texts:
                    raise
                item.shape[:] = [len(texts)]  # MLServer compares no shape with the contents
                tensors.append(decode_tensor(item, len(tensors), None, read_region))
        requested = [
            RequestOutput(output.name, decode_parameters(output.parameters, f"outputs[{index}].parameters"))
            for index, output in enumerate(outputs[:] if outputs else ())
        ]
        return InferenceRequest(
            tensors,
            message.id or None,
            decode_parameters(parameters, "parameters") if parameters else {},
            requested,
        )

    def encode(self, request: InferenceRequest, response: InferenceResponse) -> list[Buffer]:
        message = self._begin_response(response.model_name, response.model_version, response.id)
        if response.parameters:
            encode_parameters(response.parameters, message.parameters)
        elsewhere = (
            [output.name for output in request.outputs if REGION in (output.parameters or ())]
            if request.outputs
            else ()
        )
        # what follows the message is its last field: protobuf would copy that twice
        parts: list[Buffer] = [b""]
        memories = find_memories(response.outputs, request)
        for tensor in response.outputs:
            array = tensor.array
            output = message.outputs.add(name=tensor.name, datatype=name_of(array.dtype), shape=array.shape)
            if tensor.parameters:
                encode_parameters(tensor.parameters, output.parameters)
            contents = b"" if tensor.name in elsewhere else own_bytes(array, memories)
            parts += encode_bytes_head(_RAW_OUTPUT_CONTENTS, len(contents)), contents
        parts[0] = message.SerializeToString()
        return parts

    def encode_arrays(self, request: ArrayRequest, arrays: Sequence[Array]) -> list[Buffer]:
        message = self._begin_response(request.model.name, request.model.version, request.id)
        parts: list[Buffer] = [b""]
        for name, _ in request.model.outputs:
            array = arrays[len(parts) // 2]
            message.outputs.add(name=name, datatype=name_of(array.dtype), shape=array.shape)
            contents = own_one(array, request.arrays.values())
            parts += encode_bytes_head(_RAW_OUTPUT_CONTENTS, len(contents)), contents
        parts[0] = message.SerializeToString()
        return parts

    def _begin_response(self, name: str, version: str | None, request_id: str | None) -> Any:
        message = self.head.method.response()
        message.model_name = name
        if version is not None:
            message.model_version = version
        if request_id is not None:
            message.id = request_id
        return message


def _read_arrays(
    inputs: Sequence[Any], raw: Sequence[Buffer | None], model: ArrayModel
) -> dict[str, Array] | None:
    """The arrays of the inputs; None if one says more, or is not the model's."""
    arrays: dict[str, Array] = {}
    for item in inputs:
        contents, shape, name = raw[len(arrays)], tuple(item.shape[:]), item.name
        dtype = model.find_dtype(len(arrays), name, item.datatype, shape)
        if dtype is None or contents is None or item.parameters or item.HasField("contents"):
            return None
        if shape and min(shape) < 0:
            return None
        try:
            arrays[name] = from_bytes(contents, dtype, shape)
        except InvalidRequest:  # which says more below
            return None
    return arrays


def _make_two_contents_error(item: Any, model_name: str) -> InvalidRequest:
    # in Triton's words, which its examples look for
    where = f"for {show(item.name)} for model {show(model_name)}"
    return InvalidRequest(
        f"contents field must not be specified when using raw_input_contents {where}: send one of them"
    )


def _match_raw(
    inputs: Sequence[Any], raw: Sequence[Buffer | None], model_name: str
) -> Sequence[Buffer | None]:
    """Find the raw contents of each input, if there are any. An input in shared memory has none."""
    if not raw:
        return [None] * len(inputs)
    both = [item for item in inputs if item.HasField("contents")]
    if both:
        raise _make_two_contents_error(both[0], model_name)
    expected = sum(REGION not in item.parameters for item in inputs)
    if len(raw) != expected:
        beside = "" if expected == len(inputs) else ", but those in shared memory"
        raise InvalidRequest(
            f"raw_input_contents has {len(raw)} items: expected one for each of {len(inputs)} "
            f"inputs{beside}, or none"
        )
    left = iter(raw)
    return [None if REGION in item.parameters else next(left) for item in inputs]


def decode_tensor(
    item: Any, index: int, raw: Buffer | None, read_region: ReadRegion, field: str = "inputs"
) -> Tensor:
    shape = tuple(item.shape[:])
    if shape and min(shape) < 0:
        axis = next(axis for axis, dimension in enumerate(shape) if dimension < 0)
        raise InvalidRequest(f"{field}[{index}].shape[{axis}]: expected int >= 0")
    try:
        dtype = dtype_of(item.datatype)
        sent, parameters = item.parameters, {}
        if sent:
            parameters = decode_parameters(sent, "parameters")
            parameters.pop("binary_data_size", None)  # KServe's client sends REST's parameter here too
        if raw is not None:
            array = from_bytes(raw, dtype, shape)
        elif item.HasField("contents"):
            array = _decode_contents(item.contents, item.datatype, dtype, shape)
        elif REGION in parameters:
            array = from_bytes(read_region(parameters), dtype, shape)
            parameters = drop_shared_memory(parameters)
        else:
            check_supported(sent, "it")
            array = _decode_contents(item.contents, item.datatype, dtype, shape)
    except InvalidRequest as error:
        raise InvalidRequest(f"{field}[{index}] ({show(item.name)}): {error}") from None
    return make_tensor(item.name, array, parameters)


def _decode_contents(contents: Any, datatype: str, dtype: DType, shape: tuple[int, ...]) -> Array:
    field = TYPED.get(datatype)
    if field is None:
        raise InvalidRequest(f"datatype {datatype} has no field in contents: send it as raw_input_contents")
    for other, _ in contents.ListFields():
        if other.name != field:
            raise InvalidRequest(f"contents.{other.name} is given: expected contents.{field} for {datatype}")
    elements = getattr(contents, field)
    if len(elements) != count(shape):
        raise InvalidRequest(
            f"contents.{field} has {len(elements)} elements: expected {count(shape)} for shape {list(shape)}"
        )
    array = np.empty(len(elements), dtype)
    for first in range(0, len(elements), _TOGETHER):
        some = elements[first : first + _TOGETHER]
        read = (
            make_integer_array(some, dtype, f"contents.{field}", first)
            if dtype.kind in "ui"
            else np.fromiter(some, dtype, len(some))
        )
        array[first : first + _TOGETHER] = read
    return array.reshape(shape)


def decode_parameters(parameters: Any, where: str) -> Parameters:
    return read_parameters(parameters, where, ", double_param or uint64_param")


def encode_parameters(parameters: Mapping[str, Any], message: Any) -> None:
    for name, value in parameters.items():
        setattr(message[name], find_field(value), value)


def find_field(value: Any) -> str:
    """The field of a parameter that has values like this one."""
    field = next(field for kind, field in _CHOICES if isinstance(value, kind))
    return "uint64_param" if isinstance(value, int) and value >= 2**63 else field
