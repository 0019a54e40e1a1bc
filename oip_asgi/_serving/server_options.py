"""The options of `InferenceServer`, as one frozen struct that checks itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final, TypedDict

import msgspec

from .._codecs.content_types import AnyCodec
from .._extensions.shared_memory import SharedMemory
from .._protocol.options import (
    BOOLEAN,
    BYTES,
    CALLABLE,
    Check,
    check_options,
    instance_of,
    number,
    text,
)
from .guard import Authorize

_ORIGIN: Final = re.compile("https?://[^/?#@\\s]+")
_ORIGINS: Final = Check(
    'a list of origins, each as browsers send it, such as ["https://console.example"]',
    lambda value: (
        isinstance(value, (list, tuple))
        and all(isinstance(each, str) and _ORIGIN.fullmatch(each) for each in value)
    ),
)
_ALIVE: Final = number(
    "a positive number of seconds, or None for never", lambda value: 0 < value < float("inf")
)
_SECONDS: Final = number("a number of seconds, 0 or more", lambda value: value >= 0)


class ServerKeywords(TypedDict, total=False):
    """The keywords of `InferenceServer` for type checkers, as `ServerOptions` has them."""

    max_body_bytes: int | None
    max_json_bytes: int | None
    debug: bool
    codecs: Sequence[AnyCodec]
    model_control: bool
    docs: bool
    authorize: Authorize | None
    trusted_origins: Sequence[str]
    shutdown_timeout: float
    stream_keep_alive: float | None
    server_timing: bool
    shared_memory: SharedMemory | None


class ServerOptions(msgspec.Struct, frozen=True, eq=False):
    """Raises TypeError or ValueError, with what to write, if one cannot be."""

    name: Annotated[str, text('name="models"')] = "oip_asgi"
    version: Annotated[str | None, text('version="1.0.0"')] = None
    max_body_bytes: Annotated[int | None, BYTES] = 134_217_728
    max_json_bytes: Annotated[int | None, BYTES] = 33_554_432
    debug: Annotated[bool, BOOLEAN] = False
    codecs: Sequence[AnyCodec] = ()
    model_control: Annotated[bool, BOOLEAN] = False
    docs: Annotated[bool, BOOLEAN] = True
    authorize: Annotated[Authorize | None, CALLABLE] = None
    trusted_origins: Annotated[Sequence[str], _ORIGINS] = ()
    shutdown_timeout: Annotated[float, _SECONDS] = 10.0
    stream_keep_alive: Annotated[float | None, _ALIVE] = 15.0
    server_timing: Annotated[bool, BOOLEAN] = False
    shared_memory: Annotated[SharedMemory | None, instance_of(SharedMemory, "SharedMemory(allow=[...])")] = (
        None
    )

    def __post_init__(self) -> None:
        check_options(self, "")
