"""Which library makes the rows of a class, and checks them: msgspec, or pydantic for its own. Here are the
names in their errors. pydantic is imported only for a class of it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from functools import partial
from typing import Annotated, Any, Final, Literal, Union

import msgspec
from msgspec import inspect as types

from .._protocol.errors import InvalidRequest, show
from .._turns import take_turns
from .row_classes import (
    Field,
    Make,
    Prepare,
    RowClass,
    Schema,
    find_type,
    has_part,
    is_of_pydantic,
    make_field,
    refuse_others,
    simplify,
)

_PLACE: Final = re.compile(r"(?s)(.*) - at `\$\[(\d+)\](.*)`")
"""A text of msgspec, the row, and where in the row."""

_HINTS: Final[Mapping[str, str]] = {
    "'<' not supported": (
        ": a Literal has values of several types, which msgspec before 0.22 cannot sort: for None, write "
        "Literal[...] | None"
    ),
    "takes_self=True": ": write attrs.field(init=False), and set the field in __attrs_post_init__",
}
"""What to write, by a part of a text of msgspec."""

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


def read_class(cls: type) -> RowClass:
    return _read_class_of_pydantic(cls) if is_of_pydantic(cls) else _read_class_of_msgspec(cls)


def _read_class_of_msgspec(cls: type) -> RowClass:
    """A Struct, a dataclass, a class of attrs, a TypedDict or a NamedTuple: msgspec checks its rows."""
    try:
        info: Any = types.type_info(cls)
        schema = msgspec.json.schema(cls, schema_hook=lambda _: {"title": "refused below"})
    except (TypeError, NameError, NotImplementedError) as error:
        hint = next((hint for part, hint in _HINTS.items() if part in str(error)), "")
        raise TypeError(
            f"the fields of {cls.__name__} can be no columns: {str(error).partition('. File a')[0]}{hint}"
        ) from None
    definitions = schema.get("$defs", {})
    schema = simplify(schema, definitions)
    schemas, names = schema.get("prefixItems"), _find_names(cls)
    fields = tuple(
        make_field(
            cls,
            each.name,
            names.get(each.name, (each.encode_name, each.encode_name)),
            each.type,
            simplify(
                schema["properties"][each.encode_name] if schemas is None else schemas[index], definitions
            ),
            is_needed=each.required,
        )
        for index, each in enumerate(getattr(info, "fields", ()))
    )
    by_name = {field.reads: field for field in fields}
    is_own = (
        schemas is None
        and not _has_own_constructor(cls)
        and all(name == reads for name, (reads, _) in names.items())
    )
    made: Any = cls if is_own else _make_constructor(cls, fields, names)

    def make(objects: Sequence[dict[str, Any]]) -> list[Any]:
        try:
            rows: list[Any] = msgspec.convert(objects, list[made])
        except msgspec.ValidationError as error:
            raise InvalidRequest(explain(str(error), objects, by_name)) from None
        return rows if is_own else [row.made for row in rows]

    # msgspec has other texts than ours for bytes, and takes unknown names: the number of members shows these
    # only where no field may be missing
    is_as_json = is_own and all(field.is_needed and not field.is_binary for field in fields)
    from_json = msgspec.json.Decoder(list[cls]).decode if is_as_json else None  # type: ignore[valid-type]
    return RowClass(fields, make, from_json, lambda: (fields, partial(refuse_others, cls)))


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


def _has_own_constructor(cls: Any) -> bool:
    """Whether its constructor does more than msgspec itself, which sets the fields: an `__init__` that was
    written, not generated, or a converter of attrs."""
    code = getattr(cls.__init__, "__code__", None)
    is_written = code is not None and not (
        code.co_qualname.startswith("__create_fn__.") or code.co_filename.startswith("<attrs generated")
    )
    return is_written or any(each.converter for each in getattr(cls, "__attrs_attrs__", ()))


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


def explain(text: str, objects: Sequence[Mapping[str, Any]], fields: Mapping[str, Field]) -> str:
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


def _read_class_of_pydantic(cls: Any) -> RowClass:
    """A class of pydantic: its validators check the rows, and they leave as `model_dump()` writes them, which
    rounds no number and no date."""
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
        make_field(
            cls,
            name,
            (
                ""
                if dataclasses.is_dataclass(cls) and each.init is False
                else _find_alias(cls, name, each.validation_alias or each.alias),
                each.serialization_alias or name,
            ),
            find_type(each.annotation),
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

    return RowClass(fields, make, None, partial(_plan_output, cls, fields, make, rows.dump_python))


def _plan_output(
    cls: Any, fields: Sequence[Field], make: Make, dump: Callable[..., list[Any]]
) -> tuple[Sequence[Field], Prepare]:
    """The fields that pydantic writes, and what writes them: what is no instance yet becomes one."""
    decorators, properties = cls.__pydantic_decorators__, _list_properties(cls, "serialization")
    if decorators.model_serializers or not properties or _writes_json_alone(cls):
        raise TypeError(
            f"{cls.__name__} does not say what each field becomes: write field_serializer and "
            "computed_field, and none for JSON alone"
        )
    read = {field.name: field for field in fields}
    names = {
        **{field.name: (field.reads, field.writes) for field in fields},
        **{name: ("", each.info.alias or name) for name, each in decorators.computed_fields.items()},
    }
    written = [
        read[name]
        if name in read and read[name].schema == simplify(each, {})
        else make_field(cls, name, names[name], find_type(_find_written_type(each)), each, is_needed=True)
        for name, each in properties.items()
    ]
    texts = {field.name for field in written if field.of is types.StrType and field not in fields}

    def prepare(rows: list[Any]) -> list[Any]:
        # pydantic itself runs the validators of a whole model again on an instance
        made = iter(make([row for row in rows if not isinstance(row, cls)]))
        instances = [row if isinstance(row, cls) else next(made) for row in rows]
        write = partial(dump, instances, by_alias=True, warnings=False)
        if not texts:
            return write()
        # as JSON has them: in Python, a Decimal or a UUID is no text
        return [
            {**others, **of_texts}
            for others, of_texts in zip(
                write(exclude={"__all__": texts}), write(mode="json", include={"__all__": texts}), strict=True
            )
        ]

    return written, prepare


def _writes_json_alone(cls: Any) -> bool:
    """Whether `model_dump_json()` writes a field otherwise than `model_dump()` does."""
    return (
        bool(getattr(cls, "model_config", {}).get("json_encoders"))
        or any(_is_for_json(each.info) for each in cls.__pydantic_decorators__.field_serializers.values())
        or any(
            has_part(Annotated[each.annotation, *each.metadata, None], _is_for_json)
            for each in cls.__pydantic_fields__.values()
        )
    )


def _is_for_json(serializer: Any) -> bool:
    return str(getattr(serializer, "when_used", "")).startswith("json")


def _list_properties(cls: Any, mode: Any) -> dict[str, Schema]:
    """The JSON Schemas of the fields of a class of pydantic, with what tells bytes from texts."""
    import pydantic

    schema = pydantic.TypeAdapter(cls).json_schema(by_alias=False, mode=mode)
    resolve = partial(simplify, definitions=schema.get("$defs", {}), formats=("date", "date-time", "binary"))
    return {name: resolve(each) for name, each in resolve(schema).get("properties", {}).items()}


def _find_written_type(schema: Schema) -> Any:
    """The annotation that a JSON Schema of pydantic stands for."""
    if "anyOf" in schema:
        return Union[tuple(map(_find_written_type, schema["anyOf"]))]  # noqa: UP007
    if values := schema.get("enum", [schema["const"]] if "const" in schema else []):
        # old versions of msgspec want None beside the Literal
        return Union[
            (Literal[tuple(each for each in values if each is not None)], *{None}.intersection(values))
        ]
    if "items" in schema:
        return list[_find_written_type(schema["items"])]  # type: ignore[misc]
    return _OF_SCHEMA.get(schema.get("format")) or _OF_SCHEMA.get(schema.get("type"), Any)


def _find_alias(cls: type, name: str, alias: Any) -> str:
    if alias is not None and not isinstance(alias, str):
        raise TypeError(
            f"{cls.__name__}.{name} has {alias!r}, and a tensor has one name: write validation_alias as a "
            "string"
        )
    return alias or name


def _explain_pydantic(error: Mapping[str, Any], start: int) -> str:
    row, *where = error["loc"]
    text = error["msg"].removeprefix("Value error, ")
    text = text if text is not error["msg"] else f"{text[:1].lower()}{text[1:]}"
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where)
    return f"rows[{start + row}]{path}: {text}" + (
        f", got {show(error['input'])}" if where and error["type"] != "missing" else ""
    )
