"""The parameters of a callable, and what is declared -> its inputs, and how the value of each parameter is made of them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from .._codecs.content_types import UNTYPED, Reader, get_array
from .._extensions.reserved import OF_PROTOCOL
from .._protocol.specs import TensorSpec
from .._protocol.tensors import InferenceRequest
from .binding import Input, Parameter, take_array, take_context, take_default, take_request, take_scalar, take_tensor, take_unnamed
from .parameter_types import find_instead
from .signature import OF_ONE_REQUEST, Declared, ParsedParameter, Signature

_READABLE: Final = (
    "annotate np.ndarray, float, int, bool, str, list[str], list[bytes], list[datetime], torch.Tensor, pd.DataFrame, "
    "InferenceRequest or InferenceContext, name a codec in Annotated, or bind a value with functools.partial"
)


def take_parameters(signature: Signature, inputs: dict[str, Input], declared: Declared) -> tuple[Sequence[Input], Sequence[Parameter]]:
    """All inputs, and how the value of each plain parameter is made, but for those that always have their default."""
    parameters: list[Parameter] = []
    for annotated, name in zip(signature.plain, signature.names, strict=True):
        kind, entry, parameter = annotated.parameter.kind, *_take_parameter(annotated, name, inputs, declared)
        inputs = inputs if entry is None else {**inputs, entry.name: entry}
        # parameters before `*inputs` cannot be passed by keyword
        is_by_position = kind is inspect.Parameter.POSITIONAL_ONLY or (signature.spread and kind is not inspect.Parameter.KEYWORD_ONLY)
        if is_by_position or parameter.from_ is not take_default:
            parameters.append(parameter._replace(keyword=None if is_by_position else annotated.parameter.name))
    scalars = {name: entry for name, entry in inputs.items() if entry.is_scalar}
    columns = signature.fitted or ()
    if set(columns) == inputs.keys() - scalars.keys():  # they are taken in the order of the frame of the training
        inputs = {name: inputs[name] for name in columns} | scalars
    return list(inputs.values()), parameters


def _take_parameter(
    annotated: ParsedParameter, name: str, inputs: Mapping[str, Input], declared: Declared
) -> tuple[Input | None, Parameter]:
    """Decide how the value of one parameter is made. Returns its input, if it has one of its own or declares one, and that."""
    parameter, annotation, request_codec, reader = annotated
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
            f"{declared.label}: parameter {parameter.name!r} is not among the declared inputs "
            f"{[spec.name for spec in declared.specs]}: declare it, rename it, or give it a default{frame}"
        )
    if not is_left_out:
        _check_readable(annotated, declared)
    if is_left_out or reader is None:
        return None, Parameter(name, default=parameter.default, from_=take_default)
    if entry.reader is not None:
        names = sorted(other.name for other in inputs.values() if other.reader is not None)
        raise ValueError(f"{declared.label}: two inputs have the same name among {[*names, name]}")
    if declared.specs and annotation.datatype is not None:
        _check_datatype(entry, [annotation.datatype], annotated.text, declared)
    return _take_tensor(entry, apply_declaration(entry, reader, declared), parameter.default, declared)


def _find_own_spec(annotated: ParsedParameter, name: str, declared: Declared) -> TensorSpec | None:
    """What the annotation of a parameter declares."""
    parameter, annotation, request_codec, _ = annotated
    spec = annotation.declared if declared.specs and request_codec is None else annotation.spec(name)
    if spec is None:
        return None
    is_untyped = annotation.wanted in UNTYPED and annotation.request_codec is None
    if not is_untyped and (request_codec is not None or annotation.wanted in OF_ONE_REQUEST):
        if declared.specs:
            return None
        raise TypeError(f"{declared.label}: {parameter.name!r} is no single tensor, so a TensorSpec declares nothing there: use inputs=")
    if declared.specs:
        raise TypeError(f"{declared.label} is declared twice, by inputs= and by Annotated: use one of them")
    return spec


def _take_tensor(entry: Input, reader: Reader, default: Any, declared: Declared) -> tuple[Input, Parameter]:
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


def apply_declaration(entry: Input, reader: Reader, declared: Declared) -> Reader:
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


def _check_datatype(entry: Input, datatypes: Collection[str], annotation: str, declared: Declared) -> None:
    if datatypes and entry.spec is not None and entry.spec.datatype not in datatypes:
        raise TypeError(
            f"{declared.label}: input {entry.name!r} is declared with datatype {entry.spec.datatype}, which cannot become {annotation}: "
            f"declare {' or '.join(datatypes)}, or annotate another type"
        )


def _check_readable(annotated: ParsedParameter, declared: Declared) -> None:
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
            f"{declared.label}: parameter {annotated.parameter.name!r} is annotated {annotated.text}, {why}: {instead or _READABLE}"
        )
