"""The content types of arrays and lists: `np`, `str`, `base64`, `pd_json`, and `datetime`, points in time as
ISO 8601 text. Arrays are written as `[N, 1]`, lists as `[N]`; a declared output decides by
`_codecs.base`.

Specification: Content Types, NumPy Array, UTF-8 String, Base64, Datetime.
"""

from __future__ import annotations

import binascii
import json
import math
import re
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar, Final

import msgspec
import numpy as np

from .._json.text import MAX_DEPTH, check_unseen
from .._protocol.datatypes import Array, Writers, object_array, to_whole
from .._protocol.errors import InvalidRequest, show
from .._protocol.tensors import Tensor, make_tensor
from .base import InputCodec, ListCodec, SingleTensorCodec, bytes_of, decode_elements

write_base64: Final = partial(binascii.b2a_base64, newline=False)

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


class NumpyCodec(InputCodec[Array]):
    """numpy arrays. An array of shape `[N]` is written as `[N, 1]`, as the specification asks; other shapes
    do not change. BYTES are object arrays of `bytes`."""

    content_type = "np"
    type_hint = np.ndarray

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return isinstance(payload, np.ndarray)

    @classmethod
    def encode_input(cls, name: str, payload: Array, use_bytes: bool = True) -> Tensor:
        tensor = Tensor(name, payload, {"content_type": cls.content_type})
        if tensor.array.ndim == 1:
            tensor.array = tensor.array.reshape(-1, 1)
        return tensor

    @classmethod
    def decode_input(cls, request_input: Tensor) -> Array:
        return request_input.array


class NumpyRequestCodec(SingleTensorCodec[Array]):
    """One numpy array as a whole request or response, under MLServer's names `input-1` and `output-1`."""

    content_type = "np"
    type_hint = np.ndarray
    input_codec = NumpyCodec


def _check_utf8(element: bytes) -> bytes:
    element.decode()
    return element


class StringCodec(ListCodec[str]):
    """Lists of strings, in UTF-8. Writes `[N]`, reads `[N]` and `[N, 1]`."""

    content_type = "str"
    type_hint = list[str]
    writers: ClassVar[Writers] = {str: str.encode, bytes: _check_utf8}
    expected = "a string"

    @classmethod
    def decode_input(cls, request_input: Tensor) -> list[str]:
        return decode_elements(request_input, bytes.decode, cls.content_type, "UTF-8")


class StringRequestCodec(SingleTensorCodec[list[str]]):
    """One list of strings as a request or response, under MLServer's names `input-1` and `output-1`."""

    content_type = "str"
    type_hint = list[str]
    input_codec = StringCodec


class Base64Codec(ListCodec[bytes]):
    """Lists of `bytes`, as text, so that any bytes can be JSON. Writes `[N]`, reads `[N]` and `[N, 1]`, and
    refuses text that is not base64."""

    content_type = "base64"
    type_hint = list[bytes]
    writers: ClassVar[Writers] = dict.fromkeys((bytes, bytearray, memoryview), write_base64)
    expected = "bytes"

    @classmethod
    def decode_input(cls, request_input: Tensor) -> list[bytes]:
        return decode_elements(
            request_input, partial(binascii.a2b_base64, strict_mode=True), cls.content_type, "base64"
        )


class PandasJSONCodec(InputCodec[list[Any]]):
    """Lists of any Python values that JSON has, each as its own JSON text without spaces. Arrays, alone or
    inside of others, are written as nested lists. NaN becomes null, and an infinity the string "Infinity" or
    "-Infinity", as in all JSON of this package; on decode they stay strings, since nothing says that a number
    was meant. MLServer writes columns of Python objects like this, although its documentation of content
    types does not name it."""

    content_type = "pd_json"
    datatype = "BYTES"

    @classmethod
    def encode_input(cls, name: str, payload: Sequence[Any], use_bytes: bool = True) -> Tensor:
        if isinstance(payload, (str, bytes, Mapping, Set)):  # keys alone, or no order
            raise TypeError(
                f"tensor {name!r}: the content_type {cls.content_type!r} is for a list, but this is "
                f"{show(payload)}"
            )
        return Tensor(
            name, object_array(_to_texts(payload, name), (len(payload),)), {"content_type": cls.content_type}
        )

    @classmethod
    def decode_input(cls, request_input: Tensor) -> list[Any]:
        texts = bytes_of(request_input, cls.content_type)
        if not [text for text in texts if b"[" in text or b"{" in text]:
            # the error of the loop below names the element
            with suppress(msgspec.DecodeError, UnicodeDecodeError):
                return list(map(_decode, texts))
        return decode_elements(request_input, read_json, cls.content_type, "JSON")


def read_beside_missing(tensor: Tensor, kind: str) -> list[Any]:
    """The values of JSON texts of which some may be null, as data of such a kind of dtype: 2.0 is a whole
    number, 0 and 1 are booleans."""
    values = PandasJSONCodec.decode_input(tensor)
    classes = {*map(type, values)}
    if kind in "iu" and float in classes:
        return [to_whole(each) if type(each) is float else each for each in values]
    if kind == "b" and int in classes:
        return [each == 1 if type(each) is int and each in (0, 1) else each for each in values]
    return values


def _to_texts(values: Sequence[Any], name: str) -> list[bytes]:
    if set(map(type, values)) <= {str, int, bool, type(None)}:
        with suppress(UnicodeEncodeError):  # a lone surrogate; the loop below names its row
            return list(map(_encode, values))
    texts: list[bytes] = []
    for row, value in enumerate(values):
        try:
            texts.append(_to_json(_to_plain(value)).encode())
        except RecursionError:
            raise TypeError(f"column {name!r}, row {row} is nested too deep for JSON") from None
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"column {name!r}, row {row} is {show(value)}, which has no JSON form: {error} "
                "(pandas.to_datetime makes a column of dates that can be sent, astype(float) one of decimals)"
            ) from None
    return texts


def _to_plain(value: Any) -> Any:
    """A value as `json` writes it: arrays as lists, NaN as None, infinities as strings."""
    # numpy makes whole numbers of dates
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind not in "mM":
        value = value.tolist()
    if isinstance(value, dict):
        return {key: _to_plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_plain(inner) for inner in value]
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return None if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


_to_json: Final = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode


def read_json(text: bytes) -> Any:
    try:
        value = _decode(text)
        if text.count(b"[") + text.count(b"{") > MAX_DEPTH:
            check_unseen(text)  # so that a model can copy, compare and return the value
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except InvalidRequest:
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep") from None
    except msgspec.DecodeError as error:
        raise ValueError(
            f'{error}; a string is a JSON text with its quotes, as in "data": ["\\"Bonn\\""]'
        ) from None
    return value


# Dates

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

EXPECTED_DATE: Final = "an ISO 8601 date and time"

_FINER: Final = re.compile(rb"\.[0-9]{6}([0-9]{1,3})")
"""The digits of a text that are finer than microseconds."""

_IS_FINER: Final = re.compile(rb"\.[0-9]{6}0*[1-9]")

NO_DATE: Final = b"NaT"
"""A missing date in the column of a frame."""


def _write_moment(moment: datetime) -> bytes:
    if moment != moment:  # pandas' NaT, which is a datetime and not equal to itself
        raise ValueError("a missing value cannot be a date and time")
    return moment.isoformat().encode()


def _check_date_text(text: str) -> bytes:
    _parse_date(text.encode())
    return text.encode()


class DatetimeCodec(ListCodec[datetime]):
    """Lists of `datetime.datetime`, with or without zone. Writes `[N]`, reads `[N]` and `[N, 1]`, and writes
    arrays of `datetime64`, too."""

    content_type = "datetime"
    type_hint = list[datetime]
    writers: ClassVar[Writers] = {datetime: _write_moment, str: _check_date_text}
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
        return decode_elements(request_input, read_moment, cls.content_type, EXPECTED_DATE)


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
    indices = np.flatnonzero([element != NO_DATE for element in elements])
    there = [element for element in elements if element != NO_DATE]
    try:
        moments = _parse_dates(there)
        in_utc = [
            moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment for moment in moments
        ]
    except (ValueError, OverflowError):
        # its error names the element
        decode_elements(tensor, _check_date, DatetimeCodec.content_type, EXPECTED_DATE)
        raise
    are_zoned = [moment.tzinfo is not None for moment in moments]
    if not all(are_zoned) and any(are_zoned):
        raise _make_date_error(
            tensor,
            indices[are_zoned.index(False)],
            "a date and time with an offset from UTC, as other elements have",
        )
    points = np.full(len(elements), "NaT", "M8[us]")
    points[indices] = np.array(in_utc, "M8[us]")
    finer = [int(match[1].ljust(3, b"0")) if match else 0 for match in map(_FINER.search, there)]
    if any(finer):
        if not are_between(points, *NANOSECONDS):
            raise _make_date_error(
                tensor,
                indices[np.flatnonzero(finer)[0]],
                "microseconds at most, since other elements are outside the years 1678 to 2261",
            )
        points = points.astype("M8[ns]")
        points[indices] += np.array(finer, "m8[ns]")
    return points, any(are_zoned)


def _make_date_error(tensor: Tensor, index: int, expected: str) -> InvalidRequest:
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
