"""How many calls of one model run at once, how many wait for a slot, and when a slot is given back. Waits for nothing itself.

One model may be served by several event loops and threads at the same time, so all of it may be called from any thread. A request that
ends, fails or is cancelled gives its slot up: by `end_call` or `_fail` of `_serving/pipeline`, by `_serving/stream`,
or by the thread that still runs its function: `Slot.end` in `_serving/call`, `Execution.end` in `_serving/batch_call`.
"""

from __future__ import annotations

import threading

import msgspec

from .._io import Signal


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
    """One request's slot, and its use of the handler. The request enters, waits for its turn and runs; then both go back, exactly once.

    At its end the request gives the slot up, also on cancellation. If its function still runs in a thread, the slot stays taken until the
    function returns.
    """

    limiter: Limiter
    uses: Uses  # those of the handler
    turn: Signal | None = None  # set when its turn has come, or never will; None if it came at once
    is_waiting: bool = False
    is_running: bool = False  # it was counted in `Limiter.running`
    is_over: bool = False  # it has gone back, was refused, or is not needed because its request shares another's call
    in_thread: bool = False
    is_given_up: bool = False
    is_unloaded: bool = False  # it was refused because the model was unloaded

    def begin(self) -> bool:
        """True if a thread may start its part, which `end`s then; False if the request was given up or refused."""
        with self.limiter.lock:
            if self.is_over:
                return False
            self.in_thread = True
            return True

    def end(self, *, is_last: bool) -> None:
        """End the thread's part. The slot goes back if that was the last part, or the request has given it up."""
        with self.limiter.lock:
            self.in_thread = False
            signals = self.limiter.take_back(self) if is_last or self.is_given_up else ()
        for signal in signals:
            signal.set()

    def give_up(self) -> None:
        """End the request. The slot goes back now, or as soon as the thread's part has ended."""
        with self.limiter.lock:
            self.is_given_up = True
            signals = () if self.in_thread else self.limiter.take_back(self)
        for signal in signals:
            signal.set()


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
        self._queue: dict[Slot, None] = {}  # a dict keeps the order, and is quick to remove a slot from the middle
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
        for signal in turns:
            signal.set()

    def enter(self, slot: Slot, may_run: bool = True, may_wait: bool = True) -> bool:
        """Let a slot run, or wait in the queue. False if the request may not wait, or the queue is full. The caller holds the lock.

        A call made within a call of the same model never waits: it takes a free slot at once, ahead of the queue, or is refused.
        `_serving.failures` makes the 503 of a call that has not entered, and the 504 of a call that is late.
        """
        if may_run and self.running < self.max_concurrency and not (self._queue and may_wait):
            self.running += 1
            slot.is_running = True
            return True
        if not may_wait or self.is_full():
            return False
        slot.turn, slot.is_waiting = Signal(), True
        self._queue[slot] = None
        return True

    def take_back(self, slot: Slot) -> list[Signal]:
        """Take a slot back, unless it is left already. The caller holds the lock, and then sets the signals that this returns."""
        signals: list[Signal] = []
        if slot.is_over:
            return signals
        slot.is_over = True
        if slot.turn is not None:
            slot.is_waiting = False
            self._remove(slot)
        self.running -= slot.is_running
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
            slot.is_waiting, slot.is_running = False, True
            self.running += 1
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
                slot.is_unloaded = is_unloaded
                signals += [slot.turn, *self.take_back(slot)]
        for signal in signals:
            signal.set()

    def make_idle_signal(self) -> Signal:
        """A signal that is set as soon as no call runs or waits."""
        signal = Signal()
        with self.lock:
            if self.running or self._queue:
                self._idle.append(signal)
                return signal
        signal.set()
        return signal
