"""Streams on the page, and requests that take long, in a real browser. Run by `tox -e page`."""

from __future__ import annotations

import re

from playwright.sync_api import Route, expect

from tests.support.page import Show, copied_from, seen_by


def test_a_stream_is_shown_as_it_comes(show: Show) -> None:
    page = show("slow stream")
    page.click("#send")
    expect(page.locator("#look tbody tr, #look .one tr")).to_have_count(1)
    expect(page.locator("#look tbody tr")).to_have_text(["10", "21", "32", "43"])
    expect(page.locator("#look")).to_contain_text("4 items")
    expect(page.locator("#look thead")).to_have_text("itemoutput_0")
    expect(page.locator("#size")).to_have_text(re.compile(r"^first item after [\d.]+\sms, 4 items, [\d.]+ per second$"))
    expect(page.get_by_role("img", name=re.compile("item by item"))).to_be_visible()
    page.click("#as-text")
    assert len(str(page.locator("#text").text_content()).splitlines()) == 4


def test_a_stream_of_texts_grows_until_it_is_stopped(show: Show) -> None:
    page = show("words")
    page.click("#send")
    expect(page.locator("#look .text")).to_contain_text("text 0 text 1 text 2")
    page.click("#stop")
    expect(page.locator("#size")).to_have_text(re.compile("items, .* per second$"))
    expect(page.locator("#status")).to_have_text("stopped")
    count = str(page.locator("#size").text_content()).split(", ")[1]
    last = page.locator("#requests li").first
    expect(last).to_have_text(re.compile(rf"^stoppedwordsinfer_stream, {count} in [\d.]+\sm?s\d\d:"))
    expect(last.locator(".good, .bad")).to_have_count(0)
    expect(page.locator("#stop")).to_be_hidden()
    expect(page.locator("#send")).to_be_enabled()
    expect(page.locator("#totals")).to_contain_text("0 running", timeout=1500)  # the next reading may be two seconds away
    assert copied_from(page, "#look") == page.locator("#look .text").inner_text()
    assert "text 99" not in page.locator("#look .text").inner_text()
    expect(page.locator("#look figcaption > *")).to_have_text(["output_0", "", "CopySave"])


def test_the_texts_of_each_output_follow_each_other_below_its_name(show: Show) -> None:
    page = show("thinks")
    page.click("#send")
    expect(page.locator("#size")).to_contain_text("3 items")
    expect(page.locator("#look figcaption b")).to_have_text(["thought", "said"])
    assert page.locator("#look .text").all_text_contents() == ["hm0 hm1 hm2 ", "text0 text1 text2 "]
    with page.expect_download() as saved:
        page.get_by_role("figure", name="said").get_by_role("button", name="Save").click()
    assert (saved.value.suggested_filename, saved.value.path().read_text()) == ("said.txt", "text0 text1 text2 ")


def test_what_came_before_a_stream_broke_stays(show: Show) -> None:
    page = show("breaks")
    page.click("#send")
    expect(page.locator("#look .text")).to_have_text("text")
    expect(page.locator("#look .failed")).to_have_text("model 'breaks' failed: see the server's log")
    expect(page.locator("#look .failed + .faint")).to_have_text(re.compile(r"^That was at [-\d]+ [:\d]+ UTC by the server's clock\.$"))
    expect(page.locator("#when")).to_be_hidden()
    expect(page.locator("#size")).to_contain_text("1 item")
    expect(page.locator("#status")).to_have_text("failed")
    expect(page.locator("#requests li")).to_have_text(re.compile("^failedbreaksinfer_stream, 1 item in "))
    expect(page.locator("#totals")).to_contain_text("1 failed", timeout=1500)


def test_the_numbers_know_of_a_stream_what_the_page_knows(show: Show) -> None:
    page = show("slow stream")
    expect(page.locator("#totals")).to_contain_text("Now: 0 running, 0 waiting.")
    held: list[Route] = []
    page.route("**/slow%20stream/docs/state.json", lambda route: route.continue_() if held else held.append(route))
    while not held:
        page.wait_for_timeout(100)
    before = held[0].fetch()  # what the server said before the request is on its way
    page.click("#send")
    expect(page.locator("#size")).to_contain_text("first item after")
    expect(page.locator("#totals")).to_contain_text("Now: 1 running, 0 waiting.", timeout=1000)
    held[0].fulfill(response=before)
    page.wait_for_timeout(200)
    expect(page.locator("#totals")).to_contain_text("Now: 1 running, 0 waiting.", timeout=1)
    expect(page.locator("#hint")).to_be_hidden()
    expect(page.locator("#stop")).to_be_hidden()
    expect(page.locator("#totals")).to_contain_text("Now: 0 running, 0 waiting.", timeout=1000)
    expect(page.locator("#hint")).to_contain_text("This model does not declare its outputs")


def test_a_request_that_takes_long_can_be_stopped(show: Show) -> None:
    page = show("patient")
    page.get_by_label("seconds FP64").fill("60")
    page.click("#send")
    expect(page.locator("#status")).to_have_text("no answer yet")
    expect(page.locator("#totals")).to_contain_text("Now: 1 running, 0 waiting.", timeout=1000)
    expect(page.locator("#looks")).to_be_hidden()
    page.click("#stop")
    expect(page.locator("#answer .line")).to_have_text(re.compile(r"stopped\s+after [\d.]+\sm?s"))
    expect(page.locator("#requests li")).to_have_text(re.compile(r"^stoppedpatientinfer, after [\d.]+\sm?s"))
    expect(page.locator("#send")).to_be_enabled()
    page.get_by_label("seconds FP64").fill("0")
    assert seen_by(page) == [0]


def test_the_answer_to_a_form_that_changes_stays_in_sight(show: Show) -> None:
    page = show("words")
    page.get_by_label("prompt text").fill("word")
    page.click("#send")
    expect(page.locator("#look .text")).to_contain_text("word 0 word 1")
    page.click("#reset")
    page.select_option("#action", "generate_stream")
    expect(page.locator("#look .text")).to_contain_text("word 4")
    expect(page.locator("#earlier")).to_be_visible()
    page.click("#stop")
    expect(page.locator("#status")).to_have_text("stopped")
    expect(page.locator("#send")).to_be_enabled()


def test_a_stream_that_is_left_writes_nothing_below_another_model(show: Show) -> None:
    page = show("words")
    page.click("#send")
    expect(page.locator("#look .text")).to_contain_text("text 0")
    page.get_by_role("link", name="thinks", exact=True).click()
    expect(page.locator("h2")).to_have_text("thinks")
    expect(page.locator("#requests li")).to_have_text(re.compile("^stoppedwordsinfer_stream, "))
    page.wait_for_timeout(300)
    for place in ("#hint", "#answer", "#stop"):
        expect(page.locator(place)).to_be_hidden(timeout=1)
    expect(page.locator("#send")).to_be_enabled()


def test_an_answer_is_that_to_what_was_sent_whatever_is_chosen_meanwhile(show: Show) -> None:
    page = show("patient")
    page.get_by_label("seconds FP64").fill("1")
    page.click("#send")
    page.select_option("#action", "generate")
    expect(page.locator("#status")).to_have_text("200 OK")
    expect(page.locator("#look td")).to_have_text("1.0")
    expect(page.locator("#declaration")).to_have_text('outputs=[TensorSpec("output_0", "FP64", [-1])]')
    expect(page.locator("#earlier")).to_be_visible()
