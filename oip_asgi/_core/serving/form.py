"""How one inference request arrives and its response leaves: what a transport gives to the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from ..datatypes import Buffer
from ..effects import Read
from ..models.model import Model
from ..tensors import InferenceRequest, InferenceResponse, Lend

T_co = TypeVar("T_co", covariant=True)


class Form(Protocol[T_co]):
    """REST has one form, gRPC another.

    Costs are in bytes that are looked at one by one, or what takes as long.
    """

    @property
    def transport(self) -> Any:
        """The transport's own object, for `InferenceContext.transport`."""

    @property
    def timeout(self) -> float:
        """How many seconds the client gives it, from when the request is there; infinity where it does not say."""

    def named_headers(self) -> Mapping[str, str]:
        """The request's headers by name, in lower case."""

    def read(self) -> Read | Buffer:
        """The request's body, or the effect that reads it."""

    def decoding_cost(self, body: Buffer, /) -> int:
        """How much `decode` costs."""

    def decode(self, body: Buffer, model: Model, lend: Lend, /) -> InferenceRequest:
        """The request that a body is.

        Args:
            body: The body.
            model: The model that is asked for.
            lend: Reads the inputs that are in shared memory.

        Raises:
            InvalidRequest: It is none.
        """

    def encoding_cost(self, request: InferenceRequest, response: InferenceResponse, /) -> int:
        """How much `encode` costs."""

    def encode(self, request: InferenceRequest, response: InferenceResponse, /) -> T_co:
        """The response as it leaves.

        Raises:
            InvalidRequest: The form that the request asks for cannot carry it.
        """
