"""A class -> its fields, and what makes its objects. Knows no requests.

msgspec and pydantic check the values; here are the names in their errors, and what can be no row.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from enum import Enum
from functools import partial, reduce
from operator import or_
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import inspect as types

from .._protocol.errors import InvalidRequest, show
from .._protocol.schemas import RequestOutput
from .._protocol.specs import TensorSpec
from .._protocol.tensors import InferenceContext, InferenceRequest, InferenceResponse, Tensor
from .._turns import take_turns
from .base import find_class
from .row_fields import KINDS, Field
from .row_schemas import Schema, clean, resolve_references

_OURS: Final = (Tensor, InferenceRequest, InferenceResponse, InferenceContext, RequestOutput, TensorSpec)
"""Classes that have another meaning in a signature."""


_EXPECTED: Final = (
    "annotate it bool, int, float, str, bytes, datetime, date, a Literal or an Enum of str or of int, one "
    "of these | None but bytes, or a "
    "list of one of them"
)

_BOUNDS: Final = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern", "tz")

_PLACE: Final = re.compile(r"(?s)(.*) - at `\$\[(\d+)\](.*)`")
"""A text of msgspec, the row, and where in the row."""

_OF_SCHEMA: Final[Mapping[Any, Any]] = {
    "boolean": bool,
    "integer": int,
    "number": float,
    "string": str,
    "null": None,
    "date-time": datetime,
    "date": date,
    "binary": bytes,
}
"""The types of Python by the types and formats of JSON Schema."""

_TOGETHER: Final = 1000
"""Rows that pydantic checks at a time, which takes about a millisecond; then other threads may run."""


Make: TypeAlias = Callable[[Sequence[dict[str, Any]]], list[Any]]
"""Makes the rows of the members of each, and checks all at once. Raises InvalidRequest with the row and the
field that does not fit."""

FromJSON: TypeAlias = Callable[[bytes], list[Any]]
"""Makes the rows of a JSON text in one go. It takes unknown names, and names that are there twice."""


_HINTS: Final[Mapping[str, str]] = {
    "'<' not supported": (
        ": a Literal has values of several types, which msgspec before 0.22 cannot sort: for None, write "
        "Literal[...] | None"
    ),
    "takes_self=True": ": write attrs.field(init=False), and set the field in __attrs_post_init__",
}
"""What to write, by a part of a text of msgspec."""


def read_msgspec(cls: type) -> tuple[tuple[Field, ...], Make, FromJSON | None]:
    try:
        info: Any = types.type_info(cls)
        schema = msgspec.json.schema(cls, schema_hook=lambda _: {"title": "refused below"})
    except (TypeError, NameError, NotImplementedError) as error:
        hint = next((hint for part, hint in _HINTS.items() if part in str(error)), "")
        raise TypeError(
            f"the fields of {cls.__name__} can be no columns: {str(error).partition('. File a')[0]}{hint}"
        ) from None
    definitions = schema.get("$defs", {})
    schema = resolve_references(schema, definitions)
    schemas, names = schema.get("prefixItems"), _find_names(cls)
    fields = tuple(
        _make_field(
            cls,
            each.name,
            names.get(each.name, (each.encode_name, each.encode_name)),
            each.type,
            resolve_references(
                schema["properties"][each.encode_name] if schemas is None else schemas[index], definitions
            ),
            is_needed=each.required,
        )
        for index, each in enumerate(getattr(info, "fields", ()))
    )
    by_name = {field.reads: field for field in fields}
    is_own = schemas is None and all(name == reads for name, (reads, _) in names.items())
    made: Any = cls if is_own else _make_constructor(cls, fields, names)

    def make(objects: Sequence[dict[str, Any]]) -> list[Any]:
        try:
            rows: list[Any] = msgspec.convert(objects, list[made])
        except msgspec.ValidationError as error:
            raise InvalidRequest(explain_msgspec(str(error), objects, by_name)) from None
        return rows if is_own else [row.made for row in rows]

    # msgspec has other texts than ours for bytes
    is_as_json = is_own and not any(field.is_binary for field in fields)
    return fields, make, msgspec.json.Decoder(list[cls]).decode if is_as_json else None  # type: ignore[valid-type]


def _find_names(cls: Any) -> dict[str, tuple[str, str]]:
    """The names with which each field of a dataclass or of attrs is read and written: none to read it by, if
    it has `init=False`."""
    members = getattr(cls, "__attrs_attrs__", None) or (
        dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    )
    return {
        each.name: (alias if each.init else "", alias)
        for each in members
        for alias in [getattr(each, "alias", each.name)]
    }


def _make_constructor(cls: type, fields: Sequence[Field], names: Mapping[str, tuple[str, str]]) -> type:
    """A class that checks arguments by name and makes an object of them, where msgspec itself takes places,
    or names of attributes."""

    def construct(arguments: Any) -> None:
        there = [name for name in reads if getattr(arguments, name) is not msgspec.UNSET]
        arguments.made = cls(**{names.get(name, (name,))[0]: getattr(arguments, name) for name in there})

    reads = {field.name: field.reads for field in fields if field.reads}
    typed = [
        (field.name, field.type, *(() if field.is_needed else (msgspec.UNSET,)))
        for field in fields
        if field.reads
    ]
    return msgspec.defstruct(
        cls.__name__, typed, rename=reads, namespace={"__post_init__": construct}, dict=True, kw_only=True
    )


def explain_msgspec(text: str, objects: Sequence[Mapping[str, Any]], fields: Mapping[str, Field]) -> str:
    """A text of msgspec with the row, the field and its value."""
    matched = _PLACE.fullmatch(text)
    if matched is None:
        return f"rows: {text}"
    text, row, where = matched[1], int(matched[2]), matched[3]
    name, _, element = where.removeprefix(".").partition("[")
    field = fields.get(name)
    if field is None or name not in objects[row]:
        return f"rows[{row}]{where}: {text}"
    value = objects[row][name]
    if element and isinstance(value, list):
        value = value[int(element.rstrip("]"))]
    expected = re.sub(r", got `[^`]*`$", "", text).replace("`", "")
    if field.choices:
        expected = f"expected {' or '.join(map(show, field.choices))}"
    return f"rows[{row}]{where}: {expected[:1].lower()}{expected[1:]}, got {show(value)}"


def read_pydantic(cls: Any) -> tuple[tuple[Field, ...], Make, None]:
    import pydantic

    try:  # a type may stand below the class that names it
        (getattr(cls, "model_rebuild", None) or partial(pydantic.dataclasses.rebuild_dataclass, cls))()
    except NameError as error:
        raise TypeError(
            f"the fields of {cls.__name__} can be no columns: name {error.name!r} is not defined"
        ) from None
    rows: Any = pydantic.TypeAdapter(list[cls])
    properties = _list_properties(cls, "validation")
    fields = tuple(
        _make_field(
            cls,
            name,
            (
                ""
                if dataclasses.is_dataclass(cls) and each.init is False
                else _find_alias(cls, name, each.validation_alias or each.alias),
                each.serialization_alias or name,
            ),
            _find_type(each.annotation),
            properties.get(name, {}),
            is_needed=each.is_required(),
        )
        for name, each in cls.__pydantic_fields__.items()
    )

    def make(objects: Sequence[dict[str, Any]]) -> list[Any]:
        instances: list[Any] = []
        for start in take_turns(range(0, len(objects), _TOGETHER)):
            try:
                instances += rows.validate_python(objects[start : start + _TOGETHER])
            except pydantic.ValidationError as error:
                raise InvalidRequest(
                    _explain_pydantic(error.errors(include_url=False, include_context=False)[0], start)
                ) from None
        return instances

    return fields, make, None


def read_serialization(
    cls: Any, fields: Sequence[Field], make: Make
) -> tuple[list[Field], Callable[[list[Any]], list[Any]]]:
    """The fields that pydantic writes, and what prepares rows for that: what is no instance yet becomes one,
    and serializers are called."""
    import pydantic

    dump: Any = pydantic.TypeAdapter(list[cls]).dump_python
    decorators, serialized, properties = (
        cls.__pydantic_decorators__,
        _find_serialized_fields(cls),
        _list_properties(cls, "serialization"),
    )
    if decorators.model_serializers or not properties:
        raise TypeError(
            f"{cls.__name__} does not say what each field becomes: write field_serializer and computed_field"
        )
    as_they_are = {field.name: field for field in fields if field.name not in serialized}
    names = {
        **{field.name: (field.reads, field.writes) for field in fields},
        **{name: ("", each.info.alias or name) for name, each in decorators.computed_fields.items()},
    }
    written = [
        as_they_are.get(name)
        or _make_field(cls, name, names[name], _find_type(_find_written_type(each)), each, is_needed=True)
        for name, each in properties.items()
    ]
    texts = {
        field.name for field in written if not (field.name in as_they_are or field.is_date or field.is_binary)
    }
    instance: Any = cls if _read_config(cls).get("revalidate_instances", "never") == "never" else ()

    def complete(rows: list[Any]) -> list[Any]:
        """The instance of each row. One that is there stays: pydantic itself runs the validators of a whole
        model on it again."""
        made = iter(make([row for row in rows if not isinstance(row, instance)]))
        return [row if isinstance(row, instance) else next(made) for row in rows]

    def prepare(rows: list[Any]) -> list[Any]:
        """The values of each row by name. Those that are no texts are as they are: JSON would round a number
        or a date in silence."""
        instances, included = complete(rows), (("json", texts), ("python", properties.keys() - texts))
        parts = [
            dump(instances, mode=mode, by_alias=True, include={"__all__": each}, warnings=False)
            for mode, each in included
        ]
        return [{**some, **more} for some, more in zip(*parts, strict=True)]

    return written, complete if properties.keys() <= as_they_are.keys() else prepare


def _list_properties(cls: Any, mode: Any) -> dict[str, Schema]:
    """The JSON Schemas of the fields of a class of pydantic."""
    import pydantic

    schema = pydantic.TypeAdapter(cls).json_schema(by_alias=False, mode=mode)
    resolve = partial(resolve_references, definitions=schema.get("$defs", {}))
    return {name: resolve(each) for name, each in resolve(schema).get("properties", {}).items()}


def _find_serialized_fields(cls: Any) -> set[str]:
    """The names of the fields that pydantic does not write as they are."""
    decorated = {
        name for each in cls.__pydantic_decorators__.field_serializers.values() for name in each.info.fields
    }
    return {
        name
        for name, each in cls.__pydantic_fields__.items()
        if not {name, "*"}.isdisjoint(decorated)
        or _read_config(cls).get("json_encoders")
        or getattr(each, "exclude_if", None)
        or _has(
            Annotated[each.annotation, *each.metadata, None],
            lambda part: (
                hasattr(part, "__get_pydantic_core_schema__") and "Validator" not in type(part).__name__
            ),
        )
    }


def _find_written_type(schema: Schema) -> Any:
    """The annotation that a JSON Schema of pydantic stands for."""
    if "anyOf" in schema:
        return reduce(or_, map(_find_written_type, schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return Literal[tuple(schema.get("enum", [schema.get("const")]))]
    if "items" in schema:
        return list[_find_written_type(schema["items"])]  # type: ignore[misc]
    return _OF_SCHEMA.get(schema.get("format")) or _OF_SCHEMA.get(schema.get("type"), Any)


def _read_config(cls: Any) -> Mapping[str, Any]:
    """What a class of pydantic is configured with."""
    return getattr(cls, "model_config", None) or getattr(cls, "__pydantic_config__", None) or {}


def _find_alias(cls: type, name: str, alias: Any) -> str:
    if alias is not None and not isinstance(alias, str):
        raise TypeError(
            f"{cls.__name__}.{name} has {alias!r}, and a tensor has one name: write validation_alias as a "
            "string"
        )
    return alias or name


def _find_type(annotation: Any) -> Any:
    try:
        return types.type_info(annotation)
    except TypeError:
        return types.AnyType()


def _explain_pydantic(error: Mapping[str, Any], start: int) -> str:
    row, *where = error["loc"]
    text = error["msg"].removeprefix("Value error, ")
    text = text if text is not error["msg"] else f"{text[:1].lower()}{text[1:]}"
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where)
    return f"rows[{start + row}]{path}: {text}" + (
        f", got {show(error['input'])}" if where and error["type"] != "missing" else ""
    )


def _make_field(
    cls: type, name: str, names: tuple[str, str], of: Any, schema: Schema, *, is_needed: bool
) -> Field:
    members = _list_members(of)
    there = [member for member in members if not isinstance(member, types.NoneType)]
    is_list = len(members) == 1 and isinstance(members[0], types.ListType)
    if is_list:
        there = _list_members(there[0].item_type)
    if {type(member) for member in there} == {types.IntType, types.FloatType}:
        there = [member for member in there if isinstance(member, types.FloatType)]
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
        clean(schema),
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


def _has_specs(cls: Any) -> bool:
    """Whether a class declares a tensor in the place of a field."""
    hints: Mapping[str, Any] = {}
    with suppress(NameError, TypeError):  # of what msgspec and pydantic read in another way
        hints = typing.get_type_hints(cls, include_extras=True)
    return any(_has(hint, lambda each: isinstance(each, TensorSpec)) for hint in hints.values())


def _wants_members(cls: Any) -> bool:
    """Whether a field of a class of pydantic takes only the members of an Enum."""
    return any(
        _has(Annotated[each.annotation, None], lambda part: isinstance(part, type) and issubclass(part, Enum))
        and next(
            (mark.strict for mark in each.metadata if hasattr(mark, "strict")),
            _read_config(cls).get("strict", False),
        )
        for each in getattr(cls, "__pydantic_fields__", {}).values()
    )


REFUSED: Final[Mapping[str, Callable[[Any], bool]]] = {
    "is a generic class with its types: write a class of your own for it, such as `class Row(Base[int]): "
    "...`, and list[Row]": (lambda cls: not isinstance(cls, type)),
    "is a class of pydantic.v1: write it with pydantic.BaseModel": (
        lambda cls: hasattr(cls, "__pre_root_validators__") or hasattr(cls, "__pydantic_model__")
    ),
    "has table=True, with which SQLModel checks nothing: write a class with these fields and without "
    "table=True, and annotate it here": (lambda cls: getattr(cls, "model_config", {}).get("table", False)),
    "is strict, and no client can send a member of an Enum: write pydantic.Field(strict=False) for each "
    "field of an Enum": _wants_members,
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
            for each in getattr(_find_type(cls), "fields", ())
        )
    ),
}


def refuse_class(cls: Any, refused: Mapping[str, Callable[[Any], bool]]) -> None:
    for text, is_meant in refused.items():
        if is_meant(cls):
            raise TypeError(f"{cls.__name__} {text}")


def _has(hint: Any, is_meant: Callable[[Any], bool]) -> bool:
    """Whether a part of an annotation is what is meant."""
    return any(is_meant(each) or _has(each, is_meant) for each in typing.get_args(hint))


def has_fields(cls: Any) -> bool:
    """Whether it is a class that msgspec or pydantic makes of the values of its fields."""
    cls = typing.get_origin(cls) or cls
    if not isinstance(cls, type) or issubclass(cls, _OURS):
        return False
    is_tuple = issubclass(cls, tuple) and hasattr(cls, "_fields")
    of_libraries = "__struct_fields__", "__attrs_attrs__", "__pre_root_validators__"
    return (
        is_tuple
        or dataclasses.is_dataclass(cls)
        or typing.is_typeddict(cls)
        or is_of_pydantic(cls)
        or (cls is not msgspec.Struct and any(hasattr(cls, name) for name in of_libraries))
    )


def is_of_pydantic(cls: Any) -> bool:
    return isinstance(cls, type) and (
        issubclass(cls, find_class("pydantic", "BaseModel")) or "__pydantic_fields__" in vars(cls)
    )
