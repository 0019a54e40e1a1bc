"""The columns of a file of rows as the tensors of a request, and the outputs that answer it: which are sent, with which datatype.

Knows the model's metadata and the values of rows; no files, no connections, and not how many rows are asked for at a time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from datetime import date
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from .._codecs.plain import Base64Codec
from .._json.tensor_data import from_value
from .._json.text import Unusual
from .._protocol.datatypes import FLOATING, dtype_of
from .._protocol.errors import InferenceError, list_names, show
from .._protocol.schemas import Parameters
from .._protocol.specs import OTHER_DATATYPES
from .._protocol.tensors import InferenceResponse, Tensor

Row: TypeAlias = list[Any]
"""The values of one row of a file."""


class Stopped(Exception):
    """No row can be scored any more; the text says why."""


class Refused(Exception):
    """One row is refused; the text says why."""


Kinds: TypeAlias = Set[str]
"""What the values of a column are: datatypes, "missing", "negative" of a whole number, and "long" of one that a float may round."""


class Column(NamedTuple):
    """What becomes of one column, or of several that are one input."""

    name: str
    places: list[int]  # in a row of the file
    datatype: str
    content_type: str | None = None
    may_miss: bool = False  # whether a data frame has missing values in it
    pd_dtype: str | None = None  # in which dtype; None where the model declares it
    is_matrix: bool = False
    is_number: bool = False  # whether booleans go as 1.0 and 0.0, and what is missing as NaN: a model of numbers has no missing boolean


_JSON_TEXTS: Final = "pd_json"
"""The content type of a column whose values are JSON texts."""

_WITH_NAN: Final = "object[NaN]"
"""The dtype of a column of objects with gaps, as pandas reads it from a file."""

_BOOLS: Final = {"True": True, "TRUE": True, "true": True, "1": True, "False": False, "FALSE": False, "false": False, "0": False}
"""Those that pandas reads, and what a column that is declared as one of booleans has beside them."""


def plan_columns(
    names: list[str], inputs: Sequence[Mapping[str, Any]], chosen: list[str] | None, kinds: Mapping[str, Kinds], *, is_text: bool
) -> list[Column]:
    """Find the columns of a file that a model takes.

    Args:
        names: Of the file's columns.
        inputs: Of the model's metadata, none if it declares nothing of its columns.
        chosen: The columns of the only input, or of a model that declares none; None for all.
        kinds: Of the values of each column, which decide where no metadata tells its datatype.
        is_text: Whether the file has texts only, as CSV.

    Raises:
        ValueError: They do not fit; the text says which were expected.
    """
    missing = [name for name in chosen or () if name not in names]
    if missing:
        raise ValueError(f"--columns: the file has no {list_names(missing)}: it has {list_names(names)}")
    if not inputs:
        found = [(name, _find_column(name, names)) for name in chosen or names]
        return [Column(name, [place], _guess_datatype(name, kinds[name]), may_miss=True, pd_dtype=_WITH_NAN) for name, place in found]
    rows = [each for each in inputs if each["shape"] and each["shape"][0] == -1]
    present = [each for each in rows if each["name"] in names]  # metadata does not tell which are optional: the server does
    if present:
        _check_spelling(names, {each["name"] for each in inputs})
        return [_plan_column(each, names, kinds[each["name"]], is_text=is_text) for each in present]
    if len(rows) != 1 or len(rows[0]["shape"]) != 2:
        raise ValueError(f"the model takes {list_names([each['name'] for each in rows or inputs])}: the file has {list_names(names)}")
    name, size = rows[0]["name"], rows[0]["shape"][1]
    places = [_find_column(name, names) for name in chosen] if chosen else list(range(len(names)))
    if size not in (-1, len(places)):
        raise ValueError(
            f"the input {show(name)} has {size} columns, and the file {len(places)}: name them, in the order of the training, by --columns"
        )
    takes_numbers = (rows[0].get("parameters") or {}).get(OTHER_DATATYPES) == "numbers"
    is_number = takes_numbers and any(_join_kinds(kinds[names[place]]) == "BOOL" for place in places)
    return [Column(name, places, rows[0]["datatype"], is_matrix=True, is_number=is_number)]


def _find_column(name: str, names: list[str]) -> int:
    """The place of a column."""
    if names.count(name) > 1:
        raise ValueError(f"the file has the column {show(name)} {names.count(name)} times: rename them, so that each has its own name")
    return names.index(name)


def _check_spelling(names: Collection[str], inputs: Collection[str]) -> None:
    """Refuse an input's name with spaces around it, or in other capitals. All rows would silently have the default of an optional input."""
    absent = {name.casefold(): name for name in inputs if name not in names}
    for name in names:
        near = absent.get(name.strip().casefold())
        if near is not None:
            raise ValueError(f"the file has no column {show(near)}, but {show(name)}: rename it")


def _plan_column(declared: Mapping[str, Any], names: list[str], kinds: Kinds, *, is_text: bool) -> Column:
    """What becomes of a declared column. If the model takes other datatypes too, its values decide."""
    name, datatype, parameters = declared["name"], declared["datatype"], declared.get("parameters") or {}
    others = parameters.get(OTHER_DATATYPES)
    guess = _join_kinds(kinds, is_fitted=others is not None)
    if others == "all" and not (is_text and datatype == "BYTES"):  # of a code such as 00123, the model knows it as a text
        datatype = guess
    content_type = parameters.get("content_type")
    if content_type == _JSON_TEXTS:
        datatype = _guess_datatype(name, kinds)
    may_miss = "pd_dtype" in parameters or others == "all" or content_type in (_JSON_TEXTS, "datetime")  # an empty text is no date
    return Column(name, [_find_column(name, names)], datatype, content_type, may_miss)


def read_value(value: Any, column: Column, *, is_text: bool) -> Any:
    """A value of a file as the column's datatype has it; None if it is missing.

    Raises:
        ValueError: It is none.
        OverflowError: Its digits are too large for all floats.
    """
    if value is None or (is_text and value == "" and (column.may_miss or column.datatype != "BYTES")):
        return None
    if is_text and column.is_number and value.strip() in _BOOLS:
        return _BOOLS[value.strip()]
    read = _read_text(value, column.datatype) if is_text else value
    return read_float(value) if is_text and type(read) is float else read


def _read_text(text: str, datatype: str) -> Any:
    """A text as a datatype has it. Raises ValueError or KeyError if it is none."""
    if datatype == "BYTES":
        return text
    if datatype == "BOOL":
        return _BOOLS[text.strip()]
    if "_" in text:  # 1_000 is a number to Python alone
        raise ValueError
    return float(text) if datatype in FLOATING else int(text)


def read_float(text: str) -> float:
    """A number, or an infinity that is written as one. Raises OverflowError if digits are too large."""
    number = float(text)
    if math.isinf(number) and "n" not in text.casefold():
        raise OverflowError(f"{text[:40]} is out of range for FP64")
    return number


def find_kinds(names: list[str], rows: Iterable[Row], *, is_text: bool) -> tuple[dict[str, Kinds], int]:
    """The kinds of all values of each column, as pandas reads them, and how many rows there are."""
    kinds: list[set[str]] = [set() for _ in names]
    count = 0
    for row in rows:
        count += 1
        for own, value in zip(kinds, row, strict=False):
            if "BYTES" not in own:
                own |= _find_kinds(value, is_text=is_text)
    return dict(zip(names, kinds, strict=True)), count


def _find_kinds(value: Any, *, is_text: bool) -> set[str]:
    """The kinds of a value by itself."""
    if value is None or (is_text and value == ""):
        return {"missing"}
    if is_text:
        digits = value.strip()
        datatype = "INT64" if digits.lstrip("+-").isdecimal() else "BOOL" if digits in _BOOLS else "FP64"
        with suppress(ValueError):
            value = _read_text(value, datatype)
    if type(value) is int:
        is_long = abs(value) >= 2**1023 or float(value) != value
        return {"negative" if value < 0 else "UINT64" if value >= 2**63 else "INT64", *(["long"] if is_long else [])}
    return {{bool: "BOOL", float: "FP64"}.get(type(value), "BYTES")}


def _guess_datatype(name: str, kinds: Kinds) -> str:
    """The datatype of a column that is not declared. Raises ValueError if it would round a value."""
    datatype = _join_kinds(kinds)
    if datatype == "FP64" and "long" in kinds:
        raise ValueError(
            f"the column {show(name)} has fractions, beside which a whole number of 2**53 or more is rounded: declare the input"
        )
    return datatype


def _join_kinds(kinds: Kinds, *, is_fitted: bool = False) -> str:
    """The datatype of a column. Whole numbers of which some are missing are floats, as in pandas: if these would round them, only for an
    estimator, which was fitted with such floats."""
    there = kinds - {"missing", "long"}
    if there == {"BOOL"}:
        return "BOOL"
    if there - {"INT64", "UINT64", "FP64", "negative"}:
        return "BYTES"
    if "FP64" in there or there == set() or ("missing" in kinds and (is_fitted or "long" not in kinds)):
        return "FP64"
    return "UINT64" if "UINT64" in there and "negative" not in there else "INT64"


def make_tensors(columns: Sequence[Column], rows: Sequence[Row], *, is_text: bool) -> list[Tensor]:
    """The tensors of some rows.

    Raises:
        Refused: A value of one row is wrong. It says so only if there is one row.
    """
    tensors = []
    for column in columns:
        try:
            values = [[read_value(row[place], column, is_text=is_text) for place in column.places] for row in rows]
            tensors.append(_make_tensor(column, values if column.is_matrix else [value for [value] in values]))
        except (ValueError, TypeError, KeyError, OverflowError, IndexError, Unusual, InferenceError) as error:
            shown = [show(row[place]) for row in rows[:1] for place in column.places if place < len(row)]
            raise Refused(f"{column.name} is {', '.join(shown)[:200]}: expected {column.datatype}") from error
    return tensors


def _make_tensor(column: Column, values: list[Any]) -> Tensor:
    """The tensor of some values, each of which is one of the datatype, as JSON has it."""
    if column.content_type == _JSON_TEXTS:
        return _make_json(column, values)
    if column.content_type == Base64Codec.content_type and set(map(type, values)) == {bytes}:  # Parquet has them; others have base64 text
        return Base64Codec.encode_input(column.name, values)
    array = np.array([value.isoformat() if isinstance(value, date) else value for value in values], object)  # Parquet has dates
    leaves = array.ravel().tolist()
    if column.datatype == "BYTES":
        if None not in leaves:
            return Tensor(column.name, array)
        if column.content_type == "datetime":
            return Tensor(column.name, np.array(["NaT" if each is None else each for each in leaves], object))
        return _make_json(column, leaves)
    if column.is_number:
        numbers = [float(each) if type(each) is bool else each for each in leaves]
        return Tensor(column.name, from_value(numbers, dtype_of("FP64"), array.shape))
    dtype = dtype_of(column.datatype)
    if None in leaves and column.datatype not in FLOATING:
        if not column.may_miss:
            raise ValueError("missing")
        return _make_json(column, leaves)
    if bool in set(map(type, leaves)) and column.datatype != "BOOL":
        raise ValueError("of another kind")
    return Tensor(column.name, from_value(leaves, dtype, array.shape))


def _make_json(column: Column, values: list[Any]) -> Tensor:
    """Values of which some may be missing, as data frames take them."""
    parameters: Parameters = {"content_type": _JSON_TEXTS}
    if column.pd_dtype is not None:
        parameters["pd_dtype"] = column.pd_dtype
    return Tensor(column.name, np.array([json.dumps(value) for value in values], object), parameters)


def _to_text(value: bytes) -> str:
    return value.decode(errors="backslashreplace")


def read_outputs(response: InferenceResponse, count: int) -> dict[str, Any]:
    """The outputs of some rows by name, texts as `str`.

    Raises:
        Stopped: There is not one row for each.
    """
    outputs: dict[str, Any] = {}
    for tensor in response.outputs:
        array = tensor.array
        if array.ndim == 0 or len(array) != count:
            raise Stopped(
                f"the model does not score row by row: the output {show(tensor.name)} of {count} rows has the shape {list(array.shape)}"
            )
        if array.dtype.hasobject:
            read = json.loads if tensor.parameters.get("content_type") == _JSON_TEXTS else _to_text
            array = np.vectorize(read, otypes=[object])(array)  # what is missing is None, as in rows in which nothing is
        outputs[tensor.name] = array[:, 0] if array.shape[1:] == (1,) else array
    return outputs
