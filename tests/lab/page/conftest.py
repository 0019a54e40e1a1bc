"""The site whose page is checked, and the browser. Only `tox -e page` has Playwright."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.processes import Served, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.support.page import Show


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    command = ["python", "-m", "uvicorn", "tests.support.page_site:app", "--port", "PORT", "--no-access-log"]
    with serving(command, tmp_path_factory.mktemp("page") / "site.log", ready="/v2/health/live") as served:
        yield served


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from tests.support.chromium import launched

    with launched() as browser:
        yield browser


@pytest.fixture
def show(site: Served, browser: Browser, request: pytest.FixtureRequest) -> Iterator[Show]:
    """Opens pages. At the end their consoles have said nothing, and pictures of them are in the folder SCREENSHOTS, to be looked at."""
    from tests.support.page import Show

    show = Show(site, browser)
    yield show
    if folder := os.environ.get("SCREENSHOTS"):
        for number, page in enumerate(show.pages):
            page.screenshot(path=Path(folder) / f"{request.node.name.replace('/', '-')}-{number}.png", full_page=True)
    for page in show.pages:
        page.context.close()
    assert show.console == []
