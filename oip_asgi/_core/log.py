"""What users' code raised, for the log: whole, and in a form that nothing in it can forge. Knows no requests.

Texts of exceptions hold what clients sent, so a traceback may hold any character. Each of its lines is indented, so that none can be
taken for a record of its own, and what is no printable character is escaped. `exc_info` stays as it is for who looks at that.
"""

from __future__ import annotations

import logging
import re
import traceback
from typing import Final

_logger: Final = logging.getLogger("oip_asgi")

_NO_ASCII_TEXT: Final = re.compile("[^ -~]")
_INDENT: Final = "    "


def log_raised(level: int, error: BaseException, message: str, *values: object) -> None:
    """Log what users' code raised.

    Args:
        level: The level, such as `logging.ERROR`.
        error: What was raised.
        message: What it means, with a `%s` for each of `values`.
    """
    if not _logger.isEnabledFor(level):
        return
    path, line, function, _ = _logger.findCaller(stacklevel=2)
    raised = (type(error), error, error.__traceback__)
    record = _logger.makeRecord(_logger.name, level, path, line, message, values, raised, function)
    # logging's own formatter prints this where it is there, instead of making it of exc_info
    record.exc_text = escaped_traceback(error)
    _logger.handle(record)


def escaped_traceback(error: BaseException) -> str:
    """The traceback of an exception, of its causes and of its groups, as lines that are indented and printable."""
    text = "".join(traceback.format_exception(error))
    return "\n".join(_INDENT + _NO_ASCII_TEXT.sub(_escaped, line) for line in text.rstrip("\n").split("\n"))


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    return character if character.isprintable() else character.encode("unicode_escape").decode()
