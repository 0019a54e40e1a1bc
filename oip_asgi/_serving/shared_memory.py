"""Regions of shared memory that clients have registered, and the tensors whose data are in them. Knows no files and no transport.

A region is read by copying, before anything looks at the bytes: the client may change or shorten the segment at any moment. Nothing is read
or written outside a region, and only segments that the server's own code allows become regions.

Specification: Triton's System Shared Memory Extension.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

import msgspec

from .._protocol.datatypes import Buffer
from .._protocol.errors import Forbidden, InferenceError, InvalidRequest, NotFound, shown
from .._protocol.log import log_raised
from .._protocol.tensors import SHARED_MEMORY
from .._rest.extension_schemas import Region as Described

MOST_REGIONS: Final = 256
"""How many regions may be registered at once. Each keeps a file open."""

_MAX_NAME: Final = 255
"""Bytes of a region's name, and of a key: so many a file's name may have."""

_REGION, _SIZE, _OFFSET = SHARED_MEMORY

_logger: Final = logging.getLogger("oip_asgi")


class Segment(Protocol):
    """A segment of shared memory that is open."""

    def size(self) -> int:
        """How many bytes it has now."""

    def read(self, offset: int, size: int, /) -> Buffer:
        """A copy of so many bytes; fewer where the segment ends before."""

    def write(self, offset: int, data: Buffer, /) -> None:
        """Write bytes into it."""


class Segments(Protocol):
    """What opens segments: `oip_asgi.SharedMemory`."""

    def allows(self, key: str, /) -> bool:
        """Whether clients may use the segment with this key, which has no slash."""

    def open(self, key: str, /) -> Segment:
        """Open a segment."""


class Place(NamedTuple):
    """Where the data of a tensor are, as its parameters say.

    Args:
        region: The region's name.
        offset: Where they begin in the region, in bytes.
        size: How many bytes there are, or may be.
    """

    region: str
    offset: int
    size: int


def place_of(parameters: Mapping[str, object], where: str) -> Place | None:
    """The place that a tensor's parameters name; None where they name none."""
    if _REGION not in parameters:
        for name in (_SIZE, _OFFSET):
            if name in parameters:
                raise InvalidRequest(f"{where} has the parameter {name}, but no {_REGION}")
        return None
    region = parameters[_REGION]
    if not isinstance(region, str) or not region:
        raise InvalidRequest(f"{where} has the parameter {_REGION} = {shown(region)}: expected the name of a region")
    if _SIZE not in parameters:
        raise InvalidRequest(f"{where} has the parameter {_REGION}, but no {_SIZE}")
    return Place(region, _count(parameters.get(_OFFSET, 0), _OFFSET, where), _count(parameters[_SIZE], _SIZE, where))


def _count(value: object, name: str, where: str) -> int:
    if type(value) is not int or value < 0:
        raise InvalidRequest(f"{where} has the parameter {name} = {shown(value)}: expected an integer, 0 or more")
    return value


class _Region(msgspec.Struct, frozen=True, eq=False):
    """A registered region.

    Args:
        described: As clients see it.
        segment: Where it is. It is closed when nobody refers to it any more, so after the last request that uses it.
    """

    described: Described
    segment: Segment


class Regions:
    """The regions of one server, by name. May be called from any thread."""

    def __init__(self, segments: Segments | None) -> None:
        self._segments = segments
        self._lock = threading.Lock()
        self._regions: dict[str, _Region] = {}

    @property
    def are_allowed(self) -> bool:
        """Whether clients may register regions at all."""
        return self._segments is not None

    def check_may_register(self) -> Segments:
        """What opens segments."""
        if self._segments is None:
            raise Forbidden("this server does not use shared memory: InferenceServer(shared_memory=SharedMemory(allow=...)) does")
        return self._segments

    def register(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Register a region. It opens a file, so it may block."""
        segments = self.check_may_register()
        if not 0 < len(name.encode(errors="replace")) <= _MAX_NAME:
            raise InvalidRequest(f"the region's name is {shown(name)}: expected 1 to {_MAX_NAME} bytes")
        plain = _plain_key(key)
        self._check_room(name)
        if byte_size < 1:
            raise InvalidRequest(f"byte_size is {byte_size}: expected 1 or more")
        if not _allows(segments, plain):
            raise Forbidden(f"this server does not let clients use the shared memory {shown(key)}: the allow= of its SharedMemory decides")
        segment = segments.open(plain)
        size = segment.size()
        if offset + byte_size > size:
            raise InvalidRequest(f"offset {offset} and byte_size {byte_size} are beyond the {size} bytes of the shared memory {shown(key)}")
        with self._lock:
            self._check_room(name)
            self._regions[name] = _Region(Described(name, key, offset, byte_size), segment)

    def _check_room(self, name: str) -> None:
        if name in self._regions:
            raise InvalidRequest(f"region {shown(name)} is registered already: unregister it first")
        if len(self._regions) >= MOST_REGIONS:
            raise InferenceError(f"{MOST_REGIONS} regions are registered, and no more are allowed: unregister one first", status=429)

    def unregister(self, name: str | None) -> None:
        """Forget a region, or all of them. Requests that use one come to their end. One that is unknown is no error."""
        with self._lock:
            if name is None:
                self._regions = {}
            else:
                self._regions.pop(name, None)

    def status(self, name: str | None) -> list[Described]:
        """What is registered: all regions, or one of them."""
        with self._lock:
            regions = list(self._regions.values()) if name is None else [self._find(name)]
        return [region.described for region in regions]

    def _find(self, name: str) -> _Region:
        region = self._regions.get(name)
        if region is None:
            raise NotFound(f"unknown region {shown(name)}: register it first")
        return region

    def find(self, place: Place, where: str) -> Extent:
        """The memory at a place. It stays as it is where the region is unregistered meanwhile."""
        region = self._regions.get(place.region)
        if region is None:
            raise InvalidRequest(f"{where} is in the region {shown(place.region)}, which is not registered")
        if place.offset + place.size > region.described.byte_size:
            raise InvalidRequest(
                f"{where} has {_OFFSET} {place.offset} and {_SIZE} {place.size}, which is beyond the {region.described.byte_size} bytes of "
                f"the region {shown(place.region)}"
            )
        return Extent(region.segment, region.described.offset + place.offset, place.size, f"{where} is in the region {shown(place.region)}")


class Extent(msgspec.Struct, frozen=True, eq=False):
    """Memory that a request may read or write.

    Args:
        segment: Where it is.
        offset: Where it begins there, in bytes.
        size: How many bytes it has.
        told: Whose it is, for errors.
    """

    segment: Segment
    offset: int
    size: int
    told: str

    def read(self) -> Buffer:
        """A copy of it."""
        data = self.segment.read(self.offset, self.size)
        if len(data) != self.size:
            raise self._shorter()
        return data

    def write(self, data: Buffer) -> None:
        """Write to its beginning."""
        if len(data) > self.size:
            raise InvalidRequest(f"{self.told}: {len(data)} bytes do not fit into its {_SIZE} of {self.size}")
        if self.offset + len(data) > self.segment.size():  # writing would make it longer again
            raise self._shorter()
        self.segment.write(self.offset, data)

    def _shorter(self) -> InvalidRequest:
        return InvalidRequest(f"{self.told}, whose shared memory has become shorter since it was registered")


def _plain_key(key: str) -> str:
    """A key without its slash: the name of a file in one folder, and nothing else."""
    plain = key.removeprefix("/")
    try:
        size = len(plain.encode())
    except UnicodeEncodeError:
        size = 0
    if not 0 < size <= _MAX_NAME or "/" in plain or "\0" in plain or plain in (".", ".."):
        raise InvalidRequest(f"the key is {shown(key)}: expected the name of a shared memory, such as '/input', with no other slash")
    return plain


def _allows(segments: Segments, key: str) -> bool:
    try:
        return segments.allows(key)
    except Exception as error:
        log_raised(logging.ERROR, error, "allow= of SharedMemory raised, so the shared memory %s is refused", shown(key))
        return False


def check_no_place(parameters: Mapping[str, object], where: str) -> None:
    """Look whether a tensor that has its data says that they are in shared memory."""
    if place_of(parameters, where) is not None:
        raise InvalidRequest(f"{where} has data of its own and the parameter {_REGION}: expected one of them")
