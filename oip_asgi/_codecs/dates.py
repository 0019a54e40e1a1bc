"""The content type `datetime`: points in time as ISO 8601 text in BYTES tensors.

Specification: Content Types, Datetime.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import ClassVar, Final

import numpy as np

from .._protocol.datatypes import Array, Writers, object_array
from .._protocol.errors import InvalidRequest, show
from .._protocol.tensors import Tensor, make_tensor
from .base import ListCodec, bytes_of, decode_elements

_HOUR: Final = r"(?:[01][0-9]|2[0-3])"
_SIXTY: Final = r"[0-5][0-9]"
_FRACTION: Final = r"(?:\.[0-9]{1,9})?"
_TIME: Final = rf"(?:{_HOUR}(?::{_SIXTY}(?::{_SIXTY}{_FRACTION})?)?|{_HOUR}{_SIXTY}(?:{_SIXTY}{_FRACTION})?)"
_ZONE: Final = rf"(?:Z|[+-]{_HOUR}(?::{_SIXTY}(?::{_SIXTY})?|{_SIXTY})?)"
_DAY: Final = r"(?!0000)[0-9]{4}(?:-[0-9]{2}-[0-9]{2}|[0-9]{4})"
_DATE: Final = re.compile(rf"{_DAY}(?:[T ]{_TIME}{_ZONE}?)?".encode())
"""A date, or a date and time, in this content type. Whether its month has that many days is not checked
here."""

CALENDAR: Final = np.datetime64("0001", "Y"), np.datetime64("9999", "Y")
"""The first and the last year of ISO 8601 and of Python."""

NANOSECONDS: Final = np.datetime64("1678", "Y"), np.datetime64("2261", "Y")
"""The first and the last whole year that 64 bits of nanoseconds reach."""

_EXPECTED: Final = "an ISO 8601 date and time"

_FINER: Final = re.compile(rb"\.[0-9]{6}([0-9]{1,3})")
"""The digits of a text that are finer than microseconds."""

_IS_FINER: Final = re.compile(rb"\.[0-9]{6}0*[1-9]")

NO_DATE: Final = b"NaT"
"""A missing date in the column of a frame."""


def _write_moment(moment: datetime) -> bytes:
    if moment != moment:  # pandas' NaT, which is a datetime and not equal to itself
        raise ValueError("a missing value cannot be a date and time")
    return moment.isoformat().encode()


def _check_text(text: str) -> bytes:
    _parse_date(text.encode())
    return text.encode()


class DatetimeCodec(ListCodec[datetime]):
    """Lists of `datetime.datetime`, with or without zone. Writes `[N]`, reads `[N]` and `[N, 1]`, and writes
    arrays of `datetime64`, too."""

    content_type = "datetime"
    type_hint = list[datetime]
    writers: ClassVar[Writers] = {datetime: _write_moment, str: _check_text}
    expected = "a datetime.datetime"

    @classmethod
    def encode_input(
        cls, name: str, payload: Sequence[datetime] | datetime | Array, use_bytes: bool = True
    ) -> Tensor:
        if isinstance(payload, np.ndarray) and payload.dtype.kind == "M":
            return write_points(name, payload)
        if isinstance(payload, list) and set(map(type, payload)) == {datetime}:  # by no code of Python
            texts = list(map(str.encode, map(datetime.isoformat, payload)))
            return make_tensor(name, object_array(texts, (len(texts),)), {"content_type": cls.content_type})
        return super().encode_input(name, payload, use_bytes)

    @classmethod
    def decode_input(cls, request_input: Tensor) -> list[datetime]:
        elements = bytes_of(request_input, cls.content_type)
        if not any(map(_FINER.search, elements)):
            with suppress(ValueError):  # the error of the loop below names the element
                return _parse_dates(elements)
        return decode_elements(request_input, read_moment, cls.content_type, _EXPECTED)


def _parse_dates(elements: list[bytes]) -> list[datetime]:
    """The dates of texts, without Python code for each. The ValueError does not say which text is wrong."""
    if not all(map(_DATE.fullmatch, elements)):
        raise ValueError
    return list(map(datetime.fromisoformat, map(bytes.decode, elements)))


def read_moment(element: bytes) -> datetime:
    value = _parse_date(element)
    if _IS_FINER.search(element):
        raise ValueError(
            "a datetime.datetime has microseconds at most, but this is finer: annotate pandas.Series"
        )
    return value


def _parse_date(element: bytes) -> datetime:
    if _DATE.fullmatch(element) is None:
        raise ValueError("expected such as 2022-01-11T11:00:00, with an offset from UTC or without")
    return datetime.fromisoformat(element.decode())


def write_points(name: str, points: Array, is_zoned: bool = False) -> Tensor:
    """Dates of numpy as texts, in UTC if they have a zone; NaT is a missing one."""
    if not are_between(points, *CALENDAR):
        raise ValueError(
            f"column {name!r} has a date outside of the years 1 to 9999, the only ones of ISO 8601"
        )
    missing = np.isnat(points)
    # the coarsest unit of those that isoformat() writes, as long as no digit is lost
    unit = next(
        (unit for unit in ("s", "us") if ((points.astype(f"M8[{unit}]") == points) | missing).all()), "ns"
    )
    texts = points.astype(f"M8[{unit}]").astype("S")
    if is_zoned:
        texts = np.where(missing, texts, np.strings.add(texts, b"+00:00"))
    return make_tensor(name, texts.astype(object), {"content_type": DatetimeCodec.content_type})


def read_points(tensor: Tensor) -> tuple[Array, bool]:
    """The dates of a BYTES tensor as `datetime64`, and whether they have an offset: then they are in UTC. NaT
    is a missing date."""
    elements = bytes_of(tensor, DatetimeCodec.content_type)
    indices = [index for index, element in enumerate(elements) if element != NO_DATE]
    there = [elements[index] for index in indices]
    try:
        moments = _parse_dates(there)
        in_utc = [
            moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment for moment in moments
        ]
    except (ValueError, OverflowError):
        # its error names the element
        decode_elements(tensor, _check_date, DatetimeCodec.content_type, _EXPECTED)
        raise
    are_zoned = [moment.tzinfo is not None for moment in moments]
    if not all(are_zoned) and any(are_zoned):
        raise _make_error(
            tensor,
            indices[are_zoned.index(False)],
            "a date and time with an offset from UTC, as other elements have",
        )
    points = np.full(len(elements), "NaT", "M8[us]")
    points[elements_at := np.array(indices, int)] = np.array(in_utc, "M8[us]")
    finer = [int(match[1].ljust(3, b"0")) if match else 0 for match in map(_FINER.search, there)]
    if any(finer):
        if not are_between(points, *NANOSECONDS):
            expected = "microseconds at most, since other elements are outside the years 1678 to 2261"
            raise _make_error(tensor, indices[np.flatnonzero(finer)[0]], expected)
        points = points.astype("M8[ns]")
        points[elements_at] += np.array(finer, "m8[ns]")
    return points, any(are_zoned)


def _make_error(tensor: Tensor, index: int, expected: str) -> InvalidRequest:
    return InvalidRequest(
        f"tensor {show(tensor.name)}: element {index} is {show(tensor.array.ravel()[index])}: expected "
        f"{expected}"
    )


def _check_date(element: bytes) -> None:
    if element != NO_DATE and (moment := _parse_date(element)).tzinfo:
        try:
            moment.astimezone(UTC)
        except OverflowError:
            raise ValueError("in UTC it is not in the years 1 to 9999") from None


def are_between(points: Array, first: np.datetime64, last: np.datetime64) -> bool:
    """Whether all of an array's `datetime64`, except NaT, are from the first of two years, such as those of
    `CALENDAR`, to the last."""
    years = points[~np.isnat(points)].astype("M8[Y]")
    return bool(((years >= first) & (years <= last)).all())
