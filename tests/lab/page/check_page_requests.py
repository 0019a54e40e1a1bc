"""What the page would send, or why not: mistakes, edits, long requests. In a real browser, run by `tox -e page`, as check_page is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import FilePayload, Page, Route, expect

from tests.support.page import Show, answer_of, box_of, code_of, copied_from, refused_at, seen_by, send, turn_to, write_json
from tests.support.processes import Served

PHONE, WIDE = {"width": 360, "height": 740}, {"width": 1280, "height": 900}
EARLIER = "Nothing to copy while there is a mistake above. Below is the last request without one."
BACK = "Mend it, or press Reset, to go back to the fields."


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ('{"inputs": [}', f"""The JSON has a mistake: Unexpected token '}}', "{{"inputs": [}}" is not valid JSON. {BACK}"""),
        (
            '{\n  "inputs": [1 2]\n}',
            f"The JSON has a mistake: Expected ',' or ']' after array element in JSON at position 17 (line 2 column 16). {BACK}",
        ),
        ("", f"The JSON has a mistake: Unexpected end of JSON input. {BACK}"),
        ("null", f"The JSON is no request: expected an object, in which each input has a name. {BACK}"),
        ('{"inputs": [null]}', f"The JSON is no request: expected an object, in which each input has a name. {BACK}"),
    ],
)
def test_json_with_a_mistake_stays_in_sight_until_it_is_mended(show: Show, body: str, told: str) -> None:
    page = show("iris")
    write_json(page, body)
    expect(page.locator("#json .failed")).to_have_text(told)
    page.click("#with-fields")
    expect(page.locator("#with-json")).to_have_attribute("aria-selected", "true")
    expect(page.locator("#fields")).to_be_hidden()
    expect(page.locator("#body")).to_have_value(body)
    expect(page.locator("#json .failed")).to_have_text(told)
    expect(page.locator("#languages button:visible")).to_have_text(["curl", "oip_asgi", "httpx2", "tritonclient", "fetch", "gRPC"])
    page.click("#send")
    expect(page.locator("#body")).to_be_focused()
    assert not any(url.endswith("/infer") for url in show.urls)
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


def test_a_form_with_a_mistake_has_no_request_to_copy(show: Show) -> None:
    page = show("iris")
    field, copy = page.get_by_label("x FP32 [-1, 4]"), page.locator(".head").get_by_role("button", name="Copy")
    field.fill("5, 6, 7, 8")
    expect(page.locator("#note")).to_be_empty()
    whole = page.locator("#code").inner_text()
    field.fill("5, abc")
    for language in ("httpx2", "curl"):
        page.get_by_role("tab", name=language, exact=True).click()
        expect(page.locator("#note")).to_have_text(EARLIER)
    expect(page.locator("#code")).to_have_text(whole)
    expect(page.locator("#code")).to_have_css("opacity", "0.6")
    expect(copy).to_be_disabled()
    expect(page.locator("#link")).to_be_disabled()
    page.click("#with-json")  # where that request can be sent
    expect(copy).to_be_enabled()
    expect(page.locator("#note")).to_be_empty()
    expect(page.locator("#code")).to_have_css("opacity", "1")
    page.click("#with-fields")
    field.fill("1, 2, 3, 4")
    expect(page.locator("#link")).to_be_enabled()
    assert "[1, 2, 3, 4]" in copied_from(page, ".head")
    assert "[1, 2, 3, 4]" in code_of(page, "fetch")


def test_an_answer_says_that_it_is_older_than_the_form(site: Served, show: Show) -> None:
    page = show("iris")
    field, earlier = page.get_by_label("x FP32 [-1, 4]"), page.locator("#earlier")
    field.fill("9, 0, 0, 0")
    assert seen_by(page) == [0]
    expect(earlier).to_be_hidden()
    for edit in ("0, 9, 0, 0", "0, abc"):
        field.fill(edit)
        expect(earlier).to_have_text("sent before your last edit")
        field.fill("9, 0, 0, 0")
        expect(earlier).to_be_hidden()
    write_json(page, "{")
    expect(earlier).to_be_visible()
    page.click("#reset")
    field.fill("0, 0, 9, 0")
    assert seen_by(page) == [2]
    expect(earlier).to_be_hidden()
    turn_to(page, "patient")
    page.get_by_label("seconds FP64 [1]").fill("1.5")
    page.click("#send")
    page.get_by_label("seconds FP64 [1]").fill("0.5")
    expect(page.locator("#status")).to_have_text("200 OK")
    expect(earlier).to_be_visible()
    page.goto(f"{site.url}/v2/docs#model=statistics")  # whose array follows the JSON, which stays the same
    page.get_by_role("button", name="Random numbers for pixels").click()
    send(page)
    expect(earlier).to_be_hidden()
    page.get_by_role("button", name="Random numbers for pixels").click()
    expect(earlier).to_be_visible()


def test_what_a_long_request_lacks_is_said(show: Show) -> None:
    page = show("greet")
    field, note = page.get_by_label("names text"), page.locator("#note")
    for length, told in ((7000, ""), (9000, "The request is too long for a link."),
                         (25_000, "The request is too long for a link, oip_asgi, tritonclient, fetch and gRPC.")):  # fmt: skip
        field.fill("a" * length)
        expect(note).to_have_text(told)
        expect(page.locator("#link")).to_be_visible(visible=not told)
    expect(page.locator("#languages button:visible")).to_have_text(["curl", "httpx2"])
    page.select_option("#action", "generate")
    expect(note).to_have_text("The request is too long for a link and fetch.")  # the others have no code for it, however short it is
    turn_to(page, "statistics")
    page.get_by_role("button", name="Random numbers for pixels").click()
    expect(note).to_have_text("A link cannot carry its bytes. There is no code for fetch.")
    expect(page.locator("#link")).to_be_hidden()


def test_a_mistake_is_told_below_its_field(show: Show) -> None:
    page = show("ranged")
    told, count, share = page.locator("#try .mistake"), page.get_by_label("count INT64"), page.get_by_label("share FP32")
    for field, other in ((share, count), (count, share)):
        field.fill("x")
        expect(told).to_have_attribute("role", "alert")
        assert 0 <= box_of(told)[1] - box_of(field)[3] < 12
        expect(field).to_have_attribute("aria-describedby", "mistake")
        expect(other).not_to_have_attribute("aria-describedby", "mistake")
        field.press_sequentially("y")
        expect(told).to_have_text(re.compile('"xy" is not a number'))
        expect(told).not_to_have_attribute("role", "alert")  # it is not read aloud at each key
        field.fill("1")
        expect(told).to_have_count(0)
        expect(page.locator("#try [aria-describedby]")).to_have_count(0)
    turn_to(page, "people")
    for size in (PHONE, WIDE):
        page.set_viewport_size(size)
        age = page.get_by_label("age, row 1")
        age.fill("x")
        expect(told).to_have_text('age: "x" is not a number')
        assert 0 <= box_of(told)[1] - box_of(age)[3] < 12
        assert box_of(told)[3] <= box_of(page.get_by_label("city, row 1"))[1]
        age.fill("1")
    write_json(page, "{")
    assert 0 <= box_of(told)[1] - box_of(page.locator("#body"))[3] < 12


def test_rows_of_several_lengths_are_no_array(show: Show) -> None:
    page = show("double", refused=True)
    field = page.locator("#fields textarea")
    for action, told in (
        ("infer", "inputs[0] ('x'): data: array 1 of dimension 1 has 1 items, not 3"),
        ("generate", "input 'x': its lists have different lengths: expected as many elements in each"),
    ):
        page.select_option("#action", action)
        field.fill("1 2 3\n4\n5 6")
        refused_at(page, field, told)
    turn_to(page, "iris")
    field = page.get_by_label("x FP32 [-1, 4]")
    for action in ("infer", "generate"):
        page.select_option("#action", action)
        field.fill("[[1,2],[3,4]]")
        refused_at(page, field, "input 'x' has shape [2, 2]: expected [-1, 4]")
    field.fill("[True, False, nan, -inf]")
    expect(page.locator("#fields .mistake")).to_have_count(0)


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


def test_a_backslash_stands_beside_a_word(show: Show) -> None:
    page = show("iris")
    code = code_of(page, "curl")
    for width in range(320, 480, 5):
        page.set_viewport_size({"width": width, "height": 700})
        assert page.locator("#code").evaluate(LONE) == [False, False], width
    assert page.locator("#code").text_content() == code


def test_edits_stay_while_one_looks_at_another_model(show: Show) -> None:
    page = show("iris")
    field = page.get_by_label("x FP32 [-1, 4]")
    field.fill("9, 0, 0, 0")
    assert seen_by(page) == [0]
    page.select_option("#action", "generate")
    field.fill("0, 0, 9, abc")
    go_to(page, "churn")
    page.get_by_role("button", name="Add a row").click()
    page.get_by_label("city, row 2").fill("Ulm")
    go_to(page, "iris")
    expect(page.locator("#action")).to_have_value("generate")
    expect(field).to_have_value("0, 0, 9, abc")
    expect(page.locator("#fields .failed")).to_have_text('x: "abc" is not a number')
    expect(page.locator("#note")).to_have_text(EARLIER)
    expect(page.locator("#code")).to_contain_text("[9, 0, 0, 0]")
    expect(page.locator("#answer")).to_be_hidden()
    page.select_option("#action", "infer")
    write_json(page, '{"inputs": [')
    go_to(page, "churn")
    expect(page.get_by_label("city, row 1")).to_have_value("Bern")
    expect(page.get_by_label("city, row 2")).to_have_value("Ulm")
    send(page)
    expect(page.locator("#look tbody tr")).to_have_count(2)
    go_to(page, "iris")
    expect(page.locator("#body")).to_have_value('{"inputs": [')
    expect(page.locator("#json .failed")).to_be_visible()
    page.locator("#requests a").last.click()  # a request in a link comes before what was edited
    expect(field).to_have_value("9, 0, 0, 0")
    go_to(page, "churn")
    page.click("#reset")
    go_to(page, "iris")
    expect(field).to_have_value("9, 0, 0, 0")
    page.click("#reset")
    for name, label, value in (("churn", "city", "Bern"), ("iris", "x FP32 [-1, 4]", "0.0, 0.0, 0.0, 0.0")):
        go_to(page, name)
        expect(page.get_by_label(label)).to_have_value(value)
    field.fill("1, 2, 3, 4")
    page.reload()
    expect(field).to_have_value("0.0, 0.0, 0.0, 0.0")


def test_a_mistake_in_a_field_is_still_there_after_a_look_at_the_json(show: Show) -> None:
    page = show("iris")
    field = page.get_by_label("x FP32 [-1, 4]")
    field.fill("5, abc")
    page.click("#with-json")
    expect(page.locator("#try .failed")).to_have_count(0)
    page.click("#with-fields")
    expect(field).to_have_value("5, abc")
    expect(page.locator("#fields .failed")).to_have_text('x: "abc" is not a number')


def go_to(page: Page, name: str) -> None:
    page.locator("#models").get_by_role("link", name=name, exact=True).click()
    expect(page.locator("h2")).to_have_text(name)


def csv_of(text: str, name: str = "a.csv") -> FilePayload:
    return {"name": name, "mimeType": "text/csv", "buffer": text.encode()}


def body_of(page: Page) -> Any:
    return json.loads(page.input_value("#body"))


def test_the_datatype_that_is_chosen_is_sent(show: Show) -> None:
    page = show("double")
    page.get_by_label("datatype of x").select_option("INT64")
    assert body_of(page)["inputs"][0]["datatype"] == "INT64"
    assert '"INT64"' in code_of(page, "curl")
    with page.expect_request("**/double/infer") as asked:
        page.click("#send")
    assert json.loads(asked.value.post_data or "")["inputs"][0]["datatype"] == "INT64"


@pytest.mark.parametrize(
    "body",
    [
        '{"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}], "outputs": {}}',
        '{"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}], "outputs": [null]}',
        '{"inputs": [{"name": "x", "shape": {}, "datatype": "FP32", "data": [1, 2, 3, 4]}]}',
        '{"inputs": [{"name": "x", "shape": [1, 4], "datatype": 5, "data": [1, 2, 3, 4]}]}',
    ],
)
def test_json_that_the_server_refuses_is_in_the_code_and_refused_by_the_server(show: Show, body: str) -> None:
    page = show("iris", refused=True)
    expect(page.locator("#code")).to_contain_text("0.0, 0.0")
    write_json(page, body)
    expect(page.locator("#languages button:visible")).to_have_text(["curl", "httpx2", "fetch"])
    assert "[1, 2, 3, 4]" in code_of(page, "httpx2")
    page.click("#send")
    expect(page.locator("#status")).to_have_text("400 Bad Request")


def test_an_entry_of_the_history_fills_its_request_in_once(show: Show) -> None:
    page = show("iris")
    field, last = page.get_by_label("x FP32 [-1, 4]"), page.locator("#requests a").first
    field.fill("9, 0, 0, 0")
    assert seen_by(page) == [0]
    field.fill("0, 9, 0, 0")
    last.click()
    expect(field).to_have_value("9, 0, 0, 0")
    field.fill("1, 2, 3, 4")
    go_to(page, "people")
    page.go_back()
    expect(page.locator("h2")).to_have_text("iris")
    expect(field).to_have_value("1, 2, 3, 4")  # what was edited since stays
    last.click()  # the address has it already
    expect(field).to_have_value("9, 0, 0, 0")
    field.fill("4, 3, 2, 1")
    page.reload()
    expect(field).to_have_value("9, 0, 0, 0")


def test_a_request_that_comes_late_goes_into_no_other_form(show: Show) -> None:
    page = show("iris")
    field = page.get_by_label("x FP32 [-1, 4]")
    field.fill("9, 0, 0, 0")
    assert seen_by(page) == [0]
    field.fill("1, 2, 3, 4")
    go_to(page, "people")
    people, held = page.input_value("#body"), list[Route]()
    page.route("**/v2/models/iris", lambda route: held.append(route))
    page.locator("#requests a").first.click()
    page.locator("#models").get_by_role("link", name="iris", exact=True).click()
    while len(held) < 2:
        page.wait_for_timeout(50)
    with page.expect_response("**/v2/models/iris"):
        held[0].continue_()
    page.wait_for_timeout(200)
    expect(page.locator("h2")).to_have_text("people", timeout=1)
    assert page.input_value("#body") == people
    held[1].continue_()
    expect(page.locator("h2")).to_have_text("iris")
    expect(field).to_have_value("1, 2, 3, 4")
    go_to(page, "people")
    assert page.input_value("#body") == people


HELD = """
const read = Blob.prototype.text;
Blob.prototype.text = async function () { await new Promise((resolve) => { globalThis.release = resolve; }); return read.call(this); };
"""
"""Files are read once the page is told to."""


def test_a_file_that_is_read_late_goes_into_the_form_that_asked_for_it(show: Show) -> None:
    page = show("iris", script=HELD)
    field, file = page.get_by_label("x FP32 [-1, 4]"), page.get_by_label("From a file for x")
    expect(field).to_have_value("0.0, 0.0, 0.0, 0.0")
    file.set_input_files([csv_of("9,0,0,0\n")])
    go_to(page, "people")
    people = page.input_value("#body")
    page.evaluate("release()")
    page.wait_for_timeout(200)
    assert page.input_value("#body") == people
    go_to(page, "iris")
    expect(field).to_have_value("9, 0, 0, 0")
    assert body_of(page)["inputs"][0]["data"] == [9, 0, 0, 0]
    expect(page.locator("#code")).to_contain_text("[9, 0, 0, 0]")

    def edit_json() -> None:
        write_json(page, json.dumps({"id": "7", **body_of(page)}))
        page.click("#with-fields")

    edits: list[Callable[[], object]] = [lambda: field.fill("5, 6, 7, 8"), lambda: page.click("#reset"), edit_json]
    for edit in edits:
        file.set_input_files([csv_of("1,2,3,4\n")])
        edit()
        value = field.input_value()
        page.evaluate("release()")
        page.wait_for_timeout(200)
        expect(field).to_have_value(value, timeout=1)  # which is newer than the file
        assert body_of(page)["inputs"][0]["data"] == [float(each) for each in value.split(", ")]


def test_another_action_takes_what_is_written(show: Show) -> None:
    page = show("iris")
    field, told = page.get_by_label("x FP32 [-1, 4]"), page.locator("#fields .failed")
    tensor = '{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [9, 0, 0, 0]}'
    write_json(page, f'{{"id": "seven", "inputs": [{tensor}]}}')
    page.select_option("#action", "generate")
    assert body_of(page) == {"id": "seven", "x": [9, 0, 0, 0]}
    page.select_option("#action", "infer")
    assert body_of(page) == json.loads(f'{{"id": "seven", "inputs": [{tensor}]}}')
    page.fill("#body", '{"inputs": [')
    page.select_option("#action", "generate")
    expect(page.locator("#body")).to_have_value('{"inputs": [')
    expect(page.locator("#json .failed")).to_be_visible()
    page.click("#reset")
    field.fill("1, x")
    page.select_option("#action", "infer")
    expect(field).to_have_value("1, x")
    expect(told).to_have_text('x: "x" is not a number')
    field.fill("9, 0, 0, 0")
    assert seen_by(page) == [0]


def test_what_a_request_has_besides_its_inputs_stays(show: Show) -> None:
    page = show("iris")
    field, told = page.get_by_label("x FP32 [-1, 4]"), page.locator("#fields [role=status]")
    tensor = '{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [9, 0, 0, 0]}'
    written = f'{{"id": "seven", "inputs":[{tensor}], "outputs": [{{"name": "label"}}]}}'
    write_json(page, written)
    page.click("#with-fields")
    page.get_by_label("From a file for x").set_input_files([csv_of("1,2\n3\n")])
    expect(told).to_have_text("Nothing is read from a.csv: line 2 has 1 number, and the first 2")
    expect(page.locator("#body")).to_have_value(written)
    field.fill("0, 0, 9, 0")
    body = body_of(page)
    assert (body["id"], body["outputs"], body["inputs"][0]["data"]) == ("seven", [{"name": "label"}], [0, 0, 9, 0])
    assert seen_by(page) == [2]
    assert answer_of(page)["id"] == "seven"


def test_more_rows_than_the_fields_show_stay_json(show: Show) -> None:
    page = show("people")
    ages = {"name": "age", "shape": [1001], "datatype": "INT64", "data": [31] * 1001}
    cities = {"name": "city", "shape": [1001], "datatype": "BYTES", "data": ["Bern"] * 1001}
    body = json.dumps({"inputs": [ages, cities]})
    write_json(page, body)
    page.click("#with-fields")
    expect(page.locator("#with-json")).to_have_attribute("aria-selected", "true")
    expect(page.locator("#limit")).to_have_text("The fields show up to 1,000 rows, and here are 1,001")
    expect(page.locator("#body")).to_have_value(body)
    page.click("#reset")
    expect(page.locator("#try .hint:visible")).to_have_count(0)
    expect(page.get_by_label("age, row 1")).to_be_visible()


def test_a_model_that_is_not_there_is_told_as_long_as_it_is_not(show: Show) -> None:
    page = show("iris")
    page.evaluate("location.hash = 'model=nope'")
    message = page.locator("#message")
    expect(message).to_have_text('There is no model "nope".')
    with page.expect_response("**/repository/index"):
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_timeout(200)
    expect(message).to_have_text('There is no model "nope".', timeout=1)
    expect(message).to_be_visible(timeout=1)
    page.go_back()
    expect(page.locator("h2")).to_be_visible()
    expect(message).to_be_hidden()


def test_what_a_picture_says_is_not_the_mistake_of_the_form(show: Show) -> None:
    page = show("files")
    thumb = page.locator("#fields .thumb .failed")
    page.set_input_files(
        "#fields input[type=file]", [{"name": "a.png", "mimeType": "image/png", "buffer": b"\x89PNG\r\n\x1a\n" + b"no" * 20}]
    )
    expect(thumb).to_have_text("The browser cannot read this picture.")
    body = page.input_value("#body")
    write_json(page, "{")
    expect(page.locator("#json .failed")).to_be_visible()
    page.fill("#body", body)
    expect(page.locator("#json .failed")).to_have_count(0)
    page.click("#with-fields")
    expect(thumb).to_have_text("The browser cannot read this picture.")
