"""A callable's signature -> how it is called with a request. Runs once, at registration. Knows no requests and no models."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..codecs.base import AnyInputCodec, AnyRequestCodec
from ..codecs.numpy import NumpyCodec
from ..codecs.registry import UNTYPED, Codecs, Reader, WholeReader, is_input_codec, is_request_codec
from ..tensors import InferenceContext, InferenceRequest, Tensor
from .annotations import Returned, each_of, meaning_of, read_as, returned_as
from .binding import Binding, Shown, Taker, constant, context_of, request_of, tensor_of, tensor_or, unclaimed_of
from .callables import STREAMS, kind_of
from .specs import InputNames, TensorSpec


def bind(function: Callable[..., Any], declared: Sequence[TensorSpec], codecs: Codecs, content_type: str | None) -> Binding:
    """Decide how a callable is called.

    Args:
        function: The callable.
        declared: The inputs that are declared with `inputs=`, which may be none.
        codecs: The server's codecs.
        content_type: The content type that is declared for the model, or None.

    Raises:
        TypeError: The callable cannot be called with any request; the text says what to write.
        ValueError: Two inputs have the same name.
    """
    called = _called(function)
    readers = _Readers(codecs, {spec.name: spec for spec in declared}, content_type, called)
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
    """Makes the readers of parameters, from their annotations and from what is declared."""

    def __init__(self, codecs: Codecs, specs: dict[str, TensorSpec], of_model: str | None, called: str) -> None:
        self.codecs = codecs
        self.specs = specs
        self.called = called
        self.only_whole = frozenset(codecs.only_whole())
        self.of_columns = frozenset(codecs.of_columns())
        self.of_one = frozenset(codecs.requests) - self.only_whole
        self.whole = codecs.requests[of_model] if of_model in self.only_whole else None
        self.content_type = of_model
        self.unannotated: dict[str, str] = {}

    def content_types(self) -> dict[str, str]:
        """The declared content types by name."""
        return {name: spec.content_type for name, spec in self.specs.items() if spec.content_type is not None}

    def tensor(self, annotation: Any, codec: AnyInputCodec | None, name: str) -> Reader | None:
        """The reader of the tensor `name` for an annotation; None if no tensor can become what the annotation says.

        Raises:
            TypeError: The declared datatype or content type does not fit the annotation.
        """
        reader = self.codecs.reader(annotation, codec)
        if reader is None:
            return None
        spec = self.specs.get(name)
        if spec is not None and reader.datatype not in (None, spec.datatype):
            raise TypeError(
                f"{self.called}: input {name!r} is declared with datatype {spec.datatype}, which cannot become {reader.annotation}: "
                f"declare {reader.datatype}, or annotate another type"
            )
        content_type = (spec and spec.content_type) or (None if self.whole else self.content_type)
        if spec is not None and codec is None and annotation in UNTYPED:
            self.unannotated[name] = content_type or NumpyCodec.content_type
        if content_type is None:
            return reader
        default = reader.by_content_type.get(content_type)
        if default is None:
            raise TypeError(
                f"{self.called}: the content_type {content_type!r} that is declared for {name!r} cannot become {reader.annotation}: "
                f"declare {', '.join(reader.by_content_type)}, or leave it out"
            )
        return Reader(reader.annotation, default, reader.by_content_type, reader.datatype, content_type)

    def shown(self, name: str, reader: Reader | None) -> TensorSpec:
        """An input as it is shown to people: what is declared, else a guess, with the content type that its values are read with.

        Args:
            name: The input's name.
            reader: What reads it; None if no parameter has its name.
        """
        spec = self.specs.get(name)
        if reader is not None:
            content_type = reader.content_type
        else:
            content_type = (spec and spec.content_type) or (None if self.whole else self.content_type)
        if spec is None:
            return TensorSpec(name, (reader and reader.datatype) or "FP32", [-1], content_type)
        return TensorSpec(name, spec.datatype, spec.shape, content_type)

    def every(self, names: Sequence[str], annotation: Any, codec: AnyInputCodec | None = None) -> Callable[[Tensor, str | None], Any]:
        """How tensors of any name are read for one annotation.

        Args:
            names: The names of the declared inputs among them.
            annotation: The annotation, without `Optional` and `Annotated`.
            codec: The codec in `Annotated`, or None.

        Raises:
            TypeError: No tensor can become what the annotation says, or a declared one cannot.
        """
        other = self.tensor(annotation, codec, "")
        if other is None:
            raise TypeError(f"{self.called}: no tensor can become {inspect.formatannotation(annotation)}: annotate np.ndarray")
        by_name = {name: self.tensor(annotation, codec, name) or other for name in names}
        return lambda tensor, of_request: by_name.get(tensor.name, other).read(tensor, of_request)


def _called(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or repr(function)


def _bind_ufunc(function: np.ufunc, declared: Sequence[TensorSpec], readers: _Readers) -> Binding:
    # its signature has `out` and `where` too, which a client cannot send
    names = ["x"] if function.nin == 1 else [f"x{place}" for place in range(1, function.nin + 1)]
    if declared:
        if len(declared) != function.nin:
            raise TypeError(f"{readers.called} takes {function.nin} inputs, but {len(declared)} are declared")
        names = [spec.name for spec in declared]
    return _by_position(names, declared, readers)


def _by_position(names: Sequence[str], declared: Sequence[TensorSpec], readers: _Readers) -> Binding:
    if readers.whole is not None:
        raise TypeError(f"{readers.called} has no parameter for content_type={readers.whole.content_type!r}: wrap it in a def")
    read = readers.every(names, inspect.Parameter.empty)
    return Binding(
        inputs=tuple(declared),
        returned=Returned(),
        names=InputNames(declared, frozenset(names), frozenset()),
        claimed=frozenset(names),
        takes=", ".join(names),
        positional=tuple(tensor_of(name, read) for name in names),
        keywords={},
        rest=None,
        whole=None,
        sole=names[0] if len(names) == 1 else None,
        is_free=False,
        of_one=readers.of_one,
        only_whole=readers.only_whole,
        of_columns=readers.of_columns,
        unannotated=readers.unannotated,
        shown=Shown(tuple(readers.shown(name, None) for name in names)),
    )


class _Signature:
    """A signature, and what is declared, on their way to a `Binding`."""

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
        self._is_closed = bool(declared)
        self._whole: WholeReader | None = None
        self._declared = declared
        self._readers = readers
        readers.called = self._called = f"{readers.called}({', '.join(signature.parameters)})"
        annotation = signature.return_annotation
        self._returned = returned_as(each_of(annotation) if kind_of(function, "thread") in STREAMS else annotation, readers.codecs)
        self._specs: list[TensorSpec] = list(declared)
        self._unclaimed = [spec.name for spec in declared]
        self._required: set[str] = set()
        self._takes: list[str] = []
        self._read: dict[str, Reader] = {}
        self._optional: set[str] = set()
        self._positional: list[Taker] = []
        self._keywords: dict[str, Taker] = {}

    def bind(self) -> Binding:
        renamed, free = self._renamed(), self._free()
        if free is not None and self._readers.whole is not None:
            self._rest = None  # all tensors go to `free`, as for scikit-learn's `pipeline.predict(X, **params)`
        for parameter in self._named:
            if parameter is free and self._readers.whole is not None:
                self._add_declared_whole(parameter, self._readers.whole)
            else:
                self._add(parameter, renamed.get(parameter.name, parameter.name))
        claimed = frozenset(self._required | self._optional)
        self._place_unclaimed()
        reserved = self._reserved - claimed if self._rest else frozenset()
        if clashing := sorted(reserved & self._required):
            raise TypeError(
                f"{self._called}: the declared input {clashing[0]!r} has the name of a parameter that is something else: rename one of them"
            )
        self._check_content_type(claimed)
        open_ended = (self._rest or self._takes_all) and not self._is_closed
        names = self._required | self._optional
        sole = None if self._rest or self._takes_all or len(names) != 1 else next(iter(names))
        return Binding(
            inputs=tuple(self._specs),
            returned=self._returned,
            names=InputNames(
                self._specs,
                frozenset(self._required),
                None if open_ended else frozenset(self._optional),
                reserved,
            ),
            claimed=claimed,
            takes=", ".join(self._takes) or "**inputs",
            positional=tuple(self._positional),
            keywords=self._keywords,
            rest=self._every(self._rest) if self._rest else None,
            whole=self._whole and self._whole.of_inputs([spec.name for spec in self._specs if spec.name not in claimed]),
            sole=sole,
            is_free=free is not None,
            of_one=self._readers.of_one,
            only_whole=self._readers.only_whole,
            of_columns=self._readers.of_columns,
            unannotated=self._readers.unannotated,
            shown=Shown(self._shown(self._required), self._shown(self._optional), is_open=bool(open_ended)),
        )

    def _shown(self, names: set[str]) -> tuple[TensorSpec, ...]:
        order = [name for name in (*[spec.name for spec in self._specs], *self._read) if name in names]
        return tuple(self._readers.shown(name, self._read.get(name)) for name in dict.fromkeys(order))

    def _every(self, parameter: inspect.Parameter) -> Callable[[Tensor, str | None], Any]:
        """How each tensor of `*inputs` or `**inputs` is read."""
        wanted, codec = read_as(parameter.annotation, self._called, is_declared=bool(self._declared))
        return self._readers.every(self._unclaimed, wanted, codec)

    def _check_content_type(self, claimed: frozenset[str]) -> None:
        declared = self._readers.content_type
        if self._readers.whole is not None:
            fits = self._whole is not None and self._whole.content_type == declared
        else:
            fits = declared is None or self._whole is None or bool(claimed)
        if not fits:
            raise TypeError(f"{self._called} has no parameter for content_type={declared!r}: add one without annotation, or leave it out")

    def _free(self) -> inspect.Parameter | None:
        """The parameter that content types such as `pd` are for: the only one without annotation, if no other takes all tensors."""
        if (self._rest and self._readers.whole is None) or any(self._whole_codec(p) for p in self._named):
            return None
        meanings = [(p, meaning_of(p.annotation)) for p in self._named if p.default is p.empty]
        free = [p for p, meaning in meanings if meaning.wanted in UNTYPED and meaning.codec is None]
        return free[0] if len(free) == 1 else None

    def _whole_codec(self, parameter: inspect.Parameter) -> AnyRequestCodec | None:
        meaning = meaning_of(parameter.annotation)
        if meaning.codec is None:
            return self._readers.codecs.whole_codec(meaning.wanted)
        return meaning.codec if is_request_codec(meaning.codec) else None

    def _add_declared_whole(self, parameter: inspect.Parameter, codec: AnyRequestCodec) -> None:
        wanted, spec, _ = meaning_of(parameter.annotation)
        if spec is not None:
            self._declare(spec)
            self._unclaimed.append(spec.name)
            self._is_closed = True
        self._add_whole(parameter, codec, wanted)

    def _declare(self, spec: TensorSpec) -> None:
        if self._declared:
            raise TypeError(f"{self._called} is declared twice, by inputs= and by Annotated: use one of them")
        self._specs.append(spec)
        self._readers.specs[spec.name] = spec

    def _add_whole(self, parameter: inspect.Parameter, codec: AnyRequestCodec, wanted: Any) -> None:
        if self._whole is not None or self._rest:
            raise TypeError(f"{self._called}: only one parameter, or **inputs, can take all tensors that have no parameter of their own")
        self._whole = self._readers.codecs.whole_reader(codec, wanted, self._readers.content_types())
        self._takes_all = True
        self._pass(parameter, unclaimed_of)

    def _renamed(self) -> dict[str, str]:
        """The only declared input, by the name of the only parameter for a tensor, such as `X` of `classifier.predict(X)`."""
        if len(self._declared) != 1 or any(p.name == self._declared[0].name for p in self._named):
            return {}
        tensors = [p for p in self._named if p.kind is not p.KEYWORD_ONLY and self._is_for_tensor(p)]
        candidates = [p for p in tensors if p.default is p.empty] or tensors
        return {candidates[0].name: self._declared[0].name} if len(candidates) == 1 else {}

    def _is_for_tensor(self, parameter: inspect.Parameter) -> bool:
        meaning = meaning_of(parameter.annotation)
        codec = meaning.codec if is_input_codec(meaning.codec) else None
        return self._whole_codec(parameter) is None and self._readers.codecs.reader(meaning.wanted, codec) is not None

    def _add(self, parameter: inspect.Parameter, name: str) -> None:
        wanted, spec, codec = meaning_of(parameter.annotation)
        whole = self._whole_codec(parameter)
        if spec is not None and not self._declared and (whole is not None or wanted in (InferenceContext, InferenceRequest)):
            raise TypeError(f"{self._called}: {parameter.name!r} is no single tensor, so a TensorSpec declares nothing there: use inputs=")
        if wanted is InferenceContext:
            self._pass(parameter, context_of)
            return
        if wanted is InferenceRequest:
            self._takes_all = True
            self._pass(parameter, request_of)
            return
        if whole is not None:
            self._add_whole(parameter, whole, wanted)
            return
        if spec is not None:
            self._declare(spec)
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
        reader = self._readers.tensor(wanted, codec if is_input_codec(codec) else None, name)
        if reader is None:
            raise TypeError(
                f"{self._called}: parameter {parameter.name!r} is annotated {inspect.formatannotation(parameter.annotation)}, which no "
                "tensor can become: annotate np.ndarray, list[str], list[bytes], list[datetime], pd.DataFrame, InferenceRequest or "
                "InferenceContext, name a codec in Annotated, or bind a value with functools.partial"
            )
        if name in self._required | self._optional:
            raise ValueError(f"{self._called}: two inputs have the same name among {[*sorted(self._required | self._optional), name]}")
        if self._declared:
            self._unclaimed.remove(name)
        self._read[name] = reader
        self._takes.append(f"{name}: {reader.annotation}" if reader.annotation else name)
        (self._optional if optional else self._required).add(name)
        self._pass(parameter, tensor_or(name, reader.read, parameter.default) if optional else tensor_of(name, reader.read))

    def _pass(self, parameter: inspect.Parameter, taker: Taker) -> None:
        if self._goes_by_position(parameter):
            self._positional.append(taker)
        else:
            self._keywords[parameter.name] = taker

    def _leave(self, parameter: inspect.Parameter) -> None:
        """Leave out an undeclared parameter with a default. No request has a value for it, so its annotation does not matter."""
        if self._goes_by_position(parameter):
            self._positional.append(constant(parameter.default))

    def _goes_by_position(self, parameter: inspect.Parameter) -> bool:
        # parameters before `*inputs` cannot be passed by keyword
        return parameter.kind is parameter.POSITIONAL_ONLY or (self._spread is not None and parameter.kind is not parameter.KEYWORD_ONLY)

    def _place_unclaimed(self) -> None:
        """Pass the declared inputs without a parameter of their own to `**inputs`, to the request, or else to `*inputs`.

        A single declared input of `(*args, **kwargs)` is passed by position, since the function that is called inside may have any name
        for it.
        """
        self._required.update(self._unclaimed)
        if self._spread and len(self._declared) == len(self._unclaimed) == 1:
            self._rest = None
        if self._rest or self._takes_all:
            return
        if self._spread and self._unclaimed:
            read = self._every(self._spread)
            self._positional.extend(tensor_of(name, read) for name in self._unclaimed)
        elif self._spread:
            raise TypeError(f"{self._called} does not name its inputs: declare them with inputs=[TensorSpec(...)]")
        elif self._unclaimed:
            raise TypeError(
                f"{self._called} has no parameter for the declared inputs {self._unclaimed}: "
                "rename them or the parameters, or take **inputs"
            )


def _parameter_names(function: Callable[..., Any]) -> frozenset[str]:
    """The names of all parameters, also of those that a partial or a method has bound: a keyword must not have one of them."""
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function):
        function = type(function).__call__
    parameters = inspect.signature(getattr(function, "__func__", function)).parameters.values()
    return frozenset(p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))
