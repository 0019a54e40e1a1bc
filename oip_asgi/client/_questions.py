"""Questions to a server, and its answers, as values: what each asks over HTTP and gRPC, what reads the
answer, and what a model's metadata declares. Does no I/O.

Specification: HTTP/REST; the extensions of the model repository, statistics and configuration.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, Literal, TypeAlias, TypedDict, TypeVar

import msgspec

from .._codecs.column_dtypes import CATEGORIES, DTYPE, is_dtype
from .._codecs.content_types import default_codecs
from .._codecs.values import to_inputs
from .._models.model import path_of
from .._protocol.datatypes import Buffer
from .._protocol.errors import IS_A_STREAM, ErrorResponse, InvalidRequest, InvalidResponse, show
from .._protocol.limits import LOOP_BYTES
from .._protocol.schemas import Parameters, RequestOutput
from .._protocol.specs import LABELS, OpenSpec, TensorSpec
from .._protocol.tensors import (
    REGION,
    InferenceRequest,
    InferenceResponse,
    Tensor,
    are_short,
    to_plain_parameters,
)
from .._rest.body import HEADER_LENGTH, encode_request
from .._rest.client import LENGTH, LENGTH_NAME, read_response

T = TypeVar("T")

Headers: TypeAlias = list[tuple[str, str]]

SECONDS: Final = 60.0
"""How long a client waits if its caller does not say."""

MAX_BODY_BYTES: Final = 2**30
"""The largest answer that is read, if the caller does not say."""

NOT_READY: Final = (400, 404, 503)
"""What servers answer a probe of a model that is not ready, or that they do not know."""

_REFUSALS: Final = (400, 415, 422, 500)
_NO_BYTES: Final = (
    "leave out binary=False, or give Base64Codec.encode_input(name, [...]) of oip_asgi.codecs as its value"
)
_REFUSES_BINARY: Final = (
    "if this server has no binary data, as MLServer has none over REST, write binary=False"
)


def is_sendable(value: str) -> bool:
    """Whether it can be the value of a header: the libraries that send them do not agree on what is no
    printable ASCII."""
    return value.isascii() and value.isprintable()


def check_timeout(timeout: float | None) -> float | None:
    if timeout is not None and not timeout > 0:
        raise ValueError(
            f"the timeout is {show(timeout)}: expected seconds above 0, or math.inf for no limit"
        )
    return timeout


class HTTPRequest(msgspec.Struct, frozen=True, eq=False):
    """A request; its path is below the server's URL, and percent-encoded."""

    method: str
    path: str
    headers: Headers
    body: list[Buffer]

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return sum(map(len, self.body))


class HTTPAnswer(msgspec.Struct, frozen=True, eq=False):
    status: int
    headers: Mapping[str, str]  # by names in lower case
    body: Buffer


class Question(msgspec.Struct, Generic[T], frozen=True, eq=False):
    """What is asked, but for inference."""

    method: str  # of HTTP
    path: str  # of HTTP, below the server's URL, or below a model's
    rpc: str  # the method of gRPC
    read: Callable[[Any], T]  # makes what the caller gets of the answer's document
    fields: Mapping[str, Any] = {}  # those of gRPC's request
    body: Mapping[str, Any] = {}  # the document that HTTP sends with POST
    is_probe: bool = False  # whether an answer that is an error means no


class Inference(msgspec.Struct, frozen=True, eq=False):
    model: str
    version: str | int | None  # its version; None if the server chooses
    request: InferenceRequest
    binary: bool = True  # whether HTTP sends tensors as bytes, and asks for such
    headers: Sequence[tuple[str, str]] = ()  # headers beside those of the client
    max_body_bytes: int | None = MAX_BODY_BYTES  # the largest answer, or event of a stream; None for no limit
    remedy: str = _NO_BYTES  # what its caller may write for bytes that JSON cannot hold
    # whether the arrays of the answer can be written to; if not, a server sends them on without a copy
    writable: bool = True


def _expect(kind: type[T], name: str, document: Any) -> T:
    if not isinstance(document, kind):
        raise InvalidResponse(f"the response is or has {show(document)}: expected {name}")
    return document


_read_object: Callable[[Any], dict[str, Any]] = partial(_expect, dict, "a JSON object")
_read_list: Callable[[Any], list[Any]] = partial(_expect, list, "a list")


def _read_yes(document: Any) -> bool:
    return not isinstance(document, dict) or all(
        document.get(name, True) is not False for name in ("ready", "live")
    )


def _read_entries(document: Any) -> list[dict[str, Any]]:
    """The objects of a list, which is the document itself or in it."""
    entries = document.get("models", document.get("model_stats")) if isinstance(document, dict) else document
    return list(map(_read_object, _read_list(entries)))


METADATA: Final = Question("GET", "", "ServerMetadata", _read_object)
LIVE: Final = Question("GET", "/health/live", "ServerLive", _read_yes, is_probe=True)
READY: Final = Question("GET", "/health/ready", "ServerReady", _read_yes, is_probe=True)
INDEX: Final = Question("POST", "/repository/index", "RepositoryIndex", _read_entries)
INDEX_OF_READY: Final = Question(
    "POST", "/repository/index", "RepositoryIndex", _read_entries, {"ready": True}, {"ready": True}
)

MODEL_METADATA: Final = Question("GET", "", "ModelMetadata", _read_object)
MODEL_READY: Final = Question("GET", "/ready", "ModelReady", _read_yes, is_probe=True)
STATISTICS: Final = Question("GET", "/stats", "ModelStatistics", _read_entries)
MODEL_CONFIG: Final = Question(
    "GET",
    "/config",
    "ModelConfig",
    lambda document: _read_object(_read_object(document).get("config", document)),
)


def ask_of(model: str | None, version: str | int | None, question: Question[T]) -> Question[T]:
    """A question about a model; None for all of them."""
    values = {"name": model, "version": None if version is None else str(version)}
    fields = {name: value for name, value in values.items() if value is not None}
    path = "/models" if model is None else path_of(model, version)
    return msgspec.structs.replace(question, path=path + question.path, fields=fields)


def ask_change(
    action: Literal["load", "unload"], model: str, parameters: Mapping[str, Any] | None
) -> Question[None]:
    files = {name: value for name, value in (parameters or {}).items() if isinstance(value, bytes)}
    plain = {name: value for name, value in (parameters or {}).items() if name not in files}
    body = (
        {"parameters": {**to_plain_parameters("the request", plain, InvalidRequest), **files}}
        if parameters
        else {}
    )
    path, rpc = f"/repository{path_of(model)}/{action}", f"RepositoryModel{action.capitalize()}"
    return Question("POST", path, rpc, lambda _: None, {"model_name": model, **body}, body)


def write_question(question: Question[Any]) -> HTTPRequest:
    if question.method == "GET":
        return HTTPRequest("GET", question.path, [], [])
    headers = [("Content-Type", "application/json")]
    return HTTPRequest(question.method, question.path, headers, [msgspec.json.encode(question.body)])


# Inference


class Options(TypedDict, total=False):
    """What `Client.infer` takes beside the inputs."""

    version: str | int | None
    parameters: Mapping[str, Any] | None
    outputs: Sequence[str | RequestOutput] | None
    id: str | None
    binary: bool


def make_inference(
    specs: Mapping[str, TensorSpec],
    max_body_bytes: int | None,
    model: str,
    inputs: Any,
    version: str | int | None = None,
    parameters: Mapping[str, Any] | None = None,
    outputs: Sequence[str | RequestOutput] | None = None,
    id: str | None = None,  # noqa: A002
    binary: bool = True,
) -> Inference:
    """What is asked of a model, with inputs in any form, as `Client.infer` says. Lists become what their
    inputs are declared as."""
    plain = to_plain_parameters("the request", parameters, InvalidRequest) if parameters else {}
    requested = (
        [RequestOutput(output) if isinstance(output, str) else output for output in outputs]
        if outputs
        else []
    )
    if isinstance(inputs, InferenceRequest):
        tensors, own = inputs.inputs, inputs.parameters
        id, requested = inputs.id if id is None else id, requested or inputs.outputs  # noqa: A001
    elif (
        type(inputs) is not dict
        and isinstance(inputs, Sequence)
        and inputs
        and all(isinstance(each, Tensor) for each in inputs)
    ):
        tensors, own = list(inputs), {}
    else:
        columns = {name for name, spec in specs.items() if spec.may_miss}
        tensors, own = to_inputs(inputs, specs, default_codecs(), columns)
    request = InferenceRequest(tensors, id, {**own, **plain} if own else plain, requested)
    return Inference(model, version, request, binary, (), max_body_bytes)


def is_written_quickly(inference: Inference) -> bool:
    """Whether an event loop may write it: arrays that are bytes already take no time."""
    tensors = inference.request.inputs
    slow = (x for x in tensors if x.array.dtype.hasobject or not x.array.flags.c_contiguous)
    return are_short(tensors) or (inference.binary and are_short(slow))


def write_inference(inference: Inference, action: str = "infer") -> HTTPRequest:
    """What HTTP sends. Arrays are not copied: large ones are views in its body."""
    request, binary = inference.request, inference.binary
    if binary and action == "infer":
        request = _ask_for_binary(request)
    text, parts = encode_request(request, binary=binary, remedy=inference.remedy)
    path = f"{path_of(inference.model, inference.version)}/{action}"
    if not binary:
        return HTTPRequest("POST", path, [("Content-Type", "application/json"), *inference.headers], [text])
    length = (HEADER_LENGTH, str(len(text)))
    return HTTPRequest(
        "POST",
        path,
        [("Content-Type", "application/octet-stream"), length, *inference.headers],
        [text, *parts],
    )


def _ask_for_binary(request: InferenceRequest) -> InferenceRequest:
    """The request with binary outputs, where it does not say itself how they come."""
    parameters: Parameters = {"binary_data_output": True, **request.parameters}
    outputs = request.outputs
    if outputs:  # servers do not agree on those that are named without a word of this
        every = parameters["binary_data_output"]
        outputs = [
            output
            if REGION in (output.parameters or {})
            else RequestOutput(output.name, {"binary_data": every, **(output.parameters or {})})
            for output in outputs
        ]
    return InferenceRequest(request.inputs, request.id, parameters, outputs)


def read_inference(inference: Inference, answer: HTTPAnswer) -> InferenceResponse:
    body = answer.body
    if isinstance(body, memoryview) and not inference.writable:
        body = body.toreadonly()
    try:
        response = read_response(answer.headers, body, answer.status)
    except ErrorResponse as error:
        suggest_stream(error)
        if (
            inference.binary
            and answer.status in _REFUSALS
            and "json" not in answer.headers.get("content-type", "")
        ):
            raise ErrorResponse(f"{error.text} ({_REFUSES_BINARY})", error.response_status) from None
        raise
    return make_writable(response) if inference.writable else response


def suggest_stream(error: ErrorResponse) -> None:
    """Say what a user of this client writes for a model that this package has refused because it streams."""
    if IS_A_STREAM in error.text:
        error.hint = "write client.stream(...)"


def make_writable(response: InferenceResponse) -> InferenceResponse:
    """Copy arrays that are read-only: those of a short body, of which they are views."""
    for tensor in response.outputs:
        if not tensor.array.flags.writeable:
            tensor.array = tensor.array.copy()
    return response


def is_read_quickly(answer: HTTPAnswer) -> bool:
    """Whether an event loop may read it: a short one, or one whose tensors are bytes after short JSON."""
    body = answer.body
    if len(body) <= LOOP_BYTES:
        return True
    length = answer.headers.get(LENGTH_NAME, "")
    if not LENGTH.fullmatch(length) or int(length) > LOOP_BYTES:
        return False
    text = bytes(body[: int(length)])
    # a datatype with an escape could be BYTES, whose elements are read one by one
    return b"BYTES" not in text and b"\\" not in text


# What a model declares: the lists that a client sends become that, as on the server itself


def read_specs(metadata: Mapping[str, Any], what: str) -> list[TensorSpec]:
    """Read what a model declares, as a `Client` does before it sends lists.

    Args:
        metadata: What `Client.model_metadata` returns.
        what: "inputs" or "outputs".

    Returns:
        One for each that is declared, in the model's order; none if it declares nothing.

    Raises:
        InvalidResponse: The metadata is not as the protocol has it, or has an unknown datatype.

    Example:
        >>> [spec] = read_specs({"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]}, "inputs")
        >>> spec.name, spec.shape, spec.may_miss
        ('x', (-1, 4), False)
    """
    return [_read_spec(each, what) for each in get_list(metadata, what)]


def _read_spec(declared: Any, what: str) -> TensorSpec:
    try:
        shape, parameters = [int(size) for size in declared["shape"]], declared.get("parameters") or {}
        spec = OpenSpec(
            declared["name"],
            declared["datatype"],
            shape,
            **_find_column(parameters, declared["datatype"]),
            **OpenSpec.find_fields(shape, parameters),
        )
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise InvalidResponse(
            f"the metadata of the model has {show(declared)} among its {what}: {error}"
        ) from None
    return _add_labels(spec, parameters) if what == "outputs" else spec


def _find_column(parameters: Mapping[str, Any], datatype: str) -> dict[str, Any]:
    """What the parameters of a declared tensor say of a data frame's column, if this server has such a
    content type and dtype."""
    content_type, dtype, categories = map(parameters.get, ("content_type", DTYPE, CATEGORIES))
    codec = default_codecs().inputs.get(content_type) if isinstance(content_type, str) else None
    return {
        "content_type": content_type if codec is not None and codec.datatype in (None, datatype) else None,
        **(
            {DTYPE: dtype, CATEGORIES: categories}
            if is_dtype(dtype) and (dtype == "category") is isinstance(categories, str)
            else {}
        ),
    }


def _add_labels(spec: TensorSpec, parameters: Mapping[str, Any]) -> TensorSpec:
    """The output with the labels that its parameters have. Another server may mean something else by them:
    what cannot be those of this output is left out."""
    try:
        return dataclasses.replace(spec, labels=json.loads(parameters[LABELS]))
    except (KeyError, RecursionError, TypeError, ValueError):
        return spec


def get_list(document: Mapping[str, Any], name: str) -> list[Any]:
    """A list of a document; an empty one if there is something else."""
    return value if isinstance(value := document.get(name), list) else []
