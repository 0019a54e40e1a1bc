"""The content type `pd_json`: lists of any values that JSON has, one JSON text for each value. Knows no frames and no columns.

MLServer writes columns of Python objects like this, although its documentation of content types does not name it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
import numpy as np

from .._json.text import MAX_DEPTH, check_unseen
from .._protocol.errors import InvalidRequest, show
from .._protocol.tensors import Tensor, object_array
from .base import InputCodec, bytes_of, decode_elements

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


class PandasJSONCodec(InputCodec[list[Any]]):
    """Lists of any Python values that JSON has, each as its own JSON text without spaces. Arrays, alone or inside of others, are written
    as nested lists. NaN becomes null, and an infinity the string "Infinity" or "-Infinity", as in all JSON of this package; on decode
    they stay strings, since nothing says that a number was meant."""

    content_type = "pd_json"
    datatype = "BYTES"
    needs_pandas = True

    @classmethod
    def encode_input(cls, name: str, payload: list[Any], use_bytes: bool = True) -> Tensor:
        return Tensor(name, object_array(_to_texts(payload, name), (len(payload),)), {"content_type": cls.content_type})

    @classmethod
    def decode_input(cls, request_input: Tensor) -> list[Any]:
        texts = bytes_of(request_input, cls.content_type)
        if not [text for text in texts if b"[" in text or b"{" in text]:
            with suppress(msgspec.DecodeError, UnicodeDecodeError):  # the error of the loop below names the element
                return list(map(_decode, texts))
        return decode_elements(request_input, _from_text, cls.content_type, "JSON")


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
            raise TypeError(f"column {name!r}, row {row} is {show(value)}, which has no JSON form: {error}") from None
    return texts


def _to_plain(value: Any) -> Any:
    """A value as `json` writes it: arrays as lists, NaN as None, infinities as strings."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, dict):
        return {key: _to_plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_plain(inner) for inner in value]
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return None if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _refuse(value: Any) -> Any:
    raise TypeError(f"{type(value).__name__} is no JSON type")


_to_json: Final = json.JSONEncoder(default=_refuse, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode


def _from_text(text: bytes) -> Any:
    try:
        value = _decode(text)
        if text.count(b"[") + text.count(b"{") > MAX_DEPTH:
            check_unseen(text)  # so that a model can copy, compare and return the value
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except InvalidRequest:
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep") from None
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None
    return value
