"""What is known of one request at its end: statistics, Prometheus, spans and the log read this record, and count nothing else."""

from __future__ import annotations

from typing import Final, Literal, Protocol, TypeAlias

import msgspec

Outcome: TypeAlias = Literal["ok", "invalid", "busy", "timeout", "cancelled", "failed"]
"""How a request ended: answered; refused for what it says (4xx); refused before it had a slot (503); after its timeout; its client gone;
by an error of the model or the server."""

OUTCOMES: Final[tuple[Outcome, ...]] = ("ok", "invalid", "busy", "timeout", "cancelled", "failed")


class Moments(Protocol):
    """When a request reached each stage, in seconds of one clock; 0.0 for a stage that it did not reach."""

    since: float
    """Its body was there."""
    entered: float
    """It was decoded, if that is done at once, and began to wait for a slot."""
    started: float
    """It had its slot, and its arguments were begun."""
    called: float
    """The function was called."""
    returned: float
    """The function had returned."""
    lookup: float | None
    """How many seconds it was looked up in the model's cache, or waited there for an equal request; None if it was not."""

    @property
    def is_hit(self) -> bool:
        """Whether its response was found there."""

    @property
    def id(self) -> str | None:
        """Its identifier, None if it has none or is not decoded."""

    @property
    def rows(self) -> int | None:
        """How many rows it has of a batch; None for a call of its own."""


class Record(msgspec.Struct, frozen=True):
    """One request at its end.

    Args:
        outcome: How it ended.
        ended: When, by the clock of its moments.
        seconds: How long it took; None if it was refused.
        queue: How long it waited for a slot; this and the rest are None if the function was not called.
        compute_input: How long its decoding and arguments took.
        compute_infer: How long the function took; None if it did not return.
        compute_output: How long its response took to make; None if it was not answered.
        rows: How many rows it has of a batch; None for a call of its own.
        lookup: As in `Moments`.
        is_hit: Whether the cache answered it. Then the function was not called.
        inferred: How many rows were inferred for its answer.
    """

    outcome: Outcome
    ended: float
    seconds: float | None = None
    queue: float | None = None
    compute_input: float = 0.0
    compute_infer: float | None = None
    compute_output: float | None = None
    rows: int | None = None
    lookup: float | None = None
    is_hit: bool = False
    inferred: int = 0


def record_of(outcome: Outcome, request: Moments | None, ended: float) -> Record:
    """The record of a request; of one that was refused before its body was there if there is no request."""
    if request is None:
        return Record(outcome, ended)
    called, returned, lookup = request.called, request.returned, request.lookup
    if not request.entered:
        is_hit = request.is_hit and outcome == "ok"
        return Record(outcome, ended, ended - request.since if is_hit else None, lookup=lookup, is_hit=is_hit)
    seconds = ended - request.since
    if not called:
        return Record(outcome, ended, None if outcome == "invalid" else seconds, lookup=lookup)
    queue = request.started - request.entered
    compute_input = request.entered - request.since + called - request.started
    compute_infer, compute_output, rows, inferred = returned - called if returned else None, None, request.rows, 0
    if outcome == "ok":
        compute_output, inferred = ended - returned, 1 if rows is None else rows
    return Record(outcome, ended, seconds, queue, compute_input, compute_infer, compute_output, rows, lookup, inferred=inferred)
