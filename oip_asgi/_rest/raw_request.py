"""A raw binary request: the body is the only input's bytes. Knows no URLs, statuses or models.

Specification: Triton's raw binary request, `Inference-Header-Content-Length: 0`.
"""

from __future__ import annotations

from .._protocol.datatypes import Buffer, DType, dtype_of
from .._protocol.errors import InvalidRequest, shown
from .._protocol.tensor_bytes import count, from_raw
from .._protocol.tensors import InferenceRequest, Tensor, object_array


def raw_request(body: Buffer, name: str, datatype: str, shape: tuple[int, ...]) -> InferenceRequest:
    """A raw binary request: the body is the only input's bytes, and all outputs are to be binary."""
    dtype = dtype_of(datatype)
    try:
        deduced = _deduce(shape, len(body), dtype)
        # the only element of BYTES is the body itself, without the length that frames each of several
        array = object_array([bytes(body)], deduced) if dtype.hasobject else from_raw(body, dtype, deduced)
    except InvalidRequest as error:
        raise InvalidRequest(f"raw binary request for input {shown(name)}: {error}") from None
    return InferenceRequest([Tensor(name, array)], parameters={"binary_data_output": True})


def _deduce(shape: tuple[int, ...], size: int, dtype: DType) -> tuple[int, ...]:
    if dtype.hasobject:
        one = tuple(1 if dimension == -1 else dimension for dimension in shape)
        if count(one) != 1:
            raise InvalidRequest(f"its declared shape {list(shape)} has more or fewer elements than the one that the body is")
        return one
    free = shape.count(-1)
    if free == 0:
        return shape
    if free > 1:
        raise InvalidRequest(f"its declared shape {list(shape)} has more than one -1, so the body's length does not decide it")
    row = count(tuple(dimension for dimension in shape if dimension != -1)) * dtype.itemsize
    if row == 0 or size % row:
        raise InvalidRequest(f"{size} bytes do not fill rows of {row} bytes, as its declared shape {list(shape)} needs")
    return tuple(size // row if dimension == -1 else dimension for dimension in shape)
