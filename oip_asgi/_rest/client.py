"""What a client received, headers, body and status -> an inference response, another document, or the error
that a server answered.

Knows no client and no models.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from .._protocol.context import join_repeated
from .._protocol.datatypes import Buffer
from .._protocol.errors import ErrorResponse, InvalidResponse, show
from .._protocol.tensors import Headers, InferenceResponse
from .body import HEADER_LENGTH, decode_response

LENGTH: Final = re.compile("[0-9]{1,18}")
LENGTH_NAME: Final = HEADER_LENGTH.lower()
_MEMBERS: Final = ("error", "detail", "message", "error_msg")
"""Where servers put the text of an error: this package and Triton, FastAPI and KServe, gateways."""

_SHOWN: Final = 500
"""Characters of an error's text."""


def from_http(headers: Headers, body: Buffer, status: int | None = None) -> InferenceResponse:
    """A response as any HTTP client received it.

    Args:
        headers: Its headers: a mapping, or pairs of names and values, of `str` or `bytes`. Upper and lower
            case are alike.
        body: Its body, decompressed.
        status: Its HTTP status. Give it: then every error of the server, a proxy or a gateway raises
            ErrorResponse.

    Returns:
        Tensors whose arrays are views of the body if it is binary.

    Raises:
        ErrorResponse: It is an error, with its `text` and `response_status`.
        InvalidResponse: It is neither an error nor an inference response.

    Specification: Inference Response JSON Object, Binary Tensor Data Extension.
    """
    pairs = headers.items() if hasattr(headers, "items") else headers
    return read_response(
        combine_headers([(_decode_header(name), _decode_header(value)) for name, value in pairs]),
        body,
        status,
    )


def read_response(headers: Mapping[str, str], body: Buffer, status: int | None) -> InferenceResponse:
    """`from_http`, for headers as `combine_headers` makes them."""
    _raise_error(headers, body, status)
    length = headers.get(LENGTH_NAME)
    if length is not None and not LENGTH.fullmatch(length):
        raise InvalidResponse(
            f"the header {HEADER_LENGTH} is {show(length)}: expected a plain decimal number of bytes"
        )
    try:
        return decode_response(body, None if length is None else int(length))
    except ErrorResponse as error:
        raise ErrorResponse(error.text, status) from None
    except InvalidResponse:
        text = _find_error(_read_json(body))
        if text is None:
            raise
        raise ErrorResponse(text, status) from None


def read_document(headers: Mapping[str, str], body: Buffer, status: int) -> Any:
    """What any other path answered, as plain values; None if it is empty. Raises `ErrorResponse` if it is an
    error."""
    _raise_error(headers, body, status)
    if not len(body):
        return None
    document = _read_json(body)
    if document is None:
        raise InvalidResponse(f"the response is no JSON: {show(bytes(body[:_SHOWN]))}")
    return document


def combine_headers(headers: Collection[tuple[str, str]]) -> Mapping[str, str]:
    """Headers by their names in lower case."""
    combined = {name.lower(): value for name, value in headers}
    return (
        combined
        if len(combined) == len(headers)
        else join_repeated(((name.lower(), value) for name, value in headers), ", ")
    )


def _raise_error(headers: Mapping[str, str], body: Buffer, status: int | None) -> None:
    if status is not None and not 200 <= status <= 299:
        target = headers.get("location") if 300 <= status <= 399 else None
        error = ErrorResponse(
            _read_error(body) if target is None else f"a redirect to {_cut_text(target)}", status
        )
        error.response_headers = dict(headers)
        raise error


def _decode_header(part: str | bytes) -> str:
    return part.decode("latin-1") if isinstance(part, bytes) else part


def _read_json(body: Buffer) -> Any:
    with suppress(msgspec.MsgspecError, UnicodeError, RecursionError):
        return msgspec.json.decode(body)
    return None


def _read_error(body: Buffer) -> str:
    """The text of an error in the body of a response whose status says that it is one."""
    document = _read_json(body)
    text = document if isinstance(document, str) else _find_error(document)
    return text or _cut_text(bytes(body[: 4 * _SHOWN]).decode(errors="replace").strip())


def _find_error(document: Any) -> str | None:
    """The text of an error in a JSON object; None if it has none."""
    if not isinstance(document, dict) or "outputs" in document:
        return None
    for name in _MEMBERS:
        value = document.get(name)
        if isinstance(value, dict):
            value = _find_error(value) or msgspec.json.encode(value).decode()
        if isinstance(value, list):
            value = "; ".join(map(_describe_error, value))
        if isinstance(value, str) and value:
            return _cut_text(value)
    return None


def _describe_error(item: Any) -> str:
    """One of several errors, as FastAPI lists them."""
    if not isinstance(item, dict) or "msg" not in item:
        return str(item)
    location = item.get("loc")
    return (
        f"{'.'.join(map(str, location))}: {item['msg']}" if isinstance(location, list) else str(item["msg"])
    )


def _cut_text(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"
