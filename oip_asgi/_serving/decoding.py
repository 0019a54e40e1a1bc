"""`WireFormat`, which is what a transport gives to the pipeline for one inference request and its response;
and the request -> `Decoded`: its tensors, which `Inputs.accept` checks, its timeout, and what it asks for.
Knows no slots and no clock.

`pipeline` decides whether a body is decoded on the event loop or in a worker thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar, final

import msgspec

from .._codecs.content_types import Codecs
from .._extensions import classification
from .._extensions.common import ApplyOptions, check_parameters
from .._extensions.shared_memory import Regions, refuse_region_beside_data
from .._io import IO
from .._models.arguments import Binding
from .._models.handler import Handler
from .._models.model import Model
from .._models.model_options import NO_TIMEOUT
from .._models.results import check_requested
from .._protocol.array_requests import ArrayModel, ArrayRequest
from .._protocol.context import ResponseHeaders
from .._protocol.datatypes import Array, Buffer
from .._protocol.errors import InvalidRequest, show
from .._protocol.schemas import Parameters, RequestOutput
from .._protocol.tensors import (
    CLASSIFICATION,
    ELSEWHERE,
    InferenceRequest,
    InferenceResponse,
    ReadRegion,
    Tensor,
    check_supported,
    make_read_only,
)

T_co = TypeVar("T_co", covariant=True)


class Head(Protocol):
    """A request without its body."""

    @property
    def transport(self) -> Any:
        """The transport's own object, for `InferenceContext.transport`."""

    response_headers: ResponseHeaders | None
    """The headers that the answer gets beside its own, once the model or the server has any."""

    def named_headers(self) -> Mapping[str, str]:
        """The request's headers by name, in lower case."""


class WireFormat(Protocol[T_co]):
    """REST has one, gRPC another, and calls from Python a third."""

    @property
    def head(self) -> Head: ...

    @property
    def timeout(self) -> float:
        """The timeout that the head says, as that of gRPC does, in seconds; else infinity. `decoding` takes a
        parameter `timeout` too."""

    @property
    def shares_arrays(self) -> bool:
        """Whether the caller has the same arrays, and may change them once it has its response."""

    @property
    def size(self) -> int | None:
        """How many bytes must be decoded; None if it is the size of the body."""

    def is_quick(self, body: Buffer, /) -> bool:
        """Whether an event loop may decode a body of more than `LOOP_BYTES`, for a model that takes the
        arrays as they are."""

    def sends_bytes(self, request: InferenceRequest, /) -> bool:
        """Whether all outputs leave as bytes, if they are numbers."""

    @property
    def body(self) -> Buffer | None:
        """The request's body, if it was there at once."""

    async def read(self, io: IO, /) -> Buffer:
        """Read the body, if it was not there at once."""

    def decode(
        self, body: Buffer, handler: Handler, read_region: ReadRegion, model: ArrayModel | None = None, /
    ) -> InferenceRequest | ArrayRequest:
        """Decode a body for the function that answers it: the model may have another one by then. What says
        no more than the arrays of this `model` may come as those."""

    def encode(self, request: InferenceRequest, response: InferenceResponse, /) -> T_co:
        """Encode the response."""

    @property
    def encode_arrays(self) -> Callable[[ArrayRequest, Sequence[Array]], T_co] | None:
        """Encodes the outputs of an `ArrayRequest`; None for a format that makes none."""


_NOT_ASKED: Final[Mapping[str, str]] = {}


@final
class Decoded(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A request that the model accepts."""

    request: InferenceRequest
    binding: Binding  # how to call the function for it
    tensors: dict[str, Tensor]  # the inputs by name
    # the outputs that it asks for; a copy, as the model may change `request`
    outputs: Sequence[RequestOutput]
    content_type: str | None = None  # the content type of each tensor that has none of its own
    content_types: Mapping[str, str] = _NOT_ASKED  # the content types that it asks for, by output
    apply_options: ApplyOptions | None = None
    """Applies the output options to the response before it is encoded; None if there are none."""
    timeout: float = math.inf  # its own, in seconds
    # the request as `write_columns` makes it, of a model with a cache
    columns: InferenceRequest | None = None
    # the inputs that have values out of their range, if they are not refused for that
    outside: Sequence[str] = ()

    def without_inputs(self) -> Decoded:
        """Drop what is not needed after the function was called."""
        request = InferenceRequest([], self.request.id, self.request.parameters, self.request.outputs)
        return msgspec.structs.replace(self, request=request, tensors={})


def accept(request: InferenceRequest, model: Model, handler: Handler, regions: Regions) -> Decoded:
    """Check a request against the model."""
    parameters, codecs = request.parameters, handler.codecs
    timeout, content_type = math.inf, None
    # binary_data_output alone, as clients send it, is for the encoder
    if parameters and (len(parameters) > 1 or "binary_data_output" not in parameters):
        _check_common(parameters, "the request", codecs, of_request=True)
        check_parameters(parameters, handler.binding.read_alone, handler.binding.refused)
        if "timeout" in parameters:
            timeout = _read_timeout(parameters["timeout"], counts=model.options.allow_timeout_override)
        if "content_type" in parameters:
            content_type = str(parameters["content_type"])
    for tensor in request.inputs:
        if tensor.parameters:
            where = f"input {show(tensor.name)}"
            if regions.is_on:
                refuse_region_beside_data(tensor.parameters, where)
            _check_common(tensor.parameters, where, codecs)
        if tensor.array.flags.writeable:
            make_read_only(tensor.array)
    outputs: Sequence[RequestOutput] = ()
    content_types, apply_options = _NOT_ASKED, None
    if request.outputs:
        outputs = request.outputs.copy()
        content_types, is_plain = _check_outputs(outputs, codecs, (CLASSIFICATION, *regions.parameters))
        if handler.answers.declared:
            check_requested(outputs, [spec.name for spec in handler.answers.declared])
        if not is_plain:
            apply_options = _prepare_output_options(outputs, handler, regions)
    binding = handler.binding
    if content_type is None:
        tensors = binding.inputs.accept(request.inputs)
    else:  # what a request says goes before what is declared
        binding = handler.others.get(content_type, binding)
        tensors = binding.accept(request.inputs, content_type)
        if binding.arguments.whole is not None or content_type not in binding.codecs.inputs:
            content_type = None
    outside: Sequence[str] = ()
    if binding.inputs.ranged:
        outside = binding.inputs.list_outside(tensors, flags=model.options.out_of_range == "flag")
    return Decoded(
        request=request,
        binding=binding,
        tensors=tensors,
        outputs=outputs,
        content_type=content_type,
        content_types=content_types,
        apply_options=apply_options,
        timeout=timeout,
        columns=None if model.cache is None else write_columns(request, binding),
        outside=outside,
    )


def write_columns(request: InferenceRequest, binding: Binding) -> InferenceRequest | None:
    """A request with columns for rows that came as objects. None if their class fails, or they can be no
    columns."""
    try:
        rows = binding.arguments.rows
        return request if rows is None else rows.as_json.write_columns(request)
    except Exception:
        return None


def _read_timeout(timeout: object, *, counts: bool) -> float:
    """Read the request's own timeout, which is in microseconds. 0 means none. If it does not count, it is
    only checked."""
    if type(timeout) is not int or timeout < 0:
        raise InvalidRequest(
            f"parameters.timeout is {show(timeout)}: expected an integer, 0 or more, in microseconds"
        )
    return timeout / 1e6 if counts and 0 < timeout < NO_TIMEOUT * 10**6 else math.inf


def _prepare_output_options(
    outputs: Sequence[RequestOutput], handler: Handler, regions: Regions
) -> ApplyOptions | None:
    """Make what applies a request's output options to its response. None if it has none."""
    dtypes = {spec.name: spec.dtype for spec in handler.answers.declared}
    labels = {spec.name: spec.labels or () for spec in handler.answers.declared}
    classify = classification.prepare_outputs(outputs, dtypes, labels)
    write = regions.prepare_outputs(outputs, streams=handler.streams)
    if classify is None or write is None:
        return classify or write
    return lambda response: write(classify(response))


def _check_outputs(
    outputs: Sequence[RequestOutput], codecs: Codecs, supported: Collection[str]
) -> tuple[dict[str, str], bool]:
    """Return the requested content types by output, and True if no output has output options."""
    content_types: dict[str, str] = {}
    is_plain = True
    for output in outputs:
        if output.parameters:
            _check_common(output.parameters, f"requested output {show(output.name)}", codecs, supported)
            if "content_type" in output.parameters:
                content_types[output.name] = str(output.parameters["content_type"])
            is_plain = is_plain and output.parameters.keys().isdisjoint(ELSEWHERE)
    return content_types, is_plain


def _check_common(
    parameters: Parameters,
    where: str,
    codecs: Codecs,
    supported: Collection[str] = (),
    *,
    of_request: bool = False,
) -> None:
    """Check what parameters of a request, an input and a requested output have in common."""
    check_supported(parameters, where, supported)
    if "content_type" in parameters:
        codecs.check(parameters["content_type"], where, of_request=of_request)
