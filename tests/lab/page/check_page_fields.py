"""The fields of the page in a real browser: numbers, texts, rows, files. Run by `tox -e page`, as check_page is."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.support.page import Show, answer_of, code_of, drawn, refused_at, seen_by, send, turn_to, write_json
from tests.support.page_site import RED

GAPS = " ".join(["missing"] * 5)


def test_fields_of_numbers_and_texts(show: Show) -> None:
    page = show("iris", refused=True)
    field = page.get_by_label("x FP32 [-1, 4]")
    expect(field).to_have_value("0.0, 0.0, 0.0, 0.0")
    field.fill("1, 2 3;4\n0 9 0 0")
    send(page)
    assert answer_of(page)["outputs"][0]["data"] == [3, 1]
    for wrong, told in (("1, 2, x, 4", 'x: "x" is not a number'), (" ", "x needs a number")):
        field.fill(wrong)
        expect(page.locator("#fields .failed")).to_have_text(told)
        page.click("#send")
        expect(field).to_be_focused()
        expect(page.locator("#answer")).to_be_hidden()  # it was another request's
    for wrong, shape in (("1, 2, 3", [1, 3]), ("1 2 3\n4 5 6", [2, 3]), ("1 2 3\n4 5", [5])):
        field.fill(wrong)
        expect(page.locator("#fields .failed")).to_have_count(0)
        refused_at(page, field, f"input 'x' has shape {shape}: expected [-1, 4]")
    field.fill("NaN Infinity -Infinity null")
    expect(page.locator("#fields .failed")).to_have_count(0)
    page.click("#with-json")
    assert json.loads(page.input_value("#body"))["inputs"][0]["data"] == ["NaN", "Infinity", "-Infinity", None]
    write_json(page, page.input_value("#body").replace('"NaN"', "2.50"))
    page.click("#with-fields")
    expect(field).to_have_value("2.50, Infinity, -Infinity, null")
    field.fill("1 2 3 4\n4 3 2 1")
    page.select_option("#action", "generate")
    expect(field).to_have_value("1 2 3 4\n4 3 2 1")  # what is written stays
    page.click("#send")
    assert answer_of(page)["label"] == [3, 0]
    expect(page.locator("#look thead tr")).to_have_text(["answeredsent", "rowlabelx 0x 1x 2x 3"])  # two rows, though they were sent flat
    turn_to(page, "greet")
    page.get_by_label("names text").fill('Ada\nit\'s "é"')
    page.click("#send")
    assert answer_of(page)["outputs"][0]["data"] == ["hello Ada", 'hello it\'s "é"']
    turn_to(page, "scalar")
    page.get_by_label("factor FP64").fill("3")
    page.get_by_label("x FP64").fill("1.5")
    page.click("#send")
    assert answer_of(page)["outputs"][0]["data"] == [4.5]


def test_a_comma_of_a_decimal_is_never_read_as_one_between_numbers(show: Show) -> None:
    page = show("iris")
    field = page.get_by_label("x FP32 [-1, 4]")
    expect(field).to_have_value("0.0, 0.0, 0.0, 0.0")
    for written, word in (
        ("5,9; 3,0; 5,1; 1,8", "5,9"),
        ("5\t3\t5\t1,8", "1,8"),  # as a spreadsheet copies a row
        ("6,9\n3,0\n5\n5,1\n1,8", "6,9"),  # and a column
        ("1, 2, 3,4", "3,4"),
        ("[1.234,5 2 3]", "1.234,5"),
    ):
        field.fill(written)
        told = f'x: "{word}" is not a number: write decimals with a point, as in 1.5, and a blank between two numbers'
        expect(page.locator("#fields .failed")).to_have_text(told)
    page.click("#send")
    expect(field).to_be_focused()
    expect(page.locator("#answer")).to_be_hidden()


def test_numbers_are_separated_as_people_and_programs_do(show: Show) -> None:
    page = show("iris")
    field, told = page.get_by_label("x FP32 [-1, 4]"), page.locator("#fields .failed")
    expect(field).to_have_value("0.0, 0.0, 0.0, 0.0")
    for written in (
        "5.9, 3, 5, 1\n1, 2, 3, 4",
        "5.9 3 5 1;1 2 3 4",
        "5.9\t3\t5\t1\n1\t2\t3\t4\n",
        "5.9\n3\n5\n1\n1\n2\n3\n4",
        "[[5.9,3,5,1],[1,2,3,4]]",
        "[[5.9 3.  5.\n  1. ]\n [1.  2.  3.\n  4. ]]",  # as numpy prints it
        "[\n  [\n    5.9,\n    3,\n    5,\n    1\n  ],\n  [1, 2, 3, 4]\n]",
    ):
        field.fill("x")
        expect(told).to_have_count(1)
        field.fill(written)
        expect(told).to_have_count(0)
        tensor = json.loads(page.input_value("#body"))["inputs"][0]
        assert (tensor["shape"], tensor["data"]) == ([2, 4], [5.9, 3, 5, 1, 1, 2, 3, 4])
    for wrong, why in (("[]", "x needs a number"), ("[1, 2, 3, 4", 'x: "[1" is not a number')):
        field.fill(wrong)
        expect(told).to_have_text(why)


def test_what_the_fields_cannot_show_of_the_json_is_told_and_not_sent(show: Show) -> None:
    page = show("iris")
    field, told = page.get_by_label("x FP32 [-1, 4]"), page.locator("#fields .failed")
    expect(field).to_have_value("0.0, 0.0, 0.0, 0.0")
    field.fill("1, x")
    tensor = '{"name": "%s", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}'
    write_json(page, f'{{"inputs": [{tensor % "q"}]}}')
    page.click("#with-fields")
    expect(page.locator("#limit")).to_have_text("Not sent, as the model does not take it: q")
    expect(told).to_have_text("x needs a number")
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#code")).to_have_class("earlier")
    page.click("#with-json")
    expect(page.locator("#code")).not_to_contain_text('"q"')
    write_json(page, f'{{"inputs": [{tensor % "x"}], "id": "seven"}}')
    page.click("#with-fields")
    expect(page.locator("#limit")).to_be_empty()
    expect(told).to_have_count(0)
    expect(page.locator("#fields [aria-invalid]")).to_have_count(0)
    assert seen_by(page) == [3]
    assert answer_of(page)["id"] == "seven"
    turn_to(page, "greet")
    page.get_by_label("names text").fill("")
    expect(told).to_have_text("names needs a text")


def test_a_file_is_sent(show: Show) -> None:
    page = show("files")
    page.set_input_files("#fields input[type=file]", [{"name": "a.bin", "mimeType": "image/png", "buffer": b"\x00\xfe"}])
    send(page)
    assert answer_of(page)["outputs"][0]["data"] == ["/wD+"]  # the model puts a byte before it


def test_the_example_of_a_file_is_a_picture_until_it_is_removed(show: Show) -> None:
    page = show("files")
    expect(page.locator("#fields .thumb")).to_have_text(re.compile(r"^a picture, 64 \u00d7 64 pixels, PNG, \d+ bytes$"))
    assert page.locator("#fields canvas").evaluate("canvas => [canvas.width, canvas.height]") == [64, 64]
    sent = json.loads(page.input_value("#body"))["inputs"][0]["data"][0]
    page.click("#send")
    assert base64.b64decode(answer_of(page)["outputs"][0]["data"][0]) == b"\xff" + base64.b64decode(sent)
    page.get_by_role("button", name="Remove the files for file").click()
    expect(page.get_by_label("file BYTES base64")).to_have_value("")
    expect(page.get_by_label("file BYTES base64")).to_have_attribute("placeholder", "a file, or its base64")
    expect(page.locator("#fields .failed")).to_have_text("file needs a file")
    page.click("#send")
    expect(page.get_by_label("file BYTES base64")).to_be_focused()
    expect(page.locator("#answer")).to_be_hidden()
    page.get_by_label("file BYTES base64").fill("AAA=")
    assert seen_by(page) == ["/wAA"]


def test_a_file_for_a_codec_of_the_user_is_the_whole_body(show: Show, tmp_path: Path) -> None:
    page = show("picture")
    (tmp_path / "it's.png").write_bytes(b"\x00\xfe\xff")
    page.set_input_files("#fields input[type=file]", tmp_path / "it's.png")
    send(page)
    expect(page.locator("#answer .line")).to_contain_text("and 7 bytes of tensors")
    assert answer_of(page)["outputs"][0]["shape"] == [1]
    subprocess.run(["sh", "-c", code_of(page, "curl")], cwd=tmp_path, check=True)
    assert (tmp_path / "answer").read_bytes().endswith(b"\x03\x00\x00\x00\x00\xfe\xff")
    done = subprocess.run([sys.executable, "-c", code_of(page, "httpx2")], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\\x03\\x00\\x00\\x00\\x00\\xfe\\xff'\n")
    expect(page.locator("#languages button:visible")).to_have_text(["curl", "httpx2"])


def test_a_frame_is_a_table(show: Show) -> None:
    page = show("people")
    expect(page.locator("#docstring > *")).to_have_text(["A line for each of them:", "in the order that they cameage last"])
    expect(page.locator("#docstring :is(strong, li, code)")).to_have_text(["each", "in the order that they came", "age last", "age"])
    expect(page.locator("#fields tbody tr")).to_have_text(["age INT64", "city text"])
    page.get_by_role("button", name="Add a row").click()
    expect(page.get_by_label("age, row 2")).to_be_focused()
    for label, value in (("age, row 1", "31"), ("age, row 2", "x"), ("city, row 1", "Bern"), ("city, row 2", "Ulm")):
        page.get_by_label(label).fill(value)
    expect(page.locator("#fields .failed")).to_have_text('age, row 2: "x" is not a number')
    page.get_by_label("age, row 2").fill("")
    expect(page.locator("#fields .failed")).to_have_text("age, row 2 needs a number")
    page.get_by_label("age, row 2").fill("42")
    send(page)
    assert answer_of(page)["outputs"][0]["data"] == ["Bern 31", "Ulm 42"]
    expect(page.locator("#totals")).to_contain_text("Calls of the model since the start: 1, with 2 rows.")
    expect(page.locator("#options")).to_contain_text("Rows in a batch max_batch_size=up to 8")


def test_a_row_is_chosen_picked_and_left_out(show: Show) -> None:
    page = show("churn")
    assert seen_by(page) == ["31 5200.25 Bern pro 2021-03-01 00:00:00 True"]
    expect(page.get_by_label("plan, row 1").locator("option")).to_have_text(["basic", "pro", "missing"])
    kinds = ["INT64 or missing", "FP64 or missing", "text or missing", "text or missing", "date or missing", "BOOL"]
    expect(page.locator("#inputs td:nth-child(2)")).to_have_text(kinds)
    names = ["age", "income", "city", "plan", "since", "active"]
    expect(page.locator("#fields tbody th")).to_have_text([f"{name} {kind}" for name, kind in zip(names, kinds, strict=True)])
    expect(page.get_by_label("active, row 1").locator("option")).to_have_text(["true", "false"])
    page.get_by_label("plan, row 1").select_option("basic")
    page.get_by_label("since, row 1").fill("2024-11-20")
    page.get_by_label("active, row 1").select_option("false")
    assert seen_by(page) == ["31 5200.25 Bern basic 2024-11-20 00:00:00 False"]
    for name in ("age", "income", "city", "since"):
        page.get_by_label(f"{name}, row 1").fill("")
    expect(page.get_by_label("age, row 1")).to_have_attribute("placeholder", "missing")
    page.get_by_label("plan, row 1").select_option("missing")
    assert seen_by(page) == [f"{GAPS} False"]
    page.click("#with-json")
    page.click("#with-fields")  # what is missing is still missing
    expect(page.get_by_label("age, row 1")).to_have_value("")
    assert seen_by(page) == [f"{GAPS} False"]


def test_a_date_whose_example_has_a_time_of_the_day_is_called_so(show: Show) -> None:
    page = show("when")
    expect(page.locator("#fields label").first).to_have_text("date date and time [-1]")
    expect(page.locator("#inputs td:nth-child(2)").first).to_have_text("date and time")


def test_the_only_column_has_missing_values_too(show: Show) -> None:
    page = show("towns")
    expect(page.locator("#fields tbody th")).to_have_text("town text or missing")
    assert seen_by(page) == ["Bern"]
    page.get_by_label("town, row 1").fill("")
    expect(page.get_by_label("town, row 1")).to_have_attribute("placeholder", "missing")
    assert seen_by(page) == ["missing"]


def test_rows_are_pasted_and_read_from_a_file(show: Show) -> None:
    page = show("churn")
    text = 'city;plan;age;income;since;active\nBern;pro;31;1.5;2021-03-01;1\n;;;;;false\n"Ulm; south";basic;42;2;2024-11-20 08:00:00;true\n'
    rows = [
        "31 1.5 Bern pro 2021-03-01 00:00:00 True",
        f"{GAPS} False",
        "42 2.0 Ulm; south basic 2024-11-20 08:00:00 True",
    ]
    page.get_by_label("Rows from a CSV file").set_input_files([{"name": "a.csv", "mimeType": "text/csv", "buffer": text.encode()}])
    expect(page.get_by_label("age, row 3")).to_have_value("42")
    expect(page.locator("#fields [role=status]")).to_have_text("6 of 6 columns read")
    expect(page.locator("#fields [role=status]")).not_to_have_class("hint")  # which is for what one has to know
    expect(page.get_by_label("since, row 1")).to_have_attribute("type", "date")
    expect(page.get_by_label("since, row 3")).to_have_attribute("type", "datetime-local")  # it has a time of the day
    expect(page.get_by_label("since, row 3")).to_have_value("2024-11-20T08:00")
    assert seen_by(page) == rows
    expect(page.locator("#look tbody tr").nth(1)).to_have_text(f"2{GAPS} False{'missing' * 5}false")
    expect(page.locator("#look tbody tr").nth(2)).to_contain_text("422Ulm; southbasic")
    page.get_by_role("button", name="Remove the last row").click()
    page.get_by_label("age, row 2").focus()
    paste(page, "7\t0.5\tKiel\n8\t0.25\tBonn\n")
    expect(page.get_by_label("city, row 3")).to_have_value("Bonn")
    expect(page.locator("#fields .failed")).to_have_text("active, row 2 needs a choice")  # a row is pasted as a whole
    page.get_by_label("active, row 2").select_option("false")
    page.get_by_label("active, row 3").select_option("true")
    assert seen_by(page) == [rows[0], "7 0.5 Kiel missing missing False", "8 0.25 Bonn missing missing True"]


def test_a_table_of_some_columns_leaves_the_others_empty(show: Show) -> None:
    page = show("churn")
    expect(page.get_by_label("age, row 1")).to_have_value("31")
    read, told = page.locator("#fields [role=status]"), page.locator("#fields .failed")
    text = "age,typo_plan,income\n40,pro,1.5\n41,basic,2.5\n"
    page.get_by_label("Rows from a CSV file").set_input_files([{"name": "a.csv", "mimeType": "text/csv", "buffer": text.encode()}])
    expect(read).to_have_text("2 of 6 columns read; unknown: typo_plan")
    expect(read).to_have_class("hint")
    expect(told).to_have_text("active, row 1 needs a choice")
    page.click("#send")
    expect(page.get_by_label("active, row 1")).to_be_focused()
    expect(page.locator("#answer")).to_be_hidden()
    page.get_by_label("active, row 1").select_option("true")
    page.get_by_label("active, row 2").select_option("false")
    assert seen_by(page) == ["40 1.5 missing missing missing True", "41 2.5 missing missing missing False"]
    page.get_by_label("income, row 1").focus()
    paste(page, "7.5\tKiel\n8.5\tBonn\n")  # a block beside what is there
    expect(read).to_have_text("2 of 6 columns read")
    assert seen_by(page) == ["40 7.5 Kiel missing missing True", "41 8.5 Bonn missing missing False"]
    page.click("#reset")
    expect(read).to_be_hidden()
    turn_to(page, "people")
    page.get_by_label("age, row 1").focus()
    paste(page, "age\n31\n")
    expect(told).to_have_text("city needs a text")


def test_a_table_of_other_columns_is_not_read(show: Show) -> None:
    page = show("churn")
    row = ["31 5200.25 Bern pro 2021-03-01 00:00:00 True"]
    expect(page.get_by_label("age, row 1")).to_have_value("31")
    read, told = page.locator("#fields [role=status]"), page.locator("#fields .failed")
    columns = "age, income, city, plan, since, active"
    file = page.get_by_label("Rows from a CSV file")
    for text, names in (
        ("Age,foo\n1,2\n", "Age, foo"),
        ("a,b,c,d,e,f\n1,2,x,pro,2024-01-01,true\n", "a, b, c, d, e, f"),
        ("foo\n", "foo"),
        ("x1,x2\n1,2\n", "x1, x2"),
    ):
        file.set_input_files([{"name": "a.csv", "mimeType": "text/csv", "buffer": text.encode()}])
        expect(read).to_have_text(f"Nothing is read: no column is called {names}. Expected: {columns}")
        expect(told).to_have_count(0)
        assert seen_by(page) == row
    page.get_by_label("income, row 1").focus()
    paste(page, "foo\tbar\n1\t2\n")
    expect(read).to_have_text(f"Nothing is read: no column is called foo, bar. Expected: {columns}")
    assert seen_by(page) == row
    few = "a,b,c,d,income,plan\n1,2,3,4,1.5,pro\n"  # two of six, and no line of values
    file.set_input_files([{"name": "a.csv", "mimeType": "text/csv", "buffer": few.encode()}])
    expect(read).to_have_text("2 of 6 columns read; unknown: a, b, c, d")
    expect(page.get_by_label("income, row 1")).to_have_value("1.5")
    for text in ("40,x,Ulm,gold,2024-01-01,true\n", ",,Ulm,pro,,maybe\n"):
        file.set_input_files([{"name": "a.csv", "mimeType": "text/csv", "buffer": text.encode()}])
        expect(read).to_have_text("6 of 6 columns read")  # rows by place, one value of which is wrong
        expect(page.get_by_label("city, row 1")).to_have_value("Ulm")


def test_another_row_is_that_above(show: Show) -> None:
    page = show("churn")
    page.get_by_label("city, row 1").fill("")
    page.get_by_role("button", name="Add a row").click()
    expect(page.get_by_label("age, row 2")).to_be_focused()
    expect(page.locator("#fields .failed")).to_have_count(0)
    assert seen_by(page) == ["31 5200.25 missing pro 2021-03-01 00:00:00 True"] * 2
    page.get_by_label("age, row 2").fill("x")
    page.get_by_role("button", name="Add a row").click()
    expect(page.get_by_label("age, row 3")).to_have_value("")


def paste(page: Page, text: str) -> None:
    page.evaluate(
        """text => {
            const data = new DataTransfer();
            data.setData("text", text);
            document.activeElement.dispatchEvent(new ClipboardEvent("paste", {clipboardData: data, bubbles: true, cancelable: true}));
        }""",
        text,
    )


def test_rows_of_a_class_are_chosen(show: Show) -> None:
    page = show("customers", refused=True)
    expect(page.locator("#fields tbody th")).to_have_text(["age INT64, expected: 0 to 120", "plan text", "city text or missing"])
    page.get_by_label("plan, row 1").select_option("pro")
    page.get_by_label("city, row 1").fill("")
    assert seen_by(page) == ["0 pro None"]
    page.get_by_role("button", name="Add a row").click()
    expect(page.get_by_label("plan, row 2").locator("option:checked")).to_have_text("pro")  # as in the row above
    age = page.get_by_label("age, row 2")
    told = "rows[1].age: expected int <= 120, got 999 (the server counts rows from 0: this is row 2 here)"
    age.fill("1.5")
    expect(page.locator("#fields .failed")).to_have_text("age, row 2: 1.5 is not an integer")
    expect(age).to_have_attribute("aria-invalid", "true")
    for wrong, why in (
        ("9e30", "inputs[0] ('age'): data[1]: a whole number of 2**53 or more with a fraction or an exponent may have been rounded"),
        ("9" * 31, "inputs[0] ('age'): data: element 1 is out of range for INT64"),
        ("999", told),
    ):
        age.fill(wrong)
        expect(page.locator("#fields .failed")).to_have_count(0)
        refused_at(page, age, why)
        expect(age).to_have_attribute("aria-invalid", "true")
    age.fill("99")
    expect(page.locator("#fields .failed")).to_have_count(0)  # it is another request now
    expect(page.locator("#earlier")).to_be_visible()
    age.fill("999")
    expect(page.locator("#fields .failed")).to_have_text(told)
    write_json(page, page.input_value("#body"))
    expect(page.locator("#json .failed")).to_have_count(0)  # its field is not in sight
    page.click("#send")
    expect(page.locator("#failure")).to_have_text(told)
    page.click("#with-fields")
    expect(page.locator("#fields .failed")).to_have_text(told)
    page.click("#reset")
    page.select_option("#action", "generate")
    write_json(page, '[{"age": 1, "plan": "pro", "city": null}, {"age": 2, "plan": "basic", "city": "Bern"}]')
    page.click("#send")
    expect(page.locator("#look tbody tr")).to_have_text(["11 pro None1promissing", "22 basic Bern2basicBern"])
    page.click("#with-fields")
    expect(page.get_by_label("city, row 2")).to_have_value("Bern")


def test_a_scalar_shows_its_default(show: Show) -> None:
    page = show("scaled")
    page.get_by_label("x FP32").fill("1 2")
    expect(page.get_by_label("factor FP64")).to_have_attribute("placeholder", "default 2.5")
    expect(page.get_by_label("exact BOOL").locator("option:checked")).to_have_text("default false")
    assert seen_by(page) == [2.5, 5]
    page.get_by_label("factor FP64").fill("3")
    page.get_by_label("exact BOOL").select_option("true")
    assert seen_by(page) == [4, 7]
    page.get_by_label("exact BOOL").select_option("default false")
    assert seen_by(page) == [3, 6]


def test_one_number_has_one_line(show: Show) -> None:
    page = show("ranged", refused=True)
    count, share, told = page.get_by_label("count INT64"), page.get_by_label("share FP32"), page.locator("#fields .failed")
    expect(page.locator("#fields textarea, #fields .tools button, #fields .pick")).to_have_count(0)
    assert len({box["height"] for box in map(Locator.bounding_box, page.locator("#fields :is(input, select)").all()) if box}) == 1
    expect(count).to_have_js_property("inputMode", "")  # it may be negative, and a phone's keys for decimals have no minus
    assert seen_by(page) == ["[0] [[0.0]] 2.5"]
    for text, why in (
        ("1.5", "1.5 is not an integer"),
        ("1 2", '"1 2" is not a number'),
        ("1,5", '"1,5" is not a number: write decimals with a point, as in 1.5'),
    ):
        count.fill(text)
        expect(told).to_have_text(f"count: {why}")
        page.click("#send")
        expect(count).to_be_focused()
    count.fill("101")
    refused_at(page, count, "input 'count', row 0: 101 is out of range: expected -5 to 100")
    count.fill("0")
    share.fill("2")
    refused_at(page, share, "input 'share', row 0: 2.0 is out of range: expected 1 or less")
    count.fill("")
    expect(told).to_have_text("count needs a number")
    count.fill("-4")
    share.fill("NaN")
    assert seen_by(page) == ["[-4] [[nan]] 2.5"]
    page.goto(str(page.evaluate("document.querySelector('#requests a').href")))
    page.reload()
    expect(count).to_have_value("-4")
    expect(share).to_have_value("NaN")
    write_json(page, page.input_value("#body").replace("[-4]", "[7, 8]").replace('["NaN"]', "[null]"))
    page.click("#with-fields")
    expect(count).to_have_value("7, 8")
    expect(share).to_have_value("null")
    refused_at(page, count, "inputs[0] ('count'): data has 2 elements: expected 1 in a flat array for shape [1]")
    count.press_sequentially(" ")
    expect(told).to_have_text(re.compile("^count: .* is not a number$"))
    page.click("#reset")
    assert seen_by(page) == ["[0] [[0.0]] 2.5"]


def test_what_an_input_takes_is_among_the_inputs_and_outputs(show: Show) -> None:
    page = show("ranged", viewport={"width": 360, "height": 740})
    lines = ["countINT64[1]", "expected: -5 to 100", "shareFP32[1, 1]", "expected: 1 or less", "factor (optional)FP64[1]", "default 2.5"]
    expect(page.locator("#inputs tr:has(td)")).to_have_text(lines)
    expect(page.locator("#outputs tr:has(td)")).to_have_text(["seentext[-1]"])
    turn_to(page, "customers")
    expect(page.locator("#inputs tr:has(td)")).to_have_text(
        ["ageINT64[-1]", "expected: 0 to 120", "plantext[-1]", "one of basic, pro", "citytext or missing[-1]"]
    )
    assert page.evaluate("document.querySelector('#inputs').closest('.scroll').scrollWidth") <= 360


def test_a_large_array_comes_from_a_file(show: Show, tmp_path: Path) -> None:
    page = show("statistics")
    assert seen_by(page) == [0, 0, 0]
    expect(page.locator("#look figcaption")).to_contain_text("mean3 values")  # of one request, which has no rows
    expect(page.locator("#look tr")).to_have_text(["00.0", "10.0", "20.0"])
    array = np.arange(3 * 48 * 64, dtype=np.float64).reshape(3, 48, 64) / (3 * 48 * 64)
    np.save(tmp_path / "x.npy", array)
    page.set_input_files("#fields input[type=file]", tmp_path / "x.npy")
    expect(page.locator("#fields .preview")).to_contain_text("9,216 elements, [1, 3, 48, 64], from x.npy")
    assert seen_by(page) == pytest.approx(array.mean(axis=(1, 2)).tolist(), rel=1e-5)
    np.savetxt(tmp_path / "x.csv", array.reshape(144, 64), delimiter=",")
    page.set_input_files("#fields input[type=file]", tmp_path / "x.csv")
    expect(page.locator("#fields .preview")).to_contain_text("9,216 elements, [1, 3, 48, 64], from x.csv")  # rows have two sizes at most
    assert seen_by(page) == pytest.approx(array.mean(axis=(1, 2)).tolist(), rel=1e-5)
    page.set_input_files("#fields input[type=file]", tmp_path / "x.npy")
    expect(page.locator("#fields .preview")).to_contain_text("from x.npy")
    done = subprocess.run([sys.executable, "-c", code_of(page, "oip_asgi")], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("mean [0.16")
    done = subprocess.run([sys.executable, "-c", code_of(page, "tritonclient")], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("mean [0.16")
    code = code_of(page, "curl")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save body.bin").click()
    saved.value.save_as(tmp_path / "body.bin")
    for command in (["sh", "-c", code], [sys.executable, "-c", code_of(page, "httpx2")]):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert "0.1666" in done.stdout
    page.select_option("#action", "generate")
    page.get_by_role("button", name="Random numbers for pixels").click()
    send(page)
    assert answer_of(page)["mean"] == pytest.approx([0.5] * 3, abs=0.1)
    page.set_input_files("#fields input[type=file]", [{"name": "red.png", "mimeType": "image/png", "buffer": RED}])
    expect(page.locator("#fields canvas")).to_be_visible()
    page.click("#send")
    expect(page.locator("#text")).to_contain_text("[1")
    assert answer_of(page)["mean"] == [1, 0, 0]
    page.set_input_files("#fields input[type=file]", [{"name": "no.npy", "mimeType": "", "buffer": b"no"}])
    expect(page.locator("#fields [role=status]")).to_have_text("Nothing is read from no.npy: numpy.save has not written it")
    expect(page.locator("#fields canvas")).to_be_visible()  # what was there stays


def test_a_file_that_has_no_array_changes_nothing_and_one_of_another_shape_is_refused(show: Show) -> None:
    page = show("iris", refused=True)
    field, told, file = page.get_by_label("x FP32 [-1, 4]"), page.locator("#fields [role=status]"), page.get_by_label("From a file for x")
    field.fill("4, 3, 2, 1")
    for name, content, why in (
        ("a.txt", b"hello", "it has no numbers"),
        ("b.csv", b"", "it has no numbers"),
        ("d.csv", b"a,b,c,d\n1,2,3,4\n1,2,three,4\n", 'line 3: "three" is not a number'),
        ("e.csv", b"5,9;3,0;5,1;1,8\n", 'line 1: "5,9" is not a number: write decimals with a point, as in 1.5'),
        ("j.csv", b"1,2,3,4\n1,2,3,4,5,6,7,8\n", "line 2 has 8 numbers, and the first 4"),
        ("g.png", RED, "it is a picture of 3 by 2 pixels, expected the shape [-1, 4]"),
        ("h.pdf", b"%PDF-1.7", "it is neither npy nor CSV, nor a picture that the browser can read"),
    ):
        file.set_input_files([{"name": name, "mimeType": "", "buffer": content}])
        expect(told).to_have_text(f"Nothing is read from {name}: {why}")
        expect(field).to_have_value("4, 3, 2, 1")
        expect(page.locator("#fields .failed")).to_have_count(0)
    assert seen_by(page) == [0]
    for content, text, shape in ((b"a,b\n1,2\n3,4\n", "1, 2\n3, 4", [2, 2]), (b"1\n2\n3\n", "1\n2\n3", [3, 1])):
        file.set_input_files([{"name": "c.csv", "mimeType": "", "buffer": content}])
        expect(field).to_have_value(text)
        for action in ("generate", "infer"):
            page.select_option("#action", action)
            refused_at(page, field, f"input 'x' has shape {shape}: expected [-1, 4]")
    file.set_input_files([{"name": "i.csv", "mimeType": "", "buffer": b"a,b,c,d\n1,2,nan,inf\n"}])
    expect(field).to_have_value("1, 2, NaN, Infinity")
    expect(told).to_be_hidden()


def test_long_integers_are_sent_as_they_are_written(show: Show, tmp_path: Path) -> None:
    page = show("ids")
    field = page.get_by_label("ids INT64 [-1]")
    field.fill("+9007199254740993 0 -9223372036854775808")
    assert seen_by(page) == [9007199254740993, 0, -9223372036854775808]
    file = page.get_by_label("From a file for ids")
    file.set_input_files([{"name": "a.csv", "mimeType": "", "buffer": b"ids\n9007199254740993\n7\n"}])
    expect(field).to_have_value("9007199254740993, 7")
    assert seen_by(page) == [9007199254740993, 7]
    many = [9007199254740993 + each for each in range(5000)]
    (tmp_path / "many.csv").write_text("\n".join(["ids", *map(str, many)]))
    np.save(tmp_path / "many.npy", np.array(many))
    for name in ("many.csv", "many.npy"):
        file.set_input_files(tmp_path / name)
        expect(page.locator("#fields .preview")).to_contain_text(f"5,000 elements, [5000], from {name}")
        assert seen_by(page) == many
        code = code_of(page, "oip_asgi").replace("print(output.name, output.array)", "print(output.array.tolist())")
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert json.loads(done.stdout) == many
    page.select_option("#action", "generate")
    file.set_input_files(tmp_path / "many.csv")
    send(page)
    assert answer_of(page)["same"] == many
    file.set_input_files([{"name": "b.csv", "mimeType": "", "buffer": b"7\n" * 5000 + b"1.5"}])
    expect(page.locator("#fields [role=status]")).to_have_text("Nothing is read from b.csv: 1.5 is no INT64")


def test_a_picture_is_shown_before_it_is_sent(show: Show, tmp_path: Path) -> None:
    page = show("files")
    (tmp_path / "it's $x.png").write_bytes(RED)
    page.set_input_files("#fields input[type=file]", tmp_path / "it's $x.png")
    expect(page.locator("#fields .thumb")).to_contain_text(f"it's $x.png, 3 \u00d7 2 pixels, PNG, {len(RED)} bytes")
    assert drawn(page.locator("#fields canvas")) == [255, 0, 0, 255]
    send(page)
    expected = answer_of(page)
    for language, command in (("curl", ["sh", "-c"]), ("httpx2", [sys.executable, "-c"])):
        code = code_of(page, language)
        assert len(code) < 500
        done = subprocess.run([*command, code], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert (json.loads if language == "curl" else eval)(done.stdout) == expected
    page.get_by_role("button", name="Remove the files").click()
    expect(page.locator("#fields textarea")).to_be_visible()
    expect(page.locator("#fields .thumb")).to_have_count(0)
