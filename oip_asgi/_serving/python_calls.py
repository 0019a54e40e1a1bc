"""An inference request from Python: values by name become tensors, and the response stays an object. Nothing
is serialized.

The caller's values stay as they are: they are neither changed nor made read-only. No array of the response
shares memory with them, or with anything that the model keeps.

`warm_up` makes such calls of a model that has just been loaded, before it answers anybody: the first request
is then as quick as the second. They run as those of requests do, with slots and numbers of their own. Knows
no transport.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeAlias

import msgspec
import numpy as np

from .._codecs.content_types import Codecs
from .._codecs.values import to_inputs
from .._io import IO
from .._json.tensor_data import from_value
from .._models.handler import Handler
from .._models.model import Model
from .._protocol.context import NO_HEADERS, ResponseHeaders
from .._protocol.datatypes import MAX_RANK, NUMBERS, Buffer, dtype_of
from .._protocol.errors import InferenceError, InvalidRequest, ModelFault, error_text, show
from .._protocol.schemas import RequestOutput
from .._protocol.specs import TensorSpec
from .._protocol.tensor_bytes import count
from .._protocol.tensors import (
    InferenceRequest,
    InferenceResponse,
    ReadRegion,
    Tensor,
    make_tensor,
    to_plain_parameters,
)
from .engine import Engine
from .failures import as_client_error
from .pipeline import infer
from .stream import stream

_ELEMENT: Final = 16
"""The assumed bytes of an element that is converted as a Python object."""


class PythonHead(msgspec.Struct, eq=False):
    """A call from Python has no headers."""

    response_headers: ResponseHeaders | None = None  # nobody sees them

    transport = None

    def named_headers(self) -> Mapping[str, str]:
        return NO_HEADERS


class PythonFormat(msgspec.Struct, eq=False):
    """One call from Python."""

    inputs: Any  # the inputs by name, or a value that a request codec encodes, such as a data frame
    parameters: Mapping[str, Any]
    outputs: Sequence[str | RequestOutput]
    """The outputs that are asked for, by name or with parameters; empty means all."""
    id: str | None
    codecs: Codecs
    head: PythonHead = msgspec.field(default_factory=PythonHead)

    timeout = math.inf
    shares_arrays = True
    encode_arrays: ClassVar[None] = None
    body = b""  # what is decoded are the inputs

    async def read(self, _: IO) -> Buffer:
        return self.body

    @property
    def size(self) -> int:
        return sum(
            map(_estimate_size, self.inputs.values() if isinstance(self.inputs, Mapping) else (self.inputs,))
        )

    def is_quick(self, _: Buffer) -> bool:
        return False

    def sends_bytes(self, _: InferenceRequest) -> bool:
        return True

    def decode(self, _: Buffer, handler: Handler, __: ReadRegion, ___: object = None) -> InferenceRequest:
        parameters = to_plain_parameters("the request", self.parameters, InvalidRequest)
        columns = handler.binding.inputs.find_columns(self.inputs if isinstance(self.inputs, Mapping) else ())
        tensors, of_codec = to_inputs(
            self.inputs, handler.shown_inputs, self.codecs, columns, handler.binding.may_be_null
        )
        inputs = list(map(_make_own_tensor, tensors))
        outputs = [RequestOutput(output) if isinstance(output, str) else output for output in self.outputs]
        return InferenceRequest(inputs, self.id, {**of_codec, **parameters}, outputs)

    def encode(self, _: InferenceRequest, response: InferenceResponse) -> InferenceResponse:
        for tensor in response.outputs:
            tensor.array = tensor.array.copy()
        return response


async def infer_values(
    engine: Engine, io: IO, name: str, version: str | None, wire: PythonFormat
) -> InferenceResponse:
    """Answer one call from Python with its only response."""
    try:
        return await infer(engine, engine.find_for_inference(name, version), wire, io)
    except InferenceError:
        raise
    except Exception as error:
        raise as_client_error(error) from error


def _estimate_size(value: object) -> int:
    """Estimate how many bytes must be converted. Arrays of numbers count 0, as they need no conversion."""
    if isinstance(value, Tensor) or (isinstance(value, np.ndarray) and value.dtype in NUMBERS):
        return 0
    number = 1
    for _ in range(MAX_RANK):  # a list may hold itself
        if not isinstance(value, (list, tuple)) or not value:
            break
        number, value = number * len(value), value[0]
    if number > 1:
        return number * _ELEMENT
    size = getattr(value, "size", 1)  # of arrays, frames and series
    return size * _ELEMENT if isinstance(size, int) else _ELEMENT


def _make_own_tensor(tensor: Tensor) -> Tensor:
    """Make a read-only view, so that the caller's own array stays writable."""
    try:
        count(tensor.array.shape)
    except InvalidRequest as error:
        raise InvalidRequest(f"input {show(tensor.name)}: {error}") from None
    array = tensor.array.view()
    array.flags.writeable = False
    return make_tensor(tensor.name, array, tensor.parameters)


MakeExamples: TypeAlias = Callable[[Sequence[TensorSpec]], list[dict[str, Any]]]
"""Makes an example of each tensor, as JSON has it."""


async def warm_up(
    engine: Engine, model: Model, make_examples: MakeExamples, io: IO, handler: Handler
) -> None:
    """Call what `load=` returned with the examples of `warm_up=`. Raises ModelFault if one fails, or takes
    longer than `timeout=`."""
    options, stand_in = model.options, model.make_stand_in(handler)
    examples = [_list_examples(handler, make_examples)] if options.warm_up is True else options.warm_up or ()
    for inputs in examples:
        wire = PythonFormat(inputs, {}, (), None, engine.codecs)
        try:
            if stand_in.streams and handler.once is None:
                async for _ in stream(engine, stand_in, wire, io):
                    pass
            else:
                await infer(engine, stand_in, wire, io)
        except InferenceError as error:
            raise ModelFault(f"{model}: a call of warm_up= failed: {error_text(error)}") from error


def _list_examples(handler: Handler, make_examples: MakeExamples) -> Mapping[str, Any]:
    """An example of each input that a request must have, by name."""
    if handler.binding.inputs.undeclared:
        raise ModelFault(
            f"{handler}: warm_up=True needs declared inputs: write inputs=, or the inputs of a call, "
            "warm_up=[{...}]"
        )
    required = handler.binding.inputs.required
    examples = make_examples(
        [spec for spec in handler.shown[0] if spec.name in required or not handler.is_checked]
    )
    return {
        each["name"]: make_tensor(
            each["name"], from_value(each["data"], dtype_of(each["datatype"]), tuple(each["shape"])), {}
        )
        for each in examples
    }
