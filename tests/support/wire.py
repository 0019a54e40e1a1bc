"""Requests through JSON or HTTP and back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oip_asgi import InferenceRequest, InferenceResponse, Tensor
from tests.support.inside import decode_request


def through_http(request: InferenceRequest, *, binary: bool) -> InferenceRequest:
    """What a server sees of a request."""
    headers, body = request.to_http(binary=binary)
    length = headers.get("Inference-Header-Content-Length")
    return decode_request(body, None if length is None else int(length))


def sent(request: InferenceRequest) -> Any:
    headers, body = request.to_http()
    assert headers == {"Content-Type": "application/json"}
    return json.loads(body)


def received(document: Any) -> InferenceRequest:
    """What a server sees of a document, or of a body."""
    return decode_request(document if isinstance(document, bytes) else json.dumps(document).encode())


def read(data: bytes, datatype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """The array of a tensor that came in JSON with such `data`."""
    head = json.dumps({"name": "x", "shape": shape, "datatype": datatype}).encode()
    return InferenceResponse.from_http({}, b'{"outputs":[%b,"data":%b}]}' % (head[:-1], data))["x"]


def written(array: NDArray[Any]) -> bytes:
    """The JSON `data` of an array."""
    _, body = InferenceRequest([Tensor("x", array)]).to_http()
    return body[body.index(b'"data":') + len(b'"data":') : -len(b"}]}")]


def objects(elements: Sequence[bytes], *shape: int) -> NDArray[Any]:
    """BYTES as an array."""
    array = np.empty(len(elements), object)
    array[:] = list(elements)
    return array.reshape(shape or -1)
