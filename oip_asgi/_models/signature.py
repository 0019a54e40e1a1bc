"""A callable and its declared inputs -> how it is called with a request. Runs once, at registration. Knows no requests and no models."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from .._codecs.base import AnyRequestCodec
from .._codecs.column_reading import read_column
from .._codecs.content_types import UNTYPED, Codecs, Reader, RequestReader, get_array
from .._codecs.dataframes import PandasCodec
from .._codecs.rows import Rows, find_rows
from .._extensions.reserved import OF_PROTOCOL
from .._protocol.errors import InvalidRequest, show
from .._protocol.specs import TensorSpec
from .._protocol.tensors import InferenceContext, InferenceRequest, Tensor
from .annotations import ParsedAnnotation, parse_annotation, parse_return
from .binding import (
    Binding,
    Input,
    Parameter,
    Read,
    take_array,
    take_context,
    take_default,
    take_request,
    take_scalar,
    take_tensor,
    take_unnamed,
)
from .callables import STREAMS, find_description, find_owner, kind_of, unwrap_partial
from .fitted import list_columns
from .parameter_types import choose_type, find_instead

_OF_ONE_REQUEST: Final = (InferenceRequest, InferenceContext)
"""Parameters that take more of a request than its tensors. Who takes the first may take the second too."""

_READABLE: Final = (
    "annotate np.ndarray, float, int, bool, str, list[str], list[bytes], list[datetime], torch.Tensor, pd.DataFrame, "
    "InferenceRequest or InferenceContext, name a codec in Annotated, or bind a value with functools.partial"
)


class _Declared(NamedTuple):
    """What is registered beside the function, and what it is called in errors."""

    label: str
    specs: Sequence[TensorSpec]
    codecs: Codecs
    content_type: str | None
    request_codec: AnyRequestCodec | None  # that of the content type, if it makes one value of all tensors

    def find_type(self, spec: TensorSpec | None) -> str | None:
        return (spec and spec.content_type) or (None if self.request_codec else self.content_type)


class _Annotated(NamedTuple):
    """A parameter, and what its annotation asks for: all tensors without a parameter of their own, or one of them, or neither."""

    given: inspect.Parameter
    annotation: ParsedAnnotation
    request_codec: AnyRequestCodec | None
    reader: Reader | None

    @property
    def is_optional(self) -> bool:
        return self.given.default is not inspect.Parameter.empty

    @property
    def is_scalar(self) -> bool:
        return self.reader is not None and self.reader.scalar is not None

    @property
    def takes_request(self) -> bool:
        return self.request_codec is None and self.annotation.wanted in _OF_ONE_REQUEST

    @property
    def text(self) -> str:
        return inspect.formatannotation(self.given.annotation)


class _Signature(NamedTuple):
    """The parameters of a callable: the plain ones, `*inputs`, and `**inputs`."""

    plain: Sequence[_Annotated]
    spread: _Annotated | None
    rest: _Annotated | None
    names: Sequence[str]  # the tensor's name of each plain one
    untyped: _Annotated | None = None  # the one that content types such as `pd` are for
    fitted: Sequence[str] | None = None  # the columns with which its estimator was fitted; None for other functions

    @property
    def takes_request(self) -> bool:
        return any(p.annotation.wanted is InferenceRequest and p.request_codec is None for p in self.plain)


def bind(
    function: Callable[..., Any], specs: Sequence[TensorSpec], codecs: Codecs, content_type: str | None, optional: Collection[str] = ()
) -> Binding:
    """Decide how each parameter's value is made. A request may leave out the `optional` inputs."""
    label = getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or repr(function)
    request_codec = codecs.requests[content_type] if content_type in codecs.request_only else None
    declared = _Declared(label, specs, codecs, content_type, request_codec)
    names = _find_names_by_position(function, declared)
    if names is None:
        read, label = _read_signature(function, label)
        declared = declared._replace(label=label)
    else:
        read = inspect.Signature([inspect.Parameter(f"x{index}", inspect.Parameter.POSITIONAL_ONLY) for index in range(len(names))])
    signature = _parse_signature(function, read, names, declared)
    inputs, parameters = _take_parameters(signature, _list_known(signature, optional, declared), declared)
    request_reader = _make_request_reader(signature, inputs, declared)
    unnamed = [entry for entry in inputs if entry.reader is None]
    receiver = _find_receiver(signature, unnamed, declared)
    read_each = None if receiver is None else _read_each(receiver, unnamed, declared)
    reader, has_rest = receiver and receiver.reader, receiver is not None and receiver is signature.rest
    if reader is not None and not reader.annotation:
        inputs = [entry if entry.reader else msgspec.structs.replace(entry, is_unannotated=entry.spec is not None) for entry in inputs]
    reserved = _list_parameter_names(function).difference(entry.name for entry in inputs if entry.reader) if has_rest else frozenset()
    if clashing := sorted(reserved.intersection(entry.name for entry in unnamed)):
        raise TypeError(
            f"{label}: the declared input {clashing[0]!r} has the name of a parameter that is something else: rename one of them"
        )
    _check_content_type(request_reader, inputs, declared)
    of_one_request = {p.annotation.wanted for p in signature.plain if p.takes_request}
    return Binding(
        inputs,
        [*parameters, *(Parameter(entry.name, read_each) for entry in unnamed if read_each and not has_rest)],
        codecs,
        rest=read_each if has_rest else None,
        makes_series=has_rest and reader is not None and reader.is_column,
        request_reader=request_reader and msgspec.structs.replace(request_reader, order=[entry.name for entry in unnamed]),
        of_one_request=next((kind for kind in _OF_ONE_REQUEST if kind in of_one_request), None),
        reserved=reserved,
        names=frozenset(p.given.name for p in signature.plain),
        is_open=(has_rest or request_reader is not None or signature.takes_request) and not specs and not unnamed,
        is_untyped=signature.untyped is not None,
        knows_columns=signature.fitted != [] or request_codec is not PandasCodec or len(specs) > 0,
        returned=parse_return(read.return_annotation, codecs, streams=kind_of(function, "thread") in STREAMS),
        description=find_description(function),
    )


def _find_names_by_position(function: Callable[..., Any], declared: _Declared) -> list[str] | None:
    """The inputs of a ufunc, or of a callable whose signature Python cannot read; None for any other."""
    names, label = [spec.name for spec in declared.specs], declared.label
    if isinstance(function, np.ufunc):  # its signature has `out` and `where` too, which a client cannot send
        if names and len(names) != function.nin:
            raise TypeError(f"{label} takes {function.nin} inputs, but {len(names)} are declared")
        names = names or (["x"] if function.nin == 1 else [f"x{index}" for index in range(1, function.nin + 1)])
    else:
        try:
            inspect.signature(function)
            return None
        except (ValueError, TypeError):
            if not names:
                raise TypeError(f"the signature of {label} cannot be read: declare its inputs, such as inputs=[TensorSpec(...)]") from None
    if declared.request_codec is not None:
        raise TypeError(f"{label} has no parameter for content_type={declared.content_type!r}: wrap it in a def")
    return names


def _read_signature(function: Callable[..., Any], label: str) -> tuple[inspect.Signature, str]:
    """Read the signature, without the parameters that a partial has bound. Returns it and the label with all parameters."""
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
    label = f"{label}({', '.join(signature.parameters)})"
    if {"input_feed", "run_options"} <= signature.parameters.keys():
        raise TypeError(
            f"{label} takes a dict of arrays, as a session of ONNX Runtime does, and no tensor can become one: register a "
            'function, such as lambda x: session.run(None, {"x": x})[0]'
        )
    return signature.replace(parameters=parameters), label


def _parse_signature(function: Callable[..., Any], read: inspect.Signature, names: Sequence[str] | None, declared: _Declared) -> _Signature:
    """Parse the annotations, and find what the parameters are for. `names` are those of the tensors if the callable has none for them."""
    parsed = [_parse(parameter, declared) for parameter in read.parameters.values()]
    plain = [p for p in parsed if p.given.kind not in (p.given.VAR_POSITIONAL, p.given.VAR_KEYWORD)]
    spread = next((p for p in parsed if p.given.kind is p.given.VAR_POSITIONAL), None)
    rest = next((p for p in parsed if p.given.kind is p.given.VAR_KEYWORD), None)
    if names is not None:
        return _Signature(plain, spread, rest, names)
    untyped = _find_untyped(plain, rest, declared)
    fitted, specs = None if untyped is None else list_columns(find_owner(function)), declared.specs
    if fitted and declared.request_codec is None and len(specs) == 1 and len(specs[0].shape) == 1:
        raise TypeError(f'{declared.label} was fitted with a data frame, and takes no array of one dimension: write content_type="pd"')
    names = _name_parameters(plain, rest, specs)
    if untyped is not None and declared.request_codec is not None:
        # all tensors go to `untyped`, as for scikit-learn's `pipeline.predict(X, **params)`
        plain, rest = [p._replace(request_codec=declared.request_codec) if p is untyped else p for p in plain], None
    return _Signature(plain, spread, rest, names, untyped, fitted)


def _parse(parameter: inspect.Parameter, declared: _Declared) -> _Annotated:
    for mark in (parameter.default, *getattr(parameter.annotation, "__metadata__", ())):
        if type(mark).__module__.partition(".")[0] == "fastapi":
            raise TypeError(
                f"{declared.label}: parameter {parameter.name!r} has {type(mark).__name__} of FastAPI, which only routes resolve: write "
                "install(..., dependencies=[...]), and take `context: InferenceContext`, whose transport is the scope"
            )
    codecs = declared.codecs
    annotation = choose_type(parse_annotation(parameter.annotation), codecs)
    request_codec = annotation.request_codec
    if request_codec is None and annotation.codec is None:
        request_codec = codecs.request_codec_for_annotation(annotation.wanted)
    reader = codecs.reader(annotation.wanted, annotation.codec)
    if request_codec is None and reader is None:
        try:
            request_codec = find_rows(annotation.wanted)
        except TypeError as error:
            raise TypeError(f"{declared.label}: parameter {parameter.name!r}: {error}") from None
        if request_codec is not None and parameter.default is not inspect.Parameter.empty:
            raise TypeError(f"{declared.label}: parameter {parameter.name!r} is rows, which each request has: leave its default out")
    return _Annotated(parameter, annotation, request_codec, reader)


def _find_untyped(plain: Sequence[_Annotated], rest: _Annotated | None, declared: _Declared) -> _Annotated | None:
    """The parameter that content types such as `pd` are for: the only one without annotation, if no other takes all tensors."""
    if (rest and declared.request_codec is None) or any(p.request_codec for p in plain):
        return None
    untyped = [p for p in plain if p.annotation.wanted in UNTYPED and not p.annotation.codec and not p.is_optional]
    return untyped[0] if len(untyped) == 1 else None


def _name_parameters(plain: Sequence[_Annotated], rest: _Annotated | None, specs: Sequence[TensorSpec]) -> list[str]:
    """The tensor's name of each parameter. The only one, such as `X` of `predict(X)`, is called as the only declared input."""
    names = [p.given.name for p in plain]
    if len(specs) == 1 and specs[0].name not in names:
        tensors = [p for p in plain if p.given.kind is not p.given.KEYWORD_ONLY and p.reader and not p.request_codec]
        others_take_it = rest or any(p.request_codec or p.annotation.wanted is InferenceRequest for p in plain)
        groups: dict[tuple[bool, bool], list[_Annotated]] = {}
        for parameter in tensors:
            if not (parameter.is_scalar and others_take_it):
                groups.setdefault((parameter.is_optional, parameter.is_scalar), []).append(parameter)
        candidates = groups[min(groups)] if groups else []  # what must be there before what may be, and arrays before scalars
        if len(candidates) == 1:
            names[names.index(candidates[0].given.name)] = specs[0].name
    return names


def _list_known(signature: _Signature, optional: Collection[str], declared: _Declared) -> dict[str, Input]:
    """The inputs that are known before the parameters are looked at: the declared ones, or the columns of a frame."""
    specs = {spec.name: spec for spec in declared.specs}
    if len(specs) != len(declared.specs):
        raise ValueError(f"{declared.label}: two inputs have the same name among {[spec.name for spec in declared.specs]}")
    rows = next((p.request_codec for p in signature.plain if isinstance(p.request_codec, Rows)), None)
    if rows is not None:
        if specs:
            raise TypeError(f"{declared.label}: {rows.cls.__name__} declares the inputs: leave inputs= out")
        return {spec.name: Input(spec.name, spec, content_type=spec.content_type, is_needed=is_needed) for spec, is_needed in rows.inputs}
    if not specs and declared.request_codec is PandasCodec:
        return {name: Input(name) for name in signature.fitted or ()}
    return {name: Input(name, spec, content_type=declared.find_type(spec), is_needed=name not in optional) for name, spec in specs.items()}


def _take_parameters(signature: _Signature, inputs: dict[str, Input], declared: _Declared) -> tuple[Sequence[Input], Sequence[Parameter]]:
    """All inputs, and how the value of each plain parameter is made, but for those that always have their default."""
    parameters: list[Parameter] = []
    for annotated, name in zip(signature.plain, signature.names, strict=True):
        kind, entry, parameter = annotated.given.kind, *_take(annotated, name, inputs, declared)
        inputs = inputs if entry is None else {**inputs, entry.name: entry}
        # parameters before `*inputs` cannot be passed by keyword
        is_by_position = kind is inspect.Parameter.POSITIONAL_ONLY or (signature.spread and kind is not inspect.Parameter.KEYWORD_ONLY)
        if is_by_position or parameter.from_ is not take_default:
            parameters.append(parameter._replace(keyword=None if is_by_position else annotated.given.name))
    scalars = {name: entry for name, entry in inputs.items() if entry.is_scalar}
    columns = signature.fitted or ()
    if set(columns) == inputs.keys() - scalars.keys():  # they are taken in the order of the frame of the training
        inputs = {name: inputs[name] for name in columns} | scalars
    return list(inputs.values()), parameters


def _take(annotated: _Annotated, name: str, inputs: Mapping[str, Input], declared: _Declared) -> tuple[Input | None, Parameter]:
    """Decide how the value of one parameter is made. Returns its input, if it has one of its own or declares one, and that."""
    given, annotation, request_codec, reader = annotated
    spec = _find_own_spec(annotated, name, declared)
    name = name if spec is None else spec.name
    entry = inputs.get(name, Input(name))
    if spec is not None:
        entry = msgspec.structs.replace(entry, spec=spec, content_type=declared.find_type(spec))
    if request_codec is not None:
        return (None if spec is None else entry), Parameter(name, from_=take_unnamed)
    if annotated.takes_request:
        return None, Parameter(name, from_=take_request if annotation.wanted is InferenceRequest else take_context)
    is_left_out = declared.specs and name not in inputs and not annotated.is_scalar
    if is_left_out and not annotated.is_optional:
        frame = '; if it takes a data frame of all of them, write content_type="pd"' if len(declared.specs) > 1 else ""
        raise TypeError(
            f"{declared.label}: parameter {given.name!r} is not among the declared inputs "
            f"{[spec.name for spec in declared.specs]}: declare it, rename it, or give it a default{frame}"
        )
    if not is_left_out:
        _check_readable(annotated, declared)
    if is_left_out or reader is None:
        return None, Parameter(name, default=given.default, from_=take_default)
    if entry.reader is not None:
        names = sorted(other.name for other in inputs.values() if other.reader is not None)
        raise ValueError(f"{declared.label}: two inputs have the same name among {[*names, name]}")
    if declared.specs and annotation.datatype is not None:
        _check_datatype(entry, [annotation.datatype], annotated.text, declared)
    return _take_tensor(entry, _apply_declaration(entry, reader, declared), given.default, declared)


def _find_own_spec(annotated: _Annotated, name: str, declared: _Declared) -> TensorSpec | None:
    """What the annotation of a parameter declares."""
    given, annotation, request_codec, _ = annotated
    spec = annotation.declared if declared.specs and request_codec is None else annotation.spec(name)
    if spec is None:
        return None
    is_untyped = annotation.wanted in UNTYPED and annotation.request_codec is None
    if not is_untyped and (request_codec is not None or annotation.wanted in _OF_ONE_REQUEST):
        if declared.specs:
            return None
        raise TypeError(f"{declared.label}: {given.name!r} is no single tensor, so a TensorSpec declares nothing there: use inputs=")
    if declared.specs:
        raise TypeError(f"{declared.label} is declared twice, by inputs= and by Annotated: use one of them")
    return spec


def _take_tensor(entry: Input, reader: Reader, default: Any, declared: _Declared) -> tuple[Input, Parameter]:
    name, is_unannotated = entry.name, entry.spec is not None and not reader.annotation
    taken = msgspec.structs.replace(
        entry, reader=reader, is_needed=default is inspect.Parameter.empty, content_type=reader.content_type, is_unannotated=is_unannotated
    )
    if reader.scalar is None:
        return taken, Parameter(name, reader.read, default, take_array if reader.default is get_array else take_tensor)
    if name in OF_PROTOCOL and entry.spec is None:
        raise TypeError(
            f"{declared.label}: the protocol itself uses the parameter {name!r} of a request, so a scalar of this name never gets "
            f"its value: rename it, or take `context: InferenceContext` and read context.parameters.get({name!r})"
        )
    return taken, Parameter(name, reader.read, default, functools.partial(take_scalar, reader.scalar))


def _apply_declaration(entry: Input, reader: Reader, declared: _Declared) -> Reader:
    """The reader of an input, for the declared content type if there is one. The annotation says which are allowed."""
    name, spec, content_type = entry.name, entry.spec, declared.find_type(entry.spec)
    if spec is None and reader.scalar is not None:
        return reader  # the content type that is declared for all is for those that are declared
    if spec is not None:
        _check_datatype(entry, reader.datatypes, reader.annotation, declared)
        if reader.scalar is not None and any(size not in (1, -1) for size in spec.shape):
            raise TypeError(
                f"{declared.label}: input {name!r} is declared with shape {list(spec.shape)}: declare [1] for {reader.annotation}"
            )
        if reader.is_column:
            reader = declared.codecs.make_column_reader(reader.annotation, spec)
    if content_type is None:
        return reader
    default = reader.by_content_type.get(content_type)
    if default is None:
        raise TypeError(
            f"{declared.label}: the content_type {content_type!r} that is declared for {name!r} cannot become {reader.annotation}: "
            f"declare {', '.join(reader.by_content_type)}, or leave it out"
        )
    return msgspec.structs.replace(reader, default=default, content_type=content_type)


def _check_datatype(entry: Input, datatypes: Collection[str], annotation: str, declared: _Declared) -> None:
    if datatypes and entry.spec is not None and entry.spec.datatype not in datatypes:
        raise TypeError(
            f"{declared.label}: input {entry.name!r} is declared with datatype {entry.spec.datatype}, which cannot become {annotation}: "
            f"declare {' or '.join(datatypes)}, or annotate another type"
        )


def _check_readable(annotated: _Annotated, declared: _Declared) -> None:
    """Refuse an annotation that no tensor can become, unless the parameter can always have its default."""
    unreadable, codec = annotated.annotation.unreadable, annotated.annotation.codec
    if annotated.reader is not None and (unreadable is None or codec is not None):
        return
    instead, why = find_instead(annotated.annotation.wanted, declared.codecs), "which no tensor can become"
    if unreadable is not None:
        instead = "annotate " + {"str_": "list[str]", "datetime64": "list[datetime]"}.get(unreadable, "np.ndarray")
        why = f"but no tensor has elements of numpy's {unreadable}"
    if instead is not None or not annotated.is_optional:
        raise TypeError(
            f"{declared.label}: parameter {annotated.given.name!r} is annotated {annotated.text}, {why}: {instead or _READABLE}"
        )


def _make_request_reader(signature: _Signature, inputs: Sequence[Input], declared: _Declared) -> RequestReader | None:
    """The reader of the one parameter that takes all tensors without a parameter of their own."""
    whole = [(p.request_codec, p.annotation.wanted) for p in signature.plain if p.request_codec is not None]
    if not whole:
        return None
    if len(whole) > 1 or signature.rest:
        raise TypeError(f"{declared.label}: only one parameter, or **inputs, can take all tensors that have no parameter of their own")
    codec = whole[0][0]
    if isinstance(codec, Rows):
        if taken := [spec.name for (spec, _), entry in zip(codec.inputs, inputs, strict=False) if entry.reader]:
            raise TypeError(f"{declared.label}: {codec.cls.__name__} has a field {taken[0]!r}, and so is a parameter called: rename one")
        return declared.codecs.request_reader(*whole[0], {})
    specs = {entry.name: entry.spec for entry in inputs if entry.spec is not None}
    reader = declared.codecs.request_reader(*whole[0], specs)
    for spec in specs.values():
        if spec.pd_dtype is not None:
            try:  # a wrong declaration fails here, and not each request
                read_column(Tensor(spec.name, np.empty(0, spec.dtype), dict(spec.parameters)), reader.decoders)
            except InvalidRequest as error:
                raise ValueError(f"{declared.label}: {error}") from None
    return reader


def _find_receiver(signature: _Signature, unnamed: Sequence[Input], declared: _Declared) -> _Annotated | None:
    """Decide which of `*inputs` and `**inputs` gets the inputs without a parameter of their own; None if neither does."""
    spread, rest = signature.spread, signature.rest
    if rest and not (spread and len(declared.specs) == len(unnamed) == 1):
        return rest
    if signature.takes_request or any(p.request_codec for p in signature.plain):
        return None
    if spread and not unnamed:
        raise TypeError(f"{declared.label} does not name its inputs: declare them with inputs=[TensorSpec(...)]")
    if unnamed and not spread:
        raise TypeError(
            f"{declared.label} has no parameter for the declared inputs {[entry.name for entry in unnamed]}: rename them or the "
            "parameters, or take **inputs"
        )
    return spread


def _read_each(annotated: _Annotated, inputs: Sequence[Input], declared: _Declared) -> Read:
    """Make the function that reads each tensor of `*inputs` or `**inputs`."""
    annotation, text, datatype = annotated.annotation, annotated.text, annotated.annotation.datatype
    if (annotation.declared is not None or annotation.shape is not None) and not declared.specs:
        raise TypeError(f"{declared.label}: {text} declares one tensor, but any number may come: use inputs=")
    if annotation.request_codec is not None:
        raise TypeError(f"{declared.label}: {text} is for a whole request: give it a parameter of its own")
    if annotated.reader is None:
        raise TypeError(f"{declared.label}: no tensor can become {inspect.formatannotation(annotation.wanted)}: annotate np.ndarray")
    other = _apply_declaration(Input(""), annotated.reader, declared)
    by_name = {entry.name: _apply_declaration(entry, annotated.reader, declared) for entry in inputs}

    def read(tensor: Tensor, of_request: str | None) -> Any:
        if datatype is not None and tensor.datatype != datatype:
            raise InvalidRequest(f"input {show(tensor.name)} has datatype {tensor.datatype}: expected {datatype}")
        return by_name.get(tensor.name, other).read(tensor, of_request)

    return read


def _check_content_type(reader: RequestReader | None, inputs: Sequence[Input], declared: _Declared) -> None:
    content_type = declared.content_type
    if declared.request_codec is not None:
        fits = reader is not None and reader.codec.content_type == content_type
    else:
        fits = content_type is None or reader is None or any(entry.reader for entry in inputs)
    if not fits:
        raise TypeError(f"{declared.label} has no parameter for content_type={content_type!r}: add one without annotation, or leave it out")


def _list_parameter_names(function: Callable[..., Any]) -> frozenset[str]:
    """The names of all parameters, also of bound ones (partial, method): no tensor for `**inputs` may have one of them."""
    function = unwrap_partial(function)
    if not inspect.isroutine(function):
        function = type(function).__call__
    parameters = inspect.signature(getattr(function, "__func__", function)).parameters.values()
    return frozenset(p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))
