"""Files of rows, for the command `score`: how they are read, what their columns become for a model, and what
is written of its outputs. Knows no requests, and imports what users can import.

What the values of a column become, the model's declaration decides, as for any list that a `Client` sends.
"""

from __future__ import annotations

import csv
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from pathlib import Path
from types import NoneType
from typing import Any, Final, NamedTuple, TextIO

import numpy as np
import pandas as pd

from .. import InferenceError, InferenceResponse, TensorSpec


class CannotGoOn(Exception):
    """No row can be scored any more; the text says why."""


def need(fits: object, otherwise: str, error: type[Exception] = ValueError) -> None:
    if not fits:
        raise error(otherwise)


# Files


class Row(NamedTuple):
    """One row of a file."""

    number: int  # from 1 on
    values: dict[str, Any]  # by the names of columns; those of CSV are texts. None is missing


def read_rows(file: Path, names: Collection[str] = ()) -> Iterator[Row]:
    """Read a file, row by row: the values of these columns, or those that a row has. A first row with the
    number 0 has the columns that the file names before its rows.

    Raises:
        ValueError: It cannot be read.
        OSError: It cannot be read.
    """
    number = 0
    try:
        for number, row in enumerate(READERS[file.suffix.lower()](file)):
            values = {name: row.get(name) for name in names} or row
            # NaN alone is not equal to itself
            yield Row(number, {name: None if value != value else value for name, value in values.items()})
    except (ValueError, csv.Error) as error:
        why = (
            f"{error.msg}, at character {error.pos + 1} of the line {error.doc.strip()[:100]!r}"
            if isinstance(error, json.JSONDecodeError)
            else error
        )
        raise ValueError(f"{file}{f', after row {number}' if number else ''}: {why}") from None


def _read_csv(file: Path) -> Iterator[dict[str, Any]]:
    # pandas has names for columns that have none, or that of another one; without `index_col`, it would look
    # at the next line too, and fail if that is blank
    names = list(
        map(str, pd.read_csv(file, nrows=0, index_col=False, skip_blank_lines=False, engine="python"))
    )
    yield dict.fromkeys(names)
    with file.open(encoding="utf-8-sig", newline="") as opened:
        # the first line has the names, also if it is blank; another blank line is no row
        lines = islice(csv.reader(opened, strict=True), 1, None)
        for cells in filter(None, lines):
            need(
                len(cells) <= len(names),
                f"a row has {len(cells)} values, and the file has {len(names)} columns",
            )
            yield dict(zip(names, cells, strict=False))


def _read_json_lines(file: Path) -> Iterator[dict[str, Any]]:
    yield {}
    with file.open("rb") as opened:
        for line in opened:
            if line.strip():
                row = json.loads(line, parse_float=_read_float)
                need(
                    isinstance(row, dict) and "" not in row,
                    "expected an object in each line, whose keys are the names of columns",
                )
                yield row


def _read_parquet(file: Path) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet

    opened = pyarrow.parquet.ParquetFile(file)
    names = opened.schema_arrow.names
    need(len({*names}) == len(names), "two of its columns have the same name")
    yield dict.fromkeys(names)
    for batch in opened.iter_batches(2**10):
        for row in batch.to_pylist():
            yield {
                name: cell.isoformat() if hasattr(cell, "isoformat") else cell for name, cell in row.items()
            }


READERS: Final[Mapping[str, Callable[[Path], Iterator[dict[str, Any]]]]] = {
    ".csv": _read_csv,
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".json": _read_json_lines,
    ".parquet": _read_parquet,
}
"""What reads a file of each suffix."""


def write_rows(file: Path, make_rows: Callable[[], Iterator[dict[str, Any]]]) -> None:
    """Write rows, which `make_rows` gives anew each time."""
    suffix = file.suffix.lower()
    if suffix == ".parquet":
        try:
            pd.DataFrame(make_rows(), dtype=object).to_parquet(file, index=False)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{file} would have a column of several types ({error}): declare the outputs of the model"
            ) from None
        return
    # lone surrogates are written as JSON escapes them
    with file.open("w", encoding="utf-8", errors="backslashreplace", newline="") as opened:
        if suffix == ".csv":
            _write_csv(opened, make_rows)
        else:
            opened.writelines(f"{json.dumps(row, ensure_ascii=False)}\n" for row in make_rows())


def _write_csv(opened: TextIO, make_rows: Callable[[], Iterator[dict[str, Any]]]) -> None:
    names = list(dict.fromkeys(chain.from_iterable(make_rows())))
    plain = csv.writer(opened, lineterminator="\n")
    quoted = csv.writer(opened, lineterminator="\n", quoting=csv.QUOTE_ALL)
    lines: Iterator[list[Any]] = ([row.get(name) for name in names] for row in make_rows())
    for cells in chain([names] if names else [], lines):
        # before 3.13, Python does not quote a carriage return by itself
        (quoted if "\r" in "".join(map(str, cells)) else plain).writerow(cells)


# Texts of CSV

_BOOLS: Final = {"True": True, "TRUE": True, "true": True, "False": False, "FALSE": False, "false": False}


def read_text(text: str | None) -> Any:
    """The value of a text of CSV as pandas reads it: what is no number and no boolean is a text, and None if
    it is empty."""
    plain = (text or "").strip().replace("_", "x")  # 1_000 is a number to Python alone
    for read in (int, _BOOLS.__getitem__, _read_float) if plain.isascii() else ():
        with suppress(KeyError, ValueError):
            return read(plain)
    return text or None


def _read_float(text: str) -> float:
    """A number, or an infinity that is written as one. Raises ValueError if no float is that large."""
    if abs(float(text)) == np.inf and "n" not in text.casefold():
        raise ValueError(f"{text[:40]} is out of range for FP64")
    return float(text)


# Inputs


class Column(NamedTuple):
    """What becomes of one column of a file, or of several that are the elements of an array."""

    read: Callable[[Mapping[str, Any]], Any]  # what the values of a row become
    gather: Callable[[list[Any]], Any]  # what a `Client` gets for a list of these


def find_types(
    file: Path, specs: Sequence[TensorSpec], *, are_texts: bool
) -> tuple[dict[str, set[type]], int]:
    """The types of all values of each column whose values decide what it becomes; and how many rows there
    are."""
    asked = {spec.name for spec in specs if spec.other_datatypes == "all" or spec.content_type == "pd_json"}
    rows, types, total = read_rows(file), defaultdict[str, set[type]](set), 0
    counts = Counter(dict.fromkeys(next(rows).values, 0))
    for total, values in rows:  # noqa: B007  (the last number is the total)
        counts.update(values.keys())
        for name, value in values.items():
            if name in asked or not specs:
                types[name].add(type(read_text(value) if are_texts else value))
    # a row of JSON need not have each column
    return {
        name: types[name] | ({NoneType} if times < total else set()) for name, times in counts.items()
    }, total


def plan_columns(
    specs: Sequence[TensorSpec], names: list[str], types: Mapping[str, set[type]], *, are_texts: bool
) -> dict[str, Column]:
    """Find the columns of a file that a model takes, by the names of its inputs.

    Args:
        specs: What the model declares of its inputs.
        names: Of the columns that are the elements of its only input, or that are sent if it declares none.
        types: Those of the values of each column of the file, which decide where the model takes any
            datatype.
        are_texts: Whether all values of the file are texts.

    Raises:
        ValueError: They do not fit; the text says which were expected.
    """
    rows = [spec for spec in specs if spec.shape[:1] == (-1,)]
    # metadata does not tell which are optional: the server does
    present = [spec for spec in rows if spec.name in types]
    if not specs:  # each column is what its values are
        present = [TensorSpec(name, "FP64", [-1]) for name in names]
    absent = {spec.name.casefold(): spec.name for spec in specs if spec.name not in types}
    for name in types if present else ():  # or all rows would have the default of an optional input
        other = absent.get(name.strip().casefold())
        need(other is None, f"the file has no column {other!r}, but {name!r}: rename it")
    if present:
        return {
            spec.name: _plan_column(spec, types[spec.name], is_declared=bool(specs), are_texts=are_texts)
            for spec in present
        }
    expected = [spec.name for spec in rows or specs]
    row = f"; a line is one row, such as {json.dumps(dict.fromkeys(expected[:10], '...'))}"
    such_as = row if {"rows", "inputs", "instances"} & types.keys() else ""
    need(
        len(rows) == 1 and len(rows[0].shape) == 2,
        f"the model takes {list_names(expected)}: the file has {list_names(types)}{such_as}",
    )
    width, are_floats = rows[0].shape[1], rows[0].other_datatypes == "numbers"
    need(
        width in (-1, len(names)),
        f"the input {expected[0]!r} has {width} columns, and the file {len(names)}: name them, in the order "
        "of the training, by --columns",
    )
    read = partial(_read, is_text=not are_texts, empty="", are_floats=are_floats)
    return {expected[0]: Column(lambda values: [read(values[name]) for name in names], list)}


def list_names(names: Collection[str]) -> str:
    return ", ".join([*map(repr, list(names)[:10]), *(["..."] if len(names) > 10 else [])])


def _plan_column(spec: TensorSpec, types: set[type], *, is_declared: bool, are_texts: bool) -> Column:
    """What becomes of one column. Where the model takes any datatype, all of its values decide, as pandas
    reads them. A code such as 00123 stays a text if the model declares texts.

    Raises:
        ValueError: It has values of several types, and each row would have its own. In CSV, such a column is
            texts.
    """
    is_any, is_text = not is_declared or spec.other_datatypes == "all", spec.datatype == "BYTES"
    are_numbers = types <= {int, float, NoneType}
    is_mixed = len({float if each is int else each for each in types} & {str, bool, float}) > 1
    need(
        not is_any or not is_mixed or are_texts,
        f"column {spec.name!r} has texts, numbers or booleans side by side: declare it, or write all of them "
        "as texts",
    )
    is_guessed = spec.content_type == "pd_json" or (is_any and not is_text)
    stay_texts = is_mixed or str in types if is_guessed else is_text
    read = partial(
        _read,
        is_text=not are_texts or stay_texts,
        empty=None if are_texts and (spec.may_miss or not is_declared) else "",
        are_floats=spec.other_datatypes == "numbers"
        or (is_any and not stay_texts and are_numbers and types != {int}),
    )
    # a `Client` cannot know that a list which nobody declared may have gaps
    may_have_gaps = not is_declared and NoneType in types and not are_numbers
    gather = partial(pd.Series, dtype=object) if may_have_gaps else list
    return Column(
        lambda values: read(values[spec.name]), _keep_base64 if spec.content_type == "base64" else gather
    )


def _read(value: Any, *, is_text: bool, empty: str | None, are_floats: bool) -> Any:
    """A value of a cell. A model of numbers has no missing boolean; and a whole number that a float would
    round stays one."""
    value = (empty if value == "" else value) if is_text else read_text(value)
    if not are_floats or not isinstance(value, (int, float, NoneType)) or abs(value or 0) >= 2**53:
        return value
    return np.nan if value is None else float(value)


def _keep_base64(values: list[Any]) -> Any:
    """Texts are base64 already: an array is sent as it is."""
    return np.array(values, dtype=object) if {*map(type, values)} == {str} else values


def make_inputs(columns: Mapping[str, Column], rows: Sequence[Row], *, are_texts: bool) -> dict[str, Any]:
    """What a `Client` sends of some rows. Raises InferenceError if a row has too few values."""
    if are_texts:
        for row in rows:
            missing = list(row.values.values()).count(None)
            need(
                not missing,
                f"it has {len(row.values) - missing} values, and the file has {len(row.values)} columns",
                InferenceError,
            )
    return {
        name: column.gather([column.read(row.values) for row in rows]) for name, column in columns.items()
    }


# Outputs

_WORDS_OF_CSV: Final = {"nan": None}
_WORDS_OF_JSON: Final = {"nan": None, "inf": "Infinity", "-inf": "-Infinity"}
"""What is written of floats that are no numbers: in JSON, what the protocol has."""


def read_outputs(
    response: InferenceResponse, rows: Sequence[Row], labels: Mapping[str, Sequence[str]], suffix: str
) -> list[dict[str, Any]]:
    """What is written of some rows. In CSV, each element of a row has a column, named by its label or its
    place.

    Raises:
        CannotGoOn: There is not one row for each.
    """
    columns: dict[str, Any] = {"row": [row.number for row in rows]}
    for tensor in response.outputs:
        name, array = tensor.name, tensor.array[:, 0] if tensor.array.shape[1:] == (1,) else tensor.array
        need(
            array.shape[:1] == (len(rows),),
            f"the model does not score row by row: the output {name!r} of {len(rows)} rows has the shape "
            f"{list(array.shape)}",
            CannotGoOn,
        )
        if array.dtype.hasobject:
            is_json = tensor.parameters.get("content_type") == "pd_json"
            array = np.frompyfunc(
                json.loads if is_json else lambda text: text.decode(errors="backslashreplace"), 1, 1
            )(array)
        elif array.dtype.kind in "fV" and suffix != ".parquet":  # V is that of BF16
            words = _WORDS_OF_CSV if suffix == ".csv" else _WORDS_OF_JSON
            array = np.frompyfunc(words.get, 2, 1)(array.astype(float).astype(str), array.astype(object))
        if suffix == ".csv" and array.ndim > 1:
            elements, own = array.reshape(len(rows), -1).T, labels.get(name, ())
            names = own if len({*own}) == len(own) == len(elements) else range(len(elements))
            for each, values in zip(names, elements, strict=True):
                columns[name_beside(columns, f"{name}_{each}")] = values.tolist()
        else:
            columns[name_beside(columns, name)] = array.tolist()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def name_beside(others: Container[str], name: str) -> str:
    """The name of a column beside others, as pandas calls a second one of a name."""
    while name in others:
        name = f"{name}.1"
    return name
