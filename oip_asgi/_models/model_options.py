"""What a user says of a model when registering it, as one frozen struct that checks itself. Knows no
signature and no requests."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypedDict

import msgspec

from .._extensions.cache import ResponseCache
from .._protocol.errors import show
from .._protocol.options import (
    BOOLEAN,
    CALLABLE,
    SECONDS,
    Check,
    check_options,
    instance_of,
    integer,
    number,
    one_of,
    text,
)
from .._protocol.specs import TensorSpec
from .._protocol.tensors import to_plain, to_plain_name
from .callables import STREAMS, Kind, kind_of

CONCURRENCY: Final[Mapping[Kind, int]] = {
    "thread": 40,
    "inline": 40,
    "stream": 40,
    "async": 256,
    "async stream": 256,
}
"""`max_concurrency` if it is left out, but 1 with `max_batch_size`. Starlette has 40 threads; coroutines
mostly wait."""

NO_TIMEOUT: Final = 10**6
"""Seconds from which a timeout counts as none: the clocks of operating systems do not take every number."""


class ModelKeywords(TypedDict, total=False):
    """The keywords of `InferenceServer.register` and `InferenceServer.model` for type checkers, as
    `ModelOptions` has them."""

    version: str | None
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    content_type: str | None
    run: Literal["thread", "inline"]
    out_of_range: Literal["refuse", "flag"]
    load: Callable[..., Any] | None
    unload: Callable[..., Any] | None
    ready: Callable[[], Any] | None
    warm_up: bool | Sequence[Mapping[str, Any]]
    idle_unload: float | None
    max_concurrency: int | None
    max_queue: int
    timeout: float | None
    allow_timeout_override: bool
    stream_timeout: float | None
    cache: ResponseCache | None
    max_batch_size: int | None
    max_batch_delay: float
    replace: bool


_SPECS: Final = Check(
    'a list of TensorSpec, such as [TensorSpec("x", "FP32", [-1, 4])], or as in inputs, outputs = '
    "specs_of(session)",
    lambda value: isinstance(value, Collection) and all(isinstance(spec, TensorSpec) for spec in value),
    TypeError,
)
_CALLS: Final = Check(
    'True, or a list with the inputs of each call, such as [{"x": [1.0, 2.0]}]',
    lambda value: (
        isinstance(value, bool)
        or (isinstance(value, (list, tuple)) and all(isinstance(each, Mapping) for each in value))
    ),
    TypeError,
)
_DELAY: Final = number(
    "a number of seconds, 0 or more, such as 0.002", lambda value: 0 <= value <= NO_TIMEOUT
)


class ModelOptions(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A model's name and function, and the options of `InferenceServer.register`.

    Raises:
        TypeError: One has the wrong type; the text says what to write.
        ValueError: One has a value that it cannot have.
    """

    name: str
    function: Callable[..., Any] | None
    version: Annotated[str | None, text('version="1"')] = None
    inputs: Annotated[Sequence[TensorSpec], _SPECS] = ()
    outputs: Annotated[Sequence[TensorSpec], _SPECS] = ()
    content_type: str | None = None
    run: Annotated[Literal["thread", "inline"], one_of("thread", "inline")] = "thread"
    out_of_range: Annotated[Literal["refuse", "flag"], one_of("refuse", "flag")] = "refuse"
    load: Annotated[Callable[..., Any] | None, CALLABLE] = None
    unload: Annotated[Callable[..., Any] | None, CALLABLE] = None
    ready: Annotated[Callable[[], Any] | None, CALLABLE] = None
    warm_up: Annotated[bool | Sequence[Mapping[str, Any]], _CALLS] = False
    idle_unload: Annotated[float | None, SECONDS] = None
    max_concurrency: Annotated[int | None, integer(1)] = None
    max_queue: Annotated[int, integer(0)] = 100
    timeout: Annotated[float | None, SECONDS] = None
    allow_timeout_override: Annotated[bool, BOOLEAN] = False
    stream_timeout: Annotated[float | None, SECONDS] = None
    cache: Annotated[
        ResponseCache | None, instance_of(ResponseCache, "ResponseCache(max_bytes=64 << 20)")
    ] = None
    max_batch_size: Annotated[
        int | None, integer(1, "a number of rows, 1 or more, such as 32", most=2**31 - 1)
    ] = None
    max_batch_delay: Annotated[float, _DELAY] = 0.0
    replace: Annotated[bool, BOOLEAN] = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise TypeError(
                f'the model\'s name is {self.name!r}: give it a name first, as in @server.model("iris")'
            )
        msgspec.structs.force_setattr(self, "name", to_plain_name(self.name, self))
        check_options(self, f"{self}: ")
        if self.version is not None:
            msgspec.structs.force_setattr(self, "version", to_plain(self.version))
        if self.function is None and self.load is None:
            raise TypeError(
                f"{self}: nothing to call: register a function, or load=, a function that returns one"
            )
        if self.function is not None:
            self.check_function(self.function)
        self._check_idle_unload()
        if self.max_batch_size is None and self.max_batch_delay:
            raise ValueError(f"{self}: max_batch_delay= is for batches: say max_batch_size= too")

    def check_function(self, function: object) -> None:
        """Check a function that was registered, or that `load=` returned."""
        if not callable(function):
            what = "register a function, or a method such as model.predict"
            if isinstance(function, str) or hasattr(function, "__fspath__"):
                what = "read the file, and register a method, such as joblib.load(path).predict"
            raise TypeError(f"{self}: {show(function)} cannot be called: {what}")
        if inspect.isclass(function):
            raise TypeError(
                f"{self}: {function.__qualname__} is a class: register an instance, or one of its methods"
            )
        kind = kind_of(function, self.run)
        if self.run == "inline":
            self._check_inline(kind)
        if self.stream_timeout is not None and kind not in STREAMS:
            raise ValueError(
                f"{self}: stream_timeout= is for generators, which answer more than once: use timeout="
            )
        if self.cache is not None and kind in STREAMS:
            raise ValueError(f"{self}: the answers of a generator are not cached: leave cache= out")

    def _check_inline(self, kind: Kind) -> None:
        if kind in ("async", "async stream"):
            raise ValueError(f'{self}: an async def always runs on the event loop: leave run="inline" out')
        if kind == "stream":
            raise ValueError(
                f'{self}: a generator runs in a worker thread, one item at a time: leave run="inline" out, '
                "or make it an async generator"
            )
        if self.timeout is not None:
            raise ValueError(
                f'{self}: run="inline" runs on the event loop, where nothing can interrupt it: leave out '
                "either this or timeout="
            )

    def _check_idle_unload(self) -> None:
        if self.idle_unload is None:
            return
        if self.load is None:
            raise ValueError(f"{self}: idle_unload= is for models that can be loaded again: say load= too")
        if self.function is not None and self.unload is None:
            raise ValueError(
                f"{self}: idle_unload= would free nothing: leave the function out, and let load= return it, "
                "or say what unload= frees"
            )

    @property
    def label(self) -> str:
        """Its name and its version, for texts."""
        return repr(self.name) if self.version is None else f"{self.name!r} version {self.version!r}"

    def __str__(self) -> str:
        return f"model {self.label}"
