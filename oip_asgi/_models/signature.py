"""A callable's signature -> how it is called with a request. Runs once, at registration. Knows no requests and no models."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from inspect import Parameter
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from .._codecs.base import AnyRequestCodec, find_class
from .._codecs.content_types import UNTYPED, Codecs, Reader, RequestReader, get_array
from .._codecs.dataframes import PandasCodec
from .._codecs.frame_columns import read_column
from .._extensions.reserved import OF_PROTOCOL
from .._protocol.errors import InvalidRequest, show
from .._protocol.specs import TensorSpec
from .._protocol.tensors import InferenceContext, InferenceRequest, Tensor
from .annotations import ParsedAnnotation, parse_annotation, parse_return
from .binding import Argument, Binding, Input, Read, take_request, take_scalar, take_tensor, take_unnamed
from .callables import STREAMS, find_description, find_owner, kind_of, unwrap_partial
from .parameter_types import choose_type, find_instead

_GIVEN_BY_LIGHTGBM: Final = re.compile(r"Column_\d+").fullmatch
"""The name of a column that had none."""

_OF_ONE_REQUEST: Final = (InferenceContext, InferenceRequest)
"""Parameters that take more of a request than its tensors."""


class _Parameter(NamedTuple):
    """A parameter, and what its annotation asks for: all tensors without a parameter of their own, or one of them, or neither."""

    given: Parameter
    annotation: ParsedAnnotation
    request_codec: AnyRequestCodec | None
    reader: Reader | None

    @property
    def is_optional(self) -> bool:
        return self.given.default is not Parameter.empty

    @property
    def is_scalar(self) -> bool:
        return self.reader is not None and self.reader.scalar is not None

    @property
    def text(self) -> str:
        return inspect.formatannotation(self.given.annotation)


@dataclass(eq=False)
class Signature:
    """Makes a `Binding` of the parameters of a callable and of the declared inputs. A request may leave out the `optional` ones."""

    _function: Callable[..., Any]
    _declared: Sequence[TensorSpec]
    _codecs: Codecs
    _content_type: str | None
    _optional: Collection[str] = ()

    def __post_init__(self) -> None:
        function, content_type = self._function, self._content_type
        self._request_codec = self._codecs.requests[content_type] if content_type in self._codecs.request_only else None
        """The codec of the declared content type, if it makes one value of all tensors."""
        self._label = getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or repr(function)
        self._names = self._find_names_by_position()
        """The names of the inputs if the callable has no names for them; else None."""
        if self._names is None:
            signature = self._read()
        else:
            signature = inspect.Signature([Parameter(f"x{place}", Parameter.POSITIONAL_ONLY) for place in range(len(self._names))])
        self._returns = signature.return_annotation
        parsed = list(map(self._parse, signature.parameters.values()))
        self._parameters = [p for p in parsed if p.given.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)]
        self._spread = next((p for p in parsed if p.given.kind is Parameter.VAR_POSITIONAL), None)
        self._rest = next((p for p in parsed if p.given.kind is Parameter.VAR_KEYWORD), None)
        self._inputs: dict[str, Input] = {}
        for spec in self._declared:
            if spec.name in self._inputs:
                raise ValueError(f"{self._label}: two inputs have the same name among {[spec.name for spec in self._declared]}")
            content_type, is_needed = self._find_declared_type(spec), spec.name not in self._optional
            self._inputs[spec.name] = Input(spec.name, spec, content_type=content_type, is_needed=is_needed)
        self._request_reader: RequestReader | None = None
        self._of_one_request: type | None = None

    def _parse(self, parameter: Parameter) -> _Parameter:
        for mark in (parameter.default, *getattr(parameter.annotation, "__metadata__", ())):
            if type(mark).__module__.partition(".")[0] == "fastapi":
                raise TypeError(
                    f"{self._label}: parameter {parameter.name!r} has {type(mark).__name__} of FastAPI, which only routes resolve: write "
                    "install(..., dependencies=[...]), and take `context: InferenceContext`, whose transport is the scope"
                )
        annotation = choose_type(parse_annotation(parameter.annotation), self._codecs)
        request_codec = annotation.request_codec
        if request_codec is None and annotation.codec is None:
            request_codec = self._codecs.request_codec_for_annotation(annotation.wanted)
        return _Parameter(parameter, annotation, request_codec, self._codecs.reader(annotation.wanted, annotation.codec))

    def _find_names_by_position(self) -> list[str] | None:
        """The inputs of a ufunc, or of a callable whose signature Python cannot read; None for any other."""
        function, names = self._function, [spec.name for spec in self._declared]
        if isinstance(function, np.ufunc):  # its signature has `out` and `where` too, which a client cannot send
            if names and len(names) != function.nin:
                raise TypeError(f"{self._label} takes {function.nin} inputs, but {len(names)} are declared")
            names = names or (["x"] if function.nin == 1 else [f"x{place}" for place in range(1, function.nin + 1)])
        else:
            try:
                inspect.signature(function)
                return None
            except (ValueError, TypeError):
                if not names:
                    raise TypeError(
                        f"the signature of {self._label} cannot be read: declare its inputs, such as inputs=[TensorSpec(...)]"
                    ) from None
        if self._request_codec is not None:
            raise TypeError(f"{self._label} has no parameter for content_type={self._content_type!r}: wrap it in a def")
        return names

    def _read(self) -> inspect.Signature:
        """Read the signature, without the parameters that a partial has bound."""
        function, label = self._function, self._label
        try:
            signature = inspect.signature(function, eval_str=True)
        except Exception as error:
            # Python cannot make `Optional` of an annotation that holds a list
            mend = "write a shape as a tuple, such as (-1, 4)" if "unhashable" in str(error) else "import the name at run time, or drop it"
            raise TypeError(f"an annotation of {label} cannot be resolved ({error}): {mend}") from error
        fixed = function.keywords if isinstance(function, functools.partial) else {}
        parameters = [parameter for name, parameter in signature.parameters.items() if name not in fixed]
        if parameters and parameters[0].name == "self":
            owner = label.rpartition(".")[0].rpartition(".")[2]
            instance = f"{owner}(...).{label.rpartition('.')[2]}" if owner not in ("", "<locals>") else "an object's method"
            raise TypeError(
                f"{label} is a method without its object, so `self` would be an input: register an instance's method, such as {instance}, "
                "not the function of the class; if it needs no instance, make it a staticmethod"
            )
        self._label = f"{label}({', '.join(signature.parameters)})"
        if {"input_feed", "run_options"} <= signature.parameters.keys():
            raise TypeError(
                f"{self._label} takes a dict of arrays, as a session of ONNX Runtime does, and no tensor can become one: register a "
                'function, such as lambda x: session.run(None, {"x": x})[0]'
            )
        return signature.replace(parameters=parameters)

    def bind(self) -> Binding:
        """Decide how each parameter's value is made."""
        function, names = self._function, self._names
        untyped = self._find_untyped() if names is None else None
        names = self._name_parameters() if names is None else names
        fitted, knows_columns = None if untyped is None else _find_columns(function), True
        columns = fitted or []
        if columns and self._request_codec is None and len(self._declared) == 1 and len(self._declared[0].shape) == 1:
            raise TypeError(f'{self._label} was fitted with a data frame, and takes no array of one dimension: write content_type="pd"')
        if untyped is not None and self._request_codec is not None:
            self._rest = None  # all tensors go to `untyped`, as for scikit-learn's `pipeline.predict(X, **params)`
            self._parameters = [p._replace(request_codec=self._request_codec) if p is untyped else p for p in self._parameters]
            if self._request_codec is PandasCodec and not self._declared:
                knows_columns = fitted is None or bool(fitted)
                self._inputs = {name: Input(name) for name in columns}
        added = [self._add(parameter, name) for parameter, name in zip(self._parameters, names, strict=True)]
        scalars = {name: entry for name, entry in self._inputs.items() if entry.is_scalar}
        if set(columns) == self._inputs.keys() - scalars.keys():  # they are taken in the order of the frame of the training
            self._inputs = {name: self._inputs[name] for name in columns} | scalars
        inputs = tuple(self._inputs.values())
        unnamed = [entry.name for entry in inputs if entry.reader is None]
        rest, spread = self._place(unnamed)
        reserved = _list_parameter_names(function).difference(self._inputs.keys() - set(unnamed)) if rest else frozenset()
        if clashing := sorted(reserved.intersection(self._inputs)):
            raise TypeError(
                f"{self._label}: the declared input {clashing[0]!r} has the name of a parameter that is something else: rename one of them"
            )
        self._check_content_type()
        return Binding(
            inputs,
            (*(argument for argument in added if argument is not None), *spread),
            self._codecs,
            rest=rest,
            makes_series=rest is not None and self._rest is not None and self._rest.reader is not None and self._rest.reader.is_column,
            request_reader=self._request_reader and msgspec.structs.replace(self._request_reader, order=unnamed),
            of_one_request=self._of_one_request,
            reserved=reserved,
            parameters=frozenset(p.given.name for p in self._parameters),
            is_open=(rest is not None or self._takes_all) and not self._declared and not unnamed,
            is_untyped=untyped is not None,
            knows_columns=knows_columns,
            returned=parse_return(self._returns, self._codecs, streams=kind_of(function, "thread") in STREAMS),
            description=find_description(function),
        )

    @property
    def _takes_all(self) -> bool:
        """Whether a parameter takes the inputs that have none of their own."""
        return self._request_reader is not None or self._of_one_request is InferenceRequest

    def _find_untyped(self) -> _Parameter | None:
        """The parameter that content types such as `pd` are for: the only one without annotation, if no other takes all tensors."""
        if (self._rest and self._request_codec is None) or any(p.request_codec for p in self._parameters):
            return None
        untyped = [p for p in self._parameters if p.annotation.wanted in UNTYPED and not p.annotation.codec and not p.is_optional]
        return untyped[0] if len(untyped) == 1 else None

    def _name_parameters(self) -> list[str]:
        """The tensor's name of each parameter. The only one, such as `X` of `predict(X)`, is called as the only declared input."""
        names = [p.given.name for p in self._parameters]
        if len(self._declared) == 1 and self._declared[0].name not in names:
            tensors = [p for p in self._parameters if p.given.kind is not p.given.KEYWORD_ONLY and p.reader and not p.request_codec]
            others_take_it = self._rest or any(p.request_codec or p.annotation.wanted is InferenceRequest for p in self._parameters)
            groups: dict[tuple[bool, bool], list[_Parameter]] = {}
            for parameter in tensors:
                if not (parameter.is_scalar and others_take_it):
                    groups.setdefault((parameter.is_optional, parameter.is_scalar), []).append(parameter)
            candidates = groups[min(groups)] if groups else []  # what must be there before what may be, and arrays before scalars
            if len(candidates) == 1:
                names[names.index(candidates[0].given.name)] = self._declared[0].name
        return names

    def _add(self, parameter: _Parameter, name: str) -> Argument | None:
        """Add a parameter. Returns how its value is made; None if it always has its default."""
        given, annotation, request_codec, reader = parameter
        # parameters before `*inputs` cannot be passed by keyword
        by_position = given.kind is given.POSITIONAL_ONLY or (self._spread is not None and given.kind is not given.KEYWORD_ONLY)
        keyword, wanted = None if by_position else given.name, annotation.wanted
        name = self._declare(parameter, name)
        if request_codec is not None:
            self._add_all(request_codec, wanted)
            return Argument(keyword, take_unnamed)
        if wanted in _OF_ONE_REQUEST:
            if self._of_one_request is not InferenceRequest:
                self._of_one_request = wanted
            return Argument(keyword, take_request if wanted is InferenceRequest else lambda given: given.context())
        is_left_out = self._declared and name not in self._inputs and not parameter.is_scalar
        if is_left_out and not parameter.is_optional:
            frame = '; if it takes a data frame of all of them, write content_type="pd"' if len(self._declared) > 1 else ""
            raise TypeError(
                f"{self._label}: parameter {given.name!r} is not among the declared inputs "
                f"{[spec.name for spec in self._declared]}: declare it, rename it, or give it a default{frame}"
            )
        is_unreadable = reader is None or (annotation.unreadable is not None and annotation.codec is None)
        if is_unreadable and not is_left_out:
            instead = self._find_instead(annotation)
            if instead is not None or not parameter.is_optional:
                raise TypeError(self._explain_no_tensor(parameter, instead))
        if is_left_out or reader is None:
            return Argument(None, lambda _: given.default) if keyword is None else None
        entry = self._inputs.setdefault(name, Input(name))
        if entry.reader is not None:
            names = sorted(other.name for other in self._inputs.values() if other.reader is not None)
            raise ValueError(f"{self._label}: two inputs have the same name among {[*names, name]}")
        if self._declared and annotation.datatype is not None:
            self._check_datatype(entry, [annotation.datatype], parameter.text)
        return self._add_tensor(keyword, entry, self._apply_declaration(entry, reader), given.default)

    def _declare(self, parameter: _Parameter, name: str) -> str:
        """Take over what the annotation of a parameter declares. Returns the name of its tensor."""
        given, annotation, request_codec, _ = parameter
        spec = annotation.declared if self._declared and request_codec is None else annotation.spec(name)
        if spec is None:
            return name
        is_untyped = annotation.wanted in UNTYPED and annotation.request_codec is None
        if not is_untyped and (request_codec is not None or annotation.wanted in _OF_ONE_REQUEST):
            if self._declared:
                return name
            raise TypeError(f"{self._label}: {given.name!r} is no single tensor, so a TensorSpec declares nothing there: use inputs=")
        if self._declared:
            raise TypeError(f"{self._label} is declared twice, by inputs= and by Annotated: use one of them")
        entry = self._inputs.setdefault(spec.name, Input(spec.name))
        entry.spec, entry.content_type = spec, self._find_declared_type(spec)
        return spec.name

    def _add_all(self, codec: AnyRequestCodec, wanted: Any) -> None:
        if self._request_reader is not None or self._rest:
            raise TypeError(f"{self._label}: only one parameter, or **inputs, can take all tensors that have no parameter of their own")
        specs = [entry.spec for entry in self._inputs.values() if entry.spec is not None]
        declared = {spec.name: spec for spec in specs}
        self._request_reader = reader = self._codecs.request_reader(codec, wanted, declared)
        for spec in specs:
            if spec.pd_dtype is not None:
                try:  # a wrong declaration fails here, and not each request
                    read_column(Tensor(spec.name, np.empty(0, spec.dtype), dict(spec.parameters)), reader.decoders)
                except InvalidRequest as error:
                    raise ValueError(f"{self._label}: {error}") from None

    def _add_tensor(self, keyword: str | None, entry: Input, reader: Reader, default: Any) -> Argument:
        name, entry.reader, entry.is_needed, entry.content_type = entry.name, reader, default is Parameter.empty, reader.content_type
        if reader.scalar is None:
            return Argument(keyword, take_tensor(name, reader.read, default), name if reader.default is get_array else None)
        if name in OF_PROTOCOL and entry.spec is None:
            raise TypeError(
                f"{self._label}: the protocol itself uses the parameter {name!r} of a request, so a scalar of this name never gets "
                f"its value: rename it, or take `context: InferenceContext` and read context.parameters.get({name!r})"
            )
        return Argument(keyword, take_scalar(name, reader.scalar, reader.read, default))

    def _apply_declaration(self, entry: Input, reader: Reader) -> Reader:
        """The reader of an input, for the declared content type if there is one. The annotation says which are allowed."""
        name, spec, content_type = entry.name, entry.spec, self._find_declared_type(entry.spec)
        if spec is None and reader.scalar is not None:
            return reader  # the content type that is declared for all is for those that are declared
        if spec is not None:
            self._check_datatype(entry, reader.datatypes, reader.annotation)
            if reader.scalar is not None and any(size not in (1, -1) for size in spec.shape):
                raise TypeError(
                    f"{self._label}: input {name!r} is declared with shape {list(spec.shape)}: declare [1] for {reader.annotation}"
                )
            entry.is_unannotated = not reader.annotation
            if reader.is_column:
                reader = self._codecs.make_column_reader(reader.annotation, spec)
        if content_type is None:
            return reader
        default = reader.by_content_type.get(content_type)
        if default is None:
            raise TypeError(
                f"{self._label}: the content_type {content_type!r} that is declared for {name!r} cannot become {reader.annotation}: "
                f"declare {', '.join(reader.by_content_type)}, or leave it out"
            )
        return msgspec.structs.replace(reader, default=default, content_type=content_type)

    def _find_declared_type(self, spec: TensorSpec | None) -> str | None:
        return (spec and spec.content_type) or (None if self._request_codec else self._content_type)

    def _check_datatype(self, entry: Input, datatypes: Collection[str], annotation: str) -> None:
        if datatypes and entry.spec is not None and entry.spec.datatype not in datatypes:
            raise TypeError(
                f"{self._label}: input {entry.name!r} is declared with datatype {entry.spec.datatype}, which cannot become {annotation}: "
                f"declare {' or '.join(datatypes)}, or annotate another type"
            )

    def _find_instead(self, annotation: ParsedAnnotation) -> str | None:
        """What to write in the place of an annotation that no tensor can become, though a client may want to send one."""
        if annotation.unreadable is not None:
            instead = {"str_": "list[str]", "datetime64": "list[datetime]"}.get(annotation.unreadable, "np.ndarray")
            return f"annotate {instead}"
        return find_instead(annotation.wanted, self._codecs)

    def _explain_no_tensor(self, parameter: _Parameter, instead: str | None) -> str:
        """The text of the error for an annotation that no tensor can become."""
        annotated = f"{self._label}: parameter {parameter.given.name!r} is annotated {parameter.text}"
        unreadable = parameter.annotation.unreadable
        if unreadable is not None:
            return f"{annotated}, but no tensor has elements of numpy's {unreadable}: {instead}"
        return f"{annotated}, which no tensor can become: " + (
            instead
            or "annotate np.ndarray, float, int, bool, str, list[str], list[bytes], list[datetime], torch.Tensor, pd.DataFrame, "
            "InferenceRequest or InferenceContext, name a codec in Annotated, or bind a value with functools.partial"
        )

    def _place(self, unnamed: Sequence[str]) -> tuple[Read | None, Sequence[Argument]]:
        """Decide who gets the inputs without a parameter. Returns the reader of `**inputs`, and what makes the arguments for `*inputs`."""
        if self._rest and not (self._spread and len(self._declared) == len(unnamed) == 1):
            return self._read_each(self._rest, unnamed), ()
        if self._takes_all:
            return None, ()
        if self._spread and unnamed:
            read = self._read_each(self._spread, unnamed)
            return None, [Argument(None, take_tensor(name, read, Parameter.empty)) for name in unnamed]
        if self._spread:
            raise TypeError(f"{self._label} does not name its inputs: declare them with inputs=[TensorSpec(...)]")
        if unnamed:
            raise TypeError(
                f"{self._label} has no parameter for the declared inputs {unnamed}: rename them or the parameters, or take **inputs"
            )
        return None, ()

    def _read_each(self, parameter: _Parameter, names: Sequence[str]) -> Read:
        """Make the function that reads each tensor of `*inputs` or `**inputs`."""
        annotation, text, datatype = parameter.annotation, parameter.text, parameter.annotation.datatype
        if (annotation.declared is not None or annotation.shape is not None) and not self._declared:
            raise TypeError(f"{self._label}: {text} declares one tensor, but any number may come: use inputs=")
        if annotation.request_codec is not None:
            raise TypeError(f"{self._label}: {text} is for a whole request: give it a parameter of its own")
        if parameter.reader is None:
            raise TypeError(f"{self._label}: no tensor can become {inspect.formatannotation(annotation.wanted)}: annotate np.ndarray")
        other = self._apply_declaration(Input(""), parameter.reader)
        by_name = {name: self._apply_declaration(self._inputs[name], parameter.reader) for name in names}

        def read(tensor: Tensor, of_request: str | None) -> Any:
            if datatype is not None and tensor.datatype != datatype:
                raise InvalidRequest(f"input {show(tensor.name)} has datatype {tensor.datatype}: expected {datatype}")
            return by_name.get(tensor.name, other).read(tensor, of_request)

        return read

    def _check_content_type(self) -> None:
        declared, reader = self._content_type, self._request_reader
        if self._request_codec is not None:
            fits = reader is not None and reader.codec.content_type == declared
        else:
            fits = declared is None or reader is None or any(entry.reader for entry in self._inputs.values())
        if not fits:
            raise TypeError(f"{self._label} has no parameter for content_type={declared!r}: add one without annotation, or leave it out")


def _find_columns(function: Callable[..., Any]) -> list[str] | None:
    """The columns with which an estimator or a booster was fitted, if the function is a method of one: none if it does not know them.

    None for other functions. In scikit-learn's words, an estimator is what can be fitted and cloned.
    """
    owner: Any = find_owner(function)
    of_lightgbm, of_xgboost = (isinstance(owner, find_class(module, "Booster")) for module in ("lightgbm", "xgboost"))
    if of_lightgbm:
        names = owner.feature_name()
        return [] if all(map(_GIVEN_BY_LIGHTGBM, names)) else names
    if of_xgboost:
        return owner.feature_names or []
    names = getattr(owner, "feature_names_in_", None)
    if names is not None:
        return list(map(str, names))
    return [] if hasattr(owner, "fit") and hasattr(owner, "get_params") else None


def _list_parameter_names(function: Callable[..., Any]) -> frozenset[str]:
    """The names of all parameters, also of bound ones (partial, method): no tensor for `**inputs` may have one of them."""
    function = unwrap_partial(function)
    if not inspect.isroutine(function):
        function = type(function).__call__
    parameters = inspect.signature(getattr(function, "__func__", function)).parameters.values()
    return frozenset(p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))
