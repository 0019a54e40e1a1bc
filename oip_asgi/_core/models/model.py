"""A registered model: what it is, how it runs, whether it is ready. Knows no requests and no transport."""

from __future__ import annotations

import contextlib
import inspect
import math
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from ..codecs.registry import Codecs
from ..errors import NotFound, shown
from ..outlines import REMEMBERED, Outline
from ..rest import schemas
from ..serving.limiter import Gate
from ..tensors import plain_name
from .annotations import Outputs
from .binding import Binding
from .signature import bind, is_async
from .specs import TensorSpec

State: TypeAlias = Literal["waiting", "loading", "ready", "failed"]
"""A model with `load` waits for it; one without is ready from the start."""

ENDLESS: Final = 10**6
"""Seconds from which a timeout is none: clocks of systems do not take any number."""

_INTEGER: Final = re.compile("[0-9]+")


class Accepted(msgspec.Struct, frozen=True, eq=False):
    """How a request that a model takes is answered, as far as its numbers do not matter.

    Args:
        binding: How the model is called.
        content_type: The request's content type for each of its tensors.
        seconds: How long it may take.
        asked: The content types that outputs are asked to have, by name.
    """

    binding: Binding
    content_type: str | None
    seconds: float
    asked: dict[str, str]


class Model:
    """One version of a model. Its arguments are those of `InferenceServer.register`."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        version: str | None,
        platform: str,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        run: Literal["thread", "inline"],
        writable: bool,
        load: Callable[[], Any] | None,
        ready: Callable[[], Any] | None,
        content_type: str | None,
        codecs: Codecs,
        max_concurrency: int,
        max_queue: int,
        timeout: float | None,
    ) -> None:
        self.name = name
        self.version = version
        self.platform = platform
        self.function = function
        self.load = load
        self.ready = ready
        self.writable = writable
        self.state: State = "ready" if load is None else "waiting"
        self._check_arguments(inputs, outputs, run)
        self._check_limits(max_concurrency, max_queue, timeout, run)
        self.timeout = math.inf if timeout is None or timeout >= ENDLESS else timeout
        self.gate = Gate(max_concurrency, max_queue)
        self.run: Literal["async", "thread", "inline"] = "async" if is_async(function) else run
        self.content_type = content_type
        self.codecs = codecs
        self._check_content_types((*inputs, *outputs))
        self.binding: Binding = bind(function, tuple(inputs), codecs, content_type)
        if self.binding.returned.is_partial and not outputs:
            raise TypeError(f"{self}: its return annotation declares some outputs only: give each a TensorSpec, or use outputs=")
        self.outputs = tuple(outputs) or self.binding.returned.specs
        self._check_content_types((*self.binding.inputs, *self.outputs))
        self._check_unique("input", self.binding.inputs)
        self._check_unique("output", self.outputs)
        self.answers = Outputs(self.outputs, self.binding.returned, codecs)
        self._bindings = self._other_bindings(tuple(inputs)) if self.binding.is_free else {}
        self.accepted: dict[Outline, Accepted] = {}

    def _check_arguments(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], run: str) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise TypeError(f'the model\'s name is {self.name!r}: give it a name first, as in @server.model("iris")')
        self.name = plain_name(self.name, self)
        if self.version is not None and (not isinstance(self.version, str) or not self.version):
            raise TypeError(f'{self}: version={self.version!r} must be a non-empty string, such as version="1"')
        if not callable(self.function):
            raise TypeError(f"{self}: {shown(self.function)} cannot be called: register a function, or a method such as model.predict")
        if inspect.isclass(self.function):
            raise TypeError(f"{self}: {self.function.__qualname__} is a class: register an instance, or one of its methods")
        if inspect.isgeneratorfunction(self.function) or inspect.isasyncgenfunction(self.function):
            raise TypeError(f"{self}: a generator cannot answer: the protocol has one response for a request, so return it")
        for name, given in (("inputs", inputs), ("outputs", outputs)):
            if not isinstance(given, Collection) or not all(isinstance(spec, TensorSpec) for spec in given):
                raise TypeError(f'{self}: {name}= must be a list of TensorSpec, such as [TensorSpec("x", "FP32", [-1, 4])]')
        if run not in ("thread", "inline"):
            raise ValueError(f'{self}: run={run!r} must be "thread" or "inline"')
        if run == "inline" and is_async(self.function):
            raise ValueError(f'{self}: an async def always runs on the event loop: leave run="inline" out')
        for name, hook in (("load", self.load), ("ready", self.ready)):
            if hook is not None and not callable(hook):
                raise TypeError(f"{self}: {name}={hook!r} must be a callable")

    def _check_limits(self, max_concurrency: int, max_queue: int, timeout: float | None, run: str) -> None:
        for name, given, least in (("max_concurrency", max_concurrency, 1), ("max_queue", max_queue, 0)):
            if type(given) is not int or given < least:
                raise ValueError(f"{self}: {name}={given!r} must be an integer, {least} or more")
        if timeout is None:
            return
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout < math.inf:
            raise ValueError(f"{self}: timeout={timeout!r} must be a positive number of seconds, or None for no limit")
        if run == "inline":
            raise ValueError(
                f'{self}: run="inline" runs on the event loop, where nothing can interrupt it: leave one of it and timeout= out'
            )

    def _check_content_types(self, specs: Sequence[TensorSpec]) -> None:
        if self.content_type is not None:
            self.codecs.check_declared(self.content_type, str(self), whole=True)
        for spec in specs:
            if spec.content_type is None:
                continue
            self.codecs.check_declared(spec.content_type, f"{self}: TensorSpec {spec.name!r}", whole=False)
            datatype = self.codecs.inputs[spec.content_type].datatype
            if datatype not in (None, spec.datatype):
                raise ValueError(
                    f"{self}: TensorSpec {spec.name!r} has content_type={spec.content_type!r}, which needs datatype {datatype}"
                )

    def _other_bindings(self, inputs: tuple[TensorSpec, ...]) -> dict[str, Binding]:
        """How it is called for content types of requests that make of its parameter what is not declared: one value of all tensors,
        or of one where it is declared to have all."""
        only_whole = self.codecs.only_whole()
        bindings = {name: bind(self.function, inputs, self.codecs, name) for name in only_whole if name != self.content_type}
        if self.content_type in only_whole:
            with contextlib.suppress(TypeError):  # more is declared than one tensor could be
                bindings.update(dict.fromkeys(self.codecs.inputs, bind(self.function, inputs, self.codecs, None)))
        return bindings

    def binding_for(self, content_type: object) -> Binding:
        """How the model is called for a request with this content type, or None: what a request says goes before what is declared."""
        return self.binding if content_type is None else self._bindings.get(str(content_type), self.binding)

    def remember(self, outline: Outline, accepted: Accepted) -> None:
        """Have what came of an outline in `accepted`, for the next request that has it."""
        if len(self.accepted) >= REMEMBERED:
            self.accepted.clear()
        self.accepted[outline] = accepted

    def _check_unique(self, what: str, specs: Sequence[TensorSpec]) -> None:
        names = [spec.name for spec in specs]
        if len(set(names)) != len(names):
            raise ValueError(f"{self}: two {what}s have the same name among {names}")

    def __str__(self) -> str:
        version = "" if self.version is None else f" version {self.version!r}"
        return f"model {self.name!r}{version}"


class Models:
    """The registered models, by name and version, in the order of their registration."""

    def __init__(self) -> None:
        self._by_name: dict[str, dict[str | None, Model]] = {}
        self._defaults: dict[str, Model] = {}

    def add(self, model: Model) -> None:
        """Take a model in.

        Raises:
            ValueError: It is registered already, or the name is registered with versions and without.
        """
        versions = self._by_name.get(model.name, {})
        if model.version in versions:
            raise ValueError(f"{model} is registered already: give this one another name or version")
        if versions and (model.version is None or None in versions):
            raise ValueError(f"{model} is registered both with a version and without: give each of them a version")
        self._by_name.setdefault(model.name, versions)[model.version] = model
        self._defaults[model.name] = versions[_default(list(versions))]

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Model]:
        # as they are now: models may be registered while somebody goes through them
        return iter([model for versions in list(self._by_name.values()) for model in list(versions.values())])

    def names(self) -> list[str]:
        """The names of all models."""
        return list(self._by_name)

    def find(self, name: str, version: str | None) -> Model:
        """The model of this name and version.

        Args:
            name: The model's name.
            version: None for the default: the highest where all versions are integers, else the one registered last.

        Raises:
            NotFound: There is none.
        """
        default = self._defaults.get(name)
        if default is None:
            raise NotFound(f"unknown model {shown(name)}: GET the models path lists those that are here")
        if version is None:
            return default
        versions = self._by_name[name]
        model = versions.get(version)
        if model is None:
            known = ", ".join(shown(known) for known in versions if known is not None)
            raise NotFound(f"unknown version {shown(version)} of model {shown(name)}: {f'expected {known}' if known else 'it has none'}")
        return model

    def metadata(self, model: Model) -> schemas.ModelMetadata:
        """A model's metadata, with every version of its name."""
        document = schemas.ModelMetadata(model.name, model.platform, _described(model.binding.inputs), _described(model.outputs))
        if model.content_type is not None:
            document.parameters = {"content_type": model.content_type}
        versions = [version for version in self._by_name[model.name] if version is not None]
        if versions:
            document.versions = versions
        return document


def _default(versions: list[str | None]) -> str | None:
    integers = [version for version in versions if version is not None and _INTEGER.fullmatch(version)]
    if len(integers) == len(versions):
        return max(integers, key=int)
    return versions[-1]


def _described(specs: Sequence[TensorSpec]) -> list[schemas.MetadataTensor]:
    described = [schemas.MetadataTensor(spec.name, spec.datatype, tuple(spec.shape)) for spec in specs]
    for document, spec in zip(described, specs, strict=True):
        if spec.content_type is not None:
            document.parameters = {"content_type": spec.content_type}
    return described
