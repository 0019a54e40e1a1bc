"""What becomes of calls whose client goes away, or whose host cancels them."""

from __future__ import annotations

import asyncio
import threading

import pytest

from oip_asgi import Access, InferenceServer
from tests.support.inside import is_idle, states
from tests.support.limited import Awaiting, Blocking, serve
from tests.support.talk import Talk, until

pytestmark = pytest.mark.usefixtures("nothing_is_logged_as_an_error")


def test_an_async_model_of_a_client_that_has_gone_is_cancelled_and_awaited() -> None:
    model = Awaiting()
    server = serve(model)

    async def main() -> None:
        talk = Talk(server)
        await until(lambda: model.started == 1)
        talk.go()
        assert await talk.answer() == (499, None)
        assert model.events == ["cleaned up"]

    asyncio.run(main())
    assert is_idle(server)


@pytest.mark.parametrize("pieces", [1, 3])
def test_no_part_of_a_body_is_taken_for_a_client_that_goes(pieces: int) -> None:
    """While somebody is asked, clients are watched by the messages that they send."""

    async def may(access: Access) -> bool:
        await asyncio.sleep(0.15)
        return True

    server = InferenceServer(authorize=may)
    server.register("m", lambda x: x.sum())
    body = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[3],"data":[1.5,1.5,1.5]}]}'

    async def main() -> None:
        talk = Talk(server, body=None)
        step = -(-len(body) // pieces)
        for start in range(0, len(body), step):
            talk.say(body[start : start + step], ends=start + step >= len(body))
        assert (await talk.answer())[1]["outputs"][0]["data"] == [4.5]

    asyncio.run(main())


def test_a_queued_call_of_a_client_that_has_gone_never_starts(blocking: Blocking) -> None:
    server = serve(blocking, max_concurrency=1, max_queue=1)

    async def main() -> None:
        first = Talk(server)
        await until(lambda: blocking.started == 1)
        queued = Talk(server)
        queued.go()
        assert await queued.answer() == (499, None)
        next_one = Talk(server)  # its place in the queue is free
        blocking.leave.set()
        assert [(await talk.answer())[0] for talk in (first, next_one)] == [200, 200]

    asyncio.run(main())
    assert blocking.started == 2
    assert is_idle(server)


def test_the_answer_of_a_thread_whose_client_has_gone_is_dropped(blocking: Blocking) -> None:
    server = serve(blocking, max_concurrency=1, max_queue=0)

    async def main() -> None:
        talk = Talk(server)
        await until(lambda: blocking.started == 1)
        talk.go()
        assert await talk.answer() == (499, None)
        assert not is_idle(server)
        assert (await Talk(server).answer())[0] == 503
        blocking.leave.set()
        await until(lambda: is_idle(server))

    asyncio.run(main())
    assert blocking.ended == 1


def test_a_thread_that_raises_after_its_client_has_gone_is_not_logged() -> None:
    entered, leave = threading.Event(), threading.Event()

    def model() -> None:
        entered.set()
        assert leave.wait(20)
        raise ValueError("nobody hears it")

    server = serve(model)

    async def main() -> None:
        talk = Talk(server)
        await until(entered.is_set)
        talk.go()
        await talk.answer()
        leave.set()
        await until(lambda: is_idle(server))

    asyncio.run(main())


def test_what_waits_for_a_thread_and_is_given_up_never_starts(blocking: Blocking) -> None:
    server = InferenceServer(worker_threads=1)
    started: list[int] = []
    server.register("m", blocking)
    server.register("other", lambda: started.append(1))

    async def main() -> None:
        first = Talk(server)
        await until(lambda: blocking.started == 1)
        other = Talk(server, "other")
        other.go()
        assert await other.answer() == (499, None)
        blocking.leave.set()
        assert (await first.answer())[0] == 200

    asyncio.run(main())
    server.stop()
    assert started == []
    assert is_idle(server)


def test_a_short_call_is_not_watched() -> None:
    async def model() -> int:
        await asyncio.sleep(0)
        return 1

    server = serve(model)
    server.register("thread", lambda: 1)

    async def main() -> None:
        for name in ("m", "thread"):
            talk = Talk(server, name)
            talk.go()
            assert (await talk.answer())[0] == 200
            assert talk.asked == 1

    asyncio.run(main())


@pytest.mark.parametrize("what", ["raises", "says something else"])
def test_a_server_that_cannot_tell_when_clients_go(what: str) -> None:
    model = Awaiting()
    server = serve(model)

    async def main() -> None:
        talk = Talk(server)
        await until(lambda: model.started == 1)
        if what == "raises":
            talk._messages.put_nowait(None)  # no message at all
        else:
            talk.say(b"more")
        await until(lambda: talk.asked == 2)
        model.leave.set()
        assert (await talk.answer())[0] == 200

    asyncio.run(main())


def test_a_loading_model_does_not_end_with_the_client_who_came_first() -> None:
    entered, leave = threading.Event(), threading.Event()
    loaded: list[int] = []

    def load() -> None:
        entered.set()
        assert leave.wait(20)
        loaded.append(1)

    server = serve(lambda: 1, load=load)

    async def main() -> None:
        first = Talk(server)
        await until(entered.is_set)
        first.task.cancel()  # as hosts with a timeout of their own do
        with pytest.raises(asyncio.CancelledError):
            await first.task
        leave.set()
        await until(lambda: states(server)["m"] == "ready")
        assert (await Talk(server).answer())[0] == 200

    asyncio.run(main())
    assert loaded == [1]


@pytest.mark.parametrize("where", ["async", "thread", "queue"])
def test_a_host_that_cancels_a_request(where: str, blocking: Blocking) -> None:
    awaiting = Awaiting()
    server = serve(awaiting if where == "async" else blocking, max_concurrency=1)

    async def main() -> None:
        if where == "queue":
            Talk(server)
        talk = Talk(server)
        await until(lambda: blocking.started + awaiting.started == 1)
        await asyncio.sleep(0)
        talk.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await talk.task
        assert talk.sent == []
        blocking.leave.set()
        await until(lambda: is_idle(server))

    asyncio.run(main())
    assert blocking.started + awaiting.started == 1
    assert awaiting.events == (["cleaned up"] if where == "async" else [])
