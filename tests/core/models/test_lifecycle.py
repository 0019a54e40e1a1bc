"""The lifecycle of one model by itself: its states, one load for all who wait, and loads that nobody finishes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest

from tests.support.asking import NOT_READY
from tests.support.inside.codecs import Codecs
from tests.support.inside.models import Lifecycle, Limiter, Loader, ModelOptions, make_handler
from tests.support.steps import Await, Begun, Run, StepIO, Wait

Steps = Coroutine[Any, Any, None]

IO: Final = StepIO()
"""What each lifecycle waits with."""


def lifecycle_of(load: Callable[[], Any] | None) -> Lifecycle:
    """The lifecycle of a model with this `load=`, beside a function."""
    codecs = Codecs()
    options = ModelOptions(name="m", function=lambda: 1, load=load)
    handler = make_handler(lambda: 1, options, codecs) if load is None else None
    return Lifecycle("'m'", Loader(options, codecs), handler, lambda _: None, Limiter(1, 0))


def state_of(lifecycle: Lifecycle) -> str:
    return lifecycle.state


def begun(steps: Steps) -> Begun:
    """The loading that a request begins; then the request waits for its end."""
    before = len(IO.begun)
    wait = steps.send(None)
    [begun] = IO.begun[before:]
    assert type(wait) is Wait
    assert wait.signal is begun.part.ended
    return begun


def assert_waits(steps: Steps, begun: Begun) -> None:
    wait = steps.send(None)
    assert type(wait) is Wait
    assert wait.signal is begun.part.ended


def is_over(steps: Steps) -> bool:
    """Whether a coroutine comes to its end."""
    try:
        steps.send(None)
    except StopIteration:
        return True
    return False


def finish(begun: Begun) -> None:
    """Do what a loading asks for: call the function, and then set the signal."""
    asked = begun.steps.send(None)
    assert type(asked) is Run
    assert asked.work == "hook"
    try:
        result = asked.function()
    except Exception as error:
        with pytest.raises(StopIteration):
            begun.steps.throw(error)
    else:
        with pytest.raises(StopIteration):
            begun.steps.send(result)
    begun.part.ended.set()


def noting(calls: list[int]) -> Callable[[], None]:
    return lambda: calls.append(1)


def test_a_model_without_a_load_is_ready_from_the_start_and_stays_so() -> None:
    lifecycle = lifecycle_of(None)
    assert state_of(lifecycle) == "ready"
    assert lifecycle.begin_to_load(IO, at_start=True) is None
    assert is_over(lifecycle.wait_until_loaded(IO))
    lifecycle.forget()
    assert state_of(lifecycle) == "ready"


def test_the_first_request_loads() -> None:
    calls: list[int] = []
    lifecycle = lifecycle_of(noting(calls))
    assert state_of(lifecycle) == "registered"
    request = lifecycle.wait_until_loaded(IO)
    loading = begun(request)
    assert (state_of(lifecycle), calls) == ("loading", [])
    finish(loading)
    assert (state_of(lifecycle), calls) == ("ready", [1])
    assert is_over(request)
    assert is_over(lifecycle.wait_until_loaded(IO))


def test_an_async_load_is_awaited() -> None:
    async def load() -> str:
        return "loaded"

    loading = begun(lifecycle_of(load).wait_until_loaded(IO))
    asked = loading.steps.send(None)
    assert type(asked) is Await
    assert asyncio.run(asked.function()) == "loaded"
    loading.steps.close()


def test_a_load_that_raises_fails_for_good_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    lifecycle = lifecycle_of(lambda: 1 / 0)
    requests = [lifecycle.wait_until_loaded(IO), lifecycle.wait_until_loaded(IO)]
    loading = begun(requests[0])
    assert_waits(requests[1], loading)
    finish(loading)
    assert state_of(lifecycle) == "failed"
    assert all(map(is_over, requests))
    assert is_over(lifecycle.wait_until_loaded(IO))
    assert lifecycle.begin_to_load(IO, at_start=True) is None
    [record] = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.ERROR, f"model 'm': load= raised, so {NOT_READY}")


def test_those_who_wait_wait_for_one_load() -> None:
    calls: list[int] = []
    lifecycle = lifecycle_of(noting(calls))
    first, second, third = (lifecycle.wait_until_loaded(IO) for _ in range(3))
    loading = begun(first)
    assert_waits(second, loading)
    assert_waits(third, loading)
    assert lifecycle.begin_to_load(IO, at_start=True) is None
    first.close()  # its client has gone, which does not end the load
    finish(loading)
    assert is_over(second)
    assert is_over(third)
    assert (state_of(lifecycle), calls) == ("ready", [1])


def test_requests_do_not_wait_for_a_server_that_starts_but_another_start_does() -> None:
    lifecycle = lifecycle_of(noting([]))
    part = lifecycle.begin_to_load(IO, at_start=True)
    loading = IO.begun[-1]
    assert part is loading.part
    assert state_of(lifecycle) == "loading"
    assert is_over(lifecycle.wait_until_loaded(IO))
    start = lifecycle.wait_until_loaded(IO, at_start=True)
    assert_waits(start, loading)
    finish(loading)
    assert is_over(start)
    assert state_of(lifecycle) == "ready"


def cancel(begun: Begun) -> None:
    """What happens where the task of a loading is cancelled within the load."""
    begun.steps.send(None)
    begun.steps.close()
    begun.part.ended.set()


def cancel_before_it_begins(begun: Begun) -> None:
    begun.steps.close()
    begun.part.ended.set()


def lose(begun: Begun) -> None:
    """What is left where the event loop of a loading is closed under it: nobody sets its signal any more."""
    begun.steps.send(None)
    begun.part.is_lost = lambda: True


def lose_before_it_begins(begun: Begun) -> None:
    begun.part.is_lost = lambda: True
    begun.steps.close()


ENDS = [cancel, cancel_before_it_begins, lose, lose_before_it_begins]


@pytest.mark.parametrize("end", ENDS)
def test_the_next_request_loads_anew_where_a_load_never_ends(end: Callable[[Begun], None]) -> None:
    calls: list[int] = []
    lifecycle = lifecycle_of(noting(calls))
    first = begun(lifecycle.wait_until_loaded(IO))
    end(first)
    request = lifecycle.wait_until_loaded(IO)
    second = begun(request)
    assert second is not first
    assert state_of(lifecycle) == "loading"
    finish(second)
    assert is_over(request)
    assert (state_of(lifecycle), calls) == ("ready", [1])


@pytest.mark.parametrize("end", [cancel, cancel_before_it_begins])
def test_one_of_those_who_wait_loads_anew_where_a_load_is_cancelled(end: Callable[[Begun], None]) -> None:
    lifecycle = lifecycle_of(noting([]))
    requests = [lifecycle.wait_until_loaded(IO) for _ in range(3)]
    first = begun(requests[0])
    for request in requests[1:]:
        assert_waits(request, first)
    end(first)
    second = begun(requests[1])
    assert second is not first
    assert_waits(requests[2], second)
    finish(second)
    assert all(map(is_over, requests[1:]))
    assert state_of(lifecycle) == "ready"


@pytest.mark.parametrize("end", ENDS)
def test_a_start_takes_up_what_never_ends(end: Callable[[Begun], None]) -> None:
    lifecycle = lifecycle_of(noting([]))
    end(begun(lifecycle.wait_until_loaded(IO)))
    start = lifecycle.wait_until_loaded(IO, at_start=True)
    finish(begun(start))
    assert is_over(start)
    assert state_of(lifecycle) == "ready"


def test_an_unload_that_is_cancelled_while_a_load_runs_ends_after_it() -> None:
    lifecycle = lifecycle_of(noting([]))
    loading = begun(lifecycle.wait_until_loaded(IO))
    unloading = lifecycle.unload("unload")
    assert unloading is not None
    cancel(IO.begin(unloading))
    assert state_of(lifecycle) == "unloading"
    finish(loading)
    assert state_of(lifecycle) == "unloaded"


@pytest.mark.parametrize("load", [lambda: None, lambda: 1 / 0])
def test_what_a_server_forgets_is_loaded_again(load: Callable[[], Any]) -> None:
    lifecycle = lifecycle_of(load)
    lifecycle.forget()
    assert state_of(lifecycle) == "registered"
    finish(begun(lifecycle.wait_until_loaded(IO)))
    ended = state_of(lifecycle)
    lifecycle.forget()
    assert state_of(lifecycle) == "registered"
    loading = begun(lifecycle.wait_until_loaded(IO))
    lifecycle.forget()  # one that is loading goes on
    assert state_of(lifecycle) == "loading"
    finish(loading)
    assert state_of(lifecycle) == ended
