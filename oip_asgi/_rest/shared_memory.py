"""The JSON bodies of the system shared memory extension. Knows no URLs, statuses or regions.

Specification: Triton's System Shared Memory Extension.
"""

from __future__ import annotations

from typing import Final

import msgspec

from .._protocol.datatypes import Buffer
from .._protocol.errors import InvalidRequest
from .extension_schemas import RegisterRegion

_register: Final = msgspec.json.Decoder(RegisterRegion)


def registration(body: Buffer) -> RegisterRegion:
    """What a request to register a region says."""
    try:
        return _register.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidRequest(f"the body cannot be read: {error}") from None
