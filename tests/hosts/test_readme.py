"""The guide's snippets for hosts that not every environment has are run, as they are."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.wsgi import get_wsgi_application
from django.test import override_settings

from tests.support.client import Client
from tests.support.host_ways import configure_django
from tests.support.readme import SNIPPETS
from tests.support.ways import Request, Way, over_asgi, over_wsgi


def names_of(containing: str) -> dict[str, Any]:
    [snippet] = [snippet for snippet in SNIPPETS if containing in snippet]
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(snippet, "README.md", "exec"), names)
    return names


def serves(way: Way) -> bool:
    return all(way(Request("GET", path)).status == 200 for path in ("", "/", "/health/live", "/models"))


def test_litestar() -> None:
    assert serves(over_asgi(names_of("import Litestar")["app"], "/v2"))


def test_django() -> None:
    configure_django()
    with override_settings(ROOT_URLCONF=tuple(names_of("# urls.py")["urlpatterns"])):
        assert serves(over_wsgi(get_wsgi_application(), "/v2"))


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
