"""The tensors that the page sends are those that a reader has chosen, written or filled in. Run by `tox -e page`, as check_page is."""

from __future__ import annotations

import json
import re
from io import BytesIO
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from playwright.sync_api import FilePayload, Page, expect

from tests.support.page import Show, code_of, refused_at, seen_by, send, turn_to, write_json
from tests.support.page_site import RED
from tests.support.processes import Served


def file_of(content: bytes, name: str = "a.bin") -> FilePayload:
    return {"name": name, "mimeType": "", "buffer": content}


def npy_of(shape: list[int], name: str = "a.npy") -> FilePayload:
    file = BytesIO()
    np.save(file, np.arange(np.prod(shape), dtype=np.float32).reshape(shape) / 8)
    return file_of(file.getvalue(), name)


def body_of(page: Page) -> Any:
    return json.loads(page.input_value("#body"))


def follow(page: Page, name: str, body: Any, action: str = "infer") -> None:
    """Follow a link that fills in a request."""
    request = {"model": name, "action": action, "body": body if isinstance(body, str) else json.dumps(body)}
    page.goto(f"{page.url.partition('#')[0]}#{urlencode(request)}")
    expect(page.locator("h2")).to_have_text(name)


def large(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "shape": [1, 5000], "datatype": "FP32", **({"parameters": {"binary_data_size": 20000}} | more)}


N = {"name": "n", "shape": [1], "datatype": "FP32", "data": [1]}


def test_bytes_follow_the_json_in_its_order(show: Show) -> None:
    page = show("pair")
    for name, value in (("a", 1), ("b", 2)):
        text = "\n".join([str(value)] * 5000)
        page.get_by_label(f"From a file for {name}").set_input_files([file_of(text.encode(), f"{name}.csv")])
        expect(page.locator("#fields .preview", has_text=f"from {name}.csv")).to_be_visible()
    assert seen_by(page) == [1, 2]
    write_json(page, json.dumps({"inputs": [large("b"), large("a")]}))
    assert seen_by(page) == [1, 2]
    page.click("#with-fields")
    assert seen_by(page) == [1, 2]
    write_json(page, json.dumps({"inputs": [large("a", parameters={}, data=[3] * 5000), large("b")]}))
    assert seen_by(page) == [3, 2]
    write_json(page, json.dumps({"inputs": [large("b", parameters={}, data=[4] * 5000), large("a")]}))
    assert seen_by(page) == [1, 4]
    page.click("#with-fields")
    assert seen_by(page) == [1, 4]
    write_json(page, json.dumps({"inputs": [large("a"), large("b")]}))
    told = "There are no bytes for b, which has a binary_data_size. Mend it, or press Reset, to go back to the fields."
    expect(page.locator("#json .failed")).to_have_text(told)  # they were of a field that has text by now
    follow(page, "pair", {"inputs": [large("a"), large("b")]})
    expect(page.locator("#json .failed")).to_have_text(told.replace("b,", "a,"))
    page.click("#reset")
    assert seen_by(page) == [0, 0]


def test_a_size_that_is_only_mentioned_sends_no_bytes(show: Show) -> None:
    page = show("pair")
    body = {"id": "binary_data_size", "inputs": [large(name, parameters={}, data=[3] * 5000) for name in "ab"]}
    expect(page.locator("#fields .preview").first).to_contain_text("zeros")
    write_json(page, json.dumps(body))
    assert seen_by(page) == [3, 3]


def test_a_field_that_is_not_edited_sends_what_it_was_filled_with(show: Show) -> None:
    page = show("noted")
    page.get_by_label("Choose a file for t").set_input_files([file_of(b"\x00\xfe\xff")])
    expect(page.locator("#fields .thumb")).to_have_text("a.bin, 3 bytes")
    assert seen_by(page) == [r"[b'\x00\xfe\xff'] 0.0"]
    turn_to(page, "iris")
    page.locator("#requests a").first.click()
    expect(page.locator("#fields .thumb")).to_have_text("a file, 3 bytes")
    n = page.get_by_label("n FP32")
    n.fill("2")
    assert seen_by(page) == [r"[b'\x00\xfe\xff'] 2.0"]
    page.get_by_role("button", name="Remove the files for t").click()
    page.get_by_label("t text").fill("AP7/")
    assert seen_by(page) == ["[b'AP7/'] 2.0"]
    write_json(page, json.dumps({"inputs": [{"name": "t", "shape": [3], "datatype": "BYTES", "data": ["a", "", "b"]}, N]}))
    page.click("#with-fields")
    for value in (3, 4):
        n.fill(str(value))
        assert seen_by(page) == [f"[b'a', b'', b'b'] {value}.0"]
    texts = {"name": "t", "shape": [1], "datatype": "BYTES", "data": [None], "parameters": {"of": "the reader"}}
    write_json(page, json.dumps({"inputs": [texts, N]}))
    page.click("#with-fields")
    n.fill("5")
    assert body_of(page)["inputs"][0] == texts
    page.get_by_label("t text").fill("x")
    assert body_of(page)["inputs"][0] == {"name": "t", "shape": [1], "datatype": "BYTES", "data": ["x"]}
    page.select_option("#action", "generate")
    write_json(page, '{"t": ["a", "", "b"], "n": 1}')
    page.click("#with-fields")
    n.fill("6")
    assert body_of(page) == {"t": ["a", "", "b"], "n": 6}
    page.select_option("#action", "infer")
    assert seen_by(page) == ["[b'a', b'', b'b'] 6.0"]


def test_a_flat_object_has_no_file_unless_its_input_is_one(show: Show) -> None:
    page = show("noted")
    page.get_by_label("Choose a file for t").set_input_files([file_of(b"\x00\xfe\xff")])
    expect(page.locator("#fields .thumb")).to_be_visible()
    page.select_option("#action", "generate")
    expect(page.locator("#fields .failed")).to_have_text("t is a file, which only infer takes")
    page.select_option("#action", "infer")
    assert seen_by(page) == [r"[b'\x00\xfe\xff'] 0.0"]
    turn_to(page, "files")
    page.get_by_label("Choose a file for file").set_input_files([file_of(b"\x00\xfe")])
    page.select_option("#action", "generate")
    send(page)


SHAPES = [("cube", [2, 3, 4]), ("cube", [4, 1, 6]), ("colors", [2, 4, 3]), ("planes", [3, 5, 7])]


@pytest.mark.parametrize(("name", "shape"), SHAPES)
def test_an_array_of_any_size_keeps_its_shape(show: Show, name: str, shape: list[int]) -> None:
    page = show(name)
    datatype = "UINT8" if name == "colors" else "FP32"
    file, n, count = npy_of(shape), page.get_by_label("n FP32"), int(np.prod(shape))
    if name == "colors":
        content = BytesIO()
        np.save(content, np.zeros(shape, np.uint8))
        file["buffer"] = content.getvalue()
    page.get_by_label("From a file for x").set_input_files([file])
    breaks = count // shape[-1] - 1
    expect(page.get_by_label(f"x {datatype}")).to_have_value(re.compile(rf"^(.+\n){{{breaks}}}.+$"))
    assert page.get_by_label(f"x {datatype}").evaluate("field => field.scrollHeight <= field.clientHeight")  # all lines are seen
    assert seen_by(page) == [f"{shape} 0.0"]
    text = page.get_by_label(f"x {datatype}").input_value()
    page.get_by_label(f"x {datatype}").fill(text.replace("0", "7", 1))
    assert seen_by(page) == [f"{shape} 0.0"]
    x = {"name": "x", "shape": shape, "datatype": datatype, "data": np.zeros(shape, int).tolist()}
    write_json(page, json.dumps({"inputs": [x, N]}))
    page.click("#with-fields")
    n.fill("3")
    assert seen_by(page) == [f"{shape} 3.0"]
    page.select_option("#action", "generate")
    write_json(page, json.dumps({"x": x["data"], "n": 1}))
    page.click("#with-fields")
    n.fill("4")
    assert body_of(page) == {"x": x["data"], "n": 4}
    page.select_option("#action", "infer")
    assert seen_by(page) == [f"{shape} 4.0"]


def test_lines_that_are_others_are_another_shape(show: Show) -> None:
    page = show("double")
    write_json(page, json.dumps({"inputs": [{"name": "x", "shape": [2, 3], "datatype": "FP32", "data": [[1, 2, 3], [4, 5, 6]]}]}))
    page.click("#with-fields")
    field = page.locator("#fields textarea")
    for text, shape in (("7 2 3\n4 5 6", [2, 3]), ("7 2\n3 4\n5 6", [3, 2]), ("7 2 3 4", [4])):
        field.fill(text)
        assert body_of(page)["inputs"][0]["shape"] == shape


def test_a_flat_object_is_shown_as_it_is(show: Show) -> None:
    page = show("planes")
    page.select_option("#action", "generate")
    for x in ([0, 0, 0], [1, 2, 3, 4], [[1], [2], [3]]):
        write_json(page, json.dumps({"x": x, "n": 1}))
        page.click("#with-fields")
        expect(page.locator("#fields .failed")).to_have_count(0)
        page.get_by_label("n FP32").fill("2")
        assert body_of(page) == {"x": x, "n": 2}
    page.click("#reset")
    page.select_option("#action", "infer")
    assert seen_by(page) == ["[3, 1, 1] 0.0"]


@pytest.mark.parametrize(("name", "shape"), [("colors", "[2, 3, 3]"), ("planes", "[3, 2, 3]")])
def test_a_picture_of_any_size_is_taken(show: Show, name: str, shape: str) -> None:
    page = show(name)
    page.get_by_label("From a file for x").set_input_files([file_of(RED, "red.png")])
    expect(page.locator("#fields textarea").first).not_to_have_value("0, 0, 0")
    assert seen_by(page) == [f"{shape} 0.0"]


"""
const read = Blob.prototype.arrayBuffer;
Blob.prototype.arrayBuffer = async function () {
    await new Promise((resolve) => { globalThis.release = resolve; });
    return read.call(this);
};
"""
"""Files are read once the page is told to."""


def test_a_value_is_one_element(show: Show) -> None:
    page = show("noted", refused=True)
    expect(page.get_by_label("n FP32")).to_have_value("0.0")
    t = {"name": "t", "shape": [1], "datatype": "BYTES", "data": ["a"]}
    for data, count in (([], "0 elements"), ([1, 2], "2 elements")):
        write_json(page, json.dumps({"inputs": [t, {**N, "data": data}]}))
        page.click("#with-fields")
        refused_at(page, page.get_by_label("n FP32"), f"inputs[1] ('n'): data has {count}: expected 1 in a flat array for shape [1]")
        expect(page.get_by_label("n FP32")).to_have_attribute("aria-invalid", "true")
    page.get_by_label("n FP32").fill("3")
    assert seen_by(page) == ["[b'a'] 3.0"]


def test_code_reads_a_file_that_has_something_alone(show: Show) -> None:
    page = show("files")
    page.get_by_label("Choose a file for file").set_input_files([file_of(b"", "e.bin")])
    expect(page.locator("#fields .thumb")).to_have_text("e.bin, 0 bytes")
    for language in ("curl", "httpx2"):
        assert "e.bin" not in code_of(page, language)
    turn_to(page, "scanned")
    page.get_by_label("Choose a file for file").set_input_files([file_of(b"\x00\xfe", "f.bin")])
    expect(page.locator("#fields .thumb")).to_have_text("f.bin, 2 bytes")
    for language in ("curl", "httpx2"):
        code = code_of(page, language)
        assert "body.bin" in code
        assert "f.bin" not in code
        assert "def read" not in code
    assert seen_by(page) == [r"[b'\x00\xfe'] 0.0"]


DROP = """(field, names) => {
    const data = new DataTransfer();
    for (const name of names) data.items.add(new File(["1,2,3,4"], name));
    if (!names.length) data.setData("text/plain", "5, 6, 7, 8");
    return field.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
}"""
"""Whether the browser does what it does with what is dropped."""


def test_one_file_is_expected_where_one_is_sent(show: Show) -> None:
    page = show("picture")
    field, told = page.locator("#fields .field"), page.locator("#fields .field [role=status]")
    for name in ("picture", "iris"):
        turn_to(page, name)
        field.evaluate(DROP, ["a.csv", "b.csv"])
        expect(told).to_have_text("Nothing is read from a.csv: expected one file")
        expect(page.locator("#fields .thumb")).to_have_count(0)
    field.evaluate(DROP, ["a.csv"])
    expect(page.get_by_label("x FP32 [-1, 4]")).to_have_value("1, 2, 3, 4")
    assert field.evaluate(DROP, [])  # text goes where it always goes
    assert not field.evaluate(DROP, ["a.csv"])


def test_a_link_that_cannot_be_filled_in_says_why(site: Served, show: Show) -> None:
    page = show("iris")
    x, note, told = page.get_by_label("x FP32 [-1, 4]"), page.locator("#limit"), "The JSON has a mistake: "
    expect(x).to_have_value("0.0, 0.0, 0.0, 0.0")
    for body, action, why in (
        ('{"inputs": [{"name": "x", "data": [1, ', "infer", f"{told}Unexpected end of JSON input."),
        (
            '{"inputs": [1 2]}',
            "infer",
            f"{told}Expected ',' or ']' after array element in JSON at position 14 (line 1 column 15).",
        ),
        ('{"x": 1}', "infer_stream", 'The model has no action "infer_stream".'),
    ):
        follow(page, "iris", body, action)
        expect(note).to_have_text(f"The link's request cannot be filled in. {why}")
        expect(x).to_have_value("0.0, 0.0, 0.0, 0.0")
    page.goto(f"{site.url}/v2/docs#model=iris&action=infer")
    expect(note).to_have_text("The link's request cannot be filled in. It has no body.")
    page.click("#reset")
    expect(note).to_be_empty()
    follow(page, "iris", "[1, 2]")
    expect(page.locator("#json .failed")).to_contain_text("The JSON is no request")
    expect(page.locator("#code")).to_contain_text("0.0, 0.0, 0.0, 0.0")  # the last request without a mistake
    page.click("#send")
    expect(page.locator("#body")).to_be_focused()
    expect(page.locator("#answer")).to_be_hidden()


def test_numbers_of_sixteen_bits_are_those_of_numpy(show: Show) -> None:
    page = show("iris")
    numbers = np.concatenate([np.geomspace(1e-9, 65000, 500), [-0.0, -1.25, 65519.0, 2**-24, 2**-25, 3 * 2**-25, 2049.0, 2051.0]])
    halves = numbers.astype(np.float16)
    both = """async (numbers) => {
        const { bytesOf, elementsOf } = await import(new URL("docs/tensors.js", location.href)), bytes = bytesOf("FP16", numbers);
        return [[...bytes], elementsOf("FP16", bytes)];
    }"""
    assert page.evaluate(both, numbers.tolist()) == [[*halves.tobytes()], halves.astype(float).tolist()]


def test_what_is_told_is_told_once(show: Show) -> None:
    page = show("iris")
    field = page.get_by_label("x FP32 [-1, 4]")
    expect(page.locator("#limit")).to_have_attribute("role", "status")
    field.fill("x")
    expect(field).to_have_attribute("aria-invalid", "true")
    watch = """field => {
        globalThis.changes = [];
        const attributeFilter = ["aria-invalid", "aria-describedby"], note = (all) => changes.push(...all.map((one) => one.attributeName));
        new MutationObserver(note).observe(field, { attributes: true, attributeFilter });
    }"""
    field.evaluate(watch)
    field.press_sequentially("yz")
    assert page.evaluate("changes") == []
    field.fill("1 2 3 4")
    assert page.evaluate("changes") == ["aria-invalid", "aria-describedby"]
