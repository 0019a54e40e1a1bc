"""What stays while the page is used: the focus, the address, the request under way, what is written, what is in sight: in Chromium."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.support.page import box_of, copied_from, opened, write_json
from tests.support.processes import Served

PHONE = {"width": 360, "height": 740}


@pytest.mark.parametrize("text", ["age,income,city,plan,since,active\n31,1.5,Bern,gold,2024-01-01,true\n", "plan\ngold\n"])
def test_a_value_that_is_no_choice_stays_and_is_told(site: Served, browser: Browser, text: str) -> None:
    page, seen = opened(browser, f"{site.url}/v2/docs#model=churn")
    page.get_by_label("Rows from a CSV file").set_input_files([{"name": "a.csv", "mimeType": "text/csv", "buffer": text.encode()}])
    plan = page.get_by_label("plan, row 1")
    expect(plan.locator("option:checked")).to_have_text("gold")
    expect(page.locator("#fields .mistake")).to_have_text('plan: "gold" is not one of basic, pro')
    page.click("#send")
    expect(page.locator("#answer")).to_be_hidden()
    plan.select_option("pro")
    expect(page.locator("#fields")).not_to_contain_text("is not one of")
    assert seen.console == []


def test_a_text_that_is_no_date_is_told_at_its_cell(site: Served, browser: Browser) -> None:
    page, seen = opened(browser, f"{site.url}/v2/docs#model=churn")
    since, told = page.get_by_label("since, row 1"), page.locator("#fields .mistake")
    text = "age,income,city,plan,since,active\n31,1.5,Bern,pro,03.04.2021,true\n"
    page.get_by_label("Rows from a CSV file").set_input_files([{"name": "a.csv", "mimeType": "text/csv", "buffer": text.encode()}])
    expect(told).to_have_text('since: "03.04.2021" is not a date: expected one like 2026-01-31')
    since.fill("2021-04-03T10:00:00+02:00")
    expect(told).to_have_count(0)
    assert json.loads(page.input_value("#body"))["inputs"][4]["data"] == ["2021-04-03T10:00:00+02:00"]
    assert seen.console == []


def test_a_flat_answer_has_its_rows_and_labels(site: Served, browser: Browser) -> None:
    page, seen = opened(browser, f"{site.url}/v2/docs#model=species")
    page.select_option("#action", "generate")
    page.get_by_label("x FP64 [-1, 3]").fill("0.2 0.1 0.7\n0.1 0.6 0.3")
    page.click("#send")
    expect(page.locator("#status")).to_have_text("200 OK")
    expect(page.locator("#look thead tr").last).to_contain_text("catdogowl")
    expect(page.locator("#look tbody tr")).to_contain_text(["20.0 %10.0 %70.0 %", "10.0 %60.0 %30.0 %"])
    expect(page.locator("#look .largest")).to_have_text(["70.0 %", "60.0 %"])
    assert seen.console == []


def test_a_choice_that_json_does_not_have_right_is_told_in_the_fields(site: Served, browser: Browser) -> None:
    page, seen = opened(browser, f"{site.url}/v2/docs#model=churn")
    expect(page.locator("h2")).to_have_text("churn")
    write_json(page, page.input_value("#body").replace('"pro"', '"gold"'))
    page.click("#with-fields")
    expect(page.get_by_label("plan, row 1").locator("option:checked")).to_have_text("gold")
    page.get_by_label("age, row 1").fill("32")
    expect(page.locator("#fields .mistake")).to_have_text('plan: "gold" is not one of basic, pro')
    assert seen.console == []


@pytest.mark.parametrize("model", ["words", "iris"])
def test_what_is_answered_comes_into_sight(site: Served, browser: Browser, model: str) -> None:
    page, seen = opened(browser, f"{site.url}/v2/docs#model={model}", viewport=PHONE)
    send = page.locator("#send")
    expect(page.locator("h2")).to_have_text(model)
    send.evaluate("send => scrollTo(0, send.getBoundingClientRect().bottom + scrollY - innerHeight)")  # at the lower edge
    send.click()
    expect(page.locator("#status")).to_have_text("200 OK")
    assert box_of(page.locator("#status"))[3] < PHONE["height"] - 150
    assert box_of(send)[1] > 0
    assert seen.console == []


def test_send_and_stop_keep_the_focus(site: Served, browser: Browser) -> None:
    page, seen = opened(browser, f"{site.url}/v2/docs#model=words")
    send, stop = page.locator("#send"), page.locator("#stop")
    send.focus()
    page.keyboard.press("Enter")
    expect(stop).to_be_visible()
    expect(send).to_be_focused()
    expect(send).to_have_attribute("aria-disabled", "true")
    stop.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#status")).to_have_text("stopped")
    expect(send).to_be_focused()
    expect(send).to_have_attribute("aria-disabled", "false")
    assert seen.console == []


HELD = """
const ask = fetch;
globalThis.fetch = async (address, options) => {
  if (`${address}`.endsWith("infer_stream")) await new Promise((resolve) => { globalThis.release = resolve; });
  return ask(address, options);
};
"""
"""Streams are asked for once the page is told to."""


def test_stop_keeps_the_focus_when_the_first_item_comes(site: Served, browser: Browser) -> None:
    page, seen = opened(browser, "about:blank")
    page.add_init_script(HELD)
    page.goto(f"{site.url}/v2/docs#model=words")
    page.click("#send")
    stop = page.locator("#stop")
    expect(page.locator("#status")).to_have_text("no answer yet")
    stop.focus()
    page.evaluate("release()")
    expect(page.locator("#status")).to_have_text("200 OK")
    expect(stop).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#status")).to_have_text("stopped")
    assert seen.console == []


def test_a_key_that_is_held_sends_once(site: Served, browser: Browser) -> None:
    page, seen = opened(browser, f"{site.url}/v2/docs#model=patient")
    field = page.get_by_label("seconds FP64")
    field.fill("0")
    field.focus()
    page.keyboard.down("Control")
    for _ in range(5):
        page.keyboard.down("Enter")
        page.wait_for_timeout(100)
    page.keyboard.up("Enter")
    expect(page.locator("#status")).to_have_text("200 OK")
    expect(page.locator("#requests li")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.locator("#requests li")).to_have_count(2)
    assert seen.console == []


def test_another_default_version_leaves_the_request_and_the_focus(site: Served, browser: Browser) -> None:
    versions = ["1"]

    def tell(route: Route) -> None:
        route.fulfill(json={**route.fetch().json(), "default_version": versions[-1]})

    page, seen = opened(browser, f"{site.url}/v2/docs#model=patient", {"**/state.json": tell})
    field = page.get_by_label("seconds FP64")
    field.fill("60")
    page.click("#send")
    expect(page.locator("#stop")).to_be_visible()
    field.focus()
    with page.expect_response("**/patient/openapi.json"):
        versions.append("2")
    page.wait_for_timeout(300)
    expect(page.locator("#status")).to_have_text("no answer yet")
    expect(field).to_be_focused()
    expect(page.locator("#requests li")).to_have_count(0)
    page.click("#stop")
    expect(page.locator("#status")).to_have_text("stopped")
    assert seen.console == []


def test_the_link_that_skips_the_list_keeps_the_address(site: Served, browser: Browser) -> None:
    page, seen = opened(browser, f"{site.url}/v2/docs#model=churn")
    expect(page.locator("h2")).to_have_text("churn")
    page.locator("#skip").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#detail")).to_be_focused()
    assert page.evaluate("location.hash") == "#model=churn"
    assert seen.console == []


def test_a_tab_of_the_code_keeps_the_focus_while_the_request_changes(site: Served, browser: Browser) -> None:
    page, seen = opened(browser, f"{site.url}/v2/docs#model=iris")
    tab = page.get_by_role("tab", name="httpx2")
    tab.click()
    page.get_by_label("x FP32 [-1, 4]").evaluate(
        "field => { field.value = '1, 2, 3, 4'; field.dispatchEvent(new Event('input', { bubbles: true })); }"
    )
    expect(page.locator("#code")).to_contain_text("[1, 2, 3, 4]")
    expect(tab).to_be_focused()
    assert page.get_by_role("tabpanel", name="httpx2").count() == 1
    assert seen.console == []


def test_code_that_cannot_be_written_is_said(site: Served, browser: Browser) -> None:
    page, seen = opened(browser, f"{site.url}/v2/docs#model=churn")
    expect(page.locator("#note")).to_be_empty()
    page.get_by_label("age, row 1").fill("")
    expect(page.locator("#languages button")).to_have_text(["curl", "httpx2", "fetch"])
    expect(page.locator("#note")).to_have_text("There is no code for oip_asgi, tritonclient and gRPC.")
    page.get_by_label("age, row 1").fill("31")
    expect(page.locator("#note")).to_be_empty()
    assert seen.console == []


def test_copy_says_so_each_time_and_where_it_is_refused(site: Served, browser: Browser) -> None:
    page, seen = opened(browser, f"{site.url}/v2/docs#model=iris")
    sent: dict[str, Any] = json.loads(page.input_value("#body"))
    assert str(sent["inputs"][0]["datatype"]) in copied_from(page, "[data-copies=code]")
    button = page.locator("[data-copies=code] button")
    button.click()
    expect(button).to_have_text("Copied")
    expect(button).to_have_text("Copy")
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no')); }")
    button.click()
    expect(button).to_have_text("Not copied")
    expect(button).to_have_text("Copy")
    assert seen.console == []
