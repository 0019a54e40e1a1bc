"""What ends a request, and when two things would at once: each kind of model, asked in each way, and nothing is left behind.

A table of what comes, and requests that are cancelled at each place where they wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from itertools import count, product
from typing import Any, Final, Literal, TypeAlias, get_args

import pytest

from oip_asgi import OIPWSGIApp
from tests.support.metrics import outcomes, waiting_calls
from tests.support.races import BODY, KINDS, MANNERS, STREAMS, WAYS, Asked, Cancelling, Kind, Manner, Racer, Way
from tests.support.talk import until
from tests.support.ways import Request, over_wsgi

pytestmark = pytest.mark.ci  # as no machine breaks it

Race: TypeAlias = Literal[
    "gone",
    "deadline",
    "cancel",
    "cancel twice",
    "cancel again at once",
    "answer and gone",
    "answer and cancel",
    "deadline and cancel",
    "gone and cancel",
]
"""What happens while the model's function waits, the second thing in the same tick."""

RACES: Final[tuple[Race, ...]] = get_args(Race)

Case: TypeAlias = tuple[Race, Manner]
Seen: TypeAlias = tuple[str, dict[str, int], bool, str]
"""How the request ends, how it is counted, whether its task has ended its generator and has the cancellations of its host and no other, and
how the next one ends."""

SECONDS: Final = 0.1
"""The timeout of a model where a deadline is raced for."""


@pytest.fixture(autouse=True)
def nothing_is_logged() -> Iterator[None]:
    """Models raise here, and are late, which is logged."""
    logger = logging.getLogger("oip_asgi")
    before, logger.level = logger.level, logging.CRITICAL + 1
    yield
    logger.setLevel(before)


def is_raced(way: Way, kind: Kind, race: Race) -> bool:
    """Whether there is such a race: a call from Python has no client, and a load is begun before the time of the request."""
    return kind != "inline" and not (way == "Python" and "gone" in race) and not (kind == "load" and "deadline" in race)


def list_manners(kind: Kind) -> Sequence[Manner]:
    """All for coroutines that run in the request's own task; for a batch and behind a cache, those that answer otherwise."""
    if kind in ("coroutine", "async stream"):
        return MANNERS
    return ("ends", "swallows", "replaces") if kind in ("batch of a coroutine", "cache") else ("ends",)


def expect(way: Way, kind: Kind, race: Race, manner: Manner) -> set[tuple[str, str]]:
    """How a request may end, and how it is counted."""
    is_stream = kind in STREAMS
    gone = ("cut" if is_stream or way == "gRPC" else "499", "cancelled")
    late = ("error" if is_stream else "504", "timeout")
    cancelled = ("cancelled", "cancelled")
    # a model that returns all the same has answered, where it runs in the request's own task
    heeds = kind in ("coroutine", "cache") or (kind == "async stream" and way != "gRPC")
    by_cancel = {("200", "ok")} if heeds and manner == "swallows" else {cancelled}
    match race:
        case "gone":
            return {gone}
        case "deadline":
            return {late}
        case "cancel":
            return by_cancel
        case "cancel twice" | "cancel again at once":  # the second may meet the answer to the first
            return {cancelled}
        case "answer and gone":
            return {("200", "ok"), gone, (gone[0], "ok")}
        case "answer and cancel":
            return by_cancel | {("200", "ok"), cancelled}
        case "deadline and cancel":
            return by_cancel | {late, cancelled, ("cancelled", "timeout")}
        case "gone and cancel":
            return by_cancel | {gone, cancelled}


async def run_case(way: Way, kind: Kind, race: Race, manner: Manner, seconds: float = SECONDS) -> Seen:
    """Play one race. What it leaves behind, but for tasks, which all cases share, is an error."""
    timeout = {"stream_timeout" if kind in STREAMS else "timeout": seconds} if "deadline" in race else {}
    racer = Racer(kind, manner, **timeout)
    asked = Asked(racer, kind, way)
    begun = asyncio.get_running_loop().time()
    await until(lambda: racer.begun or asked.task.done())
    if "deadline" in race and not racer.begun:  # on a busy machine, it came before the function was called
        await asked.end()
        racer.server.stop()
        return await run_case(way, kind, race, manner, 2 * seconds)
    if race.startswith("answer"):
        racer.let_go()
    if "gone" in race:
        asked.gone.set()
    if race == "deadline and cancel":
        await asyncio.sleep(begun + seconds - asyncio.get_running_loop().time())
    if "cancel" in race:
        asked.cancel()
    if race in ("cancel twice", "cancel again at once"):
        await asyncio.sleep(0.001 if race == "cancel twice" else 0)
        asked.cancel()
    if kind == "load":  # which nobody's end ends
        await asyncio.wait([asked.task], timeout=0.3)
        racer.let_go()
    end = await asked.end()
    has_own = asked.task.cancelling() == asked.cancels and not racer.strays
    racer.let_go()
    await until(lambda: not racer.list_unfinished().keys() - {"tasks", "watched clients"})
    counted = outcomes(racer.server)
    after = "none"
    for _ in range(9):  # where it has little time, a busy machine may be late
        if after != "200":
            after = await Asked(racer, kind, way).end()
    await until(lambda: not racer.list_unfinished().keys() - {"tasks", "watched clients"})
    racer.server.stop()
    return end, counted, has_own, after


def is_right(way: Way, kind: Kind, case: Case, seen: Seen) -> bool:
    end, counted, has_own, after = seen
    is_expected = any(counted == {outcome: 1} and end == expected for expected, outcome in expect(way, kind, *case))
    return is_expected and has_own and after == "200"


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("way", WAYS)
def test_a_race_ends_in_order_and_leaves_nothing_behind(way: Way, kind: Kind) -> None:
    cases = [(race, manner) for race in RACES for manner in list_manners(kind) if is_raced(way, kind, race)]

    seen = asyncio.run(run_cases(way, kind, cases))
    assert {case: each for case, each in seen.items() if not is_right(way, kind, case, each)} == {}


async def run_cases(way: Way, kind: Kind, cases: list[Case]) -> dict[Case, Seen]:
    few = asyncio.Semaphore(8)  # at once: else some are late before they begin

    async def run(case: Case) -> Seen:
        async with few:
            return await run_case(way, kind, *case)

    seen = await asyncio.gather(*map(run, cases))
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})
    return dict(zip(cases, seen, strict=True))


async def wait_for_slot(way: Way, kind: Kind, race: Race) -> tuple[str, Seen]:
    """A request that waits for the slot of another, and how the other ends."""
    timeout = {"stream_timeout" if kind in STREAMS else "timeout": SECONDS} if race == "deadline" else {}
    racer = Racer(kind, "ends", max_concurrency=1, max_queue=2, **timeout)
    first = Asked(racer, kind, way)
    await until(lambda: racer.begun)
    asked = Asked(racer, kind, way)
    await until(lambda: waiting_calls(racer.server) or "lookups of m" in racer.list_unfinished() or asked.task.done())
    if race == "gone":
        asked.gone.set()
    if race == "cancel":
        asked.cancel()
    end = await asked.end()
    racer.let_go()
    other = await first.end()
    await until(lambda: not racer.list_unfinished())
    counted = outcomes(racer.server)
    after = await Asked(racer, kind, way).end()
    racer.server.stop()
    return other, (end, counted, asked.task.cancelling() == asked.cancels, after)


def list_waiting() -> Iterator[tuple[Way, Kind, Race]]:
    """Each way, kind and race that there is: a call from Python has no client, and the time of a stream begins with its first answer."""
    for way, kind in product(WAYS, KINDS):
        if kind not in ("inline", "load"):
            yield way, kind, "cancel"
            if way != "Python":
                yield way, kind, "gone"
            if kind not in STREAMS:
                yield way, kind, "deadline"


@pytest.mark.parametrize(("way", "kind", "race"), list(list_waiting()))
def test_who_waits_for_a_slot_and_ends_takes_nothing_from_the_others(way: Way, kind: Kind, race: Race) -> None:
    """In the cache's place, it waits for an equal request."""
    other, (end, counted, has_own, after) = asyncio.run(wait_for_slot(way, kind, race))
    outcome = "timeout" if race == "deadline" else "cancelled"
    gone = {"nothing", "cut", "499"}
    assert end in {"gone": gone, "deadline": {"504"}, "cancel": {"cancelled"}}[race]
    assert (other, counted) == (("504", {outcome: 2}) if race == "deadline" else ("200", {"ok": 1, outcome: 1}))
    assert has_own
    assert after in ("200", "504" if race == "deadline" else "200")


@pytest.mark.parametrize(("kind", "manner"), [(kind, manner) for kind in KINDS[1:] if kind != "load" for manner in list_manners(kind)])
async def test_a_deadline_under_wsgi_leaves_nothing_behind(kind: Kind, manner: Manner) -> None:
    """Nobody cancels there, and no client is seen to go."""

    racer = Racer(kind, manner, **{"stream_timeout" if kind in STREAMS else "timeout": SECONDS})
    ask = over_wsgi(OIPWSGIApp(racer.server), "")
    path = f"/models/m/{'infer_stream' if kind in STREAMS else 'infer'}"
    answer = await asyncio.to_thread(ask, Request("POST", path, (), BODY))
    assert answer.status == 504 or (kind in STREAMS and b'"error"' in answer.body)
    racer.let_go()
    await until(lambda: not racer.list_unfinished())
    assert outcomes(racer.server) == {"timeout": 1}
    racer.server.stop()


# Each place where a request waits


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_a_request_that_is_cancelled_wherever_it_waits_leaves_nothing_behind(way: Way, kind: Kind, *, again: bool) -> None:
    """Twice: again at the next place, where it cleans up."""

    async def cancel_at(*places: int) -> tuple[int, object]:
        """How often it was cancelled, and what is wrong then, if anything is."""
        racer, cancelling = Racer(kind), list[Cancelling]()

        def wrap(asked: Any) -> Any:
            cancelling.append(Cancelling(asked, *places))
            return cancelling[0].run()

        racer.let_go()
        asked = Asked(racer, kind, way, wrap)
        end = await asked.end()
        await until(lambda: not racer.list_unfinished())
        counted, cancels, begun = outcomes(racer.server), cancelling[0].cancels, racer.begun
        after = await Asked(racer, kind, way).end()
        await until(lambda: not racer.list_unfinished())
        racer.server.stop()
        is_counted = sum(counted.values()) == 1 or (not begun and not counted)
        is_right = asked.task.cancelling() == cancels and after == "200" and is_counted
        return cancels, None if is_right else (places, end, counted, cancels, asked.task.cancelling(), after)

    async def main() -> list[object]:
        wrong = list[object]()
        for place in count():
            cancels, error = await cancel_at(place, place + again)
            wrong += [] if error is None else [error]
            if not cancels:  # it has ended before
                break
        return wrong

    assert asyncio.run(main()) == []
