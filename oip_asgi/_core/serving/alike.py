"""Items of a stream that are like the ones before them, which are encoded without being looked at again. Knows no transport.

What becomes of an array of numbers depends on its dtype and shape alone, and every text becomes one element. So items that are alike
differ in their contents only: an event with one number takes 3.8 microseconds instead of 8.4, and one with a text 3.3 instead of 19.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar, final

import numpy as np

from ..datatypes import NUMBERS, DType
from ..tensors import InferenceRequest, InferenceResponse
from .call import Call
from .form import Form
from .lasting import SMALL

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class StreamForm(Form[T_co], Protocol[T_co]):
    """A form of requests that may be answered more than once."""

    def encoder_like(self, request: InferenceRequest, response: InferenceResponse, /) -> Callable[[Any], T_co] | None:
        """What encodes responses that differ from this one in the contents of their only output alone; None where nothing is quicker than
        `encode`. It is given an array of the same dtype and shape. For BYTES, it is given the text of the only element, and raises
        `UnicodeEncodeError` where that cannot be UTF-8.

        Args:
            request: The request.
            response: A response without parameters. Its output has none either, and is of numbers, or of one element of BYTES.
        """


@final
class Alike(Generic[T]):
    """What is known of the items of one stream.

    Args:
        call: The request, which is decoded when its first item is noted.
        form: Its form.

    Attributes:
        encode: Gives an item as it leaves; None where it is not known to be like the others.
    """

    __slots__ = ("_call", "_form", "_seen", "encode")

    encode: Callable[[Any], T | None]

    def __init__(self, call: Call[T], form: StreamForm[T]) -> None:
        self._call = call
        self._form = form
        self._seen: tuple[object, ...] = ()
        self.encode = _unknown

    def note(self, item: Any, response: InferenceResponse) -> None:
        """Note an item that was checked, with its response, which is not encoded yet. Those behind two that are alike are known."""
        outputs, call = response.outputs, self._call
        if len(outputs) != 1 or outputs[0].parameters or response.parameters or not call.takes_plain:
            return
        name, array = outputs[0].name, outputs[0].array
        key = name if type(item) is dict and len(item) == 1 else None
        value = item if key is None else item.get(key)
        if type(value) is np.ndarray:
            is_plain = value is array and array.dtype in NUMBERS and array.nbytes <= SMALL
        else:
            is_plain = type(value) is str and array.dtype.hasobject and array.size == 1 and len(value) <= SMALL
        if not is_plain:
            return
        seen = (key, type(value), array.dtype, array.shape)
        encode = self._form.encoder_like(call.request, response) if seen == self._seen else None
        self._seen = seen
        if encode is None:
            self.encode = _unknown
        else:
            of_value = _of_texts(encode) if type(value) is str else _of_arrays(encode, array.dtype, array.shape)
            self.encode = of_value if key is None else _of_mappings(of_value, key)


def _unknown(_: Any) -> None:
    return None


def _of_arrays(encode: Callable[[Any], T], dtype: DType, shape: tuple[int, ...]) -> Callable[[Any], T | None]:
    def of_array(item: Any) -> T | None:
        return encode(item) if type(item) is np.ndarray and item.shape == shape and item.dtype == dtype else None

    return of_array


def _of_texts(encode: Callable[[Any], T]) -> Callable[[Any], T | None]:
    def of_text(item: Any) -> T | None:
        try:
            return encode(item) if type(item) is str and len(item) <= SMALL else None
        except UnicodeEncodeError:
            return None

    return of_text


def _of_mappings(of_value: Callable[[Any], T | None], key: str) -> Callable[[Any], T | None]:
    def of_mapping(item: Any) -> T | None:
        return of_value(item.get(key)) if type(item) is dict and len(item) == 1 else None

    return of_mapping
