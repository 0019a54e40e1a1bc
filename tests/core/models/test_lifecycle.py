"""The lifecycle of one model by itself: its states, one load for all who wait, and loads that nobody finishes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from typing import Any

import pytest

from tests.support.asking import NOT_READY
from tests.support.inside.codecs import Codecs
from tests.support.inside.models import Lifecycle, Limiter, Loader, ModelOptions, make_handler
from tests.support.inside.runtime import Await, Effect, Run, Spawn, Wait

Steps = Generator[Effect, Any, None]


def lifecycle_of(load: Callable[[], Any] | None) -> Lifecycle:
    """The lifecycle of a model with this `load=`, beside a function."""
    codecs = Codecs()
    options = ModelOptions(name="m", function=lambda: 1, load=load)
    handler = make_handler(lambda: 1, options, codecs) if load is None else None
    return Lifecycle("'m'", Loader(options, codecs), handler, lambda _: None, Limiter(1, 0))


def state_of(lifecycle: Lifecycle) -> str:
    return lifecycle.state


def begun(steps: Steps) -> Spawn:
    """The loading that a request's first step begins; then the request waits for its end."""
    spawn = next(steps)
    assert type(spawn) is Spawn
    assert_waits(steps, spawn, first=False)
    return spawn


def assert_waits(steps: Steps, spawn: Spawn, *, first: bool = True) -> None:
    wait = next(steps) if first else steps.send(None)
    assert type(wait) is Wait
    assert wait.signal is spawn.ended


def is_over(steps: Steps) -> bool:
    """Whether steps have come to their end."""
    return next(steps, None) is None


def finish(spawn: Spawn) -> None:
    """Do what a driver does with a loading: call the function, and set the signal behind it."""
    effect = next(spawn.part)
    assert type(effect) is Run
    assert effect.work == "hook"
    try:
        result = effect.function()
    except Exception as error:
        with pytest.raises(StopIteration):
            spawn.part.throw(error)
    else:
        with pytest.raises(StopIteration):
            spawn.part.send(result)
    spawn.ended.set()


def noting(calls: list[int]) -> Callable[[], None]:
    return lambda: calls.append(1)


def test_a_model_without_a_load_is_ready_from_the_start_and_stays_so() -> None:
    lifecycle = lifecycle_of(None)
    assert state_of(lifecycle) == "ready"
    assert lifecycle.begin_at_start() is None
    assert is_over(lifecycle.wait_until_loaded())
    lifecycle.forget()
    assert state_of(lifecycle) == "ready"


def test_the_first_request_loads() -> None:
    calls: list[int] = []
    lifecycle = lifecycle_of(noting(calls))
    assert state_of(lifecycle) == "registered"
    request = lifecycle.wait_until_loaded()
    spawn = begun(request)
    assert (state_of(lifecycle), calls) == ("loading", [])
    finish(spawn)
    assert (state_of(lifecycle), calls) == ("ready", [1])
    assert is_over(request)
    assert is_over(lifecycle.wait_until_loaded())


def test_an_async_load_is_awaited() -> None:
    async def load() -> str:
        return "loaded"

    spawn = begun(lifecycle_of(load).wait_until_loaded())
    effect = next(spawn.part)
    assert type(effect) is Await
    assert asyncio.run(effect.function()) == "loaded"


def test_a_load_that_raises_fails_for_good_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    lifecycle = lifecycle_of(lambda: 1 / 0)
    requests = [lifecycle.wait_until_loaded(), lifecycle.wait_until_loaded()]
    spawn = begun(requests[0])
    assert_waits(requests[1], spawn)
    finish(spawn)
    assert state_of(lifecycle) == "failed"
    assert all(map(is_over, requests))
    assert is_over(lifecycle.wait_until_loaded())
    assert lifecycle.begin_at_start() is None
    [record] = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.ERROR, f"model 'm': load= raised, so {NOT_READY}")


def test_those_who_wait_wait_for_one_load() -> None:
    calls: list[int] = []
    lifecycle = lifecycle_of(noting(calls))
    first, second, third = (lifecycle.wait_until_loaded() for _ in range(3))
    spawn = begun(first)
    assert_waits(second, spawn)
    assert_waits(third, spawn)
    assert lifecycle.begin_at_start() is None
    first.close()  # its client has gone, which does not end the load
    finish(spawn)
    assert is_over(second)
    assert is_over(third)
    assert (state_of(lifecycle), calls) == ("ready", [1])


def test_requests_do_not_wait_for_a_server_that_starts_but_another_start_does() -> None:
    lifecycle = lifecycle_of(noting([]))
    spawn = lifecycle.begin_at_start()
    assert spawn is not None
    assert state_of(lifecycle) == "loading"
    assert is_over(lifecycle.wait_until_loaded())
    start = lifecycle.wait_until_loaded(at_start=True)
    assert_waits(start, spawn)
    finish(spawn)
    assert is_over(start)
    assert state_of(lifecycle) == "ready"


def cancel(spawn: Spawn) -> None:
    """What a driver does where the task of a loading is cancelled within the load."""
    next(spawn.part)
    spawn.part.close()
    spawn.ended.set()


def cancel_before_it_begins(spawn: Spawn) -> None:
    spawn.part.close()
    spawn.ended.set()


def lose(spawn: Spawn) -> None:
    """What is left where the event loop of a loading is closed under it: nobody sets its signal any more."""
    next(spawn.part)
    spawn.is_lost = lambda: True


def lose_before_it_begins(spawn: Spawn) -> None:
    spawn.is_lost = lambda: True


ENDS = [cancel, cancel_before_it_begins, lose, lose_before_it_begins]


@pytest.mark.parametrize("end", ENDS)
def test_the_next_request_loads_anew_where_a_load_never_ends(end: Callable[[Spawn], None]) -> None:
    calls: list[int] = []
    lifecycle = lifecycle_of(noting(calls))
    first = begun(lifecycle.wait_until_loaded())
    end(first)
    request = lifecycle.wait_until_loaded()
    second = begun(request)
    assert second is not first
    assert state_of(lifecycle) == "loading"
    finish(second)
    assert is_over(request)
    assert (state_of(lifecycle), calls) == ("ready", [1])


@pytest.mark.parametrize("end", [cancel, cancel_before_it_begins])
def test_one_of_those_who_wait_loads_anew_where_a_load_is_cancelled(end: Callable[[Spawn], None]) -> None:
    lifecycle = lifecycle_of(noting([]))
    requests = [lifecycle.wait_until_loaded() for _ in range(3)]
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
def test_a_start_takes_up_what_never_ends(end: Callable[[Spawn], None]) -> None:
    lifecycle = lifecycle_of(noting([]))
    end(begun(lifecycle.wait_until_loaded()))
    start = lifecycle.wait_until_loaded(at_start=True)
    finish(begun(start))
    assert is_over(start)
    assert state_of(lifecycle) == "ready"


def test_an_unload_that_is_cancelled_while_a_load_runs_ends_after_it() -> None:
    lifecycle = lifecycle_of(noting([]))
    loading = begun(lifecycle.wait_until_loaded())
    unloading = lifecycle.unload("unload")
    assert unloading is not None
    cancel(unloading)
    assert state_of(lifecycle) == "unloading"
    finish(loading)
    assert state_of(lifecycle) == "unloaded"


@pytest.mark.parametrize("load", [lambda: None, lambda: 1 / 0])
def test_what_a_server_forgets_is_loaded_again(load: Callable[[], Any]) -> None:
    lifecycle = lifecycle_of(load)
    lifecycle.forget()
    assert state_of(lifecycle) == "registered"
    finish(begun(lifecycle.wait_until_loaded()))
    ended = state_of(lifecycle)
    lifecycle.forget()
    assert state_of(lifecycle) == "registered"
    spawn = begun(lifecycle.wait_until_loaded())
    lifecycle.forget()  # one that is loading goes on
    assert state_of(lifecycle) == "loading"
    finish(spawn)
    assert state_of(lifecycle) == ended
