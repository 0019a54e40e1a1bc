"""What those that generate clients need of the OpenAPI documents. `tox -e generators` generates and calls two of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import numpy as np
import pytest

from oip_asgi import InferenceServer, TensorSpec
from tests.support.described import described_server

PLACES = ("schemas", "properties", "anyOf", "oneOf", "prefixItems")
UNTYPED = {"$ref", "anyOf", "oneOf", "allOf", "enum"}


class Point(msgspec.Struct):
    at: Annotated[list[float], msgspec.Meta(min_length=1, max_length=3)]
    weight: float = 1.0


def schemas_in(part: Any, where: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Each schema of a document, and those that are in it."""
    if isinstance(part, list):
        for index, each in enumerate(part):
            yield from schemas_in(each, f"{where}/{index}")
    elif isinstance(part, dict):
        if where.endswith(("/schema", "/items")) or where.rpartition("/")[0].endswith(PLACES):
            yield where, part
        for key, each in part.items():
            if key not in ("example", "examples", "default"):
                yield from schemas_in(each, f"{where}/{key}")


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    server = described_server(model_control=True)
    server.register("points", lambda points: points, inputs=[TensorSpec("points", "FP32", [-1, 3])])
    return server.openapi()


def schemas_of(server: InferenceServer) -> dict[str, Any]:
    schemas: dict[str, Any] = server.openapi()["components"]["schemas"]
    return schemas


def test_arrays_have_items_and_nothing_is_a_const(document: dict[str, Any]) -> None:
    schemas = dict(schemas_in(document))
    assert len(schemas) > 500
    assert [where for where, schema in schemas.items() if schema.get("type") == "array" and "items" not in schema] == []
    assert [where for where, schema in schemas.items() if "const" in schema] == []
    assert [where for where, schema in schemas.items() if "enum" in schema and "type" not in schema] == []
    assert [where for where, schema in schemas.items() if schema and "type" not in schema and schema.keys().isdisjoint(UNTYPED)] == []
    # a title would name a file, but an input and an output may differ by case only, and a host's document may hold two servers
    assert [where for where, schema in schemas.items() if isinstance(schema.get("title"), str)] == []
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    bodies = [each[part] for each in operations for part in ("requestBody", "responses") if part in each]
    binary = [body for body in bodies if "application/octet-stream" in json.dumps(body)]
    assert len(binary) > 20
    for body in binary:
        content = body.get("200", body)["content"]
        assert content["application/octet-stream"] == {"schema": {"type": "string", "format": "binary"}}


def test_a_fixed_dimension_is_a_number_within_bounds() -> None:
    server = InferenceServer()
    server.register("m", lambda x: x, inputs=[TensorSpec("x", "FP32", [-1, 3])])
    tensor = schemas_of(server)["OipRequest_m"]["properties"]["inputs"]["items"]
    size, three = {"type": "integer", "minimum": 0}, {"type": "integer", "minimum": 3, "maximum": 3}
    assert tensor["properties"]["shape"] == {"type": "array", "prefixItems": [size, three], "items": size, "minItems": 2, "maxItems": 2}
    flat = {"type": "array", "items": {"$ref": "#/components/schemas/OipFP32"}}
    assert tensor["properties"]["data"] == {"anyOf": [flat, {"type": "array", "items": flat}]}


NAMES = [("add", "Add"), ("a_b", "AB"), ("a_b", "a-b", "A B"), ("m_2", "m", "M"), ("OUTPUT0", "output_0", "Output0", "output_0_2")]
NAMES += [("a/b", "a_b", "a b", "a_b_2", "é", "ü", "stream_x", "x", "server_live", "v", "v_v1")]


@pytest.mark.parametrize("names", NAMES)
def test_names_differ_by_more_than_case_and_underscores(names: tuple[str, ...]) -> None:
    """They name classes and files."""
    server = InferenceServer()
    for name in names:
        server.register(name, lambda x: x, version="1" if name == "v" else None)
    document = server.openapi()
    schemas = [*document["components"]["schemas"]]
    operations = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    for each in (schemas, operations):
        assert len({name.replace("_", "").lower() for name in each}) == len(each)
        assert all(name.replace("_", "").isalnum() and name.isascii() for name in each)
    assert len([name for name in schemas if name.startswith("OipRequest_")]) == len(names)


def test_a_response_of_generate_may_have_outputs_that_are_not_declared() -> None:
    server = InferenceServer()
    server.register("m", lambda x: {"doubled": x * 2})
    assert schemas_of(server)["OipGenerateResponse_m"] == {
        "type": "object",
        "properties": {"id": {"type": "string"}, "model_name": {"type": "string", "enum": ["m"]}},
        "required": ["model_name"],
        "additionalProperties": True,
    }


def test_lengths_of_lists_and_what_else_generate_takes_are_said() -> None:
    pydantic = pytest.importorskip("pydantic")
    scores = Annotated[list[int], pydantic.Field(max_length=4, description="Of each test.")]
    cls: Any = pydantic.create_model("Scores", scores=(scores, ...), raw=(list[bytes], []), kind=(str, "binary"))

    def of_pydantic(rows: Any) -> np.ndarray[Any, Any]:
        return np.zeros(len(rows))

    def of_msgspec(points: list[Point]) -> list[Point]:
        return points

    of_pydantic.__annotations__["rows"] = list[cls]
    server = InferenceServer()
    server.register("m", of_pydantic)
    server.register("points", of_msgspec)
    server.register("add", lambda a, b: a + b, inputs=[TensorSpec("a", "FP32", [-1]), TensorSpec("b", "FP32", [-1])])
    schemas = schemas_of(server)
    assert schemas["OipGenerateRequestRow_m"]["properties"] == {
        "scores": {"type": "array", "description": "Of each test.", "items": {"type": "integer"}, "maxItems": 4},
        "raw": {"type": "array", "items": {"type": "string"}, "default": []},
        "kind": {"type": "string", "default": "binary"},
    }
    at = {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 3}
    assert schemas["OipGenerateRequestRow_points"]["properties"] == {"at": at, "weight": {"type": "number", "default": 1.0}}
    assert schemas["OipGenerateRequest_add"]["description"] == (
        "Any other member is a parameter: a string, a number, true or false. A list or an object is refused, and so is a name that is "
        "nearly that of an input that is not there."
    )
