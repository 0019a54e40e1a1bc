"""A callable and its declared inputs -> the `Binding` that calls it with a request. Runs once, at
registration. Knows no requests.

`bind` has the steps, in their order; then comes each step.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from .._codecs.columns import read_column
from .._codecs.content_types import (
    UNTYPED,
    Codecs,
    Reader,
    RequestReader,
    get_array,
    make_column_reader,
    make_request_reader,
)
from .._codecs.dataframes import PandasCodec
from .._codecs.rows import Rows
from .._extensions.common import OF_PROTOCOL
from .._protocol.errors import InvalidRequest, show
from .._protocol.limits import LOOP_BYTES, LOOP_COLUMNS
from .._protocol.specs import TensorSpec
from .._protocol.tensors import InferenceRequest, Tensor
from .arguments import (
    PLAIN,
    Arguments,
    Binding,
    Parameter,
    Read,
    take_array,
    take_default,
    take_request,
    take_scalar,
    take_tensor,
    take_unnamed,
)
from .callables import STREAMS, find_description, kind_of, parse_return
from .estimators import is_written_by_library
from .inputs import Becomes, Input, make_inputs
from .signature import (
    Declared,
    ParsedParameter,
    Signature,
    find_instead,
    list_parameter_names,
    parse_signature,
    take_all,
)


def bind(
    function: Callable[..., Any],
    specs: Sequence[TensorSpec],
    codecs: Codecs,
    content_type: str | None,
    optional: Collection[str] = (),
) -> Binding:
    """Decide how each parameter's value is made. A request may leave out the `optional` inputs."""
    signature, declared = parse_signature(function, specs, codecs, content_type)
    known = _list_known_inputs(signature, optional, declared)
    inputs, parameters = _take_parameters(signature, known, declared)
    whole = _make_request_reader(signature, inputs, declared)
    _check_content_type(whole, inputs, declared)
    arguments = _make_arguments(function, signature, inputs, parameters, whole, declared)
    rest, of_rest = signature.rest, _find_what_becomes(signature.rest, whole)
    has_unnamed = any(entry.reader is None for entry in inputs)
    is_open = (rest or take_all(signature.plain)) and not (specs or has_unnamed)
    accepted = make_inputs(
        [_describe_input(entry, rest, of_rest) for entry in inputs], of_rest if is_open else None
    )
    return Binding(
        inputs=accepted,
        arguments=arguments,
        codecs=codecs,
        returned=parse_return(signature.returned, codecs, streams=kind_of(function, "thread") in STREAMS),
        description="" if is_written_by_library(function) else find_description(function),
        refused=frozenset()
        if arguments.read_parameters
        else frozenset(p.name for p in signature.plain if not p.is_scalar),
        is_plain={taken.from_ for taken in parameters} <= PLAIN and not (rest or accepted.ranged),
        most_on_loop=LOOP_COLUMNS if of_rest in ("series", "column") else LOOP_BYTES,
        is_untyped=signature.untyped is not None,
        knows_columns=signature.fitted != [] or declared.request_codec is not PandasCodec or len(specs) > 0,
    )


def _list_known_inputs(
    signature: Signature, optional: Collection[str], declared: Declared
) -> dict[str, Input]:
    """The inputs that are known before the parameters are looked at, in the order in which they are taken:
    the declared ones, or the columns of the frame of the training, whose order counts if these are
    declared."""
    specs = {spec.name: spec for spec in declared.specs}
    if len(specs) != len(declared.specs):
        raise ValueError(
            f"{declared.label}: two inputs have the same name among {[spec.name for spec in declared.specs]}"
        )
    rows = next((p.request_codec for p in signature.plain if isinstance(p.request_codec, Rows)), None)
    if rows is not None:
        if specs:
            raise TypeError(f"{declared.label}: {rows.cls.__name__} declares the inputs: leave inputs= out")
        return {
            spec.name: Input(spec.name, spec, content_type=spec.content_type, is_needed=is_needed)
            for spec, is_needed in rows.inputs
        }
    columns = signature.fitted or ()
    if not specs and declared.request_codec is PandasCodec:
        return {name: Input(name) for name in columns}
    return {
        name: Input(
            name, specs[name], content_type=declared.find_type(specs[name]), is_needed=name not in optional
        )
        for name in (columns if set(columns) == specs.keys() else specs)
    }


def _make_request_reader(
    signature: Signature, inputs: Sequence[Input], declared: Declared
) -> RequestReader | None:
    """The reader of the one parameter that takes all tensors without a parameter of their own."""
    whole = [(p.request_codec, p.annotation.wanted) for p in signature.plain if p.request_codec is not None]
    if not whole:
        return None
    if len(whole) > 1 or signature.rest:
        raise TypeError(
            f"{declared.label}: only one parameter, or **inputs, can take all tensors that have no "
            "parameter of their own"
        )
    [(codec, annotation)] = whole
    if isinstance(codec, Rows):
        fields = {spec.name for spec, _ in codec.inputs}
        if taken := [entry.name for entry in inputs if entry.reader and entry.name in fields]:
            raise TypeError(
                f"{declared.label}: {codec.cls.__name__} has a field {taken[0]!r}, and so is a parameter "
                "called: rename one"
            )
    known = {entry.name: entry.spec for entry in inputs if entry.reader is None}
    reader = make_request_reader(codec, annotation, {} if isinstance(codec, Rows) else known)
    for spec in filter(None, reader.known.values()):
        if spec.pd_dtype is not None:
            try:  # a wrong declaration fails here, and not each request
                read_column(Tensor(spec.name, np.empty(0, spec.dtype), dict(spec.parameters)))
            except InvalidRequest as error:
                raise ValueError(f"{declared.label}: {error}") from None
    return reader


def _make_arguments(
    function: Callable[..., Any],
    signature: Signature,
    inputs: Sequence[Input],
    parameters: Sequence[Parameter],
    whole: RequestReader | None,
    declared: Declared,
) -> Arguments:
    """How the arguments are made. Inputs without a parameter of their own go to `**inputs`, or to what takes
    all of these."""
    rest, unnamed = signature.rest, [entry for entry in inputs if entry.reader is None]
    if unnamed and rest is None and not take_all(signature.plain):
        raise TypeError(
            f"{declared.label} has no parameter for the declared inputs "
            f"{[entry.name for entry in unnamed]}: rename them or the "
            "parameters, or take **inputs"
        )
    named = frozenset(entry.name for entry in inputs if entry.reader)
    reserved = frozenset() if rest is None else list_parameter_names(function) - named
    if clashing := sorted(reserved.intersection(entry.name for entry in unnamed)):
        raise TypeError(
            f"{declared.label}: the declared input {clashing[0]!r} has the name of a parameter that is "
            "something else: rename one of them"
        )
    return Arguments(
        parameters=parameters,
        rest=None if rest is None else _make_each_reader(rest, unnamed, declared),
        whole=whole,
        named=named,
        reserved=reserved,
        of_one_request=signature.of_one_request,
    )


def _make_each_reader(annotated: ParsedParameter, inputs: Sequence[Input], declared: Declared) -> Read:
    """Make the function that reads each tensor of `**inputs`."""
    annotation, text, datatype = annotated.annotation, annotated.text, annotated.annotation.datatype
    if annotation.declared is not None and not declared.specs:
        raise TypeError(f"{declared.label}: {text} declares one tensor, but any number may come: use inputs=")
    if annotated.request_codec is not None or annotated.reader is None:
        raise TypeError(
            f"{declared.label}: no tensor can become {text}: annotate np.ndarray, or give what takes a whole "
            "request a parameter of its own"
        )
    other = _fit_reader(Input(""), annotated.reader, declared)
    by_name = {entry.name: _fit_reader(entry, annotated.reader, declared) for entry in inputs}

    def read(tensor: Tensor, of_request: str | None) -> Any:
        if datatype is not None and tensor.datatype != datatype:
            raise InvalidRequest(
                f"input {show(tensor.name)} has datatype {tensor.datatype}: expected {datatype}"
            )
        return by_name.get(tensor.name, other).read(tensor, of_request)

    return read


def _check_content_type(reader: RequestReader | None, inputs: Sequence[Input], declared: Declared) -> None:
    content_type = declared.content_type
    if declared.request_codec is not None:
        fits = reader is not None and reader.codec.content_type == content_type
    else:
        fits = content_type is None or reader is None or any(entry.reader for entry in inputs)
    if not fits:
        raise TypeError(
            f"{declared.label} has no parameter for content_type={content_type!r}: add one without "
            "annotation, or leave it out"
        )


def _find_what_becomes(rest: ParsedParameter | None, whole: RequestReader | None) -> Becomes:
    """What becomes of an input without a parameter of its own: `**inputs` gets it, or `whole` reads all of
    these."""
    if whole is not None and isinstance(whole.codec, Rows):
        return "field"
    if whole is not None and whole.codec.content_type == PandasCodec.content_type:
        return "column"
    return "series" if rest is not None and rest.reader is not None and rest.reader.is_column else "value"


def _describe_input(entry: Input, rest: ParsedParameter | None, of_rest: Becomes) -> Input:
    """An input, and what becomes of it: `of_rest` if it has no parameter of its own."""
    reader = entry.reader or (rest and rest.reader)
    is_unannotated = entry.spec is not None and reader is not None and not reader.annotation
    becomes: Becomes = of_rest
    if entry.reader is not None:
        becomes = "series" if entry.reader.is_column else "value"
    elif becomes == "value" and entry.spec is not None and entry.spec.pd_dtype:
        becomes = "series"
    return msgspec.structs.replace(entry, is_unannotated=is_unannotated, becomes=becomes)


_READABLE: Final = (
    "annotate np.ndarray, float, int, bool, str, list[str], list[bytes], list[datetime], torch.Tensor, "
    "pd.DataFrame, "
    "InferenceRequest or InferenceContext, name a codec in Annotated, or bind a value with functools.partial"
)


def _take_parameters(
    signature: Signature, known: Mapping[str, Input], declared: Declared
) -> tuple[list[Input], list[Parameter]]:
    """All inputs, and how the value of each plain parameter is made. A parameter that always has its default
    is left out."""
    inputs, parameters = {**known}, list[Parameter]()
    for annotated in signature.plain:
        entry, parameter = _take_parameter(annotated, inputs, declared)
        if entry is not None:
            inputs[entry.name] = entry
        is_by_position = annotated.parameter.kind is inspect.Parameter.POSITIONAL_ONLY
        if is_by_position or parameter.from_ is not take_default:
            parameters.append(
                parameter._replace(keyword=None if is_by_position else annotated.parameter.name)
            )
    return list(inputs.values()), parameters


def _take_parameter(
    annotated: ParsedParameter, inputs: Mapping[str, Input], declared: Declared
) -> tuple[Input | None, Parameter]:
    """The input that a parameter has of its own, or declares, if there is one; and how its value is made."""
    parameter, annotation, request_codec, reader, name = annotated
    spec = _find_own_spec(annotated, declared)
    name = name if spec is None else spec.name
    entry = inputs.get(name, Input(name))
    if spec is not None:
        entry = msgspec.structs.replace(entry, spec=spec, content_type=declared.find_type(spec))
    if request_codec is not None:
        return (None if spec is None else entry), Parameter(name, from_=take_unnamed)
    if annotated.takes_request:
        return None, Parameter(name, from_=take_request if annotation.wanted is InferenceRequest else None)
    is_left_out = declared.specs and name not in inputs and not annotated.is_scalar
    if is_left_out and not annotated.is_optional:
        frame = (
            '; if it takes a data frame of all of them, write content_type="pd"'
            if len(declared.specs) > 1
            else ""
        )
        raise TypeError(
            f"{declared.label}: parameter {parameter.name!r} is not among the declared inputs "
            f"{[spec.name for spec in declared.specs]}: declare it, rename it, or give it a default{frame}"
        )
    if not is_left_out:
        _check_readable(annotated, declared)
    if is_left_out or reader is None:
        return None, Parameter(name, default=parameter.default, from_=take_default)
    return _take_input(annotated, reader, entry, inputs, declared)


def _take_input(
    annotated: ParsedParameter,
    reader: Reader,
    entry: Input,
    inputs: Mapping[str, Input],
    declared: Declared,
) -> tuple[Input, Parameter]:
    """The input of a parameter with one of its own, and how its value is made of that."""
    name, annotation, default = entry.name, annotated.annotation, annotated.parameter.default
    if entry.reader is not None:
        names = sorted(other.name for other in inputs.values() if other.reader is not None)
        raise ValueError(f"{declared.label}: two inputs have the same name among {[*names, name]}")
    _check_datatype(entry, (annotation.datatype,) if annotation.datatype else (), annotated.text, declared)
    if reader.scalar is not None and name in OF_PROTOCOL and entry.spec is None:
        raise TypeError(
            f"{declared.label}: the protocol itself uses the parameter {name!r} of a request, so a scalar "
            "of this name never gets "
            "its value: rename it, or take `context: InferenceContext` and read "
            f"context.parameters.get({name!r})"
        )
    reader = _fit_reader(entry, reader, declared)
    taken = msgspec.structs.replace(
        entry,
        reader=reader,
        is_needed=not annotated.is_optional,
        content_type=reader.content_type,
    )
    take = take_array if reader.default is get_array else take_tensor
    from_ = take if reader.scalar is None else functools.partial(take_scalar, reader.scalar)
    return taken, Parameter(name, reader.read, default, from_)


def _find_own_spec(annotated: ParsedParameter, declared: Declared) -> TensorSpec | None:
    """What the annotation of a parameter declares."""
    annotation = annotated.annotation
    spec = annotation.spec(annotated.name)
    if spec is None or (declared.specs and annotation.declared is None):
        return None
    if declared.specs:
        raise TypeError(f"{declared.label} is declared twice, by inputs= and by Annotated: use one of them")
    is_untyped = annotation.wanted in UNTYPED and annotation.request_codec is None
    if not is_untyped and (annotated.request_codec is not None or annotated.takes_request):
        raise TypeError(
            f"{declared.label}: {annotated.parameter.name!r} is no single tensor, so a TensorSpec declares "
            "nothing there: use inputs="
        )
    return spec


def _fit_reader(entry: Input, reader: Reader, declared: Declared) -> Reader:
    """The reader of an input, for the declared content type if there is one. The annotation says which are
    allowed."""
    name, spec, content_type = entry.name, entry.spec, declared.find_type(entry.spec)
    if spec is None and reader.scalar is not None:
        return reader  # the content type that is declared for all is for those that are declared
    if spec is not None:
        _check_datatype(entry, reader.datatypes, reader.annotation, declared)
        if reader.scalar is not None and any(size not in (1, -1) for size in spec.shape):
            raise TypeError(
                f"{declared.label}: input {name!r} is declared with shape {list(spec.shape)}: declare [1] "
                f"for {reader.annotation}"
            )
        if reader.is_column:
            reader = make_column_reader(reader.annotation, spec)
    if content_type is None:
        return reader
    default = reader.by_content_type.get(content_type)
    if default is None:
        raise TypeError(
            f"{declared.label}: the content_type {content_type!r} that is declared for {name!r} cannot "
            f"become {reader.annotation}: "
            f"declare {', '.join(reader.by_content_type)}, or leave it out"
        )
    return msgspec.structs.replace(reader, default=default, content_type=content_type)


def _check_datatype(entry: Input, datatypes: Collection[str], annotation: str, declared: Declared) -> None:
    if datatypes and entry.spec is not None and entry.spec.datatype not in datatypes:
        raise TypeError(
            f"{declared.label}: input {entry.name!r} is declared with datatype {entry.spec.datatype}, which "
            f"cannot become {annotation}: "
            f"declare {' or '.join(datatypes)}, or annotate another type"
        )


def _check_readable(annotated: ParsedParameter, declared: Declared) -> None:
    """Refuse an annotation that no tensor can become, unless the parameter can always have its default."""
    unreadable, codec = annotated.annotation.unreadable, annotated.annotation.codec
    if annotated.reader is not None and (unreadable is None or codec is not None):
        return
    instead, why = find_instead(annotated.annotation.wanted), "which no tensor can become"
    if unreadable is not None:
        instead = "annotate " + {"str_": "list[str]", "datetime64": "list[datetime]"}.get(
            unreadable, "np.ndarray"
        )
        why = f"but no tensor has elements of numpy's {unreadable}"
    if instead is not None or not annotated.is_optional:
        raise TypeError(
            f"{declared.label}: parameter {annotated.parameter.name!r} is annotated {annotated.text}, "
            f"{why}: {instead or _READABLE}"
        )
