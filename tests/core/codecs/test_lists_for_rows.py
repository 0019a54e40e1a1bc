"""Lists from Python for the fields of rows: none of their values is converted."""

from __future__ import annotations

import dataclasses
from datetime import date
from typing import Any

import pytest

from oip_asgi import InferenceError, InferenceServer


@dataclasses.dataclass
class Lists:
    counts: list[int]
    flags: list[bool]
    shares: list[float]
    names: list[str]
    share: float | None = None
    day: date | None = None


def _show_lists(rows: list[Lists]) -> list[str]:
    return [repr(dataclasses.astuple(row)) for row in rows]


FITTING: dict[str, Any] = {"counts": [[1]], "flags": [[True]], "shares": [[0.5]], "names": [["a"]]}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("counts", [each]) for each in ([1.5], [True], ["3"], [None], [2**63])),
        *(("flags", [each]) for each in (["false"], [0], [1.0], [None])),
        *(("shares", [each]) for each in (["1.5"], [True], [None])),
        *(("names", [each]) for each in ([1], [None])),
        *(("share", [each, None]) for each in (True, "1.5")),
        ("counts", [[1], [1, 2]]),
    ],
)
def test_a_list_for_a_field_of_rows_is_not_converted(name: str, value: list[Any]) -> None:
    """As by the other ways in: neither lists of lists nor a None make texts, booleans and fractions something else."""
    server = InferenceServer()
    server.register("m", _show_lists)
    with pytest.raises(InferenceError) as refused:
        server.infer_sync("m", {**{each: there * len(value) for each, there in FITTING.items()}, name: value})
    assert (refused.value.status, name in str(refused.value)) == (400, True)


def test_what_fits_a_field_of_rows_is_taken_beside_none() -> None:
    server = InferenceServer()
    server.register("m", _show_lists)
    inputs = {**{each: there * 2 for each, there in FITTING.items()}, "share": [1.5, None], "day": ["2026-01-31", None]}
    rows = ["([1], [True], [0.5], ['a'], 1.5, datetime.date(2026, 1, 31))", "([1], [True], [0.5], ['a'], None, None)"]
    assert server.infer_sync("m", inputs)["output_0"].tolist() == [row.encode() for row in rows]
