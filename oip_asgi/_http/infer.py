"""The REST wire format: decodes the body of an inference request, and encodes its response. Knows no routes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .._models.model import Model
from .._protocol.access import Access, Action
from .._protocol.datatypes import Buffer
from .._protocol.errors import InvalidRequest
from .._protocol.tensors import InferenceRequest, InferenceResponse, Lend
from .._rest import body as rest
from .._rest.body import raw_request
from .._rest.loose import fit_texts
from .request import HEADER_LENGTH_FIELD, Incoming
from .response import BINARY, JSON, Response, respond


class RestFormat(Incoming):
    """The wire format of one inference request over HTTP."""

    timeout: float = math.inf
    size: int | None = None

    @property
    def transport(self) -> Any:
        return self.head.transport

    def make_access(self, action: Action, model: str | None, version: str | None) -> Access:
        return Access(action, model, version, headers=self.named_headers, transport=self.head.transport)

    def named_headers(self) -> Mapping[str, str]:
        return self.head.named_headers()

    def decode(self, body: Buffer, model: Model, lend: Lend) -> InferenceRequest:
        header_length = self.header_length
        if header_length == 0:
            return _decode_raw(body, model)
        try:
            return rest.decode_request(body, header_length, lend)
        except InvalidRequest:
            fitted = fit_texts(body) if model.is_foreign and header_length is None else None
            if fitted is None:
                raise
            return rest.decode_request(fitted, None, lend)

    def encode(self, request: InferenceRequest, response: InferenceResponse) -> Response:
        text, binary = rest.encode_response(response, request)
        if not binary:
            return Response(200, [JSON, (b"content-length", b"%d" % len(text))], [text], len(text))
        return respond(200, [BINARY, (HEADER_LENGTH_FIELD, b"%d" % len(text))], [text, *binary])


def _decode_raw(body: Buffer, model: Model) -> InferenceRequest:
    specs = model.inputs
    if len(specs) != 1:
        raise InvalidRequest(
            f"Inference-Header-Content-Length: 0 makes the body the only input's bytes, but {model} does not declare exactly one input"
        )
    return raw_request(body, specs[0].name, specs[0].datatype, tuple(specs[0].shape))
