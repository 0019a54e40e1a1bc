"""How many calls of one model run at once, how many wait for a slot, and when a slot is given back; which
requests that wait share a call, and when such a batch starts. Waits for nothing itself, and knows no requests
and no clock.

One model may be served by several event loops and threads at the same time, so all of it may be called from
any thread. A request that ends, fails or is cancelled gives its slot up, by `end_call` or `fail_call` of
`_serving/pipeline`, or before that by `as_error` of `_serving/failures`. It goes back then, or as soon as the
thread that still runs its function has ended its part, by `Slot.end_part` in `_serving/call`, `Execution.end`
in `_serving/batch_call` or the generator of `_serving/stream`.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from .._io import Signal, Stopped

SlotState: TypeAlias = Literal["new", "waiting", "running", "held", "given up", "over", "unloaded"]
"""A new one is neither in the queue nor counted in `Limiter.running`. A running one has its slot, and may run
on an event loop.

One that is held has a part in a thread, or runs a batch. If its request is given up meanwhile, the slot stays
taken until the part or the batch has ended. It also stays taken while a generator that ran in threads is
closed. One that is over has gone back, was refused, or is not needed because its request shares another's
call. One that is unloaded waited when its model was unloaded.
"""

SlotEvent: TypeAlias = Literal[
    "enter", "wait", "turn", "begin", "end part", "end", "close", "give up", "share", "refuse", "unload"
]
"""It enters or waits, and has its turn. Parts begin and end; after the last one the request needs it no more.
Its request ends and gives it up, closes its generator within it first, or shares the call of another one.
Slots that wait are refused when the server stops, or the model is unloaded.
"""

SlotAction: TypeAlias = Literal["take", "give back", "leave", "nothing"]
"""What its limiter does because of an event. One that leaves had no slot, but it used the handler."""

_TABLE: Final[tuple[tuple[SlotEvent, tuple[SlotState, ...], SlotAction, SlotState | None], ...]] = (
    ("enter", ("new",), "take", "running"),
    ("wait", ("new",), "nothing", "waiting"),
    ("turn", ("waiting",), "take", "running"),
    #
    ("begin", ("running",), "nothing", "held"),
    ("begin", ("given up", "over", "unloaded"), "nothing", None),
    ("end part", ("held",), "nothing", "running"),
    ("end part", ("given up",), "give back", "over"),
    ("end", ("held", "given up"), "give back", "over"),
    #
    ("close", ("running",), "nothing", "given up"),
    ("give up", ("new", "waiting"), "leave", "over"),
    ("give up", ("running",), "give back", "over"),
    ("give up", ("held",), "nothing", "given up"),
    ("give up", ("given up", "over", "unloaded"), "nothing", None),
    #
    ("share", ("waiting",), "nothing", "over"),
    ("refuse", ("waiting",), "leave", "over"),
    ("unload", ("waiting",), "leave", "unloaded"),
)
"""What each event does in some states, and the next state; None if the state does not change."""

SLOT_TRANSITIONS: Final[Mapping[SlotEvent, Mapping[SlotState, tuple[SlotAction, SlotState]]]] = {
    event: {
        state: (action, after or state)
        for same, states, action, after in _TABLE
        if same == event
        for state in states
    }
    for event, *_ in _TABLE
}
"""All that can happen to a slot: what each event does in each state. Any other event in a state is an error
of this package."""


def set_signals(signals: Iterable[Signal]) -> None:
    """Wake who waits for these signals. The caller does not hold the lock any more."""
    for signal in signals:
        signal.set()


class Uses(msgspec.Struct, eq=False):
    """How many requests use one handler. To read or write it, hold the model's lock."""

    count: int = 0
    idle: list[Signal] = msgspec.field(default_factory=list)  # set as soon as no request uses it

    def take_idle(self) -> list[Signal]:
        """The signals that are to be set now."""
        if self.count:
            return []
        idle, self.idle = self.idle, []
        return idle


class Slot(msgspec.Struct, eq=False):
    """One request's slot, and its use of the handler. The request enters, waits for its turn and runs; then
    both go back, exactly once.

    At its end the request gives the slot up, also on cancellation.
    """

    limiter: Limiter
    uses: Uses  # those of the handler
    turn: Signal | None = None  # set when its turn has come, or never will; None if it came at once
    state: SlotState = "new"  # to change it, hold the limiter's lock

    def begin(self) -> None:
        """Start a part in this thread, which the thread ends then. Raises Stopped if the request was given up
        or refused."""
        with self.limiter.lock:  # once it is released, the request may give the slot up
            self.limiter.change(self, "begin")
            if self.state != "held":
                raise Stopped

    def end_part(self, *, is_last: bool) -> None:
        """End the thread's part. The slot goes back if that was the last part, or the request has given it
        up."""
        with self.limiter.lock:
            signals = self.limiter.change(self, "end" if is_last else "end part")
        set_signals(signals)

    def end_part_of_generator(self) -> bool:
        """End the thread's part, unless the request has given the slot up: then this is False, and the thread
        closes the generator and ends its last part."""
        with self.limiter.lock:
            if self.state == "held":
                self.limiter.change(self, "end part")
            return self.state == "running"

    def give_up(self) -> None:
        """End the request. The slot goes back now, or as soon as the thread's part has ended."""
        with self.limiter.lock:
            signals = self.limiter.change(self, "give up")
        set_signals(signals)

    def give_up_generator(self) -> bool:
        """End the request of a generator that runs in threads. True if the caller must have it closed, which
        ends its last part; False if a thread that runs it does that, or nobody has begun it."""
        with self.limiter.lock:
            is_paused = self.state == "running"
            signals = self.limiter.change(self, "close" if is_paused else "give up")
        set_signals(signals)
        return is_paused


class Limiter:
    """The slots of one model, handed out first come, first served."""

    slot_type: type[Slot] = Slot

    def __init__(self, max_concurrency: int, max_queue: int) -> None:
        self.max_concurrency = max_concurrency
        self.max_queue = max_queue
        self.lock = threading.RLock()
        """Guards all that the model's requests share: its slots, its handler, and the handler's uses."""
        self.running = 0
        """How many slots are taken."""
        # a dict keeps the order, and is quick to remove a slot from the middle
        self._queue: dict[Slot, None] = {}
        self._idle: list[Signal] = []

    @property
    def waiting(self) -> int:
        """How many requests wait for one."""
        return len(self._queue)

    def is_full(self) -> bool:
        """True if no request could enter right now."""
        return len(self._queue) + self.running >= self.max_concurrency + self.max_queue

    def set_max_concurrency(self, max_concurrency: int) -> None:
        """Change how many calls may run at once. Calls that run already go on."""
        with self.lock:
            self.max_concurrency = max_concurrency
            turns = self._give_turns()
        set_signals(turns)

    def enter(self, slot: Slot, may_run: bool = True, may_wait: bool = True) -> bool:
        """Let a slot run, or wait in the queue. False if the request may not wait, or the queue is full. The
        caller holds the lock.

        A call made within a call of the same model never waits: it takes a free slot at once, ahead of the
        queue, or is refused. `_serving.failures` makes the 503 of a call that has not entered, and the 504 of
        a call that is late.
        """
        if may_run and self.running < self.max_concurrency and not (self._queue and may_wait):
            self.change(slot, "enter")
            return True
        if not may_wait or self.is_full():
            return False
        slot.turn = Signal()
        self.change(slot, "wait")
        self._queue[slot] = None
        return True

    def change(self, slot: Slot, event: SlotEvent) -> Sequence[Signal]:
        """Record what happens to a slot. The caller holds the lock, and then sets the signals that this
        returns."""
        action, slot.state = SLOT_TRANSITIONS[event][slot.state]
        if action == "take":
            self.running += 1
        if action == "take" or action == "nothing":
            return ()
        if action == "give back":
            self.running -= 1
        signals: list[Signal] = []
        if slot.turn is not None:
            self._remove(slot)
        if self._queue:
            signals = self._give_turns()
        elif self._idle and not self.running:
            signals, self._idle = self._idle, []
        uses = slot.uses
        uses.count -= 1
        if uses.idle:
            signals += uses.take_idle()
        return signals

    def _remove(self, slot: Slot) -> None:
        """Take a slot out of the queue, if it is there."""
        self._queue.pop(slot, None)

    def _give_turns(self) -> list[Signal]:
        """Give free slots to requests that wait and may run. Returns their signals, for the caller to set."""
        turns: list[Signal] = []
        while self._queue and self.running < self.max_concurrency:
            slot = self._find_next()
            if slot is None:
                break
            assert slot.turn is not None  # it waits
            del self._queue[slot]
            self.change(slot, "turn")
            turns.append(slot.turn)
        return turns

    def _find_next(self) -> Slot | None:
        """The slot that runs next; None if no request may run yet."""
        return next(iter(self._queue))

    def hold_back_no_longer(self, *slots: Slot) -> None:
        """Let requests that wait for others run as soon as slots are free; without arguments all of them."""

    # The end

    def refuse_waiting(self, *, is_unloaded: bool) -> None:
        """Refuse all requests that wait."""
        signals: list[Signal] = []
        with self.lock:
            for slot in list(self._queue):
                assert slot.turn is not None  # it waits
                signals += [slot.turn, *self.change(slot, "unload" if is_unloaded else "refuse")]
        set_signals(signals)

    def make_idle_signal(self) -> Signal:
        """A signal that is set as soon as no call runs or waits."""
        signal = Signal()
        with self.lock:
            if self.running or self._queue:
                self._idle.append(signal)
                return signal
        signal.set()
        return signal


# Batches


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
    """The slots of a model whose requests may share calls, and its requests that wait for that, grouped by
    what they have in common.

    A group is ready once it is large enough, or one of its requests was held back for long enough. Then one
    of its requests gets a slot, and takes the others along when it starts; until then, more may join. A
    request is held back for `max_batch_delay`, but at most for half of the time that it has left, as
    `_serving.batch` says. Without a delay, it takes a free slot at once.
    """

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
