"""The wire format of one inference request and its response: what a transport gives to the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from .._io import IO
from .._models.handler import Handler
from .._protocol.datatypes import Buffer
from .._protocol.response_headers import ResponseHeaders
from .._protocol.tensors import InferenceRequest, InferenceResponse, ReadRegion

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
        """The timeout that the head says, as that of gRPC does, in seconds; else infinity. `decoding` takes a parameter `timeout` too."""

    @property
    def shares_arrays(self) -> bool:
        """Whether the caller has the same arrays, and may change them once it has its response."""

    @property
    def size(self) -> int | None:
        """How many bytes must be decoded; None if it is the size of the body."""

    def is_quick(self, body: Buffer, /) -> bool:
        """Whether an event loop may decode a body of more than `LOOP_BYTES`, for a model that takes the arrays as they are."""

    def sends_bytes(self, request: InferenceRequest, /) -> bool:
        """Whether all outputs leave as bytes, if they are numbers."""

    @property
    def body(self) -> Buffer | None:
        """The request's body, if it was there at once."""

    async def read(self, io: IO, /) -> Buffer:
        """Read the body, if it was not there at once."""

    def decode(self, body: Buffer, handler: Handler, read_region: ReadRegion, /) -> InferenceRequest:
        """Decode a body for the function that answers it: the model may have another one by then."""

    def encode(self, request: InferenceRequest, response: InferenceResponse, /) -> T_co:
        """Encode the response."""
