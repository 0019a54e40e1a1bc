"""The table of what was measured: each way beside the bare stream of its transport, round by round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from ..report import table
from .ways import BARE, WAYS, Way


@dataclass
class Measured:
    """What one way did with one number of streams, in each round.

    Args:
        first: Seconds to the first item, of a stream alone.
        rate: Items a second, of all streams.
        cpu: The server's seconds of CPU for an item.
    """

    first: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


def ratio(these: list[float], bare: list[float]) -> float | None:
    """The median of the ratios, round by round; None where one of them was not measured."""
    ratios = [one / other for one, other in zip(these, bare, strict=False)]
    return median(ratios) if ratios else None


def rows(found: Mapping[tuple[str, int], Measured]) -> list[list[str]]:
    """The rows of the table: those of each number of streams together, in the order of `WAYS`."""
    made = []
    for streams in sorted({streams for _, streams in found}):
        for way in WAYS:
            measured = found.get((way.name, streams))
            if measured is not None and measured.rate:
                made.append(_row(way, streams, measured, found.get((BARE[way.transport], streams), Measured())))
    return made


def _row(way: Way, streams: int, measured: Measured, bare: Measured) -> list[str]:
    first, rate = ratio(measured.first, bare.first), ratio(measured.rate, bare.rate)
    return [
        str(streams),
        way.name,
        f"{median(measured.first) * 1e3:.2f}",
        "" if first is None else f"{first:.2f}",
        f"{median(measured.rate):,.0f}",
        "" if rate is None else f"{rate:.2f}",
        f"{median(measured.cpu) * 1e6:.1f}",
    ]


def shown(found: Mapping[tuple[str, int], Measured]) -> str:
    """The whole table."""
    heads = ["streams", "way", "first item, ms", "times bare", "items a second", "of bare", "us of CPU an item"]
    return table(heads, rows(found))
