"""The rows of the table for classes: what the field of a class is annotated, the values of two rows of it, and what leaves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import make_dataclass
from datetime import date, datetime
from typing import Any, Final, Literal

import msgspec
import pydantic

from tests.table.results.cells import BIG, NOON, ZONED, Row
from tests.table.results.ways import NAME

FIELDS: Final[Mapping[Any, Row]] = {
    float: Row([1.5, math.nan], {"FP64 [2] [1.5, nan]": "nothing"}),
    float | None: Row([1.5, None], {"FP64 [2] [1.5, nan]": "nothing"}),
    int: Row([BIG, -1], {"INT64 [2] [9007199254740993, -1]": "nothing"}),
    int | None: Row([1, None], {"BYTES pd_json [2] [b'1', b'null'] pd_dtype Int64": "nothing"}),
    bool: Row([True, False], {"BOOL [2] [True, False]": "nothing"}),
    bool | None: Row([True, None], {"BYTES pd_json [2] [b'true', b'null'] pd_dtype boolean": "nothing"}),
    str: Row(["a", "é"], {"BYTES str [2] [b'a', b'\\xc3\\xa9']": "nothing"}),
    str | None: Row(["a", None], {"BYTES pd_json [2] [b'\"a\"', b'null'] pd_dtype str": "nothing"}),
    bytes: Row([b"a", b"\xff"], {"BYTES [2] [b'a', b'\\xff']": "nothing"}),
    datetime: Row([NOON, ZONED], {"BYTES datetime [2] [b'2026-01-31T12:30:00', b'2026-01-31T12:30:00+00:00']": "nothing"}),
    datetime | None: Row([NOON, None], {"BYTES datetime [2] [b'2026-01-31T12:30:00', b'NaT']": "nothing"}),
    date: Row([NOON.date(), NOON.date()], {"BYTES datetime [2] [b'2026-01-31', b'2026-01-31']": "nothing"}),
    Literal["a", "b"]: Row(["a", "b"], {"BYTES str [2] [b'a', b'b']": "nothing"}),
    list[float]: Row([[1.5], [2]], {"FP64 [2, 1] [1.5, 2.0]": "nothing"}),
}
"""By the annotation."""

CLASSES: Final[Mapping[str, Callable[[Any], Any]]] = {
    "dataclass": lambda annotation: make_dataclass("Out", [(NAME, annotation)]),
    "msgspec": lambda annotation: msgspec.defstruct("Out", [(NAME, annotation)]),
    "pydantic": lambda annotation: type("Out", (pydantic.BaseModel,), {"__annotations__": {NAME: annotation}}),
}
"""What makes a class of one field."""
