"""Objects of a class as rows: each field is a tensor of its name. A class is columns. Knows no callables and
no wire formats.

Rows that are JSON objects need no columns in between: see `rows_as_json`.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from enum import Enum
from functools import cached_property, lru_cache, partial
from operator import attrgetter, methodcaller
from types import NoneType
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import UNSET
from msgspec.inspect import FloatType

from .._json.text import MAX_VALUES
from .._protocol.errors import InvalidRequest, InvalidResponse, list_names, show
from .._protocol.tensors import InferenceRequest, InferenceResponse, Tensor
from .base import RequestCodec, raise_invalid_response
from .row_classes import REFUSED, Field, Prepare, has_fields, refuse_class, refuse_others
from .row_libraries import explain, read_class
from .rows_as_json import JSONRows, RowsAsJSON, refuse_inexact

_NO_TEXTS: Final = (datetime, date, bytes)
"""Types whose values are not texts, as they are in JSON."""

_encode: Final = msgspec.json.Encoder().encode

_MOST_DEFAULTS: Final = 10
"""How many times what was sent may stand in many rows, as defaults."""

_PLAIN: Final = frozenset({bool, int, float, str, bytes, datetime, date, NoneType})


class Rows(RequestCodec[Any]):
    """The rows of one class, or one row of it: each field is a column. Its content type is that of a data
    frame with these columns."""

    content_type = "pd"

    def __init__(self, cls: type, *, is_list: bool) -> None:
        self.cls, self.is_list = cls, is_list
        self._class = of_class = read_class(cls)
        self._fields = [field for field in of_class.fields if field.reads]
        refuse_class(cls, REFUSED)
        self.as_inputs = RowWriter(cls, self._fields, attrgetter("reads"), partial(refuse_others, cls))
        self.as_json = JSONRows(cls, self._fields, of_class.make, of_class.from_json, self.encode_request)
        """The same rows where they are JSON objects."""
        self.inputs = tuple((field.spec(field.reads), field.is_needed) for field in self._fields)
        """What is declared of the inputs, and whether each must be there."""

    @cached_property
    def as_outputs(self) -> RowWriter:
        """What leaves of the rows that a model returns. Raises TypeError with what to write if that can be no
        columns."""
        fields, prepare = self._class.plan_output()
        return RowWriter(self.cls, fields, attrgetter("writes"), prepare)

    def decode_request(self, request: InferenceRequest) -> Any:  # type: ignore[override]
        return self.choose(
            self._read({tensor.name: tensor for tensor in request.inputs}, self._fields, attrgetter("reads"))
        )

    def choose(self, rows: list[Any]) -> Any:
        """All rows, or the only one."""
        if self.is_list:
            return rows
        if len(rows) != 1:
            raise InvalidRequest(
                f"the request has {len(rows)} rows: expected 1, as the model takes one {self.cls.__name__}"
            )
        return rows[0]

    def decode_response(self, response: InferenceResponse) -> Any:  # type: ignore[override]
        there = {tensor.name: tensor for tensor in response.outputs}
        missing = [field.writes for field in self._fields if field.is_needed and field.writes not in there]
        if missing:
            raise InvalidResponse(
                f"the response has no output {show(missing[0])}, which {self.cls.__name__} needs, but "
                f"{', '.join(map(show, there))}"
            )
        with raise_invalid_response():
            return self._read(there, self.as_outputs.fields, attrgetter("writes"))

    def encode_request(self, payload: Any, use_bytes: bool = True) -> InferenceRequest:  # type: ignore[override]
        writer = self.as_inputs
        return InferenceRequest(
            writer.to_columns(writer.check(payload if isinstance(payload, list) else [payload]))
        )

    def encode_response(  # type: ignore[override]
        self,
        model_name: str,
        payload: Any,
        model_version: str | None = None,
        use_bytes: bool = True,
        number: int = 0,
    ) -> InferenceResponse:
        """The response of rows. If they are of this `number`, it may be JSON objects."""
        if isinstance(payload, list) is not self.is_list:
            raise TypeError(
                f"{show(payload)} came back: expected "
                f"{f'a list of {self.cls.__name__}' if self.is_list else f'one {self.cls.__name__}'}"
            )
        writer = self.as_outputs
        try:
            checked = writer.check(payload if self.is_list else [payload])
            as_json = writer.to_json(checked) if len(checked) == number > 0 else None
            return as_json or InferenceResponse(
                writer.to_columns(checked), model_name=model_name, model_version=model_version
            )
        except InvalidRequest as error:
            raise ValueError(str(error)) from None

    def _read(
        self, tensors: Mapping[str, Tensor], fields: Sequence[Field], name_of: Callable[[Field], str]
    ) -> list[Any]:
        """The rows of some tensors."""
        columns = {
            field.reads: field.read(tensors[name])
            for field in fields
            if (name := name_of(field)) in tensors and field.reads
        }
        if not columns:
            raise InvalidRequest(
                f"there is no column of {self.cls.__name__}: expected "
                f"{list_names([field.reads for field in self._fields])}"
            )
        for field in fields:
            # the elements of a tensor of floats are rounded already
            if (
                field.of is FloatType
                and field.reads in columns
                and tensors[name_of(field)].array.dtype.kind not in "fV"
            ):
                refuse_inexact(field, columns[field.reads])
        first, *others = columns
        for name in others:
            if len(columns[name]) != len(columns[first]):
                raise InvalidRequest(
                    f"column {show(name)} has {len(columns[name])} rows, but {show(first)} has "
                    f"{len(columns[first])}: "
                    "expected as many in each"
                )
        number, sent = len(columns[first]), len(columns)
        if number * len(self._fields) > MAX_VALUES and len(self._fields) > _MOST_DEFAULTS * sent:
            raise InvalidRequest(
                f"{number} rows of {self.cls.__name__} have {len(self._fields)} fields, of which {sent} "
                "came: send more of their columns, or fewer rows"
            )
        return self._class.make(_to_objects(columns))


class RowWriter:
    """Writes rows of a class: what msgspec makes of their values, by the types of the fields, is what
    leaves."""

    def __init__(
        self,
        cls: type,
        fields: Sequence[Field],
        name_of: Callable[[Field], str],
        prepare: Prepare,
    ):
        self.fields, self._prepare = fields, prepare
        self._by_name = {name_of(field): field for field in fields}
        if len(self._by_name) < len(fields):
            raise TypeError(
                f"{cls.__name__} has fields of the same name as tensors, "
                f"{list_names(list(map(name_of, fields)))}: give each its own"
            )
        self.specs = tuple(field.spec(name) for name, field in self._by_name.items())
        self.schemas = {name: field.schema for name, field in self._by_name.items()}
        """The JSON Schema of one value of each tensor."""
        self._attributes = attributes = [
            field.name if field.name.isidentifier() else f"_{index}" for index, field in enumerate(fields)
        ]
        typed = [(attribute, field.type) for attribute, field in zip(attributes, fields, strict=True)]
        struct = msgspec.defstruct(
            cls.__name__, typed, rename=dict(zip(attributes, self._by_name, strict=True)), gc=False
        )
        # that msgspec knows already what is within a struct saves a twentieth of a request of one row
        made: Any = msgspec.defstruct("Rows", [("rows", list[struct])], array_like=True)  # type: ignore[valid-type]
        convert = partial(msgspec.convert, type=made, from_attributes=True, builtin_types=_NO_TEXTS)
        self._convert: Callable[[list[Any]], list[Any]] = lambda rows: convert((rows,)).rows
        self._find = list(map(attrgetter, attributes))
        self._is_json = all(field.is_plain for field in fields)
        self._floats = [
            (field, attrgetter(attribute), methodcaller("get", name))
            for attribute, (name, field) in zip(attributes, self._by_name.items(), strict=True)
            if field.of is FloatType
        ]

    def check(self, rows: list[Any]) -> list[Any]:
        """Objects with the values that leave. Raises TypeError or InvalidRequest if a row is not of the
        class, or does not fit it."""
        rows = self._prepare(rows)
        try:
            checked = self._convert(rows)
        except msgspec.ValidationError:  # such as numbers of numpy
            get: Any = dict.get if isinstance(rows[0], dict) else getattr
            keys = self._by_name if get is dict.get else self._attributes
            columns = {
                name: [get(row, key, UNSET) for row in rows]
                for name, key in zip(self._by_name, keys, strict=True)
            }
            rows = _to_objects({name: _to_plain(column) for name, column in columns.items()})
            for row, name in (
                (row, name) for row, each in enumerate(rows) for name, value in each.items() if value is UNSET
            ):
                raise TypeError(f"rows[{row}] has no {show(name)}") from None
            try:
                checked = self._convert(rows)
            except msgspec.ValidationError as error:
                raise InvalidRequest(
                    explain(str(error).replace("`$[0]", "`$", 1), rows, self._by_name)
                ) from None
        for field, of_object, of_dict in self._floats:
            refuse_inexact(
                field, [*map(of_dict if isinstance(rows[0], dict) else of_object, rows)] if rows else ()
            )
        return checked

    def to_columns(self, checked: Sequence[Any]) -> list[Tensor]:
        columns = (list(map(find, checked)) for find in self._find)
        return [
            field.write(spec, _to_plain(column) if field.choices else column)
            for field, spec, column in zip(self.fields, self.specs, columns, strict=True)
        ]

    def to_json(self, checked: Sequence[Any]) -> RowsAsJSON | None:
        """A list of JSON objects. None if columns write something in another way, such as a date or an
        infinity."""
        try:
            text = _encode(checked) if self._is_json else b"null"
        except TypeError:  # of a text of numpy
            return None
        return None if b"null" in text else RowsAsJSON([], text=text, names=self._by_name)


@lru_cache(100)  # not all, as a function may define one in each call
def make_rows(cls: Any, is_list: bool) -> Rows:
    """The rows of a class. Raises TypeError with what to write if one of its fields can be no column."""
    return Rows(cls, is_list=is_list)


def find_rows(annotation: Any) -> Rows | None:
    """The rows that `Customer` or `list[Customer]` asks for; None for other annotations. Raises TypeError as
    `make_rows` does."""
    is_list, arguments = typing.get_origin(annotation) in (list, Sequence), typing.get_args(annotation)
    cls = arguments[0] if is_list and arguments else annotation
    return make_rows(cls, is_list) if has_fields(cls) else None


def find_rows_of_result(annotation: Any) -> Rows | None:
    """The same for a result. A tuple or a mapping whose members are arrays is several outputs, as without
    annotation."""
    cls = annotation if has_fields(annotation) else next(iter(typing.get_args(annotation)), annotation)
    try:
        return find_rows(annotation)
    except TypeError:
        if typing.is_typeddict(typing.get_origin(cls) or cls) or issubclass(
            typing.get_origin(cls) or cls, tuple
        ):
            return None
        raise


def find_rows_of(value: Any) -> Rows | None:
    """The rows of which a value is one, or a list; None for other values."""
    is_list = type(value) is list and len(value) > 0
    cls: Any = type(value[0] if is_list else value)
    return make_rows(cls, is_list) if has_fields(cls) else None


def _to_objects(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _to_datetime(value: datetime) -> datetime | None:
    """A datetime of another library as Python's: None of NaT. One that is finer than microseconds stays, so
    that it is refused."""
    is_exact = not getattr(value, "nanosecond", 0)
    return None if value != value else datetime.combine(value.date(), value.timetz()) if is_exact else value


_CONVERTERS: Final[Mapping[Any, Callable[[Any], Any]]] = {
    Enum: attrgetter("value"),
    # of nanoseconds: refused
    (np.datetime64, np.timedelta64): lambda value: value if type(value.tolist()) is int else value.tolist(),
    (np.generic, np.ndarray): methodcaller("tolist"),
    (list, tuple): lambda value: _to_plain(list(value)),
    datetime: _to_datetime,
}


def _to_plain(values: list[Any]) -> list[Any]:
    """Values of an Enum, of numpy and of pandas as those of Python."""
    kinds = set(map(type, values))
    if kinds <= _PLAIN:
        return values
    by_kind = {
        kind: next((convert for of, convert in _CONVERTERS.items() if issubclass(kind, of)), None)
        for kind in kinds
    }
    return [value if (convert := by_kind[type(value)]) is None else convert(value) for value in values]
