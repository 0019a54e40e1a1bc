"""A field of a class <-> the column that it is. Knows no classes and no requests.

What fits a field is the business of msgspec or pydantic, as the class says it. Missing values are sent as
data frames send them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from msgspec import inspect as types

from .._protocol.errors import InvalidRequest, show
from .._protocol.specs import TensorSpec
from .._protocol.tensors import Tensor, make_tensor
from .base import rows_of
from .column_dtypes import DTYPE
from .dates import NO_DATE, DatetimeCodec, read_moment
from .entering import enter
from .plain import Base64Codec, PandasJSONCodec, StringCodec, read_beside_missing

KINDS: Final[Mapping[type[types.Type], tuple[type, TensorSpec]]] = {
    types.BoolType: (bool, TensorSpec("any", "BOOL", [-1], pd_dtype="boolean")),
    types.IntType: (int, TensorSpec("any", "INT64", [-1], pd_dtype="Int64")),
    types.FloatType: (float, TensorSpec("any", "FP64", [-1])),
    types.StrType: (str, TensorSpec("any", "BYTES", [-1], "str", pd_dtype="str")),
    types.BytesType: (bytes, TensorSpec("any", "BYTES", [-1])),
    types.DateTimeType: (datetime, TensorSpec("any", "BYTES", [-1], "datetime")),
    types.DateType: (date, TensorSpec("any", "BYTES", [-1], "datetime")),
}
"""How the values of one type are sent. The `pd_dtype` is that with which some may be missing, where the
datatype has no value for that."""


Schema: TypeAlias = dict[str, Any]
"""A JSON Schema."""

_BOUNDS: Final = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")

_TYPED: Final[Mapping[str | None, Mapping[str, str]]] = {None: {}, "str": {"content_type": "str"}}

_MIDNIGHT: Final = time()


class Field(NamedTuple):
    """A field of a class, which is a tensor."""

    name: str
    reads: str  # the name with which the class is made; none if the class sets the field itself
    writes: str  # the name with which it is written
    is_needed: bool
    of: type[types.Type]
    choices: tuple[Any, ...]  # all values of a Literal or an Enum
    is_nullable: bool
    is_list: bool
    schema: Schema  # of one value
    type: Any  # as which msgspec checks what is sent

    @property
    def is_binary(self) -> bool:
        return self.of is types.BytesType

    @property
    def is_date(self) -> bool:
        return KINDS[self.of][1].content_type == DatetimeCodec.content_type

    @property
    def is_plain(self) -> bool:
        """Whether JSON and columns write its values alike, if all are there."""
        return not self.is_list and not self.is_date and not self.is_binary

    def spec(self, name: str) -> TensorSpec:
        kind, example = KINDS[self.of][1], _find_example(self.schema)
        nullable = kind.pd_dtype if self.is_nullable else None
        shape = (-1, -1) if self.is_list else (-1,)
        return TensorSpec(name, kind.datatype, shape, kind.content_type, example=example, pd_dtype=nullable)

    def read(self, tensor: Tensor) -> list[Any]:
        """The values of a column, one for each row: dates are texts, as in JSON."""
        shape = tensor.array.shape
        if not self.is_list:
            return self._read_cells(tensor)
        if len(shape) != 2:
            raise InvalidRequest(f"{show(tensor.name)} has shape {list(shape)}: expected [-1, -1]")
        cells = self._read_cells(make_tensor(tensor.name, tensor.array.reshape(-1), tensor.parameters))
        return [cells[row * shape[1] : (row + 1) * shape[1]] for row in range(shape[0])]

    def _read_cells(self, tensor: Tensor) -> list[Any]:
        spec, content_type = KINDS[self.of][1], tensor.parameters.get("content_type")
        own = spec.content_type or (Base64Codec.content_type if self.is_binary else "np")
        if content_type == PandasJSONCodec.content_type and not self.is_binary:
            return read_beside_missing(tensor, spec.dtype.kind)
        if tensor.array.dtype.hasobject is not spec.dtype.hasobject:
            raise InvalidRequest(
                f"{show(tensor.name)} has datatype {tensor.datatype}: expected {spec.datatype}"
            )
        if content_type not in (None, "np", own):
            raise InvalidRequest(
                f"{show(tensor.name)} has the content_type {show(content_type)}: expected {own}, or none"
            )
        if self.is_binary and content_type == own:
            return Base64Codec.decode_input(tensor)
        if spec.content_type is not None:
            return StringCodec.decode_input(tensor)
        cells: list[Any] = rows_of(tensor, "np").tolist()
        is_missed = self.is_nullable and self.of is types.FloatType
        return [None if cell != cell else cell for cell in cells] if is_missed else cells

    def read_texts(self, objects: Sequence[dict[str, Any]]) -> None:
        """Read the texts of a field of dates or bytes: msgspec and pydantic have other texts, and round finer
        dates. What else is there, they judge."""
        if not (self.is_date or self.is_binary):
            return
        for row, each in enumerate(objects):
            if self.reads in each:
                try:
                    each[self.reads] = self._read_cell(each[self.reads])
                except ValueError as error:
                    raise InvalidRequest(f"rows[{row}].{self.reads}: {error}") from None

    def _read_cell(self, cell: Any) -> Any:
        if type(cell) is not str:
            return [*map(self._read_cell, cell)] if type(cell) is list else cell
        text = cell.encode()
        if self.is_binary:
            return text
        if self.is_nullable and text == NO_DATE:
            return None
        try:
            moment = read_moment(text)
        except ValueError:
            raise ValueError(
                f"expected an ISO 8601 date and time, to the microsecond at most, got {show(cell)}"
            ) from None
        return _to_day(moment) if self.of is types.DateType else moment

    def write(self, spec: TensorSpec, values: list[Any]) -> Tensor:
        """The tensor of a column, whose values were checked: numbers and texts are not looked at again."""
        if not self.is_plain:
            return enter(spec.name, values, spec, is_json=False, is_column=self.is_nullable)
        if None in values and self.of is not types.FloatType:  # None is NaN among floats
            texts = PandasJSONCodec.encode_input(spec.name, values)
            return make_tensor(spec.name, texts.array, {**texts.parameters, DTYPE: str(spec.pd_dtype)})
        elements = list(map(str.encode, values)) if self.of is types.StrType else values
        return make_tensor(spec.name, np.array(elements, spec.dtype), dict(_TYPED[spec.content_type]))


def _to_day(moment: datetime) -> datetime | date:
    """A time of the day stays, so that it is refused."""
    return moment.date() if moment.time() == _MIDNIGHT and moment.tzinfo is None else moment


def _find_example(schema: Schema) -> list[Any] | None:
    """A value that fits, where zero or a plain text would not: of a list, an element."""
    schema = {**schema, **schema.get("items", schema.get("anyOf", [schema])[0])}
    values = [*schema.get("examples", ()), *schema.get("enum", ()), schema.get("const")]
    given = next((each for each in values if isinstance(each, (str, int, float))), None)
    bounds: dict[str, float] = {name: schema[name] for name in _BOUNDS if name in schema}
    near = [each for bound in bounds.values() for each in (bound, bound + 1, bound - 1)]
    fitting = (each for each in (0, *near, sum(bounds.values()) / 2) if _is_within(each, bounds))
    example = next(fitting, 0) if given is None else given
    return [example] if example or given is not None else None


def _is_within(value: float, bounds: Mapping[str, float]) -> bool:
    return bounds.get("minimum", value) <= value <= bounds.get("maximum", value) and bounds.get(
        "exclusiveMinimum", value - 1
    ) < value < bounds.get("exclusiveMaximum", value + 1)
