"""The options of `InferenceServer`, as one frozen struct that checks itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final, TypedDict

import msgspec

from .._codecs.content_types import AnyCodec
from .._extensions.shared_memory import SharedMemory
from .._protocol.options import BOOLEAN, BYTES, CALLABLE, Check, Option, check_options, instance_of, integer, number, text
from .guard import Authorize

_ORIGIN: Final = re.compile("https?://[^/?#@\\s]+")
_ORIGINS: Final = Check(
    'a list of origins, each as browsers send it, such as ["https://console.example"]',
    lambda value: isinstance(value, (list, tuple)) and all(isinstance(each, str) and _ORIGIN.fullmatch(each) for each in value),
)
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
    authorize: Authorize | None
    trusted_origins: Sequence[str]
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
        Option("Whether clients see what a model raised. Not for production: the texts of exceptions may hold secrets.", BOOLEAN),
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

    authorize: Annotated[
        Authorize | None,
        Option(
            "Asked once for each action of a client on a model, over every transport and before the model is looked up: it gets an "
            "`Access`, and returns True, or False for 403. An `InferenceError`, or the HTTPException of the host's framework, keeps its "
            "status and text. A `def` runs where the request is handled, under ASGI on the event loop, so it must be quick; an "
            "`async def` is awaited. Models whose metadata it refuses are left out of lists, of OpenAPI and of the page. Calls from "
            "Python are not asked about.",
            CALLABLE,
        ),
    ] = None
    trusted_origins: Annotated[
        Sequence[str],
        Option(
            "Origins of pages that may do in a browser what only the server's own pages may do otherwise: load and unload models, and "
            "change shared memory.",
            _ORIGINS,
        ),
    ] = ()
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
