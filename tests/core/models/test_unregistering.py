"""Models that are unregistered while they are loaded, or while a load waits."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from oip_asgi import InferenceError, InferenceServer
from tests.support.talk import until


class Gated:
    """A `load=` that waits until it may return, and an `unload=`. Each notes its calls."""

    def __init__(self) -> None:
        self.entered, self.leave = threading.Event(), threading.Event()
        self.loaded: list[int] = []
        self.unloaded: list[int] = []

    def load(self) -> Any:
        number = len(self.loaded)
        self.loaded.append(number)
        self.entered.set()
        assert self.leave.wait(20)
        return lambda: number

    def unload(self, function: Any) -> None:
        self.unloaded.append(function())


def ended(load: Any) -> tuple[int, str] | None:
    """How a load in a thread ended."""
    try:
        load()
    except InferenceError as error:
        return error.status, str(error)
    return None


@pytest.mark.parametrize("version", [None, "2"])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_load_that_waits_ends_with_404_if_its_model_is_unregistered(version: str | None, is_async: bool) -> None:
    gated, server = Gated(), InferenceServer()
    server.register("m", load=gated.load, unload=gated.unload, version=version)
    called = "model 'm' version '2'" if version else "model 'm'"

    async def load() -> tuple[int, str] | None:
        if not is_async:
            return await asyncio.to_thread(ended, lambda: server.load_sync("m", version))
        try:
            await server.load("m", version)
        except InferenceError as error:
            return error.status, str(error)
        return None

    async def main() -> None:
        first = asyncio.create_task(load())
        await until(gated.entered.is_set)
        waiting = [asyncio.create_task(load()) for _ in range(3)]
        await asyncio.sleep(0.05)
        gone = asyncio.create_task(server.unregister("m"))
        await until(lambda: server.models() == [])
        gated.leave.set()
        await gone
        assert await asyncio.gather(first, *waiting) == [(404, f"{called} is not found: it was unregistered")] * 4

    asyncio.run(main())
    assert (gated.loaded, gated.unloaded) == ([0], [0])
    server.stop()


def test_a_load_of_all_versions_ends_with_404_for_those_that_are_gone() -> None:
    gated, server, loaded = Gated(), InferenceServer(), list[str]()
    server.register("m", version="1", load=gated.load)
    server.register("m", lambda: 2, version="2", load=lambda: loaded.append("2"))

    async def main() -> None:
        loading = asyncio.create_task(server.load("m"))
        await until(gated.entered.is_set)
        await server.unregister("m", "2")
        gated.leave.set()
        with pytest.raises(InferenceError, match="model 'm' version '2' is not found: it was unregistered") as refused:
            await loading
        assert refused.value.status == 404

    asyncio.run(main())
    assert loaded == []
    assert [(status.version, status.state) for status in server.models()] == [("1", "ready")]
