"""What an observer is told of one inference that has ended. Knows no queue and no thread."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import msgspec

from .errors import InferenceError
from .tensor_bytes import view_bytes
from .tensors import InferenceRequest, InferenceResponse, Tensor


class Observation(msgspec.Struct, frozen=True, eq=False):
    """One inference that has ended, as the function of `InferenceServer.observe` gets it.

    Its arrays are read-only: other observers have the same ones, and so may the cache. To change one, copy
    it.

    Args:
        model: The model's name.
        version: Its version, None for a model without versions.
        id: The request's identifier, None if it has none, or was refused before it was decoded.
        request: The request; None if it was refused before it was decoded. Rows of a class are columns here;
            it has no inputs if rows cannot become any, such as integers beyond 64 bits.
        response: The response as the model made it, before output options such as `classification`: the first
            one of a stream. None if there was none.
        error: What the client got instead, or at the end of its stream; None if all went well. Its
            `__cause__` is what the model raised, if it did. A request that was given up, as its client went
            or its host ended it, has the status 499.
        seconds: From when the request's body was there until its end; 0.0 if it was refused before that.
        at: When it ended, in seconds since 1970 in UTC, as `time.time()` has it.
        transport: The adapter's own object, as in `InferenceContext`: ASGI scope, WSGI environ, Django
            request, gRPC context; None for a call from Python.
        responses: How many responses were made: 1 for a request that was answered, any number for a stream.
        inputs_sha256: With `payload=False`, where `request` and `response` have no tensors: a digest of the
            request's inputs, in hexadecimal digits. It is the SHA-256 of these bytes for each input, in the
            order of their names: the JSON text `["name","datatype",[shape]]` without spaces, a line feed, and
            the elements as binary tensor data has them.
    """

    model: str
    version: str | None
    id: str | None
    request: InferenceRequest | None
    response: InferenceResponse | None
    error: InferenceError | None
    seconds: float
    at: float
    transport: Any
    responses: int = 0
    inputs_sha256: str | None = None


def without_payload(observation: Observation) -> Observation:
    """An observation with a digest of the inputs instead of all tensors."""
    request, response = observation.request, observation.response
    return msgspec.structs.replace(
        observation,
        request=None if request is None else msgspec.structs.replace(request, inputs=[]),
        response=None if response is None else msgspec.structs.replace(response, outputs=[]),
        inputs_sha256=None if request is None else _digest_inputs(request.inputs),
    )


def _digest_inputs(inputs: list[Tensor]) -> str:
    digest = sha256()
    for tensor in sorted(inputs, key=lambda tensor: tensor.name):
        digest.update(
            json.dumps([tensor.name, tensor.datatype, tensor.shape], separators=(",", ":")).encode() + b"\n"
        )
        digest.update(view_bytes(tensor.array))
    return digest.hexdigest()
