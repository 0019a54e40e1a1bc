"""An inference request from Python: values by name become tensors, and the response stays an object. Nothing is serialized.

The caller's values stay as they are: they are neither changed nor made read-only. No array of the response shares memory with them, or with
anything that the model keeps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeVar

import msgspec
import numpy as np

from .._codecs.base import AnyInputCodec
from .._codecs.content_types import Codecs
from .._codecs.dataframes import is_frame, is_series
from .._codecs.frame_columns import column_to_tensor
from .._codecs.torch import replace_torch
from .._models.model import Model
from .._models.specs import TensorSpec
from .._protocol.datatypes import NUMBERS, Array, Buffer, cast, integer_array
from .._protocol.effects import Steps, finish
from .._protocol.errors import InferenceError, InvalidRequest, ModelFault, show
from .._protocol.schemas import Parameters, RequestOutput
from .._protocol.tensor_bytes import count
from .._protocol.tensors import InferenceRequest, InferenceResponse, Lend, Tensor, as_array, make_tensor, to_plain, to_wire_array
from .copy_rule import SMALL
from .engine import Engine
from .failures import log_own_fault
from .pipeline import answer_once, infer
from .stream import Stream

T = TypeVar("T")

_ELEMENT: Final = 16
"""The assumed bytes of an element that is converted as a Python object."""

_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class PythonFormat(msgspec.Struct, frozen=True, eq=False):
    """One call from Python.

    Args:
        inputs: The inputs by name, or a value that a request codec encodes, such as a data frame.
        parameters: The request's parameters.
        outputs: The outputs that are asked for, by name or with parameters; empty means all.
        id: The request's identifier.
        codecs: Those of the server.
    """

    inputs: Any
    parameters: Mapping[str, Any]
    outputs: Sequence[str | RequestOutput]
    id: str | None
    codecs: Codecs

    timeout = math.inf

    @property
    def transport(self) -> Any:
        return None

    def named_headers(self) -> Mapping[str, str]:
        return _NO_HEADERS

    def read(self) -> Buffer:
        return b""

    @property
    def size(self) -> int:
        values = self.inputs.values() if isinstance(self.inputs, Mapping) else (self.inputs,)
        return sum(map(_estimate_size, values))

    def decode(self, _: Buffer, model: Model, __: Lend) -> InferenceRequest:
        specs = {spec.name: spec for spec in model.inputs}
        parameters = _check_parameters(self.parameters)
        inputs: list[Tensor] = []
        whole = self.codecs.request_codec_of(self.inputs)
        if whole is not None:
            made = _encode("inputs", lambda: whole.encode_request(self.inputs))
            checked = [Tensor(tensor.name, tensor.array, tensor.parameters) for tensor in made.inputs]  # whose codec may be a user's
            inputs, parameters = list(map(_make_own, checked)), {**made.parameters, **parameters}
        elif isinstance(self.inputs, Mapping):
            for name, value in self.inputs.items():
                if not isinstance(name, str):
                    raise InvalidRequest(f"an input is called {show(name)}: expected a string")
                if is_frame(value):
                    raise InvalidRequest(f"input {show(name)} is a data frame, whose columns are inputs: give it alone, not by a name")
                inputs.append(_make_own(_make_tensor(to_plain(name), value, specs.get(name), self.codecs)))
        else:
            raise InvalidRequest(f"the inputs are {show(self.inputs)}: expected values by name, such as {{'x': array}}, or a data frame")
        outputs = [RequestOutput(output) if isinstance(output, str) else output for output in self.outputs]
        return InferenceRequest(inputs, self.id, parameters, outputs)

    def encode(self, _: InferenceRequest, response: InferenceResponse) -> InferenceResponse:
        for tensor in response.outputs:
            array = tensor.array
            if array.nbytes <= SMALL or not array.flags.writeable:  # others are copies already
                tensor.array = array.copy()
        return response


def infer_values(engine: Engine, name: str, version: str | None, wire: PythonFormat) -> Steps[InferenceResponse]:
    """Answer one call from Python."""
    try:
        response: InferenceResponse = yield from finish(infer(engine, engine.find_for_inference(name, version), wire, answer_once))
        return response
    except InferenceError:
        raise
    except Exception as error:
        raise log_own_fault(error) from error


def stream_values(engine: Engine, name: str, version: str | None, wire: PythonFormat) -> Steps[None]:
    """Answer one call from Python, and send each response."""
    try:
        yield from Stream(engine, engine.find_for_inference(name, version), wire).run()
    except InferenceError:
        raise
    except Exception as error:
        raise log_own_fault(error) from error


def _estimate_size(value: object) -> int:
    """Estimate how many bytes must be converted. Arrays of numbers count 0, as they need no conversion."""
    if isinstance(value, Tensor) or (isinstance(value, np.ndarray) and value.dtype in NUMBERS):
        return 0
    if isinstance(value, (list, tuple)):
        return len(value) * max(_ELEMENT, _estimate_size(value[0]) if value else 0)
    size = getattr(value, "size", 1)  # of arrays, frames and series
    return size * _ELEMENT if isinstance(size, int) else _ELEMENT


def _check_parameters(parameters: Mapping[str, Any]) -> Parameters:
    for name, value in parameters.items():
        if not isinstance(name, str) or not isinstance(value, (str, int, float, bool)):
            raise InvalidRequest(f"the request has the parameter {show(name)} = {show(value)}: expected a str, int, float or bool")
    return dict(parameters)


def _make_tensor(name: str, value: Any, spec: TensorSpec | None, codecs: Codecs) -> Tensor:
    if isinstance(value, Tensor):
        return Tensor(name, value.array, dict(value.parameters))
    if is_series(value):
        return _encode(f"input {show(name)}", lambda: column_to_tensor(name, value))
    value = _encode(f"input {show(name)}", lambda: replace_torch(value))
    codec = None if isinstance(value, np.ndarray) else _find_codec(value, spec, codecs)
    if codec is not None:
        return _encode(f"input {show(name)}", lambda: codec.encode_input(name, value))
    array = _encode(f"input {show(name)}", lambda: _make_array(value))
    if not isinstance(value, (np.ndarray, np.generic)) and spec is not None and array.dtype != spec.dtype:
        array = _cast_numbers(name, array, spec)
    return make_tensor(name, array, {})


def _find_codec(value: Any, spec: TensorSpec | None, codecs: Codecs) -> AnyInputCodec | None:
    if spec is not None and spec.content_type not in (None, "np"):
        return codecs.inputs[str(spec.content_type)]
    return codecs.tensor_codec_of(value)


def _make_array(value: Any) -> Array:
    array = to_wire_array(as_array(value))
    return array.reshape(1) if array.ndim == 0 and not isinstance(value, np.ndarray) else array


def _cast_numbers(name: str, array: Array, spec: TensorSpec) -> Array:
    """Convert numbers from a list to the declared datatype. Return other values as they are: they are refused later."""
    dtype, kind = spec.dtype, array.dtype.kind
    if array.size == 0:
        return array.astype(dtype)
    if dtype.kind in "iu" and kind in "iu":
        return integer_array(array.ravel().tolist(), dtype, f"input {show(name)}").reshape(array.shape)
    if spec.datatype in ("FP16", "BF16", "FP32", "FP64") and kind in "iuf":
        converted = cast(array, dtype)
        if np.any(np.isinf(converted) & ~np.isinf(array)):
            raise InvalidRequest(f"input {show(name)} has values that are out of range for {spec.datatype}")
        return converted
    return array


def _encode(where: str, encode: Callable[[], T]) -> T:
    try:
        return encode()
    except (TypeError, ValueError, ModelFault) as error:
        raise InvalidRequest(f"{where}: {error}") from error


def _make_own(tensor: Tensor) -> Tensor:
    """Make a read-only view, so that the caller's own array stays writable."""
    try:
        count(tensor.array.shape)
    except InvalidRequest as error:
        raise InvalidRequest(f"input {show(tensor.name)}: {error}") from None
    array = tensor.array.view()
    array.flags.writeable = False
    return make_tensor(tensor.name, array, tensor.parameters)
