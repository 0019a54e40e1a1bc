"""Pages of other sites in a real browser: they change nothing, and what no preflight stops makes no model run.

Run by `tox -e page`. The server is a real uvicorn at 127.0.0.1. Pages at "localhost" are of another site, pages at 127.0.0.1 with another
port are of the same site, and `models.example` stands for a server in the clear, to which browsers send `Origin` but no `Sec-Fetch-Site`.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.shared_memory import SharedMemory
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.chromium import launched
from tests.support.processes import Served, get, post, serving

INFER: Final = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}
KEY: Final = f"oip_asgi_foreign_pages_{os.getpid()}"
REGISTER: Final = {"key": f"/{KEY}", "offset": 0, "byte_size": 8}

CHANGES: Final[dict[str, Any]] = {
    "/repository/models/kept/load": {},
    "/repository/models/kept/unload": {},
    "/systemsharedmemory/region/foreign/register": REGISTER,
    "/systemsharedmemory/region/own/unregister": {},
    "/systemsharedmemory/unregister": {},
}
RUNS: Final[dict[str, Any]] = {"/models/kept/infer": INFER, "/models/kept/generate": {"x": [1.0]}, "/models/kept/versions/1/infer": INFER}

FORM: Final = """async ({url, body}, type, fields) => {
  const frame = Object.assign(document.createElement("iframe"), {name: "f" + Math.random()});
  document.body.append(frame);
  const form = Object.assign(document.createElement("form"), {method: "post", action: url, enctype: type, target: frame.name});
  for (const [name, value] of fields) form.append(Object.assign(document.createElement("input"), {name, value}));
  document.body.append(form);
  await new Promise(resolve => { frame.onload = resolve; form.submit(); });
}"""
ELEMENT: Final = """({url}, name, member) => new Promise(resolve => {
  const element = document.createElement(name);
  element.onload = element.onerror = resolve;
  element[member] = url;
  if (name === "link") element.rel = "stylesheet";
  document.body.append(element);
})"""
FETCH: Final = """async ({url, body}, options) => {
  try { await fetch(url, {method: "POST", body, credentials: "include", ...options}); } catch (error) { }
}"""

POSTS: Final[dict[str, str]] = {
    # a text/plain form sends "name=value": a name and a value are chosen so that this is JSON
    "form, text/plain": f"sent => ({FORM})(sent, 'text/plain', [[sent.body.slice(0, -1) + ',\"id\":\"', '\"}}']])",
    "form, urlencoded": f"sent => ({FORM})(sent, 'application/x-www-form-urlencoded', [['body', sent.body]])",
    "form, multipart": f"sent => ({FORM})(sent, 'multipart/form-data', [['body', sent.body]])",
    "form of a sandboxed frame": """async ({url}) => {
      const frame = document.createElement("iframe");
      frame.sandbox = "allow-scripts allow-forms";
      frame.srcdoc = `<form method=post action="${url}"></form><script>document.forms[0].submit()<\\/script>`;
      document.body.append(frame);
    }""",
    "fetch, no-cors": f"sent => ({FETCH})(sent, {{mode: 'no-cors'}})",
    "fetch, no-cors, without referrer": f"sent => ({FETCH})(sent, {{mode: 'no-cors', referrerPolicy: 'no-referrer'}})",
    "beacon": "({url, body}) => navigator.sendBeacon(url, body)",
    "ping of a link": """async ({url}) => {
      const link = Object.assign(document.createElement("a"), {href: "#clicked", ping: url});
      document.body.append(link);
      link.click();
    }""",
}
"""What a page can POST to another origin without a preflight."""

GETS: Final[dict[str, str]] = {
    "image": f"sent => ({ELEMENT})(sent, 'img', 'src')",
    "script": f"sent => ({ELEMENT})(sent, 'script', 'src')",
    "style": f"sent => ({ELEMENT})(sent, 'link', 'href')",
    "frame": f"sent => ({ELEMENT})(sent, 'iframe', 'src')",
}

CORS: Final = f"sent => ({FETCH})(sent, {{mode: 'cors'}})"
JSON_CORS: Final = f"sent => ({FETCH})(sent, {{mode: 'cors', headers: {{'content-type': 'application/json'}}}})"
SAME_ORIGIN: Final = f"sent => ({FETCH})(sent, {{mode: 'same-origin'}})"


class Blank(BaseHTTPRequestHandler):
    """An empty page at each path."""

    def do_GET(self) -> None:
        body = b"<!doctype html><title>a page</title><body></body>"
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Sides:
    """The server, and what pages of others may be opened from."""

    def __init__(self, served: Served, foreign: int, trusted: int) -> None:
        self.served, self.foreign, self.trusted = served, foreign, trusted

    def read(self, path: str) -> Any:
        return get(f"{self.served.url}{path}", timeout=30).json()

    def state(self) -> Any:
        """All that pages of others must not change."""
        counts = self.read("/counts")
        index = post(f"{self.served.url}/v2/repository/index", timeout=30).json()
        stats = self.read("/v2/models/kept/stats")["model_stats"][0]["inference_count"]
        return counts, index, stats, self.read("/v2/systemsharedmemory/status")

    def received(self, page: Page, script: str, path: str, body: Any, host: str = "127.0.0.1", most: float = 10.0) -> list[dict[str, str]]:
        """Run a script in a page, and return what the server received for the path, in so many seconds at most."""
        before = len(self.read("/received"))
        page.evaluate(script, {"url": f"http://{host}:{self.served.port}/v2{path}", "body": json.dumps(body)})
        end = time.monotonic() + most
        while True:  # some ways tell the page nothing
            got = [each for each in self.read("/received")[before:] if each["path"] == f"/v2{path}"]
            if got or time.monotonic() > end:
                return got
            page.wait_for_timeout(50)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    with ExitStack() as stack:
        ports = []
        for _ in range(2):
            pages = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Blank))
            threading.Thread(target=pages.serve_forever, daemon=True).start()
            stack.callback(pages.shutdown)
            ports.append(pages.server_address[1])
        memory = SharedMemory(KEY, create=True, size=64)
        stack.callback(memory.unlink)
        stack.callback(memory.close)
        command = ["python", "-m", "uvicorn", "tests.support.foreign_site:app", "--port", "PORT", "--no-access-log"]
        env = {"TRUSTED_ORIGIN": f"http://localhost:{ports[1]}", "FOREIGN_KEY": KEY}
        served = stack.enter_context(serving(command, tmp_path_factory.mktemp("foreign") / "site.log", env))
        own = post(f"{served.url}/v2/systemsharedmemory/region/own/register", json=REGISTER, timeout=30)
        assert own.status_code == 200, own.text
        yield Sides(served, *ports)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched("--host-resolver-rules=MAP *.example 127.0.0.1") as browser:
        yield browser


def opened(browser: Browser, address: str) -> Page:
    page = browser.new_context().new_page()
    page.set_default_timeout(15_000)
    page.goto(address)
    return page


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "evil.example"], ids=["another site", "the same site", "in the clear"])
@pytest.mark.parametrize("how", POSTS)
def test_foreign_pages_change_nothing_and_run_no_model(sides: Sides, browser: Browser, how: str, host: str) -> None:
    page, before = opened(browser, f"http://{host}:{sides.foreign}/"), sides.state()
    is_clear = host == "evil.example"
    for path, body in {**CHANGES, **(RUNS if host == "localhost" else {})}.items():
        [got] = sides.received(page, POSTS[how], path, body, "models.example" if is_clear else "127.0.0.1")
        assert (got["method"], got["status"]) == ("POST", "403"), got
        if is_clear:  # the origin is enough
            assert "sec-fetch-site" not in got
            assert got["origin"] in ("null", f"http://evil.example:{sides.foreign}")
        else:
            assert got["sec-fetch-site"] == ("cross-site" if host == "localhost" or "sandboxed" in how else "same-site")
    assert sides.state() == before


@pytest.mark.parametrize("how", GETS)
def test_images_and_links_do_nothing(sides: Sides, browser: Browser, how: str) -> None:
    page, before = opened(browser, f"http://localhost:{sides.foreign}/"), sides.state()
    for path in (*CHANGES, *RUNS):
        [got] = sides.received(page, GETS[how], path, {})
        assert (got["method"], got["status"]) == ("GET", "405"), got
    for path in (*CHANGES, *RUNS):
        page.goto(f"http://localhost:{sides.foreign}/")
        page.evaluate("url => { document.body.innerHTML = `<a href='${url}'>a link</a>`; }", f"{sides.served.url}/v2{path}")
        with page.expect_navigation():
            page.click("a")
        assert page.url == f"{sides.served.url}/v2{path}"
    assert sides.state() == before


def test_fetch_with_cors(sides: Sides, browser: Browser) -> None:
    page, before = opened(browser, f"http://localhost:{sides.foreign}/"), sides.state()
    for path, body in CHANGES.items():
        [got] = sides.received(page, CORS, path, body)
        assert got["status"] == "403"
    for path, body in {**CHANGES, **RUNS}.items():  # the preflight is not answered, so nothing else is sent
        assert [got["method"] for got in sides.received(page, JSON_CORS, path, body)] == ["OPTIONS"]
        assert sides.received(page, SAME_ORIGIN, path, body, most=0.0) == []
    assert sides.state() == before
    # text without a preflight: the model runs, and the page cannot read the answer, as the server has no CORS middleware
    [got] = sides.received(page, CORS, "/models/kept/infer", INFER)
    assert (got["status"], got["sec-fetch-mode"]) == ("200", "cors")


@pytest.mark.parametrize("mode", ["no-cors", "cors"])
def test_a_trusted_page_may(sides: Sides, browser: Browser, mode: str) -> None:
    page = opened(browser, f"http://localhost:{sides.trusted}/")
    script = f"sent => ({FETCH})(sent, {{mode: '{mode}'}})"
    before = sides.read("/counts")
    for path, body in {**CHANGES, **RUNS}.items():
        if path.endswith("/unload"):
            continue
        [got] = sides.received(page, script, path, body)
        assert got["status"] == "200", got
    assert sides.read("/counts") == {"calls": before["calls"] + len(RUNS), "loads": before["loads"] + 1}
    assert sides.read("/v2/systemsharedmemory/status") == []
    [got] = sides.received(page, script, "/systemsharedmemory/region/own/register", REGISTER)
    assert got["status"] == "200"


def test_the_servers_own_page_may(sides: Sides, browser: Browser) -> None:
    page = opened(browser, f"{sides.served.url}/v2/docs")
    expect(page.locator("h2")).to_have_text("kept")
    page.click("#send")
    expect(page.locator("#answer .badge")).to_have_text("200 OK")
    for path in ("/repository/models/kept/unload", "/repository/models/kept/load"):
        [got] = sides.received(page, SAME_ORIGIN, path, {})
        assert (got["status"], got["sec-fetch-site"]) == ("200", "same-origin")
    [entry] = post(f"{sides.served.url}/v2/repository/index", timeout=30).json()
    assert entry["state"] == "READY"
