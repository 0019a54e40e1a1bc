"""Objects of a class as rows: each field is a tensor of its name. A class is columns. Knows no callables and
no wire formats.

Rows that are JSON objects need no columns in between: see `rows_as_json`.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from enum import Enum
from functools import cached_property, lru_cache, partial
from operator import attrgetter, itemgetter, methodcaller
from types import NoneType
from typing import Any, Final

import msgspec
import numpy as np
from msgspec.inspect import FloatType

from .._json.flat_objects import MAX_VALUES
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

_IN_COLUMNS: Final = re.compile(r"`\$\[(\d+)\]\[(\d+)\]")
"""Where msgspec found something in columns: the number of the column, and the row."""

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
        self._names = {field.reads: None for field in self._fields}
        self.as_inputs = RowWriter(cls, self._fields, attrgetter("reads"), partial(refuse_others, cls))
        self.as_json = JSONRows(cls, self._fields, self._make, of_class.from_json, self.encode_request)
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
            names = ", ".join(map(show, there))
            raise InvalidResponse(
                f"the response has no output {show(missing[0])}, which {self.cls.__name__} needs, but {names}"
            )
        with raise_invalid_response():
            return self._read(there, self.as_outputs.fields, attrgetter("writes"))

    def encode_request(self, payload: Any, use_bytes: bool = True) -> InferenceRequest:  # type: ignore[override]
        writer = self.as_inputs
        return InferenceRequest(
            writer.to_tensors(writer.check(payload if isinstance(payload, list) else [payload]))
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
            rows = payload if self.is_list else [payload]
            columns = writer.check(rows)
            as_json = writer.to_json(columns) if len(rows) == number > 0 else None
            return as_json or InferenceResponse(
                writer.to_tensors(columns), model_name=model_name, model_version=model_version
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
                f"there is no column of {self.cls.__name__}: expected {list_names(list(self._names))}"
            )
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
        return self._make(_to_objects(columns))

    def _make(self, objects: Sequence[dict[str, Any]]) -> list[Any]:
        for field in self._fields:
            field.read_texts(objects)
        return self._class.make(objects)


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
            names = list_names(list(map(name_of, fields)))
            raise TypeError(
                f"{cls.__name__} has fields of the same name as tensors, {names}: give each its own"
            )
        self.specs = tuple(field.spec(name) for name, field in self._by_name.items())
        self.schemas = {name: field.schema for name, field in self._by_name.items()}
        """The JSON Schema of one value of each tensor."""
        self._of_objects = [(field.name, attrgetter(field.name)) for field in fields]
        self._of_mappings = [(name, itemgetter(name)) for name in self._by_name]
        places = {f"_{index}": name for index, name in enumerate(self._by_name)}
        typed: Any = [
            (place, list[field.type])  # type: ignore[name-defined]
            for place, field in zip(places, fields, strict=True)
        ]
        # of structs, msgspec knows already what is within them
        columns = msgspec.defstruct("Columns", typed, array_like=True)
        self._convert = partial(msgspec.convert, type=columns, builtin_types=_NO_TEXTS)
        self._make_row = msgspec.defstruct("Row", places, rename=places, gc=False)
        self._is_json = all(field.is_plain for field in fields)

    def check(self, rows: list[Any]) -> list[list[Any]]:
        """The columns of rows, with the values that leave. Raises TypeError or InvalidRequest if a row is not
        of the class, or does not fit it."""
        prepared = self._prepare(rows)
        are_mappings = len(rows) > 0 and isinstance(prepared[0], dict)
        columns = [
            _to_plain(_list_values(prepared, name, get))
            for name, get in (self._of_mappings if are_mappings else self._of_objects)
        ]
        try:
            converted = self._convert(columns)
        except msgspec.ValidationError as error:
            names = list(self._by_name)
            text = _IN_COLUMNS.sub(lambda place: f"`$[{place[2]}].{names[int(place[1])]}", str(error))
            objects = _to_objects(dict(zip(names, columns, strict=True)))
            raise InvalidRequest(explain(text, objects, self._by_name)) from None
        for field, column in zip(self.fields, columns, strict=True):
            if field.of is FloatType:
                refuse_inexact(field, column)
        return list(msgspec.structs.astuple(converted))

    def to_tensors(self, columns: Sequence[list[Any]]) -> list[Tensor]:
        return [
            field.write(spec, _to_plain(column) if field.choices else column)
            for field, spec, column in zip(self.fields, self.specs, columns, strict=True)
        ]

    def to_json(self, columns: Sequence[list[Any]]) -> RowsAsJSON | None:
        """A list of JSON objects. None if columns write something in another way, such as a date or an
        infinity."""
        if not self._is_json:
            return None
        try:
            text = _encode(list(map(self._make_row, *columns)))
        except TypeError:  # of a subclass of str
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


def _list_values(rows: Sequence[Any], name: str, get: Callable[[Any], Any]) -> list[Any]:
    """The values of a field, which each row must have."""
    values: list[Any] = []
    try:
        values.extend(map(get, rows))
    except (AttributeError, KeyError):
        raise TypeError(f"rows[{len(values)}] has no {show(name)}") from None
    return values


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
