"""The content types `np`, `str`, `base64` and `pd_json`. Arrays are written as `[N, 1]`, lists as `[N]`; a
declared output decides by `_codecs.base`.

Specification: Content Types, NumPy Array, UTF-8 String, Base64.
"""

from __future__ import annotations

import binascii
import json
import math
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Final

import msgspec
import numpy as np

from .._json.text import MAX_DEPTH, check_unseen
from .._protocol.datatypes import FIRST_ROUNDED, Array, Writers, object_array
from .._protocol.errors import InvalidRequest, show
from .._protocol.tensors import Tensor
from .base import InputCodec, ListCodec, SingleTensorCodec, bytes_of, decode_elements

write_base64: Final = partial(binascii.b2a_base64, newline=False)

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


class NumpyCodec(InputCodec[Array]):
    """numpy arrays. An array of shape `[N]` is written as `[N, 1]`, as the specification asks; other shapes
    do not change. BYTES are object arrays of `bytes`."""

    content_type = "np"
    type_hint = np.ndarray

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return isinstance(payload, np.ndarray)

    @classmethod
    def encode_input(cls, name: str, payload: Array, use_bytes: bool = True) -> Tensor:
        tensor = Tensor(name, payload, {"content_type": cls.content_type})
        if tensor.array.ndim == 1:
            tensor.array = tensor.array.reshape(-1, 1)
        return tensor

    @classmethod
    def decode_input(cls, request_input: Tensor) -> Array:
        return request_input.array


class NumpyRequestCodec(SingleTensorCodec[Array]):
    """One numpy array as a whole request or response, under MLServer's names `input-1` and `output-1`."""

    content_type = "np"
    type_hint = np.ndarray
    input_codec = NumpyCodec


def _check_utf8(element: bytes) -> bytes:
    element.decode()
    return element


class StringCodec(ListCodec[str]):
    """Lists of strings, in UTF-8. Writes `[N]`, reads `[N]` and `[N, 1]`."""

    content_type = "str"
    type_hint = list[str]
    writers: ClassVar[Writers] = {str: str.encode, bytes: _check_utf8}
    expected = "a string"

    @classmethod
    def decode_input(cls, request_input: Tensor) -> list[str]:
        return decode_elements(request_input, bytes.decode, cls.content_type, "UTF-8")


class StringRequestCodec(SingleTensorCodec[list[str]]):
    """One list of strings as a request or response, under MLServer's names `input-1` and `output-1`."""

    content_type = "str"
    type_hint = list[str]
    input_codec = StringCodec


class Base64Codec(ListCodec[bytes]):
    """Lists of `bytes`, as text, so that any bytes can be JSON. Writes `[N]`, reads `[N]` and `[N, 1]`, and
    refuses text that is not base64."""

    content_type = "base64"
    type_hint = list[bytes]
    writers: ClassVar[Writers] = dict.fromkeys((bytes, bytearray, memoryview), write_base64)
    expected = "bytes"

    @classmethod
    def decode_input(cls, request_input: Tensor) -> list[bytes]:
        return decode_elements(
            request_input, partial(binascii.a2b_base64, strict_mode=True), cls.content_type, "base64"
        )


class PandasJSONCodec(InputCodec[list[Any]]):
    """Lists of any Python values that JSON has, each as its own JSON text without spaces. Arrays, alone or
    inside of others, are written as nested lists. NaN becomes null, and an infinity the string "Infinity" or
    "-Infinity", as in all JSON of this package; on decode they stay strings, since nothing says that a number
    was meant. MLServer writes columns of Python objects like this, although its documentation of content
    types does not name it."""

    content_type = "pd_json"
    datatype = "BYTES"

    @classmethod
    def encode_input(cls, name: str, payload: Sequence[Any], use_bytes: bool = True) -> Tensor:
        if isinstance(payload, (str, bytes, Mapping, Set)):  # keys alone, or no order
            raise TypeError(
                f"tensor {name!r}: the content_type {cls.content_type!r} is for a list, but this is "
                f"{show(payload)}"
            )
        return Tensor(
            name, object_array(_to_texts(payload, name), (len(payload),)), {"content_type": cls.content_type}
        )

    @classmethod
    def decode_input(cls, request_input: Tensor) -> list[Any]:
        texts = bytes_of(request_input, cls.content_type)
        if not [text for text in texts if b"[" in text or b"{" in text]:
            # the error of the loop below names the element
            with suppress(msgspec.DecodeError, UnicodeDecodeError):
                return list(map(_decode, texts))
        return decode_elements(request_input, read_json, cls.content_type, "JSON")


def read_beside_missing(tensor: Tensor, kind: str) -> list[Any]:
    """The values of JSON texts of which some may be null, as data of such a kind of dtype: 2.0 is a whole
    number, 0 and 1 are booleans."""
    values = PandasJSONCodec.decode_input(tensor)
    classes = {*map(type, values)}
    if kind in "iu" and float in classes:
        return [
            int(each) if type(each) is float and each.is_integer() and abs(each) < FIRST_ROUNDED else each
            for each in values
        ]
    if kind == "b" and int in classes:
        return [each == 1 if type(each) is int and each in (0, 1) else each for each in values]
    return values


def _to_texts(values: Sequence[Any], name: str) -> list[bytes]:
    if set(map(type, values)) <= {str, int, bool, type(None)}:
        with suppress(UnicodeEncodeError):  # a lone surrogate; the loop below names its row
            return list(map(_encode, values))
    texts: list[bytes] = []
    for row, value in enumerate(values):
        try:
            texts.append(_to_json(_to_plain(value)).encode())
        except RecursionError:
            raise TypeError(f"column {name!r}, row {row} is nested too deep for JSON") from None
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"column {name!r}, row {row} is {show(value)}, which has no JSON form: {error} "
                "(pandas.to_datetime makes a column of dates that can be sent, astype(float) one of decimals)"
            ) from None
    return texts


def _to_plain(value: Any) -> Any:
    """A value as `json` writes it: arrays as lists, NaN as None, infinities as strings."""
    # of which it makes numbers
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind not in "mM":
        value = value.tolist()
    if isinstance(value, dict):
        return {key: _to_plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_plain(inner) for inner in value]
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return None if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


_to_json: Final = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode


def read_json(text: bytes) -> Any:
    try:
        value = _decode(text)
        if text.count(b"[") + text.count(b"{") > MAX_DEPTH:
            check_unseen(text)  # so that a model can copy, compare and return the value
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except InvalidRequest:
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep") from None
    except msgspec.DecodeError as error:
        raise ValueError(
            f'{error}; a string is a JSON text with its quotes, as in "data": ["\\"Bonn\\""]'
        ) from None
    return value
