"""The guide's snippets for hosts that not every environment has are run, as they are, and the examples in public docstrings."""

from __future__ import annotations

import doctest
import gc
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from django.core.wsgi import get_wsgi_application
from django.test import override_settings
from django.urls import include, path
from fastapi import Depends, FastAPI, Security
from fastapi.security import APIKeyHeader
from fastapi.testclient import TestClient
from flask import Flask, abort, request
from starlette.applications import Starlette
from werkzeug.exceptions import NotFound
from werkzeug.middleware.dispatcher import DispatcherMiddleware

import oip_asgi
from oip_asgi import InferenceServer, Observation, OIPApp
from oip_asgi.django import urls
from oip_asgi.flask import blueprint
from oip_asgi.mlserver import register_folder
from oip_asgi.specs import specs_of
from tests.support.client import Client
from tests.support.host_ways import configure_django
from tests.support.readme import CURLS, SNIPPETS
from tests.support.ways import Request, Way, over_asgi, over_wsgi


def names_of(containing: str) -> dict[str, Any]:
    [snippet] = [snippet for snippet in SNIPPETS if containing in snippet]
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(snippet, "README.md", "exec"), names)
    return names


KEY = (("x-api-key", "s3cret"),)
[(PATH, BODY)] = {curl for curl in CURLS if "5.1, 3.5" in curl[1]}


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("models")
    monkeypatch.setitem(sys.modules, "models", module)
    module.__dict__.update(names_of('KEY = "s3cret"'))


def check_first_answer(way: Way, *, status_of_ready: int) -> None:
    request = Request("POST", PATH.removeprefix("/v2"), KEY, BODY.encode())
    assert way(request).body == b'{"model_name":"iris","outputs":[{"name":"output_0","shape":[1],"datatype":"INT64","data":[0]}]}'
    refused = way(replace(request, headers=()))
    assert (refused.status, json.loads(refused.body)) == (401, {"error": "send the header x-api-key"})
    opened = [way(Request("GET", path)).status for path in ("/health/live", "/health/ready", "/models/iris/ready")]
    assert opened == [200, 200, status_of_ready]


@pytest.mark.usefixtures("models")
def test_the_first_answers_of_asgi(monkeypatch: pytest.MonkeyPatch) -> None:
    for names, status_of_ready in ((names_of("class KeyMiddleware"), 401), (names_of("Depends(check_header)"), 200)):
        check_first_answer(over_asgi(names["app"], "/v2"), status_of_ready=status_of_ready)
        app = ModuleType("app")
        monkeypatch.setitem(sys.modules, "app", app)
        app.__dict__["app"] = names["app"]
        names_of("TestClient(app, headers=")["test_iris"]()


@pytest.mark.usefixtures("models")
def test_fastapis_own_document_is_open_in_the_first_answer_and_an_option_leaves_it_out() -> None:
    document = Request("GET", "/openapi.json")
    assert over_asgi(names_of("Depends(check_header)")["app"], "")(document).status == 200
    assert over_asgi(FastAPI(openapi_url=None), "")(document).status == 404


def test_a_route_that_drains() -> None:
    ask = over_asgi(names_of('app.post("/drain"')["app"], "")
    ready, drain = Request("GET", "/v2/health/ready"), Request("POST", "/drain")
    assert [ask(each).status for each in (ready, drain, ready, replace(drain, headers=KEY), ready)] == [200, 401, 200, 200, 503]


def test_workers_that_drain_by_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "drain"
    monkeypatch.setenv("DRAIN_FILE", str(path))
    workers = [over_asgi(names_of("DRAIN.exists()")["app"], "") for _ in range(2)]
    infer = Request("POST", "/v2/models/double/infer", body=b'{"inputs":[{"name":"x","datatype":"FP64","shape":[1],"data":[2]}]}')
    ready = Request("GET", "/v2/health/ready")

    def statuses() -> list[int]:
        return [ask(each).status for ask in workers for each in (ready, infer)]

    assert statuses() == [200] * 4
    path.touch()
    assert statuses() == [503, 200] * 2
    path.unlink()
    assert statuses() == [200] * 4


def test_what_an_observer_hears_of_is_there_after_the_yield_of_the_lifespan() -> None:
    server, seen, written = InferenceServer(), list[Observation](), list[Observation]()
    server.register("double", lambda x: x * 2)
    server.observe(seen.append)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        written.extend(seen)

    app = FastAPI(lifespan=lifespan)
    OIPApp(server).install(app, "/v2")
    body = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [1], "data": [2]}]}
    with TestClient(app) as client:
        for _ in range(3):
            assert client.post("/v2/models/double/infer", json=body).status_code == 200
    assert len(written) == 3


@pytest.mark.usefixtures("models")
def test_the_first_answer_of_flask() -> None:
    check_first_answer(over_wsgi(names_of("from flask import Flask, abort")["app"], "/v2"), status_of_ready=200)


@pytest.mark.usefixtures("models")
def test_the_first_answer_of_django(monkeypatch: pytest.MonkeyPatch) -> None:
    configure_django()
    urls = ModuleType("shop_urls")
    urls.__dict__.update(names_of("# shop/urls.py"))
    monkeypatch.setitem(sys.modules, "shop_urls", urls)
    with override_settings(ROOT_URLCONF="shop_urls", MIDDLEWARE=["shop_urls.check_key"]):
        check_first_answer(over_wsgi(get_wsgi_application(), "/v2"), status_of_ready=401)


def test_the_adapter_of_the_guide() -> None:
    handle = names_of("def handle(event")["handle"]
    body = b'{"inputs":[{"name":"x","datatype":"FP64","shape":[1],"data":[2]}]}'
    headers = {"content-type": "application/json"}
    answer = handle({"path": "/models/double/infer", "method": "POST", "headers": headers, "body": body})
    assert (answer["status"], json.loads(answer["body"])["outputs"][0]["data"]) == (200, [4.0])
    assert handle({"path": "", "method": "GET", "headers": {}, "body": b""})["status"] == 200
    refused = handle({"path": "/models/a%2Fb", "method": "GET", "headers": {}, "body": b""})
    assert (refused["status"], json.loads(refused["body"])["error"].partition(":")[0]) == (404, "Request for unknown model")


def test_the_operations_of_the_guide() -> None:
    try:
        client = Client(names_of("prometheus_client.make_asgi_app()")["app"])
    finally:
        gc.unfreeze()
    body = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [1], "data": [2]}]}
    answer = client.post("/v2/models/double/infer", json=body)
    assert (answer.status_code, answer.json()["outputs"][0]["data"]) == (200, [4])
    assert 'oip_requests_total{model="double",outcome="ok",server="shop",version=""} 1.0' in client.get("/metrics/").text


def test_the_numbers_of_several_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    counted = 'from prometheus_client import Counter\nCounter("calls", "Calls.").inc(2)'
    for _ in range(2):
        subprocess.run([sys.executable, "-c", counted], check=True)
    answer = Client(names_of("MultiProcessCollector(registry)")["metrics"]).get("/")
    assert (answer.status_code, "calls_total 4.0" in answer.text) == (200, True)


def test_errors_of_calls_in_a_route() -> None:
    names = names_of("@app.exception_handler(InferenceError)")
    names["server"].register("iris", load=lambda: lambda x: x)
    client = Client(names["app"])
    assert client.post("/reload/iris").json() == "loaded"
    answer = client.post("/reload/irs")
    text = "Request for unknown model: 'irs' is not found: expected 'iris'"
    assert (answer.status_code, answer.json()) == (404, {"error": text})
    names["server"].stop()


def test_fastapi(monkeypatch: pytest.MonkeyPatch) -> None:
    app = names_of("HTTPBearer(auto_error=False)")["app"]
    monkeypatch.setenv("TOKEN", "t")
    for client in (Client(app), Client(app, root_path="/api")):
        assert [client.get(path).status_code for path in ("/v2/health/live", "/v2", "/v2/models", "/v2/models/x")] == [200, 401, 401, 401]
        assert client.get("/v2/models", headers={"authorization": "Bearer t"}).json() == {"models": []}


configure_django()

NAMES: dict[str, Any] = {name: getattr(oip_asgi, name) for name in oip_asgi.__all__}
OTHERS: dict[str, Any] = {"urls": urls, "blueprint": blueprint, "specs_of": specs_of, "register_folder": register_folder}
OF_HOSTS: Any = (APIKeyHeader, Depends, FastAPI, Security, Starlette, DispatcherMiddleware, NotFound, Flask, abort, include)
GLOBALS = {**NAMES, **OTHERS, **{each.__name__: each for each in OF_HOSTS}, "request": request, "path": path, "np": np, "npt": npt}
FIRST = [
    *("InferenceServer", "InferenceServer.register", "InferenceServer.model", "OIPApp", "OIPApp.install", "OIPMiddleware", "OIPWSGIApp"),
    *("OIPWSGIMiddleware", "TensorSpec", "InferenceError", "InferenceRequest", "ResponseCache", "SharedMemory", *OTHERS),
]
FINDER = doctest.DocTestFinder(exclude_empty=True)
FOUND = [test for name, value in (NAMES | OTHERS).items() for test in FINDER.find(value, name, module=False, globs=GLOBALS)]
EXAMPLES = {test.name: test for test in FOUND if test.examples}


def test_each_of_the_first_names_has_an_example() -> None:
    assert [name for name in FIRST if name not in EXAMPLES] == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_works(name: str) -> None:
    if name == "specs_of":
        pytest.importorskip("pandas")
    printed: list[str] = []
    results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(EXAMPLES[name], out=printed.append)
    assert results.failed == 0, "".join(printed)
