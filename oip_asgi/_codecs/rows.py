"""Objects of a class as rows: each field is a tensor of its name. A class is columns. Knows no callables and no wire formats.

Rows that are JSON objects need no columns in between: see `rows_as_json`.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import date, datetime
from enum import Enum
from functools import cache
from operator import attrgetter, itemgetter
from types import NoneType
from typing import Any, Final

import numpy as np

from .._protocol.errors import InvalidRequest, InvalidResponse, list_names, show
from .._protocol.tensors import InferenceRequest, InferenceResponse, Tensor
from .base import RequestCodec, raise_invalid_response
from .row_fields import Field, has_fields, is_of_pydantic, read_msgspec, read_pydantic, refuse_specs
from .rows_as_json import JSONRows

_PLAIN: Final = frozenset({bool, int, float, str, bytes, datetime, date, NoneType})


class Rows(RequestCodec[Any]):
    """The rows of one class, or one row of it: each field is a column. Its content type is that of a data frame with these columns."""

    content_type = "pd"

    def __init__(self, cls: type, *, is_list: bool) -> None:
        self.cls, self.is_list = cls, is_list
        read = read_pydantic if is_of_pydantic(cls) else read_msgspec
        self._fields, self._make, from_json = read(cls)
        refuse_specs(cls)
        self._names = {field.reads: None for field in self._fields}
        self.as_json = JSONRows(cls, self._fields, self._make, from_json, self.encode_request, is_list=is_list)
        """The same rows where they are JSON objects."""
        self.inputs = tuple((field.spec(field.reads), field.is_needed) for field in self._fields)
        """What is declared of the inputs, and whether each must be there."""
        self.outputs = tuple(field.spec(field.writes) for field in self._fields)
        self.schemas = {name: field.full_schema for field in self._fields for name in (field.reads, field.writes)}
        """The JSON Schema of one value of each tensor."""

    def decode_request(self, request: InferenceRequest) -> Any:  # type: ignore[override]
        return self._choose(self._read({tensor.name: tensor for tensor in request.inputs}, attrgetter("reads")))

    def take_objects(self, objects: Tensor) -> Any:
        """The same of the rows themselves."""
        return self._choose(objects.array.tolist())

    def _choose(self, rows: list[Any]) -> Any:
        """All rows, or the only one."""
        if self.is_list:
            return rows
        if len(rows) != 1:
            raise InvalidRequest(f"the request has {len(rows)} rows: expected 1, as the model takes one {self.cls.__name__}")
        return rows[0]

    def decode_response(self, response: InferenceResponse) -> Any:  # type: ignore[override]
        there = {tensor.name: tensor for tensor in response.outputs}
        missing = [field.writes for field in self._fields if field.is_needed and field.writes not in there]
        if missing:
            names = ", ".join(map(show, there))
            raise InvalidResponse(f"the response has no output {show(missing[0])}, which {self.cls.__name__} needs, but {names}")
        with raise_invalid_response():
            return self._read(there, attrgetter("writes"))

    def encode_request(self, payload: Any, use_bytes: bool = True) -> InferenceRequest:  # type: ignore[override]
        return InferenceRequest(self._write(payload, attrgetter("reads")))

    def encode_response(self, model_name: str, payload: Any, model_version: str | None = None, use_bytes: bool = True) -> InferenceResponse:  # type: ignore[override]
        if isinstance(payload, list) is not self.is_list:
            raise TypeError(f"{show(payload)} came back: expected {f'a list of {self._named}' if self.is_list else f'one {self._named}'}")
        return InferenceResponse(self._write(payload, attrgetter("writes")), model_name=model_name, model_version=model_version)

    def write_columns(self, inputs: Mapping[Any, Any]) -> Mapping[Any, Any]:
        """Values by name, with each list of lists, or in which some are missing, as a tensor."""
        fields = {field.reads: field for field in self._fields if field.is_nullable or field.is_list}

        def write(name: Any, value: Any) -> Any:
            is_column = name in fields and type(value) is list and (None in value or {*map(type, value)} == {list})
            return fields[name].write(name, value) if is_column else value

        return {name: write(name, value) for name, value in inputs.items()}

    @property
    def _named(self) -> str:
        return self.cls.__name__

    def _read(self, tensors: Mapping[str, Tensor], name_of: Callable[[Field], str]) -> list[Any]:
        """The rows of some tensors."""
        columns = {field.reads: field.read(tensors[name]) for field in self._fields if (name := name_of(field)) in tensors}
        if not columns:
            raise InvalidRequest(f"there is no column of {self._named}: expected {list_names(list(self._names))}")
        first, *others = columns
        for name in others:
            if len(columns[name]) != len(columns[first]):
                raise InvalidRequest(
                    f"column {show(name)} has {len(columns[name])} rows, but {show(first)} has {len(columns[first])}: "
                    "expected as many in each"
                )
        return self._make(_to_objects(columns))

    def _write(self, payload: Any, name_of: Callable[[Field], str]) -> list[Tensor]:
        """The columns of rows. Raises TypeError or ValueError if a row is not of the class, or does not fit it."""
        rows: list[Any] = payload if isinstance(payload, list) else [payload]
        is_mapping = typing.is_typeddict(self.cls)
        kind: Any = dict if is_mapping else self.cls
        for row, each in enumerate(rows):
            if not isinstance(each, kind):
                raise TypeError(f"rows[{row}] is {show(each)}: expected {self._named}")
            missing = [field.name for field in self._fields if field.name not in each] if is_mapping else []
            if missing:
                raise TypeError(f"rows[{row}] has no {show(missing[0])}")
        find = itemgetter if is_mapping else attrgetter
        columns = [_to_plain(list(map(find(field.name), rows))) for field in self._fields]
        try:
            self._make(_to_objects(dict(zip(self._names, columns, strict=True))))
            return [field.write(name_of(field), column) for field, column in zip(self._fields, columns, strict=True)]
        except (InvalidRequest, OverflowError) as error:
            raise ValueError(str(error)) from None


@cache
def make_rows(cls: Hashable, is_list: bool) -> Rows:
    """The rows of a class. Raises TypeError with what to write if one of its fields can be no column."""
    assert isinstance(cls, type)
    return Rows(cls, is_list=is_list)


def find_rows(annotation: Any) -> Rows | None:
    """The rows that `Customer` or `list[Customer]` asks for; None for other annotations. Raises TypeError as `make_rows` does."""
    is_list, arguments = typing.get_origin(annotation) in (list, Sequence), typing.get_args(annotation)
    cls = arguments[0] if is_list and arguments else annotation
    return make_rows(cls, is_list) if has_fields(cls) else None


def find_rows_of_result(annotation: Any) -> Rows | None:
    """The same for a result. A tuple or a mapping whose members are arrays is several outputs, as without annotation."""
    cls = next(iter(typing.get_args(annotation)), annotation)
    try:
        return find_rows(annotation)
    except TypeError:
        if typing.is_typeddict(cls) or issubclass(cls, tuple):
            return None
        raise


def find_rows_of(value: Any) -> Rows | None:
    """The rows of which a value is one, or a list; None for other values."""
    is_list = type(value) is list and len(value) > 0
    cls: Any = type(value[0] if is_list else value)
    return make_rows(cls, is_list) if has_fields(cls) else None


def _to_objects(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _to_plain(values: list[Any]) -> list[Any]:
    """The elements of arrays and the values of an Enum in their place."""
    kinds = set(map(type, values))
    if kinds <= _PLAIN:
        return values
    if any(issubclass(kind, Enum) for kind in kinds):
        values = [value.value if isinstance(value, Enum) else value for value in values]
    if any(issubclass(kind, (np.generic, np.ndarray)) for kind in kinds):
        values = [value.tolist() if isinstance(value, (np.generic, np.ndarray)) else value for value in values]
    if any(issubclass(kind, (list, tuple)) for kind in kinds):
        values = [_to_plain(list(value)) if isinstance(value, (list, tuple)) else value for value in values]
    return values
