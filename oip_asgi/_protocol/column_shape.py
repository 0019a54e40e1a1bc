"""Whether N values have the shape `[N]` or `[N, 1]`, and when one is taken for the other; and which shape
values have that came without one. Knows no codecs and no models.

Codecs write N values as `[N]`; the codec `np` and MLServer's clients write `[N, 1]`. Clients cannot know
which is declared, so `Inputs.accept` of `_models.inputs` reshapes inputs that have a content type,
and columns. Whether an output leaves as `[N]` or `[N, 1]`:

- declared: a list, and what a codec writes, as `to_rank_of` makes it; an array without a content type keeps
  its shape, which must fit
- not declared, with the content type `np`: `[N, 1]`
- not declared, otherwise: a list or column as `[N]`, an array in its own shape

`_models.results` applies the first rule, and `_codecs.plain` the others.

Specification: Content Types.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .datatypes import Array
from .errors import InvalidRequest, show
from .tensors import Tensor


def to_rank_of(array: Array, declared: Sequence[int]) -> Array:
    """N values as the declared shape has them. `[N, 1]` is reshaped if `[-1]` is declared, and `[N]` of BYTES
    if `[-1, 1]` or `[-1, -1]` is. Other arrays are returned as they are."""
    rank = len(declared)
    if rank == 1 and array.ndim == 2 and array.shape[1] == 1:
        return array.reshape(-1)
    if rank == 2 and array.ndim == 1 and declared[1] in (-1, 1) and array.dtype.hasobject:
        return array.reshape(-1, 1)
    return array


def fill_shape(declared: Sequence[int], number: int) -> tuple[int, ...] | None:
    """The declared shape of so many elements: the innermost -1 takes what the fixed dimensions leave, and any
    other -1 is 1, or 0 for none. None if they do not fit."""
    fixed, left = abs(math.prod(declared)), number  # each -1 changes the sign only
    if left % fixed if fixed and -1 in declared else left != fixed:
        return None
    left, shape = left // fixed if fixed else 0, list(declared)
    for axis in reversed(range(len(shape))):
        if shape[axis] == -1:
            shape[axis], left = left, min(left, 1)
    return tuple(shape)


def rows_of(tensor: Tensor, target: str) -> Array:
    """The array of a tensor of shape `[N]` or `[N, 1]`, as `[N]`."""
    shape = tensor.shape
    if len(shape) == 1:
        return tensor.array
    if len(shape) == 2 and shape[1] == 1:
        return tensor.array.reshape(shape[0])
    raise InvalidRequest(
        f"tensor {show(tensor.name)} has shape {list(shape)}: expected [N] or [N, 1] for {target!r}"
    )
