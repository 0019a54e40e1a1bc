"""Server-sent events, their headers, and JSON documents: what answers `generate`, `generate_stream` and `infer_stream`. Knows no routes.

The head of a stream is sent with the first response, so an earlier failure is an ordinary error. A later failure is one more event.

Specification: Triton's Generate Extension; server-sent events, one `data:` line each.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from .._extensions.reserved import OF_PROTOCOL
from .._io import begin
from .._models.handler import Handler
from .._models.model import Model
from .._protocol import schemas
from .._protocol.datatypes import Buffer
from .._protocol.errors import InferenceError, InvalidRequest, client_text, show
from .._protocol.tensors import REGION, InferenceRequest, InferenceResponse, ReadRegion
from .._rest import body as rest
from .._rest import generate
from .._serving.stream import stream
from .headers import HEADER_LENGTH_FIELD, read_length
from .request import RestFormat
from .response import JSON, Response, encode_json, respond
from .routed import Exchange


class Events(NamedTuple):
    """A response that is sent in pieces, and has no length. It ends if nobody takes a piece before `io.until`."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    first: bytes | None  # the first piece; None if there is none
    items: AsyncGenerator[bytes, None]  # those that follow it


_AS_JSON: Final = InferenceRequest([])

_EVENT: Final = b"data: %b\n\n"

_LINE_ENDS: Final = re.compile(rb"\xc2\x85|\xe2\x80[\xa8\xa9]")
"""Characters at which some clients cut lines, as Python's `splitlines` does."""


def _encode_error(error: InferenceError) -> bytes:
    return _EVENT % _escape_line_ends(encode_json(schemas.Error(client_text(error))))


def _escape_line_ends(document: bytes) -> bytes:
    return _LINE_ENDS.sub(lambda found: b"\\u%04x" % ord(found[0].decode()), document)


_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    # the gzip middleware of Starlette and Django would hold events back, but leaves alone what names a coding
    (b"content-encoding", b"identity"),
    # proxies such as nginx hold a response back until it is complete, unless it says that they must not
    (b"x-accel-buffering", b"no"),
]


class DocumentFormat:
    """One request over HTTP, each of whose responses is a JSON document."""

    def __init__(self, rest: RestFormat, frame: bytes, *, may_be_flat: bool) -> None:
        self.timeout, self.size, self.transport, self.body = rest.timeout, rest.size, rest.head.transport, rest.body
        self.read, self.named_headers = rest.read, rest.named_headers
        self._rest = rest
        self._frame = frame
        self._may_be_flat = may_be_flat
        self._is_flat = self._has_rows = False
        self._head = b""

    def decode(self, body: Buffer, handler: Handler, read_region: ReadRegion) -> InferenceRequest:
        if self._may_be_flat:
            request = self._decode_flat(body, handler)
            if request is not None:
                self._is_flat = True
                return request
        request = self._rest.decode(body, handler, read_region)
        for output in request.outputs:
            where = f"requested output {show(output.name)}"
            if output.parameters and output.parameters.get("binary_data"):
                raise InvalidRequest(f"{where} has binary_data: true, but this carries JSON: leave it out")
            if output.parameters and REGION in output.parameters:
                raise InvalidRequest(f"{where} has the parameter {REGION}, but this carries JSON: leave it out")
        return request

    def _decode_flat(self, body: Buffer, handler: Handler) -> InferenceRequest | None:
        """Decode a flat object. None if the body is a whole inference request."""
        fields = self._rest.head.fields
        length = read_length(fields, HEADER_LENGTH_FIELD) if HEADER_LENGTH_FIELD in fields else None
        text = bytes(body if length is None else memoryview(body)[:length])
        binding, declared = handler.binding, handler.shown_inputs
        if generate.is_inference_request(text, declared.keys() | binding.named):
            return None
        as_columns = binding.of_one_request is InferenceRequest or handler.options.cache is not None
        if binding.rows is not None and text.lstrip()[:1] == b"[":
            self._has_rows = True
            return binding.rows.read_objects(generate.read_objects(text), as_columns=as_columns)
        flat = generate.read_object(text)
        if binding.rows is not None and length is None and binding.rows.is_row(flat):
            with suppress(InvalidRequest):  # which columns of one row are told of
                return binding.rows.read_objects([flat], as_columns=as_columns)
        if length is not None:
            raise InvalidRequest("a flat object has no binary data: leave Inference-Header-Content-Length out, or send inputs")
        named = binding.named.union(binding.undeclared)
        if binding.takes_any_key:
            keys = {name for name in flat.keys() - OF_PROTOCOL - generate.RESERVED_INPUTS if not name.startswith("triton_")}
            binding.check_number(len(keys))
            named |= keys
        columns = (declared.keys() | named) - binding.named if binding.takes_frame else frozenset()
        return generate.decode_request(flat, declared, named, columns | binding.columns)

    def encode(self, _: InferenceRequest, response: InferenceResponse) -> bytes:
        if self._has_rows:
            document = generate.encode_rows(response)
        elif self._is_flat:
            self._head = self._head or generate.encode_head(response)
            document = generate.encode_response(response, self._head)
        else:
            document = rest.encode_response(response, _AS_JSON)[0]
        if not document.isascii():
            document = _escape_line_ends(document)
        return self._frame % document


async def answer_with_document(request: Exchange, model: Model) -> Response:
    """Answer `generate` with one document, even if the model streams."""
    wire = DocumentFormat(request.wire, b"%b", may_be_flat=True)
    [text] = [text async for text in stream(request.engine, model, wire, request.io, wants_one=True)]
    return respond(200, [JSON], [text])


async def answer_with_events(request: Exchange, model: Model, *, may_be_flat: bool) -> Events:
    """Answer `generate_stream` and `infer_stream` with an event for each response."""
    wire = DocumentFormat(request.wire, _EVENT, may_be_flat=may_be_flat)
    items = stream(request.engine, model, wire, request.io, _encode_error)
    return Events(200, _HEADERS, await begin(items), items)
