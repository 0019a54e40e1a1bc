"""Classification: the largest elements of an output as text, with their indices and labels. Knows no
transport.

Specification: Triton's Classification Extension.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from .._protocol.datatypes import DType, datatype_of, object_array
from .._protocol.errors import InvalidRequest, show
from .._protocol.schemas import RequestOutput
from .._protocol.tensors import CLASSIFICATION, InferenceResponse, Tensor
from .common import ApplyOptions

_MAX_ELEMENTS: Final = 1_000_000
"""How many elements an output may have: each requested one becomes text."""


def prepare_outputs(
    outputs: Iterable[RequestOutput], dtypes: Mapping[str, DType], labels: Mapping[str, Sequence[str]]
) -> ApplyOptions | None:
    """Make what classifies the outputs for which a request asks that. None if there are none. `dtypes` are
    the declared ones."""
    numbers: dict[str, int] = {}
    for output in outputs:
        parameters, where = output.parameters or {}, f"requested output {show(output.name)}"
        most = parameters.get(CLASSIFICATION, 0)
        if type(most) is not int or most < 0:
            raise InvalidRequest(
                f"{where} has the parameter {CLASSIFICATION} = {show(most)}: expected an integer, 0 or more"
            )
        if most:
            numbers[output.name] = most
            if "content_type" in parameters:
                raise InvalidRequest(
                    f"{where} has the parameters {CLASSIFICATION} and content_type: expected one of them"
                )
            if output.name in dtypes:
                _check_datatype(output.name, dtypes[output.name])

    def apply_options(response: InferenceResponse) -> InferenceResponse:
        tensors = [
            classify(tensor, numbers[tensor.name], labels.get(tensor.name, ()))
            if tensor.name in numbers
            else tensor
            for tensor in response.outputs
        ]
        return InferenceResponse(
            tensors, response.parameters, response.id, response.model_name, response.model_version
        )

    return apply_options if numbers else None


def classify(tensor: Tensor, most: int, labels: Sequence[str]) -> Tensor:
    """Replace an output by its largest elements, each as `value:index` or `value:index:label`."""
    array = tensor.array
    _check_datatype(tensor.name, array.dtype)
    if array.size > _MAX_ELEMENTS:
        raise InvalidRequest(
            f"output {show(tensor.name)} has {array.size} elements: classification takes {_MAX_ELEMENTS} at "
            "most"
        )
    rows = (
        array.reshape(1, -1) if array.ndim < 2 else array.reshape(len(array), int(np.prod(array.shape[1:])))
    )
    number = min(most, rows.shape[1])
    # in descending order, the lower index first of equal elements, and NaN last: `~` reverses the order of
    # integers
    order = np.argsort(-rows if rows.dtype.kind == "f" else ~rows, axis=1, kind="stable")
    indices = order[:, :number]
    template = "%d:%d" if rows.dtype.kind in "iu" else "%f:%d"
    pairs = zip(
        np.take_along_axis(rows, indices, axis=1).ravel().tolist(), indices.ravel().tolist(), strict=True
    )
    texts = [
        template % (value, index) + (f":{labels[index]}" if index < len(labels) else "")
        for value, index in pairs
    ]
    elements = list(map(str.encode, texts))
    return Tensor(tensor.name, object_array(elements, (number,) if array.ndim < 2 else (len(rows), number)))


def _check_datatype(name: str, dtype: DType) -> None:
    if dtype.kind not in "iuf":
        raise InvalidRequest(
            f"output {show(name)} has datatype {datatype_of(dtype)}: classification needs integers, FP16, "
            "FP32 or FP64"
        )
