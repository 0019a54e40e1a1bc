"""Clients that generators make of the OpenAPI document of a real server call its models. Run by `tox -e generators`.

openapi-python-client is a program of Python. openapi-generator wants a Java, which the machine has or has not.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import environment, get, serving_module

Ask = Callable[[str, str, Any], Any]
"""Sends a body to an action of a model, by the objects of a client, and gives what came back."""

KEYS = {"add": "add", "turned": "turned", "Turned": "turned_2", "prices": "prices"}
"""How the names of the operations of each model end."""

PYTHON_CLIENT = ["openapi-python-client", "generate", "--path", "document.json", "--output-path", "python_client", "--meta", "none"]
GENERATOR = ["openapi-generator-cli", "generate", "-i", "document.json", "-g", "python", "-o", "."]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving_module("tests.support.generated_site") as (_, address):
        yield f"http://{address}/v2"


@pytest.fixture(scope="module")
def folder(address: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the document is, and where the clients are made."""
    folder = tmp_path_factory.mktemp("generated")
    (folder / "document.json").write_text(get(f"{address}/openapi.json").text)
    return folder


def generate(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def to_camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def with_python_client(address: str, folder: Path) -> Ask:
    assert "WARNING" not in generate(PYTHON_CLIENT, folder)
    models, client = importlib.import_module("python_client.models"), importlib.import_module("python_client.client")
    connection = client.Client(base_url=address, raise_on_unexpected_status=True)

    def make(schema: str, body: Any) -> Any:
        return getattr(models, to_camel(schema)).from_dict(body)

    def ask(model: str, action: str, body: Any) -> Any:
        key, kind = KEYS[model], {"infer": "OipRequest", "generate": "OipGenerateRequest"}[action]
        function = importlib.import_module(f"python_client.api.model_{model.lower()}.oip_{action}_{key}").sync
        if isinstance(body, list):
            sent: Any = [make(f"{kind}Row_{key}", row) for row in body]
        elif model == "prices" and action == "generate":
            sent = make(f"{kind}Columns_{key}", body)
        else:
            sent = make(f"{kind}_{key}", body)
        answer = function(client=connection, body=sent)
        return [row.to_dict() for row in answer] if isinstance(answer, list) else answer.to_dict()

    return ask


def with_openapi_generator(address: str, folder: Path) -> Ask:
    if shutil.which("java") is None:
        pytest.skip("openapi-generator wants a Java, which this machine has not")
    generate(GENERATOR, folder)
    client = importlib.import_module("openapi_client")
    connection = client.ApiClient(client.Configuration(host=address))
    # each tag has a class in a file of its own; of tags that differ by case only, the package itself has one
    package = importlib.import_module("openapi_client.api")
    modules = [importlib.import_module(f"openapi_client.api.{each.name}") for each in pkgutil.iter_modules(package.__path__)]
    apis = [made(connection) for module in modules for name, made in vars(module).items() if name.endswith("Api")]

    def ask(model: str, action: str, body: Any) -> Any:
        key, kind = KEYS[model].replace("_", ""), {"infer": "OipRequest", "generate": "OipGenerateRequest"}[action]
        function = next(found for api in apis if (found := getattr(api, f"oip_{action}_{key}", None)))
        sent = getattr(client, f"{kind}{key.capitalize()}").from_json(json.dumps(body))
        answer = function(sent).to_dict()
        return [row.to_dict() for row in answer] if isinstance(answer, list) else answer

    return ask


@pytest.fixture(scope="module", params=[with_python_client, with_openapi_generator], ids=["openapi-python-client", "openapi-generator"])
def ask(request: pytest.FixtureRequest, address: str, folder: Path) -> Iterator[Ask]:
    sys.path.insert(0, str(folder))
    try:
        yield request.param(address, folder)
    finally:
        sys.path.remove(str(folder))


def tensor(name: str, data: list[Any], shape: list[int] | None = None, datatype: str = "FP32") -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape or [len(data)], "data": data}


def outputs_of(answer: Any) -> dict[str, tuple[list[int], list[Any]]]:
    return {each["name"]: (each["shape"], each["data"]) for each in answer["outputs"]}


def test_two_inputs_of_one_datatype_and_an_output_that_is_not_declared(ask: Ask) -> None:
    answer = ask("add", "infer", {"inputs": [tensor("a", [1, 2.5]), tensor("b", [0.25, 4])]})
    assert outputs_of(answer) == {"total": ([2], [1.25, 6.5])}
    assert ask("add", "generate", {"a": [1, 2.5], "b": [0.25, 4]})["total"] == [1.25, 6.5]
    assert ask("add", "generate", {"a": 1.5, "b": 2})["total"] == 3.5


@pytest.mark.parametrize("data", [[1, 2.5, 3, 4], [[1, 2.5], [3, 4]]], ids=["flat", "nested"])
def test_two_dimensions(ask: Ask, data: list[Any]) -> None:
    answer = ask("turned", "infer", {"inputs": [tensor("x", data, [2, 2])]})
    assert outputs_of(answer) == {"y": ([2, 2], [-1, -2.5, -3, -4])}


def test_two_dimensions_of_a_flat_object(ask: Ask) -> None:
    assert ask("turned", "generate", {"x": [[1, 2.5], [3, 4]]})["y"] == [-1, -2.5, -3, -4]


def test_names_that_differ_by_case_only(ask: Ask) -> None:
    answer = ask("Turned", "infer", {"inputs": [tensor("X", [1, 2], datatype="INT64")]})
    assert outputs_of(answer) == {"x": ([2], [2, 3])}
    assert ask("Turned", "generate", {"X": [1, 2]})["x"] == [2, 3]


def test_rows_of_a_class(ask: Ask) -> None:
    rows = [{"power": 1.5, "origin": "Japan", "trips": [1, 2]}, {"power": 2, "origin": "USA", "trips": [3, 4]}]
    assert ask("prices", "generate", rows) == [{"price": 153, "label": "from Japan"}, {"price": 207, "label": "from USA"}]
    columns = ask("prices", "generate", {"power": [1.5, 2], "origin": ["Japan", "USA"]})
    assert columns["price"] == [150, 200]
    inputs = [tensor("power", [1.5, 2], datatype="FP64"), tensor("trips", [1, 2, 3, 4], [2, 2], "FP64")]
    assert outputs_of(ask("prices", "infer", {"inputs": inputs}))["price"] == ([2], [153, 207])
