"""Requests that say nothing but arrays, for models that take arrays and return arrays: most short requests
are such. Only the arrays are made, and the objects of `tensors` as soon as somebody reads them.

Knows no wire format: one that makes such requests asks `ArrayModel` what an input must be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, final

import msgspec
from numpy import ndarray  # `np.ndarray` takes longer, as the module has a `__getattr__`

from .datatypes import DTYPES, NUMBERS, Array, DType
from .limits import LOOP_BINARY, LOOP_TEXT
from .schemas import Parameters, RequestOutput
from .specs import TensorSpec
from .tensors import InferenceRequest, make_tensor

Specs: TypeAlias = Sequence[tuple[str, TensorSpec | None]]
"""Tensors by name, and what is declared of each."""


class ArrayModel(msgspec.Struct, frozen=True, eq=False):
    """A model whose arguments and outputs are arrays, each of its own."""

    name: str
    version: str | None
    inputs: Specs
    outputs: Specs
    is_by_keyword: bool
    """Whether its arguments are given by keyword, by the names of the inputs, and not by position."""

    def find_dtype(self, place: int, name: str, datatype: str, shape: tuple[int, ...]) -> DType | None:
        """The dtype of the input at this place; None if the model takes something else there."""
        expected, spec = self.inputs[place]
        if name != expected:
            return None
        if spec is None:
            return DTYPES.get(datatype)  # type: ignore[call-overload,no-any-return]  # any text comes here
        return spec.dtype if datatype == spec.datatype and spec.fits(shape) else None


@final
class ArrayRequest(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A request of one array for each input of its model, in their order. It wants all outputs."""

    model: ArrayModel
    arrays: dict[str, Array]
    id: str | None
    is_binary: bool  # whether the outputs leave as bytes, as these say
    parameters: Parameters
    outputs: list[RequestOutput]

    def take_arrays(self, result: Any) -> list[Array] | None:
        """The outputs of a result that is just as declared, and that an event loop may encode; None for any
        other."""
        outputs, kind, size = self.model.outputs, type(result), 0
        values = (result,) if kind is ndarray else result
        if kind not in (ndarray, dict, tuple) or len(values) != len(outputs):
            return None
        arrays: list[Array] = []
        for name, spec in outputs:
            array = result.get(name) if kind is dict else values[len(arrays)]
            if type(array) is not ndarray or not array.size:
                return None
            if (
                array.dtype not in NUMBERS
                if spec is None
                else array.dtype != spec.dtype or not spec.fits(array.shape)
            ):
                return None
            size += array.nbytes
            arrays.append(array)
        return arrays if size <= (LOOP_BINARY if self.is_binary else LOOP_TEXT) else None

    def make_request(self) -> InferenceRequest:
        return InferenceRequest(
            [make_tensor(name, array, {}) for name, array in self.arrays.items()],
            self.id,
            self.parameters,
            self.outputs,
        )
