"""What a browser sends for pages of other sites: it changes nothing, and does not make a model run."""

from __future__ import annotations

import json
from typing import Final

import numpy as np
import numpy.typing as npt
import pytest

from oip_asgi import InferenceServer
from tests.support.grpc_asgi import ASGI_CLIENTS
from tests.support.grpc_ways import made
from tests.support.ways import Headers, Request, ways_into

CONSOLE: Final = "https://console.example"
HOST: Final = ("host", "models.example")
INFER: Final = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}).encode()

CHANGES: Final = [
    "/repository/models/kept/load",
    "/repository/models/kept/unload",
    "/repository/models/absent/unload",
    "/systemsharedmemory/region/r/register",
    "/systemsharedmemory/region/r/unregister",
    "/systemsharedmemory/unregister",
]
RUNS: Final = [f"/models/kept/{action}" for action in ("infer", "generate", "infer_stream", "generate_stream", "versions/1/infer")]

FOREIGN: Final[dict[str, Headers]] = {
    "a form of another site": [("origin", "http://evil.example"), ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")],
    "a form of a page that hides its origin": [("origin", "null"), ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")],
    "fetch without CORS": [("origin", "http://evil.example"), ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")],
    "no origin": [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")],
}
"""What changes nothing and makes no model run."""

BARELY: Final[dict[str, Headers]] = {
    "fetch with CORS": [("origin", "http://evil.example"), ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "cors")],
    "a page of the same site": [("origin", "https://other.example"), ("sec-fetch-site", "same-site"), ("sec-fetch-mode", "cors")],
    "an older browser": [("origin", "http://evil.example")],
    "another port": [("origin", "http://models.example:8080")],
}
"""What changes nothing, but may make a model run: the host's CORS middleware decides who may read the answer."""

OWN: Final[dict[str, Headers]] = {
    "no browser": [],
    "the server's own page": [("origin", "https://models.example"), ("sec-fetch-site", "same-origin"), ("sec-fetch-mode", "cors")],
    "its origin in other letters": [("origin", "HTTPS://Models.Example"), ("sec-fetch-site", "Same-Origin")],
    "an address that the user typed": [("sec-fetch-site", "none"), ("sec-fetch-mode", "navigate")],
    "a trusted page": [("origin", CONSOLE), ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "cors")],
}


NEARLY_OWN: Final[dict[str, Headers]] = {
    "a dot at the end of the host": [HOST, ("origin", "https://models.example.")],
    "the host behind a user": [HOST, ("origin", "https://evil.example@models.example")],
    "the host in a path": [HOST, ("origin", "https://evil.example/://models.example")],
    "a longer host": [HOST, ("origin", "https://evil-models.example")],
    "the scheme of an extension": [HOST, ("origin", "chrome-extension://models.example")],
    "two origins": [HOST, ("origin", "https://models.example"), ("origin", "http://evil.example")],
    "two hosts": [HOST, ("host", "evil.example"), ("origin", "http://evil.example")],
    "an empty origin": [HOST, ("origin", "")],
    "a hidden origin without a host": [("origin", "null")],
    "an empty origin without a host": [("origin", "")],
    "a trusted origin among others": [HOST, ("origin", f"{CONSOLE}, http://evil.example")],
    "another site in capitals": [HOST, ("sec-fetch-site", "CROSS-SITE"), ("sec-fetch-mode", "NO-CORS")],
    "another site twice": [HOST, ("sec-fetch-site", "cross-site"), ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")],
    "a site that nobody knows": [HOST, ("sec-fetch-site", "far-site"), ("sec-fetch-mode", "no-cors")],
    "another site as a suffix": [HOST, ("sec-fetch-site", "same-origin, cross-site"), ("sec-fetch-mode", "no-cors")],
}
"""What might pass for the server's own page, and changes nothing."""


def make_server(calls: list[str]) -> InferenceServer:
    server = InferenceServer(model_control=True, trusted_origins=[CONSOLE])

    def kept(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        calls.append("kept")
        return x

    server.register("kept", kept, run="inline")
    return server


@pytest.mark.parametrize("headers", [*FOREIGN.values(), *BARELY.values()], ids=[*FOREIGN, *BARELY])
def test_foreign_pages_change_nothing(headers: Headers) -> None:
    server = make_server([])
    for way in ways_into(server).values():
        for path in CHANGES:
            got = way(Request("POST", path, [HOST, ("content-type", "text/plain"), *headers], b"{}"))
            assert got.status == 403
            assert json.loads(got.body)["error"].startswith("a page of ")
    assert [model.state for model in server.models()] == ["ready"]


@pytest.mark.parametrize("headers", NEARLY_OWN.values(), ids=NEARLY_OWN)
def test_what_is_nearly_the_own_page_changes_nothing(headers: Headers) -> None:
    calls: list[str] = []
    server = make_server(calls)
    for way in ways_into(server).values():
        for path in CHANGES:
            assert way(Request("POST", path, headers, b"{}")).status == 403
        if any(name == "sec-fetch-mode" for name, _ in headers):
            assert way(Request("POST", RUNS[0], headers, INFER)).status == 403
    assert not calls
    assert [model.state for model in server.models()] == ["ready"]


@pytest.mark.parametrize("method", ["DELETE", "PUT", "PATCH", "GET", "HEAD", "OPTIONS"])
def test_nothing_changes_by_another_method(method: str) -> None:
    server = make_server([])
    for way in ways_into(server).values():
        for path in CHANGES:
            assert way(Request(method, path, [HOST, *FOREIGN["no origin"]])).status in (404, 405)
    assert [model.state for model in server.models()] == ["ready"]


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
def test_foreign_pages_run_no_model_without_a_preflight(headers: Headers) -> None:
    calls: list[str] = []
    for way in ways_into(make_server(calls)).values():
        for path in RUNS:
            assert way(Request("POST", path, [HOST, ("content-type", "text/plain"), *headers], INFER)).status == 403
    assert not calls


@pytest.mark.parametrize("headers", [*BARELY.values(), *OWN.values()], ids=[*BARELY, *OWN])
def test_what_a_preflight_guards_runs(headers: Headers) -> None:
    for way in ways_into(make_server([])).values():
        assert way(Request("POST", "/models/kept/infer", [HOST, *headers], INFER)).status == 200


@pytest.mark.parametrize("headers", OWN.values(), ids=OWN)
def test_own_and_trusted_pages_may_change(headers: Headers) -> None:
    for way in ways_into(make_server([])).values():
        assert way(Request("POST", "/repository/models/kept/unload", [HOST, *headers], b"{}")).status == 200
        assert way(Request("POST", "/repository/models/kept/load", [HOST, *headers], b"{}")).status == 200


def test_reading_is_for_cors_to_decide() -> None:
    for way in ways_into(make_server([])).values():
        for path in ("/models", "/models/kept", "/models/kept/ready", "/systemsharedmemory/status"):
            assert way(Request("GET", path, [HOST, *FOREIGN["no origin"]])).status == 200


@pytest.mark.parametrize("way", ["gRPC-Web", "gRPC-Web text, chunked"])
def test_grpc_web_knows_them_too(way: str) -> None:
    calls: list[str] = []
    server = make_server(calls)
    client = ASGI_CLIENTS[way](server)
    unload = made("RepositoryModelUnload.request", model_name="kept")
    for headers in [*FOREIGN.values(), *BARELY.values()]:
        assert client.refusal("RepositoryModelUnload", unload, headers=[HOST, *headers])[0] == "PERMISSION_DENIED"
    assert [model.state for model in server.models()] == ["ready"]
    for headers in OWN.values():
        client.ask("RepositoryModelUnload", unload, headers=[HOST, *headers])
        client.ask("RepositoryModelLoad", made("RepositoryModelLoad.request", model_name="kept"), headers=[HOST, *headers])


@pytest.mark.parametrize("wrong", ["https://console.example", ["console.example"], ["https://console.example/"], [1]])
def test_what_is_no_origin_is_refused_at_once(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"trusted_origins=.* must be a list of origins"):
        InferenceServer(trusted_origins=wrong)  # type: ignore[arg-type]
