"""Which classes can be rows, which types their fields may have, and the column that a field is. Knows no
requests, and not how msgspec or pydantic makes a row.

What fits a field is the business of msgspec or pydantic, as the class says it. Missing values are sent as
data frames send them.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
from msgspec import inspect as types

from .._protocol.context import InferenceContext
from .._protocol.errors import InvalidRequest, show
from .._protocol.schemas import RequestOutput
from .._protocol.specs import TensorSpec
from .._protocol.tensors import InferenceRequest, InferenceResponse, Tensor, make_tensor
from .base import decode_elements, find_class, rows_of
from .column_dtypes import DTYPE
from .entering import enter
from .plain import (
    EXPECTED_DATE,
    NO_DATE,
    Base64Codec,
    DatetimeCodec,
    PandasJSONCodec,
    StringCodec,
    read_beside_missing,
    read_json,
    read_moment,
)

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

_RANGE: Final = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")

_OURS: Final = (Tensor, InferenceRequest, InferenceResponse, InferenceContext, RequestOutput, TensorSpec)
"""Classes that have another meaning in a signature."""

_EXPECTED: Final = (
    "annotate it bool, int, float, str, bytes, datetime, date, a Literal or an Enum of str or of int, one "
    "of these | None but bytes, or a "
    "list of one of them"
)

_BOUNDS: Final = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern", "tz")


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
        """The values of a column, one for each row."""
        shape = tensor.array.shape
        if not self.is_list:
            return self._read(tensor)
        if len(shape) != 2:
            raise InvalidRequest(f"{show(tensor.name)} has shape {list(shape)}: expected [-1, -1]")
        values = self._read(make_tensor(tensor.name, tensor.array.reshape(-1), tensor.parameters))
        return [values[row * shape[1] : (row + 1) * shape[1]] for row in range(shape[0])]

    def _read(self, tensor: Tensor) -> list[Any]:
        spec, content_type = KINDS[self.of][1], tensor.parameters.get("content_type")
        own = spec.content_type or (Base64Codec.content_type if self.is_binary else "np")
        if content_type == PandasJSONCodec.content_type and not self.is_binary:
            return self._read_json(tensor)
        if tensor.array.dtype.hasobject is not spec.dtype.hasobject:
            raise InvalidRequest(
                f"{show(tensor.name)} has datatype {tensor.datatype}: expected {spec.datatype}"
            )
        if content_type not in (None, "np", own):
            raise InvalidRequest(
                f"{show(tensor.name)} has the content_type {show(content_type)}: expected {own}, or none"
            )
        if self.is_date:
            return self._read_dates(tensor)
        if self.is_binary and content_type == own:
            return Base64Codec.decode_input(tensor)
        if self.of is types.StrType:
            return StringCodec.decode_input(tensor)
        values: list[Any] = rows_of(tensor, "np").tolist()
        is_missed = self.is_nullable and self.of is types.FloatType
        return [None if value != value else value for value in values] if is_missed else values

    def _read_json(self, tensor: Tensor) -> list[Any]:
        if not self.is_date:
            return read_beside_missing(tensor, KINDS[self.of][1].dtype.kind)
        return decode_elements(
            tensor, lambda text: self.read_cell(read_json(text)), PandasJSONCodec.content_type, EXPECTED_DATE
        )

    def _read_dates(self, tensor: Tensor) -> list[Any]:
        if not self.is_nullable:  # the texts are read without Python code for each
            moments = DatetimeCodec.decode_input(tensor)
            return moments if self.of is types.DateTimeType else [*map(_to_day, moments)]
        return decode_elements(tensor, self._read_date, DatetimeCodec.content_type, EXPECTED_DATE)

    def _read_date(self, text: bytes) -> datetime | date | None:
        if text == NO_DATE and self.is_nullable:
            return None
        moment = read_moment(text)
        return _to_day(moment) if self.of is types.DateType else moment

    def read_cell(self, cell: Any) -> Any:
        """A value of JSON for a field of dates or bytes, of which texts are read as those of any column. What
        else is there, the class judges. Raises ValueError."""
        if type(cell) is not str:
            return [*map(self.read_cell, cell)] if type(cell) is list else cell
        try:
            return cell.encode() if self.is_binary else self._read_date(cell.encode())
        except ValueError:
            raise ValueError(
                f"expected {EXPECTED_DATE}, to the microsecond at most, got {show(cell)}"
            ) from None

    def write(self, spec: TensorSpec, values: list[Any]) -> Tensor:
        """The tensor of a column, whose values were checked: numbers and texts are not looked at again."""
        if not self.is_plain:
            return enter(spec.name, values, spec, is_json=False, is_column=self.is_nullable)
        if None in values and self.of is not types.FloatType:  # None is NaN among floats
            texts = PandasJSONCodec.encode_input(spec.name, values)
            return make_tensor(spec.name, texts.array, {**texts.parameters, DTYPE: str(spec.pd_dtype)})
        elements = list(map(str.encode, values)) if self.of is types.StrType else values
        return make_tensor(
            spec.name,
            np.array(elements, spec.dtype),
            {} if spec.content_type is None else {"content_type": spec.content_type},
        )


def _to_day(moment: datetime) -> datetime | date:
    """A time of the day stays, so that it is refused."""
    return moment.date() if moment.time() == time.min and moment.tzinfo is None else moment


def _find_example(schema: Schema) -> list[Any] | None:
    """A value that fits, where zero or a plain text would not: of a list, an element."""
    schema = {**schema, **schema.get("items", schema.get("anyOf", [schema])[0])}
    values = [*schema.get("examples", ()), *schema.get("enum", ()), schema.get("const")]
    given = next((each for each in values if isinstance(each, (str, int, float))), None)
    bounds: dict[str, float] = {name: schema[name] for name in _RANGE if name in schema}
    near = [each for bound in bounds.values() for each in (bound, bound + 1, bound - 1)]
    fitting = (each for each in (0, *near, sum(bounds.values()) / 2) if _is_within(each, bounds))
    example = next(fitting, 0) if given is None else given
    return [example] if example or given is not None else None


def _is_within(value: float, bounds: Mapping[str, float]) -> bool:
    return bounds.get("minimum", value) <= value <= bounds.get("maximum", value) and bounds.get(
        "exclusiveMinimum", value - 1
    ) < value < bounds.get("exclusiveMaximum", value + 1)


Make: TypeAlias = Callable[[Sequence[dict[str, Any]]], list[Any]]
"""Makes the rows of the members of each, and checks all at once. Raises InvalidRequest with the row and the
field that does not fit."""

FromJSON: TypeAlias = Callable[[bytes], list[Any]]
"""Makes the rows of a JSON text in one go. It takes unknown names, and names that are there twice."""

Prepare: TypeAlias = Callable[[list[Any]], list[Any]]
"""The values of each row, as objects or by name. Raises TypeError if one is not of the class."""


class RowClass(NamedTuple):
    """What a library does with a class."""

    fields: Sequence[Field]
    make: Make
    from_json: FromJSON | None
    plan_output: Callable[[], tuple[Sequence[Field], Prepare]]
    """The fields that leave of a result, and how. Raises TypeError if nothing says that."""


def simplify(
    schema: Schema, definitions: Mapping[str, Schema], formats: Collection[str] = ("date", "date-time")
) -> Schema:
    """A JSON Schema of msgspec or pydantic without references, and without what says nothing to a client,
    such as other formats than these."""
    if "$ref" in schema:
        schema = {**definitions[schema["$ref"].rpartition("/")[2]], **schema}
    kept = {
        name: value
        for name, value in schema.items()
        if not (name in ("$ref", "title", "contentEncoding") or (name == "default" and value is None))
        and (name != "format" or value in formats)
    }
    if "anyOf" in kept:
        kept["anyOf"] = [simplify(each, definitions, formats) for each in kept["anyOf"]]
    if isinstance(kept.get("items"), dict):
        kept["items"] = simplify(kept["items"], definitions, formats)
    return kept


def make_field(
    cls: type, name: str, names: tuple[str, str], of: Any, schema: Schema, *, is_needed: bool
) -> Field:
    members = _list_members(of)
    there = [member for member in members if not isinstance(member, types.NoneType)]
    is_list = len(members) == 1 and isinstance(members[0], types.ListType)
    if is_list:
        there = _list_members(there[0].item_type)
    choices: tuple[Any, ...] = ()
    kind: Any = type(there[0]) if len(there) == 1 else None
    is_nullable = len(there) < len(members)
    if kind is types.LiteralType:
        choices = tuple(value for value in there[0].values if value is not None)
        is_nullable |= None in there[0].values
    elif kind is types.EnumType:
        choices = tuple(member.value for member in there[0].cls)
    if choices:
        kind = (
            {str: types.StrType, int: types.IntType}.get(type(choices[0]))
            if len(set(map(type, choices))) == 1
            else None
        )
    if kind not in KINDS or (is_nullable and kind is types.BytesType):
        raise TypeError(_explain_type(cls, name, there))
    annotation = _annotate(there[0])
    if is_list or is_nullable:
        annotation = _annotate(members[0], list[annotation]) if is_list else annotation | None  # type: ignore[valid-type]
    return Field(
        name,
        *names,
        is_needed,
        kind,
        choices,
        is_nullable,
        is_list,
        simplify(schema, {}),
        annotation,
    )


def _annotate(of: Any, kind: Any = None) -> Any:
    """The annotation that a type of `msgspec.inspect` stands for."""
    if isinstance(of, types.LiteralType):
        return Literal[tuple(value for value in of.values if value is not None)]
    bounds = {name: getattr(of, name, None) for name in _BOUNDS}
    if isinstance(of, types.IntType):
        for reached, beyond, bound in (("ge", "gt", -(2**63)), ("le", "lt", 2**63 - 1)):
            bounds[reached] = bound if bounds[reached] is bounds[beyond] is None else bounds[reached]
    kind = kind or (of.cls if isinstance(of, types.EnumType) else KINDS[type(of)][0])
    return (
        Annotated[kind, msgspec.Meta(**bounds)]
        if any(bound is not None for bound in bounds.values())
        else kind
    )


def _list_members(of: Any) -> list[Any]:
    """The types of a union, or the only one."""
    while isinstance(of, types.Metadata):
        of = of.type
    return (
        [each for member in of.types for each in _list_members(member)]
        if isinstance(of, types.UnionType)
        else [of]
    )


def _explain_type(cls: type, name: str, there: Sequence[Any]) -> str:
    nested = next((member.cls for member in there if has_fields(getattr(member, "cls", None))), None)
    if nested is not None:
        return (
            f"{cls.__name__}.{name} is a {nested.__name__}, and a class in a class is no column: write the "
            f"fields of {nested.__name__} "
            f"into {cls.__name__} itself"
        )
    return f"{cls.__name__}.{name} can be no column: {_EXPECTED}"


def find_type(annotation: Any) -> Any:
    """The type of `msgspec.inspect` that an annotation stands for."""
    with suppress(TypeError):  # of what it does not know
        return types.type_info(annotation)
    return types.AnyType()


def _has_specs(cls: Any) -> bool:
    """Whether a class declares a tensor in the place of a field."""
    hints: Mapping[str, Any] = {}
    with suppress(NameError, TypeError):  # of what msgspec and pydantic read in another way
        hints = typing.get_type_hints(cls, include_extras=True)
    return any(has_part(hint, lambda each: isinstance(each, TensorSpec)) for hint in hints.values())


REFUSED: Final[Mapping[str, Callable[[Any], bool]]] = {
    "is a generic class with its types: write a class of your own for it, such as `class Row(Base[int]): "
    "...`, and list[Row]": (lambda cls: not isinstance(cls, type)),
    "is a class of pydantic.v1: write it with pydantic.BaseModel": (
        lambda cls: hasattr(cls, "__pre_root_validators__") or hasattr(cls, "__pydantic_model__")
    ),
    "has table=True, with which SQLModel checks nothing: write a class with these fields and without "
    "table=True, and annotate it here": (lambda cls: getattr(cls, "model_config", {}).get("table", False)),
    "has a field with a TensorSpec, whose range nobody would look at: use msgspec.Meta or pydantic.Field": (
        _has_specs
    ),
}
"""What to write in the place of a class that checks nothing, or that no request can fit."""

REFUSED_AS_RESULTS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "has a field that a row may lack, and an output has a value in each row: write it without NotRequired "
    "and UNSET, as `float | None`": (
        lambda cls: any(
            not each.required and each.default is each.default_factory is msgspec.NODEFAULT
            for each in getattr(find_type(cls), "fields", ())
        )
    ),
}


def refuse_others(cls: type, rows: list[Any]) -> list[Any]:
    """Rows, if all are of the class."""
    kind = dict if typing.is_typeddict(cls) else cls
    for row, each in enumerate(rows if {*map(type, rows)} != {kind} else ()):
        if not isinstance(each, kind):
            raise TypeError(f"rows[{row}] is {show(each)}: expected {cls.__name__}")
    return rows


def refuse_class(cls: Any, refused: Mapping[str, Callable[[Any], bool]]) -> None:
    for text, is_meant in refused.items():
        if is_meant(cls):
            raise TypeError(f"{cls.__name__} {text}")


def has_part(hint: Any, is_meant: Callable[[Any], bool]) -> bool:
    """Whether a part of an annotation is what is meant."""
    return any(is_meant(each) or has_part(each, is_meant) for each in typing.get_args(hint))


def has_fields(cls: Any) -> bool:
    """Whether it is a class that msgspec or pydantic makes of the values of its fields."""
    cls = typing.get_origin(cls) or cls
    if not isinstance(cls, type) or issubclass(cls, _OURS):
        return False
    of_libraries = "__struct_fields__", "__attrs_attrs__", "__pre_root_validators__"
    return (
        (issubclass(cls, tuple) and hasattr(cls, "_fields"))
        or dataclasses.is_dataclass(cls)
        or typing.is_typeddict(cls)
        or is_of_pydantic(cls)
        or (cls is not msgspec.Struct and any(hasattr(cls, name) for name in of_libraries))
    )


def is_of_pydantic(cls: Any) -> bool:
    return isinstance(cls, type) and (
        issubclass(cls, find_class("pydantic", "BaseModel")) or "__pydantic_fields__" in vars(cls)
    )
