"""How one inference request arrives and its response leaves: what a transport gives to the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from .._models.model import Model
from .._protocol.datatypes import Buffer
from .._protocol.effects import Read
from .._protocol.tensors import InferenceRequest, InferenceResponse, Lend

T_co = TypeVar("T_co", covariant=True)


class WireFormat(Protocol[T_co]):
    """REST has one, gRPC another, and calls from Python a third."""

    @property
    def transport(self) -> Any:
        """The transport's own object, for `InferenceContext.transport`."""

    @property
    def timeout(self) -> float:
        """How many seconds the client gives it, from when the request is there; infinity where it does not say."""

    def named_headers(self) -> Mapping[str, str]:
        """The request's headers by name, in lower case."""

    @property
    def size(self) -> int | None:
        """How many bytes are to be decoded, if they are not those of the body that `read` gives."""

    def read(self) -> Read | Buffer:
        """The request's body, or the effect that reads it."""

    def decode(self, body: Buffer, model: Model, lend: Lend, /) -> InferenceRequest:
        """The request that a body is."""

    def encode(self, request: InferenceRequest, response: InferenceResponse, /) -> T_co:
        """The response as it leaves."""
