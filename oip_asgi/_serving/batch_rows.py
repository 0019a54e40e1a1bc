"""Merges the rows of several requests, and splits the result of their call by request. Pure functions.

A result is split as the function returned it, before it becomes tensors: so the datatype of a list, or the content type of a column,
depends only on the request's own rows.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from .._codecs.dataframes import is_frame, is_series, keep_own_categories, to_pandas
from .._models.annotations import Outputs
from .._models.results import to_response
from .._protocol.datatypes import Array, datatype_of
from .._protocol.errors import ModelFault, show
from .._protocol.specs import write_spec
from .._protocol.tensors import InferenceResponse, Tensor, make_tensor


def merge_requests(requests: Sequence[Mapping[str, Tensor]], *, writable: bool) -> dict[str, Tensor]:
    """Make one tensor for each input, with the rows of all requests in order."""
    tensors: dict[str, Tensor] = {}
    for name, first in requests[0].items():
        array: Array = np.concatenate([own[name].array for own in requests])
        array.flags.writeable = writable
        tensors[name] = (make_tensor if array.dtype.hasobject else Tensor)(name, array, first.parameters)
    return tensors


def split_result(result: Any, rows: Sequence[int], outputs: Outputs) -> list[Any]:
    """Split a result into what the function would have returned for each request."""
    bounds = list(pairwise(accumulate(rows, initial=0)))
    if type(result) is np.ndarray and not outputs.codecs.are_extended:  # as nearly always
        return list(_cut_rows(_name_output(0, outputs), result, bounds))
    result = to_pandas(result)
    if is_frame(result) or not outputs.codecs.are_extended or outputs.codecs.request_codec_for_value(result) is None:
        cut = _cut_result(result, bounds, outputs)
        if cut is not None:
            return cut
    response = result if isinstance(result, InferenceResponse) else to_response(result, outputs, {})
    cuts = [list(_cut_rows(tensor.name, tensor.array, bounds)) for tensor in response.outputs]
    parts: list[Any] = []
    for index in range(len(rows)):
        tensors = [Tensor(tensor.name, cut[index], tensor.parameters) for tensor, cut in zip(response.outputs, cuts, strict=True)]
        parts.append(InferenceResponse(tensors, response.parameters, None, response.model_name, response.model_version))
    return parts


def _cut_result(result: Any, bounds: list[tuple[int, int]], outputs: Outputs) -> list[Any] | None:
    """Split a result that is an array, a list, a column or a frame, or a collection of these. None for any other."""
    values, names = [result], [_name_output(0, outputs)]
    join: Callable[[tuple[Any, ...]], Any] = operator.itemgetter(0)
    if isinstance(result, Mapping):
        keys, values, names = list(result), list(result.values()), list(map(str, result))
        join = lambda own: dict(zip(keys, own, strict=True))  # noqa: E731  (the other ways to join are no functions of ours)
    elif isinstance(result, tuple) or (isinstance(result, list) and len(outputs.declared) > 1 and outputs.returned.request_codec is None):
        values, names = list(result), [_name_output(index, outputs) for index in range(len(result))]
        join = tuple
    if not outputs.declared:
        for name, value in zip(names, values, strict=True):
            _check_is_clear(name, value, outputs)
    if not values or not all(isinstance(each, (np.ndarray, list)) or is_series(each) or is_frame(each) for each in values):
        return None
    cuts = [_cut_rows(name, value, bounds) for name, value in zip(names, values, strict=True)]
    return list(map(join, zip(*cuts, strict=True)))


def _check_is_clear(name: str, value: Any, outputs: Outputs) -> None:
    """Refuse a list of arrays: whether they are rows or outputs, nothing shows, as there may be as many of both."""
    arrays = [each for each in value if getattr(each, "ndim", 0)] if isinstance(value, list) else []
    if not arrays or outputs.names_codec or outputs.codecs.tensor_codec_for_value(value) is not None:
        return
    datatype = datatype_of(arrays[0].dtype) if isinstance(arrays[0], np.ndarray) else None
    spec = write_spec("output_0", datatype or "FP32", [-1, *arrays[0].shape[1:]])
    raise ModelFault(
        f"output {show(name)} is a list of arrays, which may be rows or outputs: if each is an output, declare each of them, as in "
        f"outputs=[{spec}, ...]; if each is a row, return numpy.stack(...) of them"
    )


def _name_output(index: int, outputs: Outputs) -> str:
    return outputs.declared[index].name if index < len(outputs.declared) else f"output_{index}"


def _cut_rows(name: str, value: Any, bounds: list[tuple[int, int]]) -> Sequence[Any]:
    """Cut out the rows of each request, as views if possible. There must be one for each row of the inputs."""
    shape, rows = getattr(value, "shape", None), bounds[-1][1]
    if shape is None:
        shape = (len(value),)
    if not shape or shape[0] != rows:
        has = f"{shape[0]} rows" if shape else "no rows"
        raise ModelFault(f"output {show(name)} has {has}, but the inputs have {rows}: with max_batch_size= each has a row in each output")
    if isinstance(value, (np.ndarray, list)):
        return [value] if len(bounds) == 1 else [value[start:end] for start, end in bounds]
    return [keep_own_categories(value.iloc[start:end]) for start, end in bounds]
