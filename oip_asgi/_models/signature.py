"""A callable's signature -> how it is called with a request. Runs once, at registration. Knows no requests and no models."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._codecs.base import AnyRequestCodec
from .._codecs.reader import Reader, RequestReader
from .._codecs.registry import UNTYPED, Codecs, is_input_codec, is_request_codec
from .._protocol.tensors import InferenceContext, InferenceRequest, Tensor
from .annotations import Returned, annotation_of_items, parse_annotation, parse_each, parse_return
from .binding import OF_PROTOCOL, Binding, Shown, Taker, constant, context_of, request_of, scalar_or, tensor_of, tensor_or, unnamed_of
from .callables import STREAMS, kind_of
from .readers import Readers
from .specs import InputNames, TensorSpec
from .tensor_annotations import TensorAnnotation


def bind(function: Callable[..., Any], declared: Sequence[TensorSpec], codecs: Codecs, content_type: str | None) -> Binding:
    """Decide how a callable is called."""
    called = _called(function)
    readers = Readers(codecs, declared, content_type, called)
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
        # Python cannot make `Optional` of an annotation that holds a list
        mend = "write a shape as a tuple, such as (-1, 4)" if "unhashable" in str(error) else "import the name at run time, or drop it"
        raise TypeError(f"an annotation of {called} cannot be resolved ({error}): {mend}") from error
    return _Signature(function, signature, declared, readers).bind()


def _called(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or repr(function)


def _bind_ufunc(function: np.ufunc, declared: Sequence[TensorSpec], readers: Readers) -> Binding:
    # its signature has `out` and `where` too, which a client cannot send
    names = ["x"] if function.nin == 1 else [f"x{place}" for place in range(1, function.nin + 1)]
    if declared:
        if len(declared) != function.nin:
            raise TypeError(f"{readers.called} takes {function.nin} inputs, but {len(declared)} are declared")
        names = [spec.name for spec in declared]
    return _by_position(names, declared, readers)


def _by_position(names: Sequence[str], declared: Sequence[TensorSpec], readers: Readers) -> Binding:
    if readers.request_codec is not None:
        raise TypeError(f"{readers.called} has no parameter for content_type={readers.request_codec.content_type!r}: wrap it in a def")
    read = readers.every(names, inspect.Parameter.empty)
    return Binding(
        inputs=tuple(declared),
        undeclared=() if declared else tuple(names),
        returned=Returned(),
        names=InputNames(declared, frozenset(names), frozenset()),
        named=frozenset(names),
        takes=", ".join(names),
        codecs=readers.codecs,
        shown=Shown(tuple(readers.shown(name, None) for name in names)),
        positional=tuple(tensor_of(name, read) for name in names),
        single_input=names[0] if len(names) == 1 else None,
        unannotated=readers.unannotated,
    )


class _Signature:
    """A signature, and what is declared, on their way to a `Binding`."""

    def __init__(
        self, function: Callable[..., Any], signature: inspect.Signature, declared: Sequence[TensorSpec], readers: Readers
    ) -> None:
        fixed = function.keywords if isinstance(function, functools.partial) else {}
        parameters = [parameter for name, parameter in signature.parameters.items() if name not in fixed]
        _check_is_bound(readers.called, parameters)
        self._reserved = _parameter_names(function)
        self._parameters = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        self._spread = next((p for p in parameters if p.kind is p.VAR_POSITIONAL), None)
        self._rest = next((p for p in parameters if p.kind is p.VAR_KEYWORD), None)
        self._declared = declared
        self._readers = readers
        readers.called = self._called = f"{readers.called}({', '.join(signature.parameters)})"
        annotation = signature.return_annotation
        if kind_of(function, "thread") in STREAMS:
            annotation = annotation_of_items(annotation)
        self._returned = parse_return(annotation, readers.codecs)
        self._request_reader: RequestReader | None = None
        self._takes_all = False
        self._unnamed = [spec.name for spec in declared]
        self._inputs: dict[str, TensorSpec | None] = {}
        """What metadata says of each input, if `inputs=` declares none; None for one of which nothing is known."""
        self._read: dict[str, Reader] = {}
        self._needed: set[str] = set()
        self._required: set[str] = set()
        self._optional: set[str] = set()
        self._positional: list[Taker] = []
        self._keywords: dict[str, Taker] = {}

    def bind(self) -> Binding:
        readers, read = self._readers, self._read
        untyped, request_codec = self._untyped(), readers.request_codec
        if untyped is not None and request_codec is not None:
            self._rest = None  # all tensors go to `untyped`, as for scikit-learn's `pipeline.predict(X, **params)`
        renamed = self._renamed()
        for parameter in self._parameters:
            if parameter is untyped and request_codec is not None:
                self._add_untyped(parameter, request_codec)
            else:
                self._add(parameter, renamed.get(parameter.name, parameter.name))
        named = frozenset(read)
        self._place_unnamed()
        reserved = self._reserved - named if self._rest else frozenset()
        if clashing := sorted(reserved & self._required):
            raise TypeError(
                f"{self._called}: the declared input {clashing[0]!r} has the name of a parameter that is something else: rename one of them"
            )
        self._check_content_type()
        specs, takes_any = readers.specs, bool(self._rest or self._takes_all)
        is_closed = bool(self._declared) or any(name not in named for name in specs)
        is_open = takes_any and not is_closed
        scalars = {name for name, reader in read.items() if reader.scalar is not None}
        tensors = (self._required | self._optional) - scalars
        takes = [f"{name}: {reader.annotation}" if reader.annotation else name for name, reader in read.items()]
        return Binding(
            inputs=tuple(self._declared) or tuple(spec for spec in self._inputs.values() if spec is not None),
            undeclared=tuple(name for name, spec in self._inputs.items() if spec is None),
            returned=self._returned,
            names=InputNames(tuple(specs.values()), frozenset(self._required), None if is_open else frozenset(self._optional), reserved),
            named=named,
            takes=", ".join(takes) or "**inputs",
            codecs=readers.codecs,
            shown=self._shown(is_open),
            positional=tuple(self._positional),
            keywords=self._keywords,
            rest=self._every(self._rest) if self._rest else None,
            request_reader=self._request_reader and self._request_reader.of_inputs([name for name in specs if name not in named]),
            single_input=None if takes_any or len(tensors) != 1 else next(iter(tensors)),
            is_untyped=untyped is not None,
            unannotated=readers.unannotated,
        )

    def _shown(self, is_open: bool) -> Shown:
        specs, read, needed = self._readers.specs, self._read, self._required | self._needed
        inputs = [self._readers.shown(name, read.get(name)) for name in dict.fromkeys((*specs, *read))]
        optional = [spec for spec in inputs if spec.name in self._optional - needed]
        return Shown(tuple(spec for spec in inputs if spec.name in needed), tuple(optional), is_open)

    def _every(self, parameter: inspect.Parameter) -> Callable[[Tensor, str | None], Any]:
        """How each tensor of `*inputs` or `**inputs` is read."""
        wanted, codec, datatype = parse_each(parameter.annotation, self._called, is_declared=bool(self._declared))
        return self._readers.every(self._unnamed, wanted, codec, datatype)

    def _check_content_type(self) -> None:
        declared = self._readers.content_type
        if self._readers.request_codec is not None:
            fits = self._request_reader is not None and self._request_reader.content_type == declared
        else:
            fits = declared is None or self._request_reader is None or bool(self._read)
        if not fits:
            raise TypeError(f"{self._called} has no parameter for content_type={declared!r}: add one without annotation, or leave it out")

    def _untyped(self) -> inspect.Parameter | None:
        """The parameter that content types such as `pd` are for: the only one without annotation, if no other takes all tensors."""
        if (self._rest and self._readers.request_codec is None) or any(map(self._request_codec_for, self._parameters)):
            return None
        parsed = [(p, parse_annotation(p.annotation)) for p in self._parameters if p.default is p.empty]
        untyped = [p for p, annotation in parsed if annotation.wanted in UNTYPED and annotation.codec is None]
        return untyped[0] if len(untyped) == 1 else None

    def _request_codec_for(self, parameter: inspect.Parameter) -> AnyRequestCodec | None:
        annotation = parse_annotation(parameter.annotation)
        if annotation.codec is None:
            return self._readers.codecs.request_codec_for(annotation.wanted)
        return annotation.codec if is_request_codec(annotation.codec) else None

    def _add_untyped(self, parameter: inspect.Parameter, codec: AnyRequestCodec) -> None:
        """Pass all tensors for a parameter without annotation, as the declared content type asks."""
        annotation = parse_annotation(parameter.annotation)
        spec = annotation.spec_for(parameter.name)
        if spec is not None:
            self._declare(spec)
            self._unnamed.append(spec.name)
        self._add_all(parameter, codec, annotation.wanted)

    def _declare(self, spec: TensorSpec) -> None:
        if self._declared:
            raise TypeError(f"{self._called} is declared twice, by inputs= and by Annotated: use one of them")
        self._inputs[spec.name] = self._readers.specs[spec.name] = spec

    def _add_all(self, parameter: inspect.Parameter, codec: AnyRequestCodec, wanted: Any) -> None:
        if self._request_reader is not None or self._rest:
            raise TypeError(f"{self._called}: only one parameter, or **inputs, can take all tensors that have no parameter of their own")
        self._request_reader = self._readers.codecs.request_reader(codec, wanted, self._readers.content_types())
        self._takes_all = True
        self._pass(parameter, unnamed_of)

    def _renamed(self) -> dict[str, str]:
        """The only declared input, by the name of the only parameter for a tensor, such as `X` of `classifier.predict(X)`."""
        if len(self._declared) != 1 or any(p.name == self._declared[0].name for p in self._parameters):
            return {}
        tensors = [p for p in self._parameters if p.kind is not p.KEYWORD_ONLY and self._is_for_tensor(p)]
        candidates = [p for p in tensors if p.default is p.empty] or tensors
        return {candidates[0].name: self._declared[0].name} if len(candidates) == 1 else {}

    def _is_for_tensor(self, parameter: inspect.Parameter) -> bool:
        annotation = parse_annotation(parameter.annotation)
        codec = annotation.codec if is_input_codec(annotation.codec) else None
        return self._request_codec_for(parameter) is None and self._readers.codecs.reader(annotation.wanted, codec) is not None

    def _add(self, parameter: inspect.Parameter, name: str) -> None:
        annotation = parse_annotation(parameter.annotation)
        wanted, codec, tensor = annotation.wanted, annotation.codec, annotation.tensor
        spec = annotation.spec if self._declared else annotation.spec_for(name)
        request_codec = self._request_codec_for(parameter)
        if spec is not None and not self._declared and (request_codec is not None or wanted in (InferenceContext, InferenceRequest)):
            raise TypeError(f"{self._called}: {parameter.name!r} is no single tensor, so a TensorSpec declares nothing there: use inputs=")
        if wanted is InferenceContext:
            self._pass(parameter, context_of)
            return
        if wanted is InferenceRequest:
            self._takes_all = True
            self._pass(parameter, request_of)
            return
        if request_codec is not None:
            self._add_all(parameter, request_codec, wanted)
            return
        if spec is not None:
            self._declare(spec)
            name = spec.name
        if self._declared and name not in self._unnamed:
            if parameter.default is parameter.empty:
                raise TypeError(
                    f"{self._called}: parameter {parameter.name!r} is not among the declared inputs "
                    f"{[spec.name for spec in self._declared]}: declare it, rename it, or give it a default"
                )
            if self._goes_by_position(parameter):
                self._positional.append(constant(parameter.default))
            return
        reader = self._readers.tensor(wanted, codec if is_input_codec(codec) else None, name)
        if reader is None or (tensor is not None and tensor.unreadable is not None and codec is None):
            raise TypeError(self._no_tensor(parameter, tensor))
        if self._declared:
            self._readers.check_annotated(self._readers.specs[name], tensor, parameter.annotation)
        self._add_tensor(parameter, name, reader)

    def _add_tensor(self, parameter: inspect.Parameter, name: str, reader: Reader) -> None:
        """Pass one tensor, or its default, for a parameter."""
        is_optional = parameter.default is not parameter.empty
        if name in self._read:
            raise ValueError(f"{self._called}: two inputs have the same name among {[*sorted(self._read), name]}")
        self._read[name] = reader
        if self._declared:
            self._unnamed.remove(name)
        else:  # requests are not checked against what an annotation shows: its reader checks
            self._inputs.setdefault(name, None if reader.shown is None else TensorSpec(name, *reader.shown))
        if reader.scalar is not None:
            if name in OF_PROTOCOL and name not in self._readers.specs:
                raise TypeError(
                    f"{self._called}: the protocol itself uses the parameter {name!r} of a request, so a scalar of this name never gets "
                    f"its value: rename it, or take `context: InferenceContext` and read context.parameters.get({name!r})"
                )
            if not is_optional:
                self._needed.add(name)
            self._optional.add(name)
            self._pass(parameter, scalar_or(name, reader, parameter.default))
        elif is_optional:
            self._optional.add(name)
            self._pass(parameter, tensor_or(name, reader.read, parameter.default))
        else:
            self._required.add(name)
            self._pass(parameter, tensor_of(name, reader.read, takes_array=reader.takes_array))

    def _no_tensor(self, parameter: inspect.Parameter, tensor: TensorAnnotation | None) -> str:
        """The text of the error for an annotation that no tensor can become."""
        annotated = f"parameter {parameter.name!r} is annotated {inspect.formatannotation(parameter.annotation)}"
        if tensor is not None and tensor.unreadable is not None:
            instead = {"str_": "list[str]", "datetime64": "list[datetime]"}.get(tensor.unreadable, "np.ndarray")
            return f"{self._called}: {annotated}, but no tensor has elements of numpy's {tensor.unreadable}: annotate {instead}"
        return (
            f"{self._called}: {annotated}, which no tensor can become: annotate np.ndarray, float, int, bool, str, list[str], list[bytes], "
            "list[datetime], torch.Tensor, pd.DataFrame, InferenceRequest or InferenceContext, name a codec in Annotated, or bind a value "
            "with functools.partial"
        )

    def _pass(self, parameter: inspect.Parameter, taker: Taker) -> None:
        if self._goes_by_position(parameter):
            self._positional.append(taker)
        else:
            self._keywords[parameter.name] = taker

    def _goes_by_position(self, parameter: inspect.Parameter) -> bool:
        # parameters before `*inputs` cannot be passed by keyword
        return parameter.kind is parameter.POSITIONAL_ONLY or (self._spread is not None and parameter.kind is not parameter.KEYWORD_ONLY)

    def _place_unnamed(self) -> None:
        """Pass the declared inputs without a parameter of their own to `**inputs`, to the request, or else to `*inputs`."""
        self._required.update(self._unnamed)
        if self._spread and len(self._declared) == len(self._unnamed) == 1:
            self._rest = None
        if self._rest or self._takes_all:
            return
        if self._spread and self._unnamed:
            read = self._every(self._spread)
            self._positional.extend(tensor_of(name, read) for name in self._unnamed)
        elif self._spread:
            raise TypeError(f"{self._called} does not name its inputs: declare them with inputs=[TensorSpec(...)]")
        elif self._unnamed:
            raise TypeError(
                f"{self._called} has no parameter for the declared inputs {self._unnamed}: rename them or the parameters, or take **inputs"
            )


def _check_is_bound(called: str, parameters: Sequence[inspect.Parameter]) -> None:
    if parameters and parameters[0].name == "self":
        owner = called.rpartition(".")[0].rpartition(".")[2]
        instance = f"{owner}(...).{called.rpartition('.')[2]}" if owner not in ("", "<locals>") else "an object's method"
        raise TypeError(
            f"{called} is a method without its object, so `self` would be an input: register an instance's method, such as {instance}, "
            "not the function of the class; if it needs no instance, make it a staticmethod"
        )


def _parameter_names(function: Callable[..., Any]) -> frozenset[str]:
    """The names of all parameters, also of those that a partial or a method has bound: a keyword must not have one of them."""
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function):
        function = type(function).__call__
    parameters = inspect.signature(getattr(function, "__func__", function)).parameters.values()
    return frozenset(p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))
