"""The headers of an HTTP request that count bytes: Content-Length and Inference-Header-Content-Length.

Knows no bodies. Specification: Binary Tensor Data Extension.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from .._protocol.errors import InvalidRequest, show
from .._rest.body import HEADER_LENGTH

HEADER_LENGTH_FIELD: Final = HEADER_LENGTH.lower().encode()

_MAX_DIGITS: Final = 18
"""No body has a length of more digits."""

_DECIMAL: Final = re.compile(rb"[0-9]+")


def read_length(headers: Mapping[bytes, bytes], name: bytes) -> int | None:
    """Read a header that counts bytes; None if there is none.

    If it came twice, we or the server in front have joined its values by a comma.
    """
    value = headers.get(name)
    if value is None:
        return None
    if value.isdigit() and len(value) <= _MAX_DIGITS:
        return int(value)
    values = {part.strip() for part in value.split(b",")}
    called = name.decode().title()
    if len(values) > 1:
        raise InvalidRequest(f"header {called} is repeated with different values: expected one")
    value = values.pop()
    if not _DECIMAL.fullmatch(value):
        raise InvalidRequest(f"header {called} is {show(value.decode('latin-1'))}: expected a plain decimal number of bytes")
    if len(value) > _MAX_DIGITS:
        raise InvalidRequest(f"header {called} has {len(value)} digits: no body is that long")
    return int(value)
