"""The operations of one model, and of the server, in an OpenAPI document. Knows no document around them.

Specification: OpenAPI 3.1, Operation Object; HTTP/REST API.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from .._models.model import Model
from .._models.specs import TensorSpec
from .._rest.generate import RESERVED_INPUTS, RESERVED_OUTPUTS
from . import examples, schemas
from .components import HEADER_LENGTH, Shared
from .schemas import Schema

_UNDECLARED: Final = (
    "This model does not declare its {what}, so they are not checked{guessed}. Declare them where the model is registered, such as `{how}`."
)

_TOO_LARGE: Final = "This document has no example, which would have {elements} elements."

_BINARY: Final[Mapping[str, Any]] = {"application/octet-stream": {"schema": {"contentMediaType": "application/octet-stream"}}}

_STREAM: Final = {"description": "One event for each response.", "content": {"text/event-stream": {"schema": schemas.STRING}}}


class Shown(NamedTuple):
    """A model at one path.

    Args:
        model: The model.
        path: The path, such as "/models/org%2Fmodel/versions/1".
        key: What names of operations at this path end with.
        of_model: What names of components for this model end with: the same for each of its paths.
    """

    model: Model
    path: str
    key: str
    of_model: str


def path_of(name: str, version: str | None = None) -> str:
    """The path of a model, percent-encoded."""
    path = f"/models/{quote(name, safe='')}"
    return path if version is None else f"{path}/versions/{quote(version, safe='')}"


def server_operations(shared: Shared) -> dict[str, dict[str, Any]]:
    """The operations of the server, by path and method."""

    def get(name: str, summary: str, document: str, *errors: str) -> dict[str, Any]:
        described = {"200": shared.json(document), **shared.errors(*errors)} if errors else {"200": shared.json(document)}
        return {"get": _operation(shared, name, "server", summary, described)}

    ready = get("server_ready", "Whether every model is ready", "ServerReady")
    ready["get"]["responses"]["503"] = shared.json("ServerReady", "A model is not ready.")
    entries = {"type": "array", "items": shared.schema("ModelIndex")}
    listed = {"200": {"description": "OK", "content": {"application/json": {"schema": entries}}}, **shared.errors("400")}
    index = _operation(shared, "server_index", "server", "The models and their states", listed)
    index["requestBody"] = {"content": {"application/json": {"schema": shared.schema("IndexRequest"), "example": {"ready": False}}}}
    return {
        "/": get("server_metadata", "The server's name, version and extensions", "ServerMetadata"),
        "/health/live": get("server_live", "Whether the server is alive", "ServerLive"),
        "/health/ready": ready,
        "/models": get("server_models", "The names of the models", "ModelList"),
        "/models/stats": get("server_stats", "The statistics of all models", "Statistics"),
        "/repository/index": {"post": index},
    }


def control_operations(shared: Shared, name: str, key: str) -> dict[str, dict[str, Any]]:
    """The operations that load and unload a model, by path and method."""
    body = {"content": {"application/json": {"schema": shared.schema("ControlRequest")}}}
    described = {"200": {"description": "Done."}, **shared.errors("400", "404", "500", "503")}
    return {
        f"/repository{path_of(name)}/{action}": {
            "post": {
                **_operation(shared, f"{action}_{key}", f"model {name}", f"{action.capitalize()} the model", described),
                "requestBody": body,
            }
        }
        for action in ("load", "unload")
    }


def model_operations(shared: Shared, shown: Shown) -> dict[str, dict[str, Any]]:
    """The operations of a model, by path and method. Only those are there that answer it whole: streams, or one response."""
    model = shown.model

    def get(action: str, summary: str, document: str) -> dict[str, Any]:
        described = {"200": shared.json(document), **shared.errors("404")}
        return {"get": _operation(shared, f"{action}_{shown.key}", f"model {model.name}", summary, described)}

    ready = get("ready", "Whether the model is ready", "ModelReady")
    ready["get"]["responses"]["503"] = shared.json("ModelReady", "The model is not ready.")
    paths = {
        "": get("metadata", "The model's metadata", "ModelMetadata"),
        "/ready": ready,
        "/stats": get("stats", "The model's statistics", "Statistics"),
        "/config": get("config", "The model's configuration", "ModelConfig"),
    }
    inference = _of_stream(shared, shown) if model.streams else _of_one_response(shared, shown)
    return {shown.path + action: operations for action, operations in {**paths, **inference}.items()}


def _of_one_response(shared: Shared, shown: Shown) -> dict[str, dict[str, Any]]:
    model, whole = shown.model, _whole(shared, shown)
    answer = shared.json(f"Response_{shown.of_model}")
    answer["content"].update(_BINARY)
    answer["headers"] = {HEADER_LENGTH: {"description": "How many bytes of a binary body are JSON.", "schema": {"type": "integer"}}}
    if model.outputs and examples.are_small(model.outputs):
        versioned = {} if model.version is None else {"model_version": model.version}
        example = {"model_name": model.name, **versioned, "outputs": examples.tensors(model.outputs)}
        answer["content"]["application/json"]["example"] = example
    infer = _inference(shared, shown, "infer", "Infer", {**whole, "content": {**whole["content"], **_BINARY}}, answer)
    operations = {"/infer": {"post": {**infer, "parameters": [shared.header_length()]}}}
    if _may_be_flat(model):
        generated = shared.json(f"GenerateResponse_{shown.of_model}")
        flat = _inference(shared, shown, "generate", "Infer, with flat JSON objects", _flat(shared, shown), generated)
        operations["/generate"] = {"post": flat}
    return operations


def _may_be_flat(model: Model) -> bool:
    """Whether no tensor has the name of another member of a flat object. Models that stream have none such."""
    inputs, outputs = (*model.shown.required, *model.shown.optional), model.outputs
    return RESERVED_INPUTS.isdisjoint(spec.name for spec in inputs) and RESERVED_OUTPUTS.isdisjoint(spec.name for spec in outputs)


def _of_stream(shared: Shared, shown: Shown) -> dict[str, dict[str, Any]]:
    whole, flat = _whole(shared, shown), _flat(shared, shown)
    return {
        "/infer_stream": {"post": _inference(shared, shown, "inferStream", "Infer, with a stream of responses", whole, _STREAM)},
        "/generate_stream": {
            "post": _inference(shared, shown, "generateStream", "Infer, with a stream of flat JSON objects", flat, _STREAM)
        },
    }


def model_schemas(shared: Shared, shown: Shown) -> dict[str, Schema]:
    """The components that `model_operations` refers to."""
    model, inputs = shown.model, shown.model.shown
    named = (*inputs.required, *inputs.optional)
    declared = {spec.name for spec in model.inputs}
    for spec in (*named, *model.outputs):
        shared.use(spec.datatype)
    taken = [
        schemas.input_tensor(spec, shared.content_types, shared.element_of) if spec.name in declared else _undeclared(shared, spec.name)
        for spec in named
    ]
    made = [schemas.output_tensor(spec, shared.content_types, shared.element_of) for spec in model.outputs]
    flat_inputs = {spec.name: schemas.flat_member(spec, shared.element_of) if spec.name in declared else {} for spec in named}
    flat_outputs = {spec.name: schemas.flat_member(spec, shared.element_of) for spec in model.outputs}
    any_tensor = shared.schema("Tensor")
    outputs: Schema = {"type": "array", "items": schemas.one_of(made) if made else any_tensor}
    return {
        f"Request_{shown.of_model}": schemas.request(_inputs(shown, taken, any_tensor), [spec.name for spec in model.outputs]),
        f"Response_{shown.of_model}": schemas.response(model.name, model.version, outputs),
        f"GenerateRequest_{shown.of_model}": {
            "type": "object",
            "properties": {"id": schemas.STRING, **flat_inputs},
            "required": [spec.name for spec in inputs.required],
        },
        f"GenerateResponse_{shown.of_model}": {
            "type": "object",
            "properties": {"model_name": {"const": model.name}, **flat_outputs},
            "required": ["model_name"],
        },
    }


def _inputs(shown: Shown, taken: Sequence[Schema], any_tensor: Schema) -> Schema:
    required, _, is_open = shown.model.shown
    listed: Schema = {"type": "array", "minItems": len(required)}
    if is_open:
        return {**listed, "items": any_tensor}
    return {**listed, "maxItems": len(taken), "items": schemas.one_of(taken) if taken else any_tensor}


def _undeclared(shared: Shared, name: str) -> Schema:
    return {"allOf": [shared.schema("Tensor")], "title": name, "properties": {"name": {"const": name}}}


def _operation(shared: Shared, name: str, tag: str, summary: str, responses: dict[str, Any]) -> dict[str, Any]:
    return {"operationId": shared.namespace.lower() + "_" + name, "tags": [tag], "summary": summary, "responses": responses}


def _inference(shared: Shared, shown: Shown, action: str, summary: str, body: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    described = {"200": answer, **shared.errors()}
    return {
        **_operation(shared, f"{action}_{shown.key}", f"model {shown.model.name}", summary, described),
        "requestBody": {"required": True, **body},
    }


def _whole(shared: Shared, shown: Shown) -> dict[str, Any]:
    """The body that is an inference request."""
    specs = _exemplary(shown.model)
    content: dict[str, Any] = {"schema": shared.schema(f"Request_{shown.of_model}")}
    if examples.are_small(specs):
        content["example"] = {"inputs": examples.tensors(specs)}
    return _body(content, _described(shown.model, specs))


def _flat(shared: Shared, shown: Shown) -> dict[str, Any]:
    """The body that is a flat object of the generate extension."""
    specs = _exemplary(shown.model)
    content: dict[str, Any] = {"schema": shared.schema(f"GenerateRequest_{shown.of_model}")}
    if examples.are_small(specs):
        content["example"] = examples.members(specs)
    return _body(content, _described(shown.model, specs))


def _body(content: dict[str, Any], description: str) -> dict[str, Any]:
    body = {"content": {"application/json": content}}
    return {"description": description, **body} if description else body


def _exemplary(model: Model) -> tuple[TensorSpec, ...]:
    """The inputs of an example: those that a request must have, or a guess where it may have any."""
    required, optional, is_open = model.shown
    return (TensorSpec("x", "FP32", [-1]),) if is_open and not required and not optional else required


def _described(model: Model, specs: Sequence[TensorSpec]) -> str:
    """What to declare, and why there is no example."""
    missing: dict[str, Sequence[TensorSpec]] = {}
    declared = {spec.name for spec in model.inputs}
    guessed = any(spec.name not in declared for spec in specs)
    if guessed:
        missing["inputs"] = specs
    if not model.outputs:
        missing["outputs"] = [TensorSpec("y", "FP32", [-1])]
    sentences = []
    if missing:
        how = ", ".join(f"{what}=[{', '.join(map(_written, tensors))}]" for what, tensors in missing.items())
        example = ", and the example is a guess" if guessed else ""
        sentences.append(_UNDECLARED.format(what=" and ".join(missing), guessed=example, how=how))
    if not examples.are_small(specs):
        sentences.append(_TOO_LARGE.format(elements=examples.count(specs)))
    return " ".join(sentences)


def _written(spec: TensorSpec) -> str:
    return f'TensorSpec("{spec.name}", "{spec.datatype}", {list(spec.shape)})'
