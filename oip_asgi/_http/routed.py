"""A request whose route has been found, as the handler of the route gets it. Knows the server, and none of its routes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec

from .._io import IO
from .._models.model import Model
from .._protocol.access import Action
from .._protocol.datatypes import Buffer
from .._protocol.limits import LOOP_BYTES
from .._serving.engine import Engine
from .request import RestFormat

T = TypeVar("T")


class Exchange(msgspec.Struct, eq=False):
    """One request, as handlers get it: a `Question` that the routes of extensions may ask too, and the server and the request itself."""

    engine: Engine
    wire: RestFormat
    io: IO
    version: str | None = None
    region: str | None = None

    async def find_visible(self, action: Action | None = None) -> list[Model]:
        return await self.engine.find_visible(self.io, self.wire.make_access, action)

    async def read(self, decode: Callable[[Buffer], T]) -> T:
        self.wire.json_limit = None  # the files of a load are base64 in its JSON
        body = await self.wire.read(self.io)
        return decode(body) if len(body) <= LOOP_BYTES else await self.io.run(partial(decode, body), "conversion")
