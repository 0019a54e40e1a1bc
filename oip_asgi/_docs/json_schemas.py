"""Declared tensors -> JSON Schemas of requests and responses, and bodies that serve as examples. Knows no
models and no operations.

Specification: OpenAPI 3.1, whose schemas are those of JSON Schema 2020-12.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np

from .._protocol.datatypes import DTYPES, FLOATING, dtype_of
from .._protocol.specs import TensorSpec

Schema: TypeAlias = dict[str, Any]

MAX_ELEMENTS: Final = 4096
"""How many elements an example may have in all: one of an image would be megabytes of zeros."""

STRING: Final[Schema] = {"type": "string"}

_FLOAT: Final[Schema] = {
    "type": ["number", "null"],
    "description": (
        'NaN is null. An infinity is the text "Infinity" or "-Infinity". A request may have the text "NaN" '
        "too."
    ),
}
"""The texts are said, not in the schema: with several types, generated clients have a class around each
number."""

_ELEMENTS: Final[Mapping[str, Schema]] = {
    "BYTES": STRING,
    "BOOL": {"type": "boolean"},
    **dict.fromkeys(FLOATING, _FLOAT),
}
"""By datatype, where its numpy type does not tell the range."""

PARAMETERS: Final[Schema] = {
    "type": "object",
    "additionalProperties": {"type": ["string", "number", "boolean"]},
}

_SIZE: Final[Schema] = {"type": "integer", "minimum": 0}

ANY_TENSOR: Final[Schema] = {
    "type": "object",
    "properties": {
        "name": STRING,
        "datatype": {"type": "string", "enum": [*DTYPES, "BF16"]},
        "shape": {"type": "array", "items": _SIZE},
        "data": {
            "type": "array",
            "items": {},
            "description": "The elements, flat or nested as the shape says.",
        },
        "parameters": PARAMETERS,
    },
    "required": ["name", "datatype", "shape"],
}
"""A tensor of which nothing is declared."""

_PICTURE: Final = (
    "iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAIAAAAlC+aJAAAAZ0lEQVR42u3aMQ0AIBAEQaQgCSnIRAElJTUS8AChID/JCrjpL425vi4BAAAAADwB5NIeBQAAAAAAAAAAAAAA"
    "AAAQFdBrPggAAAAAACAW4KaziQAAAAAAAAAAAAAAAAAeWwAAAACBABvbMo2nnVlLkwAAAABJRU5ErkJggg=="
)
"""A PNG in base64, of 64 by 64 pixels: two squares, one over a corner of the other. An edge detector has
edges to find."""

_TEXTS: Final = {"base64": _PICTURE, "datetime": "2026-01-31T12:00:00", "pd_json": '"text"'}
"""An element of BYTES that each content type can read. Bytes are pictures more often than anything else. Any
other is a plain text."""


def describe_element(datatype: str) -> Schema:
    if datatype in _ELEMENTS:
        return _ELEMENTS[datatype]
    limits = np.iinfo(dtype_of(datatype))
    return {"type": "integer", "minimum": int(limits.min), "maximum": int(limits.max)}


def describe_tensor(
    spec: TensorSpec, content_types: Mapping[str, str | None], row: Schema, *, has_data: bool
) -> Schema:
    """One declared tensor, with the schema of a row. A response may have its data after the JSON, and is
    never nested."""
    flat = {"type": "array", "items": find_element(row)}
    nested = {"type": "array", "items": row} if spec.shape else row
    sizes = [
        _SIZE if size == -1 else {"type": "integer", "minimum": size, "maximum": size} for size in spec.shape
    ]
    names = [name for name, datatype in content_types.items() if datatype in (None, spec.datatype)]
    return {
        "type": "object",
        "properties": {
            "name": allow_one(spec.name),
            "datatype": allow_one(spec.datatype),
            "shape": {
                "type": "array",
                **({"prefixItems": sizes} if sizes else {}),  # which may not be empty
                "items": _SIZE,
                "minItems": len(sizes),
                "maxItems": len(sizes),
            },
            "data": flat if len(spec.shape) == 1 or not has_data else {"anyOf": [flat, nested]},
            "parameters": {**PARAMETERS, "properties": {"content_type": {"type": "string", "enum": names}}},
        },
        "required": ["name", "datatype", "shape", "data"] if has_data else ["name", "datatype", "shape"],
    }


def describe_any_tensor(name: str) -> Schema:
    """A tensor of which nothing but the name is declared."""
    return {**ANY_TENSOR, "properties": {**ANY_TENSOR["properties"], "name": allow_one(name)}}


def allow_one(text: str) -> Schema:
    """One text. Not all generators of clients read a `const`."""
    return {"type": "string", "enum": [text]}


def describe_row(spec: TensorSpec, element: Schema) -> Schema:
    """One row of a tensor: an element, or as nested as the other dimensions are."""
    return reduce(lambda item, _: {"type": "array", "items": item}, spec.shape[1:], element)


def find_element(row: Schema) -> Schema:
    return find_element(row["items"]) if "items" in row else row


def join_schemas(tensors: Sequence[Schema]) -> Schema:
    return tensors[0] if len(tensors) == 1 else {"oneOf": list(tensors)}


def describe_member(row: Schema, *, is_nested: bool) -> Schema:
    """A tensor as a member of a flat object of the generate extension: a scalar, a flat list, or a list of
    rows."""
    items = [find_element(row), row] if is_nested else [find_element(row)]
    return {"anyOf": [items[0], *({"type": "array", "items": each} for each in items)]}


def describe_request(inputs: Schema, outputs: Sequence[str]) -> Schema:
    output = {"name": {**STRING, "enum": outputs} if outputs else STRING, "parameters": PARAMETERS}
    return {
        "type": "object",
        "properties": {
            "id": STRING,
            "parameters": PARAMETERS,
            "inputs": inputs,
            "outputs": {
                "type": "array",
                "items": {"type": "object", "properties": output, "required": ["name"]},
            },
        },
        "required": ["inputs"],
    }


def describe_response(model: str, version: str | None, outputs: Schema) -> Schema:
    versioned = {} if version is None else {"model_version": allow_one(version)}
    return {
        "type": "object",
        "properties": {
            "model_name": allow_one(model),
            **versioned,
            "id": STRING,
            "parameters": PARAMETERS,
            "outputs": outputs,
        },
        "required": ["model_name", *versioned, "outputs"],
    }


def count_elements(specs: Iterable[TensorSpec]) -> int:
    """How many elements an example of these tensors has in all."""
    return sum(math.prod(_find_shape(spec)) for spec in specs)


def make_example_tensors(specs: Iterable[TensorSpec]) -> list[dict[str, Any]]:
    """The tensors of an inference request or response. Each dimension of any size is 1."""
    return [
        {
            "name": spec.name,
            "shape": _find_shape(spec),
            "datatype": spec.datatype,
            "data": _list_elements(spec),
        }
        for spec in specs
    ]


def make_example_members(specs: Iterable[TensorSpec]) -> dict[str, Any]:
    """The members of a flat object of the generate extension: one element is a scalar, several are a flat
    list."""
    examples = {spec.name: _list_elements(spec) for spec in specs}
    return {name: elements[0] if len(elements) == 1 else elements for name, elements in examples.items()}


def _find_shape(spec: TensorSpec) -> list[int]:
    return [1 if size == -1 else size for size in spec.shape]


def _list_elements(spec: TensorSpec) -> list[Any]:
    if spec.example is not None:
        return list(spec.example)
    if spec.pd_categories is not None:
        [element, *_] = msgspec.json.decode(spec.pd_categories)["data"] or [None]
        return [
            msgspec.json.encode(element).decode() if spec.content_type == "pd_json" else element
        ] * math.prod(_find_shape(spec))
    # a date of a column with a time zone
    text = _TEXTS.get(spec.content_type or "", "text") + "Z" * (", " in (spec.pd_dtype or ""))
    zeros = {"BYTES": "null" if spec.content_type == "pd_json" and spec.pd_dtype else text, "BOOL": False}
    number = min(
        max(0, -math.inf if spec.minimum is None else spec.minimum),
        math.inf if spec.maximum is None else spec.maximum,
    )
    return [
        zeros.get(spec.datatype, float(number) if spec.datatype in FLOATING else math.ceil(number))
    ] * math.prod(_find_shape(spec))
