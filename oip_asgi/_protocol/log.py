"""Logs what users' code raised or returned, so that no text in it can forge a record. Knows no requests.

Texts of exceptions hold what clients sent, so a traceback may hold any character. Each of its lines is
indented, so that none looks like a record of its own, and characters that cannot be printed are escaped.
Handlers that read `exc_info` get it unchanged.
"""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Mapping
from typing import Final

from .errors import ModelFault, show

logger: Final = logging.getLogger("oip_asgi")

_NO_ASCII_TEXT: Final = re.compile("[^ -~]")
_INDENT: Final = "    "
_PACKAGE: Final = __file__.rpartition("_protocol")[0]
"""What the names of this package's files begin with."""
_SHOWN: Final = 100
"""Characters of a request's identifier that are logged."""


def log(
    message: str, *values: object, level: int = logging.ERROR, extra: Mapping[str, object] | None = None
) -> None:
    """Log one line."""
    path, line, function, _ = logger.findCaller(stacklevel=2)
    _write(logger.makeRecord(logger.name, level, path, line, message, values, None, function, extra))


def _write(record: logging.LogRecord) -> None:
    level, last = record.levelno, logging.lastResort  # the handler of last resort writes to stderr
    if logger.disabled and last is not None and level >= logging.ERROR and level > logger.manager.disable:
        last.handle(record)
    elif logger.isEnabledFor(level):
        logger.handle(record)


def log_raised(
    error: BaseException, message: str, *values: object, extra: Mapping[str, object] | None = None
) -> None:
    """Log what users' code raised, without the frames of this package around it. If only its result was
    wrong, that is one line."""
    path, line, function, _ = logger.findCaller(stacklevel=2)
    text, is_foreign = format_traceback(error)
    is_one_line = isinstance(error, ModelFault) and not is_foreign
    if is_one_line:
        message, values = f"{message}: %s", (*values, escape(str(error)))
    raised = None if is_one_line else (type(error), error, error.__traceback__)
    record = logger.makeRecord(
        logger.name, logging.ERROR, path, line, message, values, raised, function, extra
    )
    # logging's own formatter prints this, if it is there, instead of a text made of exc_info
    record.exc_text = None if is_one_line else text
    _write(record)


def log_fields(model: str, version: str | None, request_id: str | None, seconds: float) -> dict[str, object]:
    """The fields of a record about one request, for `extra=`: `oip_model`, `oip_version`, `oip_request_id`
    and `oip_seconds`."""
    known_id = None if request_id is None else escape(request_id[:_SHOWN])
    return {"oip_model": model, "oip_version": version, "oip_request_id": known_id, "oip_seconds": seconds}


def name_request(request_id: str | None) -> str:
    """What the log calls a request."""
    return "a request" if request_id is None else f"the request with id {show(request_id)}"


def escape(text: str) -> str:
    """Escape the characters of a text that cannot be printed, also line breaks."""
    return _NO_ASCII_TEXT.sub(
        lambda at: at[0] if at[0].isprintable() else at[0].encode("unicode_escape").decode(), text
    )


def format_traceback(error: BaseException) -> tuple[str, bool]:
    """The traceback of an exception, of its causes and of its groups, as lines that are indented and
    printable. It begins with the first frame that is not of this package. Returns it, and True if there is
    such a frame."""
    shown = traceback.TracebackException.from_exception(error)
    is_foreign = _leave_out_own(shown)
    text = "".join(shown.format())
    return "\n".join(_INDENT + escape(line) for line in text.rstrip("\n").split("\n")), is_foreign


def _leave_out_own(shown: traceback.TracebackException) -> bool:
    own = [frame.filename.startswith(_PACKAGE) for frame in shown.stack]
    is_foreign = not all(own)
    if is_foreign:
        del shown.stack[: own.index(False)]
    context = None if shown.__suppress_context__ else shown.__context__
    for other in (shown.__cause__, context, *(shown.exceptions or ())):
        is_foreign |= other is not None and _leave_out_own(other)
    return is_foreign
