"""Requests through JSON or HTTP and back."""

from __future__ import annotations

import json
from typing import Any

from oip_asgi import InferenceRequest
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
    return decode_request(json.dumps(document).encode())
