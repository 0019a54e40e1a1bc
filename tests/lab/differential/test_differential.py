"""A thousand cases of each pair of ways."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from .__main__ import WAYS


@pytest.mark.parametrize("compare", WAYS.values(), ids=WAYS)
def test_both_ways_are_alike(compare: Callable[[Random], None]) -> None:
    random = Random(17)
    for _ in range(1000):
        compare(random)
