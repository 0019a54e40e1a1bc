"""Score a file of rows with a model, and write the outputs of each row.

python -m oip_asgi.client score http://127.0.0.1:8000/v2 iris rows.csv --out scores.csv

It ends with 0 if each row is scored, with 1 if rows are missing, and with 2 if nothing can be scored. Files
are read and written by pandas. What the values of a column become, the model's declaration decides, as for
any list that a `Client` sends.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pandas as pd

from ... import ErrorResponse, InferenceError, InferenceResponse
from .. import Client, ConnectionFailed
from .files import BOOLS, READERS, Writer, find_types, is_csv, read_rows, read_text


class Stopped(Exception):
    """No row can be scored any more; the text says why."""


# Inputs

Column: TypeAlias = tuple[str | list[str], Callable[[Any], Any], Callable[[Any], Any]]
"""What becomes of one column of a file, or of several that are the elements of an array: their names, what
each value becomes, and what a `Client` gets for an array of these."""


def list_inputs(metadata: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the model declares, without the scalars beside a data frame, which are the same for all rows."""
    is_frame = (metadata.get("parameters") or {}).get("content_type") == "pd"
    inputs = [
        {**each, "shape": [*map(int, each["shape"])], "parameters": each.get("parameters") or {}}
        for each in metadata.get("inputs") or ()
    ]
    return [each for each in inputs if not is_frame or each["shape"] not in ([], [1])]


_UNKNOWN: Final = {"datatype": "FP64", "shape": [-1], "parameters": {"other_datatypes": "unknown"}}
"""A column of a model that declares nothing: it is what its values are."""


def plan_columns(
    inputs: Sequence[Mapping[str, Any]],
    names: list[str],
    types: Mapping[str, set[type | None]],
    *,
    are_texts: bool,
) -> dict[str, Column]:
    """Find the columns of a file that a model takes, by the names of its inputs.

    Args:
        inputs: Those of the model.
        names: Of the columns that are the elements of its only input.
        types: Those of the values of each column of the file, which decide where the model takes any
            datatype.

    Raises:
        ValueError: They do not fit; the text says which were expected.
    """
    rows = [each for each in inputs if each["shape"][:1] == [-1]]
    # metadata does not tell which are optional: the server does
    present = [each for each in rows if each["name"] in types]
    absent = {each["name"].casefold(): each["name"] for each in inputs if each["name"] not in types}
    for name in types if present else ():
        if name.strip().casefold() in absent:  # all rows would silently have the default of an optional input
            raise ValueError(
                f"the file has no column {absent[name.strip().casefold()]!r}, but {name!r}: rename it"
            )
    if present:
        return {
            each["name"]: _plan_column(each, types[each["name"]], are_texts=are_texts) for each in present
        }
    if len(rows) != 1 or len(rows[0]["shape"]) != 2:
        raise ValueError(
            f"the model takes {_list_names([each['name'] for each in rows or inputs])}: the file has "
            f"{_list_names(types)}"
        )
    name, width, others = rows[0]["name"], rows[0]["shape"][1], rows[0]["parameters"].get("other_datatypes")
    if width not in (-1, len(names)):
        raise ValueError(
            f"the input {name!r} has {width} columns, and the file {len(names)}: name them, in the order of "
            "the training, by --columns"
        )
    read = partial(_read, read=read_text if are_texts else None, are_numbers=others == "numbers")
    return {name: (names, read, _write)}


def _list_names(names: Collection[str]) -> str:
    return ", ".join([*map(repr, list(names)[:10]), *(["..."] if len(names) > 10 else [])])


def is_by_values(declared: Mapping[str, Any]) -> bool:
    """Whether the values of a column decide what becomes of it."""
    parameters = declared["parameters"]
    return parameters.get("other_datatypes") == "all" or bool(parameters.get("content_type") == "pd_json")


def _plan_column(declared: Mapping[str, Any], types: set[type | None], *, are_texts: bool) -> Column:
    """What becomes of one column. Where the model takes any datatype, all of its values decide, as pandas
    reads them; but of a code such as 00123, a model that knows it as a text gets it so.

    Raises:
        ValueError: It has values of several types, and each row would have its own. In CSV, such a column is
            texts.
    """
    name, datatype, parameters = declared["name"], declared["datatype"], declared["parameters"]
    others, content_type = parameters.get("other_datatypes"), parameters.get("content_type")
    is_any, are_numbers = others in ("all", "unknown"), types <= {int, float, None}
    if (
        is_any
        and not are_texts
        and len({float if each is int else each for each in types} & {str, bool, float}) > 1
    ):
        raise ValueError(
            f"column {name!r} has texts, numbers or booleans side by side: declare it, or write "
            "all of them as texts"
        )
    is_guessed = content_type == "pd_json" or (is_any and datatype != "BYTES")
    stay_texts = not are_numbers and not types <= {bool, None} if is_guessed else datatype == "BYTES"
    may_miss = is_any or content_type in ("pd_json", "datetime") or "pd_dtype" in parameters
    read: Callable[[Any], Any] = (lambda text: text or None) if may_miss else str
    if not stay_texts:
        read = partial(read_text, first=BOOLS.__getitem__ if datatype == "BOOL" and not is_any else int)
    becomes_floats = is_any and not stay_texts and are_numbers and types != {int}
    return (
        name,
        partial(_read, read=read if are_texts else None, are_numbers=becomes_floats or others == "numbers"),
        partial(
            _write,
            # a `Client` knows which inputs may miss values: another may as a column of pandas has it
            has_gaps=others == "unknown" or (datatype == "BYTES" and not may_miss),
            is_encoded=content_type == "base64",
        ),
    )


def _read(value: Any, *, read: Callable[[Any], Any] | None, are_numbers: bool) -> Any:
    """A value of a cell. A model of numbers has no missing boolean; and a whole number that a float would
    round stays one."""
    value = value if read is None else read(value)
    if not are_numbers or type(value) is str:
        return value
    return np.nan if value is None else value if abs(value) >= 2**53 else float(value)


def _write(cells: Any, *, has_gaps: bool = False, is_encoded: bool = False) -> Any:
    values = cells.tolist()
    if is_encoded and {*map(type, values)} == {str}:
        return cells  # an array is sent as it is
    return pd.Series(values, dtype=object) if has_gaps and None in values else values


def make_inputs(columns: Mapping[str, Column], rows: pd.DataFrame, *, are_texts: bool) -> dict[str, Any]:
    """What a `Client` sends of some rows. Raises InferenceError if a row has too few values."""
    if are_texts and rows.isna().any(axis=None):
        raise InferenceError(
            f"it has {rows.iloc[0].notna().sum()} values, and the file has {len(rows.columns)} columns"
        )
    return {
        name: write(np.frompyfunc(read, 1, 1)(rows[chosen].to_numpy()))
        for name, (chosen, read, write) in columns.items()
    }


# Outputs

_NAMES: Final = {"nan": None, "inf": "Infinity", "-inf": "-Infinity"}
"""What JSON of the protocol has for these."""


def find_labels(metadata: Mapping[str, Any]) -> dict[str, list[str]]:
    """Those of each output. Another server may mean something else by "labels"."""
    return {
        each["name"]: json.loads(text)
        for each in metadata.get("outputs") or ()
        if (text := str((each.get("parameters") or {}).get("labels"))).startswith('["')
    }


def read_outputs(
    response: InferenceResponse, rows: pd.DataFrame, labels: Mapping[str, Sequence[str]], suffix: str
) -> pd.DataFrame:
    """The outputs of some rows as what is written. In CSV, each element of a row has a column, named by its
    label or its place.

    Raises:
        Stopped: There is not one row for each.
    """
    columns: dict[str, list[Any]] = {"row": rows.index.tolist()}
    for tensor in response.outputs:
        name, array = tensor.name, tensor.array[:, 0] if tensor.array.shape[1:] == (1,) else tensor.array
        if array.shape[:1] != (len(rows),):
            raise Stopped(
                f"the model does not score row by row: the output {name!r} of {len(rows)} rows has the "
                f"shape {list(array.shape)}"
            )
        if array.dtype.hasobject:
            array = np.frompyfunc(
                json.loads
                if tensor.parameters.get("content_type") == "pd_json"
                else lambda text: text.decode(errors="backslashreplace"),
                1,
                1,
            )(array)
        elif array.dtype.kind == "f" and suffix not in (
            ".csv",
            ".parquet",
        ):  # as the protocol's JSON has them
            array = np.frompyfunc(_NAMES.get, 2, 1)(array.astype(str), array.astype(object))
        if suffix == ".csv" and array.ndim > 1:
            elements, own = array.reshape(len(rows), -1).T.tolist(), labels.get(name, ())
            names = own if len({*own}) == len(own) == len(elements) else range(len(elements))
            columns |= {f"{name}_{each}": values for each, values in zip(names, elements, strict=True)}
        else:
            columns[name] = array.tolist()
    return pd.DataFrame(columns, dtype=object)


# Requests


def score_frames(
    ask: Callable[[pd.DataFrame], Any],
    frames: Iterator[pd.DataFrame],
    connections: int,
    gives_up: threading.Event,
) -> Iterator[list[tuple[pd.DataFrame, Any]]]:
    """Ask over some connections, and tell which rows of each frame have which answer, in their order.

    Args:
        ask: Asks for some rows. Raises `InferenceError` if they are refused, and `Stopped`.
        gives_up: Is set at the end, for requests that wait.

    Raises:
        Stopped: No row can be scored any more, or each row of the first frame is refused, as all others will
            be. What was told stays valid.
    """
    with ThreadPoolExecutor(connections, "oip_asgi rows") as threads:
        try:
            for first in islice(frames, 1):  # alone: it may tell of all
                yield (ended := _score_rows(ask, first, is_first=True))
                if all(isinstance(answer, InferenceError) for _, answer in ended):
                    raise Stopped(f"all of the first {len(first)} rows are refused")
            while some := list(islice(frames, 4 * connections)):
                yield from threads.map(partial(_score_rows, ask), some)
        finally:
            gives_up.set()


def _score_rows(
    ask: Callable[[pd.DataFrame], Any], rows: pd.DataFrame, *, is_first: bool = False
) -> list[tuple[pd.DataFrame, Any]]:
    """Score rows; if they are refused, each fourth part of them, until it is known which row is: its answer
    is the error. Halves would be asked as often for one such row, and half as often again if many are.

    The log of a model that fails with the first rows, and with some of them alone, does not get a traceback
    for each.
    """
    try:
        return [(rows, ask(rows))]
    except InferenceError as error:
        if len(rows) == 1:
            return [(rows, error)]
        if (
            is_first
            and len(rows) > 8
            and getattr(error, "response_status", None) == 500
            and all(  # not each n-th row, of which all may have what others do not
                isinstance(_score_rows(ask, row)[0][1], InferenceError)
                for _, row in rows.sample(8, random_state=0).groupby(level=0)
            )
        ):
            raise Stopped(
                f"the model fails with rows {rows.index[0]} to {rows.index[-1]}, and with 8 of them alone: "
                f"{error}"
            ) from error
        size = -(-len(rows) // 4)
        parts = (rows.iloc[first : first + size] for first in range(0, len(rows), size))
        return [ended for part in parts for ended in _score_rows(ask, part)]


def ask_patiently(
    ask: Callable[[pd.DataFrame], Any], patience: float, gives_up: threading.Event, rows: pd.DataFrame
) -> Any:
    """Ask again where the server is busy or away."""
    until = time.monotonic() + patience
    while True:
        try:
            return ask(rows)
        except (ErrorResponse, ConnectionFailed) as error:
            status = getattr(error, "response_status", 503)
            after = getattr(error, "response_headers", {}).get("retry-after", "").strip()
            if status in (401, 403, 404, 405, 407):  # whatever the rows are
                raise Stopped(str(error)) from error
            if status not in (429, 503):
                raise
            # who says a date gets a second, as servers that are busy say seconds
            if time.monotonic() >= until or gives_up.wait(
                min(max(float(after), 0.1), 60.0) if after.isdecimal() else 1.0
            ):
                raise Stopped(str(error)) from error


# The command

ENDED: Final = "cannot be scored"
ARGUMENTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "model": {"help": "the model that scores"},
    "rows": {"type": Path, "help": "a .csv, .jsonl or .parquet file"},
    "--out": {"type": Path, "required": True, "help": "the file for the outputs; its suffix says the format"},
    "--resume": {"action": "store_true", "help": "go on where a run was cut"},
    "--columns": {
        "help": "the columns to send, such as a,b,c, if the model does not say their names; else all"
    },
    "--chunk": {"type": int, "default": 256, "help": "rows of each request; %(default)s"},
    "--connections": {"type": int, "default": 4, "help": "requests at the same time; %(default)s"},
    "--patience": {
        "type": float,
        "default": 60.0,
        "help": "seconds to try again where the server is busy (503) or away; %(default)s",
    },
}
_UNDECLARED: Final = """\
. The model declares nothing of its columns, so each was sent as pandas reads it. If it takes others, or all \
of them as one array, declare that: inputs=specs_of(X_train), or inputs=[TensorSpec("X", "FP64", [-1, 4])]"""


def run(options: argparse.Namespace) -> int:
    if options.out.resolve() == options.rows.resolve():
        raise ValueError("--out is the file of the rows")
    if min(options.chunk, options.connections) < 1:
        raise ValueError("--chunk and --connections: expected 1 or more")
    for file in (options.rows, options.out):
        if file.suffix.lower() not in READERS:
            raise ValueError(f"{file}: expected a name that ends with .csv, .jsonl or .parquet")
    with Client(options.url, headers=dict(options.header)) as client:
        return _score(options, client)


def _score(options: argparse.Namespace, client: Client) -> int:
    metadata = client.model_metadata(options.model, options.version)
    binary = "binary_tensor_data" in client.metadata().get("extensions", ())
    declared, are_texts = list_inputs(metadata), is_csv(options.rows)
    are_asked = {each["name"] for each in declared if is_by_values(each)}.__contains__
    types, total = find_types(options.rows, options.chunk, are_asked if declared else lambda _: True)
    names = options.columns.split(",") if options.columns else list(types)
    if not types.keys() >= set(names):
        raise ValueError(f"--columns {options.columns}: the file has {_list_names(types)}")
    columns = plan_columns(
        declared or [{"name": name, **_UNKNOWN} for name in names], names, types, are_texts=are_texts
    )
    labels = find_labels(metadata)
    writer = Writer(
        options.out,
        {"rows": str(options.rows.resolve()), "size": options.rows.stat().st_size, "model": options.model},
        goes_on=options.resume,
    )
    begun_at, gives_up, why = writer.done, threading.Event(), ""
    since = told = time.monotonic()
    begins, ends = ("\r", "\x1b[K") if sys.stderr.isatty() else ("", "\n")

    def ask(rows: pd.DataFrame) -> pd.DataFrame:
        sent = make_inputs(columns, rows, are_texts=are_texts)
        response = client.infer(options.model, sent, version=options.version, binary=binary)
        return read_outputs(response, rows, labels, writer.suffix)

    frames = (
        left
        for rows in read_rows(options.rows, options.chunk, list(types))
        if len(left := rows[rows.index > begun_at])
    )
    try:
        for ended in score_frames(
            partial(ask_patiently, ask, options.patience, gives_up), frames, options.connections, gives_up
        ):
            writer.write(ended)
            if time.monotonic() - told >= (0.2 if begins else 10.0):
                told = time.monotonic()
                speed = (writer.done - begun_at) / (told - since)
                sys.stderr.write(
                    f"{begins}{writer.done:,} of {total:,} rows, {speed:,.0f} rows per second, "
                    f"{(total - writer.done) / speed:,.0f} s left{ends}"
                )
    except (Stopped, KeyboardInterrupt) as stopped:
        why = (
            f"; stopped, as {str(stopped) or 'it was interrupted'}; --resume goes on from here"
            if writer.done < total
            else ""
        )
    writer.finish(is_complete=writer.done == total)
    such_as = f", such as: {writer.reason}{'' if declared else _UNDECLARED}" if writer.reason else ""
    refused = f"; refused: {writer.refused:,}, with the reasons in {writer.refused_file}{such_as}"
    sys.stderr.write(
        f"{begins and begins + ends}{writer.done - writer.refused:,} of {total:,} rows are scored: "
        f"{writer.file}{refused if writer.refused else ''}{why}\n"
    )
    return int(writer.done - writer.refused < total)
