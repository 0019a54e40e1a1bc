"""What a user says of a model when registering it, as one frozen struct that checks itself. Knows no signature and no requests."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, TypedDict

import msgspec

from .._extensions.cache import ResponseCache
from .._protocol.errors import show
from .._protocol.options import BOOLEAN, CALLABLE, SECONDS, Check, Option, check_options, instance_of, integer, number, one_of, text
from .._protocol.tensors import to_plain, to_plain_name
from .callables import STREAMS, Kind, kind_of
from .specs import TensorSpec

CONCURRENCY: Final[Mapping[Kind, int]] = MappingProxyType({"thread": 40, "inline": 40, "stream": 40, "async": 256, "async stream": 256})
"""`max_concurrency` if it is left out. Starlette runs as many in threads; coroutines mostly wait for others, and cost memory alone."""

NO_TIMEOUT: Final = 10**6
"""Seconds from which a timeout counts as none: the clocks of operating systems do not take every number."""


class ModelKeywords(TypedDict, total=False):
    """The keywords of `InferenceServer.register` and `InferenceServer.model` for type checkers, as `ModelOptions` has them."""

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
    cache: ResponseCache | None
    max_batch_size: int | None
    max_batch_delay: float
    preferred_batch_sizes: Sequence[int]
    retry_alone: bool
    replace: bool


def _are_specs(value: Any) -> bool:
    return isinstance(value, Collection) and all(isinstance(spec, TensorSpec) for spec in value)


def _are_sizes(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(type(size) is int for size in value)


_SPECS: Final = Check(
    'a list of TensorSpec, such as [TensorSpec("x", "FP32", [-1, 4])], or as in inputs, outputs = specs_of(session)', _are_specs, TypeError
)
_DELAY: Final = number("a number of seconds, 0 or more, such as 0.002", lambda value: 0 <= value <= NO_TIMEOUT)
_SIZES: Final = Check("a list of integers, such as [8, 16]", _are_sizes, TypeError)


class Batching(msgspec.Struct, frozen=True):
    """How requests share calls.

    Args:
        most: The rows of the largest batch.
        delay: How many seconds a request may be held back for others.
        preferred: Numbers of rows with which a batch starts at once.
        retry_alone: Whether each request of a batch that failed is tried alone.
    """

    most: int
    delay: float
    preferred: tuple[int, ...]
    retry_alone: bool


class ModelOptions(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A model's name and function, and the options of `InferenceServer.register`.

    Raises:
        TypeError: One has the wrong type; the text says what to write.
        ValueError: One has a value that it cannot have.
    """

    name: str
    function: Callable[..., Any] | None
    version: Annotated[str | None, Option("The version, for models that have several.", text('version="1"'))] = None
    platform: Annotated[str, Option("The framework that the model is made with, for the metadata.", text('platform="sklearn"'))] = "python"
    inputs: Annotated[
        Sequence[TensorSpec],
        Option("The inputs that the model takes. Every request is checked against them, and the metadata shows them.", _SPECS),
    ] = ()
    outputs: Annotated[
        Sequence[TensorSpec],
        Option("The outputs that it returns. A result is cast to them by numpy's `same_kind` rule, if the values fit.", _SPECS),
    ] = ()
    content_type: Annotated[
        str | None,
        Option(
            'The content type of requests that name none. "pd" makes one data frame of all inputs; any other is that of each tensor '
            "whose spec in `inputs` has none."
        ),
    ] = None
    run: Annotated[
        Literal["thread", "inline"],
        Option(
            "Where a `def` runs under ASGI and grpc.aio: in a worker thread, or on the event loop, which suits functions that take "
            "microseconds.",
            one_of("thread", "inline"),
        ),
    ] = "thread"
    writable: Annotated[bool, Option("Whether inputs arrive as copies that the function may change. If not, they are read-only.")] = False
    load: Annotated[
        Callable[..., Any] | None,
        Option(
            "A `def` or `async def` that is called before the model is used, and each time it is loaded again. With a parameter it gets "
            "the `LoadParameters` of the client that asks. If no function is registered, it returns the function, or a `Loaded` with its "
            "inputs and outputs beside it.",
            CALLABLE,
        ),
    ] = None
    unload: Annotated[
        Callable[..., Any] | None,
        Option(
            "A `def` or `async def` that is called after the last call, when the model is unloaded or unregistered, or the server stops. "
            "With a parameter it gets what `load` returned, also for a function that a new one has replaced.",
            CALLABLE,
        ),
    ] = None
    ready: Annotated[
        Callable[[], Any] | None,
        Option("A `def` or `async def` that each readiness check calls; a false result means that the model is not ready.", CALLABLE),
    ] = None
    max_concurrency: Annotated[
        int | None,
        Option(
            "How many calls may run at once. None means 256 for an `async def`, 40 for a `def`, as many as Starlette runs in threads, and "
            "1 with `max_batch_size`. For a model that computes, write about the number of CPUs.",
            integer(1),
        ),
    ] = None
    max_queue: Annotated[
        int,
        Option(
            "How many requests may wait for a call. More are answered 503 with `Retry-After`. Each that waits holds its decoded body, so "
            "this bounds memory.",
            integer(0),
        ),
    ] = 100
    timeout: Annotated[
        float | None,
        Option(
            "How many seconds a request may take, from the end of its body to its answer; after that it is answered 504. An `async "
            "def` is cancelled; a `def` goes on in its thread, and keeps its slot until it ends. For a generator: the time to its first "
            "response.",
            SECONDS,
        ),
    ] = None
    stream_timeout: Annotated[
        float | None,
        Option(
            "How many seconds all responses of a generator may take together. Time in which the client does not read counts too. After "
            "that the generator is closed, and the client gets an error.",
            SECONDS,
        ),
    ] = None
    cache: Annotated[
        ResponseCache | None,
        Option(
            "Answers equal requests from memory. For functions whose result depends on their inputs alone; not for generators, and not "
            "for functions that take an `InferenceRequest` or `InferenceContext`.",
            instance_of(ResponseCache, "ResponseCache(max_bytes=64 << 20)"),
        ),
    ] = None
    max_batch_size: Annotated[
        int | None,
        Option(
            "How many rows one call may have. Waiting requests that differ in nothing but their rows then share a call: the function "
            "gets the rows of all of them, and returns a row for each. A request with more rows runs alone. None: no request shares a "
            "call.",
            integer(1, "a number of rows, 1 or more, such as 32", most=2**31 - 1),
        ),
    ] = None
    max_batch_delay: Annotated[
        float,
        Option(
            "How many seconds a request may be held back so that others share its call. With 0, requests share a call only if they came "
            "while all calls that may run at once were busy.",
            _DELAY,
        ),
    ] = 0.0
    preferred_batch_sizes: Annotated[
        Sequence[int],
        Option("Numbers of rows with which a batch starts at once. One with more rows than the largest of them does too.", _SIZES),
    ] = ()
    retry_alone: Annotated[
        bool,
        Option(
            "Whether each request of a batch is tried alone after the function raised, so that one bad input costs no other request its "
            "answer. The function then sees the same rows twice.",
            BOOLEAN,
        ),
    ] = False
    replace: Annotated[
        bool,
        Option(
            "Whether it takes the place of a model with its name and version, if there is one: for notebooks, and code that is reloaded. "
            "Calls that wait or run end with the old model, then its `unload=` is called.",
            BOOLEAN,
        ),
    ] = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise TypeError(f'the model\'s name is {self.name!r}: give it a name first, as in @server.model("iris")')
        msgspec.structs.force_setattr(self, "name", to_plain_name(self.name, self))
        check_options(self, f"{self}: ")
        for field in ("version", "platform"):
            if getattr(self, field) is not None:
                msgspec.structs.force_setattr(self, field, to_plain(getattr(self, field)))
        if self.function is None and self.load is None:
            raise TypeError(f"{self}: nothing to call: register a function, or load=, a function that returns one")
        if self.function is not None:
            self.check_function(self.function)
        self._check_batching()

    def check_function(self, function: object) -> None:
        """Check a function that was registered, or that `load=` returned."""
        if not callable(function):
            raise TypeError(f"{self}: {show(function)} cannot be called: register a function, or a method such as model.predict")
        if inspect.isclass(function):
            raise TypeError(f"{self}: {function.__qualname__} is a class: register an instance, or one of its methods")
        kind = kind_of(function, self.run)
        if self.run == "inline":
            self._check_inline(kind)
        if self.stream_timeout is not None and kind not in STREAMS:
            raise ValueError(f"{self}: stream_timeout= is for generators, which answer more than once: use timeout=")
        if self.cache is not None and kind in STREAMS:
            raise ValueError(f"{self}: the answers of a generator are not cached: leave cache= out")

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

    def _check_batching(self) -> None:
        most, delay, preferred = self.max_batch_size, self.max_batch_delay, self.preferred_batch_sizes
        if most is None:
            if delay or preferred or self.retry_alone:
                raise ValueError(
                    f"{self}: max_batch_delay=, preferred_batch_sizes= and retry_alone= are for batches: say max_batch_size= too"
                )
            return
        if not all(1 <= size <= most for size in preferred):
            raise ValueError(f"{self}: preferred_batch_sizes={list(preferred)} must be from 1 to max_batch_size={most}")

    def batching(self) -> Batching | None:
        """How requests share calls; None if none does."""
        if self.max_batch_size is None:
            return None
        return Batching(self.max_batch_size, float(self.max_batch_delay), tuple(self.preferred_batch_sizes), self.retry_alone)

    @property
    def label(self) -> str:
        """Its name and its version, for texts."""
        return repr(self.name) if self.version is None else f"{self.name!r} version {self.version!r}"

    def __str__(self) -> str:
        return f"model {self.label}"
