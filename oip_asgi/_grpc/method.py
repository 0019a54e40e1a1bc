"""A remote method and its reply, as values. Knows no gRPC library and no protobuf."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from .._protocol.datatypes import Buffer
from .._protocol.errors import InferenceError, error_text

_MAX_DETAILS: Final = 2000
"""Bytes of an error's text. It travels among headers, threefold where it must be percent-encoded, and 8 KiB is what peers take there."""


class Method(msgspec.Struct, frozen=True, eq=False):
    """A method and its messages.

    Args:
        name: Its name.
        parse: Makes the request message of its bytes, or raises InvalidRequest.
        response: Makes an empty response message.
        metadata: Gives a call's metadata, of the adapter's own object: names in lower case, values as text.
    """

    name: str
    parse: Callable[[Buffer], Any]
    response: Callable[[], Any]
    metadata: Callable[[Any], Iterable[tuple[str, str]]]


class Reply(msgspec.Struct, frozen=True):
    """A reply: the response message, or the name of an error's code and its text."""

    message: bytes = b""
    code: str = "OK"
    details: str = ""


def refusal(error: InferenceError) -> Reply:
    """The reply that an error is."""
    text = as_text(error).encode()[:_MAX_DETAILS].decode(errors="ignore")
    return Reply(b"", error.grpc_code, text)


def as_text(error: InferenceError) -> str:
    """An error's text as a message takes it."""
    # a lone surrogate, which only a model's own message can hold, is no UTF-8
    return error_text(error).encode(errors="replace").decode()
