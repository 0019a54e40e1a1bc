"""Fixtures of the tests of content types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from oip_asgi import InferenceServer


@pytest.fixture
def seen() -> list[Any]:
    return []


@pytest.fixture
def server(seen: list[Any]) -> Iterator[InferenceServer]:
    from tests.support.content_types import make_server  # not above: it needs pandas, and test_without_pandas.py has none

    made = make_server(seen)
    yield made
    made.stop()  # the event loop that async models had under WSGI
