"""Files of rows: CSV, JSON lines and Parquet are read in chunks, and written so that a run that was cut can go on. Knows no server."""

from __future__ import annotations

import csv
import io
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from ._columns import read_float

Row: TypeAlias = "list[Any]"
"""The values of one row in the order of the columns; texts, if the file is CSV."""

Format: TypeAlias = Literal["csv", "jsonl", "parquet"]

_FORMATS: Final[Mapping[str, Format]] = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}


def format_of(file: Path) -> Format:
    """The format of a file by its suffix.

    Raises:
        ValueError: It is none of these formats.
    """
    found = _FORMATS.get(file.suffix.lower())
    if found is None:
        raise ValueError(f"{file}: expected a name that ends with .csv, .jsonl or .parquet")
    return found


_KEEP_EVERY: Final = 1.0
"""Seconds. So much work at most is done again after the process was killed."""


class Table(Protocol):
    """A file of rows."""

    names: list[str]
    is_text: bool
    """Whether all values are texts, which the datatype of a column reads."""

    def rows(self) -> Iterator[Row]: ...


class _CSV:
    is_text = True

    def __init__(self, file: Path) -> None:
        self._file = file
        with self._open() as opened:
            self.names: list[str] = next(csv.reader(opened, strict=True), [])

    def _open(self) -> Any:
        return self._file.open(newline="", encoding="utf-8-sig")

    def rows(self) -> Iterator[Row]:
        with self._open() as opened:
            reader = csv.reader(opened, strict=True)  # else a quote that is not closed swallows all rows behind it
            try:
                yield from (row for row in islice(reader, 1, None) if row)
            except csv.Error as error:
                raise ValueError(f"{self._file}, line {reader.line_num}: {error}: write JSON lines or Parquet") from None


class _JSONLines:
    is_text = False

    def __init__(self, file: Path) -> None:
        self._file = file
        self.names: list[str] = []

    def documents(self) -> Iterator[dict[str, Any]]:
        with self._file.open("rb") as opened:
            for number, line in enumerate(opened, 1):
                if line.strip():
                    try:
                        document = json.loads(line, parse_float=read_float)
                    except (ValueError, OverflowError) as error:
                        raise ValueError(f"{self._file}, line {number}, cannot be read: {error}") from None
                    if not isinstance(document, dict):
                        raise ValueError(f"{self._file}, line {number}: expected an object")
                    yield document

    def rows(self) -> Iterator[Row]:
        for document in self.documents():
            yield [document.get(name) for name in self.names]


class _Parquet:
    is_text = False

    def __init__(self, file: Path) -> None:
        self._parquet = _import_pyarrow().parquet.ParquetFile(file)
        self.names = list(self._parquet.schema_arrow.names)

    def rows(self) -> Iterator[Row]:
        for batch in self._parquet.iter_batches():
            columns = [column.to_pylist() for column in batch.columns]
            yield from map(list, zip(*columns, strict=True))


def _import_pyarrow() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise ValueError("for Parquet, install pyarrow: pip install pyarrow") from None
    return pyarrow


def open_table(file: Path) -> Table:
    """Open a file.

    Raises:
        ValueError: It is no such file, or has no columns.
        OSError: It cannot be read.
    """
    kind = format_of(file)
    table: Table = _CSV(file) if kind == "csv" else _open_lines(file) if kind == "jsonl" else _Parquet(file)
    if not table.names:
        raise ValueError(f"{file}: has no rows")
    return table


def _open_lines(file: Path) -> _JSONLines:
    lines = _JSONLines(file)
    lines.names = list(dict.fromkeys(chain.from_iterable(lines.documents())))  # what a row misses may be left out there
    inputs = next(lines.documents(), {}).get("inputs")
    if isinstance(inputs, list) and inputs and isinstance(inputs[0], dict):
        raise ValueError(f"{file}: its lines are whole requests: send each of them as it is, as examples/guide/clients.md shows")
    return lines


class Columns(NamedTuple):
    """What is written of some rows: their numbers, from 1 on, and a value for each of them by the name of the column.

    A value of several elements can have a label for each.
    """

    numbers: list[int]
    values: dict[str, Sequence[Any]]
    labels: Mapping[str, Sequence[str]]


class Writer:
    """Writes rows as they are scored, and what was refused beside them. A file beside tells how far that is, until the end."""

    def __init__(self, file: Path, of: Mapping[str, Any], *, goes_on: bool) -> None:
        self.file, self._format = file, format_of(file)
        self._part = file.with_name(f"{file.name}.part") if self._format == "parquet" else file
        self.refused_file = file.with_suffix(".refused.csv" if self._format == "csv" else ".refused.jsonl")
        self._state = file.with_name(f"{file.name}.state")
        self.done = self.refused = 0
        self.first_reason = ""  # of what this run refused
        self._kept = time.monotonic()
        if not goes_on and self._state.exists():
            raise ValueError(f"{file}: a run was cut before its end: go on with --resume, or remove {self._state}")
        if goes_on and file.exists() and not self._state.exists():
            raise ValueError(f"--resume: {file} is complete: leave --resume out to score all rows anew")
        sizes = self._read_state(of) if goes_on and self._state.exists() else (0, 0)
        self._of = dict(of)
        self._out, self._errors = self._open(self._part, sizes[0]), self._open(self.refused_file, sizes[1])

    def _read_state(self, of: Mapping[str, Any]) -> tuple[int, int]:
        state = json.loads(self._state.read_text())
        if state["of"] != of:
            raise ValueError(f"--resume: {self.file} was begun with {json.dumps(state['of'])}: this is {json.dumps(of)}")
        self.done, self.refused = state["done"], state["refused"]
        return state["size"], state["refused_size"]

    @staticmethod
    def _open(file: Path, size: int) -> BinaryIO:
        """Open a file to write on after its complete part."""
        file.touch()
        opened = file.open("r+b")
        opened.truncate(size)
        opened.seek(size)
        return opened

    def write(self, columns: Columns) -> None:
        if self._format == "parquet":
            pyarrow = _import_pyarrow()
            batch = pyarrow.record_batch(
                {"row": columns.numbers, **{name: _to_arrow(pyarrow, each) for name, each in columns.values.items()}}
            )
            with pyarrow.ipc.new_stream(self._out, batch.schema) as stream:
                stream.write_batch(batch)
        elif self._format == "csv":
            flat = {"row": columns.numbers, **_flatten_rows(columns.values, columns.labels)}
            without_nan = ([None if value != value else value for value in values] for values in flat.values())  # only NaN is not itself
            _write_csv(self._out, flat.keys(), zip(*without_nan, strict=True))
        else:
            named = [columns.numbers, *(_to_list(_to_json(each)) for each in columns.values.values())]
            self._write_lines(self._out, (dict(zip(["row", *columns.values], row, strict=True)) for row in zip(*named, strict=True)))

    @staticmethod
    def _write_lines(opened: BinaryIO, documents: Iterable[Mapping[str, Any]]) -> None:
        for document in documents:
            opened.write(json.dumps(document, ensure_ascii=False, default=str).encode() + b"\n")

    def write_refused(self, number: int, reason: str, row: Mapping[str, Any]) -> None:
        self.refused += 1
        self.first_reason = self.first_reason or reason
        if self._format == "csv":
            _write_csv(self._errors, ["row", "reason", *row], [[number, reason, *row.values()]])
        else:
            self._write_lines(self._errors, [{"row": number, "reason": reason, "columns": row}])

    def note(self, done: int) -> None:
        """Note that all rows up to this number are written, scored or refused."""
        self.done = done
        if time.monotonic() - self._kept >= _KEEP_EVERY:
            self._keep_state()

    def _keep_state(self) -> None:
        self._kept = time.monotonic()
        for opened in (self._out, self._errors):
            opened.flush()
        state = {"of": self._of, "done": self.done, "refused": self.refused, "size": self._out.tell(), "refused_size": self._errors.tell()}
        written = self._state.with_suffix(".new")
        written.write_text(json.dumps(state))
        os.replace(written, self._state)

    def close(self, *, is_complete: bool) -> None:
        self._keep_state()
        self._out.close()
        self._errors.close()
        if self.refused == 0:
            self.refused_file.unlink()
        if is_complete:
            if self._format == "parquet":
                _join_streams(self._part, self.file)
            with suppress(FileNotFoundError):
                self._state.unlink()


def _write_csv(opened: BinaryIO, names: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Write rows, and before the first ones what the columns are called."""
    lines = [*([names] if opened.tell() == 0 else []), *map(list, rows)]
    has_returns = any("\r" in str(value) for line in lines for value in line)  # which Python quotes since 3.13
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL if has_returns else csv.QUOTE_MINIMAL).writerows(lines)
    opened.write(text.getvalue().encode())


def _flatten_rows(values: Mapping[str, Any], labels: Mapping[str, Sequence[str]]) -> dict[str, list[Any]]:
    """One column for each element of a row, named by its label, or by its place."""
    flat: dict[str, list[Any]] = {}
    for name, each in values.items():
        if isinstance(each, np.ndarray) and each.ndim > 1:
            rows = each.reshape(len(each), -1)
            of_elements = labels.get(name, ())
            names = of_elements if len(set(of_elements)) == len(of_elements) == rows.shape[1] else range(rows.shape[1])
            flat |= {f"{name}_{of_element}": column.tolist() for of_element, column in zip(names, rows.T, strict=True)}
        else:
            flat[name] = _to_list(each)
    return flat


def _to_json(values: Any) -> Any:
    """Values as JSON has them: NaN is null, and an infinity a text, as in the protocol."""
    if not isinstance(values, np.ndarray) or values.dtype.kind != "f" or np.isfinite(values).all():
        return values
    elements = values.astype(object)
    elements[np.isnan(values)] = None
    elements[np.isposinf(values)], elements[np.isneginf(values)] = "Infinity", "-Infinity"
    return elements


def _to_list(values: Any) -> list[Any]:
    listed: list[Any] = values.tolist() if isinstance(values, np.ndarray) else list(values)
    return listed


def _to_arrow(pyarrow: Any, values: Any) -> Any:
    array = np.asarray(values)
    if array.dtype.kind == "f" and array.ndim == 1 and np.isnan(array).all():  # nothing shows what it is a column of
        return pyarrow.nulls(len(array))
    return pyarrow.array(array if array.ndim == 1 else array.tolist(), from_pandas=True)  # NaN is null in each chunk


def _join_streams(part: Path, file: Path) -> None:
    """Make one Parquet file of the streams of all chunks. The values of a chunk decide its types, such as that of one without any value."""
    pyarrow = _import_pyarrow()
    schemas = [batch.schema for batch in _read_batches(part)]
    if schemas:
        try:
            schema = pyarrow.unify_schemas(list(dict.fromkeys(schemas)), promote_options="permissive")
            number = pyarrow.float64()
            schema = pyarrow.schema([each.with_type(number) if pyarrow.types.is_null(each.type) else each for each in schema])
            with pyarrow.parquet.ParquetWriter(file, schema) as writer:
                for batch in _read_batches(part):
                    writer.write_table(pyarrow.Table.from_batches([batch]).cast(schema))
        except pyarrow.ArrowException as error:
            file.unlink(missing_ok=True)
            what = f"{file.name}: chunks differ in the type of a column ({error})"
            raise ValueError(f"{what}: write JSON lines, or declare the outputs of the model") from None
    part.unlink()


def _read_batches(part: Path) -> Iterator[Any]:
    pyarrow = _import_pyarrow()
    with part.open("rb") as opened:
        while opened.peek(1):
            yield from pyarrow.ipc.open_stream(opened)
