"""Rows that come or leave as JSON objects: without columns in between, where these would change nothing. Knows no callables.

A request whose rows came as objects has one input, `Objects`, and a response that leaves as objects is `RowsAsJSON`: neither has tensors.
Columns are made only if something needs them, such as a cache, or if JSON writes a value in another way, such as a date.
"""

from __future__ import annotations

import dataclasses
import math
import re
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from enum import Enum
from operator import attrgetter, methodcaller
from types import NoneType
from typing import Any, Final, is_typeddict

import msgspec
from msgspec.inspect import IntType

from .._json.text import ERRORS
from .._protocol.errors import InvalidRequest, describe_expected, find_near, show
from .._protocol.tensors import InferenceRequest, Tensor
from .._protocol.to_array import object_array
from .._rest.generate import RowsAsJSON, read_objects, read_rows
from .plain import PandasJSONCodec
from .row_fields import Field, FromJSON, Make

OBJECTS: Final = ""
"""The name of the input that holds the rows of a request themselves. No tensor of a client or a declaration has it."""

_OTHER_DATES: Final = [re.compile(pattern) for pattern in (rb"\\", rb"t(?<=[0-9]t)", rb"z(?<=[0-9]z)", rb"\.[0-9]{7}")]
"""Where msgspec may take or round a date that `infer` refuses: an escape, a small letter, more digits than microseconds have. To search for
one letter at a time takes a tenth of the time of one search for all."""

_encode: Final = msgspec.json.Encoder().encode
_OF_JSON: Final = frozenset({bool, int, float, str, NoneType})


class Objects(Tensor):
    """The rows of a request that came as objects: its only input."""

    def __post_init__(self) -> None:
        """No datatype is checked, as these are no elements of a tensor."""


class JSONRows:
    """The rows of one class, or one row of it. `write_columns` makes the request with the columns of some rows."""

    def __init__(
        self,
        cls: type,
        fields: Sequence[Field],
        make: Make,
        from_json: FromJSON | None,
        write_columns: Callable[[list[Any]], InferenceRequest],
        *,
        is_list: bool,
    ) -> None:
        self._cls, self._is_list = cls, is_list
        self._make, self._from_json, self._write_columns = make, from_json, write_columns
        self._width = len(fields)
        self._names = {field.reads: None for field in fields}
        self._needed = {field.reads for field in fields if field.is_needed}
        self._never_null = {field.reads for field in fields if not field.is_nullable}
        self._dates = [field for field in fields if field.is_date]
        self._binary = [field.reads for field in fields if field.is_binary]
        self._has_lists = any(field.is_list for field in fields)
        self._is_whole = len(self._needed) == len(fields)
        self._writes = from_json is not None and _leave_as_they_are(cls, fields)
        self._written = [field.writes for field in fields]
        self._values = [attrgetter(field.name) for field in fields]
        self._whole_numbers = [(field, _find_getter(cls, field)) for field in fields if field.of is IntType and not field.choices]

    # Requests. Unless one is wanted `as_columns`, its only input are the rows

    def read(self, text: bytes, *, is_list: bool, as_columns: bool) -> InferenceRequest | None:
        """The request of the JSON of a list of objects, or of one: in one go if nothing is wrong. None if `read_row` is to read it."""
        may_differ = bool(self._dates) and any(each.search(text) for each in _OTHER_DATES)
        if self._from_json is not None and self._is_whole and (is_list or not self._has_lists) and not may_differ:
            rows = read_rows(text if is_list else b"[%b]" % text, self._from_json, self._width)
            if rows is not None and (is_list or len(rows) == 1):
                return self._make_request(rows, as_columns=as_columns)
        return self._read_objects(read_objects(text), as_columns=as_columns) if is_list else None

    def read_row(self, members: dict[str, Any], *, as_columns: bool) -> InferenceRequest | None:
        """The request of the members of an object, if it is one row. None if they are columns, or something is beside a row."""
        values = members.values()
        is_usual = {*map(type, values)} <= _OF_JSON and math.inf not in values and -math.inf not in values
        if is_usual and not self._has_lists and self._fits(members):
            try:
                return self._read_objects([members], as_columns=as_columns)
            except InvalidRequest:  # columns take 2.0 for 2, and say what else is wrong; but of null they would make NaN
                if any(members[name] is None for name in self._never_null & members.keys()):
                    raise
        return None

    def _read_objects(self, objects: Sequence[Any], *, as_columns: bool) -> InferenceRequest:
        try:
            kinds = set(map(tuple, objects))  # nearly always one
        except TypeError:
            kinds = set()
        if not (kinds and all(map(self._fits, kinds)) and set(map(type, objects)) == {dict}):
            for row, each in enumerate(objects):
                self._check_object(row, each)
        for field in self._dates:
            objects = _read_dates(field, objects)
        if self._binary:
            objects = [{**each, **{name: _to_bytes(each[name]) for name in self._binary if name in each}} for each in objects]
        return self._make_request(self._make(objects), as_columns=as_columns)

    def _make_request(self, rows: list[Any], *, as_columns: bool) -> InferenceRequest:
        for field, find in self._whole_numbers:
            if not _are_int64(map(find, rows)):
                _refuse_beyond(field, map(find, rows))
        if not as_columns:
            return InferenceRequest([Objects(OBJECTS, object_array(rows, (len(rows),)))])
        try:
            return self._write_columns(rows)
        except (TypeError, ValueError) as error:
            raise InvalidRequest(f"the rows can be no columns, which this model needs: {error}") from None

    def show_columns(self, request: InferenceRequest) -> InferenceRequest:
        """A request with the columns of its rows, if these came as objects. If they can be no columns, its input `rows` is their JSON."""
        if [tensor.name for tensor in request.inputs] != [OBJECTS]:
            return request
        rows = request.inputs[0].array.tolist()
        with suppress(TypeError, ValueError):
            return self._write_columns(rows)
        with suppress(*ERRORS, TypeError, ValueError):  # an observer must not fail the request
            plain = msgspec.to_builtins(rows, str_keys=True, enc_hook=lambda value: getattr(value, "__dict__", None) or str(value))
            return InferenceRequest([PandasJSONCodec.encode_input("rows", plain)])
        return InferenceRequest([])

    def _fits(self, names: Collection[str]) -> bool:
        return self._needed <= set(names) <= self._names.keys()

    def _check_object(self, row: int, each: Any) -> None:
        if type(each) is not dict:
            raise InvalidRequest(f"rows[{row}] is {show(each)}: expected an object")
        unknown = sorted(each.keys() - self._names.keys())
        if unknown:
            expected = describe_expected(list(self._names), find_near(unknown[0], self._names.keys()))
            raise InvalidRequest(f"rows[{row}]: unknown member {show(unknown[0])}: {expected}")
        missing = sorted(self._needed - each.keys())
        if missing:
            raise InvalidRequest(f"rows[{row}]: missing {show(missing[0])}")

    # Responses

    def write(self, payload: Any, number: int) -> RowsAsJSON | None:
        """The response of so many rows. None if their columns have to be written, as those have that do not fit the class."""
        rows = payload if self._is_list else [payload]
        if not self._writes or type(rows) is not list or len(rows) != number or {*map(type, rows)} != {self._cls}:
            return None
        assert self._from_json is not None  # or nothing is written as JSON
        try:
            kinds = set[type]().union(*(map(type, map(find, rows)) for find in self._values))
            if not all(issubclass(kind, Enum) for kind in kinds - _OF_JSON):
                return None  # such as bytes, a date or a UUID in a field of texts: msgspec has a text for it, and a column refuses it
            text = _encode(self._from_json(_encode(rows)))  # twice, as a whole number of a field of floats becomes a float
        except (*ERRORS, AttributeError, TypeError, ValueError, OverflowError):
            return None
        if not all(_are_int64(map(find, rows)) for _, find in self._whole_numbers):
            return None
        return RowsAsJSON([], text=text, names=self._written)


def _leave_as_they_are(cls: Any, fields: Sequence[Field]) -> bool:
    """Whether the JSON of an object has each field once, in the order of the class, and an object that is made of it is its equal."""
    if hasattr(cls, "__post_init__") or not fields or not all(field.is_plain for field in fields):
        return False
    if dataclasses.is_dataclass(cls):
        return all(field.is_needed for field in fields)  # a default stands in for an attribute that is gone
    config = cls.__struct_config__ if issubclass(cls, msgspec.Struct) else None
    return config is not None and config.tag is None and not config.omit_defaults


def _find_getter(cls: type, field: Field) -> Callable[[Any], Any]:
    """What gives the value of a field of a row; None where a TypedDict lacks it."""
    return methodcaller("get", field.reads) if is_typeddict(cls) else attrgetter(field.name)


def _are_int64(values: Iterable[Any]) -> bool:
    """Whether all are whole numbers that a column holds. None and lists are no numbers."""
    try:
        array("q", values)
    except (TypeError, OverflowError):
        return False
    return True


def _refuse_beyond(field: Field, values: Iterable[Any]) -> None:
    """Refuse what no column of the field holds, so that a request is answered alike where nothing needs columns."""
    for row, cell in _iterate_cells(values):
        if isinstance(cell, int) and not -(2**63) <= cell < 2**63:  # a validator may have made something else of it
            expected = f"expected {-(2**63)} to {2**63 - 1}"
            raise InvalidRequest(f"rows[{row}].{field.reads}: {cell} is out of range for INT64: {expected}")


def _read_dates(field: Field, objects: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The objects with the texts of a field read as `infer` reads them: msgspec and pydantic have other texts, and round finer dates."""
    name = field.reads
    cells = [*_iterate_cells(each.get(name) for each in objects)]
    try:
        dates = iter(_read_cells(field, cells))
    except InvalidRequest:
        row, cell = _find_wrong(field, cells)
        expected = "expected an ISO 8601 date and time, to the microsecond at most"
        raise InvalidRequest(f"rows[{row}].{name}: {expected}, got {show(cell)}") from None
    read = [[next(dates) for _ in value] if type(value) is list else next(dates) for value in (each.get(name) for each in objects)]
    return [{**each, name: value} if name in each else each for each, value in zip(objects, read, strict=True)]


def _read_cells(field: Field, cells: Sequence[tuple[int, Any]]) -> list[Any]:
    return field.read_texts([cell for _, cell in cells])


def _find_wrong(field: Field, cells: Sequence[tuple[int, Any]]) -> tuple[int, Any]:
    """The first of some cells that is no date, by halves: to read each by itself takes a second for many."""
    while len(cells) > 1:
        half = len(cells) // 2
        try:
            _read_cells(field, cells[:half])
        except InvalidRequest:
            cells = cells[:half]
        else:
            cells = cells[half:]
    return cells[0]


def _iterate_cells(values: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """The value of a field in each row, or each of its list, with the number of the row."""
    return ((row, cell) for row, value in enumerate(values) for cell in (value if type(value) is list else (value,)))


def _to_bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value
