"""Tests that are coroutine functions, and threads that take turns often."""

from tests.support.awaited import pytest_pyfunc_call
from tests.support.switching import often_switching

__all__ = ["often_switching", "pytest_pyfunc_call"]
