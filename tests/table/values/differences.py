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
    "A text is how JSON writes NaN and bytes; Python has objects for them.": [
        Rows(
            "FP64; FP16; FP32; FP64 [-1, 1]; list[float]; column float64; column float32; column Float64; column Float32"
            "; field float; field float | None",
            "the text NaN",
            "Python; Client",
            "400",
        ),
        Rows("BYTES base64; column object of bytes", "base64", "Python; Client", "400"),
    ],
    "A `datetime.date` is no moment: make it a datetime, or a text.": [
        Rows(
            "BYTES datetime; list[datetime]; column datetime64[us]; column datetime64[ns]; field datetime; field datetime | None"
            "; nothing declared; column, nothing declared",
            "a day",
            "Python; Client",
            "400",
        ),
    ],
    "In an object of a row the class decides, as msgspec reads it: 2.0 is no int, 0 and 1 are no bool, null and NaN are no float.": [
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
        Rows("field bytes", "right; edge; a text of digits; a date as text; base64; the text NaN", "rows; Client, rows", "400"),
        Rows("field datetime; field datetime | None", "a date as text; a day", "rows; Client, rows", "400"),
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
    "Where nothing is declared, `score` reads the cells of a CSV file as pandas does.": [
        Rows("nothing declared; column, nothing declared", "all missing", "score", "float64 [nan, nan]"),
    ],
    "A row has no shape: a list is none of its values.": [
        Rows(FIELDS, "nested [N, 1]", "generate; rows; Client, rows", "400"),
    ],
}
"""The reason, and the cells."""

DIFFERS: Final[Mapping[str, Sequence[Rows]]] = {
    "`Client` makes INT64, UINT64 or FP64 of a list, whatever is declared: write an array, `np.float32([1.5])`.": [
        Rows("FP64; column float64; column Float64; field float; field float | None", "edge; a whole number", "Client", "400"),
        Rows(
            "FP16; FP32",
            "right; edge; empty; no list; one missing; edge, one missing"
            "; a whole number, one missing; a whole float, one missing; a fraction, one missing"
            "; a whole number; a whole float; a fraction; NaN; infinity",
            "Client",
            "400",
        ),
        Rows(
            "INT64; BOOL; BYTES; BYTES str; BYTES base64; BYTES datetime; list[int]; list[bool]"
            "; list[str]; list[bytes]; list[datetime]; column int64; column Int64; column bool"
            "; column boolean; column object of bytes; column category of numbers; field int"
            "; field int | None; field bool; field bool | None; field bytes",
            "empty",
            "Client",
            "400",
        ),
        Rows("INT8; UINT8", "right; edge; empty; no list; a whole number", "Client", "400"),
        Rows("UINT64", "right; empty; no list; a whole number", "Client", "400"),
        Rows("list[float]", "edge", "Client", "400"),
        Rows(
            "column float32; column Float32",
            "right; edge; empty; no list; one missing; edge, one missing"
            "; a whole number, one missing; a whole float, one missing; a fraction, one missing"
            "; a whole number; a whole float; a fraction; NaN; infinity; nested [N, 1]",
            "Client",
            "400",
        ),
        Rows("column int8; column uint8; column Int8", "right; edge; empty; no list; a whole number; nested [N, 1]", "Client", "400"),
        Rows("column uint64", "right; empty; no list; a whole number; nested [N, 1]", "Client", "400"),
    ],
    "`Client` takes None beside numbers alone: write a `pandas.Series`.": [
        Rows(
            "FP64; FP16; FP32; list[float]; column float64; column float32; column Float64"
            "; column Float32; field float; field float | None",
            "all missing",
            "Client",
            "400",
        ),
        Rows(
            "column Int64; column Int8; field int | None",
            "one missing; edge, one missing; all missing; a whole number, one missing",
            "Client",
            "400",
        ),
        Rows("column boolean; field bool | None", "one missing; all missing; true, one missing", "Client", "400"),
        Rows(
            "column object of text; column object with NaN; column string; column BYTES; field str | None",
            "one missing; edge, one missing; all missing; a text of digits, one missing",
            "Client",
            "400",
        ),
        Rows(
            "column datetime64[us]; column datetime64[ns]; field datetime | None",
            "one missing; edge, one missing; all missing; a date, one missing",
            "Client",
            "400",
        ),
        Rows(
            "column datetime64[us, Europe/Berlin]; column category of text; column category of numbers",
            "one missing; edge, one missing; all missing",
            "Client",
            "400",
        ),
        Rows(
            "column, nothing declared",
            "all missing; true, one missing; a text of digits, one missing; a date, one missing",
            "Client",
            "400",
        ),
    ],
    "A list nested as [N, 1] is refused for [N]: write it flat.": [
        Rows(
            "BYTES str; BYTES base64; BYTES datetime; list[datetime]; column object of bytes"
            "; column datetime64[us]; column datetime64[ns]"
            "; column datetime64[us, Europe/Berlin]",
            "nested [N, 1]",
            "generate; Python; Client",
            "400",
        ),
        Rows(
            "list[float]; list[int]; list[bool]; list[bytes]; column float64; column float32"
            "; column Float64; column Float32; column int64; column int8; column uint8"
            "; column uint64; column Int64; column Int8; column bool; column boolean"
            "; column BYTES; column category of numbers",
            "nested [N, 1]",
            "generate",
            "400",
        ),
        Rows(
            "list[str]; column object of text; column object with NaN; column string; column category of text",
            "nested [N, 1]",
            "generate; Python",
            "400",
        ),
        Rows("field str; field str | None", "nested [N, 1]", "Python", "400"),
        Rows("field datetime; field datetime | None", "nested [N, 1]", "Python; Client", "400"),
    ],
    "2.0 is refused for a whole number, and 0 and 1 for booleans.": [
        Rows(
            "INT64; INT8; UINT8; UINT64; list[int]; column int64; column int8; column uint8"
            "; column uint64; column Int64; column Int8; column category of numbers; field int"
            "; field int | None",
            "a whole float",
            "Python; Client; score",
            "400",
        ),
        Rows("BOOL; list[bool]; column bool; column boolean; field bool; field bool | None", "edge", "Python; Client", "400"),
    ],
    '`generate` reads a text for JSON as JSON, so that "12" is the number, and takes only such texts where the input is no column.': [
        Rows(
            "BYTES pd_json",
            "right; edge; no list; one missing; edge, one missing; all missing"
            "; a whole number, one missing; a whole float, one missing; a fraction, one missing"
            "; true, one missing; a text of digits, one missing; a whole number; a whole float"
            "; a fraction; true; a number and a text; a date as text; base64; an object"
            "; a huge whole number; the text NaN; nested [N, 1]; nested [N, 2]; ragged",
            "generate",
            "400",
        ),
        Rows("BYTES pd_json; column object of JSON", "a text of digits", "generate", "{d} [12]"),
        Rows(
            "column object of JSON",
            "right; edge; no list; one missing; edge, one missing; a number and a text; a date as text; base64; the text NaN",
            "generate",
            "400",
        ),
        Rows("column object of JSON", "a text of digits, one missing", "generate", "{d} [12, {na}]"),
    ],
    "Beside a missing value, 2.0 is refused for a whole number, and 0 and 1 for booleans.": [
        Rows("column Int64; column Int8", "a whole float, one missing", "infer; binary; gRPC; generate; Python; Client", "400"),
        Rows("column boolean", "edge, one missing", "infer; binary; gRPC; generate; Python; Client", "400"),
        Rows("column category of numbers", "a whole float, one missing", "generate; Python; Client", "400"),
        Rows("field int | None", "a whole float, one missing", "infer; binary; gRPC; Python; Client", "400"),
        Rows("field bool | None", "edge, one missing", "infer; binary; gRPC; Python; Client", "400"),
    ],
    "A flat list is not given the declared shape: nest it, `[[1.5]]`.": [
        Rows(
            "FP64 [-1, 1]",
            "right; edge; empty; no list; one missing; edge, one missing; all missing"
            "; a whole number, one missing; a whole float, one missing; a fraction, one missing"
            "; a whole number; a whole float; a fraction; NaN; infinity",
            "Python; Client",
            "400",
        ),
    ],
    "`Client` takes a list for JSON only if all of it are texts, numbers or dates, and sends it as such.": [
        Rows(
            "BYTES pd_json",
            "empty; no list; all missing; a whole number, one missing"
            "; a whole float, one missing; a fraction, one missing; true, one missing"
            "; a whole number; a whole float; a fraction; true; a number and a text; an object"
            "; a huge whole number; NaN; infinity",
            "Client",
            "400",
        ),
        Rows("BYTES pd_json", "a date", "Client", "{d} [2026-01-31 00:00:00]"),
        Rows("BYTES pd_json", "a date with a zone", "Client", "{d} [2026-01-31 00:00:00+00:00]"),
        Rows(
            "column object of JSON",
            "no list; all missing; true, one missing; a number and a text; an object; a huge whole number",
            "Client",
            "400",
        ),
        Rows("column object of JSON", "a whole number, one missing", "Client", "{d} [7.0, {na}]"),
    ],
    "A list of dates is sent as one, whatever is declared, and the model gets dates.": [
        Rows("BYTES", "a date", "Python; Client", "list [2026-01-31 00:00:00]"),
        Rows("BYTES", "a date with a zone", "Python; Client", "list [2026-01-31 00:00:00+00:00]"),
        Rows("BYTES str; BYTES base64", "a date", "Client", "{d} [2026-01-31 00:00:00]"),
        Rows("BYTES str; BYTES base64", "a date with a zone", "Client", "{d} [2026-01-31 00:00:00+00:00]"),
        Rows("column BYTES", "a date, one missing", "Python", "datetime64 [2026-01-31 00:00:00, NaT]"),
        Rows("column BYTES", "a date", "Python; Client", "datetime64 [2026-01-31 00:00:00]"),
        Rows("column BYTES", "a date with a zone", "Python; Client", "datetime64 [2026-01-31 00:00:00+00:00]"),
    ],
    "Beside null, `pd_json` takes JSON of any type for a column of texts that is declared without a content type.": [
        Rows("column BYTES", "a whole number, one missing", "infer; binary; gRPC", "{d} [7, {na}]"),
        Rows("column BYTES", "a whole float, one missing", "infer; binary; gRPC", "{d} [2.0, {na}]"),
        Rows("column BYTES", "a fraction, one missing", "infer; binary; gRPC", "{d} [0.5, {na}]"),
        Rows("column BYTES", "true, one missing", "infer; binary; gRPC", "{d} [True, {na}]"),
    ],
    "A list of NaN is sent as FP64, which a column or a field of texts or dates takes for missing values.": [
        Rows(
            "column object of text; column object with NaN; column string"
            "; column datetime64[us]; column datetime64[ns]"
            "; column datetime64[us, Europe/Berlin]; column category of text; field str | None"
            "; field datetime | None",
            "NaN",
            "Client",
            "{d} [{na}]",
        ),
        Rows("column BYTES", "NaN", "Python; Client", "{d} [{na}]"),
    ],
    "A text that is no list is refused where texts are declared.": [
        Rows(
            "BYTES str; BYTES pd_json; list[str]; column object of text; column object with NaN"
            "; column string; column category of text; column object of JSON; field str"
            "; field str | None",
            "no list",
            "Python",
            "400",
        ),
    ],
    "A date that is no list is refused.": [
        Rows(
            "BYTES datetime; list[datetime]; column datetime64[us]; column datetime64[ns]"
            "; column datetime64[us, Europe/Berlin]; field datetime; field datetime | None",
            "no list",
            "Client",
            "400",
        ),
    ],
    "`score` sends a column that has the input's name in the shape [N], whatever is declared: give it another name.": [
        Rows("FP64 [-1, 1]", "right; edge; one missing; all missing; a whole float", "score", "400"),
    ],
    "Among numbers that nobody declares, null is refused.": [
        Rows(
            "nothing declared",
            "one missing; a whole number, one missing; a whole float, one missing; a fraction, one missing",
            "generate",
            "400",
        ),
    ],
    "An instance of a class refuses a whole number that its float would round.": [
        Rows("field float; field float | None", "edge", "rows; Client, rows", "400"),
    ],
    "A list for `list[int]` is INT64, though it takes UINT64.": [
        Rows("list[int]", "edge", "generate; Python; score", "400"),
    ],
    "`score` takes an empty cell for an empty text where `inputs=` declares a column of texts by hand.": [
        Rows("column BYTES", "one missing", "score", "{d} ['a', '']"),
        Rows("column BYTES", "all missing", "score", "{d} ['', '']"),
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


def find_ways(kind: Kind, values: str) -> set[str]:
    """The ways for which anything is listed."""
    return {way for name, listed, way in [*_BY_DESIGN, *_TODAY] if (name, listed) == (kind.name, values)}
