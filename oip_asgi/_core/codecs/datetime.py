"""The content type `datetime`: points in time as ISO 8601 text in BYTES tensors.

Specification: Content Types, Datetime.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import numpy as np

from ..datatypes import Array
from ..tensors import Tensor, known_tensor, object_array
from .base import InputCodec, are_all, bytes_of, decode_elements, encode_elements

_HOUR: Final = r"(?:[01][0-9]|2[0-3])"
_SIXTY: Final = r"[0-5][0-9]"
_FRACTION: Final = r"(?:\.[0-9]{1,9})?"
_TIME: Final = rf"(?:{_HOUR}(?::{_SIXTY}(?::{_SIXTY}{_FRACTION})?)?|{_HOUR}{_SIXTY}(?:{_SIXTY}{_FRACTION})?)"
_ZONE: Final = rf"(?:Z|[+-]{_HOUR}(?::{_SIXTY}(?::{_SIXTY})?|{_SIXTY})?)"
_DAY: Final = r"(?!0000)[0-9]{4}(?:-[0-9]{2}-[0-9]{2}|[0-9]{4})"
_LOCAL: Final = rf"{_DAY}(?:[T ]{_TIME})?"
_ZONED: Final = rf"{_DAY}[T ]{_TIME}{_ZONE}"

DATE: Final = re.compile(rf"{_LOCAL}|{_ZONED}".encode())
"""A date, or a date and time, in this content type. Whether its month has that many days is not checked here."""

_LOCAL_DATES: Final = re.compile(rf"(?:(?:{_LOCAL}|NaT)\n)*+".encode())
"""Any number of dates without an offset from UTC, or NaT, each followed by a newline: one match for all is faster than one for each."""

ZONED_DATES: Final = re.compile(rf"(?:(?:{_ZONED}|NaT)\n)*+".encode())
"""The same for dates that all have an offset."""

_OF_ISOFORMAT: Final = re.compile(rb"0000-00-00T00:00:00(?:\.(0{1,9}))?(\+00:00|Z)?")
"""A date and time as `isoformat()` writes it, without an offset or in UTC, after each of its digits has been replaced by 0."""

_DIGITS_TO_0: Final = bytes.maketrans(b"123456789", b"000000000")

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
        return are_all(payload, datetime)

    @classmethod
    def encode_input(cls, name: str, payload: list[datetime] | datetime, use_bytes: bool = True) -> Tensor:
        single = [payload] if isinstance(payload, datetime) else payload
        if isinstance(single, list) and set(map(type, single)) == {datetime}:  # pandas' NaT is of a subclass
            elements = list(map(str.encode, map(datetime.isoformat, single)))
            return known_tensor(name, object_array(elements, (len(elements),)), {"content_type": cls.content_type})
        return encode_elements(name, single, _to_text, cls.content_type)

    @classmethod
    def decode_input(cls, request_input: Tensor) -> list[datetime]:
        elements = bytes_of(request_input, cls.content_type)
        if are_zoned(elements) is not None and not _FINER.search(b"\n".join(elements)):
            with suppress(ValueError):  # the error of the loop below names the element
                return list(map(datetime.fromisoformat, map(bytes.decode, elements)))
        return decode_elements(request_input, from_text, cls.content_type, "an ISO 8601 date and time")


def _to_text(element: datetime | str) -> bytes:
    if isinstance(element, datetime):
        if element != element:  # pandas' NaT, which is a datetime and not equal to itself
            raise ValueError("a missing value cannot be a date and time")
        return element.isoformat().encode()
    if isinstance(element, str):
        _read(element.encode())
        return element.encode()
    raise TypeError("expected a datetime.datetime")


def from_text(element: bytes) -> datetime:
    """The date and time that a text says.

    Raises:
        ValueError: The text is no date, or has more digits than `datetime.datetime` can hold.
    """
    value = _read(element)
    if _FINER.search(element):
        raise ValueError("a datetime.datetime has microseconds at most, and this is finer: annotate pandas.Series")
    return value


def _read(element: bytes) -> datetime:
    if DATE.fullmatch(element) is None:
        raise ValueError("expected such as 2022-01-11T11:00:00, with an offset from UTC or without")
    return datetime.fromisoformat(element.decode())


def are_zoned(elements: list[bytes]) -> bool | None:
    """Whether dates have an offset from UTC.

    Args:
        elements: Texts of dates, or NaT.

    Returns:
        True if all have an offset, False if none has; None if only some have, or if a text is neither a date nor NaT. Whether a month
        has that many days is not checked.
    """
    lines = b"".join([element + b"\n" for element in elements])
    if lines.count(b"\n") != len(elements):
        return None
    return False if _LOCAL_DATES.fullmatch(lines) else True if ZONED_DATES.fullmatch(lines) else None


def points_of(elements: list[bytes]) -> tuple[Array, bool] | None:
    """Read dates that all have the same form with numpy, in a quarter of the time that pandas takes.

    Args:
        elements: At least one text.

    Returns:
        The dates as `datetime64`, in the coarsest unit of s, us and ns that holds all their digits, and whether they say that they are
        in UTC. None if they do not all have one and the same form of those that `isoformat()` writes, or if the unit cannot hold them.
    """
    length = len(elements[0])
    template = elements[0].translate(_DIGITS_TO_0)
    form = _OF_ISOFORMAT.fullmatch(template)
    text = b"".join(elements)
    if form is None or text.translate(_DIGITS_TO_0) != template * len(elements) or set(map(len, elements)) != {length}:
        return None
    digits, zone = len(form[1] or b""), form[2] or b""
    if zone.startswith(b"+") and text.count(zone) != len(elements):
        return None
    unit = "s" if not digits else "us" if digits <= 6 else "ns"
    texts = np.frombuffer(text, np.dtype({"names": ["text"], "formats": [f"S{length - len(zone)}"], "itemsize": length}))["text"]
    try:
        points = texts.astype(f"M8[{unit}]")
        seconds = points if unit == "s" else texts.astype("S19").astype("M8[s]")
    except ValueError:
        return None
    is_in_reach = unit != "ns" or bool((points.astype("M8[s]") == seconds).all())
    return (points, bool(zone)) if is_in_reach and seconds.min() >= _FIRST_YEAR else None


def are_in_calendar(points: Array) -> bool:
    """Whether all of an array's `datetime64`, except NaT, are in the years 1 to 9999, the only ones that ISO 8601 and Python have."""
    if np.datetime_data(points.dtype)[0] == "ns":
        return True  # 1677 to 2262
    years = points[~np.isnat(points)].astype("M8[Y]")
    return bool(((years >= _FIRST_YEAR) & (years <= _LAST_YEAR)).all())
