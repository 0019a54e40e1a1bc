"""The pieces that a generator of effects hands on, one by one: for callers that block, and for callers that await.

A `SendEach` is carried out here, again and again, and the generator is advanced behind the last time only.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import Any

from .._core.effects import Await, Effect, Run, Send, SendEach, Steps
from .drive import Threads, abandon, abandon_async, advance, advance_async, carry_out, ends
from .faults import as_failure
from .runtime import Runtime
from .waiting import Gone, Turns, attended


def pieces(steps: Steps[Any], runtime: Runtime) -> Generator[Any, None, None]:
    """What `steps` hand on from here to their end, which are ended where nobody asks for more."""
    effect: Effect | None = None
    try:
        while True:
            piece, effect = advance(steps, runtime, effect=effect), None
            if type(piece) is Send:
                yield piece.piece
            elif type(piece) is SendEach:
                while True:
                    try:
                        value = carry_out(piece.effect, runtime, None, None)
                    except Exception as error:
                        effect = steps.throw(error)
                        break
                    if value is None:
                        break
                    yield value
            else:
                return
    except StopIteration:
        return  # of `steps`, which took what they were thrown for their end
    finally:
        abandon(steps, runtime)


async def pieces_async(steps: Steps[Any], threads: Threads, gone: Gone | None = None) -> AsyncGenerator[Any, None]:
    """`pieces` on this event loop. The arguments are those of `advance_async`.

    Raises:
        ClientGone: `gone` has said so, and `steps` are ended.
    """
    effect: Effect | None = None
    turns = Turns()
    try:
        while True:
            piece, effect = await advance_async(steps, threads, None, gone, effect), None
            if type(piece) is Send:
                yield piece.piece
            elif type(piece) is SendEach:
                each = piece.effect
                while True:
                    try:
                        if type(each) is Await:
                            value = await attended(each.function(), each.deadline, gone if each.for_client else None)
                        else:
                            assert type(each) is Run  # nothing else is carried out again and again
                            value = await threads.run(each, gone)
                    except BaseException as error:
                        if ends(error, steps):
                            raise
                        effect = steps.throw(as_failure(error))
                        break
                    if value is None:
                        break
                    yield value
                    if turns.is_over():
                        await turns.pass_on()
            else:
                return
    except StopIteration:
        return  # of `steps`, as in `pieces`
    finally:
        await abandon_async(steps, threads)
