"""What a model declares of its tensors, read from its metadata. The lists that a client sends become what is
declared, as on the server itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .._codecs.column_dtypes import CATEGORIES, DTYPE, is_dtype
from .._codecs.content_types import default_codecs
from .._protocol.errors import ModelFault, show
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
        InferenceError: The metadata is not as the protocol has it, or has an unknown datatype.

    Example:
        >>> [spec] = read_specs({"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]}, "inputs")
        >>> spec.name, spec.shape, spec.may_miss
        ('x', (-1, 4), False)
    """
    specs: list[TensorSpec] = []
    for each in get_list(metadata, what):
        try:
            shape, parameters = [int(size) for size in each["shape"]], each.get("parameters") or {}
            fields = {**_find_column(parameters, each["datatype"]), **OpenSpec.find_fields(shape, parameters)}
            if what == "outputs":
                fields["labels"] = _find_labels(parameters)
            specs.append(OpenSpec(each["name"], each["datatype"], shape, **fields))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ModelFault(
                f"the metadata of the model has {show(each)} among its {what}: {error}"
            ) from None
    return specs


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


def _find_labels(parameters: Mapping[str, Any]) -> list[str] | None:
    """The labels of an output, as `TensorSpec.labels` are in metadata: another server may mean something else
    by them."""
    text = parameters.get(LABELS)
    return json.loads(text) if isinstance(text, str) and text.startswith('["') else None
