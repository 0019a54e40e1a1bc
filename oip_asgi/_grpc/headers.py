"""The headers and trailers of gRPC and gRPC-Web: `content-type`, `grpc-timeout`, `grpc-encoding`, `grpc-status`, and metadata.

`_protocol/grpc_codes` says which code an error has, such as INVALID_ARGUMENT for the HTTP status 422.

Specification: gRPC over HTTP2; gRPC-Web.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import quote

import msgspec

from .._models.model_options import NO_TIMEOUT
from .._protocol.errors import InferenceError, InvalidRequest, show
from .._protocol.request_body import Coding

Fields = list[tuple[bytes, bytes]]
"""Headers or trailers."""


class Protocol(msgspec.Struct, frozen=True):
    """One of the protocols that carry the same messages."""

    has_trailers: bool
    """Whether the status travels in HTTP's trailers. Otherwise it is in the last frame of the body, which needs no HTTP/2."""
    is_text: bool = False  # whether bodies are base64, both ways


_GRPC, _WEB, _WEB_TEXT = Protocol(True), Protocol(False), Protocol(False, is_text=True)

PROTOCOLS: Final[Mapping[bytes, Protocol]] = {
    b"application/grpc": _GRPC,
    b"application/grpc+proto": _GRPC,
    b"application/grpc-web": _WEB,
    b"application/grpc-web+proto": _WEB,
    b"application/grpc-web-text": _WEB_TEXT,
    b"application/grpc-web-text+proto": _WEB_TEXT,
}
"""By content type. A response has the content type of its request."""

_CODES: Final = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED"),
    *("RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"),
    "UNAUTHENTICATED",
)
_NUMBERS: Final[Mapping[str, bytes]] = {name: b"%d" % number for number, name in enumerate(_CODES)}

_SAFE: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
"""The characters that need no percent-encoding in a header."""

_TIMEOUT: Final = re.compile(rb"([0-9]{1,8})([HMSmun])")
_SECONDS: Final[Mapping[bytes, float]] = {b"H": 3600, b"M": 60, b"S": 1, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}

_CODINGS: Final[Mapping[bytes, Coding | None]] = {b"": None, b"identity": None, b"gzip": "gzip", b"deflate": "deflate"}
OK: Final = (b"grpc-status", b"0")
ACCEPTED: Final = (b"grpc-accept-encoding", b"gzip, deflate")

_OWN: Final = (b"content-type", b"te")
"""Headers of the protocol, which are not metadata. Names that begin with "grpc-" are not either."""


def find_protocol(content_type: bytes) -> Protocol | None:
    """Find the protocol for a request's `Content-Type`. None for any other type."""
    return PROTOCOLS.get(content_type.partition(b";")[0].strip().lower())


def encode_status(code: str, details: str) -> Fields:
    """Encode the fields that end every response."""
    fields = [(b"grpc-status", _NUMBERS[code])]
    if details:
        fields.append((b"grpc-message", quote(details, safe=_SAFE).encode()))
    return fields


def read_timeout(value: bytes) -> float:
    """Read the seconds of a `grpc-timeout`; infinity if it is longer than any timeout."""
    matched = _TIMEOUT.fullmatch(value)
    if matched is None:
        raise InvalidRequest(f"header grpc-timeout is {show(value.decode('latin-1'))}: expected up to 8 digits and one of H, M, S, m, u, n")
    seconds = int(matched[1]) * _SECONDS[matched[2]]
    return seconds if seconds < NO_TIMEOUT else math.inf


def find_coding(value: bytes) -> Coding | None:
    """Find the coding that `grpc-encoding` names; None if messages are not compressed."""
    if value not in _CODINGS:
        expected = "expected identity, gzip or deflate"
        raise InferenceError(f"grpc-encoding {show(value.decode('latin-1'))} is not supported: {expected}", status=501)
    return _CODINGS[value]


def read_metadata(headers: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[str, str]]:
    """Read the metadata from a request's headers. Values of names that end in "-bin" get the base64 padding that clients may leave out."""
    for name, value in headers:
        if name not in _OWN and not name.startswith(b"grpc-"):
            text = value.decode("latin-1")
            yield name.decode("latin-1"), text + "=" * (-len(text) % 4) if name.endswith(b"-bin") else text
