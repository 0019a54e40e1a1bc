"""What the page shows of the state of servers and models, and who is offered to change it: in Chromium."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Dialog, Route, expect

from tests.support.page import Show, seen_by
from tests.support.processes import Served


def test_a_model_is_loaded_and_unloaded(show: Show) -> None:
    page = show("loaded")
    first = seen_by(page)[0]
    expect(page.locator("#totals")).to_contain_text(" answered.")
    held: list[Route] = []
    page.route("**/load", lambda route: held.append(route))
    page.get_by_role("button", name="Reload").click()
    expect(page.locator("#state")).to_have_text("reloading, still answers")
    expect(page.locator("#state")).to_have_class("badge good")
    listed = page.locator("#models a[aria-current]")
    expect(listed).to_have_text("loaded reloading, still answers")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # the models are listed again
    page.wait_for_timeout(300)
    expect(page.locator("#state")).to_have_text("reloading, still answers", timeout=1)
    expect(listed).to_have_text("loaded reloading, still answers", timeout=1)
    held.pop().continue_()
    page.unroute("**/load")
    expect(page.locator("#load")).to_be_enabled()
    expect(page.locator("#answer")).to_be_hidden()
    assert seen_by(page) == [first + 1]
    asked: list[str] = []

    def decline(dialog: Dialog) -> None:
        asked.append(dialog.message)
        dialog.dismiss()

    page.once("dialog", decline)
    page.get_by_role("button", name="Unload").click()
    assert asked == ['Unload the model "loaded"? Requests to it are refused until it is loaded again.']
    expect(page.locator("#state")).to_have_text("ready")
    assert seen_by(page) == [first + 1]  # it is there, and what would have been sent before this request was not
    assert not [url for url in show.urls if url.endswith("/unload")]
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Unload").click()
    expect(page.locator("#state")).to_have_text("unloaded")
    assert len([url for url in show.urls if url.endswith("/unload")]) == 1
    expect(page.locator("#state")).not_to_have_class("badge bad")  # somebody wanted it
    expect(page.locator("#reason")).to_be_hidden()
    expect(page.get_by_role("button", name="Unload")).to_be_hidden()
    expect(page.locator("#totals")).to_contain_text("Requests since the start: none.")
    expect(page.locator("#totals")).not_to_contain_text("Several processes")  # one begins anew
    page.route("**/load", lambda route: held.append(route))
    page.get_by_role("button", name="Load", exact=True).click()
    expect(page.locator("#state")).to_have_text("loading")
    expect(listed).to_have_text("loaded loading")
    held.pop().continue_()
    expect(page.locator("#state")).to_have_text("ready")
    expect(listed).to_have_text("loaded")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_unload_looks_like_what_takes_away(show: Show, scheme: Any) -> None:
    page = show("iris", color_scheme=scheme)
    reload, unload = page.locator("#load"), page.locator("#unload")
    expect(unload).to_be_visible()
    bad = page.locator("#problem").evaluate("element => getComputedStyle(element).color")
    for place in ("color", "border-top-color"):
        expect(unload).to_have_css(place, bad)
        expect(reload).not_to_have_css(place, bad)
    left, right = reload.bounding_box(), unload.bounding_box()
    assert left is not None
    assert right is not None
    assert right["x"] - left["x"] - left["width"] > 12


def test_a_load_that_fails_again_is_told(show: Show) -> None:
    page = show("not loaded", refused=True)
    problem, when = page.locator("#model").get_by_role("alert"), r"\s+That was at .* UTC by the server's clock\.$"
    expect(page.locator("#reason")).to_have_text("load failed, see the server's log")
    expect(problem).to_be_hidden()
    page.get_by_role("button", name="Load", exact=True).click()
    expect(problem).to_have_text(re.compile("^load failed, see the server's log" + when))
    expect(page.locator("#reason")).to_be_hidden()  # it would say the same
    expect(page.locator("#load")).to_be_enabled()
    page.get_by_role("link", name="loads once").click()
    expect(page.locator("h2")).to_have_text("loads once")
    expect(problem).to_be_hidden()
    page.get_by_role("button", name="Reload").click()
    expect(problem).to_have_text(re.compile("^load failed, see the server's log: what was loaded before still serves" + when))
    expect(page.locator("#state")).to_have_text("ready")
    page.route("**/unload", lambda route: route.fulfill(status=403, json={"error": "not you"}))
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Unload").click()
    expect(problem).to_have_text("403: not you")
    expect(page.locator("#reason")).to_be_visible()


def test_a_load_that_fails_while_one_looks_at_another_model_is_told(show: Show) -> None:
    page = show("not loaded", refused=True)
    held: list[Route] = []
    page.route("**/load", lambda route: held.append(route))
    page.locator("#load").press("Enter")
    expect(page.locator("#load")).to_be_disabled()
    page.get_by_role("link", name="iris", exact=True).click()
    expect(page.locator("h2")).to_have_text("iris")
    expect(page.locator("#load")).to_be_enabled()
    with page.expect_response("**/repository/index"):
        held.pop().continue_()
    expect(page.locator("#problem")).to_be_hidden()
    page.get_by_role("link", name=re.compile("^not loaded")).click()
    expect(page.locator("#problem")).to_contain_text("load failed, see the server's log\nThat was at")
    page.unroute("**/load")
    page.locator("#load").press("Enter")
    expect(page.locator("#problem")).to_contain_text("That was at")
    expect(page.locator("#load")).to_be_focused()  # it was off meanwhile

    def load(route: Route) -> None:
        entries = route.fetch().json()
        route.fulfill(json=[{"name": each["name"], "state": "READY"} if each["name"] == "not loaded" else each for each in entries])

    page.route("**/repository/index", load)  # somebody else has loaded it
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.locator("#state")).to_have_text("ready")
    expect(page.locator("#problem")).to_be_hidden()


def test_another_default_version_is_shown_with_what_it_declares(site: Served, show: Show) -> None:
    place, default = f"{site.url}/v2/models/org%2Fscorer", "10"

    def describe(route: Route) -> None:
        route.fulfill(response=route.fetch(url=f"{place}/versions/{default}"))

    def state(route: Route) -> None:
        route.fulfill(json={**route.fetch().json(), "default_version": default})

    page = show("org/scorer", {re.compile("/models/org%2Fscorer$"): describe, "**/state.json": state})
    expect(page.locator("#chosen-version option").first).to_have_text("default (10)")
    expect(page.locator("#inputs td").last).to_have_text("[10]")
    default = "1"
    expect(page.locator("#inputs td").last).to_have_text("[1]")
    expect(page.locator("#chosen-version option").first).to_have_text("default (1)")


def test_a_request_that_runs_is_not_denied(show: Show) -> None:
    running = {"running": 1, "outcomes": {"ok": 0}}
    page = show("iris", {"**/state.json": lambda route: route.fulfill(json={**route.fetch().json(), **running})})
    expect(page.locator("#totals")).to_have_text("Now: 1 running, 0 waiting. Requests since the start: none has ended.")


def test_what_would_be_refused_cannot_be_sent(show: Show) -> None:
    page = show("not loaded")
    expect(page.locator("#refusal")).to_have_text("The model could not be loaded: it takes no requests. Press Load, above, to try again.")
    expect(page.locator("#send")).to_be_disabled()
    page.get_by_label("x FP32").press("Control+Enter")
    expect(page.locator("#answer")).to_be_hidden()
    page.get_by_role("link", name="iris", exact=True).click()
    expect(page.locator("h2")).to_have_text("iris")
    expect(page.locator("#send")).to_be_enabled()
    expect(page.locator("#refusal")).to_be_empty()


@pytest.mark.parametrize("leaving", ["draining", "stopping"])
def test_a_server_that_is_to_get_no_more_requests_is_not_shown_as_ready(show: Show, leaving: str) -> None:
    def leave(route: Route) -> None:
        route.fulfill(json={**route.fetch().json(), "leaving": leaving, "refuses": leaving == "stopping"})

    page = show("iris", {"**/state.json": leave})
    expect(page.locator("#ready")).to_have_text(leaving)
    expect(page.locator("#state")).to_have_text(leaving)
    expect(page.locator("header .good, .title .good")).to_have_count(0)
    expect(page.locator("#send")).to_be_enabled(enabled=leaving == "draining")  # what comes is answered
    page.unroute("**/state.json")
    expect(page.locator("#state")).to_have_text("ready")
    expect(page.locator("#send")).to_be_enabled()


def test_the_state_of_a_model_is_shown_as_the_server_says_it(show: Show) -> None:
    index = [{"name": "loaded", "state": "READY"}]
    for state, shown, offered in (
        ("LOADING", "loading", False),
        ("UNLOADING", "unloading", False),
        ("IDLE", "idle", True),
        ("READY", "ready", True),
    ):
        index[0]["state"] = state
        page = show("loaded", {"**/repository/index": lambda route: route.fulfill(json=index)})
        expect(page.locator("#state")).to_have_text(shown)
        expect(page.locator("#models a")).to_have_text("loaded" if state == "READY" else f"loaded {shown}")
        expect(page.locator("#load")).to_be_visible(visible=offered)


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("tuned", [
            ("Calls of the model at once", "max_concurrency=", "up to 2"),
            ("Requests that may wait", "max_queue=", "none"),
            ("Time for a request", "timeout=", "up to 500 ms"),
            ("Content type, if a request names none", "content_type=", "arrays (np)"),
            ("Rows in a batch", "max_batch_size=", "up to 64"),
            ("A request waits for others that share its batch", "max_batch_delay=", "up to 2 ms"),
            ("Answers kept for equal requests", "cache=", "up to 1.5 MiB, each for 60 s"),
            ("A value out of range", "out_of_range=", "is answered and marked"),
            ("Unloaded after", "idle_unload=", "300 s without a call"),
        ]),
        ("inline", [
            ("Calls of the model at once", "max_concurrency=", "up to 40"),
            ("Requests that may wait", "max_queue=", "up to 5,000"),
            ("Time for a request", "timeout=", "no limit"),
            ("Where it runs", "run=", "on the event loop"),
        ]),
        ("bounded stream", [
            ("Calls of the model at once", "max_concurrency=", "up to 256"),
            ("Requests that may wait", "max_queue=", "up to 100"),
            ("Time to the first item", "timeout=", "up to 2 s"),
            ("Time for a whole stream", "stream_timeout=", "up to 60 s"),
        ]),
    ],
)  # fmt: skip
def test_options_are_words_with_units(show: Show, model: str, told: list[tuple[str, str, str]]) -> None:
    page = show.open(f"/v2/docs#{urlencode({'model': model})}", viewport={"width": 360, "height": 740})
    expect(page.locator("#options tr")).to_have_text([f"{title} {keyword}{value}" for title, keyword, value in told])
    title, keyword = page.locator("#options th").first.bounding_box(), page.locator("#options code").first.bounding_box()
    assert title is not None
    assert keyword is not None
    assert keyword["y"] - title["y"] > 16  # it is a line of its own
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_only_who_may_is_offered_to_load(show: Show) -> None:
    def without(route: Route) -> None:
        document = route.fetch().json()
        document["paths"] = {path: each for path, each in document["paths"].items() if "/repository/" not in path}
        route.fulfill(json=document)

    page = show("loaded", {"**/models/loaded/openapi.json": without})
    expect(page.locator("#load")).to_be_hidden()
    expect(page.locator("#unload")).to_be_hidden()


def test_the_plots_of_numbers_have_an_axis_of_time(site: Served, show: Show) -> None:
    page = show("exact")
    page.clock.install()
    page.reload()
    expect(page.locator("#totals")).to_contain_text("Now: 0 running")
    page.clock.pause_at(datetime.now() + timedelta(minutes=1))  # from here on it goes as far as it is wound

    def look(milliseconds: int) -> list[float]:
        """How many seconds before now each point is, after some time in which a request was answered."""
        one = {"name": "x", "shape": [1], "datatype": "INT64", "data": [1]}
        assert page.request.post(f"{site.url}/v2/models/exact/infer", data={"inputs": [one]}).ok
        with page.expect_response("**/docs/state.json"):
            page.clock.run_for(milliseconds)
        page.wait_for_timeout(100)  # until the page has taken it in
        points = page.locator("#rate-plot .curve").evaluate_all("curves => curves.map((curve) => curve.getAttribute('points')).join(' ')")
        return [(300 - float(point.split(",")[0])) * 120 / 300 for point in points.split()]

    for _ in range(7):
        ages = look(2000)
    expect(page.locator("#plots .axis")).to_have_text(["2 minutes agonow"] * 2)
    assert ages[-6:] == pytest.approx([10, 8, 6, 4, 2, 0], abs=0.1)
    page.evaluate("Object.defineProperty(document, 'hidden', { get: () => true, configurable: true })")
    page.clock.run_for(60_000)
    page.evaluate("delete document.hidden")
    assert look(2000)[-6:] == pytest.approx([70, 68, 66, 64, 62, 0], abs=0.1)
    page.evaluate("Object.defineProperty(document, 'hidden', { get: () => true, configurable: true })")
    page.clock.run_for(60_000)
    page.evaluate("delete document.hidden")
    assert look(2000) == pytest.approx([62, 0], abs=0.1)
    page.evaluate("Object.defineProperty(document, 'hidden', { get: () => true, configurable: true })")
    page.clock.run_for(600_000)
    page.evaluate("delete document.hidden")
    look(2000)
    expect(page.locator("#rate")).to_have_text("\u2013")  # what was while nobody looked is not now
    expect(page.locator("#numbers caption")).to_have_text(re.compile("^Requests since the start"))
    look(2000)
    expect(page.locator("#rate")).to_have_text("0.5")
