"""The operations of a server and its models, and the components that they share, in an OpenAPI document.
Knows no document around them.

Specification: OpenAPI 3.1, Operation Object, Components Object; HTTP/REST API.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from .._codecs.rows import Rows
from .._extensions import config, model_statistics, repository
from .._models.inputs import Input
from .._models.model import Model, path_of
from .._protocol import schemas as documents
from .._protocol.specs import TensorSpec, write_spec
from .._rest.body import HEADER_LENGTH
from .._rest.generate import RESERVED_INPUTS, RESERVED_OUTPUTS
from .json_schemas import (
    ANY_TENSOR,
    MAX_ELEMENTS,
    PARAMETERS,
    STRING,
    Schema,
    count_elements,
    describe_any_tensor,
    describe_element,
    describe_member,
    describe_request,
    describe_response,
    describe_row,
    describe_tensor,
    join_schemas,
    make_example_members,
    make_example_tensors,
)

Control: TypeAlias = Literal["load", "unload"]

CONTROLS: Final[tuple[Control, ...]] = ("load", "unload")
"""What clients may do to a model, if the server has `model_control=True`."""

_DOCUMENTS: Final = (
    documents.ServerMetadata,
    documents.ServerLive,
    documents.ServerReady,
    documents.ModelList,
    documents.ModelMetadata,
    documents.ModelReady,
    documents.Error,
    documents.ModelIndex,
    repository.IndexRequest,
    repository.ControlRequest,
    model_statistics.Statistics,
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

_LENGTH_OF_JSON: Final = {
    "name": HEADER_LENGTH,
    "in": "header",
    "description": (
        "How many bytes of the body are JSON. The tensors' bytes follow, in the order of the inputs, each as "
        "many as its parameter `binary_data_size` says. With 0, the body is the only input's bytes."
    ),
    "schema": {"type": "integer", "minimum": 0},
}

_PARAMETERS: Final = (
    "Any other member is a parameter: a string, a number, true or false. A list or an object is refused, "
    "and so is a name that is nearly "
    "that of an input that is not there."
)

_BINARY: Final[Mapping[str, Any]] = {
    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
}

_STREAM: Final = {
    "description": "One event for each response.",
    "content": {"text/event-stream": {"schema": STRING}},
}


def pack(value: dict[str, Any]) -> msgspec.Raw:
    """The JSON of a part of the document. A tenth of its dicts, and nothing for the garbage collector: of
    thousands of models that would hold the interpreter for as long as it goes through them, and so the event
    loop too."""
    return msgspec.Raw(msgspec.json.encode(value))


class ModelPath(NamedTuple):
    model: Model
    path: str  # such as "/models/org%2Fmodel/versions/1"
    key: str  # what names of operations at this path end with
    of_model: str  # how the names of its components end: the same for each of its paths


class Operations:
    """Makes operations by path and method, and the components that they refer to, whose names begin with the
    namespace.

    `content_types` has the datatype that each content type of the server needs.
    """

    def __init__(self, namespace: str, content_types: Mapping[str, str | None]) -> None:
        self._namespace = namespace
        self._content_types = content_types
        self._datatypes: set[str] = set()
        self._model_schemas: dict[str, msgspec.Raw] = {}

    def describe_components(self) -> dict[str, Any]:
        reference = self._refer_to("{name}")["$ref"]
        _, described = msgspec.json.schema_components(_DOCUMENTS, ref_template=reference)
        # a description is for readers of the code, and the components have names
        structs = {
            name: {key: value for key, value in schema.items() if key not in ("description", "title")}
            for name, schema in described.items()
        }
        elements = {datatype: describe_element(datatype) for datatype in sorted(self._datatypes)}
        all_schemas = {**structs, "Tensor": ANY_TENSOR, **elements, **self._model_schemas}
        return {
            "schemas": {self._namespace + name: schema for name, schema in all_schemas.items()},
            "responses": {
                f"{self._namespace}Error{status}": _make_response(self._refer_to("Error"), text)
                for status, text in _ERRORS.items()
            },
            "parameters": {f"{self._namespace}HeaderLength": _LENGTH_OF_JSON},
        }

    def _refer_to(self, name: str) -> Schema:
        return {"$ref": f"#/components/schemas/{self._namespace}{name}"}

    def _list_errors(self, *statuses: str) -> dict[str, Any]:
        return {
            status: {"$ref": f"#/components/responses/{self._namespace}Error{status}"} for status in statuses
        }

    def _make_operation(
        self, name: str, tag: str, summary: str, responses: dict[str, Any], **more: Any
    ) -> dict[str, Any]:
        return {
            "operationId": f"{self._namespace.lower()}_{name}",
            "tags": [tag],
            "summary": summary,
            "responses": responses,
            **more,
        }

    def _make_get(
        self, name: str, tag: str, summary: str, schema: str, *errors: str, not_ready: str = ""
    ) -> dict[str, Any]:
        told = self._refer_to(schema)
        responses = {
            "200": _make_response(told),
            **self._list_errors(*errors),
            **({"503": _make_response(told, not_ready)} if not_ready else {}),
        }
        return {"get": self._make_operation(name, tag, summary, responses)}

    def describe_server(self) -> dict[str, dict[str, Any]]:
        entries = {"type": "array", "items": self._refer_to("ModelIndex")}
        asked = {"schema": self._refer_to("IndexRequest"), "example": {"ready": False}}
        index = self._make_operation(
            "server_index",
            "server",
            "The models and their states",
            {"200": _make_response(entries), **self._list_errors("400")},
            requestBody={"content": {"application/json": asked}},
        )
        return {
            "/": self._make_get(
                "server_metadata", "server", "The server's name, version and extensions", "ServerMetadata"
            ),
            "/health/live": self._make_get(
                "server_live", "server", "Whether the server is alive", "ServerLive"
            ),
            "/health/ready": self._make_get(
                "server_ready",
                "server",
                "Whether every model is ready",
                "ServerReady",
                not_ready="A model is not ready.",
            ),
            "/models": self._make_get("server_models", "server", "The names of the models", "ModelList"),
            "/models/stats": self._make_get(
                "server_stats", "server", "The statistics of all models", "Statistics"
            ),
            "/repository/index": {"post": index},
        }

    def describe_control(
        self, name: str, key: str, actions: Collection[Control]
    ) -> dict[str, dict[str, Any]]:
        body = {"content": {"application/json": {"schema": self._refer_to("ControlRequest")}}}
        responses = {"200": {"description": "Done."}, **self._list_errors("400", "404", "500", "503")}
        return {
            f"/repository{path_of(name)}/{action}": {
                "post": self._make_operation(
                    f"{action}_{key}",
                    f"model {name}",
                    f"{action.capitalize()} the model",
                    responses,
                    requestBody=body,
                )
            }
            for action in actions
        }

    def describe_model(self, at: ModelPath) -> dict[str, dict[str, Any]]:
        """The operations of a model: either those with a stream of responses, or those with one."""
        model, tag = at.model, f"model {at.model.name}"
        self._add_schemas(at)
        paths = {
            "": self._make_get(f"metadata_{at.key}", tag, "The model's metadata", "ModelMetadata", "404"),
            "/ready": self._make_get(
                f"ready_{at.key}",
                tag,
                "Whether the model is ready",
                "ModelReady",
                "404",
                not_ready="The model is not ready.",
            ),
            "/stats": self._make_get(f"stats_{at.key}", tag, "The model's statistics", "Statistics", "404"),
            "/config": self._make_get(
                f"config_{at.key}", tag, "The model's configuration", "ModelConfig", "404"
            ),
        }
        whole = self._describe_body(at, "Request", lambda specs: {"inputs": make_example_tensors(specs)})
        flat = self._describe_body(at, "GenerateRequest", make_example_members)
        if model.streams:
            paths["/infer_stream"] = self._make_post(
                at, "inferStream", "Infer, with a stream of responses", whole, _STREAM
            )
            paths["/generate_stream"] = self._make_post(
                at, "generateStream", "Infer, with a stream of flat JSON objects", flat, _STREAM
            )
        else:
            whole["content"].update(_BINARY)
            paths["/infer"] = self._make_post(
                at,
                "infer",
                "Infer",
                whole,
                self._describe_response(at),
                parameters=[{"$ref": f"#/components/parameters/{self._namespace}HeaderLength"}],
            )
            # none may have the name of another member of a flat object; no model that streams has such a
            # tensor
            inputs = [spec.name for specs in _list_inputs(model) for spec in specs]
            outputs = [spec.name for spec in model.outputs]
            if RESERVED_INPUTS.isdisjoint(inputs) and RESERVED_OUTPUTS.isdisjoint(outputs):
                response = self._refer_to(f"GenerateResponse_{at.of_model}")
                paths["/generate"] = self._make_post(
                    at, "generate", "Infer, with flat JSON objects", flat, _make_response(response)
                )
        return {at.path + action: operations for action, operations in paths.items()}

    def _make_post(
        self,
        at: ModelPath,
        action: str,
        summary: str,
        body: dict[str, Any],
        response: dict[str, Any],
        **more: Any,
    ) -> dict[str, Any]:
        description = at.model.binding.description
        operation = self._make_operation(
            f"{action}_{at.key}",
            f"model {at.model.name}",
            summary,
            {"200": response, **self._list_errors(*_ERRORS)},
            requestBody={"required": True, **body},
            **more,
            **({"description": description} if description else {}),
        )
        return {"post": operation}

    def _describe_body(
        self, at: ModelPath, schema: str, example: Callable[[Sequence[TensorSpec]], dict[str, Any]]
    ) -> dict[str, Any]:
        """The body of a request to a model, with an example unless that is large."""
        required, optional = _list_inputs(at.model)
        is_guess = at.model.binding.inputs.others is not None and not required and not optional
        specs = [TensorSpec("x", "FP32", [-1])] if is_guess else required
        obstacle = _find_obstacle(specs)
        description = " ".join(filter(None, [_suggest_specs(at.model, specs, optional), obstacle]))
        content = {
            "schema": self._refer_to(f"{schema}_{at.of_model}"),
            **({} if obstacle else {"example": example(specs)}),
        }
        return {
            **({"description": description} if description else {}),
            "content": {"application/json": content},
        }

    def _describe_response(self, at: ModelPath) -> dict[str, Any]:
        """The response of a model, with an example if its outputs are declared and small."""
        model, content = at.model, {"schema": self._refer_to(f"Response_{at.of_model}")}
        if model.outputs and count_elements(model.outputs) <= MAX_ELEMENTS:
            content["example"] = {
                "model_name": model.name,
                **({} if model.version is None else {"model_version": model.version}),
                "outputs": make_example_tensors(model.outputs),
            }
        return {
            "description": "OK",
            "content": {"application/json": content, **_BINARY},
            "headers": {
                HEADER_LENGTH: {
                    "description": "How many bytes of a binary body are JSON.",
                    "schema": {"type": "integer"},
                }
            },
        }

    def _list_rows(self, specs: Sequence[TensorSpec], fields: Mapping[str, Schema]) -> dict[str, Schema]:
        """The schema of a row of each tensor. That of a field of a class has its bounds and its description
        too."""
        return {
            spec.name: fields.get(spec.name)
            or describe_row(spec, {**self._refer_to(spec.datatype), **spec.bounds})
            for spec in specs
        }

    def _add_schemas(self, at: ModelPath) -> None:
        model, (required, optional) = at.model, _list_inputs(at.model)
        named, known = [*required, *optional], model.binding.inputs
        self._datatypes.update(spec.datatype for spec in (*named, *model.outputs))
        rows, returned = model.binding.arguments.rows, model.binding.returned.request_codec
        taken_as = self._list_rows(named, rows.as_inputs.schemas if rows else {})
        made_as = self._list_rows(
            model.outputs, returned.as_outputs.schemas if isinstance(returned, Rows) else {}
        )
        declared, defaults = {spec.name for spec in model.inputs}, _list_defaults(model)
        inputs = [
            describe_tensor(spec, self._content_types, taken_as[spec.name], has_data=True)
            if spec.name in declared
            else describe_any_tensor(spec.name)
            for spec in named
        ]
        for spec, schema in zip(named, inputs, strict=True):
            schema["properties"]["data"] = {**schema["properties"]["data"], **defaults.get(spec.name, {})}
        outputs = [
            describe_tensor(spec, self._content_types, made_as[spec.name], has_data=False)
            for spec in model.outputs
        ]
        any_tensor, is_any = self._refer_to("Tensor"), known.others is not None
        taken = {
            "type": "array",
            "minItems": sum(spec.name not in known.scalars for spec in required),  # which may be parameters
            **({} if is_any else {"maxItems": len(inputs)}),
            "items": join_schemas(inputs) if inputs and not is_any else any_tensor,
        }
        made = {"type": "array", "items": join_schemas(outputs) if outputs else any_tensor}
        schemas = {
            f"Request_{at.of_model}": describe_request(taken, [spec.name for spec in model.outputs]),
            f"Response_{at.of_model}": describe_response(model.name, model.version, made),
            **self._describe_flat_request(at, taken_as, [spec.name for spec in required]),
            **self._describe_flat_response(at, made_as),
        }
        self._model_schemas.update((name, pack(schema)) for name, schema in schemas.items())

    def _describe_flat_request(
        self, at: ModelPath, rows: Mapping[str, Schema], required: Sequence[str]
    ) -> dict[str, Schema]:
        binding, ranks = at.model.binding, {spec.name: len(spec.shape) for spec in at.model.inputs}
        members = {
            name: describe_member(row, is_nested=ranks[name] > 1) if name in ranks else {}
            for name, row in rows.items()
        }
        others: Schema = (
            {"additionalProperties": binding.inputs.others is not None}
            if binding.takes_any_key or binding.read_alone
            else {"additionalProperties": True, "description": _PARAMETERS}
        )
        whole = {
            "type": "object",
            "properties": {"id": STRING, "parameters": PARAMETERS, **members},
            "required": required,
            **others,
        }
        row = {"type": "object", "properties": rows, "required": required, "additionalProperties": False}
        return self._allow_rows(at, "GenerateRequest", whole, row)

    def _describe_flat_response(self, at: ModelPath, rows: Mapping[str, Schema]) -> dict[str, Schema]:
        """The same of a response, which may have other members: outputs that are not declared, and
        parameters."""
        own = describe_response(at.model.name, at.model.version, {})["properties"]
        named = {name: own[name] for name in ("id", "model_name", "model_version") if name in own}
        members = {name: describe_member(row, is_nested=False) for name, row in rows.items()}
        whole = {
            "type": "object",
            "properties": {**named, **members},
            "required": ["model_name"],
            "additionalProperties": True,
        }
        return self._allow_rows(
            at,
            "GenerateResponse",
            whole,
            {"type": "object", "properties": rows, "additionalProperties": True},
        )

    def _allow_rows(self, at: ModelPath, name: str, whole: Schema, row: Schema) -> dict[str, Schema]:
        """A flat object, or a list of rows where the model takes one."""
        rows = at.model.binding.arguments.rows
        if rows is None or not rows.is_list:
            return {f"{name}_{at.of_model}": whole}
        columns, each = f"{name}Columns_{at.of_model}", f"{name}Row_{at.of_model}"
        either = [self._refer_to(columns), {"type": "array", "items": self._refer_to(each)}]
        return {f"{name}_{at.of_model}": {"anyOf": either}, columns: whole, each: row}


def _list_inputs(model: Model) -> tuple[list[TensorSpec], list[TensorSpec]]:
    """The inputs that a request must have, and those that it may have, each with the content type that its
    values are read with."""
    # what a model reads by itself it only declares
    entries = list(model.binding.inputs.entries.values()) or [
        Input(spec.name, spec, content_type=spec.content_type) for spec in model.inputs
    ]
    required = [entry.describe() for entry in entries if entry.is_needed]
    return required, [entry.describe() for entry in entries if not entry.is_needed]


def _find_obstacle(specs: Sequence[TensorSpec]) -> str:
    """Why a request has no example; nothing if it has one. An estimator that takes several datatypes need not
    take zeros."""
    elements = count_elements(specs)
    if elements > MAX_ELEMENTS:
        return f"This document has no example, which would have {elements} elements."
    if any(spec.other_datatypes is not None and spec.example is None for spec in specs):
        return "This document has no example, as the model does not say which values it takes."
    return ""


def _list_defaults(model: Model) -> dict[str, Schema]:
    """What the data of scalars are by default, by input. JSON has no infinity and no NaN."""
    defaults = {each.name: each.default for each in model.binding.arguments.parameters}
    return {
        name: {"default": [default]}
        for name, default in defaults.items()
        if name in model.binding.inputs.scalars
        and (isinstance(default, (str, int)) or (isinstance(default, float) and math.isfinite(default)))
    }


def _suggest_specs(model: Model, specs: Sequence[TensorSpec], optional: Sequence[TensorSpec]) -> str:
    """What to declare. Of what was written for another server, nothing is checked."""
    handler = model.lifecycle.handler
    if handler is not None and not handler.is_checked:
        return ""
    declared = {spec.name for spec in model.inputs}
    is_guess = any(spec.name not in declared for spec in specs)
    tensors = {
        "inputs": [*specs, *optional] if is_guess else [],  # what is left out could not be sent any more
        "outputs": [] if model.outputs else [TensorSpec("y", "FP32", [-1])],
    }
    missing = {
        what: ", ".join(write_spec(spec.name, spec.datatype, spec.shape) for spec in of_it)
        for what, of_it in tensors.items()
        if of_it
    }
    if not missing:
        return ""
    how = ", ".join(f"{what}=[{written}]" for what, written in missing.items())
    guessed = ", and the example is a guess" if is_guess else ""
    return (
        f"This model does not declare its {' and '.join(missing)}, so they are not checked{guessed}. Declare "
        f"them where the model is registered, such as `{how}`."
    )


def _make_response(schema: Schema, description: str = "OK") -> dict[str, Any]:
    """A response that is a document with this schema."""
    return {"description": description, "content": {"application/json": {"schema": schema}}}
