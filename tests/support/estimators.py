"""Estimators, and what is declared of them: their data, the words of metadata, and servers that have one as the model "m"."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest
from sklearn.datasets import load_iris

from oip_asgi import InferenceServer
from tests.support.asking import ask, get, outputs

IRIS = load_iris()
X, Y = IRIS.data, IRIS.target_names[IRIS.target]
PEOPLE = pd.DataFrame({"age": [20, 30, 40, 50], "city": ["Bonn", "Ulm", "Bonn", "Ulm"], "fee": [1.0, None, 2.0, 3.0], "note": list("abcd")})
LEAVES = ["no", "yes", "no", "yes"]
ANY: dict[str, Any] = {"datatype": "FP64", "parameters": {"other_datatypes": "all"}}
TEXT: dict[str, Any] = {"datatype": "BYTES", "parameters": {"other_datatypes": "all"}}
ARRAY = {"shape": [-1, 4], "datatype": "FP64", "parameters": {"other_datatypes": "numbers"}}


def scores(datatype: str, *labels: str) -> dict[str, Any]:
    """What is declared of the probabilities of some classes."""
    parameters = {"labels": json.dumps(labels)}
    return {"output_0": {"datatype": datatype, "shape": [-1, len(labels)], "parameters": parameters}}


def served(function: Any, **options: Any) -> InferenceServer:
    server = InferenceServer()
    server.register("m", function, **options)
    return server


def example_of(server: InferenceServer) -> dict[str, Any] | None:
    """The example of a request to "m" in the OpenAPI document."""
    [body] = [each["post"]["requestBody"] for path, each in server.openapi()["paths"].items() if path.endswith("/m/infer")]
    example: dict[str, Any] | None = body["content"]["application/json"].get("example")
    return example


def refusal(call: Any, rows: Any) -> str:
    """What clients are told of rows that a model refuses."""
    with pytest.raises((ValueError, TypeError)) as caught:
        call(rows)
    return f"model 'm' refused the request: {str(caught.value).strip().splitlines()[0]}"


def described(server: InferenceServer, what: str = "inputs") -> dict[str, Any]:
    document = get(server, "/models/m")[1]
    return {each["name"]: {key: value for key, value in each.items() if key != "name"} for each in document[what]}


def columns(**known: Any) -> dict[str, Any]:
    return {name: {"shape": [-1], **more} for name, more in known.items()}


def classified(server: InferenceServer, *arrays: Any) -> Any:
    """The names of the two largest, as clients ask for them by classification."""
    output = {"name": "output_0", "parameters": {"classification": 2}}
    [found] = outputs(ask(server, "m", {"outputs": [output]}, X=arrays[0])).values()
    return [text.rpartition(":")[2] for text in found]
