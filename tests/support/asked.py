"""Both clients of `oip_asgi.client` with one face, in front of any application or server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, Self

import httpx2

from oip_asgi.client import AsyncClient, Client


class Asked:
    """A server, asked by one of the clients.

    Args:
        target: A URL, a WSGI application, or with `awaited` an ASGI application.
        awaited: Whether `AsyncClient` asks, with an event loop of its own for each question.
    """

    def __init__(self, target: Any, *, awaited: bool) -> None:
        self._target = target
        self._awaited = awaited
        self.is_grpc = isinstance(target, str) and target.startswith("grpc")

    def __call__(self, method: str, *arguments: Any, **options: Any) -> Any:
        """What a method returns; a list of all responses of `stream`."""
        if self._awaited:
            return asyncio.run(self._ask(method, arguments, options))
        if isinstance(self._target, str):
            with Client(self._target) as client:
                return _listed(getattr(client, method)(*arguments, **options))
        with httpx2.Client(transport=httpx2.WSGITransport(self._target, raise_app_exceptions=False)) as http:
            return _listed(getattr(Client("http://test/v2", http=http), method)(*arguments, **options))

    async def _ask(self, method: str, arguments: Any, options: Any) -> Any:
        if isinstance(self._target, str):
            async with AsyncClient(self._target) as client:
                return await _finished(getattr(client, method)(*arguments, **options))
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(self._target), base_url="http://test") as http:
            return await _finished(getattr(AsyncClient("/v2", http=http), method)(*arguments, **options))


def _listed(result: Any) -> Any:
    return list(result) if hasattr(result, "send") else result


async def _finished(result: Any) -> Any:
    return [each async for each in result] if isinstance(result, AsyncIterator) else await result


class OnALoop:
    """`AsyncClient` with the face of `Client`: an event loop that runs while one of its methods does, for tests that ask both alike."""

    def __init__(self, url: str, **options: Any) -> None:
        self._runner = asyncio.Runner()
        self._client = AsyncClient(url, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._runner.close()

    def stream(self, *arguments: Any, **options: Any) -> Iterator[Any]:
        responses = self._client.stream(*arguments, **options)
        try:
            while (response := self._run(anext(responses, None))) is not None:
                yield response
        finally:
            self._run(responses.aclose())

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **options: self._run(getattr(self._client, name)(*arguments, **options))

    def _run(self, result: Any) -> Any:
        async def settle() -> Any:
            await asyncio.sleep(0)  # it hears of what became of its connections meanwhile
            return await result

        return self._runner.run(settle())
