"""The host's context variables reach the model, whatever runs it and however it waited: spans, users and log fields live in them."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from oip_asgi import InferenceServer
from tests.support.grpc_ways import Client, awaiting, blocking, wire_request
from tests.support.talk import Talk

USER: contextvars.ContextVar[str] = contextvars.ContextVar("user", default="nobody")


def make_server(seen: list[str], **options: Any) -> InferenceServer:
    server = InferenceServer()

    def note() -> int:
        seen.append(USER.get())
        return 1

    async def note_later() -> int:
        await asyncio.sleep(0)
        return note()

    server.register("def", note, **options)
    server.register("async", note_later)
    server.register("inline", note, run="inline")
    return server


async def test_calls_that_wait_for_a_slot_run_in_the_context_of_their_own_request() -> None:
    seen: list[str] = []
    leave, server = threading.Event(), InferenceServer()

    @server.model("m", max_concurrency=1, max_queue=3)
    def model() -> int:
        assert leave.wait(20)
        seen.append(USER.get())
        return 1

    talks = []
    for number in range(5):
        USER.set(f"user {number}")
        talks.append(Talk(server))
    assert (await talks.pop().answer())[0] == 503  # so that the others run or wait
    leave.set()
    for talk in talks:
        assert (await talk.answer())[0] == 200
    assert seen == [f"user {number}" for number in range(4)]


class _Blocking(grpc.ServerInterceptor):
    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        handler = continuation(details)

        def behaviour(request: Any, context: Any) -> Any:
            USER.set(dict(context.invocation_metadata())["user"])
            return handler.unary_unary(request, context)

        return grpc.unary_unary_rpc_method_handler(behaviour, handler.request_deserializer, handler.response_serializer)


class _Awaiting(grpc.aio.ServerInterceptor):
    async def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        handler = await continuation(details)

        async def behaviour(request: Any, context: Any) -> Any:
            USER.set(dict(context.invocation_metadata())["user"])
            return await handler.unary_unary(request, context)

        return grpc.unary_unary_rpc_method_handler(behaviour, handler.request_deserializer, handler.response_serializer)


@pytest.mark.parametrize("timeout", [None, 30.0])
@pytest.mark.parametrize(("serving", "interceptor"), [(blocking, _Blocking), (awaiting, _Awaiting)], ids=["grpc", "grpc.aio"])
def test_the_context_of_a_host_over_grpc(serving: Any, interceptor: Any, timeout: float | None) -> None:
    seen: list[str] = []
    with serving(make_server(seen, timeout=timeout), interceptor()) as address, ThreadPoolExecutor(4) as threads:
        client = Client(address)
        for model in ("def", "async", "inline"):
            users = [f"{model} {number}" for number in range(8)]
            list(threads.map(lambda user, m=model: client.ask("ModelInfer", wire_request(m), metadata=[("user", user)]), users))
            assert sorted(seen) == users
            seen.clear()


@pytest.mark.parametrize("model", ["def", "async", "inline"])
async def test_the_context_of_a_host_over_asgi(model: str) -> None:
    seen: list[str] = []

    USER.set("alice")
    assert (await Talk(make_server(seen), model).answer())[0] == 200
    assert seen == ["alice"]
