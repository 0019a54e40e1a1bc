"""What a request says beside the numbers of its tensors. Knows no wire form and no models.

Most clients send the same outline again and again, with other numbers in it. So it is decoded, and held against a model, once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from .datatypes import Array, DType
from .rest.schemas import Parameters, RequestOutput
from .tensors import InferenceRequest, Tensor

SHORT: Final = 2**10
"""Bytes of an outline up to which it is remembered. Longer ones would let clients fill the memory."""

FEW: Final = 16
"""How many tensors an outline that is remembered has at most, as a byte may be enough to ask for one."""

REMEMBERED: Final = 128
"""How many outlines are remembered in one place."""


class InputOutline(msgspec.Struct, frozen=True, eq=False):
    """An input without its numbers."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    parameters: Parameters


class Outline(msgspec.Struct, frozen=True, eq=False):
    """A request without the numbers of its inputs. Many requests share it, so nobody changes what is in it."""

    inputs: list[InputOutline]
    id: str | None
    parameters: Parameters
    outputs: list[RequestOutput]

    def filled(self, arrays: Iterable[Array], identifier: str | None) -> InferenceRequest:
        """A request of its own, which models may change.

        Args:
            arrays: The inputs' arrays, in order, of the dtypes and shapes that it says.
            identifier: The `id`, where that was cut out of what the outline is of; None where it was not.
        """
        inputs = []
        for item, array in zip(self.inputs, arrays, strict=True):
            inputs.append(Tensor(item.name, array, item.parameters.copy()))
        outputs = [_own(output) for output in self.outputs] if self.outputs else []
        return InferenceRequest(inputs, self.id if identifier is None else identifier, self.parameters.copy(), outputs)


def _own(output: RequestOutput) -> RequestOutput:
    return RequestOutput(output.name, None if output.parameters is None else output.parameters.copy())


class Received(msgspec.Struct, frozen=True, eq=False):
    """A request, and its outline where that is remembered."""

    request: InferenceRequest
    outline: Outline | None = None
