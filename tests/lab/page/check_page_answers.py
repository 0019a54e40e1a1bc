"""How the page shows answers, in a real browser: tables, scores, pictures. Run by `tox -e page`, as check_page is."""

from __future__ import annotations

import json
import re
from typing import Literal

import pytest
from playwright.sync_api import Route, ViewportSize, expect

from tests.support.page import Show, answer_of, box_of, copied_from, drawn, turn_to, write_json
from tests.support.page_site import RED


def test_rows_are_a_table_beside_what_was_sent(show: Show) -> None:
    page = show("people")
    write_json(page, json.dumps({"inputs": [
        {"name": "age", "shape": [2], "datatype": "INT64", "data": [9007199254740993, 42]},
        {"name": "city", "shape": [2], "datatype": "BYTES", "data": ["Bern", "Ulm\t1"]},
    ]}))  # fmt: skip
    page.click("#send")
    expect(page.locator("#look thead tr")).to_have_text(["answeredsent", "rowlineagecity"])
    expect(page.locator("#look tbody tr").first).to_have_text("1Bern 90071992547409939007199254740993Bern")
    with page.expect_download() as saved:
        page.locator("#look").get_by_role("button", name="Save").click()
    lines = saved.value.path().read_text().splitlines()
    assert lines == ["line,age,city", "Bern 9007199254740993,9007199254740993,Bern", "Ulm\t1 42,42,Ulm\t1"]
    copied = copied_from(page, "#look")
    assert copied.splitlines()[0] == "line\tage\tcity"
    assert '"Ulm\t1"' in copied
    page.click("#as-text")
    assert json.loads(copied_from(page, "#raw")) == answer_of(page)
    page.click("#send")
    expect(page.locator("#text")).to_be_visible()  # the tab that was chosen stays


@pytest.mark.parametrize(
    ("model", "head", "rows"), [("exact", ["y", ""], ["0"]), ("album", ["2 outputs, 3 rows"], ["10.0", "2none1.0", "32.0"])]
)
def test_a_table_has_the_name_of_its_output(show: Show, model: str, head: list[str], rows: list[str]) -> None:
    page = show(model)
    page.click("#send")
    expect(page.locator("#look figcaption > :not(.tools)")).to_have_text(head)
    expect(page.locator("#look tr:has(:not([scope=col]))")).to_have_text(rows)


def test_an_answer_to_a_value_out_of_range_says_so(show: Show) -> None:
    page = show("tuned")
    for value, told in (("7", ["The request has values that are out of the expected range: x."]), ("5", [])):
        page.get_by_label("x FP32").fill(value)
        page.click("#send")
        expect(page.locator("#look .values")).to_have_text(f"{value}.0")
        expect(page.locator("#look > p")).to_have_text(told)


def test_scores_are_bars(show: Show) -> None:
    page = show("species")
    expect(page.locator("#outputs tr").last).to_have_text("labels: cat, dog, owl")
    page.click("#send")
    expect(page.locator("#look .bars li")).to_have_text(["owl70.0 %", "cat20.0 %", "dog10.0 %"])
    widths = page.locator("#look .fill").evaluate_all("fills => fills.map((fill) => fill.style.width)")
    assert [round(float(width.removesuffix("%"))) for width in widths] == [70, 20, 10]
    page.get_by_label("x FP64").fill("0 0 1")
    page.click("#send")
    expect(page.locator("#look .bars li").first).to_have_text("owl100.0 %")
    turn_to(page, "letter")
    page.click("#send")
    expect(page.locator("#look h4")).to_have_text(["Row 1", "Row 2"])  # of too many columns for a table
    ends = {round(box_of(track)[2], 2) for track in page.locator("#look .bars .track").all()}
    assert len(ends) == 1  # in both rows


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_several_rows_of_probabilities_are_a_table_with_the_largest_marked(
    show: Show, width: int, scheme: Literal["light", "dark"]
) -> None:
    size: ViewportSize = {"width": width, "height": 900}
    page = show("species", viewport=size, color_scheme=scheme)
    rows = [[0.1234567, 0.7, 0.1765433], [0.0001, 0.0002, 0.9997], *[[0.6, 0.3, 0.1]] * 6]
    page.get_by_label("x FP64").fill("\n".join(" ".join(map(str, row)) for row in rows))
    page.click("#send")
    expect(page.locator("#look thead tr")).to_have_text(["answeredsent", "rowcatdogowlx 0x 1x 2"])
    table = page.locator("#look tbody tr")
    first, last = "112.3 %70.0 %17.7 %0.12345670.70.1765433", [f"{row}60.0 %30.0 %10.0 %0.60.30.1" for row in range(3, 9)]
    expect(table).to_have_text([first, "2< 0.1 %< 0.1 %100.0 %0.00010.00020.9997", *last])
    expect(page.locator("#look figcaption > :not(.tools)")).to_have_text(["species", "8 rows, ★ is the largest score of its row"])
    assert [table.nth(row).locator(".largest").inner_text() for row in range(3)] == ["70.0 %", "100.0 %", "60.0 %"]
    mark = "cell => [getComputedStyle(cell, '::before').content.includes('★'), getComputedStyle(cell).fontWeight]"
    assert table.first.locator("td").evaluate_all(f"cells => cells.map({mark})") == [[False, "400"], [True, "700"], *[[False, "400"]] * 4]
    whole = table.nth(1).locator("td").evaluate_all("cells => cells.map((cell) => cell.title)")
    assert whole == ["0.0001", "0.0002", "0.9997", "", "", ""]
    assert box_of(page.get_by_role("columnheader", name="owl"))[2] <= width  # a phone shows the scores, and what was sent beside them
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert copied_from(page, "#look").splitlines()[1] == "0.1234567\t0.7\t0.1765433\t0.1234567\t0.7\t0.1765433"


def test_all_of_many_labels_are_seen_when_one_asks(show: Show) -> None:
    names = [f"kind {place}" for place in range(30)]

    def label(route: Route) -> None:
        route.fulfill(json={**route.fetch().json(), "labels": {"species": names}})

    page = show("species", {"**/state.json": label})
    expect(page.locator("#outputs .more")).to_contain_text("labels: kind 0, kind 1")
    expect(page.locator("#outputs .more")).to_contain_text("kind 19, … (30 in all)")
    whole = page.locator("#outputs details p")
    expect(whole).to_be_hidden()
    page.locator("#outputs summary").press("Enter")
    expect(whole).to_have_text(", ".join(names))
    expect(whole).to_be_visible()


def test_pictures_are_drawn(show: Show) -> None:
    page = show("pictures")
    page.click("#send")
    for name, note in (("file", "3 \u00d7 2 pixels, PNG"), ("pixels", "12 \u00d7 9 pixels")):
        figure = page.get_by_role("figure", name=re.compile(f"^{name} {note}"))
        expect(figure).to_be_visible()
        assert drawn(figure.locator("canvas")) == [255, 0, 0, 255]
        expect(figure.locator("canvas")).to_have_attribute("aria-label", re.compile(f"{name}: a picture of .* pixels"))
    with page.expect_download() as saved:
        page.locator("#look figure", has_text="file").get_by_role("button", name="Save").click()
    assert saved.value.suggested_filename == "file.png"
    assert saved.value.path().read_bytes() == RED
    curve = page.get_by_role("img", name="curve: 40 values from 0 to 39")
    expect(curve).to_be_visible()
    assert curve.locator("polygon").get_attribute("points").startswith("0,78 ")  # it is filled down to 0
    assert page.locator("#look figure", has_text="file").locator("canvas").bounding_box()["width"] > 150
    expect(page.get_by_role("img", name="heat: 5 rows of 5 values, from 0 to 24")).to_be_visible()
    for place in ("#fields", "#inputs td"):
        expect(page.locator(place)).to_have_text("It takes no inputs.")
    expect(page.locator("#outputs td")).to_have_text("Not declared.")
    page.evaluate("location.hash = 'model=album'")
    page.click("#send")
    expect(page.locator("#look tbody tr")).to_have_count(3)
    assert drawn(page.locator("#look td canvas").first) == [255, 0, 0, 255]
    level = page.evaluate("import('./docs/figures.js').then(({ curve }) => curve([20, 23, 21], '').querySelectorAll('polygon').length)")
    assert level == 0  # nothing is filled where 0 is not in the picture
