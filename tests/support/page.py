"""What the checks of the page in a real browser share."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Locator, Page, Route, expect


class Seen:
    """What happened in a page: what its console says, and what it asked for."""

    def __init__(self, page: Page) -> None:
        self.console: list[str] = []
        self.urls: list[str] = []
        page.on("console", lambda message: self.console.append(message.text))
        page.on("pageerror", lambda error: self.console.append(str(error)))
        page.on("request", lambda request: self.urls.append(request.url))


def opened(
    browser: Browser, address: str, routes: Mapping[str, Callable[[Route], object]] | None = None, /, **options: Any
) -> tuple[Page, Seen]:
    """A page at an address. What it asks for is answered by the function for its pattern among the `routes`, from the beginning."""
    page = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **options}).new_page()
    page.set_default_timeout(15_000)
    seen = Seen(page)
    for pattern, answer in (routes or {}).items():
        page.route(pattern, answer)
    page.goto(address)
    return page, seen


def picture(page: Page, name: str) -> None:
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


def show_models(page: Page) -> None:
    """Show the list of models, for which a phone has a button."""
    button = page.get_by_role("button", name=re.compile(r"^Models \("))
    expect(page.locator("#models a").first).to_be_attached()
    if button.is_visible():
        button.click()
    expect(page.locator("#models a").first).to_be_visible()


def box_of(element: Locator) -> tuple[float, float, float, float]:
    """The left, top, right and bottom of an element."""
    box = element.bounding_box()
    assert box is not None
    return box["x"], box["y"], box["x"] + box["width"], box["y"] + box["height"]


def write_json(page: Page, body: str) -> None:
    page.click("#with-json")
    page.fill("#body", body)


def code_of(page: Page, language: str) -> str:
    page.get_by_role("tab", name=language, exact=True).click()
    return str(page.locator("#code").inner_text())


def answer_of(page: Page) -> Any:
    expect(page.locator("#answer")).to_have_attribute("aria-busy", "false")
    expect(page.locator("#text")).not_to_be_empty()
    return json.loads(str(page.locator("#text").text_content()))


def ran_in(page: Page, code: str) -> Any:
    """What lines of JavaScript print in the page."""
    with page.expect_console_message() as said:
        page.evaluate(f"(async () => {{ {code} }})()")
    return said.value.args[0].json_value()


def seen_by(page: Page) -> list[Any]:
    page.click("#send")
    expect(page.locator("#answer .badge")).to_have_text("200 OK")
    answer = answer_of(page)
    return list(answer["outputs"][0]["data"])


def drawn(canvas: Locator) -> Any:
    """The first pixel of a canvas."""
    return canvas.evaluate("canvas => [...canvas.getContext('2d').getImageData(0, 0, 1, 1).data]")


def copied_from(page: Page, place: str) -> str:
    """What the button Copy of a part of the page has copied."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator(place).get_by_role("button", name="Copy").click()
    expect(page.locator(place).get_by_text("Copied")).to_be_visible()
    return str(page.evaluate("navigator.clipboard.readText()"))
