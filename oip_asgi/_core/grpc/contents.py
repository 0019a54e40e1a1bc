"""Long typed contents of gRPC's requests: taken off a message before it is parsed, and read in pieces. Knows no protobuf and no models.

A library that parses a message makes an object of each tensor and parameter in one call, which holds the interpreter. From 8 MB of small
fields that took 1.9 seconds and 350 MB; with typed contents apart, and not more fields than a request may have, it takes neither.

Format: Protocol Buffers, Encoding; gRPC, `ModelInferRequest`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np

from ..datatypes import MAX_RANK, Array, Buffer, DType, integer_array
from ..errors import InvalidRequest
from ..json.documents import MAX_PARAMETERS
from ..limits import MAX_TENSORS
from ..raw import count
from .wire import BYTES, FIXED32, FIXED64, GROUP, GROUP_END, VARINT, bytes_head, fields_of

TYPED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "BOOL": "bool_contents",
        "UINT8": "uint_contents",
        "UINT16": "uint_contents",
        "UINT32": "uint_contents",
        "UINT64": "uint64_contents",
        "INT8": "int_contents",
        "INT16": "int_contents",
        "INT32": "int_contents",
        "INT64": "int64_contents",
        "FP32": "fp32_contents",
        "FP64": "fp64_contents",
        "BYTES": "bytes_contents",
    }
)
"""For each datatype, the field of `InferTensorContents` that holds it. FP16 and BF16 have none: they travel raw."""

_FIELDS: Final = (
    *("bool_contents", "int_contents", "int64_contents", "uint_contents", "uint64_contents"),
    *("fp32_contents", "fp64_contents", "bytes_contents"),
)
"""The fields of `InferTensorContents`, from number 1 on."""

_WIRE_TYPES: Final = (VARINT, VARINT, VARINT, VARINT, VARINT, FIXED32, FIXED64, BYTES)
"""The wire type of one element of each of these fields. Several together are one field of BYTES."""

_READ_AS: Final[Mapping[str, DType]] = MappingProxyType(
    {"int_contents": np.dtype("<i4"), "int64_contents": np.dtype("<i8"), "uint_contents": np.dtype("<u4")}
)
"""As what the numbers of a field of integers are read, of which protobuf keeps the lower bits; as `uint64` where it is not here."""

_INPUTS, _OUTPUTS, _PARAMETERS, _RAW = 5, 6, 4, 7
_OF_INPUT_SHAPE, _OF_INPUT_PARAMETERS, _OF_INPUT_CONTENTS = 3, 4, 5
_OF_OUTPUT_PARAMETERS: Final = 2

_SHORT: Final = 16
"""Bytes of contents up to which they stay in the message."""

_MAX_SHAPE: Final = 10 * MAX_RANK
"""The most bytes of dimensions, which have ten each at most."""

_WINDOW: Final = 2**16
"""Bytes of integers that are read together."""

_ELEMENT: Final = len(_FIELDS) << 3 | BYTES
"""The tag of an element of BYTES."""

_CONTINUES: Final = 0x80
"""The bit of a byte that is not the last of its number."""

_APART: Final = 2**10
"""Bytes of packed elements up to which they are copied together with those before: a view takes as much memory."""

_MOST_OF_VARINT: Final = 10
_SHARED: Final = 2
"""Bytes of an element of BYTES up to which equal ones are one object, as each takes ten times its text."""

_EMPTY_CONTENTS: Final = bytes_head(_OF_INPUT_CONTENTS, 0)

Contents: TypeAlias = Sequence[Buffer]
"""Serialized `InferTensorContents`, which mean the same as one after the other."""


def without_contents(message: Buffer) -> tuple[bytes, dict[int, list[Buffer]]]:
    """Take the typed contents off a long `ModelInferRequest`.

    Args:
        message: The serialized message.

    Returns:
        The message, with empty contents in the place of those that are not short; and these, by the number of their input.

    Raises:
        InvalidRequest: It is malformed, or has more tensors, parameters or dimensions than a request may have.
    """
    try:
        return _Reader(memoryview(message)).read()
    except (IndexError, KeyError):
        raise InvalidRequest("the request cannot be parsed: expected the bytes of inference.ModelInferRequest") from None


class _Reader:
    """Goes through a message once, and counts what a library would make objects of."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._parameters = 0
        self._contents: dict[int, list[Buffer]] = {}

    def read(self) -> tuple[bytes, dict[int, list[Buffer]]]:
        view, kept, start = self._view, bytearray(), 0
        inputs = outputs = raw = 0
        for tag, value, end in _outside_groups(view):
            number = _number(tag)
            if number == _INPUTS:
                self._keep_input(kept, view[value:end], inputs)
                inputs += 1
            else:
                kept += view[start:end]
            if number == _OUTPUTS:
                outputs += 1
                self._count_parameters(view[value:end], _OF_OUTPUT_PARAMETERS)
            elif number == _PARAMETERS:
                self._count(1)
            raw += number == _RAW
            if max(inputs, outputs, raw) > MAX_TENSORS:
                what = "inputs" if inputs > MAX_TENSORS else "outputs" if outputs > MAX_TENSORS else "raw contents"
                raise InvalidRequest(f"the request has more than {MAX_TENSORS} {what}")
            start = end
        return bytes(kept), self._contents

    def _keep_input(self, kept: bytearray, view: memoryview, place: int) -> None:
        parts: list[Buffer] = []
        dimensions = start = 0
        for tag, value, end in _outside_groups(view):
            number = _number(tag)
            if number == _OF_INPUT_CONTENTS and end - value > _SHORT:
                if place not in self._contents:
                    self._contents[place] = []
                    parts.append(_EMPTY_CONTENTS)
                self._contents[place].append(view[value:end])
            else:
                parts.append(view[start:end])
            if number == _OF_INPUT_SHAPE:
                dimensions += end - value
                if dimensions > _MAX_SHAPE:
                    raise InvalidRequest(f"inputs[{place}]: shape has more than {MAX_RANK} dimensions")
            elif number == _OF_INPUT_PARAMETERS:
                self._count(1)
            start = end
        kept += bytes_head(_INPUTS, sum(map(len, parts)))
        for part in parts:
            kept += part

    def _count_parameters(self, view: memoryview, field: int) -> None:
        self._count(sum(_number(tag) == field for tag, _, _ in _outside_groups(view)))

    def _count(self, parameters: int) -> None:
        self._parameters += parameters
        if self._parameters > MAX_PARAMETERS:
            raise InvalidRequest(f"the request has more than {MAX_PARAMETERS} parameters")


def _outside_groups(view: memoryview) -> Iterator[tuple[int, int, int]]:
    """As `fields_of`, with 0 as the tag of what belongs to a group: no message here has any, so nobody knows these."""
    depth = 0
    for tag, value, end in fields_of(view):
        kind = tag & 7
        depth += (kind == GROUP) - (kind == GROUP_END)
        if depth < 0:
            raise IndexError
        yield 0 if depth or kind == GROUP_END else tag, value, end
    if depth:
        raise IndexError


def _number(tag: int) -> int:
    """The number of a field that has a length, or may be dimensions; 0 for others."""
    return tag >> 3 if tag & 7 == BYTES or tag >> 3 == _OF_INPUT_SHAPE else 0


def field_of(datatype: str) -> str:
    """The field of `InferTensorContents` that holds a datatype.

    Raises:
        InvalidRequest: There is none.
    """
    field = TYPED.get(datatype)
    if field is None:
        raise InvalidRequest(f"datatype {datatype} has no field in contents: send it as raw_input_contents")
    return field


def read_contents(contents: Contents, datatype: str, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Typed contents as an array.

    Args:
        contents: What `without_contents` took off a message.
        datatype: The tensor's datatype.
        dtype: Its dtype.
        shape: Its shape.

    Raises:
        InvalidRequest: They are of another datatype, malformed, not as many as the shape needs, or out of the datatype's range.
    """
    field = field_of(datatype)
    try:
        if dtype.hasobject:
            return _strings(contents, datatype, field, shape)
        parts = _packed(contents, datatype, field)
        if dtype.kind == "f":
            return _floats(parts, dtype, field, shape)
        return _integers(parts, dtype, field, shape)
    except (IndexError, KeyError):
        raise InvalidRequest(f"contents.{field} cannot be parsed") from None


def check_count(elements: int, field: str, shape: tuple[int, ...]) -> int:
    """Compare how many elements there are with the shape, and return that.

    Raises:
        InvalidRequest: They are more or fewer.
    """
    expected = count(shape)
    if elements != expected:
        raise InvalidRequest(f"contents.{field} has {elements} elements: expected {expected} for shape {list(shape)}")
    return expected


class _Field:
    """One field of `InferTensorContents`. No other may have values.

    Args:
        name: Its name.
        datatype: The datatype that is in it.
    """

    def __init__(self, name: str, datatype: str) -> None:
        self._name = name
        self._datatype = datatype
        self._number = _FIELDS.index(name) + 1
        self._others: set[int] = set()

    def has(self, tag: int, size: int) -> bool:
        """Whether a value of so many bytes is its own. Values of other fields are noted."""
        number, kind = tag >> 3, tag & 7
        if kind in (GROUP, GROUP_END):
            raise IndexError
        if not 0 < number <= len(_FIELDS):
            return False
        has_one = kind == _WIRE_TYPES[number - 1]
        if number == self._number:
            return has_one or kind == BYTES
        if has_one or (kind == BYTES and size):
            self._others.add(number)
        return False

    def check_others(self) -> None:
        """Refuse what was noted."""
        if self._others:
            other = _FIELDS[min(self._others) - 1]
            raise InvalidRequest(f"contents.{other} is given: expected contents.{self._name} for {self._datatype}")


def _packed(contents: Contents, datatype: str, name: str) -> list[Buffer]:
    """The elements of a field as bytes, one after the other."""
    field, parts, together = _Field(name, datatype), list[Buffer](), bytearray()
    for part in contents:
        view = memoryview(part)
        for tag, value, end in fields_of(view):
            if not field.has(tag, end - value):
                continue
            if tag & 7 == BYTES and end - value > _APART:
                parts += [together, view[value:end]]
                together = bytearray()
            else:
                together += view[value:end]
    field.check_others()
    return [part for part in [*parts, together] if part]


def _floats(parts: list[Buffer], dtype: DType, field: str, shape: tuple[int, ...]) -> Array:
    if any(len(part) % dtype.itemsize for part in parts):
        raise IndexError
    array = np.empty(check_count(sum(map(len, parts)) // dtype.itemsize, field, shape), dtype)
    filled = 0
    for part in parts:
        values = np.frombuffer(part, dtype)
        array[filled : filled + len(values)] = values
        filled += len(values)
    return array.reshape(shape)


def _integers(parts: list[Buffer], dtype: DType, field: str, shape: tuple[int, ...]) -> Array:
    array = np.empty(check_count(sum(map(_count_varints, parts)), field, shape), dtype)
    wide_dtype, filled = _READ_AS.get(field, np.dtype("<u8")), 0
    for part in parts:
        for values in _varints(memoryview(part)):
            wide = values != 0 if dtype.kind == "b" else values.astype(wide_dtype)
            if dtype.kind != "b" and dtype != wide_dtype:
                limits = np.iinfo(dtype)
                if wide.min() < limits.min or wide.max() > limits.max:
                    integer_array(wide.tolist(), dtype, f"contents.{field}", filled)
            array[filled : filled + len(wide)] = wide
            filled += len(wide)
    return array.reshape(shape)


def _count_varints(part: Buffer) -> int:
    view = memoryview(part)
    if view[-1] & _CONTINUES:
        raise IndexError
    return sum(
        int(np.count_nonzero(np.frombuffer(view[start : start + _WINDOW], np.uint8) < _CONTINUES)) for start in range(0, len(view), _WINDOW)
    )


def _varints(view: memoryview) -> Iterator[Array]:
    """The numbers, some thousands at a time."""
    position = 0
    while position < len(view):
        window = np.frombuffer(view[position : position + _WINDOW], np.uint8)
        ends = np.flatnonzero(window < _CONTINUES)
        if not len(ends):
            raise IndexError
        starts = np.concatenate([[0], ends[:-1] + 1])
        lengths = ends - starts + 1
        longest = int(lengths.max())
        if longest > _MOST_OF_VARINT:
            raise IndexError
        values = (window[starts] & 0x7F).astype(np.uint64)
        for place in range(1, longest):
            longer = lengths > place
            values[longer] |= (window[starts[longer] + place] & 0x7F).astype(np.uint64) << np.uint64(7 * place)
        yield values
        position += int(ends[-1]) + 1


def _strings(contents: Contents, datatype: str, name: str, shape: tuple[int, ...]) -> Array:
    field = _Field(name, datatype)
    most = sum(map(len, contents)) // 2  # each has two bytes at least
    array = np.empty(min(count(shape), most), object)
    shared: dict[bytes, bytes] = {}
    filled = 0
    for part in contents:
        for found in _elements(memoryview(part), field):
            short = [shared.setdefault(element, element) if len(element) <= _SHARED else element for element in found]
            array[filled : filled + len(short)] = short[: max(len(array) - filled, 0)]
            filled += len(short)
    field.check_others()
    check_count(filled, name, shape)
    return array.reshape(shape)


def _elements(view: memoryview, field: _Field) -> Iterator[list[bytes]]:
    """The elements of BYTES, some thousands at a time."""
    position = 0
    while position < len(view):
        found, taken = _take(bytes(view[position : position + _WINDOW]))
        if not taken:  # one that is longer, or another field
            rest = view[position:]
            tag, value, taken = next(fields_of(rest))
            found = [bytes(rest[value:taken])] if field.has(tag, taken - value) else []
        yield found
        position += taken


def _take(window: bytes) -> tuple[list[bytes], int]:
    """The elements shorter than 128 bytes that a window begins with, and how many bytes of it they have."""
    found: list[bytes] = []
    position, end = 0, len(window)
    while position + 1 < end and window[position] == _ELEMENT and (size := window[position + 1]) < _CONTINUES:
        start = position + 2
        if start + size > end:
            break
        position = start + size
        found.append(window[start:position])
    return found, position
