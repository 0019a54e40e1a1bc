"""The site whose page is checked, and the browser. Only `tox -e page` has Playwright."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.processes import Served, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser


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
