"""Requests through JSON or HTTP and back."""

from __future__ import annotations

import json
from typing import Any

from oip_asgi import InferenceRequest
from oip_asgi._core.rest import body as rest


def through_http(request: InferenceRequest, *, binary: bool) -> InferenceRequest:
    """What a server sees of a request."""
    headers, body = request.to_http(binary=binary)
    length = headers.get("Inference-Header-Content-Length")
    return rest.decode_request(body, None if length is None else int(length)).request


def sent(request: InferenceRequest) -> Any:
    headers, body = request.to_http()
    assert headers == {"Content-Type": "application/json"}
    return json.loads(body)


def received(document: Any) -> InferenceRequest:
    return rest.decode_request(json.dumps(document).encode(), None).request
