"""The requests that wait to share a call, grouped by what they have in common, and when a batch starts. Knows
no requests and no clock.

A group is ready once it is large enough, or one of its requests was held back for long enough. Then one of
its requests gets a slot, and takes the others along when it starts; until then, more may join. A request is
held back for `max_batch_delay`, but at most for half of the time that it has left, as `_serving.batch` says.
Without a delay, it takes a free slot at once.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import msgspec

from .limiter import Limiter, Slot, set_signals


class BatchSlot(Slot, eq=False):
    """The slot of a request that may share its call."""

    request: Any = None  # while it is in a group
    rows: int = 0
    # when it must start at the latest; nothing here watches the clock: the request itself calls
    # `hold_back_no_longer`
    due: float = 0.0
    is_due: bool = False
    group: _Group | None = None  # where it waits


class _Group(msgspec.Struct, eq=False):
    """Requests that may share a call, in the order in which they came."""

    key: Hashable
    slots: dict[BatchSlot, None] = msgspec.field(default_factory=dict)
    rows: int = 0
    due_count: int = 0  # how many may not be held back any longer
    starter: BatchSlot | None = None  # has got a slot, and will take the others along

    @property
    def first(self) -> BatchSlot:
        return next(iter(self.slots))


class Batches(Limiter):
    """The slots of a model whose requests may share calls."""

    slot_type = BatchSlot

    def __init__(self, max_concurrency: int, max_queue: int, most: int) -> None:
        super().__init__(max_concurrency, max_queue)
        self.most = most
        self._groups: dict[Hashable, _Group] = {}

    def share(self, slot: BatchSlot, request: object, key: Hashable | None, rows: int) -> bool:
        """Let a request in the queue share a call with others that have the same key; None if it runs alone.
        True if its turn has come already."""
        with self.lock:
            if slot.state != "waiting":  # it was refused
                return False
            slot.rows, key = rows, key or slot
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = _Group(key)
            group.slots[slot] = None
            group.rows += rows
            group.due_count += slot.is_due
            slot.group, slot.request = group, request
            turns = self._give_turns()
        set_signals(turns)
        return slot.turn in turns  # if another request takes this one along, that is not its turn

    def hold_back_no_longer(self, *slots: Slot) -> None:
        with self.lock:
            for slot in slots or self._queue:
                assert isinstance(slot, BatchSlot)  # this makes no others
                if not slot.is_due and slot.group is not None:
                    slot.group.due_count += 1
                slot.is_due = True
            turns = self._give_turns()
        set_signals(turns)

    def _find_next(self) -> Slot | None:
        """The request that starts a group: of those that are ready, the one whose first request is due
        first."""
        best: _Group | None = None
        for group in self._groups.values():
            is_ready = group.starter is None and (group.due_count or group.rows >= self.most)
            if is_ready and (best is None or group.first.due < best.first.due):
                best = group
        if best is None:
            return None
        # the newest request starts the call, as it still runs and need not be woken; if not all fit, the
        # oldest does, which goes first
        best.starter = next(reversed(best.slots)) if best.rows <= self.most else best.first
        return best.starter

    def collect(self, slot: BatchSlot, request: object) -> list[Any]:
        """Begin the call of a request that has a slot, as `Slot.begin` does. Returns those that share it."""
        with self.lock:
            slot.begin()
            if slot.group is None:  # it did not wait
                return [request]
            taken: list[BatchSlot] = []
            rows = 0
            for each in slot.group.slots:
                rows += each.rows
                if taken and rows > self.most:
                    break
                taken.append(each)
            requests: list[Any] = []
            for each in taken:
                requests.append(each.request)
                self._remove(each)
                if each is not slot:
                    self.change(each, "share")
                    each.uses.count -= 1  # this one uses the same
            turns = self._give_turns()  # for those that did not fit
        set_signals(turns)
        return requests

    def _remove(self, slot: Slot) -> None:
        assert isinstance(slot, BatchSlot)  # this makes no others
        self._queue.pop(slot, None)
        group, slot.group, slot.request = slot.group, None, None
        if group is not None:
            del group.slots[slot]
            group.rows -= slot.rows
            group.due_count -= slot.is_due
            if group.starter is slot:
                group.starter = None
            if not group.slots:
                del self._groups[group.key]
