"""Takes the picture of the page that the README shows: `python -m tests.lab.page.page_picture examples/page.png`.

It needs Playwright, and Chromium as the checks of the page do. The page's clock is wound, so that two minutes of requests take seconds.
"""

from __future__ import annotations

import sys
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
from playwright.sync_api import expect

from tests.support.chromium import launched
from tests.support.processes import post, serving

WIDTH, HEIGHT = 1160, 736  # 552 by 350 pixels in the README
SCALE = 1.25  # for sharp screens
READINGS = 60
EVERY = 2000  # milliseconds, as the page reads the numbers


def take(path: Path, folder: Path) -> None:
    command = ["python", "-m", "uvicorn", "tests.support.pictured:app", "--port", "PORT", "--no-access-log"]
    with serving(command, folder / "server.log", ready="/v2/health/live") as served, launched() as browser:
        page = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=SCALE).new_page()
        page.clock.install()
        page.goto(f"{served.url}/v2/docs#model=iris")
        expect(page.locator("h2")).to_have_text("iris")
        page.clock.pause_at(datetime.now() + timedelta(minutes=1))  # from here on it goes as far as it is wound
        generator = np.random.default_rng(7)
        for reading in range(READINGS):
            for _ in range(1 + generator.poisson(8 + 5 * np.sin(reading / 9))):
                ask(served.url, generator.uniform([4.3, 2.0, 1.0, 0.1], [7.9, 4.4, 6.9, 2.5]).round(1).tolist())
            with page.expect_response("**/docs/state.json"):
                page.clock.run_for(EVERY)
            page.wait_for_timeout(50)  # until the page has taken it in
        page.clock.resume()
        with page.expect_response("**/docs/state.json"):
            page.click("#send")
        expect(page.locator("#answer .badge")).to_have_text("200 OK")
        page.wait_for_timeout(200)  # until all of it is drawn
        page.mouse.move(0, 0)
        page.evaluate("document.activeElement.blur()")
        page.screenshot(path=path)


def ask(url: str, flower: list[float]) -> None:
    tensor = {"name": "flowers", "datatype": "FP64", "shape": [1, 4], "data": flower}
    post(f"{url}/v2/models/iris/infer", json={"inputs": [tensor]}).raise_for_status()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        take(Path(sys.argv[1]), Path(folder))
