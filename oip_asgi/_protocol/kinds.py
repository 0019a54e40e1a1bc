"""One table: what kinds of values a tensor may hold, how a declaration names each, and which of them a column
may miss.

Plain values: it knows no codecs and no pandas. Which number, zone or category is no kind; that is looked at
where elements are read.

Specification: Tensor Data Types, Content Types.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from types import NoneType
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from .datatypes import DTYPES, FLOATING, DType
from .specs import TensorSpec

Element: TypeAlias = Literal["number", "integer", "boolean", "text", "bytes", "date", "JSON"]


class Kind(NamedTuple):
    """What the elements of a list are."""

    element: Element
    content_type: str | None = None
    stand_in: Any = None
    """What is read in the place of a value that a column misses, so that errors count all elements. If it
    is None, None is read as any element is: it becomes NaN or null, or is refused."""


NUMBER: Final = Kind("number")
INTEGER: Final = Kind("integer")
BOOLEAN: Final = Kind("boolean")
NULLABLE_INTEGER: Final = Kind("integer", None, 0)
NULLABLE_BOOLEAN: Final = Kind("boolean", None, False)
RAW_TEXT: Final = Kind("text", None, "")
TEXT: Final = Kind("text", "str", "")
BYTES: Final = Kind("bytes", "base64")
DATE: Final = Kind("date", "datetime", "2000-01-01")
JSON: Final = Kind("JSON", "pd_json")

_OF_BYTES: Final[Mapping[str | None, Kind]] = {
    None: RAW_TEXT,
    **{kind.content_type: kind for kind in (TEXT, BYTES, DATE, JSON)},
}

_OTHER_CODEC: Final = Kind("text")
"""With the content type of a user's codec, or `np`, elements are as they are."""

GUESSES: Final[tuple[tuple[frozenset[type], Kind, DType], ...]] = (
    (frozenset(), NUMBER, DTYPES["FP64"]),
    (frozenset({NoneType}), RAW_TEXT, DTYPES["BYTES"]),
    (frozenset({int}), INTEGER, DTYPES["INT64"]),
    (frozenset({int, float, NoneType}), NUMBER, DTYPES["FP64"]),
    (frozenset({bool, NoneType}), NULLABLE_BOOLEAN, DTYPES["BOOL"]),
    (frozenset({str, bytes, NoneType}), RAW_TEXT, DTYPES["BYTES"]),
    (frozenset({datetime, date, NoneType}), DATE, DTYPES["BYTES"]),
)
"""What lists are that nobody declared, by the classes of their elements: the first row that has all of
them."""


def find_kind(spec: TensorSpec) -> Kind:
    """The kind of what is declared."""
    if spec.datatype == "BYTES":
        return _OF_BYTES.get(spec.content_type, _OTHER_CODEC)
    if spec.datatype in FLOATING:
        return NUMBER
    if spec.datatype == "BOOL":
        return BOOLEAN if spec.pd_dtype is None else NULLABLE_BOOLEAN
    return INTEGER if spec.pd_dtype is None else NULLABLE_INTEGER
