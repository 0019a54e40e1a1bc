"""The error for the client if this package itself fails. Knows no transport."""

from __future__ import annotations

import logging

from .._protocol.errors import InferenceError
from .._protocol.log import log_raised


def log_own_fault(error: Exception) -> InferenceError:
    """Log a fault of this package, and return the error for the client."""
    log_raised(logging.ERROR, error, "an error of oip_asgi itself, please report it")
    return InferenceError("internal error: see the server's log", status=500)
