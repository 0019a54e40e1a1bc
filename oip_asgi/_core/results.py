"""What a model returned -> output tensors, held against what it declared. Knows no requests' wire forms.

Whatever is wrong here is the model's fault: `ModelFault` says it for the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from .datatypes import Array, cast, dtype_of
from .errors import InvalidRequest, ModelFault, shown
from .schemas import Parameters, RequestOutput
from .specs import TensorSpec
from .tensors import InferenceResponse, Tensor, wire_array

_PLAIN: Final = (bool, int, float, str, bytes, np.generic)


def to_response(result: Any, declared: Sequence[TensorSpec]) -> InferenceResponse:
    """Whatever a model returned as a response with its outputs.

    Args:
        result: An `InferenceResponse`; a mapping of names to arrays; a tuple or list in the order of the declared outputs; else
            one array, or what numpy makes one of. A Python or numpy scalar has shape `[1]`.
        declared: The declared outputs, or nothing.

    Raises:
        ModelFault: It cannot be that, or does not keep the declaration.
    """
    if isinstance(result, InferenceResponse):
        outputs = result.outputs
        parameters = result.parameters
        _check_parameters(parameters, "the response")
        for tensor in outputs:
            _check_parameters(tensor.parameters, f"output {shown(tensor.name)}")
    else:
        outputs = [_tensor(name, value) for name, value in _named(result, declared)]
        parameters = {}
    if declared:
        outputs = _keep(outputs, declared)
    elif len({tensor.name for tensor in outputs}) != len(outputs):
        raise ModelFault(f"outputs {[tensor.name for tensor in outputs]} have the same name twice")
    return InferenceResponse(outputs, parameters)


def _check_parameters(parameters: Parameters, where: str) -> None:
    for name, value in parameters.items():
        if not isinstance(value, (str, int, float)):
            raise ModelFault(f"{where} has the parameter {shown(name)} with the value {shown(value)}: expected str, bool, int or float")
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            raise ModelFault(f"{where} has the parameter {shown(name)} with the value {shown(value)}, which has more than 64 bits")


def _named(result: Any, declared: Sequence[TensorSpec]) -> list[tuple[str, Any]]:
    if isinstance(result, Mapping):
        return list(result.items())
    values = list(result) if _is_several(result, declared) else [result]
    names = [spec.name for spec in declared] or [f"output_{place}" for place in range(len(values))]
    if len(names) != len(values):
        raise ModelFault(f"{len(values)} outputs came back, but {names} are declared")
    return list(zip(names, values, strict=True))


def _is_several(result: Any, declared: Sequence[TensorSpec]) -> bool:
    """A tuple is always several outputs; a list of plain values, nested or not, is one tensor unless several are declared."""
    return isinstance(result, tuple) or (isinstance(result, list) and (len(declared) > 1 or not _is_plain(result)))


def _is_plain(value: Any) -> bool:
    return isinstance(value, _PLAIN) or (isinstance(value, list) and all(map(_is_plain, value)))


def _tensor(name: Any, value: Any) -> Tensor:
    if not isinstance(name, str):
        raise ModelFault(f"an output is called {shown(name)}: expected a string")
    if value is None:
        raise ModelFault(f"output {name!r} is None: a model returns its result")
    try:
        array = wire_array(value)
    except (TypeError, ValueError) as error:
        raise ModelFault(f"output {name!r} is no tensor: {error}") from error
    if array.ndim == 0 and not isinstance(value, np.ndarray):
        array = array.reshape(1)
    return Tensor(name, array)


def _keep(outputs: list[Tensor], declared: Sequence[TensorSpec]) -> list[Tensor]:
    by_name = {tensor.name: tensor for tensor in outputs}
    names = [spec.name for spec in declared]
    if len(by_name) != len(outputs) or by_name.keys() != set(names):
        raise ModelFault(f"outputs {[tensor.name for tensor in outputs]} came back, but {names} are declared")
    return [_cast(by_name[spec.name], spec) for spec in declared]


def _cast(tensor: Tensor, spec: TensorSpec) -> Tensor:
    array = tensor.array
    if array.shape == (1,) and not spec.shape:
        array = array.reshape(())  # a Python scalar for a declared scalar
    if not spec.fits(array.shape):
        raise ModelFault(f"output {spec.name!r} has shape {list(array.shape)}, but {list(spec.shape)} is declared")
    if tensor.datatype != spec.datatype:
        array = _converted(array, tensor, spec)
    return Tensor(spec.name, array, tensor.parameters)


def _converted(array: Array, tensor: Tensor, spec: TensorSpec) -> Array:
    dtype = dtype_of(spec.datatype)
    if dtype.hasobject or array.dtype.hasobject or not np.can_cast(array.dtype, dtype, "same_kind"):
        raise ModelFault(f"output {spec.name!r} has datatype {tensor.datatype}, but {spec.datatype} is declared")
    converted = cast(array, dtype)
    lost = converted != array if dtype.kind in "ui" else np.isinf(converted) & ~np.isinf(array)
    if np.any(lost):
        raise ModelFault(f"output {spec.name!r} has values of {tensor.datatype} that do not fit the declared {spec.datatype}")
    return converted


def select(outputs: list[Tensor], asked: Sequence[RequestOutput]) -> list[Tensor]:
    """The outputs that a request asked for, in its order; all of them where it asked for none.

    Raises:
        InvalidRequest: One was asked for that is not there.
    """
    if not asked:
        return outputs
    check_asked(asked, [tensor.name for tensor in outputs])
    by_name = {tensor.name: tensor for tensor in outputs}
    return [by_name[output.name] for output in asked]


def check_asked(asked: Sequence[RequestOutput], known: Sequence[str]) -> None:
    """Hold the outputs that a request asks for against the model's.

    Raises:
        InvalidRequest: One is unknown, or asked for twice.
    """
    seen: set[str] = set()
    for output in asked:
        if output.name in seen:
            raise InvalidRequest(f"output {shown(output.name)} is asked for twice: expected each name once")
        seen.add(output.name)
        if output.name not in known:
            raise InvalidRequest(f"unknown output {shown(output.name)}: expected {', '.join(shown(name) for name in known)}")
