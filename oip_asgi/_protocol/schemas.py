"""The JSON documents of the specification as msgspec Structs. Declarations only: no numpy, no rules.

Specification: Payload Contents, and the binary tensor data extension for `data` being optional.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

Parameters: TypeAlias = dict[str, str | int | float | bool]
RequestParameters: TypeAlias = dict[
    str, str | Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | float | bool
]
"""Parameters of a short request. A decoder compares integers with INT64 only: UINT64, and what has more bits,
is read in parts."""

UncheckedParameters: TypeAlias = dict[str, Any]
"""Parameters of a request whose values are not checked yet. For values of no type, a decoder can be told how
to read floats."""

ReceivedParameters: TypeAlias = dict[str, str | int | float | bool | None]
"""Parameters of a response as a client reads it: MLServer writes null for those it has no value for."""

Dimension: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


_Element: TypeAlias = int | float | str | None
Data: TypeAlias = _Element | list[_Element | list[_Element | list[_Element | list[_Element]]]]
"""`data` of any datatype but BOOL, flat, or nested as deep as images. Booleans are left out: as the datatype
is not known yet, true could pass for a number."""


class RequestInput(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """`$request_input`, with the fields of the specification and no other.

    `gc=False`, as it is in no reference cycle: the collector would take half the time of a request with
    100,000 inputs.
    """

    name: str
    shape: tuple[Dimension, ...]
    datatype: str
    parameters: RequestParameters | None = None
    data: Data = None


class TensorText(msgspec.Struct, gc=False):
    """`$request_input` of a request that is read in parts, or `$response_output` as a client reads it. `data`
    is empty if it is absent."""

    name: str
    shape: tuple[Dimension, ...]
    datatype: str
    parameters: ReceivedParameters | None = None
    data: Raw = Raw()


class RequestOutput(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """`$request_output`: an output tensor that the client asks for.

    Args:
        name: The output tensor's name.
        parameters: Such as `binary_data`, whether this output returns as binary data.

    Specification: Request Output.
    """

    name: str
    parameters: RequestParameters | None = None


class InferenceRequest(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """`$inference_request`, with the fields of the specification and those that KServe's client adds: the
    model's name and version."""

    inputs: list[RequestInput]
    id: str | None = None
    parameters: RequestParameters | None = None
    outputs: list[RequestOutput] | None = None
    model_name: str | None = None
    model_version: str | None = None


class InputParts(msgspec.Struct, gc=False):
    """`RequestInput`, in which what may be large stays text. Other fields are ignored."""

    name: str
    shape: Raw
    datatype: str
    parameters: Raw = Raw()
    data: Raw = Raw()


class OutputParts(msgspec.Struct, gc=False):
    """`RequestOutput`, whose parameters stay text. Other fields are ignored."""

    name: str
    parameters: Raw = Raw()


class RequestParts(msgspec.Struct):
    """`InferenceRequest`, in which what may be large stays text until its size is checked. Other fields are
    ignored."""

    inputs: list[InputParts]
    id: str | None = None
    parameters: Raw = Raw()
    outputs: list[OutputParts] | None = None


class SentTensor(msgspec.Struct, omit_defaults=True, gc=False):
    """`$response_output`, or `$request_input` as a client writes it."""

    name: str
    shape: tuple[int, ...]
    datatype: str
    parameters: Parameters = {}
    data: list[Any] | Raw | UnsetType = UNSET


class InferenceResponse(msgspec.Struct, omit_defaults=True, gc=False):
    """`$inference_response`."""

    model_name: str
    outputs: list[SentTensor]
    model_version: str | None = None
    id: str | None = None
    parameters: Parameters = {}


class SentRequest(msgspec.Struct, omit_defaults=True):
    """`$inference_request` as a client writes it."""

    inputs: list[SentTensor]
    id: str | None = None
    parameters: Parameters = {}
    outputs: list[RequestOutput] = []


class ReceivedResponse(msgspec.Struct):
    """`$inference_response`, or `$inference_error_response`, as a client reads it: servers may write null for
    an absent field."""

    model_name: str | None = None
    outputs: list[TensorText] | None = None
    model_version: str | None = None
    id: str | None = None
    parameters: ReceivedParameters | None = None
    error: str | None = None


class MetadataTensor(msgspec.Struct):
    """A tensor in a model's metadata."""

    name: str
    datatype: str
    shape: list[int]  # protobuf before 5 takes no tuple for a repeated field
    parameters: Parameters | UnsetType = UNSET


class ModelMetadata(msgspec.Struct):
    """`$metadata_model_response`."""

    name: str
    platform: str
    inputs: list[MetadataTensor]
    outputs: list[MetadataTensor]
    versions: list[str] | UnsetType = UNSET
    parameters: Parameters | UnsetType = UNSET


class ServerMetadata(msgspec.Struct):
    """`$metadata_server_response`."""

    name: str
    version: str
    extensions: list[str]


class ServerLive(msgspec.Struct):
    """`$live_server_response`."""

    live: bool


class ModelIndex(msgspec.Struct, kw_only=True):
    """One model in `$repository_index_response`."""

    name: str
    version: str | msgspec.UnsetType = msgspec.UNSET
    state: str
    reason: str | msgspec.UnsetType = msgspec.UNSET


class ServerReady(msgspec.Struct, omit_defaults=True):
    """`$ready_server_response`: the text says `live`, KServe's client and server say `ready`; both are
    here."""

    ready: bool
    live: bool
    models: list[ModelIndex] | msgspec.UnsetType = msgspec.UNSET
    """The models that are not ready."""
    reason: str = ""
    """Why not, if it is because of none of them."""


class ModelReady(msgspec.Struct, omit_defaults=True):
    """`$ready_model_response`."""

    name: str
    ready: bool
    reason: str = ""
    """Why not, if it is because of the server."""


class ModelList(msgspec.Struct):
    """What `GET v2/models` answers, as KServe has it."""

    models: list[str]


class Error(msgspec.Struct):
    """The error object of every endpoint."""

    error: str
