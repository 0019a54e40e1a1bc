"""The gRPC code of each HTTP status, such as 422, and the status of each code. Knows no errors and no gRPC
library.

Specification: gRPC, Error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_CODES: Final[Mapping[int, str]] = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    413: "RESOURCE_EXHAUSTED",
    429: "RESOURCE_EXHAUSTED",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
"""Any other status is INVALID_ARGUMENT below 500, where the request is at fault, and INTERNAL above."""


def find_code(status: int) -> str:
    return _CODES.get(status, "INVALID_ARGUMENT" if status < 500 else "INTERNAL")


def find_status(code: str) -> int:
    """The inverse of `find_code`, for a code of any server."""
    status = next((status for status, name in _CODES.items() if name == code), None)
    return status or (400 if code in ("INVALID_ARGUMENT", "FAILED_PRECONDITION", "OUT_OF_RANGE") else 500)
