"""Durations that are summed up, and those of the responses of streams by their index. Knows no requests. Times are in seconds."""

from __future__ import annotations

from operator import itemgetter
from typing import Final, Literal, TypeAlias, final, get_args

import msgspec

RESPONSES: Final = 1000
"""How many responses of a stream are counted by their index. What comes behind them is counted under the last one."""

ResponseOutcome: TypeAlias = Literal["success", "fail", "empty_response", "cancel"]


class Duration(msgspec.Struct, frozen=True):
    """How many there were, and how long they took together, in seconds."""

    count: int = 0
    seconds: float = 0.0

    def plus(self, seconds: float, count: int = 1) -> Duration:
        """One more, or several that took so long together."""
        return Duration(self.count + count, self.seconds + seconds)


Responses: TypeAlias = dict[str, Duration]
"""The responses of streams at one index: those that ended in each way, by `ResponseOutcome`, and "compute_infer" and "compute_output"."""


@final
class _Sums:
    """How many responses ended in one way at one index, and how long they took: added to in place, as there may be many a second."""

    __slots__ = ("count", "infer", "output")

    def __init__(self) -> None:
        self.count = 0
        self.infer = self.output = 0.0


@final
class ResponseCounts:
    """The responses of all streams of a model. It has no lock of its own: its caller holds one around each call."""

    __slots__ = ("_sums",)

    def __init__(self) -> None:
        self._sums: dict[ResponseOutcome, dict[int, _Sums]] = {outcome: {} for outcome in get_args(ResponseOutcome)}

    def record(self, index: int, outcome: ResponseOutcome, compute_infer: float, compute_output: float) -> None:
        """Count one response. The arguments are those of `Statistics.record_response`."""
        of_outcome = self._sums[outcome]
        if index >= RESPONSES:
            index = RESPONSES - 1
        sums = of_outcome.get(index)
        if sums is None:
            sums = of_outcome[index] = _Sums()
        sums.count += 1
        sums.infer += compute_infer
        sums.output += compute_output

    def by_index(self) -> dict[int, Responses]:
        """Those at each index, the first index first."""
        found: dict[int, Responses] = {}
        every = [(index, outcome, sums) for outcome, of_outcome in self._sums.items() for index, sums in of_outcome.items()]
        for index, outcome, sums in sorted(every, key=itemgetter(0)):
            responses = found.setdefault(index, {})
            responses[outcome] = Duration(sums.count, sums.infer + sums.output)
            if outcome != "cancel":
                responses["compute_infer"] = responses.get("compute_infer", Duration()).plus(sums.infer, sums.count)
            if outcome in ("success", "fail"):
                responses["compute_output"] = responses.get("compute_output", Duration()).plus(sums.output, sums.count)
        return found
