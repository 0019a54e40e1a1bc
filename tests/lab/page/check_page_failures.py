"""What the page says of requests that failed, so that they are found in the server's log: in Chromium."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Page, Route, expect

from tests.support.page import Show, write_json

MOMENT = r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC)"


def moment_in(page: Page, place: str, pattern: str) -> datetime:
    """The moment that a sentence of the page names."""
    expect(page.locator(place)).to_have_text(re.compile(f"^{pattern}$"))
    found = re.search(MOMENT, page.locator(place).inner_text())
    assert found is not None
    return datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S %Z").replace(tzinfo=UTC)


def test_a_failure_says_when_it_was_by_the_servers_clock(show: Show) -> None:
    page = show("raises", refused=True, timezone_id="Asia/Tokyo")
    page.clock.set_system_time("2001-02-03T04:05:06")  # this browser's clock is wrong
    before = datetime.now(UTC)
    page.click("#send")
    moment = moment_in(page, "#when", rf"That was at {MOMENT} by the server's clock\.")
    assert abs((moment - before).total_seconds()) < 60
    tensor = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}
    write_json(page, json.dumps({"id": "order 7", "inputs": [tensor]}))
    page.click("#send")
    moment_in(page, "#when", rf'That was the request with the id "order 7", at {MOMENT} by the server\'s clock\.')
    write_json(page, json.dumps({"inputs": [{**tensor, "shape": [2]}]}))
    page.click("#send")
    expect(page.locator("#status")).to_have_text("400 Bad Request")
    expect(page.locator("#when")).to_be_hidden()  # the answer says what is wrong with it


def test_the_bytes_of_an_answer_are_counted(show: Show) -> None:
    page = show("greet")
    tensor = {"name": "names", "shape": [1], "datatype": "BYTES", "data": ["Zoë"]}
    write_json(page, json.dumps({"inputs": [tensor]}))
    with page.expect_response("**/greet/infer") as answer:
        page.click("#send")
    length = len(answer.value.body())
    assert length > len(answer.value.text())  # a character of two bytes
    expect(page.locator("#size")).to_have_text(re.compile(rf"^round trip [\d.]+\sm?s, {length} bytes$"))
    outputs = [{"name": "output_0", "parameters": {"binary_data": True}}]
    write_json(page, json.dumps({"inputs": [tensor], "outputs": outputs}))
    with page.expect_response("**/greet/infer") as answer:
        page.click("#send")
    head = int(answer.value.headers["inference-header-content-length"])
    told = rf"^round trip [\d.]+\sm?s, {head} bytes of JSON and {len(answer.value.body()) - head} bytes of tensors$"
    expect(page.locator("#size")).to_have_text(re.compile(told))


@pytest.mark.parametrize(("status", "hidden"), [(429, True), (500, False), (503, False)])
def test_a_host_that_sends_no_date(show: Show, status: int, hidden: bool) -> None:
    def refuse(route: Route) -> None:
        route.fulfill(status=status, json={"error": "no"})

    page = show("iris", {"**/infer": refuse}, refused=True)
    page.click("#send")
    expect(page.locator("#failure")).to_have_text("no")
    expect(page.locator("#when")).to_be_visible(visible=not hidden)
    if not hidden:
        moment_in(page, "#when", rf"That was at {MOMENT} by this browser's clock\.")


def test_a_row_that_the_server_counts_from_0_is_named_as_the_page_counts_it(show: Show) -> None:
    told = "input 'x', row 1, column 2 is missing: expected a finite number"
    refuse = {"**/iris/infer": lambda route: route.fulfill(status=400, json={"error": told})}
    page = show("iris", refuse, refused=True)
    page.click("#send")
    expect(page.locator("#failure")).to_have_text(f"{told} (the server counts rows from 0: this is row 2 here)")
