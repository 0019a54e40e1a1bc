"""Requests that wait to share one call of a model, grouped into batches. Waits for nothing itself, and knows neither requests nor slots.

A batch opens with its first request, which leads it: the call runs where that request waits. It starts when it has its turn. Everything
here is called under the lock of the model's `Limiter`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable
from typing import Any, Generic, TypeVar, final

import msgspec

S = TypeVar("S", bound=Hashable)


class Waiting(msgspec.Struct, eq=False):
    """One request that waits.

    Args:
        rows: How many rows it has.
        due: Until when it may be held back, in seconds of the limiter's clock.
        item: The request.
        is_taken: Whether its batch has started, so that its outcome is on its way.
    """

    rows: int
    due: float
    item: Any
    is_taken: bool = False


@final
class Batch(Generic[S]):
    """Requests that share one call, until it starts."""

    __slots__ = ("due", "has_turn", "is_closed", "keeper", "key", "members", "rows")

    def __init__(self, key: Hashable | None) -> None:
        self.key = key
        self.members: dict[S, Waiting] = {}
        self.rows = 0
        self.due = math.inf
        """When the first of them may not be held back any longer."""
        self.keeper: S | None = None
        """The member that watches the clock: it waits until `due` at most, and then tells that the batch is due."""
        self.is_closed = key is None
        """Whether no more may join."""
        self.has_turn = False

    def first(self) -> S:
        """The slot of the request that leads it."""
        return next(iter(self.members))

    def add(self, slot: S, waiting: Waiting) -> None:
        """Let a request join."""
        self.members[slot] = waiting
        self.rows += waiting.rows
        if self.keeper is None or waiting.due < self.due:
            self.due, self.keeper = waiting.due, slot

    def keep_time(self) -> S:
        """Find who keeps time from now on."""
        self.keeper = min(self.members, key=lambda slot: self.members[slot].due)
        self.due = self.members[self.keeper].due
        return self.keeper


@final
class Batches(Generic[S]):
    """The batches of one model that have not started.

    Args:
        most: The rows of the largest batch.
        preferred: Numbers of rows at which a batch is not held back any longer.
    """

    def __init__(self, most: int, preferred: Collection[int]) -> None:
        self._most = most
        self._preferred = frozenset(preferred)
        self._open: dict[Hashable, Batch[S]] = {}
        self._without_turn: dict[Batch[S], None] = {}  # in order
        self._of: dict[S, Batch[S]] = {}

    def join(self, slot: S, key: Hashable | None, waiting: Waiting) -> list[Batch[S]]:
        """Let a request join the open batch of its key, or open one.

        Args:
            slot: Its slot.
            key: What all requests of a batch have in common; None for one that runs alone.
            waiting: What is known of it.

        Returns:
            The batches that this may have made ready to go, the oldest first.
        """
        batch = None if key is None else self._open.get(key)
        changed: list[Batch[S]] = []
        if batch is not None and batch.rows + waiting.rows > self._most:
            self._close(batch)
            changed.append(batch)
            batch = None
        if batch is None:
            batch = Batch(key)
            self._without_turn[batch] = None
            if key is not None:
                self._open[key] = batch
        batch.add(slot, waiting)
        self._of[slot] = batch
        if batch.rows >= self._most and not batch.is_closed:
            self._close(batch)
        return [*changed, batch]

    def is_ready(self, batch: Batch[S], now: float) -> bool:
        """Whether a batch may start as soon as a slot is free."""
        return not batch.has_turn and (batch.is_closed or batch.due <= now or batch.rows in self._preferred)

    def give_turn(self, batch: Batch[S]) -> S:
        """Let a batch start. Returns who leads it. Until it does start, others may join."""
        batch.has_turn = True
        del self._without_turn[batch]
        return batch.first()

    def next(self, now: float) -> S | None:
        """Let the batch start that is due first among those that are ready. Returns who leads it."""
        ready = [batch for batch in self._without_turn if self.is_ready(batch, now)]
        return self.give_turn(min(ready, key=lambda batch: batch.due)) if ready else None

    def of(self, slot: S) -> Batch[S] | None:
        """The batch that a request waits in."""
        return self._of.get(slot)

    def start(self, slot: S) -> dict[S, Waiting]:
        """Start the batch that a request leads. Returns the requests in it; none where it leads none."""
        batch = self._of.get(slot)
        if batch is None:
            return {}
        self._drop(batch)
        for member in batch.members:
            del self._of[member]
        return batch.members

    def leave(self, slot: S) -> S | None:
        """Take a request out. Returns who leads its batch, or keeps its time, in its place, if it did and another can."""
        batch = self._of.pop(slot, None)
        if batch is None:
            return None
        did_lead = batch.has_turn and batch.first() == slot
        batch.rows -= batch.members.pop(slot).rows
        if not batch.members:
            self._drop(batch)
            return None
        follower = batch.keep_time() if batch.keeper == slot else None
        return batch.first() if did_lead else None if batch.has_turn else follower

    def hold_back_none(self) -> list[Batch[S]]:
        """Hold back no batch any longer. Returns those without a turn."""
        for batch in self._without_turn:
            batch.due = -math.inf
        return list(self._without_turn)

    def _close(self, batch: Batch[S]) -> None:
        batch.is_closed = True
        del self._open[batch.key]

    def _drop(self, batch: Batch[S]) -> None:
        self._without_turn.pop(batch, None)
        if not batch.is_closed:
            self._close(batch)
