"""What stays while the page is used: the focus, the address, the request under way, what is written, what is in sight: in Chromium."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import Route, expect

from tests.support.page import Show, box_of, copied_from, refused_at, write_json

PHONE = {"width": 360, "height": 740}


@pytest.mark.parametrize("text", ["age,income,city,plan,since,active\n31,1.5,Bern,gold,2024-01-01,true\n", "plan\ngold\n"])
def test_a_value_that_is_no_choice_stays_and_is_refused(show: Show, text: str) -> None:
    page = show("churn", refused=True)
    why = "column 'plan', row 0: 'gold' is no category: expected 'basic', 'pro'"
    page.get_by_label("Rows from a CSV file").set_input_files([{"name": "a.csv", "mimeType": "text/csv", "buffer": text.encode()}])
    plan = page.get_by_label("plan, row 1")
    expect(plan.locator("option:checked")).to_have_text("gold")
    if "active" not in text:
        expect(page.locator("#fields .mistake")).to_have_text("active needs a choice")
        page.get_by_label("active, row 1").select_option("true")
    refused_at(page, plan, why)
    plan.select_option("pro")
    expect(page.locator("#fields .mistake")).to_have_count(0)
    write_json(page, page.input_value("#body").replace('"pro"', '"gold"'))
    page.click("#with-fields")
    expect(plan.locator("option:checked")).to_have_text("gold")
    page.get_by_label("age, row 1").fill("32")
    refused_at(page, plan, why)


def test_a_text_that_is_no_date_is_told_at_its_cell(show: Show) -> None:
    page = show("churn", refused=True)
    since, told = page.get_by_label("since, row 1"), page.locator("#fields .mistake")
    text = "age,income,city,plan,since,active\n31,1.5,Bern,pro,03.04.2021,true\n"
    page.get_by_label("Rows from a CSV file").set_input_files([{"name": "a.csv", "mimeType": "text/csv", "buffer": text.encode()}])
    refused_at(page, since, "tensor 'since': element 0 is b'03.04.2021', which is not an ISO 8601 date and time")
    since.fill("2021-04-03T10:00:00+02:00")
    expect(told).to_have_count(0)
    assert json.loads(page.input_value("#body"))["inputs"][4]["data"] == ["2021-04-03T10:00:00+02:00"]


@pytest.mark.parametrize("model", ["words", "iris"])
def test_what_is_answered_comes_into_sight(show: Show, model: str) -> None:
    page = show(model, viewport=PHONE)
    send = page.locator("#send")
    expect(page.locator("h2")).to_have_text(model)
    send.evaluate("send => scrollTo(0, send.getBoundingClientRect().bottom + scrollY - innerHeight)")  # at the lower edge
    send.click()
    expect(page.locator("#status")).to_have_text("200 OK")
    assert box_of(page.locator("#status"))[3] < PHONE["height"] - 150
    assert box_of(send)[1] > 0


def test_send_and_stop_keep_the_focus(show: Show) -> None:
    page = show("words")
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


HELD = """
const ask = fetch;
globalThis.fetch = async (address, options) => {
  if (`${address}`.endsWith("infer_stream")) await new Promise((resolve) => { globalThis.release = resolve; });
  return ask(address, options);
};
"""
"""Streams are asked for once the page is told to."""


def test_stop_keeps_the_focus_when_the_first_item_comes(show: Show) -> None:
    page = show("words", script=HELD)
    page.click("#send")
    stop = page.locator("#stop")
    expect(page.locator("#status")).to_have_text("no answer yet")
    stop.focus()
    page.evaluate("release()")
    expect(page.locator("#status")).to_have_text("200 OK")
    expect(stop).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#status")).to_have_text("stopped")


def test_a_key_that_is_held_sends_once(show: Show) -> None:
    page = show("patient")
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


def test_another_default_version_leaves_the_request_and_the_focus(show: Show) -> None:
    versions = ["1"]

    def tell(route: Route) -> None:
        route.fulfill(json={**route.fetch().json(), "default_version": versions[-1]})

    page = show("patient", {"**/state.json": tell})
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


def test_the_link_that_skips_the_list_keeps_the_address(show: Show) -> None:
    page = show("churn")
    page.locator("#skip").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#detail")).to_be_focused()
    assert page.evaluate("location.hash") == "#model=churn"


def test_a_tab_of_the_code_keeps_the_focus_while_the_request_changes(show: Show) -> None:
    page = show("iris")
    tab = page.get_by_role("tab", name="httpx2")
    tab.click()
    page.get_by_label("x FP32 [-1, 4]").evaluate(
        "field => { field.value = '1, 2, 3, 4'; field.dispatchEvent(new Event('input', { bubbles: true })); }"
    )
    expect(page.locator("#code")).to_contain_text("[1, 2, 3, 4]")
    expect(tab).to_be_focused()
    assert page.get_by_role("tabpanel", name="httpx2").count() == 1


def test_code_that_cannot_be_written_is_said(show: Show) -> None:
    page = show("churn")
    expect(page.locator("#note")).to_be_empty()
    page.get_by_label("age, row 1").fill("")
    expect(page.locator("#languages button:visible")).to_have_text(["curl", "httpx2", "fetch"])
    expect(page.locator("#note")).to_have_text("There is no code for oip_asgi, tritonclient and gRPC.")
    page.get_by_label("age, row 1").fill("31")
    expect(page.locator("#note")).to_be_empty()


def test_copy_says_so_each_time_and_where_it_is_refused(show: Show) -> None:
    page = show("iris")
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
