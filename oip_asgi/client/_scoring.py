"""Rows -> requests, and the answers in the order of the rows. Knows columns and datatypes, and no files."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from .._protocol.datatypes import dtype_of
from .._protocol.errors import ErrorResponse, InferenceError, InvalidResponse, list_names, show
from .._protocol.tensors import InferenceResponse, Tensor
from ._engines import ConnectionFailed

Row: TypeAlias = list[Any]
"""The values of one row of a file."""


class Stopped(Exception):
    """No row can be scored any more; the text says why."""


class Refused(Exception):
    """One row is refused; the text says why."""


# Columns -> tensors


class Column(NamedTuple):
    """What becomes of one column, or of several that are one input."""

    name: str
    places: list[int]  # in a row of the file
    datatype: str
    content_type: str | None = None
    may_miss: bool = False  # whether a data frame has missing values in it
    is_matrix: bool = False


_BOOLS: Final = {"true": True, "false": False, "1": True, "0": False}


def plan_columns(
    names: list[str], inputs: Sequence[Mapping[str, Any]], chosen: list[str] | None, guesses: Mapping[str, str]
) -> list[Column]:
    """Find the columns of a file that a model takes.

    Args:
        names: Of the file's columns.
        inputs: Of the model's metadata.
        chosen: The columns of the only input, or of a model that declares none; None for all.
        guesses: The datatypes of columns of which no metadata tells.

    Raises:
        ValueError: They do not fit; the text says which were expected.
    """
    missing = [name for name in chosen or () if name not in names]
    if missing:
        raise ValueError(f"--columns: the file has no {list_names(missing)}: it has {list_names(names)}")
    if not inputs:
        return [Column(name, [names.index(name)], guesses[name], may_miss=True) for name in chosen or names]
    rows = [each for each in inputs if each["shape"] and each["shape"][0] == -1]  # others, such as scalars, are the same for all rows
    present = [each for each in rows if each["name"] in names]  # metadata does not tell which are optional: the server does
    if present:
        return [_plan(each, names) for each in present]
    if len(rows) != 1 or len(rows[0]["shape"]) != 2:
        raise ValueError(f"the model takes {list_names([each['name'] for each in rows])}: the file has {list_names(names)}")
    name, size, places = rows[0]["name"], rows[0]["shape"][1], [names.index(name) for name in chosen or names]
    if size not in (-1, len(places)):
        raise ValueError(
            f"the input {show(name)} has {size} columns, and the file {len(places)}: name them, in the order of the training, by --columns"
        )
    return [Column(name, places, rows[0]["datatype"], is_matrix=True)]


def _plan(declared: Mapping[str, Any], names: list[str]) -> Column:
    parameters = declared.get("parameters") or {}
    kind = parameters.get("content_type")
    may_miss = "pd_dtype" in parameters
    return Column(declared["name"], [names.index(declared["name"])], declared["datatype"], kind, may_miss)


def read_value(value: Any, column: Column, *, is_text: bool) -> Any:
    """A value of a file as the column's datatype has it; None if it is missing.

    Raises:
        ValueError: It is none.
    """
    if value is None or (is_text and value == "" and (column.may_miss or column.datatype != "BYTES")):
        return None
    if not is_text or column.datatype == "BYTES":
        return value
    if column.datatype == "BOOL":
        return _BOOLS[value.strip().lower()]
    return float(value) if column.datatype in ("FP16", "FP32", "FP64", "BF16") else int(value)


def guess_datatypes(names: list[str], rows: Iterable[Row], *, is_text: bool) -> tuple[dict[str, str], int]:
    """The datatype of each column, by all of its values, and how many rows there are."""
    kinds: list[str] = ["INT64"] * len(names)
    count = 0
    for row in rows:
        count += 1
        for place, value in enumerate(row[: len(names)]):
            if kinds[place] != "BYTES" and value is not None and value != "":
                kinds[place] = _widen(kinds[place], value, is_text=is_text)
    return dict(zip(names, kinds, strict=True)), count


def _widen(kind: str, value: Any, *, is_text: bool) -> str:
    if not is_text:
        return "BYTES" if isinstance(value, str) else "FP64" if isinstance(value, float) else kind
    try:
        number = float(value)
        return kind if number.is_integer() and value.strip().lstrip("+-").isdecimal() else "FP64"
    except ValueError:
        return "BYTES"


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
        except (ValueError, TypeError, KeyError, OverflowError, IndexError, InferenceError) as error:
            shown = [show(row[place]) for row in rows[:1] for place in column.places if place < len(row)]
            raise Refused(f"{column.name} is {', '.join(shown)[:200]}: expected {column.datatype}") from error
    return tensors


def _make_tensor(column: Column, values: list[Any]) -> Tensor:
    if column.datatype == "BYTES":
        if None not in values:
            return Tensor(column.name, np.array(values, object))
        if column.content_type == "datetime":
            return Tensor(column.name, np.array(["NaT" if value is None else value for value in values], object))
        return _make_json(column, values)
    dtype = dtype_of(column.datatype)
    misses = None in values
    if misses and dtype.kind not in "fV":
        if not column.may_miss:
            raise ValueError("missing")
        return _make_json(column, values)
    if misses:
        values = [float("nan") if value is None else value for value in values]
    array = np.array(values)
    if (dtype.kind in "iu" and array.dtype.kind not in "iu") or (dtype.kind == "b") != (array.dtype.kind == "b"):
        raise ValueError("of another kind")
    if dtype.kind in "iu" and array.size and not np.iinfo(dtype).min <= array.min() <= array.max() <= np.iinfo(dtype).max:
        raise ValueError("out of range")
    return Tensor(column.name, array.astype(dtype))


def _make_json(column: Column, values: list[Any]) -> Tensor:
    """Missing values, as data frames take them."""
    return Tensor(column.name, np.array([json.dumps(value) for value in values], object), {"content_type": "pd_json"})


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
            array = np.vectorize(lambda value: value.decode(errors="backslashreplace"), otypes=[object])(array)
        outputs[tensor.name] = array[:, 0] if array.shape[1:] == (1,) else array
    return outputs


# Requests


Ask = Callable[[list[Row]], Any]
"""Asks for some rows. Raises `ErrorResponse`, `ConnectionFailed`, or `Refused` if one of them cannot be sent."""


_OF_ANY_ROW: Final = (401, 403, 404, 405, 407)
"""What is answered whatever the rows are."""

_BUSY: Final = (429, 503)


class Part(NamedTuple):
    """How some rows ended."""

    first: int  # their numbers, from 1 on
    size: int
    answers: list[tuple[int, int, Any]]  # what was answered for so many rows from a number on
    refused: list[tuple[int, str, Row]]


class Scorer:
    """Asks for rows in chunks over some connections, and tells how each ended in their order."""

    def __init__(self, ask: Ask, connections: int, chunk: int, patience: float, give_up: threading.Event) -> None:
        self._ask, self._connections, self._chunk, self._patience = ask, connections, chunk, patience
        self._give_up = give_up

    def score(self, rows: Iterator[Row], done: int) -> Iterator[Part]:
        """Tell how all rows ended that come after the first `done`.

        Raises:
            Stopped: No row can be scored any more, or each row of the first chunk is refused, as all others will be. Earlier parts stay
                valid.
        """
        for number, part in enumerate(self._score_chunks(rows, done)):
            yield part
            if number == 0 and len(part.refused) == part.size:
                raise Stopped(f"all of the first {part.size} rows are refused")

    def _score_chunks(self, rows: Iterator[Row], done: int) -> Iterator[Part]:
        with ThreadPoolExecutor(self._connections, "oip_asgi rows") as threads:
            running: deque[Future[Part]] = deque()
            try:
                first = done + 1
                while chunk := list(islice(rows, self._chunk)):
                    running.append(threads.submit(self._score_chunk, first, chunk))
                    first += len(chunk)
                    if len(running) >= 2 * self._connections:
                        yield running.popleft().result()
                while running:
                    yield running.popleft().result()
            finally:
                self._give_up.set()
                for each in running:
                    each.cancel()

    def _score_chunk(self, first: int, rows: list[Row]) -> Part:
        part = Part(first, len(rows), [], [])
        self._score_rows(first, rows, part)
        return part

    def _score_rows(self, first: int, rows: list[Row], part: Part) -> None:
        """Score rows; if they are refused, each half of them, until it is known which row is."""
        try:
            part.answers.append((first, len(rows), self._ask_patiently(rows)))
        except (Refused, InferenceError) as error:
            if isinstance(error, InvalidResponse) and not isinstance(error, ErrorResponse):
                raise Stopped(str(error)) from error
            if len(rows) == 1:
                part.refused.append((first, error.text if isinstance(error, ErrorResponse) else str(error), rows[0]))
                return
            half = len(rows) // 2
            self._score_rows(first, rows[:half], part)
            self._score_rows(first + half, rows[half:], part)

    def _ask_patiently(self, rows: list[Row]) -> Any:
        waited = 0.0
        while True:
            try:
                return self._ask(rows)
            except ErrorResponse as error:
                if error.response_status in _OF_ANY_ROW:
                    raise Stopped(str(error)) from error
                if error.response_status not in _BUSY:
                    raise
                seconds, why = _read_seconds(error.response_headers.get("retry-after", "")), str(error)
            except ConnectionFailed as error:
                seconds, why = 1.0, str(error)
            if waited >= self._patience or self._give_up.wait(seconds):
                raise Stopped(why)
            waited += seconds


def _read_seconds(text: str) -> float:
    """`Retry-After` in seconds. Who says a date gets a second, as servers that are busy say seconds."""
    return min(max(float(text), 0.1), 60.0) if text.strip().isdecimal() else 1.0
