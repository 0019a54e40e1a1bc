"""The JSON bodies of the model repository extension. Knows no URLs, statuses or models.

Specification: Triton's Model Repository Extension.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final, TypeVar

import msgspec

from .._protocol import schemas
from .._protocol.datatypes import Buffer
from .._protocol.errors import InvalidRequest, shown
from .._protocol.limits import MAX_QUESTION

T = TypeVar("T")

_FILE: Final = "file:"

_MAX_COMMAS: Final = 100_000
"""In a body that is not short: what decoders make of each member takes a hundred bytes. Files in base64 have no commas."""

_index: Final = msgspec.json.Decoder(schemas.IndexRequest)
_control: Final = msgspec.json.Decoder(schemas.ControlRequest)


def wants_ready(body: Buffer) -> bool:
    """Whether a request for the index asks for ready models only. Its body may be empty."""
    if len(body) > MAX_QUESTION:
        raise InvalidRequest(f"the body has {len(body)} bytes: expected {MAX_QUESTION} at most")
    return bool(_decoded(body, _index).ready) if body else False


def parameters(body: Buffer) -> dict[str, Any]:
    """The parameters of a request to load or unload, with the contents of files as bytes. Its body may be empty."""
    sent = (_decoded(body, _control).parameters or {}) if body else {}
    return {name: _contents(name, value) if name.startswith(_FILE) else value for name, value in sent.items()}


def _decoded(body: Buffer, decoder: msgspec.json.Decoder[T]) -> T:
    if len(body) > MAX_QUESTION and bytes(body).count(b",") > _MAX_COMMAS:
        raise InvalidRequest("the body has too many members: expected a few parameters, which may be long")
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidRequest(f"the body cannot be read: {error}") from None


def _contents(name: str, value: object) -> bytes:
    if not isinstance(value, str):
        raise InvalidRequest(f"parameters[{shown(name)}]: expected base64, but got {shown(value)}")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest(f"parameters[{shown(name)}]: expected base64: {error}") from None
