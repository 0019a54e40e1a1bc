"""Declared tensors -> request and response bodies that serve as examples. Knows no models and no documents around them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

from .._models.specs import TensorSpec
from .._protocol.datatypes import FLOATING

MAX_ELEMENTS: Final = 4096
"""How many elements an example may have in all: one of an image would be megabytes of zeros."""

_TEXTS: Final = {"base64": "dGV4dA==", "datetime": "2026-01-31T12:00:00", "pd_json": '"text"'}
"""An element of BYTES that each content type can read. Any other is a plain text."""


def count(specs: Iterable[TensorSpec]) -> int:
    """How many elements an example of these tensors has in all."""
    return sum(math.prod(_shape(spec)) for spec in specs)


def are_small(specs: Iterable[TensorSpec]) -> bool:
    """Whether an example of these tensors has at most `MAX_ELEMENTS` elements."""
    return count(specs) <= MAX_ELEMENTS


def tensors(specs: Iterable[TensorSpec]) -> list[dict[str, Any]]:
    """The tensors of an inference request or response. Each dimension of any size is 1."""
    return [
        {"name": spec.name, "shape": _shape(spec), "datatype": spec.datatype, "data": [_element(spec)] * math.prod(_shape(spec))}
        for spec in specs
    ]


def members(specs: Iterable[TensorSpec]) -> dict[str, Any]:
    """The members of a flat object of the generate extension: one element is a scalar, several are a flat list."""
    return {spec.name: _flat([_element(spec)] * math.prod(_shape(spec))) for spec in specs}


def _shape(spec: TensorSpec) -> list[int]:
    return [1 if size == -1 else size for size in spec.shape]


def _flat(elements: Sequence[Any]) -> Any:
    return elements[0] if len(elements) == 1 else elements


def _element(spec: TensorSpec) -> Any:
    if spec.datatype == "BYTES":
        return _TEXTS.get(spec.content_type or "", "text")
    if spec.datatype == "BOOL":
        return False
    return 0.0 if spec.datatype in FLOATING else 0
