"""What a phone shows of the page, 360 pixels wide: the list of models behind a button. In Chromium, run by `tox -e page`."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from playwright.sync_api import expect

from tests.support.page import Show, box_of

PHONE = {"width": 360, "height": 740}
WIDE = {"width": 1280, "height": 900}


def test_the_model_is_seen_first_and_the_list_when_it_is_asked_for(show: Show) -> None:
    page = show("iris", viewport=PHONE)
    count = page.locator("#models a").count()
    button = page.get_by_role("button", name=f"Models ({count})", exact=True)
    expect(button).to_have_attribute("aria-expanded", "false")
    for hidden in ("#filter", "#only-unready", "#models"):
        expect(page.locator(hidden)).to_be_hidden()
    expect(page.locator("#send")).to_be_in_viewport(ratio=1)
    button.click()
    expect(button).to_have_attribute("aria-expanded", "true")
    expect(page.locator("#models")).to_have_attribute("data-more", "below")
    page.fill("#filter", "no such")
    expect(page.get_by_text("No model matches.")).not_to_have_css("padding-left", "0px")  # it touches no edge
    page.fill("#filter", "peop")
    page.get_by_role("link", name="people", exact=True).click()
    expect(page.locator("h2")).to_have_text("people")
    expect(button).to_have_attribute("aria-expanded", "false")
    expect(page.locator("#filter")).to_be_hidden()
    expect(page.locator("#detail")).to_be_focused()
    expect(page.locator("h2")).to_be_in_viewport(ratio=1)
    button.click()
    button.click()
    expect(page.locator("#models")).to_be_hidden()


def test_the_list_of_a_phone_needs_no_pointer(show: Show) -> None:
    page = show("iris", viewport=PHONE)
    button = page.get_by_role("button", name=re.compile("^Models"))
    for name, others in (("all datatypes", 1), ("all datatypes", 1), ("iris", 0)):  # the second is shown already
        button.focus()
        page.keyboard.press("Enter")
        expect(page.locator("#models")).to_be_visible()
        for place in ("#filter", "#only-unready", "#models a"):
            page.keyboard.press("Tab")
            expect(page.locator(place).first).to_be_focused()
        for _ in range(others):
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.locator("#models")).to_be_hidden()
        expect(page.locator("h2")).to_have_text(name)
        expect(page.locator("#detail")).to_be_focused()
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('#model') !== null")


def test_the_name_and_its_buttons_stand_on_one_line(show: Show) -> None:
    page = show("org/scorer", viewport=PHONE)
    expect(page.locator("#unload")).to_be_visible()
    name, load, unload, state, version = (
        box_of(page.locator(place)) for place in ("#name", "#load", "#unload", "#state", "#chosen-version")
    )
    assert name[2] <= load[0] < unload[0]
    assert max(name[1], load[1], unload[1]) < min(name[3], load[3], unload[3])
    assert max(name[3], load[3]) <= min(state[1], version[1])
    assert max(state[1], version[1]) < min(state[3], version[3])
    for text, is_beside in (("region_01_forecast_of_demand", True), ("x" * 60, False)):
        page.locator("#name").evaluate("""(name, text) => {
            name.replaceChildren(...text.split(/(?<=_)/).flatMap((part) => [document.createElement("wbr"), part]));
        }""", text)  # fmt: skip
        name, load = box_of(page.locator("#name")), box_of(page.locator("#load"))
        assert (name[2] <= load[0]) == is_beside
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_all_rows_of_a_column_stand_below_its_name_on_a_phone(show: Show) -> None:
    page = show("churn", viewport=PHONE)
    for _ in range(2):
        page.get_by_role("button", name="Add a row").click()
    expect(page.get_by_label("age, row 3")).to_be_focused()
    names = ["age", "income", "city", "plan", "since", "active"]
    cells = [page.get_by_label(f"{name}, row {row}") for name in names for row in (1, 2, 3)]
    titles = [box_of(title) for title in page.locator("#fields tbody th").all()]
    boxes = [box_of(cell) for cell in cells]
    assert all(one[3] < other[1] for one, other in pairwise(boxes))
    assert len({(box[0], box[2]) for box in boxes}) == 1
    assert boxes[0][2] == pytest.approx(box_of(page.locator("#fields"))[2], abs=2)  # as wide as there is room
    for place, title in enumerate(titles):
        first, last = boxes[3 * place], boxes[3 * place + 2]
        assert title[3] <= first[1]
        assert place + 1 == len(titles) or last[3] <= titles[place + 1][1]
    before = page.get_by_label("age, row 2").evaluate("cell => getComputedStyle(cell.parentElement, '::before').content")
    assert before == '"row " counter(row) / ""'
    assert page.locator("#fields .scroll").evaluate("box => [box.scrollLeft, box.scrollWidth - box.clientWidth]") == [0, 0]
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    dates = page.locator("#fields input[type=date]")  # each part of one is a stop of the key Tab
    dates.evaluate_all("dates => dates.forEach((date) => { date.type = 'text'; })")
    cells[0].focus()
    for cell in cells[1:]:
        page.keyboard.press("Tab")
        expect(cell).to_be_focused()
    page.get_by_label("income, row 2").fill("x")
    told = box_of(page.locator("#fields .mistake"))
    assert box_of(page.get_by_label("income, row 2"))[3] <= told[1] < told[3] <= box_of(page.get_by_label("income, row 3"))[1]
    for _ in range(9):
        page.get_by_role("button", name="Add a row").click()
    expect(page.get_by_label("age, row 12")).to_be_in_viewport()
    page.set_viewport_size(WIDE)
    assert box_of(page.get_by_label("age, row 11"))[1] == box_of(page.get_by_label("age, row 12"))[1]


def test_inputs_and_outputs_fit_on_a_phone(show: Show) -> None:
    page = show("churn", viewport=PHONE)
    name = "calls_to_support_in_the_last_year"
    page.locator("#inputs td").first.evaluate("(cell, name) => { cell.textContent = name; }", name)
    box = page.locator(".scroll:has(#inputs)")
    assert box.evaluate("box => box.scrollWidth <= box.clientWidth")
    edge = box_of(box)
    for row in page.locator(":is(#inputs, #outputs) tr:has(td + td)").all():
        first, kind, shape = (box_of(cell) for cell in row.locator("td").all())
        assert first[3] <= kind[1] + 1
        assert abs(kind[1] - shape[1]) < 2
        assert edge[0] <= first[0] < kind[2] <= shape[0] < shape[2] <= edge[2]
        assert first[3] - first[1] < 30  # one line
    expect(page.locator("#any-size")).to_have_text("In a shape, -1 is any number.")


def test_one_model_needs_no_list_on_a_phone(show: Show) -> None:
    page = show("iris", {"**/repository/index": lambda route: route.fulfill(json=[{"name": "iris", "state": "READY"}])}, viewport=PHONE)
    expect(page.locator("nav")).to_be_hidden()
    page.set_viewport_size(WIDE)
    expect(page.locator("#models a")).to_have_text("iris")


def test_the_list_is_there_without_a_button_where_there_is_room(show: Show) -> None:
    page = show("iris", viewport=WIDE)
    expect(page.get_by_role("button", name=re.compile("^Models"))).to_have_count(0)
    page.get_by_role("link", name="people", exact=True).click()
    expect(page.locator("h2")).to_have_text("people")
    expect(page.get_by_role("link", name="people", exact=True)).to_be_focused()
