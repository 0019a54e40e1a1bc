"""What a codec is, and which shapes one reads: `[N]` or `[N, 1]`. Knows no content type by name.

Codecs write N values as `[N]`; the codec `np` and MLServer's clients write `[N, 1]`. Clients cannot know
which is declared, so `Inputs.accept` of `_models.inputs` reshapes inputs that have a content type,
and columns. Whether an output leaves as `[N]` or `[N, 1]`:

- declared: a list, and what a codec writes, as `to_declared_rank` of its spec makes it; an array without a
  content type keeps its shape, which must fit
- not declared, with the content type `np`: `[N, 1]`
- not declared, otherwise: a list or column as `[N]`, an array in its own shape

`_models.results` applies the first rule, and `_codecs.plain` the others.

The methods of a codec are called on the class itself. An instance works too, for codecs that have settings.

Specification: Content Types (and Codecs), Codecs.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, NoReturn, TypeAlias, TypeVar, cast

from numpy import ndarray

from .._protocol.datatypes import Array, Datatype, Writers, choose_writer, object_array
from .._protocol.errors import InvalidRequest, InvalidResponse, show
from .._protocol.tensors import InferenceRequest, InferenceResponse, Tensor, make_tensor

T = TypeVar("T")
V = TypeVar("V")


class Codec(Generic[T]):
    """What the two kinds of codecs have in common: the name of a content type, and the annotations and values
    that it is for."""

    content_type: ClassVar[str]
    """The name in `parameters.content_type`."""

    type_hint: ClassVar[Any] = None
    """The annotation that chooses this codec, such as `list[str]`. With None, only its name or an `Annotated`
    chooses it."""

    @classmethod
    def yields(cls, annotation: Any) -> bool:
        """Whether an annotation asks for what this codec decodes to."""
        return cls.type_hint is not None and bool(annotation == cls.type_hint)

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        """Whether this codec encodes a value for which no content type or annotation names one. No, unless a
        subclass says otherwise."""
        return False


class InputCodec(Codec[T]):
    """Turns a Python value into one tensor, and back. Subclass it for a content type of your own:
    `InferenceServer(codecs=[YourCodec])`.

    A subclass sets `content_type` and defines `encode_input` and `decode_input`. `encode_output` and
    `decode_output` call these, unless the subclass defines them too.

    Specification: Input Codecs.
    """

    datatype: ClassVar[Datatype | None] = None
    """The only datatype that it reads; None for any."""

    @classmethod
    def encode_input(cls, name: str, payload: T, use_bytes: bool = True) -> Tensor:
        """A value as an input tensor.

        Args:
            name: The tensor's name.
            payload: The value.
            use_bytes: For code written for MLServer, where it chooses between `bytes` and `str` elements. It
                has no effect: a `Tensor` always holds `bytes`, and its JSON always strings.

        Raises:
            TypeError: This codec does not encode values of this type.
            ValueError: The value holds something that cannot be encoded.
        """
        raise NotImplementedError

    @classmethod
    def decode_input(cls, request_input: Tensor) -> T:
        """The value of an input tensor.

        Raises:
            InferenceError: The tensor does not hold such a value; the text says what it holds. Codecs of your
                own may raise ValueError too: the server answers 400 with its text. Any other exception counts
                as a mistake in the codec: it is logged and answered 500 without its text. So turn what other
                libraries raise for bad bytes into ValueError.
        """
        raise NotImplementedError

    @classmethod
    def encode_output(cls, name: str, payload: T, use_bytes: bool = True) -> Tensor:
        """A value as an output tensor; the arguments are those of `encode_input`."""
        return cls.encode_input(name, payload, use_bytes)

    @classmethod
    def decode_output(cls, response_output: Tensor) -> T:
        """The value of an output tensor, as `decode_input`.

        Raises:
            InferenceError: The tensor does not hold such a value. The server that answered is at fault, so
                the status is 502.
        """
        with raise_invalid_response():
            return cls.decode_input(response_output)


class ListCodec(InputCodec[list[V]]):
    """Turns lists of one Python class, which `type_hint` names, into BYTES of shape [N]."""

    datatype = "BYTES"

    writers: ClassVar[Writers]

    expected: ClassVar[str]
    """What each element must be, for errors."""

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        [element_type] = cls.type_hint.__args__
        if not isinstance(payload, list):
            return False
        # for most other lists, the first element is enough
        return not payload or (
            isinstance(payload[0], element_type)
            and all(issubclass(kind, element_type) for kind in set(map(type, payload)))
        )

    @classmethod
    def encode_input(cls, name: str, payload: Sequence[V] | V | Array, use_bytes: bool = True) -> Tensor:
        """A list, or an empty array of any shape. One value alone is a list of one."""
        if isinstance(payload, tuple(cls.writers)):
            payload = [cast(V, payload)]
        if isinstance(payload, ndarray) and not payload.size:
            payload = []
        if isinstance(payload, (str, bytes)) or not isinstance(payload, Sequence):
            raise TypeError(
                f"tensor {name!r}: the content_type {cls.content_type!r} is for a list, but this is "
                f"{show(payload)}"
            )
        elements: list[bytes] = []
        try:
            elements.extend(map(choose_writer(set(map(type, payload)), cls.writers, cls._refuse), payload))
        except (TypeError, ValueError) as error:
            index = len(elements)  # the elements before the one that raised
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"tensor {name!r}: element {index} is {show(payload[index])}: {error}") from None
        return make_tensor(name, object_array(elements, (len(elements),)), {"content_type": cls.content_type})

    @classmethod
    def _refuse(cls, element: object) -> NoReturn:
        raise TypeError(f"expected {cls.expected}")


class RequestCodec(Codec[T]):
    """Turns a Python value into a whole request or response, and back. A subclass sets `content_type` and
    defines the four methods that encode and decode.

    Specification: Request Codecs.
    """

    @classmethod
    def encode_request(cls, payload: T, use_bytes: bool = True) -> InferenceRequest:
        """A value as a request, ready for `to_http`.

        Args:
            payload: The value.
            use_bytes: As on `InputCodec.encode_input`.

        Raises:
            TypeError: This codec does not encode values of this type.
            ValueError: The value holds something that cannot be encoded.
        """
        raise NotImplementedError

    @classmethod
    def decode_request(cls, request: InferenceRequest) -> T:
        """The value of a request.

        Raises:
            InferenceError: The request does not hold such a value. For ValueError and other exceptions see
                `InputCodec.decode_input`.
        """
        raise NotImplementedError

    @classmethod
    def encode_response(
        cls, model_name: str, payload: T, model_version: str | None = None, use_bytes: bool = True
    ) -> InferenceResponse:
        """A value as a response of a model, with its name and version; otherwise as `encode_request`."""
        raise NotImplementedError

    @classmethod
    def decode_response(cls, response: InferenceResponse) -> T:
        """The value of a response.

        Raises:
            InferenceError: The response does not hold such a value. The server that answered is at fault, so
                the status is 502.
        """
        raise NotImplementedError


@contextmanager
def raise_invalid_response() -> Iterator[None]:
    """Raise `InvalidRequest` as `InvalidResponse`: if a response is wrong, the server that sent it is at
    fault."""
    try:
        yield
    except InvalidRequest as error:
        raise InvalidResponse(str(error)) from None


AnyInputCodec: TypeAlias = type[InputCodec[Any]] | InputCodec[Any]
AnyRequestCodec: TypeAlias = type[RequestCodec[Any]] | RequestCodec[Any]


class SingleTensorCodec(RequestCodec[T]):
    """A request codec for requests and responses of one tensor, which `input_codec` reads and writes."""

    input_codec: ClassVar[type[InputCodec[Any]]]

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return cls.input_codec.can_encode(payload)

    @classmethod
    def encode_request(cls, payload: T, use_bytes: bool = True) -> InferenceRequest:
        tensor = cls.input_codec.encode_input("input-1", payload, use_bytes)
        return InferenceRequest([tensor], parameters={"content_type": cls.content_type})

    @classmethod
    def decode_request(cls, request: InferenceRequest) -> T:
        value: T = cls.input_codec.decode_input(_get_only(request.inputs, cls.content_type))
        return value

    @classmethod
    def encode_response(
        cls, model_name: str, payload: T, model_version: str | None = None, use_bytes: bool = True
    ) -> InferenceResponse:
        tensor = cls.input_codec.encode_output("output-1", payload, use_bytes)
        return InferenceResponse(
            [tensor], {"content_type": cls.content_type}, model_name=model_name, model_version=model_version
        )

    @classmethod
    def decode_response(cls, response: InferenceResponse) -> T:
        with raise_invalid_response():
            value: T = cls.input_codec.decode_output(_get_only(response.outputs, cls.content_type))
            return value


def _get_only(tensors: list[Tensor], content_type: str) -> Tensor:
    if len(tensors) != 1:
        raise InvalidRequest(
            f"the content_type {content_type!r} is for a request or response of one tensor, but there are "
            f"{len(tensors)}: {show([tensor.name for tensor in tensors])}"
        )
    return tensors[0]


def normalize(annotation: Any) -> Any:
    """An annotation as codecs spell it in `type_hint`: `list[str]` for `typing.List[str]`."""
    return list[typing.get_args(annotation)] if typing.get_origin(annotation) is list else annotation  # type: ignore[misc]


def find_class(module: str, name: str) -> type | tuple[()]:
    """A class of a library, without importing that, for `isinstance`; no class if it is not imported."""
    cls: type | tuple[()] = getattr(sys.modules.get(module), name, ())
    return cls


def decode_elements(
    tensor: Tensor, decode: Callable[[bytes], V], content_type: str, expected: str
) -> list[V]:
    """The elements of a BYTES tensor of shape [N] or [N, 1]."""
    elements = bytes_of(tensor, content_type)
    values: list[V] = []
    try:
        values.extend(map(decode, elements))
    except ValueError as error:
        index = len(values)  # the values before the one that raised
        raise InvalidRequest(
            f"tensor {show(tensor.name)}: element {index} is {show(elements[index])}, which is not "
            f"{expected} "
            f"as the content_type {content_type!r} needs: {error}"
        ) from None
    return values


def bytes_of(tensor: Tensor, target: str) -> list[bytes]:
    """The elements of a BYTES tensor of shape [N] or [N, 1], not decoded."""
    if tensor.datatype != "BYTES":
        raise InvalidRequest(
            f"tensor {show(tensor.name)} has datatype {tensor.datatype}: expected BYTES for {target!r}"
        )
    elements: list[bytes] = rows_of(tensor, target).tolist()
    return elements


def rows_of(tensor: Tensor, target: str) -> Array:
    """The array of a tensor of shape `[N]` or `[N, 1]`, as `[N]`."""
    shape = tensor.shape
    if len(shape) == 1:
        return tensor.array
    if len(shape) == 2 and shape[1] == 1:
        return tensor.array.reshape(shape[0])
    raise InvalidRequest(
        f"tensor {show(tensor.name)} has shape {list(shape)}: expected [N] or [N, 1] for {target!r}"
    )
