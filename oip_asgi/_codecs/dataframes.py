"""The content type `pd`: requests and responses as data frames, one tensor for each column.

Numbers of one dtype, and strings, are converted all at once; each other column by itself. pandas is imported
only in functions that make a frame or a column, never to find out whether something is one.

Specification: Content Types, Pandas DataFrame.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from .._protocol.datatypes import NUMBERS, Array, object_array
from .._protocol.errors import InvalidRequest, show
from .._protocol.schemas import Parameters
from .._protocol.tensors import InferenceRequest, InferenceResponse, Tensor, make_tensor
from .._turns import take_turns
from .base import RequestCodec, find_class, raise_invalid_response, rows_of
from .column_dtypes import DTYPE, find_default_dtype, is_pandas_3
from .columns import column_to_tensor, read_column
from .plain import StringCodec

if TYPE_CHECKING:
    import pandas as pd

_STRINGS: Final = "strings"
_OTHER: Final = "other"

_Block: TypeAlias = tuple[Any, list[int]]
"""Columns of one dtype, or one column, and their positions."""


class PandasCodec(RequestCodec["pd.DataFrame"]):
    """Data frames: one tensor of shape `[N]` for each column. The index is not sent, as with MLServer.

    A frame of polars, or a table of pyarrow, is encoded as one of pandas with these columns.

    Columns of numbers are tensors of their datatype, also with NaN. Strings have the content type `str`,
    bytes `base64`, dates `datetime`, and all other objects, or columns with missing ones, `pd_json`. Column
    names that are integers become strings.
    """

    content_type = "pd"

    @classmethod
    def yields(cls, annotation: Any) -> bool:
        return annotation is find_class("pandas", "DataFrame")

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return is_frame(payload) or is_foreign_frame(payload)

    @classmethod
    def encode_request(cls, payload: pd.DataFrame, use_bytes: bool = True) -> InferenceRequest:
        return InferenceRequest(
            cls.encode_outputs(payload, use_bytes), parameters={"content_type": cls.content_type}
        )

    @classmethod
    def decode_request(cls, request: InferenceRequest) -> pd.DataFrame:
        return read_dataframe(request.inputs)

    @classmethod
    def encode_response(
        cls, model_name: str, payload: pd.DataFrame, model_version: str | None = None, use_bytes: bool = True
    ) -> InferenceResponse:
        outputs = cls.encode_outputs(payload, use_bytes)
        return InferenceResponse(
            outputs, {"content_type": cls.content_type}, model_name=model_name, model_version=model_version
        )

    @classmethod
    def decode_response(cls, response: InferenceResponse) -> pd.DataFrame:
        with raise_invalid_response():
            return read_dataframe(response.outputs)

    @classmethod
    def encode_outputs(cls, payload: pd.DataFrame, use_bytes: bool = True) -> list[Tensor]:
        """The columns of a frame as tensors; the arguments are those of `encode_request`."""
        frame = to_pandas(payload)
        return write_dataframe(frame, name_tensors(frame))


def is_frame(value: object) -> bool:
    return isinstance(value, find_class("pandas", "DataFrame"))


def is_foreign_frame(value: Any) -> bool:
    """Whether it is a frame of polars or a table of pyarrow, which is sent as one of pandas with its
    columns."""
    return isinstance(value, (find_class("polars", "DataFrame"), find_class("pyarrow", "Table")))


def count_cells(value: Any) -> int:
    """How many cells a frame has, of pandas or another; 0 for what is no frame."""
    return value.shape[0] * value.shape[1] if is_frame(value) or is_foreign_frame(value) else 0


def to_pandas(frame: Any) -> Any:
    """A frame of polars or a table of pyarrow as one of pandas; anything else as it is."""
    if not is_foreign_frame(frame):
        return frame
    import pandas as pd

    if not hasattr(frame, "get_columns"):
        return frame.to_pandas(types_mapper=pd.ArrowDtype)
    return pd.DataFrame({column.name: from_polars(column) for column in frame.get_columns()})


def from_polars(column: Any) -> pd.Series[Any]:
    """A column of polars as pandas has it."""
    import pandas as pd

    if column.dtype.is_nested():
        return pd.Series(column.to_list(), dtype=object)
    if column.dtype.is_integer() and column.null_count():  # as floats, large ones would be rounded
        return pd.Series(pd.arrays.IntegerArray(column.fill_null(0).to_numpy(), column.is_null().to_numpy()))
    series: pd.Series[Any] = pd.Series(column.to_numpy())
    zone = getattr(column.dtype, "time_zone", None)
    return series if zone is None else series.dt.tz_localize("UTC").dt.tz_convert(zone)


def is_series(value: object) -> bool:
    return isinstance(value, find_class("pandas", "Series"))


def keep_own_categories(rows: Any) -> Any:
    """Remove the categories that none of these rows of a column or a frame has: other clients may have sent
    them."""
    if is_series(rows):
        return rows.cat.remove_unused_categories() if rows.dtype == "category" else rows
    positions = [position for position, dtype in enumerate(rows.dtypes) if dtype == "category"]
    if positions:
        rows = rows.copy()
    for position in positions:
        rows.isetitem(position, rows.iloc[:, position].cat.remove_unused_categories())
    return rows


def name_tensors(frame: pd.DataFrame) -> list[str]:
    if not is_frame(frame):
        raise TypeError(f"the content_type 'pd' is for a pandas.DataFrame, but this is {show(frame)}")
    labels = frame.columns.tolist()
    for label in labels:
        if not isinstance(label, (str, int)):
            raise TypeError(
                f"the name of column {label!r} is neither a string nor an integer, so no tensor can have "
                "it: rename the column"
            )
    names = list(map(str, labels))
    try:
        "".join(names).encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"the names of the columns {show(names)} have lone surrogates, which no text can have: rename "
            "them"
        ) from None
    if len(set(names)) != len(names):
        raise ValueError(
            f"column {_find_twice(names)!r} is there twice, but each tensor needs its own name: rename one"
        )
    return names


def _find_twice(names: list[str]) -> str:
    return next(name for name, number in Counter(names).items() if number > 1)


def read_dataframe(tensors: Sequence[Tensor]) -> pd.DataFrame:
    """Tensors of shape `[N]` or `[N, 1]` as the columns of a frame."""
    import pandas as pd

    if not tensors:
        return pd.DataFrame({})
    names = [tensor.name for tensor in tensors]
    if len(set(names)) != len(names):
        raise InvalidRequest(f"column {show(_find_twice(names))} is there twice: expected each name once")
    rows = _check_rows(tensors)
    groups = _group_positions(map(_find_group_of_tensor, tensors))
    # arrays, as thousands of `pd.Series` would take several times as much
    turns = take_turns(groups.pop(_OTHER, ()))
    others: list[_Block] = [(_get_array(read_column(tensors[position])), [position]) for position in turns]
    strings = groups.pop(_STRINGS, [])
    blocks: list[_Block] = [
        (_join_columns([tensors[position].array for position in positions]), positions)
        for positions in groups.values()
    ]
    objects = {position: column for column, [position] in others if column.dtype == object}
    if objects:
        blocks.append((_join_columns(list(objects.values())), list(objects)))
        others = [block for block in others if block[0].dtype != object]
    if strings:
        blocks += _read_strings([tensors[position] for position in strings], strings, rows)
    return _assemble_frame(blocks, others, names, rows)


def _check_rows(tensors: Sequence[Tensor]) -> int:
    """The number of rows, which must be the same in each column."""
    shape = tensors[0].array.shape
    rows = shape[0] if shape else 0
    shapes = (rows,), (rows, 1)
    for tensor in tensors:
        if tensor.array.shape not in shapes:
            number = len(rows_of(tensor, str(tensor.parameters.get("content_type", "pd"))))
            raise InvalidRequest(
                f"column {show(tensor.name)} has {number} rows, but {show(tensors[0].name)} has {rows}: "
                "expected as many in each"
            )
    return rows


def _group_positions(keys: Iterable[Any]) -> dict[Any, list[int]]:
    """The positions of equal keys."""
    groups: dict[Any, list[int]] = {}
    for position, key in enumerate(keys):
        groups.setdefault(key, []).append(position)
    return groups


def _find_group_of_tensor(tensor: Tensor) -> Any:
    """Find the group of a tensor. One group has numbers of one dtype, or strings; a tensor of `_OTHER` is
    read alone."""
    dtype, parameters = tensor.array.dtype, tensor.parameters
    content_type = parameters.get("content_type")
    if (
        dtype.hasobject
        and content_type in (None, "str")
        and parameters.get(DTYPE) in (None, find_default_dtype("str"))
    ):
        return _STRINGS
    if dtype.hasobject or DTYPE in parameters:
        return _OTHER
    return dtype if content_type in (None, "np") and dtype in NUMBERS else _OTHER


def _join_columns(arrays: list[Array]) -> Array:
    """Columns as the rows of one new array."""
    return np.concatenate([array if array.ndim == 1 else array.reshape(-1) for array in arrays]).reshape(
        len(arrays), len(arrays[0])
    )


def _read_strings(tensors: list[Tensor], positions: list[int], rows: int) -> list[_Block]:
    import pandas as pd

    try:
        texts: list[Any] = list(
            map(bytes.decode, _join_columns([tensor.array for tensor in tensors]).reshape(-1).tolist())
        )
    except UnicodeDecodeError:
        # its error names the column and the element
        texts = [text for tensor in tensors for text in StringCodec.decode_input(tensor)]
    if not is_pandas_3():
        return [(object_array(texts, (len(positions), rows)), positions)]
    strings = pd.array(texts, dtype="str")
    return [
        (strings[number * rows : (number + 1) * rows], [position])
        for number, position in enumerate(positions)
    ]


def _assemble_frame(blocks: list[_Block], others: list[_Block], names: list[str], rows: int) -> pd.DataFrame:
    """One frame of blocks of one dtype each, and of other columns."""
    import pandas as pd

    index, columns = pd.RangeIndex(rows), pd.Index(names)
    if is_pandas_3():
        from pandas.api.internals import create_dataframe_from_blocks  # type: ignore[import-not-found, unused-ignore]

        blocks += [
            (column.reshape(1, -1) if isinstance(column, np.ndarray) else column, position)
            for column, position in others
        ]
        assembled: pd.DataFrame = create_dataframe_from_blocks(
            [(block, np.array(positions)) for block, positions in blocks], index, columns
        )
        return assembled
    parts = [pd.DataFrame(block.T, index=index, dtype=block.dtype, copy=False) for block, _ in blocks]
    if others:
        parts.append(pd.DataFrame({position: column for column, [position] in others}, index=index))
    options: dict[str, Any] = {"copy": False}  # unknown to the stubs, which are for pandas 3
    frame = parts[0] if len(parts) == 1 else pd.concat(parts, axis=1, ignore_index=True, **options)
    positions = [position for _, some in (*blocks, *others) for position in some]
    if positions != sorted(positions):
        frame = frame.take(np.argsort(positions), axis=1)
    frame.columns = columns
    return frame


def _get_array(column: Any) -> Any:
    """The array of a column: numpy's, or an extension's, as dates have one."""
    values = column if isinstance(column, np.ndarray) else column.array
    return (
        values if column.dtype.kind == "M" or not isinstance(column.dtype, np.dtype) else np.asarray(values)
    )


def write_dataframe(frame: pd.DataFrame, names: Sequence[str]) -> list[Tensor]:
    """The columns of a frame as tensors of shape `[N]`, which get these names."""
    groups = _group_positions(map(_find_group_of_dtype, frame.dtypes.tolist()))
    # of one row of numbers and strings, Python objects are the fastest way
    row = (
        frame.iloc[0].to_numpy()
        if len(frame) == 1 and _OTHER not in groups and not groups.keys() <= NUMBERS
        else None
    )
    tensors: dict[int, Tensor] = {}
    for group, positions in groups.items():
        if group == _OTHER:
            continue
        part = frame if len(groups) == 1 or row is not None else frame.take(positions, axis=1)
        values = part.to_numpy().T if row is None else row[positions].reshape(-1, 1)
        if group in NUMBERS:
            columns = values.astype(group, copy=False)
            tensors.update(
                (position, Tensor(names[position], column))
                for position, column in zip(positions, columns, strict=True)
            )
        else:
            tensors.update(_write_strings(values, positions, names, "str" if group == _STRINGS else "object"))
    if len(tensors) < len(names):
        for position, (_, series) in take_turns(enumerate(frame.items())):
            if position not in tensors:
                tensors[position] = column_to_tensor(names[position], series)
    return [tensors[position] for position in range(len(names))]


def _find_group_of_dtype(dtype: Any) -> Any:
    """What a column is written with. Columns of objects are a group too: most of them are strings."""
    import pandas as pd

    if isinstance(dtype, np.dtype):
        return dtype if dtype in NUMBERS or dtype.hasobject else _OTHER
    # the default dtype of strings in pandas 3; the dtype `string` is another one
    return (
        _STRINGS
        if is_pandas_3() and isinstance(dtype, pd.StringDtype) and dtype.na_value is np.nan
        else _OTHER
    )


def _write_strings(
    values: Array, positions: list[int], names: Sequence[str], dtype: str
) -> dict[int, Tensor]:
    """The tensors of columns of strings; none if one value is no string, or cannot be sent: then each column
    has its own error."""
    texts = values.reshape(-1).tolist()
    if set(map(type, texts)) != {str}:
        return {}
    try:
        block = object_array(list(map(str.encode, texts)), values.shape)
    except UnicodeEncodeError:
        return {}
    is_default = dtype == find_default_dtype(StringCodec.content_type)
    parameters: Parameters = {
        "content_type": StringCodec.content_type,
        **({} if is_default else {DTYPE: dtype}),
    }
    return {
        position: make_tensor(names[position], column, parameters.copy())
        for position, column in zip(positions, block, strict=True)
    }
