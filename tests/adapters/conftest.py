"""Tests that are coroutine functions."""

from __future__ import annotations

from tests.support.awaited import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]
