"""The page of the models in a real browser: Chromium, without a screen.

Run by `tox -e page`, which has Debian's package in the folder CHROMIUM; without that variable it is the `chromium` on the PATH. With the
variable SCREENSHOTS, pictures of the page are written to that folder, to be looked at.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.support.described import LARGE
from tests.support.page_site import MARKUP
from tests.support.processes import Served, serving

PLACES = ["/v2/docs", "/v2/docs/", "/shop/v2/docs", "/shop/v2/docs/"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    command = ["python", "-m", "uvicorn", "tests.support.page_site:app", "--port", "PORT", "--no-access-log"]
    with serving(command, tmp_path_factory.mktemp("page") / "site.log", ready="/v2/health/live") as served:
        yield served


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    folder = os.environ.get("CHROMIUM")
    program, libraries = shutil.which("chromium"), ""
    if folder is not None:
        root = Path(folder).resolve() / "usr" / "lib"
        program = str(root / "chromium" / "chromium")
        libraries = ":".join(str(path) for path in [*root.glob("*-linux-gnu"), *root.glob("*-linux-gnu/pulseaudio")])
    assert program is not None, "there is no chromium on the PATH"
    with sync_playwright() as playwright:
        # a container has no user namespaces for Chromium's sandbox
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox"], env={**os.environ, "LD_LIBRARY_PATH": libraries}
        )
        yield browser
        browser.close()


class Seen:
    """What happened in a page: what its console says, and what it asked for."""

    def __init__(self, page: Page) -> None:
        self.console: list[str] = []
        self.urls: list[str] = []
        page.on("console", lambda message: self.console.append(message.text))
        page.on("pageerror", lambda error: self.console.append(str(error)))
        page.on("request", lambda request: self.urls.append(request.url))


def opened(browser: Browser, address: str, **options: Any) -> tuple[Page, Seen]:
    page = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **options}).new_page()
    page.set_default_timeout(15_000)
    seen = Seen(page)
    page.goto(address)
    return page, seen


def picture(page: Page, name: str) -> None:
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


def answer_of(page: Page) -> Any:
    return json.loads(page.locator("#answer pre").inner_text())


@pytest.mark.parametrize("place", PLACES)
def test_the_page_loads_and_a_model_answers(site: Served, browser: Browser, place: str) -> None:
    page, seen = opened(browser, site.url + place)
    expect(page.locator("h2")).to_have_text("iris")
    expect(page).to_have_title("iris · described")
    expect(page.locator("#server")).to_have_text("described")
    expect(page.locator("#state")).to_have_text("ready")
    expect(page.locator("#inputs td")).to_have_text(["x", "FP32", "[-1, 4]"])
    expect(page.locator("#outputs td")).to_have_text(["label", "INT64", "[-1]"])
    page.click("#send")
    expect(page.locator("#answer .badge")).to_have_text("200 OK")
    assert answer_of(page) == {"model_name": "iris", "outputs": [{"name": "label", "shape": [1], "datatype": "INT64", "data": [0]}]}
    expect(page.locator("#totals")).to_contain_text("since the start, 0 failed")
    page.wait_for_timeout(4500)  # two readings of the statistics
    expect(page.locator("#rate")).to_have_text(re.compile("[0-9.]+"))
    picture(page, f"light{place.replace('/', '-')}")
    mount = site.url + place.partition("/docs")[0]
    assert all(url.startswith(mount + "/") for url in seen.urls)
    assert seen.console == []


def test_the_link_to_the_document_works(site: Served, browser: Browser) -> None:
    for place in PLACES:
        page, _ = opened(browser, site.url + place)
        with page.expect_navigation():
            page.click("text=OpenAPI")
        assert page.url == site.url + place.partition("/docs")[0] + "/openapi.json"


def test_errors_are_shown(site: Served, browser: Browser) -> None:
    page, seen = opened(browser, f"{site.url}/v2/docs#model=iris")
    page.fill("#body", '{"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}')
    page.click("#send")
    expect(page.locator("#answer .badge")).to_have_text("400 Bad Request")
    expect(page.locator("#answer .failed")).to_have_text("input 'x' has shape [1, 3]: expected [-1, 4]")
    page.fill("#body", "{")
    page.click("#send")
    expect(page.locator("#answer .failed")).to_contain_text("the body")
    picture(page, "error")
    page.click("#reset")
    page.click("#send")
    expect(page.locator("#answer .badge")).to_have_text("200 OK")
    page.click("text=raises")
    expect(page.locator("h2")).to_have_text("raises")
    page.click("#send")
    expect(page.locator("#answer .failed")).to_have_text("model 'raises' failed: see the server's log")
    page.click("text=not loaded")
    expect(page.locator("#state")).to_have_text("unavailable: load failed, see the server's log")
    page.goto(f"{site.url}/v2/docs#model=nobody")
    expect(page.locator("#message")).to_have_text('There is no model "nobody".')
    # what Chromium itself says of an error's status
    assert {text.partition(":")[0] for text in seen.console} == {"Failed to load resource"}


def test_each_model_shows_and_answers(site: Served, browser: Browser) -> None:
    page, seen = opened(browser, f"{site.url}/v2/docs")
    expect(page.locator("#models a").first).to_be_visible()
    names = [name for name in page.locator("#models a").all_inner_texts() if not name.startswith(("raises", "not loaded"))]
    assert MARKUP in names
    assert len(names) >= 18
    for name in names:
        page.get_by_role("link", name=name, exact=True).click()
        expect(page.locator("h2")).to_have_text(name)
        page.click("#send")
        expect(page.locator("#answer .badge")).to_have_text("200 OK")
        if name == LARGE:
            assert answer_of(page)["outputs"][0]["data"] == [0]
    assert seen.console == []


def test_versions_can_be_chosen(site: Served, browser: Browser) -> None:
    page, seen = opened(browser, f"{site.url}/v2/docs#model=org%2Fscorer&version=9")
    expect(page.locator("#chosen-version")).to_have_value("9")
    expect(page.locator("#inputs td").last).to_have_text("[9]")
    page.select_option("#chosen-version", "1")
    expect(page.locator("#inputs td").last).to_have_text("[1]")
    page.click("#send")
    expect(page.locator("#answer .badge")).to_have_text("200 OK")
    assert answer_of(page)["model_version"] == "1"
    page.go_back()
    expect(page.locator("#inputs td").last).to_have_text("[9]")
    assert seen.console == []


def test_a_stream_is_shown_as_it_comes(site: Served, browser: Browser) -> None:
    page, seen = opened(browser, f"{site.url}/v2/docs#model=slow+stream")
    page.click("#send")
    expect(page.locator("#answer pre")).to_contain_text("[0]")
    assert "[3]" not in page.locator("#answer pre").inner_text()
    expect(page.locator("#answer pre")).to_contain_text("[3]")
    picture(page, "stream")
    assert seen.console == []


def test_the_lines_for_the_shell_and_for_python_do_what_the_form_does(site: Served, browser: Browser) -> None:
    page, _ = opened(browser, f"{site.url}/v2/docs#model=exact")
    tensor = '{"name": "x", "shape": [1], "datatype": "INT64", "data": [9007199254740993]}'
    body = '{"id": "it\'s é \\"1\\" \\u2028 \\\\ true", "parameters": {"a": true, "b": null}, "inputs": [' + tensor + "]}"
    page.fill("#body", body.replace(', "b": null', ""))
    page.locator("summary").click()
    page.fill("#headers", "X-Key: it's secret")
    with page.expect_request("**/repository/index") as asked:
        page.locator("#headers").blur()
    assert asked.value.headers["x-key"] == "it's secret"  # as a host may ask for it before it shows anything
    page.click("#send")
    expect(page.locator("#answer .badge")).to_have_text("200 OK")
    expected = answer_of(page)
    assert expected["id"] == 'it\'s é "1" \u2028 \\ true'
    assert expected["outputs"][0]["data"] == [9007199254740993]
    for element, command in (("#curl", ["sh", "-c"]), ("#python", [sys.executable, "-c"])):
        text = page.locator(element).inner_text()
        assert "X-Key" in text
        done = subprocess.run([*command, text], capture_output=True, text=True, check=True)
        assert (json.loads(done.stdout) if element == "#curl" else eval(done.stdout)) == expected


def test_the_lines_for_a_stream(site: Served, browser: Browser) -> None:
    page, _ = opened(browser, f"{site.url}/v2/docs#model=chat")
    expect(page.locator("#curl")).to_contain_text("infer_stream")
    for element, command in (("#curl", ["sh", "-c"]), ("#python", [sys.executable, "-c"])):
        done = subprocess.run([*command, page.locator(element).inner_text()], capture_output=True, text=True, check=True)
        assert done.stdout.count("data: {") == 3


def test_the_keyboard_is_enough(site: Served, browser: Browser) -> None:
    page, seen = opened(browser, f"{site.url}/v2/docs")
    expect(page.locator("h2")).to_have_text("iris")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    for _ in range(5):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "all datatypes"
    page.keyboard.press("Enter")
    expect(page.locator("h2")).to_have_text("all datatypes")
    assert page.evaluate("document.activeElement.textContent") == "all datatypes"
    page.focus("#body")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#answer .badge")).to_have_text("200 OK")
    page.focus("#filter")
    page.keyboard.type("SCOR")
    expect(page.locator("#models a")).to_have_text(["org/scorer"])
    assert seen.console == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone(site: Served, browser: Browser, scheme: Any) -> None:
    phone = {"viewport": {"width": 360, "height": 740}, "device_scale_factor": 2, "is_mobile": True, "has_touch": True}
    page, seen = opened(browser, f"{site.url}/v2/docs", color_scheme=scheme, **phone)
    for name in ("all datatypes", "org/scorer", MARKUP, LARGE, "greet"):
        page.get_by_role("link", name=name, exact=True).tap()
        expect(page.locator("h2")).to_have_text(name)
        page.locator("#send").tap()
        expect(page.locator("#answer .badge")).to_have_text("200 OK")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, name
    picture(page, f"phone-{scheme}")
    assert seen.console == []


def test_dark(site: Served, browser: Browser) -> None:
    page, _ = opened(browser, f"{site.url}/v2/docs", color_scheme="dark")
    page.click("#send")
    expect(page.locator("#answer .badge")).to_have_text("200 OK")
    picture(page, "dark")
    for element in ("html", "section", "pre", "textarea", "select"):
        color = page.locator(element).first.evaluate("element => getComputedStyle(element).backgroundColor")
        assert max(int(part) for part in color.removeprefix("rgb(").removesuffix(")").split(",")) < 60, (element, color)


def test_a_server_that_is_gone_is_told(site: Served, browser: Browser) -> None:
    page, _ = opened(browser, f"{site.url}/v2/docs")
    expect(page.locator("h2")).to_have_text("iris")
    page.route("**/v2/models/iris/infer", lambda route: route.abort())
    page.click("#send")
    expect(page.locator("#answer .failed")).to_contain_text("The request failed")
    page.route("**/repository/index", lambda route: route.abort())
    expect(page.locator("#message")).to_contain_text("The server does not answer.", timeout=20_000)
