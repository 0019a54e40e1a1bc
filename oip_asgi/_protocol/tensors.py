"""The one representation of tensors, requests and responses. Knows no wire formats: neither JSON nor raw
bytes.

A tensor is a name, a numpy array and parameters. Shape and datatype are the array's own, so that they cannot
disagree with it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, overload

import msgspec
import numpy as np
from numpy import ndarray  # `np.ndarray` takes longer, as the module has a `__getattr__`

from .datatypes import NUMBERS, Array, Buffer, Datatype, name_of, to_wire_array
from .errors import InvalidRequest, show
from .limits import LOOP_BYTES, has_64_bits
from .schemas import Parameters, RequestOutput

T = TypeVar("T")

Headers: TypeAlias = (
    Mapping[str, str] | Mapping[bytes, bytes] | Iterable[tuple[str, str]] | Iterable[tuple[bytes, bytes]]
)
"""Headers as clients' libraries hold them."""

CLASSIFICATION: Final = "classification"
"""The parameter of a requested output that asks for its largest elements."""

REGION: Final = "shared_memory_region"
SHARED_MEMORY: Final = (REGION, "shared_memory_byte_size", "shared_memory_offset")
"""The parameters of a tensor whose data are in shared memory."""

ReadRegion: TypeAlias = Callable[[Parameters], Buffer]
"""Gives the bytes of a tensor whose parameters say that they are in shared memory."""

ELSEWHERE: Final = (CLASSIFICATION, *SHARED_MEMORY)


def check_supported(parameters: Parameters, where: str, supported: Collection[str] = ()) -> None:
    """Refuse parameters of extensions that the server does not have: an answer that ignores them would be
    wrong."""
    for name in ELSEWHERE:
        if name in parameters and name not in supported:
            raise InvalidRequest(
                f"{where} has the parameter {name}, which this server does not support: leave it out"
            )


def refuse_region(parameters: Parameters) -> Buffer:
    check_supported(parameters, "it")
    raise InvalidRequest("it has no data")


def drop_shared_memory(parameters: Parameters) -> Parameters:
    return {name: value for name, value in parameters.items() if name not in SHARED_MEMORY}


def to_plain(text: str) -> str:
    """A string of `str` itself, as JSON and gRPC need it, not of a subclass such as numpy's."""
    text.encode()
    return str.__str__(text)


def to_plain_name(name: str, where: object) -> str:
    """`to_plain` for a name that is given at registration."""
    try:
        return to_plain(name)
    except UnicodeEncodeError:
        raise ValueError(f"{where}: the name holds lone surrogates, which are no text") from None


def are_short(tensors: Iterable[Tensor]) -> bool:
    """True if tensors have so few bytes that an event loop may encode them, or compute a digest."""
    size = 0
    for tensor in tensors:
        array = tensor.array
        size += array.nbytes
        if array.dtype.hasobject and size <= LOOP_BYTES:
            size += sum(map(len, array.ravel().tolist()))
    return size <= LOOP_BYTES


def make_read_only(array: Array) -> None:
    """Make an array read-only, and the arrays of which it is a view."""
    part: Any = array
    while isinstance(part, ndarray):
        part.setflags(write=False)
        part = part.base


def to_plain_parameters(
    where: str, parameters: Mapping[str, Any], make_error: Callable[[str], Exception]
) -> Parameters:
    """Parameters that JSON and gRPC can carry: numpy's scalars, and instances of subclasses, become plain
    Python values."""
    plain: Parameters = {}
    for name, value in parameters.items():
        here = f"{where} has the parameter {show(name)} = {show(value)}"
        value = value.item() if isinstance(value, np.generic) else value
        kind = next((kind for kind in (bool, int, float, str) if isinstance(value, kind)), None)
        if kind is None or not isinstance(name, str):
            raise make_error(f"{here}: expected a str, int, float or bool")
        if kind is int and not has_64_bits(value):
            raise make_error(f"{here}, which has more than 64 bits")
        try:
            plain[to_plain(name)] = to_plain(value) if kind is str else kind(value)
        except UnicodeEncodeError:
            raise make_error(f"{here}: expected text without lone surrogates") from None
    return plain


class Tensor(msgspec.Struct, eq=False, gc=False):  # in no reference cycle, and there may be 100,000
    """A named array, as it came in a request or goes out in a response.

    Args:
        name: The tensor's name.
        array: Any shape; a dtype of the protocol, with BYTES as an object array of `bytes`. Other values are
            converted if nothing is lost: `str` elements to UTF-8, big-endian numbers to little-endian.
        parameters: The tensor's parameters, without `binary_data_size`, which belongs to the transfer.

    Raises:
        TypeError: The protocol has no datatype for the array.

    Specification: Request Input, Response Output.
    """

    name: str
    array: Array
    parameters: Parameters = {}

    def __post_init__(self) -> None:
        array = self.array
        if type(array) is not ndarray or array.dtype not in NUMBERS:
            self.array = to_wire_array(array)

    def __repr__(self) -> str:
        """Its fields. Long texts and files are cut, as numpy cuts long arrays."""
        written = repr(self.array)
        if self.array.dtype.hasobject and self.array.size:
            written = (
                f"array({np.array2string(self.array, separator=', ', formatter={'object': show})}, "
                "dtype=object)"
            )
        return f"{type(self).__name__}(name={self.name!r}, array={written}, parameters={self.parameters!r})"

    @property
    def shape(self) -> tuple[int, ...]:
        """The array's shape."""
        return self.array.shape

    @property
    def datatype(self) -> Datatype:
        """The protocol's name of the array's dtype."""
        return name_of(self.array.dtype)


_EMPTY: Final = Tensor("", np.empty(0, np.float32))


def make_tensor(name: str, array: Array, parameters: Parameters) -> Tensor:
    """A tensor of an array that needs no check, such as another tensor's. `Tensor` checks each BYTES element,
    but no number, and is the quicker way for those."""
    if not array.dtype.hasobject:
        return Tensor(name, array, parameters)
    tensor: Tensor = _EMPTY.__copy__()  # type: ignore[attr-defined]  # which each Struct has, and which checks nothing
    tensor.name, tensor.array, tensor.parameters = name, array, parameters
    return tensor


class InferenceRequest(msgspec.Struct, eq=False):
    """An inference request, whichever way it came in.

    Args:
        inputs: The input tensors, in the request's order. Arrays of received requests are read-only.
        id: The request's identifier, None if it has none.
        parameters: The request's parameters.
        outputs: The outputs asked for; empty means all.

    Example:
        >>> headers, body = InferenceRequest([Tensor("x", np.float32([1, 2]))]).to_http(binary=False)
        >>> body
        b'{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1.0,2.0]}]}'

    Specification: Inference Request JSON Object.
    """

    inputs: list[Tensor]
    id: str | None = None
    parameters: Parameters = {}
    outputs: list[RequestOutput] = []

    def __getitem__(self, name: str) -> Array:
        """The array of the input called `name`.

        Raises:
            KeyError: There is no such input.
        """
        return find_tensor(self.inputs, name, "input").array

    def __contains__(self, name: object) -> bool:
        return any(tensor.name == name for tensor in self.inputs)

    if TYPE_CHECKING:  # `oip_asgi` gives it this method

        def to_http(self, *, binary: bool = False) -> tuple[dict[str, str], bytes]: ...


class InferenceResponse(msgspec.Struct, eq=False):
    """An inference response. A model that returns one decides its outputs and parameters; the server adds the
    rest.

    Args:
        outputs: The output tensors.
        parameters: The response's parameters.
        id: The identifier of the request, None if it had none.
        model_name: The model that answered.
        model_version: Its version, None for a model without versions. Such a model may give one, to say which
            of several answered.

    Specification: Inference Response JSON Object.
    """

    outputs: list[Tensor]
    parameters: Parameters = {}
    id: str | None = None
    model_name: str = ""
    model_version: str | None = None

    def __getitem__(self, name: str) -> Array:
        """The array of the output called `name`.

        Raises:
            KeyError: There is no such output.
        """
        return find_tensor(self.outputs, name, "output").array

    def __contains__(self, name: object) -> bool:
        return any(tensor.name == name for tensor in self.outputs)

    if TYPE_CHECKING:  # `oip_asgi` gives it these methods

        @overload
        def as_(self, name: str, annotation: type[T]) -> T: ...
        @overload
        def as_(self, name: str, annotation: Any) -> Any: ...
        def as_(self, name: str, annotation: Any) -> Any: ...
        def rows(self, cls: type[T]) -> list[T]: ...
        @classmethod
        def from_http(
            cls, headers: Headers, body: bytes | bytearray | memoryview, status: int | None = None
        ) -> InferenceResponse: ...


def find_tensor(tensors: list[Tensor], name: str, what: str) -> Tensor:
    for tensor in tensors:
        if tensor.name == name:
            return tensor
    raise KeyError(f"no {what} {name!r}: there are {[tensor.name for tensor in tensors]}")
