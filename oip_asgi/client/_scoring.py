"""All rows asked for in chunks over some connections: what is tried again, what is halved to find a refused row, and what stops it.

Knows no columns, no tensors and no files: its caller gives it what asks for some rows.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, Final, NamedTuple

from .._protocol.errors import ErrorResponse, InferenceError, InvalidResponse
from ._columns import Refused, Row, Stopped
from ._senders import ConnectionFailed

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
