"""Rows of a class that msgspec reads: a Struct, a dataclass, a class of attrs, a TypedDict or a NamedTuple.

msgspec checks the values; here are the names in its errors.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import inspect as types

from .._protocol.errors import InvalidRequest, show
from .row_classes import RowClass, make_field, refuse_others, simplify
from .row_fields import Field

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


def read_class(cls: type) -> RowClass:
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
    is_own = schemas is None and all(name == reads for name, (reads, _) in names.items())
    made: Any = cls if is_own else _make_constructor(cls, fields, names)

    def make(objects: Sequence[dict[str, Any]]) -> list[Any]:
        try:
            rows: list[Any] = msgspec.convert(objects, list[made])
        except msgspec.ValidationError as error:
            raise InvalidRequest(explain(str(error), objects, by_name)) from None
        return rows if is_own else [row.made for row in rows]

    # msgspec has other texts than ours for bytes
    is_as_json = is_own and not any(field.is_binary for field in fields)
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
