"""What a model declares of its tensors, read from its metadata. The lists that a client sends become what is
declared, as on the server itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .._codecs.column_dtypes import CATEGORIES, DTYPE, is_dtype
from .._codecs.content_types import default_codecs
from .._protocol.errors import InvalidResponse, show
from .._protocol.specs import LABELS, OpenSpec, TensorSpec


def get_list(document: Mapping[str, Any], name: str) -> list[Any]:
    """A list of a document; an empty one if there is something else."""
    return value if isinstance(value := document.get(name), list) else []


def read_specs(metadata: Mapping[str, Any], what: str) -> list[TensorSpec]:
    """Read what a model declares, as a `Client` does before it sends lists.

    Args:
        metadata: What `Client.model_metadata` returns.
        what: "inputs" or "outputs".

    Returns:
        One for each that is declared, in the model's order; none if it declares nothing.

    Raises:
        InvalidResponse: The metadata is not as the protocol has it, or has an unknown datatype.

    Example:
        >>> [spec] = read_specs({"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]}, "inputs")
        >>> spec.name, spec.shape, spec.may_miss
        ('x', (-1, 4), False)
    """
    return [_read_spec(each, what) for each in get_list(metadata, what)]


def _read_spec(declared: Any, what: str) -> TensorSpec:
    try:
        shape, parameters = [int(size) for size in declared["shape"]], declared.get("parameters") or {}
        spec = OpenSpec(
            declared["name"],
            declared["datatype"],
            shape,
            **_find_column(parameters, declared["datatype"]),
            **OpenSpec.find_fields(shape, parameters),
        )
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise InvalidResponse(
            f"the metadata of the model has {show(declared)} among its {what}: {error}"
        ) from None
    return _add_labels(spec, parameters) if what == "outputs" else spec


def _find_column(parameters: Mapping[str, Any], datatype: str) -> dict[str, Any]:
    """What the parameters of a declared tensor say of a data frame's column, if this server has such a
    content type and dtype."""
    content_type, dtype, categories = map(parameters.get, ("content_type", DTYPE, CATEGORIES))
    codec = default_codecs().inputs.get(content_type) if isinstance(content_type, str) else None
    return {
        "content_type": content_type if codec is not None and codec.datatype in (None, datatype) else None,
        **(
            {DTYPE: dtype, CATEGORIES: categories}
            if is_dtype(dtype) and (dtype == "category") is isinstance(categories, str)
            else {}
        ),
    }


def _add_labels(spec: TensorSpec, parameters: Mapping[str, Any]) -> TensorSpec:
    """The output with the labels that its parameters have. Another server may mean something else by them:
    what cannot be those of this output is left out."""
    try:
        return replace(spec, labels=json.loads(parameters[LABELS]))
    except (KeyError, RecursionError, TypeError, ValueError):
        return spec
