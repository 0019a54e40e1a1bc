"""The content type `datetime`: points in time as ISO 8601 text in BYTES tensors.

Specification: Content Types, Datetime.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np

from .._protocol.datatypes import Array
from .._protocol.errors import InvalidRequest, show
from .._protocol.tensors import Tensor, make_tensor, object_array
from .base import InputCodec, are_all, bytes_of, decode_elements, encode_elements

_HOUR: Final = r"(?:[01][0-9]|2[0-3])"
_SIXTY: Final = r"[0-5][0-9]"
_FRACTION: Final = r"(?:\.[0-9]{1,9})?"
_TIME: Final = rf"(?:{_HOUR}(?::{_SIXTY}(?::{_SIXTY}{_FRACTION})?)?|{_HOUR}{_SIXTY}(?:{_SIXTY}{_FRACTION})?)"
_ZONE: Final = rf"(?:Z|[+-]{_HOUR}(?::{_SIXTY}(?::{_SIXTY})?|{_SIXTY})?)"
_DAY: Final = r"(?!0000)[0-9]{4}(?:-[0-9]{2}-[0-9]{2}|[0-9]{4})"
_DATE: Final = re.compile(rf"{_DAY}(?:[T ]{_TIME}{_ZONE}?)?".encode())
"""A date, or a date and time, in this content type. Whether its month has that many days is not checked here."""

_OF_ISOFORMAT: Final = re.compile(rb"0000-00-00T00:00:00(?:\.(0{1,9}))?(\+00:00|Z)?")
"""A date and time as `isoformat()` writes it, without an offset or in UTC, after each of its digits has been replaced by 0."""

_DIGITS_TO_0: Final = bytes.maketrans(b"123456789", b"000000000")

_FIRST_YEAR: Final = np.datetime64("0001", "Y")
_LAST_YEAR: Final = np.datetime64("9999", "Y")

_FINER: Final = re.compile(rb"\.[0-9]{6}([0-9]{1,3})")
"""The digits of a text that are finer than microseconds."""

_NAT: Final = b"NaT"
"""A missing date in the column of a frame."""


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
            return make_tensor(name, object_array(elements, (len(elements),)), {"content_type": cls.content_type})
        return encode_elements(name, single, _to_text, cls.content_type)

    @classmethod
    def decode_input(cls, request_input: Tensor) -> list[datetime]:
        elements = bytes_of(request_input, cls.content_type)
        if all(map(_DATE.fullmatch, elements)) and not any(map(_FINER.search, elements)):
            with suppress(ValueError):  # the error of the loop below names the element
                return list(map(datetime.fromisoformat, map(bytes.decode, elements)))
        return decode_elements(request_input, _from_text, cls.content_type, "an ISO 8601 date and time")


def _to_text(element: datetime | str) -> bytes:
    if isinstance(element, datetime):
        if element != element:  # pandas' NaT, which is a datetime and not equal to itself
            raise ValueError("a missing value cannot be a date and time")
        return element.isoformat().encode()
    if isinstance(element, str):
        _read(element.encode())
        return element.encode()
    raise TypeError("expected a datetime.datetime")


def _from_text(element: bytes) -> datetime:
    value = _read(element)
    finer = _FINER.search(element)
    if finer and finer[1].strip(b"0"):
        raise ValueError("a datetime.datetime has microseconds at most, and this is finer: annotate pandas.Series")
    return value


def _read(element: bytes) -> datetime:
    if _DATE.fullmatch(element) is None:
        raise ValueError("expected such as 2022-01-11T11:00:00, with an offset from UTC or without")
    return datetime.fromisoformat(element.decode())


_REACH_OF_NANOSECONDS: Final = 2**63 // 1000 - 1
"""Microseconds from 1970 that 64 bits can count in nanoseconds: to the years 1677 and 2262."""


def read_points(tensor: Tensor) -> tuple[Array, bool]:
    """The dates of a BYTES tensor as `datetime64`, and whether they have an offset: then they are in UTC. NaT is a missing date."""
    elements = bytes_of(tensor, DatetimeCodec.content_type)
    there = [element for element in elements if element != _NAT]
    found = read_uniform_points(there) if there else (np.empty(0, "M8[s]"), False)
    if found is None:
        return _read_one_by_one(tensor, elements)
    if len(there) == len(elements):
        return found
    points = np.full(len(elements), "NaT", found[0].dtype)
    points[[element != _NAT for element in elements]] = found[0]
    return points, found[1]


def _read_one_by_one(tensor: Tensor, elements: list[bytes]) -> tuple[Array, bool]:
    values = decode_elements(tensor, _read_in_utc, DatetimeCodec.content_type, "an ISO 8601 date and time")
    are_zoned = any(value.tzinfo for value in values if value)
    for place, value in enumerate(values):
        if value and are_zoned and not value.tzinfo:
            raise _refuse_element(tensor, place, elements, "a date and time with an offset from UTC, as others of the column are")
    points = np.array([value and value.replace(tzinfo=None) for value in values], "M8[us]")
    finer = [_FINER.search(element) for element in elements]
    if not any(finer):
        return points, are_zoned
    rest = np.array([int(found[1].ljust(3, b"0")) if found else 0 for found in finer], "m8[ns]")
    if (np.isnat(points) | (np.abs(points.view("i8")) < _REACH_OF_NANOSECONDS)).all():
        return points.astype("M8[ns]") + rest, are_zoned
    for place in np.flatnonzero(rest).tolist():
        raise _refuse_element(tensor, place, elements, "microseconds at most, since others of the column are out of the years 1678 to 2261")
    return points, are_zoned


def _refuse_element(tensor: Tensor, place: int, elements: list[bytes], expected: str) -> InvalidRequest:
    return InvalidRequest(f"tensor {show(tensor.name)}: element {place} is {show(elements[place])}: expected {expected}")


def _read_in_utc(element: bytes) -> datetime | None:
    if element == _NAT:
        return None
    value = _read(element)
    try:
        return value if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError:
        raise ValueError("in UTC it is not in the years 1 to 9999") from None


def read_uniform_points(elements: list[bytes]) -> tuple[Array, bool] | None:
    """Read dates that all have the same form with numpy, in a tenth of the time that one by one takes."""
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
    except (OverflowError, ValueError):
        return None
    is_in_reach = unit != "ns" or bool((points.astype("M8[s]") == seconds).all())
    return (points, bool(zone)) if is_in_reach and seconds.min() >= _FIRST_YEAR else None


def are_in_calendar(points: Array) -> bool:
    """Whether all of an array's `datetime64`, except NaT, are in the years 1 to 9999, the only ones that ISO 8601 and Python have."""
    if np.datetime_data(points.dtype)[0] == "ns":
        return True  # 1677 to 2262
    return are_between(points, _FIRST_YEAR, _LAST_YEAR)


def are_between(points: Array, first: np.datetime64, last: np.datetime64) -> bool:
    """Whether all of an array's `datetime64`, except NaT, are from the first of two years to the last."""
    years = points[~np.isnat(points)].astype("M8[Y]")
    return bool(((years >= first) & (years <= last)).all())
