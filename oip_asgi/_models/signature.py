"""A callable -> its parameters, and what the annotation of each asks for. Knows no requests and no models.

What no tensor can become is refused by `_check_readable` of `bind`, in the words of `_INSTEAD` here. What a
field of rows may be is decided by `make_field` of `_codecs/row_classes.py`.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from typing import Any, Final, NamedTuple

import numpy as np

from .._codecs.base import AnyRequestCodec
from .._codecs.content_types import UNTYPED, Codecs, Reader
from .._codecs.rows import find_rows
from .._protocol.context import InferenceContext
from .._protocol.specs import TensorSpec
from .._protocol.tensors import InferenceRequest
from .callables import ParsedAnnotation, find_owner, list_members, parse_annotation, unwrap_partial
from .estimators import list_columns

_OF_ONE_REQUEST: Final = (InferenceRequest, InferenceContext)
"""Types of parameters that take more of a request than its tensors. A function may have both."""


class Declared(NamedTuple):
    """What is registered beside the function, and what it is called in errors."""

    label: str
    specs: Sequence[TensorSpec]
    codecs: Codecs
    content_type: str | None
    request_codec: AnyRequestCodec | None  # that of the content type, if it makes one value of all tensors

    def find_type(self, spec: TensorSpec | None) -> str | None:
        return (spec and spec.content_type) or (None if self.request_codec else self.content_type)


class ParsedParameter(NamedTuple):
    """A parameter, and what its annotation asks for: all tensors without a parameter of their own, or one of
    them, or neither."""

    parameter: inspect.Parameter
    annotation: ParsedAnnotation
    request_codec: AnyRequestCodec | None
    reader: Reader | None
    name: str  # of its tensor

    @property
    def is_optional(self) -> bool:
        return self.parameter.default is not inspect.Parameter.empty

    @property
    def is_scalar(self) -> bool:
        return self.reader is not None and self.reader.scalar is not None

    @property
    def takes_request(self) -> bool:
        return self.request_codec is None and self.annotation.wanted in _OF_ONE_REQUEST

    @property
    def text(self) -> str:
        return inspect.formatannotation(self.parameter.annotation)


class Signature(NamedTuple):
    """The parameters of a callable: the plain ones, and `**inputs`."""

    plain: Sequence[ParsedParameter]
    rest: ParsedParameter | None
    returned: Any  # the annotation of the result
    untyped: ParsedParameter | None = None  # the one that content types such as `pd` are for
    # the columns with which its estimator was fitted; None for other functions
    fitted: Sequence[str] | None = None

    @property
    def of_one_request(self) -> type | None:
        """The type of a parameter that takes more of a request than its tensors, an `InferenceRequest` if
        there are two; None without such a parameter."""
        types = {p.annotation.wanted for p in self.plain if p.takes_request}
        return next((each for each in _OF_ONE_REQUEST if each in types), None)


def parse_signature(
    function: Callable[..., Any], specs: Sequence[TensorSpec], codecs: Codecs, content_type: str | None
) -> tuple[Signature, Declared]:
    """Parse the annotations, and find what the parameters are for. Returns what is declared for them too."""
    label = getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or repr(function)
    request_codec = codecs.requests[content_type] if content_type in codecs.request_only else None
    declared = Declared(label, specs, codecs, content_type, request_codec)
    names = _find_names_by_position(function, declared)
    if names is not None:
        unnamed = _parse_parameter(Parameter("x", Parameter.POSITIONAL_ONLY), declared)
        return Signature([unnamed._replace(name=name) for name in names], None, Parameter.empty), declared
    read = _read_signature(function, label)
    declared = declared._replace(label=f"{label}({', '.join(read.parameters)})")
    parsed = [_parse_parameter(parameter, declared) for parameter in read.parameters.values()]
    plain = [p for p in parsed if p.parameter.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)]
    spread = next((p for p in parsed if p.parameter.kind is Parameter.VAR_POSITIONAL), None)
    rest = next((p for p in parsed if p.parameter.kind is Parameter.VAR_KEYWORD), None)
    untyped = _find_untyped_parameter(plain, rest, declared)
    fitted = None if untyped is None else list_columns(find_owner(function))
    if fitted and request_codec is None and len(specs) == 1 and len(specs[0].shape) == 1:
        raise TypeError(
            f"{declared.label} was fitted with a data frame, and takes no array of one dimension: write "
            'content_type="pd"'
        )
    plain = _name_parameters(plain, rest, specs)
    if untyped is not None and request_codec is not None:
        # all tensors go to `untyped`, as for scikit-learn's `pipeline.predict(X, **params)`
        plain = [
            p._replace(request_codec=request_codec) if p.parameter is untyped.parameter else p for p in plain
        ]
        rest = None
    if spread is not None:
        plain, rest = _spread_inputs(plain, spread, rest, declared)
    return Signature(plain, rest, read.return_annotation, untyped, fitted), declared


def _find_names_by_position(function: Callable[..., Any], declared: Declared) -> list[str] | None:
    """The inputs of a ufunc, or of a callable whose signature Python cannot read; None for any other."""
    names, label = [spec.name for spec in declared.specs], declared.label
    if isinstance(function, np.ufunc):  # its signature has `out` and `where` too, which a client cannot send
        if names and len(names) != function.nin:
            raise TypeError(f"{label} takes {function.nin} inputs, but {len(names)} are declared")
        names = names or (
            ["x"] if function.nin == 1 else [f"x{index}" for index in range(1, function.nin + 1)]
        )
    else:
        try:
            inspect.signature(function)
            return None
        except (ValueError, TypeError):
            if not names:
                raise TypeError(
                    f"the signature of {label} cannot be read: declare its inputs, such as "
                    "inputs=[TensorSpec(...)]"
                ) from None
    if declared.request_codec is not None:
        raise TypeError(
            f"{label} has no parameter for content_type={declared.content_type!r}: wrap it in a def"
        )
    return names


def _read_signature(function: Callable[..., Any], label: str) -> inspect.Signature:
    """Read the signature, without the parameters that a partial has bound."""
    try:
        signature = inspect.signature(function, eval_str=True)
    except Exception as error:
        raise TypeError(
            f"an annotation of {label} cannot be resolved ({error}): import the name at run time, or drop it"
        ) from error
    if next(iter(signature.parameters), None) == "self":
        owner = label.rpartition(".")[0].rpartition(".")[2]
        instance = (
            f"{owner}(...).{label.rpartition('.')[2]}"
            if owner not in ("", "<locals>")
            else "an object's method"
        )
        raise TypeError(
            f"{label} is a method without its object, so `self` would be an input: register an instance's "
            f"method, such as {instance}, "
            "not the function of the class; if it needs no instance, make it a staticmethod"
        )
    if {"input_feed", "run_options"} <= signature.parameters.keys():
        raise TypeError(
            f"{label} takes a dict of arrays, as a session of ONNX Runtime does, and no tensor can become "
            "one: register a "
            'function, such as lambda x: session.run(None, {"x": x})[0]'
        )
    fixed = function.keywords if isinstance(function, functools.partial) else {}
    return signature.replace(parameters=[p for p in signature.parameters.values() if p.name not in fixed])


def _parse_parameter(parameter: inspect.Parameter, declared: Declared) -> ParsedParameter:
    for mark in (parameter.default, *getattr(parameter.annotation, "__metadata__", ())):
        if type(mark).__module__.partition(".")[0] == "fastapi":
            raise TypeError(
                f"{declared.label}: parameter {parameter.name!r} has {type(mark).__name__} of FastAPI, "
                "which only routes resolve: write "
                "install(..., dependencies=[...]), and take `context: InferenceContext`, whose transport is "
                "the scope"
            )
    codecs = declared.codecs
    annotation = choose_type(parse_annotation(parameter.annotation), codecs)
    request_codec = annotation.request_codec
    if request_codec is None and annotation.codec is None:
        request_codec = codecs.request_codec_for_annotation(annotation.wanted)
    reader = codecs.make_reader(annotation.wanted, annotation.codec)
    if request_codec is None and reader is None:
        try:
            request_codec = find_rows(annotation.wanted)
        except TypeError as error:
            raise TypeError(f"{declared.label}: parameter {parameter.name!r}: {error}") from None
        if request_codec is not None and parameter.default is not inspect.Parameter.empty:
            raise TypeError(
                f"{declared.label}: parameter {parameter.name!r} is rows, which each request has: leave its "
                "default out"
            )
    return ParsedParameter(parameter, annotation, request_codec, reader, parameter.name)


def _find_untyped_parameter(
    plain: Sequence[ParsedParameter], rest: ParsedParameter | None, declared: Declared
) -> ParsedParameter | None:
    """The parameter that content types such as `pd` are for: the only one without annotation, if no other
    takes all tensors."""
    if (rest and declared.request_codec is None) or any(p.request_codec for p in plain):
        return None
    untyped = [
        p for p in plain if p.annotation.wanted in UNTYPED and not p.annotation.codec and not p.is_optional
    ]
    return untyped[0] if len(untyped) == 1 else None


def _name_parameters(
    plain: Sequence[ParsedParameter], rest: ParsedParameter | None, specs: Sequence[TensorSpec]
) -> list[ParsedParameter]:
    """The parameters by the names of their tensors. If there is one, such as `X` of `predict(X)`, it takes
    the only declared input."""
    named = list(plain)
    if len(specs) == 1 and all(specs[0].name != p.name for p in plain):
        others_take_it = rest is not None or take_all(plain)
        tensors = [
            p
            for p in plain
            if p.parameter.kind is not Parameter.KEYWORD_ONLY
            and p.reader
            and not p.request_codec
            and not (p.is_scalar and others_take_it)
        ]
        # what must be there before what may be, and arrays before scalars
        ranks = [(p.is_optional, p.is_scalar) for p in tensors]
        if ranks and ranks.count(min(ranks)) == 1:
            place = plain.index(tensors[ranks.index(min(ranks))])
            named[place] = plain[place]._replace(name=specs[0].name)
    return named


def take_all(plain: Sequence[ParsedParameter]) -> bool:
    """Whether a parameter takes all tensors that have no parameter of their own."""
    return any(p.request_codec or p.annotation.wanted is InferenceRequest for p in plain)


def _spread_inputs(
    plain: list[ParsedParameter],
    spread: ParsedParameter,
    rest: ParsedParameter | None,
    declared: Declared,
) -> tuple[list[ParsedParameter], ParsedParameter | None]:
    """What a function with `*inputs` takes: it has a parameter by position for each declared input without
    one. Beside `**inputs`, it has one for the only input."""
    names = [spec.name for spec in declared.specs]
    if (rest is not None and len(names) != 1) or take_all(plain):
        return plain, rest
    if not names:
        raise TypeError(
            f"{declared.label} does not name its inputs: declare them with inputs=[TensorSpec(...)]"
        )
    if take_all([spread]):
        raise TypeError(
            f"{declared.label}: each of *{spread.name} gets one tensor, and no whole request or data frame"
        )
    taken = {p.name for p in plain if p.reader}
    by_position = spread._replace(parameter=spread.parameter.replace(kind=Parameter.POSITIONAL_ONLY))
    before = [
        p
        if p.parameter.kind is Parameter.KEYWORD_ONLY
        else p._replace(parameter=p.parameter.replace(kind=Parameter.POSITIONAL_ONLY))
        for p in plain
    ]
    return [*before, *(by_position._replace(name=name) for name in names if name not in taken)], None


def list_parameter_names(function: Callable[..., Any]) -> frozenset[str]:
    """The names of all parameters, also of bound ones (partial, method): no tensor for `**inputs` may have
    one of them."""
    function = unwrap_partial(function)
    if not inspect.isroutine(function):
        function = type(function).__call__
    parameters = inspect.signature(getattr(function, "__func__", function)).parameters.values()
    return frozenset(p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))


# The type that a parameter gets, and what to write in the place of one that no tensor can be


def choose_type(parsed: ParsedAnnotation, codecs: Codecs) -> ParsedAnnotation:
    """Choose the member of a union that a parameter gets: the array or the data frame. With both, a request's
    content type decides."""
    types = list_members(parsed.wanted)
    members = list(map(parse_annotation, types))
    array = next(
        (each for each, kind in zip(members, types, strict=True) if _is_array(each, kind)),
        None,
    )
    frames = [
        member.wanted
        for member in members
        if member.wanted in UNTYPED or codecs.request_codec_for_annotation(member.wanted)
    ]
    if array is not None and frames:
        return parsed._replace(wanted=Parameter.empty)
    if array is not None:
        return array._replace(wanted=np.ndarray, declared=parsed.declared or array.declared)
    if frames:
        return parsed._replace(wanted=frames[0])
    if {member.wanted for member in members} == {int, float}:
        return parsed._replace(wanted=float)
    return parsed


def _is_array(parsed: ParsedAnnotation, kind: Any) -> bool:
    """Whether a member of a union is an array, or a part of `numpy.typing.ArrayLike`."""
    module = str(getattr(typing.get_origin(kind) or kind, "__module__", ""))
    return parsed.wanted is np.ndarray or module.startswith("numpy._typing")


def find_instead(annotation: Any) -> str | None:
    """What to write in the place of a type that a client may want to send. None if it could not be sent in
    any form."""
    arguments = typing.get_args(annotation)
    element = arguments[0] if typing.get_origin(annotation) is list and arguments else annotation
    classes = getattr(element, "__mro__", (typing.get_origin(element) or element,))
    modules = [str(getattr(cls, "__module__", "")).partition(".")[0] for cls in classes]
    names = [f"{module}.{getattr(cls, '__name__', '')}" for module, cls in zip(modules, classes, strict=True)]
    return next((_INSTEAD[name] for name in names if name in _INSTEAD), None)


_DATES: Final = "annotate list[datetime]: dates are BYTES, with the content type datetime"

_INSTEAD: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("builtins.bytes", "builtins.bytearray", "builtins.memoryview"),
        "annotate list[bytes], or str for one text",
    ),
    "numpy.bool": "annotate bool for one value, or npt.NDArray[np.bool_] for an array",
    "numpy.integer": "annotate int for one number, or npt.NDArray[np.int64] or the like for an array",
    "numpy.number": "annotate float for one number, or npt.NDArray[np.float32] or the like for an array",
    "numpy.generic": "annotate np.ndarray for an array, str for one text, or list[datetime] for dates",
    **dict.fromkeys(("datetime.date", "datetime.time", "datetime.timedelta"), _DATES),
    "enum.Enum": "annotate str or int, and make the member of it in the function",
    "typing.Literal": "annotate str or int, and check the value in the function",
    "polars.DataFrame": "annotate pd.DataFrame, and write polars.from_pandas(frame)",
    "pyarrow.Table": "annotate pd.DataFrame, and write pyarrow.Table.from_pandas(frame)",
    "xgboost.DMatrix": "register the booster's inplace_predict, which takes arrays and data frames",
}
"""What to write, by the library and the name of a class, or of that of the elements of a list."""
