"""Which requests may share a call: requests whose answers stay the same if they share it. Pure functions of accepted requests.

Two requests may share a call if they differ only in their rows. The key has everything else that the function or a codec can see.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final

from .._codecs.content_types import Codecs
from .._codecs.dataframes import PandasCodec
from .._codecs.frame_columns import CATEGORIES, DTYPE
from .._extensions.reserved import OF_TREATMENT
from .._models.handler import Handler
from .._protocol.schemas import Parameters
from .._protocol.tensors import Tensor
from .decoding import Decoded

_NOTHING: Final[frozenset[Hashable]] = frozenset()


def count_rows(tensors: Iterable[Tensor]) -> int | None:
    """How many rows a request has: the first dimension of its inputs. None if an input has no dimension, or they differ."""
    rows: int | None = None
    for tensor in tensors:
        shape = tensor.array.shape
        if not shape or (rows is not None and shape[0] != rows):
            return None
        rows = shape[0]
    return rows


def make_key(handler: Handler, decoded: Decoded, codecs: Codecs) -> Hashable | None:
    """Make what all requests of a batch have in common. None for a request that runs alone."""
    binding, request, content_type = decoded.binding, decoded.request, decoded.content_type
    whole = binding.request_reader
    if whole is not None and whole.codec is not PandasCodec and binding.rows is None:
        return None  # a client asks for a codec that may want a whole request
    if not binding.scalars.isdisjoint(decoded.tensors):
        return None  # it is one for all rows; as a parameter, it is part of the key
    parts: list[Hashable] = []
    for name, tensor in decoded.tensors.items():
        parameters, array = tensor.parameters, tensor.array
        said = parameters.get("content_type", content_type) if parameters else content_type
        expected = handler.content_types.get(name, handler.content_type)
        if said is not None and said != expected and codecs.is_users(str(said)):
            return None
        read_as = expected if said is None else said
        # rows depend on each other: a column of dates has one unit, by their years, and all have an offset from UTC or none has
        depends = read_as in ("pd_json", "datetime") or (parameters.get(DTYPE) == "category" and CATEGORIES not in parameters)
        if depends and binding.rows is None:
            return None
        parts.append((name, array.dtype, array.shape[1:], _freeze(parameters) if parameters else _NOTHING))
    if binding.of_one_request is not None:
        parts.append(tuple((output.name, _freeze(output.parameters or {})) for output in decoded.outputs))
    elif whole is None and binding.rest is None and len(parts) > 1:
        parts.sort(key=str)  # each goes to a parameter of its own; otherwise they are columns, whose order matters
    return handler, binding, content_type, _freeze(request.parameters) if request.parameters else _NOTHING, tuple(parts)


def _freeze(parameters: Parameters) -> frozenset[Hashable]:
    return frozenset((name, type(value), value) for name, value in parameters.items() if name not in OF_TREATMENT)
