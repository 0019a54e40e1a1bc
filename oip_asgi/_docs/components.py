"""What operations of an OpenAPI document share: the documents of the protocol, errors, and the header of binary data.

Knows no models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from .._extensions import config, repository, statistics
from .._protocol import schemas as documents
from . import schemas
from .schemas import Schema

_DOCUMENTS: Final = (
    documents.ServerMetadata,
    documents.ServerLive,
    documents.ServerReady,
    documents.ModelList,
    documents.ModelMetadata,
    documents.ModelReady,
    repository.ModelIndex,
    repository.IndexRequest,
    repository.ControlRequest,
    statistics.Statistics,
    config.ModelConfig,
)

_ERRORS: Final = {
    "400": "The request is wrong. The text says what was wrong, where, and what was expected.",
    "404": "There is no such model or version.",
    "413": "The body is larger than the server takes.",
    "415": "The body has a content coding that the server cannot decode.",
    "500": "The model failed.",
    "503": "The model is not ready, or too many requests wait for it.",
    "504": "The model took too long.",
}

HEADER_LENGTH: Final = "Inference-Header-Content-Length"

_BINARY: Final = (
    "How many bytes of the body are JSON. The tensors' bytes are behind them, in the order of the inputs, each as many as its parameter "
    "`binary_data_size` says. With 0, the body is the only input's bytes."
)


class Shared:
    """References to the shared components, and these themselves."""

    def __init__(self, namespace: str, content_types: Mapping[str, str | None]) -> None:
        self.namespace = namespace
        self.content_types = content_types
        self._datatypes: set[str] = set()
        self._errors = {status: {"$ref": f"#/components/responses/{namespace}Error{status}"} for status in _ERRORS}

    @property
    def element_of(self) -> str:
        """Where the schemas of elements are, as a reference that ends before the datatype."""
        return f"#/components/schemas/{self.namespace}"

    def schema(self, name: str) -> Schema:
        """A reference to a schema."""
        return {"$ref": self.element_of + name}

    def use(self, datatype: str) -> None:
        """Note that elements of a datatype are referred to."""
        self._datatypes.add(datatype)

    def json(self, name: str, described: str = "OK") -> dict[str, Any]:
        """A response that is a document with this schema."""
        return {"description": described, "content": {"application/json": {"schema": self.schema(name)}}}

    def errors(self, *statuses: str) -> dict[str, Any]:
        """The responses that are errors; all of them where no status is given."""
        return {status: self._errors[status] for status in statuses or _ERRORS}

    def header_length(self) -> dict[str, Any]:
        """The parameter that says where binary data begins."""
        return {"$ref": f"#/components/parameters/{self.namespace}HeaderLength"}

    def components(self) -> dict[str, Any]:
        """All of them."""
        _, structs = msgspec.json.schema_components(_DOCUMENTS, ref_template=self.element_of + "{name}")
        for schema in structs.values():
            schema.pop("description", None)  # it speaks to who reads the code
        all_schemas = {**structs, "Error": schemas.ERROR, "Tensor": schemas.ANY_TENSOR}
        all_schemas.update((datatype, schemas.element(datatype)) for datatype in sorted(self._datatypes))
        error = {"application/json": {"schema": self.schema("Error")}}
        return {
            "schemas": {self.namespace + name: schema for name, schema in all_schemas.items()},
            "responses": {
                f"{self.namespace}Error{status}": {"description": described, "content": error} for status, described in _ERRORS.items()
            },
            "parameters": {
                f"{self.namespace}HeaderLength": {
                    "name": HEADER_LENGTH,
                    "in": "header",
                    "description": _BINARY,
                    "schema": {"type": "integer", "minimum": 0},
                }
            },
        }
