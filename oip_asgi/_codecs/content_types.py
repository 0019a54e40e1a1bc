"""The content types of one server: its codecs, and which of them reads a tensor for a parameter. Knows no
callables and no HTTP.

The content type that decides is the tensor's, else the request's, else the declared one, else the
annotation's, else `np`.

Specification: Content Types, Usage and Model Metadata.
"""

from __future__ import annotations

import copy
import inspect
import typing
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from importlib.util import find_spec
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias, TypeGuard

import msgspec
from numpy import ndarray

from .._protocol.datatypes import Datatype
from .._protocol.errors import InvalidRequest, log_raised, show
from .._protocol.specs import TensorSpec
from .._protocol.tensors import InferenceRequest, Tensor
from .base import (
    AnyInputCodec,
    AnyRequestCodec,
    InputCodec,
    RequestCodec,
    bytes_of,
    find_class,
    normalize,
    rows_of,
)
from .columns import COLUMN_TYPES, Decode, apply_declaration, read_series
from .dataframes import PandasCodec
from .plain import (
    Base64Codec,
    DatetimeCodec,
    NumpyCodec,
    NumpyRequestCodec,
    PandasJSONCodec,
    StringCodec,
    StringRequestCodec,
)
from .torch import read_torch

# without type arguments, as Python spells such unions in another way since 3.14, and `help()` shows this one
AnyCodec: TypeAlias = type[InputCodec] | InputCodec | type[RequestCodec] | RequestCodec  # type: ignore[type-arg]

_get_name: Final = attrgetter("name")

UNTYPED: Final = (inspect.Parameter.empty, Any)

_INPUT_CODECS: Final = (NumpyCodec, StringCodec, Base64Codec, DatetimeCodec, PandasJSONCodec)
_REQUEST_CODECS: Final = (NumpyRequestCodec, StringRequestCodec, PandasCodec)

_INPUT_METHODS: Final = ("encode_input", "decode_input")
_REQUEST_METHODS: Final = ("encode_request", "decode_request", "encode_response", "decode_response")


class Scalar(NamedTuple):
    """What a Python scalar, as in `threshold: float = 0.5`, is made of: a tensor of one element, or a
    request's parameter."""

    datatypes: tuple[Datatype, ...]  # metadata shows the first of these
    content_types: tuple[str, ...]
    kinds: tuple[type, ...]  # of parameters
    expected: str


_INTEGERS: Final = ("INT64", "INT8", "INT16", "INT32", "UINT8", "UINT16", "UINT32", "UINT64")

SCALARS: Final[Mapping[type, Scalar]] = {
    float: Scalar(("FP64", "FP16", "BF16", "FP32", *_INTEGERS), ("np",), (float, int), "a number"),
    int: Scalar(_INTEGERS, ("np",), (int,), "an integer"),
    bool: Scalar(("BOOL",), ("np",), (bool,), "true or false"),
    str: Scalar(("BYTES",), ("np", "str"), (str,), "a string"),
}


def read_scalar(kind: type, tensor: Tensor) -> Any:
    """The only element of a tensor."""
    _check_elements(kind, tensor, kind.__name__)
    if tensor.array.size != 1:
        raise InvalidRequest(
            f"input {show(tensor.name)} has shape {list(tensor.shape)}: expected [1] or [] for "
            f"{kind.__name__}"
        )
    value = tensor.array.item()
    if kind is not str:
        return kind(value)
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"input {show(tensor.name)} is {show(value)}, which is not UTF-8: {error}"
        ) from None


def read_list(kind: type, tensor: Tensor) -> list[Any]:
    """The elements of a tensor of shape `[N]` or `[N, 1]`."""
    _check_elements(kind, tensor, f"list[{kind.__name__}]")
    return list(map(kind, rows_of(tensor, "np").tolist()))


def _check_elements(kind: type, tensor: Tensor, called: str) -> None:
    datatypes = SCALARS[kind].datatypes
    if tensor.datatype not in datatypes:
        raise InvalidRequest(
            f"input {show(tensor.name)} has datatype {tensor.datatype}: expected {' or '.join(datatypes)} "
            f"for {called}"
        )
    numbers = tensor.array.ravel().tolist() if kind is float and tensor.array.dtype.kind in "iu" else ()
    rounded = next((number for number in numbers if float(number) != number), None)
    if rounded is not None:
        raise InvalidRequest(
            f"input {show(tensor.name)} has {rounded}, a whole number that a float would round"
        )


def read_scalar_parameter(kind: type, name: str, value: object) -> Any:
    if not isinstance(value, SCALARS[kind].kinds) or isinstance(value, bool) is not (kind is bool):
        raise InvalidRequest(f"parameters[{show(name)}] is {show(value)}: expected {SCALARS[kind].expected}")
    return kind(value)


get_array: Final[Decode] = attrgetter("array")


class Reader(msgspec.Struct, frozen=True, eq=False):
    """How one parameter's tensor becomes its Python value: by the content type that the request says, else by
    `default`."""

    annotation: str
    """As text; empty if there is none."""
    default: Decode
    by_content_type: Mapping[str, Decode]
    """For the content types that make what the annotation asks for."""
    datatypes: tuple[Datatype, ...] = ()
    """The only ones that can be read; empty for any."""
    metadata: tuple[Datatype, tuple[int, ...], str | None] | None = None
    """The datatype, shape and content type for metadata of an input that is not declared; None if nothing is
    known."""
    scalar: type | None = None
    """The Python type of one element, if the value is that and may come as a request's parameter too."""
    content_type: str | None = None
    """The one that `default` reads; None if it takes the tensor's elements as they are."""
    is_column: bool = False
    """Whether it makes a `pandas.Series`."""

    def read(self, tensor: Tensor, of_request: str | None) -> Any:
        content_type = tensor.parameters.get("content_type", of_request) if tensor.parameters else of_request
        decode = self.default if content_type is None else self.by_content_type.get(str(content_type))
        if decode is None:
            raise InvalidRequest(
                f"input {show(tensor.name)} has the content_type {show(content_type)}, which cannot become "
                f"{self.annotation}, "
                f"as the model takes it: expected {', '.join(self.by_content_type)}, or none"
            )
        try:
            return decode(tensor)
        except ValueError as error:
            raise InvalidRequest(f"input {show(tensor.name)}: {error}") from error


_PLAIN_READERS: Final = (
    *(
        (
            kind,
            Reader(
                kind.__name__,
                partial(read_scalar, kind),
                dict.fromkeys(of.content_types, partial(read_scalar, kind)),
                of.datatypes,
                (of.datatypes[0], (1,), None),
                kind,
            ),
        )
        for kind, of in SCALARS.items()
    ),
    *(
        (
            list.__class_getitem__(kind),
            Reader(
                f"list[{kind.__name__}]",
                partial(read_list, kind),
                {"np": partial(read_list, kind)},
                of.datatypes,
                (of.datatypes[0], (-1,), None),
            ),
        )
        for kind, of in SCALARS.items()
        if kind is not str  # which a codec reads
    ),
)
"""The readers of one element, and of lists of these, by the annotation."""


class RequestReader(msgspec.Struct, frozen=True, eq=False):
    """How several tensors become one Python value, such as a data frame."""

    annotation: str
    codec: AnyRequestCodec
    known: Mapping[str, TensorSpec | None]
    """What is declared of the inputs that are known, in their order."""

    def read(self, tensors: list[Tensor], request: InferenceRequest) -> Any:
        """The value of some tensors of a request, in their order. A tensor without content type is read with
        the declared one."""
        if self.known:
            if list(map(_get_name, tensors)) != list(self.known):
                positions = {name: position for position, name in enumerate(self.known)}
                tensors = sorted(tensors, key=lambda tensor: positions.get(tensor.name, len(positions)))
            tensors = [apply_declaration(tensor, self.known.get(tensor.name)) for tensor in tensors]
        try:
            return self.codec.decode_request(
                InferenceRequest(tensors, request.id, request.parameters, request.outputs)
            )
        except ValueError as error:
            raise InvalidRequest(f"the request: {error}") from error


class Codecs:
    """This package's codecs, as far as what is installed allows, and the user's."""

    def __init__(self, others: Sequence[AnyCodec] = ()) -> None:
        self.inputs: dict[str, AnyInputCodec] = {codec.content_type: codec for codec in _INPUT_CODECS}
        self.requests: dict[str, AnyRequestCodec] = {
            codec.content_type: codec
            for codec in _REQUEST_CODECS
            if codec is not PandasCodec or find_spec("pandas")
        }
        for codec in others:
            self._add(codec)
        self._others = list(filter(is_input_codec, others))
        self.are_extended = len(others) > 0
        """Whether the user has added codecs, which may encode values that this package's do not."""
        self.request_only = tuple(name for name in self.requests if name not in self.inputs)
        """The content types that are for requests, not for a tensor, such as `pd`."""
        self.of_columns = tuple(
            name for name in self.request_only if _is_kind_of(self.requests[name], PandasCodec)
        )
        """Those that make a data frame. A model can also take its columns one by one."""
        self._for_requests = tuple(self.requests[name] for name in self.request_only)

    def _add(self, codec: AnyCodec) -> None:
        check_complete(codec, "codecs=")
        codecs: dict[str, Any] = self.inputs if is_input_codec(codec) else self.requests
        if codecs.get(codec.content_type) not in (None, *_INPUT_CODECS, *_REQUEST_CODECS):
            kind = "input" if is_input_codec(codec) else "request"
            raise TypeError(
                f"codecs=: two {kind} codecs have the content_type {codec.content_type!r}: give each its own"
            )
        codecs[codec.content_type] = codec

    def with_names(self, names: Collection[str]) -> Codecs:
        """These and others, of which only the names matter: the model itself reads and writes them."""
        more = copy.copy(self)
        more.inputs = {
            **self.inputs,
            **{
                name: NumpyCodec for name in names if name not in {**self.inputs, **self.requests, "pd": None}
            },
        }
        return more

    def is_users(self, content_type: str) -> bool:
        """Whether the codec of tensors with this content type is the user's."""
        return self.inputs.get(content_type) in self._others

    def check(self, content_type: object, where: str, *, of_request: bool) -> None:
        if content_type in self.inputs or (of_request and content_type in self.requests):
            return
        if content_type in self.requests:
            raise InvalidRequest(
                f"{where} has the content_type {show(content_type)}, which is for a whole request: put it "
                "there"
            )
        types = [*self.inputs, *(self.request_only if of_request else ())]
        raise InvalidRequest(
            f"{where} has the unknown content_type {show(content_type)}: expected one of {', '.join(types)}"
        )

    def check_declared(self, content_type: str, where: str, *, of_request: bool) -> None:
        if content_type == PandasCodec.content_type:
            check_complete(PandasCodec, where)
        try:
            self.check(content_type, where, of_request=of_request)
        except InvalidRequest as error:
            raise ValueError(str(error)) from None

    def make_reader(self, annotation: Any, codec: AnyInputCodec | None) -> Reader | None:
        if codec is not None:
            decode = _make_decode(codec)
            return Reader(
                f"what {_name_codec(codec)} decodes",
                decode,
                {codec.content_type: decode},
                *self._find_metadata(codec),
                content_type=codec.content_type,
            )
        if annotation in UNTYPED:
            return Reader(
                "",
                get_array,
                {name: _make_decode(of_annotation) for name, of_annotation in self.inputs.items()},
            )
        called = inspect.formatannotation(annotation)
        if (typing.get_origin(annotation) or annotation) is find_class("pandas", "Series"):
            return make_column_reader(called, None)
        if annotation is find_class("torch", "Tensor"):
            return Reader(called, read_torch, {NumpyCodec.content_type: read_torch})
        for plain, reader in _PLAIN_READERS:
            if plain == annotation:
                return reader
        of_annotation = next(
            (
                of_annotation
                for of_annotation in self.inputs.values()
                if of_annotation.yields(normalize(annotation))
            ),
            None,
        )
        if of_annotation is None:
            return None
        decode = _make_decode(of_annotation)
        # a tensor holds bytes already: they are decoded from base64 only if the request says so
        as_bytes = partial(bytes_of, target="list[bytes]")
        default = (
            as_bytes if of_annotation is Base64Codec else get_array if of_annotation is NumpyCodec else decode
        )
        content_type = of_annotation.content_type if default is decode else None
        return Reader(
            called,
            default,
            {of_annotation.content_type: decode},
            *self._find_metadata(of_annotation),
            content_type=content_type,
        )

    def _find_metadata(
        self, codec: AnyInputCodec
    ) -> tuple[tuple[Datatype, ...], tuple[Datatype, tuple[int, ...], str | None] | None]:
        """The datatypes that a codec reads, and what metadata says of an input that it reads."""
        if codec.datatype is None:
            return (), None
        # elements of `list[bytes]` are base64 only if a request says so, and metadata may only name the
        # server's own content types
        is_shown = codec is not Base64Codec and self.inputs.get(codec.content_type) is codec
        return (codec.datatype,), (codec.datatype, (-1,), codec.content_type if is_shown else None)

    def request_codec_for_annotation(self, annotation: Any) -> AnyRequestCodec | None:
        """The codec for a parameter that takes several tensors at once, such as a `pandas.DataFrame`; None
        for other parameters."""
        if annotation in UNTYPED:
            return None
        return next((codec for codec in self._for_requests if codec.yields(normalize(annotation))), None)

    def find_writer(self, annotation: Any) -> AnyInputCodec | None:
        """The codec for a result with this annotation; None if the value itself shows how to write it, as
        arrays and series do."""
        codecs = (codec for codec in self.inputs.values() if codec not in (NumpyCodec, Base64Codec))
        return next((codec for codec in codecs if codec.yields(normalize(annotation))), None)

    def users_codec_for_value(self, value: Any) -> AnyInputCodec | None:
        """The codec of the user that encodes a value for which nothing names one; None if there is none."""
        return next((codec for codec in self._others if _can_encode(codec, value)), None)

    def tensor_codec_for_value(self, value: Any) -> AnyInputCodec | None:
        """The codec of a result for which no content type or annotation names one, the user's first; None if
        numpy makes an array of it."""
        are_dates = (
            isinstance(value, datetime)
            or (isinstance(value, ndarray) and value.dtype.kind == "M")
            or (isinstance(value, list) and value and DatetimeCodec.can_encode(value))
        )
        return self.users_codec_for_value(value) or (DatetimeCodec if are_dates else None)

    def request_codec_for_value(self, value: Any) -> AnyRequestCodec | None:
        """The codec for a result that becomes a whole response; None for other results."""
        return next((codec for codec in self._for_requests if _can_encode(codec, value)), None)


default_codecs: Final = cache(Codecs)
"""This package's own codecs."""


def make_column_reader(annotation: str, spec: TensorSpec | None) -> Reader:
    """The reader of a `pandas.Series`, as it is declared."""
    read = partial(read_series, spec=spec)
    by_content_type = {name: partial(read, content_type=name) for name in COLUMN_TYPES}
    return Reader(annotation, partial(read, content_type=None), by_content_type, is_column=True)


def make_request_reader(
    codec: AnyRequestCodec, annotation: Any, known: Mapping[str, TensorSpec | None]
) -> RequestReader:
    is_untyped = annotation in UNTYPED
    called = f"what {_name_codec(codec)} decodes" if is_untyped else inspect.formatannotation(annotation)
    return RequestReader(called, codec, known)


def is_input_codec(codec: object) -> TypeGuard[AnyInputCodec]:
    return _is_kind_of(codec, InputCodec)


def is_request_codec(codec: object) -> TypeGuard[AnyRequestCodec]:
    return _is_kind_of(codec, RequestCodec)


def check_complete(codec: AnyCodec, where: str) -> None:
    for_tensor, for_request = is_input_codec(codec), is_request_codec(codec)
    content_type = getattr(codec, "content_type", None)
    if not isinstance(content_type, str) or not content_type:
        raise TypeError(f'{where}: {codec!r} has no content_type: give it one, such as content_type = "img"')
    if not for_tensor and not for_request:
        raise TypeError(
            f"{where}: {codec!r} is neither an InputCodec nor a RequestCodec: make it a subclass of one"
        )
    if for_tensor and for_request:
        raise TypeError(
            f"{where}: {codec!r} is both an InputCodec and a RequestCodec: make it two, which may share "
            "their content_type"
        )
    base, methods = (InputCodec, _INPUT_METHODS) if for_tensor else (RequestCodec, _REQUEST_METHODS)
    missing = [name for name in methods if _find_function(codec, name) is _find_function(base, name)]
    if missing:
        raise TypeError(f"{where}: {codec!r} does not define {', '.join(missing)}")
    if _is_kind_of(codec, PandasCodec) and not find_spec("pandas"):
        raise ValueError(f"{where}: the content_type {content_type!r} needs pandas: pip install pandas")


def _find_function(codec: object, name: str) -> Any:
    method = getattr(codec, name)
    return getattr(method, "__func__", method)


def _is_kind_of(codec: object, base: type) -> bool:
    return issubclass(codec, base) if isinstance(codec, type) else isinstance(codec, base)


def _name_codec(codec: AnyCodec) -> str:
    return codec.__name__ if isinstance(codec, type) else type(codec).__name__


def _can_encode(codec: AnyCodec, value: Any) -> bool:
    # a user's codec sees the results of all models, so an error in it must not fail them
    try:
        return bool(codec.can_encode(value))
    except Exception as error:
        log_raised(error, "%s.can_encode raised, so it counts as no", _name_codec(codec))
        return False


def _make_decode(codec: AnyInputCodec) -> Decode:
    """The decoder of a codec. For a user's codec it checks the datatype first; this package's own check it
    themselves."""
    datatype = codec.datatype
    if datatype is None or codec in _INPUT_CODECS:
        return codec.decode_input

    def decode(tensor: Tensor) -> Any:
        if tensor.datatype != datatype:
            raise InvalidRequest(
                f"tensor {show(tensor.name)} has datatype {tensor.datatype}: expected {datatype} for "
                f"{codec.content_type!r}"
            )
        return codec.decode_input(tensor)

    return decode
