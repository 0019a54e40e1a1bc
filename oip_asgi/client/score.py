"""Score a file of rows with a model, and write the outputs of each row.

python -m oip_asgi.client score http://127.0.0.1:8000/v2 iris rows.csv --out scores.csv

It ends with 0 if each row is scored, with 1 if rows are missing, and with 2 if nothing can be scored.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from .._protocol.errors import ErrorResponse, InferenceError, InvalidResponse
from .._protocol.specs import LABELS
from ._arguments import describe, make_parser, read_headers
from ._clients import Client
from ._columns import Column, Refused, Row, Stopped, find_kinds, make_tensors, plan_columns, read_outputs
from ._senders import ConnectionFailed
from ._tables import Columns, Table, Writer, format_of, open_table

_CHUNK: Final = 256
"""Rows of a request: enough that the request itself costs little, and few enough that one refused row is found soon."""
_CONNECTIONS: Final = 4
_UNDECLARED: Final = """\
The model declares no inputs, so each column was sent as an input of its own. If it takes all of them as one array, declare that: \
inputs=[TensorSpec("X", "FP64", [-1, 4])], or "inputs" in model-settings.json"""
_UNDECLARED_FRAME: Final = """\
The model takes a data frame, and declares nothing of its columns, so each was sent as pandas reads it. If it takes others, declare them: \
inputs=specs_of(X_train)"""
_PLACE: Final = re.compile(r"""((?:input|column) (?:'[^']*'|"[^"]*")(?:,| cannot [^:]*:) )row 0\b|rows\[0\](\.?)""")
"""Where the text of an error begins with the row. A refused row was sent alone, so it is the first one there."""
_PATIENCE: Final = 60.0
_LINE_EVERY: Final = 10.0
_BAR_EVERY: Final = 0.2
_WIDTH: Final = 30


Ask = Callable[[list[Row]], Any]
"""Asks for some rows. Raises `ErrorResponse`, `ConnectionFailed`, or `Refused` if one of them cannot be sent."""

_OF_ANY_ROW: Final = (401, 403, 404, 405, 407)
"""What is answered whatever the rows are."""

_BUSY: Final = (429, 503)

_FAILED: Final = 500
"""The fault is the model's, and its log gets a traceback for each request."""

_SAMPLE: Final = 8
"""Rows that are asked for alone: if a model fails with every second row only, it fails with these in one file of 256."""


class FailsWithAll(Stopped):
    """The model fails with all rows, as far as it was asked."""


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
            FailsWithAll: The model fails with the first chunk, and with some rows of it alone.
        """
        for number, part in enumerate(self._score_chunks(rows, done)):
            yield part
            if number == 0 and len(part.refused) == part.size:
                raise Stopped(f"all of the first {part.size} rows are refused")

    def _score_chunks(self, rows: Iterator[Row], done: int) -> Iterator[Part]:
        with ThreadPoolExecutor(self._connections, "oip_asgi rows") as threads:
            running: deque[Future[Part]] = deque()
            try:
                first, most = done + 1, 1  # the first chunk alone: it may tell of all
                while chunk := list(islice(rows, self._chunk)):
                    running.append(threads.submit(self._score_chunk, first, chunk, is_first=first == done + 1))
                    first += len(chunk)
                    if len(running) >= most:
                        yield running.popleft().result()
                        most = 2 * self._connections
                while running:
                    yield running.popleft().result()
            finally:
                self._give_up.set()
                for each in running:
                    each.cancel()

    def _score_chunk(self, first: int, rows: list[Row], *, is_first: bool) -> Part:
        part = Part(first, len(rows), [], [])
        self._score_rows(first, rows, part, is_first=is_first)
        return part

    def _score_rows(self, first: int, rows: list[Row], part: Part, *, is_first: bool = False) -> None:
        """Score rows; if they are refused, each half of them, until it is known which row is."""
        try:
            part.answers.append((first, len(rows), self._ask_patiently(rows)))
        except (Refused, InferenceError) as error:
            if isinstance(error, InvalidResponse) and not isinstance(error, ErrorResponse):
                raise Stopped(str(error)) from error
            if len(rows) == 1:
                part.refused.append((first, error.text if isinstance(error, ErrorResponse) else str(error), rows[0]))
                return
            if is_first and _is_failure(error) and len(rows) > _SAMPLE and self._fails_with_sample(rows):
                some = f"rows {first} to {first + len(rows) - 1}, and with {_SAMPLE} of them alone"
                raise FailsWithAll(f"the model fails with {some}: {error}") from error
            half = len(rows) // 2
            self._score_rows(first, rows[:half], part)
            self._score_rows(first + half, rows[half:], part)

    def _fails_with_sample(self, rows: list[Row]) -> bool:
        for row in random.Random(0).sample(rows, _SAMPLE):  # a fixed step would meet what each second row has
            try:
                self._ask_patiently([row])
                return False
            except (Refused, InferenceError) as error:
                if not _is_failure(error):
                    return False
        return True

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
                # who says a date gets a second, as servers that are busy say seconds
                after, why = error.response_headers.get("retry-after", "").strip(), str(error)
                seconds = min(max(float(after), 0.1), 60.0) if after.isdecimal() else 1.0
            except ConnectionFailed as error:
                seconds, why = 1.0, str(error)
            if waited >= self._patience or self._give_up.wait(seconds):
                raise Stopped(why)
            waited += seconds


def _is_failure(error: Exception) -> bool:
    return isinstance(error, ErrorResponse) and error.response_status == _FAILED


class Progress:
    """Tells how far it is: on a terminal as a bar, elsewhere by a line each 10 s."""

    def __init__(self, total: int, done: int, write: Callable[[str], object], *, is_terminal: bool) -> None:
        self._total, self._begun_at, self._since = total, done, time.monotonic()
        self._write, self._is_terminal, self._told = write, is_terminal, time.monotonic()

    def tell(self, done: int, *, at_end: bool = False) -> None:
        now = time.monotonic()
        if now - self._told < (_BAR_EVERY if self._is_terminal else _LINE_EVERY) and not (at_end and self._is_terminal):
            return
        self._told = now
        text = self._describe(done, now - self._since)
        full = _WIDTH * done // max(self._total, 1)
        self._write(f"\r[{'#' * full:{_WIDTH}}] {text}\x1b[K" + ("\n" if at_end else "") if self._is_terminal else f"{text}\n")

    def _describe(self, done: int, seconds: float) -> str:
        speed = (done - self._begun_at) / seconds if seconds else 0.0
        left = f", {(self._total - done) / speed:,.0f} s left" if speed else ""
        return f"{done:,} of {self._total:,} rows, {speed:,.0f} rows per second{left}"


def _read_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = make_parser("python -m oip_asgi.client score", __doc__)
    parser.add_argument("model", help="the model that scores")
    parser.add_argument("rows", type=Path, help="a .csv, .jsonl or .parquet file")
    parser.add_argument("--out", type=Path, required=True, help="the file for the outputs; its suffix says the format")
    parser.add_argument("--resume", action="store_true", help="go on where a run was cut")
    parser.add_argument("--columns", help="the columns to send, such as a,b,c, if the model does not say their names; else all")
    parser.add_argument("--chunk", type=_positive, default=_CHUNK, help=f"rows of each request; {_CHUNK}")
    parser.add_argument("--connections", type=_positive, default=_CONNECTIONS, help=f"requests at the same time; {_CONNECTIONS}")
    help_of_patience = f"seconds to try again where the server is busy (503) or away; {_PATIENCE:.0f}. Then --resume goes on"
    parser.add_argument("--patience", type=float, default=_PATIENCE, help=help_of_patience)
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


_positive.__name__ = "number"  # argparse names it


def main(arguments: list[str] | None = None) -> int:
    options = _read_arguments(arguments)
    try:
        if options.out.resolve() == options.rows.resolve():
            raise ValueError("--out is the file of the rows")
        format_of(options.out)
        return _score(options, sys.stderr.isatty())
    except (InferenceError, OSError, ValueError) as error:
        print(f"cannot be scored: {describe(error)}", file=sys.stderr)  # noqa: T201
        return 2


def _score(options: argparse.Namespace, is_terminal: bool) -> int:
    job = _Rows(options, open_table(options.rows))
    give_up, of = threading.Event(), {"rows": str(options.rows.resolve()), "size": options.rows.stat().st_size, "model": options.model}
    writer = Writer(options.out, of, goes_on=options.resume)
    progress = Progress(job.total, writer.done, sys.stderr.write, is_terminal=is_terminal)
    scorer = Scorer(job.ask, options.connections, options.chunk, options.patience, give_up)
    why = ""
    try:
        rows = islice(job.table.rows(), writer.done, None)
        for part in scorer.score(rows, writer.done):
            job.write(writer, part)
            writer.note(part.first + part.size - 1)
            progress.tell(writer.done)
    except FailsWithAll as failure:
        why = f"{failure}{job.advice}"
    except Stopped as stopped:
        why = str(stopped)
    except KeyboardInterrupt:
        why = "it was interrupted"
    finally:
        job.client.close()
        progress.tell(writer.done, at_end=True)
        is_complete = writer.done == job.total
        writer.close(is_complete=is_complete)
    return _conclude(writer, job.total, why, job.advice, is_complete=is_complete)


def _conclude(writer: Writer, total: int, why: str, advice: str, *, is_complete: bool) -> int:
    scored = writer.done - writer.refused
    text = f"{scored:,} of {total:,} rows are scored: {writer.file}"
    if writer.refused:
        text += f"; {writer.refused:,} are refused, each with its reason in {writer.refused_file}"
    if writer.first_reason:
        text += f" (the first: {writer.first_reason}{advice})"
    if not is_complete:
        text += f"; stopped, as {why}; --resume goes on from here"
    print(text, file=sys.stderr)  # noqa: T201
    return int(scored < total)


class _Rows:
    """A file of rows, whose columns are the model's inputs."""

    def __init__(self, options: argparse.Namespace, table: Table) -> None:
        self.table, self._model, self._version = table, options.model, options.version
        self.client = Client(options.url, headers=read_headers(options))
        self._binary = "binary_tensor_data" in self.client.metadata().get("extensions", ())
        metadata = self.client.model_metadata(options.model, options.version)
        kinds, self.total = find_kinds(table.names, table.rows(), is_text=table.is_text)
        takes_frame = (metadata.get("parameters") or {}).get("content_type") == "pd"
        inputs = metadata.get("inputs") or ()
        if takes_frame and all(each["shape"] in ([], [1]) for each in inputs):  # scalars beside a frame are the same for all rows
            inputs = ()
        self._labels = dict(_find_labels(metadata.get("outputs") or ()))
        self.advice = "" if inputs else f". {_UNDECLARED_FRAME if takes_frame else _UNDECLARED}"
        chosen = options.columns.split(",") if options.columns else None
        self._columns: list[Column] = plan_columns(table.names, inputs, chosen, kinds, is_text=table.is_text)

    def ask(self, rows: list[Row]) -> dict[str, Any]:
        wrong = next((row for row in rows if len(row) != len(self.table.names)), None)
        if wrong is not None:
            raise Refused(f"it has {len(wrong)} values, and the file has {len(self.table.names)} columns")
        tensors = make_tensors(self._columns, rows, is_text=self.table.is_text)
        response = self.client.infer(self._model, tensors, version=self._version, binary=self._binary)
        return read_outputs(response, len(rows))

    def write(self, writer: Writer, part: Part) -> None:
        for first, count, outputs in part.answers:
            writer.write(Columns([*range(first, first + count)], outputs, self._labels))
        for number, reason, row in part.refused:
            writer.write_refused(number, _name_row(reason, number), dict(zip(self.table.names, row, strict=False)))


def _find_labels(outputs: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, list[str]]]:
    for output in outputs:
        with suppress(LookupError, TypeError, ValueError):  # another server may mean something else by "labels"
            yield output["name"], list(map(str, json.loads(output.get("parameters", {})[LABELS])))


def _name_row(reason: str, number: int) -> str:
    """A reason with the number that the row has in the file."""
    place = _PLACE.match(reason)
    return reason if place is None else f"{place[1] or ''}row {number}{', ' if place[2] else ''}{reason[place.end() :]}"


if __name__ == "__main__":
    sys.exit(main())
