"""All options of `InferenceServer`. Knows no transport."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, TypedDict

from ._codecs.registry import AnyCodec
from ._extensions.shared_memory import SharedMemory
from ._protocol.options import Option, instance_of, integer, number
from ._serving.options import EngineOptions

_SECONDS: Final = number("a number of seconds, 0 or more", lambda value: value >= 0)


class ServerKeywords(TypedDict, total=False):
    """The keywords of `InferenceServer` for type checkers, as `ServerOptions` has them."""

    max_body_bytes: int | None
    max_json_bytes: int | None
    ready_when_empty: bool
    debug: bool
    codecs: Sequence[AnyCodec]
    model_control: bool
    docs: bool
    worker_threads: int
    shutdown_timeout: float
    shared_memory: SharedMemory | None


class ServerOptions(EngineOptions, frozen=True, eq=False):
    """The options of the engine, and what runs it."""

    worker_threads: Annotated[int, Option("How many calls may be in worker threads at once, of all `def` models together.", integer(1))] = (
        40
    )
    shutdown_timeout: Annotated[
        float,
        Option(
            "How many seconds running calls have to finish when the server stops. Keep it below the time that the host itself is given.",
            _SECONDS,
        ),
    ] = 10.0
    shared_memory: Annotated[
        SharedMemory | None,
        Option(
            "Lets clients on this machine put tensors into system shared memory. Everybody who reaches the server may then read and "
            "overwrite what it allows.",
            instance_of(SharedMemory, "SharedMemory(allow=[...])"),
        ),
    ] = None
