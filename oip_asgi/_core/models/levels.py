"""A queue with levels of priority: a dict whose order is that of its keys' levels, and within a level the order in which they came."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Protocol, TypeVar, final


class Ranked(Protocol):
    """What waits."""

    @property
    def level(self) -> int:
        """Its level, 1 for the highest."""


S = TypeVar("S", bound=Ranked)


@final
class Levels(dict[S, None]):
    """What waits, the highest level first.

    Args:
        number: How many levels there are.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self._levels: list[dict[S, None]] = [{} for _ in range(number)]

    def __setitem__(self, key: S, value: None) -> None:
        super().__setitem__(key, value)
        self._levels[key.level - 1][key] = value

    def __delitem__(self, key: S) -> None:
        super().__delitem__(key)
        del self._levels[key.level - 1][key]

    def __iter__(self) -> Iterator[S]:
        return chain.from_iterable(self._levels)

    def clear(self) -> None:
        super().clear()
        for level in self._levels:
            level.clear()
