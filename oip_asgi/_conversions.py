"""Adds methods such as `to_http` to the classes of requests and responses: `_protocol`, which has them, knows
no wire formats or codecs.
"""

from __future__ import annotations

from ._models.callables import as_, rows
from ._protocol.tensors import InferenceRequest, InferenceResponse
from ._rest.body import to_http
from ._rest.client import from_http

# the classes declare only the types of these
InferenceRequest.to_http = to_http  # type: ignore[assignment,method-assign]
InferenceResponse.as_ = as_  # type: ignore[assignment,method-assign]
InferenceResponse.rows = rows  # type: ignore[method-assign]
InferenceResponse.from_http = staticmethod(from_http)  # type: ignore[method-assign]
