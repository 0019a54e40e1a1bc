"""What a user's function says of itself: how it is called, where it is written, what the annotation of a
parameter or of a result means; and what is known of a model's outputs by that. `as_` and `rows` read a
response by the same annotations. Knows no signatures and no requests.

Which codec is for which annotation is decided in `_codecs.content_types`.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from types import CoroutineType, NoneType, UnionType
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

from .._codecs.base import AnyInputCodec, AnyRequestCodec
from .._codecs.content_types import (
    SCALARS,
    Codecs,
    check_complete,
    default_codecs,
    is_input_codec,
    is_request_codec,
)
from .._codecs.row_classes import REFUSED_AS_RESULTS, has_fields, refuse_class
from .._codecs.rows import Rows, find_rows_of_result, make_rows
from .._protocol.datatypes import DTYPES, Datatype, DType, datatype_of
from .._protocol.errors import InvalidRequest, InvalidResponse, ModelFault, show
from .._protocol.specs import OpenSpec, TensorSpec
from .._protocol.tensors import InferenceResponse, find_tensor

T = TypeVar("T")

Kind: TypeAlias = Literal["thread", "inline", "async", "stream", "async stream"]
"""How a model's function runs. A `def` runs in a worker thread: on the event loop it would hold up all other
requests and health probes. It runs there, inline, only if its user says so. Under WSGI it runs in the
server's own thread, unless it has a timeout. A generator's items are made in worker threads too. A coroutine
function and an async generator run on the event loop."""

STREAMS: Final[frozenset[Kind]] = frozenset({"stream", "async stream"})
"""Those that answer a request more than once."""


def unwrap_partial(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def find_owner(function: Callable[..., Any]) -> object:
    """The object whose method a function is, or a partial of one; None for any other."""
    return getattr(unwrap_partial(function), "__self__", None)


def kind_of(function: Callable[..., Any], run: Literal["thread", "inline"]) -> Kind:
    """How a callable runs. It may be a partial, or an object with `__call__`."""
    function = unwrap_partial(function)
    for called in (function, type(function).__call__):
        if inspect.iscoroutinefunction(called):
            return "async"
        if inspect.isasyncgenfunction(called):
            return "async stream"
        if inspect.isgeneratorfunction(called):
            return "stream"
    return run


def find_place(function: Callable[..., Any]) -> str:
    """Where a function is written, as in a traceback. Empty for one that is not written in Python."""
    function = inspect.unwrap(unwrap_partial(function))
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return "" if code is None else f'File "{code.co_filename}", line {code.co_firstlineno}, in {code.co_name}'


def find_description(function: Callable[..., Any]) -> str:
    """The docstring of a function, up to a form feed, as FastAPI has it; of an object with `__call__`, that
    of its class."""
    return (inspect.getdoc(unwrap_partial(function)) or "").partition("\f")[0].strip()


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling gives something to await."""
    return kind_of(function, "thread") == "async"


def refuse_coroutine(result: Any) -> Any:
    """The result of a call, unless it is a coroutine that nobody would await."""
    if isinstance(result, CoroutineType):
        result.close()
        raise ModelFault("it returned a coroutine: register the async def itself")
    return result


# Annotations

_ITERATED: Final = frozenset({Iterator, Iterable, Generator, AsyncIterator, AsyncIterable, AsyncGenerator})

_ABSTRACT: Final = frozenset(
    {
        np.generic,
        np.number,
        np.integer,
        np.signedinteger,
        np.unsignedinteger,
        np.inexact,
        np.floating,
        np.complexfloating,
        np.flexible,
        np.character,
    }
)
"""numpy's classes of several dtypes: an annotation with one of them names no datatype."""

_ELEMENTS: Final = {kind: DTYPES[scalar.datatypes[0]] for kind, scalar in SCALARS.items()} | {
    bytes: DTYPES["BYTES"]
}
"""The dtypes of lists of these."""


_KNOWN: Final = typing.get_args(Datatype)


class ParsedAnnotation(NamedTuple):
    """The type that an annotation wants, without `Optional` and `Annotated`, and what else it says: None
    where it says nothing."""

    wanted: Any
    declared: TensorSpec | None = None
    codec: AnyInputCodec | None = None
    request_codec: AnyRequestCodec | None = None
    datatype: Datatype | None = None  # without a TensorSpec
    unreadable: str | None = None  # numpy's name for elements that no input can hold

    def spec(self, name: str) -> TensorSpec | None:
        """The `TensorSpec` in `Annotated`, else one of this name for the datatype; None if the annotation
        says neither."""
        if self.declared is not None or self.datatype is None:
            return self.declared
        return OpenSpec(name, self.datatype, [-1], any_shape=True)


def parse_annotation(annotation: Any) -> ParsedAnnotation:
    """The parts of an annotation. Raises TypeError or ValueError with what to write, if it can mean
    nothing."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    alias = getattr(origin or annotation, "__value__", None)
    if alias is not None:  # a `type` statement, as NDArray is one since numpy 2.5
        return parse_annotation(alias[args] if origin else alias)
    if origin is Annotated:
        inner, *extras = args
        # what nobody but a tensor has: a datatype, or a shape
        if any(
            each.upper() in _KNOWN
            if isinstance(each, str)
            else type(each) is list and {*map(type, each)} == {int}
            for each in extras
        ):
            raise TypeError(
                f"{inspect.formatannotation(annotation)} declares nothing of a tensor: write an annotation "
                'such as NDArray[np.float32], or TensorSpec("x", "FP32", [-1, 4]) as a part of it'
            )
        codec = next((extra for extra in extras if is_input_codec(extra) or is_request_codec(extra)), None)
        if codec is not None:
            check_complete(codec, inspect.formatannotation(annotation))
        return parse_annotation(inner)._replace(
            declared=next((extra for extra in extras if isinstance(extra, TensorSpec)), None),
            codec=codec if is_input_codec(codec) else None,
            request_codec=codec if is_request_codec(codec) else None,
        )
    members = list_members(annotation)
    if len(members) == 1:
        return parse_annotation(members[0])
    return _parse_array(args) if origin is np.ndarray else ParsedAnnotation(annotation)


def list_members(annotation: Any) -> Sequence[Any]:
    """The types of a union, but for None; none for any other annotation."""
    if typing.get_origin(annotation) not in (typing.Union, UnionType):
        return ()
    return [member for member in typing.get_args(annotation) if member is not NoneType]


def _parse_array(args: Sequence[Any]) -> ParsedAnnotation:
    """Parse the arguments of `np.ndarray[shape, np.dtype[scalar]]`, which `npt.NDArray[scalar]` stands for.
    Nothing is read of the shape."""
    datatype: Datatype | None
    parsed, dtype = ParsedAnnotation(np.ndarray), args[1] if len(args) == 2 else None
    scalar = next(iter(typing.get_args(dtype)), None) if typing.get_origin(dtype) is np.dtype else None
    if not isinstance(scalar, type) or not issubclass(scalar, np.generic) or scalar in _ABSTRACT:
        return parsed
    if issubclass(scalar, (np.object_, np.character)):
        datatype, unreadable = "BYTES", "str_" if issubclass(scalar, np.str_) else None
    else:
        datatype = datatype_of(np.dtype(scalar).newbyteorder("<"))
        unreadable = scalar.__name__ if datatype is None else None
    return parsed._replace(datatype=datatype, unreadable=unreadable)


def as_(response: InferenceResponse, name: str, annotation: Any) -> Any:
    """The value of the output called `name`, as a model's parameter with this annotation would receive it.

    Args:
        name: The output's name.
        annotation: Such as `list[str]`, `list[bytes]`, `list[datetime]`, `npt.NDArray[np.float32]`, `float`,
            or `Annotated[Image, ImageCodec]` with a codec of your own. For a data frame, which is a whole
            response, write `PandasCodec.decode_response(response)`.

    Raises:
        KeyError: There is no such output.
        TypeError: No output becomes what the annotation asks for.
        InvalidResponse: The output does not hold such a value.

    Example:
        >>> InferenceResponse([Tensor("names", ["Ada", "Grace"])]).as_("names", list[str])
        ['Ada', 'Grace']
    """
    tensor = find_tensor(response.outputs, name, "output")
    of_response = response.parameters.get("content_type")
    parsed, written = parse_annotation(annotation), inspect.formatannotation(annotation)
    reader = default_codecs().make_reader(parsed.wanted, parsed.codec)
    if reader is None:
        raise TypeError(
            f"as_({name!r}, {written}): no output becomes this: write np.ndarray, list[str], float or the "
            "like"
        )
    if parsed.datatype not in (None, tensor.datatype):
        raise InvalidResponse(
            f"output {show(name)} has datatype {tensor.datatype}: expected {parsed.datatype} for {written}"
        )
    try:  # that of a whole response, such as `pd`, is for no single output
        return reader.read(tensor, str(of_response) if of_response in default_codecs().inputs else None)
    except InvalidRequest as error:
        raise InvalidResponse(f"output {str(error).removeprefix('input ').removeprefix('tensor ')}") from None


def rows(self: InferenceResponse, cls: type[T]) -> list[T]:
    """The outputs as rows of a class, each field of which is an output of shape `[N]`.

    Args:
        cls: A class as a model may return it: a msgspec Struct, a dataclass, an attrs class, a TypedDict, a
            NamedTuple, or a model of pydantic. Outputs that are no field of it are left out.

    Raises:
        TypeError: A field can be no column.
        InvalidResponse: An output is missing, or a value does not fit: the text names the row and the field.

    Example:
        >>> from typing import NamedTuple
        >>> class Score(NamedTuple):
        ...     label: str
        ...     value: float
        >>> outputs = [Tensor("label", ["a", "b"]), Tensor("value", np.array([0.1, 0.9]))]
        >>> InferenceResponse(outputs).rows(Score)
        [Score(label='a', value=0.1), Score(label='b', value=0.9)]
    """
    row_type: Any = cls
    if not has_fields(row_type):
        raise TypeError(f"rows({show(row_type)}): expected a class with fields, such as a dataclass")
    rows: list[T] = make_rows(row_type, True).decode_response(self)
    return rows


class Written(NamedTuple):
    """What an annotation says of one output: each None if the value itself decides."""

    codec: AnyInputCodec | None = None  # which writes it
    dtype: DType | None = None  # of the elements of a list, as an empty one has none


class Returned(NamedTuple):
    """What a return annotation says: the outputs that it declares, and how each is written."""

    specs: tuple[TensorSpec, ...] = ()
    written: tuple[Written, ...] = ()
    each: Written = Written()  # each value of a mapping, or of a tuple of any length
    request_codec: AnyRequestCodec | None = None  # makes a whole response of the result
    is_partial: bool = False  # it declares only some outputs, so `specs` is empty


class Outputs:
    """What is known of a model's outputs at registration."""

    def __init__(self, declared: Sequence[TensorSpec], returned: Returned, codecs: Codecs) -> None:
        self.declared = declared
        self.specs = {spec.name: spec for spec in declared}
        self.named: tuple[tuple[str, TensorSpec | None], ...] = tuple(self.specs.items())
        self.only = None if len(declared) > 1 else self.named[0] if declared else ("output_0", None)
        """The name of the only output, and what is declared of it; None if there may be several."""
        self.returned = returned
        self.rows = (
            returned.request_codec
            if isinstance(returned.request_codec, Rows) and not codecs.are_extended
            else None
        )
        """What writes the rows of a class; None for other results."""
        self.codecs = codecs
        self.names_codec = any(written.codec for written in (returned.each, *returned.written)) or any(
            s.content_type for s in declared
        )
        """Whether a declaration or an annotation says by which codec an output is written."""
        self.are_open = not self.names_codec and returned.request_codec is None and not codecs.are_extended
        """Whether arrays, texts and numbers become outputs without a codec."""


def parse_return(annotation: Any, codecs: Codecs, *, streams: bool) -> Returned:
    """What a return annotation says about one output, a tuple of outputs, or the values of a mapping; if it
    `streams`, about each item."""
    parsed = parse_annotation(annotation)
    args = typing.get_args(parsed.wanted)
    if streams and args and typing.get_origin(parsed.wanted) in _ITERATED:  # such as AsyncGenerator[X, None]
        return parse_return(args[0], codecs, streams=False)
    if parsed.request_codec is not None:
        return Returned(request_codec=parsed.request_codec)
    rows = None if parsed.codec or codecs.find_writer(parsed.wanted) else find_rows_of_result(parsed.wanted)
    if rows is not None:
        refuse_class(rows.cls, REFUSED_AS_RESULTS)
        return Returned(rows.as_outputs.specs, request_codec=rows)
    origin, members, is_each = typing.get_origin(parsed.wanted), [parsed], False
    if isinstance(origin, type) and issubclass(origin, Mapping) and len(args) == 2:
        members, is_each = [parse_annotation(args[1])], True
    elif origin is tuple:
        is_each = args[1:] == (...,)
        members = list(map(parse_annotation, args[:1] if is_each else args))
    written = tuple(
        Written(member.codec or codecs.find_writer(member.wanted), _find_dtype(member.wanted))
        for member in members
    )
    is_partial = any(member.declared is not None for member in members)
    if is_each:
        return Returned(each=written[0], is_partial=is_partial)
    named = [member.spec(f"output_{index}") for index, member in enumerate(members)]
    specs = tuple(spec for spec in named if spec is not None)
    # datatypes in annotations count only if all outputs have one
    return (
        Returned(specs, written)
        if len(specs) == len(members)
        else Returned((), written, is_partial=is_partial)
    )


def _find_dtype(annotation: Any) -> DType | None:
    """The dtype of the elements of a list, as in `list[int]` and `list[list[int]]`; None if the annotation
    names none."""
    while typing.get_origin(annotation) in (list, Sequence):
        [annotation] = typing.get_args(annotation)
    return _ELEMENTS.get(annotation) if isinstance(annotation, type) else None
