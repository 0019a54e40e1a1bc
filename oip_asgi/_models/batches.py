"""The requests of one model that wait to share a call, grouped by what they have in common. Knows no requests, no slots and no clock.

The first of a group that is ready gets a slot, and collects the others when it starts. Until then, further requests may join.
Everything here is called under the lock of the model's `Limiter`.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Any, Generic, TypeVar, final

import msgspec

S = TypeVar("S", bound=Hashable)


class Waiting(msgspec.Struct, eq=False):
    """One request that waits.

    Args:
        request: The request.
        rows: How many rows it has.
        due: Until when it may be held back. Who waits for it says when that time is over.
        is_due: Whether that time is over.
    """

    request: Any
    rows: int
    due: float
    is_due: bool


class _Group(msgspec.Struct, Generic[S], eq=False):
    """Requests that may share a call, in the order in which they came.

    Args:
        key: What they have in common.
        rows: Their rows together.
        due: How many of them may not be held back any longer.
        collector: The one that has got a slot and will collect the others; None if there is none.
    """

    key: Hashable
    waiting: dict[S, Waiting] = msgspec.field(default_factory=dict)
    rows: int = 0
    due: int = 0
    collector: S | None = None

    @property
    def first(self) -> S:
        return next(iter(self.waiting))


@final
class Batches(Generic[S]):
    """The requests of one model that wait to share calls."""

    def __init__(self, most: int, preferred: Collection[int]) -> None:
        self._most = most
        self._preferred = frozenset(preferred)
        self._enough = max(preferred, default=most)
        self._groups: dict[Hashable, _Group[S]] = {}
        self._of: dict[S, _Group[S]] = {}

    def join(self, slot: S, key: Hashable, waiting: Waiting) -> None:
        """Let a request wait for others with the same key."""
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(key)
        group.waiting[slot] = waiting
        group.rows += waiting.rows
        group.due += waiting.is_due
        self._of[slot] = group

    def set_due(self, slot: S) -> None:
        """Hold a request back no longer, if it still waits."""
        group = self._of.get(slot)
        if group is not None and not group.waiting[slot].is_due:
            group.waiting[slot].is_due = True
            group.due += 1

    def next(self) -> S | None:
        """The slot that runs next: the first of the group that is ready and has waited the longest; None if no group is ready."""
        ready = [group for group in self._groups.values() if self._is_ready(group)]
        if not ready:
            return None
        group = min(ready, key=lambda group: group.waiting[group.first].due)
        group.collector = group.first
        return group.collector

    def _is_ready(self, group: _Group[S]) -> bool:
        return group.collector is None and (group.due > 0 or group.rows >= self._enough or group.rows in self._preferred)

    def collect(self, slot: S) -> dict[S, Waiting]:
        """Take out a request that has got a slot, and those that share its call. Empty if it did not wait."""
        group = self._of.get(slot)
        if group is None:
            return {}
        taken: dict[S, Waiting] = {}
        rows = 0
        for each, waiting in group.waiting.items():
            rows += waiting.rows
            if taken and rows > self._most:
                break
            taken[each] = waiting
        for each in taken:
            self.leave(each)
        return taken

    def leave(self, slot: S) -> None:
        """Take a request out, if it still waits."""
        group = self._of.pop(slot, None)
        if group is None:
            return
        waiting = group.waiting.pop(slot)
        group.rows -= waiting.rows
        group.due -= waiting.is_due
        if group.collector == slot:
            group.collector = None
        if not group.waiting:
            del self._groups[group.key]
