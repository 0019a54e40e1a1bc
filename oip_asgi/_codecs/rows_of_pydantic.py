"""Rows of a class of pydantic: its validators check them, and they leave as `model_dump()` writes them, which
rounds no number and no date. Here are the names in its errors.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from functools import partial
from typing import Annotated, Any, Final, Literal, Union

from msgspec import inspect as types

from .._protocol.errors import InvalidRequest, show
from .._turns import take_turns
from .row_classes import Make, Prepare, RowClass, find_type, has_part, make_field, simplify
from .row_fields import Field, Schema

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


def read_class(cls: Any) -> RowClass:
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
