"""A callable's signature -> how it is called with a request, decided once at registration. Knows no wire forms and no models.

Nothing here runs the callable: `Binding.arguments` says what to call it with.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import msgspec
import numpy as np

from .datatypes import Array
from .specs import InputNames, TensorSpec
from .tensors import InferenceContext, InferenceRequest


class Given(NamedTuple):
    """What a call's arguments are taken from."""

    arrays: dict[str, Array]
    request: InferenceRequest
    context: Callable[[], InferenceContext]


Taker: TypeAlias = Callable[[Given], Any]


class Binding(msgspec.Struct, frozen=True, eq=False):
    """How a callable is called.

    Args:
        inputs: What is declared of its input tensors.
        outputs: What its return annotation declares.
        names: Which inputs it takes.
        positional: What is passed by position, in order.
        keywords: What is passed by keyword.
        rest: The tensors that go to `**inputs`: those with other names than these; None where there is no such parameter.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    names: InputNames
    positional: tuple[Taker, ...]
    keywords: dict[str, Taker]
    rest: frozenset[str] | None

    def arguments(self, request: InferenceRequest, context: Callable[[], InferenceContext]) -> tuple[list[Any], dict[str, Any]]:
        """What to call the callable with, for a request that `names` has accepted.

        Args:
            request: The request.
            context: Makes the context, for callables that want it.
        """
        given = Given({tensor.name: tensor.array for tensor in request.inputs}, request, context)
        args = [take(given) for take in self.positional]
        kwargs = {keyword: take(given) for keyword, take in self.keywords.items()}
        if self.rest is not None:
            kwargs.update({name: array for name, array in given.arrays.items() if name not in self.rest})
        return args, kwargs


_UNTYPED: Final = (inspect.Parameter.empty, Any, np.ndarray)
_WHOLE: Final[dict[Any, Taker]] = {
    InferenceRequest: lambda given: given.request,
    InferenceContext: lambda given: given.context(),
}


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling gives something to await: an `async def`, a partial of one, or an object whose `__call__` is one."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def bind(function: Callable[..., Any], declared: Sequence[TensorSpec]) -> Binding:
    """Decide how a callable is called.

    Args:
        function: The callable.
        declared: Its inputs where they are declared, else nothing.

    Raises:
        TypeError: No request could ever be passed to it; the text says what to write.
    """
    called = _called(function)
    if isinstance(function, np.ufunc):
        return _bind_ufunc(function, declared, called)
    try:
        signature = inspect.signature(function, eval_str=True)
    except (ValueError, TypeError):
        if not declared:
            raise TypeError(f"the signature of {called} cannot be read: declare its inputs, such as inputs=[TensorSpec(...)]") from None
        return _by_position([spec.name for spec in declared], declared)
    except Exception as error:
        raise TypeError(f"an annotation of {called} cannot be resolved ({error}): import the name at run time, or drop it") from error
    return _Signature(function, signature, declared, called).bind()


def _called(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or repr(function)


def _bind_ufunc(function: np.ufunc, declared: Sequence[TensorSpec], called: str) -> Binding:
    # Its signature names `out` and `where` too, which are no tensors for a client to send
    names = ["x"] if function.nin == 1 else [f"x{place}" for place in range(1, function.nin + 1)]
    if declared:
        if len(declared) != function.nin:
            raise TypeError(f"{called} takes {function.nin} inputs, but {len(declared)} are declared")
        names = [spec.name for spec in declared]
    return _by_position(names, declared)


def _by_position(names: Sequence[str], declared: Sequence[TensorSpec]) -> Binding:
    return Binding(
        inputs=tuple(declared),
        outputs=(),
        names=InputNames(declared, frozenset(names), frozenset()),
        positional=tuple(_tensor(name) for name in names),
        keywords={},
        rest=None,
    )


def _tensor(name: str) -> Taker:
    return lambda given: given.arrays[name]


def _tensor_or(name: str, default: Any) -> Taker:
    return lambda given: given.arrays.get(name, default)


def _constant(value: Any) -> Taker:
    return lambda _: value


class _Signature:
    """One reading of a signature against what is declared."""

    def __init__(self, function: Callable[..., Any], signature: inspect.Signature, declared: Sequence[TensorSpec], called: str) -> None:
        fixed = function.keywords if isinstance(function, functools.partial) else {}
        parameters = [parameter for name, parameter in signature.parameters.items() if name not in fixed]
        self._named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        self._spread = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        self._rest = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self._takes_all = False
        self._declared = declared
        self._called = f"{called}({', '.join(signature.parameters)})"
        self._outputs = _returned(signature.return_annotation)
        self._specs: list[TensorSpec] = list(declared)
        self._unclaimed = [spec.name for spec in declared]
        self._required: set[str] = set()
        self._optional: set[str] = set()
        self._positional: list[Taker] = []
        self._keywords: dict[str, Taker] = {}

    def bind(self) -> Binding:
        renamed = self._renamed()
        for parameter in self._named:
            self._add(parameter, renamed.get(parameter.name, parameter.name))
        claimed = frozenset(self._required | self._optional)
        self._place_unclaimed()
        open_ended = (self._rest or self._takes_all) and not self._declared
        return Binding(
            inputs=tuple(self._specs),
            outputs=self._outputs,
            names=InputNames(self._specs, frozenset(self._required), None if open_ended else frozenset(self._optional)),
            positional=tuple(self._positional),
            keywords=self._keywords,
            rest=claimed if self._rest else None,
        )

    def _renamed(self) -> dict[str, str]:
        """The one declared input under the name of the one parameter it can be for, such as `X` of `classifier.predict(X)`."""
        if len(self._declared) != 1 or any(p.name == self._declared[0].name for p in self._named):
            return {}
        tensors = [p for p in self._named if p.kind is not p.KEYWORD_ONLY and _meaning(p.annotation)[0] in _UNTYPED]
        candidates = [p for p in tensors if p.default is p.empty] or tensors
        return {candidates[0].name: self._declared[0].name} if len(candidates) == 1 else {}

    def _add(self, parameter: inspect.Parameter, name: str) -> None:
        meaning, spec = _meaning(parameter.annotation)
        if meaning in _WHOLE:
            self._takes_all = self._takes_all or meaning is InferenceRequest
            self._pass(parameter, _WHOLE[meaning])
            return
        if spec is not None:
            if self._declared:
                raise TypeError(f"{self._called} is declared twice, by inputs= and by Annotated: use one of them")
            self._specs.append(spec)
            name = spec.name
        optional = parameter.default is not parameter.empty
        if self._declared and name not in self._unclaimed:
            if not optional:
                raise TypeError(
                    f"{self._called}: parameter {parameter.name!r} is not among the declared inputs "
                    f"{[spec.name for spec in self._declared]}: declare it, rename it, or give it a default"
                )
            self._leave(parameter)
            return
        if meaning not in _UNTYPED:
            raise TypeError(
                f"{self._called}: parameter {parameter.name!r} is annotated {inspect.formatannotation(parameter.annotation)}, which "
                "no tensor can become: annotate np.ndarray, InferenceRequest or InferenceContext, or bind a value with functools.partial"
            )
        if self._declared:
            self._unclaimed.remove(name)
        (self._optional if optional else self._required).add(name)
        self._pass(parameter, _tensor_or(name, parameter.default) if optional else _tensor(name))

    def _pass(self, parameter: inspect.Parameter, taker: Taker) -> None:
        if self._goes_by_position(parameter):
            self._positional.append(taker)
        else:
            self._keywords[parameter.name] = taker

    def _leave(self, parameter: inspect.Parameter) -> None:
        """An undeclared parameter with a default: no request can reach it, so it may be annotated as it likes."""
        if self._goes_by_position(parameter):
            self._positional.append(_constant(parameter.default))

    def _goes_by_position(self, parameter: inspect.Parameter) -> bool:
        # before `*inputs`, keywords would collide with what is spread into it
        return parameter.kind is parameter.POSITIONAL_ONLY or (self._spread and parameter.kind is not parameter.KEYWORD_ONLY)

    def _place_unclaimed(self) -> None:
        """Declared inputs that no parameter is named after: `**inputs`, the request, or else `*inputs` has them."""
        self._required.update(self._unclaimed)
        if self._rest or self._takes_all:
            return
        if self._spread and self._unclaimed:
            self._positional.extend(_tensor(name) for name in self._unclaimed)
        elif self._spread:
            raise TypeError(f"{self._called} does not name its inputs: declare them with inputs=[TensorSpec(...)]")
        elif self._unclaimed:
            raise TypeError(
                f"{self._called} has no parameter for the declared inputs {self._unclaimed}: "
                "rename them or the parameters, or take **inputs"
            )


def _meaning(annotation: Any) -> tuple[Any, TensorSpec | None]:
    """What an annotation asks for, without `Optional`, and the declaration that an `Annotated` holds."""
    origin = typing.get_origin(annotation)
    alias = getattr(origin or annotation, "__value__", None)
    if alias is not None:  # a `type` statement, as NDArray is one since numpy 2.5
        return _meaning(alias[typing.get_args(annotation)] if origin else alias)
    if origin is Annotated:
        inner, *extras = typing.get_args(annotation)
        meaning, _ = _meaning(inner)
        return meaning, next((extra for extra in extras if isinstance(extra, TensorSpec)), None)
    if origin in (typing.Union, UnionType):
        members = [member for member in typing.get_args(annotation) if member is not NoneType]
        if len(members) == 1:
            return _meaning(members[0])
    return (np.ndarray if origin is np.ndarray else annotation), None


def _returned(annotation: Any) -> tuple[TensorSpec, ...]:
    """The outputs that a return annotation declares: one `Annotated`, or a tuple of them."""
    members = typing.get_args(annotation) if typing.get_origin(annotation) is tuple else (annotation,)
    specs = [_meaning(member)[1] for member in members]
    return tuple(spec for spec in specs if spec is not None) if all(specs) else ()
