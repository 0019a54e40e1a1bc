"""The HTTP exceptions of hosts' frameworks as errors for the client. They are known by their class names: no
framework is imported."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from .._protocol.errors import InferenceError

_HOST_ERRORS: Final[Mapping[tuple[str, str], int | None]] = {
    ("starlette.exceptions", "HTTPException"): None,
    ("litestar.exceptions.http_exceptions", "HTTPException"): None,
    ("werkzeug.exceptions", "HTTPException"): None,
    ("django.http.response", "Http404"): 404,
    ("django.core.exceptions", "PermissionDenied"): 403,
}
"""Classes by module and name, and the status if the class has none. FastAPI's class derives from Starlette's;
Flask uses werkzeug's."""


def convert_host_error(error: BaseException) -> InferenceError | None:
    """Convert an HTTP exception of the host's framework, with its status, text and headers. None for any
    other exception."""
    names = [(kind.__module__, kind.__name__) for kind in type(error).__mro__]
    known_class = next((name for name in names if name in _HOST_ERRORS), None)
    if known_class is None:
        return None
    status = _HOST_ERRORS[known_class] or getattr(error, "status_code", None) or getattr(error, "code", None)
    if (
        not isinstance(status, int)
        or not 400 <= status <= 599
        or getattr(error, "response", None) is not None
    ):
        return None
    headers = getattr(error, "headers", None)
    text = _read_text(error, status)
    if isinstance(headers, Mapping):
        with suppress(ValueError):  # its headers belong to a body that is not sent
            return InferenceError(text, status=status, headers=headers)
    return InferenceError(text, status=status)


def is_sync_only(error: BaseException) -> bool:
    """True if Django refused to block an event loop, such as with a query."""
    return type(error).__name__ == "SynchronousOnlyOperation"


def _read_text(error: BaseException, status: int) -> str:
    detail: Any = (
        getattr(error, "detail", None) or getattr(error, "description", None) or next(iter(error.args), None)
    )
    if detail and not isinstance(detail, str):
        try:
            return msgspec.json.encode(detail).decode()
        except (TypeError, ValueError, RecursionError):
            detail = None
    return detail or f"status {status}"
