"""A callable's signature -> how it is called with a request. Runs once, at registration. Knows no requests and no models."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..codecs.base import AnyRequestCodec
from ..codecs.reader import Reader, WholeReader
from ..codecs.registry import UNTYPED, Codecs, is_input_codec, is_request_codec
from ..tensors import InferenceContext, InferenceRequest, Tensor
from .annotations import Returned, each_of, meaning_of, read_as, returned_as
from .binding import Binding, Shown, Taker, constant, context_of, request_of, scalar_or, tensor_of, tensor_or, unclaimed_of
from .callables import STREAMS, kind_of
from .readers import Readers
from .said import Said
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
    readers = Readers(codecs, {spec.name: spec for spec in declared}, content_type, called)
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
    if readers.whole is not None:
        raise TypeError(f"{readers.called} has no parameter for content_type={readers.whole.content_type!r}: wrap it in a def")
    read = readers.every(names, inspect.Parameter.empty)
    return Binding(
        inputs=tuple(declared),
        undeclared=() if declared else tuple(names),
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
        self, function: Callable[..., Any], signature: inspect.Signature, declared: Sequence[TensorSpec], readers: Readers
    ) -> None:
        self._reserved = _parameter_names(function)
        fixed = function.keywords if isinstance(function, functools.partial) else {}
        parameters = [parameter for name, parameter in signature.parameters.items() if name not in fixed]
        _check_is_bound(readers.called, parameters)
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
        self._shown: list[TensorSpec] = list(declared)
        self._undeclared: list[str] = []
        self._scalars: set[str] = set()
        self._needed: set[str] = set()
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
        needed = self._required | self._needed
        names = (self._required | self._optional) - self._scalars
        sole = None if self._rest or self._takes_all or len(names) != 1 else next(iter(names))
        return Binding(
            inputs=tuple(self._shown),
            undeclared=tuple(self._undeclared),
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
            shown=Shown(self._inputs(needed), self._inputs(self._optional - needed), is_open=bool(open_ended)),
        )

    def _inputs(self, names: set[str]) -> tuple[TensorSpec, ...]:
        order = [name for name in (*[spec.name for spec in self._specs], *self._read) if name in names]
        return tuple(self._readers.shown(name, self._read.get(name)) for name in dict.fromkeys(order))

    def _every(self, parameter: inspect.Parameter) -> Callable[[Tensor, str | None], Any]:
        """How each tensor of `*inputs` or `**inputs` is read."""
        wanted, codec, datatype = read_as(parameter.annotation, self._called, is_declared=bool(self._declared))
        return self._readers.every(self._unclaimed, wanted, codec, datatype)

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
        meaning = meaning_of(parameter.annotation)
        wanted, spec = meaning.wanted, meaning.spec_for(parameter.name)
        if spec is not None:
            self._declare(spec)
            self._unclaimed.append(spec.name)
            self._is_closed = True
        self._add_whole(parameter, codec, wanted)

    def _declare(self, spec: TensorSpec) -> None:
        if self._declared:
            raise TypeError(f"{self._called} is declared twice, by inputs= and by Annotated: use one of them")
        self._specs.append(spec)
        self._shown.append(spec)
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
        meaning = meaning_of(parameter.annotation)
        wanted, codec, said = meaning.wanted, meaning.codec, meaning.said
        spec = meaning.spec if self._declared else meaning.spec_for(name)
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
        if reader is None or (said is not None and said.unreadable is not None and codec is None):
            raise TypeError(self._no_tensor(parameter, said))
        if self._declared:
            self._readers.check_said(self._readers.specs[name], said, parameter.annotation)
        self._add_tensor(parameter, name, reader)
        if spec is None and not self._declared:
            self._show(name, reader)

    def _add_tensor(self, parameter: inspect.Parameter, name: str, reader: Reader) -> None:
        """Pass one tensor, or its default, for a parameter."""
        optional = parameter.default is not parameter.empty
        if name in self._required | self._optional:
            raise ValueError(f"{self._called}: two inputs have the same name among {[*sorted(self._required | self._optional), name]}")
        if self._declared:
            self._unclaimed.remove(name)
        self._read[name] = reader
        self._takes.append(f"{name}: {reader.annotation}" if reader.annotation else name)
        if reader.scalar is not None:
            self._scalars.add(name)
            if not optional:
                self._needed.add(name)
            self._optional.add(name)
            self._pass(parameter, scalar_or(name, reader, parameter.default))
            return
        (self._optional if optional else self._required).add(name)
        if optional:
            self._pass(parameter, tensor_or(name, reader.read, parameter.default))
        else:
            self._pass(parameter, tensor_of(name, reader.read, takes_array=reader.takes_array))

    def _show(self, name: str, reader: Reader) -> None:
        """Note for the metadata what is known of an input that is not declared. Requests are not checked against it: its reader checks."""
        if reader.shown is None:
            self._undeclared.append(name)
        else:
            self._shown.append(TensorSpec(name, *reader.shown))

    def _no_tensor(self, parameter: inspect.Parameter, said: Said | None) -> str:
        """The text of the error for an annotation that no tensor can become."""
        annotated = f"parameter {parameter.name!r} is annotated {inspect.formatannotation(parameter.annotation)}"
        if said is not None and said.unreadable is not None:
            instead = "list[str]" if said.unreadable == "str_" else "list[datetime]" if said.unreadable == "datetime64" else "np.ndarray"
            return f"{self._called}: {annotated}, but no tensor has elements of numpy's {said.unreadable}: annotate {instead}"
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
