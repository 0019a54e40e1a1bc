"""When user code raises: the error for the client, if the exception was meant for it, and a hint for the log how to fix a common mistake.

It knows exceptions of frameworks and of pandas by their class names, and imports none of them. Knows no transport.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final

import msgspec

from .._codecs.pandas import is_frame
from .._models.model import Model
from .._protocol.errors import InferenceError, InvalidRequest, error_text, list_names, show

_HOST_ERRORS: Final[Mapping[tuple[str, str], int | None]] = MappingProxyType(
    {
        ("starlette.exceptions", "HTTPException"): None,
        ("litestar.exceptions.http_exceptions", "HTTPException"): None,
        ("werkzeug.exceptions", "HTTPException"): None,
        ("django.http.response", "Http404"): 404,
        ("django.core.exceptions", "PermissionDenied"): 403,
    }
)
"""Classes by module and name, and the status if the class has none. FastAPI's class derives from Starlette's; Flask uses werkzeug's."""

_RAISE_HINT: Final = ': to answer the client with a status, raise oip_asgi.InferenceError("what was wrong", status=404)'
_WRITABLE_HINT: Final = ": inputs are read-only; register the model with writable=True, so that it gets copies which it may change"

_MISSING_COLUMNS: Final = re.compile(r"(\[.*\]) not (?:in index|found in axis)|None of (.*) are in the (?:\[columns\]|columns)", re.DOTALL)
"""How pandas reports missing columns if the model asked for several."""


def convert_host_error(error: BaseException) -> InferenceError | None:
    """Convert an HTTP exception of the host's framework, with its status, text and headers. None for any other exception."""
    names = [(kind.__module__, kind.__name__) for kind in type(error).__mro__]
    found = next((name for name in names if name in _HOST_ERRORS), None)
    if found is None:
        return None
    status = _HOST_ERRORS[found] or getattr(error, "status_code", None) or getattr(error, "code", None)
    if not isinstance(status, int) or not 400 <= status <= 599 or getattr(error, "response", None) is not None:
        return None
    headers = getattr(error, "headers", None)
    text = _read_text(error, status)
    if isinstance(headers, Mapping):
        with suppress(ValueError):  # its headers belong to a body that is not sent
            return InferenceError(text, status=status, headers=headers)
    return InferenceError(text, status=status)


def _read_text(error: BaseException, status: int) -> str:
    detail: Any = getattr(error, "detail", None) or getattr(error, "description", None) or next(iter(error.args), None)
    if detail and not isinstance(detail, str):
        try:
            return msgspec.json.encode(detail).decode()
        except (TypeError, ValueError, RecursionError):
            detail = None
    return detail or f"status {status}"


def find_hint(error: BaseException, model: Model) -> str:
    """Find the text that the log adds to a model's failure: how to fix a common mistake. Empty if it is no common one."""
    text = error_text(error)
    if isinstance(error, ValueError) and "read-only" in text and not model.options.writable:
        return _WRITABLE_HINT
    if any("HTTP" in kind.__name__ or kind.__name__ == "PermissionDenied" for kind in type(error).__mro__):
        return _RAISE_HINT
    return ""


def find_missing_column(error: BaseException, model: Model, names: Sequence[str] | None) -> InvalidRequest | None:
    """Make the error for the client if the model asked the request's data frame for a column that the request does not have."""
    if names is None or not isinstance(error, KeyError) or not error.args:
        return None
    frame = _find_frame(error)
    if frame is None:
        return None
    columns = {str(column) for column in frame.columns}
    asked = error.args[0]
    if not isinstance(asked, str) or not columns.issuperset(names) or asked in columns:
        return None
    several = _MISSING_COLUMNS.search(asked)
    missing = show(asked) if several is None else _unquote(several[1] or several[2])
    there = list_names(names) or "no inputs"
    return InvalidRequest(f"{model} needs the column {missing}, which the request does not have: its inputs are {there}")


def _unquote(text: str) -> str:
    return show(text)[1:-1].replace("\\n", " ").replace("\\'", "'")


def _find_frame(error: BaseException) -> Any:
    """Find the data frame whose method raised. None if something else raised."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] == "pandas":
            asked = frame.f_locals.get("self")
            return asked if is_frame(asked) else None
    return None
