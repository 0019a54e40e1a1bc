"""Where a way in has another outcome than the table says, with the reason."""

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
        kinds: The names of kinds, with semicolons between them.
        values: The names of values.
        ways: The names of ways.
        outcome: What the model gets, as in `cells.py`, or 400.
    """

    kinds: str
    values: str
    ways: str
    outcome: str

    def list_cells(self) -> Iterator[tuple[Cell, str]]:
        for kind in self.kinds.split("; "):
            for values in self.values.split("; "):
                for way in self.ways.split("; "):
                    yield Cell(kind, values, way), fill(self.outcome, KINDS[kind])


FIELDS: Final = "; ".join(kind.name for kind in KINDS.values() if kind.row is not None)

BY_DESIGN: Final[Mapping[str, Sequence[Rows]]] = {
    "JSON has no NaN and no infinity. Where values become JSON, these become null and the text Infinity, as in each answer.": [
        Rows("BYTES pd_json; column object of JSON", "NaN", "Python; Client", "{d} [{na}]"),
        Rows("BYTES pd_json; column object of JSON", "infinity", "Python; Client", "{d} ['Infinity']"),
    ],
    "The text 'NaN' among floats and base64 text among bytes are refused. Only JSON needs them: write `math.nan` and `bytes`.": [
        Rows(
            "FP64; FP16; FP32; FP64 [-1, 1]; list[float]; column float64; column float32; column Float64; column Float32"
            "; field float; field float | None",
            "the text NaN",
            "Python; Client",
            "400",
        ),
        Rows("BYTES base64; column object of bytes", "base64", "Python; Client", "400"),
    ],
    "In an object of a row the class decides, as msgspec reads it: 2.0 is no int, 0 and 1 are no bool, null is no float. `generate` has "
    "no NaN there either.": [
        Rows("field int; field int | None", "a whole float", "generate; rows; Client, rows", "400"),
        Rows("field bool; field bool | None", "edge", "generate; rows; Client, rows", "400"),
        Rows(
            "field float",
            "one missing; edge, one missing; all missing; a whole number, one missing; a whole float, one missing; a fraction, one missing",
            "generate; rows; Client, rows",
            "400",
        ),
        Rows("field int | None", "a whole float, one missing", "generate; rows; Client, rows", "400"),
        Rows("field bool | None", "edge, one missing", "generate; rows; Client, rows", "400"),
        Rows("field float; field float | None", "NaN; infinity", "generate", "400"),
        Rows("field float; field float | None", "the text NaN", "generate; rows; Client, rows", "400"),
    ],
    "An instance has values of Python's own types.": [
        Rows(
            "field bytes", "right; edge; a text of digits; a date as text; base64; the text NaN; the text NaT", "rows; Client, rows", "400"
        ),
        Rows("field datetime; field datetime | None", "a date as text; a day", "rows; Client, rows", "400"),
        Rows("field datetime | None", "the text NaT", "rows; Client, rows", "400"),
    ],
    "An empty list of instances names no class, so no fields are sent.": [
        Rows(FIELDS, "empty", "rows; Client, rows", "400"),
    ],
    "In a CSV file an empty cell is missing where a column or a field may miss values, else an empty text, or no bytes.": [
        Rows("BYTES", "one missing", "score", "object [b'a', b'']"),
        Rows("BYTES", "all missing", "score", "object [b'', b'']"),
        Rows("BYTES str; list[str]; field str", "one missing", "score", "list ['a', '']"),
        Rows("BYTES str; list[str]; field str", "all missing", "score", "list ['', '']"),
        Rows("BYTES base64; list[bytes]; field bytes", "one missing", "score", "list [b'a', b'']"),
        Rows("BYTES base64; list[bytes]; field bytes", "all missing", "score", "list [b'', b'']"),
        Rows("column object of bytes", "one missing", "score", "object [b'a', b'']"),
        Rows("column object of bytes", "all missing", "score", "object [b'', b'']"),
        Rows(
            "column object of text; column object with NaN; column string; field str | None",
            "edge",
            "score",
            "{d} [{na}, 'NaN', 'null', 'None']",
        ),
    ],
    "Where nothing is declared, the cells of a CSV column decide: `score` sends numbers, booleans, or else texts. An empty cell is "
    "missing, `NA` is a text.": [
        Rows("nothing declared; column, nothing declared", "all missing", "score", "float64 [nan, nan]"),
    ],
    "A field of a row holds one value, so a list is refused.": [
        Rows(FIELDS, "nested [N, 1]", "generate; rows; Client, rows", "400"),
    ],
    "No number of an instance is changed in silence: its float refuses a whole number that it would round.": [
        Rows("field float; field float | None", "edge", "rows; Client, rows", "400"),
    ],
    "To metadata, `list[int]` is INT64, and a list becomes that. An array may be UINT64.": [
        Rows("list[int]", "edge", "generate; Python; Client; score", "400"),
    ],
    "Metadata does not say that a column of BYTES, or one that is not declared, is of a data frame. So `Client` refuses None there, except "
    "among numbers, and for BYTES `score` makes an empty cell an empty text: write `inputs=specs_of(frame)`, or send a `pandas.Series`.": [
        Rows("column BYTES", "one missing; edge, one missing; all missing; a text of digits, one missing", "Client", "400"),
        Rows("column BYTES", "one missing", "score", "{d} ['a', '']"),
        Rows("column BYTES", "all missing", "score", "{d} ['', '']"),
        Rows(
            "column, nothing declared",
            "all missing; true, one missing; a text of digits, one missing; a date, one missing",
            "Client",
            "400",
        ),
    ],
}
"""The reason, and the cells."""


def _list_cells(causes: Mapping[str, Sequence[Rows]]) -> dict[Cell, str]:
    return {cell: outcome for rows in causes.values() for row in rows for cell, outcome in row.list_cells()}


_BY_DESIGN: Final = _list_cells(BY_DESIGN)


def decide(kind: Kind, values: str, way: str) -> str:
    """What is right by this way."""
    return _BY_DESIGN.get(Cell(kind.name, values, way)) or expect(kind, values)


def find_ways(kind: Kind, values: str) -> set[str]:
    """The ways for which anything is listed."""
    return {way for name, listed, way in _BY_DESIGN if (name, listed) == (kind.name, values)}
