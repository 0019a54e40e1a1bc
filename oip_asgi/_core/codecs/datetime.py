"""The content type `datetime`: points in time as ISO 8601 text in BYTES tensors.

Specification: Content Types, Datetime.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ..tensors import Tensor
from .base import InputCodec, decode_elements, encode_elements


class DatetimeCodec(InputCodec[list[datetime]]):
    """Lists of `datetime.datetime`, with or without zone. Writes `[N, 1]`, reads `[N]` and `[N, 1]`."""

    content_type = "datetime"
    type_hint = list[datetime]
    datatype = "BYTES"

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return isinstance(payload, list) and all(isinstance(element, datetime) for element in payload)

    @classmethod
    def encode_input(cls, name: str, payload: list[datetime] | datetime, use_bytes: bool = True) -> Tensor:
        single = [payload] if isinstance(payload, datetime) else payload
        return encode_elements(name, single, _to_text, cls.content_type)

    @classmethod
    def decode_input(cls, request_input: Tensor) -> list[datetime]:
        return decode_elements(request_input, _from_text, cls.content_type, "an ISO 8601 date and time")


def _to_text(element: datetime | str) -> bytes:
    if isinstance(element, datetime):
        if element != element:  # pandas' NaT is a datetime, and says "NaT"
            raise ValueError("a missing value cannot be a date and time")
        return element.isoformat().encode()
    if isinstance(element, str):
        datetime.fromisoformat(element)
        return element.encode()
    raise TypeError("expected a datetime.datetime")


def _from_text(element: bytes) -> datetime:
    return datetime.fromisoformat(element.decode())
