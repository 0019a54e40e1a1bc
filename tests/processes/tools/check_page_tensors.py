"""The tensors that the page sends are those that a reader has chosen, written or filled in. Run by `tox -e page`, as check_page is."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any
from urllib.parse import urlencode

import numpy as np
from playwright.sync_api import Browser, FilePayload, Page, expect

from tests.support.page import code_of, opened, seen_by, write_json
from tests.support.processes import Served


def file_of(content: bytes, name: str = "a.bin") -> FilePayload:
    return {"name": name, "mimeType": "", "buffer": content}


def npy_of(shape: list[int], name: str = "a.npy") -> FilePayload:
    file = BytesIO()
    np.save(file, np.arange(np.prod(shape), dtype=np.float32).reshape(shape) / 8)
    return file_of(file.getvalue(), name)


def body_of(page: Page) -> Any:
    return json.loads(page.input_value("#body"))


def show(page: Page, site: Served, name: str, body: Any = None, action: str = "infer") -> None:
    """Show a model, with what a link fills in."""
    request = {} if body is None else {"action": action, "body": body if isinstance(body, str) else json.dumps(body)}
    page.goto(f"{site.url}/v2/docs#{urlencode({'model': name, **request})}")
    expect(page.locator("h2")).to_have_text(name)


def large(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "shape": [1, 5000], "datatype": "FP32", **({"parameters": {"binary_data_size": 20000}} | more)}


N = {"name": "n", "shape": [1], "datatype": "FP32", "data": [1]}


def test_bytes_follow_the_json_in_its_order(site: Served, browser: Browser) -> None:
    page, seen = opened(browser, f"{site.url}/v2/docs#model=pair")
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
    show(page, site, "pair", {"inputs": [large("a"), large("b")]})
    expect(page.locator("#json .failed")).to_have_text(told.replace("b,", "a,"))
    page.click("#reset")
    assert seen_by(page) == [0, 0]
    assert seen.console == []


def test_a_size_that_is_only_mentioned_sends_no_bytes(site: Served, browser: Browser) -> None:
    page, seen = opened(browser, f"{site.url}/v2/docs#model=pair")
    body = {"id": "binary_data_size", "inputs": [large(name, parameters={}, data=[3] * 5000) for name in "ab"]}
    expect(page.locator("#fields .preview").first).to_contain_text("zeros")
    write_json(page, json.dumps(body))
    assert seen_by(page) == [3, 3]
    assert seen.console == []


SHAPES = [("cube", [2, 3, 4]), ("cube", [4, 1, 6]), ("colors", [2, 4, 3]), ("planes", [3, 5, 7])]


HELD = """
const read = Blob.prototype.arrayBuffer;
Blob.prototype.arrayBuffer = async function () {
    await new Promise((resolve) => { globalThis.release = resolve; });
    return read.call(this);
};
"""
"""Files are read once the page is told to."""


def test_code_reads_a_file_that_has_something_alone(site: Served, browser: Browser) -> None:
    page, seen = opened(browser, f"{site.url}/v2/docs#model=files")
    page.get_by_label("Choose a file for file").set_input_files([file_of(b"", "e.bin")])
    expect(page.locator("#fields .thumb")).to_have_text("e.bin, 0 bytes")
    for language in ("curl", "httpx2"):
        assert "e.bin" not in code_of(page, language)
    show(page, site, "scanned")
    page.get_by_label("Choose a file for file").set_input_files([file_of(b"\x00\xfe", "f.bin")])
    expect(page.locator("#fields .thumb")).to_have_text("f.bin, 2 bytes")
    for language in ("curl", "httpx2"):
        code = code_of(page, language)
        assert "body.bin" in code
        assert "f.bin" not in code
        assert "def read" not in code
    assert seen_by(page) == [r"[b'\x00\xfe'] 0.0"]
    assert seen.console == []


DROP = """(field, names) => {
    const data = new DataTransfer();
    for (const name of names) data.items.add(new File(["1,2,3,4"], name));
    if (!names.length) data.setData("text/plain", "5, 6, 7, 8");
    return field.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
}"""
"""Whether the browser does what it does with what is dropped."""
