"""An `IO` by hand: a coroutine that waits stops at each place, and the test looks at what it asks for, and goes on with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Generator
from typing import Any, NamedTuple

from tests.support.inside.runtime import Part, Signal, Work


class Wait:
    """It waits for a signal."""

    def __init__(self, signal: Signal) -> None:
        self.signal = signal

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield self)


class Run:
    """It waits for what a function returns."""

    def __init__(self, function: Callable[[], Any], work: Work) -> None:
        self.function, self.work = function, work

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield self)


class Await:
    """It waits for what a coroutine function returns."""

    def __init__(self, function: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.function = function

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield self)


class Begun(NamedTuple):
    """A part that goes on by itself, as far as the test lets it."""

    part: Part
    steps: Coroutine[Any, Any, object]


class StepIO:
    """Asks the test for everything, and notes which parts were begun."""

    until = math.inf
    beat: Any = None

    def __init__(self) -> None:
        self.begun: list[Begun] = []

    def keep_alive(self, seconds: float, make: Callable[[], Any]) -> None:
        raise NotImplementedError

    def read(self, body: Any) -> Any:
        raise NotImplementedError

    def wait(self, signal: Signal, deadline: float = math.inf) -> Any:
        del deadline
        return Wait(signal)

    def run(self, function: Callable[[], Any], work: Work, after: Any = None, deadline: float = math.inf, late: Any = None) -> Any:
        assert (after, deadline, late) == (None, math.inf, None)
        return Run(function, work)

    def run_ahead(self, function: Callable[[], Any], work: Work, after: Any = None, deadline: float = math.inf, late: Any = None) -> Any:
        raise NotImplementedError

    def run_always(self, function: Callable[[], Any], work: Work) -> Any:
        return Run(function, work)

    def call(self, function: Callable[[], Coroutine[Any, Any, Any]], deadline: float = math.inf, in_one_task: bool = False) -> Any:
        assert (deadline, in_one_task) == (math.inf, False)
        return Await(function)

    def call_always(self, function: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        return Await(function)

    def can_wait(self) -> bool:
        return True

    def spawn(self, part: Part) -> None:
        self.begin(part)

    def make_spawner(self) -> Callable[[Part], bool]:
        def begin(part: Part) -> bool:
            self.begin(part)
            return True

        return begin

    def begin(self, part: Part) -> Begun:
        begun = Begun(part, part.make(self))
        self.begun.append(begun)
        return begun
