"""What the checks of the page in a real browser share."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias
from urllib.parse import urlencode

from playwright.sync_api import Browser, Locator, Page, Route, expect

from tests.support.processes import Served

Routes: TypeAlias = Mapping[Any, Callable[[Route], object]]


class Show:
    """Opens the page of a site, and notes what its pages ask for and what their consoles say."""

    def __init__(self, site: Served, browser: Browser) -> None:
        self.site, self._browser = site, browser
        self.urls: list[str] = []
        self.console: list[str] = []
        self.pages: list[Page] = []

    def __call__(self, model: str, routes: Routes | None = None, /, **options: Any) -> Page:
        """A page that shows a model."""
        page = self.open(f"/v2/docs#{urlencode({'model': model})}", routes, **options)
        expect(page.locator("h2")).to_have_text(model)
        return page

    def open(self, place: str, routes: Routes | None = None, /, *, refused: bool = False, script: str = "", **options: Any) -> Page:
        """A page at a path of the site, or at an address.

        Args:
            place: Where.
            routes: What it asks for is answered by the function for its pattern, from the beginning.
            refused: Whether Chromium may say of a request that it failed.
            script: What it runs first.
            options: Of Playwright's context.
        """
        page = self._browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **options}).new_page()
        page.set_default_timeout(15_000)
        expected = "Failed to load resource" if refused else None
        page.on("console", lambda message: None if message.text.partition(":")[0] == expected else self.console.append(message.text))
        page.on("pageerror", lambda error: self.console.append(str(error)))
        page.on("request", lambda request: self.urls.append(request.url))
        page.add_init_script(script)
        for pattern, answer in (routes or {}).items():
            page.route(pattern, answer)
        page.goto(self.site.url + place if place.startswith("/") else place)
        self.pages.append(page)
        return page


def turn_to(page: Page, model: str) -> None:
    """Show another model, as a link does."""
    page.goto(f"{page.url.partition('#')[0]}#{urlencode({'model': model})}")
    expect(page.locator("h2")).to_have_text(model)


def send(page: Page) -> None:
    page.click("#send")
    expect(page.locator("#status")).to_have_text("200 OK")


def refused_at(page: Page, field: Locator, told: str) -> None:
    """Send what the server refuses: its text is shown with the answer and at the field, which has the focus then."""
    page.click("#send")
    expect(page.locator("#status")).to_have_text("400 Bad Request")
    expect(page.locator("#failure")).to_contain_text(told)
    expect(page.locator("#fields .mistake")).to_contain_text(told)
    expect(field).to_have_attribute("aria-describedby", "mistake")
    expect(field).to_be_focused()


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
    send(page)
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
