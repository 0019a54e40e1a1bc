"""Fixtures of the tests of limits, and tests that are coroutine functions."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.support.awaited import pytest_pyfunc_call
from tests.support.limited import Blocking
from tests.support.switching import often_switching

__all__ = ["often_switching", "pytest_pyfunc_call"]


@pytest.fixture
def blocking() -> Iterator[Blocking]:
    model = Blocking()
    yield model
    model.leave.set()


@pytest.fixture
def nothing_is_logged_as_an_error(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Models of these tests make no mistakes, so nothing may be logged as one: neither by the package, nor by asyncio."""
    yield
    assert [record for record in caplog.get_records("call") if record.levelno >= logging.ERROR] == []
