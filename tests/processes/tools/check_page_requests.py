"""What the page would send, or why not: mistakes, edits, long requests. In a real browser, run by `tox -e page`, as check_page is."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.support.page import code_of, copied_from, opened, picture, seen_by, write_json
from tests.support.processes import Served

EARLIER = "As the form has a mistake, nothing would be sent. This was the request before it."


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ('{"inputs": [}', 'The JSON has a mistake: Unexpected token \'}\', "{"inputs": [}" is not valid JSON'),
        ("", "The JSON has a mistake: Unexpected end of JSON input"),
        ("null", "The JSON is no request: expected an object, in which each input has a name"),
        ('{"inputs": [null]}', "The JSON is no request: expected an object, in which each input has a name"),
    ],
)
def test_json_with_a_mistake_stays_in_sight_until_it_is_mended(site: Served, browser: Browser, body: str, told: str) -> None:
    page, seen = opened(browser, f"{site.url}/v2/docs#model=iris")
    languages = page.locator("#languages button").all_inner_texts()
    write_json(page, body)
    expect(page.locator("#json .failed")).to_have_text(told)
    page.click("#with-fields")
    expect(page.locator("#with-json")).to_have_attribute("aria-selected", "true")
    expect(page.locator("#fields")).to_be_hidden()
    expect(page.locator("#body")).to_have_value(body)
    expect(page.locator("#json .failed")).to_have_text(told)
    expect(page.locator("#languages button")).to_have_text(languages)
    page.click("#send")
    expect(page.locator("#body")).to_be_focused()
    assert not any(url.endswith("/infer") for url in seen.urls)
    picture(page, "mistake-in-json")
    page.locator("#with-json").press("ArrowLeft")
    expect(page.locator("#with-json")).to_be_focused()
    page.fill("#body", '{"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [9, 0, 0, 0]}]}')
    expect(page.locator("#try .failed")).to_have_count(0)
    page.click("#with-fields")
    expect(page.get_by_label("x FP32 [-1, 4]")).to_have_value("9, 0, 0, 0")
    assert seen_by(page) == [0]
    write_json(page, body)
    page.click("#reset")
    expect(page.get_by_label("x FP32 [-1, 4]")).to_have_value("0.0, 0.0, 0.0, 0.0")
    expect(page.locator("#try .failed")).to_have_count(0)
    assert seen.console == []


def test_a_form_with_a_mistake_has_no_request_to_copy(site: Served, browser: Browser) -> None:
    page, seen = opened(browser, f"{site.url}/v2/docs#model=iris")
    field, copy = page.get_by_label("x FP32 [-1, 4]"), page.locator(".head").get_by_role("button", name="Copy")
    field.fill("5, 6, 7, 8")
    expect(page.locator("#note")).to_be_empty()
    whole = page.locator("#code").inner_text()
    field.fill("5, abc")
    for language in ("httpx2", "curl"):
        page.get_by_role("tab", name=language, exact=True).click()
        expect(page.locator("#note")).to_have_text(EARLIER)
    expect(page.locator("#code")).to_have_text(whole)
    expect(page.locator("#code")).to_have_css("opacity", "0.5")
    expect(copy).to_be_disabled()
    expect(page.locator("#link")).to_be_disabled()
    picture(page, "mistake-in-fields")
    page.click("#with-json")  # where that request can be sent
    expect(copy).to_be_enabled()
    expect(page.locator("#note")).to_be_empty()
    expect(page.locator("#code")).to_have_css("opacity", "1")
    page.click("#with-fields")
    field.fill("1, 2, 3, 4")
    expect(page.locator("#link")).to_be_enabled()
    assert "[1, 2, 3, 4]" in copied_from(page, ".head")
    assert "[1, 2, 3, 4]" in code_of(page, "fetch")
    assert seen.console == []
