"""Tests that are coroutine functions."""

from tests.support.awaited import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]
