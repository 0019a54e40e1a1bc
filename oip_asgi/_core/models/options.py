"""What a user says of a model when registering it, as one frozen struct that checks itself. Knows no signature and no requests."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Literal, TypedDict

import msgspec

from ..errors import shown
from ..tensors import plain_name
from .cache import ResponseCache
from .callables import STREAMS, Kind, kind_of
from .specs import TensorSpec

NO_TIMEOUT: Final = 10**6
"""Seconds from which a timeout counts as none: the clocks of operating systems do not take every number."""


class ModelKeywords(TypedDict, total=False):
    """The keywords of `InferenceServer.register` and `InferenceServer.model`, which describes each."""

    version: str | None
    platform: str
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    content_type: str | None
    run: Literal["thread", "inline"]
    writable: bool
    load: Callable[..., Any] | None
    unload: Callable[..., Any] | None
    ready: Callable[[], Any] | None
    max_concurrency: int | None
    max_queue: int
    timeout: float | None
    stream_timeout: float | None
    priority_levels: int | None
    cache: ResponseCache | None
    max_batch_size: int | None
    max_batch_delay: float
    preferred_batch_sizes: Sequence[int]
    retry_alone: bool


class Batching(msgspec.Struct, frozen=True):
    """How requests share calls.

    Args:
        most: The rows of the largest batch.
        delay: How many seconds a request may be held back for others.
        preferred: Numbers of rows at which a batch is not held back any longer.
        retry_alone: Whether each request of a batch that failed is tried alone.
    """

    most: int
    delay: float
    preferred: tuple[int, ...]
    retry_alone: bool


class ModelOptions(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A model's function and options. `InferenceServer.register` describes each.

    Raises:
        TypeError: One has the wrong type; the text says what to write.
        ValueError: One has a value that it cannot have.
    """

    name: str
    function: Callable[..., Any] | None
    version: str | None = None
    platform: str = "python"
    inputs: Sequence[TensorSpec] = ()
    outputs: Sequence[TensorSpec] = ()
    content_type: str | None = None
    run: Literal["thread", "inline"] = "thread"
    writable: bool = False
    load: Callable[..., Any] | None = None
    unload: Callable[..., Any] | None = None
    ready: Callable[[], Any] | None = None
    max_concurrency: int | None = None
    max_queue: int = 100
    timeout: float | None = None
    stream_timeout: float | None = None
    priority_levels: int | None = None
    cache: ResponseCache | None = None
    max_batch_size: int | None = None
    max_batch_delay: float = 0.0
    preferred_batch_sizes: Sequence[int] = ()
    retry_alone: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise TypeError(f'the model\'s name is {self.name!r}: give it a name first, as in @server.model("iris")')
        msgspec.structs.force_setattr(self, "name", plain_name(self.name, self))
        if self.version is not None and (not isinstance(self.version, str) or not self.version):
            raise TypeError(f'{self}: version={self.version!r} must be a non-empty string, such as version="1"')
        self._check_hooks()
        if self.function is not None:
            self.check_function(self.function)
        for name, specs in (("inputs", self.inputs), ("outputs", self.outputs)):
            if not isinstance(specs, Collection) or not all(isinstance(spec, TensorSpec) for spec in specs):
                raise TypeError(f'{self}: {name}= must be a list of TensorSpec, such as [TensorSpec("x", "FP32", [-1, 4])]')
        if self.run not in ("thread", "inline"):
            raise ValueError(f'{self}: run={self.run!r} must be "thread" or "inline"')
        self._check_limits()
        if self.cache is not None and not isinstance(self.cache, ResponseCache):
            raise TypeError(f"{self}: cache={self.cache!r} must be a ResponseCache, such as cache=ResponseCache(max_bytes=64 << 20)")
        for name, seconds in (("timeout", self.timeout), ("stream_timeout", self.stream_timeout)):
            if seconds is not None:
                self._check_seconds(name, seconds)
        self._check_batching()

    def check_function(self, function: object) -> None:
        """Look at what is to be the model's function, whether it was registered or `load=` returned it.

        Raises:
            TypeError: It cannot be called; the text says what to write.
            ValueError: It cannot run as the options say.
        """
        if not callable(function):
            raise TypeError(f"{self}: {shown(function)} cannot be called: register a function, or a method such as model.predict")
        if inspect.isclass(function):
            raise TypeError(f"{self}: {function.__qualname__} is a class: register an instance, or one of its methods")
        kind = kind_of(function, self.run)
        if self.run == "inline":
            self._check_inline(kind)
        if self.stream_timeout is not None and kind not in STREAMS:
            raise ValueError(f"{self}: stream_timeout= is for generators, which answer more than once: use timeout=")
        if self.cache is not None and kind in STREAMS:
            raise ValueError(f"{self}: the answers of a generator are not cached: leave cache= out")

    def _check_hooks(self) -> None:
        for name, hook in (("load", self.load), ("unload", self.unload), ("ready", self.ready)):
            if hook is not None and not callable(hook):
                raise TypeError(f"{self}: {name}={hook!r} must be a callable")
        if self.function is None and self.load is None:
            raise TypeError(f"{self}: nothing to call: register a function, or load=, a function that returns one")

    def _check_inline(self, kind: Kind) -> None:
        if kind in ("async", "async stream"):
            raise ValueError(f'{self}: an async def always runs on the event loop: leave run="inline" out')
        if kind == "stream":
            raise ValueError(
                f'{self}: a generator runs in a worker thread, one item at a time: leave run="inline" out, or make it an async generator'
            )
        if self.timeout is not None:
            raise ValueError(
                f'{self}: run="inline" runs on the event loop, where nothing can interrupt it: leave out either this or timeout='
            )

    def _check_limits(self) -> None:
        limits = [("max_queue", self.max_queue, 0)]
        if self.max_concurrency is not None:
            limits.insert(0, ("max_concurrency", self.max_concurrency, 1))
        if self.priority_levels is not None:
            limits.append(("priority_levels", self.priority_levels, 2))
        for name, given, least in limits:
            if type(given) is not int or given < least:
                raise ValueError(f"{self}: {name}={given!r} must be an integer, {least} or more")

    def _check_batching(self) -> None:
        most, delay, preferred = self.max_batch_size, self.max_batch_delay, self.preferred_batch_sizes
        if isinstance(delay, bool) or not isinstance(delay, (int, float)) or not 0 <= delay <= NO_TIMEOUT:
            raise ValueError(f"{self}: max_batch_delay={delay!r} must be a number of seconds, 0 or more, such as 0.002")
        if not isinstance(preferred, (list, tuple)) or not all(type(size) is int for size in preferred):
            raise TypeError(f"{self}: preferred_batch_sizes={preferred!r} must be a list of integers, such as [8, 16]")
        if type(self.retry_alone) is not bool:
            raise TypeError(f"{self}: retry_alone={self.retry_alone!r} must be True or False")
        if most is None:
            if delay or preferred or self.retry_alone:
                raise ValueError(
                    f"{self}: max_batch_delay=, preferred_batch_sizes= and retry_alone= are for batches: say max_batch_size= too"
                )
            return
        if type(most) is not int or not 1 <= most < 2**31:
            raise ValueError(f"{self}: max_batch_size={most!r} must be a number of rows, 1 or more, such as 32")
        if self.priority_levels is not None:
            raise ValueError(f"{self}: requests that share calls have no priorities: leave one of max_batch_size= and priority_levels= out")
        if not all(1 <= size <= most for size in preferred):
            raise ValueError(f"{self}: preferred_batch_sizes={list(preferred)} must be from 1 to max_batch_size={most}")

    def batching(self) -> Batching | None:
        """How requests share calls; None where none does."""
        if self.max_batch_size is None:
            return None
        return Batching(self.max_batch_size, float(self.max_batch_delay), tuple(self.preferred_batch_sizes), self.retry_alone)

    def _check_seconds(self, name: str, seconds: float) -> None:
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < math.inf:
            raise ValueError(f"{self}: {name}={seconds!r} must be a positive number of seconds, or None for no limit")

    def __str__(self) -> str:
        version = "" if self.version is None else f" version {self.version!r}"
        return f"model {self.name!r}{version}"
