"""Score a file of rows with a model, and write the outputs of each row.

python -m oip_asgi.client score http://127.0.0.1:8000/v2 iris rows.csv --out scores.csv

It ends with 0 if each row is scored, with 1 if rows are missing, and with 2 if it cannot begin. What
became of each row is a line of a file beside the output, the journal, until all are scored, so that a run
that was cut goes on from there. Imports what users can import; what the values of a column become, the
model's declaration decides, as for any list that a `Client` sends.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

import numpy as np
import pandas as pd

from .. import ErrorResponse, InferenceError, InferenceResponse, TensorSpec
from . import Client, ConnectionFailed, read_specs

Row: TypeAlias = tuple[int, Mapping[str, Any]]
"""One row of a file: its number, from 1 on, and its values by the names of columns. Those of CSV are texts;
None is missing."""


class CannotGoOn(Exception):
    """No row can be scored any more; the text says why."""


def need(fits: object, otherwise: str, error: type[Exception] = ValueError) -> None:
    if not fits:
        raise error(otherwise)


# Files of rows


def read_rows(file: Path) -> Iterator[Row]:
    """Read a file, row by row.

    Raises:
        ValueError: It cannot be read.
        OSError: It cannot be read.
    """
    number = 0
    try:
        for number, values in enumerate(READERS[file.suffix.lower()](file), 1):
            # NaN alone is not equal to itself
            yield number, {name: None if value != value else value for name, value in values.items()}
    except (ValueError, csv.Error) as error:
        raise ValueError(
            f"{file}{f', after row {number}' if number else ''}: {getattr(error, 'msg', error)}"
        ) from None


def _read_csv(file: Path) -> Iterator[Mapping[str, Any]]:
    # pandas has names for columns that have none, or that of another one; without `index_col`, it would look
    # at the next line too, and fail if that is blank
    names = list(
        map(str, pd.read_csv(file, nrows=0, index_col=False, skip_blank_lines=False, engine="python"))
    )
    with file.open(encoding="utf-8-sig", newline="") as opened:
        # the first line has the names, also if it is blank; another blank line is no row
        for cells in filter(None, islice(csv.reader(opened, strict=True), 1, None)):
            need(
                len(cells) == len(names),
                f"a row has {len(cells)} values, and the file has {len(names)} columns",
            )
            yield dict(zip(names, cells, strict=True))


def _read_json_lines(file: Path) -> Iterator[Mapping[str, Any]]:
    with file.open("rb") as opened:
        for line in filter(bytes.strip, opened):
            row = json.loads(line, parse_float=_read_float)
            need(
                isinstance(row, dict) and "" not in row,
                "expected an object in each line, whose keys are the names of columns",
            )
            yield row


def _read_parquet(file: Path) -> Iterator[Mapping[str, Any]]:
    import pyarrow.parquet

    opened = pyarrow.parquet.ParquetFile(file)
    need(
        len({*opened.schema_arrow.names}) == len(opened.schema_arrow.names),
        "two of its columns have the same name",
    )
    yield from (
        {
            name: cell.isoformat() if hasattr(cell, "isoformat") else cell
            for name, cell in row.items()
            if not name.startswith("__index_level_")  # numbers of rows, which pandas hides too
        }
        for batch in opened.iter_batches(2**10)
        for row in batch.to_pylist()
    )


READERS: Final[Mapping[str, Callable[[Path], Iterator[Mapping[str, Any]]]]] = {
    ".csv": _read_csv,
    ".jsonl": _read_json_lines,
    ".parquet": _read_parquet,
}
"""What reads a file of each suffix."""


def write_rows(file: Path, make_rows: Callable[[], Iterator[dict[str, Any]]]) -> None:
    """Write rows, which `make_rows` gives anew each time."""
    if file.suffix.lower() == ".parquet":
        try:
            pd.DataFrame(make_rows(), dtype=object).to_parquet(file, index=False)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{file} would have a column of several types ({error}): declare the outputs of the model"
            ) from None
    else:
        # lone surrogates are written as JSON escapes them
        with file.open("w", encoding="utf-8", errors="backslashreplace", newline="") as opened:
            if file.suffix.lower() == ".jsonl":
                opened.writelines(f"{json.dumps(row, ensure_ascii=False)}\n" for row in make_rows())
            elif names := list(dict.fromkeys(chain.from_iterable(make_rows()))):
                plain, quoted = (
                    csv.DictWriter(opened, names, lineterminator="\n", quoting=quoting)
                    for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL)
                )
                for row in chain([dict(zip(names, names, strict=True))], make_rows()):
                    # before 3.13, Python does not quote a carriage return by itself
                    (quoted if "\r" in "".join(map(str, row.values())) else plain).writerow(row)


# What a model gets

_BOOLS: Final = {"True": True, "TRUE": True, "true": True, "False": False, "FALSE": False, "false": False}


def read_text(text: str) -> Any:
    """The value of a text of CSV as pandas reads it: what is no number and no boolean is a text, and None if
    it is empty."""
    plain = text.strip().replace("_", "x")  # 1_000 is a number to Python alone
    for read in (int, _BOOLS.__getitem__, _read_float) if plain.isascii() else ():
        with suppress(KeyError, ValueError):
            return read(plain)
    return text or None


def _read_float(text: str) -> float:
    """A number, or an infinity that is written as one. Raises ValueError if no float is that large."""
    if abs(float(text)) == np.inf and "n" not in text.casefold():
        raise ValueError(f"{text[:40]} is out of range for FP64")
    return float(text)


def find_types(file: Path, *, are_texts: bool) -> tuple[dict[str, set[type]], int]:
    """The types of the values of each column, and how many rows there are."""
    types, total = dict[str, set[type]](), 0
    for total, values in read_rows(file):
        for name in {**types, **values}:  # a row of JSON need not have each column
            known = types.setdefault(name, {type(None)} if total > 1 else set())
            known.add(type(read_text(values[name]) if are_texts else values.get(name)))
    return types, total


def _to_float(value: Any) -> Any:
    """A number or a boolean as a float, and None as NaN; a whole number that a float would round stays
    one."""
    is_number = isinstance(value, (int, float, type(None))) and abs(value or 0) < 2**53
    return (np.nan if value is None else float(value)) if is_number else value


def values_decide(spec: TensorSpec) -> bool:
    """Whether the values of a column decide what a model gets of it."""
    return spec.content_type == "pd_json" or (spec.other_datatypes == "all" and spec.datatype != "BYTES")


def find_reading(spec: TensorSpec, types: set[type], *, are_texts: bool) -> Callable[[Any], Any]:
    """Find what becomes of the values of a column: texts of CSV are read as the model declares them, so that
    00123 stays a text where it takes texts. If it takes any datatype, all values of the column decide.

    Args:
        types: Those of the values, if texts are read.
        are_texts: Whether they are texts of CSV.
    """
    kinds = {float if each is int else each for each in types - {type(None)}}
    is_text = (str in kinds or len(kinds) > 1) if values_decide(spec) else spec.datatype == "BYTES"
    if are_texts and is_text:
        return (lambda text: text or None) if spec.may_miss else str
    read: Callable[[Any], Any] = read_text if are_texts else lambda value: value
    # numbers of which some are missing or have a fraction are floats in each request
    has_floats = spec.other_datatypes == "all" and not is_text and kinds <= {float} and types != {int}
    return (lambda value: _to_float(read(value))) if has_floats or spec.other_datatypes == "numbers" else read


[_ANY_DATATYPE] = read_specs(
    {
        "inputs": [
            {"name": "any", "datatype": "FP64", "shape": [-1], "parameters": {"other_datatypes": "all"}}
        ]
    },
    "inputs",
)
"""What a column is taken for that nobody declares."""


def find_form(spec: TensorSpec, types: set[type], *, are_texts: bool) -> Callable[[list[Any]], Any]:
    """Find what a `Client` takes for the values of a column: a Series where nobody declares them and they are
    of several types or missing, so that all requests have one form; an array for texts that are base64
    already."""
    if (
        spec is _ANY_DATATYPE
        and not types <= {int, float, type(None)}
        and (type(None) in types or (len(types) > 1 and not are_texts))
    ):
        return partial(pd.Series, dtype=object)
    return lambda values: (
        np.array(values, dtype=object)
        if spec.content_type == "base64" and {*map(type, values)} == {str}
        else values
    )


def plan_inputs(
    specs: Sequence[TensorSpec],
    scalars: Mapping[str, TensorSpec],
    asked: list[str],
    types: Mapping[str, set[type]],
    total: int,
    *,
    are_texts: bool,
) -> Callable[[Sequence[Row]], dict[str, Any]]:
    """Find what makes the inputs of some rows, as a `Client` takes them.

    Args:
        specs: What the model declares of inputs that have a value for each row.
        scalars: What it declares of those that have one value.
        asked: The columns to send. If there are none, it is those that the model declares and the file has,
            or all of the file for an array, or if the model declares none.
        types: Those of the values of each column of the file.
        total: How many rows it has. If it has none, its columns do not matter.
        are_texts: Whether all values of the file are texts.

    Raises:
        ValueError: The columns are not those that the model takes.
    """
    # a column of lists may be all of the array
    array = (
        specs[0]
        if len(specs) == 1 and len(specs[0].shape) == 2 and list not in types.get(specs[0].name, ())
        else None
    )
    declared = (
        dict.fromkeys(types, array)
        if array
        else {spec.name: spec for spec in specs} or {**dict.fromkeys(types, _ANY_DATATYPE), **scalars}
    )
    # a file without a column may mean the default; but one that has another column may have misspelled it
    names = asked or [name for name in declared if name in types or types.keys() - declared.keys()]
    missing = [name for name in names if name not in types or name not in declared]
    need(
        (names and not missing) or total == 0,
        f"the columns {missing[:10] or '(none)'} cannot be sent: the file has {list(types)[:10]}, and the "
        f"model takes {list(declared)[:10]}: rename them in the file, or name those to send by --columns",
    )
    columns = {
        name: (
            find_reading(declared[name], types[name], are_texts=are_texts),
            find_form(declared[name], types[name], are_texts=are_texts),
        )
        for name in names
        if name not in missing  # of a file without rows
    }
    if array is None:
        return lambda rows: {
            name: form([read(values.get(name)) for _, values in rows])
            for name, (read, form) in columns.items()
        }
    need(
        total == 0 or array.shape[1] in (-1, len(names)),
        f"the input {array.name!r} has {array.shape[1]} columns, and {len(names)} would be sent: name them, "
        "in the order of the training, by --columns",
    )
    return lambda rows: {
        # a column may be sent twice
        array.name: [[columns[name][0](values.get(name)) for name in names] for _, values in rows]
    }


# What is written of its outputs


def read_outputs(response: InferenceResponse, rows: Sequence[Row], suffix: str) -> list[Mapping[str, Any]]:
    """What is written of some rows. In CSV, each element of a row has a column, named by its place.

    Raises:
        CannotGoOn: There is not one row for each, or two columns of one name.
    """
    columns = [("row", [number for number, _ in rows])]
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
        if suffix == ".csv" and array.ndim > 1:
            columns += [
                (f"{name}_{place}", values)
                for place, values in enumerate(array.reshape(len(rows), -1).T.tolist())
            ]
        else:
            columns.append((name, array.tolist()))
    names = [name for name, _ in columns]
    need(
        len({*names}) == len(names),
        f"two columns of the output have the same name, of {names[:100]}",
        CannotGoOn,
    )
    return [
        dict(zip(names, row, strict=True)) for row in zip(*(values for _, values in columns), strict=True)
    ]


# Requests


def score_rows(
    ask: Callable[[Sequence[Row]], list[Mapping[str, Any]]],
    rows: Iterator[Row],
    size: int,
    threads: ThreadPoolExecutor,
    most: int,
    *,
    may_be_none: bool,
) -> Iterator[list[Mapping[str, Any]]]:
    """Ask over some connections, and tell what became of so many rows at a time, in their order: for each,
    what is written of it, as "scored" or as "refused".

    Args:
        ask: Asks for some rows. Raises `InferenceError` if they are refused, and `CannotGoOn`.
        most: How many requests may wait.
        may_be_none: Whether no row was scored yet.

    Raises:
        CannotGoOn: No row can be scored any more, or none was scored yet and each of the first rows is
            refused, as all others will be. What was told stays valid.
    """
    chunks = iter(lambda: list(islice(rows, size)), [])
    for first in islice(chunks, int(may_be_none)):  # alone: it may tell of all
        yield (entries := _score_chunk(ask, first))
        need(
            any("scored" in entry for entry in entries),
            f"all of the first {len(first)} rows are refused",
            CannotGoOn,
        )
    while some := list(islice(chunks, most)):
        yield from threads.map(partial(_score_chunk, ask), some)


def _score_chunk(
    ask: Callable[[Sequence[Row]], list[Mapping[str, Any]]], rows: Sequence[Row]
) -> list[Mapping[str, Any]]:
    """Score rows; if they are refused, each fourth part of them, until it is known which row is. Halves would
    need as many requests for one such row, and half as many again for many."""
    try:
        return [{"scored": row} for row in ask(rows)]
    except InferenceError as error:
        status, text = getattr(error, "response_status", None), str(error)
        # these statuses are answered whatever the rows are
        if status in (401, 403, 404, 405, 407) or _is_passing(error) or "answers with a stream" in text:
            raise CannotGoOn(text) from error
        if len(rows) == 1:
            [(number, values)] = rows
            ours = {"row": number, "reason": getattr(error, "text", "") or text}
            # ours come first, and stay if the file has such columns
            return [{"refused": {**ours, **values, **ours}}]
        size = -(-len(rows) // 4)
        return [
            entry
            for first in range(0, len(rows), size)
            for entry in _score_chunk(ask, rows[first : first + size])
        ]


def _is_passing(error: Exception) -> bool:
    """Whether the server is busy, starts or is away, and may answer otherwise after a while. A proxy says
    with a page that it is away (502); in JSON, that is a model which asks another server, about these
    rows."""
    if isinstance(error, ErrorResponse):
        return error.response_status in (429, 503) or (
            error.response_status == 502 and "json" not in error.response_headers.get("content-type", "")
        )
    return isinstance(error, ConnectionFailed)


def ask_patiently(
    patience: float,
    gives_up: threading.Event,
    tell: Callable[[str], object],
    ask: Callable[..., Any],
    *arguments: Any,
) -> Any:
    """Ask again, each second, where the server is busy or away."""
    until = time.monotonic() + patience
    while True:
        try:
            return ask(*arguments)
        except (ErrorResponse, ConnectionFailed) as error:
            if not _is_passing(error) or time.monotonic() >= until or gives_up.wait(1.0):
                raise
            tell(f"{error}: trying again for {patience:g} s\n")


# The journal

_NO_NUMBERS: Final[Mapping[str, Callable[[str], Any]]] = {
    ".csv": {"NaN": None, "Infinity": "inf", "-Infinity": "-inf"}.get,
    ".jsonl": {"NaN": None, "Infinity": "Infinity", "-Infinity": "-Infinity"}.get,
}
"""What is written of floats that are no numbers, by the suffix: in JSON, what the protocol has. Parquet has
them as they are."""


def begin_journal(journal: BinaryIO, of: Mapping[str, Any]) -> list[bool]:
    """Begin the file that has a line for what became of each row, in their order, or go on with it: whether
    each of its rows was scored.

    Args:
        of: What the run is about. Another one cannot go on with it.
    """
    entries = read_journal(journal)
    begun = next(entries, None)
    need(
        begun in (None, of),
        "--resume: other than in the run that was begun: "
        f"{', '.join(name for name in of if not isinstance(begun, dict) or begun.get(name) != of[name])}. To "
        f"begin anew, remove {journal.name}",
    )
    if begun is None:
        append(journal, [of])
    return ["scored" in entry for entry in entries]


def append(journal: BinaryIO, entries: Sequence[Mapping[str, Any]]) -> None:
    # each begins a line, as the last one may be cut; what is no text is written as JSON escapes it
    journal.writelines(
        f"\n{json.dumps(entry, ensure_ascii=False, default=str)}".encode(errors="backslashreplace")
        for entry in entries
    )
    journal.flush()


def read_journal(journal: BinaryIO, suffix: str = "") -> Iterator[Any]:
    journal.seek(0)
    for line in journal:
        with suppress(ValueError):  # it was cut
            yield json.loads(line, parse_constant=_NO_NUMBERS.get(suffix))


# The command

ENDED: Final = "cannot be scored"
ARGUMENTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "model": {"help": "the model that scores"},
    "rows": {"type": Path, "help": "a .csv, .jsonl or .parquet file"},
    "--out": {"type": Path, "required": True, "help": "the file for the outputs; its suffix says the format"},
    "--resume": {"action": "store_true", "help": "go on where a run was cut, if one was"},
    "--columns": {
        "type": lambda text: text.split(","),
        "default": [],
        "help": "the columns to send, such as a,b,c; else those that the model declares, or all for an array",
    },
    "--chunk": {"type": int, "default": 256, "help": "rows of each request; %(default)s"},
    "--connections": {"type": int, "default": 4, "help": "requests at the same time; %(default)s"},
    "--patience": {
        "type": float,
        "default": 60.0,
        "help": "seconds to try again where the server is busy (503) or away (502); %(default)s",
    },
}


def make_plan(
    options: argparse.Namespace, client: Client, patiently: Callable[..., Any]
) -> tuple[Callable[[Sequence[Row]], list[Mapping[str, Any]]], int]:
    """What scores some rows, and how many rows the file has."""
    binary = "binary_tensor_data" in patiently(client.metadata).get("extensions", ())
    declared = read_specs(patiently(client.model_metadata, options.model, options.version), "inputs")
    are_texts = options.rows.suffix.lower() == ".csv"
    specs = [spec for spec in declared if spec.shape[:1] == (-1,)]
    scalars = {spec.name: spec for spec in declared if spec.shape in ((), (1,))}
    need(
        specs or len(scalars) == len(declared),
        f"the model has no input with a value for each row, but {[spec.name for spec in declared][:10]}",
    )
    # all texts are read once more if those of any column decide what becomes of it
    types, total = find_types(
        options.rows,
        are_texts=are_texts and any(map(values_decide, specs or [_ANY_DATATYPE])),
    )
    sent = scalars.keys() & (options.columns or types)
    need(
        not specs or not sent,
        f"{sorted(sent)[:10]}: the model takes one value for a request, not one for each row: name "
        "the other columns by --columns",
    )
    make_inputs = plan_inputs(specs, scalars, options.columns, types, total, are_texts=are_texts)
    ask = partial(
        patiently,
        lambda rows: read_outputs(
            client.infer(options.model, make_inputs(rows), version=options.version, binary=binary),
            rows,
            options.out.suffix.lower(),
        ),
    )
    # a request has one value of a scalar
    return (lambda rows: [scored for row in rows for scored in ask([row])]) if sent else ask, total


def run(options: argparse.Namespace) -> int:
    out, rows, suffix = options.out, options.rows, options.out.suffix.lower()
    need(min(options.chunk, options.connections) > 0, "--chunk and --connections: expected 1 or more")
    need(
        {rows.suffix.lower(), suffix} <= READERS.keys(),
        f"{rows}, {out}: expected names that end with .csv, .jsonl or .parquet",
    )
    file = out.with_name(f"{out.name}.part.jsonl")
    refused_file = out.with_suffix(".refused.csv" if suffix == ".csv" else ".refused.jsonl")
    need(
        rows.resolve() not in (each.resolve() for each in (out, file, refused_file)),
        f"{rows} is a file that this run writes: choose another --out",
    )
    need(
        options.resume or not file.exists(),
        f"{out}: a run has begun it: wait for its end; if it was cut, go on with --resume, or remove {file}",
    )
    gives_up, why, reasons = threading.Event(), "", ""
    patiently = partial(ask_patiently, options.patience, gives_up, cache(sys.stderr.write))
    begins, ends = ("\r", "\x1b[K") if sys.stderr.isatty() else ("", "\n")
    with (
        Client(options.url, headers=dict(options.header)) as client,
        ThreadPoolExecutor(options.connections, "oip_asgi rows") as threads,
    ):
        ask, total = make_plan(options, client, patiently)
        with file.open("a+b" if options.resume else "x+b") as journal:
            kept = begin_journal(
                journal,
                {
                    "the file": str(rows.resolve()),
                    "its size": rows.stat().st_size,
                    "its time": rows.stat().st_mtime,
                    "the model": options.model,
                    "--version": options.version,
                    "--columns": options.columns,
                },
            )
            done = begun_at = len(kept)
            since = told = time.monotonic()
            try:
                for entries in score_rows(
                    ask,
                    islice(read_rows(rows), begun_at, None),
                    options.chunk,
                    threads,
                    4 * options.connections,
                    may_be_none=not any(kept),
                ):
                    append(journal, entries)
                    done += len(entries)
                    if time.monotonic() - told >= (0.2 if begins else 10.0):
                        told = time.monotonic()
                        rate = (done - begun_at) / (told - since)
                        sys.stderr.write(
                            f"{begins}{done:,} of {total:,} rows, {rate:,.0f} rows per second, "
                            f"{(total - done) / rate:,.0f} s left{ends}"
                        )
            except (CannotGoOn, ConnectionFailed, KeyboardInterrupt) as stopped:
                why = f"; stopped, as {str(stopped) or 'it was interrupted'}"
            finally:  # also if the disk is full: threads that wait for the server end then
                gives_up.set()
            refused = [
                entry["refused"] for entry in read_journal(journal, refused_file.suffix) if "refused" in entry
            ]
            if is_written := len(refused) < done or total == 0:  # else what an earlier run wrote stays
                write_rows(
                    out,
                    lambda: (entry["scored"] for entry in read_journal(journal, suffix) if "scored" in entry),
                )
                refused_file.unlink(missing_ok=True)
    if refused:
        write_rows(refused_file, lambda: iter(refused))
        reasons = (
            f"; refused: {len(refused):,}, with the reasons in {refused_file}, such as: "
            f"{refused[0]['reason']}"
        )
    if done == total or not is_written:  # where nothing is scored, the next run begins anew
        file.unlink(missing_ok=True)
    sys.stderr.write(
        f"{begins and begins + ends}{done - len(refused):,} of {total:,} rows are scored"
        f"{f': {out}' if is_written else ''}{reasons}{why if done < total else ''}"
        f"{'; --resume goes on from here' if is_written and done < total else ''}\n"
    )
    return int(done - len(refused) < total)
