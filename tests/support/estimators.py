"""Estimators, and what is declared of them: their data, the words of metadata, and servers that have one as the model "m"."""

from __future__ import annotations

from typing import Any

import pandas as pd
from sklearn.datasets import load_iris

from oip_asgi import InferenceServer
from tests.support.asking import ask, get, outputs

IRIS = load_iris()
X, Y = IRIS.data, IRIS.target_names[IRIS.target]
PEOPLE = pd.DataFrame({"age": [20, 30, 40, 50], "city": ["Bonn", "Ulm", "Bonn", "Ulm"], "fee": [1.0, None, 2.0, 3.0], "note": list("abcd")})
LEAVES = ["no", "yes", "no", "yes"]
TEXT: dict[str, Any] = {"datatype": "BYTES", "parameters": {"content_type": "str", "pd_dtype": "object[NaN]"}}
STRICT_TEXT = {"datatype": "BYTES", "parameters": {**TEXT["parameters"], "allow_nan": False}}
NUMBER = {"datatype": "FP64", "parameters": {"other_datatypes": "numbers"}}
FINITE = {"datatype": "FP64", "parameters": {"other_datatypes": "numbers", "allow_nan": False}}
ANY = {"datatype": "FP64", "parameters": {"other_datatypes": "all"}}
CATEGORY = {"datatype": "BYTES", "parameters": {"other_datatypes": "all"}}
ARRAY, FINITE_ARRAY = {"shape": [-1, 4], **NUMBER}, {"shape": [-1, 4], **FINITE}


def served(function: Any, **options: Any) -> InferenceServer:
    server = InferenceServer()
    server.register("m", function, **options)
    return server


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
