"""One code for libraries that await and for libraries that block: with these, its coroutines never wait, so no event loop is needed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Generator, Iterable
from inspect import isawaitable
from typing import TypeVar

from .._io import begin, finish

T = TypeVar("T")


async def wait_for(result: T | Awaitable[T]) -> T:
    """What a library returned: its result, or what must be awaited for that."""
    return await result if isawaitable(result) else result


async def iterate(items: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


def iterate_at_once(items: AsyncGenerator[T]) -> Generator[T]:
    """The items of an asynchronous generator that never waits."""
    try:
        item = finish(begin(items))
        while item is not None:
            yield item
            item = finish(anext(items))
    except StopAsyncIteration:
        return
    finally:
        finish(items.aclose())
