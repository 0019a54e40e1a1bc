"""The options of `InferenceServer`, as one frozen struct that checks itself. Knows no transport."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from ._codecs.registry import AnyCodec
from ._protocol.options import BOOLEAN, BYTES, Option, check_options, instance_of, integer, number, text
from ._runtime.shared_memory import SharedMemory

_SECONDS: Final = number("a number of seconds, 0 or more", lambda value: value >= 0)


class ServerOptions(msgspec.Struct, frozen=True, eq=False):
    """What a user says of a server.

    Raises:
        TypeError: One has the wrong type; the text says what to write.
        ValueError: One has a value that it cannot have.
    """

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
