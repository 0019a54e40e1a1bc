"""The content type `datetime`: points in time as ISO 8601 text in BYTES tensors.

Specification: Content Types, Datetime.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final

import numpy as np

from ..datatypes import Array
from ..tensors import Tensor
from .base import InputCodec, decode_elements, encode_elements

_HOUR: Final = r"(?:[01][0-9]|2[0-3])"
_SIXTY: Final = r"[0-5][0-9]"
_FRACTION: Final = r"(?:\.[0-9]{1,9})?"
_TIME: Final = rf"(?:{_HOUR}(?::{_SIXTY}(?::{_SIXTY}{_FRACTION})?)?|{_HOUR}{_SIXTY}(?:{_SIXTY}{_FRACTION})?)"
_ZONE: Final = rf"(?:Z|[+-]{_HOUR}(?::{_SIXTY}(?::{_SIXTY})?|{_SIXTY})?)"
_DAY: Final = r"(?!0000)[0-9]{4}(?:-[0-9]{2}-[0-9]{2}|[0-9]{4})"
_LOCAL: Final = rf"{_DAY}(?:[T ]{_TIME})?"
_ZONED: Final = rf"{_DAY}[T ]{_TIME}{_ZONE}"

DATE: Final = re.compile(rf"{_LOCAL}|{_ZONED}".encode())
"""What a date, or a date and time, looks like in this content type, whatever reads it. Which days a month has is not its to say."""

LOCAL_DATES: Final = re.compile(rf"(?:(?:{_LOCAL}|NaT)\n)*+".encode())
"""Any number of them or of missing ones, each with a newline behind it, and none with an offset from UTC: a match for each costs more."""

ZONED_DATES: Final = re.compile(rf"(?:(?:{_ZONED}|NaT)\n)*+".encode())
"""The same, all with an offset."""

_FIRST_YEAR: Final = np.datetime64("0001", "Y")
_LAST_YEAR: Final = np.datetime64("9999", "Y")

_FINER: Final = re.compile(rb"\.[0-9]{6}0*[1-9]")


class DatetimeCodec(InputCodec[list[datetime]]):
    """Lists of `datetime.datetime`, with or without zone. Writes `[N]`, reads `[N]` and `[N, 1]`."""

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
        return decode_elements(request_input, from_text, cls.content_type, "an ISO 8601 date and time")


def _to_text(element: datetime | str) -> bytes:
    if isinstance(element, datetime):
        if element != element:  # pandas' NaT is a datetime, and says "NaT"
            raise ValueError("a missing value cannot be a date and time")
        return element.isoformat().encode()
    if isinstance(element, str):
        _read(element.encode())
        return element.encode()
    raise TypeError("expected a datetime.datetime")


def from_text(element: bytes) -> datetime:
    """A date and time of its text.

    Raises:
        ValueError: It is none, or finer than `datetime.datetime` can be.
    """
    value = _read(element)
    if _FINER.search(element):
        raise ValueError("it is finer than the microseconds of a datetime.datetime, so take a pandas.Series")
    return value


def _read(element: bytes) -> datetime:
    if DATE.fullmatch(element) is None:
        raise ValueError("expected such as 2022-01-11T11:00:00, with an offset from UTC or without")
    return datetime.fromisoformat(element.decode())


def are_in_calendar(points: Array) -> bool:
    """Whether all of numpy's points in time, NaT apart, are in the years 1 to 9999, which are those of ISO 8601 and of Python."""
    if np.datetime_data(points.dtype)[0] == "ns":
        return True  # 1677 to 2262
    years = points[~np.isnat(points)].astype("M8[Y]")
    return bool(((years >= _FIRST_YEAR) & (years <= _LAST_YEAR)).all())
