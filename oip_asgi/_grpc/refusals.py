"""An error of a call as its code and its text. The code of each status is in `_protocol.grpc_codes`. Knows no gRPC library.

Specification: gRPC, Error.
"""

from __future__ import annotations

from typing import Final

from .._protocol.errors import InferenceError, error_text
from .._serving.failures import log_own_fault
from .messages import Reply

_MAX_DETAILS: Final = 2000
"""Bytes of an error's text. It is sent as a header, three times as long if percent-encoded, and peers accept 8 KiB of headers."""


def refuse(error: Exception) -> Reply:
    """Make the reply for an error. One that is not meant for the client is this package's own fault, and logged."""
    if not isinstance(error, InferenceError):
        error = log_own_fault(error)
    return Reply([], error.grpc_code, encode_text(error).encode()[:_MAX_DETAILS].decode(errors="ignore"))


def encode_text(error: InferenceError) -> str:
    """Make an error's text valid UTF-8."""
    # a lone surrogate, which only a model's own message can hold, is no UTF-8
    return error_text(error).encode(errors="replace").decode()
