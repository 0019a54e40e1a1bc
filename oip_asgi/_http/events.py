"""Server-sent events, their headers, and JSON documents: what answers `generate`, `generate_stream` and
`infer_stream`. Knows no routes.

The head of a stream is sent with the first response, so an earlier failure is an ordinary error. A later
failure is one more event. If there is nothing to send for long, the head and a comment are sent, again and
again: proxies end a connection that is silent.

Specification: Triton's Generate Extension; server-sent events, one `data:` line each.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Coroutine, Sequence
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from .._extensions.common import FINAL, OF_PROTOCOL, WANTS_FINAL
from .._io import IO, begin
from .._json.text import is_inference_request, read_object
from .._models.handler import Handler
from .._models.model import Model
from .._protocol import schemas
from .._protocol.context import ResponseHeaders
from .._protocol.datatypes import Buffer
from .._protocol.errors import InvalidRequest, client_text, show
from .._protocol.tensors import REGION, InferenceRequest, InferenceResponse, ReadRegion
from .._rest import body as rest
from .._rest import generate
from .._serving.engine import Engine
from .._serving.stream import Framing, infer_any, stream
from .messages import HEADER_LENGTH_FIELD, JSON, Head, Response, RestFormat, encode_json, respond
from .routes import Exchange


class Events(NamedTuple):
    """A response that is sent in pieces, and has no length. It ends if nobody takes a piece before
    `io.until`."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    first: bytes | None  # the first piece; None if there is none
    items: AsyncGenerator[bytes, None]  # those that follow it


def add_headers(response: Response | Events, added: ResponseHeaders | None) -> Response | Events:
    """The response with what the model and the server add to its head, which leaves now."""
    fields = {name.encode(): value.encode() for name, value in (() if added is None else added.send())}
    headers = [field for field in response.headers if field[0] not in fields] + [*fields.items()]
    if isinstance(response, Events):
        return response._replace(headers=headers)
    return Response(response.status, headers, response.parts, response.size)


_AS_JSON: Final = InferenceRequest([])

_EVENT: Final = b"data: %b\n\n"

_LINE_ENDS: Final = re.compile(rb"\xc2\x85|\xe2\x80[\xa8\xa9]")
"""Characters at which some clients cut lines, as Python's `splitlines` does."""


def _escape_line_ends(document: bytes) -> bytes:
    return _LINE_ENDS.sub(lambda match: b"\\u%04x" % ord(match[0].decode()), document)


_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    # the gzip middleware of Starlette and Django would hold events back, but leaves alone what names a coding
    (b"content-encoding", b"identity"),
    # proxies such as nginx hold a response back until it is complete, unless it says that they must not
    (b"x-accel-buffering", b"no"),
]


_BEAT: Final = Response(200, _HEADERS, [b":\n\n"], 3)
"""A comment, which clients leave out."""


class DocumentFormat(msgspec.Struct, eq=False):
    """One request over HTTP, each of whose responses is a JSON document."""

    wire: RestFormat  # what reads the request
    frame: bytes  # what stands around a document
    may_be_flat: bool  # whether the request may be a flat object, or a list of them
    is_flat: bool = False  # whether it is one
    has_rows: bool = False  # whether it is a list of them
    has_many: bool = False  # whether a generator answers
    # what encodes the responses to a flat object, made for the first of them
    encoder: generate.FlatEncoder | None = None

    timeout: ClassVar[float] = RestFormat.timeout
    size: ClassVar[int | None] = RestFormat.size
    shares_arrays: ClassVar[bool] = RestFormat.shares_arrays
    encode_arrays: ClassVar[None] = None

    @property
    def head(self) -> Head:
        return self.wire.head

    @property
    def body(self) -> bytes | None:
        return self.wire.body

    def read(self, io: IO) -> Coroutine[Any, Any, Buffer]:
        return self.wire.read(io)

    def is_quick(self, body: Buffer) -> bool:
        return not self.may_be_flat and self.wire.is_quick(body)

    def sends_bytes(self, _: InferenceRequest) -> bool:
        return False

    def decode(
        self, body: Buffer, handler: Handler, read_region: ReadRegion, _: object = None
    ) -> InferenceRequest:
        self.has_many = handler.streams
        if self.may_be_flat:
            request = self._decode_flat(body, handler)
            if request is not None:
                self.is_flat = True
                return request
        whole = self.wire.decode(body, handler, read_region)
        assert isinstance(whole, InferenceRequest)  # no other is asked for
        for output in whole.outputs:
            where = f"requested output {show(output.name)}"
            if output.parameters and output.parameters.get("binary_data"):
                raise InvalidRequest(f"{where} has binary_data: true, but this carries JSON: leave it out")
            if output.parameters and REGION in output.parameters:
                raise InvalidRequest(
                    f"{where} has the parameter {REGION}, but this carries JSON: leave it out"
                )
        return whole

    def _decode_flat(self, body: Buffer, handler: Handler) -> InferenceRequest | None:
        """Decode a flat object, or a list of them. None if the body is a whole inference request."""
        text, binding, declared = bytes(body), handler.binding, handler.shown_inputs
        rows = None if binding.arguments.rows is None else binding.arguments.rows.as_json
        self.has_rows = rows is not None and text.lstrip()[:1] == b"["
        if not self.has_rows and is_inference_request(text, declared.keys() | binding.arguments.named):
            return None
        if HEADER_LENGTH_FIELD in self.head.fields:
            raise InvalidRequest(
                "a flat object has no binary data: leave Inference-Header-Content-Length out, or send inputs"
            )
        if rows is not None:
            request = rows.read(text, is_list=self.has_rows)
            if request is not None:
                return request
        members = read_object(text)
        if rows is not None:
            request = rows.read_row(members)
            if request is not None:
                return request
        named = {*binding.arguments.named, *binding.inputs.undeclared}
        if binding.takes_any_key:
            keys = {
                name
                for name in members.keys() - OF_PROTOCOL - generate.RESERVED_INPUTS
                if not name.startswith("triton_")
            }
            binding.inputs.check_number(len(keys))
            named |= keys
        columns = binding.inputs.find_columns(declared.keys() | named)
        return generate.decode_request(members, declared, named, columns, binding.may_be_null)

    def encode(self, request: InferenceRequest, response: InferenceResponse) -> bytes:
        if request.parameters and request.parameters.get(WANTS_FINAL) and self.frame is _EVENT:
            parameters = {FINAL: not self.has_many, **response.parameters}
            # observers have the other one
            response = msgspec.structs.replace(response, parameters=parameters)
        if self.has_rows:
            document = generate.encode_rows(response)
        elif self.is_flat:
            self.encoder = self.encoder or generate.FlatEncoder(response)
            document = self.encoder.encode(response)
        else:
            document = rest.encode_response(response, _AS_JSON)[0]
        if not document.isascii():
            document = _escape_line_ends(document)
        return self.frame % document


async def answer_with_document(engine: Engine, model: Model, wire: RestFormat, io: IO) -> Response:
    """Answer `generate` with one document, even if the model streams."""
    document = DocumentFormat(wire, b"%b", may_be_flat=True)
    return respond(200, [JSON], [await infer_any(engine, model, document, io)])


async def answer_with_events(request: Exchange, model: Model, *, may_be_flat: bool) -> Events:
    """Answer `generate_stream` and `infer_stream` with an event for each response."""
    wire, head = DocumentFormat(request.wire, _EVENT, may_be_flat=may_be_flat), request.wire.head
    framing = Framing(
        lambda error: _EVENT % _escape_line_ends(encode_json(schemas.Error(client_text(error)))),
        lambda: add_headers(_BEAT, head.response_headers),
    )
    items = stream(request.engine, model, wire, request.io, framing)
    return Events(200, _HEADERS, await begin(items), items)
