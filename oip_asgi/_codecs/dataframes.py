"""Tensors <-> a data frame: each column by its own, but numbers of one dtype, and strings, all at once. Knows no requests.

pandas is imported in the functions that need it, here and in the other modules of columns: a server without pandas imports them too.

Specification: Content Types, Pandas DataFrame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from .._protocol.datatypes import NUMBERS, Array
from .._protocol.errors import InvalidRequest, shown
from .._protocol.tensors import Tensor, known_tensor, object_array
from .base import rows_of
from .column_reading import Decode, column_of
from .column_writing import column_to_tensor, string_parameters
from .pandas_dtypes import DTYPE, has_str_dtype, is_str
from .string import StringCodec

if TYPE_CHECKING:
    import pandas as pd

_STRINGS: Final = "strings"
"""The group of the columns of strings. A group of numbers has their dtype as its key."""

_OTHER: Final = "other"
"""The group of the columns that are converted one by one."""

_Groups: TypeAlias = dict[Any, list[int]]
"""The places of the columns of each group."""


def read_dataframe(tensors: Sequence[Tensor], decoders: Mapping[str, Decode], columns: pd.Index[str] | None = None) -> pd.DataFrame:
    """Tensors of shape `[N]` or `[N, 1]` as the columns of a frame."""
    import pandas as pd

    if not tensors:
        return pd.DataFrame({})
    if columns is None:
        names = [tensor.name for tensor in tensors]
        if len(set(names)) != len(names):
            twice = next(name for place, name in enumerate(names) if name in names[:place])
            raise InvalidRequest(f"column {shown(twice)} is there twice: expected each name once")
        columns = pd.Index(names)
    rows = _check_rows(tensors)
    groups = _group_tensors(tensors, decoders)
    others = [(column_of(tensors[place], decoders), [place]) for place in groups.pop(_OTHER, ())]
    strings = groups.pop(_STRINGS, [])
    blocks = [(_join([tensors[place].array for place in places]), places) for places in groups.values()]
    if strings:
        blocks += _string_blocks(_decode_strings([tensors[place] for place in strings]), strings, rows)
    return _assemble(blocks, others, columns, rows)


def _check_rows(tensors: Sequence[Tensor]) -> int:
    """The number of rows, which must be the same in each column."""
    shape = tensors[0].array.shape
    rows = shape[0] if shape else 0
    shapes = (rows,), (rows, 1)
    for tensor in tensors:
        if tensor.array.shape not in shapes:
            found = len(rows_of(tensor, str(tensor.parameters.get("content_type", "pd"))))
            raise InvalidRequest(f"column {shown(tensor.name)} has {found} rows, but those before it have {rows}: expected as many in each")
    return rows


def _group_tensors(tensors: Sequence[Tensor], decoders: Mapping[str, Decode]) -> _Groups:
    groups: _Groups = {}
    for place, tensor in enumerate(tensors):
        dtype, parameters = tensor.array.dtype, tensor.parameters
        content_type = parameters.get("content_type") if parameters else None
        group: Any = _OTHER
        if content_type not in decoders and DTYPE not in parameters:
            if dtype.hasobject:
                group = _STRINGS if content_type in (None, "str") else _OTHER
            elif content_type in (None, "np") and dtype in NUMBERS:
                group = dtype
        groups.setdefault(group, []).append(place)
    return groups


def _join(arrays: list[Array]) -> Array:
    """Columns as the rows of one new array."""
    return np.concatenate([array if array.ndim == 1 else array.reshape(-1) for array in arrays]).reshape(len(arrays), len(arrays[0]))


def _decode_strings(tensors: list[Tensor]) -> list[str]:
    """The strings of all these columns, column after column."""
    try:
        return list(map(bytes.decode, _join([tensor.array for tensor in tensors]).reshape(-1).tolist()))
    except UnicodeDecodeError:
        return [text for tensor in tensors for text in StringCodec.decode_input(tensor)]  # its error names the column and the element


def _string_blocks(texts: list[Any], places: list[int], rows: int) -> list[tuple[Any, list[int]]]:
    import pandas as pd

    if not has_str_dtype():
        return [(object_array(texts, (len(places), rows)), places)]
    strings = pd.array(texts, dtype="str")
    return [(strings[number * rows : (number + 1) * rows], [place]) for number, place in enumerate(places)]


def _assemble(blocks: list[tuple[Any, list[int]]], others: list[tuple[Any, list[int]]], columns: pd.Index[str], rows: int) -> pd.DataFrame:
    """One frame of blocks, which are columns of one dtype, and of other columns, all with their places."""
    import pandas as pd

    index = pd.RangeIndex(rows)
    if has_str_dtype():
        from pandas.api.internals import create_dataframe_from_blocks  # type: ignore[import-not-found, unused-ignore]

        blocks += [(_as_block(column), place) for column, place in others]
        made: pd.DataFrame = create_dataframe_from_blocks([(block, np.array(places)) for block, places in blocks], index, columns.view())
        return made
    parts = [pd.DataFrame(block.T, index=index, dtype=block.dtype, copy=False) for block, _ in blocks]
    if others:
        parts.append(pd.DataFrame({place: column for column, [place] in others}, index=index))
    options: dict[str, Any] = {"copy": False}  # unknown to the stubs, which are for pandas 3
    frame = parts[0] if len(parts) == 1 else pd.concat(parts, axis=1, ignore_index=True, **options)
    places = [place for _, some in (*blocks, *others) for place in some]
    if places != sorted(places):
        frame = frame.take(np.argsort(places), axis=1)
    frame.columns = columns.view()  # a view: a model may rename it
    return frame


def _as_block(column: Any) -> Any:
    values = column if isinstance(column, np.ndarray) else column.array
    values = values if column.dtype.kind == "M" or not isinstance(column.dtype, np.dtype) else np.asarray(values)
    return values.reshape(1, -1) if isinstance(values, np.ndarray) else values


def write_dataframe(frame: pd.DataFrame, names: Sequence[str]) -> list[Tensor]:
    """The columns of a frame as tensors of shape `[N]`, which get these names."""
    groups = _group_dtypes(frame.dtypes.tolist())
    # of one row of numbers and strings, Python objects are the fastest way
    row = frame.iloc[0].to_numpy() if len(frame) == 1 and _OTHER not in groups and not groups.keys() <= NUMBERS else None
    tensors: dict[int, Tensor] = {}
    for group, places in groups.items():
        if group == _OTHER:
            continue
        if row is None:
            part = frame if len(groups) == 1 else frame.take(places, axis=1)
            values = part.to_numpy().T
        else:
            values = row[places].reshape(-1, 1)
        if group in NUMBERS:
            values = values.astype(group, copy=False)
            tensors.update((place, Tensor(names[place], column)) for place, column in zip(places, values, strict=True))
        else:
            tensors.update(_write_strings(values, places, names, "str" if group == _STRINGS else "object"))
    if len(tensors) < len(names):
        for place, (_, series) in enumerate(frame.items()):
            if place not in tensors:
                tensors[place] = column_to_tensor(names[place], series)
    return [tensors[place] for place in range(len(names))]


def _group_dtypes(dtypes: Sequence[Any]) -> _Groups:
    """Columns of objects are a group too: most of them are strings."""
    groups: _Groups = {}
    for place, dtype in enumerate(dtypes):
        if isinstance(dtype, np.dtype):
            group = dtype if dtype in NUMBERS or dtype.hasobject else _OTHER
        else:
            group = _STRINGS if is_str(dtype) else _OTHER
        groups.setdefault(group, []).append(place)
    return groups


def _write_strings(values: Array, places: list[int], names: Sequence[str], dtype: str) -> dict[int, Tensor]:
    """The tensors of columns of strings; none if one value is no string, or cannot be sent: then each column has its own error."""
    texts = values.reshape(-1).tolist()
    if set(map(type, texts)) != {str}:
        return {}
    try:
        block = object_array(list(map(str.encode, texts)), values.shape)
    except UnicodeEncodeError:
        return {}
    parameters = string_parameters(dtype)
    return {place: known_tensor(names[place], column, parameters.copy()) for place, column in zip(places, block, strict=True)}
