"""A callable's signature -> how it is called with a request, decided once at registration. Knows no wire forms and no models.

Nothing here runs the callable: `Binding.arguments` says what to call it with. Which codec reads what is `codecs.known`'s to say.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import msgspec
import numpy as np

from .codecs.base import AnyInputCodec, AnyRequestCodec
from .codecs.known import UNTYPED, Codecs, Reader, WholeReader, as_codec, is_input_codec
from .errors import InvalidRequest, shown
from .specs import InputNames, TensorSpec
from .tensors import InferenceContext, InferenceRequest, Tensor


class Given(NamedTuple):
    """What a call's arguments are taken from.

    Args:
        tensors: The input tensors by name.
        content_type: That of the request, where it is one for each tensor.
        unclaimed: The tensors that no parameter is named after.
        request: The request.
        context: Makes the context.
    """

    tensors: dict[str, Tensor]
    content_type: str | None
    unclaimed: list[Tensor]
    request: InferenceRequest
    context: Callable[[], InferenceContext]


Taker: TypeAlias = Callable[[Given], Any]


class Returned(NamedTuple):
    """What a return annotation says.

    Args:
        specs: The outputs that it declares.
        codecs: Which codec writes each output, by position; None for what its value says.
        every: Which codec writes each value of a mapping.
        whole: Which codec writes the result as a whole response.
    """

    specs: tuple[TensorSpec, ...] = ()
    codecs: tuple[AnyInputCodec | None, ...] = ()
    every: AnyInputCodec | None = None
    whole: AnyRequestCodec | None = None


class Binding(msgspec.Struct, frozen=True, eq=False):
    """How a callable is called.

    Args:
        inputs: What is declared of its input tensors.
        returned: What its return annotation says.
        names: Which inputs it takes.
        claimed: The names of the tensors that parameters are named after.
        takes: The same with what each is read as, for people.
        positional: What is passed by position, in order.
        keywords: What is passed by keyword.
        rest: How the tensors are read that go to `**inputs`, those that are not claimed; None where there is no such parameter.
        whole: How those are read that go to one parameter, such as a data frame; None where there is no such parameter.
        sole: Its only parameter for a tensor; None where there are several, or others that take tensors.
        is_free: Whether one parameter without an annotation could as well take all tensors as one value, such as a data frame.
        of_one: The content types of whole requests that are those of a tensor too, such as `np` and `str`.
        only_whole: Those that no tensor can have, such as `pd`.
    """

    inputs: tuple[TensorSpec, ...]
    returned: Returned
    names: InputNames
    claimed: frozenset[str]
    takes: str
    positional: tuple[Taker, ...]
    keywords: dict[str, Taker]
    rest: Callable[[Tensor, str | None], Any] | None
    whole: WholeReader | None
    sole: str | None
    is_free: bool
    of_one: frozenset[str]
    only_whole: frozenset[str]

    def accept(self, request: InferenceRequest) -> None:
        """Hold a request's inputs against the signature. Its one tensor gets the parameter's name where the content type is for the whole.

        Raises:
            InvalidRequest: The names, datatypes, shapes or the request's content type are not what is taken; the text names them.

        Specification: Content Types: `np` and `str` at the level of the request are for models of a single tensor.
        """
        content_type = request.parameters.get("content_type") if request.parameters else None
        if content_type is not None:
            self._check_content_type(content_type)
            if self.sole is not None and content_type in self.of_one and len(request.inputs) == 1:
                request.inputs[0].name = self.sole
        self.names.check(request, has_content_type=content_type is not None)

    def _check_content_type(self, content_type: object) -> None:
        if self.whole is not None and content_type != self.whole.content_type:
            raise InvalidRequest(
                f"the request has the content_type {shown(content_type)}, which cannot become {self.whole.annotation}, "
                f"as the model takes it: expected {self.whole.content_type}, or none"
            )
        if self.whole is None and content_type in self.only_whole and (self.claimed or self.rest):
            raise InvalidRequest(
                f"the request has the content_type {shown(content_type)}, which makes one value of the whole and cannot become what "
                f"the model takes ({self.takes}): leave it out"
            )

    def arguments(self, request: InferenceRequest, context: Callable[[], InferenceContext]) -> tuple[list[Any], dict[str, Any]]:
        """What to call the callable with, for a request that was accepted.

        Args:
            request: The request.
            context: Makes the context, for callables that want it.

        Raises:
            InvalidRequest: A tensor does not hold what its content type or the annotation says; the text names it.
        """
        content_type = request.parameters.get("content_type") if request.parameters and self.whole is None else None
        takes_unclaimed = self.rest is not None or self.whole is not None
        unclaimed = [tensor for tensor in request.inputs if tensor.name not in self.claimed] if takes_unclaimed else []
        tensors = {tensor.name: tensor for tensor in request.inputs}
        given = Given(tensors, None if content_type is None else str(content_type), unclaimed, request, context)
        args = [take(given) for take in self.positional]
        kwargs = {keyword: take(given) for keyword, take in self.keywords.items()}
        if self.rest is not None:
            kwargs.update({tensor.name: self.rest(tensor, given.content_type) for tensor in unclaimed})
        return args, kwargs


_WHOLE: Final[dict[Any, Taker]] = {
    InferenceRequest: lambda given: given.request,
    InferenceContext: lambda given: given.context(),
}


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling gives something to await: an `async def`, a partial of one, or an object whose `__call__` is one."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def bind(function: Callable[..., Any], declared: Sequence[TensorSpec], codecs: Codecs, content_type: str | None) -> Binding:
    """Decide how a callable is called.

    Args:
        function: The callable.
        declared: Its inputs where they are declared, else nothing.
        codecs: Those of the server.
        content_type: What is declared for the whole model, or None.

    Raises:
        TypeError: No request could ever be passed to it; the text says what to write.
    """
    called = _called(function)
    readers = _Readers(codecs, {spec.name: spec.content_type for spec in declared if spec.content_type}, content_type, called)
    if isinstance(function, np.ufunc):
        return _bind_ufunc(function, declared, readers)
    try:
        inspect.signature(function)
    except (ValueError, TypeError):
        if not declared:
            raise TypeError(f"the signature of {called} cannot be read: declare its inputs, such as inputs=[TensorSpec(...)]") from None
        return _by_position([spec.name for spec in declared], declared, readers)
    try:
        signature = inspect.signature(function, eval_str=True)
    except Exception as error:
        raise TypeError(f"an annotation of {called} cannot be resolved ({error}): import the name at run time, or drop it") from error
    return _Signature(function, signature, declared, readers).bind()


class _Readers:
    """How parameters read tensors, with what is declared of their content types."""

    def __init__(self, codecs: Codecs, declared: dict[str, str], of_model: str | None, called: str) -> None:
        self.codecs = codecs
        self.declared = declared
        self.called = called
        self.only_whole = frozenset(codecs.only_whole())
        self.of_one = frozenset(codecs.requests) - self.only_whole
        self.whole = codecs.requests[of_model] if of_model in self.only_whole else None
        self._of_model = None if self.whole else of_model

    def tensor(self, annotation: Any, codec: AnyInputCodec | None, name: str) -> Reader | None:
        """How the tensor `name` is read for an annotation; None where none can become that."""
        reader = self.codecs.reader(annotation, codec)
        content_type = self.declared.get(name, self._of_model)
        if reader is None or content_type is None:
            return reader
        default = reader.by_content_type.get(content_type)
        if default is None:
            raise TypeError(
                f"{self.called}: the content_type {content_type!r} that is declared for {name!r} cannot become {reader.annotation}: "
                f"declare {', '.join(reader.by_content_type)}, or leave it out"
            )
        return Reader(reader.annotation, default, reader.by_content_type)

    def free(self) -> Callable[[Tensor, str | None], Any]:
        """How tensors of any name are read where nothing is annotated."""
        return self.every(inspect.Parameter.empty, None)

    def every(self, annotation: Any, codec: AnyInputCodec | None) -> Callable[[Tensor, str | None], Any]:
        """How tensors of any name are read for one annotation.

        Raises:
            TypeError: No tensor can become that.
        """
        other = self.tensor(annotation, codec, "")
        if other is None:
            raise TypeError(f"{self.called}: {inspect.formatannotation(annotation)} is what no tensor can become: annotate np.ndarray")
        by_name = {name: self.tensor(annotation, codec, name) or other for name in self.declared}
        return lambda tensor, of_request: by_name.get(tensor.name, other).read(tensor, of_request)


def _called(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or repr(function)


def _bind_ufunc(function: np.ufunc, declared: Sequence[TensorSpec], readers: _Readers) -> Binding:
    # Its signature names `out` and `where` too, which are no tensors for a client to send
    names = ["x"] if function.nin == 1 else [f"x{place}" for place in range(1, function.nin + 1)]
    if declared:
        if len(declared) != function.nin:
            raise TypeError(f"{readers.called} takes {function.nin} inputs, but {len(declared)} are declared")
        names = [spec.name for spec in declared]
    return _by_position(names, declared, readers)


def _by_position(names: Sequence[str], declared: Sequence[TensorSpec], readers: _Readers) -> Binding:
    if readers.whole is not None:
        raise TypeError(
            f"{readers.called} names no parameters that content_type={readers.whole.content_type!r} could be for: wrap it in a def"
        )
    read = readers.free()
    return Binding(
        inputs=tuple(declared),
        returned=Returned(),
        names=InputNames(declared, frozenset(names), frozenset()),
        claimed=frozenset(names),
        takes=", ".join(names),
        positional=tuple(_tensor(name, read) for name in names),
        keywords={},
        rest=None,
        whole=None,
        sole=names[0] if len(names) == 1 else None,
        is_free=False,
        of_one=readers.of_one,
        only_whole=readers.only_whole,
    )


def _tensor(name: str, read: Callable[[Tensor, str | None], Any]) -> Taker:
    return lambda given: read(given.tensors[name], given.content_type)


def _tensor_or(name: str, read: Callable[[Tensor, str | None], Any], default: Any) -> Taker:
    return lambda given: read(given.tensors[name], given.content_type) if name in given.tensors else default


def _whole(reader: WholeReader) -> Taker:
    def take(given: Given) -> Any:
        request = given.request
        return reader.read(InferenceRequest(given.unclaimed, request.id, request.parameters, request.outputs))

    return take


def _constant(value: Any) -> Taker:
    return lambda _: value


class _Signature:
    """One reading of a signature against what is declared."""

    def __init__(
        self, function: Callable[..., Any], signature: inspect.Signature, declared: Sequence[TensorSpec], readers: _Readers
    ) -> None:
        self._reserved = _parameter_names(function)
        fixed = function.keywords if isinstance(function, functools.partial) else {}
        parameters = [parameter for name, parameter in signature.parameters.items() if name not in fixed]
        self._named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        self._spread = next((p for p in parameters if p.kind is p.VAR_POSITIONAL), None)
        self._rest = next((p for p in parameters if p.kind is p.VAR_KEYWORD), None)
        self._takes_all = False
        self._whole: WholeReader | None = None
        self._declared = declared
        self._readers = readers
        readers.called = self._called = f"{readers.called}({', '.join(signature.parameters)})"
        self._returned = _returned(signature.return_annotation, readers.codecs)
        self._specs: list[TensorSpec] = list(declared)
        self._unclaimed = [spec.name for spec in declared]
        self._required: set[str] = set()
        self._takes: list[str] = []
        self._optional: set[str] = set()
        self._positional: list[Taker] = []
        self._keywords: dict[str, Taker] = {}

    def bind(self) -> Binding:
        renamed, free = self._renamed(), self._free()
        for parameter in self._named:
            if parameter is free and self._readers.whole is not None:
                self._add_whole(parameter, self._readers.whole, parameter.annotation)
            else:
                self._add(parameter, renamed.get(parameter.name, parameter.name))
        claimed = frozenset(self._required | self._optional)
        self._place_unclaimed()
        if self._readers.whole is not None and self._whole is None:
            raise TypeError(
                f"{self._called} has no parameter for content_type={self._readers.whole.content_type!r}: add one without annotation"
            )
        open_ended = (self._rest or self._takes_all) and not self._declared
        names = self._required | self._optional
        sole = None if self._rest or self._takes_all or len(names) != 1 else next(iter(names))
        return Binding(
            inputs=tuple(self._specs),
            returned=self._returned,
            names=InputNames(
                self._specs,
                frozenset(self._required),
                None if open_ended else frozenset(self._optional),
                self._reserved - claimed if self._rest else frozenset(),
            ),
            claimed=claimed,
            takes=", ".join(self._takes) or "**inputs",
            positional=tuple(self._positional),
            keywords=self._keywords,
            rest=self._readers.every(*_read_as(self._rest.annotation, self._called)) if self._rest else None,
            whole=self._whole,
            sole=sole,
            is_free=free is not None and not self._specs and self._readers.whole is None,
            of_one=self._readers.of_one,
            only_whole=self._readers.only_whole,
        )

    def _free(self) -> inspect.Parameter | None:
        """The one parameter without an annotation, where nothing else takes what it could: content types such as `pd` are for it."""
        if self._rest or any(self._whole_codec(p) for p in self._named):
            return None
        free = [p for p in self._named if _meaning(p.annotation).wanted in UNTYPED and p.default is p.empty]
        return free[0] if len(free) == 1 else None

    def _whole_codec(self, parameter: inspect.Parameter) -> AnyRequestCodec | None:
        meaning = _meaning(parameter.annotation)
        if meaning.codec is None:
            return self._readers.codecs.whole_codec(meaning.wanted)
        return None if is_input_codec(meaning.codec) else meaning.codec  # type: ignore[return-value]

    def _add_whole(self, parameter: inspect.Parameter, codec: AnyRequestCodec, wanted: Any) -> None:
        if self._whole is not None or self._rest:
            raise TypeError(f"{self._called}: only one parameter can take the tensors that no other is named after, or **inputs")
        self._whole = self._readers.codecs.whole_reader(codec, wanted, self._readers.declared)
        self._takes_all = True
        self._pass(parameter, _whole(self._whole))

    def _renamed(self) -> dict[str, str]:
        """The one declared input under the name of the one parameter it can be for, such as `X` of `classifier.predict(X)`."""
        if len(self._declared) != 1 or any(p.name == self._declared[0].name for p in self._named):
            return {}
        tensors = [p for p in self._named if p.kind is not p.KEYWORD_ONLY and self._is_for_tensor(p)]
        candidates = [p for p in tensors if p.default is p.empty] or tensors
        return {candidates[0].name: self._declared[0].name} if len(candidates) == 1 else {}

    def _is_for_tensor(self, parameter: inspect.Parameter) -> bool:
        meaning = _meaning(parameter.annotation)
        return self._whole_codec(parameter) is None and self._readers.codecs.reader(meaning.wanted, None) is not None

    def _add(self, parameter: inspect.Parameter, name: str) -> None:
        wanted, spec, codec = _meaning(parameter.annotation)
        if wanted in _WHOLE:
            self._takes_all = self._takes_all or wanted is InferenceRequest
            self._pass(parameter, _WHOLE[wanted])
            return
        whole = self._whole_codec(parameter)
        if whole is not None:
            self._add_whole(parameter, whole, wanted)
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
        if spec is not None and spec.content_type:
            self._readers.declared[spec.name] = spec.content_type
        reader = self._readers.tensor(wanted, codec, name)  # type: ignore[arg-type]
        if reader is None:
            raise TypeError(
                f"{self._called}: parameter {parameter.name!r} is annotated {inspect.formatannotation(parameter.annotation)}, which no "
                "tensor can become: annotate np.ndarray, list[str], list[bytes], list[datetime], pd.DataFrame, InferenceRequest or "
                "InferenceContext, name a codec in Annotated, or bind a value with functools.partial"
            )
        if self._declared:
            self._unclaimed.remove(name)
        self._takes.append(f"{name}: {reader.annotation}" if reader.annotation else name)
        (self._optional if optional else self._required).add(name)
        self._pass(parameter, _tensor_or(name, reader.read, parameter.default) if optional else _tensor(name, reader.read))

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
        return parameter.kind is parameter.POSITIONAL_ONLY or (self._spread is not None and parameter.kind is not parameter.KEYWORD_ONLY)

    def _place_unclaimed(self) -> None:
        """Declared inputs that no parameter is named after: `**inputs`, the request, or else `*inputs` has them.

        A lone input of `(*args, **kwargs)` goes by position, since what is behind that may call it anything.
        """
        self._required.update(self._unclaimed)
        if self._spread and len(self._declared) == len(self._unclaimed) == 1:
            self._rest = None
        if self._rest or self._takes_all:
            return
        if self._spread and self._unclaimed:
            read = self._readers.every(*_read_as(self._spread.annotation, self._called))
            self._positional.extend(_tensor(name, read) for name in self._unclaimed)
        elif self._spread:
            raise TypeError(f"{self._called} does not name its inputs: declare them with inputs=[TensorSpec(...)]")
        elif self._unclaimed:
            raise TypeError(
                f"{self._called} has no parameter for the declared inputs {self._unclaimed}: "
                "rename them or the parameters, or take **inputs"
            )


def _parameter_names(function: Callable[..., Any]) -> frozenset[str]:
    """Every name that passing by keyword could collide with: those that a partial or a method has bound are among them."""
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function):
        function = type(function).__call__
    parameters = inspect.signature(getattr(function, "__func__", function)).parameters.values()
    return frozenset(p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))


class _Meaning(NamedTuple):
    """What an annotation asks for, without `Optional`, and what an `Annotated` adds: a declaration, a codec."""

    wanted: Any
    spec: TensorSpec | None = None
    codec: AnyInputCodec | AnyRequestCodec | None = None


def _meaning(annotation: Any) -> _Meaning:
    origin = typing.get_origin(annotation)
    alias = getattr(origin or annotation, "__value__", None)
    if alias is not None:  # a `type` statement, as NDArray is one since numpy 2.5
        return _meaning(alias[typing.get_args(annotation)] if origin else alias)
    if origin is Annotated:
        inner, *extras = typing.get_args(annotation)
        return _Meaning(_meaning(inner).wanted, next((extra for extra in extras if isinstance(extra, TensorSpec)), None), as_codec(extras))
    if origin in (typing.Union, UnionType):
        members = [member for member in typing.get_args(annotation) if member is not NoneType]
        if len(members) == 1:
            return _meaning(members[0])
    return _Meaning(np.ndarray if origin is np.ndarray else annotation)


def _read_as(annotation: Any, called: str) -> tuple[Any, AnyInputCodec | None]:
    """What `*inputs` or `**inputs` reads each tensor as."""
    wanted, _, codec = _meaning(annotation)
    if codec is not None and not is_input_codec(codec):
        raise TypeError(f"{called}: {inspect.formatannotation(annotation)} is for a whole request: give it a parameter of its own")
    return wanted, codec  # type: ignore[return-value]


def _returned(annotation: Any, codecs: Codecs) -> Returned:
    """What a return annotation says of one output, of a tuple of them, or of the values of a mapping."""
    meaning = _meaning(annotation)
    if meaning.codec is not None and not is_input_codec(meaning.codec):
        return Returned(whole=meaning.codec)  # type: ignore[arg-type]
    origin, args = typing.get_origin(meaning.wanted), typing.get_args(meaning.wanted)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return Returned(every=_writer(_meaning(args[1]), codecs))
    members = [_meaning(member) for member in args] if origin is tuple else [meaning]
    specs = tuple(member.spec for member in members if member.spec is not None)
    return Returned(specs if len(specs) == len(members) else (), tuple(_writer(member, codecs) for member in members))


def _writer(meaning: _Meaning, codecs: Codecs) -> AnyInputCodec | None:
    return meaning.codec if is_input_codec(meaning.codec) else codecs.writer(meaning.wanted)  # type: ignore[return-value]
