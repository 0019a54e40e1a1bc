"""The page's files, and where documents and page are: their headers, other methods, switched off, and under mounts."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import numpy as np
import pytest

import oip_asgi
from oip_asgi import InferenceServer, OIPApp, OIPMiddleware, OIPWSGIApp, OIPWSGIMiddleware, ResponseCache, TensorSpec
from tests.support.asking import get
from tests.support.inside import set_clock
from tests.support.inside.http import FILES, POLICY, SHOWN
from tests.support.node import Scripts
from tests.support.talk import Talk
from tests.support.ways import Request, other_asgi_app, other_wsgi_app, over_asgi, over_wsgi

STATIC = Path(oip_asgi.__file__).parent / "_docs" / "static"
PAGES = ("/docs", *[f"/docs/{name}" for name in FILES], "/openapi.json", "/docs/dataplane.json")
STATE = "/models/m/docs/state.json"
OF_MODEL = ("/models/m/openapi.json", "/models/m/docs/dataplane.json", STATE)


@pytest.fixture
def server() -> InferenceServer:
    server = InferenceServer()
    server.register("m", lambda x: x)
    return server


def headers_of(server: InferenceServer, path: str, *given: tuple[bytes, bytes]) -> tuple[int, dict[bytes, bytes], bytes]:
    """The status, all headers and the body of what is answered over ASGI."""

    async def ask() -> Talk:
        talk = Talk(server, body=b"", path=path, headers=list(given))
        await talk.task
        return talk

    talk = asyncio.run(ask())
    return talk.status, dict(talk.sent[0]["headers"]), talk.body


def test_all_files_are_served_and_none_is_left_over() -> None:
    assert {path.name for path in STATIC.iterdir()} == {"page.html", *FILES}


def test_no_file_names_another_host_and_the_page_has_nothing_inline() -> None:
    for path in STATIC.iterdir():
        text = path.read_text()
        assert set(re.findall(r"\w*:?//[^\s\"'`]+", text)) <= {"http://www.w3.org/2000/svg"}, path.name
    page = (STATIC / "page.html").read_text()
    assert "<style" not in page
    assert " style=" not in page
    assert re.findall("<script [^>]*>", page) == [
        '<script type="module" src="{base}docs/page.js">',
        '<script type="application/json" id="first">',  # data, which no browser runs
    ]
    assert "'unsafe" not in POLICY


def test_a_file_is_asked_for_again_only_if_it_changed(server: InferenceServer) -> None:
    for path in ("/docs", *[f"/docs/{name}" for name in FILES]):
        status, headers, body = headers_of(server, path)
        assert (status, headers[b"cache-control"], headers[b"x-content-type-options"]) == (200, b"no-cache", b"nosniff")
        etag = headers[b"etag"]
        for known in (etag, etag.removeprefix(b"W/"), b'"other", ' + etag, b"*"):
            status, again, nothing = headers_of(server, path, (b"if-none-match", known))
            assert (status, nothing, again[b"etag"], b"content-length" in again) == (304, b"", etag, False)
        status, _, whole = headers_of(server, path, (b"if-none-match", b'"other"'))
        assert (status, whole) == (200, body)


def first_of(server: InferenceServer) -> Any:
    _, _, page = headers_of(server, "/docs")
    [text] = re.findall(rb'<script type="application/json" id="first">(.*?)</script>', page)
    return json.loads(text)


def test_the_page_holds_what_it_shows_first() -> None:
    server = InferenceServer("</script><b>", "1.0")
    assert first_of(server) == {"name": "</script><b>", "version": "1.0", "models": []}
    of_the_package = f"oip_asgi {oip_asgi.__version__}"  # which is not shown as that of the server
    assert first_of(InferenceServer("bank"))["version"] == of_the_package
    text = headers_of(InferenceServer("bank"), "/", (b"accept", b"text/html"))[2].decode()
    assert f'<h1>bank <span class="faint">{of_the_package}</span></h1>' in text
    server.register("org/m", lambda x: x, inputs=[TensorSpec("{base}{first}", "FP32", [-1])])
    server.register("other", lambda x: x)
    first = first_of(server)
    assert [(entry["name"], entry["state"]) for entry in first["models"]] == [("org/m", "READY"), ("other", "READY")]
    assert first["first"]["metadata"] == get(server, "/models/org%2Fm")[1]
    document = get(server, "/models/org%2Fm/openapi.json")[1]
    assert {**first["first"]["document"], "servers": document["servers"]} == document


def test_the_page_is_the_file_with_what_it_shows_first(server: InferenceServer) -> None:
    """For all hosts: tests/hosts/test_page.py and test_mounts.py."""
    for path, base in (("/docs", b""), ("/docs/", b"../")):
        before, after = (STATIC / "page.html").read_bytes().replace(b"{base}", base).split(b"{first}")
        _, headers, page = headers_of(server, path)
        assert (headers[b"content-type"], headers[b"content-length"]) == (b"text/html; charset=utf-8", b"%d" % len(page))
        assert json.loads(page.removeprefix(before).removesuffix(after)) == first_of(server)


def test_the_state_of_a_model_has_its_options_and_its_numbers() -> None:
    server = InferenceServer()
    outputs = [TensorSpec("y", "FP32", [-1, 2], labels=["cat", "dog"])]
    server.register(
        "m", lambda x: x, inputs=[TensorSpec("x", "FP32", [-1, 2])], outputs=outputs, max_batch_size=8, max_queue=5, timeout=2.5,
        cache=ResponseCache(1000),
    )  # fmt: skip
    state = get(server, STATE)[1]
    assert state["options"] == {
        "max_concurrency": 1, "max_queue": 5, "timeout": 2.5, "max_batch_size": 8, "cache": {"max_bytes": 1000, "ttl": None},
    }  # fmt: skip
    assert (state["labels"], state["leaving"], state["refuses"]) == ({"y": ["cat", "dog"]}, "", False)
    assert (state["waiting"], state["running"], set(state["outcomes"].values())) == (0, 0, {0})
    for body in (b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}', b"{"):
        over_asgi(OIPApp(server), "")(Request("POST", "/models/m/infer", (), body))
    state = get(server, STATE)[1]
    assert {outcome: count for outcome, count in state["outcomes"].items() if count} == {"ok": 1, "invalid": 1}
    for name, count in (("durations", 1), ("queues", 1), ("rows", 1)):
        assert sum(state[name]["counts"]) == count
        assert len(state[name]["counts"]) == len(state[name]["bounds"]) + 1
    assert state["rows"]["sum"] == 1
    server.drain()
    state = get(server, STATE)[1]
    assert (state["leaving"], state["refuses"]) == ("draining", False)  # calls go on
    server.unload_sync("m")
    assert get(server, STATE)[1]["refuses"] is True


def test_the_state_of_a_model_says_which_version_answers_requests_that_name_none() -> None:
    for authorize, told in ((None, "10"), (lambda access: True, None)):
        server = InferenceServer(authorize=authorize)
        for version in ("1", "10", "2"):
            server.register("m", lambda x: x, version=version)
        assert get(server, "/models/m/docs/state.json")[1]["default_version"] == "10"
        assert get(server, "/models/m/versions/10/docs/state.json")[1]["default_version"] == "10"
        assert get(server, "/models/m/versions/2/docs/state.json")[1]["default_version"] == told  # which the client may not see
        server.unload_sync("m", "10")
        assert get(server, "/models/m/docs/state.json")[1]["default_version"] == "2"
    server.register("n", lambda x: x)
    assert get(server, "/models/n/docs/state.json")[1]["default_version"] is None


def test_the_page_has_words_for_each_option() -> None:
    words = set(re.findall(r"^  (\w+): \(", (STATIC / "described.js").read_text(), re.MULTILINE))
    assert words == {"max_concurrency", "max_queue", "timeout", *SHOWN}


CLOSE, TWO_KINDS, ALL = [0.0021, 0.0022, 0.0023], [0.01] * 98 + [2.4] * 2, [*np.geomspace(2e-6, 3000, 301)]
DURATIONS: list[list[float]] = [[1.05] * 40, [0.00003] * 5, CLOSE, TWO_KINDS, [0.25] * 10, [600.0], ALL]


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")
def test_the_latency_that_the_page_shows_is_within_five_percent(scripts: Scripts) -> None:
    states, now = [], [0.0]
    for durations in DURATIONS:
        server, left = InferenceServer(), iter(durations)

        @server.model("m", run="inline")
        def model(left: Any = left) -> int:
            now[0] += next(left)
            return 1

        set_clock(server, lambda: now[0])
        for _ in durations:
            server.infer_sync("m", {})
            now[0] = 0.0  # so that the differences are exact
        states.append(get(server, STATE)[1])
    shares = [0.5, 0.99]
    shown = scripts.values_of(f"{shares}.map((share) => numbers.quantile(given.durations, share))", states)
    for durations, found in zip(DURATIONS, shown, strict=True):
        expected = [sorted(durations)[int(np.ceil(len(durations) * share)) - 1] for share in shares]
        assert found == pytest.approx(expected, rel=0.05)


def test_without_docs_there_is_nothing() -> None:
    server = InferenceServer(docs=False)
    server.register("m", lambda x: x)
    for way in (over_asgi(OIPApp(server), ""), over_wsgi(OIPWSGIApp(server), "")):
        for path in (*PAGES, *OF_MODEL):
            assert [way(Request(method, path)).status for method in ("GET", "HEAD", "POST")] == [404] * 3, path
    assert headers_of(server, "/", (b"accept", b"text/html"))[1][b"content-type"] == b"application/json"


def test_a_model_of_any_name_is_reached() -> None:
    server = InferenceServer()
    names = ["openapi.json", "docs", "dataplane.json", "docs/dataplane.json", "docs/state.json", "org/openapi.json"]
    names += ["org/docs/dataplane.json", "org/docs", "a/b"]
    for name in names:
        server.register(name, lambda x: x)
    for name in names:
        quoted = name.replace("/", "%2F")
        assert get(server, f"/models/{quoted}")[1]["name"] == name
        assert get(server, f"/models/{name}/ready")[1] == {"name": name, "ready": True}
        for model in (quoted, name):
            assert get(server, f"/models/{model}/docs/state.json")[0] == 200
            for path in ("openapi.json", "docs/dataplane.json"):
                assert f"/models/{quoted}/infer" in get(server, f"/models/{model}/{path}")[1]["paths"]
    assert get(server, "/openapi.json")[0] == over_asgi(OIPApp(server), "")(Request("GET", "/docs")).status == 200


def test_a_document_names_the_mount_as_this_client_sees_it(server: InferenceServer) -> None:
    """Other mounts: tests/hosts/test_mounts.py."""
    found = {
        "/own": over_asgi(OIPApp(server, path="/own"), "/own"),
        "/proxy/own": over_asgi(OIPApp(server, path="/own"), "/own", root_path="/proxy"),
        "/a%20b": over_wsgi(OIPWSGIMiddleware(other_wsgi_app, server, "/a b"), "/a%20b"),
    }
    for mount, way in found.items():
        assert json.loads(way(Request("GET", "/openapi.json")).body)["servers"] == [{"url": mount}]


def luminance(color: str) -> float:
    """The relative luminance of a color, as WCAG 2 has it."""
    digits = color[1:] if len(color) == 7 else "".join(digit * 2 for digit in color[1:])
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(scheme: str) -> None:
    text = (STATIC / "page.css").read_text()
    light, _, dark = text.partition("prefers-color-scheme: dark")
    colors = dict(re.findall(r"--([\w-]+): (#\w+)", light))
    if scheme == "dark":
        colors.update(re.findall(r"--([\w-]+): (#\w+)", dark))
    behind = {"text": ("page", "card", "code"), "faint": ("page", "card", "code"), "accent": ("page", "card"), "on-accent": ("accent",)}
    behind.update({kind: (f"{kind}-page", "card") for kind in ("good", "bad", "wait")})
    for name, others in behind.items():
        for other in others:
            darker, lighter = sorted([luminance(colors[name]), luminance(colors[other])])
            assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (name, other)


@pytest.mark.parametrize("mount", ["/v2", "/api/v2", "/my models"])
def test_the_bare_mount_links_a_browser_to_the_page(server: InferenceServer, mount: str) -> None:
    browser = (("accept", "text/html,*/*;q=0.8"),)
    for way in (
        over_asgi(OIPMiddleware(other_asgi_app, server, mount), ""),
        over_wsgi(OIPWSGIMiddleware(other_wsgi_app, server, mount), ""),
    ):
        mounted = mount.replace(" ", "%20")
        answer = way(Request("GET", mounted, browser))
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        links = re.findall(r'href="(.*?)"', answer.body.decode())
        linked = [way(Request("GET", urljoin(f"http://test{mounted}", link).removeprefix("http://test"))) for link in links]
        assert [each.headers["content-type"].partition(";")[0] for each in linked] == ["image/svg+xml", "text/css", "text/html"]
        assert json.loads(way(Request("GET", mounted)).body)["name"] == "oip_asgi"


def test_pages_have_a_strict_policy_and_no_markup_of_others(server: InferenceServer) -> None:
    browser = (b"accept", b"text/html")
    for path, kept in (("/", b"no-store"), ("/docs", b"no-cache")):
        _, headers, _ = headers_of(server, path, browser)
        assert (headers[b"cache-control"], headers[b"content-security-policy"]) == (kept, POLICY.encode())
    assert b"<script" not in headers_of(InferenceServer("<script>alert(1)</script>"), "/", browser)[2]


def test_the_lines_of_the_scripts_only_become_fewer() -> None:
    assert sum(len(script.read_text().splitlines()) for script in STATIC.glob("*.js")) <= 3298
    assert {script.name for script in STATIC.glob("*.js")} <= set(FILES)
