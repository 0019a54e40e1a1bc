"""Score a file of rows with a model, and write the outputs of each row.

python -m oip_asgi.client score http://127.0.0.1:8000/v2 iris rows.csv --out scores.csv

It ends with 0 if each row is scored, with 1 if rows are missing, and with 2 if nothing can be scored. Files
are read and written by pandas, in frames whose values are objects: the texts of CSV, and None for what is
missing. What the values of a column become, the model's declaration decides, as for any list that a `Client`
sends. What became of each row is a line of a file beside the output until all are scored, so that a run that
was cut goes on from there.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pandas as pd

from .. import ErrorResponse, InferenceError, InferenceResponse
from . import Client, ConnectionFailed


class Stopped(Exception):
    """No row can be scored any more; the text says why."""


def _need(fits: object, otherwise: str, error: type[Exception] = ValueError) -> None:
    if not fits:
        raise error(otherwise)


# Files of rows


def read_rows(file: Path, size: int, names: list[str] | None = None) -> Iterator[pd.DataFrame]:
    """The file in frames of at most so many rows, whose index has their numbers, from 1 on.

    Raises:
        ValueError: It cannot be read.
        OSError: It cannot be read.
    """
    first = 1
    try:
        for part in READERS[file.suffix.lower()](file, size):
            rows = pd.DataFrame(part, columns=names, dtype=object)
            yield rows.where(rows.notna(), None).set_axis(range(first, first + len(rows)))
            first += len(rows)
    except ValueError as error:
        why = (
            f"{error.msg}, at character {error.pos + 1} of the line {error.doc.strip()[:100]!r}"
            if isinstance(error, json.JSONDecodeError)
            else error
        )
        raise ValueError(f"{file}, in rows {first} to {first + size - 1}: {why}") from None


def _read_csv(file: Path, size: int) -> Iterator[Any]:
    # the engine in C drops what the first row of a chunk has too much; and of blank lines, which are all
    # None, `""` is to be known
    with pd.read_csv(
        file, chunksize=size, dtype=object, na_filter=False, engine="python", skip_blank_lines=False
    ) as parts:
        for rows in parts:
            _need(  # else pandas has taken the first values of each row for its name
                isinstance(rows.index, pd.RangeIndex),
                "the first rows have more values than the file has columns",
            )
            yield rows.dropna(how="all")


def _read_json_lines(file: Path, size: int) -> Iterator[Any]:
    """Each line by itself: `read_json` rounds whole numbers beside a gap, and takes 1e400 for infinity."""
    with file.open("rb") as opened:
        lines = (json.loads(line, parse_float=_read_float) for line in opened if line.strip())
        for part in iter(lambda: list(islice(lines, size)), []):
            _need(
                all(isinstance(row, dict) and "" not in row for row in part),
                "expected an object in each line, whose keys are the names of columns",
            )
            yield part


def _read_parquet(file: Path, size: int) -> Iterator[Any]:
    import pyarrow.parquet

    for batch in pyarrow.parquet.ParquetFile(file).iter_batches(size):
        rows = pd.DataFrame(batch.to_pylist(), columns=batch.schema.names, dtype=object)
        yield rows.map(lambda cell: cell.isoformat() if hasattr(cell, "isoformat") else cell)


READERS: Final[Mapping[str, Callable[[Path, int], Iterator[Any]]]] = {
    ".csv": _read_csv,
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".json": _read_json_lines,
    ".parquet": _read_parquet,
}
"""What reads a file of each suffix."""


_BOOLS: Final = {"True": True, "TRUE": True, "true": True, "False": False, "FALSE": False, "false": False}


def read_text(text: str | None) -> Any:
    """The value of a text of CSV as pandas reads it: what is no number and no boolean is a text, and None if
    it is empty."""
    plain = (text or "").strip().replace("_", "x")  # 1_000 is a number to Python alone
    for read in (int, _BOOLS.__getitem__, _read_float):
        with suppress(KeyError, ValueError):
            return read(plain)
    return text or None


def _read_float(text: str) -> float:
    """A number, or an infinity that is written as one. Raises ValueError if no float is that large."""
    if abs(float(text)) == np.inf and "n" not in text.casefold():
        raise ValueError(f"{text[:40]} is out of range for FP64")
    return float(text)


def find_types(
    file: Path, size: int, read: Callable[[Any], Any], are_asked: Callable[[str], bool]
) -> tuple[dict[str, set[type]], int]:
    """The types of all values of each column that is asked; and how many rows there are."""
    types, total = dict[str, set[type]](), 0
    for rows in read_rows(file, size):
        for name in dict.fromkeys([*types, *rows]):  # a row of JSON need not have each column
            values = rows.get(name, [None]) if are_asked(name) else ()
            types.setdefault(name, {_NONE} if total else set()).update(map(type, map(read, values)))
        total += len(rows)
    return types, total


# Inputs

_NONE: Final = type(None)

Column: TypeAlias = tuple[str | list[str], Callable[[Any], Any], Callable[[list[Any]], Any]]
"""What becomes of one column of a file, or of several that are the elements of an array: their names, what
each value becomes, and what a `Client` gets for a list of these."""

_UNKNOWN: Final = {"datatype": "FP64", "shape": [-1], "parameters": {"other_datatypes": "unknown"}}
"""A column of a model that declares nothing: it is what its values are."""


def list_inputs(metadata: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the model declares, without the scalars beside a data frame, which are the same for all rows."""
    inputs = [
        {**each, "shape": [*map(int, each["shape"])], "parameters": each.get("parameters") or {}}
        for each in metadata.get("inputs") or ()
    ]
    scalars = ([], [1]) if (metadata.get("parameters") or {}).get("content_type") == "pd" else ()
    return [each for each in inputs if each["shape"] not in scalars]


def plan_columns(
    inputs: Sequence[Mapping[str, Any]],
    names: list[str],
    types: Mapping[str, set[type]],
    *,
    are_texts: bool,
) -> dict[str, Column]:
    """Find the columns of a file that a model takes, by the names of its inputs.

    Args:
        inputs: Those of the model.
        names: Of the columns that are the elements of its only input.
        types: Those of the values of each column of the file, which decide where the model takes any
            datatype.
        are_texts: Whether all values of the file are texts.

    Raises:
        ValueError: They do not fit; the text says which were expected.
    """
    rows = [each for each in inputs if each["shape"][:1] == [-1]]
    # metadata does not tell which are optional: the server does
    present = [each for each in rows if each["name"] in types]
    absent = {each["name"].casefold(): each["name"] for each in inputs if each["name"] not in types}
    for name in types if present else ():  # or all rows would have the default of an optional input
        other = absent.get(name.strip().casefold())
        _need(other is None, f"the file has no column {other!r}, but {name!r}: rename it")
    if present:
        return {
            each["name"]: _plan_column(each, types[each["name"]], are_texts=are_texts) for each in present
        }
    expected = [each["name"] for each in rows or inputs]
    row = f"; a line is one row, such as {json.dumps(dict.fromkeys(expected[:10], '...'))}"
    such_as = row if {"rows", "inputs", "instances"} & types.keys() else ""
    _need(
        len(rows) == 1 and len(rows[0]["shape"]) == 2,
        f"the model takes {_list_names(expected)}: the file has {_list_names(types)}{such_as}",
    )
    width, others = rows[0]["shape"][1], rows[0]["parameters"].get("other_datatypes")
    _need(
        width in (-1, len(names)),
        f"the input {expected[0]!r} has {width} columns, and the file {len(names)}: name them, in the order "
        "of the training, by --columns",
    )
    read = partial(_read, is_text=not are_texts, empty="", are_floats=others == "numbers")
    return {expected[0]: (names, read, list)}


def _list_names(names: Collection[str]) -> str:
    return ", ".join([*map(repr, list(names)[:10]), *(["..."] if len(names) > 10 else [])])


def _plan_column(declared: Mapping[str, Any], types: set[type], *, are_texts: bool) -> Column:
    """What becomes of one column. Where the model takes any datatype, all of its values decide, as pandas
    reads them; but of a code such as 00123, a model that knows it as a text gets it so.

    Raises:
        ValueError: It has values of several types, and each row would have its own. In CSV, such a column is
            texts.
    """
    datatype, parameters = declared["datatype"], declared["parameters"]
    others, content_type = parameters.get("other_datatypes"), parameters.get("content_type")
    is_any, are_numbers = others in ("all", "unknown"), types <= {int, float, _NONE}
    is_mixed = len({float if each is int else each for each in types} & {str, bool, float}) > 1
    _need(
        not is_any or not is_mixed or are_texts,
        f"column {declared['name']!r} has texts, numbers or booleans side by side: declare it, or write all "
        "of them as texts",
    )
    is_guessed = content_type == "pd_json" or (is_any and datatype != "BYTES")
    stay_texts = is_mixed or str in types if is_guessed else datatype == "BYTES"
    may_miss = is_any or content_type in ("pd_json", "datetime") or "pd_dtype" in parameters
    read = partial(
        _read,
        is_text=not are_texts or stay_texts,
        empty=None if may_miss and are_texts else "",
        are_floats=others == "numbers" or (is_any and not stay_texts and are_numbers and types != {int}),
    )
    has_gaps = others == "unknown" and _NONE in types and not are_numbers  # which a `Client` cannot know
    write = partial(pd.Series, dtype=object) if has_gaps else list
    return declared["name"], read, _keep_encoded if content_type == "base64" else write


def _read(value: Any, *, is_text: bool, empty: str | None, are_floats: bool) -> Any:
    """A value of a cell. A model of numbers has no missing boolean; and a whole number that a float would
    round stays one."""
    value = (empty if value == "" else value) if is_text else read_text(value)
    if not are_floats or not isinstance(value, (int, float, _NONE)) or abs(value or 0) >= 2**53:
        return value
    return np.nan if value is None else float(value)


def _keep_encoded(values: list[Any]) -> Any:
    """Texts are base64 already: an array is sent as it is."""
    return np.array(values, dtype=object) if {*map(type, values)} == {str} else values


def make_inputs(columns: Mapping[str, Column], rows: pd.DataFrame, *, are_texts: bool) -> dict[str, Any]:
    """What a `Client` sends of some rows. Raises InferenceError if a row has too few values."""
    if are_texts and rows.isna().any(axis=None):
        raise InferenceError(
            f"it has {rows.iloc[0].notna().sum()} values, and the file has {len(rows.columns)} columns"
        )
    return {
        name: write(np.frompyfunc(read, 1, 1)(rows[chosen].to_numpy()).tolist())
        for name, (chosen, read, write) in columns.items()
    }


# Outputs

_NAMES: Final = {"nan": None, "inf": "Infinity", "-inf": "-Infinity"}
"""What JSON of the protocol has for these."""


def read_outputs(
    response: InferenceResponse, rows: pd.DataFrame, labels: Mapping[str, Sequence[str]], suffix: str
) -> list[dict[str, Any]]:
    """What is written of some rows. In CSV, each element of a row has a column, named by its label or its
    place.

    Raises:
        Stopped: There is not one row for each.
    """
    columns: dict[str, Any] = {"row": rows.index.tolist()}
    for tensor in response.outputs:
        name, array = tensor.name, tensor.array[:, 0] if tensor.array.shape[1:] == (1,) else tensor.array
        _need(
            array.shape[:1] == (len(rows),),
            f"the model does not score row by row: the output {name!r} of {len(rows)} rows has the shape "
            f"{list(array.shape)}",
            Stopped,
        )
        if array.dtype.hasobject:
            is_json = tensor.parameters.get("content_type") == "pd_json"
            read = json.loads if is_json else lambda text: text.decode(errors="backslashreplace")
            array = np.frompyfunc(read, 1, 1)(array)
        elif array.dtype.kind == "f" and suffix not in (".csv", ".parquet"):
            array = np.frompyfunc(_NAMES.get, 2, 1)(array.astype(str), array.astype(object))
        if suffix == ".csv" and array.ndim > 1:
            elements, own = array.reshape(len(rows), -1).T, labels.get(name, ())
            names = own if len({*own}) == len(own) == len(elements) else range(len(elements))
            columns |= {
                f"{name}_{each}": values.tolist() for each, values in zip(names, elements, strict=True)
            }
        else:
            columns[name] = array.tolist()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


# Requests

_OF_ALL_ROWS: Final = (401, 403, 404, 405, 407, 429, 503)
"""What a server answers whatever the rows are; with the last two, it may answer otherwise after a while."""


_PLACE: Final = re.compile(
    r"""\A(?:((?:input|column|tensor) (?:'[^']*'|"[^"]*")(?:,|:| cannot [^:]*:) )"""
    r"""(?:(?:row|(?:data: )?element) 0\b|data\[0\](?!\[))|rows\[0\](\.?))"""
)
"""Where the text of an error begins with the row. A refused row was sent alone, so it is the first one
there."""


_ADVICE: Final = re.compile(r"; for (?:a missing value|a missing number|dates)\b[^']*\Z")
"""What a program in Python may write instead."""

Entry: TypeAlias = dict[str, dict[str, Any]]
"""What became of a row: what is written of it, as "scored" or as "refused"."""


def score_frames(
    ask: Callable[[pd.DataFrame], list[dict[str, Any]]],
    frames: Iterator[pd.DataFrame],
    threads: ThreadPoolExecutor,
    most: int,
) -> Iterator[list[Entry]]:
    """Ask over some connections, and tell what became of the rows of each frame, in their order.

    Args:
        ask: Asks for some rows. Raises `InferenceError` if they are refused, and `Stopped`.
        most: How many frames may wait.

    Raises:
        Stopped: No row can be scored any more, or each row of the first frame is refused, as all others will
            be. What was told stays valid.
    """
    for first in islice(frames, 1):  # alone: it may tell of all
        yield (entries := _score_rows(ask, first, is_first=True))
        if not any("scored" in entry for entry in entries):
            raise Stopped(f"all of the first {len(first)} rows are refused")
    while some := list(islice(frames, most)):
        yield from threads.map(partial(_score_rows, ask), some)


def _score_rows(
    ask: Callable[[pd.DataFrame], list[dict[str, Any]]], rows: pd.DataFrame, *, is_first: bool = False
) -> list[Entry]:
    """Score rows; if they are refused, each fourth part of them, until it is known which row is. Halves would
    be asked as often for one such row, and half as often again if many are.

    The log of a model that fails with the first rows, and with some of them alone, does not get a traceback
    for each.
    """
    try:
        return [{"scored": row} for row in ask(rows)]
    except InferenceError as error:
        status = getattr(error, "response_status", None)
        if status in _OF_ALL_ROWS or "answers with a stream" in str(error):
            raise Stopped(str(error)) from error
        if len(rows) == 1:
            return [_refuse(rows, error)]
        if is_first and len(rows) > 8 and status == 500:
            some = rows.sample(8, random_state=0)  # not each n-th, of which all may have what others do not
            _need(
                any("scored" in _score_rows(ask, row)[0] for _, row in some.groupby(level=0)),
                f"the model fails with rows {rows.index[0]} to {rows.index[-1]}, and with 8 of them alone: "
                f"{error}",
                Stopped,
            )
        size = -(-len(rows) // 4)
        parts = (rows.iloc[first : first + size] for first in range(0, len(rows), size))
        return [entry for part in parts for entry in _score_rows(ask, part)]


def _refuse(row: pd.DataFrame, error: InferenceError) -> Entry:
    number, text = int(row.index[0]), getattr(error, "text", None) or _ADVICE.sub("", str(error))
    reason = _PLACE.sub(lambda at: f"{at[1] or ''}row {number}{', ' if at[2] else ''}", text)
    own: dict[Any, Any] = row.drop(columns=["row", "reason"], errors="ignore").iloc[0].to_dict()
    return {"refused": {"row": number, "reason": reason, **own}}


def ask_patiently(
    patience: float,
    gives_up: threading.Event,
    tell: Callable[[str], object],
    ask: Callable[..., Any],
    *arguments: Any,
) -> Any:
    """Ask again where the server is busy or away."""
    until = time.monotonic() + patience
    while True:
        try:
            return ask(*arguments)
        except (ErrorResponse, ConnectionFailed) as error:
            is_passing = getattr(error, "response_status", 503) in (429, 503)
            after = getattr(error, "response_headers", {}).get("retry-after", "").strip()
            # who says a date gets a second, as servers that are busy say seconds
            seconds = min(max(float(after), 0.1), 60.0) if after.isdecimal() else 1.0
            if not is_passing or time.monotonic() >= until:
                raise
            tell(f"{error}: trying again for {patience:g} s\n")
            if gives_up.wait(seconds):
                raise


# What is written


def open_journal(file: Path, out: Path, of: Mapping[str, Any], *, goes_on: bool) -> int:
    """Begin the file that has a line for what became of each row, in their order, or go on with it: how many
    rows it has.

    Args:
        of: What the run is about. Another one cannot go on with it.
    """
    was_cut = file.exists()
    _need(
        not was_cut or goes_on,
        f"{out}: a run was cut before its end: go on with --resume, or remove {file}",
    )
    _need(
        was_cut or not (goes_on and out.exists()),
        f"--resume: {out} is complete: leave --resume out to score all rows anew",
    )
    append(file, [] if was_cut else [of])
    entries = read_journal(file)
    begun = next(entries, None)
    _need(begun == of, f"--resume: {out} was begun with {json.dumps(begun)}: this is {json.dumps(of)}")
    return sum(1 for _ in entries)


def append(file: Path, entries: Sequence[Mapping[str, Any]]) -> None:
    # each begins a line, as the last one may be cut
    lines = [f"\n{json.dumps(entry, ensure_ascii=False, default=str)}" for entry in entries]
    with file.open("ab") as opened:
        opened.write("".join(lines).encode())


def read_journal(file: Path) -> Iterator[Any]:
    with file.open("rb") as opened:
        for line in opened:
            with suppress(ValueError):  # it was cut
                yield json.loads(line)


def write_rows(file: Path, rows: Iterator[dict[str, Any]]) -> None:
    suffix = file.suffix.lower()
    if suffix == ".parquet":
        try:
            pd.DataFrame(rows, dtype=object).to_parquet(file, index=False)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{file} would have a column of several types ({error}): declare the outputs of the model"
            ) from None
    else:
        with file.open("wb") as opened:
            for part in iter(lambda: list(islice(rows, 2**12)), []):
                text = (
                    _to_csv(part, has_names=opened.tell() > 0)
                    if suffix == ".csv"
                    else "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in part)
                )
                opened.write(text.encode())


def _to_csv(rows: list[dict[str, Any]], *, has_names: bool) -> str:
    write = partial(
        pd.DataFrame(rows, dtype=object).to_csv, index=False, header=not has_names, lineterminator="\n"
    )
    text = str(write())
    return str(write(quoting=1)) if "\r" in text else text  # as Python itself does since 3.13


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
    _need(options.out.resolve() != options.rows.resolve(), "--out is the file of the rows")
    _need(min(options.chunk, options.connections) > 0, "--chunk and --connections: expected 1 or more")
    _need(
        {options.rows.suffix.lower(), options.out.suffix.lower()} <= READERS.keys(),
        f"{options.rows}, {options.out}: expected names that end with .csv, .jsonl or .parquet",
    )
    with (
        Client(options.url, headers=dict(options.header)) as client,
        ThreadPoolExecutor(options.connections, "oip_asgi rows") as threads,
    ):
        return _score(options, client, threads)


def _score(options: argparse.Namespace, client: Client, threads: ThreadPoolExecutor) -> int:
    gives_up, why, suffix = threading.Event(), "", options.out.suffix.lower()
    patiently = partial(ask_patiently, options.patience, gives_up, cache(sys.stderr.write))
    metadata = patiently(client.model_metadata, options.model, options.version)
    binary = "binary_tensor_data" in patiently(client.metadata).get("extensions", ())
    labels = {  # another server may mean something else by them
        each["name"]: json.loads(text)
        for each in metadata.get("outputs") or ()
        if (text := str((each.get("parameters") or {}).get("labels"))).startswith('["')
    }
    declared, are_texts = list_inputs(metadata), options.rows.suffix.lower() == ".csv"
    are_asked = {  # of the others, each value is what the model declares
        each["name"]
        for each in declared
        if each["parameters"].get("other_datatypes") == "all"
        or each["parameters"].get("content_type") == "pd_json"
    }.__contains__
    types, total = find_types(
        options.rows,
        options.chunk,
        read_text if are_texts else lambda value: value,
        are_asked if declared else lambda _: True,
    )
    names = options.columns.split(",") if options.columns else list(types)
    _need(types.keys() >= set(names), f"--columns {options.columns}: the file has {_list_names(types)}")
    columns = plan_columns(
        declared or [{"name": name, **_UNKNOWN} for name in names], names, types, are_texts=are_texts
    )
    of = {
        "rows": str(options.rows.resolve()),
        "size": options.rows.stat().st_size,
        "changed": options.rows.stat().st_mtime,
        **{name: getattr(options, name) for name in ("model", "version", "columns")},
    }
    journal = options.out.with_name(f"{options.out.name}.part.jsonl")
    done = begun_at = open_journal(journal, options.out, of, goes_on=options.resume)
    since = told = time.monotonic()
    begins, ends = ("\r", "\x1b[K") if sys.stderr.isatty() else ("", "\n")

    def ask(rows: pd.DataFrame) -> list[dict[str, Any]]:
        sent = make_inputs(columns, rows, are_texts=are_texts)
        scored = client.infer(options.model, sent, version=options.version, binary=binary)
        return read_outputs(scored, rows, labels, suffix)

    frames = (
        left
        for rows in read_rows(options.rows, options.chunk, list(types))
        if len(left := rows[rows.index > begun_at])
    )
    try:
        for entries in score_frames(partial(patiently, ask), frames, threads, 4 * options.connections):
            append(journal, entries)
            done += len(entries)
            if time.monotonic() - told >= (0.2 if begins else 10.0):
                told = time.monotonic()
                each = (told - since) / (done - begun_at)
                sys.stderr.write(
                    f"{begins}{done:,} of {total:,} rows, {1 / each:,.0f} rows per second, "
                    f"{(total - done) * each:,.0f} s left{ends}"
                )
    except (Stopped, ConnectionFailed, KeyboardInterrupt) as stopped:
        why = f"; stopped, as {str(stopped) or 'it was interrupted'}; --resume goes on from here"
    gives_up.set()
    write_rows(options.out, (entry["scored"] for entry in read_journal(journal) if "scored" in entry))
    refused_file = options.out.with_suffix(".refused.csv" if suffix == ".csv" else ".refused.jsonl")
    write_rows(refused_file, (entry["refused"] for entry in read_journal(journal) if "refused" in entry))
    reasons = [entry["refused"]["reason"] for entry in read_journal(journal) if "refused" in entry]
    if not reasons:
        refused_file.unlink()
    if done == total:
        journal.unlink()
    refused = "".join(
        f"; refused: {len(reasons):,}, with the reasons in {refused_file}, such as: {reason}"
        f"{'' if declared else _UNDECLARED}"
        for reason in reasons[:1]
    )
    sys.stderr.write(
        f"{begins and begins + ends}{done - len(reasons):,} of {total:,} rows are scored: "
        f"{options.out}{refused}{why if done < total else ''}\n"
    )
    return int(done - len(reasons) < total)
