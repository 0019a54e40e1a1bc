"""The response cache: the responses of one model, by request. Knows no models and no transport.

An equal request that comes while the first one runs waits for the response of that: a `Flight` wakes it.

Which models may have a cache: `check_function` of `_models/model_options.py` refuses generators, and
`_check_declared` of `_models/handler.py` functions that are told of the request.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Hashable
from hashlib import sha256
from sys import getsizeof
from typing import Annotated, Final, TypeAlias

import msgspec

from .._io import IO, Signal
from .._protocol.errors import TimedOut
from .._protocol.options import SECONDS, check_options, integer
from .._protocol.tensor_bytes import copy_array, view_bytes
from .._protocol.tensors import InferenceRequest, InferenceResponse, are_short, make_tensor
from .common import OF_TREATMENT

Key: TypeAlias = tuple[Hashable, bytes]
"""What one load of the model made, so that the next load has other keys; and a digest of the request."""

_SHARE: Final = 8
"""A response that takes more than this part of the cache is not kept: it would push out all others."""

_OVERHEAD: Final = 500
"""Bytes that a response with its key, a tensor and a parameter take in addition to their contents, at
most."""


class ResponseCache(msgspec.Struct, frozen=True):
    """Answers a request from memory if an equal one was answered before: `server.model(...,
    cache=ResponseCache())`.

    Requests are equal if their inputs have the same names, datatypes, shapes and bytes, they ask for the same
    outputs, and have the same parameters, but for those such as `timeout`. Equal ones that come at the same
    time call the function once. It is for functions whose result depends only on their inputs. Each model has
    its own cache, in each process; it is emptied when the model is loaded again or unloaded.

    Args:
        max_bytes: How much memory the responses may take. The least recently used one is removed first. A
            response that would take more than an eighth is not kept.
        ttl: How many seconds a response is kept; None for as long as there is room.

    Raises:
        ValueError: An argument is no number of what it counts.

    Example:
        >>> server = InferenceServer()
        >>> cache = ResponseCache(max_bytes=1 << 20, ttl=60)
        >>> server.register("upper", lambda texts: np.char.upper(texts), cache=cache)
    """

    max_bytes: Annotated[int, integer(1, "a number of bytes, 1 or more")] = 64 << 20
    ttl: Annotated[float | None, SECONDS] = None

    def __post_init__(self) -> None:
        check_options(self, "")


class Flight:
    """A call whose response equal requests wait for, as in a "single flight", and later that response. May be
    called from any thread."""

    def __init__(self, cache: Cache, key: Key) -> None:
        self.key = key
        self.ended = Signal()
        """Set when the response is there, or will never come."""
        self.response: InferenceResponse | None = None
        self.has_failed = False
        """True if the call ended with an error that others may have too. Cancellation, and its own timeout,
        are not such errors."""
        self.size = 0
        """How many bytes the response takes in the cache; 0 if it is not kept, or not yet."""
        self.until = 0.0
        self._cache = cache

    def keep(self, response: InferenceResponse, now: float) -> None:
        """End with a copy of a response, as the caller may change it."""
        self.response = _renew_response(response, None, is_copied=True)
        size = _measure_response(response)
        if size <= self._cache.most // _SHARE:
            self._cache.store(self, size, now)
        self.end(None)

    def end(self, error: BaseException | None) -> None:
        """Record the end of the call, and its error if it has one."""
        self.has_failed = isinstance(error, Exception) and not isinstance(error, TimedOut)
        if not self.size:
            self._cache.forget(self)
        self.ended.set()


class Cache:
    """The responses of one model, and the calls that are making some. May be called from any thread."""

    def __init__(self, options: ResponseCache) -> None:
        self.most = options.max_bytes
        self.size = 0
        """How many bytes the responses take."""
        self._seconds = math.inf if options.ttl is None else options.ttl
        self._lock = threading.Lock()
        self._flights: dict[Key, Flight] = {}  # the least recently used first
        self._lookups = 0

    def enter(self, most: int) -> bool:
        """Count a request during its lookup, which must `leave` in the end. False if `most` of them are
        counted already."""
        with self._lock:
            if self._lookups >= most:
                return False
            self._lookups += 1
            return True

    def leave(self) -> None:
        with self._lock:
            self._lookups -= 1

    def find_flight(self, key: Key, now: float) -> tuple[Flight, bool]:
        """Find the flight of a request; True if it is a new one, which the request must `end`."""
        with self._lock:
            flight = self._flights.pop(key, None)
            is_new = flight is None or (flight.size > 0 and now >= flight.until)
            if flight is None or is_new:
                self.size -= 0 if flight is None else flight.size
                flight = Flight(self, key)
            self._flights[key] = flight
            return flight, is_new

    def store(self, flight: Flight, size: int, now: float) -> None:
        """Keep the response of a flight, and remove others to make room."""
        with self._lock:
            before = self._flights.pop(flight.key, None)  # another one, if this one is late
            self._flights[flight.key] = flight
            self.size += size - (0 if before is None else before.size)
            flight.size, flight.until = size, now + self._seconds
            while self.size > self.most:
                oldest = next(other for other in self._flights.values() if other.size)
                del self._flights[oldest.key]
                self.size -= oldest.size

    def forget(self, flight: Flight) -> None:
        """Let no more requests join this flight."""
        with self._lock:
            if self._flights.get(flight.key) is flight:
                del self._flights[flight.key]

    def clear(self) -> None:
        with self._lock:
            self._flights.clear()
            self.size = 0

    async def look_up(
        self,
        io: IO,
        request: InferenceRequest,
        loaded: Hashable,
        clock: Callable[[], float],
        deadline: float,
        *,
        may_wait: bool,
    ) -> tuple[InferenceResponse | None, Flight | None]:
        """Find the response of a request; or make its flight, if it is the first; or return neither, if it
        runs beside an equal one.

        `loaded` is what one load of the model made. A request from within another call may not wait: the
        equal one may wait for that call.
        """
        if are_short(request.inputs):
            digest = _digest_request(request)
        else:
            digest = await io.run(lambda: _digest_request(request), "conversion", deadline=deadline)
        while True:
            flight, is_first = self.find_flight((loaded, digest), clock())
            if is_first:
                return None, flight
            if flight.response is None and may_wait:
                await io.wait(flight.ended, deadline)
            if flight.response is not None:
                return _renew_response(flight.response, request.id, is_copied=False), None
            if flight.has_failed or not may_wait:  # after a failure all run at once, not one after the other
                return None, None


def _renew_response(
    response: InferenceResponse, request_id: str | None, *, is_copied: bool
) -> InferenceResponse:
    """Make a response for another request. If it `is_copied`, its arrays are read-only copies, which all
    requests that get it share."""
    tensors = [
        make_tensor(
            tensor.name, copy_array(tensor.array) if is_copied else tensor.array, dict(tensor.parameters)
        )
        for tensor in response.outputs
    ]
    return InferenceResponse(
        tensors, dict(response.parameters), request_id, response.model_name, response.model_version
    )


def _digest_request(request: InferenceRequest) -> bytes:
    """Make a digest of all parts of a request that could change the response."""
    inputs = [
        (tensor.name, tensor.datatype, tensor.shape, sorted(tensor.parameters.items()))
        for tensor in request.inputs
    ]
    parameters = sorted(
        (name, value) for name, value in request.parameters.items() if name not in OF_TREATMENT
    )
    outputs = [(output.name, (output.parameters or {}).get("content_type")) for output in request.outputs]
    # the shapes in the text say where each tensor ends, so different requests have different bytes
    digest = sha256(repr((inputs, parameters, outputs)).encode())
    for tensor in request.inputs:
        digest.update(view_bytes(tensor.array))
    return digest.digest()


def _measure_response(response: InferenceResponse) -> int:
    """Estimate how many bytes a response takes in the cache."""
    size = _OVERHEAD
    for parameters in (response.parameters, *(tensor.parameters for tensor in response.outputs)):
        size += sum(_OVERHEAD + len(name) + getsizeof(value) for name, value in parameters.items())
    for tensor in response.outputs:
        size += _OVERHEAD + tensor.array.nbytes
        if tensor.array.dtype.hasobject:
            size += sum(map(getsizeof, tensor.array.ravel().tolist()))
    return size
