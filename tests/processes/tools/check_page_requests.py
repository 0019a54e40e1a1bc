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
    write_json(page, body)
    expect(page.locator("#json .failed")).to_have_text(told)
    page.click("#with-fields")
    expect(page.locator("#with-json")).to_have_attribute("aria-selected", "true")
    expect(page.locator("#fields")).to_be_hidden()
    expect(page.locator("#body")).to_have_value(body)
    expect(page.locator("#json .failed")).to_have_text(told)
    expect(page.locator("#languages button")).to_have_text(["curl", "oip_asgi", "httpx2", "tritonclient", "fetch", "gRPC"])
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


def test_an_answer_says_that_it_is_older_than_the_form(site: Served, browser: Browser) -> None:
    page, seen = opened(browser, f"{site.url}/v2/docs#model=iris")
    field, earlier = page.get_by_label("x FP32 [-1, 4]"), page.locator("#earlier")
    field.fill("9, 0, 0, 0")
    assert seen_by(page) == [0]
    expect(earlier).to_be_hidden()
    for edit in ("0, 9, 0, 0", "0, abc"):
        field.fill(edit)
        expect(earlier).to_have_text("sent before your last edit")
        picture(page, "earlier")
        field.fill("9, 0, 0, 0")
        expect(earlier).to_be_hidden()
    write_json(page, "{")
    expect(earlier).to_be_visible()
    page.click("#reset")
    field.fill("0, 0, 9, 0")
    assert seen_by(page) == [2]
    expect(earlier).to_be_hidden()
    page.goto(f"{site.url}/v2/docs#model=patient")
    page.get_by_label("seconds FP64 [1]").fill("1.5")
    page.click("#send")
    page.get_by_label("seconds FP64 [1]").fill("0.5")
    expect(page.locator("#status")).to_have_text("200 OK")
    expect(earlier).to_be_visible()
    page.goto(f"{site.url}/v2/docs#model=statistics")  # whose array follows the JSON, which stays the same
    page.get_by_role("button", name="Random numbers for pixels").click()
    page.click("#send")
    expect(page.locator("#status")).to_have_text("200 OK")
    expect(earlier).to_be_hidden()
    page.get_by_role("button", name="Random numbers for pixels").click()
    expect(earlier).to_be_visible()
    assert seen.console == []


def test_what_a_long_request_lacks_is_said(site: Served, browser: Browser) -> None:
    page, seen = opened(browser, f"{site.url}/v2/docs#model=greet")
    field, note = page.get_by_label("names text"), page.locator("#note")
    for length, told in ((7000, ""), (9000, "The request is too long for a link."),
                         (25_000, "The request is too long for a link, oip_asgi, tritonclient, fetch and gRPC.")):  # fmt: skip
        field.fill("a" * length)
        expect(note).to_have_text(told)
        expect(page.locator("#link")).to_be_visible(visible=not told)
    expect(page.locator("#languages button")).to_have_text(["curl", "httpx2"])
    page.goto(f"{site.url}/v2/docs#model=statistics")
    page.get_by_role("button", name="Random numbers for pixels").click()
    expect(note).to_have_text("A link cannot carry its bytes.")
    expect(page.locator("#link")).to_be_hidden()
    assert seen.console == []


LONE = r"""code => {
  const tops = [], walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    for (let place = 0; place < node.length; place += 1) {
      const range = document.createRange();
      range.setStart(node, place);
      range.setEnd(node, place + 1);
      tops.push(range.getBoundingClientRect().top);
    }
  }
  return [...code.textContent.matchAll(/ \\\n/g)].map(({ index }) => Math.abs(tops[index + 1] - tops[index - 1]) > 4);
}"""
"""Of each backslash that ends a line of code, whether it stands on another line than the word before it."""


def test_a_backslash_stands_beside_a_word(site: Served, browser: Browser) -> None:
    page, seen = opened(browser, f"{site.url}/v2/docs#model=iris")
    code = code_of(page, "curl")
    for width in range(320, 480, 5):
        page.set_viewport_size({"width": width, "height": 700})
        assert page.locator("#code").evaluate(LONE) == [False, False], width
    assert page.locator("#code").text_content() == code
    assert seen.console == []


def test_edits_stay_while_one_looks_at_another_model(site: Served, browser: Browser) -> None:
    page, seen = opened(browser, f"{site.url}/v2/docs#model=iris")
    field, title = page.get_by_label("x FP32 [-1, 4]"), page.locator("h2")

    def go_to(name: str) -> None:
        page.locator("#models").get_by_role("link", name=name, exact=True).click()
        expect(title).to_have_text(name)

    field.fill("9, 0, 0, 0")
    assert seen_by(page) == [0]
    page.select_option("#action", "generate")
    field.fill("0, 0, 9, abc")
    go_to("churn")
    page.get_by_role("button", name="Add a row").click()
    page.get_by_label("city, row 2").fill("Ulm")
    go_to("iris")
    expect(page.locator("#action")).to_have_value("generate")
    expect(field).to_have_value("0, 0, 9, abc")
    expect(page.locator("#fields .failed")).to_have_text('x: "abc" is not a number')
    expect(page.locator("#note")).to_have_text(EARLIER)
    expect(page.locator("#code")).to_contain_text("[9, 0, 0, 0]")
    expect(page.locator("#answer")).to_be_hidden()
    page.select_option("#action", "infer")
    write_json(page, '{"inputs": [')
    go_to("churn")
    expect(page.get_by_label("city, row 1")).to_have_value("Bern")
    expect(page.get_by_label("city, row 2")).to_have_value("Ulm")
    page.click("#send")
    expect(page.locator("#status")).to_have_text("200 OK")
    expect(page.locator("#look tbody tr")).to_have_count(2)
    go_to("iris")
    expect(page.locator("#body")).to_have_value('{"inputs": [')
    expect(page.locator("#json .failed")).to_be_visible()
    page.locator("#requests a").last.click()  # a request in a link comes before what was edited
    expect(field).to_have_value("9, 0, 0, 0")
    go_to("churn")
    page.click("#reset")
    go_to("iris")
    expect(field).to_have_value("9, 0, 0, 0")
    page.click("#reset")
    for name, label, value in (("churn", "city", "Bern"), ("iris", "x FP32 [-1, 4]", "0.0, 0.0, 0.0, 0.0")):
        go_to(name)
        expect(page.get_by_label(label)).to_have_value(value)
    field.fill("1, 2, 3, 4")
    page.reload()
    expect(field).to_have_value("0.0, 0.0, 0.0, 0.0")
    assert seen.console == []


def test_a_mistake_in_a_field_is_still_there_after_a_look_at_the_json(site: Served, browser: Browser) -> None:
    page, seen = opened(browser, f"{site.url}/v2/docs#model=iris")
    field = page.get_by_label("x FP32 [-1, 4]")
    field.fill("5, abc")
    page.click("#with-json")
    expect(page.locator("#try .failed")).to_have_count(0)
    page.click("#with-fields")
    expect(field).to_have_value("5, abc")
    expect(page.locator("#fields .failed")).to_have_text('x: "abc" is not a number')
    assert seen.console == []
