"""The metadata of a model, as the document that REST and gRPC both send. Knows no transport."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .._models.model import Model
from .._models.specs import TensorSpec
from .._protocol import schemas

_UNDECLARED: Final = "undeclared_inputs"
"""The metadata's parameter with the names of inputs whose datatype and shape are not declared."""


def describe_model(model: Model, versions: list[str]) -> schemas.ModelMetadata:
    """Make a model's metadata."""
    options = model.options
    document = schemas.ModelMetadata(model.name, options.platform, _describe(model.inputs), _describe(model.outputs))
    parameters: schemas.Parameters = {}
    if options.content_type is not None:
        parameters["content_type"] = options.content_type
    if model.undeclared:  # an entry of `inputs` must have a datatype, and these were declared without one
        parameters[_UNDECLARED] = ", ".join(model.undeclared)
    if parameters:
        document.parameters = parameters
    if versions:
        document.versions = versions
    return document


def _describe(specs: Sequence[TensorSpec]) -> list[schemas.MetadataTensor]:
    described = [schemas.MetadataTensor(spec.name, spec.datatype, tuple(spec.shape)) for spec in specs]
    for document, spec in zip(described, specs, strict=True):
        if spec.content_type is not None:
            document.parameters = {"content_type": spec.content_type}
    return described
