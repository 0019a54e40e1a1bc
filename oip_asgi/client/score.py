"""Score a file of rows with a model, and write the outputs of each row.

python -m oip_asgi.client score http://127.0.0.1:8000/v2 iris rows.csv --out scores.csv

It ends with 0 if each row is scored, with 1 if rows are missing, and with 2 if nothing can be scored. What
became of each row is a line of a file beside the output, the journal, until all are scored, so that a run
that was cut goes on from there.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

from .. import ErrorResponse, InferenceError, InvalidResponse
from . import Client, ConnectionFailed, read_specs
from .row_files import (
    READERS,
    CannotGoOn,
    Row,
    find_types,
    list_names,
    make_inputs,
    name_beside,
    need,
    plan_columns,
    read_outputs,
    read_rows,
    write_rows,
)

# Requests

_OF_ALL_ROWS: Final = (401, 403, 404, 405, 407)
"""What a server answers whatever the rows are."""

_PLACE: Final = re.compile(
    r"""\A(?:((?:input|column|tensor) (?:'[^']*'|"[^"]*")(?:,|:| cannot [^:]*:) )"""
    r"""(?:(?:row|(?:data: )?element) 0\b|data\[0\](?!\[))|rows\[0\](\.?))"""
)
"""Where the text of an error begins with the row. A refused row was sent alone, so it is the first one
there."""

Ask: TypeAlias = Callable[[Sequence[Row]], list[dict[str, Any]]]
"""Scores some rows: what is written of each."""

Entry: TypeAlias = dict[str, dict[str, Any]]
"""What became of a row: what is written of it, as "scored" or as "refused"."""


def score_rows(
    ask: Ask, rows: Iterator[Row], size: int, threads: ThreadPoolExecutor, most: int, *, may_be_none: bool
) -> Iterator[list[Entry]]:
    """Ask over some connections, and tell what became of so many rows at a time, in their order.

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
        yield (entries := _score_chunk(ask, first, is_first=True))
        need(
            any("scored" in entry for entry in entries),
            f"all of the first {len(first)} rows are refused",
            CannotGoOn,
        )
    while some := list(islice(chunks, most)):
        yield from threads.map(partial(_score_chunk, ask), some)


def _score_chunk(ask: Ask, rows: Sequence[Row], *, is_first: bool = False) -> list[Entry]:
    """Score rows; if they are refused, each fourth part of them, until it is known which row is. Halves would
    need as many requests for one such row, and half as many again for many.

    The log of a model that fails with the first rows, and with some of them alone, does not get a traceback
    for each.
    """
    try:
        return [{"scored": row} for row in ask(rows)]
    except InferenceError as error:
        status = getattr(error, "response_status", None)
        if status in _OF_ALL_ROWS or _is_passing(error) or "answers with a stream" in str(error):
            raise CannotGoOn(str(error)) from error
        if len(rows) == 1:
            return [_refuse(rows[0], error)]
        if is_first and len(rows) > 8 and status == 500:
            some = random.Random(0).sample(rows, 8)  # of each n-th, all may have what others do not
            need(
                any("scored" in _score_chunk(ask, [row])[0] for row in some),
                f"the model fails with rows {rows[0].number} to {rows[-1].number}, and with 8 of them alone: "
                f"{error}",
                CannotGoOn,
            )
        size = -(-len(rows) // 4)
        parts = (rows[first : first + size] for first in range(0, len(rows), size))
        return [entry for part in parts for entry in _score_chunk(ask, part)]


def _refuse(row: Row, error: InferenceError) -> Entry:
    text = getattr(error, "text", None) or str(error)
    refused = {
        "row": row.number,
        "reason": _PLACE.sub(lambda at: f"{at[1] or ''}row {row.number}{', ' if at[2] else ''}", text),
    }
    for name, value in row.values.items():
        refused[name_beside(refused, name)] = value
    return {"refused": refused}


def _is_passing(error: Exception) -> bool:
    """Whether the server is busy, starts or is away, and may answer otherwise after a while. A proxy says
    with a page that it is away (502); in JSON, that is a model which asks another server, about these
    rows."""
    if not isinstance(error, ErrorResponse):
        return isinstance(error, ConnectionFailed)
    is_page = "json" not in error.response_headers.get("content-type", "")
    return error.response_status in (429, 503) or (error.response_status == 502 and is_page)


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
            after = getattr(error, "response_headers", {}).get("retry-after", "").strip()
            # who says a date gets a second, as servers that are busy say seconds
            seconds = min(max(float(after), 0.1), 60.0) if after.isdecimal() else 1.0
            if not _is_passing(error) or time.monotonic() >= until:
                raise
            tell(f"{error}: trying again for {patience:g} s\n")
            if gives_up.wait(seconds):
                raise


# The journal


def begin_journal(journal: BinaryIO, out: Path, of: Mapping[str, Any], *, goes_on: bool) -> list[bool]:
    """Begin the file that has a line for what became of each row, in their order, or go on with it: whether
    each of its rows was scored. Until it is closed, no other run gets it, where files can be locked.

    Args:
        of: What the run is about. Another one cannot go on with it.
    """
    if sys.platform != "win32":
        import fcntl

        try:
            fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"another run writes {out}: wait for its end, or choose another --out") from None
        except OSError:
            pass  # a file system without locks
    entries = read_journal(journal)
    begun = next(entries, None)
    need(
        begun is None or goes_on,
        f"{out}: a run was cut before its end: go on with --resume, or remove {journal.name}",
    )
    need(
        begun in (None, of),
        f"--resume: {out} was begun with {json.dumps(begun)}: this is {json.dumps(of)}",
    )
    if begun is None:
        append(journal, [of])
    return ["scored" in entry for entry in entries]


def append(journal: BinaryIO, entries: Sequence[Mapping[str, Any]]) -> None:
    # each begins a line, as the last one may be cut
    lines = [f"\n{json.dumps(entry, ensure_ascii=False, default=str)}" for entry in entries]
    journal.write("".join(lines).encode(errors="backslashreplace"))  # of what is no text, as JSON escapes it
    journal.flush()


def read_journal(journal: BinaryIO) -> Iterator[Any]:
    journal.seek(0)
    for line in journal:
        with suppress(ValueError):  # it was cut
            yield json.loads(line)


def find_entries(journal: BinaryIO, kind: str) -> Iterator[dict[str, Any]]:
    """What is written of the rows that were "scored", or "refused"."""
    return (entry[kind] for entry in read_journal(journal) if kind in entry)


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
        "help": "seconds to try again where the server is busy (503) or away (502); %(default)s",
    },
}
_UNDECLARED: Final = """\
. The model declares nothing of its columns, so its values decided what was sent. If it takes others, or all \
of them as one array, declare that: inputs=specs_of(X_train), or inputs=[TensorSpec("X", "FP64", [-1, 4])]"""


def make_plan(
    options: argparse.Namespace, client: Client, patiently: Callable[..., Any]
) -> tuple[Ask, list[str], int, str]:
    """What scores some rows; the columns of the file, and how many rows it has; and what is said if a row is
    refused."""
    metadata = patiently(client.model_metadata, options.model, options.version)
    binary = "binary_tensor_data" in patiently(client.metadata).get("extensions", ())
    labels = dict[str, Sequence[str]]()
    with suppress(InvalidResponse):  # outputs that are not as the protocol has them have no labels
        labels = {spec.name: spec.labels or () for spec in read_specs(metadata, "outputs")}
    # the scalars beside a data frame are the same for all rows
    scalars = ((), (1,)) if (metadata.get("parameters") or {}).get("content_type") == "pd" else ()
    specs = [spec for spec in read_specs(metadata, "inputs") if spec.shape not in scalars]
    are_texts = options.rows.suffix.lower() == ".csv"
    types, total = find_types(options.rows, specs, are_texts=are_texts)
    names = options.columns.split(",") if options.columns else list(types)
    need(types.keys() >= set(names), f"--columns {options.columns}: the file has {list_names(types)}")
    columns = plan_columns(specs, names, types, are_texts=are_texts)

    def ask(rows: Sequence[Row]) -> list[dict[str, Any]]:
        sent = make_inputs(columns, rows, are_texts=are_texts)
        scored = client.infer(options.model, sent, version=options.version, binary=binary)
        return read_outputs(scored, rows, labels, options.out.suffix.lower())

    return partial(patiently, ask), list(types), total, "" if specs else _UNDECLARED


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
        file.exists() or not (options.resume and out.exists()),
        f"--resume: {out} is complete: leave --resume out to score all rows anew",
    )
    of = {
        "rows": str(rows.resolve()),
        "size": rows.stat().st_size,
        "changed": rows.stat().st_mtime,
        **{name: getattr(options, name) for name in ("model", "version", "columns")},
    }
    gives_up, why = threading.Event(), ""
    patiently = partial(ask_patiently, options.patience, gives_up, cache(sys.stderr.write))
    begins, ends = ("\r", "\x1b[K") if sys.stderr.isatty() else ("", "\n")
    with (
        Client(options.url, headers=dict(options.header)) as client,
        ThreadPoolExecutor(options.connections, "oip_asgi rows") as threads,
    ):
        ask, names, total, hint = make_plan(options, client, patiently)
        with file.open("a+b") as journal:
            kept = begin_journal(journal, out, of, goes_on=options.resume)
            done = begun_at = len(kept)
            left = (row for row in read_rows(rows, names) if row.number > begun_at)
            since = told = time.monotonic()
            scoring = score_rows(
                ask, left, options.chunk, threads, 4 * options.connections, may_be_none=not any(kept)
            )
            try:
                for entries in scoring:
                    append(journal, entries)
                    done += len(entries)
                    if time.monotonic() - told >= (0.2 if begins else 10.0):
                        told = time.monotonic()
                        each = (told - since) / (done - begun_at)
                        sys.stderr.write(
                            f"{begins}{done:,} of {total:,} rows, {1 / each:,.0f} rows per second, "
                            f"{(total - done) * each:,.0f} s left{ends}"
                        )
            except (CannotGoOn, ConnectionFailed, KeyboardInterrupt) as stopped:
                why = f"; stopped, as {str(stopped) or 'it was interrupted'}; --resume goes on from here"
            finally:  # also if the disk is full: threads that wait for the server end then
                gives_up.set()
            refused = list(find_entries(journal, "refused"))
            is_written = len(refused) < done or total == 0  # else what an earlier run wrote stays
            if is_written:
                write_rows(out, lambda: find_entries(journal, "scored"))
                refused_file.unlink(missing_ok=True)
    reasons = ""
    if refused:
        write_rows(refused_file, lambda: iter(refused))
        reasons = (
            f"; refused: {len(refused):,}, with the reasons in {refused_file}, such as: "
            f"{refused[0]['reason']}{hint}"
        )
    if done == total:
        file.unlink(missing_ok=True)
    sys.stderr.write(
        f"{begins and begins + ends}{done - len(refused):,} of {total:,} rows are scored"
        f"{f': {out}' if is_written else ''}{reasons}{why if done < total else ''}\n"
    )
    return int(done - len(refused) < total)
