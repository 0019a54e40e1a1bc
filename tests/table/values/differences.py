"""Where a way in has another outcome than the table says: for a reason, or not yet mended.

A row that is mended comes off `DIFFERS`: the test fails until it does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tests.table.values.cells import expect, fill
from tests.table.values.kinds import KINDS, Kind


class Cell(NamedTuple):
    """One kind, asked with one list of values by one way."""

    kind: str
    values: str
    way: str


@dataclass(frozen=True)
class Rows:
    """Cells with the same outcome.

    Args:
        kinds: The names of kinds, with bars between them.
        values: The names of values.
        ways: The names of ways.
        outcome: What the model gets, as in `cells.py`, or 400.
    """

    kinds: str
    values: str
    ways: str
    outcome: str

    def list_cells(self) -> Iterator[tuple[Cell, str]]:
        for kind in self.kinds.split(" | "):
            for values in self.values.split(" | "):
                for way in self.ways.split(" | "):
                    yield Cell(kind, values, way), fill(self.outcome, KINDS[kind])


BY_DESIGN: Final[Mapping[str, Sequence[Rows]]] = {
    "JSON has no NaN and no infinity: where values become JSON, these become null and the text Infinity, as in each answer.": [
        Rows("BYTES pd_json | column object of JSON", "NaN", "Python | Client", "{d} [{na}]"),
        Rows("BYTES pd_json | column object of JSON", "infinity", "Python | Client", "{d} ['Infinity']"),
    ],
}
"""The reason, and the cells."""

DIFFERS: Final[Mapping[str, Sequence[Rows]]] = {
    "2.0 is no whole number, and 0 and 1 are no booleans.": [
        Rows(
            "INT64 | INT8 | UINT8 | UINT64 | list[int] | column int64 | column int8 | column uint8 | column Int64 | column Int8",
            "a whole float",
            "Python | Client",
            "400",
        ),
        Rows("BOOL | list[bool] | column bool | column boolean", "edge", "Python | Client", "400"),
    ],
    "A flat list does not get the declared shape.": [
        Rows(
            "FP64 [-1, 1]",
            "right | edge | one missing | all missing | a whole number | a whole float | a fraction | empty | NaN | infinity",
            "Python | Client",
            "400",
        ),
    ],
    "A list of dates says that it is one, whatever is declared.": [
        Rows("BYTES", "a date", "Python | Client", "list [2026-01-31 00:00:00]"),
        Rows("BYTES", "a date with a zone", "Python | Client", "list [2026-01-31 00:00:00+00:00]"),
        Rows("BYTES str | BYTES base64", "a date", "Client", "{d} [2026-01-31 00:00:00]"),
        Rows("BYTES str | BYTES base64", "a date with a zone", "Client", "{d} [2026-01-31 00:00:00+00:00]"),
    ],
    "Beside a number that is missing `generate` wants a declaration.": [
        Rows("nothing declared", "one missing", "generate", "400"),
    ],
    "Client makes FP64, INT64 or UINT64 of a list of numbers, and FP64 of an empty list, whatever is declared.": [
        Rows("FP64 | column float64 | column Float64", "edge | a whole number", "Client", "400"),
        Rows("FP32", "right | edge | one missing | a whole number | a whole float | a fraction | empty | NaN | infinity", "Client", "400"),
        Rows(
            "INT64 | BOOL | BYTES | BYTES str | BYTES base64 | BYTES datetime | list[int]"
            " | list[bool] | list[str] | list[bytes] | list[datetime] | column int64"
            " | column Int64 | column bool | column boolean | column object of bytes",
            "empty",
            "Client",
            "400",
        ),
        Rows("INT8 | UINT8", "right | edge | a whole number | empty", "Client", "400"),
        Rows("UINT64", "right | a whole number | empty", "Client", "400"),
        Rows("list[float]", "edge", "Client", "400"),
        Rows(
            "column float32",
            "right | edge | one missing | a whole number | a whole float | a fraction | empty | NaN | infinity | nested",
            "Client",
            "400",
        ),
        Rows("column int8 | column uint8 | column Int8", "right | edge | a whole number | empty | nested", "Client", "400"),
    ],
    "Client makes a tensor of the elements' type of a list for JSON, or of none.": [
        Rows(
            "BYTES pd_json",
            "right | one missing | all missing | a whole number | a whole float | a fraction"
            " | true | empty | NaN | infinity | a number and a text | an object | nested",
            "Client",
            "400",
        ),
        Rows("BYTES pd_json", "a date", "Client", "{d} [2026-01-31 00:00:00]"),
        Rows("BYTES pd_json", "a date with a zone", "Client", "{d} [2026-01-31 00:00:00+00:00]"),
        Rows("column object of JSON", "right | one missing | all missing | a number and a text | an object | nested", "Client", "400"),
    ],
    "Client sends NaN alone as FP64, in which a column of texts or dates takes it for a missing value.": [
        Rows(
            "column object of text | column string | column datetime64[us]"
            " | column datetime64[us, Europe/Berlin] | column category of text",
            "NaN",
            "Client",
            "{d} [{na}]",
        ),
    ],
    "Client takes None beside numbers alone.": [
        Rows("FP64 | FP32 | list[float] | column float64 | column float32 | column Float64", "all missing", "Client", "400"),
        Rows(
            "column Int64 | column Int8 | column boolean | column object of text | column string"
            " | column datetime64[us] | column datetime64[us, Europe/Berlin]"
            " | column category of text",
            "one missing | all missing",
            "Client",
            "400",
        ),
        Rows("column, nothing declared", "all missing | texts, one missing | booleans, one missing", "Client", "400"),
    ],
    "Lists for `list[int]` are INT64 here, though it takes UINT64.": [
        Rows("list[int]", "edge", "generate | Python", "400"),
    ],
    "[N, 1] is not taken for [N].": [
        Rows(
            "BYTES str | BYTES base64 | BYTES datetime | list[datetime] | column object of bytes"
            " | column datetime64[us] | column datetime64[us, Europe/Berlin]",
            "nested",
            "generate | Python | Client",
            "400",
        ),
        Rows(
            "list[float] | list[int] | list[bool] | list[bytes] | column float64"
            " | column float32 | column Float64 | column int64 | column int8 | column uint8"
            " | column Int64 | column Int8 | column bool | column boolean",
            "nested",
            "generate",
            "400",
        ),
        Rows("list[str] | column object of text | column string | column category of text", "nested", "generate | Python", "400"),
    ],
    "`generate` reads a text for JSON as JSON, and takes no objects and lists for an input that is no column.": [
        Rows(
            "BYTES pd_json",
            "right | edge | one missing | all missing | a whole number | a whole float"
            " | a fraction | true | a number and a text | an object | nested",
            "generate",
            "400",
        ),
        Rows("BYTES pd_json | column object of JSON", "a text of digits", "generate", "{d} [12]"),
        Rows("column object of JSON", "right | edge | a number and a text", "generate", "400"),
    ],
}
"""What happens today, and where. The outcome that is decided is that of the table."""


def _list_cells(causes: Mapping[str, Sequence[Rows]]) -> dict[Cell, str]:
    return {cell: outcome for rows in causes.values() for row in rows for cell, outcome in row.list_cells()}


_BY_DESIGN: Final = _list_cells(BY_DESIGN)
_TODAY: Final = _list_cells(DIFFERS)


def decide(kind: Kind, values: str, way: str) -> str:
    """What is right by this way."""
    return _BY_DESIGN.get(Cell(kind.name, values, way)) or expect(kind, values)


def find_today(kind: Kind, values: str, way: str) -> str | None:
    """What happens today, if that is not what is right."""
    return _TODAY.get(Cell(kind.name, values, way))
