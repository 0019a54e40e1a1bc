"""A JSON Schema that msgspec or pydantic makes of a class -> that of the values of a field, and an example
of them. Knows no classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

Schema: TypeAlias = dict[str, Any]
"""A JSON Schema."""

_BOUNDS: Final = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")


def resolve_references(schema: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """A schema without references."""
    if "$ref" in schema:
        schema = {
            **definitions[schema["$ref"].rpartition("/")[2]],
            **{key: value for key, value in schema.items() if key != "$ref"},
        }
    resolved = dict(schema)
    if "anyOf" in resolved:
        resolved["anyOf"] = [resolve_references(each, definitions) for each in resolved["anyOf"]]
    if isinstance(resolved.get("items"), dict):
        resolved["items"] = resolve_references(resolved["items"], definitions)
    return resolved


def clean(schema: Schema) -> Schema:
    """A schema without what says nothing to a client: a field of bytes takes any text."""
    kept = {
        name: value
        for name, value in schema.items()
        if not (name in ("title", "contentEncoding") or (name == "default" and value is None))
        and (name != "format" or value in ("date", "date-time"))
    }
    if "anyOf" in kept:
        kept["anyOf"] = list(map(clean, kept["anyOf"]))
    if "items" in kept:
        kept["items"] = clean(kept["items"])
    return kept


def find_example(schema: Schema) -> list[Any] | None:
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
