"""How clients are seen to go away. What becomes of their calls is in tests/adapters/test_races.py."""

from __future__ import annotations

import asyncio

import pytest

from oip_asgi import Access, InferenceServer
from tests.support.limited import Awaiting, Blocking, serve
from tests.support.metrics import is_idle
from tests.support.talk import Talk, until

pytestmark = pytest.mark.usefixtures("nothing_is_logged_as_an_error")


@pytest.mark.parametrize("pieces", [1, 3])
async def test_no_part_of_a_body_is_taken_for_a_client_that_goes(pieces: int) -> None:
    """While somebody is asked, clients are watched by the messages that they send."""

    async def may(access: Access) -> bool:
        await asyncio.sleep(0.15)
        return True

    server = InferenceServer(authorize=may)
    server.register("m", lambda x: x.sum())
    body = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[3],"data":[1.5,1.5,1.5]}]}'
    talk = Talk(server, body=None)
    step = -(-len(body) // pieces)
    for start in range(0, len(body), step):
        talk.say(body[start : start + step], ends=start + step >= len(body))
    assert (await talk.answer())[1]["outputs"][0]["data"] == [4.5]


async def test_what_waits_for_a_thread_and_is_given_up_never_starts(blocking: Blocking) -> None:
    server = InferenceServer(worker_threads=1)
    started: list[int] = []
    server.register("m", blocking)
    server.register("other", lambda: started.append(1))
    first = Talk(server)
    await until(lambda: blocking.started == 1)
    other = Talk(server, "other")
    other.go()
    assert await other.answer() == (499, None)
    blocking.leave.set()
    assert (await first.answer())[0] == 200
    await asyncio.to_thread(server.stop)
    assert started == []
    assert is_idle(server)


async def test_a_short_call_is_not_watched() -> None:
    async def model() -> int:
        await asyncio.sleep(0)
        return 1

    server = serve(model)
    server.register("thread", lambda: 1)
    for name in ("m", "thread"):
        talk = Talk(server, name)
        talk.go()
        assert (await talk.answer())[0] == 200
        assert talk.asked == 1


@pytest.mark.parametrize("what", ["raises", "says something else"])
async def test_a_server_that_cannot_tell_when_clients_go(what: str) -> None:
    model = Awaiting()
    server = serve(model)
    talk = Talk(server)
    await until(lambda: model.started == 1)
    if what == "raises":
        talk._messages.put_nowait(None)  # no message at all
    else:
        talk.say(b"more")
    await until(lambda: talk.asked == 2)
    model.leave.set()
    assert (await talk.answer())[0] == 200
