"""The options of `InferenceServer`, as one frozen struct that checks itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, TypedDict

import msgspec

from .._codecs.content_types import AnyCodec
from .._extensions.shared_memory import SharedMemory
from .._protocol.options import BOOLEAN, BYTES, Option, check_options, instance_of, integer, number, text

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


class ServerOptions(msgspec.Struct, frozen=True, eq=False):
    """Raises TypeError or ValueError, with what to write, if one cannot be."""

    name: Annotated[str, Option("The server's name, for its metadata.", text('name="models"'))] = "oip_asgi"
    version: Annotated[
        str | None, Option("The server's version, for its metadata. None means the version of oip_asgi.", text('version="1.0.0"'))
    ] = None
    max_body_bytes: Annotated[
        int | None,
        Option("The largest body of a request, in bytes, decompressed; None for no limit.", BYTES),
    ] = 134_217_728
    max_json_bytes: Annotated[
        int | None,
        Option(
            "The most JSON of a request, in bytes, decompressed; None for no limit. Binary tensor data after it does not count.",
            BYTES,
        ),
    ] = 33_554_432
    ready_when_empty: Annotated[bool, Option("Whether the server counts as ready while no model is registered.", BOOLEAN)] = False
    debug: Annotated[
        bool,
        Option("Whether clients see what a model raised. Not for production: nobody knows what the texts of exceptions hold.", BOOLEAN),
    ] = False
    codecs: Annotated[
        Sequence[AnyCodec],
        Option(
            "Your own codecs, beside those of `oip_asgi.codecs`: subclasses of `InputCodec` or `RequestCodec`. A codec with the content "
            "type of one of ours replaces it."
        ),
    ] = ()
    model_control: Annotated[
        bool,
        Option(
            "Whether clients may load and unload models, by Triton's model repository extension. Switch it on only if everybody who "
            "reaches the server may do that. Clients may always list the models, and `server.load` and `server.unload` always work.",
            BOOLEAN,
        ),
    ] = False
    docs: Annotated[
        bool,
        Option(
            "Whether the server shows its models to people: the page at `/v2/docs`, and OpenAPI documents at `/v2/openapi.json` and "
            "below each model. `OIPApp.install` adds them to FastAPI's own document.",
            BOOLEAN,
        ),
    ] = True

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

    def __post_init__(self) -> None:
        check_options(self, "")
