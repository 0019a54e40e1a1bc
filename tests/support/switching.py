"""Threads that take turns at nearly every instruction, so that they meet everywhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture
def often_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)
