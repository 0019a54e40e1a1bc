"""Every example application, started by the command that its docstring documents, and asked by every example client."""

from __future__ import annotations

import json
import shlex
import shutil
import sqlite3
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from tests.support.grpc_asgi import WEB, frame, frames_of
from tests.support.grpc_ways import MESSAGES, SERVICE, wire_request
from tests.support.processes import ROOT, Served, documented, environment, get, head, post, serving

EXAMPLES = sorted((ROOT / "examples" / "hosts").glob("*.py"))
WITH_GRPC = ["fastapi_app", "litestar_app", "quart_app", "starlette_app"]
WITH_PUBLIC = ["django_app", "fastapi_app", "flask_blueprint"]
WITH_DATABASE = ["django_app", "flask_blueprint", "starlette_app"]
ADA = ("ada", "lovelace")
FLOWERS = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [2, 4], "data": [[5.1, 3.5, 1.4, 0.2], [6.3, 3.3, 6.0, 2.5]]}]}
VALUES = np.array(FLOWERS["inputs"][0]["data"], "<f8").tobytes()
IRIS = wire_request("iris", [{"name": "x", "datatype": "FP64", "shape": [2, 4]}], [VALUES]).SerializeToString()
SPECIES = b"\x06\0\0\0setosa\x09\0\0\0virginica"


SERVERS = [(path, command) for path in EXAMPLES for command in documented(path) if not command.startswith("curl ")]
STARLETTE = next(server for server in SERVERS if server[0].stem == "starlette_app")


def named(server: tuple[Path, str]) -> str:
    return f"{server[0].stem} by {server[1].split()[0]}"


def test_there_is_an_example_for_every_host() -> None:
    hosts = ["django_app", "fastapi_app", "flask_blueprint", "litestar_app", "quart_app", "starlette_app"]
    assert [example.stem for example in EXAMPLES] == hosts


@pytest.fixture(scope="module", params=SERVERS, ids=named)
def example(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Served, Path]]:
    path, command = request.param
    place = tmp_path_factory.mktemp(path.stem)
    database = place / "predictions.db"
    assert "8000" in command
    env = {"DATABASE_URL": f"sqlite:///{database}", "DATABASE_PATH": str(database)}
    with serving(shlex.split(command.replace("8000", "PORT")), place / "log", env) as served:
        yield path.stem, served, database


AUSER = """
import asyncio
from base64 import b64encode
import django_app
from django.http import HttpResponse
from django.test import RequestFactory

request = RequestFactory().get("/history", headers={"authorization": "Basic " + b64encode(b"ada:lovelace").decode()})
assert django_app.basic_auth(lambda request: HttpResponse())(request).status_code == 200
print(request.user.get_username(), asyncio.run(request.auser()).get_username())
"""


def test_the_user_of_django_can_be_awaited_too(tmp_path: Path) -> None:
    """As `authorize=` in the guide does."""
    env = environment({"DATABASE_PATH": str(tmp_path / "predictions.db"), "PYTHONPATH": f"{ROOT}:{ROOT / 'examples' / 'hosts'}"})
    run = subprocess.run([sys.executable, "-c", AUSER], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (run.stdout, run.stderr) == ("ada ada\n", "")


def history(served: Served) -> Any:
    response = get(f"{served.url}/history", auth=ADA)
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize("credentials", [("ada", "byron"), ("eve", ""), ("eve", "lovelace"), "Basic ???", "Bearer x", "Basic", None])
def test_nobody_gets_in_without_a_right_password(example: tuple[str, Served, Path], credentials: Any) -> None:
    name, served, _ = example
    before = history(served)
    given: dict[str, Any] = {"auth": credentials} if isinstance(credentials, tuple) else {}
    if isinstance(credentials, str):
        given["headers"] = {"authorization": credentials}
    found = post(f"{served.url}/v2/models/iris/infer", json=FLOWERS, **given)
    assert (found.status_code, found.headers["www-authenticate"]) == (401, "Basic")
    if credentials is None:
        for path in ("/history", "/v2", "/v2/", "/v2/models", "/v2/models/iris", "/v2/docs", "/v2/openapi.json"):
            assert get(served.url + path).status_code == 401, path
        assert get(f"{served.url}/v2/models/iris/ready").status_code == (200 if name in WITH_PUBLIC else 401)
    assert history(served) == before, "the model was called"


WAYS_AROUND = [
    "/v2/health/../models/iris",
    "/v2/health/%2e%2e/models/iris",
    "/v2/health/..%2fmodels/iris",
    "/v2/health//../models/iris",
    "/v2//models/iris",
    "//v2/models/iris",
    "/v2/./models/iris",
    "/v2/models/iris/",
    "/v2/models/iris?/v2/health/live",
    "/v2/models/iris%3f/v2/health/live",
    "/history?/v2/health/",
    "/v2/health/../../history",
]


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        *[("GET", path, {}) for path in WAYS_AROUND],
        *[(method, "/v2/models/iris", {}) for method in ("HEAD", "OPTIONS", "POST", "PROPFIND")],
        *[("GET", "/v2/models/iris", {"Host": host}) for host in ("a/v2/health/", "a/v2/health/live?", "a/v2/health/live")],
        ("GET", "/v2/health/live/v2/models/iris", {"Script-Name": "/v2/health/live", "SCRIPT_NAME": "/v2/health/live"}),
        ("GET", "/v2/models/iris", {"X-Forwarded-Prefix": "/v2/health/live", "X-Original-URL": "/v2/health/live"}),
    ],
)
def test_nothing_gets_around_it(example: tuple[str, Served, Path], method: str, path: str, headers: dict[str, str]) -> None:
    _, served, _ = example
    connection = HTTPConnection("127.0.0.1", served.port, timeout=30)
    with closing(connection):
        connection.request(method, path, headers=headers)  # as it is, where other clients would tidy it up
        response = connection.getresponse()
        text = response.read()
    assert response.status in (301, 308, 400, 401, 404)
    assert b"sklearn" not in text
    assert b"flowers" not in text


def test_probes_need_no_password(example: tuple[str, Served, Path]) -> None:
    _, served, _ = example
    for path, body in {"live": {"live": True}, "ready": {"ready": True, "live": True}}.items():
        found = get(f"{served.url}/v2/health/{path}")
        assert (found.status_code, found.json()) == (200, body)


def test_grpc_web_is_behind_the_same_password(example: tuple[str, Served, Path]) -> None:
    name, served, _ = example
    if name not in WITH_GRPC:
        pytest.skip("WSGI applications and Django have no gRPC in their examples")
    before = history(served)

    def ask(method: str, message: bytes = b"", **given: Any) -> Any:
        return post(f"{served.url}/{method}", content=frame(message), headers={"content-type": WEB}, **given)

    infer = f"{SERVICE}/ModelInfer"
    assert [ask(infer, IRIS, **given).status_code for given in ({}, {"auth": ("ada", "byron")})] == [401, 401]
    assert history(served) == before, "the model was called"
    [(_, answer), (_, trailers)] = frames_of(ask(infer, IRIS, auth=ADA).content)
    assert MESSAGES["ModelInferResponse"].FromString(answer).raw_output_contents == [SPECIES]
    assert trailers == b"grpc-status:0\r\n"
    assert history(served) == {"user": "ada", "flowers": before["flowers"] + 2}
    [(_, healthy), _] = frames_of(ask("grpc.health.v1.Health/Check").content)
    assert healthy == b"\x08\x01"  # SERVING, without a password as for other probes


def test_grpc_is_behind_the_same_password(example: tuple[str, Served, Path]) -> None:
    name, served, _ = example
    if name not in WITH_GRPC or "h2" not in str(served.process.args):
        pytest.skip("its server sends no HTTP/2 trailers")
    before = history(served)
    with grpc.insecure_channel(f"127.0.0.1:{served.port}") as channel:
        infer: Any = channel.unary_unary(f"/{SERVICE}/ModelInfer")
        with pytest.raises(grpc.RpcError) as refused:
            infer(IRIS, timeout=30)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert history(served) == before, "the model was called"
        answer = infer(IRIS, timeout=30, metadata=[("authorization", "Basic " + b64encode(":".join(ADA).encode()).decode())])
    assert MESSAGES["ModelInferResponse"].FromString(answer).raw_output_contents == [SPECIES]
    assert history(served) == {"user": "ada", "flowers": before["flowers"] + 2}


@pytest.mark.ci
def test_with_a_password_the_model_answers_and_reaches_the_host(example: tuple[str, Served, Path]) -> None:
    name, served, database = example
    before = history(served)
    assert before["user"] == "ada"
    found = post(f"{served.url}/v2/models/iris/infer", json=FLOWERS, auth=ADA)
    assert (found.status_code, found.headers["content-type"]) == (200, "application/json")
    assert found.json() == {
        "model_name": "iris",
        "outputs": [{"name": "species", "shape": [2], "datatype": "BYTES", "data": ["setosa", "virginica"]}],
    }
    assert history(served) == {"user": "ada", "flowers": before["flowers"] + 2}
    assert database.exists() == (name in WITH_DATABASE)
    if name in WITH_DATABASE:
        table = "example_prediction" if name == "django_app" else "predictions"
        with closing(sqlite3.connect(database)) as connection:
            [(flowers,)] = connection.execute(f"select sum(flowers) from {table}")
        assert flowers == before["flowers"] + 2


def test_metadata_needs_no_redirect_and_the_host_keeps_its_own_404(example: tuple[str, Served, Path]) -> None:
    name, served, _ = example
    for path in ("/v2", "/v2/"):
        found = get(served.url + path, auth=ADA)
        assert (found.status_code, found.json()["name"]) == (200, f"{name.partition('_')[0]}-example")
    assert head(f"{served.url}/v2", auth=ADA).status_code == 200
    wrong = post(f"{served.url}/v2/models/iris/infer", content=b"{", auth=ADA)
    assert (wrong.status_code, list(wrong.json())) == (400, ["error"])
    missing = get(f"{served.url}/nowhere", auth=ADA)
    assert (missing.status_code, "unknown path" in missing.text) == (404, False)


def test_the_documented_question_is_answered(example: tuple[str, Served, Path]) -> None:
    name, served, _ = example
    [question] = [command for command in documented(ROOT / "examples" / "hosts" / f"{name}.py") if command.startswith("curl ")]
    command = shlex.split(question.replace("8000", str(served.port)))
    run = subprocess.run([*command, "--silent"], env=environment(), capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(run.stdout)["platform"] == "python"


CLIENTS: dict[str, list[str]] = {
    "curl.sh": ["sh"],
    "with_httpx2.py": [sys.executable],
    "with_tritonclient.py": [sys.executable],
    "with_kserve.py": [sys.executable],
    "fetch.mjs": ["node"],
}


def test_every_client_is_run() -> None:
    names = [path.name for path in (ROOT / "examples" / "clients").iterdir() if path.is_file()]
    # the others ask examples of their own: in test_grpc_mounted, and in test_stream_examples
    assert sorted(names) == sorted([*CLIENTS, "grpc_web.mjs", "stream.mjs", "stream_with_tritonclient.py"])


@pytest.mark.clients
@pytest.mark.parametrize(
    "example", [pytest.param(server, marks=[pytest.mark.ci] if server == STARLETTE else []) for server in SERVERS], indirect=True, ids=named
)
@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_gets_the_right_answer(example: tuple[str, Served, Path], client: str) -> None:
    run = run_client(client, example[1])
    assert run.returncode == 0, run.stderr
    if client == "curl.sh":
        assert json.loads(run.stdout)["outputs"][0]["data"] == ["setosa", "virginica"]
    else:
        assert set(run.stdout.splitlines()) == {"setosa virginica"}


@pytest.mark.clients
@pytest.mark.parametrize("example", [STARLETTE], indirect=True, ids=named)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_tells_a_failure(example: tuple[str, Served, Path], client: str) -> None:
    run = run_client(client, example[1], "ada:byron")
    assert run.returncode != 0
    assert "setosa" not in run.stdout


def run_client(client: str, served: Served, *arguments: str) -> subprocess.CompletedProcess[str]:
    [interpreter] = CLIENTS[client]
    if shutil.which(interpreter) is None:
        pytest.skip(f"there is no {interpreter} here")
    command = [interpreter, f"examples/clients/{client}", served.url, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=120)
