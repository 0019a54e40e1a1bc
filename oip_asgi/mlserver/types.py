"""The requests and responses of MLServer's models, with its names and fields. A tensor's `data` becomes a
list only if it is looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from types import SimpleNamespace
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt

import oip_asgi as ours


class Parameters(SimpleNamespace):
    """Parameters, each an attribute: `content_type`, `headers`, which are those that came with a request, and
    any others."""

    def __init__(self, /, content_type: Any = None, headers: Any = None, **others: Any) -> None:
        super().__init__(content_type=content_type, headers=headers, **others)


class TensorData:
    """A list, or one value, as a model wrote it; or an array, which becomes a flat list when it is asked for,
    with `str` if `is_text`."""

    def __init__(self, root: Any, *, is_text: bool = False) -> None:
        self._root = root
        self._is_text = is_text

    @property
    def root(self) -> Any:
        if isinstance(self._root, np.ndarray):
            is_text = self._is_text and self._root.dtype.hasobject
            self._root = self._root.ravel().tolist()
            if is_text:
                with suppress(UnicodeDecodeError):
                    self._root = list(map(bytes.decode, self._root))
        return self._root

    def as_array(self, datatype: str) -> npt.NDArray[Any]:
        """The data as an array, without a list if there is none yet. Raises TypeError if they are not of the
        datatype."""
        try:
            dtype = ours.TensorSpec("data", cast(Any, datatype), []).dtype
        except ValueError as error:
            raise TypeError(str(error).partition(": ")[2]) from None
        root = self._root
        if dtype.hasobject:
            array = ours.Tensor(
                "data", root if isinstance(root, np.ndarray) else np.array(_flatten(root), object)
            ).array
        elif (
            dtype == np.uint64
            and isinstance(root, list)
            and all(type(each) is int and 0 <= each < 2**64 for each in _flatten(root))
        ):
            # numpy alone makes floats of 2**63 beside a small one
            array = np.array(root, np.uint64)
        elif (array := np.asanyarray(self._root)).dtype.hasobject:
            array = np.array(array.tolist())
            # None becomes NaN, and a whole number of more than 64 bits can be a float only
            array = array.astype(np.float64) if array.dtype.hasobject else array
        if array.dtype == dtype:
            return ours.Tensor("data", array).array
        if array.dtype.kind in "biufV" and not dtype.hasobject:
            with np.errstate(all="ignore"):
                converted = array.astype(dtype)
            is_lost = (
                np.isinf(converted) & np.isfinite(array)
                if dtype.kind in "fV"
                else (converted != array) | (array.dtype.kind in "fV")
            )
            if not is_lost.any():
                return ours.Tensor("data", converted).array
        raise TypeError(f"{self._root!r:.100} cannot be {datatype}")

    def __iter__(self) -> Iterator[Any]:
        return iter(self.root)

    def __getitem__(self, index: Any) -> Any:
        return self.root[index]

    def __len__(self) -> int:
        return len(self.root)


def _flatten(value: Any) -> list[Any]:
    return (
        [element for each in value for element in _flatten(each)]
        if isinstance(value, (list, tuple))
        else [value]
    )


class _Message:
    def dict(self, *, exclude: Any = ()) -> dict[str, Any]:
        """The fields that are set, as plain values, without those that `exclude` names, or for each name what
        to leave out of it."""
        return cast("dict[str, Any]", _dump(vars(self), exclude))


def _dump(value: Any, left_out: Any = ()) -> Any:
    if isinstance(value, TensorData):
        return value.root
    if isinstance(value, list):
        return [*map(_dump, value)]
    values = vars(value) if isinstance(value, (_Message, Parameters)) else value
    if not isinstance(values, dict):
        return value
    inner = left_out if isinstance(left_out, dict) else dict.fromkeys(left_out, True)
    return {
        name: _dump(each, inner.get(name, ()))
        for name, each in values.items()
        if each is not None and inner.get(name) is not True
    }


@dataclass(kw_only=True)
class MetadataTensor(_Message):
    """An input or output, as `model-settings.json` declares it."""

    name: str
    datatype: str
    shape: Sequence[int]
    parameters: Parameters | None = None


@dataclass(kw_only=True)
class RequestInput(MetadataTensor):
    """An input of a request."""

    data: Any

    def __post_init__(self) -> None:
        self.shape, self.data = (
            [*map(int, self.shape)],
            self.data if isinstance(self.data, TensorData) else TensorData(self.data),
        )

    @classmethod
    def of(cls, tensor: ours.Tensor, *, is_text: bool = True) -> Self:
        """A tensor in this form. Its array is not copied."""
        parameters = Parameters(**tensor.parameters) if tensor.parameters else None
        data = TensorData(tensor.array, is_text=is_text)
        return cls(
            name=tensor.name, datatype=tensor.datatype, shape=tensor.shape, parameters=parameters, data=data
        )

    def to_ours(self) -> ours.Tensor:
        """This as a tensor. BYTES of a model whose shape does not count them, such as one text with its
        length, have the shape `[N]`."""
        try:
            array, shape = self.data.as_array(self.datatype), tuple(self.shape)
        except TypeError as error:
            raise TypeError(f"{self.name!r}: {error}") from None
        shape = (array.size,) if array.dtype.hasobject and array.size != prod(shape) else shape
        return ours.Tensor(self.name, array.reshape(shape), _to_plain(self.parameters))


@dataclass(kw_only=True)
class ResponseOutput(RequestInput):
    """An output of a response."""


@dataclass(kw_only=True)
class RequestOutput(_Message):
    """An output that a request asks for."""

    name: str
    parameters: Parameters | None = None


@dataclass(kw_only=True)
class InferenceRequest(_Message):
    """A request, as `predict` gets it."""

    inputs: list[RequestInput]
    id: str | None = None
    parameters: Parameters | None = None
    outputs: list[RequestOutput] | None = None

    @classmethod
    def of(cls, request: ours.InferenceRequest, *, is_text: bool = True) -> Self:
        inputs = [RequestInput.of(each, is_text=is_text) for each in request.inputs]
        outputs = [
            RequestOutput(name=each.name, parameters=Parameters(**each.parameters or {}))
            for each in request.outputs
        ]
        return cls(
            inputs=inputs, id=request.id, parameters=Parameters(**request.parameters), outputs=outputs or None
        )

    def to_ours(self) -> ours.InferenceRequest:
        return ours.InferenceRequest(
            [each.to_ours() for each in self.inputs], self.id, _to_plain(self.parameters)
        )


@dataclass(kw_only=True)
class InferenceResponse(_Message):
    """A response, as `predict` returns it. The server fills in the name of the model, its version and the
    request's id.

    A version that `predict` gives counts if the model has none of its own.
    """

    outputs: list[ResponseOutput]
    model_name: str = ""
    model_version: str | None = None
    id: str | None = None
    parameters: Parameters | None = None

    @classmethod
    def of(cls, response: ours.InferenceResponse, *, is_text: bool = True) -> Self:
        outputs, parameters = (
            [ResponseOutput.of(each, is_text=is_text) for each in response.outputs],
            Parameters(**response.parameters),
        )
        return cls(
            outputs=outputs,
            model_name=response.model_name,
            model_version=response.model_version,
            parameters=parameters,
        )

    def to_ours(self) -> ours.InferenceResponse:
        outputs = [each.to_ours() for each in self.outputs]
        return ours.InferenceResponse(
            outputs, _to_plain(self.parameters), None, self.model_name, self.model_version
        )


def _to_plain(parameters: Parameters | None) -> dict[str, str | int | float | bool]:
    """The parameters that the protocol can send."""
    fields = {} if parameters is None else vars(parameters)
    return {name: value for name, value in fields.items() if isinstance(value, (str, int, float, bool))}
