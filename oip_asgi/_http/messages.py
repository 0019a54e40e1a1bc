"""An HTTP request and its response as values: a path below a mount, a head, a body, and the wire format of
REST. And which pages of browsers may send a request. Knows no server, framework or routes.

`read_length` reads the headers that count bytes: Content-Length and Inference-Header-Content-Length.

Specification: Binary Tensor Data Extension; Fetch Metadata; RFC 6454 for Origin.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, final
from urllib.parse import quote, unquote

import msgspec

from .._io import IO
from .._models.handler import Handler
from .._protocol import schemas
from .._protocol.array_requests import ArrayModel, ArrayRequest
from .._protocol.context import CHANGES, Access, Action, ReceivedHeaders, ResponseHeaders, join_repeated
from .._protocol.datatypes import Array, Buffer
from .._protocol.errors import Forbidden, InferenceError, InvalidRequest, NotFound, client_text, show
from .._protocol.request_body import Body, read_coding
from .._protocol.tensors import InferenceRequest, InferenceResponse, ReadRegion
from .._rest import body as rest

JSON: Final = (b"content-type", b"application/json")
BINARY: Final = (b"content-type", b"application/octet-stream")

_MESSAGE: Final = 2**17
"""The most bytes in each message of a body. malloc keeps blocks of this size, so they cost no page faults:
those of a copy of 600 KB take more than the messages cost a server, each as much as a copy of 100 KB."""

encode_json: Final = msgspec.json.Encoder().encode


@final
class Response(msgspec.Struct, frozen=True, gc=False):  # in no reference cycle
    """A response: its parts are sent one after the other, `size` bytes in all. `Content-Length` is among the
    headers."""

    status: int
    headers: list[tuple[bytes, bytes]]
    parts: list[Buffer]
    size: int

    def messages(self) -> Iterable[tuple[bytes, bool]]:
        """Return the parts as `bytes`, which servers need, each with True if more of them follow."""
        return [(b"".join(self.parts), False)] if self.size <= _MESSAGE else self._cut()

    def _cut(self) -> Iterator[tuple[bytes, bool]]:
        gathered: list[memoryview] = []
        size, left = 0, self.size
        for part in self.parts:
            view = memoryview(part)
            while view:
                piece, view = view[: _MESSAGE - size], view[_MESSAGE - size :]
                gathered.append(piece)
                size += len(piece)
                left -= len(piece)
                if size == _MESSAGE or not left:
                    yield b"".join(gathered), left > 0
                    gathered, size = [], 0


CLIENT_GONE: Final = Response(499, [(b"content-length", b"0")], [b""], 0)
"""Sent if the client has gone: hosts take an application that answers nothing for a broken one, and log
that."""


def respond(status: int, described: list[tuple[bytes, bytes]], parts: list[Buffer]) -> Response:
    size = sum(map(len, parts))
    return Response(status, [*described, (b"content-length", b"%d" % size)], parts, size)


def respond_json(status: int, document: msgspec.Struct) -> Response:
    return respond(status, [JSON], [encode_json(document)])


def respond_error(error: InferenceError) -> Response:
    """Make the response for an error: its status, its headers, and its text as `{"error": text}`."""
    headers = [
        (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in error.headers.items()
    ]
    return respond(error.status, [JSON, *headers], [encode_json(schemas.Error(client_text(error)))])


def respond_unknown_path(path: str, root: str, prefix: str, mount: str) -> Response:
    """Make the response for a path outside an application's prefix. Clients write `root` before it, to which
    a mount has added `mount`."""
    why = (
        f", as OIPApp(server, path={prefix!r}) is mounted at {mount}: path= is for an OIPApp that nothing "
        "mounts"
        if mount
        else ""
    )
    return respond_error(
        NotFound(f"unknown path {show(root + path)}: everything is under {root}{prefix}{why}")
    )


HEADER_LENGTH_FIELD: Final = rest.HEADER_LENGTH.lower().encode()

_MAX_DIGITS: Final = 18
"""No body has a length of more digits."""

_DECIMAL: Final = re.compile(rb"[0-9]+")


def read_length(headers: Mapping[bytes, bytes], name: bytes) -> int | None:
    """Read a header that counts bytes; None if there is none.

    If it came twice, we or the server in front have joined its values by a comma.
    """
    value = headers.get(name)
    if value is None:
        return None
    if value.isdigit() and len(value) <= _MAX_DIGITS:
        return int(value)
    values = {part.strip() for part in value.split(b",")}
    called = name.decode().title()
    if len(values) > 1:
        raise InvalidRequest(f"header {called} is repeated with different values: expected one")
    value = values.pop()
    if not _DECIMAL.fullmatch(value):
        raise InvalidRequest(
            f"header {called} is {show(value.decode('latin-1'))}: expected a plain decimal number of bytes"
        )
    if len(value) > _MAX_DIGITS:
        raise InvalidRequest(f"header {called} has {len(value)} digits: no body is that long")
    return int(value)


class Head(msgspec.Struct):
    """A request without its body."""

    method: str  # in capitals
    path: str  # what is below the mount, percent-encoded, without the query
    headers: Sequence[tuple[bytes, bytes]]  # names in lower case
    body_is_bounded: bool  # whether the body's end can be told: it has a length, or the server ends it
    transport: Any  # the adapter's own object, for `InferenceContext.transport`
    mount: Callable[[Head], str] = lambda _: ""
    """Tells the path of the mount as clients see it, decoded, such as "/v2"; "" for the root."""
    holds_thread: bool = False  # whether the request holds a thread of the host, of which it may have few
    # `__post_init__` sets the rest
    fields: dict[bytes, bytes] = {}  # the headers by name, those that are repeated joined by a comma

    short_length: int = 0
    """The length of a body that may be read before anything is decided, if the engine finds it short enough.
    Only a POST has one, if it is not compressed, and the client does not wait for 100 Continue. 0 for any
    other, and for a length of more than five digits."""
    # what the answer gets beside its own, once the model or the server has any
    response_headers: ResponseHeaders | None = None

    def __post_init__(self) -> None:
        fields = dict(self.headers)
        if len(fields) < len(self.headers):
            fields = join_repeated(self.headers, b",")
        self.fields = fields
        length = fields.get(b"content-length", b"")
        if (
            len(length) < 6
            and self.method == "POST"
            and length.isdigit()
            and b"expect" not in fields
            and b"content-encoding" not in fields
        ):
            self.short_length = int(length)

    def named_headers(self) -> Mapping[str, str]:
        """The headers as models get them."""
        fields = self.fields if len(self.fields) == len(self.headers) else join_repeated(self.headers, b", ")
        return ReceivedHeaders(
            {name.decode("latin-1"): value.decode("latin-1") for name, value in fields.items()}
        )


class RestFormat(msgspec.Struct, eq=False):
    """The wire format of one request, whose body is read once or not at all."""

    head: Head
    limit: int | None  # the most bytes that are taken; None for no limit
    json_limit: int | None = None
    """The most bytes of JSON that are taken, in front of binary data or without any; None for no limit."""
    body: bytes | None = None
    """All of the body, if the adapter had it at once: its length is `head.short_length`."""
    is_read: bool = False  # whether `read` has begun to read it

    timeout: ClassVar[float] = math.inf
    size: ClassVar[int | None] = None
    shares_arrays: ClassVar[bool] = False

    def make_access(self, action: Action, model: str | None, version: str | None) -> Access:
        return Access(action, model, version, headers=self.head.named_headers, transport=self.head.transport)

    async def read(self, io: IO) -> Buffer:
        fields = self.head.fields
        header_length = read_length(fields, HEADER_LENGTH_FIELD)
        if self.body is not None:
            return self.body
        length = read_length(fields, b"content-length")
        named = fields.get(b"content-encoding")
        coding = None if named is None else read_coding(named.decode("latin-1"))
        body = Body(length, self.limit, coding, header_length, json_limit=self.json_limit)
        body.is_chunked, body.upgrade = b"transfer-encoding" in fields, fields.get(b"upgrade")
        if length is not None:
            body.check(length)
        elif not self.head.body_is_bounded:
            raise InferenceError(
                "the request has no Content-Length, and the server in front does not tell where its body "
                "ends: send a length",
                status=411,
            )
        self.is_read = True
        read: Buffer = await io.read(body)
        return read

    async def drop(self, io: IO) -> None:
        """Read a body that the response did not need, and drop it: many servers would close the connection
        while the client still sends."""
        fields = self.head.fields
        is_there = b"content-length" in fields or (
            b"transfer-encoding" in fields and self.head.body_is_bounded
        )
        # a client that expects 100 Continue sends nothing before somebody reads
        if not is_there or b"expect" in fields:
            return
        try:
            body = Body(read_length(fields, b"content-length"), self.limit, keep=False)
            if body.length != 0:
                body.check(body.length or 0)
                await io.read(body)
        except Exception:
            return  # the response stands, whatever becomes of the rest

    def is_quick(self, body: Buffer) -> bool:
        return rest.is_quick(body, read_length(self.head.fields, HEADER_LENGTH_FIELD))

    def sends_bytes(self, request: InferenceRequest) -> bool:
        return rest.are_all_binary(request)

    def decode(
        self, body: Buffer, handler: Handler, read_region: ReadRegion, model: ArrayModel | None = None
    ) -> InferenceRequest | ArrayRequest:
        fields = self.head.fields
        header_length = read_length(fields, HEADER_LENGTH_FIELD) if HEADER_LENGTH_FIELD in fields else None
        if header_length == 0:
            return _decode_raw(body, handler)
        return rest.decode_request(
            body, header_length, read_region, is_lax=not handler.is_checked, model=model
        )

    def encode(self, request: InferenceRequest, response: InferenceResponse) -> Response:
        return _respond_with(*rest.encode_response(response, request))

    def encode_arrays(self, request: ArrayRequest, arrays: Sequence[Array]) -> Response:
        return _respond_with(*rest.encode_arrays(request, arrays))


def _respond_with(text: bytes, binary: Sequence[Buffer]) -> Response:
    if not binary:
        return Response(200, [JSON, (b"content-length", b"%d" % len(text))], [text], len(text))
    return respond(200, [BINARY, (HEADER_LENGTH_FIELD, b"%d" % len(text))], [text, *binary])


def _decode_raw(body: Buffer, handler: Handler) -> InferenceRequest:
    inputs, declared = handler.binding.inputs, handler.shown_inputs.values()
    tensors = [spec for spec in declared if spec.name not in inputs.scalars] or declared
    specs = [spec for spec in tensors if spec.name in inputs.required] or list(tensors)
    if len(specs) != 1:
        raise InvalidRequest(
            f"Inference-Header-Content-Length: 0 makes the body the only input's bytes, but {handler} does "
            "not declare exactly one input"
        )
    [spec] = specs
    return rest.decode_raw_request(body, spec.name, spec.datatype, tuple(spec.shape))


# What browsers say about the page that sends a request

_SAME_ORIGIN: Final = (b"same-origin", b"none")
_SAME_SITE: Final = (*_SAME_ORIGIN, b"same-site")
_WITHOUT_PREFLIGHT: Final = (b"no-cors", b"navigate")


def refuse_foreign(
    fields: Mapping[bytes, bytes], action: Action | None, trusted_origins: Collection[str]
) -> None:
    """Refuse a POST that a browser sends for a page of another site.

    A form, an image or a link there sends requests with the cookies of the user, and no preflight stops them.
    The host's CORS middleware decides what a script there may read.
    """
    origin, site = fields.get(b"origin"), fields.get(b"sec-fetch-site", b"none").lower()
    if origin is not None and origin.decode("latin-1") in trusted_origins:
        return
    if action in CHANGES:
        host = fields.get(b"host", b"").lower()
        own = (None, b"http://" + host, b"https://" + host)
        is_foreign = site not in _SAME_ORIGIN or (origin and origin.lower()) not in own
    else:
        is_foreign = (
            action == "infer"
            and site not in _SAME_SITE
            and fields.get(b"sec-fetch-mode", b"").lower() in _WITHOUT_PREFLIGHT
        )
    if is_foreign:
        page = "another site" if origin is None else show(origin.decode("latin-1"))
        raise Forbidden(
            f"a page of {page} sent this request: the server lets pages of its own origin and of "
            "trusted_origins= do that"
        )


# Paths


def prefix_of(path: str) -> str:
    """A mount's path as it is compared, without a slash at its end."""
    if not isinstance(path, str) or not path.startswith("/"):
        raise ValueError(f'path={path!r} must begin with a slash, such as "/v2"')
    return path.rstrip("/")


def path_under(path: str, mount: str) -> str | None:
    """What a path has after that of a mount, such as "/health/live" or ""; None if it is not under it, as
    "/v2x" is not under "/v2"."""
    if not path.startswith(mount) or path[len(mount) : len(mount) + 1] not in ("", "/"):
        return None
    return path[len(mount) :]


def encode_path(path: str, target: str | None) -> str:
    """The percent-encoded form of a path below the mount, as the request's target has it."""
    if target is not None and "%" not in target and "%" not in path and not path.endswith("/"):
        return path  # as nearly always
    raw = (target or "").partition("?")[0]
    if raw and not raw.endswith(("/", "%2F", "%2f")):
        path = path.removesuffix("/")  # Litestar adds one
    left, end = len(path), len(raw)
    while left and (slash := raw.rfind("/", 0, end)) >= 0:
        segment = "/" + unquote(raw[slash + 1 : end])
        if not path.endswith(segment, 0, left):
            break
        left, end = left - len(segment), slash
    return quote(path) if left else raw[end:]
