"""Rows that come or leave as JSON objects: without columns in between, where these would change nothing.
Knows no callables.

A request whose rows came as objects has one input, `Objects`, and a response that leaves as objects is
`RowsAsJSON`: neither has tensors. Columns are made only if something needs them, such as a cache, or if JSON
writes a value in another way, such as a date.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from operator import attrgetter, methodcaller
from types import NoneType
from typing import Any, Final, is_typeddict

import msgspec
from msgspec.inspect import IntType

from .._json.text import read_objects, read_rows
from .._protocol.datatypes import INFINITE, object_array
from .._protocol.errors import InvalidRequest, describe_expected, find_near, show
from .._protocol.tensors import InferenceRequest, InferenceResponse, Tensor
from .plain import PandasJSONCodec
from .row_classes import Field, FromJSON, Make

OBJECTS: Final = ""
"""The name of the input that holds the rows of a request themselves. No tensor of a client or a declaration
has it."""

_OTHER_DATES: Final = [
    re.compile(pattern) for pattern in (rb"\\", rb"t(?<=[0-9]t)", rb"z(?<=[0-9]z)", rb"\.[0-9]{7}")
]
"""Where msgspec may take or round a date that `infer` refuses: an escape, a small letter, more digits than
microseconds have. To search for one letter at a time takes a tenth of the time of one search for all."""

_OF_JSON: Final = frozenset({bool, int, float, str, NoneType})


class RowsAsJSON(InferenceResponse, eq=False):
    """The response of a model whose rows are JSON already: it has no tensors."""

    text: bytes = b""  # a list of objects
    names: Collection[str] = ()  # the members of each


class Objects(Tensor):
    """The rows of a request that came as objects: its only input."""

    def __post_init__(self) -> None:
        """No datatype is checked, as these are no elements of a tensor."""


def _make_request(rows: list[Any]) -> InferenceRequest:
    return InferenceRequest([Objects(OBJECTS, object_array(rows, (len(rows),)))])


def list_made(objects: Tensor) -> list[Any]:
    """The rows of a request. Raises what their class raised."""
    rows: list[Any] = objects.array.tolist()
    if rows and isinstance(rows[0], Exception):
        raise rows[0]
    return rows


class JSONRows:
    """The rows of one class, or one row of it. `write_columns` makes the request with the columns of some
    rows."""

    def __init__(
        self,
        cls: type,
        fields: Sequence[Field],
        make: Make,
        from_json: FromJSON | None,
        write_columns: Callable[[list[Any]], InferenceRequest],
    ) -> None:
        self._make, self._from_json, self._write_columns = make, from_json, write_columns
        self._names = {field.reads: None for field in fields}
        self._needed = {field.reads for field in fields if field.is_needed}
        self._never_null = {field.reads for field in fields if not field.is_nullable}
        self._texts = [field for field in fields if field.is_date or field.is_binary]
        self._lists = {field.reads for field in fields if field.is_list}
        self._whole_numbers = [
            (field, methodcaller("get", field.reads) if is_typeddict(cls) else attrgetter(field.name))
            for field in fields
            if field.of is IntType and not field.choices
        ]

    def read(self, text: bytes, *, is_list: bool) -> InferenceRequest | None:
        """The request of the JSON of a list of objects, or of one: in one go if nothing is wrong. None if
        `read_row` is to read it."""
        if self._from_json is not None and not (
            self._texts and any(each.search(text) for each in _OTHER_DATES)
        ):
            rows = read_rows(text if is_list else b"[%b]" % text, self._from_json, len(self._names))
            if rows is not None and (is_list or len(rows) == 1):
                return self._make_request(rows)
        return self._read_objects(read_objects(text, len(self._names))) if is_list else None

    def read_row(self, members: dict[str, Any]) -> InferenceRequest | None:
        """The request of the members of an object, if it is one row and nothing else. It is a row unless a
        value has a list too many. Else None, and `members` has columns then: a list of one row stands within
        a list."""
        cells = {
            name: value if name in self._lists and type(value) is list else [value]
            for name, value in members.items()
            if name in self._names
        }
        values = [*chain.from_iterable(cells.values())]
        may_be_row = {*map(type, values)} <= _OF_JSON and math.inf not in values and -math.inf not in values
        if may_be_row and self._fits(members):
            return self._read_objects([members])
        if nulls := [
            name
            for name in self._never_null & cells.keys()
            if members[name] is None or (may_be_row and None in cells[name])
        ]:
            raise InvalidRequest(f"rows[0].{nulls[0]}: expected a value, got null")
        if may_be_row:
            members.update({name: [members[name]] for name in self._lists & cells.keys()})
        return None

    def _read_objects(self, objects: Sequence[Any]) -> InferenceRequest:
        try:
            kinds = set(map(tuple, objects))  # nearly always one
        except TypeError:
            kinds = set()
        if not (kinds and all(map(self._fits, kinds)) and set(map(type, objects)) == {dict}):
            for row, each in enumerate(objects):
                self._check_object(row, each)
        for field in self._texts:
            _read_texts(field, objects)
        try:
            rows = self._make(objects)
        except InvalidRequest:
            raise
        except Exception as error:  # with which the model is to fail, as where its rows are made of columns
            return _make_request([error] * len(objects))
        return self._make_request(rows)

    def _make_request(self, rows: list[Any]) -> InferenceRequest:
        for field, find in self._whole_numbers:
            with suppress(AttributeError):  # a constructor of its own need not set each field
                refuse_inexact(field, [*map(find, rows)])
        return _make_request(rows)

    def write_columns(self, request: InferenceRequest) -> InferenceRequest:
        """A request with the columns of its rows, if these came as objects."""
        if [tensor.name for tensor in request.inputs] != [OBJECTS]:
            return request
        rows = list_made(request.inputs[0])
        try:
            return self._write_columns(rows)
        except (InvalidRequest, TypeError, ValueError) as error:
            raise InvalidRequest(f"the rows can be no columns, which this model needs: {error}") from None

    def show_json(self, request: InferenceRequest) -> InferenceRequest:
        """A request whose rows can be no columns: its input `rows` is their JSON. If their class fails, it
        has no input."""
        with suppress(Exception):  # an observer must not fail the request
            rows = list_made(request.inputs[0])
            plain = msgspec.to_builtins(
                rows, str_keys=True, enc_hook=lambda value: getattr(value, "__dict__", None) or str(value)
            )
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


def refuse_inexact(field: Field, values: Sequence[Any]) -> None:
    """Refuse whole numbers that no column of the field holds, or that its floats would round."""
    is_whole, classes = field.of is IntType, {*map(type, values)}
    if classes == {list}:
        classes = {*map(type, chain.from_iterable(values))}
    if not is_whole and classes <= {float, NoneType}:  # as nearly always
        return
    with suppress(TypeError, OverflowError):
        if is_whole and array("q", values):  # as nearly always; None and lists are no numbers
            return
    expected = (
        f"out of range for INT64: expected {-(2**63)} to {2**63 - 1}"
        if is_whole
        else "a whole number that a float would round"
    )
    for row, cell in _iterate_cells(values):
        if isinstance(cell, int) and (
            not -(2**63) <= cell < 2**63 if is_whole else abs(cell) >= INFINITE or float(cell) != cell
        ):
            raise InvalidRequest(f"rows[{row}].{field.reads or field.name}: {cell} is {expected}")


def _read_texts(field: Field, objects: Sequence[dict[str, Any]]) -> None:
    """Read the texts of a field of dates or bytes as `infer` reads them: msgspec and pydantic have other
    texts, and round finer dates."""
    name = field.reads
    for row, each in enumerate(objects):
        if name in each:
            try:
                each[name] = field.read_cell(each[name])
            except ValueError as error:
                raise InvalidRequest(f"rows[{row}].{name}: {error}") from None


def _iterate_cells(values: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """The value of a field in each row, or each of its list, or of what msgspec takes for one, with the
    number of the row."""
    return (
        (row, cell)
        for row, value in enumerate(values)
        for cell in (value if isinstance(value, (list, tuple, set, frozenset)) else (value,))
    )
